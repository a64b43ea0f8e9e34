"""A Case: everything that a bug needs, its Python text, and its inputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import prod, sqrt
from typing import Literal

import torch

from fuser.dtype import DType
from fuser.fusion.definition import Fusion, Scalar, Symbol, TensorView, to_python
from fuser.fusion.ir import tensor_args
from fuser.pipeline import Program, Watch, build
from fuser.runtime.call import Spec, output_spec
from fuser.runtime.classify import classify
from fuser.runtime.fallback import fitted
from fuser.schedule.shape_class import Params

Kind = Literal["integers", "reals"]
"""Values of the inputs: small integers, for exact answers, or reals with a few special values."""
Value = torch.Tensor | bool | int | float

SMALL = 4
"""Largest magnitude of an input of the kind `integers`."""
SPECIALS = (0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3.0e4)
"""Reals of which each input holds a few; 1e-40 is subnormal in f32."""
POISON = {
    DType.F64: float("nan"),
    DType.F32: float("nan"),
    DType.F16: float("nan"),
    DType.BF16: float("nan"),
    DType.I32: 0x5A5A5A5A,
    DType.I64: 0x5A5A5A5A5A5A5A5A,
    DType.BOOL: True,
    DType.I8: 0x5A,
    DType.F8E4M3: float("nan"),
    DType.F8E5M2: float("nan"),
}
"""What stands in memory where no value belongs."""

_SAME = (
    "set", "cast", "neg", "abs", "broadcast", "expand", "permute", "squeeze", "maximum", "minimum"
)  # fmt: skip
"""Operations that leave magnitudes as they are, or choose among some."""
_MOVES = ("set", "cast", "broadcast", "expand", "permute", "squeeze")
"""Operations that leave values as they are."""
_SPACING = 1 << 32
"""Bytes between the made-up addresses of `specs`."""


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """A fusion, its schedule, its extents and the seed of its inputs.

    Parameters
    ----------
    fusion : Fusion
        What to compute.
    params : PointwiseParams or MatmulParams
        How; kernels of the other kind take the default heuristics.
    extents : dict
        Value of every symbol of the fusion, by name.
    kind : {"integers", "reals"}
        Which values the inputs hold; `integers` demands equality with the reference.
    seed : int
        Of the values.
    gap : int
        Elements left out before every axis that the fusion does not promise to be contiguous (and
        that is longer than 1: no stride of a single element means anything).
    offset : int
        Elements between an aligned address and the first element of every input.

    Raises
    ------
    ValueError
        If there are no params.
    """

    fusion: Fusion
    params: Params
    extents: dict[str, int]
    kind: Kind
    seed: int
    gap: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        if self.params is None:
            raise ValueError(
                "Case(params=None): a case names a schedule, or its text would not make it again; "
                "give params of the other kind, and kernels take the default heuristics"
            )

    def __str__(self) -> str:
        return to_text(self)


def to_text(case: Case) -> str:
    """Write a case as Python that makes an equal one under the name ``case``."""
    values = [
        f"extents={case.extents!r}",
        f"kind={case.kind!r}",
        f"seed={case.seed}",
        f"gap={case.gap}",
        f"offset={case.offset}",
    ]
    first, rest = to_python(case.fusion).split("\n", 1)
    lines = [
        first,
        f"from {type(case.params).__module__} import {type(case.params).__name__}",
        "from fuzz.cases.case import Case",
        rest,
        f"params = {case.params!r}",
        f"case = Case(fusion, params, {', '.join(values)})",
    ]
    return "\n".join(lines).replace("'", '"') + "\n"


def from_text(text: str) -> Case:
    """Execute the text of a case, your own or one you have read; ValueError if it makes none."""
    names: dict[str, object] = {}
    exec(compile(text, "<case>", "exec"), names)
    case = names.get("case")
    if not isinstance(case, Case):
        raise ValueError("from_text: the text makes no Case called `case`")
    return case


def case_id(text: str) -> str:
    """Return 12 hexadecimal digits that name the case of this text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def symbols(fusion: Fusion) -> list[str]:
    """Return the names of the extents known at launch, in order of appearance."""
    extents = [axis.extent for tv in fusion.tensors for axis in tv.logical]
    return list(dict.fromkeys(extent.name for extent in extents if isinstance(extent, Symbol)))


def shape_of(case: Case, tv: TensorView) -> tuple[int, ...]:
    """Return the shape of a tensor as numbers."""
    return tuple(case.extents[n.name] if isinstance(n, Symbol) else n for n in tv.shape)


def strides_of(case: Case, tv: TensorView) -> tuple[int, ...]:
    """Return the strides of an input in elements: its stride order, with the case's gaps."""
    strides = [0] * tv.rank
    span = 1
    shape = shape_of(case, tv)
    for axis in sorted(range(tv.rank), key=lambda a: tv.stride_order[a]):
        if not tv.contiguity[axis] and shape[axis] > 1:
            span += case.gap
        strides[axis] = span
        span *= max(shape[axis], 1)
    return tuple(strides)


def compiled(case: Case, watch: Watch | None = None) -> Program:
    """Return the program of a case, as a call with its extents gets it; `watch` as in `build`."""
    shapes = classify(case.fusion, case.params, specs(case))
    return build(case.fusion, case.params, shapes, watch=watch)


def by_default(case: Case) -> Program:
    """Return the program of the same call where no schedule is named."""
    lying = specs(case)
    return fitted(case.fusion, classify(case.fusion, None, lying), lying)


