"""From the operations of a fusion to Compute statements, on tiles that are dealt to threads alike.

For lowerings, which say how tiles are dealt, where they begin and what is known already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fuser.dtype import DType
from fuser.expr import Expr
from fuser.fusion.ir import Constant, Scalar, TensorView, reached
from fuser.fusion.ops import OPS, Form, of_nothing, operand_dtypes, scanned_axis
from fuser.fusion.promotion import arithmetic
from fuser.kernel import ir as kir
from fuser.schedule.domain import Coords, arguments

Operand = kir.Fragment | kir.ScalarParam | kir.Literal

COMBINE = {
    "sum": "add", "mean": "add", "prod": "mul", "max": "maximum", "min": "minimum", "cumsum": "add"
}  # fmt: skip
"""What puts two elements together, by reduction or scan."""


@dataclass
class Arithmetic:
    """Computes tensors of a fusion on one tile, dealt by `layout`, each once.

    `gathered` takes elements by an index, for a `gather` as walked and that index; `scanned` scans
    what a tile has, for the scan and that; `position` returns the axis of a tile and its first
    coordinate, for a loop axis; it raises if it has none.
    `done` is what is known: a tensor as walked, and the fragment that holds it; `math` are the
    statements so far, `scalars` those that are used, by name; `prefix` is that of the names of
    tensors in registers.  With `layouts` what a tensor is dealt by depends on how it is walked.
    """

    layout: kir.Layout
    position: Callable[[TensorView, int], tuple[int, Expr] | None]
    gathered: Callable[[Arithmetic, TensorView, Coords, kir.Fragment], kir.Fragment] | None = None
    done: dict[tuple[TensorView, Coords], kir.Fragment] = field(default_factory=dict)
    math: list[kir.Stmt] = field(default_factory=list)
    scalars: dict[str, kir.ScalarParam] = field(default_factory=dict)
    prefix: str = "r"
    layouts: Callable[[Coords], kir.Layout] | None = None
    scanned: Callable[[Arithmetic, TensorView, kir.Fragment], kir.Fragment] | None = None

    def fragment(self, name: str, dtype: DType, like: kir.Layout | None = None) -> kir.Fragment:
        """Return a tile in registers."""
        return kir.Fragment(name, dtype, like or self.layout)

    def value(self, tv: TensorView, coords: Coords) -> kir.Fragment:
        """Compute `tv` where its axes walk the loop axes `coords`; once."""
        for key in self._pending(tv, coords):
            self.done[key] = self._define(*key)
        return self.done[(tv, coords)]

    def _pending(self, tv: TensorView, coords: Coords) -> list[tuple[TensorView, Coords]]:
        """Return what must be computed first, arguments before users."""

        def following(key: tuple[TensorView, Coords]) -> list[tuple[TensorView, Coords]]:
            walked = ((arg, coords) for _, arg, coords in arguments(*key))
            return [one for one in walked if one not in self.done]

        found = [] if (tv, coords) in self.done else reached([(tv, coords)], following)
        # In the order of definition, but what holds another tensor may have its number and name.
        ordered = sorted(found, key=lambda key: (key[0].number, key[0].name, str(key[1])))
        left = {key: {*following(key)} for key in ordered}
        pending = []
        while left:
            pending.append(next(key for key, needs in left.items() if not needs & left.keys()))
            del left[pending[-1]]
        return pending

    def _define(self, tv: TensorView, coords: Coords) -> kir.Fragment:
        spec = OPS[tv.op]
        layout = self.layouts(coords) if self.layouts else self.layout
        args = self._operands(tv, coords, layout)
        if spec.form in (Form.SHAPE, Form.REDUCTION, Form.SCAN):
            (moved,) = args
            assert isinstance(moved, kir.Fragment), "a shape op moves a tensor"
            if scanned_axis(tv) is None:  # of axes of extent 1: nothing to reduce
                return moved
            assert self.scanned is not None, "other kernels read what is scanned"
            return self.scanned(self, tv, moved)
        name = f"{self.prefix}_{tv.name}"
        taken = sum(1 for other, _ in self.done if other is tv)
        frag = self.fragment(f"{name}_{taken}" if taken else name, tv.dtype, layout)
        if tv.op == "gather":
            assert self.gathered is not None, "kernels with products take no elements by index"
            (index,) = (arg for arg in args if isinstance(arg, kir.Fragment))
            return self.gathered(self, tv, coords, self.converted(index, DType.I64))
        if tv.op == "iota":
            return self._iota(frag, tv, coords, args)
        op = "promote" if tv.op == "full" else tv.op
        self.math.append(kir.Compute(frag, op, tuple(args)))
        return frag

    def _iota(
        self, frag: kir.Fragment, tv: TensorView, coords: Coords, args: list[Operand]
    ) -> kir.Fragment:
        """Start + step * coordinate, in i64 for integers, else in the type of the result."""
        (axis,) = coords
        where_ = None if axis is None else self.position(tv, axis)
        if where_ is None:  # one element
            self.math.append(kir.Compute(frag, "promote", (args[0],)))
            return frag
        kernel_axis, origin = where_
        index = self.fragment(f"{frag.name}_i", DType.I64, frag.layout)
        where = self.fragment(f"{frag.name}_x", tv.dtype, frag.layout)
        step = self.fragment(f"{frag.name}_d", tv.dtype, frag.layout)
        self.math += [
            kir.Coordinate(index, kernel_axis, origin),
            kir.Compute(where, "promote", (index,)),
            kir.Compute(step, "mul", (where, args[1])),
            kir.Compute(frag, "add", (step, args[0])),
        ]
        return frag

    def _operands(self, tv: TensorView, coords: Coords, layout: kir.Layout) -> list[Operand]:
        walked = {n: (arg, axes) for n, arg, axes in arguments(tv, coords)}
        out: list[Operand] = []
        for n, (arg, dtype) in enumerate(zip(tv.args, operand_dtypes(tv), strict=True)):
            if isinstance(arg, TensorView) and n not in walked:
                continue  # elements of it are taken by index
            match arg:
                case Constant(value):
                    out.append(kir.Literal(value, dtype))
                case Scalar(name, own):
                    scalar = self.scalars.setdefault(name, kir.ScalarParam(name, own))
                    out.append(scalar if own is dtype else self.promoted(scalar, dtype, layout))
                case TensorView():
                    frag = self.done[walked[n]]
                    shape_op = OPS[tv.op].form is Form.SHAPE
                    same = shape_op or arithmetic(frag.dtype) is arithmetic(dtype)
                    out.append(frag if same else self.promoted(frag, dtype))
        return out

    def converted(self, arg: kir.Fragment, dtype: DType) -> kir.Fragment:
        """Return a fragment in the registers of a type; it is not rounded to 16 bits."""
        same = arithmetic(arg.dtype) is arithmetic(dtype)
        return arg if same else self.promoted(arg, dtype)

    def promoted(
        self, arg: kir.Fragment | kir.ScalarParam, dtype: DType, like: kir.Layout | None = None
    ) -> kir.Fragment:
        """Return a fragment of a type, in its registers; it is not rounded to 16 bits."""
        layout = like or (arg.layout if isinstance(arg, kir.Fragment) else self.layout)
        count = sum(isinstance(s, kir.Compute) and s.op == "promote" for s in self.math)
        frag = self.fragment(f"{arg.name}_as_{dtype.name}_{count}", dtype, layout)
        self.math.append(kir.Compute(frag, "promote", (arg,)))
        return frag

    def corrected(self, mean: TensorView, count: kir.Fragment) -> kir.Fragment:
        """Return a number of elements less the `correction` of their mean, and 0 at least."""
        (less,) = dict(mean.attrs).get("correction", (0,))
        for op, number in (("sub", less), ("maximum", 0)) if less else ():
            left = self.fragment(f"{count.name}_{op}{number}", DType.I64, count.layout)
            self.math.append(kir.Compute(left, op, (count, kir.Literal(number, DType.I64))))
            count = left
        return count

    def bounded(
        self,
        value: kir.Fragment,
        nothing: kir.Literal,
        axis: int,
        left: Expr,
        names: tuple[str, str, str],
    ) -> kir.Fragment:
        """Replace by `nothing` what lies beyond the end of an axis, of which `-left` is left."""
        index, inside = self.fragment(names[0], DType.I32), self.fragment(names[1], DType.BOOL)
        out = self.fragment(names[2], value.dtype)
        if not any(isinstance(stmt, kir.Compute) and stmt.dst == inside for stmt in self.math):
            zero = kir.Literal(0, DType.I32)
            self.math.append(kir.Coordinate(index, axis, left))
            self.math.append(kir.Compute(inside, "lt", (index, zero)))
        self.math.append(kir.Compute(out, "where", (inside, value, nothing)))
        return out


def identity(reduction: TensorView, dtype: DType) -> kir.Literal:
    """Return what changes nothing when it is put to anything else, in the type of the sums."""
    op = "sum" if reduction.op == "mean" else reduction.op
    return kir.Literal(of_nothing(replace(reduction, op=op, dtype=dtype)).value, dtype)
