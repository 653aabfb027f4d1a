"""Zero-bubble schedules of one direction: the weight gradient (W) is split off and fills the bubbles.

Source of the idea: arXiv 2401.10241, "Zero Bubble Pipeline Parallelism".
"""

from __future__ import annotations

from .closed_form import warmup
from .events import Event, forward_table, one_forward_one_backward

_UNIT_COSTS = (1000.0, 1000.0, 1000.0, 1.0)  # Primus's planning defaults: F, B, W, P2P


def handcrafted(kind: str, pp: int, rank: int, microbatches: int, vpp: int, group: int | None) -> list[Event]:
    """ZB-H1 and ZB-H2 for one rank.

    H1 is 1F1B with every W `rank` backwards late, so that every rank holds pp chunks (forwarded, W not yet run): the
    rule of Primus's `zero-bubble` and of torch `ScheduleInterleavedZeroBubble`. H2 (section 2.2, figure 3) runs
    2*(pp-rank)-1 forwards before the first backward and has W late by 2*rank: 2*pp-1 chunks on every rank.
    """
    table = forward_table(microbatches, vpp, microbatches if vpp == 1 else (pp if group is None else group))
    first = warmup(kind, pp, rank, microbatches, vpp, group)
    return one_forward_one_backward(rank, table, vpp, first, rank if kind == "zb-h1" else 2 * rank)


def heuristic(
    pp: int, microbatches: int, costs: tuple[float, float, float, float] | None, max_in_flight: float | None
) -> list[list[Event]]:
    """The constructive heuristic of the authors' code (sail-sg zero-bubble, `manual_order`), which Primus's
    `zero-bubble-heuristic` runs: eight plans from three yes/no choices, the first with the shortest longest stage.

    `costs` = (F, B, W, P2P) > 0 (P2P may be 0); `max_in_flight` chunks per rank (None: no limit).
    Raises ValueError when the limit cannot be kept.
    """
    cost_f, cost_b, cost_w, cost_p2p = costs or _UNIT_COSTS
    if min(cost_f, cost_b, cost_w) <= 0 or cost_p2p < 0:
        raise ValueError(f"planning costs must be positive, got {costs}")
    best: _Plan | None = None
    for bubble_before_first_b in (True, False):
        for prefer_b in (True, False):
            for greedy_w in (True, False):
                plan = _Plan(pp, microbatches, (cost_f, cost_b, cost_w, cost_p2p), max_in_flight)
                plan.first_microbatch(bubble_before_first_b)
                for microbatch in range(1, microbatches):
                    plan.forwards(prefer_b, greedy_w)
                    plan.backwards(microbatch, greedy_w)
                for stage in range(pp):
                    while len(plan.done["W"][stage]) < microbatches:
                        plan.put(stage, "W")
                if best is None or plan.longest_stage() < best.longest_stage():
                    best = plan
    assert best is not None
    return best.events


