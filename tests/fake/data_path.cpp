// libibverbs: posts, polls and notifications, and the loopback that carries the data.
#include "internal.hpp"

#include <algorithm>
#include <numeric>

#include <arpa/inet.h>

namespace fake::detail {

// ---------------------------------------------------------------- completion events

void queue_cq_event(cq_object& cq) {
    if (cq.channel == nullptr || cq.going)
        return;
    if (cq.channel->queue.empty())
        raise_signal(cq.channel->c->fd);
    cq.channel->queue.push_back(&cq);
}

void drop_events_of(cq_object& cq) {
    if (cq.channel == nullptr || cq.channel->queue.empty())
        return;
    auto& queue = cq.channel->queue;
    queue.erase(std::remove(queue.begin(), queue.end(), &cq), queue.end());
    if (queue.empty())
        lower_signal(cq.channel->c->fd);
}

void complete(cq_object& cq, const queued_wc& wc, bool solicited) {
    if (cq.queue.size() >= static_cast<std::size_t>(cq.c->cqe)) {
        if (!cq.overrun)
            queue_async(*context_of(cq.c->context), IBV_EVENT_CQ_ERR, &cq, 0);
        cq.overrun = true;
        return;
    }
    cq.queue.push_back(wc);
    const bool tells = cq.armed == cq_object::arm::any ||
                       (cq.armed == cq_object::arm::solicited && (solicited || wc.wc.status != IBV_WC_SUCCESS));
    if (!tells)
        return;
    cq.armed = cq_object::arm::none;
    queue_cq_event(cq);
}

// ---------------------------------------------------------------- completions

namespace {

ibv_wc blank_wc(std::uint64_t wr_id, ibv_wc_status status, std::uint32_t qp_num) {
    ibv_wc wc;
    fill_garbage(wc);
    wc.wr_id = wr_id;
    store_enum(wc.status, status);
    wc.qp_num = qp_num;
    wc.vendor_err = status == IBV_WC_SUCCESS ? wc.vendor_err : 0x77;
    // Not an enumerator's value, but one that reads safely.
    store_enum(wc.opcode, IBV_WC_FETCH_ADD);
    return wc;
}

ibv_wc success_wc(std::uint64_t wr_id, ibv_wc_opcode opcode, std::uint32_t qp_num) {
    ibv_wc wc = blank_wc(wr_id, IBV_WC_SUCCESS, qp_num);
    store_enum(wc.opcode, opcode);
    wc.wc_flags = 0;
    return wc;
}

// What failed says nothing about its kind: a send looks like a receive here, and the reverse.
ibv_wc failed_wc(std::uint64_t wr_id, ibv_wc_status status, std::uint32_t qp_num, bool send) {
    ibv_wc wc = blank_wc(wr_id, status, qp_num);
    store_enum(wc.opcode, send ? IBV_WC_RECV : IBV_WC_SEND);
    return wc;
}

bool signaled(const qp_object& qp, const posted_wr& wr) {
    return qp.signal_all || (wr.flags & IBV_SEND_SIGNALED) != 0;
}

void complete_send(qp_object& qp, const queued_send& done, const ibv_wc& wc) {
    complete(*qp.send_cq, {wc, &qp, done.number}, false);
}

void complete_recv(qp_object& qp, const ibv_wc& wc, bool solicited) {
    complete(*qp.recv_cq, {wc, nullptr, 0}, solicited);
}

ibv_wc_opcode completion_opcode(int opcode) {
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    case IBV_WR_LOCAL_INV: return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW: return IBV_WC_BIND_MW;
    case IBV_WR_TSO: return IBV_WC_TSO;
    case opcode_flush: return static_cast<ibv_wc_opcode>(8);        // IBV_WC_FLUSH
    case opcode_atomic_write: return static_cast<ibv_wc_opcode>(9); // IBV_WC_ATOMIC_WRITE
    default: return IBV_WC_SEND;
    }
}

void flush_send(qp_object& qp, const queued_send& wr, ibv_wc_status status) {
    complete_send(qp, wr, failed_wc(wr.copy.wr_id, status, qp.c->qp_num, true));
}

} // namespace

void flush(qp_object& qp) {
    qp.attr.qp_state = IBV_QPS_ERR;
    while (!qp.sends.empty()) {
        const queued_send wr = qp.sends.front();
        qp.sends.pop_front();
        flush_send(qp, wr, IBV_WC_WR_FLUSH_ERR);
    }
    while (!qp.recvs.empty()) {
        const std::uint64_t wr_id = qp.recvs.front().wr_id;
        qp.recvs.pop_front();
        complete_recv(qp, failed_wc(wr_id, IBV_WC_WR_FLUSH_ERR, qp.c->qp_num, false), false);
    }
    if (qp.srq != nullptr)
        queue_async(*context_of(qp.c->context), IBV_EVENT_QP_LAST_WQE_REACHED, &qp, 0);
}

