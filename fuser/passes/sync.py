"""Passes: barriers are initialised, and threads are joined where one relies on what another did."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import prod

from fuser.kernel import ir as kir
from fuser.passes.effects import by_engine, names, reads, sharers, touches, writes

Body = tuple[kir.Stmt, ...]


def init_barriers(kernel: kir.Kernel) -> kir.Kernel:
    """Initialise every mbarrier at the start, by one thread, and fence the initialisation.

    CTAs of a cluster join after it where they arrive at each other's barriers; and they join at the
    end: none may leave while another still reaches into its shared memory.  Where others only read
    it, they arrive as soon as they have: an arrival waits for stores to global memory before it.
    """
    begin: Body = ()
    end: Body = ()
    body = kernel.body
    if kernel.barriers:
        inits: list[kir.Stmt] = [kir.MBarrierInit(b) for b in kernel.barriers]
        inits.append(kir.FenceMBarrierInit())
        begin = (kir.Elect(kir.Per.ROLE, tuple(inits)),)
    signalled = any(_signals_peers(stmt) for stmt in kernel.walk())
    if signalled:
        begin = (*begin, *_joined())
    reaching = [n for n, stmt in enumerate(body) if any(map(_reads_peers, kir.walk((stmt,))))]
    if signalled:
        end = _joined()
    elif reaching:
        warps, arrive, wait = _joined()
        last = reaching[-1] + 1
        body, end = (*body[:last], warps, arrive, *body[last:]), (wait,)
    return replace(kernel, body=(*begin, *body, *end))


def _joined() -> Body:
    """Join all threads of the cluster; every statement is an object of its own."""
    return kir.WarpSync(), kir.ClusterArrive(), kir.ClusterWait()


def _reads_peers(stmt: kir.Stmt) -> bool:
    return any(slot.cta is not None for slot in reads(stmt))


def _signals_peers(stmt: kir.Stmt) -> bool:
    far = isinstance(stmt, kir.MBarrierArrive) and stmt.cta is not None
    return far or (isinstance(stmt, kir.TmaLoad) and stmt.multicast is not None)


@dataclass(frozen=True, slots=True)
class Open:
    """What threads have done since they last joined, that another thread may have to know.

    Names of barriers that one thread initialised (`fresh`); of buffers `written`, or `read`, by
    ordinary accesses of many threads, `awaited` by one that the engine has read them, or `copied`
    by cp.async of many, `queued` by one (joining changes nothing); of workspaces that many read or
    wrote (`shared`).
    Of what was written, before they joined or since: the `bare`, behind which no proxy fence has
    stood yet, and the `fenced`.
    """

    fresh: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()
    copied: frozenset[str] = frozenset()
    queued: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    fenced: frozenset[str] = frozenset()

    def joined(self) -> Open:
        """Return what is still open after the threads have joined."""
        return Open(copied=self.copied, queued=self.queued, bare=self.bare)

    def __or__(self, other: Open) -> Open:
        every = (field.name for field in fields(Open))
        return Open(*(getattr(self, name) | getattr(other, name) for name in every))


def sync_threads(kernel: kir.Kernel) -> kir.Kernel:
    """Join the threads of a role wherever one relies on what others did since they last joined.

    - a use of a barrier after its initialisation by one thread;
    - a read of a slot after ordinary writes by many threads; by an engine, after their fences, too:
      who writes also fences before it joins;
    - a refill of a slot, issued in the same role, after ordinary reads by many threads;
    - ordinary writes of a slot by many threads after one thread has awaited the engine's reads, or
      after ordinary reads, or reads of wgmma, by many;
    - a read of a slot that cp.async of many threads filled, after each has awaited its own, unless
      each reads what it has copied itself, and nobody else does;
    - a read of a slot that one thread filled by its queue, after it has awaited that;
    - the release of a turn, after ordinary reads and writes of workspaces by many threads.

    Waits for turns and syncs of CTAs join the threads themselves, by the barrier of their role.

    What is said of a slot holds for all buffers over its bytes: who begins another life there joins
    with those who ended the one before.

    Loops are walked until the state at their entry is stable, so what the previous iteration left
    open counts.  The join stands before the statement that needs it, outside of any `Elect`.
    """
    stores = (stmt for stmt in kernel.walk() if isinstance(stmt, kir.TmaStore))
    drained = frozenset[str]().union(*(names(reads(stmt)) for stmt in stores))
    out: list[kir.Stmt] = []
    state = Open()
    number = 0
    workspaces = frozenset(kernel.workspaces)
    own = _own(kernel)
    over = sharers(kernel)
    everyone = _Joiner(drained, workspaces, 0, kernel.threads, own, over)
    for stmt in kernel.body:
        if not isinstance(stmt, kir.Role):
            body, state = everyone.walk((stmt,), state)
            out.extend(body)
            continue
        if replace(state, bare=frozenset()) != Open():
            out.append(kir.BlockSync(0, kernel.threads))
            state = Open()
        number += 1
        role = _Joiner(drained, workspaces, number, stmt.warps * kir.WARP, own, over)
        inner, _ = role.walk(stmt.body, Open())
        out.append(replace(stmt, body=inner))
    return replace(kernel, body=tuple(out))


@dataclass(frozen=True, slots=True)
class _Joiner:
    drained: frozenset[str]
    workspaces: frozenset[str]
    barrier: int
    threads: int
    own: frozenset[str]
    over: dict[str, frozenset[str]]

    def _join(self) -> kir.BlockSync:
        return kir.BlockSync(self.barrier, self.threads)

    def walk(self, body: Body, state: Open) -> tuple[Body, Open]:
        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.BlockSerializeWait() | kir.GridSync():
                    state = self._after(stmt, state, alone=False)
                    out.append(replace(stmt, barrier=self.barrier))
                case kir.LastArriving():
                    inner, after = self.walk(stmt.body, state.joined())
                    out.append(replace(stmt, body=inner, barrier=self.barrier))
                    state = state.joined() | after
                case kir.ForLoop(_, _, inner):
                    new, after = self._loop(inner, state)
                    alone, after_alone = self._loop(inner, state.joined())
                    if _joins(new) > _joins(alone):
                        out.append(self._join())  # once, not in every iteration
                        new, after = alone, after_alone
                    state = after
                    out.append(replace(stmt, body=new))
                case kir.IfThenElse(_, then, orelse):
                    if state.written and any(self._needs(s, state) for s in kir.walk((stmt,))):
                        out.append(self._join())  # for what follows too
                        state = state.joined()
                    then, after_then = self.walk(then, state)
                    orelse, after_else = self.walk(orelse, state)
                    out.append(replace(stmt, then=then, orelse=orelse))
                    state = after_then | after_else
                case kir.Elect(_, inner):
                    if any(self._needs(s, state) for s in kir.walk(inner)):
                        out.append(self._join())
                        state = state.joined()
                    for s in kir.walk(inner):
                        state = self._after(s, state, alone=True)
                    out.append(stmt)
                case _:
                    if self._needs(stmt, state):
                        out.append(self._join())
                        state = state.joined()
                    state = self._after(stmt, state, alone=False)
                    out.append(stmt)
        return tuple(out), state

    def _loop(self, inner: Body, entry: Open) -> tuple[Body, Open]:
        while True:
            new, leave = self.walk(inner, entry)
            if entry | leave == entry:
                return new, entry
            entry = entry | leave

    def _needs(self, stmt: kir.Stmt, state: Open) -> bool:
        if _uses(stmt) in state.fresh or names(reads(stmt)) & state.written:
            return True
        if isinstance(stmt, kir.BlockSerializeRelease):
            return bool(state.shared)
        if by_engine(stmt) and names(reads(stmt)) & state.fenced:
            return True
        own = names(writes(stmt))
        there = frozenset[str]().union(*(self.over[name] for name in own))
        if by_engine(stmt):
            return bool(there & (state.read | state.written))
        return bool(there & (state.awaited | state.read) | (there - own) & state.written)

    def _after(self, stmt: kir.Stmt, state: Open, *, alone: bool) -> Open:
        match stmt:
            case kir.BlockSync() | kir.ClusterWait() | kir.BlockSerializeWait() | kir.GridSync():
                return state.joined()
            case kir.CpAsync():
                return replace(state, copied=state.copied | (names(writes(stmt)) - self.own))
            case kir.Load(_, kir.Slot(buffer)) if buffer.name in self.own:
                return state
            case kir.AsyncAwait(kir.AsyncKind.CP_ASYNC, keep):
                left = state.copied if keep else frozenset[str]()
                return replace(state, written=state.written | state.copied, copied=left)
            case kir.QueueCopy():
                return replace(state, queued=state.queued | names(writes(stmt)))
            case kir.AsyncAwait(kir.AsyncKind.QUEUE):  # what of it is over depends on the branch
                return replace(state, written=state.written | state.queued)
            case kir.MBarrierInit(barrier):
                return replace(state, fresh=state.fresh | {barrier.name})
            case kir.AsyncAwait(kir.AsyncKind.BULK) if alone:
                return replace(state, awaited=state.awaited | self.drained)
            case kir.FenceAsyncProxy(kir.Space.SHARED):
                return replace(state, bare=frozenset(), fenced=state.fenced | state.bare)
            case kir.Wgmma():
                return replace(state, read=state.read | names(reads(stmt)))
            case _ if by_engine(stmt):
                return state
            case _:
                return replace(
                    state,
                    written=state.written | names(writes(stmt)),
                    bare=state.bare | names(writes(stmt)),
                    read=state.read | names(reads(stmt)),
                    shared=state.shared | (touches(stmt) & self.workspaces),
                )


def _own(kernel: kir.Kernel) -> frozenset[str]:
    """Return the buffers of which every thread reads what it has copied itself, and nothing else.

    Those that are only filled by cp.async and read by loads, all under one layout in which each
    element has one thread.
    """
    dealt: dict[str, set[kir.Layout | None]] = {}
    for stmt in kernel.walk():
        for slot in (*reads(stmt), *writes(stmt)):
            layout: kir.Layout | None = None
            if isinstance(stmt, kir.CpAsync):
                layout = stmt.layout
            elif isinstance(stmt, kir.Load) and _straight(stmt) and slot.cta is None:
                layout = stmt.dst.layout
            if layout is not None and layout.shape != slot.buffer.shape:
                layout = None
            dealt.setdefault(slot.buffer.name, set()).add(layout)
    places = {b.name: b for b in kernel.buffers}
    return frozenset(
        name
        for name, layouts in dealt.items()
        if len(layouts) == 1
        and all(layout is not None and _one_each(layout) for layout in layouts)
        and not any(places[name].shares(other) for other in kernel.buffers if other.name != name)
    )


def _straight(stmt: kir.Load) -> bool:
    """Whether every thread loads the elements that are its own by the layout."""
    return not stmt.matrix and not stmt.transposed


def _one_each(layout: kir.Layout) -> bool:
    """Whether every element has one thread."""
    if layout.deal is kir.Deal.ROWS:
        return layout.alike == 1 and (
            layout.across == layout.threads or prod(layout.shape[:-1]) > 1
        )
    return layout.deal is not kir.Deal.EACH_WARP


def _joins(body: Body) -> int:
    return sum(isinstance(stmt, kir.BlockSync) for stmt in kir.walk(body))


def _uses(stmt: kir.Stmt) -> str:
    uses = kir.MBarrierArrive | kir.MBarrierArriveExpectTx | kir.MBarrierWaitParity
    return stmt.barrier.name if isinstance(stmt, uses) else ""
