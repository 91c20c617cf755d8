// A tile of BLAKE3's tree, computed by one block, and the tiles of a segment, joined by the last.
#pragma once
#include "arrival.cuh"
#include "blake3.cuh"
#include "tree.cuh"

namespace mm {

enum : u32 {
    THREADS = 128,
    QUAD_SHIFT = 15,      // a tile with four threads for each chunk
    MAX_NODES = 1024,     // maximum of chunks in a tile, and of tiles joined at a time
    ROW = MAX_NODES + 8,  // spaced so that the four lanes of a quad seldom read from one bank
    STAGE = 64,           // nodes that hold the quads' current blocks
};

struct alignas(16) Tree {
    // Ordered by word: words of neighbours are adjacent, so a parent's read has no bank conflict.
    // Word m of the block of parent i is nodes[m % 8][2 * i + m / 8].
    u32 nodes[8][ROW];
    bool last;
};

// Four lanes that do one compression, each a column of its state. This is more work than in one
// thread, but a warp has 8 compressions instead of 32, and so finishes a chunk or a level of the
// tree sooner.
struct Quad {
    u32 column;
    u32 at[ROUNDS][4];  // offsets of the words that this lane needs, from the block's node

    __device__ __forceinline__ Quad() {
        column = threadIdx.x & 3;
        u32 order[16];
#pragma unroll
        for (u32 m = 0; m < 16; m++) order[m] = m % 8 * ROW + m / 8;
#pragma unroll
        for (u32 r = 0; r < ROUNDS; r++) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                const u32 first = k / 2 * 8 + k % 2;
                const u32 quarter = k < 2 ? column : column + 3 & 3;
                at[r][k] = pick(quarter, order[first], order[first + 2], order[first + 4],
                                order[first + 6]);
            }
            permute(order);
        }
    }

    static __device__ __forceinline__ u32 pick(u32 which, u32 a, u32 b, u32 c, u32 d) {
        return which & 2 ? (which & 1 ? d : c) : (which & 1 ? b : a);
    }

    __device__ __forceinline__ u32 from(u32 word, u32 further) const {
        return __shfl_sync(~0u, word, column + further, 4);
    }

    // `low` and `high` are words `column` and `column + 4` of the chaining value.
    __device__ __forceinline__ void compress(u32& low, u32& high, const u32* block, u64 counter,
                                             u32 flags, u32 one) const {
        u32 a = low, b = high;
        u32 c = pick(column, 0x6A09E667u, 0xBB67AE85u, 0x3C6EF372u, 0xA54FF53Au);
        u32 d = pick(column, static_cast<u32>(counter), static_cast<u32>(counter >> 32),
                     BLOCK_BYTES, flags);
#pragma unroll
        for (u32 r = 0; r < ROUNDS; r++) {
            quarter(a, b, c, d, block[at[r][0]], block[at[r][1]], one);
            // To the diagonal in which this lane has `b`: that word is finished last, and the
            // others are moved meanwhile.
            a = from(a, 3);
            c = from(c, 1);
            d = from(d, 2);
            quarter(a, b, c, d, block[at[r][2]], block[at[r][3]], one);
            a = from(a, 1);
            c = from(c, 3);
            d = from(d, 2);
        }
        low = a ^ c;
        high = b ^ d;
    }

    __device__ __forceinline__ void start(u32& low, u32& high) const {
        u32 iv[8];
        blake3_iv(iv);
        low = pick(column, iv[0], iv[1], iv[2], iv[3]);
        high = pick(column, iv[4], iv[5], iv[6], iv[7]);
    }

    // Same as whole_chunk; the blocks are staged in `stage`, a node of Tree.
    __device__ __forceinline__ void chunk(u32& low, u32& high, u32* stage, const u8* data,
                                          u64 counter, u32 one) const {
        start(low, high);
        copy(stage, data);
#pragma unroll 2
        for (u32 index = 0; index < CHUNK_BYTES / BLOCK_BYTES; index++) {
            const bool last = index == CHUNK_BYTES / BLOCK_BYTES - 1;
            const u32 side = index % 2 * STAGE;
            asm volatile("cp.async.wait_all;" ::: "memory");
            __syncwarp();
            if (!last) copy(stage + (STAGE - side), data + (index + 1) * BLOCK_BYTES);
            compress(low, high, stage + side, counter,
                     (index == 0 ? CHUNK_START : 0) | (last ? CHUNK_END : 0), one);
        }
    }

    // Asynchronous, not through registers: the compiler would load those late, and then wait.
    __device__ __forceinline__ void copy(u32* stage, const u8* block) const {
#pragma unroll
        for (u32 w = 0; w < 4; w++) {
            const u32 to = static_cast<u32>(
                __cvta_generic_to_shared(stage + (w % 2 * 4 + column) * ROW + w / 2));
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to),
                         "l"(block + (w * 4 + column) * 4)
                         : "memory");
        }
    }
};

