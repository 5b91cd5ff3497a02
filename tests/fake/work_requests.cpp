// libibverbs: the extended work-request API. A batch is collected, checked and posted as a whole.
#include "internal.hpp"

namespace fake::detail {

namespace {

struct operation {
    const char* name;
    int opcode;
    std::uint64_t flag;
    bool data; // needs its SGEs or inline data
};

qp_object* building(const char* name, ibv_qp_ex* qp) {
    auto* o = expect<qp_object>(name, "QP", &qp->qp_base);
    if (o == nullptr)
        return nullptr;
    if (o->building)
        return o;
    report(std::string(name) + ": " + o->name + " has no batch, this would corrupt its queue");
    return nullptr;
}

void finish_last(qp_object& o) {
    if (o.needs_data)
        report("ibv_wr_set_sge: missing for a request of " + o.name + ", this would post garbage");
    if (o.needs_address)
        report("ibv_wr_set_ud_addr, ibv_wr_set_xrc_srqn: missing for a request of " + o.name);
    o.needs_data = o.needs_address = false;
}

template <class Fill>
void append(ibv_qp_ex* qp, const operation& op, Fill fill) {
    c_call call(op.name, &qp->qp_base, returns::nothing);
    section lock;
    qp_object* o = building(op.name, qp);
    if (o == nullptr)
        return;
    finish_last(*o);
    if ((*o->send_ops & op.flag) == 0)
        report(std::string(op.name) + ": " + o->name + " was not made for it, this would crash");
    posted_wr wr;
    wr.wr_id = qp->wr_id;
    wr.flags = qp->wr_flags;
    store_enum(wr.opcode, op.opcode);
    store_enum(wr.wr.opcode, op.opcode);
    wr.wr.wr_id = qp->wr_id;
    wr.wr.send_flags = qp->wr_flags;
    fill(wr.wr);
    o->batch.push_back(wr);
    o->needs_data = op.data;
    const bool own = op.opcode == IBV_WR_LOCAL_INV || op.opcode == IBV_WR_BIND_MW; // which goes to nobody
    o->needs_address = !own && (o->qp_type == IBV_QPT_UD || o->qp_type == IBV_QPT_XRC_SEND);
}

template <class Fill>
void set(const char* name, ibv_qp_ex* qp, Fill fill) {
    c_call call(name, &qp->qp_base, returns::nothing);
    section lock;
    qp_object* o = building(name, qp);
    if (o == nullptr)
        return;
    if (o->batch.empty())
        return report(std::string(name) + ": before any request");
    fill(*o, o->batch.back());
}

template <class Fill>
void set_data(const char* name, ibv_qp_ex* qp, Fill fill) {
    set(name, qp, [&](qp_object& o, posted_wr& wr) {
        if (!o.needs_data)
            report(std::string(name) + ": a request of " + o.name + " has its data, or takes none");
        o.needs_data = false;
        fill(o, wr);
    });
}

void rdma(ibv_send_wr& wr, std::uint32_t rkey, std::uint64_t address) {
    wr.wr.rdma.rkey = rkey;
    wr.wr.rdma.remote_addr = address;
}

void set_inline(const char* name, ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* pieces) {
    set_data(name, qp, [&](qp_object&, posted_wr& wr) {
        wr.flags |= IBV_SEND_INLINE;
        for (std::size_t i = 0; i < count; ++i) {
            const auto* bytes = static_cast<const std::byte*>(pieces[i].addr);
            wr.inline_data.insert(wr.inline_data.end(), bytes, bytes + pieces[i].length);
        }
    });
}

// A request as ibv_post_send has it, whose SGEs lie in the copy.
ibv_send_wr raw(posted_wr& wr) {
    ibv_send_wr request = wr.wr;
    request.send_flags = wr.flags;
    if ((wr.flags & IBV_SEND_INLINE) != 0) {
        ibv_sge all = {};
        all.addr = reinterpret_cast<std::uintptr_t>(wr.inline_data.data());
        all.length = static_cast<std::uint32_t>(wr.inline_data.size());
        wr.sges.assign(1, all);
    }
    request.sg_list = wr.sges.data();
    request.num_sge = static_cast<int>(wr.sges.size());
    return request;
}

int post_batch(qp_object& o) {
    if (o.attr.qp_state == IBV_QPS_RESET)
        return EINVAL;
    for (posted_wr& wr : o.batch)
        if (const int error = check_send(o, raw(wr)))
            return error;
    if (o.posted - o.released + o.batch.size() > o.cap.max_send_wr)
        return ENOMEM;
    for (posted_wr& wr : o.batch)
        if (const int error = add_send(o, raw(wr)))
            return error;
    return 0;
}

void over(qp_object& o) {
    o.building = false;
    o.needs_data = o.needs_address = false;
    o.batch.clear();
}

void start(ibv_qp_ex* qp) {
    c_call call("ibv_wr_start", &qp->qp_base, returns::nothing);
    section lock;
    auto* o = expect<qp_object>(call.name(), "QP", &qp->qp_base);
    if (o == nullptr)
        return;
    if (o->building)
        report("ibv_wr_start: " + o->name + " has a batch already, this would hang");
    over(*o);
    o->building = true;
}

int complete(ibv_qp_ex* qp) {
    order_before_completions(&qp->qp_base);
    return int_call("ibv_wr_complete", &qp->qp_base, returns::error_number, [&](c_call& call) {
        section lock;
        qp_object* o = building(call.name(), qp);
        if (o == nullptr)
            return EINVAL;
        finish_last(*o);
        call.detail(std::to_string(o->batch.size()) + (o->batch.size() == 1 ? " request" : " requests"));
        const int error = post_batch(*o);
        over(*o);
        run_sends(*o);
        return error;
    });
}

// A rule lets the call fail before it does anything: the batch is over all the same.
int complete_or_fail(ibv_qp_ex* qp) {
    const int result = complete(qp);
    section lock;
    if (auto* o = find<qp_object>(&qp->qp_base))
        over(*o);
    return result;
}

void abort(ibv_qp_ex* qp) {
    c_call call("ibv_wr_abort", &qp->qp_base, returns::nothing);
    section lock;
    if (qp_object* o = building(call.name(), qp))
        over(*o);
}

// Newer than the oldest headers.
template <class Qp>
void install_newer(Qp& qp) {
    if constexpr (requires { qp.wr_atomic_write; })
        qp.wr_atomic_write = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address, const void* bytes) {
            append(q, {"ibv_wr_atomic_write", opcode_atomic_write, 1U << 12, true},
                   [&](ibv_send_wr& wr) { rdma(wr, rkey, address); });
            const ibv_data_buf eight = {const_cast<void*>(bytes), 8};
            set_inline("ibv_wr_atomic_write", q, 1, &eight);
        };
    if constexpr (requires { qp.wr_flush; })
        qp.wr_flush = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address, std::size_t length, std::uint8_t type,
                         std::uint8_t level) {
            append(q, {"ibv_wr_flush", opcode_flush, 1U << 11, false}, [&](ibv_send_wr& wr) {
                rdma(wr, rkey, address);
                wr.wr.atomic.compare_add = length; // where a test finds them
                wr.wr.atomic.swap = static_cast<std::uint64_t>(type) << 8 | level;
            });
        };
}

} // namespace

