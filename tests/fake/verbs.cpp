// libibverbs: protection domains, memory, queues and what hangs on them.
#include "internal.hpp"

#include <algorithm>
#include <cstdlib>

#include <unistd.h>

namespace fake::detail {

namespace {

std::uint32_t next_handle() {
    return the().next_handle++;
}

std::string hang_text(const char* call, const object& o, const tally& t, const char* what) {
    return std::string(call) + ": would hang, " + std::to_string(t.held()) + " of " + std::to_string(t.got) + " " +
           what + " of " + o.name + " are not acked";
}

// From here on it gets no more events. False: another thread is at it.
bool begin_end(const char* call, object& o) {
    if (o.going)
        report(std::string(call) + ": " + o.name + " is being destroyed by another call");
    return !std::exchange(o.going, true);
}

// The destroy waits until as many were acked as were got. False: reported as a hang.
bool wait_for_acks(section& lock, const char* call, object& o, const tally& t, const char* what) {
    if (lock.wait(the().settings.wait_limit, [&] { return t.held() == 0; }))
        return true;
    o.going = false;
    report(hang_text(call, o, t, what));
    return false;
}

context_object* context_above(const object& o) {
    for (object* p : o.parents) {
        if (p->what == kind::context)
            return static_cast<context_object*>(p);
        if (p->what == kind::pd || p->what == kind::xrcd)
            if (auto* c = context_above(*p))
                return c;
    }
    return nullptr;
}

// The end of objects that only have a count of children.
template <class Object>
int destroy_plain(const char* name, const char* what, const void* handle) {
    return destroy_call(name, handle, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<Object>(call.name(), what, handle);
        if (o == nullptr)
            return EINVAL;
        if (o->children > 0)
            return EBUSY;
        if constexpr (requires { o->imported; })
            if (o->imported)
                report(std::string(call.name()) + ": " + o->name + " was imported: this destroys the other process's");
        bury(*o);
        return 0;
    });
}

// ---------------------------------------------------------------- memory

bool access_allowed(unsigned access) {
    const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    return (access & remote) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

void new_keys(std::uint32_t& lkey, std::uint32_t& rkey) {
    const std::uint32_t index = the().next_key++;
    lkey = (index << 9U) | 0x41U;
    rkey = (index << 9U) | 0x100U | 0x52U;
}

} // namespace

mr_object* add_mr(const char* call, ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access,
                  std::vector<object*> more_parents) {
    auto* domain = expect<pd_object>(call, "PD", pd);
    if (domain == nullptr)
        return nullptr;
    block b;
    auto* c = new_struct<ibv_mr>(b);
    c->context = pd->context;
    c->pd = pd;
    c->addr = addr;
    c->length = length;
    c->handle = next_handle();
    new_keys(c->lkey, c->rkey);
    more_parents.insert(more_parents.begin(), domain);
    auto& o = enlist<mr_object>(c, b, std::move(more_parents));
    o.c = c;
    o.pd = domain;
    o.iova = iova;
    o.access = access;
    return &o;
}

namespace {

ibv_mr* reg_mr(const char* name, ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
    return make_call<ibv_mr>(name, pd, [&](c_call& call, ibv_mr*& made) {
        section lock;
        if (!access_allowed(access) || length == 0 || length > the().limits.max_mr_size)
            return EINVAL;
        const auto* o = add_mr(call.name(), pd, addr, length, iova, access);
        if (o == nullptr)
            return EINVAL;
        call.detail(std::to_string(length) + " bytes");
        made = o->c;
        return 0;
    });
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
    return make_call<ibv_mw>("ibv_alloc_mw", pd, [&](c_call& call, ibv_mw*& made) {
        section lock;
        auto* domain = expect<pd_object>(call.name(), "PD", pd);
        if (domain == nullptr)
            return EINVAL;
        block b;
        made = new_struct<ibv_mw>(b);
        made->context = pd->context;
        made->pd = pd;
        made->handle = next_handle();
        made->type = type;
        std::uint32_t unused = 0;
        new_keys(unused, made->rkey);
        auto& o = enlist<mw_object>(made, b, {domain});
        o.c = made;
        o.pd = domain;
        return 0;
    });
}

void unbind(mw_object& mw) {
    if (mw.mr == nullptr)
        return;
    --mw.mr->children;
    mw.parents.erase(std::remove(mw.parents.begin(), mw.parents.end(), mw.mr), mw.parents.end());
    mw.mr = nullptr;
}

int dealloc_mw(ibv_mw* mw) {
    return destroy_call("ibv_dealloc_mw", mw, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<mw_object>(call.name(), "window", mw);
        if (o == nullptr)
            return EINVAL;
        bury(*o);
        return 0;
    });
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
    return make_call<ibv_mr>("ibv_alloc_null_mr", pd, [&](c_call& call, ibv_mr*& made) {
        section lock;
        auto* o = add_mr(call.name(), pd, nullptr, SIZE_MAX, 0, IBV_ACCESS_LOCAL_WRITE);
        if (o == nullptr)
            return EINVAL;
        o->null = true;
        made = o->c;
        return 0;
    });
}

// ---------------------------------------------------------------- device memory

int copy_to_dm(ibv_dm* dm, std::uint64_t offset, const void* host, std::size_t length) {
    return int_call("ibv_memcpy_to_dm", dm, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<dm_object>(call.name(), "device memory", dm);
        if (o == nullptr || offset > o->bytes.size() || length > o->bytes.size() - offset)
            return EINVAL;
        std::memcpy(o->bytes.data() + offset, host, length);
        return 0;
    });
}

int copy_from_dm(void* host, ibv_dm* dm, std::uint64_t offset, std::size_t length) {
    return int_call("ibv_memcpy_from_dm", dm, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<dm_object>(call.name(), "device memory", dm);
        if (o == nullptr || offset > o->bytes.size() || length > o->bytes.size() - offset)
            return EINVAL;
        std::memcpy(host, o->bytes.data() + offset, length);
        return 0;
    });
}

dm_object& add_dm(context_object& owner, std::size_t length, ibv_dm*& made) {
    block b;
    made = new_struct<ibv_dm>(b);
    made->context = owner.c;
    made->memcpy_to_dm = copy_to_dm;
    made->memcpy_from_dm = copy_from_dm;
    made->comp_mask = IBV_DM_MASK_HANDLE;
    made->handle = next_handle();
    auto& o = enlist<dm_object>(made, b, {&owner});
    o.c = made;
    o.bytes.resize(length);
    return o;
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
    return make_call<ibv_dm>("ibv_alloc_dm", context, [&](c_call& call, ibv_dm*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr || attr->length == 0)
            return EINVAL;
        add_dm(*owner, attr->length, made);
        call.detail(std::to_string(attr->length) + " bytes, aligned to 2^" + std::to_string(attr->log_align_req));
        return 0;
    });
}

