// struct ibv_flow, a rule that steers packets to a queue pair: ibv_create_flow(3). And what a rule may do with a
// packet: struct ibv_flow_action, ibv_create_flow_action_esp(3).
#ifndef RDMAXX_VERBS_FLOW_HPP
#define RDMAXX_VERBS_FLOW_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/context.hpp>
#include <rdmaxx/verbs/counters.hpp>
#include <rdmaxx/verbs/qp.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <arpa/inet.h>

namespace rdmaxx::inline v0 {

#if RDMAXX_HAS_LINUX_VERBS
/// What a rule is about (enum ibv_flow_attr_type).
enum class flow_attr_type : int {
    normal = IBV_FLOW_ATTR_NORMAL,           ///< packets that match its specs
    all_default = IBV_FLOW_ATTR_ALL_DEFAULT, ///< Ethernet packets that no other rule takes
    mc_default = IBV_FLOW_ATTR_MC_DEFAULT,   ///< multicast packets that no other rule takes
    sniffer = IBV_FLOW_ATTR_SNIFFER,         ///< a copy of every packet of the port
};

[[nodiscard]] constexpr const char* to_string(flow_attr_type type) noexcept {
    switch (type) {
    case flow_attr_type::normal: return "normal";
    case flow_attr_type::all_default: return "all_default";
    case flow_attr_type::mc_default: return "mc_default";
    case flow_attr_type::sniffer: return "sniffer";
    }
    return "unknown";
}

/// enum ibv_flow_flags.
enum class flow_flags : std::uint32_t {
    none = 0,
    dont_trap = IBV_FLOW_ATTR_FLAGS_DONT_TRAP, ///< rules of lower priority get the packet too
    egress = IBV_FLOW_ATTR_FLAGS_EGRESS,       ///< packets that are sent
};

/// A MAC address, as it is on the wire.
using mac_address = std::array<std::uint8_t, 6>;

namespace detail {

template <>
inline constexpr bool is_flags<flow_flags> = true;

/// In network byte order, like the packets that they are compared with.
[[nodiscard]] inline std::uint16_t wire(std::uint16_t value) noexcept {
    return htons(value);
}
[[nodiscard]] inline std::uint32_t wire(std::uint32_t value) noexcept {
    return htonl(value);
}

} // namespace detail

// ---- Specs: what a packet has to look like. Each starts out matching everything of its layer; a setter adds one
// field, with the bits of it that count (all of them unless told). Numbers are in host byte order.

namespace detail {

/// A spec: the C struct and its setters.
template <class Spec, int Type>
class flow_spec {
public:
    /// Of the packet inside a tunnel.
    [[nodiscard]] bool is_inner() const noexcept { return inner_; }
    [[nodiscard]] const Spec& raw() const noexcept { return raw_; }

protected:
    flow_spec() noexcept {
        raw_.type = static_cast<ibv_flow_spec_type>(Type);
        raw_.size = sizeof(Spec);
    }

    template <class Field>
    static void set(Field& value_field, Field& mask_field, Field value, Field mask) noexcept {
        if constexpr (sizeof(Field) == 1) {
            value_field = value;
            mask_field = mask;
        } else {
            value_field = wire(value);
            mask_field = wire(mask);
        }
    }
    void make_inner() noexcept {
        inner_ = true;
        raw_.type = static_cast<ibv_flow_spec_type>(Type | IBV_FLOW_SPEC_INNER);
    }

