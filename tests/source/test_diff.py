from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from primus_lint.source.diff import unified_diff

PAIRS = [
    ("a: 1\nb: 2\n", "a: 1\nb: 3\n"),
    ("a: 1\nb: 2", "a: 1\nb: 3"),
    ("a: 1\nb: 2", "a: 1\nb: 2\n"),
    ("a: 1\nb: 2\n", "a: 1\nb: 2"),
    ("a: 1\r\nb: 2\r\n", "a: 1\r\nx: 0\r\nb: 2\r\n"),
    ("", "a: 1\n"),
    ("a: 1\n", ""),
    ("\n" * 20 + "a\n" + "\n" * 20 + "b", "\n" * 20 + "c\n" + "\n" * 20 + "b\n\n"),
    ("a\x0cb\x85c\n1\n", "a\x0cb\x85d\n1\n"),
]


@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no `patch` to apply the diff with")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_patch_turns_the_old_file_into_the_new(old: str, new: str, tmp_path: Path) -> None:
    file = tmp_path / "dir" / "f.yaml"
    file.parent.mkdir()
    file.write_bytes(old.encode())
    diff = unified_diff(old, new, "dir/f.yaml")
    subprocess.run(
        ["patch", "-p1", "--binary", "--posix"], cwd=tmp_path, input=diff.encode(), check=True, capture_output=True
    )
    assert (file.read_bytes() if file.exists() else b"") == new.encode()


def test_the_text_is_that_of_diff() -> None:
    old, new = "".join(f"{n}\n" for n in range(9)) + "end", "".join(f"{n}\n" for n in range(9) if n != 1) + "END"
    assert unified_diff(old, new, "f", context=1) == (
        "--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n 0\n-1\n 2\n@@ -9,2 +8,2 @@\n 8\n-end\n\\ No newline at end of file\n"
        "+END\n\\ No newline at end of file\n"
    )


def test_nothing_changed_is_empty() -> None:
    assert unified_diff("a", "a", "f") == ""


def test_color_only_adds_escapes() -> None:
    plain, colored = (unified_diff("a\n-- x\nb\n", "a\nc\nb\n", "f", color=color) for color in (False, True))
    assert (
        colored.replace("\x1b[0m", "")
        .replace("\x1b[31m", "")
        .replace("\x1b[32m", "")
        .replace("\x1b[36m", "")
        .replace("\x1b[1m", "")
        == plain
    )
    assert "\x1b[31m--- x\x1b[0m" in colored
    assert "\x1b[1m--- a/f\x1b[0m" in colored
