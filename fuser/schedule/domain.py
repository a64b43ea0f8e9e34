"""The loop domain of a kernel: its axes, and how every tensor walks along them.

Outputs whose axes match are computed by one kernel.  Its axes are those of the first of them; a
tensor is reached by walking the definitions backwards, so that one input may be read in several
ways (`x[:, None] + x[None, :]` reads x twice).  Matrix products and reductions end the walk; the
axes that they sum over are loop axes of their own.  But a reduction whose result is broadcast back
along the axes that it reduces walks them as its users do, where that is asked for: what it reduces
is then read once, for both (a softmax, a layer norm).  Neighbouring axes are then merged wherever
every tensor allows it, by what the definition promises about strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from fuser.fusion.ir import (
    Extent,
    Fusion,
    IterDomain,
    IterType,
    Symbol,
    TensorView,
    indexed_axis,
    number_of,
    reached,
    tensor_args,
)
from fuser.fusion.mma_axes import roles
from fuser.fusion.ops import OPS, Form, producer_axes, reduced_axes, scanned_axis

Coords = tuple[int | None, ...]
"""Per axis of a tensor, the loop axis that walks it; None where it stays at 0."""
Key = tuple[TensorView, Coords]
"""A tensor, walked in one way."""
INDEXED = -1
"""Stands for the loop axis of an axis whose elements an index names."""


@dataclass(frozen=True, slots=True)
class Access:
    """A tensor in global memory, and the loop axis of each of its axes."""

    tv: TensorView
    coords: Coords
    name: str

    def axis_of(self, loop_axis: int) -> int | None:
        """Return the tensor's axis that `loop_axis` walks, if any."""
        return self.coords.index(loop_axis) if loop_axis in self.coords else None


@dataclass(frozen=True, slots=True)
class Product:
    """An `mma` of a kernel: where its result and its operands lie among the loop axes.

    An operand that lies in no memory is computed from `leaves`, inputs as read.  It is `a`: the two
    are `exchanged` where it is the second one.
    """

    tv: TensorView
    coords: Coords
    a: Access
    b: Access
    leaves: tuple[Access, ...] = ()
    exchanged: bool = False

    @property
    def arguments(self) -> tuple[Access, Access]:
        """Operands in the order of the operation's arguments."""
        return (self.b, self.a) if self.exchanged else (self.a, self.b)

    @property
    def computed(self) -> TensorView | None:
        """The argument that is computed from leaves, where one is."""
        return tensor_args(self.tv)[self.exchanged] if self.leaves else None


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of a kernel: what it gives, and what it reduces, as walked by the loop axes."""

    tv: TensorView
    coords: Coords
    source: TensorView
    walked: Coords
    leaves: tuple[Access, ...] = ()


@dataclass(frozen=True, slots=True)
class Domain:
    """The loop axes of one kernel.

    `extents` are those before merging, slowest first, those that are summed over last; never empty
    (a scalar has one axis of extent 1).  `merged` are groups of neighbouring ones; each is one axis
    of the kernel.  `reads` are inputs as read, operands of products among them, and `inputs` those
    of them that outputs are computed from element by element.  `rows` are the axes that all its
    reductions reduce and their users walk: the kernel has whole rows at a time.
    `gathers` has, for each `gather` as walked, the tensor that it takes elements of.  All scans run
    along the axis `scanned`.  `indices` has, for each of `reads` of whose axes an index names the
    places, that index.
    """

    extents: tuple[Extent, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    merged: tuple[tuple[int, ...], ...]
    products: tuple[Product, ...] = ()
    inputs: tuple[Access, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    rows: tuple[int, ...] = ()
    gathers: tuple[tuple[Key, Access], ...] = ()
    scanned: int | None = None
    indices: tuple[tuple[Access, Access], ...] = ()

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All tensors in memory."""
        others = dict.fromkeys(access for _, access in (*self.gathers, *self.indices))
        return (*self.reads, *self.writes, *others)

    def index_of(self, access: Access) -> Access | None:
        """Return the index that names the places of a tensor along an axis, if one does."""
        return dict(self.indices).get(access)

    @property
    def begun(self) -> tuple[Access, ...]:
        """Parts of reductions that another kernel ends."""
        return tuple(access for access in self.writes if access.tv.parts)

    def name(self, reduction: Reduction) -> str:
        """Name a reduction: one tensor may be walked in several ways, each a sum of its own."""
        alike = [one for one in self.reductions if one.tv is reduction.tv]
        number = alike.index(reduction)
        return f"{reduction.tv.name}_{number}" if number else reduction.tv.name

    def under(self, reduction: Reduction) -> list[Key]:
        """Return the reductions that one reduces, element by element."""
        _, _, below = sources([(reduction.source, reduction.walked)])
        return below

    def needs(self, reduction: Reduction) -> list[Key]:
        """Return the inputs that one reduces element by element."""
        found, _, _ = sources([(reduction.source, reduction.walked)])
        return found

    @property
    def leaves(self) -> tuple[Access, ...]:
        """What is reduced, each once."""
        return tuple(dict.fromkeys(leaf for one in self.reductions for leaf in one.leaves))


