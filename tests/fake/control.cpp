// The records of the fake: objects, log, faults, failures.
#include "internal.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#    define FAKE_ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define FAKE_ASAN 1
#    endif
#endif
#ifndef FAKE_ASAN
#    define FAKE_ASAN 0
#endif

namespace fake::detail {

namespace {

void tsan_looks_away() {
#if FAKE_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
}
void tsan_looks_back() {
#if FAKE_TSAN
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

// What forked processes call is kept in a page that they share with their parent.
struct children_page {
    static constexpr std::size_t capacity = 64;
    std::atomic<std::uint32_t> count;
    char names[capacity][48];
};

children_page* new_children_page() {
    void* page = mmap(nullptr, sizeof(children_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page == MAP_FAILED ? nullptr : new (page) children_page{};
}

struct process {
    state records;
    failure_handler handler;
    children_page* children = new_children_page();
    pid_t owner = getpid();
};
process& process_state();

// A child of fork must find the mutex free, whatever the parent's threads were doing.
void before_fork() {
    tsan_looks_away();
    process_state().records.mutex.lock();
}
void after_fork() {
    process_state().records.mutex.unlock();
    tsan_looks_back();
}

// Never destroyed: static owners of the program call the libraries during its last steps.
process& process_state() {
    static process& only = *[] {
        auto* made = new process;
        default_devices(made->records);
        pthread_atfork(before_fork, after_fork, after_fork);
        return made;
    }();
    return only;
}

void note_call_in_child(const char* name) {
    auto& p = process_state();
    if (p.children == nullptr || getpid() == p.owner)
        return;
    const auto slot = p.children->count.fetch_add(1);
    if (slot < children_page::capacity)
        std::snprintf(p.children->names[slot], sizeof p.children->names[slot], "%s", name);
}

void default_failure(const std::string& text) {
    std::fprintf(stderr, "fake: %s\n%s", text.c_str(), log_text().c_str());
    std::abort();
}

void deliver(const std::string& text) {
    failure_handler handler;
    {
        section lock;
        handler = process_state().handler;
    }
    const int saved = errno;
    if (handler)
        handler(text);
    else
        default_failure(text);
    errno = saved;
}

thread_local int section_depth = 0;
thread_local int call_depth = 0;
thread_local std::vector<std::string> reports;
thread_local std::vector<block> burials;
thread_local std::vector<const void*> orders;
thread_local std::vector<std::string> running_hooks;

} // namespace

std::atomic<bool> benching{false};

state& the() {
    return process_state().records;
}

section::section() {
    process_state(); // made before TSan looks away
    tsan_looks_away();
    lock_ = std::unique_lock<std::mutex>(the().mutex);
    ++section_depth;
}

section::~section() {
    auto told = std::exchange(reports, {});
    auto dead = std::exchange(burials, {});
    auto ordered = std::exchange(orders, {});
    --section_depth;
    lock_.unlock();
    tsan_looks_back();
    for (const void* what : ordered)
        happens_after(what);
    for (const block& b : dead)
        drop_block(b);
    for (const std::string& text : told)
        deliver(text);
}

void report(std::string text) {
    if (section_depth > 0)
        reports.push_back(std::move(text));
    else
        deliver(text);
}

void happens_after_at_end(const void* what) {
    orders.push_back(what);
}

// ---------------------------------------------------------------- blocks

namespace {

struct graveyard {
    std::mutex mutex;
    std::deque<block> kept;   // poisoned, to see who writes to them
    std::vector<block> ready; // for reuse_addresses
};
graveyard& graves() {
    static graveyard& only = *new graveyard;
    return only;
}
constexpr std::size_t kept_blocks = 512;

// TSan must not see this lock either, but must see the poisoning and the free.
template <class Work>
auto with_graves(Work work) {
    tsan_looks_away();
    std::unique_lock lock(graves().mutex);
    auto result = work(graves());
    lock.unlock();
    tsan_looks_back();
    return result;
}

void free_kept(const block& b) {
    const auto* bytes = static_cast<const unsigned char*>(b.memory);
    const bool intact = std::all_of(bytes, bytes + b.size, [](unsigned char c) { return c == poison_byte; });
    const std::string whose = describe(b.memory);
    std::free(b.memory);
    if (!intact)
        report("memory of " + whose + " was written to after its end");
}

void empty_graves() {
    const auto all = with_graves([](graveyard& g) {
        std::vector<block> blocks(g.kept.begin(), g.kept.end());
        blocks.insert(blocks.end(), g.ready.begin(), g.ready.end());
        g.kept.clear();
        g.ready.clear();
        return blocks;
    });
    for (const block& b : all)
        free_kept(b);
}

} // namespace

block take_block(std::size_t size) {
    block b = with_graves([size](graveyard& g) {
        block found;
        const auto it =
            std::find_if(g.ready.rbegin(), g.ready.rend(), [size](const block& c) { return c.size == size; });
        if (it != g.ready.rend()) {
            found = *it;
            g.ready.erase(std::next(it).base());
        }
        return found;
    });
    if (b.memory == nullptr)
        b = {std::malloc(size), size};
    else if (section_depth > 0)
        happens_after_at_end(b.memory);
    else
        happens_after(b.memory);
    std::memset(b.memory, garbage_byte, size);
    return b;
}

void drop_block(block b) {
    if (b.memory == nullptr)
        return;
    std::memset(b.memory, poison_byte, b.size);
    if (setting(&settings::reuse_addresses)) {
        happens_before(b.memory);
        with_graves([&b](graveyard& g) { return g.ready.push_back(b), 0; });
        return;
    }
    if (FAKE_ASAN != 0 || FAKE_TSAN != 0) {
        std::free(b.memory);
        return;
    }
    const block oldest = with_graves([&b](graveyard& g) {
        g.kept.push_back(b);
        block first;
        if (g.kept.size() > kept_blocks) {
            first = g.kept.front();
            g.kept.pop_front();
        }
        return first;
    });
    if (oldest.memory != nullptr)
        free_kept(oldest);
}

// ---------------------------------------------------------------- objects

namespace {

const char* kind_name(kind what) {
    static constexpr const char* names[] = {
        "channel",  "id",        "event", "device", "device_list",  "context_list", "context",
        "pd",       "mr",        "mw",    "dm",     "comp_channel", "cq",           "qp",
        "srq",      "ah",        "xrcd",  "wq",     "td",           "flow",         "flow_action",
        "counters", "ind_table", "dmah",  "buf",    "comp_cntr",    "addrinfo"};
    static_assert(std::size(names) == static_cast<std::size_t>(kind::count_));
    return names[static_cast<std::size_t>(what)];
}

std::string address_text(const void* address) {
    std::ostringstream out;
    out << address;
    return out.str();
}

std::string thread_text(std::thread::id thread) {
    std::ostringstream out;
    out << thread;
    return out.str();
}

} // namespace

void enlist(std::unique_ptr<object> made, void* handle, block memory, std::vector<object*> parents) {
    auto& s = the();
    made->handle = handle;
    made->memory = memory;
    made->name = kind_name(made->what) + std::to_string(++s.serial[static_cast<std::size_t>(made->what)]);
    made->parents = std::move(parents);
    for (object* parent : made->parents)
        ++parent->children;
    s.dead.erase(handle);
    s.living[handle] = std::move(made);
}

void bury(object& o) {
    auto& s = the();
    for (object* parent : o.parents)
        --parent->children;
    s.dead[o.handle] = o.name;
    burials.push_back(o.memory);
    s.living.erase(o.handle); // o is gone
    s.changed.notify_all();
}

object* find_any(const void* handle) {
    auto& s = the();
    const auto it = s.living.find(handle);
    return it == s.living.end() ? nullptr : it->second.get();
}

namespace {

std::string describe_locked(const void* handle) {
    if (handle == nullptr)
        return "null";
    if (const object* o = find_any(handle))
        return o->name;
    const auto it = the().dead.find(handle);
    return it == the().dead.end() ? address_text(handle) : it->second + " (destroyed)";
}

} // namespace

std::string describe(const void* handle) {
    if (section_depth > 0)
        return describe_locked(handle);
    section lock;
    return describe_locked(handle);
}

void report_bad_handle(const char* call, const char* what, const void* handle) {
    const std::string name = std::string(call) + ": ";
    if (handle == nullptr) {
        report(name + "null " + what + ", this would crash");
        return;
    }
    const auto it = the().dead.find(handle);
    if (it != the().dead.end()) {
        report(name + what + " " + it->second + " was destroyed before");
        return;
    }
    const object* other = find_any(handle);
    if (other != nullptr && other->gone)
        report(name + other->name + " went away with its device (a destroy gave EIO)");
    else if (other != nullptr)
        report(name + other->name + " is not a " + what);
    else
        report(name + address_text(handle) + " is not a " + what + " of this library");
}

void gone_on_eio(const void* handle, int error) {
    if (error != EIO)
        return;
    section lock;
    object* o = find_any(handle);
    if (o == nullptr || o->gone)
        return;
    o->gone = true;
    for (object* parent : o->parents)
        --parent->children;
    o->parents.clear();
}

// ---------------------------------------------------------------- calls

namespace {

bool ends_an_object(std::string_view name) {
    for (const char* part : {"destroy", "dealloc", "dereg", "close", "free", "ack_", "unimport", "leave"})
        if (name.find(part) != std::string_view::npos)
            return true;
    return false;
}

const rule* matching_rule(std::string_view name, bool can_fail) {
    const rule* found = nullptr;
    if (!can_fail)
        return nullptr;
    for (rule& r : the().rules) {
        if (r.retired || (r.name != name && (r.name != "*" || ends_an_object(name))))
            continue;
        ++r.uses;
        if (found == nullptr && (r.every || (r.uses >= r.at && r.uses - r.at < r.times))) {
            ++r.hits;
            found = &r;
        }
    }
    return found;
}

void run_hook(bool early, const char* name) {
    std::function<void()> hook;
    {
        section lock;
        auto& hooks = early ? the().before : the().after;
        const auto it = hooks.find(std::string_view(name));
        if (it == hooks.end())
            return;
        hook = it->second;
    }
    const std::string key = (early ? "<" : ">") + std::string(name);
    if (std::find(running_hooks.begin(), running_hooks.end(), key) != running_hooks.end())
        return;
    running_hooks.push_back(key);
    const int depth = std::exchange(call_depth, 0); // what a hook calls, the program calls
    hook();
    call_depth = depth;
    running_hooks.pop_back();
}

} // namespace

c_call::c_call(const char* name, const void* object, returns natural, std::string detail)
    : name_(name), object_(object), natural_(natural), detail_(std::move(detail)), nested_(call_depth > 0),
      errno_after_(errno) {
    note_call_in_child(name);
    run_hook(true, name);
    {
        section lock;
        auto& s = the();
        object_name_ = object == nullptr ? std::string() : describe_locked(object);
        ++s.counters[name_].entered;
        ++s.counters_by_object[{name_, object_}];
        if (!nested_)
            ++s.program_calls;
        if (const rule* r = matching_rule(name_, natural_ != returns::nothing)) {
            injected_ = true;
            error_ = r->error;
            how_ = r->how;
            value_ = r->value;
            errno_set_ = r->value.has_value() && r->error_given;
        }
        entry_ = s.log.size();
        generation_ = s.log_generation;
        s.log.push_back(
            {name_, object_, object_name_, detail_, {}, false, nested_, std::this_thread::get_id(), getpid()});
        s.changed.notify_all();
    }
    ++call_depth;
}

c_call::~c_call() {
    --call_depth;
    {
        section lock;
        auto& s = the();
        if (generation_ == s.log_generation) {
            if (quiet_ && !failed_ && entry_ + 1 == s.log.size()) {
                s.log.pop_back();
            } else {
                s.log[entry_].result = finished_ ? result_ : "-";
                s.log[entry_].failed = failed_;
                s.log[entry_].detail = detail_;
            }
        }
        if (!failed_)
            ++s.counters[name_].succeeded;
        if (!failed_ && !errno_left_ && s.settings.errno_after_success != 0)
            errno_after_ = s.settings.errno_after_success;
    }
    run_hook(false, name_);
    errno = errno_after_;
}

void c_call::succeeded(std::string result) {
    finished_ = true;
    result_ = std::move(result);
}

void c_call::failed(int error, std::string value) {
    finished_ = true;
    failed_ = true;
    result_ = std::move(value) + " " + error_name(error);
    errno_after_ = error;
}

int c_call::finish(int error) {
    if (injected_ && value_) {
        finished_ = failed_ = true;
        result_ = std::to_string(*value_);
        if (errno_set_)
            errno_after_ = error_;
        return *value_;
    }
    if (error == 0)
        return succeeded("0"), 0;
    const convention how = !injected_ || how_ == convention::natural
                               ? (natural_ == returns::minus_one ? convention::minus_one : convention::positive)
                               : how_;
    const int before = errno_after_;
    const int value = how == convention::minus_one ? -1 : how == convention::positive ? error : -error;
    failed(error, std::to_string(value));
    if (how != convention::minus_one)
        errno_after_ = before;
    return value;
}

int c_call::number(int value) {
    succeeded(std::to_string(value));
    return value;
}

std::string c_call::describe_result(const void* made) {
    return describe(made);
}

// ---------------------------------------------------------------- descriptors

int new_signal() {
    return eventfd(0, EFD_CLOEXEC);
}

void raise_signal(int fd) {
    const std::uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0)
        std::perror("fake: eventfd");
}

void lower_signal(int fd) {
    pollfd ready = {fd, POLLIN, 0};
    std::uint64_t value = 0;
    if (poll(&ready, 1, 0) == 1 && read(fd, &value, sizeof value) < 0)
        std::perror("fake: eventfd");
}

int wait_for_signal(int fd, std::chrono::milliseconds limit) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return EBADF;
    if ((flags & O_NONBLOCK) != 0)
        return EAGAIN;
    pollfd ready = {fd, POLLIN, 0};
    const int n = poll(&ready, 1, static_cast<int>(limit.count()));
    if (n < 0)
        return errno;
    return n == 0 ? ETIMEDOUT : 0;
}

// ---------------------------------------------------------------- small things

std::string error_name(int error) {
    switch (error) {
#define FAKE_NAME(e)                                                                                                   \
    case e: return #e
        FAKE_NAME(EPERM);
        FAKE_NAME(ENOENT);
        FAKE_NAME(EINTR);
        FAKE_NAME(EIO);
        FAKE_NAME(EBADF);
        FAKE_NAME(EAGAIN);
        FAKE_NAME(ENOMEM);
        FAKE_NAME(EACCES);
        FAKE_NAME(EFAULT);
        FAKE_NAME(EBUSY);
        FAKE_NAME(EEXIST);
        FAKE_NAME(ENODEV);
        FAKE_NAME(EINVAL);
        FAKE_NAME(EMFILE);
        FAKE_NAME(ENOSPC);
        FAKE_NAME(ENOSYS);
        FAKE_NAME(ENODATA);
        FAKE_NAME(EOPNOTSUPP);
        FAKE_NAME(EADDRINUSE);
        FAKE_NAME(EADDRNOTAVAIL);
        FAKE_NAME(ENETUNREACH);
        FAKE_NAME(ENOTCONN);
        FAKE_NAME(ETIMEDOUT);
        FAKE_NAME(ECONNREFUSED);
#undef FAKE_NAME
    default: return "error " + std::to_string(error);
    }
}

std::uint32_t round_up(std::uint32_t n) {
    std::uint32_t power = 1;
    while (power < n)
        power <<= 1U;
    return power;
}

context_object* context_of(const ibv_context* c) {
    return find<context_object>(c);
}

} // namespace fake::detail

// ---------------------------------------------------------------- the control interface

namespace fake {

using namespace detail;

namespace {

void close_descriptors() {
    each<channel_object>([](channel_object& c) { close(c.fd); });
    each<comp_channel_object>([](comp_channel_object& c) { close(c.c->fd); });
    each<context_object>([](context_object& c) {
        close(c.c->async_fd);
        close(c.c->cmd_fd);
    });
}

void forget_everything() {
    {
        section lock;
        auto& s = the();
        close_descriptors();
        each<id_object>([](id_object& id) { std::free(id.path); });
        each<addrinfo_object>([](addrinfo_object& info) {
            for (const block& b : info.parts)
                burials.push_back(b);
        });
        for (auto& entry : s.living) {
            burials.push_back(entry.second->memory);
            s.dead[entry.first] = entry.second->name;
        }
        s.living.clear();
        default_devices(s);
    }
    empty_graves();
    section lock;
    auto& s = the();
    s.settings = {};
    s.limits = {};
    s.unreachable.clear();
    s.dead.clear();
    std::fill(std::begin(s.serial), std::end(s.serial), 0U);
    s.log.clear();
    ++s.log_generation;
    s.counters.clear();
    s.counters_by_object.clear();
    s.program_calls = 0;
    s.rules.clear();
    s.before.clear();
    s.after.clear();
    s.before_id_changes = nullptr;
    s.cm_events = s.cq_events = s.async_events = {};
    s.next_port = 49152;
    s.qps.clear();
    if (auto* page = process_state().children; page != nullptr)
        page->count = 0;
}

std::string held_text(const tally& t, const char* what) {
    return t.held() == 0 ? std::string() : ", " + std::to_string(t.held()) + " " + what + " not acked";
}

std::string leak_text(const object& o) {
    std::string text = o.name;
    if (o.what == kind::cm_event) {
        const auto& e = static_cast<const event_object&>(o);
        text += ": " + e.label + " of " + (e.pins == nullptr ? "?" : e.pins->name) + ", got by thread " +
                thread_text(e.thread);
    } else if (o.what == kind::cq) {
        const auto& cq = static_cast<const cq_object&>(o);
        text += held_text(cq.completions, "completion events") + held_text(cq.asyncs, "async events");
    } else if (o.what == kind::qp) {
        text += held_text(static_cast<const qp_object&>(o).asyncs, "async events");
    } else if (o.what == kind::srq) {
        text += held_text(static_cast<const srq_object&>(o).asyncs, "async events");
    }
    return text;
}

} // namespace

void abandon() {
    bench_mode(false);
    forget_everything();
}

void reset() {
    const auto left = leaks();
    if (!left.empty()) {
        std::string text = "left behind:";
        for (const std::string& line : left)
            text += "\n  " + line;
        report(text);
    }
    abandon();
}

std::vector<std::string> leaks() {
    section lock;
    std::vector<std::string> lines;
    for (const auto& entry : the().living)
        if (!entry.second->internal && !entry.second->gone)
            lines.push_back(leak_text(*entry.second));
    std::sort(lines.begin(), lines.end());
    return lines;
}

failure_handler on_failure(failure_handler handler) {
    section lock;
    return std::exchange(process_state().handler, std::move(handler));
}

struct expected_failures::collected {
    std::mutex mutex;
    std::vector<std::string> texts;
};

expected_failures::expected_failures() : collected_(std::make_shared<collected>()) {
    former_ = on_failure([into = collected_](const std::string& text) {
        std::lock_guard lock(into->mutex);
        into->texts.push_back(text);
    });
}

expected_failures::~expected_failures() {
    on_failure(former_);
}

std::size_t expected_failures::count() const {
    std::lock_guard lock(collected_->mutex);
    return collected_->texts.size();
}

std::string expected_failures::text() const {
    std::lock_guard lock(collected_->mutex);
    std::string all;
    for (const std::string& one : collected_->texts)
        all += one + "\n";
    return all;
}

bool expected_failures::mentions(std::string_view part) const {
    return text().find(part) != std::string::npos;
}

settings& set() {
    return the().settings;
}

device_limits& limits() {
    return the().limits;
}

void auto_connect(bool on) {
    the().settings.auto_connect = on;
}

void unreachable(std::string_view address) {
    section lock;
    the().unreachable.emplace_back(address);
}

std::vector<std::byte> bytes(std::string_view text) {
    std::vector<std::byte> result(text.size());
    if (!text.empty())
        std::memcpy(result.data(), text.data(), text.size());
    return result;
}

std::vector<std::byte> bytes(std::initializer_list<int> values) {
    std::vector<std::byte> result;
    for (const int value : values)
        result.push_back(static_cast<std::byte>(value));
    return result;
}

void before_id_changes(std::function<void(rdma_cm_id*)> hook) {
    section lock;
    the().before_id_changes = std::move(hook);
}

// ---------------------------------------------------------------- log

std::string to_string(const call_record& call) {
    std::ostringstream out;
    out << (call.nested ? "    " : "") << call.name << '(' << call.object;
    if (!call.detail.empty())
        out << (call.object.empty() ? "" : ", ") << call.detail;
    out << ')';
    if (!call.result.empty() && call.result != "-")
        out << " = " << call.result;
    if (call.result.empty())
        out << " ...";
    return out.str();
}

std::vector<call_record> log() {
    section lock;
    return the().log;
}

std::string log_text() {
    std::string text;
    for (const call_record& call : log())
        text += to_string(call) + "\n";
    return text;
}

std::vector<std::string> log_names() {
    std::vector<std::string> names;
    for (const call_record& call : log())
        names.push_back(call.name);
    return names;
}

void clear_log() {
    section lock;
    auto& s = the();
    s.log.clear();
    ++s.log_generation;
    s.counters.clear();
    s.counters_by_object.clear();
    s.program_calls = 0;
}

std::size_t calls(std::string_view name) {
    section lock;
    const auto it = the().counters.find(name);
    return it == the().counters.end() ? 0 : it->second.entered;
}

std::size_t calls(std::string_view name, const void* object) {
    section lock;
    const auto it = the().counters_by_object.find({std::string(name), object});
    return it == the().counters_by_object.end() ? 0 : it->second;
}

std::size_t calls() {
    section lock;
    return the().program_calls;
}

std::size_t successes(std::string_view name) {
    section lock;
    const auto it = the().counters.find(name);
    return it == the().counters.end() ? 0 : it->second.succeeded;
}

bool in_order(std::initializer_list<std::string_view> names) {
    const auto made = log_names();
    auto from = made.begin();
    for (const std::string_view name : names) {
        from = std::find(from, made.end(), name);
        if (from == made.end())
            return false;
        ++from;
    }
    return true;
}

bool wait_for_call(std::string_view name, std::size_t times, std::chrono::milliseconds limit) {
    section lock;
    return lock.wait(limit, [&] {
        const auto it = the().counters.find(name);
        return it != the().counters.end() && it->second.entered >= times;
    });
}

std::string name_of(const void* object) {
    return describe(object);
}

bool alive(const void* object) {
    section lock;
    const auto* found = find_any(object);
    return found != nullptr && !found->gone;
}

std::vector<std::string> calls_in_children() {
    std::vector<std::string> names;
    const auto* page = process_state().children;
    if (page == nullptr)
        return names;
    const std::size_t count = page->count;
    for (std::size_t i = 0; i < count; ++i)
        names.emplace_back(i < children_page::capacity ? page->names[i] : "...");
    return names;
}

// ---------------------------------------------------------------- tallies

tally cm_events() {
    section lock;
    return the().cm_events;
}

tally cm_events(const rdma_cm_id* id) {
    section lock;
    const auto* o = find<id_object>(id);
    return o == nullptr ? tally{} : o->events;
}

tally cq_events() {
    section lock;
    return the().cq_events;
}

tally cq_events(const ibv_cq* cq) {
    section lock;
    const auto* o = find<cq_object>(cq);
    return o == nullptr ? tally{} : o->completions;
}

tally async_events() {
    section lock;
    return the().async_events;
}

tally async_events(const ibv_cq* cq) {
    section lock;
    const auto* o = find<cq_object>(cq);
    return o == nullptr ? tally{} : o->asyncs;
}

tally async_events(const ibv_qp* qp) {
    section lock;
    const auto* o = find<qp_object>(qp);
    return o == nullptr ? tally{} : o->asyncs;
}

tally async_events(const ibv_srq* srq) {
    section lock;
    const auto* o = find<srq_object>(srq);
    return o == nullptr ? tally{} : o->asyncs;
}

// ---------------------------------------------------------------- faults

fail::fail(std::string_view name) {
    section lock;
    rule_ = the().rules.size();
    the().rules.push_back({});
    the().rules.back().name = name;
}

fail& fail::at(unsigned nth) {
    section lock;
    the().rules[rule_].at = nth;
    return *this;
}

fail& fail::times(unsigned n) {
    section lock;
    the().rules[rule_].times = n;
    return *this;
}

fail& fail::every() {
    section lock;
    the().rules[rule_].every = true;
    return *this;
}

fail& fail::with(int error) {
    section lock;
    the().rules[rule_].error = error;
    the().rules[rule_].error_given = true;
    return *this;
}

fail& fail::as(convention how) {
    section lock;
    the().rules[rule_].how = how;
    return *this;
}

fail& fail::returning(int value) {
    section lock;
    the().rules[rule_].value = value;
    return *this;
}

unsigned fail::hits() const {
    section lock;
    return rule_ < the().rules.size() ? the().rules[rule_].hits : 0;
}

void forgive() {
    section lock;
    // The rules stay for their hits(); indices must not move.
    for (rule& r : the().rules)
        r.retired = true;
}

void before(std::string_view name, std::function<void()> hook) {
    section lock;
    the().before[std::string(name)] = std::move(hook);
}

void after(std::string_view name, std::function<void()> hook) {
    section lock;
    the().after[std::string(name)] = std::move(hook);
}

} // namespace fake
