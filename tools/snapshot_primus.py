"""Take a snapshot of a Primus checkout's presets: facts only (key, value, place), no comments, no licence text.

python tools/snapshot_primus.py CHECKOUT --version fd1eeabb [--output PATH]
"""

from __future__ import annotations

import argparse
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from primus_lint.readers.snapshot import SnapshotError, write_snapshot  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", help="folder that holds primus/configs")
    parser.add_argument("--version", required=True, help="commit prefix or release")
    parser.add_argument("--output", help="default: schemas/primus/VERSION/presets.json")
    options = parser.parse_args()
    output = options.output or os.path.join(ROOT, "schemas", "primus", options.version, "presets.json")
    try:
        count = write_snapshot(options.checkout, options.version, output)
    except (SnapshotError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{count} files -> {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
