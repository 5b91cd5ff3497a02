// struct ibv_dmah, hints for transfers to and from memory: ibv_alloc_dmah(3). rdma-core 59.
#ifndef RDMAXX_VERBS_DMAH_HPP
#define RDMAXX_VERBS_DMAH_HPP

#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>

#include <cstdint>

namespace rdmaxx::inline v0 {

/// What kind of memory a TLP processing hint is about (enum ibv_tph_mem_type).
enum class tph_mem_type : std::uint8_t {
    vm = 0, ///< volatile
    pm = 1, ///< persistent
};

[[nodiscard]] constexpr const char* to_string(tph_mem_type type) noexcept {
    switch (type) {
    case tph_mem_type::vm: return "vm";
    case tph_mem_type::pm: return "pm";
    }
    return "unknown";
}

/// What a DMA handle says (struct ibv_dmah_init_attr): each setter adds one hint.
class dmah_init_attr {
public:
    /// The processor that uses the memory.
    dmah_init_attr& cpu_id(std::uint32_t value) noexcept {
        cpu_id_ = value;
        mask_ |= 1;
        return *this;
    }
    /// PCI Express's processing hint, 2 bits.
    dmah_init_attr& ph(std::uint8_t value) noexcept {
        ph_ = value;
        mask_ |= 2;
        return *this;
    }
    dmah_init_attr& tph_mem_type(rdmaxx::tph_mem_type value) noexcept {
        mem_type_ = value;
        mask_ |= 4;
        return *this;
    }

private:
    friend class dmah;

    template <class Attr>
    [[nodiscard]] Attr raw() const noexcept {
        Attr attr{};
        attr.comp_mask = mask_;
        attr.cpu_id = cpu_id_;
        attr.ph = ph_;
        attr.tph_mem_type = static_cast<std::uint8_t>(mem_type_);
        return attr;
    }

    std::uint32_t mask_ = 0;
    std::uint32_t cpu_id_ = 0;
    std::uint8_t ph_ = 0;
    rdmaxx::tph_mem_type mem_type_ = rdmaxx::tph_mem_type::vm;
};

namespace detail {

struct dmah_traits {
    using raw_type = ibv_dmah;
    using ref_type = dmah_ref;
    using block = detail::block<ibv_dmah, 1>; // context
    template <class Block>
    static status destroy(Block& b) noexcept {
        if constexpr (has_dmah<std::remove_pointer_t<decltype(b.raw)>>)
            return check_number("ibv_dealloc_dmah", ibv_dealloc_dmah(b.raw));
        else
            return {"ibv_dealloc_dmah", ENOSYS};
    }
};

} // namespace detail

/// A DMA handle that somebody else owns.
class dmah_ref : public detail::ref<ibv_dmah> {
public:
    using ref::ref;
};

/// Hints for the transfers of memory regions: mr_init_attr::dmah. It stays until this owner and those regions are gone.
///
/// C calls: ibv_alloc_dmah(3), ibv_dealloc_dmah(3); what makes one is there with rdma-core 59 (RDMAXX_HAS_DMAH).
/// Any number of threads may use one.
class dmah : public detail::owner<detail::dmah_traits> {
public:
    dmah() noexcept = default;

    /// @throws error EOPNOTSUPP for a kernel, driver or device without
    template <class Raw = ibv_dmah>
        requires detail::has_dmah<Raw> dmah(detail::parent<ibv_context> device, const dmah_init_attr& attr) {
            detail::check(init<ibv_dmah_init_attr>(device, attr));
        }
    template <class Raw = ibv_dmah>
        requires detail::has_dmah<Raw>
    [[nodiscard]] static dmah create(detail::parent<ibv_context> device, const dmah_init_attr& attr,
                                     std::error_code& ec) noexcept {
        dmah result;
        detail::assign(ec, result.template init<ibv_dmah_init_attr>(device, attr));
        return result;
    }

    /// Takes over a handle that ibv_alloc_dmah made; it will be ended by ibv_dealloc_dmah.
    /// @param ec ENOMEM, and the object is still the caller's
    [[nodiscard]] static dmah adopt(ibv_dmah* raw, detail::parent<ibv_context> pinned, std::error_code& ec) noexcept {
        dmah result;
        detail::assign(ec, result.take_over("ibv_alloc_dmah", raw, pinned.pin()));
        return result;
    }

private:
    template <class Attr>
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device, const dmah_init_attr& attr) noexcept {
        if (!device)
            return {"ibv_alloc_dmah", EINVAL, "empty context"};
        Attr raw = attr.raw<Attr>();
        return make(
            "ibv_alloc_dmah", [&]() noexcept { return ibv_alloc_dmah(device.native_handle(), &raw); }, device.pin());
    }
};

} // namespace rdmaxx::inline v0

#endif
