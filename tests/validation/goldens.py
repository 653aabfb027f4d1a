"""`python -m tests.validation goldens DIR`: GPU memory that Megatron-LM's own functional tests measured.

What is not in the data, and how it is settled, the same for every case:
* World size: as stated; where it is not, 8 GPUs, what every stated case of the same suites has (GB200: 8 or 4, stated).
  Release recipes (`TEST_TYPE: release`) run on many nodes and state none: skipped.
* Vocabulary: GPT-2's 50,257 for the BPE files (README of the data: explains one case to the byte); 256,000 for the
  256k tokenizer. Other tokenizers: skipped.
* Stack: `dracooci` runs are the oldest software; their flash-attention (below 2.4.1) is not deterministic, so TE runs
  unfused attention in deterministic mode (TE's own filter).
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from primus_lint.ir.run import Target
from primus_lint.ledger import Ledger, ledger
from primus_lint.pipeline import Subject
from primus_lint.readers import read
from primus_lint.readers.document import Origin, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from primus_lint.ledger import RankMemory

VERSION = "d98e8a64"
DEFAULT_WORLD = 8
VOCABULARIES = {"bpe/vocab.json": 50257, "nemotron_2_256k.model": 256000}

# Why a run may be off, tried in this order: (pattern of "case run", cause).
CAUSES = (
    (
        r"cross_entropy_loss_fusion.*(dracooci|dev_dgx_a100)",
        "native loss fusion run eagerly: one or two fp32 copies more",
    ),
    (r"no_mmap_bin_files lts_dgx_a100", "this lts run used unfused attention; the other lts runs did not"),
    (r"cudagraph", "CUDA graph pools are not modelled"),
    (r"zp_z3.*_2nd", "resumed run: the loaded checkpoint stays allocated"),
    (
        r"tp1_pp4.*(gb200|h100|overlap lts_dgx_a100)|cp2_pp2_ep2.*(gb200|h100|lts_dgx_a100)",
        "the last stage keeps labels and masks of all micro-batches in some builds (16, 20 or 32 samples, to the byte)",
    ),
    (r"_h100_2nd|_2nd", "resumed run: blocks of the loaded checkpoint"),
    (r"fsdp", "Megatron-FSDP: gathered units and their buffers are approximate"),
    (r"fine_grained_offloading", "offloading: what is still on the device at the peak is approximate"),
    (r"muon", "Muon: one more workspace, and its orthogonalisation"),
    (r"current_scaling_native_fp8|fp8", "FP8 parameters and user buffers are approximate"),
    (r"gb200", "GB200: torch's default workspace was 8 MiB in some builds, 32 MiB in others"),
    (r"experts|moe", "routing is skewed in a real run: hot experts and fragmentation"),
    (r"", "allocator blocks of another build of PyTorch (half MiB each, on models of 0.4 to 1 GB)"),
)


def run(paths: Sequence[Path], out: Callable[[str], None] = print) -> dict[str, Any]:
    """Figures of design section 4.5 and one row per run."""
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for root in paths:
        for case, name, measured, predicted in compare(root):
            if isinstance(predicted, str):
                skipped.append({"case": case, "run": name, "reason": predicted})
                continue
            rows.append(row(case, name, measured, predicted))
    figures = score(rows, len(rows) + len(skipped))
    figures.update(skipped=skipped, rows=rows)
    report(figures, out)
    return figures


def compare(root: Path) -> Iterator[tuple[str, str, dict[str, Any], RankMemory | str]]:
    """(case, run, measured, our account of the last rank or why there is none)."""
    for file in sorted(root.glob("*/*/measured.json")):
        case = str(file.parent.relative_to(root))
        text = (file.parent / "model_config.yaml").read_text(encoding="utf-8")
        for name, measured in json.loads(file.read_text(encoding="utf-8"))["runs"].items():
            yield case, name, measured, account(str(file.parent / "model_config.yaml"), text, name, measured)


def platform(name: str) -> str:
    """The accelerator of a run's name; the plain `dev` and `lts` of old files are A100."""
    return next((gpu for gpu in ("h100", "gb200") if gpu in name), "a100")


