"""Backends of torch.compile for tests: a right one, and planted faults; none compiles anything."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

Compiled = Callable[..., Any]


def plain(graph: GraphModule, _: list[Any]) -> Compiled:
    """Run a graph as eager torch does."""
    return graph.forward


def tanh_is_sin(graph: GraphModule, _: list[Any]) -> Compiled:
    """Take one operation for another."""
    for node in graph.graph.nodes:
        if node.target is torch.tanh:
            node.target = torch.sin
    graph.recompile()
    return graph.forward


def lone_tanh_is_sin(graph: GraphModule, some: list[Any]) -> Compiled:
    """Take one operation for another where the graph has one output."""
    (output,) = graph.graph.find_nodes(op="output")
    return (plain if len(output.args[0]) > 1 else tanh_is_sin)(graph, some)


def raises(_: GraphModule, __: list[Any]) -> Compiled:
    """Raise in the middle of compiling."""
    raise KeyError("buf12 is True")


def crashes(graph: GraphModule, _: list[Any]) -> Compiled:
    """End the process where there is a tanh."""
    if any(node.target is torch.tanh for node in graph.graph.nodes):
        os.kill(os.getpid(), signal.SIGSEGV)
    return graph.forward


def hangs(graph: GraphModule, _: list[Any]) -> Compiled:
    """Compute forever where there is a tanh."""
    while any(node.target is torch.tanh for node in graph.graph.nodes):
        pass
    return graph.forward
