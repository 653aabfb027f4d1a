"""Snapshots of presets: what they hold, what they refuse, and that the shipped one is that of the corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_lint.readers.snapshot import Snapshot, SnapshotError, digest, snapshot_path, take_snapshot, write_snapshot


def write(root: Path, name: str, text: str) -> None:
    path = root / "primus" / "configs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def test_facts_of_a_file(tmp_path: Path) -> None:
    text = (
        '# a comment with a secret\nextends: [b.yaml]\nlr: 2.0e-05\nname: "${X:8}"\nempty:\nsec:\n  deep: {k: null}\n'
    )
    write(tmp_path, "models/megatron/a.yaml", text)
    out = tmp_path / "presets.json"
    assert write_snapshot(str(tmp_path), "test", str(out)) == 1
    assert "comment" not in out.read_text()
    snapshot = Snapshot(str(out))
    assert snapshot.version == "test" and snapshot.names() == ["models/megatron/a.yaml"]
    facts = snapshot.facts("models/megatron/a.yaml")
    assert facts is not None and facts["digest"] == digest(text.encode())
    assert facts["keys"] == [
        ["extends", 2, 1, 2, 10, 8, ["b.yaml"]],
        ["lr", 3, 1, 3, 5, 7, 2e-05, "2.0e-05"],
        ["name", 4, 1, 4, 7, 8, "${X:8}", '"${X:8}"'],
        ["empty", 5, 1, 5, 1, 0, None, ""],
        ["sec", 6, 1, 7, 3, 15, {"keys": [["deep", 7, 3, 7, 9, 9, {"keys": [["k", 7, 10, 7, 13, 4, None]]}]]}],
    ]
    assert snapshot.facts("models/megatron/b.yaml") is None
    assert json.loads(out.read_text())["files"]["models/megatron/a.yaml"] == facts


@pytest.mark.parametrize("text", ["a: [\n", "- 1\n", "", "on: 1\n", "a: 2024-01-01\n"])
def test_what_is_no_preset_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path, "models/megatron/a.yaml", text)
    with pytest.raises(SnapshotError, match=r"a\.yaml"):
        take_snapshot(str(tmp_path), "test")


def test_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="no Primus checkout"):
        take_snapshot(str(tmp_path), "test")
    with pytest.raises(SnapshotError, match="fd1eeabb"):
        snapshot_path("nosuch")


def test_the_shipped_snapshot_is_that_of_the_corpus(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "presets.json"
    assert write_snapshot(str(corpus), "fd1eeabb", str(out)) == 178
    assert out.read_bytes() == Path(snapshot_path()).read_bytes()


def test_a_snapshot_by_path(tmp_path: Path, corpus: Path) -> None:
    from primus_lint.readers.primus import read_primus
    from primus_lint.source.text import SourceText

    write(tmp_path, "modules/megatron/pre_trainer.yaml", "lr: 1.0\n")
    write(tmp_path, "models/megatron/m.yaml", "num_layers: 2\n")
    out = tmp_path / "mine.json"
    write_snapshot(str(tmp_path), "mine", str(out))
    text = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\nmodules:\n  pre_trainer:\n"
    text += "    framework: megatron\n    config: pre_trainer\n    model: m\n"
    document = read_primus(SourceText.from_text("x.yaml", text), snapshot=str(out))
    assert {key: value.value for key, value in document.sections[0].values.items()} == {"lr": 1.0, "num_layers": 2}
    assert "mine" in document.preset_source
