"""The table of operations: arity, operand types, result type.  Everything else iterates over it.

The numeric contract
--------------------
- f64 is computed in f64 and f32 in f32.  f16 and bf16 values are computed in f32 and *kept* in
  f32 between fused operations: rounding to 16 bits happens only where a tensor is stored to
  memory (an output) and at an explicit `cast` to a 16-bit type, also from that same type.
- Operands are converted first (`operand_dtypes`), numbers included: the constant 0.1 met by a
  bf16 tensor is the f32 number nearest to 0.1.
- add, sub, mul, div, sqrt and reciprocal round to nearest even; a product may be contracted into
  the add or sub that uses it (FMA).  Subnormals are kept.  The other float functions obey the
  error bounds that `oracles/reference/rows.py` lists, and are exact where 0 or an infinity becomes
  0, 1 or -1.
- `mma` multiplies numbers of 16 bits: what was kept in f32 is rounded to the operand's type first.
  A product of two is exact inside the range of f32.  K products are added in f32, 16 of them (8 of
  tf32) at once, in any order, and of n steps the sum is right to (n + min(8, 2 + n / 4)) * 2**-22
  times the sum of the magnitudes of the products.  Tensor cores lose less: a step cuts the products
  and the sum so far 25 bits below the exponent of the largest, and their sum after 24 bits; a
  kernel that is known is held to that, and half an ulp of each addition that it makes besides.  A
  sum that could not lose a bit in any order is exact; one that could overflow in some order may be
  anything; inf and NaN are IEEE's.
- A schedule may ask for partial sums of 16 bits (`partial`): CTAs then round what they hand on, to
  nearest.  With n CTAs the sum may be off by ((1 + u)**(n - 1) - 1) times the sum of the magnitudes
  besides, n at least 2, u = 2**-8 for bf16 and 2**-11 for f16, and by n times the least subnormal,
  which grows alike.  What is said of exact sums, and of those that overflow, is said of that type.
- f32 operands of `mma` enter as tf32: their low 13 bits are cut or rounded away, those of one
  operand alike, so that each is off by up to 2**-10 of itself; what has at most 10 fraction bits is
  exact.
- With ``accumulate="f16"`` each step is rounded to f16, to nearest, so the sum is right to n *
  2**-11 times the products above 0 or those below, whichever is larger, and to what is cut.
- Operands of 8 bits are exact.  Products of i8 are added in i32, which wraps.  Those of f8e4m3 and
  f8e5m2, 32 at once, are added alike, with 14 bits: each step cuts 13 bits below the exponent of
  the largest, and the sum after 14; of n steps it is right to (n + 8) * 2**-10.  What tiles and
  CTAs add up in f32 may lose 8 * 2**-22.
- i8, f8e4m3 and f8e5m2 are copied, cast and multiplied by `mma`; nothing else is computed in them.
  A cast to f8 rounds to nearest even; what is then beyond the largest number becomes inf in f8e5m2
  and, as there is no inf, the largest number, 448, in f8e4m3 (torch has it so since 2.12).
- `sum` and `mean` add n numbers in f32 (f64 for f64, i64 for integers and bool) in any order, each
  addition rounded to nearest, so the sum is right to (n - 1) * 2**-24 times the sum of those above
  0, or of those below, whichever is larger; of a kernel that puts every number through d additions
  at most, to d * 2**-24 times the sum of all magnitudes.  A sum that could not lose a bit in any
  order is exact, one that could overflow in some order may be anything.  `mean` then divides by n,
  less its `correction` and never below 0.  `max` and `min` are exact.
- `cumsum` adds up to each element of an axis what `sum` adds of all: the first k elements in any
  order, each addition rounded to nearest, so that element is right to (k - 1) * 2**-24 times the
  sum of their magnitudes.
- `prod` multiplies n numbers in the same types in any order, each product rounded to nearest: right
  to n times 2**-23 of itself; what could overflow in some order may be anything, and what could
  underflow is right to n times the least subnormal and the product of all magnitudes above 1.
- An element, or a factor of `mma`, that is NaN decides its reduction, whatever else may be.
- `philox` is exact: word `place % 4` of Philox 4x32-10 with the key `seed`, whose counter is
  `place // 4` in its lower and `stream` in its upper 64 bits.
- `order` is exact: NaN stands above all numbers, both zeros are one.
- i8, i32 and i64 wrap.  Integer division and remainder by zero give an unspecified number, and so
  does a cast of a NaN or of a float out of range to an integer.
- `gather` of an index that the axis has not is anything, but reads nothing.
- bool is exact: add is or, mul is and, maximum is or, minimum is and.
"""

