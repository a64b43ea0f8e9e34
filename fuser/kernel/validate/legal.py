"""What a legal Kernel is; runs after every pass and on kernels written by hand.

Every message names the line of the kernel's text, says what is wrong with numbers, and shows the
way out.  Whether the syncs are enough is not asked here: a missing wait or a wrong parity is a
legal kernel that the judges refuse.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.errors import CompileError, ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuser.kernel.validate.declarations import declarations, limits
from fuser.kernel.validate.mma import mma
from fuser.kernel.validate.place import (
    neighbours,
    places,
    registers,
    stray,
    structure,
    undefined,
)
from fuser.kernel.validate.sync import sync
from fuser.kernel.validate.tile import ranks, tile

BY_HAND = "kernel"
"""What validate names as the origin of a kernel that no pass produced."""


def validate(kernel: kir.Kernel, *, after: str = BY_HAND, final: bool = False) -> None:
    """Raise unless `kernel` is well formed, by the line of its text that is not.

    ScheduleError if it was written by hand; CompileError if a pass produced it (`after`): params
    that cannot be met are refused before.  What no pass produced is also held against the GPU's
    shared memory: for the rest the pipeline does that, and names the params to change.  If `final`,
    all passes have run: no `Copy` and no schedule request may be left.
    """
    by_hand = after == BY_HAND
    for wrong in problems(kernel, final=final, by_hand=by_hand):
        if by_hand:
            raise ScheduleError(f"after {after}: {wrong}")
        raise CompileError(
            f"after {after}: {wrong}; FUSER_DUMP={after} shows the kernel", "invalid kernel"
        )


def problems(kernel: kir.Kernel, *, final: bool = False, by_hand: bool = True) -> Iterable[str]:
    """Yield everything that is wrong with a kernel, declarations first."""
    yield from declarations(kernel)
    if by_hand:
        yield from limits(kernel)
    unequal = list(ranks(kernel))
    if unequal:
        yield from unequal
        return
    seen: set[int] = set()
    for stmt in kernel.walk():
        if id(stmt) in seen:
            yield f"`{line(stmt)}` is the same object twice; build it anew"
        seen.add(id(stmt))
    yield from neighbours(kernel.body)
    yield from stray(kernel)
    every = []
    for stmt, place in places(kernel):
        every.append((stmt, place))
        for body in kir.bodies(stmt):
            yield from neighbours(body)
        for check in (undefined, structure, sync, tile, mma):
            for wrong in check(stmt, place):
                yield f"`{line(stmt)}`{wrong}"
    yield from registers(every)
    if final:
        for stmt in kernel.walk():
            if isinstance(stmt, kir.Copy):
                yield (
                    f"`{line(stmt)}` is asynchronous and no pass said how its end is observed; "
                    "use TmaLoad or TmaStore with syncs of your own"
                )
            if isinstance(stmt, kir.GridSum | kir.GridShare):
                yield (
                    f"`{line(stmt)}` adds up the sums of several CTAs and no pass said in which "
                    "turns; use BlockSerializeWait and BlockSerializeRelease"
                )
            if isinstance(stmt, kir.ForLoop) and stmt.circular is not None:
                yield (
                    f"`{line(stmt)}` still asks for circular buffering; "
                    "write the ring out, and leave `circular` None"
                )
