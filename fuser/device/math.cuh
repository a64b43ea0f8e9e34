// One function per op of the fusion's table, overloaded by register type.
//
// Error bounds (ulp of f32, over the whole range) are those of the CUDA C++ Programming Guide,
// "Mathematical Functions", unless a comment says otherwise.
#pragma once
#include "types.cuh"

namespace math {

template <class T> __device__ __forceinline__ T nan();
template <> __device__ __forceinline__ float nan<float>() { return __int_as_float(0x7fc00000); }
template <> __device__ __forceinline__ double nan<double>() { return __longlong_as_double(0x7ff8000000000000ll); }
template <class T> __device__ __forceinline__ T infinity();
template <> __device__ __forceinline__ float infinity<float>() { return __int_as_float(0x7f800000); }
template <> __device__ __forceinline__ double infinity<double>() { return __longlong_as_double(0x7ff0000000000000ll); }

// --- conversions ---------------------------------------------------------------------------------

template <class To, class From> __device__ __forceinline__ To to(From x) { return To(x); }
template <> __device__ __forceinline__ bool to<bool, float>(float x) { return x != 0.0f; }
template <> __device__ __forceinline__ bool to<bool, double>(double x) { return x != 0.0; }
// Small integers in the mantissa of 1.5 * 2^23: I2F of 8 bits takes 8 cycles of a warp, these two one each.
template <> __device__ __forceinline__ float to<float, int8>(int8 x) { return __int_as_float(0x4b400000 + x) - 12582912.0f; }
// Two floats of 8 bits as f16, which holds them.  Source: PTX ISA, "cvt" (.f16x2.e4m3x2 and .e5m2x2).
template <class S> __device__ __forceinline__ uint32 halves_of(unsigned short two) {
  uint32 y;
  if constexpr (types::Same<S, e4m3>::value) asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(two));
  else asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(y) : "h"(two));
  return y;
}
// Two bytes of type S of four, the lower or the upper ones, as 16-bit floats, which hold them.  Integers lie in the
// mantissa of 1024, or, as 8 bits are one too many for bf16, 7 of them in that of 128, less 128 or 256.
// Source: PTX ISA, "prmt", "sub" (.f16x2, .bf16x2).
template <class T, class S, bool UPPER> __device__ __forceinline__ uint32 pair_of(uint32 four) {
  constexpr int SELECT = UPPER ? 0x4342 : 0x4140;
  uint32 y;
  if constexpr (types::Same<S, e4m3>::value || types::Same<S, e5m2>::value) {
    y = halves_of<S>((unsigned short)(UPPER ? four >> 16 : four));
    if constexpr (types::Same<T, bf16>::value) y = types::Packs<bf16>::pack(types::Packs<f16>::low(y), types::Packs<f16>::high(y));
  } else if constexpr (types::Same<T, f16>::value) {
    const uint32 apart = __byte_perm(four ^ 0x80808080u, 0x64646464u, SELECT);
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(apart), "r"(0x64806480u));
  } else {
    const uint32 apart = __byte_perm(four, 0x43434343u, SELECT);
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(apart & 0xff7fff7fu), "r"(apart & 0xff80ff80u));
  }
  return y;
}
// The two signed numbers of 4 bits of a byte, the lower one first: with their signs flipped in the mantissas of 128 or
// 1024, less that and 8.  Source: PTX ISA, "lop3", "sub" (.f16x2, .bf16x2).
template <class T> __device__ __forceinline__ uint32 nibbles_of(uint32 byte) {
  constexpr bool kHalf = types::Same<T, f16>::value;
  constexpr uint32 kOffset = kHalf ? 0x64086408u : 0x43084308u;
  uint32 apart, y;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(apart) : "r"(byte * 0x1001u), "r"(0x000f000fu), "r"(kOffset));  // a & b ^ c
  if constexpr (kHalf) asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(apart), "r"(kOffset));
  else asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(apart), "r"(kOffset));
  return y;
}
template <class To> __device__ __forceinline__ To to(e4m3 x) {
  return to<To, float>(types::Packs<f16>::low(halves_of<e4m3>(static_cast<unsigned short>(x))));
}
template <class To> __device__ __forceinline__ To to(e5m2 x) {
  return to<To, float>(types::Packs<f16>::low(halves_of<e5m2>(static_cast<unsigned short>(x))));
}
template <> __device__ __forceinline__ e4m3 to<e4m3>(e4m3 x) { return x; }
template <> __device__ __forceinline__ e5m2 to<e5m2>(e5m2 x) { return x; }

