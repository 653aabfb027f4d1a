"""The server as an editor sees it: a real process over stdio, every message by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls (extra `lsp`)")

from tests.server.client import ENVIRONMENT, Client, apply_edits, find

EXAMPLES = ("clean-llama3.1_8B", "illegal-qwen2.5_7B", "oom-llama3.1_70B", "slow-mixtral_8x7B")
LEVELS = {1: "error", 2: "warning", 3: "info"}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in another process."""
    command = [sys.executable, "-m", "primus_lint", *words]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)


def everything(text: str) -> dict[str, Any]:
    return {"start": {"line": 0, "character": 0}, "end": {"line": text.count("\n"), "character": 0}}


def by_code(diagnostics: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["code"]: item for item in diagnostics}


def edits_of(action: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    (change,) = action["edit"]["documentChanges"]
    assert change["textDocument"]["uri"] == path.as_uri()
    return list(change["edits"])


def test_what_it_offers(repo: Path) -> None:
    client = Client(repo)
    try:
        answer = client.start({"general": {"positionEncodings": ["utf-8", "utf-16"]}})
        offered = answer["capabilities"]
        assert answer["serverInfo"]["name"] == "primus-lint"
        assert offered["hoverProvider"] and offered["completionProvider"] and offered["codeActionProvider"]
        assert sorted(offered["executeCommandProvider"]["commands"]) == ["primus-lint.fix", "primus-lint.repair"]
        assert client.stop() == 0
    finally:
        client.kill()


@pytest.mark.parametrize("name", EXAMPLES)
def test_diagnostics_are_the_findings_of_the_command_line(client: Client, repo: Path, name: str) -> None:
    path = repo / f"configs/{name}.yaml"
    report = json.loads(run(repo, "--output-format", "json", str(path)).stdout)
    expected = {
        (f["name"], f["severity"], f["span"]["line"] - 1, f["span"]["column"] - 1)
        for f in report["findings"]
        if f["suppressed"] is None
    }
    shown = {
        (d["code"], LEVELS[d["severity"]], d["range"]["start"]["line"], d["range"]["start"]["character"])
        for d in client.open(path)
    }
    assert shown == expected
    assert expected or name.startswith("clean")


def test_diagnostics_follow_the_text(client: Client, repo: Path) -> None:
    path = repo / "configs/illegal-qwen2.5_7B.yaml"
    text = path.read_text()
    assert "layers-divide-pipeline" in by_code(client.open(path))
    key = "pipeline_model_parallel_size: "
    assert text.count(key + "8 #") == 1
    legal = text.replace(key + "8 #", key + "1 #")
    assert "layers-divide-pipeline" not in by_code(client.change(path, legal, 2))
    broken = by_code(client.change(path, text + "  }:\n", 3))
    assert broken["yaml-syntax"]["severity"] == 1
    client.hover(path, 5, 4)  # it answers, though of a text that does not parse nothing is sure
    assert "layers-divide-pipeline" in by_code(client.change(path, text, 4))
    client.notify("textDocument/didClose", {"textDocument": {"uri": path.as_uri()}})
    assert client.diagnostics(path) == []


@pytest.mark.parametrize("uri", ["file:///nowhere/at-all.yaml", "untitled:Untitled-1", "file:///", ""])
def test_a_document_that_is_not_there_has_nothing_to_say(client: Client, repo: Path, uri: str) -> None:
    """Answers, not errors: an editor may ask before it has opened, or after a file is gone."""
    where = {"textDocument": {"uri": uri}, "position": {"line": 3, "character": 4}}
    assert client.request("textDocument/hover", where) is None
    assert client.request("textDocument/completion", where) == []
    context = {"textDocument": {"uri": uri}, "range": everything(""), "context": {"diagnostics": []}}
    assert client.request("textDocument/codeAction", context) == []
    for command in ("primus-lint.fix", "primus-lint.repair"):
        client.request("workspace/executeCommand", {"command": command, "arguments": [uri]})
        shown = client.wait_method("window/showMessage")["params"]
        assert "cannot be read" in shown["message"]


def test_a_file_that_is_not_open_is_read(client: Client, repo: Path) -> None:
    path = repo / "configs/clean-llama3.1_8B.yaml"
    line, column = find(path.read_text(), "micro_batch_size")
    assert "**micro_batch_size** = `2`" in client.hover(path, line, column)


def test_yaml_that_is_no_recipe_is_left_alone(client: Client, repo: Path) -> None:
    path = repo / "compose.yaml"
    path.write_text("services:\n  web:\n    image: nginx\n")
    assert client.open(path) == []
    assert client.actions(path, everything(path.read_text())) == []


def test_characters_outside_of_the_basic_plane_count_two(client: Client, repo: Path) -> None:
    path = repo / "configs/oom-llama3.1_70B.yaml"
    text = path.read_text().replace("micro_batch_size: 4 # as", "{key}: 4 # as")
    wide = text.replace("      {key}: 4", '      "micro_batch_size": ${🚀:4}')
    start = by_code(client.open(path, wide))["hbm-overflow"]["range"]["start"]
    line, column = find(wide, "${🚀:4}")
    assert (start["line"], start["character"]) == (line, column)
    end = by_code(client.change(path, wide, 2))["hbm-overflow"]["range"]["end"]
    assert end["character"] - start["character"] == len("${:4}") + 2


def test_utf8_columns_when_the_client_wants_them(repo: Path) -> None:
    client = Client(repo)
    try:
        client.start({"general": {"positionEncodings": ["utf-8"]}})
        path = repo / "configs/oom-llama3.1_70B.yaml"
        text = path.read_text().replace("micro_batch_size: 4", '{"é": 0, micro_batch_size: 4}')
        wide = path.read_text().replace("      micro_batch_size: 4 # as", "      micro_batch_size: ${é:4} # as")
        assert wide != text
        place = by_code(client.open(path, wide))["hbm-overflow"]["range"]
        assert place["end"]["character"] - place["start"]["character"] == len("${é:4}".encode())
    finally:
        client.kill()


def test_settings_and_parents_are_read_again(client: Client, repo: Path) -> None:
    path = repo / "configs/illegal-qwen2.5_7B.yaml"
    assert "layers-divide-pipeline" in by_code(client.open(path))
    settings = repo / "primus-lint.toml"
    good = settings.read_text()
    settings.write_text('ignore = ["layers-divide-pipeline"]\n' + good)
    client.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": settings.as_uri(), "type": 2}]})
    assert "layers-divide-pipeline" not in by_code(client.diagnostics(path))
    settings.write_text("fail_on = 'error'\n" + good)
    client.notify("textDocument/didSave", {"textDocument": {"uri": path.as_uri()}})
    assert "layers-divide-pipeline" in by_code(client.diagnostics(path))
    (problem,) = client.diagnostics(settings, count=1)
    assert problem["code"] == "settings-unknown-key" and "fail-on" in problem["message"]
    assert problem["range"] == {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 7}}
    settings.write_text('ignore = [\n  "E1",\n  "hbm-overflo",\n]\nrule-paths = ["none"]\n' + good)
    client.notify("textDocument/didSave", {"textDocument": {"uri": path.as_uri()}})
    folder, pattern = client.diagnostics(settings, count=2)
    assert folder["code"] == "settings-rule-paths" and folder["severity"] == 1
    assert pattern["code"] == "settings-pattern" and "did you mean hbm-overflow?" in pattern["message"]
    line = settings.read_text().splitlines()[pattern["range"]["start"]["line"]]
    assert line[pattern["range"]["start"]["character"] : pattern["range"]["end"]["character"]] == "hbm-overflo"
    settings.write_text(good)
    client.notify("textDocument/didSave", {"textDocument": {"uri": path.as_uri()}})
    assert client.diagnostics(settings, count=0) == []


