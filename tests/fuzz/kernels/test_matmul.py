"""The compiler's matmuls as subjects: every kind of schedule, small launches, mutants by number."""

from __future__ import annotations

from itertools import islice

import pytest
from sample import some

from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.kernel.validate.legal import validate
from fuser.runtime.call import number
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuzz.crosscheck.judge import is_sync_mutant
from fuzz.kernels.matmul import COMPILED, MATMULS, scheduled, subjects, sync_mutants
from fuzz.kernels.subjects import find
from fuzz.mutation.operators import SYNC_OPERATORS
from oracles.simulator.simulate import Launch, simulate
from oracles.verdict import Status


def test_schedules_differ_in_everything_that_matters() -> None:
    """Who loads, how many groups stay in flight, who takes tiles, how results leave."""
    hopper = [s.params for s in MATMULS.values() if isinstance(s.params, MatmulParams)]
    ampere = [s.params for s in MATMULS.values() if isinstance(s.params, AmpereParams)]
    for split in ("pipelined", "cooperative", "ping_pong"):
        mine = [p for p in hopper if p.split == split]
        assert {p.in_flight for p in mine} >= {0, 1, 2}
        assert {p.store for p in mine} == {"direct", "tma"}
    assert {p.persistent for p in hopper if p.split != "ping_pong"} == {False, True}
    assert {p.columns < p.tile[1] for p in hopper} == {False, True}
    assert {p.registers is None for p in hopper} == {False, True}
    assert {(p.observe, p.persistent) for p in ampere} == {
        (observe, persistent) for observe in ("groups", "mbarriers") for persistent in (False, True)
    }
    assert len(MATMULS) >= 16


@pytest.mark.parametrize("name", some(tuple(MATMULS), *[*MATMULS][::2]))
def test_a_schedule_has_launches_of_few_steps_and_tiles(name: str) -> None:
    """Each is legal, meets what the kernel requires, and runs in no time."""
    one = scheduled(name, 0)
    validate(one.kernel, final=True)
    assert not one.faults
    assert len(one.launches) >= 6
    for grid, params in (one.launches[0], one.launches[-1]):
        assert set(params) == {p.name for p in one.kernel.params}
        assert simulate(one.kernel, Launch(grid, params)).status is Status.PASS


@pytest.mark.parametrize("name", COMPILED)
def test_launches_keep_what_the_kernel_requires(name: str) -> None:
    """One that does not is nothing that a judge answers for."""
    subject = find(f"matmul {name} 0")
    for grid, params in subject.launches:
        values = {var: params[var.name] for var in subject.kernel.params} | {kir.GRID: grid}
        assert all(number(fact, values) for fact in subject.kernel.requires), (grid, params)


def test_products_of_two_loops_and_of_one_are_among_them() -> None:
    """Two loops need two rings, two products in one loop need one."""
    words = {name: text(scheduled(name, 0).kernel) for name in MATMULS}
    assert words["two_loops_cooperative"].count("<~ wgmma(") == 2
    assert "full1[" in words["two_loops_cooperative"]
    assert words["gated_cooperative"].count("<~ wgmma(") == 2
    assert "full1[" not in words["gated_cooperative"]


def test_a_mutant_is_found_by_its_number() -> None:
    """The name of a result leads back to its kernel, and 0 to the kernel without a fault."""
    found = find("matmul pipelined_1_in_flight 3")
    mutant = sync_mutants("pipelined_1_in_flight")[2]
    assert text(found.kernel) == text(mutant.kernel)
    assert found.faults == (f"{mutant.operator}: {mutant.change}",)
    assert is_sync_mutant(found.family, found.faults)
    assert not find("matmul pipelined_1_in_flight 0").faults


def test_every_sync_is_left_out_once() -> None:
    """A sync that nobody leaves out has no score; validation lets most of them pass."""
    kernel = scheduled("pipelined_1_slot", 0).kernel
    syncs = sum(isinstance(stmt, kir.SYNCS) for stmt in kernel.walk())
    operators = [m.operator for m in sync_mutants("pipelined_1_slot")]
    assert set(operators) == set(SYNC_OPERATORS)
    assert operators.count("drop") >= syncs - 3


def test_subjects_name_every_kernel_and_every_mutant() -> None:
    """Numbers run through, then comes the next schedule."""
    first, second = list(MATMULS)[:2]
    number = len(sync_mutants(first)) + 1
    names = list(islice(subjects(), number + 1))
    assert names == [*((first, i) for i in range(number)), (second, 0)]
