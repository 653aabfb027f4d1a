"""Conditions that the real program meets only after its argument check, asked of the real Megatron-Core and PyTorch.

Each rule's `bad` value stops what its `see` names, and its `good` one does not.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.oracle.ask import ORACLE, why_not

pytestmark = pytest.mark.oracle
REASON = why_not()
PRELUDE = """
import json, os, sys; sys.path.insert(0, '.')
import torch
from common import _install_fake_cuda; _install_fake_cuda(90)
import te_stub; te_stub.install()
import megatron.core.models.gpt.gpt_layer_specs
def stops(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__
    return None
"""

CASES: dict[str, tuple[str, str]] = {
    "O180": (
        """
from megatron.core.optimizer.grad_scaler import ConstantGradScaler, DynamicGradScaler
torch.tensor = lambda data, *args, tensor=torch.tensor, **kwargs: tensor(data)
usual = dict(initial_scale=2.0**32, min_scale=1.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=1000, hysteresis=2)
said = [stops(ConstantGradScaler, -1.0), stops(ConstantGradScaler, 1.0), stops(DynamicGradScaler, **usual)]
for change in ({"initial_scale": 0.5}, {"min_scale": 0.0}, {"growth_interval": 0}, {"hysteresis": 0}):
    said.append(stops(DynamicGradScaler, **{**usual, **change}))
print(*said)
""",
        "AssertionError None None AssertionError AssertionError AssertionError AssertionError",
    ),
    "E183": (
        """
from megatron.core.fusions.fused_bias_swiglu import weighted_bias_swiglu_impl as swiglu
from megatron.core.fusions.fused_bias_geglu import weighted_bias_quick_geglu_impl as quick
x, weights, bias = torch.ones(4, 8), torch.ones(4, 1), torch.ones(8)
print(stops(swiglu, x, bias, weights), stops(swiglu, x, None, weights), stops(quick, x, bias, weights))
""",
        "NotImplementedError None None",
    ),
    "P252": (
        """
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec as spec
print(stops(spec, multi_latent_attention=True, qk_l2_norm=True), stops(spec, multi_latent_attention=True, qk_layernorm=True),
      stops(spec, qk_l2_norm=True))
""",
        "AssertionError None None",
    ),
    "P253": (
        """
from megatron.core.models.common.embeddings.rope_utils import _apply_rotary_pos_emb_bshd as turn
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
def forward(width):
    frequencies = RotaryEmbedding(width, 1.0, use_cpu_initialization=True).get_freqs_non_repeated(16)
    angles = torch.cat((frequencies, frequencies), dim=-1)[:, None, None, :]
    turn(torch.ones(16, 1, 2, width), angles, rotary_interleaved=False)
print(stops(forward, 127), stops(forward, 126))
""",
        "RuntimeError None",
    ),
    "P254": (
        """
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
def forward(factor):
    RotaryEmbedding(8, 1.0, seq_len_interpolation_factor=factor, use_cpu_initialization=True).get_freqs_non_repeated(16)
print(stops(forward, 0), stops(forward, 2), stops(forward, None))
""",
        "ZeroDivisionError None None",
    ),
    "K523": (
        """
from megatron.core.datasets.blended_megatron_dataset_config import BlendedMegatronDatasetConfig as Config
import dataclasses
names = {field.name for field in dataclasses.fields(Config)}
usual = dict(random_seed=1, sequence_length=8)
said = []
for name in ("fast_cache_load", "defer_npy_index_mmap"):
    assert name in names
    said += [stops(Config, **usual, **{name: True}), stops(Config, **usual, **{name: True}, path_to_cache="/cache")]
print(*said)
""",
        "AssertionError None AssertionError None",
    ),
    "N260": (
        """
from megatron.core.utils import init_method_normal
print(stops(init_method_normal(-0.02), torch.zeros(4)), stops(init_method_normal(0.0), torch.zeros(4)))
""",
        "RuntimeError None",
    ),
    "B314": (
        """
from types import SimpleNamespace
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
def make(steps):
    OptimizerParamScheduler(
        SimpleNamespace(param_groups=[]), init_lr=0.0, max_lr=1.0, min_lr=0.0, lr_warmup_steps=0, lr_decay_steps=steps,
        lr_decay_style="cosine", start_wd=0.0, end_wd=0.0, wd_incr_steps=1, wd_incr_style="constant",
        use_checkpoint_opt_param_scheduler=False)
print(stops(make, 0), stops(make, -5), stops(make, 1))
""",
        "AssertionError AssertionError None",
    ),
}


# Each program in a child of its own: the imports above are made once, and what one patches is not seen by the next.
EACH = """
for code, program in json.loads(sys.argv[1]).items():
    if os.fork() == 0:
        print(code, end=" ", flush=True)
        exec(program, {**globals()})
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_the_real_modules_stop() -> None:
    programs = json.dumps({code: program for code, (program, _) in CASES.items()})
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + EACH, programs], cwd=ORACLE, capture_output=True, text=True, check=False
    )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.split(" ", 1)[0] in CASES)
    assert said == {code: expected for code, (_, expected) in CASES.items()}, done.stderr[-2000:]
