"""How many additions in a row kernels make at most, of what they add up.

A sum of n numbers may take n - 1 additions one after the other; a kernel takes some of each thread,
of lanes, of warps, of CTAs.  Every rounding on the way is of a part of the numbers, and no number
goes through more of them than the longest way has: what a sum may lose follows from that.

All statements are gone through once for all CTAs, with the longest way to each tile in place of its
numbers.  What is multiplied, picked or moved keeps its way, as part sums that are scaled do; a
function that is not linear begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from fuser.expr import Expr, Kind, Op, Var
from fuser.kernel import ir as kir

_ADDS = frozenset({"add", "sub", "addcmul", "lerp"})
_BEGINS = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal",
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "sigmoid", "silu",
        "gelu", "gelu_tanh", "erf", "erfc", "pow", "atan2", "floor", "ceil", "round", "trunc",
        "sign", "floor_div", "isnan", "isinf", "isfinite", "order", "eq", "ne", "lt", "le", "gt",
        "ge", "logical_not", "logical_and", "logical_or", "logical_xor", "philox",
    }
)  # fmt: skip
"""Functions of which no sum is made up that is not added up here."""
_WARM = 4
"""Iterations of a loop that are gone through before the others are taken for alike, and behind."""
_PASSES = 3
"""How often a kernel is gone through: what a role reads may be stored by one further down."""


class _UnknownError(Exception):
    """A number of iterations is not known before the launch."""


def longest(
    launches: Sequence[tuple[kir.Kernel, int, Mapping[str, int]]],
) -> int | None:
    """Return the most additions that a number goes through, in launches one after the other.

    Parameters
    ----------
    launches : sequence of (Kernel, int, mapping)
        Each kernel, its CTAs, and the values of its parameters.  Tensors of one name are the same
        memory; what a launch reads by another name than it was written by has been added up.

    Returns
    -------
    int or None
        None where a number of iterations depends on what the kernel reads, or what is added up
        has no end.
    """
    tensors: dict[str, int] = {}
    most = 0
    for kernel, grid, params in launches:
        walk = _Walk(kernel, grid, params, tensors)
        try:
            walk.launch()
        except _UnknownError:
            return None
        most = max(most, walk.most)
    return most


@dataclass
class _Walk:
    """One launch; `tensors` outlive it.  Keys are names: of tiles, buffers and tensors.

    The kernel is gone through several times, for one role may read what another stores further
    down, and CTAs take turns; what is added to memory is counted the first time.
    """

    kernel: kir.Kernel
    grid: int
    params: Mapping[str, int]
    tensors: dict[str, int]
    most: int = 0
    turns: int = 0
    again: bool = False
    known: dict[tuple[str, str], int] = field(default_factory=dict)
    values: dict[Var, Expr | None] = field(default_factory=dict)

    def launch(self) -> None:
        """Go through the kernel, as often as its CTAs take turns at what they add to."""
        if not self.grid:
            return
        for tensor in self.kernel.tensors:
            self.known["tensor", tensor.name] = self.tensors.get(tensor.name, 0)
        self._body(self.kernel.body)
        self.again = True
        self._repeated(self.kernel.body, max(self.turns, _PASSES) - 1, ends=not self.turns)
        for name in self.kernel.outputs:
            self.tensors[name] = self.known["tensor", name]

    def _body(self, body: tuple[kir.Stmt, ...]) -> None:
        for stmt in body:
            match stmt:
                case kir.Let(var, value):
                    self.values[var] = value
                case kir.Assign(var) | kir.Fetch(var):
                    self.values[var] = None
                case kir.ForLoop(index, stop, inner):
                    self.values[index] = None
                    self._repeated(inner, int(np.max(self._number(stop))))
                case kir.Loop(index, inner):
                    self.values[index] = None
                    self._repeated(inner, _PASSES, ends=True)
                case kir.IfThenElse(_, then, orelse):
                    before = dict(self.known)
                    self._body(then)
                    after, self.known = self.known, before
                    self._body(orelse)
                    for key, way in after.items():
                        self.known[key] = max(self.known.get(key, 0), way)
                case kir.Role() | kir.Elect() | kir.LastArriving():
                    self._body(stmt.body)
                case _:
                    self._data(stmt)

    def _repeated(self, body: tuple[kir.Stmt, ...], many: int, *, ends: bool = False) -> None:
        """Go through a body many times; with `ends`, it has to come to rest by itself.

        What grows after some iterations grows by no more in each of the others: ways are put
        together by maximum and sum.
        """
        grows: dict[tuple[str, str], int] = {}
        for done in range(many if many <= 2 * _WARM else _WARM):
            before = dict(self.known)
            self._body(body)
            grows = {k: way - before.get(k, 0) for k, way in self.known.items()}
            grows = {k: more for k, more in grows.items() if more > 0}
            if not grows and done:
                return
        if ends and grows:
            raise _UnknownError
        if many > 2 * _WARM and grows:
            step = max(grows.values()) * (many - 2 * _WARM)
            for key in grows:
                self.known[key] += step
            for _ in range(_WARM):  # what follows from these, too
                self._body(body)

    def _data(self, stmt: kir.Stmt) -> None:
        match stmt:
            case kir.Load(dst, src):
                shape = src.shape if isinstance(src, kir.Box) else src.buffer.shape
                whole = prod(shape) < prod(dst.layout.shape)
                self.known["tile", dst.name] = 0 if whole else self._at(src)
            case kir.Gather(dst, src):
                self.known["tile", dst.name] = self.known["tensor", src.name]
            case kir.Store(dst, src) | kir.StAsync(dst, src):
                self._into(dst, self._of(src))
            case kir.TmaLoad(dst, src) | kir.TmaStore(dst, src):
                self._into(dst, self._at(src))
            case kir.CpAsync(dst, src) | kir.QueueCopy(dst, src):
                self._into(dst, self._at(src))
            case kir.TmaReduce(dst, src):
                self._added(dst, self._at(src))
            case kir.AtomicAdd(dst, src):
                self._added(dst, self._of(src))
            case kir.Compute():
                self._made(stmt.dst, self._computed(stmt))
            case kir.Slice(dst, src) | kir.Unpack(dst, src):
                self._made(dst, self._of(src))
            case kir.Reduce(dst, src, op):
                more = _put_together(stmt) if op == "add" else 0
                self._made(dst, self._of(src) + more)
            case kir.Scan(dst, src, op, start):
                more = prod(src.layout.shape) if op == "add" else 0
                self._made(dst, max(self._of(src), self._of(start)) + more)
            case kir.Coordinate(dst):
                self.known["tile", dst.name] = 0
            case kir.Wgmma(acc) | kir.Mma(acc):
                self.known.setdefault(("tile", acc.name), 0)
            case kir.BlockSerializeWait(index=index):
                self.turns = max(self.turns, self._alike((index,)))
            case _:
                pass

    def _computed(self, stmt: kir.Compute) -> int:
        """Return the way to what is computed.

        No part of a sum is squared, or given to many elements: what is has been added up.
        """
        size = prod(stmt.dst.layout.shape)
        ways = [
            self._of(arg)
            for arg in stmt.args
            if isinstance(arg, kir.Fragment) and prod(arg.layout.shape) == size
        ]
        if stmt.op in _BEGINS or (stmt.op == "mul" and stmt.args[0] == stmt.args[1]):
            return 0
        return max(ways, default=0) + (stmt.op in _ADDS)

    def _made(self, dst: kir.Fragment, way: int) -> None:
        self.known["tile", dst.name] = way
        self.most = max(self.most, way)

    def _of(self, tile: kir.Fragment) -> int:
        return self.known.get(("tile", tile.name), 0)

    def _at(self, place: kir.Box | kir.Slot) -> int:
        return self.known.get(_key(place), 0)

    def _into(self, place: kir.Box | kir.Slot, way: int) -> None:
        """Store; who reads may do so before what is stored next, so that the longest way counts."""
        key = _key(place)
        self.known[key] = max(self.known.get(key, 0), way)
        self.most = max(self.most, way)

    def _added(self, place: kir.Box, way: int) -> None:
        """Add to memory, as do all CTAs that have this place in common."""
        self._into(place, way)
        if not self.again:
            self._into(place, self._at(place) + self._alike(place.origin))

    def _alike(self, places: Sequence[Expr]) -> int:
        """Return how many CTAs have one place in common, all of them if that is not known."""
        try:
            found = [np.broadcast_to(self._number(place), self.grid) for place in places]
        except _UnknownError:
            return self.grid
        return int(np.unique(np.stack(found), axis=1, return_counts=True)[1].max())

    def _number(self, expr: Expr) -> Any:
        """Return a number, or one for each CTA."""
        match expr:
            case Var(name):
                if expr is kir.GRID:
                    return self.grid
                if expr is kir.BLOCK:
                    return np.arange(self.grid)
                if expr is kir.RANK:
                    return np.arange(self.grid) % self.kernel.cluster
                if name in self.params:
                    return self.params[name]
                value = self.values.get(expr)
                if value is None:
                    raise _UnknownError
                return self._number(value)
            case Op(kind, a, b):
                return _EVALUATE[kind](self._number(a), self._number(b))
            case _:
                return expr


def _key(place: kir.Box | kir.Slot) -> tuple[str, str]:
    if isinstance(place, kir.Box):
        return "tensor", place.tensor.name
    return "buffer", place.buffer.name


def _put_together(stmt: kir.Reduce) -> int:
    """Return the additions of a `Reduce`: one after the other in a thread, then of ever more lanes.

    Of a folded tile, and down columns, one after the other.
    """
    src, dst = stmt.src.layout, stmt.dst.layout
    many = prod(src.shape) // prod(dst.shape)
    if kir.Deal.ROWS not in (src.deal, dst.deal) or stmt.down:
        return many - 1
    lanes = max(stmt.lanes, 1)
    return -(-many // lanes) - 1 + (lanes - 1).bit_length()


_EVALUATE: dict[Kind, Any] = {
    Kind.ADD: np.add,
    Kind.SUB: np.subtract,
    Kind.MUL: np.multiply,
    Kind.FLOORDIV: np.floor_divide,
    Kind.MOD: np.mod,
    Kind.MIN: np.minimum,
    Kind.MAX: np.maximum,
    Kind.LT: np.less,
    Kind.LE: np.less_equal,
    Kind.EQ: np.equal,
    Kind.AND: np.logical_and,
}
