"""Bytes that the memory-bound operations of a block move through device memory, and how many kernels a block launches.

Counted from what each kernel must read and write once (a "pass" is one read or one write of a tensor); a fused kernel
counts its inputs and outputs alone, an unfused chain counts each of its steps. Sources of the operation lists: the
forward code of Megatron-Core 0.16.1 (`TransformerLayer`, `SelfAttention`, `MLP`, `MoELayer`, `fused_bias_swiglu`,
`fused_bias_dropout`, `cross_entropy`) and its autograd formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum, where
from primus_lint.ledger.architecture import architecture
from primus_lint.projection.shapes import single_kernel

if TYPE_CHECKING:
    from primus_lint.ir.run import Kernels, MixtureOfExperts, Parallel, Run
    from primus_lint.projection.shapes import Gemm, Routing, Tokens

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
# An operation as it is counted here stands for 2.6 kernels with the modules around them (126 kernels over 48 operations of a
# layer, tools/measure_host.py); a kernel that is launched in a loop, over experts, counts for itself.
IN_A_LOOP = 48 / 126
# Bytes that an unfused `unpermute` moves for a value beyond reading it: `scatter_add_` swaps whole words of 4 bytes, read and
# written, whether it sums in 16 bits (Megatron-Core 0.16) or in fp32
SCATTER_ADD = 8


def per_expert(run: Run, experts: Any) -> Any:
    """Operations of the host for one product (or cast) of all local experts: TransformerEngine's grouped ones launch a kernel
    per expert in a loop, the CUTLASS (legacy) and Primus-Turbo ones are a single kernel, and without grouped products every
    expert is a module of its own (Megatron-Core `SequentialMLP`)."""
    assert run.model.moe is not None
    if not run.model.moe.grouped_gemm:
        return experts
    return 1 if single_kernel(run) else 1 + experts * IN_A_LOOP


class Traffic:
    """Bytes and kernel launches of a block, forward and backward, of one micro-batch on one rank."""

    __slots__ = ("backward_bytes", "backward_kernels", "forward_bytes", "forward_kernels")

    def __init__(
        self, forward_bytes: Any = 0, backward_bytes: Any = 0, forward_kernels: Any = 0, backward_kernels: Any = 0
    ) -> None:
        self.forward_bytes = forward_bytes
        self.backward_bytes = backward_bytes
        self.forward_kernels = forward_kernels
        self.backward_kernels = backward_kernels

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(
            self.forward_bytes + other.forward_bytes,
            self.backward_bytes + other.backward_bytes,
            self.forward_kernels + other.forward_kernels,
            self.backward_kernels + other.backward_kernels,
        )


def norm(kernels: Kernels, normalization: str, elements: Any, size: int) -> Traffic:
    """A normalisation of `elements` values of `size` bytes: x -> y forward; dy, x -> dx backward.

    Without TransformerEngine or another fused kernel an RMSNorm is torch's chain in fp32 (upcast, square, mean, scale, downcast, weight):
    36 bytes an element instead of 4 at two-byte values; LayerNorm is one kernel everywhere.
    """
    if normalization == "RMSNorm" and (kernels.implementation == "local" or not kernels.norm_fusion):
        chain = 14 * 4 + 8 * size
        return Traffic(elements * (8 * 4 + 2 * size), elements * chain, 6, 12)
    return Traffic(2 * size * elements, 3 * size * elements, 1, 2)


def residual(run: Run, elements: Any, size: int) -> Traffic:
    """Bias, dropout and residual add: fused into one kernel (x, residual -> sum), or one step each.

    Backward the gradient passes through; it is added to the gradient of the branch (two reads, one write), and the
    dropout mask (a byte) is applied where there is dropout.
    """
    if run.precision.fp32_residual:
        size = 4
    dropout = run.model.hidden_dropout > 0
    forward, backward, launches = 3 * size, 3 * size, 1
    if dropout:
        forward += 1
        backward += 2 * size + 1
    if not run.kernels.bias_dropout_fusion:
        extra = int(run.model.linear_bias) + int(dropout)
        forward += 2 * size * extra
        launches += extra
    return Traffic(forward * elements, backward * elements, launches, 1 + int(dropout))


def rotary(kernels: Kernels, elements: Any, size: int) -> Traffic:
    """Rotary embedding of `elements` query and key values: one pass in and out when fused, twelve passes otherwise
    (cos, rotate, negate, concatenate, sin, add, concatenate)."""
    passes = 2 if kernels.rope_fusion else 12
    launches = 2 if kernels.rope_fusion else 12
    return Traffic(passes * size * elements, passes * size * elements, launches, launches)


def attention_block(run: Run, held: Tokens) -> Traffic:
    """Everything of the attention half of a layer but its products and its core."""
    model, kernels, tp = run.model, run.kernels, run.parallel.tp
    size = ELEMENT_BYTES[run.precision.params_dtype]
    local = held.local * model.hidden_size
    total = norm(kernels, model.normalization, local, size).plus(residual(run, local, size))
    rotates = model.position_embedding in ("rope", "mrope", "yarn")
    if model.mla is not None:
        mla, heads = model.mla, model.num_attention_heads // tp
        query = held.gathered * heads * (mla.qk_head_dim + mla.qk_pos_emb_head_dim)
        value = held.gathered * heads * mla.v_head_dim
        compressed = held.local * (mla.kv_lora_rank + (mla.q_lora_rank or 0))
        total = total.plus(norm(kernels, model.normalization, compressed, size))
        # queries and keys are assembled from their two parts, values are made contiguous: a read and a write each way
        assembled = 2 * size * (2 * query + value)
        total = total.plus(Traffic(assembled, assembled, 5, 8))
        if rotates:
            turned = held.gathered * (heads + 1) * mla.qk_pos_emb_head_dim
            total = total.plus(rotary(kernels, turned, size))
        return total
    width = model.num_attention_heads * model.kv_channels // tp
    key = model.kv_channels * maximum(model.num_query_groups // tp, 1)
    query = held.gathered * width
    keys = held.gathered * key
    if rotates:
        total = total.plus(rotary(kernels, query + keys, size))
    if model.qk_layernorm:
        total = total.plus(norm(kernels, model.normalization, query + keys, size))
    # the gradient of the split is a concatenation; grouped queries are copied out of the mixed tensor
    grouped = 2 * size * query * int(model.num_query_groups != model.num_attention_heads)
    return total.plus(Traffic(grouped, 2 * size * (query + 2 * keys), 1, 1))


def activation(run: Run, elements: Any, probs: bool = False) -> Traffic:
    """The activation between fc1 and fc2, with `elements` outputs: gated 2 -> 1 values, plain 1 -> 1.

    Fused: inputs and outputs once. Unfused: bias add, activation, product and their gradients one by one. `probs`:
    the routing weights are multiplied in as well. Only the experts of one CUTLASS product have their activation compiled
    whatever the fusion flag says (Megatron-Core `GroupedMLP`; `MLP` and `TEGroupedMLP` run it step by step).
    """
    model, kernels = run.model, run.kernels
    size = ELEMENT_BYTES[run.precision.params_dtype]
    compiled = probs and model.moe is not None and model.moe.grouped_gemm and model.moe.legacy_grouped_gemm
    fused = kernels.torch_compile and model.gated if compiled else kernels.bias_activation_fusion
    wide = 2 if model.gated else 1
    if fused:
        return Traffic((wide + 1) * size * elements, (2 * wide + 1) * size * elements, 1, 1)
    forward = (5 if model.gated else 2) + (2 * wide if model.linear_bias else 0) + (2 if probs else 0)
    backward = (13 if model.gated else 3) + (wide if model.linear_bias else 0) + (4 if probs else 0)
    return Traffic(forward * size * elements, backward * size * elements, 3, 5)


def mlp_block(run: Run, held: Tokens, ffn_hidden_size: Any) -> Traffic:
    """Norm, activation and residual of a dense MLP."""
    size = ELEMENT_BYTES[run.precision.params_dtype]
    local = held.local * run.model.hidden_size
    total = norm(run.kernels, run.model.normalization, local, size).plus(residual(run, local, size))
    return total.plus(activation(run, held.gathered * (ffn_hidden_size // run.parallel.tp)))


def moe_block(run: Run, experts: MixtureOfExperts, parallel: Parallel, held: Tokens, routed: Routing) -> Traffic:
    """Norm, routing, expert activation and residual of a mixture of experts."""
    model, kernels = run.model, run.kernels
    size = ELEMENT_BYTES[run.precision.params_dtype]
    local = held.local * model.hidden_size
    total = norm(kernels, model.normalization, local, size).plus(residual(run, local, size))
    router_passes = 4 if experts.router_fusion else 10  # fp32 scores: softmax or sigmoid, top-k, mask, normalise, loss
    scores = held.local * experts.num_experts * 4
    launches = 4 if experts.router_fusion else 16
    total = total.plus(Traffic(scores * router_passes, scores * router_passes, launches, launches))
    outputs = routed.rows * (experts.ffn_hidden_size // parallel.etp)
    activated = activation(run, outputs, probs=True)
    total = total.plus(activated).plus(expert_bias(run, experts, routed)).plus(padding(run, experts, routed))
    if not experts.grouped_gemm:
        total = total.plus(one_by_one(run, routed, activated))
    if experts.shared_expert_intermediate_size:
        shared = held.gathered * (experts.shared_expert_intermediate_size // parallel.tp)
        total = total.plus(activation(run, shared))
        total = total.plus(Traffic(3 * size * local, 3 * size * local, 1, 1))  # added to the routed output
    return total


def one_by_one(run: Run, routed: Routing, activated: Traffic) -> Traffic:
    """What experts that are modules of their own (`SequentialMLP`) do beyond grouped ones: their outputs are concatenated (read,
    written), and in the backward the gradients of their inputs; the `activated` kernels are launched for every expert."""
    copied = 2 * ELEMENT_BYTES[run.precision.params_dtype] * routed.rows * run.model.hidden_size * (routed.experts > 1)
    more = routed.experts - 1
    return Traffic(copied, copied, 1 + more * activated.forward_kernels, 1 + more * activated.backward_kernels)


def expert_bias(run: Run, experts: MixtureOfExperts, routed: Routing) -> Traffic:
    """Bias of the down projection of grouped experts, which TEGroupedMLP adds expert by expert in fp32, scaled by the
    routing weights: product (4 written), sum (2 + 4 read, 4 written), concatenation (4, 4), cast (4, 2); backward two casts
    (6, 6), and gradients of the bias and of the weights, a product and a sum over it each (4, 4, 4). Experts that are modules
    of their own add it in place: product (4), sum (2 + 4, 2); backward the same gradients."""
    if not run.model.linear_bias:
        return Traffic()
    values = routed.rows * run.model.hidden_size
    if not experts.grouped_gemm:
        return Traffic(12 * values, 24 * values, 2 * routed.experts, 4 * routed.experts)
    return Traffic(28 * values, 36 * values, 4 * routed.experts * IN_A_LOOP, 8 * routed.experts * IN_A_LOOP)


def padding(run: Run, experts: MixtureOfExperts, routed: Routing) -> Traffic:
    """Copies of the experts' input and output that pad every expert's rows for FP8 or FP4 products (`Fp8Padding`).

    None where the rows already are multiples: by the capacity, or by the router (`moe_router_padding_for_quantization`, which
    sync-free stages set), when `Fp8Padding` hands its input on. Nor in the CUTLASS product, which stays in 16 bits, and in
    Primus-Turbo's with `turbo_grouped_gemm_without_padding`."""
    low = run.precision.fp8 is not None or run.precision.fp4 is not None
    aligned = (experts.capacity_factor is not None and experts.pad_to_capacity) or any(
        run.args.get(f"moe_router_padding_for_{name}") for name in ("quantization", "fp8")
    )
    turbo = run.kernels.turbo_grouped_gemm and run.args.get("turbo_grouped_gemm_without_padding")
    if not low or aligned or turbo or (experts.grouped_gemm and experts.legacy_grouped_gemm):
        return Traffic()
    moved = 2 * 2 * ELEMENT_BYTES[run.precision.params_dtype] * routed.rows * run.model.hidden_size
    return Traffic(moved, moved, 2, 2)