int free_dm(ibv_dm* dm) {
    return destroy_plain<dm_object>("ibv_free_dm", "device memory", dm);
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access) {
    return make_call<ibv_mr>("ibv_reg_dm_mr", pd, [&](c_call& call, ibv_mr*& made) {
        section lock;
        auto* memory = expect<dm_object>(call.name(), "device memory", dm);
        if (memory == nullptr || !access_allowed(access) || (access & IBV_ACCESS_ZERO_BASED) == 0)
            return EINVAL;
        if (offset > memory->bytes.size() || length > memory->bytes.size() - offset)
            return EINVAL;
        call.detail(std::to_string(length) + " bytes from " + std::to_string(offset) + ", access " +
                    std::to_string(access));
        auto* o = add_mr(call.name(), pd, nullptr, length, 0, access, {memory});
        if (o == nullptr)
            return EINVAL;
        o->backing = memory->bytes.data() + offset;
        made = o->c;
        return 0;
    });
}

// ---------------------------------------------------------------- domains

ibv_pd* add_pd(context_object& owner, std::vector<object*> parents, pd_object* base) {
    block b;
    auto* c = new_struct<ibv_pd>(b);
    c->context = owner.c;
    c->handle = next_handle();
    auto& o = enlist<pd_object>(c, b, std::move(parents));
    o.c = c;
    o.base = base;
    return c;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr*) {
    return make_call<ibv_td>("ibv_alloc_td", context, [&](c_call& call, ibv_td*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr)
            return EINVAL;
        block b;
        made = new_struct<ibv_td>(b);
        made->context = context;
        enlist<td_object>(made, b, {owner});
        return 0;
    });
}

int dealloc_td(ibv_td* td) {
    return destroy_plain<td_object>("ibv_dealloc_td", "TD", td);
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
    return make_call<ibv_pd>("ibv_alloc_parent_domain", context, [&](c_call& call, ibv_pd*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        auto* base = expect<pd_object>(call.name(), "PD", attr->pd);
        if (owner == nullptr || base == nullptr)
            return EINVAL;
        std::vector<object*> parents = {owner, base};
        if (attr->td != nullptr) {
            auto* td = expect<td_object>(call.name(), "TD", attr->td);
            if (td == nullptr)
                return EINVAL;
            parents.push_back(td);
        }
        call.detail("mask " + std::to_string(attr->comp_mask) + ", of " + describe(attr->pd) +
                    (attr->td != nullptr ? " with " + describe(attr->td) : ""));
        made = add_pd(*owner, std::move(parents), base);
        // A driver asks for its queues' memory later, in the calls that make them.
        if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0)
            find<pd_object>(made)->allocators = *attr;
        return 0;
    });
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
    return make_call<ibv_xrcd>("ibv_open_xrcd", context, [&](c_call& call, ibv_xrcd*& made) {
        section lock;
        call.detail("fd " + std::to_string(attr->fd) + ", flags " + std::to_string(attr->oflags));
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr)
            return EINVAL;
        block b;
        made = new_struct<ibv_xrcd>(b);
        made->context = context;
        enlist<xrcd_object>(made, b, {owner}).c = made;
        return 0;
    });
}

int close_xrcd(ibv_xrcd* xrcd) {
    return destroy_plain<xrcd_object>("ibv_close_xrcd", "XRCD", xrcd);
}

// ---------------------------------------------------------------- completion queues

int add_cq(c_call& call, ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int vector,
           ibv_cq_ex*& made) {
    section lock;
    auto* owner = expect<context_object>(call.name(), "context", context);
    if (owner == nullptr)
        return EINVAL;
    if (cqe < 1 || cqe > the().limits.max_cqe || vector < 0 || vector >= context->num_comp_vectors)
        return EINVAL;
    std::vector<object*> parents = {owner};
    comp_channel_object* events = nullptr;
    if (channel != nullptr) {
        events = expect<comp_channel_object>(call.name(), "completion channel", channel);
        if (events == nullptr || channel->context != context)
            return EINVAL;
        parents.push_back(events);
        ++channel->refcnt;
    }
    block b;
    made = new_struct<ibv_cq_ex>(b);
    made->context = context;
    made->channel = channel;
    made->cq_context = cq_context;
    made->handle = next_handle();
    made->cqe = static_cast<int>(round_up(static_cast<std::uint32_t>(cqe)));
    pthread_mutex_init(&made->mutex, nullptr);
    pthread_cond_init(&made->cond, nullptr);
    made->comp_events_completed = 0;
    made->async_events_completed = 0;
    made->comp_mask = 0;
    set_extended_poll(*made, benching.load(std::memory_order_relaxed));
    auto& o = enlist<cq_object>(made, b, std::move(parents));
    o.c = made;
    o.channel = events;
    call.detail("cqe " + std::to_string(cqe));
    return 0;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    return make_call<ibv_cq_ex>("ibv_create_cq_ex", context, [&](c_call& call, ibv_cq_ex*& made) {
        if ((attr->wc_flags & ~std::uint64_t{IBV_CREATE_CQ_SUP_WC_FLAGS}) != 0)
            return EOPNOTSUPP;
        const int error = add_cq(call, context, static_cast<int>(attr->cqe), attr->cq_context, attr->channel,
                                 static_cast<int>(attr->comp_vector), made);
        if (error != 0)
            return error;
        section lock;
        auto* o = find<cq_object>(made);
        o->wc_flags = attr->wc_flags;
        std::string text = "cqe " + std::to_string(attr->cqe) + ", fields " + std::to_string(attr->wc_flags);
        if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0)
            text += ", flags " + std::to_string(attr->flags);
        if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
            auto* domain = expect<pd_object>(call.name(), "parent domain", attr->parent_domain);
            if (domain == nullptr)
                return EINVAL;
            o->parents.push_back(domain);
            ++domain->children;
            text += ", in " + domain->name;
        }
        call.detail(text);
        return 0;
    });
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
    return int_call("ibv_modify_cq", cq, returns::error_number, [&](c_call& call) {
        section lock;
        call.detail("mask " + std::to_string(attr->attr_mask) + ", count " + std::to_string(attr->moderate.cq_count) +
                    ", period " + std::to_string(attr->moderate.cq_period));
        return expect<cq_object>(call.name(), "CQ", cq) == nullptr ? EINVAL : 0;
    });
}

// ---------------------------------------------------------------- queue pairs

struct qp_request {
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_xrcd* xrcd = nullptr;
    void* qp_context = nullptr;
    ibv_cq* send_cq = nullptr;
    ibv_cq* recv_cq = nullptr;
    ibv_srq* srq = nullptr;
    ibv_rwq_ind_table* table = nullptr;
    ibv_qp_cap cap = {};
    ibv_qp_type type = IBV_QPT_RC;
    bool signal_all = false;
    std::optional<std::uint64_t> send_ops;
    std::optional<std::uint32_t> opened; // the number of one that is there already
    std::string detail;
};

bool within_limits(const ibv_qp_cap& cap) {
    const auto& l = the().limits;
    return cap.max_send_wr <= static_cast<unsigned>(l.max_qp_wr) &&
           cap.max_recv_wr <= static_cast<unsigned>(l.max_qp_wr) &&
           cap.max_send_sge <= static_cast<unsigned>(l.max_sge) &&
           cap.max_recv_sge <= static_cast<unsigned>(l.max_sge) && cap.max_inline_data <= l.max_inline_data;
}

