#include "live.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace live {

// ---------------------------------------------------------------------------------------------------------------
// Where the tests run.

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

rdmaxx::address ipv4(std::uint16_t port) {
    return {variable("RIG_ADDR4"), port};
}

rdmaxx::address ipv6(std::uint16_t port) {
    return {variable("RIG_ADDR6"), port};
}

rdmaxx::address address_of_nobody() {
    const std::string mine = variable("RIG_ADDR4");
    return {mine.substr(0, mine.rfind('.')) + ".222", 7};
}

bool in_vm() {
    return variable("RIG") == "vm";
}

namespace {

/// librdmacm deallocates its own PD of a device when the last id is destroyed, and not when a list of rdma_get_devices,
/// which context(id) holds, goes after that id: then the next last id does it. So there is one here.
void be_the_last_id() {
    const rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    id.bind_addr(ipv4());
}

} // namespace

int need_device() {
    const char* reason = nullptr;
    std::error_code ec;
    const rdmaxx::device_list devices = rdmaxx::device_list::create(ec);
    if (variable("RIG_ADDR4").empty() || variable("RIG_ADDR6").empty())
        reason = "RIG_ADDR4 and RIG_ADDR6 are not set: run this by tests/rig/rig";
    else if (ec || devices.empty())
        reason = "there is no RDMA device";
    if (reason != nullptr) {
        std::fprintf(stderr, "skipped: %s\n", reason);
        return 77;
    }
    std::printf("device %s, kernel %s\n", devices.front().name(), variable("RIG_KERNEL").c_str());
    // librdmacm keeps a device open that an id was bound to once, until the process ends: no leak of a test's.
    be_the_last_id();
    return 0;
}

// ---------------------------------------------------------------------------------------------------------------
// The fixture.

namespace {

constexpr std::size_t header_size = sizeof(nlattr);
constexpr std::size_t aligned(std::size_t size) {
    return (size + 3) & ~std::size_t{3};
}

/// The attributes of a netlink message, or of one of its attributes.
template <class Action>
void for_each_attribute(const char* at, std::size_t size, Action action) {
    while (size >= header_size) {
        nlattr attribute{};
        std::memcpy(&attribute, at, sizeof attribute);
        if (attribute.nla_len < header_size || attribute.nla_len > size)
            return;
        action(attribute.nla_type & NLA_TYPE_MASK, at + header_size, attribute.nla_len - header_size);
        const std::size_t step = aligned(attribute.nla_len);
        if (step >= size)
            return;
        at += step;
        size -= step;
    }
}

using counts = std::map<std::string, std::uint64_t>;

void add_device(const char* at, std::size_t size, counts& out) {
    for_each_attribute(at, size, [&](int type, const char* summary, std::size_t summary_size) {
        if (type != RDMA_NLDEV_ATTR_RES_SUMMARY)
            return;
        for_each_attribute(summary, summary_size, [&](int, const char* entry, std::size_t entry_size) {
            std::string name;
            std::uint64_t count = 0;
            for_each_attribute(entry, entry_size, [&](int field, const char* value, std::size_t value_size) {
                if (field == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)
                    name = value;
                else if (field == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR && value_size == sizeof count)
                    std::memcpy(&count, value, sizeof count);
            });
            out[name] += count;
        });
    });
}

/// What `rdma resource show` asks, without the cost of starting it.
counts kernel_objects() {
    counts result;
    const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
    if (fd < 0)
        throw std::system_error(errno, std::system_category(), "NETLINK_RDMA");
    nlmsghdr request{};
    request.nlmsg_len = NLMSG_LENGTH(0);
    request.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET);
    request.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    static_cast<void>(::send(fd, &request, sizeof request, 0));
    for (bool done = false; !done;) {
        alignas(nlmsghdr) std::array<char, 16384> answer{};
        const ssize_t received = ::recv(fd, answer.data(), answer.size(), 0);
        if (received <= 0)
            break;
        std::size_t offset = 0;
        while (!done && offset + sizeof(nlmsghdr) <= static_cast<std::size_t>(received)) {
            nlmsghdr header{};
            std::memcpy(&header, answer.data() + offset, sizeof header);
            done = header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR;
            if (!done)
                add_device(answer.data() + offset + sizeof header, header.nlmsg_len - sizeof header, result);
            offset += aligned(header.nlmsg_len);
        }
    }
    ::close(fd);
    return result;
}

std::uint64_t open_descriptors() {
    std::uint64_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr) // NOLINT(concurrency-mt-unsafe): one stream, one thread
        ++count;
    ::closedir(folder);
    return count - 3; // ".", "..", and the folder itself
}

std::string running; // the test's name, for the watchdog
std::vector<std::string> failed_destroys;
std::mutex failed_destroys_lock;

