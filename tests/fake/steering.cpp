// libibverbs: flow rules, their actions and counters, indirection tables, and tagged receives.
#include "internal.hpp"

#include <cstdio>

namespace fake::detail {

namespace {

std::uint32_t next_handle() {
    return the().next_handle++;
}

template <class Object>
int destroy(const char* name, const char* what, const void* handle) {
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

// ---------------------------------------------------------------- counters

ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr*) {
    return make_call<ibv_counters>("ibv_create_counters", context, [&](c_call& call, ibv_counters*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr)
            return EINVAL;
        block b;
        made = new_struct<ibv_counters>(b);
        made->context = context;
        enlist<counters_object>(made, b, {owner});
        return 0;
    });
}

int destroy_counters(ibv_counters* counters) {
    return destroy<counters_object>("ibv_destroy_counters", "counters", counters);
}

int attach_counters(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow) {
    return int_call("ibv_attach_counters_point_flow", counters, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<counters_object>(call.name(), "counters", counters);
        if (o == nullptr || (flow != nullptr && expect<flow_object>(call.name(), "flow", flow) == nullptr))
            return EINVAL;
        call.detail("counter " + std::to_string(attr->counter_desc) + " at " + std::to_string(attr->index) +
                    (flow != nullptr ? " of " + describe(flow) : ""));
        o->counted[attr->index] = attr->counter_desc;
        return 0;
    });
}

// A counter of bytes counts 100 for each packet; there has been one packet for each read.
int read_counters(ibv_counters* counters, std::uint64_t* values, std::uint32_t count, std::uint32_t flags) {
    return int_call("ibv_read_counters", counters, returns::error_number, [&](c_call& call) {
        section lock;
        auto* o = expect<counters_object>(call.name(), "counters", counters);
        if (o == nullptr)
            return EINVAL;
        call.detail("flags " + std::to_string(flags));
        ++o->reads;
        for (std::uint32_t i = 0; i < count; ++i) {
            const auto it = o->counted.find(i);
            values[i] = it == o->counted.end() ? 0 : o->reads * (it->second == IBV_COUNTER_BYTES ? 100 : 1);
        }
        return 0;
    });
}

// ---------------------------------------------------------------- actions

// What it is told, with what it points to.
std::string describe(const ibv_flow_action_esp_attr& attr) {
    std::string text = "esn " + std::to_string(attr.esn) + ", mask " + std::to_string(attr.comp_mask);
    if (attr.esp_attr != nullptr)
        text += ", spi " + std::to_string(attr.esp_attr->spi) + ", seq " + std::to_string(attr.esp_attr->seq) +
                ", pad " + std::to_string(attr.esp_attr->tfc_pad) + ", flags " + std::to_string(attr.esp_attr->flags) +
                ", limit " + std::to_string(attr.esp_attr->hard_limit_pkts);
    if (attr.keymat_ptr != nullptr && attr.keymat_len == sizeof(ibv_flow_action_esp_keymat_aes_gcm)) {
        const auto& key = *static_cast<const ibv_flow_action_esp_keymat_aes_gcm*>(attr.keymat_ptr);
        const auto* bytes = reinterpret_cast<const unsigned char*>(key.aes_key);
        text += ", protocol " + std::to_string(attr.keymat_proto) + ", key of " + std::to_string(key.key_len) +
                " bytes to " + std::to_string(bytes[key.key_len - 1]) + ", salt " + std::to_string(key.salt) + ", iv " +
                std::to_string(key.iv) + ", icv " + std::to_string(key.icv_len);
    }
    if (attr.replay_ptr != nullptr && attr.replay_len == sizeof(ibv_flow_action_esp_replay_bmp))
        text += ", replay " + std::to_string(attr.replay_proto) + " of " +
                std::to_string(static_cast<const ibv_flow_action_esp_replay_bmp*>(attr.replay_ptr)->size);
    if (attr.esp_encap != nullptr)
        text += ", in " + std::to_string(attr.esp_encap->type);
    return text;
}

ibv_flow_action* create_action(ibv_context* context, ibv_flow_action_esp_attr* attr) {
    return make_call<ibv_flow_action>("ibv_create_flow_action_esp", context, [&](c_call& call, ibv_flow_action*& made) {
        section lock;
        auto* owner = expect<context_object>(call.name(), "context", context);
        if (owner == nullptr)
            return EINVAL;
        call.detail(describe(*attr));
        block b;
        made = new_struct<ibv_flow_action>(b);
        made->context = context;
        enlist<flow_action_object>(made, b, {owner});
        return 0;
    });
}

int modify_action(ibv_flow_action* action, ibv_flow_action_esp_attr* attr) {
    return int_call("ibv_modify_flow_action_esp", action, returns::error_number, [&](c_call& call) {
        section lock;
        call.detail(describe(*attr));
        return expect<flow_action_object>(call.name(), "flow action", action) == nullptr ? EINVAL : 0;
    });
}

int destroy_action(ibv_flow_action* action) {
    return destroy<flow_action_object>("ibv_destroy_flow_action", "flow action", action);
}

