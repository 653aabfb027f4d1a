"""Batch requests: arguments over Primus's module preset over model facts over Primus's defaults."""

from __future__ import annotations

import pytest

from primus_lint.readers.batch import RequestError, read_batch, section_of


def test_megatron_request() -> None:
    request = {
        "id": "a1", "framework": "megatron", "version": None, "model": "llama3.1-70b",
        "args": {"tensor_model_parallel_size": 8, "num_layers": 4}, "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    }  # fmt: skip
    document = read_batch(request)
    section = document.sections[0]
    assert (document.path, document.format, section.model, section.framework) == (
        "a1",
        "batch",
        "llama3.1-70b",
        "megatron",
    )
    assert section.get("tensor_model_parallel_size") == 8
    assert [(o.layer, o.value) for o in section.values["num_layers"].origins] == [
        ("experiment", 4),
        ("model-table", 80),
    ]
    assert section.get("hidden_size") == 8192
    assert "micro_batch_size" not in section.values  # Megatron's defaults are not a matter of the reader
    assert document.env["CUDA_DEVICE_MAX_CONNECTIONS"].value == "1"


def test_primus_request_lies_on_primus_presets() -> None:
    section = section_of({"args": {"lr": 1.0}}, "primus-megatron")
    assert section.get("micro_batch_size") == 2  # trainer_base.yaml
    assert section.get("seq_length") == 1024  # pre_trainer.yaml
    assert section.get("num_layers") == 24  # language_model.yaml
    assert [(o.layer, o.value) for o in section.values["lr"].origins[:2]] == [
        ("experiment", 1.0),
        ("module-preset", 2e-05),
    ]


def test_model_facts_lie_between_the_presets() -> None:
    section = section_of({"model": "llama3.1_70B", "args": {}}, "primus-megatron")
    assert section.get("num_layers") == 80
    assert [o.layer for o in section.values["num_layers"].origins] == ["model-table", "model-preset"]
    assert section.get("global_batch_size") == 16
    again = section_of({"args": {}}, "primus-megatron")
    assert again.get("num_layers") == 24  # nothing leaks from one request to the next


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"framework": "x"}, "megatron, primus-megatron"),
        ({"model": "llama3.1-70"}, "llama3.1-70b"),
        ({"model": 3}, "model"),
        ({"args": [1]}, "args"),
    ],
)
def test_requests_that_cannot_be_evaluated(request_: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_batch(request_)
