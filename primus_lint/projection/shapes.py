"""Matrix products of every block of a model, as one rank runs them on one micro-batch.

A product is written for the forward pass: [m, k] x [k, n]. Its dgrad is [m, n] x [n, k], its wgrad [n, m] x [m, k].
Column-parallel matrices have n over tp, row-parallel ones k over tp (Megatron-LM, arXiv 1909.08053); the down
projections of latent attention are replicated and see only the tokens of the rank under sequence parallelism.
Experts are grouped products: `groups` local experts with `m` rows each, at balanced routing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum, where
from primus_lint.projection.flops import padded_vocab

if TYPE_CHECKING:
    from primus_lint.ir.run import MixtureOfExperts, Model, Parallel, Run


PASSES = ("fwd", "dgrad", "wgrad")


def as_multiplied(op: str, m: Any, n: Any, k: Any) -> tuple[Any, Any, Any]:
    """Dimensions of the product that a pass really multiplies (see `rates.linear_times_s`)."""
    return {"fwd": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[op]


class Gemm:
    """One matrix product. `groups` > 0: a grouped product of that many experts with `m` rows each."""

    __slots__ = ("dtype", "groups", "k", "low_precision", "m", "n", "name", "parallel")

    def __init__(
        self,
        name: str,
        m: Any,
        n: Any,
        k: Any,
        parallel: str = "",  # "column", "row": what the tensor-parallel communication hangs on; "": replicated
        low_precision: bool = True,  # runs in FP8 when the recipe does
        groups: Any = 0,
        dtype: str = "",  # set when it is not the recipe's own ("fp32" routers)
    ) -> None:
        self.name = name
        self.m = m
        self.n = n
        self.k = k
        self.parallel = parallel
        self.low_precision = low_precision
        self.groups = groups
        self.dtype = dtype

    @property
    def flops(self) -> Any:
        """Multiply-add = 2; the same for forward, dgrad and wgrad."""
        product = 2 * self.m * self.n * self.k
        return product * self.groups if self.is_grouped else product

    @property
    def weights(self) -> Any:
        """Elements of the weight on this rank."""
        return self.n * self.k * (self.groups if self.is_grouped else 1)

    @property
    def is_grouped(self) -> bool:
        return self.name.startswith("expert")

    @property
    def target(self) -> str:
        """The name under which LoRA adapts it: that of its module."""
        return f"linear_{self.name.removeprefix('shared_').removeprefix('expert_')}"


class Tokens:
    """Tokens of one micro-batch on a rank: `gathered` inside tensor-parallel products, `local` in between."""

    __slots__ = ("gathered", "local")

    def __init__(self, gathered: Any, local: Any) -> None:
        self.gathered = gathered
        self.local = local


def tokens(run: Run) -> Tokens:
    """Sequence times micro-batch over cp; `local` also over tp under sequence parallelism."""
    gathered = run.batch.seq_length * run.batch.micro_batch_size // run.parallel.cp
    split = where(run.parallel.sequence_parallel, run.parallel.tp, 1)
    return Tokens(gathered, gathered // split)


def attention_gemms(model: Model, parallel: Parallel, held: Tokens) -> list[Gemm]:
    """Projections of self-attention: QKV and output, or the down/up chain of latent attention."""
    tp, hidden, heads = parallel.tp, model.hidden_size, model.num_attention_heads
    if model.mla is not None:
        mla = model.mla
        query_dim = mla.qk_head_dim + mla.qk_pos_emb_head_dim
        gemms = []
        if mla.q_lora_rank is None:
            gemms.append(Gemm("q_proj", held.gathered, heads * query_dim // tp, hidden, "column"))
        else:
            gemms.append(Gemm("q_down", held.local, mla.q_lora_rank, hidden))
            gemms.append(Gemm("q_up", held.gathered, heads * query_dim // tp, mla.q_lora_rank, "column"))
        gemms.append(Gemm("kv_down", held.local, mla.kv_lora_rank + mla.qk_pos_emb_head_dim, hidden))
        up = heads * (mla.qk_head_dim + mla.v_head_dim) // tp
        gemms.append(Gemm("kv_up", held.gathered, up, mla.kv_lora_rank, "column"))
        gemms.append(Gemm("proj", held.gathered, hidden, heads * mla.v_head_dim // tp, "row"))
        return gemms
    width = heads * model.kv_channels
    key_value = 2 * model.kv_channels * maximum(model.num_query_groups // tp, 1)
    gate = width if model.attention_output_gate else 0
    return [
        Gemm("qkv", held.gathered, (width + gate) // tp + key_value, hidden, "column"),
        Gemm("proj", held.gathered, hidden, width // tp, "row"),
    ]


def mlp_gemms(model: Model, parallel: Parallel, held: Tokens, ffn_hidden_size: Any, prefix: str = "") -> list[Gemm]:
    """The two products of a dense MLP (or of the shared experts)."""
    width = ffn_hidden_size // parallel.tp
    return [
        Gemm(prefix + "fc1", held.gathered, width * (2 if model.gated else 1), model.hidden_size, "column"),
        Gemm(prefix + "fc2", held.gathered, model.hidden_size, width, "row"),
    ]


class Routing:
    """Rows that balanced routing gives one rank, for one micro-batch."""

    __slots__ = ("experts", "rows", "rows_per_expert", "sent")

    def __init__(
        self,
        sent: Any,  # token copies that leave the router of this rank (local tokens times top-k)
        rows: Any,  # rows that its experts compute
        experts: Any,  # local experts
        rows_per_expert: Any,
    ) -> None:
        self.sent = sent
        self.rows = rows
        self.experts = experts
        self.rows_per_expert = rows_per_expert


def routing(experts: MixtureOfExperts, parallel: Parallel, held: Tokens) -> Routing:
    """Balanced routing. With expert tensor parallelism the rows of the etp ranks are gathered before the experts.

    With a capacity factor every expert takes capacity rows when padding is on (Megatron-Core `get_capacity`).
    """
    sent: Any = held.local * experts.router_topk
    if experts.capacity_factor is not None:
        kept = experts.capacity_factor if experts.pad_to_capacity else min(experts.capacity_factor, 1.0)
        sent = sent * kept
    rows = sent * parallel.etp
    local = experts.num_experts // parallel.ep
    return Routing(sent, rows, local, rows / maximum(local, 1))


def expert_gemms(model: Model, parallel: Parallel, routed: Routing) -> list[Gemm]:
    """The two grouped products of the local experts."""
    experts = model.moe
    assert experts is not None
    width = experts.ffn_hidden_size // parallel.etp
    fc1 = width * (2 if model.gated else 1)
    return [
        Gemm("expert_fc1", routed.rows_per_expert, fc1, model.hidden_size, groups=routed.experts),
        Gemm("expert_fc2", routed.rows_per_expert, model.hidden_size, width, groups=routed.experts),
    ]


def adapter_gemms(gemm: Gemm, rank: Any, parallel: Parallel) -> list[Gemm]:
    """The two products of a low-rank adapter beside a product: inputs -> rank -> outputs, both split over its tensor ranks;
    experts share one (Primus `backends/megatron/peft`). They stay in the parameter dtype under FP8."""
    split = parallel.etp if gemm.is_grouped else parallel.tp
    rows = gemm.m * gemm.groups if gemm.is_grouped else gemm.m
    if gemm.parallel == "row" or gemm.name == "expert_fc2":
        between, outputs = rank, gemm.n // split
    else:
        between, outputs = maximum(rank // split, 1), gemm.n
    return [
        Gemm("lora_in", rows, between, gemm.k, low_precision=False),
        Gemm("lora_out", rows, outputs, rank, low_precision=False),
    ]


def single_kernel(run: Run) -> bool:
    """Whether one kernel computes the products of all local experts (CUTLASS, Primus-Turbo), or a call for each."""
    experts = run.model.moe
    return (
        experts is not None and experts.grouped_gemm and (experts.legacy_grouped_gemm or run.kernels.turbo_grouped_gemm)
    )


def router_gemm(model: Model, held: Tokens) -> Gemm:
    """The routing product, in `moe_router_dtype` (replicated weight, local tokens)."""
    experts = model.moe
    assert experts is not None
    return Gemm(
        "router",
        held.local,
        experts.num_experts,
        model.hidden_size,
        low_precision=False,
        dtype=experts.router_dtype or "",
    )


def head_gemm(model: Model, parallel: Parallel, held: Tokens) -> Gemm | None:
    """The logits projection; None without a vocabulary. It stays in the parameter dtype under FP8."""
    vocab = padded_vocab(model, parallel.tp)
    if vocab is None:
        return None
    return Gemm("logits", held.gathered, vocab // parallel.tp, model.hidden_size, "column", low_precision=False)


def mtp_gemm(model: Model, parallel: Parallel, held: Tokens) -> Gemm:
    """The projection of one multi-token-prediction depth: [hidden; embedding] 2h -> h, column parallel."""
    return Gemm("mtp_proj", held.gathered, model.hidden_size // parallel.tp, 2 * model.hidden_size, "column")
