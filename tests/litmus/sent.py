"""Tiles and row sums that threads store into the shared memory of a cluster (`st.async`)."""

from __future__ import annotations

from dataclasses import replace

from fuser.dtype import DType
from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from litmus.parts import (
    BULK,
    CLUSTER,
    CTA,
    NBYTES,
    SHARED,
    TILE,
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
    single,
    slots,
    store,
    tensor,
    wait,
    zero,
)

PAIR = (Run(2),)
PAIRS = tuple(Run(2, (("n", trips),)) for trips in (0, 1, 2))
LATER = (Run(2, (("n", 5),)),)
PEER = 1 - kir.RANK
FULL, EMPTY = kir.MBarrier("full", 1, 1), kir.MBarrier("empty", 1, 1)
X, OTHER = fragment("x", 64), fragment("other", 64)


def send(
    to: Expr | None = PEER, *, into: kir.Buffer | None = None, at: Expr = 0, src: kir.Fragment = X
) -> kir.StAsync:
    """Start storing a fragment into a slot of a CTA, whose `full` counts the bytes."""
    slot = kir.Slot(into or slots("S"), at, to)
    return kir.StAsync(slot, src, FULL, 0, src.layout.vector if src.layout.folded == 1 else 1)


def expect(nbytes: int = NBYTES) -> kir.Elect:
    """Arrive on the own `full`, expecting so many bytes."""
    return elect(kir.MBarrierArriveExpectTx(FULL, 0, nbytes))


MEETINGS: dict[str, kir.Stmt] = {
    "init": init(FULL, EMPTY),
    "bare_init": elect(kir.MBarrierInit(FULL), kir.MBarrierInit(EMPTY)),
    "sync": kir.BlockSync(0, 64),
    "meet_a": kir.ClusterArrive(),
    "meet_w": kir.ClusterWait(),
    "again_a": kir.ClusterArrive(),
    "again_w": kir.ClusterWait(),
    "leave_a": kir.ClusterArrive(),
    "leave_w": kir.ClusterWait(),
}
LET_IN = "init meet_a meet_w"


def exchanged(sentence: str, start: str = LET_IN, **own: kir.Stmt) -> kir.Kernel:
    """Each of two CTAs stores its tile into the other one, and writes out what it got."""
    buffer, y = slots("S"), tensor("Y", 2)
    words = MEETINGS | {
        "expect": expect(),
        "get": load(X, box(tensor("X", 2), kir.RANK)),
        "send": send(),
        "clear": zero(X),
        "here": wait(FULL, 0, 0, CLUSTER),
        "take": load(OTHER, kir.Slot(buffer, 0)),
        "over": store(kir.Slot(buffer, 0), X),
        "join": kir.BlockSync(0, 64),
        "out": store(box(y, kir.RANK), OTHER),
        "mine": store(box(y, kir.RANK), X),
        "fence": kir.FenceAsyncProxy(SHARED),
        "bulk": elect(kir.TmaStore(box(y, kir.RANK), kir.Slot(buffer, 0)), kir.AsyncCommit(BULK)),
        "drain": elect(kir.AsyncAwait(BULK, 0)),
    }
    return _pair(said(f"{start} {sentence}", words | own), (buffer,), params=())


def _pair(
    body: tuple[kir.Stmt, ...], buffers: tuple[kir.Buffer, ...], *, params: tuple[Var, ...]
) -> kir.Kernel:
    tiles = 2 * n if params else 2
    made = kernel(
        body, threads=64, buffers=buffers, barriers=(FULL, EMPTY),
        tensors=(tensor("X", tiles), tensor("Y", tiles)), params=params,
    )  # fmt: skip
    return replace(made, cluster=2, requires=(eq(kir.GRID, 2),))


ROUND = "expect get room send here take join free out"


def rounds(sentence: str = ROUND, end: str = "leave_a leave_w", **own: kir.Stmt) -> kir.Kernel:
    """Exchange tiles `n` times over one slot, which its reader hands back to the other CTA."""
    buffer, at = slots("S"), 2 * k + kir.RANK
    words = MEETINGS | {
        "expect": expect(),
        "get": load(X, box(tensor("X", 2 * n), at)),
        "room": wait(EMPTY, 0, k + 1, CLUSTER),
        "send": send(),
        "here": wait(FULL, 0, k, CLUSTER),
        "take": load(OTHER, kir.Slot(buffer, 0)),
        "join": kir.BlockSync(0, 64),
        "free": elect(kir.MBarrierArrive(EMPTY, 0, CLUSTER, PEER)),
        "free_here": elect(kir.MBarrierArrive(EMPTY, 0, CLUSTER, kir.RANK)),
        "out": store(box(tensor("Y", 2 * n), at), OTHER),
    }
    words |= own
    body = (*said(LET_IN, words), kir.ForLoop(k, n, said(sentence, words)), *said(end, words))
    return _pair(body, (buffer,), params=(n,))


