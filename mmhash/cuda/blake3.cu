// BLAKE3 over a list of segments in one launch: one block for each tile, and the last block of a
// segment to finish joins the tiles. One thread computes a chunk or a parent if there are enough of
// them to fill the processors, and four lanes do if the latency of one counts.
#include "blake3_tile.cuh"
#include "launch.cuh"

namespace mm {

template <int N>
__device__ __forceinline__ void hash_tile(const Parameters<N>& p) {
    __shared__ Tree tree;
    __shared__ DeliveryRoom delivery;
    const Launch& launch = p.launch;
    const u32 thread = threadIdx.x, one = launch.one;
    const u32 segment = N == 1 ? 0 : segment_of(p.first, launch.segments, blockIdx.x);
    const u32 first = p.first[segment];
    const u32 tile = blockIdx.x - first;
    const u64 nbytes = p.nbytes[segment];
    const u32 tiles = tiles_of(p, segment);
    const bool quads = tile >= launch.head;
    const u64 start = quads ? (static_cast<u64>(launch.head) << launch.tile_shift) +
                                  (static_cast<u64>(tile - launch.head) << QUAD_SHIFT)
                            : static_cast<u64>(tile) << launch.tile_shift;
    const u32 tile_bytes = piece_bytes(nbytes - start, quads ? QUAD_SHIFT : launch.tile_shift, 0);
    const u8* data = reinterpret_cast<const u8*>(p.data[segment]) + start;
    const u32 chunks = static_cast<u32>(pieces_of(tile_bytes, 10));
    const u32 only = tiles == 1 && chunks == 1 ? ROOT : 0;

    if (tile_bytes == chunks * CHUNK_BYTES && misalignment(data) == 0 && !only) {
        if (!quads) {
#pragma unroll 1
            for (u32 i = thread; i < chunks; i += THREADS) {
                u32 cv[8];
                whole_chunk<ROUNDS>(cv, data + i * CHUNK_BYTES, start / CHUNK_BYTES + i, 0, one);
#pragma unroll
                for (int w = 0; w < 8; w++) tree.nodes[w][i] = cv[w];
            }
        } else if (thread / 32 * 8 < chunks) {
            const u32 i = thread / 4;
            const u32 read = i < chunks ? i : chunks - 1;  // all quads of a warp take part
            const u8* at = data + read * CHUNK_BYTES;
            u32* stage = &tree.nodes[0][STAGE + 2 * i];
            const Quad quad;
            u32 low, high;
            quad.chunk(low, high, stage, at, start / CHUNK_BYTES + read, one);
            tree.nodes[quad.column][i] = low;
            tree.nodes[quad.column + 4][i] = high;
        }
    } else {
        for (u32 i = thread; i < chunks; i += THREADS) {
            u32 cv[8];
            chunk<ROUNDS>(cv, data + i * CHUNK_BYTES, piece_bytes(tile_bytes, 10, i),
                          start / CHUNK_BYTES + i, only, one);
#pragma unroll
            for (int w = 0; w < 8; w++) tree.nodes[w][i] = cv[w];
        }
    }
    __syncthreads();
    join(tree, 0, chunks, ~0u, tiles == 1 ? ROOT : 0, one);

    if (tiles > 1 && !join_tiles(tree, reinterpret_cast<u8*>(launch.scratch) + first * 32ull,
                                 launch.counters + segment * 4, tile, tiles, launch.head,
                                 launch.tile_shift - QUAD_SHIFT, one)) {
        return;
    }
    if (thread < 32) {
        if (thread < 8) delivery.digest[thread] = tree.nodes[thread][0];
        __syncwarp();
        deliver(launch, segment, 8, delivery);
    }
}

}  // namespace mm

#define MM_ENTRY(N)                                               \
    extern "C" __global__ void __launch_bounds__(mm::THREADS, 4)  \
        blake3_##N(const __grid_constant__ mm::Parameters<N> p) { \
        mm::hash_tile<N>(p);                                      \
    }
MM_ENTRY(1)
MM_ENTRY(180)
MM_ENTRY(1600)
