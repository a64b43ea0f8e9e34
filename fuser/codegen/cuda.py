"""Kernel -> CUDA C++: spells, decides nothing.  One statement, one line, one device function.

The functions are those of `fuser/device/*.cuh`, under the names of the statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count as count_up

from fuser.codegen.counters import declared, ring_of
from fuser.codegen.expr import REGISTER, assigned, condition, divisors, fixed_lets, less, spell
from fuser.codegen.mma import instructions, needs_warpgroup, product_line
from fuser.codegen.registers import Path, Registers, count, kept, plan
from fuser.codegen.roles import SECOND, merged
from fuser.codegen.sync import last_arriving, sync_line
from fuser.codegen.tile import NOWHERE, place_of, slot, tile_line
from fuser.errors import ScheduleError
from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from fuser.kernel.tensor_map import maps_of

INCLUDES = ("tile", "math", "threads", "mbarrier", "tma", "fence", "semaphore")
"""Device headers of every kernel, in order."""

TICKET = "ticket"
"""The parameter from which CTAs draw their numbers: one integer, 0 before and after a launch."""

_DRAWN = 4
"""Bytes of shared memory through which a CTA learns its number."""


def source(kernel: kir.Kernel, registers: Registers | None = None) -> str:
    """Return the CUDA C++ of a kernel; ScheduleError if the hardware cannot do what it says.

    `registers` is its plan (`fuser.codegen.registers.plan`), where that is known.
    """
    return "\n".join(_lines(kernel, registers or plan(kernel))) + "\n"


def parameters(kernel: kir.Kernel) -> list[str]:
    """Names of the kernel's parameters, in order.

    Tensors, integers, reciprocals, scalars, semaphores, the ticket where CTAs draw one, memory for
    tensor maps, tensor maps.
    """
    return [
        *(t.name for t in kernel.tensors),
        *(p.name for p in kernel.params),
        *(by.name for by in divisors(kernel).values()),
        *(s.name for s in kernel.scalars),
        *counters(kernel),
        *(m.name for m in kernel.maps),
        *(m.name for m in maps_of(kernel)),
    ]


def counters(kernel: kir.Kernel) -> list[str]:
    """Names of the parameters that point to integers in global memory, 0 when a launch starts."""
    drawn = [TICKET] if kernel.residency == "ticket" else []
    return [*(s.name for s in kernel.semaphores), *drawn, *kernel.counters]


def shared_bytes(kernel: kir.Kernel) -> int:
    """Bytes of dynamic shared memory of a launch."""
    return max(kernel.smem_bytes, _DRAWN if kernel.residency == "ticket" else 0)


def is_wide(kernel: kir.Kernel, param: Var) -> bool:
    """Tell whether a parameter has 64 bits: a stride, unless it is one of a tensor that is near.

    A multiple of a stride of 32 bits is one instruction, of 64 bits three.
    """
    return any(
        param in (*t.strides, *(cycle.stride for cycle in t.cycles))
        and param not in t.extents
        and not t.near
        for t in kernel.tensors
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    """What the lines of a body need to know of their kernel, and of their role's threads."""

    kernel: kir.Kernel
    threads: int
    registers: Registers
    changing: frozenset[Var]
    lets: dict[Var, Expr]
    divisors: dict[Expr, Var]
    places: Mapping[str, str] = field(default_factory=lambda: NOWHERE)
    numbers: Iterator[int] = field(default_factory=count_up)


def _lines(kernel: kir.Kernel, registers: Registers) -> Iterator[str]:
    for name in (*INCLUDES, *_needed(kernel)):
        yield f'#include "{name}.cuh"'
    yield ""
    shapes = list(instructions(kernel))
    if shapes:
        yield from (*shapes, "")
    yield 'extern "C" __global__ void'
    if kernel.cluster > 1:
        yield f"__cluster_dims__({kernel.cluster}, 1, 1)"
    yield f"__launch_bounds__({kernel.threads}, {kernel.resident})"
    yield f"{kernel.name}("
    yield ",\n".join(f"    {word}" for word in _signature(kernel))
    yield ") {"
    changing, lets = assigned(kernel), fixed_lets(kernel)
    writer = _Writer(kernel, kernel.threads, registers, changing, lets, divisors(kernel))
    yield from _prologue(kernel)
    yield from _body(writer, kernel.body, ())
    yield "}"


