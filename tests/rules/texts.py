"""Examples that are files: run the text of an example and give the codes of its findings.

An example is the text of a whole file, or (without `modules:`) the `overrides` of a Primus experiment of `framework`
with the model preset `preset`. `files` are presets of the model's folder (with `module` the module preset), `beside` files in the experiment's own
folder (checked with it), `chain` a number of parents that extend each other; `set`, `env`, `model`, `version` and `primus_root` are what the command
line gives, `name` the file's name, `encoding` how its text is stored, `gpu` the device,
`before` the text at the base revision.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from primus_lint.pipeline import Checked, Options, check_source
from primus_lint.report.base import Base
from primus_lint.rules.siblings import drift
from primus_lint.settings import Settings
from primus_lint.source.text import SourceText

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENT = """\
work_group: amd
user_name: root
exp_name: run
workspace: ./output
modules:
  pre_trainer:
    framework: {framework}
    config: {config}
    model: {model}
    overrides:
{overrides}
"""


def whole_text(text: str, example: dict[str, Any]) -> str:
    """The text of the file that an example shows."""
    if "modules:" in text or "MODEL_ARGS:" in text or example.get("whole"):
        return text
    framework = example.get("framework", "megatron")
    default = {"megatron": "llama3_8B.yaml", "torchtitan": "llama3.1_8B.yaml", "maxtext": "llama3_8B.yaml"}
    return EXPERIMENT.format(
        framework=framework,
        config=example.get("config", "pre_trainer.yaml"),
        model=example.get("preset", default.get(framework, "llama3_8B.yaml")),
        overrides=textwrap.indent(text, "      "),
    )


def check_text(text: str, example: dict[str, Any], folder: Path) -> Checked:
    """Check the text of an example as a file in `folder`, with every rule of the profile `all`."""
    text = whole_text(text, example)
    root = example.get("primus_root")
    if example.get("files"):
        root = str(folder)
        presets = folder / "primus" / "configs" / "models" / "megatron"
        modules = folder / "primus" / "configs" / "modules" / "megatron"
        platforms = folder / "primus" / "configs" / "platforms"
        for place in (presets, modules, platforms):
            place.mkdir(parents=True, exist_ok=True)
        (modules / "pre_trainer.yaml").write_text(example.get("module", "lr: 1.0e-4") + "\n", encoding="utf-8")
        (platforms / "platform_azure.yaml").write_text("name: azure\n", encoding="utf-8")
        (presets / "llama3_8B.yaml").write_text("num_layers: 32\n", encoding="utf-8")
        for name, content in example["files"].items():
            if content is None:
                (presets / name).write_bytes(b"x: " + b"y" * ((16 << 20) + 1))  # more than a preset may hold
            else:
                (presets / name).write_text(content, encoding="utf-8")
    beside = dict(example.get("beside") or {})
    for number in range(example.get("chain") or 0):
        last = number + 1 == example["chain"]
        beside[f"p{number}.yaml"] = "exp_name: base\n" if last else f"extends: [p{number + 1}.yaml]\n"
    for name, content in beside.items():
        (folder / name).write_text(content, encoding="utf-8")
    path = folder / example.get("name", "recipe.yaml")
    data = text.encode(example.get("encoding", "utf-8"))
    path.write_bytes(data)
    options = Options(
        gpu=example.get("gpu"),
        world_size=example.get("world_size"),
        env=example.get("env"),
        set_values=list((example.get("set") or {}).items()),
        model=example.get("model"),
        framework_version=example.get("version"),
        primus_root=root,
    )
    settings = Settings()
    settings.profile = "all"
    if example.get("before") is not None:  # the same file at the base revision
        options.base = AsItWas(whole_text(example["before"], example), options)
    checked = check_source(SourceText.from_path(str(path)), options, settings)
    others = [str(folder / name) for name in beside]
    drift([checked, *(check_source(SourceText.from_path(other), options, settings) for other in others)])
    return checked


class AsItWas(Base):
    """A base revision that holds one text."""

    def __init__(self, text: str, options: Options) -> None:
        self.name, self.limit, self.options, self.comparisons = "main", 0.03, options, []
        self.text, self.changed, self.renamed, self.root = text, set(), {}, "/"

    def _show(self, path: str) -> bytes:
        return self.text.encode()


def codes(text: str, example: dict[str, Any], folder: Path) -> list[str]:
    return [finding.code for finding in check_text(text, example, folder).findings]