def account(path: str, text: str, name: str, measured: dict[str, Any]) -> RankMemory | str:
    """Our account of the last rank of a run."""
    if re.search(r"TEST_TYPE:\s*\"?release", text):
        return "release recipe: the number of nodes is not stated"
    if "--rl-" in text or "grpo" in path:
        return "reinforcement learning is not modelled"
    if "mem_allocated_bytes_mode" not in measured:
        return "no steady value"
    gpu = platform(name)
    stated = [entry["nodes"] * entry["gpus_per_node"] for entry in measured.get("world", [])]
    document = read(path, version=VERSION)
    section = document.sections[0]
    if "vocab_size" not in section.values and "padded_vocab_size" not in section.values:
        for file, size in VOCABULARIES.items():
            if file in text:
                section.values["vocab_size"] = Value(size, (Origin("cli", size),))
    environment = document.env.get("NVTE_ALLOW_NONDETERMINISTIC_ALGO")
    deterministic = environment is not None and str(environment.value) == "0"
    if "dracooci" in name and deterministic and "attention_backend" not in section.values:
        section.values["attention_backend"] = Value("unfused", (Origin("cli", "unfused"),))
    world = stated[0] if stated else DEFAULT_WORLD
    subject = Subject(document, section, Target(gpu, world, 4 if gpu == "gb200" else 8), VERSION, ())
    if subject.run is None:
        return "the recipe does not lower"
    found = ledger(subject.run, subject.accelerator)
    return found.ranks[-1] if isinstance(found, Ledger) else "; ".join(found.reasons)


def row(case: str, name: str, measured: dict[str, Any], predicted: RankMemory) -> dict[str, Any]:
    """One run: measured and predicted bytes, relative errors, and the cause when it is off."""
    steady, peak = measured["mem_allocated_bytes_mode"], measured["mem_max_allocated_bytes_last"]
    errors = predicted.steady_allocated_bytes / steady - 1, predicted.peak_allocated_bytes / peak - 1
    cause = ""
    if abs(errors[0]) > 0.01 or abs(errors[1]) > 0.03:
        cause = next(text for pattern, text in CAUSES if re.search(pattern, f"{case} {name}"))
    return {
        "case": case, "run": name, "platform": platform(name), "world_stated": bool(measured.get("world")),
        "steady": steady, "steady_ours": predicted.steady_allocated_bytes, "steady_error": errors[0],
        "peak": peak, "peak_ours": predicted.peak_allocated_bytes, "peak_error": errors[1], "cause": cause,
    }  # fmt: skip


def score(rows: list[dict[str, Any]], runs: int) -> dict[str, Any]:
    """Shares over all runs (skipped ones are misses) and over those that have an account."""
    peaks = sorted(abs(entry["peak_error"]) for entry in rows)
    within = {limit: sum(abs(entry["steady_error"]) <= limit for entry in rows) for limit in (0.001, 0.01)}
    done = max(len(rows), 1)
    everything = peaks + [1.0] * (runs - len(rows))
    return {
        "runs": runs,
        "accounted": len(rows),
        "steady_within_0.1pct": within[0.001] / max(runs, 1),
        "steady_within_1pct": within[0.01] / max(runs, 1),
        "peak_median_error": statistics.median(everything) if everything else None,
        "peak_p90_error": everything[int(0.9 * (len(everything) - 1))] if everything else None,
        "peak_max_error": everything[-1] if everything else None,
        "without_skipped": {
            "steady_within_0.1pct": within[0.001] / done,
            "steady_within_1pct": within[0.01] / done,
            "peak_median_error": statistics.median(peaks) if peaks else None,
            "peak_p90_error": peaks[int(0.9 * (len(peaks) - 1))] if peaks else None,
            "peak_max_error": peaks[-1] if peaks else None,
        },
    }


def report(figures: dict[str, Any], out: Callable[[str], None]) -> None:
    rows, skipped = figures["rows"], figures["skipped"]
    out(f"{figures['runs']} runs, {len(skipped)} skipped")
    for reason, count in Counter(entry["reason"] for entry in skipped).most_common():
        out(f"  skipped {count:3}  {reason}")
    for label, part in (("all runs", figures), ("accounted", figures["without_skipped"])):
        out(
            f"{label:10} steady within 0.1 % {part['steady_within_0.1pct']:.3f}, 1 % {part['steady_within_1pct']:.3f};"
            f" peak error median {part['peak_median_error']:.4f}, p90 {part['peak_p90_error']:.4f},"
            f" max {part['peak_max_error']:.4f}"
        )
    for gpu in sorted({entry["platform"] for entry in rows}):
        mine = [entry for entry in rows if entry["platform"] == gpu]
        part = score(mine, len(mine))
        out(
            f"  {gpu:6} {len(mine):3} runs: steady 0.1 % {part['steady_within_0.1pct']:.2f},"
            f" 1 % {part['steady_within_1pct']:.2f}, peak median {part['peak_median_error']:.4f}"
        )
    for entry in sorted(rows, key=lambda found: -abs(found["peak_error"])):
        if entry["cause"]:
            out(
                f"  {entry['steady_error']:+.4f} {entry['peak_error']:+.4f} {entry['case'][:78]:78} {entry['run']:26}"
                f" {entry['cause']}"
            )
