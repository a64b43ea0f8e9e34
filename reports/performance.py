"""Sections about speed: rows of the benchmark beside their peers and their roof, and over time.

Every function is pure: a table of timings (`reports.read.Book.timings`) in, a Section out.
"""

from __future__ import annotations

import math
from statistics import geometric_mean

import pandas as pd

from fuzz.campaign.record import DEFAULT, ROOF
from reports.figure import embed, ratios, roofline, schedules, trend
from reports.page import Headline, Section, many
from reports.read import Book

OURS = "ours"
"""What the names of our schedules begin with."""
REFERENCE = "torch"
"""The peer by which times of different runs are compared: it ran beside ours in each."""
SLOWER = 0.03
"""Change of a row beyond which it is listed, if the samples of the two runs also lie apart."""


def medians(timings: pd.DataFrame) -> pd.DataFrame:
    """Return timings with ``us``, ``low`` and ``high`` (10 and 90 %) of their samples."""
    points = pd.DataFrame([_points(samples) for samples in timings["samples"]])
    points.columns = pd.Index(["low", "us", "high"])
    out = pd.concat([timings.reset_index(drop=True), points], axis=1)
    return out.assign(ours=out["peer"].str.startswith(OURS), roof=out["peer"].str.startswith(ROOF))


def latest(timings: pd.DataFrame) -> pd.DataFrame:
    """Return each row as it was last measured, on the device of the last run."""
    device = _device(timings)
    same = timings[device == device.iloc[-1]]
    newest = same.groupby("row")["started"].transform("max")
    return medians(same[same["started"] == newest])


def bests(rows: pd.DataFrame) -> pd.DataFrame:
    """Return, for each row, the timing of the default, of the best of ours, and of the best peer.

    ``who`` says which.  A row without a default, which no schedule serves, has none.
    """
    kinds = {
        DEFAULT: rows[rows["peer"] == DEFAULT],
        "ours, best": rows[rows["ours"]],
        "best peer": rows[~rows["ours"] & ~rows["roof"]],
    }
    found = [
        part.loc[part.groupby("row")["us"].idxmin()].assign(who=who)
        for who, part in kinds.items()
        if len(part)
    ]
    return pd.concat(found, ignore_index=True)


def headline(rows: pd.DataFrame, slower: int) -> Headline:
    """Say what a reader must know first: how ours compares with the best peer of each row."""
    wide = bests(rows).pivot(index="row", columns="who", values="us")
    wide = wide.reindex(columns=["best peer", DEFAULT, "ours, best"])
    ratio, tuned = (wide["best peer"] / wide[who] for who in (DEFAULT, "ours, best"))
    behind = int((ratio < 1).sum())
    says = f"{_mean(ratio):.2f} times as fast as the best peer of each row"
    says += f", {many(slower, 'row')} slower than before" if slower else ""
    last = rows.sort_values("started").iloc[-1]
    numbers = [
        ("Rows", f"{len(wide):,}"),
        ("Behind a peer", f"{behind:,}"),
        ("Best schedule", f"{_mean(tuned):.2f}"),
        ("Device", str(last["facts"].get("device", ""))),
        ("Revision", last["revision"]),
        ("Measured", last["started"].replace("T", " ")[:16] + " UTC"),
    ]
    if refused := int(wide[DEFAULT].isna().sum()):
        numbers.insert(2, ("Refused by default", f"{refused:,}"))
    status = "fail" if slower else "unknown" if refused else "pass"
    return Headline(status, says, tuple(numbers))


def roof(rows: pd.DataFrame) -> Section:
    """Set products against the roof of the device: its tensor cores, and its memory."""
    shown = bests(rows)
    shown = shown[shown["flops"] > 0]
    if shown.empty:
        return Section("Roofline", "No row multiplies.", pd.DataFrame())
    facts = shown["facts"].iloc[-1]
    shown = shown.assign(
        tflops=shown["flops"] / shown["us"] / 1e6, intensity=shown["flops"] / shown["nbytes"]
    )
    best = shown.sort_values("tflops").iloc[-1]
    says = (
        f"{many(shown['row'].nunique(), 'row')} of products below "
        f"{facts['flops_per_s'] / 1e12:,.0f} x 10¹² operations and "
        f"{facts['bytes_per_s'] / 1e12:.1f} x 10¹² bytes a second, what the device does on random "
        f"data; {best['row']} reaches {best['tflops']:,.0f} ({best['peer']})."
    )
    keep = ["row", "says", "peer", "who", "us", "tflops", "intensity"]
    chart = roofline(shown[keep], float(facts["flops_per_s"]), float(facts["bytes_per_s"]))
    return Section("Roofline", says, pd.DataFrame(), figure=embed(chart, says))


def peers(rows: pd.DataFrame) -> Section:
    """Compare our default with each peer, by samples that were taken side by side."""
    table = _ratios(rows)
    if table.empty:
        return Section("Ratio to each peer", "No row has a default and a peer.", pd.DataFrame())
    means = table.groupby("peer")["ratio"].agg(_mean).sort_values()
    listed = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    says = f"Geometric means: {listed}. Points are medians, lines 10 to 90 % of "
    says += "the samples; the rows that are furthest behind a peer come first."
    least = table.groupby("row")["ratio"].transform("min")
    figure = embed(ratios(table.assign(least=least).sort_values("least")), says)
    return Section("Ratio to each peer", says, pd.DataFrame(), figure=figure)