// Never less than was asked for, mostly more.
ibv_qp_cap granted(const ibv_qp_cap& asked) {
    const auto& l = the().limits;
    ibv_qp_cap cap = {};
    cap.max_send_wr = std::min(round_up(asked.max_send_wr), static_cast<std::uint32_t>(l.max_qp_wr));
    cap.max_recv_wr = std::min(round_up(asked.max_recv_wr), static_cast<std::uint32_t>(l.max_qp_wr));
    cap.max_send_sge = std::min(round_up(asked.max_send_sge), static_cast<std::uint32_t>(l.max_sge));
    cap.max_recv_sge = std::min(round_up(asked.max_recv_sge), static_cast<std::uint32_t>(l.max_sge));
    cap.max_inline_data = std::min((asked.max_inline_data + 15U) / 16U * 16U, l.max_inline_data);
    return cap;
}

template <class Object>
bool optional_parent(const char* call, const char* what, const void* handle, const ibv_context* context,
                     std::vector<object*>& parents, Object*& found) {
    found = nullptr;
    if (handle == nullptr)
        return true;
    found = expect<Object>(call, what, handle);
    if (found == nullptr || found->c->context != context)
        return false;
    parents.push_back(found);
    return true;
}

int add_qp(c_call& call, qp_request& request, ibv_qp*& made) {
    section lock;
    if (request.pd == nullptr && request.xrcd == nullptr) {
        report(std::string(call.name()) + ": null PD, this would crash");
        return EINVAL;
    }
    std::vector<object*> parents;
    pd_object* pd = nullptr;
    xrcd_object* xrcd = nullptr;
    cq_object* send_cq = nullptr;
    cq_object* recv_cq = nullptr;
    srq_object* srq = nullptr;
    if (!optional_parent(call.name(), "PD", request.pd, request.context, parents, pd) ||
        !optional_parent(call.name(), "XRCD", request.xrcd, request.context, parents, xrcd) ||
        !optional_parent(call.name(), "CQ", request.send_cq, request.context, parents, send_cq) ||
        !optional_parent(call.name(), "CQ", request.recv_cq, request.context, parents, recv_cq) ||
        !optional_parent(call.name(), "SRQ", request.srq, request.context, parents, srq))
        return EINVAL;
    const bool hashed = request.table != nullptr;
    if (hashed) {
        auto* table = expect<ind_table_object>(call.name(), "indirection table", request.table);
        if (table == nullptr || request.table->context != request.context)
            return EINVAL;
        parents.push_back(table);
    }
    const bool target = request.type == IBV_QPT_XRC_RECV;
    const bool sends = !target && !(hashed && request.cap.max_send_wr == 0);
    const bool receives = !target && request.type != IBV_QPT_XRC_SEND && !hashed;
    if ((sends && send_cq == nullptr) || (receives && recv_cq == nullptr)) {
        report(std::string(call.name()) + ": null CQ, this would crash");
        return EINVAL;
    }
    if (hashed &&
        (recv_cq != nullptr || srq != nullptr || request.cap.max_recv_wr != 0 || request.cap.max_recv_sge != 0))
        return EINVAL;
    if (!within_limits(request.cap))
        return EINVAL;
    request.cap = granted(request.cap);
    if (request.table != nullptr)
        request.cap.max_recv_wr = request.cap.max_recv_sge = 0;
    block b;
    auto* extended = new_struct<ibv_qp_ex>(b); // the same address, as in libibverbs
    made = &extended->qp_base;
    if (request.send_ops)
        install_work_requests(*extended, benching.load(std::memory_order_relaxed));
    made->context = request.context;
    made->qp_context = request.qp_context;
    made->pd = request.pd;
    made->send_cq = request.send_cq;
    made->recv_cq = request.recv_cq;
    made->srq = request.srq;
    made->handle = next_handle();
    made->qp_num = request.opened ? *request.opened : the().next_qp_num++;
    made->state = IBV_QPS_RESET;
    made->qp_type = request.type;
    pthread_mutex_init(&made->mutex, nullptr);
    pthread_cond_init(&made->cond, nullptr);
    made->events_completed = 0;
    auto& o = enlist<qp_object>(made, b, std::move(parents));
    o.c = made;
    o.pd = pd;
    o.send_cq = send_cq;
    o.recv_cq = recv_cq;
    o.srq = srq;
    o.cap = request.cap;
    o.qp_type = request.type;
    o.signal_all = request.signal_all;
    o.qp_context = request.qp_context;
    o.attr.qp_state = IBV_QPS_RESET;
    o.attr.rnr_retry = 7;
    o.send_ops = request.send_ops;
    call.detail(request.detail);
    if (!request.opened)
        the().qps[made->qp_num] = &o;
    return 0;
}

template <class Attr>
qp_request request_from(const Attr& attr) {
    qp_request r;
    r.qp_context = attr.qp_context;
    r.send_cq = attr.send_cq;
    r.recv_cq = attr.recv_cq;
    r.srq = attr.srq;
    r.cap = attr.cap;
    r.type = attr.qp_type;
    r.signal_all = attr.sq_sig_all != 0;
    return r;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
    return make_call<ibv_qp>("ibv_create_qp_ex", context, [&](c_call& call, ibv_qp*& made) {
        qp_request request = request_from(*attr);
        request.context = context;
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) != 0)
            request.pd = attr->pd;
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0)
            request.xrcd = attr->xrcd;
        const auto note = [&](std::uint32_t bit, const char* name, std::uint64_t value) {
            if ((attr->comp_mask & bit) != 0)
                request.detail += std::string(request.detail.empty() ? "" : ", ") + name + " " + std::to_string(value);
        };
        note(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, "send_ops", attr->send_ops_flags);
        note(IBV_QP_INIT_ATTR_CREATE_FLAGS, "create_flags", attr->create_flags);
        note(IBV_QP_INIT_ATTR_CREATE_FLAGS, "source_qpn", attr->source_qpn);
        note(IBV_QP_INIT_ATTR_MAX_TSO_HEADER, "max_tso_header", attr->max_tso_header);
        note(IBV_QP_INIT_ATTR_RX_HASH, "rx_hash", attr->rx_hash_conf.rx_hash_fields_mask);
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) != 0) {
            request.table = attr->rwq_ind_tbl;
            if (request.table == nullptr) {
                report(std::string(call.name()) + ": null table, this would crash");
                return EINVAL;
            }
        }
        note(IBV_QP_INIT_ATTR_RX_HASH, "function", attr->rx_hash_conf.rx_hash_function);
        note(IBV_QP_INIT_ATTR_RX_HASH, "key of", attr->rx_hash_conf.rx_hash_key_len);
        // As the kernel: the queues of the table are in the place of its own.
        if (request.table != nullptr &&
            (attr->cap.max_recv_wr != 0 || attr->cap.max_recv_sge != 0 || attr->srq != nullptr))
            return EINVAL;
        if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0)
            request.send_ops = attr->send_ops_flags;
        const int error = add_qp(call, request, made);
        if (error == 0)
            attr->cap = request.cap;
        return error;
    });
}