void forget_requests(qp_object& qp) {
    qp.sends.clear();
    qp.recvs.clear();
    qp.released = qp.posted;
}

void qp_goes(qp_object& qp) {
    forget_requests(qp);
    qp_object*& numbered = the().qps[qp.c->qp_num];
    if (numbered == &qp) // and not one that was only opened
        numbered = nullptr;
    each<cq_object>([&](cq_object& cq) {
        for (queued_wc& wc : cq.queue)
            if (wc.releases == &qp)
                wc.releases = nullptr;
    });
    run_all(); // who waits for this one learns that it is gone
}

// ---------------------------------------------------------------- memory

namespace {

using span = std::span<std::byte>;

// The bytes behind a key, or nothing. An empty range needs no key.
std::optional<span> bytes_at(const mr_object& mr, std::uint64_t address, std::size_t length) {
    static std::byte nowhere[1 << 16];
    if (mr.null)
        return length <= sizeof nowhere ? std::optional(span(nowhere, length)) : std::nullopt;
    const std::uint64_t offset = address - mr.iova;
    if (address < mr.iova || offset > mr.c->length || length > mr.c->length - offset)
        return std::nullopt;
    std::byte* base = mr.backing != nullptr ? mr.backing : static_cast<std::byte*>(mr.c->addr);
    return span(base + offset, length);
}

bool same_domain(const pd_object* a, const pd_object* b) {
    const auto root = [](const pd_object* p) {
        return p != nullptr && p->base != nullptr ? p->base : p;
    };
    return root(a) == root(b);
}

std::optional<span> local_bytes(const pd_object* pd, const ibv_sge& sge, bool write) {
    if (sge.length == 0)
        return span();
    std::optional<span> found;
    each<mr_object>([&](mr_object& mr) {
        if (mr.c->lkey != sge.lkey || !same_domain(mr.pd, pd))
            return;
        if (write && (mr.access & IBV_ACCESS_LOCAL_WRITE) == 0)
            return;
        found = bytes_at(mr, sge.addr, sge.length);
    });
    return found;
}

std::optional<span> remote_bytes(const qp_object& at, std::uint32_t rkey, std::uint64_t address, std::size_t length,
                                 unsigned access) {
    if ((at.attr.qp_access_flags & access) == 0)
        return std::nullopt;
    if (length == 0)
        return span();
    std::optional<span> found;
    each<mr_object>([&](mr_object& mr) {
        if (mr.c->rkey == rkey && same_domain(mr.pd, at.pd) && (mr.access & access) != 0)
            found = bytes_at(mr, address, length);
    });
    each<mw_object>([&](mw_object& mw) {
        if (mw.c->rkey != rkey || mw.mr == nullptr || !same_domain(mw.pd, at.pd) || (mw.access & access) == 0)
            return;
        const std::uint64_t offset = address - mw.address;
        if (address < mw.address || offset > mw.length || length > mw.length - offset)
            return;
        found = bytes_at(*mw.mr, address, length);
    });
    return found;
}

std::size_t total(const std::vector<ibv_sge>& sges) {
    return std::accumulate(sges.begin(), sges.end(), std::size_t{0},
                           [](std::size_t sum, const ibv_sge& sge) { return sum + sge.length; });
}

void append(std::vector<std::byte>& to, span from) {
    to.insert(to.end(), from.begin(), from.end());
}

// The message of a request, or nothing where a key or range is wrong.
std::optional<std::vector<std::byte>> gather(const qp_object& qp, const posted_wr& wr) {
    if ((wr.flags & IBV_SEND_INLINE) != 0)
        return wr.inline_data;
    std::vector<std::byte> message;
    for (const ibv_sge& sge : wr.sges) {
        const auto part = local_bytes(qp.pd, sge, false);
        if (!part)
            return std::nullopt;
        append(message, *part);
    }
    return message;
}

bool scatter(const pd_object* pd, const std::vector<ibv_sge>& sges, const std::vector<std::byte>& message) {
    std::vector<span> places;
    for (const ibv_sge& sge : sges) {
        const auto place = local_bytes(pd, sge, true);
        if (!place)
            return false;
        places.push_back(*place);
    }
    std::size_t done = 0;
    for (const span place : places) {
        const std::size_t n = std::min(place.size(), message.size() - done);
        if (n > 0)
            std::memcpy(place.data(), message.data() + done, n);
        done += n;
    }
    return true;
}

void invalidate(const pd_object* pd, std::uint32_t rkey) {
    each<mw_object>([&](mw_object& mw) {
        if (mw.c->rkey == rkey && same_domain(mw.pd, pd))
            bind_window(mw, nullptr, {});
    });
}

// ---------------------------------------------------------------- the receiving side

std::optional<posted_wr> take_recv(qp_object& qp) {
    auto& queue = qp.srq != nullptr ? qp.srq->recvs : qp.recvs;
    if (queue.empty())
        return std::nullopt;
    posted_wr wr = std::move(queue.front());
    queue.pop_front();
    if (qp.srq != nullptr && qp.srq->attr.srq_limit > 0 && queue.size() < qp.srq->attr.srq_limit) {
        qp.srq->attr.srq_limit = 0;
        queue_async(*context_of(qp.c->context), IBV_EVENT_SRQ_LIMIT_REACHED, qp.srq, 0);
    }
    return wr;
}

bool can_receive(const qp_object& qp) {
    return qp.attr.qp_state == IBV_QPS_RTR || qp.attr.qp_state == IBV_QPS_RTS || qp.attr.qp_state == IBV_QPS_SQD;
}

void fill_imm_or_key(ibv_wc& wc, const ibv_send_wr& wr) {
    const int opcode = load_enum(wr.opcode);
    if (opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        wc.wc_flags |= IBV_WC_WITH_IMM;
        wc.imm_data = wr.imm_data;
    } else if (opcode == IBV_WR_SEND_WITH_INV) {
        wc.wc_flags |= IBV_WC_WITH_INV;
        wc.invalidated_rkey = wr.invalidate_rkey;
    }
}

// Puts a message into a posted receive. The status that the sender sees.
ibv_wc_status deliver(qp_object& to, const posted_wr& recv, const posted_wr& send,
                      const std::vector<std::byte>& message, ibv_wc_opcode opcode, std::size_t length) {
    const auto refuse = [&](ibv_wc_status here, ibv_wc_status there) {
        complete_recv(to, failed_wc(recv.wr_id, here, to.c->qp_num, false), true);
        flush(to);
        return there;
    };
    if (message.size() > total(recv.sges))
        return refuse(IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
    if (!scatter(to.pd, recv.sges, message))
        return refuse(IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
    ibv_wc wc = success_wc(recv.wr_id, opcode, to.c->qp_num);
    wc.byte_len = static_cast<std::uint32_t>(length);
    fill_imm_or_key(wc, send.wr);
    if (load_enum(send.wr.opcode) == IBV_WR_SEND_WITH_INV)
        invalidate(to.pd, send.wr.invalidate_rkey);
    complete_recv(to, wc, (send.flags & IBV_SEND_SOLICITED) != 0);
    return IBV_WC_SUCCESS;
}

ibv_wc_status access_error(qp_object& at) {
    queue_async(*context_of(at.c->context), IBV_EVENT_QP_ACCESS_ERR, &at, 0);
    flush(at);
    return IBV_WC_REM_ACCESS_ERR;
}

// ---------------------------------------------------------------- datagrams

void deliver_datagram(qp_object& from, qp_object& to, const posted_wr& send, const std::vector<std::byte>& payload,
                      const ibv_ah_attr& path) {
    constexpr std::size_t header_size = sizeof(ibv_grh);
    const std::uint32_t asked = send.wr.wr.ud.remote_qkey;
    const std::uint32_t qkey = (asked & 0x80000000U) != 0 ? from.attr.qkey : asked;
    if (!can_receive(to) || to.attr.qkey != qkey)
        return; // dropped
    const auto recv = take_recv(to);
    if (!recv)
        return;
    ibv_grh header = {};
    header.version_tclass_flow = htonl(6U << 28U);
    header.next_hdr = 17;
    header.hop_limit = path.grh.hop_limit;
    header.sgid = header.dgid = path.grh.dgid;
    std::vector<std::byte> message(header_size + payload.size());
    std::memcpy(message.data(), &header, header_size);
    std::copy(payload.begin(), payload.end(), message.begin() + header_size);
    if (message.size() > total(recv->sges) || !scatter(to.pd, recv->sges, message)) {
        complete_recv(to, failed_wc(recv->wr_id, IBV_WC_LOC_LEN_ERR, to.c->qp_num, false), true);
        return flush(to);
    }
    ibv_wc wc = success_wc(recv->wr_id, IBV_WC_RECV, to.c->qp_num);
    wc.byte_len = static_cast<std::uint32_t>(message.size());
    wc.src_qp = from.c->qp_num;
    wc.wc_flags = IBV_WC_GRH;
    wc.pkey_index = 0;
    wc.slid = 0;
    wc.sl = path.sl;
    wc.dlid_path_bits = 0;
    fill_imm_or_key(wc, send.wr);
    complete_recv(to, wc, (send.flags & IBV_SEND_SOLICITED) != 0);
}

ibv_wc_status send_datagram(qp_object& from, const posted_wr& send) {
    const auto payload = gather(from, send);
    if (!payload)
        return IBV_WC_LOC_PROT_ERR;
    const auto* ah = find<ah_object>(send.wr.wr.ud.ah);
    if (ah == nullptr) {
        report_bad_handle("ibv_post_send", "AH", send.wr.wr.ud.ah);
        return IBV_WC_LOC_QP_OP_ERR;
    }
    constexpr std::uint32_t multicast_qpn = 0xffffff;
    if (send.wr.wr.ud.remote_qpn != multicast_qpn) {
        const auto it = the().qps.find(send.wr.wr.ud.remote_qpn);
        if (it != the().qps.end() && it->second != nullptr)
            deliver_datagram(from, *it->second, send, *payload, ah->attr);
        return IBV_WC_SUCCESS;
    }
    for (const auto& [number, qp] : the().qps) {
        if (qp == nullptr)
            continue;
        const bool member = std::any_of(qp->groups.begin(), qp->groups.end(), [&](const auto& g) {
            return std::memcmp(&g.first, &ah->attr.grh.dgid, sizeof g.first) == 0;
        });
        if (member)
            deliver_datagram(from, *qp, send, *payload, ah->attr);
    }
    return IBV_WC_SUCCESS;
}

// ---------------------------------------------------------------- connected queues

// Nothing: it has to wait.
using result = std::optional<ibv_wc_status>;

result send_message(qp_object& from, qp_object& to, const posted_wr& send, bool write) {
    std::vector<std::byte> message;
    std::size_t length = total(send.sges);
    if (!write) {
        auto gathered = gather(from, send);
        if (!gathered)
            return IBV_WC_LOC_PROT_ERR;
        message = std::move(*gathered);
        length = message.size();
    } else if ((send.flags & IBV_SEND_INLINE) != 0) {
        length = send.inline_data.size();
    }
    const auto recv = take_recv(to);
    if (!recv) {
        if (from.qp_type == IBV_QPT_UC)
            return IBV_WC_SUCCESS; // lost
        if (from.attr.rnr_retry == 7)
            return std::nullopt;
        return IBV_WC_RNR_RETRY_EXC_ERR;
    }
    return deliver(to, *recv, send, message, write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, length);
}

result write_remote(qp_object& from, qp_object& to, const posted_wr& send) {
    const bool with_imm = load_enum(send.wr.opcode) == IBV_WR_RDMA_WRITE_WITH_IMM;
    const auto& recvs = to.srq != nullptr ? to.srq->recvs : to.recvs;
    if (with_imm && recvs.empty() && from.attr.rnr_retry == 7)
        return std::nullopt;
    const auto message = gather(from, send);
    if (!message)
        return IBV_WC_LOC_PROT_ERR;
    const auto place =
        remote_bytes(to, send.wr.wr.rdma.rkey, send.wr.wr.rdma.remote_addr, message->size(), IBV_ACCESS_REMOTE_WRITE);
    if (!place)
        return access_error(to);
    if (!message->empty())
        std::memcpy(place->data(), message->data(), message->size());
    return with_imm ? send_message(from, to, send, true) : result(IBV_WC_SUCCESS);
}

result read_remote(qp_object& from, qp_object& to, const posted_wr& send) {
    const auto place =
        remote_bytes(to, send.wr.wr.rdma.rkey, send.wr.wr.rdma.remote_addr, total(send.sges), IBV_ACCESS_REMOTE_READ);
    if (!place)
        return access_error(to);
    return scatter(from.pd, send.sges, {place->begin(), place->end()}) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

result atomic(qp_object& from, qp_object& to, const posted_wr& send) {
    const auto& a = send.wr.wr.atomic;
    if (a.remote_addr % sizeof(std::uint64_t) != 0)
        return IBV_WC_REM_INV_REQ_ERR;
    const auto place = remote_bytes(to, a.rkey, a.remote_addr, sizeof(std::uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
    if (!place)
        return access_error(to);
    std::uint64_t before = 0;
    std::memcpy(&before, place->data(), sizeof before);
    std::uint64_t now = before + a.compare_add;
    if (load_enum(send.wr.opcode) == IBV_WR_ATOMIC_CMP_AND_SWP)
        now = before == a.compare_add ? a.swap : before;
    std::vector<std::byte> old(sizeof before);
    std::memcpy(old.data(), &before, sizeof before);
    if (!scatter(from.pd, send.sges, old))
        return IBV_WC_LOC_PROT_ERR;
    std::memcpy(place->data(), &now, sizeof now);
    return IBV_WC_SUCCESS;
}

result bind_or_invalidate(qp_object& from, const posted_wr& send) {
    if (load_enum(send.wr.opcode) == IBV_WR_LOCAL_INV) {
        invalidate(from.pd, send.wr.invalidate_rkey);
        return IBV_WC_SUCCESS;
    }
    auto* mw = find<mw_object>(send.wr.bind_mw.mw);
    auto* mr = find<mr_object>(send.wr.bind_mw.bind_info.mr);
    if (mw == nullptr || bind_window(*mw, mr, send.wr.bind_mw.bind_info) != 0)
        return IBV_WC_MW_BIND_ERR;
    mw->c->rkey = send.wr.bind_mw.rkey;
    return IBV_WC_SUCCESS;
}

result execute(qp_object& from, const posted_wr& send) {
    const int opcode = load_enum(send.wr.opcode);
    if (opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW)
        return bind_or_invalidate(from, send);
    if (from.qp_type == IBV_QPT_UD)
        return send_datagram(from, send);
    const auto it = the().qps.find(from.attr.dest_qp_num);
    if (it == the().qps.end())
        return std::nullopt; // the other end is not played here
    qp_object* to = it->second;
    const bool dead = to == nullptr || to->attr.qp_state == IBV_QPS_ERR;
    if (dead)
        return from.qp_type == IBV_QPT_UC ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
    if (!can_receive(*to))
        return std::nullopt;
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case opcode_atomic_write:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return write_remote(from, *to, send);
    case opcode_flush: return IBV_WC_SUCCESS;
    case IBV_WR_RDMA_READ: return read_remote(from, *to, send);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return atomic(from, *to, send);
    default: return send_message(from, *to, send, false);
    }
}

} // namespace

void run_sends(qp_object& qp) {
    if (the().settings.hold_data_path)
        return;
    while (!qp.sends.empty() && qp.attr.qp_state == IBV_QPS_RTS) {
        const auto done = execute(qp, qp.sends.front().copy);
        if (!done)
            return;
        if (qp.sends.empty())
            return; // the receiver was this queue itself, and failed
        const queued_send wr = std::move(qp.sends.front());
        qp.sends.pop_front();
        if (*done != IBV_WC_SUCCESS) {
            flush_send(qp, wr, *done);
            flush(qp);
            return;
        }
        if (!signaled(qp, wr.copy))
            continue;
        const int opcode = load_enum(wr.copy.wr.opcode);
        ibv_wc wc = success_wc(wr.copy.wr_id, completion_opcode(opcode), qp.c->qp_num);
        if (opcode == IBV_WR_RDMA_READ)
            wc.byte_len = static_cast<std::uint32_t>(total(wr.copy.sges));
        complete_send(qp, wr, wc);
    }
}

void run_all() {
    for (const auto& [number, qp] : the().qps)
        if (qp != nullptr)
            run_sends(*qp);
}

// ---------------------------------------------------------------- posting

// The completions that a call may cause are ordered after it: said before, since TSan is blind then.
void order_before_completions(const ibv_qp* qp) {
    std::vector<const void*> queues;
    {
        section lock;
        const auto add = [&](const qp_object* o) {
            if (o == nullptr)
                return;
            for (const cq_object* cq : {o->send_cq, o->recv_cq})
                if (cq != nullptr)
                    queues.push_back(cq->handle);
        };
        const auto* own = find<qp_object>(qp);
        add(own);
        if (own == nullptr)
            return;
        for (const auto& [number, other] : the().qps)
            if (other != nullptr && (own->qp_type == IBV_QPT_UD || number == own->attr.dest_qp_num))
                add(other);
    }
    for (const void* cq : queues)
        happens_before(cq);
}

int check_send(const qp_object& qp, const ibv_send_wr& wr) {
    const int opcode = load_enum(wr.opcode);
    const bool known = (opcode >= IBV_WR_RDMA_WRITE && opcode <= IBV_WR_TSO) || opcode == opcode_flush ||
                       opcode == opcode_atomic_write;
    if (!known || wr.num_sge < 0 || static_cast<unsigned>(wr.num_sge) > qp.cap.max_send_sge)
        return EINVAL;
    const bool is_atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (is_atomic && (wr.num_sge != 1 || wr.sg_list->length != sizeof(std::uint64_t)))
        return EINVAL;
    const bool datagram = opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_TSO;
    if (qp.qp_type == IBV_QPT_UD && !datagram)
        return EINVAL;
    if ((wr.send_flags & IBV_SEND_INLINE) == 0)
        return 0;
    if (is_atomic || opcode == IBV_WR_RDMA_READ)
        return EINVAL;
    std::size_t length = 0;
    for (int i = 0; i < wr.num_sge; ++i)
        length += wr.sg_list[i].length;
    return length > qp.cap.max_inline_data ? EINVAL : 0;
}

namespace {

// Everything is copied: the caller may free or change its structs when the post returns.
posted_wr copy_send(const ibv_send_wr& wr) {
    posted_wr copy;
    copy.wr_id = wr.wr_id;
    copy.flags = wr.send_flags;
    std::memcpy(&copy.opcode, &wr.opcode, sizeof copy.opcode);
    std::memcpy(&copy.wr, &wr, sizeof wr);
    copy.wr.next = nullptr;
    copy.wr.sg_list = nullptr;
    copy.sges.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    if ((wr.send_flags & IBV_SEND_INLINE) == 0)
        return copy;
    for (const ibv_sge& sge : copy.sges)
        if (sge.length > 0)
            append(copy.inline_data, span(reinterpret_cast<std::byte*>(sge.addr), sge.length));
    return copy;
}

posted_wr copy_recv(const ibv_recv_wr& wr) {
    posted_wr copy;
    copy.wr_id = wr.wr_id;
    copy.sges.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    return copy;
}

} // namespace

int add_send(qp_object& qp, const ibv_send_wr& wr) {
    if (qp.attr.qp_state == IBV_QPS_RESET || qp.send_cq == nullptr)
        return EINVAL;
    if (const int error = check_send(qp, wr))
        return error;
    if (qp.posted - qp.released >= qp.cap.max_send_wr)
        return ENOMEM;
    const queued_send request = {copy_send(wr), ++qp.posted};
    if (qp.attr.qp_state == IBV_QPS_ERR)
        flush_send(qp, request, IBV_WC_WR_FLUSH_ERR);
    else
        qp.sends.push_back(request);
    return 0;
}

namespace {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    c_call call("ibv_post_send", qp, returns::error_number);
    if (call.injected()) {
        *bad = wr;
        return call.finish(call.injected_error());
    }
    order_before_completions(qp);
    section lock;
    auto* o = expect<qp_object>(call.name(), "QP", qp);
    int error = o == nullptr ? EINVAL : 0;
    int n = 0;
    for (; error == 0 && wr != nullptr; ++n) {
        error = add_send(*o, *wr);
        if (error == 0)
            wr = wr->next;
    }
    if (error != 0)
        *bad = wr;
    call.detail(std::to_string(n) + (n == 1 ? " request" : " requests"));
    if (o != nullptr)
        run_sends(*o);
    return call.finish(error);
}

int check_recv(const ibv_recv_wr& wr, std::uint32_t max_sge, std::size_t queued, std::uint32_t max_wr) {
    if (wr.num_sge < 0 || static_cast<unsigned>(wr.num_sge) > max_sge)
        return EINVAL;
    return queued >= max_wr ? ENOMEM : 0;
}

int add_recv(qp_object& qp, const ibv_recv_wr& wr) {
    if (qp.attr.qp_state == IBV_QPS_RESET || qp.srq != nullptr || qp.recv_cq == nullptr)
        return EINVAL;
    if (const int error = check_recv(wr, qp.cap.max_recv_sge, qp.recvs.size(), qp.cap.max_recv_wr))
        return error;
    if (qp.attr.qp_state == IBV_QPS_ERR)
        complete_recv(qp, failed_wc(wr.wr_id, IBV_WC_WR_FLUSH_ERR, qp.c->qp_num, false), false);
    else
        qp.recvs.push_back(copy_recv(wr));
    return 0;
}

int add_recv(srq_object& srq, const ibv_recv_wr& wr) {
    if (const int error = check_recv(wr, srq.attr.max_sge, srq.recvs.size(), srq.attr.max_wr))
        return error;
    srq.recvs.push_back(copy_recv(wr));
    return 0;
}

int add_recv(wq_object& wq, const ibv_recv_wr& wr) {
    if (wq.c->state != IBV_WQS_RDY)
        return EINVAL;
    if (const int error = check_recv(wr, UINT32_MAX, wq.recvs.size(), wq.max_wr))
        return error;
    wq.recvs.push_back(copy_recv(wr));
    return 0;
}

template <class Object>
int post_recvs(const char* name, const char* what, const void* queue, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    c_call call(name, queue, returns::error_number);
    if (call.injected()) {
        *bad = wr;
        return call.finish(call.injected_error());
    }
    if (Object::type == kind::qp)
        order_before_completions(static_cast<const ibv_qp*>(queue));
    section lock;
    auto* o = expect<Object>(call.name(), what, queue);
    int error = o == nullptr ? EINVAL : 0;
    int n = 0;
    for (; error == 0 && wr != nullptr; ++n) {
        error = add_recv(*o, *wr);
        if (error == 0)
            wr = wr->next;
    }
    if (error != 0)
        *bad = wr;
    call.detail(std::to_string(n) + (n == 1 ? " request" : " requests"));
    run_all(); // a sender may have waited for this
    return call.finish(error);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    return post_recvs<qp_object>("ibv_post_recv", "QP", qp, wr, bad);
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    return post_recvs<srq_object>("ibv_post_srq_recv", "SRQ", srq, wr, bad);
}

} // namespace

int post_wq_recv(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
    return post_recvs<wq_object>("ibv_post_wq_recv", "WQ", wq, wr, bad);
}

// ---------------------------------------------------------------- polling

namespace {

queued_wc take_wc(cq_object& cq) {
    queued_wc taken = cq.queue.front();
    cq.queue.pop_front();
    if (taken.releases != nullptr)
        taken.releases->released = std::max(taken.releases->released, taken.up_to);
    taken.releases = nullptr;
    return taken;
}

int poll_cq(ibv_cq* cq, int n, ibv_wc* wc) {
    c_call call("ibv_poll_cq", cq, returns::minus_one);
    if (call.injected())
        return call.finish(call.injected_error());
    int got = 0;
    {
        section lock;
        auto* o = expect<cq_object>(call.name(), "CQ", cq);
        if (o == nullptr)
            return call.finish(EINVAL);
        for (; got < n && !o->queue.empty(); ++got) {
            const queued_wc taken = take_wc(*o);
            std::memcpy(&wc[got], &taken.wc, sizeof taken.wc);
        }
    }
    if (got > 0)
        happens_after(cq);
    else
        call.quiet();
    return call.number(got);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
    return int_call("ibv_req_notify_cq", cq, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<cq_object>(call.name(), "CQ", cq);
        if (o == nullptr)
            return EINVAL;
        if (o->armed != cq_object::arm::any)
            o->armed = solicited_only != 0 ? cq_object::arm::solicited : cq_object::arm::any;
        return 0;
    });
}

// ---------------------------------------------------------------- the extended poll

int advance(const char* name, ibv_cq_ex* cq, bool start) {
    c_call call(name, cq, returns::error_number);
    if (call.injected())
        return call.finish(call.injected_error());
    {
        section lock;
        auto* o = expect<cq_object>(call.name(), "CQ", cq);
        if (o == nullptr)
            return call.finish(EINVAL);
        if (o->polling == start) {
            report(std::string(name) + ": " + o->name + (start ? " is being polled already" : " is not being polled"));
            return call.finish(EINVAL);
        }
        if (o->queue.empty())
            return call.finish(ENOENT);
        o->polling = true;
        o->current = take_wc(*o);
        cq->wr_id = o->current.wc.wr_id;
        std::memcpy(&cq->status, &o->current.wc.status, sizeof cq->status);
    }
    happens_after(cq);
    return call.finish(0);
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
    if (attr == nullptr || attr->comp_mask != 0)
        return EINVAL;
    return advance("ibv_start_poll", cq, true);
}
int next_poll(ibv_cq_ex* cq) {
    return advance("ibv_next_poll", cq, false);
}
void end_poll(ibv_cq_ex* cq) {
    c_call call("ibv_end_poll", cq, returns::nothing);
    section lock;
    auto* o = expect<cq_object>(call.name(), "CQ", cq);
    if (o == nullptr)
        return;
    if (!o->polling)
        report(std::string(call.name()) + ": " + o->name + " is not being polled");
    o->polling = false;
}

// Providers leave the functions of fields that were not asked for null. `wanted` 0: a field that is always there.
queued_wc current(const ibv_cq_ex* cq, std::uint64_t wanted) {
    section lock;
    const auto* o = expect<cq_object>("ibv_wc_read", "CQ", cq);
    if (o == nullptr)
        return {};
    if (!o->polling)
        report("ibv_wc_read: " + o->name + " is not being polled");
    if ((o->wc_flags & wanted) != wanted)
        report("ibv_wc_read: " + o->name + " was not made for this field, this would crash");
    return o->current;
}

int bench_start_poll(ibv_cq_ex*, ibv_poll_cq_attr*) {
    return 0;
}
int bench_next_poll(ibv_cq_ex*) {
    return 0;
}
void bench_end_poll(ibv_cq_ex*) {}

} // namespace

void set_extended_poll(ibv_cq_ex& cq, bool bench) {
    cq.start_poll = bench ? bench_start_poll : start_poll;
    cq.next_poll = bench ? bench_next_poll : next_poll;
    cq.end_poll = bench ? bench_end_poll : end_poll;
    if (bench) {
        cq.wr_id = 1;
        cq.status = IBV_WC_SUCCESS;
    }
    cq.read_opcode = [](ibv_cq_ex* c) {
        return current(c, 0).wc.opcode;
    };
    cq.read_vendor_err = [](ibv_cq_ex* c) {
        return current(c, 0).wc.vendor_err;
    };
    cq.read_wc_flags = [](ibv_cq_ex* c) {
        return current(c, 0).wc.wc_flags;
    };
    cq.read_byte_len = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_BYTE_LEN).wc.byte_len;
    };
    cq.read_imm_data = [](ibv_cq_ex* c) { // the invalidated rkey as well
        return current(c, IBV_WC_EX_WITH_IMM).wc.imm_data;
    };
    cq.read_qp_num = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_QP_NUM).wc.qp_num;
    };
    cq.read_src_qp = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_SRC_QP).wc.src_qp;
    };
    cq.read_slid = [](ibv_cq_ex* c) {
        return std::uint32_t{current(c, IBV_WC_EX_WITH_SLID).wc.slid};
    };
    cq.read_sl = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_SL).wc.sl;
    };
    cq.read_dlid_path_bits = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_DLID_PATH_BITS).wc.dlid_path_bits;
    };
    cq.read_completion_ts = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP).more.timestamp;
    };
    cq.read_cvlan = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_CVLAN).more.cvlan;
    };
    cq.read_flow_tag = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_FLOW_TAG).more.flow_tag;
    };
    cq.read_tm_info = [](ibv_cq_ex* c, ibv_wc_tm_info* info) {
        *info = current(c, IBV_WC_EX_WITH_TM_INFO).more.tm;
    };
    cq.read_completion_wallclock_ns = [](ibv_cq_ex* c) {
        return current(c, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK).more.wallclock_ns;
    };
}

