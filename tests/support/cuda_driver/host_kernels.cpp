// The product's kernels for the host: the same source, its threads run one after the other. `find_kernel` gives what runs
// a kernel with arguments packed as a launch packs them.

#include "host_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#define EDGE_HOST
#define HAS_INT8_TENSOR_CORES
#define __device__
#define __global__

namespace {

struct dim {
    unsigned x, y, z;
};
thread_local dim threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) { return {x, y, z, w}; }

unsigned short half_from_float(float value) {
    const _Float16 half = static_cast<_Float16>(value);
    unsigned short bits;
    std::memcpy(&bits, &half, sizeof bits);
    return bits;
}

float float_from_half(unsigned short bits) {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof half);
    return static_cast<float>(half);
}

unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

unsigned atomicAdd(unsigned* at, unsigned value) {
    const unsigned before = *at;
    *at += value;
    return before;
}

void atomicMax(unsigned* at, unsigned value) { *at = std::max(*at, value); }

// Every thread of a warp holds the same operands here, so that each sum is 32 products of their own bytes.
void multiply_add_int8(int (&sums)[4], unsigned a, unsigned b) {
    int product = 0;
    for (int byte = 0; byte < 4; ++byte) product += int(static_cast<signed char>(a >> (8 * byte))) * static_cast<signed char>(b >> (8 * byte));
    for (int& sum : sums) sum += 8 * product;
}

#include "../../../edge/engine/cuda/kernels.cu"

template <typename T>
T take(const char* packed, size_t& at) {
    at = (at + alignof(T) - 1) / alignof(T) * alignof(T);
    T value;
    std::memcpy(&value, packed + at, sizeof value);
    at += sizeof value;
    return value;
}

template <typename... A>
size_t packed_size(void (*)(A...)) {
    size_t at = 0;
    ((at = (at + alignof(A) - 1) / alignof(A) * alignof(A) + sizeof(A)), ...);
    return at;
}

template <typename... A>
void run(void (*kernel)(A...), const Launch& launch) {
    size_t at = 0;
    const std::tuple<A...> arguments{take<A>(launch.packed.data(), at)...};
    blockDim = {launch.block[0], launch.block[1], launch.block[2]};
    gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    // Blocks and threads run backwards: a kernel may not count on their order.
    for (unsigned y = gridDim.y; y-- > 0;)
        for (unsigned x = gridDim.x; x-- > 0;)
            for (unsigned thread = blockDim.x; thread-- > 0;) {
                blockIdx = {x, y, 0};
                threadIdx = {thread, 0, 0};
                std::apply(kernel, arguments);
            }
}

#define KERNEL(name) {#name, {packed_size(&name), [](const Launch& launch) { run(&name, launch); }}}
const std::map<std::string, Kernel> kernels = {
    KERNEL(normalize_float32),  KERNEL(normalize_float16), KERNEL(candidates_float32), KERNEL(candidates_float16),
    KERNEL(largest_float32),    KERNEL(int8_peak),         KERNEL(copy_peak),
};

}  // namespace

const Kernel* find_kernel(const std::string& name) {
    const auto found = kernels.find(name);
    return found == kernels.end() ? nullptr : &found->second;
}
