"""What a role has to itself: nobody else uses it, and it is the same from tile to tile."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from fuser.kernel import ir as kir
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from oracles.prover.arithmetic import UnsupportedError
from oracles.prover.invariants.check import confirm
from oracles.prover.invariants.rewriting import private, renamed
from oracles.verdict import Status

PAIR = compiled(linear(), hopper("ping_pong", 2, 1))


def _role(name: str) -> kir.Role:
    return next(s for s in PAIR.walk() if isinstance(s, kir.Role) and s.name == name)


def _beside(name: str) -> list[kir.Stmt]:
    """Return the leaves of a role, but for those of its steps."""
    steps = {id(s) for loop in _steps(name) for s in kir.walk(loop.body)}
    return [s for s in kir.walk((_role(name),)) if id(s) not in steps and not kir.bodies(s)]


def _steps(name: str) -> list[kir.ForLoop]:
    loops = [s for s in kir.walk((_role(name),)) if isinstance(s, kir.ForLoop)]
    return loops[1:]


def test_staging_and_barrier_are_private() -> None:
    """And only the names tell what one role does from what the other does."""
    first, second = (private(PAIR, n, _beside(n)) for n in ("compute0", "compute1"))
    assert [b.name for b in first.buffers] == ["S_T6_0"]
    assert first.numbers != second.numbers
    stores = [tuple(s for s in _beside(n) if isinstance(s, kir.Store | kir.BlockSync))
              for n in ("compute0", "compute1")]  # fmt: skip
    assert stores[0] != stores[1]
    assert renamed(stores[1], second, first) == stores[0]


def test_buffers_of_other_shapes_are_not_the_same() -> None:
    """The one role would do something else with the first's."""
    own = private(PAIR, "compute0", _beside("compute0"))
    wide = replace(own, buffers=(replace(own.buffers[0], shape=(64, 32)),))
    assert renamed((), own, wide) is None


def _second(old: type[kir.Stmt], **change: object) -> kir.Kernel:
    """Return the kernel with the second role's statements of a kind changed, outside its steps."""
    some = {id(s) for s in _beside("compute1") if isinstance(s, old)}
    return PAIR.rewrite(lambda s: [_with(s, change)] if id(s) in some else None)


def _with(stmt: kir.Stmt, change: dict[str, object]) -> kir.Stmt:
    for field, value in change.items():
        if hasattr(stmt, field):
            stmt = copy.copy(stmt)
            object.__setattr__(stmt, field, value)  # statements are frozen, and of many types
    return stmt


def test_what_two_roles_use_is_refused() -> None:
    """Nothing orders what one role does with it before what the other does."""
    first = private(PAIR, "compute0", _beside("compute0"))
    slot = kir.Slot(first.buffers[0], 0)
    some = {id(s) for s in _beside("compute1")}

    def rule(s: kir.Stmt) -> list[kir.Stmt] | None:
        if id(s) in some and isinstance(s, kir.Store):
            return [replace(s, dst=slot)]
        if id(s) in some and isinstance(s, kir.TmaStore):
            return [replace(s, src=slot)]
        return None

    kernel = PAIR.rewrite(rule)
    with pytest.raises(UnsupportedError, match="others do too"):
        private(kernel, "compute0", _beside("compute0"))
    assert confirm(kernel).status is not Status.PASS
    assert confirm(PAIR).status is Status.PASS


def test_a_barrier_of_two_roles_is_refused() -> None:
    """Its turns would be of threads of both."""
    first = private(PAIR, "compute0", _beside("compute0"))
    kernel = _second(kir.BlockSync, barrier=first.numbers[0])
    assert kernel != PAIR
    assert confirm(kernel).status is not Status.PASS
