// cm_event: one ack for each get, and what an event shows.
#include "test.hpp"

#include <cstring>

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

using namespace rdmaxx;
using namespace unit;

namespace {

using type = cm_event_type;

/// Multicast events belong to a group: joined by C, until the library can.
void join_group(const cm_id& id, void* context) {
    sockaddr_in group{};
    group.sin_family = AF_INET;
    ::inet_pton(AF_INET, "239.1.2.3", &group.sin_addr);
    REQUIRE(::rdma_join_multicast(id.native_handle(), reinterpret_cast<sockaddr*>(&group), context) == 0);
}

bool is_multicast(int event) {
    return event == RDMA_CM_EVENT_MULTICAST_JOIN || event == RDMA_CM_EVENT_MULTICAST_ERROR;
}

/// One event of any type, got.
cm_event deliver(event_channel& channel, const cm_id& id, int event) {
    if (is_multicast(event))
        join_group(id, nullptr);
    fake::push_event({.type = event, .id = id.native_handle()});
    return channel.get_cm_event();
}

cm_event deliver(bound_id& on, fake::cm_event event) {
    event.id = on.id.native_handle();
    fake::push_event(std::move(event));
    return on.channel.get_cm_event();
}

std::string text_of(std::span<const std::byte> data) {
    return {reinterpret_cast<const char*>(data.data()), data.size()};
}

/// The states that clang's typestate cannot follow, and that the object itself has to answer for.
struct holder {
    cm_event event;
};

} // namespace

// ---------------------------------------------------------------- one get, one ack

TEST_CASE_METHOD(unit::test, "cm_event: each type is acked exactly once when an exception unwinds", "[cm_event]") {
    const int event_type = GENERATE(range(0, 20), value(99)); // 99: from a newer library
    CAPTURE(event_type);
    bound_listener on;
    try {
        const cm_event event = deliver(on.channel, on.id, event_type);
        CHECK(static_cast<int>(event.type()) == event_type);
        throw std::runtime_error("the handler failed");
    } catch (const std::runtime_error&) {
    }
    CHECK(fake::cm_events().got == 1);
    CHECK(fake::cm_events().acked == 1);
    CHECK(fake::calls("rdma_ack_cm_event") == 1);
    on.id.close();
}

TEST_CASE_METHOD(unit::test, "cm_event: acked early, the destructor does not ack again", "[cm_event]") {
    bound_id on;
    {
        cm_event event = deliver(on.channel, on.id, RDMA_CM_EVENT_ADDR_RESOLVED);
        std::move(event).ack();
        CHECK(fake::calls("rdma_ack_cm_event") == 1);
    }
    CHECK(fake::calls("rdma_ack_cm_event") == 1);
    CHECK(fake::cm_events(on.id.native_handle()).held() == 0);
}

TEST_CASE_METHOD(unit::test, "cm_event: ack(ec) acks and clears the code", "[cm_event]") {
    bound_id on;
    cm_event event = deliver(on.channel, on.id, RDMA_CM_EVENT_ADDR_RESOLVED);
    std::error_code ec = std::make_error_code(std::errc::io_error);
    std::move(event).ack(ec);
    CHECK(!ec);
    CHECK(fake::calls("rdma_ack_cm_event") == 1);
}

TEST_CASE_METHOD(unit::test, "cm_event: an acked event is empty, and a second ack has no effect", "[cm_event]") {
    bound_id on;
    holder held{deliver(on.channel, on.id, RDMA_CM_EVENT_ESTABLISHED)};
    std::move(held.event).ack();
    CHECK_FALSE(held.event);
    CHECK(held.event.type() == type::none);
    CHECK(held.event.status() == 0);
    CHECK(!held.event.code());
    CHECK_FALSE(held.event.id());
    CHECK_FALSE(held.event.listen_id());
    CHECK_FALSE(held.event.request());
    CHECK(held.event.private_data().empty());
    CHECK(held.event.native_handle() == nullptr);
    CHECK(held.event.snapshot().type() == type::none);
    CHECK(caught([&] { static_cast<void>(held.event.conn_param()); }).code == EINVAL);
    CHECK(caught([&] { static_cast<void>(held.event.ud_param()); }).code == EINVAL);
    std::error_code ec;
    CHECK_FALSE(held.event.take_id(ec));
    CHECK(number(ec) == EINVAL);
    std::move(held.event).ack();
    CHECK(std::move(held.event).release() == nullptr);
    CHECK(fake::calls("rdma_ack_cm_event") == 1);
}

