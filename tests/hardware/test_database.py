"""The database checks itself: form, references, dates and sources, no impossible row, and what was left out is counted."""

from __future__ import annotations

import glob
import json
import os

import pytest

from primus_lint import resources
from primus_lint.hardware import compiled, measured, names, node_type
from tools import build_hardware
from tools.hardware import schema
from tools.hardware.selfcheck import Limits, why_impossible

DATABASE = resources.data_root("hardware_db")


def test_nothing_is_wrong() -> None:
    assert build_hardware.check() == []


def test_every_fact_has_unit_source_date_and_kind() -> None:
    raw = compiled.read_sources(DATABASE)
    facts = schema.facts(raw)
    assert len(facts) > 250
    for path, fact in facts:
        assert {"value", "unit", "source", "kind"} <= set(fact), path
        assert fact.get("date") or raw["sources"][fact["source"]]["date"], path
        if fact["kind"] == "derived" and "visible_memory" in path:
            assert fact["note"], f"{path}: a derived number says how"


def test_the_check_finds_what_is_broken() -> None:
    raw = compiled.read_sources(DATABASE)
    raw["accelerators"]["h100"]["nodes"] = ["no-such-node"]
    raw["accelerators"]["b200"]["peak"]["bf16"]["source"] = "nobody"
    raw["accelerators"]["mi300x"]["visible_memory"]["low"] = 3e11
    raw["accelerators"]["mi325x"]["colour"] = "red"
    found = "\n".join(schema.problems(raw))
    for part in (
        "h100: node type no-such-node",
        "source nobody",
        "mi300x/visible_memory: 206141652992.0 is not",
        "colour",
    ):
        assert part in found


def test_published_schema_is_current_and_accepts_the_files() -> None:
    import jsonschema
    import yaml

    with open(os.path.join(resources.data_root("schemas"), "hardware.json"), encoding="utf-8") as file:
        published = json.load(file)
    assert published == schema.json_schema()
    validator = jsonschema.Draft202012Validator(published)
    paths = [
        path for folder in ("accelerators", "fabrics", "nodes") for path in glob.glob(f"{DATABASE}/{folder}/*.yaml")
    ]
    assert len(paths) >= 23
    for path in paths:
        with open(path, encoding="utf-8") as file:
            validator.validate(yaml.safe_load(file))
    assert not validator.is_valid({"name": "x", "vendor": "acme"})


@pytest.mark.parametrize("table", measured.tables())
def test_measured_tables_are_dated_sourced_and_possible(table: str) -> None:
    head = measured.head(table)
    assert head["date"] and head["licence"] and head["title"] and head["kind"] == "measured"
    assert head["stored"] <= head["accepted"]
    assert table == f"{head['operation']}.{head['device']}.{head['source']}"
    stored = build_hardware.stored_table(table)
    assert len(stored.rows) == head["stored"] > 0
    assert head["device"] in names() or node_type(head["device"]) is not None


def test_tables_stay_small() -> None:
    size = sum(entry.stat().st_size for entry in os.scandir(os.path.join(DATABASE, "measured")))
    assert size < 1_500_000


@pytest.mark.parametrize(
    ("operation", "device", "row", "reason"),
    [
        # 2*8192^3 = 1.0995e12 FLOP; in 1 ms that is 1,099.5 TFLOP/s: above the 989.4 of an H100, below a B200's 2,250
        ("gemm", "h100", ("bf16", "fwd", 8192, 8192, 8192, 1e-3), "above the dense peak"),
        ("gemm", "b200", ("bf16", "fwd", 8192, 8192, 8192, 1e-3), None),
        # the same product forward and twice backward in 1 ms would need 2,199 TFLOP/s
        ("gemm", "b200", ("bf16", "bwd", 8192, 8192, 8192, 0.95e-3), "above the dense peak"),
        # 1 GiB over 450 GB/s is 2.39 ms; (7/8) of it 2.09 ms
        ("collective", "hgx-h100-8", ("all_gather", 1, 8, 2**30, 2.0e-3), "above the link rate"),
        ("collective", "hgx-h100-8", ("all_gather", 1, 8, 2**30, 2.2e-3), None),
        # NVLS: 1 GiB in 2.5 ms is bus bandwidth 752 GB/s, possible with reduction in the switch (limit 787.5), not without
        ("collective", "hgx-h100-8", ("all_reduce", 1, 8, 2**30, 2.5e-3), None),
        ("collective", "hgx-a100-8", ("all_reduce", 1, 8, 2**30, 2.5e-3), "above the link rate"),
        # a pair of a 4-GPU mesh has 100 GB/s: 1 GiB takes at least 10.7 ms
        ("collective", "a100-4", ("p2p", 1, 2, 2**30, 1.0e-2), "above the link rate"),
        ("collective", "a100-4", ("all_reduce", 2, 1, 2**30, 0.9), "under a fifth of the NIC rate: not the fabric of the node"),
        ("memory", "a100-80gb", ("residual_add", 2.1e9, 1e-3), "above the memory bandwidth"),
    ],
)  # fmt: skip
def test_impossible_rows_by_hand(operation: str, device: str, row: tuple[object, ...], reason: str | None) -> None:
    limits = Limits(compiled.read_sources(DATABASE))
    assert why_impossible(limits, operation, device, row) == reason


def test_known_impossible_rows_are_out_and_counted() -> None:
    with open(os.path.join(DATABASE, "measured", "rejected.json"), encoding="utf-8") as file:
        rejected = json.load(file)
    flash = rejected["attention.gh200-96gb.estimate-train-time"]["rejected"]
    assert [entry["rows"] for entry in flash.values()] == [4068]  # the whole backward column
    assert not any(row["direction"] == "backward" for row in measured.rows("attention.gh200-96gb.estimate-train-time"))
    between = rejected["collective.a100-4.estimate-train-time"]["rejected"]
    assert sum(entry["rows"] for entry in between.values()) > 11_000
    assert {row["nodes"] for row in measured.rows("collective.a100-4.estimate-train-time")} == {1}
    for path, entry in rejected.items():
        for reason, group in entry["rejected"].items():
            assert reason and group["rows"] > 0 and group["examples"], path


def test_the_build_is_reproducible(measurements: str) -> None:
    """Tables read again from the public measurements, and fits on the stored rows, are what lies in the repository."""
    from tools.hardware.tables import Ledger

    raw = compiled.read_sources(DATABASE)
    limits, ledger = Limits(raw), Ledger()
    tables = build_hardware.tables_of(measurements, limits, ledger)
    assert sorted(tables) == measured.tables()
    for name, table in tables.items():
        stored = build_hardware.stored_table(name)
        assert len(stored.rows) == len(table.rows) and stored.accepted == table.accepted
        assert sum(stored.column("time_s")) == pytest.approx(sum(table.column("time_s")), rel=1e-5)
    with open(os.path.join(DATABASE, "measured", "rejected.json"), encoding="utf-8") as file:
        assert json.load(file) == json.loads(json.dumps(ledger.as_data()))
