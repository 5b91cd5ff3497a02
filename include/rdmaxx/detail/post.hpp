// Posting: what queue pairs and shared receive queues have in common.
#ifndef RDMAXX_DETAIL_POST_HPP
#define RDMAXX_DETAIL_POST_HPP

#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/error.hpp>
#include <rdmaxx/verbs/mr.hpp>
#include <rdmaxx/verbs/wr.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmaxx::inline v0::detail {

/// Always an index of the chain: 0 where the provider names no request (Soft-RoCE, when the whole call failed).
template <class Request>
[[nodiscard]] RDMAXX_COLD std::size_t index_in_chain(const Request& first, const Request* failed) noexcept {
    std::size_t index = 0;
    for (const Request* at = &first; failed != nullptr && at != failed && at->next != nullptr; at = at->next)
        ++index;
    return index;
}

#if defined(__cpp_exceptions)
template <class Request>
[[noreturn]] RDMAXX_COLD void raise_post(const char* call, int error, const Request& first, const Request* failed) {
    throw post_error(std::error_code(error, std::system_category()), call, index_in_chain(first, failed));
}
#else
template <class Request>
[[noreturn]] void raise_post(const char* call, int error, const Request& first, const Request* failed)
    __attribute__((error("without exceptions use try_post_send or the form that takes a std::error_code&")));
#endif

template <class Request>
[[nodiscard]] std::size_t posted(const Request& first, int error, const Request* bad, std::error_code& ec) noexcept {
    if (error == 0) [[likely]] {
        clear(ec);
        return 0;
    }
    ec = code_of_number(error);
    return index_in_chain(first, bad);
}

/// @param requests one at least
template <class Request>
[[nodiscard]] Request& chain(std::span<Request> requests) noexcept {
    const std::size_t last = requests.size() - 1;
    for (std::size_t i = 0; i != last; ++i)
        requests[i].next = &requests[i + 1];
    requests[last].next = nullptr;
    return requests.front();
}

[[nodiscard]] inline int c_post_recv(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_recv(qp, first, bad);
}
[[nodiscard]] inline int c_post_recv(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_srq_recv(srq, first, bad);
}
[[nodiscard]] inline int c_post_recv(ibv_wq* wq, ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    return ::ibv_post_wq_recv(wq, first, bad);
}
[[nodiscard]] constexpr const char* c_post_recv_name(const ibv_qp*) noexcept {
    return "ibv_post_recv";
}
[[nodiscard]] constexpr const char* c_post_recv_name(const ibv_srq*) noexcept {
    return "ibv_post_srq_recv";
}
[[nodiscard]] constexpr const char* c_post_recv_name(const ibv_wq*) noexcept {
    return "ibv_post_wq_recv";
}

/// Receive requests, of a queue pair, of a shared receive queue or of a work queue. Data path: no system call of ours,
/// no allocation, no lock. The request and what it refers to may go when the call returns; the memory that its SGEs
/// name may not. A full queue is ENOMEM, and no broken one.
template <class Handle>
class recv_ops : public Handle {
public:
    using Handle::Handle;

    /// Posts a receive, or a chain of them. C call: ibv_post_recv(3), ibv_post_srq_recv(3).
    /// @throws post_error with the index of the request that failed; those before it were posted
    void post_recv(ibv_recv_wr& first) const {
        ibv_recv_wr* bad = nullptr;
        if (const int error = try_post_recv(first, bad)) [[unlikely]]
            raise_post(c_post_recv_name(this->native_handle()), error, first, bad);
    }
    void post_recv(ibv_recv_wr&& first) const { post_recv(first); }

    /// @return the index of the request that failed; 0 when none did
    std::size_t post_recv(ibv_recv_wr& first, std::error_code& ec) const noexcept {
        ibv_recv_wr* bad = nullptr;
        const int error = try_post_recv(first, bad); // a statement of its own: it sets bad
        return posted(first, error, bad, ec);
    }
    std::size_t post_recv(ibv_recv_wr&& first, std::error_code& ec) const noexcept { return post_recv(first, ec); }

    /// The form for hot loops: the cost of the C call.
    /// @return 0 or an errno
    [[nodiscard]] int try_post_recv(ibv_recv_wr& first) const noexcept {
        ibv_recv_wr* bad = nullptr;
        return try_post_recv(first, bad);
    }
    [[nodiscard]] int try_post_recv(ibv_recv_wr&& first) const noexcept { return try_post_recv(first); }
    [[nodiscard]] int try_post_recv(ibv_recv_wr& first, ibv_recv_wr*& bad) const noexcept {
        return error_number(c_post_recv(this->native_handle(), &first, &bad));
    }

    /// Posts requests that lie in a row as one chain: sets their `next` fields. None: no effect. They stay linked: one
    /// of them that is posted alone afterwards takes those behind it along, unless its `next` is cleared.
    void post_recv(std::span<recv_wr> requests) const {
        if (!requests.empty())
            post_recv(chain(requests));
    }
    std::size_t post_recv(std::span<recv_wr> requests, std::error_code& ec) const noexcept {
        if (!requests.empty())
            return post_recv(chain(requests), ec);
        clear(ec);
        return 0;
    }
    /// @return 0 or an errno
    [[nodiscard]] int try_post_recv(std::span<recv_wr> requests) const noexcept {
        return requests.empty() ? 0 : try_post_recv(chain(requests));
    }

    /// Receives into one piece of memory.
    void post_recv(const sge& piece, std::uint64_t wr_id = 0) const { post_recv(recv_wr(piece).wr_id(wr_id)); }
    void post_recv(const sge& piece, std::uint64_t wr_id, std::error_code& ec) const noexcept {
        post_recv(recv_wr(piece).wr_id(wr_id), ec);
    }
    /// @return 0 or an errno
    [[nodiscard]] int try_post_recv(const sge& piece, std::uint64_t wr_id = 0) const noexcept {
        return try_post_recv(recv_wr(piece).wr_id(wr_id));
    }
    /// Receives into a whole memory region.
    void post_recv(mr_ref region, std::uint64_t wr_id = 0) const { post_recv(region.sge(), wr_id); }
    void post_recv(mr_ref region, std::uint64_t wr_id, std::error_code& ec) const noexcept {
        const sge piece = region.sge(ec);
        if (!ec)
            post_recv(piece, wr_id, ec);
    }
    [[nodiscard]] int try_post_recv(mr_ref region, std::uint64_t wr_id = 0) const noexcept {
        std::error_code ec;
        const sge piece = region.sge(ec);
        return ec ? ec.value() : try_post_recv(piece, wr_id);
    }
};

} // namespace rdmaxx::inline v0::detail

#endif
