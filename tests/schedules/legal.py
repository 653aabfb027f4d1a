"""Which schedules exist: the grids that the tests of this folder walk."""

from __future__ import annotations

from collections.abc import Iterator

from primus_lint.schedules.events import FOLDED_KINDS, KINDS

Case = tuple[str, int, int, int, int | None]  # kind, pp, microbatches, vpp, group


def groups(pp: int, microbatches: int, every: bool) -> Iterator[int]:
    """Legal micro-batch group sizes of an interleaved schedule: in [pp, m], the last group empty or at least pp."""
    for group in range(pp, microbatches + 1) if every else (pp,):
        if pp <= group <= microbatches and not 0 < microbatches % group < pp:
            yield group


def cases(
    kinds: tuple[str, ...] = KINDS,
    pps: range = range(1, 7),
    microbatches: range = range(1, 20),
    vpps: range = range(1, 4),
    every_group: bool = False,
) -> Iterator[Case]:
    """All schedules of these kinds within these ranges."""
    for kind in kinds:
        for pp in pps:
            for m in microbatches:
                if kind == "dualpipe" and (pp % 2 or m % 2 or m < 2 * pp):
                    continue
                if kind == "dualpipev" and m < 2 * pp:
                    continue
                if kind in ("interleaved", "zb-h1"):
                    for vpp in vpps:
                        if kind == "zb-h1" and vpp == 1:
                            yield kind, pp, m, 1, None
                        elif pp > 1:
                            for group in groups(pp, m, every_group):
                                yield kind, pp, m, vpp, group
                elif kind == "looped-bfs":
                    for vpp in vpps:
                        yield kind, pp, m, vpp, None
                else:
                    yield kind, pp, m, 2 if kind in FOLDED_KINDS else 1, None
