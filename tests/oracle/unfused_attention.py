"""What TransformerEngine's plain attention keeps for its backward, and the causal mask that it caches.

`python unfused_attention.py`: prints one JSON list of {"dtype", "sequences", "heads", "given", "kept", "cached"}: bytes of
the saved tensors that are not inputs, and of the cached mask, at 256 positions and 64 columns a head; `given`: with a mask
a sequence from the data loader.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "shared" / "oracle"))
from common import FakeTensorMode, _install_fake_cuda, torch  # type: ignore[import-not-found]
from live import Saved  # type: ignore[import-not-found]

_install_fake_cuda(90)
import te_stub  # type: ignore[import-not-found]  # noqa: E402

te_stub.install()
import transformer_engine.pytorch  # noqa: E402, F401
import transformer_engine_torch as kernels  # noqa: E402
from transformer_engine.pytorch.attention.dot_product_attention import softmax  # noqa: E402
from transformer_engine.pytorch.attention.dot_product_attention.backends import (  # noqa: E402
    UnfusedDotProductAttention,
)

POSITIONS, WIDTH = 256, 64
for name in ("scaled_masked_softmax_forward", "scaled_softmax_forward"):
    setattr(kernels, name, lambda scores, *rest: torch.empty_like(scores))
cases = [("float32", 4, 8), ("bfloat16", 4, 8), ("bfloat16", 1, 3)]
out = []
with FakeTensorMode(allow_non_fake_inputs=True):
    for dtype, sequences, heads in cases:
        for given in (False, True):
            softmax._default_causal_mask.clear()
            shape = (POSITIONS, sequences, heads, WIDTH)
            q, k, v = (
                torch.zeros(shape, dtype=getattr(torch, dtype), device="cuda", requires_grad=True) for _ in "qkv"
            )
            mask = torch.zeros(sequences, 1, POSITIONS, POSITIONS, dtype=torch.bool, device="cuda") if given else None
            saved = Saved([])
            with saved.hooks():
                UnfusedDotProductAttention(0.1)(
                    None, q, k, v, qkv_layout="sbhd_sbhd_sbhd", attn_mask_type="causal", attention_mask=mask,
                    cu_seqlens_q=None, cu_seqlens_kv=None, max_seqlen_q=POSITIONS, max_seqlen_kv=POSITIONS,
                )  # fmt: skip
            inputs = {tensor.untyped_storage()._cdata for tensor in (q, k, v)}
            kept = sum(row[3].nbytes() for row in saved.rows if row[3]._cdata not in inputs and row[3].nbytes() > 4)
            cached = sum(tensor.nbytes for tensor in softmax._default_causal_mask.values())
            out.append(
                {"dtype": dtype, "sequences": sequences, "heads": heads, "given": given, "kept": kept, "cached": cached}
            )
print(json.dumps(out))
sys.stdout.flush()
os._exit(0)
