"""How a Kernel looks: one line per statement, in dumps, golden texts and witnesses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fuser.kernel import ir as kir


def text(kernel: kir.Kernel) -> str:
    """Return the whole kernel, declarations first, one line per statement."""
    return "\n".join(_lines(kernel)) + "\n"


def numbered(kernel: kir.Kernel) -> list[tuple[int, kir.Stmt]]:
    """Every statement with the line number (from 1) that it has in `text(kernel)`."""
    out = []
    first = sum(1 for _ in _header(kernel)) + 1
    for number, (_, stmt) in enumerate(_flat(kernel.body, 1), first):
        if stmt is not None:
            out.append((number, stmt))
    return out


def _lines(kernel: kir.Kernel) -> Iterator[str]:
    yield from _header(kernel)
    for depth, stmt in _flat(kernel.body, 1):
        yield "  " * depth + (line(stmt) if stmt is not None else "else")


def _header(kernel: kir.Kernel) -> Iterator[str]:
    params = ", ".join(p.name for p in kernel.params)
    head = f"kernel {kernel.name}({params}) threads={kernel.threads} smem={kernel.smem_bytes}"
    plain = {
        "cluster": 1,
        "residency": "any",
        "together": 1,
        "determinism": "bitwise",
        "registers": 0,
    }
    facts = {name: getattr(kernel, name) for name in plain}
    head += "".join(f" {n}={facts[n]}" for n in plain if facts[n] != plain[n])
    yield head + " dependent" * kernel.dependent
    for condition in kernel.requires:
        yield f"  requires {condition}"
    for t in kernel.tensors:
        role = "output" if t.name in kernel.outputs else "input"
        role = "workspace" if t.name in kernel.workspaces else role
        shape = ", ".join(f"{e}:{s}" for e, s in zip(t.extents, t.strides, strict=True))
        note = " ragged" * t.ragged + " early" * (t.name in kernel.early)
        note += "".join(f" cycle({c.each}, {c.period}, {c.stride})" for c in t.cycles)
        yield f"  {role} {t.name}: {t.dtype.name}[{shape}] aligned={t.aligned}{note}"
    for s in kernel.scalars:
        yield f"  scalar {s.name}: {s.dtype.name}"
    for b in kernel.buffers:
        shape = ", ".join(str(n) for n in b.shape)
        note = f" swizzle={b.swizzle}" if b.swizzle else ""
        note += f" pitch={b.pitch}" if b.pitch else ""
        yield f"  shared {b.name}: {b.dtype.name}[{shape}] slots={b.slots} at={b.offset}{note}"
    for m in kernel.barriers:
        where = "" if m.offset is None else f" at={m.offset}"
        yield f"  mbarrier {m.name}: arrivals={m.arrivals} slots={m.slots}{where}"
    for name in kernel.counters:
        yield f"  counter {name}"
    for semaphore in kernel.semaphores:
        yield f"  semaphore {semaphore.name}: count={semaphore.count}"
    for maps in kernel.maps:
        yield f"  maps {maps.name}: of={maps.tensor.name} slots={maps.slots}"


def _flat(body: tuple[kir.Stmt, ...], depth: int) -> Iterator[tuple[int, kir.Stmt | None]]:
    for stmt in body:
        yield depth, stmt
        if isinstance(stmt, kir.IfThenElse):
            yield from _flat(stmt.then, depth + 1)
            if stmt.orelse:
                yield depth, None
                yield from _flat(stmt.orelse, depth + 1)
        else:
            for inner in kir.bodies(stmt):
                yield from _flat(inner, depth + 1)


def place(ref: kir.Box | kir.Slot | kir.Fragment) -> str:
    """Write a tile: `T0[r0+16, c0+256]`, `S0[k % 3]` or `r0`."""
    match ref:
        case kir.Box(tensor, origin, shape, _, index):
            starts = list(map(str, origin))
            if index is not None:
                starts[index.axis] = place(index.src)
            spans = ", ".join(f"{o}+{n}" for o, n in zip(starts, shape, strict=True))
            return f"{tensor.name}[{spans}]"
        case kir.Slot(buffer, index, cta):
            return f"{buffer.name}[{index}]" + ("" if cta is None else f"@cta {cta}")
        case kir.Fragment(name):
            return name


def _through(ref: kir.MapSlot | None) -> str:
    if ref is None:
        return ""
    return f" through {ref.maps.name}[{ref.index}] from {', '.join(map(str, ref.origin))}"


def operand(arg: kir.Fragment | kir.ScalarParam | kir.Literal) -> str:
    """Write an argument of a Compute."""
    return str(arg.value) if isinstance(arg, kir.Literal) else arg.name


def line(stmt: kir.Stmt) -> str:
    """Write a statement on one line, without the statements inside it."""
    match stmt:
        case kir.Let(var, value):
            return f"let {var} = {value}"
        case kir.Assign(var, value):
            return f"{var} = {value}"
        case kir.ForLoop(index, stop, _, circular):
            note = f"  # {_request(circular)}" if circular else ""
            note += f"  # unrolled {stmt.unroll} times" if stmt.unroll > 1 else ""
            note += ", also beyond" if stmt.beyond else ""
            return f"for {index} in 0..{stop}{note}"
        case kir.Loop(index):
            return f"loop {index}"
        case kir.Fetch(var, src):
            return f"let {var} = fetch({place(src)})"
        case kir.Leave(var, stop):
            return f"leave if {stop} <= {var}"
        case kir.IfThenElse(condition):
            return f"if {condition}"
        case kir.Role(name, first_warp, warps):
            return f"role {name} warps {first_warp}..{first_warp + warps - 1}"
        case kir.Elect(per):
            return f"elect one thread per {per.value}"
        case kir.LastArriving(semaphore, index, ctas, _, barrier):
            note = f", barrier {barrier}" if barrier else ""
            return f"elect the last at {semaphore.name}[{index}] of {ctas} ctas{note}"
        case kir.Copy(dst, src, engine):
            plus = "+" if stmt.reduce else ""
            return f"{place(dst)} <~{plus} copy({place(src)}) by {engine.value}"
        case kir.TmaLoad(dst, src, barrier, slot, multicast):
            note = "" if multicast is None else f" multicast={multicast}"
            note += _through(stmt.through)
            verb = "bulk_load" if stmt.bulk else "tma_load"
            return f"{place(dst)} <~ {verb}({place(src)}) on {barrier.name}[{slot}]{note}"
        case kir.TmaStore(dst, src, through):
            verb = "bulk_store" if stmt.bulk else "tma_store"
            return f"{place(dst)} <~ {verb}({place(src)}){_through(through)}"
        case kir.TmaReduce(dst, src, through):
            return f"{place(dst)} <~+ tma_reduce({place(src)}){_through(through)}"
        case kir.TensorMapReplace(dst, limit):
            each = zip(dst.origin, limit, strict=True)
            spans = ", ".join(f"{first}..{end}" for first, end in each)
            name = dst.maps.tensor.name
            return f"{dst.maps.name}[{dst.index}] = tensor_map_replace({name}[{spans}])"
        case kir.CpAsync(dst, src, _, width):
            return f"{place(dst)} <~ cp_async({place(src)}, width={width})"
        case kir.QueueCopy(dst, src):
            return f"{place(dst)} <~ queue_copy({place(src)})"
        case kir.StAsync(dst, src, barrier, slot, width):
            return f"{place(dst)} <~ st_async({src.name}, width={width}) on {barrier.name}[{slot}]"
        case kir.Draw(dst, counter, atomic):
            return f"{place(dst)} = draw({counter}{'' if atomic else ', not atomic'})"
        case kir.AtomicAdd(dst, src):
            return f"{place(dst)} += atomic_add({src.name})"
        case kir.Wgmma(acc, a, _, accumulate, b_transposed, a_transposed):
            note = ", a_transposed" if a_transposed else ""
            note += ", b_transposed" if b_transposed else ""
            plus = "" if accumulate == 0 else f" + {acc.name}"
            plus += "" if isinstance(accumulate, int) else f" if {accumulate}"
            right = " | ".join(map(place, stmt.columns))
            return f"{acc.name} <~ wgmma({place(a)}, {right}{note}){plus}"
        case kir.Mma(acc, a, b):
            return f"{acc.name} = mma({a.name}, {b.name}) + {acc.name}"
        case kir.Load(dst, src, width, fill, matrix, transposed):
            note = f", fill={fill}" if fill else ""
            note += ", matrix" if matrix else ""
            note += ", transposed" if transposed else ""
            return f"{dst.name} = load({place(src)}, width={width}{note})"
        case kir.Store(dst, src, width, matrix, transposed):
            note = ", matrix" if matrix else ""
            note += ", transposed" if transposed else ""
            return f"{place(dst)} = store({src.name}, width={width}{note})"
        case kir.Compute(dst, op, args):
            return f"{dst.name} = {op}({', '.join(operand(a) for a in args)})"
        case kir.Slice(dst, src, 0) if stmt.relabels:
            return f"{dst.name} = relabel({src.name})"
        case kir.Slice(dst, src, column):
            return f"{dst.name} = slice({src.name}, column={column})"
        case kir.Unpack(dst, src):
            return f"{dst.name} = unpack({src.name})"
        case kir.Reduce(dst, src, op):
            return f"{dst.name} = reduce({src.name}, {op})"
        case kir.Scan(dst, src, op, start, exclusive):
            note = ", exclusive" if exclusive else ""
            return f"{dst.name} = scan({src.name}, {op}, start={start.name}{note})"
        case kir.GridSum(acc, workspace, semaphore, index, turn, turns):
            at = f"{semaphore.name}[{index}], turn {turn} of {turns}"
            at += "" if stmt.op == "add" else f", {stmt.op}"
            at += "" if stmt.staged is None else f", by tma from {place(stmt.staged)}"
            return f"{acc.name} = grid_sum({acc.name}, {place(workspace)}, {at})"
        case kir.GridShare(workspace, semaphore, index, ctas, alone):
            note = ", read by the last" if alone else ""
            return f"grid_share({workspace}, {semaphore.name}[{index}], {ctas} ctas{note})"
        case kir.Gather(dst, src, index):
            return f"{dst.name} = gather({src.name}[{', '.join(one.name for one in index)}])"
        case kir.Coordinate(dst, axis, origin):
            return f"{dst.name} = coordinate(axis={axis}, origin={origin})"
        case _:
            return _sync_line(stmt)


def _request(asked: kir.CircularBuffer) -> str:
    words = [f"ring of {asked.stages}, prefetch {asked.prefetch}"]
    if asked.specialized is not None:
        words.append("two computing roles in turn" if asked.specialized.ping_pong else "load role")
    if asked.position is not None:
        words.append(f"position {asked.position}")
    return ", ".join(words)


def _sync_line(stmt: kir.Sync) -> str:
    match stmt:
        case kir.BlockSync(barrier, threads):
            return f"block_sync({barrier}, {threads})"
        case kir.NamedArrive(barrier, threads):
            return f"named_arrive({barrier}, {threads})"
        case kir.WarpSync():
            return "warp_sync()"
        case kir.MBarrierInit(barrier):
            return f"mbarrier_init({barrier.name}, {barrier.arrivals})"
        case kir.MBarrierInvalidate(barrier):
            return f"mbarrier_invalidate({barrier.name})"
        case kir.MBarrierArrive(barrier, slot, scope, cta, count, space):
            where = "" if space is kir.Space.ALL else f", {space.value}"
            where += "" if cta is None else f", cta={cta}"
            where += "" if count == 1 else f", count={count}"
            return f"mbarrier_arrive({barrier.name}[{slot}], {scope.value}{where})"
        case kir.MBarrierArriveExpectTx(barrier, slot, nbytes):
            return f"mbarrier_arrive_expect_tx({barrier.name}[{slot}], {nbytes})"
        case kir.MBarrierExpectTx(barrier, slot, nbytes):
            return f"mbarrier_expect_tx({barrier.name}[{slot}], {nbytes})"
        case kir.MBarrierWaitParity(barrier, slot, parity, scope, retry):
            note = "" if retry else ", no retry"
            return f"mbarrier_wait_parity({barrier.name}[{slot}], {parity}, {scope.value}{note})"
        case kir.AsyncCommit(kind):
            return f"async_commit({kind.value})"
        case kir.AsyncAwait(kind, keep, read_only):
            note = ", read_only" if read_only else ""
            return f"async_await({kind.value}, keep={keep}{note})"
        case kir.CpAsyncMBarrierArrive(barrier, slot, noinc):
            note = ", noinc" if noinc else ""
            return f"cp_async_mbarrier_arrive({barrier.name}[{slot}]{note})"
        case kir.FenceAsyncProxy(space):
            return f"fence_async_proxy({space.value})"
        case kir.TensorMapRelease():
            return "tensor_map_release()"
        case kir.TensorMapAcquire(maps, index):
            return f"tensor_map_acquire({maps.name}[{index}])"
        case kir.FenceMBarrierInit():
            return "fence_mbarrier_init()"
        case kir.ThreadFence(scope):
            return f"thread_fence({scope.value})"
        case kir.WgmmaFence():
            return "wgmma_fence()"
        case kir.ClusterArrive(relaxed):
            return f"cluster_arrive({'relaxed' if relaxed else 'release'})"
        case kir.ClusterWait():
            return "cluster_wait()"
        case kir.BlockSerializeWait(semaphore, index, turn, scope, barrier):
            note = "" if scope is kir.Scope.GPU else f", {scope.value}"
            note += f", barrier {barrier}" if barrier else ""
            return f"block_serialize_wait({semaphore.name}[{index}], turn={turn}{note})"
        case kir.GridSync(semaphore, index, ctas, barrier):
            note = f", barrier {barrier}" if barrier else ""
            return f"grid_sync({semaphore.name}[{index}], {ctas} ctas{note})"
        case kir.BlockSerializeRelease(semaphore, index, turn, scope, relaxed):
            note = "" if scope is kir.Scope.GPU else f", {scope.value}"
            note += ", relaxed" if relaxed else ""
            return f"block_serialize_release({semaphore.name}[{index}], turn={turn}{note})"
        case kir.GridDependencyWait():
            return "grid_dependency_wait()"
        case kir.GridDependencyLaunch():
            return "grid_dependency_launch()"
        case kir.SetMaxNReg(registers, increase):
            return f"set_max_nreg({registers}, {'increase' if increase else 'decrease'})"


_SHORT: dict[type, str] = {
    kir.TmaLoad: "{dst} <~ tma_load{cast}",
    kir.TmaStore: "{dst} <~ tma_store({src})",
    kir.TmaReduce: "{dst} <~ tma_reduce({src})",
    kir.CpAsync: "{dst} <~ cp_async({src})",
    kir.QueueCopy: "{dst} <~ queue_copy({src})",
    kir.StAsync: "{dst} <~ st_async({src}) on {barrier}",
    kir.TensorMapReplace: "{own} = tensor_map_replace",
    kir.TensorMapAcquire: "tensor_map_acquire({own})",
    kir.Wgmma: "{acc} <~ wgmma({left}, {right})",
    kir.Load: "{dst} = {load}({src})",
    kir.Store: "{dst} = {store}({src})",
    kir.MBarrierArrive: "{barrier}{peer} arrive{times}",
    kir.MBarrierArriveExpectTx: "{barrier} arrive, expect {nbytes} bytes",
    kir.MBarrierExpectTx: "{barrier} expect {nbytes} bytes",
    kir.CpAsyncMBarrierArrive: "{barrier} arrive once the copies are done",
    kir.MBarrierWaitParity: "{barrier} wait parity {parity}{once}",
    kir.BlockSerializeWait: "{semaphore} wait for turn {turn}",
    kir.BlockSerializeRelease: "{semaphore} give turn {turn}",
    kir.GridSync: "{semaphore} meet {ctas} CTAs",
    kir.LastArriving: "{semaphore} arrive as {which} of {ctas} CTAs",
}
"""How a statement looks in a witness."""


def short(stmt: kir.Stmt, numbers: Mapping[str, int]) -> str:
    """Return what a statement does, in short, with numbers in place of expressions.

    Parameters
    ----------
    numbers : mapping
        `slot` of a buffer (`a` of a left operand), `bar` of an mbarrier, `parity`, `turn`, `ctas`,
        `last` (whether it is), `cta` reached, `cast`, a mask of CTAs, and `map`, the number of a
        tensor map; those that there are.
    """
    peer = f" of CTA {numbers['cta']}" if "cta" in numbers else ""

    def at(name: str, key: str) -> str:
        return f"{name}[{numbers[key]}]" if key in numbers else name

    def tile(ref: object, key: str = "slot") -> str:
        if isinstance(ref, kir.Slot):
            return at(ref.buffer.name, key) + peer
        return str(ref.tensor.name if isinstance(ref, kir.Box) else getattr(ref, "name", ""))

    ranks = [rank for rank in range(16) if numbers.get("cast", 0) >> rank & 1]
    matrix = isinstance(stmt, kir.Load | kir.Store) and stmt.matrix
    maps = getattr(getattr(stmt, "dst", stmt), "maps", None)
    parts = {name: tile(getattr(stmt, name, None)) for name in ("dst", "src", "acc", "semaphore")}
    known = parts | dict(numbers) | {
        "barrier": at(tile(getattr(stmt, "barrier", None)), "bar"),
        "peer": peer,
        "own": at(maps.name, "map") if maps else "",
        "times": f" for {times}" if (times := getattr(stmt, "count", 1)) > 1 else "",
        "cast": f" to CTAs {', '.join(map(str, ranks))}" if ranks else "",
        "left": tile(getattr(stmt, "a", None), "a"),
        "right": " | ".join(map(tile, stmt.columns)) if isinstance(stmt, kir.Wgmma) else "",
        "nbytes": getattr(stmt, "nbytes", 0),
        "once": "" if getattr(stmt, "retry", True) else ", once",
        "which": "the last" if numbers.get("last") else "one",
        "load": "ldmatrix" if matrix else "load",
        "store": "stmatrix" if matrix else "store",
    }  # fmt: skip
    return _SHORT.get(type(stmt), "").format(**known) or line(stmt)
