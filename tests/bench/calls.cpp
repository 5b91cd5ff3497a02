// The same loops in C and with rdmaxx, each in a function of its own whose instructions are counted: see
// instructions.py.
//
// Refs are passed by value, as the C pointers are: an owner by reference would cost a load that C has not to do.
#include <fake.hpp>
#include <rdmaxx/rdmaxx.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>

// Neither inlined nor specialised for the arguments that main has.
#if defined(__clang__)
#    define COUNTED extern "C" __attribute__((noinline))
#else
#    define COUNTED extern "C" __attribute__((noipa))
#endif

namespace {

using rdmaxx::cq_ref;
using rdmaxx::qp_ref;
using rdmaxx::wc;

// As in a C program that says what is wrong: the failing half wants the error number.
[[noreturn, gnu::cold, gnu::noinline]] void failed(int error) {
    std::fprintf(stderr, "failed: %d\n", error);
    std::abort();
}

} // namespace

// ---------------------------------------------------------------- post_send

COUNTED void c_post_send(ibv_qp* qp, ibv_send_wr* request, long times) {
    for (long i = 0; i < times; ++i) {
        ibv_send_wr* bad = nullptr;
        if (const int error = ibv_post_send(qp, request, &bad))
            failed(error);
    }
}

COUNTED void throwing_post_send(qp_ref qp, ibv_send_wr& request, long times) {
    for (long i = 0; i < times; ++i)
        qp.post_send(request);
}

COUNTED void try_post_send(qp_ref qp, ibv_send_wr& request, long times) {
    for (long i = 0; i < times; ++i)
        if (const int error = qp.try_post_send(request))
            failed(error);
}

COUNTED void ec_post_send(qp_ref qp, ibv_send_wr& request, long times) {
    std::error_code ec;
    for (long i = 0; i < times; ++i) {
        qp.post_send(request, ec);
        if (ec)
            failed(ec.value());
    }
}

// A request that is made for each post, as in most programs.

COUNTED void c_post_send_made(ibv_qp* qp, const ibv_sge* piece, long times) {
    for (long i = 0; i < times; ++i) {
        ibv_sge sge = *piece;
        ibv_send_wr request{};
        request.wr_id = static_cast<std::uint64_t>(i);
        request.sg_list = &sge;
        request.num_sge = 1;
        request.opcode = IBV_WR_SEND;
        request.send_flags = IBV_SEND_SIGNALED;
        ibv_send_wr* bad = nullptr;
        if (const int error = ibv_post_send(qp, &request, &bad))
            failed(error);
    }
}

COUNTED void throwing_post_send_made(qp_ref qp, const rdmaxx::sge& piece, long times) {
    for (long i = 0; i < times; ++i) {
        const rdmaxx::sge sge = piece;
        qp.post_send(rdmaxx::send_wr::send(sge).wr_id(static_cast<std::uint64_t>(i)).signaled());
    }
}

COUNTED void try_post_send_made(qp_ref qp, const rdmaxx::sge& piece, long times) {
    for (long i = 0; i < times; ++i) {
        const rdmaxx::sge sge = piece;
        if (const int error =
                qp.try_post_send(rdmaxx::send_wr::send(sge).wr_id(static_cast<std::uint64_t>(i)).signaled()))
            failed(error);
    }
}

COUNTED void short_post_send_made(qp_ref qp, const rdmaxx::sge& piece, long times) {
    for (long i = 0; i < times; ++i)
        qp.post_send(rdmaxx::sge(piece), static_cast<std::uint64_t>(i));
}

// Sixteen of them in a row, as one chain.

COUNTED void c_post_chain_16(ibv_qp* qp, ibv_send_wr* requests, std::size_t count, long times) {
    for (long i = 0; i < times; ++i) {
        for (std::size_t k = 0; k + 1 < count; ++k)
            requests[k].next = &requests[k + 1];
        requests[count - 1].next = nullptr;
        ibv_send_wr* bad = nullptr;
        if (const int error = ibv_post_send(qp, requests, &bad))
            failed(error);
    }
}

COUNTED void throwing_post_chain_16(qp_ref qp, rdmaxx::send_wr* requests, std::size_t count, long times) {
    for (long i = 0; i < times; ++i)
        qp.post_send(std::span<rdmaxx::send_wr>(requests, count));
}

COUNTED void try_post_chain_16(qp_ref qp, rdmaxx::send_wr* requests, std::size_t count, long times) {
    for (long i = 0; i < times; ++i)
        if (const int error = qp.try_post_send(std::span<rdmaxx::send_wr>(requests, count)))
            failed(error);
}

