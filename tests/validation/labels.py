"""Verdicts on what was seen of memory in the corpus (`labels OBSERVATIONS PRIMUS`): a confusion table.

An observation names an experiment file, a device, a number of GPUs, one key and the value at which the run fitted, ran
out of memory, or was given up for a smaller one ("retreat": mostly, not surely, for memory). The key gets that value;
the rest is the file's. The micro-batch is changed with its global batch, of which it was a part.
"""

from __future__ import annotations

import csv
from collections import Counter
from typing import TYPE_CHECKING, Any

from primus_lint.pipeline import Options, check_source
from primus_lint.source.text import SourceText

if TYPE_CHECKING:
    from pathlib import Path

BATCH = {  # the key that must follow a micro-batch, and the micro-batch itself, by framework folder
    "micro_batch_size": "global_batch_size",
}
# End of the file's name -> what the comment that holds the observation was written for, where the file has moved on
STATED: dict[str, dict[str, str]] = {
    "llama2_70B-BF16-sft-packed-bridge_aligned.yaml": {
        "tensor_model_parallel_size": "1", "seq_length": "2048", "global_batch_size": "128",
    },
    "qwen3_30B_A3B-BF16-sft-packed-bridge_aligned.yaml": {
        "seq_length": "32768", "max_position_embeddings": "32768", "global_batch_size": "64",
    },
}  # fmt: skip
NESTED = {"local_batch_size": "training.local_batch_size"}


def run(paths: list[Path]) -> dict[str, Any]:
    """The table, and a line for every observation."""
    observations, corpus = paths
    rows = [judged(row, corpus) for row in csv.DictReader(observations.read_text(encoding="utf-8").splitlines())]
    table = Counter((row["outcome"], row["verdict"]) for row in rows)
    verdicts = ("fits", "unsure", "does not fit", "no account")
    print(f"{'observed':10}" + "".join(f"{verdict:>14}" for verdict in verdicts))
    for outcome in ("fits", "oom", "retreat"):
        print(f"{outcome:10}" + "".join(f"{table[outcome, verdict]:>14}" for verdict in verdicts))
    for row in rows:
        print(
            f"  {row['outcome']:8}{row['verdict']:13}{row['file'].partition('/')[2]} {row['key']}={row['value']}: {row['said']}"
        )
    return {"table": {f"{outcome}, {verdict}": number for (outcome, verdict), number in table.items()}, "rows": rows}


def judged(row: dict[str, str], corpus: Path) -> dict[str, Any]:
    """An observation with our verdict: what is said of the file with the key at the observed value."""
    path = corpus / row["file"]
    source = SourceText.from_path(str(path))
    sets = [(NESTED.get(row["key"], row["key"]), row["value"])]
    sets += next((list(stated.items()) for name, stated in STATED.items() if row["file"].endswith(name)), [])
    gpus = int(row["gpus"])
    if row["key"] in BATCH:
        sets.append((BATCH[row["key"]], str(int(row["value"]) * gpus)))
    options = Options(gpu=row["gpu"].lower(), world_size=gpus, set_values=tuple(sets), primus_root=str(corpus))
    subject = check_source(source, options).subjects[0]
    ledger, device = subject.ledger, subject.accelerator
    out = {key: row[key] for key in ("file", "gpu", "key", "value", "outcome", "detail")}
    if ledger is None or device is None:
        return {**out, "verdict": "no account", "said": "; ".join(subject.no_memory)[:100]}
    fits = ledger.fits(device.visible_hbm_bytes)
    rank = ledger.worst_rank
    said = (
        f"{rank.device_low_bytes / 2**30:.1f} to {rank.device_high_bytes / 2**30:.1f} of "
        f"{device.visible_hbm_bytes / 2**30:.1f} GiB {row['detail']}"
    )
    return {**out, "verdict": {True: "fits", False: "does not fit", None: "unsure"}[fits], "said": said}
