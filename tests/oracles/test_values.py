"""Kernels judged by a torch function: right ones pass, wrong ones fail by their values alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from expected import RIGHT, WRONG, copied, difference, doubled, product, summed
from litmus.parts import k
from litmus.suite import EXPECT as EXPECT_OF_LITMUS
from litmus.suite import by_name
from sample import some

from fuser.cookbook.recipes import EXPECT, RECIPES
from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from oracles.expect import Expectation, ExpectError, expect
from oracles.launches.choose import choose
from oracles.prover.prove import prove
from oracles.simulator import simulate
from oracles.simulator.simulate import Launch
from oracles.values import Data, Values, arithmetic, search
from oracles.verdict import Status, Verdict

SCHEDULES = 4
Builder = Callable[[], kir.Kernel]
TWO = [Launch(1, {"n": 2})]


def said(builder: object) -> Expectation:
    """Return what is said of a function that returns a kernel."""
    found = getattr(builder, "expect")  # noqa: B009
    assert isinstance(found, Expectation)
    return found


def on_small_launches(kernel: kir.Kernel, expectation: Expectation) -> Verdict:
    """Judge a kernel up to the first launch that does not pass."""
    answer = None
    for sizes in choose(kernel).launches:
        launch = [Launch(sizes.grid, sizes.params)]
        answer = search(kernel, expectation, launch, schedules=SCHEDULES)
        if answer.status is not Status.PASS:
            break
    assert answer is not None
    return answer


@pytest.mark.parametrize("builder", RIGHT, ids=lambda one: one.__name__)
def test_a_right_kernel_passes(builder: Builder) -> None:
    """On the default launches, with data of both kinds."""
    answer = on_small_launches(builder(), said(builder))
    assert answer.status is Status.PASS, answer
    assert "values as expected of random floats" in answer.reason
    assert "2 more of small integers" in answer.reason


@pytest.mark.parametrize("builder", WRONG, ids=lambda one: one.__name__)
def test_a_wrong_kernel_is_caught_by_its_values(builder: Builder) -> None:
    """Its synchronisation is right, which the prover confirms."""
    kernel = builder()
    answer = on_small_launches(kernel, said(builder))
    assert {f.kind for f in answer.findings if f.severity == "error"} == {"value"}, answer
    assert prove(kernel).status is Status.PASS


@pytest.mark.parametrize("name", some(tuple(RECIPES), *[*RECIPES][::3]))
def test_recipes_compute_what_they_say(name: str) -> None:
    """All of the cookbook."""
    answer = on_small_launches(RECIPES[name](), Expectation(EXPECT[name]))
    assert answer.status is Status.PASS, answer


@pytest.mark.parametrize("name", EXPECT_OF_LITMUS)
def test_litmus_compute_what_they_say(name: str) -> None:
    """Those of which something is said."""
    kernel = by_name(name).kernel
    assert isinstance(kernel, kir.Kernel)
    answer = on_small_launches(kernel, Expectation(EXPECT_OF_LITMUS[name]))
    assert answer.status is Status.PASS, answer


def test_a_finding_names_element_values_and_launch() -> None:
    """And the element that is written there instead."""
    kernel, expectation = copied(1 - k), said(copied)
    answer = search(kernel, expectation, TWO, schedules=SCHEDULES)
    (finding,) = answer.findings
    assert (finding.kind, finding.where) == ("value", "output Y")
    assert finding.launch == (("n", 2), ("gridDim", 1))
    assert "256 of 256 elements wrong; worst at [" in finding.witness
    assert ": got " in finding.witness
    assert "; that is what [" in finding.witness


def test_an_element_that_nobody_writes_is_found() -> None:
    """By coverage, before values are compared."""
    kernel = copied().rewrite(
        lambda s: [kir.IfThenElse(k < 1, (s,))] if isinstance(s, kir.Store) else None
    )
    answer = search(kernel, said(copied), TWO, schedules=SCHEDULES)
    assert [f.kind for f in answer.findings if f.severity == "error"] == ["coverage"]


def test_a_fault_of_synchronisation_counts_as_before() -> None:
    """The race is the finding, on whatever data."""
    kernel = difference().rewrite(lambda s: [] if isinstance(s, kir.MBarrierWaitParity) else None)
    answer = search(kernel, said(difference), TWO, schedules=SCHEDULES)
    assert answer.status is Status.FAIL
    assert "value" not in {f.kind for f in answer.findings}


def test_an_operation_without_a_bound_leaves_the_answer_open() -> None:
    """Unless a tolerance is given; a fault of synchronisation is still one."""
    vague = expect(lambda X: torch.special.i0(X))
    answer = search(copied(), vague, TWO, schedules=SCHEDULES)
    assert answer.status is Status.UNKNOWN
    assert "no bound is known for prims.bessel_i0.default; give expect an rtol" in answer.reason
    given = expect(lambda X: torch.special.i0(X), rtol=1e9)
    assert search(copied(), given, TWO, schedules=SCHEDULES).status is Status.PASS
    torn = difference().rewrite(lambda s: [] if isinstance(s, kir.MBarrierWaitParity) else None)
    assert search(torn, vague, TWO, schedules=SCHEDULES).status is Status.FAIL


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda A: A, "expect asks for A; there are X, Y, n; name its arguments so, or take"),
        (lambda X, Q: X, "expect asks for Q"),
        (lambda X: X[:1], r"expect raises ValueError: shape \[1, 32\] is returned for Y"),
        (lambda X: X.nothing, "expect raises AttributeError"),
        (lambda X: X.numpy(), "expect raises .*; with an rtol it gets plain tensors"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(
    function: Callable[..., object], says: str
) -> None:
    """It is a mistake of who asks, and says nothing of the kernel."""
    both = [function, says]
    if "asks for A" in says:
        both[0] = lambda A, B: A
        says = "expect asks for A, B"
    with pytest.raises(ExpectError, match=says):
        search(copied(), Expectation(both[0]), TWO, schedules=1)  # type: ignore[arg-type]


def test_arguments_are_found_by_name_or_in_order() -> None:
    """Tensors, scalars and parameters by name, whatever the case; else the inputs."""
    for function in (
        lambda X: X,
        lambda x, n: x * (n - 1),
        torch.clone,
        lambda whatever: whatever,
        lambda *given: given[0],
    ):
        answer = search(copied(), Expectation(function), TWO, schedules=1)
        assert answer.status is Status.PASS, function


def test_an_output_that_is_asked_for_begins_with_data() -> None:
    """Others begin as poison, which shows what is read before it is written."""
    asked = Values(said(doubled), [doubled()], TWO, Data.FLOATS, 0)
    assert bool(asked.tensors["Y"].isfinite().all())
    other = Values(said(copied), [copied()], TWO, Data.FLOATS, 0)
    assert bool(other.tensors["Y"].isnan().all())
    blind = search(doubled(), expect(lambda n: torch.zeros(4 * n, 32)), TWO, schedules=1)
    assert "got nan" in blind.findings[-1].witness


def test_data_are_drawn_by_the_seed() -> None:
    """So that a command shows the same again."""
    made = [Values(said(copied), [copied()], TWO, Data.FLOATS, seed) for seed in (0, 0, 1)]
    same, again, other = (one.tensors["X"] for one in made)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


def test_launches_in_a_row_are_judged_by_what_the_last_one_leaves() -> None:
    """Tensors of one name are the same memory; the first kernel's output may be left out."""
    first = copied()
    second = doubled()
    program = LaunchSequence("twice", (first, second))
    right = search(program, expect(lambda X: 2 * X), TWO * 2, schedules=2)
    assert right.status is Status.PASS, right
    wrong = search(program, expect(lambda X: 3 * X), TWO * 2, schedules=2)
    assert [f.kind for f in wrong.findings if f.severity == "error"] == ["value"]


def test_how_a_kernel_multiplies_is_read_off_it() -> None:
    """The type of its operands, whether sums go through 16 bits, how many additions they take."""
    assert arithmetic([product()], [Launch(1, {"M": 64, "N": 8, "K": 64})]).operands is DType.BF16
    assert arithmetic([copied()], TWO).operands is None
    how = arithmetic([summed()], [Launch(6, {"s": 6})])
    assert (how.partials, how.longest) == (None, 6)


def test_the_simulator_alone_judges_no_values() -> None:
    """Nothing changes where nothing is expected."""
    kernel = WRONG[0]()
    assert simulate.search(kernel, TWO, schedules=2).status is Status.PASS
