"""Copies by a queue: awaits follow from what is copied how far ahead, and every sync is needed."""

import re
from dataclasses import replace
from itertools import chain

import pytest
from litmus.parts import (
    QUEUE,
    W1,
    YN,
    box,
    fragment,
    k,
    kernel,
    load,
    m,
    n,
    q,
    slots,
    store,
    tensor,
)
from sample import some

from fuser.kernel import ir as kir
from fuser.pipeline import run
from fuzz.mutation.operators import mutants
from oracles.explorer import explore
from oracles.prover import prove
from oracles.simulator import simulate
from oracles.verdict import Status, Verdict

TRIPS = 0, 1, 2, 3, 4, 7
RINGS = tuple(
    (stages, prefetch, many)
    for stages in range(1, 5)
    for prefetch in range(stages)
    for many in (1, 2)
)
"""Stages, how many of them are loaded ahead, tensors a stage."""
AWAIT_ONE, AWAIT_ALL = kir.AsyncAwait(QUEUE, 1), kir.AsyncAwait(QUEUE, 0)


def requested(
    stages: int, prefetch: int, many: int, *, specialized: bool = False, engines: str = "queue"
) -> kir.Kernel:
    """Return a kernel without a sync that adds up `many` tensors, by rings of 64 threads."""
    names = ("X", "V", "W")[:many]
    inputs = [tensor(name, n) for name in names]
    buffers = [slots(f"S_{name}", 1, 512 * i) for i, name in enumerate(names)]
    tiles = [fragment(f"x_{name}", 64) for name in names]
    by = [kir.Engine(word) for word in (engines.split() * many)[:many]]
    dealt = tiles[0].layout
    copies = [
        kir.Copy(kir.Slot(buffer, 0), box(of, k), engine, dealt if engine.of_threads else None, 2)
        for buffer, of, engine in zip(buffers, inputs, by, strict=True)
    ]
    reads = [load(tile, kir.Slot(b, 0)) for tile, b in zip(tiles, buffers, strict=True)]
    total = fragment("total", 64)
    op = "add" if many > 1 else "neg"
    sums = [kir.Compute(total, op, tuple(tiles[:2])), kir.Compute(total, "add", (total, tiles[-1]))]
    role = kir.WarpSpecialized() if specialized else None
    loop = kir.ForLoop(
        k,
        n,
        (*copies, *reads, *sums[: max(1, many - 1)], store(box(YN, k), total)),
        kir.CircularBuffer(stages, prefetch, role),
    )
    return kernel((loop,), threads=64, buffers=tuple(buffers), tensors=(*inputs, YN))


def awaits(made: kir.Kernel) -> list[int]:
    """Return how many entries each await keeps, in program order."""
    return [s.keep for s in made.walk() if isinstance(s, kir.AsyncAwait)]


def judged(made: kir.Kernel) -> dict[str, list[Verdict]]:
    """Return what each judge says: the prover at once, the others of launches of few trips."""
    launches = [{"n": count} for count in TRIPS]
    return {
        "prover": [prove.prove(made, policy="strict")],
        "explorer": [
            explore.explore(made, explore.Launch(1, one), policy="strict") for one in launches
        ],
        "simulator": [
            simulate.search(made, simulate.Launch(1, one), schedules=12, policy="strict")
            for one in launches
        ],
    }


def accepted(made: kir.Kernel) -> None:
    """Check that all judges pass a kernel, and warn of nothing."""
    for verdict in chain(*judged(made).values()):
        assert verdict.status is Status.PASS, verdict
        assert not verdict.findings, verdict


@pytest.mark.parametrize(
    ("stages", "prefetch", "many"), some(RINGS, (1, 0, 2), (2, 1, 1), (3, 2, 2), (4, 3, 1))
)
def test_all_judges_accept_what_is_derived(stages: int, prefetch: int, many: int) -> None:
    """For every trip count, under the policy that owes a fence to refills, without a warning."""
    accepted(run(requested(stages, prefetch, many)))


CHANGES = tuple(
    (ring, operator)
    for ring in (
        *((stages, stages - 1, many, False) for stages in range(1, 5) for many in (1, 2)),
        *((stages, 0, 2, True) for stages in (1, 3)),
    )
    for operator in ("drop", "weaken", "swap", "move", "predicate")
)
"""Rings as above, or with a load role, and what is done to their syncs."""
IDLE = r"fence_mbarrier_init|by one thread line \d+: grid_dependency_wait"
"""In one CTA nothing depends on it; and who copies waits for launches, and joins the others."""


