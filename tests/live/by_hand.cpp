// Queue pairs that are connected without rdma_cm's help, and those whose handshake the program finishes.
#include "live.hpp"

#include <array>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

using namespace live;
using rdmaxx::qp_attr;
using rdmaxx::qp_state;

namespace {

constexpr std::uint8_t port = 1;

/// The index of the GID that is this address, -1 where there is none. Index 0 is the link-local one.
int gid_index(const rdmaxx::context& device, const rdmaxx::address& address) {
    in6_addr wanted{};
    if (address.family() == AF_INET) {
        sockaddr_in in{};
        std::memcpy(&in, address.data(), sizeof in);
        wanted.s6_addr[10] = wanted.s6_addr[11] = 0xff;
        std::memcpy(&wanted.s6_addr[12], &in.sin_addr, 4);
    } else {
        sockaddr_in6 in{};
        std::memcpy(&in, address.data(), sizeof in);
        wanted = in.sin6_addr;
    }
    for (int i = 0; i < device.query_port(port).gid_tbl_len; ++i) {
        ibv_gid gid{};
        if (::ibv_query_gid(device.native_handle(), port, i, &gid) == 0 &&
            std::memcmp(gid.raw, &wanted, sizeof wanted) == 0)
            return i;
    }
    return -1;
}

/// A queue pair of class qp, with what it takes to move data.
struct manual {
    std::vector<std::byte> memory = std::vector<std::byte>(4096);
    rdmaxx::device_list devices;
    rdmaxx::context device{devices.find(variable("RIG_DEVICE").c_str())};
    rdmaxx::pd domain{device};
    rdmaxx::mr mr{domain, memory, full_access};
    rdmaxx::cq cq{device, 16};
    rdmaxx::qp qp{domain, rdmaxx::qp_init_attr(cq, 4)};

    void to_init() { qp.modify(qp_attr(qp_state::init).pkey_index(0).port_num(port).access_flags(full_access)); }
    void to_rtr(const manual& peer, int index, const ibv_gid& gid, std::error_code& ec) {
        ibv_ah_attr path{};
        path.is_global = 1;
        path.port_num = port;
        path.grh.dgid = gid;
        path.grh.sgid_index = static_cast<std::uint8_t>(index);
        path.grh.hop_limit = 64;
        qp.modify(qp_attr(qp_state::rtr)
                      .ah_attr(path)
                      .path_mtu(rdmaxx::mtu::bytes_1024)
                      .dest_qp_num(peer.qp.qp_num())
                      .rq_psn(7)
                      .max_dest_rd_atomic(1)
                      .min_rnr_timer(12),
                  ec);
    }
    void to_rts() {
        qp.modify(qp_attr(qp_state::rts).timeout(14).retry_cnt(7).rnr_retry(7).sq_psn(7).max_rd_atomic(1));
    }
    [[nodiscard]] rdmaxx::wc next() const {
        std::array<rdmaxx::wc, 1> one;
        for (const stopwatch waited; waited.elapsed() < soon;)
            if (!cq.poll(one).empty())
                return one[0];
        FAIL("no completion came");
        return one[0];
    }
};

} // namespace

TEST_CASE_METHOD(fixture, "queue pairs of their own are connected by hand, over the GID of the address",
                 "[ib][by_hand]") {
    manual a;
    manual b;
    const int index = gid_index(a.device, GENERATE(ipv4(), ipv6()));
    REQUIRE(index >= 0);
    ibv_gid gid{};
    REQUIRE(::ibv_query_gid(a.device.native_handle(), port, index, &gid) == 0);
    for (auto [self, peer] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        self->to_init();
        std::error_code ec;
        self->to_rtr(*peer, index, gid, ec);
        CHECK_FALSE(ec);
        self->to_rts();
    }
    b.qp.post_recv(b.mr.sge(0, 64), 1);
    std::memcpy(a.memory.data(), "by hand", 7);
    a.qp.post_send(a.mr.sge(0, 7), 2);
    CHECK(a.next().ok());
    CHECK(b.next().byte_len() == 7U);
    CHECK(text(std::span(b.memory).first(7)) == "by hand");
}

TEST_CASE_METHOD(fixture, "transitions that do not exist are EINVAL, and diagnose() says so", "[ib][by_hand]") {
    manual m;
    std::error_code ec;
    m.qp.modify(qp_attr(qp_state::rts), ec); // from reset
    CHECK(ec == std::errc::invalid_argument);
    m.qp.modify(qp_attr(qp_state::init), ec); // without its attributes
    CHECK(ec == std::errc::invalid_argument);
    try {
        m.qp.modify(qp_attr(qp_state::rtr));
        FAIL("nothing was thrown");
    } catch (const rdmaxx::error& e) {
        CHECK(std::string(e.call()) == "ibv_modify_qp");
        CHECK(rdmaxx::diagnose(e).find("transition") != std::string::npos);
    }
    CHECK(m.qp.query().state() == qp_state::reset);
}

