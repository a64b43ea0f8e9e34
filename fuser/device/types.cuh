// Types of memory and registers.  No CUDA header is included: a kernel compiles in 50 ms, not 1 s.
#pragma once

typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

struct __align__(2) bf16 { unsigned short bits; };
struct __align__(2) f16 { unsigned short bits; };
typedef signed char int8;
// Floats of 8 bits are only moved, cast and multiplied: a register holds the bits.
enum e4m3 : unsigned char {};
enum e5m2 : unsigned char {};

// What cuTensorMapEncodeTiled fills in; opaque here, so that cuda.h is not needed.
struct __align__(64) TensorMap { uint64 opaque[16]; };

namespace types {

// A type without const and reference.
template <class T> struct Plain { typedef T type; };
template <class T> struct Plain<T&> { typedef typename Plain<T>::type type; };
template <class T> struct Plain<const T> { typedef T type; };

template <class T> struct IsConst { static constexpr bool value = false; };
template <class T> struct IsConst<const T> { static constexpr bool value = true; };

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };

// Raw words of 1..16 bytes: one memory access each.
template <int BYTES> struct Raw;
template <> struct Raw<1> { typedef unsigned char type; };
template <> struct Raw<2> { typedef unsigned short type; };
template <> struct Raw<4> { typedef uint32 type; };
template <> struct Raw<8> { typedef uint2 type; };
template <> struct Raw<16> { typedef uint4 type; };

__device__ __forceinline__ float to_register(bf16 x) { return __uint_as_float(uint32(x.bits) << 16); }
__device__ __forceinline__ float to_register(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
template <class T> __device__ __forceinline__ T to_register(T x) { return x; }

// Rounded to nearest even, NaN kept, overflow to infinity.
__device__ __forceinline__ void to_memory(bf16& y, float x) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
__device__ __forceinline__ void to_memory(f16& y, float x) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}
template <class T> __device__ __forceinline__ void to_memory(T& y, T x) { y = x; }

// Two 16-bit floats in one instruction.
template <class T> struct Packs { static constexpr bool value = false; };
template <> struct Packs<bf16> {
  static constexpr bool value = true;
  static __device__ __forceinline__ uint32 pack(float low, float high) {
    uint32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
  }
  static __device__ __forceinline__ float low(uint32 x) { return __uint_as_float(x << 16); }
  static __device__ __forceinline__ float high(uint32 x) { return __uint_as_float(x & 0xffff0000u); }
};
template <> struct Packs<f16> {
  static constexpr bool value = true;
  static __device__ __forceinline__ uint32 pack(float low, float high) {
    uint32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
  }
  static __device__ __forceinline__ float low(uint32 x) { return to_register(f16{static_cast<unsigned short>(x)}); }
  static __device__ __forceinline__ float high(uint32 x) { return to_register(f16{static_cast<unsigned short>(x >> 16)}); }
};

// Element i of registers that hold two each.
template <class T, int N> __device__ __forceinline__ float one_of(const uint32 (&x)[N], int i) {
  return i % 2 ? Packs<T>::high(x[i / 2]) : Packs<T>::low(x[i / 2]);
}

// The same numbers as pairs of 16-bit elements, rounded.
template <class T, int N> struct Pairs {
  uint32 at[N];
  __device__ __forceinline__ explicit Pairs(const float (&x)[2 * N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) at[i] = Packs<T>::pack(x[2 * i], x[2 * i + 1]);
  }
};

}  // namespace types

// Fuzz builds fill shared memory with NaNs first, so that bytes of an earlier launch never pass for
// data; the fence orders the fill before the copy engine's writes.
#ifdef FUSER_POISON_SMEM
#define FUSER_POISON(smem, nbytes)                                                             \
  do {                                                                                         \
    for (int i_ = threadIdx.x; i_ < (nbytes) / 4; i_ += blockDim.x) ((uint32*)(smem))[i_] = 0x7fffffffu; \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                               \
    __syncthreads();                                                                           \
  } while (0)
#else
#define FUSER_POISON(smem, nbytes)
#endif
