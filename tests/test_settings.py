"""Settings: where they are looked for, what they say, and what is wrong with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from primus_lint.settings import (
    Settings,
    forget_settings,
    glob_regex,
    load_settings,
    target_comment,
    target_words,
    version_satisfies,
)

FULL = """\
select = ["P", "memory-overflow"]
ignore = ["T001"]
extend-select = ["D"]
fail-on = "warning"
profile = "all"
rule-paths = ["lint/rules"]
required-version = ">=0.0.1"
framework-version = "d98e8a64"

[per-file-ignores]
"examples/**/MI300X/*.yaml" = ["K010"]
"*.sh" = ["S", "K"]

[[targets]]
files = "**/*.yaml"
gpu = "mi300x"
nodes = 1

[[targets]]
files = "big/"
gpu = "mi355x"
world-size = 64
gpus-per-node = 8
"""


@pytest.fixture(autouse=True)
def fresh() -> Any:
    forget_settings()
    yield
    forget_settings()


def settings_of(tmp_path: Path, text: str, name: str = "primus-lint.toml") -> Settings:
    (tmp_path / name).write_text(text)
    return load_settings(str(tmp_path / "x.yaml"))


def test_every_key(tmp_path: Path) -> None:
    (tmp_path / "lint" / "rules").mkdir(parents=True)
    settings = settings_of(tmp_path, FULL)
    assert settings.problems == []
    assert settings.path == str(tmp_path / "primus-lint.toml")
    assert settings.select == ("P", "memory-overflow") and settings.ignore == ("T001",)
    assert settings.extend_select == ("D",) and settings.rule_folders() == (str(tmp_path / "lint/rules"),)
    assert (settings.fail_on, settings.profile, settings.framework_version) == ("warning", "all", "d98e8a64")
    assert settings.ignored_in(str(tmp_path / "examples/a/b/MI300X/x.yaml")) == ("K010",)
    assert settings.ignored_in(str(tmp_path / "examples/MI300X/x.yaml")) == ("K010",)
    assert settings.ignored_in(str(tmp_path / "examples/MI300X/sub/x.yaml")) == ()
    assert settings.ignored_in(str(tmp_path / "deep/run.sh")) == ("S", "K")
    assert settings.target_for(str(tmp_path / "a/x.yaml")) == {"gpu": "mi300x", "nodes": 1}
    assert settings.target_for(str(tmp_path / "big/deep/x.yaml")) == {
        "gpu": "mi355x", "world_size": 64, "gpus_per_node": 8,
    }  # fmt: skip
    assert settings.target_for(str(tmp_path / "x.sh")) is None


def test_pyproject_table_gives_the_same(tmp_path: Path) -> None:
    (tmp_path / "lint" / "rules").mkdir(parents=True)
    lines = []
    for line in FULL.splitlines():
        line = line.replace("[[targets]]", "[[tool.primus-lint.targets]]")
        lines.append(line.replace("[per-file-ignores]", "[tool.primus-lint.per-file-ignores]"))
    settings = settings_of(tmp_path, "[project]\nname='x'\n[tool.primus-lint]\n" + "\n".join(lines), "pyproject.toml")
    assert settings.problems == []
    assert settings.profile == "all" and len(settings.targets) == 2 and settings.select == ("P", "memory-overflow")


def test_the_nearest_file_wins_and_the_search_stops_at_the_repository(tmp_path: Path) -> None:
    (tmp_path / "primus-lint.toml").write_text('profile = "legal"\n')
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (repo / "a" / "b").mkdir(parents=True)
    assert load_settings(str(repo / "a/b/x.yaml")).path is None  # never above .git
    forget_settings()
    (repo / "pyproject.toml").write_text('[tool.primus-lint]\nprofile = "all"\n')
    assert load_settings(str(repo / "a/b/x.yaml")).profile == "all"
    forget_settings()
    (repo / "a" / "pyproject.toml").write_text("[tool.ruff]\nselect = []\n")  # says nothing about us: go on
    assert load_settings(str(repo / "a/b/x.yaml")).profile == "all"
    forget_settings()
    (repo / "a" / "primus-lint.toml").write_text('profile = "recommended"\n')
    assert load_settings(str(repo / "a/b/x.yaml")).profile == "recommended"
    assert load_settings(str(repo / "x.yaml")).profile == "all"


def test_a_folder_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_lint import settings as module

    (tmp_path / ".git").mkdir()
    seen: list[str] = []
    real = module.read_settings
    monkeypatch.setattr(module, "read_settings", lambda path: (seen.append(path), real(path))[1])
    first = load_settings(str(tmp_path / "a.yaml"))
    assert load_settings(str(tmp_path / "b.yaml")) is first
    assert len(seen) == 2  # the two names, once


@pytest.mark.parametrize(
    ("text", "code", "place", "words"),
    [
        ("selct = []\n", "settings-unknown-key", (1, 1), "`select`"),
        ("\nextend_select = []\n", "settings-unknown-key", (2, 1), "`extend-select`"),
        ("xyz = 1\n", "settings-unknown-key", (1, 1), "framework-version"),
        ('select = "P"\n', "settings-type", (1, 1), "list of strings"),
        ("ignore = [1]\n", "settings-type", (1, 1), "list of strings"),
        ('fail-on = "errors"\n', "settings-type", (1, 1), "error or warning"),
        ("profile = 3\n", "settings-type", (1, 1), "legal or recommended"),
        ("framework-version = 3\n", "settings-type", (1, 1), "string"),
        ('required-version = "new"\n', "settings-type", (1, 1), ">=0.2"),
        ('required-version = ">=99"\n', "required-version", (1, 1), ">=99"),
        ("per-file-ignores = []\n", "settings-type", (1, 1), "glob"),
        ('[per-file-ignores]\n"*.yaml" = "P"\n', "settings-type", (2, 1), "list of strings"),
        ("targets = 3\n", "settings-type", (1, 1), "array of tables"),
        ('[[targets]]\ngpu = "h100"\n', "settings-type", (1, 3), "`files`"),
        ('[[targets]]\nfiles = "*"\nnode = 4\n', "settings-unknown-key", (3, 1), "`nodes`"),
        ('[[targets]]\nfiles = "*"\nnodes = 0\n', "settings-type", (3, 1), "above 0"),
        ('[[targets]]\nfiles = "*"\nnodes = true\n', "settings-type", (3, 1), "above 0"),
        ('[[targets]]\nfiles = "*"\ngpu = 3\n', "settings-type", (3, 1), "string"),
        ('[[targets]]\nfiles = 3\n', "settings-type", (2, 1), "string"),
        (
            '[[targets]]\nfiles = "*"\nnodes = 2\ngpus-per-node = 8\nworld-size = 64\n',
            "settings-target", (5, 1), "16",
        ),
        ('[[targets]]\nfiles = "*"\nnodes = 2\nworld-size = 16\n', "settings-target", (4, 1), "one of them"),
        ('[[targets]]\nfiles = "*"\ngpu = "mi300z"\n', "settings-target", (3, 8), "near: mi300x"),
        ('[tool.primus-lint]\nprofile = "all"\n', "settings-unknown-key", (1, 2), "without [tool.primus-lint]"),
        ("a = [\n", "settings-syntax", (2, 1), "TOML"),
        ("x = 1\nx = 2\n", "settings-syntax", None, "TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_located(tmp_path: Path, text: str, code: str, place: Any, words: str) -> None:
    settings = settings_of(tmp_path, text)
    [problem] = settings.problems
    assert problem.code == code and problem.path == settings.path
    assert words in problem.message
    if place is not None:
        assert (problem.line, problem.column) == place
    if problem.span is not None:
        assert text[slice(*problem.span)].strip("\"'") == problem.key_path[0]


def test_wrong_entries_do_not_hide_good_ones(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 'nonsense = 1\nprofile = "all"\nselect = 3\nignore = ["K"]\n')
    assert (settings.profile, settings.select, settings.ignore) == ("all", (), ("K",))
    assert len(settings.problems) == 2


def test_a_table_that_is_none(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "[tool]\nprimus-lint = 3\n", "pyproject.toml")
    assert [problem.code for problem in settings.problems] == ["settings-type"]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.yaml", ["a.yaml", "x/y/a.yaml"], ["a.yml", "a.yaml/b"]),
        ("a/*.yaml", ["a/x.yaml"], ["a/b/x.yaml", "b/a/x.yaml"]),
        ("a/**/x.yaml", ["a/x.yaml", "a/b/c/x.yaml"], ["b/a/x.yaml"]),
        ("**/MI300X/**", ["MI300X/x", "a/MI300X/b/x"], ["MI300/x"]),
        ("a/", ["a/x", "a/b/x"], ["b/a/x", "a"]),
        ("./a/x.yaml", ["a/x.yaml"], ["b/a/x.yaml"]),
        ("?.sh", ["a.sh", "d/b.sh"], ["ab.sh"]),
        ("[a-c].sh", ["b.sh"], ["d.sh"]),
        ("[!a-c].sh", ["d.sh"], ["b.sh"]),
        ("*.{yaml,yml}", ["a.yaml", "b/c.yml"], ["a.yam"]),
        ("a.b+c", ["a.b+c"], ["axbbc"]),
        ("**", ["a", "a/b"], []),
    ],
)
def test_globs(pattern: str, yes: list[str], no: list[str]) -> None:
    import re

    match = re.compile(glob_regex(pattern)).fullmatch
    assert [path for path in yes if not match(path)] == []
    assert [path for path in no if match(path)] == []


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        ("0.2.0", True), ("0.2", True), ("0.3", False), (">=0.1", True), (">=0.1, <0.2", False), (">=0.1,<1", True),
        ("~=0.1", True), ("~=0.2.0", True), ("~=0.1.5", False), ("!=0.2.0", False), ("<=0.2", True), (">0.2", False),
        ("latest", None), (">=x", None),
    ],
)  # fmt: skip
def test_required_version(wanted: str, holds: bool | None) -> None:
    assert version_satisfies(wanted, "0.2.0") is holds


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("# primus-lint: target gpu=mi355x nodes=4\n", {"gpu": "mi355x", "nodes": 4}),
        ("a: 1  # primus-lint: target world-size=64 gpus-per-node=8\n", {"world_size": 64, "gpus_per_node": 8}),
        ("#primus-lint: target world_size=64\r\n", {"world_size": 64}),
        ("# primus-lint: target gpu=h100\n# primus-lint: target nodes=2\n", {"gpu": "h100", "nodes": 2}),
        ("# primus-lint: ignore[x] target gpu=h100\n", {}),
        ("text: 'primus-lint: target gpu=h100'\n", {}),
        ("# see primus-lint: target gpu=h100\n", {}),
        ("# primus-lint: target nodes=0 gpu= speed=3\n", {}),
        ("", {}),
    ],
)
def test_target_comment(text: str, target: dict[str, Any]) -> None:
    assert target_comment(text) == target


def test_words_of_a_target_comment_that_say_nothing() -> None:
    text = "# primus-lint: target nodes=four gpu=h100\n"
    assert [(key, text[slice(*span)]) for key, _, span in target_words(text)] == [
        (None, "nodes=four"),
        ("gpu", "gpu=h100"),
    ]


def test_without_a_file_no_toml_parser_is_loaded(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    code = (
        "import sys; from primus_lint.settings import load_settings; "
        f"s = load_settings({str(tmp_path / 'x.yaml')!r}); "
        "assert s.path is None and s.problems == []; "
        "sys.exit('tomllib' in sys.modules or 'tomli' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1]).returncode == 0


def chosen(settings: Settings, code: str) -> bool:
    from primus_lint.rules import catalogue, select

    rule = catalogue.by_code()[code]
    return select.chosen(code, rule.name, rule.severity, settings)


def extending(tmp_path: Path, base: str, own: str) -> Settings:
    """Settings in `repo/`, which extend a file beside that folder."""
    (tmp_path / "org" / "rules").mkdir(parents=True)
    (tmp_path / "org" / "base.toml").write_text(base)
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    return settings_of(repo, 'extend = "../org/base.toml"\n' + own)


def test_what_is_not_said_is_the_extended_files(tmp_path: Path) -> None:
    settings = extending(
        tmp_path,
        'fail-on = "warning"\nprofile = "all"\nexclude = ["old/"]\nrule-paths = ["rules"]\n[severity]\nT = "info"\nM = "info"\n'
        '[[targets]]\nfiles = "old/"\ngpu = "mi300x"\n[[targets]]\nfiles = "**/small/*"\ngpu = "mi325x"\n',
        'profile = "legal"\n[severity]\nM = "error"\n[[targets]]\nfiles = "big/"\ngpu = "mi355x"\n',
    )
    assert settings.problems == []
    assert (settings.fail_on, settings.profile) == ("warning", "legal")
    assert settings.rule_folders() == (str(tmp_path / "org" / "rules"),)
    from primus_lint.rules.select import severity_of

    assert severity_of("M101", "hbm-overflow", "warning", settings) == "error"
    assert severity_of("T101", "x", "warning", settings) == "info"
    # Globs start at the folder of the file that they stand in: this repository is not below it.
    assert not settings.excludes(str(tmp_path / "repo/old/x.yaml")) and settings.excludes(
        str(tmp_path / "org/old/x.yaml")
    )
    assert settings.target_for(str(tmp_path / "repo/big/x.yaml")) == {"gpu": "mi355x"}
    assert settings.target_for(str(tmp_path / "repo/old/x.yaml")) is None
    assert settings.target_for(str(tmp_path / "org/old/x.yaml")) == {"gpu": "mi300x"}
    assert settings.target_for(str(tmp_path / "repo/small/x.yaml")) == {"gpu": "mi325x"}  # at any depth, everywhere


@pytest.mark.parametrize(
    ("base", "own", "m101", "m102"),
    [
        ('ignore = ["M"]', "", False, False),
        ('ignore = ["M"]', 'ignore = ["T"]', False, False),  # what is left out adds up
        ('ignore = ["M"]', 'select = ["M"]', True, True),  # a `select` starts anew
        ('ignore = ["M102"]', 'extend-select = ["M"]', True, True),  # the nearer file wins, however general
        ('select = ["M101"]', 'extend-select = ["T"]', True, False),
        ('select = ["M101"]', 'ignore = ["M"]', False, False),
        ('select = ["M"]', 'ignore = ["M102"]', True, False),
        ("", 'select = ["M"]\nignore = ["M"]', False, False),  # of equals in one file, `ignore`
        ("", 'select = ["M101"]\nignore = ["M"]', True, False),
    ],
)
def test_each_file_changes_what_the_one_it_extends_selects(
    tmp_path: Path, base: str, own: str, m101: bool, m102: bool
) -> None:
    settings = extending(tmp_path, base + "\n", own + "\n")
    assert (chosen(settings, "M101"), chosen(settings, "M102")) == (m101, m102)


def test_lists_replace_and_their_extending_forms_add(tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text('exclude = ["a.yaml"]\n[per-file-ignores]\n"x.yaml" = ["T"]\n')
    settings = settings_of(
        tmp_path,
        'extend = "base.toml"\nextend-exclude = ["b.yaml"]\n[extend-per-file-ignores]\n"x.yaml" = ["M"]\n',
    )
    assert settings.excludes(str(tmp_path / "a.yaml")) and settings.excludes(str(tmp_path / "b.yaml"))
    assert settings.ignored_in(str(tmp_path / "x.yaml")) == ("T", "M")
    forget_settings()
    settings = settings_of(tmp_path, 'extend = "base.toml"\nexclude = []\n[per-file-ignores]\n"x.yaml" = ["M"]\n')
    assert not settings.excludes(str(tmp_path / "a.yaml"))
    assert settings.ignored_in(str(tmp_path / "x.yaml")) == ("M",)


def test_extending_goes_on_and_on(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "pyproject.toml").write_text('[tool.primus-lint]\nfail-on = "info"\nprofile = "all"\n')
    (tmp_path / "b.toml").write_text('extend = "c/pyproject.toml"\nprofile = "legal"\n')
    settings = settings_of(tmp_path, 'extend = "b.toml"\n')
    assert settings.problems == [] and (settings.fail_on, settings.profile) == ("info", "legal")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"primus-lint.toml": 'extend = "none.toml"\n'}, "no file none.toml"),
        ({"primus-lint.toml": 'extend = "primus-lint.toml"\n'}, "circle: primus-lint.toml -> primus-lint.toml"),
        (
            {"primus-lint.toml": 'extend = "b.toml"\n', "b.toml": 'extend = "primus-lint.toml"\n'},
            "circle: primus-lint.toml -> b.toml -> primus-lint.toml",
        ),
        ({"primus-lint.toml": 'extend = "pyproject.toml"\n', "pyproject.toml": "[project]\n"}, "has no table"),
        ({"primus-lint.toml": 'extend = "b.toml"\n', "b.toml": "selct = []\n"}, "`select`"),
        ({"primus-lint.toml": "extend = 3\n"}, "string"),
    ],
)
def test_what_cannot_be_extended_is_told_at_its_place(tmp_path: Path, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    [problem] = load_settings(str(tmp_path / "x.yaml")).problems
    assert problem.fatal and words in problem.message and problem.line == 1
    assert Path(problem.path).name in files