// ---------------------------------------------------------------- flows

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
    return make_call<ibv_flow>("ibv_create_flow", qp, [&](c_call& call, ibv_flow*& made) {
        section lock;
        auto* queue = expect<qp_object>(call.name(), "QP", qp);
        if (queue == nullptr || (queue->qp_type != IBV_QPT_UD && queue->qp_type != IBV_QPT_RAW_PACKET))
            return EINVAL;
        std::vector<object*> parents = {queue};
        const auto* at = reinterpret_cast<const std::byte*>(attr + 1);
        const auto* end = reinterpret_cast<const std::byte*>(attr) + attr->size;
        std::string what = "port " + std::to_string(attr->port) + ", priority " + std::to_string(attr->priority) +
                           ", flags " + std::to_string(attr->flags);
        for (unsigned i = 0; i < attr->num_of_specs; ++i) {
            if (end - at < static_cast<std::ptrdiff_t>(sizeof(ibv_flow_spec::hdr)))
                return EINVAL;
            ibv_flow_spec spec = {}; // a copy: they lie packed
            std::memcpy(&spec, at, sizeof spec.hdr);
            if (spec.hdr.size < sizeof spec.hdr || spec.hdr.size > sizeof spec || end - at < spec.hdr.size)
                return EINVAL;
            std::memcpy(&spec, at, spec.hdr.size);
            char text[8];
            std::snprintf(text, sizeof text, ", %x", static_cast<unsigned>(load_enum(spec.hdr.type)));
            what += text;
            if (load_enum(spec.hdr.type) == IBV_FLOW_SPEC_ACTION_COUNT) {
                parents.push_back(expect<counters_object>(call.name(), "counters", spec.flow_count.counters));
                what += " by " + detail::describe(spec.flow_count.counters);
            }
            if (load_enum(spec.hdr.type) == IBV_FLOW_SPEC_ACTION_HANDLE) {
                parents.push_back(expect<flow_action_object>(call.name(), "flow action", spec.handle.action));
                what += " by " + detail::describe(spec.handle.action);
            }
            at += spec.hdr.size;
        }
        if (at != end)
            return EINVAL;
        for (const object* parent : parents)
            if (parent == nullptr)
                return EINVAL;
        call.detail(what);
        block b;
        made = new_struct<ibv_flow>(b);
        made->comp_mask = 0;
        made->context = qp->context;
        made->handle = next_handle();
        enlist<flow_object>(made, b, std::move(parents));
        return 0;
    });
}

int destroy_flow(ibv_flow* flow) {
    return destroy<flow_object>("ibv_destroy_flow", "flow", flow);
}

// ---------------------------------------------------------------- indirection tables

ibv_rwq_ind_table* create_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
    return make_call<ibv_rwq_ind_table>("ibv_create_rwq_ind_table", context,
                                        [&](c_call& call, ibv_rwq_ind_table*& made) {
                                            section lock;
                                            auto* owner = expect<context_object>(call.name(), "context", context);
                                            if (owner == nullptr)
                                                return EINVAL;
                                            std::vector<object*> parents = {owner};
                                            std::string what;
                                            for (std::size_t i = 0; i < std::size_t{1} << attr->log_ind_tbl_size; ++i) {
                                                auto* queue = expect<wq_object>(call.name(), "WQ", attr->ind_tbl[i]);
                                                if (queue == nullptr || queue->c->context != context)
                                                    return EINVAL;
                                                parents.push_back(queue);
                                                what += (what.empty() ? "" : ", ") + detail::describe(attr->ind_tbl[i]);
                                            }
                                            call.detail(what);
                                            block b;
                                            made = new_struct<ibv_rwq_ind_table>(b);
                                            made->context = context;
                                            made->ind_tbl_handle = made->ind_tbl_num = static_cast<int>(next_handle());
                                            made->comp_mask = 0;
                                            enlist<ind_table_object>(made, b, std::move(parents));
                                            return 0;
                                        });
}

int destroy_table(ibv_rwq_ind_table* table) {
    return destroy<ind_table_object>("ibv_destroy_rwq_ind_table", "indirection table", table);
}

// ---------------------------------------------------------------- tagged receives

int post_srq_ops(ibv_srq* srq, ibv_ops_wr* first, ibv_ops_wr** bad) {
    return int_call("ibv_post_srq_ops", srq, returns::error_number, [&](c_call& call) {
        section lock;
        *bad = first;
        if (expect<srq_object>(call.name(), "SRQ", srq) == nullptr)
            return EINVAL;
        std::string what;
        for (ibv_ops_wr* at = first; at != nullptr; at = at->next) {
            *bad = at;
            what += (what.empty() ? "" : "; ") + std::to_string(at->wr_id) + " flags " + std::to_string(at->flags);
            switch (load_enum(at->opcode)) {
            case IBV_WR_TAG_ADD:
                at->tm.handle = next_handle();
                what += " add " + std::to_string(at->tm.add.tag) + "/" + std::to_string(at->tm.add.mask) + " for " +
                        std::to_string(at->tm.add.recv_wr_id) + ", " + std::to_string(at->tm.add.num_sge) + " SGEs";
                break;
            case IBV_WR_TAG_DEL: what += " del " + std::to_string(at->tm.handle); break;
            case IBV_WR_TAG_SYNC: what += " sync"; break;
            default: return EINVAL;
            }
            if ((at->flags & IBV_OPS_TM_SYNC) != 0)
                what += " seen " + std::to_string(at->tm.unexpected_cnt);
        }
        call.detail(what);
        return 0;
    });
}

} // namespace

void install_steering(verbs_context& extended) {
    extended.post_srq_ops = post_srq_ops;
    extended.create_counters = create_counters;
    extended.destroy_counters = destroy_counters;
    extended.attach_counters_point_flow = attach_counters;
    extended.read_counters = read_counters;
    extended.create_flow_action_esp = create_action;
    extended.modify_flow_action_esp = modify_action;
    extended.destroy_flow_action = destroy_action;
    extended.ibv_create_flow = create_flow;
    extended.ibv_destroy_flow = destroy_flow;
    extended.create_rwq_ind_table = create_table;
    extended.destroy_rwq_ind_table = destroy_table;
}

} // namespace fake::detail
