"""Where fragments are declared, under which names, and which are held packed.

All of it is a function of the Kernel's text alone.

A fragment is declared in the innermost body that holds all its statements, and whose iterations do
not hand its value on; different roles have registers of their own.

A fragment in strips, or in each warp, of a 16-bit type is held packed, two elements in a 32-bit
register as tensor cores want them, where nobody can tell: all its values come from loads and
computes, and go to products or to memory of its type, which round them just so.  One in `Deal.ROWS`
is, if it is only loaded, from memory of its type.  Any other 16-bit fragment is held in f32.  Sums
that tensor cores add up in f16 come packed from them, and whatever type operands of `Mma` have,
their registers are words of 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fuser.codegen.neighbours import steps
from fuser.dtype import DType
from fuser.kernel import ir as kir
from fuser.kernel.validate.place import fragments

HALVES = (DType.F16, DType.BF16)
"""Types that a register holds in f32."""
BYTES = (DType.I8, DType.F8E4M3, DType.F8E5M2)
"""Types of a byte, whose numbers those of 16 bits hold."""
Path = tuple[int, ...]
"""Where a statement stands: its number in the kernel's body, then branch, number, branch, ..."""


@dataclass(frozen=True, slots=True)
class Registers:
    """The plan of one kernel: which fragments are declared before a statement, by its path.

    `names` are those in C++: a fragment's own, numbered where several share it.  Those that are
    `packed` hold as many elements in a register as fit into 32 bits; `Wgmma` reads or writes those
    that are `pinned` while other statements run.  Those that are `promoted` have the elements of a
    packed one, and those in `steps` grow by so much from one element of a row to the next.
    """

    declared: dict[Path, tuple[kir.Fragment, ...]]
    names: dict[kir.Fragment, str]
    packed: frozenset[kir.Fragment]
    pinned: frozenset[kir.Fragment]
    rough: frozenset[kir.Fragment] = frozenset()
    promoted: Mapping[kir.Fragment, kir.Fragment] = field(default_factory=dict)
    steps: Mapping[kir.Fragment, int] = field(default_factory=dict)

    def visible(self, path: Path) -> tuple[kir.Fragment, ...]:
        """Return the pinned fragments that are declared where the statement at `path` stands."""
        return tuple(f for f in self.within(path) if f in self.pinned)

    def within(self, path: Path) -> tuple[kir.Fragment, ...]:
        """Return the fragments that are declared where the statement at `path` stands."""
        found = [
            frag
            for at, frags in sorted(self.declared.items())
            for frag in frags
            if at[:-1] == path[: len(at) - 1] and at[-1] <= path[len(at) - 1]
        ]
        return tuple(dict.fromkeys(found))


def plan(kernel: kir.Kernel) -> Registers:
    """Return the plan of a kernel's fragments."""
    every = list(dict.fromkeys(f for stmt in kernel.walk() for f in _touched(stmt)))
    places = _Places(kernel)
    declared: dict[Path, tuple[kir.Fragment, ...]] = {}
    for frag in every:
        for path in places.declarations(kernel.body, (), frag):
            declared[path] = (*declared.get(path, ()), frag)
    names: dict[kir.Fragment, str] = {}
    for frag in every:
        same = sum(1 for other in names if other.name == frag.name)
        names[frag] = f"{frag.name}_{same + 1}" if same else frag.name
    statements = list(kernel.walk())
    sums = _half_sums(statements)
    packed = frozenset(
        f for f in every if f in sums or _packs(f, statements) or _are_words(f, statements)
    )
    packed |= _factors(statements, packed)
    packed |= {f for f in every if _widens(f, statements, packed)}
    products = [stmt for stmt in statements if isinstance(stmt, kir.Wgmma)]
    pinned = frozenset(f for stmt in products for f in _touched(stmt))
    rough = frozenset(f for f in every if _is_rough(f, statements))
    promoted = _promoted(statements, packed)
    return Registers(declared, names, packed, pinned, rough, promoted, steps(kernel))


