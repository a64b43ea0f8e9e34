"""Numbers of 4 bits of which operands of products are computed in registers, two from a byte.

What ``fd.ops.unpack`` records is found again: a cast of `nibble`, of bytes and of 0 and 1 in turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.dtype import DType
from fuser.fusion.ir import Constant, TensorView, reached, tensor_args
from fuser.fusion.ops import OPS, Form
from fuser.schedule.domain import Access, Domain, Key, Product, arguments
from fuser.schedule.matmul import PACKED, of_one, summed


def made_of_bytes(tv: TensorView) -> bool:
    """Tell whether a tensor is, as 16-bit floats, both numbers of each byte of another one."""
    if tv.op != "cast" or tv.dtype.nbytes != 2 or not tv.dtype.is_float:
        return False
    inner = _moved(tv)
    if inner.op != "nibble":
        return False
    bytes_, which = (_moved(arg) if isinstance(arg, TensorView) else arg for arg in inner.args)
    if not isinstance(which, TensorView) or which.op != "iota" or which.shape != (PACKED,):
        return False
    numbers = [arg.value for arg in which.args if isinstance(arg, Constant)]
    is_input = isinstance(bytes_, TensorView) and bytes_.op == "input"
    return numbers == [0, 1] and is_input and bytes_.dtype is DType.I8


def uses_places(tv: TensorView) -> bool:
    """Tell whether a tensor is computed from where its elements are, but for those of bytes."""
    every = reached([tv], lambda one: [] if made_of_bytes(one) else [*tensor_args(one)])
    return any(one.op == "iota" for one in every)


def unpacked(domain: Domain, product: Product) -> Mapping[Key, Access] | None:
    """Return what of an operand is made of bytes, as walked, and of those of which leaf.

    None where a step along the sums does not have both numbers of a byte, and no others of it.
    """
    known = {(leaf.tv, leaf.coords): leaf for leaf in product.leaves}
    found: dict[Key, Access] = {}
    others: list[Key] = []

    def following(key: Key) -> list[Key]:
        if made_of_bytes(key[0]):
            leaf = _bytes_of(key)
            if leaf in known:
                found[key] = known[leaf]
            return []
        others.append(key)
        return [(arg, coords) for _, arg, coords in arguments(*key)]

    reached([(product.a.tv, product.a.coords)], following)
    last = {group[-1] for group in summed(domain, product)}
    for key, leaf in found.items():
        if of_one(domain, product, leaf) != PACKED or not {*_turns(key)} <= last:
            return None
    alone = (known[key] for key in others if key in known)
    if any(of_one(domain, product, leaf) == PACKED for leaf in alone):
        return None
    return found


def _moved(tv: TensorView) -> TensorView:
    """Return what a tensor has the elements of, moved or cast, but for truth values of them.

    All other types have those of bytes, and of parts of bytes.
    """
    while (tv.op == "cast" and tv.dtype is not DType.BOOL) or (
        tv.op in OPS and OPS[tv.op].form is Form.SHAPE
    ):
        (tv,) = tensor_args(tv)
    return tv


def _of_nibble(key: Key, nth: int) -> Key:
    """Return an argument of the nibble that is cast, as walked, seen through casts and moves."""
    tv, coords = key
    while tv.op != "input" and tv.op != "iota":
        pairs = [(arg, walked) for _, arg, walked in arguments(tv, coords)]
        tv, coords = pairs[nth if tv.op == "nibble" else 0]
    return tv, coords


def _bytes_of(key: Key) -> Key:
    return _of_nibble(key, 0)


def _turns(key: Key) -> tuple[int | None, ...]:
    return _of_nibble(key, 1)[1]
