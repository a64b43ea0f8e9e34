"""Every chore of the project, one session each; `nox -l` lists them.

All chores run in one environment, made by the session `setup`: torch alone takes 0.9 GB.
On a machine whose Python already has the packages (a GPU machine without a network), set
`FUSER_PYTHON=python3`, and that interpreter is used instead.
"""

import os
from pathlib import Path

import nox

nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

PROJECT = nox.project.load_toml("pyproject.toml")
GIVEN_PYTHON = os.environ.get("FUSER_PYTHON")
NEEDS = [] if GIVEN_PYTHON else ["setup"]


def _python(session: nox.Session, *args: str) -> None:
    """Run `python -m ...` in the shared environment."""
    python = GIVEN_PYTHON or str(Path(".nox", "setup", "bin", "python").absolute())
    session.run(python, "-m", *args, external=True)


@nox.session(default=False)
def setup(session: nox.Session) -> None:
    """Make the environment that every other session uses (about a minute the first time)."""
    groups = nox.project.dependency_groups(PROJECT, *PROJECT["dependency-groups"])
    session.install("-c", "constraints.txt", "-e", ".", *groups)


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
    """Run the tests that need no GPU (under five minutes on two cores); -- goes to pytest."""
    split = () if GIVEN_PYTHON else ("-n", "auto", "--dist", "worksteal")
    _python(session, "pytest", "-m", "not gpu", *split, *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def fuzz(session: nox.Session) -> None:
    """Run a campaign and write its report: nox -s fuzz -- --seconds 600 --seed 0."""
    _python(session, "fuzz.campaign", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def crosscheck(session: nox.Session) -> None:
    """Compare the judges on small kernels: nox -s crosscheck -- --count 20000 --seed 0."""
    _python(session, "fuzz.crosscheck", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def rules(session: nox.Session) -> None:
    """Leave out each rule of the judges, one at a time: nox -s rules -- --engine explorer."""
    _python(session, "fuzz.rules", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def proofs(session: nox.Session) -> None:
    """Time the proofs of the cookbook's kernels: nox -s proofs -- --only split_k."""
    _python(session, "fuzz.bench", "proofs", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def semaphores(session: nox.Session) -> None:
    """Ask every judge about semaphores passed on too early: nox -s semaphores -- --no-device."""
    # 3: somebody could not be asked, such as a GPU that is not there; the table says who.
    python = GIVEN_PYTHON or str(Path(".nox", "setup", "bin", "python").absolute())
    command = (python, "-m", "fuzz.semaphores", *session.posargs)
    session.run(*command, external=True, success_codes=[0, 3])


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def repro(session: nox.Session) -> None:
    """Replay one failing case: nox -s repro -- reports/out/repros/NAME.py."""
    _python(session, "fuzz.campaign.repro", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def report(session: nox.Session) -> None:
    """Turn a ledger, and the semaphore mutants' results beside it, into reports/out/index.html."""
    _python(session, "reports", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def bench(session: nox.Session) -> None:
    """Time our kernels against torch, torch.compile, Triton and a copy kernel (needs a GPU)."""
    _python(session, "fuzz.bench", "ladder")
    _python(session, "fuzz.bench", "matmul", *session.posargs)
    _python(session, "fuzz.bench", "reductions")


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def gpu(session: nox.Session) -> None:
    """Run the gpu-marked tests, then random cases on the GPU."""
    _python(session, "pytest", "-m", "gpu")
    _python(session, "fuzz.campaign.gpu", *session.posargs)


@nox.session(venv_backend="none", requires=NEEDS, default=False)
def docs(session: nox.Session) -> None:
    """Render the docstrings to reports/out/docs."""
    rooms = ("fuser", "oracles", "fuzz", "reports")
    _python(session, "pdoc", "-d", "numpy", "-o", "reports/out/docs", *rooms)
