// Errors: the exception type, the error categories, the two hooks, diagnose(), and one check per C convention.
#ifndef RDMAXX_ERROR_HPP
#define RDMAXX_ERROR_HPP

#include <rdmaxx/detail/config.hpp>
#include <rdmaxx/detail/diagnose.hpp>
#include <rdmaxx/detail/time.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>

namespace rdmaxx::inline v0 {

/// What every throwing form throws: a C call that failed, or a state in which calling it would have been a fault.
///
/// code() is an errno in std::system_category(), unless the documentation of a function says otherwise.
/// what() reads `rdma_resolve_addr 192.0.2.9:7471: No such device`. See diagnose() for likely causes.
///
/// After `using namespace rdmaxx`, and with glibc's <error.h>, it has to be written `rdmaxx::error`.
class RDMAXX_EXPORT error : public std::system_error {
public:
    /// @param call the C function, a string literal
    /// @param cause what was wrong, a string literal; empty where the code says all
    /// @param subject what the call was about: an address
    RDMAXX_COLD error(std::error_code code, const char* call, const char* cause, const std::string& subject)
        : std::system_error(code, text(call, cause, subject)), call_(call), cause_(cause) {}

    /// The C function's name, a string literal: `rdma_resolve_addr`.
    [[nodiscard]] const char* call() const noexcept { return call_; }

    /// What rdmaxx itself found to be wrong, a string literal; empty where only the C call's errno is known.
    [[nodiscard]] const char* cause() const noexcept { return cause_; }

private:
    RDMAXX_COLD static std::string text(const char* call, const char* cause, const std::string& subject) {
        std::string result = call;
        if (!subject.empty())
            result.append(" ").append(subject);
        if (*cause != '\0')
            result.append(": ").append(cause);
        return result;
    }

    const char* call_;
    const char* cause_;
};

namespace detail {

/// Codes with a table of texts.
class RDMAXX_EXPORT table_category : public std::error_category {
public:
    constexpr table_category(const char* name, const char* const* texts, std::size_t count) noexcept
        : name_(name), texts_(texts), count_(count) {}

    [[nodiscard]] const char* name() const noexcept override { return name_; }

    [[nodiscard]] RDMAXX_COLD std::string message(int value) const override {
        if (value >= 0 && static_cast<std::size_t>(value) < count_)
            return texts_[value];
        return std::string(name_) + " " + std::to_string(value);
    }

private:
    const char* name_;
    const char* const* texts_;
    std::size_t count_;
};

/// Shared by both categories of answers of a peer: whatever the number, the connection was refused.
class RDMAXX_EXPORT refusal_category : public table_category {
public:
    using table_category::table_category;

    [[nodiscard]] std::error_condition default_error_condition(int) const noexcept override {
        return std::errc::connection_refused;
    }
};

/// A category that is never destroyed: a code may be looked at when main() has returned, by a destructor that logs.
template <class Category>
union RDMAXX_EXPORT never_destroyed {
    template <class... Args>
    constexpr explicit never_destroyed(Args... args) noexcept : value(args...) {}
    never_destroyed(const never_destroyed&) = delete;
    never_destroyed& operator=(const never_destroyed&) = delete;
    ~never_destroyed() {} // NOLINT(*-use-equals-default): which would be deleted