from dataclasses import dataclass
from enum import Enum

from fuser.dtype import DType
from fuser.fusion.ir import Constant, IterType, TensorView, tensor_args
from fuser.fusion.mma_axes import roles
from fuser.fusion.promotion import arithmetic, as_float, promote


class Form(Enum):
    """How an operation treats axes and elements."""

    UNARY = "unary"
    BINARY = "binary"
    TERNARY = "ternary"
    MMA = "mma"
    REDUCTION = "reduction"
    SCAN = "scan"
    SHAPE = "shape"
    VIEW = "view"
    GATHER = "gather"
    FACTORY = "factory"


class Rule(Enum):
    """How operand and result types follow from the argument types.

    - PROMOTED: operands and result have the promoted type.
    - FLOAT: the same, but integers and bool become f32 first.
    - COMPARISON: operands have the promoted type, the result is bool.
    - TEST: every operand keeps its own type, the result is bool.
    - RANK: the same, the result is i64.
    - SELECT: the first operand is bool, the others and the result have their promoted type.
    - KEEP: one operand, which keeps its type.
    - GIVEN: the caller names the result type; numbers are converted to it, tensors are not.
    """

    PROMOTED = "promoted"
    FLOAT = "float"
    COMPARISON = "comparison"
    TEST = "test"
    RANK = "rank"
    SELECT = "select"
    KEEP = "keep"
    GIVEN = "given"


FLOATS = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16})
INTS = frozenset({DType.I32, DType.I64})
BOOL = frozenset({DType.BOOL})
NUMBERS = FLOATS | INTS
ALL = NUMBERS | BOOL
F8 = frozenset({DType.F8E4M3, DType.F8E5M2})
MMA = frozenset({DType.F32, DType.F16, DType.BF16, DType.I8}) | F8
"""Operand types of `mma`; what it gives is said by `product_dtype`."""
MOVED = ALL | {DType.I8} | F8
"""Types that operations which only move elements take."""
CASTS = ALL | {DType.I8} | F8
"""Types that can be cast to each other."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row of the table: ``fd.ops.<name>``; but `mma` is what three methods record (`METHODS`).

    `form` says which of its arguments are tensors, and how their axes relate to the result's;
    `arity` is the number of `TensorView.args`.  Operand types that are `allowed` are so after
    promotion and before FLOAT turns integers into f32; for GIVEN they are the result's.
    """

    name: str
    form: Form
    arity: int
    rule: Rule
    allowed: frozenset[DType]

    @property
    def pointwise(self) -> bool:
        """Whether element i of the result needs only elements i of the operands."""
        return self.form in (Form.UNARY, Form.BINARY, Form.TERNARY)


