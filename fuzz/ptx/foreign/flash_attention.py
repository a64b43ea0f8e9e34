"""FlashAttention-3: forward, by the CUTLASS of the table in the place of the project's submodule.

One persistent CTA has two tiles of queries: with a mask and 128 columns it draws them as tickets;
without, and with 64 columns, P goes through shared memory.  The ring of two stages goes round.

Source: `hopper/flash_fwd_launch_template.h`, `run_flash_fwd`; options as in `hopper/setup.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from fuzz.ptx.foreign.build import Arrays, Foreign
from fuzz.ptx.foreign.values import Floats, compared, from_bf16, put, to_bf16
from fuzz.ptx.subjects import Memory

INCLUDES = ("flash-attention/hopper", "cutlass/include")
OPTIONS = (
    "--use_fast_math",
    "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED",
    "-DCUTLASS_ENABLE_GDC_FOR_SM90",
    "-DCUTLASS_DEBUG_TRACE_LEVEL=0",
)

DRIVER = """
#include "flash_fwd_launch_template.h"
void drive() {
    using T = cutlass::bfloat16_t;
    const int queries = QUERIES, keys = KEYS, columns = COLUMNS;
    recorder_sms(1);
    Flash_fwd_params p = {};
    p.q_ptr = named<T>("q", queries * columns);
    p.k_ptr = named<T>("k", keys * columns);
    p.v_ptr = named<T>("v", keys * columns);
    p.o_ptr = named<T>("o", queries * columns);
    p.softmax_lse_ptr = named<float>("lse", queries);
    p.tile_count_semaphore = named<int>("tickets", 1);
    p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = columns;
    p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = columns;
    p.q_batch_stride = p.o_batch_stride = queries * columns;
    p.k_batch_stride = p.v_batch_stride = keys * columns;
    p.v_dim_stride = 1;
    p.h = p.h_k = p.b = p.b_k = p.num_splits = p.num_sm = 1;
    p.seqlen_q = p.total_q = queries, p.seqlen_k = p.total_k = keys;
    p.d = p.dv = columns;
    p.scale_softmax = 1 / sqrtf(columns);
    p.window_size_left = -1, p.window_size_right = CAUSAL ? 0 : -1;
    p.is_bf16 = true, p.is_causal = CAUSAL, p.arch = 90;
    run_flash_fwd<90, COLUMNS, COLUMNS, 1, T, T, CAUSAL, false, false, false, false, false, false,
                  false, false, false>(p, nullptr);
}
"""


def attended(
    queries: int, keys: int, columns: int, *, causal: bool = False, sums: bool = True
) -> Callable[[Arrays], Callable[[Memory], str]]:
    """Return what fills q, k and v in bf16, and compares o and, with `sums`, lse.

    With a mask the last query has all keys.
    """

    def fill(memory: Arrays) -> Callable[[Memory], str]:
        drawn = np.random.default_rng(7)
        q, k, v = (_rounded(drawn, (n, columns)) for n in (queries, keys, keys))
        for name, one in (("q", q), ("k", k), ("v", v)):
            put(memory[name], to_bf16(one))
        scores = (q @ k.T).astype(np.float64) / np.sqrt(columns)
        if causal:
            seen = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
            scores = np.where(seen, scores, -np.inf)
        most = scores.max(axis=1, keepdims=True)
        powers = np.exp(scores - most)
        total = powers.sum(axis=1, keepdims=True)
        near = compared("o", (powers @ v / total).astype(np.float32), from_bf16, near=0.01)
        if not sums:
            return near
        lse = (np.log(total) + most).astype(np.float32).reshape(-1)
        near_sum = compared("lse", lse, lambda raw: raw.view(np.float32), near=1e-3)
        return lambda after: near(after) or near_sum(after)

    return fill


def _rounded(drawn: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return normal numbers that bf16 holds."""
    raw = to_bf16(drawn.standard_normal(shape))
    return from_bf16(raw.reshape(-1).view(np.uint8)).reshape(shape)


def kernels() -> Iterator[Foreign]:
    """Yield the two instances."""
    for queries, keys, columns, causal in ((256, 384, 128, True), (384, 384, 64, False)):
        given = {"QUERIES": queries, "KEYS": keys, "COLUMNS": columns}
        driver = DRIVER.replace("CAUSAL", "true" if causal else "false")
        for name, number in given.items():
            driver = driver.replace(name, str(number))
        yield Foreign(
            f"FlashAttention-3 D {columns}{', causal' if causal else ''}",
            ("flash-attention", "cutlass"),
            INCLUDES,
            driver,
            attended(queries, keys, columns, causal=causal),
            options=OPTIONS,
        )
