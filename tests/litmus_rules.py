"""Litmus kernels for rules of single engines that nothing in the suite depends on."""

from __future__ import annotations

from litmus.parts import Litmus

LITMUS: tuple[Litmus, ...] = ()
"""Every litmus of this file."""
