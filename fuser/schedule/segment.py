"""From a fusion to segments: each is a fusion of its own that one kernel computes.

Outputs with the same axes share a kernel.  Operands of products must lie in memory, as the copy
engine reads them; what does not, is computed into an intermediate by a segment before, or (one of a
product, where that is asked for) in registers.  Either rounds it to the operand's type, as the
numeric contract says of operands.  Reductions that a kernel would have to repeat for its tiles are
computed into an intermediate too, unrounded.  One of a product is begun where the product is: every
tile leaves what it has of each row, and a kernel behind puts these parts together; so are those of
all rows of a kernel that has whole ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from fuser.dtype import DType
from fuser.fusion.ir import (
    Extent,
    Fusion,
    IterType,
    Scalar,
    TensorView,
    ancestry,
    reached,
    row_major,
    tensor_args,
)
from fuser.fusion.mma_axes import AxisRole, roles
from fuser.fusion.ops import OPS, Form, accumulator, of_nothing, reduced_axes, scanned_axis, unmoved
from fuser.fusion.promotion import arithmetic
from fuser.schedule.cut.begun import begins, frame, parts_of, reduction_of, under
from fuser.schedule.domain import (
    Domain,
    domains,
    groups,
    scans,
    sources,
    unit_stride,
    whole_rows,
)
from fuser.schedule.matmul import PACKED
from fuser.schedule.products.nibbles import uses_places
from fuser.schedule.shape_class import Choices, Registers
from fuser.schedule.views import Viewed, viewed


@dataclass(frozen=True, slots=True)
class Segment:
    """A fusion that one kernel computes, and the loop axes of that kernel.

    `why` says of each intermediate that it stores why no later kernel computes it itself.
    """

    fusion: Fusion
    domain: Domain
    why: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[TensorView, ...]:
        """Return what it reads and writes in memory, each once."""
        return tuple(dict.fromkeys(access.tv for access in self.domain.accesses))


def intermediates(
    fusion: Fusion, cut: tuple[Segment, ...], choices: Choices
) -> tuple[TensorView, ...]:
    """Return the tensors that a segment stores for later ones, in order."""
    made = (tv for segment in cut for tv in segment.fusion.outputs)
    known = viewed(fusion, choices)
    names = {*known.views, *(tv.name for tv in fusion.outputs)}
    return (*(tv for tv in made if tv.name not in names), *known.rooms)


@lru_cache(maxsize=64)  # a call is classified, then compiled
def segments(fusion: Fusion, choices: Choices | None = None) -> tuple[Segment, ...]:
    """Cut a fusion into segments, in an order in which they can be computed.

    Their tensors have the names that they have in the fusion; an output that is none of the
    fusion's is an intermediate, named as the tensor or, where it is not what the fusion would
    store, with a suffix.

    What some segment needs from memory is found by cutting; once it is known, it is a result like
    others, and those with the same axes share a kernel.
    """
    choices = choices or Choices()
    try:
        return _segments(fusion, choices)
    except _NotBegun as found:
        return segments(fusion, replace(choices, parts=choices.parts - {found.name}))


class _NotBegun(Exception):
    """A reduction of this name is begun by no kernel: what has its rows is cut otherwise."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _segments(fusion: Fusion, choices: Choices) -> tuple[Segment, ...]:
    known = viewed(fusion, choices)
    wanted: dict[str, Wanted] = {}
    while True:
        cutting = _Cutting(known, choices, wanted)
        cut = tuple(cutting.run())
        if cutting.asked.keys() <= wanted.keys():
            break
        wanted |= cutting.asked
    read = {tv.name for segment in cut for tv in segment.fusion.inputs}
    if wanted.keys() <= read:
        return cut
    return tuple(_Cutting(known, choices, {n: t for n, t in wanted.items() if n in read}).run())


Wanted = tuple[TensorView, str]
"""What a kernel reads that another has to store, and why it does not compute it itself."""


SIDES: dict[Registers, tuple[int, ...]] = {"": (), "first": (0,), "either": (0, 1)}
"""Operands that may be computed in registers."""
OPERAND = "_operand"
"""Ends the name of what is stored for a product that multiplies it."""


