"""Integer expressions: folding never changes a value, and text and C++ mean the same."""

import ast
import pickle
from collections.abc import Mapping
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError
from operator import floordiv, mod
from typing import cast
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuser import expr
from fuser.codegen.expr import spell as _c
from fuser.expr import Expr, Kind, Op, Var

LEAVES: list[Expr] = [0, 1, 2, 5, Var("a"), Var("b"), Var("n")]
DIVISORS: list[Expr] = [1, 2, 3, Var("b")]
VALUES = {Var("a"): 7, Var("b"): 3, Var("n"): 12}


def value(e: Expr, values: Mapping[Var, int]) -> int:
    """Evaluate without folding, as the definition says."""
    match e:
        case int():
            return e
        case Var():
            return values[e]
        case Op(kind, a, b):
            x, y = value(a, values), value(b, values)
            results = {
                Kind.ADD: lambda: x + y,
                Kind.SUB: lambda: x - y,
                Kind.MUL: lambda: x * y,
                Kind.FLOORDIV: lambda: x // y,
                Kind.MOD: lambda: x % y,
                Kind.MIN: lambda: min(x, y),
                Kind.MAX: lambda: max(x, y),
                Kind.LT: lambda: int(x < y),
                Kind.LE: lambda: int(x <= y),
                Kind.EQ: lambda: int(x == y),
                Kind.AND: lambda: int(bool(x) and bool(y)),
            }
            return results[kind]()


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> tuple[Expr, Expr]:
    """A tree built by hand, and the same built by `fold`; shrinks towards one number."""
    if depth == 0 or draw(st.booleans()):
        leaf: Expr = draw(st.sampled_from(LEAVES))
        return leaf, leaf
    kind = draw(st.sampled_from(list(Kind)))
    raw_a, a = draw(trees(depth=depth - 1))
    raw_b, b = draw(trees(depth=depth - 1))
    if kind in (Kind.FLOORDIV, Kind.MOD):
        raw_b = b = draw(st.sampled_from(DIVISORS))
    return Op(kind, raw_a, raw_b), expr.fold(kind, a, b)


@given(trees())
def test_folding_keeps_the_value(pair: tuple[Expr, Expr]) -> None:
    """Neutral elements and constants vanish, the value stays."""
    raw, folded = pair
    assert value(raw, VALUES) == value(folded, VALUES)


@given(trees())
def test_cpp_means_the_same(pair: tuple[Expr, Expr]) -> None:
    """The printed C++ is read back with Python's operators (operands are non-negative)."""
    raw, _ = pair
    text = _c(raw).replace("/", "//").replace("&&", " and ").replace("math::", "")
    names = {v.name: n for v, n in VALUES.items()}
    whole = ast.fix_missing_locations(ZeroOrOne().visit(ast.parse(text, mode="eval")))
    spelled = {"minimum": min, "maximum": max, "quotient": floordiv, "modulo": mod}
    got = eval(compile(whole, "C++", "eval"), spelled, names)
    assert int(got) == value(raw, VALUES) or _negative_division(raw)


class ZeroOrOne(ast.NodeTransformer):
    """`a && b` is 0 or 1 in C++, where Python's `a and b` is one of its operands."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Wrap it in `bool`."""
        self.generic_visit(node)
        return ast.Call(ast.Name("bool", ast.Load()), [node], [])


def _negative_division(e: Expr) -> bool:
    """Tell whether a division of a negative number occurs, on which languages differ."""
    match e:
        case Op(kind, a, b):
            bad = kind in (Kind.FLOORDIV, Kind.MOD) and value(a, VALUES) < 0
            return bad or _negative_division(a) or _negative_division(b)
        case _:
            return False


@given(trees())
def test_substitution_commutes_with_evaluation(pair: tuple[Expr, Expr]) -> None:
    """Replacing variables by their values gives the value."""
    _, folded = pair
    numbers: dict[Var, Expr] = dict(VALUES)
    assert expr.substitute(folded, numbers) == value(folded, VALUES)
    assert expr.variables(folded) <= VALUES.keys()


def test_ceildiv_is_the_smallest_integer_not_below() -> None:
    """Used for every tile count."""
    for n in range(20):
        for d in range(1, 6):
            assert expr.ceildiv(n, d) == -(-n // d)


def test_one_object_for_each_expression() -> None:
    """Whatever is made again, copied or comes from another process is the same object."""
    a, b = Var("a"), Var("b")
    tree = (a + 3) * b
    assert tree is (Var("a") + 3) * Var("b")
    for copied in (copy(tree), deepcopy(tree), pickle.loads(pickle.dumps(tree))):
        assert copied is tree
    assert Op(Kind.MIN, a, True) is Op(Kind.MIN, a, 1) != Op(Kind.MIN, 1, a)
    assert type(Op(Kind.MIN, a, True).b) is int
    with pytest.raises(TypeError):
        Op(Kind.MIN, a, cast("int", 0.5))
    with pytest.raises(FrozenInstanceError):
        a.name = "c"  # type: ignore[misc]


def test_what_is_not_in_use_is_forgotten() -> None:
    """Memory is bounded: a node goes with the last one who holds it, and its variables too."""
    once = ref(Op(Kind.MAX, Var("forgotten once"), 1))
    assert once() is None
    assert "forgotten once" not in [v.name for v in expr._VARS.values()]


def test_substitute_keeps_what_does_not_change() -> None:
    """A tree without the variables is itself, and one with them is folded."""
    a, b = Var("a"), Var("b")
    untouched = Op(Kind.MUL, a, 1)
    assert expr.substitute(untouched, {b: 2}) is untouched
    assert expr.substitute(untouched, {a: b}) is b
    assert expr.substitute(Op(Kind.ADD, untouched, b), {b: 0}) is untouched
