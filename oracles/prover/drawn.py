"""Kernels whose CTAs draw the numbers of their tiles: plainer kernels that stand for them.

The n-th number that threads fetch is the n-th that their CTA has drawn (`numbers` has z3 decide
that, by the argument of `mma-operand-coverage`).  So all threads of a CTA leave their loops in the
same iteration, behind so many tiles as it happens to have drawn: any number, the same for all.
Nothing else depends on the numbers but which boxes of tensors are accessed that nobody else does.

- `followed` is one CTA with so many tiles as a parameter says: a draw is a store, a fetch a load,
  and what stands before the exit comes once more behind the loop.  It is judged as any kernel, but
  for what is written.  In `counted`, for `numbers`, it is another iteration of the loop.
- `by_one` is a launch of one CTA that draws all numbers below the end.  Each of these is drawn
  once in any launch, and what is done for it does not depend on the CTA; so all CTAs together write
  what this one does.

A kernel that is made in another way is not supported, and it is said why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace

from fuser.dtype import DType
from fuser.expr import Expr, Kind, Op, Var, eq, fold, variables
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.named.check import reach
from oracles.prover.named.order import ordinal
from oracles.prover.named.products import Fill, Read, Rings
from oracles.prover.named.program import (
    Asked,
    Point,
    Program,
    UndecidedError,
    WitnessedError,
    difference,
    normal,
    repeated,
)
from oracles.prover.sites import facts, kinds, shared_tensors
from oracles.prover.solver import Possible

TILES = Var("tiles of the CTA")
"""How many of the numbers that a CTA draws are below the end."""
Body = tuple[kir.Stmt, ...]
_NODES = kir.Loop | kir.Fetch | kir.Leave | kir.Draw


@dataclass(frozen=True, slots=True)
class Split:
    """What stands for a kernel; `twice` is the draw that is not atomic, if it is not.

    `lines` has the line in the kernel of each line of `followed`, `mine` are the draws and fetches
    of `counted`; in `before` nothing stands behind the exits of loops.
    """

    followed: kir.Kernel
    counted: kir.Kernel
    mine: Sequence[kir.Stmt]
    by_one: kir.Kernel
    before: kir.Kernel
    twice: kir.Draw | None
    lines: Mapping[int, tuple[int, str]]


def subject(kernel: kir.Kernel) -> bool:
    """Whether a kernel draws numbers."""
    return any(isinstance(stmt, _NODES) for stmt in kernel.walk())


def split(kernel: kir.Kernel) -> Split:
    """Return the kernels that stand for one.

    Raises
    ------
    UnsupportedError
        If they would not.
    """
    _only_boxes(kernel)
    draws = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.Draw)]
    loops = [stmt for stmt in kernel.walk() if isinstance(stmt, kir.Loop)]
    stops = {stmt.stop for stmt in kernel.walk() if isinstance(stmt, kir.Leave)}
    if len(draws) != 1 or len(stops) != 1 or len(kernel.counters) != 1:
        says = f"numbers are drawn in {len(draws)} places, and end at {len(stops)} numbers"
        raise UnsupportedError(f"{says}; followed is one place, one counter and one end")
    if kernel.cluster > 1 or kernel.semaphores or kernel.dependent or shared_tensors(kernel):
        says = "clusters, semaphores, dependent launches or tensors that CTAs hand on"
        raise UnsupportedError(f"numbers are drawn in a kernel with {says}")
    (stop,) = stops
    if not variables(stop) <= {*kernel.params}:
        raise UnsupportedError(f"numbers end at {stop}, which is no number of the launch")
    ends = sum(isinstance(stmt, kir.Fetch | kir.Leave) for stmt in kernel.walk())
    if ends != 2 * len(loops):
        raise UnsupportedError(f"{ends} fetches and exits stand in {len(loops)} loops left by them")
    _apart(kernel, draws[0].dst.buffer)
    if sum(draws[0] in _top(loop) for loop in loops) != 1:
        raise UnsupportedError(f"{line(draws[0])}: it stands not once in each iteration of a Loop")
    fetched = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Fetch)}
    if {*fetched, *(loop.index for loop in loops)} & {*kernel.params}:
        raise UnsupportedError("a number that is drawn, or counted, has the name of a parameter")
    common = replace(kernel, counters=())
    taken = replace(
        common,
        params=(*kernel.params, TILES, *sorted(fetched, key=str)),
        requires=(*kernel.requires, repeated(stop) >= TILES),
    )
    reader, counter = _Reader(behind=True), _Reader(behind=False)
    short = kernel.rewrite(lambda stmt: [_without(stmt)] if isinstance(stmt, kir.Loop) else None)
    followed, counted = (replace(taken, body=r.kernel(kernel)) for r in (reader, counter))
    before = replace(taken, body=_Reader(behind=False).kernel(short))
    alone = tuple(r for r in kernel.requires if kir.GRID not in variables(r))
    by_one = replace(common, body=_by_one(kernel.body), requires=(*alone, eq(kir.GRID, 1)))
    there = {id(stmt): n for n, stmt in numbered(kernel)}
    lines = {
        n: (there[id(of)], f"line {there[id(of)]}: {line(of)}")
        for n, stmt in numbered(followed)
        if (of := reader.of.get(id(stmt))) is not None
    }
    twice = None if draws[0].atomic or eq(kir.GRID, 1) in kernel.requires else draws[0]
    return Split(followed, counted, counter.mine, by_one, before, twice, lines)


def _apart(kernel: kir.Kernel, numbers: kir.Buffer) -> None:
    """Demand that nothing but draws is stored where the numbers are, and all are fetched there."""
    spans = [(m.offset, m.offset + 8 * m.slots) for m in kernel.barriers if m.offset is not None]
    beside = any(b != numbers and b.shares(numbers) for b in kernel.buffers)
    if beside or any(numbers.holds(*span) for span in spans):
        raise UnsupportedError(f"{numbers.name} holds numbers, and shares its bytes with others")
    for stmt in kernel.walk():
        fine = isinstance(stmt, kir.Draw | kir.Fetch)
        if fine != any(slot.buffer == numbers for slot in _slots(stmt)):
            raise UnsupportedError(f"{line(stmt)}: numbers that are drawn are all in one buffer")


def _slots(stmt: kir.Stmt) -> Iterator[kir.Slot]:
    match stmt:
        case kir.Wgmma():
            yield from stmt.columns
        case _:
            pass
    for one in fields(stmt):
        if isinstance(found := getattr(stmt, one.name), kir.Slot):
            yield found


def _parts(loop: kir.Loop) -> tuple[Body, Body]:
    """Return what stands before and behind the exit of a loop."""
    ends = [n for n, stmt in enumerate(loop.body) if isinstance(stmt, kir.Leave)]
    begins = [n for n, stmt in enumerate(loop.body) if isinstance(stmt, kir.Fetch)]
    if len(ends) != 1 or len(begins) != 1 or begins[0] > ends[0]:
        raise UnsupportedError(f"{line(loop)}: it is not left by one number that it fetches once")
    leave, fetch = loop.body[ends[0]], loop.body[begins[0]]
    assert isinstance(leave, kir.Leave), "found above"
    assert isinstance(fetch, kir.Fetch), "found above"
    if leave.var != fetch.var:
        raise UnsupportedError(f"{line(leave)}: it fetches {fetch.var}")
    between = kir.walk(loop.body[begins[0] + 1 : ends[0]])
    if any(fetch.var in variables(e) for stmt in between for e, _ in _expressions(stmt)):
        raise UnsupportedError(
            f"{line(loop)}: {fetch.var} is used before it is held against its end"
        )
    return loop.body[: ends[0]], loop.body[ends[0] + 1 :]


def _without(loop: kir.Loop) -> kir.Loop:
    """Return a loop without what stands behind its exit."""
    _, behind = _parts(loop)
    return replace(loop, body=loop.body[: len(loop.body) - len(behind)])


def _top(loop: kir.Loop) -> list[kir.Stmt]:
    """Return what is executed in each iteration, also by elected threads."""
    before, _ = _parts(loop)
    inside = (s.body if isinstance(s, kir.Elect) else (s,) for s in before)
    return [stmt for body in inside for stmt in body]


class _Reader:
    """Makes `followed`, or where nothing is put `behind` loops `counted`.

    `of` has the statement that each new one stands for, by identity; `mine` are the new draws and
    fetches.
    """

    def __init__(self, *, behind: bool) -> None:
        self.behind = behind
        self.of: dict[int, kir.Stmt] = {}
        self.mine: list[kir.Stmt] = []
        self.number = kir.Fragment("number drawn", DType.I32, kir.Layout((1,), 1, 1))

    def kernel(self, kernel: kir.Kernel) -> Body:
        """Return the body of the new kernel."""
        zero = kir.Compute(self.number, "cast", (kir.Literal(0, DType.I32),))
        return (zero, *self._body(kernel.body, kernel.threads // kir.WARP, elected=False))

    def _body(self, body: Body, warps: int, *, elected: bool) -> Body:
        """Read a body; `warps` are those of its role."""
        out: list[kir.Stmt] = []
        for stmt in body:
            match stmt:
                case kir.Role(_, _, own, inner):
                    out.append(replace(stmt, body=self._body(inner, own, elected=elected)))
                case kir.Elect(per, inner):
                    mine = any(isinstance(s, _NODES) for s in kir.walk(inner))
                    if per is not kir.Per.ROLE and mine:
                        raise UnsupportedError(f"{line(stmt)}: it holds what is done with numbers")
                    out.append(kir.Elect(per, self._body(inner, warps, elected=True)))
                case kir.Loop():
                    out += self._loop(stmt, warps, elected=elected)
                    continue
                case kir.Draw(dst):
                    out.append(kir.Store(dst, self.number, 1))
                case kir.Fetch(var, src):
                    many = 1 if elected else warps * kir.WARP
                    layout = kir.Layout((many,), 1, many)
                    into = kir.Fragment(f"{var.name} fetched", DType.I32, layout)
                    out.append(kir.Load(into, src, 1))
                case _ if any(isinstance(s, _NODES) for s in kir.walk((stmt,))):
                    raise UnsupportedError(f"{line(stmt)}: it is around a loop left by a number")
                case _:
                    out.append(deepcopy(stmt))
                    pairs = zip(kir.walk((out[-1],)), kir.walk((stmt,)), strict=True)
                    self.of |= {id(new): old for new, old in pairs}
            self.of[id(out[-1])] = stmt
            if isinstance(stmt, kir.Draw | kir.Fetch):
                self.mine.append(out[-1])
        return tuple(out)

    def _loop(self, loop: kir.Loop, warps: int, *, elected: bool) -> Iterator[kir.Stmt]:
        index = loop.index
        first, last = _parts(loop)
        before, behind = (self._body(part, warps, elected=elected) for part in (first, last))
        if self.behind:
            again, on = Var(f"{index.name} again"), kir.Assign(index, index + 1)
            made = kir.ForLoop(again, TILES, (*before, *behind, on))
            yield kir.Let(index, 0)
            yield made
            yield from self._body(first, warps, elected=elected)
        else:
            made = kir.ForLoop(index, TILES + 1, (*before, kir.IfThenElse(index < TILES, behind)))
            yield made
        self.of[id(made)] = loop


def _by_one(body: Body) -> Body:
    """Return a body of `by_one`."""

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Loop(index):
                before, behind = _parts(stmt)
                fetch = next(s for s in before if isinstance(s, kir.Fetch))
                leave = next(s for s in stmt.body if isinstance(s, kir.Leave))
                inner = (kir.Let(index, fetch.var), *_by_one(before), *_by_one(behind))
                return [kir.ForLoop(fetch.var, leave.stop, inner)]
            case kir.Fetch() | kir.Draw():
                return []
            case _:
                return None

    return kir.rewrite(body, rule)


# --- what depends on the numbers ------------------------------------------------------------------


def _only_boxes(kernel: kir.Kernel) -> None:
    """Demand that numbers decide where boxes lie, and nothing else; and CTAs nothing at all."""
    drawn = {stmt.var for stmt in kernel.walk() if isinstance(stmt, kir.Fetch)}
    many = -1
    while many != len(drawn):
        many = len(drawn)
        for stmt in kernel.walk():
            if isinstance(stmt, kir.Let | kir.Assign) and variables(stmt.value) & drawn:
                drawn.add(stmt.var)
    for stmt in kernel.walk():
        for expr, boxed in _expressions(stmt):
            used = variables(expr)
            if used & {kir.BLOCK, kir.GRID}:
                raise UnsupportedError(f"{line(stmt)}: its CTA works on numbers that it draws, too")
            fine = boxed or isinstance(stmt, kir.Let | kir.Assign | kir.Leave | kir.Coordinate)
            if used & drawn and not fine:
                raise UnsupportedError(f"{line(stmt)}: more than a box depends on a number drawn")


def _expressions(node: object, *, boxed: bool = False) -> Iterator[tuple[Expr, bool]]:
    """Give the expressions of a statement, without its bodies, and whether they place a box."""
    match node:
        case int() | Var() | Op():
            yield node, boxed
        case kir.Loop() | kir.Tensor() | kir.Buffer() | kir.Layout():
            pass
        case kir.Fetch(_, slot):
            yield slot.index, False
        case kir.Box(_, origin, _, limit, index):
            for expr in (*origin, *limit):
                yield expr, True
            yield from () if index is None else _expressions(index.src)
        case tuple():
            for part in node:
                if not isinstance(part, kir.Stmt):
                    yield from _expressions(part, boxed=boxed)
        case _ if is_dataclass(node):
            for one in fields(node):
                if one.name not in ("body", "then", "orelse"):
                    yield from _expressions(getattr(node, one.name), boxed=boxed)
        case _:
            pass


# --- which number is fetched ----------------------------------------------------------------------


class _Numbers(Rings):
    """The ring of numbers: the n-th draw has position n, and so has the n-th fetch."""

    counted = True
    mine: Sequence[kir.Stmt] = ()

    def readings(
        self, program: Program, point: Point, slots: int, index: Expr, shifts: Iterable[int] = (0,)
    ) -> Iterator[Expr]:
        """Give the one position of a draw or a fetch; of others as ever."""
        if point.stmt not in self.mine:
            yield from super().readings(program, point, slots, index, shifts)
            return
        number = ordinal(point)
        if number is None:
            return
        if difference(point.plain(index), normal(fold(Kind.MOD, number, slots))) == 0:
            yield normal(number)

    def _refilled(self, read: Read, fill: Fill, at: Expr) -> None:
        one, two = ((p.place.first, p.place.warps) for p in (fill.point, read.point))
        if one == two:
            self._in_turn(read, fill, self._filled(fill), at)
        else:
            super()._refilled(read, fill, at)


def numbers(split: Split, rlimit: int) -> tuple[int, str]:
    """Return how many questions prove that the n-th fetch reads the n-th draw, or why none do."""
    counted = split.counted
    asked = Asked(Possible(facts(counted), rlimit), reach(counted), strict=True)
    programs = [Program(counted, kind) for kind in kinds(counted, 1)]
    rings = _Numbers(asked, programs)
    rings.mine = split.mine
    try:
        for program in programs:
            for point in program.points:
                match point.stmt:
                    case kir.Load(_, kir.Slot(buffer, index) as slot) if point.stmt in rings.mine:
                        if not list(rings.readings(program, point, buffer.slots, index)):
                            says = f"{point.where}: its slot is not that of its turn"
                            raise UndecidedError(says)
                        rings.read(Read(program, point, slot))
                    case _:
                        pass
    except (WitnessedError, UndecidedError, UnsupportedError) as error:
        return asked.count, f"whether each fetch reads the number of its turn: {error}"
    return asked.count, ""
