"""The torchtitan table of ../shared/reference/byte-accounting.md, to the byte.

The numbers are those of the real torchtitan 0.2.2 on a fake world (oracle/titan_fsdp.py, `cpu` stands in for the GPU),
rank 0, local batch 1, sequence 8192, steady iteration.
"""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.ledger.titan import build, params
from primus_lint.ledger.titan.activations import head_bytes, kept_bytes, logits_bytes
from primus_lint.ledger.titan.sizes import WITNESS, Sizes

MODELS: dict[str, dict[str, int]] = {
    "8B": {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336},
    "70B": {"layers": 80, "hidden": 8192, "heads": 64, "ffn": 28672},
    "405B": {"layers": 126, "hidden": 16384, "heads": 128, "ffn": 53248},
}
# flavor, dp, tp, replicate, recompute, reshard -> shard params, Adam state, after forward, peak
ROWS: list[tuple[str, dict[str, Any], tuple[int, int, int, int]]] = [
    ("8B", {"shard": 8, "recompute": "none"}, (4_015_130_624, 8_030_262_412, 72_481_291_404, 82_988_022_932)),
    ("8B", {"shard": 8, "recompute": "op"}, (4_015_130_624, 8_030_262_412, 30_032_837_772, 40_539_569_300)),
    ("8B", {"shard": 8, "recompute": 2}, (4_015_130_624, 8_030_262_412, 45_083_049_100, 55_589_780_628)),
    ("8B", {"shard": 8, "recompute": "full"}, (4_015_130_624, 8_030_262_412, 17_684_806_796, 28_191_538_324)),
    ("8B", {"shard": 8, "recompute": "full", "reshard": "never"}, (4_015_130_624, 8_030_262_412, 32_694_647_948, 43_201_379_476)),
    ("8B", {"shard": 4, "tp": 2, "recompute": "op"}, (4_015_263_744, 8_030_528_652, 24_296_461_452, 31_651_443_864)),
    ("8B", {"shard": 4, "replicate": 2, "recompute": "full"}, (8_030_261_248, 16_060_523_660, 29_730_198_668, 40_236_930_196)),
    ("70B", {"shard": 32, "tp": 8, "recompute": "full"}, (1_102_545_920, 2_205_094_732, 5_380_826_956, 7_452_662_612)),
    ("405B", {"shard": 64, "tp": 8, "recompute": "full"}, (3_171_021_824, 6_342_048_196, 14_936_997_316, 19_520_348_620)),
    ("70B", {"shard": 256, "recompute": "full"}, (1_102_401_664, 2_204_806_220, 18_922_781_900, 29_429_513_428)),
]  # fmt: skip


def sizes(flavor: str, **changes: Any) -> Sizes:
    values: dict[str, Any] = {
        **MODELS[flavor], "groups": 8, "head_dim": 128, "vocab": 128256, "seq": 8192, "tokens": 8192, "tp": 1,
        "replicate": 1, "accumulation": 1, "reshard": "default", "kernels": WITNESS,
    }  # fmt: skip
    return Sizes(**{**values, **changes})


@pytest.mark.parametrize(("flavor", "changes", "expected"), ROWS)
def test_row(flavor: str, changes: dict[str, Any], expected: tuple[int, int, int, int]) -> None:
    s = sizes(flavor, **changes)
    items = build.static_items(s, rank=0)
    shard, state, after_forward, peak = expected
    assert items["weights"].bytes == items["gradients"].bytes == shard
    assert items["optimizer moments"].bytes == state
    base = shard + state + items["rotary table"].bytes + items["batch"].bytes
    kept = sum(kept_bytes(s, layer) for layer in range(s.layers)) + head_bytes(s)
    found = build.moments(s, base, shard, kept)
    left = found["backward of the loss"] - base - kept - build.activations.loss_bytes(s)
    assert base + kept + left + logits_bytes(s) == after_forward
    assert max(found.values()) == peak


def test_uneven_shards() -> None:
    """dp 24, two layers of 8B: every rank stores the padding, states cover real rows (reference, torchtitan)."""
    s = sizes("8B", layers=2, shard=24, recompute="none")
    first, last = build.static_items(s, rank=0), build.static_items(s, rank=23)
    assert first["weights"].bytes == last["weights"].bytes == 247_942_492
    assert first["optimizer moments"].bytes == 495_885_068
    assert last["optimizer moments"].bytes == 489_855_436
    assert params.tensors(s) == 21


# The same script asked for recipes whose peak lies elsewhere: flavor, changes, allocated bytes after forward, peak.
OTHERS: list[tuple[str, dict[str, Any], int, int]] = [
    ("405B", {"shard": 64, "recompute": "full", "layers": 4, "tokens": 2048, "seq": 2048}, 8_511_917_212, 36_593_336_484),
    ("405B", {"shard": 64, "recompute": "none", "layers": 4, "tokens": 2048, "seq": 2048}, 14_992_182_428, 39_634_237_604),
    ("70B", {"shard": 64, "recompute": "op", "layers": 4, "tokens": 2048, "seq": 2048}, 4_720_498_332, 11_575_802_020),
    ("8B", {"shard": 8, "recompute": "full", "layers": 3, "tokens": 256, "seq": 256}, 3_690_781_816, 6_562_181_248),
    ("8B", {"shard": 24, "recompute": "none", "layers": 2, "tokens": 512, "seq": 512}, 2_169_524_344, 4_647_299_932),
    ("70B", {"shard": 8, "tp": 8, "recompute": "full", "layers": 4, "tokens": 512, "seq": 512}, 1_331_990_940, 4_370_292_900),
    ("70B", {"shard": 8, "tp": 2, "recompute": "none", "layers": 4, "tokens": 1024, "seq": 1024}, 6_324_385_948, 11_175_952_548),
]  # fmt: skip


@pytest.mark.parametrize(("flavor", "changes", "after_forward", "peak"), OTHERS)
def test_other_peak(flavor: str, changes: dict[str, Any], after_forward: int, peak: int) -> None:
    s = sizes(flavor, **changes)
    items = build.static_items(s, rank=0)
    base = sum(items[name].bytes for name in ("weights", "optimizer moments", "rotary table", "batch"))
    kept = sum(kept_bytes(s, layer) for layer in range(s.layers)) + head_bytes(s)
    found = build.moments(s, base, items["gradients"].bytes, kept)
    left = found["backward of the loss"] - base - kept - build.activations.loss_bytes(s)
    assert base + kept + left + logits_bytes(s) == after_forward
    assert max(found.values()) == peak, found