def test_the_client_gives_the_target(repo: Path) -> None:
    (repo / "primus-lint.toml").unlink()
    path = repo / "configs/oom-llama3.1_70B.yaml"
    client = Client(repo)
    try:
        client.start(options={"gpu": "mi300x", "nodes": 1})
        assert "hbm-overflow" in by_code(client.open(path))
        client.notify(
            "workspace/didChangeConfiguration", {"settings": {"primus-lint": {"gpu": "mi300x", "worldSize": 2048}}}
        )
        assert "target 2,048 x mi300x" in _after(client, path)
        client.notify("workspace/didChangeConfiguration", {"settings": {"primus-lint": {"gpu": "mi999x"}}})
        message = client.wait_method("window/showMessage")["params"]
        assert message["type"] == 1 and "mi999x" in message["message"] and "mi300x" in message["message"]
    finally:
        client.kill()


def _after(client: Client, path: Path) -> str:
    client.diagnostics(path)
    return client.hover(path, *find(path.read_text(), "model: llama"))


def test_command_line_options_hold_for_every_file(repo: Path) -> None:
    (repo / "primus-lint.toml").unlink()
    client = Client(repo, "--gpu", "mi300x", "--nodes", "1", "--stdio")
    try:
        client.start()
        assert "hbm-overflow" in by_code(client.open(repo / "configs/oom-llama3.1_70B.yaml"))
    finally:
        client.kill()


def test_a_wrong_option_and_a_missing_library_are_said(repo: Path) -> None:
    wrong = run(repo, "server", "--gpu", "mi999x")
    assert wrong.returncode == 2 and "mi999x" in wrong.stderr
    code = (
        "import sys; sys.modules['pygls'] = None\n"
        "from primus_lint.cli.group import cli\n"
        "cli(['server'], prog_name='primus-lint')\n"
    )
    missing = subprocess.run([sys.executable, "-c", code], cwd=repo, env=ENVIRONMENT, capture_output=True, text=True)
    assert missing.returncode == 2 and "pip install 'primus-lint[lsp]'" in missing.stderr


