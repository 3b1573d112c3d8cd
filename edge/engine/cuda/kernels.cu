// The kernels of edge-deploy, in the CUDA C++ that NVRTC compiles without any header.
//
// Device code only. `compile.py` makes a cubin for each board that is named, and PTX for those to come. The tests compile
// this same file for the host, with EDGE_HOST and functions of their own in place of those under "hardware" below.

#ifndef EDGE_HOST  // hardware

__device__ inline unsigned short half_from_float(float value) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ inline float float_from_half(unsigned short half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

#if __CUDA_ARCH__ >= 800
#define HAS_INT8_TENSOR_CORES
// One 16x8x32 product of a whole warp, int32 += int8 * int8: 2 * 16 * 8 * 32 operations.
// Source: PTX ISA, "Matrix fragments for mma.m16n8k32"; each register holds four int8.
__device__ inline void multiply_add_int8(int (&sums)[4], unsigned a, unsigned b) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a), "r"(b));
}
// One 16x8x16 product of a whole warp, float16 += float16 * float16: 2 * 16 * 8 * 16 operations. Sums in float16, since
// some GPUs add in float32 at half the rate. Source: PTX ISA, "Matrix fragments for mma.m16n8k16"; two float16 a register.
__device__ inline void multiply_add_half(unsigned (&sums)[2], unsigned a, unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%2,%2,%2}, {%3,%3}, {%0,%1};"
                 : "+r"(sums[0]), "+r"(sums[1])
                 : "r"(a), "r"(b));
}
#endif

#endif

typedef unsigned char uint8;
typedef unsigned short half_bits;

__device__ inline float as_float(float value) { return value; }
__device__ inline float as_float(half_bits value) { return float_from_half(value); }

__device__ inline void store(float* to, float a) { *to = a; }
__device__ inline void store(half_bits* to, float a) { *to = half_from_float(a); }

__device__ inline void store_four(float* to, float a, float b, float c, float d) {
    *reinterpret_cast<float4*>(to) = make_float4(a, b, c, d);
}

__device__ inline void store_four(half_bits* to, float a, float b, float c, float d) {
    *reinterpret_cast<ushort4*>(to) =
        make_ushort4(half_from_float(a), half_from_float(b), half_from_float(c), half_from_float(d));
}

// normalize: uint8 RGB canvases (rows, plane, 3) -> planes (rows, 3, plane) of float32 or float16, in the model's order
// of colours: pixel * gain + bias, rounded once. Four pixels a thread: three loads of 32 bits, three wide stores.
// Grid: (plane / 4 / block, rows). `is_bgr` moves the planes; gain and bias are in the order of the canvas.

struct Affine {
    float gain[3];
    float bias[3];
};

template <typename T>
__device__ void normalize(const uint8* canvas, T* input, unsigned plane, unsigned is_bgr, const Affine& affine) {
    const unsigned first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (first >= plane) return;
    const uint8* pixels = canvas + 3 * (size_t(blockIdx.y) * plane + first);
    T* planes = input + 3 * size_t(blockIdx.y) * plane + first;
    const unsigned count = plane - first < 4 ? plane - first : 4;
    uint8 bytes[12] = {};
    if (plane % 4 == 0) {  // then the pixels of each thread begin at a multiple of four bytes
#pragma unroll
        for (int word = 0; word < 3; ++word) {
            const unsigned packed = reinterpret_cast<const unsigned*>(pixels)[word];
#pragma unroll
            for (int byte = 0; byte < 4; ++byte) bytes[4 * word + byte] = uint8(packed >> (8 * byte));
        }
    } else {
#pragma unroll
        for (unsigned byte = 0; byte < 12; ++byte)
            if (byte < 3 * count) bytes[byte] = pixels[byte];
    }
#pragma unroll
    for (int channel = 0; channel < 3; ++channel) {
        float value[4];
#pragma unroll
        for (int pixel = 0; pixel < 4; ++pixel)
            value[pixel] = fmaf(float(bytes[3 * pixel + channel]), affine.gain[channel], affine.bias[channel]);
        T* to = planes + size_t(is_bgr ? 2 - channel : channel) * plane;
        if (plane % 4 == 0) {
            store_four(to, value[0], value[1], value[2], value[3]);
        } else {
#pragma unroll
            for (unsigned pixel = 0; pixel < 4; ++pixel)
                if (pixel < count) store(to + pixel, value[pixel]);
        }
    }
}