    Spec raw_{};
    bool inner_ = false;
};

inline constexpr mac_address all_of_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

[[nodiscard]] inline in_addr prefix_mask(unsigned bits) noexcept {
    in_addr mask{};
    mask.s_addr = bits == 0 ? 0 : htonl(~std::uint32_t{0} << (bits < 32 ? 32 - bits : 0));
    return mask;
}

} // namespace detail

/// Ethernet.
class flow_eth : public detail::flow_spec<ibv_flow_spec_eth, IBV_FLOW_SPEC_ETH> {
public:
    /// Where the frame goes.
    flow_eth& dst_mac(const mac_address& value, const mac_address& mask = detail::all_of_mac) noexcept {
        std::memcpy(raw_.val.dst_mac, value.data(), value.size());
        std::memcpy(raw_.mask.dst_mac, mask.data(), mask.size());
        return *this;
    }
    /// Where it is from.
    flow_eth& src_mac(const mac_address& value, const mac_address& mask = detail::all_of_mac) noexcept {
        std::memcpy(raw_.val.src_mac, value.data(), value.size());
        std::memcpy(raw_.mask.src_mac, mask.data(), mask.size());
        return *this;
    }
    /// 0x0800 is IPv4.
    flow_eth& ether_type(std::uint16_t value, std::uint16_t mask = 0xffff) noexcept {
        set(raw_.val.ether_type, raw_.mask.ether_type, value, mask);
        return *this;
    }
    /// Priority 3 bits, CFI 1, VLAN ID 12: the ID alone unless told.
    flow_eth& vlan_tag(std::uint16_t value, std::uint16_t mask = 0x0fff) noexcept {
        set(raw_.val.vlan_tag, raw_.mask.vlan_tag, value, mask);
        return *this;
    }
    /// Of the packet inside a tunnel.
    flow_eth& inner() noexcept { return make_inner(), *this; }
};

/// IPv4. Addresses are as in_addr and sockaddr_in have them.
class flow_ipv4 : public detail::flow_spec<ibv_flow_spec_ipv4_ext, IBV_FLOW_SPEC_IPV4_EXT> {
public:
    /// @param prefix how many bits of it count, 0 to 32; more is 32
    flow_ipv4& src_ip(in_addr value, unsigned prefix = 32) noexcept {
        raw_.val.src_ip = value.s_addr;
        raw_.mask.src_ip = detail::prefix_mask(prefix).s_addr;
        return *this;
    }
    flow_ipv4& dst_ip(in_addr value, unsigned prefix = 32) noexcept {
        raw_.val.dst_ip = value.s_addr;
        raw_.mask.dst_ip = detail::prefix_mask(prefix).s_addr;
        return *this;
    }
    /// 6 is TCP, 17 is UDP.
    flow_ipv4& proto(std::uint8_t value, std::uint8_t mask = 0xff) noexcept {
        set(raw_.val.proto, raw_.mask.proto, value, mask);
        return *this;
    }
    /// The type of service.
    flow_ipv4& tos(std::uint8_t value, std::uint8_t mask = 0xff) noexcept {
        set(raw_.val.tos, raw_.mask.tos, value, mask);
        return *this;
    }
    /// The time to live.
    flow_ipv4& ttl(std::uint8_t value, std::uint8_t mask = 0xff) noexcept {
        set(raw_.val.ttl, raw_.mask.ttl, value, mask);
        return *this;
    }
    /// Don't fragment, more fragments.
    flow_ipv4& flags(std::uint8_t value, std::uint8_t mask = 0xff) noexcept {
        set(raw_.val.flags, raw_.mask.flags, value, mask);
        return *this;
    }
    /// Of the packet inside a tunnel.
    flow_ipv4& inner() noexcept { return make_inner(), *this; }
};

/// IPv6.
class flow_ipv6 : public detail::flow_spec<ibv_flow_spec_ipv6, IBV_FLOW_SPEC_IPV6> {
public:
    /// @param prefix how many bits of it count, 0 to 128; more is 128
    flow_ipv6& src_ip(const in6_addr& value, unsigned prefix = 128) noexcept {
        return address(raw_.val.src_ip, raw_.mask.src_ip, value, prefix);
    }
    flow_ipv6& dst_ip(const in6_addr& value, unsigned prefix = 128) noexcept {
        return address(raw_.val.dst_ip, raw_.mask.dst_ip, value, prefix);
    }
    /// 20 bits.
    flow_ipv6& flow_label(std::uint32_t value, std::uint32_t mask = 0xfffff) noexcept {
        set(raw_.val.flow_label, raw_.mask.flow_label, value, mask);
        return *this;
    }
    /// 6 is TCP, 17 is UDP.
    flow_ipv6& next_hdr(std::uint8_t value, std::uint8_t mask = 0xff) noexcept {
        set(raw_.val.next_hdr, raw_.mask.next_hdr, value, mask);
        return *this;
    }
    /// What IPv4 calls the type of service.
    flow_ipv6& traffic_class(std::uint8_t value, std::uint8_t mask = 0xff) noexcept {
        set(raw_.val.traffic_class, raw_.mask.traffic_class, value, mask);
        return *this;
    }
    /// What IPv4 calls the time to live.
    flow_ipv6& hop_limit(std::uint8_t value, std::uint8_t mask = 0xff) noexcept {
        set(raw_.val.hop_limit, raw_.mask.hop_limit, value, mask);
        return *this;
    }
    /// Of the packet inside a tunnel.
    flow_ipv6& inner() noexcept { return make_inner(), *this; }

private:
    flow_ipv6& address(std::uint8_t (&to)[16], std::uint8_t (&mask)[16], const in6_addr& value,
                       unsigned prefix) noexcept {
        std::memcpy(to, &value, sizeof to);
        for (unsigned i = 0; i < sizeof mask; ++i, prefix -= prefix < 8 ? prefix : 8)
            mask[i] = static_cast<std::uint8_t>(prefix >= 8 ? 0xff : 0xff00U >> prefix);
        return *this;
    }
};

namespace detail {

/// TCP and UDP, which have the same C struct.
template <class Spec, int Type>
class flow_ports : public flow_spec<ibv_flow_spec_tcp_udp, Type> {
public:
    /// Where it goes.
    Spec& dst_port(std::uint16_t value, std::uint16_t mask = 0xffff) noexcept {
        this->set(this->raw_.val.dst_port, this->raw_.mask.dst_port, value, mask);
        return static_cast<Spec&>(*this);
    }
    /// Where it is from.
    Spec& src_port(std::uint16_t value, std::uint16_t mask = 0xffff) noexcept {
        this->set(this->raw_.val.src_port, this->raw_.mask.src_port, value, mask);
        return static_cast<Spec&>(*this);
    }
    /// Of the packet inside a tunnel.
    Spec& inner() noexcept {
        this->make_inner();
        return static_cast<Spec&>(*this);
    }
};

} // namespace detail

/// TCP.
class flow_tcp : public detail::flow_ports<flow_tcp, IBV_FLOW_SPEC_TCP> {};
/// UDP.
class flow_udp : public detail::flow_ports<flow_udp, IBV_FLOW_SPEC_UDP> {};

/// IPsec's ESP.
class flow_esp : public detail::flow_spec<ibv_flow_spec_esp, IBV_FLOW_SPEC_ESP> {
public:
    /// The security parameter index.
    flow_esp& spi(std::uint32_t value, std::uint32_t mask = 0xffffffff) noexcept {
        set(raw_.val.spi, raw_.mask.spi, value, mask);
        return *this;
    }
    /// The sequence number.
    flow_esp& seq(std::uint32_t value, std::uint32_t mask = 0xffffffff) noexcept {
        set(raw_.val.seq, raw_.mask.seq, value, mask);
        return *this;
    }
    /// Of the packet inside a tunnel.
    flow_esp& inner() noexcept { return make_inner(), *this; }
};

/// VXLAN: the tunnel's number, 24 bits.
class flow_vxlan : public detail::flow_spec<ibv_flow_spec_tunnel, IBV_FLOW_SPEC_VXLAN_TUNNEL> {
public:
    /// The VNI.
    flow_vxlan& tunnel_id(std::uint32_t value, std::uint32_t mask = 0xffffff) noexcept {
        set(raw_.val.tunnel_id, raw_.mask.tunnel_id, value, mask);
        return *this;
    }
};

/// GRE.
class flow_gre : public detail::flow_spec<ibv_flow_spec_gre, IBV_FLOW_SPEC_GRE> {
public:
    /// The first 16 bits: which fields there are, and the version.
    flow_gre& c_ks_res0_ver(std::uint16_t value, std::uint16_t mask = 0xffff) noexcept {
        set(raw_.val.c_ks_res0_ver, raw_.mask.c_ks_res0_ver, value, mask);
        return *this;
    }
    /// The EtherType of what is inside.
    flow_gre& protocol(std::uint16_t value, std::uint16_t mask = 0xffff) noexcept {
        set(raw_.val.protocol, raw_.mask.protocol, value, mask);
        return *this;
    }
    /// The tunnel's key.
    flow_gre& key(std::uint32_t value, std::uint32_t mask = 0xffffffff) noexcept {
        set(raw_.val.key, raw_.mask.key, value, mask);
        return *this;
    }
};

/// MPLS.
class flow_mpls : public detail::flow_spec<ibv_flow_spec_mpls, IBV_FLOW_SPEC_MPLS> {
public:
    /// The whole entry: label 20 bits, traffic class 3, bottom of stack 1, TTL 8.
    flow_mpls& label(std::uint32_t value, std::uint32_t mask = 0xffffffff) noexcept {
        set(raw_.val.label, raw_.mask.label, value, mask);
        return *this;
    }
    /// Of the packet inside a tunnel.
    flow_mpls& inner() noexcept { return make_inner(), *this; }
};

// ---- Actions.

/// What IPsec on the device is like (enum ibv_flow_action_esp_flags). Without a flag: encryption alone, in tunnel mode,
/// of what is received.
enum class flow_action_esp_flags : std::uint32_t {
    none = 0,
    full_offload = 1 << 0,   ///< the device also adds and takes off ESP's headers
    transport = 1 << 1,      ///< the payload alone is encrypted, and not a whole packet in a tunnel
    encrypt = 1 << 2,        ///< of what is sent
    esn_new_window = 1 << 3, ///< esn() is of a new window: for flow_action::modify
};

namespace detail {
template <>
inline constexpr bool is_flags<flow_action_esp_flags> = true;

template <class Handle>
class flow_action_ops;
} // namespace detail

/// How a packet is encrypted or decrypted by IPsec ESP (struct ibv_flow_action_esp_attr, with what it points to): each
/// setter adds one thing, and the others are left out.
///
///     const auto how = flow_action_esp_attr(flow_action_esp_flags::encrypt).spi(17).aes_gcm(key, salt, iv);
///     const flow_action encrypt(context, how);
class flow_action_esp_attr {
public:
    /// Encryption or decryption, and how.
    explicit flow_action_esp_attr(flow_action_esp_flags flags) noexcept { esp_.flags = detail::bits(flags); }

