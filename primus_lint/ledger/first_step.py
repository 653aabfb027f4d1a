"""What the first micro-batches of a stage take from the caching allocator and give back, in order.

Megatron makes the moments of the optimizer after the first backward, in the holes that it left, and what stays for ever
(workspaces, Megatron's global buffer, dummy weight gradients, a stage's last input) takes its block in the midst of it.
Which of their blocks are larger than they are follows from the order of all tensors before them. Written down here for a
stage of dense layers that has the loss, one micro-batch in flight: in the local implementation as the modules of
Megatron-Core make them with fused kernels for softmax, GELU and dropout, whose mask PyTorch's `dropout_cuda` makes before its
result (tests/oracle/first_step_trace.py asks the real modules), and in TransformerEngine's (`LayerNormLinear`, `Linear`, `FlashAttention`, `UnfusedDotProductAttention` of 2.11;
flash-attention's `mha_bwd`). What cuDNN takes for its attention is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from primus_lint.ledger import persistent
from primus_lint.ledger.activations.attention import backend, deterministic
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from primus_lint.ir.layout import Chunk
    from primus_lint.ledger.blocks import Block, Pool
    from primus_lint.ledger.sizes import Sizes

    Tensor = tuple[Block | None, int]

MICRO_BATCHES = 3  # the blocks of a further one are those of the third


class Step(NamedTuple):
    """Bytes of the tensors of a micro-batch; 0 for what a recipe lacks."""

    layers: int
    micro_batches: int
    received: bool  # the stage input comes from another stage
    tied: bool  # the weight of the loss is that of the embedding of this stage
    hidden: int  # tokens x hidden size
    packed: int  # queries, keys and values
    context: int
    scores: int
    wide: int  # what fc1 makes
    narrow: int  # what fc2 takes
    logits: int
    hidden_mask: int  # of dropout
    scores_mask: int
    positions: int  # gradient of the learned positions
    shared_rows: int  # whether other ranks hold rows of the embedding: their tokens are masked
    batch_mask: int  # attention mask of the data loader
    embedding: int  # gradient of the word embedding
    weights: tuple[tuple[int, int], ...]  # rows and columns of packed, output, fc1, fc2 and the loss
    accumulated: bool  # weight gradients are added to in place
    act: int  # bytes of an element
    attention: str  # "local", "flash" or "unfused"
    rotated: bool
    scratch: int  # of the attention backward
    global_buffer: int
    engine_workspace: int  # of TransformerEngine
    workspace: int  # of a plain matrix product, one for each thread


def step_of(sizes: Sizes, chunks: tuple[Chunk, ...], global_buffer: int, workspace: int, units: int = 0) -> Step | None:
    """The step of a stage; None where it is not written down. `units`: multiprocessors of the accelerator."""
    run = sizes.run
    model = run.model
    if sizes.m is None or len(chunks) > 1 or not chunks[0].loss or not _written_down(sizes, chunks[0]):
        return None
    act, S, h = sizes.act, sizes.S, sizes.h
    first = chunks[0].embedding
    narrow = S * (sizes.f // sizes.tp) * act
    scores = sizes.mbs * sizes.Aq * sizes.seq**2 * act
    rows = sizes.V // sizes.tp
    widths = (
        (sizes.Aq + 2 * sizes.kq) * sizes.d,
        sizes.Aq * sizes.d,
        sizes.fc1 * (sizes.f // sizes.tp),
        sizes.f // sizes.tp,
    )
    attention = backend(sizes)
    splits = (
        max(-(-units // (sizes.mbs * sizes.Aq)), 1) if deterministic(run) else 1
    )  # sums of dq, one a split of the keys
    return Step(
        layers=len(chunks[0].layers),
        micro_batches=min(sizes.m, MICRO_BATCHES),
        received=not first,
        tied=first and model.tied_embeddings,
        hidden=S * h * act,
        packed=S * widths[0] * act,
        context=S * widths[1] * act,
        scores=scores,
        wide=sizes.fc1 * narrow,
        narrow=narrow,
        logits=S * rows * act,
        hidden_mask=S * h if model.hidden_dropout else 0,
        scores_mask=scores // act if model.attention_dropout else 0,
        positions=model.max_position_embeddings * h * act if model.position_embedding == "learned_absolute" else 0,
        shared_rows=int(sizes.tp > 1),
        batch_mask=sizes.mbs * sizes.seq**2 if run.args.get("create_attention_mask_in_dataloader", True) else 0,
        embedding=rows * h * act,
        weights=((widths[0], h), (h, widths[1]), (widths[2], h), (h, widths[3]), (rows, h)),
        accumulated=run.optimizer.gradient_accumulation_fusion,
        act=act,
        attention=attention,
        rotated=model.position_embedding == "rope",
        scratch=S * widths[1] * 4 * splits if attention == "flash" else 0,
        global_buffer=global_buffer,
        engine_workspace=0 if attention == "local" else persistent.te_workspace_bytes(sizes),
        workspace=workspace,
    )


def _written_down(sizes: Sizes, chunk: Chunk) -> bool:
    run = sizes.run
    model, kernels = run.model, run.kernels
    dense = model.mla is None and model.moe is None and not chunk.mtp and sizes.k == sizes.A and not model.qk_layernorm
    activation = kernels.bias_activation_fusion or (model.activation == "gelu" and not model.linear_bias)  # one kernel
    fused = activation and kernels.bias_dropout_fusion and kernels.cross_entropy_fusion is None
    schedule = run.schedule.kind in ("1f1b", "none") and run.recompute.granularity is None
    whole = sizes.cp == 1 and not sizes.sp and sizes.act == 2 and run.precision.fp8 is None
    if kernels.implementation == "local":
        learned = model.linear_bias and model.position_embedding in ("learned_absolute", "none")
        own = learned and kernels.masked_softmax_fusion and not run.optimizer.gradient_accumulation_fusion
    else:
        attention = backend(sizes)
        rotated = model.position_embedding == "rope" and kernels.rope_fusion and attention == "flash"
        plain = model.position_embedding in ("learned_absolute", "none")
        own = (rotated or plain) and attention in ("flash", "unfused") and not persistent.older_te(run, 2000)
    return bool(dense and fused and schedule and whole and own)


class Heap:
    """Tensors in blocks. `new` of 0 bytes is none."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def new(self, size: int) -> Tensor:
        return (self.pool.take(size) if size else None), size

    def free(self, *tensors: Tensor) -> None:
        for block, size in tensors:
            if size:
                self.pool.give(block, size)

    def passing(self, size: int) -> None:
        """A tensor that nothing outlives."""
        self.free(self.new(size))


