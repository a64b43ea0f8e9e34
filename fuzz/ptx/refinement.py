"""What was proved is what was printed: the events of a kernel's PTX are those of its Kernel IR.

Each thread of a launch must have executed the synchronising statements of its program, in order,
with the same barriers, phases, counts, bytes, scopes and groups.  This is a reading of the Kernel
IR of its own: nothing of a judge is asked.

Allowed differences, and why:

- One copy or product may be several instructions (boxes of a swizzled slot, shapes of wgmma).
- Loads that poll a semaphore are none of the events: how many there are is the schedule's.  The
  barrier, the increments and the stores around them are.
- `cp.async`, bulk copies without a map, atomics and ordinary accesses are not compared: threads
  leave them out where they have no elements.
- Which CTA arrives last, and which number a CTA draws as it starts, is taken from the run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fuser.expr import Expr, Kind, Op, Var, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.ptx.judge import NAME
from oracles.ptx.log import PARTS, Event, Log, Trace
from oracles.verdict import Finding, Status, Verdict

MOST = 3
"""Differences that are named."""
KIND = "refinement"
Env = dict[Var, int]
Walk = Generator[tuple[kir.Stmt | None, Event], int, None]
"""Yields a statement (None for what stands before all of them) and the event that it is; is sent
what that returned."""


class NotReadError(Exception):
    """The events depend on more than the launch."""


def value(expr: Expr, env: Mapping[Var, int]) -> int:
    """Return an expression's value."""
    match expr:
        case int():
            return expr
        case Var():
            return env[expr]
        case Op(kind, left, right):
            a, b = value(left, env), value(right, env)
    match kind:
        case Kind.ADD:
            return a + b
        case Kind.SUB:
            return a - b
        case Kind.MUL:
            return a * b
        case Kind.FLOORDIV:
            return a // b
        case Kind.MOD:
            return a % b
        case Kind.MIN:
            return min(a, b)
        case Kind.MAX:
            return max(a, b)
        case Kind.LT:
            return int(a < b)
        case Kind.LE:
            return int(a <= b)
        case Kind.EQ:
            return int(a == b)
        case Kind.AND:
            return int(a != 0 and b != 0)


@dataclass(frozen=True, slots=True)
class Role:
    """The warps of a statement's role: the first of them, and how many."""

    first: int
    warps: int

    @property
    def threads(self) -> int:
        """Threads of the role."""
        return self.warps * kir.WARP


