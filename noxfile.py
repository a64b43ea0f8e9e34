"""Every chore of the project, one session each; `nox -l` lists them.

All chores run in one environment, made by the session `setup`: torch alone takes 0.9 GB.
On a machine whose Python already has the packages (a GPU machine without a network), set
`FUSER_PYTHON=python3`, and that interpreter is used instead.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

PROJECT = nox.project.load_toml("pyproject.toml")
GIVEN_PYTHON = os.environ.get("FUSER_PYTHON")
NEEDS = [] if GIVEN_PYTHON else ["setup"]
PYTHON = GIVEN_PYTHON or str(Path(".nox", "setup", "bin", "python").absolute())
WORKERS = str((os.cpu_count() or 1) + 1)  # of the tests; some only wait for a child


def _python(session: nox.Session, *args: str) -> None:
    """Run `python -m ...` in the shared environment."""
    session.run(PYTHON, "-m", *args, external=True)


def _tests(session: nox.Session, marked: str, *args: str) -> None:
    """Run the tests with this mark, as many at a time as there are cores."""
    session.env["PYTHONDONTWRITEBYTECODE"] = ""  # else each worker rewrites all asserts, each time
    # Fifteen workers with sixteen threads each wait for each other (an H200's host: 26 tests in
    # 190 s; with a thread each, 80 in 52 s).
    session.env["OMP_NUM_THREADS"] = "1"
    split = () if GIVEN_PYTHON else ("-n", WORKERS, "--dist", "worksteal")
    _python(session, "pytest", "-m", marked, *split, *args)


def _judging(session: nox.Session, *args: str) -> None:
    """Run `python -m ...` likewise, and end with its exit code (README.md) if it is not 0.

    `session.run` would make 1 of every code, and on Ctrl-C end a campaign before it reports.
    """
    session.log(" ".join(args))
    with subprocess.Popen([PYTHON, "-m", *args]) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            code = process.wait()
        except KeyboardInterrupt:  # the command has heard it, too
            code = process.wait()
    if code:
        sys.exit(code if code > 0 else 3)


@nox.session(default=False)
def setup(session: nox.Session) -> None:
    """Make the environment that every other session uses (about a minute the first time)."""
    groups = nox.project.dependency_groups(PROJECT, *PROJECT["dependency-groups"])
    try:
        session.install("-c", "constraints.txt", "-e", ".", *groups)
    except nox.command.CommandFailed:
        sys.exit(3)  # nothing was judged; 1 would read as a failure that was found


@nox.session(venv_backend="none", requires=NEEDS)
def lint(session: nox.Session) -> None:
    """Check the form: formatting, names, docstrings, imports."""
    _python(session, "ruff", "format", "--check", ".")
    _python(session, "ruff", "check", ".")


@nox.session(venv_backend="none", requires=NEEDS)
def types(session: nox.Session) -> None:
    """Check types strictly; every `match` must name every node."""
    _python(session, "mypy")


@nox.session(venv_backend="none", requires=NEEDS)
def tests(session: nox.Session) -> None:
    """Run the tests that need no GPU (under four minutes on two cores); -- goes to pytest."""
    _tests(session, "not gpu", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def fuzz(session: nox.Session) -> None:
    """Run a campaign and write its report: nox -s fuzz -- --seconds 600 --seed 0."""
    _judging(session, "fuzz", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def target(session: nox.Session) -> None:
    """Look for failures of torch.compile: nox -s target -- --seconds 600 --seed 0."""
    _judging(session, "fuzz.target", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def nightly(session: nox.Session) -> None:
    """Ask every harness in turn, then report: nox -s nightly -- --seconds 14400."""
    _judging(session, "fuzz.nightly", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def ledger(session: nox.Session) -> None:
    """Look after a ledger: nox -s ledger -- list, show, merge, prune."""
    _judging(session, "fuzz.ledger", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def crosscheck(session: nox.Session) -> None:
    """Compare the judges on small kernels: nox -s crosscheck -- --count 20000 --seed 0."""
    _judging(session, "fuzz.crosscheck", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def rules(session: nox.Session) -> None:
    """Leave out each rule of the judges, one at a time: nox -s rules -- --engine explorer."""
    _judging(session, "fuzz.rules", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def proofs(session: nox.Session) -> None:
    """Time the proofs of the cookbook's kernels: nox -s proofs -- --only split_k."""
    _judging(session, "fuzz.bench.proofs", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def semaphores(session: nox.Session) -> None:
    """Ask every judge about semaphores passed on too early: nox -s semaphores -- --no-device."""
    _judging(session, "fuzz.semaphores", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def repro(session: nox.Session) -> None:
    """Replay one failing case: nox -s repro -- reports/out/repros/NAME.py."""
    _judging(session, "fuzz.campaign.repro", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def faults(session: nox.Session) -> None:
    """Look for every planted fault by a campaign, and print a table (an hour, at most)."""
    _judging(session, "fuzz.failures.planted", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def report(session: nox.Session) -> None:
    """Turn a ledger, and the semaphore mutants' results beside it, into pages in reports/out."""
    _judging(session, "reports", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def bench(session: nox.Session) -> None:
    """Time our kernels against torch, torch.compile, Triton and a copy kernel (needs a GPU)."""
    _judging(session, "fuzz.bench", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def gpu(session: nox.Session) -> None:
    """Run the gpu-marked tests, then random cases on the GPU."""
    _tests(session, "gpu")
    _judging(session, "fuzz.campaign.gpu", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def docs(session: nox.Session) -> None:
    """Render the READMEs and docstrings to reports/out/docs; the first page is the map."""
    out = Path("reports", "out")
    templates = out / "docs-templates"
    shutil.copytree("reports/docs", templates, dirs_exist_ok=True)
    shutil.copy("README.md", templates)
    of_triton = ("!fuzz.bench.matmul.triton", "!fuzz.ptx.triton")  # they need it
    rooms = ("fuser", "oracles", "fuzz", "reports", *of_triton)
    _python(session, "pdoc", "-d", "numpy", "-t", str(templates), "-o", str(out / "docs"), *rooms)
    shutil.copytree("reports", out / "docs" / "reports", ignore=_no_pictures, dirs_exist_ok=True)


def _no_pictures(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith((".png", ".md"))]