def _needed(kernel: kir.Kernel) -> list[str]:
    asynchronous = {kir.AsyncKind.CP_ASYNC: "cp_async", kir.AsyncKind.WGMMA: "wgmma"}
    found: set[str | None] = set()
    for stmt in kernel.walk():
        match stmt:
            case kir.AtomicAdd() | kir.Draw():
                found.add("atomic")
            case kir.CpAsync():
                found.add("cp_async")
            case kir.TmaLoad(bulk=True) | kir.TmaStore(bulk=True):
                found.add("bulk")
            case kir.StAsync():
                found.add("st_async")
            case kir.AsyncCommit(kind) | kir.AsyncAwait(kind):
                found.add(asynchronous.get(kind))
            case kir.Mma():
                found.add("mma")
            case kir.TensorMapReplace() | kir.TensorMapRelease() | kir.TensorMapAcquire():
                found.add("tensor_map")
            case kir.Reduce():
                found.add("reduce")
            case kir.Scan():
                found.add("scan")
            case kir.Wgmma() | kir.WgmmaFence():
                found.add("wgmma")
            case kir.Load() | kir.Store() if stmt.matrix:
                found.add("matrix")
            case kir.Load() | kir.Store() if stmt.transposed:
                found.add("transpose")
            case _:
                pass
    return sorted(name for name in found if name)


def _signature(kernel: kir.Kernel) -> Iterator[str]:
    read = {
        stmt.src.tensor.name
        for stmt in kernel.walk()
        if isinstance(stmt, kir.Load | kir.CpAsync) and isinstance(stmt.src, kir.Box)
    }
    for t in kernel.tensors:
        written = t.name in (*kernel.outputs, *kernel.workspaces)
        const = "" if written else "const "
        # What engines or other CTAs write may look to the compiler like memory that nobody writes:
        # restricted, it would be loaded through the path that is not coherent.
        restrict = "" if written and t.name in read else " __restrict__"
        yield f"{const}{t.dtype.cuda}*{restrict} {t.name}"
    near = _within(kernel)
    for p in kernel.params:
        kind = "int64" if is_wide(kernel, p) else "int"
        yield f"const {kind} {f'{p.name}_given' if p in near else p.name}"
    for by in divisors(kernel).values():
        yield f"const uint64 {by}"
    for s in kernel.scalars:
        yield f"const {REGISTER[s.dtype]} {s.name}"
    for name in counters(kernel):
        yield f"{'uint32' if name == TICKET else 'int'}* {name}"
    for own in kernel.maps:
        yield f"TensorMap* {own.name}"
    for m in maps_of(kernel):
        yield f"const __grid_constant__ TensorMap {m.name}"


def _within(kernel: kir.Kernel) -> dict[Var, tuple[int, int]]:
    """Return the parameters that a launch has between two multiples of a power of 2, and these.

    What lies below the first is then known to be less.  Layer norm of rows of 257 to 272 elements,
    by 16 threads each: 408 instructions for 584, without 16 of 17 comparisons for each access.
    """
    above = {
        one.b: one.a
        for one in kernel.requires
        if isinstance(one, Op) and one.kind is Kind.LT and isinstance(one.a, int)
    }
    found: dict[Var, tuple[int, int]] = {}
    for one in kernel.requires:
        match one:
            case Op(Kind.LE, Var() as param, int() as most) if param in kernel.params:
                first = above.get(param, 0)
                many = most - first
                if first > 0 and many > 0 and not many & (many - 1) and first % many == 0:
                    found[param] = first, many
            case _:
                pass
    return found


def _prologue(kernel: kir.Kernel) -> Iterator[str]:
    if shared_bytes(kernel):
        yield "  extern __shared__ __align__(1024) unsigned char smem[];"
    for b in kernel.buffers:
        yield f"  {b.dtype.cuda}* const {b.name} = tile::shared<{b.dtype.cuda}>(smem + {b.offset});"
    for m in kernel.barriers:
        at = kernel.barrier_at(m)
        yield f"  uint64* const {m.name} = tile::shared<uint64>(smem + {at});"
    if kernel.smem_bytes:
        yield f"  FUSER_POISON(smem, {kernel.smem_bytes});"
    where = {kir.BLOCK: _number(kernel), kir.GRID: "gridDim.x", kir.RANK: "threads::cluster_rank()"}
    used = {var for stmt in kernel.walk() for e in kir.expressions(stmt) for var in variables(e)}
    used |= {kir.BLOCK} if kernel.maps else set()
    for var, value in where.items():
        if var in used:
            yield f"  const int {spell(var)} = {value};"
    yield "  const int tid = threadIdx.x;"
    for param, (first, many) in _within(kernel).items():
        yield f"  const int {param} = math::within<{first}, {many}>({param}_given);"
    yield from _warpgroup(kernel.body, "  ")