class _Plan:
    """A plan under construction: every stage's events so far, their end times, and its idle time."""

    def __init__(
        self, pp: int, microbatches: int, costs: tuple[float, float, float, float], max_in_flight: float | None
    ) -> None:
        self.pp = pp
        self.microbatches = microbatches
        self.cost = {"F": costs[0], "B": costs[1], "W": costs[2]}
        self.p2p = costs[3]
        self.limit = float(3 * microbatches) if max_in_flight is None else max_in_flight
        self.done: dict[str, list[list[float]]] = {kind: [[] for _ in range(pp)] for kind in "FBW"}  # end times
        self.now = [0.0] * pp
        self.idle = [0.0] * pp
        self.events: list[list[Event]] = [[] for _ in range(pp)]

    def in_flight(self, stage: int) -> int:
        return len(self.done["F"][stage]) - len(self.done["W"][stage])

    def input_time(self, stage: int, kind: str) -> float | None:
        """When the input of the stage's next F or B arrives; None when it needs none from another rank."""
        source = stage - 1 if kind == "F" else stage + 1
        if kind == "W" or not 0 <= source < self.pp:
            return None
        return self.done[kind][source][len(self.done[kind][stage])] + self.p2p

    def put(self, stage: int, kind: str) -> None:
        """Append the stage's next event of that kind, as early as its input and the stage allow."""
        end = self.now[stage] + self.cost[kind]
        arrival = self.input_time(stage, kind)
        if arrival is not None and arrival + self.cost[kind] > end:
            if self.done["F"][stage]:
                self.idle[stage] += arrival + self.cost[kind] - end
            end = arrival + self.cost[kind]
        self.events[stage].append(Event(kind, stage, len(self.done[kind][stage]), 0))
        self.done[kind][stage].append(end)
        self.now[stage] = end

    def weights_pending(self, stage: int) -> bool:
        return len(self.done["W"][stage]) < len(self.done["B"][stage])

    def make_room(self, stage: int) -> None:
        """Run weight gradients until one more forward fits under the limit."""
        while self.in_flight(stage) + 1 > self.limit:
            if not self.weights_pending(stage):
                raise ValueError(f"no zero-bubble plan keeps {self.limit:g} chunks in flight with pp={self.pp}")
            self.put(stage, "W")

    def fill_gap(self, stage: int, kind: str, greedy_w: bool) -> None:
        """Run weight gradients while waiting for the input of the next `kind`: all that fit wholly, then one that
        delays it if the wait would make this stage the idlest one, or if told to be greedy."""
        arrival = self.input_time(stage, kind)
        if arrival is None:
            return
        while self.weights_pending(stage) and self.now[stage] + self.cost["W"] <= arrival:
            self.put(stage, "W")
        wait = arrival - self.now[stage]
        if wait > 0 and self.weights_pending(stage) and (greedy_w or wait > max(self.idle) - self.idle[stage]):
            self.put(stage, "W")

    def first_microbatch(self, bubble_before_first_b: bool) -> None:
        """All forwards before the first backward of every stage, and that backward."""
        for stage in range(self.pp):
            self.put(stage, "F")
        extra = [0] * self.pp
        last = self.pp - 1
        b_end = self.now[last] + self.cost["B"]
        for stage in range(last - 1, -1, -1):
            cost = self.now[stage]
            alive = self.in_flight(stage)
            while alive + extra[stage] < self.microbatches and alive + extra[stage] + 1 <= self.limit:
                enough = cost + self.cost["F"] > b_end + self.p2p if bubble_before_first_b else cost >= b_end + self.p2p
                if enough:
                    break
                cost += self.cost["F"]
                extra[stage] += 1
            b_end = max(cost, b_end + self.p2p) + self.cost["B"]
        for stage in range(1, self.pp):
            while extra[stage] > 0 and extra[stage] >= extra[stage - 1] and 1 + extra[stage] < self.microbatches:
                extra[stage] -= 1
        for stage in range(self.pp):
            for _ in range(extra[stage]):
                self.put(stage, "F")
        for stage in range(last, -1, -1):
            self.put(stage, "B")

    def forwards(self, prefer_b: bool, greedy_w: bool) -> None:
        """At most one more forward on every stage; none on a stage when none follows on the next."""
        wanted = [
            len(self.done["F"][stage]) < self.microbatches and not (prefer_b and self._next_stage_is_fed(stage))
            for stage in range(self.pp)
        ]
        for stage in range(self.pp - 2, -1, -1):
            wanted[stage] = wanted[stage] and wanted[stage + 1]
        for stage in range(self.pp):
            if wanted[stage]:
                self.make_room(stage)
                self.fill_gap(stage, "F", greedy_w)
                self.put(stage, "F")

    def _next_stage_is_fed(self, stage: int) -> bool:
        """True when the next stage has two forwards in store and another would only delay this stage's backward."""
        if stage + 1 >= self.pp or len(self.done["F"][stage]) < len(self.done["F"][stage + 1]) + 2:
            return False
        needed_at = self.now[stage + 1] + self.cost["F"] + self.cost["B"] + self.p2p
        if self.now[stage] >= needed_at:
            return True
        over = self.in_flight(stage) + 1 - self.limit
        pending = len(self.done["B"][stage]) - len(self.done["W"][stage])
        weights = 0
        while over - weights > 0 and weights < pending:
            weights += 1
        if self.now[stage] + self.cost["F"] + weights * self.cost["W"] <= needed_at:
            return False
        return needed_at - self.now[stage] <= max(self.idle) - self.idle[stage]

    def backwards(self, microbatch: int, greedy_w: bool) -> None:
        """The backward of one micro-batch on every stage, last stage first."""
        for stage in range(self.pp - 1, -1, -1):
            while self.in_flight(stage) > self.limit:
                if not self.weights_pending(stage):
                    raise ValueError(f"no zero-bubble plan keeps {self.limit:g} chunks in flight with pp={self.pp}")
                self.put(stage, "W")
            self.fill_gap(stage, "B", greedy_w)
            if stage == 0 and len(self.done["F"][0]) == self.microbatches:
                while self.weights_pending(0):
                    self.put(0, "W")
            self.put(stage, "B")

    def longest_stage(self) -> float:
        """Time from the first start to the last end of the stage that takes longest."""
        return max(self.done["W"][s][-1] - self.done["F"][s][0] + self.cost["F"] for s in range(self.pp))
