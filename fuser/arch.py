"""The limits of one GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arch:
    """What a schedule must fit into: dynamic shared memory per CTA, 32-bit registers per SM."""

    name: str
    smem_bytes: int
    max_threads: int
    registers: int
    sms: int


SM_90A = Arch("sm_90a", smem_bytes=232_448, max_threads=1024, registers=65_536, sms=132)
"""Hopper (H100, H200 SXM).  Source: CUDA C++ Programming Guide, compute capabilities, 9.0."""


def launch_registers(threads: int) -> int:
    """Return how many registers per thread a launch of so many threads may have.

    Source: CUDA programming guide, "compute capabilities" (65536 per SM, in steps of 8).
    """
    return min(SM_90A.registers // threads // 8 * 8, 248)


SPARE_REGISTERS = 32
"""Registers of a thread that its fragments leave for the rest, at least: addresses, predicates, and
what an operation needs within.

Measured (NVRTC 13.0) on 2473 kernels with wgmma, drawn, benchmarked or chosen by default, of which
118 leave fewer.  Products of 82 of these are serialised (C7511, C7512), 29 spill, 7 are clean.  Of
the others no product is serialised; 164 spill, 12 of them 1500 bytes or more.
"""
