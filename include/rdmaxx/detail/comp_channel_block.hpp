// What a completion channel has beside its C pointer. On its own, since the CQs made on a channel enter themselves.
#ifndef RDMAXX_DETAIL_COMP_CHANNEL_BLOCK_HPP
#define RDMAXX_DETAIL_COMP_CHANNEL_BLOCK_HPP

#include <rdmaxx/detail/cq_table.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/mutex.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/detail/wait.hpp>
#include <rdmaxx/fwd.hpp>

namespace rdmaxx::inline v0::detail {

struct comp_channel_traits {
    using raw_type = ibv_comp_channel;
    using ref_type = comp_channel_ref;
    struct block : detail::block<ibv_comp_channel, 1> { // context
        using detail::block<ibv_comp_channel, 1>::block;
        mutex lock;
        cq_table cqs RDMAXX_GUARDED_BY(lock); // the CQs made on it, so that an event finds what to pin
        int flags_before = O_NONBLOCK;
    };
    static status destroy(block& b) noexcept {
        return check_number("ibv_destroy_comp_channel", ::ibv_destroy_comp_channel(b.raw));
    }
    static void detach(block& b) noexcept { restore_blocking(b.raw->fd, b.flags_before); }
};

} // namespace rdmaxx::inline v0::detail

#endif
