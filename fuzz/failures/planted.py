"""Planted faults: mistakes of one line in the compiler, each of which a campaign has to find.

A fault is a patch of `fuser/`.  It is applied to a copy, from which a campaign takes its compiler,
until there is a repro; that has to fail with the copy, and to pass without it.  Faults in device
functions and in what is printed are behind the Kernel IR: the oracle `ptx` has to find them.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table

import fuser
from fuzz.campaign.ledger import Ledger
from fuzz.campaign.record import signature
from fuzz.campaign.summary import failures_of_cases
from fuzz.exit_code import CLEAN, FAILED, Command
from fuzz.failures import script

FOLDER = Path("tests", "fuzz", "faults")
SECONDS, MOST_OPERATORS = 300.0, 3
"""In which a fault is to be found, and what its least case may have."""
TICK_S = 0.5
"""Wall seconds between two looks at what a campaign has found."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Found:
    """What a campaign made of a fault; seconds by the clock, None for what did not happen.

    `names` are the signatures that the campaign ended with, `fails` and `fixed` what the script
    does with the fault and without.
    """

    fault: str
    detected_s: float | None = None
    repro_s: float | None = None
    operators: int | None = None
    names: tuple[str, ...] = ()
    fails: bool = False
    fixed: bool = False

    @property
    def good(self) -> bool:
        """Whether it was found, made small, and shown by a script."""
        small = self.operators is not None and self.operators <= MOST_OPERATORS
        return small and self.fails and self.fixed


@contextmanager
def planted(patch: Path) -> Iterator[Path]:
    """Yield a folder with a copy of the compiler that has a fault; ValueError if it does not apply.

    A process whose working directory it is imports that compiler.
    """
    with tempfile.TemporaryDirectory(prefix="fault-") as name:
        folder = Path(name)
        shutil.copytree(Path(fuser.__file__).parent, folder / "fuser")
        done = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", str(patch.resolve())],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ
            | {"GIT_CEILING_DIRECTORIES": str(folder.parent)},  # it is in no work tree
        )
        if done.returncode:
            raise ValueError(f"{patch}: does not apply any more: {done.stderr.strip()}")
        yield folder


def hunt(
    patch: Path, *, seconds: float, workers: int, seed: int, whole: bool, keep: Path | None
) -> Found:
    """Let a campaign look for a fault until it has a repro, or to its end if `whole`.

    `keep` is a folder for the first script, which has the name of the fault there.
    """
    with planted(patch) as folder:
        book = folder / "ledger.sqlite"
        words = f"--seconds {seconds:g} --workers {workers} --seed {seed} --no-mutants --ledger"
        detected = shown = None
        start = time.monotonic()
        with _started(folder, "fuzz.campaign", *words.split(), str(book)) as campaign:
            while campaign.poll() is None:
                time.sleep(TICK_S)
                bad, repros = _so_far(book)
                now = time.monotonic() - start
                detected = detected or (now if bad else None)
                shown = shown or (now if repros else None)
                if shown and not whole:
                    campaign.terminate()  # jobs of a shell that run behind it ignore SIGINT
                    campaign.wait()
        _, repros = _so_far(book)
        with Ledger(book) as ledger:
            names = tuple(map(signature, failures_of_cases(ledger.records())))
        found = Found(patch.stem, detected, shown, names=tuple(dict.fromkeys(names)))
        if not repros:
            return found
        script_ = Path(repros[0])
        if keep is not None:
            shutil.copy(script_, keep / f"{patch.stem}.py")
        made = script.read(script_).cases[0].fusion.tensors
        return replace(
            found,
            operators=sum(tv.op != "input" for tv in made),
            fails=_replayed(script_, folder) == FAILED,
            fixed=_replayed(script_, ROOT) == CLEAN,
        )


def _started(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a module of ours with the compiler of a folder."""
    paths = (str(folder), str(ROOT), os.environ.get("PYTHONPATH", ""))
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.DEVNULL,
    )


def _replayed(path: Path, folder: Path) -> int:
    """Return the exit code of a script with the compiler of a folder."""
    with _started(folder, "fuzz.campaign.repro", str(path)) as process:
        return process.wait()


def _so_far(book: Path) -> tuple[bool, list[str]]:
    """Tell whether a ledger has a failure, and return its scripts, the first one first."""
    bad = "SELECT count(*) FROM records WHERE status IN ('fail', 'error') AND mutant = ''"
    with suppress(sqlite3.OperationalError), closing(_opened(book)) as found:
        ((many,),) = found.execute(bad).fetchall()
        scripts = found.execute("SELECT path FROM repros ORDER BY rowid").fetchall()
        return many > 0, [path for (path,) in scripts]
    return False, []  # it is not made yet


def _opened(book: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{book}?mode=ro", uri=True)


@click.command(cls=Command)
@click.argument("patches", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--seconds",
    default=SECONDS,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Of each campaign, at most.",
)
@click.option(
    "--workers",
    default=len(os.sched_getaffinity(0)),
    show_default="cores",
    type=click.IntRange(min=1),
    help="Drivers of each campaign.",
)
@click.option("--seed", default=0, show_default=True, help="Of each campaign.")
@click.option("--whole", is_flag=True, help="Go on behind the first repro, to count failures.")
@click.option(
    "--keep",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for the first script of each.",
)
def main(
    patches: tuple[Path, ...],
    seconds: float,
    workers: int,
    seed: int,
    *,
    whole: bool,
    keep: Path | None,
) -> None:
    """Look for the planted faults PATCHES, or all of them, one after the other; print a table."""
    console = Console()
    table = Table(Column("fault", no_wrap=True), "detected", "repro", "operators", "failures")
    good = []
    for patch in patches or sorted(FOLDER.glob("*.patch")):
        try:
            found = hunt(patch, seconds=seconds, workers=workers, seed=seed, whole=whole, keep=keep)
        except ValueError as error:
            raise click.UsageError(f"{error}; make the patch anew") from error
        good.append(found.good)
        times = (f"{s:.0f} s" if s is not None else "-" for s in (found.detected_s, found.repro_s))
        fails = "fails" if found.fails else "does not fail"
        fixed = "passes without" if found.fixed else "does not pass without"
        says = "-" if found.operators is None else f"{fails}, {fixed}"
        row = (*times, str(found.operators), str(len(found.names)))
        table.add_row(found.fault, *row)
        line = ", ".join((*row, says, *found.names))
        console.print(f"{found.fault}: {line}", soft_wrap=True, highlight=False)
    if not good:
        raise click.UsageError(f"no patches in {FOLDER}; name some, or run it where that folder is")
    console.print(table)
    console.print(f"{sum(good)} of {len(good)} found, of at most {MOST_OPERATORS} operators")
    sys.exit(CLEAN if all(good) else FAILED)


if __name__ == "__main__":
    main()
