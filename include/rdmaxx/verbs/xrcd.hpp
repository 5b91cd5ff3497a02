// struct ibv_xrcd, an XRC domain: ibv_open_xrcd(3).
#ifndef RDMAXX_VERBS_XRCD_HPP
#define RDMAXX_VERBS_XRCD_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>

#include <fcntl.h>

namespace rdmaxx::inline v0 {
namespace detail {

struct xrcd_traits {
    using raw_type = ibv_xrcd;
    using ref_type = xrcd_ref;
    using block = detail::block<ibv_xrcd, 1>; // context
    static status destroy(block& b) noexcept { return check_number("ibv_close_xrcd", ::ibv_close_xrcd(b.raw)); }
};

} // namespace detail

/// An XRC domain that somebody else owns.
class xrcd_ref : public detail::ref<ibv_xrcd> {
public:
    using ref::ref;

    /// The device that it belongs to.
    [[nodiscard]] context_ref context() const noexcept { return context_ref(native_handle()->context); }
};

/// An XRC domain: what the shared receive queues of several processes, and the receiving queue pairs that feed them,
/// have in common. It stays open until this owner and the queues made from it are gone.
///
/// C calls: ibv_open_xrcd(3), ibv_close_xrcd(3). Any number of threads may use one.
class xrcd : public detail::owner<detail::xrcd_traits> {
public:
    xrcd() noexcept = default;

    /// One of this process alone. System call.
    /// @param device a context, which is kept open, or a context_ref, which must outlive the domain
    /// @throws error EOPNOTSUPP for a device without XRC, ENOMEM
    explicit xrcd(detail::parent<ibv_context> device) { detail::check(init(device, -1, O_CREAT)); }
    [[nodiscard]] static xrcd create(detail::parent<ibv_context> device, std::error_code& ec) noexcept {
        return create(device, -1, O_CREAT, ec);
    }

    /// One that every process has that opens it with the same file.
    /// @param fd of the file, which only names the domain; it may be closed afterwards
    /// @param oflags O_CREAT to make it where it is not there yet, with O_EXCL only then
    /// @throws error ENOENT without O_CREAT where it is not there, EEXIST
    xrcd(detail::parent<ibv_context> device, int fd, int oflags = O_CREAT) { detail::check(init(device, fd, oflags)); }
    [[nodiscard]] static xrcd create(detail::parent<ibv_context> device, int fd, int oflags,
                                     std::error_code& ec) noexcept {
        xrcd result;
        detail::assign(ec, result.init(device, fd, oflags));
        return result;
    }

    /// Takes over a domain that ibv_open_xrcd made; it will be closed by ibv_close_xrcd.
    /// @param ec ENOMEM, and the domain is still the caller's
    [[nodiscard]] static xrcd adopt(ibv_xrcd* raw, detail::parent<ibv_context> pinned, std::error_code& ec) noexcept {
        xrcd result;
        detail::assign(ec, result.take_over("ibv_open_xrcd", raw, pinned.pin()));
        return result;
    }

    /// The device that it belongs to.
    [[nodiscard]] context_ref context() const noexcept { return context_ref(native_handle()->context); }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device, int fd, int oflags) noexcept {
        if (!device)
            return {"ibv_open_xrcd", EINVAL, "empty context"};
        ibv_xrcd_init_attr attr{};
        attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attr.fd = fd;
        attr.oflags = oflags;
        return make(
            "ibv_open_xrcd", [&]() noexcept { return ::ibv_open_xrcd(device.native_handle(), &attr); }, device.pin());
    }
};

} // namespace rdmaxx::inline v0

#endif
