// libibverbs: what rdma-core 59 to 65 have added, where the headers here have it (tests/unit/meson.build asks).
#include "internal.hpp"

#include <cstdlib>

#include <fcntl.h>

namespace fake::detail {

namespace {

[[maybe_unused]] std::uint32_t next_handle() {
    return the().next_handle++;
}

template <class Object>
[[maybe_unused]] int destroy(const char* name, const char* what, const void* handle) {
    return destroy_call(name, handle, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<Object>(call.name(), what, handle);
        if (o == nullptr)
            return EINVAL;
        if (o->children > 0)
            return EBUSY;
        bury(*o);
        return 0;
    });
}

// A descriptor, or -1 and errno.
[[maybe_unused]] int descriptor_call(const char* name, const void* object) {
    c_call call(name, object, returns::minus_one);
    if (call.injected())
        return call.finish(call.injected_error());
    return call.number(open("/dev/null", O_RDWR | O_CLOEXEC));
}

} // namespace

} // namespace fake::detail

using namespace fake::detail;

// ---------------------------------------------------------------- rdma-core 59

#if FAKE_HAS_DMAH
ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attr) {
    return make_call<ibv_dmah>("ibv_alloc_dmah", context, [&](c_call& call, ibv_dmah*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr)
            return EINVAL;
        call.detail("mask " + std::to_string(attr->comp_mask) + ", cpu " + std::to_string(attr->cpu_id) + ", ph " +
                    std::to_string(attr->ph) + ", memory " + std::to_string(attr->tph_mem_type));
        block b;
        made = new_struct<ibv_dmah>(b);
        made->context = context;
        enlist<dmah_object>(made, b, {owner});
        return 0;
    });
}

int ibv_dealloc_dmah(ibv_dmah* dmah) {
    return destroy<dmah_object>("ibv_dealloc_dmah", "DMA handle", dmah);
}

ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr) {
    return make_call<ibv_mr>("ibv_reg_mr_ex", pd, [&](c_call& call, ibv_mr*& made) {
        section lock;
        std::vector<object*> parents;
        if ((attr->comp_mask & IBV_REG_MR_MASK_DMAH) != 0)
            parents.push_back(expect<dmah_object>(call.name(), "DMA handle", attr->dmah));
        if (!parents.empty() && parents[0] == nullptr)
            return EINVAL;
        const bool of_fd = (attr->comp_mask & IBV_REG_MR_MASK_FD) != 0;
        call.detail("mask " + std::to_string(attr->comp_mask) + ", " + std::to_string(attr->length) + " bytes" +
                    (of_fd ? " from " + std::to_string(attr->fd_offset) + " of fd " + std::to_string(attr->fd) : ""));
        const auto* o = add_mr(call.name(), pd, of_fd ? nullptr : attr->addr, attr->length, attr->iova,
                               static_cast<unsigned>(attr->access), parents);
        if (o == nullptr)
            return EINVAL;
        made = o->c;
        return 0;
    });
}
#endif

// ---------------------------------------------------------------- rdma-core 62

#if FAKE_HAS_QUERY_PORT_SPEED
int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) {
    return int_call("ibv_query_port_speed", context, returns::error_number, [&](c_call& call) {
        section lock;
        const auto* o = expect<context_object>(call.name(), "context", context);
        if (o == nullptr || port < 1 || port > o->dev->config.ports)
            return EINVAL;
        *speed = 4000; // hundreds of Mb/s
        return 0;
    });
}

int ibv_dm_export_dmabuf_fd(ibv_dm* dm) {
    return descriptor_call("ibv_dm_export_dmabuf_fd", dm);
}
#endif

// ---------------------------------------------------------------- rdma-core 64

#if FAKE_HAS_BUF
struct ibv_buf {
    void* memory;
};

void* ibv_alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** buf) {
    void* memory = nullptr;
    *buf = make_call<ibv_buf>("ibv_alloc_buf", pd, [&](c_call& call, ibv_buf*& made) {
        section lock;
        auto* domain = expect<pd_object>(call.name(), "PD", pd);
        if (domain == nullptr || size == 0)
            return EINVAL;
        call.detail(std::to_string(size) + " bytes");
        block b;
        made = new_struct<ibv_buf>(b);
        made->memory = memory = std::calloc(1, size);
        enlist<buf_object>(made, b, {domain}).pd = pd;
        return 0;
    });
    return memory;
}

