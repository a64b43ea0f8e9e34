"""A fusion as a plain torch function, as a user of torch writes it.

Operations are torch's own, on tensors of the declared types: nothing is converted for the sake of
accuracy.  Where the contract of a fusion leaves a result open and torch raises, the text avoids it:
an integer is divided by 1 instead of 0, and an index is clamped.  `mean` and `prod` of 16 bits ask
for sums in f32: without, torch rounds on the way, of which the contract of a fusion knows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fuser.dtype import DType
from fuser.fusion.definition import Constant, Extent, Fusion, Scalar, TensorView
from fuser.fusion.ir import literal, tensor_args
from fuser.fusion.ops import OPS, Form
from fuzz.cases.features import live

NAME = "compute"
"""What the function is called; it also reads `DEVICE`, where it makes tensors of nothing."""

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floor_div": "//", "remainder": "%",
    "pow": "**", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip
_TENSORS_ONLY = ("atan2", "maximum", "minimum", "logical_and", "logical_or", "logical_xor")
"""Functions of torch that take no number."""
_OWN = {
    "neg": "-{}",
    "bitwise_not": "~{}",
    "set": "{}.clone()",
    "silu": "torch.nn.functional.silu({})",
    "gelu": "torch.nn.functional.gelu({})",
    "gelu_tanh": "torch.nn.functional.gelu({}, approximate='tanh')",
    "order": "order({})",
}
_NO_INTEGERS = ("silu", "gelu", "gelu_tanh")
"""Functions of torch that refuse integers and bool."""
_SHORT = (DType.F16, DType.BF16)

Arg = TensorView | Scalar | Constant


def to_torch(fusion: Fusion) -> str:
    """Write a fusion as Python that defines `compute`, of its inputs; it returns a tuple."""
    lines = [f"{tv} = {_expression(tv)}" for tv in live(fusion) if tv.op != "input"]
    used = set(re.findall(r"\w+", " ".join(lines)))
    names = ", ".join(arg.name for arg in fusion.inputs)
    outputs = ", ".join(tv.name for tv in fusion.outputs)
    body = [*_extents(fusion, used), *lines, f"return ({outputs},)"]
    text = "\n".join([f"def {NAME}({names}):", *(f"    {line}" for line in body)])
    return text.replace("'", '"') + "\n"


def _extents(fusion: Fusion, used: set[str]) -> Iterator[str]:
    """Name the extents that the text uses."""
    for tv in fusion.inputs:
        if isinstance(tv, TensorView):
            for axis, extent in enumerate(tv.shape):
                if str(extent) in used and not isinstance(extent, int):
                    used.remove(str(extent))
                    yield f"{extent} = {tv}.shape[{axis}]"


def _expression(tv: TensorView) -> str:
    form, args = OPS[tv.op].form, tv.args
    if tv.op in _INFIX:
        a, b = map(_operand, args)
        if tv.op in ("floor_div", "remainder") and tv.dtype.is_int:
            b = f"torch.where({b} == 0, 1, {b})" if isinstance(args[1], TensorView) else b
        if tv.op == "sub":  # which torch does not have for bool, not even beside other types
            dtype = _dtype(tv.dtype)
            a, b = (
                f"{arg}.to({dtype})" if _is_tensor(arg) and arg.dtype is DType.BOOL else word
                for arg, word in zip(args, (a, b), strict=True)
            )
        return f"{a} {_INFIX[tv.op]} {b}"
    if form is Form.UNARY:
        return _unary(tv)
    if tv.op == "nibble":
        x, which = map(_operand, args)
        return f"((({x} >> 4 * ({which} & 1)) & 15) ^ 8) - 8"
    if form is Form.BINARY:
        return f"torch.{tv.op}({', '.join(_tensor(tv, arg) for arg in args)})"
    if form is Form.TERNARY:
        return _ternary(tv)
    if form is Form.REDUCTION:
        return _reduction(tv)
    if form is Form.SCAN:
        return f"torch.cumsum({tv.args[0]}, {int(tv.attrs[0][1][0])}, dtype={_dtype(tv.dtype)})"
    if form is Form.MMA:
        return _product(tv)
    return _factory(tv) if form is Form.FACTORY else _moved(tv)


def _unary(tv: TensorView) -> str:
    (arg,) = tv.args
    x = _operand(arg)
    if tv.op == "cast":
        return f"{x}.to({_dtype(tv.dtype)})"
    if tv.op in _NO_INTEGERS and not arg.dtype.is_float:
        x = f"{x}.to({_dtype(tv.dtype)})"
    return _OWN.get(tv.op, f"torch.{tv.op}({{}})").format(x)


def _ternary(tv: TensorView) -> str:
    args = tv.args
    match tv.op:
        case "where":
            words = [_tensor(tv, args[0]), *map(_operand, args[1:])]
        case "clamp" if not any(isinstance(arg, TensorView) for arg in args[1:]):
            words = [_tensor(tv, args[0]), *map(_operand, args[1:])]
        case "lerp":
            words = [_alike(tv, args[0]), _alike(tv, args[1])]
            words.append(_alike(tv, args[2]) if _is_tensor(args[2]) else _operand(args[2]))
        case "addcmul" if _is_tensor(args[3]):
            x, a, b, value = map(_operand, args)
            return f"{x} + {value} * ({a} * {b})"
        case "addcmul":
            words = [_tensor(tv, arg) for arg in args[:3]] + [f"value={_operand(args[3])}"]
        case _:
            words = [_tensor(tv, arg) for arg in args]
    name = tv.op if tv.op == "philox" else f"torch.{tv.op}"
    return f"{name}({', '.join(words)})"


def _reduction(tv: TensorView) -> str:
    (x,) = tensor_args(tv)
    dims, many = [int(axis) for axis in dict(tv.attrs)["dims"]], _dtype(tv.dtype)
    back = f".to({many})" if tv.dtype in _SHORT else ""
    wide = "torch.float32" if back else many
    match tv.op:
        case "max" | "min":
            return f"torch.a{tv.op}({x}, {dims})"
        case "sum":
            return f"torch.sum({x}, {dims}, dtype={many})"
        case "prod":
            made = str(x)
            for axis in sorted(dims, reverse=True):
                made = f"torch.prod({made}, {axis}, dtype={wide})"
            return made + back
        case _:
            (less,) = dict(tv.attrs).get("correction", (0,))
            if not less:
                return f"torch.mean({x}, {dims}, dtype={wide}){back}"
            count = " * ".join(_entry(x.shape[axis]) for axis in dims)
            made = f"torch.sum({x}, {dims}, dtype={wide}) / max({count} - {int(less)}, 0)"
            return f"({made}){back}" if back else made


def _product(tv: TensorView) -> str:
    """Write a product as an einsum, in its operands' type where that is the result's."""
    attrs = {key: [int(axis) for axis in value] for key, value in tv.attrs}
    axes = (attrs["a_axes"], attrs["b_axes"])
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    full = [next(letters) for _ in axes[0]]
    words = []
    for arg, of in zip(tensor_args(tv), axes, strict=True):
        # An axis of extent 1 that stands nowhere gets a letter of its own, to be summed over.
        words.append(
            "".join(full[of.index(n)] if n in of else next(letters) for n in range(arg.rank))
        )
    kept = "".join(letter for n, letter in enumerate(full) if n not in attrs["reduced"])
    a, b = tensor_args(tv)
    wide = "torch.int32" if a.dtype is DType.I8 else "torch.float32"
    native = a.dtype is b.dtype and not a.dtype.is_f8 and a.dtype in (tv.dtype, DType.F32)
    given = [str(arg) if native else f"{arg}.to({wide})" for arg in (a, b)]
    made = f'torch.einsum("{words[0]},{words[1]}->{kept}", {", ".join(given)})'
    has = str(_dtype(a.dtype)) if native else wide
    return made if has == _dtype(tv.dtype) else f"{made}.to({_dtype(tv.dtype)})"


def _moved(tv: TensorView) -> str:
    """Write what moves elements."""
    x, attrs = tensor_args(tv)[0], dict(tv.attrs)
    match tv.op:
        case "broadcast":
            flags = attrs["is_broadcast_dim"]
            return f"{x}[{', '.join('None' if new else ':' for new in flags)}]"
        case "expand":
            return f"{x}.expand({_shape(tv.shape)})"
        case "squeeze" | "permute":
            dims = tuple(int(axis) for axis in attrs["dims"])
            return f"torch.{tv.op}({x}, {dims})"
        case "slice":
            (axis,), (start,), (step,) = (map(int, value) for _, value in tv.attrs)
            many = tv.logical[axis].extent
            assert isinstance(many, int), "checked when it was recorded"
            end = start + max((many - 1) * step + 1, 0)
            return f"{x}[{':, ' * axis}{start}:{end}:{step}]"
        case "cat":
            return f"torch.cat([{', '.join(map(str, tv.args))}], {int(attrs['dim'][0])})"
        case "gather":
            axis, index = int(attrs["dim"][0]), tensor_args(tv)[1]
            full = [*tv.shape[:axis], x.shape[axis], *tv.shape[axis + 1 :]]
            place = f"{index}.to(torch.int64).expand({_shape(tv.shape)})"
            place += f".clamp(0, {_entry(x.shape[axis])} - 1)"
            return f"torch.gather({x}.expand({_shape(full)}), {axis}, {place})"
        case _:  # flatten, unflatten
            return f"{x}.reshape({_shape(tv.shape)})"


def _factory(tv: TensorView) -> str:
    if tv.op == "full":
        words = f"{_shape(tv.shape)}, {_operand(tv.args[0])}, dtype={_dtype(tv.dtype)}"
        return f"torch.full({words}, device=DEVICE)"
    start, step = (
        "" if isinstance(arg, Constant) and arg.value == nothing else f" {sign} {_operand(arg)}"
        for arg, nothing, sign in zip(tv.args, (0, 1), "+*", strict=True)
    )
    back = f".to({_dtype(tv.dtype)})" if tv.dtype in (*_SHORT, DType.I32) else ""
    wide = "torch.float32" if tv.dtype in _SHORT else "torch.int64" if back else _dtype(tv.dtype)
    made = f"torch.arange({_entry(tv.shape[0])}, dtype={wide}, device=DEVICE){step}{start}"
    return f"({made}){back}" if back and (step or start) else made + back


def _is_tensor(arg: Arg) -> bool:
    return isinstance(arg, TensorView)


def _operand(arg: Arg) -> str:
    return literal(arg.value) if isinstance(arg, Constant) else arg.name


def _tensor(tv: TensorView, arg: Arg) -> str:
    """Write an argument where torch takes no number."""
    if isinstance(arg, TensorView):
        return arg.name
    dtype = tv.dtype
    if tv.op == "where":
        dtype = DType.BOOL
    elif tv.op.startswith("logical"):
        dtype = arg.dtype
    return f"torch.full((), {_operand(arg)}, dtype={_dtype(dtype)}, device=DEVICE)"


def _alike(tv: TensorView, arg: Arg) -> str:
    """Write an argument where torch promotes nothing."""
    if isinstance(arg, TensorView) and arg.dtype is not tv.dtype:
        return f"{arg}.to({_dtype(tv.dtype)})"
    return _tensor(tv, arg)


def _entry(extent: Extent) -> str:
    return str(extent)


def _shape(shape: tuple[Extent, ...] | list[Extent]) -> str:
    return f"({', '.join(map(_entry, shape))}{',' if len(shape) == 1 else ''})"


def _dtype(dtype: DType) -> str:
    return f"torch.{dtype.torch_name}"
