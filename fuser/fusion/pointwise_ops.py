"""The pointwise operations of ``fd.ops``: element i of the result needs only elements i.

Every method records one TensorView and returns it; the rules of dtype, NaN and rounding are
torch's.  Axes of extent 1 stretch; ranks must be equal.  The numeric contract is in `ops`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from fuser.dtype import DType
from fuser.fusion.ir import TensorView
from fuser.fusion.ops import OPS, Rule
from fuser.fusion.recorder import Operand, Recording, show

Method = TypeVar("Method", bound=Callable[..., Any])


def _unary(op: str, says: str) -> Callable[["PointwiseOps", TensorView], TensorView]:
    def method(self: "PointwiseOps", x: TensorView) -> TensorView:
        return self._recorder.pointwise(op, self._recorder.tensor(f"{op}({show(x)})", x))

    return _described(method, op, says)


def _binary(op: str, says: str) -> Callable[["PointwiseOps", Operand, Operand], TensorView]:
    def method(self: "PointwiseOps", a: Operand, b: Operand) -> TensorView:
        return self._recorder.pointwise(op, a, b)

    return _described(method, op, says)


def _described(method: Method, op: str, says: str) -> Method:
    if OPS[op].rule is Rule.FLOAT:
        says = f"{says.removesuffix('.')}; integers and bool become f32."
    method.__name__, method.__qualname__, method.__doc__ = op, f"PointwiseOps.{op}", says
    return method


class PointwiseOps(Recording):
    """Unary, binary and ternary operations, and `cast`."""

    # --- one operand ----------------------------------------------------------------------

    abs = _unary("abs", "Return |x|; NaN stays NaN, the least integer wraps to itself.")
    neg = _unary("neg", "Return -x, also of zeros and NaN; the least integer wraps to itself.")
    relu = _unary("relu", "Return max(x, 0); NaN stays NaN.")
    floor = _unary("floor", "Round towards -inf; integers, inf and NaN stay.")
    ceil = _unary("ceil", "Round towards +inf; integers, inf and NaN stay.")
    round = _unary(
        "round", "Round to the nearest integer, halves to even; integers, inf and NaN stay."
    )
    trunc = _unary("trunc", "Round towards zero; integers, inf and NaN stay.")
    sign = _unary("sign", "Return -1, 0 or 1 in the type of x; NaN gives 0, bool stays.")
    set = _unary("set", "Copy x; the value is not rounded.")
    exp = _unary("exp", "Return e**x.")
    exp2 = _unary("exp2", "Return 2**x.")
    expm1 = _unary("expm1", "Return e**x - 1, right also near 0.")
    log = _unary("log", "Return the natural logarithm: -inf at 0, NaN below.")
    log1p = _unary("log1p", "Return log(1 + x), right also near 0: -inf at -1, NaN below.")
    log2 = _unary("log2", "Return the logarithm to base 2: -inf at 0, NaN below.")
    log10 = _unary("log10", "Return the logarithm to base 10: -inf at 0, NaN below.")
    sqrt = _unary("sqrt", "Return the root, correctly rounded: NaN below 0.")
    rsqrt = _unary("rsqrt", "Return 1 / sqrt(x): inf at 0, NaN below.")
    reciprocal = _unary("reciprocal", "Return 1 / x, correctly rounded: +-inf at +-0.")
    sin = _unary("sin", "Return the sine of x in radians: NaN at inf.")
    cos = _unary("cos", "Return the cosine of x in radians: NaN at inf.")
    tan = _unary("tan", "Return the tangent of x in radians: NaN at inf.")
    asin = _unary("asin", "Return the angle in -pi/2..pi/2 whose sine is x: NaN beyond -1..1.")
    acos = _unary("acos", "Return the angle in 0..pi whose cosine is x: NaN beyond -1..1.")
    atan = _unary("atan", "Return the angle in -pi/2..pi/2 whose tangent is x.")
    sinh = _unary("sinh", "Return the hyperbolic sine.")
    cosh = _unary("cosh", "Return the hyperbolic cosine.")
    tanh = _unary("tanh", "Return the hyperbolic tangent.")
    sigmoid = _unary("sigmoid", "Return 1 / (1 + exp(-x)).")
    silu = _unary("silu", "Return x / (1 + exp(-x)): NaN at -inf, as torch.")
    gelu = _unary("gelu", "Return x * (1 + erf(x / sqrt(2))) / 2: NaN at -inf, inf at inf.")
    gelu_tanh = _unary("gelu_tanh", "Return torch's tanh form of gelu: NaN at -inf, inf at inf.")
    erf = _unary("erf", "Return the error function.")
    erfc = _unary("erfc", "Return 1 - erf(x), right also where erf(x) is near 1.")
    isnan = _unary("isnan", "Tell where x is NaN, as bool; never so for integers and bool.")
    isinf = _unary("isinf", "Tell where x is inf or -inf, as bool; never so for integers and bool.")
    isfinite = _unary(
        "isfinite", "Tell where x is neither inf nor NaN, as bool; always so for integers and bool."
    )
    logical_not = _unary("logical_not", "Tell where x is zero, as bool; NaN is not zero.")
    order = _unary(
        "order", "Return an i64 of 32 bits that orders like x: NaN above all, zeros equal."
    )
    bitwise_not = _unary(
        "bitwise_not", "Flip every bit of an integer; logical not of a bool; refuses floats."
    )

    def cast(self, x: TensorView, dtype: str | DType) -> TensorView:
        """Convert x: floats round to even, towards an int they truncate; to bool is x != 0.

        A cast to f16 or bf16 rounds even where x has that type already.  Floats beyond the largest
        f8e4m3, which has no inf, become that number, 448.  Integers wrap; NaN and
        floats out of range give an unspecified integer.
        """
        call = f"cast({show(x)}, {show(dtype)})"
        source = self._recorder.tensor(call, x)
        target = self._recorder.dtype(call, dtype)
        return self._recorder.record("cast", source.logical, target, args=(source,))

    # --- two operands ---------------------------------------------------------------------

    add = _binary("add", "Return a + b in the promoted type; integers wrap, bool is or.")
    sub = _binary("sub", "Return a - b in the promoted type; integers wrap, bool is refused.")
    mul = _binary("mul", "Return a * b in the promoted type; integers wrap, bool is and.")
    div = _binary("div", "Return the true quotient, correctly rounded.")
    atan2 = _binary(
        "atan2", "Return the angle of the point (b, a) in -pi..pi, signs of zeros seen."
    )
    floor_div = _binary(
        "floor_div",
        "Return floor(a / b) in the promoted type; 1 // 0 is inf for floats, anything for ints.",
    )
    remainder = _binary(
        "remainder",
        "Return a - b * floor(a / b), sign of b: NaN for a float b = 0, anything for an int.",
    )
    pow = _binary(
        "pow",
        "Return a**b in the promoted type, 1 for b = 0; ints wrap, their powers < 0 truncate.",
    )
    maximum = _binary("maximum", "Return the larger; NaN in either gives NaN; bool is or.")
    minimum = _binary("minimum", "Return the smaller; NaN in either gives NaN; bool is and.")
    eq = _binary("eq", "Tell where a == b after promotion; NaN equals nothing.")
    ne = _binary("ne", "Tell where a != b after promotion; NaN differs from everything.")
    lt = _binary("lt", "Tell where a < b after promotion; False for NaN.")
    le = _binary("le", "Tell where a <= b after promotion; False for NaN.")
    gt = _binary("gt", "Tell where a > b after promotion; False for NaN.")
    ge = _binary("ge", "Tell where a >= b after promotion; False for NaN.")
    logical_and = _binary("logical_and", "Tell where both are nonzero; every type, NaN is nonzero.")
    logical_or = _binary("logical_or", "Tell where one is nonzero; every type, NaN is nonzero.")
    logical_xor = _binary(
        "logical_xor", "Tell where exactly one is nonzero; every type, NaN is nonzero."
    )
    bitwise_and = _binary(
        "bitwise_and", "Return a & b of integers or bool, in the promoted type; refuses floats."
    )
    bitwise_or = _binary(
        "bitwise_or", "Return a | b of integers or bool, in the promoted type; refuses floats."
    )
    bitwise_xor = _binary(
        "bitwise_xor", "Return a ^ b of integers or bool, in the promoted type; refuses floats."
    )
    nibble = _binary(
        "nibble", "Return the signed number of 4 bits in a's lowest byte: its upper half for odd b."
    )

    # --- three operands -------------------------------------------------------------------

    def where(self, condition: Operand, a: Operand, b: Operand) -> TensorView:
        """Pick a where the bool `condition` holds, else b; a and b promote."""
        return self._recorder.pointwise("where", condition, a, b)

    def clamp(self, x: Operand, min: Operand, max: Operand) -> TensorView:
        """Return minimum(maximum(x, min), max): NaN in any gives NaN, max wins over min."""
        return self._recorder.pointwise("clamp", x, min, max)

    def lerp(self, a: Operand, b: Operand, weight: Operand) -> TensorView:
        """Return a + weight * (b - a) if |weight| < 0.5, else b - (b - a) * (1 - weight)."""
        return self._recorder.pointwise("lerp", a, b, weight)

    def philox(self, seed: Operand, stream: Operand, place: Operand) -> TensorView:
        """Return 32 random bits, as i64: those at a place (0 or more) of one of 2**64 streams."""
        return self._recorder.pointwise("philox", seed, stream, place)

    def addcmul(self, x: Operand, a: Operand, b: Operand, value: Operand = 1) -> TensorView:
        """Return x + value * (a * b) in the promoted type; integers wrap."""
        return self._recorder.pointwise("addcmul", x, a, b, value)