void install_work_requests(ibv_qp_ex& qp, bool bench) {
    if (bench) {
        qp.wr_start = [](ibv_qp_ex*) {
        };
        qp.wr_complete = [](ibv_qp_ex*) {
            return 0;
        };
        qp.wr_abort = [](ibv_qp_ex*) {
        };
        qp.wr_send = [](ibv_qp_ex*) {
        };
        qp.wr_rdma_write = [](ibv_qp_ex*, std::uint32_t, std::uint64_t) {
        };
        qp.wr_set_sge = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint32_t) {
        };
        return;
    }
    qp.comp_mask = 0;
    qp.wr_start = start;
    qp.wr_complete = complete_or_fail;
    qp.wr_abort = abort;
    qp.wr_send = [](ibv_qp_ex* q) {
        append(q, {"ibv_wr_send", IBV_WR_SEND, IBV_QP_EX_WITH_SEND, true}, [](ibv_send_wr&) {});
    };
    qp.wr_send_imm = [](ibv_qp_ex* q, __be32 imm) {
        append(q, {"ibv_wr_send_imm", IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM, true},
               [&](ibv_send_wr& wr) { wr.imm_data = imm; });
    };
    qp.wr_send_inv = [](ibv_qp_ex* q, std::uint32_t rkey) {
        append(q, {"ibv_wr_send_inv", IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV, true},
               [&](ibv_send_wr& wr) { wr.invalidate_rkey = rkey; });
    };
    qp.wr_send_tso = [](ibv_qp_ex* q, void* header, std::uint16_t size, std::uint16_t mss) {
        append(q, {"ibv_wr_send_tso", IBV_WR_TSO, IBV_QP_EX_WITH_TSO, true}, [&](ibv_send_wr& wr) {
            wr.tso.hdr = header;
            wr.tso.hdr_sz = size;
            wr.tso.mss = mss;
        });
    };
    qp.wr_rdma_write = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address) {
        append(q, {"ibv_wr_rdma_write", IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, true},
               [&](ibv_send_wr& wr) { rdma(wr, rkey, address); });
    };
    qp.wr_rdma_write_imm = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address, __be32 imm) {
        append(q, {"ibv_wr_rdma_write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, true},
               [&](ibv_send_wr& wr) {
                   rdma(wr, rkey, address);
                   wr.imm_data = imm;
               });
    };
    qp.wr_rdma_read = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address) {
        append(q, {"ibv_wr_rdma_read", IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, true},
               [&](ibv_send_wr& wr) { rdma(wr, rkey, address); });
    };
    qp.wr_atomic_cmp_swp = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                              std::uint64_t swap) {
        append(q, {"ibv_wr_atomic_cmp_swp", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, true},
               [&](ibv_send_wr& wr) {
                   wr.wr.atomic = {address, compare, swap, rkey};
               });
    };
    qp.wr_atomic_fetch_add = [](ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
        append(q, {"ibv_wr_atomic_fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, true},
               [&](ibv_send_wr& wr) {
                   wr.wr.atomic = {address, add, 0, rkey};
               });
    };
    qp.wr_local_inv = [](ibv_qp_ex* q, std::uint32_t rkey) {
        append(q, {"ibv_wr_local_inv", IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV, false},
               [&](ibv_send_wr& wr) { wr.invalidate_rkey = rkey; });
    };
    qp.wr_bind_mw = [](ibv_qp_ex* q, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
        append(q, {"ibv_wr_bind_mw", IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW, false}, [&](ibv_send_wr& wr) {
            wr.bind_mw.mw = mw;
            wr.bind_mw.rkey = rkey;
            wr.bind_mw.bind_info = *info;
        });
    };
    qp.wr_set_ud_addr = [](ibv_qp_ex* q, ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey) {
        set("ibv_wr_set_ud_addr", q, [&](qp_object& o, posted_wr& wr) {
            wr.wr.wr.ud = {ah, qpn, qkey};
            o.needs_address = false;
        });
    };
    qp.wr_set_xrc_srqn = [](ibv_qp_ex* q, std::uint32_t srqn) {
        set("ibv_wr_set_xrc_srqn", q, [&](qp_object& o, posted_wr& wr) {
            wr.wr.qp_type.xrc.remote_srqn = srqn;
            o.needs_address = false;
        });
    };
    qp.wr_set_sge = [](ibv_qp_ex* q, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
        set_data("ibv_wr_set_sge", q, [&](qp_object&, posted_wr& wr) { wr.sges = {{address, length, lkey}}; });
    };
    qp.wr_set_sge_list = [](ibv_qp_ex* q, std::size_t count, const ibv_sge* sges) {
        set_data("ibv_wr_set_sge_list", q, [&](qp_object&, posted_wr& wr) { wr.sges.assign(sges, sges + count); });
    };
    qp.wr_set_inline_data = [](ibv_qp_ex* q, void* address, std::size_t length) {
        const ibv_data_buf one = {address, length};
        set_inline("ibv_wr_set_inline_data", q, 1, &one);
    };
    qp.wr_set_inline_data_list = [](ibv_qp_ex* q, std::size_t count, const ibv_data_buf* pieces) {
        set_inline("ibv_wr_set_inline_data_list", q, count, pieces);
    };
    install_newer(qp);
}

} // namespace fake::detail
