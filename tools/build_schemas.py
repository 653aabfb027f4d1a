"""Write the shipped key tables and the model table from the catalogue of facts.

    python tools/build_schemas.py --from ../shared/catalogue/keys [--to schemas]

One key a line, keys sorted, the same input gives the same bytes. The tables hold facts only: names, types, defaults,
choices, flags, states. `schemas/models.json` holds public models as Megatron arguments (see tools/model_args.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from json_schemas import experiment_schema, settings_schema  # noqa: E402
from model_args import model_table  # noqa: E402

# catalogue file -> shipped file, and the tables in it besides `keys` and `removed`
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "megatron-d3528a21": ("megatron/d3528a21", ("extra",)),
    "megatron-head-d98e8a64": ("megatron/d98e8a64", ("extra",)),
    "primus-megatron-fd1eeabb": ("primus-megatron/fd1eeabb", ()),
    "torchtitan-v0.2.2": ("torchtitan/v0.2.2", ("flavors", "model_overrides")),
    "maxtext": ("maxtext/e591f30c", ("models",)),
    "megatron-bridge": ("megatron_bridge/9577b128", ("recipes", "helpers", "config", "providers")),
}
HEAD = ("framework", "repo", "commit", "date", "megatron", "primus_commit", "caveat")
KEY_FACTS = (
    "type", "default", "choices", "nargs", "flags", "flags_off", "state", "to", "note", "config", "owner", "scope",
    "in", "sft", "megatron_default", "code_default", "primus", "type_default", "ge", "gt", "le", "lt", "since", "block",
    "recipes", "from",
)  # fmt: skip
# Classes that Megatron fills from whatever of their fields it finds on the arguments, flags or not.
FILLED_CLASSES = (
    "ModelParallelConfig", "TransformerConfig", "MLATransformerConfig", "HeterogeneousTransformerConfig",
    "OptimizerConfig", "AdamOptimizerConfig", "SGDOptimizerConfig", "DistributedDataParallelConfig",
)  # fmt: skip
# Flags whose argument stayed under another flag; the catalogue goes by arguments. (megatron/arguments.py of 2022 has them.)
RENAMED_FLAGS = {
    "no_query_key_layer_scaling": {
        "flags": ["--no-query-key-layer-scaling"], "state": "removed", "gone": "2023",
        "note": "off by default since; --apply-query-key-layer-scaling switches it on",
    },
    "layernorm_epsilon_flag": {"flags": ["--layernorm-epsilon"], "state": "removed", "to": "norm_epsilon", "gone": "2023"},
}  # fmt: skip
REMOVED_FACTS = ("flags", "state", "to", "note", "first", "gone")


def facts(entry: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: entry[name] for name in names if name in entry}


def dump(table: dict[str, Any]) -> str:
    """JSON with one entry a line for every value that is a table."""
    parts = []
    for name, value in table.items():
        if isinstance(value, dict):
            rows = [f"  {json.dumps(key)}: {json.dumps(value[key])}" for key in sorted(value)]
            parts.append(f" {json.dumps(name)}: {{" + ("\n" + ",\n".join(rows) + "\n }" if rows else "}"))
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def dump_schema(value: Any, indent: int = 0) -> str:
    """A JSON Schema with one property a line."""
    short = json.dumps(value)
    if not isinstance(value, dict) or len(short) <= 100 or ("properties" not in value and indent > 3):
        return short
    pad = " " * (indent + 1)
    rows = [f"{pad}{json.dumps(name)}: {dump_schema(item, indent + 1)}" for name, item in value.items()]
    return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"


def key_table(source: dict[str, Any], extra: tuple[str, ...]) -> dict[str, Any]:
    table = facts(source, HEAD)
    table["keys"] = {key: facts(entry, KEY_FACTS) for key, entry in source["keys"].items()}
    for name in extra:
        entries = source[name]
        table[name] = {key: facts(entry, KEY_FACTS) for key, entry in entries.items()} if name == "extra" else entries
    table["removed"] = {key: facts(entry, REMOVED_FACTS) for key, entry in source.get("removed", {}).items()}
    return table


def config_fields(classes: dict[str, Any], commit: str) -> dict[str, Any]:
    """Fields of the config classes that are filled by name: keys that work although no flag sets them."""
    table: dict[str, Any] = {"framework": "megatron-config", "repo": classes["repo"], "commit": commit, "keys": {}}
    for name in FILLED_CLASSES:
        for field, entry in classes.get(f"{commit}:{name}", {}).items():
            if not field.startswith("_"):
                table["keys"].setdefault(field, facts(entry, ("type", "default", "state")))
    return table


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--from", dest="source", required=True, help="folder of the catalogue of keys")
    arguments.add_argument("--to", default=os.path.join(ROOT, "schemas"))
    options = arguments.parse_args()
    loaded: dict[str, Any] = {}
    for name in (*TABLES, "models", "megatron-config-classes"):
        with open(os.path.join(options.source, name + ".json"), encoding="utf-8") as file:
            loaded[name] = json.load(file)
    outputs = {target: key_table(loaded[name], extra) for name, (target, extra) in TABLES.items()}
    for commit in ("d3528a21", "d98e8a64"):
        outputs["megatron/" + commit]["removed"] |= RENAMED_FLAGS
        outputs["megatron-config/" + commit] = config_fields(loaded["megatron-config-classes"], commit)
    parser = outputs["megatron/d3528a21"]["keys"]  # knows which keys take lists; Primus does not enforce choices
    primus = {
        key: {**entry, **facts(parser.get(key, {}), ("nargs",))}
        for key, entry in outputs["primus-megatron/fd1eeabb"]["keys"].items()
    }
    tables = {
        "megatron": {"keys": primus},
        "torchtitan": outputs["torchtitan/v0.2.2"],
        "maxtext": outputs["maxtext/e591f30c"],
    }
    outputs["primus-experiment"] = experiment_schema(tables, "fd1eeabb")
    outputs["settings"] = settings_schema()
    outputs["models"] = model_table(loaded["models"], loaded["megatron-bridge"]["providers"])
    for target, table in outputs.items():
        path = os.path.join(options.to, *(target + ".json").split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(dump_schema(table) + "\n" if "$schema" in table else dump(table))
        size = os.path.getsize(path)
        print(f"{size:>9,} B  {len(table.get('keys', table.get('models', ()))):>5} entries  {os.path.relpath(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
