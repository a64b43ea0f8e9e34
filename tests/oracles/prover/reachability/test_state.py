"""A state has owners: no module changes what another one keeps."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fuser.cookbook import recipes
from oracles.prover import reachability
from oracles.prover.reachability import fixpoint
from oracles.prover.reachability.canonical import Abstraction, Form
from oracles.prover.reachability.ctas import readings
from oracles.prover.reachability.fixpoint import Exploration, ForkError
from oracles.prover.reachability.state import (
    EVERY_FACT,
    Agent,
    Generation,
    Phase,
    Product,
    Semaphore,
    State,
    bit,
    copied,
    declared,
    key_of,
    known_by,
    left_out,
    same,
)

ROOT = Path(reachability.__path__[0])
OWNERS = {
    "canonical": {"ranges", "most", "lead"},
    "code": {"counts", "end", "lengths", "moving", "orelse", "to"},
    "fixpoint": {"at", "chosen", "ranges"},
    "rules": {"_value_", "kind"},
    "state": {"all", "first", "gate", "loops", "mine", "unmet", "warp"},
    "statements": {"clean", "cumulative", "ended", "fenced", "told"},
    "step": {"k", "memory", "places", "put", "valid"},
    "sync": {
        "alive", "announced", "arrived", "asking", "barriers", "before", "begun", "end", "far",
        "met", "nbytes", "pending", "phases", "semaphores", "site", "valid", "value", "waiters",
    },
}  # fmt: skip
"""What each module changes of other objects than `self`: code, states and what they hold."""


def _changed(text: str) -> Iterator[str]:
    """Yield the attributes of other objects that a module assigns, or whose items it does."""
    for node in ast.walk(ast.parse(text)):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets) | ast.Delete(targets):
                pass
            case ast.AugAssign(target) | ast.AnnAssign(target):
                targets = [target]
            case _:
                pass
        for one in targets:
            for part in one.elts if isinstance(one, ast.Tuple) else [one]:
                while isinstance(part, ast.Subscript):
                    part = part.value
                match part:
                    case ast.Attribute(ast.Name(name), attribute) if name != "self":
                        yield attribute
                    case ast.Attribute(ast.Attribute(), attribute):
                        yield attribute
                    case _:
                        pass


def test_who_changes_what_is_written_down() -> None:
    """The kernel's facts, numbers of events and findings are changed by their classes alone."""
    found = {path.stem: set(_changed(path.read_text())) for path in ROOT.glob("*.py")}
    assert {name: changed for name, changed in found.items() if changed} == OWNERS


def test_no_function_has_many_parameters() -> None:
    """What belongs together travels together, as an object."""
    many = [
        f"{path.stem}.{node.name}"
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and len(node.args.args) + len(node.args.kwonlyargs) > 6
    ]
    assert not many


# --- a field of a state that says nothing of the key is refused, and each that may matter is in it


PARTS = (Agent, Phase, Generation, Semaphore, Product, State)
KEYED = [(part, one.name) for part in PARTS for one in fields(part) if one.metadata["key"]]
KNOWN = [(part, one.name) for part in PARTS for one in fields(part) if one.metadata["known"]]
LEFT = [
    (part, one.name)
    for part in PARTS
    for one in fields(part)
    if not (one.metadata["key"] or one.metadata["known"])
]


def test_a_field_that_declares_nothing_is_refused() -> None:
    """Whoever adds a field must say what stands for it in a key."""
    with pytest.raises(TypeError, match=r"Turn\.count does not say"):

        @declared
        class Turn:
            last: int = same()
            count: int = 0


def test_a_key_has_what_is_declared() -> None:
    """A field is in the key, or it is left out for a reason."""

    @declared
    class Turn:
        last: int = same()
        count: int = left_out("it is for words only", default=0)

    assert key_of(Turn(1, 2), None) == (1,)
    assert key_of(copied(Turn(1, 2)), None) == (1,)
    with pytest.raises(AssertionError):
        left_out("")


class _Mirror:
    """A canonical form that shows which method is asked, and about what."""

    def __getattr__(self, name: str) -> Any:
        def shown(it: Any) -> object:
            whole = type(it) in PARTS
            return name, [repr(getattr(it, f.name)) for f in fields(it)] if whole else repr(it)

        return shown


@pytest.mark.parametrize(("part", "name"), KEYED, ids=lambda one: getattr(one, "__name__", one))
def test_each_field_reaches_the_key(part: type, name: str) -> None:
    """Another value of a field that may matter is shown to the canonical form."""
    required = [f for f in fields(part) if f.default is f.default_factory]
    one, other = part(*(1 for _ in required)), part(*(1 for _ in required))
    assert key_of(one, _Mirror()) == key_of(other, _Mirror())
    setattr(other, name, "another value")
    assert key_of(one, _Mirror()) != key_of(other, _Mirror())