// As the kernel: a receiving end of the same domain.
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
    return make_call<ibv_qp>("ibv_open_qp", context, [&](c_call& call, ibv_qp*& made) {
        constexpr std::uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        if ((attr->comp_mask & needed) != needed || attr->qp_type != IBV_QPT_XRC_RECV)
            return EINVAL;
        qp_request request;
        request.context = context;
        request.xrcd = attr->xrcd;
        request.type = attr->qp_type;
        request.opened = attr->qp_num;
        if ((attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0)
            request.qp_context = attr->qp_context;
        request.detail = "number " + std::to_string(attr->qp_num) + " of " + describe(attr->xrcd);
        {
            section lock;
            const auto there = the().qps.find(attr->qp_num);
            if (there == the().qps.end() || there->second == nullptr || there->second->qp_type != IBV_QPT_XRC_RECV)
                return EINVAL;
            const auto& parents = there->second->parents;
            if (std::find(parents.begin(), parents.end(), find<xrcd_object>(attr->xrcd)) == parents.end())
                return EINVAL;
        }
        return add_qp(call, request, made);
    });
}

int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) {
    return int_call("ibv_modify_qp_rate_limit", qp, returns::error_number, [&](c_call& call) {
        section lock;
        const auto* o = expect<qp_object>(call.name(), "QP", qp);
        if (o == nullptr || attr->comp_mask != 0 || o->attr.qp_state != IBV_QPS_RTS)
            return EINVAL;
        call.detail("rate " + std::to_string(attr->rate_limit) + ", burst " + std::to_string(attr->max_burst_sz) +
                    ", packet " + std::to_string(attr->typical_pkt_sz));
        return 0;
    });
}

// ---------------------------------------------------------------- QP states

struct transition {
    ibv_qp_state from;
    ibv_qp_state to;
    int required;
    int optional;
};

constexpr transition rc_transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
};

constexpr transition uc_transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
};

constexpr transition ud_transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
};

std::span<const transition> transitions_of(ibv_qp_type type) {
    switch (type) {
    case IBV_QPT_UD: return ud_transitions;
    case IBV_QPT_UC: return uc_transitions;
    default: return rc_transitions;
    }
}

bool may_move(const qp_object& qp, ibv_qp_state from, ibv_qp_state to, int mask) {
    const int given = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
        return given == 0;
    const auto known = transitions_of(qp.qp_type);
    const auto it =
        std::find_if(known.begin(), known.end(), [&](const transition& t) { return t.from == from && t.to == to; });
    if (it == known.end())
        return false;
    // The bits above are RoCE's own, which old kernels put into librdmacm's masks.
    const int known_bits = (1 << 21) - 1;
    return (given & it->required) == it->required && (given & known_bits & ~(it->required | it->optional)) == 0;
}

const char* state_name(ibv_qp_state state) {
    static constexpr const char* names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return state <= IBV_QPS_ERR ? names[state] : "?";
}

void store_attributes(ibv_qp_attr& to, const ibv_qp_attr& from, int mask) {
    if ((mask & IBV_QP_STATE) != 0)
        to.qp_state = from.qp_state;
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0)
        to.qp_access_flags = from.qp_access_flags;
    if ((mask & IBV_QP_PKEY_INDEX) != 0)
        to.pkey_index = from.pkey_index;
    if ((mask & IBV_QP_PORT) != 0)
        to.port_num = from.port_num;
    if ((mask & IBV_QP_QKEY) != 0)
        to.qkey = from.qkey;
    if ((mask & IBV_QP_AV) != 0)
        to.ah_attr = from.ah_attr;
    if ((mask & IBV_QP_PATH_MTU) != 0)
        to.path_mtu = from.path_mtu;
    if ((mask & IBV_QP_TIMEOUT) != 0)
        to.timeout = from.timeout;
    if ((mask & IBV_QP_RETRY_CNT) != 0)
        to.retry_cnt = from.retry_cnt;
    if ((mask & IBV_QP_RNR_RETRY) != 0)
        to.rnr_retry = from.rnr_retry;
    if ((mask & IBV_QP_RQ_PSN) != 0)
        to.rq_psn = from.rq_psn;
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0)
        to.max_rd_atomic = from.max_rd_atomic;
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0)
        to.min_rnr_timer = from.min_rnr_timer;
    if ((mask & IBV_QP_SQ_PSN) != 0)
        to.sq_psn = from.sq_psn;
    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0)
        to.max_dest_rd_atomic = from.max_dest_rd_atomic;
    if ((mask & IBV_QP_PATH_MIG_STATE) != 0)
        to.path_mig_state = from.path_mig_state;
    if ((mask & IBV_QP_DEST_QPN) != 0)
        to.dest_qp_num = from.dest_qp_num;
}

int change_qp(c_call& call, ibv_qp* qp, const ibv_qp_attr& attr, int mask) {
    section lock;
    auto* o = expect<qp_object>(call.name(), "QP", qp);
    if (o == nullptr)
        return EINVAL;
    const ibv_qp_state from = o->attr.qp_state;
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : from;
    call.detail(std::string(state_name(from)) + " to " + state_name(to));
    if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != from)
        return EINVAL;
    if (!may_move(*o, from, to, mask))
        return EINVAL;
    if ((mask & IBV_QP_PORT) != 0 && (attr.port_num < 1 || attr.port_num > context_above(*o)->dev->config.ports))
        return EINVAL;
    store_attributes(o->attr, attr, mask);
    if (to == IBV_QPS_ERR)
        flush(*o);
    if (to == IBV_QPS_RESET)
        forget_requests(*o);
    run_all(); // a queue may have waited for this
    return 0;
}

} // namespace

int bind_window(mw_object& mw, mr_object* mr, const ibv_mw_bind_info& info) {
    if (mr != nullptr && info.length > 0) {
        if ((mr->access & IBV_ACCESS_MW_BIND) == 0 || mr->pd != mw.pd)
            return EINVAL;
        const std::uint64_t offset = info.addr - mr->iova;
        if (info.addr < mr->iova || offset > mr->c->length || info.length > mr->c->length - offset)
            return EINVAL;
    }
    unbind(mw);
    mw.address = info.addr;
    mw.length = info.length;
    mw.access = info.mw_access_flags;
    if (mr == nullptr || info.length == 0)
        return 0;
    mw.mr = mr;
    mw.parents.push_back(mr);
    ++mr->children;
    return 0;
}

namespace {

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
    return int_call("ibv_bind_mw", mw, returns::error_number, [&](c_call& call) {
        section lock;
        auto* queue = expect<qp_object>(call.name(), "QP", qp);
        auto* window = expect<mw_object>(call.name(), "window", mw);
        if (queue == nullptr || window == nullptr)
            return EINVAL;
        mr_object* mr = nullptr;
        if (bind->bind_info.mr != nullptr) {
            mr = expect<mr_object>(call.name(), "MR", bind->bind_info.mr);
            if (mr == nullptr)
                return EINVAL;
        }
        if (const int error = bind_window(*window, mr, bind->bind_info))
            return error;
        mw->rkey = ibv_inc_rkey(mw->rkey);
        if (queue->send_cq != nullptr && (queue->signal_all || (bind->send_flags & IBV_SEND_SIGNALED) != 0)) {
            queued_wc done;
            fill_garbage(done.wc);
            done.wc.wr_id = bind->wr_id;
            done.wc.status = IBV_WC_SUCCESS;
            done.wc.opcode = IBV_WC_BIND_MW;
            done.wc.qp_num = qp->qp_num;
            done.wc.wc_flags = 0;
            complete(*queue->send_cq, done, true);
        }
        return 0;
    });
}