class Stage:
    """Runs the micro-batches of a step on a heap; what stays is never freed. Layers of the local implementation."""

    def __init__(self, step: Step, pool: Pool) -> None:
        self.step = step
        self.heap = Heap(pool)
        self.threads: set[str] = set()  # that have made a plain matrix product
        self.dummies: set[tuple[int, int]] = set()
        self.begun = False

    def run(self) -> None:
        """All micro-batches, one after the other. A received input and its gradient stay until the next is there."""
        heap, step = self.heap, self.step
        waiting: list[Tensor] = []
        for _ in range(step.micro_batches):
            received = heap.new(step.hidden) if step.received else None
            mask = heap.new(step.batch_mask)
            heap.free(*waiting[:1])
            saved: list[list[Tensor]] = []
            x = self.embed(saved) if received is None else received
            for _ in range(step.layers):
                x = self.layer(x, saved)
            norm = heap.new(step.hidden)
            logits = self.product(step.logits, "forward")
            softmax = heap.new(2 * step.logits)
            heap.free(logits, mask)
            gradient = self.backward(x, norm, softmax, saved, received)
            heap.free(*waiting[1:])
            waiting = [received, gradient] if received is not None else []

    def product(self, size: int, thread: str) -> Tensor:
        """A plain matrix product; the first one of a thread takes a workspace after its result."""
        out = self.heap.new(size)
        if thread not in self.threads:
            self.threads.add(thread)
            self.heap.new(self.step.workspace)
        return out

    def weight_gradient(self, number: int) -> Tensor:
        """The gradient of a weight, or the dummy that stands for it: one of each shape, kept."""
        shape = self.step.weights[number]
        size = shape[0] * shape[1] * self.step.act
        if not self.step.accumulated:
            return self.heap.new(size)
        if shape not in self.dummies:
            self.dummies.add(shape)
            self.heap.new(size)
        return self.heap.new(0)

    def embed(self, saved: list[list[Tensor]]) -> Tensor:
        """Words and positions, their sum, turned to sequence first, and dropout."""
        heap, step = self.heap, self.step
        words, positions = heap.new(step.hidden), heap.new(step.hidden if step.positions else 0)
        both = heap.new(step.hidden if step.positions else 0)
        turned = heap.new(step.hidden)
        heap.free(both)
        mask, x = heap.new(step.hidden_mask), heap.new(step.hidden if step.hidden_mask else 0)
        if step.hidden_mask:
            heap.free(turned)
        else:
            x = turned
        heap.free(words, positions)
        saved.append([mask])
        return x

    def layer(self, x: Tensor, saved: list[list[Tensor]]) -> Tensor:
        """One layer forward: its output; what backward needs is saved."""
        heap, step = self.heap, self.step
        norm = heap.new(step.hidden)
        product, packed = self.product(step.packed, "forward"), heap.new(step.packed)  # without and with bias
        heap.free(product)
        if not self.begun:
            heap.new(step.global_buffer)
        self.begun = True
        kept, turned = self.plain_attention(heap.new(step.scores))
        middle, middle_mask = self.added(heap.new(step.hidden))
        rest = self.feed_forward()
        saved.append([x, norm, packed, *kept, turned, middle, middle_mask, *rest[1:]])
        return rest[0]

    def plain_attention(self, scores: Tensor) -> tuple[list[Tensor], Tensor]:
        """Softmax of the scores, dropout, and the weighted values, turned to sequence first."""
        heap, step = self.heap, self.step
        probabilities = heap.new(step.scores)
        mask, dropped = heap.new(step.scores_mask), heap.new(step.scores if step.scores_mask else 0)
        context, turned = heap.new(step.context), heap.new(step.context)
        heap.free(context, scores)
        return [probabilities, dropped, mask], turned

    def added(self, product: Tensor) -> tuple[Tensor, Tensor]:
        """A product with bias and dropout, added to the residual: the sum and the mask."""
        total, mask = self.heap.new(self.step.hidden), self.heap.new(self.step.hidden_mask)
        self.heap.free(product)
        return total, mask

    def feed_forward(self) -> list[Tensor]:
        """Output, norm, what fc1 makes and what fc2 takes, and the mask."""
        heap, step = self.heap, self.step
        norm, wide, narrow = heap.new(step.hidden), heap.new(step.wide), heap.new(step.narrow)
        out, mask = self.added(heap.new(step.hidden))
        return [out, norm, wide, narrow, mask]

    def backward(
        self, x: Tensor, norm: Tensor, softmax: Tensor, saved: list[list[Tensor]], received: Tensor | None
    ) -> Tensor:
        """Of the loss, the final norm, the layers and the embedding; the gradient of the received input."""
        heap, step = self.heap, self.step
        logits = heap.new(step.logits)
        heap.free(softmax)
        of_norm, weight = self.product(step.hidden, "backward"), self.weight_gradient(4)
        heap.free(logits, norm)
        if not step.tied:
            heap.free(weight)
        gradient = heap.new(step.hidden)
        heap.free(of_norm, x)
        for number in range(step.layers):
            kept = saved.pop()
            self.layer_backward(kept, kept[0] if received is None or number < step.layers - 1 else heap.new(0))
        if received is None:
            self.embed_backward(gradient, saved.pop()[0], weight if step.tied else heap.new(0))
        return gradient

    def undropped(self, mask: Tensor) -> Tensor:
        """The gradient of a product that was dropped out; without dropout it is the sum's own."""
        gradient = self.heap.new(self.step.hidden if self.step.hidden_mask else 0)
        self.heap.free(mask)
        return gradient

    def layer_backward(self, kept: list[Tensor], entered: Tensor) -> None:
        """One layer backward; the gradient is added to in place. `entered`: its input, unless somebody else holds it."""
        heap, step = self.heap, self.step
        _, norm, packed, *attention, turned, middle, middle_mask, second, wide, narrow, out_mask = kept
        product = self.undropped(out_mask)
        of_narrow, weight = heap.new(step.narrow), self.weight_gradient(3)
        heap.free(product, narrow, weight)
        of_wide = heap.new(step.wide)
        heap.free(of_narrow, wide)
        of_norm, weight = heap.new(step.hidden), self.weight_gradient(2)
        heap.free(of_wide, second, weight)
        more = heap.new(step.hidden)
        heap.free(of_norm, middle, more)
        product = self.undropped(middle_mask)
        of_context, weight = heap.new(step.context), self.weight_gradient(1)
        heap.free(product, turned, weight)
        together = self.plain_attention_backward(of_context, packed, attention)
        of_norm, weight = heap.new(step.hidden), self.weight_gradient(0)
        heap.free(together, norm, weight)
        more = heap.new(step.hidden)
        heap.free(of_norm, entered, more)

    def plain_attention_backward(self, of_context: Tensor, packed: Tensor, kept: list[Tensor]) -> Tensor:
        """The gradient of queries, keys and values together."""
        heap, step = self.heap, self.step
        probabilities, dropped, mask = kept
        of_values, of_dropped = heap.new(step.context), heap.new(step.scores)
        heap.free(of_context, dropped if step.scores_mask else probabilities)
        if step.scores_mask:
            of_probabilities = heap.new(step.scores)
            heap.free(of_dropped, mask, probabilities)
            of_dropped = of_probabilities  # the softmax works in place
        parts = [of_values]
        for _ in range(2):  # queries and keys, each by way of one that is not scaled
            unscaled, scaled = heap.new(step.context), heap.new(step.context)
            heap.free(unscaled)
            parts.append(scaled)
        heap.free(of_dropped, packed)
        together = heap.new(step.packed)
        heap.free(*parts)
        return together

    def embed_backward(self, gradient: Tensor, mask: Tensor, tied: Tensor) -> None:
        """Gradients of positions and words, each by way of a copy of the gradient in the batch's order."""
        heap, step = self.heap, self.step
        if step.hidden_mask:
            undropped = heap.new(step.hidden)
            heap.free(gradient, mask)
            gradient = undropped
        if step.positions:
            weight = heap.new(step.positions)
            heap.passing(step.hidden)
            heap.free(weight)
        if step.shared_rows:
            masked = heap.new(step.hidden)
            heap.free(gradient)
            gradient = masked
        weight = heap.new(step.embedding)
        heap.passing(step.hidden)
        heap.free(gradient, weight, tied)


