// Tiles that are read or written in slots with rows and columns exchanged: element (r, c) of the
// tile is element (c, r) of the slot.
//
// Banks.  A thread wants VEC neighbours of a row of the tile: one element of each of VEC rows of the
// slot.  Where a slot is swizzled, its rows c and d have a column in different chunks of 16 bytes of
// the 128 that all banks hold, if c % 8 and d % 8 differ: by the swizzle of 128 bytes; by those of 64
// and 32 because 2 and 4 rows lie beside each other, too.  Neighbouring lanes are VEC columns apart,
// which for VEC = 8 is the same c % 8.  So a lane takes the elements of its vector in an order of its
// own, in step e number e ^ turn, and of 8 neighbours each has another c % 8:
//   VEC  1: c = i                  VEC  2: c = 2 i + (e ^ i / 4 % 2)
//   VEC  4: c = 4 i + (e ^ i / 2 % 4)   VEC 8, 16: c = VEC i + (e ^ i % 8)
// In a tile of 8 VEC columns the other lanes of a warp hold the next three rows, which lie in the
// same chunks: no two lanes meet in a bank with elements of up to 4 bytes; nor with 8, of which half a
// warp is served at a time.  With more columns as many times more lanes meet.
#pragma once
#include "tile.cuh"

namespace tile {

// How lanes take turns: the first element of the vector that begins at column c.
template <int VEC> struct Turns {
  static constexpr int kMany = VEC < 8 ? VEC : 8;
  static __device__ __forceinline__ int of(int c) { return uint32(c) / (VEC < 8 ? 8 : VEC) % kMany; }
};

// Element e of `x` becomes e ^ turn: one exchange for each bit of `turn`.
template <int VEC, class R> __device__ __forceinline__ void turn_round(R (&x)[VEC], int turn) {
#pragma unroll
  for (int bit = 1; bit < Turns<VEC>::kMany; bit *= 2) {
    const bool swap = turn & bit;
#pragma unroll
    for (int e = 0; e < VEC; ++e)
      if (!(e & bit)) {
        const R low = x[e], high = x[e | bit];
        x[e] = swap ? high : low;
        x[e | bit] = swap ? low : high;
      }
  }
}

// Where element e ^ turn of a vector lies: at `first` ^ a number known beforehand, where rows of the
// slot begin at powers of two.
template <class S, int VEC> struct Steps {
  int turn, c, r, first;
  __device__ __forceinline__ Steps(int turn, int c, int r) : turn(turn), c(c), r(r), first(S::offset(c + turn, r)) {}
  // Those of a vector of the tile so many rows below, which have no bits in common with r.
  __device__ __forceinline__ Steps below(int rows) const {
    Steps other = *this;
    other.first ^= S::offset(0, rows);
    return other;
  }
  __device__ __forceinline__ int at(int e) const {
    if constexpr (S::template kFlips<VEC>) return first ^ S::offset(e, 0);
    else return S::offset(c + (e ^ turn), r);
  }
};

// Whether the steps of a thread's first vector do for the others.
template <class L, class S>
struct Alike {
  static constexpr bool kIs = Beside<L>::kBelow && Beside<L>::kBits && S::kXors && S::template kFlips<L::kVec>;
};

// The steps of vector v.
template <class L, class S>
__device__ __forceinline__ Steps<S, L::kVec> steps_of(const Steps<S, L::kVec>& first, int v, int tid) {
  if constexpr (Alike<L, S>::kIs) return first.below(Beside<L>::down(v));
  else return Steps<S, L::kVec>(Turns<L::kVec>::of(L::col(v, tid)), L::col(v, tid), L::row(v, tid));
}

// Into registers of 32 bits whose type is not known it moves words as they are.
template <class L, class R, class S>
__device__ __forceinline__ void load_transposed(R (&dst)[L::kRegisters], const S src, int tid) {
  constexpr int kVec = L::kVec;
  const Steps<S, kVec> first(Turns<kVec>::of(L::col(0, tid)), L::col(0, tid), L::row(0, tid));
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    if (!L::holds(v, tid)) continue;
    const Steps<S, kVec> steps = steps_of<L, S>(first, v, tid);
    R got[kVec];
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      if constexpr (types::Same<R, uint32>::value) got[e] = reinterpret_cast<const uint32*>(src.base)[steps.at(e)];
      else got[e] = R(types::to_register(src.base[steps.at(e)]));
    }
    turn_round<kVec>(got, steps.turn);
#pragma unroll
    for (int e = 0; e < kVec; ++e) dst[v * kVec + e] = got[e];
  }
}

template <class L, class R, class D>
__device__ __forceinline__ void store_transposed(const D dst, const R (&src)[L::kRegisters], int tid) {
  constexpr int kVec = L::kVec;
  const Steps<D, kVec> first(Turns<kVec>::of(L::col(0, tid)), L::col(0, tid), L::row(0, tid));
#pragma unroll
  for (int v = 0; v < L::kVectors; ++v) {
    if (!L::holds(v, tid)) continue;
    const Steps<D, kVec> steps = steps_of<L, D>(first, v, tid);
    R put[kVec];
#pragma unroll
    for (int e = 0; e < kVec; ++e) put[e] = src[v * kVec + e];
    turn_round<kVec>(put, steps.turn);
#pragma unroll
    for (int e = 0; e < kVec; ++e) types::to_memory(dst.base[steps.at(e)], put[e]);
  }
}

}  // namespace tile
