"""The server under a real editor: Neovim without a screen opens a recipe, shows, hovers, fixes, and saves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs pygls (extra `lsp`)")

from tests.server.client import ENVIRONMENT

SCRIPT = """
local seen = {}
local id = vim.lsp.start_client({ name = "primus-lint", cmd = { PYTHON, "-m", "primus_lint", "server" } })
vim.lsp.buf_attach_client(0, id)
local function diagnostics() return vim.diagnostic.get(0) end
local function wait(what, done)
  if not vim.wait(60000, done, 50) then seen.timeout = what end
end
wait("diagnostics", function() return #diagnostics() > 0 end)
seen.diagnostics = vim.tbl_map(function(d) return { d.lnum, d.col, d.severity, d.code, d.source } end, diagnostics())
local uri = vim.uri_from_bufnr(0)
local function ask(method, params)
  local answers = vim.lsp.buf_request_sync(0, method, params, 60000)
  return answers[id].result
end
local line = vim.fn.search("micro_batch_size")
local position = { line = line - 1, character = 8 }
seen.hover = ask("textDocument/hover", { textDocument = { uri = uri }, position = position }).contents.value
local text = vim.api.nvim_buf_get_lines(0, 0, -1, false)
ask("workspace/executeCommand", { command = "primus-lint.repair", arguments = { uri } })
wait("the edit", function() return not vim.deep_equal(text, vim.api.nvim_buf_get_lines(0, 0, -1, false)) end)
wait("no diagnostics", function() return #diagnostics() == 0 end)
seen.left = #diagnostics()
vim.cmd("write")
vim.fn.writefile({ vim.json.encode(seen) }, OUT)
vim.lsp.stop_client(id)
vim.cmd("qall!")
"""


@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed (Debian: apt-get install neovim)")
def test_neovim(repo: Path) -> None:
    path = repo / "configs/oom-llama3.1_70B.yaml"
    before = path.read_text()
    line = next(number for number, text in enumerate(before.splitlines()) if "micro_batch_size:" in text)
    out = repo / "seen.json"
    script = repo / "editor.lua"
    script.write_text(f"PYTHON, OUT = {json.dumps(sys.executable)}, {json.dumps(str(out))}\n{SCRIPT}")
    command = ["nvim", "--clean", "--headless", str(path), "-c", f"luafile {script}"]
    done = subprocess.run(command, cwd=repo, env=ENVIRONMENT, capture_output=True, text=True, timeout=240)
    assert out.exists(), done.stderr
    seen = json.loads(out.read_text())
    assert "timeout" not in seen, seen
    assert [line, "hbm-overflow", "primus-lint"] in [[d[0], d[3], d[4]] for d in seen["diagnostics"]]
    assert "**micro_batch_size** = `4`" in seen["hover"] and "does not fit" in seen["hover"]
    assert seen["left"] == 0
    assert path.read_text() != before
    check = subprocess.run(
        [sys.executable, "-m", "primus_lint", str(path)], cwd=repo, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert check.returncode == 0, check.stdout
