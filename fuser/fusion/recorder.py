"""The memory of a definition under construction: checks every call, then records a TensorView.

It knows shapes, types and ownership; what the operations are called is in `pointwise_ops` and
`shape_ops`.
"""

from typing import NoReturn

from fuser.dtype import DType
from fuser.errors import FusionError
from fuser.fusion.ir import (
    MAX_EXTENT,
    AttrValue,
    Constant,
    Extent,
    IterDomain,
    IterType,
    Meet,
    Scalar,
    Symbol,
    TensorView,
    literal,
    row_major,
    show_shape,
)
from fuser.fusion.ops import OPS, Form, Rule, accumulator, added_by_tma, result_dtype
from fuser.fusion.promotion import arithmetic, kind, promote

Operand = TensorView | Scalar | Constant | bool | int | float
"""What an operation takes: a tensor, a scalar input, or a Python number."""

IN_TURNS: tuple[Meet, ...] = ("vectorized", "tma")
"""Ways in which CTAs put together what they have of a tile in turns; what is not added up by TMA,
in the first only."""
_INT_BITS = {DType.I32: 31, DType.I64: 63}


def show(value: object) -> str:
    """Write an argument as the user wrote it, or at least its type."""
    if isinstance(value, TensorView | Scalar | Constant):
        return str(value)
    if isinstance(value, bool | int | float):
        return literal(value)
    if isinstance(value, list):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, str | Symbol | DType | None):
        return repr(value)
    return f"<{type(value).__name__}>"


def axis_of(extent: Extent) -> IterDomain:
    """Return an axis of that extent: BROADCAST exactly where it is the number 1."""
    return IterDomain(extent, IterType.BROADCAST if extent == 1 else IterType.ITERATION)


class Extents:
    """The symbols of one definition and what they are known to equal: union-find.

    A class of equal symbols is represented by its number if one is known, else by its earliest
    symbol that the user named, else by its earliest symbol.
    """

    def __init__(self) -> None:
        self._parent: dict[Symbol, Extent] = {}
        self._named: set[Symbol] = set()
        self._born: dict[Symbol, int] = {}

    def fresh(self) -> Symbol:
        """Make a symbol that equals nothing yet, called i0, i1, ... where free."""
        number = len(self._born) - len(self._named)
        taken = {symbol.name for symbol in self._born}
        while f"i{number}" in taken:
            number += 1
        return self._add(Symbol(f"i{number}"))

    def named(self, name: str) -> Symbol:
        """Return the symbol of that name, made on first use."""
        symbol = self._add(Symbol(name))
        self._named.add(symbol)
        return symbol

    def knows(self, symbol: Symbol) -> bool:
        """Tell whether the symbol was made here."""
        return symbol in self._born

    def find(self, extent: Extent) -> Extent:
        """Return the representative of an extent."""
        while isinstance(extent, Symbol) and self._parent[extent] != extent:
            extent = self._parent[extent]
        return extent

    def unify(self, pairs: list[tuple[Extent, Extent]]) -> bool:
        """Record that the two extents of every pair are equal; all of them or, if False, none."""
        before = dict(self._parent)
        for a, b in pairs:
            if not self._unify(self.find(a), self.find(b)):
                self._parent = before
                return False
        return True

    def canonical_names(self, roots: list[Symbol]) -> dict[Symbol, Symbol]:
        """Name the roots, given in order of appearance: fresh ones i0, i1, ..., others as named."""
        taken = {root.name for root in roots if root in self._named}
        names: dict[Symbol, Symbol] = {}
        number = 0
        for root in roots:
            if root in self._named:
                names[root] = root
                continue
            while f"i{number}" in taken:
                number += 1
            names[root] = Symbol(f"i{number}")
            number += 1
        return names

    def _add(self, symbol: Symbol) -> Symbol:
        if symbol not in self._born:
            self._born[symbol] = len(self._born)
            self._parent[symbol] = symbol
        return symbol

    def _unify(self, a: Extent, b: Extent) -> bool:
        if a == b:
            return True
        if isinstance(a, Symbol) and isinstance(b, Symbol):
            keep, drop = sorted((a, b), key=lambda s: (s not in self._named, self._born[s]))
            self._parent[drop] = keep
        elif isinstance(a, Symbol):
            self._parent[a] = b
        elif isinstance(b, Symbol):
            self._parent[b] = a
        else:
            return False
        return True


