"""The loop domain of a kernel: its axes, and how every tensor walks along them.

Outputs whose axes match are computed by one kernel.  Its axes are those of the first of them; a
tensor is reached by walking the definitions backwards, so that one input may be read in several
ways (`x[:, None] + x[None, :]` reads x twice).  Matrix products and reductions end the walk; the
axes that they sum over are loop axes of their own.  Neighbouring axes are then merged wherever
every tensor allows it, by what the definition promises about strides.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from fuser.fusion.ir import Extent, Fusion, IterDomain, IterType, TensorView, reached, tensor_args
from fuser.fusion.mma_axes import roles
from fuser.fusion.ops import OPS, Form, producer_axes, reduced_axes

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

    An operand that lies in no memory is computed from `leaves`, inputs as read.
    """

    tv: TensorView
    coords: Coords
    a: Access
    b: Access
    leaves: tuple[Access, ...] = ()


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
    of them that outputs are computed from element by element.  `gathers` has, for each `gather` as
    walked, the tensor that it takes elements of.
    """

    extents: tuple[Extent, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    merged: tuple[tuple[int, ...], ...]
    products: tuple[Product, ...] = ()
    inputs: tuple[Access, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    gathers: tuple[tuple[Key, Access], ...] = ()

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All tensors in memory."""
        return (*self.reads, *self.writes, *dict.fromkeys(access for _, access in self.gathers))

    @property
    def leaves(self) -> tuple[Access, ...]:
        """What is reduced, each once."""
        return tuple(dict.fromkeys(leaf for one in self.reductions for leaf in one.leaves))


def domains(fusion: Fusion) -> list[Domain]:
    """Return one Domain per group of outputs with the same axes; each becomes a kernel."""
    return [_domain(extents, writes) for extents, writes in groups(fusion)]


def groups(fusion: Fusion) -> list[tuple[tuple[Extent, ...], list[Access]]]:
    """Return the loop axes of each kernel's results, and these."""
    left = list(fusion.outputs)
    out = []
    while left:
        axes = [axis for axis in _walked(left[0]) if axis.iter_type is IterType.ITERATION]
        extents = tuple(axis.extent for axis in axes)
        writes, rest = [], []
        for tv in left:
            coords = _match(tv, extents)
            if coords is None:
                rest.append(tv)
            else:
                writes.append(Access(tv, coords, tv.name))
        out.append((extents, writes))
        left = rest
    return out


def _domain(extents: tuple[Extent, ...], writes: list[Access]) -> Domain:
    results = [(access.tv, access.coords) for access in writes]
    inputs, products, reductions = sources(results)
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
    gathers = _gathers([*results, *reduced])
    indexed = [access for _, access in gathers]
    merged = _merge(len(extents), [*reads, *indexed], writes, pinned)
    made = []
    for (tv, coords), (a, b) in zip(products, operands, strict=True):
        leaves: list[Access] = []
        for key, known in ((a, as_a), (b, as_b)):
            if key not in known:
                leaves += [known[leaf] for leaf in sources([key])[0]]
        first, second = as_a.get(a) or Access(*a, a[0].name), as_b.get(b) or Access(*b, b[0].name)
        made.append(Product(tv, coords, first, second, tuple(leaves)))
    direct = tuple(as_a[key] for key in inputs)
    folds = tuple(
        Reduction(tv, coords, *key, tuple(as_a[leaf] for leaf in leaves_of[key]))
        for (tv, coords), key in zip(reductions, reduced, strict=True)
    )
    whole = extents or (1,)
    memory = tuple(reads), tuple(writes)
    return Domain(whole, *memory, merged, tuple(made), direct, folds, gathers)


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

    Not the one of which elements are taken by an index: `Domain.gathers` has it.
    """
    for n, arg in enumerate(tv.args):
        if not isinstance(arg, TensorView) or (tv.op == "gather" and n == 0):
            continue
        walked: list[int | None] = [None] * arg.rank
        for axis, source in enumerate(producer_axes(tv, n)):
            if source is not None and arg.logical[source].iter_type is IterType.ITERATION:
                walked[source] = coords[axis]
        yield n, arg, tuple(walked)


def unit_stride(tv: TensorView, axis: int) -> bool:
    """Tell whether neighbours along `axis` are promised to be neighbours in memory."""
    return tv.contiguity[axis] and all(
        tv.logical[other].iter_type is IterType.BROADCAST
        for other in range(tv.rank)
        if tv.stride_order[other] < tv.stride_order[axis]
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


def _match(tv: TensorView, extents: tuple[Extent, ...]) -> Coords | None:
    """Give every iterated axis of an output a loop axis of the same extent, in order if it can."""
    free = list(range(len(extents)))
    coords: list[int | None] = []
    for axis in _walked(tv):
        if axis.iter_type is not IterType.ITERATION:
            coords.append(None)
            continue
        found = next((n for n in free if extents[n] == axis.extent), None)
        if found is None:
            return None
        free.remove(found)
        coords.append(found)
    return None if free else tuple(coords)


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


def sources(keys: list[Key]) -> tuple[list[Key], list[Key], list[Key]]:
    """Return from what tensors are computed element by element: inputs, products, reductions."""
    every = reached(keys, _element_args)
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


def _merge(
    rank: int, reads: list[Access], writes: list[Access], pinned: set[int]
) -> tuple[tuple[int, ...], ...]:
    if rank == 0:
        return ((0,),)
    groups = [[0]]
    for axis in range(1, rank):
        slow = groups[-1][-1]
        legal = axis not in pinned and slow not in pinned
        if legal and all(_mergeable(a, slow, axis) for a in (*reads, *writes)):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return tuple(tuple(group) for group in groups)


def _mergeable(access: Access, slow: int, fast: int) -> bool:
    a, b = access.axis_of(slow), access.axis_of(fast)
    if a is None or b is None:
        return a is b
    return access.tv.contiguity[a] and next_faster(access.tv, a) == b


def _index_axes(results: list[Key]) -> set[int]:
    """Loop axes whose coordinate is itself a value (iota); they cannot be merged."""
    every = reached(results, _element_args)
    return {coords[0] for tv, coords in every if tv.op == "iota" and coords[0] is not None}
