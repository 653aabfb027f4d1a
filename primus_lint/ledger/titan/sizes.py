"""Sizes of a TorchTitan recipe of Llama 3, Llama 4, Qwen3 or DeepSeek-V3, and why another recipe has no account."""

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
    (it names PyTorch's GPU kernels; not the CPU one, nor Primus-Turbo's). `loss`: "eager" or "compiled". `whole`: a block
    with experts is compiled as one, and the sum of their outputs in bf16, as Primus does for DeepSeek; else piece by piece.
    """

    norm: str
    flash_saved: bool
    loss: str
    whole: bool = False

    @property
    def compiled(self) -> bool:
        return self.norm == "compiled"


WITNESS = Kernels(norm="decomposed", flash_saved=False, loss="eager")  # what runs on a CPU


class Float8(Record):
    """Linear layers in float8 (torchao): which are, and whether FSDP gathers their weights in float8."""

    attention: bool
    mlp: bool
    output: bool
    gathered: bool


class Latent(Record):
    """Widths of multi-head latent attention; `q_rank` 0: queries come straight from the input."""

    q_rank: int
    kv_rank: int
    nope: int  # of a head, without a position
    rope: int  # of a head, rotated
    value: int


class Experts(Record):
    """The experts of a layer, per rank. `shared`: width of the shared experts together, 0 for none."""

    count: int
    top_k: int
    ffn: int
    shared: int
    first: int  # the first layer that has any (counted from 0)
    every: int
    ep: int
    tp: int  # ranks that each expert is cut over
    shard: int  # ranks that a rank's experts are sharded over
    scored_before: bool  # the scores weigh the input of the experts, not their output
    normed: bool  # the scores of a token are made to add up to 1
    align: int  # rows of an expert are padded to a multiple of it
    bias: bool  # a bias balances the load
    gate_counted: bool  # selective recomputation counts the router's gate among the products
    exchange_saved: bool  # and saves what ranks exchange
    float8: bool = False  # Primus-Turbo's grouped products in float8
    balanced: bool = True  # tokens go to the experts in turn
    split: int = 1  # tensor-parallel ranks that share the tokens of the experts

    @property
    def local(self) -> int:
        """Experts of a rank."""
        return self.count // self.ep

    def rows(self, tokens: int) -> int:
        """Rows that a rank's experts compute under balanced routing, with the room for padding."""
        return self.routed(tokens) + self.local * self.align

    def routed(self, tokens: int) -> int:
        """Rows that a rank sends to experts."""
        return tokens // self.split * self.top_k


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
    tied: bool = False  # the output layer's weight is the embedding's
    latent: Latent | None = None
    experts: Experts | None = None
    float8: Float8 | None = None

    def experts_of(self, layer: int) -> Experts | None:
        """The experts of a layer (counted from 0), None where it has an MLP."""
        e = self.experts
        return e if e is not None and layer >= e.first and (layer + 1) % e.every == 0 else None

    def keeps_rows(self, layer: int) -> bool:
        """Whether a layer keeps the rows of its experts from forward to backward."""
        return self.experts_of(layer) is not None and not self.wrapped(layer)

    @property
    def expert_layers(self) -> int:
        return sum(self.experts_of(layer) is not None for layer in range(self.layers))

    @property
    def rotary_bytes(self) -> int:
        """The rotary table: complex numbers of half the head dimension, or Qwen3's cosines and sines of all of it."""
        width = self.head_dim if self.latent is None else self.latent.rope
        return self.seq * width * (8 if self.qwen else 4)

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


def primus(v: Namespace) -> bool:
    """Whether Primus runs torchtitan: it brings keys and changes of its own."""
    return v.get("primus_turbo.enable_primus_turbo") is not None


def turbo(v: Namespace, key: str) -> bool:
    """Whether a switch of Primus-Turbo is on."""
    return bool(v.get("primus_turbo.enable_primus_turbo")) and bool(v.get(f"primus_turbo.{key}"))


def turbo_attention(v: Namespace) -> bool:
    """Whether the converter puts Primus-Turbo's flash attention in the place of the model's."""
    return "primus_turbo" in v["converters"] and turbo(v, "use_turbo_attention")


def float8_experts(v: Namespace) -> bool:
    """Whether Primus-Turbo's grouped products run in float8."""
    return turbo(v, "use_turbo_grouped_mm") and turbo(v, "use_moe_fp8")


def kernels_of(v: Namespace) -> Kernels:
    """The kernels of a GPU run."""
    loss = bool(v["compile.enable"]) and "loss" in v["compile.components"]
    return Kernels(
        norm="compiled" if v["compiled"] else "fused", flash_saved=not turbo_attention(v),
        loss="compiled" if loss else "eager", whole=primus(v) and v["architecture"] == "deepseek_v3",
    )  # fmt: skip


FAMILIES = ("llama3", "llama4", "qwen3", "deepseek_v3")