TEST_CASE_METHOD(unit::test, "cm_event: moves keep it at one ack", "[cm_event]") {
    bound_id on;
    SECTION("constructed from") {
        holder from{deliver(on.channel, on.id, RDMA_CM_EVENT_ADDR_RESOLVED)};
        holder to{std::move(from.event)};
        CHECK_FALSE(from.event);
        CHECK(to.event.type() == type::addr_resolved);
        from = holder();
        CHECK(fake::calls("rdma_ack_cm_event") == 0);
        to = holder();
        CHECK(fake::calls("rdma_ack_cm_event") == 1);
    }
    SECTION("assigned to: the new one first, then the old one's ack") {
        holder a{deliver(on.channel, on.id, RDMA_CM_EVENT_ADDR_RESOLVED)};
        holder b{deliver(on.channel, on.id, RDMA_CM_EVENT_ROUTE_RESOLVED)};
        a.event = std::move(b.event);
        CHECK(a.event.type() == type::route_resolved);
        CHECK_FALSE(b.event);
        CHECK(fake::calls("rdma_ack_cm_event") == 1);
    }
    SECTION("to itself") {
        holder a{deliver(on.channel, on.id, RDMA_CM_EVENT_ADDR_RESOLVED)};
        cm_event& same = a.event;
        a.event = std::move(same);
        CHECK(a.event.type() == type::addr_resolved);
        CHECK(fake::calls("rdma_ack_cm_event") == 0);
    }
    SECTION("in a container") {
        std::vector<cm_event> events;
        for (int i = 0; i < 20; ++i)
            events.push_back(deliver(on.channel, on.id, RDMA_CM_EVENT_ADDR_RESOLVED));
        events.erase(events.begin(), events.begin() + 10);
        CHECK(fake::calls("rdma_ack_cm_event") == 10);
    }
    on.id.close();
    CHECK(fake::cm_events().got == fake::cm_events().acked);
}

TEST_CASE_METHOD(unit::test, "cm_event: three terminal events of one id are acked three times", "[cm_event]") {
    bound_id on;
    unsigned released = 0;
    for (const type t : {type::connect_error, type::unreachable, type::device_removal})
        push(on.id, t);
    while (cm_event event = on.channel.try_get_cm_event()) {
        if (!on.id)
            continue;
        std::move(event).ack();
        on.id.close(); // ends with the first; what the kernel still holds is discarded with it
        ++released;
    }
    CHECK(released == 1);
    CHECK(fake::cm_events().got == fake::cm_events().acked);

    bound_id other;
    for (const type t : {type::connect_error, type::unreachable, type::device_removal})
        push(other.id, t);
    fake::clear_log();
    while (cm_event event = other.channel.try_get_cm_event())
        CHECK(event.id() == other.id);
    CHECK(fake::calls("rdma_ack_cm_event") == 3);
}

TEST_CASE_METHOD(unit::test, "cm_event: errno is what it was before an ack, a move or the end", "[cm_event]") {
    fake::set().errno_after_success = EBADF;
    bound_listener on;
    {
        holder a{deliver(on.channel, on.id, RDMA_CM_EVENT_ADDR_RESOLVED)};
        holder b{deliver(on.channel, on.id, RDMA_CM_EVENT_ADDR_RESOLVED)};
        errno = 77;
        a.event = std::move(b.event);
        CHECK(errno == 77);
        std::move(a.event).ack();
        CHECK(errno == 77);
    }
    {
        on.push_request();
        std::optional<cm_event> request(on.channel.get_cm_event());
        errno = 78;
        request.reset(); // destroys the new id as well
        CHECK(errno == 78);
        CHECK(fake::calls("rdma_destroy_id") == 1);
    }
    fake::set().errno_after_success = 0;
}

// ---------------------------------------------------------------- type and code

