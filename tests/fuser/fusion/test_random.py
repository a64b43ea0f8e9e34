"""Random numbers are those of torch on a GPU."""

from __future__ import annotations

import pytest
import torch
from random_words import kept, uniform, words

from fuser.errors import FusionError
from fuser.fusion.definition import Fusion, FusionDefinition
from fuser.runtime.executable import Executable
from fuzz.campaign.judge import judge
from fuzz.cases.case import Case
from fuzz.cases.strategies import PRODUCTS
from oracles.reference.evaluate import evaluate


def test_words_are_known_answers() -> None:
    """Source: Random123, kat_vectors, philox4x32 10."""
    assert words(0, 0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert words(-1, -1, -1) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


def rand(shape: list[int], sms: int = 132) -> Fusion:
    """Numbers of a seed and an offset."""
    fd = FusionDefinition()
    seed, offset = (fd.define_scalar("i64") for _ in range(2))
    fd.add_output(fd.ops.rand(shape, seed, offset, sms))
    return fd.fusion()


def dropout(shape: list[int], dtype: str) -> Fusion:
    """A quarter is dropped."""
    fd = FusionDefinition()
    seed, offset = (fd.define_scalar("i64") for _ in range(2))
    for tv in fd.ops.dropout(fd.define_tensor(shape, dtype), 0.25, seed, offset):
        fd.add_output(tv)
    return fd.fusion()


@pytest.mark.parametrize(("shape", "sms"), [([7], 132), ([3, 1000], 132), ([5000], 1)])
def test_streams_are_dealt_as_torch_does(shape: list[int], sms: int) -> None:
    """By threads of CTAs of 256, of which 8 are on an SM at once."""
    many = torch.Size(shape).numel()
    streams = 256 * min(-(-many // 256), 8 * sms)
    (got,) = evaluate(rand(shape, sms), [2**40 + 3, 8])
    off = (got.value.flatten() - uniform(many, 2**40 + 3, 8, streams)).abs()
    assert bool((off <= got.bound.flatten()).all())


@pytest.mark.parametrize(("dtype", "nbytes"), [("f32", 4), ("bf16", 2), ("f64", 8)])
def test_threads_drop_as_those_of_torch(dtype: str, nbytes: int) -> None:
    """By 16 bytes, each several times."""
    fd = FusionDefinition()
    x = fd.define_tensor([8, 3000], dtype)
    ones = torch.ones(8, 3000, dtype=getattr(torch, x.dtype.torch_name))
    fd.add_output(fd.ops.dropout(x, 0.25, 77, 0, sms=1)[1])
    (got,) = evaluate(fd.fusion(), [ones])
    assert got.value.flatten().bool().tolist() == kept(24_000, nbytes, 0.25, 77, 2048)


@pytest.mark.parametrize("fusion", [rand([3, 50]), dropout([5, 24], "bf16")])
def test_kernels_draw_the_same(fusion: Fusion) -> None:
    """In the simulator, whose numbers of a seed are others than the reference's code."""
    records = judge(Case(fusion, PRODUCTS, {}, "reals", 3), ("simulator", "differential"))
    assert {record.status for record in records} == {"pass"}, records


def test_what_cannot_be_drawn_is_refused() -> None:
    """A probability, an extent, a number of elements."""
    fd = FusionDefinition()
    x, y = fd.define_tensor(["m", 8], "f32"), fd.define_tensor([3, 5], "f32")
    with pytest.raises(FusionError, match=r"dropout\(T0, 0.5, 1\): extent m is not known"):
        fd.ops.dropout(x, 0.5, 1)
    with pytest.raises(FusionError, match=r"p=1.0 is no probability below 1; use one"):
        fd.ops.dropout(y, 1.0, 1)
    with pytest.raises(FusionError, match=r"T1 has 15 elements, four are drawn at once"):
        fd.ops.dropout(y, 0.5, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("many", [40, 4096, 300_000, 5_000_000])
def test_torch_draws_the_same(many: int) -> None:
    """Bit by bit, after a call that has moved the offset on."""
    torch.cuda.manual_seed(77)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    before = torch.cuda.default_generators[0]
    for _ in range(2):
        offset = before.get_offset()
        want = torch.rand(many, device="cuda")
        (got,) = Executable(rand([many], sms))(77, offset)
        assert torch.equal(got, want)
    for dtype, kind in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        x = torch.randn(many, device="cuda").to(kind)
        offset = before.get_offset()
        want, mask = torch.native_dropout(x, 0.25, True)
        got, kept = Executable(dropout([many], dtype))(77, offset, x)
        assert torch.equal(kept, mask)
        assert torch.equal(got, want)
