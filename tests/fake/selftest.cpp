// The fake tried on itself, through the C interfaces that it stands in for.
//
//   g++ -std=c++20 -g -fsanitize=address,undefined -pthread tests/fake/*.cpp -o selftest && ./selftest
//   g++ -std=c++20 -g -fsanitize=thread -pthread tests/fake/*.cpp -o selftest && ./selftest
//   (the same with clang++)
//
// Under TSan `./selftest race_for_the_qp_of_an_id` and the other races below must be reported.
#include "fake.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_verbs.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define WATCHED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define WATCHED 1
#    endif
#endif
#ifndef WATCHED
#    define WATCHED 0
#endif

namespace {

using namespace std::chrono_literals;

std::atomic<int> broken{0};

void check(bool ok, const char* text, int line) {
    if (ok)
        return;
    ++broken;
    std::printf("selftest.cpp:%d: %s\n", line, text);
}
#define CHECK(...) check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __LINE__)

constexpr unsigned local_write = IBV_ACCESS_LOCAL_WRITE;

sockaddr_in address(const char* host, std::uint16_t port) {
    sockaddr_in a = {};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    inet_pton(AF_INET, host, &a.sin_addr);
    return a;
}
sockaddr* generic(sockaddr_in& a) {
    return reinterpret_cast<sockaddr*>(&a);
}

bool readable(int fd) {
    pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

// ---------------------------------------------------------------- events

void events_are_got_and_acked() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
    CHECK(!readable(channel->fd));
    fake::push_event({.type = RDMA_CM_EVENT_REJECTED, .id = id, .status = 28, .private_data = fake::bytes("no")});
    CHECK(readable(channel->fd));
    rdma_cm_event* event = nullptr;
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    CHECK(!readable(channel->fd));
    CHECK(event->event == RDMA_CM_EVENT_REJECTED && event->status == 28 && event->id == id);
    CHECK(event->param.conn.private_data_len == 148);
    CHECK(std::memcmp(event->param.conn.private_data, "no\0", 3) == 0);
    CHECK(fake::cm_events(id).held() == 1);
    CHECK(fake::leaks().size() == 3);
    const auto* bytes = reinterpret_cast<const unsigned char*>(event);
    CHECK(rdma_ack_cm_event(event) == 0);
    if (!WATCHED)
        CHECK(bytes[0] == 0xDB);
    {
        fake::expected_failures failed;
        CHECK(rdma_ack_cm_event(event) == 0);
        CHECK(failed.mentions("rdma_ack_cm_event: event event1 was destroyed before"));
    }
    CHECK(rdma_ack_cm_event(nullptr) == -1 && errno == EINVAL);
    CHECK(rdma_destroy_id(id) == 0);
    {
        fake::expected_failures failed;
        CHECK(rdma_destroy_id(id) == -1);
        CHECK(failed.mentions("id1 was destroyed before"));
    }
    rdma_destroy_event_channel(channel);
    CHECK(fake::in_order({"rdma_create_id", "rdma_get_cm_event", "rdma_destroy_id", "rdma_destroy_event_channel"}));
    CHECK(fake::calls("rdma_ack_cm_event") == 3 && fake::successes("rdma_get_cm_event") == 1);
}

void empty_channels_give_eagain_and_eintr() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_event* event = nullptr;
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == EAGAIN);
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) & ~O_NONBLOCK);
    struct sigaction quiet = {};
    quiet.sa_handler = [](int) {
    };
    sigaction(SIGUSR1, &quiet, nullptr);
    std::atomic<bool> interrupted{false};
    std::thread blocked([&] {
        rdma_cm_event* e = nullptr;
        if (rdma_get_cm_event(channel, &e) == -1 && errno == EINTR)
            interrupted = true;
    });
    while (!interrupted) {
        pthread_kill(blocked.native_handle(), SIGUSR1);
        std::this_thread::sleep_for(5ms);
    }
    blocked.join();
    fake::set().get_limit = 20ms;
    {
        fake::expected_failures failed;
        CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == ETIMEDOUT);
        CHECK(failed.mentions("blocks for ever"));
    }
    rdma_destroy_event_channel(channel);
}

void destroy_waits_for_acks() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::push_event({.type = RDMA_CM_EVENT_ADDR_CHANGE, .id = id});
    fake::push_event({.type = RDMA_CM_EVENT_ADDR_CHANGE, .id = id});
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel, &event);
    fake::set().wait_limit = 20ms;
    {
        fake::expected_failures failed;
        CHECK(rdma_destroy_id(id) == -1);
        CHECK(failed.mentions("RDMA_CM_EVENT_ADDR_CHANGE (event1), got by this same thread"));
    }
    CHECK(!readable(channel->fd)); // the second event went with the destroy
    fake::set().wait_limit = 5s;
    std::thread acker([&] {
        fake::wait_for_call("rdma_destroy_id", 2);
        std::this_thread::sleep_for(20ms);
        rdma_ack_cm_event(event);
    });
    CHECK(rdma_destroy_id(id) == 0);
    acker.join();
    rdma_destroy_event_channel(channel);
}

void a_request_counts_on_its_listener() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* listener = nullptr;
    int mark = 0;
    rdma_create_id(channel, &listener, &mark, RDMA_PS_TCP);
    fake::push_event({.type = RDMA_CM_EVENT_CONNECT_REQUEST, .listen_id = listener});
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel, &event);
    rdma_cm_id* child = event->id;
    CHECK(event->listen_id == listener && child != listener);
    CHECK(child->context == &mark && child->channel == channel && child->verbs != nullptr);
    CHECK(event->param.conn.private_data_len == 56);
    CHECK(fake::cm_events(listener).held() == 1 && fake::cm_events(child).held() == 0);
    CHECK(rdma_destroy_id(child) == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    CHECK(rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(channel);
}

void library_made_errors_leave_errno() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::push_event({.type = RDMA_CM_EVENT_ROUTE_ERROR, .id = id, .status = -1, .error = ENODEV});
    fake::push_event({.type = RDMA_CM_EVENT_ADDR_RESOLVED, .id = id});
    fake::push_event({.type = 99, .id = id});
    fake::fail("ibv_alloc_pd").with(ENOMEM);
    rdma_cm_event* event = nullptr;
    errno = 0;
    CHECK(rdma_get_cm_event(channel, &event) == 0 && errno == ENODEV && event->status == -1);
    rdma_ack_cm_event(event);
    errno = 0;
    CHECK(rdma_get_cm_event(channel, &event) == 0 && errno == ENOMEM && event->status == -1);
    CHECK(event->event == RDMA_CM_EVENT_ADDR_ERROR);
    rdma_ack_cm_event(event);
    CHECK(rdma_get_cm_event(channel, &event) == 0);
    int type = 0;
    std::memcpy(&type, &event->event, sizeof type);
    CHECK(type == 99);
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
}

