"""Vocabularies by the name of a tokenizer: lengths as the published tokenizer files have them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from primus_lint.lower.megatron.tokenizers import vocabulary_of
from primus_lint.pipeline import Options, check_source
from primus_lint.source.text import SourceText

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "primus"
RECIPE = """work_group: a
user_name: b
exp_name: c
workspace: ./o
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: {model}.yaml
    overrides:
      mock_data: false
      micro_batch_size: 1
      global_batch_size: 64
"""


@pytest.mark.parametrize(
    ("kind", "model", "file", "size", "exact"),
    [
        ("HuggingFaceTokenizer", "meta-llama/Llama-3.1-8B", None, 128_256, True),
        ("Llama2Tokenizer", "${DATA}/tokenizer.model", None, 32_000, True),
        ("HuggingFaceTokenizer", "NousResearch/Llama-2-70b-hf", None, 32_000, True),
        ("HuggingFaceTokenizer", "Qwen/Qwen3-30B-A3B", None, 151_669, True),  # len(tokenizer); config.json has 151,936
        ("HuggingFaceTokenizer", "Qwen/Qwen2.5-72B-Instruct", None, 151_665, True),
        ("HuggingFaceTokenizer", "Qwen/Qwen3.5-35B-A3B", None, 248_320, False),  # another tokenizer than Qwen3's
        ("HuggingFaceTokenizer", "/models/Mixtral-8x7B-v0.1", None, 32_000, True),
        ("HuggingFaceTokenizer", "meta-llama/Llama-4-Scout-17B-16E", None, 202_048, False),
        ("GPT2BPETokenizer", None, "/data/vocab.json", 50_257, True),
        (None, None, "/data/bpe/vocab.json", 50_257, True),
    ],
)
def test_known(kind: str | None, model: str | None, file: str | None, size: int, exact: bool) -> None:
    found = vocabulary_of(kind, model, file)
    assert found is not None and (found.size, found.exact) == (size, exact)


@pytest.mark.parametrize(
    ("kind", "model", "file"),
    [("HuggingFaceTokenizer", "/data/our-tokenizer", None), ("SentencePieceTokenizer", "/data/spm.model", None),
     (None, None, None), (3, ["x"], {}), ("HuggingFaceTokenizer", "", None)],
)  # fmt: skip
def test_unknown_is_not_guessed(kind: object, model: object, file: object) -> None:
    assert vocabulary_of(kind, model, file) is None


def test_a_recipe_on_real_data_has_memory_and_says_what_it_took() -> None:
    text = RECIPE.format(model="llama3.1_8B")
    checked = check_source(SourceText.from_text("a.yaml", text), Options(gpu="mi300x", world_size=8))
    assert checked.subjects[0].ledger is not None and checked.subjects[0].projection is not None
    assert ("vocab_size", "128,256") in [(item.what, item.value) for item in checked.assumed]


def test_an_unknown_tokenizer_says_what_to_give() -> None:
    text = RECIPE.format(model="llama3.1_8B") + "      tokenizer_model: /data/ours\n"
    source = SourceText.from_text("a.yaml", text)
    subject = check_source(source, Options(gpu="mi300x", world_size=8)).subjects[0]
    assert "--set vocab_size=N" in " ".join(subject.no_memory) and subject.ledger is None
    given = Options(gpu="mi300x", world_size=8, set_values=(("vocab_size", "50000"),))
    assert check_source(source, given).subjects[0].ledger is not None


@pytest.mark.skipif(not CORPUS.is_dir(), reason="../shared/corpus is absent")
def test_most_tokenizers_of_the_corpus_are_known() -> None:
    names = set()
    for path in (CORPUS / "primus" / "configs" / "models" / "megatron").glob("*.yaml"):
        names |= set(re.findall(r"^tokenizer_model: *([\w./-]+)", path.read_text(encoding="utf-8"), re.M))
    names -= {"null"}
    unknown = sorted(name for name in names if vocabulary_of("HuggingFaceTokenizer", name, None) is None)
    assert len(names) > 30
    assert len(unknown) <= 4, unknown
