// What the stand-in keeps: streams that run in order on a thread of their own, allocations, what a test has set.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using Work = std::function<void()>;

// Numbers of CUresult in cuda.h.
enum Result : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_IMPLICIT = 906,
};

// In-order queue with a thread. While `is_lazy`, work waits until somebody waits for it: what was not waited for is then
// never there, as on a GPU that is slow.
class Stream {
public:
    Stream();
    // Lets go of what is left, and does not wait: what runs may wait for the caller. The object stays, a few bytes.
    void close();
    uint64_t push(Work work);           // returns the number of the work
    void wait(uint64_t number);         // until it is done
    bool is_done(uint64_t number);
    uint64_t last();

    bool is_blocking = false;
    bool is_capturing = false;
    std::vector<Work> captured;

private:
    void run();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> queue_;
    uint64_t pushed_ = 0, done_ = 0, wanted_ = 0;
    bool is_closing_ = false;
};

struct Event {
    Stream* stream = nullptr;
    uint64_t number = 0;
    unsigned flags = 0;
    std::shared_ptr<int64_t> done_ns;  // when the stream came there: the work may outlive the event
};

struct Graph {
    std::vector<Work> work;
};

// What tests read and write, by name: see `standin_get` and `standin_set` in driver.cpp.
struct State {
    std::mutex mutex;
    std::map<std::string, int64_t> settings = {
        {"major", 8},       {"minor", 7}, {"is_integrated", 1}, {"memory_bytes", int64_t(8) << 30}, {"init_result", 0},
        {"is_lazy", 0},     {"capture_result", 0}, {"lost_after_launches", -1}, {"driver_version", 12060},
        {"refused_call", -1}, {"refused_result", 0},
    };
    std::map<std::string, int64_t> counts;
    std::map<uintptr_t, size_t> device_memory;
    std::map<void*, std::pair<size_t, unsigned>> host_memory;
    std::string refused;  // the call that was
    int lost = 0;  // the result of every call once the context is lost
    int64_t setting(const std::string& name) {
        std::lock_guard<std::mutex> lock(mutex);
        return settings[name];
    }
    void count(const std::string& name, int64_t by = 1) {
        std::lock_guard<std::mutex> lock(mutex);
        counts[name] += by;
    }
};

State& state();