void record_failed_destroy(const rdmaxx::destroy_failure& failure) noexcept {
    const std::lock_guard guard(failed_destroys_lock);
    failed_destroys.push_back(std::string(failure.call) + ": " + failure.code.message());
}

void on_alarm(int) {
    constexpr std::string_view what = "watchdog: this test hangs: ";
    static_cast<void>(!::write(STDERR_FILENO, what.data(), what.size()));
    static_cast<void>(!::write(STDERR_FILENO, running.data(), running.size()));
    static_cast<void>(!::write(STDERR_FILENO, "\n", 1));
    ::signal(SIGABRT, SIG_DFL);
    ::abort();
}

} // namespace

std::string resources() {
    // Only in a machine of one's own nobody else makes and ends objects.
    counts all = in_vm() ? kernel_objects() : counts();
    all["descriptor"] = open_descriptors();
    std::string text;
    for (const auto& [name, count] : all)
        text.append(text.empty() ? "" : ", ").append(name).append(" ").append(std::to_string(count));
    return text;
}

std::string settled_resources(const std::string& expected) {
    std::string now = resources();
    for (const stopwatch waited; now != expected && waited.elapsed() < 5s; now = resources())
        std::this_thread::sleep_for(2ms);
    return now;
}

fixture::fixture() {
    running = Catch::getResultCapture().getCurrentTestName();
    ::signal(SIGALRM, on_alarm);
    allow(60s);
    rdmaxx::set_destroy_failure_hook(record_failed_destroy);
    be_the_last_id();
    before_ = resources();
}

fixture::~fixture() {
    be_the_last_id();
    CHECK(settled_resources(before_) == before_);
    const std::lock_guard guard(failed_destroys_lock);
    CHECK(std::exchange(failed_destroys, {}) == std::vector<std::string>());
    ::alarm(0);
}

void fixture::allow(std::chrono::seconds time) const {
    ::alarm(static_cast<unsigned>(time.count()));
}

// ---------------------------------------------------------------------------------------------------------------
// Other processes.

role* role::first_ = nullptr;

role::role(const char* name, int (*play)()) : name_(name), play_(play), next_(first_) {
    first_ = this;
}

void role::play_if_asked() {
    const std::string wanted = variable("LIVE_ROLE");
    for (const role* part = first_; part != nullptr; part = part->next_)
        if (wanted == part->name_) {
            ::alarm(60);
            int status = 1;
            try {
                status = part->play_();
            } catch (const std::exception& e) {
                std::printf("%s\n", e.what());
            }
            std::exit(status); // NOLINT(concurrency-mt-unsafe): static destructors are part of the test
        }
}

process::process(const role& part) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        throw std::system_error(errno, std::system_category(), "pipe2");
    std::fflush(stdout);
    pid_ = ::fork();
    if (pid_ == 0) {
        ::dup2(ends[1], STDOUT_FILENO);
        ::dup2(ends[1], STDERR_FILENO);
        ::setenv("LIVE_ROLE", part.name(), 1); // NOLINT(concurrency-mt-unsafe): the child has one thread
        ::execl("/proc/self/exe", "live", static_cast<char*>(nullptr));
        ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
}

process::~process() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    ::close(output_);
}

std::string process::line() {
    std::string text;
    for (char c = 0; ::read(output_, &c, 1) == 1 && c != '\n';)
        text.push_back(c);
    return text;
}

void process::kill() {
    ::kill(pid_, SIGKILL);
}

std::string process::rest() {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t size = 0; (size = ::read(output_, buffer.data(), buffer.size())) != 0;)
        if (size > 0)
            text.append(buffer.data(), static_cast<std::size_t>(size));
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR)
        ;
    pid_ = 0;
    const bool exited = WIFEXITED(status);
    return text + (exited ? "[exit status " : "[signal ") +
           std::to_string(exited ? WEXITSTATUS(status) : WTERMSIG(status)) + "]";
}

void need(bool condition, std::string_view what) {
    if (!condition)
        throw std::runtime_error(std::string(what));
}

std::string in_forked_child(const std::function<std::string()>& body) {
    int ends[2];
    if (::pipe(ends) != 0)
        throw std::system_error(errno, std::system_category(), "pipe");
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(ends[0]);
        ::alarm(30);
        std::string result;
        try {
            result = body();
        } catch (const std::exception& e) {
            result = std::string("exception: ") + e.what();
        }
        static_cast<void>(!::write(ends[1], result.data(), result.size()));
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string result;
    std::array<char, 4096> buffer{};
    for (ssize_t size = 0; (size = ::read(ends[0], buffer.data(), buffer.size())) != 0;)
        if (size > 0)
            result.append(buffer.data(), static_cast<std::size_t>(size));
    ::close(ends[0]);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0)
        result += " (the child ended with status " + std::to_string(status) + ")";
    return result;
}

