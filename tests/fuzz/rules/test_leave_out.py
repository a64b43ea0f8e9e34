"""Each rule of each engine is needed: the case that is on record for it still notices its loss.

`python -m fuzz.rules --record tests/fuzz/rules/noticed.json` writes the record anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from functools import cache
from pathlib import Path

import pytest
from rule_cases import cases

from fuzz.rules.engines import CRASHED, ENGINES, IMPLIED, UNSETTLED, Answer, Asked, Case, Engine
from fuzz.rules.leave_out import (
    Notice,
    Row,
    Search,
    Strength,
    baselines,
    recipe_cases,
    record,
    search,
    strength,
    summary,
)

NOTICED: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("noticed.json").read_text(encoding="utf-8")
)
"""The case that notices the loss of a rule, by engine and rule."""


@cache
def known() -> dict[str, Case]:
    """Return the cases that are no mutants, by name."""
    return {one.name: one for one in cases()}


@cache
def of_cookbook(name: str) -> Case:
    """Return a recipe or a mutant by the name of its case."""
    recipe, colon, _ = name.partition(":")
    return next(one for one in recipe_cases(recipe, mutants=bool(colon)) if one.name == name)


def named(name: str) -> Case:
    """Return a case by the name on record."""
    return known()[name] if name in known() else of_cookbook(name)


def noticed() -> Iterator[tuple[Engine, Enum, str]]:
    """Yield every rule on record with its case."""
    for engine in ENGINES.values():
        for rule in engine.rules:
            if rule.name in NOTICED[engine.name]:
                yield engine, rule, NOTICED[engine.name][rule.name]


def engine_of(rule: Enum) -> Engine:
    """Return the engine whose rule it is."""
    return next(engine for engine in ENGINES.values() if rule in engine.rules)


@pytest.mark.parametrize(
    ("engine", "rule", "name"),
    list(noticed()),
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_loss_of_a_rule_is_noticed(engine: Engine, rule: Enum, name: str) -> None:
    """Without an axiom something right is refused; without an obligation something wrong passes."""
    one = named(name)
    before, after = engine.ask(one), engine.ask(one, {rule})
    if name not in known():
        one = replace(one, safe=before.status == "pass")
    assert strength(engine, rule, one, before, after) >= Strength.WARNING, f"{before} -> {after}"


def test_every_rule_is_noticed_implied_or_known_to_be_open() -> None:
    """A new rule has to show what it is good for; none is counted twice."""
    for engine in ENGINES.values():
        for rule in engine.rules:
            open_too = rule in UNSETTLED
            places = [rule.name in NOTICED[engine.name], rule in IMPLIED, open_too]
            assert sum(places) == 1, f"{engine.name}.{rule.name}"
        assert set(NOTICED[engine.name]) <= {rule.name for rule in engine.rules}


@pytest.mark.parametrize("rule", IMPLIED, ids=lambda rule: rule.name)
def test_an_implied_rule_matters_without_those_that_imply_it(rule: Enum) -> None:
    """Else it would be idle, and the argument would be about nothing."""
    engine, implied = engine_of(rule), IMPLIED[rule]
    one, off = named(implied.case), implied.by | implied.besides
    before, after = engine.ask(one, off), engine.ask(one, off | {rule})
    trusted = replace(one, safe=rule in engine.axioms)
    assert strength(engine, rule, trusted, before, after) is Strength.STATUS
    assert (engine.ask(one, {rule}).status == "pass") is one.safe


# --- the tool ------------------------------------------------------------------------------------


def test_a_rule_that_is_not_looked_up_cannot_change_the_answer() -> None:
    """The search leaves cases out for that reason; here they are asked all the same."""
    for engine in (ENGINES["reachability"], ENGINES["explorer"]):
        for name in ("rule_bytes_come", "rule_store_never_committed"):
            (one,) = baselines(engine, [named(name)])
            for rule in set(engine.rules) - one.consulted:
                assert engine.ask(one.case, {rule}) == one.answer


def test_what_is_looked_up_is_noted_in_joined_sets_too() -> None:
    """An engine may add rules of its own to those left out."""
    engine = ENGINES["explorer"]
    first, second, third = engine.rules[:3]
    asked = Asked({first})
    assert first in asked
    assert second not in asked | {third}
    assert asked.seen == {first, second}


PASS, WARNS = Answer("pass"), Answer("pass", warnings=frozenset({"proxy"}))
FAIL, OTHER = Answer("fail", frozenset({"RAW"})), Answer("fail", frozenset({"WAR"}))


@pytest.mark.parametrize(
    ("axiom", "safe", "before", "after", "expected"),
    [
        (True, True, PASS, FAIL, Strength.STATUS),
        (True, True, PASS, PASS, Strength.NONE),
        (True, False, FAIL, PASS, Strength.NONE),
        (True, False, FAIL, OTHER, Strength.KIND),
        (False, False, FAIL, PASS, Strength.STATUS),
        (False, False, FAIL, OTHER, Strength.KIND),
        (False, True, PASS, FAIL, Strength.NONE),
        (False, True, WARNS, PASS, Strength.WARNING),
        (False, True, FAIL, PASS, Strength.KIND),
        (True, True, PASS, Answer(CRASHED), Strength.CRASH),
    ],
)
def test_a_change_counts_in_its_direction_only(
    axiom: bool, safe: bool, before: Answer, after: Answer, expected: Strength
) -> None:
    """A weaker axiom proves less, a weaker obligation proves more; anything else is a bug."""
    engine = ENGINES["explorer"]
    rule = (engine.axioms if axiom else engine.obligations)[0]
    one = Case("one", named("rule_bytes_come").subject, safe, (1, {}))
    assert strength(engine, rule, one, before, after) is expected


def test_a_rule_that_nobody_misses_is_open() -> None:
    """The summary and the record do not flatter."""
    engine = ENGINES["explorer"]
    rule = engine.obligations[0]
    (one,) = baselines(engine, [named("rule_registers_given")])
    found = search(engine, rule, [one])
    assert found.notice is None
    row = Row(engine.name, rule, found)
    assert row.open
    assert summary([row]) == "0 of 1 noticed, 0 implied, 1 open"


def test_the_record_keeps_what_was_not_looked_at(tmp_path: Path) -> None:
    """One rule can be done again without the others; who is not noticed any more goes."""
    engine = ENGINES["explorer"]
    first, second = engine.rules[:2]
    path = tmp_path / "noticed.json"
    notice = Notice("some case", "pass", "fail RAW", Strength.STATUS)
    rows = [Row(engine.name, rule, Search(notice, 1, ())) for rule in (first, second)]
    record(rows, path)
    record([Row(engine.name, second, Search(None, 1, ()))], path)
    assert json.loads(path.read_text()) == {engine.name: {first.name: "some case"}}


def test_a_broken_engine_does_not_spoil_the_record(tmp_path: Path) -> None:
    """What it notices, or does not, says nothing."""
    engine = ENGINES["explorer"]
    rule = engine.rules[0]
    path = tmp_path / "noticed.json"
    notice = Notice("some case", "pass", "fail RAW", Strength.STATUS)
    record([Row(engine.name, rule, Search(notice, 1, ()))], path)
    record([Row(engine.name, rule, Search(None, 1, ()), broken=("a case: an error",))], path)
    assert json.loads(path.read_text()) == {engine.name: {rule.name: "some case"}}
