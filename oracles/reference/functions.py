"""A torch function evaluated with a bound on the rounding error of every element.

Torch runs the function; each operation it comes down to is a row of `rows`, a sum of `sums`, or
moves elements.  A float tensor is held as an Estimate that torch knows by shape and type only.
Results of 16 bits may be rounded on the way or not: kernels keep them in f32 while they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from fuser.dtype import DType
from fuser.fusion.definition import TensorView
from fuser.fusion.ir import AttrValue, IterDomain, IterType
from oracles.reference.estimate import Estimate, contractible, convert, cut_to_8_bits, rounded
from oracles.reference.evaluate import Expected, estimate_of, expected_of
from oracles.reference.products import Partials, multiply_sum
from oracles.reference.rows import ROWS, times
from oracles.reference.sums import SUMS

Function = Callable[..., Any]
"""What is traced; Any, as people write what they like."""

_MOVES = {
    "_unsafe_view", "alias", "as_strided", "cat", "clone", "constant_pad_nd", "detach",
    "diagonal", "diagonal_copy", "expand", "expand_copy", "flip", "gather", "index", "index_put",
    "index_select", "lift_fresh", "narrow", "permute", "repeat", "repeat_interleave", "resize",
    "roll", "scatter", "select", "select_scatter", "slice", "slice_scatter", "split",
    "split_with_sizes", "squeeze", "stack", "t", "take", "transpose", "tril", "triu", "unbind",
    "unfold", "unsqueeze", "view", "diag_embed", "unsafe_split", "_reshape_alias", "real",
    "broadcast_in_dim",
}  # fmt: skip
"""Operations that move elements."""
_PICKS = {
    "argmax", "argmin", "argsort", "cummax", "cummin", "kthvalue", "max", "median", "min", "sort",
    "topk",
}  # fmt: skip
"""Operations that choose among elements: exact where these are."""
_ROWS = {
    "floor_divide": "floor_div",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "bitwise_not": "bitwise_not",
    "amax": "max",
    "amin": "min",
    "sgn": "sign",
}
"""Rows that torch names differently."""
_REDUCTIONS = {"sum", "mean", "amax", "amin", "max", "min"}
_PRODUCTS = {
    # axes of the full product, and where each operand has them; the last one is summed
    "mm": ((0, -1, 1), (-1, 1, 0)),
    "bmm": ((0, 1, -1, 2), (0, -1, 2, 1)),
    "mv": ((0, 1), (-1, 0)),
    "dot": ((0,), (0,)),
}
_WITH_SUM: dict[str, Function] = {"addmm": torch.mm, "baddbmm": torch.bmm, "addmv": torch.mv}
"""A product and what is added to it."""


class Unbounded(Exception):
    """An operation whose rounding error is not known; the message names it."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a kernel multiplies and adds.

    Parameters
    ----------
    operands : DType or None
        What its tensor cores multiply; None where threads multiply.
    half : bool
        Whether tensor cores add up in f16.
    partials : Partials or None
        How sums go from CTA to CTA, where that rounds them.
    longest : int or None
        How many additions it puts any number through, if that is known.
    double : bool
        Whether it computes in f64.  If not, f64 in a function is exact mathematics to it.
    """

    operands: DType | None = None
    half: bool = False
    partials: Partials | None = None
    longest: int | None = None
    double: bool = False

    def held(self, dtype: torch.dtype) -> DType:
        """Return in which type it holds floats of a type."""
        return DType.F64 if dtype is torch.float64 and self.double else DType.F32

    def lifted(self, leaf: Any) -> Any:
        """Return a float tensor with the error of what it is held in, which is none."""
        is_tensor = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        if isinstance(leaf, Bounded) or not is_tensor:
            return leaf
        return Bounded(Estimate(self.held(leaf.dtype), leaf.to(torch.float64)), leaf.dtype)

    def filled(self, value: Any, like: torch.Tensor) -> Estimate:
        """Return a tensor of one number."""
        full = torch.full(like.shape, float(value), dtype=torch.float64)
        return Estimate(self.held(like.dtype), full)


class Bounded(torch.Tensor):
    """A float tensor, or what is compared of some, on its way through a function."""

    estimate: Estimate

    @staticmethod
    def __new__(cls: type[Bounded], estimate: Estimate, dtype: torch.dtype) -> Bounded:
        """Show torch shape and type; all parts get the full shape and lie in memory alike."""
        value = estimate.value
        made: Bounded = torch.Tensor._make_wrapper_subclass(
            cls, value.shape, value.stride(), value.storage_offset(), dtype=dtype
        )
        error, undecided = (
            part if part.shape == value.shape and part.stride() == value.stride()
            else torch.empty_like(value, dtype=part.dtype).copy_(part)
            for part in (estimate.error, estimate.undecided)
        )  # fmt: skip
        made.estimate = Estimate(estimate.dtype, value, error, undecided)
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Refuse to compute outside of the function."""
        raise Unbounded(f"{func} outside of the function")


