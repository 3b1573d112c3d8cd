// The time of day of a process, by LD_PRELOAD: what the clock says, and seconds that are read from the file of
// EDGE_TEST_CLOCK for each question. All other clocks go on as they are. A library that changes more of libc, as
// libfaketime does, makes sleeps fail now and then.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace {

long offset_s() {
    const char* path = getenv("EDGE_TEST_CLOCK");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char text[32] = {};
    const ssize_t read_bytes = read(file, text, sizeof text - 1);
    close(file);
    return read_bytes > 0 ? atol(text) : 0;
}

using GetTime = int (*)(clockid_t, timespec*);

GetTime real_clock_gettime() {
    static const auto found = reinterpret_cast<GetTime>(dlsym(RTLD_NEXT, "clock_gettime"));
    return found;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) {
    const int result = real_clock_gettime()(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_s();
    return result;
}

extern "C" int gettimeofday(timeval* now, void*) noexcept {
    timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

extern "C" time_t time(time_t* told) noexcept {
    timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
    if (told != nullptr) *told = precise.tv_sec;
    return precise.tv_sec;
}
