// A stand-in for NVIDIA's driver library, for tests on machines without a GPU: the calls that pycuda and the product make,
// with the meaning that the driver API's manual gives them. Memory of the device is memory of the host; a launch runs the
// product's own kernels, compiled for the host; streams run in order, each on a thread of its own.
//
// `standin_set` sets what the device is and what fails, `standin_get` tells what was done: names in state.h and below.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "host_kernels.h"
#include "state.h"

using DevicePointer = unsigned long long;

namespace {

constexpr unsigned DISABLE_TIMING = 2;  // CU_EVENT_DISABLE_TIMING

int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Context {
} primary;
thread_local std::vector<Context*> current;

struct Module {
    std::string image;
};
struct Function {
    const Kernel* kernel;
    std::string name;
};

Stream& null_stream() {
    static Stream* one = new Stream;
    return *one;
}

Stream& stream_of(void* handle) { return handle == nullptr ? null_stream() : *static_cast<Stream*>(handle); }

// Captures that are in progress, all of mode THREAD_LOCAL: of this thread, whose calls that wait or allocate would end it,
// and of streams that wait for the legacy stream, beside which no thread may use that.
thread_local int captures_here = 0;
std::atomic<int> blocking_captures{0};
std::atomic<bool> is_blocking_broken{false};

// The result that a test wants of one of the calls, by its number. What takes something away does so all the same, and then
// returns it, as the real driver does with the errors of what was launched before.
int refused(const char* name) {
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    const int64_t number = ++s.counts["calls"];
    if (number != s.settings["refused_call"]) return SUCCESS;
    s.refused = name;
    return int(s.settings["refused_result"]);
}

int usable() {
    if (current.empty()) return INVALID_CONTEXT;
    return state().lost;
}

// Calls that no capture allows.
int immediate() {
    if (int result = usable()) return result;
    return captures_here > 0 ? CAPTURE_UNSUPPORTED : SUCCESS;
}

// Use of the legacy stream: it ends the captures of those that wait for it, too.
int legacy() {
    if (int result = immediate()) return result;
    if (blocking_captures == 0) return SUCCESS;
    is_blocking_broken = true;
    return CAPTURE_IMPLICIT;
}

int enqueue(void* handle, Work work) {
    if (int result = usable()) return result;
    Stream& stream = stream_of(handle);
    if (stream.is_capturing) {
        if (stream.is_blocking && is_blocking_broken) return CAPTURE_INVALIDATED;
        stream.captured.push_back(std::move(work));
        return SUCCESS;
    }
    if (int result = handle == nullptr ? legacy() : SUCCESS) return result;
    stream.push(std::move(work));
    return SUCCESS;
}

void end_capture(Stream& stream) {
    if (!stream.is_capturing) return;
    stream.is_capturing = false;
    captures_here -= 1;
    if (stream.is_blocking) blocking_captures -= 1;
}

void wait_for(Stream& stream, uint64_t number) {
    state().count("synchronizations");
    stream.wait(number);
}

int at_once(Work work) {
    if (int result = legacy()) return result;
    Stream& stream = null_stream();
    wait_for(stream, stream.push(std::move(work)));
    return state().lost;
}

int capability() { return int(state().setting("major") * 10 + state().setting("minor")); }

// A cubin says in e_flags which GPU it is for; PTX says it in a line of its text.
int check_image(const std::string& image) {
    if (image.compare(0, 4, "\177ELF") == 0 && image.size() > 64) {
        uint32_t flags;
        std::memcpy(&flags, image.data() + 48, sizeof flags);
        return int(flags & 0xff) == capability() ? SUCCESS : NO_BINARY_FOR_GPU;
    }
    const size_t at = image.find(".target sm_");
    if (at == std::string::npos) return INVALID_IMAGE;
    return std::atoi(image.c_str() + at + 11) <= capability() ? SUCCESS : NO_BINARY_FOR_GPU;
}

size_t image_bytes(const void* image) {
    const char* bytes = static_cast<const char*>(image);
    if (std::memcmp(bytes, "\177ELF", 4) != 0) return std::strlen(bytes);
    uint64_t sections;  // the table of sections is the last of a cubin
    uint16_t size, count;
    std::memcpy(&sections, bytes + 40, sizeof sections);
    std::memcpy(&size, bytes + 58, sizeof size);
    std::memcpy(&count, bytes + 60, sizeof count);
    return sections + size_t(size) * count;
}

}  // namespace