def evaluate_function(
    function: Function,
    arguments: Mapping[str, Any] | tuple[Any, ...],
    outputs: Mapping[str, tuple[DType, tuple[int, ...]]],
    order: Sequence[str],
    arithmetic: Arithmetic,
) -> dict[str, Expected]:
    """Run a function on tensors and numbers, and return what each output may be.

    Parameters
    ----------
    arguments : mapping or tuple
        By name, or in order; CPU tensors, and Python numbers.
    outputs : mapping of str to (DType, shape)
        What may be returned, in a dict by name.
    order : sequence of str
        Those that a tensor, or a tuple of several, stands for.

    Raises
    ------
    Unbounded
        If the error of an operation is not known.
    ValueError
        If other tensors are returned; the message says which.
    """
    made = _called(
        function, arguments, outputs, order, lambda: _Errors(arithmetic), arithmetic.lifted
    )
    return {name: _stored(made[name], *outputs[name]) for name in made}


def evaluate_plainly(
    function: Function,
    arguments: Mapping[str, Any] | tuple[Any, ...],
    outputs: Mapping[str, tuple[DType, tuple[int, ...]]],
    order: Sequence[str],
    rtol: float,
    atol: float,
) -> dict[str, Expected]:
    """Run a function as torch does, and allow what is given; parameters as above."""
    made = _called(function, arguments, outputs, order, torch.no_grad, lambda leaf: leaf)
    result = {}
    for name, tensor in made.items():
        exact = _stored(tensor, *outputs[name])
        bound = exact.bound
        if exact.dtype.is_float:
            bound = bound + atol + rtol * exact.value.abs().nan_to_num(0.0, 0.0, 0.0)
        result[name] = replace(exact, bound=bound)
    return result


def _called(
    function: Function,
    arguments: Mapping[str, Any] | tuple[Any, ...],
    outputs: Mapping[str, tuple[DType, tuple[int, ...]]],
    order: Sequence[str],
    mode: Callable[[], Any],
    lifted: Callable[[Any], Any],
) -> dict[str, torch.Tensor]:
    in_order: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    if isinstance(arguments, tuple):
        in_order = tuple(map(lifted, arguments))
    else:
        named = {name: lifted(leaf) for name, leaf in arguments.items()}
    with torch.no_grad(), mode():
        made = function(*in_order, **named)
    if isinstance(made, torch.Tensor):
        made = (made,)
    if isinstance(made, list | tuple):
        if len(made) != len(order):
            raise ValueError(f"{len(made)} tensors are returned for {', '.join(order)}")
        made = dict(zip(order, made, strict=True))
    if not isinstance(made, dict) or not all(isinstance(t, torch.Tensor) for t in made.values()):
        raise ValueError(f"a {type(made).__name__} is returned, no tensor for each output")
    if stray := [name for name in made if name not in outputs]:
        raise ValueError(f"{stray[0]} is returned; the outputs are {', '.join(outputs)}")
    for name, tensor in made.items():
        if tuple(tensor.shape) != outputs[name][1]:
            has = list(outputs[name][1])
            raise ValueError(f"shape {list(tensor.shape)} is returned for {name}, which has {has}")
    return made


def _stored(tensor: torch.Tensor, dtype: DType, shape: tuple[int, ...]) -> Expected:
    held = tensor.estimate if isinstance(tensor, Bounded) else estimate_of(tensor, _dtype(tensor))
    if dtype.is_f8:
        exact = held.value.to(getattr(torch, dtype.torch_name)).to(torch.float64)
        held = replace(held, value=exact, undecided=held.undecided | (held.error > 0))
    elif dtype not in (DType.F16, DType.BF16):
        held = convert(held, dtype)
    return expected_of(held, dtype, shape)


def _dtype(tensor: torch.Tensor) -> DType:
    return DType.of(tensor.dtype)


