"""What a rank holds for the whole run besides its states: workspaces, tables, cached copies, retained tensors.

Sources: TransformerEngine `get_cublas_workspace`, `get_dummy_wgrad`; PyTorch `parseChosenWorkspaceSize` (one workspace
per cuBLAS handle, and the autograd thread has a handle of its own); Megatron `GlobalMemoryBuffer`, `set_input_tensor`.
Checked against `memory_allocated` of ../shared/goldens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, is_scalar, maximum, minimum, round_up, where
from primus_lint.ledger import graphs, head, transients, weight_copies
from primus_lint.ledger.activations.attention import backend, causal_mask_bytes, deterministic
from primus_lint.ledger.activations.experts import holds_metadata, received, rows
from primus_lint.ledger.activations.kind import recipe
from primus_lint.ledger.activations.offload import emptied
from primus_lint.ledger.activations.router import logit_bytes, of_2026
from primus_lint.ledger.architecture import architecture

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ir.run import Run
    from primus_lint.ledger.params import Segment
    from primus_lint.ledger.sizes import Sizes

MIB = 1 << 20
GROUPED_STREAMS = 4
USER_BUFFER_STREAMS = 3  # of `tp_comm_overlap`, beside the workspace of the other products
THREADS = 2  # forward and autograd thread: each has its own BLAS handle, hence its own workspace
BEFORE_HOPPER_BYTES = 8 * MIB + 128 * 1024  # PyTorch's default workspace, Blackwell included up to PyTorch 2.11
BLACKWELL_TORCH = 2012  # major*1000 + minor: from it on Blackwell has Hopper's 32 MiB (PyTorch 175344)
ROPE_CACHE = 32  # tables that the cache of Megatron-Core's rotary embeddings remembers
YARN_POSITIONS = 4096  # Megatron-Core's `original_max_position_embeddings`
BLOCK = 512  # the allocator's smallest block
SMALL_BYTES = 7 * BLOCK  # step counters, loss scale, RNG seeds: small tensors, one 512-byte block each
SCALER_BYTES = 4 * BLOCK  # of fp16 besides: Megatron's dynamic loss scale, its limits and factors, the overflow flag


def older_te(run: Run, version: int) -> bool:
    """Whether the stack names a TransformerEngine older than a version (major*1000 + minor); an unnamed one is new."""
    stated = run.args.get("te")
    return stated is not None and stated < version


def te_workspace_bytes(sizes: Sizes) -> int:
    """One GEMM workspace of TransformerEngine."""
    arch = architecture(sizes.run.target.gpu, sizes.run.kernels.vendor)
    return {"sm80": 4 * MIB, "sm90": 32 * MIB + 1024, "sm100": 32 * MIB + 1024, "gfx942": 32 * MIB}.get(arch, 64 * MIB)


def torch_workspace_bytes(sizes: Sizes) -> int:
    """One BLAS workspace of PyTorch: by `CUBLAS_WORKSPACE_CONFIG` (`:KiB:count`), or the architecture's default."""
    try:
        config = sizes.run.args["env_CUBLAS_WORKSPACE_CONFIG"]
    except KeyError:
        config = None
    numbers = [part for part in str(config or "").split(":") if part.isdigit()]
    if len(numbers) >= 2:
        pairs = zip(numbers[::2], numbers[1::2], strict=False)
        return sum(int(size) * int(count) * 1024 for size, count in pairs)
    arch = architecture(sizes.run.target.gpu, sizes.run.kernels.vendor)
    if arch.startswith("gfx"):
        return 128 * MIB
    if arch == "sm100" and deterministic(sizes.run):
        return 32 * MIB  # such runs are started with :4096:8 (Megatron's determinism.py)
    stated = sizes.run.args.get("torch")
    large = arch == "sm90" or (arch == "sm100" and stated is not None and stated >= BLACKWELL_TORCH)
    return 32 * MIB if large else BEFORE_HOPPER_BYTES


def workspaces(sizes: Sizes, moe: bool, loss: bool) -> dict[str, tuple[Any, str]]:
    """GEMM workspaces of TransformerEngine (one, and one per stream of grouped GEMMs) and of PyTorch.

    PyTorch's own are allocated where a plain matrix product runs (output layer, local attention), one for each thread and
    stream: the overlapped schedule of expert parallelism and the capture of CUDA graphs have a stream of their own.
    """
    run = sizes.run
    local = run.kernels.implementation == "local"
    out: dict[str, tuple[Any, str]] = {}
    each = te_workspace_bytes(sizes)
    if not local or (moe and not older_te(run, 2000)):  # since TE 2.0 the router runs a TE GEMM even in the local spec
        grouped = moe and not local and run.model.moe is not None and run.model.moe.grouped_gemm
        if (
            older_te(run, 1009)
            or run.kernels.turbo_grouped_gemm
            or (run.model.moe is not None and run.model.moe.legacy_grouped_gemm)
        ):
            grouped = False
        count = 1 + (GROUPED_STREAMS if grouped else 0) + USER_BUFFER_STREAMS * run.kernels.tp_comm_overlap
        text = f"{count} workspaces x {each:,} B" if sizes.scalar else ""
        out["TE workspaces"] = (count * each, text)
    count = torch_workspaces(sizes, loss)
    if not is_scalar(count) or count:
        one = torch_workspace_bytes(sizes)
        out["torch workspaces"] = (count * one, f"{count} threads and streams x {one:,} B")
    return out