// ---------------------------------------------------------------- shared receive queues

int add_srq(c_call& call, ibv_context* context, ibv_pd* pd, void* srq_context, ibv_srq_attr& attr,
            std::vector<object*> more_parents, ibv_srq*& made) {
    section lock;
    auto* domain = expect<pd_object>(call.name(), "PD", pd);
    if (domain == nullptr || pd->context != context)
        return EINVAL;
    const auto& l = the().limits;
    if (attr.max_wr < 1 || attr.max_wr > static_cast<unsigned>(l.max_srq_wr) ||
        attr.max_sge > static_cast<unsigned>(l.max_srq_sge))
        return EINVAL;
    attr.max_wr = std::min(round_up(attr.max_wr), static_cast<std::uint32_t>(l.max_srq_wr));
    attr.max_sge = std::min(round_up(attr.max_sge), static_cast<std::uint32_t>(l.max_srq_sge));
    block b;
    made = new_struct<ibv_srq>(b);
    made->context = context;
    made->srq_context = srq_context;
    made->pd = pd;
    made->handle = next_handle();
    pthread_mutex_init(&made->mutex, nullptr);
    pthread_cond_init(&made->cond, nullptr);
    made->events_completed = 0;
    more_parents.insert(more_parents.begin(), domain);
    auto& o = enlist<srq_object>(made, b, std::move(more_parents));
    o.c = made;
    o.pd = domain;
    o.attr = attr;
    o.attr.srq_limit = 0;
    o.number = made->handle;
    if (const auto& own = domain->allocators)
        o.ring = own->alloc(pd, own->pd_context, 4096, 64, 7);
    return 0;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
    return make_call<ibv_srq>("ibv_create_srq_ex", context, [&](c_call& call, ibv_srq*& made) {
        if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0)
            return EINVAL;
        std::vector<object*> parents;
        call.detail("type " + std::to_string(attr->srq_type) + ", mask " + std::to_string(attr->comp_mask) + ", " +
                    std::to_string(attr->attr.max_wr) + " of " + std::to_string(attr->attr.max_sge) + " SGEs" +
                    ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TM) != 0
                         ? ", tags " + std::to_string(attr->tm_cap.max_num_tags) + ", ops " +
                               std::to_string(attr->tm_cap.max_ops)
                         : "") +
                    ((attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) != 0 ? ", of " + describe(attr->xrcd) : "") +
                    ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0 ? ", on " + describe(attr->cq) : ""));
        {
            section lock;
            xrcd_object* xrcd = nullptr;
            cq_object* cq = nullptr;
            if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) != 0 &&
                !optional_parent(call.name(), "XRCD", attr->xrcd, context, parents, xrcd))
                return EINVAL;
            if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) != 0 &&
                !optional_parent(call.name(), "CQ", attr->cq, context, parents, cq))
                return EINVAL;
        }
        return add_srq(call, context, attr->pd, attr->srq_context, attr->attr, std::move(parents), made);
    });
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
    return int_call("ibv_get_srq_num", srq, returns::error_number, [&](c_call& call) {
        section lock;
        const auto* o = expect<srq_object>(call.name(), "SRQ", srq);
        if (o == nullptr)
            return EINVAL;
        *number = o->number;
        return 0;
    });
}

// ---------------------------------------------------------------- work queues

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) {
    return make_call<ibv_wq>("ibv_create_wq", context, [&](c_call& call, ibv_wq*& made) {
        section lock;
        std::vector<object*> parents;
        pd_object* pd = nullptr;
        cq_object* cq = nullptr;
        if (!optional_parent(call.name(), "PD", attr->pd, context, parents, pd) ||
            !optional_parent(call.name(), "CQ", attr->cq, context, parents, cq) || pd == nullptr || cq == nullptr ||
            attr->wq_type != IBV_WQT_RQ || attr->max_wr > static_cast<unsigned>(the().limits.max_qp_wr))
            return EINVAL;
        const std::string asked = std::to_string(attr->max_wr) + " of " + std::to_string(attr->max_sge) + " SGEs";
        attr->max_wr = round_up(attr->max_wr);
        attr->max_sge = round_up(attr->max_sge);
        block b;
        made = new_struct<ibv_wq>(b); // the inline function fills in context, mutex and counter
        made->context = context;
        made->wq_context = attr->wq_context;
        made->pd = attr->pd;
        made->cq = attr->cq;
        made->handle = next_handle();
        made->wq_num = made->handle;
        made->state = IBV_WQS_RESET;
        made->wq_type = attr->wq_type;
        made->post_recv = post_wq_recv;
        made->comp_mask = 0;
        call.detail("flags " +
                    std::to_string((attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 ? attr->create_flags : 0) + ", " +
                    asked);
        auto& o = enlist<wq_object>(made, b, std::move(parents));
        o.c = made;
        o.max_wr = attr->max_wr;
        return 0;
    });
}

int modify_wq(ibv_wq* wq, ibv_wq_attr* attr) {
    return int_call("ibv_modify_wq", wq, returns::error_number, [&](c_call& call) {
        {
            section lock;
            if (expect<wq_object>(call.name(), "WQ", wq) == nullptr)
                return EINVAL;
        }
        if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0 && attr->curr_wq_state != wq->state)
            return EINVAL;
        if ((attr->attr_mask & IBV_WQ_ATTR_STATE) != 0)
            wq->state = attr->wq_state;
        if ((attr->attr_mask & IBV_WQ_ATTR_FLAGS) != 0)
            call.detail("flags " + std::to_string(attr->flags) + " of " + std::to_string(attr->flags_mask));
        return 0;
    });
}

int destroy_wq(ibv_wq* wq) {
    return destroy_call("ibv_destroy_wq", wq, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<wq_object>(call.name(), "WQ", wq);
        if (o == nullptr)
            return EINVAL;
        if (o->children > 0)
            return EBUSY;
        if (!begin_end(call.name(), *o))
            return EINVAL;
        drop_async_of(*o, *context_above(*o));
        if (!wait_for_acks(lock, call.name(), *o, o->asyncs, "async events"))
            return ETIMEDOUT;
        bury(*o);
        return 0;
    });
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* sges, std::uint32_t count) {
    return int_call("ibv_advise_mr", pd, returns::error_number, [&](c_call& call) {
        section lock;
        std::string what = "advice " + std::to_string(advice) + ", flags " + std::to_string(flags);
        for (std::uint32_t i = 0; i < count; ++i)
            what += ", " + std::to_string(sges[i].length) + " bytes";
        call.detail(what);
        return expect<pd_object>(call.name(), "PD", pd) == nullptr ? EINVAL : 0;
    });
}

} // namespace

