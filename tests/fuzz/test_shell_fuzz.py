"""Random scripts in a real bash and in the reader: torchrun gets the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.shell_scripts import differs
from tests.readers.test_shell_bash import BASH

pytestmark = pytest.mark.skipif(BASH is None, reason="no bash on this machine")


@pytest.mark.parametrize("seed", range(60))
def test_random_scripts(seed: int, tmp_path: Path) -> None:
    assert differs(seed, tmp_path) is None
