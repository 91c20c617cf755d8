// The xxh3 tree over a list of segments in one launch: a block a leaf, and the last block of a
// segment to finish hashes the leaves' digests.
#include "launch.cuh"
#include "xxh3.cuh"

namespace mm {

enum : u32 {
    // So, with 4 blocks a processor, 256 MiB take 70.5 µs; with 8 warps of 4 blocks, 3 a processor,
    // 74.0, and most other shapes are slower.
    READERS = 4,  // warps that read and sum; one more follows the chain behind them
    THREADS = (READERS + 1) * 32,
    BATCH = 8,   // blocks of 1 KiB that a warp reads at a time
    ROUND = 32,  // blocks between two barriers
};

struct Room {
    u64 secret[SECRET_WORDS];
    u64 sums[2][ROUND][8];
    DeliveryRoom delivery;
    bool last;
};

__device__ __forceinline__ u64 pair64(u32 low, u32 high) {
    return static_cast<u64>(high) << 32 | low;
}

template <bool ALIGNED>
__device__ __forceinline__ Granule read_any(const u8* at, u32 offset) {
    if (ALIGNED) return load_granule<Memory::FRESH>(at);
    const Granule low = load_granule<Memory::FRESH>(at - offset);
    const Granule high = load_granule<Memory::FRESH>(at - offset + 16);
    u32 from[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        from[i] = low.w[i];
        from[i + 4] = high.w[i];
    }
    Granule g;
    realign<4>(g.w, from, offset);
    return g;
}

// A warp's sums of `n` (1 to BATCH) blocks at `at`. A read is 512 bytes in one piece: a lane has
// two words of one stripe, and needs the same four words of the secret all the time.
template <bool ALIGNED>
__device__ __forceinline__ void sum_blocks(u64 (*sums)[8], const u8* at, u32 offset, u32 n,
                                           const u64* secret) {
    const u32 lane = threadIdx.x & 31;
    Granule read[BATCH][2];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            if (b < n) {
                read[b][half] = read_any<ALIGNED>(
                    at + b * XXH3_BLOCK_BYTES + half * 512 + lane * 16, offset);
            } else {
                read[b][half] = {{0, 0, 0, 0}};
            }
        }
    }
    u64 even[BATCH], odd[BATCH];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) {
        even[b] = odd[b] = 0;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const Granule& g = read[b][half];
            const u64 x = pair64(g.w[0], g.w[1]), y = pair64(g.w[2], g.w[3]);
            even[b] += stripe_term(x, y, secret[half * 2]);
            odd[b] += stripe_term(y, x, secret[half * 2 + 1]);
        }
    }
    // Over the lanes of one pair of words, halving the blocks a lane looks after at each step.
    u32 mine = 0, width = BATCH, idle = 0;
