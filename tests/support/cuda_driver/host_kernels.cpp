// The product's kernels for the host: the same source, its threads run one after the other, or in turns where they wait for
// each other. `find_kernel` gives what runs a kernel with arguments packed as a launch packs them.

#include "host_kernels.h"

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#define EDGE_HOST
#define HAS_INT8_TENSOR_CORES
#define __device__
#define __global__
#define __shared__ static thread_local  // of the one block that this thread runs; holds what the last one left

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

// IEEE 754 binary16, ties to even; g++ has a type for it from version 12 on only.
unsigned short half_from_float(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    const unsigned sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7e00;                                       // no number
    if (size >= 0x477ff000) return sign | 0x7c00;                                      // 65520 and more: infinite
    if (size < 0x38800000) return sign | std::lrint(std::fabs(value) * 16777216.0f);  // multiples of 2**-24
    return sign | (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
}

float float_from_half(unsigned short bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = std::ldexp(static_cast<float>(exponent == 0 ? fraction : 1024 + fraction), std::max(exponent, 1) - 25);
    if (exponent == 31) size = fraction == 0 ? INFINITY : NAN;
    return bits & 0x8000 ? -size : size;
}

unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
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

// Likewise: 16 products of the halves, eight of each half of a register.
void multiply_add_half(unsigned (&sums)[2], unsigned a, unsigned b) {
    float product = 0;
    for (int shift = 0; shift < 32; shift += 16) product += 8 * float_from_half(a >> shift) * float_from_half(b >> shift);
    for (unsigned& sum : sums) {
        const unsigned low = half_from_float(float_from_half(sum) + product);
        sum = low | unsigned(half_from_float(float_from_half(sum >> 16) + product)) << 16;
    }
}

float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

// A block whose threads wait for each other: each has a stack of its own and goes on from barrier to barrier.
class Block {
public:
    void run(unsigned threads, const std::function<void()>& kernel) {
        kernel_ = &kernel;
        running_ = this;
        for (unsigned thread = 0; thread < threads; ++thread) begin(thread);
        for (unsigned waiting = threads; waiting != 0;) {
            unsigned done = 0;
            for (unsigned thread = threads; thread-- > 0;) done += go_on(thread);
            if (done != 0 && done != waiting) give_up("some threads of a block have ended, others wait for them");
            waiting -= done;
        }
        running_ = nullptr;
    }

    static void wait() {
        if (running_ == nullptr) give_up("a kernel with barriers has to be a WAITING_KERNEL");
        Fiber& fiber = running_->fibers_[threadIdx.x];
        swapcontext(&fiber.context, &running_->scheduler_);
    }

private:
    static constexpr unsigned MOST_THREADS = 1024;
    static constexpr size_t STACK_BYTES = 32 << 10;
    struct Fiber {
        ucontext_t context;
        bool is_done;
        std::unique_ptr<char[]> stack;
    };

    void begin(unsigned thread) {
        Fiber& fiber = fibers_[thread];
        if (!fiber.stack) fiber.stack.reset(new char[STACK_BYTES]);
        fiber.is_done = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK_BYTES;
        fiber.context.uc_link = &scheduler_;
        makecontext(&fiber.context, &Block::body, 0);
    }

    bool go_on(unsigned thread) {
        threadIdx = {thread, 0, 0};
        swapcontext(&scheduler_, &fibers_[thread].context);
        return fibers_[thread].is_done;
    }

    static void body() {
        (*running_->kernel_)();
        running_->fibers_[threadIdx.x].is_done = true;
    }

    [[noreturn]] static void give_up(const char* why) {
        std::fprintf(stderr, "stand-in: %s\n", why);
        std::abort();
    }

    static thread_local Block* running_;
    Fiber fibers_[MOST_THREADS];
    ucontext_t scheduler_;
    const std::function<void()>* kernel_ = nullptr;
};
thread_local Block* Block::running_ = nullptr;

void __syncthreads() { Block::wait(); }

Block& block_of_this_thread() {
    static thread_local const std::unique_ptr<Block> one{new Block};
    return *one;
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
void run(void (*kernel)(A...), const Launch& launch, bool has_barriers) {
    size_t at = 0;
    const std::tuple<A...> arguments{take<A>(launch.packed.data(), at)...};
    blockDim = {launch.block[0], launch.block[1], launch.block[2]};
    gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    // Blocks and threads run backwards: a kernel may not count on their order.
    for (unsigned y = gridDim.y; y-- > 0;)
        for (unsigned x = gridDim.x; x-- > 0;) {
            blockIdx = {x, y, 0};
            if (has_barriers) {
                block_of_this_thread().run(blockDim.x, [&] { std::apply(kernel, arguments); });
                continue;
            }
            for (unsigned thread = blockDim.x; thread-- > 0;) {
                threadIdx = {thread, 0, 0};
                std::apply(kernel, arguments);
            }
        }
}

#define KERNEL(name) {#name, {packed_size(&name), [](const Launch& launch) { run(&name, launch, false); }}}
#define WAITING_KERNEL(name) {#name, {packed_size(&name), [](const Launch& launch) { run(&name, launch, true); }}}
const std::map<std::string, Kernel> kernels = {
    KERNEL(normalize_float32),
    KERNEL(normalize_float16),
    KERNEL(candidates_float32),
    KERNEL(candidates_float16),
    KERNEL(largest_float32),
    KERNEL(largest_float16),
    KERNEL(tally_largest_float32),
    KERNEL(tally_largest_float16),
    WAITING_KERNEL(tally_widen),
    WAITING_KERNEL(tally_count_float32),
    WAITING_KERNEL(tally_count_float16),
    WAITING_KERNEL(means_float32),
    WAITING_KERNEL(means_float16),
    KERNEL(int8_peak),
    KERNEL(half_peak),
    KERNEL(float_peak),
    KERNEL(copy_peak),
};

}  // namespace

const Kernel* find_kernel(const std::string& name) {
    const auto found = kernels.find(name);
    return found == kernels.end() ? nullptr : &found->second;
}
