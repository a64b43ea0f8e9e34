"""The table of proof times has a row for every recipe, and says what was not proved."""

from __future__ import annotations

from functools import partial

import pytest

from fuser.cookbook import recipes
from fuser.kernel import ir as kir
from fuzz.bench import proofs
from fuzz.bench.proofs import (
    CONSUMERS,
    MANY,
    STAGES,
    Late,
    Timed,
    kernels,
    late,
    late_table,
    matmuls,
    summary,
    table,
    timed,
)
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled
from oracles.verdict import Status, Verdict


def _row(first_ms: float, status: Status = Status.PASS) -> Timed:
    return Timed("ping_pong", 2, 1, Verdict("prover", status, 7), first_ms, 0.5)


def test_every_recipe_is_timed_at_every_depth() -> None:
    """A recipe that is left out could get slow, or open, without anybody noticing."""
    rows = [(name, stages, consumers) for name, stages, consumers, _ in kernels()]
    assert len(rows) == len(set(rows)) == 112 + 36
    for name in recipes.RECIPES:
        many = CONSUMERS if name in MANY else (1,)
        assert {(s, c) for n, s, c in rows if n == name} == {(s, c) for s in STAGES for c in many}


def test_a_tile_loop_with_a_prolog_is_proved_soon() -> None:
    """Steps of a tile were distinguished without end: ten seconds, and no proof."""
    name = "matmul pipelined, tiles, prolog"
    row = timed(name, 8, 1, partial(compiled, linear(), matmuls(8)[name]), "default")
    assert row.verdict.status is Status.PASS
    assert row.verdict.checked < 20_000  # of each ring one turn: 50 000 without


def test_deep_rings_in_turns_are_proved() -> None:
    """The kernel that had too many states is a row like the others."""
    build = partial(recipes.ping_pong, stages=6)
    row = timed("ping_pong", 6, 1, build, "default")
    assert row.verdict.status is Status.PASS
    assert row.again_ms < row.first_ms


def test_what_is_not_proved_is_said() -> None:
    """A row that is open counts as no proof, however fast."""
    rows = [_row(1.0), _row(3.0, Status.UNKNOWN)]
    assert summary(rows).startswith("1 of 2 proved")
    assert list(table(rows).columns[2].cells) == ["unknown"]


def test_a_refused_kernel_is_no_proof() -> None:
    """The time of a refutation is no time of a proof."""

    def build() -> kir.Kernel:
        kernel = recipes.specialized_ring(2)
        return kernel.rewrite(lambda stmt: [] if isinstance(stmt, kir.WarpSync) else None)

    row = timed("specialized_ring", 2, 1, build, "default")
    assert row.verdict.status is Status.FAIL
    assert summary([row]).startswith("0 of 1 proved")


def test_a_late_fault_is_timed_beside_the_same_fault_from_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pairs of refutations; what either of them leaves open is no pair."""
    monkeypatch.setattr(proofs, "LATE_SYNCS", 3)
    row = late("store_ring", 2, "default")
    assert len(row.pairs) == 3
    shown = late_table([row])
    assert list(shown.columns[0].cells) == ["store_ring"]
    assert list(shown.columns[1].cells) == [str(len(row.pairs))]
    assert late_table([Late("none", ())]).row_count == 0
