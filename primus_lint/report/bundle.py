"""Report: everything that an output format may show of one run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.report.base import Comparison
    from primus_lint.report.groups import Group
    from primus_lint.rules.baseline import Used
    from primus_lint.rules.finding import Finding


FEW = 5  # with more files, what differs from file to file is counted instead of listed (`--verbose` lists it)


class Tuned:
    """One recipe of a search. `kind`: "before", "chosen", "other"; `changes` in words."""

    __slots__ = ("changes", "device_high_bytes", "kind", "tokens_per_s_per_gpu")

    def __init__(self, kind: str, tokens_per_s_per_gpu: float, device_high_bytes: int, changes: str) -> None:
        self.kind = kind
        self.tokens_per_s_per_gpu = tokens_per_s_per_gpu
        self.device_high_bytes = device_high_bytes
        self.changes = changes


# --fail-on -> the severities that fail a run.
FAILING: dict[str, tuple[str, ...]] = {
    "error": ("error",),
    "warning": ("error", "warning"),
    "info": ("error", "warning", "info"),
    "never": (),
}


class Report:
    """The checked files of one run, and what was compared with them.

    `root` is the folder that paths are relative to (the repository). `comparisons` holds before and after of every file
    that `--base` found changed, `diffs` what `--fix` did: path as checked -> unified diff.
    """

    __slots__ = (
        "_groups", "base", "baseline", "checked", "comparisons", "diffs", "fail_on", "grouping", "root", "tuned",
    )  # fmt: skip

    def __init__(self, checked: list[Checked], root: str) -> None:
        self.checked = checked
        self.root = root
        self.grouping = True
        self.fail_on = "error"  # the lowest severity that fails the run, or "never"
        self.base: str | None = None  # the revision of --base
        self.comparisons: list[Comparison] = []
        self.baseline: Used | None = None
        self.diffs: dict[str, str] = {}
        self.tuned: dict[str, list[Tuned]] = {}  # path -> the recipes that --fix weighed
        self._groups: list[Group] | None = None

    def all(self) -> list[tuple[Checked, Finding]]:
        """Every finding with its file, suppressed ones too."""
        return [(item, finding) for item in self.checked for finding in item.findings]

    def shown(self) -> list[tuple[Checked, Finding]]:
        """Every finding that nothing suppresses."""
        return [pair for pair in self.all() if pair[1].suppressed is None]

    @property
    def groups(self) -> list[Group]:
        """The open findings by cause, the most severe first; most groups hold one finding."""
        if self._groups is None:
            from primus_lint.report.groups import grouped

            self._groups = grouped(self.shown(), self.grouping)
        return self._groups

    def counts(self) -> dict[str, int]:
        """Open findings by severity."""
        counts = dict.fromkeys(("error", "warning", "info"), 0)
        for _, finding in self.shown():
            counts[finding.severity] += 1
        return counts

    def words(self, text: str) -> str:
        """A sentence with the repository's absolute path left out."""
        return text.replace(self.root.rstrip(os.sep) + os.sep, "") if self.root != os.sep else text

    def total(self) -> str:
        """The run in one line: findings, causes when they are fewer, files, fixes, suppressions."""
        if not self.checked:
            return "nothing was checked"
        counts, shown = self.counts(), self.shown()
        files = _count(len(self.checked), "file")
        line = f"{_count(counts['error'], 'error')}, {_count(counts['warning'], 'warning')} in {files}"
        if len(self.groups) < len(shown):
            line += f"; {len(shown)} findings of {_count(len(self.groups), 'cause')}"
        fixable = sum(any(fix.safety == "safe" for fix in finding.fixes) for _, finding in shown)
        if fixable:
            line += f"; {fixable} with a safe fix (--fix)"
        suppressed = len(self.all()) - len(shown)
        return line + (f"; {suppressed} suppressed" if suppressed else "")

    def remarks(self) -> list[str]:
        """What a run says about itself: what was assumed, what the baseline no longer needs."""
        counts: dict[tuple[str, str], int] = {}
        for item in self.checked:
            for entry in item.assumed:
                key = (f"{entry.what} {entry.value}", self.words(entry.source))
                if entry.what == "vocab_size" and len(self.checked) > FEW:
                    key = (entry.what, "the tokenizers' names")
                counts[key] = counts.get(key, 0) + 1
        together: dict[tuple[str, int], list[str]] = {}
        for (what, source), number in counts.items():
            together.setdefault((source, number), []).append(what)
        lines = [
            f"assumed {', '.join(parts)} from {source}" + (f" ({number} files)" if number > 1 else "")
            for (source, number), parts in together.items()
        ]
        if self.baseline is not None:
            lines += self.baseline.remarks()
        return lines


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