def abstain(v: Namespace) -> tuple[str, ...]:
    """Why there can be no account of a recipe; empty when there is one."""
    if v["architecture"] not in FAMILIES or "model.n_layers" not in v:
        known = ", ".join(FAMILIES)
        return (f"torchtitan: no memory model of {v['model.name']} {v['model.flavor']}, of {known} only",)
    if v["version"] != "v0.2.2":
        return (f"torchtitan: memory of version {v['version']}",)
    qwen = v["architecture"] == "qwen3"
    found = [
        ("pipeline parallelism", v["pp"] > 1),
        ("context parallelism", v["cp"] > 1),
        ("unsharded parameters", v["parallelism.data_parallel_shard_degree"] == 1 or v["dp_shard"] == 1),
        ("the optimizer step in the backward pass", v["optimizer.early_step_in_backward"]),
        ("parameters that are not float32", v["training.dtype"] != "float32"),
        ("whole logits on every tensor-parallel rank", v["tp"] > 1 and v["parallelism.disable_loss_parallel"]),
        ("qwen3 under tensor parallelism", qwen and v["tp"] > 1),
        ("qwen3 without norms of queries and keys", qwen and not v.get("model.qk_norm", True)),
        ("a vocabulary or width that tensor parallelism cuts unevenly", _uneven(v)),
        *_against_float8(v),
        *_against_experts(v),
        *unmodelled(v),
    ]
    unsized = ("torchtitan: the world size is not known",) if v["world_size"] is None else ()
    return unsized + tuple(f"torchtitan: {what}" for what, present in found if present)


def unmodelled(v: Namespace) -> list[tuple[str, bool]]:
    """What neither memory nor time has a model of, and whether a recipe has it."""
    attention = v["model.attn_type"]
    return [
        (f"{attention} attention", attention != "sdpa" and not turbo_attention(v)),
        ("attention in float8", turbo_attention(v) and turbo(v, "enable_attention_float8")),
        ("offload to the CPU", v["training.enable_cpu_offload"]),
        ("computing in float32", v["training.mixed_precision_param"] != "bfloat16"),
        ("memory-budget recomputation", v["activation_checkpoint.mode"] == "memory_budget"),
        # Its sizes are Primus's own, not those of the flavor.
        ("Primus's classic attention of DeepSeek", v["architecture"] == "deepseek_v3" and turbo(v, "use_classic_attention")),
    ]  # fmt: skip


def _against_float8(v: Namespace) -> list[tuple[str, bool]]:
    linear = [name for name in v["converters"] if name == LINEAR_FLOAT8]
    others = [name for name in v["converters"] if name not in (LINEAR_FLOAT8, "primus_turbo")]
    return [
        (f"the converter {others[0] if others else ''}", bool(others)),
        ("float8 layers under tensor parallelism", bool(linear) and v["tp"] > 1),
        ("float8 in a part of the layers", bool(linear) and _float8(v) is None),
    ]


def _against_experts(v: Namespace) -> list[tuple[str, bool]]:
    if not v["experts"]:
        return []
    arch = v["arch"]
    old = arch is not None and arch < 9 and v["vendor"] != "rocm"
    return [
        ("experts under tensor parallelism with a compiled model", v["tp"] > 1 and v["compiled"]),
        ("tokens that tensor-parallel ranks cannot share", v["lbs"] * v["seq"] % v["tp"] != 0),
        ("DeepEP", v["parallelism.expert_parallel_comm_backend"] == "deepep"),
        ("experts one by one", not v["model.moe_args.use_grouped_mm"] or old),
        ("selective recomputation by operation of compiled experts", v["compiled"] and by_operation(v)),
        ("a bias of the router", bool(v["model.moe_args.gate_bias"])),
        ("experts that the ranks cannot share", v["experts"] % v["ep"] != 0),
    ]


def by_operation(v: Namespace) -> bool:
    """Whether single operations of every layer are recomputed."""
    ac = "activation_checkpoint."
    return bool(v[ac + "mode"] == "selective" and v[ac + "selective_ac_option"] == "op")


LINEAR_FLOAT8 = "quantize.linear.float8"
_ATTENTION = ("wq", "wk", "wv", "wo")
_LATENT = ("wq", "wkv_a", "wkv_b", "wo")
_LATENT_QUERY = ("wq_a", "wq_b", "wkv_a", "wkv_b", "wo")


