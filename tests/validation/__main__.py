"""`python -m tests.validation NAME PATH... --json OUT`: score primus-lint on labelled data.

Paths are arguments; without any, the files of `../shared` beside the checkout are taken. Prints a table and writes the
figures as JSON (fractions, not percent).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[3] / "shared"
DEFAULTS = {
    "defects": ["corpus/primus-labels/known-defects.csv", "corpus/primus"],
    "worlds": ["corpus/primus-labels/megatron-legal-world-sizes.csv", "corpus/primus"],
    "legality": ["legality/labelled.jsonl"],
    "fresh": ["legality/labelled.jsonl", "goldens", "corpus/primus"],
    "goldens": ["goldens"],
    "oracle": [],
    "ground-truth": [
        "ground-truth/measured.csv",
        "ground-truth/measured-playbook.csv",
        "ground-truth/measured-vtrain.csv",
    ],
    "in-situ": ["ground-truth/measured.csv", "ground-truth/measured-vtrain.csv"],
    "cases": ["cases/cases.md"],
    "labels": ["corpus/primus-labels/memory-observations.csv", "corpus/primus"],
    "choice": [
        "ground-truth/measured.csv",
        "ground-truth/measured-playbook.csv",
        "ground-truth/measured-vtrain.csv",
    ],
    "speed": ["corpus/primus"],
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.validation", description=__doc__)
    parser.add_argument("name", choices=sorted(DEFAULTS))
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--json", dest="out")
    asked = parser.add_argument_group("fresh")
    asked.add_argument("--megatron", type=Path, help="unpacked wheel of megatron-core, 0.17 or later")
    asked.add_argument(
        "--version", choices=("d3528a21", "d98e8a64"), default="d3528a21", help="whose rules (%(default)s)"
    )
    asked.add_argument("--count", type=int, default=500, help="cases (%(default)s)")
    asked.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    paths = [Path(path) for path in arguments.paths] or [SHARED / path for path in DEFAULTS[arguments.name]]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        print(f"not found: {', '.join(missing)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"tests.validation.{arguments.name.replace('-', '_')}")
    options: dict[str, Any] = {}
    if arguments.name == "fresh":
        if arguments.megatron is None or not (arguments.megatron / "megatron" / "training").is_dir():
            parser.error("fresh needs --megatron DIR with megatron/training in it")
        options = {name: getattr(arguments, name) for name in ("megatron", "version", "count", "seed")}
    figures = module.run(paths, **options)
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(figures, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
