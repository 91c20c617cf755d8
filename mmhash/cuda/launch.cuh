// The parameters of a launch, and the delivery of a segment's result. slots.py packs this layout.
#pragma once
#include "blake3.cuh"
#include "tree.cuh"

namespace mm {

struct Launch {
    u64 scratch;     // nodes of unfinished trees
    u64 counters;    // one for each segment, then one of finished segments; zeros before and after
    u64 host_out;    // 32 bytes for each segment, in pinned host memory
    u64 device_out;  // the same on the device, or 0
    u64 flag;        // in pinned host memory: set to `ticket` after all results are written
    u64 frames;      // in pinned host memory: a Frame for each segment, then the preimages; or 0
    u32 key[8];      // the frames' key and mode
    u32 mode;
    u32 ticket;
    u32 segments;
    u32 tile_shift;  // a tile has 2^tile_shift bytes
    u32 one;         // 1: see blake3.cuh
    u32 head;        // BLAKE3's tiles of a segment from this one on have 2^QUAD_SHIFT bytes
};

// A key's preimage: the digest is written into it at `hole`. If nbytes is 0, the digest is the
// result.
struct Frame {
    u32 at;  // from `frames`
    unsigned short nbytes, hole;
};

// The segments are in the parameters: a table in memory would need one more copy.
template <int N>
struct Parameters {
    Launch launch;
    u64 data[N];
    u64 nbytes[N];
    u32 first[N];  // the first tile of each segment
};

template <int N>
__device__ inline u32 tiles_of(const Parameters<N>& p, u32 segment) {
    return (segment + 1 < p.launch.segments ? p.first[segment + 1] : gridDim.x) - p.first[segment];
}

enum : u32 {
    FRAME_WORDS = CHUNK_BYTES / 4
};

struct DeliveryRoom {
    u32 digest[8];
    u32 message[FRAME_WORDS];
};

// Deliver a segment's digest, the first `words` of room.digest. Called by all lanes of one warp.
__device__ __noinline__ void deliver(const Launch& launch, u32 segment, u32 words,
                                     DeliveryRoom& room) {
    const u32 lane = threadIdx.x & 31;
    u32 given = lane < words ? room.digest[lane] : 0;
    if (launch.frames) {
        const Frame frame = reinterpret_cast<const Frame*>(launch.frames)[segment];
        if (frame.nbytes) {
            const u32* preimage = reinterpret_cast<const u32*>(launch.frames + frame.at);
            const u32 held = (frame.nbytes + 3) / 4;
            const u32 padded = (frame.nbytes + BLOCK_BYTES - 1) / BLOCK_BYTES * (BLOCK_BYTES / 4);
            for (u32 i = lane; i < padded; i += 32) room.message[i] = i < held ? preimage[i] : 0;
            __syncwarp();
            if (lane < words * 4) {
                reinterpret_cast<u8*>(room.message)[frame.hole + lane] =
                    reinterpret_cast<const u8*>(room.digest)[lane];
            }
            __syncwarp();
            if (lane == 0) {
                u32 cv[8];
                keyed_chunk(cv, room.message, frame.nbytes, launch.key, launch.mode, launch.one);
                for (int i = 0; i < 8; i++) room.digest[i] = cv[i];
            }
            __syncwarp();
            given = room.digest[lane & 7];
        }
    }
    if (lane < 8) {
        if (launch.device_out)
            reinterpret_cast<u32*>(launch.device_out)[segment * 8 + lane] = given;
        reinterpret_cast<volatile u32*>(launch.host_out)[segment * 8 + lane] = given;
        if (launch.segments > 1) __threadfence_system();
    }
    __syncwarp();
    if (lane == 0) {
        const u32 others = launch.segments - 1;
        u32* done = reinterpret_cast<u32*>(launch.counters) + launch.segments;
        if (others == 0 || atomicInc(done, others) == others) {  // and resets it to 0
            asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(launch.flag),
                         "r"(launch.ticket)
                         : "memory");
        }
    }
}

}  // namespace mm
