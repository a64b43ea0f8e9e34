"""Tiles handed from warp to warp: every protocol is drawn, and right."""

from __future__ import annotations

from random import Random

import pytest

from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuzz.kernels.template import handed
from oracles.explorer.explore import Launch, explore
from oracles.prover.prove import prove
from oracles.verdict import Status

DRAWN = [handed(Random(seed)) for seed in range(60)]


def test_every_way_to_fill_a_slot_is_drawn() -> None:
    """In loops and written out; what is never drawn is never judged."""
    words = {text(one.kernel) for one in DRAWN}
    for part in ("arrive_expect_tx", "mbarrier_expect_tx", "noinc", "async_await(cp_async"):
        assert any(part in one for one in words), part
    loops = {any(isinstance(s, kir.ForLoop) for s in one.kernel.walk()) for one in DRAWN}
    assert loops == {False, True}
    assert {one.slots for one in DRAWN} == {1, 2, 3}


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_what_is_drawn_is_right(seed: int) -> None:
    """For the validator, for all trip counts, and in every interleaving of a few."""
    one = DRAWN[seed]
    validate(one.kernel, final=True)
    verdict = prove(one.kernel)
    assert verdict.status is Status.PASS, f"{text(one.kernel)}\n{verdict}"
    for count in (1, one.slots + 1):
        for grid, params in one.at(count):
            seen = explore(one.kernel, Launch(grid, params))
            assert seen.status is Status.PASS, f"{text(one.kernel)}\n{seen}"
