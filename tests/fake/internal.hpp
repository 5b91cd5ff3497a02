// The state that the parts of the fake share. Tests include fake.hpp only.
#pragma once

#include "fake.hpp"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>

#if defined(__SANITIZE_THREAD__)
#    define FAKE_TSAN 1
#elif defined(__has_feature)
#    if __has_feature(thread_sanitizer)
#        define FAKE_TSAN 1
#    endif
#endif
#ifndef FAKE_TSAN
#    define FAKE_TSAN 0
#endif

#if FAKE_TSAN
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
void AnnotateIgnoreSyncBegin(const char*, int);
void AnnotateIgnoreSyncEnd(const char*, int);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#endif

namespace fake::detail {

// ---------------------------------------------------------------- what TSan sees
//
// One mutex guards the fake's records. If TSan saw it, every C call would order the threads and hide their
// races, so TSan is blind while it is held. What the real libraries order (an event and its get, an ack and
// the destroy that waits for it, a post and its completion) is said with these two, and what they write
// without a lock (id->verbs, id->qp, qp->state, the freed blocks) is written outside the mutex.

inline void happens_before(const void* what) {
#if FAKE_TSAN
    __tsan_release(const_cast<void*>(what));
#else
    (void)what;
#endif
}
inline void happens_after(const void* what) {
#if FAKE_TSAN
    __tsan_acquire(const_cast<void*>(what));
#else
    (void)what;
#endif
}

// Acks are ordered before the destroy that waits for them, and before nothing else.
inline const void* acks_of(const void* handle) {
    return static_cast<const char*>(handle) + 8;
}
// What one end of a connection does is ordered before the events that the other end gets.
inline const void* wire() {
    static const long long place[2] = {};
    return place;
}

// ---------------------------------------------------------------- objects

enum class kind {
    event_channel,
    cm_id,
    cm_event,
    device,
    device_list,
    context_list,
    context,
    pd,
    mr,
    mw,
    dm,
    comp_channel,
    cq,
    qp,
    srq,
    ah,
    xrcd,
    wq,
    td,
    flow,
    flow_action,
    counters,
    ind_table,
    dmah,
    buf,
    comp_cntr,
    addrinfo,
    count_
};

// A block that was handed to the program.
struct block {
    void* memory = nullptr;
    std::size_t size = 0;
};
block take_block(std::size_t size); // filled with garbage
void drop_block(block b);           // poisoned, then freed or kept for a while

// The fake's record of one C object; the map of the living owns it.
struct object {
    explicit object(kind what_) : what(what_) {}
    virtual ~object() = default;
    object(const object&) = delete;
    object& operator=(const object&) = delete;

