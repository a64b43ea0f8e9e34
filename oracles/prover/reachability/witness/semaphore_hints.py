"""Hints about turns on a semaphore: the release that is too weak, too early, or leaves it dirty."""

from __future__ import annotations

from fuser.kernel import ir as kir
from fuser.kernel.text import line
from oracles.prover.reachability.witness.story import Story
from oracles.prover.reachability.witness.trail import Step
from oracles.prover.reachability.witness.words import concrete, group


def named(step: Step) -> str:
    """Name a step by its line, with numbers in place of expressions."""
    return f"line {step.site.line}: {concrete(step.stmt, step.values)}"


def narrow(story: Story) -> str:
    """Say which side of a handshake on a semaphore does not reach the other CTA, and why."""
    reach = {kir.Scope.CTA: "its own CTA", kir.Scope.CLUSTER: "its own cluster"}
    for step in reversed(story.steps[: story.second]):
        match step.stmt:
            case kir.BlockSerializeWait(scope=scope) if scope in reach:
                return f"{named(step)} looks no further than {reach[scope]}"
            case kir.BlockSerializeRelease(scope=scope) if scope in reach:
                return f"{named(step)} reaches only threads of {reach[scope]}"
            case kir.BlockSerializeRelease(relaxed=True):
                return f"{named(step)}, relaxed, and no thread_fence(gpu) stands before it"
            case _:
                pass
    return f"{named(story.steps[story.second])} does not reach the other CTA"


def given(story: Story) -> str:
    """Name the release that the semaphore has its last value from."""
    for step in reversed(story.steps):
        if isinstance(step.stmt, kir.BlockSerializeRelease):
            return named(step)
    return ""


def released(story: Story, one: Step) -> str:
    """Say which release gives a turn away before its thread knows the end of an operation."""
    kind = group(one.stmt)
    awaits = [
        s.site
        for s in story.program(one.agent)
        if isinstance(s.site.stmt, kir.AsyncAwait) and s.site.stmt.kind is kind
    ]
    if not awaits:
        return ""
    late, kinds = awaits[-1], story.world.kinds
    for step in story.steps[: story.second]:
        mates = story.team(step.agent)[0] == story.team(one.agent)[0]
        if not mates or not isinstance(step.stmt, kir.BlockSerializeRelease):
            continue
        if step.agent != one.agent and late.line < step.site.line:
            return (
                f"{named(step)} is by {kinds[step.agent]}, and nothing joins {kinds[one.agent]} "
                f"with it after line {late.line}"
            )
        if step.agent == one.agent and late.line > step.site.line > one.site.line:
            at = step.site.line
            return f"line {late.line}: {line(late.stmt)} comes after the release of line {at}"
    return ""
