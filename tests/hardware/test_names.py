"""Names, aliases, suggestions, paths."""

from __future__ import annotations

import pytest

from primus_lint.hardware import accelerator, describe, guess_from_path, names, node_type, suggest


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("mi300x", "mi300x"), ("MI300X", "mi300x"), ("AMD Instinct MI300X", "mi300x"), ("MI355", "mi355x"),
        ("H100-80", "h100"), ("h100", "h100"), ("h100-sxm", "h100"), ("NVIDIA H100 80GB HBM3", "h100"),
        ("H100-80GB", "h100"), ("A100-SXM4-80GB", "a100-80gb"), ("A100-40GB", "a100-40gb"), ("a100", "a100-80gb"),
        ("A100-PCIe", "a100-pcie-80gb"), ("GH200-96GB", "gh200-96gb"), ("H100 96GB HBM2e 500W", "h100-96gb"),
        ("H800-80GB", "h800"), ("A800-80GB", "a800-80gb"), ("H200-NVL", "h200-nvl"), ("GB200", "gb200"), ("B300", "b300"),
    ],
)  # fmt: skip
def test_aliases_in_any_spelling(alias: str, name: str) -> None:
    found = accelerator(alias)
    assert found is not None and found.name == name


def test_no_alias_means_two_accelerators() -> None:
    from primus_lint import resources
    from primus_lint.hardware.compiled import read_sources
    from primus_lint.hardware.naming import normalised

    seen: dict[str, str] = {}
    for name, entry in read_sources(resources.data_root("hardware_db"))["accelerators"].items():
        for alias in (name, *entry["aliases"]):
            assert seen.setdefault(normalised(alias), name) == name


def test_unknown_names_are_none_and_get_near_ones() -> None:
    assert accelerator("mi399z") is None
    assert "mi355x" in suggest("mi335x")
    assert suggest("h10O")[0] == "h100"
    assert suggest("qqqq") == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("examples/megatron/configs/MI300X/llama3.1_8B-pretrain.yaml", "mi300x"),
        ("configs/MI355/flux.yaml", "mi355x"),
        ("recipes/llama_h100.yaml", "h100"),
        ("dgx_b200/train.sh", "b200"),
        ("mi300x/old/run_mi355x.yaml", "mi355x"),  # the nearest to the file wins
        ("clusters/a100-pcie/recipe.yaml", "a100-pcie-80gb"),
        ("C:\\recipes\\MI325X\\a.yaml", "mi325x"),
        ("examples/megatron/configs/llama3.1_8B-pretrain.yaml", None),
        ("models/qwen3_30B_A3B.yaml", None),
    ],
)
def test_guess_from_path(path: str, name: str | None) -> None:
    assert guess_from_path(path) == name


def test_nodes() -> None:
    mi300x = node_type("mi300x")
    assert mi300x is not None and (mi300x.gpus_per_node, mi300x.fabric_kind, mi300x.nics) == (8, "mesh", 8)
    assert mi300x.fabric_bytes_per_s == 64e9 and mi300x.network_bytes_per_s_per_gpu == 50e9
    rack = node_type("gb200")
    assert rack is not None and (rack.gpus_per_node, rack.scale_up_gpus) == (4, 72)
    four = node_type("a100-80gb", 4)
    assert four is not None and four.name == "a100-4"
    usual = node_type("a100-80gb", 3)  # no node of three: the usual one
    assert usual is not None and usual.name == "hgx-a100-8"
    assert node_type("nothing") is None


@pytest.mark.parametrize("name", names())
def test_describe_gives_every_number_a_source(name: str) -> None:
    found = accelerator(name)
    assert found is not None
    rows = describe(found)
    labels = {label for label, _, _, _ in rows}
    assert {"visible memory", "memory bandwidth", "peak bf16, dense", "GEMM bf16", "memory-bound elementwise"} <= labels
    assert all(source for label, _, _, source in rows if label != "visible memory, band")


def test_start_up_imports_nothing_heavy() -> None:
    """The loader and the rates (scalar) need neither numpy nor pydantic; with a compiled copy not even yaml."""
    import subprocess
    import sys

    code = (
        "import sys; from primus_lint.hardware import accelerator, collectives, rates\n"
        "acc = accelerator('mi300x'); rates.gemm_time_s(acc, 'bf16', 8, 8, 8)\n"
        "collectives.time_s(acc, None, 'all_reduce', 1024, 8, 8)\n"
        "print([name for name in ('numpy', 'pydantic', 'jsonschema', 'torch', 'dataclasses') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
