"""Groups of asynchronous work, as one thread counts them."""

import pytest
from matmuls import SLICED, sliced

from oracles.explorer.explore import Launch, explore
from oracles.explorer.groups import Groups


def committed(count: int) -> Groups:
    """Groups of one operation each: event 2 i is its end, event 2 i + 1 that of its reads."""
    groups = Groups()
    for i in range(count):
        groups.open.append((1 << 2 * i, 2 << 2 * i))
        groups.commit()
    return groups


def test_an_await_that_keeps_more_groups_than_there_are_finishes_none() -> None:
    """Early in a loop there are fewer groups than it may leave in flight."""
    for count in range(4):
        assert committed(count).done(3, reads=False) == 0
    assert committed(4).done(3, reads=False) == 0b11


def test_an_await_finishes_all_but_the_groups_it_keeps() -> None:
    """The oldest first; what is over is not asked for again."""
    groups = committed(3)
    assert groups.done(1, reads=False) == 0b1111
    assert groups.done(0, reads=False) == 0b110000
    assert groups.done(0, reads=False) == 0


def test_an_await_of_reads_knows_nothing_of_writes() -> None:
    """The source may be overwritten, the target may not yet be read."""
    assert committed(2).done(0, reads=True) == 0b1010


@pytest.mark.parametrize(("how", "found"), SLICED.items())
def test_a_slice_uses_an_accumulator_as_any_statement_does(how: str, found: set[str]) -> None:
    """Not while a wgmma is in flight; and a fence is due before the next one."""
    verdict = explore(sliced(how), Launch(1, {"M": 64, "N": 8, "K": 16 * 3}))
    assert {f.kind for f in verdict.findings if f.severity == "error"} == found