void channels_must_outlive_their_ids() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::expected_failures failed;
    rdma_destroy_event_channel(channel);
    CHECK(failed.mentions("channel1 still has id1"));
    CHECK(rdma_destroy_id(id) == -1);
    CHECK(failed.mentions("the channel of id1 was destroyed before"));
    fake::abandon();
}

void private_data_comes_in_all_forms() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    const auto got = [&](fake::private_data_form form, std::uint8_t length, bool null) {
        fake::push_event(
            {.type = RDMA_CM_EVENT_REJECTED, .id = id, .status = 28, .private_data = fake::bytes("x"), .form = form});
        rdma_cm_event* event = nullptr;
        rdma_get_cm_event(channel, &event);
        const bool same =
            event->param.conn.private_data_len == length && (event->param.conn.private_data == nullptr) == null;
        rdma_ack_cm_event(event);
        return same;
    };
    CHECK(got(fake::private_data_form::padded, 148, false));
    CHECK(got(fake::private_data_form::exact, 1, false));
    CHECK(got(fake::private_data_form::none, 0, true));
    CHECK(got(fake::private_data_form::null_with_length, 148, true));
    CHECK(got(fake::private_data_form::pointer_without_length, 0, false));
    fake::set().exact_private_data = true;
    CHECK(got(fake::private_data_form::padded, 1, false));
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
}

void migration_takes_the_events_along() {
    auto* first = rdma_create_event_channel();
    auto* second = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(first, &id, nullptr, RDMA_PS_TCP);
    fake::push_event({.type = RDMA_CM_EVENT_ADDR_CHANGE, .id = id});
    CHECK(rdma_migrate_id(id, second) == 0);
    CHECK(id->channel == second && !readable(first->fd) && readable(second->fd));
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(second, &event);
    fake::set().wait_limit = 20ms;
    {
        fake::expected_failures failed;
        CHECK(rdma_migrate_id(id, first) == -1);
        CHECK(failed.mentions("rdma_migrate_id: would hang"));
    }
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(first);
    rdma_destroy_event_channel(second);
}

void groups_have_counts_of_their_own() {
    fake::auto_connect();
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP);
    auto own = address("192.0.2.1", 0);
    auto group = address("239.1.2.3", 0);
    CHECK(rdma_bind_addr(id, generic(own)) == 0);
    int mark = 0;
    ibv_qp_init_attr attr = {};
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_UD;
    CHECK(rdma_create_qp(id, nullptr, &attr) == 0);
    CHECK(rdma_join_multicast(id, generic(group), &mark) == 0);
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel, &event);
    CHECK(event->event == RDMA_CM_EVENT_MULTICAST_JOIN && event->param.ud.private_data == &mark);
    CHECK(fake::group_events(id, generic(group)).held() == 1);
    CHECK(ibv_destroy_qp(id->qp) == EBUSY);
    fake::set().wait_limit = 20ms;
    {
        fake::expected_failures failed;
        CHECK(rdma_leave_multicast(id, generic(group)) == -1);
        CHECK(failed.mentions("rdma_leave_multicast: would hang"));
    }
    rdma_ack_cm_event(event);
    auto padded = group;
    padded.sin_zero[3] = 1;
    CHECK(rdma_leave_multicast(id, generic(padded)) == -1 && errno == EADDRNOTAVAIL);
    CHECK(rdma_leave_multicast(id, generic(group)) == 0);
    CHECK(rdma_leave_multicast(id, generic(group)) == -1 && errno == EADDRNOTAVAIL);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
}

// ---------------------------------------------------------------- objects

struct verbs_world {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;

    verbs_world() {
        int n = 0;
        ibv_device** list = ibv_get_device_list(&n);
        CHECK(n == 1 && std::strcmp(ibv_get_device_name(list[0]), "fake0") == 0);
        context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        pd = ibv_alloc_pd(context);
        channel = ibv_create_comp_channel(context);
        cq = ibv_create_cq(context, 10, this, channel, 0);
    }
    ~verbs_world() {
        CHECK(ibv_destroy_cq(cq) == 0);
        CHECK(ibv_destroy_comp_channel(channel) == 0);
        CHECK(ibv_dealloc_pd(pd) == 0);
        CHECK(ibv_close_device(context) == 0);
    }
    verbs_world(const verbs_world&) = delete;
    verbs_world& operator=(const verbs_world&) = delete;

    ibv_qp* make_qp(ibv_qp_type type = IBV_QPT_RC) {
        ibv_qp_init_attr attr = {};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {4, 4, 2, 2, 20};
        attr.qp_type = type;
        return ibv_create_qp(pd, &attr);
    }
};

void parents_are_busy() {
    verbs_world w;
    char buffer[64] = {};
    ibv_mr* mr = ibv_reg_mr(w.pd, buffer, sizeof buffer, local_write);
    CHECK(mr->lkey != mr->rkey);
    ibv_qp* qp = w.make_qp();
    CHECK(ibv_dealloc_pd(w.pd) == EBUSY);
    CHECK(ibv_destroy_cq(w.cq) == EBUSY);
    CHECK(ibv_destroy_comp_channel(w.channel) == EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_dealloc_pd(w.pd) == EBUSY);
    CHECK(ibv_dereg_mr(mr) == 0);
    {
        fake::expected_failures failed;
        CHECK(ibv_dereg_mr(mr) == EINVAL);
        CHECK(ibv_destroy_qp(qp) == EINVAL);
        ibv_close_device(w.context);
        CHECK(failed.count() == 3 && failed.mentions("ibv_close_device: context1 still has"));
    }
    unsigned access = IBV_ACCESS_REMOTE_WRITE;
    CHECK(ibv_reg_mr(w.pd, buffer, sizeof buffer, access) == nullptr && errno == EINVAL);
}

