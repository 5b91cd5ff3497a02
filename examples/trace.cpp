// librdmaxx_trace.so: shows every event that a program gets, and every ack. Any program, as it is:
//
//     RDMAXX_TRACE=client LD_PRELOAD=./librdmaxx_trace.so ./echo_client 192.0.2.1:7471
//
//     [client] get  established  #3
//     [client] ack  established  #3
//
// CM events and completion events are numbered apart, each in the order in which they were got. When the program ends,
// or SIGINT or SIGTERM ends it, come the sums, which should be equal. An ack of what is not held, which would corrupt
// the C library's memory or its counts, is reported as DOUBLE ACK and aborts the program.
#include <rdmaxx/cm/event_type.hpp>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include <dlfcn.h>
#include <unistd.h>

namespace {

struct counter {
    std::atomic<long> gets;
    std::atomic<long> acks;
};

struct cm_record {
    long number;
    rdmaxx::cm_event_type type;
};

/// What is known of the program.
struct traced_program {
    std::string_view label;
    bool colours = ::isatty(STDERR_FILENO) == 1;
    pid_t process = ::getpid();

    counter cm_events; // read by the signal handler, which takes no lock
    counter cq_events;

    std::mutex lock;
    std::unordered_map<const rdma_cm_event*, cm_record> held_cm; // got and not acked yet
    std::unordered_map<const ibv_cq*, std::deque<long>> held_cq; // the numbers of each CQ's events

    traced_program() {
        const char* name = std::getenv("RDMAXX_TRACE");
        label = name != nullptr && *name != '\0' ? name : program_invocation_short_name;
        label = label.substr(0, 40);
    }
};

/// Never destroyed: what other libraries' destructors do is shown as well.
traced_program& traced() {
    static auto& all = *new traced_program; // NOLINT(*-avoid-non-const-global-variables)
    return all;
}

constexpr std::string_view plain;
constexpr std::string_view green = "\x1b[32m";
constexpr std::string_view blue = "\x1b[34m";
constexpr std::string_view red = "\x1b[1;31m";

/// One line on standard error, in one write. Without stdio and memory, since the signal handler prints, too.
class line {
public:
    explicit line(std::string_view colour) {
        if (traced().colours && !colour.empty()) {
            *this << colour;
            end_ = "\x1b[0m\n";
        }
        *this << "[" << traced().label << "] ";
    }
    ~line() {
        std::memcpy(text_ + size_, end_.data(), end_.size()); // there is room
        if (::write(STDERR_FILENO, text_, size_ + end_.size()) < 0)
            return; // nobody to tell
    }
    line(const line&) = delete;
    line& operator=(const line&) = delete;

    line& operator<<(std::string_view more) {
        more = more.substr(0, limit - size_);
        std::memcpy(text_ + size_, more.data(), more.size());
        size_ += more.size();
        return *this;
    }
    line& operator<<(long number) {
        char digits[24] = {};
        const auto result = std::to_chars(std::begin(digits), std::end(digits), number);
        return *this << std::string_view(digits, static_cast<std::size_t>(result.ptr - digits));
    }

private:
    static constexpr std::size_t limit = 240;

