"""Files that a script reads: those at hand, and those that it has written itself by then."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from primus_lint.readers.shell_state import State
from primus_lint.readers.shell_text import Segment, Text, capped, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_FILE = 1 << 20  # bytes of a file that is read
_MAX_FILES = 20
_LEVELS = 5  # folders from the script upwards


class Files(State):
    def __init__(self, env: Mapping[str, str], path: str = "") -> None:
        super().__init__(env, path)
        self.files: list[str] = []  # that were read

    def file_key(self, file: Text) -> str:
        """What two ways to write one file's name share. A command's output is that of the place where it stands: every
        `$(mktemp)` is another file."""
        if all(segment.why is None for segment in file):
            return os.path.normpath(os.path.join(self.directory or "", plain(file)))
        return "".join(
            f"{segment.text}@{segment.start}" if segment.text[:2] == "$(" or segment.text[:1] == "`" else segment.text
            for segment in file
        )

    def write_file(self, file: Text, parts: Sequence[Text], append: bool) -> None:
        key = self.file_key(file)
        old = self.files_made.get(key, ()) if append else ()
        self.files_made[key] = capped((*old, *(segment for text in parts for segment in text)))

    def files_moved(self, name: str, files: Sequence[Text]) -> None:
        """`mv OLD NEW`, `cp OLD NEW` (NEW may be a folder), `rm FILE...`."""
        if name == "rm":
            for file in files:
                self.files_made.pop(self.file_key(file), None)
            return
        text = self.file_text(files[0]) if len(files) == 2 else None
        if text is None:
            return
        new = self.file_key(files[1])
        if plain(files[1]).endswith(("/", ".")) or os.path.isdir(new):
            new = os.path.join(new, os.path.basename(plain(files[0])))
        self.files_made[new] = text
        if name == "mv":
            self.files_made.pop(self.file_key(files[0]), None)

    def file_text(self, written: Text) -> Text | None:
        """The text of a file that the script names: what it wrote there itself, else the file as named, beside the
        script, or in a folder above it (from which the script may be run, or which a part that is not known names);
        None when it is not there."""
        made = self.files_made.get(self.file_key(written))
        if made is not None:
            return made
        name = plain(written)
        if any(segment.why is not None for segment in written):
            name = plain(written[-1:]) if written[-1].why is None else ""
            name = name[1:] if name[:1] == "/" else ""
        folder = os.path.dirname(os.path.abspath(self.path))
        above = [os.path.join(folder, *[os.pardir] * level, name) for level in range(_LEVELS)]
        for path in dict.fromkeys((name, *map(os.path.normpath, above))) if name else ():
            if os.path.isfile(path) and os.path.getsize(path) < _MAX_FILE and len(self.files) < _MAX_FILES:
                self.files.append(path)
                with open(path, encoding="utf-8", errors="replace") as file:
                    return (Segment(file.read(), -1),)
        return None