def _number(kernel: kir.Kernel) -> str:
    """Write how a CTA learns its number."""
    match kernel.residency:
        case "ticket" if kernel.cluster > 1:
            raise ScheduleError(
                f'Kernel({kernel.name}, residency="ticket", cluster={kernel.cluster}): CTAs of a '
                'cluster cannot draw numbers of their own; use residency="co-resident"'
            )
        case "ticket":
            return f"threads::ticket({TICKET}, smem)"
        case _:
            return "blockIdx.x"


def _body(writer: _Writer, body: tuple[kir.Stmt, ...], at: Path) -> Iterator[str]:
    pad = "  " * (1 + len(at) // 2)
    written = -1
    for n, stmt in enumerate(body):
        if n <= written:
            continue
        path = (*at, n)
        for frag in writer.registers.declared.get(path, ()):
            yield f"{pad}{_declaration(frag, writer.registers)}"
        if isinstance(stmt, kir.Wgmma | kir.Mma):
            yield f"{pad}{product_line(stmt, writer.registers)}"
            continue
        if isinstance(stmt, kir.Data):
            reduces = isinstance(stmt, kir.Reduce)
            packed = kept(writer.registers, body, path) if reduces else ()
            words = tile_line(stmt, writer.kernel, writer.registers, packed, writer.places)
            yield f"{pad}{words}"
            continue
        match stmt:
            case kir.ForLoop(index, stop, inner):
                begin, going = "0", less(index, stop, writer.lets)
                places = _places(writer, stmt)
                yield from (f"{pad}const int {name} = {told};" for told, name in places.items())
                within = replace(writer, places={**writer.places, **places})
                if stmt.beyond:
                    begin, many = f"{index}_0", stmt.unroll
                    more = less(Var(begin), stop, writer.lets)
                    yield f"{pad}for (int {begin} = 0; {more}; {begin} += {many})"
                    going = f"{index} < {begin} + {many}"
                if stmt.unroll > 1:
                    yield f"{pad}#pragma unroll {stmt.unroll}"
                # Where iterations are written out, the compiler knows their slots.
                ring = 0 if isinstance(stop, int) or stmt.unroll > 1 else ring_of(index, inner)
                yield f"{pad}for ({declared(index, begin, ring)}; {going}; ++{index}) {{"
                yield from _body(within, inner, (*path, 0))
                yield f"{pad}}}"
            case kir.Loop(index, inner):
                yield f"{pad}for ({declared(index, '0', ring_of(index, inner))};; ++{index}) {{"
                yield from _body(writer, inner, (*path, 0))
                yield f"{pad}}}"
            case kir.Fetch(var, src):
                yield f"{pad}const int {var} = *({slot(src)});"
            case kir.Leave(var, stop):
                yield f"{pad}if ({var} >= {spell(stop)}) break;"
            case kir.IfThenElse(when, then, orelse):
                yield f"{pad}if ({condition(when, writer.lets)}) {{"
                yield from _body(writer, then, (*path, 0))
                if orelse:
                    yield f"{pad}}} else {{"
                    yield from _body(writer, orelse, (*path, 1))
                yield f"{pad}}}"
            case kir.Role():
                both = _two_roles(writer, body, path)
                written = n + bool(both)
                yield from both or _role(writer, stmt, path)
            case kir.Elect(per, inner):
                yield f"{pad}if (threads::elect_per_{per.value}(tid)) {{"
                yield from _body(writer, inner, (*path, 0))
                yield f"{pad}}}"
            case kir.LastArriving():
                yield f"{pad}if ({last_arriving(stmt, writer.threads)}) {{"
                yield from _body(writer, stmt.body, (*path, 0))
                yield f"{pad}}}"
            case kir.Let(var, value) if var in writer.changing:
                ring = ring_of(var, writer.kernel.body)
                yield f"{pad}{declared(var, spell(value, writer.divisors), ring)};"
            case kir.Let(var, value):
                yield f"{pad}const int {var} = {spell(value, writer.divisors)};"
            case kir.Assign(var, value):
                yield f"{pad}{var} = {spell(value)};"
            case _:
                names = writer.registers.names
                pinned = tuple(names[frag] for frag in writer.registers.visible(path))
                yield f"{pad}{sync_line(stmt, pinned, writer.threads)}"


def _places(writer: _Writer, loop: kir.ForLoop) -> dict[str, str]:
    """Return what indices say that is the same in all iterations of a loop, and its names.

    By how it is written.  The thread that issues the copies would load it again for each.
    """
    inside = [*kir.walk(loop.body)]
    if any(isinstance(stmt, kir.GridDependencyWait) for stmt in inside):
        return {}
    made = {loop.index}
    for stmt in inside:
        match stmt:
            case kir.Let(var) | kir.Assign(var) | kir.Fetch(var):
                made.add(var)
            case kir.ForLoop(index) | kir.Loop(index):
                made.add(index)
            case _:
                pass
    found: dict[str, str] = {}
    for stmt in inside:
        if not isinstance(stmt, kir.TmaLoad) or stmt.src.index is None:
            continue
        told = stmt.src.index
        ends = (*told.src.origin, *told.src.limit, stmt.src.limit[told.axis])
        written = place_of(stmt.src, told)
        fixed = all(map(made.isdisjoint, map(variables, ends)))
        if fixed and written not in found and written not in writer.places:
            found[written] = f"{stmt.src.tensor.name}_place{next(writer.numbers)}"
    return found


def _role(writer: _Writer, role: kir.Role, path: Path) -> Iterator[str]:
    pad = "  " * (len(path) // 2 + 1)
    yield f"{pad}if (threads::in_role<{role.first_warp}, {role.warps}>()) {{  // {role.name}"
    yield f"{pad}  const int tid = threads::of_role<{role.first_warp}>();"
    yield from _warpgroup(role.body, pad + "  ")
    yield from _body(replace(writer, threads=role.warps * kir.WARP), role.body, (*path, 0))
    yield f"{pad}}}"


def _two_roles(writer: _Writer, body: tuple[kir.Stmt, ...], path: Path) -> list[str]:
    """Write the role at a path and the one behind it as one, if one text does for both."""
    behind = (*path[:-1], path[-1] + 1)
    match body[path[-1] : path[-1] + 2]:
        case (kir.Role(one, first, warps, ours), kir.Role(two, then, others, theirs)):
            if then != first + warps or warps != others or writer.registers.declared.get(behind):
                return []
            pad = "  " * (len(path) // 2 + 1)
            each = replace(writer, threads=warps * kir.WARP)
            inner = merged(
                [*_warpgroup(ours, pad + "  "), *_body(each, ours, (*path, 0))],
                [*_warpgroup(theirs, pad + "  "), *_body(each, theirs, (*behind, 0))],
            )
            if inner is None:
                return []
            return [
                f"{pad}if (threads::in_role<{first}, {2 * warps}>()) {{  // {one}, {two}",
                f"{pad}  const int {SECOND} = threads::second_role<{first}, {warps}>();",
                f"{pad}  const int tid = threads::of_role<{first}>() - {32 * warps} * {SECOND};",
                *inner,
                f"{pad}}}",
            ]
        case _:
            return []


def _warpgroup(body: tuple[kir.Stmt, ...], pad: str) -> Iterator[str]:
    """Declare the number of the warpgroup in its role, where products of the role need it."""
    if any(needs_warpgroup(stmt) for stmt in _of_role(body)):
        yield f"{pad}const int warpgroup = threads::warpgroup(tid);"


def _of_role(body: tuple[kir.Stmt, ...]) -> Iterator[kir.Stmt]:
    for stmt in body:
        yield stmt
        if not isinstance(stmt, kir.Role):
            for inner in kir.bodies(stmt):
                yield from _of_role(inner)


def _declaration(frag: kir.Fragment, registers: Registers) -> str:
    name, many = registers.names[frag], count(frag.layout)
    if frag in registers.packed:
        return f"uint32 {name}[{many * frag.dtype.nbytes // 4}];"
    return f"{REGISTER[frag.dtype]} {name}[{many}];"