void install_objects(verbs_context& extended) {
    extended.context.ops.alloc_mw = alloc_mw;
    extended.context.ops.bind_mw = bind_mw;
    extended.context.ops.dealloc_mw = dealloc_mw;
    extended.alloc_null_mr = alloc_null_mr;
    extended.advise_mr = advise_mr;
    extended.alloc_dm = alloc_dm;
    extended.free_dm = free_dm;
    extended.reg_dm_mr = reg_dm_mr;
    extended.alloc_td = alloc_td;
    extended.dealloc_td = dealloc_td;
    extended.alloc_parent_domain = alloc_parent_domain;
    extended.open_xrcd = open_xrcd;
    extended.close_xrcd = close_xrcd;
    extended.create_cq_ex = create_cq_ex;
    extended.modify_cq = modify_cq;
    extended.create_qp_ex = create_qp_ex;
    extended.open_qp = open_qp;
    extended.modify_qp_rate_limit = modify_qp_rate_limit;
    extended.create_srq_ex = create_srq_ex;
    extended.get_srq_num = get_srq_num;
    extended.create_wq = create_wq;
    extended.modify_wq = modify_wq;
    extended.destroy_wq = destroy_wq;
}

} // namespace fake::detail

using namespace fake::detail;

// ---------------------------------------------------------------- PD and MR

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    return make_call<ibv_pd>("ibv_alloc_pd", context, [&](c_call& call, ibv_pd*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr)
            return EINVAL;
        made = add_pd(*owner, {owner}, nullptr);
        return 0;
    });
}

int ibv_dealloc_pd(ibv_pd* pd) {
    return destroy_plain<pd_object>("ibv_dealloc_pd", "PD", pd);
}

ibv_mr*(ibv_reg_mr)(ibv_pd* pd, void* addr, std::size_t length, int access) {
    return reg_mr("ibv_reg_mr", pd, addr, length, reinterpret_cast<std::uintptr_t>(addr),
                  static_cast<unsigned>(access));
}

ibv_mr*(ibv_reg_mr_iova)(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access) {
    return reg_mr("ibv_reg_mr_iova", pd, addr, length, iova, static_cast<unsigned>(access));
}

// What the macros call where the access is no constant: to a user it is the call that was written.
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access) {
    const bool plain = iova == reinterpret_cast<std::uintptr_t>(addr);
    return reg_mr(plain ? "ibv_reg_mr" : "ibv_reg_mr_iova", pd, addr, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                          int access) {
    return make_call<ibv_mr>("ibv_reg_dmabuf_mr", pd, [&](c_call& call, ibv_mr*& made) {
        section lock;
        if (fd < 0)
            return EBADF;
        if (!access_allowed(static_cast<unsigned>(access)) || length == 0 || (offset - iova) % 4096 != 0)
            return EINVAL;
        const auto* o = add_mr(call.name(), pd, nullptr, length, iova, static_cast<unsigned>(access));
        if (o == nullptr)
            return EINVAL;
        call.detail(std::to_string(length) + " bytes from " + std::to_string(offset) + " of fd " + std::to_string(fd));
        made = o->c;
        return 0;
    });
}

int ibv_dereg_mr(ibv_mr* mr) {
    return destroy_plain<mr_object>("ibv_dereg_mr", "MR", mr); // windows that are bound to it are children
}

int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, std::size_t length, int access) {
    c_call call("ibv_rereg_mr", mr, returns::error_number);
    if (call.injected()) {
        const int result = call.finish(call.injected_error()); // negative: what the rule says
        call.leave_errno(call.injected_error());
        return result < 0 ? result : IBV_REREG_MR_ERR_CMD;
    }
    section lock;
    auto* o = expect<mr_object>(call.name(), "MR", mr);
    auto* domain = (flags & IBV_REREG_MR_CHANGE_PD) == 0 ? nullptr : expect<pd_object>(call.name(), "PD", pd);
    const bool bad = o == nullptr || o->null || o->imported || o->backing != nullptr ||
                     (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
                     ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && domain == nullptr) ||
                     ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 && !access_allowed(static_cast<unsigned>(access))) ||
                     ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0 && length == 0);
    if (bad) {
        call.finish(EINVAL);
        call.leave_errno(EINVAL);
        return IBV_REREG_MR_ERR_INPUT;
    }
    if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
        mr->addr = addr;
        mr->length = length;
        o->iova = reinterpret_cast<std::uintptr_t>(addr);
    }
    if (domain != nullptr) {
        std::replace(o->parents.begin(), o->parents.end(), static_cast<object*>(o->pd), static_cast<object*>(domain));
        --o->pd->children;
        ++domain->children;
        o->pd = domain;
        mr->pd = pd;
    }
    if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0)
        o->access = static_cast<unsigned>(access);
    call.detail("flags " + std::to_string(flags) + ", access " + std::to_string(access));
    new_keys(mr->lkey, mr->rkey);
    return call.finish(0);
}

namespace {

// An object of another process, by its handle: here, of another context of the device.
template <class Object>
Object* exported(const context_object& importer, std::uint32_t handle) {
    Object* found = nullptr;
    each<Object>([&](Object& o) {
        const context_object* owner = context_above(o);
        if (o.c->handle == handle && !o.imported && owner->dev == importer.dev && owner != &importer)
            found = &o;
    });
    return found;
}

// Given back, and not destroyed: what it is the name of stays.
template <class Object>
void unimport(const char* name, const char* what, void* handle) {
    c_call call(name, handle, returns::nothing);
    section lock;
    auto* o = expect<Object>(call.name(), what, handle);
    if (o == nullptr)
        return;
    if (!o->imported)
        report(std::string(call.name()) + ": " + o->name + " was not imported");
    else if (o->children > 0)
        report(std::string(call.name()) + ": " + o->name + " is in use");
    else
        bury(*o);
}

} // namespace

ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
    return make_call<ibv_pd>("ibv_import_pd", context, [&](c_call& call, ibv_pd*& made) {
        section lock;
        call.detail("handle " + std::to_string(handle));
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr || exported<pd_object>(*owner, handle) == nullptr)
            return ENOENT;
        made = add_pd(*owner, {owner}, nullptr);
        made->handle = handle;
        find<pd_object>(made)->imported = true;
        return 0;
    });
}
void ibv_unimport_pd(ibv_pd* pd) {
    unimport<pd_object>("ibv_unimport_pd", "PD", pd);
}
ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
    return make_call<ibv_mr>("ibv_import_mr", pd, [&](c_call& call, ibv_mr*& made) {
        section lock;
        call.detail("handle " + std::to_string(handle));
        auto* domain = expect<pd_object>(call.name(), "PD", pd);
        if (domain == nullptr)
            return EINVAL;
        const auto* source = exported<mr_object>(*context_above(*domain), handle);
        if (source == nullptr)
            return ENOENT;
        auto* o = add_mr(call.name(), pd, nullptr, source->c->length, source->iova, source->access);
        o->imported = true;
        made = o->c;
        made->handle = handle;
        made->lkey = source->c->lkey;
        made->rkey = source->c->rkey;
        return 0;
    });
}
void ibv_unimport_mr(ibv_mr* mr) {
    unimport<mr_object>("ibv_unimport_mr", "MR", mr);
}
ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
    return make_call<ibv_dm>("ibv_import_dm", context, [&](c_call& call, ibv_dm*& made) {
        section lock;
        call.detail("handle " + std::to_string(handle));
        auto* owner = expect<context_object>(call.name(), "context", context);
        const auto* source = owner == nullptr ? nullptr : exported<dm_object>(*owner, handle);
        if (source == nullptr)
            return ENOENT;
        auto& o = add_dm(*owner, source->bytes.size(), made);
        o.imported = true;
        made->handle = handle;
        return 0;
    });
}
void ibv_unimport_dm(ibv_dm* dm) {
    unimport<dm_object>("ibv_unimport_dm", "device memory", dm);
}

