"""Readers: one per configuration format, each giving a ResolvedDocument."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from primus_lint.readers.document import ResolvedDocument
    from primus_lint.source.text import SourceText

SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".sub")
YAML_SUFFIXES = (".yaml", ".yml")


def read(
    source: SourceText | str,
    *,
    env: Mapping[str, str] | None = None,
    set_values: Sequence[tuple[str, str]] = (),
    primus_root: str | None = None,
    snapshot: str | None = None,
    model: str | None = None,
    version: str | None = None,
) -> ResolvedDocument:
    """Read a file of any known format; the format is told by the content.

    `source` is a text or a path; `env`, `set_values`, `primus_root`, `snapshot` as for `read_primus`; `model` names a
    Primus preset or a model of the shipped table; `version` is the Megatron version whose flags hold in the formats
    that are made of flags. Raises OSError for a path that cannot be read, SnapshotError for an unknown snapshot.
    """
    if isinstance(source, str):
        from primus_lint.source.text import SourceText

        source = SourceText.from_path(source)
    kind = format_of(source)
    if kind == "shell":
        from primus_lint.readers.shell import read_shell

        return read_shell(source, env=env, set_values=set_values, model=model, version=version)
    if kind == "megatron-yaml":
        from primus_lint.readers.megatron_yaml import read_megatron_yaml

        return read_megatron_yaml(source, env=env, set_values=set_values, model=model, version=version)
    from primus_lint.readers.primus import read_primus

    return read_primus(source, env=env, set_values=set_values, primus_root=primus_root, snapshot=snapshot, model=model)


def format_of(source: SourceText) -> str:
    """ "shell", "megatron-yaml" or "primus" (any other YAML is read as "primus" and turns out to be no recipe)."""
    suffix = os.path.splitext(source.path)[1].lower()
    text = source.text
    if suffix in SHELL_SUFFIXES or (suffix not in YAML_SUFFIXES and _shebang(text)):
        return "shell"
    at = text.find("MODEL_ARGS:")
    if at == 0 or (at > 0 and text[at - 1] in "\r\n"):
        return "megatron-yaml"
    return "primus"


def _shebang(text: str) -> bool:
    first = text[:80].partition("\n")[0]
    return first.startswith("#!") and ("sh" in first.split("/")[-1])
