"""What the first micro-batches of a stage take from the caching allocator and give back, in order.

Megatron makes the moments of the optimizer after the first backward, in the holes that it left, and what stays for ever
(workspaces, Megatron's global buffer, a stage's last input) takes its block in the midst of it. Which of their blocks are
larger than they are follows from the order of all tensors before them. Written down here for a stage of dense layers in
the local implementation that has the loss, one micro-batch in flight, as the modules of Megatron-Core make them with
fused kernels for softmax, GELU and dropout; tests/oracle/first_step_trace.py asks the real modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    weight_gradients: tuple[int, int, int, int, int]  # of packed, output, fc1, fc2 and the loss
    global_buffer: int
    workspace: int  # of a plain matrix product, one for each thread


def step_of(sizes: Sizes, chunks: tuple[Chunk, ...], global_buffer: int, workspace: int) -> Step | None:
    """The step of a stage; None where it is not written down."""
    run = sizes.run
    model = run.model
    if sizes.m is None or len(chunks) > 1 or not chunks[0].loss or not _written_down(sizes, chunks[0]):
        return None
    act, S, h = sizes.act, sizes.S, sizes.h
    first = chunks[0].embedding
    narrow = S * (sizes.f // sizes.tp) * act
    scores = sizes.mbs * sizes.Aq * sizes.seq**2 * act
    rows = sizes.V // sizes.tp
    shapes = (
        (sizes.Aq + 2 * sizes.kq) * sizes.d,
        sizes.Aq * sizes.d,
        sizes.fc1 * (sizes.f // sizes.tp),
        sizes.f // sizes.tp,
    )
    gradients = [width * h * act for width in (*shapes, rows)]
    return Step(
        layers=len(chunks[0].layers),
        micro_batches=min(sizes.m, MICRO_BATCHES),
        received=not first,
        tied=first and model.tied_embeddings,
        hidden=S * h * act,
        packed=S * shapes[0] * act,
        context=S * sizes.Aq * sizes.d * act,
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
        weight_gradients=tuple(gradients),
        global_buffer=global_buffer,
        workspace=workspace,
    )


def _written_down(sizes: Sizes, chunk: Chunk) -> bool:
    run = sizes.run
    model, kernels = run.model, run.kernels
    dense = model.mla is None and model.moe is None and not chunk.mtp and sizes.k == sizes.A
    plain = model.linear_bias and not model.qk_layernorm and model.position_embedding in ("learned_absolute", "none")
    fused = kernels.masked_softmax_fusion and kernels.bias_activation_fusion and kernels.bias_dropout_fusion
    whole = kernels.cross_entropy_fusion is None and not run.optimizer.gradient_accumulation_fusion
    schedule = run.schedule.kind in ("1f1b", "none") and run.recompute.granularity is None
    local = kernels.implementation == "local" and sizes.cp == 1 and not sizes.sp and sizes.act == 2
    return bool(dense and plain and fused and whole and schedule and local)


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
    """Runs the micro-batches of a step on a heap; what stays is never freed."""

    def __init__(self, step: Step, pool: Pool) -> None:
        self.step = step
        self.heap = Heap(pool)
        self.forward_begun = self.backward_begun = False

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
            logits = heap.new(step.logits)
            softmax = heap.new(2 * step.logits)
            heap.free(logits, mask)
            gradient = self.backward(x, norm, softmax, saved, received)
            heap.free(*waiting[1:])
            waiting = [received, gradient] if received is not None else []

    def embed(self, saved: list[list[Tensor]]) -> Tensor:
        """Words and positions, their sum, turned to sequence first, and dropout."""
        heap, step = self.heap, self.step
        words, positions = heap.new(step.hidden), heap.new(step.hidden if step.positions else 0)
        both = heap.new(step.hidden if step.positions else 0)
        turned = heap.new(step.hidden)
        heap.free(both)
        x, mask = heap.new(step.hidden if step.hidden_mask else 0), heap.new(step.hidden_mask)
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
        if not self.forward_begun:
            heap.new(step.workspace)
        product, packed = heap.new(step.packed), heap.new(step.packed)  # without and with bias
        heap.free(product)
        if not self.forward_begun:
            heap.new(step.global_buffer)
        self.forward_begun = True
        scores, probabilities = heap.new(step.scores), heap.new(step.scores)
        dropped, mask = heap.new(step.scores if step.scores_mask else 0), heap.new(step.scores_mask)
        context, turned = heap.new(step.context), heap.new(step.context)
        heap.free(context, scores)
        middle, middle_mask = self.added()
        second = heap.new(step.hidden)
        wide, narrow = heap.new(step.wide), heap.new(step.narrow)
        out, out_mask = self.added()
        saved.append(
            [x, norm, packed, probabilities, dropped, mask, turned, middle, middle_mask, second, wide, narrow, out_mask]
        )
        return out

    def added(self) -> tuple[Tensor, Tensor]:
        """A product with bias and dropout, added to the residual: the sum and the mask."""
        heap, step = self.heap, self.step
        product = heap.new(step.hidden)
        total, mask = heap.new(step.hidden), heap.new(step.hidden_mask)
        heap.free(product)
        return total, mask

    def backward(
        self, x: Tensor, norm: Tensor, softmax: Tensor, saved: list[list[Tensor]], received: Tensor | None
    ) -> Tensor:
        """Of the loss, the final norm, the layers and the embedding; the gradient of the received input."""
        heap, step = self.heap, self.step
        logits = heap.new(step.logits)
        heap.free(softmax)
        if not self.backward_begun:
            heap.new(step.workspace)
        self.backward_begun = True
        of_norm, weight = heap.new(step.hidden), heap.new(step.weight_gradients[4])
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

    def layer_backward(self, kept: list[Tensor], entered: Tensor) -> None:
        """One layer backward; the gradient is added to in place. `entered`: its input, unless somebody else holds it."""
        heap, step = self.heap, self.step
        _, norm, packed, probabilities, dropped, mask, turned, middle, middle_mask, second, wide, narrow, out_mask = (
            kept
        )
        of_packed, of_output, of_fc1, of_fc2, _ = step.weight_gradients
        product = heap.new(step.hidden if step.hidden_mask else 0)
        heap.free(out_mask)
        of_narrow, weight = heap.new(step.narrow), heap.new(of_fc2)
        heap.free(product, narrow, weight)
        of_wide = heap.new(step.wide)
        heap.free(of_narrow, wide)
        of_norm, weight = heap.new(step.hidden), heap.new(of_fc1)
        heap.free(of_wide, second, weight)
        more = heap.new(step.hidden)
        heap.free(of_norm, middle, more)
        product = heap.new(step.hidden if step.hidden_mask else 0)
        heap.free(middle_mask)
        of_context, weight = heap.new(step.context), heap.new(of_output)
        heap.free(product, turned, weight)
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
        of_norm, weight = heap.new(step.hidden), heap.new(of_packed)
        heap.free(together, norm, weight)
        more = heap.new(step.hidden)
        heap.free(of_norm, entered, more)

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
