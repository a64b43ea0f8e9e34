"""Two roles with one text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.codegen.cuda import source
from fuser.codegen.roles import merged
from fuser.kernel import ir as kir
from fuzz.kernels.fusions import linear
from fuzz.kernels.matmul import compiled, hopper

PING_PONG = compiled(linear(), hopper("ping_pong", 3, 2, columns=8))


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("f(a, 0);", "f(a, 0);", "f(a, 0);"),
        ("f(a + 0);", "f(a + 1);", "f(a + second_);"),
        ("f(a + 1);", "f(a + 0);", "f(a + (1 - second_));"),
        ("f(2, 128);", "f(3, 128);", "f((second_ ? 3 : 2), 128);"),
        ("f(S_T6_0 + 0);", "f(S_T6_1 + 0);", "f((second_ ? S_T6_1 : S_T6_0) + 0);"),
        ("if (1 < 2) {", "if (1 < 3) {", "if (1 < (second_ ? 3 : 2)) {"),
        ("f<Strips<64, 8>>(0);", "f<Strips<64, 8>>(1);", "f<Strips<64, 8>>(second_);"),
        ("f(Box<64>{a, 0});", "f(Box<64>{a, 1});", "f(Box<64>{a, second_});"),
    ],
)
def test_numbers_and_numbered_names_are_selected(first: str, second: str, both: str) -> None:
    """Wherever an expression may stand."""
    assert merged([first], [second]) == [both]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["f(0);"], ["f(0);", "g(0);"]),
        (["f(0);"], ["g(0);"]),
        (["f(a);"], ["f(b);"]),
        (["f(a + 1);"], ["f((a + 1) + 1);"]),
        (["f<1>(a);"], ["f<2>(a);"]),
        (["f<Strips<64, 8>>(a);"], ["f<Strips<64, 16>>(a);"]),
        (["f(Box<64>{a});"], ["f(Box<32>{a});"]),
        (["f<g(1)>(a);", "x<2>(a);"], ["f<g(1)>(a);", "x<3>(a);"]),
    ],
)
def test_other_differences_are_not(first: list[str], second: list[str]) -> None:
    """Arguments of templates least of all: they are no expressions of the kernel."""
    assert merged(first, second) is None


def test_roles_in_turn_are_written_once() -> None:
    """With both names, and the threads of both."""
    text = source(PING_PONG)
    assert text.count("wgmma::multiply<") == 1
    assert "threads::in_role<0, 8>()" in text
    assert "threads::of_role<0>() - 128 * second_" in text


def test_roles_apart_are_written_twice() -> None:
    """Warps between them belong to neither."""
    load, _, last = (s for s in PING_PONG.body if isinstance(s, kir.Role))
    moved = {id(last): replace(last, first_warp=12), id(load): replace(load, first_warp=8)}
    body = tuple(moved.get(id(s), s) for s in PING_PONG.body)
    text = source(replace(PING_PONG, body=body, threads=512))
    assert text.count("wgmma::multiply<") == 2
    assert "second_" not in text
