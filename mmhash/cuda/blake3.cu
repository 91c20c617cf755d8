// BLAKE3 over a list of segments in one launch: a block a tile, a thread a chunk, and the last
// block of a segment to finish joins the tiles.
#include "launch.cuh"

namespace mm {

enum : u32 {
    THREADS = 128,
    MAX_NODES = 1024,  // chunks a tile at most, and tiles joined at a time
};

struct Room {
    // Word by word: neighbours' words lie side by side, so a parent's read has no bank conflict.
    u32 nodes[8][MAX_NODES];
    DeliveryRoom delivery;
    bool last;
};

// Join `n` nodes into node 0. Not inline: its code is as long as a chunk's, and is needed twice.
__device__ __noinline__ void join(Room& room, u32 n, u32 root, u32 one) {
    const u32 thread = threadIdx.x;
    while (n > 1) {
        const u32 parents = parents_of(n);
        const bool one_warp = parents <= 32;
        if (one_warp && thread >= 32) break;
        for (u32 base = 0; base < parents; base += THREADS) {
            const u32 i = base + thread;
            u32 cv[8];
            if (i < parents) {
                u32 children[16];
#pragma unroll
                for (int w = 0; w < 8; w++) {
                    const uint2 both = *reinterpret_cast<const uint2*>(&room.nodes[w][2 * i]);
                    children[w] = both.x;
                    children[w + 8] = both.y;
                }
                parent<ROUNDS>(cv, children, n == 2 ? root : 0, one);
            }
            one_warp ? __syncwarp() : __syncthreads();
            if (i < parents) {
#pragma unroll
                for (int w = 0; w < 8; w++) room.nodes[w][i] = cv[w];
            }
            one_warp ? __syncwarp() : __syncthreads();
        }
        if (n & 1) {
            if (thread < 8) room.nodes[thread][parents] = room.nodes[thread][n - 1];
            one_warp ? __syncwarp() : __syncthreads();
        }
        n = level_above(n);
    }
    __syncthreads();
}

__device__ inline void take_nodes(Room& room, const u8* nodes, u32 n) {
    for (u32 i = threadIdx.x; i < n; i += THREADS) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Granule g = load_granule<Memory::FRESH>(nodes + i * 32ull + half * 16);
#pragma unroll
            for (int w = 0; w < 4; w++) room.nodes[half * 4 + w][i] = g.w[w];
        }
    }
    __syncthreads();
}

__device__ inline void put_node(const Room& room, u8* node) {
    if (threadIdx.x < 8) reinterpret_cast<u32*>(node)[threadIdx.x] = room.nodes[threadIdx.x][0];
}

template <int N>
__device__ __forceinline__ void hash_tile(const Parameters<N>& p) {
    __shared__ Room room;
    const Launch& launch = p.launch;
    const u32 thread = threadIdx.x, one = launch.one;
    const u32 segment = N == 1 ? 0 : segment_of(p.first, launch.segments, blockIdx.x);
    const u32 first = p.first[segment];
    const u32 tile = blockIdx.x - first;
    const u64 nbytes = p.nbytes[segment];
    const u32 tiles = static_cast<u32>(pieces_of(nbytes, launch.tile_shift));
    const u32 tile_bytes = piece_bytes(nbytes, launch.tile_shift, tile);
    const u64 start = static_cast<u64>(tile) << launch.tile_shift;
    const u8* data = reinterpret_cast<const u8*>(p.data[segment]) + start;
    const u32 chunks = static_cast<u32>(pieces_of(tile_bytes, 10));
    const u32 only = tiles == 1 && chunks == 1 ? ROOT : 0;

    if (tile_bytes == 1u << launch.tile_shift && misalignment(data) == 0) {
#pragma unroll 1
        for (u32 pass = 0; pass < tile_bytes / (THREADS * CHUNK_BYTES); pass++) {
            const u32 i = pass * THREADS + thread;
            u32 cv[8];
            whole_chunk<ROUNDS>(cv, data + i * CHUNK_BYTES, start / CHUNK_BYTES + i, 0, one);
#pragma unroll
            for (int w = 0; w < 8; w++) room.nodes[w][i] = cv[w];
        }
    } else {
        for (u32 i = thread; i < chunks; i += THREADS) {
            u32 cv[8];
            chunk<ROUNDS>(cv, data + i * CHUNK_BYTES, piece_bytes(tile_bytes, 10, i),
                          start / CHUNK_BYTES + i, only, one);
#pragma unroll
            for (int w = 0; w < 8; w++) room.nodes[w][i] = cv[w];
        }
    }
    __syncthreads();
    join(room, chunks, tiles == 1 ? ROOT : 0, one);

    if (tiles > 1) {
        u8* nodes = reinterpret_cast<u8*>(launch.scratch) + first * 32ull;
        put_node(room, nodes + tile * 32ull);
        __syncthreads();
        if (thread == 0) room.last = arrive_last(launch, segment, tiles);
        __syncthreads();
        if (!room.last) return;
        u32 waiting = tiles, groups;
        do {
            groups = (waiting + MAX_NODES - 1) / MAX_NODES;
            for (u32 group = 0; group < groups; group++) {
                const u32 from = group * MAX_NODES;
                const u32 n = waiting - from < MAX_NODES ? waiting - from : MAX_NODES;
                take_nodes(room, nodes + from * 32ull, n);
                join(room, n, groups == 1 ? ROOT : 0, one);
                if (groups > 1) put_node(room, nodes + group * 32ull);
                __threadfence();
                __syncthreads();
            }
            waiting = groups;
        } while (groups > 1);
    }
    if (thread < 32) {
        if (thread < 8) room.delivery.digest[thread] = room.nodes[thread][0];
        __syncwarp();
        deliver(launch, segment, 8, room.delivery);
    }
}

}  // namespace mm

#define MM_ENTRY(N)                                                            \
    extern "C" __global__ void __launch_bounds__(mm::THREADS, 4)     \
        blake3_##N(const __grid_constant__ mm::Parameters<N> p) {              \
        mm::hash_tile<N>(p);                                                   \
    }
MM_ENTRY(1)
MM_ENTRY(180)
MM_ENTRY(1600)
