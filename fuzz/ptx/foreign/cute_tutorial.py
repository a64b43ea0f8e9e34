"""CuTe's tutorials for Hopper: one warpgroup's ring of TMA copies, and one of `cp.async` copies.

Source: CUTLASS, `examples/cute/tutorial/hopper/wgmma_tma_sm90.cu` and `wgmma_sm90.cu`, `gemm`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fuzz.ptx.foreign.build import Arrays, Edit, Foreign
from fuzz.ptx.foreign.values import compared, from_f16, integers, put
from fuzz.ptx.subjects import Memory

FOLDER = "cutlass/examples/cute/tutorial/hopper"
INCLUDES = (FOLDER, "cutlass/include", "cutlass/tools/util/include")

DRIVER = """
#define main main_of_the_tutorial
#include "FILE"
#undef main
void drive() {
    using T = cute::half_t;
    const int m = ROWS, n = COLUMNS, k = DEPTH;
    T *a = named<T>("a", m * k), *b = named<T>("b", n * k), *c = named<T>("c", m * n);
    gemm('TRANSA', 'TRANSB', m, n, k, T(1.0f), a, LDA, b, LDB, T(0.0f), c, m);
}
"""

JOINED = Edit(
    f"{FOLDER}/wgmma_sm90.cu",
    "    cp_async_wait<0>();\n",
    "    cp_async_wait<0>();\n"
    '    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n'
    "    __syncthreads();\n",
    "each thread tells the async proxy of its copies, and joins the others before the wgmma",
)


def _filled(m: int, n: int, k: int, *, rows: bool) -> Callable[[Arrays], Callable[[Memory], str]]:
    """Fill a and b, whose rows lie along K or, without `rows`, along M and N; c is N x M."""

    def fill(memory: Arrays) -> Callable[[Memory], str]:
        a, b = integers((m, k), 1), integers((n, k), 2)
        put(memory["a"], (a if rows else a.T).astype("f2"))
        put(memory["b"], (b if rows else b.T).astype("f2"))
        return compared("c", (a @ b.T).T, from_f16)

    return fill


def kernels() -> Iterator[Foreign]:
    """Yield both tutorials, for both orders of A and B in memory; the second as mended, too."""
    for edits in ((), (JOINED,)):
        for file in ("wgmma_tma_sm90.cu", "wgmma_sm90.cu"):
            if edits and file not in edits[0].path:
                continue
            for order in ("NT", "TN"):
                yield _tutorial(file, order, edits)


def _tutorial(file: str, order: str, edits: tuple[Edit, ...]) -> Foreign:
    m, n, k = (256, 128, 320) if "tma" in file else (128, 128, 320)
    given = {"FILE": file, "TRANSA": order[0], "TRANSB": order[1]}
    given |= {"LDA": "m", "LDB": "n"} if order == "NT" else {"LDA": "k", "LDB": "k"}
    given |= {"ROWS": str(m), "COLUMNS": str(n), "DEPTH": str(k)}
    driver = DRIVER
    for name, text in given.items():
        driver = driver.replace(name, text)
    return Foreign(
        f"CuTe {file.removesuffix('.cu')} {order}{', mended' if edits else ''}",
        ("cutlass",),
        INCLUDES,
        driver,
        _filled(m, n, k, rows=order == "TN"),
        edits,
    )
