"""Tuning of Megatron-Bridge recipes: the search runs on the Megatron recipe that the function makes, over the keys that the
function takes; what wins is written in the section's names."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from primus_lint.subject import Subject
from primus_lint.tune.keys import CP, MBS, SP, TP, TUNED

if TYPE_CHECKING:
    from primus_lint.rules.finding import Finding
    from primus_lint.tune.propose import Rules


class MadeSubject(Subject):
    """What a recipe function makes, as a section of Megatron of which only the conditions of Megatron-Core are asked, and
    those that Megatron-Bridge has as well."""

    @cached_property
    def conditions(self) -> list[Finding]:
        from primus_lint.lower.bridge.megatron import SAID, in_core
        from primus_lint.rules.engine import check

        return [finding for finding in check(self.lowered, self.wanted) if in_core(finding) or finding.code in SAID]


def searched_as(subject: Subject, how: Rules) -> tuple[Subject, Rules, dict[str, str]]:
    """The Megatron subject to search, how, and Megatron's key -> the section's, of a subject with a run."""
    from primus_lint.lower.bridge.megatron import setting_of
    from primus_lint.tune.propose import Rules

    made = subject.made  # type: ignore[attr-defined]
    other = MadeSubject(subject.document, made.section, subject.target, made.version, subject.assumed)
    other.framework, other.env, other.stack, other.wanted = made.framework, subject.env, subject.stack, subject.wanted
    fixed = kept(subject)
    names = {key: name for key in TUNED if key not in fixed and (name := setting_of(key, subject.section)) is not None}
    back = {name: key for key, name in names.items()}
    fields: dict[str, Any] = {name: getattr(how, name) for name in Rules.__slots__}
    fields["keep"] = frozenset((*(back.get(key, key) for key in how.keep), *(key for key in TUNED if key not in names)))
    fields["limits"] = {back.get(key, key): values for key, values in how.limits.items()}
    return other, Rules(**fields), names


def writable(subject: Subject, changes: dict[str, Any]) -> dict[str, Any]:
    """Changes with what Megatron-LM's argument check does in silence and Megatron-Bridge leaves to the recipe: at tensor
    parallel size 1 sequence_parallel goes off (P903)."""
    given = subject.lowered.namespace.given
    alone = changes.get(TP, given[TP]) == 1 and changes.get(SP, given[SP])
    return {**changes, SP: False} if changes and alone else changes


def kept(subject: Subject) -> tuple[str, ...]:
    """Keys that Megatron-Bridge's own conditions hold (B907, C902): packed sequences go one at a time, and fine-tuning under
    context parallelism wants another loss."""
    v = subject.lowered.namespace
    fine_tuned = v["made.dataset"] != "GPTDatasetConfig" and not v["model.calculate_per_token_loss"]
    return (*((MBS,) if v["made.packed_sequence"] else ()), *((CP,) if fine_tuned else ()))
