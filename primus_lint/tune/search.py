"""Search the space: legality, memory and time in array form, then exact scalar rescoring of the best.

Nothing is proposed that the scalar rules, the scalar ledger and the scalar projection have not passed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from primus_lint.lower.megatron import adjust, namespace
from primus_lint.lower.megatron.build import build_run
from primus_lint.rules import catalogue
from primus_lint.rules.compile import STAGES
from primus_lint.rules.engine import UNDECIDED
from primus_lint.tune.space import AXES, TUNED, Pins, Structure, structures
from primus_lint.tune.what_if import with_changes

if TYPE_CHECKING:
    from primus_lint.hardware import Accelerator
    from primus_lint.ledger import Ledger
    from primus_lint.pipeline import Subject
    from primus_lint.projection import Projection
    from primus_lint.rules.finding import Finding

NONE_STAGE = STAGES.index("none")


class Candidate(NamedTuple):
    """A recipe of the space: the arguments that differ from the asked ones, exactly rescored."""

    changes: dict[str, Any]
    iteration_s: float
    ledger: Ledger
    projection: Projection
    errors: tuple[Finding, ...]


class Certificate:
    """What was looked at: sizes of the space, what removed candidates, what was scored."""

    __slots__ = ("fitting", "legal", "removed", "rescored", "space", "structures", "time_failed")

    def __init__(self) -> None:
        self.structures = 0
        self.space = 0
        self.legal = 0
        self.fitting = 0
        self.rescored = 0
        self.time_failed = 0
        self.removed: dict[str, int] = {}  # rule name -> candidates that it removed (first rule to do so)

    def drop(self, name: str, number: int) -> None:
        if number:
            self.removed[name] = self.removed.get(name, 0) + number

    def as_json(self) -> dict[str, Any]:
        return {
            "structures": self.structures,
            "space": self.space,
            "legal": self.legal,
            "fitting": self.fitting,
            "rescored": self.rescored,
            "removed": dict(sorted(self.removed.items(), key=lambda pair: -pair[1])),
        }


class Scored(NamedTuple):
    """One element of a grid that passed the array forms."""

    iteration_s: float
    changed: int
    changes: dict[str, Any]


def search(
    subject: Subject,
    accelerator: Accelerator,
    *,
    pins: Pins | None = None,
    best: int = 24,
    fewest_changes: bool = False,
    memory_only: bool = False,
) -> tuple[list[Candidate], Certificate]:
    """The best legal and fitting recipes at the subject's world size, the best first.

    `fewest_changes` orders by the number of changed keys, then by time. `memory_only` stops at the first that fits
    (used to find the smallest world size). Needs a run, an accelerator and a world size.
    """
    certificate = Certificate()
    found: list[Scored] = []
    pins = pins or Pins(frozenset())
    excused = unrelated_errors(subject)
    run = subject.run
    assert run is not None
    given = dict(subject.lowered.namespace.given)
    for structure in structures(run, given, pins):
        certificate.structures += 1
        found += score_grid(subject, accelerator, structure, given, excused, certificate)
        if len(found) > 20 * best:
            found = sorted(found, key=lambda item: _order(item, fewest_changes))[: 10 * best]
    found.sort(key=lambda item: _order(item, fewest_changes))
    exact: list[Candidate] = []
    seen: set[str] = set()
    for item in found:
        name = repr(sorted(item.changes.items(), key=lambda pair: pair[0]))
        if name in seen:
            continue
        seen.add(name)
        certificate.rescored += 1
        candidate = rescore(subject, accelerator, item.changes, excused)
        if candidate is not None:
            exact.append(candidate)
        if len(exact) >= best or (memory_only and exact) or certificate.rescored >= 20 * best:
            break
    exact.sort(key=lambda c: (len(c.changes), c.iteration_s) if fewest_changes else (c.iteration_s, len(c.changes)))
    return exact, certificate


def _order(item: Scored, fewest_changes: bool) -> tuple[float, float]:
    return (item.changed, item.iteration_s) if fewest_changes else (item.iteration_s, item.changed)


def unrelated_errors(subject: Subject) -> frozenset[str]:
    """Codes of the recipe's own errors that no tuned key can cure: they do not disqualify a candidate."""
    return frozenset(
        finding.code
        for finding in subject.conditions
        if finding.severity == "error" and not set(finding.keys) & set(TUNED)
    )


