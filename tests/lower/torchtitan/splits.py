"""Ask the real torchtitan v0.2.2 for splits of layers: one JSON list of layer counts a line for each line of input.

python splits.py < [stages, layers, weight of the input, weight of the output] a line
"""

import importlib
import json
import sys

from without_triton import import_torchtitan

import_torchtitan()
split = importlib.import_module("torchtitan.distributed.pipeline_parallel").generate_llm_fqn_per_model_part

for line in sys.stdin:
    parts = split(*json.loads(line))
    print(json.dumps([sum(name.startswith("layers.") for name in part) for part in parts]))
