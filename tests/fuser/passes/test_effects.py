"""What statements touch, as the passes see it."""

import kernels

from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.passes.effects import by_engine, drains, fills, reads, reslot, touches, writes

RING = kir.Buffer("S0", DType.F32, (4, 64), 2, 0)
SLOT = kir.Slot(RING, 0)
BOX = kernels.box(kernels.T0, 0)
BAR = kir.MBarrier("bar", 1, 2)


def test_reads_and_writes_of_every_data_statement() -> None:
    """Ordinary accesses and the engine's, each on its side."""
    table: list[tuple[kir.Stmt, tuple[kir.Slot, ...], tuple[kir.Slot, ...], bool]] = [
        (kir.Load(kernels.X, SLOT, 4), (SLOT,), (), False),
        (kir.Store(SLOT, kernels.X, 4), (), (SLOT,), False),
        (kir.Load(kernels.X, BOX, 4), (), (), False),
        (kir.Copy(SLOT, BOX, kir.Engine.TMA), (), (SLOT,), True),
        (kir.Copy(BOX, SLOT, kir.Engine.TMA), (SLOT,), (), True),
        (kir.TmaLoad(SLOT, BOX, BAR, 0), (), (SLOT,), True),
        (kir.QueueCopy(SLOT, BOX), (), (SLOT,), True),
        (kir.TmaStore(BOX, SLOT), (SLOT,), (), True),
        (kernels.add(), (), (), False),
    ]
    for stmt, read, written, engine in table:
        assert (reads(stmt), writes(stmt), by_engine(stmt)) == (read, written, engine)


def test_fills_and_drains_speak_of_copies_only() -> None:
    """A finished load is no longer a copy without observation."""
    assert fills(kir.Copy(SLOT, BOX, kir.Engine.TMA)) == SLOT
    assert drains(kir.Copy(BOX, SLOT, kir.Engine.TMA)) == SLOT
    assert fills(kir.TmaLoad(SLOT, BOX, BAR, 0)) is None
    assert drains(kir.TmaStore(BOX, SLOT)) is None


def test_reslot_moves_only_the_named_buffers() -> None:
    """Other statements and other buffers stay."""
    new = kir.Slot(RING, 1)
    assert reslot(kir.Load(kernels.X, SLOT, 4), {"S0": new}) == kir.Load(kernels.X, new, 4)
    assert reslot(kir.Load(kernels.X, SLOT, 4), {"S9": new}) == kir.Load(kernels.X, SLOT, 4)


def test_only_ordinary_accesses_touch_a_tensor() -> None:
    """The engine's are ordered by their own means."""
    name = frozenset({BOX.tensor.name})
    assert touches(kir.Load(kernels.X, BOX, 4)) == name
    assert touches(kir.Store(BOX, kernels.X, 4)) == name
    assert touches(kir.AtomicAdd(BOX, kernels.X)) == name
    for stmt in (kir.Load(kernels.X, SLOT, 4), kir.TmaStore(BOX, SLOT), kernels.add()):
        assert not touches(stmt)
