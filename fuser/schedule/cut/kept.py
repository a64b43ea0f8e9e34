"""What is stored so that no product is computed twice.

What is computed from a product element by element, and from nothing that waits for the product,
is its epilogue: the kernel that multiplies has it in registers.  What else uses a tensor of an
epilogue reads it from memory, where the kernel that multiplies stores it, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import cache, lru_cache

from fuser.dtype import DType
from fuser.fusion.ir import Fusion, TensorView, reached, tensor_args
from fuser.fusion.ops import OPS, Form
from fuser.fusion.promotion import arithmetic

_SELECTS = ("set", "neg", "abs", "relu", "maximum", "minimum")
"""Operations whose results are operands, but for a sign or a zero."""


class Epilogues:
    """Which operations of a fusion follow a tensor in its kernel, and which read it from memory."""

    def __init__(self, fusion: Fusion, kept: Set[str] = frozenset()) -> None:
        self.kept = kept
        self.users: dict[TensorView, list[TensorView]] = {tv: [] for tv in fusion.tensors}
        self.depth: dict[TensorView, int] = {}
        for tv in fusion.tensors:
            args = tensor_args(tv)
            before = max((self.depth[arg] for arg in args), default=0)
            waits = bool(args) and not _elementwise(tv) and OPS[tv.op].form is not Form.SHAPE
            self.depth[tv] = before + waits
            for arg in args:
                self.users[arg].append(tv)
        self._leaks = cache(self._is_read_beyond)
        self._from_memory = cache(self._is_from_memory)

    def follows(self, tv: TensorView, arg: TensorView) -> bool:
        """Tell whether an operation takes its argument from the registers of the same kernel."""
        alike = self._inside(tv, arg) and not self._leaks(tv)
        return alike and not any(map(self._from_memory, tensor_args(tv)))

    def boundary(self, product: TensorView) -> list[TensorView]:
        """Return what others than the epilogue of a product read of it."""

        def following(tv: TensorView) -> list[TensorView]:
            return [user for user in self.users[tv] if self._inside(user, tv)]

        found = reached([product], following)
        read = [tv for tv in found if len(following(tv)) < len(self.users[tv])]
        return sorted(read, key=lambda tv: tv.number)

    def _inside(self, tv: TensorView, arg: TensorView) -> bool:
        alike = tv.shape == arg.shape and self.depth[tv] == self.depth[arg]
        return _elementwise(tv) and alike

    def _is_from_memory(self, tv: TensorView) -> bool:
        """Tell whether a tensor is computed, element by element, from one that is read again."""
        return any(
            not self.follows(tv, arg) if arg.name in self.kept else self._from_memory(arg)
            for arg in tensor_args(tv)
            if tv.name not in self.kept and self.depth[arg] == self.depth[tv]
        )

    def _is_read_beyond(self, tv: TensorView) -> bool:
        """Tell whether one that needs a tensor that is not kept would compute the product again."""
        if tv.name in self.kept:
            return False
        return any(not self._inside(one, tv) or self._leaks(one) for one in self.users[tv])


def keep(fusion: Fusion, products: Iterable[TensorView]) -> frozenset[str]:
    """Return the tensors to store so that others need not compute products: the fewest bytes.

    The boundaries of their epilogues, or the products themselves; together where they meet.
    """
    epilogues = Epilogues(fusion)
    groups: list[tuple[set[TensorView], set[TensorView]]] = []
    for product in products:
        mine, boundary = {product}, {*epilogues.boundary(product)}
        for group in [group for group in groups if group[1] & boundary]:
            groups.remove(group)
            mine, boundary = mine | group[0], boundary | group[1]
        groups.append((mine, boundary))
    found: set[TensorView] = set()
    for mine, boundary in groups:
        moved = sum(
            memory_dtype(tv).nbytes * (1 if tv in fusion.outputs and is_exact(tv) else 2)
            for tv in boundary
        )
        whole = sum(2 * memory_dtype(product).nbytes for product in mine)
        found |= boundary if boundary and moved <= whole else mine
    return frozenset(tv.name for tv in found)


@lru_cache(maxsize=4096)
def memory_dtype(tv: TensorView) -> DType:
    """Return the type in which memory has all that registers have of a tensor.

    Its own, if each element is rounded to that, or is an element of such a tensor, maybe negated.
    """
    known = tv.op in ("input", "cast") or (
        (tv.op in _SELECTS or OPS[tv.op].form in (Form.SHAPE, Form.VIEW, Form.GATHER))
        and all(
            isinstance(arg, TensorView) and arg.dtype is tv.dtype and is_exact(arg)
            for arg in (tv.args[:1] if tv.op == "gather" else tv.args)
        )
    )
    return tv.dtype if known else arithmetic(tv.dtype)


def is_exact(tv: TensorView) -> bool:
    """Tell whether an output has in memory what later operations take."""
    return memory_dtype(tv) is tv.dtype


def _elementwise(tv: TensorView) -> bool:
    return tv.op in OPS and OPS[tv.op].pointwise
