// Objects of another process: exported by a descriptor and numbers over a Unix socket, imported here, or refused in the
// driver's own words.
#include "live.hpp"

#include <rdmaxx/verbs/dm.hpp>
#include <rdmaxx/verbs/iova_mr.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

using namespace live;

namespace {

/// What one process tells another: with the descriptor, whatever the program needs to find the objects.
struct exported {
    std::uint32_t pd = 0;
    std::uint32_t mr = 0;
    std::uint32_t length = 0;
    std::uint32_t rkey = 0;
};

/// A name of a socket that belongs to no file: the listener's process in it.
sockaddr_un meeting_point(pid_t listener, socklen_t& size) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    const std::string name = "rdmaxx live imports " + std::to_string(listener);
    std::memcpy(at.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return at;
}

class unix_socket {
public:
    explicit unix_socket(int fd) : fd_(fd) {
        if (fd < 0)
            throw std::system_error(errno, std::system_category(), "a Unix socket");
    }
    unix_socket() : unix_socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {}
    unix_socket(const unix_socket&) = delete;
    unix_socket& operator=(const unix_socket&) = delete;
    ~unix_socket() { ::close(fd_); }

    [[nodiscard]] int fd() const { return fd_; }

    void send(const exported& what, int descriptor) const {
        message m(const_cast<exported&>(what));
        cmsghdr* const header = CMSG_FIRSTHDR(&m.header);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
        need(::sendmsg(fd_, &m.header, MSG_NOSIGNAL) == sizeof what, "sendmsg");
    }
    /// A descriptor of this process, the caller's to close.
    [[nodiscard]] int receive(exported& what) const {
        message m(what);
        int descriptor = -1;
        if (::recvmsg(fd_, &m.header, MSG_CMSG_CLOEXEC) == sizeof what)
            if (const cmsghdr* const header = CMSG_FIRSTHDR(&m.header))
                std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        return descriptor;
    }

private:
    struct message {
        explicit message(exported& what) : data{&what, sizeof what} {
            header.msg_iov = &data;
            header.msg_iovlen = 1;
            header.msg_control = room.data();
            header.msg_controllen = room.size();
        }
        iovec data;
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
        msghdr header{};
    };

    int fd_;
};

/// The other process: makes objects, and tells of them; whether they are as good as before when the importer is done.
const role exporter("exporter", []() {
    const rdmaxx::device_list devices;
    const rdmaxx::context device(devices.find(variable("RIG_DEVICE").c_str()));
    const rdmaxx::pd domain(device);
    std::vector<std::byte> memory(4096);
    const rdmaxx::mr region(domain, memory, full_access);
    const unix_socket to;
    socklen_t size = 0;
    const sockaddr_un at = meeting_point(::getppid(), size);
    need(::connect(to.fd(), reinterpret_cast<const sockaddr*>(&at), size) == 0, "connect");
    to.send({domain.handle(), region.handle(), static_cast<std::uint32_t>(region.length()), value(region.rkey())},
            device.cmd_fd());
    char go = 0;
    need(::read(to.fd(), &go, 1) == 1, "the importer's word");
    const rdmaxx::mr another(domain, memory);
    std::printf("still there ");
    return 0;
});

/// The exporter, and what it has sent.
struct exports {
    exports() {
        socklen_t size = 0;
        const sockaddr_un at = meeting_point(::getpid(), size);
        const unix_socket listener;
        REQUIRE(::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
        REQUIRE(::listen(listener.fd(), 1) == 0);
        other.emplace(exporter);
        from.emplace(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
        fd = from->receive(what);
        REQUIRE(fd >= 0);
    }

    std::optional<process> other;
    std::optional<unix_socket> from;
    exported what;
    int fd = -1;
};

template <class Call>
std::error_code error_of(Call call) {
    std::error_code ec;
    call(ec);
    return ec;
}

} // namespace

TEST_CASE_METHOD(fixture, "a device, its PD and its memory of another process are imported, or the driver cannot",
                 "[memory]") {
    exports e;
    std::error_code ec;
    rdmaxx::context imported = rdmaxx::context::import_device(e.fd, ec);
    if (ec) { // a driver without: Soft-RoCE's, siw's
        CHECK(ec == std::errc::operation_not_supported);
        CHECK_FALSE(imported);
        CHECK(::fcntl(e.fd, F_GETFD) == FD_CLOEXEC); // still ours
        // Nor by the numbers alone, in a context of one's own.
        const host local;
        CHECK(error_of([&](std::error_code& why) {
                  static_cast<void>(rdmaxx::pd::import_pd(local.device, e.what.pd, why));
              }) == std::errc::operation_not_supported);
        CHECK(error_of([&](std::error_code& why) {
                  static_cast<void>(rdmaxx::iova_mr::import_mr(local.domain, e.what.mr, 0, why));
              }) == std::errc::operation_not_supported);
        CHECK(error_of([&](std::error_code& why) { static_cast<void>(rdmaxx::dm::import_dm(local.device, 0, why)); }) ==
              std::errc::operation_not_supported);
        ::close(e.fd);
    } else {
        CHECK(imported.device().name() == variable("RIG_DEVICE"));
        CHECK(imported.cmd_fd() == e.fd);
        const rdmaxx::pd domain = rdmaxx::pd::import_pd(imported, e.what.pd);
        const rdmaxx::iova_mr region = rdmaxx::iova_mr::import_mr(domain, e.what.mr, 0x1000);
        CHECK(region.remote() == rdmaxx::remote_buffer{0x1000, rdmaxx::rkey{e.what.rkey}, e.what.length});
        imported.close(); // as long as the region needs it
        CHECK(::fcntl(e.fd, F_GETFD) >= 0);
    }
    CHECK(::write(e.from->fd(), "", 1) == 1);
    CHECK(e.other->rest() == "still there [exit status 0]");
}

TEST_CASE_METHOD(fixture, "what another process exported stays when it dies, until the descriptor is closed",
                 "[memory]") {
    if (!in_vm())
        return; // counts the machine's objects
    const std::string before = resources();
    exports e;
    const std::string with_exporter = resources();
    e.other->kill();
    CHECK(e.other->rest() == "[signal 9]");
    e.other.reset();
    e.from.reset();
    const auto objects = [](const std::string& all) {
        return all.substr(0, all.find("descriptor"));
    };
    std::this_thread::sleep_for(100ms);
    CHECK(objects(resources()) == objects(with_exporter));
    CHECK(objects(with_exporter) != objects(before));
    ::close(e.fd);
    CHECK(settled_resources(before) == before);
}

TEST_CASE_METHOD(fixture, "what is no device's descriptor is not imported", "[memory]") {
    const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(error_of([&](std::error_code& why) { static_cast<void>(rdmaxx::context::import_device(file, why)); }) ==
          std::errc::no_such_device);
    CHECK(::fcntl(file, F_GETFD) == FD_CLOEXEC);
    ::close(file);
    CHECK(error_of([&](std::error_code& why) { static_cast<void>(rdmaxx::context::import_device(file, why)); }) ==
          std::errc::invalid_argument);
}
