"""The catalogue without its sources: what is named is there, and nothing passes for judged."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fuzz.exit_code import HARNESS, USAGE
from fuzz.ptx.foreign.catalogue import kernels
from fuzz.ptx.foreign.flash_attention import attended
from fuzz.ptx.foreign.sources import SOURCES, lacking
from fuzz.ptx.foreign.values import from_bf16, product, put, to_bf16
from fuzz.ptx.others import main

ALL = [*kernels()]


def test_names_are_one_each_and_sources_are_known() -> None:
    """Every folder of headers and every edit is of a checkout that the kernel needs."""
    assert max(Counter(one.name for one in ALL).values()) == 1
    assert {name for one in ALL for name in one.needs} == set(SOURCES)
    for one in ALL:
        for path in (*one.includes, *(edit.path for edit in one.edits)):
            assert path.split("/")[0] in one.needs
        for edit in one.edits:
            assert any(Path(edit.path).is_relative_to(include) for include in one.includes)
            assert edit.why
            assert edit.old != edit.new
        assert "void drive()" in one.driver


def test_a_mended_copy_has_more_edits_than_what_it_mends() -> None:
    """Both are judged, and the text differs."""
    by_name = {one.name: one for one in ALL}
    mended = [one for one in ALL if one.name.endswith(", mended")]
    assert mended
    for one in mended:
        plain = by_name[one.name.removesuffix(", mended")]
        assert len(one.edits) > len(plain.edits)
        assert (one.driver, one.needs) == (plain.driver, plain.needs)


def test_a_missing_checkout_is_not_judged_and_no_pass(tmp_path: Path) -> None:
    """The command says what to clone, counts it, and ends with the code of what was not judged."""
    out = tmp_path / "out.json"
    given = ["--sources", str(tmp_path), "--only", "fast.cu", "--json", str(out)]
    done = CliRunner().invoke(main, [*given, "--nvcc", "true"])
    assert done.exit_code == HARNESS
    assert "git clone https://github.com/pranjalssh/fast.cu" in done.output.replace("\n", " ")
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["judged"] == []
    assert len(found["not judged"]) == sum("fast.cu" in one.name for one in ALL)


def test_a_missing_compiler_is_not_judged(tmp_path: Path) -> None:
    """Said plainly, for each kernel."""
    for name in SOURCES:
        (tmp_path / name).mkdir()
    given = ["--sources", str(tmp_path), "--nvcc", "no-such-compiler"]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == HARNESS
    assert f"not judged: {len(ALL)}" in done.output
    assert CliRunner().invoke(main, []).exit_code == USAGE


def test_another_commit_is_not_judged(tmp_path: Path) -> None:
    """Where git knows which one it is."""
    path = tmp_path / "fast.cu"
    assert "no checkout" in lacking(tmp_path, "fast.cu")
    path.mkdir()
    assert lacking(tmp_path, "fast.cu") == ""
    author = ("-c", "user.name=n", "-c", "user.email=e")
    for asked in (("init", "-q"), (*author, "commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run(["git", "-C", str(path), *asked], check=True)
    assert "git -C fast.cu checkout 38eb642e0c08" in lacking(tmp_path, "fast.cu")


def test_the_values_of_a_product_are_compared() -> None:
    """A right one passes; one element off is named."""
    memory = {"a": np.zeros(8, np.uint8), "b": np.zeros(12, np.uint8), "c": np.zeros(12, np.uint8)}
    wrong = product(2, 3, 2, turned=True)(memory)
    a, b = (from_bf16(memory[name]).reshape(-1, 2) for name in "ab")
    put(memory["c"], to_bf16((a @ b.T).T))
    assert wrong(memory) == ""
    memory["c"][1] ^= 0x40
    assert "1 of 6 of c are wrong, first (0, 0)" in wrong(memory)
    memory["c"][:] = 0xFF
    assert "6 of 6" in wrong(memory)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_one_key_is_its_value(causal: bool) -> None:
    """By rows: with a mask the last query has all keys, the first one fewer."""
    sizes = {"q": 2 * 16, "k": 2 * 16, "v": 2 * 16, "o": 2 * 16}
    memory = {name: np.zeros(2 * many, np.uint8) for name, many in sizes.items()}
    memory["lse"] = np.zeros(8, np.uint8)
    wrong = attended(2, 2, 16, causal=causal)(memory)
    q, k, v = (from_bf16(memory[name]).reshape(2, 16).astype("f8") for name in "qkv")
    powers = np.exp(q @ k.T / 4)
    if causal:
        powers[0, 1] = 0
    put(memory["o"], to_bf16(powers @ v / powers.sum(axis=1, keepdims=True)))
    put(memory["lse"], np.log(powers.sum(axis=1)).astype("f4"))
    assert wrong(memory) == ""
    put(memory["lse"], np.zeros(2, "f4"))
    assert "lse" in wrong(memory)
