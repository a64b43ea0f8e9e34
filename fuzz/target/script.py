"""A failure as a script that needs only torch: exit code 1 while it is there, 0 when it is gone."""

from __future__ import annotations

import inspect
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fuser.fusion.definition import Fusion, Scalar
from fuzz.cases.case import SPECIALS, Case, Value, shape_of, strides_of
from fuzz.target import words
from fuzz.target.text import to_torch

EAGER = "eager torch"
"""The subject that is torch without a compiler; `eager` is a backend of torch.compile."""
SHOWN = 8
"""Wrong elements that a script looks at, at most: the first ones of the first wrong output."""
LASTS_S = 600
"""Seconds after which a script calls a hang one."""


@dataclass(frozen=True, slots=True)
class Target:
    """Who is under test: the backend of `torch.compile`, by torch's name or ``module:function``.

    `device` is torch's word; `dynamic` leaves the extents open, or torch to find out.
    """

    backend: str = "inductor"
    device: str = "cpu"
    dynamic: bool | None = None

    def call(self) -> str:
        """Write the call that compiles."""
        backend = repr(self.backend).replace("'", '"')
        backend = self.backend.split(":")[1] if ":" in self.backend else backend
        return f"torch.compile(compute, backend={backend}, fullgraph=True, dynamic={self.dynamic})"


@dataclass(frozen=True, slots=True)
class Wrong:
    """An element of an output that is not what it should be."""

    output: int
    index: tuple[int, ...]
    expected: float
    bound: float


def inputs(case: Case) -> list[Value]:
    """Make the inputs of a case as its script makes them."""
    names = {"torch": torch, "drawn": words.drawn}
    made: list[Value] = eval(_inputs(case), names)
    return made


def function(fusion: Fusion) -> str:
    """Return the words that the function of a fusion needs, and the function."""
    text = to_torch(fusion)
    used = [one for one in (words.order, words.philox) if f"{one.__name__}(" in text]
    return "\n\n\n".join([*map(inspect.getsource, used), text])


def script(
    target: Target,
    calls: Sequence[Case],
    subject: str,
    says: str,
    wrong: Sequence[Wrong] = (),
    *,
    ends: bool = False,
) -> str:
    """Write what shows a failure of a subject, the last of some calls of one function.

    Parameters
    ----------
    says : str
        What was seen.
    wrong : sequence of Wrong
        What is looked at; where there is none, the last call raises, or its outputs have a wrong
        form.
    ends : bool
        Whether it ends its process, or never ends: then it runs in a process of its own.
    """
    fusion = calls[-1].fusion
    seen = "\n".join(f"# {line}" for line in says.splitlines()[:6])
    imports = ["import subprocess", "import sys", "", "import torch"] if ends else [
        "import sys", "", "import torch"
    ]  # fmt: skip
    if ":" in target.backend:
        imports += ["", "from {} import {}".format(*target.backend.split(":"))]
    made = target.call() if subject != EAGER else "compute"
    form = [(f"{tv.dtype.torch_name}", shape_of(calls[-1], tv)) for tv in fusion.outputs]
    rows = [f"    ({w.output}, {w.index}, {_number(w.expected)}, {w.bound!r})," for w in wrong]
    parts = [
        f'"""A failure of {"eager torch" if subject == EAGER else "torch.compile"}."""\n\n'
        f"# torch {torch.__version__}, python {platform.python_version()}, "
        f"{platform.machine()}\n{seen}\n\n" + "\n".join(imports),
        f'DEVICE = "{target.device}"\nSPECIALS = {_numbers(SPECIALS)}',
        inspect.getsource(words.drawn),
        inspect.getsource(words.right),
        function(fusion),
        "CALLS = [\n" + "".join(f"    lambda: {_inputs(case)},\n" for case in calls) + "]",
        f"FORM = {form}".replace("'", '"'),
        "WRONG = [  # output, index, expected, and how far off it may be\n"
        + "".join(f"{row}\n" for row in rows)
        + "]",
        _MAIN.format(made=made),
        _ALONE.format(seconds=LASTS_S) if ends else 'if __name__ == "__main__":\n    main()',
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


_MAIN = """
def main() -> None:
    run = {made}
    for made in CALLS:
        args = [a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in made()]
        eager, got = compute(*args), run(*args)
    bad = 0
    for n, (dtype, shape) in enumerate(FORM):
        have = str(got[n].dtype).removeprefix("torch."), tuple(got[n].shape)
        if have != (dtype, shape):
            print(f"output {{n}} is {{have}}, should be {{(dtype, shape)}}")
            bad += 1
    for n, index, expected, bound in WRONG:
        value = got[n][index].item()
        bad += not right(value, expected, bound)
        says = f"{{value!r}} (eager {{eager[n][index].item()!r}})"
        print(f"output {{n}} at {{index}}: {{says}}, should be {{expected!r}} within {{bound:.3g}}")
    print("still fails" if bad else "fixed")
    sys.exit(bad > 0)
"""
_ALONE = """
if __name__ == "__main__":
    if sys.argv[1:] == ["alone"]:
        main()
    try:
        words = [sys.executable, __file__, "alone"]
        code = subprocess.run(words, timeout={seconds}).returncode
    except subprocess.TimeoutExpired:
        code = "none"
    print("fixed" if code == 0 else f"still fails: exit code {{code}}")
    sys.exit(code != 0)
"""


def _inputs(case: Case) -> str:
    """Write the inputs of a case as a list."""
    made = []
    for n, arg in enumerate(case.fusion.inputs):
        seed = case.seed * 1009 + n
        if isinstance(arg, Scalar):
            value = words.drawn(
                seed, getattr(torch, arg.dtype.torch_name), (), (), 0, _whole(case)
            ).item()
            made.append(_number(value))
            continue
        dtype = f"torch.{arg.dtype.torch_name}"
        placed = f"{shape_of(case, arg)}, {strides_of(case, arg)}, {case.offset}"
        made.append(f"drawn({seed}, {dtype}, {placed}, {_whole(case)})")
    return f"[{', '.join(made)}]"


def _whole(case: Case) -> bool:
    return case.kind == "integers"


def _number(value: object) -> str:
    """Write a number so that Python reads it, also where it is none."""
    return re.sub(r"-?\b(nan|inf)\b", lambda found: f'float("{found[0]}")', repr(value))


def _numbers(values: Sequence[float]) -> str:
    return f"({', '.join(map(_number, values))})"