PARTS = kir.Buffer("P", DType.F32, (TILE[0], 1), 2, 0)
SUM = kir.Fragment("sum", DType.F32, kir.Layout((TILE[0], 1), 2, 64, folded=TILE[1]))


OF_ROWS = kir.Layout(TILE, 2, 64, kir.Deal.ROWS, 1, 16)
"""Each 16 threads share a row, and of its sum all have the same."""
SHARED_SUM = kir.Fragment(
    "sum", DType.F32, replace(OF_ROWS, shape=(TILE[0], 1), vector=1, alike=16)
)


def row_sums(
    sentence: str = "expect get sum room tell tell_peer here take join free add out",
    *,
    nbytes: int = 2 * PARTS.slot_nbytes,
    at: Expr = kir.RANK,
    end: str = "leave_a leave_w",
    src: kir.Fragment = SUM,
) -> kir.Kernel:
    """Add to each element the sum of its row, of which each of two CTAs has a half."""
    layout = X.layout if src is SUM else OF_ROWS
    mine, other, first, second = (
        kir.Fragment(name, DType.F32, layout) for name in ("x", "other", "first", "second")
    )
    place = 2 * k + kir.RANK
    sums = (load(part, kir.Slot(PARTS, i)) for i, part in enumerate((first, second)))
    words = MEETINGS | {
        "expect": expect(nbytes),
        "get": load(mine, box(tensor("X", 2 * n), place)),
        "sum": kir.Reduce(src, mine, "add"),
        "room": wait(EMPTY, 0, k + 1, CLUSTER),
        "tell": send(None, into=PARTS, at=at, src=src),
        "tell_peer": send(into=PARTS, at=at, src=src),
        "here": wait(FULL, 0, k, CLUSTER),
        "here_cta": wait(FULL, 0, k, CTA),
        "take": kir.IfThenElse(1, tuple(sums)),
        "join": kir.BlockSync(0, 64),
        "free": elect(kir.MBarrierArrive(EMPTY, 0, CLUSTER, PEER)),
        "add": kir.IfThenElse(1, (
            kir.Compute(other, "add", (first, second)), kir.Compute(other, "add", (mine, other)),
        )),
        "out": store(box(tensor("Y", 2 * n), place), other),
    }  # fmt: skip
    body = (*said(LET_IN, words), kir.ForLoop(k, n, said(sentence, words)), *said(end, words))
    return _pair(body, (PARTS,), params=(n,))


def alone() -> kir.Kernel:
    """Store a tile so in a kernel without clusters."""
    words = MEETINGS | {
        "expect": expect(),
        "get": load(X, box(tensor("X"))),
        "send": send(None),
        "here": wait(FULL, 0, 0),
        "take": load(OTHER, kir.Slot(slots("S"), 0)),
        "out": store(box(tensor("Y")), OTHER),
    }
    body = said("init sync expect get send here take out", words)
    return single(body, threads=64, buffers=(slots("S"),), barriers=(FULL, EMPTY))


_HALF = fragment("half")
TOLD = "expect get sum room tell tell_peer here take join free add out"
ONCE = "expect get send here take out"

