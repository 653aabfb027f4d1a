"""Build what hardware_db generates: measured tables and fits from public measurements, and the JSON Schema.

    python -m tools.build_hardware --from ../shared/measurements     measured/*.jsonl, measured/rejected.json, fits.json
    python -m tools.build_hardware --schema                          schemas/hardware.json
    python -m tools.build_hardware --check                           validate the YAML, and every stored row again
    python -m tools.build_hardware --fits                            print the fits

The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from primus_lint.hardware import compiled
from tools.hardware.selfcheck import Limits, why_impossible
from tools.hardware.tables import COLUMNS, Ledger, Table

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATABASE = os.path.join(ROOT, "hardware_db")
SCHEMA = os.path.join(ROOT, "schemas", "hardware.json")
ALL_REJECTED = 0.10  # a group of rows of which more than this share is impossible is not believed at all


def read_tables(folder: str, ledger: Ledger) -> list[Table]:
    """Every table of the measurements, before any check."""
    from tools.hardware import read_amd, read_nvidia, read_sites

    return [
        *read_nvidia.aiconfigurator(folder, ledger), *read_nvidia.simumax(folder, ledger),
        *read_sites.estimate_train_time(folder, ledger), *read_sites.vtrain(folder, ledger),
        *read_amd.primus_turbo(folder, ledger), *read_amd.hipkittens(folder, ledger),
    ]  # fmt: skip


def check_rows(table: Table, limits: Limits, ledger: Ledger) -> None:
    """Drop impossible rows; a group (same op and direction, nodes and GPUs) of which many are impossible goes whole."""
    groups: dict[tuple[Any, ...], list[tuple[tuple[Any, ...], str | None]]] = {}
    for row in table.rows:
        key = row[:3] if table.operation == "collective" else row[:2]
        groups.setdefault(key if table.operation != "memory" else row[:1], []).append(
            (row, why_impossible(limits, table.operation, table.device, row))
        )
    table.checked = len(table.rows)
    kept: set[int] = set()
    for rows in groups.values():
        bad = [(row, reason) for row, reason in rows if reason is not None]
        if len(bad) > ALL_REJECTED * len(rows):
            reason = f"{bad[0][1]}, as {len(bad)} of the {len(rows)} rows of its kind: none is believed"
            for row, _ in rows:
                ledger.reject(table.name, reason, row)
            continue
        for row, why in bad:
            ledger.reject(table.name, str(why), row)
        kept.update(id(row) for row, why in rows if why is None)
    table.rows = [row for row in table.rows if id(row) in kept]
    table.accepted = len(table.rows)


def tables_of(folder: str, limits: Limits, ledger: Ledger) -> dict[str, Table]:
    """The tables to store: read, checked, thinned. `ledger` takes the counts and what was rejected."""
    from tools.hardware.read_nvidia import keep_aiconfigurator
    from tools.hardware.read_sites import KeepSites

    found: dict[str, Table] = {}
    for table in read_tables(folder, ledger):
        check_rows(table, limits, ledger)
        ledger.read.setdefault(table.name, table.checked)
        if table.source == "aiconfigurator":
            table.rows = [row for row in table.rows if keep_aiconfigurator(table, row)]
        elif table.source in ("estimate-train-time", "vtrain"):
            keep = KeepSites()
            rows = sorted(table.rows) if table.operation == "collective" else table.rows
            table.rows = [row for row in rows if keep(table, row)]
        if table.rows:
            found[table.name] = table
    return found


def fits_of(stored: dict[str, Table], limits: Limits) -> dict[str, Any]:
    """Every fit, on the stored rows."""
    from tools.hardware import plan

    gemm = plan.gemm_fits(stored, limits)
    return {
        "gemm": gemm,
        "grouped_gemm": plan.grouped_fits(stored, limits, gemm),
        "attention": plan.attention_fits(stored, limits),
        "memory": plan.memory_fits(stored, limits),
        "curves": plan.curve_fits(stored),
    }


def build(folder: str) -> None:
    """Write measured tables, the list of rejected rows, and the fits."""
    raw = sources()
    limits, ledger = Limits(raw), Ledger()
    tables = tables_of(folder, limits, ledger)
    target = os.path.join(DATABASE, "measured")
    for name in os.listdir(target):
        os.remove(os.path.join(target, name))
    for table in tables.values():
        table.write(target, raw["sources"][table.source])
    _write(os.path.join(target, "rejected.json"), ledger.as_data())
    stored = {name: stored_table(name) for name in tables}  # with the rounding of the files
    _write(os.path.join(DATABASE, "fits.json"), fits_of(stored, limits))


def sources() -> dict[str, Any]:
    """The YAML of the database (fits may not exist yet)."""
    path = os.path.join(DATABASE, "fits.json")
    if not os.path.isfile(path):
        _write(path, {})
    return compiled.read_sources(DATABASE)


def stored_table(name: str) -> Table:
    """A table as it lies in hardware_db/measured."""
    from primus_lint.hardware import measured

    head = measured.head(name)
    table = Table(head["operation"], head["device"], head["source"], head["thinning"])
    table.accepted = head["accepted"]
    table.rows = [tuple(row[column] for column in COLUMNS[table.operation]) for row in measured.rows(name)]
    return table


def check() -> list[str]:
    """Everything that is wrong with the database: schema, references, impossible rows, missing heads."""
    from primus_lint.hardware import measured
    from tools.hardware.schema import problems

    raw = sources()
    found = problems(raw)
    limits = Limits(raw)
    for name in measured.tables():
        head = measured.head(name)
        for key in ("source", "date", "licence", "columns", "units"):
            if not head.get(key):
                found.append(f"measured/{name}: no {key}")
        table = stored_table(name)
        if head["stored"] != len(table.rows):
            found.append(f"measured/{name}: {len(table.rows)} rows, its head says {head['stored']}")
        for row in table.rows:
            reason = why_impossible(limits, table.operation, table.device, row)
            if reason is not None:
                found.append(f"measured/{name}: {row}: {reason}")
    return found


def print_fits() -> None:
    fits = sources()["fits"]

    def show(path: list[str], node: Any) -> None:
        if isinstance(node, dict) and "mape" in node:
            numbers = " ".join(
                f"{key} {node[key]:.4g}" for key in ("launch", "math", "bandwidth", "share") if key in node
            )
            passes = " ".join(f"{key} {node[key]}" for key in ("dgrad", "wgrad") if node.get(key) is not None)
            band = " band {} .. {}".format(*node["band"]) if "band" in node else ""
            seen = f"MAPE {node['mape'] * 100:5.1f} % held {node['held']:4d} of {node['rows']:5d}"
            print(f"{' '.join(path):45s} {seen}  {numbers} {passes}{band}")
        elif isinstance(node, dict):
            for key, value in node.items():
                show([*path, key], value)

    show([], fits)


def _write(path: str, data: Any) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.write("\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and check the hardware database.")
    parser.add_argument("--from", dest="folder", metavar="DIR", help="folder with the public measurements")
    parser.add_argument("--schema", action="store_true", help="write schemas/hardware.json")
    parser.add_argument("--check", action="store_true", help="validate the database")
    parser.add_argument("--fits", action="store_true", help="print the fits and their held-out errors")
    options = parser.parse_args()
    if options.folder:
        build(options.folder)
    if options.schema:
        from tools.hardware.schema import json_schema

        _write(SCHEMA, json_schema())
    found = check() if options.check else []
    for problem in found:
        print(problem, file=sys.stderr)
    if options.fits:
        print_fits()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