    Category value;
};

} // namespace detail

/// The reasons of RDMA_CM_EVENT_REJECTED above zero: InfiniBand's table of REJ reasons (8: nobody listens on that port;
/// 28: the peer's program said no). Each compares equal to std::errc::connection_refused.
[[nodiscard]] RDMAXX_EXPORT inline const std::error_category& reject_category() noexcept {
    static constexpr const char* texts[] = {
        "no error",
        "no queue pair available",
        "no end-to-end context available",
        "no resources available",
        "timed out",
        "unsupported request",
        "invalid communication ID",
        "invalid communication instance",
        "invalid service ID (nobody listens on that port)",
        "invalid transport service type",
        "stale connection",
        "RDC does not exist",
        "primary remote port GID rejected",
        "primary remote port LID rejected",
        "invalid primary SL",
        "invalid primary traffic class",
        "invalid primary hop limit",
        "invalid primary packet rate",
        "alternate remote port GID rejected",
        "alternate remote port LID rejected",
        "invalid alternate SL",
        "invalid alternate traffic class",
        "invalid alternate hop limit",
        "invalid alternate packet rate",
        "port and CM redirection",
        "port redirection",
        "invalid path MTU",
        "insufficient responder resources",
        "rejected by the peer's program",
        "RNR retry count rejected",
        "duplicate local communication ID",
        "invalid class version",
        "invalid primary flow label",
        "invalid alternate flow label",
        "reserved reason 34",
        "vendor option not supported",
    };
    static const detail::never_destroyed<detail::refusal_category> category("rdma_cm reject", texts,
                                                                            sizeof texts / sizeof *texts);
    return category.value;
}

/// The status of RDMA_CM_EVENT_UNREACHABLE above zero on a datagram id: InfiniBand's table of SIDR statuses (1: nobody
/// listens on that port; 2: the peer's program said no).
[[nodiscard]] RDMAXX_EXPORT inline const std::error_category& sidr_category() noexcept {
    static constexpr const char* texts[] = {
        "no error",
        "service ID not supported (nobody listens on that port)",
        "rejected by the peer's program",
        "no queue pair available",
        "request redirected",
        "unsupported version",
    };
    static const detail::never_destroyed<detail::refusal_category> category("rdma_cm sidr", texts,
                                                                            sizeof texts / sizeof *texts);
    return category.value;
}

/// Why a work request failed: enum ibv_wc_status, as wc::code() gives it.
[[nodiscard]] RDMAXX_EXPORT inline const std::error_category& wc_category() noexcept {
    static constexpr const char* texts[] = {
        "no error",
        "a receive buffer was too short for its message",
        "the queue pair could not carry the request out",
        "the end-to-end context could not carry the request out",
        "a piece of memory lies outside its region, or the region does not allow it",
        "flushed: the connection had ended",
        "the memory window could not be bound",
        "an unexpected response of the peer",
        "the peer's request accessed memory that it may not",
        "the peer found the request invalid: its receive may be too short, or its queue pair takes no such request",
        "the peer's memory does not allow it, or the range lies outside",
        "the peer could not complete the request",
        "the peer did not answer: it, or the path to it, is gone",
        "the peer had no receive posted",
        "the domains of both sides differ",
        "the peer found the read request invalid",
        "the peer aborted the request",
        "invalid end-to-end context number",
        "invalid end-to-end context state",
        "fatal error of the device",
        "no response in time",
        "general error of the device",
        "an operation on tagged receives failed: the list is out of step",
        "a tagged message was announced, and not all of it came",
    };
    static const detail::never_destroyed<detail::table_category> category("ibv_wc status", texts,
                                                                          sizeof texts / sizeof *texts);
    return category.value;
}

// ---------------------------------------------------------------------------------------------------------------
// Hooks: what a destructor cannot throw.

/// A destroy call that failed inside a destructor. The C object, and what it needs, stays allocated.
struct destroy_failure {
    const char* call = "";        ///< the C function, `ibv_dereg_mr`
    std::error_code code;         ///< why
    const void* object = nullptr; ///< the C object's address, for identity only
};

/// Must not throw, and must not use objects of the library: a lock may be held. May be called from any thread.
using destroy_failure_hook = void (*)(const destroy_failure&) noexcept;

/// One un-acked event that keeps an object from being destroyed.
struct held_event {
    const char* type; ///< `connect_request`, a string literal
    long thread;      ///< kernel thread id of the thread that got it
    bool this_thread; ///< it was got by the thread that is now waiting: unless another one acks it, for ever
};

/// A destroy that has been waiting for longer than hang_report_after().
struct hang_report {
    /// How many events have room in a report.
    static constexpr unsigned max_events = 16;

    const char* call = "";              ///< the C function that would wait: `rdma_destroy_id`
    const void* object = nullptr;       ///< the C object's address, for identity only
    std::int64_t waited_ms = 0;         ///< how long it has waited so far
    unsigned count = 0;                 ///< how many events are held
    held_event events[max_events] = {}; ///< the first of them