class Reader:
    """The program of one thread, given by its warp and lane."""

    def __init__(self, kernel: kir.Kernel, env: Mapping[Var, int], warp: int, lane: int) -> None:
        self._kernel, self._env = kernel, dict(env)
        self._warp, self._lane = warp, lane

    def walk(self) -> Walk:
        """Go through the kernel."""
        if draws_ticket(self._kernel):
            yield from self._ticket()
        yield from self._body(self._kernel.body, Role(0, self._kernel.threads // kir.WARP))

    def _ticket(self) -> Walk:
        """Draw the number of the CTA (`threads::ticket`)."""
        if self._warp == self._lane == 0:
            yield None, ("increment", "relaxed")
        yield None, ("bar.sync", 0, self._kernel.threads)
        yield None, ("fence.proxy", "shared")
        yield None, ("bar.sync", 0, self._kernel.threads)

    def _body(self, body: tuple[kir.Stmt, ...], role: Role) -> Walk:
        env = self._env
        outer: dict[Var, int | None] = {}
        for stmt in body:
            match stmt:
                case kir.Let(var, of):
                    outer.setdefault(var, env.get(var))
                    env[var] = value(of, env)
                case kir.Assign(var, of):
                    env[var] = value(of, env)
                case kir.ForLoop(index, stop, inner):
                    outer.setdefault(index, env.get(index))
                    for i in range(value(stop, env)):
                        env[index] = i
                        yield from self._body(inner, role)
                case kir.IfThenElse(condition, then, orelse):
                    yield from self._body(then if value(condition, env) else orelse, role)
                case kir.Role(_, first, warps, inner):
                    if first <= self._warp < first + warps:
                        yield from self._body(inner, Role(first, warps))
                case kir.Elect(per, inner):
                    if self._elected(per, role):
                        yield from self._body(inner, role)
                case kir.LastArriving(_, _, _, inner, barrier):
                    yield stmt, ("bar.sync", barrier, role.threads)
                    if self._first(role):
                        yield stmt, ("increment", "acq_rel")
                    if (yield stmt, ("bar.red", barrier, role.threads)):
                        yield from self._body(inner, role)
                case kir.Loop() | kir.Fetch() | kir.Leave():
                    raise NotReadError("CTAs draw their tiles")
                case _:
                    for event in self._events(stmt, role):
                        yield stmt, event
        for var, before in outer.items():
            if before is None:
                env.pop(var, None)
            else:
                env[var] = before

    def _first(self, role: Role) -> bool:
        return self._warp == role.first and self._lane == 0

    def _elected(self, per: kir.Per, role: Role) -> bool:
        match per:
            case kir.Per.ROLE:
                return self._first(role)
            case kir.Per.WARP:
                return self._lane == 0
            case kir.Per.WARPGROUP:
                return self._lane == 0 and (self._warp - role.first) % 4 == 0

    def _at(self, barrier: kir.MBarrier, slot: Expr) -> tuple[int, int]:
        """Return where a slot of the CTA's own lies."""
        return -1, self._kernel.barrier_at(barrier) + 8 * value(slot, self._env)

    def _events(self, stmt: kir.Stmt, role: Role) -> Iterator[Event]:
        env = self._env
        match stmt:
            case kir.BlockSync(barrier, threads):
                yield "bar.sync", barrier, threads
            case kir.NamedArrive(barrier, threads):
                yield "bar.arrive", barrier, threads
            case kir.WarpSync():
                yield ("warp sync",)
            case kir.MBarrierInit(barrier):
                for slot in range(barrier.slots):
                    yield "mbarrier init", *self._at(barrier, slot), barrier.arrivals
            case kir.MBarrierInvalidate(barrier):
                for slot in range(barrier.slots):
                    yield "mbarrier inval", *self._at(barrier, slot)
            case kir.MBarrierArrive(barrier, slot, scope, cta, count, space):
                own, at = self._at(barrier, slot)
                if space is kir.Space.SHARED:
                    yield "fence", scope.value, space.value
                rank = own if cta is None else value(cta, env)
                rank = own if rank == env[kir.RANK] else rank
                yield "mbarrier arrive", scope.value, rank, at, count
            case kir.MBarrierArriveExpectTx(barrier, slot, nbytes):
                yield "mbarrier arrive, expect", *self._at(barrier, slot), value(nbytes, env)
            case kir.MBarrierExpectTx(barrier, slot, nbytes):
                yield "mbarrier expect", *self._at(barrier, slot), value(nbytes, env)
            case kir.MBarrierWaitParity(barrier, slot, parity, scope, retry):
                if not retry:
                    raise NotReadError("a wait may give up")
                yield "mbarrier wait", scope.value, *self._at(barrier, slot), value(parity, env)
            case kir.CpAsyncMBarrierArrive(barrier, slot, noinc):
                yield "cp.async arrive", "noinc" if noinc else "inc", *self._at(barrier, slot)
            case kir.AsyncCommit(kind):
                yield "commit", kind.value
            case kir.AsyncAwait(kind, keep, read_only):
                yield "await", kind.value, keep, "read" if read_only else "all"
            case kir.FenceAsyncProxy(space):
                yield "fence.proxy", space.value
            case kir.FenceMBarrierInit():
                yield ("fence.mbarrier_init",)
            case kir.ThreadFence(scope):
                yield "fence", scope.value
            case kir.WgmmaFence():
                yield ("wgmma.fence",)
            case kir.ClusterArrive(relaxed):
                yield "cluster arrive", "relaxed" if relaxed else "release"
            case kir.ClusterWait():
                yield ("cluster wait",)
            case kir.BlockSerializeWait():
                yield "bar.sync", stmt.barrier, role.threads
            case kir.BlockSerializeRelease(_, _, turn, scope, relaxed):
                order = "relaxed" if relaxed else "release"
                yield "store", order, scope.value, value(turn, env)
            case kir.GridSync(_, _, _, barrier):
                yield "bar.sync", barrier, role.threads
                if self._first(role):
                    yield "increment", "acq_rel"
                    yield "increment", "relaxed"
                yield "bar.sync", barrier, role.threads
            case kir.GridDependencyWait():
                yield "griddepcontrol", "wait"
            case kir.GridDependencyLaunch():
                yield "griddepcontrol", "launch_dependents"
            case kir.SetMaxNReg(registers, _):
                yield "setmaxnreg", registers
            case kir.TmaLoad(_, _, barrier, slot) if not stmt.bulk:
                yield "tensor load", *self._at(barrier, slot)
            case kir.TmaStore() if not stmt.bulk:
                yield ("tensor store",)
            case kir.TmaReduce():
                yield ("tensor store",)
            case kir.Wgmma():
                yield ("wgmma",)
            case kir.TensorMapReplace() | kir.TensorMapRelease() | kir.TensorMapAcquire():
                raise NotReadError("it writes tensor maps")
            case _:
                pass  # no event


def draws_ticket(kernel: kir.Kernel) -> bool:
    """Tell whether the CTAs of a kernel draw the numbers that they have."""
    if kernel.residency != "ticket":
        return False
    used = {var for stmt in kernel.walk() for e in kir.expressions(stmt) for var in variables(e)}
    return kir.BLOCK in used or bool(kernel.maps)


def refines(kernel: kir.Kernel, values: Mapping[Var, int], log: Log) -> Verdict:
    """Compare what each thread of a launch executed with the statements of its program.

    Parameters
    ----------
    kernel : Kernel
        As it was printed.
    values : mapping
        Of every parameter and of `GRID`.
    log : Log
        Of the launch (`oracles.ptx.judge.run`), which has ended.

    Returns
    -------
    Verdict
        UNSUPPORTED where the events depend on more than the launch.
    """
    grid, threads = values[kir.GRID], kernel.threads
    traces = log.traces(grid * threads)
    lines = {id(stmt): number for number, stmt in numbered(kernel)}
    positions = [_positions(kernel, warp) for warp in range(threads // kir.WARP)]
    found: dict[str, Finding] = {}
    checked = 0
    try:
        for cta in range(grid):
            right: dict[Position, Trace] = {}
            mine = traces[cta * threads : (cta + 1) * threads]
            block = int(mine[0].results[0]) if draws_ticket(kernel) and len(mine[0].codes) else cta
            env = {**values, kir.BLOCK: block, kir.RANK: cta % kernel.cluster}
            for thread, trace in enumerate(mine):
                warp, lane = divmod(thread, kir.WARP)
                checked += len(trace.codes) + 1
                if lane > 1 and np.array_equal(trace.codes, mine[thread - 1].codes):
                    continue  # as the lane before it, whose program it has
                position = positions[warp][lane > 0]
                if position in right and _same(trace, right[position]):
                    continue  # as a thread of another warp that has its program, and was right
                said = _difference(Reader(kernel, env, warp, lane).walk(), trace, log, lines)
                if said is None:
                    right[position] = trace
                elif len(found) < MOST:
                    who = f"CTA {cta} t{thread}: " if grid > 1 else f"t{thread}: "
                    found.setdefault(said.where, replace(said, witness=who + said.witness))
    except NotReadError as error:
        return Verdict(NAME, Status.UNSUPPORTED, 0, reason=f"refinement: {error}")
    status = Status.FAIL if found else Status.PASS
    return Verdict(NAME, status, checked, tuple(found.values()))


Position = tuple[tuple[bool, ...], ...]
"""All that decides the program of a thread in its CTA: of each role whether its warp is in it, and
whether it is elected there, by role and by warpgroup."""


def _positions(kernel: kir.Kernel, warp: int) -> tuple[Position, Position]:
    """Return those of the first lane of a warp, and of its others."""
    roles = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.Role)]
    spans = [(0, kernel.threads // kir.WARP), *((role.first_warp, role.warps) for role in roles)]
    inside = [first <= warp < first + warps for first, warps in spans]
    first_lane = tuple(
        (within, within and warp == first, within and (warp - first) % 4 == 0)
        for within, (first, _) in zip(inside, spans, strict=True)
    )
    return first_lane, tuple((within,) for within in inside)


def _same(one: Trace, other: Trace) -> bool:
    """Tell whether two threads executed the same events, which returned the same."""
    alike = np.array_equal(one.codes, other.codes)
    return alike and np.array_equal(one.results, other.results)


def _difference(walk: Walk, trace: Trace, log: Log, lines: Mapping[int, int]) -> Finding | None:
    """Return where a trace leaves its program, and how; None if it does not."""
    n = 0
    try:
        stmt, wanted = next(walk)
        while True:
            got = log.events[trace.codes[n]] if n < len(trace.codes) else None
            if got != wanted:
                at = int(trace.lines[n]) if got else 0
                return _told(stmt, wanted, got, lines, at)
            result = int(trace.results[n])
            n += 1
            before = wanted
            stmt, wanted = walk.send(result)
            while wanted == before and wanted[0] in PARTS:
                stmt, wanted = walk.send(result)
    except StopIteration:
        if n == len(trace.codes):
            return None
        return _told(None, None, log.events[trace.codes[n]], lines, int(trace.lines[n]))


def _told(
    stmt: kir.Stmt | None,
    wanted: Event | None,
    got: Event | None,
    lines: Mapping[int, int],
    at: int,
) -> Finding:
    """Name the line of both: a statement and its event, and what stands at a line of the PTX."""
    theirs = "the prologue" if wanted else "the end of the kernel"
    if stmt is not None:
        theirs = f"line {lines[id(stmt)]} of the kernel `{line(stmt)}`"
    ours = f"line {at} of the PTX" if got else "the end of the PTX"
    wants, has = (" ".join(map(str, one)) if one else "nothing" for one in (wanted, got))
    witness = f"`{wants}` is to follow, `{has}` does"
    return Finding(KIND, f"{theirs}, {ours}", witness, lines=(at,) if got else ())
