"""One page an accelerator, and one of node types and sources, from `hardware_db/`: every number with its source."""

from __future__ import annotations

import os
from typing import Any

import yaml

from primus_lint import resources
from primus_lint.hardware import accelerator, describe, names, node_type
from primus_lint.units import gib
from tools.docs.markdown import code, table


def pages() -> dict[str, str]:
    """Path below docs/ -> text."""
    found = {"hardware/index.md": index(), "hardware/sources.md": sources()}
    for name in names():
        found[f"hardware/{name}.md"] = page(name)
    return found


def index() -> str:
    """All accelerators, and their nodes."""
    rows = []
    for name in names():
        device = accelerator(name)
        node = node_type(name)
        assert device is not None and node is not None
        peak = next((value for label, value, _, _ in describe(device) if label.startswith("peak bf16")), "")
        rows.append(
            (f"[{name}]({name}.md)", device.label, device.arch, gib(device.visible_hbm_bytes), f"{peak} TFLOP/s",
             f"{node.gpus_per_node} a node")
        )  # fmt: skip
    head = ["name", "device", "architecture", "visible memory", "peak BF16, dense", "usual node"]
    return f"""# Hardware

What `primus-lint hardware` knows. A device is given by name or alias, in any case: `--gpu MI300X`.
Every number on the pages has a unit, a kind and a source ([list](sources.md)): `spec` (a vendor says so), `measured`
(somebody ran it), `derived` (computed from others), `fitted` (parameters of a model, with the error on rows that the fit
did not see), `transferred` (of a relative, with a wider band), `constant` (a stated share of the peak).

{table(head, rows)}

How to add one: [Adding a device](../adding.md#a-device).
"""


def page(name: str) -> str:
    """One accelerator."""
    device = accelerator(name)
    assert device is not None
    aliases = _data(f"accelerators/{name}.yaml").get("aliases") or []
    groups: dict[str, list[tuple[str, str, str]]] = {"Memory and peaks": [], "Rates": [], "Nodes": []}
    for label, value, unit, source in describe(device):
        if label in ("name", "architecture"):
            continue
        rate = unit.startswith("share") or label.startswith(("GEMM", "grouped GEMM", "attention", "memory-bound"))
        group = "Nodes" if label.startswith("node ") else "Rates" if rate else "Memory and peaks"
        groups[group].append((label, f"{value} {unit}".strip(), source))
    parts = [f"# {device.label}", f"`--gpu {name}` · {device.vendor} · {device.arch}"]
    if aliases:
        parts.append("Also found as " + ", ".join(code(str(alias)) for alias in aliases) + ".")
    for title, rows in groups.items():
        if rows:
            parts += [f"## {title}", table(["what", "value", "source"], rows)]
    parts.append("A rate is a share of the peak or of the memory bandwidth; `launch` is the time of an empty kernel.")
    return "\n\n".join(parts) + "\n"


def sources() -> str:
    """Where the numbers come from."""
    rows = []
    for name, facts in sorted(_data("sources.yaml").items()):
        date = f"{facts['date']}" + (" (taken down then; the source has no date)" if facts.get("collected") else "")
        rows.append((code(name), facts["title"], facts["licence"], date))
    return f"# Sources of the hardware database\n\n{table(['id', 'title', 'licence', 'date'], rows)}\n"


def _data(path: str) -> dict[str, Any]:
    with open(os.path.join(resources.data_root("hardware_db"), path), encoding="utf-8") as file:
        loaded: dict[str, Any] = yaml.safe_load(file)
    return loaded