    /// The security parameter index, in host byte order.
    flow_action_esp_attr& spi(std::uint32_t value) noexcept { return set(esp_.spi, value); }
    /// The sequence number to begin with.
    flow_action_esp_attr& seq(std::uint32_t value) noexcept { return set(esp_.seq, value); }
    /// To how many bytes packets are padded, which hides their length.
    flow_action_esp_attr& tfc_pad(std::uint32_t value) noexcept { return set(esp_.tfc_pad, value); }
    /// After so many packets the key is used no more.
    flow_action_esp_attr& hard_limit_pkts(std::uint64_t value) noexcept { return set(esp_.hard_limit_pkts, value); }

    /// AES-GCM, its initialization vector counted up.
    /// @param key 16, 24 or 32 bytes, which are copied
    /// @param icv_len of the integrity check value: 8, 12 or 16 bytes
    flow_action_esp_attr& aes_gcm(std::span<const std::byte> key, std::uint32_t salt, std::uint64_t iv,
                                  std::uint32_t icv_len = 16) noexcept {
        has_keymat_ = true;
        keymat_ = {};
        keymat_.iv = iv;
        keymat_.iv_algo = IBV_FLOW_ACTION_IV_ALGO_SEQ;
        keymat_.salt = salt;
        keymat_.icv_len = icv_len;
        keymat_.key_len = static_cast<std::uint32_t>(key.size());
        bad_key_ = key.size() != 16 && key.size() != 24 && key.size() != 32;
        if (!bad_key_)
            std::memcpy(keymat_.aes_key, key.data(), key.size());
        return *this;
    }
    /// Packets that come again are dropped: a bitmap of the last `size` ones.
    flow_action_esp_attr& replay_bmp(std::uint32_t size) noexcept {
        has_replay_ = true;
        return set(replay_.size, size);
    }
    /// The upper half of the extended sequence number.
    flow_action_esp_attr& esn(std::uint32_t value) noexcept {
        has_esn_ = true;
        return set(esn_, value);
    }
    /// In tunnel mode, what is put around the packet: a list of C's filters, which must stay until the call.
    flow_action_esp_attr& encap(const ibv_flow_action_esp_encap& first RDMAXX_LIFETIMEBOUND) noexcept {
        return set(encap_, &first);
    }

