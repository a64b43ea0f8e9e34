"""`python -m fuser show FILE.py[:NAME]`: what the compiler makes of a fusion; needs no GPU.

Exit codes: 0 shown, 2 the request, the definition or the params are wrong, 3 the compiler failed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

import click
from rich.console import Console
from rich.syntax import Syntax

from fuser.codegen import cuda
from fuser.errors import CompileError, FusionError, ScheduleError, meant
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, Symbol, TensorView
from fuser.kernel import ir as kir
from fuser.kernel.text import text
from fuser.pipeline import PASSES, STAGES, Made, build, shown
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.runtime.explain import dense, explain
from fuser.runtime.fallback import fitted
from fuser.runtime.nvrtc import compile_ptx
from fuser.schedule.shape_class import Params

FINAL = PASSES[-1].__name__
"""The stage after which a kernel is finished."""
ASKED = ("explain", *STAGES, "kernel", "ptx")
"""What `--stage` takes: `kernel` is the finished one, `explain` says why there are so many."""
EXTENT = 4096
"""Of axes whose length nobody says."""


class Show(click.ClickException):
    """Nothing can be shown; the message says why, and the way out."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Subject:
    """A fusion with what a file says of its schedule and its extents, or a kernel by hand."""

    what: Fusion | kir.Kernel
    params: Params | None = None
    extents: Mapping[str, int] | None = None


def subject(found: object) -> Subject | None:
    """Return what a value of a file stands for; None where it is nothing to show."""
    match found:
        case FusionDefinition():
            return Subject(found.fusion())
        case Fusion() | kir.Kernel():
            return Subject(found)
        case Executable():
            return Subject(found.fusion, found.params)
        case _:
            pass
    fusion = getattr(found, "fusion", None)  # a case of the fuzzer, or anything like it
    if isinstance(fusion, Fusion):
        return Subject(fusion, getattr(found, "params", None), getattr(found, "extents", None))
    return None


def load(spec: str) -> Subject:
    """Run `FILE.py` and return what it names `NAME`, or the last that can be shown.

    A file that fails half-way, as one that wants a GPU does, is shown as far as it got.
    """
    file, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    path = Path(file)
    if not path.is_file():
        near = meant(path.name, [other.name for other in path.absolute().parent.glob("*.py")])
        raise Show(f"show {spec}: there is no file {file}; {near}")
    names: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    root = path.absolute().parent
    while (root / "__init__.py").exists():
        root = root.parent
    sys.path.insert(0, str(root))
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    except (FusionError, ScheduleError):
        raise
    except Exception as error:
        steps = [s for s in traceback.extract_tb(error.__traceback__) if s.filename == str(path)]
        where = f"line {steps[-1].lineno}: " if steps else ""
        why = f"{path}: {where}{type(error).__name__}: {error}"
        click.echo(f"{why}\nwhat follows is what was defined before", err=True)
    finally:
        sys.path.pop(0)
    recipes = names.get("RECIPES")  # as the judges' command line has it
    own = {**recipes} if isinstance(recipes, dict) else {}
    own |= {k: v for k, v in names.items() if k[0] != "_" and not isinstance(v, ModuleType)}
    if name and name not in own:
        raise Show(f"show {spec}: {file} defines no {name}; {meant(name, own)}")
    chosen = [own[name]] if name else list(own.values())[::-1]
    for found in chosen:
        if name and callable(found) and not isinstance(found, Executable):
            found = found()
        if (what := subject(found)) is not None:
            return what
    raise Show(
        f"show {spec}: there is no fusion; define a FusionDefinition, Fusion, Executable or Kernel "
        "at the top level, or name a function without arguments that returns one"
    )


