"""What machines read of a campaign: JUnit XML, and a Markdown summary."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from fuzz.campaign.record import ORACLES, STATUSES
from fuzz.exit_code import writing
from reports.correctness import Failure
from reports.page import Headline, save, template
from reports.verdicts import verdicts

_CONTROL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd]")
"""What XML cannot hold."""


def junit(records: pd.DataFrame, failures: list[Failure]) -> str:
    """Return JUnit XML: a suite for each oracle, a case for each family and each kind of failure.

    A family passes if every case of it did; it is skipped, with the numbers, if any has no answer.
    """
    cases = verdicts(records)
    root = ElementTree.Element("testsuites", name="fuser")
    for oracle in (name for name in ORACLES if (cases["oracle"] == name).any()):
        mine = cases[cases["oracle"] == oracle]
        shown = [failure for failure in failures if failure.oracle == oracle]
        suite = ElementTree.SubElement(root, "testsuite", name=oracle)
        skipped = 0
        for family, part in mine.groupby("family"):
            seconds = f"{part['seconds'].sum():.3f}"
            bad = bool(part["status"].isin(["fail", "error"]).any())
            if bad and family in {failure.family for failure in shown}:
                continue  # a case of its own, below
            case = ElementTree.SubElement(
                suite, "testcase", classname=oracle, name=str(family), time=seconds
            )
            left = int(part["status"].isin(["unknown", "unsupported"]).sum())
            if bad or left or not (part["status"] == "pass").any():
                skipped += 1
                why = f"{left} of {len(part)} cases without an answer"
                why = (
                    "a failure of a judge nearer to the cause, or of another family" if bad else why
                )
                ElementTree.SubElement(case, "skipped", message=why)
        for failure in shown:
            case = ElementTree.SubElement(
                suite, "testcase", classname=oracle, name=_plain(failure.signature), time="0"
            )
            said = ElementTree.SubElement(
                case, "failure", message=_plain(failure.reason.split("\n")[0])
            )
            said.text = _plain(failure.reason)
            ElementTree.SubElement(case, "system-out").text = failure.command
        counts = {"tests": len(suite), "failures": len(shown), "skipped": skipped}
        suite.attrib |= {name: str(count) for name, count in counts.items()}
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def summary(title: str, headline: Headline, totals: pd.DataFrame, failures: list[Failure]) -> str:
    """Return a Markdown summary: the result, a table of the oracles, the failures."""
    return template("summary.md.j2", escape=False).render(
        title=title,
        headline=headline,
        totals=totals.to_dict("records"),
        statuses=STATUSES,
        failures=failures,
    )


def write(folder: Path, junit_xml: str, markdown: str) -> None:
    """Write both beside the pages; the summary also to the file that GitHub names."""
    save(folder / "junit.xml", junit_xml)
    save(folder / "summary.md", markdown)
    if place := os.environ.get("GITHUB_STEP_SUMMARY"):
        call = f"GITHUB_STEP_SUMMARY={place}"
        with (
            writing(call, Path(place), "name another file"),
            open(place, "a", encoding="utf-8") as file,
        ):
            file.write(markdown)


def _plain(text: str) -> str:
    return _CONTROL.sub("?", text)
