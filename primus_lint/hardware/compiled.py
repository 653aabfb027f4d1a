"""hardware_db as one dictionary: parsed YAML in base units (bytes, seconds, FLOP/s), rates and curves resolved.

A wheel carries the result twice in `_data`: `hardware.txt`, what checks and projections read, one line of JSON an
accelerator and node so that a check parses its own, and `hardware_full.json` with facts and fit errors for people. A checkout compiles it in memory whenever a file of hardware_db is newer than the
compiled copy.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from primus_lint import resources

UNITS = {
    "B": 1, "GB": 10**9, "GiB": 2**30, "GB/s": 1e9, "TB/s": 1e12, "TFLOP/s": 1e12, "us": 1e-6, "W": 1.0, "share": 1.0,
    "count": 1,
}  # fmt: skip
BASE_UNITS = {
    "B": "B", "GB": "B", "GiB": "B", "GB/s": "B/s", "TB/s": "B/s", "TFLOP/s": "FLOP/s", "us": "s", "W": "W", "share": "share",
    "count": "count",
}  # fmt: skip
NAME, FULL_NAME = "hardware.txt", "hardware_full.json"
BY_LINE = ("accelerators", "nodes")  # parts of which a check needs an entry or two
FOR_PEOPLE = frozenset({"facts", "rows", "held", "mape", "bias", "kind", "source", "sources"})


def write_compiled(folder: str) -> None:
    """Write both files into `folder`."""
    full = compile_db(resources.data_root("hardware_db"))
    for name, text in ((NAME, _by_line(_lean(full))), (FULL_NAME, json.dumps(full, separators=(",", ":")))):
        path = os.path.join(folder, name)
        part = f"{path}.{os.getpid()}"  # a reader never sees half of it
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)


def _by_line(data: dict[str, Any]) -> str:
    """Lines "part TAB name TAB JSON" of the parts in BY_LINE, then one line with the rest."""
    lines = [
        f"{part}\t{name}\t{json.dumps(value, separators=(',', ':'))}"
        for part in BY_LINE
        for name, value in data[part].items()
    ]
    rest = {part: value for part, value in data.items() if part not in BY_LINE}
    return "\n".join([*lines, f"\t\t{json.dumps(rest, separators=(',', ':'))}"]) + "\n"


def from_lines(text: str) -> dict[str, Any]:
    """The dictionary of `_by_line`, with entries that are parsed when they are asked for."""
    from primus_lint.lines import Lines

    parts: dict[str, dict[str, str]] = {part: {} for part in (*BY_LINE, "")}
    for line in text.splitlines():
        part, name, value = line.split("\t", 2)
        parts[part][name] = value
    return {**{part: Lines(parts[part]) for part in BY_LINE}, **json.loads(parts[""][""])}


def _lean(node: Any) -> Any:
    """Without what only people read; floats with six digits."""
    if isinstance(node, dict):
        return {key: _lean(value) for key, value in node.items() if key not in FOR_PEOPLE}
    if isinstance(node, list):
        return [_lean(value) for value in node]
    return float(f"{node:.6g}") if isinstance(node, float) else node


def load(full: bool = False) -> dict[str, Any]:
    """The compiled database: the compiled copy, or (in a checkout whose sources are newer) a fresh compilation. The
    `full` one holds facts, sources and fit errors as well."""
    path = resources.compiled(FULL_NAME if full else NAME)
    if os.path.isfile(path) and not (resources.is_checkout() and _stale(os.path.getmtime(path))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return json.loads(text) if full else from_lines(text)
    compiled = compile_db(resources.data_root("hardware_db"))
    with contextlib.suppress(OSError):  # a checkout that cannot be written compiles again next time
        write_compiled(resources.DATA)
    if full:
        return compiled
    lean: dict[str, Any] = _lean(compiled)
    return lean


def _stale(compiled_at: float) -> bool:
    """Whether a source of the database (or the code that compiles it) is newer than the compiled copy."""
    here = os.path.dirname(os.path.abspath(__file__))
    sources = [os.path.join(here, name) for name in ("compiled.py", "resolve.py", "curves.py")]
    root = resources.data_root("hardware_db")
    for folder in (root, *(os.path.join(root, name) for name in ("accelerators", "fabrics", "nodes"))):
        sources += [entry.path for entry in os.scandir(folder) if entry.is_file()]
    return any(os.path.getmtime(source) > compiled_at for source in sources)


def base(fact: dict[str, Any], key: str = "value") -> Any:
    """A fact's value (or `low`, `high`) in base units; bytes and counts are whole numbers."""
    scaled = fact.get(key, fact["value"]) * UNITS[fact["unit"]]
    return round(scaled) if BASE_UNITS[fact["unit"]] in ("B", "count") else scaled


