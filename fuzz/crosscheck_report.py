"""What a crosscheck says at its end: counts, times, reasons, and how many mutants were killed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from fuzz.crosscheck_judge import DISAGREE, OPEN, Answer, Bucket, Outcome

MOST = 40
"""Lines of a list at most; the results have them all."""


def lines(seen: Sequence[Outcome]) -> Iterator[str]:
    """Every line of the summary of a run."""
    yield from _table("per family", seen, lambda o: o.family)
    yield from _table("per number of faults", seen, lambda o: f"{len(o.faults)} faults")
    yield ""
    for name, answers in (
        ("prover", [o.prover for o in seen]),
        ("explorer", [o.explorer for o in seen]),
    ):
        ms = sorted(1e3 * a.seconds for a in answers)
        yield f"{name}: median {_at(ms, 0.5):.1f} ms, p95 {_at(ms, 0.95):.1f} ms a kernel"
    states = sorted(float(o.explorer.states) for o in seen)
    yield (
        f"states a kernel: median {_at(states, 0.5):.0f}, p95 {_at(states, 0.95):.0f}, "
        f"max {_at(states, 1.0):.0f}"
    )
    yield from _reasons("prover", [o.prover for o in seen])
    yield from _reasons("explorer", [o.explorer for o in seen])
    withheld = sum(Bucket(o.bucket) in OPEN for o in seen)
    out = sum("more than" in o.explorer.reason for o in seen)
    yield f"without an answer: {withheld} of {len(seen)}; explorer out of states: {out}"
    wrong = [o for o in seen if Bucket(o.bucket) in (*DISAGREE, Bucket.BROKEN)]
    yield f"disagreements and broken judges: {len(wrong)} of {len(seen)}"
    for outcome in wrong[:MOST]:
        yield f"  {outcome.bucket}: {outcome.subject} ({outcome.family}) {list(outcome.faults)}"


def _table(title: str, seen: Sequence[Outcome], key: Callable[[Outcome], str]) -> Iterator[str]:
    cells: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in seen:
        cells[key(outcome)][outcome.bucket] += 1
        cells["all"][outcome.bucket] += 1
    buckets = [bucket.value for bucket in Bucket]
    yield ""
    yield f"{title:24}" + "".join(f"{_short(name):>15}" for name in buckets) + f"{'sum':>8}"
    for row in sorted(cells, key=lambda name: (name == "all", name)):
        numbers = "".join(f"{cells[row][name]:15}" for name in buckets)
        yield f"{row:24}{numbers}{cells[row].total():8}"


def _short(bucket: str) -> str:
    return {Bucket.LATER.value: "agree later"}.get(bucket, bucket)


def _reasons(name: str, answers: Sequence[Answer]) -> Iterator[str]:
    """Count why a judge gave no answer; line numbers and names in backquotes do not count."""
    found: Counter[str] = Counter()
    for answer in answers:
        if answer.status not in ("pass", "fail"):
            words = re.sub(r"`[^`]*`", "`...`", answer.reason)
            words = re.sub(r"line \d+: .*: ", "line N: ", words)
            words = re.sub(r"\d+", "N", words)
            found[f"{answer.status}: {words[:110]}"] += 1
    for reason, number in found.most_common(MOST):
        yield f"  {name} {number:5}  {reason}"


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0


# --- mutants ------------------------------------------------------------------------------------


def killers(outcome: Outcome) -> str:
    """Say who killed a mutant: ``both``, ``prover``, ``explorer``; or ``harmless``, ``open``."""
    found = outcome.simulator is not None and outcome.simulator.status == "fail"
    by_prover = outcome.prover.status == "fail"
    by_explorer = found or outcome.explorer.status == "fail"
    match by_prover, by_explorer:
        case True, True:
            return "both"
        case True, False:
            return "prover"
        case False, True:
            return "explorer"
        case _:
            proved = outcome.prover.status == outcome.explorer.status == "pass"
            return "harmless" if proved else "open"


def kill_lines(seen: Sequence[Outcome]) -> Iterator[str]:
    """Every line of the mutation score: operator x kernel, hazard rows, survivors."""
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in seen:
        operator, who = outcome.faults[0].split(":")[0], killers(outcome)
        for key in ((operator, outcome.family), (operator, "all"), ("all", outcome.family)):
            cells[key][who] += 1
        cells["all", "all"][who] += 1
        for row in outcome.hazards:
            rows[row][who] += 1
    names = [*sorted({o.family for o in seen}), "all"]
    yield "killed by both / by one judge / harmless by both / open, of the mutants of an operator"
    yield f"{'':10}" + "".join(f"{name[:16]:>17}" for name in names)
    for operator in [*dict.fromkeys(o.faults[0].split(":")[0] for o in seen), "all"]:
        yield f"{operator:10}" + "".join(f"{_cell(cells[operator, n]):>17}" for n in names)
    yield ""
    yield "score per hazard row: killed by both of those not harmless"
    for row in sorted(rows):
        harmful = rows[row].total() - rows[row]["harmless"]
        share = f"{100 * rows[row]['both'] / harmful:5.1f} %" if harmful else "    - "
        yield f"  {row} {share}  {_cell(rows[row])}"
    yield from _survivors(seen)


def _cell(counts: Counter[str]) -> str:
    if not counts:
        return "-"
    one = counts["prover"] + counts["explorer"]
    return f"{counts['both']}/{one}/{counts['harmless']}/{counts['open']}"


def _survivors(seen: Sequence[Outcome]) -> Iterator[str]:
    """Say of each mutant that nobody killed what the judges did to it."""
    left = [o for o in seen if killers(o) in ("harmless", "open")]
    yield ""
    yield f"survivors: {len(left)} of {len(seen)}"
    for o in left[:MOST]:
        proof = "proved" if o.prover.status == "pass" else f"{o.prover.status}: {o.prover.reason}"
        search = f"explored {o.explorer.reason}, {o.explorer.states} states"
        if o.explorer.status != "pass":
            search = f"explorer {o.explorer.status}: {o.explorer.reason}"
        yield f"  {killers(o)}: {o.subject}: {o.faults[0]}: {proof[:100]}; {search[:100]}"
