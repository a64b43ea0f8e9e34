"""Which extents of a definition under construction are equal: union-find over symbols."""

from fuser.fusion.ir import Extent, Symbol


class Extents:
    """The symbols of one definition and what they are known to equal.

    A class of equal symbols is represented by its number if one is known, else by its earliest
    symbol that the user named, else by its earliest symbol.
    """

    def __init__(self) -> None:
        self._parent: dict[Symbol, Extent] = {}
        self._named: set[Symbol] = set()
        self._born: dict[Symbol, int] = {}

    def fresh(self) -> Symbol:
        """Make a symbol that equals nothing yet, called i0, i1, ... where free."""
        number = len(self._born) - len(self._named)
        taken = {symbol.name for symbol in self._born}
        while f"i{number}" in taken:
            number += 1
        return self._add(Symbol(f"i{number}"))

    def named(self, name: str) -> Symbol:
        """Return the symbol of that name, made on first use."""
        symbol = self._add(Symbol(name))
        self._named.add(symbol)
        return symbol

    def knows(self, symbol: Symbol) -> bool:
        """Tell whether the symbol was made here."""
        return symbol in self._born

    def find(self, extent: Extent) -> Extent:
        """Return the representative of an extent."""
        while isinstance(extent, Symbol) and self._parent[extent] != extent:
            extent = self._parent[extent]
        return extent

    def unify(self, pairs: list[tuple[Extent, Extent]]) -> bool:
        """Record that the two extents of every pair are equal; all of them or, if False, none."""
        before = dict(self._parent)
        for a, b in pairs:
            if not self._unify(self.find(a), self.find(b)):
                self._parent = before
                return False
        return True

    def canonical_names(self, roots: list[Symbol]) -> dict[Symbol, Symbol]:
        """Name the roots, given in order of appearance: fresh ones i0, i1, ..., others as named."""
        taken = {root.name for root in roots if root in self._named}
        names: dict[Symbol, Symbol] = {}
        number = 0
        for root in roots:
            if root in self._named:
                names[root] = root
                continue
            while f"i{number}" in taken:
                number += 1
            names[root] = Symbol(f"i{number}")
            number += 1
        return names

    def _add(self, symbol: Symbol) -> Symbol:
        if symbol not in self._born:
            self._born[symbol] = len(self._born)
            self._parent[symbol] = symbol
        return symbol

    def _unify(self, a: Extent, b: Extent) -> bool:
        if a == b:
            return True
        if isinstance(a, Symbol) and isinstance(b, Symbol):
            keep, drop = sorted((a, b), key=lambda s: (s not in self._named, self._born[s]))
            self._parent[drop] = keep
        elif isinstance(a, Symbol):
            self._parent[a] = b
        elif isinstance(b, Symbol):
            self._parent[b] = a
        else:
            return False
        return True
