// A link-time substitute for librdmacm and libibverbs.
//
// A test links these sources instead of the two C libraries and drives them from here: it pushes events and
// completions, lets any call fail, and reads what was called. The fake plays the kernel's part strictly: it
// hands out garbage where the libraries promise nothing, destroys what a destroy destroys, waits where they
// wait (but not for ever), and reports what would crash, hang or corrupt memory there (see on_failure).
//
// Everything here may be called from any thread. No lock is held while a hook or the failure handler runs.
// Under TSan neither the C calls nor these functions order threads, except where the libraries do: an event
// comes after what caused it, a destroy after the acks that it waited for, a completion after its post.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <sys/types.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace fake {

// ---------------------------------------------------------------- one test

// Destroys all that is left and forgets everything: log, rules, hooks, settings (the failure handler stays).
// What a test left behind is reported as one failure before that.
void reset();
// The same without looking for leaks.
void abandon();

// The objects that are alive and the events that were got and not acked, one line each. What belongs to
// librdmacm itself (its contexts and default PDs) is not listed.
[[nodiscard]] std::vector<std::string> leaks();

// ---------------------------------------------------------------- what the fake finds

// Called with a text that begins with the C call. The default prints it and aborts. Must not throw.
using failure_handler = std::function<void(const std::string&)>;
// Installs a handler and gives back the former one; an empty one restores the default.
failure_handler on_failure(failure_handler handler);

// While one lives, failures are collected in it instead (from all threads). They nest.
class expected_failures {
public:
    expected_failures();
    ~expected_failures();
    expected_failures(const expected_failures&) = delete;
    expected_failures& operator=(const expected_failures&) = delete;

    [[nodiscard]] std::size_t count() const;
    [[nodiscard]] std::string text() const; // all of them, one a line
    [[nodiscard]] bool mentions(std::string_view part) const;

private:
    failure_handler former_;
    struct collected;
    std::shared_ptr<collected> collected_;
};

// ---------------------------------------------------------------- settings

struct device {
    std::string name;
    ibv_transport_type transport = IBV_TRANSPORT_IB;
    ibv_node_type node = IBV_NODE_CA;
    // Local addresses that lead to this device. With none, every address that no other device has.
    std::vector<std::string> addresses = {};
    std::uint8_t ports = 1;
    std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
};

struct device_limits {
    int max_qp_wr = 1 << 14;
    int max_sge = 32;
    std::uint32_t max_inline_data = 400; // rxe's
    int max_cqe = 1 << 15;
    int max_srq_wr = 1 << 14;
    int max_srq_sge = 27;
    std::uint8_t max_rd_atom = 128;   // responder resources and initiator depth
    std::uint32_t vendor_id = 0x1234; // rxe's is 0xffffff; before Linux 5.7 it and the next are 0
    std::uint32_t vendor_part_id = 0x5678;
    std::uint64_t max_mr_size = ~std::uint64_t{0};
};

struct settings {
    // How long a destroy (or migrate, or leave) waits for acks before it reports a hang.
    std::chrono::milliseconds wait_limit{2000};
    // How long a blocking get may wait. It then reports that it would block for ever, and gives ETIMEDOUT.
    std::chrono::milliseconds get_limit{30000};
    // Connection management answers by itself, see auto_connect().
    bool auto_connect = false;
    // As iWARP: private data arrives as long as it was sent, and may be up to 255 bytes long.
    bool exact_private_data = false;
    // Errno after each call that succeeded; 0 leaves it as it was before the call.
    int errno_after_success = 0;
    // Memory of a destroyed object or acked event is handed out again at once, as malloc likes to do.
    // Otherwise it stays poisoned for a while (ASan and TSan watch it themselves).
    bool reuse_addresses = false;
    // What is posted is not executed: it piles up until run_posted(), or a flush.
    bool hold_data_path = false;
};
// The settings in force; change them between the calls of a test, before its threads start.
settings& set();
device_limits& limits();

// The devices that exist from now on, at the start of a test fake0 alone. An empty list is a machine without
// devices: rdma_create_event_channel and its kin give ENODEV.
void devices(std::vector<device> list);
// One of them is gone: its ids get DEVICE_REMOVAL, and it is listed no more.
void remove_device(std::string_view name);

