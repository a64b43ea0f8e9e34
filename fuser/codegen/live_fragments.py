"""How many registers of a thread the fragments of a kernel take at once, role by role.

A fragment takes its registers from the statement that gives it a value to the last one that uses
it, around a loop too.  What no statement forgets is kept: the accumulator of a loop over tiles is
live in the epilogue as well, for the next `Wgmma` may add to it.  What `Wgmma` reads and writes is
pinned where codegen pins it: at every fence and every wait.

What is done element by element takes none, as the assembler computes, loads and stores elements in
the order that suits it.  So we count where all elements have to be there: before and behind syncs,
products, copies by engines, loops and branches.  Even there a fragment is free that can still be
loaded from an input, or computed from what is live anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fuser.arch import launch_registers
from fuser.codegen.registers import Path, Registers, count, made, plan, used
from fuser.dtype import DType
from fuser.kernel import ir as kir

Body = tuple[kir.Stmt, ...]
Fragments = frozenset[kir.Fragment]
Parts = dict[kir.Fragment, Fragments]
"""From what else fragments can still be computed."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a thread of a `role` (empty outside roles) holds of fragments.

    It has so many registers: those of its role's `SetMaxNReg`, or its share of the launch;
    `fragments` has the registers of 32 bits that each takes, by name.
    """

    role: str
    have: int
    fragments: dict[str, int] = field(default_factory=dict)

    @property
    def registers(self) -> int:
        """Registers of all these fragments."""
        return sum(self.fragments.values())


def most_held(kernel: kir.Kernel, registers: Registers | None = None) -> list[Held]:
    """Return the most that a thread holds at once, of each role that holds any fragment.

    `registers` is the plan of the kernel, where that is known.
    """
    # Elsewhere a few spilled registers may be worth another CTA; here they serialise products.
    multiplies = any(isinstance(stmt, kir.Wgmma) for stmt in kernel.walk())
    share = launch_registers(kernel.threads * (kernel.resident if multiplies else 1))
    everyone = Held("", kernel.registers or share)
    most: dict[str, Held] = {}
    for one in _Reader(kernel, registers or plan(kernel)).points(kernel.body, (), {}, everyone):
        if one.registers > (most[one.role].registers if one.role in most else 0):
            most[one.role] = one
    return list(most.values())


class _Reader:
    """Which fragments are live before and behind every statement, and what of them is held."""

    def __init__(self, kernel: kir.Kernel, registers: Registers) -> None:
        self._plan = registers
        self._written = {*kernel.outputs, *kernel.workspaces}
        self._live: dict[Path, tuple[Fragments, Fragments]] = {}
        self._body(kernel.body, (), frozenset())

    def _body(self, body: Body, at: Path, live: Fragments) -> Fragments:
        """Go backwards from what is live behind a body; return what is live before it."""
        for n, stmt in reversed([*enumerate(body)]):
            path, behind = (*at, n), live
            live = self._before(stmt, path, live) - {*self._plan.declared.get(path, ())}
            self._live[path] = live, behind
        return live

    def _before(self, stmt: kir.Stmt, path: Path, live: Fragments) -> Fragments:
        match stmt:
            case kir.ForLoop(_, _, body) | kir.Loop(_, body):
                while more := self._body(body, (*path, 0), live) - live:
                    live |= more
                return live
            case kir.IfThenElse(_, then, orelse):
                return self._body(then, (*path, 0), live) | self._body(orelse, (*path, 1), live)
            case kir.Role() | kir.Elect() | kir.LastArriving():
                return live | self._body(stmt.body, (*path, 0), live)
            case _:
                return (live - {*made(stmt)}) | self._used(stmt, path)

    def _used(self, stmt: kir.Stmt, path: Path) -> Fragments:
        match stmt:
            case kir.WgmmaFence() | kir.AsyncAwait(kir.AsyncKind.WGMMA):
                return frozenset(self._plan.visible(path))
            case _:
                return frozenset(used(stmt))

    def points(self, body: Body, at: Path, parts: Parts, who: Held) -> Iterator[Held]:
        """Say what is held at every point that counts, in program order."""
        for n, stmt in enumerate(body):
            path = (*at, n)
            before, behind = self._live[path]
            whole = not _by_elements(stmt)
            if whole:
                parts = _without(parts, self._used(stmt, path))
                yield self._held(before, parts, who)
            entered = parts
            new = frozenset(frag for inner in kir.walk((stmt,)) for frag in made(inner))
            parts = {f: some for f, some in _without(parts, new).items() if not some & new}
            match stmt:
                case kir.Role(name, _, _, inner):
                    own = (s.registers for s in inner if isinstance(s, kir.SetMaxNReg))
                    role = Held(name, next(own, who.have))
                    yield from self.points(inner, (*path, 0), entered, role)
                case kir.ForLoop(_, _, inner) | kir.Loop(_, inner):
                    yield from self.points(inner, (*path, 0), parts, who)
                case kir.IfThenElse() | kir.Elect() | kir.LastArriving():
                    for branch, inner in enumerate(kir.bodies(stmt)):
                        yield from self.points(inner, (*path, branch), entered, who)
                case _ if self._can_wait(stmt):
                    parts |= {frag: frozenset(used(stmt)) for frag in new.difference(used(stmt))}
                case _:
                    pass
            if whole:
                yield self._held(behind | {*made(stmt)}, parts, who)

    def _can_wait(self, stmt: kir.Stmt) -> bool:
        """Tell whether a statement may be executed later, as long as its arguments are live."""
        match stmt:
            case kir.Compute() | kir.Slice() | kir.Unpack() | kir.Coordinate() | kir.Gather():
                return True
            case kir.Load(_, kir.Box(tensor)):
                return tensor.name not in self._written
            case _:
                return False

    def _held(self, live: Fragments, parts: Parts, who: Held) -> Held:
        def free(frag: kir.Fragment) -> bool:
            return frag in parts and all(part in live or free(part) for part in parts[frag])

        names = self._plan.names
        return replace(who, fragments={names[f]: self._words(f) for f in live if not free(f)})

    def _words(self, frag: kir.Fragment) -> int:
        """Return how many registers a fragment takes; truth values lie in predicates."""
        many = count(frag.layout)
        if frag in self._plan.packed:
            return many * frag.dtype.nbytes // 4
        return 0 if frag.dtype is DType.BOOL else many * (2 if frag.dtype.nbytes == 8 else 1)


def _without(parts: Parts, some: Fragments) -> Parts:
    return {frag: own for frag, own in parts.items() if frag not in some}


def _by_elements(stmt: kir.Stmt) -> bool:
    some = kir.Load | kir.Store | kir.AtomicAdd | kir.Compute | kir.Slice | kir.Reduce | kir.Scan
    some |= kir.Unpack | kir.Gather | kir.Coordinate | kir.Let | kir.Assign
    return isinstance(stmt, some)