void queues_grant_and_refuse() {
    verbs_world w;
    CHECK(w.cq->cqe == 16);
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = w.cq;
    attr.cap = {5, 3, 3, 1, 401};
    attr.qp_type = IBV_QPT_RC;
    CHECK(ibv_create_qp(w.pd, &attr) == nullptr && errno == EINVAL);
    attr.cap.max_inline_data = 20;
    ibv_qp* qp = ibv_create_qp(w.pd, &attr);
    CHECK(attr.cap.max_send_wr == 8 && attr.cap.max_send_sge == 4 && attr.cap.max_inline_data == 32);
    ibv_qp_attr now = {};
    ibv_qp_init_attr init = {};
    CHECK(ibv_query_qp(qp, &now, IBV_QP_STATE | IBV_QP_CAP, &init) == 0);
    CHECK(now.qp_state == IBV_QPS_RESET && now.cap.max_send_wr == 8 && init.send_cq == w.cq);
    now.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp, &now, IBV_QP_STATE) == EINVAL);
    now.qp_state = IBV_QPS_INIT;
    CHECK(ibv_modify_qp(qp, &now, IBV_QP_STATE) == EINVAL);
    now.port_num = 1;
    CHECK(ibv_modify_qp(qp, &now, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    CHECK(qp->state == IBV_QPS_INIT);
    ibv_destroy_qp(qp);

    ibv_srq_init_attr srq_attr = {};
    srq_attr.attr = {10, 1, 0};
    ibv_srq* srq = ibv_create_srq(w.pd, &srq_attr);
    CHECK(srq_attr.attr.max_wr == 16);
    CHECK(ibv_destroy_srq(srq) == 0);
    ibv_ah_attr ah_attr = {};
    ah_attr.port_num = 1;
    ibv_ah* ah = ibv_create_ah(w.pd, &ah_attr);
    CHECK(ah != nullptr && ibv_dealloc_pd(w.pd) == EBUSY);
    CHECK(ibv_destroy_ah(ah) == 0);
}

void completion_events_are_counted() {
    verbs_world w;
    CHECK(ibv_req_notify_cq(w.cq, 0) == 0);
    fake::push_success(w.cq, 7, IBV_WC_RECV, 1, 12);
    CHECK(readable(w.channel->fd) && !fake::armed(w.cq));
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    CHECK(ibv_get_cq_event(w.channel, &cq, &context) == 0 && cq == w.cq && context == &w);
    ibv_wc wc[2];
    CHECK(ibv_poll_cq(w.cq, 2, wc) == 1 && wc[0].wr_id == 7 && wc[0].byte_len == 12);
    CHECK(ibv_poll_cq(w.cq, 2, wc) == 0);
    fake::set().wait_limit = 20ms;
    {
        fake::expected_failures failed;
        CHECK(ibv_destroy_cq(w.cq) == ETIMEDOUT);
        CHECK(failed.mentions("would hang, 1 of 1 completion events of cq1"));
        ibv_ack_cq_events(w.cq, 2);
        CHECK(failed.mentions("2 events of cq1 acked, but 1 are held"));
    }
    ibv_ack_cq_events(w.cq, 1);
    fake::push_failure(w.cq, 8, IBV_WC_WR_FLUSH_ERR, 1);
    CHECK(ibv_poll_cq(w.cq, 2, wc) == 1 && wc[0].status == IBV_WC_WR_FLUSH_ERR && wc[0].byte_len == 0xA5A5A5A5);
}

void async_events_are_counted() {
    verbs_world w;
    ibv_qp* qp = w.make_qp();
    fake::push_async_event(qp, IBV_EVENT_QP_FATAL);
    fake::push_async_event(w.context, 1, IBV_EVENT_PORT_ERR);
    CHECK(readable(w.context->async_fd));
    ibv_async_event event;
    CHECK(ibv_get_async_event(w.context, &event) == 0 && event.element.qp == qp);
    fake::set().wait_limit = 20ms;
    {
        fake::expected_failures failed;
        CHECK(ibv_destroy_qp(qp) == ETIMEDOUT && failed.count() == 1);
    }
    ibv_ack_async_event(&event);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_get_async_event(w.context, &event) == 0 && event.element.port_num == 1);
    ibv_ack_async_event(&event);
    CHECK(fake::async_events().held() == 0);
}

void device_lists_come_in_all_sizes() {
    fake::devices({});
    int n = -1;
    ibv_device** list = ibv_get_device_list(&n);
    CHECK(list != nullptr && n == 0 && list[0] == nullptr);
    ibv_free_device_list(list);
    CHECK(rdma_create_event_channel() == nullptr && errno == ENODEV);
    CHECK(rdma_get_devices(&n) == nullptr && errno == ENODEV && n == 0);
    fake::devices({{.name = "fake0", .addresses = {"192.0.2.1"}}, {.name = "fake1", .addresses = {"198.51.100.1"}}});
    list = ibv_get_device_list(&n);
    CHECK(n == 2 && ibv_get_device_guid(list[0]) != ibv_get_device_guid(list[1]));
    ibv_context* context = ibv_open_device(list[1]);
    ibv_device* closed = list[0];
    ibv_free_device_list(list);
    CHECK(std::strcmp(ibv_get_device_name(context->device), "fake1") == 0);
    {
        fake::expected_failures failed;
        CHECK(ibv_open_device(closed) == nullptr);
        CHECK(failed.count() == 1);
    }
    ibv_port_attr port = {};
    CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
    CHECK(ibv_query_port(context, 2, &port) == EINVAL);
    ibv_gid gid = {};
    CHECK(ibv_query_gid(context, 1, 3, &gid) == 0 && gid.raw[12] == 198);
    ibv_close_device(context);

    ibv_context** contexts = rdma_get_devices(&n);
    CHECK(n == 2);
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    auto own = address("198.51.100.1", 0);
    CHECK(rdma_bind_addr(id, generic(own)) == 0);
    CHECK(id->verbs == contexts[1] && id->pd != nullptr && rdma_get_src_port(id) != 0);
    ibv_pd* other = ibv_alloc_pd(contexts[0]);
    ibv_qp_init_attr attr = {};
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    CHECK(rdma_create_qp(id, other, &attr) == -1 && errno == EINVAL);
    ibv_dealloc_pd(other);
    rdma_free_devices(contexts);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
}