def _meta(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")


def _known(leaf: Any) -> bool:
    if not isinstance(leaf, Bounded):
        return True
    return not bool((leaf.estimate.error > 0).any() | leaf.estimate.undecided.any())


class _Errors(TorchDispatchMode):
    """Gives every float tensor of a function its bound."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._arithmetic = arithmetic

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute one operation with its error."""
        name = func.overloadpacket.__name__
        args, kwargs = tree_map(self._arithmetic.lifted, (args, kwargs or {}))
        if not any(isinstance(leaf, Bounded) for leaf in tree_leaves((args, kwargs))):
            return tree_map(self._arithmetic.lifted, func(*args, **kwargs))
        if func._schema.is_mutable:
            return self._in_place(func, name, args, kwargs)
        adds = name == "index_put" and (*args, kwargs.get("accumulate"))[3]
        if name in _MOVES and not adds and "reduce" not in func._overloadname:
            return self._moved(func, args, kwargs)
        result = self._computed(func, name, args, kwargs)
        if result is NotImplemented and (func in decomposition_table or func._can_decompose()):
            with self:
                result = decomposition_table.get(func, func.decompose)(*args, **kwargs)
        if result is NotImplemented and all(map(_known, tree_leaves((args, kwargs)))):
            return self._exactly(func, name, args, kwargs)
        if result is NotImplemented:
            raise Unbounded(str(func))
        return result

    def _in_place(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Compute beside, then write all parts where the first operand has them."""
        into = args[0]
        if not name.endswith("_") or not isinstance(into, Bounded):
            raise Unbounded(str(func))
        match name:
            case "copy_":
                source = args[1]
                if not isinstance(source, Bounded):
                    source = Bounded(estimate_of(source, _dtype(source)), source.dtype)
                made = self._cast(source, into.dtype)
            case "zero_" | "fill_":
                value = 0.0 if name == "zero_" else args[1]
                made = self._arithmetic.filled(value, into)
            case _:
                beside = getattr(torch.ops.aten, name.rstrip("_"))
                overload = getattr(beside, func._overloadname)
                with self:
                    made = overload(*args, **kwargs).estimate
        for part in ("value", "error", "undecided"):
            getattr(into.estimate, part).copy_(getattr(made, part))
        return into

    def _moved(self, func: Any, args: Any, kwargs: Any) -> Any:
        def part(name: str) -> Any:
            types = {"value": torch.float64, "error": torch.float64, "undecided": torch.bool}

            def of(leaf: Any) -> Any:
                if isinstance(leaf, Bounded):
                    return getattr(leaf.estimate, name)
                is_number = isinstance(leaf, float) and name != "value"
                return 0.0 if is_number else leaf

            return func(
                *tree_map(of, args), **{**tree_map(of, kwargs), **_typed(kwargs, types[name])}
            )

        first = next(leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Bounded))
        parts = [part("value"), part("error"), part("undecided")]

        def joined(value: torch.Tensor, error: torch.Tensor, doubt: torch.Tensor) -> Bounded:
            return Bounded(Estimate(first.estimate.dtype, value, error, doubt), first.dtype)

        if isinstance(parts[0], torch.Tensor):
            return joined(*parts)
        return type(parts[0])(joined(*each) for each in zip(*parts, strict=True))

    def _computed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name in ("_to_copy", "to", "convert_element_type"):
            said = next((leaf for leaf in args[1:] if isinstance(leaf, torch.dtype)), None)
            dtype = said or kwargs.get("dtype") or args[0].dtype
            return self._wrapped(self._cast(args[0], dtype), dtype)
        if name == "_local_scalar_dense":
            return self._exactly(func, name, args, kwargs)
        if name in ("full_like", "empty_like", "new_empty", "new_empty_strided"):
            value = args[1] if name == "full_like" else float("nan")
            made = func(*tree_map(_meta, args), **tree_map(_meta, kwargs))
            if made.dtype.is_floating_point:
                return Bounded(self._arithmetic.filled(value, made), made.dtype)
            return torch.full(made.shape, value if name == "full_like" else 0, dtype=made.dtype)
        if name == "var":
            x, dims = args[:2]
            less = (*args[2:], kwargs.get("correction", 1))[0]
            with self:
                off = x - x.mean(dims, keepdim=True)
                return (off * off).sum(dims) / max(prod(x.shape[axis] for axis in dims) - less, 0)
        if name in _WITH_SUM and set(kwargs) <= {"alpha", "beta"}:
            with self:
                alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
                made = _WITH_SUM[name](args[1], args[2])
                added = args[0] if beta == 1 else args[0] * beta
                return added + (made if alpha == 1 else made * alpha)
        out = func(*tree_map(_meta, args), **tree_map(_meta, kwargs))
        if not isinstance(out, torch.Tensor):
            return NotImplemented
        shape = tuple(out.shape)
        if name in _PRODUCTS:
            return self._wrapped(self._product(name, args, shape), out.dtype)
        if name in _REDUCTIONS:
            return self._reduced(name, args, kwargs, out)
        if name == "cumsum" and args[0].dim():
            node = _node(name, (("dim", (args[1] % args[0].dim(),)),), args[0].dim())
            operand = replace(args[0].estimate, dtype=self._arithmetic.held(out.dtype))
            return self._wrapped(ROWS[name](node, (operand,), shape), out.dtype)
        return self._pointwise(func, name, args, kwargs, out)

    def _reduced(self, name: str, args: Any, kwargs: Any, out: torch.Tensor) -> Any:
        x = args[0]
        axes = args[1] if len(args) > 1 else kwargs.get("dim")
        if isinstance(axes, torch.Tensor):
            return NotImplemented
        if name in ("sum", "mean") and self._arithmetic.partials is not None:
            raise Unbounded(f"aten.{name} of parts that are rounded on their way between CTAs")
        axes = [axes] if isinstance(axes, int) else axes or range(x.dim())
        dims = tuple(sorted(axis % max(x.dim(), 1) for axis in axes)) if x.dim() else ()
        node = _node(_ROWS.get(name, name), (("dims", dims),), x.dim())
        operand = replace(x.estimate, dtype=self._arithmetic.held(out.dtype))
        if node.op in SUMS:
            made = SUMS[node.op](node, (operand,), tuple(out.shape), self._arithmetic.longest)
        else:
            made = ROWS[node.op](node, (operand,), tuple(out.shape))
        return self._wrapped(made, out.dtype)

    def _pointwise(self, func: Any, name: str, args: Any, kwargs: Any, out: torch.Tensor) -> Any:
        key = _ROWS.get(name, name)
        operands = list(args)
        scale = kwargs.get("alpha", 1)
        match name:
            case "rsub":
                key, operands = "sub", [args[1], args[0]]
            case "sub" | "add" if scale != 1:
                operands[1] = torch.mul(operands[1], scale)  # a number of torch's own
            case "gelu" if kwargs.get("approximate", "none") == "tanh":
                key = "gelu_tanh"
            case "masked_fill":
                key, operands = "where", [args[1], args[2], args[0]]
            case "clamp" | "clamp_min" | "clamp_max" | "hardtanh":
                return self._clamped(name, args, kwargs, out)
            case "square":
                key, operands = "mul", [args[0], args[0]]
            case "pow" if args[1] == 2:
                key, operands = "mul", [args[0], args[0]]
            case "addcmul":
                operands = [*args[:3], kwargs.get("value", 1)]
            case "div" if kwargs.get("rounding_mode") is not None:
                return NotImplemented
        row = ROWS.get(key)
        if row is None or key in ("sum", "mean", "mma", "cast", "iota", "full"):
            return NotImplemented
        floats = [leaf for leaf in operands if isinstance(leaf, Bounded)]
        held = self._arithmetic.held(
            torch.float64 if any(f.estimate.dtype is DType.F64 for f in floats) else out.dtype
        )
        estimates = tuple(_operand(leaf, held, key) for leaf in operands)
        node = _node(key, (), 0, len(estimates))
        made = row(node, estimates, tuple(out.shape))
        return self._wrapped(_spread(made, tuple(out.shape)), out.dtype)

    def _clamped(self, name: str, args: Any, kwargs: Any, out: torch.Tensor) -> Any:
        ends = [*args[1:], None, None][:2]
        low, high = (None, ends[0]) if name == "clamp_max" else ends
        low, high = kwargs.get("min", low), kwargs.get("max", high)
        made: Any = args[0]
        with self:
            if low is not None:
                made = torch.maximum(made, torch.as_tensor(low, dtype=made.dtype))
            if high is not None:
                made = torch.minimum(made, torch.as_tensor(high, dtype=made.dtype))
        return made

    def _product(self, name: str, args: Any, shape: tuple[int, ...]) -> Estimate:
        """Bound a product for the way in which the kernel multiplies."""
        axes = _PRODUCTS[name]
        how, many = self._arithmetic, len(axes[0])
        held = how.held(args[0].dtype)
        operands = [_operand(leaf, held, "mul") for leaf in args[:2]]
        if how.operands is None or held is DType.F64:
            full = [_aligned(arg, order) for arg, order in zip(operands, axes, strict=True)]
            node = _node("sum", (("dims", (many - 1,)),), many)
            return SUMS["sum"](node, (times(full[0], full[1]),), shape, how.longest)
        if how.operands in (DType.F16, DType.BF16):
            operands = [replace(contractible(o, how.operands), dtype=DType.F32) for o in operands]
        args_of = tuple(_node("set", (), o.value.dim(), dtype=how.operands) for o in operands)
        attrs: list[tuple[str, AttrValue]] = [
            ("a_axes", axes[0]), ("b_axes", axes[1]), ("reduced", (many - 1,))
        ]  # fmt: skip
        attrs += [("accumulate", (16,))] if how.half else []
        node = replace(_node("mma", tuple(attrs), many), args=args_of)
        made = multiply_sum(node, tuple(operands), shape, how.partials, how.longest)
        return Estimate(DType.F32, made.value.to(torch.float64), made.error, made.undecided)

    def _exactly(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Evaluate on what is known: no float comes out, or one of those that went in."""

        def value(leaf: Any) -> Any:
            return leaf.estimate.value if isinstance(leaf, Bounded) else leaf

        if not all(map(_known, tree_leaves((args, kwargs)))):
            raise Unbounded(f"{func} of numbers that are rounded")
        made = func(*tree_map(value, args), **tree_map(value, kwargs))
        floats = any(
            isinstance(t, torch.Tensor) and t.is_floating_point() for t in tree_leaves(made)
        )
        if floats and name not in _PICKS:
            raise Unbounded(str(func))
        dtype = next(
            leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Bounded)
        )

        def wrapped(leaf: Any) -> Any:
            is_float = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
            return (
                Bounded(Estimate(self._arithmetic.held(dtype), leaf), dtype) if is_float else leaf
            )

        return tree_map(wrapped, made)

    def _cast(self, x: Bounded | torch.Tensor, dtype: torch.dtype) -> Estimate:
        estimate = x.estimate if isinstance(x, Bounded) else estimate_of(x, _dtype(x))
        into = DType.of(dtype)
        if into.is_f8:
            return cut_to_8_bits(estimate, into)
        if into in (DType.F16, DType.BF16):
            return replace(rounded(convert(estimate, DType.F32), into), dtype=DType.F32)
        return convert(estimate, self._arithmetic.held(dtype) if into.is_float else into)

    def _wrapped(self, made: Estimate, dtype: torch.dtype) -> Any:
        if dtype is torch.bool and not bool(made.open.any()):
            return made.value
        if not dtype.is_floating_point and dtype is not torch.bool:
            if bool(made.open.any()):
                raise Unbounded(f"{dtype} of numbers that are rounded")
            return made.value.to(dtype)
        if dtype in (torch.float16, torch.bfloat16) and made.dtype is DType.F32:
            made = replace(contractible(made, DType.of(dtype)), dtype=DType.F32)
        return Bounded(made, dtype)


def _typed(kwargs: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {"dtype": dtype} if kwargs.get("dtype") is not None else {}


def _operand(leaf: Any, held: DType, key: str) -> Estimate:
    """Return an operand as the row of an operation takes it."""
    if isinstance(leaf, Bounded):
        estimate = leaf.estimate
        return estimate if estimate.dtype is DType.BOOL else convert(estimate, held)
    if isinstance(leaf, torch.Tensor):
        estimate = estimate_of(leaf, _dtype(leaf))
        return (
            estimate if estimate.dtype is DType.BOOL and key != "mul" else convert(estimate, held)
        )
    return estimate_of(leaf, held)


def _spread(made: Estimate, shape: tuple[int, ...]) -> Estimate:
    return replace(made, value=made.value.expand(shape).contiguous())


def _aligned(arg: Estimate, order: tuple[int, ...]) -> Estimate:
    """Give an operand the axes of the full product."""

    def moved(part: torch.Tensor) -> torch.Tensor:
        part = part.expand(arg.value.shape).permute(*(axis for axis in order if axis >= 0))
        return part[tuple(slice(None) if axis >= 0 else None for axis in order)]

    return Estimate(arg.dtype, moved(arg.value), moved(arg.error), moved(arg.undecided))


def _node(
    op: str, attrs: tuple[tuple[str, AttrValue], ...], rank: int, operands: int = 0,
    dtype: DType = DType.F32,
) -> TensorView:  # fmt: skip
    """Return an operation as rows ask about it: all operands are computed."""
    axes = (IterDomain(2, IterType.ITERATION),) * rank
    args = (_node("set", (), 0),) * operands if operands else ()
    return TensorView("", 0, axes, dtype, op, args, attrs, (True,) * rank, tuple(range(rank)))