extern "C" __global__ void normalize_float32(const uint8* canvas, float* input, unsigned plane, unsigned is_bgr,
                                             float gain0, float gain1, float gain2, float bias0, float bias1,
                                             float bias2) {
    normalize(canvas, input, plane, is_bgr, Affine{{gain0, gain1, gain2}, {bias0, bias1, bias2}});
}

extern "C" __global__ void normalize_float16(const uint8* canvas, half_bits* input, unsigned plane, unsigned is_bgr,
                                             float gain0, float gain1, float gain2, float bias0, float bias1,
                                             float bias2) {
    normalize(canvas, input, plane, is_bgr, Affine{{gain0, gain1, gain2}, {bias0, bias1, bias2}});
}

// candidates: of a raw output, the cells that can hold a detection. Each takes the next place in `keys` and `values`,
// in no order: the host sorts by key = row * cells + cell. `found` counts all of them, also those beyond `capacity`,
// for which there is no place. Grid: (cells / block, rows).

enum Layout : unsigned {
    PLANES = 0,      // (rows, columns, cells): cx cy w h, scores
    OBJECTNESS = 1,  // (rows, cells, columns): cx cy w h, objectness, scores
    SCORED = 2,      // (rows, cells, columns): x1 y1 x2 y2, score, class
};

template <typename T>
__device__ void candidates(const T* output, unsigned cells, unsigned columns, unsigned layout, float threshold,
                           unsigned capacity, unsigned* found, unsigned* keys, float* values) {
    const unsigned cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= cells) return;
    const size_t step = layout == PLANES ? cells : 1;
    const T* mine = output + size_t(blockIdx.y) * cells * columns + (layout == PLANES ? cell : size_t(cell) * columns);
    const float objectness = layout == PLANES ? 1.0f : as_float(mine[4 * step]);
    if (layout != PLANES && !(objectness > threshold)) return;
    bool is_above = layout == SCORED;
    for (unsigned column = layout == PLANES ? 4 : 5; column < columns && !is_above; ++column)
        is_above = as_float(mine[column * step]) * objectness > threshold;
    if (!is_above) return;
    const unsigned place = atomicAdd(found, 1u);
    if (place >= capacity) return;
    keys[place] = blockIdx.y * cells + cell;
    for (unsigned column = 0; column < columns; ++column)
        values[size_t(place) * columns + column] = as_float(mine[column * step]);
}

extern "C" __global__ void candidates_float32(const float* output, unsigned cells, unsigned columns, unsigned layout,
                                              float threshold, unsigned capacity, unsigned* found, unsigned* keys,
                                              float* values) {
    candidates(output, cells, columns, layout, threshold, capacity, found, keys, values);
}

extern "C" __global__ void candidates_float16(const half_bits* output, unsigned cells, unsigned columns, unsigned layout,
                                              float threshold, unsigned capacity, unsigned* found, unsigned* keys,
                                              float* values) {
    candidates(output, cells, columns, layout, threshold, capacity, found, keys, values);
}

// largest: the largest |x| of each row of `count` values. `bits` starts at 0 and holds floats: those that are not negative
// are ordered as their bits are, and what is not a number comes out as the largest. Grid: (any, rows).

enum : unsigned { INFINITE = 0x7f800000u };  // and above it what is not a number

template <typename T>
__device__ unsigned magnitude_bits(T value) {
    return __float_as_uint(as_float(value)) & 0x7fffffffu;
}

