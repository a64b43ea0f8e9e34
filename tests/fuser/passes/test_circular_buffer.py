"""Rings: slots, prologue and the distance of the prefetch."""

import pytest
from fusions import bias_relu, bias_specs

from fuser.kernel import ir as kir
from fuser.kernel.validate.legal import validate
from fuser.lower.tiling import PointwiseLowering
from fuser.passes.circular_buffer import circular_buffer
from fuser.runtime.classify import classify
from fuser.schedule.domain import domains
from fuser.schedule.params import PointwiseParams
from fuser.schedule.pointwise import tiling


def buffered(stages: int, prefetch: int, *, specialized: bool = False) -> kir.Kernel:
    """`bias_relu` after the pass."""
    params = PointwiseParams((4, 128), 8, 2, 2, "tma", "tma", stages, prefetch, specialized)
    fusion = bias_relu()
    (domain,) = domains(fusion)
    (shapes,) = classify(fusion, params, bias_specs()).kernels
    kernel = circular_buffer(
        PointwiseLowering("k", tiling(domain, params), params, shapes).lowered().kernel
    )
    validate(kernel)
    return kernel


@pytest.mark.parametrize("stages", range(1, 9))
def test_slots_follow_the_stages(stages: int) -> None:
    """Input rings have them all, staging buffers at most two."""
    slots = {b.name: b.slots for b in buffered(stages, 0).buffers}
    assert slots == {"S_T0": stages, "S_T1": stages, "S_T6": min(stages, 2)}


def test_buffers_do_not_overlap() -> None:
    """Every slot has bytes of its own."""
    end = 0
    for b in buffered(5, 4).buffers:
        assert b.offset >= end
        end = b.offset + b.slots * b.slot_nbytes


@pytest.mark.parametrize("prefetch", range(4))
def test_iteration_i_loads_tile_i_plus_prefetch(prefetch: int) -> None:
    """Copies stand `prefetch` turns early: in a first loop, and guarded in the main one."""
    loops = [s for s in buffered(4, prefetch).body if isinstance(s, kir.ForLoop)]
    assert len(loops) == (2 if prefetch else 1)
    main = loops[-1]
    copies = [
        s for s in kir.walk(main.body) if isinstance(s, kir.Copy) and isinstance(s.dst, kir.Slot)
    ]
    for copy in copies:
        assert isinstance(copy.dst, kir.Slot)
        assert copy.dst.index == (main.index + prefetch) % 4
    if prefetch:
        assert loops[0].stop == prefetch


def test_a_specialised_loop_keeps_its_request() -> None:
    """The next pass splits it; nothing is prefetched here."""
    (loop,) = [s for s in buffered(3, 0, specialized=True).body if isinstance(s, kir.ForLoop)]
    assert loop.circular is not None