extern "C" {

void standin_set(const char* name, int64_t value) {
    std::lock_guard<std::mutex> lock(state().mutex);
    state().settings[name] = value;
    if (std::string(name) == "lost") state().lost = int(value);
}

int64_t standin_get(const char* name) {
    std::lock_guard<std::mutex> lock(state().mutex);
    return state().counts[name];
}

const char* standin_refused() { return state().refused.c_str(); }

// Devices and contexts

int cuInit(unsigned) {
    if (int result = refused(__func__)) return result;
    return int(state().setting("init_result"));
}

int cuDriverGetVersion(int* version) {
    if (int result = refused(__func__)) return result;
    *version = int(state().setting("driver_version"));
    return SUCCESS;
}

int cuDeviceGetCount(int* count) {
    if (int result = refused(__func__)) return result;
    *count = 1;
    return SUCCESS;
}

int cuDeviceGet(int* device, int index) {
    if (int result = refused(__func__)) return result;
    *device = 0;
    return index == 0 ? SUCCESS : INVALID_VALUE;
}

int cuDeviceGetName(char* name, int length, int) {
    if (int result = refused(__func__)) return result;
    std::snprintf(name, size_t(length), "Stand-in");
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
    if (int result = refused(__func__)) return result;
    *bytes = size_t(state().setting("memory_bytes"));
    return SUCCESS;
}

int cuDeviceComputeCapability(int* major, int* minor, int) {
    if (int result = refused(__func__)) return result;
    *major = int(state().setting("major"));
    *minor = int(state().setting("minor"));
    return SUCCESS;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
    if (int result = refused(__func__)) return result;
    static const std::map<int, std::string> settings = {{18, "is_integrated"}, {75, "major"}, {76, "minor"}};
    static const std::map<int, int> fixed = {{10, 32}, {13, 918000}, {16, 8}, {19, 1}};  // warp, clock, SMs, maps memory
    if (auto found = settings.find(attribute); found != settings.end())
        *value = int(state().setting(found->second));
    else if (auto one = fixed.find(attribute); one != fixed.end())
        *value = one->second;
    else
        return NOT_SUPPORTED;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
    if (int result = refused(__func__)) return result;
    *context = &primary;
    state().count("contexts");
    return state().lost;
}

int cuDevicePrimaryCtxRelease_v2(int) {
    const int late = refused(__func__);
    state().count("contexts", -1);
    return late;
}

int cuCtxPushCurrent_v2(void* context) {
    if (int result = refused(__func__)) return result;
    current.push_back(static_cast<Context*>(context));
    return SUCCESS;
}

int cuCtxPopCurrent_v2(void** context) {
    const int late = refused(__func__);
    if (current.empty()) return INVALID_CONTEXT;
    if (context != nullptr) *context = current.back();
    current.pop_back();
    return late;
}

int cuCtxGetDevice(int* device) {
    if (int result = refused(__func__)) return result;
    *device = 0;
    return current.empty() ? INVALID_CONTEXT : SUCCESS;
}

int cuCtxSynchronize() {
    if (int result = refused(__func__)) return result;
    if (int result = immediate()) return result;
    wait_for(null_stream(), null_stream().last());
    return state().lost;
}

int cuGetErrorString(int code, const char** text) {
    static const std::map<int, const char*> texts = {
        {INVALID_VALUE, "invalid argument"},
        {OUT_OF_MEMORY, "out of memory"},
        {NO_DEVICE, "no CUDA-capable device is detected"},
        {INVALID_IMAGE, "device kernel image is invalid"},
        {INVALID_CONTEXT, "invalid device context"},
        {NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
        {NOT_FOUND, "named symbol not found"},
        {ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
        {NOT_SUPPORTED, "operation not supported"},
        {CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
        {CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
        {CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"},
    };
    const auto found = texts.find(code);
    *text = found == texts.end() ? "an error of the stand-in" : found->second;
    return SUCCESS;
}

// Memory

int cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
    if (int result = refused(__func__)) return result;
    if (int result = immediate()) return result;
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    if (bytes == 0) return INVALID_VALUE;
    if (s.counts["device_bytes"] + int64_t(bytes) > s.settings["memory_bytes"]) return OUT_OF_MEMORY;
    void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    std::memset(memory, 0xcd, bytes);  // what nobody wrote shows
    s.device_memory[uintptr_t(memory)] = bytes;
    s.counts["device_bytes"] += int64_t(bytes);
    s.counts["allocations"] += 1;
    s.counts["live"] += 1;
    *pointer = DevicePointer(memory);
    return SUCCESS;
}

int cuMemFree_v2(DevicePointer pointer) {
    const int late = refused(__func__);
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    const auto found = s.device_memory.find(uintptr_t(pointer));
    if (found == s.device_memory.end()) return INVALID_VALUE;
    s.counts["device_bytes"] -= int64_t(found->second);
    s.counts["live"] -= 1;
    std::free(reinterpret_cast<void*>(found->first));
    s.device_memory.erase(found);
    return late;
}

int cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
    if (int result = refused(__func__)) return result;
    if (int result = immediate()) return result;
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    s.host_memory[*pointer] = {bytes, flags};
    s.counts["allocations"] += 1;
    s.counts["live"] += 1;
    return SUCCESS;
}

int cuMemFreeHost(void* pointer) {
    const int late = refused(__func__);
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.host_memory.erase(pointer) == 0) return INVALID_VALUE;
    s.counts["live"] -= 1;
    std::free(pointer);
    return late;
}

int cuMemHostGetDevicePointer_v2(DevicePointer* pointer, void* host, unsigned) {
    if (int result = refused(__func__)) return result;
    const unsigned mapped = 2;  // CU_MEMHOSTALLOC_DEVICEMAP
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    const auto found = s.host_memory.find(host);
    if (found == s.host_memory.end() || !(found->second.second & mapped)) return INVALID_VALUE;
    *pointer = DevicePointer(host);
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    if (int result = refused(__func__)) return result;
    *total = size_t(state().setting("memory_bytes"));
    std::lock_guard<std::mutex> lock(state().mutex);
    *free_bytes = *total - size_t(state().counts["device_bytes"]);
    return SUCCESS;
}

static Work copy(void* to, const void* from, size_t bytes) {
    return [=] { std::memcpy(to, from, bytes); };
}

int cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
    if (int result = refused(__func__)) return result;
    return at_once(copy(reinterpret_cast<void*>(to), from, bytes));
}

int cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
    if (int result = refused(__func__)) return result;
    state().count("bytes_to_host", int64_t(bytes));
    return at_once(copy(to, reinterpret_cast<const void*>(from), bytes));
}

int cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t bytes) {
    if (int result = refused(__func__)) return result;
    return at_once(copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes));
}

int cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, void* stream) {
    if (int result = refused(__func__)) return result;
    state().count("copies_to_device");
    return enqueue(stream, copy(reinterpret_cast<void*>(to), from, bytes));
}

int cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, void* stream) {
    if (int result = refused(__func__)) return result;
    state().count("copies_to_host");
    state().count("bytes_to_host", int64_t(bytes));
    return enqueue(stream, copy(to, reinterpret_cast<const void*>(from), bytes));
}

int cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, void* stream) {
    if (int result = refused(__func__)) return result;
    return enqueue(stream, copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes));
}

int cuMemsetD8Async(DevicePointer to, unsigned char value, size_t count, void* stream) {
    if (int result = refused(__func__)) return result;
    return enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, count); });
}

int cuMemsetD32Async(DevicePointer to, unsigned value, size_t count, void* stream) {
    if (int result = refused(__func__)) return result;
    return enqueue(stream, [=] { std::fill_n(reinterpret_cast<unsigned*>(to), count, value); });
}

int cuMemsetD8_v2(DevicePointer to, unsigned char value, size_t count) {
    if (int result = refused(__func__)) return result;
    return at_once([=] { std::memset(reinterpret_cast<void*>(to), value, count); });
}

// Modules and launches

int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values) {
    for (unsigned index = 0; index < count; ++index)  // CU_JIT_INFO_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER: nothing is told
        if ((options[index] == 3 || options[index] == 5) && values[index] != nullptr) *static_cast<char*>(values[index]) = 0;
    for (unsigned index = 0; index < count; ++index)  // and the bytes of either
        if (options[index] == 4 || options[index] == 6) values[index] = nullptr;
    if (int result = refused(__func__)) return result;
    if (int result = immediate()) return result;
    const std::string bytes(static_cast<const char*>(image), image_bytes(image));
    if (int result = check_image(bytes)) return result;
    *module = new Module{bytes};
    state().count("live");
    return SUCCESS;
}

