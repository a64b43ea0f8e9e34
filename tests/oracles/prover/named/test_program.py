"""Program order of one kind of threads: what variables hold, and which instances there are."""

from __future__ import annotations

from fuser.cookbook import recipes
from fuser.expr import Kind, Var, ceildiv, fold, variables
from fuser.kernel import ir as kir
from oracles.prover.named.program import Point, Program, difference, normal
from oracles.prover.sites import kinds

K = Var("K")


def programs(kernel: kir.Kernel) -> list[Program]:
    """What every kind of threads of a CTA executes."""
    return [Program(kernel, kind) for kind in kinds(kernel, 1)]


def found(kernel: kir.Kernel, stmt: type, role: str) -> tuple[Program, Point]:
    """The first statement of a sort in a role."""
    for program in programs(kernel):
        for point in program.points:
            if isinstance(point.stmt, stmt) and program.kind.role == role:
                return program, point
    raise AssertionError(f"no {stmt.__name__} in {role}")


def test_a_position_is_what_the_loops_have_moved_it_by() -> None:
    """`p = p + 1` in the inner loop of two is `t * trips + k`, in both roles."""
    for role, sort in (("mma", kir.Wgmma), ("load", kir.TmaLoad)):
        program, point = found(recipes.persistent(), sort, role)
        t, k = (frame.index for frame in point.loops)
        assert t is not None
        assert k is not None
        assert difference(point.plain(Var("p")), t * ceildiv(K, 16) + k) == 0
        assert not {v for v in program.opaque if v in variables(point.plain(Var("p")))}


def test_branches_that_move_by_the_same_move_by_it() -> None:
    """A role that skips a tile of the other goes on where it would have been."""
    _, point = found(recipes.ping_pong(), kir.Wgmma, "mma1")
    t, k = (frame.index for frame in point.loops)
    assert t is not None
    assert k is not None
    assert difference(point.plain(Var("p")), t * ceildiv(K, 16) + k) == 0


def test_what_has_no_form_is_another_value_in_each_iteration() -> None:
    """A branch that only sometimes moves a value leaves nothing known of it."""
    kernel = recipes.ping_pong().rewrite(_without_the_else)
    program, point = found(kernel, kir.Wgmma, "mma1")
    at = point.plain(Var("p"))
    one, two = (program.at(point, (t, 0), at) for t in (0, 1))
    assert difference(one, two) is None
    assert difference(one, program.at(point, (0, 0), at)) == 0


def _without_the_else(stmt: kir.Stmt) -> list[kir.Stmt] | None:
    if isinstance(stmt, kir.IfThenElse) and stmt.orelse:
        return [kir.IfThenElse(stmt.condition, stmt.then, ())]
    return None


def test_only_elected_threads_execute_what_is_elected() -> None:
    """The load of a role is one thread's; the others go around it."""
    kernel = recipes.wgmma_ring()
    doing = [
        program.kind
        for program in programs(kernel)
        if any(isinstance(point.stmt, kir.TmaLoad) for point in program.points)
    ]
    assert [str(kind) for kind in doing] == ["lane 0 of warp 4 (load)"]


def test_instances_near_one_are_distinct_and_in_order() -> None:
    """Counting commits counts each once, or too many groups would seem closed."""
    program, point = found(recipes.persistent(), kir.Wgmma, "mma")
    commit = next(p for p in program.points if p.stmt == kir.AsyncCommit(kir.AsyncKind.WGMMA))
    t, k = Var("t"), Var("k")
    near = list(program.following(point, (t, k), commit, 3))
    assert near[0] == (t, k)
    assert len(near) == len(set(near)) == 7
    back = list(program.preceding(point, (t, k), commit, 2))
    assert normal(fold(Kind.SUB, k, 1)) == back[0][1]