class _Cutting:
    """One way through a fusion; `asked` is what it stores for kernels, by name."""

    def __init__(self, known: Viewed, choices: Choices, wanted: dict[str, Wanted]) -> None:
        self.fusion, self.choices, self.wanted = known.fusion, choices, wanted
        self.views, self.rooms = known.views, dict(known.parts)
        self.asked: dict[str, Wanted] = {}
        self.made: set[str] = set()
        self.done: list[Segment] = []
        self.why = {**known.why, **{name: why for name, (_, why) in wanted.items()}}
        self.open: list[list[TensorView]] = []

    def run(self) -> Iterator[Segment]:
        inside = self._inside()
        ends = (*self.fusion.outputs, *inside)
        live = {tv for out in ends for tv in ancestry(out)}
        whole = (*ends, *(tv for tv, _ in self.wanted.values() if tv.args[0] in live))
        self.left = _groups(replace(self.fusion, outputs=whole), self.choices)
        self.parts = [
            parts_of(tv)
            for tv in self.fusion.tensors
            if tv.name in self.choices.parts and tv in live
        ]
        for target in self.parts:
            if target.name not in self.made:
                self._begin(target)
        while self.left:
            self._compute(self.left.pop(0))
        yield from self.done

    def _inside(self) -> list[TensorView]:
        """Return what fills the memory that results are computed from."""
        found: list[TensorView] = []
        left = [*self.fusion.outputs]
        seen = set[str]()
        while left:
            for tv in ancestry(left.pop()):
                room = self.views[tv.name].whole if tv.name in self.views else ""
                if tv.op == "input" and room in self.rooms and room not in seen:
                    seen.add(room)
                    parts = [one for one in self.rooms[room] if one not in self.fusion.outputs]
                    found += parts
                    left += parts
        return found

    def _compute(self, outputs: tuple[TensorView, ...]) -> None:
        """Append the segment of some outputs, and before it those that it needs.

        If these need one of the outputs themselves, that gets a segment of its own.
        """
        mine = [*outputs]
        self.open.append(mine)
        before: tuple[TensorView, ...] = ()
        while before != tuple(mine):
            before = tuple(mine)
            outputs = tuple(self._alone(tv, before) for tv in before)
            self._fill(outputs)
            if before == tuple(mine):
                given, ended = self._given(outputs)
        self.open.pop()
        if not mine:
            return
        part = _extract(self.fusion, outputs, given, ended, self.choices.empty)
        domain, *others = domains(part, self.choices.rows, self.choices.spread)
        if others:  # what they shared is stored now
            by = {tv.name: tv for tv in before}
            split = [tuple(by[a.tv.name] for a in one.writes) for one in (domain, *others)]
            self.left = [*split, *self.left]
            for first, *_ in split:
                self._make(first)
            return
        rows = [tv for tv in outputs if tv.parts == "rows"]
        if rows and not domain.rows:
            raise _NotBegun(reduction_of(rows[0]))
        assert domain.products or rows or not any(tv.parts for tv in outputs), "tiles leave parts"
        said = tuple(
            f"{tv} is stored: {self.why[tv.name]}" for tv in outputs if tv.name in self.why
        )
        for tv in part.inputs:
            inside = self.rooms.get(self.views[tv.name].whole, ()) if tv.name in self.views else ()
            needed = {one.name for one in inside} | ({tv.name} & self.asked.keys())
            assert needed <= self.made, f"{outputs} read {tv} before it is stored"
        self.done.append(Segment(part, domain, said))
        self.made |= {tv.name for tv in outputs}

    def _given(
        self, outputs: tuple[TensorView, ...]
    ) -> tuple[dict[TensorView, TensorView], dict[TensorView, TensorView]]:
        """Compute what some outputs need; return what reads it, and reductions that it ends."""
        given: dict[TensorView, TensorView] = {}
        stored, begun = apart(self.fusion, outputs, self.choices)
        ended = {tv: self._ended(tv) for tv in begun}
        for tv in stored:
            held = accumulator(tv) if tv.op == "mma" else arithmetic(tv.dtype)
            held = DType.F32 if held is DType.F16 else held
            why = "a kernel that computes with it would compute it again for its other tiles"
            given[tv] = self._stored(tv, held, "_sum", _place(tv, 1), why)
        for product in _products(outputs, self.choices.empty, {**given, **ended}):
            if product.name in self.choices.apart:
                held = DType.I32 if accumulator(product) is DType.I32 else DType.F32
                why = "no tile suits its axes and the other products that results are computed from"
                given[product] = self._stored(product, held, "_sum", _place(product, 1), why)
        known = {**given, **ended}
        for product in _products(outputs, self.choices.empty, known):
            able = SIDES[self.choices.registers]
            for side, arg in enumerate(tensor_args(product)):
                if arg in given:
                    continue
                if side in able and self._in_registers(arg):
                    able = ()  # the other one is a tile in shared memory
                    given |= self._by_rows(product, side)
                    continue
                if not self._lies_in_memory(arg):
                    place = _place_of(product, side, summed_last=arg.held in self.choices.copied)
                    why = f"{product} multiplies it, and reads its operands from memory"
                    word = f"{OPERAND}{place.word}"
                    given[arg] = self._stored(arg, arg.dtype, word, place, why)
        return given, ended

    def _by_rows(self, product: TensorView, side: int) -> dict[TensorView, TensorView]:
        """Store what neighbours along the sums share so that its rows lie along an operand's.

        A step of the product then reads it by a copy of one row.
        """
        given = {}
        axes = [(axis.b if side else axis.a, axis.role) for axis in roles(product)]
        arg = tensor_args(product)[side]
        loops = tuple(
            next((n for n, (own, _) in enumerate(axes) if own == at), None)
            for at in range(arg.rank)
        )
        for leaf, coords in sources([(arg, loops)])[0]:
            sums = [at for at, n in enumerate(coords) if n is not None and axes[n][1] is AxisRole.K]
            rows = [at for at, n in enumerate(coords) if n is not None and at not in sums]
            shared = [
                axis.extent
                for n, axis in enumerate(roles(product))
                if axis.role is AxisRole.K and n not in coords
            ]
            if not sums or not rows or not shared or shared == [PACKED]:
                continue
            if not any(unit_stride(leaf, at) for at in rows):
                others = [at for at in range(leaf.rank) if at not in (*sums, *rows)]
                place = _place(leaf, 1, (*others, *sums, *rows))
                why = f"{product} reads a number of each row where it multiplies"
                given[leaf] = self._stored(leaf, leaf.dtype, f"{OPERAND}{place.word}", place, why)
        return given

    def _alone(self, tv: TensorView, outputs: tuple[TensorView, ...]) -> TensorView:
        """Return what is stored for others as the operation itself, where nothing else needs it."""
        wanted = tv.name in self.wanted or tv.name in self.asked
        (source,) = tensor_args(tv) if wanted else [tv]
        others = (arg for out in outputs if out is not tv for arg in ancestry(out))
        if source is tv or not _is_renamed(source, self.choices) or source in (*outputs, *others):
            return tv
        return _renamed(source, tv.name, tv.dtype, _Place(tv.contiguity, tv.stride_order))

    def _fill(self, outputs: tuple[TensorView, ...]) -> None:
        """Compute what lies in memory of which views are read."""
        for tv in dict.fromkeys(tv for out in outputs for tv in ancestry(out)):
            if tv.op == "input" and tv.name in self.views:
                for part in self.rooms.get(self.views[tv.name].whole, ()):
                    self._make(part)

    def _make(self, target: TensorView) -> None:
        """Compute a result with those of its kernel; if some wait for it, with its products'."""
        if target.name in self.made:
            return
        for group in self.left:
            if any(tv.name == target.name for tv in group):
                self.left = [other for other in self.left if other is not group]
                self._compute(group)
                self._make(target)  # what it shared may have been split
                return
        early = [target]
        for mine in self.open:
            if any(tv.name == target.name for tv in mine):
                early = self._together(target, mine)
                mine[:] = [tv for tv in mine if tv.name not in {one.name for one in early}]
        self._compute(tuple(early))

    def _together(self, target: TensorView, mine: list[TensorView]) -> list[TensorView]:
        """Return a result and those of its kernel that share products and do not wait for it."""
        found, products = [target], {*_products((target,), self.choices.empty, {})}
        left = [tv for tv in mine if tv.name != target.name and not self._waits(tv, target)]
        while True:
            made = {tv: _products((tv,), self.choices.empty, {}) for tv in left}
            more = [tv for tv, its in made.items() if not products.isdisjoint(its)]
            if not more:
                return found
            found += more
            products.update(product for tv in more for product in made[tv])
            left = [tv for tv in left if tv not in more]

    def _waits(self, tv: TensorView, target: TensorView) -> bool:
        """Tell whether one result of a kernel needs another from memory, or what it begins."""
        if target.name in self.asked:
            (source,) = tensor_args(target)
            read = (arg for one in ancestry(tv) if one.op == "mma" for arg in one.args)
            is_operand = target.name.startswith(f"{source.name}{OPERAND}")
            return tv.name != target.name and (not is_operand or source in read)

        def inside(one: TensorView) -> tuple[TensorView, ...]:
            seen = self.views.get(one.name)
            return self.rooms.get(seen.whole, ()) if seen and one.op == "input" else ()

        every = reached([tv], lambda one: [*tensor_args(one), *inside(one)])
        if target.parts:
            return tv.name != target.name and any(one.name == reduction_of(target) for one in every)
        return any(one.name == target.name for read in every for one in inside(read))

    def _ended(self, reduction: TensorView) -> TensorView:
        """Return a reduction of the parts that the kernel of its products leaves."""
        target = parts_of(reduction)
        if target.name not in self.made:
            self._begin(target)
        (source,) = tensor_args(reduction)
        extents = tuple(source.logical[axis].extent for axis in reduced_axes(reduction))
        count = extents if reduction.op == "mean" else ()
        dims = (("dims", tuple(range(reduction.rank, target.rank))), *reduction.attrs[1:])
        given = replace(target, op="input", args=(), attrs=(), parts=None)
        return replace(reduction, args=(given,), attrs=dims, count=count)

    def _begin(self, target: TensorView) -> None:
        """Compute parts of reductions, with results of the same kernel that are still to do."""
        if any(tv.name == target.name for mine in self.open for tv in mine):
            self._make(target)
            return
        if target.parts == "rows":
            self._begin_rows(target)
            return
        self.why[target.name] = "the kernel of the product leaves a part of each tile, another ends"
        axes, mine = frame(self.fusion, target), set(under(target, self.choices.empty))
        alike = {
            tv.name: tv
            for tv in self.parts
            if frame(self.fusion, tv) == axes and set(under(tv, self.choices.empty)) == mine
        }
        fits = (
            group
            for group in self.left
            if frame(self.fusion, group[0]) == axes
            and not any(
                reduced_axes(tv) or scanned_axis(tv) is not None
                for out in group
                for tv in ancestry(out)
            )
            and mine <= set(_products(group, self.choices.empty, {}))
        )
        group = next(fits, ())
        self.left = [other for other in self.left if other is not group]
        self._compute((*group, *alike.values()))

    def _begin_rows(self, target: TensorView) -> None:
        """Compute parts of reductions of all rows, with the results that are computed of these."""
        fusion, choices = self.fusion, self.choices
        group = next((some for some in self.left if begins(fusion, some, target, choices)), ())
        if not group:
            raise _NotBegun(reduction_of(target))
        alike = [
            tv
            for tv in self.parts
            if tv.parts == "rows"
            and begins(fusion, group, tv, choices)
            and tv.name not in self.made
        ]
        for tv in alike:
            self.why[tv.name] = "the CTAs that have its rows leave a part each, another kernel ends"
        self.left = [other for other in self.left if other is not group]
        self._compute((*group, *alike))

    def _lies_in_memory(self, operand: TensorView) -> bool:
        """Whether an operand is an input, seen through operations that neither move nor stretch."""
        if operand.held in self.choices.copied:
            return False
        while OPS.get(operand.op) is not None and OPS[operand.op].form is Form.SHAPE:
            if operand.op == "expand":
                return False
            (source,) = tensor_args(operand)
            operand = source
        return operand.op == "input"

    def _in_registers(self, operand: TensorView) -> bool:
        """Whether an operand is computed where it is multiplied, from what lies in memory."""
        if operand.held in self.choices.copied:
            return False
        if operand.dtype.nbytes != 2 or unmoved(operand).op == "input":  # it is read, or stored
            return False
        before = [*ancestry(operand)]
        from_memory = any(tv.op == "input" for tv in before) and not uses_places(operand)
        return from_memory and not any(
            tv.op == "mma" or reduced_axes(tv) or scanned_axis(tv) is not None for tv in before
        )

    def _stored(
        self, tv: TensorView, dtype: DType, suffix: str, place: _Place, why: str
    ) -> TensorView:
        """Compute a tensor into an intermediate, once, and return the input that reads it."""
        name = tv.name + suffix
        target = replace(
            _same(tv, name, dtype), contiguity=place.contiguity, stride_order=place.stride_order
        )
        self.asked[name] = self.wanted.get(name, (target, why))
        self.why.setdefault(name, why)
        self._make(target)
        where = place.contiguity, place.stride_order
        return TensorView(name, tv.number, tv.logical, dtype, "input", (), (), *where)