// With it on, one process plays both ends: resolve_addr, resolve_route, connect, accept, reject, disconnect,
// join and destroy queue the events that the kernel would, and what an id's state forbids is EINVAL. Note that
// the passive side's ESTABLISHED is queued by the get of the active side, as in librdmacm. TIMEWAIT_EXIT does
// not come by itself. Off: the calls succeed, and nothing comes but what is pushed.
void auto_connect(bool on = true);
// In that mode: nobody answers at this address (ADDR_ERROR, -ETIMEDOUT).
void unreachable(std::string_view address);

// The hot calls (post, poll, notify, get and ack of a CM event) shrink to a constant handful of instructions:
// no lock, log, check or allocation. Polls are full, and every get gives one same event of this id.
void bench_mode(bool on, rdma_cm_id* id = nullptr);

// ---------------------------------------------------------------- events of the connection manager

[[nodiscard]] std::vector<std::byte> bytes(std::string_view text);
[[nodiscard]] std::vector<std::byte> bytes(std::initializer_list<int> values);

enum class private_data_form {
    padded,                // to the field of the event's message, zeroes behind (nothing where there is no field)
    exact,                 // as long as given
    none,                  // null and 0
    null_with_length,      // null, but the length byte says 148
    pointer_without_length // not null, but the length byte says 0
};

// What get does to the id happens here too: ADDR_RESOLVED binds it to a device, REJECTED moves its QP to the
// error state, and CONNECT_RESPONSE moves the QP to RTS and arrives as ESTABLISHED (with a QP on the id).
struct cm_event {
    int type = RDMA_CM_EVENT_ADDR_RESOLVED; // an int: types that these headers do not know can come
    rdma_cm_id* id = nullptr;               // CONNECT_REQUEST: stays null, get makes the new id
    rdma_cm_id* listen_id = nullptr;        // CONNECT_REQUEST only
    int status = 0;
    std::vector<std::byte> private_data = {};
    private_data_form form = private_data_form::padded;
    // Errno that get leaves behind (with the library-made status -1).
    int error = 0;
    std::optional<rdma_conn_param> conn = {};
    std::optional<rdma_ud_param> ud = {};
    // MULTICAST_*: the group as it was joined. Null: the id's only group.
    const sockaddr* group = nullptr;
    // Get takes it, completes it and looks for the next one, as librdmacm does with events it cannot use.
    bool swallowed = false;
    std::uint64_t arg = 0; // RDMA_CM_EVENT_USER
};

void push_event(rdma_event_channel* channel, cm_event event);
// To the channel that the id (or listener) is on.
void push_event(cm_event event);
[[nodiscard]] std::size_t queued(const rdma_event_channel* channel);

// Called in get right before it writes to an id that other threads may be using (verbs, qp): the place for a
// sleep that makes a race wide.
void before_id_changes(std::function<void(rdma_cm_id*)> hook);

// ---------------------------------------------------------------- completions and async events

// Puts a completion into the queue as it is, and does what the hardware does then (event if armed).
void push_completion(ibv_cq* cq, const ibv_wc& wc, bool solicited = true);
// What an extended poll can read beside struct ibv_wc.
struct extended_fields {
    std::uint64_t timestamp = 0;
    std::uint64_t wallclock_ns = 0;
    std::uint16_t cvlan = 0;
    std::uint32_t flow_tag = 0;
    ibv_wc_tm_info tm = {};
};
void push_completion(ibv_cq* cq, const ibv_wc& wc, const extended_fields& more);
// The same with only the valid fields set and garbage in the others; byte_len for receives.
void push_success(ibv_cq* cq, std::uint64_t wr_id, ibv_wc_opcode opcode, std::uint32_t qp_num,
                  std::uint32_t byte_len = 0);
// A failed one: only wr_id, status, qp_num and vendor_err mean something.
void push_failure(ibv_cq* cq, std::uint64_t wr_id, ibv_wc_status status, std::uint32_t qp_num);
// A completion event without a completion.
void push_cq_event(ibv_cq* cq);
// With hold_data_path: runs what was posted so far.
void run_posted();
[[nodiscard]] bool armed(const ibv_cq* cq);
[[nodiscard]] bool polling(const ibv_cq* cq); // between ibv_start_poll and ibv_end_poll
[[nodiscard]] std::size_t queued(const ibv_cq* cq);
[[nodiscard]] std::size_t queued(const ibv_comp_channel* channel);

void push_async_event(ibv_qp* qp, int type);
void push_async_event(ibv_cq* cq, int type);
void push_async_event(ibv_srq* srq, int type);
void push_async_event(ibv_wq* wq, int type);
void push_async_event(ibv_context* context, int port, int type);