def permutations(run: Run, experts: MixtureOfExperts, held: Tokens, routed: Routing) -> Traffic:
    """Tokens -> copies grouped by destination (in, out), copies -> copies grouped by local expert; the same back for
    the outputs. Backward mirrors it. DeepEP's tokens arrive once per rank and are permuted once, HybridEP's arrive
    permuted."""
    size = ELEMENT_BYTES[run.precision.params_dtype]
    hidden = run.model.hidden_size
    if experts.dispatcher == "flex":
        if experts.flex_backend == "hybridep":
            return Traffic(0, 0, 4, 4)
        fused = experts.permute_fusion or run.kernels.turbo_deepep
        once = (2 * 2 * size + (0 if fused else SCATTER_ADD)) * routed.rows * hidden
        return Traffic(once, once, 4 if fused else 14, 4 if fused else 14)
    local = held.local * hidden
    copies = routed.sent * hidden
    read = local if experts.permute_fusion else copies
    permute = size * (read + copies)
    # the inverse sums the copies of a token
    unpermute = size * (copies + local) + (0 if experts.permute_fusion else SCATTER_ADD * copies)
    sort = 2 * 2 * size * routed.rows * hidden
    launches = 4 if experts.permute_fusion else 14
    moved = permute + unpermute + sort
    return Traffic(moved, moved, launches, launches)


