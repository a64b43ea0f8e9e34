"""What a legal Kernel is; runs after every pass and on kernels written by hand."""

from __future__ import annotations

from collections.abc import Iterable

from fuser import kernel_ir as kir
from fuser.errors import ScheduleError
from fuser.expr import Expr, Var, variables
from fuser.kernel_text import line


def validate(kernel: kir.Kernel, *, after: str = "kernel", final: bool = False) -> None:
    """Raise unless `kernel` is well formed.

    Parameters
    ----------
    kernel : Kernel
        The kernel to check.
    after : str
        What produced it; begins the message.
    final : bool
        Whether all passes have run: no `Copy` and no schedule request may be left.

    Raises
    ------
    ScheduleError
        With the offending line of the kernel's text.
    """
    for wrong in _problems(kernel, final=final):
        raise ScheduleError(f"after {after}: {wrong}")


def _problems(kernel: kir.Kernel, *, final: bool) -> Iterable[str]:
    if kernel.threads % kir.WARP or not 0 < kernel.threads <= 1024:
        yield (
            f"{kernel.name} has {kernel.threads} threads; "
            f"use a multiple of {kir.WARP}, at most 1024"
        )
    arguments = [t.name for t in kernel.tensors] + [s.name for s in kernel.scalars]
    shared = [b.name for b in kernel.buffers] + [m.name for m in kernel.barriers]
    for what, names in (("tensor", arguments), ("shared buffer or mbarrier", shared)):
        for name in names:
            if names.count(name) > 1:
                yield f"{kernel.name} has two {what}s named {name}; rename one"
    for name in kernel.outputs:
        if name not in {t.name for t in kernel.tensors}:
            yield f"{kernel.name} lists output {name}, which is no tensor of it"
    yield from _buffers(kernel)
    seen: set[int] = set()
    for stmt in kernel.walk():
        if id(stmt) in seen:
            yield f"`{line(stmt)}` is the same object twice; build it anew"
        seen.add(id(stmt))
    scope = frozenset({kir.BLOCK, kir.GRID, kir.RANK, *kernel.params})
    yield from _body(kernel, kernel.body, scope, elected=False)
    if final:
        for stmt in kernel.walk():
            if isinstance(stmt, kir.Copy):
                yield f"`{line(stmt)}` is asynchronous and no pass said how its end is observed"
            if isinstance(stmt, kir.ForLoop) and stmt.circular is not None:
                yield f"`{line(stmt)}` still asks for circular buffering"


def _buffers(kernel: kir.Kernel) -> Iterable[str]:
    for b in kernel.buffers:
        if b.offset % 128 or b.slots < 1:
            yield f"{b.name} has {b.slots} slots at byte {b.offset}; need >= 1 at a multiple of 128"
        if b.slots > 1 and b.slot_nbytes % 16:
            yield f"{b.name} has slots of {b.slot_nbytes} bytes; copies need multiples of 16"
    for m in kernel.barriers:
        if m.slots < 1 or not 1 <= m.arrivals < 1 << 20:
            yield f"{m.name} has {m.slots} slots of {m.arrivals} arrivals; need 1..1048575"


def _body(
    kernel: kir.Kernel,
    body: tuple[kir.Stmt, ...],
    scope: frozenset[Var],
    *,
    elected: bool,
) -> Iterable[str]:
    for stmt in body:
        for expr in _expressions(stmt):
            for var in sorted(variables(expr) - scope, key=str):
                yield f"`{line(stmt)}` uses {var}, which nothing defines before it"
        yield from _statement(kernel, stmt, elected=elected)
        match stmt:
            case kir.Let(var):
                scope = scope | {var}
            case kir.ForLoop(index, _, inner):
                yield from _body(kernel, inner, scope | {index}, elected=elected)
            case kir.IfThenElse(_, then, orelse):
                for branch in (then, orelse):
                    yield from _body(kernel, branch, scope, elected=elected)
            case kir.Role(_, _, _, inner):
                yield from _body(kernel, inner, scope, elected=elected)
            case kir.Elect(_, inner):
                yield from _body(kernel, inner, scope, elected=True)
            case _:
                pass


def _statement(kernel: kir.Kernel, stmt: kir.Stmt, *, elected: bool) -> Iterable[str]:
    match stmt:
        case kir.Role(_, first, warps):
            if first < 0 or warps < 1 or (first + warps) * kir.WARP > kernel.threads:
                yield f"`{line(stmt)}` leaves the {kernel.threads // kir.WARP} warps of the CTA"
        case kir.BlockSync(number, threads) | kir.NamedArrive(number, threads):
            if elected:
                yield f"`{line(stmt)}` stands inside an elect; whole warps must reach it"
            if not 0 <= number < 16 or threads % kir.WARP or not 0 < threads <= kernel.threads:
                yield f"`{line(stmt)}`: need barrier 0..15 and a multiple of 32 threads"
        case kir.WarpSync():
            if elected:
                yield f"`{line(stmt)}` stands inside an elect; whole warps must reach it"
        case (
            kir.MBarrierInit(barrier)
            | kir.MBarrierInvalidate(barrier)
            | kir.MBarrierArrive(barrier)
            | kir.MBarrierArriveExpectTx(barrier)
            | kir.MBarrierExpectTx(barrier)
            | kir.MBarrierWaitParity(barrier)
            | kir.CpAsyncMBarrierArrive(barrier)
        ):
            if barrier not in kernel.barriers:
                yield f"`{line(stmt)}` uses a barrier that the kernel does not declare"
        case kir.TmaLoad(dst, src, barrier):
            if barrier not in kernel.barriers:
                yield f"`{line(stmt)}` uses a barrier that the kernel does not declare"
            yield from _copy(kernel, stmt, dst, src, elected=elected)
        case kir.TmaStore(dst, src) | kir.TmaReduce(dst, src):
            yield from _copy(kernel, stmt, src, dst, elected=elected)
            if dst.tensor.aligned * dst.tensor.dtype.nbytes % 16:
                name = dst.tensor.name
                yield f"`{line(stmt)}`: the engine writes chunks of 16 bytes; align {name}"
        case kir.Load(dst, src, width):
            yield from _access(kernel, stmt, dst, src, width)
        case kir.Store(dst, src, width):
            yield from _access(kernel, stmt, src, dst, width)
            written = (*kernel.outputs, *kernel.workspaces)
            if isinstance(dst, kir.Box) and dst.tensor.name not in written:
                yield f"`{line(stmt)}` writes {dst.tensor.name}, which is not an output"
        case _:
            pass


