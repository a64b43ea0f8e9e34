"""Kernels written, before z3 is asked, as equivalent ones with one loop, one role and one CTA.

*Numbered slots* (`by_number`).  A buffer whose slots are given by numbers alone is several buffers.

*Loops in loops* (`levels`).  Threads that run the same steps of the same tiles run one long loop
over p = 0, 1, ...; what they do once a tile is another loop, over t.  Each is written as a kernel
of its own.

*Loops with ifs that ask for `k % m`* (`unrolled`) are loops with the bodies of m iterations.  With
trips = m * t + r, for each r, iteration k = m * j + i is part i of iteration j.  The last iteration
has only its first r parts, by a guard.  A slot that depends on `k % m` is a number then.

*Clusters* (`whole`) are one CTA with the threads and the shared memory of all.  What a thread of
rank r does to its own shared memory it does here to the part of rank r; a remote arrival is an
arrival on that part's mbarrier, a multicast is one copy for each of its CTAs, and the cluster's
barrier is a `BlockSync` of all threads.

*Roles that take tiles alternately* (`teamed`) are one role.  Of m roles with the same steps, role i
takes the tiles t with t % m == i and skips the others.  If each thread of a role is done with the
steps of its tile before the same thread of the next role begins with those of the next tile, then
both are one thread that runs the steps of all tiles: what was program order there is an order that
mbarriers grant here.  For each remainder of the number of tiles one more kernel asks for that
order: in it every thread stores to a word of its own number, the baton, instead of its steps.

A kernel that has something of the kind, but not as it is described here, is `UnsupportedError`.

Notes
-----
*Order of loops in loops*.  A kernel from which statements are left out requires less of its events,
so what is proved of the rest holds in the whole kernel; and if each obligation is proved in the one
or the other, no execution has a first violation.  That needs every pair of accesses to be in one of
the two kernels: they may share no buffer, no barrier and no groups, else the answer is unsupported.
What touches nothing shared (registers, tensors) is in neither.

*Deadlock of loops in loops*.  `Levels.whole` does everything at every step, as if each tile had
one.  Its schedule gives one for any number of steps a tile: move what is done before a tile's steps
to its first one, what is done after them to its last one.  Requirements along a thread stretch with
it; so do those on earlier tiles, for they come at least as many steps apart.  What would not is a
wait before the steps of a tile for what others do after them, or one for a later tile; both are
refused.  With no steps at all the same schedule serves, without them.

*Clusters*.  A CTA has no more orders than a cluster if scopes are wide enough, which is asked
first: what arrives on another CTA's mbarrier releases at cluster scope, and whoever waits on an
mbarrier that another CTA arrives on acquires at cluster scope.  Release and acquire add up along a
chain, so that the steps of it within one CTA may be of CTA scope.  Initialisation owes
`FenceMBarrierInit`, and nobody may leave before the others are done with its shared memory: the
last statement is a wait for the cluster.

*Deadlock of alternating roles*.  The waits of a role stand before the steps of a tile, the arrivals
for the next role behind.  A schedule of the one role goes with them: a wait for what a later tile
does would close a circle with the order of the baton, which would have no schedule of its own.

*Results* leave behind the signals for the next role, through things that a role has to itself
(`private`): staging, its barrier, its groups, so that the next role's steps need not wait for it.
The one role does with those of the first what each does with its own.

*Groups*.  An await sees the groups of its own warp only, not those of the role before; so each step
has to await all that it committed.

Source: PTX ISA, "Memory consistency model" (causality order), "mbarrier.arrive",
"cp.async.bulk.tensor", "barrier.cluster".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, takewhile

from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, Var, substitute, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import numbered
from oracles.prover.arithmetic import UnsupportedError, function, period, replace_tree
from oracles.prover.sites import REGISTERS_ONLY, mbarrier, slots


class Lines:
    """The lines of statements, and of those made of them, in the text of the first kernel."""

    def __init__(self, kernel: kir.Kernel) -> None:
        self._of = {id(stmt): (number, stmt) for number, stmt in numbered(kernel)}

    def __getitem__(self, stmt: kir.Stmt) -> int:
        """Return the line of a statement, 0 of one that has none."""
        return self._of[id(stmt)][0] if id(stmt) in self._of else 0

    def kept(self, old: kir.Stmt, new: kir.Stmt) -> kir.Stmt:
        """Give a new statement the line of the old one, and return it."""
        self._of[id(new)] = self[old], new  # it must live, else its id is given to another
        return new


@dataclass(frozen=True, slots=True)
class Whole:
    """A kernel, and the lines of its statements in the text of the one it is made of."""

    kernel: kir.Kernel
    lines: Lines


def with_slots(stmt: kir.Stmt, to: Callable[[kir.Slot], kir.Slot]) -> kir.Stmt:
    """Return a statement with other slots."""
    match stmt:
        case kir.Load(_, kir.Slot() as slot) | kir.TmaStore(_, slot) | kir.TmaReduce(_, slot):
            return replace(stmt, src=to(slot))
        case kir.Store(kir.Slot() as slot) | kir.TmaLoad(slot) | kir.CpAsync(slot):
            return replace(stmt, dst=to(slot))
        case kir.Wgmma(_, a, b):
            first = to(a) if isinstance(a, kir.Slot) else a
            more = tuple(to(slot).buffer for slot in stmt.columns[1:])
            return replace(stmt, a=first, b=to(b), beside=more)
        case _:
            return stmt


def by_number(one: Whole) -> Whole:
    """Return the same kernel with a buffer for each slot, where slots are given by numbers alone.

    A buffer that is used in turn is a ring; one of numbered slots is none, such as the staging of a
    result that leaves in chunks.
    """
    used: dict[str, set[Expr]] = {}
    for stmt in one.kernel.walk():
        for slot in slots(stmt):
            used.setdefault(slot.buffer.name, set()).add(slot.index)
    parted = {
        buffer.name
        for buffer in one.kernel.buffers
        if buffer.slots > 1 and used.get(buffer.name, set()) <= set(range(buffer.slots))
    }

    def part(slot: kir.Slot) -> kir.Slot:
        if slot.buffer.name not in parted or not isinstance(slot.index, int):
            return slot
        return replace(slot, buffer=_part(slot.buffer, slot.index), index=0)

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if any(slot.buffer.name in parted for slot in slots(stmt)):
            return [one.lines.kept(stmt, with_slots(stmt, part))]
        return None

    if not parted:
        return one
    buffers: list[kir.Buffer] = []
    for buffer in one.kernel.buffers:
        parts = [_part(buffer, at) for at in range(buffer.slots)]
        buffers += parts if buffer.name in parted else [buffer]
    return Whole(replace(one.kernel.rewrite(rule), buffers=tuple(buffers)), one.lines)


def _part(buffer: kir.Buffer, at: int) -> kir.Buffer:
    """Return one slot of a buffer as a buffer."""
    return replace(buffer, name=f"{buffer.name}[{at}]", slots=1, offset=buffer.start(at))


def alone(stmt: kir.Stmt) -> bool:
    """Whether a statement touches nothing that threads of a CTA share."""
    match stmt:
        case kir.Load(_, kir.Box()) | kir.Store(kir.Box()):
            return True
        case _:
            return isinstance(stmt, REGISTERS_ONLY)


FLAT = Var("steps of all tiles")
"""How many steps a CTA runs, all tiles together."""
AT = Var("step of all tiles")
"""Their number."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The two kernels, and one that stands for both in the question of deadlock.

    `slow` are the mbarriers (and other shared things) of the tiles, by name.
    """

    steps: kir.Kernel
    tiles: kir.Kernel
    whole: kir.Kernel
    slow: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Nest:
    """A loop over tiles: what it does before, in and after its loop over steps."""

    outer: kir.ForLoop
    before: tuple[kir.Stmt, ...]
    inner: kir.ForLoop | None
    after: tuple[kir.Stmt, ...]
    stops: tuple[Expr, Expr]

    @property
    def steps(self) -> tuple[kir.Stmt, ...]:
        """What it does in a step."""
        return () if self.inner is None else self.inner.body


def levels(kernel: kir.Kernel) -> Levels | None:
    """Return the levels of a kernel; None if no loop of symbolic length stands in another."""
    nests = list(_nests(kernel.body, {}))
    deep = [nest for nest in nests if nest.inner is not None]
    if not deep:
        return None
    stop, steps = deep[0].stops
    for nest in nests:
        if nest.stops[0] != stop or (nest.inner is not None and nest.stops[1] != steps):
            raise UnsupportedError(f"loops over {nest.outer.index} of different lengths")
    positions = _positions(kernel, deep)
    slow = _apart(nests)
    return Levels(
        _rewritten(kernel, nests, positions, steps=True, tiles=False),
        _rewritten(kernel, nests, positions, steps=False, tiles=True),
        _rewritten(kernel, nests, positions, steps=True, tiles=True),
        slow,
    )


def _nests(body: tuple[kir.Stmt, ...], known: Mapping[Var, Expr]) -> Iterator[_Nest]:
    """Yield the outermost loops of symbolic length."""
    lets = dict(known)
    for stmt in body:
        match stmt:
            case kir.Let(var, value):
                lets[var] = substitute(value, lets)
            case kir.Role(_, _, _, inner) | kir.Elect(_, inner):
                yield from _nests(inner, lets)
            case kir.ForLoop(_, stop) if not isinstance(substitute(stop, lets), int):
                yield _nest(stmt, lets)
            case _:
                if any(isinstance(s, kir.Assign) for s in kir.walk((stmt,))):
                    raise UnsupportedError("a position advances outside the loops")


def _nest(outer: kir.ForLoop, lets: Mapping[Var, Expr]) -> _Nest:
    loops = [s for s in kir.walk(outer.body) if isinstance(s, kir.ForLoop)]
    long = [s for s in loops if not isinstance(substitute(s.stop, lets), int)]
    stop = substitute(outer.stop, lets)
    if not long:
        return _Nest(outer, (), None, outer.body, (stop, 0))
    inner = long[0]
    if len(long) > 1 or not any(s is inner for s in outer.body):
        raise UnsupportedError(f"loops over {inner.index} inside one over {outer.index}")
    steps = substitute(inner.stop, lets)
    defined = {s.var for s in outer.body if isinstance(s, kir.Let)} | {outer.index}
    if variables(steps) & defined:
        raise UnsupportedError(f"the steps over {inner.index} depend on the tile")
    at = next(i for i, s in enumerate(outer.body) if s is inner)
    before, after = outer.body[:at], outer.body[at + 1 :]
    for stmt in kir.walk(before):
        if isinstance(stmt, kir.SYNCS) and not isinstance(stmt, kir.AsyncAwait | kir.WgmmaFence):
            raise UnsupportedError(f"{type(stmt).__name__} before the steps of a tile")
    return _Nest(outer, before, inner, after, (stop, steps))


def _positions(kernel: kir.Kernel, deep: list[_Nest]) -> dict[Var, int]:
    """Return the positions that advance by one a step, with their first values."""
    allowed: dict[int, Var] = {}
    for nest in deep:
        at_end = takewhile(lambda stmt: isinstance(stmt, kir.Assign), reversed(nest.steps))
        sets = [s.var for s in nest.steps if isinstance(s, kir.Assign)]
        for stmt in at_end:
            assert isinstance(stmt, kir.Assign), "just asked"
            if stmt.value != Op(Kind.ADD, stmt.var, 1) or sets.count(stmt.var) > 1:
                raise UnsupportedError(f"{stmt.var} does not advance by one a step")
            allowed[id(stmt)] = stmt.var
    first: dict[Var, int] = {}
    for stmt in kernel.walk():
        if isinstance(stmt, kir.Assign) and id(stmt) not in allowed:
            raise UnsupportedError(f"{stmt.var} advances elsewhere than at the end of a step")
        if isinstance(stmt, kir.Let) and stmt.var in allowed.values():
            start = stmt.value
            if not isinstance(start, int) or first.setdefault(stmt.var, start) != start:
                raise UnsupportedError(f"{stmt.var} starts at {start}")
    if set(first) != set(allowed.values()):
        raise UnsupportedError("a position advances that no let defines")
    for nest in deep:
        lets = [s for s in kir.walk((nest.outer,)) if isinstance(s, kir.Let)]
        if any(s.var in first for s in lets):
            raise UnsupportedError("a position starts anew with each tile")
    return first


def _apart(nests: list[_Nest]) -> frozenset[str]:
    """Return what tiles use; check that steps use other buffers, barriers and groups."""
    steps: set[object] = set()
    tiles: set[object] = set()
    for nest in nests:
        for stmt in kir.walk(nest.steps):
            steps |= set(_used(stmt))
        for stmt in kir.walk((*nest.before, *nest.after)):
            tiles |= set(_used(stmt))
            if isinstance(stmt, kir.Wgmma) or stmt == kir.AsyncCommit(kir.AsyncKind.WGMMA):
                raise UnsupportedError("wgmma once a tile")
    both = steps & tiles
    if both:
        names = ", ".join(sorted(map(str, both)))
        raise UnsupportedError(f"steps and tiles share {names}")
    return frozenset(map(str, tiles))


def _used(stmt: kir.Stmt) -> Iterator[object]:
    """Yield what a statement uses that threads share, or that is counted."""
    yield from (slot.buffer.name for slot in slots(stmt))
    if (used := mbarrier(stmt)) is not None:
        yield used.name
    match stmt:
        case kir.BlockSync(number) | kir.NamedArrive(number):
            yield f"barrier {number}"
        case kir.AsyncCommit(kind) | kir.AsyncAwait(kind) if kind is not kir.AsyncKind.WGMMA:
            yield kind
        case kir.TmaStore() | kir.TmaReduce():
            yield kir.AsyncKind.BULK
        case kir.CpAsync():
            yield kir.AsyncKind.CP_ASYNC
        case kir.BlockSerializeWait() | kir.BlockSerializeRelease() | kir.GridSync():
            raise UnsupportedError("a semaphore in a loop over tiles")
        case _:
            pass


def _rewritten(
    kernel: kir.Kernel,
    nests: list[_Nest],
    positions: Mapping[Var, int],
    *,
    steps: bool,
    tiles: bool,
) -> kir.Kernel:
    """Return the kernel with only the statements of these levels.

    A position means nothing but in the steps: where it is used elsewhere, it stays unknown.
    """
    known = {id(nest.outer): nest for nest in nests}

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if alone(stmt) or (isinstance(stmt, kir.Let) and stmt.var in positions):
            return []
        if id(stmt) not in known:
            return None
        nest = known[id(stmt)]
        if not steps:
            inner = kir.rewrite((*nest.before, *nest.after), rule)
            return [replace(nest.outer, body=inner)]
        body: tuple[kir.Stmt, ...] = ()
        if nest.inner is not None:
            moves = {s.var for s in nest.steps if isinstance(s, kir.Assign)}
            starts = positions.items()
            lets = (kir.Let(var, AT + at if var in moves else at) for var, at in starts)
            inside = kir.rewrite(nest.steps, rule)
            body = (*lets, *(s for s in inside if not isinstance(s, kir.Assign)))
        if not tiles:
            return [kir.ForLoop(AT, FLAT, body)] if body else []
        tile = kir.Let(nest.outer.index, AT)
        before, after = kir.rewrite(nest.before, rule), kir.rewrite(nest.after, rule)
        return [kir.ForLoop(AT, FLAT, (tile, *before, *body, *after))]

    return kernel.rewrite(rule)


ROUNDS = Var("rounds")
"""How many whole rounds of m iterations there are."""
ROUND = Var("round")
"""Their number."""
MOST = 4
"""Largest m; the bodies grow with it, and the kernels too."""
_FENCES = kir.FenceAsyncProxy | kir.WgmmaFence | kir.ThreadFence
_SYNCS = kir.WarpSync | kir.AsyncCommit | kir.AsyncAwait | _FENCES
_COPIES = kir.Load | kir.Store | kir.TmaStore | kir.CpAsync | kir.Wgmma
_VALUES = kir.Compute | kir.Slice | kir.Reduce | kir.Coordinate
_UNROLLED = _COPIES | _VALUES | kir.BlockSync | kir.NamedArrive | _SYNCS


def unrolled(one: Whole) -> list[Whole]:
    """Return what a kernel is for each remainder of its trips; itself if no if asks for `k % m`."""
    loops = [s for s in one.kernel.walk() if isinstance(s, kir.ForLoop)]
    loops = [loop for loop in loops if not isinstance(loop.stop, int)]
    asked = {m for loop in loops for m in _asked(loop)}
    if not asked:
        return [one]
    (by, *others) = sorted(asked)
    if others or by > MOST or len({loop.stop for loop in loops}) > 1:
        raise UnsupportedError(f"{one.kernel.name}: different things every {sorted(asked)} trips")
    rests = (_Unrolled(one, by, rest) for rest in range(by))
    return [by_number(Whole(one.kernel.rewrite(part.loop), one.lines)) for part in rests]


def _asked(loop: kir.ForLoop) -> Iterator[int]:
    """Yield every m of which an if in a loop asks for `k % m`."""

    def remainders(expr: Expr) -> Iterator[int]:
        match expr:
            case Op(Kind.MOD, Var() as var, int() as by) if var == loop.index:
                yield by
            case Op(_, a, b):
                yield from remainders(a)
                yield from remainders(b)
            case _:
                pass

    for stmt in kir.walk(loop.body):
        if isinstance(stmt, kir.IfThenElse) and not all(map(alone, (*stmt.then, *stmt.orelse))):
            yield from remainders(stmt.condition)


class _Unrolled:
    """The kernel for one remainder of its trips."""

    def __init__(self, one: Whole, by: int, rest: int) -> None:
        self.one, self.by, self.rest = one, by, rest

    def loop(self, stmt: kir.Stmt) -> list[kir.Stmt] | None:
        """Return a loop as one over rounds."""
        if not isinstance(stmt, kir.ForLoop) or isinstance(stmt.stop, int):
            return None
        stop: Expr = ROUNDS + 1 if self.rest else ROUNDS
        body: list[kir.Stmt] = []
        for part in range(self.by):
            inner = self._body(stmt.body, stmt, part)
            late = self.rest and part >= self.rest
            body += [kir.IfThenElse(ROUND < ROUNDS, inner)] if late else inner
        return [kir.ForLoop(ROUND, stop, tuple(body))]

    def _body(
        self, body: tuple[kir.Stmt, ...], loop: kir.ForLoop, part: int
    ) -> tuple[kir.Stmt, ...]:
        def expr(old: Expr) -> Expr:
            plain = replace_tree(old, Op(Kind.MOD, loop.index, self.by), part)
            plain = replace_tree(plain, Op(Kind.FLOORDIV, loop.index, self.by), ROUND)
            plain = replace_tree(plain, loop.stop, ROUNDS * self.by + self.rest)
            return substitute(plain, {loop.index: ROUND * self.by + part})

        def slot(old: kir.Slot) -> kir.Slot:
            return replace(old, index=expr(old.index))

        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.IfThenElse(condition, then, orelse):
                    test = expr(condition)
                    if isinstance(test, int):
                        out += self._body(then if test else orelse, loop, part)
                    else:
                        ways = self._body(then, loop, part), self._body(orelse, loop, part)
                        out.append(kir.IfThenElse(test, *ways))
                case kir.Elect(per, inner):
                    out.append(kir.Elect(per, self._body(inner, loop, part)))
                case _ if isinstance(stmt, _UNROLLED):
                    out.append(self.one.lines.kept(stmt, with_slots(stmt, slot)))
                case _:
                    what = f"{type(stmt).__name__} in a loop that asks for k % {self.by}"
                    raise UnsupportedError(what)
        return tuple(out)


CLUSTER = Var("number of the cluster")
NUMBERS = 16
"""Named barriers of a CTA."""
_CLUSTERED = _COPIES | REGISTERS_ONLY | kir.TmaReduce | _SYNCS | kir.FenceMBarrierInit
TOGETHER = NUMBERS * 32
"""Number of the first barrier that stands for one of the cluster."""


def whole(kernel: kir.Kernel) -> Whole:
    """Return a kernel with its cluster as one CTA; a kernel without clusters as it is."""
    lines = Lines(kernel)
    if kernel.cluster == 1:
        return Whole(kernel, lines)
    _scopes(kernel)
    return Whole(_Merged(kernel, lines).kernel(), lines)


def _scopes(kernel: kir.Kernel) -> None:
    """Check that handshakes between CTAs are of cluster scope, and whom barriers outlive."""
    remote = set()
    for stmt in kernel.walk():
        if isinstance(stmt, kir.MBarrierArrive) and stmt.cta is not None:
            remote.add(stmt.barrier)
            if stmt.scope is not kir.Scope.CLUSTER:
                raise UnsupportedError(f"an arrival on {stmt.barrier.name} of another CTA")
    for stmt in kernel.walk():
        match stmt:
            case kir.MBarrierWaitParity(barrier, _, _, scope) if barrier in remote:
                if scope is not kir.Scope.CLUSTER:
                    raise UnsupportedError(f"a wait on {barrier.name} for another CTA")
            case kir.ClusterArrive(relaxed=True):
                raise UnsupportedError("a relaxed cluster_arrive")
            case _:
                pass
    # Barriers are made visible to the cluster, and all leave together.
    for stmt in kernel.walk():
        for body in kir.bodies(stmt):
            kinds = [type(s) for s in body]
            made = [i for i, kind in enumerate(kinds) if kind is kir.MBarrierInit]
            if made and kir.FenceMBarrierInit not in kinds[made[-1] :]:
                raise UnsupportedError("mbarrier_init without fence_mbarrier_init")
    if any(isinstance(s, kir.MBarrierInit) for s in kernel.body):
        raise UnsupportedError("mbarrier_init by all threads")
    joins = [isinstance(s, kir.ClusterArrive | kir.ClusterWait) for s in kernel.walk()]
    pairs = [(type(a), type(b)) for a, b in pairwise(kernel.body)]
    if sum(joins) != 2 * pairs.count((kir.ClusterArrive, kir.ClusterWait)):
        raise UnsupportedError("a cluster_arrive without its cluster_wait next to it")
    if not kernel.body or not isinstance(kernel.body[-1], kir.ClusterWait):
        raise UnsupportedError("the kernel does not end with a cluster_wait")


class _Merged:
    """The one CTA."""

    def __init__(self, kernel: kir.Kernel, lines: Lines) -> None:
        self.source = kernel
        self.lines = lines
        self.ranks = range(kernel.cluster)
        # Whole warpgroups stay whole; warps that this adds do nothing.
        self.warps = -(-kernel.threads // kir.WARPGROUP) * 4
        self.pitch = -(-kernel.smem_bytes // 1024) * 1024

    def kernel(self) -> kir.Kernel:
        """Return the one CTA."""
        source = self.source
        roles = [stmt for stmt in source.body if isinstance(stmt, kir.Role)]
        first = next((r.warps for r in roles if r.first_warp == 0), source.threads // kir.WARP)
        threads = len(self.ranks) * self.warps * kir.WARP
        body: list[kir.Stmt] = []
        lets: list[kir.Stmt] = []
        for at, stmt in enumerate(source.body):
            match stmt:
                case kir.Let():
                    # Each rank has its own value, which only its own statements may see.
                    lets.append(stmt)
                    continue
                case kir.ClusterArrive():
                    continue
                case kir.ClusterWait():
                    body.append(self.lines.kept(stmt, kir.BlockSync(TOGETHER + at, threads)))
                    continue
                case kir.Role():
                    role = stmt
                case kir.Elect() if roles:
                    role = kir.Role("first", 0, first, (stmt,))
                case _ if not roles:
                    role = kir.Role("all", 0, first, (stmt,))
                case _:
                    raise UnsupportedError(f"{type(stmt).__name__} beside the roles of a cluster")
            for r in self.ranks:
                low, inner = r * self.warps + role.first_warp, self._body((*lets, *role.body), r)
                body.append(kir.Role(f"{role.name} of CTA {r}", low, role.warps, inner))
        return replace(
            source,
            buffers=tuple(self._buffer(b, r) for r in self.ranks for b in source.buffers),
            barriers=tuple(self._barrier(b, r) for r in self.ranks for b in source.barriers),
            threads=threads,
            body=tuple(body),
            cluster=1,
        )

    def _body(self, body: tuple[kir.Stmt, ...], rank: int) -> tuple[kir.Stmt, ...]:
        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.IfThenElse(condition, then, orelse):
                    test = self._expr(condition, rank)
                    if isinstance(test, int):
                        out += self._body(then if test else orelse, rank)
                        continue
                    inner = self._body(then, rank), self._body(orelse, rank)
                    out.append(self.lines.kept(stmt, kir.IfThenElse(test, *inner)))
                case kir.TmaLoad(dst, src, barrier, slot, mask) if mask is not None:
                    found = self._expr(mask, rank)
                    if not isinstance(found, int) or dst.cta is not None:
                        raise UnsupportedError("a multicast to CTAs that are not known")
                    at = self._expr(slot, rank)
                    for there in (r for r in self.ranks if found >> r & 1):
                        here = kir.Slot(
                            self._buffer(dst.buffer, there), self._expr(dst.index, rank)
                        )
                        copy = kir.TmaLoad(here, src, self._barrier(barrier, there), at)
                        out.append(self.lines.kept(stmt, copy))
                case _:
                    out.append(self.lines.kept(stmt, self._one(stmt, rank)))
        return tuple(out)

    def _one(self, stmt: kir.Stmt, rank: int) -> kir.Stmt:
        """Return a statement as a thread of a rank executes it."""

        def at(expr: Expr) -> Expr:
            return self._expr(expr, rank)

        def own(barrier: kir.MBarrier) -> kir.MBarrier:
            return self._barrier(barrier, rank)

        remote = any(slot.cta is not None for slot in slots(stmt))
        moved = with_slots(stmt, lambda slot: self._slot(slot, rank))
        match moved:
            case kir.Let() | kir.Assign():
                return replace(moved, value=at(moved.value))
            case kir.ForLoop(_, stop, body):
                return replace(moved, stop=at(stop), body=self._body(body, rank))
            case kir.Elect(_, body):
                return replace(moved, body=self._body(body, rank))
            case kir.BlockSync(number) | kir.NamedArrive(number):
                return replace(moved, barrier=number + NUMBERS * (rank + 1))
            case kir.MBarrierInit(barrier):
                return replace(moved, barrier=own(barrier))
            case kir.MBarrierArrive(barrier, slot, _, cta):
                there = rank if cta is None else self._rank(cta, rank)
                return kir.MBarrierArrive(self._barrier(barrier, there), at(slot))
            case kir.MBarrierWaitParity(barrier, slot, parity, _, retry):
                scope = kir.Scope.CTA
                return kir.MBarrierWaitParity(own(barrier), at(slot), at(parity), scope, retry)
            case kir.TmaLoad() if remote:
                raise UnsupportedError("a copy into another CTA")
            case (
                kir.TmaLoad(_, _, barrier, slot)
                | kir.MBarrierArriveExpectTx(barrier, slot)
                | kir.MBarrierExpectTx(barrier, slot)
                | kir.CpAsyncMBarrierArrive(barrier, slot)
            ):
                return replace(moved, barrier=own(barrier), slot=at(slot))
            case kir.TmaStore() | kir.TmaReduce() | kir.CpAsync() | kir.Wgmma() if remote:
                raise UnsupportedError(f"{type(stmt).__name__} on another CTA's memory")
            case _ if isinstance(moved, _CLUSTERED):
                return moved
            case _:
                raise UnsupportedError(f"{type(stmt).__name__} in a cluster")

    def _expr(self, expr: Expr, rank: int) -> Expr:
        """Return an expression as a rank knows it; its block number is known to no other rank."""
        count = len(self.ranks)
        plain = replace_tree(expr, Op(Kind.FLOORDIV, kir.BLOCK, count), CLUSTER)
        known: dict[Var, Expr] = {kir.RANK: rank, kir.BLOCK: Var(f"block of rank {rank}")}
        return substitute(plain, known)

    def _rank(self, cta: Expr, rank: int) -> int:
        there = self._expr(cta, rank)
        if not isinstance(there, int) or there not in self.ranks:
            raise UnsupportedError(f"CTA {cta} of the cluster, which is not known")
        return there

    def _buffer(self, buffer: kir.Buffer, rank: int) -> kir.Buffer:
        offset = buffer.offset + rank * self.pitch
        return replace(buffer, name=f"{buffer.name}@{rank}", offset=offset)

    def _barrier(self, barrier: kir.MBarrier, rank: int) -> kir.MBarrier:
        offset = self.source.barrier_at(barrier) + rank * self.pitch
        return replace(barrier, name=f"{barrier.name}@{rank}", offset=offset)

    def _slot(self, slot: kir.Slot, rank: int) -> kir.Slot:
        there = rank if slot.cta is None else self._rank(slot.cta, rank)
        return kir.Slot(self._buffer(slot.buffer, there), self._expr(slot.index, rank))


Signal = kir.MBarrierWaitParity | kir.MBarrierArrive
_ENDS = (kir.Elect, kir.AsyncAwait)
_RESULTS = kir.Store | kir.TmaStore | kir.BlockSync | kir.FenceAsyncProxy
_BESIDE = kir.Let | kir.Elect | kir.WarpSync | Signal | _RESULTS
"""What a role may do besides its steps, where it shares something."""


@dataclass(frozen=True, slots=True)
class Team:
    """One role in place of alternating ones, and their handovers by remainder of the tiles."""

    one: Whole
    handovers: tuple[Whole, ...]


@dataclass(frozen=True, slots=True)
class _Member:
    """A role, its loop over tiles, and what it does before, in and after the steps of its own.

    `tail` is what it does when it is done with all tiles.
    """

    role: kir.Role
    loop: kir.ForLoop
    number: int
    count: int
    before: tuple[kir.Stmt, ...]
    inner: kir.ForLoop
    after: tuple[kir.Stmt, ...]
    tail: tuple[kir.Stmt, ...]

    @property
    def parts(self) -> tuple[tuple[kir.Stmt, ...], ...]:
        """What the role does besides its steps."""
        return self.before, self.after, self.tail


def teamed(whole: Whole) -> Team | None:
    """Return the team of a kernel; None if no role skips tiles."""
    roles = [stmt for stmt in whole.kernel.body if isinstance(stmt, kir.Role)]
    members = [member for role in roles if (member := _member(role)) is not None]
    if not members:
        return None
    first = members[0]
    if sorted(m.number for m in members) != list(range(first.count)) or first.count > MOST:
        raise UnsupportedError("alternating roles, but not each with tiles of its own")
    signals = {
        s.barrier for m in members for s in kir.walk((*m.before, *m.after)) if isinstance(s, Signal)
    }
    own = [private(whole.kernel, m.role.name, [*chain(*m.parts)]) for m in members]
    alike = set()
    for m, mine in zip(members, own, strict=True):
        parts = (renamed(_quiet(part, signals), mine, own[0]) for part in m.parts)
        threads = m.role.warps, m.role.first_warp % 4
        alike.add((threads, m.count, m.loop.index, m.loop.stop, m.inner, *parts))
    warps = [w for r in roles for w in range(r.first_warp, r.first_warp + r.warps)]
    if len(alike) > 1 or len(set(warps)) < len(warps):
        raise UnsupportedError("alternating roles that differ")
    _check(whole.kernel, members, signals)
    rests = range(first.count)
    handovers = tuple(_Handover(whole, members, signals, rest).whole() for rest in rests)
    return Team(_merged(whole, members, signals), handovers)


def _member(role: kir.Role) -> _Member | None:
    """Return a role that takes every m-th tile."""
    match role.body:
        case (
            kir.ForLoop(
                index,
                _,
                (
                    kir.IfThenElse(
                        Op(Kind.EQ, Op(Kind.MOD, Var() as tile, int() as count), int() as number),
                        mine,
                        skip,
                    ),
                ),
            ) as loop,
            *tail,
        ) if tile == index and all(isinstance(s, _ENDS) for s in kir.walk(tuple(tail))):
            pass
        case _:
            return None
    loops = [i for i, s in enumerate(mine) if isinstance(s, kir.ForLoop)]
    if len(loops) != 1:
        return None
    inner = mine[loops[0]]
    assert isinstance(inner, kir.ForLoop), "just asked"
    moves = {s.var for s in inner.body if isinstance(s, kir.Assign)}
    owed = {kir.Assign(var, var + inner.stop) for var in moves}
    if set(skip) != owed or len(skip) != len(owed):
        raise UnsupportedError(f"{role.name} skips tiles, but not all their steps")
    before, after = mine[: loops[0]], mine[loops[0] + 1 :]
    return _Member(role, loop, number, count, before, inner, after, tuple(tail))


def _quiet(body: tuple[kir.Stmt, ...], signals: set[kir.MBarrier]) -> tuple[kir.Stmt, ...]:
    """Return a body without the signals of a handover."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, Signal) and stmt.barrier in signals:
            return []
        if isinstance(stmt, kir.Elect) and not _quiet(stmt.body, signals):
            return []
        return None

    return kir.rewrite(body, rule)