def torch_workspaces(sizes: Sizes, loss: bool) -> Any:
    """Number of PyTorch's BLAS workspaces on a rank."""
    run = sizes.run
    products = backend(sizes) in ("unfused", "local")  # attention by plain matrix products
    if not loss and not products:
        return 0
    overlap = where(sizes.m == 1, 0, 1) if run.schedule.overlap_moe_ep else 0
    return THREADS + overlap + (products and graphs.attention_captured(run))


def mx_workspace_bytes(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """What TransformerEngine's workspace for MXFP8 products on gfx950 (HipKittens) has beyond its 64 MiB: it grows to the
    largest product, scales of both operands and a copy of one in another layout (byte-accounting-amd.md section 3)."""
    run = sizes.run
    arch = architecture(run.target.gpu, run.kernels.vendor)
    if arch != "gfx950" or recipe(run) != "mxfp8" or run.kernels.turbo_gemm or run.kernels.implementation == "local":
        return 0
    h, kv = sizes.h, sizes.kq * sizes.d
    shapes = [(h, sizes.Aq * sizes.d + 2 * kv), (sizes.Aq * sizes.dv, h)]
    if any(not run.model.is_moe_layer(layer) for chunk in chunks for layer in chunk.layers):
        shapes += [(h, sizes.fc1 * (sizes.f // sizes.tp)), (sizes.f // sizes.tp, h)]
    most: Any = 0
    for inputs, outputs in shapes:
        copied = maximum(sizes.S * inputs, maximum(sizes.S * outputs, inputs * outputs))
        scales = 4 * (ceil_div(sizes.S, 128) * (inputs + outputs) + ceil_div(inputs, 128) * outputs)
        most = maximum(most, round_up(scales, 256) + copied * 103 // 100)
    return maximum(most - te_workspace_bytes(sizes), 0)


def rope_table_bytes(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """The rotary tables in fp32, sequence x rotated dimensions of a head, over the whole sequence: every model chunk has
    one of its own (a cache, shared by all, remembers the last 32).

    Under multi-latent attention every layer has one, and YaRN's has a cosine and a sine table in the weights' dtype
    besides, over the positions before scaling.
    """
    model, args = sizes.run.model, sizes.run.args
    if model.mla is not None:
        layers = sum(len(chunk.layers) + len(chunk.mtp) for chunk in chunks)
        rotated = model.mla.qk_pos_emb_head_dim
        yarn = (args.get("rope_type") or "yarn") == "yarn"
        cached = 2 * (args.get("original_max_position_embeddings") or YARN_POSITIONS) * sizes.act if yarn else 0
        return rotated * (min(layers, ROPE_CACHE) * sizes.seq * 4 + layers * cached)
    if model.position_embedding in ("rope", "yarn", "mrope"):
        rotated = int(sizes.d * (args.get("rotary_percent") or 1.0))
        return min(len(chunks), ROPE_CACHE) * sizes.seq * rotated * 4
    return 0


def global_buffer_bytes(sizes: Sizes, moe: bool, loss: bool) -> Any:
    """Megatron's global buffer: the gathered input of a plain column-parallel linear (output layer, local layers) under
    sequence parallelism, the tokens that the all-gather dispatcher gathers over its expert ranks, and the score matrix
    of local attention; the largest of them."""
    run = sizes.run
    local = run.kernels.implementation == "local"
    out: Any = 0
    if loss or local:
        out = where(sizes.sp, sizes.S * sizes.h * sizes.act, 0)
    if moe and run.model.moe is not None and run.model.moe.dispatcher == "allgather":
        ranks = sizes.ep * sizes.etp
        out = maximum(out, where(ranks > 1, sizes.T * ranks * sizes.h * sizes.act, 0))
    if local:
        out = maximum(out, sizes.mbs * sizes.Aq * (sizes.seq // sizes.cp) ** 2 * sizes.act)
    if loss:  # deferred weight gradients of the output layer: their gathered inputs take turns in two more buffers
        waiting = minimum(head.deferred_micro_batches(sizes), 2)
        out = out + waiting * where(sizes.sp, sizes.S * sizes.h * sizes.act, 0)
    return out


def retained_dispatch_bytes(sizes: Sizes, layers: int) -> Any:
    """What the token dispatchers hold of the last micro-batch as attributes, for every MoE layer: routing map,
    probabilities, row mapping. DeepEP's releases what it received since Megatron-Core 0.19."""
    moe = sizes.run.model.moe
    if moe is None or not layers or not holds_metadata(sizes):
        return 0
    T, E, K, local = sizes.T, sizes.E, sizes.K, sizes.local_experts
    probs = logit_bytes(sizes, moe)
    if moe.dispatcher == "allgather":
        tokens = T * sizes.ep * sizes.etp
        mapping = 4 * tokens * (2 * local + 1) if moe.permute_fusion else rows(sizes) * 8
        parts = [tokens * local, rows(sizes) * probs, mapping, BLOCK]
    elif moe.dispatcher == "alltoall":
        mapping = 4 * T * (2 * E + 1) if moe.permute_fusion else T * K * 8
        parts = [T * E, T * E * probs, mapping]
    else:
        tokens = received(sizes)
        parts = [T * K * 4, T * K * 8, tokens * local, 4 * tokens * (2 * local + 1)]
        if not of_2026(sizes):
            parts += [tokens * K * 8, tokens * local * 4]
    total: Any = 0
    for part in parts:
        total = total + round_up(part, BLOCK)
    return layers * total


def retained_input_bytes(sizes: Sizes, chunks: tuple[Chunk, ...]) -> Any:
    """A pipeline chunk that receives its input keeps the last one, and its gradient, until the next arrives; the input
    is emptied where its first layer sends it to the host."""
    received = transients.stage_input_bytes(sizes)
    total: Any = 0
    for chunk in chunks:
        if not chunk.embedding:
            total = total + 2 * received - emptied(sizes, chunk, received)
    return total


def dummy_gradient_bytes(sizes: Sizes, segments: list[list[Segment]]) -> Any:
    """With fused gradient accumulation TE (since 2.3) returns a dummy weight gradient: one per distinct weight shape, for
    ever; Megatron's own output layer takes TE's."""
    run = sizes.run
    if not run.optimizer.gradient_accumulation_fusion or run.kernels.implementation == "local":
        return 0
    if older_te(run, 2003):
        return 0
    shapes: dict[str, tuple[Any, Any]] = {}  # weight -> (elements, inputs)
    for chunk in segments:
        for segment in chunk:
            for param in segment.params:
                if param.name.startswith("experts.weight"):
                    continue  # the legacy kernel does not accumulate in place
                if param.gemm or param.name == "output_layer.weight":
                    shapes[param.name.rpartition("experts.")[2] + str(param.expert)] = param.numel, param.inputs
    seen: list[tuple[Any, Any]] = []
    total: Any = 0
    for numel, inputs in shapes.values():
        fresh: Any = 1
        for other, its_inputs in seen:
            fresh = fresh * ((numel != other) | (inputs != its_inputs))
        seen.append((numel, inputs))
        total = total + fresh * numel * sizes.act
    return total


def router_buffer_bytes(sizes: Sizes, layers: int) -> Any:
    """Expert bias (fp32 once training runs) and token counters (bf16) of the routers."""
    return layers * sizes.E * (4 + 2)


def moe_layers(sizes: Sizes, chunks: tuple[Chunk, ...]) -> int:
    """MoE layers of a rank, MTP depths included."""
    model = sizes.run.model
    count = 0
    for chunk in chunks:
        count += sum(model.is_moe_layer(layer) for layer in chunk.layers)
        if chunk.mtp and model.moe is not None and model.moe.layer_is_moe[-1]:
            count += len(chunk.mtp)
    return count


def persistent(sizes: Sizes, chunks: tuple[Chunk, ...], segments: list[list[Segment]]) -> dict[str, tuple[Any, str]]:
    """Name -> (bytes, how) of everything above on one pipeline rank."""
    moe = moe_layers(sizes, chunks)
    loss = any(chunk.loss for chunk in chunks)
    out = workspaces(sizes, moe > 0, loss)
    out["rope table"] = (
        rope_table_bytes(sizes, chunks), "sequence x rotated dimensions x 4 B of every chunk; MLA: of every layer",
    )  # fmt: skip
    out["causal mask"] = (causal_mask_bytes(sizes), "TransformerEngine's, sequence x sequence x 1 B")
    out["global buffer"] = (
        global_buffer_bytes(sizes, moe > 0, loss),
        "gathered tokens x hidden, or local score matrix",
    )
    out["retained dispatch"] = (retained_dispatch_bytes(sizes, moe), "maps and probabilities of the last micro-batch")
    out["retained pipeline inputs"] = (
        retained_input_bytes(sizes, chunks), "2 x tokens x hidden per chunk that receives its input",
    )  # fmt: skip
    out["dummy weight gradients"] = (dummy_gradient_bytes(sizes, segments), "one per distinct weight shape")
    out["HipKittens workspace"] = (mx_workspace_bytes(sizes, chunks), "grown to the largest MXFP8 product")
    out["FP8 weight copies"] = (weight_copies.kept_bytes(sizes, chunks), "FP8 copies of the GEMM weights")
    scaler = SCALER_BYTES if sizes.run.precision.params_dtype == "fp16" else 0
    out["small tensors"] = (SMALL_BYTES + scaler, "counters, scales, seeds")
    return {name: value for name, value in out.items() if not (isinstance(value[0], int) and value[0] == 0)}
