"""Casts to and from floats of 8 bits: kernels, simulator and reference say the same as torch."""

import numpy as np
import pytest
import torch

from fuser.dtype import DType
from fuser.fusion.definition import FusionDefinition
from fuser.fusion.ir import Fusion
from fuser.pipeline import build
from fuser.runtime.call import Spec
from fuser.runtime.classify import classify
from fuser.runtime.executable import Executable
from fuser.runtime.nvrtc import compile_cubin
from fuser.schedule.matmul_params import MatmulParams
from oracles.reference.estimate import Estimate, cut_to_8_bits
from oracles.simulator.memory import ops

F8 = {"f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}
EDGES = [0.0, -0.0, 448.0, 464.0, 465.0, -480.0, 57344.0, 61439.0, 61440.0, 65536.0]
EDGES += [
    2.0**-9,
    2.0**-10,
    1.0001 * 2.0**-10,
    2.0**-16,
    2.0**-17,
    torch.inf,
    -torch.inf,
    torch.nan,
]


def numbers() -> torch.Tensor:
    """Ends of ranges, ties, and numbers of every size."""
    torch.manual_seed(0)
    spread = torch.randn(4000) * 10 ** torch.empty(4000).uniform_(-6, 6)
    return torch.cat([torch.tensor(EDGES), torch.arange(-500, 500) / 8, spread])


def wanted(x: torch.Tensor, name: str) -> torch.Tensor:
    """Return what torch 2.12 makes of it; before, f8e4m3 had NaN beyond its largest number."""
    return (x.clamp(-448, 448) if name == "f8e4m3" else x).to(F8[name])


@pytest.mark.parametrize("name", F8)
def test_the_simulator_rounds_as_torch(name: str) -> None:
    """Bit by bit, NaNs included."""
    x = numbers()
    bits = ops.f8_bits(DType.of(name), x.numpy())
    np.testing.assert_array_equal(bits[~x.isnan()], wanted(x, name).view(torch.uint8)[~x.isnan()])
    assert np.isnan(ops.factor(DType.of(name), bits[x.isnan()])).all()


@pytest.mark.parametrize("name", F8)
def test_the_reference_rounds_as_torch(name: str) -> None:
    """Numbers that are known are known exactly; one that may round either way is both."""
    x = numbers()
    made = cut_to_8_bits(Estimate(DType.F32, x.double()), DType.of(name))
    torch.testing.assert_close(made.value, wanted(x, name).double(), rtol=0, atol=0, equal_nan=True)
    assert not made.error.any()
    assert not made.undecided.any()
    tie = Estimate(DType.F32, torch.tensor([1.0625]).double(), torch.tensor([1e-3]).double())
    near = cut_to_8_bits(tie, DType.F8E4M3)
    assert near.low() <= 1.0
    assert near.high() >= 1.125
    edge = Estimate(DType.F32, torch.tensor([61440.0]).double(), torch.tensor([1.0]).double())
    assert cut_to_8_bits(edge, DType.F8E5M2).undecided.all()


def there_and_back(source: str, name: str) -> Fusion:
    """Cast to 8 bits, which are stored, and back."""
    fd = FusionDefinition()
    small = fd.ops.cast(fd.define_tensor([-1], source), name)
    fd.add_output(small)
    fd.add_output(fd.ops.cast(small, source))
    return fd.fusion()


@pytest.mark.parametrize("name", F8)
@pytest.mark.parametrize("source", ["f64", "f32", "bf16", "f16", "i64", "i32", "i8", "bool"])
def test_every_cast_compiles(source: str, name: str) -> None:
    """Both ways, for every type."""
    fusion = there_and_back(source, name)
    specs = {"T0": Spec((512,), (1,), 1 << 32, DType.of(source))}
    for launch in build(fusion, None, classify(fusion, None, specs)).launches:
        assert compile_cubin(launch.source)


@pytest.mark.gpu
@pytest.mark.parametrize("name", F8)
@pytest.mark.parametrize("wide", ["bf16", "f16"])
def test_products_widen_every_number(wide: str, name: str) -> None:
    """All 256, NaNs and infinities included, by pairs in registers where they are multiplied."""
    fd = FusionDefinition()
    x, w = fd.define_tensor([-1, -1], wide), fd.define_tensor([-1, -1], name)
    fd.add_output(fd.ops.linear(x, fd.ops.cast(w, wide)))
    params = MatmulParams(
        (64, 16, 64), 1, "cooperative", 3, 1, persistent=False, columns=16,
        prologue="registers", transpose=True,
    )  # fmt: skip
    some = torch.zeros(256, 64, dtype=torch.uint8)
    for row in range(256):
        some[row, row % 64] = row
    given = some.view(F8[name]).cuda()
    ones = torch.ones(24, 64, dtype=getattr(torch, DType.of(wide).torch_name)).cuda()
    (made,) = Executable(fd.fusion(), params)(ones, given)
    alone = given.float()[range(256), [row % 64 for row in range(256)]]
    want = alone.to(made.dtype).expand(24, 256)
    torch.testing.assert_close(made.cpu(), want.cpu(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", F8)
@pytest.mark.parametrize("source", ["f64", "f32", "bf16", "f16"])
def test_kernels_round_as_torch(source: str, name: str) -> None:
    """Bit by bit on the device."""
    x = numbers().to(getattr(torch, DType.of(source).torch_name))
    small, back = Executable(there_and_back(source, name))(x.cuda())
    want = wanted(x.float(), name)
    known = ~x.isnan()
    assert torch.equal(small.cpu().view(torch.uint8)[known], want.view(torch.uint8)[known])
    torch.testing.assert_close(back.cpu().double(), want.double(), rtol=0, atol=0, equal_nan=True)