NONE = frozenset[str]()
Group = tuple[tuple[Extent, ...], list[Access]]
"""The loop axes of a kernel's results, and these."""


def domains(
    fusion: Fusion, rows: frozenset[str] = NONE, spread: frozenset[str] = NONE
) -> list[Domain]:
    """Return one Domain per group of outputs with the same axes; each becomes a kernel.

    Of the reductions of these names a kernel may have whole `rows` at a time, but not one of
    outputs that are `spread` along them.
    """
    return [
        _domain(extents, writes, rows, spread) for extents, writes in groups(fusion, rows, spread)
    ]


def groups(
    fusion: Fusion, rows: frozenset[str] = NONE, spread: frozenset[str] = NONE
) -> list[Group]:
    """Return the loop axes of each kernel's results, and these.

    What there is one of for each row belongs to the results for which the same rows are reduced, or
    that are computed from inputs that are reduced, element by element.
    """
    found = _alike(fusion)
    for group in [*found] if rows else ():
        if group not in found:
            continue
        extents, writes = group
        whole = whole_rows(extents, writes, rows, spread)
        if whole is not None and whole.extents != extents:
            continue
        for other in [*found]:
            if any(one.tv.parts == "tiles" for one in (*writes, *other[1])):
                continue
            axes = whole.axes if whole is not None else tuple(range(len(other[0]), len(extents)))
            kept = _without(axes, len(extents))
            if not axes or other[0] != tuple(extents[n] for n in kept):
                continue
            mine = [
                Access(one.tv, tuple(None if c is None else kept[c] for c in one.coords), one.name)
                for one in other[1]
            ]
            both = whole_rows(extents, [*writes, *mine], rows, spread, axes)
            alone = whole_rows(extents, mine, rows, spread, axes)
            if both is None or alone is None or {*both.apart} - {*(whole.apart if whole else ())}:
                continue
            if alone.held & whole.held if whole is not None else _common(writes, alone, mine):
                found.remove(other)
                writes += mine
                whole = both
    return found


def _common(writes: list[Access], whole: WholeRows, rows: list[Access]) -> bool:
    """Tell whether results are computed from an input that is reduced for others, walked alike."""
    inputs, _, _ = sources([(access.tv, access.coords) for access in writes])
    below = reached([(access.tv, access.coords) for access in rows], whole.following)
    return not {*below}.isdisjoint(inputs)


def _alike(fusion: Fusion) -> list[Group]:
    left = list(fusion.outputs)
    out = []
    while left:
        axes = [axis for axis in _walked(left[0]) if axis.iter_type is IterType.ITERATION]
        extents = tuple(axis.extent for axis in axes)
        writes: list[Access] = []
        rest = []
        for tv in left:
            coords = matched(tv, extents)
            if coords is None or not _scan_alike(extents, writes, Access(tv, coords, tv.name)):
                rest.append(tv)
            else:
                writes.append(Access(tv, coords, tv.name))
        out.append((extents, writes))
        left = rest
    return out


def _scan_alike(extents: tuple[Extent, ...], writes: list[Access], other: Access) -> bool:
    """Tell whether a result is computed by the kernel of others: scans along one axis, if any.

    What is scanned shares its kernel with nothing that is multiplied or reduced.
    """
    one, two = scans(extents, writes), scans(extents, [other])
    if one.axis is None and two.axis is None:
        return True
    if one.axis is not None and two.axis is not None:
        return one.axis == two.axis
    _, products, reductions = sources(
        [(a.tv, a.coords) for a in (writes if one.axis is None else [other])]
    )
    return not writes or not (products or reductions)


