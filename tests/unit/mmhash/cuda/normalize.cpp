// The pixels' headers as plain C++.
#include "normalize.cuh"

using namespace mm;

namespace {

// All pixels of an image, word by word.
template <typename Item>
void make(const Normalization& how, const u8* pixels, u32 count, u8* features) {
    Tables<Item> tables;
    for (u32 thread = 0; thread < 3; thread++) fill(tables, how, thread, 3);
    for (u32 at = 0; at < count; at += WORD) {
        u32 word;
        __builtin_memcpy(&word, pixels + at, WORD);
        const Features<Item> made = features_at(word, tables, how, place_of(how, at));
        __builtin_memcpy(features + at * sizeof(Item), &made, sizeof made);
    }
}

}  // namespace

extern "C" {

void host_normalize(const Work* work) {
    const u8* pixels = reinterpret_cast<const u8*>(work->pixels);
    u8* features = reinterpret_cast<u8*>(work->features);
    if (work->how.format == Format::FLOAT32) {
        make<u32>(work->how, pixels, work->image, features);
    } else {
        make<u16>(work->how, pixels, work->image, features);
    }
}

u32 host_divided(u32 n, u32 by, u32 multiplier, u32 shift) {
    return divided(n, {by, multiplier, shift});
}
}