// The upper of a pair, which one instruction rounds: of one number the assembler makes an F2F of 8 cycles of a warp.
template <class T> __device__ __forceinline__ float round_to_bf16(T x) {
  return __uint_as_float(types::Packs<bf16>::pack(0.0f, to<float>(x)));
}
template <class T> __device__ __forceinline__ float round_to_f16(T x) {
  f16 y;
  types::to_memory(y, to<float>(x));
  return types::to_register(y);
}
// f64 and i64 are rounded once, not through f32: an inexact f32 is made odd first.
__device__ __forceinline__ float odd(double x) {
  float y = __double2float_rz(x);
  if (double(y) != x && x == x && y - y == 0.0f) y = __int_as_float(__float_as_int(y) | 1);
  return y;
}
__device__ __forceinline__ float odd(int64 x) {
  float y = __ll2float_rz(x);
  return int64(y) != x ? __int_as_float(__float_as_int(y) | 1) : y;
}
template <> __device__ __forceinline__ float round_to_bf16<double>(double x) { return round_to_bf16(odd(x)); }
template <> __device__ __forceinline__ float round_to_f16<double>(double x) { return round_to_f16(odd(x)); }
template <> __device__ __forceinline__ float round_to_bf16<int64>(int64 x) { return round_to_bf16(odd(x)); }
template <> __device__ __forceinline__ float round_to_f16<int64>(int64 x) { return round_to_f16(odd(x)); }
template <> __device__ __forceinline__ float round_to_bf16<int>(int x) { return round_to_bf16(odd(int64(x))); }
template <> __device__ __forceinline__ float round_to_f16<int>(int x) { return round_to_f16(odd(int64(x))); }

// Beyond the largest number the instruction gives that number; as torch has it, f8e5m2 then has inf.
// Source: PTX ISA, "cvt" (.e4m3x2 and .e5m2x2, .satfinite).
__device__ __forceinline__ e4m3 to_e4m3(float x) {
  unsigned short y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
  return e4m3(y & 0xff);
}
__device__ __forceinline__ e5m2 to_e5m2(float x) {
  unsigned short y;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(0.0f), "f"(x));
  // Half way from 57344 to 65536, and to even: 61440 is inf.
  return e5m2(x >= 61440.0f ? 0x7c : x <= -61440.0f ? 0xfc : y & 0xff);
}
template <class T> __device__ __forceinline__ e4m3 round_to_f8e4m3(T x) { return to_e4m3(to<float>(x)); }
template <class T> __device__ __forceinline__ e5m2 round_to_f8e5m2(T x) { return to_e5m2(to<float>(x)); }
template <> __device__ __forceinline__ e4m3 round_to_f8e4m3<double>(double x) { return to_e4m3(odd(x)); }
template <> __device__ __forceinline__ e5m2 round_to_f8e5m2<double>(double x) { return to_e5m2(odd(x)); }
template <> __device__ __forceinline__ e4m3 round_to_f8e4m3<int64>(int64 x) { return to_e4m3(odd(x)); }
template <> __device__ __forceinline__ e5m2 round_to_f8e5m2<int64>(int64 x) { return to_e5m2(odd(x)); }
template <> __device__ __forceinline__ e4m3 round_to_f8e4m3<int>(int x) { return to_e4m3(odd(int64(x))); }
template <> __device__ __forceinline__ e5m2 round_to_f8e5m2<int>(int x) { return to_e5m2(odd(int64(x))); }

// --- integers of indices -------------------------------------------------------------------------

// Operands are never negative: a power of two costs one instruction.
__device__ __forceinline__ constexpr int quotient(int a, int b) { return int(uint32(a) / uint32(b)); }
__device__ __forceinline__ constexpr int modulo(int a, int b) { return int(uint32(a) % uint32(b)); }
// What is from FIRST + 1 to FIRST + MANY, so that the compiler sees which bits it has; MANY is a power of 2 that
// divides FIRST.
template <int FIRST, int MANY> __device__ __forceinline__ int within(int n) { return (FIRST | ((n - 1) & (MANY - 1))) + 1; }
// By a reciprocal (`fuser.codegen.expr.reciprocal`), 0 <= a.
__device__ __forceinline__ int quotient_by(int a, uint64 by) { return int(__umulhi(2 * uint32(a), uint32(by)) >> uint32(by >> 32)); }
__device__ __forceinline__ int modulo_by(int a, int b, uint64 by) { return a - quotient_by(a, by) * b; }
__device__ __forceinline__ int64 quotient(int64 a, int64 b) { return int64(uint64(a) / uint64(b)); }
__device__ __forceinline__ int64 modulo(int64 a, int64 b) { return int64(uint64(a) % uint64(b)); }
__device__ __forceinline__ int64 quotient(int64 a, int b) { return quotient(a, int64(b)); }
__device__ __forceinline__ int64 modulo(int64 a, int b) { return modulo(a, int64(b)); }

