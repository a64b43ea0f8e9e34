// Slots: tiles of shared memory, row after row or swizzled.
// Source: PTX ISA, "tensor swizzling modes", "mapa".
#pragma once
#include "types.cuh"

namespace tile {

template <class T> __device__ __forceinline__ T* shared(unsigned char* bytes) {
  return reinterpret_cast<T*>(bytes);
}

// The same place in the shared memory of another CTA of the cluster.
template <class T> __device__ __forceinline__ T* of_cta(T* slot, int cta) {
  uint64 there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(slot), "r"(cta));
  return reinterpret_cast<T*>(there);
}

// Row after row.
template <class T, int PITCH> struct Slot {
  T* base;
  static constexpr int row = 0, col = 0;
  static constexpr bool kReadOnly = false, kLimited = false, kRagged = false, kKeep = false;
  __device__ __forceinline__ bool inside(int, int) const { return true; }
  __device__ __forceinline__ T* at(int r, int c) const { return base + r * PITCH + c; }
  __device__ static __forceinline__ constexpr int offset(int r, int c) { return r * PITCH + c; }
  // Whether row r + e of a multiple r of N, e < N, differs by e's own offset alone, bit by bit.
  template <int N> static constexpr bool kFlips = (PITCH & (PITCH - 1)) == 0;
  // Whether what has no bits in common with r and c may be added to them so, too.
  static constexpr bool kXors = kFlips<1>;
  template <class L> static constexpr bool kSteps = L::kAffine;
  typedef int Place;
  __device__ __forceinline__ Place place(int r, int c) const { return offset(r, c); }
  __device__ __forceinline__ T* from(Place place, int down, int across) const { return base + (place + offset(down, across)); }
};

// The same, of which only so many rows and columns are read; they end within a vector if it is RAGGED.
template <class T, int PITCH, bool RAGGED = true> struct Part {
  T* base;
  int row_limit, col_limit;
  static constexpr int row = 0, col = 0;
  static constexpr bool kReadOnly = false, kLimited = false, kRagged = RAGGED, kKeep = false;
  __device__ __forceinline__ bool inside(int r, int c) const { return r < row_limit && c < col_limit; }
  __device__ __forceinline__ T* at(int r, int c) const { return base + r * PITCH + c; }
  template <class L> static constexpr bool kSteps = false;
  typedef T* Place;
  __device__ __forceinline__ Place place(int r, int c) const { return at(r, c); }
};

// Panels of BYTES along a row, one below the other; in each, 16-byte chunks of a row change places
// with the row.  The lines of 128 bytes repeat every 8, so that the number of the line within the
// slot does for that within the atom.
template <class T, int ROWS, int BYTES> struct Swizzled {
  T* base;
  static constexpr int row = 0, col = 0;
  static constexpr bool kReadOnly = false, kLimited = false, kRagged = false, kKeep = false;
  static constexpr int kRow = BYTES / int(sizeof(T)), kChunk = 16 / int(sizeof(T));
  __device__ __forceinline__ bool inside(int, int) const { return true; }
  __device__ static __forceinline__ constexpr uint32 offset(int r, int c) {
    const uint32 line = uint32(uint32(c) / kRow * ROWS + r), within = uint32(c) % kRow;
    const uint32 chunk = (within / kChunk) ^ (line * BYTES / 128 % (BYTES / 16));
    return line * kRow + chunk * kChunk + within % kChunk;
  }
  __device__ __forceinline__ T* at(int r, int c) const { return base + offset(r, c); }
  template <int N> static constexpr bool kFlips = ROWS % N == 0;
  static constexpr bool kXors = (ROWS & (ROWS - 1)) == 0;
  template <class L> static constexpr bool kSteps = L::kBits && (kXors || L::kWide <= kRow);
  typedef uint32 Place;
  __device__ __forceinline__ Place place(int r, int c) const { return offset(r, c); }
  // What changes no chunk is added, not flipped: an access has it as an immediate.
  __device__ __forceinline__ T* from(Place place, int down, int across) const {
    constexpr uint32 kChunks = kRow - kChunk;
    const uint32 beside = offset(down, across);
    return base + (place ^ (beside & kChunks)) + (beside & ~kChunks);
  }
};

}  // namespace tile
