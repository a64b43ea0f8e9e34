"""A buffer whose slots are named by numbers is several, and nothing else changes."""

from __future__ import annotations

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper
from oracles.prover.invariants.rewriting import by_number, whole

CHUNKS = whole(
    compiled(linear(), hopper("cooperative", 3, 2, persistent=True, groups=2, columns=8))
)


def test_each_number_is_a_buffer_with_the_bytes_of_its_slot() -> None:
    """Whatever shares bytes with one slot shares them with that one only."""
    (staging,) = (b for b in CHUNKS.kernel.buffers if b.name.startswith("S_T6"))
    parts = [b for b in by_number(CHUNKS).kernel.buffers if b.name.startswith("S_T6")]
    assert [(b.slots, b.offset, b.end) for b in parts] == [
        (1, staging.offset + at, staging.offset + at + staging.slot_nbytes)
        for at in (0, staging.slot_nbytes)
    ]


def test_statements_keep_their_lines() -> None:
    """A claim that is refuted is about the kernel as it was written."""
    parted = by_number(CHUNKS)
    old = [s for s in CHUNKS.kernel.walk() if not kir.bodies(s)]
    new = [s for s in parted.kernel.walk() if not kir.bodies(s)]
    assert [type(s) for s in old] == [type(s) for s in new]
    assert [CHUNKS.lines[s] for s in old] == [parted.lines[s] for s in new]
    assert old != new


def test_rings_stay_rings() -> None:
    """A slot that is named by a position belongs to all iterations."""
    one = whole(recipes.store_ring())
    assert by_number(one) is one
