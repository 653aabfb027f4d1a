"""The documentation site: generated pages say what the tool says, and no link is dead."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from primus_lint.cli.group import cli
from primus_lint.cli.options import CHECK, COMMANDS, FIX
from primus_lint.hardware import accelerator, names
from primus_lint.settings import KEYS
from tools import gen_docs
from tools.docs import console, reference, rule_pages
from tools.docs.links import dead_links, headings, links, rewrite_outside


@cache
def pages() -> dict[str, str]:
    """The site without the output of commands (the last test runs those)."""
    hand = gen_docs.written()
    filled = {path: gen_docs.fill(text) for path, text in hand.items()}
    return {**filled, **gen_docs.generated(frozenset(hand))}


@cache
def rules() -> list[dict[str, Any]]:
    return rule_pages.rules()


def test_every_rule_is_documented() -> None:
    for rule in rules():
        for field in ("what", "why"):
            assert len(rule[field].split()) >= 2, f"{rule['code']}: {field} says nothing"
        kinds = {kind for example in rule.get("examples") or [] for kind in ("bad", "good") if kind in example}
        assert "bad" in kinds, f"{rule['code']}: no example that it reports"


def test_a_page_shows_what_every_bad_example_gives() -> None:
    for rule in rules():
        text = pages()[f"rules/{rule['name']}.md"]
        bad = sum("bad" in example for example in rule["examples"])
        shown = re.findall(rf"^(?:error|warning|info)\[{rule['name']}\]: .", text, re.M)
        assert len(shown) >= bad, f"{rule['code']}: {len(shown)} outputs for {bad} examples"
        assert " ".join(rule["why"].split()).replace("<", "&lt;") in text
        assert f"[{rule['name']}]({rule['name']}.md)" in pages()["rules/index.md"]


def test_no_page_knows_this_machine() -> None:
    for path, text in pages().items():
        assert gen_docs.ROOT not in text, path
        assert not re.search(r"/(?:tmp|work|root)/", text), path


def test_no_dead_link() -> None:
    assert dead_links(pages(), gen_docs.exists) == []


def test_navigation_leads_to_pages() -> None:
    with open(os.path.join(gen_docs.ROOT, "mkdocs.yml"), encoding="utf-8") as file:
        config = yaml.safe_load(file)
    stack, found = list(config["nav"]), []
    while stack:
        for value in stack.pop().values():
            if isinstance(value, list):
                stack += value
            else:
                found.append(value)
    assert len(found) >= 12
    assert set(found) <= set(pages())
    assert all(os.path.isfile(os.path.join(gen_docs.ROOT, hook)) for hook in config["hooks"])


def test_a_page_for_every_device_with_a_source_in_every_row() -> None:
    for name in names():
        device = accelerator(name)
        assert device is not None
        text = pages()[f"hardware/{name}.md"]
        assert f"{device.visible_hbm_bytes:,} B" in text
        rows = [line for line in text.split("## Rates")[0].splitlines() if line.startswith("| ")][2:]
        assert rows and all(len(line.split(" | ")[2].strip("| ")) > 5 or "band" in line for line in rows)


def test_references_name_everything() -> None:
    commands = reference.command_line()
    for name in COMMANDS:
        assert f"\n### {name}\n" in "\n" + commands
    for option in (*CHECK, *FIX):
        assert f"`{option.flag}`" in commands
    settings = reference.settings()
    for key in KEYS:
        assert f"`{key}`" in settings


def test_dead_links_are_found() -> None:
    site = {
        "a.md": "# One\n[b](x/b.md) [gone](c.md) [top](#one) [no](#two) [web](https://e.org) `[code](d.md)`\n"
        "```\n[block](e.md)\n```\n[up](../LICENSE) [file](pic.png)",
        "x/b.md": "# Two `words`\n[a](../a.md#one) [self](b.md#two-words) [bad](../a.md#three)",
    }
    assert dead_links(site, lambda path: path in ("../LICENSE", "pic.png")) == [
        "a.md: c.md", "a.md: #two", "x/b.md: ../a.md#three"
    ]  # fmt: skip
    assert dead_links({"a.md": "[up](../LICENSE)"}) == ["a.md: ../LICENSE"]
    assert links("[x](y.md) ``[z](`w)``") == ["y.md"]
    assert rewrite_outside("[x](../A.md#b) [y](z.md)", "http://e/") == "[x](http://e/A.md#b) [y](z.md)"


def test_anchors_are_those_of_the_real_converter() -> None:
    markdown = pytest.importorskip("markdown", reason="comes with the extra `docs`")
    for path, text in gen_docs.written().items():
        converter = markdown.Markdown(extensions=["toc", "fenced_code", "tables", "attr_list"])
        html = converter.convert(text)
        assert headings(text) == set(re.findall(r'<h\d id="([^"]+)"', html)), path


def test_commands_show_what_they_print() -> None:
    page = "Before\n\n```run\n$ ls configs | head -1\n$ false  # exit 1\n$ git log --format=%as\n```\n\nAfter\n"
    first = sorted(os.listdir(os.path.join(gen_docs.ROOT, "examples", "configs")))[0]
    wanted = f"$ ls configs | head -1\n{first}\n$ false\n(exit status 1)\n$ git log --format=%as\n2026-01-05"
    assert console.expand(page) == f"Before\n\n```console\n{wanted}\n```\n\nAfter\n"


@pytest.mark.parametrize("block", ["$ false", "$ true  # exit 1", "no command"])
def test_a_command_that_ends_otherwise_stops_the_build(block: str) -> None:
    with pytest.raises(console.CommandFailed):
        console.expand(f"```run\n{block}\n```\n")


def test_every_command_of_every_page_runs() -> None:
    for path, text in gen_docs.written().items():
        shown = gen_docs.expand(text)
        assert "```run" not in shown, path
        assert gen_docs.ROOT not in shown, path


def test_the_readme_shows_what_is_printed() -> None:
    """Its block of findings, line by line; a line that ends in "..." is the beginning of one."""
    with open(os.path.join(gen_docs.ROOT, "README.md"), encoding="utf-8") as file:
        text = file.read().partition("## What it says")[2]
    shown = [line for line in text.split("```")[1].splitlines() if line]
    result = CliRunner().invoke(
        cli, ["check", "-q", "--output-format", "text", os.path.join(gen_docs.ROOT, "examples", "configs")]
    )
    printed = [line.replace(os.path.relpath(gen_docs.ROOT) + "/", "") for line in result.output.splitlines()]
    printed = [line.replace(gen_docs.ROOT + "/", "") for line in printed]
    for line in shown:
        begin = line.removesuffix("...")
        assert any(other == line or (begin != line and other.startswith(begin)) for other in printed), line