@dataclass(frozen=True, slots=True)
class Scans:
    """Scans of a kernel, which run along one of its loop `axis`; None if it has none.

    `apart` are those of which it can only read the results.
    """

    axis: int | None
    apart: tuple[TensorView, ...] = ()


def scans(extents: tuple[Extent, ...], writes: list[Access]) -> Scans:
    """Return which scans a kernel computes of those that its results are computed from.

    Those that walk all of its loop axes and run along that of the last of them.
    """
    every = reached([(access.tv, access.coords) for access in writes], _element_args)
    found: dict[TensorView, set[int | None]] = {}
    for tv, coords in sorted(every, key=_order):
        axis = scanned_axis(tv)
        if axis is not None:
            whole = {*coords} - {None} == {*range(len(extents))}
            found.setdefault(tv, set()).add(coords[axis] if whole else None)
    if not found:
        return Scans(None)
    last = [*found][-1]
    chosen = next(iter(found[last])) if len(found[last]) == 1 else None
    return Scans(
        chosen, tuple(tv for tv, axes in found.items() if axes != {chosen} or axes == {None})
    )


@dataclass(frozen=True, slots=True)
class WholeRows:
    """Reductions of a kernel, of which it has whole rows at a time.

    `axes` are the loop axes that they reduce and that their users walk, of those of `extents`;
    `held` are the reductions, `apart` those that it computes with but cannot hold.
    """

    axes: tuple[int, ...]
    extents: tuple[Extent, ...]
    held: frozenset[TensorView]
    apart: tuple[TensorView, ...]

    def following(self, key: Key) -> list[Key]:
        """Return from what a tensor is computed, what is reduced among it."""
        tv, coords = key
        if tv.op == "mma" or tv in self.apart:
            return []
        if tv in self.held:
            return [self.reduced(key)]
        return [(arg, walked) for _, arg, walked in arguments(tv, coords)]

    def reduced(self, key: Key) -> Key:
        """Return what a reduction reduces, as its users walk it."""
        ((_, source, kept),) = arguments(*key)
        walked = list(kept)
        for nth, axis in enumerate(reduced_axes(key[0])):
            walked[axis] = self.axes[nth]
        return source, tuple(walked)


def whole_rows(
    extents: tuple[Extent, ...],
    writes: list[Access],
    names: frozenset[str],
    spread: frozenset[str],
    axes: tuple[int, ...] | None = None,
) -> WholeRows | None:
    """Return which reductions of some results a kernel can hold; None if there are none.

    Those of these `names` that have all loop axes but some, and reduce as many axes of these
    extents: the innermost, or the `axes` that are given.  Where the results have only rows, it is
    what they reduce, as long as another reduction of that is broadcast back.  None are held where
    the results are computed element by element, and sums of all rows of that begun.
    """
    results = [(access.tv, access.coords) for access in writes]
    _, products, reductions = sources(results)
    named = [(tv, coords) for tv, coords in reductions if tv.held in names]
    if not (products or reductions):
        return _rows_begun(extents, writes, spread)
    if products or not named:
        return None
    ways = [(_without(coords, len(extents)), _reduced_of(tv)) for tv, coords in named]
    inner = [some for some, mine in ways if some and tuple(extents[n] for n in some) == mine]
    appended = not inner and axes is None
    if axes is None:
        axes = max(inner, default=())
    if appended:
        first = next((mine for some, mine in ways if not some), ())
        axes = tuple(range(len(extents), len(extents) + len(first)))
        extents = (*extents, *first)
    along = (one for one in writes if one.name in spread and not {*axes}.isdisjoint(one.coords))
    if not axes or any(along):
        return None
    wanted, kept = tuple(extents[n] for n in axes), _without(axes, len(extents))
    apart: dict[TensorView, None] = {}
    while True:
        held: dict[TensorView, None] = {}
        refused: dict[TensorView, None] = {}
        nested = False
        whole = WholeRows(axes, extents, frozenset(), tuple(apart))
        scanned: dict[TensorView, set[bool]] = {}
        left, found = [(key, False) for key in results], set[tuple[Key, bool]]()
        while left:
            key, within = left.pop()
            tv, coords = key
            if (key, within) in found:
                continue
            found.add((key, within))
            if tv.op in ("mma", "gather"):
                return None
            if scanned_axis(tv) is not None and tv not in apart:
                scanned.setdefault(tv, set()).add(within)
            if not reduced_axes(tv) or tv in apart:
                left += [(arg, within) for arg in whole.following(key)]
                continue
            walked = tuple(sorted(c for c in coords if c is not None))
            if tv.held in names and walked == kept and _reduced_of(tv) == wanted:
                nested |= within
                held[tv] = None
                left.append((whole.reduced(key), True))
            else:
                refused[tv] = None
        if any(True not in ways for ways in scanned.values()):  # a kernel of scans has no rows
            return None
        refused |= dict.fromkeys(scanned)  # it reads what it reduces
        if not refused:
            break
        apart |= refused
    if not held or (appended and not nested):  # a plain reduction
        return None
    return WholeRows(axes, extents, frozenset(held), tuple(apart))


