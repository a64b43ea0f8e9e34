"""The nodes of the Fusion IR: extents, IterDomains, TensorViews, scalars and the Fusion itself.

Data only: `fusion_ir` builds and checks them, `ops` says what each operation means.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol, TypeVar

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.operators import Operators, Recorded

T = TypeVar("T", bound=Hashable)

MAX_EXTENT = 2**31 - 1
"""Largest extent of an axis, in elements: the TMA engine takes 32-bit signed coordinates."""


@dataclass(frozen=True, slots=True, repr=False)
class Symbol:
    """An extent that is known at launch; equal names within one Fusion mean equal extents."""

    name: str

    def __repr__(self) -> str:
        return self.name


Extent = int | Symbol


def number_of(extent: Extent, values: Mapping[Symbol, int]) -> int:
    """Return the number that an extent is, where `values` has those of all symbols."""
    return values[extent] if isinstance(extent, Symbol) else extent


class IterType(Enum):
    """What an axis does: is walked over, has extent 1 and stretches, or is summed away."""

    ITERATION = "iteration"
    BROADCAST = "broadcast"
    REDUCTION = "reduction"


@dataclass(frozen=True, eq=False, slots=True)
class IterDomain:
    """One axis: BROADCAST exactly where the extent is the number 1."""

    extent: Extent
    iter_type: IterType

    def __str__(self) -> str:
        return str(self.extent)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Scalar:
    """A number given at launch; it promotes like a Python number of its kind."""

    name: str
    dtype: DType

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, slots=True)
class Constant:
    """A Python number written in the definition: bool, i64 or f64; it promotes weakly."""

    value: bool | int | float
    dtype: DType

    def __str__(self) -> str:
        return literal(self.value)


AttrValue = tuple[bool, ...] | tuple[int, ...]

Meet = Literal["vectorized", "tma", "scatter", "cluster", "last"]
"""How CTAs that share a tile add up their sums: in turns, by loads and stores of all threads, or by
reductions of the TMA engine; or all store theirs, in memory or, as a cluster, in their shared
memory, wait for each other, and each adds up some columns of all; or the last-arriving one all."""

Parts = Literal["tiles", "rows"]
"""What a kernel leaves of a reduction that it begins: an element for each tile of a product, or for
each of the rows that its CTAs have at a time, next to those of the other results."""


class Requests(Recorded, Protocol):
    """Takes what is asked of the tensors of a definition under construction."""

    def meet(self, tv: "TensorView", method: str) -> None:
        """Note how CTAs are to put together what they have of a tensor."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TensorView(Operators):
    """One tensor of a fusion, and the operation that defines it.

    Python's operators record operations, but `==` is identity (`fuser.fusion.operators`).

    Parameters
    ----------
    name : str
        ``"T0"``, ``"T1"``, ... in order of definition.
    number : int
        Place in that order; intermediates have that of the tensor they hold.
    logical : tuple of IterDomain
        The axes, slowest first in row-major order.
    dtype : DType
        Type in memory; f16 and bf16 are kept in f32 until they get there.
    op : str
        ``"input"`` or a key of `fuser.fusion.ops.OPS`.
    args : tuple
        What it is computed from.  Of an input of a cut fusion that lies in another tensor's memory,
        there in an order of its own along one axis: the index that names the places.
    attrs : tuple of (str, value)
        Compile-time arguments: ``is_broadcast_dim`` of broadcast, ``dims`` of squeeze, permute and
        reductions; ``dim`` of a scan; ``correction`` of a mean that divides by fewer than it has;
        ``a_axes``, ``b_axes`` and ``reduced`` of mma, which `mma_axes.roles` reads: per axis
        of the full output the operand's axis or -1, and which of them are summed away;
        ``accumulate``, the bits of its sums where they are not those of the type's default; and
        ``indexed``, the axis of an input whose places an index names.
    contiguity : tuple of bool
        Per axis: its stride is the number of elements that all faster axes span together.
    stride_order : tuple of int
        Per axis: its place by stride, 0 is the fastest.  Row-major is ``(n - 1, ..., 1, 0)``.
    parts : Parts or None
        A reduction as far as one kernel gets, which another ends: the axis that is reduced comes
        last, with an element for each part, behind those of extent 1 for others that are.  In cut
        fusions only.
    count : tuple of Extent
        Of a mean of such parts: the extents that they were of.  Of an input that is indexed: how
        many places there are.
    meet : Meet or None
        How several CTAs are asked to put together what they have of a reduction or product; None
        leaves it to the schedule whether they do.
    requests : Requests or None
        Of the definition under construction; None in a Fusion.
    """

    name: str
    number: int
    logical: tuple[IterDomain, ...]
    dtype: DType
    op: str
    args: "tuple[TensorView | Scalar | Constant, ...]"
    attrs: tuple[tuple[str, AttrValue], ...]
    contiguity: tuple[bool, ...]
    stride_order: tuple[int, ...]
    parts: Parts | None = None
    count: tuple[Extent, ...] = ()
    meet: Meet | None = None
    requests: Requests | None = None

    @property
    def shape(self) -> tuple[Extent, ...]:
        """Extents of the axes."""
        return tuple(axis.extent for axis in self.logical)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.logical)

    @property
    def recorded(self) -> Recorded | None:
        """The definition under construction, for operators."""
        return self.requests

    @property
    def held(self) -> str:
        """Name of the tensor of the fusion whose elements it holds: its own but in cut fusions."""
        return f"T{self.number}"

    @property
    def is_row_major(self) -> bool:
        """Whether it lies in memory without gaps, last axis fastest."""
        return all(self.contiguity) and self.stride_order == row_major(self.rank)

    def request_serial_grid_reduction(self, method: str = "vectorized") -> None:
        """Ask that several CTAs share each tile of this result, in turns on a semaphore.

        Of a sum, mean, max, min, matmul, linear or fused_multiply_sum.  The schedule that is chosen
        where the user names none then gives each CTA a part of what is reduced, if it has two steps
        or more; without a request, only where that is faster.

        Parameters
        ----------
        method : {"vectorized", "tma"}
            All threads load, put together and store what the CTAs before have left; or the TMA
            engine adds to it: products, and sums and means in f32 and i64.  All reductions of a
            kernel are put together in one way, by TMA if all that are asked are asked so.

        Raises
        ------
        FusionError
            If nothing is reduced here, the method is unknown, or the fusion is finished.
        """
        if self.requests is None:
            raise FusionError(
                f'{self}.request_serial_grid_reduction(method="{method}"): the fusion is finished; '
                "ask before fusion()"
            )
        self.requests.meet(self, method)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, slots=True)