    /// The C struct, which points into this object.
    [[nodiscard]] ibv_flow_action_esp_attr raw() const noexcept RDMAXX_LIFETIMEBOUND {
        ibv_flow_action_esp_attr attr{};
        attr.esp_attr = const_cast<ibv_flow_action_esp*>(&esp_); // C does not write there
        if (has_keymat_) {
            attr.keymat_proto = IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM;
            attr.keymat_len = sizeof keymat_;
            attr.keymat_ptr = const_cast<ibv_flow_action_esp_keymat_aes_gcm*>(&keymat_);
        }
        if (has_replay_) {
            attr.replay_proto = IBV_FLOW_ACTION_ESP_REPLAY_BMP;
            attr.replay_len = sizeof replay_;
            attr.replay_ptr = const_cast<ibv_flow_action_esp_replay_bmp*>(&replay_);
        }
        if (has_esn_) {
            attr.comp_mask = IBV_FLOW_ACTION_ESP_MASK_ESN;
            attr.esn = esn_;
        }
        attr.esp_encap = const_cast<ibv_flow_action_esp_encap*>(encap_);
        return attr;
    }

private:
    friend class flow_action;
    template <class>
    friend class detail::flow_action_ops;

    template <class Field, class Value>
    flow_action_esp_attr& set(Field& field, Value value) noexcept {
        field = value;
        return *this;
    }

