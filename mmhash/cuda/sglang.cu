// SGLang's own hash of features, over a list of segments in one launch: one block for each tile,
// and the last block of a segment to finish adds up the tiles' hashes.
#include "arrival.cuh"
#include "launch.cuh"
#include "sglang.cuh"

namespace mm {

enum : u32 {
    THREADS = 256,
    WARPS = THREADS / 32,
    ALL_LANES = 0xFFFFFFFF,
};

// Return 16 bytes at `at`. Those from `left` bytes on are zeros.
__device__ __forceinline__ Granule read_padded(const u8* at, u32 left) {
    const u32 offset = misalignment(at);
    Granule found = load_granule<Memory::CACHED>(at - offset);
    if (offset) {
        Granule next = {};
        if (offset + left > 16) next = load_granule<Memory::CACHED>(at - offset + 16);
        found = join(found, next, offset);
    }
    if (left < 16) found.w[left / 4] &= (1u << left % 4 * 8) - 1;
    return found;
}

template <int N>
__device__ __forceinline__ void hash_tile(const Parameters<N>& p) {
    __shared__ u64 of_warps[WARPS];
    __shared__ DeliveryRoom delivery;
    __shared__ bool is_last;
    const Launch& launch = p.launch;
    const u32 segment = N == 1 ? 0 : segment_of(p.first, launch.segments, blockIdx.x);
    const u32 tile = blockIdx.x - p.first[segment];
    const u64 nbytes = p.nbytes[segment];
    const u8* in = reinterpret_cast<const u8*>(p.data[segment]) +
                   (static_cast<u64>(tile) << launch.tile_shift);
    const u32 length = piece_bytes(nbytes, launch.tile_shift, tile);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    HalfSums sums = {};
#pragma unroll 4
    for (u32 at = threadIdx.x * 16; at < length; at += THREADS * 16) {
        const Granule granule = read_padded(in + at, length - at);
        const u32 index = (tile << (launch.tile_shift - 2)) + at / 4;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (at + i * 4 < length) add_word(sums, granule.w[i], index + i);
        }
    }
    sums = {__reduce_add_sync(ALL_LANES, sums.high), __reduce_add_sync(ALL_LANES, sums.low)};
    if (lane == 0) of_warps[warp] = static_cast<u64>(sums.high) << 32 | sums.low;
    __syncthreads();

    u64* hashes = reinterpret_cast<u64*>(launch.scratch) + p.first[segment];
    const u32 tiles = tiles_of(p, segment);
    if (threadIdx.x == 0) {
        sums = {};
        for (u32 i = 0; i < WARPS; i++) {
            sums.high += static_cast<u32>(of_warps[i] >> 32);
            sums.low += static_cast<u32>(of_warps[i]);
        }
        hashes[tile] = nbytes ? tile_hash(sums, static_cast<u32>(nbytes + 3) & ~3u) : 0;
        is_last = arrive_last(launch.counters + segment * 4, tiles);
    }
    __syncthreads();
    if (!is_last) return;

    u64 sum = 0;
    for (u32 i = threadIdx.x; i < tiles; i += THREADS) {
        sum += reinterpret_cast<volatile u64*>(hashes)[i];
    }
#pragma unroll
    for (u32 step = 16; step; step /= 2) sum += __shfl_down_sync(ALL_LANES, sum, step);
    if (lane == 0) of_warps[warp] = sum;
    __syncthreads();
    if (warp) return;
    if (lane == 0) {
        for (u32 i = 1; i < WARPS; i++) sum += of_warps[i];
        sum = segment_hash(sum);
        delivery.digest[0] = static_cast<u32>(sum);
        delivery.digest[1] = static_cast<u32>(sum >> 32);
    }
    __syncwarp();
    deliver(launch, segment, 2, delivery);
}

}  // namespace mm

#define MM_ENTRY(N)                                               \
    extern "C" __global__ void __launch_bounds__(mm::THREADS)     \
        sglang_##N(const __grid_constant__ mm::Parameters<N> p) { \
        mm::hash_tile<N>(p);                                      \
    }
MM_ENTRY(1)
MM_ENTRY(180)
MM_ENTRY(1600)