class Fusion:
    """What to compute: a straight-line list of TensorViews.

    Parameters
    ----------
    inputs : tuple of TensorView or Scalar
        In the order of the call.
    tensors : tuple of TensorView
        All of them, inputs included, in order of definition.
    outputs : tuple of TensorView
        In the order of the result; none is an input, none stands twice.
    """

    inputs: tuple[TensorView | Scalar, ...]
    tensors: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]

    def __str__(self) -> str:
        lines = [f"inputs: {', '.join(arg.name for arg in self.inputs)}"]
        lines += [f"{arg.name}: {arg.dtype}" for arg in self.inputs if isinstance(arg, Scalar)]
        for tv in self.tensors:
            axes = ", ".join(str(axis) for axis in tv.logical)
            lines.append(f"{tv.name}: {tv.dtype}[{axes}] = {call(tv)}")
            lines += requested(tv)
        lines.append(f"outputs: {', '.join(tv.name for tv in self.outputs)}")
        return "\n".join(lines)


def row_major(rank: int) -> tuple[int, ...]:
    """Return the stride order of a row-major tensor."""
    return tuple(reversed(range(rank)))


def show_shape(logical: tuple[IterDomain, ...] | tuple[Extent, ...]) -> str:
    """Write a shape as users read it: ``(i0, 8)``, ``(4,)``."""
    return f"({', '.join(map(str, logical))}{',' if len(logical) == 1 else ''})"


def literal(value: bool | int | float) -> str:
    """Write a number so that Python reads the same number back."""
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return f'float("{value}")'
    return repr(value)


def end_of_slice(start: int, step: int, many: int) -> int:
    """Return the end of a slice of so many elements: the least extent that has them all."""
    return start + max((many - 1) * step + 1, 0)


