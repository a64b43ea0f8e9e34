"""Mistakes in statements about tiles: each is refused with a message and a way out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kernel_parts import (
    ACC,
    ALPHA,
    B_BOX,
    BAR,
    FRAG_A,
    FRAG_B,
    ROUND,
    SA,
    SB,
    STRIPS,
    SY,
    TILE,
    TURNS,
    X_BOX,
    Y_BOX,
    M,
    X,
    Y,
    alone,
    clustered,
    copy,
    kernel,
    load,
    one,
    product,
    refused,
    registers,
    role,
    shaped,
    zero,
)

from fuser.dtype import DType
from fuser.errors import ScheduleError
from fuser.kernel import ir as kir
from fuser.kernel.text import line
from fuser.kernel.validate.legal import validate
from oracles.prover.coverage.outputs import covered

TURNED = kir.Fragment("turned", DType.BF16, kir.Layout((16, 64), 8, 128))
TURNED_STRIPS = replace(TURNED, layout=kir.Layout((16, 64), 2, 32, kir.Deal.STRIPS))
ROWS_OF_64 = replace(SA, name="R", shape=(16, 64), offset=8192)
SA32 = replace(SA, name="SA32", dtype=DType.F32, offset=8192)
COLUMN = replace(SA, name="C", shape=(64, 1), offset=8192)
BY_ROWS = kir.Layout((64, 16), 2, 128, kir.Deal.ROWS, across=8)
FOLDED = kir.Layout((64, 1), 2, 128, kir.Deal.STRIPS, folded=16)
BYTES = kir.Fragment("bytes", DType.I8, kir.Layout((64, 16), 1, 128, kir.Deal.STRIPS))
ACC16 = replace(ACC, dtype=DType.I32)
SHORT_LINE = replace(SA, name="L", shape=(8, 1), offset=8192)
FEWER = replace(TILE, layout=replace(ROUND, threads=64))


def slots(a: DType, b: DType, **change: Any) -> kir.Kernel:
    """A wgmma of slots of other types."""
    left = replace(SA, dtype=a)
    right = replace(SB, dtype=b, offset=left.end)
    out = replace(SY, offset=right.end)
    multiply = product(a=kir.Slot(left, 0), b=kir.Slot(right, 0), **change)
    return kernel(multiply, buffers=(left, right, out))


def stmatrix(
    dst: kir.Slot | kir.Box | None = None, layout: kir.Layout | None = None, width: int = 2
) -> kir.Store:
    """Store a tile with its axes exchanged on the way."""
    src = replace(TURNED_STRIPS, layout=layout or TURNED_STRIPS.layout)
    return kir.Store(dst or kir.Slot(SA, 0), src, width, matrix=True, transposed=True)


def ldmatrix(dst: kir.Fragment = TURNED_STRIPS, limit: tuple[int, int] | None = None) -> kir.Load:
    """Load a tile with its axes exchanged on the way."""
    return kir.Load(dst, kir.Slot(SA, 0), 2, matrix=True, transposed=True, limit=limit)


SWIZZLED = replace(SA, swizzle=32)
WORDS = replace(SA, dtype=DType.F32)
WORDS_STRIPS = replace(TURNED_STRIPS, dtype=DType.F32)
RUN = kir.Tensor("RUN", DType.BF16, (M,), (1,), 8)
LINE = replace(SA, shape=(128,))


def run(tensor: kir.Tensor) -> kir.TmaLoad:
    """Copy the beginning of a row in bulk."""
    return load(dst=kir.Slot(LINE, 0), src=kir.Box(tensor, (0,), (128,), (M,)), bulk=True)


SC = kir.Buffer("SC", DType.BF16, (8, 16), 2, SA.end + 256, 32, 512)


def stacked(second: kir.Buffer, a: kir.Buffer = SWIZZLED) -> kir.Kernel:
    """A wgmma whose columns come from two buffers."""
    a = replace(a, swizzle=32)
    first = kir.Buffer(
        "SB", DType.BF16, second.shape, 2, a.end, 32, max(second.pitch // 512, 1) * 512
    )
    multiply = product(
        acc=shaped(ACC, 64, 16), a=kir.Slot(a, 0), b=kir.Slot(first, 0), beside=(second,)
    )
    return kernel(multiply, buffers=(a, first, second))


SHARED = kir.Layout((4, 128), 2, 128, kir.Deal.ROWS, 1, 64)
HALVES = replace(SHARED, shape=(4, 2), vector=1, alike=32)


def by_rows(**change: Any) -> kir.Kernel:
    """A kernel of four warps that clears a tile of rows which threads share."""
    return alone(zero(kir.Fragment("rows", DType.F32, replace(SHARED, **change))))


def rows_folded(dst: kir.Layout, src: kir.Layout = SHARED) -> kir.Kernel:
    """One that puts such rows together."""
    rows, parts = (kir.Fragment(n, DType.F32, layout) for n, layout in (("rows", src), ("p", dst)))
    return kernel(role(zero(rows), kir.Reduce(parts, rows, "add")))


def spread(part: kir.Layout) -> kir.Kernel:
    """One that adds a part of such rows to them."""
    rows, other = (
        kir.Fragment(n, DType.F32, layout) for n, layout in (("rows", SHARED), ("p", part))
    )
    return kernel(role(zero(rows), zero(other), kir.Compute(rows, "add", (rows, other))))


MISTAKES: dict[str, tuple[str, kir.Kernel]] = {
    "rows by threads that do not divide": (
        "128 threads by 48 a row, of which 1 hold the same; use numbers that divide",
        by_rows(across=48),
    ),
    "rows of a warp and a half": (
        "neither whole warps nor do they divide one",
        alone(zero(kir.Fragment("rows", DType.F32, replace(SHARED, threads=96, across=48)))),
    ),
    "rows of some groups": (
        "2 groups of threads take 3 rows in turn; use a multiple",
        by_rows(shape=(3, 128)),
    ),
    "columns of no whole vectors": (
        "100 columns, of which 64 threads take vectors of 2; use a multiple of 128",
        by_rows(shape=(4, 100)),
    ),
    "rows put together by other threads": (
        "is shared by other threads than",
        rows_folded(replace(HALVES, across=128, alike=64)),
    ),
    "rows put together across warps": (
        "1 threads hold the same, then 64; a power of two as many do, of one warp",
        rows_folded(replace(HALVES, shape=(4, 1), alike=64)),
    ),
    "too many parts of rows": (
        "2 parts of a row are left, not 4 by 1; use 2 by 1",
        rows_folded(replace(HALVES, shape=(4, 4))),
    ),
    "a part of a row for all of it": (
        "p and rows have different layouts",
        spread(HALVES),
    ),
    "columns dealt to others": (
        "p and rows have different layouts",
        spread(replace(SHARED, shape=(1, 128), vector=1)),
    ),
    # --- what is not declared ---
    **{
        f"undeclared barrier of {type(stmt).__name__}": (
            "uses a barrier that the kernel does not declare; add bar to Kernel.barriers",
            kernel(one(stmt), barriers=()),
        )
        for stmt in (
            kir.MBarrierInit(BAR),
            kir.MBarrierInvalidate(BAR),
            kir.MBarrierArrive(BAR, 0),
            kir.MBarrierArriveExpectTx(BAR, 0, 16),
            kir.MBarrierExpectTx(BAR, 0, 16),
            kir.MBarrierWaitParity(BAR, 0, 0),
            kir.CpAsyncMBarrierArrive(BAR, 0, noinc=True),
            load(),
        )
    },
    "changed barrier": (
        "add bar to Kernel.barriers, with the same fields",
        kernel(kir.MBarrierArrive(replace(BAR, slots=3), 0)),
    ),
    "slot of a barrier": (
        r"uses slot 2; bar has slots 0..1: take the position % 2",
        kernel(kir.MBarrierArrive(BAR, 2)),
    ),
    "undeclared semaphore": (
        "uses a semaphore that the kernel does not declare; add turns to Kernel.semaphores",
        kernel(kir.BlockSerializeWait(TURNS, 0, 0), semaphores=()),
    ),
    "semaphore index": (
        "turns has 4 integers; use 0..3",
        kernel(kir.BlockSerializeWait(TURNS, 4, 0)),
    ),
    "negative turn": (
        "turn -1 is negative",
        kernel(one(kir.BlockSerializeRelease(TURNS, 0, -1))),
    ),
    "transposed box": (
        "a box is not transposed; take it through a slot, or drop transposed",
        kernel(role(kir.Load(TILE, X_BOX, 1, transposed=True))),
    ),
    "not the shape exchanged": (
        r"a slot of \(64, 16\) is not the fragment's \(64, 16\) .*; make it \(16, 64\)",
        kernel(role(kir.Load(TILE, kir.Slot(SA, 0), 1, transposed=True))),
    ),
    "transposed neighbours": (
        "width 2; neighbours of the fragment lie in rows of their own: use 1",
        kernel(role(kir.Store(kir.Slot(SA, 0), TURNED, 2, transposed=True))),
    ),
    "halves across into strips": (
        "turned is dealt in another way; give it Deal.ROUND, not folded",
        kernel(role(kir.Load(TURNED_STRIPS, kir.Slot(SA, 0), 1, transposed=True))),
    ),
    "words across from strips": (
        "turned is dealt in another way; give it Deal.ROUND, not folded",
        kernel(
            role(kir.Store(kir.Slot(WORDS, 0), WORDS_STRIPS, 1, transposed=True)), buffers=(WORDS,)
        ),
    ),
    "transposed by ldmatrix in rounds": (
        "turned is dealt in another way than tensor cores deal sums; give it Deal.STRIPS, not fold",
        kernel(role(kir.Load(TURNED, kir.Slot(SA, 0), 1, matrix=True, transposed=True))),
    ),
    "transposed by stmatrix where each warp has all": (
        "turned is dealt in another way than tensor cores deal sums; give it Deal.STRIPS, not fold",
        kernel(role(stmatrix(layout=replace(TURNED_STRIPS.layout, deal=kir.Deal.EACH_WARP)))),
    ),
    "transposed by stmatrix into the shape as it is": (
        r"a slot of \(16, 64\) is not the fragment's \(16, 64\) .*; make it \(64, 16\)",
        kernel(role(stmatrix(dst=kir.Slot(ROWS_OF_64, 0))), buffers=(SA, SB, SY, ROWS_OF_64)),
    ),
    "transposed by stmatrix in f32": (
        "exchange rows and columns of elements of 16 bits, SA32 holds f32; drop matrix",
        kernel(role(stmatrix(dst=kir.Slot(SA32, 0))), buffers=(SA, SB, SY, SA32)),
    ),
    "transposed by ldmatrix and converted": (
        "ldmatrix does not convert bf16 into f32; make them the same",
        kernel(role(ldmatrix(dst=replace(TURNED_STRIPS, dtype=DType.F32)))),
    ),
    "transposed by stmatrix, one by one": (
        "width 1 of vectors of 2; a register has 2 elements of 16 bits: use 2 for both",
        kernel(role(stmatrix(width=1))),
    ),
    "transposed by stmatrix, four by four": (
        "width 4 of vectors of 4; a register has 2 elements of 16 bits: use 2 for both",
        kernel(role(stmatrix(layout=replace(TURNED_STRIPS.layout, vector=4), width=4))),
    ),
    "transposed by one thread of stmatrix": (
        "its layout deals to 32 threads, 1 thread execute it",
        kernel(one(stmatrix())),
    ),
    "transposed by stmatrix into a box": (
        "a box is not transposed; take it through a slot, or drop transposed",
        kernel(role(stmatrix(dst=Y_BOX))),
    ),
    "transposed by stmatrix into another CTA": (
        "ldmatrix and stmatrix move tiles of the CTA's own shared memory; drop matrix",
        clustered(role(stmatrix(dst=kir.Slot(SA, 0, 1)))),
    ),
    "transposed up to a limit": (
        "a limit is of the rows and columns of a slot without a swizzle",
        kernel(role(ldmatrix(limit=(8, 8)))),
    ),
    "ldmatrix of shared rows": (
        "move vectors of 4 bytes held by tile as tensor cores hold them; drop matrix",
        kernel(role(kir.Load(replace(TILE, layout=BY_ROWS), kir.Slot(SA, 0), 2, matrix=True))),
    ),
    "ldmatrix of folded strips": (
        "move vectors of 4 bytes held by tile as tensor cores hold them; drop matrix",
        kernel(
            role(kir.Load(replace(TILE, layout=FOLDED), kir.Slot(COLUMN, 0), 1, matrix=True)),
            buffers=(SA, SB, SY, COLUMN),
        ),
    ),
    "transposed strips": (
        "turned is dealt in another way; give it Deal.ROUND, not folded",
        kernel(role(kir.Load(TURNED_STRIPS, kir.Slot(SA, 0), 1, transposed=True))),
    ),
    "undeclared tensor": (
        "uses a tensor that the kernel does not declare; add X to Kernel.tensors",
        kernel(one(load()), tensors=(Y,)),
    ),
    "undeclared buffer": (
        "uses a shared buffer that the kernel does not declare; add SA to Kernel.buffers",
        kernel(one(load()), buffers=(SB, SY)),
    ),
    "undeclared scalar": (
        "uses a scalar that the kernel does not declare; add alpha to Kernel.scalars",
        kernel(role(kir.Compute(ACC, "cast", (ALPHA,))), scalars=()),
    ),
    "slot": (
        "uses slot 2; SA has slots 0..1: take the position % 2",
        kernel(one(load(dst=kir.Slot(SA, 2)))),
    ),
    "store to an input": (
        "writes X, which is not an output or workspace; list it in Kernel.outputs",
        kernel(role(zero(TILE), kir.Store(X_BOX, TILE, 8))),
    ),
    "reduction into an input": (
        "writes Y, which is not an output",
        kernel(one(kir.TmaReduce(Y_BOX, kir.Slot(SY, 0))), outputs=()),
    ),
    "atomic add to an input": (
        "writes Y, which is not an output",
        kernel(role(zero(), kir.AtomicAdd(Y_BOX, ACC)), outputs=()),
    ),
    # --- copies by TMA ---
    "rank of a box": (
        "TmaLoad of X: origin, shape, limit and extents differ in rank: 1, 2, 2 and 2; give one",
        kernel(one(load(src=replace(X_BOX, origin=(0,))))),
    ),
    "empty box": (
        r"a box of \(64, 0\) is empty",
        kernel(one(load(src=replace(X_BOX, shape=(64, 0))))),
    ),
    "box and slot": (
        r"box \(8, 16\) of bf16 and slot \(64, 16\) of bf16 differ",
        kernel(one(load(src=B_BOX))),
    ),
    "another line": (
        r"box \(1, 16\) of bf16 and slot \(8, 1\) of bf16 differ; make them the same, or both",
        kernel(
            one(load(src=replace(X_BOX, shape=(1, 16)), dst=kir.Slot(SHORT_LINE, 0))),
            buffers=(SA, SB, SHORT_LINE),
        ),
    ),
    "type of a copy": (
        r"box \(64, 8\) of f32 and slot \(64, 8\) of bf16 differ",
        kernel(
            one(kir.TmaStore(Y_BOX, kir.Slot(replace(SY, dtype=DType.BF16), 0))),
            buffers=(SA, SB, replace(SY, dtype=DType.BF16)),
        ),
    ),
    "limit of a copy": (
        "clips at the tensor's extents, not elsewhere; make limit equal extents",
        kernel(one(load(src=replace(X_BOX, limit=(64, 16))))),
    ),
    "alignment of a store": (
        "writes chunks of 16 bytes, Y is aligned to 4; align Y",
        kernel(
            one(kir.TmaReduce(replace(Y_BOX, tensor=replace(Y, aligned=1)), kir.Slot(SY, 0))),
            tensors=(X, replace(Y, aligned=1)),
        ),
    ),
    "large box": (
        r"at most 256 elements per axis, rows of 16-byte multiples; this one is \(512, 16\)",
        kernel(
            one(
                load(
                    dst=kir.Slot(replace(SA, shape=(512, 16)), 0),
                    src=replace(X_BOX, shape=(512, 16)),
                )
            ),
            buffers=(replace(SA, shape=(512, 16)),),
        ),
    ),
    "columns of a copy": (
        "wants neighbours along the last axis of X, its stride is M",
        kernel(
            one(load(src=replace(X_BOX, tensor=replace(X, strides=(1, M))))),
            tensors=(replace(X, strides=(1, M)), Y),
        ),
    ),
    # --- bulk copies without a map ---
    "rows that lie apart": (
        "a bulk copy takes one run of memory; axis 1 of X has extent",
        kernel(one(load(bulk=True))),
    ),
    "a bulk copy into a neighbour": (
        "a copy names slots of its own CTA",
        clustered(one(load(dst=kir.Slot(SA, 0, 1), bulk=True))),
    ),
    "bulk copies to several": (
        "a bulk copy has no tensor map and goes to one CTA; drop multicast",
        clustered(one(load(multicast=3, bulk=True))),
    ),
    "other bulk sizes": (
        r"box \(8, 16\) of bf16 and slot \(64, 16\) of bf16 differ",
        kernel(one(load(src=B_BOX, bulk=True))),
    ),
    "odd bulk addresses": (
        "goes from and to multiples of 16 bytes; RUN is aligned to 1 elements",
        kernel(
            one(run(replace(RUN, aligned=1))),
            tensors=(X, Y, replace(RUN, aligned=1)),
            buffers=(LINE,),
        ),
    ),
    "odd bulk sizes": (
        "takes multiples of 16 bytes, RUN is ragged; end at a multiple of 8 elements",
        kernel(
            one(run(replace(RUN, ragged=True))),
            tensors=(X, Y, replace(RUN, ragged=True)),
            buffers=(LINE,),
        ),
    ),
    "limit of a box": (
        "a limit is of the rows and columns of a slot",
        kernel(role(zero(), kir.Load(ACC, Y_BOX, 1, limit=(1, 1)))),
    ),
    "copy into a neighbour": (
        "a copy names slots of its own CTA",
        clustered(one(load(dst=kir.Slot(SA, 0, 1)))),
    ),
    "multicast without clusters": (
        "sends to CTAs of a cluster, but the kernel has no clusters; set Kernel.cluster",
        kernel(one(load(multicast=3))),
    ),
    "mask": (
        "mask 4 names CTAs outside a cluster of 2; use 1..3",
        clustered(one(load(multicast=4))),
    ),
    "slot of another CTA without clusters": (
        "names CTA 1 of a cluster, but the kernel has no clusters",
        kernel(role(zero(), kir.Store(kir.Slot(SY, 0, 1), ACC, 2))),
    ),
    # --- copies by cp.async ---
    "bytes of cp.async": (
        "copies 2 bytes at a time; cp.async takes 4, 8 or 16",
        kernel(copy(width=1)),
    ),
    "vector of cp.async": (
        "width 8 must divide vector 4",
        kernel(copy(layout=replace(ROUND, vector=4))),
    ),
    "layout of cp.async": (
        r"box \(64, 16\), slot \(64, 16\) and layout \(8, 16\) differ",
        kernel(copy(layout=replace(ROUND, shape=(8, 16)))),
    ),
    "threads of cp.async": (
        "deals to 256 threads, 128 threads of role r execute it; use a layout for 128",
        kernel(copy(layout=replace(ROUND, threads=256))),
    ),
    "cp.async in an elect": (
        "deals to 128 threads, 1 thread of role r execute it",
        kernel(role(one(kir.CpAsync(kir.Slot(SA, 0), X_BOX, ROUND, 8)))),
    ),
    "type of cp.async": (
        "copies f32 into bf16; cp.async does not convert",
        kernel(copy(src=replace(X_BOX, tensor=Y), width=4)),
    ),
    "cp.async into a neighbour": (
        "writes its own CTA's shared memory; drop cta",
        clustered(copy(dst=kir.Slot(SA, 0, 1))),
    ),
    # --- st.async ---
    "st.async without a cluster": (
        "reaches into a cluster, but the kernel has no clusters; set Kernel.cluster",
        kernel(role(zero(), kir.StAsync(kir.Slot(SY, 0), ACC, BAR, 0, 2))),
    ),
    "bytes of st.async": (
        "stores 2 bytes at a time; st.async takes 4, 8 or 16: change width",
        clustered(role(kir.Load(TILE, X_BOX, 8), kir.StAsync(kir.Slot(SA, 0, 1), TILE, BAR, 0, 1))),
    ),
    "threads of st.async": (
        r"128 threads of role r execute it, tile is dealt to 64 \(round\); its bytes count once",
        clustered(
            role(kir.Load(FEWER, X_BOX, 8), kir.StAsync(kir.Slot(SA, 0, 1), FEWER, BAR, 0, 8))
        ),
    ),
    # --- loads, stores, layouts ---
    "tile of a load": (
        r"a tile of \(8, 16\) does not broadcast to the fragment's \(64, 16\)",
        alone(kir.Load(TILE, B_BOX, 8)),
    ),
    "width": (
        "width 3 must divide vector 8, and that the last extent 16",
        alone(kir.Load(TILE, X_BOX, 3)),
    ),
    "wide": (
        "16 elements of bf16 are 32 bytes; an access moves 1, 2, 4, 8, 16: use a width of at most",
        alone(kir.Load(replace(TILE, layout=replace(ROUND, vector=16)), X_BOX, 16)),
    ),
    "no width": ("width 0 must divide", alone(kir.Load(TILE, X_BOX, 0))),
    "store of a broadcast": (
        "must not write one element from several registers",
        kernel(role(zero(), kir.Store(replace(Y_BOX, shape=(1, 8)), ACC, 2))),
    ),
    "threads of a layout": (
        "deals to 128 threads, 32 threads of role r execute it",
        kernel(role(kir.Load(TILE, X_BOX, 8), warps=1)),
    ),
    "vectors of a layout": (
        "rows of 16 are no whole vectors of 3",
        alone(zero(replace(TILE, layout=replace(ROUND, vector=3)))),
    ),
    "empty layout": (
        "holds nothing; use numbers of at least 1",
        alone(zero(shaped(TILE, 0, 16))),
    ),
    "strips": (
        r"strips hold tiles of multiples of 16 x 8, .* this one is \(24, 8\)",
        alone(zero(shaped(ACC, 24, 8))),
    ),
    "vector of strips": ("by 4 and 128 threads", alone(zero(shaped(ACC, 64, 8, vector=4)))),
    "axes of strips": ("this one is", alone(zero(shaped(ACC, 2, 64, 8)))),
    "each warp": (
        r"each_warp hold tiles of multiples of 8 x 8, .* this one is \(12, 16\)",
        alone(zero(shaped(FRAG_B, 12, 16))),
    ),
    "huge tile": ("fits no registers", alone(zero(shaped(TILE, 1 << 17, 16)))),
    "layouts of a compute": (
        "tile and acc have different layouts",
        kernel(role(zero(TILE), kir.Compute(ACC, "cast", (TILE,)))),
    ),
    "axis": (
        "a tile of 2 axes has no axis 2; use 0..1",
        alone(kir.Coordinate(replace(TILE, dtype=DType.I64), 2, 0)),
    ),
    "type of a coordinate": (
        "gives i64 or i32, tile is bf16; make it i64",
        alone(kir.Coordinate(TILE, 0, 0)),
    ),
    "bytes of other lanes": (
        r"of bytes \(64, 16\) by 1 and 128; give as many threads and rows two elements",
        kernel(role(zero(BYTES), kir.Unpack(ACC16, BYTES))),
    ),
    "what is unpacked": (
        "bf16 into i32; make i32, f16 or bf16 of i8",
        kernel(role(zero(TILE), kir.Unpack(ACC16, TILE))),
    ),
    # --- fragments ---
    "no value": (
        r"uses acc, to which no statement before it gives a value; load or compute it first",
        alone(kir.Store(Y_BOX, ACC, 2)),
    ),
    "a value of other threads": (
        "uses acc, to which no statement before it gives a value",
        kernel(role(zero()), role(kir.Store(Y_BOX, ACC, 2), first=4, name="s"), threads=256),
    ),
    "a value later": ("uses acc", kernel(role(kir.Store(Y_BOX, ACC, 2), zero()))),
    "accumulator without a start": (
        "uses acc",
        alone(kir.Wgmma(ACC, kir.Slot(SA, 0), kir.Slot(SB, 0))),
    ),
    "a value in another layout": (
        "uses acc in another layout or type than it got its value in; use f32",
        kernel(role(zero(), kir.Store(Y_BOX, replace(ACC, layout=kir.Layout((64, 8), 2, 128)), 2))),
    ),
    # --- tensor cores ---
    "accumulator in rounds": (
        "wants acc in strips; give it Deal.STRIPS",
        kernel(product(acc=replace(ACC, layout=replace(STRIPS, deal=kir.Deal.ROUND)))),
    ),
    "rows of an accumulator": (
        "32 rows for 1 warpgroups; each takes a multiple of 64",
        kernel(
            product(acc=shaped(ACC, 32, 8), a=kir.Slot(replace(SA, shape=(32, 16)), 0)),
            buffers=(replace(SA, shape=(32, 16)), SB),
        ),
    ),
    "columns of an accumulator": (
        "264 columns; use a multiple of 8 in 8..256",
        kernel(
            product(acc=shaped(ACC, 64, 264), b=kir.Slot(replace(SB, shape=(264, 16)), 0)),
            buffers=(SA, replace(SB, shape=(264, 16))),
        ),
    ),
    "K of wgmma": (
        "K is 8; use a multiple of 16",
        kernel(
            product(
                a=kir.Slot(replace(SA, shape=(64, 8)), 0), b=kir.Slot(replace(SB, shape=(8, 8)), 0)
            ),
            buffers=(replace(SA, shape=(64, 8)), replace(SB, shape=(8, 8))),
        ),
    ),
    "shapes of wgmma": (
        r"\(M, N\) \(64, 8\), \(M, K\) \(64, 16\) and \(N, K\) \(64, 16\) do not fit",
        kernel(product(b=kir.Slot(SA, 1))),
    ),
    "transposed": ("do not fit; make M, N and K agree", kernel(product(b_transposed=True))),
    "columns that are not behind each other": (
        "SC begins at byte 4864, a slot of SB ends at 4352; put one behind the other",
        stacked(replace(SC, offset=4864)),
    ),
    "columns of another kind": (
        "SC and SB differ in type, slots, swizzle or pitch; make them alike",
        stacked(replace(SC, pitch=768)),
    ),
    "columns of two panels": (
        "rows of 64 bytes with a swizzle of 32; the columns of several buffers lie behind each",
        stacked(replace(SC, shape=(8, 32), offset=8704, pitch=1024), replace(SA, shape=(64, 32))),
    ),
    "columns of which some are missing": (
        r"\(M, N\) \(64, 16\), \(M, K\) \(64, 16\) and \(N, K\) \(8, 16\) do not fit",
        kernel(
            product(acc=shaped(ACC, 64, 16), a=kir.Slot(SWIZZLED, 0), b=kir.Slot(SC, 0)),
            buffers=(SWIZZLED, SC),
        ),
    ),
    "types of wgmma": (
        "multiplies bf16 by f16; use one of f16, bf16, f32, i8 for both, or 8-bit floats",
        kernel(
            product(b=kir.Slot(replace(SB, dtype=DType.F16), 0)),
            buffers=(SA, replace(SB, dtype=DType.F16)),
        ),
    ),
    "type of an accumulator": (
        "adds up in f32, acc is bf16",
        kernel(product(acc=replace(ACC, dtype=DType.BF16))),
    ),
    "threads of an operand": (
        "acc is dealt to 128 threads, a to 64; use one number",
        kernel(product(a=shaped(FRAG_A, 64, 16, threads=64))),
    ),
    "operand of a neighbour": (
        "reads slots of its own CTA; drop cta of SB",
        clustered(product(b=kir.Slot(SB, 0, 1))),
    ),
    "operand of mma": (
        "wants b in each warp; load it with Deal.EACH_WARP",
        kernel(registers(b=shaped(FRAG_B, 8, 16, deal=kir.Deal.ROUND))),
    ),
    "strips of mma": (
        "wants a in strips",
        kernel(registers(a=shaped(FRAG_A, 64, 16, deal=kir.Deal.ROUND))),
    ),
    "threads of mma": (
        "are dealt to 128, 64 and 128 threads; use one number",
        kernel(registers(a=shaped(FRAG_A, 64, 16, threads=64))),
    ),
    "shapes of mma": ("do not fit", kernel(registers(b=shaped(FRAG_B, 16, 16)))),
    # --- types of tensor cores ---
    "sums of i8": ("adds up in i32, acc is f32; make it i32", slots(DType.I8, DType.I8)),
    "sums of bf16 in f16": (
        "adds up in f32, acc is f16; make it f32",
        kernel(product(acc=replace(ACC, dtype=DType.F16))),
    ),
    "i8 by f8": ("multiplies i8 by f8e4m3; use one of", slots(DType.I8, DType.F8E4M3)),
    "step of i8": (
        "K is 16; use a multiple of 32",
        slots(DType.I8, DType.I8, acc=replace(ACC, dtype=DType.I32)),
    ),
    "transposed tf32": (
        "only operands of 16 bits may have K across their rows, these are f32",
        slots(DType.F32, DType.F32, a_transposed=True),
    ),
    "tf32 from registers": (
        "a in registers is f32; take it from a slot",
        kernel(product(a=replace(FRAG_A, dtype=DType.F32))),
    ),
    "vectors of an operand": (
        "a is held by vectors of 2, a register has 1 of f32; use vectors of 1",
        kernel(registers(a=replace(FRAG_A, dtype=DType.F32), b=replace(FRAG_B, dtype=DType.F32))),
    ),
    "vectors of sums": (
        "acc is held by vectors of 1, sums by vectors of 2; use those",
        kernel(product(acc=shaped(ACC, 64, 8, vector=1))),
    ),
    "mma of 8-bit floats": (
        "mma multiplies no f8e4m3; use Wgmma",
        kernel(
            registers(
                a=replace(shaped(FRAG_A, 64, 32, vector=4), dtype=DType.F8E4M3),
                b=replace(shaped(FRAG_B, 8, 32, vector=4), dtype=DType.F8E4M3),
            )
        ),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_with_a_way_out(name: str) -> None:
    """The message comes from this mistake, not from another one beside it, and says what to do."""
    says, wrong = MISTAKES[name]
    refused(wrong, says)


@pytest.mark.parametrize("swizzle", [0, 32])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
def test_matrices_are_transposed_on_their_way(swizzle: int, dtype: DType) -> None:
    """Through slots of 16 bits, swizzled or not; sums of f32 are rounded before."""
    slot = kir.Slot(replace(SA, swizzle=swizzle, dtype=DType.F16), 0)
    src = replace(TURNED_STRIPS, dtype=dtype)
    body = [kir.Compute(src, "cast", (kir.Literal(0.0, DType.F32),))]
    moves: list[kir.Stmt] = [kir.Store(slot, src, 2, matrix=True, transposed=True)]
    if dtype is DType.F16:
        moves.append(kir.Load(src, slot, 2, matrix=True, transposed=True))
    validate(kernel(role(*body, *moves), buffers=(slot.buffer,)), after="kernel", final=True)
    assert all(line(move).endswith("width=2, matrix, transposed)") for move in moves)


# --- reductions in registers are refused where no thread or warp has what they put together -------


ROWS = kir.Layout((8, 64), 2, 64)
FOLDING = kir.Layout((64, 16), 2, 128, kir.Deal.STRIPS)
SHARED = kir.Layout((8, 16), 1, 64, kir.Deal.ROWS, across=64, alike=4)
SLIDING = kir.Layout((8, 64), 4, 64, kir.Deal.ROWS, across=8, slides=True)
GIVEN = kir.Tensor("X", DType.F32, (64, 64), (64, 1), 4)


def reducing(src: kir.Layout, dst: kir.Layout, op: str = "add", **how: object) -> kir.Kernel:
    """Load, reduce and store."""
    one = kir.Fragment("one", DType.F32, src)
    two = kir.Fragment("two", how.get("dtype", DType.F32), dst)  # type: ignore[arg-type]
    y = kir.Tensor("Y", DType.F32, dst.shape, (dst.shape[-1], 1), 1)
    reduce: kir.Stmt = kir.Reduce(two, one, op)
    if how.get("elected"):
        reduce = kir.Elect(kir.Per.ROLE, (reduce,))
    body = (
        kir.Load(one, kir.Box(GIVEN, (0, 0), src.shape, (64, 64)), 1),
        reduce,
        kir.Store(kir.Box(y, (0, 0), dst.shape, dst.shape), two, 1),
    )
    threads = max(src.threads, 32)
    return kir.Kernel("k", (), (GIVEN, y), (), (), (), threads, body, ("Y",))


def folded(layout: kir.Layout, by: int) -> kir.Layout:
    """Neighbours along rows put together."""
    shape = (layout.shape[0], layout.shape[1] // by)
    return replace(layout, shape=shape, folded=by)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (ROWS, folded(ROWS, 64)),
        (ROWS, folded(ROWS, 16)),
        (ROWS, folded(ROWS, 2)),
        (replace(ROWS, vector=1), folded(replace(ROWS, vector=1), 32)),
        (FOLDING, folded(FOLDING, 16)),
        (kir.Layout((8, 64), 1, 64), kir.Layout((1, 64), 1, 64)),
        (kir.Layout((8, 64), 2, 32), kir.Layout((1, 64), 2, 32)),
        (kir.Layout((8, 64), 2, 64), kir.Layout((2, 64), 2, 64)),
        (SHARED, replace(SHARED, shape=(1, 16))),
        (SLIDING, replace(SLIDING, shape=(8, 1), vector=1, alike=8, slides=False)),
    ],
)
def test_what_a_warp_or_a_thread_holds_can_be_put_together(
    src: kir.Layout, dst: kir.Layout
) -> None:
    """Along rows by lanes, down columns by each thread; the judge of coverage thinks so too."""
    made = reducing(src, dst)
    validate(made, after="kernel", final=True)
    assert not [f for f in covered(made, rlimit=500_000).findings if "hands" in f.witness]


WRONG_REDUCTIONS: dict[str, tuple[str, kir.Kernel]] = {
    "a row of two warps": (
        "64 neighbours lie in 64 lanes; a warp puts a power of two of them together, at most 32",
        reducing(replace(ROWS, vector=1), folded(replace(ROWS, vector=1), 64)),
    ),
    "three lanes": (
        "6 neighbours lie in 3 lanes",
        reducing(kir.Layout((8, 48), 2, 64), kir.Layout((8, 8), 2, 64, folded=6)),
    ),
    "half a vector": (
        "3 neighbours are no whole vectors of 2; fold along rows of vectors",
        reducing(kir.Layout((8, 48), 2, 64), kir.Layout((8, 16), 2, 64, folded=3)),
    ),
    "half a row of strips": (
        "strips are folded by whole rows, not by 8 of them",
        reducing(FOLDING, folded(FOLDING, 8)),
    ),
    "another layout": (
        r"two is a fold of \(8, 64\) by 2 and 64 threads, one is \(8, 64\) by 1 and 64; fold the",
        reducing(replace(ROWS, vector=1), folded(ROWS, 16)),
    ),
    "columns of several threads": (
        "rows of 48 by 1 and 32 threads: a thread holds no whole columns; use rows of "
        "multiples of 32",
        reducing(kir.Layout((8, 48), 1, 32), kir.Layout((1, 48), 1, 32)),
    ),
    "three rows of eight": (
        "is neither a fold of .* nor a part of its rows; use either",
        reducing(kir.Layout((8, 64), 1, 64), kir.Layout((3, 64), 1, 64)),
    ),
    "rows of some of the threads": (
        "32 of 64 threads share a row; let all of them share each",
        reducing(replace(SHARED, across=32), replace(SHARED, across=32, shape=(2, 16))),
    ),
    "rows that still slide": (
        "is shared by other threads than .*, or has other rows; make them equal",
        reducing(SLIDING, replace(SLIDING, shape=(8, 1), vector=1, alike=8)),
    ),
    "rows that slide by half a vector": (
        "one slides, by vectors of 8 bytes; load rows of neighbours in memory, by 16 bytes",
        reducing(
            replace(SLIDING, vector=2),
            replace(SLIDING, shape=(8, 1), vector=1, alike=8, slides=False),
        ),
    ),
    "a fold again": (
        "one is folded already; reduce the fragment it is from",
        reducing(folded(ROWS, 2), folded(ROWS, 4)),
    ),
    "types": (
        "f32 into f16; make them the same",
        reducing(ROWS, folded(ROWS, 64), dtype=DType.F16),
    ),
    "operation": (
        "sub is no way to put two together; use add, mul, maximum, minimum",
        reducing(ROWS, folded(ROWS, 64), "sub"),
    ),
    "one thread": (
        "stands inside an elect; whole warps must reach it: move it out of the elect",
        reducing(ROWS, folded(ROWS, 64), elected=True),
    ),
}


@pytest.mark.parametrize("name", WRONG_REDUCTIONS)
def test_a_wrong_reduction_is_refused_with_a_way_out(name: str) -> None:
    """In the documented form."""
    says, made = WRONG_REDUCTIONS[name]
    with pytest.raises(ScheduleError, match=f"^after kernel: `.*{says}"):
        validate(made, after="kernel", final=True)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (replace(ROWS, vector=1), folded(replace(ROWS, vector=1), 64)),
        (FOLDING, folded(FOLDING, 8)),
        (kir.Layout((8, 48), 1, 32), kir.Layout((1, 48), 1, 32)),
        (replace(ROWS, vector=1), folded(ROWS, 16)),
        (kir.Layout((8, 64), 1, 64), kir.Layout((3, 64), 1, 64)),
        (replace(SHARED, across=32), replace(SHARED, across=32, shape=(2, 16))),
        (SLIDING, replace(SLIDING, shape=(8, 1), vector=1, alike=8)),
    ],
)
def test_the_judge_of_coverage_refuses_it_as_well(src: kir.Layout, dst: kir.Layout) -> None:
    """It does not rely on validation."""
    assert any("hands" in f.witness for f in covered(reducing(src, dst), rlimit=500_000).findings)


def test_rows_that_slide_have_room_and_are_not_stored() -> None:
    """64 columns do not hold 64 elements wherever they begin, and nobody knows where each is."""
    one = kir.Fragment("one", DType.F32, SLIDING)
    made = reducing(SLIDING, replace(SLIDING, shape=(8, 1), vector=1, alike=8, slides=False))
    says = "a row may not fit 64 columns of one"
    assert any(says in f.witness for f in covered(made, rlimit=500_000).findings)
    y = kir.Tensor("Y", DType.F32, (8, 64), (64, 1), 1)
    store = kir.Store(kir.Box(y, (0, 0), (8, 64), (8, 64)), one, 1)
    stored = replace(made, tensors=(GIVEN, y), body=(made.body[0], store))
    with pytest.raises(ScheduleError, match="nobody knows who holds what of a tile that slides"):
        validate(stored, after="kernel", final=True)
    findings = covered(stored, rlimit=500_000).findings
    assert any("nobody holds known parts of it" in f.witness for f in findings)