def _check(kernel: kir.Kernel, members: list[_Member], signals: set[kir.MBarrier]) -> None:
    """Check that handovers have mbarriers of their own, and that roles share nothing else."""
    mine = [member.role for member in members]
    others = (r for r in kernel.body if isinstance(r, kir.Role) and all(r is not m for m in mine))
    for stmt in kir.walk((*(member.inner for member in members), *others)):
        if mbarrier(stmt) in signals:
            raise UnsupportedError("handovers and steps share an mbarrier")
    for member in members:
        if any(isinstance(s, kir.MBarrierArrive) for s in kir.walk(member.before)):
            raise UnsupportedError("the next role is let go on before the steps of this one")
        if any(isinstance(s, kir.MBarrierWaitParity) for s in kir.walk(member.after)):
            raise UnsupportedError("a role waits for the one before behind its steps")
        for stmt in kir.walk((*member.before, *member.after)):
            bulk = getattr(stmt, "kind", None) is kir.AsyncKind.BULK
            if not (bulk or alone(stmt) or isinstance(stmt, _BESIDE)):
                what = type(stmt).__name__
                raise UnsupportedError(f"{what} beside the steps of alternating roles")
        _settled(member)


def _settled(member: _Member) -> None:
    """Check that a step leaves nothing in flight, and waits for others by mbarriers only."""
    open_groups = False
    for stmt in member.inner.body:
        match stmt:
            case kir.AsyncCommit(kir.AsyncKind.WGMMA) | kir.Wgmma():
                open_groups = True
            case kir.AsyncAwait(kir.AsyncKind.WGMMA, 0):
                open_groups = False
            case _:
                for inner in kir.walk((stmt,)):
                    if isinstance(inner, kir.AsyncCommit | kir.AsyncAwait | kir.Wgmma):
                        raise UnsupportedError("groups that are not awaited in their step")
                    if isinstance(inner, kir.BlockSync | kir.NamedArrive | kir.TmaLoad):
                        what = type(inner).__name__
                        raise UnsupportedError(f"{what} in the steps of alternating roles")
    if open_groups:
        raise UnsupportedError("groups that are not awaited in their step")