    ibv_flow_action_esp esp_{};
    ibv_flow_action_esp_keymat_aes_gcm keymat_{};
    ibv_flow_action_esp_replay_bmp replay_{};
    const ibv_flow_action_esp_encap* encap_ = nullptr;
    std::uint32_t esn_ = 0;
    bool has_keymat_ = false;
    bool has_replay_ = false;
    bool has_esn_ = false;
    bool bad_key_ = false;
};

namespace detail {

struct flow_action_traits {
    using raw_type = ibv_flow_action;
    using ref_type = flow_action_ref;
    using block = detail::block<ibv_flow_action, 1>; // context
    static status destroy(block& b) noexcept {
        return check_number("ibv_destroy_flow_action", ::ibv_destroy_flow_action(b.raw));
    }
};

inline constexpr const char* bad_aes_key = "AES has keys of 16, 24 and 32 bytes";

/// The operations of flow_action and flow_action_ref.
template <class Handle>
class flow_action_ops : public Handle {
public:
    using Handle::Handle;

    /// Changes it under the flows that use it, if the device can: the extended sequence number, on those there are.
    ///
    ///     action.modify(flow_action_esp_attr(flow_action_esp_flags::esn_new_window).esn(n));
    ///
    /// C call: ibv_modify_flow_action_esp(3).
    void modify(const flow_action_esp_attr& attr) const { check(do_modify(attr)); }
    void modify(const flow_action_esp_attr& attr, std::error_code& ec) const noexcept { assign(ec, do_modify(attr)); }
    void modify(const ibv_flow_action_esp_attr& attr) const { check(do_modify(attr)); }
    void modify(const ibv_flow_action_esp_attr& attr, std::error_code& ec) const noexcept {
        assign(ec, do_modify(attr));
    }

private:
    [[nodiscard]] status do_modify(const flow_action_esp_attr& attr) const noexcept {
        if (attr.bad_key_)
            return {"ibv_modify_flow_action_esp", EINVAL, bad_aes_key};
        return do_modify(attr.raw());
    }
    [[nodiscard]] status do_modify(const ibv_flow_action_esp_attr& attr) const noexcept {
        ibv_flow_action_esp_attr copy = attr;
        return check_call("ibv_modify_flow_action_esp", ::ibv_modify_flow_action_esp, this->native_handle(), &copy);
    }
};

} // namespace detail

/// An action that somebody else owns.
class flow_action_ref : public detail::flow_action_ops<detail::ref<ibv_flow_action>> {
public:
    using flow_action_ops::flow_action_ops;
};

/// What rules do with a packet, by a handle: IPsec ESP, encryption and decryption on the device. It stays until this
/// owner and the flows that use it are gone.
///
/// C calls: ibv_create_flow_action_esp(3), ibv_destroy_flow_action(3). Any number of threads may make flows with one.
class flow_action : public detail::flow_action_ops<detail::owner<detail::flow_action_traits>> {
public:
    flow_action() noexcept = default;

    /// @param attr its keys are copied
    /// @throws error EOPNOTSUPP for a device without, EINVAL
    flow_action(detail::parent<ibv_context> device, const flow_action_esp_attr& attr) {
        detail::check(init(device, attr));
    }
    [[nodiscard]] static flow_action create(detail::parent<ibv_context> device, const flow_action_esp_attr& attr,
                                            std::error_code& ec) noexcept {
        flow_action result;
        detail::assign(ec, result.init(device, attr));
        return result;
    }
    flow_action(detail::parent<ibv_context> device, const ibv_flow_action_esp_attr& attr) {
        detail::check(init(device, attr));
    }
    [[nodiscard]] static flow_action create(detail::parent<ibv_context> device, const ibv_flow_action_esp_attr& attr,
                                            std::error_code& ec) noexcept {
        flow_action result;
        detail::assign(ec, result.init(device, attr));
        return result;
    }

