// The xxh3 tree over a list of segments in one launch: one block for each leaf, and the last block
// of a segment to finish hashes the leaves' digests.
#include "arrival.cuh"
#include "launch.cuh"
#include "xxh3_leaf.cuh"

namespace mm {

template <int N>
__device__ __forceinline__ void hash_leaf(const Parameters<N>& p) {
    __shared__ Leaf room;
    __shared__ DeliveryRoom delivery;
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
    // Leaf and root share one loop, so that the code exists once: a short launch waits longer for
    // its instructions than for its data.
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
        const Hash128 h = hash(room, InMemory{in}, length, seed);
        if (root) {
            if (speaker) canonical(delivery.digest, h);
            break;
        }
        if (speaker) {
            canonical(reinterpret_cast<u32*>(digests + leaf * 16ull), h);
            room.last = arrive_last(launch.counters + segment * 4, leaves);
        }
        __syncthreads();
        if (!room.last) return;
    }
    if (threadIdx.x >= READERS * 32) {
        __syncwarp();
        deliver(launch, segment, 4, delivery);
    }
}

}  // namespace mm

#define MM_ENTRY(N)                                              \
    extern "C" __global__ void __launch_bounds__(mm::THREADS, 4) \
        xxh3_##N(const __grid_constant__ mm::Parameters<N> p) {  \
        mm::hash_leaf<N>(p);                                     \
    }
MM_ENTRY(1)
MM_ENTRY(180)
MM_ENTRY(1600)
