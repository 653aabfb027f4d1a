"""Ask the real torchtitan v0.2.2 for splits of layers: one JSON list of layer counts a line for each line of input.

python splits.py < [stages, layers, weight of the input, weight of the output] a line
"""

import json
import sys

from torchtitan.distributed.pipeline_parallel import generate_llm_fqn_per_model_part

for line in sys.stdin:
    parts = generate_llm_fqn_per_model_part(*json.loads(line))
    print(json.dumps([sum(name.startswith("layers.") for name in part) for part in parts]))
