// libibverbs: devices, contexts, queries and async events.
#include "addresses.hpp"
#include "internal.hpp"

#include <algorithm>
#include <cstdio>

#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fake::detail {

namespace {

void install_devices(state& s, std::vector<device> list) {
    s.devices.clear();
    for (device& one : list) {
        auto made = std::make_unique<device_object>();
        made->index = s.devices.size();
        made->config = std::move(one);
        s.devices.push_back(std::move(made));
    }
}

// ---------------------------------------------------------------- struct ibv_device

template <std::size_t N>
void set_text(char (&where)[N], const std::string& text) {
    std::memset(where, 0, N);
    std::memcpy(where, text.data(), std::min(text.size(), N - 1));
}

void hold(device_object& dev) {
    if (dev.references++ > 0)
        return;
    block b;
    dev.c = new_struct<ibv_device>(b);
    dev.c->_ops = {};
    dev.c->node_type = dev.config.node;
    dev.c->transport_type = dev.config.transport;
    set_text(dev.c->name, dev.config.name);
    set_text(dev.c->dev_name, "uverbs" + std::to_string(dev.index));
    set_text(dev.c->dev_path, "/sys/class/infiniband_verbs/uverbs" + std::to_string(dev.index));
    set_text(dev.c->ibdev_path, "/sys/class/infiniband/" + dev.config.name);
    auto& o = enlist<ibv_device_object>(dev.c, b);
    o.dev = &dev;
    o.internal = true;
}

void let_go(device_object& dev) {
    if (--dev.references > 0)
        return;
    bury(*find_any(dev.c));
    dev.c = nullptr;
}

device_object* expect_device(const char* call, const ibv_device* c) {
    auto* o = expect<ibv_device_object>(call, "device", c);
    return o == nullptr ? nullptr : o->dev;
}

// ---------------------------------------------------------------- addresses and GIDs

struct gid_row {
    ibv_gid gid = {};
    std::uint32_t type = IBV_GID_TYPE_ROCE_V1;
};

std::optional<ibv_gid> gid_of(const std::string& address) {
    ibv_gid gid = {};
    in_addr v4 = {};
    if (inet_pton(AF_INET6, address.c_str(), gid.raw) == 1)
        return gid;
    if (inet_pton(AF_INET, address.c_str(), &v4) != 1)
        return std::nullopt;
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &v4, sizeof v4);
    return gid;
}

// As RoCE has them: link-local first, each address once for v1 and once for v2.
std::vector<gid_row> gid_table(const device_object& dev) {
    std::vector<std::string> addresses = {"fe80::5054:ff:fe00:" + std::to_string(dev.index + 1)};
    if (dev.config.addresses.empty())
        addresses.emplace_back("192.0.2.1");
    else
        addresses.insert(addresses.end(), dev.config.addresses.begin(), dev.config.addresses.end());
    std::vector<gid_row> rows;
    for (const std::string& address : addresses) {
        const auto gid = gid_of(address);
        if (!gid)
            continue;
        if (dev.config.link_layer != IBV_LINK_LAYER_ETHERNET) {
            rows.push_back({*gid, IBV_GID_TYPE_IB});
            continue;
        }
        rows.push_back({*gid, IBV_GID_TYPE_ROCE_V1});
        rows.push_back({*gid, IBV_GID_TYPE_ROCE_V2});
    }
    return rows;
}

} // namespace

device_object* device_for(const sockaddr_storage& local) {
    const std::string host = host_of(local);
    device_object* any = nullptr;
    for (const auto& dev : the().devices) {
        if (dev->removed)
            continue;
        const auto& own = dev->config.addresses;
        if (std::find(own.begin(), own.end(), host) != own.end())
            return dev.get();
        if (own.empty() && any == nullptr)
            any = dev.get();
    }
    return any;
}

bool any_device() {
    return std::any_of(the().devices.begin(), the().devices.end(), [](const auto& d) { return !d->removed; });
}

