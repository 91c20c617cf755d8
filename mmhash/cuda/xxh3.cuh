// The arithmetic of XXH3-128: the short forms, and the long form, split for many threads.
//
// The long form is a chain over blocks of 1 KiB: add the block's sum to the accumulators, scramble.
// A block's sum does not depend on the chain, so sums are computed in parallel; only the scrambles
// are sequential.
#pragma once
#include "portable.cuh"

namespace mm {

enum : u32 {
    STRIPE_BYTES = 64,
    STRIPES = 16,  // a block
    XXH3_BLOCK_BYTES = STRIPES * STRIPE_BYTES,
    XXH3_SHORT = 240,  // the longest message without a chain
    SECRET_WORDS = 24,
    SCRAMBLE_WORD = 16,  // index of the scramble's key in the secret
    LAST_STRIPE_AT = 121,
    MERGE_LOW_AT = 11,
    MERGE_HIGH_AT = 117,
};

static const u64 P32_1 = 0x9E3779B1ull;
static const u64 P32_2 = 0x85EBCA77ull;
static const u64 P32_3 = 0xC2B2AE3Dull;
static const u64 P64_1 = 0x9E3779B185EBCA87ull;
static const u64 P64_2 = 0xC2B2AE3D27D4EB4Full;
static const u64 P64_3 = 0x165667B19E3779F9ull;
static const u64 P64_4 = 0x85EBCA77C2B2AE63ull;
static const u64 P64_5 = 0x27D4EB2F165667C5ull;

// The algorithm's default secret, as little-endian words.
MM_TABLE u64 DEFAULT_SECRET[SECRET_WORDS] = {
    0xBE4BA423396CFEB8ull, 0x1CAD21F72C81017Cull, 0xDB979083E96DD4DEull, 0x1F67B3B7A4A44072ull,
    0x78E5C0CC4EE679CBull, 0x2172FFCC7DD05A82ull, 0x8E2443F7744608B8ull, 0x4C263A81E69035E0ull,
    0xCB00C391BB52283Cull, 0xA32E531B8B65D088ull, 0x4EF90DA297486471ull, 0xD8ACDEA946EF1938ull,
    0x3F349CE33F76FAA8ull, 0x1D4F0BC7C7BBDCF9ull, 0x3159B4CD4BE0518Aull, 0x647378D9C97E9FC8ull,
    0xC3EBD33483ACC5EAull, 0xEB6313FAFFA081C5ull, 0x49DAF0B751DD0D17ull, 0x9E68D429265516D3ull,
    0xFCA1477D58BE162Bull, 0xCE31D07AD1B8F88Full, 0x280416958F3ACB45ull, 0x7E404BBBCAFBD7AFull,
};

struct Hash128 {
    u64 low, high;
};

MM_CODE Hash128 multiply(u64 a, u64 b) {
#if defined(__CUDACC__)
    return {a * b, __umul64hi(a, b)};
#else
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return {static_cast<u64>(product), static_cast<u64>(product >> 64)};
#endif
}

MM_CODE u64 fold(u64 a, u64 b) {
    const Hash128 product = multiply(a, b);
    return product.low ^ product.high;
}

MM_CODE u64 low_times_high(u64 x) { return (x & 0xFFFFFFFFull) * (x >> 32); }

MM_CODE u32 swap32(u32 x) { return x << 24 | (x << 8 & 0xFF0000u) | (x >> 8 & 0xFF00u) | x >> 24; }

MM_CODE u64 swap64(u64 x) {
    return static_cast<u64>(swap32(static_cast<u32>(x))) << 32 | swap32(static_cast<u32>(x >> 32));
}

MM_CODE u64 avalanche(u64 h) {
    h = (h ^ h >> 37) * 0x165667919E3779F9ull;
    return h ^ h >> 32;
}

MM_CODE u64 avalanche64(u64 h) {  // the finish of XXH64, used for the shortest messages
    h = (h ^ h >> 33) * P64_2;
    h = (h ^ h >> 29) * P64_3;
    return h ^ h >> 32;
}

// 8 bytes of a secret, at any offset.
MM_CODE u64 secret_at(const u64* secret, u32 at) {
    const u32 bits = (at & 7) * 8;
    const u64 word = secret[at >> 3];
    return bits ? word >> bits | secret[(at >> 3) + 1] << (64 - bits) : word;
}

// Return word `i` of the secret that is derived from the default one with a seed.
MM_CODE u64 seeded_secret(u32 i, u64 seed) {
    return i & 1 ? DEFAULT_SECRET[i] - seed : DEFAULT_SECRET[i] + seed;
}

// 4 bytes at any address, read as the aligned words that hold them.
MM_CODE u32 read32(const u8* at) {
    const u32 offset = static_cast<u32>(reinterpret_cast<u64>(at) & 3);
    const u32 low = load_word(at - offset);
    return offset ? shift_pair(low, load_word(at - offset + 4), offset * 8) : low;
}

MM_CODE u64 read64(const u8* at) { return read32(at) | static_cast<u64>(read32(at + 4)) << 32; }

MM_CODE u64 mix16(u64 a, u64 b, u32 secret_offset, u64 seed) {
    return fold(a ^ (secret_at(DEFAULT_SECRET, secret_offset) + seed),
                b ^ (secret_at(DEFAULT_SECRET, secret_offset + 8) - seed));
}

MM_CODE void mix32(Hash128& acc, const u8* one, const u8* two, u32 secret_offset, u64 seed) {
    const u64 a = read64(one), b = read64(one + 8);
    const u64 c = read64(two), d = read64(two + 8);
    acc.low = (acc.low + mix16(a, b, secret_offset, seed)) ^ (c + d);
    acc.high = (acc.high + mix16(c, d, secret_offset + 16, seed)) ^ (a + b);
}

MM_CODE Hash128 finish_middle(Hash128 acc, u32 nbytes, u64 seed) {
    return {avalanche(acc.low + acc.high),
            0 - avalanche(acc.low * P64_1 + acc.high * P64_4 + (nbytes - seed) * P64_2)};
}

// A message of 0 to 240 bytes.
MM_CODE Hash128 short_message(const u8* in, u32 nbytes, u64 seed) {
    const u64* s = DEFAULT_SECRET;
    if (nbytes == 0) {
        return {avalanche64(seed ^ s[8] ^ s[9]), avalanche64(seed ^ s[10] ^ s[11])};
    }
    if (nbytes <= 3) {
        const u32 low = static_cast<u32>(in[0]) << 16 | static_cast<u32>(in[nbytes >> 1]) << 24 |
                        in[nbytes - 1] | nbytes << 8;
        const u32 swapped = swap32(low);
        const u32 high = swapped << 13 | swapped >> 19;
        const u64 flip_low = ((s[0] & 0xFFFFFFFFull) ^ s[0] >> 32) + seed;
        const u64 flip_high = ((s[1] & 0xFFFFFFFFull) ^ s[1] >> 32) - seed;
        return {avalanche64(low ^ flip_low), avalanche64(high ^ flip_high)};
    }
    if (nbytes <= 8) {
        seed ^= static_cast<u64>(swap32(static_cast<u32>(seed))) << 32;
        const u64 both = read32(in) + (static_cast<u64>(read32(in + nbytes - 4)) << 32);
        Hash128 h = multiply(both ^ ((s[2] ^ s[3]) + seed), P64_1 + (nbytes << 2));
        h.high += h.low << 1;
        h.low ^= h.high >> 3;
        h.low = (h.low ^ h.low >> 35) * 0x9FB21C651E98DF25ull;
        h.low ^= h.low >> 28;
        h.high = avalanche(h.high);
        return h;
    }
    if (nbytes <= 16) {
        const u64 low = read64(in);
        u64 high = read64(in + nbytes - 8);
        Hash128 m = multiply(low ^ high ^ ((s[4] ^ s[5]) - seed), P64_1);
        m.low += static_cast<u64>(nbytes - 1) << 54;
        high ^= (s[6] ^ s[7]) + seed;
        m.high += high + (high & 0xFFFFFFFFull) * (P32_2 - 1);
        m.low ^= swap64(m.high);
        Hash128 h = multiply(m.low, P64_2);
        h.high += m.high * P64_2;
        return {avalanche(h.low), avalanche(h.high)};
    }
    Hash128 acc = {nbytes * P64_1, 0};
    if (nbytes <= 128) {
        MM_NO_UNROLL
        for (u32 i = (nbytes - 1) / 32; i > 0; i--) {
            mix32(acc, in + i * 16, in + nbytes - (i + 1) * 16, i * 32, seed);
        }
        mix32(acc, in, in + nbytes - 16, 0, seed);
        return finish_middle(acc, nbytes, seed);
    }
    MM_NO_UNROLL
    for (u32 i = 0; i < nbytes / 32; i++) {
        mix32(acc, in + i * 32, in + i * 32 + 16, i < 4 ? i * 32 : i * 32 - 125, seed);
        if (i == 3) acc = {avalanche(acc.low), avalanche(acc.high)};
    }
    mix32(acc, in + nbytes - 16, in + nbytes - 32, 103, 0 - seed);
    return finish_middle(acc, nbytes, seed);
}

// Return a stripe's term for accumulator i: `own` is its word i, `other` its word i ^ 1.
MM_CODE u64 stripe_term(u64 own, u64 other, u64 secret) {
    return other + low_times_high(own ^ secret);
}

MM_CODE u64 scramble(u64 acc, u64 secret) { return (acc ^ acc >> 47 ^ secret) * P32_1; }

MM_CODE u64 first_accumulator(u32 i) {
    switch (i) {
        case 0: return P32_3;
        case 1: return P64_1;
        case 2: return P64_2;
        case 3: return P64_3;
        case 4: return P64_4;
        case 5: return P32_2;
        case 6: return P64_5;
        default: return P32_1;
    }
}

// The number of blocks of a long message that are followed by a scramble, and the number of stripes
// between them and the last stripe, which ends with the message and overlaps them.
MM_CODE u32 chained_blocks(u32 nbytes) { return (nbytes - 1) / XXH3_BLOCK_BYTES; }
MM_CODE u32 loose_stripes(u32 nbytes) { return (nbytes - 1) % XXH3_BLOCK_BYTES / STRIPE_BYTES; }

// Return part `part` of PARTS of accumulator i's sum over the data after the last scramble.
template <u32 PARTS>
MM_CODE u64 loose_sum(const u8* in, u32 nbytes, const u64* secret, u32 i, u32 part) {
    const u8* block = in + static_cast<u64>(chained_blocks(nbytes)) * XXH3_BLOCK_BYTES;
    const u32 stripes = loose_stripes(nbytes);
    const u8* last = in + nbytes - STRIPE_BYTES;
    u64 sum = 0;
    MM_UNROLL
    for (u32 k = 0; k < STRIPES; k += PARTS) {
        const u32 s = k + part;
        const u8* at = s < stripes ? block + s * STRIPE_BYTES : last;
        const u64 key = s < stripes ? secret[s + i] : secret_at(secret, LAST_STRIPE_AT + i * 8);
        const u64 term = stripe_term(read64(at + i * 8), read64(at + (i ^ 1) * 8), key);
        if (s <= stripes) sum += term;
    }
    return sum;
}

MM_CODE u64 merge(const u64* acc, const u64* secret, u32 at, u64 start) {
    MM_UNROLL
    for (u32 i = 0; i < 4; i++) {
        start += fold(acc[2 * i] ^ secret_at(secret, at + 16 * i),
                      acc[2 * i + 1] ^ secret_at(secret, at + 16 * i + 8));
    }
    return avalanche(start);
}

MM_CODE Hash128 finish_long(const u64* acc, const u64* secret, u64 nbytes) {
    return {merge(acc, secret, MERGE_LOW_AT, nbytes * P64_1),
            merge(acc, secret, MERGE_HIGH_AT, ~(nbytes * P64_2))};
}

// The canonical form: 16 bytes, big-endian, as words in memory order.
MM_CODE void canonical(u32* words, Hash128 h) {
    words[0] = swap32(static_cast<u32>(h.high >> 32));
    words[1] = swap32(static_cast<u32>(h.high));
    words[2] = swap32(static_cast<u32>(h.low >> 32));
    words[3] = swap32(static_cast<u32>(h.low));
}

}  // namespace mm
