"""The expression language of the rule catalogue: a whitelisted piece of Python, in a scalar and an array form.

A condition such as `num_attention_heads % tp == 0` is parsed once. Names are arguments or derived symbols of the
namespace; a nested configuration's dotted keys (`training.seq_len`) are names as well. The scalar form is plain Python source over `v["name"]`; the array form calls the helpers of
`primus_lint.rules.arrays`, which take Python values and broadcast arrays alike and never branch on an element.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from primus_lint.rules.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARE = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}


class ExpressionError(ValueError):
    """An expression of the catalogue that is not in the language."""


def parse(text: str) -> ast.expr:
    """Parse and check an expression. Raises ExpressionError."""
    try:
        tree = ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ExpressionError(f"{text!r}: {error}") from None
    for node in ast.walk(tree):
        if not isinstance(
            node,
            (
                ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, *_BINARY, ast.Compare, *_COMPARE,
                ast.IfExp, ast.Call, ast.Name, ast.Attribute, ast.Load, ast.Store, ast.Constant, ast.List, ast.Tuple, ast.Subscript,
                ast.Slice, ast.GeneratorExp, ast.ListComp, ast.comprehension, ast.Starred,
            ),
        ):  # fmt: skip
            raise ExpressionError(f"{text!r}: {type(node).__name__} is not allowed")
        if isinstance(node, ast.Attribute) and _dotted(node) is None:
            raise ExpressionError(f"{text!r}: a dot joins the parts of a key, nothing else")
        if isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords
        ):
            raise ExpressionError(f"{text!r}: only {', '.join(sorted(FUNCTIONS))} may be called")
    return tree


def names(tree: ast.expr) -> list[str]:
    """The namespace names of an expression, in order of appearance, without functions and loop variables."""
    bound = {target.id for node in ast.walk(tree) if isinstance(node, ast.comprehension) for target in _targets(node)}
    found: dict[str, tuple[int, int]] = {}
    for name, node in _references(tree):
        if name not in bound and name not in FUNCTIONS:
            place = (node.lineno, node.col_offset)
            found[name] = min(place, found.get(name, place))
    return sorted(found, key=found.__getitem__)


def _references(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Every name and dotted key below a node, with its place."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield _dotted(node) or "", node
        return
    for child in ast.iter_child_nodes(node):
        yield from _references(child)


def _dotted(node: ast.expr) -> str | None:
    """`a.b.c` of a chain of names; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Attribute):
        return None
    before = _dotted(node.value)
    return None if before is None else f"{before}.{node.attr}"


def _targets(node: ast.comprehension) -> list[ast.Name]:
    return [n for n in ast.walk(node.target) if isinstance(n, ast.Name)]


def scalar_source(tree: ast.expr) -> str:
    """Python source of the scalar form, over a mapping `v`."""
    return _scalar(tree, frozenset())


