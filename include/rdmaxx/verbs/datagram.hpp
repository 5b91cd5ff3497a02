// A datagram that was received on a UD queue pair: 40 bytes of routing header, then what was sent.
#ifndef RDMAXX_VERBS_DATAGRAM_HPP
#define RDMAXX_VERBS_DATAGRAM_HPP

#include <rdmaxx/error.hpp>
#include <rdmaxx/verbs/wc.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmaxx::inline v0 {

/// What a UD receive brought. The first 40 bytes of its buffer are the sender's routing header (a GRH, or on IPv4 20
/// bytes of nothing and an IPv4 header), whether the sender put one there or not; the payload follows.
///
///     registered_buffer buffer(pd, datagram::room_for(1024));
///     qp.post_recv(buffer);
///     ...
///     const datagram received(wc, buffer.bytes());
///     use(received.payload());
///     const ah sender = ah::from_datagram(pd, received, port);
///
/// A view: the buffer must outlive it, and must not be posted again meanwhile.
class datagram {
public:
    /// Bytes in front of the payload.
    static constexpr std::size_t grh_size = 40;

    /// The size of a buffer for payloads of up to `payload` bytes.
    [[nodiscard]] static constexpr std::size_t room_for(std::size_t payload) noexcept { return grh_size + payload; }

    /// @param completion of the receive; of a cq_ex its snapshot()
    /// @param buffer where it was posted to
    /// @throws error EINVAL if the completion is not of a receive that succeeded, or of one that does not fit
    datagram(const wc& completion, std::span<const std::byte> buffer RDMAXX_LIFETIMEBOUND) {
        detail::check(init(completion, buffer));
    }
    [[nodiscard]] static datagram create(const wc& completion, std::span<const std::byte> buffer RDMAXX_LIFETIMEBOUND,
                                         std::error_code& ec) noexcept {
        datagram result;
        detail::assign(ec, result.init(completion, buffer));
        return result;
    }

    /// What was sent.
    [[nodiscard]] std::span<const std::byte> payload() const noexcept { return bytes_.subspan(grh_size); }
    /// The 40 bytes in front of it.
    [[nodiscard]] std::span<const std::byte, grh_size> header() const noexcept { return bytes_.first<grh_size>(); }
    /// True if the sender's packet had a routing header: always on RoCE.
    [[nodiscard]] bool has_grh() const noexcept { return has(completion_.flags(), wc_flags::grh); }

    /// The queue pair number of the sender: with the address handle and the Q_Key, where to answer.
    [[nodiscard]] std::uint32_t src_qp() const noexcept { return completion_.raw().src_qp; }
    [[nodiscard]] const wc& completion() const noexcept { return completion_; }

private:
    datagram() noexcept = default;

    [[nodiscard]] detail::status init(const wc& completion, std::span<const std::byte> buffer) noexcept {
        bytes_ = std::span(no_bytes);
        const auto length = completion.byte_len();
        if (!completion.is_recv() || !length)
            return {"datagram", EINVAL, "the completion is not of a receive that succeeded"};
        if (*length < grh_size)
            return {"datagram", EINVAL, "shorter than the routing header: not of a UD queue pair"};
        if (*length > buffer.size())
            return {"datagram", EINVAL, "longer than the buffer"};
        completion_ = completion;
        bytes_ = buffer.first(*length);
        return {};
    }

    static constexpr std::byte no_bytes[grh_size] = {};

    wc completion_{};
    std::span<const std::byte> bytes_;
};

} // namespace rdmaxx::inline v0

#endif