def stages(given: Subject, extents: Mapping[str, int]) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield all stages of a subject by name, with what writes each; `extents` are by symbol."""
    if isinstance(given.what, kir.Kernel):
        yield "kernel", partial(text, given.what)
        source = cuda.source(given.what)
        yield "cuda", partial(str, source)
        yield "ptx", partial(compile_ptx, source)
        return
    fusion = given.what
    tensors = {arg: n for n, arg in enumerate(fusion.inputs, 1) if isinstance(arg, TensorView)}
    shapes = {tv.name: tuple(_number(e, extents) for e in tv.shape) for tv in tensors}
    specs = {tv.name: dense(tv, shapes[tv.name], n << 32) for tv, n in tensors.items()}
    known = {e.name for tv in tensors for e in tv.shape if isinstance(e, Symbol)}
    free = {name: n for name, n in extents.items() if name not in known}
    said = [specs[arg.name] if arg in tensors else None for arg in fusion.inputs]
    yield "explain", lambda: str(explain(fusion, *said, params=given.params, extents=free))
    found: list[tuple[str, Callable[[], str]]] = []
    kind = classify(fusion, given.params, specs, free)
    if given.params is None:
        kind = fitted(fusion, kind, specs, free).shapes

    def watch(name: str, made: Made) -> None:
        found.append((name, partial(shown, made)))

    build(fusion, given.params, kind, watch=watch)
    for name, write in found:
        yield name, write
        if name == FINAL:
            yield "kernel", write
        if name == "cuda":
            yield "ptx", partial(compile_ptx, write())


def _number(extent: int | Symbol, extents: Mapping[str, int]) -> int:
    return extents.get(extent.name, EXTENT) if isinstance(extent, Symbol) else extent


def lengths(given: Subject, said: tuple[str, ...]) -> dict[str, int]:
    """Return the extents of a fusion's symbols: as said, else as its file has them, else 4096."""
    if isinstance(given.what, kir.Kernel):
        return {}
    axes = (axis.extent for tv in given.what.tensors for axis in tv.logical)
    names = dict.fromkeys(e.name for e in axes if isinstance(e, Symbol))
    out = {name: (given.extents or {}).get(name, EXTENT) for name in names}
    for word in said:
        name, _, number = word.partition("=")
        if name not in names or not number.isdecimal():
            why = meant(name, names) if name not in names else f"write --extent {name}=8192"
            raise click.BadParameter(f"{word!r}: {why}", param_hint="--extent")
        out[name] = int(number)
    return out


def chosen(asked: tuple[str, ...]) -> set[str]:
    """Return the stages that are asked for."""
    for stage in asked:
        if stage not in (*ASKED, "all"):
            raise click.BadParameter(
                f"{stage!r} is no stage; {meant(stage, (*ASKED, 'all'))}", param_hint="--stage"
            )
    return set(ASKED) - {"kernel"} if "all" in asked else set(asked)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Show what the compiler makes of a fusion, without a GPU."""


@main.command()
@click.argument("spec", metavar="FILE.py[:NAME]")
@click.option(
    "--stage",
    "asked",
    multiple=True,
    default=("fusion", "explain", "kernel", "cuda"),
    help=f"What to show; may be repeated. One of {', '.join(ASKED)}, or all.",
)
@click.option(
    "--extent",
    "said",
    multiple=True,
    metavar="NAME=N",
    help=f"Length of an axis of a name or of i0, i1, ...; {EXTENT} where nobody says.",
)
def show(spec: str, asked: tuple[str, ...], said: tuple[str, ...]) -> None:
    """Print a fusion of FILE.py, why it is cut so, its kernels after any pass, CUDA and PTX.

    FILE.py is run. A case that the fuzzer has written is shown with its own params and extents.
    """
    wanted = chosen(asked)
    console = Console(soft_wrap=True, highlight=False)
    before = ""
    try:
        given = load(spec)
        extents = lengths(given, said)
        if extents:
            head = ", ".join(f"{name}={n}" for name, n in extents.items())
            console.print(f"for {head}; others with --extent NAME=N", markup=False)
        for name, write in stages(given, extents):
            if name in wanted:
                written = write()
                same = written == before and name != FINAL
                _print(console, name, "as before" if same else written)
                before = written
    except (FusionError, ScheduleError) as error:
        raise Show(f"show {spec}: {error}") from error
    except CompileError as error:
        click.echo(f"Error: show {spec}: {error}", err=True)
        sys.exit(3)


def _print(console: Console, name: str, written: str) -> None:
    """Print a stage below its name, in colours on a terminal only."""
    console.print(f"=== {name} ===", style="bold", markup=False)
    language = {"cuda": "cuda", "ptx": "ptx"}.get(name)
    if console.is_terminal and language == "cuda":
        console.print(Syntax(written, language, background_color="default", word_wrap=True))
    else:
        console.print(written, markup=False)


if __name__ == "__main__":
    main(prog_name="python -m fuser")
