"""What a crosscheck says at its end: counts, times, reasons, and how many mutants were killed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from fuzz.crosscheck.judge import DISAGREE, OPEN, Answer, Bucket, Outcome

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
    for outcome in [o for o in seen if Bucket(o.bucket) in OPEN][:MOST]:
        silent = outcome.prover if outcome.bucket == Bucket.PROVER_OPEN.value else outcome.explorer
        yield f"  {outcome.bucket}: {outcome.subject} ({outcome.family}): {silent.reason[:160]}"
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
    plain = {b.value for b in Bucket} - {b.value for b in (*DISAGREE, *OPEN, Bucket.BROKEN)}
    agreed = [row for row in cells if row != "all" and set(cells[row]) <= plain]
    if len(cells) > MOST:
        for row in agreed:
            cells["all that agree"].update(cells.pop(row))
    for row in sorted(cells, key=lambda name: (name.startswith("all"), len(name), name)):
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
