"""Kernels with one change for the worse: what the judges must notice.

The operators follow the root causes of bugs that real compilers had; order bugs (the right
instructions in the wrong order) are as common as omissions.  A mutant may be harmless, or even
equivalent: telling is what judges are for.  Each operator yields candidates, of which `mutants`
keeps those that are kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import prod

from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, Var, eq, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, text
from fuzz.mutation.hazards import aimed, rows, traits
from fuzz.mutation.site import Mutant as Mutant
from fuzz.mutation.site import (
    Site,
    closed,
    edited,
    fresh,
    parts,
    redeclared,
    sites,
    substituted,
    synchronises,
    syncs,
    without,
    wrapped,
)

LATE = 40
"""First iteration at which a sync is missing in the mutants of `stages`."""
_CTA, _CLUSTER, _GPU = kir.Scope.CTA, kir.Scope.CLUSTER, kir.Scope.GPU


# --- order: where a sync stands -----------------------------------------------------------------


def drop(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Leave one sync out, or the body of the last CTA with its election."""
    for site in sites(kernel):
        hint = isinstance(site.stmt, kir.GridDependencyLaunch)
        if isinstance(site.stmt, kir.SYNCS | kir.LastArriving) and not hint:
            yield site.instead("drop", "drop", rows(site.stmt))


