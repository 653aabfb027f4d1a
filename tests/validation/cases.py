"""What is said about each case of the case log (`cases FILE`): illegal combinations, and memory verdicts with full facts.

A case is a recipe as data (Megatron argument names, a model of the shipped table) and what a good linter says: the ids
of the catalogue of conditions, or whether the recipe fits. Facts that a report leaves out are the smallest legal choice
and are marked in the comments. Cases of other frameworks, or without the facts to build a recipe, say why they are out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_lint.evaluate import evaluate

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = {
    "train_iters": 500, "lr": 1.0e-4, "min_lr": 1.0e-5, "bf16": True, "mock_data": True, "use_distributed_optimizer": True,
    "hidden_dropout": 0.0, "attention_dropout": 0.0, "micro_batch_size": 1, "seq_length": 4096,
    "max_position_embeddings": 131072, "tokenizer_type": "NullTokenizer",
}  # fmt: skip
MOE = {"moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "expert_tensor_parallel_size": 1}
SHORT = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size", "etp": "expert_tensor_parallel_size", "mbs": "micro_batch_size",
    "gbs": "global_batch_size", "seq": "seq_length", "vpp": "num_virtual_stages_per_pipeline_rank",
    "sp": "sequence_parallel", "layers": "num_layers",
}  # fmt: skip


class Recipe(NamedTuple):
    """One recipe of a case. `say`: ids of which one must be among the findings; `legal`; `fits`: the memory verdict, or
    `doubted`: that the verdict is not a plain yes."""

    args: dict[str, Any]
    world: int
    model: str | None = None
    say: tuple[str, ...] = ()
    fits: bool | None = None
    legal: bool | None = None
    gpu: str | None = None
    doubted: bool = False
    capacity: int | None = None  # bytes, where the device is none of those that are known
    version: str | None = None
    framework: str = "megatron"
    stack: dict[str, Any] = {}  # noqa: RUF012
    env: dict[str, str] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}  # noqa: RUF012

    def request(self) -> dict[str, Any]:
        usual = {**TRAIN, **(MOE if "ep" in self.args or "etp" in self.args else {})}
        args = usual if self.framework == "megatron" else {}
        for key, value in self.args.items():
            args[SHORT.get(key, key)] = value
        return {
            "id": "case", "framework": self.framework, "version": self.version, "model": self.model, "args": args,
            "env": self.env, "stack": self.stack,
            "target": {"gpu": self.gpu, "world_size": self.world, "gpus_per_node": min(self.world, 8)},
        }  # fmt: skip


GPT = {
    "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 50257, "position_embedding_type": "rope",
    "add_bias_linear": False, "swiglu": True, "normalization": "RMSNorm",
}  # fmt: skip
FP8 = {"fp8": "hybrid", "fp8_recipe": "tensorwise"}
MXFP8 = {"fp8": "e4m3", "fp8_recipe": "mxfp8"}
LLAMA3_70B_SFT = {"mbs": 1, "gbs": 32, "tp": 4, "pp": 4, "sp": True, "vpp": 5, **FP8}
MOONLIGHT = {"tp": 2, "sp": True, "ep": 8, "gbs": 4}
QWEN30 = {"mbs": 1, "gbs": 1024, "ep": 16, "moe_router_dtype": "fp32"}

# Case -> the recipes it states and what must be said of each.
CASES: dict[str, list[Recipe]] = {
    "LEG-01": [Recipe({"pp": 2, "ep": 4, "etp": 1, "gbs": 8, **GPT, "num_experts": 32, "layers": 24}, 4, say=("T02",))],
    "LEG-02": [
        Recipe({"pp": 2, "ep": 8, "etp": 1, "gbs": 8}, 8, "qwen3-30b-a3b", say=("T02",)),
        Recipe({"pp": 1, "ep": 8, "etp": 1, "gbs": 8}, 8, "qwen3-30b-a3b", legal=True),  # the cure
        Recipe({"pp": 2, "ep": 4, "etp": 1, "gbs": 8}, 8, "qwen3-30b-a3b", legal=True),  # the other cure
    ],
    "LEG-03": [  # two key-value groups under TP 8: fine from core 0.16 on, which is the oldest version known here
        Recipe({"tp": 8, "sp": True, "gbs": 8, "num_query_groups": 2, "group_query_attention": True, **GPT, "layers": 8}, 8,
               legal=True, version="core-0.16.1"),
        Recipe({"tp": 8, "sp": True, "gbs": 8, "num_query_groups": 3, "group_query_attention": True, **GPT,
                "num_attention_heads": 24, "hidden_size": 3072, "layers": 8}, 8, say=("T04",)),
    ],
    "LEG-04": [
        Recipe({"tp": 2, "ep": 4, "gbs": 8}, 8, "qwen3-30b-a3b", say=("M03",)),
        Recipe({"tp": 2, "ep": 4, "gbs": 8, "sp": True}, 8, "qwen3-30b-a3b", legal=True),
        Recipe({"tp": 2, "ep": 4, "gbs": 8}, 8, "mixtral-8x7b", say=("M03",)),
    ],
    "LEG-05": [
        Recipe({"layers": 20, "decoder_last_pipeline_num_layers": 1, "gbs": 8, **GPT}, 8, say=("P20", "P15")),
        Recipe({"layers": 20, "decoder_first_pipeline_num_layers": 1, "decoder_last_pipeline_num_layers": 1, "gbs": 8,
                **GPT}, 8, say=("P20", "P15")),
    ],
    "LEG-06": [Recipe({"layers": 80, "pp": 16, "num_layers_per_virtual_pipeline_stage": 2, "gbs": 16, **GPT}, 16,
                      say=("P02", "L27"))],
    "LEG-07": [Recipe({"layers": 40, "pp": 8, "num_layers_per_virtual_pipeline_stage": 2, "gbs": 8, **GPT,
                       "hidden_size": 5120, "num_attention_heads": 40}, 8, say=("P02", "L27"))],
    "LEG-09": [Recipe({"layers": 24, "pp": 6, "vpp": 2, "gbs": 3, **GPT}, 6, say=("P06",))],
    "LEG-10": [
        Recipe({"layers": 32, "pp": 4, "vpp": 2, "gbs": 6, **GPT}, 4, say=("P07",)),
        Recipe({"layers": 32, "pp": 4, "vpp": 2, "gbs": 8, **GPT}, 4, legal=True),
    ],
    "LEG-13": [Recipe({"tp": 8, "sp": True, "seq": 1026, "gbs": 8, **GPT, "layers": 8}, 8, say=("C02",))],
    "LEG-14": [  # CP * lcm(2, TP) = 2 * lcm(2, 3) = 12: neither lcm(4, 3) ... nor 2*2*3 only
        Recipe({"tp": 4, "cp": 3, "sp": True, "seq": 4110, "gbs": 2, **GPT, "layers": 8}, 24, say=("C02",)),
        Recipe({"tp": 4, "cp": 3, "sp": True, "seq": 4104, "gbs": 2, **GPT, "layers": 8}, 24, legal=True),
    ],
    "LEG-15": [Recipe({"cp": 4, "seq": 32764, "gbs": 2, **GPT, "layers": 8}, 8, say=("C01",))],
    "LEG-18": [Recipe({"tp": 4, "sp": True, "seq": 31936, "gbs": 8, **GPT, "layers": 8, **MXFP8}, 8, say=("N16",),
                      gpu="b200", stack={"arch": 10})],
    "LEG-19": [Recipe({"cp": 4, "seq": 744, "gbs": 8, **GPT, "layers": 8, "ffn_hidden_size": 11000, **FP8}, 8,
                      say=("N16",))],
    "LEG-23": [
        Recipe({"ep": 8, "gbs": 8, "enable_primus_turbo": True, "use_turbo_grouped_gemm": True,
                "moe_use_legacy_grouped_gemm": True}, 8, "mixtral-8x7b", say=("PR22",), framework="primus-megatron"),
        Recipe({"ep": 8, "gbs": 8, "enable_primus_turbo": True, "use_turbo_grouped_mlp": True}, 8, "mixtral-8x7b",
               say=("PR23",), framework="primus-megatron"),
    ],
    "LEG-25": [
        Recipe({"pp": 4, "gbs": 8, "cpu_offloading_num_layers": layers}, 8, "llama3-70b", say=("P35",))
        for layers in (2, 4, 6)
    ],
    # Memory: the verdict on the stated device.
    "OOM-01": [
        Recipe({**LLAMA3_70B_SFT, "recompute_granularity": "selective"}, 32, "llama3-70b", gpu="h100", legal=True),
        Recipe({**LLAMA3_70B_SFT, "pp": 8, "recompute_granularity": "selective"}, 32, "llama3-70b", gpu="h100", fits=True),
        Recipe({**LLAMA3_70B_SFT, "tp": 8, "recompute_granularity": "selective"}, 32, "llama3-70b", gpu="h100", fits=True),
    ],
    "OOM-02": [
        Recipe(MOONLIGHT, 8, "moonlight-16b", gpu="h100", fits=True),
        Recipe({**MOONLIGHT, "recompute_granularity": "selective", "recompute_modules": ["core_attn"]}, 8,
               "moonlight-16b", gpu="h100", fits=True, say=("R20", "L13")),
    ],
    "OOM-04": [
        Recipe(QWEN30, 16, "qwen3-30b-a3b", gpu="h100", fits=True),
        Recipe({**QWEN30, "recompute_granularity": "selective", "recompute_modules": ["core_attn"]}, 16,
               "qwen3-30b-a3b", gpu="h100", fits=True, say=("R20", "L13")),
    ],
    "LEG-20": [  # expert degrees that divide neither the ranks nor the experts
        Recipe({"model.name": "deepseek_v3", "model.flavor": "16B", "parallelism.expert_parallel_degree": 3}, 8,
               framework="torchtitan", say=(code,))
        for code in ("TT03", "TT04")
    ],
    "OOM-09": [  # 229.0 GiB allocated, 11.74 more wanted; the band spans fused norms to those of single operations
        Recipe({"model.name": "llama3", "model.flavor": "8B", "training.local_batch_size": 3, "training.seq_len": 8192,
                "activation_checkpoint.mode": "none"}, 8, framework="torchtitan", gpu="mi325x", capacity=252 << 30,
               doubted=True),
    ],
    "OOM-17": [  # no distributed optimizer, unfused attention; PyTorch 2023 on a V100 without BF16: fp16
        Recipe({"layers": 36, "hidden_size": 1280, "num_attention_heads": 20, "vocab_size": 50257, "seq": 1024, "mbs": 4,
                "gbs": 4, "bf16": False, "fp16": True, "transformer_impl": "local",
                "use_distributed_optimizer": False, "no_persist_layer_norm": True}, 1, gpu="a100-40gb", capacity=32 << 30, doubted=True),  # V100-32
    ],
    "OOM-18": [
        Recipe({"seq": 64, "gbs": 8, "use_distributed_optimizer": False}, 8, "llama2-7b", gpu="a100-40", fits=False),
    ],
    "OOM-24": [Recipe({"ep": 2, "gbs": 4, "seq": 3000, "recompute_granularity": "full", "recompute_method": "uniform",
                       "recompute_num_layers": 1}, 4, "qwen3-30b-a3b", gpu="a100-40gb", capacity=24 << 30, fits=False)],  # RTX 4090
}  # fmt: skip

OUT: dict[str, str] = {
    "LEG-08": "Megatron's own builder takes a stage with the MTP layer alone; the failure is one of ms-swift's adapter",
    "LEG-11": "nanotron is not read", "LEG-12": "gpt-neox is not read, and the degrees are not stated",
    "LEG-16": "a slicing bug of a multimodal model, not a fault of the recipe",
    "LEG-17": "TransformerEngine used directly; Megatron pads the input of its experts itself",
    "LEG-21": "Megatron-Bridge recipes are checked by key and text only",
    "LEG-22": "Megatron-Bridge recipes are checked by key and text only",
    "LEG-24": "LoRA on experts is a Megatron-Bridge setting", "LEG-26": "the sequence length of the evaluation is not stated",
    "LEG-27": "the packing of an SFT data set is not in the recipe",
    "OOM-03": "hybrid Mamba models are not modelled", "OOM-06": "torchtitan memory of experts is not modelled",
    "OOM-07": "torchtitan memory of experts is not modelled",
    "OOM-10": "hybrid GDN models are not modelled", "OOM-11": "hybrid KDA models are not modelled",
    "OOM-12": "hybrid Mamba models are not modelled", "OOM-13": "DeepSeek-V4 and Muon states are not modelled",
    "OOM-21": "the rollout engine beside the training of an RL run is not in the recipe", "OOM-25": "no figures of the Ascend 910B4",
    "OOM-28": "DeepSpeed ZeRO-3 is not read", "OOM-29": "DeepSpeed ZeRO-3 is not read",
}  # fmt: skip


def run(paths: list[Path]) -> dict[str, Any]:
    """The verdict per case of the sections on memory (full facts) and on illegal combinations."""
    text = paths[0].read_text(encoding="utf-8")
    listed = re.findall(r"^### ((?:LEG|OOM)-\d+)  \((\w+)\)", text, re.MULTILINE)
    rows = []
    for case, completeness in listed:
        if case.startswith("OOM") and completeness != "FULL" and case not in CASES:
            continue
        if case in CASES:
            problems = [problem for recipe in CASES[case] if (problem := judge(recipe))]
            rows.append({"case": case, "facts": completeness, "said": not problems, "problems": problems})
        else:
            rows.append({"case": case, "facts": completeness, "said": None, "problems": [OUT.get(case, "not treated")]})
    said = sum(row["said"] is True for row in rows)
    judged = sum(row["said"] is not None for row in rows)
    print(f"{said} of {judged} cases said; {len(rows) - judged} out of reach")
    for row in rows:
        mark = {True: "said", False: "MISSED", None: "out"}[row["said"]]
        print(f"  {row['case']} ({row['facts']}): {mark}{': ' + '; '.join(row['problems']) if row['problems'] else ''}")
    return {"said": said, "judged": judged, "cases": {row["case"]: row for row in rows}}


def _fits(memory: dict[str, Any], capacity: int | None) -> bool | None:
    """The verdict on the device, or on a capacity of one's own."""
    if capacity is None:
        return memory["fits"]
    if any(rank["device_low_bytes"] > capacity for rank in memory["ranks"]):
        return False
    return True if all(rank["device_high_bytes"] <= capacity for rank in memory["ranks"]) else None


def judge(recipe: Recipe) -> str:
    """What is missing from what is said of a recipe; "" when nothing is."""
    answer = evaluate(recipe.request())
    if not answer["ok"]:
        return f"not evaluated: {answer['error']}"
    found = {one for finding in answer["findings"] for one in finding["catalogue_ids"]}
    errors = [
        f"{f['name']}: {f['message']}" for f in answer["findings"] if f["severity"] == "error" and f["code"][0] != "M"
    ]
    if recipe.say and not found & set(recipe.say):
        return f"none of {', '.join(recipe.say)} said, but {errors[:2] or sorted(found)}"
    if recipe.legal and not answer["legal"]:
        return f"legal, but {errors[:2]}"
    if recipe.fits is not None or recipe.doubted:
        if errors:
            return f"illegal: {errors[:2]}"
        memory = answer["memory"]
        if memory is None or not memory["ranks"]:
            return "no memory"
        verdict = _fits(memory, recipe.capacity)
        if verdict is True if recipe.doubted else verdict is not recipe.fits:
            high = max(rank["device_high_bytes"] for rank in memory["ranks"])
            return f"fits should be {recipe.fits}: {memory['reason']} (up to {high / 2**30:.1f} GiB)"
    return ""