// ---------------------------------------------------------------- completion channels and queues

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    return make_call<ibv_comp_channel>("ibv_create_comp_channel", context, [&](c_call& call, ibv_comp_channel*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr)
            return EINVAL;
        const int fd = new_signal();
        if (fd < 0)
            return errno;
        block b;
        made = new_struct<ibv_comp_channel>(b);
        made->context = context;
        made->fd = fd;
        made->refcnt = 0;
        enlist<comp_channel_object>(made, b, {owner}).c = made;
        return 0;
    });
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    return destroy_call("ibv_destroy_comp_channel", channel, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<comp_channel_object>(call.name(), "completion channel", channel);
        if (o == nullptr)
            return EINVAL;
        if (o->children > 0)
            return EBUSY;
        close(channel->fd);
        bury(*o);
        return 0;
    });
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int vector) {
    return make_call<ibv_cq>("ibv_create_cq", context, [&](c_call& call, ibv_cq*& made) {
        ibv_cq_ex* extended = nullptr;
        const int error = add_cq(call, context, cqe, cq_context, channel, vector, extended);
        made = error == 0 ? ibv_cq_ex_to_cq(extended) : nullptr;
        return error;
    });
}

int ibv_resize_cq(ibv_cq* cq, int cqe) {
    return int_call("ibv_resize_cq", cq, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<cq_object>(call.name(), "CQ", cq);
        if (o == nullptr || cqe < 1 || cqe > the().limits.max_cqe || static_cast<std::size_t>(cqe) < o->queue.size())
            return EINVAL;
        cq->cqe = static_cast<int>(round_up(static_cast<std::uint32_t>(cqe)));
        return 0;
    });
}

int ibv_destroy_cq(ibv_cq* cq) {
    const int result = destroy_call("ibv_destroy_cq", cq, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<cq_object>(call.name(), "CQ", cq);
        if (o == nullptr)
            return EINVAL;
        if (o->children > 0)
            return EBUSY;
        if (!begin_end(call.name(), *o))
            return EINVAL;
        if (o->polling)
            report(std::string(call.name()) + ": " + o->name + " is being polled");
        drop_events_of(*o);
        drop_async_of(*o, *context_above(*o));
        if (!wait_for_acks(lock, call.name(), *o, o->completions, "completion events") ||
            !wait_for_acks(lock, call.name(), *o, o->asyncs, "async events"))
            return ETIMEDOUT;
        if (o->channel != nullptr)
            --o->channel->c->refcnt;
        happens_after_at_end(acks_of(cq));
        bury(*o);
        return 0;
    });
    return result;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    return int_call("ibv_get_cq_event", channel, returns::minus_one, [&](c_call& call) {
        for (;;) {
            ibv_cq* got = nullptr;
            {
                section lock;
                auto* o = expect<comp_channel_object>(call.name(), "completion channel", channel);
                if (o == nullptr)
                    return EBADF;
                if (!o->queue.empty()) {
                    cq_object* from = o->queue.front();
                    o->queue.pop_front();
                    if (o->queue.empty())
                        lower_signal(channel->fd);
                    ++from->completions.got;
                    ++the().cq_events.got;
                    got = static_cast<ibv_cq*>(from->handle);
                    call.detail(from->name);
                }
            }
            if (got != nullptr) {
                happens_after(got);
                *cq = got;
                *cq_context = got->cq_context;
                return 0;
            }
            if (const int error = wait_for_signal(channel->fd, setting(&fake::settings::get_limit))) {
                if (error == ETIMEDOUT)
                    report(std::string(call.name()) + ": blocks for ever");
                return error;
            }
        }
    });
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned n) {
    c_call call("ibv_ack_cq_events", cq, returns::nothing, std::to_string(n));
    happens_before(acks_of(cq));
    section lock;
    auto* o = expect<cq_object>(call.name(), "CQ", cq);
    if (o == nullptr)
        return;
    if (n > o->completions.held()) {
        report(std::string(call.name()) + ": " + std::to_string(n) + " events of " + o->name + " acked, but " +
               std::to_string(o->completions.held()) + " are held");
        return;
    }
    o->completions.acked += n;
    the().cq_events.acked += n;
    cq->comp_events_completed += n;
    the().changed.notify_all();
}

// ---------------------------------------------------------------- queue pairs

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    return make_call<ibv_qp>("ibv_create_qp", pd, [&](c_call& call, ibv_qp*& made) {
        qp_request request = request_from(*attr);
        request.pd = pd;
        {
            section lock;
            if (expect<pd_object>(call.name(), "PD", pd) == nullptr)
                return EINVAL;
            request.context = pd->context;
        }
        const int error = add_qp(call, request, made);
        if (error == 0)
            attr->cap = request.cap;
        return error;
    });
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    return int_call("ibv_modify_qp", qp, returns::error_number, [&](c_call& call) {
        const int error = change_qp(call, qp, *attr, mask);
        if (error == 0 && (mask & IBV_QP_STATE) != 0)
            store_plainly(qp->state, attr->qp_state); // without a lock, as there
        return error;
    });
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
    return int_call("ibv_query_qp", qp, returns::error_number, [&](c_call& call) {
        call.detail("mask " + std::to_string(mask));
        ibv_qp_state now = IBV_QPS_UNKNOWN;
        {
            section lock;
            const auto* o = expect<qp_object>(call.name(), "QP", qp);
            if (o == nullptr)
                return EINVAL;
            *attr = o->attr;
            attr->cur_qp_state = now = o->attr.qp_state;
            attr->cap = o->cap;
            *init = {};
            init->qp_context = o->qp_context;
            init->send_cq = qp->send_cq;
            init->recv_cq = qp->recv_cq;
            init->srq = qp->srq;
            init->cap = o->cap;
            init->qp_type = o->qp_type;
            init->sq_sig_all = o->signal_all ? 1 : 0;
        }
        if ((mask & IBV_QP_STATE) != 0)
            store_plainly(qp->state, now);
        return 0;
    });
}

