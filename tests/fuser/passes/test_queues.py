"""Copies by a queue: awaits follow from what is copied how far ahead, and every sync is needed."""

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
    ((stages, stages - 1, many), operator)
    for stages in (1, 2, 3, 4)
    for many in (1, 2)
    for operator in ("drop", "weaken", "swap", "move", "predicate")
)
"""Rings, and what is done to their syncs."""


@pytest.mark.parametrize(
    ("ring", "operator"),
    some(CHANGES, ((3, 2, 2), "drop"), ((3, 2, 2), "weaken"), ((2, 1, 1), "swap")),
)
def test_every_sync_is_needed(ring: tuple[int, int, int], operator: str) -> None:
    """Without an await, a join or a fence, or with an entry more in flight, all judges refuse.

    Of a sync that stands elsewhere, or is executed now and then, they say the same.
    """
    for mutant in mutants(run(requested(*ring)), operator):
        failed = {
            judge: any(verdict.status is Status.FAIL for verdict in verdicts)
            for judge, verdicts in judged(mutant.kernel).items()
        }
        assert len({*failed.values()}) == 1, f"{mutant.change}: {failed}"
        assert operator not in ("drop", "weaken") or failed["prover"], mutant.change


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


@pytest.mark.parametrize("stages", [1, 3])
def test_a_load_role_tells_the_others_by_an_arrival(stages: int) -> None:
    """It awaits its queue itself, and the slots come back to it as those of other engines."""
    made = run(requested(stages, 0, 2, specialized=True))
    assert [b.name for b in made.barriers] == ["full", "empty"]
    accepted(made)


def test_what_is_copied_once_is_awaited_once() -> None:
    """In front of the loops that read it, and no ring in them waits for more than its own tile."""
    (ring,) = requested(3, 2, 1).body
    assert isinstance(ring, kir.ForLoop)
    copy, read, negate, out = ring.body
    assert isinstance(copy, kir.Copy)
    assert isinstance(out, kir.Store)
    slot, held, total = kir.Slot(slots("S_W", 1, 512), 0), fragment("w", 64), fragment("both", 64)
    wide = [replace(of, extents=(n * m * 4, 32)) for of in (tensor("X", n), tensor("Y", n))]
    boxes = [box(of, q * m + k) for of in wide]
    rest = (read, negate, kir.Compute(total, "add", (out.src, held)))
    inner = replace(ring, stop=m, body=(replace(copy, src=boxes[0]), *rest, store(boxes[1], total)))
    once = kir.Copy(slot, box(W1), kir.Engine.QUEUE)
    body = (once, kir.ForLoop(q, n, (load(held, slot), inner)))
    made = run(
        kernel(
            body,
            threads=64,
            buffers=(slots("S_X", 1), slot.buffer),
            tensors=(W1, *wide),
            params=(n, m),
        )
    )
    assert awaits(made) == [0, 1, 0]
    loops = [s for s in made.body if isinstance(s, kir.ForLoop)]
    assert len([s for s in kir.walk(tuple(loops)) if isinstance(s, kir.AsyncAwait)]) == 2
    assert prove.prove(made, policy="strict").status is Status.PASS
    for values in ({"n": 2, "m": 1}, {"n": 2, "m": 4}):
        launch = simulate.Launch(1, values)
        assert simulate.search(made, launch, schedules=12, policy="strict").status is Status.PASS
