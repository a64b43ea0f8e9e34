"""What the explorer demands of tensor maps that a kernel writes."""

from __future__ import annotations

import pytest
from litmus.suite import by_name

from fuser.kernel import ir as kir
from oracles.explorer.explore import Launch, Rule, explore


def kinds(name: str, *without: Rule) -> set[str]:
    """Kinds of errors of the largest launch of a litmus, without some rules."""
    one = by_name(name)
    assert isinstance(one.kernel, kir.Kernel)
    run = one.launches[-1]
    found = explore(one.kernel, Launch(run.grid, dict(run.params)), without=frozenset(without))
    return {finding.kind for finding in found.findings if finding.severity == "error"}


@pytest.mark.parametrize(
    ("name", "kind", "rule"),
    [
        ("a_map_not_released", "proxy", Rule.PROXY_MAP),
        ("a_map_not_acquired", "proxy", Rule.PROXY_MAP),
        ("another_map_acquired", "proxy", Rule.PROXY_MAP),
        ("a_map_of_the_tile_before", "map", Rule.MAP),
        ("one_map_for_a_ring_of_two", "WAR", Rule.WAR),
        ("a_map_written_by_two_warps", "WAW", Rule.WAW),
    ],
)
def test_each_rule_of_maps_is_what_refuses(name: str, kind: str, rule: Rule) -> None:
    """With the rule the kernel is refused, and without it nothing else says so."""
    assert kinds(name) == {kind}
    assert kinds(name, rule) == set()