TEST_CASE_METHOD(fixture, "a post in a state that takes no requests is EINVAL", "[ib][by_hand]") {
    manual m;
    const rdmaxx::sge piece = m.mr.sge(0, 1);
    std::array<rdmaxx::send_wr, 2> chain = {rdmaxx::send_wr::send(piece), rdmaxx::send_wr::send(piece)};
    std::error_code ec;
    CHECK(m.qp.post_send(chain, ec) == 0); // rxe names no request: the whole call failed
    CHECK(ec == std::errc::invalid_argument);
}

TEST_CASE_METHOD(fixture, "a GID index without a GID is ENODATA at RTR", "[ib][by_hand]") {
    manual m;
    m.to_init();
    ibv_gid gid{};
    std::error_code ec;
    m.to_rtr(m, m.device.query_port(port).gid_tbl_len - 1, gid, ec);
    CHECK(ec == std::errc::no_message_available); // ENODATA: it is the kernel's core that looks there
    CHECK(m.qp.query().state() == qp_state::init);
}

#if RDMAXX_HAS_ESTABLISH
namespace {

/// An id without a queue pair of its own, and the queue pair that the program made for it.
struct apart {
    apart(rdmaxx::cm_id bound, const host& local)
        : id(std::move(bound)), cq(local.device, 8), qp(local.domain, rdmaxx::qp_init_attr(cq, 2)) {
        move_to(qp_state::init);
    }
    void move_to(qp_state next) { qp.modify(id.init_qp_attr(next)); }
    void make_ready() {
        move_to(qp_state::rtr);
        move_to(qp_state::rts);
    }

    rdmaxx::cm_id id;
    rdmaxx::cq cq;
    rdmaxx::qp qp;
};

} // namespace

TEST_CASE_METHOD(fixture, "an id without a queue pair of its own gets connect_response, and establishes by itself",
                 "[ib][by_hand][asan]") {
    host local;
    rdmaxx::event_channel channel;
    apart client(resolved(channel, local.address()), local);
    client.id.connect({.qp_num = client.qp.qp_num()});
    end server = local.request();
    server.qp.post_recv(server.mr);
    server.id.accept();
    {
        const rdmaxx::cm_event response = get(channel, rdmaxx::cm_event_type::connect_response);
        CHECK(response.conn_param().qp_num == server.qp.qp_num());
    }
    client.make_ready();
    client.id.establish();
    static_cast<void>(get(local.channel, rdmaxx::cm_event_type::established));
    std::error_code ec;
    server.id.establish(ec); // it has one of its own
    CHECK(ec == std::errc::invalid_argument);

    std::vector<std::byte> memory(8);
    const rdmaxx::mr mr(local.domain, memory);
    client.qp.post_send(mr);
    CHECK(server.next_ok().byte_len() == 8U);
}

TEST_CASE_METHOD(fixture, "enhanced connection establishment: both sides see what the other offers",
                 "[ib][by_hand][ece]") {
    host local;
    rdmaxx::event_channel channel;
    apart client(resolved(channel, local.address()), local);
    client.id.set_local_ece({.vendor_id = 0x1234, .options = 0x56, .comp_mask = 0});
    client.id.connect({.qp_num = client.qp.qp_num()});
    rdmaxx::cm_id asked = get(local.channel, rdmaxx::cm_event_type::connect_request).take_id();
    const ibv_ece offered = asked.get_remote_ece();
    CHECK(offered.vendor_id == 0x1234);
    CHECK(offered.options == 0x56);
    SECTION("rejected for it") {
        asked.reject_ece(bytes("not that"));
        const rdmaxx::cm_event answer = get(channel, rdmaxx::cm_event_type::rejected);
        CHECK(answer.code() == std::error_code(35, rdmaxx::reject_category()));
        CHECK(text(answer.private_data().first(8)) == "not that");
        CHECK(rdmaxx::diagnose(answer.code(), "rdma_get_cm_event").find("said no") != std::string::npos);
    }
    SECTION("answered") {
        apart server(std::move(asked), local);
        server.id.set_local_ece({.vendor_id = 0x1234, .options = 0x12, .comp_mask = 0});
        server.make_ready();
        server.id.accept({.qp_num = server.qp.qp_num()});
        static_cast<void>(get(channel, rdmaxx::cm_event_type::connect_response));
        CHECK(client.id.get_remote_ece().options == 0x12);
        client.make_ready();
        client.id.establish();
        static_cast<void>(get(local.channel, rdmaxx::cm_event_type::established));
    }
    SECTION("an id with a queue pair of its own leaves it to librdmacm") {
        const end server(std::move(asked), local.domain);
        std::error_code ec;
        static_cast<void>(server.id.get_remote_ece(ec));
        CHECK(ec == std::errc::invalid_argument);
        server.id.set_local_ece({.vendor_id = 1, .options = 1, .comp_mask = 0}, ec);
        CHECK(ec == std::errc::invalid_argument);
    }
}
#endif