// The same by the extended interface.

using batch_qp = rdmaxx::qp_ex_ref<rdmaxx::send_ops::send>;

COUNTED void c_batch_16(ibv_qp_ex* qp, const ibv_sge* piece, long times) {
    for (long i = 0; i < times; ++i) {
        ibv_wr_start(qp);
        for (std::uint64_t k = 0; k < 16; ++k) {
            qp->wr_id = k;
            qp->wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_send(qp);
            ibv_wr_set_sge(qp, piece->lkey, piece->addr, piece->length);
        }
        if (const int error = ibv_wr_complete(qp))
            failed(error);
    }
}

COUNTED void throwing_batch_16(batch_qp qp, const rdmaxx::sge& piece, long times) {
    for (long i = 0; i < times; ++i) {
        auto batch = qp.start();
        for (std::uint64_t k = 0; k < 16; ++k)
            batch.wr(k).signaled().send(piece);
        batch.complete();
    }
}

COUNTED void try_batch_16(batch_qp qp, const rdmaxx::sge& piece, long times) {
    for (long i = 0; i < times; ++i) {
        auto batch = qp.start();
        for (std::uint64_t k = 0; k < 16; ++k)
            batch.wr(k).signaled().send(piece);
        if (const int error = batch.try_complete())
            failed(error);
    }
}

// ---------------------------------------------------------------- post_recv

COUNTED void c_post_recv(ibv_qp* qp, ibv_recv_wr* request, long times) {
    for (long i = 0; i < times; ++i) {
        ibv_recv_wr* bad = nullptr;
        if (const int error = ibv_post_recv(qp, request, &bad))
            failed(error);
    }
}

COUNTED void throwing_post_recv(qp_ref qp, ibv_recv_wr& request, long times) {
    for (long i = 0; i < times; ++i)
        qp.post_recv(request);
}

COUNTED void try_post_recv(qp_ref qp, ibv_recv_wr& request, long times) {
    for (long i = 0; i < times; ++i)
        if (const int error = qp.try_post_recv(request))
            failed(error);
}

COUNTED void ec_post_recv(qp_ref qp, ibv_recv_wr& request, long times) {
    std::error_code ec;
    for (long i = 0; i < times; ++i) {
        qp.post_recv(request, ec);
        if (ec)
            failed(ec.value());
    }
}

// ---------------------------------------------------------------- poll, one completion at a time

COUNTED long c_poll_1(ibv_cq* cq, long times) {
    ibv_wc completion;
    long polled = 0;
    for (long i = 0; i < times; ++i) {
        const int count = ibv_poll_cq(cq, 1, &completion);
        if (count < 0)
            failed(count);
        polled += count;
    }
    return polled;
}

COUNTED long throwing_poll_1(cq_ref cq, long times) {
    std::array<wc, 1> room;
    long polled = 0;
    for (long i = 0; i < times; ++i)
        polled += static_cast<long>(cq.poll(room).size());
    return polled;
}

COUNTED long raw_poll_1(cq_ref cq, long times) {
    std::array<ibv_wc, 1> room;
    long polled = 0;
    for (long i = 0; i < times; ++i)
        polled += static_cast<long>(cq.poll(room).size());
    return polled;
}

COUNTED long try_poll_1(cq_ref cq, long times) {
    std::array<wc, 1> room;
    long polled = 0;
    for (long i = 0; i < times; ++i) {
        const int count = cq.try_poll(room);
        if (count < 0)
            failed(count);
        polled += count;
    }
    return polled;
}

COUNTED long ec_poll_1(cq_ref cq, long times) {
    std::array<wc, 1> room;
    std::error_code ec;
    long polled = 0;
    for (long i = 0; i < times; ++i) {
        polled += static_cast<long>(cq.poll(room, ec).size());
        if (ec)
            failed(ec.value());
    }
    return polled;
}

// ---------------------------------------------------------------- poll, sixteen at a time, and read them

COUNTED std::uint64_t c_poll_16(ibv_cq* cq, long times) {
    ibv_wc completions[16];
    std::uint64_t sum = 0;
    for (long i = 0; i < times; ++i) {
        const int count = ibv_poll_cq(cq, 16, completions);
        if (count < 0)
            failed(count);
        for (const ibv_wc* at = completions; at != completions + count; ++at)
            if (at->status == IBV_WC_SUCCESS)
                sum += at->wr_id;
    }
    return sum;
}

