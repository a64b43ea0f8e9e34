"""What is remembered: found again for the same question only, and never by half."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion, Symbol
from fuser.runtime import disk
from fuser.runtime.classify import Alternatives
from fuser.runtime.explain import dense
from fuser.runtime.tuning import memory
from fuser.runtime.tuning.memory import Device, Entry, about, near, recall, remember
from fuser.schedule import candidates
from fuser.schedule.ampere_params import AmpereParams
from fuser.schedule.matmul_params import MatmulParams
from fuser.schedule.params import NormParams, PointwiseParams, ReductionParams, ScanParams
from fuser.schedule.shape_class import Params

H200 = Device("NVIDIA H200", 132)
MATMUL = MatmulParams((128, 128, 64), 2, "cooperative", 4, 2, persistent=True, registers=(40, 232))
EVERY: tuple[Params, ...] = (
    MATMUL,
    AmpereParams((64, 64, 32), 4, "groups", 3, 2, persistent=False),
    PointwiseParams((1, 1024), 8, 4, None, "direct", "direct"),
    ReductionParams((32, 64), 2, 1, None, "direct", "direct", splits=8, meet="last"),
    NormParams((1, 1024), 8, 4, None, "direct", "direct", lanes=128),
    ScanParams((4, 256), 8, 4, None, "direct", "direct", lanes=32),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of each test's own."""
    monkeypatch.setenv("FUSER_CACHE", str(tmp_path))
    return tmp_path


def softmax_of_product() -> Fusion:
    """Two kernels; the cut has sets of names."""
    fd = FusionDefinition()
    x, w = (fd.define_tensor(shape=[-1, -1], dtype="bf16") for _ in range(2))
    fd.add_output(fd.ops.softmax(fd.ops.linear(x, w), [1]))
    return fd.fusion()


def key(m: int = 1024, n: int = 4096, k: int = 512, device: Device = H200) -> str:
    """The question of a call."""
    fusion = softmax_of_product()
    shapes = ((m, k), (n, k))
    specs = {
        tv.name: dense(tv, shape, 256)  # type: ignore[arg-type]
        for tv, shape in zip(fusion.inputs, shapes, strict=True)
    }
    found = Alternatives(fusion, specs, sms=device.sms)
    return about(fusion, found.default, found.extents, device)


def path() -> Path:
    """The one file there is."""
    (only,) = disk.cache_dir().glob(f"*{memory.SUFFIX}")
    return only


def test_an_answer_is_found_as_it_was() -> None:
    """All kinds of params, with what is None, a tuple or a truth."""
    entry = Entry(EVERY, 8, "")
    remember(key(), entry)
    assert recall(key(), 8, "") == entry


def test_a_question_is_the_same_in_every_process() -> None:
    """Sets of strings have another order in each; the text has not."""
    code = "import test_memory; print(test_memory.key(), end='')"
    paths = [str(Path(__file__).parent), *sys.path]
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert said == {key()}


def test_other_devices_shapes_and_compilers_are_other_questions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A version is the digest of all sources, and the number of the candidates."""
    remember(key(), Entry(EVERY, 8, ""))
    assert recall(key(device=Device("NVIDIA H100", 132)), 8, "") is None
    assert recall(key(device=Device("NVIDIA H200", 114)), 8, "") is None
    assert recall(key(n=2048), 8, "") is None
    remember(key(k=8192), Entry(EVERY, 8, ""))
    assert recall(key(k=8256), 8, "") is not None, "an eighth of 8192 is 1024"
    with monkeypatch.context() as other:
        other.setattr(candidates, "VERSION", candidates.VERSION + 1)
        assert recall(key(), 8, "") is None
    (tmp_path / "fuser").mkdir()
    (tmp_path / "fuser" / "one.py").write_text("changed")
    monkeypatch.setattr(memory, "SOURCES", tmp_path / "fuser")
    assert recall(key(), 8, "") is None


def test_sources_are_all_that_is_compiled_from(tmp_path: Path) -> None:
    """Python and CUDA, names and texts."""
    seen = set()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.cuh", "2"), ("c.txt", "3")):
        (tmp_path / name).write_text(text)
        memory.sources.cache_clear()
        seen.add(memory.sources(tmp_path))
    memory.sources.cache_clear()
    assert len(seen) == 3


def test_less_than_is_asked_for_is_no_answer() -> None:
    """Fewer candidates, or another judge; who asks for none takes any."""
    remember(key(), Entry(EVERY, 8, "a.judge"))
    assert recall(key(), 9, "") is None
    assert recall(key(), 8, "another.judge") is None
    assert recall(key(), 4, "") is not None
    assert recall(key(), 8, "a.judge") is not None


@pytest.mark.parametrize("change", ["torn", "text", "kind", "range", "type", "field", "question"])
def test_a_wrong_file_is_no_answer(change: str) -> None:
    """Torn ones, and those that are whole but say what cannot be."""
    remember(key(), Entry((MATMUL,), 8, ""))
    content = path().read_bytes().split(b"\n", 1)[1]
    says = json.loads(content)
    kind, values = says["schedules"][0]
    match change:
        case "torn":
            path().write_bytes(path().read_bytes()[:-5])
            assert recall(key(), 8, "") is None
            return
        case "text":
            says = ["no", "answer"]
        case "kind":
            says["schedules"][0][0] = "Path"
        case "range":
            values["stages"] = 99
        case "type":
            values["tile"] = "wide"
        case "field":
            values["colour"] = "red"
        case _:
            says["about"] = "another"
    assert kind == "MatmulParams"
    disk.write(path(), json.dumps(says).encode(), most=1 << 20)
    assert recall(key(), 8, "") is None


@pytest.mark.parametrize(
    ("extent", "least"), [(0, 0), (1, 1), (15, 15), (16, 16), (17, 16), (4096, 4096), (4700, 4608)]
)
def test_extents_of_a_class_differ_by_an_eighth(extent: int, least: int) -> None:
    """Small ones not at all."""
    assert near(extent) == least
    assert near(extent) * 9 // 8 >= extent


def test_symbols_of_one_extent_are_written_once() -> None:
    """The question is a text: it can be read."""
    says = json.loads(key())
    assert says["extents"] == {"i0": 1024, "i1": 512, "i2": 4096}
    assert Symbol("i0").name in says["fusion"]