class EngineStage(Stage):
    """Layers of TransformerEngine: norms belong to the products that follow, biases are added inside them."""

    def layer(self, x: Tensor, saved: list[list[Tensor]]) -> Tensor:
        heap, step = self.heap, self.step
        norm = heap.new(step.hidden)
        if not self.begun:
            heap.new(step.engine_workspace)
        self.begun = True
        packed = heap.new(step.packed)
        rotated = [heap.new(step.context if step.rotated else 0) for _ in range(2)]
        if step.attention == "flash":  # of its own: queries, keys and values in the batch's order, and the output
            parts = [step.context] * 3 if step.rotated else [step.packed]
            kept = [heap.new(size) for size in (*parts, step.context)]
            turned = heap.new(step.context)
        else:
            buffer, scores = heap.new(step.scores), heap.new(step.scores)
            heap.free(buffer)
            kept, turned = self.plain_attention(scores)
        product = heap.new(step.hidden)
        if step.attention == "flash":
            heap.free(packed, *rotated)
            packed = heap.new(0)
        middle, middle_mask = self.added(product)
        rest = self.feed_forward()
        saved.append([x, norm, packed, *kept, turned, middle, middle_mask, *rest[1:]])
        return rest[0]

    def layer_backward(self, kept: list[Tensor], entered: Tensor) -> None:
        heap, step = self.heap, self.step
        _, norm, packed, *attention, turned, middle, middle_mask, second, wide, narrow, out_mask = kept
        product = self.undropped(out_mask)
        of_narrow, weight = heap.new(step.narrow), self.weight_gradient(3)
        heap.free(narrow, product, weight)
        of_wide = heap.new(step.wide)
        heap.free(of_narrow, wide)
        self.norm_backward(2, second, of_wide, middle)
        product = self.undropped(middle_mask)
        of_context, weight = heap.new(step.context), self.weight_gradient(1)
        heap.free(turned, product, weight)
        if step.attention == "flash":
            together = self.flash_backward(of_context, attention)
        else:
            together = self.plain_attention_backward(of_context, packed, attention)
        self.norm_backward(0, norm, together, entered)

    def norm_backward(self, number: int, norm: Tensor, of_product: Tensor, entered: Tensor) -> None:
        """Of a norm and the product behind it, added to the residual's gradient."""
        heap, step = self.heap, self.step
        of_norm, weight = heap.new(step.hidden), self.weight_gradient(number)
        heap.free(norm)
        more = heap.new(step.hidden)
        heap.free(of_norm, of_product, entered, weight, more)

    def flash_backward(self, of_context: Tensor, kept: list[Tensor]) -> Tensor:
        """Three gradients and the kernel's scratch, rotated back, then packed."""
        heap, step = self.heap, self.step
        queries, keys, values = (heap.new(step.context) for _ in range(3))
        heap.passing(step.scratch)
        heap.free(of_context, *kept)
        if step.rotated:
            unrotated = heap.new(step.context)
            heap.free(keys)
            keys = heap.new(step.context)
            heap.free(queries)
            queries = unrotated
        together = heap.new(step.packed)
        heap.free(queries, keys, values)
        return together


def run(step: Step, pool: Pool) -> None:
    """Run a step in a pool."""
    (Stage if step.attention == "local" else EngineStage)(step, pool).run()
