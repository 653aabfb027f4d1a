"""The layers that are measured compute what they should, and measuring them works (needs PyTorch, CPU is enough)."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `measure`)")

from primus_lint.ir.record import replace  # noqa: E402
from primus_lint.measure import device as devices  # noqa: E402
from primus_lint.measure import kernels, parts, plan, session, timing  # noqa: E402
from primus_lint.measure.ends import Head  # noqa: E402
from primus_lint.measure.experts import Experts  # noqa: E402
from primus_lint.measure.links import Links  # noqa: E402
from primus_lint.measure.modules import Attention, Layer, core  # noqa: E402
from tests.projection.recipes import run  # noqa: E402

SMALL: dict[str, Any] = {
    "num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "num_attention_heads": 8, "num_query_groups": 4,
    "kv_channels": 16, "seq_length": 32, "vocab_size": 1000, "micro_batch_size": 2, "bf16": False, "gpu": None,
    "hidden_dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
CPU, FP32 = torch.device("cpu"), torch.float32


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def recipe(model: str = "llama3-8b", **args: Any) -> Any:
    return run(model, **{**SMALL, **args})


def weights(module: Any) -> int:
    """Elements of matrices: no norms, no biases."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)


@pytest.mark.parametrize(
    ("model", "moe", "args"),
    [
        ("llama3-8b", False, {}),
        ("llama3-8b", False, {"tensor_model_parallel_size": 4, "world_size": 8}),
        ("mixtral-8x7b", True, {"num_experts": 8, "expert_model_parallel_size": 4, "moe_ffn_hidden_size": 96}),
        ("deepseek-v2-lite", True, {"expert_model_parallel_size": 8, "num_layers": 4, "moe_layer_freq": [0, 1, 1, 1]}),
        ("deepseek-v3", False, {"num_layers": 4, "moe_layer_freq": [0, 0, 0, 1], "mtp_num_layers": None}),
    ],
)
def test_a_layer_has_the_weights_that_the_projection_counts(model: str, moe: bool, args: dict[str, Any]) -> None:
    shape = recipe(model, **args)
    links = Links(shape, FP32, CPU)
    layer = Layer(shape, moe, links, FP32, CPU)
    held = sum(
        gemm.weights
        for gemm in plan.gemms(shape)
        if gemm.name != "logits"
        and (not moe or gemm.name not in ("fc1", "fc2"))
        and (moe or not gemm.name.startswith(("expert", "shared", "router")))
    )
    assert weights(layer) == held
    x = torch.randn(2, links.length, 64, requires_grad=True)
    out = layer(x)
    assert out.shape == x.shape
    out.sum().backward()
    assert x.grad is not None and all(parameter.grad is not None for parameter in layer.parameters())


def test_a_layer_is_what_its_formula_says() -> None:
    """Norm, attention written out by hand, residual, gated MLP."""
    shape = recipe()
    layer = Layer(shape, False, Links(shape, FP32, CPU), FP32, CPU)
    x = torch.randn(2, 32, 64)
    attention, mlp = layer.attention, layer.mlp
    mixed = attention.qkv(attention.norm(x))
    query, key, value = mixed.split([8 * 16, 4 * 16, 4 * 16], dim=-1)
    query = attention.rotary(query.view(2, 32, 8, 16).transpose(1, 2))
    key = attention.rotary(key.view(2, 32, 4, 16).transpose(1, 2)).repeat_interleave(2, 1)
    value = value.view(2, 32, 4, 16).transpose(1, 2).repeat_interleave(2, 1)
    scores = query @ key.transpose(-1, -2) / 4.0
    scores = scores + torch.full((32, 32), float("-inf")).triu(1)
    middle = x + attention.proj((scores.softmax(-1) @ value).transpose(1, 2).reshape(2, 32, 128))
    gate, up = mlp.fc1(layer.norm(middle)).chunk(2, dim=-1)
    expected = middle + mlp.fc2(torch.nn.functional.silu(gate) * up)
    assert torch.allclose(layer(x), expected, atol=1e-5)


def test_fused_and_unfused_attention_agree() -> None:
    fused, unfused = recipe(), recipe(attention_backend="unfused")
    operands = torch.randn(2, 8, 32, 16), torch.randn(2, 4, 32, 16), torch.randn(2, 4, 32, 16)
    assert torch.allclose(core(fused, *operands), core(unfused, *operands), atol=1e-5)


@pytest.mark.parametrize("kind", ["p2p", "a2a"])
def test_a_context_parallel_share_does_a_share_of_the_work(kind: str) -> None:
    """cp 2 of 32 tokens: 16 queries meet 16 keys on average; all-to-all: all 32 tokens, half of the heads."""
    shape = recipe(context_parallel_size=2, cp_comm_type=kind, world_size=8)
    links = Links(shape, FP32, CPU)
    assert links.length == 16
    x = torch.randn(2, 16, 64, requires_grad=True)
    with torch.autograd.profiler.profile(with_flops=True) as profile:
        Attention(replace_attention(shape), links, FP32, CPU)(x)
    products = {event.key: event.flops for event in profile.key_averages() if event.key in ("aten::bmm",)}
    assert products["aten::bmm"] == 2 * 2 * 2 * 8 * 16 * 16 * 16 * (
        2 if kind == "a2a" else 1
    )  # unfused a2a: the whole square


def replace_attention(shape: Any) -> Any:
    return replace(shape, kernels=replace(shape.kernels, attention_backend="unfused"))


