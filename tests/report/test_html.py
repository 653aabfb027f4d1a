"""The HTML report: well formed, self-contained, and its charts hold the figures of the JSON report."""

from __future__ import annotations

import itertools
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import CLEAN, ILLEGAL, OOM, SLOW

VOID = {"meta", "br", "wbr"}


class Page(HTMLParser):
    """Checks the nesting of tags, and keeps elements with their attributes and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack[-1] == tag, (tag, self.stack)
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        self.words += data


def page(lint: Any, *words: str) -> Page:
    return Page(lint("--output-format", "html", *words).stdout)


def test_it_is_one_well_formed_page_that_asks_for_nothing(repo: Path, lint: Any) -> None:
    text = lint("--output-format", "html", "configs").stdout
    found = Page(text)
    assert {tag for tag, _ in found.elements}.isdisjoint({"script", "link", "img", "iframe", "object"})
    for _, attributes in found.elements:
        assert not attributes.get("src") and attributes.get("href", "#").startswith("#")
    assert "url(" not in text and "@import" not in text and str(repo) not in text
    anchors = {attributes["id"] for _, attributes in found.elements if "id" in attributes}
    links = {attributes["href"][1:] for tag, attributes in found.elements if tag == "a"}
    assert links == anchors and len(anchors) == 4


def test_memory_bars_add_up_to_the_device_bytes(repo: Path, lint: Any, report: Any) -> None:
    account = report(OOM)["files"][0]["memory"]
    text = lint("--output-format", "html", OOM).stdout
    bars = re.findall(r'<div class="bar">(.*?)</div>', text, re.S)[: len(account["ranks"])]
    marks = re.findall(r'class="mark" style="left:([\d.]+)%', text)
    assert len(marks) == len(account["ranks"]) == 2
    for bar, mark, rank in zip(bars, marks, account["ranks"], strict=True):
        width = sum(float(part) for part in re.findall(r"width:([\d.]+)%", bar))
        # both are shares of one scale: the ratio of their lengths is the ratio of their bytes
        assert width / float(mark) == pytest.approx(rank["device_high_bytes"] / account["capacity_bytes"], rel=1e-3)
    assert text.count("out of memory</b>") == 2


def test_the_breakdown_adds_up(repo: Path, lint: Any) -> None:
    text = lint("--output-format", "html", CLEAN).stdout
    table = text[text.index("Where the time goes") :]
    bar = re.search(r'<div class="bar">(.*?)</div>', table, re.S)
    assert bar is not None
    assert sum(float(part) for part in re.findall(r"width:([\d.]+)%", bar[1])) == pytest.approx(100, abs=0.5)


def test_the_timeline_has_a_rectangle_for_every_event(repo: Path, lint: Any) -> None:
    """2 ranks, 16 micro-batches (global batch 64, micro-batch 4, one replica), forward and backward each."""
    text = lint("--output-format", "html", OOM).stdout
    rows = re.findall(r"<svg viewBox=\"0 0 1000 18\".*?</svg>", text, re.S)
    assert [row.count("<rect") for row in rows] == [32, 32]
    for row in rows:
        spans = [(float(x), float(width)) for x, width in re.findall(r'<rect x="([\d.]+)" y="0" width="([\d.]+)"', row)]
        assert all(left[0] + left[1] <= right[0] + 0.1 for left, right in itertools.pairwise(spans))
        assert spans[0][0] >= 0 and spans[-1][0] + spans[-1][1] <= 1000.1
    assert "Pipeline timeline" not in lint("--output-format", "html", CLEAN).stdout  # one rank has no pipeline


def test_words_of_a_recipe_are_no_markup(repo: Path, lint: Any) -> None:
    (repo / CLEAN).write_text((repo / CLEAN).read_text().replace("train_iters: 5000", "<script>alert(1)</script>: 1"))
    text = lint("--output-format", "html", CLEAN).stdout
    assert "<script" not in text and "&lt;script&gt;" in text


def test_excerpts_mark_the_value(repo: Path, lint: Any) -> None:
    found = page(lint, OOM)
    lines = found.words.splitlines()
    at = next(index for index, line in enumerate(lines) if "micro_batch_size: 4" in line)
    assert lines[at].index("4 #") == lines[at + 1].index("^")


def test_fix_adds_the_diff_and_the_recipes_that_were_weighed(repo: Path, lint: Any) -> None:
    lint("--fix", OOM, "--output-format", "html", "--output", "fix.html")
    text = (repo / "fix.html").read_text()
    found = Page(text)
    assert "What --fix changes" in found.words and "+++ b/" + OOM in found.words
    assert "Tuned recipes" in found.words and "as it was" in found.words
    circles = [attributes for tag, attributes in found.elements if tag == "circle"]
    assert len(circles) >= 2
    assert {attributes["fill"] for attributes in circles} >= {"#8a8f98", "#1b8a4b"}  # before and chosen


def test_a_page_of_many_files_stays_small(repo: Path, lint: Any) -> None:
    text = (repo / OOM).read_text()
    for index in range(60):
        (repo / "configs" / f"many{index}.yaml").write_text(text.replace("exp_name:", f"exp_name: n{index} #"))
    out = lint("--output-format", "html", "configs").stdout
    assert out.count("<section id=") == 40
    assert "24 more files are in the table above only" in out
    assert out.count('<a href="#f') == 64


def test_no_target_no_charts(repo: Path, lint: Any) -> None:
    out = lint("--isolated", "--output-format", "html", CLEAN, ILLEGAL, SLOW).stdout
    assert 'class="bar"' not in out and "legal on" in out


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine")
    return found


def ink(path: Path) -> tuple[int, int, float]:
    """Width, height and the share of bytes that differ from the commonest one, of an 8-bit PNG."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    body, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            body += data[at + 8 : at + 8 + length]
        at += length + 12
    raw = zlib.decompress(body)
    return width, height, 1 - max(raw.count(byte) for byte in set(raw)) / len(raw)


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_chromium_draws_it_within_the_window(
    request: pytest.FixtureRequest, repo: Path, lint: Any, tmp_path: Path, width: int
) -> None:
    """At phone and desktop width something is drawn, and the page is not wider than the window."""
    if "slow" not in request.config.option.markexpr:
        pytest.skip("slow: run with -m slow")
    probe = (
        "<script>addEventListener('load',()=>{document.title=document.documentElement.scrollWidth+' '+innerWidth;"
        "document.body.insertAdjacentHTML('beforeend','<i id=probe>'+document.title+'</i>')})</script></body>"
    )
    text = lint("--output-format", "html", "configs").stdout
    (tmp_path / "page.html").write_text(text)
    (tmp_path / "probe.html").write_text(text.replace("</body>", probe))
    base = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2400",
    ]  # fmt: skip
    shot = tmp_path / "page.png"
    subprocess.run([*base, f"--screenshot={shot}", (tmp_path / "page.html").as_uri()], capture_output=True, check=True)
    drawn_width, _, share = ink(shot)
    assert drawn_width == width and share > 0.02
    dump = subprocess.run(
        [*base, "--dump-dom", (tmp_path / "probe.html").as_uri()], capture_output=True, text=True, check=True
    )
    sizes = re.search(r'<i id="probe">(\d+) (\d+)</i>', dump.stdout)
    assert sizes is not None
    assert int(sizes[1]) <= int(sizes[2])