    kind what;
    std::string name;
    void* handle = nullptr;
    block memory;
    std::vector<object*> parents;
    unsigned children = 0;
    bool internal = false; // librdmacm's own
    bool going = false;    // a destroy has begun
    bool gone = false;     // a destroy gave EIO: the device is gone, and this with it
};

struct channel_object;
struct id_object;
struct context_object;
struct cq_object;
struct qp_object;
struct srq_object;

// An event in the "kernel".
struct queued_event {
    cm_event script;
    id_object* pins = nullptr; // whose ack count it takes part in
    id_object* from = nullptr; // CONNECT_REQUEST: the active side
    std::uint64_t group = 0;   // MULTICAST_*: serial of the group
    bool scripted = false;     // pushed by the test
};

struct channel_object : object {
    static constexpr kind type = kind::event_channel;
    channel_object() : object(type) {}
    rdma_event_channel* c = nullptr;
    int fd = -1;
    std::deque<std::unique_ptr<queued_event>> queue;
};

struct group {
    std::uint64_t serial = 0;
    sockaddr_storage address = {};
    void* context = nullptr;
    bool send_only = false;
    ibv_gid gid = {};
    std::uint16_t lid = 0;
    tally events;
};

enum class id_state {
    idle,
    bound,
    resolving,
    address_resolved,
    routing,
    route_resolved,
    connecting, // the active side, until its ESTABLISHED was got
    listening,
    requested, // the passive side, until accept or reject
    accepted,  // ... until its ESTABLISHED is queued
    connected,
    disconnecting, // we have, the peer has not
    disconnected,
    spent // rejected, or failed
};

struct id_object : object {
    static constexpr kind type = kind::cm_id;
    id_object() : object(type) {}
    rdma_cm_id* c = nullptr;
    channel_object* channel = nullptr; // null once the channel was destroyed under the id
    bool sync = false;
    rdma_port_space ps = RDMA_PS_TCP;
    ibv_qp_type qp_type = IBV_QPT_RC;
    id_state state = id_state::idle;
    context_object* device = nullptr;
    sockaddr_storage source = {}; // as the kernel has them
    sockaddr_storage destination = {};
    tally events;
    id_object* peer = nullptr;
    bool scripted = false;     // made by a pushed CONNECT_REQUEST
    bool peer_gone = false;    // the other end went away before accept
    bool disconnected = false; // has been told DISCONNECTED, or will be
    bool connect_error = false;
    bool reuse_address = false;
    int backlog = 0;
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t rnr_retry = 7; // the peer's wish for our QP
    std::uint32_t qp_num = 0;
    std::uint32_t remote_qp_num = 0;
    bool remote_srq = false;
    ibv_ece remote_ece = {};
    std::vector<group> groups;
    std::optional<ibv_qp_init_attr> ep_attr;
    std::vector<std::byte> ep_connect;
    ibv_sa_path_rec* path = nullptr;
    rdma_addrinfo* resolved = nullptr; // of rdma_resolve_addrinfo, until it is queried
};

struct event_object : object {
    static constexpr kind type = kind::cm_event;
    event_object() : object(type) {}
    id_object* pins = nullptr;
    std::uint64_t group = 0;
    std::string label; // "RDMA_CM_EVENT_ESTABLISHED"
    std::thread::id thread;
};

struct device_object;

struct device_list_object : object {
    static constexpr kind type = kind::device_list;
    device_list_object() : object(type) {}
    std::vector<device_object*> devices;
};
struct context_list_object : object {
    static constexpr kind type = kind::context_list;
    context_list_object() : object(type) {}
    std::vector<device_object*> devices;
};

struct async_event {
    ibv_async_event event = {};
    int type = 0;
    object* element = nullptr; // null: port or device
};

// A device of the machine. Its struct ibv_device lives while a list or an open context refers to it.
struct device_object {
    device config;
    ibv_device* c = nullptr;
    std::size_t index = 0;
    bool removed = false;
    unsigned references = 0;
    // librdmacm's own context of this device, and its default PD
    context_object* cm_context = nullptr;
    ibv_pd* cm_pd = nullptr;
    unsigned cm_ids = 0;
};

struct ibv_device_object : object {
    static constexpr kind type = kind::device;
    ibv_device_object() : object(type) {}
    device_object* dev = nullptr;
};

struct context_object : object {
    static constexpr kind type = kind::context;
    context_object() : object(type) {}
    verbs_context* extended = nullptr;
    ibv_context* c = nullptr;
    device_object* dev = nullptr;
    std::deque<std::unique_ptr<async_event>> async;
    long ticks = 0; // of its clock
};

struct pd_object : object {
    static constexpr kind type = kind::pd;
    pd_object() : object(type) {}
    ibv_pd* c = nullptr;
    pd_object* base = nullptr; // of a parent domain
    std::optional<ibv_parent_domain_init_attr> allocators;
    bool imported = false;
};

struct mr_object : object {
    static constexpr kind type = kind::mr;
    mr_object() : object(type) {}
    ibv_mr* c = nullptr;
    pd_object* pd = nullptr;
    std::uint64_t iova = 0;
    unsigned access = 0;
    bool null = false;
    std::byte* backing = nullptr; // device memory
    bool imported = false;
};

struct mw_object : object {
    static constexpr kind type = kind::mw;
    mw_object() : object(type) {}
    ibv_mw* c = nullptr;
    pd_object* pd = nullptr;
    mr_object* mr = nullptr; // bound to
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    unsigned access = 0;
    std::uint32_t qp_num = 0; // type 2
};

struct dm_object : object {
    static constexpr kind type = kind::dm;
    dm_object() : object(type) {}
    ibv_dm* c = nullptr;
    std::vector<std::byte> bytes;
    bool imported = false;
};

struct comp_channel_object : object {
    static constexpr kind type = kind::comp_channel;
    comp_channel_object() : object(type) {}
    ibv_comp_channel* c = nullptr;
    std::deque<cq_object*> queue;
};

struct queued_wc {
    ibv_wc wc = {};
    qp_object* releases = nullptr; // polling it frees send slots of this QP ...
    std::uint64_t up_to = 0;       // ... up to this post
    extended_fields more = {};
};

struct cq_object : object {
    static constexpr kind type = kind::cq;
    cq_object() : object(type) {}
    ibv_cq_ex* c = nullptr;
    comp_channel_object* channel = nullptr;
    std::deque<queued_wc> queue;
    enum class arm { none, solicited, any } armed = arm::none;
    bool overrun = false;
    tally completions;
    tally asyncs;
    std::uint64_t wc_flags = 0; // what an extended poll may read
    queued_wc current;          // of start_poll and next_poll
    bool polling = false;       // between start_poll and end_poll
};

struct queued_send {
    posted_wr copy;
    std::uint64_t number = 0;
};

struct qp_object : object {
    static constexpr kind type = kind::qp;
    qp_object() : object(type) {}
    ibv_qp* c = nullptr;
    pd_object* pd = nullptr;
    cq_object* send_cq = nullptr;
    cq_object* recv_cq = nullptr;
    srq_object* srq = nullptr;
    ibv_qp_cap cap = {};
    ibv_qp_type qp_type = IBV_QPT_RC;
    bool signal_all = false;
    void* qp_context = nullptr;
    ibv_qp_attr attr = {}; // state and what was set so far
    ibv_ece ece = {.vendor_id = 0xfa, .options = 3, .comp_mask = 0};
    tally asyncs;
    std::vector<std::pair<ibv_gid, std::uint16_t>> groups;
    // The send queue: what is not executed yet, and which posts still hold a slot.
    std::deque<queued_send> sends;
    std::uint64_t posted = 0;
    std::uint64_t released = 0;
    std::deque<posted_wr> recvs;
    // The extended work-request API: what it was made for, and the batch that was started.
    std::optional<std::uint64_t> send_ops;
    bool building = false;
    int build_error = 0;
    bool needs_data = false; // the last operation wants its SGEs or inline data
    bool needs_address = false;
    std::vector<posted_wr> batch;
};

struct srq_object : object {
    static constexpr kind type = kind::srq;
    srq_object() : object(type) {}
    ibv_srq* c = nullptr;
    pd_object* pd = nullptr;
    ibv_srq_attr attr = {};
    std::uint32_t number = 0;
    tally asyncs;
    std::deque<posted_wr> recvs;
    void* ring = nullptr; // from the allocator of a parent domain
};

struct ah_object : object {
    static constexpr kind type = kind::ah;
    ah_object() : object(type) {}
    ibv_ah* c = nullptr;
    ibv_ah_attr attr = {};
};

struct xrcd_object : object {
    static constexpr kind type = kind::xrcd;
    xrcd_object() : object(type) {}
    ibv_xrcd* c = nullptr;
};

struct wq_object : object {
    static constexpr kind type = kind::wq;
    wq_object() : object(type) {}
    ibv_wq* c = nullptr;
    tally asyncs;
    std::deque<posted_wr> recvs;
    std::uint32_t max_wr = 0;
};

struct td_object : object {
    static constexpr kind type = kind::td;
    td_object() : object(type) {}
};

struct flow_object : object {
    static constexpr kind type = kind::flow;
    flow_object() : object(type) {}
};

struct flow_action_object : object {
    static constexpr kind type = kind::flow_action;
    flow_action_object() : object(type) {}
};

struct counters_object : object {
    static constexpr kind type = kind::counters;
    counters_object() : object(type) {}
    std::map<std::uint32_t, ibv_counter_description> counted; // by index
    std::uint64_t reads = 0;
};

struct ind_table_object : object {
    static constexpr kind type = kind::ind_table;
    ind_table_object() : object(type) {}
};

struct dmah_object : object {
    static constexpr kind type = kind::dmah;
    dmah_object() : object(type) {}
};

struct buf_object : object {
    static constexpr kind type = kind::buf;
    buf_object() : object(type) {}
    const ibv_pd* pd = nullptr; // the only one that it can be registered with
};

struct comp_cntr_object : object {
    static constexpr kind type = kind::comp_cntr;
    comp_cntr_object() : object(type) {}
    std::uint64_t value = 0;
    std::uint64_t errors = 0;
};

struct addrinfo_object : object {
    static constexpr kind type = kind::addrinfo;
    addrinfo_object() : object(type) {}
    std::vector<block> parts;
};

// ---------------------------------------------------------------- the state

struct rule {
    std::string name;
    unsigned at = 1;
    unsigned times = 1;
    bool every = false;
    int error = EIO;
    bool error_given = false;
    convention how = convention::natural;
    std::optional<int> value;
    unsigned uses = 0;
    unsigned hits = 0;
    bool retired = false;
};

struct counter {
    std::size_t entered = 0;
    std::size_t succeeded = 0;
};

struct state {
    std::mutex mutex;
    std::condition_variable changed; // acks, ends, log entries