    /// `rdma_destroy_id 0x...: waiting for the ack of established (got by thread 17, this thread)`
    [[nodiscard]] RDMAXX_COLD std::string to_string() const {
        char head[128];
        std::snprintf(head, sizeof head, "%s %p: waiting %lld ms for the ack of %u event(s):", call, object,
                      static_cast<long long>(waited_ms), count);
        std::string text = head;
        for (unsigned i = 0; i < count && i < max_events; ++i) {
            const held_event& held = events[i];
            text.append(i == 0 ? " " : ", ").append(held.type);
            text.append(" (got by thread ").append(std::to_string(held.thread));
            text.append(held.this_thread ? ", this thread: an event must end before its id)" : ")");
        }
        return text;
    }
};

enum class hang_action {
    keep_waiting, ///< as C would, for ever
    leak          ///< give the object up: it stays allocated, and the destroying thread goes on
};

/// Told once per destroy that hangs. Must not throw. No lock is held while it runs, so it may ack the event.
using hang_hook = hang_action (*)(const hang_report&) noexcept;

/// What a program can do about a failure.
enum class error_class {
    permanent, ///< the same again will fail again: a bad argument, no permission, a refusal by the peer's program
    device,    ///< the device, or its driver, is missing or gone: wait for it, then start with new objects
    transient, ///< later may be better, with a new id: time-outs, nobody listening yet, no resources now
};

[[nodiscard]] constexpr const char* to_string(error_class value) noexcept {
    switch (value) {
    case error_class::permanent: return "permanent";
    case error_class::device: return "device";
    case error_class::transient: return "transient";
    }
    return "unknown";
}

namespace detail {

/// What took the connection away is transient; the rest is what one of both programs did wrong.
[[nodiscard]] inline error_class classify_wc(int status) noexcept {
    constexpr int flushed = 5;
    constexpr int no_answer = 12;
    constexpr int no_receive = 13;
    constexpr int fatal = 19;
    constexpr int no_response = 20;
    switch (status) {
    case 0:
    case flushed:
    case no_answer:
    case no_receive:
    case no_response: return error_class::transient;
    case fatal: return error_class::device;
    default: return error_class::permanent;
    }
}

} // namespace detail

/// For policies of reconnecting: see error_class. False codes are transient.
[[nodiscard]] inline error_class classify(const std::error_code& code) noexcept {
    constexpr int rejected_by_program = 28;
    constexpr int sidr_rejected_by_program = 2;
    if (code.category() == reject_category())
        return code.value() == rejected_by_program ? error_class::permanent : error_class::transient;
    if (code.category() == sidr_category())
        return code.value() == sidr_rejected_by_program ? error_class::permanent : error_class::transient;
    if (code.category() == wc_category())
        return detail::classify_wc(code.value());
    const std::error_condition meaning = code.default_error_condition();
    if (meaning.category() != std::generic_category())
        return error_class::permanent;
    switch (meaning.value()) {
    case ENODEV:
    case EIO:
    case ENXIO: return error_class::device;
    case 0:
    case EAGAIN:
    case EINTR:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case EBUSY:
    case ETIMEDOUT:
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case EPROTO: // another event came than the one that was waited for
        return error_class::transient;
    default: return error_class::permanent;
    }
}

/// The likely causes of a failure on this machine, a sentence a line, for people: is there a device, are its nodes
/// there and permitted, what is RLIMIT_MEMLOCK. Looks at /sys/class/infiniband, /dev/infiniband and the limits. Of a
/// request that failed (wc_category()), where to look on both sides. Empty where nothing is known. Not for hot paths.
[[nodiscard]] RDMAXX_COLD inline std::string diagnose(const std::error_code& code, const char* call) {
    if (code.category() == reject_category() || code.category() == sidr_category())
        return "The peer was reached and said no: " + code.message() + ".";
    if (code.category() == wc_category())
        return detail::diagnose_wc(code.value());
    return detail::diagnose_errno(code.value(), call);
}
[[nodiscard]] RDMAXX_COLD inline std::string diagnose(const error& failed) {
    if (*failed.cause() != '\0')
        return std::string(failed.cause()) + ".";
    return diagnose(failed.code(), failed.call());
}

namespace detail {

inline void print_destroy_failure(const destroy_failure& failure) noexcept {
    std::fprintf(stderr, "rdmaxx: %s %p: %s\n", failure.call, failure.object, std::strerror(failure.code.value()));
}

inline hang_action print_hang(const hang_report& report) noexcept {
    std::fprintf(stderr, "rdmaxx: %s %p: waiting for the ack of %u event(s)", report.call, report.object, report.count);
    for (unsigned i = 0; i < report.count && i < hang_report::max_events; ++i)
        std::fprintf(stderr, "%s %s, got by thread %ld%s", i == 0 ? ":" : ";", report.events[i].type,
                     report.events[i].thread,
                     report.events[i].this_thread ? " (this thread: an event must end before its id)" : "");
    std::fputc('\n', stderr);
    return hang_action::keep_waiting;
}

// Variables with default visibility, so that every shared library of a process sees the same hook.
// NOLINTBEGIN(*-avoid-non-const-global-variables)
RDMAXX_EXPORT inline destroy_failure_hook destroy_failure_hook_slot = print_destroy_failure;
RDMAXX_EXPORT inline hang_hook hang_hook_slot = print_hang;
RDMAXX_EXPORT inline std::int64_t hang_report_after_ns = 5'000'000'000;
// NOLINTEND(*-avoid-non-const-global-variables)

} // namespace detail

/// Replaces the hook for destroy calls that fail in a destructor, and returns the one before. Null restores the
/// default, which prints one line on stderr. Thread-safe.
inline destroy_failure_hook set_destroy_failure_hook(destroy_failure_hook hook) noexcept {
    return __atomic_exchange_n(&detail::destroy_failure_hook_slot,
                               hook != nullptr ? hook : detail::print_destroy_failure, __ATOMIC_ACQ_REL);
}

/// Replaces the hook for destroys that hang, and returns the one before. Null restores the default, which prints one
/// line on stderr and keeps waiting. Thread-safe.
inline hang_hook set_hang_hook(hang_hook hook) noexcept {
    return __atomic_exchange_n(&detail::hang_hook_slot, hook != nullptr ? hook : detail::print_hang, __ATOMIC_ACQ_REL);
}

/// How long a destroy waits for acks before it tells the hang hook; five seconds unless set. Thread-safe.
/// @param duration any std::chrono::duration
template <detail::duration Duration>
void hang_report_after(Duration duration) noexcept {
    __atomic_store_n(&detail::hang_report_after_ns, detail::nanoseconds(duration), __ATOMIC_RELAXED);
}

namespace detail {

// ---------------------------------------------------------------------------------------------------------------
// The result of one operation, before it becomes an exception or an error_code.

struct status {
    const char* call = "";
    int value = 0;                                 ///< an errno; 0 is success
    const char* cause = "";                        ///< what rdmaxx found before it would have called C
    const std::error_category* category = nullptr; ///< null: value is an errno

