// The arithmetic of SGLang's own hash of a feature on a GPU: 32-bit words, each mixed with its
// index, are added up per tile of 8192 words, and the tiles' hashes are added up.
#pragma once
#include "portable.cuh"

namespace mm {

// A word is hashed twice, with different constants, for the two halves of a tile's hash.
struct HalfSums {
    u32 high, low;
};

MM_CODE u32 mix32(u32 x) {
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

MM_CODE u32 rotate_left(u32 x, u32 by) { return x << by | x >> (32 - by); }

MM_CODE void add_word(HalfSums& sums, u32 word, u32 index) {
    const u32 seed = 0x243F6A88u, other_seed = seed * 0x9E3779B1u ^ 0xDEADBEEFu;
    sums.high += mix32(word ^ (index * 0x27D4EB2Du + seed) ^ rotate_left(index, 15));
    sums.low += mix32(word ^ (index * 0x165667B1u + other_seed) ^ rotate_left(index, 13));
}

// Return a tile's hash. `padded` is the length of the whole segment in bytes, a multiple of 4.
MM_CODE u64 tile_hash(HalfSums sums, u32 padded) {
    return static_cast<u64>(mix32(sums.high ^ padded)) << 32 | mix32(sums.low ^ padded);
}

// Return a segment's hash, given the sum of its tiles' hashes.
MM_CODE u64 segment_hash(u64 sum) {
    sum = (sum ^ sum >> 30) * 0xBF58476D1CE4E5B9ull;
    sum = (sum ^ sum >> 27) * 0x94D049BB133111EBull;
    return sum ^ sum >> 31;
}

}  // namespace mm
