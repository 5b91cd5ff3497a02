// What cannot work, and how the library says so: addresses, limits, peers that die.
#include "live.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace live;
using rdmaxx::cm_event_type;

TEST_CASE_METHOD(fixture, "an address in use is EADDRINUSE, one of another machine ENODEV", "[ib][errors]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id first(channel);
    first.bind_addr(ipv4());
    first.listen();
    const rdmaxx::address taken = first.local_address();
    const rdmaxx::cm_id second(channel);
    try {
        second.bind_addr(taken);
        FAIL("nothing was thrown");
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::errc::address_in_use);
        CHECK(std::string(e.what()) == "rdma_bind_addr " + taken.to_string() + ": " + e.code().message());
        CHECK(rdmaxx::diagnose(e).find("has the port") != std::string::npos);
    }
    std::error_code ec;
    second.bind_addr(address_of_nobody(), ec);
    CHECK(ec == std::errc::no_such_device); // no interface has it, so no device
    second.bind_addr(ipv4(), ec);           // after two failures as good as new
    CHECK_FALSE(ec);
    second.bind_addr(ipv4(), ec); // bound
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "an address without a route is ENETUNREACH at once, with the address", "[errors]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    const rdmaxx::address far("198.51.100.7", 7471);
    try {
        id.resolve_addr(far, 2s);
        FAIL("nothing was thrown");
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::errc::network_unreachable);
        CHECK(std::string(e.call()) == "rdma_resolve_addr");
        CHECK(std::string(e.what()) == "rdma_resolve_addr 198.51.100.7:7471: " + e.code().message());
        CHECK(rdmaxx::diagnose(e) == "This machine has no route to the address.");
    }
    // The same id again: the kernel takes the call, and answers with an event.
    std::error_code ec;
    id.resolve_addr(far, 200ms, ec);
    if (!ec)
        CHECK(next(channel).type() == cm_event_type::addr_error);
    // IPv6 has its own routes.
    const rdmaxx::cm_id other(channel);
    other.resolve_addr(rdmaxx::address("2001:db8:ffff::1", 7471), 200ms, ec);
    CHECK(ec == std::errc::network_unreachable);
}

TEST_CASE_METHOD(fixture, "an address that nobody answers for is addr_error ETIMEDOUT after the time-out", "[errors]") {
    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    const stopwatch waited;
    id.resolve_addr(address_of_nobody(), 200ms);
    const rdmaxx::cm_event_snapshot answer = next(channel);
    CHECK(waited.elapsed() >= 100ms); // an emulated clock may lag
    CHECK(answer.type() == cm_event_type::addr_error);
    CHECK(answer.status() == -ETIMEDOUT);
    CHECK(answer.code() == std::errc::timed_out);
    CHECK(answer.to_string() == "addr_error: " + answer.code().message());

    std::error_code ec;
    rdmaxx::resolve(channel, rdmaxx::cm_id(channel), address_of_nobody(), 100ms, ec);
    CHECK(ec == std::errc::timed_out);
}

