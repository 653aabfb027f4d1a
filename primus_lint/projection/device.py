"""What the projection asks of hardware_db: seconds of one operation with its spread, and the tier that they came from.

A `Device` remembers which tiers every class of operation used, so that a projection can name them.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any

from primus_lint.formula import is_scalar, log2, maximum, minimum, sqrt, where
from primus_lint.hardware import collectives, node_type, rates, shapes
from primus_lint.projection import cost
from primus_lint.projection.lookup import known_or, measured_on
from primus_lint.projection.placement import Group, boundary_crosses_node
from primus_lint.projection.shapes import PASSES, as_multiplied, single_kernel

if TYPE_CHECKING:
    from primus_lint.hardware.rates import Seconds
    from primus_lint.hardware.records import Accelerator, NodeType
    from primus_lint.ir.run import MixtureOfExperts, Run
    from primus_lint.projection.calibrate import Learned
    from primus_lint.projection.compute import AttentionShape, Block
    from primus_lint.projection.cost import Pair
    from primus_lint.projection.placement import Placement
    from primus_lint.projection.shapes import Gemm

# Communication kernels run on compute units: DeepSeek-V3 gives 20 of the 132 SMs of an H800 to them (arXiv 2412.19437,
# section 3.2); NCCL's default of up to 32 channels is of the same size. What overlaps is slowed by that share.
CONTENTION = 20 / 132
# A product and a collective of the libraries, started together inside a node, save 21 % of what the longer of the two alone would
# save against one after the other (GEMMs beside all-gathers and all-to-alls on 8 x MI300X, arXiv 2412.14335): they share compute
# units, caches and memory, and a product whose tiles no longer run in whole waves waits for the collective to end.
CONCURRENT = 0.21
# Accelerators of one kind differ: a spread of 5 % over the 8 of a node (ml-engineering, maximum achievable matmul) is a
# standard deviation of 5 %/2.85. A synchronous step waits for the slowest of all.
PART_DEVIATION = 0.05 / 2.85
# A collective inside a training step starts when the last rank arrives, through the framework's stream handling. SimuMax's
# fits on 8 x B200 in PyTorch (all-gather 23 + 9.2(n-1) us, reduce-scatter 26 + 8.0(n-1), all-reduce 22 + 11(n-1)) lie that
# much above the bare library's latency (9 us for 2 ranks, 18 us for 8).
ARRIVAL_S = (15e-6, 8e-6)  # once, and for every further rank of the domain up to ARRIVAL_RANKS, where the fit ends
ARRIVAL_RANKS = 8
# Tiers of times that the user's own measurements give (`projection.measured`, `projection.upscale`).
MEASURED = frozenset({"measured", "measured layer"})
OWN = frozenset({"interpolated", "fitted to own measurements", "measured layer, carried"})
_FP8_RECIPES = {"blockwise": "fp8_blockwise", "mxfp8": "mxfp8"}
_TURBO = {"mxfp8": "turbo_mxfp8"}  # products of Primus-Turbo with rates of their own


class Device:
    """One kind of accelerator in one kind of node, for one recipe (or grid)."""

    __slots__ = (
        "accelerator",
        "banded",
        "concurrent",
        "contention",
        "domain_gpus",
        "in_situ",
        "learned",
        "measured",
        "node",
        "notes",
        "run",
        "tiers",
    )

    def __init__(
        self,
        accelerator: Accelerator,
        node: NodeType | None,
        run: Run,
        learned: Learned | None = None,
        banded: bool = True,
    ) -> None:
        """`learned`: what training runs say of the classes of operation (calibration); None: those in the user's store, if
        any. Without `banded` no spread is asked for."""
        self.banded = banded
        self.measured = measured_on(accelerator)
        if learned is None and self.measured is not None:
            learned = self.measured.learned(run)
        self.learned = learned if learned is not None and learned.offsets else None
        self.accelerator = accelerator
        self.node = node if node is not None else _node(accelerator, run)
        self.run = run
        self.contention = 1.0 if accelerator.vendor == "cpu" else CONTENTION  # a CPU sends with the cores that compute
        self.concurrent = 0.0 if accelerator.vendor == "cpu" else CONCURRENT
        self.domain_gpus = _domain(self.node, run)
        self.tiers: dict[str, set[str]] = {}
        self.in_situ: dict[str, Any] = {}  # entries of hardware_db that were used, by class
        self.notes: list[str] = []

    @property
    def source(self) -> str:
        """ "measured": every rate is a measured time of this very shape; "mixed": some compute was measured on this device,
        or calibrated; "simulated": rates are fits, transfers or constants."""
        if self.tiers and all(names <= MEASURED for names in self.tiers.values()):
            return "measured"
        compute = set().union(*(self.tiers.get(kind, set()) for kind in (*cost.COMPUTE, cost.HOST)))
        return "mixed" if self.learned or compute & (MEASURED | OWN) else "simulated"

    def _pair(self, kind: str, seconds: Seconds) -> Pair:
        """Seconds with the half-width of their band (the larger side of it in ratio), noting the tier."""
        self.tiers.setdefault(kind, set()).add(seconds.tier)
        if self.learned is None and not self.banded:
            return seconds.time_s, 0.0
        spread = maximum(seconds.high, 1 / seconds.low) - 1
        time_s = seconds.time_s * self.calibrated(kind, spread)
        return time_s, time_s * spread

    def calibrated(self, kind: str, spread: Any) -> Any:
        """What training runs say of the time of an operation, over what is known without them: a class is off by some
        standard deviations of its band, so that what is sure of itself stays as it is."""
        if self.learned is None or kind not in cost.KIND:
            return 1.0
        offsets = self.learned.offsets
        common = offsets.get(cost.ALL_COMPUTE, 0.0) * cost.COMMON if kind in cost.COMPUTE else 0.0
        return exp(common) * (1 + spread) ** (offsets.get(cost.KIND[kind], 0.0) / cost.BAND)

    def _in_situ(self, seconds: Seconds, bits: str) -> Seconds:
        """A kernel timed alone, as long as it takes inside a step (`in_situ_ratio` in hardware_db/rates.yaml). The user's own
        measurements, rates under sustained load, and devices of which no published run tells, stay as they are."""
        entry = self.accelerator.rates.get("in_situ", {}).get(bits)
        if entry is None or seconds.sustained or seconds.tier in MEASURED or seconds.tier in OWN:
            return seconds
        self.in_situ[entry["class"]] = entry
        return seconds._replace(time_s=seconds.time_s * entry["ratio"])

    def in_situ_notes(self) -> list[str]:
        version = self.accelerator.rates.get("in_situ", {}).get("version")
        return [
            f"in situ: {name} products and attention take {entry['ratio']:.2f} times ({entry['low']:.2f} to "
            f"{entry['high']:.2f}) as long as alone (calibrated on published training runs, version {version})"
            for name, entry in sorted(self.in_situ.items())
        ]

    def peak_flops(self, run: Run) -> float:
        """Dense peak of the number format that the layers compute in, FLOP/s."""
        precision, peaks = run.precision, self.accelerator.peak_flops
        dtype = "fp4" if precision.fp4 is not None else "fp8" if precision.fp8 is not None else precision.params_dtype
        return peaks.get(dtype) or peaks["bf16"]

    def dtype(self, gemm: Gemm, name: str) -> str:
        """The number format of hardware_db that a product runs in: FP8 by recipe, and by library where that tells."""
        if name == "fp8":
            kernels, recipe = self.run.kernels, _FP8_RECIPES.get(self.run.precision.fp8_recipe, "fp8")
            turbo = kernels.turbo_grouped_gemm if gemm.is_grouped else kernels.turbo_gemm
            own = _TURBO.get(recipe, recipe)
            return own if turbo and own in self.accelerator.rates["gemm"] else recipe
        return name if name in rates.ELEMENT_BYTES else "fp32"

    def quantizes(self, gemm: Gemm, dtype: str) -> bool:
        """Whether quantizing is a cost of its own, and not part of the measured share of the product."""
        name, all_rates = self.dtype(gemm, dtype), self.accelerator.rates
        rate = all_rates["grouped_gemm"].get(name, {}).get("fwd") if gemm.is_grouped else all_rates["gemm"].get(name)
        return rate is not None and not rate.get("whole", False)

    def gemm(self, gemm: Gemm, dtype: str) -> tuple[Pair, Pair, Pair]:
        """Forward, dgrad and wgrad of one product."""
        acc, name = self.accelerator, self.dtype(gemm, dtype)
        if gemm.is_grouped:
            kind = cost.GROUPED_GEMM
            times = [rates.grouped_gemm_time_s(acc, name, gemm.groups, gemm.m, gemm.n, gemm.k, op) for op in PASSES]
        else:
            kind = cost.GEMM
            times = list(rates.linear_times_s(acc, name, gemm.m, gemm.k, gemm.n))
        own = times if self.measured is None else self.measured.products(gemm, name, single_kernel(self.run), times)
        if not gemm.is_grouped:  # the tables of hardware_db come behind the user's measurements
            own = [
                shapes.measured(acc, name, op, *as_multiplied(op, gemm.m, gemm.n, gemm.k), modelled)
                if seconds is modelled
                else seconds
                for op, seconds, modelled in zip(PASSES, own, times, strict=True)
            ]
        bits = "8" if self.accelerator.rates["gemm"].get(name, {}).get("peak", name) in ("fp8", "fp4") else "16"
        inside = [self._in_situ(seconds, bits) for seconds in own]
        if gemm.is_grouped and own[0] is times[0]:
            # no faster than one product of all rows; and without grouped products as long as all experts one after the other
            experts = self.run.model.moe
            grouped = experts is None or experts.grouped_gemm
            rows, calls = (gemm.groups * gemm.m, 1) if grouped else (gemm.m, gemm.groups)
            dense = rates.linear_times_s(acc, name, rows, gemm.k, gemm.n)
            inside = [
                seconds._replace(time_s=maximum(seconds.time_s, calls * self._in_situ(one, bits).time_s))
                for seconds, one in zip(inside, dense, strict=True)
            ]
        forward, dgrad, wgrad = (self._pair(kind, seconds) for seconds in inside)
        return forward, dgrad, wgrad

    def attention(self, shape: AttentionShape, run: Run) -> tuple[Pair, Pair]:
        """Forward and backward of the fused attention core (causal); `shape.share` of the problem is this rank's."""
        window = run.model.window_size
        share: Any = 0.5
        if window is not None and window[0] >= 0:
            span = minimum(window[0] + 1, shape.seq_length)
            inside = span / shape.seq_length * (1 - span / (2 * shape.seq_length))
            whole = unwindowed(run)
            share = inside * (1 - whole) + 0.5 * whole
        pairs = []
        for direction in ("forward", "backward"):
            seconds = rates.attention_time_s(
                self.accelerator, run.precision.params_dtype, shape.batch, shape.heads, shape.kv_heads,
                shape.seq_length, shape.seq_length, shape.key_dim, shape.value_dim,
                direction=direction, score_share=share,
            )  # fmt: skip
            if self.measured is not None and window is None:
                seconds = self.measured.attention(shape, direction, seconds)
            pair = self._pair(cost.ATTENTION, self._in_situ(seconds, "16"))
            slower = shape.share * self.older_kernel(run, direction)
            pairs.append((pair[0] * slower, pair[1] * slower))
        return pairs[0], pairs[1]

    def older_kernel(self, run: Run, direction: str) -> float:
        """Attention time over that of the measured kernels, where the stack names an older library, or the environment
        denies TransformerEngine its assembly backward on AMD."""
        older: dict[str, float] = self.accelerator.rates.get("attention_kernels", {})
        if (
            direction == "backward"
            and not run.kernels.turbo_attention
            and run.args.get("env_NVTE_CK_USES_BWD_V3") == "0"
        ):
            return older.get("ck", 1.0)
        return 1.0 if run.kernels.flash_attn is None else older.get(str(run.kernels.flash_attn), 1.0)

    def memory(self, moved_bytes: Any, kind: str = "elementwise") -> Pair:
        """Memory-bound kernels that move `moved_bytes` in all; `kind` is one of `rates.memory_time_s`."""
        seconds = rates.memory_time_s(self.accelerator, moved_bytes, kind)
        if self.measured is not None:
            seconds = self.measured.memory(kind, seconds)
        return self._pair(cost.MEMORY, seconds)

    def host(self, launches: Any) -> Pair:
        """Seconds that the host needs for that many operations (Python, autograd, dispatcher, launch)."""
        each_s, low_s, high_s = self.node.host_operation_s
        spread = max(high_s / each_s, each_s / low_s) - 1 if each_s else 0.0
        launches = launches * self.calibrated(cost.HOST, spread)
        return launches * each_s, launches * max(high_s - each_s, each_s - low_s)

    def host_bound(self, block: Block) -> None:
        """Add the time by which the host is slower than the device: launches not hidden behind kernels.

        A forward and a backward each run ahead of the device on their own; with CUDA_LAUNCH_BLOCKING=1 (HIP_LAUNCH_BLOCKING)
        the host waits for every kernel and nothing hides.
        """
        blocking = any(self.run.args.get(f"env_{name}_LAUNCH_BLOCKING") == "1" for name in ("CUDA", "HIP"))
        backward = block.backward.seconds + block.weight.seconds
        for launches, seconds, into in (
            (block.forward_launches, block.forward.seconds, block.forward),
            (block.backward_launches, backward, block.backward),
        ):
            needed = self.host(launches)
            wait = needed[0] if blocking else maximum(needed[0] - seconds, 0.0)
            into.add(cost.HOST, (wait, where(wait > 0, needed[1], 0.0)))

    @property
    def straggling(self) -> Any:
        """How much slower than the mean the slowest of all accelerators is expected to be, as a share.

        Expected maximum of n standard normal numbers (0.56, 1.42, 2.34, 3.24 for n = 2, 8, 64, 1024: Harter 1961), here
        as 1.432*(sqrt(log2 n + 1.15) - sqrt(1.15)), which is within 4 % of it up to n = 1 M.
        """
        count: Any = self.run.target.world_size
        return 1.432 * (sqrt(log2(count * 1.0) + 1.15) - 1.0724) * PART_DEVIATION

    def newton_schulz(self, run: Run, elements: Any, steps: int) -> Pair:
        """Muon's orthogonalisation of weights of `elements` values: three products a step, 2*n*k*n FLOPs each, n the
        short side of the matrix (taken as the hidden size)."""
        work = rates.gemm_time_s(
            self.accelerator, "bf16", run.model.hidden_size, run.model.hidden_size, elements // run.model.hidden_size
        )
        pair = self._pair(cost.OPTIMIZER, work)
        return pair[0] * 3 * steps, pair[1] * 3 * steps

    def measured_optimizer(self, run: Run, elements: Any) -> Pair | None:
        """Seconds of an update of `elements` weights, where an optimizer of the recipe's kind was measured."""
        if self.measured is None:
            return None
        seconds = self.measured.optimizer(run.optimizer.name, run.precision.params_dtype, elements)
        return None if seconds is None else self._pair(cost.OPTIMIZER, seconds)

    def collective(
        self, operation: str, volume_bytes: Any, group: Group, kind: str = cost.TP, times: Any = 1, met: bool = False
    ) -> Pair:
        """Seconds of a collective over `group`. `volume_bytes` is the full tensor: the output of a gather, the input of
        a scatter or reduction; of an all-to-all, what one rank sends in all (its own part included).

        `times` of them may follow one another on a stream of their own: ranks that have met in one begin the next together.
        So they do when they have `met` in another one just before.
        """
        if (is_scalar(group.size) and group.size == 1) or (is_scalar(volume_bytes) and volume_bytes == 0):
            return cost.ZERO  # no such collective
        found = self._measured_collective(operation, volume_bytes, group, kind)
        if found is not None:
            found = found[0] * times, found[1] * times
            if is_scalar(found[0]):
                return found  # timed in the framework: nothing comes on top
        seconds = collectives.time_s(self.accelerator, self.node, operation, volume_bytes, group.size, group.per_node)
        one = self._pair(kind, seconds)
        pair = one[0] * times, one[1] * times
        arrival = (ARRIVAL_S[0] + ARRIVAL_S[1] * (minimum(group.per_node, ARRIVAL_RANKS) - 1)) * ((group.size > 1) * 1)
        arrival = 0.0 if met else arrival
        modelled = pair[0] + arrival, pair[1] + arrival * 0.5
        return modelled if found is None else known_or(found, modelled)

    def _measured_collective(self, operation: str, volume_bytes: Any, group: Group, kind: str) -> Pair | None:
        """A collective (or "p2p") as it was measured; NaN for those of an array of groups that were not."""
        if self.measured is None:
            return None
        seconds = self.measured.collective(operation, volume_bytes, group)
        return None if seconds is None else self._pair(kind, seconds)

    def send(self, volume_bytes: Any, group: Group) -> Pair:
        """One step of a ring over `group`; it leaves the domain when the group does."""
        pair = self._send(volume_bytes, (group.nodes > 1) * 1, cost.CP)
        several = (group.size > 1) * 1
        return pair[0] * several, pair[1] * several

    def send_between_stages(self, volume_bytes: Any, place: Placement) -> Pair:
        """One activation from a pipeline stage to the next, at the worst boundary."""
        stages = self.run.parallel.pp
        crosses: Any = 0
        for stage in range(stages - 1):
            crosses = maximum(crosses, boundary_crosses_node(place, stage))
        return self._send(volume_bytes, crosses, cost.PP)

    def _send(self, volume_bytes: Any, crosses: Any, kind: str) -> Pair:
        found = self._measured_collective("p2p", volume_bytes, Group(2, 1 + crosses, 2 - crosses, 1), kind)
        if found is not None and is_scalar(found[0]):
            return found
        pair = self._pair(kind, collectives.send_time_s(self.accelerator, self.node, volume_bytes, crosses))
        return pair if found is None else known_or(found, pair)

    def deep_ep(self, tokens: Any, experts: MixtureOfExperts, row_bytes: Any, group: Group) -> tuple[Pair, Pair]:
        """Dispatch and combine of the flex dispatcher (DeepEP, HybridEP): a token goes once to every rank that holds
        some of its experts, and over the network once to every node (arXiv 2412.19437, section 3.2).

        Expected distinct ranks of k experts over n ranks at balanced routing: n*(1 - (1 - 1/n)^k); nodes likewise.
        """
        copies = distinct(group.size, experts.router_topk)
        nodes = distinct(group.nodes, experts.router_topk)
        inside = collectives.in_domain_s(self.node, "all_to_all", tokens * copies * row_bytes, group.per_node)
        remote = tokens * nodes * row_bytes * (group.nodes - 1) / group.nodes
        outside = remote / self.node.network_bytes_per_s_per_gpu / self.node.inter["all_to_all"][0]
        seconds = maximum(inside, outside)
        self.tiers.setdefault(cost.EP, set()).add("constant")
        seconds = seconds * self.calibrated(cost.EP, 0.4)
        pair = seconds, seconds * 0.4
        return pair, pair


