"""The shipped key tables and what is compiled from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from primus_lint import resources
from primus_lint.readers import tables

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("framework", "version", "keys"),
    [
        ("megatron", "d3528a21", 671),
        ("megatron", "d98e8a64", 837),
        ("primus-megatron", "fd1eeabb", 936),
        ("torchtitan", "v0.2.2", 211),
        ("maxtext", "e591f30c", 857),
        ("megatron_bridge", "9577b128", 78),
    ],
)
def test_tables(framework: str, version: str, keys: int) -> None:
    loaded = tables.table(framework, version)
    assert len(loaded["keys"]) == keys
    assert ("removed" in loaded and loaded["commit"].startswith(version)) or framework == "torchtitan"
    defaults = tables.defaults(framework, version)
    assert defaults == {key: facts.get("default") for key, facts in loaded["keys"].items()}


def test_defaults_are_those_of_the_parser() -> None:
    defaults = tables.defaults("megatron")
    # Megatron-LM's own parser, parse_args([]): values read off the table of section 5 of the reference
    assert [defaults[key] for key in ("tensor_model_parallel_size", "sequence_parallel", "hidden_dropout")] == [
        1,
        False,
        0.1,
    ]
    assert defaults["add_bias_linear"] is True and defaults["moe_token_dispatcher_type"] == "allgather"
    assert tables.defaults("primus-megatron")["micro_batch_size"] == 2


def test_flags() -> None:
    flags = tables.flags()
    assert flags["--disable-bias-linear"] == tables.Flag("add_bias_linear", "bool", None, True, None)
    assert flags["--tensor-model-parallel-size"].key == "tensor_model_parallel_size"
    assert flags["--recompute-granularity"].choices == ("full", "selective")
    assert flags["--cp-comm-type"].nargs == "+"
    assert "--moe-flex-dispatcher-num-sms" not in flags
    assert "--moe-flex-dispatcher-num-sms" in tables.flags("d98e8a64")


def test_a_newer_table_is_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    (schemas / "megatron").mkdir(parents=True)
    source = schemas / "megatron" / "x.json"
    source.write_text(json.dumps({"keys": {"a": {"type": "int", "default": 1, "flags": ["--a"]}}}))
    monkeypatch.setattr(resources, "data_root", lambda name: str(schemas))
    monkeypatch.setattr(resources, "compiled", lambda name: str(tmp_path / "_data" / name))
    monkeypatch.setattr(resources, "is_checkout", lambda: True)
    try:
        assert tables.defaults("megatron", "x") == {"a": 1}
        compiled = tmp_path / "_data" / "megatron-defaults-x.json"
        assert json.loads(compiled.read_text()) == {"a": 1}
        source.write_text(json.dumps({"keys": {"a": {"default": 2}}}))
        later = os.stat(compiled).st_mtime_ns + 1_000_000_000
        os.utime(source, ns=(later, later))
        tables.defaults.cache_clear()
        tables.table.cache_clear()
        assert tables.defaults("megatron", "x") == {"a": 2}
        compiled.write_text("{")  # torn: rebuilt
        os.utime(compiled, ns=(later + 10**9, later + 10**9))
        tables.defaults.cache_clear()
        assert tables.defaults("megatron", "x") == {"a": 2}
    finally:
        tables.defaults.cache_clear()
        tables.table.cache_clear()
        tables.flags.cache_clear()


def test_the_generator_gives_the_committed_bytes(tmp_path: Path) -> None:
    catalogue = REPO.parent / "shared" / "catalogue" / "keys"
    if not catalogue.is_dir():
        pytest.skip("the catalogue of keys (../shared/catalogue/keys) is not at hand")
    command = [sys.executable, "tools/build_schemas.py", "--from", str(catalogue), "--to", str(tmp_path)]
    subprocess.run(command, cwd=REPO, check=True, capture_output=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.json"))
    assert len(made) >= 7
    for name in made:
        assert (REPO / "schemas" / name).read_bytes() == (tmp_path / name).read_bytes(), name
