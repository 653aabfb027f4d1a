"""The ground-truth command on rows made up here: what is built, what is abstained, and its statistics."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.validation import ground_truth
from tests.validation.ground_truth_figures import kendall_tau, summary
from tests.validation.ground_truth_rows import build
from tools import accuracy

COLUMNS = [
    "id",
    "source",
    "source_location",
    "framework",
    "model",
    "gpu",
    "num_gpus",
    "gpus_per_node",
    "precision",
    "seq_len",
    "mbs",
    "gbs",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "etp",
    "dp_shard",
    "seq_parallel",
    "recompute",
    "dist_opt",
    "other",
    "measured_tokens_per_s_per_gpu",
    "measured_tflops_per_gpu",
    "measured_mfu",
    "measured_iter_s",
    "measured_mem_gib",
    "mem_kind",
    "oom",
    "published_projection",
    "published_projection_error",
    "notes",
]


def raw(**values: str) -> dict[str, str]:
    complete = {
        "id": "X1", "source": "Megatron-LM test", "model": "Llama-3-8B", "gpu": "H100", "num_gpus": "8",
        "gpus_per_node": "8", "precision": "bf16", "seq_len": "8192", "mbs": "1", "gbs": "64", "tp": "2", "pp": "1",
        "recompute": "none", "measured_tokens_per_s_per_gpu": "9000",
    }  # fmt: skip
    return {**dict.fromkeys(COLUMNS, ""), **complete, **values}


def test_a_complete_row_becomes_a_request() -> None:
    row = build(raw(vpp="1", cp="2", seq_parallel="yes"))
    assert row.complete and row.request is not None
    assert row.request["model"] == "llama3-8b"
    assert row.request["target"] == {"gpu": "H100", "world_size": 8, "gpus_per_node": 8}
    args = row.request["args"]
    assert (args["tensor_model_parallel_size"], args["context_parallel_size"], args["global_batch_size"]) == (2, 2, 64)
    assert args["sequence_parallel"] is True and args["bf16"] is True
    assert "recompute_granularity" not in args


@pytest.mark.parametrize("column", ("precision", "seq_len", "mbs", "gbs", "tp", "pp", "num_gpus", "recompute"))
def test_a_blank_is_never_filled_in_silence(column: str) -> None:
    row = build(raw(**{column: ""}))
    assert not row.complete
    assert column in row.missing


def test_abstains() -> None:
    assert build(raw(source="nobody")).reason == "source without a profile"
    assert build(raw(model="Llama-2-70B LoRA")).reason == "LoRA fine-tuning"
    assert build(raw(model="mamba_370M")).reason == "hybrid model"
    assert build(raw(other="activation offload alpha=0.3")).reason == "offloading"
    assert "no known shape" in str(build(raw(model="Secret 9B")).reason)
    assert ground_truth.prepare(build(raw(measured_tokens_per_s_per_gpu="")))["abstained"] == "no measured speed"
    assert ground_truth.prepare(build(raw(gbs="")))["abstained"] == "not stated: gbs"


def test_shapes_from_the_text() -> None:
    row = build(raw(model="GPT h1024 L24", source="vTrain x", other="dp=1 hidden=1024 layers=24 heads=16 1F1B"))
    assert row.request is not None
    args = row.request["args"]
    assert (args["num_layers"], args["hidden_size"], args["num_attention_heads"]) == (24, 1024, 16)


def test_kendall_tau() -> None:
    assert kendall_tau([(1, 10), (2, 20), (3, 30)]) == 1
    assert kendall_tau([(1, 30), (2, 20), (3, 10)]) == -1
    # 5 of 6 pairs agree: (5 - 1)/6
    assert kendall_tau([(1, 1), (2, 2), (3, 4), (4, 3)]) == pytest.approx(4 / 6)
    assert kendall_tau([(1, 1), (1, 2)]) is None


def test_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [raw(id=f"X{number}", mbs=str(mbs), measured_tokens_per_s_per_gpu=str(speed))
            for number, (mbs, speed) in enumerate(((1, 9000), (2, 9300), (4, 9600)))]  # fmt: skip
    rows += [raw(id="X8", gbs=""), raw(id="X9", recompute="")]
    path = tmp_path / "rows.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    figures: dict[str, Any] = ground_truth.run([path])
    capsys.readouterr()
    assert figures["speed_n_complete"] == 3
    after = figures["speed_calibrated"]
    assert [after[name]["n"] for name in ("all", "same", "other")] == [3, 3, 0]  # one model, every run learned from
    assert after["all"]["before"] == pytest.approx(figures["speed_mape_complete"])
    assert after["all"]["mape"] < after["all"]["before"]  # the three are off to the same side
    assert figures["abstained"] == {"not stated: gbs": 1}
    errors = [row["error"] for row in figures["rows"] if row.get("complete")]
    assert figures["speed_mape_complete"] == pytest.approx(sum(abs(error) for error in errors) / 3)
    assert figures["speed_bias"] == pytest.approx(sum(errors) / 3)
    assert figures["speed_incomplete"]["n"] == 1
    interval = figures["rows"][-1]["interval"]
    assert interval[0] < interval[1]  # full recomputation is slower than none


def test_the_page_on_accuracy_gets_its_tables() -> None:
    row = {
        "source": "A", "group": ("A", "m", "g", "8"), "missing": [], "complete": True, "unit": "tokens/s/GPU", "measured": 100.0,
        "projected": 110.0, "error": 0.1, "newest_error": 0.1, "calibrated": {"all": (0.03, 1.0), "same": (0.02, 1.0)}, "band_holds": True,
    }  # fmt: skip
    rows = [dict(row, measured=100.0 + step, projected=110.0 + step) for step in range(3)]
    rows.append({"source": "A", "group": (), "missing": ["mbs"], "abstained": "not stated: mbs"})
    group = {
        "gpu": "G", "tp": "2", "cp": "1", "gpus": "8", "runs": 3, "measured": 2000.0, "error": -0.05, "error_overlapped": 0.01,
    }  # fmt: skip
    figures = {**summary(rows), "assumed": [], "lora": [group]}
    page = accuracy.put("before\n<!-- time -->\nstale\n<!-- /time -->\nafter", "time", accuracy.time_section(figures))
    assert "| 8 G | 2 | 1 | 3 | 2,000 | -5.0% | +1.0% |" in page
    assert "stale" not in page
    assert page.startswith("before\n<!-- time -->\n\n**3 published runs state everything: mean error 10.0%")
    assert "| A | 3 | 10.0% | 10.0% | +10.0% | 100% | 10.0% | 2.0% (10.0%) |  | 1.00 (1) |" in page
    assert "recipes of its model (3) are off by 2.0% instead of 10.0%, with 100% instead of 100%" in page
    assert "degrees, batch or sequence not stated (1)" in page
    with pytest.raises(ValueError, match="no <!-- time -->"):
        accuracy.put("nothing", "time", "block")