    /// Takes over an action that ibv_create_flow_action_esp made; it will be ended by ibv_destroy_flow_action.
    /// @param ec ENOMEM, and the object is still the caller's
    [[nodiscard]] static flow_action adopt(ibv_flow_action* raw, detail::parent<ibv_context> pinned,
                                           std::error_code& ec) noexcept {
        flow_action result;
        detail::assign(ec, result.take_over("ibv_create_flow_action_esp", raw, pinned.pin()));
        return result;
    }

private:
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device, const flow_action_esp_attr& attr) noexcept {
        if (attr.bad_key_)
            return {"ibv_create_flow_action_esp", EINVAL, detail::bad_aes_key};
        return init(device, attr.raw());
    }
    [[nodiscard]] detail::status init(detail::parent<ibv_context> device,
                                      const ibv_flow_action_esp_attr& attr) noexcept {
        if (!device)
            return {"ibv_create_flow_action_esp", EINVAL, "empty context"};
        ibv_flow_action_esp_attr copy = attr; // C takes it as non-const
        return make(
            "ibv_create_flow_action_esp",
            [&]() noexcept { return ::ibv_create_flow_action_esp(device.native_handle(), &copy); }, device.pin());
    }
};

// ---- The rule.

/// A rule (struct ibv_flow_attr): specs from the outside of the packet inwards, then actions. It pins the counters and
/// actions that were given as owners, and hands the pins to the flow.
///
///     in_addr here = ...;
///     const flow to_port(
///         qp, flow_attr(1).add(flow_eth()).add(flow_ipv4().dst_ip(here)).add(flow_udp().dst_port(7471)));
class flow_attr {
public:
    /// Counters and actions that one rule may name as owners.
    static constexpr std::size_t max_pins = 4;

    /// @param port from 1
    /// @param priority 0 is the highest
    explicit flow_attr(std::uint32_t port, flow_attr_type type = flow_attr_type::normal,
                       std::uint16_t priority = 0) noexcept {
        head().type = static_cast<ibv_flow_attr_type>(type);
        head().size = sizeof(ibv_flow_attr);
        head().priority = priority;
        head().port = detail::c_port(port);
    }
    /// None unless set.
    flow_attr& flags(flow_flags value) noexcept {
        head().flags = detail::bits(value);
        return *this;
    }

    /// The packet looks like that.
    template <class Spec>
        requires requires(const Spec& spec) {
            { spec.is_inner() } -> std::same_as<bool>;
            spec.raw().size;
        }
    flow_attr& add(const Spec& spec) noexcept { return append(spec.raw()); }
    /// The same of one of C's specs, with its `type` and `size`.
    template <class Spec>
        requires requires(const Spec& spec) {
            static_cast<ibv_flow_spec_type>(spec.type);
            spec.size;
        }
    flow_attr& add(const Spec& spec) noexcept { return append(spec); }

    /// Its completion says `tag` (24 bits on most devices).
    flow_attr& tag(std::uint32_t tag) noexcept {
        ibv_flow_spec_action_tag spec{};
        spec.tag_id = tag;
        return append(spec, IBV_FLOW_SPEC_ACTION_TAG);
    }
    /// It is dropped.
    flow_attr& drop() noexcept {
        ibv_flow_spec_action_drop spec{};
        return append(spec, IBV_FLOW_SPEC_ACTION_DROP);
    }
    /// The action is carried out: a flow_action, which is kept, or a flow_action_ref, which must outlive the flow.
    flow_attr& action(detail::parent<ibv_flow_action> value) noexcept {
        ibv_flow_spec_action_handle spec{};
        spec.action = value.native_handle();
        empty_ = empty_ || !value;
        pin(value.pin());
        return append(spec, IBV_FLOW_SPEC_ACTION_HANDLE);
    }
    /// It is counted: counters, which are kept, or a counters_ref, which must outlive the flow.
    flow_attr& count(detail::parent<ibv_counters> value) noexcept {
        ibv_flow_spec_counter_action spec{};
        spec.counters = value.native_handle();
        empty_ = empty_ || !value;
        pin(value.pin());
        return append(spec, IBV_FLOW_SPEC_ACTION_COUNT);
    }