template <typename T>
__device__ void largest(const T* values, unsigned count, unsigned* bits, unsigned below) {
    const T* mine = values + size_t(blockIdx.y) * count;
    unsigned most = 0;
    for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < count; index += gridDim.x * blockDim.x) {
        const unsigned one = magnitude_bits(mine[index]);
        most = one > most && one < below ? one : most;
    }
    atomicMax(bits + blockIdx.y, most);
}

extern "C" __global__ void largest_float32(const float* values, unsigned count, unsigned* bits) {
    largest(values, count, bits, 0x80000000u);
}

extern "C" __global__ void largest_float16(const half_bits* values, unsigned count, unsigned* bits) {
    largest(values, count, bits, 0x80000000u);
}

// Tallies: how often which |x| occurred, in bins over [0, 2^exponent), the smallest power of two above all of them: the
// histogram of edge/calibrate/histogram.py, to the bit, since a scale that is a power of two rounds nothing. An array joins a
// tally by three kernels: tally_largest, tally_widen, tally_count. Words of a tally, all 0 at first:

enum : unsigned {
    BIN_BITS = 11,
    BINS = 1u << BIN_BITS,
    ZEROS = BINS,           // how many values were zero; they are in no bin
    NOT_FINITE = BINS + 1,  // nor are these
    COUNTED = BINS + 2,     // words that count
    AMAX = BINS + 2,        // bits of the largest finite |x|
    DOUBLINGS = BINS + 3,   // of the range, which is 2^-100 at first and so never smaller
    SMALLEST_EXPONENT = 100,
};

// Grid: any.
extern "C" __global__ void tally_largest_float32(const float* values, unsigned count, unsigned* tally) {
    largest(values, count, tally + AMAX, INFINITE);
}

extern "C" __global__ void tally_largest_float16(const half_bits* values, unsigned count, unsigned* tally) {
    largest(values, count, tally + AMAX, INFINITE);
}

// The range is doubled until it holds the largest one: so many neighbours become one bin. Grid: one block.
extern "C" __global__ void tally_widen(unsigned* tally) {
    __shared__ unsigned joined[BINS];
    const unsigned exponent = tally[AMAX] >> 23, smallest = 126 - SMALLEST_EXPONENT;  // both as a float holds them
    const unsigned wanted = exponent > smallest ? exponent - smallest : 0, more = wanted - tally[DOUBLINGS];
    if (more == 0) return;  // all threads, or none
    for (unsigned bin = threadIdx.x; bin < BINS; bin += blockDim.x) joined[bin] = 0;
    __syncthreads();
    const unsigned shift = more < BIN_BITS ? more : BIN_BITS;
    for (unsigned bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        if (tally[bin] != 0) atomicAdd(joined + (bin >> shift), tally[bin]);
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < BINS; bin += blockDim.x) tally[bin] = joined[bin];
    if (threadIdx.x == 0) tally[DOUBLINGS] = wanted;
}

// Each block counts in its shared memory, and adds that to the tally once. Grid: any.
template <typename T>
__device__ void tally_count(const T* values, unsigned count, unsigned* tally) {
    __shared__ unsigned mine[COUNTED];
    for (unsigned word = threadIdx.x; word < COUNTED; word += blockDim.x) mine[word] = 0;
    __syncthreads();
    const float scale = __uint_as_float((127 + SMALLEST_EXPONENT + BIN_BITS - tally[DOUBLINGS]) << 23);
    unsigned zeros = 0;
    for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < count; index += gridDim.x * blockDim.x) {
        const unsigned bits = magnitude_bits(values[index]);
        if (bits == 0)
            ++zeros;  // often most of them: they do not meet at one word
        else
            atomicAdd(mine + (bits < INFINITE ? unsigned(__uint_as_float(bits) * scale) : unsigned(NOT_FINITE)), 1u);
    }
    if (zeros != 0) atomicAdd(mine + ZEROS, zeros);
    __syncthreads();
    for (unsigned word = threadIdx.x; word < COUNTED; word += blockDim.x)
        if (mine[word] != 0) atomicAdd(tally + word, mine[word]);
}