def _copy(
    kernel: kir.Kernel, stmt: kir.Stmt, slot: kir.Slot, box: kir.Box, *, elected: bool
) -> Iterable[str]:
    yield from _known(kernel, stmt, slot)
    yield from _known(kernel, stmt, box)
    if not elected:
        yield f"`{line(stmt)}` must be issued by one thread; put it inside an elect"
    if box.limit != box.tensor.extents:
        yield f"`{line(stmt)}`: the copy engine clips at the tensor's extents, not elsewhere"
    if box.shape != slot.buffer.shape or box.tensor.dtype != slot.buffer.dtype:
        yield f"`{line(stmt)}`: box {box.shape} and slot {slot.buffer.shape} differ"
    if max(box.shape) > 256 or box.shape[-1] * box.tensor.dtype.nbytes % 16:
        yield f"`{line(stmt)}`: a box has at most 256 elements per axis, rows of 16-byte multiples"


def _access(
    kernel: kir.Kernel, stmt: kir.Stmt, frag: kir.Fragment, ref: kir.Box | kir.Slot, width: int
) -> Iterable[str]:
    yield from _known(kernel, stmt, ref)
    shape = ref.shape if isinstance(ref, kir.Box) else ref.buffer.shape
    tile = frag.layout.shape
    if len(shape) != len(tile) or any(n not in (1, t) for n, t in zip(shape, tile, strict=False)):
        yield f"`{line(stmt)}`: a tile of {shape} does not broadcast to the fragment's {tile}"
    if tile[-1] % frag.layout.vector or width < 1 or frag.layout.vector % width:
        yield f"`{line(stmt)}`: width {width} must divide vector {frag.layout.vector}"
    if isinstance(stmt, kir.Store) and shape != tile:
        yield f"`{line(stmt)}`: a store must not write one element from several registers"


def _known(kernel: kir.Kernel, stmt: kir.Stmt, ref: kir.Box | kir.Slot) -> Iterable[str]:
    match ref:
        case kir.Box(tensor, origin, shape, limit):
            if tensor not in kernel.tensors:
                yield f"`{line(stmt)}` uses a tensor that the kernel does not declare"
            if not len(origin) == len(shape) == len(limit) == len(tensor.extents):
                yield f"`{line(stmt)}`: origin, shape, limit and extents differ in rank"
        case kir.Slot(buffer):
            if buffer not in kernel.buffers:
                yield f"`{line(stmt)}` uses a shared buffer that the kernel does not declare"


def _expressions(stmt: kir.Stmt) -> tuple[Expr, ...]:
    """Return the expressions that a statement itself evaluates (not those of its body)."""
    match stmt:
        case kir.Let(_, value) | kir.Assign(_, value):
            return (value,)
        case kir.ForLoop(_, stop):
            return (stop,)
        case kir.IfThenElse(condition):
            return (condition,)
        case kir.MBarrierArrive(_, slot, _, cta):
            return (slot,) if cta is None else (slot, cta)
        case (
            kir.MBarrierArriveExpectTx(_, slot)
            | kir.MBarrierExpectTx(_, slot)
            | kir.CpAsyncMBarrierArrive(_, slot)
        ):
            return (slot,)
        case kir.CpAsync(dst, src):
            return (*_of(dst), *_of(src))
        case kir.AtomicAdd(dst):
            return _of(dst)
        case kir.Wgmma(_, a, b, accumulate):
            return (accumulate, *_of(b), *(_of(a) if isinstance(a, kir.Slot) else ()))
        case kir.MBarrierWaitParity(_, slot, parity):
            return (slot, parity)
        case kir.BlockSerializeWait(_, index, turn) | kir.BlockSerializeRelease(_, index, turn):
            return (index, turn)
        case kir.TmaLoad(dst, src, _, slot, multicast):
            mask = () if multicast is None else (multicast,)
            return (*_of(dst), *_of(src), slot, *mask)
        case kir.TmaStore(dst, src) | kir.TmaReduce(dst, src) | kir.Copy(dst, src):
            return (*_of(dst), *_of(src))
        case kir.Load(_, ref) | kir.Store(ref):
            return _of(ref)
        case kir.Coordinate(_, _, origin):
            return (origin,)
        case _:
            return ()


def _of(ref: kir.Box | kir.Slot) -> tuple[Expr, ...]:
    if isinstance(ref, kir.Box):
        return (*ref.origin, *ref.limit)
    return (ref.index,) if ref.cta is None else (ref.index, ref.cta)
