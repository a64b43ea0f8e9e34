"""What a campaign must have judged to be green."""

from __future__ import annotations

from records import record

from fuzz.campaign.record import Record
from fuzz.cases.params import FAMILIES
from fuzz.floor import MET, shortfalls

ORACLES = ("prover", "simulator")


def campaign(drawn: int, *, families: tuple[str, ...] = FAMILIES) -> list[Record]:
    """A base of each family and as many drawn cases of all of them, all good."""
    rows = [record(f"base{name}", family=name, phase="base") for name in families]
    for number in range(drawn):
        family = families[number % len(families)]
        rows.append(record(f"c{number}", family=family, oracle="build"))
        rows.append(record(f"c{number}", family=family))
    return rows + [
        record(row.case, family=row.family, phase=row.phase, oracle="simulator")
        for row in rows
        if row.oracle == "prover"
    ]


def refused(count: int) -> list[Record]:
    """Drawn cases that the compiler does not take."""
    return [record(f"r{n}", oracle="build", status="invalid") for n in range(count)]


def test_a_good_campaign_lacks_nothing() -> None:
    """Also a short one."""
    assert not list(shortfalls(campaign(0), ORACLES))
    assert not list(shortfalls(campaign(MET), ORACLES))


def test_refusals_beyond_a_tenth_are_said_with_numbers() -> None:
    """What is drawn is valid by construction; two of a few may still be unlucky."""
    assert not list(shortfalls([*campaign(1), *refused(2)], ORACLES))
    assert not list(shortfalls([*campaign(90), *refused(10)], ORACLES))
    (said,) = shortfalls([*campaign(80), *refused(20)], ORACLES)
    assert said == "80 of 100 (80.0 %) drawn cases are valid, at least 90 % are to be"


def test_an_answer_is_a_pass_or_a_fail() -> None:
    """A prover that says unknown to a fifth of the cases has not judged them."""
    rows = campaign(80)
    rows += [record(f"u{n}", status=("unknown", "unsupported")[n % 2]) for n in range(25)]
    (said,) = shortfalls(rows, ORACLES)
    good = 80 + len(FAMILIES)
    share = f"{good} of {good + 25} ({100 * good / (good + 25):.1f} %)"
    assert said.startswith(f"{share} answers of prover are a pass or a fail, at least")


def test_every_family_is_judged_by_everybody_who_was_asked() -> None:
    """A shrinking step or a mutant of a family is no case of it."""
    few = campaign(20, families=FAMILIES[1:])
    few += [
        record("s", family=FAMILIES[0], phase="shrink"),
        record("m", family=FAMILIES[0], mutant="drop line 3"),
        record("a", family=FAMILIES[0]),
        record("a", family=FAMILIES[0], oracle="simulator", status="unsupported"),
    ]
    (said,) = shortfalls(few, ORACLES)
    assert said == "direct/direct was never judged by simulator; each family is to be"


def test_every_family_is_drawn_in_a_long_campaign() -> None:
    """A strategy that never draws one is seen, though its representative is judged."""
    bases = campaign(0)
    (said,) = shortfalls([*bases, *campaign(MET, families=FAMILIES[1:])], ORACLES)
    assert said == f"direct/direct is in none of {MET} drawn cases; each family is to be"


def test_every_oracle_is_asked_about_a_fifth_of_the_cases() -> None:
    """What was skipped is no answer; few that are asked have judged little."""
    rows = campaign(80)
    asked = sum(row.oracle == "prover" for row in rows)
    assert not list(shortfalls([*rows, *skipped(4 * asked)], ORACLES))
    (said,) = shortfalls([*rows, *skipped(4 * asked + 10)], ORACLES)
    assert said.startswith(f"prover was asked about {asked} of {5 * asked + 10} (")
    assert said.endswith("cases, at least 20 % are to be")


def skipped(count: int) -> list[Record]:
    """Cases that one oracle was not asked about, and the other was."""
    rows = [record(f"k{n}", status="skipped") for n in range(count)]
    return rows + [record(f"k{n}", oracle="simulator") for n in range(count)]