// Join the `n` nodes from `first` (even) on, `levels` levels up; return how many are left. Not
// inlined: the code is as long as a chunk's, and is used three times.
__device__ __noinline__ u32 join(Tree& tree, u32 first, u32 n, u32 levels, u32 root, u32 one) {
    const u32 thread = threadIdx.x, warp = thread / 32;
    u32(*nodes)[ROW] = reinterpret_cast<u32(*)[ROW]>(&tree.nodes[0][first]);
    for (; n > 1 && levels && parents_of(n) * 4 > THREADS; levels--) {
        const u32 parents = parents_of(n);
        for (u32 base = 0; base < parents; base += THREADS) {
            const u32 i = base + thread;
            u32 cv[8];
            if (i < parents) {
                u32 children[16];
#pragma unroll
                for (int w = 0; w < 8; w++) {
                    const uint2 both = *reinterpret_cast<const uint2*>(&nodes[w][2 * i]);
                    children[w] = both.x;
                    children[w + 8] = both.y;
                }
                parent<ROUNDS>(cv, children, 0, one);
            }
            __syncthreads();
            if (i < parents) {
#pragma unroll
                for (int w = 0; w < 8; w++) nodes[w][i] = cv[w];
            }
            __syncthreads();
        }
        if (n & 1) {
            if (thread < 8) nodes[thread][parents] = nodes[thread][n - 1];
            __syncthreads();
        }
        n = level_above(n);
    }
    const Quad quad;
    const u32 i = thread / 4;
    for (; n > 1 && levels; levels--) {
        const u32 parents = parents_of(n);
        const bool one_warp = parents <= 8;
        u32 low, high;
        if (warp * 8 < parents) {
            quad.start(low, high);
            quad.compress(low, high, &nodes[0][2 * i], 0, n == 2 ? PARENT | root : PARENT, one);
        }
        const bool rises = n & 1 && thread < 8;
        const u32 odd = rises ? nodes[thread][n - 1] : 0;
        one_warp ? __syncwarp() : __syncthreads();
        if (i < parents) {
            nodes[quad.column][i] = low;
            nodes[quad.column + 4][i] = high;
        }
        if (rises) nodes[thread][parents] = odd;
        one_warp ? __syncwarp() : __syncthreads();
        n = level_above(n);
    }
    __syncthreads();
    return n;
}

__device__ inline void take_nodes(Tree& tree, const u8* nodes, u32 n) {
    for (u32 i = threadIdx.x; i < n; i += THREADS) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const Granule g = load_granule<Memory::FRESH>(nodes + i * 32ull + half * 16);
#pragma unroll
            for (int w = 0; w < 4; w++) tree.nodes[half * 4 + w][i] = g.w[w];
        }
    }
    __syncthreads();
}

__device__ inline void put_node(const Tree& tree, u8* node) {
    if (threadIdx.x < 8) reinterpret_cast<u32*>(node)[threadIdx.x] = tree.nodes[threadIdx.x][0];
}

// Store a tile's node with those of its segment, and join them all if this block is the last of
// `tiles` to arrive; return true in that block. From tile `head` on, a tile has 2^QUAD_SHIFT bytes;
// the tiles before are `levels` levels larger.
__device__ __forceinline__ bool join_tiles(Tree& tree, u8* nodes, u64 counter, u32 tile, u32 tiles,
                                           u32 head, u32 levels, u32 one) {
    put_node(tree, nodes + tile * 32ull);
    __syncthreads();
    if (threadIdx.x == 0) tree.last = arrive_last(counter, tiles);
    __syncthreads();
    if (!tree.last) return false;
    u32 waiting = tiles, groups;
    do {
        groups = (waiting + MAX_NODES - 1) / MAX_NODES;
        for (u32 group = 0; group < groups; group++) {
            const u32 from = group * MAX_NODES;
            u32 n = waiting - from < MAX_NODES ? waiting - from : MAX_NODES;
            take_nodes(tree, nodes + from * 32ull, n);
            if (head && head < tiles) {  // the small tiles up to the large ones
                n = head + join(tree, head, n - head, levels, 0, one);
            }
            join(tree, 0, n, ~0u, groups == 1 ? ROOT : 0, one);
            if (groups > 1) {
                put_node(tree, nodes + group * 32ull);
                __threadfence();
                __syncthreads();
            }
        }
        waiting = groups;
    } while (groups > 1);
    return true;
}

}  // namespace mm