def _rows_begun(
    extents: tuple[Extent, ...], writes: list[Access], spread: frozenset[str]
) -> WholeRows | None:
    """Return the rows of a kernel that reduces nothing along them, but begins sums of all rows."""
    target = next((one for one in writes if one.tv.parts == "rows"), None)
    if target is None:
        return None
    every = reached([(access.tv, access.coords) for access in writes], _element_args)
    if any(tv.op == "gather" or scanned_axis(tv) is not None for tv, _ in every):
        return None
    axes = tuple(sorted(kept_axes(target.tv, target.coords)))
    if not axes or any(one.name in spread and not {*axes}.isdisjoint(one.coords) for one in writes):
        return None
    return WholeRows(axes, extents, frozenset(), ())


def kept_axes(target: TensorView, coords: Coords) -> tuple[int, ...]:
    """Return the loop axes of the results of a reduction of which `target` has parts."""
    kept = coords[: target.rank - len(dict(target.attrs)["dims"])]
    return tuple(axis for axis in kept if axis is not None)


def _without(some: Coords, rank: int) -> tuple[int, ...]:
    return tuple(n for n in range(rank) if n not in some)


def _reduced_of(tv: TensorView) -> tuple[Extent, ...]:
    (source,) = tensor_args(tv)
    return tuple(source.logical[axis].extent for axis in reduced_axes(tv))


def _of_rows(writes: list[Access], whole: WholeRows) -> Domain:
    """Return the domain of a kernel that has whole rows at a time."""
    results = [(access.tv, access.coords) for access in writes]
    every = sorted(reached(results, whole.following), key=_order)
    reads = _named([key for key in every if key[0].op == "input"], set())
    known = {(access.tv, access.coords): access for access in reads}
    folds = []
    for key in every:
        if key[0] in whole.held:
            source = whole.reduced(key)
            leaves, _, _ = sources([source])
            folds.append(Reduction(*key, *source, tuple(known[leaf] for leaf in leaves)))
    pinned = _index_axes([key for key in every if key[0].op == "iota"])
    merged = _merge(range(len(whole.extents)), reads, writes, pinned, whole.axes)
    return Domain(
        whole.extents, tuple(reads), tuple(writes), merged, (), tuple(reads), tuple(folds),
        whole.axes,
    )  # fmt: skip


def by_rows(domain: Domain) -> Domain | None:
    """Return the domain of a kernel that has whole rows of what plain reductions reduce.

    None if it multiplies, or takes elements by an index, or reduces several kinds of rows.
    """
    kept = {axis for access in domain.writes for axis in access.coords}
    rows = tuple(axis for axis in range(len(domain.extents)) if axis not in kept)
    alike = all({*rows} <= {*one.walked} for one in domain.reductions)
    parts = any(one.tv.parts for one in (*domain.reads, *domain.writes))
    parts = parts or any(one.tv.count for one in domain.reductions)
    if not rows or not alike or parts or not domain.reads or domain.products or domain.gathers:
        return None
    return replace(domain, rows=rows, inputs=domain.reads)