def table(rows: pd.DataFrame) -> Section:
    """Give all rows in numbers: roof, best peer, our best, our default."""
    found = bests(rows)
    wide = found.pivot(index="row", columns="who", values=["us", "peer"])
    given = rows.drop_duplicates("row").set_index("row")
    lines = []
    for name in given.index:
        one = wide.loc[name]
        peer, ours, default = (
            float(one.get(("us", who), math.nan)) for who in ("best peer", "ours, best", DEFAULT)
        )
        lines.append(
            {
                "row": name,
                "what": given["says"][name],
                "roof us": float(given["roof_us"][name]),
                "best peer": one.get(("peer", "best peer"), ""),
                "peer us": peer,
                "best of ours": str(one.get(("peer", "ours, best"), "")).removeprefix("ours, "),
                "ours us": ours,
                "default us": default,
                "default ratio": peer / default,
                "of roof": float(given["roof_us"][name]) / default,
            }
        )
    frame = pd.DataFrame(lines)
    behind = int((frame["default ratio"] < 1).sum())
    says = (
        f"{many(behind, 'row')} of {len(frame)} behind the best peer; microseconds, median. Ratio "
        "above 1: ours is faster."
    )
    return Section("Rows", says, frame.sort_values("default ratio"))


def bars(rows: pd.DataFrame) -> Section:
    """Let the reader choose a row, and show all its schedules and peers."""
    whose = rows["ours"].map({True: "ours", False: "peer"}).where(~rows["roof"], "copy kernel")
    shown = rows.assign(whose=whose, roof=rows["roof_us"])
    shown = shown[["row", "peer", "us", "low", "high", "roof", "whose"]].sort_values("us")
    many_ = rows[rows["ours"]].groupby("row").size()
    says = f"{int(many_.sum()):,} schedules of {many(len(many_), 'row')}, beside their peers."
    figure = embed(
        schedules(shown), "Times of the schedules of a row; all are in the ledger", chooses=True
    )
    return Section("Schedules", says, pd.DataFrame(), figure=figure)


def steps(timings: pd.DataFrame) -> pd.DataFrame:
    """Return where a row became slower or faster from one run to the next, the newest first.

    Compared are the defaults, each divided by the `REFERENCE` beside it, so that neither clocks nor
    neighbours count; a step is larger than `SLOWER` and than the spread of both runs.
    """
    device = _device(timings)
    found = []
    same = timings[device == device.iloc[-1]] if len(timings) else timings
    for (run, row), part in same.groupby(["started", "row"]):
        samples = part.set_index("peer")["samples"]
        if DEFAULT in samples and REFERENCE in samples:
            pairs = zip(samples[DEFAULT], samples[REFERENCE], strict=True)
            low, middle, high = _points([ours / other for ours, other in pairs])
            found.append((row, run, part["revision"].iloc[0], low, middle, high))
    names = ["row", "started", "revision", "low", "time", "high"]
    lines = pd.DataFrame(found, columns=pd.Index(names)).sort_values(["row", "started"])
    before = lines.groupby("row")[names[1:]].shift().add_prefix("before_")
    both = lines.join(before).dropna(subset="before_time")
    change = both["time"] / both["before_time"] - 1
    apart = (both["low"] > both["before_high"]) | (both["high"] < both["before_low"])
    both = both.assign(change=100 * change)[apart & (change.abs() > SLOWER)]
    return both.sort_values(["started", "change"], ascending=False)


