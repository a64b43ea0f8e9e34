"""Tests for fuser.codegen.counters."""

import pytest

from fuser.codegen.counters import declared, ring_of
from fuser.errors import CompileError
from fuser.expr import Expr, Var
from fuser.kernel import ir as kir
from fuser.runtime.nvrtc import DEVICE, compile_cubin

K, N = Var("k"), Var("n")
LAWS = """
template <int S> constexpr bool counts() {
  math::Counter<S> c(0), far(0);
  for (int n = 0; n < 9 * S; ++n, ++c) {
    far = far + n;
    if (math::modulo(far, S) != far.number % S) return false;
    if (math::modulo(math::quotient(far, S), 2) != far.number / S % 2) return false;
    for (int on = 0; on <= 3 * S; ++on) {
      const int whole = (n + on) / S;
      const auto ahead = c + on;
      if (int(ahead) != n + on || math::modulo(ahead, S) != (n + on) % S) return false;
      if (math::modulo(ahead, 4) != (n + on) % 4) return false;
      const auto round = math::quotient(ahead, S);
      if (round != whole || round + 3 != whole + 3) return false;
      for (int more = 0; more < 4; ++more)
        if (math::modulo(round + more, 2) != (whole + more) % 2) return false;
      if (math::modulo(round, 3) != whole % 3) return false;
      if (math::modulo(math::quotient(ahead, 4) + 1, 2) != ((n + on) / 4 + 1) % 2) return false;
    }
  }
  c = 7;
  return math::modulo(c, S) == 7 % S && math::modulo(math::quotient(c, S), 2) == 7 / S % 2;
}
static_assert(counts<3>() && counts<5>() && counts<6>() && counts<7>() && counts<9>(), "wrong");
"""
FAULTS = {
    "b == S ? c.slot : modulo(c.number, b)": "c.slot",
    "c.odd, b == S}": "c.odd, true}",
    "slot >= S": "slot > S",
    "slot - S": "slot - S + 1",
    "r.odd ^ (n & 1)": "r.odd ^ 1",
    "r.more + n": "r.more",
    "c.odd ^ round": "c.odd",
    "uint32(n) > uint32(S)": "false",
    "odd(modulo(quotient(n, S), 2))": "odd(0)",
    "r.counted && b == 2": "r.counted",
}
"""What a counter is changed to, by the text that is there."""


@pytest.mark.parametrize(
    ("used", "slots"),
    [
        ((K % 3,), 3),
        (((K + 2) % 7, (K // 7 + 1) % 2), 7),
        ((K % 5, K % 3, (K + 1) % 5), 5),
        ((K % 4, K % 8), 0),
        ((K % 4, K % 6), 6),
        ((N % 5, K + 1), 0),
        (((K + N) % 5,), 0),
        ((K // 5,), 0),
    ],
)
def test_a_ring_is_what_remainders_are_taken_of(used: tuple[Expr, ...], slots: int) -> None:
    """Of a number that is no power of two, most often; also a little ahead, also inside."""
    lets = [kir.Let(Var(f"x{n}"), expr) for n, expr in enumerate(used)]
    assert ring_of(K, lets) == slots
    assert ring_of(K, [kir.ForLoop(Var("j"), N, (*lets,))]) == slots
    assert ring_of(Var("j"), lets) == 0


def test_a_counter_is_declared_as_one() -> None:
    """Others are an `int`."""
    assert declared(K, "0", 5) == "math::Counter<5> k(0)"
    assert declared(K, "0", 0) == "int k = 0"


@pytest.mark.parametrize("old", ["", *FAULTS])
def test_a_counter_counts_as_an_int_does(old: str) -> None:
    """Through rings of 3 to 9 slots, stepwise and by jumps; a fault is seen by the compiler."""
    text = (DEVICE / "math.cuh").read_text()
    if not old:
        assert compile_cubin(text + LAWS)
        return
    assert text.count(old) == 1
    with pytest.raises(CompileError, match="static assertion failed"):
        compile_cubin(text.replace(old, FAULTS[old]) + LAWS)