// ---------------------------------------------------------------- for benchmarks

namespace {

int bench_post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**) {
    return 0;
}
int bench_post_recv(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) {
    return 0;
}
int bench_post_srq_recv(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) {
    return 0;
}
int bench_req_notify_cq(ibv_cq*, int) {
    return 0;
}
int bench_poll_cq(ibv_cq*, int n, ibv_wc* wc) {
    static constexpr ibv_wc filled = {1, IBV_WC_SUCCESS, IBV_WC_RECV, 0, 64, {}, 17, 17, 0, 0, 0, 0, 0};
    for (int i = 0; i < n; ++i)
        wc[i] = filled;
    return n;
}

} // namespace

void install_ops(ibv_context& context, bool bench) {
    auto& extended = *verbs_get_ctx(&context);
    install_queries(extended);
    install_objects(extended);
    install_steering(extended);
    context.ops.post_send = bench ? bench_post_send : post_send;
    context.ops.post_recv = bench ? bench_post_recv : post_recv;
    context.ops.post_srq_recv = bench ? bench_post_srq_recv : post_srq_recv;
    context.ops.poll_cq = bench ? bench_poll_cq : poll_cq;
    context.ops.req_notify_cq = bench ? bench_req_notify_cq : req_notify_cq;
}

} // namespace fake::detail

