// Features of pixels: scaled, minus the channel's mean, divided by its deviation, rounded.
//
// A pixel has 256 values, so a channel is a table of 256 features: each block computes the tables
// once, step by step as in the expression, and then looks features up.
#pragma once
#include "portable.cuh"

namespace mm {

enum class Format : u32 {
    FLOAT32,
    FLOAT16,
    BFLOAT16
};

enum : u32 {
    VALUES = 256,  // values of a pixel
    CHANNELS = 8,  // the most channels of an image
    WORD = 4,      // pixels that are read, converted and written at a time
};

// Division by a constant of the launch, for numbers below 2^31.
struct Divisor {
    u32 by;
    u32 multiplier;  // 2^shift / by, the next larger integer
    u32 shift;       // 31 + the bits of by - 1
};

MM_CODE u32 divided(u32 n, const Divisor& d) {
    return static_cast<u32>(static_cast<u64>(n) * d.multiplier >> d.shift);
}

// The steps from an image's pixels to features. normalize.py packs the same layout.
struct Normalization {
    u64 mean;  // a float for each channel
    u64 std;
    Divisor run;  // consecutive pixels of one channel
    Divisor channels;
    float scale;
    Format format;
};

// The channel of a pixel, and the number of pixels before it in its run.
struct Place {
    u32 channel, before;
};

MM_CODE Place place_of(const Normalization& how, u32 pixel) {
    const u32 run = divided(pixel, how.run);
    return {run - divided(run, how.channels) * how.channels.by, pixel - run * how.run.by};
}

MM_CODE void step(const Normalization& how, Place& place) {
    if (++place.before < how.run.by) return;
    place.before = 0;
    if (++place.channel == how.channels.by) place.channel = 0;
}

// Return the bits of the feature for a pixel of a channel.
MM_CODE u32 feature(const Normalization& how, u32 channel, u32 pixel) {
    const float mean = reinterpret_cast<const float*>(how.mean)[channel];
    const float std = reinterpret_cast<const float*>(how.std)[channel];
    const float scaled = product(static_cast<float>(pixel), how.scale);
    const float made = quotient(difference(scaled, mean), std);
    switch (how.format) {
        case Format::FLOAT16: return float16_bits(made);
        case Format::BFLOAT16: return bfloat16_bits(made);
        default: return float32_bits(made);
    }
}

// The channels' tables, with the first ones repeated after the last, so that for interleaved
// channels each is followed by that of the next pixel. Item is an integer as wide as a feature.
template <typename Item>
struct Tables {
    Item of[CHANNELS + WORD - 1][VALUES];
};

// Fill the tables: every `stride`th feature from `first` on.
template <typename Item>
MM_CODE void fill(Tables<Item>& tables, const Normalization& how, u32 first, u32 stride) {
    for (u32 i = first; i < (how.channels.by + WORD - 1) * VALUES; i += stride) {
        const u32 channel = i / VALUES % how.channels.by, pixel = i % VALUES;
        tables.of[i / VALUES][pixel] = static_cast<Item>(feature(how, channel, pixel));
    }
}

MM_CODE u32 pixel_of(u32 word, u32 index) {
#if defined(__CUDACC__)
    return __byte_perm(word, 0, 0x4440 + index);
#else
    return word >> 8 * index & 0xFF;
#endif
}

// A channel's table, by its address in shared memory.
template <typename Item>
struct Table {
#if defined(__CUDACC__)
    u32 address;
#else
    const Item* address;
#endif
};

template <typename Item>
MM_CODE Table<Item> table_of(const Tables<Item>& tables, u32 channel) {
#if defined(__CUDACC__)
    return {static_cast<u32>(__cvta_generic_to_shared(tables.of[channel]))};
#else
    return {tables.of[channel]};
#endif
}

MM_CODE u32 look_up(Table<u16> table, u32 index) {
#if defined(__CUDACC__)
    u16 bits;
    asm("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(table.address + index * 2));
    return bits;
#else
    return table.address[index];
#endif
}

MM_CODE u32 look_up(Table<u32> table, u32 index) {
#if defined(__CUDACC__)
    u32 bits;
    asm("ld.shared.u32 %0, [%1];" : "=r"(bits) : "r"(table.address + index * 4));
    return bits;
#else
    return table.address[index];
#endif
}

// The features of a word of pixels, in memory order.
template <typename Item>
struct alignas(WORD * sizeof(Item)) Features {
    u32 w[sizeof(Item)];
};

MM_CODE void put(Features<u32>& features, u32 index, u32 bits) { features.w[index] = bits; }

MM_CODE void put(Features<u16>& features, u32 index, u32 bits) {
    features.w[index / 2] = index % 2 ? features.w[index / 2] | bits << 16 : bits;
}

// Return the features of a word of pixels; `table` is of the first pixel's channel, and the channel
// of each further pixel is `turn` (0 or 1) after that of the one before.
template <typename Item>
MM_CODE Features<Item> features_of(u32 word, Table<Item> table, u32 turn) {
    Features<Item> features;
    MM_UNROLL
    for (u32 i = 0; i < WORD; i++) {
        put(features, i, look_up(table, i * turn * VALUES + pixel_of(word, i)));
    }
    return features;
}

// Return the features of a word of pixels in which a run ends, and thus a channel.
template <typename Item>
MM_SELDOM Features<Item> features_across(u32 word, const Tables<Item>& tables,
                                         const Normalization& how, Place place) {
    Features<Item> features;
    MM_UNROLL
    for (u32 i = 0; i < WORD; i++) {
        put(features, i, look_up(table_of(tables, place.channel), pixel_of(word, i)));
        step(how, place);
    }
    return features;
}

// Return the features of a word of pixels; the first pixel is at `place`.
template <typename Item>
MM_CODE Features<Item> features_at(u32 word, const Tables<Item>& tables, const Normalization& how,
                                   Place place) {
    const u32 turn = how.run.by == 1;
    if (turn || WORD <= how.run.by - place.before) {
        return features_of(word, table_of(tables, place.channel), turn);
    }
    return features_across(word, tables, how, place);
}

// The parameters of a launch. The images are contiguous, aligned to 4 bytes, consist of whole
// words, and are not empty. normalize.py packs the same layout.
struct Work {
    u64 pixels;
    u64 features;
    u64 digests;
    u64 scratch;   // nodes of unfinished trees
    u64 counters;  // one for each image if it has several tiles; zeros before and after
    Normalization how;
    u32 image;  // pixels per image
    u32 tiles;  // tiles per image
    u32 tile_shift;
    u32 one;  // 1: see blake3.cuh
};

}  // namespace mm