def _rows() -> list[OpSpec]:
    rows: list[OpSpec] = []

    def add(names: str, form: Form, arity: int, rule: Rule, allowed: frozenset[DType]) -> None:
        rows.extend(OpSpec(name, form, arity, rule, allowed) for name in names.split())

    add("abs neg relu floor ceil round trunc", Form.UNARY, 1, Rule.PROMOTED, NUMBERS)
    add("sign", Form.UNARY, 1, Rule.PROMOTED, ALL)
    add("set", Form.UNARY, 1, Rule.PROMOTED, MOVED)
    add("exp exp2 expm1 log log1p log2 log10", Form.UNARY, 1, Rule.FLOAT, ALL)
    add("sqrt rsqrt reciprocal", Form.UNARY, 1, Rule.FLOAT, ALL)
    add("sin cos tan asin acos atan sinh cosh tanh", Form.UNARY, 1, Rule.FLOAT, ALL)
    add("sigmoid silu gelu gelu_tanh erf erfc", Form.UNARY, 1, Rule.FLOAT, ALL)
    add("isnan isinf isfinite logical_not", Form.UNARY, 1, Rule.TEST, ALL)
    add("order", Form.UNARY, 1, Rule.RANK, ALL - {DType.F64, DType.I64})
    add("bitwise_not", Form.UNARY, 1, Rule.PROMOTED, INTS | BOOL)
    add("cast", Form.UNARY, 1, Rule.GIVEN, CASTS)

    add("add mul maximum minimum", Form.BINARY, 2, Rule.PROMOTED, ALL)
    add("sub floor_div remainder pow", Form.BINARY, 2, Rule.PROMOTED, NUMBERS)
    add("div atan2", Form.BINARY, 2, Rule.FLOAT, ALL)
    add("eq ne lt le gt ge", Form.BINARY, 2, Rule.COMPARISON, ALL)
    add("logical_and logical_or logical_xor", Form.BINARY, 2, Rule.TEST, ALL)
    add("bitwise_and bitwise_or bitwise_xor", Form.BINARY, 2, Rule.PROMOTED, INTS | BOOL)

    add("nibble", Form.BINARY, 2, Rule.PROMOTED, INTS)

    add("where", Form.TERNARY, 3, Rule.SELECT, ALL)
    add("clamp", Form.TERNARY, 3, Rule.PROMOTED, NUMBERS)
    add("lerp", Form.TERNARY, 3, Rule.PROMOTED, FLOATS)
    add("philox", Form.TERNARY, 3, Rule.PROMOTED, frozenset({DType.I64}))
    add("addcmul", Form.TERNARY, 4, Rule.PROMOTED, NUMBERS)

    add("mma", Form.MMA, 2, Rule.GIVEN, MMA)
    add("sum prod", Form.REDUCTION, 1, Rule.GIVEN, FLOATS | {DType.I64})
    add("mean", Form.REDUCTION, 1, Rule.GIVEN, FLOATS)
    add("cumsum", Form.SCAN, 1, Rule.GIVEN, FLOATS | {DType.I64})
    add("max min", Form.REDUCTION, 1, Rule.KEEP, ALL)
    add("broadcast expand squeeze permute", Form.SHAPE, 1, Rule.KEEP, MOVED)
    add("slice flatten unflatten cat", Form.VIEW, 1, Rule.KEEP, MOVED)
    add("gather", Form.GATHER, 2, Rule.KEEP, MOVED)
    add("full", Form.FACTORY, 1, Rule.GIVEN, ALL)
    add("iota", Form.FACTORY, 2, Rule.GIVEN, NUMBERS)
    return rows


OPS: dict[str, OpSpec] = {row.name: row for row in _rows()}
"""Every operation by name; ``"input"`` is not one.  `addcmul` carries `value` as its 4th arg."""

COMPOSITIONS = (
    *("softplus", "leaky_relu", "elu", "hardtanh", "tril", "triu"),
    *("any", "all", "amax", "amin", "argmax", "argmin", "var", "var_mean", "std", "logsumexp"),
    *("softmax", "log_softmax", "softmax_backward", "log_softmax_backward"),
    *("layer_norm", "native_layer_norm", "layer_norm_backward"),
    *("rms_norm", "native_rms_norm", "rms_norm_backward"),
    *("group_norm", "native_group_norm", "group_norm_backward"),
    *("cross_entropy", "cross_entropy_backward"),
    *("rand", "dropout"),
    *("unpack", "repeat_interleave"),
    *("select", "reshape", "pad", "index_select", "embedding", "flip"),
)
"""Methods that record several operations of the table."""

