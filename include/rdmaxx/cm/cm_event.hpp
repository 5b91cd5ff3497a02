// struct rdma_cm_event: rdma_get_cm_event(3), rdma_ack_cm_event(3). One get, one ack.
#ifndef RDMAXX_CM_CM_EVENT_HPP
#define RDMAXX_CM_CM_EVENT_HPP

#include <rdmaxx/cm/cm_id.hpp>
#include <rdmaxx/cm/event_type.hpp>
#include <rdmaxx/detail/cm_blocks.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace rdmaxx::inline v0 {
namespace detail {

/// A datagram id's events have the datagram half of the C union. For a request ask the listener: the new id may be
/// taken and gone, while the listener cannot end before the event.
[[nodiscard]] inline bool is_datagram(const rdma_cm_event& event) noexcept {
    const rdma_cm_id* pinned = type_of(event) == cm_event_type::connect_request ? event.listen_id : event.id;
    return pinned != nullptr && pinned->qp_type == IBV_QPT_UD;
}

[[nodiscard]] inline std::error_code code_of(const rdma_cm_event& event) noexcept {
    const cm_event_type type = type_of(event);
    if (event.status == 0 || type == cm_event_type::user)
        return {};
    if (event.status < 0)
        return {public_errno(-event.status), std::system_category()};
    if (type == cm_event_type::rejected)
        return {event.status, reject_category()};
    if (type == cm_event_type::unreachable && is_datagram(event))
        return {event.status, sidr_category()};
    return {event.status, std::system_category()};
}

[[nodiscard]] inline std::span<const std::byte> private_data_of(const rdma_cm_event& event) noexcept {
    const auto view = [](const void* data, std::size_t size) noexcept -> std::span<const std::byte> {
        if (data == nullptr)
            return {};
        return {static_cast<const std::byte*>(data), size};
    };
    const auto conn = [&]() noexcept {
        return view(event.param.conn.private_data, event.param.conn.private_data_len);
    };
    const auto ud = [&]() noexcept {
        return view(event.param.ud.private_data, event.param.ud.private_data_len);
    };
    switch (type_of(event)) {
    case cm_event_type::connect_request:
    case cm_event_type::established:
    case cm_event_type::unreachable:
    case cm_event_type::connect_error: return is_datagram(event) ? ud() : conn();
    case cm_event_type::connect_response:
    case cm_event_type::rejected:
    case cm_event_type::disconnected: return conn();
    default: // others carry none, and a multicast event has the program's own pointer in that place
        return {};
    }
}

} // namespace detail

/// A copy of what an event said, for code that acks first and acts afterwards. Its ids are addresses, to be compared
/// and not to be used: by then they may be gone.
class cm_event_snapshot {
public:
    cm_event_snapshot() noexcept = default;

    /// A copy of an event of the C library's, which stays the caller's.
    explicit cm_event_snapshot(const rdma_cm_event& event) noexcept
        : type_(detail::type_of(event)), status_(event.status), code_(detail::code_of(event)), id_(event.id),
          listen_id_(type_ == cm_event_type::connect_request ? event.listen_id : nullptr) {
        const std::span<const std::byte> data = detail::private_data_of(event);
        size_ = static_cast<std::uint16_t>(data.size());
        if (!data.empty())
            std::memcpy(data_, data.data(), data.size());
    }

    /// What happened, why, and to whom: as cm_event has it, but for the ids, which are addresses only.
    [[nodiscard]] cm_event_type type() const noexcept { return type_; }
    [[nodiscard]] int status() const noexcept { return status_; }
    [[nodiscard]] std::error_code code() const noexcept { return code_; }
    [[nodiscard]] const void* id() const noexcept { return id_; }
    [[nodiscard]] const void* listen_id() const noexcept { return listen_id_; }
    /// What the peer sent along, as long as the snapshot. See cm_event::private_data.
    [[nodiscard]] std::span<const std::byte> private_data() const& noexcept RDMAXX_LIFETIMEBOUND {
        return {data_, size_};
    }
    std::span<const std::byte> private_data() const&& = delete; // it ends with the snapshot

    /// `rejected: rejected by the peer's program`
    [[nodiscard]] std::string to_string() const {
        std::string text = rdmaxx::to_string(type_);
        if (code_)
            text.append(": ").append(code_.message());
        return text;
    }

private:
    cm_event_type type_ = cm_event_type::none;
    int status_ = 0;
    std::error_code code_;
    const void* id_ = nullptr;
    const void* listen_id_ = nullptr;
    std::uint16_t size_ = 0;
    std::byte data_[256] = {};
};

/// An event of a channel, to be given back with rdma_ack_cm_event(3): the destructor does. Move-only.
///
/// An event must end before the id that it is about (for a connect_request: before the listener; the new id is free of
/// it). Everything that it shows by reference ends with it. An acked or moved-from event is empty:
/// type() is none, views are empty.
///
/// A connect_request owns the id that it brought, until take_id(). Dropped before that, it destroys the new id, on
/// which the kernel rejects the peer.
///
/// One event may be used by one thread at a time, and acked by another one than the one that got it.
///
/// (A lambda that owns an event cannot be stored in std::function, which copies; any other callable type will do.)
class [[nodiscard]] RDMAXX_CONSUMABLE(unknown) cm_event {
public:
    /// Empty.
    cm_event() noexcept RDMAXX_RETURN_TYPESTATE(unknown) {}