@dataclass(frozen=True, slots=True)
class _Place:
    """How an intermediate lies in memory; `word` tells several of one tensor apart."""

    contiguity: tuple[bool, ...]
    stride_order: tuple[int, ...]
    word: str = ""


def _place(tv: TensorView, whole: int, axes: tuple[int, ...] | None = None) -> _Place:
    """Lay out a tensor: its last `whole` real axes are a row, padded to chunks of 16 bytes.

    `axes` lists its axes, the slowest first; left out, in their own order.
    """
    order = tuple(range(tv.rank)) if axes is None else axes
    real = [at for at in order if tv.logical[at].iter_type is IterType.ITERATION]
    padded = real[-1 - whole] if len(real) > whole else None
    word = "" if axes is None and whole == 1 else f"_{whole}_{'_'.join(map(str, order))}"
    return _Place(
        tuple(at != padded for at in range(tv.rank)),
        tuple(tv.rank - 1 - order.index(at) for at in range(tv.rank)),
        word,
    )


def _place_of(product: TensorView, side: int, *, summed_last: bool) -> _Place:
    """Return how an operand is stored: row-major where TMA can read it so.

    Axes that are summed over lie behind each other, and the fastest axis is one that tiles have:
    one of those, or the only other one that the second operand lacks.  With `summed_last` it is one
    of those: what the schedule cannot read otherwise is copied so.
    """
    arg = tensor_args(product)[side]
    sides = [(axis.b if side else axis.a, axis.role) for axis in roles(product)]
    sums = [at for at, role in sides if at is not None and role is AxisRole.K]
    own = [at for at, role in sides if at is not None and role in (AxisRole.M, AxisRole.N)]
    rest = [at for at in range(arg.rank) if at not in (*sums, *own)]
    real = [at for at in range(arg.rank) if arg.logical[at].iter_type is IterType.ITERATION]
    alone = [at for at in own if at in real] == real[-1:]
    together = sums == list(range(sums[0], sums[0] + len(sums)))
    if summed_last or not together or (real and real[-1] not in sums and not alone):
        return _place(arg, len(sums), (*rest, *own, *sums))
    return _place(arg, len(sums) if real[-1:] == sums[-1:] else 1)


