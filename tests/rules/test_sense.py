"""Names, sizes and siblings: what the labels of the public corpus say is found, and nothing is accused without reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from primus_lint.pipeline import Options, check_source
from primus_lint.readers.models import model_names
from primus_lint.rules.model_names import differ, read_name
from primus_lint.rules.siblings import drift, family_files, family_of
from primus_lint.settings import Settings
from primus_lint.source.text import SourceText
from tests.rules.texts import EXPERIMENT, check_text
from tests.validation import corpus

if TYPE_CHECKING:
    from primus_lint.pipeline import Checked
    from primus_lint.rules.finding import Finding

SHARED = Path(__file__).resolve().parents[3] / "shared" / "corpus"
LABELS, ROOT = SHARED / "primus-labels", SHARED / "primus"
needs_corpus = pytest.mark.skipif(not LABELS.is_dir(), reason="the labelled corpus (../shared/corpus) is not at hand")


def test_every_model_of_the_table_has_a_family() -> None:
    assert [name for name in model_names() if not read_name(name).families] == []


@pytest.mark.parametrize(
    ("text", "families", "sizes"),
    [
        ("mixtral_8x22B_v0.1-pretrain", {"mixtral"}, {"8x22b"}),
        ("Qwen/Qwen3-30B-A3B", {"qwen"}, {"30b", "a3b"}),
        ("llama4_17Bx128E-fp8", {"llama"}, {"17b128e"}),
        ("meta-llama/Llama-4-Maverick-17B-128E", {"llama"}, {"17b128e"}),
        ("qwen2.5_7B", {"qwen"}, {"7b"}),
        ("Primus_GPT_OSS_20B", {"gpt"}, {"20b"}),
        ("chatglm", set(), set()),
        ("team_pretrain-2024b", set(), {"2024b"}),
        ("09b-llama3.1_8B.yaml", {"llama"}, {"8b"}),  # a number of a series, no size
    ],
)
def test_names_are_read(text: str, families: set[str], sizes: set[str]) -> None:
    name = read_name(text)
    assert (set(name.families), set(name.sizes)) == (families, sizes)


@pytest.mark.parametrize(
    "text", ["qwen3_235B_A22B_4layer", "kimi_k3_8L_official", "moe_proxy_single_node", "llama3_8B-tiny"]
)
def test_a_stand_in_says_so(text: str) -> None:
    assert read_name(text).cut
    assert not read_name("minimax_m2.5_230B").cut


def test_names_that_say_nothing_contradict_nothing() -> None:
    assert not differ(read_name("nightly").sizes, read_name("llama3_8B").sizes)
    assert not differ(read_name("meta-llama/Llama-3.1-Nemotron-70B").families, read_name("nemotron").families)


@pytest.mark.parametrize(
    ("one", "other", "siblings"),
    [
        ("configs/MI300X/llama3_8B-BF16.yaml", "configs/MI355X/llama3_8B-FP8.yaml", True),
        ("configs/MI300X/grok1-nanoo_fp8.yaml", "configs/MI300X/grok1-bf16.yaml", True),
        ("llama3_8B-h100.yaml", "llama3_8B-mi300x.yaml", True),
        ("configs/MI300X/llama3_8B-BF16.yaml", "configs/MI300X/llama3_70B-BF16.yaml", False),
        ("a/llama3_8B-BF16.yaml", "b/llama3_8B-BF16.yaml", False),
        ("configs/llama3_8B-sft.yaml", "configs/llama3_8B-pretrain.yaml", False),
    ],
)
def test_siblings_differ_in_device_and_format_only(one: str, other: str, siblings: bool) -> None:
    assert (family_of(one) == family_of(other)) is siblings


def family(folder: Path, **files: str) -> list[Checked]:
    """Files `MI300X__BF16="..."` of one recipe, checked."""
    checked = []
    for name, overrides in files.items():
        device, number = name.split("__")
        path = folder / device / f"llama3_8B-{number}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            EXPERIMENT.format(framework="megatron", config="pre_trainer.yaml", model="llama3_8B.yaml",
                              overrides="\n".join(f"      {line}" for line in overrides.split("\n")))
        )  # fmt: skip
        checked.append(check_source(SourceText.from_path(str(path)), Options()))
    return checked


def told(checked: list[Checked]) -> dict[str, str]:
    return {
        "/".join(item.path.split("/")[-2:]): finding.message
        for item in checked
        for finding in item.findings
        if finding.name == "sibling-drift" and finding.suppressed is None
    }


def test_the_odd_one_is_told_with_both_places_whatever_the_order(tmp_path: Path) -> None:
    files = {"MI300X__BF16": "lr: 1.0e-4", "MI300X__FP8": "lr: 1.0e-4\nfp8: hybrid", "MI355X__BF16": "lr: 3.0e-4"}
    checked = family(tmp_path, **files)
    drift(checked)
    assert list(told(checked)) == ["MI355X/llama3_8B-BF16.yaml"]
    (finding,) = [f for f in checked[2].findings if f.name == "sibling-drift"]
    assert finding.place is not None
    assert (finding.place.line, finding.related[0].line) == (11, 11)
    assert finding.related[0].path.endswith("MI300X/llama3_8B-BF16.yaml")
    again = family(tmp_path, **dict(reversed(files.items())))
    drift(again)
    assert list(told(again)) == ["MI355X/llama3_8B-BF16.yaml"]


def test_what_is_tuned_is_no_drift(tmp_path: Path) -> None:
    checked = family(
        tmp_path,
        MI300X__BF16="micro_batch_size: 2\nglobal_batch_size: 128\nrecompute_granularity: full",
        MI355X__FP8="micro_batch_size: 4\nglobal_batch_size: 256\nfp8: hybrid\ntensor_model_parallel_size: 2",
    )
    drift(checked)
    assert told(checked) == {}


def test_a_shorter_run_has_a_shorter_schedule(tmp_path: Path) -> None:
    long = "train_iters: 100000\nlr_warmup_iters: 1000\nlr_decay_iters: 100000"
    short = "train_iters: 1000\nlr_warmup_iters: 100\nlr_decay_iters: 1000"
    checked = family(tmp_path, MI300X__BF16=long, MI300X__FP8=short)
    drift(checked)
    assert told(checked) == {}
    checked = family(tmp_path, MI300X__BF16=long, MI300X__FP8=long.replace("1000\n", "2000\n"))
    drift(checked)
    assert "lr_warmup_iters 2000 (there 1000)" in told(checked)["MI300X/llama3_8B-FP8.yaml"]


def test_of_two_the_one_that_leaves_the_preset_is_told(tmp_path: Path) -> None:
    checked = family(tmp_path, MI300X__BF16="rotary_base: 10000", MI355X__BF16="train_iters: 50")
    drift(checked)
    assert list(told(checked)) == ["MI300X/llama3_8B-BF16.yaml"]


def test_drift_can_be_suppressed_and_the_comment_is_not_called_unused(tmp_path: Path) -> None:
    text = "seq_length: 2048  # primus-lint: ignore[sibling-drift] the small device"
    checked = family(tmp_path, MI300X__BF16=text, MI355X__BF16="seq_length: 4096")
    assert [f.name for f in checked[0].findings if f.code[0] == "U"] == []
    drift(checked)
    drifts = [f for item in checked for f in item.findings if f.name == "sibling-drift"]
    assert [f.suppressed for f in drifts] == ["the small device"]


RULES_OF_LABELS = {
    "D01": "layers-divide-pipeline", "D02": "layers-divide-pipeline", "D03": "layers-divide-pipeline",
    "D04": "layout-mtp-placed", "D05": "key-without-effect", "D06": "bases-not-read", "D07": "wrong-level",
    "D08": "wrong-level", "D09": "wrong-level", "D10": "precision-shadowed-by-module-preset", "D12": "key-without-effect",
    "D13": "environment-variable-as-key", "D14": "key-without-effect", "D15": "module-preset-key-without-effect",
    "D16": "key-without-effect", "D17": "preset-key-without-effect", "D18": "hbm-overflow", "D18b": "hbm-overflow",
    "D19": "preset-unlike-published-model", "D19b": "preset-unlike-published-model",
    "D20": "published-model-changed sibling-drift", "D21": "literal-quotes", "D22": "block-recompute-of-no-layers",
    "D23": "project-of-another-model", "D25": "recipe-argument-dropped", "D25b": "recipe-argument-dropped",
    "D26": "fp8-experts-need-linen-decoder",
}  # fmt: skip


@needs_corpus
def test_every_labelled_defect_of_any_level_is_found_at_its_key() -> None:
    """All 177 rows: in the file, or for a preset in every file that uses it; at a line with the key where one is named."""
    rows = corpus.rows(LABELS / "known-defects.csv")
    texts = {path: path.read_text() for path in sorted((ROOT / "examples").rglob("*.yaml"))}
    settings = Settings()
    settings.profile = "all"
    missed = []
    for row in rows:
        wanted = RULES_OF_LABELS[row["id"]].split()
        if row["file"].startswith("primus/"):
            line = re.compile(rf"^ +(?:model|config): .*\b{re.escape(Path(row['file']).stem)}\b", re.MULTILINE)
            users = [path for path, text in texts.items() if "megatron" in path.parts and line.search(text)]
        else:
            users = [ROOT / row["file"]]
        assert users, row
        for user in users[:4]:
            found = check_source(SourceText.from_path(str(user)), Options(), settings).findings
            hits = [finding for finding in found if finding.name in wanted]
            if not hits or not any(_at_key(hit, row["key"]) for hit in hits):
                missed.append((row["id"], user.name, row["key"]))
    assert missed == []
    assert len(rows) == 177


def _at_key(finding: Finding, key: str) -> bool:
    """Whether the finding is about the labelled key, and points at a line with it."""
    if not key or key.startswith("("):
        return True
    names = key.split("|")
    return any(name in finding.keys or name in finding.message for name in names)


@needs_corpus
def test_nothing_else_is_said_to_be_named_wrongly() -> None:
    """Read by hand: four exp_name of Mixtral 8x7B say 8x22B, one file named BF16 trains in FP8."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        name = path.relative_to(ROOT).as_posix()
        for finding in corpus.check(ROOT, name).findings:
            if finding.code in ("D102", "D103", "D105"):
                found.setdefault(finding.code, set()).add(path.name)
    assert found == {
        "D102": {"mixtral_8x7B_v0.1-BF16-pretrain.yaml", "mixtral_8x7B_v0.1-FP8-pretrain.yaml"},
        "D105": {"llama2_70B-BF16-sft-packed-mlperf_aligned.yaml"},
    }