void default_devices(state& s) {
    install_devices(s, {device{.name = "fake0"}});
}

// ---------------------------------------------------------------- contexts

namespace {

// Copies of a descriptor are told from others by their file: every context's is one of its own.
int new_cmd_fd() {
    return memfd_create("fake cmd_fd", MFD_CLOEXEC);
}
bool same_file(int a, int b) {
    struct stat of_a {};
    struct stat of_b {};
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

// Takes the descriptor when it succeeds.
int make_context(device_object& dev, int cmd_fd, ibv_context*& made) {
    if (cmd_fd < 0)
        return errno;
    const int async_fd = new_signal();
    if (async_fd < 0)
        return errno;
    hold(dev);
    block b = take_block(sizeof(verbs_context));
    auto* extended = static_cast<verbs_context*>(b.memory);
    std::memset(b.memory, 0, b.size); // an absent operation is a null pointer
    extended->sz = sizeof *extended;
    ibv_context& c = extended->context;
    c.device = dev.c;
    c.cmd_fd = cmd_fd;
    c.async_fd = async_fd;
    c.num_comp_vectors = 4;
    pthread_mutex_init(&c.mutex, nullptr);
    c.abi_compat = reinterpret_cast<void*>(UINTPTR_MAX); // __VERBS_ABI_IS_EXTENDED
    install_ops(c, benching.load(std::memory_order_relaxed));
    auto& o = enlist<context_object>(&c, b);
    o.extended = extended;
    o.c = &c;
    o.dev = &dev;
    made = &c;
    return 0;
}

void close_context(context_object& o) {
    close(o.c->async_fd);
    close(o.c->cmd_fd);
    device_object& dev = *o.dev;
    bury(o);
    let_go(dev);
}

std::string children_of(const object& parent) {
    std::string names;
    for (const auto& entry : the().living)
        for (const object* p : entry.second->parents)
            if (p == &parent)
                names += (names.empty() ? "" : ", ") + entry.second->name;
    return names;
}

} // namespace

int cm_attach(device_object& dev, ibv_context*& verbs, ibv_pd*& pd) {
    ibv_device* c = nullptr;
    {
        section lock;
        if (dev.removed)
            return ENODEV;
        hold(dev);
        ++dev.cm_ids; // from here on: the end of another id must not end the PD meanwhile
        c = dev.c;
        verbs = dev.cm_context == nullptr ? nullptr : dev.cm_context->c;
        pd = dev.cm_pd;
    }
    int error = 0;
    if (verbs == nullptr && (verbs = ibv_open_device(c)) == nullptr)
        error = errno;
    if (error == 0 && pd == nullptr && (pd = ibv_alloc_pd(verbs)) == nullptr)
        error = errno;
    {
        section lock;
        let_go(dev);
        if (verbs != nullptr)
            find_any(verbs)->internal = true;
        if (pd != nullptr)
            find_any(pd)->internal = true;
        // Another thread may have come first; what it made counts.
        if (dev.cm_context == nullptr && verbs != nullptr)
            dev.cm_context = context_of(verbs);
        if (error == 0) {
            if (dev.cm_pd == nullptr)
                dev.cm_pd = pd;
            verbs = dev.cm_context->c;
            pd = dev.cm_pd;
            return 0;
        }
    }
    cm_detach(dev);
    return error;
}

void cm_detach(device_object& dev) {
    ibv_pd* pd = nullptr;
    {
        section lock;
        if (--dev.cm_ids > 0)
            return;
        pd = std::exchange(dev.cm_pd, nullptr);
    }
    // The context stays open; a PD that is still in use is lost to the library.
    if (pd == nullptr || ibv_dealloc_pd(pd) == 0)
        return;
    section lock;
    if (auto* o = find_any(pd))
        o->internal = true;
}

// ---------------------------------------------------------------- async events

void queue_async(context_object& context, int type, object* element, int port) {
    if (element != nullptr && element->going)
        return;
    auto made = std::make_unique<async_event>();
    made->type = type;
    made->element = element;
    fill_garbage(made->event);
    store_enum(made->event.event_type, type);
    if (element == nullptr) {
        made->event.element.port_num = port;
    } else {
        switch (element->what) {
        case kind::cq: made->event.element.cq = static_cast<ibv_cq*>(element->handle); break;
        case kind::qp: made->event.element.qp = static_cast<ibv_qp*>(element->handle); break;
        case kind::srq: made->event.element.srq = static_cast<ibv_srq*>(element->handle); break;
        case kind::wq: made->event.element.wq = static_cast<ibv_wq*>(element->handle); break;
        default: break;
        }
    }
    if (context.async.empty())
        raise_signal(context.c->async_fd);
    context.async.push_back(std::move(made));
}

void drop_async_of(object& element, context_object& context) {
    auto& queue = context.async;
    if (queue.empty())
        return;
    queue.erase(std::remove_if(queue.begin(), queue.end(), [&](const auto& e) { return e->element == &element; }),
                queue.end());
    if (queue.empty())
        lower_signal(context.c->async_fd);
}

namespace {

tally* asyncs_of(object* element) {
    if (element == nullptr)
        return nullptr;
    switch (element->what) {
    case kind::cq: return &static_cast<cq_object*>(element)->asyncs;
    case kind::qp: return &static_cast<qp_object*>(element)->asyncs;
    case kind::srq: return &static_cast<srq_object*>(element)->asyncs;
    case kind::wq: return &static_cast<wq_object*>(element)->asyncs;
    default: return nullptr;
    }
}

// Which element an event of this type has.
enum class element_kind { cq, qp, srq, wq, port };
element_kind element_of(int type) {
    switch (type) {
    case IBV_EVENT_CQ_ERR: return element_kind::cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return element_kind::qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return element_kind::srq;
    case IBV_EVENT_WQ_FATAL: return element_kind::wq;
    default: return element_kind::port;
    }
}

const void* element_pointer(const ibv_async_event& event) {
    switch (element_of(load_enum(event.event_type))) {
    case element_kind::cq: return event.element.cq;
    case element_kind::qp: return event.element.qp;
    case element_kind::srq: return event.element.srq;
    case element_kind::wq: return event.element.wq;
    default: return nullptr;
    }
}

template <class Object>
void push_async(const char* what, void* handle, int type) {
    section lock;
    auto* o = expect<Object>("push_async_event", what, handle);
    if (o == nullptr)
        return;
    for (object* parent = o; parent != nullptr; parent = parent->parents.empty() ? nullptr : parent->parents.front())
        if (parent->what == kind::context)
            return queue_async(*static_cast<context_object*>(parent), type, o, 0);
}

std::unique_ptr<async_event> take_async(const ibv_context* context, int& fd) {
    section lock;
    auto* o = expect<context_object>("ibv_get_async_event", "context", context);
    fd = o == nullptr ? -1 : o->c->async_fd;
    if (o == nullptr || o->async.empty())
        return nullptr;
    auto taken = std::move(o->async.front());
    o->async.pop_front();
    if (o->async.empty())
        lower_signal(fd);
    ++the().async_events.got;
    if (tally* t = asyncs_of(taken->element))
        ++t->got;
    return taken;
}

} // namespace

} // namespace fake::detail