def _domain(
    extents: tuple[Extent, ...],
    writes: list[Access],
    rows: frozenset[str],
    spread: frozenset[str],
) -> Domain:
    held = whole_rows(extents, writes, rows, spread) if rows else None
    if held is not None:
        assert not held.apart, "the cut has computed these before"
        return _of_rows(writes, held)
    scanned = scans(extents, writes)
    assert not scanned.apart, "the cut has computed these before"
    _, products, reductions = sources([(access.tv, access.coords) for access in writes])
    if not (products or reductions) and scanned.axis is None:
        extents, writes = _as_it_lies(extents, writes)
    results = [(access.tv, access.coords) for access in writes]
    inputs, products, reductions = sources(results)
    outer = len(extents)
    operands, extents = _operands(products, extents)
    reduced, extents = _reduced(reductions, extents)
    firsts, seconds = (sources([pair[side] for pair in operands])[0] for side in (0, 1))
    leaves_of = {key: sources([key])[0] for key in reduced}
    twice = {*firsts} & {*seconds}
    every = [*inputs, *firsts, *(leaf for leaves in leaves_of.values() for leaf in leaves)]
    reads = _named([*every, *(key for key in seconds if key not in twice)], twice)
    as_a = {(access.tv, access.coords): access for access in reversed(reads)}
    as_b = {(access.tv, access.coords): access for access in reads}
    pinned = _index_axes([*results, *reduced])
    pinned |= {a.coords[-1] for a in writes if a.tv.parts and a.coords[-1] is not None}
    pinned |= {scanned.axis} if scanned.axis is not None else set()
    gathers = _gathers([*results, *reduced])
    indexed = [access for _, access in gathers]
    whole = {*inputs, *(key for pair in operands for key in pair)}
    computed = {*firsts, *seconds} - whole
    shared = _Shared(
        frozenset(a for a in reads if (a.tv, a.coords) in computed),
        frozenset(n for n in range(outer, len(extents)) if isinstance(extents[n], int)),
    )
    merged = _merge(range(len(extents)), [*reads, *indexed], writes, pinned, shared=shared)
    made = []
    for (tv, coords), (a, b) in zip(products, operands, strict=True):
        leaves: list[Access] = []
        for key, known in ((a, as_a), (b, as_b)):
            if key not in known:
                leaves += [known[leaf] for leaf in sources([key])[0]]
        first, second = as_a.get(a) or Access(*a, a[0].name), as_b.get(b) or Access(*b, b[0].name)
        pair = (second, first) if (exchanged := b not in as_b) else (first, second)
        made.append(Product(tv, coords, *pair, tuple(leaves), exchanged))
    direct = tuple(as_a[key] for key in inputs)
    folds = tuple(
        Reduction(tv, coords, *key, tuple(as_a[leaf] for leaf in leaves_of[key]))
        for (tv, coords), key in zip(reductions, reduced, strict=True)
    )
    memory = tuple(reads), tuple(writes)
    scan, indices = scanned.axis, _indices(reads)
    return Domain(
        extents or (1,), *memory, merged, tuple(made), direct, folds, (), gathers, scan, indices
    )


def _as_it_lies(extents: tuple[Extent, ...], writes: list[Access]) -> Group:
    """Return loop axes in the order in which the first result lies in memory, and all results.

    Such as an operand that is stored by columns: threads that are next to each other then have
    neighbours of it.
    """
    first, *_ = writes
    walked = [axis for axis in range(first.tv.rank) if first.coords[axis] is not None]
    walked.sort(key=lambda axis: -first.tv.stride_order[axis])
    order = [first.coords[axis] for axis in walked]
    if order in ([], [*range(len(extents))]) or len(order) < len(extents):
        return extents, writes
    place = {axis: n for n, axis in enumerate(order)}
    moved = [
        replace(one, coords=tuple(None if c is None else place[c] for c in one.coords))
        for one in writes
    ]
    return tuple(extents[axis] for axis in order if axis is not None), moved


def _reduced(
    reductions: list[Key], extents: tuple[Extent, ...]
) -> tuple[list[Key], tuple[Extent, ...]]:
    """Return what each reduction reduces, and the loop axes with those, shared by equal ones."""
    out: list[Key] = []
    shared: dict[tuple[Extent, ...], int] = {}
    for tv, coords in reductions:
        (source,) = tensor_args(tv)
        axes = reduced_axes(tv)
        mine = tuple(source.logical[axis].extent for axis in axes)
        if mine not in shared:
            shared[mine] = len(extents)
            extents = (*extents, *mine)
        ((_, _, kept),) = arguments(tv, coords)
        walked = list(kept)
        for nth, axis in enumerate(axes):
            walked[axis] = shared[mine] + nth
        out.append((source, tuple(walked)))
    return out, extents


