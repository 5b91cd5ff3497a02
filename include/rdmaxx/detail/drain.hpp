// How qp::drain() finds out that everything has completed: by a marker on each queue. Queues keep their order, so when
// it has completed all before it have.
#ifndef RDMAXX_DETAIL_DRAIN_HPP
#define RDMAXX_DETAIL_DRAIN_HPP

#include <rdmaxx/detail/time.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/error.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/cq.hpp>
#include <rdmaxx/verbs/qp_attr.hpp>
#include <rdmaxx/verbs/wc.hpp>
#include <rdmaxx/verbs/wr.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#include <unistd.h>

namespace rdmaxx::inline v0::detail {

/// Numbers of markers: addresses, which are no request's of the program, and stay what they are when a drain has failed
/// and its markers complete later.
class RDMAXX_EXPORT drain_markers {
public:
    [[nodiscard]] static std::uint64_t next() noexcept {
        return first() + __atomic_fetch_add(&count_, 1, __ATOMIC_RELAXED) % sizeof addresses_;
    }
    [[nodiscard]] static bool have(std::uint64_t wr_id) noexcept { return wr_id - first() < sizeof addresses_; }

private:
    [[nodiscard]] static std::uint64_t first() noexcept { return reinterpret_cast<std::uintptr_t>(addresses_); }

    // NOLINTBEGIN(*-avoid-non-const-global-variables)
    inline static char addresses_[256] = {};
    inline static unsigned count_ = 0;
    // NOLINTEND(*-avoid-non-const-global-variables)
};

/// The address that a marker on a datagram queue pair must have, like any send of it: this port's own. It sends
/// nothing.
class own_address {
public:
    own_address() noexcept = default;
    own_address(const own_address&) = delete;
    own_address& operator=(const own_address&) = delete;
    ~own_address() {
        if (raw_ != nullptr)
            ::ibv_destroy_ah(raw_);
    }

    [[nodiscard]] status make(ibv_pd* domain, std::uint8_t port_num) noexcept {
        ibv_ah_attr path{};
        path.port_num = port_num;
        path.is_global = 1;
        std::error_code ec;
        path.dlid = context_ref(domain->context).query_port(port_num, ec).lid;
        if (ec)
            return {"ibv_query_port", ec.value()};
        errno = 0;
        if (::ibv_query_gid(domain->context, port_num, 0, &path.grh.dgid) != 0)
            return {"ibv_query_gid", last_errno()};
        raw_ = ::ibv_create_ah(domain, &path);
        return check_pointer("ibv_create_ah", raw_);
    }
    [[nodiscard]] ibv_ah* native_handle() const noexcept { return raw_; }

private:
    ibv_ah* raw_ = nullptr;
};

template <class Qp, class Handler>
class drain_of {
public:
    drain_of(const Qp& qp, Handler& on_completion) noexcept : qp_(qp), on_completion_(on_completion) {}

    [[nodiscard]] status run(deadline until) {
        bool reset = false;
        if (const status result = begin(reset); result.failed() || reset)
            return result;
        for (unsigned passes = 0;; ++passes) {
            bool found = false;
            if (const status result = poll(found); result.failed())
                return result;
            idle_ = found ? 0 : idle_ + 1;
            if (send_.done && recv_.done && !unmarked_)
                return {};
            if (send_.done && recv_.done && idle_ >= quiet)
                return {"ibv_poll_cq", EOPNOTSUPP, "the device cannot tell when all that was posted has completed"};
            if (until.left_ns() == 0)
                return {"ibv_poll_cq", ETIMEDOUT, "not everything that was posted has completed"};
            // A CQ with room for what was posted, and no more, must not be overrun by the markers: they are posted one
            // by one, and when there is room, as far as others that complete there allow that.
            if (!found || passes >= patience) {
                if (const status result = mark(); result.failed())
                    return result;
            }
            if (!found)
                ::usleep(50);
        }
    }

private:
    struct marker {
        std::uint64_t wr_id = drain_markers::next();
        bool posted = false;
        bool done = false;
    };

