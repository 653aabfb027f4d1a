"""Write a file whole or not at all."""

from __future__ import annotations

import errno
import os


class ChangedMeanwhile(OSError):
    """The file no longer holds what was read: whoever wrote it must not lose it."""

    def __init__(self) -> None:
        super().__init__("the file has changed since it was read: nothing written, run again")


def write_atomic(path: str, data: bytes, expected: bytes | None = None) -> int:
    """Replace a file's content: written beside it, then put in its place. Its mode stays, a symbolic link is followed.
    Other hard links keep the old content, since writing in place is not atomic: their number is returned.

    `expected` is what the file was read as. Raises ChangedMeanwhile when it holds something else by now, PermissionError
    for a file that nobody may write, OSError else; the old content is then still there.
    """
    target = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(target), f".{os.getpid()}.primus-lint.tmp")
    try:
        status = os.stat(target)
        mode, others = status.st_mode & 0o7777, status.st_nlink - 1
    except FileNotFoundError:
        mode, others = None, 0
    if mode is not None and not mode & 0o222:
        raise PermissionError(errno.EACCES, "the file is read-only: nothing written", path)
    if expected is not None:
        with open(target, "rb") as now:
            if now.read() != expected:
                raise ChangedMeanwhile
    file = open(beside, "xb")  # noqa: SIM115 (closed before it is put in place)
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(beside, mode)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise
    return others


def kept_by_links(others: int) -> str:
    """What to say where other hard links keep the old content."""
    return f"{'another hard link keeps' if others == 1 else f'{others} other hard links keep'} the former text"
