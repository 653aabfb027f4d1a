"""What the caching allocator's blocks hold beyond the tensors that a real forward keeps.

`python block_replay.py < QUESTION` (a question of `ask` about megatron_activations): runs the forward (learned positions), notes every
storage that comes and goes, and replays them in `blocks.Pool`. Prints one JSON object: bytes `kept` and `beyond` them, of blocks
larger than their tensors by 512 B or more.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "shared" / "oracle"))
question = json.load(sys.stdin)
import common  # type: ignore[import-not-found]  # noqa: E402
import te_stub  # type: ignore[import-not-found]  # noqa: E402

te_stub.install()
common.MODELS[question["name"]] = question["model"]
import live  # type: ignore[import-not-found]  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402

from primus_lint.ledger.blocks import Pool  # noqa: E402

forwards: list[Noted] = []
build = GPTModel.__init__


def with_learned_positions(self: Any, *args: Any, **kwargs: Any) -> None:
    build(self, *args, **{**kwargs, "position_embedding_type": "learned_absolute", "max_sequence_length": 1024})


GPTModel.__init__ = with_learned_positions


class Noted(live.LiveBytes):  # type: ignore[misc]
    """Also notes what comes (its number and bytes) and goes (its negative number)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.events: list[tuple[int, int]] = []
        self.watched: list[Any] = []
        forwards.append(self)

    def _track(self, tensor: Any, func: Any) -> None:
        storage = tensor.untyped_storage()
        before = self.live.get(storage._cdata)
        known = storage._cdata in self.ignore or (before is not None and before[1]() is storage)
        super()._track(tensor, func)
        if not known and storage._cdata in self.live:
            number = len(self.watched) + 1
            self.events.append((number, storage.nbytes()))
            self.watched.append(weakref.ref(storage, lambda _: self.events.append((-number, 0))))


def replay(events: list[tuple[int, int]]) -> dict[str, int]:
    """What is alive in the end, and what its blocks hold beyond it."""
    pool, held = Pool(), {}
    for number, size in events:
        if number > 0:
            held[number] = pool.take(size), size
        elif -number in held:
            pool.give(*held.pop(-number))
    beyond = [block.size - size for block, size in held.values() if block is not None]
    return {"kept": sum(size for _, size in held.values()), "beyond": sum(more for more in beyond if more >= 512)}


import megatron_activations  # type: ignore[import-not-found]  # noqa: E402

megatron_activations.LiveBytes = Noted
sys.argv = ["megatron_activations", *question["argv"].split()]


def leave(code: int) -> None:
    print(json.dumps(replay(forwards[-1].events)))
    sys.stdout.flush()
    leave_now(code)


leave_now, os._exit = os._exit, leave  # type: ignore[assignment]
megatron_activations.main()
leave(0)