    [[nodiscard]] bool failed() const noexcept { return value != 0; }
    [[nodiscard]] std::error_code code() const noexcept {
        return {value, category != nullptr ? *category : std::system_category()};
    }
};

/// The number that the kernel means: some of its drivers let out ENOTSUPP, which is its own and has no name outside.
[[nodiscard]] constexpr int public_errno(int value) noexcept {
    constexpr int kernel_enotsupp = 524;
    return value == kernel_enotsupp ? EOPNOTSUPP : value;
}

/// errno after a call that failed. A library that left none (an unsupported ABI on FreeBSD) still failed.
[[nodiscard]] inline int last_errno() noexcept {
    return errno != 0 ? public_errno(errno) : EIO;
}

[[nodiscard]] RDMAXX_COLD inline int number_of_failure(int result) noexcept {
    if (result > 0)
        return public_errno(result);
    return result == -1 ? last_errno() : public_errno(-result);
}

/// Any of the conventions for a call's int, to an error number: 0, a positive errno, -1 with errno, -errno.
/// The documented one is a positive errno for most of libibverbs; providers have used all of them.
[[nodiscard]] inline int error_number(int result) noexcept {
    if (result == 0) [[likely]]
        return 0;
    return number_of_failure(result);
}

/// For calls that return 0 or a positive errno: most of libibverbs.
[[nodiscard]] inline status check_number(const char* call, int result) noexcept {
    return {call, error_number(result)};
}

inline constexpr const char* empty_handle = "empty handle";

/// The same of a call on a C object, which is not made where there is none.
template <class Function, class Raw, class... Args>
[[nodiscard]] status check_call(const char* call, Function function, Raw* object, Args... args) noexcept {
    if (object == nullptr)
        return {call, EINVAL, empty_handle};
    return check_number(call, function(object, args...));
}

/// For calls that return 0, or -1 and errno: librdmacm, ibv_get_cq_event, ibv_get_async_event, ibv_query_gid.
[[nodiscard]] inline status check_errno(const char* call, int result) noexcept {
    return {call, result == 0 ? 0 : last_errno()};
}

/// As check_call, of those.
template <class Function, class Raw, class... Args>
[[nodiscard]] status check_errno_call(const char* call, Function function, Raw* object, Args... args) noexcept {
    if (object == nullptr)
        return {call, EINVAL, empty_handle};
    return check_errno(call, function(object, args...));
}

/// For calls that return an object, or null and errno.
[[nodiscard]] inline status check_pointer(const char* call, const void* result) noexcept {
    return {call, result != nullptr ? 0 : last_errno()};
}

// ---------------------------------------------------------------------------------------------------------------
// The two forms of every fallible function.

#if defined(__cpp_exceptions)
[[noreturn]] RDMAXX_COLD inline void raise(const status& failed, const std::string& subject = {}) {
    throw error(failed.code(), failed.call, failed.cause, subject);
}
/// The same with a C call's result: the caller has no more to do than to pass it on.
[[noreturn]] RDMAXX_COLD inline void raise_number(const char* call, int result) {
    raise({call, number_of_failure(result)});
}
#else
// Without exceptions only the forms that take a std::error_code can be used: using another one does not compile.
[[noreturn]] void raise(const status& failed, const std::string& subject = {})
    __attribute__((error("without exceptions use the form that takes a std::error_code&")));
[[noreturn]] void raise_number(const char* call, int result)
    __attribute__((error("without exceptions use the form that takes a std::error_code&")));
#endif

/// The error_code form of raise_number. By value: a caller's error_code whose address is not taken stays in registers.
[[nodiscard]] RDMAXX_COLD inline std::error_code code_of_number(int result) noexcept {
    return {number_of_failure(result), std::system_category()};
}

/// The throwing form. `subject` is what the call was about, made into text only when it failed.
inline void check(const status& result) {
    if (result.failed()) [[unlikely]]
        raise(result);
}

template <class Subject>
void check(const status& result, const Subject& subject) {
    if (result.failed()) [[unlikely]]
        raise(result, subject.to_string());
}

/// Clears only what is set: std::error_code's clear() calls into the C++ library.
inline void clear(std::error_code& ec) noexcept {
    if (ec.value() != 0) [[unlikely]]
        ec.clear();
}

/// The error_code form.
inline void assign(std::error_code& ec, const status& result) noexcept {
    if (result.failed())
        ec = result.code();
    else
        clear(ec);
}

inline void report_destroy_failure(const status& failed, const void* object) noexcept {
    const destroy_failure_hook hook = __atomic_load_n(&destroy_failure_hook_slot, __ATOMIC_ACQUIRE);
    hook({failed.call, failed.code(), object});
}

[[nodiscard]] inline hang_action report_hang(const hang_report& report) noexcept {
    return __atomic_load_n(&hang_hook_slot, __ATOMIC_ACQUIRE)(report);
}

/// Keeps errno over code that a caller does not see: destructors.
class errno_guard {
public:
    errno_guard() noexcept = default;
    errno_guard(const errno_guard&) = delete;
    errno_guard& operator=(const errno_guard&) = delete;
    ~errno_guard() { errno = saved_; }

private:
    int saved_ = errno;
};

} // namespace detail
} // namespace rdmaxx::inline v0

#endif
