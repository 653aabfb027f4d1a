"""What a cold `check` must not import, and how often it may parse (counts, not seconds)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = (
    "torch", "numpy", "pydantic", "jsonschema", "ruamel", "rich", "asyncio", "importlib.metadata", "multiprocessing",
    "statistics", "random", "decimal", "difflib"
)  # fmt: skip


@pytest.mark.parametrize("name", ["clean-llama3.1_8B", "oom-llama3.1_70B", "illegal-qwen2.5_7B", "slow-mixtral_8x7B"])
def test_cold_check_imports_nothing_heavy(name: str) -> None:
    code = (
        "import sys\n"
        "from primus_lint.cli.group import cli\n"
        f"cli(['examples/configs/{name}.yaml'], prog_name='primus-lint', standalone_mode=False)\n"
    )
    script = code.replace("cli([", "\ntry:\n    cli([").rstrip() + "\nexcept SystemExit:\n    pass\n"
    script += f"print([m for m in {FORBIDDEN!r} if m in sys.modules], file=sys.stderr)\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
