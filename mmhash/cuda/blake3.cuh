// The arithmetic of BLAKE3: compression, chunk and parent.
#pragma once
#include "portable.cuh"

namespace mm {

enum : u32 {
    CHUNK_BYTES = 1024,
    BLOCK_BYTES = 64,
    ROUNDS = 7,

    CHUNK_START = 1,
    CHUNK_END = 2,
    PARENT = 4,
    ROOT = 8,
};

MM_CODE void blake3_iv(u32* cv) {
    cv[0] = 0x6A09E667u;
    cv[1] = 0xBB67AE85u;
    cv[2] = 0x3C6EF372u;
    cv[3] = 0xA54FF53Au;
    cv[4] = 0x510E527Fu;
    cv[5] = 0x9B05688Cu;
    cv[6] = 0x1F83D9ABu;
    cv[7] = 0x5BE0CD19u;
}

MM_CODE u32 rotate_right(u32 x, u32 bits) {
#if defined(__CUDACC__)
    // Rotations by whole bytes: one operand to read instead of two.
    if (bits == 16) return __byte_perm(x, 0, 0x1032);
    if (bits == 8) return __byte_perm(x, 0, 0x0321);
#endif
    return x >> bits | x << (32 - bits);
}

// `one` is 1, hidden from the compiler: written as a multiply-add, a sum leaves the integer pipe to
// the xors and rotations. Only the second sum of a + x + b is written this way: this prevents the
// fusion of the three operands into one instruction of the integer pipe, and the compiler then puts
// the other sums on the multiply-add pipe, where they read one register less. Writing no sum or all
// sums this way is slower.
MM_CODE void quarter(u32& a, u32& b, u32& c, u32& d, u32 x, u32 y, u32 one) {
    a = (a + x) * one + b;
    d = rotate_right(d ^ a, 16);
    c = c + d;
    b = rotate_right(b ^ c, 12);
    a = (a + y) * one + b;
    d = rotate_right(d ^ a, 8);
    c = c + d;
    b = rotate_right(b ^ c, 7);
}

MM_CODE void round(u32* v, const u32* m, u32 one) {
    quarter(v[0], v[4], v[8], v[12], m[0], m[1], one);
    quarter(v[1], v[5], v[9], v[13], m[2], m[3], one);
    quarter(v[2], v[6], v[10], v[14], m[4], m[5], one);
    quarter(v[3], v[7], v[11], v[15], m[6], m[7], one);
    quarter(v[0], v[5], v[10], v[15], m[8], m[9], one);
    quarter(v[1], v[6], v[11], v[12], m[10], m[11], one);
    quarter(v[2], v[7], v[8], v[13], m[12], m[13], one);
    quarter(v[3], v[4], v[9], v[14], m[14], m[15], one);
}

MM_CODE void permute(u32* m) {
    const u32 p[16] = {m[2], m[6],  m[3],  m[10], m[7], m[0],  m[4],  m[13],
                       m[1], m[11], m[12], m[5],  m[9], m[14], m[15], m[8]};
    MM_UNROLL
    for (int i = 0; i < 16; i++) m[i] = p[i];
}

// One compression; `cv` becomes the first half of its output, which is enough for a hash of 32
// bytes and for a tree's nodes. UNROLL rounds are unrolled: within them the permutation only
// renames registers, between them it moves 16.
template <int UNROLL>
MM_CODE void compress(u32* cv, const u32* block, u64 counter, u32 nbytes, u32 flags, u32 one) {
    u32 v[16], m[16];
    MM_UNROLL
    for (int i = 0; i < 8; i++) v[i] = cv[i];
    v[8] = 0x6A09E667u;
    v[9] = 0xBB67AE85u;
    v[10] = 0x3C6EF372u;
    v[11] = 0xA54FF53Au;
    v[12] = static_cast<u32>(counter);
    v[13] = static_cast<u32>(counter >> 32);
    v[14] = nbytes;
    v[15] = flags;
    MM_UNROLL
    for (int i = 0; i < 16; i++) m[i] = block[i];

    bool more = true;
    MM_NO_UNROLL
    for (int left = ROUNDS; more; left -= UNROLL) {
        MM_UNROLL
        for (int i = 0; i < UNROLL; i++) {
            round(v, m, one);
            if (i == (ROUNDS - 1) % UNROLL && left <= UNROLL) {
                more = false;
                break;
            }
            permute(m);
        }
    }
    MM_UNROLL
    for (int i = 0; i < 8; i++) cv[i] = v[i] ^ v[i + 8];
}

// Read block `index` of a chunk of `nbytes` at `data`, with any alignment, zero-padded.
MM_CODE void gather_block(u32* block, const u8* data, u32 nbytes, u32 index) {
    const u32 offset = misalignment(data);
    const u8* granules = data - offset;
    const u32 held = (offset + nbytes + 15) / 16;
    u32 from[20];
    MM_UNROLL
    for (u32 g = 0; g < 5; g++) {
        const u32 at = index * 4 + g;
        Granule granule = {{0, 0, 0, 0}};
        if (at < held) granule = load_granule<Memory::CACHED>(granules + at * 16);
        MM_UNROLL
        for (int i = 0; i < 4; i++) from[g * 4 + i] = granule.w[i];
    }
    realign<16>(block, from, offset);
    const u32 left = nbytes - index * BLOCK_BYTES;
    if (left < BLOCK_BYTES) {
        MM_UNROLL
        for (u32 i = 0; i < 16; i++) {
            if (left < i * 4 + 4) block[i] &= left > i * 4 ? (1u << (left - i * 4) * 8) - 1 : 0;
        }
    }
}

MM_CODE void whole_block(u32* block, const u8* data, u32 index) {
    MM_UNROLL
    for (u32 g = 0; g < 4; g++) {
        const Granule granule = load_granule<Memory::CACHED>(data + index * BLOCK_BYTES + g * 16);
        MM_UNROLL
        for (int i = 0; i < 4; i++) block[g * 4 + i] = granule.w[i];
    }
}

// Compute the chaining value of a chunk of 1024 bytes, aligned to a granule. The loop is the same
// for all threads, so that the compiler can keep uniform values out of the registers.
template <int UNROLL>
MM_CODE void whole_chunk(u32* cv, const u8* data, u64 counter, u32 root, u32 one) {
    u32 next[16];
    whole_block(next, data, 0);
    blake3_iv(cv);
    MM_NO_UNROLL
    for (u32 index = 0; index < CHUNK_BYTES / BLOCK_BYTES; index++) {
        u32 block[16];
        MM_UNROLL
        for (int i = 0; i < 16; i++) block[i] = next[i];
        const bool last = index == CHUNK_BYTES / BLOCK_BYTES - 1;
        if (!last) whole_block(next, data, index + 1);  // read ahead by one compression
        compress<UNROLL>(cv, block, counter, BLOCK_BYTES,
                         (index == 0 ? CHUNK_START : 0) | (last ? CHUNK_END | root : 0), one);
    }
}

// Compute the chaining value of a chunk of 0 to 1024 bytes, or its digest if `root` is ROOT.
template <int UNROLL>
MM_CODE void chunk(u32* cv, const u8* data, u32 nbytes, u64 counter, u32 root, u32 one) {
    const u32 blocks = nbytes ? (nbytes + BLOCK_BYTES - 1) / BLOCK_BYTES : 1;
    u32 next[16];
    gather_block(next, data, nbytes, 0);
    blake3_iv(cv);
    u32 flags = CHUNK_START;
    MM_NO_UNROLL
    for (u32 index = 0; index < blocks; index++) {
        u32 block[16];
        MM_UNROLL
        for (int i = 0; i < 16; i++) block[i] = next[i];
        u32 held = BLOCK_BYTES;
        if (index + 1 < blocks) {
            gather_block(next, data, nbytes, index + 1);
        } else {
            held = nbytes - index * BLOCK_BYTES;
            flags |= CHUNK_END | root;
        }
        compress<UNROLL>(cv, block, counter, held, flags, one);
        flags = 0;
    }
}

// Compute the parent of two nodes, whose 16 words are in `children`.
template <int UNROLL>
MM_CODE void parent(u32* cv, const u32* children, u32 root, u32 one) {
    blake3_iv(cv);
    compress<UNROLL>(cv, children, 0, BLOCK_BYTES, PARENT | root, one);
}

// Compute BLAKE3 of a message of 0 to 1024 bytes with a key and the flags of a mode. The message is
// padded with zeros to whole blocks, at least one.
MM_CODE void keyed_chunk(u32* cv, const u32* message, u32 nbytes, const u32* key, u32 mode,
                         u32 one) {
    const u32 blocks = nbytes ? (nbytes + BLOCK_BYTES - 1) / BLOCK_BYTES : 1;
    MM_UNROLL
    for (int i = 0; i < 8; i++) cv[i] = key[i];
    MM_NO_UNROLL
    for (u32 index = 0; index < blocks; index++) {
        const bool last = index + 1 == blocks;
        u32 block[16];
        MM_UNROLL
        for (int i = 0; i < 16; i++) block[i] = message[index * 16 + i];
        compress<1>(cv, block, 0, last ? nbytes - index * BLOCK_BYTES : BLOCK_BYTES,
                    mode | (index == 0 ? CHUNK_START : 0) | (last ? CHUNK_END | ROOT : 0), one);
    }
}

}  // namespace mm