def _groups(fusion: Fusion, choices: Choices) -> list[tuple[TensorView, ...]]:
    """Return the outputs of each kernel; those with products take nothing by index."""
    found: list[tuple[TensorView, ...]] = []
    for _, writes in groups(fusion, choices.rows, choices.spread):
        mine = tuple(access.tv for access in writes)
        taken = tuple(tv for tv in mine if any(one.op == "gather" for one in ancestry(tv)))
        if taken and _products(mine, choices.empty, {}):
            rest = tuple(tv for tv in mine if tv not in taken)
            found += [part for part in (rest, taken) if part]
        else:
            found.append(mine)
    return found


def _products(
    outputs: tuple[TensorView, ...],
    empty: frozenset[str],
    given: dict[TensorView, TensorView],
) -> list[TensorView]:
    """Products that outputs are computed from element by element, in order of definition."""

    def following(tv: TensorView) -> list[TensorView]:
        whole = tv.op == "mma" or tv.name in empty
        return [] if whole else [arg for arg in tensor_args(tv) if arg not in given]

    every = reached((tv for tv in outputs if tv not in given), following)
    found = [tv for tv in every if tv.op == "mma" and tv.name not in empty]
    return sorted(found, key=lambda tv: tv.number)


def _renamed(tv: TensorView, name: str, dtype: DType, place: _Place) -> TensorView:
    """Return a tensor under another name and type, to be stored as an intermediate."""
    return replace(
        tv,
        name=name,
        dtype=dtype,
        contiguity=place.contiguity,
        stride_order=place.stride_order,
    )