    /// The C struct with its specs behind it, raw().size bytes.
    [[nodiscard]] const ibv_flow_attr& raw() const noexcept RDMAXX_LIFETIMEBOUND {
        return *reinterpret_cast<const ibv_flow_attr*>(bytes_);
    }

private:
    friend class flow;

    static constexpr std::size_t room = 512; // the longest sensible rule, twice

    [[nodiscard]] ibv_flow_attr& head() noexcept { return *reinterpret_cast<ibv_flow_attr*>(bytes_); }

    template <class Spec>
    flow_attr& append(Spec& spec, int type) noexcept {
        spec.type = static_cast<ibv_flow_spec_type>(type);
        spec.size = sizeof spec;
        return append(spec);
    }
    template <class Spec>
    flow_attr& append(const Spec& spec) noexcept {
        if (sizeof spec > room - head().size) {
            overflow_ = true;
            return *this;
        }
        std::memcpy(bytes_ + head().size, &spec, sizeof spec);
        head().size = static_cast<std::uint16_t>(head().size + sizeof spec);
        ++head().num_of_specs;
        return *this;
    }
    void pin(const detail::keep& kept) noexcept {
        if (kept.get() == nullptr)
            return;
        if (pin_count_ == max_pins)
            overflow_ = true;
        else
            pins_[pin_count_++] = kept;
    }

    alignas(std::uint64_t) std::byte bytes_[room] = {};
    detail::keep pins_[max_pins];
    std::size_t pin_count_ = 0;
    bool overflow_ = false;
    bool empty_ = false;
};

namespace detail {

struct flow_traits {
    using raw_type = ibv_flow;
    using ref_type = flow_ref;
    using block = detail::block<ibv_flow, flow_attr::max_pins>; // actions and counters
    static status destroy(block& b) noexcept { return check_number("ibv_destroy_flow", ::ibv_destroy_flow(b.raw)); }
};

} // namespace detail

/// A flow that somebody else owns.
class flow_ref : public detail::ref<ibv_flow> {
public:
    using ref::ref;
};

/// A rule in force: packets that match go to its queue pair. It ends exactly when its owner ends, and must end before
/// the queue pair: declare it after that.
///
/// C calls: ibv_create_flow(3), ibv_destroy_flow(3). Needs CAP_NET_RAW. Distinct flows may be used concurrently, also
/// of one queue pair.
class flow : public detail::owner<detail::flow_traits> {
public:
    flow() noexcept = default;

    /// System call.
    /// @param queue a UD or raw packet queue pair, which must outlive the flow
    /// @throws error EOPNOTSUPP for a device without, EINVAL for specs that it does not have, EPERM, E2BIG for a rule
    ///         that flow_attr has no room for
    flow(qp_ref queue, const flow_attr& attr) { detail::check(init(queue, attr)); }
    [[nodiscard]] static flow create(qp_ref queue, const flow_attr& attr, std::error_code& ec) noexcept {
        flow result;
        detail::assign(ec, result.init(queue, attr));
        return result;
    }

    /// Takes over a flow that ibv_create_flow made; it will be ended by ibv_destroy_flow.
    /// @param ec ENOMEM, and the flow is still the caller's
    [[nodiscard]] static flow adopt(ibv_flow* raw, std::error_code& ec) noexcept {
        flow result;
        detail::assign(ec, result.take_over("ibv_create_flow", raw));
        return result;
    }

private:
    [[nodiscard]] detail::status init(qp_ref queue, const flow_attr& attr) noexcept {
        if (!queue)
            return {"ibv_create_flow", EINVAL, "empty queue pair"};
        if (attr.empty_)
            return {"ibv_create_flow", EINVAL, "empty action, or empty counters"};
        if (attr.overflow_)
            return {"ibv_create_flow", E2BIG, "more specs, or more actions and counters, than a rule may have"};
        flow_attr copy = attr; // C takes it as non-const
        return make(
            "ibv_create_flow", [&]() noexcept { return ::ibv_create_flow(queue.native_handle(), &copy.head()); },
            attr.pins_[0], attr.pins_[1], attr.pins_[2], attr.pins_[3]);
    }
};
#endif

} // namespace rdmaxx::inline v0

#endif