def kept(registers: Registers, body: tuple[kir.Stmt, ...], path: Path) -> tuple[kir.Fragment, ...]:
    """Return what is to stay packed behind a reduction of rows: what the body still uses."""
    behind = body[path[-1] + 1 :]
    later = {frag for stmt in behind for inner in kir.walk((stmt,)) for frag in used(inner)}
    packs = (f for f in registers.within(path) if f in registers.packed and f in later)
    return tuple(f for f in packs if f.layout.deal is kir.Deal.ROWS)


def count(layout: kir.Layout) -> int:
    """Return how many elements a thread has room for."""
    if layout.deal is kir.Deal.STRIPS and layout.folded == 1:
        strips = layout.shape[-2] // 16
        return -(-strips // (layout.threads // kir.WARP)) * layout.shape[-1] // 2
    return layout.registers


def made(stmt: kir.Stmt) -> tuple[kir.Fragment, ...]:
    """Return the fragments that a statement gives a value."""
    return tuple(fragments(stmt)[1])


def used(stmt: kir.Stmt) -> tuple[kir.Fragment, ...]:
    """Return the fragments whose value a statement uses."""
    match stmt:
        case kir.Wgmma(acc, a, _, accumulate):
            kept = () if isinstance(accumulate, int) and accumulate == 0 else (acc,)
            return (*kept, *((a,) if isinstance(a, kir.Fragment) else ()))
        case _:
            return tuple(fragments(stmt)[0])


def _touched(stmt: kir.Stmt) -> tuple[kir.Fragment, ...]:
    return (*used(stmt), *made(stmt))


def _are_apart(stmts: list[kir.Stmt]) -> bool:
    """Tell whether all are roles without a common warp, whose registers are different ones."""
    warps: set[int] = set()
    for stmt in stmts:
        if not isinstance(stmt, kir.Role):
            return False
        own = set(range(stmt.first_warp, stmt.first_warp + stmt.warps))
        if warps & own:
            return False
        warps |= own
    return True


class _Places:
    def __init__(self, kernel: kir.Kernel) -> None:
        self._touched: dict[int, frozenset[kir.Fragment]] = {}
        for stmt in reversed([*kernel.walk()]):  # children first
            inner = (self._touched[id(s)] for body in kir.bodies(stmt) for s in body)
            self._touched[id(stmt)] = frozenset(_touched(stmt)).union(*inner)

    def declarations(
        self, body: tuple[kir.Stmt, ...], at: Path, frag: kir.Fragment
    ) -> Iterator[Path]:
        """Before which statements of a body, or inside them, a fragment is declared."""
        mine = [(n, stmt) for n, stmt in enumerate(body) if self._touches(stmt, frag)]
        if len(mine) == 1 or _are_apart([stmt for _, stmt in mine]):
            inner = list(self._inside(mine, at, frag))
            if inner:
                yield from inner
                return
        if mine:
            yield (*at, mine[0][0])

    def _touches(self, stmt: kir.Stmt, frag: kir.Fragment) -> bool:
        return frag in self._touched[id(stmt)]

    def _inside(
        self, mine: list[tuple[int, kir.Stmt]], at: Path, frag: kir.Fragment
    ) -> Iterator[Path]:
        for n, stmt in mine:
            bodies = kir.bodies(stmt)
            using = [
                b for b, body in enumerate(bodies) if any(self._touches(s, frag) for s in body)
            ]
            if len(using) != 1:
                continue
            (branch,) = using
            if isinstance(stmt, kir.ForLoop | kir.Loop) and not self._defines_first(
                stmt.body, frag
            ):
                continue
            yield from self.declarations(bodies[branch], (*at, n, branch), frag)

    def _defines_first(self, body: tuple[kir.Stmt, ...], frag: kir.Fragment) -> bool:
        """Tell whether each run of a body gives a fragment a value before it uses it."""
        mine = [stmt for stmt in body if self._touches(stmt, frag)]
        first = mine[0]
        bodies = kir.bodies(first)
        if not bodies:
            return frag in made(first) and frag not in used(first)
        using = [inner for inner in bodies if any(self._touches(s, frag) for s in inner)]
        whole = isinstance(first, kir.IfThenElse) and len(using) == 2
        return (whole or len(mine) == 1) and all(self._defines_first(b, frag) for b in using)


def _half_sums(statements: list[kir.Stmt]) -> frozenset[kir.Fragment]:
    """Accumulators of f16, their parts, and what has the same registers."""
    found = {s.acc for s in statements if isinstance(s, kir.Wgmma | kir.Mma)}
    found = {acc for acc in found if acc.dtype is DType.F16}
    slices = [stmt for stmt in statements if isinstance(stmt, kir.Slice)]
    pairs = [(s.src, s.dst) for s in slices]
    pairs += [(s.dst, s.src) for s in slices if s.relabels]
    while more := {to for one, to in pairs if one in found} - found:
        found |= more
    return frozenset(found)


def _are_words(frag: kir.Fragment, statements: list[kir.Stmt]) -> bool:
    """Tell whether a fragment only takes operands from shared memory to `Mma`, bits as they are."""
    if frag.layout.deal is kir.Deal.ROUND or frag.layout.vector * frag.dtype.nbytes != 4:
        return False
    for stmt in statements:
        if frag in made(stmt) and not (isinstance(stmt, kir.Load) and _is_word(stmt)):
            return False
        if frag in used(stmt) and not (isinstance(stmt, kir.Mma) and frag in (stmt.a, stmt.b)):
            return False
    return True


def _is_word(load: kir.Load) -> bool:
    """Tell whether a load gives registers the words of a slot: matrices, or single ones across."""
    if load.matrix or not isinstance(load.src, kir.Slot):
        return load.matrix
    return load.transposed and load.src.buffer.dtype is load.dst.dtype


def _packs(frag: kir.Fragment, statements: list[kir.Stmt]) -> bool:
    if frag.dtype not in (DType.F16, DType.BF16) or frag.layout.deal is kir.Deal.ROUND:
        return False
    if frag.layout.deal is kir.Deal.ROWS:
        return not frag.layout.registers % 2 and (
            all(
                isinstance(stmt, kir.Load) and _lies_as(frag, stmt.src)
                for stmt in statements
                if frag in made(stmt)
            )
            or (_is_rounded(frag, statements) and frag.layout.alike == 1)
        )
    for stmt in statements:
        if frag in made(stmt) and not isinstance(stmt, kir.Load | kir.Compute | kir.Unpack):
            return False
        if frag not in used(stmt):
            continue
        match stmt:
            case kir.Mma() | kir.Wgmma():
                pass
            case kir.Store(kir.Slot(buffer)) if buffer.dtype is frag.dtype:
                pass
            case kir.Store(kir.Box(tensor)) if tensor.dtype is frag.dtype:
                pass
            case _:
                return False
    return True


def _factors(
    statements: list[kir.Stmt], packed: frozenset[kir.Fragment]
) -> frozenset[kir.Fragment]:
    """Return what products are made of whose rounded pairs are all that is needed.

    One instruction multiplies two pairs of numbers of 16 bits, and rounds what f32 has exactly.
    """
    users: dict[kir.Fragment, list[kir.Stmt]] = {}
    for stmt in statements:
        for frag in used(stmt):
            users.setdefault(frag, []).append(stmt)
    found = set[kir.Fragment]()
    for stmt in statements:
        if not isinstance(stmt, kir.Compute) or not _in_pairs(stmt) or stmt.dst not in packed:
            continue
        args = {arg for arg in stmt.args if isinstance(arg, kir.Fragment)}
        ways = (one for one in statements if not args.isdisjoint(made(one)))
        if all(users[arg] == [stmt] for arg in args) and all(map(_is_exact, ways)):
            found |= args
    return frozenset(found)


def _in_pairs(stmt: kir.Compute) -> bool:
    """Tell whether a statement multiplies fragments of a 16-bit type, dealt alike in strips."""
    deal, dtype = stmt.dst.layout.deal, stmt.dst.dtype
    alike = all(
        isinstance(arg, kir.Fragment) and arg.layout == stmt.dst.layout for arg in stmt.args
    )
    same = alike and all(arg.dtype is dtype for arg in stmt.args)
    return stmt.op == "mul" and same and dtype in HALVES and deal is kir.Deal.STRIPS


def _is_exact(stmt: kir.Stmt) -> bool:
    """Tell whether a statement gives numbers that 16 bits hold."""
    match stmt:
        case kir.Load(dst, src):
            return _lies_as(dst, src)
        case kir.Compute(dst, "cast", (kir.Fragment(dtype=dtype),)):
            return dtype in BYTES
        case _:
            return isinstance(stmt, kir.Unpack)


def _widens(
    frag: kir.Fragment, statements: list[kir.Stmt], packed: frozenset[kir.Fragment]
) -> bool:
    """Tell whether bytes of a slot, by pairs in strips, are only cast to what is held packed."""
    layout = frag.layout
    if frag.dtype not in BYTES or layout.deal is not kir.Deal.STRIPS or layout.vector != 2:
        return False
    for stmt in statements:
        if frag in made(stmt) and not (isinstance(stmt, kir.Load) and _is_whole(stmt)):
            return False
        if frag not in used(stmt):
            continue
        match stmt:
            case kir.Compute(dst, "cast") if dst in packed and dst.layout == layout:
                pass
            case _:
                return False
    strips = layout.shape[-2] // 16
    return count(layout) % 4 == 0 and strips % (layout.threads // kir.WARP) == 0


def _is_whole(load: kir.Load) -> bool:
    """Tell whether a load takes a slot of its type as it lies, element by element."""
    if not isinstance(load.src, kir.Slot) or load.transposed or load.matrix or load.limit:
        return False
    tile = load.dst.layout.shape
    return _lies_as(load.dst, load.src) and load.src.buffer.shape[-2:] == tile[-2:]


def _is_rounded(frag: kir.Fragment, statements: list[kir.Stmt]) -> bool:
    """Tell whether a fragment is only computed, and stored in memory of its type, which rounds."""
    for stmt in statements:
        if frag in made(stmt) and not isinstance(stmt, kir.Compute):
            return False
        if frag in used(stmt) and not (
            isinstance(stmt, kir.Store) and _lies_as(frag, stmt.dst) and stmt.width > 1
        ):
            return False
    return True


def _is_rough(frag: kir.Fragment, statements: list[kir.Stmt]) -> bool:
    """Tell whether all that becomes of a fragment in f32 is rounded to 16 bits at once."""
    if frag.dtype is not DType.F32 or frag.layout.deal is not kir.Deal.ROWS:
        return False
    return all(
        isinstance(stmt, kir.Compute) and stmt.op == "cast" and stmt.dst.dtype in HALVES
        for stmt in statements
        if frag in used(stmt)
    )


def _promoted(
    statements: list[kir.Stmt], packed: frozenset[kir.Fragment]
) -> dict[kir.Fragment, kir.Fragment]:
    """Return the packed fragment, made once, that another one in f32 has the elements of."""
    made_by: dict[kir.Fragment, list[kir.Stmt]] = {}
    for stmt in statements:
        for frag in made(stmt):
            made_by.setdefault(frag, []).append(stmt)
    found = {}
    for frag, ways in made_by.items():
        match ways:
            case [kir.Compute(_, "promote" | "cast", (kir.Fragment() as arg,))]:
                same = frag.dtype is DType.F32 and frag.layout == arg.layout
                if same and arg in packed and len(made_by.get(arg, ())) == 1:
                    found[frag] = arg
            case _:
                pass
    return found


def _lies_as(frag: kir.Fragment, place: kir.Box | kir.Slot) -> bool:
    """Tell whether memory has elements of a fragment's type."""
    return frag.dtype is (place.tensor.dtype if isinstance(place, kir.Box) else place.buffer.dtype)