namespace fake {

using namespace detail;

void devices(std::vector<device> list) {
    section lock;
    install_devices(the(), std::move(list));
}

void remove_device(std::string_view name) {
    std::vector<std::pair<rdma_event_channel*, rdma_cm_id*>> told;
    {
        section lock;
        for (const auto& dev : the().devices) {
            if (dev->config.name != name)
                continue;
            dev->removed = true;
            each<id_object>([&](id_object& id) {
                if (id.device != nullptr && id.device->dev == dev.get() && id.channel != nullptr)
                    told.emplace_back(id.channel->c, id.c);
            });
            each<context_object>([&](context_object& context) {
                if (context.dev == dev.get() && !context.internal)
                    queue_async(context, IBV_EVENT_DEVICE_FATAL, nullptr, 0);
            });
        }
    }
    for (const auto& [channel, id] : told)
        push_event(channel, {.type = RDMA_CM_EVENT_DEVICE_REMOVAL, .id = id});
}

void push_async_event(ibv_qp* qp, int type) {
    push_async<qp_object>("QP", qp, type);
}
void push_async_event(ibv_cq* cq, int type) {
    push_async<cq_object>("CQ", cq, type);
}
void push_async_event(ibv_srq* srq, int type) {
    push_async<srq_object>("SRQ", srq, type);
}
void push_async_event(ibv_wq* wq, int type) {
    push_async<wq_object>("WQ", wq, type);
}
void push_async_event(ibv_context* context, int port, int type) {
    section lock;
    if (auto* o = expect<context_object>("push_async_event", "context", context))
        queue_async(*o, type, nullptr, port);
}

} // namespace fake