def _is_renamed(tv: TensorView, choices: Choices) -> bool:
    """Tell whether a kernel may compute a tensor under another name."""
    return tv.op != "input" and OPS[tv.op].form is not Form.SHAPE and tv.name not in choices.empty


def _same(tv: TensorView, name: str, dtype: DType) -> TensorView:
    where = (True,) * tv.rank, row_major(tv.rank)
    return TensorView(name, tv.number, tv.logical, dtype, "set", (tv,), (), *where)


def _extract(
    fusion: Fusion,
    outputs: tuple[TensorView, ...],
    given: dict[TensorView, TensorView],
    ended: dict[TensorView, TensorView],
    empty: frozenset[str],
) -> Fusion:
    """Return the part of a fusion that computes some tensors from inputs and given ones."""
    own = {tv: _same(new, tv.name, tv.dtype) for tv, new in given.items() if tv in outputs}
    known: dict[TensorView, TensorView] = dict(given)
    ends = {*given, *ended}
    needed = reached(outputs, lambda tv: [] if tv in ends or tv.name in empty else tensor_args(tv))
    order = [tv for tv in fusion.tensors if tv in needed]
    order += [tv for tv in outputs if tv not in fusion.tensors]
    for tv in order:
        if tv in given:
            continue
        if tv in ended:
            known[tv] = ended[tv]
            continue
        if tv.name in empty:
            known[tv] = replace(tv, op="full", args=(of_nothing(tv),), attrs=(), meet=None)
            continue
        args = tuple(known[arg] if isinstance(arg, TensorView) else arg for arg in tv.args)
        same = all(a is b for a, b in zip(args, tv.args, strict=True))
        known[tv] = tv if same else replace(tv, args=args)
    sources = (arg for tv in ended.values() for arg in tensor_args(tv))
    tensors = [*sources, *dict.fromkeys(known[tv] for tv in order), *own.values()]
    used = {arg for tv in tensors for arg in tv.args if isinstance(arg, Scalar)}
    inputs = [arg for arg in fusion.inputs if arg in used or arg in tensors]
    inputs += [tv for tv in tensors if tv.op == "input" and tv not in inputs]
    return Fusion(tuple(inputs), tuple(tensors), tuple(own.get(tv, known[tv]) for tv in outputs))