// The work requests that wait on a queue, copied at the post, oldest first.
struct posted_wr {
    std::uint64_t wr_id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND; // sends only
    unsigned flags = 0;
    std::vector<ibv_sge> sges = {};
    std::vector<std::byte> inline_data = {};
    ibv_send_wr wr = {}; // sends only; its pointers are null
};
[[nodiscard]] std::vector<posted_wr> posted_sends(const ibv_qp* qp);
[[nodiscard]] std::vector<posted_wr> posted_recvs(const ibv_qp* qp);
[[nodiscard]] std::vector<posted_wr> posted_recvs(const ibv_srq* srq);

// ---------------------------------------------------------------- the log

// One C call. The calls that librdmacm makes itself (ibv_modify_qp in a get, ...) are there too, as nested.
struct call_record {
    std::string name;
    const void* handle = nullptr; // the object it acts on
    std::string object;           // its name here: "id1", "qp2", "cq1"
    std::string detail;
    std::string result; // "0", "qp1", "-1 ENOMEM", empty while it runs
    bool failed = false;
    bool nested = false;
    std::thread::id thread = {};
    pid_t process = 0;
};
[[nodiscard]] std::string to_string(const call_record& call);

// A poll that finds nothing is counted, but not in the log.
[[nodiscard]] std::vector<call_record> log();
[[nodiscard]] std::string log_text();
[[nodiscard]] std::vector<std::string> log_names();
void clear_log();

[[nodiscard]] std::size_t calls(std::string_view name);
[[nodiscard]] std::size_t calls(std::string_view name, const void* object);
[[nodiscard]] std::size_t calls(); // made by the program; nested ones do not count
[[nodiscard]] std::size_t successes(std::string_view name);
// The names appear in the log in this order, others between them or not.
[[nodiscard]] bool in_order(std::initializer_list<std::string_view> names);
// Until the call was entered so often (it may still run). False on time-out. Orders nothing for TSan.
bool wait_for_call(std::string_view name, std::size_t times = 1,
                   std::chrono::milliseconds limit = std::chrono::milliseconds{5000});

// How the object is called in the log and in failures, also after its end.
[[nodiscard]] std::string name_of(const void* object);
[[nodiscard]] bool alive(const void* object);

// Got and acked: CM events that pin this id (for a listener its connection requests), or ...
struct tally {
    std::size_t got = 0;
    std::size_t acked = 0;
    [[nodiscard]] std::size_t held() const { return got - acked; }
};
[[nodiscard]] tally cm_events(); // of all ids, also of those that ended
[[nodiscard]] tally cm_events(const rdma_cm_id* id);
[[nodiscard]] tally group_events(const rdma_cm_id* id, const sockaddr* group);
[[nodiscard]] tally cq_events(); // ... completion events ...
[[nodiscard]] tally cq_events(const ibv_cq* cq);
[[nodiscard]] tally async_events(); // ... async events
[[nodiscard]] tally async_events(const ibv_cq* cq);
[[nodiscard]] tally async_events(const ibv_qp* qp);
[[nodiscard]] tally async_events(const ibv_srq* srq);

// The calls that processes forked from this one have made, by name; the parent may ask after the child is
// gone.
[[nodiscard]] std::vector<std::string> calls_in_children();

// ---------------------------------------------------------------- faults

enum class convention {
    natural,   // what this call does
    minus_one, // return -1, errno
    positive,  // return errno
    negative,  // return -errno
};

// fake::fail("ibv_create_cq").at(2).with(ENOMEM): the second use from here fails. Without more: the next one
// with EIO. The rule is in force when the statement ends; several rules may be. Calls are named as users
// write them, also the inline ones ("ibv_poll_cq"). "*" is any call that can fail, except those that end an
// object. Destroys that fail with EIO end the object all the same, as they do after the device is gone.
class fail {
public:
    explicit fail(std::string_view name);
    fail(std::string_view name, unsigned nth, int error) : fail(name) { at(nth).with(error); }

    fail& at(unsigned nth);
    fail& times(unsigned n); // so many in a row
    fail& every();
    fail& with(int error);
    fail& as(convention how);
    fail& returning(int value); // an int call returns just this; errno is left alone unless given
    [[nodiscard]] unsigned hits() const;

private:
    std::size_t rule_;
};
void forgive(); // removes all rules

// Run in the calling thread before the call does anything, or after it is done; not again while they run.
void before(std::string_view name, std::function<void()> hook);
void after(std::string_view name, std::function<void()> hook);

} // namespace fake