COUNTED std::uint64_t throwing_poll_16(cq_ref cq, long times) {
    std::array<wc, 16> room;
    std::uint64_t sum = 0;
    for (long i = 0; i < times; ++i)
        for (const wc& completion : cq.poll(room))
            if (completion.ok())
                sum += completion.wr_id();
    return sum;
}

COUNTED std::uint64_t raw_poll_16(cq_ref cq, long times) {
    std::array<ibv_wc, 16> room;
    std::uint64_t sum = 0;
    for (long i = 0; i < times; ++i)
        for (const ibv_wc& completion : cq.poll(room))
            if (completion.status == IBV_WC_SUCCESS)
                sum += completion.wr_id;
    return sum;
}

COUNTED std::uint64_t try_poll_16(cq_ref cq, long times) {
    std::array<wc, 16> room;
    std::uint64_t sum = 0;
    for (long i = 0; i < times; ++i) {
        const int count = cq.try_poll(room);
        if (count < 0)
            failed(count);
        for (const wc* at = room.data(); at != room.data() + count; ++at)
            if (at->ok())
                sum += at->wr_id();
    }
    return sum;
}

COUNTED std::uint64_t ec_poll_16(cq_ref cq, long times) {
    std::array<wc, 16> room;
    std::error_code ec;
    std::uint64_t sum = 0;
    for (long i = 0; i < times; ++i) {
        for (const wc& completion : cq.poll(room, ec))
            if (completion.ok())
                sum += completion.wr_id();
        if (ec)
            failed(ec.value());
    }
    return sum;
}

// By the extended poll, as a range.

using range_cq = rdmaxx::cq_ex_ref<rdmaxx::wc_fields::none>;

COUNTED std::uint64_t c_poll_range_16(ibv_cq_ex* cq, long times) {
    std::uint64_t sum = 0;
    for (long i = 0; i < times; ++i) {
        ibv_poll_cq_attr attr{};
        int result = ibv_start_poll(cq, &attr);
        if (result == ENOENT)
            continue;
        if (result != 0)
            failed(result);
        int left = 16;
        do {
            if (cq->status == IBV_WC_SUCCESS)
                sum += cq->wr_id;
            if (--left == 0)
                break;
            result = ibv_next_poll(cq);
        } while (result == 0);
        ibv_end_poll(cq);
        if (result != 0 && result != ENOENT)
            failed(result);
    }
    return sum;
}

COUNTED std::uint64_t throwing_poll_range_16(range_cq cq, long times) {
    std::uint64_t sum = 0;
    for (long i = 0; i < times; ++i) {
        int left = 16;
        for (const auto completion : cq.poll()) {
            if (completion.ok())
                sum += completion.wr_id();
            if (--left == 0)
                break;
        }
    }
    return sum;
}

COUNTED std::uint64_t ec_poll_range_16(range_cq cq, long times) {
    std::uint64_t sum = 0;
    std::error_code ec;
    for (long i = 0; i < times; ++i) {
        int left = 16;
        for (const auto completion : cq.poll(ec)) {
            if (completion.ok())
                sum += completion.wr_id();
            if (--left == 0)
                break;
        }
        if (ec)
            failed(ec.value());
    }
    return sum;
}

// The room for the completions made for each poll, as in a function that polls once.

COUNTED long c_poll_16_local(ibv_cq* cq, long times) {
    long polled = 0;
    for (long i = 0; i < times; ++i) {
        ibv_wc completions[16];
        const int count = ibv_poll_cq(cq, 16, completions);
        if (count < 0)
            failed(count);
        polled += count;
    }
    return polled;
}

COUNTED long throwing_poll_16_local(cq_ref cq, long times) {
    long polled = 0;
    for (long i = 0; i < times; ++i) {
        std::array<wc, 16> room;
        polled += static_cast<long>(cq.poll(room).size());
    }
    return polled;
}

// ---------------------------------------------------------------- request_notify

COUNTED void c_request_notify(ibv_cq* cq, long times) {
    for (long i = 0; i < times; ++i)
        if (const int error = ibv_req_notify_cq(cq, 0))
            failed(error);
}

COUNTED void throwing_request_notify(cq_ref cq, long times) {
    for (long i = 0; i < times; ++i)
        cq.request_notify();
}

COUNTED void try_request_notify(cq_ref cq, long times) {
    for (long i = 0; i < times; ++i)
        if (const int error = cq.try_request_notify())
            failed(error);
}