def score_grid(
    subject: Subject,
    accelerator: Accelerator,
    structure: Structure,
    given: dict[str, Any],
    excused: frozenset[str],
    certificate: Certificate,
) -> list[Scored]:
    """Every element of a structure's grid that is legal and fits, with its time, by the array forms."""
    names = [name for name in AXES if name in structure.axes]
    rows = list(itertools.product(*(structure.axes[name] for name in names)))
    certificate.space += len(rows)
    columns = {name: np.array([row[index] for row in rows], dtype=np.int64) for index, name in enumerate(names)}
    keep = legality(subject, structure, given, columns, len(rows), excused, certificate)
    if not keep.any():
        return []
    columns = {name: column[keep] for name, column in columns.items()}
    rows = [row for row, kept in zip(rows, keep, strict=True) if kept]
    certificate.legal += len(rows)
    run = _grid_run(subject, structure, given, columns)
    if run is None:
        return []
    from primus_lint.ledger import Ledger, ledger
    from primus_lint.projection import project

    account = ledger(run, accelerator)
    if not isinstance(account, Ledger):
        return []
    worst = np.zeros(len(rows))
    for rank in account.ranks:
        worst = np.maximum(worst, np.broadcast_to(rank.device_high_bytes, len(rows)))
    fits = worst <= accelerator.visible_hbm_bytes
    certificate.drop("does not fit", int((~fits).sum()))
    certificate.fitting += int(fits.sum())
    if not fits.any():
        return []
    columns = {name: column[fits] for name, column in columns.items()}
    rows = [row for row, kept in zip(rows, fits, strict=True) if kept]
    run = _grid_run(subject, structure, given, columns)
    assert run is not None
    projection = project(run, accelerator)
    if projection is None:
        return []
    times = np.broadcast_to(projection.iteration_s, len(rows))
    scored = []
    for row, time_s in zip(rows, times, strict=True):
        changes = changes_of(structure, dict(zip(names, row, strict=True)), given, subject)
        scored.append(Scored(float(time_s), len(changes), changes))
    return scored


def _grid_args(
    structure: Structure, given: dict[str, Any], columns: dict[str, Any], subject: Subject
) -> dict[str, Any]:
    args = dict(given)
    args.update(structure.keys)
    args.update(columns)
    if args.get("expert_model_parallel_size") is None:
        args["expert_model_parallel_size"] = 1
    args["sequence_parallel"] = bool(given.get("sequence_parallel")) or given["tensor_model_parallel_size"] == 1
    adjust.megatron(args, subject.version)
    return args


def _grid_names(subject: Subject, structure: Structure, given: dict[str, Any], columns: dict[str, Any]) -> Any:
    lowered = subject.lowered
    args = _grid_args(structure, given, columns, subject)
    env = {key[4:]: value for key, value in lowered.namespace.items() if key.startswith("env_")}
    asked = {**given, **structure.keys, **columns}
    return namespace(args, asked, subject.target, subject.version, lowered.framework, env, subject.stack)


def _grid_run(subject: Subject, structure: Structure, given: dict[str, Any], columns: dict[str, Any]) -> Any:
    names = _grid_names(subject, structure, given, columns)
    return build_run(names, subject.section, subject.target, subject.version, subject.lowered.framework)


def legality(
    subject: Subject,
    structure: Structure,
    given: dict[str, Any],
    columns: dict[str, Any],
    size: int,
    excused: frozenset[str],
    certificate: Certificate,
) -> Any:
    """Mask of the legal elements of a grid: the array form of every error-level condition."""
    names = _grid_names(subject, structure, given, columns)
    keep = np.ones(size, dtype=bool)
    with np.errstate(all="ignore"):
        for entry in catalogue.applicable(subject.lowered.framework, subject.version, "array"):
            if entry.function is None or entry.severity != "error" or entry.code in excused:
                continue
            try:
                broken = entry.function(names)
            except UNDECIDED:
                continue
            if isinstance(broken, np.ndarray):
                broken = np.broadcast_to(broken.astype(bool), size)
                certificate.drop(entry.name, int((keep & broken).sum()))
                keep &= ~broken
            elif broken:
                certificate.drop(entry.name, int(keep.sum()))
                keep[:] = False
            if not keep.any():
                break
    return keep


def changes_of(structure: Structure, point: dict[str, Any], given: dict[str, Any], subject: Subject) -> dict[str, Any]:
    """The arguments of a grid element that differ from what was asked for, as the file would say them."""
    wanted = {**structure.keys, **point}
    tp = wanted["tensor_model_parallel_size"]
    etp = wanted.get("expert_tensor_parallel_size")
    if etp is not None and given.get("expert_tensor_parallel_size") is None and etp == tp:
        del wanted["expert_tensor_parallel_size"]  # unset means: as tensor parallelism
    if tp > 1 and not given.get("sequence_parallel"):
        wanted["sequence_parallel"] = True
    return {key: value for key, value in wanted.items() if given.get(key) != value}


def rescore(
    subject: Subject, accelerator: Accelerator, changes: dict[str, Any], excused: frozenset[str]
) -> Candidate | None:
    """The exact scalar verdict of a candidate; None when it is illegal, does not fit for sure, or has no time."""
    other = with_changes(subject, changes)
    errors = [finding for finding in other.conditions if finding.severity == "error"]
    if any(finding.code not in excused for finding in errors) or other.run is None:
        return None
    ledger, projection = other.ledger, other.projection
    if ledger is None or projection is None or ledger.fits(accelerator.visible_hbm_bytes) is not True:
        return None
    return Candidate(changes, float(projection.iteration_s), ledger, projection, tuple(errors))
