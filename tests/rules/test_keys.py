"""Rules of keys beyond their examples: where they point, what they say, and what they leave alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from primus_lint.rules.checks.key_values import _as_yaml
from primus_lint.source.scalars import resolve_plain
from tests.rules.texts import check_text

if TYPE_CHECKING:
    from pathlib import Path

    from primus_lint.rules.finding import Finding


def findings(text: str, folder: Path, code: str, **example: Any) -> list[Finding]:
    return [finding for finding in check_text(text, example, folder).findings if finding.code == code]


def test_an_unknown_key_points_at_its_name_and_offers_the_right_one(tmp_path: Path) -> None:
    (finding,) = findings("train_iters: 10\ngloabl_batch_size: 64", tmp_path, "K101")
    assert finding.place is not None
    assert (finding.place.line, finding.place.column) == (12, 7)
    assert finding.severity == "error"
    assert finding.fixes[0].changes[0] == ("rename", "gloabl_batch_size", "global_batch_size")


def test_a_flag_as_a_key_is_not_renamed_to_a_key_that_is_there(tmp_path: Path) -> None:
    (alone,) = findings("global-batch-size: 64", tmp_path, "K101")
    assert [fix.title for fix in alone.fixes] == ["rename it to global_batch_size"]
    (beside,) = findings("global_batch_size: 128\nglobal-batch-size: 64", tmp_path, "K101")
    assert beside.fixes == () and "global_batch_size is set as well" in beside.message


def test_an_unknown_key_without_a_near_one_is_a_warning(tmp_path: Path) -> None:
    (finding,) = findings("my_own_switch: true", tmp_path, "K101")
    assert (finding.severity, finding.fixes) == ("warning", ())


@pytest.mark.parametrize(
    "text",
    [
        "lora: {enabled: true, dim: 8}",
        "overlap_p2p_comm_warmup_flush: true",  # Megatron's parser has it, Primus's presets do not
        "activation_func_fp8_input_store: true",  # no flag, but a field of TransformerConfig that is filled by name
        "trainer_class: MyTrainer",
        "use_legacy_models: false",
    ],
)
def test_known_keys_of_every_kind_are_known(text: str, tmp_path: Path) -> None:
    assert findings(text, tmp_path, "K101") == []


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("disable_bias_linear: true", "write add_bias_linear: false"),
        ("weight_decay_incr: constant", "weight_decay_incr_style"),
    ],
)
def test_a_flag_is_no_key(text: str, right: str, tmp_path: Path) -> None:
    (finding,) = findings(text, tmp_path, "K101")
    assert right in finding.message
    assert finding.severity == "error"


def test_fp8_by_the_name_of_its_flag_trains_in_bf16(tmp_path: Path) -> None:
    (finding,) = findings("fp8_format: hybrid", tmp_path, "K121")
    assert finding.severity == "error"
    assert "the run uses null" in finding.message
    assert finding.fixes[0].changes[0] == ("rename", "fp8_format", "fp8")


def test_inert_epsilon_is_quiet_where_it_asks_for_what_runs(tmp_path: Path) -> None:
    (finding,) = findings("norm_epsilon: 1.0e-6", tmp_path, "K121")
    assert "runs" not in finding.message.split(":")[0]
    assert "the run uses 1e-05" in finding.message
    assert findings("norm_epsilon: 1.0e-5", tmp_path, "K121") == []
    assert findings("norm_epsilon: 1.0e-6\nmodel_type: deepseek_v4", tmp_path, "K121") == []


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("virtual_pipeline_model_parallel_size: 2", "the run uses 1"),
        ("virtual_pipeline_model_parallel_size: 4\npipeline_model_parallel_size: 2\n"
         "num_virtual_stages_per_pipeline_rank: 2", "the run uses 2"),
        ("params_dtype: float16", "the run uses bf16"),
        ("rope_scaling_factor: 32.0\nuse_rope_scaling: true", "the run uses 8.0"),
        ("apply_layernorm_1p: true", "the run uses false"),
    ],
)  # fmt: skip
def test_what_runs_instead_is_said(text: str, runs: str, tmp_path: Path) -> None:
    (finding,) = findings(text, tmp_path, "K121")
    assert runs in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "virtual_pipeline_model_parallel_size: null",
        "pipeline_model_parallel_size: 2\nnum_virtual_stages_per_pipeline_rank: 2\nvirtual_pipeline_model_parallel_size: 2",
        "params_dtype: bfloat16",
        "rope_scaling_factor: 32.0",  # without use_rope_scaling no factor is used at all
        "use_flash_attn: true",
        "log_batch_size_to_tensorboard: true",
    ],
)
def test_a_key_without_effect_that_asks_for_what_runs_is_no_warning(text: str, tmp_path: Path) -> None:
    assert findings(text, tmp_path, "K121") == []


def test_stray_keys_are_one_finding_with_every_place(tmp_path: Path) -> None:
    text = """\
