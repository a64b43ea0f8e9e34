"""What a person names on the command line: `FILE.py`, or `FILE.py:name`, and the kernels in it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from fuser.errors import CompileError, FusionError, ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.ir import LaunchSequence
from fuser.kernel.validate.legal import validate
from oracles.expect import Expectation

Subject = kir.Kernel | LaunchSequence
"""What can be judged."""
RECIPES = "RECIPES"
"""Name of the dict in which a file may list its kernels, or functions that return them."""
EXPECT = "EXPECT"
"""Name of the dict in which a file may say what its kernels compute, by their names."""


class TargetError(Exception):
    """What was named cannot be judged; the message says why, and the way out."""


@dataclass(frozen=True, slots=True)
class Target:
    """A kernel or program with the name under which its file offers it, and what it computes."""

    name: str
    subject: Subject
    expect: Expectation | None = None

    @property
    def kernels(self) -> tuple[kir.Kernel, ...]:
        """The kernels, in the order of their launches."""
        return (
            self.subject.launches if isinstance(self.subject, LaunchSequence) else (self.subject,)
        )


def load(spec: str) -> list[Target]:
    """Return the kernels that `FILE.py` offers, or the one of `FILE.py:name`.

    A file offers what its dict `RECIPES` lists; without that, every `Kernel` and `LaunchSequence`
    at its top level, and what those of its functions return that need no argument and say
    `-> Kernel` or `-> LaunchSequence`.  The name of any other function may be given, too.  What a
    kernel computes says `@expect(...)` above its function, or the file's dict `EXPECT`.
    TargetError if there is no such file or name, the file raises, or a kernel is not well formed.
    """
    file, name = _split(spec)
    path = Path(file)
    if not path.is_file():
        near = get_close_matches(path.name, [p.name for p in path.parent.glob("*.py")], 1)
        hint = f"did you mean {path.parent / near[0]}?" if near else "give the path of a file"
        raise TargetError(f"{spec}: there is no file {file}; {hint}")
    if path.suffix != ".py":
        raise TargetError(f"{spec}: {file} is no Python file; give one that builds a Kernel")
    module = _module(spec, path)
    offers = _offers(module)
    if name is not None:
        found = offers.get(name, getattr(module, name, None))
        if found is None:
            raise TargetError(f"{spec}: {_no_name(file, name, offers)}")
        return [_target(spec, name, found, _said(spec, module, name, found))]
    if not offers:
        raise TargetError(
            f"{spec}: the file offers no kernel; put a Kernel at its top level, write a function "
            "without arguments that says `-> Kernel`, or list them in a dict RECIPES"
        )
    for key in getattr(module, EXPECT, {}):
        if key not in offers and not hasattr(module, key):
            raise TargetError(f"{spec}: EXPECT: {_no_name(file, key, offers)}")
    return [
        _target(f"{spec}:{key}", key, value, _said(spec, module, key, value))
        for key, value in offers.items()
    ]


def _split(spec: str) -> tuple[str, str | None]:
    file, colon, name = spec.rpartition(":")
    if not colon or not file.endswith(".py"):
        return spec, None
    if not name.isidentifier():
        raise TargetError(f"{spec}: {name!r} is no name; write {file}:NAME, or {file} for all")
    return file, name


def _no_name(file: str, name: str, offers: dict[str, object]) -> str:
    near = get_close_matches(name, offers, 1)
    if near:
        return f"there is no {name} in {file}; did you mean {near[0]}?"
    listed = ", ".join(sorted(offers)[:12])
    return f"there is no {name} in {file}; it has {listed or 'no kernels at all'}"


def _module(spec: str, path: Path) -> ModuleType:
    root = path.resolve().parent
    parts = [path.stem]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    # At the end: a file that bears the name of a library must not stand in for it.
    if str(root) not in sys.path:
        sys.path.append(str(root))
    name = ".".join(parts)
    try:
        if len(parts) > 1:
            module = importlib.import_module(name)
            if module.__file__ is None or not path.samefile(module.__file__):
                raise ImportError(f"another package is imported as {parts[0]}")
            return module
        made = importlib.util.spec_from_file_location(f"judged file {name}", path)
        assert made is not None, "a .py file has a loader"
        assert made.loader is not None, "a .py file has a loader"
        module = importlib.util.module_from_spec(made)
        sys.modules[made.name] = module
        made.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise TargetError(f"{spec}: {_raised(path, error)}; make `python {path}` run first") from (
            error
        )
    return module


def _raised(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f"line {error.lineno} is no Python ({error.msg})"
    here = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == path.resolve()
    ]
    where = f"line {here[-1]} raises" if here else "the file raises"
    return f"{where} {type(error).__name__}: {error}"


def _offers(module: ModuleType) -> dict[str, object]:
    recipes = getattr(module, RECIPES, None)
    if isinstance(recipes, dict):
        return {str(name): value for name, value in recipes.items()}
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (isinstance(value, Subject) or _builds(module, value) is not None)
    }


def _builds(module: ModuleType, value: object) -> Callable[[], object] | None:
    """Return `value` if it is a function of the file that promises a kernel and needs nothing."""
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return None
    promised = str(inspect.signature(value).return_annotation).rpartition(".")[2].rstrip("'>")
    return value if promised in ("Kernel", "LaunchSequence") and not _needs(value) else None


def _needs(function: Callable[..., object]) -> list[str]:
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is inspect.Parameter.empty and p.kind not in free
    ]


def _said(spec: str, module: ModuleType, name: str, value: object) -> Expectation | None:
    """Return what a kernel computes, where its function or its file says so."""
    said = getattr(value, "expect", None) or getattr(module, EXPECT, {}).get(name)
    if said is None or isinstance(said, Expectation):
        return said
    if not callable(said):
        raise TargetError(f"{spec}: expect of {name} is a {type(said).__name__}; give a function")
    return Expectation(said)


def _target(spec: str, name: str, value: object, said: Expectation | None) -> Target:
    if callable(value) and not isinstance(value, type):
        needs = _needs(value)
        if needs:
            raise TargetError(
                f"{spec}: {name} needs a value for {', '.join(needs)}; write a function without "
                "arguments that calls it, or give defaults"
            )
        try:
            value = value()
        except (FusionError, ScheduleError, CompileError) as error:
            raise TargetError(f"{spec}: {error}") from error
        except Exception as error:
            says = f"{name}() raises {type(error).__name__}: {error}"
            raise TargetError(f"{spec}: {says}; make it return a Kernel") from error
    if not isinstance(value, Subject):
        raise TargetError(
            f"{spec}: {name} is a {type(value).__name__}, no Kernel; name a Kernel, a "
            "LaunchSequence, or a function that returns one"
        )
    target = Target(name, value, said)
    for kernel in target.kernels:
        try:
            validate(kernel, final=True)
        except ScheduleError as error:
            says = str(error).removeprefix("after kernel: ")
            raise TargetError(f"{spec}: the kernel is not well formed: {says}") from error
    return target