def embedding_block(run: Run, held: Tokens) -> Traffic:
    """Look-up (row in, row out); backward adds rows into the fp32 (or reduced) gradient: read, read-modify-write."""
    size = ELEMENT_BYTES[run.precision.params_dtype]
    grad = ELEMENT_BYTES[run.precision.grads_dtype]
    rows = held.gathered * run.model.hidden_size
    return Traffic(2 * size * rows, (size + 2 * grad) * rows, 4, 4)


def final_norm(run: Run, held: Tokens) -> Traffic:
    size = ELEMENT_BYTES[run.precision.params_dtype]
    return norm(run.kernels, run.model.normalization, held.local * run.model.hidden_size, size)


def cross_entropy(run: Run, logits: Any) -> Traffic:
    """Cross entropy over `logits` values of the rank.

    Unfused vocabulary-parallel cross entropy works in fp32: upcast (2+4), maximum (4), subtract in place (8),
    exponentiate (8), sum (4), divide in place (8) = 38 bytes a logit; backward scales by the incoming gradient (8) and
    downcasts (4+2) = 14. Measured on A100 (estimate-train-time): 40 and 13 at the bandwidth of other elementwise work.
    The jit-fused form ("native") keeps the fp32 copy but joins the steps (18 and 10); TransformerEngine's kernel reads
    the logits twice and writes the gradient in place (6 in all, 4 to scale it).
    """
    forward, backward, launches = {
        None: (38, 14, 14),
        "native": (18, 10, 6),
        "te": (6, 4, 4),
        "linear": (6, 4, 4),
    }.get(run.kernels.cross_entropy_fusion, (38, 14, 14))
    return Traffic(forward * logits, backward * logits, launches, launches)