# --- reductions: stored before a kernel, begun or ended by it ------------------------------------


def apart(
    fusion: Fusion, outputs: tuple[TensorView, ...], choices: Choices
) -> tuple[list[TensorView], list[TensorView]]:
    """Return what is stored before a kernel: reductions, and products under one; and what is begun.

    A kernel computes the reductions that its results are computed from element by element, if they
    have all its axes and none has to be broadcast, and if they reduce axes of the same extents.
    What they reduce is computed from neither products nor reductions, unless the kernel of the
    products has begun them.  A kernel that has whole rows at a time computes all reductions of
    these.  A kernel that scans computes neither products nor reductions, and scans along one axis.
    """
    empty = choices.empty
    begun: dict[TensorView, None] = {}
    part = Fusion(fusion.inputs, fusion.tensors, outputs)
    found: dict[TensorView, None] = {}
    for extents, writes in groups(part, choices.rows, choices.spread):
        held = whole_rows(extents, writes, choices.rows, choices.spread)
        if held is not None:
            found |= dict.fromkeys(tv for tv in held.apart if tv.name not in empty)
            continue
        scanned = scans(extents, writes)
        found |= dict.fromkeys(tv for tv in scanned.apart)
        results = [(access.tv, access.coords) for access in writes]
        _, products, reductions = sources(results, {*scanned.apart})
        whole = {*range(len(extents))}
        products = [key for key in products if key[0].name not in empty]
        reductions = [key for key in reductions if key[0].name not in empty]
        if scanned.axis is not None:
            found |= dict.fromkeys(tv for tv, _ in (*products, *reductions))
            continue
        own = [tv for tv, coords in reductions if {*coords} - {None} == whole and not products]
        shapes = [_reduced_extents(tv, choices) for tv in own]
        own = [tv for tv, shape in zip(own, shapes, strict=True) if shape == shapes[0]]
        found |= dict.fromkeys(tv for tv, _ in reductions if tv not in own)
        for tv in own:
            if _is_begun(tv, choices):
                begun[tv] = None
            else:
                found |= dict.fromkeys(under(tv, empty))
    return sorted(found, key=lambda tv: tv.number), list(begun)


def _is_begun(tv: TensorView, choices: Choices) -> bool:
    return tv.name in choices.parts


def _reduced_extents(tv: TensorView, choices: Choices) -> tuple[Extent, ...]:
    if _is_begun(tv, choices):
        return (parts_of(tv).logical[-1].extent,)
    (arg,) = tensor_args(tv)
    return tuple(arg.logical[axis].extent for axis in reduced_axes(tv))
