"""Sections about verdicts: totals, failures, disagreements, the GPU, what has no answer.

Every function is pure: a table of records in, a Section out.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from fuzz.campaign.record import ORACLES, SHORT, SKIPPED, STATUSES, TITLES, gist
from oracles.witness import loads
from reports.lanes import svg
from reports.page import Headline, Section, many, template
from reports.read import Book, signatures
from reports.verdicts import ordinary, verdicts

ABOUT = {
    "build": "Lowering, passes and CUDA text",
    "prover": "Races and deadlocks, for every trip count",
    "simulator": "Adversarial clocks, trip counts 0 to 2S + 1",
    "differential": "Simulated values against torch",
    "schedules": "Simulated values under other schedules, bit by bit",
    "assembler": "The compile log as a witness",
    "agreement": "Prover against simulator on one trip count",
    "ptx": "The PTX executed with asynchronous engines: order, and values against torch",
    "gpu": "Values on the device, poisoned and guarded",
    "mutant": "Kernels with one sync broken, which both judges must kill",
}
"""What an oracle does, in a few words."""

COMPARABLE = ("prover", "simulator", "agreement", "differential", "ptx", "gpu")
"""Oracles of which two can contradict each other: the first pair on syncs, the last on values."""

SHOWN = 30
"""Kinds of failure that are shown in full, at most."""
LAST = 8
"""Runs whose environment is shown, the newest first."""
DETAIL = 4000
"""Characters of what a judge says that are shown."""


def headline(records: pd.DataFrame, runs: pd.DataFrame, fresh: int = 0) -> Headline:
    """Say what a reader must know first; `fresh` kinds of failure are new."""
    cases = verdicts(records)
    bad = cases[cases["status"].isin(["fail", "error"])]
    blind = records[(records["oracle"] == "mutant") & (records["status"] == "fail")]
    judged = cases["case"].nunique()
    short = [text for facts in runs["facts"] if (text := str(facts.get(SHORT, "")))]
    if bad.empty and blind.empty and judged:
        status, says = "pass", f"{many(judged, 'case')}, no failure"
        if short:
            status, says = "unknown", f"{says}, but {SHORT}: {'; '.join(short)}"
    elif not judged and blind.empty:
        status, says = "unknown", "No case was judged"
    else:
        status = "fail"
        says = f"{bad['case'].nunique():,} of {judged:,} cases failed"
        says += f", {many(fresh, 'new kind')} of failure" if fresh else ""
        says += f", {many(len(blind), 'mutant')} survived a blind judge" if len(blind) else ""
    chosen = cases[cases["phase"] == "generate"]
    drawn = chosen["case"].nunique()
    valid = chosen[chosen["oracle"] == "build"]["status"].ne("invalid")
    seconds = sum(float(facts.get("elapsed_s", 0)) for facts in runs["facts"])
    numbers = [("Claims and elements checked", f"{int(cases['checked'].sum()):,}")]
    if len(valid):
        numbers.append(("Valid cases", f"{100 * valid.mean():.1f} %"))
    if seconds:
        speed = f"{drawn / seconds:,.1f}"
        numbers += [("Time", f"{seconds:,.0f} s"), ("Cases per second", speed)]
    if len(runs):
        seeds = sorted({str(facts.get("seed", "")) for facts in runs["facts"]} - {""})
        began = str(runs["started"].iloc[-1]).replace("T", " ")[:16] + " UTC"
        numbers.append(("Seed" if len(seeds) == 1 else "Seeds", ", ".join(seeds)))
        numbers.append(("Started", began))
    return Headline(status, says, tuple(numbers))


def totals(records: pd.DataFrame, runs: pd.DataFrame) -> Section:
    """Count, per oracle, in which bucket every case ended."""
    cases = verdicts(records)
    mutants = records[records["oracle"] == "mutant"]
    unit = dict.fromkeys(ORACLES, "cases") | {"mutant": "mutants"}
    counts = (
        pd.concat([cases[["oracle", "status"]], mutants[["oracle", "status"]]])
        .value_counts()
        .unstack(fill_value=0)
        .reindex(index=list(ORACLES), columns=list(STATUSES), fill_value=0)
    )
    gpu = ", ".join(sorted({str(facts["gpu"]) for facts in runs["facts"] if "gpu" in facts}))
    table = counts.reset_index().assign(
        cases=counts.sum(axis=1).to_numpy(),
        unit=lambda rows: rows["oracle"].map(unit),
        about=lambda rows: rows["oracle"].map(ABOUT),
        note=lambda rows: rows["oracle"].map({"gpu": gpu}).fillna(""),
    )
    origin = cases.drop_duplicates("case")["phase"]
    drawn, bases, again = (int((origin == name).sum()) for name in ("generate", "base", "corpus"))
    says = (
        f"{drawn:,} cases were drawn, {bases} stand for a schedule family each, {again} have "
        "failed before; in each oracle every case ends in exactly one bucket, the worst of its "
        "kernels and trip counts."
    )
    return Section("Oracles", says, table, look="tiles")


@dataclass(frozen=True, slots=True)
class Failure:
    """All that a reader needs of one kind of failure.

    Parameters
    ----------
    signature : str
        What it is, alike for all cases of one cause.
    status, oracle, family, subject, reason : str
        Of the record that stands for it: that of the smallest case, if it was shrunk.
    cases : int
        That show it, without those of shrinking.
    follows : tuple of str
        What judges further from the cause say of the same cases, and of no others.
    case, fusion, id : str
        Id and text of that case, and the id of the failure where the ledger has one.
    kernel, drawing : str
        Text of the kernel and the execution that refutes it, where there are such.
    lines : frozenset of int
        Of the kernel's text that the execution passes through.
    script : str
        Path of the script that replays it; empty where there is none.
    new : bool
        Whether no older run of the ledger has met it.
    """

    signature: str
    status: str
    oracle: str
    family: str
    subject: str
    reason: str
    cases: int
    follows: tuple[str, ...]
    case: str
    fusion: str
    id: str
    kernel: str
    drawing: Markup
    lines: frozenset[int]
    script: str
    new: bool

    @property
    def command(self) -> str:
        """What replays it."""
        return f"nox -s repro -- {self.script}" if self.script else ""


def found(book: Book) -> list[Failure]:
    """Return the failures of a book: new ones first, then those nearest to their causes.

    Of a case the judge nearest to the cause counts: what the others say may follow from it.
    """
    records = book.records
    rows = records[(records["mutant"] == "") & records["status"].isin(["fail", "error"])]
    far = rows["oracle"].map(TITLES.index)
    rows = rows.assign(
        signature=signatures(rows),
        follows=far > far.groupby(rows["case"]).transform("min"),
    )
    scripts = book.repros.drop_duplicates("signature", keep="last").set_index("signature")
    causes = rows[~rows["follows"]]
    others = rows[rows["follows"] & ~rows["signature"].isin(causes["signature"])]
    shown = []
    for name, part in causes.groupby("signature"):
        behind = others[others["case"].isin(part["case"])]["signature"]
        shown.append(_failure(str(name), part, tuple(sorted(set(behind))), scripts, book))
    return sorted(shown, key=lambda f: (not f.new, TITLES.index(f.oracle), f.signature))


def _failure(
    name: str, rows: pd.DataFrame, follows: tuple[str, ...], scripts: pd.DataFrame, book: Book
) -> Failure:
    script = scripts.loc[name] if name in scripts.index else None
    kernels = rows["kernel"] if "kernel" in rows else pd.Series("", index=rows.index)
    least = "" if script is None else script["case"]
    best = rows.assign(
        kernel=kernels.fillna(""),
        least=rows["case"] == least,
        told=kernels.fillna("").ne(""),
        drawn=rows["witness"].ne(""),
    )
    best = best.sort_values(["told", "least", "drawn"], ascending=False, kind="stable")
    row = best.iloc[0]
    witness = loads(row["witness"]) if row["witness"] else None
    return Failure(
        signature=name,
        status=row["status"],
        oracle=row["oracle"],
        family=row["family"],
        subject=row["subject"],
        reason=row["reason"][:DETAIL],
        cases=max(rows[rows["phase"] != "shrink"]["case"].nunique(), 1),
        follows=follows,
        case=row["case"],
        fusion=book.texts.get(row["case"], ""),
        id=str(row.get("failure", "")),
        kernel=row["kernel"],
        drawing=svg(witness) if witness else Markup(),
        lines=frozenset(event.line for event in witness.rows) if witness else frozenset(),
        script="" if script is None else str(script["path"]),
        new=name not in book.before,
    )


def failures(shown: list[Failure], older: int) -> Section:
    """Show each kind of failure: the fusion, the kernel, an execution, and how to replay it.

    `older` counts the runs that could have met it before.
    """
    fresh = sum(failure.new for failure in shown)
    says = f"{many(len(shown), 'kind')} of failure"
    if shown:
        says += f", {fresh} new: "
        says += f"{many(older, 'older run')} met the others" if older else "there is no older run"
    body = template("failures.html.j2").render(failures=shown[:SHOWN], more=len(shown) - SHOWN)
    return Section("Failures", f"{says}.", pd.DataFrame(), body=Markup(body) if shown else None)


def gone(book: Book, shown: list[Failure]) -> Section:
    """List what older runs met and these did not; not drawn again, or mended."""
    met = {name for failure in shown for name in (failure.signature, *failure.follows)}
    left = sorted(book.before - met)
    says = f"{many(len(left), 'kind')} of failure in older runs, not met by these."
    return Section("Not met again", says, pd.DataFrame({"failure": left}))


def device(records: pd.DataFrame) -> Section:
    """Set the answers of the GPU against those of the judges, case by case."""
    cases = verdicts(records)
    wide = cases.pivot(index="case", columns="oracle", values="status")
    wide = wide.reindex(columns=list(COMPARABLE)).dropna(subset="gpu")
    if wide.empty:
        return Section("GPU and judges", "No case ran on a GPU.", pd.DataFrame())
    judges = [name for name in COMPARABLE if name not in ("gpu", "agreement")]
    rows = [
        {"gpu": status, "judge": judge} | {s: int((part[judge] == s).sum()) for s in STATUSES}
        for status, part in wide.groupby("gpu")
        for judge in judges
    ]
    table = pd.DataFrame(rows)
    table = table.loc[:, [n for n in table if n not in STATUSES or table[n].any()]]
    alone = int(((wide["gpu"] == "fail") & ~(wide[judges] == "fail").any(axis=1)).sum())
    silent = int(((wide["gpu"] == "pass") & (wide[judges] == "fail").any(axis=1)).sum())
    says = (
        f"{many(len(wide), 'case')} ran on a GPU; {alone} failed there alone, {silent} only before "
        "the judges, who see what a run may hide."
    )
    return Section("GPU and judges", says, table)


def disagreements(records: pd.DataFrame) -> Section:
    """List the cases on which two oracles gave opposite answers."""
    cases = verdicts(records)
    wide = cases.pivot(index="case", columns="oracle", values="status")
    wide = wide.reindex(columns=list(COMPARABLE))
    opposite = wide["agreement"].eq("fail")
    for one, other in (("prover", "simulator"), ("differential", "gpu"), ("ptx", "gpu")):
        opposite |= wide[one].eq("pass") & wide[other].eq("fail")
        opposite |= wide[one].eq("fail") & wide[other].eq("pass")
    split = wide[opposite].astype(object).fillna("").rename_axis(columns=None).reset_index()
    says = f"{len(split)} of {len(wide):,} cases split the oracles; each is a bug in one of them."
    return Section("Disagreements", says, split)


def unanswered(records: pd.DataFrame) -> Section:
    """List why oracles gave no answer, or refused a case."""
    cases = verdicts(records)
    rows = cases[cases["status"].isin(["unknown", "unsupported", "invalid", SKIPPED])]
    skipped = int((rows["status"] == SKIPPED).sum())
    judged = len(cases[cases["oracle"] != "build"]) - skipped
    open_ = int(rows["status"].isin(["unknown", "unsupported"]).sum())
    share = 100 * open_ / judged if judged else 0.0
    rows = rows.assign(reason=rows["reason"].map(gist))
    by_reason = rows.groupby(["status", "oracle", "reason"])
    table = by_reason.agg(cases=("case", "nunique"), case=("case", "first")).reset_index()
    table = table.sort_values("cases", ascending=False)
    table = table[["status", "oracle", "cases", "reason", "case"]]
    says = f"{open_} of {judged:,} answers ({share:.2f} %) are unknown or unsupported."
    if skipped:
        says += f" {skipped:,} more were not asked for: their judges had had their time."
    return Section("Unanswered", says, table)


def warnings(records: pd.DataFrame) -> Section:
    """List what oracles remarked on cases that they pass: spills, fences at the weaker place."""
    rows = ordinary(records)
    lines = rows.assign(warning=rows["reason"].str.split("\n")).explode("warning")
    lines = lines[lines["warning"].str.startswith("warning: ", na=False)]
    kind = lines["warning"].str.extract(r"^warning: (\S+)", expand=False)
    by_kind = lines.assign(kind=kind).groupby(["oracle", "kind"])
    table = by_kind.agg(
        cases=("case", "nunique"), example=("warning", "first"), case=("case", "first")
    )
    table = table.reset_index().sort_values("cases", ascending=False)
    times = table["cases"].sum()
    says = f"{times:,} times an oracle passed a case with a remark; none is a failure."
    return Section("Warnings", says, table)


def environment(runs: pd.DataFrame) -> Section:
    """Show what each run was made with."""
    last = runs.iloc[: -1 - LAST : -1]
    facts = pd.DataFrame(list(last["facts"]), index=last["run"]).T if len(runs) else pd.DataFrame()
    table = facts.rename_axis(index="fact", columns=None).reset_index()
    table = table.astype(object).fillna("").astype(str)
    return Section("Environment", f"{many(len(runs), 'run')} in this report.", table)