    fake::settings settings;
    device_limits limits;
    std::vector<std::unique_ptr<device_object>> devices;
    std::vector<std::string> unreachable;

    std::unordered_map<const void*, std::unique_ptr<object>> living;
    std::unordered_map<const void*, std::string> dead; // names, until the address is used again
    unsigned serial[static_cast<std::size_t>(kind::count_)] = {};

    std::vector<call_record> log;
    std::size_t log_generation = 0;
    std::map<std::string, counter, std::less<>> counters;
    std::map<std::pair<std::string, const void*>, std::size_t> counters_by_object;
    std::size_t program_calls = 0;

    std::vector<rule> rules;
    std::map<std::string, std::function<void()>, std::less<>> before;
    std::map<std::string, std::function<void()>, std::less<>> after;
    std::function<void(rdma_cm_id*)> before_id_changes;

    tally cm_events;
    tally cq_events;
    tally async_events;

    std::uint32_t next_qp_num = 0x11;
    std::uint32_t next_key = 1;
    std::uint32_t next_handle = 1;
    std::uint64_t next_group = 1;
    std::uint16_t next_port = 49152;
    std::map<std::uint32_t, qp_object*> qps; // null: was destroyed
};
state& the();

extern std::atomic<bool> benching;

// Holds the mutex. Reports and burials that happen meanwhile are done at its end, without it.
class section {
public:
    section();
    ~section();
    section(const section&) = delete;
    section& operator=(const section&) = delete;

