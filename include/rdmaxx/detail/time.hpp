// Durations and deadlines without <chrono>, which would double a user's compile time: users pass std::chrono values,
// and what is needed of them (rep, period, count(); a clock with now()) is asked for by concept.
#ifndef RDMAXX_DETAIL_TIME_HPP
#define RDMAXX_DETAIL_TIME_HPP

#include <rdmaxx/detail/config.hpp>

#include <cstdint>
#include <limits>

#include <time.h> // NOLINT(modernize-deprecated-headers): clock_gettime is POSIX

namespace rdmaxx::inline v0::detail {

/// std::chrono::duration, or anything that looks like it.
template <class T>
concept duration = requires(const T& value) {
    value.count();
    T::period::num;
    T::period::den;
};

/// std::chrono::time_point of any clock, or anything that looks like it.
template <class T>
concept time_point = requires(const T& value) {
    { value - T::clock::now() } -> duration;
};

inline constexpr std::int64_t forever = std::numeric_limits<std::int64_t>::max();

/// In nanoseconds, which an integer has no room for when the unit is coarse (hours::max()).
template <duration Duration>
[[nodiscard]] constexpr long double exact_nanoseconds(Duration value) noexcept {
    constexpr auto num = static_cast<long double>(Duration::period::num);
    constexpr auto den = static_cast<long double>(Duration::period::den);
    return static_cast<long double>(value.count()) * (1e9L * num / den); // exact for what nanoseconds can say
}

/// Rounded up so that a wait is never shorter than asked for; out-of-range values saturate (hours::max() is for ever),
/// negative ones become 0.
[[nodiscard]] constexpr std::int64_t whole_nanoseconds(long double exact) noexcept {
    if (!(exact > 0))
        return 0;
    if (exact >= static_cast<long double>(forever))
        return forever;
    const auto whole = static_cast<std::int64_t>(exact);
    return static_cast<long double>(whole) < exact ? whole + 1 : whole;
}

template <duration Duration>
[[nodiscard]] constexpr std::int64_t nanoseconds(Duration value) noexcept {
    return whole_nanoseconds(exact_nanoseconds(value));
}

/// In milliseconds for the C calls that take them, rounded up, at most INT_MAX.
template <duration Duration>
[[nodiscard]] constexpr int milliseconds(Duration value) noexcept {
    const std::int64_t ns = nanoseconds(value);
    const std::int64_t ms = ns / 1'000'000 + (ns % 1'000'000 != 0 ? 1 : 0);
    return ms < std::numeric_limits<int>::max() ? static_cast<int>(ms) : std::numeric_limits<int>::max();
}

[[nodiscard]] inline std::int64_t monotonic_now() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// A point on the monotonic clock at which a wait gives up.
class deadline {
public:
    [[nodiscard]] static deadline never() noexcept { return deadline(forever); }

    template <duration Duration>
    [[nodiscard]] static deadline after(Duration value) noexcept {
        return after_ns(nanoseconds(value));
    }

    template <time_point TimePoint>
    [[nodiscard]] static deadline at(TimePoint value) noexcept {
        const auto now = TimePoint::clock::now();
        // std::chrono compares and subtracts in the finer unit of both: sys_days of the year 2500 overflows there.
        if constexpr (requires { exact_nanoseconds(value.time_since_epoch()), now.time_since_epoch(); })
            return after_ns(whole_nanoseconds(exact_nanoseconds(value.time_since_epoch()) -
                                              exact_nanoseconds(now.time_since_epoch())));
        else
            return after(value - now);
    }

    [[nodiscard]] static deadline after_ns(std::int64_t ns) noexcept {
        const std::int64_t now = monotonic_now();
        return deadline(ns < forever - now ? now + ns : forever);
    }

    [[nodiscard]] bool is_never() const noexcept { return at_ == forever; }

    /// Nanoseconds left, 0 once it has passed, `forever` where it never does.
    [[nodiscard]] std::int64_t left_ns() const noexcept {
        if (is_never())
            return forever;
        const std::int64_t now = monotonic_now();
        return at_ > now ? at_ - now : 0;
    }

private:
    explicit deadline(std::int64_t at) noexcept : at_(at) {}

    std::int64_t at_;
};

} // namespace rdmaxx::inline v0::detail

#endif