work_group: amd
user_name: root
exp_name: run
workspace: ./output
lr: 2.0e-4
seq_length: 4096
notes: mine
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3_8B.yaml
"""
    (finding,) = findings(text, tmp_path, "K102")
    assert finding.place is not None
    assert (finding.place.line, finding.key_path, finding.keys) == (5, ("lr",), ("lr", "seq_length"))
    assert (finding.related[0].line, finding.related[0].message) == (6, "seq_length too")
    assert "modules.pre_trainer.overrides" in finding.message


def test_a_lost_precision_points_at_the_model_and_shows_the_preset_that_wins(tmp_path: Path) -> None:
    example = {
        "files": {"m.yaml": "fp8: e4m3\nfp8_margin: 2"},
        "module": "fp8: null\nfp8_margin: 0",
        "preset": "m.yaml",
    }
    (finding,) = findings("micro_batch_size: 1", tmp_path, "K110", **example)
    assert finding.place is not None
    assert finding.place.line == 9  # `model: m.yaml`
    assert finding.keys == ("fp8",)
    assert [place.path.rsplit("/", 2)[-1] for place in finding.related] == ["pre_trainer.yaml"]
    # details of a format that is off are not worth a second finding
    assert findings("micro_batch_size: 1", tmp_path, "K111", **example) == []


def test_a_number_as_text_in_a_preset_is_told_to_every_user(tmp_path: Path) -> None:
    example = {"files": {"m.yaml": "moe_aux_loss_coeff: 1e-2"}, "preset": "m.yaml"}
    (finding,) = findings("micro_batch_size: 1", tmp_path, "K141", **example)
    assert finding.severity == "error"
    assert "1.0e-2" in finding.message or "0.01" in finding.message
    assert finding.related[0].path.endswith("m.yaml")


def test_an_octal_number_of_yaml_1_2_is_explained(tmp_path: Path) -> None:
    (bare,) = findings("seed: 0o17", tmp_path, "K142")
    assert bare.message.endswith("write 15")
    (quoted,) = findings("seed: '0o17'", tmp_path, "K142")
    assert "YAML 1.2" not in quoted.message


@pytest.mark.parametrize("number", [1e-5, 1.63e14, 8e-05, 0.01, 2.0, 1e22, -3e-7])
def test_a_number_is_offered_as_yaml_reads_it(number: float) -> None:
    assert resolve_plain(_as_yaml(number, "float")) == number
    assert isinstance(resolve_plain(_as_yaml(number, "float")), float)


def test_a_framework_that_converts_texts_is_left_alone(tmp_path: Path) -> None:
    assert findings("learning_rate: 1e-5", tmp_path, "K141", framework="maxtext") == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("dtype: bf16", True),  # class DType(enum) of MaxText: bfloat16, float32, float16
        ("dtype: bfloat16", False),
        ("hardware: gpuu", True),  # a Literal
        ("grain_index_storage_option: null", False),  # its default is None
        ('quantization: ""', False),
        ("steps: null", True),  # int
        ("remat_policy: null", False),  # str | None
        ("quantization: null", False),
    ],
)
def test_choices_of_maxtext(tmp_path: Path, line: str, wrong: bool) -> None:
    assert bool(findings(line, tmp_path, "K142", framework="maxtext")) is wrong


@pytest.mark.parametrize(
    ("lines", "severity"),
    [
        ("training: {mixed_precision_param: bf16}", "error"),  # KeyError in TORCH_DTYPE_MAP
        ("training: {dtype: bf16}", "error"),
        ("training: {dtype: float16}", "warning"),  # in the map, no choice of the command line
        ("lr_scheduler: {decay_type: cosin}", "error"),  # ValueError in the scheduler
        # neither fully_shard nor autocast where tensor parallelism takes all ranks
        (
            "{training: {mixed_precision_param: bf16},"
            " parallelism: {data_parallel_shard_degree: 1, tensor_parallel_degree: 8}}",
            "warning",
        ),
        (
            "{training: {mixed_precision_param: bf16}, parallelism: {context_parallel_degree: 0}}",
            "warning",
        ),  # not known
    ],
)
def test_choices_of_torchtitan_that_stop_a_run_of_primus(tmp_path: Path, lines: str, severity: str) -> None:
    (finding,) = findings(lines, tmp_path, "K144", framework="torchtitan", preset="llama3.1_8B.yaml", world_size=8)
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("lines", "near"),
    [
        ("peft: lorra", "lora"),
        ("peft: LoRA", None),  # recipes take it in any case
        ("peft: null", None),
        (
            "scheduler: {lr_decay_style: cosin}",
            "cosine",
        ),  # Literal["constant", "linear", "cosine", ...] of SchedulerConfig
        ("scheduler: {lr_decay_style: WSD}", None),
        ("train: {empty_unused_memory_level: 2}", None),
        ("checkpoint: {ckpt_convert_format: null}", None),
    ],
)
def test_choices_of_megatron_bridge(tmp_path: Path, lines: str, near: str | None) -> None:
    example = {"framework": "megatron_bridge", "config": "sft_trainer.yaml", "preset": "qwen3_8b.yaml"}
    found = findings(lines, tmp_path, "K144", **example)
    assert [f"(near: {near})" in finding.message for finding in found] == ([] if near is None else [True])


def test_the_env_block_does_not_beat_primus(tmp_path: Path) -> None:
    """FSDP2 refuses one connection, and Primus sets eight after the block was exported: no error, but a warning."""
    text = """\
