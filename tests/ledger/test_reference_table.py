"""The reference table of ../shared/reference/byte-accounting.md: bytes that the real objects had, row by row.

The figures were measured there by building megatron-core 0.16.1 objects on CPU; here they are the expected values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from primus_lint.ledger import Ledger, ledger, optimizer, states
from primus_lint.ledger.activations.kind import Kind
from primus_lint.ledger.build import chunks_of
from primus_lint.ledger.head import mtp
from primus_lint.ledger.sizes import Sizes
from primus_lint.ledger.stage_activations import Activations
from tests.ledger.support import run_of
from tests.oracle.recipes import MODELS


class Row(NamedTuple):
    name: str
    model: str
    world: int
    pp_rank: int
    changes: dict[str, Any]
    params: int
    param_buffer: int
    grad_buffer: int
    padding: int
    buckets: list[int]  # of the dense and expert buffers, chunk by chunk
    optimizer: int


def _layout(args: dict[str, Any]) -> dict[str, Any]:
    return {"pipeline_model_parallel_layout": "Et*3|(tt|)*29,m|L", **args}


TP, PP, CP, EP = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size",
)  # fmt: skip
ETP1 = {"expert_tensor_parallel_size": 1}
VPP = "num_virtual_stages_per_pipeline_rank"
EDGES = {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}
BF16_MOMENTS = {"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}

ROWS = [
    Row("8b TP1 DP8, no overlap", "llama3.1-8b", 8, 0, {"overlap_grad_reduce": False},
        8_030_261_248, 16_060_522_496, 32_121_044_992, 0, [1], 12_045_391_872),
    Row("8b TP2 DP8", "llama3.1-8b", 16, 0, {TP: 2},
        4_015_263_744, 8_030_527_488, 16_061_054_976, 0, [65], 6_022_895_616),
    Row("8b TP8 CP2 DP3", "llama3.1-8b", 48, 0, {TP: 8, CP: 2},
        1_004_802_048, 2_009_612_544, 4_019_225_088, 4_224, [18], 2_009_612_544),
    Row("8b TP2 DP24 padded", "llama3.1-8b", 48, 0, {TP: 2, "ddp_pad_buckets_for_high_nccl_busbw": True},
        4_015_263_744, 8_046_772_224, 16_093_544_448, 8_122_368, [65], 2_011_693_056),
    Row("70b TP8 PP4 VPP5 DP4 pp0", "llama3.1-70b", 128, 0, {TP: 8, PP: 4, VPP: 5},
        2_271_543_296, 4_543_086_592, 9_086_173_184, 0, [8, 1, 1, 1, 1], 6_814_629_888),
    Row("70b TP4 PP4 DP24 pp0", "llama3.1-70b", 384, 0, {TP: 4, PP: 4},
        4_541_710_336, 9_083_426_304, 18_166_852_608, 2_816, [41], 2_270_856_576),
    Row("70b TP4 PP4 DP24 pp3", "llama3.1-70b", 384, 3, {TP: 4, PP: 4},
        4_541_718_528, 9_083_437_056, 18_166_874_112, 0, [1], 2_270_859_264),
    Row("405b TP8 PP16 CP2 DP4 pp0", "llama3.1-405b", 1024, 0,
        {TP: 8, PP: 16, CP: 2, "decoder_first_pipeline_num_layers": 7, "decoder_last_pipeline_num_layers": 7},
        3_053_682_688, 6_107_365_376, 12_214_730_752, 0, [22], 4_580_524_032),
    Row("mixtral TP2 PP4 EP8 DP8 pp1", "mixtral-8x22b", 64, 1, {TP: 2, PP: 4, EP: 8, **ETP1},
        4_845_281_280, 9_690_562_560, 19_381_125_120, 0, [1, 1], 26_293_284_864),
    Row("qwen3 TP2 PP4 VPP2 EP8 DP24 pp0", "qwen3-235b", 192, 0, {TP: 2, PP: 4, VPP: 2, EP: 8, **ETP1, **EDGES},
        8_089_433_856, 16_178_870_784, 32_357_741_568, 1_536, [8, 70, 1, 1], 14_463_368_832),
    Row("qwen3 TP4 PP8 EP32 DP8 pp7", "qwen3-235b", 256, 7, {TP: 4, PP: 8, EP: 32, **ETP1, **EDGES},
        1_188_133_632, 2_376_267_264, 4_752_534_528, 0, [1, 1], 10_502_158_464),
    Row("deepseek PP16 EP8 DP24 pp15", "deepseek-v3", 384, 15,
        {PP: 16, EP: 8, "decoder_first_pipeline_num_layers": 4, "decoder_last_pipeline_num_layers": 1},
        5_240_713_216, 10_481_426_688, 20_962_853_376, 128, [2, 1], 12_485_359_680),
    Row("deepseek layout pp0", "deepseek-v3", 1024, 0, _layout({PP: 16, EP: 64}),
        3_495_444_480, 6_990_888_960, 13_981_777_920, 0, [14, 1, 1], 4_817_193_984),
    Row("deepseek layout pp15, bf16 moments", "deepseek-v3", 1024, 15, _layout({PP: 16, EP: 64, **BF16_MOMENTS}),
        1_744_994_304, 3_489_988_608, 6_979_977_216, 0, [1, 1, 1], 2_244_492_288),
    Row("8b PP2 tied DP6 pp0", "llama3.1-8b", 12, 0, {PP: 2, "untie_embeddings_and_output_weights": False},
        4_015_128_576, 8_030_269_440, 16_060_538_880, 6_144, [49], 8_030_269_440),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_states_of_the_reference_table(row: Row) -> None:
    run = run_of({**MODELS[row.model], **row.changes}, row.world)
    sizes = Sizes(run)
    stage = states.stage(sizes, row.pp_rank, chunks_of(run, row.pp_rank))
    assert stage.dense.real + stage.expert.real == row.params
    padded = stage.dense.padded + stage.expert.padded
    assert padded * 2 == row.param_buffer
    assert padded * 4 == row.grad_buffer
    assert padded - row.params == row.padding
    found = sorted(len(buffer.ends) for grid in stage.grids for buffer in grid.buffers)
    assert found == sorted(row.buckets)
    owned = stage.dense.owned(0) + stage.expert.owned(0)
    assert owned * optimizer.state_bytes(sizes).total == row.optimizer


def test_the_account_adds_up_to_the_same_bytes() -> None:
    """Weights, gradients and states of the ledger itself: 8b TP8 CP2 DP3 (static bytes of the oracle: 8,038,450,176)."""
    found = ledger(run_of({**MODELS["llama3.1-8b"], TP: 8, CP: 2}, 48))
    assert isinstance(found, Ledger)
    assert found.ranks[0].static_bytes == 8_038_450_176
    assert sum(rank.count for rank in found.ranks) == 48


ACTIVATIONS = [
    ("llama3.1-8b", {}, 8192, 1_141_964_816),
    ("llama3.1-8b", {TP: 2}, 8192, 570_982_416),
    ("llama3.1-8b", {TP: 8, CP: 2}, 8192, 71_372_832),
    ("llama3.1-70b", {TP: 8}, 8192, 281_288_720),
    ("llama3.1-70b", {TP: 4}, 8192, 562_577_424),
    ("llama3.1-405b", {TP: 8, CP: 2}, 8192, 266_604_576),
    ("mixtral-8x22b", {TP: 2, EP: 8, **ETP1}, 8192, 1_226_031_188),
    ("qwen3-235b", {TP: 2, EP: 8, **ETP1}, 8192, 925_402_132),
    ("qwen3-235b", {TP: 4, EP: 32, **ETP1}, 8192, 462_701_588),
    ("deepseek-v3", {EP: 8, **ETP1}, 4096, 1_880_705_042),
    ("deepseek-v3", {TP: 2, EP: 64, **ETP1}, 4096, 941_402_130),
]


def _activations(model: str, changes: dict[str, Any], seq: int) -> Activations:
    args = {**MODELS[model], "seq_length": seq, **changes}
    args["sequence_parallel"] = args.get(TP, 1) > 1
    return Activations(Sizes(run_of(args, 128)))


@pytest.mark.parametrize(("model", "changes", "seq", "expected"), ACTIVATIONS)
def test_activations_of_the_reference_table(model: str, changes: dict[str, Any], seq: int, expected: int) -> None:
    found = _activations(model, changes, seq)
    moe = found.sizes.run.model.moe is not None
    assert found.layer(Kind(moe, False)) == expected


def test_dense_and_mtp_layers_of_deepseek() -> None:
    """Dense layer and MTP layer (with its norms and eh_proj, without the embedding's ids) at 4,096 tokens."""
    found = _activations("deepseek-v3", {EP: 8, **ETP1}, 4096)
    assert found.layer(Kind(False, False)) == 1_396_768_784
    depth = mtp(found.sizes, Kind(True, False), False)
    assert sum(depth.values()) - depth["mtp.mask"] == 2_174_388_242


RECOMPUTE = [
    ("llama3.1-8b", {TP: 8}, 8192, None, 142_745_616),
    ("llama3.1-8b", {TP: 8}, 8192, ["core_attn"], 153_100_288),
    ("llama3.1-8b", {TP: 8}, 8192, ["layernorm"], 142_745_616),
    ("llama3.1-8b", {TP: 8}, 8192, ["mlp"], 46_272_528),
    ("mixtral-8x22b", {TP: 2, EP: 4, **ETP1}, 4096, None, 613_015_636),
    ("mixtral-8x22b", {TP: 2, EP: 4, **ETP1}, 4096, ["moe_act"], 478_797_908),
    ("mixtral-8x22b", {TP: 2, EP: 4, **ETP1}, 4096, ["moe"], 159_793_168),
    ("deepseek-v3", {EP: 8, **ETP1}, 4096, ["mla_up_proj"], 1_325_451_282),
    ("deepseek-v3", {EP: 8, **ETP1}, 4096, ["shared_experts"], 1_830_373_394),
    ("deepseek-v3", {EP: 8, **ETP1}, 4096, ["mla_up_proj", "layernorm", "moe_act", "mlp"], 1_073_760_274),
]


@pytest.mark.parametrize(("model", "changes", "seq", "modules", "expected"), RECOMPUTE)
def test_recompute_table(model: str, changes: dict[str, Any], seq: int, modules: Any, expected: int) -> None:
    if modules is not None:
        changes = {**changes, "recompute_granularity": "selective", "recompute_modules": modules}
    found = _activations(model, changes, seq)
    assert found.layer(Kind(found.sizes.run.model.moe is not None, False)) == expected


def test_recomputed_dense_layer_of_deepseek() -> None:
    modules = ["mla_up_proj", "layernorm", "moe_act", "mlp"]
    changes = {EP: 8, **ETP1, "recompute_granularity": "selective", "recompute_modules": modules}
    assert _activations("deepseek-v3", changes, 4096).layer(Kind(False, False)) == 271_056_912


def test_local_unfused_attention_is_where_core_recompute_pays() -> None:
    """Local spec, 8b TP8: 1,891,639,296 B a layer, 211,820,544 with `core_attn` recomputed (s*s terms vanish)."""
    local = {TP: 8, "transformer_impl": "local", "apply_rope_fusion": False}
    assert _activations("llama3.1-8b", local, 8192).layer(Kind(False, False)) == 1_891_639_296
    core = {**local, "recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    assert _activations("llama3.1-8b", core, 8192).layer(Kind(False, False)) == 211_820_544
