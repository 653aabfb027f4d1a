"""What the projection asks of hardware_db: seconds of one operation with its spread, and the tier that they came from.

A `Device` remembers which tiers every class of operation used, so that a projection can name them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import maximum, minimum
from primus_lint.projection import cost

if TYPE_CHECKING:
    from primus_lint.ir.run import MixtureOfExperts, Run
    from primus_lint.projection.compute import AttentionShape, Block
    from primus_lint.projection.cost import Pair
    from primus_lint.projection.placement import Group, Placement
    from primus_lint.projection.shapes import Gemm

# Communication kernels run on compute units: DeepSeek-V3 gives 20 of the 132 SMs of an H800 to them (arXiv 2412.19437,
# section 3.2); NCCL's default of up to 32 channels is of the same size. What overlaps is slowed by that share.
CONTENTION = 20 / 132
# Host time to launch one operation from eager PyTorch: dispatch, autograd and driver, 5 to 25 us by public lessons on
# the dispatcher; 10 us is the geometric middle.
HOST_LAUNCH_S = 10e-6
EFFICIENCY = {"gemm": 0.6, "grouped": 0.45, "attention": 0.4, "memory": 0.8}  # shares of peak when nothing is measured
SPREAD = 0.25


class Device:
    """One kind of accelerator in one kind of node, for one recipe (or grid)."""

    __slots__ = ("accelerator", "contention", "domain_gpus", "node", "notes", "run", "tiers")

    def __init__(self, accelerator: Any, node: Any, run: Run) -> None:
        self.accelerator = accelerator
        self.node = node
        self.run = run
        self.contention = CONTENTION
        self.domain_gpus = run.target.gpus_per_node
        self.tiers: dict[str, set[str]] = {}
        self.notes: list[str] = []

    @property
    def source(self) -> str:
        return "simulated"

    def _used(self, kind: str, tier: str) -> None:
        self.tiers.setdefault(kind, set()).add(tier)

    def _peak(self, dtype: str) -> float:
        peaks = self.accelerator.peak_flops
        return float(peaks.get(dtype) or peaks["bf16"])

    def peak_flops(self, run: Run) -> float:
        """Dense peak of the number format that the layers compute in, FLOP/s."""
        precision = run.precision
        if precision.fp4 is not None:
            return self._peak("fp4")
        return self._peak("fp8" if precision.fp8 is not None else precision.params_dtype)

    def gemm(self, gemm: Gemm, dtype: str) -> tuple[Pair, Pair, Pair]:
        """Forward, dgrad and wgrad of one product."""
        kind = "grouped" if gemm.is_grouped else "gemm"
        self._used(cost.GROUPED_GEMM if gemm.is_grouped else cost.GEMM, "peak")
        seconds = gemm.flops / (self._peak(dtype) * EFFICIENCY[kind])
        pair = seconds, seconds * SPREAD
        return pair, pair, pair

    def attention(self, shape: AttentionShape, run: Run) -> tuple[Pair, Pair]:
        """Forward and backward of the attention core (causal)."""
        work = shape.batch * shape.heads * shape.seq_length * shape.seq_length * (shape.key_dim + shape.value_dim)
        self._used(cost.ATTENTION, "peak")
        seconds = work * shape.share / (self._peak(run.precision.params_dtype) * EFFICIENCY["attention"])
        return (seconds, seconds * SPREAD), (2.5 * seconds, 2.5 * seconds * SPREAD)

    def memory(self, moved_bytes: Any, kernels: Any = 1) -> Pair:
        """Memory-bound kernels that move `moved_bytes` in all."""
        self._used(cost.MEMORY, "peak")
        seconds = moved_bytes / (self.accelerator.memory_bytes_per_s * EFFICIENCY["memory"])
        return seconds, seconds * SPREAD

    def host(self, launches: Any) -> Pair:
        """Seconds that the host needs to launch that many operations."""
        return launches * HOST_LAUNCH_S, launches * HOST_LAUNCH_S * 0.75

    def host_bound(self, run: Run, block: Block, moe: bool) -> None:
        """Add the time by which the host is slower than the device, for one layer."""

    def newton_schulz(self, run: Run, elements: Any, steps: int) -> Pair:
        """Muon's orthogonalisation: three products a step on every matrix, 2*n*k*n each with n the short side (about
        the hidden size)."""
        work = steps * 3 * 2 * elements * run.model.hidden_size
        seconds = work / (self._peak("bf16") * EFFICIENCY["gemm"])
        return seconds, seconds * SPREAD

    def collective(self, operation: str, volume_bytes: Any, group: Group) -> Pair:
        """Seconds of a collective over `group`. `volume_bytes` is the full tensor: the output of a gather, the input of
        a scatter or reduction, what one rank sends in all of an all-to-all."""
        size = group.size
        share = (size - 1) / size
        factor = 2 if operation == "all_reduce" else 1
        inside, outside = 300e9, 40e9
        bandwidth = inside * (group.nodes <= 1) + outside * (group.nodes > 1)
        seconds = factor * share * volume_bytes / bandwidth + (size > 1) * 20e-6
        return seconds, seconds * SPREAD

    def send(self, volume_bytes: Any, group: Group) -> Pair:
        """One step of a ring over `group`."""
        bandwidth = 300e9 * (group.nodes <= 1) + 40e9 * (group.nodes > 1)
        seconds = (group.size > 1) * (volume_bytes / bandwidth + 10e-6)
        return seconds, seconds * SPREAD

    def send_between_stages(self, volume_bytes: Any, place: Placement) -> Pair:
        """One activation from a pipeline stage to the next, at the worst boundary."""
        crosses = minimum(place.pp_stride * 2 // maximum(place.gpus_per_node, 1), 1)
        bandwidth = 300e9 * (1 - crosses) + 40e9 * crosses
        seconds = volume_bytes / bandwidth + 10e-6
        return seconds, seconds * SPREAD

    def deep_ep(self, tokens: Any, experts: MixtureOfExperts, row_bytes: Any, group: Group) -> tuple[Pair, Pair]:
        """Dispatch and combine of the flex dispatcher."""
        pair = self.collective("all_to_all", tokens * experts.router_topk * row_bytes, group)
        return pair, pair