def _merged(whole: Whole, members: list[_Member], signals: set[kir.MBarrier]) -> Whole:
    """Return the kernel in which one role runs the steps of all tiles."""
    first, *others = members
    gone = {id(member.role) for member in others}

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if id(stmt) in gone:
            return []
        if stmt is first.role:
            before, after = _quiet(first.before, signals), _quiet(first.after, signals)
            loop = replace(first.loop, body=(*before, first.inner, *after))
            return [replace(first.role, body=(loop, *first.tail))]
        return None

    return Whole(whole.kernel.rewrite(rule), whole.lines)


class _Handover:
    """What alternating roles owe each other, for one remainder of the number of tiles."""

    def __init__(
        self, whole: Whole, members: list[_Member], signals: set[kir.MBarrier], rest: int
    ) -> None:
        self.source, self.members, self.signals, self.rest = whole, members, signals, rest
        self.lines = whole.lines
        kernel, threads = whole.kernel, members[0].role.warps * kir.WARP
        offset = -(-kernel.smem_bytes // 128) * 128
        self.baton = kir.Buffer("baton", DType.F32, (1, threads), 1, offset)
        layout = kir.Layout((1, threads), 1, threads)
        self.word = kir.Fragment("baton", DType.F32, layout)

    def whole(self) -> Whole:
        """Return the kernel, with the lines of its statements."""
        kernel = self.source.kernel
        roles = {id(member.role): member for member in self.members}
        barriers = [b for b in kernel.barriers if b not in self.signals]
        barriers += [p for b in kernel.barriers if b in self.signals for p in self._parts(b)]

        def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
            if isinstance(stmt, kir.Role):
                return [self._role(roles[id(stmt)])] if id(stmt) in roles else []
            if isinstance(stmt, kir.MBarrierInit) and stmt.barrier in self.signals:
                parts = self._parts(stmt.barrier)
                return [self.lines.kept(stmt, kir.MBarrierInit(part)) for part in parts]
            return None

        made = replace(kernel.rewrite(rule), buffers=(self.baton,), barriers=tuple(barriers))
        return Whole(made, self.lines)

    def _parts(self, barrier: kir.MBarrier) -> list[kir.MBarrier]:
        """Return each slot of an mbarrier as an mbarrier."""
        start, name = self.source.kernel.barrier_at(barrier), barrier.name
        return [
            replace(barrier, name=f"{name}[{at}]", slots=1, offset=start + 8 * at)
            for at in range(barrier.slots)
        ]

    def _role(self, member: _Member) -> kir.Role:
        baton = self.lines.kept(member.inner, kir.Store(kir.Slot(self.baton, 0), self.word, 1))
        mine = (*self._kept(member.before, member), baton, *self._kept(member.after, member))
        stop: Expr = ROUNDS + 1 if self.rest else ROUNDS
        late = self.rest and member.number >= self.rest
        body = (kir.IfThenElse(ROUND < ROUNDS, mine),) if late else mine
        return replace(member.role, body=(kir.ForLoop(ROUND, stop, body),))

    def _kept(self, body: tuple[kir.Stmt, ...], member: _Member) -> tuple[kir.Stmt, ...]:
        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.Elect(_, inner):
                    if kept := self._kept(inner, member):
                        out.append(replace(stmt, body=kept))
                case kir.WarpSync():
                    out.append(self.lines.kept(stmt, kir.WarpSync()))
                case kir.MBarrierWaitParity() | kir.MBarrierArrive():
                    moved: Signal = replace(stmt, barrier=self._part(stmt, member), slot=0)
                    if isinstance(moved, kir.MBarrierWaitParity):
                        moved = replace(moved, parity=self._at(moved.parity, member))
                    out.append(self.lines.kept(stmt, moved))
                case _:
                    pass
        return tuple(out)

    def _at(self, expr: Expr, member: _Member) -> Expr:
        tile = ROUND * member.count + member.number
        return substitute(expr, {member.loop.index: tile})

    def _part(self, stmt: Signal, member: _Member) -> kir.MBarrier:
        """Return the slot of a signal, the same in every round, as an mbarrier."""
        expr, parts = stmt.slot, self._parts(stmt.barrier)
        moved = self._at(expr, member)
        value, many = function(moved, checked=True), period(moved, ROUND)
        seen = {value({ROUND.name: k}) for k in range(many or 0)}
        if len(seen) != 1 or max(seen) >= len(parts):
            raise UnsupportedError(f"a handover in slot {expr}")
        return parts[seen.pop()]


@dataclass(frozen=True, slots=True)
class Private:
    """The buffers and the numbers of barriers that one role has to itself, in order of use."""

    buffers: tuple[kir.Buffer, ...]
    numbers: tuple[int, ...]


def private(kernel: kir.Kernel, role: str, beside: Sequence[kir.Stmt]) -> Private:
    """Return what a role, by name, has to itself in statements `beside` its steps.

    UnsupportedError if something of it is used elsewhere, or in another slot from tile to tile.
    """
    mine = list(kir.walk(tuple(beside)))
    own = {id(stmt) for stmt in mine}
    found, others = _things(mine), _things(s for s in kernel.walk() if id(s) not in own)
    shared = {b.name for b in found.buffers} & {b.name for b in others.buffers}
    shared |= {f"barrier {n}" for n in set(found.numbers) & set(others.numbers)}
    if shared:
        names = ", ".join(sorted(shared))
        raise UnsupportedError(f"{role} uses {names} beside its steps, and others do too")
    for slot in (slot for stmt in mine for slot in slots(stmt)):
        if slot.index != 0 or slot.cta is not None:
            raise UnsupportedError(f"{role} uses {slot.buffer.name} slot by slot beside its steps")
    return found


def renamed(
    body: tuple[kir.Stmt, ...], own: Private, first: Private
) -> tuple[kir.Stmt, ...] | None:
    """Return statements with a role's own things named as the first role's; None if they differ."""
    if len(own.buffers) != len(first.buffers) or len(own.numbers) != len(first.numbers):
        return None
    pairs = list(zip(own.buffers, first.buffers, strict=True))
    if any(replace(a, name=b.name, offset=b.offset) != b for a, b in pairs):
        return None
    buffers = {a.name: b for a, b in pairs}
    numbers = dict(zip(own.numbers, first.numbers, strict=True))

    def moved(slot: kir.Slot) -> kir.Slot:
        return replace(slot, buffer=buffers[slot.buffer.name])

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        if isinstance(stmt, kir.BlockSync):
            return [replace(stmt, barrier=numbers[stmt.barrier])]
        return [with_slots(stmt, moved)] if slots(stmt) else None

    return kir.rewrite(body, rule)


def _things(body: Iterable[kir.Stmt]) -> Private:
    """Return the buffers and the numbers of barriers that statements use."""
    buffers: dict[kir.Buffer, None] = {}
    numbers: dict[int, None] = {}
    for stmt in body:
        buffers |= dict.fromkeys(slot.buffer for slot in slots(stmt))
        if isinstance(stmt, kir.BlockSync | kir.NamedArrive):
            numbers[stmt.barrier] = None
    return Private(tuple(buffers), tuple(numbers))