def _scalar(node: ast.AST, bound: frozenset[str]) -> str:
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.Name):
        if node.id in bound:
            return node.id
        return node.id if node.id in FUNCTIONS else f"v[{node.id!r}]"
    if isinstance(node, ast.Attribute):
        return f"v[{_dotted(node)!r}]"
    if isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.And) else " or "
        return "(" + word.join(_scalar(value, bound) for value in node.values) + ")"
    if isinstance(node, ast.UnaryOp):
        return f"({'not ' if isinstance(node.op, ast.Not) else '-'}{_scalar(node.operand, bound)})"
    if isinstance(node, ast.BinOp):
        return f"({_scalar(node.left, bound)} {_BINARY[type(node.op)]} {_scalar(node.right, bound)})"
    if isinstance(node, ast.Compare):
        text = _scalar(node.left, bound)
        for op, right in zip(node.ops, node.comparators, strict=True):
            text += f" {_COMPARE[type(op)]} {_scalar(right, bound)}"
        return f"({text})"
    if isinstance(node, ast.IfExp):
        return f"({_scalar(node.body, bound)} if {_scalar(node.test, bound)} else {_scalar(node.orelse, bound)})"
    if isinstance(node, ast.Call):
        return f"{_scalar(node.func, bound)}({', '.join(_scalar(arg, bound) for arg in node.args)})"
    if isinstance(node, (ast.List, ast.Tuple)):
        items = ", ".join(_scalar(item, bound) for item in node.elts)
        return f"[{items}]" if isinstance(node, ast.List) else f"({items}{',' if len(node.elts) == 1 else ''})"
    if isinstance(node, ast.Starred):
        return f"*{_scalar(node.value, bound)}"
    if isinstance(node, ast.Subscript):
        return f"{_scalar(node.value, bound)}[{_scalar(node.slice, bound)}]"
    if isinstance(node, ast.Slice):
        return ":".join("" if part is None else _scalar(part, bound) for part in (node.lower, node.upper))
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        inner = bound | {target.id for generator in node.generators for target in _targets(generator)}
        parts = [_scalar(node.elt, inner)]
        for generator in node.generators:
            parts.append(f"for {ast.unparse(generator.target)} in {_scalar(generator.iter, inner)}")
            parts += [f"if {_scalar(test, inner)}" for test in generator.ifs]
        return ("({})" if isinstance(node, ast.GeneratorExp) else "[{}]").format(" ".join(parts))
    raise ExpressionError(f"{type(node).__name__} is not allowed")


def array_source(tree: ast.expr) -> str:
    """Python source of the array form, over a mapping `v` and the helper module `A`."""
    if isinstance(tree, ast.BoolOp):
        name = "A.all_of" if isinstance(tree.op, ast.And) else "A.any_of"
        return f"{name}({', '.join('lambda: ' + array_source(value) for value in tree.values)})"
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return f"A.not_({array_source(tree.operand)})"
    if isinstance(tree, ast.UnaryOp):
        return f"(-{array_source(tree.operand)})"
    if isinstance(tree, ast.BinOp):
        left, right = array_source(tree.left), array_source(tree.right)
        if isinstance(tree.op, (ast.Mod, ast.FloorDiv, ast.Div)):
            name = {ast.Mod: "mod", ast.FloorDiv: "floor_div", ast.Div: "div"}[type(tree.op)]
            return f"A.{name}({left}, {right})"
        return f"({left} {_BINARY[type(tree.op)]} {right})"
    if isinstance(tree, ast.Compare):
        terms = []
        left_node: ast.expr = tree.left
        for op, right_node in zip(tree.ops, tree.comparators, strict=True):
            left, right = array_source(left_node), array_source(right_node)
            if isinstance(op, ast.In):
                terms.append(f"A.in_({left}, {right})")
            elif isinstance(op, ast.NotIn):
                terms.append(f"A.not_(A.in_({left}, {right}))")
            else:
                terms.append(f"({left} {_COMPARE[type(op)]} {right})")
            left_node = right_node
        if len(terms) == 1:
            return terms[0]
        return f"A.all_of({', '.join('lambda: ' + term for term in terms)})"
    if isinstance(tree, ast.IfExp):
        return (
            f"A.if_({array_source(tree.test)}, lambda: {array_source(tree.body)}, lambda: {array_source(tree.orelse)})"
        )
    if isinstance(tree, ast.Call):
        assert isinstance(tree.func, ast.Name)
        name = tree.func.id
        arguments = ", ".join(array_source(argument) for argument in tree.args)
        return f"A.{name}_({arguments})" if name in ("min", "max", "bool") else f"{name}({arguments})"
    if isinstance(tree, (ast.List, ast.Tuple)):
        items = ", ".join(array_source(item) for item in tree.elts)
        return f"[{items}]" if isinstance(tree, ast.List) else f"({items}{',' if len(tree.elts) == 1 else ''})"
    return _scalar(tree, frozenset())