def slower(timings: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of the last run that are for the worse."""
    made = steps(timings)
    last = timings["started"].max() if len(timings) else ""
    return made[(made["started"] == last) & (made["change"] > 0)]


def regressions(timings: pd.DataFrame) -> Section:
    """List the steps between runs, with the revisions between which each happened."""
    made = steps(timings)
    runs = timings["started"].nunique()
    worse = int((made["change"] > 0).sum())
    says = (
        f"{many(worse, 'change')} for the worse and {len(made) - worse} for the better in "
        f"{many(runs, 'run')}: those of our default beside {REFERENCE} by more than "
        f"{100 * SLOWER:.0f} % and than the spread."
    )
    if runs < 2:
        says = "One run has nothing to be compared with."
    shown = pd.DataFrame(
        {
            "row": made["row"],
            "change %": made["change"],
            "from revision": made["before_revision"],
            "to revision": made["revision"],
            "before": made["before_time"],
            "after": made["time"],
            "measured": made["started"].str.replace("T", " ").str.slice(0, 16),
        }
    )
    return Section("Regressions", says, shown)


def over_time(timings: pd.DataFrame) -> Section:
    """Draw the geometric mean of our speed beside each peer, run by run."""
    found = []
    for started, part in timings.groupby("started"):
        means = _ratios(medians(part))
        if len(means):
            for peer, ratio in means.groupby("peer")["ratio"].agg(_mean).items():
                first = part.iloc[0]
                found.append((started, first["run"], first["revision"], peer, ratio))
    names = ["started", "run", "revision", "peer", "value"]
    lines = pd.DataFrame(found, columns=pd.Index(names))
    if lines["started"].nunique() < 2:
        return Section("Over time", "One run is no trend yet.", pd.DataFrame())
    says = f"Geometric means over the rows of each of {lines['started'].nunique()} runs."
    figure = embed(trend(lines, "time of the peer by ours", "peer"), says)
    return Section("Over time", says, pd.DataFrame(), figure=figure)


def compilation(timings: pd.DataFrame, speed: pd.DataFrame) -> Section:
    """Draw the median times of building, assembling and proving a kernel, run by run."""
    called = timings[timings["first_s"] > 0] if len(timings) else pd.DataFrame()
    parts = [speed.assign(what=speed["oracle"])]
    if len(called):
        parts.append(called.assign(what="first call", seconds=called["first_s"]))
    every = pd.concat(parts, ignore_index=True)
    every["seconds"] = every["seconds"].astype(float)
    if every.empty:
        return Section("Compile and proof times", "Nothing was compiled.", pd.DataFrame())
    groups = every.groupby(["run", "started", "revision", "what"], as_index=False)["seconds"]
    lines = groups.median().assign(value=lambda found: 1e3 * found["seconds"])
    last = every.groupby("what")["seconds"].describe(percentiles=[0.5, 0.95])
    shown = (1e3 * last[["50%", "95%", "max"]]).add_suffix(" ms")
    shown.insert(0, "times", last["count"].astype(int))
    says = (
        "Build is our part, assembler NVRTC and ptxas, prover the proof of a kernel, first call "
        "all that a user waits for; of all runs."
    )
    figure = embed(trend(lines, "median, milliseconds", "what"), says)
    return Section("Compile and proof times", says, shown.reset_index(), figure=figure)


def throughput(history: pd.DataFrame) -> Section:
    """Draw how many cases a second campaigns have drawn and judged."""
    seconds = history["facts"].map(lambda facts: float(facts.get("elapsed_s", 0)))
    runs = history.assign(seconds=seconds.astype(float))
    runs = runs[runs["seconds"] > 0]
    if runs.empty:
        return Section("Fuzz throughput", "No campaign has ended.", pd.DataFrame())
    cores = runs["facts"].map(lambda facts: float(facts.get("workers", 1))).astype(float)
    parts = {
        "cases a second": runs["drawn"].astype(float) / runs["seconds"],
        "answers a second": runs["answers"].astype(float) / runs["seconds"],
    }
    lines = pd.concat([runs.assign(what=what, value=value) for what, value in parts.items()])
    lines = lines.assign(value=lines["value"].fillna(0.0)).drop(columns="facts")
    each = (runs["answers"].astype(float) / runs["seconds"] / cores).fillna(0.0)
    says = (
        f"{many(len(runs), 'campaign')}; the last drew {parts['cases a second'].iloc[-1]:.2f} "
        f"cases a second and got {each.iloc[-1]:.1f} answers a second from each worker."
    )
    figure = embed(trend(lines, "a second", "what"), says)
    return Section("Fuzz throughput", says, pd.DataFrame(), figure=figure)


def sections(book: Book) -> tuple[Headline, list[Section]]:
    """Return the page of a ledger."""
    old = [compilation(book.timings, book.speed), throughput(book.history)]
    if book.timings.empty:
        says = "No benchmark is in this ledger; `nox -s bench` writes one where there is a GPU"
        return Headline("unknown", says, ()), old
    rows = latest(book.timings)
    head = headline(rows, len(slower(book.timings)))
    mine = [regressions(book.timings), peers(rows), roof(rows), bars(rows), table(rows)]
    return head, [*mine, over_time(book.timings), *old]


def _ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the ratios of each peer to our default, of samples taken side by side."""
    found = []
    for row, part in rows.groupby("row", sort=False):
        samples = part.set_index("peer")["samples"]
        if DEFAULT not in samples:
            continue
        others = part[~part["ours"] & ~part["roof"]]
        for peer in others["peer"]:
            pairs = zip(samples[peer], samples[DEFAULT], strict=True)
            low, middle, high = _points([other / ours for other, ours in pairs])
            found.append((row, part["says"].iloc[0], peer, low, middle, high))
    return pd.DataFrame(found, columns=pd.Index(["row", "says", "peer", "low", "ratio", "high"]))


def _device(timings: pd.DataFrame) -> pd.Series[str]:
    return timings["facts"].map(lambda facts: str(facts.get("device", ""))).astype(str)


def _points(samples: list[float]) -> tuple[float, float, float]:
    low, middle, high = pd.Series(samples, dtype=float).quantile([0.1, 0.5, 0.9])
    return float(low), float(middle), float(high)


def _mean(ratios: pd.Series[float]) -> float:
    """Return the geometric mean of those that there are; NaN of none."""
    there = ratios.dropna()
    return geometric_mean(map(float, there)) if len(there) else math.nan
