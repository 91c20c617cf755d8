// Blocks that share one result, which the last block to arrive completes.
#pragma once
#include "portable.cuh"

namespace mm {

// Return true in the last of `count` blocks to arrive; called by one thread of each. The last block
// sees everything that the others wrote before. The counter is 0 before and after.
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
