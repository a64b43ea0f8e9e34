"""Who touched what: accesses are found by their elements, in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oracles.simulator.memory.shadow import Act, Touch, Touches

ELEMENTS = 12
SOME = st.lists(st.integers(0, ELEMENTS - 1), min_size=1, max_size=6)


@given(st.lists(SOME, max_size=12), SOME)
def test_accesses_are_found_by_their_elements(made: list[list[int]], asked: list[int]) -> None:
    """All that have one of them, each once, as each of them in turn would say."""
    touches = Touches(ELEMENTS)
    every = [
        Touch(np.array(some), 0, 0, 0, number, True, Act.WRITE, (0, 0))
        for number, some in enumerate(made)
    ]
    for touch in every:
        touches.add(touch)
    wanted = [touch for touch in every if {*touch.elements.tolist()} & {*asked}]
    assert touches.of(np.array(asked)) == wanted
