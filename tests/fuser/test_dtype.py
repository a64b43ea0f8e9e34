"""The ten element types."""

import pickle

import pytest
import torch

from fuser.dtype import DType
from fuser.errors import FusionError


@pytest.mark.parametrize("dtype", list(DType))
def test_sizes_and_kinds_are_those_of_torch(dtype: DType) -> None:
    """Buffers are shared with torch tensors byte for byte."""
    other = getattr(torch, dtype.torch_name)
    assert dtype.nbytes == other.itemsize
    assert dtype.is_float == other.is_floating_point
    assert dtype.is_int == (not other.is_floating_point and other is not torch.bool)


@pytest.mark.parametrize("dtype", list(DType))
def test_every_spelling_is_understood(dtype: DType) -> None:
    """Short names, torch's names and torch's objects all lead to one member."""
    other = getattr(torch, dtype.torch_name)
    for name in (dtype, dtype.name, dtype.torch_name, str(other), other):
        assert DType.of(name) is dtype
    assert str(dtype) == dtype.name


def test_members_survive_pickling() -> None:
    """Cases travel to child processes; `is` must still hold there."""
    assert all(pickle.loads(pickle.dumps(dtype)) is dtype for dtype in DType)


@pytest.mark.parametrize("name", ["int16", "", None, 32, ["f32"]])
def test_unknown_names_are_refused(name: object) -> None:
    """The way out is the list of names."""
    with pytest.raises(FusionError, match="unknown dtype; use one of f64, f32, f16, bf16, i32"):
        DType.of(name)


def test_cuda_spellings_are_distinct() -> None:
    """Device functions are chosen by overload on these types."""
    assert len({dtype.cuda for dtype in DType}) == len(DType)
