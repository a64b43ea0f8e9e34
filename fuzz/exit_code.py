"""How commands end: one table of exit codes, and the commands that keep to it.

It imports nothing of ours, so that the report can use it without the compiler.  The judges' own
command line (`oracles.cli.command`) has the same table; a test compares the two.
"""

from __future__ import annotations

import errno
import shutil
import signal
import sqlite3
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

CLEAN = 0
"""All that was asked was judged, and nothing is wrong."""
FAILED = 1
"""A failure was found, or is still there."""
USAGE = 2
"""The request is wrong, and nothing was done; click's own."""
HARNESS = 3
"""The harness broke, or what was asked was not judged (no device, no case, no answer)."""
INTERRUPTED = 130
"""Ctrl-C: 128 and the number of the signal, as a shell has it."""

WORST_FIRST = (INTERRUPTED, USAGE, FAILED, HARNESS, CLEAN)
"""Which of several counts: a failure that was found is not hidden by what was not judged."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def worst(codes: Iterable[int]) -> int:
    """Return the one code of several; of none, nothing was judged."""
    return min(codes, key=WORST_FIRST.index, default=HARNESS)


class CannotWrite(click.ClickException):
    """A place for results cannot be written; who catches it has nothing more to keep."""

    exit_code = HARNESS


@contextmanager
def writing(call: str, path: Path, way_out: str) -> Iterator[None]:
    """Turn a failure to write, an `OSError` or one of SQLite, into one sentence: `CannotWrite`.

    `call` is what was asked, as the user or the caller wrote it; `path` need not exist; `way_out`
    is what to do, besides making room on a full disk.
    """
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.strerror:
            reason = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        full = getattr(error, "errno", 0) in _FULL or "full" in reason
        way_out = f"make room, or {way_out}" if full else way_out
        raise CannotWrite(
            f"{call}: cannot be written: {reason} ({_room(path)}); {way_out}"
        ) from error


def _room(path: Path) -> str:
    """Say how many bytes are free where a path is, or would be."""
    place = next(there for there in (path, *path.absolute().parents) if there.exists())
    usage = shutil.disk_usage(place)
    return f"{usage.free:,} of {usage.total:,} bytes are free there"


class Command(click.Command):
    """A command that ends by the table, and not with 1 as in Python, where something raises.

    SIGTERM ends it as Ctrl-C does, and ``-h`` asks for help as ``--help`` does.
    """

    def make_context(self, *words: Any, **settings: Any) -> click.Context:
        """Read the words of a call."""
        return super().make_context(*words, help_option_names=["-h", "--help"], **settings)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.default_int_handler)
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            return ctx.exit(INTERRUPTED)
        except Exception:
            click.echo(
                f"{ctx.command_path}: the harness broke:\n{traceback.format_exc()}", err=True
            )
            return ctx.exit(HARNESS)


class Group(Command, click.Group):
    """Commands of one name that end by the table."""

    command_class = Command
