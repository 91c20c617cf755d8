// The shapes of the two trees, and the tiles of a list of segments.
#pragma once
#include "portable.cuh"

namespace mm {

// The seed of the xxh3 tree's root: "mmh-root", big-endian.
static const u64 ROOT_SEED = 0x6D6D682D726F6F74ull;

// A level of BLAKE3's tree has `n` nodes; the level above joins neighbours, and a last node without
// a neighbour moves up unchanged. This is the specification's tree, whose left half is the largest
// power of two, and it is also the tree over tiles of 2^k chunks.
MM_CODE u32 parents_of(u32 n) { return n / 2; }
MM_CODE u32 level_above(u32 n) { return (n + 1) / 2; }

// Return the number of pieces of 2^shift bytes in `nbytes`; an empty segment is one empty piece.
MM_CODE u64 pieces_of(u64 nbytes, u32 shift) {
    const u64 pieces = (nbytes + (1ull << shift) - 1) >> shift;
    return pieces ? pieces : 1;
}

// Return the length of piece `index`.
MM_CODE u32 piece_bytes(u64 nbytes, u32 shift, u64 index) {
    const u64 left = nbytes - (index << shift);
    return static_cast<u32>(left < (1ull << shift) ? left : 1ull << shift);
}

// Return the one of `n` segments that has tile `tile`; `first[s]` is the first tile of segment s.
MM_CODE u32 segment_of(const u32* first, u32 n, u32 tile) {
    u32 low = 0, high = n;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (first[middle] <= tile) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

}  // namespace mm