int cuModuleLoadData(void** module, const void* image) { return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr); }

int cuModuleUnload(void* module) {
    const int late = refused(__func__);
    delete static_cast<Module*>(module);
    state().count("live", -1);
    return late;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
    if (int result = refused(__func__)) return result;
    const Kernel* kernel = find_kernel(name);
    if (kernel == nullptr || static_cast<Module*>(module)->image.find(name) == std::string::npos) return NOT_FOUND;
    static std::map<std::string, Function> functions;
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    *function = &functions.insert({name, Function{kernel, name}}).first->second;
    return SUCCESS;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned, void* stream, void** parameters, void** extra) {
    if (int result = refused(__func__)) return result;
    const Function& called = *static_cast<Function*>(function);
    if (parameters != nullptr || extra == nullptr) return NOT_SUPPORTED;
    const char* packed = nullptr;
    size_t bytes = 0;
    for (int at = 0; extra[at] != nullptr; at += 2) {  // CU_LAUNCH_PARAM_END is 0, ..BUFFER_POINTER 1, ..BUFFER_SIZE 2
        if (extra[at] == reinterpret_cast<void*>(1)) packed = static_cast<const char*>(extra[at + 1]);
        if (extra[at] == reinterpret_cast<void*>(2)) bytes = *static_cast<size_t*>(extra[at + 1]);
    }
    const unsigned most_threads = 1024, most_rows = 65535;
    if (packed == nullptr || bytes != called.kernel->packed_size || block_x * block_y * block_z > most_threads ||
        grid_x == 0 || grid_y == 0 || grid_y > most_rows)
        return INVALID_VALUE;
    const Launch launch{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, std::string(packed, bytes)};
    return enqueue(stream, [&called, launch] {
        State& s = state();
        s.count("launches");
        if (const int64_t after = s.setting("lost_after_launches"); after >= 0) {
            std::lock_guard<std::mutex> lock(s.mutex);
            if (s.counts["launches"] > after) s.lost = ILLEGAL_ADDRESS;
        }
        if (!s.lost) called.kernel->run(launch);
    });
}

int cuFuncSetBlockShape(void*, int, int, int) {
    if (int result = refused(__func__)) return result;  // pycuda says it before each launch, which says it again
    return SUCCESS;
}

int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
    if (int result = refused(__func__)) return result;
    return enqueue(stream, [=] {
        function(data);
        state().count("host_functions");
    });
}

// Streams and events

int cuStreamCreate(void** handle, unsigned flags) {
    if (int result = refused(__func__)) return result;
    if (int result = usable()) return result;
    Stream* stream = new Stream;
    stream->is_blocking = flags == 0;  // CU_STREAM_DEFAULT: it and the legacy stream wait for each other
    *handle = stream;
    state().count("live");
    return SUCCESS;
}

int cuStreamDestroy_v2(void* stream) {
    const int late = refused(__func__);
    end_capture(*static_cast<Stream*>(stream));
    static_cast<Stream*>(stream)->close();
    state().count("live", -1);
    return late;
}

int cuStreamSynchronize(void* stream) {
    if (int result = refused(__func__)) return result;
    if (int result = immediate()) return result;
    wait_for(stream_of(stream), stream_of(stream).last());
    return state().lost;
}

int cuStreamQuery(void* stream) {
    if (int result = refused(__func__)) return result;
    if (int result = immediate()) return result;
    return stream_of(stream).is_done(stream_of(stream).last()) ? SUCCESS : NOT_READY;
}

