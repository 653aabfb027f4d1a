"""Write a file whole or not at all."""

from __future__ import annotations

import os


def write_atomic(path: str, data: bytes) -> None:
    """Replace a file's content: written beside it, then put in its place. Its mode stays, a symbolic link is followed.

    Raises OSError; the old content is then still there.
    """
    target = os.path.realpath(path)
    beside = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.getpid()}.tmp")
    try:
        mode = os.stat(target).st_mode & 0o7777
    except FileNotFoundError:
        mode = None
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