def call(tv: TensorView) -> str:
    """Write the operation that defines `tv` as a user would: ``add(T0, T1)``."""
    name, words, attrs = tv.op, [str(arg) for arg in tv.args], tv.attrs
    match tv.op:
        case "input":
            if not tv.is_row_major:
                words.append(f"contiguity={list(tv.contiguity)}")
                words.append(f"stride_order={list(tv.stride_order)}")
        case "cast":
            words.append(f'dtype="{tv.dtype}"')
        case "sum" | "prod":
            words.append(f'dtype="{tv.dtype}"')
        case "mean":
            attrs = tv.attrs[:1]
            words += [f"{key}={int(value)}" for key, (value,) in tv.attrs[1:]]
        case "cumsum":
            words += [f"dim={int(tv.attrs[0][1][0])}", f'dtype="{tv.dtype}"']
            attrs = ()
        case "expand":
            words.append(f"shape={_entries(tv)}")
        case "full":
            words = [f"shape={_entries(tv)}", f"value={words[0]}", f'dtype="{tv.dtype}"']
        case "iota":
            extent = _entry(tv.logical[0].extent)
            words = [extent, f"start={words[0]}", f"step={words[1]}", f'dtype="{tv.dtype}"']
        case "slice":
            (axis,), (start,), (step,) = (map(int, value) for _, value in tv.attrs)
            many = tv.logical[axis].extent
            assert isinstance(many, int), "checked when it was recorded"
            end = end_of_slice(start, step, many)
            words.append(f"dim={axis}, start={start}, end={end}, step={step}")
            attrs = ()
        case "flatten" | "unflatten" | "cat" | "gather":
            words = [f"[{', '.join(words)}]"] if tv.op == "cat" else words
            words += [f"{key}={int(value[0])}" for key, value in tv.attrs if key != "sizes"]
            words = [words[0], words[2], f"index={words[1]}"] if tv.op == "gather" else words
            attrs = tuple((key, value) for key, value in tv.attrs if key == "sizes")
        case "mma":
            name, attrs = "fused_multiply_sum", ()
            a_axes, b_axes, reduced = (list(value) for _, value in tv.attrs[:3])
            words += [f"axes={reduced}", f"axis_mapping=[{a_axes}, {b_axes}]"]
            words.append(f'dtype="{tv.dtype}"')
            if tv.args[0].dtype is DType.F32:
                words.append('precision="tf32"')
            if tv.attrs[3:]:
                words.append('accumulate="f16"')
        case _:
            pass
    words += [f"{key}={list(value)}" for key, value in attrs]
    return f"{name}({', '.join(words)})"


def requested(tv: TensorView) -> list[str]:
    """Write what was asked of a tensor, as calls."""
    if tv.meet is None:
        return []
    return [f'{tv}.request_serial_grid_reduction(method="{tv.meet}")']


def define(tv: TensorView) -> str:
    """Write the `define_tensor` call of an input."""
    words = [f"shape={_entries(tv)}", f'dtype="{tv.dtype}"']
    if not tv.is_row_major:
        words.append(f"contiguity={list(tv.contiguity)}")
        words.append(f"stride_order={list(tv.stride_order)}")
    return f"define_tensor({', '.join(words)})"


def _entry(extent: Extent) -> str:
    return f'"{extent.name}"' if isinstance(extent, Symbol) else str(extent)


def _entries(tv: TensorView) -> str:
    return f"[{', '.join(_entry(axis.extent) for axis in tv.logical)}]"


def reached(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> list[T]:
    """Return all that is reached from some nodes, themselves included, each once."""
    found: dict[T, None] = {}
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = None
            stack.extend(following(node))
    return list(found)


def tensor_args(tv: TensorView) -> list[TensorView]:
    """Return the tensors that a tensor is computed from directly."""
    return [arg for arg in tv.args if isinstance(arg, TensorView)]


def indexed_axis(tv: TensorView) -> int | None:
    """Return the axis of an input whose places its argument names, an index; None without one."""
    return int(dict(tv.attrs)["indexed"][0]) if tv.op == "input" and tv.attrs else None


def ancestry(tv: TensorView) -> list[TensorView]:
    """Return a tensor and all that it is computed from, each once, arguments before users."""
    # An intermediate has the number of what it holds, and a name that is longer.
    return sorted(reached([tv], tensor_args), key=lambda one: (one.number, one.name))