METHODS = (
    *(op for op in OPS if op != "mma"),
    *("fused_multiply_sum", "matmul", "grouped_matmul", "linear"),
    *COMPOSITIONS,
)
"""What ``fd.ops`` offers."""


def result_dtype(spec: OpSpec, common: DType) -> DType:
    """Return the result type of an operation whose operands have the type `common`."""
    match spec.rule:
        case Rule.COMPARISON | Rule.TEST:
            return DType.BOOL
        case Rule.RANK:
            return DType.I64
        case Rule.FLOAT:
            return as_float(common)
        case Rule.PROMOTED | Rule.SELECT | Rule.KEEP | Rule.GIVEN:
            return common


ADDED_BY_TMA = frozenset({DType.F32, DType.I64})
"""Types of sums to which the TMA engine adds in memory: f32 to nearest, subnormals kept (seen on an
H200)."""


def added_by_tma(tv: TensorView) -> bool:
    """Tell whether the TMA engine can add up what CTAs have of a reduction."""
    return tv.op in ("sum", "mean") and operand_dtypes(tv)[0] in ADDED_BY_TMA


def operand_dtypes(tv: TensorView) -> tuple[DType, ...]:
    """Return the type in which each argument of `tv` enters its operation.

    Lowering converts every argument to this type (a tensor of f16 or bf16 is already in f32,
    see the contract above) and then computes in it; so f16 and bf16 appear here only for `mma`,
    whose operands are rounded to them.
    """
    if tv.op == "input":
        return ()
    spec = OPS[tv.op]
    own = [arg.dtype for arg in tv.args]
    if spec.form is Form.MMA:
        return tuple(own)
    match spec.rule:
        case Rule.PROMOTED | Rule.FLOAT:
            types = [tv.dtype] * len(own)
        case Rule.COMPARISON:
            types = [_promoted(tv, 0)] * len(own)
        case Rule.SELECT:
            types = [DType.BOOL] + [tv.dtype] * (len(own) - 1)
        case Rule.TEST | Rule.RANK | Rule.KEEP:
            types = own
        case Rule.GIVEN:
            types = own if spec.form is Form.UNARY else [tv.dtype] * len(own)
    return tuple(arithmetic(dtype) for dtype in types)


def product_dtype(operand: DType) -> DType:
    """Return the type of a matrix product where none is asked for: that of its operands if any."""
    if operand in F8:
        return DType.F32
    return DType.I32 if operand is DType.I8 else operand


def total_dtype(operand: DType) -> DType:
    """Return the type of a sum of numbers of one type: i64 of integers and bool, else theirs."""
    return operand if operand.is_float else DType.I64


def reduced_axes(tv: TensorView) -> tuple[int, ...]:
    """Return the axes of its argument that a reduction reduces, those of extent 1 left out."""
    if tv.op not in OPS or OPS[tv.op].form is not Form.REDUCTION or tv.parts:
        return ()
    (arg,) = tensor_args(tv)
    dims = [int(axis) for axis in dict(tv.attrs)["dims"]]
    return tuple(axis for axis in dims if arg.logical[axis].iter_type is IterType.ITERATION)


def named_axis(tv: TensorView) -> int:
    """Return the one axis that an operation names, as a scan, a slice or a gather does."""
    (axis,) = dict(tv.attrs)["dim"]
    return int(axis)


def named_axes(tv: TensorView) -> tuple[int, ...]:
    """Return the axes that a view names: one, or the first and the last of those it joins."""
    if tv.op != "flatten":
        return (named_axis(tv),)
    attrs = dict(tv.attrs)
    return int(attrs["start_dim"][0]), int(attrs["end_dim"][0])