// ---------------------------------------------------------------- faults

void any_call_fails_on_demand() {
    verbs_world w;
    fake::fail("ibv_create_cq").at(2).with(ENOMEM);
    ibv_cq* first = ibv_create_cq(w.context, 1, nullptr, nullptr, 0);
    CHECK(first != nullptr);
    CHECK(ibv_create_cq(w.context, 1, nullptr, nullptr, 0) == nullptr && errno == ENOMEM);
    ibv_cq* third = ibv_create_cq(w.context, 1, nullptr, nullptr, 0);
    CHECK(third != nullptr);

    ibv_qp* qp = w.make_qp();
    ibv_send_wr wr = {};
    ibv_send_wr* bad = nullptr;
    fake::fail("ibv_post_send").with(ENOMEM);
    CHECK(ibv_post_send(qp, &wr, &bad) == ENOMEM && bad == &wr);
    fake::fail("ibv_post_send").with(ENOMEM).as(fake::convention::minus_one);
    CHECK(ibv_post_send(qp, &wr, &bad) == -1 && errno == ENOMEM);
    fake::fail("ibv_post_send").with(ENOMEM).as(fake::convention::negative);
    CHECK(ibv_post_send(qp, &wr, &bad) == -ENOMEM);
    fake::fail("ibv_poll_cq").returning(-5);
    ibv_wc wc;
    CHECK(ibv_poll_cq(w.cq, 1, &wc) == -5);

    fake::fail("ibv_destroy_qp").every().with(EIO);
    CHECK(ibv_destroy_qp(qp) == EIO);
    CHECK(!fake::alive(qp)); // as after the removal of its device
    ibv_destroy_cq(first);
    ibv_destroy_cq(third);

    fake::fail("rdma_create_id", 1, EMFILE);
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == -1 && errno == EMFILE);
    rdma_destroy_event_channel(channel);
    fake::set().errno_after_success = EBADF;
    errno = 0;
    channel = rdma_create_event_channel();
    CHECK(errno == EBADF);
    rdma_destroy_event_channel(channel);
}

void crashes_are_reported() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::expected_failures failed;
    CHECK(rdma_resolve_route(id, 10) == -1 && rdma_connect(id, nullptr) == -1);
    CHECK(rdma_accept(id, nullptr) == -1);
    rdma_destroy_qp(id);
    CHECK(failed.count() == 4);
    CHECK(rdma_disconnect(id) == -1 && errno == EINVAL && failed.count() == 4);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
}

void leaks_are_reported() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::push_event({.type = RDMA_CM_EVENT_ADDR_CHANGE, .id = id});
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel, &event);
    fake::expected_failures failed;
    fake::reset();
    CHECK(failed.count() == 1 && failed.mentions("event1: RDMA_CM_EVENT_ADDR_CHANGE of id1, got by thread"));
    CHECK(failed.mentions("channel1") && fake::leaks().empty());
}

void addresses_come_back_when_asked() {
    fake::set().reuse_addresses = true;
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* first = nullptr;
    rdma_cm_id* second = nullptr;
    rdma_create_id(channel, &first, nullptr, RDMA_PS_TCP);
    rdma_destroy_id(first);
    rdma_create_id(channel, &second, nullptr, RDMA_PS_TCP);
    CHECK(first == second && fake::name_of(second) == "id2");
    rdma_destroy_id(second);
    rdma_destroy_event_channel(channel);
}

void hooks_run_around_calls() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    int runs = 0;
    fake::before("rdma_destroy_id", [&] {
        ++runs;
        CHECK(fake::alive(id));
        rdma_cm_id* inner = nullptr;
        rdma_create_id(channel, &inner, nullptr, RDMA_PS_TCP);
        rdma_destroy_id(inner);
    });
    fake::after("rdma_destroy_id", [&] { ++runs; });
    rdma_destroy_id(id);
    CHECK(runs == 3 && fake::calls("rdma_destroy_id") == 2); // the hook does not run inside itself
    rdma_destroy_event_channel(channel);
}

void children_of_fork_are_watched() {
    auto* channel = rdma_create_event_channel();
    const pid_t quiet = fork();
    if (quiet == 0)
        _exit(0);
    waitpid(quiet, nullptr, 0);
    CHECK(fake::calls_in_children().empty());
    const pid_t busy = fork();
    if (busy == 0) {
        rdma_destroy_event_channel(channel);
        _exit(0);
    }
    waitpid(busy, nullptr, 0);
    CHECK(fake::calls_in_children() == std::vector<std::string>{"rdma_destroy_event_channel"});
    CHECK(fake::alive(channel));
    rdma_destroy_event_channel(channel);
}

// ---------------------------------------------------------------- connections

struct connection {
    rdma_event_channel* channel = rdma_create_event_channel();
    rdma_cm_id* listener = nullptr;
    rdma_cm_id* active = nullptr;
    rdma_cm_id* passive = nullptr;

    connection() {
        fake::auto_connect();
        auto own = address("192.0.2.1", 7471);
        rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP);
        CHECK(rdma_bind_addr(listener, generic(own)) == 0 && rdma_listen(listener, 4) == 0);
        rdma_create_id(channel, &active, nullptr, RDMA_PS_TCP);
        CHECK(rdma_resolve_addr(active, nullptr, generic(own), 100) == 0);
        expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        CHECK(active->verbs != nullptr);
        CHECK(rdma_resolve_route(active, 100) == 0);
        expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;