@pytest.mark.parametrize(("part", "name"), KNOWN, ids=lambda one: getattr(one, "__name__", one))
def test_each_set_of_facts_is_known(part: type, name: str) -> None:
    """Those are compared by what is in them."""
    required = [f for f in fields(part) if f.default is f.default_factory]
    one = part(*(1 for _ in required))
    setattr(one, name, 0b1000)
    assert known_by(one, 0).count(0b1000) == 1


def _compared(one: Exploration, state: State) -> object:
    """Return all that a state is told by: its key, and what is known."""
    form = Form(one.execution(state), Abstraction(one.world))
    return form.key, form.known


def _at_gates(name: str) -> Iterator[tuple[State, Callable[[State], object]]]:
    """Yield the first states of a recipe at a gate, each with a function that gives their key."""
    kernel = recipes.RECIPES[name]()
    one = fixpoint.opened(kernel, next(iter(readings(kernel))), policy="default")
    todo, seen = [one.start()], 0
    while todo and seen < 8:
        execution = one.execution(todo.pop())
        try:
            execution.settle()
        except ForkError as error:
            todo += execution.ways_on(error)
            continue
        if not execution.over():
            seen += 1
            yield execution.state, lambda s: _compared(one, s)
            execution.state.pass_gate()
            todo.append(execution.state)


CHANGES: dict[str, Callable[[Any], object]] = {
    "Agent.at": lambda old: old + 1,
    "Agent.registers": lambda old: old + 8,
    "Agent.arrived": lambda old: not old,
    "Agent.unmet": lambda old: not old,
    "Agent.first": lambda old: not old,
    "Agent.waiting": lambda _: "for something",
    "Agent.clean": lambda old: ~old,
    "Agent.flights": lambda old: {**old, "bulk": ((((0, 1), "", ""),),)},
    "Agent.mine": lambda _: 0,
    "Agent.all": lambda _: 0,
    "Phase.pending": lambda old: old + 1,
    "Phase.nbytes": lambda old: old + 16,
    "Phase.parity": lambda old: 1 - old,
    "Phase.last": lambda _: 0,
    "Phase.end": lambda _: -1,
    "Phase.came": lambda old: (*old, 0),
    "Phase.far": lambda _: EVERY_FACT,
    "Phase.last_far": lambda _: EVERY_FACT,
    "Phase.alive": lambda old: not old,
    "Phase.coming": lambda old: (*old, 0),
    "Phase.announced": lambda old: (*old, 0),
}
"""What makes another state of one, by field."""


@pytest.mark.parametrize("change", CHANGES)
def test_what_may_matter_tells_states_apart(change: str) -> None:
    """States of real kernels, changed in one field, have another key."""
    part, name = change.split(".")
    differs = False
    for found, key in _at_gates("specialized_ring"):
        every = found.agents if part == "Agent" else list(found.phases.values())
        for number in range(len(every)):
            new = found.copy()
            one: Any = (new.agents if part == "Agent" else list(new.phases.values()))[number]
            setattr(one, name, CHANGES[change](getattr(one, name)))
            differs = differs or key(new) != key(found.copy())
    assert differs


@pytest.mark.parametrize("missed", [False, True])
def test_the_end_before_last_matters_where_a_thread_that_waits_has_missed_it(missed: bool) -> None:
    """That of the phase before last is asked about by waits alone, and here each knows it."""
    differs = False
    for found, key in _at_gates("specialized_ring"):
        for where, phase in found.phases.items():
            both = [found.copy(), found.copy()]
            both[1].phases[where].previous = -1
            for a in (a for one in both if missed for a in one.agents):
                a.all &= ~bit(phase.previous) if phase.previous >= 0 else -1
            differs = differs or key(both[0]) != key(both[1])
    assert differs == missed


def test_what_is_left_out_is_little() -> None:
    """What is not compared is named here once more, so that nothing slips out."""
    assert {f"{part.__name__}.{name}" for part, name in LEFT} == {
        "Agent.kind", "Phase.arrivals", "Phase.came", "Phase.count", "Phase.earlier", "Phase.end",
        "Phase.previous", "Phase.site", "Semaphore.at", "Semaphore.site", "State.lacking",
        "State.lead", "State.live", "State.most", "State.origin", "State.path", "State.used",
        "State.when",
    }  # fmt: skip
