"""What tests ask of a child process; imports little, so that a child starts quickly."""

import os
import signal
import time

from fuzz.campaign.child import at_work
from fuzz.campaign.record import Record

KEPT: list[bytes] = []
"""What a process has kept of calls before."""


def behave(word: str) -> str:
    """Crash, hang, compute, keep 160 MiB, raise, count threads, or answer with its process."""
    match word:
        case "crash":
            os._exit(9)
        case "segfault":
            at_work("simulator", "k trips=3")
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            time.sleep(60)
        case "compute":
            at_work("prover", "k")
            while True:
                pass
        case "swell":
            at_work("prover", "k")
            kept = [bytearray(b"x" * (1 << 20))]
            while True:
                kept.append(kept[0][:])
        case "keep":
            KEPT.append(b"x" * (160 << 20))
        case "nap":
            time.sleep(1.5)
        case "threads":
            import torch  # noqa: PLC0415  # all other words start a child quickly

            return str(torch.get_num_threads())
        case "raise":
            raise ValueError(word)
        case _:
            pass
    return f"{word} in {os.getpid()}"


def hang(_: str) -> list[Record]:
    """Answer never."""
    time.sleep(60)
    return []


def compute(_: str) -> list[Record]:
    """Compute forever."""
    behave("compute")
    return []


def segfault(_: str) -> list[Record]:
    """Die."""
    behave("segfault")
    return []
