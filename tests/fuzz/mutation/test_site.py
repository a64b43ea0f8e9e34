"""Sites and edits: the one statement that is meant changes, and no other."""

import kernels

from fuser.expr import Var
from fuser.kernel import ir as kir
from fuser.kernel.text import line, numbered, text
from fuzz.mutation.site import closed, edited, fresh, parts, redeclared, sites, substituted, wrapped


def test_sites_are_the_lines_of_the_text() -> None:
    """A change is reported by the line that the reader sees."""
    kernel = kernels.specialized(3)
    assert [(s.line, s.stmt) for s in sites(kernel)] == numbered(kernel)


def test_of_two_statements_that_look_alike_one_is_replaced() -> None:
    """Statements are distinguished by identity, not by what they say."""
    kernel = kernels.staged(2)
    first, *others = [s for s in kernel.walk() if isinstance(s, kir.BlockSync)]
    left = [s for s in edited(kernel, (first, ())).walk() if isinstance(s, kir.BlockSync)]
    assert [id(s) for s in left] == [id(s) for s in others]


def test_a_copy_shares_no_statement() -> None:
    """The validator refuses an object that stands in a kernel twice."""
    kernel = kernels.specialized(2)
    loop = next(s for s in kernel.walk() if isinstance(s, kir.Role))
    copy = fresh(loop)
    assert copy == loop
    assert not {id(s) for s in kir.walk((copy,))} & {id(s) for s in kir.walk((loop,))}


def test_a_redeclared_barrier_is_changed_in_every_use() -> None:
    """A statement with the old barrier would use one that is not declared."""
    kernel = kernels.specialized(2)
    old = kernel.barriers[0]
    changed = redeclared(kernel, old, kir.MBarrier("other", 7, 2))
    assert old not in changed.barriers
    assert not any(part == old for part in parts(changed.body, kir.MBarrier))
    assert text(changed).count("other") == text(kernel).count(old.name)


def test_substituting_nothing_keeps_the_object() -> None:
    """Unchanged statements stay the same objects, and so do their lines."""
    stmt = kir.MBarrierArrive(kir.MBarrier("b", 1, 2), Var("k") % 2)
    assert substituted(stmt, {Var("j"): 0}) is stmt
    assert line(substituted(stmt, {Var("k"): Var("j")})) == "mbarrier_arrive(b[(j % 2)], cta)"


def test_a_variable_outside_its_scope_is_noticed() -> None:
    """A sync moved out of the loop whose index it uses has no meaning."""
    kernel = kernels.specialized(2)
    wait = next(s for s in kernel.walk() if isinstance(s, kir.MBarrierWaitParity))
    outside = edited(kernel, (wait, ()), (kernel.body[0], (kernel.body[0], wait)))
    assert closed(kernel)
    assert not closed(outside)


def test_a_wrapped_statement_keeps_its_elections_and_guards() -> None:
    """Moving a sync must not change who executes it."""
    guard, elect = kir.IfThenElse(Var("n") < 1, ()), kir.Elect(kir.Per.WARP, ())
    out = wrapped(kir.WarpSync(), (guard, kir.ForLoop(Var("k"), 2, ()), elect))
    assert out == kir.IfThenElse(Var("n") < 1, (kir.Elect(kir.Per.WARP, (kir.WarpSync(),)),))