def scanned_axis(tv: TensorView) -> int | None:
    """Return the axis along which a scan runs; None if it has one element, or `tv` is no scan."""
    if tv.op not in OPS or OPS[tv.op].form is not Form.SCAN:
        return None
    axis = named_axis(tv)
    return axis if tv.logical[axis].iter_type is IterType.ITERATION else None


def unmoved(tv: TensorView) -> TensorView:
    """Return what a tensor is, seen through operations that only move axes."""
    while tv.op in OPS and OPS[tv.op].form is Form.SHAPE:
        (tv,) = tensor_args(tv)
    return tv


def of_nothing(tv: TensorView) -> Constant:
    """Return what a product or a reduction of no elements is."""
    float_, bool_ = tv.dtype.is_float, tv.dtype is DType.BOOL
    least, most = -(2 ** (8 * tv.dtype.nbytes - 1)), 2 ** (8 * tv.dtype.nbytes - 1) - 1
    match tv.op:
        case "mean":
            value: float = float("nan")
        case "max":
            value = -float("inf") if float_ else 0 if bool_ else least
        case "min":
            value = float("inf") if float_ else 1 if bool_ else most
        case "prod":
            value = 1.0 if float_ else 1
        case _:
            value = 0.0 if float_ else 0
    return Constant(value, DType.F64 if float_ else DType.BOOL if bool_ else DType.I64)


def accumulator(tv: TensorView) -> DType:
    """Return the type in which an `mma` adds up: f32, i32 for i8, f16 where that was asked for."""
    if tv.args[0].dtype is DType.I8:
        return DType.I32
    return DType.F16 if "accumulate" in dict(tv.attrs) else DType.F32


def _promoted(tv: TensorView, first: int) -> DType:
    tensors = [arg.dtype for arg in tv.args[first:] if isinstance(arg, TensorView)]
    return promote(tensors, [a.dtype for a in tv.args[first:] if not isinstance(a, TensorView)])


def producer_axes(tv: TensorView, arg_index: int) -> tuple[int | None, ...]:
    """Map every axis of `tv` to the axis of an argument that it walks along.

    None where the argument has no such axis (broadcast), where its axis of extent 1 is stretched by
    `expand`, and everywhere for numbers and factories.  In a pointwise operation the axis of an
    argument may be BROADCAST where that of `tv` is not: look at ``arg.logical[axis].iter_type``.
    The axes that `mma` and reductions sum over are axes of no result: `fuser.fusion.mma_axes.roles`
    and `reduced_axes` know them.
    """
    arg = tv.args[arg_index]
    nowhere: tuple[int | None, ...] = (None,) * tv.rank
    if not isinstance(arg, TensorView):
        return nowhere
    attrs = dict(tv.attrs)
    match tv.op:
        case "broadcast":
            kept = iter(range(arg.rank))
            return tuple(None if new else next(kept) for new in attrs["is_broadcast_dim"])
        case "expand":
            pairs = zip(tv.logical, arg.logical, strict=True)
            same = [new.iter_type is old.iter_type for new, old in pairs]
            return tuple(axis if same[axis] else None for axis in range(tv.rank))
        case "sum" | "prod" | "max" | "min" if tv.parts:
            dims = tuple(map(int, attrs["dims"]))
            return (*(axis for axis in range(arg.rank) if axis not in dims), *dims)
        case "squeeze" | "sum" | "prod" | "mean" | "max" | "min":
            return tuple(axis for axis in range(arg.rank) if axis not in attrs["dims"])
        case "permute":
            return tuple(int(axis) for axis in attrs["dims"])
        case "gather":
            dim = named_axis(tv)
            return tuple(None if axis == dim and not arg_index else axis for axis in range(tv.rank))
        case "mma":
            left = [axis for axis in roles(tv) if axis.result is not None]
            return tuple(axis.b if arg_index else axis.a for axis in left)
        case _:
            return tuple(range(tv.rank))
