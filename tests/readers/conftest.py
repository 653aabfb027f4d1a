"""A little Primus checkout to resolve experiments against, and the corpus where it is at hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus_lint.readers.document import ResolvedDocument
from primus_lint.readers.primus import read_primus
from primus_lint.source.text import SourceText

REPO = Path(__file__).resolve().parents[2]
SHARED = REPO.parent / "shared"

MODULE = """\
extends: [base.yaml]
lr: 2.0e-05
fp8: null
seq_length: 1024
metrics:
  log_freq: 1
  enable_wandb: false
"""
BASE = """\
lr: 1.0
train_iters: 10
trainable: false
"""
MODEL = """\
extends:
  - shape.yaml
num_layers: 32
fp8: e4m3
seq_length: 8192
metrics:
  color: red
"""
SHAPE = """\
num_layers: 24
hidden_size: 4096
"""
HEAD = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with primus/configs: a module preset and a model preset, each with a parent."""
    configs = tmp_path / "primus" / "configs"
    for name, text in {
        "modules/megatron/pre_trainer.yaml": MODULE,
        "modules/megatron/base.yaml": BASE,
        "models/megatron/llama3_8B.yaml": MODEL,
        "models/megatron/shape.yaml": SHAPE,
        "platforms/platform_azure.yaml": "name: azure\n",
    }.items():
        path = configs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def resolve(checkout: Path) -> Callable[..., ResolvedDocument]:
    """Resolve an experiment text that lies in the checkout: resolve(text, env=..., name=..., ...)."""

    def run(text: str, *, name: str = "exp.yaml", **more: Any) -> ResolvedDocument:
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
        return read_primus(SourceText.from_path(str(path)), **more)

    return run


@pytest.fixture
def overrides(resolve: Callable[..., ResolvedDocument]) -> Callable[..., ResolvedDocument]:
    """Resolve an experiment from the lines of its `overrides`."""

    def run(lines: str, **more: Any) -> ResolvedDocument:
        body = "".join(f"      {line}\n" for line in lines.splitlines())
        return resolve(
            HEAD + "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n"
            "    model: llama3_8B.yaml\n    overrides:\n" + body,
            **more,
        )

    return run


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The corpus of real experiments."""
    path = SHARED / "corpus" / "primus"
    if not path.is_dir():
        pytest.skip("the corpus of real experiments (../shared/corpus/primus) is not at hand")
    return path


@pytest.fixture(scope="session")
def experiments(corpus: Path) -> list[Path]:
    """Every YAML file of the corpus that holds an experiment."""
    found = sorted(path for folder in ("examples", "tests") for path in (corpus / folder).rglob("*.yaml"))
    return [path for path in found if "modules:" in (text := path.read_text()) or "\nextends:" in text]


@pytest.fixture(scope="session")
def goldens() -> list[Path]:
    """Every model_config.yaml of Megatron-LM's functional tests."""
    found = sorted((SHARED / "goldens").glob("*/*/model_config.yaml"))
    if not found:
        pytest.skip("the goldens (../shared/goldens) are not at hand")
    return found
