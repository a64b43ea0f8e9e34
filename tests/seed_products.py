"""Kernels with products as lowering leaves them, without a single sync: for the passes to place."""

from __future__ import annotations

from fuser.dtype import DType
from fuser.expr import Expr, Var, eq
from fuser.kernel import ir as kir
from fuser.pipeline import run

D, E, V = Var("D"), Var("E"), Var("V")
"""Depths of two products, and whether somebody wants the result."""
ROWS, COLS, DEPTH = 64, 16, 16


def operand(name: str, rows: int, depth: Expr = DEPTH) -> kir.Tensor:
    """Return `rows` rows of an operand."""
    return kir.Tensor(name, DType.BF16, (rows, depth), (depth, 1), 8)


def result(name: str) -> kir.Tensor:
    """Return one tile of a result."""
    return kir.Tensor(name, DType.F32, (ROWS, COLS), (COLS, 1), 4)


def slots(*names: str) -> tuple[kir.Buffer, ...]:
    """Return a slot for each operand; those of A have 64 rows."""
    made: list[kir.Buffer] = []
    for name in names:
        rows = ROWS if name.startswith("A") else COLS
        at = -(-made[-1].end // 1024) * 1024 if made else 0
        made.append(kir.Buffer(f"S{name}", DType.BF16, (rows, DEPTH), 1, at, 32))
    return tuple(made)


def copy(buffer: kir.Buffer, depth: Expr = DEPTH, step: Expr = 0) -> kir.Stmt:
    """Bring a step of an operand."""
    source = operand(buffer.name[1:], buffer.shape[0], depth)
    box = kir.Box(source, (0, step * DEPTH), buffer.shape, source.extents)
    return kir.Copy(kir.Slot(buffer, 0), box, kir.Engine.TMA)


def fragment(name: str) -> kir.Fragment:
    """Return a tile of sums, or what becomes of them."""
    layout = kir.Layout((ROWS, COLS), 2, kir.WARPGROUP, kir.Deal.STRIPS)
    return kir.Fragment(name, DType.F32, layout)


def product(acc: str, a: kir.Buffer, b: kir.Buffer, step: Expr = 0) -> kir.Stmt:
    """Multiply a step."""
    more = step >= 1 if isinstance(step, Var) else 0
    return kir.Wgmma(fragment(acc), kir.Slot(a, 0), kir.Slot(b, 0), more)


def use(acc: str, into: str) -> tuple[kir.Stmt, ...]:
    """Apply a relu, and store."""
    out, to = fragment(f"relu_{acc}"), result(into)
    box = kir.Box(to, (0, 0), (ROWS, COLS), to.extents)
    return (kir.Compute(out, "relu", (fragment(acc),)), kir.Store(box, out, 2))


def steps(
    index: str, depth: Var, stages: int, prefetch: int, *parts: tuple[str, kir.Buffer, kir.Buffer]
) -> kir.Stmt:
    """Multiply pairs of operands along `depth`, in a ring."""
    k = Var(index)
    buffers = dict.fromkeys(b for _, *pair in parts for b in pair)
    body = (*(copy(b, depth, k) for b in buffers), *(product(*part, k) for part in parts))
    return kir.ForLoop(k, depth // DEPTH, body, kir.CircularBuffer(stages, prefetch))


def synchronised(
    body: tuple[kir.Stmt, ...], buffers: tuple[kir.Buffer, ...], *outputs: str
) -> kir.Kernel:
    """Run the passes over a kernel of one warpgroup."""
    tensors = {
        stmt.src.tensor.name: stmt.src.tensor
        for stmt in kir.walk(body)
        if isinstance(stmt, kir.Copy) and isinstance(stmt.src, kir.Box)
    }
    sums = {v for t in tensors.values() for v in t.extents if isinstance(v, Var)}
    params = tuple(v for v in (D, E) if v in sums)
    rules = tuple(rule for v in params for rule in (v >= DEPTH, eq(v % DEPTH, 0)))
    branches = any(isinstance(stmt, kir.IfThenElse) for stmt in kir.walk(body))
    return run(
        kir.Kernel(
            "products",
            (*params, V) if branches else params,
            (*tensors.values(), *map(result, outputs)),
            (),
            buffers,
            (),
            kir.WARPGROUP,
            body,
            outputs,
            requires=(*rules, eq(kir.GRID, 1)),
        )
    )


# --- the cases ----------------------------------------------------------------------------------


def two_alone() -> kir.Kernel:
    """Two products, each used before the next is begun; no loop."""
    a1, b1, a2, b2 = buffers = slots("A1", "B1", "A2", "B2")
    body = (
        copy(a1), copy(b1), product("acc1", a1, b1), *use("acc1", "D1"),
        copy(a2), copy(b2), product("acc2", a2, b2), *use("acc2", "D2"),
    )  # fmt: skip
    return synchronised(body, buffers, "D1", "D2")


def two_loops(stages: int = 3, prefetch: int = 1) -> kir.Kernel:
    """Two products of different depths in rings of their own, each used behind its loop."""
    a1, b1, a2, b2 = buffers = slots("A1", "B1", "A2", "B2")
    body = (
        steps("k", D, stages, prefetch, ("acc1", a1, b1)),
        *use("acc1", "D1"),
        steps("l", E, stages, prefetch, ("acc2", a2, b2)),
        *use("acc2", "D2"),
    )
    return synchronised(body, buffers, "D1", "D2")


def side_by_side(stages: int = 3, prefetch: int = 1) -> kir.Kernel:
    """Two products in one ring, sharing A; then both are used."""
    a1, b1, b2 = buffers = slots("A1", "B1", "B2")
    body = (
        steps("k", D, stages, prefetch, ("acc1", a1, b1), ("acc2", a1, b2)),
        *use("acc1", "D1"),
        *use("acc2", "D2"),
    )
    return synchronised(body, buffers, "D1", "D2")


def chain(stages: int = 3, prefetch: int = 1) -> kir.Kernel:
    """One product, used by the first of three operations in a row, and again by the last."""
    a1, b1 = buffers = slots("A1", "B1")
    two, out, to = fragment("twice"), fragment("out"), result("D1")
    body = (
        steps("k", D, stages, prefetch, ("acc1", a1, b1)),
        kir.Compute(two, "add", (fragment("acc1"), fragment("acc1"))),
        kir.Compute(out, "relu", (two,)),
        kir.Compute(out, "add", (out, fragment("acc1"))),
        kir.Store(kir.Box(to, (0, 0), (ROWS, COLS), to.extents), out, 2),
    )
    return synchronised(body, buffers, "D1")


def one_step() -> kir.Kernel:
    """A depth of one step, without a loop."""
    a1, b1 = buffers = slots("A1", "B1")
    body = (copy(a1), copy(b1), product("acc1", a1, b1), *use("acc1", "D1"))
    return synchronised(body, buffers, "D1")


def one_branch() -> kir.Kernel:
    """A product that one branch uses; the other stores zeros."""
    a1, b1 = buffers = slots("A1", "B1")
    zero, to = fragment("zero"), result("D1")
    clear = (
        kir.Compute(zero, "cast", (kir.Literal(0.0, DType.F32),)),
        kir.Store(kir.Box(to, (0, 0), (ROWS, COLS), to.extents), zero, 2),
    )
    body = (
        copy(a1), copy(b1), product("acc1", a1, b1),
        kir.IfThenElse(V >= 1, use("acc1", "D1"), clear),
    )  # fmt: skip
    return synchronised(body, buffers, "D1")
