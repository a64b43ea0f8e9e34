"""Tiles: boxes, slots, layouts, and the statements that move them.

Source: PTX ISA, sections "cp.async", "cp.async.bulk.tensor", "tensor map".
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuser.kernel.validate.place import Place
from fuser.kernel.validate.registers import sliced
from fuser.kernel.validate.sync import alone, mbarrier, neighbour

TMA_BOX = 256
"""Elements of a box per axis at most."""
TMA_ROW = 16
"""Rows of a box, and what a store writes, are multiples of so many bytes."""
CP_ASYNC = (4, 8, 16)
"""Bytes that one cp.async copies."""


def tile(stmt: kir.Stmt, place: Place) -> Iterable[str]:
    """Say what is wrong with a statement that moves or computes tiles."""
    kernel = place.kernel
    match stmt:
        case kir.TmaLoad(dst, src, barrier, slot):
            yield from mbarrier(stmt, barrier, slot, kernel)
            yield from _bulk(stmt, place, dst, src)
            yield from _multicast(stmt, kernel)
        case kir.TmaStore(dst, src) | kir.TmaReduce(dst, src):
            yield from _bulk(stmt, place, src, dst)
            yield from _written(stmt, dst, kernel)
            nbytes = dst.tensor.aligned * dst.tensor.dtype.nbytes
            if nbytes % TMA_ROW:
                yield (
                    f"`{line(stmt)}`: the engine writes chunks of {TMA_ROW} bytes, "
                    f"{dst.tensor.name} is aligned to {nbytes}; align {dst.tensor.name}, or store "
                    "with threads"
                )
        case kir.CpAsync(dst, src, layout, width):
            yield from known(stmt, place, dst)
            yield from known(stmt, place, src)
            yield from dealt(stmt, place, layout)
            yield from _cp_async(stmt, dst, src, layout, width)
        case kir.Load(dst, src, width):
            yield from _access(stmt, place, dst, src, width, whole=False)
            if stmt.matrix:
                yield from _matrix(stmt, place, dst, src)
        case kir.Store(dst, src, width):
            yield from _access(stmt, place, src, dst, width, whole=True)
            if stmt.matrix:
                yield from _matrix(stmt, place, src, dst)
            if isinstance(dst, kir.Box):
                yield from _written(stmt, dst, kernel)
        case kir.AtomicAdd(dst, src):
            yield from _access(stmt, place, src, dst, 1, whole=True)
            yield from _written(stmt, dst, kernel)
        case kir.Compute(dst, _, args):
            yield from dealt(stmt, place, dst.layout)
            yield from _operands(stmt, kernel, dst, args)
        case kir.Slice(dst, src):
            yield from dealt(stmt, place, dst.layout)
            yield from dealt(stmt, place, src.layout)
            yield from sliced(stmt)
        case kir.Coordinate(dst, axis):
            yield from dealt(stmt, place, dst.layout)
            rank = len(dst.layout.shape)
            if not 0 <= axis < rank:
                yield f"`{line(stmt)}`: a tile of {rank} axes has no axis {axis}; use 0..{rank - 1}"
            if dst.dtype is not DType.I64:
                yield f"`{line(stmt)}` gives i64, {dst.name} is {dst.dtype.name}; make it i64"
        case kir.Copy(dst, src):
            yield from known(stmt, place, dst)
            yield from known(stmt, place, src)
        case kir.GridSum(acc, workspace):
            yield from known(stmt, place, workspace)
            if stmt.staged is not None:
                yield from known(stmt, place, stmt.staged)
            yield from dealt(stmt, place, acc.layout)
            yield from _written(stmt, workspace, kernel)
        case _:
            pass


def ranks(kernel: kir.Kernel) -> Iterable[str]:
    """Say which boxes have not one of everything per axis; their lines cannot be written."""
    for stmt in kernel.walk():
        match stmt:
            case (
                kir.TmaLoad(_, kir.Box() as box)
                | kir.CpAsync(_, kir.Box() as box)
                | kir.Load(_, kir.Box() as box)
                | kir.Copy(_, kir.Box() as box)
                | kir.TmaStore(box)
                | kir.TmaReduce(box)
                | kir.AtomicAdd(box)
                | kir.Store(kir.Box() as box)
                | kir.Copy(kir.Box() as box)
                | kir.GridSum(_, kir.Box() as box)
            ):
                many = [len(part) for part in (box.origin, box.shape, box.limit)]
                if {*many} != {len(box.tensor.extents)}:
                    yield (
                        f"{type(stmt).__name__} of {box.tensor.name}: origin, shape, limit and "
                        f"extents differ in rank: {', '.join(map(str, many))} and "
                        f"{len(box.tensor.extents)}; give one of each per axis"
                    )
            case _:
                pass


def _written(stmt: kir.Stmt, box: kir.Box, kernel: kir.Kernel) -> Iterable[str]:
    name = box.tensor.name
    if name not in (*kernel.outputs, *kernel.workspaces):
        yield (
            f"`{line(stmt)}` writes {name}, which is not an output or workspace; "
            "list it in Kernel.outputs"
        )


def _operands(
    stmt: kir.Stmt,
    kernel: kir.Kernel,
    dst: kir.Fragment,
    args: tuple[kir.Fragment | kir.Scalar | kir.Literal, ...],
) -> Iterable[str]:
    for arg in args:
        match arg:
            case kir.Fragment(name, _, layout) if layout != dst.layout:
                yield (
                    f"`{line(stmt)}`: {name} and {dst.name} have different layouts; "
                    "take one through shared memory, or give both one layout"
                )
            case kir.Scalar(name) if arg not in kernel.scalars:
                yield (
                    f"`{line(stmt)}` uses a scalar that the kernel does not declare; "
                    f"add {name} to Kernel.scalars"
                )
            case _:
                pass


def _matrix(
    stmt: kir.Stmt, place: Place, frag: kir.Fragment, ref: kir.Box | kir.Slot
) -> Iterable[str]:
    if place.elected:
        yield (
            f"`{line(stmt)}` stands inside an elect; whole warps must reach it: "
            "move it out of the elect"
        )
    if isinstance(ref, kir.Box) or ref.cta is not None or ref.buffer.shape != frag.layout.shape:
        yield (
            f"`{line(stmt)}`: ldmatrix and stmatrix move whole tiles of the CTA's own shared "
            "memory; drop matrix"
        )
    elif frag.layout.deal is kir.Deal.ROUND or frag.layout.vector * ref.buffer.dtype.nbytes != 4:
        yield (
            f"`{line(stmt)}`: ldmatrix and stmatrix move vectors of 4 bytes held by {frag.name} as "
            "tensor cores hold them; drop matrix"
        )


def _multicast(stmt: kir.TmaLoad, kernel: kir.Kernel) -> Iterable[str]:
    mask, cluster = stmt.multicast, kernel.cluster
    if mask is None:
        return
    if cluster == 1:
        yield (
            f"`{line(stmt)}` sends to CTAs of a cluster, but the kernel has no clusters; "
            "set Kernel.cluster, or drop multicast"
        )
    elif isinstance(mask, int) and not 0 < mask < 1 << cluster:
        yield (
            f"`{line(stmt)}`: mask {mask} names CTAs outside a cluster of {cluster}; "
            f"use 1..{(1 << cluster) - 1}"
        )


def _bulk(stmt: kir.Stmt, place: Place, slot: kir.Slot, box: kir.Box) -> Iterable[str]:
    yield from known(stmt, place, slot)
    yield from known(stmt, place, box)
    yield from alone(stmt, place)
    buffer, tensor = slot.buffer, box.tensor
    if slot.cta is not None:
        yield f"`{line(stmt)}`: a copy names slots of its own CTA; drop cta, or use multicast"
    if box.limit != tensor.extents:
        yield (
            f"`{line(stmt)}`: the copy engine clips at the tensor's extents, not elsewhere; "
            "make limit equal extents"
        )
    if box.shape != buffer.shape or tensor.dtype != buffer.dtype:
        yield (
            f"`{line(stmt)}`: box {box.shape} of {tensor.dtype.name} and slot {buffer.shape} of "
            f"{buffer.dtype.name} differ; make them the same"
        )
    row = (box.shape[-1] if box.shape else 0) * tensor.dtype.nbytes
    if max(box.shape, default=0) > TMA_BOX or row % TMA_ROW:
        yield (
            f"`{line(stmt)}`: a box has at most {TMA_BOX} elements per axis, rows of "
            f"{TMA_ROW}-byte multiples; this one is {box.shape}, rows of {row} bytes"
        )
    if tensor.strides and tensor.strides[-1] != 1:
        yield (
            f"`{line(stmt)}`: the copy engine wants neighbours along the last axis of "
            f"{tensor.name}, its stride is {tensor.strides[-1]}; use ordinary loads and stores"
        )


def _cp_async(
    stmt: kir.Stmt, dst: kir.Slot, src: kir.Box, layout: kir.Layout, width: int
) -> Iterable[str]:
    buffer, nbytes = dst.buffer, width * src.tensor.dtype.nbytes
    if nbytes not in CP_ASYNC:
        yield (
            f"`{line(stmt)}` copies {nbytes} bytes at a time; cp.async takes 4, 8 or 16: "
            "change width"
        )
    if width < 1 or layout.vector % width:
        yield (
            f"`{line(stmt)}`: width {width} must divide vector {layout.vector}; "
            "make the vector a multiple of it"
        )
    if dst.cta is not None:
        yield f"`{line(stmt)}`: cp.async writes its own CTA's shared memory; drop cta"
    if src.tensor.dtype != buffer.dtype:
        yield (
            f"`{line(stmt)}` copies {src.tensor.dtype.name} into {buffer.dtype.name}; "
            "cp.async does not convert: make them the same"
        )
    if not src.shape == buffer.shape == layout.shape:
        yield (
            f"`{line(stmt)}`: box {src.shape}, slot {buffer.shape} and layout {layout.shape} "
            "differ; make them the same"
        )


def _access(
    stmt: kir.Stmt,
    place: Place,
    frag: kir.Fragment,
    ref: kir.Box | kir.Slot,
    width: int,
    *,
    whole: bool,
) -> Iterable[str]:
    yield from known(stmt, place, ref)
    yield from dealt(stmt, place, frag.layout)
    shape = ref.shape if isinstance(ref, kir.Box) else ref.buffer.shape
    wanted = frag.layout.shape
    if len(shape) != len(wanted) or any(
        n not in (1, t) for n, t in zip(shape, wanted, strict=False)
    ):
        yield (
            f"`{line(stmt)}`: a tile of {shape} does not broadcast to the fragment's {wanted}; "
            "make the extents equal, or 1"
        )
    elif whole and shape != wanted:
        yield (
            f"`{line(stmt)}`: a store must not write one element from several registers; "
            f"the tile is {shape}, the fragment {wanted}: make them the same"
        )
    vector = 1 if frag.layout.folded > 1 else frag.layout.vector
    if wanted and vector > 0 and (wanted[-1] % vector or width < 1 or vector % width):
        yield (
            f"`{line(stmt)}`: width {width} must divide vector {vector}, and that the last "
            f"extent {wanted[-1]}; width 1 always does where the vector does"
        )


def known(stmt: kir.Stmt, place: Place, ref: kir.Box | kir.Slot) -> Iterable[str]:
    """Say where a box or slot is of something that is not declared, or does not fit it."""
    kernel = place.kernel
    match ref:
        case kir.Box(tensor, _, shape):
            if tensor not in kernel.tensors:
                yield (
                    f"`{line(stmt)}` uses a tensor that the kernel does not declare; "
                    f"add {tensor.name} to Kernel.tensors, with the same fields"
                )
            if min(shape, default=1) < 1:
                yield f"`{line(stmt)}`: a box of {shape} is empty; give every axis an element"
        case kir.Slot(buffer, index, cta):
            if buffer not in kernel.buffers:
                yield (
                    f"`{line(stmt)}` uses a shared buffer that the kernel does not declare; "
                    f"add {buffer.name} to Kernel.buffers, with the same fields"
                )
            if isinstance(index, int) and not 0 <= index < buffer.slots:
                yield (
                    f"`{line(stmt)}` uses slot {index}; {buffer.name} has slots "
                    f"0..{buffer.slots - 1}: take the position % {buffer.slots}"
                )
            if cta is not None:
                yield from neighbour(stmt, cta, kernel.cluster)


def _folded(stmt: kir.Stmt, layout: kir.Layout) -> Iterable[str]:
    whole = layout.shape[-1] == 1
    match layout.deal:
        case kir.Deal.ROUND if layout.folded % layout.vector:
            says = f"{layout.folded} neighbours are no whole vectors of {layout.vector}"
        case kir.Deal.STRIPS if not whole:
            says = f"strips are folded by whole rows, not by {layout.folded} of them"
        case kir.Deal.EACH_WARP:
            says = "what each warp holds is not folded"
        case _:
            return
    yield f"`{line(stmt)}`: {says}; fold along rows of vectors in rounds, or of whole strips"


def dealt(stmt: kir.Stmt, place: Place, layout: kir.Layout) -> Iterable[str]:
    """Say what is wrong with a layout, for the threads that execute a statement."""
    if not layout.shape or min(layout.shape) < 1 or layout.vector < 1 or layout.threads < 1:
        yield f"`{line(stmt)}`: a layout of {layout} holds nothing; use numbers of at least 1"
        return
    if layout.folded > 1:
        yield from _folded(stmt, layout)
        layout = layout.wide
    many, last = len(place.threads), layout.shape[-1]
    if layout.threads > many:
        yield (
            f"`{line(stmt)}`: its layout deals to {layout.threads} threads, {place.who} execute "
            f"it; use a layout for {many}, or let all execute it"
        )
    strips = {kir.Deal.STRIPS: 16, kir.Deal.EACH_WARP: 8}
    match layout.deal:
        case kir.Deal.ROUND:
            if last % layout.vector:
                yield (
                    f"`{line(stmt)}`: rows of {last} are no whole vectors of {layout.vector}; "
                    "use a vector that divides them"
                )
        case kir.Deal.STRIPS | kir.Deal.EACH_WARP:
            rows = strips[layout.deal]
            *outer, along, _ = (1, *layout.shape)
            across = 4 * layout.vector
            fits = len(layout.shape) > 1 and max(outer) == 1 and not (along % rows or last % across)
            if not fits or layout.vector not in (1, 2, 4) or layout.threads % kir.WARP:
                yield (
                    f"`{line(stmt)}`: {layout.deal.value} hold tiles of multiples of {rows} x "
                    f"{across}, by vectors of 1, 2 or 4 and whole warps; this one is "
                    f"{layout.shape}, by "
                    f"{layout.vector} and {layout.threads} threads"
                )
    if prod(layout.shape) > 1 << 20:
        yield f"`{line(stmt)}`: a tile of {layout.shape} fits no registers; use a smaller one"