    void expect(int type, int status = 0, rdma_cm_id* whose = nullptr) {
        rdma_cm_event* event = nullptr;
        CHECK(readable(channel->fd));
        if (!readable(channel->fd))
            return;
        CHECK(rdma_get_cm_event(channel, &event) == 0);
        if (event->event != type)
            std::printf("got %s instead of %d\n", rdma_event_str(event->event), type);
        CHECK(event->event == type && event->status == status);
        CHECK(whose == nullptr || event->id == whose);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
            passive = event->id;
        rdma_ack_cm_event(event);
    }
    static void create_qp(rdma_cm_id* id) {
        ibv_qp_init_attr attr = {};
        attr.cap = {4, 4, 2, 2, 16};
        attr.qp_type = IBV_QPT_RC;
        CHECK(rdma_create_qp(id, nullptr, &attr) == 0);
        CHECK(attr.send_cq == id->send_cq && attr.recv_cq == id->recv_cq);
    }
    void establish() {
        create_qp(active);
        CHECK(rdma_connect(active, nullptr) == 0);
        expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        create_qp(passive);
        CHECK(rdma_accept(passive, nullptr) == 0);
        const auto before = fake::calls("ibv_modify_qp");
        expect(RDMA_CM_EVENT_ESTABLISHED, 0, active);
        CHECK(fake::calls("ibv_modify_qp") == before + 3);
        expect(RDMA_CM_EVENT_ESTABLISHED, 0, passive);
        CHECK(active->qp->state == IBV_QPS_RTS && passive->qp->state == IBV_QPS_RTS);
    }
    void end() {
        for (rdma_cm_id* id : {active, passive, listener}) {
            if (id == nullptr)
                continue;
            if (id->qp != nullptr)
                rdma_destroy_qp(id);
            CHECK(rdma_destroy_id(id) == 0);
        }
        rdma_destroy_event_channel(channel);
    }
};

void connections_are_made_and_ended() {
    connection c;
    c.establish();
    CHECK(rdma_disconnect(c.active) == 0);
    c.expect(RDMA_CM_EVENT_DISCONNECTED, 0, c.passive);
    CHECK(!readable(c.channel->fd));
    CHECK(rdma_disconnect(c.passive) == 0);
    c.expect(RDMA_CM_EVENT_DISCONNECTED, 0, c.active);
    CHECK(rdma_disconnect(c.passive) == 0);
    c.end();
}

void requests_are_refused_in_many_ways() {
    {
        connection c;
        rdma_conn_param param = {};
        char data[57] = "hello";
        param.private_data = data;
        param.private_data_len = 57;
        connection::create_qp(c.active);
        CHECK(rdma_connect(c.active, &param) == -1 && errno == EINVAL);
        param.private_data_len = 5;
        CHECK(rdma_connect(c.active, &param) == 0);
        c.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        CHECK(rdma_reject(c.passive, "why", 3) == 0);
        CHECK(rdma_accept(c.passive, &param) == -1);
        c.expect(RDMA_CM_EVENT_REJECTED, 28, c.active);
        CHECK(c.active->qp->state == IBV_QPS_ERR);
        c.end();
        fake::reset();
    }
    {
        connection c;
        rdma_conn_param param = {};
        CHECK(rdma_connect(c.active, &param) == 0);
        c.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        rdma_destroy_id(c.passive); // neither accepted nor rejected
        c.passive = nullptr;
        c.expect(RDMA_CM_EVENT_REJECTED, 28, c.active);
        c.end();
        fake::reset();
    }
    {
        connection c;
        rdma_conn_param param = {};
        CHECK(rdma_connect(c.active, &param) == 0);
        rdma_destroy_id(c.listener); // the request was not got yet
        c.listener = nullptr;
        c.expect(RDMA_CM_EVENT_REJECTED, 28, c.active);
        c.end();
        fake::reset();
    }
    {
        connection c;
        rdma_conn_param param = {};
        rdma_destroy_id(c.listener);
        c.listener = nullptr;
        CHECK(rdma_connect(c.active, &param) == 0);
        c.expect(RDMA_CM_EVENT_REJECTED, 8, c.active);
        c.end();
        fake::reset();
    }
    {
        connection c; // the active side leaves before it has its answer
        rdma_conn_param param = {};
        CHECK(rdma_connect(c.active, &param) == 0);
        c.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        CHECK(rdma_accept(c.passive, &param) == 0);
        rdma_destroy_id(c.active);
        c.active = nullptr;
        c.expect(RDMA_CM_EVENT_REJECTED, 28, c.passive);
        c.end();
    }
}

void external_qps_get_a_response() {
    connection c;
    rdma_conn_param param = {};
    param.qp_num = 77;
    CHECK(rdma_connect(c.active, &param) == 0);
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(c.channel, &event);
    CHECK(event->param.conn.qp_num == 77);
    c.passive = event->id;
    rdma_ack_cm_event(event);
    CHECK(rdma_accept(c.passive, &param) == 0);
    c.expect(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, c.active);
    CHECK(rdma_establish(c.active) == 0);
    c.expect(RDMA_CM_EVENT_ESTABLISHED, 0, c.passive);
    c.end();
}

