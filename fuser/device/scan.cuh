// Elements of a tile put together up to each: along rows by neighbouring lanes of a warp, or by threads that hold whole
// rows; down columns by each thread.  EXCLUSIVE leaves out the element itself.
// Source: PTX ISA, "shfl.sync".
#pragma once
#include "tile.cuh"

namespace scan {

// A thread has PER_ROW neighbours of each of ROWS rows, and the LANES lanes of a run one after the other.
template <int ROWS, int PER_ROW, int LANES, bool EXCLUSIVE, class R, class S, class B, class F>
__device__ __forceinline__ void lanes(R (&dst)[ROWS * PER_ROW], S src, B start, F op, int tid) {
  const int lane = uint32(tid) % LANES;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    R own[PER_ROW];
#pragma unroll
    for (int i = 0; i < PER_ROW; ++i) own[i] = i == 0 ? src(r * PER_ROW) : op(own[i == 0 ? 0 : i - 1], src(r * PER_ROW + i));
    R before = own[PER_ROW - 1];
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) {
      const R less = R(__shfl_up_sync(0xffffffffu, before, step, LANES));
      before = lane >= step ? op(less, before) : before;
    }
    before = R(__shfl_up_sync(0xffffffffu, before, 1, LANES));
    before = lane == 0 ? start(r) : op(start(r), before);
#pragma unroll
    for (int i = 0; i < PER_ROW; ++i) {
      if constexpr (EXCLUSIVE) dst[r * PER_ROW + i] = i == 0 ? before : op(before, own[i == 0 ? 0 : i - 1]);
      else dst[r * PER_ROW + i] = op(before, own[i]);
    }
  }
}

// A thread has all COLS elements of its rows; D: the layout of what it keeps of them.
template <class D, int COLS, bool EXCLUSIVE, class R, class S, class B, class F>
__device__ __forceinline__ void held(R (&dst)[D::kRegisters], S src, B start, F op, int tid) {
  constexpr int kKept = D::kPerRow * D::kVec;
#pragma unroll
  for (int r = 0; r < D::kRegisters / kKept; ++r) {
    R before = start(r);
#pragma unroll
    for (int c = 0; c < COLS; ++c) {
      const R with = op(before, src(r * COLS + c));
#pragma unroll
      for (int i = 0; i < kKept; ++i)
        if (D::col(i / D::kVec, tid) + i % D::kVec == c) dst[r * kKept + i] = EXCLUSIVE ? before : with;
      before = with;
    }
  }
}

// A thread has PER_ROW elements of each row, below each other.
template <int PER_ROW, bool EXCLUSIVE, int N, class R, class S, class B, class F>
__device__ __forceinline__ void down(R (&dst)[N], S src, B start, F op) {
#pragma unroll
  for (int i = 0; i < PER_ROW; ++i) {
    R before = start(i);
#pragma unroll
    for (int n = i; n < N; n += PER_ROW) {
      const R with = op(before, src(n));
      dst[n] = EXCLUSIVE ? before : with;
      before = with;
    }
  }
}

}  // namespace scan