def specs(case: Case) -> dict[str, Spec]:
    """Return what a call of this case says about its inputs, at made-up addresses."""
    result = {}
    for position, tv in enumerate(tensors(case.fusion)):
        address = _SPACING * (position + 1) + case.offset * tv.dtype.nbytes
        result[tv.name] = Spec(shape_of(case, tv), strides_of(case, tv), address, tv.dtype)
    return result


def output_specs(case: Case) -> dict[str, Spec]:
    """Return the row-major specs of the outputs, by name."""
    values = {Symbol(name): n for name, n in case.extents.items()}
    return {tv.name: output_spec(tv, values) for tv in case.fusion.outputs}


def tensors(fusion: Fusion) -> list[TensorView]:
    """Return the input tensors, in the order of the call."""
    return [arg for arg in fusion.inputs if isinstance(arg, TensorView)]


def inputs(case: Case, *, turn: int = 0) -> list[Value]:
    """Make the inputs of a case, always the same: CPU tensors in poisoned buffers, and numbers.

    Another `turn` gives other values of the same form, for launches after the first.
    """
    random = torch.Generator().manual_seed(case.seed * 1_000_003 + turn)
    return [
        _number(case, arg, random) if isinstance(arg, Scalar) else _tensor(case, arg, random)
        for arg in case.fusion.inputs
    ]


def _tensor(case: Case, tv: TensorView, random: torch.Generator) -> torch.Tensor:
    shape, strides = shape_of(case, tv), strides_of(case, tv)
    reach = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    size = case.offset + (0 if 0 in shape else reach + 1)
    dtype = getattr(torch, tv.dtype.torch_name)
    buffer = torch.full((size,), POISON[tv.dtype], dtype=dtype)
    view = buffer.as_strided(shape, strides, case.offset)
    values = _values(
        case.kind, tv.dtype, shape, random, special=_special(case), factors=_factors(case, tv)
    )
    if places := _places(case, tv):
        inside = torch.randint(0, places, shape, generator=random)
        outside = (torch.rand(shape, generator=random) < 1 / 8) & _special(case)
        outside.view(-1)[:1] = False  # or nothing might be left to compare
        values = torch.where(outside, values, inside)
    view.copy_(values)
    return view


def _places(case: Case, given: TensorView) -> int:
    """Return how many places an input of indices names, the fewest; 0 if it has none."""
    known, found = {given}, list[int]()
    for tv in case.fusion.tensors:
        args = tensor_args(tv)
        if tv.op == "gather" and args[1] in known:
            (axis,) = map(int, dict(tv.attrs)["dim"])
            found.append(shape_of(case, args[0])[axis])
        elif tv.op in _MOVES and args[0] in known:
            known.add(tv)
    return min(found, default=0)


def _factors(case: Case, given: TensorView) -> int:
    """Return how many numbers of an input are multiplied with each other, 0 if none are."""
    known, most = {given}, 0
    for tv in case.fusion.tensors:
        operand = tv.args[0] if tv.args else None
        if not isinstance(operand, TensorView) or operand not in known:
            continue
        if tv.op in _SAME:
            known.add(tv)
        elif tv.op == "prod":
            shape = shape_of(case, operand)
            most = max(most, prod(shape[int(axis)] for axis in dict(tv.attrs)["dims"]))
    return most


def _values(
    kind: Kind,
    dtype: DType,
    shape: tuple[int, ...],
    random: torch.Generator,
    *,
    special: bool,
    factors: int = 0,
) -> torch.Tensor:
    if dtype is DType.BOOL:
        return torch.randint(0, 2, shape, generator=random).to(torch.bool)
    if kind == "integers":
        return torch.randint(-SMALL, SMALL + 1, shape, generator=random)
    if dtype is DType.I8:
        return torch.randint(-128, 128, shape, generator=random)
    if dtype.is_int:
        return torch.randint(-1000, 1001, shape, generator=random)
    values = 2 * torch.randn(shape, generator=random, dtype=torch.float64)
    if factors > 1:  # magnitudes around 1: no product of any of them leaves the range of f32
        wide = max(min(4 / sqrt(factors), 100 / factors), 2.0**-7)
        values = values.sign() * torch.exp2(values / 2 * wide)
    if not special:
        return values
    pick = torch.randint(0, len(SPECIALS), shape, generator=random)
    rare = torch.rand(shape, generator=random) < 1 / 64
    return torch.where(rare, torch.tensor(SPECIALS, dtype=torch.float64)[pick], values)


def _special(case: Case) -> bool:
    """Tell whether reals of a case have infinities, NaN and the like: every other seed.

    One of them decides what is reduced with it, and two thirds of rows of 200 have one; a number
    too many among the others would not be seen.
    """
    return case.seed % 2 == 0


def _number(case: Case, scalar: Scalar, random: torch.Generator) -> Value:
    kind: Kind = "integers" if scalar.dtype.is_int else case.kind
    value = _values(kind, scalar.dtype, (), random, special=_special(case)).item()
    if scalar.dtype is DType.BOOL:
        return bool(value)
    return int(value) if scalar.dtype.is_int else _as_f32(float(value), scalar.dtype)


def _as_f32(value: float, dtype: DType) -> float:
    return value if dtype is DType.F64 else float(torch.tensor(value, dtype=torch.float32).item())