int cuStreamWaitEvent(void* stream, void* handle, unsigned) {
    if (int result = refused(__func__)) return result;
    const Event event = *static_cast<Event*>(handle);
    return enqueue(stream, [event] {
        if (event.stream != nullptr) event.stream->wait(event.number);
    });
}

int cuEventCreate(void** event, unsigned flags) {
    if (int result = refused(__func__)) return result;
    if (int result = usable()) return result;
    *event = new Event{nullptr, 0, flags, std::make_shared<int64_t>(0)};
    state().count("live");
    return SUCCESS;
}

int cuEventDestroy_v2(void* event) {
    const int late = refused(__func__);
    delete static_cast<Event*>(event);
    state().count("live", -1);
    return late;
}

int cuEventRecord(void* handle, void* stream) {
    if (int result = refused(__func__)) return result;
    if (int result = usable()) return result;
    Event& event = *static_cast<Event*>(handle);
    event.stream = &stream_of(stream);
    const auto done_ns = event.done_ns;
    event.number = event.stream->push([done_ns] { *done_ns = now_ns(); });
    return SUCCESS;
}

int cuEventSynchronize(void* handle) {
    if (int result = refused(__func__)) return result;
    if (int result = immediate()) return result;
    const Event& event = *static_cast<Event*>(handle);
    if (event.stream != nullptr) wait_for(*event.stream, event.number);
    return state().lost;
}

int cuEventQuery(void* handle) {
    if (int result = refused(__func__)) return result;
    const Event& event = *static_cast<Event*>(handle);
    return event.stream == nullptr || event.stream->is_done(event.number) ? state().lost : int(NOT_READY);
}

int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
    if (int result = refused(__func__)) return result;
    const Event &first = *static_cast<Event*>(begin), &last = *static_cast<Event*>(end);
    for (const Event* event : {&first, &last}) {
        if (event->stream == nullptr || event->flags & DISABLE_TIMING) return INVALID_HANDLE;
        if (!event->stream->is_done(event->number)) return NOT_READY;
    }
    *milliseconds = float(double(*last.done_ns - *first.done_ns) / 1e6);
    return state().lost;
}

// Graphs

int cuStreamBeginCapture_v2(void* handle, int) {
    if (int result = refused(__func__)) return result;
    if (int result = usable()) return result;
    if (int refused = int(state().setting("capture_result"))) return refused;
    Stream& stream = stream_of(handle);
    if (handle == nullptr || stream.is_capturing) return CAPTURE_UNSUPPORTED;
    stream.is_capturing = true;
    captures_here += 1;
    if (stream.is_blocking && blocking_captures++ == 0) is_blocking_broken = false;
    stream.captured.clear();
    return SUCCESS;
}

int cuStreamEndCapture(void* handle, void** graph) {
    const int late = refused(__func__);
    Stream& stream = stream_of(handle);
    if (!stream.is_capturing) return INVALID_VALUE;
    const bool is_broken = stream.is_blocking && is_blocking_broken;
    end_capture(stream);
    if (late || is_broken) {
        *graph = nullptr;  // the capture has ended, as that of a real stream does, and nothing came of it
        return late ? late : int(CAPTURE_INVALIDATED);
    }
    *graph = new Graph{std::move(stream.captured)};
    state().count("live");
    return SUCCESS;
}

int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
    if (int result = refused(__func__)) return result;
    *executable = new Graph(*static_cast<Graph*>(graph));
    state().count("live");
    return SUCCESS;
}

int cuGraphLaunch(void* executable, void* stream) {
    if (int result = refused(__func__)) return result;
    if (int result = usable()) return result;
    state().count("graph_launches");
    for (const Work& work : static_cast<Graph*>(executable)->work) stream_of(stream).push(work);
    return SUCCESS;
}

int cuGraphExecDestroy(void* executable) {
    const int late = refused(__func__);
    delete static_cast<Graph*>(executable);
    state().count("live", -1);
    return late;
}

int cuGraphDestroy(void* graph) {
    const int late = refused(__func__);
    delete static_cast<Graph*>(graph);
    state().count("live", -1);
    return late;
}

}  // extern "C"