    static constexpr int quiet = 1000; // passes that find nothing, 50 us and more each
    static constexpr unsigned patience = 64;
    // Completions that were taken are lost when a handler throws: then one at a time.
    static constexpr std::size_t batch = noexcept(std::declval<Handler&>()(std::declval<const wc&>())) ? 16 : 1;

    [[nodiscard]] status begin(bool& reset) {
        if (!qp_)
            return {"ibv_query_qp", EINVAL, empty_handle};
        std::error_code ec;
        const qp_info made = qp_.query(IBV_QP_STATE | IBV_QP_PORT | IBV_QP_CAP, ec);
        if (ec)
            return {"ibv_query_qp", ec.value()};
        reset = made.state() == qp_state::reset; // it takes no requests, and has no way to the error state
        if (reset)
            return {};
        if (const status result = to_error(); result.failed())
            return result;
        // A queue without room takes no marker, and holds nothing.
        const qp_type type = qp_.type();
        send_.done = type == qp_type::xrc_recv || made.cap().max_send_wr == 0;
        recv_.done = qp_.srq() || type == qp_type::xrc_send || made.cap().max_recv_wr == 0;
        if (type == qp_type::driver && !send_.done)
            send_.done = unmarked_ = true; // what a request of a provider's own kind must have, only that knows
        if (type == qp_type::ud && !send_.done)
            return self_.make(qp_.native_handle()->pd, made.attr.port_num);
        return {};
    }

    [[nodiscard]] status to_error() const noexcept {
        std::error_code ec;
        qp_.modify(qp_attr(qp_state::err), ec);
        return {"ibv_modify_qp", ec.value()};
    }

    [[nodiscard]] status poll(bool& found) {
        const cq_ref queues[] = {qp_.send_cq(), qp_.recv_cq()};
        for (const cq_ref& queue : queues) {
            if (!queue || (&queue != queues && queue == queues[0]))
                continue;
            wc room[batch];
            std::error_code ec;
            const std::span<wc> filled = queue.poll(room, ec);
            if (ec)
                return {"ibv_poll_cq", ec.value(), "the CQ is broken (overrun, or a device failure)"};
            found = found || !filled.empty();
            for (const wc& completion : filled)
                hand_on(completion);
        }
        return {};
    }

    void hand_on(const wc& completion) {
        if (completion.qp_num() != qp_.qp_num() || !drain_markers::have(completion.wr_id())) {
            on_completion_(completion);
            return;
        }
        // Another marker is that of a drain which failed.
        send_.done = send_.done || completion.wr_id() == send_.wr_id;
        recv_.done = recv_.done || completion.wr_id() == recv_.wr_id;
    }

    /// A full queue takes its marker later, when completions have been polled.
    [[nodiscard]] status mark() noexcept {
        if (!send_.done)
            return send_.posted ? status{} : posted(send_, "ibv_post_send", post_send());
        if (recv_.done || recv_.posted)
            return {};
        recv_wr request;
        request.wr_id(recv_.wr_id);
        if (const status result = posted(recv_, "ibv_post_recv", qp_.try_post_recv(request)); result.failed())
            return result;
        // Soft-RoCE does not look at receives that are posted in the error state (this one, and the program's, which
        // may fill the queue) until it is told again.
        return to_error();
    }
    [[nodiscard]] int post_send() const noexcept {
        send_wr request = send_wr::send(std::span<const sge>());
        request.signaled().wr_id(send_.wr_id);
        if (self_.native_handle() != nullptr)
            request.wr.ud.ah = self_.native_handle();
        return qp_.try_post_send(request);
    }
    [[nodiscard]] status posted(marker& of, const char* call, int error) noexcept {
        of.posted = error == 0;
        // Some providers (bnxt_re, efa, cxgb4) take no requests in the error state.
        of.done = error == EINVAL;
        unmarked_ = unmarked_ || of.done;
        return error == ENOMEM || error == EINVAL ? status{} : status{call, error};
    }

    const Qp& qp_;
    Handler& on_completion_;
    own_address self_;
    marker send_;
    marker recv_;
    bool unmarked_ = false;
    int idle_ = 0;
};

} // namespace rdmaxx::inline v0::detail

#endif
