"""Splits: what is generated is a split of all layers, balances better, and reads back as what was meant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_lint.ir.layout import parse_layout, split_counts
from primus_lint.tune import splits
from primus_lint.tune.keys import COUNTED, FIRST, LAST, LAYOUT, PP, VPP


def model(**values: Any) -> Any:
    """The sizes that splits read, of Llama-3.1-405B unless said otherwise."""
    sizes = {
        "num_layers": 126, "vocab_size": 128256, "hidden_size": 16384, "num_attention_heads": 128, "kv_channels": 128,
        "num_query_groups": 8, "ffn_hidden_size": 53248, "gated": True, "moe": None, "mla": None,
        "attention_output_gate": False, "mtp_num_layers": 0, **values,
    }  # fmt: skip
    return SimpleNamespace(**sizes)


def counts_of(split: dict[str, Any], layers: int) -> list[list[int]]:
    """Layers per [rank][virtual stage] by the code that reads the keys."""
    pp = split[PP]
    if split.get(LAYOUT) is not None:
        stages = [stage.count("t") for stage in parse_layout(split[LAYOUT])]
        return [stages[rank::pp] for rank in range(pp)]
    embedding, loss = (bool(split.get(key)) for key in COUNTED)
    return split_counts(
        layers, pp, split.get(VPP) or 1, first=split.get(FIRST), last=split.get(LAST),
        account_embedding=embedding, account_loss=loss,
    )  # fmt: skip


@settings(deadline=None)
@given(st.integers(2, 130), st.integers(1, 1024), st.integers(0, 2), st.sampled_from((0, 32_000, 256_000)))
def test_every_split_holds_every_layer_once(layers: int, world: int, mtp: int, vocabulary: int) -> None:
    drawn = model(num_layers=layers, mtp_num_layers=mtp, vocab_size=vocabulary)
    for split in splits.generated(drawn, world, {}):
        assert world % split[PP] == 0
        rows = counts_of(split, layers)
        assert len(rows) == split[PP] and sum(map(sum, rows)) == layers and min(map(min, rows)) >= 0
        if split.get(LAYOUT) is not None:
            units = "".join(parse_layout(split[LAYOUT]))
            assert units == "E" + "t" * layers + "m" * mtp + "L"


@settings(deadline=None)
@given(st.integers(4, 130), st.sampled_from((2, 4, 8, 16)), st.integers(1, 4))
def test_layouts_are_lighter_than_the_even_split(layers: int, pp: int, vpp: int) -> None:
    drawn = model(num_layers=layers)
    stages = pp * vpp
    if stages > layers or layers % stages:
        return
    even = splits.weight(drawn, (layers // stages,) * stages, pp)
    for counts in splits.uneven(drawn, stages, pp, even):
        assert splits.weight(drawn, counts, pp) < even


def test_405b_on_16_ranks_by_hand() -> None:
    """126 layers and a head worth 0.66 of one: 14 ranks of 8 and two of 7 hold 8 at most, the even split is none."""
    found = [split for split in splits.generated(model(), 16, {}) if split[PP] == 16]
    assert {FIRST: 7, LAST: 7}.items() <= found[0].items()
    head = 128256 / (16384 * (2 + 2 * 8 / 128) + 3 * 53248)
    assert splits.head_weight(model()) == pytest.approx(head, rel=1e-12) and round(head, 2) == 0.66


@pytest.mark.parametrize(
    ("counts", "mtp", "text"),
    [
        ((3, 4, 4, 4, 3), 0, "Ettt|(tttt|)*3tttL"),
        ((7, 8, 8, 8, 6), 1, "Et*7|(t*8|)*3,t*6mL"),
        ((1, 2, 2, 0), 1, "Et|tt|tt|mL"),
        ((2, 2), 0, "Ett|ttL"),
    ],
)
def test_layout_texts(counts: tuple[int, ...], mtp: int, text: str) -> None:
    assert parse_layout(splits.layout_text(counts, mtp)) == parse_layout(text)
    assert [stage.count("t") for stage in parse_layout(text)] == list(counts)
