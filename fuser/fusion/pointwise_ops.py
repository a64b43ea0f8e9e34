"""The pointwise operations of ``fd.ops``: element i of the result needs only elements i.

Every method records one TensorView and returns it; the rules of dtype, NaN and rounding are
torch's.  Axes of extent 1 stretch; ranks must be equal.  The numeric contract is in `ops`.
"""

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.ir import TensorView
from fuser.fusion.ops import OPS
from fuser.fusion.recorder import Operand, Recorder, refuse, show


class PointwiseOps:
    """Unary, binary and ternary operations, and `cast`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    # --- one operand ----------------------------------------------------------------------

    def abs(self, x: TensorView) -> TensorView:
        """Return |x|; NaN stays NaN, the least integer wraps to itself."""
        return self._unary("abs", x)

    def neg(self, x: TensorView) -> TensorView:
        """Return -x, also of zeros and NaN; the least integer wraps to itself."""
        return self._unary("neg", x)

    def relu(self, x: TensorView) -> TensorView:
        """Return max(x, 0); NaN stays NaN."""
        return self._unary("relu", x)

    def floor(self, x: TensorView) -> TensorView:
        """Round towards -inf; integers, inf and NaN stay."""
        return self._unary("floor", x)

    def ceil(self, x: TensorView) -> TensorView:
        """Round towards +inf; integers, inf and NaN stay."""
        return self._unary("ceil", x)

    def round(self, x: TensorView) -> TensorView:
        """Round to the nearest integer, halves to even; integers, inf and NaN stay."""
        return self._unary("round", x)

    def trunc(self, x: TensorView) -> TensorView:
        """Round towards zero; integers, inf and NaN stay."""
        return self._unary("trunc", x)

    def sign(self, x: TensorView) -> TensorView:
        """Return -1, 0 or 1 in the type of x; NaN gives 0, bool stays."""
        return self._unary("sign", x)

    def set(self, x: TensorView) -> TensorView:
        """Copy x; the value is not rounded."""
        return self._unary("set", x)

    def exp(self, x: TensorView) -> TensorView:
        """Return e**x; integers and bool become f32."""
        return self._unary("exp", x)

    def exp2(self, x: TensorView) -> TensorView:
        """Return 2**x; integers and bool become f32."""
        return self._unary("exp2", x)

    def log(self, x: TensorView) -> TensorView:
        """Return the natural logarithm: -inf at 0, NaN below; integers and bool become f32."""
        return self._unary("log", x)

    def log2(self, x: TensorView) -> TensorView:
        """Return the logarithm to base 2: -inf at 0, NaN below; integers and bool become f32."""
        return self._unary("log2", x)

    def sqrt(self, x: TensorView) -> TensorView:
        """Return the root, correctly rounded: NaN below 0; integers and bool become f32."""
        return self._unary("sqrt", x)

    def rsqrt(self, x: TensorView) -> TensorView:
        """Return 1 / sqrt(x): inf at 0, NaN below; integers and bool become f32."""
        return self._unary("rsqrt", x)

    def reciprocal(self, x: TensorView) -> TensorView:
        """Return 1 / x, correctly rounded: +-inf at +-0; integers and bool become f32."""
        return self._unary("reciprocal", x)

    def sin(self, x: TensorView) -> TensorView:
        """Return the sine of x in radians: NaN at inf; integers and bool become f32."""
        return self._unary("sin", x)

    def cos(self, x: TensorView) -> TensorView:
        """Return the cosine of x in radians: NaN at inf; integers and bool become f32."""
        return self._unary("cos", x)

    def tanh(self, x: TensorView) -> TensorView:
        """Return the hyperbolic tangent; integers and bool become f32."""
        return self._unary("tanh", x)

    def sigmoid(self, x: TensorView) -> TensorView:
        """Return 1 / (1 + exp(-x)); integers and bool become f32."""
        return self._unary("sigmoid", x)

    def silu(self, x: TensorView) -> TensorView:
        """Return x / (1 + exp(-x)): NaN at -inf, as torch; integers and bool become f32."""
        return self._unary("silu", x)

    def gelu(self, x: TensorView) -> TensorView:
        """Return x * (1 + erf(x / sqrt(2))) / 2: NaN at -inf, inf at inf; integers become f32."""
        return self._unary("gelu", x)

    def gelu_tanh(self, x: TensorView) -> TensorView:
        """Return torch's tanh form of gelu: NaN at -inf, inf at inf; integers become f32."""
        return self._unary("gelu_tanh", x)

    def erf(self, x: TensorView) -> TensorView:
        """Return the error function; integers and bool become f32."""
        return self._unary("erf", x)

    def isnan(self, x: TensorView) -> TensorView:
        """Tell where x is NaN, as bool; never so for integers and bool."""
        return self._unary("isnan", x)

    def isfinite(self, x: TensorView) -> TensorView:
        """Tell where x is neither inf nor NaN, as bool; always so for integers and bool."""
        return self._unary("isfinite", x)

    def logical_not(self, x: TensorView) -> TensorView:
        """Tell where x is zero, as bool; NaN is not zero."""
        return self._unary("logical_not", x)

    def bitwise_not(self, x: TensorView) -> TensorView:
        """Flip every bit of an integer; logical not of a bool; refuses floats."""
        return self._unary("bitwise_not", x)

    def cast(self, x: TensorView, dtype: str | DType) -> TensorView:
        """Convert x: floats round to even, towards an int they truncate; to bool is x != 0.

        A cast to f16 or bf16 rounds even where x has that type already.  Integers wrap; NaN and
        floats out of range give an unspecified integer.
        """
        call = f"cast({show(x)}, {show(dtype)})"
        source = self._recorder.tensor(call, x)
        try:
            target = DType.of(dtype)
        except FusionError as error:
            raise FusionError(f"{call}: {error}") from None
        for dtype in (source.dtype, target):
            if dtype not in OPS["cast"].allowed:
                refuse(call, f"{dtype} is multiplied and copied, not converted; use bf16 or f16")
        return self._recorder.record("cast", source.logical, target, args=(source,))

    # --- two operands ---------------------------------------------------------------------

    def add(self, a: Operand, b: Operand) -> TensorView:
        """Return a + b in the promoted type; integers wrap, bool is or."""
        return self._recorder.pointwise("add", a, b)

    def sub(self, a: Operand, b: Operand) -> TensorView:
        """Return a - b in the promoted type; integers wrap, bool is refused."""
        return self._recorder.pointwise("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> TensorView:
        """Return a * b in the promoted type; integers wrap, bool is and."""
        return self._recorder.pointwise("mul", a, b)

    def div(self, a: Operand, b: Operand) -> TensorView:
        """Return the true quotient, correctly rounded; integers and bool become f32 first."""
        return self._recorder.pointwise("div", a, b)

    def floor_div(self, a: Operand, b: Operand) -> TensorView:
        """Return floor(a / b) in the promoted type; 1 // 0 is inf for floats, anything for ints."""
        return self._recorder.pointwise("floor_div", a, b)

    def remainder(self, a: Operand, b: Operand) -> TensorView:
        """Return a - b * floor(a / b), sign of b: NaN for a float b = 0, anything for an int."""
        return self._recorder.pointwise("remainder", a, b)

    def pow(self, a: Operand, b: Operand) -> TensorView:
        """Return a**b in the promoted type, 1 for b = 0; ints wrap, their powers < 0 truncate."""
        return self._recorder.pointwise("pow", a, b)

    def maximum(self, a: Operand, b: Operand) -> TensorView:
        """Return the larger; NaN in either gives NaN; bool is or."""
        return self._recorder.pointwise("maximum", a, b)

    def minimum(self, a: Operand, b: Operand) -> TensorView:
        """Return the smaller; NaN in either gives NaN; bool is and."""
        return self._recorder.pointwise("minimum", a, b)

    def eq(self, a: Operand, b: Operand) -> TensorView:
        """Tell where a == b after promotion; NaN equals nothing."""
        return self._recorder.pointwise("eq", a, b)

    def ne(self, a: Operand, b: Operand) -> TensorView:
        """Tell where a != b after promotion; NaN differs from everything."""
        return self._recorder.pointwise("ne", a, b)

    def lt(self, a: Operand, b: Operand) -> TensorView:
        """Tell where a < b after promotion; False for NaN."""
        return self._recorder.pointwise("lt", a, b)

    def le(self, a: Operand, b: Operand) -> TensorView:
        """Tell where a <= b after promotion; False for NaN."""
        return self._recorder.pointwise("le", a, b)

    def gt(self, a: Operand, b: Operand) -> TensorView:
        """Tell where a > b after promotion; False for NaN."""
        return self._recorder.pointwise("gt", a, b)

    def ge(self, a: Operand, b: Operand) -> TensorView:
        """Tell where a >= b after promotion; False for NaN."""
        return self._recorder.pointwise("ge", a, b)

    def logical_and(self, a: Operand, b: Operand) -> TensorView:
        """Tell where both are nonzero; every type, NaN is nonzero."""
        return self._recorder.pointwise("logical_and", a, b)

    def logical_or(self, a: Operand, b: Operand) -> TensorView:
        """Tell where one is nonzero; every type, NaN is nonzero."""
        return self._recorder.pointwise("logical_or", a, b)

    def logical_xor(self, a: Operand, b: Operand) -> TensorView:
        """Tell where exactly one is nonzero; every type, NaN is nonzero."""
        return self._recorder.pointwise("logical_xor", a, b)

    def bitwise_and(self, a: Operand, b: Operand) -> TensorView:
        """Return a & b of integers or bool, in the promoted type; refuses floats."""
        return self._recorder.pointwise("bitwise_and", a, b)

    def bitwise_or(self, a: Operand, b: Operand) -> TensorView:
        """Return a | b of integers or bool, in the promoted type; refuses floats."""
        return self._recorder.pointwise("bitwise_or", a, b)

    def bitwise_xor(self, a: Operand, b: Operand) -> TensorView:
        """Return a ^ b of integers or bool, in the promoted type; refuses floats."""
        return self._recorder.pointwise("bitwise_xor", a, b)

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

    def addcmul(self, x: Operand, a: Operand, b: Operand, value: Operand = 1) -> TensorView:
        """Return x + value * (a * b) in the promoted type; integers wrap."""
        return self._recorder.pointwise("addcmul", x, a, b, value)

    def _unary(self, op: str, x: TensorView) -> TensorView:
        return self._recorder.pointwise(op, self._recorder.tensor(f"{op}({show(x)})", x))
