"""Which extents of a case may grow, and by how much."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import log2, prod

from fuser.arch import SM_90A
from fuser.errors import FusionError, ScheduleError
from fuser.fusion.definition import Extent, Fusion, Symbol, TensorView
from fuser.fusion.ir import MAX_EXTENT, tensor_args
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.fusion.ops import OPS, Form
from fuser.pipeline import Program
from fuser.runtime.binding import Binding, bind
from fuser.runtime.call import Spec, intermediate_spec, number, with_parts
from fuser.schedule.matmul import MatmulTiling
from fuzz.cases.case import Case, output_specs, specs, symbols

LEAST, MOST = 1 << 26, 5 << 29
"""Elements of the largest tensor: from where those of 32 bits have 2^31 bits, to a little more than
2^31 elements."""
MOST_BYTES = 10 << 30
"""Bytes of all that a call has in memory, at most: `MOST` elements of 16 bits in and out.  Thirteen
processes share 80 GB, but sizes are drawn by their logarithms, and a case has its large call for a
moment: they seldom want as much at once, and a call that finds no memory is unknown."""
MOST_EMPTY = 1 << 40
"""The largest stride, at most, of tensors without elements."""
MOST_TILES = 1 << 24
"""Tiles of a kernel, at most: CTAs of one each start in a tenth of a second."""
MOST_LOOPS = 1 << 34
"""What all tiles of a kernel without products compute, at most, in elements: some tenths of a
second where each is loaded alone."""
MOST_PRODUCTS = 1 << 46
"""Products of all tiles of a kernel, at most: 1.4e14 flops, a second of a device that is shared."""
ODD = 0.5
"""Share of the calls in which every axis that grows repeats an odd number of times: odd extents
stay odd, so that rows begin anywhere and vectors have tails."""
MARGIN = 0.25
"""By how many powers of two more than the least is drawn: repeats are whole, so it may be less."""
TRIES = 6
"""Choices of the axes that grow, at most."""
HALVINGS = 24
"""Steps in which the largest call is found."""


def parallel(fusion: Fusion) -> list[str]:
    """Return the extents all of whose axes are parallel in all operations, by name."""
    joined = {extent for tv in fusion.tensors for extent in _joined(tv)}
    return [name for name in symbols(fusion) if Symbol(name) not in joined]


def _joined(tv: TensorView) -> list[Extent]:
    """Return the extents of axes along which an operation joins positions, or tells them apart."""
    if tv.op == "input" or (tv.op in OPS and OPS[tv.op].pointwise):
        return []
    args, attrs = tensor_args(tv), dict(tv.attrs)
    match tv.op:
        case "broadcast" | "expand" | "squeeze" | "permute" | "full":
            return []
        case "mma":
            return [axis.extent for axis in roles(tv) if axis.role is AxisRole.K]
        case "cumsum" | "slice" | "unflatten" | "cat":
            (axis,) = map(int, attrs["dim"])
            return [arg.shape[axis] for arg in args]
        case "gather":  # the axis that is indexed; along that of the indices each is alone
            (axis,) = map(int, attrs["dim"])
            return [args[0].shape[axis]]
        case "flatten":
            (first,), (last,) = attrs["start_dim"], attrs["end_dim"]
            return list(args[0].shape[first : last + 1])
        case op if op in OPS and OPS[op].form is Form.REDUCTION:
            return [args[0].shape[int(axis)] for axis in attrs["dims"]]
        case _:  # iota, and whatever is new
            return [extent for one in (tv, *args) for extent in one.shape]


@dataclass(frozen=True, eq=False, slots=True)
class Enlarged:
    """A larger call, and how often each extent that has grown repeats, by name."""

    case: Case
    times: dict[str, int]

    @classmethod
    def of(cls, case: Case, times: dict[str, int]) -> Enlarged:
        """Return the call in which extents repeat so often."""
        extents = {name: n * times.get(name, 1) for name, n in case.extents.items()}
        return cls(replace(case, extents=extents), times)

    def repeats(self, tv: TensorView) -> tuple[int, ...]:
        """Return how often a tensor repeats along each of its axes."""
        return tuple(self.times.get(n.name, 1) if isinstance(n, Symbol) else 1 for n in tv.shape)

    def __str__(self) -> str:
        return ", ".join(f"{name}={n}" for name, n in self.case.extents.items())


def enlarged(case: Case, program: Program, most_bytes: int = MOST_BYTES) -> Enlarged | None:
    """Draw a larger call of a case, the same for every process; None if none is large enough.

    The size hangs on what smaller cases of a failure mostly keep, so that they are as large; not on
    the seed alone, of which one case in four has the least.

    Parameters
    ----------
    case : Case
        The small call.
    program : Program
        What it is compiled to, whose tiles say how much a larger one computes.
    most_bytes : int
        Bytes of inputs, outputs, and what kernels hand each other.
    """
    kept = case.seed, case.kind, case.params.family, case.gap, case.offset
    rng = random.Random(repr(kept))
    wanted = int(2 ** rng.uniform(log2(LEAST) + MARGIN, log2(MOST)))
    names = [name for name in parallel(case.fusion) if case.extents[name]]
    for _ in range(TRIES if names else 0):
        some = rng.sample(names, rng.randint(1, len(names)))
        weights = {name: rng.expovariate(1.0) for name in some}
        shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}
        odd = int(rng.random() < ODD)
        found = Enlarged.of(case, {})
        low, high = 0.0, 2 * log2(MOST)  # two axes need not be of one tensor
        for _ in range(HALVINGS):
            power = (low + high) / 2
            times = {name: round(2 ** (power * share)) | odd for name, share in shares.items()}
            larger = Enlarged.of(case, times)
            if _is_too_much(larger.case, program, wanted, most_bytes):
                high = power
            else:
                low, found = power, larger
        if max(prod(one.shape) for one in _tensors(found.case, program)) >= LEAST:
            return found
    return None


def _is_too_much(case: Case, program: Program, most: int, most_bytes: int) -> bool:
    """Tell whether a call has more elements or bytes, or computes more, than may be."""
    if max(case.extents.values()) > MAX_EXTENT:
        return True
    every = _tensors(case, program)
    # Strides of a tensor without elements are those of one whose axes of 0 have 1.
    if max(prod(max(n, 1) for n in one.shape) for one in every) > MOST_EMPTY:
        return True
    nbytes = sum(one.nbytes for one in every)
    if max(prod(one.shape) for one in every) > most or nbytes > most_bytes:
        return True
    try:
        bindings = bind(program, specs(case), sms=SM_90A.sms)
    except (FusionError, ScheduleError):
        return True
    nbytes += sum(map(_workspaces, bindings))
    return nbytes > most_bytes or any(map(_takes_long, bindings))


def _tensors(case: Case, program: Program) -> list[Spec]:
    """Return the form of all tensors in memory: inputs, outputs, and what is in between."""
    values = {Symbol(name): n for name, n in case.extents.items()}
    values = with_parts(((one.tiling.domain, one.params) for one in program.launches), values)
    between = (intermediate_spec(tv, values) for tv in program.intermediates)
    return [*specs(case).values(), *output_specs(case).values(), *between]


def _workspaces(binding: Binding) -> int:
    """Return the bytes that the CTAs of a kernel hand each other."""
    kernel = binding.launch.kernel
    names = {tensor.name: tensor.dtype.nbytes for tensor in kernel.tensors}
    return sum(prod(binding.view(name)[0]) * names[name] for name in kernel.workspaces)


def _takes_long(binding: Binding) -> bool:
    """Tell whether a kernel has too many tiles, or computes too much, what is padded included."""
    tiling, numbers = binding.launch.tiling, binding.launch.numbers
    extents = [binding.values[var] for var in numbers.extents]
    loops = prod(-(-n // tile) * tile for n, tile in zip(extents, tiling.tile, strict=True))
    most = MOST_PRODUCTS if isinstance(tiling, MatmulTiling) else MOST_LOOPS
    return number(numbers.tiles, binding.values) > MOST_TILES or loops > most
