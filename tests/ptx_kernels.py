"""Small kernels in PTX, and their launches, for the tests of its judge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oracles.ptx.judge import run
from oracles.ptx.launch import Buffer, Launch, Pointer, Scalar, TensorMap
from oracles.ptx.machine import WORK
from oracles.verdict import Verdict

OUT, IN = 1 << 14, 1 << 14
"""Bytes of the two buffers."""

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""


def kernel(body: str, *, params: str = "", tuning: str = "") -> str:
    """Return a kernel that has addresses of its buffers in %rd1 and %rd2, its thread in %r1.

    %rd3 is the thread's own word of the output, by grid position; %r2 the CTA; `smem` begins at
    1024 bytes.
    """
    return f"""{HEAD}
.visible .entry k(.param .u64 out, .param .u64 inp{params}) {tuning}
{{
  .reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %rd<64>;
  .reg .f32 %f<64>; .reg .f64 %d<16>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [inp];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.s32 %r4, %r2, %r3, %r1;
  mul.wide.u32 %rd4, %r4, 4;
  add.s64 %rd3, %rd1, %rd4;
  mul.wide.u32 %rd5, %r1, 4;
  mov.u64 %rd6, smem;
  add.s64 %rd7, %rd6, %rd5;
  cvt.u32.u64 %r5, %rd6;
  cvt.u32.u64 %r6, %rd7;
{body}
  ret;
}}
"""


@dataclass(frozen=True, slots=True)
class Done:
    """A verdict, and what the launch left in its output."""

    verdict: Verdict
    out: npt.NDArray[np.uint8]

    @property
    def words(self) -> npt.NDArray[np.uint32]:
        """The output as words."""
        return self.out.view(np.uint32)

    @property
    def kinds(self) -> set[str]:
        """The kinds of what was found."""
        return {finding.kind for finding in self.verdict.findings}


def done(
    body: str,
    *,
    threads: int = 32,
    grid: int = 1,
    cluster: int = 1,
    shared: int = 4096,
    inputs: npt.NDArray[np.generic] | None = None,
    maps: tuple[TensorMap, ...] = (),
    scalars: tuple[Scalar, ...] = (),
    tuning: str = "",
    seed: int = 0,
    resident: int = 0,
    dependent: bool = False,
    work: int = WORK,
) -> Done:
    """Run the body of a kernel; more arguments are parameters `m0`, ... and `s0`, ...."""
    params = "".join(f", .param .align 64 .b8 m{i}[128]" for i in range(len(maps)))
    params += "".join(f", .param .b{8 * len(s.content())} s{i}" for i, s in enumerate(scalars))
    out = Buffer("out", np.zeros(OUT, np.uint8))
    given = np.zeros(IN, np.uint8)
    if inputs is not None:
        raw = np.ascontiguousarray(inputs).view(np.uint8).reshape(-1)
        given[: len(raw)] = raw
    launch = Launch(
        (grid, 1, 1),
        (threads, 1, 1),
        (Pointer("out"), Pointer("inp"), *maps, *scalars),
        {"out": out, "inp": Buffer("inp", given)},
        shared,
        cluster,
        resident=resident,
        dependent=dependent,
    )
    text = kernel(body, params=params, tuning=tuning)
    return Done(run(text, launch, seed=seed, work=work).verdict, out.data)


def named(value: object) -> str:
    """Return the name of a test's parameter: what is changed, or the kinds that are found, sorted.

    Workers that collect tests apart must give them the same names.
    """
    if isinstance(value, set):
        return "+".join(sorted(value)) or "right"
    return str(value)
