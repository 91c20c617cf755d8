// Sources of the features of a part of an image: read() loads pixels, and take() computes their
// features, writes them to memory and returns them.
#pragma once
#include "normalize.cuh"

namespace mm {

// Words of pixels, and their features.
template <u32 WORDS>
struct alignas(WORDS* WORD) Pixels {
    u32 w[WORDS];
};

template <typename Item, u32 WORDS>
struct alignas(WORDS * WORD * sizeof(Item)) Piece {
    Features<Item> of[WORDS];
};

__device__ __forceinline__ Pixels<1> load(const Pixels<1>* at) {
    Pixels<1> pixels;
    asm("ld.global.nc.L2::128B.u32 %0, [%1];" : "=r"(pixels.w[0]) : "l"(at));
    return pixels;
}

__device__ __forceinline__ Pixels<2> load(const Pixels<2>* at) {
    Pixels<2> pixels;
    asm("ld.global.nc.L2::128B.v2.u32 {%0, %1}, [%2];"
        : "=r"(pixels.w[0]), "=r"(pixels.w[1])
        : "l"(at));
    return pixels;
}

// An image's features from byte `start` on, and their pixels.
template <typename Item>
struct Stretch {
    const Work& work;
    const Tables<Item>& tables;
    const u8* pixels;
    u8* features;
    u32 first;  // its first pixel in the image

    __device__ __forceinline__ Stretch(const Work& work, const Tables<Item>& tables, u32 image,
                                       u64 start)
        : work(work), tables(tables), first(static_cast<u32>(start / sizeof(Item))) {
        const u64 before = static_cast<u64>(image) * work.image + first;
        pixels = reinterpret_cast<const u8*>(work.pixels) + before;
        features = reinterpret_cast<u8*>(work.features) + before * sizeof(Item);
    }

    __device__ __forceinline__ Place place_at(u32 at) const {
        return place_of(work.how, first + at / sizeof(Item));
    }
};

// A stretch of one channel, in pieces aligned to their size.
template <typename Item, u32 WORDS>
struct Plain {
    typedef Pixels<WORDS> Raw;
    typedef Piece<Item, WORDS> Made;
    const u8* pixels;
    u8* features;
    Table<Item> table;

    // Return true if `nbytes` from byte `at` of a stretch on are such a stretch.
    static __device__ __forceinline__ bool fits(const Stretch<Item>& stretch, u32 at, u32 nbytes) {
        const u64 pixels = reinterpret_cast<u64>(stretch.pixels) + at / sizeof(Item);
        const u64 features = reinterpret_cast<u64>(stretch.features) + at;
        return (pixels & sizeof(Raw) - 1) == 0 && (features & sizeof(Made) - 1) == 0 &&
               nbytes / sizeof(Item) <= stretch.work.how.run.by - stretch.place_at(at).before;
    }

    __device__ __forceinline__ Plain(const Stretch<Item>& stretch, u32 at)
        : pixels(stretch.pixels + at / sizeof(Item)),
          features(stretch.features + at),
          table(table_of(stretch.tables, stretch.place_at(at).channel)) {}

    // Advance by `nbytes` of features; offsets in read() and take() start there.
    __device__ __forceinline__ void skip(u32 nbytes) {
        pixels += nbytes / sizeof(Item);
        features += nbytes;
    }

    __device__ __forceinline__ Raw read(u32 at) const {
        return load(reinterpret_cast<const Raw*>(pixels + at / sizeof(Item)));
    }

    __device__ __forceinline__ Made take(u32 at, const Raw& raw) const {
        Made made;
#pragma unroll
        for (u32 i = 0; i < WORDS; i++) made.of[i] = features_of(raw.w[i], table, 0);
        *reinterpret_cast<Made*>(features + at) = made;
        return made;
    }
};

// Any stretch, from byte `at` to `end`; zeros follow it.
template <typename Item, u32 WORDS>
struct Mixed {
    typedef Pixels<WORDS> Raw;
    typedef Piece<Item, WORDS> Made;
    const Stretch<Item>& stretch;
    u32 start, end;

    __device__ __forceinline__ Mixed(const Stretch<Item>& stretch, u32 at, u32 end)
        : stretch(stretch), start(at), end(end) {}

    __device__ __forceinline__ void skip(u32 nbytes) { start += nbytes; }

    __device__ __forceinline__ Raw read(u32 at) const {
        Raw raw = {};
#pragma unroll
        for (u32 i = 0; i < WORDS; i++) {
            const u32 from = start + at + i * sizeof(Features<Item>);
            const u8* word = stretch.pixels + from / sizeof(Item);
            if (from < end) raw.w[i] = load(reinterpret_cast<const Pixels<1>*>(word)).w[0];
        }
        return raw;
    }

    __device__ __forceinline__ Made take(u32 at, const Raw& raw) const {
        const Normalization& how = stretch.work.how;
        Made made = {};
#pragma unroll
        for (u32 i = 0; i < WORDS; i++) {
            const u32 to = start + at + i * sizeof(Features<Item>);
            if (to >= end) continue;
            made.of[i] = features_at(raw.w[i], stretch.tables, how, stretch.place_at(to));
            *reinterpret_cast<Features<Item>*>(stretch.features + to) = made.of[i];
        }
        return made;
    }
};

}  // namespace mm