    cm_event(cm_event&& other) noexcept
        : raw_(std::exchange(other.raw_, nullptr)), record_(std::exchange(other.record_, nullptr)) {}
    /// Takes the new event first, then acks the old one. Self-move changes nothing.
    cm_event& operator=(cm_event&& other) noexcept {
        cm_event taken(std::move(other));
        std::swap(raw_, taken.raw_);
        std::swap(record_, taken.record_);
        return *this;
    }
    cm_event(const cm_event&) = delete;
    cm_event& operator=(const cm_event&) = delete;

    /// Acks. Never blocks for long, never fails; errno is kept.
    ~cm_event() { end(true); }

    /// Takes over an event that C code got from the channel (its own rdma_get_cm_event). If it is a connect_request,
    /// the new id with it.
    /// @param channel an event_channel: the one that the event came from
    /// @param ec ENOMEM, and the event is still the caller's
    [[nodiscard]] static cm_event adopt(rdma_cm_event* raw, const detail::owner<detail::event_channel_traits>& channel,
                                        std::error_code& ec) noexcept {
        cm_event event;
        if (raw == nullptr || !channel) {
            detail::assign(ec, {"rdma_get_cm_event", EINVAL, "empty event or channel"});
            return event;
        }
        const detail::status result = detail::adopt_event(*detail::passkey::block(channel), *raw, event.record_);
        detail::assign(ec, result);
        if (!result.failed())
            event.raw_ = raw;
        return event;
    }

    /// False for an empty event.
    [[nodiscard]] explicit operator bool() const noexcept RDMAXX_TEST_TYPESTATE(unconsumed) { return raw_ != nullptr; }

    /// Gives the event back now: std::move(event).ack(). Empty: no effect.
    void ack() && noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") RDMAXX_SET_TYPESTATE(consumed) { end(true); }
    /// The same, in the form of all fallible calls; the ack of an event that is held cannot fail.
    void ack(std::error_code& ec) && noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown")
        RDMAXX_SET_TYPESTATE(consumed) {
        end(true);
        detail::assign(ec, {});
    }

    /// Hands the C event to the caller, who has to ack it; a connect_request's new id goes with it.
    [[nodiscard]] rdma_cm_event* release() && noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown")
        RDMAXX_SET_TYPESTATE(consumed) {
        rdma_cm_event* raw = raw_;
        end(false);
        return raw;
    }

    /// What happened; none for an empty event. A value that this version does not know is passed through.
    [[nodiscard]] cm_event_type type() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return raw_ != nullptr ? detail::type_of(*raw_) : cm_event_type::none;
    }

    /// As C has it: 0, a negative errno, or a number of the transport's. See code().
    [[nodiscard]] int status() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return raw_ != nullptr ? raw_->status : 0;
    }

    /// Why it failed: an errno, or reject_category() (rejected), or sidr_category() (unreachable, of a datagram id).
    /// False where the event is no failure.
    [[nodiscard]] std::error_code code() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return raw_ != nullptr ? detail::code_of(*raw_) : std::error_code();
    }

    /// The id that it is about. Empty for a connect_request until its new id is taken; afterwards for comparing only.
    [[nodiscard]] cm_id_ref id() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return raw_ != nullptr && !owns_request() ? cm_id_ref(raw_->id) : cm_id_ref();
    }

    /// The listener of a connect_request; empty otherwise.
    [[nodiscard]] cm_id_ref listen_id() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return type() == cm_event_type::connect_request ? cm_id_ref(raw_->listen_id) : cm_id_ref();
    }

    /// A look at a connect_request's new id (peer_address, verbs) before it is taken; empty otherwise.
    [[nodiscard]] cm_id_ref request() const& noexcept
        RDMAXX_LIFETIMEBOUND RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return owns_request() ? cm_id_ref(raw_->id) : cm_id_ref();
    }
    cm_id_ref request() const&& = delete; // it ends with the event

    /// The new id of a connect_request: once. The event remains, and still has to end before the listener.
    /// @throws error EINVAL for another event, or when it was taken; ENOMEM, and the id stays in the event
    [[nodiscard]] cm_id take_id() RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        cm_id id;
        detail::check(do_take_id(id));
        return id;
    }
    [[nodiscard]] cm_id take_id(std::error_code& ec) noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        cm_id id;
        detail::assign(ec, do_take_id(id));
        return id;
    }

    /// What the peer sent along, as long as this event. At least what was sent: InfiniBand and RoCE deliver the whole
    /// field (request 56 bytes, answer 196, reject 148), padded with zeroes. Empty where the event carries none.
    [[nodiscard]] std::span<const std::byte> private_data() const& noexcept
        RDMAXX_LIFETIMEBOUND RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return raw_ != nullptr ? detail::private_data_of(*raw_) : std::span<const std::byte>();
    }
    std::span<const std::byte> private_data() const&& = delete; // it ends with the event

    /// The connection parameters of connect_request, connect_response and established of a connected id.
    /// @throws error EINVAL for an event that has none
    [[nodiscard]] const rdma_conn_param& conn_param() const& RDMAXX_LIFETIMEBOUND RDMAXX_CALLABLE_WHEN("unconsumed",
                                                                                                       "unknown") {
        detail::check(has_conn_param());
        return raw_->param.conn;
    }
    const rdma_conn_param& conn_param() const&& = delete; // it ends with the event
    /// @return null for an event that has none
    [[nodiscard]] const rdma_conn_param* conn_param(std::error_code& ec) const& noexcept
        RDMAXX_LIFETIMEBOUND RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        detail::assign(ec, has_conn_param());
        return ec ? nullptr : &raw_->param.conn;
    }
    const rdma_conn_param* conn_param(std::error_code& ec) const&& = delete; // it ends with the event

    /// The datagram parameters (address handle attributes, queue pair number, Q_Key) of connect_request and established
    /// of a datagram id, and of multicast_join. Their private_data is not for use: see private_data().
    /// @throws error EINVAL for an event that has none
    [[nodiscard]] const rdma_ud_param& ud_param() const& RDMAXX_LIFETIMEBOUND RDMAXX_CALLABLE_WHEN("unconsumed",
                                                                                                   "unknown") {
        detail::check(has_ud_param());
        return raw_->param.ud;
    }
    const rdma_ud_param& ud_param() const&& = delete; // it ends with the event
    /// @return null for an event that has none
    [[nodiscard]] const rdma_ud_param* ud_param(std::error_code& ec) const& noexcept
        RDMAXX_LIFETIMEBOUND RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        detail::assign(ec, has_ud_param());
        return ec ? nullptr : &raw_->param.ud;
    }
    const rdma_ud_param* ud_param(std::error_code& ec) const&& = delete; // it ends with the event

    /// The pointer that cm_id::join_multicast was given, for multicast_join and multicast_error; null otherwise.
    template <class T>
    [[nodiscard]] T* multicast_context() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        if (raw_ == nullptr || !record_->grouped)
            return nullptr;
        return static_cast<T*>(const_cast<void*>(raw_->param.ud.private_data));
    }

