"""What PyTorch's partitioner of compiled graphs saves for the backward pass of torchtitan's blocks, on a CPU.

`python compiled.py ../shared/oracle`: one JSON object, name -> bytes that the outputs' graph holds besides parameters and
rotary table. The backend is AOTAutograd with the partitioner of Inductor; attention is the stand-in of witness.py.
"""

from __future__ import annotations

import gc
import importlib.util
import json
from typing import Any

import witness

witness.prepare()
import torch  # noqa: E402

TOKENS = (2, 64)


def saved_bytes(function: Any, inputs: tuple[Any, ...], parameters: list[Any]) -> int:
    """Storages reachable from the output's graph, each counted once."""
    skip = {parameter.untyped_storage()._cdata for parameter in parameters}
    function(*inputs)
    gc.collect()
    out = function(*inputs)
    found: dict[int, int] = {}
    nodes, seen = [(out[0] if isinstance(out, tuple) else out).grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        if type(node).__name__ == "MulBackward0" and not hasattr(node, "saved_tensors"):
            continue  # the multiplication that makes the input a tensor of its own
        for tensor in getattr(node, "saved_tensors", ()):
            storage = tensor.untyped_storage()
            if storage._cdata not in skip:
                found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def compiled(module: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(module, backend="aot_eager_decomp_partition")


def block_of(module: Any, table: Any, float8: str | None = None, selective: bool = False) -> int:
    module = module.bfloat16()
    parameters = [*module.parameters(), table]
    if float8 is not None:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(module, config=Float8LinearConfig.from_recipe_name(float8))
        parameters = [*module.parameters(), table]
    if selective:
        from torchtitan.config.job_config import ActivationCheckpoint
        from torchtitan.distributed.activation_checkpoint import _apply_op_sac
        from torchtitan.models.llama3.infra.parallelize import _op_sac_save_list

        module = _apply_op_sac(module, ActivationCheckpoint(mode="selective"), op_sac_save_list=_op_sac_save_list)
    width = 128
    x = torch.randn(*TOKENS, width, dtype=torch.bfloat16, requires_grad=True)
    return saved_bytes(compiled(module), (x * 1, table, None), parameters)


def main() -> None:
    from torchtitan.models.deepseek_v3.model.args import DeepSeekV3ModelArgs
    from torchtitan.models.deepseek_v3.model.model import TransformerBlock as DeepSeek
    from torchtitan.models.deepseek_v3.model.model import precompute_freqs_cis
    from torchtitan.models.llama3.model.args import TransformerModelArgs
    from torchtitan.models.llama3.model.model import TransformerBlock as Llama
    from torchtitan.models.moe import FeedForward
    from torchtitan.models.moe import moe as experts
    from torchtitan.models.qwen3.model.args import Qwen3ModelArgs
    from torchtitan.models.qwen3.model.model import TransformerBlock as Qwen
    from torchtitan.models.qwen3.model.model import precompute_rope_cache

    out: dict[str, int] = {}
    llama = TransformerModelArgs(dim=128, n_layers=2, n_heads=4, n_kv_heads=2, multiple_of=64, vocab_size=512)
    table = torch.ones(64, 16, dtype=torch.complex64)
    out["llama3"] = block_of(Llama(0, llama), table)
    out["llama3 selective"] = block_of(Llama(0, llama), table, selective=True)
    if importlib.util.find_spec("torchao") is not None:
        for recipe in ("tensorwise", "rowwise"):
            out[f"llama3 {recipe}"] = block_of(Llama(0, llama), table, recipe)
    qwen = Qwen3ModelArgs(
        dim=128, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=32, hidden_dim=320, qk_norm=True, moe_enabled=False
    )
    out["qwen3"] = block_of(Qwen(0, qwen), precompute_rope_cache(32, 64).bfloat16())
    for rank in (0, 48):
        deepseek = DeepSeekV3ModelArgs(
            dim=128, inter_dim=384, n_heads=4, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=24,
            q_lora_rank=rank, max_seq_len=64, attn_type="sdpa",
        )  # fmt: skip
        out[f"deepseek_v3 {rank}"] = block_of(DeepSeek(0, deepseek), precompute_freqs_cis(deepseek))
    shared = FeedForward(128, 96).bfloat16()
    x = torch.randn(128, 128, dtype=torch.bfloat16, requires_grad=True)
    out["shared experts"] = saved_bytes(compiled(shared), (x * 1,), [*shared.parameters()])
    shapes = ((2, 64, 128), (2, 128, 64), (2, 64, 128))
    w1, w2, w3 = (torch.randn(*shape, dtype=torch.bfloat16, requires_grad=True) for shape in shapes)
    products = compiled(experts._run_experts_grouped_mm)
    rows = torch.randn(272, 128, dtype=torch.bfloat16, requires_grad=True)
    counts = torch.tensor([136, 136])
    out["routed experts"] = saved_bytes(lambda x: products(w1, w2, w3, x, counts), (rows * 1,), [w1, w2, w3])
    print(json.dumps(out))


if __name__ == "__main__":
    main()
