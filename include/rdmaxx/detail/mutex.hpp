// A lock and its condition, for objects that count what they handed out. <mutex> would cost every user 300 ms of
// compile time; these are the POSIX types, with the annotations that let clang check who holds what.
#ifndef RDMAXX_DETAIL_MUTEX_HPP
#define RDMAXX_DETAIL_MUTEX_HPP

#include <rdmaxx/detail/config.hpp>
#include <rdmaxx/detail/time.hpp>

#include <pthread.h>

namespace rdmaxx::inline v0::detail {

class RDMAXX_CAPABILITY("mutex") mutex {
public:
    mutex() noexcept = default;
    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;
    ~mutex() { ::pthread_mutex_destroy(&raw_); }

    void lock() noexcept RDMAXX_ACQUIRE() { ::pthread_mutex_lock(&raw_); }
    void unlock() noexcept RDMAXX_RELEASE() { ::pthread_mutex_unlock(&raw_); }
    [[nodiscard]] pthread_mutex_t* native_handle() noexcept { return &raw_; }

private:
    pthread_mutex_t raw_ = PTHREAD_MUTEX_INITIALIZER;
};

class RDMAXX_SCOPED_CAPABILITY mutex_guard {
public:
    explicit mutex_guard(mutex& m) noexcept RDMAXX_ACQUIRE(m) : mutex_(m) { m.lock(); }
    mutex_guard(const mutex_guard&) = delete;
    mutex_guard& operator=(const mutex_guard&) = delete;
    ~mutex_guard() RDMAXX_RELEASE() { mutex_.unlock(); }

private:
    mutex& mutex_;
};

class condition {
public:
    condition() noexcept {
        pthread_condattr_t attributes;
        ::pthread_condattr_init(&attributes);
        ::pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        ::pthread_cond_init(&raw_, &attributes);
        ::pthread_condattr_destroy(&attributes);
    }
    condition(const condition&) = delete;
    condition& operator=(const condition&) = delete;
    ~condition() { ::pthread_cond_destroy(&raw_); }

    void notify_all() noexcept { ::pthread_cond_broadcast(&raw_); }

    /// May wake early: callers test their predicate and the deadline.
    void wait_until(mutex& m, deadline until) noexcept RDMAXX_REQUIRES(m) {
        const std::int64_t left = until.left_ns();
        if (left == forever) {
            ::pthread_cond_wait(&raw_, m.native_handle());
            return;
        }
        const std::int64_t at = monotonic_now() + left;
        timespec when{};
        when.tv_sec = static_cast<decltype(when.tv_sec)>(at / 1'000'000'000);
        when.tv_nsec = static_cast<decltype(when.tv_nsec)>(at % 1'000'000'000);
        ::pthread_cond_timedwait(&raw_, m.native_handle(), &when);
    }

private:
    pthread_cond_t raw_{};
};

} // namespace rdmaxx::inline v0::detail

#endif