def test_hover_shows_value_chain_facts_and_effect(client: Client, repo: Path) -> None:
    path = repo / "configs/clean-llama3.1_8B.yaml"
    text = path.read_text()
    client.open(path)
    shown = client.hover(path, *find(text, "tensor_model_parallel_size"))
    assert "used `1` from experiment, line " in shown
    assert "language_model.yaml" in shown  # what it overrides
    assert "`int`, default `1`" in shown
    row = next(line for line in shown.splitlines() if line.startswith("| `2` "))
    data = json.loads(
        run(repo, "project", str(path), "--set", "tensor_model_parallel_size=2", "--format", "json").stdout
    )
    peak = max(rank["device_high_bytes"] for rank in data["memory"]["ranks"])
    assert f"{peak / 2**30:,.1f} GiB of" in row
    assert f"{data['time']['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU" in row


def test_hover_says_what_the_framework_makes_of_a_value(client: Client, repo: Path) -> None:
    path = repo / "configs/clean-llama3.1_8B.yaml"
    text = path.read_text() + "      sequence_parallel: true\n"  # Megatron switches it off at TP 1
    client.open(path, text)
    assert "then `false`: " in client.hover(path, *find(text, "sequence_parallel"))
    assert "|" not in client.hover(path, *find(text, "lr:"))  # a key that moves no figure has no table


def test_a_what_if_changes_what_must_change_together(client: Client, repo: Path) -> None:
    path = repo / "configs/slow-mixtral_8x7B.yaml"  # recomputes every layer, method uniform
    client.open(path)
    rows = client.hover(path, *find(path.read_text(), "recompute_granularity")).splitlines()
    off = next(row for row in rows if row.startswith("| `null`"))
    assert "recompute_method null" in off and "recompute_num_layers null" in off
    words = [
        "--set",
        "recompute_granularity=null",
        "--set",
        "recompute_method=null",
        "--set",
        "recompute_num_layers=null",
    ]
    data = json.loads(run(repo, "project", str(path), *words, "--format", "json").stdout)
    assert f"{data['time']['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU" in off


def test_hover_on_a_section_and_on_a_suppression(client: Client, repo: Path) -> None:
    path = repo / "configs/clean-llama3.1_8B.yaml"
    text = path.read_text() + "# primus-lint: file-ignore[hbm-overflow] looked at by hand\n"
    client.open(path, text)
    assert "tokens/s/GPU" in client.hover(path, *find(text, "pre_trainer:"))
    line, column = find(text, "hbm-overflow")
    assert "(M101), error" in client.hover(path, line, column + 3)
    assert client.hover(path, line, 2) == ""


def test_hover_in_flags_and_in_a_launch_script(client: Client, repo: Path) -> None:
    flags = repo / "model_config.yaml"
    flags.write_text("ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 4\n  --tensor-model-parallel-size: 2\n")
    client.open(flags)
    assert "**tensor_model_parallel_size** = `2`" in client.hover(flags, 4, 10)
    script = repo / "train.sh"
    script.write_text("#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --bf16\n")
    client.open(script, language="shellscript")
    line, column = find(script.read_text(), "--hidden-size")
    assert "**hidden_size** = `64`" in client.hover(script, line, column + 3)


def test_a_fix_is_an_edit_that_works(client: Client, repo: Path) -> None:
    path = repo / "configs/slow-mixtral_8x7B.yaml"
    text = path.read_text().replace("global_batch_size: ", "global_batch_size: 7 # ", 1)
    path.write_text(text)
    found = by_code(client.open(path))
    name = "global-batch-divides"
    assert name in found
    offered = client.actions(path, found[name]["range"], only=["quickfix"])
    titles = [action["title"] for action in offered]
    assert not any("global_batch_size" in title for title in titles)  # changes what is trained: shown, never written
    assert "by hand: use global_batch_size" in found[name]["message"]


@pytest.mark.parametrize("written, wanted", [("tensor_model_parallel_sise: 2", "tensor_model_parallel_size: 2")])
def test_a_misspelt_key_is_renamed(client: Client, repo: Path, written: str, wanted: str) -> None:
    path = repo / "configs/clean-llama3.1_8B.yaml"
    text = path.read_text()
    line = next(line for line in text.splitlines() if "tensor_model_parallel_size" in line)
    bad = text.replace(line, "      " + written)
    found = by_code(client.open(path, bad))["unknown-key"]
    offered = client.actions(path, found["range"], only=["quickfix"])
    fix = next(action for action in offered if "edit" in action and "Suppress" not in action["title"])
    assert fix["isPreferred"] is True and fix["diagnostics"][0]["code"] == "unknown-key"
    assert apply_edits(bad, edits_of(fix, path)) == bad.replace(written, wanted)