TEST_CASE_METHOD(unit::test, "cm_event_type: has a name for every value, unknown for those of a newer library",
                 "[cm_event]") {
    CHECK(std::string(to_string(type::none)) == "none");
    for (int i = 0; i < 20; ++i) {
        const std::string name = to_string(static_cast<type>(i));
        CAPTURE(i);
        CHECK(name != "unknown");
        if (i < 16) { // the C name without its prefix
            std::string c_name = ::rdma_event_str(static_cast<rdma_cm_event_type>(i));
            c_name = c_name.substr(std::strlen("RDMA_CM_EVENT_"));
            for (char& c : c_name)
                c = static_cast<char>(c - (c >= 'A' && c <= 'Z' ? 'A' - 'a' : 0));
            CHECK(name == c_name);
        }
    }
    CHECK(std::string(to_string(static_cast<type>(99))) == "unknown");
}

TEST_CASE_METHOD(unit::test, "cm_event: code() reads the status as its type means it", "[cm_event]") {
    struct row {
        port_space space;
        type event;
        int status;
        int left_errno; // by the get
        std::error_code expected;
    };
    const auto posix = [](int number) {
        return std::error_code(number, std::system_category());
    };
    const row row = GENERATE_COPY(values<struct row>({
        {port_space::tcp, type::addr_resolved, 0, 0, {}},
        {port_space::tcp, type::addr_error, -19, 0, posix(ENODEV)},
        {port_space::tcp, type::unreachable, -110, 0, posix(ETIMEDOUT)},
        {port_space::tcp, type::addr_error, -524, 0, posix(EOPNOTSUPP)}, // the kernel's own ENOTSUPP
        {port_space::tcp, type::route_error, -1, ENODEV, posix(ENODEV)},
        {port_space::tcp, type::connect_error, -1, EINVAL, posix(EINVAL)},
        {port_space::tcp, type::connect_error, -1, 0, posix(EPERM)}, // the kernel's own -EPERM
        {port_space::tcp, type::connect_error, 22, 0, posix(EINVAL)},
        {port_space::tcp, type::rejected, 8, 0, {8, reject_category()}},
        {port_space::tcp, type::rejected, 28, 0, {28, reject_category()}},
        {port_space::tcp, type::rejected, 10, 0, {10, reject_category()}},
        {port_space::tcp, type::rejected, -111, 0, posix(ECONNREFUSED)}, // iWARP
        {port_space::udp, type::unreachable, 2, 0, {2, sidr_category()}},
        {port_space::udp, type::unreachable, 1, 0, {1, sidr_category()}},
        {port_space::udp, type::unreachable, -110, 0, posix(ETIMEDOUT)},
        {port_space::tcp, type::unreachable, 2, 0, posix(ENOENT)},
        {port_space::tcp, type::user, 7, 0, {}}, // the program's own number
    }));
    bound_id on(row.space);
    errno = EBADF; // of some earlier call
    const cm_event event =
        deliver(on, {.type = static_cast<int>(row.event), .status = row.status, .error = row.left_errno});
    CAPTURE(to_string(row.event), row.status);
    CHECK(event.type() == row.event);
    CHECK(event.code() == row.expected);
    CHECK(event.snapshot().code() == row.expected);
    if (row.status != -1)
        CHECK(event.status() == row.status);
    if (row.expected.category() == reject_category() || row.expected.category() == sidr_category())
        CHECK(event.code() == std::errc::connection_refused);
}

TEST_CASE_METHOD(unit::test, "cm_event: a request's code and parameters are read by the listener's kind of queue pair",
                 "[cm_event]") {
    bound_listener on(port_space::udp);
    rdma_ud_param ud{};
    ud.qkey = 5;
    fake::push_event({.type = RDMA_CM_EVENT_CONNECT_REQUEST,
                      .listen_id = on.id.native_handle(),
                      .private_data = fake::bytes("hello"),
                      .ud = ud});
    cm_event event = on.channel.get_cm_event();
    {
        const cm_id gone = event.take_id(); // the new id may end before the event
    }
    CHECK(event.ud_param().qkey == 5);
    CHECK(text_of(event.private_data()).substr(0, 5) == "hello");
    CHECK(event.private_data().size() == 180);
    CHECK(caught([&] { static_cast<void>(event.conn_param()); }).code == EINVAL);
}