using namespace fake::detail;

// ---------------------------------------------------------------- lists

ibv_device** ibv_get_device_list(int* num_devices) {
    return make_call<ibv_device*>("ibv_get_device_list", nullptr, [&](c_call&, ibv_device**& made) {
        section lock;
        std::vector<device_object*> present;
        for (const auto& dev : the().devices)
            if (!dev->removed)
                present.push_back(dev.get());
        block b = take_block((present.size() + 1) * sizeof(ibv_device*));
        made = static_cast<ibv_device**>(b.memory);
        for (std::size_t i = 0; i < present.size(); ++i) {
            hold(*present[i]);
            made[i] = present[i]->c;
        }
        made[present.size()] = nullptr;
        enlist<device_list_object>(made, b).devices = present;
        if (num_devices != nullptr)
            *num_devices = static_cast<int>(present.size());
        return 0;
    });
}

void ibv_free_device_list(ibv_device** list) {
    c_call call("ibv_free_device_list", list, returns::nothing);
    section lock;
    auto* o = expect<device_list_object>(call.name(), "device list", list);
    if (o == nullptr)
        return;
    const auto devices = o->devices;
    bury(*o);
    for (device_object* dev : devices)
        let_go(*dev);
}

const char* ibv_get_device_name(ibv_device* device) {
    c_call call("ibv_get_device_name", device, returns::nothing);
    section lock;
    return expect_device(call.name(), device) == nullptr ? nullptr : device->name;
}

int ibv_get_device_index(ibv_device* device) {
    c_call call("ibv_get_device_index", device, returns::minus_one);
    section lock;
    const auto* dev = expect_device(call.name(), device);
    return call.number(dev == nullptr ? -1 : static_cast<int>(dev->index));
}

