"""Everything the database knows about an accelerator, as rows for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_lint.hardware.records import Accelerator

Row = tuple[str, str, str, str]


def rows(acc: Accelerator, database: dict[str, Any]) -> list[Row]:
    """(label, value, unit, source) of facts, rates and the usual node."""
    found: list[Row] = [("name", acc.name, "", acc.label), ("architecture", acc.arch, "", acc.vendor)]
    entry = database["accelerators"][acc.name]
    rates = entry["rates"]
    for label, value, unit, kind, source, date, note in entry["facts"]:
        title = database["sources"][source][0]
        found.append((label, f"{value:,}", unit, f"{kind}, {title}, {date}" + (f": {note}" if note else "")))
    low, high = acc.visible_hbm_band_bytes
    if low != high:
        found.append(("visible memory, band", f"{low:,} .. {high:,}", "B", ""))
    for dtype, rate in rates["gemm"].items():
        text = (
            f"math {rate['math']:.3f}, bandwidth {rate['bandwidth']:.3f}, launch {rate['launch'] * 1e6:.1f} us, "
            f"dgrad {rate['dgrad']:.2f}, wgrad {rate['wgrad']:.2f}"
        )
        found.append((f"GEMM {dtype}", text, "share of peak", _origin(rate, database)))
    forward = rates["grouped_gemm"]["bf16"]["fwd"]
    found.append(
        ("grouped GEMM bf16", f"math {forward['math']:.3f}, bandwidth {forward['bandwidth']:.3f}", "share of peak",
         _origin(forward, database))
    )  # fmt: skip
    for direction, masks in rates["attention"].items():
        for mask, dims in masks.items():
            for dim, rate in dims.items():
                text = (
                    f"math {rate['math']:.3f}, bandwidth {rate['bandwidth']:.3f}, launch {rate['launch'] * 1e6:.0f} us"
                )
                if rate["ratio"] != 1.0:
                    text = f"{rate['ratio']:g} times the forward"
                label = f"attention {direction}, {mask}, head dimension {dim}"
                found.append((label, text, "share of peak", _origin(rate, database)))
    for kind, rate in rates["memory"].items():
        found.append((f"memory-bound {kind}", f"{rate['share']:.3f}", "share of bandwidth", _origin(rate, database)))
    for bits, ratio in rates["in_situ"].items():
        if bits != "version":
            text = f"{ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
            origin = f"{ratio['class']}, calibrated on published training runs, version {rates['in_situ']['version']}"
            found.append((f"{bits}-bit products in a step", text, "times alone", origin))
    for name in acc.node_types:
        node = database["nodes"][name]
        text = (
            f"{node['gpus_per_node']} GPUs, {node['fabric']} {node['fabric_rate'] / 1e9:g} GB/s, "
            f"{node['nics']} x {node['network']} {node['nic_rate'] / 1e9:g} GB/s"
        )
        found.append((f"node {name}", text, "", f"collectives {node['curves']['tier']}"))
    return found


def _origin(rate: dict[str, Any], database: dict[str, Any]) -> str:
    sources = rate["source"].split("+")
    text = f"{rate['tier']}, " + " and ".join(database["sources"][source][0] for source in sources)
    if "mape" in rate:
        text += f"; held-out error {rate['mape'] * 100:.1f} % on {rate['held']} of {rate['rows']} rows"
    return text
