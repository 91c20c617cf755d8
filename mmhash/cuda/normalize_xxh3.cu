// Features of images and their xxh3 tree in one launch: a block computes a leaf of an image's
// features, writes and hashes it, and the last block of an image to finish hashes the leaves'
// digests.
#include "arrival.cuh"
#include "normalize_tile.cuh"
#include "xxh3_leaf.cuh"

namespace mm {

// The granules of a source of features.
template <typename Source>
struct Granules {
    typedef typename Source::Raw Raw;
    Source source;

    __device__ __forceinline__ void skip(u32 nbytes) { source.skip(nbytes); }

    __device__ __forceinline__ Raw read(u32 at) const { return source.read(at); }

    __device__ __forceinline__ Granule take(u32 at, const Raw& raw) const {
        const auto piece = source.take(at, raw);
        return reinterpret_cast<const Granule&>(piece);
    }
};

// A leaf whose features are computed when they are read.
template <typename Item>
struct Made {
    enum : u32 {
        WORDS = sizeof(Granule) / sizeof(Features<Item>)
    };  // of pixels, for a granule
    const Stretch<Item>& stretch;

    __device__ __forceinline__ void sum(u64 (*sums)[8], u32 at, u32 n, const u64* secret) const {
        typedef Plain<Item, WORDS> Plain;
        typedef Mixed<Item, WORDS> Mixed;
        if (n == BATCH && Plain::fits(stretch, at, BATCH * XXH3_BLOCK_BYTES)) {
            sum_blocks(sums, Granules<Plain>{Plain(stretch, at)}, BATCH, secret);
        } else {
            const Mixed mixed(stretch, at, at + n * XXH3_BLOCK_BYTES);
            sum_blocks(sums, Granules<Mixed>{mixed}, BATCH, secret);
        }
    }

    // Bytes before the last block are also written by the warp that sums them, with equal values.
    __device__ __forceinline__ const u8* fetch(u32 at, u32 end) const {
        const Mixed<Item, 1> mixed(stretch, at, end);
        for (u32 i = (threadIdx.x & 31) * sizeof(Features<Item>); i < end - at;
             i += 32 * sizeof(Features<Item>)) {
            mixed.take(i, mixed.read(i));
        }
        __syncwarp();
        return stretch.features;
    }
};

template <typename Item>
__device__ __forceinline__ void make_leaf(const Work& work) {
    __shared__ Leaf room;
    __shared__ Tables<Item> tables;
    const u32 image = blockIdx.x / work.tiles, leaf = blockIdx.x % work.tiles;
    const u64 nbytes = static_cast<u64>(work.image) * sizeof(Item);
    const u64 start = static_cast<u64>(leaf) << work.tile_shift;
    const u32 length = piece_bytes(nbytes, work.tile_shift, leaf);
    const bool speaker = threadIdx.x == READERS * 32;
    const Stretch<Item> stretch(work, tables, image, start);

    fill(tables, work.how, threadIdx.x, THREADS);
    __syncthreads();
    const Hash128 own = hash(room, Made<Item>{stretch}, length, 0);

    // The root's message: the leaves' digests, then the length.
    u8* digests = reinterpret_cast<u8*>(work.scratch) + image * (work.tiles * 16ull + 16);
    if (speaker) {
        canonical(reinterpret_cast<u32*>(digests + leaf * 16ull), own);
        room.last = arrive_last(work.counters + image * 4ull, work.tiles);
    }
    __syncthreads();
    if (!room.last) return;
    const u32 named = work.tiles * 16;
    if (speaker) *reinterpret_cast<u64*>(digests + named) = nbytes;
    __syncthreads();
    const Hash128 root = hash(room, InMemory{digests}, named + 8, ROOT_SEED);
    if (speaker) canonical(reinterpret_cast<u32*>(work.digests) + image * 4ull, root);
}

}  // namespace mm

#define MM_ENTRY(BITS, ITEM)                                           \
    extern "C" __global__ void __launch_bounds__(mm::THREADS, 4)       \
        normalize_xxh3_##BITS(const __grid_constant__ mm::Work work) { \
        mm::make_leaf<mm::ITEM>(work);                                 \
    }
MM_ENTRY(16, u16)
MM_ENTRY(32, u32)