__be64 ibv_get_device_guid(ibv_device* device) {
    c_call call("ibv_get_device_guid", device, returns::nothing);
    section lock;
    const auto* dev = expect_device(call.name(), device);
    return dev == nullptr ? 0 : htobe64(0x5054'00ff'fe00'0000ULL + dev->index + 1);
}

ibv_context* ibv_open_device(ibv_device* device) {
    return make_call<ibv_context>("ibv_open_device", device, [&](c_call& call, ibv_context*& made) {
        section lock;
        auto* dev = expect_device(call.name(), device);
        if (dev == nullptr)
            return EINVAL;
        if (dev->removed)
            return ENODEV;
        const int cmd_fd = new_cmd_fd();
        const int error = make_context(*dev, cmd_fd, made);
        if (error != 0 && cmd_fd >= 0)
            close(cmd_fd);
        return error;
    });
}

int ibv_close_device(ibv_context* context) {
    return destroy_call("ibv_close_device", context, returns::minus_one, [&](c_call& call) {
        section lock;
        auto* o = expect<context_object>(call.name(), "context", context);
        if (o == nullptr)
            return EINVAL;
        if (o->internal) {
            report("ibv_close_device: " + o->name + " is librdmacm's own");
            return 0;
        }
        if (o->children > 0) {
            report("ibv_close_device: " + o->name + " still has " + children_of(*o) + ", whose end would crash");
            return 0;
        }
        close_context(*o);
        return 0;
    });
}

// The other "process" is this one: the descriptor is a copy of another context's.
ibv_context* ibv_import_device(int cmd_fd) {
    return make_call<ibv_context>("ibv_import_device", nullptr, [&](c_call& call, ibv_context*& made) {
        section lock;
        call.detail("fd " + std::to_string(cmd_fd));
        device_object* dev = nullptr;
        bool taken = false;
        each<context_object>([&](context_object& o) {
            taken = taken || o.c->cmd_fd == cmd_fd;
            if (same_file(o.c->cmd_fd, cmd_fd))
                dev = o.dev;
        });
        if (taken)
            report(std::string(call.name()) + ": fd " + std::to_string(cmd_fd) + " is another context's");
        if (dev == nullptr)
            return fcntl(cmd_fd, F_GETFD) < 0 ? EINVAL : ENODEV;
        return make_context(*dev, cmd_fd, made);
    });
}

// ---------------------------------------------------------------- librdmacm's list of contexts

ibv_context** rdma_get_devices(int* num_devices) {
    if (num_devices != nullptr)
        *num_devices = 0;
    return make_call<ibv_context*>("rdma_get_devices", nullptr, [&](c_call&, ibv_context**& made) {
        std::vector<device_object*> present;
        {
            section lock;
            for (const auto& dev : the().devices)
                if (!dev->removed)
                    present.push_back(dev.get());
        }
        if (present.empty())
            return ENODEV;
        std::vector<ibv_context*> contexts;
        for (device_object* dev : present) {
            ibv_context* verbs = nullptr;
            ibv_pd* pd = nullptr;
            if (const int error = cm_attach(*dev, verbs, pd)) {
                for (std::size_t i = 0; i < contexts.size(); ++i)
                    cm_detach(*present[i]);
                return error;
            }
            contexts.push_back(verbs);
        }
        section lock;
        block b = take_block((contexts.size() + 1) * sizeof(ibv_context*));
        made = static_cast<ibv_context**>(b.memory);
        std::copy(contexts.begin(), contexts.end(), made);
        made[contexts.size()] = nullptr;
        enlist<context_list_object>(made, b).devices = present;
        if (num_devices != nullptr)
            *num_devices = static_cast<int>(contexts.size());
        return 0;
    });
}

void rdma_free_devices(ibv_context** list) {
    c_call call("rdma_free_devices", list, returns::nothing);
    std::vector<device_object*> devices;
    {
        section lock;
        auto* o = expect<context_list_object>(call.name(), "list of contexts", list);
        if (o == nullptr)
            return;
        devices = o->devices;
        bury(*o);
    }
    for (device_object* dev : devices)
        cm_detach(*dev);
}

// ---------------------------------------------------------------- queries

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
    return int_call("ibv_query_device", context, returns::error_number, [&](c_call& call) {
        section lock;
        const auto* o = expect<context_object>(call.name(), "context", context);
        if (o == nullptr)
            return EINVAL;
        const auto& limits = the().limits;
        *attr = {};
        std::snprintf(attr->fw_ver, sizeof attr->fw_ver, "fake");
        attr->node_guid = attr->sys_image_guid = htobe64(0x5054'00ff'fe00'0000ULL + o->dev->index + 1);
        attr->max_mr_size = limits.max_mr_size;
        attr->vendor_id = limits.vendor_id;
        attr->vendor_part_id = limits.vendor_part_id;
        attr->page_size_cap = 0xfffff000;
        attr->max_qp = 1 << 16;
        attr->max_qp_wr = limits.max_qp_wr;
        attr->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
                                 IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
        attr->max_sge = attr->max_sge_rd = limits.max_sge;
        attr->max_cq = attr->max_mr = attr->max_mw = 1 << 16;
        attr->max_pd = attr->max_ah = 1 << 15;
        attr->max_cqe = limits.max_cqe;
        attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = limits.max_rd_atom;
        attr->max_res_rd_atom = 1 << 18;
        attr->atomic_cap = IBV_ATOMIC_HCA;
        attr->max_mcast_grp = 1 << 13;
        attr->max_mcast_qp_attach = 56;
        attr->max_total_mcast_qp_attach = 1 << 18;
        attr->max_srq = 1 << 15;
        attr->max_srq_wr = limits.max_srq_wr;
        attr->max_srq_sge = limits.max_srq_sge;
        attr->max_pkeys = 64;
        attr->local_ca_ack_delay = 15;
        attr->phys_port_cnt = o->dev->config.ports;
        return 0;
    });
}

namespace {

int port_attributes(const char* call, ibv_context* context, unsigned port, ibv_port_attr& attr) {
    section lock;
    const auto* o = expect<context_object>(call, "context", context);
    if (o == nullptr || port < 1 || port > o->dev->config.ports)
        return EINVAL;
    attr = {};
    attr.state = IBV_PORT_ACTIVE;
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = IBV_MTU_1024;
    attr.gid_tbl_len = static_cast<int>(gid_table(*o->dev).size());
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = 1U << 31U;
    attr.pkey_tbl_len = 1;
    attr.lid = o->dev->config.link_layer == IBV_LINK_LAYER_INFINIBAND ? 1 : 0;
    attr.max_vl_num = 1;
    attr.active_width = 1;
    attr.active_speed = 1;
    attr.phys_state = 5;
    attr.link_layer = o->dev->config.link_layer;
    attr.flags = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_QPF_GRH_REQUIRED : 0;
    return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size) {
    return int_call("ibv_query_port", context, returns::error_number, [&](c_call& call) {
        ibv_port_attr full = {};
        const int error = port_attributes(call.name(), context, port, full);
        if (error == 0)
            std::memcpy(attr, &full, std::min(size, sizeof full));
        return error;
    });
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr,
                    std::size_t size) {
    return int_call("ibv_query_device_ex", context, returns::error_number, [&](c_call&) {
        std::memset(attr, 0, size);
        const int error = ibv_query_device(context, &attr->orig_attr);
        attr->device_cap_flags_ex = attr->orig_attr.device_cap_flags;
        return error;
    });
}

// A clock that goes on by one tick for each query.
int query_rt_values(ibv_context* context, ibv_values_ex* values) {
    return int_call("ibv_query_rt_values_ex", context, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<context_object>(call.name(), "context", context);
        if (o == nullptr)
            return EINVAL;
        call.detail("mask " + std::to_string(values->comp_mask));
        values->comp_mask &= static_cast<std::uint32_t>(IBV_VALUES_MASK_RAW_CLOCK);
        values->raw_clock = {0, ++o->ticks};
        return 0;
    });
}

int find_gid(const char* call, ibv_context* context, unsigned port, unsigned index, gid_row& row) {
    section lock;
    const auto* o = expect<context_object>(call, "context", context);
    if (o == nullptr || port < 1 || port > o->dev->config.ports)
        return EINVAL;
    const auto rows = gid_table(*o->dev);
    if (index >= rows.size())
        return EINVAL;
    row = rows[index];
    return 0;
}

ibv_gid_entry gid_entry(const gid_row& row, std::uint32_t port, std::uint32_t index) {
    ibv_gid_entry entry = {};
    entry.gid = row.gid;
    entry.gid_index = index;
    entry.port_num = port;
    entry.gid_type = row.type;
    entry.ndev_ifindex = 2;
    return entry;
}

} // namespace