#if RDMAXX_HAS_RESOLVE_ADDRINFO
    /// The number that cm_id::write_cm_event was given, for a user event; 0 otherwise.
    /// (RDMAXX_HAS_RESOLVE_ADDRINFO)
    [[nodiscard]] std::uint64_t arg() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return type() == cm_event_type::user ? raw_->param.arg : 0;
    }
#endif

    /// A copy that outlives the event.
    [[nodiscard]] cm_event_snapshot snapshot() const noexcept RDMAXX_CALLABLE_WHEN("unconsumed", "unknown") {
        return raw_ != nullptr ? cm_event_snapshot(*raw_) : cm_event_snapshot();
    }

    /// The C event, which stays this object's.
    [[nodiscard]] rdma_cm_event* native_handle() const noexcept {
        return raw_;
    }

private:
    friend class event_channel;

    [[nodiscard]] bool owns_request() const noexcept {
        return raw_ != nullptr && detail::type_of(*raw_) == cm_event_type::connect_request && !record_->id_taken;
    }

    [[nodiscard]] detail::status do_take_id(cm_id& out) noexcept {
        if (raw_ == nullptr || detail::type_of(*raw_) != cm_event_type::connect_request)
            return {"take_id", EINVAL, "only a connect_request brings a new id"};
        if (record_->id_taken)
            return {"take_id", EINVAL, "the new id was taken already"};
        const detail::status result =
            out.take(raw_->id, static_cast<detail::channel_block*>(record_->source), detail::id_phase::request);
        record_->id_taken = !result.failed();
        return result;
    }

    [[nodiscard]] detail::status has_conn_param() const noexcept {
        switch (raw_ != nullptr ? detail::type_of(*raw_) : cm_event_type::none) {
        case cm_event_type::connect_request:
        case cm_event_type::connect_response:
        case cm_event_type::established:
            if (!detail::is_datagram(*raw_))
                return {};
            break;
        default: break;
        }
        return {"conn_param", EINVAL, "this event has no connection parameters"};
    }

    [[nodiscard]] detail::status has_ud_param() const noexcept {
        switch (raw_ != nullptr ? detail::type_of(*raw_) : cm_event_type::none) {
        case cm_event_type::connect_request:
        case cm_event_type::established:
        case cm_event_type::multicast_join:
            if (detail::is_datagram(*raw_))
                return {};
            break;
        default: break;
        }
        return {"ud_param", EINVAL, "this event has no datagram parameters"};
    }

    void end(bool ack) noexcept {
        rdma_cm_event* raw = std::exchange(raw_, nullptr);
        detail::event_record* record = std::exchange(record_, nullptr);
        if (raw != nullptr)
            detail::end_event(raw, record, ack);
    }

    rdma_cm_event* raw_ = nullptr;
    detail::event_record* record_ = nullptr;
};

} // namespace rdmaxx::inline v0

#endif