extern "C" __global__ void tally_count_float32(const float* values, unsigned count, unsigned* tally) {
    tally_count(values, count, tally);
}

extern "C" __global__ void tally_count_float16(const half_bits* values, unsigned count, unsigned* tally) {
    tally_count(values, count, tally);
}

// means: of each row and channel of (rows, channels, plane) the mean, as a double. Each thread adds some values, then half of
// the threads add the sums of the other half, until one is left: always in the same order, so always the same bits.
// Grid: (channels, rows); a block has MEANS_THREADS threads.

enum : unsigned { MEANS_THREADS = 256 };

template <typename T>
__device__ void means(const T* values, unsigned plane, double* found) {
    __shared__ double sums[MEANS_THREADS];
    const size_t place = size_t(blockIdx.y) * gridDim.x + blockIdx.x;
    const T* mine = values + place * plane;
    double sum = 0;
    for (unsigned index = threadIdx.x; index < plane; index += MEANS_THREADS) sum += as_float(mine[index]);
    sums[threadIdx.x] = sum;
    for (unsigned half = MEANS_THREADS / 2; half != 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) found[place] = sums[0] / plane;
}

extern "C" __global__ void means_float32(const float* values, unsigned plane, double* found) {
    means(values, plane, found);
}

extern "C" __global__ void means_float16(const half_bits* values, unsigned plane, double* found) {
    means(values, plane, found);
}

// Peaks. int8_peak: eight independent products a round and warp, so that none waits for the one before it. Every element
// of the sums is 8 * rounds * 32 * a * b, which shows that nothing was left out.

#ifdef HAS_INT8_TENSOR_CORES
extern "C" __global__ void int8_peak(int* sums, unsigned rounds, unsigned a, unsigned b) {
    int parts[8][4] = {};
    for (unsigned round = 0; round < rounds; ++round) {
#pragma unroll
        for (int chain = 0; chain < 8; ++chain) multiply_add_int8(parts[chain], a, b);
    }
    int sum = 0;
    for (int element = 0; element < 4; ++element) {
        int of_element = 0;
        for (int chain = 0; chain < 8; ++chain) of_element += parts[chain][element];
        sum = element == 0 || of_element == sum ? of_element : -1;
    }
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// half_peak: the same in float16. Odd rounds add 16 * a * b to each element, even ones take it away again.

extern "C" __global__ void half_peak(unsigned* sums, unsigned rounds, unsigned a, unsigned b) {
    unsigned parts[8][2] = {};
    for (unsigned round = 0; round < rounds; ++round) {
        const unsigned signed_b = round % 2 == 0 ? b : b ^ 0x80008000u;
#pragma unroll
        for (int chain = 0; chain < 8; ++chain) multiply_add_half(parts[chain], a, signed_b);
    }
    unsigned all = parts[0][0];
    for (int chain = 0; chain < 8; ++chain)
        for (int element = 0; element < 2; ++element) all = parts[chain][element] == all ? all : 0xffffffffu;
    sums[blockIdx.x * blockDim.x + threadIdx.x] = all;
}
#endif

// float_peak: eight independent sums a thread, sixteen products each a round. Each begins at its number, so
// that they are eight, and grows by 16 * rounds * a * b.

extern "C" __global__ void float_peak(float* sums, unsigned rounds, float a, float b) {
    float parts[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (unsigned round = 0; round < rounds; ++round) {
#pragma unroll
        for (int product = 0; product < 16; ++product) {
#pragma unroll
            for (int chain = 0; chain < 8; ++chain) parts[chain] = __fmaf_rn(a, b, parts[chain]);
        }
    }
    float all = parts[0];
    for (int chain = 0; chain < 8; ++chain) all = parts[chain] - float(chain) == all ? all : -1.0f;
    sums[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

// copy_peak: reads and writes `count` times 16 bytes each.

extern "C" __global__ void copy_peak(const uint4* from, uint4* to, size_t count) {
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t index = size_t(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += step)
        to[index] = from[index];
}
