"""Ask the real Megatron-Core 0.16.1 how it deals layers to pipeline stages, and what it refuses.

Run as a script it reads one JSON object a line (`{"id", "args"}`, Megatron's dest names) from standard input and writes
`{"id", "layers", "error"}` lines: decoder layers per [rank][virtual stage], or the error. The checks of
`validate_args`, which the core package does not have, are three assertions here.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.oracle.ask import ORACLE

REPO = Path(__file__).resolve().parents[2]
BASE: dict[str, Any] = {
    "micro_batch_size": 1, "global_batch_size": 3072, "train_iters": 500, "lr": 3e-4, "bf16": True, "swiglu": True,
    "normalization": "RMSNorm", "position_embedding_type": "rope", "add_bias_linear": False, "mock_data": True,
    "hidden_size": 3072, "num_attention_heads": 24, "ffn_hidden_size": 8192, "vocab_size": 128256, "seq_length": 4096,
    "max_position_embeddings": 4096,
}  # fmt: skip


def layout(rng: random.Random, layers: int, pp: int) -> tuple[str, int]:
    """A random layout string, right or wrong, and the MTP layers that go with it."""
    count = pp * rng.choice([1, 2, 3]) + rng.choice([0, 0, 0, 1])
    cuts = [0, *sorted(rng.choice(range(layers + 1)) for _ in range(count - 1)), layers]
    stages = ["t" * (end - start) for start, end in itertools.pairwise(cuts)]
    stages[0] = "E" + stages[0]
    stages[-1] += "L"
    depths = rng.choice([0, 0, 1, 2])
    if depths:
        place = rng.choice([len(stages) - 1, len(stages) - 1, rng.randrange(len(stages))])
        tail = "L" if "L" in stages[place] else ""
        stages[place] = stages[place].replace("L", "") + "m" * depths + tail
    spoil = rng.random()
    if spoil < 0.1:
        stages[0] = stages[0].replace("E", "")
    elif spoil < 0.15:
        stages[-1] += "E"
    elif spoil < 0.2:
        stages[-1] = "L" + stages[-1]
    text = "|".join(stages)
    spelling = rng.choice([
        lambda s: s, lambda s: s, lambda s: s.replace("tttt", "t*4"), lambda s: s.replace("t|", "(t|)*1", 1),
        lambda s: f"({s})", lambda s: s.replace("t", "t,", 2), lambda s: s.replace("t", "x", 1),
        lambda s: s.replace("|", "||", 1), lambda s: " " + s, lambda s: "((t|)*2)*2" + s,
    ])  # fmt: skip
    return spelling(text), depths if rng.random() < 0.9 else 1


def recipes(count: int, seed: int) -> list[dict[str, Any]]:
    """Recipes that differ in how they split their layers; many are wrong."""
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        layers, pp = rng.choice([8, 12, 16, 30, 32]), rng.choice([1, 2, 3, 4, 8])
        args = {**BASE, "num_layers": layers, "pipeline_model_parallel_size": pp}
        if rng.random() < 0.35:
            text, depths = layout(rng, layers if rng.random() < 0.9 else layers - 1, pp)
            args["pipeline_model_parallel_layout"] = text
            if depths:
                args["mtp_num_layers"] = depths
        elif rng.random() < 0.5:
            args["num_virtual_stages_per_pipeline_rank"] = rng.choice([1, 2, 3, 4])
        if rng.random() < 0.4:
            args["decoder_first_pipeline_num_layers"] = rng.choice([0, 1, 2, 3, 4, 6, 8, 12, layers, layers + pp - 1])
        if rng.random() < 0.4:
            args["decoder_last_pipeline_num_layers"] = rng.choice([1, 2, 3, 4, 6, 8, 12, layers])
        for key in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
            if rng.random() < 0.12:
                args[key] = True
        out.append(args)
    return out


def ask_splits(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each recipe {"layers", "error"} of the real code."""
    lines = "\n".join(json.dumps({"id": number, "args": args}) for number, args in enumerate(asked))
    done = subprocess.run(
        [sys.executable, "-m", "tests.oracle.splits"],
        input=lines, capture_output=True, text=True, cwd=REPO, check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"id"')]
    if len(found) != len(asked):
        raise RuntimeError(done.stderr[-2000:])
    return found


def _layers(args: dict[str, Any]) -> list[list[int]]:
    """Decoder layers per [rank][virtual stage] of the real config. Raises what it raises."""
    import torch
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_block import get_num_layers_to_build
    from megatron.core.transformer.transformer_config import TransformerConfig

    pp, text = args["pipeline_model_parallel_size"], args.get("pipeline_model_parallel_layout")
    first, last = args.get("decoder_first_pipeline_num_layers"), args.get("decoder_last_pipeline_num_layers")
    embedding = args.get("account_for_embedding_in_pipeline_split", False)
    loss = args.get("account_for_loss_in_pipeline_split", False)
    virtual = args.get("num_virtual_stages_per_pipeline_rank", 1)
    if text is not None:
        count = PipelineParallelLayerLayout.get_num_stages_from_str(text)
        assert count % pp == 0, "stages of the layout"
        virtual = count // pp
    elif first is None and last is None and "num_virtual_stages_per_pipeline_rank" not in args:
        assert (args["num_layers"] + embedding + loss) % pp == 0, "layers over ranks"
    assert virtual == 1 or pp > 1, "virtual stages without a pipeline"
    config = TransformerConfig(
        num_layers=args["num_layers"],
        hidden_size=args["hidden_size"],
        num_attention_heads=args["num_attention_heads"],
        pipeline_model_parallel_size=pp,
        virtual_pipeline_model_parallel_size=None if virtual == 1 else virtual,
        pipeline_dtype=torch.bfloat16,
        bf16=True,
        num_layers_in_first_pipeline_stage=first,
        num_layers_in_last_pipeline_stage=last,
        account_for_embedding_in_pipeline_split=embedding,
        account_for_loss_in_pipeline_split=loss,
        pipeline_model_parallel_layout=text,
        mtp_num_layers=args.get("mtp_num_layers"),
    )
    if text is not None:
        table = config.pipeline_model_parallel_layout.layout
        return [[chunk.count(LayerType.decoder) for chunk in rank] for rank in table]
    chunks = [None] if virtual == 1 else list(range(virtual))
    return [[get_num_layers_to_build(config, vp_stage=chunk, pp_rank=rank) for chunk in chunks] for rank in range(pp)]


def main() -> None:
    """Answer the questions on standard input."""
    import importlib
    import warnings

    warnings.simplefilter("ignore")
    sys.path.insert(0, str(ORACLE))
    importlib.import_module("common")._install_fake_cuda(100)
    importlib.import_module("te_stub").install()
    for line in sys.stdin:
        question = json.loads(line)
        answer: dict[str, Any] = {"id": question["id"], "layers": None, "error": None}
        try:
            answer["layers"] = _layers(question["args"])
        except Exception as found:  # the class of the error is part of the answer
            answer["error"] = f"{type(found).__name__}: {' '.join(str(found).split())}"[:200]
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
