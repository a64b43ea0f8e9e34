"""Tiles: boxes, slots, layouts, and the statements that move them.

Source: PTX ISA, sections "cp.async", "cp.async.bulk.tensor", "tensor map".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import gcd, prod

from fuser.dtype import DType
from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.kernel.validate.place import Place, boxes, number
from fuser.kernel.validate.sync import (
    IN_ELECT,
    alone,
    map_slot,
    mbarrier,
    neighbour,
    no_slot,
    undeclared,
)

TMA_BOX = 256
"""Elements of a box per axis at most."""
TMA_ROW = 16
"""Rows of a box, and what a store writes, are multiples of so many bytes."""
CP_ASYNC = (4, 8, 16)
"""Bytes that one cp.async copies, or one st.async stores."""
ACCESS = (1, 2, 4, 8, 16)
"""Bytes that one ordinary load or store moves.  Source: PTX ISA, "ld", "st", on `.vec`."""
SLIDE = 16
"""Bytes of the widest access, at a multiple of that."""
OPS = ("add", "mul", "maximum", "minimum")
COLUMNS = (kir.Deal.ROUND, kir.Deal.ROWS)
"""What puts two elements together."""

ACROSS, WORD = (kir.Deal.ROUND, kir.Deal.STRIPS, kir.Deal.EACH_WARP), 4
"""How fragments may be dealt that are loaded from a slot across, one element at a time, where one
has so many bytes: those of a register."""


def tile(stmt: kir.Stmt, place: Place) -> Iterable[str]:
    """Say what is wrong with a statement that moves or computes tiles."""
    kernel = place.kernel
    for box in boxes(stmt):
        if box.tensor.cycles and not isinstance(stmt, kir.Load):
            yield f": {box.tensor.name} repeats; only Load reads it, and nothing writes it"
        if box.index is not None:
            yield from _indexed(stmt, place, box, box.index)
    yield from _slides(stmt)
    match stmt:
        case kir.TmaLoad(dst, src, barrier, slot, multicast, through, bulk=True):
            yield from mbarrier(barrier, slot, kernel)
            if multicast is not None or through is not None:
                yield ": a bulk copy has no tensor map and goes to one CTA; drop multicast, through"
            yield from _run(place, dst, src)
        case kir.TmaStore(dst, src, through, bulk=True):
            yield from _run(place, src, dst)
            yield from _written(dst, kernel)
            if through is not None:
                yield ": a bulk copy has no tensor map; drop through"
        case kir.TmaLoad(dst, src, barrier, slot):
            yield from mbarrier(barrier, slot, kernel)
            yield from _bulk(place, dst, src, stmt.through)
            yield from _multicast(stmt, kernel)
        case kir.TmaStore(dst, src) | kir.TmaReduce(dst, src):
            yield from _bulk(place, src, dst, stmt.through)
            yield from _written(dst, kernel)
            nbytes = dst.tensor.aligned * dst.tensor.dtype.nbytes
            if nbytes % TMA_ROW or dst.tensor.ragged:
                how = "ragged" if dst.tensor.ragged else f"aligned to {nbytes}"
                yield (
                    f": the engine writes chunks of {TMA_ROW} bytes, {dst.tensor.name} is {how}; "
                    f"align {dst.tensor.name}, or store with threads"
                )
        case kir.TensorMapReplace(dst, limit):
            yield from alone(place)
            yield from _map(dst, limit, kernel)
        case kir.CpAsync(dst, src, layout, width):
            yield from known(place, dst)
            yield from known(place, src)
            yield from dealt(place, layout)
            yield from _cp_async(dst, src, layout, width)
        case kir.QueueCopy(dst, src):
            yield from _bulk(place, dst, src, None)
        case kir.StAsync(dst, src, barrier, slot):
            yield from mbarrier(barrier, slot, kernel)
            yield from _access(place, src, dst, stmt.width, whole=True)
            yield from _st_async(place, stmt)
        case kir.Load(dst, src, width) if stmt.transposed:
            yield from _transposed(place, stmt, dst, src, width)
            yield from _part(stmt)
        case kir.Store(dst, src, width) if stmt.transposed:
            yield from _transposed(place, stmt, src, dst, width)
        case kir.Load(dst, src, width):
            yield from _access(place, dst, src, width, whole=False)
            yield from _part(stmt)
            if stmt.matrix:
                yield from _matrix(place, dst, src)
        case kir.Store(dst, src, width):
            yield from _access(place, src, dst, width, whole=True)
            if stmt.matrix:
                yield from _matrix(place, src, dst)
            if isinstance(dst, kir.Box):
                yield from _written(dst, kernel)
        case kir.AtomicAdd(dst, src):
            yield from _access(place, src, dst, 1, whole=True)
            yield from _written(dst, kernel)
        case kir.Draw(dst, counter):
            yield from known(place, dst)
            yield from number(dst.buffer)
            if place.threads != {place.first_warp * kir.WARP}:
                yield f" is executed by {place.who}; draw by one: put it inside Elect(Per.ROLE)"
            if counter not in kernel.counters:
                yield f" draws from {counter}; add it to Kernel.counters"
            if dst.cta is not None:
                yield ": a number is stored in the own CTA; drop cta"
        case kir.Compute(dst, _, args):
            yield from dealt(place, dst.layout)
            yield from _operands(kernel, dst, args)
        case kir.Slice(dst, src):
            yield from dealt(place, dst.layout)
            yield from dealt(place, src.layout)
            yield from _sliced(stmt)
        case kir.Unpack(dst, src):
            yield from dealt(place, dst.layout)
            yield from dealt(place, src.layout)
            yield from _unpacked(dst, src)
        case kir.Reduce():
            yield from _reduce(stmt, place)
        case kir.Scan():
            yield from _scan(stmt, place)
        case kir.Gather(dst, src, index):
            yield from dealt(place, dst.layout)
            yield from _gathered(kernel, dst, src, index)
        case kir.Coordinate(dst, axis):
            yield from dealt(place, dst.layout)
            rank = len(dst.layout.shape)
            if not 0 <= axis < rank:
                yield f": a tile of {rank} axes has no axis {axis}; use 0..{rank - 1}"
            if dst.dtype not in (DType.I64, DType.I32):
                yield f" gives i64 or i32, {dst.name} is {dst.dtype.name}; make it i64"
        case kir.Copy(dst, src, engine):
            yield from known(place, dst)
            yield from known(place, src)
            if engine is kir.Engine.QUEUE and (stmt.shared or not isinstance(dst, kir.Slot)):
                yield (
                    ": a queue fills slots of its own CTA only; store by TMA or BULK, load for "
                    "other CTAs by TMA"
                )
        case kir.GridSum(acc, workspace):
            yield from known(place, workspace)
            if stmt.staged is not None:
                yield from known(place, stmt.staged)
            yield from dealt(place, acc.layout)
            yield from _written(workspace, kernel)
        case _:
            pass


def ranks(kernel: kir.Kernel) -> Iterable[str]:
    """Say which boxes have not one of everything per axis; their lines cannot be written."""
    for stmt in kernel.walk():
        for box in boxes(stmt):
            many = [len(part) for part in (box.origin, box.shape, box.limit)]
            if {*many} != {len(box.tensor.extents)}:
                yield (
                    f"{type(stmt).__name__} of {box.tensor.name}: origin, shape, limit and extents "
                    f"differ in rank: {', '.join(map(str, many))} and {len(box.tensor.extents)}; "
                    "give one of each per axis"
                )
            if box.index is not None and not 0 <= box.index.axis < len(box.shape):
                have = f"{len(box.shape)} axes of {box.tensor.name}, an index of axis"
                yield f"{type(stmt).__name__}: {have} {box.index.axis}; name one of them"
        match stmt:
            case kir.TensorMapReplace(ref, limit):
                pass
            case kir.TmaLoad(_, box, through=kir.MapSlot() as ref):
                limit = box.limit
            case kir.TmaStore(box, _, kir.MapSlot() as ref) | kir.TmaReduce(
                box, _, kir.MapSlot() as ref
            ):
                limit = box.limit
            case _:
                continue
        rank = len(ref.maps.tensor.extents)
        if (len(ref.origin), len(limit)) != (rank, rank):
            yield (
                f"{type(stmt).__name__} of {ref.maps.name}: {len(ref.origin)} numbers of an origin "
                f"and {len(limit)} of a limit, {rank} extents; give one of each per axis"
            )


def _indexed(stmt: kir.Stmt, place: Place, box: kir.Box, index: kir.Index) -> Iterable[str]:
    """Say what is wrong with a box that begins where memory says."""
    name, kernel, read = box.tensor.name, place.kernel, index.src
    match stmt:
        case kir.TmaLoad(_, whole, through=None, bulk=False) if whole == box:
            pass
        case kir.Copy(kir.Slot(), whole, kir.Engine.TMA) if whole == box:
            pass
        case _:
            yield f": only loads by tensor maps of the launch are told by an index where {name} is"
    yield from known(place, read)
    if (box.origin[index.axis], box.shape[index.axis]) != (0, 1):
        have = f"origin {box.origin[index.axis]} and shape {box.shape[index.axis]}"
        yield f": {have} of {name} along the axis of its index; make them 0 and 1"
    if read.tensor.dtype not in (DType.I32, DType.I64) or max(read.shape, default=1) > 1:
        have = f"{read.shape} of {read.tensor.name}, {read.tensor.dtype.name}"
        yield f": an index is one integer, not {have}; take one element of i32 or i64"
    if read.index is not None:
        yield f": {read.tensor.name} is itself read by an index; read it at a place"
    for one in (name, read.tensor.name):
        if one in (*kernel.outputs, *kernel.workspaces):
            yield f": the kernel may write {one}; an index, and what it tells of, are only read"


def _written(box: kir.Box, kernel: kir.Kernel) -> Iterable[str]:
    name = box.tensor.name
    if name not in (*kernel.outputs, *kernel.workspaces):
        yield (f" writes {name}, which is not an output or workspace; list it in Kernel.outputs")


def _operands(
    kernel: kir.Kernel,
    dst: kir.Fragment,
    args: tuple[kir.Fragment | kir.ScalarParam | kir.Literal, ...],
) -> Iterable[str]:
    for arg in args:
        match arg:
            case kir.Fragment(name, _, layout) if layout != dst.layout and not (
                dst.layout.spreads(layout)
            ):
                yield (
                    f": {name} and {dst.name} have different layouts; take one through shared "
                    "memory, or give both one layout"
                )
            case kir.ScalarParam(name) if arg not in kernel.scalars:
                yield undeclared("scalar", name, "scalars")
            case _:
                pass


def _transposed(
    place: Place,
    stmt: kir.Load | kir.Store,
    frag: kir.Fragment,
    ref: kir.Box | kir.Slot,
    width: int,
) -> Iterable[str]:
    yield from known(place, ref)
    yield from dealt(place, frag.layout)
    if isinstance(ref, kir.Box):
        yield ": a box is not transposed; take it through a slot, or drop transposed"
        return
    shape, wanted = ref.buffer.shape, frag.layout.shape
    if len(wanted) < 2 or shape != kir.exchanged(wanted):
        yield (
            f": a slot of {shape} is not the fragment's {wanted} with the last two axes exchanged; "
            f"make it {kir.exchanged(wanted)}"
        )
    if stmt.matrix:
        yield from _turned(place, stmt, frag, ref, width)
        return
    if width != 1:
        yield f": width {width}; neighbours of the fragment lie in rows of their own: use 1"
    deal, folded = frag.layout.deal, frag.layout.folded
    able: tuple[kir.Deal, ...] = (kir.Deal.ROUND,)
    if isinstance(stmt, kir.Load) and ref.buffer.dtype.nbytes == frag.dtype.nbytes == WORD:
        able = ACROSS
    if deal not in able or folded > 1:
        names = " or ".join(f"Deal.{one.name}" for one in able)
        yield f": {frag.name} is dealt in another way; give it {names}, not folded"


def _turned(
    place: Place, stmt: kir.Load | kir.Store, frag: kir.Fragment, ref: kir.Slot, width: int
) -> Iterable[str]:
    """Say what no `ldmatrix.trans` or `stmatrix.trans` does; rows are whole where strips are."""
    if place.elected:
        yield IN_ELECT
    if ref.cta is not None:
        yield ": ldmatrix and stmatrix move tiles of the CTA's own shared memory; drop matrix"
    dtype, layout = ref.buffer.dtype, frag.layout
    if dtype.nbytes != 2:
        yield (
            f": ldmatrix and stmatrix exchange rows and columns of elements of 16 bits, "
            f"{ref.buffer.name} holds {dtype.name}; drop matrix"
        )
    if isinstance(stmt, kir.Load) and frag.dtype is not dtype:
        yield f": ldmatrix does not convert {dtype.name} into {frag.dtype.name}; make them the same"
    if layout.deal is not kir.Deal.STRIPS or layout.folded > 1:
        yield (
            f": {frag.name} is dealt in another way than tensor cores deal sums; give it "
            "Deal.STRIPS, not folded, or drop matrix"
        )
    elif layout.vector != 2 or width != 2:
        yield (
            f": width {width} of vectors of {layout.vector}; a register has 2 elements of 16 bits: "
            "use 2 for both"
        )


def _matrix(place: Place, frag: kir.Fragment, ref: kir.Box | kir.Slot) -> Iterable[str]:
    if place.elected:
        yield IN_ELECT
    if isinstance(ref, kir.Box) or ref.cta is not None or ref.buffer.shape != frag.layout.shape:
        yield (
            ": ldmatrix and stmatrix move whole tiles of the CTA's own shared memory; drop matrix"
        )
    elif not _of_tensor_cores(frag.layout) or frag.layout.vector * ref.buffer.dtype.nbytes != 4:
        yield (
            f": ldmatrix and stmatrix move vectors of 4 bytes held by {frag.name} as tensor cores "
            "hold them; drop matrix"
        )


def _of_tensor_cores(layout: kir.Layout) -> bool:
    """Whether lanes hold a tile as `mma` and `wgmma` do."""
    return layout.deal in (kir.Deal.STRIPS, kir.Deal.EACH_WARP) and layout.folded == 1


def _multicast(stmt: kir.TmaLoad, kernel: kir.Kernel) -> Iterable[str]:
    mask, cluster = stmt.multicast, kernel.cluster
    if mask is None:
        return
    if cluster == 1:
        yield (
            " sends to CTAs of a cluster, but the kernel has no clusters; set Kernel.cluster, or "
            "drop multicast"
        )
    elif isinstance(mask, int) and not 0 < mask < 1 << cluster:
        yield (
            f": mask {mask} names CTAs outside a cluster of {cluster}; use 1..{(1 << cluster) - 1}"
        )


def _map(ref: kir.MapSlot, limit: tuple[Expr, ...], kernel: kir.Kernel) -> Iterable[str]:
    yield from map_slot(ref.maps, ref.index, kernel)
    tensor = ref.maps.tensor
    nbytes = tensor.dtype.nbytes
    for at in (ref.origin[-1], limit[-1]):
        if at != tensor.extents[-1] and (not isinstance(at, int) or at * nbytes % TMA_ROW):
            yield (
                f": a map from or to column {at}, of {nbytes} bytes each; rows of a map begin and "
                f"end at multiples of {TMA_ROW} bytes: use 0, another number, or the extent"
            )
    for first, end, extent in zip(ref.origin, limit, tensor.extents, strict=True):
        if (isinstance(first, int) and first < 0) or (extent == 1 and (first, end) != (0, 1)):
            yield f": {first}..{end} of {extent} along an axis of {tensor.name}; stay inside"


def _bulk(place: Place, slot: kir.Slot, box: kir.Box, through: kir.MapSlot | None) -> Iterable[str]:
    yield from known(place, slot)
    yield from known(place, box)
    yield from alone(place)
    buffer, tensor = slot.buffer, box.tensor
    if slot.cta is not None:
        yield ": a copy names slots of its own CTA; drop cta, or use multicast"
    if through is not None:
        yield from _map(through, box.limit, place.kernel)
        if through.maps.tensor != tensor:
            own = through.maps
            yield f": {own.name} is of {own.tensor.name}; use maps of {tensor.name}"
    elif box.limit != tensor.extents:
        yield (
            ": the copy engine clips at the tensor's extents, not elsewhere; make limit equal "
            "extents"
        )
    line = sum(n > 1 for n in box.shape) == 1 and not buffer.swizzle
    fits = box.shape == buffer.shape or (line and {*box.shape} == {*buffer.shape})
    if not fits or len(box.shape) != len(buffer.shape) or tensor.dtype != buffer.dtype:
        yield (
            f": box {box.shape} of {tensor.dtype.name} and slot {buffer.shape} of "
            f"{buffer.dtype.name} differ; make them the same, or both the same line"
        )
    row = (box.shape[-1] if box.shape else 0) * tensor.dtype.nbytes
    if max(box.shape, default=0) > TMA_BOX or row % TMA_ROW:
        yield (
            f": a box has at most {TMA_BOX} elements per axis, rows of {TMA_ROW}-byte multiples; "
            f"this one is {box.shape}, rows of {row} bytes"
        )
    if tensor.strides and tensor.strides[-1] != 1:
        yield (
            f": the copy engine wants neighbours along the last axis of {tensor.name}, its stride "
            f"is {tensor.strides[-1]}; use ordinary loads and stores"
        )


def _run(place: Place, slot: kir.Slot, box: kir.Box) -> Iterable[str]:
    yield from known(place, slot)
    yield from known(place, box)
    yield from alone(place)
    buffer, tensor = slot.buffer, box.tensor
    if slot.cta is not None:
        yield ": a copy names slots of its own CTA; drop cta"
    if box.shape != buffer.shape or tensor.dtype != buffer.dtype or buffer.swizzle:
        yield (
            f": box {box.shape} of {tensor.dtype.name} and slot {buffer.shape} of "
            f"{buffer.dtype.name} differ, or the slot is swizzled; make them the same"
        )
    first = next((axis for axis, n in enumerate(box.shape) if n > 1), len(box.shape) - 1)
    step = 1
    for axis in reversed(range(first, len(box.shape))):
        extent = tensor.extents[axis]
        part = axis > first and (extent, box.limit[axis]) != (box.shape[axis], box.shape[axis])
        if tensor.strides[axis] != step or part:
            yield (
                f": a bulk copy takes one run of memory; axis {axis} of {tensor.name} has extent "
                f"{extent} and stride {tensor.strides[axis]}, the box {box.shape[axis]}: take rows "
                "one at a time, or a tensor map"
            )
            return
        step *= box.shape[axis]
    unit = TMA_ROW // gcd(TMA_ROW, tensor.dtype.nbytes)
    if tensor.aligned % unit or buffer.start(0) % TMA_ROW or buffer.step % TMA_ROW:
        yield (
            f": a bulk copy goes from and to multiples of {TMA_ROW} bytes; {tensor.name} is "
            f"aligned to {tensor.aligned} elements, slots of {buffer.name} begin at byte "
            f"{buffer.offset} and every {buffer.step}: align them, or copy by threads"
        )
    if box.limit[first] == tensor.extents[first] and tensor.ragged and first + 1 == len(box.shape):
        yield (
            f": a bulk copy takes multiples of {TMA_ROW} bytes, {tensor.name} is ragged; end at a "
            f"multiple of {unit} elements, and move the rest by threads"
        )


def _slides(stmt: kir.Stmt) -> Iterable[str]:
    """Say what is wrong with the use of rows of which it is not said who holds what."""
    match stmt:
        case kir.Compute() | kir.Reduce():
            return
        case kir.Load(dst, src) if dst.layout.slides:
            layout = dst.layout
            box = src if isinstance(src, kir.Box) and layout.deal is kir.Deal.ROWS else None
            nbytes = layout.vector * dst.dtype.nbytes
            if box is None or box.tensor.strides[-1] != 1 or nbytes != SLIDE or stmt.fill:
                yield (
                    f": {dst.name} slides, by vectors of {nbytes} bytes; load rows of neighbours "
                    f"in memory, by {SLIDE} bytes in Deal.ROWS, and zeros beside them"
                )
        case _:
            named = (getattr(stmt, name, None) for name in ("dst", "src", "layout"))
            own = (one.layout if isinstance(one, kir.Fragment) else one for one in named)
            if any(isinstance(one, kir.Layout) and one.slides for one in own):
                yield ": nobody knows who holds what of a tile that slides; reduce its rows first"


def _part(stmt: kir.Load) -> Iterable[str]:
    if stmt.limit is None:
        return
    plain = isinstance(stmt.src, kir.Slot) and not stmt.src.buffer.swizzle
    plain = plain and not stmt.matrix and not stmt.transposed
    if not plain or len(stmt.limit) != len(stmt.dst.layout.shape):
        yield (
            ": a limit is of the rows and columns of a slot without a swizzle, one number an axis; "
            "drop it, or give the limit of the box"
        )
    elif any(end != 1 for end in stmt.limit[:-2]):
        yield f": a limit of {stmt.limit} cuts outer axes; make those 1"


def _cp_async(dst: kir.Slot, src: kir.Box, layout: kir.Layout, width: int) -> Iterable[str]:
    buffer, nbytes = dst.buffer, width * src.tensor.dtype.nbytes
    if nbytes not in CP_ASYNC:
        yield (f" copies {nbytes} bytes at a time; cp.async takes 4, 8 or 16: change width")
    if width < 1 or layout.vector % width:
        yield (
            f": width {width} must divide vector {layout.vector}; make the vector a multiple of it"
        )
    if dst.cta is not None:
        yield ": cp.async writes its own CTA's shared memory; drop cta"
    if src.tensor.dtype != buffer.dtype:
        yield (
            f" copies {src.tensor.dtype.name} into {buffer.dtype.name}; cp.async does not convert: "
            "make them the same"
        )
    if not src.shape == buffer.shape == layout.shape:
        yield (
            f": box {src.shape}, slot {buffer.shape} and layout {layout.shape} differ; make them "
            "the same"
        )


def _st_async(place: Place, stmt: kir.StAsync) -> Iterable[str]:
    nbytes, layout = stmt.width * stmt.dst.buffer.dtype.nbytes, stmt.src.layout
    if nbytes not in CP_ASYNC:
        yield f" stores {nbytes} bytes at a time; st.async takes 4, 8 or 16: change width"
    if place.kernel.cluster == 1:
        yield (
            " reaches into a cluster, but the kernel has no clusters; set Kernel.cluster, or use "
            "Store and MBarrierArrive"
        )
    many = layout.deal is kir.Deal.EACH_WARP
    if layout.threads != len(place.threads) or many:
        yield (
            f": {place.who} execute it, {stmt.src.name} is dealt to {layout.threads} "
            f"({layout.deal.value}); its bytes count once where each element has one thread"
        )


def _access(
    place: Place,
    frag: kir.Fragment,
    ref: kir.Box | kir.Slot,
    width: int,
    *,
    whole: bool,
) -> Iterable[str]:
    yield from known(place, ref)
    yield from dealt(place, frag.layout)
    shape = ref.shape if isinstance(ref, kir.Box) else ref.buffer.shape
    wanted = frag.layout.shape
    if len(shape) != len(wanted) or any(
        n not in (1, t) for n, t in zip(shape, wanted, strict=False)
    ):
        yield (
            f": a tile of {shape} does not broadcast to the fragment's {wanted}; make the extents "
            "equal, or 1"
        )
    elif whole and shape != wanted:
        yield (
            f": a store must not write one element from several registers; the tile is {shape}, "
            f"the fragment {wanted}: make them the same"
        )
    vector = 1 if frag.layout.folded > 1 else frag.layout.vector
    if wanted and vector > 0 and (wanted[-1] % vector or width < 1 or vector % width):
        yield (
            f": width {width} must divide vector {vector}, and that the last extent {wanted[-1]}; "
            "width 1 always does where the vector does"
        )
    dtype = ref.tensor.dtype if isinstance(ref, kir.Box) else ref.buffer.dtype
    if shape[-1:] != (1,) and width > 0 and width * dtype.nbytes not in ACCESS:
        yield (
            f": {width} elements of {dtype.name} are {width * dtype.nbytes} bytes; an access moves "
            f"{', '.join(map(str, ACCESS))}: use a width of at most {ACCESS[-1] // dtype.nbytes}"
        )


def known(place: Place, ref: kir.Box | kir.Slot) -> Iterable[str]:
    """Say where a box or slot is of something that is not declared, or does not fit it."""
    kernel = place.kernel
    match ref:
        case kir.Box(tensor, _, shape):
            if tensor not in kernel.tensors:
                yield undeclared("tensor", tensor.name, "tensors, with the same fields")
            if min(shape, default=1) < 1:
                yield f": a box of {shape} is empty; give every axis an element"
        case kir.Slot(buffer, index, cta):
            if buffer not in kernel.buffers:
                yield undeclared("shared buffer", buffer.name, "buffers, with the same fields")
            yield from no_slot(index, buffer)
            if cta is not None:
                yield from neighbour(cta, kernel.cluster)


def _folded(layout: kir.Layout) -> Iterable[str]:
    whole = layout.shape[-1] == 1
    match layout.deal:
        case kir.Deal.ROUND if layout.folded % layout.vector:
            says = f"{layout.folded} neighbours are no whole vectors of {layout.vector}"
        case kir.Deal.STRIPS if not whole:
            says = f"strips are folded by whole rows, not by {layout.folded} of them"
        case kir.Deal.EACH_WARP:
            says = "what each warp holds is not folded"
        case kir.Deal.ROWS:
            says = "what threads share row by row is not folded, but reduced to fewer columns"
        case _:
            return
    yield f": {says}; fold along rows of vectors in rounds, or of whole strips"


def dealt(place: Place, layout: kir.Layout) -> Iterable[str]:
    """Say what is wrong with a layout, for the threads that execute a statement."""
    if not layout.shape or min(layout.shape) < 1 or layout.vector < 1 or layout.threads < 1:
        yield f": a layout of {layout} holds nothing; use numbers of at least 1"
        return
    if layout.folded > 1:
        yield from _folded(layout)
        layout = layout.wide
    many, last = len(place.threads), layout.shape[-1]
    if layout.threads > many:
        yield (
            f": its layout deals to {layout.threads} threads, {place.who} execute it; use a layout "
            f"for {many}, or let all execute it"
        )
    strips = {kir.Deal.STRIPS: 16, kir.Deal.EACH_WARP: 8}
    match layout.deal:
        case kir.Deal.ROWS:
            yield from _by_rows(layout)
        case kir.Deal.ROUND:
            if last % layout.vector:
                yield (
                    f": rows of {last} are no whole vectors of {layout.vector}; use a vector that "
                    "divides them"
                )
        case kir.Deal.STRIPS | kir.Deal.EACH_WARP:
            rows = strips[layout.deal]
            *outer, along, _ = (1, *layout.shape)
            across = 4 * layout.vector
            fits = len(layout.shape) > 1 and max(outer) == 1 and not (along % rows or last % across)
            if not fits or layout.vector not in (1, 2, 4) or layout.threads % kir.WARP:
                yield (
                    f": {layout.deal.value} hold tiles of multiples of {rows} x {across}, by "
                    f"vectors of 1, 2 or 4 and whole warps; this one is {layout.shape}, by "
                    f"{layout.vector} and {layout.threads} threads"
                )
    if prod(layout.shape) > 1 << 20:
        yield f": a tile of {layout.shape} fits no registers; use a smaller one"


def _by_rows(layout: kir.Layout) -> Iterable[str]:
    """Say what is wrong with threads that share rows."""
    across, alike = layout.across, layout.alike
    if across < 1 or alike < 1 or layout.threads % across or across % alike:
        yield (
            f": {layout.threads} threads by {across} a row, of which {alike} hold the same; use "
            "numbers that divide each other"
        )
        return
    if across % kir.WARP and kir.WARP % across:
        yield f": {across} threads a row are neither whole warps nor do they divide one; use 32"
    groups, rows, step = layout.threads // across, prod(layout.shape[:-1]), layout.vector
    if rows > 1 and rows % groups:
        yield f": {groups} groups of threads take {rows} rows in turn; use a multiple, or one row"
    step *= layout.holders
    if layout.shape[-1] % step:
        yield (
            f": {layout.shape[-1]} columns, of which {layout.holders} threads take vectors of "
            f"{layout.vector}; use a multiple of {step}"
        )


# --- parts of tiles, and elements put together ---------------------------------------------------


def _sliced(stmt: kir.Slice) -> Iterable[str]:
    """Say what is wrong with columns that are taken of a tile, or with registers relabelled."""
    dst, src, column = stmt.dst, stmt.src, stmt.column
    if dst.dtype is not src.dtype:
        yield f": {src.dtype.name} into {dst.dtype.name}; make them the same"
    if stmt.relabels:
        yield from _relabelled(stmt, dst.layout, src.layout)
        return
    for part in (dst, src):
        if part.layout.deal is not kir.Deal.STRIPS:
            yield f" wants {part.name} in strips; give it Deal.STRIPS"
            return
    if dst.layout.shape[:-1] != src.layout.shape[:-1] or dst.layout.threads != src.layout.threads:
        yield (
            f": {dst.layout.shape} by {dst.layout.threads} threads is no part of "
            f"{src.layout.shape} by {src.layout.threads}; make rows and threads equal"
        )
    width, whole = dst.layout.shape[-1], src.layout.shape[-1]
    if column % 8 or not 0 <= column <= whole - width:
        yield (
            f": columns {column}..{column + width} of {whole}; begin at a multiple of 8 and end "
            "inside"
        )
    if not dst.layout.vector == src.layout.vector == 2:
        yield (
            f": vectors of {src.layout.vector} into {dst.layout.vector}; only accumulators are "
            "cut, use vectors of 2"
        )


def _unpacked(dst: kir.Fragment, src: kir.Fragment) -> Iterable[str]:
    """Say what is wrong with bytes that numbers of 4 bits are made of."""
    if src.dtype is not DType.I8 or dst.dtype not in (DType.I32, DType.F16, DType.BF16):
        yield f": {src.dtype.name} into {dst.dtype.name}; make i32, f16 or bf16 of i8"
    if {src.layout.deal, dst.layout.deal} != {kir.Deal.STRIPS} or max(
        src.layout.folded, dst.layout.folded
    ) > 1:
        yield f" wants {src.name} and {dst.name} in strips; give both Deal.STRIPS, not folded"
        return
    *rows, bytes_, vector = *src.layout.shape, src.layout.vector
    if (*rows, 2 * bytes_, 2 * vector, 1) != (*dst.layout.shape, dst.layout.vector, vector) or (
        src.layout.threads != dst.layout.threads
    ):
        yield (
            f": {dst.layout.shape} by vectors of {dst.layout.vector} and {dst.layout.threads} "
            f"threads, of bytes {src.layout.shape} by {vector} and {src.layout.threads}; give as "
            "many threads and rows two elements for each byte, vectors of 2 and 1"
        )


def _relabelled(stmt: kir.Slice, dst: kir.Layout, src: kir.Layout) -> Iterable[str]:
    strips, other = (dst, src) if dst.deal is kir.Deal.STRIPS else (src, dst)
    if (dst.shape, dst.threads) != (src.shape, src.threads) or stmt.column:
        yield (
            f": {dst.shape} by {dst.threads} threads has not the registers of {src.shape} by "
            f"{src.threads} from column {stmt.column} on; relabel whole tiles of one shape and as "
            "many threads"
        )
        return
    if strips.folded > 1 or other.folded > 1 or strips.vector != 2:
        yield (
            f": strips of vectors of {strips.vector}, folded by {strips.folded} and "
            f"{other.folded}; only whole accumulators are relabelled, use vectors of 2"
        )
        return
    rows, step = strips.shape[-2], 16 * (strips.threads // kir.WARP)
    elements, share = prod(other.shape), other.vector * other.threads
    if rows % step or elements % share:
        yield (
            f": {rows} rows in strips for every {step}, {elements} elements in rounds of {share}; "
            "give every thread as many, or take them through shared memory"
        )


def _gathered(
    kernel: kir.Kernel, dst: kir.Fragment, src: kir.Tensor, index: tuple[kir.Fragment, ...]
) -> Iterable[str]:
    if src not in kernel.tensors:
        yield f": {src.name} is no tensor of the kernel; add it to Kernel.tensors"
    if src.name in (*kernel.outputs, *kernel.workspaces):
        yield f": the kernel may write {src.name}; gather from a tensor that it only reads"
    if len(index) != len(src.extents):
        yield f": {len(index)} indices for the {len(src.extents)} axes of {src.name}; give each one"
    if dst.dtype is not src.dtype:
        yield f": {src.dtype} into {dst.dtype}; make them the same"
    for one in index:
        if one.dtype is not DType.I64 or one.layout != dst.layout:
            have = f"{one.name} is {one.dtype} in {one.layout}"
            yield f": {have}; use i64 in the layout of {dst.name}"


def _reduce(stmt: kir.Reduce, place: Place) -> Iterable[str]:
    dst, src = stmt.dst.layout, stmt.src.layout
    if place.elected:
        yield IN_ELECT
        return
    for layout in (dst, src):
        yield from dealt(place, layout)
    if stmt.op not in OPS:
        yield f": {stmt.op} is no way to put two together; use {', '.join(OPS)}"
    if stmt.dst.dtype is not stmt.src.dtype:
        yield (f": {stmt.src.dtype} into {stmt.dst.dtype}; make them the same")
    if kir.Deal.ROWS in (dst.deal, src.deal) and not stmt.down:
        yield from _rows(dst, src)
    elif src.folded > 1 or min(*src.shape, *dst.shape, src.vector, src.threads) < 1:
        yield f": {stmt.src.name} is folded already; reduce the fragment it is from"
    elif dst.folded > 1:
        yield from _along(stmt, dst, src)
    else:
        yield from _down(dst, src)


def _scan(stmt: kir.Scan, place: Place) -> Iterable[str]:
    dst, src, start = (part.layout for part in (stmt.dst, stmt.src, stmt.start))
    if place.elected:
        yield IN_ELECT
        return
    for layout in (dst, src, start):
        yield from dealt(place, layout)
    if stmt.op not in OPS:
        yield f": {stmt.op} is no way to put two together; use {', '.join(OPS)}"
    types = [part.dtype.name for part in (stmt.dst, stmt.src, stmt.start)]
    if len({*types}) > 1:
        yield f": types are {', '.join(types)}; make them the same"
    whole = (kir.Deal.ROWS, src.threads, src.across, False)
    if any((one.deal, one.threads, one.across, one.slides) != whole for one in (dst, src, start)):
        yield ": its fragments are shared by threads in several ways; use Deal.ROWS for all"
    elif src.threads % kir.WARP:
        yield f": {src.threads} threads are no whole warps; use a multiple of 32"
    elif dst.shape != src.shape:
        yield f": {dst.shape} of {src.shape}; give the result the shape of what is scanned"
    elif stmt.down:
        if dst != src or start != replace(src, shape=(*(1 for _ in src.shape[1:]), src.shape[-1])):
            yield f": {start} is no row of {src}; begin each column with an element of one row"
        elif src.across != src.threads:
            yield f": {src.across} of {src.threads} threads share a row; let all share each"
    elif start.shape[:-1] != src.shape[:-1] or (start.vector, start.holders) != (
        (1, start.shape[-1])
    ):
        yield f": {start} has no element for each run of {src}; give every run its own, by 1"
    elif stmt.of_lanes:
        lanes = start.alike
        if dst != src or src.alike != 1 or src.vector * src.holders != src.shape[-1]:
            yield f": threads have not one vector each of a row of {src}; use across x vector"
        elif lanes & (lanes - 1) or lanes > kir.WARP:
            yield f": a run is {lanes} lanes; a warp scans a power of two, at most {kir.WARP}"
    elif start.shape[-1] != 1:
        yield f": {start.shape[-1]} runs of a row that each thread holds; begin it with one"


def _along(stmt: kir.Reduce, dst: kir.Layout, src: kir.Layout) -> Iterable[str]:
    if dst.wide != src:
        yield (
            f": {stmt.dst.name} is a fold of {dst.wide.shape} by {dst.vector} and {dst.threads} "
            f"threads, {stmt.src.name} is {src.shape} by {src.vector} and {src.threads}; fold the "
            f"layout of {stmt.src.name}"
        )
    lanes = dst.folded // dst.vector
    if src.threads % kir.WARP:
        yield f": {src.threads} threads are no whole warps; use a multiple of 32"
    elif dst.deal is kir.Deal.ROUND and (lanes > kir.WARP or lanes & (lanes - 1)):
        yield (
            f": {dst.folded} neighbours lie in {lanes} lanes; a warp puts a power of two of them "
            f"together, at most {kir.WARP}"
        )


def _rows(dst: kir.Layout, src: kir.Layout) -> Iterable[str]:
    one_row = prod(src.shape[:-1]) == prod(dst.shape) == 1
    if one_row and dst.across == dst.alike == src.threads:  # each group has it, and so have all
        dst = replace(dst, across=src.across, alike=src.across)
    alike = (dst.deal, dst.threads, dst.across) == (src.deal, src.threads, src.across)
    alike = alike and not dst.slides
    if not alike or dst.shape[:-1] != src.shape[:-1] or min(dst.alike, src.alike, src.across) < 1:
        yield f": {src} is shared by other threads than {dst}, or has other rows; make them equal"
        return
    lanes, odd = divmod(dst.alike, src.alike)
    if odd or lanes & (lanes - 1) or (lanes > 1 and dst.alike > kir.WARP) or src.threads % kir.WARP:
        yield (
            f": {src.alike} threads hold the same, then {dst.alike}; a power of two as many do, of "
            f"one warp of {kir.WARP}"
        )
    elif (dst.shape[-1], dst.vector) != (dst.holders, 1):
        yield (
            f": {dst.holders} parts of a row are left, not {dst.shape[-1]} by {dst.vector}; use "
            f"{dst.holders} by 1"
        )


def _down(dst: kir.Layout, src: kir.Layout) -> Iterable[str]:
    rows, many = prod(dst.shape[:-1]), prod(src.shape[:-1])
    fewer = (*(1 for _ in src.shape[:-2]), rows, src.shape[-1])
    if dst != replace(src, shape=fewer) or many % rows or src.deal not in COLUMNS:
        yield (
            f": {dst.shape} by {dst.vector} and {dst.threads} threads is neither a fold of "
            f"{src.shape} by {src.vector} and {src.threads} nor a part of its rows; use either"
        )
    elif src.deal is kir.Deal.ROUND and rows * src.shape[-1] // src.vector % src.threads:
        yield (
            f": {rows} rows of {src.shape[-1]} by {src.vector} and {src.threads} threads: a thread "
            f"holds no whole columns; use rows of multiples of {src.vector * src.threads}"
        )
    elif src.deal is kir.Deal.ROWS and src.across != src.threads:
        yield f": {src.across} of {src.threads} threads share a row; let all of them share each"
