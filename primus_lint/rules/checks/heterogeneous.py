"""The layer file of heterogeneous models (NAS-pruned checkpoints) against the arguments that it must agree with.

Source: Megatron-LM `validate_model_config_args_from_heterogeneous_config`. Only the JSON text that is given as an
argument can be read; a path lies on another machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.rules.engine import make, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.lower.megatron import Lowered
    from primus_lint.rules.finding import Finding

KEY = "heterogeneous_layers_config_encoded_json"


def layers_file(lowered: Lowered, rule: dict[str, Any]) -> Iterator[Finding]:
    """The file contradicts itself or the arguments."""
    text = lowered.namespace.get(KEY)
    if not isinstance(text, str):
        return
    import json

    try:
        expected = _expected(json.loads(text))
    except _Contradiction as error:
        yield make(rule, lowered, str(error), (KEY,))
        return
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, ZeroDivisionError) as error:
        yield make(rule, lowered, f"the heterogeneous layer description cannot be read: {error!r}", (KEY,))
        return
    given = lowered.namespace.given
    for key, value in expected.items():
        if given.get(key) != value:
            message = f"{key} is {words(given.get(key))}, but the heterogeneous layer description says {words(value)}"
            yield make(rule, lowered, message, (key, KEY))
            return


class _Contradiction(ValueError):
    pass


def _expected(data: dict[str, Any]) -> dict[str, Any]:
    """Argument -> value that the file asks for. Raises _Contradiction for a file that contradicts itself."""
    if data["hidden_act"] != "silu":
        raise _Contradiction(
            f"the heterogeneous layer description has hidden_act {data['hidden_act']}; only silu works"
        )
    sizes = [block["attention"]["n_heads_in_group"] for block in data["block_configs"]]
    sizes = [size for size in sizes if size is not None]
    if len(set(sizes)) > 1:
        raise _Contradiction("the heterogeneous layer description has layers with unlike numbers of heads in a group")
    return {
        "swiglu": True,
        "normalization": "RMSNorm",
        "group_query_attention": True,
        "position_embedding_type": "rope",
        "rotary_percent": 1.0,
        "use_rope_scaling": True,
        "use_rotary_position_embeddings": True,
        "num_layers": data["num_hidden_layers"],
        "hidden_size": data["hidden_size"],
        "num_attention_heads": data["num_attention_heads"],
        "untie_embeddings_and_output_weights": not data["tie_word_embeddings"],
        "rotary_base": data["rope_theta"],
        "rope_scaling_factor": data["rope_scaling"]["factor"],
        "num_query_groups": data["num_attention_heads"] // sizes[0],
    }