def unwindowed(run: Run) -> float:
    """Share of the layers that attend to the whole sequence although the model has a window: every n-th one, or the zeros
    of a list (`window_attn_skip_freq`). Layers are priced at the mean."""
    skipped = run.args.get("window_attn_skip_freq")
    if isinstance(skipped, int) and not isinstance(skipped, bool) and skipped > 0:
        return 1 / skipped
    if isinstance(skipped, (list, tuple)) and skipped:
        return sum(1 for item in skipped if not item) / len(skipped)
    return 0.0


def distinct(bins: Any, draws: int) -> Any:
    """Expected number of different bins that `draws` balls in `bins` bins hit."""
    return bins * (1 - (1 - 1 / bins) ** draws)


def _node(accelerator: Accelerator, run: Run) -> NodeType:
    found = node_type(accelerator.name, run.target.gpus_per_node)
    assert found is not None
    return found


def _domain(node: NodeType, run: Run) -> Any:
    """Consecutive ranks that the scale-up fabric joins: the node's GPUs that the job uses, or a rack's.

    Of a rack of 72 a job takes the largest power of two (64), so that groups line up with racks.
    """
    here = run.target.gpus_per_node
    if node.scale_up_gpus > node.gpus_per_node:
        return 1 << (node.scale_up_gpus.bit_length() - 1)
    return here
