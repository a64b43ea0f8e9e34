"""What is judged without following any thread: turns' values, register budgets, claims.

A kernel in which CTAs take turns is read once for each place a CTA may have among those that share
a semaphore: the only one, the first, the last, and one between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fuser import kernel_ir as kir
from fuser.expr import Expr, Kind, Op, Var, eq, substitute
from oracles.arithmetic import UnsupportedError
from oracles.closure_code import Site
from oracles.closure_rules import Rule
from oracles.closure_state import State
from oracles.closure_world import World

PLACES = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))
"""CTAs that share a semaphore, and the place of one among them."""
REGISTERS = 65536
"""32-bit registers of a multiprocessor that the threads of a CTA may share."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known in one reading of a kernel: of the CTAs `many`, this is number `turn`."""

    fixed: Mapping[Expr, int]
    turn: int
    many: int


def readings(kernel: kir.Kernel) -> Iterator[Reading]:
    """Yield the readings that together stand for all CTAs.

    Raises
    ------
    UnsupportedError
        If it is not known which CTAs share a semaphore.
    """
    waits = [s for s in kernel.walk() if isinstance(s, kir.BlockSerializeWait)]
    releases = [s for s in kernel.walk() if isinstance(s, kir.BlockSerializeRelease)]
    if not waits and not releases:
        yield Reading({}, 0, 1)
        return
    lets = {s.var: s.value for s in kernel.walk() if isinstance(s, kir.Let)}
    turns: list[kir.BlockSerializeWait | kir.BlockSerializeRelease] = [*waits, *releases]
    for stmt in turns:
        index, turn = _whole(stmt.index, lets), _whole(stmt.turn, lets)
        family = _family(kernel, index, turn)
        if family is not None:
            break
    else:
        raise UnsupportedError("no BLOCK // P and BLOCK % P tells which CTAs share a semaphore")
    number, count = family
    for many, place in PLACES:
        yield Reading({number: place, count: many}, place, many)


def _whole(expr: Expr, lets: Mapping[Var, Expr]) -> Expr:
    while True:
        found = substitute(expr, lets)
        if found == expr:
            return expr
        expr = found


def _family(kernel: kir.Kernel, index: Expr, turn: Expr) -> tuple[Expr, Expr] | None:
    """Return the expressions of a CTA's place among those of its semaphore, and their number."""
    for part in _parts(turn):
        match part:
            case Op(Kind.MOD, kir.BLOCK, count) if Op(Kind.FLOORDIV, kir.BLOCK, count) == index:
                if _divides(kernel, count):
                    return part, count
            case Op(Kind.FLOORDIV, kir.BLOCK, others) if Op(Kind.MOD, kir.BLOCK, others) == index:
                for count in _times(kernel, others):
                    return part, count
            case _:
                pass
    return None


def _parts(expr: Expr) -> Iterator[Expr]:
    yield expr
    if isinstance(expr, Op):
        yield from _parts(expr.a)
        yield from _parts(expr.b)


def _times(kernel: kir.Kernel, factor: Expr) -> Iterator[Expr]:
    """Yield what `GRID` is, divided by a factor."""
    for condition in kernel.requires:
        match condition:
            case Op(Kind.EQ, kir.GRID, Op(Kind.MUL, a, b)) if factor in (a, b):
                yield b if factor == a else a
            case _:
                pass


def _divides(kernel: kir.Kernel, count: Expr) -> bool:
    return any(True for _ in _times(kernel, count)) or eq(kir.GRID % count, 0) in kernel.requires


def stands(world: World) -> None:
    """Judge what no order of events decides: register budgets, determinism."""
    state = State([])
    adds = [s for s in world.code.sites if isinstance(s.stmt, kir.AtomicAdd | kir.TmaReduce)]
    if adds and not world.kernel.semaphores and world.kernel.determinism == "bitwise":
        says = "CTAs add in any order, but the kernel is declared bitwise deterministic"
        world.wrong(state, Rule.DETERMINISM, "determinism", adds[0], -1, says)
    changes = [s for s in world.code.sites if isinstance(s.stmt, kir.SetMaxNReg)]
    if changes:
        _budget(world, state, changes)


def _budget(world: World, state: State, changes: list[Site]) -> None:
    """Check that the registers that are asked for are there."""
    kernel = world.kernel
    held = dict.fromkeys(range(-(-kernel.threads // kir.WARPGROUP)), kernel.registers)
    for site in changes:
        stmt, place = site.stmt, site.place
        assert isinstance(stmt, kir.SetMaxNReg), "these only"
        world.checked += 1
        says, kind, rule = "", "registers", Rule.BUDGET
        if site.elected or place.first % 4 or place.warps % 4:
            says, kind = "setmaxnreg is executed by whole warpgroups only", "collective"
            rule = Rule.COLLECTIVE
        elif not 24 <= stmt.registers <= 256 or stmt.registers % 8:
            says = f"{stmt.registers} registers: pick a multiple of 8 from 24 to 256"
        elif kernel.registers == 0:
            says = "the kernel does not say how many registers its threads have at launch"
        for group in range(place.first // 4, (place.first + place.warps) // 4):
            now = held[group]
            if not says and (stmt.registers < now if stmt.increase else stmt.registers > now):
                says = f"goes from {now} to {stmt.registers} registers, the other way"
            held[group] = stmt.registers
        if says:
            world.wrong(state, rule, kind, site, -1, says)
    room = max(kernel.registers, 0) * kernel.threads
    used = sum(held.values()) * kir.WARPGROUP
    world.checked += 1
    if used > room:
        says = f"waits for ever: {used} registers are asked for, the CTA has {room}"
        grows = next((s for s in changes if getattr(s.stmt, "increase", False)), changes[0])
        world.wrong(state, Rule.BUDGET, "registers", grows, -1, says)


def values_of_turns(worlds: list[tuple[Reading, World]]) -> None:
    """Check that each turn releases what the next one waits for, and the last one leaves 0."""
    waited: dict[tuple[int, int], set[int]] = {}
    for reading, world in worlds:
        waited[reading.many, reading.turn] = {v for v, _ in world.turn_values["wait"]}
    state = State([])
    for reading, world in worlds:
        world.checked += len(world.turn_values["release"])
        if reading.turn == 0 and reading.many:
            for value, site in world.turn_values["wait"]:
                if value != 0:
                    says = f"the first CTA waits for {value}, but a semaphore begins at 0"
                    world.wrong(state, Rule.TURN_VALUES, "semaphore", site, -1, says)
        last = reading.turn + 1 == reading.many
        wanted = {0} if last else waited.get((reading.many, reading.turn + 1), set())
        for value, site in world.turn_values["release"]:
            if wanted and {value} != wanted:
                says = f"CTA {reading.turn} of {reading.many} releases {value}, " + (
                    "which is not the 0 that the next launch expects"
                    if last
                    else f"the next one waits for {min(wanted)}"
                )
                world.wrong(state, Rule.TURN_VALUES, "semaphore", site, -1, says)