COUNTED void ec_request_notify(cq_ref cq, long times) {
    std::error_code ec;
    for (long i = 0; i < times; ++i) {
        cq.request_notify(false, ec);
        if (ec)
            failed(ec.value());
    }
}

// ---------------------------------------------------------------- get and ack of a CM event

COUNTED long c_get_ack(rdma_event_channel* channel, long times) {
    long sum = 0;
    for (long i = 0; i < times; ++i) {
        rdma_cm_event* event = nullptr;
        if (const int error = rdma_get_cm_event(channel, &event))
            failed(error);
        sum += event->event;
        rdma_ack_cm_event(event);
    }
    return sum;
}

COUNTED long throwing_get_ack(rdmaxx::event_channel& channel, long times) {
    long sum = 0;
    for (long i = 0; i < times; ++i) {
        rdmaxx::cm_event event = channel.get_cm_event();
        sum += static_cast<long>(event.type());
        std::move(event).ack();
    }
    return sum;
}

COUNTED long ec_get_ack(rdmaxx::event_channel& channel, long times) {
    std::error_code ec;
    long sum = 0;
    for (long i = 0; i < times; ++i) {
        const rdmaxx::cm_event event = channel.get_cm_event(ec);
        if (ec)
            failed(ec.value());
        sum += static_cast<long>(event.type());
    }
    return sum;
}

int main(int, char** argv) {
    const long times = std::atol(argv[1]);

    rdmaxx::event_channel channel;
    const rdmaxx::cm_id id(channel);
    const rdmaxx::device_list devices;
    const rdmaxx::context device(devices.front());
    const rdmaxx::pd pd(device);
    const rdmaxx::cq cq(device, 16);
    const rdmaxx::qp qp(pd, rdmaxx::qp_init_attr(cq, 16));

    const rdmaxx::cq_ex<rdmaxx::wc_fields::none> cq_ex(device, 16);
    const rdmaxx::qp_ex<rdmaxx::send_ops::send> qp_ex(pd, rdmaxx::qp_init_attr(cq, 16));

    std::array<std::byte, 64> memory{};
    const rdmaxx::mr mr(pd, memory);
    const rdmaxx::sge piece = mr.sge();
    rdmaxx::send_wr send = rdmaxx::send_wr::send(piece);
    std::array<rdmaxx::send_wr, 16> chain;
    chain.fill(send);
    rdmaxx::recv_wr receive(piece);

    fake::bench_mode(true, id.native_handle());
    for (const auto run : {throwing_post_send, try_post_send, ec_post_send})
        run(qp, send, times);
    c_post_send(qp.native_handle(), &send, times);
    c_post_send_made(qp.native_handle(), &piece, times);
    for (const auto run : {throwing_post_send_made, try_post_send_made, short_post_send_made})
        run(qp, piece, times);
    c_post_chain_16(qp.native_handle(), chain.data(), chain.size(), times);
    for (const auto run : {throwing_post_chain_16, try_post_chain_16})
        run(qp, chain.data(), chain.size(), times);
    c_batch_16(qp_ex.native_handle_ex(), &piece, times);
    for (const auto run : {throwing_batch_16, try_batch_16})
        run(qp_ex, piece, times);
    for (const auto run : {throwing_post_recv, try_post_recv, ec_post_recv})
        run(qp, receive, times);
    c_post_recv(qp.native_handle(), &receive, times);

    long polled = c_poll_1(cq.native_handle(), times);
    for (const auto run : {throwing_poll_1, raw_poll_1, try_poll_1, ec_poll_1})
        polled += run(cq, times);
    std::uint64_t sum = c_poll_16(cq.native_handle(), times);
    for (const auto run : {throwing_poll_16, raw_poll_16, try_poll_16, ec_poll_16})
        sum += run(cq, times);
    sum += c_poll_range_16(cq_ex.native_handle_ex(), times);
    for (const auto run : {throwing_poll_range_16, ec_poll_range_16})
        sum += run(cq_ex, times);
    polled += c_poll_16_local(cq.native_handle(), times);
    polled += throwing_poll_16_local(cq, times);
    c_request_notify(cq.native_handle(), times);
    for (const auto run : {throwing_request_notify, try_request_notify, ec_request_notify})
        run(cq, times);

    long events = c_get_ack(channel.native_handle(), times);
    for (const auto run : {throwing_get_ack, ec_get_ack})
        events += run(channel, times);
    fake::bench_mode(false);

    std::printf("polled %ld, %llu; events %ld\n", polled, static_cast<unsigned long long>(sum), events);
}