void synchronous_ids_wait() {
    fake::auto_connect();
    auto own = address("192.0.2.1", 7471);
    rdma_cm_id* listener = nullptr;
    CHECK(rdma_create_id(nullptr, &listener, nullptr, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, generic(own)) == 0 && rdma_listen(listener, 1) == 0);
    std::thread server([&] {
        rdma_cm_id* passive = nullptr;
        CHECK(rdma_get_request(listener, &passive) == 0);
        rdma_conn_param param = {};
        CHECK(rdma_accept(passive, &param) == 0);
        CHECK(passive->event->event == RDMA_CM_EVENT_ESTABLISHED);
        rdma_destroy_ep(passive);
    });
    rdma_cm_id* active = nullptr;
    CHECK(rdma_create_id(nullptr, &active, nullptr, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(active, nullptr, generic(own), 100) == 0 && rdma_resolve_route(active, 100) == 0);
    connection::create_qp(active);
    CHECK(rdma_connect(active, nullptr) == 0 && active->event->event == RDMA_CM_EVENT_ESTABLISHED);
    server.join();
    rdma_destroy_ep(active);
    rdma_destroy_ep(listener);
    CHECK(fake::leaks().empty());
}

void address_lists_are_made() {
    rdma_addrinfo hints = {};
    hints.ai_flags = RAI_NUMERICHOST;
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* res = nullptr;
    CHECK(rdma_getaddrinfo("192.0.2.9", "7471", &hints, &res) == 0);
    CHECK(res->ai_family == AF_INET && res->ai_dst_len == sizeof(sockaddr_in) && res->ai_qp_type == IBV_QPT_RC);
    rdma_freeaddrinfo(res);
    CHECK(rdma_getaddrinfo("no number", "1", &hints, &res) != 0);
#ifdef RAI_DNS
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    CHECK(rdma_query_addrinfo(id, &res) == -1 && errno == ENOENT);
    CHECK(rdma_resolve_addrinfo(id, "192.0.2.9", "7471", &hints) == 0);
    CHECK(rdma_resolve_addrinfo(id, "192.0.2.9", "7471", &hints) == -1 && errno == EBUSY);
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel, &event);
    CHECK(event->event == RDMA_CM_EVENT_ADDRINFO_RESOLVED);
    rdma_ack_cm_event(event);
    CHECK(rdma_query_addrinfo(id, &res) == 0 && res->ai_dst_len == sizeof(sockaddr_in));
    rdma_freeaddrinfo(res);
    CHECK(rdma_write_cm_event(id, RDMA_CM_EVENT_USER, 3, 0x1234567890) == 0);
    rdma_get_cm_event(channel, &event);
    CHECK(event->event == RDMA_CM_EVENT_USER && event->status == 3 && event->param.arg == 0x1234567890);
    rdma_ack_cm_event(event);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
#endif
}

// ---------------------------------------------------------------- data

ibv_sge piece(ibv_mr* mr, std::size_t offset, std::uint32_t length) {
    return {reinterpret_cast<std::uint64_t>(mr->addr) + offset, length, mr->lkey};
}

int post_recv(ibv_qp* qp, ibv_sge sge, std::uint64_t wr_id) {
    ibv_recv_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
}

int post(ibv_qp* qp, ibv_sge sge, ibv_wr_opcode opcode, std::uint64_t wr_id, ibv_mr* remote = nullptr,
         unsigned flags = IBV_SEND_SIGNALED) {
    ibv_send_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = flags;
    wr.imm_data = htonl(42);
    if (remote != nullptr) {
        wr.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(remote->addr);
        wr.wr.rdma.rkey = remote->rkey;
    }
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
}

bool polled(ibv_cq* cq, std::uint64_t wr_id, ibv_wc_status status, ibv_wc* out = nullptr) {
    ibv_wc wc;
    if (ibv_poll_cq(cq, 1, &wc) != 1)
        return false;
    if (out != nullptr)
        *out = wc;
    return wc.wr_id == wr_id && wc.status == status;
}

void data_moves_between_connected_queues() {
    connection c;
    c.establish();
    char here[64] = "message";
    char there[64] = {};
    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    ibv_mr* own = ibv_reg_mr(c.active->pd, here, sizeof here, access);
    ibv_mr* other = ibv_reg_mr(c.passive->pd, there, sizeof there, access);
    ibv_qp* qp = c.active->qp;
    ibv_wc wc;

    CHECK(post(qp, piece(own, 0, 8), IBV_WR_SEND, 1) == 0); // waits for a receive
    CHECK(!polled(qp->send_cq, 1, IBV_WC_SUCCESS) && fake::posted_sends(qp).size() == 1);
    CHECK(post_recv(c.passive->qp, piece(other, 0, 64), 2) == 0);
    CHECK(polled(qp->send_cq, 1, IBV_WC_SUCCESS, &wc) && wc.opcode == IBV_WC_SEND);
    CHECK(polled(c.passive->recv_cq, 2, IBV_WC_SUCCESS, &wc) && wc.opcode == IBV_WC_RECV && wc.byte_len == 8);
    CHECK(std::strcmp(there, "message") == 0);

    std::strcpy(here, "written");
    CHECK(post(qp, piece(own, 0, 8), IBV_WR_RDMA_WRITE, 3, other) == 0);
    CHECK(polled(qp->send_cq, 3, IBV_WC_SUCCESS) && std::strcmp(there, "written") == 0);
    std::strcpy(there, "read");
    CHECK(post(qp, piece(own, 0, 5), IBV_WR_RDMA_READ, 4, other) == 0);
    CHECK(polled(qp->send_cq, 4, IBV_WC_SUCCESS) && std::strcmp(here, "read") == 0);
    CHECK(post_recv(c.passive->qp, piece(other, 0, 64), 5) == 0);
    CHECK(post(qp, piece(own, 0, 8), IBV_WR_RDMA_WRITE_WITH_IMM, 6, other) == 0);
    CHECK(polled(qp->send_cq, 6, IBV_WC_SUCCESS));
    CHECK(polled(c.passive->recv_cq, 5, IBV_WC_SUCCESS, &wc) && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && ntohl(wc.imm_data) == 42);

    for (std::uint64_t i = 0; i < 4; ++i)
        CHECK(post(qp, piece(own, 0, 8), IBV_WR_RDMA_WRITE, i, other, 0) == 0);
    CHECK(post(qp, piece(own, 0, 8), IBV_WR_RDMA_WRITE, 9, other) == ENOMEM); // unsignalled ones keep their slots

    CHECK(post_recv(qp, piece(own, 0, 8), 10) == 0);
    CHECK(rdma_disconnect(c.active) == 0);
    CHECK(polled(qp->recv_cq, 10, IBV_WC_WR_FLUSH_ERR, &wc) && wc.opcode == IBV_WC_SEND);
    c.expect(RDMA_CM_EVENT_DISCONNECTED, 0, c.passive);
    ibv_dereg_mr(own);
    ibv_dereg_mr(other);
    c.end();
}

