"""Fusions that stand for others: products, reductions, and all operations of a type at once."""

from __future__ import annotations

from math import prod

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, FusionDefinition, TensorView
from fuser.fusion.ops import OPS, Form, Rule
from fuser.runtime.call import Spec

EVEN = 64
"""Value of every symbol when a fusion is compiled: kernels serve all multiples of 8."""


def dense(fusion: Fusion) -> dict[str, Spec]:
    """Return what the inputs are taken for: dense, of even extents, each at its own address."""
    inputs = (tv for tv in fusion.inputs if isinstance(tv, TensorView))
    found = {}
    for place, tv in enumerate(inputs, start=1):
        shape = tuple(extent if isinstance(extent, int) else EVEN for extent in tv.shape)
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(tv.rank))
        found[tv.name] = Spec(shape, strides, place << 32, tv.dtype)
    return found


def begin(*ranks: int) -> tuple[FusionDefinition, list[TensorView]]:
    """Begin a fusion with inputs of these ranks, bf16."""
    fd = FusionDefinition()
    return fd, [fd.define_tensor([-1] * rank, "bf16") for rank in ranks]


def linear(outputs: int = 1, *, bias: bool = True) -> Fusion:
    """`relu(x @ w + bias)`; of two outputs the second is its negative."""
    fd, (x, w) = begin(2, 2)
    y = fd.ops.linear(x, w, fd.define_tensor([-1], "bf16")) if bias else fd.ops.linear(x, w)
    fd.add_output(fd.ops.relu(y))
    if outputs == 2:
        fd.add_output(fd.ops.neg(y))
    return fd.fusion()


def gated() -> Fusion:
    """`relu(x @ g) * (x @ u)`: two products that share a loop and an operand."""
    fd, (x, g, u) = begin(2, 2, 2)
    fd.add_output(fd.ops.mul(fd.ops.relu(fd.ops.linear(x, g)), fd.ops.linear(x, u)))
    return fd.fusion()


def two_sums() -> Fusion:
    """`relu(a @ b) + relu(c @ d)`: two products of different depths, a loop each."""
    fd, (a, b, c, d) = begin(2, 2, 2, 2)
    fd.add_output(fd.ops.add(fd.ops.relu(fd.ops.linear(a, b)), fd.ops.relu(fd.ops.linear(c, d))))
    return fd.fusion()


def batched() -> Fusion:
    """Multiply batches of matrices, the second stored along its columns."""
    fd, (a, b) = begin(3, 3)
    fd.add_output(fd.ops.matmul(a, b))
    return fd.fusion()


def experts(*, bits: int = 16) -> Fusion:
    """Multiply blocks of rows, each by the matrix that its number names; or by i8 matrices."""
    fd, (x,) = begin(3)
    w = fd.define_tensor([-1] * 3, "bf16" if bits == 16 else "i8")
    made = fd.ops.permute(w if bits == 16 else fd.ops.cast(w, "bf16"), [0, 2, 1])
    fd.add_output(fd.ops.grouped_matmul(x, made, fd.define_tensor([-1], "i32")))
    return fd.fusion()


def residual() -> Fusion:
    """`x @ w + r`, with r read in the epilogue."""
    fd, (x, w, r) = begin(2, 2, 2)
    fd.add_output(fd.ops.add(fd.ops.linear(x, w), r))
    return fd.fusion()


def statistics() -> Fusion:
    """`x @ w`, with the sum and the maximum of each row: a kernel behind ends them."""
    fd, (x, w) = begin(2, 2)
    y = fd.ops.linear(x, w)
    fd.add_output(y)
    fd.add_output(fd.ops.sum(y, [1]))
    fd.add_output(fd.ops.max(y, [1]))
    return fd.fusion()


def computed() -> Fusion:
    """`silu(x) @ w`: the first operand is computed where it is multiplied."""
    fd, (x, w) = begin(2, 2)
    fd.add_output(fd.ops.linear(fd.ops.silu(x), w))
    return fd.fusion()


def normalised() -> Fusion:
    """`(exp(x) * rows * columns) @ w`: not 0 where x is 0, and computed from vectors too."""
    fd, (x, w) = begin(2, 2)
    rows, columns = (fd.define_tensor([-1], "f32") for _ in range(2))
    scaled = fd.ops.mul(fd.ops.exp(x), fd.ops.broadcast(rows, [False, True]))
    scaled = fd.ops.mul(scaled, fd.ops.broadcast(columns, [True, False]))
    fd.add_output(fd.ops.linear(fd.ops.cast(scaled, "bf16"), w))
    return fd.fusion()


def weights() -> Fusion:
    """`x @ bf16(w)`: weights of 8 bits, computed where they are multiplied."""
    fd, (x,) = begin(2)
    w = fd.define_tensor([-1, -1], "i8")
    fd.add_output(fd.ops.linear(x, fd.ops.cast(w, "bf16")))
    return fd.fusion()