    char text_[limit + 8] = {};
    std::size_t size_ = 0;
    std::string_view end_ = "\n";
};

/// errno is the traced function's.
class errno_keeper {
public:
    errno_keeper() = default;
    errno_keeper(const errno_keeper&) = delete;
    errno_keeper& operator=(const errno_keeper&) = delete;
    ~errno_keeper() { errno = saved_; }

private:
    int saved_ = errno;
};

/// The function that the program would have called without this library.
template <class Function>
Function* next(const char* name, Function*) {
    void* const found = ::dlsym(RTLD_NEXT, name);
    if (found == nullptr) {
        line(red) << name << ": no library has it";
        std::abort();
    }
    return reinterpret_cast<Function*>(found);
}

[[noreturn]] void double_ack(std::string_view what, long acked, std::size_t held) {
    line(red) << "DOUBLE ACK of " << what << ": " << acked << " acked, " << static_cast<long>(held) << " held";
    std::abort();
}

void print_sums() {
    const auto print = [](std::string_view of, const counter& c) {
        line(c.gets == c.acks ? plain : red) << "sum  " << of << "  gets " << c.gets << ", acks " << c.acks;
    };
    // Nothing to say has, for one, a shell that starts the program.
    if (traced().cm_events.gets + traced().cq_events.gets != 0) {
        print("cm events", traced().cm_events);
        print("cq events", traced().cq_events);
    }
}

void on_signal(int signal) {
    if (traced().process == ::getpid())
        print_sums();
    static_cast<void>(::raise(signal)); // SA_RESETHAND: on return the default action follows
}

[[gnu::constructor]] void at_start() {
    traced();
    for (const int signal : {SIGINT, SIGTERM}) {
        struct sigaction action {};
        if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL)
            continue;
        action.sa_handler = on_signal;
        action.sa_flags = static_cast<int>(SA_RESETHAND);
        ::sigaction(signal, &action, nullptr);
    }
}

[[gnu::destructor]] void at_end() {
    if (traced().process != ::getpid())
        return; // a child: the events are its parent's
    const std::lock_guard guard(traced().lock);
    for (const auto& [event, record] : traced().held_cm)
        line(red) << "never acked  " << to_string(record.type) << "  #" << record.number;
    for (const auto& [cq, numbers] : traced().held_cq)
        for (const long number : numbers)
            line(red) << "never acked  cq event  #" << number;
    print_sums();
}

} // namespace

extern "C" {

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
    static const auto real = next("rdma_get_cm_event", ::rdma_get_cm_event);
    const int result = real(channel, event);
    if (result != 0)
        return result;
    const errno_keeper keeper;
    const std::lock_guard guard(traced().lock);
    const cm_record record{++traced().cm_events.gets, static_cast<rdmaxx::cm_event_type>((*event)->event)};
    traced().held_cm[*event] = record;
    line out(green);
    out << "get  " << to_string(record.type) << "  #" << record.number;
    if ((*event)->status != 0)
        out << "  status " << long{(*event)->status};
    return result;
}

int rdma_ack_cm_event(rdma_cm_event* event) {
    static const auto real = next("rdma_ack_cm_event", ::rdma_ack_cm_event);
    if (event != nullptr) { // which the C library refuses
        const errno_keeper keeper;
        const std::lock_guard guard(traced().lock);
        const auto found = traced().held_cm.find(event);
        if (found == traced().held_cm.end())
            double_ack("a CM event", 1, 0);
        ++traced().cm_events.acks;
        line(blue) << "ack  " << to_string(found->second.type) << "  #" << found->second.number;
        traced().held_cm.erase(found); // before the ack: its address may be the next event's
    }
    return real(event);
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    static const auto real = next("ibv_get_cq_event", ::ibv_get_cq_event);
    const int result = real(channel, cq, cq_context);
    if (result != 0)
        return result;
    const errno_keeper keeper;
    const std::lock_guard guard(traced().lock);
    const long number = ++traced().cq_events.gets;
    traced().held_cq[*cq].push_back(number);
    line(green) << "get  cq event  #" << number;
    return result;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned nevents) {
    static const auto real = next("ibv_ack_cq_events", ::ibv_ack_cq_events);
    {
        const errno_keeper keeper;
        const std::lock_guard guard(traced().lock);
        std::deque<long>& numbers = traced().held_cq[cq];
        if (nevents > numbers.size())
            double_ack("completion events", nevents, numbers.size());
        traced().cq_events.acks += nevents;
        line out(blue);
        out << "ack  cq event ";
        for (unsigned i = 0; i < nevents; ++i, numbers.pop_front())
            out << " #" << numbers.front();
        if (numbers.empty())
            traced().held_cq.erase(cq);
    }
    real(cq, nevents);
}

} // extern "C"