#pragma unroll
    for (u32 step = 16; step >= 4; step /= 2) {
        const bool upper = lane & step;
        if (width > 1) {
            width /= 2;
            mine += upper ? width : 0;
#pragma unroll
            for (u32 b = 0; b < width; b++) {
                const u64 x = upper ? even[b] : even[b + width], y = upper ? odd[b] : odd[b + width];
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

// XXH3-128 of a message of more than 240 bytes, by the whole block; the chain's warp has it.
template <bool ALIGNED>
__device__ __forceinline__ Hash128 long_message(Room& room, const u8* in, u32 nbytes) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const u32 blocks = chained_blocks(nbytes);
    const u32 rounds = (blocks + ROUND - 1) / ROUND;
    if (warp < READERS) {
        const u32 offset = ALIGNED ? 0 : misalignment(in);
        const u32 word = lane / 4 + lane % 4 * 2;  // stripe's first word of the secret, and pair
        const u64 secret[4] = {room.secret[word], room.secret[word + 1], room.secret[word + 8],
                               room.secret[word + 9]};
        for (u32 round = 0; round < rounds; round++) {
#pragma unroll 1
            for (u32 half = 0; half < ROUND / READERS / BATCH; half++) {
                const u32 slot = (half * READERS + warp) * BATCH;
                const u32 block = round * ROUND + slot;
                if (block < blocks) {
                    sum_blocks<ALIGNED>(&room.sums[round & 1][slot],
                                           in + static_cast<u64>(block) * XXH3_BLOCK_BYTES, offset,
                                           blocks - block < BATCH ? blocks - block : BATCH, secret);
                }
            }
            __syncthreads();
        }
        return {0, 0};
    }
    const u32 i = lane & 7;
    // All of its reads at once: one after another they would hold up the chain by 6 µs.
    u64 loose = loose_sum<4>(in, nbytes, room.secret, i, lane / 8);
    loose += __shfl_xor_sync(~0u, loose, 8);
    loose += __shfl_xor_sync(~0u, loose, 16);
    const u64 key = room.secret[SCRAMBLE_WORD + i];
    u64 acc = first_accumulator(i);
    for (u32 round = 0; round < rounds; round++) {
        const u32 left = blocks - round * ROUND;
        const u32 n = left < ROUND ? left : ROUND;
        __syncthreads();
#pragma unroll 8
        for (u32 b = 0; b < n; b++) acc = scramble(acc + room.sums[round & 1][b][i], key);
    }
    acc += loose;
    u64 all[8];
#pragma unroll
    for (int k = 0; k < 8; k++) all[k] = __shfl_sync(~0u, acc, k);
    return finish_long(all, room.secret, nbytes);
}

__device__ __forceinline__ Hash128 message(Room& room, const u8* in, u32 nbytes, u64 seed) {
    if (nbytes <= XXH3_SHORT) {
        return threadIdx.x == READERS * 32 ? short_message(in, nbytes, seed) : Hash128{0, 0};
    }
    __syncthreads();
    if (threadIdx.x < SECRET_WORDS) room.secret[threadIdx.x] = seeded_secret(threadIdx.x, seed);
    __syncthreads();
    if (misalignment(in) == 0) return long_message<true>(room, in, nbytes);
    return long_message<false>(room, in, nbytes);
}

template <int N>
__device__ __forceinline__ void hash_leaf(const Parameters<N>& p) {
    __shared__ Room room;
    const Launch& launch = p.launch;
    const u32 segment = N == 1 ? 0 : segment_of(p.first, launch.segments, blockIdx.x);
    const u32 first = p.first[segment];
    const u32 leaf = blockIdx.x - first;
    const u64 nbytes = p.nbytes[segment];
    const u32 leaves = static_cast<u32>(pieces_of(nbytes, launch.tile_shift));
    const bool speaker = threadIdx.x == READERS * 32;

    // The root's message: the leaves' digests, then the length.
    u8* digests = reinterpret_cast<u8*>(launch.scratch) + first * 16ull + segment * 32ull;
    const u8* in = reinterpret_cast<const u8*>(p.data[segment]) +
                   (static_cast<u64>(leaf) << launch.tile_shift);
    u32 length = piece_bytes(nbytes, launch.tile_shift, leaf);
    u64 seed = 0;
    // Leaf and root in one loop, so that the code is there once: a short launch waits for its
    // instructions more than for its data.
#pragma unroll 1
    for (bool root = nbytes == 0;; root = true) {
        if (root) {
            const u32 named = nbytes ? leaves * 16 : 0;
            if (speaker) *reinterpret_cast<u64*>(digests + named) = nbytes;
            __syncthreads();
            in = digests;
            length = named + 8;
            seed = ROOT_SEED;
        }
        const Hash128 h = message(room, in, length, seed);
        if (root) {
            if (speaker) canonical(room.delivery.digest, h);
            break;
        }
        if (speaker) {
            canonical(reinterpret_cast<u32*>(digests + leaf * 16ull), h);
            room.last = arrive_last(launch, segment, leaves);
        }
        __syncthreads();
        if (!room.last) return;
    }
    if (threadIdx.x >= READERS * 32) {
        __syncwarp();
        deliver(launch, segment, 4, room.delivery);
    }
}

}  // namespace mm

#define MM_ENTRY(N)                                                          \
    extern "C" __global__ void __launch_bounds__(mm::THREADS, 4)             \
        xxh3_##N(const __grid_constant__ mm::Parameters<N> p) {              \
        mm::hash_leaf<N>(p);                                                 \
    }
MM_ENTRY(1)
MM_ENTRY(180)
MM_ENTRY(1600)
