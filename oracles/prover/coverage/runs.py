"""Bulk copies without a tensor map: what they copy, what is expected of them, who reads it.

The bytes of a clipped box are an expression.  An expectation is judged with the copies beside it,
of the same phase, whatever the numbers are: if it expects their bytes, `reachability` may count
whole boxes on both sides (`nominal`).  What nobody expects beside it is not known.

Behind the clip nothing lies in a slot.  Who reads it has to stop there; that is shown where the
clip is the same in every iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod

from fuser.expr import Expr, Kind, Op, fold, variables
from fuser.kernel import ir as kir
from oracles.prover import launches
from oracles.prover.arithmetic import Values, function, poly
from oracles.prover.coverage.values import Budget, TooManyError, iterations, small
from oracles.prover.sites import Site, every, slots, unknown
from oracles.prover.solver import Known
from oracles.verdict import Finding

UNIT = 16
"""Bytes of which addresses and sizes are multiples.  Source: PTX ISA, "cp.async.bulk"."""
Expects = kir.MBarrierArriveExpectTx | kir.MBarrierExpectTx
Claim = tuple[str, str]


def is_run(stmt: kir.Stmt) -> bool:
    """Tell whether a statement is a bulk copy without a tensor map."""
    return isinstance(stmt, kir.TmaLoad | kir.TmaStore) and stmt.bulk


def _ends(stmt: kir.TmaLoad | kir.TmaStore) -> tuple[kir.Slot, kir.Box]:
    return (stmt.dst, stmt.src) if isinstance(stmt, kir.TmaLoad) else (stmt.src, stmt.dst)


def sizes(box: kir.Box) -> tuple[Expr, ...]:
    """Return the elements of a clipped box along each axis."""
    out = []
    for origin, many, limit in zip(box.origin, box.shape, box.limit, strict=True):
        left = fold(Kind.SUB, limit, origin)
        whole = poly(left) == poly(many)
        out.append(many if whole else fold(Kind.MAX, 0, fold(Kind.MIN, many, left)))
    return tuple(out)


def _bytes(load: kir.TmaLoad) -> Expr:
    if not load.bulk:
        return _whole(load)
    nbytes: Expr = load.src.tensor.dtype.nbytes
    for many in sizes(load.src):
        nbytes = fold(Kind.MUL, nbytes, many)
    return nbytes


def _whole(load: kir.TmaLoad) -> int:
    return prod(load.src.shape) * load.src.tensor.dtype.nbytes


def groups(kernel: kir.Kernel) -> list[tuple[Expects | None, list[kir.TmaLoad]]]:
    """Return expectations, each with the loads of its phase beside it; None: loads alone.

    Loads right behind an expectation are of its phase, which cannot end without them.  Loads right
    before it are if nobody else expects bytes of the barrier: what they add to its phase has to be
    expected before that ends.
    """
    out: list[tuple[Expects | None, list[kir.TmaLoad]]] = []
    expecting = Counter(
        stmt.barrier
        for stmt in kernel.walk()
        if isinstance(stmt, kir.MBarrierArriveExpectTx | kir.MBarrierExpectTx)
    )

    def body(stmts: tuple[kir.Stmt, ...]) -> None:
        beside: tuple[Expects | None, list[kir.TmaLoad]] = (None, [])
        phase: tuple[kir.MBarrier, Expr] | None = None
        for stmt in stmts:
            match stmt:
                case kir.MBarrierArriveExpectTx(barrier) | kir.MBarrierExpectTx(barrier):
                    early: list[kir.TmaLoad] = []
                    if (
                        beside[0] is None
                        and phase == (barrier, stmt.slot)
                        and expecting[barrier] == 1
                    ):
                        early = beside[1]
                        out.pop()
                    beside, phase = (stmt, early), (barrier, stmt.slot)
                    out.append(beside)
                case kir.TmaLoad(_, _, barrier, slot):
                    if phase != (barrier, slot):
                        beside, phase = (None, []), (barrier, slot)
                        out.append(beside)
                    beside[1].append(stmt)
                case kir.Let():
                    pass
                case _:
                    beside, phase = (None, []), None
                    for inner in kir.bodies(stmt):
                        body(inner)

    body(kernel.body)
    return out


def nominal(kernel: kir.Kernel) -> dict[int, int]:
    """Return the bytes that expectations count as, by their identity, where boxes count whole."""
    return {
        id(expects): sum(map(_whole, loads))
        for expects, loads in groups(kernel)
        if expects is not None and not _plain(expects, loads)
    }


def _plain(expects: Expects | None, loads: list[kir.TmaLoad]) -> bool:
    """Whether copies are of whole boxes, and numbers of bytes are expected, if any."""
    whole = all(_bytes(load) == _whole(load) for load in loads)
    return whole and (expects is None or isinstance(expects.nbytes, int))


def _sum(loads: list[kir.TmaLoad]) -> Expr:
    total: Expr = 0
    for load in loads:
        total = fold(Kind.ADD, total, _bytes(load))
    return total


# --- one copy -------------------------------------------------------------------------------------


def claims(stmt: kir.TmaLoad | kir.TmaStore, site: Site) -> list[Claim]:
    """Claim that a copy is of one run of memory, at multiples of 16 bytes."""
    slot, box = _ends(stmt)
    buffer, tensor = slot.buffer, box.tensor
    nbytes = tensor.dtype.nbytes
    same = box.shape == buffer.shape and tensor.dtype is buffer.dtype and not buffer.swizzle
    first = next((axis for axis, n in enumerate(box.shape) if n > 1), len(box.shape) - 1)
    behind = prod(box.shape[first + 1 :])
    one = tensor.strides[first] == behind
    for axis in range(first + 1, len(box.shape)):
        step = prod(box.shape[axis + 1 :])
        whole = (tensor.extents[axis], box.limit[axis]) == (box.shape[axis],) * 2
        one = one and tensor.strides[axis] == step and whole and box.origin[axis] == 0
    unit = UNIT // gcd(UNIT, nbytes * behind)
    odd = next((at for at in map(buffer.start, range(buffer.slots)) if at % UNIT), 0)
    start, end = (poly(site.plain(of[first])) for of in (box.origin, box.limit))
    last = first == len(box.shape) - 1
    extent = last and end == poly(tensor.extents[-1]) and not tensor.ragged
    told = (
        (same, f"a box of {box.shape} for a slot of {buffer.shape}"),
        (one, f"{box.shape} of {tensor.name} is no run of memory for sure"),
        (not odd, f"a slot starts at byte {odd}, no multiple of {UNIT}"),
        (tensor.aligned * nbytes % UNIT == 0, f"{tensor.name} is aligned to {tensor.aligned}"),
        (all(n % unit == 0 for _, n in start), f"origin {box.origin[first]}: odd bytes"),
        (
            extent or all(n % unit == 0 for _, n in end),
            f"limit {box.limit[first]} may cut {UNIT} bytes",
        ),
        (box.shape[first] % unit == 0, f"{box.shape} elements are no multiple of {UNIT} bytes"),
        (len(site.place.threads) == 1, f"{len(site.place.threads)} threads each issue this copy"),
    )
    return [("bounds", "" if holds else says) for holds, says in told]


def reached(site: Site) -> tuple[Expr, ...]:
    """Return what holds where a site is executed: also that `(i + 1) * y <= x` if `i < x // y`."""
    out: list[Expr] = [*site.guards, *(loop.index < loop.stop for loop in site.loops)]
    for given in tuple(out):
        match given:
            case Op(Kind.LT, number, Op(Kind.FLOORDIV, whole, by)):
                out.append(fold(Kind.LE, (number + 1) * by, whole))
            case _:
                pass
    return tuple(out)


# --- all of a kernel ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """How many claims were looked at, what is wrong in some launch, and what is not known."""

    checked: int
    findings: tuple[Finding, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Question:
    """Whether one expression is `at_most` another, or equal to it, wherever a site is executed."""

    site: Site
    left: Expr
    right: Expr
    equal: bool
    kind: str
    says: str

    def holds(self, known: Known) -> bool:
        if poly(self.left) == poly(self.right):
            return True
        kind = Kind.EQ if self.equal else Kind.LE
        return known.gives(fold(kind, self.left, self.right), *reached(self.site))

    def broken(self, values: Values, budget: Budget) -> Values | None:
        """Return a step of a launch in which it does not hold."""
        loops = [(loop.index.name, function(loop.stop)) for loop in self.site.loops]
        guards = [function(guard) for guard in self.site.guards]
        left, right = function(self.left), function(self.right)
        for block in range(values[kir.GRID.name]):
            for now in iterations(loops, {**values, kir.BLOCK.name: block}):
                budget.spend()
                if all(guard(now) for guard in guards):
                    a, b = left(now), right(now)
                    if a > b or (self.equal and a != b):
                        return now
        return None


def judge(kernel: kir.Kernel, found: tuple[Site, ...], known: Known) -> Judged:
    """Judge what bulk copies copy beside what is expected, and what is read of it."""
    if not any(is_run(stmt) for stmt in kernel.walk()):
        return Judged(0)
    by_stmt = {id(site.stmt): site for site in every(kernel)}
    asked: list[_Question] = []
    reasons: list[str] = []
    for expects, loads in groups(kernel):
        if _plain(expects, loads):
            continue
        if expects is None or not loads or id(expects) not in by_stmt:
            names = ", ".join(load.dst.buffer.name for load in loads)
            reasons.append(f"bytes of {names} are not counted beside what expects them")
            continue
        site = by_stmt[id(expects)]
        pair = site.plain(expects.nbytes), site.plain(_sum(loads))
        says = f"{expects.nbytes} bytes are expected, the copies beside it are of {_sum(loads)}"
        asked.append(_Question(site, *pair, equal=True, kind="bytes", says=says))
    for question in _reads(found, known, reasons):
        asked.append(question)
    left = []
    for question in asked:
        if unknown((question.left, question.right, *question.site.conditions)):
            where = f"{question.site.where}: {question.says}"
            reasons.append(f"{where}: an assignment changes what that depends on")
        elif not question.holds(known):
            left.append(question)
    shown = _shown(kernel, left) if left else None
    if shown is not None:
        return Judged(len(asked), (shown,))
    reasons += [f"{one.site.where}: {one.says}, not so for sure" for one in left]
    return Judged(len(asked), (), reasons[0] if reasons else "")


def _shown(kernel: kir.Kernel, left: list[_Question]) -> Finding | None:
    for values, budget in small(kernel):
        for one in left:
            try:
                now = one.broken(values, budget)
            except (TooManyError, ZeroDivisionError):
                continue
            if now is not None:
                launch, names = launches.named(values)
                trips = max((function(loop.stop)(now) for loop in one.site.loops), default=0)
                says = f"trips={trips}, {names}: {one.says}"
                finding = Finding(one.kind, one.site.where, says, lines=(one.site.line,))
                return replace(finding, trips=trips, launch=launch)
    return None


def _held(site: Site, box: kir.Box, known: Known) -> tuple[Expr, ...]:
    """Return how much of a slot is filled along its axes: all of it, where that is sure."""
    given = reached(site)
    out = []
    for origin, many, limit, size in zip(box.origin, box.shape, box.limit, sizes(box), strict=True):
        end, stop = site.plain(fold(Kind.ADD, origin, many)), site.plain(limit)
        whole = not unknown((end, stop)) and known.at_most(end, stop, *given)
        out.append(many if whole else site.plain(size))
    return tuple(out)


def _reads(found: tuple[Site, ...], known: Known, reasons: list[str]) -> Iterator[_Question]:
    """Ask of everyone who reads a slot that bulk copies fill in part where they stop."""
    fills = [
        (site, site.stmt, _held(site, site.stmt.src, known))
        for site in found
        if isinstance(site.stmt, kir.TmaLoad) and site.stmt.bulk
    ]
    for fill, load, held in fills:
        if held == load.src.shape:
            continue
        for site in found:
            for slot, wanted in _read(site):
                if not slot.buffer.shares(load.dst.buffer):
                    continue
                moving = {loop.index for loop in fill.loops}
                if any(variables(n) & moving for n in held) or unknown(held):
                    reasons.append(
                        f"{site.where}: how much of {load.dst.buffer.name} is filled changes from "
                        "iteration to iteration, and which it reads is not followed"
                    )
                    continue
                if len(wanted) != len(held) or slot.buffer.shape != load.dst.buffer.shape:
                    reasons.append(f"{site.where}: reads {slot.buffer.name} in another shape")
                    continue
                for one, other in zip(wanted, held, strict=True):
                    says = f"reads {one} of {slot.buffer.name}, of which {other} are filled"
                    yield _Question(
                        site, site.plain(one), other, equal=False, kind="RAW", says=says
                    )


def _read(site: Site) -> Iterator[tuple[kir.Slot, tuple[Expr, ...]]]:
    """Yield what a statement reads of slots, and how much of each along its axes."""
    match site.stmt:
        case kir.Load(_, kir.Slot() as slot, limit=limit):
            whole = slot.buffer.shape
            ends = limit or whole
            least = (fold(Kind.MIN, a, b) for a, b in zip(ends, whole, strict=True))
            yield slot, tuple(least) if limit else whole
        case kir.TmaStore(box, slot, bulk=True):
            yield slot, sizes(box)
        case kir.Store() | kir.TmaLoad() | kir.CpAsync() | kir.StAsync() | kir.QueueCopy():
            pass
        case _:
            for slot in slots(site.stmt):
                yield slot, slot.buffer.shape
