"""Approximate instructions: the nearest value, and how far from it the ISA lets results be.

Source: PTX ISA, "Floating Point Instructions": the errors under each instruction.  Of the two in
f64 it says no more than that they have the upper 32 bits, of which 20 are of the mantissa.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from oracles.ptx.text.arithmetic import F4, F8, U8, Values

Evaluate = Callable[[str, tuple[Values, ...]], Values]
"""Gives what some hardware has for an instruction, by its name, and its operands, f32 or f64."""

TRUE: dict[str, Callable[..., Values]] = {
    "rcp": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "div": lambda x, y: x / y,
}
"""What each instruction is near to, in f64."""

ULPS = {"rcp": 1, "ex2": 2, "div": 2}
RELATIVE = {"sqrt": 2.0**-23, "rsqrt": 2.0**-22.9, "lg2": 2.0**-22, "tanh": 2.0**-11}
OF_HIGH, OF_F64 = 2.0**-18, 2.0**-51
"""Of the two in f64 that give the upper 32 bits (`.ftz`), and of `rsqrt.approx.f64`, of which the
ISA says that it is emulated: two units of the last place are an estimate."""
NEAR, FAR = (2 * np.pi, 2.0**-20.42), (100 * np.pi, 2.0**-14.7)
"""Of sines and cosines: up to which operand, and the error there.  The ISA says 2^-20.5 up to 2 pi;
measured on an H100, of all operands, sines are off by 2^-20.55 and cosines by 2^-20.43."""
LEAST = {"f32": 2.0**-126, "f64": 2.0**-1022}
"""The least number that is not subnormal."""
LARGE = 2.0**126
"""Of quotients by what is larger the ISA says that they are 0 (div.approx)."""


@dataclass(frozen=True, slots=True)
class Approximate:
    """An approximate instruction, by its name."""

    opcode: str
    name: str = field(init=False)
    kind: str = field(init=False)
    flushes: bool = field(init=False)

    @property
    def high(self) -> bool:
        """Whether it reads and gives the upper 32 bits of an f64, of which 20 are mantissa."""
        return self.kind == "f64" and self.flushes

    def __post_init__(self) -> None:
        """Read the name."""
        name, *mods = self.opcode.split(".")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "kind", mods[-1])
        object.__setattr__(self, "flushes", "ftz" in mods)

    def nearest(self, *given: Values) -> Values:
        """Return the value nearest to the true one, that the type of the instruction has."""
        return self._rounded(self._true(given))

    def allows(self, got: Values, *given: Values) -> Values:
        """Tell which results are near enough."""
        true = np.asarray(self._true(given))
        got = np.asarray(got).astype(F8)
        error = self._error(true, given)
        near = np.abs(got - true) <= error
        near |= (got == self._rounded(true)) | (np.isnan(got) & np.isnan(true))
        if self.kind == "f32":
            most = float(np.finfo(F4).max)
            near |= np.isinf(got) & (np.abs(true) >= most - error) & ((got > 0) == (true > 0))
        if self.flushes:
            near |= (got == 0) & (np.abs(true) <= LEAST[self.kind] + error)
        if self.name == "div":
            near |= (got == 0) & (np.abs(np.asarray(given[1], F8)) > LARGE) & np.isfinite(true)
        return near

    def _true(self, given: tuple[Values, ...]) -> Values:
        operands = [np.asarray(x) for x in given]
        if self.high:
            operands = [(x.view(U8) & ~U8(0xFFFFFFFF)).view(F8) for x in operands]
        if self.flushes:
            operands = [self._flushed(x) for x in operands]
        return TRUE[self.name](*(x.astype(F8) for x in operands))

    def _rounded(self, true: Values) -> Values:
        if self.kind == "f32":
            made = np.asarray(true).astype(F4)
        elif not self.high:
            made = np.asarray(true, F8)
        else:
            bits = np.asarray(true, F8).view(U8)
            up = np.where(np.isfinite(true), U8(1 << 31), U8(0))
            made = ((bits + up) & ~U8(0xFFFFFFFF)).view(F8)
        return self._flushed(made) if self.flushes else made

    def _flushed(self, x: Values) -> Values:
        return np.where(np.abs(x) < LEAST[self.kind], np.copysign(x.dtype.type(0), x), x)

    def _error(self, true: Values, given: tuple[Values, ...]) -> Values:
        """Return how far a result may be from the true value."""
        size = np.where(np.isfinite(true), np.abs(true), 0.0)
        if self.kind == "f64":
            return (OF_HIGH if self.high else OF_F64) * size
        if self.name in ULPS:
            held = np.maximum(size, LEAST["f32"])
            return ULPS[self.name] * 2.0 ** (np.floor(np.log2(held)) - 23)
        if self.name in ("sin", "cos"):
            x = np.abs(np.asarray(given[0], F8))
            return np.where(x <= NEAR[0], NEAR[1], np.where(x <= FAR[0], FAR[1], 2.0))
        error = RELATIVE[self.name] * size
        if self.name == "lg2":
            x = np.asarray(given[0], F8)
            return np.where((x > 0.5) & (x < 2), RELATIVE["lg2"], error)
        return error