def scaled_weights() -> Fusion:
    """`x @ bf16(w * s)`: a number of each row, which is loaded once for all steps."""
    fd, (x, s) = begin(2, 1)
    w = fd.ops.cast(fd.define_tensor([-1, -1], "i8"), "bf16")
    made = fd.ops.cast(fd.ops.mul(w, fd.ops.broadcast(s, [False, True])), "bf16")
    fd.add_output(fd.ops.linear(x, made))
    return fd.fusion()


def packed_weights() -> Fusion:
    """`x @ bf16(w * s)`: weights of 4 bits, of which groups of 64 have a number."""
    fd = FusionDefinition()
    x = fd.define_tensor(["m", 4 * EVEN], "bf16")
    w = fd.ops.unpack(fd.define_tensor(["n", 2 * EVEN], "i8"))
    numbers = fd.ops.permute(fd.define_tensor([4, "n"], "bf16"), [1, 0])
    made = fd.ops.mul(fd.ops.cast(w, "bf16"), fd.ops.repeat_interleave(numbers, EVEN, 1))
    fd.add_output(fd.ops.linear(x, fd.ops.cast(made, "bf16")))
    return fd.fusion()


def gated_weights() -> Fusion:
    """`relu(x @ silu(g)) * (x @ silu(u))`: a step has two operands that are computed."""
    fd, (x, g, u) = begin(2, 2, 2)
    one, other = (fd.ops.linear(x, fd.ops.silu(w)) for w in (g, u))
    fd.add_output(fd.ops.mul(fd.ops.relu(one), other))
    return fd.fusion()


# --- reductions ---------------------------------------------------------------------------------


def rows(op: str = "sum") -> Fusion:
    """Reduce the rows of a matrix."""
    fd, (x,) = begin(2)
    fd.add_output(fd.ops.max(x, [1]) if op == "max" else fd.ops.sum(x, [1]))
    return fd.fusion()


def columns() -> Fusion:
    """Reduce the columns of a matrix, and add to the results."""
    fd, (x, y) = begin(2, 1)
    fd.add_output(fd.ops.add(fd.ops.sum(x, [0]), y))
    return fd.fusion()


def spread() -> Fusion:
    """Return mean and maximum of each row: two reductions that are shared at once."""
    fd, (x,) = begin(2)
    fd.add_output(fd.ops.mean(x, [1]))
    fd.add_output(fd.ops.max(x, [1]))
    return fd.fusion()


def moments() -> Fusion:
    """Return mean and sum of squares of each row, as a norm wants them."""
    fd, (x,) = begin(2)
    fd.add_output(fd.ops.mean(x, [1]))
    fd.add_output(fd.ops.sum(fd.ops.mul(x, x), [1], dtype="f32"))
    return fd.fusion()


# --- all there is of a type ---------------------------------------------------------------------


def every_operation(dtype: str) -> Fusion:
    """Return each pointwise operation that computes in a type, an output each."""
    fd, own = FusionDefinition(), DType.of(dtype)
    x, y, z = (fd.define_tensor([-1], dtype) for _ in range(3))
    for name, row in OPS.items():
        inside = row.pointwise and own in row.allowed and row.rule is not Rule.GIVEN
        if not inside or (row.rule is Rule.FLOAT and own.is_int):
            continue
        if name == "where":
            fd.add_output(fd.ops.where(fd.ops.lt(x, y), x, y))
        elif name != "philox":  # its operands are words of a key
            many = 3 if name == "addcmul" else row.arity
            fd.add_output(getattr(fd.ops, name)(*(x, y, z)[:many]))
    return fd.fusion()


def every_sum(dtype: str) -> Fusion:
    """Return row sums of each operation of one operand: what is behind a row must add nothing."""
    fd, own = FusionDefinition(), DType.of(dtype)
    x = fd.define_tensor(["i0", "i1"], dtype)
    for name, row in OPS.items():
        if row.form is Form.UNARY and name not in ("cast", "set") and own in row.allowed:
            made = getattr(fd.ops, name)(x)
            if made.dtype is own:
                fd.add_output(fd.ops.sum(made, [1]))
    return fd.fusion()


def every_reduction(dtype: str) -> Fusion:
    """Return each reduction, of the rows of a matrix of its own: each load has its own fill."""
    fd = FusionDefinition()
    for op in ("sum", "prod", "mean", "max", "min"):
        fd.add_output(getattr(fd.ops, op)(fd.define_tensor(["i0", "i1"], dtype), [1]))
    return fd.fusion()


def less_extremes(dtype: str) -> Fusion:
    """Return rows less their maximum, and others less their minimum."""
    fd = FusionDefinition()
    for op in (fd.ops.max, fd.ops.min):
        x = fd.define_tensor(["i0", "i1"], dtype)
        fd.add_output(fd.ops.sub(x, fd.ops.broadcast(op(x, [1]), [False, True])))
    return fd.fusion()
