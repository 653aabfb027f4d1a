"""Against another revision: a change of a recipe that costs speed, or the room that made it sure to fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.engine import make, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

SAME_MODEL = 0.01  # FLOPs of a token that differ by more are another model: its TFLOP/s are compared


def projected_regression(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Fewer tokens/s than at the base (more than the limit), or no longer sure to fit. Nothing without `--base`."""
    before = subject.before
    if before is None or before.subject is None or not subject.modelled:
        return
    now, then, accelerator = subject.projection, before.subject.projection, subject.accelerator
    if now is None or then is None or accelerator is None or subject.ledger is None or before.subject.ledger is None:
        return
    fits, fitted = (side.fits(accelerator.visible_hbm_bytes) for side in (subject.ledger, before.subject.ledger))
    if fits is False or fitted is False:
        return  # what does not fit has its own rule, and what did not had no speed to lose
    old, new, unit = float(then.tokens_per_s_per_gpu), float(now.tokens_per_s_per_gpu), "tokens/s/GPU"
    if then.model_tflops_per_gpu and now.model_tflops_per_gpu:
        per_token = (now.model_tflops_per_gpu / new) / (then.model_tflops_per_gpu / old)
        if abs(per_token - 1) > SAME_MODEL:
            old, new, unit = float(then.model_tflops_per_gpu), float(now.model_tflops_per_gpu), "TFLOP/s/GPU"
    slower = new / old - 1 < -before.limit
    if not slower and not (fitted is True and fits is None):
        return
    parts = []
    if slower:
        parts.append(f"{new:,.0f} {unit} instead of {old:,.0f} ({new / old - 1:+.1%})")
    if fitted is True and fits is None:
        parts.append("it is no longer sure to fit")
    changed = before.changed_keys(subject)
    labels = tuple((key, f"was {words(old)}") for key, (old, _) in changed.items())
    notes = tuple(
        f"changed: {key} {words(old)} -> {words(new)}"
        for key, (old, new) in changed.items()
        if (origin := subject.section.origin(key)) is None or origin.path != subject.document.path
    )
    message = f"against {before.revision}: " + ", and ".join(parts)
    yield make(rule, subject.lowered, message, tuple(changed), labels=labels, notes=notes[:8])
