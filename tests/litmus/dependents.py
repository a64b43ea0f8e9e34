"""Dependent launches: what is used before the launches before have ended, and who knows of it.

Source: PTX ISA, "griddepcontrol"; CUDA programming guide, "Programmatic dependent launch".
"""

from __future__ import annotations

from dataclasses import replace

from fuser.expr import Expr, eq
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from litmus.parts import (
    BULK,
    CP_ASYNC,
    NBYTES,
    SHARED,
    W1,
    X1,
    XN,
    Y1,
    YN,
    Litmus,
    Run,
    box,
    broken,
    elect,
    fragment,
    init,
    k,
    kernel,
    legal,
    load,
    n,
    said,
    slots,
    store,
    tensor,
    trips,
    wait,
    zero,
)
from litmus.turnstiles import SHARES, SPLITS, turnstile

Ended = kir.GridDependencyWait
BN = tensor("B", n)


def ring(
    feed: str = "ended",
    each: str = "room expect fill",
    take: str = "ended_too",
    use: str = "wait read free out",
    *,
    early: tuple[str, ...] = (),
    requires: tuple[Expr, ...] = (),
) -> kir.Kernel:
    """Return a load role and one that uses its tiles; each does something, then goes round."""
    buffer, tile, bias, total = slots("S", 2), fragment("x"), fragment("b"), fragment("t")
    full, empty = kir.MBarrier("full", 1, 2), kir.MBarrier("empty", 32, 2)
    slot, turn = k % 2, k // 2
    words: dict[str, kir.Stmt] = {
        "ended": Ended(),
        "ended_too": Ended(),
        "ended_by_one": elect(Ended()),
        "ended_if_many": kir.IfThenElse(n > 1, (Ended(),)),
        "warp": kir.WarpSync(),
        "join": kir.BlockSync(1, 64),
        "tell": kir.NamedArrive(1, 64),
        "room": elect(wait(empty, slot, turn + 1)),
        "expect": elect(kir.MBarrierArriveExpectTx(full, slot, NBYTES)),
        "fill": elect(kir.TmaLoad(kir.Slot(buffer, slot), box(XN, k), full, slot)),
        "wait": wait(full, slot, turn),
        "read": load(tile, kir.Slot(buffer, slot)),
        "free": kir.MBarrierArrive(empty, slot),
        "bias": load(bias, box(BN, k)),
        "add": kir.Compute(total, "add", (tile, bias)),
        "out": store(box(YN, k), tile),
        "sum_out": store(box(YN, k), total),
    }
    body = (
        init(full, empty),
        kir.BlockSync(0, 64),
        kir.Role("load", 0, 1, (*said(feed, words), kir.ForLoop(k, n, said(each, words)))),
        kir.Role("use", 1, 1, (*said(take, words), kir.ForLoop(k, n, said(use, words)))),
    )
    made = kernel(body, threads=64, buffers=(buffer,), barriers=(full, empty), tensors=(XN, BN, YN))
    return replace(made, dependent=True, early=early, requires=(*made.requires, *requires))


def copied(
    sentence: str,
    *,
    threads: int = 64,
    early: tuple[str, ...] = (),
    source: kir.Tensor = X1,
    target: kir.Tensor = Y1,
) -> kir.Kernel:
    """Return a kernel that copies one tile by all of its threads, or by engines."""
    buffer, tile, none = slots("S"), fragment("x", threads), fragment("z", threads)
    words: dict[str, kir.Stmt] = {
        "ended": Ended(),
        "ended_by_one": elect(Ended()),
        "ended_by_a_warp": kir.Role("first", 0, 1, (Ended(),)),
        "start_others": kir.GridDependencyLaunch(),
        "start_again": kir.GridDependencyLaunch(),
        "start_more": elect(kir.GridDependencyLaunch()),
        "warp": kir.WarpSync(),
        "sync": kir.BlockSync(0, threads),
        "sync_again": kir.BlockSync(0, threads),
        "load": load(tile, box(source)),
        "store": store(box(target), tile),
        "zero": zero(none),
        "clear": store(box(target), none),
        "stage": store(kir.Slot(buffer, 0), tile),
        "copy": kir.CpAsync(kir.Slot(buffer, 0), box(source), tile.layout, 2),
        "commit": kir.AsyncCommit(CP_ASYNC),
        "await": kir.AsyncAwait(CP_ASYNC, 0),
        "get": load(tile, kir.Slot(buffer, 0)),
        "fence": kir.FenceAsyncProxy(SHARED),
        "send": elect(
            kir.TmaStore(box(target), kir.Slot(buffer, 0)),
            kir.AsyncCommit(BULK),
            kir.AsyncAwait(BULK, 0, read_only=True),
        ),
    }
    made = kernel(
        said(sentence, words),
        threads=threads,
        buffers=(buffer,),
        tensors=(source, target),
        params=(),
    )
    return replace(made, outputs=(target.name,), dependent=True, early=early)


