"""The Fusion IR's one door: define a Fusion, print it, write it as Python.

The definition reads like nvFuser's::

    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], dtype="bf16")
        fd.add_output(fd.ops.relu(fd.ops.add(x, 1.0)))
    fusion = fd.fusion()

The node types are defined in `ir`, the operations and the numeric contract in `ops`;
the names that others need are handed on here.
"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from fuser.dtype import DType
from fuser.errors import FusionError, meant
from fuser.fusion.compositions import Compositions
from fuser.fusion.ir import *
from fuser.fusion.mma_ops import MmaOps
from fuser.fusion.ops import METHODS
from fuser.fusion.ops import producer_axes as producer_axes
from fuser.fusion.recorder import Recorder, axis_of, refuse, show

SCALAR_DTYPES = (DType.F64, DType.F32, DType.I64, DType.I32, DType.BOOL)
"""Types of input scalars; a kernel parameter of 16 bits would only lose digits."""


class Ops(Compositions, MmaOps):
    """Every operation; the methods are those of `fuser.fusion.ops.METHODS`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            if name.startswith("_"):
                raise AttributeError(name)
            raise FusionError(f"ops.{name}: no such operation; {meant(name, METHODS)}")


class FusionDefinition:
    """A fusion under construction, with its operations (`ops`) as methods; a context manager."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        self.ops = self._recorder.ops = Ops(self._recorder)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            if name in METHODS:
                raise FusionError(f"fd.{name}: operations are methods of ops; use fd.ops.{name}")
            raise AttributeError(f"a FusionDefinition has no {name}; {meant(name, dir(self))}")

    def __enter__(self) -> "FusionDefinition":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def define_tensor(
        self,
        shape: Sequence[int | str | Symbol],
        dtype: str | DType,
        contiguity: Sequence[bool | None] | None = None,
        stride_order: Sequence[int] | None = None,
    ) -> TensorView:
        """Declare an input tensor.

        Parameters
        ----------
        shape : sequence of int, str or Symbol
            Per axis: -1 for an extent known at launch; a name for one that several axes share;
            1 for an axis that stretches; another number (0 to 2**31 - 1) for a pinned extent.
        dtype : str or DType
            Any of the ten.
        contiguity : sequence of bool, optional
            Per axis: the stride is the number of elements that all faster axes span; None is
            allowed where the extent is 1.  Left out, the tensor has no gaps.
        stride_order : sequence of int, optional
            Per axis: its place by stride, 0 is the fastest.  Left out, row-major.

        Raises
        ------
        FusionError
            If an entry is none of these, or the lengths differ.
        """
        words = f"shape={show(shape)}, dtype={show(dtype)}"
        if contiguity is not None:
            words += f", contiguity={show(contiguity)}"
        if stride_order is not None:
            words += f", stride_order={show(stride_order)}"
        text = f"define_tensor({words})"
        entries = self._recorder.entries(text, shape)
        rank = len(entries)
        element = self._recorder.dtype(text, dtype)
        given = None if contiguity is None else self._recorder.entries(text, contiguity)
        gapless: tuple[bool, ...] | None = None
        if given is not None:
            if len(given) != rank:
                refuse(text, f"{len(given)} contiguity flags for {rank} axes; give one per axis")
            pairs = zip(given, entries, strict=True)
            flags = [
                True if flag is None and n is not True and n == 1 else flag for flag, n in pairs
            ]
            gapless = self._recorder.flags(text, flags)
        order = row_major(rank)
        if stride_order is not None:
            order = self._recorder.axes(text, stride_order, rank)
            if len(order) != rank:
                refuse(text, f"{len(order)} entries in stride_order for {rank} axes; give all")
        extents = tuple(self._extent(text, entry) for entry in entries)
        self._recorder.check_size(text, extents)
        tv = self._recorder.record(
            "input",
            tuple(map(axis_of, extents)),
            element,
            contiguity=gapless,
            stride_order=order,
        )
        self._recorder.inputs.append(tv)
        return tv

    def define_scalar(self, dtype: str | DType) -> Scalar:
        """Declare an input number: f64, f32, i64, i32 or bool."""
        text = f"define_scalar({show(dtype)})"
        element = self._recorder.dtype(text, dtype)
        if element not in SCALAR_DTYPES:
            known = ", ".join(dtype.name for dtype in SCALAR_DTYPES)
            refuse(text, f"scalars of {element} do not exist; use one of {known}")
        return self._recorder.input_scalar(element)

    def add_output(self, tv: TensorView) -> None:
        """Make a tensor a result; it is rounded to its dtype in memory, and only there."""
        text = f"add_output({show(tv)})"
        output = self._recorder.tensor(text, tv)
        if output.op == "input":
            refuse(text, f"{tv} is an input, and an output may not alias it; use ops.set({tv})")
        if output in self._recorder.outputs:
            refuse(text, f"{tv} is an output already; use ops.set({tv}) for a second copy")
        self._recorder.outputs.append(output)

    def fusion(self) -> Fusion:
        """Return the finished Fusion; its extents carry one canonical symbol per class.

        FusionError if there is no output, an extent that no input tensor has, or a slice of an axis
        that proved to be shorter.
        """
        recorder = self._recorder
        if not recorder.outputs:
            refuse("fusion()", "nothing is computed; name a result with add_output(t)")
        find = recorder.extents.find
        roots = [find(axis.extent) for tv in recorder.tensors for axis in tv.logical]
        symbols = [root for root in dict.fromkeys(roots) if isinstance(root, Symbol)]
        known = {find(x) for tv in recorder.tensors if tv.op == "input" for x in tv.shape}
        for symbol in symbols:
            if symbol not in known:
                refuse("fusion()", f"no input tensor has the extent {symbol}; pin it to a number")
        names = recorder.extents.canonical_names(symbols)
        new: dict[TensorView | Scalar | Constant, TensorView] = {}
        for tv in recorder.tensors:
            final = [find(axis.extent) for axis in tv.logical]
            final = [names[root] if isinstance(root, Symbol) else root for root in final]
            new[tv] = TensorView(
                name=tv.name,
                number=tv.number,
                logical=tuple(map(axis_of, final)),
                dtype=tv.dtype,
                op=tv.op,
                args=tuple(new.get(arg, arg) for arg in tv.args),
                attrs=tv.attrs,
                contiguity=tv.contiguity,
                stride_order=tv.stride_order,
                meet=recorder.meets.get(tv),
            )
            if tv.op == "slice":
                _check_slice(new[tv])
        return Fusion(
            inputs=tuple(a if isinstance(a, Scalar) else new[a] for a in recorder.inputs),
            tensors=tuple(new.values()),
            outputs=tuple(new[tv] for tv in recorder.outputs),
        )

    def _extent(self, text: str, entry: object) -> Extent:
        if isinstance(entry, int) and not isinstance(entry, bool) and entry == -1:
            return self._recorder.extents.fresh()
        return self._recorder.extent(text, entry)


def _check_slice(tv: TensorView) -> None:
    """Refuse what was sliced while its extent was unknown, and is shorter than that."""
    (source,) = tensor_args(tv)
    (axis,), (start,), (step,) = (map(int, value) for _, value in tv.attrs)
    have, many = source.shape[axis], tv.shape[axis]
    assert isinstance(many, int), "checked when it was recorded"
    needed = end_of_slice(start, step, many)
    if isinstance(have, int) and have < needed:
        refuse(
            call(tv), f"axis {axis} has {have} elements, as {source} meets others; use end={have}"
        )


def to_python(fusion: Fusion) -> str:
    """Write a Fusion as Python text that makes an equal one under the name ``fusion``."""
    lines = ["from fuser.fusion.definition import FusionDefinition", "", "fd = FusionDefinition()"]
    lines += _statements(fusion)
    lines += [f"fd.add_output({tv})" for tv in fusion.outputs]
    lines.append("fusion = fd.fusion()")
    return "\n".join(lines) + "\n"


def _statements(fusion: Fusion) -> Iterator[str]:
    """Yield one line per input and operation, in an order that keeps both orders."""
    waiting = list(fusion.inputs)
    for tv in fusion.tensors:
        needed = [tv] if tv.op == "input" else [a for a in tv.args if isinstance(a, Scalar)]
        while any(arg in waiting for arg in needed):
            yield _declare(waiting.pop(0))
        if tv.op != "input":
            yield f"{tv} = fd.ops.{call(tv)}"
        yield from requested(tv)
    yield from map(_declare, waiting)


def _declare(arg: TensorView | Scalar) -> str:
    if isinstance(arg, Scalar):
        return f'{arg} = fd.define_scalar("{arg.dtype}")'
    return f"{arg} = fd.{define(arg)}"