def softmax(run: Run, scores: Any) -> Traffic:
    """Softmax and dropout between the two products of an unfused attention core, over `scores` values.

    One masked kernel reads and writes them once (backward: output and gradient in, gradient out), or a chain does
    (scale, mask, upcast, softmax in fp32, downcast; in fp32 scale, mask, softmax). Dropout reads and writes them and a mask of
    a byte.
    """
    size = ELEMENT_BYTES[run.precision.params_dtype]
    chain = (4 + 5 + 6 + 8 + 6, 6 + 12 + 6 + 4, 5) if size == 2 else (8 + 9 + 8, 12 + 9 + 8, 3)
    fused = softmax_fused(run)
    forward, backward, launches = (where(fused, one, many) for one, many in zip((4, 6, 1), chain, strict=True))
    if run.model.attention_dropout > 0:
        forward, backward, launches = forward + 2 * size + 1, backward + 2 * size + 1, launches + 1
    return Traffic(forward * scores, backward * scores, launches, launches)


def softmax_fused(run: Run) -> Any:
    """Whether the masked softmax kernel takes these shapes: 16-bit scores, 16 < sequence <= 4096 in fours, and a multiple of
    four matrices a rank; else Megatron falls back to single steps (Megatron-Core `FusedScaleMaskSoftmax`)."""
    if not run.kernels.masked_softmax_fusion or run.precision.params_dtype == "fp32":
        return False
    matrices = run.batch.micro_batch_size * (run.model.num_attention_heads // run.parallel.tp)
    length = run.batch.seq_length
    return (matrices % 4 == 0) & (length > 16) & (length <= 4096) & (length % 4 == 0)


def fp8_casts(run: Run, gemm: Gemm) -> Traffic:
    """Quantisation of the input (forward) and of the incoming gradient (backward) of one FP8 (FP4) product, beyond the one
    read in two bytes and write in one that the product's own rate includes.

    A second copy is written for the wgrad (transposed, or scaled by column): not under per-tensor scaling on Blackwell, whose
    products take either layout. Recipes that scale by the current tensor read it once more for its maximum, but for what
    comes from a norm (a column-parallel input), whose kernel finds the maximum on the way; under delayed scaling that kernel
    quantizes as well (TransformerEngine csrc/extensions/normalization.cpp). NVFP4 reads once for the maximum, once for each
    of its two half-byte copies. The rows of every expert of a grouped product are quantized by themselves, in a loop.
    """
    recipe = "fp4" if run.precision.fp4 is not None else run.precision.fp8_recipe
    column = gemm.parallel == "column"
    per_tensor = recipe in ("delayed", "tensorwise", "current")
    copy = 0 if per_tensor and architecture(run.target.gpu, run.kernels.vendor) == "sm100" else 1
    passes = 2 + 2 + 2 * 0.5 - 1 if recipe == "fp4" else copy + (2 if recipe in ("tensorwise", "current") else 0)
    fused = recipe == "delayed" and column
    forward = copy if recipe in ("tensorwise", "current") and column else passes
    rows = gemm.m * (gemm.groups if gemm.is_grouped else 1)
    launches = per_expert(run, gemm.groups) if gemm.is_grouped else 1
    return Traffic(0 if fused else forward * rows * gemm.k, passes * rows * gemm.n, 0 if fused else launches, launches)


def accumulation(run: Run, weights: Any) -> Traffic:
    """Adding the weight gradients of one micro-batch, `weights` elements, to the gradient buffer as a step of its own:
    gradient in, buffer in and out. Nothing where the product itself accumulates (`gradient_accumulation_fusion`), and
    under FSDP, which adds shards after reducing them."""
    optimizer = run.optimizer
    if optimizer.gradient_accumulation_fusion or optimizer.sharding in ("fsdp1", "fsdp2", "megatron-fsdp"):
        return Traffic()
    size, buffer = ELEMENT_BYTES[run.precision.params_dtype], ELEMENT_BYTES[run.precision.grads_dtype]
    return Traffic(0, (size + 2 * buffer) * weights, 0, 1)


def adapter(run: Run, gemm: Gemm) -> Traffic:
    """What surrounds a LoRA adapter: its output is scaled and added to that of the frozen product; backward the gradient is
    scaled, and the two gradients of the input are added."""
    size, rows = ELEMENT_BYTES[run.precision.params_dtype], gemm.m * gemm.groups if gemm.is_grouped else gemm.m
    return Traffic(5 * rows * gemm.n * size, (2 * gemm.n + 3 * gemm.k) * rows * size, 2, 2)


def unpacking(run: Run, weights: Any) -> Traffic:
    """Copies of torch's FSDP2 around its collectives, of `weights` elements and one micro-batch, in the stream that computes
    (`torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py`): what was gathered, rank by rank, is copied into the parameters
    (`split_with_sizes_copy`), before the forward and before the backward; gradients are cut into the shards of all ranks, in
    the number format of the reduction (`chunk_cat`). Flat parameters (FSDP1, XLA) and Megatron's buffers need none."""
    if run.optimizer.sharding != "fsdp2":
        return Traffic()
    size, reduced = ELEMENT_BYTES[run.precision.params_dtype], ELEMENT_BYTES[run.precision.grads_dtype]
    gathered = 2 * (1 if run.precision.fp8_param else size)
    return Traffic(gathered * weights, (gathered + size + reduced) * weights, 1, 2)
