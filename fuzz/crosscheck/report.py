"""What a crosscheck says at its end: counts, times, reasons; which mutants were killed, by whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from fuzz.crosscheck.judge import (
    DISAGREE,
    HARD_SCHEDULES,
    OPEN,
    SCHEDULES,
    SEARCHED,
    Bucket,
    Outcome,
    is_sync_mutant,
)
from fuzz.kernels.cookbook import SEEDS
from fuzz.mutation.fate import Fate, fate
from fuzz.mutation.operators import SYNC_OPERATORS

MOST = 40
"""Lines of a list at most; the results have them all."""


def lines(seen: Sequence[Outcome]) -> Iterator[str]:
    """Every line of the summary of a run."""
    yield from _table("per family", seen, lambda o: o.family)
    yield from _table("per number of faults", seen, lambda o: f"{len(o.faults)} faults")
    yield ""
    for name in ("prover", "explorer"):
        ms = sorted(1e3 * getattr(o, name).seconds for o in seen)
        yield f"{name}: median {_at(ms, 0.5):.1f} ms, p95 {_at(ms, 0.95):.1f} ms a kernel"
    states = sorted(float(o.explorer.states) for o in seen)
    yield (
        f"states a kernel: median {_at(states, 0.5):.0f}, p95 {_at(states, 0.95):.0f}, "
        f"max {_at(states, 1.0):.0f}"
    )
    for name in ("prover", "explorer"):
        yield from _reasons(name, seen)
    left = [o for o in seen if o.bucket in OPEN]
    # The explorer withholds an answer for no other reason than the number of states.
    out = sum(o.explorer.status == "unknown" and o.explorer.states > 0 for o in seen)
    for status in ("unknown", "unsupported"):
        many = sum(o.prover.status == status for o in seen)
        yield f"prover {status}: {many} of {len(seen)} ({100 * many / max(len(seen), 1):.1f} %)"
    yield f"without an answer: {len(left)} of {len(seen)}; explorer out of states: {out}"
    for outcome in left[:MOST]:
        silent = outcome.prover if outcome.bucket == Bucket.PROVER_OPEN else outcome.explorer
        yield f"  {outcome.bucket}: {outcome.subject} ({outcome.family}): {silent.reason[:160]}"
    wrong = [o for o in seen if o.bucket in (*DISAGREE, Bucket.BROKEN)]
    yield f"disagreements and broken judges: {len(wrong)} of {len(seen)}"
    for outcome in wrong[:MOST]:
        yield f"  {outcome.bucket}: {outcome.subject} ({outcome.family}) {list(outcome.faults)}"


def _table(title: str, seen: Sequence[Outcome], key: Callable[[Outcome], str]) -> Iterator[str]:
    cells: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in seen:
        cells[key(outcome)][outcome.bucket] += 1
        cells["all"][outcome.bucket] += 1
    heads = ("agree later" if bucket is Bucket.LATER else bucket for bucket in Bucket)
    yield ""
    yield f"{title:24}" + "".join(f"{head:>15}" for head in heads) + f"{'sum':>8}"
    plain = set(Bucket) - {*DISAGREE, *OPEN, Bucket.BROKEN}
    agreed = [row for row in cells if row != "all" and set(cells[row]) <= plain]
    if len(cells) > MOST:
        for row in agreed:
            cells["all that agree"].update(cells.pop(row))
    for row in sorted(cells, key=lambda name: (name.startswith("all"), len(name), name)):
        numbers = "".join(f"{cells[row][bucket]:15}" for bucket in Bucket)
        yield f"{row:24}{numbers}{cells[row].total():8}"


def _reasons(name: str, seen: Sequence[Outcome]) -> Iterator[str]:
    """Count the kernels of each family on which a judge gave no answer, with the first reason."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for outcome in seen:
        answer = getattr(outcome, name)
        if answer.status not in ("pass", "fail"):
            found[answer.status, outcome.family].append(answer.reason)
    for (status, family), said in sorted(found.items(), key=lambda item: -len(item[1]))[:MOST]:
        yield f"  {name} {len(said):5}  {status}, {family}: {said[0][:110]}"


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0


# --- mutants ------------------------------------------------------------------------------------

WITHOUT = {
    "H28": "the IR has no compiler that could move reads; the text of the code is checked",
    "H35": "the row asks for silence: the right litmus kernels are judged for it",
    "H85": "no recipe is a dependent launch; the litmus kernels are judged for it",
    "H86": "concurrent launches are a check of the host",
}
"""Rows of the hazard table that no mutant can show, and why."""
LAST = 86
"""The last row of the table."""
GAPS = frozenset({18, 19, 29, 37, 38, 39, 47, 48, 49, 56, 57, 58, 59, 66, 67, 68, 69, 77, 78, 79})
"""Numbers that the table does not use."""


def fate_of(outcome: Outcome) -> Fate:
    """Return what became of a mutant; explorer and simulator count as one search."""
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


# --- sync mutants of the seed kernels, and of what the compiler makes ---------------------------


def settled(outcome: Outcome) -> Fate:
    """Say what became of a sync mutant: killed by prover and simulator, redundant, or open."""
    if outcome.simulator is None:
        return Fate.OPEN
    if fate(outcome.prover.status, outcome.simulator.status) is Fate.BOTH:
        return Fate.BOTH
    return Fate.REDUNDANT if fate_of(outcome) is Fate.REDUNDANT else Fate.OPEN


def _sync_mutants(
    seen: Sequence[Outcome], names: Sequence[str]
) -> dict[str, list[tuple[Outcome, Fate]]]:
    found: dict[str, list[tuple[Outcome, Fate]]] = {name: [] for name in names}
    for o in seen:
        if o.family in found and is_sync_mutant(o.family, o.faults):
            found[o.family].append((o, settled(o)))
    return found


def seeds_hold(seen: Sequence[Outcome], names: Sequence[str] = SEEDS) -> bool:
    """Tell whether every kernel has sync mutants, and each is killed by both or redundant."""
    every = _sync_mutants(seen, names).values()
    return all(some and all(what is not Fate.OPEN for _, what in some) for some in every)


def seed_lines(seen: Sequence[Outcome], names: Sequence[str] = SEEDS) -> Iterator[str]:
    """Say of each kernel whether its sync mutants are killed by both or redundant."""
    yield ""
    operators = ", ".join(SYNC_OPERATORS)
    kind = "seed kernels" if names is SEEDS else "matmuls of the compiler"
    yield f"sync mutants ({operators}) of the {kind}, by prover and simulator:"
    yield (
        f"  {SCHEDULES} schedules at each of up to {SEARCHED} launches, "
        f"{HARD_SCHEDULES} at the one where the explorer fails"
    )
    for name, mutants in _sync_mutants(seen, names).items():
        counts = Counter(what for _, what in mutants)
        open_ = [o for o, what in mutants if what is Fate.OPEN]
        holds = f"DOES NOT HOLD, {len(open_)} open" if open_ else "holds"
        yield (
            f"  {name}: of {len(mutants)} sync mutants {counts[Fate.BOTH]} killed by both, "
            f"{counts[Fate.REDUNDANT]} proved redundant with no failing interleaving: "
            f"{holds if mutants else 'NOT JUDGED'}"
        )
        for o in open_[:MOST]:
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
