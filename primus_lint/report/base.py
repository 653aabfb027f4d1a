"""`--base REV`: memory and speed of changed recipes, before and after, on the same target.

The old text comes from `git show`. When a parent or preset of the repository changed too, the YAML files of the revision
are laid out in a scratch folder and read there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

from primus_lint.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.pipeline import Checked, Options
    from primus_lint.report.bundle import Report
    from primus_lint.subject import Subject

GIT_TIMEOUT_S = 120


class BaseError(Exception):
    """The revision cannot be read; the message says why."""


class Before:
    """One section as it was at the revision. `subject` is None when the file or section did not exist; `path` is the
    file's former name when git tells that it was renamed."""

    __slots__ = ("limit", "path", "revision", "subject")

    def __init__(self, revision: str, subject: Subject | None, limit: float, path: str | None = None) -> None:
        self.revision = revision
        self.path = path
        self.subject = subject
        self.limit = limit  # share of tokens/s that a change may lose

    def changed_keys(self, after: Subject) -> dict[str, tuple[Any, Any]]:
        """Key -> (value then, value now) of what the change set; None where it is not set."""
        if self.subject is None:
            return {}
        old, new = self.subject.section, after.section
        keys = sorted(set(old.values) | set(new.values))
        return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


class Comparison:
    """A changed file: its first section before and after."""

    __slots__ = ("after", "before", "path")

    def __init__(self, path: str, before: Before, after: Subject) -> None:
        self.path = path
        self.before = before
        self.after = after

    def figures(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        then = self.before.subject
        return None if then is None else figures(then), figures(self.after)

    @property
    def verdict(self) -> str:
        then, now = self.figures()
        if then is None:
            return "new"
        if then["fits"] is not False and now["fits"] is False:
            return "no longer fits"
        if then["fits"] is False and now["fits"] is not False:
            return "fits now" if now["fits"] else "may fit now"
        if then["tokens_per_s_per_gpu"] is None or now["tokens_per_s_per_gpu"] is None:
            return "not comparable"
        gain = now["tokens_per_s_per_gpu"] / then["tokens_per_s_per_gpu"] - 1
        return "as fast" if abs(gain) < 0.001 else f"{gain:+.1%}"

    def cells(self) -> tuple[str, str]:
        """Speed and headroom in words, "before → after"."""
        then, now = self.figures()
        out = []
        for name in ("tokens_per_s_per_gpu", "headroom_bytes"):
            words = [_words(name, side) for side in (then, now) if side is not None]
            out.append(" → ".join(dict.fromkeys(words)))
        return out[0], out[1]

    def line(self) -> str:
        speed, headroom = self.cells()
        former = f" ({self.before.path})" if self.before.path else ""
        return f"against {self.before.revision}{former}: {speed} tokens/s/GPU, headroom {headroom}: {self.verdict}"

    def as_json(self) -> dict[str, Any]:
        then, now = self.figures()
        keys = {key: list(pair) for key, pair in self.before.changed_keys(self.after).items()}
        return {
            "renamed_from": self.before.path,
            "before": then,
            "after": now,
            "verdict": self.verdict,
            "changed_keys": keys,
        }


def _words(name: str, side: dict[str, Any]) -> str:
    value = side[name]
    if name == "tokens_per_s_per_gpu" and side["fits"] is False:
        return "none (out of memory)"
    if value is None:
        return "unknown"
    return gib(value) if name == "headroom_bytes" else f"{value:,.0f}"


def figures(subject: Subject) -> dict[str, Any]:
    """Speed, headroom (capacity less the high estimate of the heaviest rank) and verdict of a section; None: unknown."""
    out: dict[str, Any] = {"tokens_per_s_per_gpu": None, "headroom_bytes": None, "fits": None}
    if not subject.modelled or subject.run is None or subject.target.world_size is None:
        return out
    ledger, accelerator, projection = subject.ledger, subject.accelerator, subject.projection
    if ledger is not None and accelerator is not None:
        out["headroom_bytes"] = int(accelerator.visible_hbm_bytes - ledger.device_bytes[1])
        out["fits"] = subject.fits
    if projection is not None:
        out["tokens_per_s_per_gpu"] = float(projection.tokens_per_s_per_gpu)
    return out


@contextmanager
def comparing(report: Report, revision: str, limit: float, options: Options) -> Iterator[None]:
    """Compare what is checked inside with a revision. A revision that cannot be read is a wrong use."""
    from primus_lint.cli.common import UsageError

    try:
        base = options.base = Base(report.root, revision, limit, options)
        try:
            yield
        finally:
            base.close()
    except BaseError as error:
        raise UsageError(str(error)) from None
    report.base, report.comparisons = revision, base.comparisons


class Base:
    """A revision of the repository that holds the checked files. Raises BaseError when it cannot be read."""

    def __init__(self, root: str, revision: str, limit: float, options: Options) -> None:
        self.root = root
        self.name = revision
        self.limit = limit
        self.options = options
        self.comparisons: list[Comparison] = []
        self._tree: str | None = None
        if revision.endswith("..."):  # as for git diff: where the branches parted
            revision = self._git("merge-base", "--", revision[:-3], "HEAD").decode().strip()
        name = revision + "^{commit}"
        self.commit = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", name).decode().strip()
        listed = self._git("diff", "--name-only", "--no-renames", "-z", self.commit, "--")
        self.changed = set(listed.decode("utf-8", "surrogateescape").split("\0"))
        self.renamed = self._renames()

    def _renames(self) -> dict[str, str]:
        """New name -> the name at the revision. Recipes that git does not know yet (a plain `mv`) count as added: they are
        entered into a copy of the index."""
        found = self._git("ls-files", "--others", "--exclude-standard", "-z", "--", "*.yaml", "*.yml", "*.sh")
        diff = ("diff", "--find-renames", "--diff-filter=R", "--name-status", "-z", self.commit, "--")
        if not found:
            renames = self._git(*diff)
        else:
            index = os.path.join(self.root, self._git("rev-parse", "--git-path", "index").decode().strip())
            with TemporaryDirectory(prefix="primus-lint-index-") as folder:
                copy = os.path.join(folder, "index")
                if os.path.exists(index):
                    shutil.copyfile(index, copy)
                new = ("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
                self._git(*new, given=found, GIT_INDEX_FILE=copy, GIT_LITERAL_PATHSPECS="1")
                renames = self._git(*diff, GIT_INDEX_FILE=copy)
        words = renames.decode("utf-8", "surrogateescape").split("\0")  # R100, old, new, R087, old, new, ...
        return dict(zip(words[2::3], words[1::3], strict=False))

    def attach(self, checked: Checked) -> None:
        """Give every section of a changed file its `before`, and note the comparison."""
        from primus_lint.source.text import SourceText

        source = checked.document.source
        if source is None or not checked.subjects:
            return
        own = self._relative(checked.path)
        former = self.renamed.get(own)
        data = self._show(former or own)
        touched = former is not None or data is None or data != source.data
        if not touched and not self._changed_parents(checked):
            return
        old: Checked | None = None
        if data is not None:
            if former is None:
                old = self._check(checked, SourceText.from_bytes(source.path, data), self.options.primus_root)
            if old is None or old.unreadable or self._changed_parents(old):
                old = self._in_tree(checked, former or own)
        sections = {} if old is None else {subject.section.name: subject for subject in old.subjects}
        for index, subject in enumerate(checked.subjects):
            then = sections.get(subject.section.name)
            if then is None and old is not None and len(old.subjects) == len(checked.subjects):
                then = old.subjects[index]
            subject.before = Before(self.name, then, self.limit, former)
        first = checked.subjects[0]
        assert first.before is not None
        self.comparisons.append(Comparison(checked.path, first.before, first))

    def close(self) -> None:
        if self._tree is not None:
            shutil.rmtree(self._tree, ignore_errors=True)
            self._tree = None

    def _check(self, checked: Checked, source: Any, primus_root: str | None) -> Checked:
        """The old text, judged on the target of the new one."""
        from primus_lint.pipeline import Options, check_source

        target, options = checked.subjects[0].target, self.options
        same = Options(
            gpu=target.gpu, world_size=target.world_size, gpus_per_node=target.gpus_per_node, env=options.env,
            set_values=options.set_values, model=options.model, framework_version=options.framework_version,
            primus_root=primus_root,
        )  # fmt: skip
        return check_source(source, same, checked.settings)

    def _in_tree(self, checked: Checked, own: str) -> Checked:
        """The old file among the YAML files of its revision."""
        from primus_lint.source.text import SourceText

        if self._tree is None:
            self._tree = self._lay_out()
        root = self.options.primus_root
        if root is not None and not self._relative(root).startswith(".."):
            root = os.path.join(self._tree, self._relative(root))
        return self._check(checked, SourceText.from_path(os.path.join(self._tree, own)), root)

    def _lay_out(self) -> str:
        import io
        import tarfile

        folder = mkdtemp(prefix="primus-lint-base-")
        names = (
            self._git("ls-tree", "-r", "-z", "--name-only", self.commit).decode("utf-8", "surrogateescape").split("\0")
        )
        globs = [f":(glob)**/*{end}" for end in (".yaml", ".yml") if any(name.endswith(end) for name in names)]
        data = self._git("archive", "--format=tar", self.commit, "--", *globs)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    path = os.path.join(folder, member.name)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "wb") as file:
                        file.write(content.read())
        return folder

    def _changed_parents(self, checked: Checked) -> bool:
        paths = (self._relative(path) for path in checked.document.presets if os.path.exists(path))
        return any(path in self.changed for path in paths)

    def _relative(self, path: str) -> str:
        return os.path.relpath(os.path.realpath(path), os.path.realpath(self.root)).replace(os.sep, "/")

    def _show(self, path: str) -> bytes | None:
        """The bytes of a file at the revision; None when it was not there."""
        if path.startswith("../"):
            return None
        try:
            return self._git("show", f"{self.commit}:{path}")
        except BaseError:
            return None

    def _git(self, *words: str, given: bytes = b"", **variables: str) -> bytes:
        """What a git command prints; `given` is its standard input, `variables` are added to its environment."""
        try:
            done = subprocess.run(
                ["git", "-C", self.root, *words], capture_output=True, check=False, timeout=GIT_TIMEOUT_S,
                input=given, env={**os.environ, **variables},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BaseError(f"git cannot be run: {error}") from None
        if done.returncode:
            reason = done.stderr.decode("utf-8", "replace").strip() or f"git knows no revision {self.name!r}"
            raise BaseError(f"--base {self.name}: {reason}")
        return done.stdout