// ---------------------------------------------------------------- parameters

TEST_CASE_METHOD(unit::test, "cm_event: conn_param and ud_param exist where the event has them, EINVAL elsewhere",
                 "[cm_event]") {
    const bool datagram = GENERATE(false, true);
    const int event_type = GENERATE(range(0, 20), value(99));
    bound_listener on(datagram ? port_space::udp : port_space::tcp);
    const cm_event event = deliver(on.channel, on.id, event_type);
    const auto t = static_cast<type>(event_type);
    const bool with_conn =
        !datagram && (t == type::connect_request || t == type::connect_response || t == type::established);
    const bool with_ud =
        datagram && (t == type::connect_request || t == type::established || t == type::multicast_join);
    CAPTURE(datagram, to_string(t));

    const caught conn([&] { static_cast<void>(event.conn_param()); });
    CHECK(conn.code == (with_conn ? 0 : EINVAL));
    CHECK(conn.cause == (with_conn ? "" : "this event has no connection parameters"));
    const caught ud([&] { static_cast<void>(event.ud_param()); });
    CHECK(ud.code == (with_ud ? 0 : EINVAL));
    CHECK(ud.cause == (with_ud ? "" : "this event has no datagram parameters"));

    std::error_code ec;
    CHECK((event.conn_param(ec) != nullptr) == with_conn);
    CHECK(number(ec) == (with_conn ? 0 : EINVAL));
    CHECK((event.ud_param(ec) != nullptr) == with_ud);
    CHECK(number(ec) == (with_ud ? 0 : EINVAL));
}

TEST_CASE_METHOD(unit::test, "cm_event: conn_param shows what the peer asked for", "[cm_event]") {
    requesting from(port_space::tcp, {.responder_resources = 3, .initiator_depth = 4, .rnr_retry_count = 5});
    const cm_event event = from.channel.get_cm_event();
    CHECK(event.conn_param().responder_resources == 4); // what it starts is what we serve
    CHECK(event.conn_param().initiator_depth == 3);
    CHECK(event.conn_param().rnr_retry_count == 5);
    CHECK(event.conn_param().qp_num == from.client.qp().qp_num());
}

TEST_CASE_METHOD(unit::test, "cm_event: a multicast event's context pointer is never taken for data", "[cm_event]") {
    bound_id on(port_space::udp);
    char context[200] = "context";
    join_group(on.id, context);
    const int event_type = GENERATE(RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_MULTICAST_ERROR);
    const cm_event event = deliver(on, {.type = event_type});
    CHECK(event.native_handle()->param.ud.private_data == context); // the trap is there
    CHECK(event.native_handle()->param.ud.private_data_len != 0);
    CHECK(event.private_data().empty());
    const cm_event_snapshot copy = event.snapshot();
    CHECK(copy.private_data().empty());
    if (event.type() == type::multicast_join)
        CHECK(event.ud_param().qp_num == 0xffffff);
}

// ---------------------------------------------------------------- private data

TEST_CASE_METHOD(unit::test, "cm_event: private data is as long as the transport's field, zeroes behind what was sent",
                 "[cm_event]") {
    struct row {
        bool datagram;
        type event;
        std::size_t field;
    };
    const row row = GENERATE(values<struct row>({
        {false, type::connect_request, 56},
        {false, type::connect_response, 196},
        {false, type::established, 196},
        {false, type::rejected, 148},
        {true, type::connect_request, 180},
        {true, type::established, 136},
        {true, type::unreachable, 136},
    }));
    const bool sent = GENERATE(true, false);
    CAPTURE(row.datagram, to_string(row.event), sent);
    bound_listener on(row.datagram ? port_space::udp : port_space::tcp);
    const cm_event event =
        deliver(on, {.type = static_cast<int>(row.event), .private_data = fake::bytes(sent ? "hello" : "")});
    if (!sent && row.event == type::established && !row.datagram)
        return; // the passive side's, which comes without a message
    const std::span<const std::byte> data = event.private_data();
    REQUIRE(data.size() == row.field);
    CHECK(text_of(data).substr(0, 5) == (sent ? "hello" : std::string(5, '\0')));
    for (std::size_t i = 5; i < data.size(); ++i)
        REQUIRE(data[i] == std::byte{0});
}

