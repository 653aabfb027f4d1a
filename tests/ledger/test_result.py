"""The account as a whole: sums, classes of ranks, verdicts, abstention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_lint.hardware import accelerator
from primus_lint.ledger import Abstention, Ledger, RankMemory, ledger
from primus_lint.pipeline import Options, check_source
from primus_lint.source.text import SourceText
from tests.ledger.support import account, run_of
from tests.oracle.recipes import MODELS

SHARED = Path(__file__).resolve().parents[3] / "shared"
LLAMA = MODELS["llama3.1-8b"]
PP = {"pipeline_model_parallel_size": 4}
RECIPES: list[tuple[dict[str, Any], int]] = [
    (LLAMA, 8),
    ({**LLAMA, **PP}, 32),
    ({**LLAMA, **PP, "num_virtual_stages_per_pipeline_rank": 4}, 32),
    ({**LLAMA, "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}, 8),
    ({**MODELS["mixtral-8x22b"], "expert_model_parallel_size": 8, **PP}, 64),
    ({**LLAMA, "use_torch_fsdp2": True, "use_distributed_optimizer": False}, 8),
]


@pytest.mark.parametrize(("args", "world"), RECIPES)
def test_items_add_up(args: dict[str, Any], world: int) -> None:
    """Static, persistent, kept activations and transients make the peak; the allocator's the reserved bytes."""
    for rank in account(args, world).ranks:
        assert rank.peak_moment == "backward of the last forward"
        peak = rank.total("static", "persistent", "activation", "transient")
        assert peak == rank.peak_allocated_bytes
        assert peak + rank.total("allocator") == rank.peak_reserved_bytes
        assert rank.total("static") == rank.static_bytes
        assert all(isinstance(item.bytes, int) for item in rank.items.values())
        assert rank.static_bytes <= rank.steady_allocated_bytes <= rank.peak_allocated_bytes <= rank.peak_reserved_bytes
        assert rank.peak_band_bytes[0] < rank.device_low_bytes < rank.device_high_bytes


@pytest.mark.parametrize(("args", "world"), RECIPES)
def test_every_global_rank_is_in_one_class(args: dict[str, Any], world: int) -> None:
    assert sum(rank.count for rank in account(args, world).ranks) == world


def test_unequal_shards_make_two_classes() -> None:
    """A vocabulary of 1,000 pads to 1,024 rows at TP 1, but 3 data-parallel ranks do not divide the toy's elements:
    the last one owns the padding of the buffer's end."""
    found = account({**MODELS["toy"], "overlap_grad_reduce": False}, 3)
    first, last = found.ranks
    assert (first.dp, first.count, last.dp, last.count) == ("first", 2, "last", 1)
    owned = [r.items["optimizer main parameters"].bytes // 4 for r in found.ranks]
    # end of the only bucket: a multiple of lcm(3, 128) = 384
    real = sum(item.bytes for item in [first.items["weights dense"]]) // 2
    assert real % 384 == 0
    assert owned[0] == real // 3 and owned[1] <= owned[0]


def test_formulas_show_their_numbers() -> None:
    rank = account(LLAMA, 8).ranks[0]
    assert rank.items["gradients dense"].formula == "8,030,261,248 elements x 4 B"
    for name, item in rank.items.items():
        assert item.source, name
        item.formula  # noqa: B018 - every template renders


def memory(low: int, high: int) -> RankMemory:
    rank = RankMemory(0, "all", 1, {})
    rank.device_low_bytes, rank.device_high_bytes = low, high
    return rank


def test_verdict() -> None:
    one, other = memory(50, 70), memory(60, 90)
    both = Ledger((one, other))
    assert both.worst_rank is other and both.worst == 1
    assert both.device_bytes == (60, 90)
    assert both.fits(90) is True
    assert both.fits(89) is None
    assert both.fits(60) is None
    assert both.fits(59) is False


@pytest.mark.parametrize(
    ("args", "world", "reason"),
    [
        (LLAMA, None, "the world size is not known"),
        (
            {**LLAMA, "lora.enabled": True, "lora.dim": 0},
            8,
            "LoRA with a dimension that is no positive number is not modelled",
        ),
        ({**LLAMA, **PP, "num_layers": 30}, 8, "the pipeline split is illegal"),
    ],
)
def test_abstention(args: dict[str, Any], world: int | None, reason: str) -> None:
    found = ledger(run_of(args, world), accelerator("h100"))
    assert isinstance(found, Abstention) and not found
    assert reason in found.reasons


def test_every_figure_lies_in_its_band() -> None:
    for rank in account({**LLAMA, "pipeline_model_parallel_size": 2}, 8).ranks:
        data = rank.as_json()
        for name in ("steady_allocated", "peak_allocated", "peak_reserved"):
            assert data[f"{name}_low_bytes"] <= data[f"{name}_bytes"] <= data[f"{name}_high_bytes"]
        assert data["peak_reserved_low_bytes"] < data["peak_reserved_bytes"] < data["peak_reserved_high_bytes"]


def test_json_has_the_agreed_fields() -> None:
    found = account(LLAMA, 8).ranks[0].as_json()
    assert list(found) == [
        "pp_rank", "dp", "count", "static_bytes", "steady_allocated_bytes", "peak_allocated_bytes",
        "peak_reserved_bytes", "device_low_bytes", "device_high_bytes",
        "steady_allocated_low_bytes", "peak_allocated_low_bytes", "peak_reserved_low_bytes",
        "steady_allocated_high_bytes", "peak_allocated_high_bytes", "peak_reserved_high_bytes", "items",
    ]  # fmt: skip


def test_items_add_up_on_the_corpus() -> None:
    """Static + persistent + activations + transients are the peak, with the allocator's what is reserved, whatever the
    sign of an item: nothing is cut off at zero."""
    folder = SHARED / "corpus" / "primus"
    if not folder.is_dir():
        pytest.skip("the corpus of real experiments (../shared/corpus/primus) is not at hand")
    options = Options(gpu="mi300x", nodes=8, primus_root=str(folder))
    ranks = 0
    for path in sorted(folder.rglob("*.yaml")):
        for subject in check_source(SourceText.from_path(str(path)), options).subjects:
            for rank in subject.ledger.ranks if subject.ledger is not None else ():
                ranks += 1
                allocated = rank.total("static", "persistent", "activation", "transient")
                assert allocated == rank.peak_allocated_bytes, path
                assert allocated + rank.total("allocator") == rank.peak_reserved_bytes, path
                items = rank.as_json()["items"]
                assert sum(items.values()) - rank.total("device") == rank.peak_reserved_bytes, path
    assert ranks > 100