TEST_CASE_METHOD(fixture, "events of failures are dropped like all others", "[ib][errors][asan]") {
    host local;
    rdmaxx::event_channel channel;
    for (int i = 0; i < 3; ++i) {
        const rdmaxx::cm_id nobody(channel);
        nobody.resolve_addr(address_of_nobody(), 50ms);
        static_cast<void>(get(channel, cm_event_type::addr_error));
        end client(resolved(channel, ipv4(1)), local.domain);
        client.id.connect();
        static_cast<void>(get(channel, cm_event_type::rejected));
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Limits.

TEST_CASE_METHOD(fixture, "without descriptors a new channel is EMFILE, and what was there works", "[errors]") {
    connection c;
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = 40;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    std::vector<rdmaxx::event_channel> channels;
    std::error_code ec;
    while (!ec && channels.size() < 100)
        channels.push_back(rdmaxx::event_channel::create(ec));
    CHECK(ec == std::errc::too_many_files_open);
    CHECK_FALSE(channels.back());
    channels.pop_back();
    CHECK(channels.size() > 3);
    std::string causes;
    try {
        const rdmaxx::event_channel one_more;
    } catch (const rdmaxx::error& e) {
        CHECK(std::string(e.call()) == "rdma_create_event_channel");
        causes = rdmaxx::diagnose(e);
    }
    CHECK(causes.find("RLIMIT_NOFILE (ulimit -n) is 40") != std::string::npos);
    CHECK_FALSE(rdmaxx::comp_channel::create(c.local.device, ec));
    CHECK(ec == std::errc::too_many_files_open);
    CHECK_FALSE(rdmaxx::context::create(c.local.device.device(), ec));
    CHECK(ec == std::errc::too_many_files_open);

    const rdmaxx::cm_id id(channels.back()); // costs no descriptor
    id.resolve_addr(ipv4(7), 2s);
    CHECK(next(channels.back()).type() == cm_event_type::addr_resolved);
    c.server.qp.post_recv(c.server.mr);
    c.client.qp.post_send(c.client.mr);
    CHECK(c.server.next_ok().is_recv());
    CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

namespace {

/// Registers memory under a limit. On its own, since it gives up a privilege: root is above the limit.
const role registers_too_much("registers_too_much", []() {
    __user_cap_header_struct header{};
    header.version = _LINUX_CAPABILITY_VERSION_3;
    std::array<__user_cap_data_struct, 2> caps{};
    need(::syscall(SYS_capget, &header, caps.data()) == 0, "capget");
    caps[0].effective &= ~(1U << CAP_IPC_LOCK);
    caps[0].permitted &= ~(1U << CAP_IPC_LOCK);
    need(::syscall(SYS_capset, &header, caps.data()) == 0, "capset");
    const rlimit limit = {64 * 1024, 64 * 1024};
    need(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");

    const rdmaxx::device_list devices;
    const rdmaxx::context device(devices.front());
    const rdmaxx::pd domain(device);
    std::vector<std::byte> memory(1 << 20);
    const rdmaxx::mr small(domain, std::span(memory).first(16 * 1024));
    try {
        const rdmaxx::mr large(domain, memory);
        need(false, "it was registered");
    } catch (const rdmaxx::error& e) {
        need(e.code() == std::errc::not_enough_memory, e.what());
        need(std::string(e.call()) == "ibv_reg_mr", e.call());
        need(std::string_view(e.what()).starts_with("ibv_reg_mr 1048576 bytes, RLIMIT_MEMLOCK 64 KiB: "), e.what());
        const std::string causes = rdmaxx::diagnose(e);
        need(causes.find("RLIMIT_MEMLOCK (ulimit -l) is 64 KiB") != std::string::npos, causes);
    }
    const rdmaxx::mr another(domain, std::span(memory).subspan(64 * 1024, 4096)); // nothing is stuck
    std::printf("all as it should be ");
    return 0;
});

} // namespace

TEST_CASE_METHOD(fixture, "memory above RLIMIT_MEMLOCK is ENOMEM, which names the limit and the size", "[errors]") {
    if (!in_vm()) {
        WARN("skipped: needs the privilege to give up CAP_IPC_LOCK");
        return;
    }
    process p(registers_too_much);
    CHECK(p.rest() == "all as it should be [exit status 0]");
}

TEST_CASE_METHOD(fixture,
                 "remote access without local_write is EINVAL, memory that is not there, or not to be written, EFAULT",
                 "[errors]") {
    host local;
    std::vector<std::byte> memory(4096);
    std::error_code ec;
    CHECK_FALSE(rdmaxx::mr::create(local.domain, memory, rdmaxx::access::remote_write, ec));
    CHECK(ec == std::errc::invalid_argument);
    auto* nowhere = reinterpret_cast<std::byte*>(0x1000);
    CHECK_FALSE(rdmaxx::mr::create(local.domain, std::span(nowhere, 4096), rdmaxx::access::local_write, ec));
    CHECK(ec == std::errc::bad_address);
    void* pages = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED); // NOLINT(*-int-to-ptr, *-cstyle-cast): C's macro
    const std::span read_only_pages(static_cast<std::byte*>(pages), 4096);
    std::string told;
    try {
        const rdmaxx::mr written(local.domain, read_only_pages, rdmaxx::access::local_write);
    } catch (const rdmaxx::error& e) {
        CHECK(e.code() == std::errc::bad_address);
        told = rdmaxx::diagnose(e);
    }
    CHECK(told.find("not writable although local_write was asked for") != std::string::npos);
    const std::byte* constant = memory.data();
    const rdmaxx::mr read_only(local.domain, std::span(constant, memory.size()), rdmaxx::access::remote_read);
    CHECK(read_only.length() == memory.size());
    CHECK(::munmap(pages, 4096) == 0);
}

// ---------------------------------------------------------------------------------------------------------------
// A peer that dies.

namespace {

const role server_that_is_killed("server_that_is_killed", []() {
    host local;
    std::printf("%u\n", static_cast<unsigned>(local.address().port()));
    std::fflush(stdout);
    // All receives ahead: after a send without one rxe pauses for 0.65 s, since rdma_cm asks for the longest pause.
    end server = local.request(options{.depth = 200});
    for (int i = 0; i < 200; ++i)
        server.qp.post_recv(server.mr);
    server.id.accept();
    while (server.next().is_recv())
        ;
    return 1;
});

} // namespace

TEST_CASE_METHOD(fixture, "a peer that is killed in mid-transfer: disconnected, and what is posted fails",
                 "[ib][errors][asan]") {
    process peer(server_that_is_killed);
    const auto port = static_cast<std::uint16_t>(std::stoi(peer.line()));
    rdmaxx::event_channel channel;
    rdmaxx::context device;
    {
        const rdmaxx::cm_id id(channel);
        id.bind_addr(ipv4());
        device = rdmaxx::context(id);
    }
    const rdmaxx::pd domain(device);
    end client(resolved(channel, ipv4(port)), domain);
    client.id.connect();
    static_cast<void>(get(channel, cm_event_type::established));
    int delivered = 0;
    for (int i = 0; i < 200; ++i) {
        client.qp.post_send(client.mr);
        if (i == 100)
            peer.kill();
        if (i >= 100)
            break;
        CHECK(client.next_ok().ok());
        ++delivered;
    }
    CHECK(delivered == 100);
    client.qp.post_recv(client.mr, 5);
    CHECK(next(channel).type() == cm_event_type::disconnected);
    client.id.disconnect();
    int failed = 0;
    client.qp.drain(soon, [&](const rdmaxx::wc& done) {
        if (!done.ok())
            ++failed;
    });
    CHECK(failed >= 1); // the receive at least: the send may have arrived
    CHECK(peer.rest() == "[signal 9]");
}

// ---------------------------------------------------------------------------------------------------------------
// fork.

TEST_CASE_METHOD(fixture, "a forked child's destructors leave the parent's objects alone", "[errors][fork]") {
    auto c = std::make_unique<connection>();
    c->server.cq.request_notify();
    c->server.qp.post_recv(c->server.mr);
    c->client.put("before the fork");
    c->client.qp.post_send(c->client.mr.sge(0, 15));
    rdmaxx::cq_event completion = c->server.completions.get_cq_event_for(soon);
    const rdmaxx::cm_id extra(c->channel);
    extra.resolve_addr(ipv4(7), 2s);
    rdmaxx::cm_event held = get(c->channel, cm_event_type::addr_resolved);
    CHECK(c->server.next_ok().is_recv());

    const std::string before = resources();
    CHECK(in_forked_child([&]() -> std::string {
              need(c->server.text(15) == "before the fork", "the child has a copy of registered memory");
              std::error_code ec;
              c->client.mr.close(ec);
              need(!ec, "close forgets");
              held = rdmaxx::cm_event(); // would wait for nobody, and must not
              completion = rdmaxx::cq_event();
              c.reset(); // every owner: ids, queue pairs, CQs, memory, PD, context, channels
              return "";
          }) == "");
    CHECK(resources() == before);

    // The parent goes on: data, events, and an orderly end.
    CHECK(held.type() == cm_event_type::addr_resolved);
    std::move(held).ack();
    std::move(completion).ack();
    for (int i = 0; i < 10; ++i) {
        c->server.qp.post_recv(c->server.mr);
        c->client.put("after the fork");
        c->client.qp.post_send(c->client.mr.sge(0, 14));
        CHECK(c->server.next_ok().byte_len() == 14U);
        CHECK(c->server.text(14) == "after the fork");
        CHECK(c->client.next().ok());
    }
    c->client.id.disconnect();
    CHECK(next(c->local.channel).type() == cm_event_type::disconnected);
}
