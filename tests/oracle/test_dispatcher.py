"""What the token dispatchers hold between steps, and what of it autograd keeps as well: equal to the real layers."""

from __future__ import annotations

from typing import Any

import pytest

from primus_lint.hardware import accelerator
from primus_lint.ledger import persistent
from primus_lint.ledger.sizes import Sizes
from primus_lint.ledger.stage_activations import Activations
from primus_lint.projection import cost, project
from primus_lint.projection.device import Device
from tests.ledger.support import run_of
from tests.oracle.activation_cases import full, latent_cases, moe_cases, selective
from tests.oracle.ask import ask, why_not
from tests.oracle.compare import asked_version
from tests.oracle.recipes import question

pytestmark = pytest.mark.oracle
REASON = why_not()
NAMES = (
    "mixtral base", "mixtral ep1", "mixtral etp2", "mixtral fp32 router", "mixtral allgather", "mixtral allgather etp2",
    "mixtral fused permute", "mixtral fused router", "mixtral sigmoid bias", "mixtral full", "mixtral selective moe",
    "mixtral selective layernorm moe_act", "deepseek base", "deepseek full block", "deepseek no mtp",
)  # fmt: skip
COUNTERS = 4096  # bytes; the script leaves out what is smaller, counters by expert


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_dispatchers_hold_what_is_counted_and_share_it_with_autograd() -> None:
    """`block` recomputation leaves the last layers whole: there, and where nothing is recomputed, a part of what the
    dispatchers hold is the very storage that autograd keeps."""
    cases = {name: case for name, case in {**moe_cases(), **latent_cases()}.items() if name in NAMES}
    args, world, extra = cases["deepseek base"]
    for name, change in {"block 1": full("block", 1), "block 5": full("block", 5), "moe": selective("moe")}.items():
        cases[f"deepseek {name}"] = (
            {**args, **change, "num_layers": 6, "moe_layer_freq": [0] * 3 + [1] * 3},
            world,
            extra,
        )
    questions = [question("dispatcher_tensors", args, world, 0, extra) for args, world, extra in cases.values()]
    wrong = []
    for (name, (args, world, _)), answer in zip(cases.items(), ask(questions), strict=True):
        if "error" in answer:
            wrong.append(f"{name}: {answer['error']}")
            continue
        layers = answer["answer"]["layers"]
        real = sum(sum(layer["held"].values()) for layer in layers), sum(layer["saved"] for layer in layers)
        run = run_of(args, world, version=asked_version())
        sizes = Sizes(run)
        assert run.parallel.stages is not None
        chunk = run.parallel.stages[0][0]
        held = persistent.retained_dispatch_bytes(sizes, persistent.moe_layers(sizes, (chunk,)))
        mine = held, Activations(sizes).also_held_bytes(chunk)
        if mine[1] != real[1] or not 0 <= mine[0] - real[0] <= COUNTERS * len(layers):
            wrong.append(f"{name}: ours {mine}, real {real}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_dispatchers_issue_the_collectives_that_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds and bytes of a forward pass, small ones too: the probabilities travel by themselves."""
    names = ("mixtral base", "mixtral fp32 router", "mixtral allgather")
    cases = {name: moe_cases()[name] for name in names}
    questions = [question("dispatcher_traffic", args, world, 0, extra) for args, world, extra in cases.values()]
    priced: set[tuple[str, int]] = set()
    collective = Device.collective

    def noting(
        self: Device, operation: str, volume: Any, group: Any, kind: str = cost.TP, times: Any = 1, **named: Any
    ) -> Any:
        if kind == cost.EP and group.size > 1:
            priced.add((operation, int(volume)))
        return collective(self, operation, volume, group, kind, times, **named)

    monkeypatch.setattr(Device, "collective", noting)
    for (name, (args, world, _)), answer in zip(cases.items(), ask(questions), strict=True):
        priced.clear()
        assert project(run_of(args, world, version=asked_version(), gpu="h100"), accelerator("h100")) is not None
        assert priced == {tuple(call) for call in answer["answer"]["calls"]}, name
