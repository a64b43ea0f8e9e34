"""Devices that do as they are told, for children that are started often: little to import."""

from __future__ import annotations

import os
import time

from fuzz.semaphores.record import Cell, Tried

FINE = Cell("silent", "", 0, 8)
HANG = Cell("detected", "hang", 1, 2)


def fake(request: str) -> Tried:
    """A device that does as it is told, and tells its process."""
    match request.split():
        case ["hang"]:
            time.sleep(60)
        case ["crash"]:
            os._exit(7)
        case ["stuck"]:
            return Tried(HANG, stuck=True)
        case ["cuda"]:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        case ["mistake"]:
            raise KeyError("of ours")
        case ["who"]:
            return Tried(Cell("silent", "", 0, os.getpid()))
        case _:
            pass
    return Tried(FINE)


def broken(request: str) -> Tried:
    """A device that never comes back right."""
    return Tried(HANG, stuck=True)