    // Bounded; false when the limit came first.
    template <class Condition>
    bool wait(std::chrono::milliseconds limit, Condition done) {
        // The system clock: older TSans do not know the wait on the steady one.
        return the().changed.wait_until(lock_, std::chrono::system_clock::now() + limit, done);
    }

private:
    std::unique_lock<std::mutex> lock_;
};

// Read by many threads, and changed by the test: outside of a section only in this way.
template <class Value>
Value setting(Value settings::*member) {
    section lock;
    return the().settings.*member;
}

// To the failure handler, now or at the end of the section.
void report(std::string text);
// happens_after, once the section is over (TSan sees nothing inside).
void happens_after_at_end(const void* what);

// ---------------------------------------------------------------- the life of objects (in a section)

void enlist(std::unique_ptr<object> made, void* handle, block memory, std::vector<object*> parents);
template <class Object>
Object& enlist(void* handle, block memory, std::vector<object*> parents = {}) {
    auto made = std::make_unique<Object>();
    Object& ref = *made;
    enlist(std::move(made), handle, memory, std::move(parents));
    return ref;
}
// Takes it off the map and its parents; its block is poisoned at the end of the section.
void bury(object& o);

object* find_any(const void* handle);
template <class Object>
Object* find(const void* handle) {
    object* o = find_any(handle);
    return o != nullptr && o->what == Object::type && !o->gone ? static_cast<Object*>(o) : nullptr;
}
std::string describe(const void* handle); // "qp1", "qp1 (destroyed)", "0x...", "null"
// "ibv_close_device: use of ...": how a handle that find() did not find is told.
void report_bad_handle(const char* call, const char* what, const void* handle);

template <class Object>
Object* expect(const char* call, const char* what, const void* handle) {
    auto* found = find<Object>(handle);
    if (found == nullptr)
        report_bad_handle(call, what, handle);
    return found;
}

// For each living object of a kind. Must not change the map.
template <class Object, class Visit>
void each(Visit visit) {
    for (auto& entry : the().living)
        if (entry.second->what == Object::type && !entry.second->gone)
            visit(*static_cast<Object*>(entry.second.get()));
}

// ---------------------------------------------------------------- a C call

enum class returns { minus_one, error_number, null, nothing };

// One C call: runs the hooks, writes the log, decides about an injected fault, and keeps errno.
class c_call {
public:
    c_call(const char* name, const void* object, returns natural, std::string detail = {});
    ~c_call();
    c_call(const c_call&) = delete;
    c_call& operator=(const c_call&) = delete;

