"""Roles: who loads, who computes."""

from fusions import PIPELINED, SPECIALIZED, compiled

from fuser.kernel import ir as kir


def test_the_load_role_is_one_thread_of_one_more_warp() -> None:
    """It issues the copies and nothing else."""
    kernel = compiled(SPECIALIZED).launches[0].kernel
    load, compute = (s for s in kernel.body if isinstance(s, kir.Role))
    assert kernel.threads == 32 * (SPECIALIZED.warps + 1)
    assert (load.first_warp, load.warps) == (SPECIALIZED.warps, 1)
    assert (compute.first_warp, compute.warps) == (0, SPECIALIZED.warps)
    (elected,) = load.body
    assert isinstance(elected, kir.Elect)
    assert elected.per is kir.Per.ROLE
    loads = [s for s in kir.walk(compute.body) if isinstance(s, kir.TmaLoad)]
    assert not loads


def test_both_roles_walk_the_same_iterations() -> None:
    """Different trip counts would hang one of them."""
    kernel = compiled(SPECIALIZED).launches[0].kernel
    stops = {s.stop for s in kernel.walk() if isinstance(s, kir.ForLoop)}
    assert len(stops) == 1


def test_other_schedules_have_no_roles() -> None:
    """The pass leaves them alone."""
    kernel = compiled(PIPELINED).launches[0].kernel
    assert not [s for s in kernel.body if isinstance(s, kir.Role)]
