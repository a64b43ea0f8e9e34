"""Numbers that CTAs draw: what stands for such a kernel, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from litmus.drawn import LATER, joined, roles, v
from litmus.parts import ONE_CTA, box, elect, fragment, k, load, m, n, s, slots, t, tensor
from litmus.test_litmus import JUDGES

from fuser.dtype import DType
from fuser.expr import Expr
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered
from oracles.prover import drawn
from oracles.prover.prove import RLIMIT, prove
from oracles.verdict import Status

WHOLE = fragment("x", 64)


def used_elsewhere(*more: kir.Stmt) -> kir.Kernel:
    """A kernel that also does something else with the number behind the exit."""
    made = joined()
    (loop,) = made.body
    assert isinstance(loop, kir.Loop), "its body"
    return replace(made, body=(replace(loop, body=(*loop.body, *more)),), params=(n, m))


def shifted(by: int) -> kir.Kernel:
    """The storing role waits for, and fetches, the numbers of later turns."""

    def later(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Fetch(var, kir.Slot(buffer)) if var == v:
                return [kir.Fetch(var, kir.Slot(buffer, (s + by) % 2))]
            case _:
                return None

    return roles(count=2, stages=2).rewrite(later)


def stored_over() -> kir.Kernel:
    """Another integer is put over each number before it is told of."""
    number = kir.Fragment("zero", DType.I32, kir.Layout((1,), 1, 1))

    def rule(stmt: kir.Stmt) -> list[kir.Stmt] | None:
        match stmt:
            case kir.Elect(per, (kir.Draw(dst) as draw,)):
                clear = kir.Compute(number, "cast", (kir.Literal(0, DType.I32),))
                return [kir.Elect(per, (draw, clear, kir.Store(dst, number, 1)))]
            case _:
                return None

    return joined().rewrite(rule)


def in_a_loop() -> kir.Kernel:
    """A loop that is left by a number, in another one."""
    made = joined()
    return replace(made, body=(kir.ForLoop(k, n, made.body),))


UNSUPPORTED: dict[str, tuple[kir.Kernel, str]] = {
    "a branch": (
        used_elsewhere(kir.IfThenElse(t % 2, (kir.BlockSync(0, 64),))),
        "more than a box depends on a number drawn",
    ),
    "a length": (
        used_elsewhere(kir.ForLoop(k, t, (kir.BlockSync(0, 64),))),
        "more than a box depends on a number drawn",
    ),
    "through a let": (
        used_elsewhere(kir.Let(m, t + 1), kir.ForLoop(k, m, (kir.BlockSync(0, 64),))),
        "more than a box depends on a number drawn",
    ),
    "the number of the CTA": (
        used_elsewhere(load(WHOLE, box(tensor("X", n), kir.BLOCK))),
        "its CTA works on numbers that it draws, too",
    ),
    "stored over": (stored_over(), "numbers that are drawn are all in one buffer"),
    "nested": (in_a_loop(), "it is around a loop left by a number"),
    "in place": (
        used_elsewhere(load(WHOLE, box(tensor("Y", n), t))),
        "tensors that CTAs hand on",
    ),
    "an end of its own": (
        roles().rewrite(lambda stmt: [kir.Leave(v, n - 1)] if stmt == kir.Leave(v, n) else None),
        "numbers are drawn in 1 places, and end at 2 numbers",
    ),
    "shared bytes": (
        replace(joined(), buffers=(*joined().buffers, slots("T"))),
        "shares its bytes with others",
    ),
}


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_what_is_not_followed_is_said(what: str) -> None:
    """Never a pass, and with its reason."""
    kernel, says = UNSUPPORTED[what]
    verdict = prove(kernel)
    assert verdict.status is Status.UNSUPPORTED
    assert says in verdict.reason


@pytest.mark.parametrize("kernel", [joined(), roles(), roles(count=2, stages=2)])
def test_each_fetch_reads_the_number_of_its_turn(kernel: kir.Kernel) -> None:
    """Decided by z3, for the roles and for one role alone."""
    asked, says = drawn.numbers(drawn.split(kernel), RLIMIT)
    assert asked > 0
    assert not says


@pytest.mark.parametrize("by", [1, 3])
def test_a_fetch_of_another_turn_is_not_proved(by: int) -> None:
    """A slot of the ring that is full, and of another turn, holds the number of another tile."""
    _, says = drawn.numbers(drawn.split(shifted(by)), RLIMIT)
    assert "whether each fetch reads the number of its turn" in says


@pytest.mark.parametrize("judge", ["explorer", "simulator"])
@pytest.mark.parametrize("kernel", [shifted(1), stored_over()], ids=["shifted", "stored over"])
def test_a_wrong_number_is_seen_in_a_launch(kernel: kir.Kernel, judge: str) -> None:
    """Both follow which number lies in a slot."""
    verdict = JUDGES[judge](kernel, LATER[0], "default", 12)
    assert verdict.status is Status.FAIL
    assert {f.kind for f in verdict.findings if f.severity == "error"} == {"RAW"}


def test_findings_name_the_lines_of_the_kernel() -> None:
    """Not those of what stands for it."""
    kernel = roles("draw lanes give fetch taken leave")
    lines = {number: f"line {number}: {line(stmt)}" for number, stmt in numbered(kernel)}
    verdict = prove(kernel)
    assert verdict.status is Status.FAIL
    for finding in verdict.findings:
        assert finding.where == " | ".join(lines[number] for number in finding.lines)


@pytest.mark.parametrize("requires", [(), (ONE_CTA,)])
def test_who_draws_alone_needs_no_atom(requires: tuple[Expr, ...]) -> None:
    """Of several CTAs two may draw one number."""
    kernel = joined("alone told fetch taken leave work", requires=requires)
    assert (prove(kernel).status is Status.PASS) is bool(requires)


def test_what_stands_for_a_kernel_draws_nothing() -> None:
    """Else it would be taken apart for ever."""
    split = drawn.split(replace(roles(), body=(*roles().body, elect())))
    for made in (split.followed, split.counted, split.by_one):
        assert not drawn.subject(made)
        assert made.counters == ()