void bad_ranges_fail_later() {
    connection c;
    c.establish();
    char here[64] = {};
    char there[64] = {};
    unsigned access = IBV_ACCESS_LOCAL_WRITE;
    ibv_mr* own = ibv_reg_mr(c.active->pd, here, sizeof here, access);
    ibv_mr* other = ibv_reg_mr(c.passive->pd, there, sizeof there, access);
    CHECK(post(c.active->qp, piece(own, 0, 8), IBV_WR_RDMA_WRITE, 1, other) == 0); // no remote access
    ibv_wc wc;
    CHECK(polled(c.active->send_cq, 1, IBV_WC_REM_ACCESS_ERR, &wc) && wc.opcode == IBV_WC_RECV);
    CHECK(post(c.active->qp, piece(own, 0, 8), IBV_WR_SEND, 2) == 0);
    CHECK(polled(c.active->send_cq, 2, IBV_WC_WR_FLUSH_ERR));
    ibv_dereg_mr(own);
    ibv_dereg_mr(other);
    c.end();
}

void sges_beyond_the_region_are_protected() {
    connection c;
    c.establish();
    char here[64] = {};
    unsigned access = IBV_ACCESS_LOCAL_WRITE;
    ibv_mr* own = ibv_reg_mr(c.active->pd, here, sizeof here, access);
    CHECK(post(c.active->qp, piece(own, 60, 8), IBV_WR_SEND, 1) == 0);
    CHECK(polled(c.active->send_cq, 1, IBV_WC_LOC_PROT_ERR));
    ibv_dereg_mr(own);
    c.end();
}

void windows_hold_their_regions() {
    verbs_world w;
    char buffer[64] = {};
    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    ibv_mr* mr = ibv_reg_mr(w.pd, buffer, sizeof buffer, access);
    ibv_mw* mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_1);
    ibv_qp* qp = w.make_qp();
    ibv_mw_bind bind = {};
    bind.bind_info = {mr, reinterpret_cast<std::uint64_t>(buffer), 16, IBV_ACCESS_REMOTE_WRITE};
    CHECK(ibv_bind_mw(qp, mw, &bind) == 0);
    CHECK(ibv_dereg_mr(mr) == EBUSY);
    CHECK(ibv_dealloc_mw(mw) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    ibv_destroy_qp(qp);
}

void datagrams_carry_a_header() {
    verbs_world w;
    ibv_qp* a = w.make_qp(IBV_QPT_UD);
    ibv_qp* b = w.make_qp(IBV_QPT_UD);
    for (ibv_qp* qp : {a, b}) {
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qkey = 5;
        CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
        attr.qp_state = IBV_QPS_RTR;
        CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
        attr.qp_state = IBV_QPS_RTS;
        CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    }
    char buffer[128] = "datagram";
    ibv_mr* mr = ibv_reg_mr(w.pd, buffer, sizeof buffer, local_write);
    ibv_ah_attr ah_attr = {};
    ah_attr.port_num = 1;
    ibv_ah* ah = ibv_create_ah(w.pd, &ah_attr);
    CHECK(post_recv(b, piece(mr, 64, 64), 2) == 0);
    ibv_sge sge = piece(mr, 0, 9);
    ibv_send_wr wr = {};
    wr.wr_id = 1;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = b->qp_num;
    wr.wr.ud.remote_qkey = 5;
    ibv_send_wr* bad = nullptr;
    CHECK(ibv_post_send(a, &wr, &bad) == 0);
    ibv_wc wc;
    CHECK(polled(w.cq, 2, IBV_WC_SUCCESS, &wc) && wc.byte_len == 49 && wc.src_qp == a->qp_num);
    CHECK((wc.wc_flags & IBV_WC_GRH) != 0 && std::strcmp(buffer + 64 + 40, "datagram") == 0);
    CHECK(polled(w.cq, 1, IBV_WC_SUCCESS));
    ibv_destroy_ah(ah);
    ibv_dereg_mr(mr);
    ibv_destroy_qp(a);
    ibv_destroy_qp(b);
}

void device_memory_is_memory() {
    verbs_world w;
    ibv_alloc_dm_attr attr = {};
    attr.length = 64;
    ibv_dm* dm = ibv_alloc_dm(w.context, &attr);
    CHECK(dm != nullptr && ibv_memcpy_to_dm(dm, 8, "abc", 4) == 0);
    char back[4] = {};
    CHECK(ibv_memcpy_from_dm(back, dm, 8, 4) == 0 && std::strcmp(back, "abc") == 0);
    CHECK(ibv_memcpy_to_dm(dm, 62, "abc", 4) == EINVAL);
    ibv_mr* mr = ibv_reg_dm_mr(w.pd, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
    CHECK(ibv_free_dm(dm) == EBUSY);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == 0);
}

// ---------------------------------------------------------------- threads

void threads_may_share_a_channel() {
    fake::auto_connect();
    auto* channel = rdma_create_event_channel();
    std::atomic<bool> stop{false};
    std::atomic<int> got{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            pollfd ready = {channel->fd, POLLIN, 0};
            while (!stop) {
                rdma_cm_event* event = nullptr;
                if (poll(&ready, 1, 5) != 1 || rdma_get_cm_event(channel, &event) != 0)
                    continue;
                rdma_ack_cm_event(event);
                ++got;
            }
        });
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    auto there = address("192.0.2.7", 1);
    for (int i = 0; i < 100; ++i) {
        rdma_cm_id* id = nullptr;
        rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
        CHECK(rdma_resolve_addr(id, nullptr, generic(there), 100) == 0);
        if (i % 2 == 0)
            while (fake::cm_events(id).acked == 0)
                std::this_thread::yield();
        CHECK(rdma_destroy_id(id) == 0);
    }
    stop = true;
    for (std::thread& t : threads)
        t.join();
    CHECK(got >= 50 && fake::cm_events().held() == 0);
    rdma_destroy_event_channel(channel);
}

void reused_addresses_are_no_races() {
    fake::set().reuse_addresses = true;
    auto* channel = rdma_create_event_channel();
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
        threads.emplace_back([&] {
            for (int n = 0; n < 100; ++n) {
                rdma_cm_id* id = nullptr;
                CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
                id->context = &id;
                CHECK(rdma_destroy_id(id) == 0);
            }
        });
    for (std::thread& t : threads)
        t.join();
    rdma_destroy_event_channel(channel);
}

