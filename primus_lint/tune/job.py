"""One file through the tuner, as a task: plain values in, plain values out, for processes and clusters alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.tune.fix import FixResult, fix_source
from primus_lint.tune.limits import LimitError, check_keys, limits_of
from primus_lint.tune.propose import Proposal, Rules, gain_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from primus_lint.pipeline import Options
    from primus_lint.settings import Settings
    from primus_lint.source.text import SourceText
    from primus_lint.subject import Subject
    from primus_lint.tune.rescore import Candidate
    from primus_lint.tune.search import Result
    from primus_lint.tune.sweep import Single

CLOSE_BY = 1.02  # alternatives are at most this much slower than the winner


def tune_file(path: str, values: dict[str, Any]) -> dict[str, Any]:
    """Tune one file: `values` are the options of `primus-lint tune` by name (see cli/options.py). Never raises for what
    the file holds; `error` says why it could not be read. The text to write is `text`."""
    from primus_lint.cli import common

    try:
        source = common.read_source(path, values.get("stdin_filename"))
    except OSError as error:
        return {"path": path, "error": f"{error.strerror or error}"}
    settings = common.settings_for(source.path, values.get("config"), bool(values.get("isolated")), {})
    if not common.settings_problems(settings, set()):
        return {"path": path, "error": f"the settings ({settings.path}) have a mistake"}
    return tune_source(source, common.make_options(values), settings, rules_of(values), values)


def rules_of(values: dict[str, Any]) -> Rules:
    """How a fix may go, from the options of the command line. Raises UsageError for a limit that is none."""
    from primus_lint.cli.common import UsageError

    keep = frozenset(name.strip() for name in (values.get("keep") or "").split(",") if name.strip())
    try:
        limits = limits_of(values.get("limit") or ())
        check_keys("--keep", keep)
    except LimitError as error:
        raise UsageError(str(error)) from None
    gain, headroom = float(values.get("min_gain") or 0.0), float(values.get("min_headroom") or 0.0)
    if not gain >= 0:
        raise UsageError(f"--min-gain is a share in percent, 0 or more, not {gain:g}")
    if not 0 <= headroom < 100:
        raise UsageError(
            f"--min-headroom is a share of the device's memory in percent, 0 to below 100, not {headroom:g}"
        )
    return Rules(
        unsafe=bool(values.get("unsafe_fixes")),
        tune=not values.get("no_tune"),
        minimal=bool(values.get("minimal")),
        min_gain=gain / 100,
        keep=keep,
        limits=limits,
        objective=values.get("objective") or "tokens",
        min_headroom=headroom / 100,
        budget_s=float("inf" if values.get("budget") is None else values["budget"]),
    )


def tune_source(
    source: SourceText, options: Options, settings: Settings | None, how: Rules, values: dict[str, Any]
) -> dict[str, Any]:
    """Repair, search, explain. With several world sizes the cheapest (by price and seconds) is taken."""
    from primus_lint.tune.agent.ask import asked

    spoken: list[str] = []
    how.agent = asked(values, settings, spoken.append)
    price = values.get("price") or (settings.gpu_hour_price if settings is not None else None)
    reach = values.get("reach")
    how.reach = 1 + (10.0 if reach is None else float(reach)) / 100
    how.front = True
    sizes = world_sizes(values)
    if not sizes:
        data = data_of(fix_source(source, options, settings, how), how, price, bool(values.get("what_if_unsafe")))
        return {**data, "agent": spoken}
    rows = []
    for size in sizes:
        options.world_size, options.nodes = size, None
        rows.append(data_of(fix_source(source, options, settings, how), how, price, False))
    runs = [row for row in rows if any(part["after"] for part in row.get("sections", ()))]
    best = min(runs, key=lambda row: _dollars(row, price)) if runs else rows[-1]
    best["agent"] = spoken
    best["world_sizes"] = [
        {"world_size": size, **(_figures(row) or {"runs": False})} for size, row in zip(sizes, rows, strict=True)
    ]
    return best


def world_sizes(values: dict[str, Any]) -> list[int]:
    """The numbers of GPUs of --world-sizes. Raises UsageError for a word that is none."""
    from primus_lint.cli.common import UsageError

    words = [word.strip() for word in (values.get("world_sizes") or "").split(",") if word.strip()]
    wrong = [word for word in words if not word.isdecimal() or int(word) < 1]
    if wrong:
        raise UsageError(f"--world-sizes: {wrong[0]!r} is no number of GPUs; write 8,16,32")
    return [int(word) for word in words]


def _figures(row: dict[str, Any]) -> dict[str, Any] | None:
    after = next((part["after"] for part in row.get("sections", ()) if part["after"]), None)
    names = ("iteration_s", "tokens_per_s_per_gpu", "peak_bytes", "cost_per_million_tokens")
    return None if after is None else {name: after[name] for name in names}


def _dollars(row: dict[str, Any], price: float | None) -> float:
    """What decides between world sizes: GPU-seconds per token (the price is the same for all)."""
    after = next(part["after"] for part in row["sections"] if part["after"])
    return 1 / float(after["tokens_per_s_per_gpu"]) * (price or 1.0)


def data_of(result: FixResult, how: Rules, price: float | None, what_if_unsafe: bool) -> dict[str, Any]:
    """Everything about one file as plain values."""
    from primus_lint.source.diff import unified_diff

    before = result.before
    if before.document.source is None or not before.is_recipe:
        return {"path": before.path, "error": "not a training recipe that primus-lint reads"}
    old = before.document.source
    return {
        "path": before.path,
        "error": None,
        "changed": result.changed,
        "applied": result.applied,
        "messages": result.messages,
        "remaining_errors": [
            {"name": f.name, "message": f.message}
            for f in result.after.findings
            if f.severity == "error" and f.suppressed is None
        ],
        "unreadable": before.unreadable,
        "diff": unified_diff(old.text, result.source.text, before.path),
        "text": result.source.text,
        "was": old.data,
        "sections": [section_data(proposal, result, how, price, what_if_unsafe) for proposal in result.proposals],
    }


def section_data(
    proposal: Proposal, result: FixResult, how: Rules, price: float | None, what_if_unsafe: bool
) -> dict[str, Any]:
    """One searched section: before, after, certificate, neighbours, front, alternatives."""
    from primus_lint.tune import safety
    from primus_lint.tune.explain import front, pareto, sensitivity, shape_of
    from primus_lint.tune.search import unrelated_errors
    from primus_lint.tune.whole import Scored

    subject, found = proposal.subject, proposal.result
    own = as_it_was(subject, result)
    assumed, run = subject.target, subject.run if subject.modelled else None
    data: dict[str, Any] = {
        "section": subject.section.name,
        "target": {"gpu": assumed.gpu, "world_size": assumed.world_size, "gpus_per_node": assumed.gpus_per_node},
        "broken": proposal.broken,
        "reason": proposal.reason,
        "before": figures(own, price),
        "after": None,
        "changes": {},
        "safety": None,
        "gain": None,
        "certificate": None,
        "neighbours": [],
        "basin": None,
        "front": [],
        "alternatives": [],
        "unsafe": None,
        "one_change": [single_data(single) for single in proposal.singles if not idle(subject, single)],
    }
    if found is None:
        return data
    data["certificate"] = found.certificate.as_json()
    written = result.candidate if result.candidate in proposal.candidates else None
    winner = written or next(iter(proposal.candidates), None) or next(iter(found.best), None)
    if winner is None:
        return data
    given = subject.lowered.namespace.given
    data["after"] = candidate_figures(subject, winner, price)
    data["changes"] = winner.changes
    data["safety"] = safety.class_of_all(winner.changes.items(), given, None if run is None else run.model)
    data["written"] = written is not None
    data["gain"] = gain_over(own, winner)
    data["best"] = point(own, found.best[0])  # the optimum itself, where the written one has fewer changes
    if isinstance(found, Scored):
        others = pareto(found.best)
    else:
        neighbours = [
            each
            for each in sensitivity(subject, winner, found)
            if not proposal.names or each.changes.keys() <= proposal.names.keys()
        ]
        data["neighbours"] = [neighbour._asdict() for neighbour in neighbours]
        data["basin"] = shape_of(neighbours)
        others = front(subject, found, unrelated_errors(subject))
    data["front"] = [{**point(own, each), "against_winner": against(given, winner, each)} for each in others]
    data["alternatives"] = [
        {**point(own, each), "against_winner": against(given, winner, each), "told_apart": differ(each, winner)}
        for each in found.best
        if each.iteration_s <= found.best[0].iteration_s * CLOSE_BY
        and (each.iteration_s, each.peak_bytes) != (winner.iteration_s, winner.peak_bytes)  # else the same in effect
    ]
    if what_if_unsafe and not how.unsafe and not isinstance(found, Scored):
        data["unsafe"] = unsafe_potential(subject, winner, found, how)
    return data


def differ(one: Candidate, other: Candidate) -> bool:
    """Whether the projection can tell which of two recipes is faster."""
    from primus_lint.tune.ties import told_apart

    slower, faster = sorted((one, other), key=lambda each: -each.iteration_s)
    return told_apart(slower.projection, faster.projection)


def idle(subject: Subject, single: Single) -> bool:
    """Whether a change is without effect here, as the exchange of a context that is not split."""
    ledger = subject.ledger
    return single.gain == 0 and ledger is not None and single.peak_bytes == int(ledger.worst_rank.device_high_bytes)


def single_data(single: Single) -> dict[str, Any]:
    """One change alone; its times are against the repaired recipe."""
    return {name: value for name, value in single._asdict().items() if name != "candidate"}


def as_it_was(subject: Subject, result: FixResult) -> Subject:
    """The section of a repaired file as the file was, before repairs too."""
    return next((each for each in result.before.subjects if each.section.name == subject.section.name), subject)


def gain_over(own: Subject, candidate: Candidate) -> float | None:
    """Share of tokens/s that a candidate gains; None over a recipe that does not start or does not fit."""
    starts = all(finding.severity != "error" for finding in own.conditions)
    return gain_of(own, candidate) if starts else None


def against(given: Mapping[str, Any], winner: Candidate, other: Candidate) -> dict[str, Any]:
    """What another candidate sets otherwise than the winner."""
    mine, its = ({**given, **each.changes} for each in (winner, other))
    keys = dict.fromkeys((*winner.changes, *other.changes))
    return {key: its.get(key) for key in keys if mine.get(key) != its.get(key)}


def unsafe_potential(subject: Subject, winner: Candidate, found: Result, how: Rules) -> dict[str, Any]:
    """What changes of numerics and compatibility would add to the winner, each alone and (searched) all together; nothing
    of it is written."""
    from primus_lint.tune.explain import unsafe_steps
    from primus_lint.tune.search import Pins, search

    accelerator = subject.accelerator
    assert accelerator is not None
    pins = Pins(how.keep, how.limits, True)
    steps = [each._asdict() for each in unsafe_steps(subject, winner, found, pins)]
    best = search(subject, accelerator, pins=pins, kind=how.objective, min_headroom=how.min_headroom).best
    if not best:
        return {"alone": steps, "together": None}
    gain = winner.iteration_s / best[0].iteration_s - 1
    return {"alone": steps, "together": {**point(subject, best[0]), "gain_over_safe": gain}}


def figures(subject: Subject, price: float | None) -> dict[str, Any] | None:
    """Speed, memory by rank and bottlenecks of a recipe; None when it has no account."""
    from primus_lint.tune.explain import bottlenecks

    ledger, projection, accelerator = subject.ledger, subject.projection, subject.accelerator
    if ledger is None or accelerator is None:
        return None
    data: dict[str, Any] = {
        "fits": ledger.fits(accelerator.visible_hbm_bytes),
        "capacity_bytes": accelerator.visible_hbm_bytes,
        "peak_bytes": int(ledger.worst_rank.device_high_bytes),
        "ranks": [
            {"pp_rank": rank.pp_rank, "dp": rank.dp, "device_low_bytes": int(rank.device_low_bytes),
             "device_high_bytes": int(rank.device_high_bytes)}
            for rank in ledger.ranks
        ],
        "iteration_s": None, "tokens_per_s_per_gpu": None, "mfu": None, "bottlenecks_s": {},
        "cost_per_million_tokens": None,
    }  # fmt: skip
    if projection is not None:
        rate = float(projection.tokens_per_s_per_gpu)
        data.update(
            iteration_s=float(projection.iteration_s),
            tokens_per_s_per_gpu=rate,
            mfu=projection.mfu,
            bottlenecks_s=bottlenecks(projection),
            cost_per_million_tokens=None if price is None else cost_per_million_tokens(price, rate),
        )
    return data


def cost_per_million_tokens(price_per_gpu_hour: float, tokens_per_s_per_gpu: float) -> float:
    """In the currency of the price."""
    return price_per_gpu_hour / 3600 / tokens_per_s_per_gpu * 1e6


def candidate_figures(subject: Subject, candidate: Candidate, price: float | None) -> dict[str, Any] | None:
    from primus_lint.tune.what_if import with_changes

    return figures(with_changes(subject, candidate.changes), price)


def point(subject: Subject, candidate: Candidate) -> dict[str, Any]:
    """A candidate in a list."""
    return {
        "changes": candidate.changes,
        "iteration_s": candidate.iteration_s,
        "tokens_per_s_per_gpu": float(candidate.projection.tokens_per_s_per_gpu),
        "peak_bytes": candidate.peak_bytes,
        "gain": gain_over(subject, candidate),
    }
