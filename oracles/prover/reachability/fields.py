"""The fields of a state, declared once: how each is copied, and what stands for it in the key.

Two states are compared by their keys alone, so a field that is missing there would be a false
proof.  Hence each field says what it is: the `same` in the key, `mapped` by the canonical form,
`derived` by it from the whole object, or `left_out`, and why.  Copies and keys are compiled from
that, once for each class; a field that says nothing is refused when its class is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

Part = TypeVar("Part")
_COPIES: dict[type, Callable[[Any], Any]] = {}
_KEYS: dict[type, Callable[[Any, object], tuple[object, ...]]] = {}


def same(*, default: Any = MISSING) -> Any:
    """Declare a field whose value stands for itself."""
    return _field("it.{0}", default=default)


def mapped(how: str, *, default: Any = MISSING, factory: Any = MISSING) -> Any:
    """Declare a field whose value a method of the canonical form maps."""
    return _field(f"form.{how}(it.{{0}})", default=default, factory=factory)


def derived(
    how: str, *, default: Any = MISSING, factory: Any = MISSING, parts: type | None = None
) -> Any:
    """Declare a field that a method of the canonical form works out from the whole object.

    `parts` says that it is a list or a dict of declared objects, which are copied, too.
    """
    return _field(f"form.{how}(it)", default=default, factory=factory, parts=parts)


def left_out(why: str, *, default: Any = MISSING, factory: Any = MISSING) -> Any:
    """Declare a field that is not in the key, for a reason."""
    assert why, "a field is left out for a reason"
    return _field("", default=default, factory=factory)


def _field(
    key: str, *, default: Any = MISSING, factory: Any = MISSING, parts: type | None = None
) -> Any:
    copy = "it.{0}" if factory is MISSING else "dict(it.{0})"
    if parts is list:
        copy = "[copied(one) for one in it.{0}]"
    elif parts is dict:
        copy = "{{key: copied(one) for key, one in it.{0}.items()}}"
    role = {"key": key, "copy": copy}
    return field(default=default, default_factory=factory, metadata=role)


@dataclass_transform(field_specifiers=(same, mapped, derived, left_out))
def declared(cls: type[Part]) -> type[Part]:
    """Make a dataclass of a class, and copies and keys from what its fields declare.

    Raises
    ------
    TypeError
        If a field declares nothing.
    """
    made: Any = dataclass(slots=True, eq=False)(cls)
    every = fields(made)
    for one in every:
        if "key" not in one.metadata:
            says = f"{cls.__name__}.{one.name} does not say what stands for it in a key"
            raise TypeError(f"{says}: declare it same(), mapped(), derived() or left_out(why)")
    copies = ", ".join(one.metadata["copy"].format(one.name) for one in every)
    keys = "".join(f"{k.format(one.name)}, " for one in every if (k := one.metadata["key"]))
    _COPIES[made] = eval(f"lambda it: new({copies})", {"new": made, "copied": copied})
    _KEYS[made] = eval(f"lambda it, form: ({keys})")
    result: type[Part] = made
    return result


def copied(it: Part) -> Part:
    """Return a copy that goes its own way."""
    copy: Part = _COPIES[type(it)](it)
    return copy


def key_of(it: object, form: object) -> tuple[object, ...]:
    """Return what stands for an object in the key of its state, as a canonical form maps it."""
    return _KEYS[type(it)](it, form)
