"""How many parameters the whole model has, whatever its parallel degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.ir.layout import Chunk
from primus_lint.ir.record import replace
from primus_lint.ledger import params
from primus_lint.ledger.sizes import Sizes

if TYPE_CHECKING:
    from primus_lint.ir.run import Run


def parameters(run: Run) -> tuple[Any, Any]:
    """(body, embeddings) in parameters: layers and norms; word embedding and, where untied, the output layer.

    MTP depths are left out, as in published counts. The vocabulary is not padded. Embeddings are 0 where its size is
    not known. Held against the published counts of the shipped model table (tests/ledger/test_count.py).
    """
    model = run.model
    parallel = replace(
        run.parallel, tp=1, pp=1, vpp=1, cp=1, ep=1, etp=1, dp=1, edp=1, sequence_parallel=False
    )  # fmt: skip
    whole = replace(
        run,
        parallel=parallel,
        model=replace(model, vocab_divisor=1, vocab_size=model.vocab_size or 0, mtp_num_layers=0),
    )
    chunk = Chunk(tuple(range(model.num_layers)), embedding=True, loss=True)
    segments = params.chunk_segments(Sizes(whole), chunk)
    ends = [segment for segment in segments if segment.name in ("embedding", "output layer")]
    return params.numel([item for item in segments if item not in ends]), params.numel(ends)