def read_sources(root: str) -> dict[str, Any]:
    """Every YAML of the database, by what it holds, and the generated fits. Raises OSError, yaml.YAMLError."""
    accelerators = {}
    folder = os.path.join(root, "accelerators")
    for name in sorted(os.listdir(folder)):
        entry = _yaml(os.path.join(folder, name))
        accelerators[entry["name"]] = entry
    with open(os.path.join(root, "fits.json"), encoding="utf-8") as file:
        fits = json.load(file)
    return {
        "accelerators": accelerators,
        "fabrics": _by_name(root, "fabrics"),
        "nodes": _by_name(root, "nodes"),
        "fits": fits,
        **{name: _yaml(os.path.join(root, name + ".yaml")) for name in ("sources", "runtime", "rates", "collectives")},
    }


def compile_db(root: str) -> dict[str, Any]:
    """The whole database from the folder `root`."""
    from primus_lint.hardware.curves import resolve_nodes
    from primus_lint.hardware.naming import normalised
    from primus_lint.hardware.resolve import resolve_rates

    raw = read_sources(root)
    rates = resolve_rates(raw)
    accelerators: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    for name, entry in raw["accelerators"].items():
        for alias in (name, *entry["aliases"]):
            aliases[normalised(alias)] = name
        accelerators[name] = _accelerator(entry, raw["runtime"][entry["vendor"]], rates[name], raw["sources"])
    return {
        "accelerators": accelerators,
        "aliases": aliases,
        "nodes": resolve_nodes(raw),
        "sources": {key: [source["title"], source["licence"]] for key, source in raw["sources"].items()},
    }


def _accelerator(
    entry: dict[str, Any], runtime: dict[str, Any], rates: dict[str, Any], sources: dict[str, Any]
) -> dict[str, Any]:
    visible, context, units = entry["visible_memory"], runtime["context"], entry.get("compute_units")
    low = base(context["low"])
    if units is not None and entry["vendor"] == "nvidia":  # stacks of resident threads grow with the SMs; 132 on H100
        low = low * base(units) // 132
    communicator = {key: base(fact) for key, fact in runtime["communicator"].items()}
    return {
        "title": entry["title"],
        "vendor": entry["vendor"],
        "arch": entry["arch"],
        "nodes": entry["nodes"],
        "nominal": base(entry["nominal_memory"]),
        "visible": [base(visible), base(visible, "low"), base(visible, "high")],
        "bandwidth": base(entry["memory_bandwidth"]),
        "units": None if units is None else base(units),
        "peak": {dtype: base(fact) for dtype, fact in entry["peak"].items()},
        "achievable": {dtype: base(fact) for dtype, fact in entry["achievable"].items()},
        "context": [low, base(context["high"])],
        "communicator": [
            communicator["connection_bytes"] * communicator[f"channels_{end}"] * communicator[f"connections_{end}"]
            for end in ("low", "high")
        ],
        "rates": rates,
        "facts": _facts(entry, runtime, sources),
    }


def _facts(entry: dict[str, Any], runtime: dict[str, Any], sources: dict[str, Any]) -> list[list[Any]]:
    """Rows [label, value, unit, kind, source, date, note] in the units of the YAML, for people."""
    named = [
        ("visible memory", entry["visible_memory"]),
        ("nominal memory", entry["nominal_memory"]),
        ("memory bandwidth", entry["memory_bandwidth"]),
        ("compute units", entry.get("compute_units")),
        *((f"peak {dtype}, dense", fact) for dtype, fact in entry["peak"].items()),
        *((f"best matmul found {dtype}", fact) for dtype, fact in entry["achievable"].items()),
        ("runtime context, low", runtime["context"]["low"]),
        ("runtime context, high", runtime["context"]["high"]),
    ]
    return [
        [label, fact["value"], fact["unit"], fact["kind"], fact["source"],
         str(fact.get("date", sources[fact["source"]]["date"])), fact.get("note", "")]
        for label, fact in named
        if fact is not None
    ]  # fmt: skip


def _yaml(path: str) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with open(path, encoding="utf-8") as file:
        return yaml.load(file, Loader=loader)  # a safe loader either way


def _by_name(root: str, folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted(os.listdir(os.path.join(root, folder))):
        for entry in _yaml(os.path.join(root, folder, name)):
            found[entry["name"]] = entry
    return found