int ibv_destroy_qp(ibv_qp* qp) {
    return destroy_call("ibv_destroy_qp", qp, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<qp_object>(call.name(), "QP", qp);
        if (o == nullptr)
            return EINVAL;
        if (o->children > 0 || !o->groups.empty())
            return EBUSY;
        if (!begin_end(call.name(), *o))
            return EINVAL;
        drop_async_of(*o, *context_above(*o));
        if (!wait_for_acks(lock, call.name(), *o, o->asyncs, "async events"))
            return ETIMEDOUT;
        qp_goes(*o);
        happens_after_at_end(acks_of(qp));
        bury(*o);
        return 0;
    });
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
    return make_call<ibv_qp_ex>("ibv_qp_to_qp_ex", qp, [&](c_call& call, ibv_qp_ex*& made) {
        section lock;
        const auto* o = expect<qp_object>(call.name(), "QP", qp);
        if (o == nullptr || !o->send_ops)
            return EOPNOTSUPP;
        made = reinterpret_cast<ibv_qp_ex*>(qp);
        return 0;
    });
}

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
    return int_call("ibv_attach_mcast", qp, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<qp_object>(call.name(), "QP", qp);
        if (o == nullptr || o->qp_type != IBV_QPT_UD || gid->raw[0] != 0xff)
            return EINVAL;
        o->groups.emplace_back(*gid, lid);
        return 0;
    });
}

int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
    return int_call("ibv_detach_mcast", qp, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<qp_object>(call.name(), "QP", qp);
        if (o == nullptr)
            return EINVAL;
        const auto it = std::find_if(o->groups.begin(), o->groups.end(), [&](const auto& g) {
            return std::memcmp(&g.first, gid, sizeof *gid) == 0 && g.second == lid;
        });
        if (it == o->groups.end())
            return EINVAL;
        o->groups.erase(it);
        return 0;
    });
}

int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, std::uint32_t flags) {
    c_call call("ibv_query_qp_data_in_order", qp, returns::error_number);
    call.detail("opcode " + std::to_string(opcode) + ", flags " + std::to_string(flags));
    return call.number(opcode == IBV_WR_SEND ? 1 : 0);
}

int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
    return int_call("ibv_set_ece", qp, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<qp_object>(call.name(), "QP", qp);
        if (o == nullptr || ece->comp_mask != 0)
            return EINVAL;
        call.detail("vendor " + std::to_string(ece->vendor_id) + ", options " + std::to_string(ece->options));
        o->ece = *ece;
        return 0;
    });
}

int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
    return int_call("ibv_query_ece", qp, returns::error_number, [&](c_call& call) {
        section lock;
        const auto* o = expect<qp_object>(call.name(), "QP", qp);
        if (o == nullptr)
            return EINVAL;
        *ece = o->ece;
        return 0;
    });
}

// ---------------------------------------------------------------- shared receive queues

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
    return make_call<ibv_srq>("ibv_create_srq", pd, [&](c_call& call, ibv_srq*& made) {
        {
            section lock;
            if (expect<pd_object>(call.name(), "PD", pd) == nullptr)
                return EINVAL;
        }
        return add_srq(call, pd->context, pd, attr->srq_context, attr->attr, {}, made);
    });
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
    return int_call("ibv_modify_srq", srq, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<srq_object>(call.name(), "SRQ", srq);
        if (o == nullptr || (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0)
            return EINVAL;
        if ((mask & IBV_SRQ_MAX_WR) != 0) {
            if (attr->max_wr < o->recvs.size() || attr->max_wr > static_cast<unsigned>(the().limits.max_srq_wr))
                return EINVAL;
            o->attr.max_wr = round_up(attr->max_wr);
        }
        if ((mask & IBV_SRQ_LIMIT) != 0) {
            if (attr->srq_limit > o->attr.max_wr)
                return EINVAL;
            o->attr.srq_limit = attr->srq_limit;
        }
        return 0;
    });
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
    return int_call("ibv_query_srq", srq, returns::error_number, [&](c_call& call) {
        section lock;
        const auto* o = expect<srq_object>(call.name(), "SRQ", srq);
        if (o == nullptr)
            return EINVAL;
        *attr = o->attr;
        return 0;
    });
}

int ibv_destroy_srq(ibv_srq* srq) {
    return destroy_call("ibv_destroy_srq", srq, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<srq_object>(call.name(), "SRQ", srq);
        if (o == nullptr)
            return EINVAL;
        if (o->children > 0)
            return EBUSY;
        if (!begin_end(call.name(), *o))
            return EINVAL;
        drop_async_of(*o, *context_above(*o));
        if (!wait_for_acks(lock, call.name(), *o, o->asyncs, "async events"))
            return ETIMEDOUT;
        if (o->ring != nullptr && o->ring != IBV_ALLOCATOR_USE_DEFAULT)
            o->pd->allocators->free(srq->pd, o->pd->allocators->pd_context, o->ring, 7);
        happens_after_at_end(acks_of(srq));
        bury(*o);
        return 0;
    });
}

// ---------------------------------------------------------------- address handles

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
    return make_call<ibv_ah>("ibv_create_ah", pd, [&](c_call& call, ibv_ah*& made) {
        section lock;
        auto* domain = expect<pd_object>(call.name(), "PD", pd);
        if (domain == nullptr)
            return EINVAL;
        if (attr->port_num < 1 || attr->port_num > context_above(*domain)->dev->config.ports)
            return EINVAL;
        block b;
        made = new_struct<ibv_ah>(b);
        made->context = pd->context;
        made->pd = pd;
        made->handle = next_handle();
        auto& o = enlist<ah_object>(made, b, {domain});
        o.c = made;
        o.attr = *attr;
        return 0;
    });
}

int ibv_destroy_ah(ibv_ah* ah) {
    return destroy_plain<ah_object>("ibv_destroy_ah", "AH", ah);
}

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
    return int_call("ibv_init_ah_from_wc", context, returns::minus_one, [&](c_call& call) {
        {
            section lock;
            if (expect<context_object>(call.name(), "context", context) == nullptr)
                return EINVAL;
        }
        *attr = {};
        attr->dlid = wc->slid;
        attr->sl = wc->sl;
        attr->src_path_bits = wc->dlid_path_bits;
        attr->port_num = port;
        if ((wc->wc_flags & IBV_WC_GRH) == 0)
            return 0;
        attr->is_global = 1;
        attr->grh.dgid = grh->sgid;
        attr->grh.hop_limit = grh->hop_limit;
        return 0;
    });
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) {
    return make_call<ibv_ah>("ibv_create_ah_from_wc", pd, [&](c_call& call, ibv_ah*& made) {
        {
            section lock;
            if (expect<pd_object>(call.name(), "PD", pd) == nullptr)
                return EINVAL;
        }
        ibv_ah_attr attr = {};
        if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0)
            return errno;
        made = ibv_create_ah(pd, &attr);
        return made == nullptr ? errno : 0;
    });
}

int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr*, std::uint8_t[6], std::uint16_t*) {
    c_call call("ibv_resolve_eth_l2_from_gid", context, returns::error_number);
    return -std::abs(call.finish(EOPNOTSUPP));
}

// ---------------------------------------------------------------- fork

int ibv_fork_init() {
    return int_call("ibv_fork_init", nullptr, returns::error_number, [](c_call&) { return 0; });
}

ibv_fork_status ibv_is_fork_initialized() {
    c_call call("ibv_is_fork_initialized", nullptr, returns::nothing);
    return IBV_FORK_UNNEEDED;
}
