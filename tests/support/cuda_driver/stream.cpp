#include "state.h"

State& state() {
    static State* one = new State;  // never destroyed: threads of streams outlive main
    return *one;
}

Stream::Stream() {
    std::thread([this] { run(); }).detach();
}

void Stream::close() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_closing_ = true;
    queue_.clear();
    changed_.notify_all();
}

uint64_t Stream::push(Work work) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
    return ++pushed_;
}

uint64_t Stream::last() {
    std::lock_guard<std::mutex> lock(mutex_);
    return pushed_;
}

bool Stream::is_done(uint64_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    return done_ >= number;
}

void Stream::wait(uint64_t number) {
    std::unique_lock<std::mutex> lock(mutex_);
    wanted_ = std::max(wanted_, number);
    changed_.notify_all();
    changed_.wait(lock, [&] { return done_ >= number; });
}

void Stream::run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] {
            const bool may_run = done_ < wanted_ || !state().setting("is_lazy");
            return is_closing_ || (!queue_.empty() && may_run);
        });
        if (is_closing_) return;
        Work work = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        work();
        lock.lock();
        ++done_;
        changed_.notify_all();
    }
}
