// The kernels' headers as plain C++, with loops where the kernels have threads.
#include <cstring>
#include <vector>

#include "blake3.cuh"
#include "sglang.cuh"
#include "tree.cuh"
#include "xxh3.cuh"

using namespace mm;

namespace {

struct Node {
    u32 cv[8];
};

template <int UNROLL>
Node join(std::vector<Node> nodes, u32 root) {
    while (nodes.size() > 1) {
        const u32 n = nodes.size();
        std::vector<Node> above(level_above(n));
        for (u32 i = 0; i < parents_of(n); i++) {
            u32 children[16];
            std::memcpy(children, nodes[2 * i].cv, 32);
            std::memcpy(children + 8, nodes[2 * i + 1].cv, 32);
            parent<UNROLL>(above[i].cv, children, n == 2 ? root : 0, 1);
        }
        if (n & 1) above[n / 2] = nodes[n - 1];
        nodes = above;
    }
    return nodes[0];
}

Hash128 long_message(const u8* in, u32 nbytes, u64 seed) {
    u64 secret[SECRET_WORDS], acc[8];
    for (u32 i = 0; i < SECRET_WORDS; i++) secret[i] = seeded_secret(i, seed);
    for (u32 i = 0; i < 8; i++) acc[i] = first_accumulator(i);
    for (u32 b = 0; b < chained_blocks(nbytes); b++) {
        for (u32 i = 0; i < 8; i++) {
            u64 sum = 0;
            for (u32 s = 0; s < STRIPES; s++) {
                const u8* stripe = in + b * XXH3_BLOCK_BYTES + s * STRIPE_BYTES;
                sum += stripe_term(read64(stripe + i * 8), read64(stripe + (i ^ 1) * 8),
                                   secret[s + i]);
            }
            acc[i] = scramble(acc[i] + sum, secret[SCRAMBLE_WORD + i]);
        }
    }
    for (u32 i = 0; i < 8; i++) {
        for (u32 part = 0; part < 4; part++) acc[i] += loose_sum<4>(in, nbytes, secret, i, part);
    }
    return finish_long(acc, secret, nbytes);
}

Hash128 message(const u8* in, u32 nbytes, u64 seed) {
    if (nbytes <= XXH3_SHORT) return short_message(in, nbytes, seed);
    return long_message(in, nbytes, seed);
}

template <int UNROLL>
void blake3_tree(const u8* data, u64 nbytes, u32 tile_shift, u8* digest) {
    const u64 tiles = pieces_of(nbytes, tile_shift);
    std::vector<Node> tops(tiles);
    for (u64 t = 0; t < tiles; t++) {
        const u32 tile_bytes = piece_bytes(nbytes, tile_shift, t);
        const u64 start = t << tile_shift;
        const u32 chunks = pieces_of(tile_bytes, 10);
        const u32 only = tiles == 1 && chunks == 1 ? ROOT : 0;
        std::vector<Node> nodes(chunks);
        for (u32 i = 0; i < chunks; i++) {
            const u8* at = data + start + i * CHUNK_BYTES;
            const u32 held = piece_bytes(tile_bytes, 10, i);
            const u64 counter = start / CHUNK_BYTES + i;
            if (held == CHUNK_BYTES && misalignment(at) == 0) {
                whole_chunk<UNROLL>(nodes[i].cv, at, counter, only, 1);
            } else {
                chunk<UNROLL>(nodes[i].cv, at, held, counter, only, 1);
            }
        }
        tops[t] = join<UNROLL>(nodes, tiles == 1 ? ROOT : 0);
    }
    std::memcpy(digest, join<UNROLL>(tops, ROOT).cv, 32);
}

}  // namespace

extern "C" {

// `unroll` is one of those that the kernels use.
void host_blake3(const u8* data, u64 nbytes, u32 tile_shift, u32 unroll, u8* digest) {
    (unroll == 7   ? blake3_tree<7>
     : unroll == 4 ? blake3_tree<4>
                   : blake3_tree<1>)(data, nbytes, tile_shift, digest);
}

// A chunk by itself, for counters that no test can reach with data.
void host_chunk(const u8* data, u32 nbytes, u64 counter, u32 root, u8* cv) {
    u32 words[8];
    chunk<7>(words, data, nbytes, counter, root, 1);
    std::memcpy(cv, words, 32);
}

void host_keyed(const u8* message, u32 nbytes, const u8* key, u32 mode, u8* digest) {
    u32 words[CHUNK_BYTES / 4] = {0}, key_words[8], cv[8];
    std::memcpy(words, message, nbytes);
    std::memcpy(key_words, key, 32);
    keyed_chunk(cv, words, nbytes, key_words, mode, 1);
    std::memcpy(digest, cv, 32);
}

void host_xxh3_128(const u8* data, u32 nbytes, u64 seed, u8* digest) {
    u32 words[4];
    canonical(words, message(data, nbytes, seed));
    std::memcpy(digest, words, 16);
}

void host_xxh3_tree(const u8* data, u64 nbytes, u32 leaf_shift, u8* digest) {
    const u64 leaves = nbytes ? pieces_of(nbytes, leaf_shift) : 0;
    std::vector<u32> digests(leaves * 4 + 6);
    for (u64 i = 0; i < leaves; i++) {
        canonical(&digests[i * 4],
                  message(data + (i << leaf_shift), piece_bytes(nbytes, leaf_shift, i), 0));
    }
    std::memcpy(&digests[leaves * 4], &nbytes, 8);
    host_xxh3_128(reinterpret_cast<u8*>(digests.data()), leaves * 16 + 8, ROOT_SEED, digest);
}

void host_sglang(const u8* data, u64 nbytes, u32 tile_shift, u8* digest) {
    u64 sum = 0;
    for (u64 t = 0; nbytes && t < pieces_of(nbytes, tile_shift); t++) {
        HalfSums sums = {};
        for (u32 at = 0; at < piece_bytes(nbytes, tile_shift, t); at += 4) {
            const u64 from = (t << tile_shift) + at;
            u32 word = 0;
            std::memcpy(&word, data + from, nbytes - from < 4 ? nbytes - from : 4);
            add_word(sums, word, from / 4);
        }
        sum += tile_hash(sums, (nbytes + 3) & ~3ull);
    }
    sum = segment_hash(sum);
    std::memcpy(digest, &sum, 8);
}

u32 host_segment_of(const u32* first, u32 n, u32 tile) { return segment_of(first, n, tile); }
}
