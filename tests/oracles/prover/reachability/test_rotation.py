"""States that differ by a turn of their rings are one: fewer states, and no other verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fuser.cookbook import recipes
from fuser.cookbook.ring import k, trips
from fuser.dtype import DType
from fuser.expr import Var
from fuser.kernel import ir as kir
from fuzz.mutation import operators
from oracles.prover.reachability import canonical, fixpoint
from oracles.prover.reachability.canonical import NONE, Rotation
from oracles.prover.reachability.ctas import readings
from oracles.prover.reachability.state import Place

TURNING = ("store_ring", "specialized_ring", "double_wgmma", "cluster_multicast")


def _rotation(kernel: kir.Kernel) -> Rotation:
    reading = next(iter(readings(kernel)))
    return fixpoint.opened(kernel, reading, policy="default").abstraction.rotation


def _said(kernel: kir.Kernel) -> Iterator[tuple[str, str]]:
    closed = fixpoint.judge(kernel)
    yield from sorted({(v.severity, v.kind) for v in (*closed.violations, *closed.warnings)})
    yield "reason", closed.reason


@pytest.mark.parametrize("name", ["store_ring", "specialized_ring"])
def test_no_verdict_depends_on_turning(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with a kernel is wrong in the state that was not looked at again."""
    kernels = [m.kernel for m in operators.drop_each_sync(recipes.RECIPES[name]())]
    turned = [list(_said(kernel)) for kernel in kernels]
    monkeypatch.setattr(canonical, "rotation_of", lambda *_: NONE)
    assert turned == [list(_said(kernel)) for kernel in kernels]


@pytest.mark.parametrize("name", TURNING)
def test_a_ring_turns(name: str) -> None:
    """One more turn of the ring is no other state."""
    assert _rotation(recipes.RECIPES[name]()).rings


def test_turning_on_is_turning_by_the_sum() -> None:
    """A slot that passes the end of its ring has the other parity, and after two ends its own."""
    rotation = _rotation(recipes.specialized_ring(3))
    place = Place("phase", (), (0, "full", 1), 0)
    assert rotation.moved(rotation.moved(place, 1), 1) == rotation.moved(place, 2)
    assert rotation.moved(place, 2) == Place("phase", (), (0, "full", 2), 1)
    assert rotation.moved(place, rotation.period) == place


def test_a_turning_moves_bits_as_events() -> None:
    """Sets of events and single events name the same things after it."""
    rotation = _rotation(recipes.specialized_ring(3))
    places = list(rotation.orbit(Place("phase", (), (0, "full", 0), 0)))
    events = {place: number for number, place in enumerate(places)}
    by = rotation.rotated(events, 1)
    for number in events.values():
        assert by.bits(1 << 4 * number) == 1 << 4 * by.event(number)


def test_a_prologs_counter_beside_a_position_turns_with_it() -> None:
    """Slots `(p + j) % S` hold back no turning: j is no position, it only ever counts to two."""
    p, j = Var("p"), Var("j")
    ring = kir.Buffer("S", DType.F32, (1, 4), 3, 0)
    row = kir.Fragment("row", DType.F32, kir.Layout((1, 4), 4, 1))
    for slot, turns in (((p + j) % 3, True), ((2 * p + j) % 3, False)):
        stores = kir.Elect(kir.Per.ROLE, (kir.Store(kir.Slot(ring, slot), row, 4),))
        late = kir.Elect(kir.Per.ROLE, (kir.Store(kir.Slot(ring, p % 3), row, 4),))
        tile = (
            kir.ForLoop(j, 2, (stores, kir.BlockSync(0, 32))),
            kir.ForLoop(k, trips, (late, kir.BlockSync(0, 32), kir.Assign(p, p + 1))),
        )
        tiles = kir.ForLoop(Var("t"), Var("tiles"), tile)
        kernel = replace(
            recipes.store_ring(), buffers=(ring,), barriers=(), threads=32, tensors=(),
            params=(trips, Var("tiles")), outputs=(), requires=(), body=(kir.Let(p, 0), tiles),
        )  # fmt: skip
        rotation = _rotation(kernel)
        assert ("access", "S") in rotation.rings
        inside = max(rotation.minds) > 1
        assert inside is not turns