LITMUS: tuple[Litmus, ...] = (
    legal(
        "tile_sent_to_the_peer",
        "H08 H64",
        exchanged(ONCE),
        "The bytes complete on the barrier of the CTA that they are stored into, and who waits "
        "for it at cluster scope sees them (PTX ISA, st.async).",
        launches=PAIR,
    ),
    legal(
        "tile_sent_before_it_is_expected",
        "H08",
        exchanged("get send expect here take out"),
        "The tx-count may pass below zero while the arrival of the phase is missing.",
        launches=PAIR,
    ),
    legal(
        "tile_sent_and_registers_used_again",
        "H64",
        exchanged("expect get send clear here take out"),
        "Registers are read at the issue.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_and_not_expected",
        "H08",
        exchanged("arrive get send here take out", arrive=elect(kir.MBarrierArrive(FULL, 0))),
        "bytes RAW",
        "tile_sent_to_the_peer",
        "The arrival alone completes the phase while the stores are on their way.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_and_half_expected",
        "H08",
        exchanged(ONCE, expect=expect(NBYTES // 2)),
        "bytes RAW parity",
        "tile_sent_to_the_peer",
        "The phase may complete when half of the bytes have landed.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_and_twice_expected",
        "H08",
        exchanged(ONCE, expect=expect(2 * NBYTES)),
        "bytes deadlock",
        "tile_sent_to_the_peer",
        "The other half of the expected bytes never comes.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_and_taken_without_a_wait",
        "H01",
        exchanged("expect get send take here out"),
        "RAW",
        "tile_sent_to_the_peer",
        "A wait orders what follows it.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_and_taken_behind_a_meeting",
        "H01 H64",
        exchanged("expect get send again_a again_w take here out"),
        "RAW",
        "tile_sent_to_the_peer",
        "The cluster's barrier does not wait for stores on their way.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_and_awaited_at_cta_scope",
        "H64",
        exchanged(ONCE, here=wait(FULL, 0, 0, CTA)),
        "scope RAW",
        "tile_sent_to_the_peer",
        "The bytes of another CTA are released at the scope of the cluster (PTX ISA, st.async).",
        launches=PAIR,
    ),
    legal(
        "tile_sent_to_the_own_cta",
        "H64",
        exchanged(ONCE, send=send(None), here=wait(FULL, 0, 0, CTA)),
        "In its own CTA a wait at cta scope acquires what is released at a wider one.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_to_the_own_cta_and_taken_at_once",
        "H01",
        exchanged("expect get send take here out", send=send(None)),
        "RAW",
        "tile_sent_to_the_own_cta",
        "Not even the storing thread sees it before the wait: it is asynchronous.",
        launches=PAIR,
    ),
    broken(
        "both_ctas_send_to_the_first",
        "H62",
        exchanged(ONCE, send=send(0)),
        "WAW bytes deadlock",
        "tile_sent_to_the_peer",
        "The second waits for bytes that the first gets, in one place twice.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_beyond_the_cluster",
        "H62",
        exchanged(ONCE, send=send(kir.RANK + 1)),
        "bounds",
        "tile_sent_to_the_peer",
        "The second CTA stores into a third one, of which there is none.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_before_the_cluster_has_met",
        "H10 H64",
        exchanged(ONCE, "init sync"),
        "init",
        "tile_sent_to_the_peer",
        "The peer may not have initialised its barrier, or not have begun.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_where_no_init_is_fenced",
        "H10",
        exchanged(ONCE, "bare_init meet_a meet_w"),
        "init",
        "tile_sent_to_the_peer",
        "Only fence.mbarrier_init makes an init visible to another CTA.",
        launches=PAIR,
    ),
    legal(
        "tile_sent_and_only_waited_for",
        "H63",
        exchanged("expect get send here mine"),
        "Nothing is on its way into a CTA that has waited for all of it.",
        launches=PAIR,
    ),
    legal(
        "tile_sent_and_only_waited_for_at_cta_scope",
        "H63 H64",
        exchanged("expect get send here mine", here=wait(FULL, 0, 0, CTA)),
        "The wait ends when all bytes have come, at any scope; what they are nobody asks.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_awaited_at_cta_scope_and_overwritten",
        "H64",
        exchanged("expect get send here over join take out", here=wait(FULL, 0, 0, CTA)),
        "scope WAW",
        "tile_sent_and_overwritten",
        "The bytes have come, and may yet be seen to come after this CTA's own.",
        launches=PAIR,
    ),
    legal(
        "tile_sent_and_overwritten",
        "H64",
        exchanged("expect get send here over join take out"),
        "What the wait has acquired may be overwritten.",
        launches=PAIR,
    ),
    broken(
        "cta_left_while_a_tile_is_on_its_way",
        "H63",
        exchanged("expect get send mine"),
        "exit",
        "tile_sent_and_only_waited_for",
        "The stores of the peer may reach shared memory of a CTA that has ended.",
        launches=PAIR,
    ),
    broken(
        "cluster_left_together_while_a_tile_is_on_its_way",
        "H63",
        exchanged("expect get send mine leave_a leave_w"),
        "exit",
        "tile_sent_and_only_waited_for",
        "Leaving together waits for threads, not for stores on their way.",
        launches=PAIR,
    ),
    legal(
        "tile_sent_and_copied_out_by_an_engine",
        "H33",
        exchanged("expect get send here fence sync bulk drain"),
        "Stores through the generic proxy are fenced by who has waited for them.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_and_copied_out_unfenced",
        "H33",
        exchanged("expect get send here sync bulk drain"),
        "proxy",
        "tile_sent_and_copied_out_by_an_engine",
        "st.async is performed in the generic proxy (PTX ISA, st.async).",
        launches=PAIR,
    ),
    broken(
        "tile_sent_and_fenced_by_the_sender",
        "H33",
        exchanged("expect get send fence here sync bulk drain"),
        "proxy",
        "tile_sent_and_copied_out_by_an_engine",
        "A fence behind the issue covers nothing that is still on its way.",
        launches=PAIR,
    ),
    broken(
        "tile_sent_by_more_threads_than_have_it",
        "H08 H62",
        exchanged(
            ONCE,
            get=load(_HALF, box(tensor("X", 2), kir.RANK)),
            send=send(src=_HALF),
            mine=store(box(tensor("Y", 2), kir.RANK), _HALF),
        ),
        "collective",
        "tile_sent_to_the_peer",
        "What the other warp would store, and count, is no part of the tile.",
        launches=PAIR,
        refused="its bytes count once where each element has one thread",
    ),
    broken(
        "tile_sent_without_a_cluster",
        "H62",
        alone(),
        "collective",
        "tile_sent_to_the_own_cta",
        "st.async needs more than one CTA in the cluster (PTX ISA, st.async).",
        launches=(Run(1),),
        refused="reaches into a cluster",
    ),
    legal(
        "tiles_sent_in_turns",
        "H60 H62 H05",
        rounds(),
        "The reader hands its slot back to the sender, at cluster scope.",
        launches=PAIRS,
    ),
    broken(
        "tiles_sent_without_room",
        "H60 H05",
        rounds("expect get send here take join free out"),
        "WAR WAW bytes parity RAW",
        "tiles_sent_in_turns",
        "The next tile overwrites one that is still read, or whose phase still runs.",
        launches=LATER,
    ),
    broken(
        "tiles_sent_and_freed_before_they_are_taken",
        "H60 H05",
        rounds("expect get room send here join free take out"),
        "WAR RAW",
        "tiles_sent_in_turns",
        "The slot is handed back before it is read.",
        launches=LATER,
    ),
    broken(
        "tiles_sent_and_freed_by_one_warp",
        "H60 H05",
        rounds("expect get room send here take free out"),
        "WAR RAW",
        "tiles_sent_in_turns",
        "The other warp may still read.",
        launches=LATER,
    ),
    broken(
        "tiles_sent_and_freed_at_home",
        "H62",
        rounds("expect get room send here take join free_here out"),
        "WAR WAW bytes parity RAW",
        "tiles_sent_in_turns",
        "The own slot is no news of the peer's.",
        launches=LATER,
    ),
    broken(
        "tiles_sent_and_expected_once",
        "H08",
        rounds(
            "first get room send here take join free out",
            first=kir.IfThenElse(eq(k, 0), (expect(),)),
        ),
        "deadlock bytes",
        "tiles_sent_in_turns",
        "Nobody arrives in the second phase.",
        launches=LATER,
    ),
    broken(
        "tiles_sent_and_left_without_meeting",
        "H63",
        rounds(end=""),
        "exit",
        "tiles_sent_in_turns",
        "The last arrivals may reach a CTA that has left.",
        launches=LATER,
    ),
    legal(
        "tiles_sent_between_meetings",
        "H60 H65",
        rounds("expect get send here take again_a again_w out"),
        "All have read, and left their waits, when the cluster meets.",
        launches=PAIRS,
    ),
    broken(
        "tiles_sent_and_taken_behind_the_meeting",
        "H60 H65",
        rounds("expect get send here again_a again_w take out"),
        "WAR RAW",
        "tiles_sent_between_meetings",
        "The peer may send the next tile while this one is read.",
        launches=LATER,
    ),
    legal(
        "row_sums_of_a_cluster",
        "H08 H62",
        row_sums(),
        "Each CTA stores its part into its own place in both, whose phase expects both parts.",
        launches=PAIRS,
    ),
    legal(
        "row_sums_that_several_threads_hold",
        "H08 H64",
        row_sums(src=SHARED_SUM),
        "The first thread that holds a sum stores it, so its bytes count once.",
        launches=PAIRS,
    ),
    broken(
        "row_sums_counted_for_each_thread",
        "H08",
        row_sums(src=SHARED_SUM, nbytes=16 * 2 * PARTS.slot_nbytes),
        "bytes deadlock",
        "row_sums_that_several_threads_hold",
        "Of 16 threads that hold a sum one sends it.",
        launches=LATER,
    ),
    broken(
        "row_sums_expect_one_part",
        "H08",
        row_sums(nbytes=PARTS.slot_nbytes),
        "bytes RAW parity exit",
        "row_sums_of_a_cluster",
        "The phase is complete with the part of either.",
        launches=LATER,
    ),
    broken(
        "row_sums_in_one_place",
        "H08",
        row_sums(at=0),
        "WAW RAW",
        "row_sums_of_a_cluster",
        "Both parts are stored in one slot.",
        launches=LATER,
    ),
    broken(
        "row_sums_awaited_at_cta_scope",
        "H64",
        row_sums(TOLD.replace("here", "here_cta")),
        "scope RAW",
        "row_sums_of_a_cluster",
        "The part of the peer is not acquired.",
        launches=LATER,
    ),
    broken(
        "row_sums_stored_over_those_of_the_last_turn",
        "H05",
        row_sums(TOLD.replace("join free", "free join")),
        "WAR RAW",
        "row_sums_of_a_cluster",
        "The peer hears of one warp that has read its parts, not of the other.",
        launches=LATER,
    ),
)