def _float8(v: Namespace) -> Float8 | None:
    """The float8 layers; None where a part of attention or of the MLP is filtered out, or too small."""
    prefix = f"{LINEAR_FLOAT8}."
    filters = [str(text) for text in v.get(prefix + "filter_fqns") or ()]
    if "auto_filter_small_kn" in filters:
        return None

    def all_or_none(*names: str) -> bool | None:
        kept = {any(text in name for text in filters) for name in names}
        return None if len(kept) > 1 else not kept.pop()

    latent = v["architecture"] == "deepseek_v3"
    names = (_LATENT_QUERY if v["model.q_lora_rank"] else _LATENT) if latent else _ATTENTION
    attention = all_or_none(*(f"layers.0.attention.{name}" for name in names))
    inner = ["feed_forward"] if not v["experts"] else ["feed_forward", "moe.shared_experts"]
    mlp = all_or_none(*(f"layers.0.{part}.{name}" for part in inner for name in ("w1", "w2", "w3")))
    if attention is None or mlp is None or v["model.dim"] % 16 or ffn_of(v) % 16:
        return None
    gathered = bool(v.get(prefix + "enable_fsdp_float8_all_gather")) and v.get(prefix + "recipe_name") is None
    return Float8(attention=attention, mlp=mlp, output="output" not in filters, gathered=gathered)


def _uneven(v: Namespace) -> bool:
    return bool(v["tp"] > 1 and (v["model.vocab_size"] % v["tp"] or ffn_of(v) % v["tp"] or v["seq"] % v["tp"]))


def ffn_of(v: Namespace) -> Any:
    """Width of the MLP: as given (qwen3, deepseek_v3), or 8h/3, times the multiplier, rounded up
    (models/llama3/model/model.py)."""
    if v["architecture"] == "qwen3":
        return v["model.hidden_dim"]
    if v["architecture"] == "deepseek_v3":
        return v["model.inter_dim"]
    width = _two_thirds(v)
    return ceil_div(width, v["model.multiple_of"]) * v["model.multiple_of"]


def _two_thirds(v: Namespace) -> int:
    width = int(2 * 4 * v["model.dim"] / 3)
    return width if v["model.ffn_dim_multiplier"] is None else int(v["model.ffn_dim_multiplier"] * width)


def expert_ffn_of(v: Namespace) -> Any:
    """Width of an expert: as given, or that of Llama 4's MLP, shared among the experts of a token where the flavor says
    so (models/llama4/model/model.py)."""
    if v["architecture"] != "llama4":
        return v["model.moe_inter_dim"]
    width = _two_thirds(v)
    if v["model.auto_scale_hidden_dim"]:
        width = int(width / (v["model.moe_args.top_k"] + v["model.moe_args.num_shared_experts"]))
    return ceil_div(width, v["model.multiple_of"]) * v["model.multiple_of"]


def _latent(v: Namespace) -> Latent | None:
    if v["architecture"] != "deepseek_v3":
        return None
    return Latent(
        q_rank=v["model.q_lora_rank"], kv_rank=v["model.kv_lora_rank"], nope=v["model.qk_nope_head_dim"],
        rope=v["model.qk_rope_head_dim"], value=v["model.v_head_dim"],
    )  # fmt: skip


def first_expert_layer(v: Namespace) -> tuple[Any, Any]:
    """(the first layer with experts, counted from 0; every how many layers have them)."""
    first = v["model.n_dense_layers"] if v["architecture"] == "deepseek_v3" else 0
    return first, v["model.interleave_moe_layer_step"] if v["architecture"] == "llama4" else 1


def _experts(v: Namespace) -> Experts | None:
    if not v["experts"]:
        return None
    moe, width = "model.moe_args.", expert_ffn_of(v)
    first, every = first_expert_layer(v)
    unforced = v["activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"] or ()
    return Experts(
        count=v["experts"], top_k=v[moe + "top_k"], ffn=width, shared=width * v[moe + "num_shared_experts"],
        first=first, every=every, ep=v["ep"], tp=v["tp"] if v["ep"] == 1 else v["etp"], shard=v["expert_fsdp"],
        scored_before=bool(v[moe + "score_before_experts"]), normed=bool(v[moe + "route_norm"]), align=8,
        bias=v[moe + "load_balance_coeff"] is not None,
        gate_counted=not any(text in "layers.0.moe.router.gate" for text in unforced),
        exchange_saved=v["architecture"] != "qwen3",
        float8=float8_experts(v),
        balanced=bool(v["debug.moe_force_load_balance"]), split=v["tp"] if v["ep"] > 1 and v["etp"] == 1 else 1,
    )  # fmt: skip


def sizes_of(v: Namespace, kernels: Kernels | None = None) -> Sizes:
    """The sizes of a namespace that `abstain` has nothing against."""
    mode, option = v["activation_checkpoint.mode"], v["activation_checkpoint.selective_ac_option"]
    qwen = v["architecture"] == "qwen3"
    return Sizes(
        layers=v["layers"],
        hidden=v["model.dim"],
        heads=v["heads"],
        groups=v["groups"],
        head_dim=v["model.head_dim"] if qwen else v["model.dim"] // v["heads"],
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
        qwen=qwen,
        tied=qwen and bool(v.get("model.enable_weight_tying")),
        latent=_latent(v),
        experts=_experts(v),
        float8=_float8(v) if LINEAR_FLOAT8 in v["converters"] else None,
    )