void fake::detail::install_queries(verbs_context& extended) {
    extended.query_port = query_port;
    extended.query_device_ex = query_device_ex;
    extended.query_rt_values = query_rt_values;
}

// The exported function of this name is the one of old programs, which fill a shorter struct.
int(ibv_query_port)(ibv_context* context, std::uint8_t port, struct _compat_ibv_port_attr* attr) {
    constexpr std::size_t compat_size = 48;
    return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), compat_size);
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
    return int_call("ibv_query_gid", context, returns::minus_one, [&](c_call& call) {
        gid_row row;
        const int error = find_gid(call.name(), context, port, static_cast<unsigned>(index), row);
        if (error == 0)
            *gid = row.gid;
        return error;
    });
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t flags, std::size_t size) {
    return int_call("ibv_query_gid_ex", context, returns::error_number, [&](c_call& call) {
        if (flags != 0)
            return EOPNOTSUPP;
        gid_row row;
        const int error = find_gid(call.name(), context, port, index, row);
        const auto full = gid_entry(row, port, index);
        if (error == 0)
            std::memcpy(entry, &full, std::min(size, sizeof full));
        return error;
    });
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries, std::uint32_t flags,
                             std::size_t size) {
    c_call call("ibv_query_gid_table", context, returns::error_number);
    if (call.injected())
        return -std::abs(call.finish(call.injected_error()));
    std::size_t n = 0;
    {
        section lock;
        const auto* o = expect<context_object>(call.name(), "context", context);
        if (o == nullptr || flags != 0)
            return -EINVAL;
        const auto rows = gid_table(*o->dev);
        for (std::uint32_t port = 1; port <= o->dev->config.ports; ++port) {
            for (std::uint32_t i = 0; i < rows.size() && n < max_entries; ++i, ++n) {
                const auto full = gid_entry(rows[i], port, i);
                std::memcpy(reinterpret_cast<std::byte*>(entries) + n * size, &full, std::min(size, sizeof full));
            }
        }
    }
    return call.number(static_cast<int>(n));
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
    return int_call("ibv_query_pkey", context, returns::minus_one, [&](c_call& call) {
        section lock;
        const auto* o = expect<context_object>(call.name(), "context", context);
        if (o == nullptr || port < 1 || port > o->dev->config.ports || index != 0)
            return EINVAL;
        *pkey = 0xffff;
        return 0;
    });
}

