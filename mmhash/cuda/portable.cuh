// Compiler-dependent parts of device code, so that the same headers build as C++ on a host.
#pragma once

#if defined(__CUDACC__)
#define MM_CODE __device__ __forceinline__
#define MM_SELDOM __device__ __noinline__
#define MM_TABLE __device__ __constant__ const
#define MM_UNROLL _Pragma("unroll")
#define MM_NO_UNROLL _Pragma("unroll 1")
#else
#define MM_CODE static inline
#define MM_SELDOM static inline
#define MM_TABLE static const
#define MM_UNROLL
#define MM_NO_UNROLL
#endif

namespace mm {

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A granule: 16 bytes at an address that 16 divides. Data is read in granules that contain at least
// one byte of it, so no read leaves the page of a byte that is readable.
struct alignas(16) Granule {
    u32 w[4];
};

// The kind of memory that is read: CACHED does not change while a kernel runs; FRESH may have been
// written by another block of the same kernel, and is read without L1.
enum class Memory {
    CACHED,
    FRESH
};

template <Memory M>
MM_CODE Granule load_granule(const u8* at) {
    Granule g;
#if defined(__CUDACC__)
    if (M == Memory::CACHED) {
        asm("ld.global.nc.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(g.w[0]), "=r"(g.w[1]), "=r"(g.w[2]), "=r"(g.w[3])
            : "l"(at));
    } else {
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(g.w[0]), "=r"(g.w[1]), "=r"(g.w[2]), "=r"(g.w[3])
                     : "l"(at)
                     : "memory");
    }
#else
    g = *reinterpret_cast<const Granule*>(at);
#endif
    return g;
}

MM_CODE u32 load_word(const u8* at) {
#if defined(__CUDACC__)
    u32 word;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
    return word;
#else
    return *reinterpret_cast<const u32*>(at);
#endif
}

// Each operation is rounded separately, unlike a multiply-add.
MM_CODE float product(float a, float b) {
#if defined(__CUDACC__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

MM_CODE float difference(float a, float b) {
#if defined(__CUDACC__)
    return __fsub_rn(a, b);
#else
    return a - b;
#endif
}

MM_CODE float quotient(float a, float b) {
#if defined(__CUDACC__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

MM_CODE u32 float32_bits(float x) {
#if defined(__CUDACC__)
    return __float_as_uint(x);
#else
    u32 bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
#endif
}

MM_CODE u16 float16_bits(float x) {
    u16 bits;
#if defined(__CUDACC__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    const _Float16 rounded = static_cast<_Float16>(x);
    __builtin_memcpy(&bits, &rounded, 2);
#endif
    return bits;
}

MM_CODE u16 bfloat16_bits(float x) {
#if defined(__CUDACC__)
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    const u32 bits = float32_bits(x);
    return x == x ? (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16 : 0x7FFF;
#endif
}

MM_CODE u32 misalignment(const u8* at) { return static_cast<u32>(reinterpret_cast<u64>(at) & 15); }

// The low 32 bits of hi:lo >> bits, for bits of 0 to 31.
MM_CODE u32 shift_pair(u32 lo, u32 hi, u32 bits) {
#if defined(__CUDACC__)
    return __funnelshift_r(lo, hi, bits);
#else
    return bits ? lo >> bits | hi << (32 - bits) : lo;
#endif
}

// Copy `to[0 … N)` from N + 4 words of granules, starting `offset` (0 to 15) bytes into them. The
// offset in words is a branch, which is the same for all threads of a segment: a selection for each
// word would cost two instructions.
template <int N>
MM_CODE void realign(u32* to, const u32* from, u32 offset) {
    const u32 bits = (offset & 3) * 8;
    switch (offset >> 2) {
#define MM_REALIGN(K)                                                                           \
    case K:                                                                                     \
        MM_UNROLL for (int i = 0; i < N; i++) {                                                 \
            to[i] = shift_pair(from[i + K], from[i + K + 1 < N + 4 ? i + K + 1 : i + K], bits); \
        }                                                                                       \
        break;
        MM_REALIGN(0)
        MM_REALIGN(1)
        MM_REALIGN(2)
        MM_REALIGN(3)
#undef MM_REALIGN
    }
}

// Return the 16 bytes that start `offset` (0 to 15) bytes into two adjacent granules.
MM_CODE Granule join(const Granule& low, const Granule& high, u32 offset) {
    u32 from[8];
    MM_UNROLL for (int i = 0; i < 4; i++) {
        from[i] = low.w[i];
        from[i + 4] = high.w[i];
    }
    Granule g;
    realign<4>(g.w, from, offset);
    return g;
}

}  // namespace mm
