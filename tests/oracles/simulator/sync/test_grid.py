"""CTAs at an integer of a semaphore: who is the last to come, and what it may rely on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from arrived import MINE, OUT, PUT, SUM, TOTAL, by_role, by_roles, ctas_of
from litmus.arrivals import PAIR, arriving, by_engine, last, of_two_groups
from litmus.meetings import SENT, WS, YS
from litmus.parts import TILE, Y1, Body, box, elect, load, s, store, t, tensor
from litmus.turnstiles import XS, grid

from fuser.expr import Var, eq
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.simulator.simulate import Launch, search, simulate, witness
from oracles.verdict import Status, Verdict


def kinds(verdict: Verdict) -> set[str]:
    """Return the kinds of its errors."""
    return {f.kind for f in verdict.findings if f.severity == "error"}


def judged(kernel: kir.Kernel, ctas: int = 3, schedules: int = 12) -> set[str]:
    """Return the kinds of errors of a few schedules."""
    return kinds(search(kernel, Launch(ctas, {"s": ctas}), schedules=schedules))


@pytest.mark.parametrize("residency", ["any", "ticket", "co-resident"])
@pytest.mark.parametrize("ctas", [1, 2, 3])
def test_the_sum_is_right_whoever_comes_last(residency: str, ctas: int) -> None:
    """Over some seeds every CTA has been the last, as a tile of its own shows."""
    z = tensor("Z")
    made = grid(
        (load(MINE, box(XS, kir.BLOCK)), PUT, last(*SUM, OUT, store(box(z), MINE))),
        (XS, WS, Y1, z),
        residency=residency,
    )
    made = replace(made, outputs=("Y", "Z"))
    x = np.random.default_rng(ctas).integers(-9, 9, (ctas * TILE[0], TILE[1])).astype(np.float32)
    parts = x.reshape(ctas, *TILE)
    who = set[int]()
    for seed in range(24):
        y, one = (np.full(TILE, np.nan, np.float32) for _ in range(2))
        given = {"X": x, "Y": y, "Z": one}
        verdict = simulate(made, Launch(ctas, {"s": ctas}), given, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(y, parts.sum(axis=0))
        who.add(next(cta for cta in range(ctas) if (parts[cta] == one).all()))
    assert who == set(range(ctas))


@pytest.mark.parametrize("who", [0, 1, 2])
def test_what_only_one_cta_gets_wrong_is_found(who: int) -> None:
    """A body that forgets the output where a certain CTA is the last."""
    forgets = kir.IfThenElse(eq(kir.BLOCK, who), (), (OUT,))
    made = arriving("put every", every=last(*SUM, forgets))
    assert judged(made, schedules=24) == {"coverage"}


def test_groups_come_to_integers_of_their_own() -> None:
    """Each of two outputs is the sum of its own group."""
    x = np.arange(4 * 128, dtype=np.float32).reshape(16, 32)
    for seed in range(6):
        y = np.full((8, 32), np.nan, np.float32)
        launch = Launch(4, {"s": 2})
        verdict = simulate(of_two_groups(kir.BLOCK // s), launch, {"X": x, "Y": y}, seed=seed)
        assert verdict.status is Status.PASS, verdict
        np.testing.assert_array_equal(y, x.reshape(2, 2, 4, 32).sum(axis=1).reshape(8, 32))


def test_engines_write_in_the_body() -> None:
    """Groups and copies of the body are those of the last CTA only; any CTA can await them."""
    inside = "get restage fence join give"
    assert not judged(by_engine("put last", f"{inside} drain"))
    assert not judged(by_engine("put last drain", inside))
    assert judged(by_engine("put last", inside)) == {"exit"}


# --- who comes ----------------------------------------------------------------------------------


def test_a_second_coming_is_ordered_after_the_first() -> None:
    """By a meeting at another integer; without it a CTA may be counted twice in one round."""
    twice = (PUT, last(of=PAIR), kir.GridSync(PAIR, 1, s), last(*SUM, OUT, of=PAIR))
    assert not judged(ctas_of(*twice))
    assert judged(ctas_of(*twice[:2], *twice[3:])) == {"semaphore"}
    assert not judged(ctas_of(*twice[:2], *twice[3:]), ctas=1)


def test_the_last_of_groups_comes_again_for_all() -> None:
    """An election in the body of another: the last of the first ones adds up what all stored."""
    first, most = kir.BLOCK // 2, 2
    made = ctas_of(
        PUT, last(last(*SUM, OUT, of=PAIR, at=1, ctas=1), of=PAIR, at=0, ctas=s), residency="any"
    )
    assert not judged(made)
    many = kir.Semaphore("turns", 3)
    inner = kir.LastArriving(many, 2, most, (*SUM, OUT))
    nested = ctas_of(PUT, kir.LastArriving(many, first, 2, (inner,)), residency="any")
    nested = replace(nested, semaphores=(many,))
    assert not judged(nested, ctas=4)
    direct = nested.rewrite(lambda stmt: [*SUM, OUT] if stmt is inner else None)
    assert judged(direct, ctas=4) & {"RAW", "WAW"}


@pytest.mark.parametrize("other", ["grid", "wait", "release"])
def test_an_integer_that_elects_does_nothing_else(other: str) -> None:
    """CTAs that meet, and turns, would count in the same integer."""
    others: dict[str, kir.Stmt] = {
        "grid": kir.GridSync(PAIR, 0, s),
        "wait": kir.BlockSerializeWait(PAIR, 0, 0),
        "release": elect(kir.BlockSerializeRelease(PAIR, 0, 0)),
    }
    more = others[other]
    elected = last(*SUM, OUT, of=PAIR)
    assert judged(ctas_of(PUT, elected, more)) == {"semaphore"}
    assert judged(ctas_of(PUT, more, elected)) == {"semaphore"}


@pytest.mark.parametrize(
    ("ctas", "says"),
    [
        (s + 1, "3 of 4 CTAs have arrived at the end"),
        (s - 3, "0 CTAs arrive at turns[0]"),
    ],
)
def test_another_number_of_ctas_comes(ctas: Var, says: str) -> None:
    """The text says how many have come, and to what."""
    verdict = simulate(arriving(ctas=ctas), Launch(3, {"s": 3}))
    assert kinds(verdict) == {"semaphore"}
    assert says in verdict.findings[0].witness


def test_one_more_comes_than_is_counted() -> None:
    """Its coming is not ordered after that of the last one."""
    verdict = simulate(arriving("pass mine", ctas=s - 1, apart=True), Launch(3, {"s": 3}))
    assert kinds(verdict) == {"semaphore"}
    assert "nothing orders it after the last of them" in verdict.findings[0].witness


def test_the_launch_that_leaves_an_integer_dirty_is_named() -> None:
    """The next one would begin at another number."""
    launch = Launch(2, {"s": 2})
    two = LaunchSequence("two", (arriving(), arriving(ctas=s + 1)))
    (error,) = (f for f in simulate(two, (launch, launch)).findings if f.severity == "error")
    assert error.kind == "semaphore"
    assert error.where.startswith("launch 1 ")


def test_a_witness_tells_of_the_integer() -> None:
    """Its rows are those of the CTAs that came there."""
    found = witness(arriving("put pass last"), Launch(2, {"s": 2}))
    assert found is not None
    assert any("elect the last at turns[0]" in row.text for row in found.rows)


# --- what is laid out ahead ---------------------------------------------------------------------


def test_the_same_role_of_every_cta_comes() -> None:
    """CTA 0 by its first two warps, the others by their last two."""
    made = by_roles()
    assert judged(made, ctas=2) == {"collective"}
    assert not judged(made, ctas=1)
    assert not judged(replace(made, body=(by_role(2),)), ctas=2)


def test_single_lanes_cannot_come() -> None:
    """All threads of the role ask; here those of one warp each send one."""
    made = arriving("put alone")
    assert judged(made) == {"collective"}


def test_a_variable_may_not_depend_on_who_was_last() -> None:
    """A position that the body moves on has no value behind it, unless nobody asks."""
    p = Var("p")
    steps = kir.ForLoop(t, p, (kir.BlockSync(0, 64),))
    moved = last(kir.Assign(p, p + 1), kir.ForLoop(t, p, ()), *SUM, OUT)
    body: Body = (kir.Let(p, 1), PUT, moved)
    assert not judged(grid((load(MINE, box(XS, kir.BLOCK)), *body), (XS, WS, Y1)))
    made = grid((load(MINE, box(XS, kir.BLOCK)), *body, steps), (XS, WS, Y1))
    verdict = search(made, Launch(2, {"s": 2}), schedules=1)
    assert verdict.status is Status.UNSUPPORTED
    assert "`p` depends on which CTA comes last" in verdict.reason
    assert not judged(made, ctas=1)


def test_registers_of_the_body_are_the_last_ctas() -> None:
    """Behind it the others have none, where there are others."""
    made = arriving("put every behind", every=last(*SUM), behind=store(box(YS, kir.BLOCK), TOTAL))
    made = replace(made, tensors=(XS, WS, YS))
    assert not judged(made, ctas=1)
    assert judged(made) == {"RAW"}


def test_reads_awaited_are_not_drained() -> None:
    """Not even where nobody reads what is on its way: other CTAs may."""
    assert judged(by_engine(f"{SENT} read last", "get out")) == {"drain"}
    assert not judged(by_engine(f"{SENT} join drain join last", "get out"))
