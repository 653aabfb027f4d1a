"""Sizes of a TorchTitan recipe of Llama 3 or dense Qwen3, and why another recipe has no account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div
from primus_lint.ir.record import Record

if TYPE_CHECKING:
    from primus_lint.lower.megatron.namespace import Namespace


class Kernels(Record):
    """Which kernels run: they keep and need different tensors.

    `norm`: "decomposed" (RMSNorm of single operations, what PyTorch runs on a CPU), "fused" (one GPU kernel) or
    "compiled". `flash_saved`: the policy of selective recomputation names the attention kernel, so its output is saved
    (it names the GPU kernels, not the CPU one). `loss`: "eager" or "compiled".
    """

    norm: str
    flash_saved: bool
    loss: str


WITNESS = Kernels(norm="decomposed", flash_saved=False, loss="eager")  # what runs on a CPU


class Sizes(Record):
    """Per rank, in elements, tokens and ranks. `recompute` is "none", "full", "op" or the period of layers."""

    layers: int
    hidden: int
    heads: int
    groups: int
    head_dim: int
    ffn: int
    vocab: int
    seq: int  # tokens of a sequence
    tokens: int  # of a local batch
    tp: int
    shard: int  # ranks that the parameters are sharded over
    replicate: int
    accumulation: int  # forward and backward passes a step
    recompute: str | int
    reshard: str  # "default", "always", "never"
    kernels: Kernels
    qwen: bool = False  # norms of queries and keys, a rotary table of its own that every block is handed in bf16

    @property
    def rotary_bytes(self) -> int:
        """The rotary table: complex numbers of half the head dimension, or Qwen3's cosines and sines of all of it."""
        return self.seq * self.head_dim * (8 if self.qwen else 4)

    @property
    def handed_bytes(self) -> int:
        """The bf16 copy of Qwen3's table that FSDP makes for each block, which lives until its backward."""
        return self.seq * self.head_dim * 4 if self.qwen else 0

    @property
    def part(self) -> int:
        """Tokens that a rank holds outside attention and MLP: sequence parallelism cuts them by tp."""
        return self.tokens // self.tp

    def wrapped(self, layer: int) -> bool:
        """Whether a layer (counted from 0) recomputes its forward pass; the period counts from 1."""
        if isinstance(self.recompute, int):
            return self.recompute == 0 or (layer + 1) % self.recompute == 0
        return self.recompute != "none"


def kernels_of(v: Namespace) -> Kernels:
    """The kernels of a GPU run."""
    compiled = v["compiled"]
    loss = bool(v["compile.enable"]) and "loss" in v["compile.components"]
    return Kernels(norm="compiled" if compiled else "fused", flash_saved=True, loss="compiled" if loss else "eager")


def abstain(v: Namespace) -> tuple[str, ...]:
    """Why there can be no account of a recipe; empty when there is one."""
    reasons = []
    qwen = v["architecture"] == "qwen3" and not v["experts"]
    if not (v["architecture"] == "llama3" or qwen) or "model.n_layers" not in v:
        reasons.append(
            f"torchtitan: no memory model of {v['model.name']} {v['model.flavor']}, of llama3 and dense qwen3 only"
        )
        return tuple(reasons)
    if v["version"] != "v0.2.2":
        reasons.append(f"torchtitan: memory of version {v['version']}")
        return tuple(reasons)
    if v["world_size"] is None:
        reasons.append("torchtitan: the world size is not known")
    for what, present in (
        ("pipeline parallelism", v["pp"] > 1),
        ("context parallelism", v["cp"] > 1),
        ("unsharded parameters", v["parallelism.data_parallel_shard_degree"] == 1 or v["dp_shard"] == 1),
        (f"{v['model.attn_type']} attention", v["model.attn_type"] != "sdpa"),
        ("offload to the CPU", v["training.enable_cpu_offload"]),
        ("the optimizer step in the backward pass", v["optimizer.early_step_in_backward"]),
        ("parameters that are not float32", v["training.dtype"] != "float32"),
        ("computing in float32", v["training.mixed_precision_param"] != "bfloat16"),
        ("memory-budget recomputation", v["activation_checkpoint.mode"] == "memory_budget"),
        ("whole logits on every tensor-parallel rank", v["tp"] > 1 and v["parallelism.disable_loss_parallel"]),
        ("quantized layers", len(v["quantized"]) > 0),
        ("qwen3 under tensor parallelism", qwen and v["tp"] > 1),
        ("tied embeddings under FSDP", qwen and bool(v.get("model.enable_weight_tying"))),
        ("qwen3 without norms of queries and keys", qwen and not v.get("model.qk_norm", True)),
        ("a vocabulary or width that tensor parallelism cuts unevenly", _uneven(v)),
    ):
        if present:
            reasons.append(f"torchtitan: {what}")
    return tuple(reasons)


def _uneven(v: Namespace) -> bool:
    return bool(v["tp"] > 1 and (v["model.vocab_size"] % v["tp"] or ffn_of(v) % v["tp"] or v["seq"] % v["tp"]))


def ffn_of(v: Namespace) -> Any:
    """Width of the MLP: as given (qwen3), or 8h/3, times the multiplier, rounded up (models/llama3/model/model.py)."""
    if v["architecture"] == "qwen3":
        return v["model.hidden_dim"]
    width = int(2 * 4 * v["model.dim"] / 3)
    if v["model.ffn_dim_multiplier"] is not None:
        width = int(v["model.ffn_dim_multiplier"] * width)
    return ceil_div(width, v["model.multiple_of"]) * v["model.multiple_of"]


def sizes_of(v: Namespace, kernels: Kernels | None = None) -> Sizes:
    """The sizes of a namespace that `abstain` has nothing against."""
    mode, option = v["activation_checkpoint.mode"], v["activation_checkpoint.selective_ac_option"]
    return Sizes(
        layers=v["layers"],
        hidden=v["model.dim"],
        heads=v["heads"],
        groups=v["groups"],
        head_dim=v["model.head_dim"] if v["architecture"] == "qwen3" else v["model.dim"] // v["heads"],
        ffn=ffn_of(v),
        vocab=v["model.vocab_size"],
        seq=v["seq"],
        tokens=v["lbs"] * v["seq"],
        tp=v["tp"],
        shard=v["fsdp"],
        replicate=v["dp_replicate"],
        accumulation=v["gbs"] // (v["lbs"] * v["batch_degree"]),
        recompute=mode if mode != "selective" else "op" if option == "op" else int(option),
        reshard=v["parallelism.fsdp_reshard_after_forward"],
        kernels=kernels_of(v) if kernels is None else kernels,
        qwen=v["architecture"] == "qwen3",
    )
