// A leaf of the xxh3 tree, or its root, computed by one block.
#pragma once
#include "tree.cuh"
#include "xxh3.cuh"

namespace mm {

enum : u32 {
    // The fastest shape, with 4 blocks on a processor.
    READERS = 4,  // warps that read and sum; one more warp computes the chain
    THREADS = (READERS + 1) * 32,
    BATCH = 8,   // blocks of 1 KiB that a warp reads at a time
    ROUND = 32,  // blocks between two barriers
};

struct alignas(16) Leaf {
    u64 secret[SECRET_WORDS];
    u64 sums[2][ROUND][8];
    bool last;
};

__device__ __forceinline__ u64 pair64(u32 low, u32 high) {
    return static_cast<u64>(high) << 32 | low;
}

// Granules that are stored in memory.
template <bool ALIGNED>
struct Stored {
    typedef Granule Raw;
    const u8* in;

    __device__ __forceinline__ void skip(u32 nbytes) { in += nbytes; }

    __device__ __forceinline__ Raw read(u32 at) const {
        if (ALIGNED) return load_granule<Memory::FRESH>(in + at);
        const u32 offset = misalignment(in);
        const Granule low = load_granule<Memory::FRESH>(in + at - offset);
        const Granule high = load_granule<Memory::FRESH>(in + at - offset + 16);
        return join(low, high, offset);
    }

    __device__ __forceinline__ Granule take(u32, const Raw& raw) const { return raw; }
};

// Compute a warp's sums of `n` (1 to BATCH) blocks. A read is 512 contiguous bytes: a lane has two
// words of one stripe, and always needs the same four words of the secret. All reads are issued
// before the first result is used.
template <typename Granules>
__device__ __forceinline__ void sum_blocks(u64 (*sums)[8], Granules granules, u32 n,
                                           const u64* secret) {
    const u32 lane = threadIdx.x & 31;
    granules.skip(lane * 16);
    typename Granules::Raw read[BATCH][2];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            if (b < n) {
                read[b][half] = granules.read(b * XXH3_BLOCK_BYTES + half * 512);
            } else {
                read[b][half] = {};
            }
        }
    }
    u64 even[BATCH], odd[BATCH];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
        even[b] = odd[b] = 0;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const Granule g = granules.take(b * XXH3_BLOCK_BYTES + half * 512, read[b][half]);
            const u64 x = pair64(g.w[0], g.w[1]), y = pair64(g.w[2], g.w[3]);
            even[b] += stripe_term(x, y, secret[half * 2]);
            odd[b] += stripe_term(y, x, secret[half * 2 + 1]);
        }
    }
    // Reduce over the lanes of one pair of words; each step halves the blocks of a lane.
    u32 mine = 0, width = BATCH, idle = 0;
#pragma unroll
    for (u32 step = 16; step >= 4; step /= 2) {
        const bool upper = lane & step;
        if (width > 1) {
            width /= 2;
            mine += upper ? width : 0;
#pragma unroll
            for (u32 b = 0; b < width; b++) {
                const u64 x = upper ? even[b] : even[b + width],
                          y = upper ? odd[b] : odd[b + width];
                even[b] = (upper ? even[b + width] : even[b]) + __shfl_xor_sync(~0u, x, step);
                odd[b] = (upper ? odd[b + width] : odd[b]) + __shfl_xor_sync(~0u, y, step);
            }
        } else {
            even[0] += __shfl_xor_sync(~0u, even[0], step);
            odd[0] += __shfl_xor_sync(~0u, odd[0], step);
            idle += step;
        }
    }
    if (!(lane & idle)) {
        sums[mine][lane % 4 * 2] = even[0];
        sums[mine][lane % 4 * 2 + 1] = odd[0];
    }
}

// A message in memory.
struct InMemory {
    const u8* in;

    // Compute a warp's sums of `n` blocks from byte `at` on.
    __device__ __forceinline__ void sum(u64 (*sums)[8], u32 at, u32 n, const u64* secret) const {
        if (misalignment(in) == 0) {
            sum_blocks(sums, Stored<true>{in + at}, n, secret);
        } else {
            sum_blocks(sums, Stored<false>{in + at}, n, secret);
        }
    }

    // Return its address, for a warp that reads its bytes from `at` to `end`.
    __device__ __forceinline__ const u8* fetch(u32, u32) const { return in; }
};

// Compute XXH3-128 of a message of more than 240 bytes; only the chain's warp has the result.
template <typename Message>
__device__ __forceinline__ Hash128 long_message(Leaf& leaf, const Message& message, u32 nbytes) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const u32 blocks = chained_blocks(nbytes);
    const u32 rounds = (blocks + ROUND - 1) / ROUND;
    if (warp < READERS) {
        const u32 word = lane / 4 + lane % 4 * 2;  // stripe's first word of the secret, and pair
        const u64 secret[4] = {leaf.secret[word], leaf.secret[word + 1], leaf.secret[word + 8],
                               leaf.secret[word + 9]};
        for (u32 round = 0; round < rounds; round++) {
#pragma unroll 1
            for (u32 half = 0; half < ROUND / READERS / BATCH; half++) {
                const u32 slot = (half * READERS + warp) * BATCH;
                const u32 block = round * ROUND + slot;
                if (block < blocks) {
                    message.sum(&leaf.sums[round & 1][slot], block * XXH3_BLOCK_BYTES,
                                blocks - block < BATCH ? blocks - block : BATCH, secret);
                }
            }
            __syncthreads();
        }
        return {0, 0};
    }
    const u32 i = lane & 7;
    const u32 chained = blocks * XXH3_BLOCK_BYTES, last = nbytes - STRIPE_BYTES;
    const u8* in = message.fetch(chained < last ? chained : last, nbytes);
    // Issue all of its reads at once: in sequence they would delay the chain.
    u64 loose = loose_sum<4>(in, nbytes, leaf.secret, i, lane / 8);
    loose += __shfl_xor_sync(~0u, loose, 8);
    loose += __shfl_xor_sync(~0u, loose, 16);
    const u64 key = leaf.secret[SCRAMBLE_WORD + i];
    u64 acc = first_accumulator(i);
    for (u32 round = 0; round < rounds; round++) {
        const u32 left = blocks - round * ROUND;
        const u32 n = left < ROUND ? left : ROUND;
        __syncthreads();
#pragma unroll 8
        for (u32 b = 0; b < n; b++) acc = scramble(acc + leaf.sums[round & 1][b][i], key);
    }
    acc += loose;
    u64 all[8];
#pragma unroll
    for (int k = 0; k < 8; k++) all[k] = __shfl_sync(~0u, acc, k);
    return finish_long(all, leaf.secret, nbytes);
}

// The same for a message of any length.
template <typename Message>
__device__ __forceinline__ Hash128 hash(Leaf& leaf, const Message& message, u32 nbytes, u64 seed) {
    if (nbytes <= XXH3_SHORT) {
        if (threadIdx.x < READERS * 32) return {0, 0};
        const u8* in = message.fetch(0, nbytes);
        return threadIdx.x == READERS * 32 ? short_message(in, nbytes, seed) : Hash128{0, 0};
    }
    __syncthreads();
    if (threadIdx.x < SECRET_WORDS) leaf.secret[threadIdx.x] = seeded_secret(threadIdx.x, seed);
    __syncthreads();
    return long_message(leaf, message, nbytes);
}

}  // namespace mm
