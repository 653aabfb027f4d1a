"""Namespace: the effective arguments of a recipe by name, and the short symbols derived from them.

The rule catalogue, the lowering and the search read the same namespace. Plain names are Megatron's argument (dest)
names with the value that the program really uses; short symbols (`tp`, `dp`, `num_microbatches`, ...) are derived here,
once, with operators that work on Python numbers and on arrays alike. `KEYS_OF` says which configuration keys a symbol
comes from, so that a finding can point at a line, and whether it depends on the world size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import lcm, round_up, where
from primus_lint.ir.layout import MOST

if TYPE_CHECKING:
    from collections.abc import Callable

DERIVED: dict[str, Callable[[Namespace], Any]] = {}
KEYS_OF: dict[str, tuple[str, ...]] = {}

_TP = "tensor_model_parallel_size"
_PP = "pipeline_model_parallel_size"
_CP = "context_parallel_size"
_EP = "expert_model_parallel_size"
_ETP = "expert_tensor_parallel_size"


# What a value of a wrong kind raises where it is calculated with; the key rules report the value itself.
WRONG_KIND = (TypeError, KeyError, ZeroDivisionError, ValueError, IndexError, AttributeError, OverflowError)


class NoNumber:
    """Stands where a number belongs and the recipe has a list or a mapping: every calculation with it is undecided."""

    def __repr__(self) -> str:
        return "no number"


NO_NUMBER = NoNumber()


def countable(number: int) -> int:
    """A number that something is listed for. Raises ValueError (undecided) when it is absurdly large."""
    if number > MOST:
        raise ValueError(f"{number} is too many to list")
    return number


class Namespace(dict[str, Any]):
    """Arguments by name; a derived symbol is computed at its first use.

    `given` holds the arguments before the framework's own silent changes; `env` and `stack` are read by the rules as
    `env_NAME` and `arch`, `te`, `torch` (None when unknown). Another framework's namespace is a subclass with its own
    `symbols` and `keys_of`.
    """

    __slots__ = ("given",)
    symbols: dict[str, Callable[[Any], Any]] = DERIVED
    keys_of: dict[str, tuple[str, ...]] = KEYS_OF

    def __init__(self, values: dict[str, Any], given: dict[str, Any] | None = None) -> None:
        super().__init__(values)
        self.given = given if given is not None else values

    def __missing__(self, name: str) -> Any:
        function = self.symbols.get(name)
        if function is None:
            if name.startswith("given_"):
                return self.given.get(name[6:])
            if name.startswith("env_"):
                return None
            raise KeyError(name)
        value = function(self)
        self[name] = value
        return value

    def depends_on_world(self, name: str) -> bool:
        """Whether a name changes with the number of GPUs."""
        return "world_size" in self.keys_of.get(name, (name,))


def derived(*keys: str) -> Callable[[Callable[[Namespace], Any]], Callable[[Namespace], Any]]:
    """Register a symbol; `keys` are the configuration keys that it comes from, the one to point at first."""

    def register(function: Callable[[Namespace], Any]) -> Callable[[Namespace], Any]:
        DERIVED[function.__name__] = function
        KEYS_OF[function.__name__] = keys
        return function

    return register


@derived(_TP)
def tp(v: Namespace) -> Any:
    return v[_TP]


@derived(_PP)
def pp(v: Namespace) -> Any:
    return v[_PP]


@derived(_CP)
def cp(v: Namespace) -> Any:
    return v[_CP]


@derived(_EP)
def ep(v: Namespace) -> Any:
    return v[_EP]


@derived(_ETP, _TP)
def etp(v: Namespace) -> Any:
    """Expert tensor parallelism: the tensor-parallel size when unset."""
    return v[_TP] if v[_ETP] is None else v[_ETP]


@derived("world_size")
def world(v: Namespace) -> Any:
    return v["world_size"]


@derived("micro_batch_size")
def mbs(v: Namespace) -> Any:
    return v["micro_batch_size"]


@derived("global_batch_size", "world_size", "micro_batch_size", _TP, _PP, _CP)
def gbs(v: Namespace) -> Any:
    """Global batch in samples: micro batch times dp when unset."""
    value = v["global_batch_size"]
    if value is not None:
        return value
    return None if v["dp"] is None else v["mbs"] * v["dp"]


@derived("seq_length")
def seq(v: Namespace) -> Any:
    return v["seq_length"] if v["seq_length"] is not None else v.get("encoder_seq_length")


@derived("tensor_parallel_num_weight_shards", _TP)
def gtp(v: Namespace) -> Any:
    """Ranks that share the weights of one tensor-parallel rank (weight sharding, d98e8a64 only); 1 when unset."""
    shards = v.get("tensor_parallel_num_weight_shards")
    return 1 if shards is None or v.get("version") != "d98e8a64" else shards // v["tp"]


@derived("expert_tensor_parallel_num_weight_shards", _ETP)
def egtp(v: Namespace) -> Any:
    """The same for the experts."""
    shards = v.get("expert_tensor_parallel_num_weight_shards")
    return 1 if shards is None or v.get("version") != "d98e8a64" else shards // v["etp"]


@derived(_TP, _PP, _CP, "tensor_parallel_num_weight_shards")
def dense_grid(v: Namespace) -> Any:
    """Ranks of one model replica: tp x pp x cp (x weight shards per tensor rank)."""
    return v["tp"] * v["pp"] * v["cp"] * v["gtp"]


@derived(_EP, _ETP, _PP, _TP, "expert_tensor_parallel_num_weight_shards")
def expert_grid(v: Namespace) -> Any:
    """Ranks of one replica of the experts: etp x ep x pp (x weight shards per expert tensor rank)."""
    return v["etp"] * v["ep"] * v["pp"] * v["egtp"]


@derived("world_size", _TP, _PP, _CP)
def dp(v: Namespace) -> Any:
    """Data-parallel size (without context parallelism): replicas of the weights; None without a world size."""
    return None if v["world_size"] is None else v["world_size"] // v["dense_grid"]


@derived("world_size", _TP, _PP, _CP)
def batch_dp(v: Namespace) -> Any:
    """Ranks that the batch is divided over: dp, times the ranks that share weights; None without a world size."""
    return None if v["dp"] is None else v["dp"] * v["gtp"]


@derived("world_size", _EP, _ETP, _PP)
def edp(v: Namespace) -> Any:
    """Expert data-parallel size; None without a world size."""
    return None if v["world_size"] is None else v["world_size"] // v["expert_grid"]


@derived("num_layers")
def layers(v: Namespace) -> Any:
    return v["num_layers"]


@derived("num_attention_heads")
def heads(v: Namespace) -> Any:
    return v["num_attention_heads"]


@derived("num_query_groups", "group_query_attention", "num_attention_heads")
def groups(v: Namespace) -> Any:
    """Key/value groups: the heads unless grouped-query attention is on."""
    if v["group_query_attention"] and v["num_query_groups"] is not None:
        return v["num_query_groups"]
    return v["num_attention_heads"]


@derived("kv_channels", "hidden_size", "num_attention_heads")
def head_dim(v: Namespace) -> Any:
    return v["kv_channels"] if v["kv_channels"] is not None else v["hidden_size"] // v["num_attention_heads"]


@derived("ffn_hidden_size", "hidden_size", "swiglu")
def ffn(v: Namespace) -> Any:
    """Width of the dense MLP: 4h, or 8h/3 rounded down to a multiple of 64 with SwiGLU, when unset."""
    if v["ffn_hidden_size"] is not None:
        return v["ffn_hidden_size"]
    if v["swiglu"]:
        return int((4 * v["hidden_size"] * 2 / 3) / 64) * 64
    return 4 * v["hidden_size"]


@derived("moe_ffn_hidden_size", "ffn_hidden_size", "hidden_size")
def moe_ffn(v: Namespace) -> Any:
    """Width of one expert: the dense width when unset."""
    return v["moe_ffn_hidden_size"] if v["moe_ffn_hidden_size"] is not None else v["ffn"]


@derived("num_experts")
def experts(v: Namespace) -> Any:
    return v["num_experts"]


@derived("num_experts")
def is_moe(v: Namespace) -> bool:
    return v["num_experts"] is not None


@derived("multi_latent_attention")
def is_mla(v: Namespace) -> bool:
    return bool(v["multi_latent_attention"])


@derived("mtp_num_layers")
def mtp(v: Namespace) -> Any:
    return v.get("mtp_num_layers") or 0


@derived("tokenizer_type", "tokenizer_model", "vocab_file")
def tokenizer_vocabulary(v: Namespace) -> Any:
    """What is known of the tokenizer where the recipe states no size (a `Vocabulary`); None when nothing is."""
    if v["vocab_size"] is not None or v.get("padded_vocab_size") is not None:
        return None
    from primus_lint.lower.megatron.tokenizers import vocabulary_of

    return vocabulary_of(v["tokenizer_type"], v.get("tokenizer_model"), v.get("vocab_file"))


@derived("vocab_size", "tokenizer_type", "tokenizer_model", "vocab_file")
def vocabulary(v: Namespace) -> Any:
    """Tokens that the model must know before padding; None when the tokenizer is not known either.

    Megatron-Core's NullTokenizer adds an end-of-document token to the vocabulary that it is given
    (megatron/core/tokenizers/text/libraries/null_tokenizer.py), so 131,072 becomes 131,073 and pads to 131,200.
    """
    if v["vocab_size"] is None:
        known = v["tokenizer_vocabulary"]
        return None if known is None else known.size
    return v["vocab_size"] + (v["tokenizer_type"] == "NullTokenizer")


@derived("vocab_size", "padded_vocab_size", "make_vocab_size_divisible_by", _TP)
def padded_vocab(v: Namespace) -> Any:
    """Rows of the embedding over all tensor-parallel ranks; None when the tokenizer is not at hand."""
    if v.get("padded_vocab_size") is not None:
        return v["padded_vocab_size"]
    if v["vocabulary"] is None:
        return None
    return round_up(v["vocabulary"], v["make_vocab_size_divisible_by"] * v["tp"])


@derived("num_query_groups", "num_attention_heads", "kv_channels", "hidden_size")
def qkv_width(v: Namespace) -> Any:
    """Output width of the fused query, key and value projection."""
    return (v["heads"] + 2 * v["groups"]) * v["head_dim"]


@derived("moe_layer_freq", "num_layers", "num_experts")
def moe_layers(v: Namespace) -> tuple[bool, ...] | None:
    """For each decoder layer whether it is a mixture of experts; None when the pattern is illegal."""
    count = countable(v["num_layers"])
    if v["num_experts"] is None:
        return tuple([False] * count)
    pattern = v["moe_layer_freq"]
    if isinstance(pattern, str):
        pattern = evaluate_pattern(pattern)
    if isinstance(pattern, int):
        if pattern < 1:
            return None
        return tuple(index % pattern == 0 for index in range(count))
    if isinstance(pattern, list) and len(pattern) == count:
        return tuple(bool(item) for item in pattern)
    return None


def evaluate_pattern(text: str) -> Any:
    """The value of a layer pattern such as `([0]*1+[1]*26)`; None when it has other characters or is too long.

    Megatron `eval`s the text after the same character check; here a small parser does it.
    """
    if not text or any(char not in "0123456789,[]()+* \t" for char in text) or len(text) > 10_000:
        return None
    import ast

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [value(item) for item in node.elts]
        if isinstance(node, ast.BinOp):
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Mult):
                lists = [side for side in (left, right) if isinstance(side, list)]
                factor = right if isinstance(left, list) else left
                if lists and len(lists[0]) * factor > 100_000:
                    raise ValueError("pattern too long")
                return left * right
        raise ValueError("unsupported pattern")

    try:
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


@derived("seq_length", _CP, _TP, "sequence_parallel", "micro_batch_size")
def tokens_per_rank(v: Namespace) -> Any:
    """Tokens of one micro batch that a rank holds outside attention: seq*mbs/cp, over tp under sequence parallelism."""
    tokens = v["seq"] * v["mbs"] // v["cp"]
    return where(v["sequence_parallel"], tokens // v["tp"], tokens)


@derived(_CP, _TP, "sequence_parallel")
def seq_multiple(v: Namespace) -> Any:
    """What the sequence length must be a multiple of: 2*cp, tp under sequence parallelism, cp*lcm(2,tp) with both."""
    return v["cp"] * lcm(2, v["tp"])


def depends_on_world(name: str) -> bool:
    return "world_size" in KEYS_OF.get(name, (name,))
