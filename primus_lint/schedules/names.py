"""What the frameworks call these schedules."""

from __future__ import annotations

# Primus `pp_algorithm` under `patch_primus_pipeline`. `1f1b-interleaved` groups micro-batches by pp.
PRIMUS_ALGORITHMS = {
    "1f1b": "1f1b",
    "1f1b-interleaved": "interleaved",
    "zero-bubble": "zb-h1",
    "zero-bubble-heuristic": "zb-heuristic",
    "zbv-formatted": "zbv",
    "v-half": "v-half",
    "v-min": "v-min",
}

# torch.distributed.pipelining, and so torchtitan's `pipeline_parallel_schedule`.
TORCH_SCHEDULES = {
    "1F1B": "1f1b",
    "Interleaved1F1B": "interleaved",
    "GPipe": "gpipe",
    "LoopedBFS": "looped-bfs",
    "InterleavedZeroBubble": "zb-h1",
    "ZBVZeroBubble": "zbv",
    "DualPipeV": "dualpipev",
}


def primus_microbatches(algorithm: str, pp: int, microbatches: int) -> int:
    """Micro-batches that Primus really runs: `zbv-formatted` never fewer than 2*pp-1 (its table is not cut)."""
    return max(microbatches, 2 * pp - 1) if algorithm == "zbv-formatted" else microbatches


def torch_group(pp: int, microbatches: int) -> int:
    """Micro-batch group size of torch's interleaved schedules: as many rounds as hold at least pp each.

    Raises ValueError when the rounds are not of equal size, as torch does.
    """
    rounds = max(1, microbatches // pp)
    if microbatches % rounds:
        raise ValueError(f"{microbatches} micro-batches are no multiple of {rounds} rounds")
    return microbatches // rounds
