// The functions of libcuda.so.1 that mmhash calls, over host memory: a launch hashes on a thread.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "host.cpp"

namespace {

enum {
    NO_ERROR = 0,
    INVALID_VALUE = 1,
    NOT_READY = 600
};

// As in launch.cuh.
struct Launch {
    u64 scratch, counters, host_out, device_out, flag, frames;
    u32 key[8];
    u32 mode, ticket, segments, tile_shift, one, head;
};

struct Frame {
    u32 at;
    unsigned short nbytes, hole;
};

struct Kernel {
    bool blake3;
    u32 capacity;
};

std::atomic<int> running{0};
std::atomic<u64> microseconds{0};

// A copy of a kernel's parameters: the driver copies them too.
struct Work {
    Kernel kernel;
    Launch launch;
    std::vector<u64> data, nbytes;
    std::vector<u32> first;

    Work(Kernel k, const u8* from) : kernel(k) {
        std::memcpy(&launch, from, sizeof launch);
        const u32 n = launch.segments;
        data.resize(n), nbytes.resize(n), first.resize(n);
        from += sizeof launch;
        std::memcpy(data.data(), from, n * 8);
        std::memcpy(nbytes.data(), from + k.capacity * 8, n * 8);
        std::memcpy(first.data(), from + k.capacity * 16, n * 4);
    }

    // The number of blocks that the segments need, or 0 if `first` does not fit them.
    u32 blocks() const {
        u64 tiles = 0;
        for (u32 i = 0; i < launch.segments; i++) {
            if (first[i] != tiles) return 0;
            const u64 large = static_cast<u64>(launch.head) << launch.tile_shift;
            const bool both = launch.head && nbytes[i] > large;
            tiles += both ? launch.head + pieces_of(nbytes[i] - large, 15)
                          : pieces_of(nbytes[i], launch.tile_shift);
        }
        return tiles;
    }

    void run() const {
        for (u32 i = 0; i < launch.segments; i++) {
            u8 result[32] = {0};
            const u8* bytes = reinterpret_cast<const u8*>(data[i]);
            if (kernel.blake3) {
                host_blake3(bytes, nbytes[i], 17, 7, result);
            } else {
                host_xxh3_tree(bytes, nbytes[i], launch.tile_shift, result);
            }
            frame(i, result);
            std::memcpy(reinterpret_cast<u8*>(launch.host_out) + i * 32, result, 32);
            if (launch.device_out)
                std::memcpy(reinterpret_cast<u8*>(launch.device_out) + i * 32, result, 32);
        }
        __atomic_store_n(reinterpret_cast<u32*>(launch.flag), launch.ticket, __ATOMIC_RELEASE);
    }

    void frame(u32 segment, u8* result) const {
        if (!launch.frames) return;
        const Frame frame = reinterpret_cast<const Frame*>(launch.frames)[segment];
        if (!frame.nbytes) return;
        u8 message[CHUNK_BYTES];
        std::memcpy(message, reinterpret_cast<const u8*>(launch.frames) + frame.at, frame.nbytes);
        std::memcpy(message + frame.hole, result, kernel.blake3 ? 32 : 16);
        host_keyed(message, frame.nbytes, reinterpret_cast<const u8*>(launch.key), launch.mode,
                   result);
    }
};

}  // namespace

extern "C" {

// The time between a launch and its work; 0: at once, on the caller's thread.
void set_delay(u64 value) { microseconds = value; }

int cuInit(unsigned) { return NO_ERROR; }
int cuDeviceGet(int* device, int index) { return *device = index, NO_ERROR; }
int cuDeviceGetCount(int* count) { return *count = 1, NO_ERROR; }
int cuDeviceGetAttribute(int* value, int which, int) {
    return *value = which == 16 ? 132 : which == 75 ? 9 : 0, NO_ERROR;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
    return *context = reinterpret_cast<void*>(1), NO_ERROR;
}
int cuCtxGetCurrent(void** context) { return cuDevicePrimaryCtxRetain(context, 0); }
int cuCtxPushCurrent_v2(void*) { return NO_ERROR; }
int cuCtxPopCurrent_v2(void**) { return NO_ERROR; }
int cuModuleLoadData(void** module, const char*) { return *module = nullptr, NO_ERROR; }
int cuModuleGetFunction(void** function, void*, const char* name) {
    const std::string text = name;
    const u32 capacity = std::stoul(text.substr(text.find('_') + 1));
    *function = new Kernel{text.rfind("blake3", 0) == 0, capacity};
    return NO_ERROR;
}
int cuMemHostAlloc(void** address, size_t nbytes, unsigned) {
    return *address = std::calloc(nbytes, 1), NO_ERROR;
}
int cuMemHostGetDevicePointer_v2(u64* device, void* host, unsigned) {
    return *device = reinterpret_cast<u64>(host), NO_ERROR;
}
int cuMemAlloc_v2(u64* address, size_t nbytes) {
    return *address = reinterpret_cast<u64>(std::malloc(nbytes)), NO_ERROR;
}
int cuMemsetD32Async(u64 address, unsigned value, size_t words, void*) {
    std::fill_n(reinterpret_cast<u32*>(address), words, value);
    return NO_ERROR;
}
int cuStreamQuery(void*) { return running ? NOT_READY : NO_ERROR; }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_STAND_IN", NO_ERROR; }

int cuLaunchKernel(Kernel* kernel, unsigned blocks, unsigned, unsigned, unsigned, unsigned,
                   unsigned, unsigned, void*, void** arguments, void*) {
    const Work work(*kernel, static_cast<const u8*>(arguments[0]));
    if (work.launch.segments > kernel->capacity || work.blocks() != blocks) return INVALID_VALUE;
    if (!microseconds) {
        work.run();
        return NO_ERROR;
    }
    running++;
    std::thread([work, delay = microseconds.load()] {
        std::this_thread::sleep_for(std::chrono::microseconds(delay));
        work.run();
        running--;
    }).detach();
    return NO_ERROR;
}
}