def test_a_sequence_parallel_share_multiplies_all_tokens_and_norms_its_own() -> None:
    shape = recipe(tensor_model_parallel_size=4, sequence_parallel=True, world_size=8)
    links = Links(shape, FP32, CPU)
    layer = Layer(shape, False, links, FP32, CPU)
    seen: dict[str, int] = {}
    layer.norm.register_forward_hook(lambda module, inputs, out: seen.update(norm=inputs[0].shape[1]))
    layer.mlp.fc1.register_forward_hook(lambda module, inputs, out: seen.update(fc1=inputs[0].shape[1]))
    x = torch.randn(2, 8, 64, requires_grad=True)
    layer(x).sum().backward()
    assert seen == {"norm": 8, "fc1": 32}
    assert x.grad is not None and layer.attention.qkv.weight.grad is not None


def test_every_local_expert_gets_the_same_number_of_rows() -> None:
    """2 x 32 tokens, 2 of 8 experts each, 4 ranks: 128 copies over the 2 experts of a rank."""
    shape = recipe("mixtral-8x7b", expert_model_parallel_size=4, moe_ffn_hidden_size=96, num_experts=8)
    experts = Experts(shape, Links(shape, FP32, CPU), FP32)
    assert (experts.local, experts.rows) == (2, 64)
    x = torch.randn(2, 32, 64)
    together = experts(x)
    experts.batched = not experts.batched
    assert torch.allclose(experts(x), together, atol=1e-6)


def test_the_head_is_cross_entropy() -> None:
    """Megatron's cross entropy by hand (in place, fp32) against PyTorch's, with its gradient."""
    shape = recipe()
    head = Head(shape, Links(shape, FP32, CPU), FP32)
    assert not head.fused
    x = torch.randn(2, 32, 64, requires_grad=True)
    target = torch.randint(1000, (2, 32))
    loss = head(x, target)
    loss.backward()
    own = x.grad.clone()
    x.grad = None
    expected = torch.nn.functional.cross_entropy(head.logits(head.norm(x)).flatten(0, 1), target.flatten())
    expected.backward()
    assert torch.allclose(loss, expected, atol=1e-5) and torch.allclose(own, x.grad, atol=1e-6)


@pytest.mark.parametrize("groups", [0, 3])
@pytest.mark.parametrize("layout", ["TN", "NN", "NT"])
def test_products_multiply_what_they_say(layout: str, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 x 6 with 4 in between: the operands have those sizes, in the layout of the pass."""
    here = devices.find("cpu")
    seen = []
    original = torch.mm

    def watched(left: Any, right: Any, out: Any = None) -> Any:
        seen.append((tuple(left.shape), tuple(right.shape), left.is_contiguous(), right.is_contiguous()))
        return original(left, right, out=out)

    monkeypatch.setattr(torch, "mm", watched)
    monkeypatch.setattr(kernels, "copies", lambda here, size: 2)
    kernels.product(here, "fp32", layout, 8, 6, 4, 0.0, groups)
    assert set(seen) == {((8, 4), (4, 6), layout != "NT", layout != "TN")}


def test_medians_and_quartiles() -> None:
    assert timing.summary([5.0, 1.0, 2.0, 3.0, 4.0]) == timing.Timed(3.0, 2.0, 4.0, 5)
    assert timing.summary([2.0]) == timing.Timed(2.0, 2.0, 2.0, 1)


def test_longer_work_takes_longer() -> None:
    """Eight times the product: at least twice the time, on the noisiest machine."""
    here = devices.find("cpu")
    short = kernels.product(here, "fp32", "TN", 256, 256, 256, 0.05)
    long = kernels.product(here, "fp32", "TN", 512, 512, 512, 0.05)
    assert long.median_s > 2 * short.median_s


def test_a_whole_session_measures_every_part() -> None:
    shape = recipe("deepseek-v2-lite", expert_model_parallel_size=8, num_layers=4, moe_layer_freq=[0, 1, 1, 1])
    here = devices.find("cpu")
    said: list[str] = []
    planned = plan.plan(shape, here.memory_bytes)
    rows = list(session.measure(here, session.jobs(here, planned, 0.0, ("layers", "products")), said.append))
    found = {(row.operation, row.layout) for row in rows}
    for kind in ("dense_layer", "moe_layer", "head"):
        assert {(kind, layout) for layout in ("forward", "backward", "dgrad")} <= found
    assert {("embedding", "forward"), ("optimizer", "adam"), ("gemm", "NT"), ("grouped_gemm", "NN")} <= found
    assert all(row.device.startswith("cpu-") and row.low_s <= row.median_s <= row.high_s for row in rows)
    assert not [line for line in said if "not measured" in line]
    assert any("expert parallelism 8 -> 1" in note for note in planned.notes)


def test_a_layer_that_does_not_fit_is_measured_with_fewer_samples() -> None:
    shape = recipe(micro_batch_size=8)
    room = plan.layer_bytes(replace(shape, batch=replace(shape.batch, micro_batch_size=2)))
    planned = plan.plan(shape, int(room / 0.8) + 1)
    assert planned.run.batch.micro_batch_size == 2
    assert planned.notes[-2:] == (
        "micro-batch 8 -> 4: the layer does not fit the device", "micro-batch 4 -> 2: the layer does not fit the device",
    )  # fmt: skip


def test_what_cannot_run_is_said_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("CUDA out of memory\nmore")

    monkeypatch.setattr(parts, "part", fails)
    here = devices.find("cpu")
    said: list[str] = []
    jobs = session.jobs(here, plan.plan(recipe(), here.memory_bytes), 0.0, ("layers",))
    rows = list(session.measure(here, jobs[:1], said.append))
    assert rows == [] and said == ["[1/1] dense layer: not measured: CUDA out of memory"]