void data_may_cross_threads() {
    verbs_world w;
    int shared = 0; // ordered by the completion alone
    std::thread producer([&] {
        shared = 1;
        fake::push_success(w.cq, 1, IBV_WC_RECV, 1, 4);
    });
    ibv_wc wc;
    while (ibv_poll_cq(w.cq, 1, &wc) == 0)
        std::this_thread::yield();
    CHECK(shared == 1);
    producer.join();
}

void benchmarks_do_nothing() {
    verbs_world w;
    ibv_qp* qp = w.make_qp();
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::bench_mode(true, id);
    const auto calls = fake::calls();
    ibv_send_wr wr = {};
    ibv_send_wr* bad = nullptr;
    ibv_wc wc[4];
    rdma_cm_event* event = nullptr;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0 && ibv_poll_cq(w.cq, 4, wc) == 4);
    CHECK(rdma_get_cm_event(channel, &event) == 0 && event->id == id && rdma_ack_cm_event(event) == 0);
    CHECK(fake::calls() == calls);
    fake::bench_mode(false);
    CHECK(ibv_poll_cq(w.cq, 4, wc) == 0);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    ibv_destroy_qp(qp);
}

// ---------------------------------------------------------------- races
//
// Run by name, under TSan, which must report each of them: the fake's own lock must not hide what the real
// libraries leave open.

void race_for_the_qp_of_an_id() {
    connection c;
    connection::create_qp(c.active);
    CHECK(rdma_connect(c.active, nullptr) == 0);
    c.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_conn_param param = {};
    CHECK(rdma_accept(c.passive, &param) == 0);
    fake::before("ibv_modify_qp", [] { std::this_thread::sleep_for(50ms); });
    const auto before = fake::calls("rdma_get_cm_event");
    fake::expected_failures failed; // the QP may be gone when it is modified
    std::thread destroyer([&] {
        fake::wait_for_call("rdma_get_cm_event", before + 1);
        std::this_thread::sleep_for(20ms);
        rdma_destroy_qp(c.active);
    });
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(c.channel, &event);
    destroyer.join();
    rdma_ack_cm_event(event);
    fake::abandon();
}

void race_for_the_device_of_an_id() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::push_event({.type = RDMA_CM_EVENT_ADDR_RESOLVED, .id = id});
    std::thread reader([&] {
        fake::wait_for_call("rdma_get_cm_event");
        std::this_thread::sleep_for(20ms);
        CHECK(fake::calls() > 0); // calls of the fake order nothing
        std::printf("%p\n", static_cast<void*>(id->verbs));
    });
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel, &event);
    reader.join();
    fake::abandon();
}

void race_beside_the_fake() {
    auto* channel = rdma_create_event_channel();
    int unordered = 0;
    std::thread writer([&] {
        unordered = 1;
        rdma_destroy_event_channel(rdma_create_event_channel());
    });
    fake::wait_for_call("rdma_destroy_event_channel");
    std::this_thread::sleep_for(20ms);
    rdma_destroy_event_channel(channel);
    std::printf("%d\n", unordered);
    writer.join();
}

void race_of_an_ack_and_a_look() {
    auto* channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP);
    fake::push_event({.type = RDMA_CM_EVENT_ADDR_CHANGE, .id = id});
    rdma_cm_event* event = nullptr;
    rdma_get_cm_event(channel, &event);
    std::thread looker([&] { std::printf("%d\n", event->status); });
    std::this_thread::sleep_for(20ms);
    rdma_ack_cm_event(event);
    looker.join();
    fake::abandon();
}

struct test {
    const char* name;
    void (*run)();
};
constexpr test races[] = {
    {"race_for_the_qp_of_an_id", race_for_the_qp_of_an_id},
    {"race_for_the_device_of_an_id", race_for_the_device_of_an_id},
    {"race_beside_the_fake", race_beside_the_fake},
    {"race_of_an_ack_and_a_look", race_of_an_ack_and_a_look},
};
constexpr test tests[] = {
#define TEST(f)                                                                                                        \
    { #f, f }
    TEST(events_are_got_and_acked),
    TEST(empty_channels_give_eagain_and_eintr),
    TEST(destroy_waits_for_acks),
    TEST(a_request_counts_on_its_listener),
    TEST(library_made_errors_leave_errno),
    TEST(channels_must_outlive_their_ids),
    TEST(private_data_comes_in_all_forms),
    TEST(migration_takes_the_events_along),
    TEST(groups_have_counts_of_their_own),
    TEST(parents_are_busy),
    TEST(queues_grant_and_refuse),
    TEST(completion_events_are_counted),
    TEST(async_events_are_counted),
    TEST(device_lists_come_in_all_sizes),
    TEST(any_call_fails_on_demand),
    TEST(crashes_are_reported),
    TEST(leaks_are_reported),
    TEST(addresses_come_back_when_asked),
    TEST(hooks_run_around_calls),
    TEST(children_of_fork_are_watched),
    TEST(connections_are_made_and_ended),
    TEST(requests_are_refused_in_many_ways),
    TEST(external_qps_get_a_response),
    TEST(synchronous_ids_wait),
    TEST(address_lists_are_made),
    TEST(data_moves_between_connected_queues),
    TEST(bad_ranges_fail_later),
    TEST(sges_beyond_the_region_are_protected),
    TEST(windows_hold_their_regions),
    TEST(datagrams_carry_a_header),
    TEST(device_memory_is_memory),
    TEST(threads_may_share_a_channel),
    TEST(reused_addresses_are_no_races),
    TEST(data_may_cross_threads),
    TEST(benchmarks_do_nothing),
#undef TEST
};

} // namespace

int main(int argc, char** argv) {
    alarm(120);
    for (const test& t : races)
        if (argc > 1 && std::strcmp(argv[1], t.name) == 0)
            t.run();
    for (const test& t : tests) {
        if (argc > 1 && std::strcmp(argv[1], t.name) != 0)
            continue;
        const int before = broken;
        t.run();
        fake::reset();
        if (broken != before)
            std::printf("  in %s\n", t.name);
    }
    std::printf("%s\n", broken == 0 ? "all well" : "broken");
    return broken == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
