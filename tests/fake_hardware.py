"""Hardware in the place of a GPU: the judge of PTX itself, with values that the ISA allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuser.runtime.nvrtc import Cubin, compile_both
from fuzz.campaign.launches import Call
from fuzz.ptx import bits
from fuzz.ptx.hardware import Memory, memory_of
from fuzz.ptx.launches import launch_of
from oracles.ptx.judge import run
from oracles.ptx.launch import Buffer
from oracles.ptx.sums import Sums, once
from oracles.ptx.text.approximate import TRUE, Approximate


class Fake:
    """Executes what was compiled last; `change` does as it likes with what that leaves.

    Approximate f32 instructions give the second nearest value.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        *,
        sums: Sums = once,
        change: Callable[[Memory, bool], None] = lambda *_: None,
    ) -> None:
        self._sums, self._change = sums, change
        self._text, self._fused = "", True
        patch.setattr(bits, "compile_both", self._compiled)

    def _compiled(self, source: str, *, fused: bool = True) -> tuple[Cubin, str]:
        cubin, self._text = compile_both(source)
        self._fused = fused
        return cubin, self._text

    def launched(self, call: Call, cubin: Cubin) -> Memory:
        """Take the place of a launch."""
        del cubin
        counters: dict[str, Buffer] = {}
        launch = launch_of(call, counters)
        run(self._text, launch, seed=1, evaluate=self.evaluate, sums=self._sums)
        left = memory_of(call)
        left |= {n.name: torch.from_numpy(n.data).view(torch.int32) for n in counters.values()}
        self._change(left, self._fused)
        return left

    def evaluate(self, opcode: str, given: tuple[Any, ...]) -> Any:
        """Return the second nearest value."""
        what = Approximate(opcode)
        near = what.nearest(*given)
        if what.kind == "f64":
            return near
        true = TRUE[what.name](*(np.asarray(x, np.float64) for x in given))
        up = np.where(true > near, np.float32(np.inf), np.float32(-np.inf))
        tame = np.isfinite(near) & (np.abs(near) > 2.0**-100) & (true != near)
        return np.where(tame, np.nextafter(near, up), near)
