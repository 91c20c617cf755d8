// Blocks that work on one thing, of which the last has to finish it.
#pragma once
#include "portable.cuh"

namespace mm {

// Whether this block is the last of `count` to come here, for one thread of it. What the block
// wrote before is then seen by the block that is last. The counter starts as 0 and is left as 0.
__device__ inline bool arrive_last(u64 counter, u32 count) {
    if (count == 1) return true;
    u32 before;  // at count - 1 the counter becomes 0 again
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(count - 1)
                 : "memory");
    return before == count - 1;
}

}  // namespace mm