work_group: amd
user_name: root
exp_name: run
workspace: ./output
env: {CUDA_DEVICE_MAX_CONNECTIONS: "1"}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama3_8B.yaml
    overrides:
      use_torch_fsdp2: true
      use_distributed_optimizer: false
      gradient_accumulation_fusion: false
      ckpt_format: torch_dist
"""
    found = check_text(text, {}, tmp_path).findings
    assert [finding.code for finding in found if "CUDA_DEVICE_MAX_CONNECTIONS" in finding.message] == ["K171"]


def test_an_unreadable_recipe_says_nothing_else(tmp_path: Path) -> None:
    found = check_text("micro_batch_size: ${MBS}\nnorm_epsilon: 1.0e-6", {}, tmp_path).findings
    assert [finding.code for finding in found] == ["S122"]


def test_a_default_in_force_only_is_blamed(tmp_path: Path) -> None:
    text = "tensor_model_parallel_size: ${TP:-8}"
    assert len(findings(text, tmp_path, "K152")) == 1
    assert findings(text, tmp_path, "K152", env={"TP": "2"}) == []


def test_recipe_arguments_are_one_finding(tmp_path: Path) -> None:
    text = "tensor_model_parallel_size: 2\npeft_dim: 8\nmodel: {seq_length: 4096}\nlog_interval: 1"
    example = {"framework": "megatron_bridge", "config": "sft_trainer.yaml", "preset": "llama3_8b.yaml"}
    (finding,) = findings(text, tmp_path, "K161", **example)
    assert finding.keys == ("tensor_model_parallel_size", "peft_dim")


@pytest.mark.parametrize(
    ("framework", "text", "says"),
    [
        ("megatron", "per_device_batch_size: 2", "a key of MaxText, not of Primus's Megatron backend"),
        ("megatron", "max_target_length: 2048", "called seq_length here"),
        ("torchtitan", "micro_batch_size: 2", "called training.local_batch_size here"),
        ("maxtext", "micro_batch_size: 2", "called per_device_batch_size here"),
        ("megatron_bridge", "local_batch_size: 2", "called micro_batch_size here"),
    ],
)
def test_a_key_of_another_framework_is_not_renamed_to_what_looks_like_it(
    framework: str, text: str, says: str, tmp_path: Path
) -> None:
    bridge = {"config": "sft_trainer.yaml", "preset": "qwen3_8b.yaml"} if framework == "megatron_bridge" else {}
    (finding,) = findings(text, tmp_path, "K101", framework=framework, **bridge)
    assert says in finding.message
    assert (finding.severity, finding.fixes) == ("error", ())


@pytest.mark.parametrize("text", ["local_batch_size: 2", "parallelism: {local_batch_size: 2}"])
def test_a_key_in_the_wrong_section_is_told_its_own(text: str, tmp_path: Path) -> None:
    (finding,) = findings(text, tmp_path, "K101", framework="torchtitan")
    assert "training.local_batch_size" in finding.message
    assert finding.severity == "error"


def test_a_mapping_for_one_value_inside_a_section(tmp_path: Path) -> None:
    (finding,) = findings("training: {local_batch_size: {value: 2}}", tmp_path, "K142", framework="torchtitan")
    assert finding.message == "training.local_batch_size takes one value, not a mapping"


def test_a_flag_beside_model_args_is_read_by_nothing(tmp_path: Path) -> None:
    text = "--clip-grad: 1.0\nMODEL_ARGS:\n  --num-layers: 2\n"
    (finding,) = [
        found for found in check_text(text, {"name": "model_config.yaml"}, tmp_path).findings if found.code == "K102"
    ]
    assert finding.place is not None
    assert (finding.place.line, finding.keys) == (1, ("--clip-grad",))
    assert "under MODEL_ARGS" in finding.message


def test_a_renamed_key_of_a_preset_is_shown_where_it_stands(tmp_path: Path) -> None:
    example = {"files": {"m.yaml": "num_layers: 2"}, "module": "fully_parallel_save: true", "preset": "m.yaml"}
    (finding,) = findings("train_iters: 50", tmp_path, "K128", **example)
    assert [place.path.rpartition("/")[2] for place in finding.related] == ["pre_trainer.yaml"]


def test_what_a_recipe_does_not_take_is_told_once(tmp_path: Path) -> None:
    example = {"framework": "megatron_bridge", "config": "sft_trainer.yaml", "preset": "qwen3_8b.yaml"}
    found = check_text("no_such_argument: 1", example, tmp_path).findings
    assert [finding.code for finding in found if "no_such_argument" in finding.keys] == ["K101"]


def test_the_mesh_of_several_nodes_is_held_to_divisibility(tmp_path: Path) -> None:
    """What a slice is on several nodes is for JAX to say."""
    text = "{ici_fsdp_parallelism: 8, dcn_data_parallelism: 4}"
    assert findings(text, tmp_path, "P951", framework="maxtext", world_size=32) == []
    (finding,) = findings(text, tmp_path, "P951", framework="maxtext", world_size=48)
    assert "multiply to 32, which does not divide 48 GPUs" in finding.message


@pytest.mark.parametrize(
    ("text", "near"),
    [("model: {seq_lenght: 4096}", "model.seq_length"), ("model: {seq_length: 4096, my_own_field: 1}", None)],
)
def test_fields_of_the_model_of_megatron_bridge(text: str, near: str | None, tmp_path: Path) -> None:
    example = {"framework": "megatron_bridge", "config": "sft_trainer.yaml", "preset": "qwen3_8b.yaml"}
    found = findings(text, tmp_path, "K101", **example)
    assert [finding.fixes[0].changes[0][2] for finding in found] == ([] if near is None else [near])