int ibv_get_pkey_index(ibv_context* context, std::uint8_t, __be16 pkey) {
    c_call call("ibv_get_pkey_index", context, returns::minus_one);
    if (call.injected())
        return call.finish(call.injected_error());
    return pkey == 0xffff ? call.number(0) : call.finish(EINVAL);
}

// ---------------------------------------------------------------- async events

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    return int_call("ibv_get_async_event", context, returns::minus_one, [&](c_call& call) {
        for (;;) {
            int fd = -1;
            if (const auto taken = take_async(context, fd)) {
                happens_after(taken->element == nullptr ? context : taken->element->handle);
                *event = taken->event;
                return 0;
            }
            if (fd < 0)
                return EBADF;
            if (const int error = wait_for_signal(fd, setting(&fake::settings::get_limit))) {
                if (error == ETIMEDOUT)
                    report(std::string(call.name()) + ": blocks for ever");
                return error;
            }
        }
    });
}

void ibv_ack_async_event(ibv_async_event* event) {
    if (event == nullptr) {
        report("ibv_ack_async_event: null event, this would crash");
        return;
    }
    const void* element = element_pointer(*event);
    c_call call("ibv_ack_async_event", element, returns::nothing);
    if (element != nullptr)
        happens_before(acks_of(element));
    section lock;
    auto& all = the().async_events;
    if (element != nullptr) {
        object* o = find_any(element);
        fake::tally* t = asyncs_of(o);
        if (t == nullptr)
            return report_bad_handle(call.name(), "element of an async event", element);
        if (t->held() == 0)
            return report(std::string(call.name()) + ": no async event of " + o->name + " is held");
        ++t->acked;
    } else if (all.held() == 0) {
        return report(std::string(call.name()) + ": no async event is held");
    }
    ++all.acked;
    the().changed.notify_all();
}