def idle(*body: kir.Stmt) -> kir.Kernel:
    """Return a kernel that uses nothing at all."""
    made = kernel((*body, kir.BlockSync(0, 32)), tensors=(), params=())
    return replace(made, outputs=(), dependent=True)


def taken_turns(*body: kir.Stmt) -> kir.Kernel:
    """Return CTAs that take turns on a semaphore, behind some statements."""
    made = turnstile()
    return replace(made, body=(*body, *made.body), dependent=True)


def walked(least: int) -> kir.Kernel:
    """Return two CTAs that copy every other tile of at least so many; each waits at its tiles."""
    tile, number = fragment("x"), kir.BLOCK + k * kir.GRID
    body = (Ended(), load(tile, box(XN, number)), store(box(YN, number), tile))
    made = kernel(
        (kir.ForLoop(k, (n - kir.BLOCK + kir.GRID - 1) // kir.GRID, body),),
        requires=(n >= least,),
    )
    return replace(made, dependent=True)


def paired(*body: kir.Stmt) -> kir.Kernel:
    """Return two CTAs of a cluster that copy a tile each, behind some statements."""
    x, y, tile = tensor("X", 2), tensor("Y", 2), fragment("x")
    body = (*body, load(tile, box(x, kir.RANK)), store(box(y, kir.RANK), tile))
    made = kernel(body, tensors=(x, y), params=(), requires=(eq(kir.GRID, 2),))
    return replace(made, cluster=2, dependent=True)


def in_a_row(*kernels: kir.Kernel) -> LaunchSequence:
    """Return several launches, one behind the other."""
    return LaunchSequence("litmus", tuple(replace(k, name=f"k{i}") for i, k in enumerate(kernels)))


FIRST = kir.IfThenElse(eq(kir.RANK, 0), (Ended(),))
MAKES = replace(copied("load store", target=W1), dependent=False)
USES = copied("ended load store", source=W1)

LITMUS: tuple[Litmus, ...] = (
    legal(
        "each_role_waits_for_the_launches_before",
        "H85",
        ring(),
        "Nothing is used before they have ended (PTX ISA, griddepcontrol.wait).",
    ),
    legal(
        "the_load_role_waits_for_all",
        "H85",
        ring(take=""),
        "What the other role does needs a tile, which the load role asks for after its wait.",
    ),
    legal(
        "the_end_of_a_copy_tells_who_waited",
        "H85",
        ring("", "room expect ended fill", "", requires=(n >= 1,)),
        "The phase needs the bytes, which are copied after the wait, if its arrival is not.",
        launches=trips(1, 5),
    ),
    broken(
        "a_role_reads_its_bias_without_a_wait",
        "H85",
        ring(take="", use="bias wait read free add sum_out"),
        "dependency",
        "each_role_waits_for_its_bias",
        "The load role waits; the other one reads before it hears of that.",
    ),
    legal(
        "each_role_waits_for_its_bias",
        "H85",
        ring(use="bias wait read free add sum_out"),
        "Both roles have waited.",
    ),
    legal(
        "a_bias_behind_the_first_tile",
        "H85",
        ring(take="", use="wait bias read free add sum_out"),
        "The tile is there, so the load role has waited.",
    ),
    legal(
        "a_bias_that_nobody_writes",
        "H85",
        ring(take="", use="bias wait read free add sum_out", early=("B",)),
        "Launches before this one leave the bias alone.",
    ),
    broken(
        "a_source_of_the_load_role_is_not_early",
        "H85",
        ring("", early=("B",)),
        "dependency",
        "each_role_waits_for_the_launches_before",
        "The load role does not wait, and only the bias may be read early.",
    ),
    legal(
        "a_source_of_the_load_role_is_early",
        "H85",
        ring("", early=("X",)),
        "Tiles are loaded at once, results are stored after a wait.",
    ),
    broken(
        "results_of_early_tiles_stored_without_a_wait",
        "H85",
        ring("", "room expect fill", "", "wait read free out", early=("X",)),
        "dependency",
        "a_source_of_the_load_role_is_early",
        "The output may still be read by the launch before.",
    ),
    broken(
        "launches_before_awaited_under_a_guard",
        "H85",
        ring("ended_if_many", take=""),
        "dependency",
        "the_load_role_waits_for_all",
        "With one tile nobody waits.",
        launches=trips(1),
    ),
    broken(
        "launches_before_awaited_after_the_first_tile",
        "H85",
        ring("", "room expect fill ended"),
        "dependency",
        "launches_before_awaited_in_each_round",
        "The first tile is loaded before the wait.",
    ),
    legal(
        "launches_before_awaited_in_each_round",
        "H85",
        ring("", "ended room expect fill"),
        "All but the first return at once; the other role waits where there are no rounds.",
    ),
    broken(
        "launches_before_awaited_in_no_round",
        "H85",
        ring("", "ended room expect fill", ""),
        "dependency",
        "launches_before_awaited_in_each_round",
        "Without tiles this launch may end before those that it depends on, whatever comes next.",
        launches=trips(0),
    ),
    broken(
        "launches_before_awaited_by_another_lane",
        "H85",
        ring(take="ended_by_one", use="bias wait read free add sum_out"),
        "dependency",
        "launches_before_awaited_by_a_lane_for_its_warp",
        "The wait is one of the thread that executes it.",
    ),
    legal(
        "launches_before_awaited_by_a_lane_for_its_warp",
        "H85",
        ring(take="ended_by_one warp", use="bias wait read free add sum_out"),
        "The lanes join after the wait.",
    ),
    legal(
        "launches_before_awaited_by_a_role_that_tells",
        "H85",
        ring("ended tell", take="join", use="bias wait read free add sum_out"),
        "The barrier is complete once the load role has waited.",
    ),
    broken(
        "launches_before_awaited_by_a_role_that_has_told",
        "H85",
        ring("tell ended", take="join", use="bias wait read free add sum_out"),
        "dependency",
        "launches_before_awaited_by_a_role_that_tells",
        "The arrival comes before the wait.",
    ),
    legal(
        "launches_before_awaited_by_one_thread_before_a_barrier",
        "H85",
        copied("ended_by_one sync load store"),
        "The barrier joins all with the one that has waited.",
    ),
    broken(
        "launches_before_awaited_by_one_thread_behind_a_barrier",
        "H85",
        copied("sync ended_by_one load store"),
        "dependency",
        "launches_before_awaited_by_one_thread_before_a_barrier",
        "The others do not know when it returns.",
    ),
    broken(
        "launches_before_awaited_by_one_warp",
        "H85",
        copied("ended_by_a_warp load store"),
        "dependency",
        "launches_before_awaited_by_one_thread_before_a_barrier",
        "The other warp does not wait.",
    ),
    legal(
        "dependents_started_anywhere",
        "H85",
        copied("start_others ended start_more load start_again store"),
        "They wait for the end of this launch, whenever they start.",
    ),
    broken(
        "dependents_started_instead_of_a_wait",
        "H85",
        copied("start_others load store"),
        "dependency",
        "dependents_started_anywhere",
        "It orders nothing.",
    ),
    broken(
        "output_cleared_before_the_wait",
        "H85",
        copied("zero clear ended sync load sync_again store"),
        "dependency coverage",
        "output_written_after_the_wait",
        "Launches before may still read it.",
    ),
    legal(
        "output_written_after_the_wait",
        "H85",
        copied("load ended store", early=("X",)),
        "What is read before the wait is early.",
    ),
    broken(
        "output_sent_before_the_wait",
        "H85",
        copied("load stage fence sync send ended", early=("X",)),
        "dependency",
        "output_sent_after_the_wait",
        "The engine writes what launches before may still read.",
    ),
    legal(
        "output_sent_after_the_wait",
        "H85",
        copied("load stage fence ended_by_one sync send", early=("X",)),
        "The thread that issues the store has waited.",
    ),
    broken(
        "tile_copied_before_the_wait",
        "H85",
        copied("copy commit ended await get store"),
        "dependency",
        "tile_copied_after_the_wait",
        "The copy may read as soon as it is issued.",
    ),
    legal(
        "tile_copied_after_the_wait",
        "H85",
        copied("ended copy commit await get store"),
        "The copy is issued after the wait.",
    ),
    broken(
        "no_thread_waits_for_the_launches_before",
        "H85",
        idle(),
        "dependency",
        "one_thread_waits_for_the_launches_before",
        "What waits for this launch alone would not wait for those before it.",
    ),
    legal(
        "one_thread_waits_for_the_launches_before",
        "H85",
        idle(elect(Ended())),
        "It ends after they have.",
    ),
    legal(
        "turns_taken_after_the_wait",
        "H85 H80",
        taken_turns(Ended()),
        "The semaphores are those of the launches before.",
        launches=SPLITS,
    ),
    broken(
        "turns_taken_before_the_wait",
        "H85 H80",
        taken_turns(),
        "dependency",
        "turns_taken_after_the_wait",
        "A launch before may still use the semaphore.",
        launches=SHARES,
    ),
    legal(
        "a_cta_without_a_tile_does_not_wait",
        "H85",
        walked(1),
        "The launch ends after its first CTA, which waits.",
        launches=(Run(2, (("n", 1),)), Run(2, (("n", 3),))),
    ),
    legal(
        "one_cta_waits_for_its_cluster",
        "H85",
        paired(FIRST, kir.ClusterArrive(), kir.ClusterWait()),
        "The barrier of the cluster is complete once the first CTA has waited.",
        launches=(Run(2),),
    ),
    legal(
        "one_cta_waits_for_its_cluster_and_meets_it_relaxed",
        "H85",
        paired(FIRST, kir.ClusterArrive(relaxed=True), kir.ClusterWait()),
        "It is over for the whole grid (PTX ISA: visible to the current grid).",
        launches=(Run(2),),
    ),
    broken(
        "one_cta_of_a_cluster_waits",
        "H85",
        paired(kir.ClusterArrive(), FIRST, kir.ClusterWait()),
        "dependency",
        "one_cta_waits_for_its_cluster",
        "The other CTA knows that it has arrived, not that it has waited.",
        launches=(Run(2),),
    ),
    legal(
        "launches_in_a_row_of_which_the_second_waits",
        "H85",
        in_a_row(MAKES, USES),
        "What the first one writes is read after its end.",
    ),
    broken(
        "launches_in_a_row_of_which_the_second_does_not_wait",
        "H85",
        in_a_row(MAKES, copied("load ended store", source=W1)),
        "dependency",
        "launches_in_a_row_of_which_the_second_waits",
        "It is read before the first launch ends.",
    ),
    broken(
        "launches_in_a_row_of_which_the_second_reads_early",
        "H85",
        in_a_row(MAKES, copied("load ended store", source=W1, early=("W",))),
        "dependency",
        "launches_in_a_row_of_which_the_second_waits",
        "The launch before writes what is said to be left alone.",
    ),
    legal(
        "launches_in_a_row_of_which_the_third_reads_what_has_long_ended",
        "H85",
        in_a_row(
            MAKES,
            replace(copied("load store"), dependent=False),
            copied("load ended store", source=W1, target=tensor("Z"), early=("W",)),
        ),
        "The second launch begins when the first has ended.",
    ),
    broken(
        "launches_in_a_row_of_which_two_may_run_when_the_third_reads",
        "H85",
        in_a_row(
            MAKES,
            copied("ended load store"),
            copied("load ended store", source=W1, target=tensor("Z"), early=("W",)),
        ),
        "dependency",
        "launches_in_a_row_of_which_the_third_reads_what_has_long_ended",
        "The second launch starts others while the first may run, and so does it.",
    ),
)