// A number that counts the turns of a ring of S slots, S no power of two: its slot, and whether the ring went round an
// odd number of times, are kept beside it.  Dividing by S takes some ten instructions of every step, each of which waits
// for the one before: products whose rings have 5, 6 or 7 slots took 8 to 18 % longer (nine schedules, H200; 128 x 160 and
// 192 x 160 with 5 slots: 220 and 430 us, 203.5 and 390 without).
template <int S> struct Counter {
  int number, slot, odd;
  explicit __device__ __forceinline__ constexpr Counter(int n) : number(n), slot(modulo(n, S)), odd(modulo(quotient(n, S), 2)) {}
  __device__ __forceinline__ constexpr Counter(int number, int slot, int odd) : number(number), slot(slot), odd(odd) {}
  __device__ __forceinline__ constexpr operator int() const { return number; }
  __device__ __forceinline__ constexpr Counter& operator=(int n) { return *this = Counter(n); }
  __device__ __forceinline__ constexpr Counter& operator++() { return *this = *this + 1; }
};
template <int S> __device__ __forceinline__ constexpr Counter<S> operator+(Counter<S> c, int n) {
  if (uint32(n) > uint32(S)) return Counter<S>(c.number + n);
  const int slot = c.slot + n, round = slot >= S;
  return {c.number + n, round ? slot - S : slot, c.odd ^ round};
}

// How often a ring of `by` slots has been gone round, and as many times more as were added.
struct Rounds {
  int number, by, more, odd;
  bool counted;
  __device__ __forceinline__ constexpr operator int() const { return quotient(number, by) + more; }
};
__device__ __forceinline__ constexpr Rounds operator+(Rounds r, int n) { return {r.number, r.by, r.more + n, r.odd ^ (n & 1), r.counted}; }

template <int S> __device__ __forceinline__ constexpr int modulo(Counter<S> c, int b) { return b == S ? c.slot : modulo(c.number, b); }
template <int S> __device__ __forceinline__ constexpr Rounds quotient(Counter<S> c, int b) { return {c.number, b, 0, c.odd, b == S}; }
__device__ __forceinline__ constexpr int modulo(Rounds r, int b) { return r.counted && b == 2 ? r.odd : modulo(int(r), b); }

// The assembler (CUDA 13.0, sm_90a) makes VIMNMX3 of two signed minima, and of min(-a, min(-b, c)) loses the sign of b.
// Of unsigned numbers it keeps it; with the highest bit flipped they are ordered as the signed ones are.
#define FUSER_EXTREMUM(NAME, OP)                                                                       \
  __device__ __forceinline__ int NAME(int a, int b) {                                                  \
    uint32 y;                                                                                          \
    asm(OP ".u32 %0, %1, %2;" : "=r"(y) : "r"(uint32(a) ^ 0x80000000u), "r"(uint32(b) ^ 0x80000000u)); \
    return int(y ^ 0x80000000u);                                                                       \
  }
