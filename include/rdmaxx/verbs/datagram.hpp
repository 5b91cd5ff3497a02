// A datagram that was received on a UD queue pair: 40 bytes of routing header, then what was sent.
#ifndef RDMAXX_VERBS_DATAGRAM_HPP
#define RDMAXX_VERBS_DATAGRAM_HPP

#include <rdmaxx/error.hpp>
#include <rdmaxx/verbs/gid.hpp>
#include <rdmaxx/verbs/wc.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rdmaxx::inline v0 {
namespace detail {

/// The 40 bytes that a UD receive begins with: a GRH, or in its last 20 an IPv4 header (of RoCE v2). In a copy, which
/// may be read where they lay at any address.
class routing_header {
public:
    static constexpr std::size_t size = 40;

    explicit routing_header(const void* from) noexcept { std::memcpy(bytes_, from, size); }

    /// An IPv4 packet leaves the first bytes to chance, which may look like a GRH's: its own checksum tells, as C asks.
    [[nodiscard]] bool is_ipv4() const noexcept {
        const std::uint8_t* ipv4 = bytes_ + 20;
        if (bytes_[0] >> 4 != 6)
            return ipv4[0] >> 4 == 4;
        if (ipv4[0] != 0x45) // version 4 and no options: RoCE has none
            return false;
        std::uint32_t sum = 0;
        for (unsigned i = 0; i < 20; i += 2)
            sum += static_cast<std::uint32_t>(ipv4[i]) << 8 | ipv4[i + 1];
        return (sum & 0xffff) + (sum >> 16) == 0xffff;
    }

    [[nodiscard]] gid sgid() const noexcept { return is_ipv4() ? mapped(bytes_ + 32) : whole(bytes_ + 8); }
    [[nodiscard]] gid dgid() const noexcept { return is_ipv4() ? mapped(bytes_ + 36) : whole(bytes_ + 24); }

    /// GIDs of groups begin with ff, IPv4 addresses of groups with 224 to 239.
    [[nodiscard]] bool to_group() const noexcept { return is_ipv4() ? bytes_[36] >> 4 == 0xe : bytes_[24] == 0xff; }

    [[nodiscard]] std::uint8_t traffic_class() const noexcept {
        return is_ipv4() ? bytes_[21] : static_cast<std::uint8_t>(first_word() >> 20 & 0xff);
    }
    [[nodiscard]] std::uint32_t flow_label() const noexcept { return is_ipv4() ? 0 : first_word() & 0xfffff; }

private:
    [[nodiscard]] std::uint32_t first_word() const noexcept {
        return static_cast<std::uint32_t>(bytes_[0]) << 24 | static_cast<std::uint32_t>(bytes_[1]) << 16 |
               static_cast<std::uint32_t>(bytes_[2]) << 8 | bytes_[3];
    }
    [[nodiscard]] static gid whole(const std::uint8_t* at) noexcept {
        ibv_gid raw{};
        std::memcpy(raw.raw, at, sizeof raw.raw);
        return gid(raw);
    }
    [[nodiscard]] static gid mapped(const std::uint8_t* at) noexcept {
        ibv_gid raw{};
        raw.raw[10] = raw.raw[11] = 0xff;
        std::memcpy(raw.raw + 12, at, 4);
        return gid(raw);
    }

    std::uint8_t bytes_[size] = {};
};

} // namespace detail

/// What a UD receive brought. The first 40 bytes of its buffer are the sender's routing header (a GRH, or on IPv4 20
/// bytes of nothing and an IPv4 header), whether the sender put one there or not; the payload follows.
///
///     registered_buffer buffer(pd, datagram::room_for(1024));
///     qp.post_recv(buffer);
///     ...
///     const datagram received(wc, buffer.bytes());
///     use(received.payload());
///     const ah sender = ah::from_datagram(pd, received, port);
///     answer.to(sender, received.src_qp(), qkey);
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

    /// The GID of the sender, and the one that it was sent to, of this side or of a multicast group. No GID where there
    /// is no routing header. (On RoCE they are the packet's IP addresses.)
    [[nodiscard]] gid sgid() const noexcept { return has_grh() ? routing().sgid() : gid(); }
    [[nodiscard]] gid dgid() const noexcept { return has_grh() ? routing().dgid() : gid(); }

    /// The queue pair number of the sender: with the address handle and the Q_Key, where to answer.
    [[nodiscard]] std::uint32_t src_qp() const noexcept { return completion_.raw().src_qp; }
    [[nodiscard]] const wc& completion() const noexcept { return completion_; }

private:
    datagram() noexcept = default;

    [[nodiscard]] detail::routing_header routing() const noexcept { return detail::routing_header(bytes_.data()); }

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