// ---------------------------------------------------------------- the control interface

namespace fake {

using namespace detail;

void push_completion(ibv_cq* cq, const ibv_wc& wc, bool solicited) {
    happens_before(cq);
    section lock;
    auto* o = expect<cq_object>("push_completion", "CQ", cq);
    if (o == nullptr)
        return;
    queued_wc queued;
    std::memcpy(&queued.wc, &wc, sizeof wc);
    complete(*o, queued, solicited);
}

void push_completion(ibv_cq* cq, const ibv_wc& wc, const extended_fields& more) {
    happens_before(cq);
    section lock;
    auto* o = expect<cq_object>("push_completion", "CQ", cq);
    if (o == nullptr)
        return;
    queued_wc queued;
    std::memcpy(&queued.wc, &wc, sizeof wc);
    queued.more = more;
    complete(*o, queued, true);
}

void push_success(ibv_cq* cq, std::uint64_t wr_id, ibv_wc_opcode opcode, std::uint32_t qp_num, std::uint32_t byte_len) {
    ibv_wc wc = success_wc(wr_id, opcode, qp_num);
    if ((opcode & IBV_WC_RECV) != 0 || opcode == IBV_WC_RDMA_READ)
        wc.byte_len = byte_len;
    push_completion(cq, wc);
}

void push_failure(ibv_cq* cq, std::uint64_t wr_id, ibv_wc_status status, std::uint32_t qp_num) {
    push_completion(cq, failed_wc(wr_id, status, qp_num, false));
}

void push_cq_event(ibv_cq* cq) {
    happens_before(cq);
    section lock;
    auto* o = expect<cq_object>("push_cq_event", "CQ", cq);
    if (o == nullptr)
        return;
    if (o->channel == nullptr)
        report("push_cq_event: " + o->name + " has no completion channel");
    else
        queue_cq_event(*o);
}

void run_posted() {
    section lock;
    const bool held = std::exchange(the().settings.hold_data_path, false);
    run_all();
    the().settings.hold_data_path = held;
}

bool armed(const ibv_cq* cq) {
    section lock;
    const auto* o = find<cq_object>(cq);
    return o != nullptr && o->armed != cq_object::arm::none;
}

bool polling(const ibv_cq* cq) {
    section lock;
    const auto* o = find<cq_object>(cq);
    return o != nullptr && o->polling;
}

std::size_t queued(const ibv_cq* cq) {
    section lock;
    const auto* o = find<cq_object>(cq);
    return o == nullptr ? 0 : o->queue.size();
}

std::size_t queued(const ibv_comp_channel* channel) {
    section lock;
    const auto* o = find<comp_channel_object>(channel);
    return o == nullptr ? 0 : o->queue.size();
}

std::vector<posted_wr> posted_sends(const ibv_qp* qp) {
    section lock;
    std::vector<posted_wr> requests;
    if (const auto* o = find<qp_object>(qp))
        for (const queued_send& wr : o->sends)
            requests.push_back(wr.copy);
    return requests;
}

std::vector<posted_wr> posted_recvs(const ibv_qp* qp) {
    section lock;
    const auto* o = find<qp_object>(qp);
    return o == nullptr ? std::vector<posted_wr>() : std::vector<posted_wr>(o->recvs.begin(), o->recvs.end());
}

std::vector<posted_wr> posted_recvs(const ibv_srq* srq) {
    section lock;
    const auto* o = find<srq_object>(srq);
    return o == nullptr ? std::vector<posted_wr>() : std::vector<posted_wr>(o->recvs.begin(), o->recvs.end());
}

} // namespace fake