FUSER_EXTREMUM(minimum, "min")
FUSER_EXTREMUM(maximum, "max")
#undef FUSER_EXTREMUM
__device__ __forceinline__ int64 minimum(int64 a, int64 b) { return a < b ? a : b; }
__device__ __forceinline__ int64 maximum(int64 a, int64 b) { return a > b ? a : b; }
__device__ __forceinline__ bool minimum(bool a, bool b) { return a && b; }
__device__ __forceinline__ bool maximum(bool a, bool b) { return a || b; }
// NaN wins, whichever side it stands on.
__device__ __forceinline__ float minimum(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ float maximum(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
// Of two pairs of 16-bit floats each.
template <class T> __device__ __forceinline__ uint32 minimum_of_pairs(uint32 a, uint32 b) {
  uint32 y;
  if constexpr (types::Same<T, bf16>::value) asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  else asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
template <class T> __device__ __forceinline__ uint32 maximum_of_pairs(uint32 a, uint32 b) {
  uint32 y;
  if constexpr (types::Same<T, bf16>::value) asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  else asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
__device__ __forceinline__ double minimum(double a, double b) { return a != a ? a : b != b ? b : fmin(a, b); }
__device__ __forceinline__ double maximum(double a, double b) { return a != a ? a : b != b ? b : fmax(a, b); }

// --- arithmetic ----------------------------------------------------------------------------------
// Integers wrap: they are computed unsigned.

template <class T> __device__ __forceinline__ T add(T a, T b) { return a + b; }
template <> __device__ __forceinline__ int add(int a, int b) { return int(uint32(a) + uint32(b)); }
template <> __device__ __forceinline__ int64 add(int64 a, int64 b) { return int64(uint64(a) + uint64(b)); }
template <> __device__ __forceinline__ bool add(bool a, bool b) { return a || b; }
template <class T> __device__ __forceinline__ T sub(T a, T b) { return a - b; }
template <> __device__ __forceinline__ int sub(int a, int b) { return int(uint32(a) - uint32(b)); }
template <> __device__ __forceinline__ int64 sub(int64 a, int64 b) { return int64(uint64(a) - uint64(b)); }
template <class T> __device__ __forceinline__ T mul(T a, T b) { return a * b; }
template <> __device__ __forceinline__ int mul(int a, int b) { return int(uint32(a) * uint32(b)); }
template <> __device__ __forceinline__ int64 mul(int64 a, int64 b) { return int64(uint64(a) * uint64(b)); }
template <> __device__ __forceinline__ bool mul(bool a, bool b) { return a && b; }
template <class T> __device__ __forceinline__ T div(T a, T b) { return a / b; }

// The same for many a of one b, whose reciprocal is made once: a quotient and one step of Newton's, rounded as by a
// division but where the quotient is subnormal.  Far b are scaled, so that neither it nor its reciprocal is; what
// is no number then (of infinities, of 0) is as the first step has it.
// Source: P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", theorem 7.
template <class T> __device__ __forceinline__ T div_by(T a, T b) { return a / b; }
__device__ __forceinline__ float near_one(float b) {
  const float size = fabsf(b);
  return size > 0x1p64f ? 0x1p-64f : size < 0x1p-64f ? 0x1p64f : 1.0f;
}
template <> __device__ __forceinline__ float div_by(float a, float b) {
  const float scale = near_one(b), y = b * scale, r = 1.0f / y, x = a * scale, q = x * r;
  const float left = fmaf(-q, y, x);
  return fabsf(left) < __int_as_float(0x7f800000) ? fmaf(left, r, q) : q;
}
// Off by two units in the last place of f32, for quotients of which only 16 bits are kept.  Without the branch of
// the division the assembler computes quotients of a long row before they are wanted, and spills.
template <class T> __device__ __forceinline__ T div_roughly(T a, T b) { return a / b; }
template <> __device__ __forceinline__ float div_roughly(float a, float b) {
  const float scale = near_one(b), r = 1.0f / (b * scale);
  return (a * scale) * r;
}
template <class T> __device__ __forceinline__ T neg(T x) { return -x; }
template <> __device__ __forceinline__ int neg(int x) { return int(0u - uint32(x)); }
template <> __device__ __forceinline__ int64 neg(int64 x) { return int64(0ull - uint64(x)); }
__device__ __forceinline__ float abs(float x) { return fabsf(x); }
__device__ __forceinline__ double abs(double x) { return fabs(x); }
__device__ __forceinline__ int abs(int x) { return x < 0 ? neg(x) : x; }
__device__ __forceinline__ int64 abs(int64 x) { return x < 0 ? neg(x) : x; }
template <class T> __device__ __forceinline__ T set(T x) { return x; }

// The remainder has the sign of the divisor, the quotient is rounded down.
template <class T> __device__ __forceinline__ T floor_div_int(T a, T b) {
  if (b == 0) return -1;
  if (b == -1) return neg(a);
  const T q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
__device__ __forceinline__ int floor_div(int a, int b) { return floor_div_int(a, b); }
__device__ __forceinline__ int64 floor_div(int64 a, int64 b) { return floor_div_int(a, b); }
template <class T> __device__ __forceinline__ T remainder_int(T a, T b) {
  if (b == 0 || b == -1) return 0;
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ int remainder(int a, int b) { return remainder_int(a, b); }
__device__ __forceinline__ int64 remainder(int64 a, int64 b) { return remainder_int(a, b); }
__device__ __forceinline__ float remainder(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}
__device__ __forceinline__ double remainder(double a, double b) {
  const double r = fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}
// As torch: exact where a/b is near an integer, by way of fmod.
template <class T> __device__ __forceinline__ T floor_div_float(T a, T b) {
  if (b == T(0)) return a / b;
  const T mod = fmod(a, b);
  T d = (a - mod) / b;
  if (mod != T(0) && (b < T(0)) != (mod < T(0))) d -= T(1);
  if (d == T(0)) return copysign(T(0), a / b);
  T low = ::floor(d);
  if (d - low > T(0.5)) low += T(1);
  return low;
}
__device__ __forceinline__ float floor_div(float a, float b) { return floor_div_float(a, b); }
__device__ __forceinline__ double floor_div(double a, double b) { return floor_div_float(a, b); }

__device__ __forceinline__ float pow(float a, float b) { return powf(a, b); }
__device__ __forceinline__ double pow(double a, double b) { return ::pow(a, b); }
template <class T, class U> __device__ __forceinline__ T pow_int(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  U base = U(a), out = 1;
  for (U n = U(b); n; n >>= 1, base *= base)
    if (n & 1) out *= base;
  return T(out);
}
__device__ __forceinline__ int pow(int a, int b) { return pow_int<int, uint32>(a, b); }
__device__ __forceinline__ int64 pow(int64 a, int64 b) { return pow_int<int64, uint64>(a, b); }

// --- float functions -----------------------------------------------------------------------------

#define FUSER_FLOAT_FUNCTION(name, f32, f64)                                 \
  __device__ __forceinline__ float name(float x) { return f32; }             \
  __device__ __forceinline__ double name(double x) { return f64; }
FUSER_FLOAT_FUNCTION(exp, expf(x), ::exp(x))
FUSER_FLOAT_FUNCTION(exp2, exp2f(x), ::exp2(x))
FUSER_FLOAT_FUNCTION(expm1, expm1f(x), ::expm1(x))
FUSER_FLOAT_FUNCTION(log, logf(x), ::log(x))
FUSER_FLOAT_FUNCTION(log1p, log1pf(x), ::log1p(x))
FUSER_FLOAT_FUNCTION(log2, log2f(x), ::log2(x))
FUSER_FLOAT_FUNCTION(log10, log10f(x), ::log10(x))
FUSER_FLOAT_FUNCTION(sqrt, sqrtf(x), ::sqrt(x))
FUSER_FLOAT_FUNCTION(rsqrt, rsqrtf(x), ::rsqrt(x))
FUSER_FLOAT_FUNCTION(reciprocal, 1.0f / x, 1.0 / x)
FUSER_FLOAT_FUNCTION(sin, sinf(x), ::sin(x))
FUSER_FLOAT_FUNCTION(cos, cosf(x), ::cos(x))
FUSER_FLOAT_FUNCTION(tan, tanf(x), ::tan(x))
FUSER_FLOAT_FUNCTION(asin, asinf(x), ::asin(x))
FUSER_FLOAT_FUNCTION(acos, acosf(x), ::acos(x))
FUSER_FLOAT_FUNCTION(atan, atanf(x), ::atan(x))
FUSER_FLOAT_FUNCTION(sinh, sinhf(x), ::sinh(x))
FUSER_FLOAT_FUNCTION(cosh, coshf(x), ::cosh(x))
FUSER_FLOAT_FUNCTION(tanh, tanhf(x), ::tanh(x))
FUSER_FLOAT_FUNCTION(erf, erff(x), ::erf(x))
FUSER_FLOAT_FUNCTION(erfc, erfcf(x), ::erfc(x))
#undef FUSER_FLOAT_FUNCTION
__device__ __forceinline__ float atan2(float a, float b) { return atan2f(a, b); }
__device__ __forceinline__ double atan2(double a, double b) { return ::atan2(a, b); }

__device__ __forceinline__ float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Off by as much as one unit in the last place of x is worth, for results of which only 16 bits are kept; what is
// less than the least normal number is 0.
template <class T> __device__ __forceinline__ T exp_roughly(T x) { return exp(x); }
template <> __device__ __forceinline__ float exp_roughly(float x) { return ex2_approx(x * 1.4426950408889634f); }
__device__ __forceinline__ float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A division would cost four times as much as all the rest; the reciprocal is off by one ulp.
__device__ __forceinline__ float sigmoid(float x) { return rcp_approx(1.0f + expf(-x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + ::exp(-x)); }
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
__device__ __forceinline__ double silu(double x) { return x / (1.0 + ::exp(-x)); }

// gelu(x) = max(x, 0) - |x|/2 erfc(|x|/sqrt 2), and erfc(a/sqrt 2) = 2^(-a P(a)) with P of degree 6,
// fitted on [0, 6] and constant beyond.  Absolute error below 2e-7 |x|; one MUFU, no branch.
__device__ __forceinline__ float gelu(float x) {
  const float a = fabsf(x), c = fminf(a, 6.0f);
  float p = -8.858311957737897e-06f;
  p = fmaf(p, c, 5.769611016148701e-05f);
  p = fmaf(p, c, 0.0004069835413247347f);
  p = fmaf(p, c, -0.007363130804151297f);
  p = fmaf(p, c, 0.05266661196947098f);
  p = fmaf(p, c, 0.4591643214225769f);
  p = fmaf(p, c, 1.1511088609695435f);
  const float y = fmaf(-0.5f * a, ex2_approx(-a * p), maximum(x, 0.0f));
  return x == infinity<float>() ? x : y;  // and NaN at -infinity, as torch has it
}
__device__ __forceinline__ double gelu(double x) { return 0.5 * x * ::erfc(-x * 0.70710678118654752440); }
// x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3); absolute error below 1e-6 |x|, two MUFUs.
__device__ __forceinline__ float gelu_tanh(float x) {
  const float k = -2.302208198302031f;  // -2 sqrt(2/pi) log2(e)
  const float t = x * fmaf(x * x, k * 0.044715f, k);
  return x * rcp_approx(1.0f + ex2_approx(t));
}
__device__ __forceinline__ double gelu_tanh(double x) {
  const double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
  return x / (1.0 + ::exp(-2.0 * u));
}

template <class T> __device__ __forceinline__ T relu(T x) { return maximum(x, T(0)); }
template <class T> __device__ __forceinline__ T floor(T x) { return x; }
template <> __device__ __forceinline__ float floor(float x) { return floorf(x); }
template <> __device__ __forceinline__ double floor(double x) { return ::floor(x); }
template <class T> __device__ __forceinline__ T ceil(T x) { return x; }
template <> __device__ __forceinline__ float ceil(float x) { return ceilf(x); }
template <> __device__ __forceinline__ double ceil(double x) { return ::ceil(x); }
template <class T> __device__ __forceinline__ T round(T x) { return x; }
template <> __device__ __forceinline__ float round(float x) { return rintf(x); }
template <> __device__ __forceinline__ double round(double x) { return ::rint(x); }
template <class T> __device__ __forceinline__ T trunc(T x) { return x; }
template <> __device__ __forceinline__ float trunc(float x) { return truncf(x); }
template <> __device__ __forceinline__ double trunc(double x) { return ::trunc(x); }
template <class T> __device__ __forceinline__ T sign(T x) { return T(int(x > T(0)) - int(x < T(0))); }
template <> __device__ __forceinline__ bool sign(bool x) { return x; }

// --- tests, comparisons, logic -------------------------------------------------------------------

template <class T> __device__ __forceinline__ bool isnan(T x) { return x != x; }
template <class T> __device__ __forceinline__ bool isinf(T) { return false; }
template <> __device__ __forceinline__ bool isinf(float x) { return fabsf(x) == infinity<float>(); }
template <> __device__ __forceinline__ bool isinf(double x) { return fabs(x) == infinity<double>(); }
template <class T> __device__ __forceinline__ bool isfinite(T) { return true; }
template <> __device__ __forceinline__ bool isfinite(float x) { return fabsf(x) < infinity<float>(); }
template <> __device__ __forceinline__ bool isfinite(double x) { return fabs(x) < infinity<double>(); }
// An integer of 32 bits that orders like x: negative numbers have their bits but the sign turned.
__device__ __forceinline__ int64 order(int x) { return x; }
__device__ __forceinline__ int64 order(bool x) { return x; }
__device__ __forceinline__ int64 order(float x) {
  const int bits = __float_as_int(x + 0.0f);  // -0 becomes 0
  return x != x ? 0x7fffffff : bits < 0 ? bits ^ 0x7fffffff : bits;
}
template <class T> __device__ __forceinline__ bool logical_not(T x) { return x == T(0); }
template <class T> __device__ __forceinline__ T bitwise_not(T x) { return ~x; }
template <> __device__ __forceinline__ bool bitwise_not(bool x) { return !x; }
template <class T> __device__ __forceinline__ bool eq(T a, T b) { return a == b; }
template <class T> __device__ __forceinline__ bool ne(T a, T b) { return a != b; }
template <class T> __device__ __forceinline__ bool lt(T a, T b) { return a < b; }
template <class T> __device__ __forceinline__ bool le(T a, T b) { return a <= b; }
template <class T> __device__ __forceinline__ bool gt(T a, T b) { return a > b; }
template <class T> __device__ __forceinline__ bool ge(T a, T b) { return a >= b; }
// Asked the other way round: of what is never negative, |x| or 2^x, the assembler of CUDA 13.0 takes it that it is
// above any negative number, and NaN is not (seen on an H100; FSETP is missing in the machine code).
#define FUSER_ORDERED(NAME, UNLESS)                                                              \
  template <> __device__ __forceinline__ bool NAME(float a, float b) {                           \
    uint32 yes;                                                                                  \
    asm("{ .reg .pred p; setp." UNLESS ".f32 p, %1, %2; selp.u32 %0, 0, 1, p; }" : "=r"(yes) : "f"(a), "f"(b)); \
    return yes != 0;                                                                             \
  }
FUSER_ORDERED(lt, "geu")
FUSER_ORDERED(le, "gtu")
FUSER_ORDERED(gt, "leu")
FUSER_ORDERED(ge, "ltu")
#undef FUSER_ORDERED
template <class A, class B> __device__ __forceinline__ bool logical_and(A a, B b) { return a != A(0) && b != B(0); }
template <class A, class B> __device__ __forceinline__ bool logical_or(A a, B b) { return a != A(0) || b != B(0); }
template <class A, class B> __device__ __forceinline__ bool logical_xor(A a, B b) { return (a != A(0)) != (b != B(0)); }
template <class T> __device__ __forceinline__ T bitwise_and(T a, T b) { return a & b; }
template <class T> __device__ __forceinline__ T bitwise_or(T a, T b) { return a | b; }
template <class T> __device__ __forceinline__ T bitwise_xor(T a, T b) { return a ^ b; }
template <class T> __device__ __forceinline__ T nibble(T a, T b) { return (((b & 1 ? a >> 4 : a) & 15) ^ 8) - 8; }

// --- three operands ------------------------------------------------------------------------------

template <class T> __device__ __forceinline__ T where(bool c, T a, T b) { return c ? a : b; }
// Of ints it is hidden from the compiler, which would make a signed minimum of where(a < b, a, b).
template <> __device__ __forceinline__ int where(bool c, int a, int b) {
  int y;
  asm("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %3, 0;\n\tselp.b32 %0, %1, %2, p;\n\t}" : "=r"(y) : "r"(a), "r"(b), "r"(int(c)));
  return y;
}
// As torch: min(max(x, low), high), NaN in any of them wins.
template <class T> __device__ __forceinline__ T clamp(T x, T low, T high) { return minimum(maximum(x, low), high); }
template <class T> __device__ __forceinline__ T lerp(T a, T b, T w) {
  return abs(w) < T(0.5) ? a + w * (b - a) : b - (b - a) * (T(1) - w);
}
// Philox 4x32-10.  Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
__device__ __forceinline__ int64 philox(int64 seed, int64 stream, int64 place) {
  const unsigned long long low = static_cast<unsigned long long>(place) >> 2;
  unsigned k0 = seed, k1 = static_cast<unsigned long long>(seed) >> 32;
  unsigned c0 = low, c1 = low >> 32, c2 = stream, c3 = static_cast<unsigned long long>(stream) >> 32;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    c0 = static_cast<unsigned>(b >> 32) ^ c1 ^ k0;
    c2 = static_cast<unsigned>(a >> 32) ^ c3 ^ k1;
    c1 = b;
    c3 = a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const int word = place & 3;
  return word < 2 ? (word ? c1 : c0) : (word & 1 ? c3 : c2);
}
template <class T> __device__ __forceinline__ T addcmul(T x, T a, T b, T value) { return add(x, mul(mul(value, a), b)); }

}  // namespace math