@pytest.mark.parametrize(
    ("ring", "operator"),
    some(
        CHANGES,
        ((3, 2, 2, False), "drop"),
        ((3, 2, 2, False), "weaken"),
        ((2, 1, 1, False), "swap"),
        ((3, 0, 2, True), "drop"),
        ((3, 0, 2, True), "weaken"),
    ),
)
def test_every_sync_is_needed(ring: tuple[int, int, int, bool], operator: str) -> None:
    """Without an await, a join or a fence, or with an entry more in flight, all judges refuse.

    Of a sync that stands elsewhere, or is executed now and then, they say the same.
    """
    stages, prefetch, many, specialized = ring
    made = run(requested(stages, prefetch, many, specialized=specialized))
    for mutant in mutants(made, operator):
        failed = {
            judge: any(verdict.status is Status.FAIL for verdict in verdicts)
            for judge, verdicts in judged(mutant.kernel).items()
        }
        assert len({*failed.values()}) == 1, f"{mutant.change}: {failed}"
        needed = operator in ("drop", "weaken") and not re.search(IDLE, mutant.change)
        assert failed["prover"] or not needed, mutant.change


@pytest.mark.parametrize("many", [1, 2, 3])
def test_an_await_keeps_what_is_issued_behind_the_copies_of_its_iteration(many: int) -> None:
    """An entry for each tensor and each iteration ahead, fewer at the tail."""
    assert awaits(run(requested(4, 3, many))) == [2 * many, many, 0]
    assert awaits(run(requested(2, 1, many))) == [0]
    assert awaits(run(requested(3, 0, many))) == [0]


def test_a_ring_joins_once_an_iteration() -> None:
    """The join that hands the tile on also lets its readers go before the refill."""
    (*_, main) = (s for s in run(requested(3, 2, 2)).body if isinstance(s, kir.ForLoop))
    assert isinstance(main, kir.ForLoop)
    joins = [n for n, s in enumerate(main.body) if isinstance(s, kir.BlockSync)]
    assert joins == [1], "behind the await, before the refill"
    assert isinstance(main.body[0], kir.Elect)


@pytest.mark.parametrize("engines", ["queue tma", "tma queue", "queue cp_async"])
def test_other_engines_do_not_count_as_entries(engines: str) -> None:
    """Each has its own way to tell the end; a queue beside it waits for its own copies only."""
    made = run(requested(3, 2, 2, engines=engines))
    assert [s.keep for s in made.walk() if s in (AWAIT_ONE, AWAIT_ALL)] == [1, 0]
    accepted(made)


@pytest.mark.parametrize("stages", range(1, 5))
def test_a_load_role_tells_the_others_by_an_arrival(stages: int) -> None:
    """It leaves in flight what fills the other slots, and tells of that behind its loop."""
    made = run(requested(stages, 0, 2, specialized=True))
    assert [b.name for b in made.barriers] == ["full", "empty"]
    tail = [2 * behind for behind in reversed(range(stages - 1))]
    assert awaits(made) == [2 * (stages - 1), *tail]
    accepted(made)


def nested(*, specialized: bool) -> kir.Kernel:
    """Return a kernel without a sync: a ring in a loop, beside a tile that is copied once."""
    (ring,) = requested(3, 0 if specialized else 2, 1, specialized=specialized).body
    assert isinstance(ring, kir.ForLoop)
    copy, read, negate, out = ring.body
    assert isinstance(copy, kir.Copy)
    assert isinstance(out, kir.Store)
    slot, held, total = kir.Slot(slots("S_W", 1, 512), 0), fragment("w", 64), fragment("both", 64)
    wide = [replace(of, extents=(n * m * 4, 32)) for of in (tensor("X", n), tensor("Y", n))]
    boxes = [box(of, q * m + k) for of in wide]
    add = kir.Compute(total, "add", (out.src, held))
    inner = (replace(copy, src=boxes[0]), read, negate, add, store(boxes[1], total))
    once = kir.Copy(slot, box(W1), kir.Engine.QUEUE)
    return kernel(
        (once, kir.ForLoop(q, n, (load(held, slot), replace(ring, stop=m, body=inner)))),
        threads=64,
        buffers=(slots("S_X", 1), slot.buffer),
        tensors=(W1, *wide),
        params=(n, m),
    )


@pytest.mark.parametrize("specialized", [False, True])
def test_what_is_copied_once_is_awaited_once(specialized: bool) -> None:
    """In front of the loops, or roles, that read it; no ring waits for more than its own tile."""
    made = run(nested(specialized=specialized))
    assert awaits(made) == ([0, 2, 1, 0] if specialized else [0, 1, 0])
    within = kir.walk(tuple(s for s in made.body if isinstance(s, kir.ForLoop | kir.Role)))
    assert len([s for s in within if isinstance(s, kir.AsyncAwait)]) == len(awaits(made)) - 1
    assert prove.prove(made, policy="strict").status is Status.PASS
    for values in ({"n": 0, "m": 1}, {"n": 2, "m": 1}, {"n": 2, "m": 4}):
        launch = simulate.Launch(1, values)
        assert simulate.search(made, launch, schedules=12, policy="strict").status is Status.PASS
        assert explore.explore(made, explore.Launch(1, values)).status is Status.PASS