def _operands(
    products: list[Key], extents: tuple[Extent, ...]
) -> tuple[list[tuple[Key, Key]], tuple[Extent, ...]]:
    """Return the operands of each product, and the loop axes with those summed over, shared."""
    out: list[tuple[Key, Key]] = []
    summed: dict[tuple[tuple[Extent, ...], int], int] = {}
    for tv, coords in products:
        walked: list[int | None] = []
        mine = tuple(axis.extent for axis in roles(tv) if axis.result is None)
        nth = 0
        for axis in roles(tv):
            if axis.result is not None:
                walked.append(coords[axis.result])
                continue
            key = (mine, nth)
            nth += 1
            if key not in summed:
                summed[key] = len(extents)
                extents = (*extents, axis.extent)
            walked.append(summed[key])
        pair: list[Key] = []
        for n, arg in enumerate(tensor_args(tv)):
            own: list[int | None] = [None] * arg.rank
            for axis, loop in zip(roles(tv), walked, strict=True):
                source = axis.b if n else axis.a
                if source is not None and arg.logical[source].iter_type is IterType.ITERATION:
                    own[source] = loop
            pair.append(_source(arg, tuple(own)))
        out.append((pair[0], pair[1]))
    return out, extents


def arguments(tv: TensorView, coords: Coords) -> Iterator[tuple[int, TensorView, Coords]]:
    """Yield every tensor argument of `tv` with its position and the loop axes of its axes.

    Not the one of which elements are taken by an index: `Domain.gathers` has it; nor an index that
    names places of an input: `Domain.indices` does.
    """
    for n, arg in enumerate(tv.args):
        if not isinstance(arg, TensorView) or tv.op == "input" or (tv.op == "gather" and n == 0):
            continue
        walked: list[int | None] = [None] * arg.rank
        for axis, source in enumerate(producer_axes(tv, n)):
            if source is not None and arg.logical[source].iter_type is IterType.ITERATION:
                walked[source] = coords[axis]
        yield n, arg, tuple(walked)


def unit_stride(tv: TensorView, axis: int, values: Mapping[Symbol, int] | None = None) -> bool:
    """Tell whether neighbours along `axis` are promised to be neighbours in memory.

    Where `values` has the numbers of all symbols, axes of one element are in nobody's way.
    """
    return tv.contiguity[axis] and all(
        one.iter_type is IterType.BROADCAST
        or (values is not None and number_of(one.extent, values) <= 1)
        for one, order in zip(tv.logical, tv.stride_order, strict=True)
        if order < tv.stride_order[axis]
    )


def next_faster(tv: TensorView, axis: int) -> int | None:
    """Return the axis that comes next by stride, extents of 1 left out."""
    faster = [
        other
        for other in range(tv.rank)
        if tv.stride_order[other] < tv.stride_order[axis]
        and tv.logical[other].iter_type is IterType.ITERATION
    ]
    return max(faster, key=lambda other: tv.stride_order[other], default=None)


def matched(tv: TensorView, extents: tuple[Extent, ...]) -> Coords | None:
    """Give every iterated axis of an output a loop axis of the same extent, in order if it can.

    Parts of rows are in the order of what they are of, as the results of their kernel are.
    """
    axes = _walked(tv)
    order = sorted(range(len(axes)), key=_order_of(tv).__getitem__)
    free = list(range(len(extents)))
    coords: list[int | None] = [None] * len(axes)
    for n in order:
        if axes[n].iter_type is not IterType.ITERATION:
            continue
        found = next((one for one in free if extents[one] == axes[n].extent), None)
        if found is None:
            return None
        free.remove(found)
        coords[n] = found
    return None if free else tuple(coords)


def _order_of(tv: TensorView) -> tuple[int, ...]:
    """Return the places in which loop axes are dealt to the axes of a tensor."""
    if tv.parts != "rows":
        return tuple(range(tv.rank))
    return tuple(axis for axis in producer_axes(tv, 0) if axis is not None)


