"""PyYAML as it is imported here: the rest of it works, and nothing of the import is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """\
import re
compile_before = re.compile
import primus_lint.source.pyyaml
assert re.compile is compile_before
import yaml
from yaml.reader import Reader, ReaderError
assert not isinstance(Reader.NON_PRINTABLE, re.Pattern)  # not compiled yet
assert yaml.load("a: [1, x]", Loader=yaml.SafeLoader) == {"a": [1, "x"]}  # the reader in Python uses it
try:
    yaml.load("a: \\x07", Loader=yaml.SafeLoader)
except ReaderError:
    pass
else:
    raise AssertionError("a control character is no YAML")
"""


def test_what_is_compiled_later_works_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
