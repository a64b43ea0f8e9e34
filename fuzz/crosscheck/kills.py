"""Which mutants were killed, by whom, and what the survivors are: lines at the end of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from fuzz.crosscheck.judge import HARD_SCHEDULES, SCHEDULES, SEARCHED, Outcome, is_sync_mutant
from fuzz.kernels.cookbook import SEEDS
from fuzz.mutation.fate import Fate, fate
from fuzz.mutation.operators import SYNC_OPERATORS

MOST = 40
"""Lines of a list at most; the results have them all."""
WITHOUT = {
    "H28": "the IR has no compiler that could move reads; the text of the code is checked",
    "H35": "the row asks for silence: the right litmus kernels are judged for it",
    "H36": "the IR has no update of tensor maps",
    "H85": "the IR has no dependent launches",
    "H86": "concurrent launches are a check of the host",
}
"""Rows of the hazard table that no mutant can show, and why."""
LAST = 86
"""The last row of the table."""
GAPS = frozenset({18, 19, 29, 37, 38, 39, 47, 48, 49, 56, 57, 58, 59, 66, 67, 68, 69, 77, 78, 79})
"""Numbers that the table does not use."""


def fate_of(outcome: Outcome) -> Fate:
    """Return what became of a mutant: every launch was explored, a simulator ran all schedules.

    The explorer and the simulator count as one: both look for a failing interleaving.
    """
    searched = () if outcome.simulator is None else (outcome.simulator.status,)
    return fate(outcome.prover.status, outcome.explorer.status, *searched)


def kill_lines(seen: Sequence[Outcome]) -> Iterator[str]:
    """Every line of the mutation score: operator x kernel, hazard rows, survivors."""
    cells: dict[tuple[str, str], Counter[Fate]] = defaultdict(Counter)
    for outcome in seen:
        operator, who = outcome.faults[0].split(":")[0], fate_of(outcome)
        for key in ((operator, outcome.family), (operator, "all"), ("all", outcome.family)):
            cells[key][who] += 1
        cells["all", "all"][who] += 1
    names = [*sorted({o.family for o in seen}), "all"]
    yield "killed by both / by one judge / redundant / open, of the mutants of an operator"
    yield f"{'':10}" + "".join(f"{name[:16]:>17}" for name in names)
    for operator in [*dict.fromkeys(o.faults[0].split(":")[0] for o in seen), "all"]:
        yield f"{operator:10}" + "".join(f"{_cell(cells[operator, n]):>17}" for n in names)
    yield from _row_lines(seen)
    yield from _survivors(seen)


def _cell(counts: Counter[Fate]) -> str:
    if not counts:
        return "-"
    one = counts[Fate.PROVER] + counts[Fate.SEARCH]
    return f"{counts[Fate.BOTH]}/{one}/{counts[Fate.REDUNDANT]}/{counts[Fate.OPEN]}"


def _row_lines(seen: Sequence[Outcome]) -> Iterator[str]:
    """Say of each hazard row how many mutants aim at it and what became of them."""
    rows: dict[str, Counter[Fate]] = defaultdict(Counter)
    for outcome in seen:
        for row in outcome.hazards:
            rows[row][fate_of(outcome)] += 1
    yield ""
    yield "per hazard row; redundant: proved right, and no failing interleaving among all those of"
    yield "the launches of its recipe; open: neither redundant nor killed by both"
    heads = ("mutants", "by prover", "by explorer", "redundant", "open")
    yield "     " + "".join(f"{head:>13}" for head in heads) + "   killed by both"
    for number in (n for n in range(1, LAST + 1) if n not in GAPS):
        row = f"H{number:02}"
        if row in rows:
            yield f"{row}  {_row(rows[row])}"
        else:
            yield f"{row}   no mutant: {WITHOUT.get(row, 'none of those judged aims at it')}"


def _row(counts: Counter[Fate]) -> str:
    total, both, safe = counts.total(), counts[Fate.BOTH], counts[Fate.REDUNDANT]
    kills = (both + counts[Fate.PROVER], both + counts[Fate.SEARCH])
    numbers = (total, *kills, safe, total - both - safe)
    share = f"{100 * both / (total - safe):5.1f} %" if total > safe else "    -"
    return "".join(f"{number:13}" for number in numbers) + f"   {share}"


def _survivors(seen: Sequence[Outcome]) -> Iterator[str]:
    """Say of each mutant that nobody killed what the judges did to it; open ones come first."""
    left = [o for o in seen if fate_of(o) in (Fate.REDUNDANT, Fate.OPEN)]
    left.sort(key=lambda o: fate_of(o) is not Fate.OPEN)
    yield ""
    yield f"survivors: {len(left)} of {len(seen)}"
    for o in left[:MOST]:
        proof = "proved" if o.prover.status == "pass" else f"{o.prover.status}: {o.prover.reason}"
        search = f"explored {o.explorer.reason}, {o.explorer.states} states"
        if o.explorer.status != "pass":
            search = f"explorer {o.explorer.status}: {o.explorer.reason}"
        yield f"  {fate_of(o).value}: {o.subject}: {o.faults[0]}: {proof[:100]}; {search[:100]}"


# --- sync mutants of the seed kernels -----------------------------------------------------------


def settled(outcome: Outcome) -> Fate:
    """Say what became of a sync mutant: killed by prover and simulator, redundant, or open."""
    if outcome.simulator is None:
        return Fate.OPEN
    if fate(outcome.prover.status, outcome.simulator.status) is Fate.BOTH:
        return Fate.BOTH
    return Fate.REDUNDANT if fate_of(outcome) is Fate.REDUNDANT else Fate.OPEN


def seed_lines(seen: Sequence[Outcome], names: Sequence[str] = SEEDS) -> Iterator[str]:
    """Say of each kernel of these names whether its sync mutants are killed by both or redundant.

    By default of the seeds.
    """
    yield ""
    operators = ", ".join(SYNC_OPERATORS)
    kind = "seed kernels" if names is SEEDS else "matmuls of the compiler"
    yield f"sync mutants ({operators}) of the {kind}, by prover and simulator:"
    yield (
        f"  {SCHEDULES} schedules at each of up to {SEARCHED} launches, "
        f"{HARD_SCHEDULES} at the one where the explorer fails"
    )
    for name in names:
        mutants = [o for o in seen if o.family == name and is_sync_mutant(o.family, o.faults)]
        counts = Counter(settled(o) for o in mutants)
        holds = "holds" if _holds(counts) else f"DOES NOT HOLD, {counts[Fate.OPEN]} open"
        holds = holds if mutants else "NOT JUDGED"
        yield (
            f"  {name}: of {len(mutants)} sync mutants {counts[Fate.BOTH]} killed by both, "
            f"{counts[Fate.REDUNDANT]} proved redundant with no failing interleaving: {holds}"
        )
        for o in [o for o in mutants if settled(o) is Fate.OPEN][:MOST]:
            searched = o.simulator.status if o.simulator else "not asked"
            said = f"prover {o.prover.status}, explorer {o.explorer.status}, simulator {searched}"
            yield f"    open: {o.subject}: {o.faults[0]}: {said}"


def needless_lines(seen: Sequence[Outcome]) -> Iterator[str]:
    """Name the syncs that can be left out of a kernel with every judge still content."""
    dropped: dict[str, list[Outcome]] = defaultdict(list)
    for o in seen:
        if o.faults and o.faults[0].startswith("drop:") and settled(o) is Fate.REDUNDANT:
            dropped[o.family].append(o)
    yield ""
    yield f"syncs that nobody misses: {sum(map(len, dropped.values()))}"
    for name, outcomes in dropped.items():
        yield f"  {name}: {len(outcomes)}"
        for o in outcomes:
            yield f"    {o.subject}: {o.faults[0]}"


def _holds(counts: Counter[Fate]) -> bool:
    return counts.total() > 0 and not counts[Fate.OPEN]


def seeds_hold(seen: Sequence[Outcome], names: Sequence[str] = SEEDS) -> bool:
    """Tell whether every kernel has sync mutants, and each is killed by both or redundant."""
    every = {name: Counter[Fate]() for name in names}
    for outcome in seen:
        if outcome.family in every and is_sync_mutant(outcome.family, outcome.faults):
            every[outcome.family][settled(outcome)] += 1
    return all(_holds(counts) for counts in every.values())
