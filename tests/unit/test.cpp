#include "test.hpp"

#include "main.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>

#include <unistd.h>

namespace {

thread_local unsigned allocations_seen = 0;
thread_local unsigned allocation_to_fail = 0;

} // namespace

// The throwing form stays the toolchain's (or the sanitizer's) own.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    if (++allocations_seen == allocation_to_fail)
        return nullptr;
    try {
        return ::operator new(size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    if (++allocations_seen == allocation_to_fail)
        return nullptr;
    try {
        return ::operator new[](size);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

namespace unit {

namespace {

struct notes {
    std::mutex mutex;
    std::vector<std::string> fake_failures;
    std::vector<destroy_report> destroy_reports;
    std::vector<rdmaxx::hang_report> hang_reports;
    std::function<void()> destroy_action;
    std::function<rdmaxx::hang_action()> hang_action;
};

notes& all() {
    static notes only;
    return only;
}

void note_destroy_failure(const rdmaxx::destroy_failure& failure) noexcept {
    std::function<void()> action;
    {
        const std::lock_guard lock(all().mutex);
        all().destroy_reports.push_back({failure.call, failure.code.value(), failure.object});
        action = all().destroy_action;
    }
    if (action)
        action();
}

rdmaxx::hang_action note_hang(const rdmaxx::hang_report& report) noexcept {
    std::function<rdmaxx::hang_action()> action;
    {
        const std::lock_guard lock(all().mutex);
        all().hang_reports.push_back(report);
        action = all().hang_action;
    }
    return action ? action() : rdmaxx::hang_action::keep_waiting;
}

void forget_notes() {
    const std::lock_guard lock(all().mutex);
    all().fake_failures.clear();
    all().destroy_reports.clear();
    all().hang_reports.clear();
    all().destroy_action = nullptr;
    all().hang_action = nullptr;
}

/// Empty, or what the test left or did not expect.
std::string complaints() {
    std::string text;
    for (const std::string& line : fake::leaks())
        text += "left behind: " + line + "\n";
    const std::lock_guard lock(all().mutex);
    for (const std::string& line : all().fake_failures)
        text += "the fake found: " + line + "\n";
    for (const destroy_report& report : all().destroy_reports)
        text += "a destructor failed: " + report.call + ", errno " + std::to_string(report.error) + "\n";
    for (const rdmaxx::hang_report& report : all().hang_reports)
        text += "a hang was reported: " + report.to_string() + "\n";
    if (!text.empty())
        text += fake::log_text();
    return text;
}

void test_hangs(int) {
    static constexpr char text[] = "the test hangs\n";
    static_cast<void>(!::write(STDERR_FILENO, text, sizeof text - 1));
    std::abort(); // Catch2 names the test
}

/// How long a test may take: three minutes, for busy machines, unless the environment knows that programs run slowly
/// here.
unsigned longest_test_s() {
    const char* said = std::getenv("RDMAXX_TEST_SECONDS");
    return said != nullptr ? static_cast<unsigned>(std::strtoul(said, nullptr, 10)) : 180;
}

} // namespace

test::test() {
    fake::abandon();
    forget_notes();
    install_hooks();
    ::alarm(longest_test_s());
}

test::~test() noexcept(false) {
    ::alarm(0);
    const std::string text = complaints();
    fake::abandon();
    forget_notes();
    CHECK(text == "");
}

std::vector<destroy_report> take_destroy_reports() {
    const std::lock_guard lock(all().mutex);
    return std::exchange(all().destroy_reports, {});
}

std::vector<rdmaxx::hang_report> take_hang_reports() {
    const std::lock_guard lock(all().mutex);
    return std::exchange(all().hang_reports, {});
}

void on_destroy_failure(std::function<void()> action) {
    const std::lock_guard lock(all().mutex);
    all().destroy_action = std::move(action);
}

void on_hang(std::function<rdmaxx::hang_action()> action) {
    const std::lock_guard lock(all().mutex);
    all().hang_action = std::move(action);
}

void install_hooks() {
    rdmaxx::set_destroy_failure_hook(note_destroy_failure);
    rdmaxx::set_hang_hook(note_hang);
    rdmaxx::hang_report_after(5s);
}

failing_allocation::failing_allocation(unsigned nth) noexcept {
    allocations_seen = 0;
    allocation_to_fail = nth;
}

failing_allocation::~failing_allocation() {
    allocation_to_fail = 0;
}

unsigned failing_allocation::seen() noexcept {
    return allocations_seen;
}

void leaked_on_purpose(const void* block) {
    static std::vector<const void*>& blocks = *new std::vector<const void*>;
    blocks.push_back(block);
}

bound_id::bound_id(rdmaxx::port_space ps) : id(channel, ps) {
    id.bind_addr(rdmaxx::address("192.0.2.1", 0));
}

bound_listener::bound_listener(rdmaxx::port_space ps) : bound_id(ps) {
    id.listen();
}

void bound_listener::push_request() const {
    fake::push_event({.type = RDMA_CM_EVENT_CONNECT_REQUEST, .listen_id = id.native_handle()});
}

void push(const rdmaxx::cm_id& id, rdmaxx::cm_event_type type, int status) {
    fake::push_event({.type = static_cast<int>(type), .id = id.native_handle(), .status = status});
}

requesting::requesting(rdmaxx::port_space ps, const rdmaxx::conn_param& param)
    : listener(channel, ps), client(channel, ps), attr(cq) {
    fake::auto_connect();
    listener.bind_addr(connection::address());
    listener.listen();
    rdmaxx::resolve(channel, client, connection::address(), 1s);
    device = rdmaxx::context(client);
    pd = rdmaxx::pd(device);
    cq = rdmaxx::cq(device, 64);
    attr = rdmaxx::qp_init_attr(cq);
    if (ps == rdmaxx::port_space::udp)
        attr.type(rdmaxx::qp_type::ud);
    client.create_qp(pd, attr);
    client.connect(param);
}

connection::connection(std::uint32_t depth) : listener(channel), client(channel) {
    using rdmaxx::cm_event_type;
    fake::auto_connect();
    listener.bind_addr(address());
    listener.listen();
    rdmaxx::resolve(channel, client, address(), 1s);
    device = rdmaxx::context(client);
    pd = rdmaxx::pd(device);
    cq = rdmaxx::cq(device, std::max(256, 4 * static_cast<int>(depth))); // all that the queues can have at a time
    client.create_qp(pd, rdmaxx::qp_init_attr(cq, depth));
    client.connect();
    {
        rdmaxx::cm_event request = channel.expect(listener, cm_event_type::connect_request);
        server = request.take_id();
        server.create_qp(pd, rdmaxx::qp_init_attr(cq, depth));
        server.accept();
    }
    channel.expect_and_ack(client, cm_event_type::established);
    channel.expect_and_ack(server, cm_event_type::established);
}

std::string captured_stderr(const std::function<void()>& action) {
    char name[] = "/tmp/rdmaxx-unit-XXXXXX";
    const int file = ::mkstemp(name);
    REQUIRE(file >= 0);
    ::unlink(name);
    std::fflush(stderr);
    const int before = ::dup(STDERR_FILENO);
    ::dup2(file, STDERR_FILENO);
    action();
    std::fflush(stderr);
    ::dup2(before, STDERR_FILENO);
    ::close(before);
    char text[4096];
    const ssize_t size = ::pread(file, text, sizeof text, 0);
    ::close(file);
    return {text, static_cast<std::size_t>(size < 0 ? 0 : size)};
}

opened::opened() {
    const rdmaxx::device_list devices;
    device = rdmaxx::context(devices.front());
    pd = rdmaxx::pd(device);
    cq = rdmaxx::cq(device, 256);
}

} // namespace unit

int rdmaxx_test::before_tests() {
    std::signal(SIGALRM, unit::test_hangs);
    fake::on_failure([](const std::string& text) {
        const std::lock_guard lock(unit::all().mutex);
        unit::all().fake_failures.push_back(text);
    });
    return 0;
}
