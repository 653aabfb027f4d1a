"""What Primus and Megatron change by themselves in what a file writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.checks.key_facts import WRITTEN, listed, say, shown, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.rules.finding import Finding
    from primus_lint.subject import Subject

# Changes that have a rule of their own, with the condition that causes them.
TOLD_ELSEWHERE = (
    "sequence-parallel-off", "overlap-p2p-comm-off", "align-param-gather-off", "virtual-size-overwritten",
    "fp32-gradients", "bf16-gradients", "softmax-in-fp32", "rope-fusion-off", "fsdp-", "fsdp2-", "frozen-", "hybrid-",
    "async-save-off", "mask-in-loader-off", "mtp-mixing-off", "mock-data-vocabulary",
)  # fmt: skip


def overruled(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Values of the file that the program replaces."""
    given = {key: value.value for key, value in written(subject)}
    changed = []
    for change in subject.lowered.adjustments:
        asked = given.get(change.key)
        if change.key in given and asked != change.value and not change.name.startswith(TOLD_ELSEWHERE):
            changed.append((change, asked))
    if changed:
        parts = [f"{change.key} {shown(asked)} becomes {shown(change.value)}" for change, asked in changed]
        keys = tuple(change.key for change, _ in changed)
        labels = tuple((change.key, change.reason) for change, _ in changed)
        yield say(rule, subject, f"{listed(parts, 4)} ({changed[0][0].reason})", keys, labels=labels)


def mock_vocabulary(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """Mock data without a vocabulary size: memory and speed are those of another vocabulary."""
    if any(change.name == "mock-data-vocabulary" for change in subject.lowered.adjustments):
        model = subject.section.get("tokenizer_model")
        of = f", not that of {model}" if model else ""
        message = (
            f"mock_data without vocab_size trains a vocabulary of 131,072{of}: memory and speed of a real run differ"
        )
        yield say(rule, subject, message, ("mock_data", "vocab_size"))


def contradicted(subject: Subject, rule: dict[str, Any]) -> Iterator[Finding]:
    """A stage of the synchronization-free MoE overrules what the same file says."""
    origins = subject.section.values
    lost = [
        change
        for change in subject.lowered.adjustments
        if change.because == "turbo_sync_free_moe_stage"
        and change.key in origins
        and origins[change.key].origins[0].layer in WRITTEN
    ]
    if lost:
        names = [f"{change.key} (becomes {shown(change.value)})" for change in lost]
        stage = subject.section.get("turbo_sync_free_moe_stage")
        message = f"turbo_sync_free_moe_stage {stage} overrules {listed(names)}"
        yield say(rule, subject, message, tuple(change.key for change in lost))