def twice(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Execute one sync that counts twice in a row."""
    counting = (
        kir.MBarrierArrive
        | kir.MBarrierArriveExpectTx
        | kir.MBarrierExpectTx
        | kir.MBarrierInit
        | kir.CpAsyncMBarrierArrive
        | kir.AsyncCommit
        | kir.NamedArrive
        | kir.BlockSerializeRelease
        | kir.ClusterArrive
        | kir.SetMaxNReg
        | kir.LastArriving
    )
    for site in sites(kernel):
        if isinstance(site.stmt, counting):
            yield site.instead("twice", "twice", rows(site.stmt), site.stmt, fresh(site.stmt))


def swap(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Exchange two neighbours, of which at least one synchronises."""
    for site in sites(kernel):
        stmt, other = site.stmt, site.beside(1)
        if other is not None and (synchronises(stmt) or synchronises(other)):
            changed = edited(kernel, (stmt, (other, stmt)), (other, ()))
            change = f"swap {site.words} with `{line(other)}`"
            yield Mutant(change, changed, "swap", rows(stmt, other), stmt)


def move(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Move a sync to an end of its body, out of its loop, or a level deeper."""
    for site in sites(kernel):
        alone = site.elect is not None and site.body is site.elect.body and len(site.body) == 1
        if alone or not synchronises(site.stmt):
            continue  # an election moves with what it holds alone
        for where, changed in (*_ends(kernel, site), *_out(kernel, site), *_deeper(kernel, site)):
            change = f"move {where} {site.words}"
            yield Mutant(change, changed, "move", rows(site.stmt), site.stmt)


def _ends(kernel: kir.Kernel, site: Site) -> Iterator[tuple[str, kir.Kernel]]:
    """To the beginning and to the end of the body, where that is no mere swap."""
    first, last = site.body[0], site.body[-1]
    if site.index > 1:
        yield "first", edited(kernel, (first, (site.stmt, first)), (site.stmt, ()))
    if site.index < len(site.body) - 2:
        yield "last", edited(kernel, (last, (last, site.stmt)), (site.stmt, ()))


def _out(kernel: kir.Kernel, site: Site) -> Iterator[tuple[str, kir.Kernel]]:
    """Before and behind the innermost loop, by the same threads."""
    if not site.loops:
        return
    loop = site.loops[-1]
    between = site.parents[site.parents.index(loop) + 1 :]
    if any(isinstance(parent, kir.Role) for parent in between):
        return
    moved, rest = wrapped(site.stmt, between), without(loop, site.stmt)
    yield "before the loop", edited(kernel, (loop, (moved, rest)))
    yield "behind the loop", edited(kernel, (loop, (rest, moved)))


def _deeper(kernel: kir.Kernel, site: Site) -> Iterator[tuple[str, kir.Kernel]]:
    """Into a structured neighbour; barriers into elections and roles are for `hoist`."""
    for step, words in ((1, "into what follows"), (-1, "into what precedes")):
        beside = site.beside(step)
        if isinstance(site.stmt, kir.BlockSync) and isinstance(beside, kir.Elect | kir.Role):
            continue
        inside = _inside(beside, site.stmt, at_start=step == 1)
        if beside is not None and inside is not None:
            yield words, edited(kernel, (beside, (inside,)), (site.stmt, ()))


def _inside(beside: kir.Stmt | None, stmt: kir.Stmt, *, at_start: bool) -> kir.Stmt | None:
    match beside:
        case kir.ForLoop() | kir.Role() | kir.Elect() | kir.LastArriving():
            body = beside.body
            return replace(beside, body=(stmt, *body) if at_start else (*body, stmt))
        case kir.IfThenElse(_, then):
            return replace(beside, then=(stmt, *then) if at_start else (*then, stmt))
        case _:
            return None


def hoist(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Share a barrier or an election across regions that are apart."""
    joining = kir.BlockSync | kir.NamedArrive | kir.LastArriving
    numbers = sorted({s.stmt.barrier for s in sites(kernel) if isinstance(s.stmt, joining)})
    for site in sites(kernel):
        stmt = site.stmt
        if isinstance(stmt, kir.BlockSync):
            yield from _divergent(site)
        if isinstance(stmt, joining):  # two barriers share one number
            for number in numbers:
                if number != stmt.barrier:
                    other = replace(stmt, barrier=number)
                    yield site.instead("hoist", f"barrier {number} in", ("H72",), other)
        if isinstance(stmt, kir.Elect):
            yield from _merged(kernel, site, stmt)


def _divergent(site: Site) -> Iterator[Mutant]:
    """Move a barrier into the role or election beside it, where some threads never come."""
    for step in (1, -1):
        beside = site.beside(step)
        inside = _inside(beside, site.stmt, at_start=step == 1)
        if inside is not None and isinstance(beside, kir.Role | kir.Elect):
            changes = (beside, (inside,)), (site.stmt, ())
            yield site.mutant("hoist", f"into `{line(beside)}` goes", ("H71", "H76"), *changes)


def _merged(kernel: kir.Kernel, site: Site, stmt: kir.Elect) -> Iterator[Mutant]:
    """Put two elections with something between them under one, before or behind it."""
    other, between = site.beside(2), site.beside(1)
    if between is None or not isinstance(other, kir.Elect) or other.per is not stmt.per:
        return
    both = kir.Elect(stmt.per, (*stmt.body, *other.body))
    hazards = ("H14", *rows(between))
    early = edited(kernel, (stmt, (both,)), (other, ()))
    yield Mutant(f"one election, before `{line(between)}`, {site.words}", early, "hoist", hazards)
    late = edited(kernel, (stmt, ()), (other, (both,)))
    yield Mutant(f"one election, behind `{line(between)}`, {site.words}", late, "hoist", hazards)


# --- strength: how much a sync does -------------------------------------------------------------


def weaken(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Let one sync do less than it does."""
    for site in syncs(kernel):
        for words, weaker, row in _weaker(site.stmt):
            yield site.instead("weaken", words, (row,), weaker)


def _weaker(stmt: kir.Stmt) -> Iterator[tuple[str, kir.Stmt, str]]:
    match stmt:
        case kir.AsyncAwait(kind, keep, read_only):
            row = {
                kir.AsyncKind.BULK: "H44",
                kir.AsyncKind.CP_ASYNC: "H50",
                kir.AsyncKind.WGMMA: "H06",
                kir.AsyncKind.QUEUE: "H50",
            }[kind]
            yield "keep one more", replace(stmt, keep=keep + 1), row
            if kind is kir.AsyncKind.BULK and not read_only:
                yield "read only", replace(stmt, read_only=True), "H41"
        case kir.MBarrierArrive(_, _, scope, cta, _, space):
            if scope is _CLUSTER:
                yield "scope cta", replace(stmt, scope=_CTA), "H64"
            if scope is _CLUSTER and cta is not None and space is kir.Space.ALL:
                yield "space shared", replace(stmt, space=kir.Space.SHARED), "H64"
        case kir.MBarrierWaitParity(_, _, _, scope, retry):
            if scope is _CLUSTER:
                yield "scope cta", replace(stmt, scope=_CTA), "H64"
            if retry:
                yield "no retry", replace(stmt, retry=False), "H17"
        case kir.BlockSerializeWait(_, _, _, scope):
            if scope is _GPU:
                yield "scope cta", replace(stmt, scope=_CTA), "H81"
        case kir.BlockSerializeRelease(_, _, _, scope, relaxed):
            if scope is _GPU:
                yield "scope cta", replace(stmt, scope=_CTA), "H81"
            if not relaxed:
                yield "relaxed", replace(stmt, relaxed=True), "H81"
        case kir.ThreadFence(scope):
            for narrower in {_GPU: (_CLUSTER, _CTA), _CLUSTER: (_CTA,), _CTA: ()}[scope]:
                yield f"scope {narrower.value}", kir.ThreadFence(narrower), "H81"
        case kir.FenceAsyncProxy(space):
            for other in (kir.Space.SHARED, kir.Space.GLOBAL):
                if other is not space:
                    yield f"space {other.value}", kir.FenceAsyncProxy(other), "H33"
        case kir.ClusterArrive(relaxed):
            if not relaxed:
                yield "relaxed", kir.ClusterArrive(relaxed=True), "H64"
        case kir.BlockSync():
            yield "only each warp", kir.WarpSync(), "H70"
        case kir.CpAsyncMBarrierArrive(barrier, slot, noinc):
            yield "at once", kir.MBarrierArrive(barrier, slot), "H52"
            yield "the other count", replace(stmt, noinc=not noinc), "H52"
        case kir.GridDependencyWait():
            yield "by one thread", kir.Elect(kir.Per.ROLE, (stmt,)), "H85"
            yield "start others instead", kir.GridDependencyLaunch(), "H85"
        case kir.SetMaxNReg(registers):
            for by in (-8, 8):
                yield f"{by:+d}", replace(stmt, registers=registers + by), "H75"
        case _:
            pass


def predicate(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Drop a guard, add one, or shift one on one side only."""
    for site in sites(kernel):
        stmt = site.stmt
        if synchronises(stmt) and kernel.cluster > 1:
            alone = kir.IfThenElse(eq(kir.RANK, 0), (stmt,))
            yield site.instead("predicate", "only in CTA 0", ("H12", *rows(stmt)), alone)
        if isinstance(stmt, kir.IfThenElse):
            if not stmt.orelse:
                yield site.instead("predicate", "no guard", ("H12", "H13"), *stmt.then)
            for words, condition in _shifted(stmt.condition):
                other = replace(stmt, condition=condition)
                yield site.instead("predicate", f"guard {words}", ("H12", "H13"), other)
        elif synchronises(stmt) and site.loops:
            loop = site.loops[-1]
            for condition in (loop.index >= 1, loop.index + 1 < loop.stop):
                other = kir.IfThenElse(condition, (stmt,))
                hazards = ("H12", *rows(stmt))
                yield site.instead("predicate", f"only if {condition}", hazards, other)


def _shifted(condition: Expr) -> Iterator[tuple[str, Expr]]:
    """Shift a comparison by one either way, or turn an equality round."""
    match condition:
        case Op(Kind.LT | Kind.LE, a, b):
            yield "one later", Op(condition.kind, a, b + 1)
            yield "one earlier", Op(condition.kind, a + 1, b)
        case Op(Kind.EQ):
            yield "reversed", Op(Kind.EQ, condition, 0)
        case Op(Kind.AND, a, b):
            yield "left part only", a
            yield "right part only", b
        case _:
            pass


def proxy(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Put a proxy fence where it comes too late, too early, or too few threads execute it."""
    for site in syncs(kernel):
        stmt = site.stmt
        if not isinstance(stmt, kir.FenceAsyncProxy | kir.TensorMapRelease | kir.TensorMapAcquire):
            continue
        here = rows(stmt)
        of = ("H33",) if isinstance(stmt, kir.FenceAsyncProxy) else here
        for other in site.body[site.index + 1 :]:
            if synchronises(other):
                late = (other, (other, stmt)), (stmt, ())
                yield site.mutant("proxy", f"fence behind `{line(other)}`", of, *late)
        before = site.beside(-1)
        if before is not None:
            early = (before, (stmt, before)), (stmt, ())
            yield site.mutant("proxy", f"fence before `{line(before)}`", of, *early)
        if site.elect is None:
            for per in kir.Per:
                elected = kir.Elect(per, (stmt,))
                yield site.instead("proxy", f"by one thread per {per.value}", of, elected)
        yield site.instead("proxy", "no fence", here)


# --- numbers: counts and bytes, phases, indices, trip counts ------------------------------------


def count(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Change what a barrier counts to: arrivals, bytes, threads."""
    shares = {1, kir.WARP}
    for site in sites(kernel):
        if isinstance(site.stmt, kir.Role):
            shares |= {site.stmt.warps, site.stmt.warps * kir.WARP}
    for barrier in kernel.barriers:
        for by in sorted(shares | {-share for share in shares}):
            if barrier.arrivals + by >= 1:
                other = replace(barrier, arrivals=barrier.arrivals + by)
                change = f"arrivals {by:+d} of {barrier.name}"
                yield Mutant(change, redeclared(kernel, barrier, other), "count", ("H09",))
    for site in sites(kernel):
        for words, stmt, row in _counted(kernel, site.stmt):
            yield site.instead("count", words, (row,), stmt)


def _counted(kernel: kir.Kernel, stmt: kir.Stmt) -> Iterator[tuple[str, kir.Stmt, str]]:
    match stmt:
        case kir.MBarrierArriveExpectTx(_, _, nbytes) | kir.MBarrierExpectTx(_, _, nbytes):
            for other in (nbytes - 16, nbytes + 16, nbytes // 2, nbytes * 2):
                if other > 0:
                    yield f"expect {other}", replace(stmt, nbytes=other), "H08"
        case kir.TmaLoad(bulk=True) | kir.TmaStore(bulk=True):
            box = stmt.src if isinstance(stmt, kir.TmaLoad) else stmt.dst
            axis = next((a for a, n in enumerate(box.shape) if n > 1), len(box.shape) - 1)
            steps = max(1, 16 // (prod(box.shape[axis + 1 :]) * box.tensor.dtype.nbytes))
            limit = (*box.limit[:axis], box.limit[axis] - steps, *box.limit[axis + 1 :])
            less = replace(box, limit=limit)
            yield "copy less", substituted(stmt, {box: less}), "H08"
        case kir.Load(limit=tuple()):
            yield "read the whole slot", replace(stmt, limit=None), "H75"
        case kir.MBarrierArrive(count=times) if times > 1:
            for other in (times - 1, times + 1):
                yield f"arrive for {other}", replace(stmt, count=other), "H09"
        case kir.BlockSync(_, threads) | kir.NamedArrive(_, threads):
            for other in (threads - kir.WARP, threads + kir.WARP):
                if 0 < other <= kernel.threads:
                    yield f"threads {other}", replace(stmt, threads=other), "H72"
            part = threads - kir.WARP // 2
            yield f"threads {part}, part of a warp", replace(stmt, threads=part), "H73"
        case kir.LastArriving():
            yield "ctas -1", replace(stmt, ctas=stmt.ctas - 1), "H80"
            yield "ctas +1", replace(stmt, ctas=stmt.ctas + 1), "H80"
        case _:
            pass


def phase(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Let a wait look for another phase, or a position not be carried on."""
    lets = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Let)}
    hazards = ("H03", "H15")
    for site in sites(kernel):
        stmt = site.stmt
        if isinstance(stmt, kir.MBarrierWaitParity):
            for words, other in _parities(site, stmt.parity, lets):
                yield site.instead("phase", f"parity {words}", hazards, replace(stmt, parity=other))
        elif isinstance(stmt, kir.Assign):
            yield site.instead("phase", "position stays", hazards)
            for loop in site.loops:
                again = replace(loop, body=(kir.Assign(stmt.var, 0), *loop.body))
                change = f"position restarts in `{loop.index}`"
                yield site.mutant("phase", change, hazards, (loop, (again,)))


def _parities(site: Site, parity: Expr, lets: set[Var]) -> Iterator[tuple[str, Expr]]:
    yield "flipped", (parity + 1) % 2
    if not isinstance(parity, int):
        yield "constant 0", 0
        yield "constant 1", 1
    for running in sorted(variables(parity) & lets, key=str):
        for loop in site.loops[-1:]:
            inner = substituted(parity, {running: loop.index})
            yield f"from {loop.index} instead of {running}", inner


def index(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Use the next slot, other columns, the sum of another step, or no prefetch distance."""
    for site in sites(kernel):
        stmt = site.stmt
        if kir.bodies(stmt):
            continue
        for slot in dict.fromkeys(parts(stmt, kir.Slot)):
            if slot.buffer.slots > 1:
                other = replace(slot, index=(slot.index + 1) % slot.buffer.slots)
                change = f"next slot of {slot.buffer.name}"
                moved = substituted(stmt, {slot: other})
                yield site.instead("index", change, ("H02", "H05"), moved)
        if isinstance(stmt, kir.OnPhase | kir.TmaLoad) and stmt.barrier.slots > 1:
            moved = replace(stmt, slot=(stmt.slot + 1) % stmt.barrier.slots)
            yield site.instead("index", f"next slot of {stmt.barrier.name}", ("H02",), moved)
        # Of these only values can tell.
        for change, wrong in _misread(site):
            yield site.instead("index", change, (), wrong)


def _misread(site: Site) -> Iterator[tuple[str, kir.Stmt]]:
    """Take another tile, other columns, or begin a sum at another step."""
    stmt = site.stmt
    match stmt:
        case kir.TmaLoad() | kir.CpAsync() | kir.QueueCopy() if site.loops:
            # tile k, where k + distance is meant
            k = site.loops[-1].index
            origin = tuple(_without_distance(expr, k) for expr in stmt.src.origin)
            if origin != stmt.src.origin:
                yield "no prefetch distance", replace(stmt, src=replace(stmt.src, origin=origin))
        case kir.Load(tile, kir.Slot(buffer)) | kir.Store(kir.Slot(buffer), tile) if (
            len(buffer.shape) > 1 and buffer.shape[-1] == buffer.shape[-2]
        ):
            # of a square both ways are moves, of single elements or of matrices of 16 bits
            if stmt.transposed:
                yield "axes as they lie", replace(stmt, transposed=False)
            elif _turns(stmt, tile.layout, buffer.dtype):
                yield "axes exchanged", replace(stmt, transposed=True)
        case kir.Slice(dst, src, column):
            width = dst.layout.shape[-1]
            for beside in (column - width, column + width):
                if 0 <= beside <= src.layout.shape[-1] - width:
                    yield f"columns from {beside}", replace(stmt, column=beside)
        case kir.Wgmma(accumulate=since):
            others: dict[str, Expr] = {"never": 0, "always": 1}
            if isinstance(since, Op) and since.kind in (Kind.LT, Kind.LE):
                others["a step later"] = Op(since.kind, since.a, since.b - 1)
            for words, other in others.items():
                if other != since:
                    yield f"added up {words}", replace(stmt, accumulate=other)
        case _:
            pass


def _turns(stmt: kir.Load | kir.Store, layout: kir.Layout, dtype: DType) -> bool:
    """Whether an instruction moves this tile with its axes exchanged."""
    if layout.folded > 1 or (isinstance(stmt, kir.Load) and stmt.limit is not None):
        return False
    if stmt.matrix:
        pairs = stmt.width == layout.vector == 2 == dtype.nbytes
        return pairs and layout.deal is kir.Deal.STRIPS
    return stmt.width == 1 and layout.deal is kir.Deal.ROUND


def _without_distance(expr: Expr, k: Var) -> Expr:
    match expr:
        case Op(Kind.ADD, a, int()) if a == k:
            return k
        case Op(kind, a, b):
            return Op(kind, _without_distance(a, k), _without_distance(b, k))
        case _:
            return expr


def trip(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Run a loop once more, or without its first or last iteration."""
    hazards = ("H13", "H16")
    for site in sites(kernel):
        loop = site.stmt
        if isinstance(loop, kir.ForLoop):
            yield site.instead("trip", "once more", hazards, replace(loop, stop=loop.stop + 1))
            late, early = loop.index + 1 < loop.stop, loop.index >= 1
            for words, condition in (("no last", late), ("no first", early)):
                guarded = replace(loop, body=(kir.IfThenElse(condition, loop.body),))
                yield site.instead("trip", words, hazards, guarded)


def stages(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Skip a sync from a late iteration on, which no short run can show."""
    for site in sites(kernel):
        if synchronises(site.stmt) and site.loops:
            early = kir.IfThenElse(site.loops[-1].index < LATE, (site.stmt,))
            yield site.instead("stages", f"not from {LATE} on", rows(site.stmt), early)


# --- who and where: other threads, the same bytes, what a launch promises -----------------------

_OTHER = {kir.Per.ROLE: kir.Per.WARP, kir.Per.WARP: kir.Per.ROLE, kir.Per.WARPGROUP: kir.Per.WARP}


def role(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Let other threads execute a statement than those that should."""
    for site in sites(kernel):
        stmt, own = site.stmt, site.role
        first, warps = (own.first_warp, own.warps) if own else (0, kernel.threads // kir.WARP)
        match stmt:
            case kir.Elect(per):
                hazards = ("H14", *rows(stmt))
                yield site.instead("role", "by all threads", hazards, *stmt.body)
                if warps > 1:
                    other, second = replace(stmt, per=_OTHER[per]), _by_warp(first + 1, stmt)
                    yield site.instead("role", f"per {other.per.value}", hazards, other)
                    yield site.instead("role", "by the second warp", hazards, second)
            case kir.LastArriving():
                counted, elected = replace(stmt, body=()), kir.Elect(kir.Per.ROLE, (stmt,))
                own_rows = rows(stmt)
                yield site.instead("role", "not counted, by every CTA", own_rows, *stmt.body)
                yield site.instead("role", "by every CTA", own_rows, counted, *stmt.body)
                yield site.instead("role", "by none", own_rows, counted)
                yield site.instead("role", "asked by one thread", own_rows, elected)
            case kir.Wgmma():  # three warps of a warpgroup issue what needs all four
                some = kir.Role("part", first, warps - 1, (stmt,))
                yield site.instead("role", "a warp stays away", ("H27",), some)
            case kir.Load(_, kir.Slot()) | kir.Store(kir.Slot()) if not (
                stmt.matrix or stmt.transposed
            ):
                # By `ldmatrix` or `stmatrix` any lane may touch any element of a tile.
                yield site.instead("role", "by any lane", ("H70",), replace(stmt, matrix=True))
            case _:
                pass
        if isinstance(stmt, kir.SYNCS) and site.elect is not None and site.body is site.elect.body:
            yield from _apart(site, site.elect, _by_warp(first + 1, stmt) if warps > 1 else None)
        if synchronises(stmt) and own is not None:
            yield from _elsewhere(kernel, site, own)


def _by_warp(number: int, stmt: kir.Stmt) -> kir.Role:
    """Let a warp execute a statement, which is elected already or by one thread of it."""
    elected = stmt if isinstance(stmt, kir.Elect) else kir.Elect(kir.Per.ROLE, (stmt,))
    return kir.Role(f"warp{number}", number, 1, (elected,))


def _apart(site: Site, elect: kir.Elect, second: kir.Role | None) -> Iterator[Mutant]:
    """Take a sync out of its election: to all threads, or to the elected one of another warp."""
    before, after = site.body[: site.index], site.body[site.index + 1 :]
    hazards = ("H14", "H43") if isinstance(site.stmt, kir.AsyncAwait) else ("H14",)
    for words, stmt in (("by all threads", site.stmt), ("by the second warp", second)):
        if stmt is not None:
            split: list[kir.Stmt] = [kir.Elect(elect.per, before)] if before else []
            split += [stmt, *([kir.Elect(elect.per, after)] if after else [])]
            own_rows = (*hazards, *rows(site.stmt))
            yield site.mutant("role", f"apart, {words},", own_rows, (elect, split))


def _elsewhere(kernel: kir.Kernel, site: Site, own: kir.Role) -> Iterator[Mutant]:
    """Give a sync to another role, at every place of its loop or body."""
    between = site.parents[site.parents.index(own) + 1 :]
    moved = wrapped(site.stmt, between)
    for there in sites(kernel):
        other = there.stmt
        if not isinstance(other, kir.Role) or other is own or other in site.parents:
            continue
        target: kir.ForLoop | kir.Role = other
        if site.loops:
            target = next((s for s in kir.walk(other.body) if isinstance(s, kir.ForLoop)), other)
        for at in range(len(target.body) + 1):
            put = replace(target, body=(*target.body[:at], moved, *target.body[at:]))
            where = {0: "first", len(target.body): "last"}.get(at, f"at place {at}")
            change, hazards = f"{where} in role {other.name},", ("H14", *rows(site.stmt))
            yield site.mutant("role", change, hazards, (site.stmt, ()), (target, (put,)))


def alias(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Give two things the same bytes, a barrier none, or a ring fewer slots than its barriers have.

    Buffers lie 16 bytes later, too: their neighbours' bytes, or an address that no copy takes.
    """
    for one, other in combinations(kernel.buffers, 2):
        fits = not one.offset % (8 * other.swizzle or 1)  # else it would be refused for that alone
        moved = replace(other, offset=one.offset, swizzle=other.swizzle if fits else 0)
        changed = redeclared(kernel, other, moved)
        yield Mutant(f"{other.name} lies on {one.name}", changed, "alias", ("H74",))
    for buffer in kernel.buffers:
        changed = redeclared(kernel, buffer, replace(buffer, offset=buffer.offset + 16))
        yield Mutant(f"{buffer.name} lies 16 bytes later", changed, "alias", ("H74",))
    for barrier in kernel.barriers:
        for buffer in kernel.buffers:
            changed = redeclared(kernel, barrier, replace(barrier, offset=buffer.offset))
            yield Mutant(f"{barrier.name} lies on {buffer.name}", changed, "alias", ("H74", "H11"))
    yield from _misplaced(kernel)
    for buffer in kernel.buffers:
        if buffer.slots > 1:
            less = replace(buffer, slots=buffer.slots - 1)
            uses = {slot for slot in parts(kernel.body, kir.Slot) if slot.buffer == buffer}
            table: dict[object, object] = {
                slot: replace(slot, buffer=less, index=_fewer(slot.index, buffer.slots))
                for slot in uses
            }
            buffers = substituted(kernel.buffers, {buffer: less})
            changed = replace(kernel, buffers=buffers, body=substituted(kernel.body, table))
            yield Mutant(f"a slot fewer in {buffer.name}", changed, "alias", ("H05", "H53"))


def _misplaced(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Lay barriers on each other (in bytes nobody uses), past what there is, at odd bytes."""
    unused = -(-max((b.end for b in kernel.buffers), default=0) // 128) * 128
    ring = max((m.slots for m in kernel.barriers), default=0)
    spare = kir.Buffer("spare", DType.I64, (ring,), 1, unused)
    roomy = replace(kernel, buffers=(*kernel.buffers, spare))
    for one, other in combinations(kernel.barriers, 2):
        changed = redeclared(roomy, one, replace(one, offset=unused))
        changed = redeclared(changed, other, replace(other, offset=unused))
        yield Mutant(f"{one.name} lies on {other.name}", changed, "alias", ("H74", "H11"))
    for barrier in kernel.barriers:
        for words, at in (("past the end", kernel.smem_bytes), ("at an odd place", unused + 4)):
            changed = redeclared(roomy if at % 8 else kernel, barrier, replace(barrier, offset=at))
            yield Mutant(f"{barrier.name} lies {words}", changed, "alias", ("H74",))


def _fewer(at: Expr, slots: int) -> Expr:
    match at:
        case Op(Kind.MOD, a, b) if b == slots:
            return a % (slots - 1)
        case _:
            return at % (slots - 1)


def no_reset(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Leave a semaphore at another value than the next launch expects."""
    for site in syncs(kernel):
        match site.stmt:
            case kir.BlockSerializeRelease(turn=Op(Kind.MOD, following, ctas)) as stmt:
                other = replace(stmt, turn=following)
                yield site.instead("no_reset", "no reset", ("H80",), other)
                silent = kir.IfThenElse(Op(Kind.LT, following, ctas), (stmt,))
                yield site.instead("no_reset", "the last one is silent", ("H80",), silent)
            case _:
                pass


def promise(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Promise less about which CTAs run at once, or more about the bits that come out."""
    if kernel.residency != "any":
        changed = replace(kernel, residency="any")
        yield Mutant("any CTA may run first", changed, "promise", ("H84",))
    if kernel.determinism != "bitwise":
        changed = replace(kernel, determinism="bitwise")
        yield Mutant("the same bits always", changed, "promise", ("H83",))


# --- all of them --------------------------------------------------------------------------------

_IN_ORDER = (
    drop, twice, swap, move, weaken, predicate, count, phase, index, alias, role, proxy, no_reset,
    promise, hoist, trip, stages,
)  # fmt: skip
OPERATORS: dict[str, Callable[[kir.Kernel], Iterator[Mutant]]] = {
    operator.__name__: operator for operator in _IN_ORDER
}
"""Every operator by its name."""
SYNC_OPERATORS = ("drop", "swap", "weaken")
"""Those that leave one sync out, exchange it with its neighbour, or let it do less."""


def mutants(kernel: kir.Kernel, operator: str) -> Iterator[Mutant]:
    """Yield the mutants of a finished kernel by one operator: other kernels, none of them twice.

    What uses a variable outside its scope is no kernel and left out; what a validator would refuse
    for another reason (a barrier inside an election) is a mutant.
    """
    seen, has = {text(kernel)}, traits(kernel)
    for mutant in OPERATORS[operator](kernel):
        if closed(mutant.kernel) and (words := text(mutant.kernel)) not in seen:
            seen.add(words)
            yield replace(mutant, hazards=aimed(mutant, has))


def all_mutants(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Yield the mutants of every operator; a kernel that two operators make counts once."""
    seen: set[str] = set()
    for operator in OPERATORS:
        for mutant in mutants(kernel, operator):
            if (words := text(mutant.kernel)) not in seen:
                seen.add(words)
                yield mutant


def drop_each_sync(kernel: kir.Kernel) -> Iterator[Mutant]:
    """Yield one mutant per sync statement, with that statement left out."""
    return drop(kernel)