TEST_CASE_METHOD(unit::test, "cm_event: exact private data (iWARP) is as long as it was sent", "[cm_event]") {
    fake::set().exact_private_data = true;
    bound_listener on;
    const cm_event event = deliver(on, {.type = RDMA_CM_EVENT_CONNECT_REQUEST, .private_data = fake::bytes("hello")});
    CHECK(text_of(event.private_data()) == "hello");
}

TEST_CASE_METHOD(unit::test,
                 "cm_event: private data is empty for a null pointer or a zero length, whatever the other says",
                 "[cm_event]") {
    const type t = GENERATE(type::rejected, type::unreachable, type::connect_error, type::disconnected);
    const auto form = GENERATE(fake::private_data_form::none, fake::private_data_form::null_with_length,
                               fake::private_data_form::pointer_without_length);
    const bool datagram = GENERATE(false, true);
    bound_id on(datagram ? port_space::udp : port_space::tcp);
    const cm_event event = deliver(on, {.type = static_cast<int>(t), .form = form});
    CHECK(event.private_data().empty());
    const cm_event_snapshot copy = event.snapshot();
    CHECK(copy.private_data().empty());
}

TEST_CASE_METHOD(unit::test, "cm_event: an event whose type carries none has no private data", "[cm_event]") {
    const bool datagram = GENERATE(false, true);
    bound_id on(datagram ? port_space::udp : port_space::tcp);
    for (const int t : {0, 1, 2, 3, 11, 14, 15, 16, 17, 18, 19, 99}) {
        CAPTURE(t);
        const cm_event event = deliver(on.channel, on.id, t); // the C union is full of garbage
        CHECK(event.private_data().empty());
        const cm_event_snapshot copy = event.snapshot();
        CHECK(copy.private_data().empty());
    }
}

// ---------------------------------------------------------------- snapshot

TEST_CASE_METHOD(unit::test, "cm_event_snapshot: outlives the ack, with the private data", "[cm_event]") {
    bound_id on;
    holder held{deliver(on, {.type = RDMA_CM_EVENT_REJECTED, .status = 28, .private_data = fake::bytes("no")})};
    const cm_event_snapshot first = held.event.snapshot();
    const void* id = on.id.native_handle();
    std::move(held.event).ack();
    on.id.close();

    const cm_event_snapshot copy = first;
    CHECK(copy.type() == type::rejected);
    CHECK(copy.status() == 28);
    CHECK(copy.code() == std::error_code(28, reject_category()));
    CHECK(copy.id() == id);
    CHECK(copy.listen_id() == nullptr);
    CHECK(copy.private_data().size() == 148);
    CHECK(text_of(copy.private_data()).substr(0, 3) == std::string("no\0", 3));
    CHECK(copy.to_string() == "rejected: rejected by the peer's program");
}

TEST_CASE_METHOD(unit::test, "cm_event_snapshot: takes the most that an event can carry", "[cm_event]") {
    fake::set().exact_private_data = true;
    bound_id on;
    const std::string most(255, 'x');
    const cm_event event = deliver(on, {.type = RDMA_CM_EVENT_REJECTED, .private_data = fake::bytes(most)});
    const cm_event_snapshot copy = event.snapshot();
    CHECK(text_of(copy.private_data()) == most);
}

TEST_CASE_METHOD(unit::test, "cm_event_snapshot: tells the ids of a request apart", "[cm_event]") {
    bound_listener on;
    on.push_request();
    const cm_event event = on.channel.get_cm_event();
    const cm_event_snapshot copy = event.snapshot();
    CHECK(copy.listen_id() == on.id.native_handle());
    CHECK(copy.id() == event.request().native_handle());
    CHECK(copy.to_string() == "connect_request");
}

TEST_CASE_METHOD(unit::test, "cm_event_snapshot: a default one is empty", "[cm_event]") {
    const cm_event_snapshot none;
    CHECK(none.type() == type::none);
    CHECK(none.private_data().empty());
    CHECK(none.id() == nullptr);
    CHECK(none.to_string() == "none");
}