def test_a_run_without_the_sibling_takes_no_drift_from_the_baseline(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from primus_lint.cli.check import command

    family(tmp_path, MI300X__BF16="rotary_base: 10000", MI355X__BF16="train_iters: 50")
    (tmp_path / ".git").mkdir()

    def lint(*words: str) -> str:
        text = CliRunner().invoke(command, ["--select", "sibling-drift", "--output-format", "concise", *words])
        return text.stdout

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert "sibling-drift" in lint(".")
        assert "sibling-drift" not in lint("--update-baseline", ".")
        lint("--update-baseline", "MI300X/llama3_8B-BF16.yaml")
        assert "sibling-drift" in (tmp_path / ".primus-lint-baseline.json").read_text()
        assert "sibling-drift" not in lint("--baseline=.primus-lint-baseline.json", ".")


def test_siblings_on_disk_are_those_of_a_run_over_the_folder(tmp_path: Path) -> None:
    names = (
        "a/MI300X/x-BF16.yaml", "a/MI355X/x-FP8.yaml", "a/x.yaml", "a/MI355X/y-FP8.yaml", "b/MI300X/x-BF16.yaml",
        "a/MI325X/deep/x-BF16.yaml", "a/readme.md",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    paths = [str(tmp_path / name) for name in names]
    for path in paths:
        assert family_files(path, str(tmp_path)) == [
            other for other in sorted(paths) if other != path and family_of(other) == family_of(path)
        ]
    assert len(family_files(paths[0], str(tmp_path))) == 1


def test_sinks_of_turbo_attention_are_those_of_the_published_model(tmp_path: Path) -> None:
    """gpt-oss has a learned sink for every head; Primus holds them in its attention, whatever softmax_type says."""
    text = "{{enable_primus_turbo: true, use_turbo_attention: true, use_sink_attention: {0}}}"
    for sinks in ("true", "false"):
        found = check_text(text.format(sinks), {"preset": "gpt_oss_20B.yaml"}, tmp_path).findings
        [finding] = [item for item in found if item.name == "preset-unlike-published-model"]
        assert ("softmax_type" in finding.keys) is (sinks == "false")