def _walked(tv: TensorView) -> tuple[IterDomain, ...]:
    """Return the axes that a kernel walks to compute a tensor: all, where its tiles leave parts."""
    if not tv.parts:
        return tv.logical
    (whole,) = tensor_args(tv)
    return tuple(whole.logical[axis] for axis in producer_axes(tv, 0) if axis is not None)


def _source(tv: TensorView, coords: Coords) -> Key:
    """Look through operations that move nothing."""
    while tv.op in OPS and OPS[tv.op].form is Form.SHAPE:
        ((_, tv, coords),) = arguments(tv, coords)
    return tv, coords


def sources(
    keys: list[Key], stored: Set[TensorView] = frozenset()
) -> tuple[list[Key], list[Key], list[Key]]:
    """Return from what tensors are computed element by element: inputs, products, reductions.

    What is `stored` is not computed.
    """
    every = reached(keys, lambda key: [] if key[0] in stored else _element_args(key))
    inputs = [key for key in every if key[0].op == "input"]
    products = [key for key in every if key[0].op == "mma"]
    reductions = [key for key in every if reduced_axes(key[0])]
    found = (sorted(keys, key=_order) for keys in (inputs, products, reductions))
    return next(found), next(found), next(found)


def _element_args(key: Key) -> list[Key]:
    """Return from what a tensor is computed element by element: not what products or sums take."""
    if key[0].op == "mma" or reduced_axes(key[0]):
        return []
    return [(arg, walked) for _, arg, walked in arguments(*key)]


def _order(key: Key) -> tuple[int, str]:
    return key[0].number, str(key[1])


def _gathers(keys: list[Key]) -> tuple[tuple[Key, Access], ...]:
    """Return what elements are taken of: each tensor as walked once, by a name of its own."""
    found = sorted(
        (key for key in reached(keys, _element_args) if key[0].op == "gather"), key=_order
    )
    known: dict[Key, Access] = {}
    out = []
    for tv, coords in found:
        whole = tensor_args(tv)[0]
        own: list[int | None] = [None] * whole.rank
        for axis in range(whole.rank):
            if whole.logical[axis].iter_type is IterType.ITERATION:
                walked = producer_axes(tv, 0)[axis]
                own[axis] = INDEXED if walked is None else coords[axis]
        source, walks = _source(whole, tuple(own))
        name = f"{source.name}_at{len(known)}"
        access = known.setdefault((source, walks), Access(source, walks, name))
        out.append(((tv, coords), access))
    return tuple(out)


def _indices(reads: list[Access]) -> tuple[tuple[Access, Access], ...]:
    """Return the index of each tensor that has one, as walked, by a name of its own."""
    known: dict[Key, Access] = {}
    out = []
    for access in reads:
        if (axis := indexed_axis(access.tv)) is None:
            continue
        (index,) = tensor_args(access.tv)
        # The index varies along one axis of its own, wherever that of the tensor lies in memory.
        varies = [one.iter_type is IterType.ITERATION for one in index.logical]
        walks = tuple(access.coords[axis] if along else None for along in varies)
        source, own = _source(index, walks)
        name = f"{source.name}_index{len(known)}"
        out.append((access, known.setdefault((source, own), Access(source, own, name))))
    return tuple(out)


def _named(keys: list[Key], twice: Set[Key]) -> list[Access]:
    """Return an access for each key; two for one that is `twice` a tile, of A and of B."""
    counts: dict[str, int] = {}
    out = []
    for key in sorted(dict.fromkeys(keys), key=_order):
        tv, coords = key
        for _ in range(1 + (key in twice)):
            nth = counts[tv.name] = counts.get(tv.name, -1) + 1
            out.append(Access(tv, coords, f"{tv.name}_{nth}" if nth else tv.name))
    return out


