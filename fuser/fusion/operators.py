"""Python's operators on tensors of a definition: `x + 1`, `-x`, `x @ y`, `x < y`, `x.sum(0)`.

Each records the operation of ``fd.ops`` that torch has under that operator; nothing is computed.
``==`` and ``!=`` stay Python's identity, as tensors are keys of dicts: write ``fd.ops.eq(x, y)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from fuser.errors import FusionError

if TYPE_CHECKING:
    from fuser.dtype import DType
    from fuser.fusion.ir import TensorView
    from fuser.fusion.recorder import Operand

Dims = int | Sequence[int] | None
"""One axis, several, or all; negative ones count from the end."""


class Recorded(Protocol):
    """Records an operation of ``fd.ops`` by its name."""

    def operate(self, op: str, *args: object, **options: object) -> TensorView:
        """Record it and return its result."""


class Operators:
    """What a TensorView can do in an expression."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def rank(self) -> int:
            """Number of axes."""

        @property
        def recorded(self) -> Recorded | None:
            """The definition under construction."""

    def _operate(self, op: str, *args: object, **options: object) -> TensorView:
        if self.recorded is None:
            call = f"{op}({', '.join(map(str, args))})"
            raise FusionError(f"{call}: the fusion is finished; compute before fusion()")
        return self.recorded.operate(op, *args, **options)

    def __add__(self, other: Operand) -> TensorView:
        return self._operate("add", self, other)

    def __radd__(self, other: Operand) -> TensorView:
        return self._operate("add", other, self)

    def __sub__(self, other: Operand) -> TensorView:
        return self._operate("sub", self, other)

    def __rsub__(self, other: Operand) -> TensorView:
        return self._operate("sub", other, self)

    def __mul__(self, other: Operand) -> TensorView:
        return self._operate("mul", self, other)

    def __rmul__(self, other: Operand) -> TensorView:
        return self._operate("mul", other, self)

    def __truediv__(self, other: Operand) -> TensorView:
        return self._operate("div", self, other)

    def __rtruediv__(self, other: Operand) -> TensorView:
        return self._operate("div", other, self)

    def __floordiv__(self, other: Operand) -> TensorView:
        return self._operate("floor_div", self, other)

    def __rfloordiv__(self, other: Operand) -> TensorView:
        return self._operate("floor_div", other, self)

    def __mod__(self, other: Operand) -> TensorView:
        return self._operate("remainder", self, other)

    def __rmod__(self, other: Operand) -> TensorView:
        return self._operate("remainder", other, self)

    def __pow__(self, other: Operand) -> TensorView:
        return self._operate("pow", self, other)

    def __rpow__(self, other: Operand) -> TensorView:
        return self._operate("pow", other, self)

    def __matmul__(self, other: TensorView) -> TensorView:
        return self._operate("matmul", self, other)

    def __lt__(self, other: Operand) -> TensorView:
        return self._operate("lt", self, other)

    def __le__(self, other: Operand) -> TensorView:
        return self._operate("le", self, other)

    def __gt__(self, other: Operand) -> TensorView:
        return self._operate("gt", self, other)

    def __ge__(self, other: Operand) -> TensorView:
        return self._operate("ge", self, other)

    def __and__(self, other: Operand) -> TensorView:
        return self._operate("bitwise_and", self, other)

    def __rand__(self, other: Operand) -> TensorView:
        return self._operate("bitwise_and", other, self)

    def __or__(self, other: Operand) -> TensorView:
        return self._operate("bitwise_or", self, other)

    def __ror__(self, other: Operand) -> TensorView:
        return self._operate("bitwise_or", other, self)

    def __xor__(self, other: Operand) -> TensorView:
        return self._operate("bitwise_xor", self, other)

    def __rxor__(self, other: Operand) -> TensorView:
        return self._operate("bitwise_xor", other, self)

    def __neg__(self) -> TensorView:
        return self._operate("neg", self)

    def __abs__(self) -> TensorView:
        return self._operate("abs", self)

    def __invert__(self) -> TensorView:
        return self._operate("bitwise_not", self)

    def __bool__(self) -> NoReturn:
        raise FusionError(
            f"bool({self}): its values are known at launch only; choose elements by "
            "fd.ops.where(condition, x, y), and combine conditions by & and |"
        )

    def sum(
        self, dim: Dims = None, keepdim: bool = False, dtype: str | DType | None = None
    ) -> TensorView:
        """Return the sum over one axis, several, or all; `keepdim` leaves axes of extent 1."""
        return self._operate("sum", self, self._dims(dim), keepdim, dtype=dtype)

    def prod(
        self, dim: Dims = None, keepdim: bool = False, dtype: str | DType | None = None
    ) -> TensorView:
        """Return the product over one axis, several, or all."""
        return self._operate("prod", self, self._dims(dim), keepdim, dtype=dtype)

    def cumsum(self, dim: int, dtype: str | DType | None = None) -> TensorView:
        """Return the sum of all elements along an axis up to each."""
        return self._operate("cumsum", self, dim, dtype=dtype)

    def mean(self, dim: Dims = None, keepdim: bool = False) -> TensorView:
        """Return the mean over one axis, several, or all."""
        return self._operate("mean", self, self._dims(dim), keepdim)

    def max(self, dim: Dims = None, keepdim: bool = False) -> TensorView:
        """Return the largest element along one axis, several, or all; torch's amax."""
        return self._operate("max", self, self._dims(dim), keepdim)

    def min(self, dim: Dims = None, keepdim: bool = False) -> TensorView:
        """Return the least element along one axis, several, or all; torch's amin."""
        return self._operate("min", self, self._dims(dim), keepdim)

    def _dims(self, dim: Dims) -> list[object]:
        if dim is None:
            return list(range(self.rank))
        return list(dim) if isinstance(dim, list | tuple) else [dim]
