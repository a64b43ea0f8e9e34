"""The table of drawn proofs counts what is lost, refused and not confirmed apart."""

from __future__ import annotations

from fuzz.bench.drawn import REFUSED, Drawn, Proof, complaints, table


def test_drawn_cases_are_proved_by_family() -> None:
    """Kernels of several families, all confirmed; the same seed draws the same."""
    drawn = Drawn(1, 3)
    assert drawn.texts == Drawn(1, 3).texts
    proofs = list(drawn.proofs(1))
    judged = [proof for proof in proofs if proof.status != REFUSED]
    assert all(proof.confirmed and proof.status == "pass" for proof in judged), judged
    assert {"pointwise", "whole rows"} < {proof.family for proof in judged}
    assert any("hopper" in proof.family for proof in judged)


def _proof(seconds: float, status: str = "pass", confirmed: bool = True) -> Proof:
    return Proof(7, "matmul0", "hopper-pipelined", seconds, status, confirmed, "why")


def test_what_is_slow_lost_or_refused_is_counted() -> None:
    """A refused case is no kernel; one that is lost is one that is not confirmed."""
    proofs = [_proof(0.5), _proof(2.0), _proof(12.0, "unknown", False), _proof(0.0, REFUSED, False)]
    (number, confirmed, *_, slow, never) = [list(c.cells)[-1] for c in table(proofs).columns[1:]]
    assert (number, confirmed, slow, never) == ("3", "2", "2", "1")
    said = list(complaints(proofs))
    assert said[0] == "case 7 matmul0: unknown: why"
    assert said[-1] == "1 cases are refused by their schedules"