// ---------------------------------------------------------------------------------------------------------------
// Hangs.

namespace {

std::mutex hangs_lock;
std::vector<rdmaxx::hang_report> hangs;
std::function<void()> hang_reaction;
rdmaxx::hang_action hang_answer = rdmaxx::hang_action::keep_waiting;

rdmaxx::hang_action record_hang(const rdmaxx::hang_report& report) noexcept {
    std::function<void()> reaction;
    {
        const std::lock_guard guard(hangs_lock);
        hangs.push_back(report);
        reaction = hang_reaction;
    }
    if (reaction)
        reaction();
    return hang_answer;
}

} // namespace

hang_recorder::hang_recorder(rdmaxx::hang_action answer, std::chrono::milliseconds after) {
    hangs.clear();
    hang_answer = answer;
    rdmaxx::hang_report_after(after);
    rdmaxx::set_hang_hook(record_hang);
}

hang_recorder::~hang_recorder() {
    rdmaxx::set_hang_hook(nullptr);
    rdmaxx::hang_report_after(5s);
    hang_reaction = nullptr;
}

std::vector<rdmaxx::hang_report> hang_recorder::reports() const {
    const std::lock_guard guard(hangs_lock);
    return hangs;
}

void hang_recorder::on_report(std::function<void()> action) {
    const std::lock_guard guard(hangs_lock);
    hang_reaction = std::move(action);
}

// ---------------------------------------------------------------------------------------------------------------
// Connections.

rdmaxx::cm_event get(rdmaxx::event_channel& channel, rdmaxx::cm_event_type type) {
    rdmaxx::cm_event event = channel.get_cm_event_for(soon);
    if (event.type() != type)
        throw std::runtime_error(std::string("waited for ") + to_string(type) + ", got " +
                                 event.snapshot().to_string());
    return event;
}

rdmaxx::cm_event_snapshot next(rdmaxx::event_channel& channel) {
    return channel.get_cm_event_for(soon).snapshot();
}

std::error_code rejected_by_program() {
    const rdmaxx::device_list devices;
    if (devices.front().is_iwarp())
        return {ECONNRESET, std::system_category()};
    return {28, rdmaxx::reject_category()};
}

rdmaxx::cm_id resolved(rdmaxx::event_channel& channel, const rdmaxx::address& peer) {
    rdmaxx::cm_id id(channel);
    rdmaxx::resolve(channel, id, peer, 2s);
    return id;
}

end::end(rdmaxx::cm_id bound, const rdmaxx::pd& domain, const options& how)
    : memory(16384), id(std::move(bound)), completions(domain.context()),
      cq(domain.context(), static_cast<int>(2 * how.depth), completions), mr(domain, memory, full_access) {
    rdmaxx::qp_init_attr attr(cq, how.depth);
    attr.max_send_sge(how.sges).max_recv_sge(how.sges).max_inline_data(how.inline_bytes);
    qp = id.create_qp(domain, attr);
}

rdmaxx::wc end::next() {
    std::array<rdmaxx::wc, 1> one;
    if (completions.wait_for(cq, one, soon).empty())
        throw std::runtime_error("waited for a completion, none came");
    return one[0];
}

rdmaxx::wc end::next_ok() {
    const rdmaxx::wc completion = next();
    if (!completion.ok())
        throw std::runtime_error(std::string("waited for a success, got ") + to_string(completion.status()));
    return completion;
}

void end::put(std::string_view text, std::size_t offset) {
    std::memcpy(memory.data() + offset, text.data(), text.size());
}

std::string end::text(std::size_t size, std::size_t offset) const {
    return live::text(std::span(memory).subspan(offset, size));
}

host::host(const rdmaxx::address& at, int backlog) : listener(channel) {
    listener.bind_addr(at);
    listener.listen(backlog);
    device = rdmaxx::context(listener);
    domain = rdmaxx::pd(device);
}

end host::request(const options& how) {
    return {get(channel, rdmaxx::cm_event_type::connect_request).take_id(), domain, how};
}

connection::connection(const options& how)
    : local(how.at), client(resolved(channel, local.address()), local.domain, how) {
    client.id.connect(how.connect);
    server = local.request(how);
    server.id.accept(how.accept);
    static_cast<void>(get(channel, rdmaxx::cm_event_type::established));
    static_cast<void>(get(local.channel, rdmaxx::cm_event_type::established));
}

std::string text(std::span<const std::byte> data) {
    return {reinterpret_cast<const char*>(data.data()), data.size()};
}

} // namespace live