void ibv_free_buf(ibv_buf* buf) {
    c_call call("ibv_free_buf", buf, returns::nothing);
    section lock;
    auto* o = expect<buf_object>(call.name(), "buffer", buf);
    if (o == nullptr)
        return;
    if (o->children > 0)
        report(std::string(call.name()) + ": " + o->name + " is registered");
    std::free(buf->memory);
    bury(*o);
}

ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* addr, std::size_t length, int access) {
    return make_call<ibv_mr>("ibv_reg_buf_mr", pd, [&](c_call& call, ibv_mr*& made) {
        section lock;
        auto* memory = expect<buf_object>(call.name(), "buffer", buf);
        if (memory == nullptr || memory->pd != pd)
            return EINVAL;
        const auto* o = add_mr(call.name(), pd, addr, length, reinterpret_cast<std::uintptr_t>(addr),
                               static_cast<unsigned>(access), {memory});
        if (o == nullptr)
            return EINVAL;
        made = o->c;
        return 0;
    });
}
#endif

// ---------------------------------------------------------------- rdma-core 65

#if FAKE_HAS_COMP_CNTR
int ibv_export_buf_dmabuf_fd(ibv_buf* buf) {
    return descriptor_call("ibv_export_buf_dmabuf_fd", buf);
}

namespace {

int with_counter(const char* name, ibv_comp_cntr* counter, const std::function<void(comp_cntr_object&)>& body) {
    return int_call(name, counter, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<comp_cntr_object>(call.name(), "completion counter", counter);
        if (o == nullptr)
            return EINVAL;
        body(*o);
        return 0;
    });
}

} // namespace

int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps, std::size_t) {
    return int_call("ibv_query_comp_cntr_caps", context, returns::error_number, [&](c_call&) {
        *caps = {1ULL << 31U, 8, IBV_QP_ATTACH_COMP_CNTR_OP_SEND | IBV_QP_ATTACH_COMP_CNTR_OP_RECV};
        return 0;
    });
}

ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attr) {
    return make_call<ibv_comp_cntr>("ibv_create_comp_cntr", context, [&](c_call& call, ibv_comp_cntr*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr)
            return EINVAL;
        call.detail("type " + std::to_string(attr->type));
        block b;
        made = new_struct<ibv_comp_cntr>(b);
        made->context = context;
        made->handle = next_handle();
        enlist<comp_cntr_object>(made, b, {owner});
        return 0;
    });
}

int ibv_destroy_comp_cntr(ibv_comp_cntr* counter) {
    return destroy<comp_cntr_object>("ibv_destroy_comp_cntr", "completion counter", counter);
}

int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter, ibv_qp_attach_comp_cntr_attr* attr) {
    return int_call("ibv_qp_attach_comp_cntr", qp, returns::error_number, [&](c_call& call) {
        section lock;
        call.detail("ops " + std::to_string(attr->op_mask) + " by " + describe(counter));
        return expect<qp_object>(call.name(), "QP", qp) == nullptr ? EINVAL : 0;
    });
}

int ibv_set_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value) {
    return with_counter("ibv_set_comp_cntr", counter, [&](comp_cntr_object& o) { o.value = value; });
}
int ibv_set_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value) {
    return with_counter("ibv_set_err_comp_cntr", counter, [&](comp_cntr_object& o) { o.errors = value; });
}
int ibv_inc_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount) {
    return with_counter("ibv_inc_comp_cntr", counter, [&](comp_cntr_object& o) { o.value += amount; });
}
int ibv_inc_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount) {
    return with_counter("ibv_inc_err_comp_cntr", counter, [&](comp_cntr_object& o) { o.errors += amount; });
}
int ibv_read_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* value) {
    return with_counter("ibv_read_comp_cntr", counter, [&](comp_cntr_object& o) { *value = o.value; });
}
int ibv_read_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* value) {
    return with_counter("ibv_read_err_comp_cntr", counter, [&](comp_cntr_object& o) { *value = o.errors; });
}
#endif
