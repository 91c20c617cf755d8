// Features of images and their BLAKE3 in one launch: a block computes a tile of an image's
// features, writes and hashes it, and the last block of an image to finish joins the tiles.
//
// Each thread hashes one chunk, 1 KiB from that of its neighbour: if it also computed the features
// of its chunk, neighbouring threads would write to distant addresses. Instead, a warp computes the
// next block of all its chunks together, neighbouring lanes adjacent features, and passes them
// through shared memory to the threads that hash them.
#include "blake3_tile.cuh"
#include "normalize_tile.cuh"

namespace mm {

enum : u32 {
    WARP_CHUNKS = 32,
    WARP_BYTES = WARP_CHUNKS * CHUNK_BYTES,
    MAX_TILE_CHUNKS = 512,  // leaves room in a Tree for the warps' stages
};

// The current block of each of a warp's chunks, between the lanes that compute it and the lane that
// hashes it. The granules of a block are permuted so that neither access has bank conflicts.
struct Stage {
    u8* start;

    __device__ __forceinline__ Stage(Tree& tree, u32 warp)
        : start(reinterpret_cast<u8*>(&tree.nodes[warp][MAX_TILE_CHUNKS])) {}

    template <typename T>
    __device__ __forceinline__ T& at(u32 chunk, u32 byte) const {
        return *reinterpret_cast<T*>(start + chunk * BLOCK_BYTES + (byte ^ (chunk >> 1 & 3) << 4));
    }
};

// The distribution of a warp's blocks over its lanes.
template <typename Item>
struct Share {
    typedef Piece<Item, 1> Made;
    enum : u32 {
        LANES = BLOCK_BYTES / sizeof(Made),  // for a chunk
        TOGETHER = 32 / LANES,               // chunks at a time
        TURNS = WARP_CHUNKS / TOGETHER,
        STRIDE = TOGETHER * CHUNK_BYTES,
    };
    Pixels<1> next[TURNS];

    static __device__ __forceinline__ u32 chunk() { return (threadIdx.x & 31) / LANES; }
    static __device__ __forceinline__ u32 byte() { return threadIdx.x % LANES * sizeof(Made); }

    template <typename Source>
    __device__ __forceinline__ void read(const Source& source, u32 at) {
#pragma unroll
        for (u32 t = 0; t < TURNS; t++) next[t] = source.read(at + t * STRIDE);
    }

    template <typename Source>
    __device__ __forceinline__ void take(const Source& source, const Stage& stage) const {
#pragma unroll
        for (u32 t = 0; t < TURNS; t++) {
            stage.at<Made>(chunk() + t * TOGETHER, byte()) = source.take(t * STRIDE, next[t]);
        }
    }
};

// Write up to 32 chunks of a warp, `nbytes` from byte `at` of the stretch on, and return in each
// lane the chaining value of one. Both kinds of source share the loop, because the code of two
// loops exceeds the instruction cache.
template <typename Item>
__device__ __forceinline__ void make_chunks(u32* cv, const Stretch<Item>& stretch, u32 at,
                                            u32 nbytes, const Stage& stage, u64 counter, u32 root,
                                            u32 one) {
    const u32 lane = threadIdx.x & 31, before = lane * CHUNK_BYTES;
    const u32 held = before < nbytes ? piece_bytes(nbytes, 10, lane) : 0;
    const u32 blocks = static_cast<u32>(pieces_of(held, 6));
    const bool is_plain = nbytes == WARP_BYTES && Plain<Item, 1>::fits(stretch, at, WARP_BYTES);
    Plain<Item, 1> plain(stretch, at);
    Mixed<Item, 1> mixed(stretch, at, at + nbytes);
    Share<Item> share;
    plain.skip(share.chunk() * CHUNK_BYTES + share.byte());
    mixed.skip(share.chunk() * CHUNK_BYTES + share.byte());
    is_plain ? share.read(plain, 0) : share.read(mixed, 0);
    blake3_iv(cv);
#pragma unroll 1
    for (u32 index = 0; index < CHUNK_BYTES / BLOCK_BYTES; index++) {
        const bool more = index + 1 < CHUNK_BYTES / BLOCK_BYTES;
        if (is_plain) {
            share.take(plain, stage);
            if (more) share.read(plain, BLOCK_BYTES);  // ahead by one compression
        } else {
            share.take(mixed, stage);
            if (more) share.read(mixed, BLOCK_BYTES);
        }
        plain.skip(BLOCK_BYTES);
        mixed.skip(BLOCK_BYTES);
        __syncwarp();
        u32 block[16];
#pragma unroll
        for (u32 g = 0; g < 4; g++) {
            const Granule granule = stage.at<const Granule>(lane, g * 16);
#pragma unroll
            for (u32 w = 0; w < 4; w++) block[g * 4 + w] = granule.w[w];
        }
        __syncwarp();
        if (index < blocks) {
            const bool last = index + 1 == blocks;
            compress<ROUNDS>(cv, block, counter, last ? held - index * BLOCK_BYTES : BLOCK_BYTES,
                             (index == 0 ? CHUNK_START : 0) | (last ? CHUNK_END | root : 0), one);
        }
    }
}

template <typename Item>
__device__ __forceinline__ void make_tile(const Work& work) {
    __shared__ Tree tree;
    __shared__ Tables<Item> tables;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31, one = work.one;
    const u32 image = blockIdx.x / work.tiles, tile = blockIdx.x % work.tiles;
    const u64 nbytes = static_cast<u64>(work.image) * sizeof(Item);
    const u64 start = static_cast<u64>(tile) << work.tile_shift;
    const u32 tile_bytes = piece_bytes(nbytes, work.tile_shift, tile);
    const u32 chunks = static_cast<u32>(pieces_of(tile_bytes, 10));
    const u32 only = work.tiles == 1 && chunks == 1 ? ROOT : 0;
    const Stretch<Item> stretch(work, tables, image, start);
    const Stage stage(tree, warp);

    fill(tables, work.how, threadIdx.x, THREADS);
    __syncthreads();
#pragma unroll 1
    for (u32 first = warp * WARP_CHUNKS; first < chunks; first += THREADS) {
        const u32 at = first * CHUNK_BYTES, left = tile_bytes - at, mine = first + lane;
        const u64 counter = start / CHUNK_BYTES + mine;
        u32 cv[8];
        make_chunks(cv, stretch, at, left < WARP_BYTES ? left : WARP_BYTES, stage, counter, only,
                    one);
        if (mine < chunks) {
#pragma unroll
            for (int w = 0; w < 8; w++) tree.nodes[w][mine] = cv[w];
        }
    }
    __syncthreads();
    join(tree, 0, chunks, ~0u, work.tiles == 1 ? ROOT : 0, one);

    if (work.tiles > 1 &&
        !join_tiles(tree, reinterpret_cast<u8*>(work.scratch) + image * (work.tiles * 32ull),
                    work.counters + image * 4ull, tile, work.tiles, 0, 0, one)) {
        return;
    }
    if (threadIdx.x < 8) {
        reinterpret_cast<u32*>(work.digests)[image * 8ull + threadIdx.x] =
            tree.nodes[threadIdx.x][0];
    }
}

}  // namespace mm

// 5 blocks on a processor, whose warps run more different code, are slower.
#define MM_ENTRY(BITS, ITEM)                                             \
    extern "C" __global__ void __launch_bounds__(mm::THREADS, 4)         \
        normalize_blake3_##BITS(const __grid_constant__ mm::Work work) { \
        mm::make_tile<mm::ITEM>(work);                                   \
    }
MM_ENTRY(16, u16)
MM_ENTRY(32, u32)
