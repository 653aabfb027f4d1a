"""`primus-lint measure` and `calibrate` from the command line, without PyTorch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from primus_lint.cli.group import cli
from primus_lint.measure import where
from primus_lint.measure.store import Store

from .rows import row

ROOT = Path(__file__).resolve().parents[2]
RECIPE = str(ROOT / "examples" / "configs" / "clean-llama3.1_8B.yaml")
TARGET = ["--gpu", "mi300x", "--nodes", "1"]


def invoke(*words: str, store: Path | None = None) -> Result:
    env = {where.VARIABLE: str(store)} if store else {}
    return CliRunner().invoke(cli, list(words), env=env)


def seconds_of(store: Path) -> float:
    data = json.loads(invoke("project", RECIPE, *TARGET, "--format", "json", store=store).stdout)
    return float(data["time"]["iteration_s"])


def test_what_would_be_measured() -> None:
    """TP 4 and PP 2 of Llama 3 70B: one rank's share of a layer has a quarter of the 57,344 gated columns."""
    words = ["--set", "tensor_model_parallel_size=4", "--set", "pipeline_model_parallel_size=2"]
    done = invoke("measure", "--model", "llama3-70b", *words, "--dry-run", "--store", "/nowhere/store")
    assert done.exit_code == 0, done.output
    assert "pipeline parallelism 2 -> 1" in done.output and "tensor parallelism 4 -> 1" in done.output
    assert "product fc1: [4096, 8192] x [8192, 14336]" in done.output


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_it_says_what_to_install(tmp_path: Path) -> None:
    done = invoke("measure", RECIPE, *TARGET, "--store", str(tmp_path / "s"))
    assert done.exit_code == 2
    assert "pip install 'primus-lint[measure]'" in done.output
    assert not (tmp_path / "s").exists()


def test_usage(tmp_path: Path) -> None:
    assert invoke("measure", "--store", str(tmp_path / "s")).exit_code == 2
    off = CliRunner().invoke(cli, ["measure", RECIPE], env={where.VARIABLE: "none"})
    assert off.exit_code == 2 and "switched off" in off.output
    assert invoke("measure", "--export", "-", "--store", str(tmp_path / "s")).exit_code == 2  # no such store
    assert invoke("measure", "--model", "no-such-model", "--dry-run", "--store", str(tmp_path / "s")).exit_code == 2


def test_import_keeps_what_is_plausible_and_exports_it(tmp_path: Path) -> None:
    good = row("gemm", "TN", {"m": 4096, "n": 4096, "k": 4096}, 4e-4)
    lines = tmp_path / "rows.jsonl"
    lines.write_text(
        json.dumps(good.as_json()) + "\n" + json.dumps(good._replace(layout="NN", median_s=1e-6, low_s=1e-6).as_json())
    )
    store = tmp_path / "store"
    done = invoke("measure", "--import", str(lines), "--store", str(store))
    assert done.exit_code == 0, done.output
    assert "rejected" in done.output and "above the dense peak" in done.output
    assert "1 measurements kept" in done.output
    exported = invoke("measure", "--export", "-", "--store", str(store)).stdout
    assert json.loads(exported) == good.as_json()
    listed = invoke("measure", "--list", "--store", str(store)).stdout.split()
    assert listed[:4] == ["h100", "gemm", "bf16", "1"]


def test_calibrate_goes_part_of_the_way_to_a_log(tmp_path: Path) -> None:
    """A run 20 % slower than projected: afterwards the projection lies between; a second log of another name moves it on."""
    store = tmp_path / "store"
    before = seconds_of(store)
    log = tmp_path / "train.log"
    log.write_text(
        "\n".join(
            f"iteration {i}/ 10 | elapsed time per iteration (ms): {before * 1200:.3f} | memory" for i in range(1, 11)
        )
    )
    words = ["calibrate", str(log), "--config", RECIPE, *TARGET, "--store", str(store)]
    dry = invoke(*words, "--dry-run")
    assert dry.exit_code == 0 and not store.exists()
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    assert "error -16.7%" in done.output and "outside the band" in done.output  # 1/1.2 - 1; 11 % wide
    first = seconds_of(store)
    assert before * 1.2**0.3 < first < before * 1.2**0.7
    again = tmp_path / "again.log"
    again.write_text(log.read_text())
    repeated = invoke("calibrate", str(again), *words[2:])
    assert "calibrated on 2 training runs, 2 of this model" in repeated.output
    assert first < seconds_of(store) < before * 1.2
    invoke("calibrate", str(again), *words[2:])  # the same log of the same recipe replaces itself
    with Store(str(store)) as opened:
        assert [run.label.split()[0] for run in opened.runs("mi300x")] == ["again.log", "train.log"]
    with Store(str(store)) as opened:
        run = opened.runs("mi300x")[1]
    assert run.measured_s == pytest.approx(before * 1.2, rel=1e-6) and run.before_s == pytest.approx(before)
    assert run.after_s == pytest.approx(first, rel=1e-6) and run.weights["gemm"] > 2 * run.weights["host"]


def test_calibrate_refuses_what_no_factor_explains(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("iteration 1/ 10 | elapsed time per iteration (ms): 0.5 |\n")
    words = ["calibrate", str(log), "--config", RECIPE, "--store", str(tmp_path / "s")]
    done = invoke(*words, *TARGET)
    assert done.exit_code == 2 and "is it the same recipe" in done.output
    assert invoke(*words, "--gpu", "mi300x").exit_code == 2  # no size
    log.write_text("nothing")
    assert invoke(*words, *TARGET).exit_code == 2


@pytest.mark.parametrize(("device", "opened"), [(None, False), ("b200", False), ("mi300x", True)])
def test_a_check_opens_the_store_only_for_a_device_in_it(tmp_path: Path, device: str | None, opened: bool) -> None:
    """A cold check with no store, one of another device, one of this device: sqlite3 is imported in the last case alone,
    torch and numpy never."""
    store = tmp_path / "store"
    if device is not None:
        with Store(str(store), write=True) as made:
            made.add([row("gemm", "TN", {"m": 4096, "n": 4096, "k": 4096}, 4e-4, device=device)])
    words = ["-X", "importtime", "-m", "primus_lint", RECIPE, "--gpu", "mi300x", "--nodes", "1"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True,
        env={where.VARIABLE: str(store), "PATH": ""},
    )  # fmt: skip
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "primus_lint.pipeline" in imported, done.stderr
    assert imported & {"sqlite3", "torch", "numpy"} == ({"sqlite3"} if opened else set())