def test_suppress_here(client: Client, repo: Path) -> None:
    path = repo / "configs/illegal-qwen2.5_7B.yaml"
    text = path.read_text()
    found = by_code(client.open(path))["layers-divide-pipeline"]
    offered = client.actions(path, found["range"])
    comment = next(action for action in offered if action["title"] == "Suppress layers-divide-pipeline here")
    after = apply_edits(text, edits_of(comment, path))
    added = [line for line in after.splitlines() if line not in text.splitlines()]
    assert added == ["      # primus-lint: ignore[layers-divide-pipeline]"]
    assert "layers-divide-pipeline" not in by_code(client.change(path, after, 2))


def test_only_the_kinds_that_are_asked_for(client: Client, repo: Path) -> None:
    path = repo / "configs/oom-llama3.1_70B.yaml"
    whole = everything(path.read_text())
    client.open(path)
    for wanted, kinds in (
        ("quickfix", {"quickfix"}),
        ("source", {"source", "source.fixAll.primus-lint"}),
        ("source.fixAll", {"source.fixAll.primus-lint"}),
        ("refactor", set()),
    ):
        assert {action["kind"] for action in client.actions(path, whole, only=[wanted])} == kinds


@pytest.mark.parametrize("command, words", [("primus-lint.repair", ["--no-tune"]), ("primus-lint.fix", [])])
def test_the_command_writes_what_fix_writes(client: Client, repo: Path, command: str, words: list[str]) -> None:
    path = repo / "configs/oom-llama3.1_70B.yaml"
    text = path.read_text()
    found = by_code(client.open(path))["hbm-overflow"]
    search = next(
        a for a in client.actions(path, found["range"]) if a.get("command", {}).get("command") == "primus-lint.repair"
    )
    assert search["kind"] == "quickfix"
    client.request("workspace/executeCommand", {"command": command, "arguments": [path.as_uri()]})
    request = client.wait_method("workspace/applyEdit")
    client.send({"id": request["id"], "result": {"applied": True}})
    (change,) = request["params"]["edit"]["documentChanges"]
    assert change["textDocument"]["version"] == 1
    after = apply_edits(text, change["edits"])
    assert "applied: " in client.wait_method("window/showMessage")["params"]["message"]
    assert path.read_text() == text  # the server writes no file: the editor does
    run(repo, "--fix", *words, str(path))
    assert path.read_text() == after != text
    assert "hbm-overflow" not in by_code(client.change(path, after, 2))


def test_what_differs_from_siblings_is_shown_as_in_a_run_over_the_folder(client: Client, repo: Path) -> None:
    text = (repo / "configs/clean-llama3.1_8B.yaml").read_text()
    for device in ("MI300X", "MI325X", "MI355X"):
        (repo / device).mkdir()
        (repo / device / "llama.yaml").write_text(text)
    path = repo / "MI355X" / "llama.yaml"
    odd = text.replace(" lr: 3.0e-4\n", " lr: 7.0e-4\n")
    assert odd != text
    drift = by_code(client.open(path, odd))["sibling-drift"]  # the editor's text counts, not the file's
    path.write_text(odd)
    lines = [
        line for line in run(repo, "--output-format", "concise", ".").stdout.splitlines() if "sibling-drift" in line
    ]
    assert len(lines) == 1 and drift["message"].splitlines()[0] in lines[0]
    assert drift["relatedInformation"][0]["location"]["uri"] == (repo / "MI300X" / "llama.yaml").as_uri()
    assert "sibling-drift" not in by_code(client.change(path, text, 2))


def test_rules_of_ones_own_hold_in_the_editor(client: Client, repo: Path) -> None:
    (repo / "own").mkdir()
    (repo / "own" / "Z101-house-batch.yaml").write_text(
        "code: Z101\nname: house-batch\nseverity: warning\nrequire: global_batch_size % 96 == 0\n"
        'message: "our batches are multiples of 96"\nwhat: House rule.\nwhy: Our data loader.\n'
    )
    settings = repo / "primus-lint.toml"
    settings.write_text('rule-paths = ["own"]\n' + settings.read_text())
    path = repo / "configs/clean-llama3.1_8B.yaml"
    assert "house-batch" in by_code(client.open(path))
    (repo / "own" / "Z101-house-batch.yaml").write_text("code: Z101\n")
    settings.write_text(settings.read_text().replace('"own"', '"own/"'))
    client.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": settings.as_uri(), "type": 2}]})
    assert "name is missing" in client.wait_method("window/showMessage")["params"]["message"]
    assert "house-batch" not in by_code(client.diagnostics(path))
