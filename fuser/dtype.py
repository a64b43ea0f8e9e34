"""The ten element types: name, bytes, kind and CUDA spelling.

It does not know how types combine; `promotion` does.
"""

from enum import Enum

from fuser.errors import FusionError, meant


class DType(Enum):
    """An element type, by the short name that fusions are printed with.

    A bool takes a byte; `cuda` is the type in memory, floats below 32 bits those of the headers;
    `torch_name` is torch's, such as ``"bfloat16"``.
    """

    __hash__ = object.__hash__
    """Of the member, as `==` is: much faster than of its name."""

    nbytes: int
    cuda: str
    torch_name: str

    F64 = "f64", 8, "double", "float64"
    F32 = "f32", 4, "float", "float32"
    F16 = "f16", 2, "f16", "float16"
    BF16 = "bf16", 2, "bf16", "bfloat16"
    I32 = "i32", 4, "int32", "int32"
    I64 = "i64", 8, "int64", "int64"
    BOOL = "bool", 1, "bool", "bool"
    I8 = "i8", 1, "int8", "int8"
    F8E4M3 = "f8e4m3", 1, "e4m3", "float8_e4m3fn"
    F8E5M2 = "f8e5m2", 1, "e5m2", "float8_e5m2"

    def __new__(cls, name: str, nbytes: int, cuda: str, torch_name: str) -> "DType":
        """Make the type of a row."""
        made = object.__new__(cls)
        made._value_ = name
        made.nbytes, made.cuda, made.torch_name = nbytes, cuda, torch_name
        return made

    @property
    def name(self) -> str:
        """Short name, such as ``"bf16"``; the spelling of printed fusions."""
        return str(self.value)

    @property
    def is_float(self) -> bool:
        """Whether it is one of f64, f32, f16, bf16, f8e4m3, f8e5m2."""
        return self in (DType.F64, DType.F32, DType.F16, DType.BF16) or self.is_f8

    @property
    def is_int(self) -> bool:
        """Whether it is i8, i32 or i64; bool is not an integer here."""
        return self in (DType.I8, DType.I32, DType.I64)

    @property
    def is_f8(self) -> bool:
        """Whether it is a float of 8 bits: moved, cast and multiplied, but not computed in."""
        return self in (DType.F8E4M3, DType.F8E5M2)

    @classmethod
    def of(cls, name: object) -> "DType":
        """Return the type of a DType, a short name (``"bf16"``), or torch's (``"bfloat16"``).

        FusionError if no type has that name.
        """
        if isinstance(name, DType):
            return name
        found = _ALIASES.get(str(name).removeprefix("torch."))
        if found is None:
            known = meant(name, [dtype.name for dtype in DType])
            raise FusionError(f"DType.of({name!r}): unknown dtype; {known}")
        return found

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DType.{self.name.upper()}"


_ALIASES = {
    **{dtype.name: dtype for dtype in DType},
    **{dtype.torch_name: dtype for dtype in DType},
    "double": DType.F64,
    "float": DType.F32,
    "half": DType.F16,
    "int": DType.I32,
    "long": DType.I64,
}