class Recorder:
    """Tensors, scalars and extents recorded so far; `call` is the user's call, for errors."""

    def __init__(self) -> None:
        self.tensors: list[TensorView] = []
        self.inputs: list[TensorView | Scalar] = []
        self.outputs: list[TensorView] = []
        self.extents = Extents()
        self.meets: dict[TensorView, Meet] = {}
        self.ops: object = None
        self._own: set[int] = set()
        self._reduced: dict[TensorView, TensorView] = {}

    # --- what the user gave ---------------------------------------------------------------

    def tensor(self, call: str, value: object) -> TensorView:
        """Return `value` if it is a tensor of this definition."""
        if not isinstance(value, TensorView):
            refuse(call, f"{show(value)} is not a tensor; pass one of this definition")
        self._check_owner(call, value)
        return value

    def number(self, call: str, value: object) -> Scalar | Constant:
        """Return `value` as a scalar input or as a constant."""
        if isinstance(value, Scalar):
            self._check_owner(call, value)
            return value
        if isinstance(value, Constant):
            value = value.value
        if isinstance(value, bool):
            return Constant(value, DType.BOOL)
        if isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                refuse(call, f"{value} does not fit in 64 bits; write it as a float")
            return Constant(value, DType.I64)
        if isinstance(value, float):
            return Constant(float(value), DType.F64)
        return refuse(call, f"{show(value)} is neither a tensor nor a number; pass one of those")

    def dtype(self, call: str, dtype: str | DType) -> DType:
        """Return the type of a name."""
        try:
            return DType.of(dtype)
        except FusionError as error:
            raise FusionError(f"{call}: {error}") from None

    def operand(self, call: str, value: object) -> TensorView | Scalar | Constant:
        """Return `value` as an argument of a pointwise operation."""
        if isinstance(value, TensorView):
            return self.tensor(call, value)
        return self.number(call, value)

    def extent(self, call: str, value: object) -> Extent:
        """Return one entry of a shape: a number >= 0, a name, or a Symbol of this definition."""
        if isinstance(value, Symbol):
            if not self.extents.knows(value):
                refuse(call, f"extent {value} is of another definition; use one of this one")
            return self.extents.find(value)
        if isinstance(value, str):
            if not value.isidentifier():
                refuse(call, f"{value!r} is not a name; use letters, digits and _")
            return self.extents.find(self.extents.named(value))
        if not isinstance(value, int) or isinstance(value, bool):
            refuse(call, f"extent {show(value)} is not an integer, a name or a symbol; use one")
        if value < 0:
            refuse(call, f"extent {value} is negative; use 0 or more")
        if value > MAX_EXTENT:
            refuse(call, f"extent {value} is above 2**31 - 1 = {MAX_EXTENT}; split the axis")
        return value

    def entries(self, call: str, shape: object) -> list[object]:
        """Return the entries of a list that the user gave."""
        if not isinstance(shape, list | tuple):
            refuse(call, f"{show(shape)} is not a list; write it as [...]")
        return list(shape)

    def axes(self, call: str, dims: object, rank: int) -> tuple[int, ...]:
        """Return distinct axis numbers in 0..rank-1; negative ones count from the end."""
        result: list[int] = []
        for dim in self.entries(call, dims):
            if not isinstance(dim, int) or isinstance(dim, bool):
                refuse(call, f"axis {show(dim)} is not an integer; use 0..{rank - 1}")
            if not -rank <= dim < rank:
                ways = f"pick one in 0..{rank - 1}" if rank else "there is none to name"
                refuse(call, f"the tensor has {rank} axes and none is axis {dim}; {ways}")
            result.append(dim % rank)
        if len(set(result)) != len(result):
            refuse(call, f"axes {result} name one axis twice; name each once")
        return tuple(result)

    def flags(self, call: str, flags: object) -> tuple[bool, ...]:
        """Return a list of booleans."""
        for flag in (entries := self.entries(call, flags)):
            if not isinstance(flag, bool):
                refuse(call, f"{show(flag)} is not a bool; use True or False")
        return tuple(bool(flag) for flag in entries)

    def check_size(self, call: str, shape: tuple[Extent, ...]) -> None:
        """Refuse a tensor whose known extents alone make more than 2**62 elements."""
        numel = 1
        for extent in map(self.extents.find, shape):
            numel *= extent if isinstance(extent, int) else 1
        if numel > 2**62:
            refuse(call, f"shape {show_shape(shape)} has {numel} elements; use at most 2**62")

    # --- recording ------------------------------------------------------------------------

    def input_scalar(self, dtype: DType) -> Scalar:
        """Record a scalar input."""
        number = sum(isinstance(arg, Scalar) for arg in self.inputs)
        scalar = Scalar(f"S{number}", dtype)
        self._own.add(id(scalar))
        self.inputs.append(scalar)
        return scalar

    def record(
        self,
        op: str,
        logical: tuple[IterDomain, ...],
        dtype: DType,
        *,
        args: tuple[TensorView | Scalar | Constant, ...] = (),
        attrs: tuple[tuple[str, AttrValue], ...] = (),
        contiguity: tuple[bool, ...] | None = None,
        stride_order: tuple[int, ...] | None = None,
    ) -> TensorView:
        """Record one TensorView; everything was checked before."""
        tv = TensorView(
            name=f"T{len(self.tensors)}",
            number=len(self.tensors),
            logical=logical,
            dtype=dtype,
            op=op,
            args=args,
            attrs=attrs,
            contiguity=(True,) * len(logical) if contiguity is None else contiguity,
            stride_order=row_major(len(logical)) if stride_order is None else stride_order,
            requests=self,
        )
        self._own.add(id(tv))
        self.tensors.append(tv)
        return tv

    def stands_for(self, tv: TensorView, reduced: TensorView) -> TensorView:
        """Note that one call gave a tensor for what it reduced; return the tensor."""
        self._reduced[tv] = reduced
        return tv

    def meet(self, tv: TensorView, method: str) -> None:
        """Note how CTAs are to put together what they have of a reduction or product."""
        call = f"{tv}.request_serial_grid_reduction(method={show(method)})"
        reduced = self._reduced.get(tv, tv)
        if reduced.op != "mma" and not _is_reduction(reduced):
            what = "an input" if tv.op == "input" else f"the result of {tv.op}"
            why = f"{tv} is {what}, of which no CTA has a part"
            refuse(call, f"{why}; ask it of a sum, mean, max, min, matmul or linear")
        by_tma = reduced.op == "mma" or added_by_tma(reduced)
        ways = IN_TURNS if by_tma else IN_TURNS[:1]
        known = [way for way in ways if way == method]
        if not known:
            words = " or ".join(f'"{way}"' for way in ways)
            if method in IN_TURNS:
                why = f"TMA adds only, in f32 and i64: no {reduced.op} of {reduced.dtype}"
                refuse(call, f"{why}; use method={words}")
            refuse(call, f"there is no such method for {reduced.op}; use method={words}")
        if reduced.op == "mma" and accumulator(reduced) is DType.F16:
            refuse(call, "sums of f16 would be rounded in every turn; leave accumulate out")
        self.meets[reduced] = known[0]

    def operate(self, op: str, *args: object, **options: object) -> TensorView:
        """Record what an operator of a tensor stands for: the method of `ops` of that name."""
        made = getattr(self.ops, op)(*args, **options)
        assert isinstance(made, TensorView), f"{op} gives one tensor"
        return made

    def pointwise(self, op: str, *operands: object) -> TensorView:
        """Check and record a pointwise operation of the table, other than `cast`."""
        spec = OPS[op]
        call = f"{op}({', '.join(map(show, operands))})"
        args = tuple(self.operand(call, value) for value in operands)
        tensors = [arg for arg in args if isinstance(arg, TensorView)]
        if not tensors:
            refuse(call, "no argument is a tensor; make one with full(shape, value, dtype)")
        for tv in tensors:
            if tv.dtype.is_f8 and op != "set":
                why = f"{tv} is {tv.dtype}, which is multiplied by matmul and copied by set only"
                refuse(call, f"{why}; cast it to f16 or bf16")
        valued = args
        if spec.rule is Rule.SELECT:
            valued = args[1:]
            if args[0].dtype is not DType.BOOL:
                refuse(call, f"the condition {args[0]} is {args[0].dtype}; use ne({args[0]}, 0)")
        common = promote(
            [arg.dtype for arg in valued if isinstance(arg, TensorView)],
            [arg.dtype for arg in valued if not isinstance(arg, TensorView)],
        )
        if common not in spec.allowed:
            known = ", ".join(dtype.name for dtype in DType if dtype in spec.allowed)
            refuse(call, f"operands are {common}; cast to one of {known} first")
        dtype = result_dtype(spec, common)
        if spec.rule is not Rule.TEST:
            for arg in valued:
                computed = dtype if spec.rule is Rule.FLOAT else common
                if isinstance(arg, Constant):
                    self.check_fits(call, arg, computed)
        self._check_pow(call, op, args, common)
        return self.record(op, self._broadcast(call, tensors), dtype, args=args)

    def check_fits(self, call: str, number: Constant, dtype: DType) -> None:
        """Refuse an integer constant that the type it is converted to cannot hold."""
        bits = _INT_BITS.get(arithmetic(dtype))
        if bits is None or kind(number.dtype) != kind(dtype):
            return
        if not -(2**bits) <= number.value < 2**bits:
            refuse(call, f"{number} does not fit in {dtype}; cast the tensor to i64 first")

    def _broadcast(self, call: str, tensors: list[TensorView]) -> tuple[IterDomain, ...]:
        """Return the common axes of tensors of equal rank; unify the extents that meet."""
        shapes = [tuple(map(self.extents.find, tv.shape)) for tv in tensors]
        shown = " and ".join(map(show_shape, shapes))
        if len({len(shape) for shape in shapes}) > 1:
            least = min(tensors, key=lambda tv: tv.rank)
            new = [True] * (max(map(len, shapes)) - least.rank) + [False] * least.rank
            how = f"broadcast({least}, is_broadcast_dim={new})"
            refuse(call, f"shapes {shown} differ in rank; broadcast the smaller one first: {how}")
        pairs: list[tuple[Extent, Extent]] = []
        logical: list[IterDomain] = []
        for extents in zip(*shapes, strict=True):
            real = [extent for extent in extents if extent != 1]
            pairs += [(real[0], extent) for extent in real[1:]]
            logical.append(axis_of(real[0] if real else 1))
        if not self.extents.unify(pairs):
            refuse(call, f"shapes {shown} differ; make each pair of extents equal or 1")
        return tuple(logical)

    def _check_pow(
        self, call: str, op: str, args: tuple[TensorView | Scalar | Constant, ...], common: DType
    ) -> None:
        exponent = args[-1]
        if op == "pow" and common.is_int and isinstance(exponent, Constant) and exponent.value < 0:
            refuse(call, f"{common} to the negative power {exponent}; cast the base to f32 first")

    def _check_owner(self, call: str, value: TensorView | Scalar) -> None:
        if id(value) not in self._own:
            refuse(call, f"{value} is of another definition; use the tensors of this one")


def _is_reduction(tv: TensorView) -> bool:
    return tv.op in OPS and OPS[tv.op].form is Form.REDUCTION


def refuse(call: str, why: str) -> NoReturn:
    """Raise a FusionError in the documented form."""
    raise FusionError(f"{call}: {why}")


class Recording:
    """Operations that record what they make."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
