"""What tests ask of a child process; imports little, so that a child starts quickly."""

import os
import time

from fuzz.campaign.record import Record


def behave(word: str) -> str:
    """Crash, hang, raise, or answer with the word and the number of the process."""
    if word == "crash":
        os._exit(9)
    if word == "hang":
        time.sleep(60)
    if word == "raise":
        raise ValueError(word)
    return f"{word} in {os.getpid()}"


def hang(_: str) -> list[Record]:
    """Answer never."""
    time.sleep(60)
    return []