    [[nodiscard]] const char* name() const { return name_; }
    [[nodiscard]] bool injected() const { return injected_; }
    [[nodiscard]] int injected_error() const { return error_; }

    // The value to return: in the call's convention, unless a rule says otherwise.
    int finish(int error);
    template <class T>
    T* finish(T* made, int error) {
        if (made != nullptr)
            return succeeded(describe_result(made)), made;
        failed(error, "null");
        return nullptr;
    }
    // For calls that return a number or nothing.
    int number(int value);
    void done() { succeeded("-"); }

    // Errno after success (get's message to the caller).
    void leave_errno(int error) {
        errno_after_ = error;
        errno_left_ = true;
    }
    // No log entry unless the call finds something (an empty poll).
    void quiet() { quiet_ = true; }
    void detail(std::string text) { detail_ = std::move(text); }

private:
    static std::string describe_result(const void* made);
    void succeeded(std::string result);
    void failed(int error, std::string value);

    const char* name_;
    const void* object_;
    returns natural_;
    std::string object_name_;
    std::string detail_;
    std::string result_;
    bool nested_;
    bool injected_ = false;
    bool failed_ = false;
    bool finished_ = false;
    bool quiet_ = false;
    int error_ = 0;
    convention how_ = convention::natural;
    std::optional<int> value_;
    int errno_after_;
    bool errno_set_ = false;
    bool errno_left_ = false;
    std::size_t entry_ = 0;
    std::size_t generation_ = 0;
};

// Most calls: the body returns 0 or an error number.
template <class Body>
int int_call(const char* name, const void* object, returns natural, Body body) {
    c_call call(name, object, natural);
    return call.finish(call.injected() ? call.injected_error() : body(call));
}
template <class T, class Body>
T* make_call(const char* name, const void* object, Body body) {
    c_call call(name, object, returns::null);
    T* made = nullptr;
    const int error = call.injected() ? call.injected_error() : body(call, made);
    return call.finish(made, error);
}
void gone_on_eio(const void* handle, int error);
template <class Body>
int destroy_call(const char* name, const void* object, returns natural, Body body) {
    c_call call(name, object, natural);
    if (call.injected()) {
        gone_on_eio(object, call.injected_error());
        return call.finish(call.injected_error());
    }
    return call.finish(body(call));
}

// ---------------------------------------------------------------- small things

constexpr unsigned char garbage_byte = 0xA5;
constexpr unsigned char poison_byte = 0xDB;

// Opcodes that older headers do not name.
constexpr int opcode_flush = 14;        // IBV_WR_FLUSH
constexpr int opcode_atomic_write = 15; // IBV_WR_ATOMIC_WRITE

// A C struct in a block of its own, full of garbage.
template <class T>
T* new_struct(block& b) {
    static_assert(std::is_trivially_copyable_v<T>);
    b = take_block(sizeof(T));
    return static_cast<T*>(b.memory);
}
template <class T>
void fill_garbage(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memset(static_cast<void*>(&value), garbage_byte, sizeof value);
}
// The libraries' plain stores to what other threads may be reading. A reader that takes care (an atomic load)
// gets one value or the other; TSan still finds everyone else, the libraries' own reads included.
template <class T>
void store_plainly(T& where, T value) {
    __atomic_store(&where, &value, __ATOMIC_RELAXED);
}
// For enums that may hold values these headers do not name.
template <class Enum>
void store_enum(Enum& where, int value) {
    static_assert(sizeof(Enum) == sizeof(int));
    std::memcpy(&where, &value, sizeof value);
}
template <class Enum>
int load_enum(const Enum& where) {
    static_assert(sizeof(Enum) == sizeof(int));
    int value = 0;
    std::memcpy(&value, &where, sizeof value);
    return value;
}

// A descriptor that is readable while something is queued. All in a section.
int new_signal();
void raise_signal(int fd);
void lower_signal(int fd);
// Outside: waits for it as a blocking read would. 0, EAGAIN (O_NONBLOCK), EINTR, ETIMEDOUT.
int wait_for_signal(int fd, std::chrono::milliseconds limit);

std::string error_name(int error);
std::uint32_t round_up(std::uint32_t n); // to a power of two

// ---------------------------------------------------------------- across the parts

// memory (in a section)
mr_object* add_mr(const char* call, ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access,
                  std::vector<object*> more_parents = {});

// devices
void default_devices(state& s);
void install_queries(verbs_context& extended);
void install_objects(verbs_context& extended);
void install_steering(verbs_context& extended);
void set_extended_poll(ibv_cq_ex& cq, bool bench);
void install_ops(ibv_context& context, bool bench);
device_object* device_for(const sockaddr_storage& local);
// librdmacm's context and PD of a device; makes nested calls, so not in a section. 0 or errno.
int cm_attach(device_object& dev, ibv_context*& verbs, ibv_pd*& pd);
void cm_detach(device_object& dev);
bool any_device(); // in a section

// address lists (not in a section)
void free_addrinfo(const char* call, rdma_addrinfo* list);

// completion and async events (in a section)
void complete(cq_object& cq, const queued_wc& wc, bool solicited);
void queue_cq_event(cq_object& cq);
void queue_async(context_object& context, int type, object* element, int port);
void drop_events_of(cq_object& cq);
void drop_async_of(object& element, context_object& context);

// data path (in a section)
void run_sends(qp_object& qp);
void run_all();
void flush(qp_object& qp);
void forget_requests(qp_object& qp);
void qp_goes(qp_object& qp);
int bind_window(mw_object& mw, mr_object* mr, const ibv_mw_bind_info& info);
void install_work_requests(ibv_qp_ex& qp, bool bench);
int check_send(const qp_object& qp, const ibv_send_wr& wr);
int add_send(qp_object& qp, const ibv_send_wr& wr);
void order_before_completions(const ibv_qp* qp); // not in a section
int post_wq_recv(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad);

context_object* context_of(const ibv_context* c);

} // namespace fake::detail