def crossed(domain: Domain) -> Domain:
    """Merge axes anew, so that the last two are the fastest ones of two kinds of tensors.

    The last is that of the tensors with the most bytes an element, of the first result where there
    is nothing to choose between; the one before is that of most others.  What else there is stands
    in the order of the first result.
    """
    first, *_ = domain.writes
    rank = len({axis for axis in first.coords if axis is not None})
    if rank < 2:
        return domain
    every = (*domain.writes, *domain.reads)
    order = sorted(range(rank), key=lambda axis: -_place(first, axis))
    pinned = _index_axes([(access.tv, access.coords) for access in domain.writes])
    reads = [*domain.reads, *(access for _, access in domain.gathers)]
    merged = list(_merge(order, reads, list(domain.writes), pinned))
    if len(merged) == 1:
        return replace(domain, merged=tuple(merged))
    votes = dict.fromkeys(merged, 0)
    for access in every:
        fast = next((group for group in merged if _is_fast(access, group[-1])), None)
        varied = [group for group in merged if access.axis_of(group[-1]) is not None]
        if fast is not None and len(varied) > 1:
            votes[fast] += access.tv.dtype.nbytes
    # The fastest axis of the first result is the last one here.
    ranked = sorted(merged, key=lambda group: (votes[group], merged.index(group)), reverse=True)
    cols, rows, *_ = ranked
    rest = [group for group in merged if group not in (rows, cols)]
    return replace(domain, merged=(*rest, rows, cols))


def _place(access: Access, loop_axis: int) -> int:
    walked = access.axis_of(loop_axis)
    assert walked is not None, "a result walks all axes of its kernel"
    return access.tv.stride_order[walked]


def _is_fast(access: Access, loop_axis: int) -> bool:
    walked = access.axis_of(loop_axis)
    return walked is not None and unit_stride(access.tv, walked)


@dataclass(frozen=True, slots=True)
class _Shared:
    """Tensors whose elements neighbours along an axis may share, and the axes where they may.

    Operands of products are computed from the first.  Of the axes, which are summed over, extents
    are numbers.
    """

    some: frozenset[Access] = frozenset()
    along: frozenset[int] = frozenset()

    def alike(self, access: Access, axis: int) -> bool:
        """Tell whether a tensor has one element for all of an axis that others walk."""
        return access in self.some and axis in self.along and access.axis_of(axis) is None


def _merge(
    order: Sequence[int],
    reads: list[Access],
    writes: list[Access],
    pinned: set[int],
    rows: tuple[int, ...] = (),
    shared: _Shared = _Shared(),
) -> tuple[tuple[int, ...], ...]:
    """Return groups of axes.

    A group walks `shared` tensors by its first axes, or all of them.
    """
    if not order:
        return ((0,),)
    groups = [[order[0]]]
    for axis in order[1:]:
        slow = groups[-1][-1]
        legal = axis not in pinned and slow not in pinned and (slow in rows) == (axis in rows)
        every = (a for a in (*reads, *writes) if not shared.alike(a, axis))
        if legal and all(_mergeable(a, slow, axis) for a in every):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return tuple(tuple(group) for group in groups)


def runs(access: Access, rank: int) -> tuple[range, ...]:
    """Return the runs of loop axes that a tensor walks with one stride each, slowest first."""
    out: list[range] = []
    for axis in range(rank):
        if access.axis_of(axis) is None:
            continue
        if out and out[-1].stop == axis and _mergeable(access, axis - 1, axis):
            out[-1] = range(out[-1].start, axis + 1)
        else:
            out.append(range(axis, axis + 1))
    return tuple(out)


def is_whole(access: Access, rank: int) -> bool:
    """Tell whether a tensor has its elements in the order of all loop axes, without gaps."""
    last = access.axis_of(rank - 1)
    whole = runs(access, rank) == (range(rank),)
    return whole and last is not None and unit_stride(access.tv, last)


def flat_refusal(domain: Domain) -> str | None:
    """Say why the loop axes of a domain cannot be walked as one; None if they can."""
    rank = len(domain.extents)
    if _index_axes([(access.tv, access.coords) for access in domain.writes]):
        return "iota needs the coordinate along an axis"
    if domain.gathers:
        return "elements that are taken by an index have coordinates along all axes"
    for access in domain.writes:
        if access.tv.parts or not is_whole(access, rank):
            return f"{access.tv} is not contiguous in the order of the loops"
    return None


def _mergeable(access: Access, slow: int, fast: int) -> bool:
    a, b = access.axis_of(slow), access.axis_of(fast)
    if a is None or b is None:
        return a is b
    return access.tv.contiguity[a] and next_faster(access.tv, a) == b


def _index_axes(results: list[Key]) -> set[int]:
    """Loop axes whose coordinate is itself a value (iota); they cannot be merged."""
    every = reached(results, _element_args)
    return {coords[0] for tv, coords in every if tv.op == "iota" and coords[0] is not None}
