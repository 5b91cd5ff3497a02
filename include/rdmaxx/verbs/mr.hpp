// struct ibv_mr, registered memory: ibv_reg_mr(3). And what names a piece of it: sge here, remote_buffer at a peer.
#ifndef RDMAXX_VERBS_MR_HPP
#define RDMAXX_VERBS_MR_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/handle.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/keys.hpp>
#include <rdmaxx/verbs/pd.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace rdmaxx::inline v0 {

/// What may be done to registered memory (enum ibv_access_flags). Local read access is always there.
///
/// After `using namespace rdmaxx` the type alone has to be written `rdmaxx::access`: there is access(2) as well.
enum class access : unsigned {
    none = 0,
    local_write = IBV_ACCESS_LOCAL_WRITE,     ///< receives and RDMA reads may land in it
    remote_write = IBV_ACCESS_REMOTE_WRITE,   ///< needs local_write
    remote_read = IBV_ACCESS_REMOTE_READ,     ///< a peer that knows the rkey may read it
    remote_atomic = IBV_ACCESS_REMOTE_ATOMIC, ///< needs local_write
    mw_bind = IBV_ACCESS_MW_BIND,             ///< memory windows may be bound to it
    zero_based = IBV_ACCESS_ZERO_BASED,
    on_demand = IBV_ACCESS_ON_DEMAND,
#if RDMAXX_HAS_LINUX_VERBS
    hugetlb = IBV_ACCESS_HUGETLB,
    flush_global = 1 << 8,     ///< a peer may have what it wrote seen by everybody: batched_wr::flush. rdma-core 45
    flush_persistent = 1 << 9, ///< and have it made persistent: of memory that is, else EINVAL. rdma-core 45
    relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING,
#endif
};

namespace detail {

template <>
inline constexpr bool is_flags<access> = true;

/// Names the mistake in the compiler's message; never called.
inline void a_const_range_can_only_be_read() {}

inline constexpr access write_access = access::local_write | access::remote_write | access::remote_atomic;

} // namespace detail

/// Access for memory that cannot be written: a constant made of flags that do not write.
class read_access {
public:
    /// Flags that write do not compile.
    consteval read_access(access flags) : flags_(flags) { // NOLINT(*-explicit-*): a parameter type
        if (has(flags, detail::write_access))
            detail::a_const_range_can_only_be_read();
    }
    /// The flags.
    [[nodiscard]] constexpr access flags() const noexcept { return flags_; }

private:
    access flags_;
};

/// Registered memory of a peer, as RDMA operations name it: its address there, how long it is, and its rkey.
///
/// How it gets here is the program's protocol. to_bytes() and from_bytes() are one way: 16 bytes in network byte order
/// (address, rkey, length), which is what rping sends; using it is optional.
struct remote_buffer {
    std::uint64_t address = 0; ///< in the peer's address space (or an offset, where it registered zero-based)
    rdmaxx::rkey rkey{};       ///< of the registration, or of a window
    std::uint32_t length = 0;  ///< bytes; for the program's own checks, the wire does not carry it

    /// The part from `offset` on, `length` bytes.
    /// @throws error ERANGE if it does not lie inside
    [[nodiscard]] remote_buffer part(std::size_t offset, std::size_t size) const {
        remote_buffer result;
        detail::check(do_part(offset, size, result));
        return result;
    }
    [[nodiscard]] remote_buffer part(std::size_t offset, std::size_t size, std::error_code& ec) const noexcept {
        remote_buffer result;
        detail::assign(ec, do_part(offset, size, result));
        return result;
    }

    /// What to_bytes() and from_bytes() take.
    static constexpr std::size_t wire_size = 16;

    /// As 16 bytes in network byte order, and back.
    constexpr void to_bytes(std::span<std::byte, wire_size> out) const noexcept {
        put(out.data(), address, 8);
        put(out.data() + 8, value(rkey), 4);
        put(out.data() + 12, length, 4);
    }
    [[nodiscard]] static constexpr remote_buffer from_bytes(std::span<const std::byte, wire_size> in) noexcept {
        remote_buffer result;
        result.address = get(in.data(), 8);
        result.rkey = rdmaxx::rkey{static_cast<std::uint32_t>(get(in.data() + 8, 4))};
        result.length = static_cast<std::uint32_t>(get(in.data() + 12, 4));
        return result;
    }

    /// Whether address, key and length are the same.
    friend bool operator==(const remote_buffer&, const remote_buffer&) noexcept = default;

private:
    [[nodiscard]] detail::status do_part(std::size_t offset, std::size_t size, remote_buffer& out) const noexcept {
        if (offset > length || size > length - offset)
            return {"remote_buffer", ERANGE, "the part does not lie inside the peer's buffer"};
        out = *this;
        out.address += offset;
        out.length = static_cast<std::uint32_t>(size);
        return {};
    }
    static constexpr void put(std::byte* out, std::uint64_t number, unsigned size) noexcept {
        for (unsigned i = 0; i < size; ++i)
            out[i] = static_cast<std::byte>(number >> (8 * (size - 1 - i)) & 0xff);
    }
    static constexpr std::uint64_t get(const std::byte* in, unsigned size) noexcept {
        std::uint64_t number = 0;
        for (unsigned i = 0; i < size; ++i)
            number = number << 8 | static_cast<std::uint64_t>(in[i]);
        return number;
    }
};

namespace detail {

/// Names the mistake in the compiler's message; never called.
inline void an_sge_is_at_most_4_gib_less_1() {}

} // namespace detail

/// As much as an SGE can say: an unsigned number of 32 bits, or a constant that fits. Another one (a std::size_t, of
/// which C would keep the low 32 bits) does not compile: mr::sge takes and checks those.
class sge_length {
    template <class Number>
    static constexpr bool fits = std::is_unsigned_v<Number> && sizeof(Number) <= sizeof(std::uint32_t);

public:
    /// Of a type that has no more than 32 bits.
    template <class Number>
        requires fits<Number>
    constexpr sge_length(Number bytes) noexcept : bytes_(bytes) {} // NOLINT(*-explicit-*): a parameter type
    /// Of another type: a constant.
    template <class Number>
        requires(std::is_integral_v<Number> && !fits<Number>)
    consteval sge_length(Number bytes) // NOLINT(*-explicit-*): a parameter type
        : bytes_(static_cast<std::uint32_t>(bytes)) {
        if (!std::in_range<std::uint32_t>(bytes))
            detail::an_sge_is_at_most_4_gib_less_1();
    }
    /// The number.
    [[nodiscard]] constexpr std::uint32_t bytes() const noexcept { return bytes_; }

private:
    std::uint32_t bytes_;
};

/// One piece of local registered memory (struct ibv_sge, with its layout). Made by mr::sge, or unchecked().
struct RDMAXX_OWNER sge : ibv_sge {
    sge() noexcept : ibv_sge{} {}

    /// No check that the piece lies inside a memory region with this lkey: the device checks, with a failed completion
    /// (loc_prot_err). For send_wr::inlined() it needs no region: `lkey{}`.
    /// @param length of 32 bits: that of a container is cast, `static_cast<std::uint32_t>(bytes.size())`
    [[nodiscard]] static sge unchecked(const void* at, sge_length length, rdmaxx::lkey key) noexcept {
        sge result;
        result.addr = reinterpret_cast<std::uintptr_t>(at);
        result.length = length.bytes();
        result.lkey = value(key);
        return result;
    }
};
static_assert(sizeof(sge) == sizeof(ibv_sge) && std::is_standard_layout_v<sge>);

namespace detail {

struct mr_traits {
    using raw_type = ibv_mr;
    using ref_type = mr_ref;
    struct block : detail::block<ibv_mr, 2> { // pd, buf
        using detail::block<ibv_mr, 2>::block;
        bool of_const = false; // registered as memory that is only read
    };
    static status destroy(block& b) noexcept { return check_number("ibv_dereg_mr", ::ibv_dereg_mr(b.raw)); }
};

/// The C call, which is a macro on Linux, and takes another type for the access on FreeBSD.
[[nodiscard]] inline ibv_mr* c_reg_mr(ibv_pd* domain, void* at, std::size_t size, access flags) noexcept {
#if RDMAXX_HAS_LINUX_VERBS
    return ::ibv_reg_mr(domain, at, size, bits(flags));
#else
    return ::ibv_reg_mr(domain, at, size, static_cast<int>(flags));
#endif
}

/// What a registration was about, for the text of its error: its size and, where that may be the reason, the limit.
struct registration {
    std::size_t size;
    int error;

    [[nodiscard]] RDMAXX_COLD std::string to_string() const {
        std::string text = std::to_string(size) + " bytes";
        if (error == ENOMEM || error == EPERM)
            text.append(", RLIMIT_MEMLOCK ").append(memlock_limit());
        return text;
    }
};

/// The rule of the InfiniBand specification; devices answer EINVAL.
[[nodiscard]] constexpr bool lacks_local_write(access flags) noexcept {
    return has(flags, access::remote_write | access::remote_atomic) && !has(flags, access::local_write);
}
inline constexpr const char* needs_local_write = "remote_write and remote_atomic need local_write";

/// `size` bytes from `offset` on, of a region of `length` bytes whose first is `start` in requests.
[[nodiscard]] inline status piece_of(std::uint64_t start, std::size_t length, rdmaxx::lkey key, std::size_t offset,
                                     std::size_t size, rdmaxx::sge& out) noexcept {
    if (offset > length || size > length - offset)
        return {"ibv_sge", ERANGE, "the piece does not lie inside the memory region"};
    if (size > std::numeric_limits<std::uint32_t>::max())
        return {"ibv_sge", ERANGE, "longer than 4 GiB - 1, which is all that an SGE can say"};
    out.addr = start + offset;
    out.length = static_cast<std::uint32_t>(size);
    out.lkey = value(key);
    return {};
}
[[nodiscard]] inline status peer_view_of(std::uint64_t start, std::size_t length, rdmaxx::rkey key,
                                         remote_buffer& out) noexcept {
    if (length > std::numeric_limits<std::uint32_t>::max())
        return {"remote_buffer", ERANGE, "longer than 4 GiB - 1"};
    out = {start, key, static_cast<std::uint32_t>(length)};
    return {};
}

/// The operations of mr and mr_ref.
template <class Handle>
class mr_ops : public Handle {
public:
    using Handle::Handle;

    /// The memory: where it begins in this process, and how long it is. It is not for writing where the region was made
    /// from a range of const objects, which the type cannot say.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept {
        return {static_cast<std::byte*>(this->native_handle()->addr), this->native_handle()->length};
    }
    [[nodiscard]] void* addr() const noexcept { return this->native_handle()->addr; }
    [[nodiscard]] std::size_t length() const noexcept { return this->native_handle()->length; }
    /// For local requests; sge() has it.
    [[nodiscard]] rdmaxx::lkey lkey() const noexcept { return rdmaxx::lkey{this->native_handle()->lkey}; }
    /// For a peer's requests; remote() has it.
    [[nodiscard]] rdmaxx::rkey rkey() const noexcept { return rdmaxx::rkey{this->native_handle()->rkey}; }
    /// The PD that it was made in.
    [[nodiscard]] pd_ref pd() const noexcept { return pd_ref(this->native_handle()->pd); }

    /// What iova_mr::import_mr takes in another process.
    [[nodiscard]] std::uint32_t handle() const noexcept { return this->native_handle()->handle; }

    /// The whole region as one SGE.
    /// @throws error ERANGE if it is longer than an SGE can say (4 GiB - 1)
    [[nodiscard]] rdmaxx::sge sge() const { return sge(0, length()); }
    [[nodiscard]] rdmaxx::sge sge(std::error_code& ec) const noexcept { return sge(0, length(), ec); }

    /// `length` bytes from `offset` on.
    /// @throws error ERANGE if they do not lie inside the region, or are more than an SGE can say (4 GiB - 1)
    [[nodiscard]] rdmaxx::sge sge(std::size_t offset, std::size_t length) const {
        rdmaxx::sge result;
        check(do_sge(offset, length, result));
        return result;
    }
    [[nodiscard]] rdmaxx::sge sge(std::size_t offset, std::size_t length, std::error_code& ec) const noexcept {
        rdmaxx::sge result;
        assign(ec, do_sge(offset, length, result));
        return result;
    }

    /// What a peer needs to reach the whole region, for access that it was registered with.
    /// @throws error ERANGE if it is longer than 4 GiB - 1
    [[nodiscard]] remote_buffer remote() const {
        remote_buffer result;
        check(do_remote(result));
        return result;
    }
    [[nodiscard]] remote_buffer remote(std::error_code& ec) const noexcept {
        remote_buffer result;
        assign(ec, do_remote(result));
        return result;
    }

private:
    [[nodiscard]] std::uint64_t start() const noexcept { return reinterpret_cast<std::uintptr_t>(addr()); }
    [[nodiscard]] status do_sge(std::size_t offset, std::size_t size, rdmaxx::sge& out) const noexcept {
        return piece_of(start(), length(), lkey(), offset, size, out);
    }
    [[nodiscard]] status do_remote(remote_buffer& out) const noexcept {
        return peer_view_of(start(), length(), rkey(), out);
    }
};

// The parts of registrable: the compiler names the one that is not met.

/// An array, a vector, a span ... (One object is std::span(&object, 1).)
template <class Range>
concept contiguous_range = requires(Range& range) {
    std::span(range);
};
/// An lvalue, or a view such as std::span: its memory does not end with the statement.
template <class Range>
concept not_a_temporary =
    std::is_lvalue_reference_v<Range> || std::ranges::enable_borrowed_range<std::remove_cvref_t<Range>>;

template <class Range>
using element_of = typename decltype(std::span(std::declval<Range&>()))::element_type;

template <class Range>
concept of_trivially_copyable_objects = // element_of, in a concept, is no type for g++ 11
    std::is_trivially_copyable_v<typename decltype(std::span(std::declval<Range&>()))::value_type>;

/// A contiguous range of objects that hardware may read and write as bytes, and whose memory does not end with the
/// statement.
template <class Range>
concept registrable = contiguous_range<Range> && not_a_temporary<Range> && of_trivially_copyable_objects<Range>;

} // namespace detail

#if RDMAXX_HAS_LINUX_VERBS
/// What is advised about memory that is paged on demand.
enum class mr_advice : int {
    prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH,                   ///< map it now, for reading
    prefetch_write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,       ///< map it now, for writing
    prefetch_no_fault = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, ///< map what is in memory already
};

[[nodiscard]] constexpr const char* to_string(mr_advice advice) noexcept {
    switch (advice) {
    case mr_advice::prefetch: return "prefetch";
    case mr_advice::prefetch_write: return "prefetch_write";
    case mr_advice::prefetch_no_fault: return "prefetch_no_fault";
    }
    return "unknown";
}
#endif

/// Registered memory that somebody else owns.
class mr_ref : public detail::mr_ops<detail::ref<ibv_mr>> {
public:
    using mr_ops::mr_ops;
};

/// What rereg_mr changes of a registration: each setter names one thing, and the others stay.
class mr_change {
public:
    mr_change() noexcept = default;

    /// Other memory, which must outlive the region: of an mr. Its keys may change with it.
    template <detail::registrable Range>
        requires(!std::is_const_v<detail::element_of<Range>>)
    mr_change& translation(Range&& range) noexcept {
        memory_ = std::as_writable_bytes(std::span(range));
        flags_ |= IBV_REREG_MR_CHANGE_TRANSLATION;
        return *this;
    }
    /// Another domain of the same device: a pd, which is kept, or a pd_ref, which must outlive the region.
    mr_change& pd(detail::parent<ibv_pd> domain) noexcept {
        domain_ = domain.native_handle();
        pin_ = domain.pin();
        flags_ |= IBV_REREG_MR_CHANGE_PD;
        return *this;
    }
    mr_change& access(rdmaxx::access flags) noexcept {
        access_ = flags;
        flags_ |= IBV_REREG_MR_CHANGE_ACCESS;
        return *this;
    }

private:
    friend class mr;
    friend struct detail::mr_rereg;

    std::span<std::byte> memory_;
    ibv_pd* domain_ = nullptr;
    detail::keep pin_;
    rdmaxx::access access_ = rdmaxx::access::none;
    int flags_ = 0;
};

namespace detail {

/// ibv_rereg_mr, of every kind of region.
struct mr_rereg {
    [[nodiscard]] static bool moves(const mr_change& change) noexcept {
        return (change.flags_ & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    }

    /// @param domain what keeps the region's PD, which may be another one then
    /// @param changed whether the region is another one, also where something failed
    [[nodiscard]] static status call(ibv_mr* raw, keep& domain, const mr_change& change, bool& changed) noexcept {
        const bool to_other_pd = (change.flags_ & IBV_REREG_MR_CHANGE_PD) != 0;
        if (to_other_pd && change.domain_ == nullptr)
            return {"ibv_rereg_mr", EINVAL, "empty PD"};
        if (lacks_local_write(change.access_))
            return {"ibv_rereg_mr", EINVAL, needs_local_write};
        errno = 0;
        const int result = ::ibv_rereg_mr(raw, change.flags_, change.domain_, change.memory_.data(),
                                          change.memory_.size(), static_cast<int>(bits(change.access_)));
        changed = result == 0 || result == IBV_REREG_MR_ERR_DO_FORK_OLD;
        if (changed && to_other_pd)
            domain = change.pin_;
        if (const int error = result != 0 ? last_errno() : 0; error == EOPNOTSUPP || error == ENOSYS)
            return {"ibv_rereg_mr", error, "the device cannot; the region is as before"};
        switch (result) {
        case 0: return {};
        case IBV_REREG_MR_ERR_INPUT: return {"ibv_rereg_mr", errno != 0 ? errno : EINVAL, "the region is as before"};
        case IBV_REREG_MR_ERR_DONT_FORK_NEW:
            return {"ibv_rereg_mr", last_errno(),
                    "the new memory could not be kept from forked children; the region is as before"};
        case IBV_REREG_MR_ERR_DO_FORK_OLD:
            return {"ibv_rereg_mr", last_errno(),
                    "the region is changed, but the old memory stays kept from forked children"};
        default: return {"ibv_rereg_mr", last_errno(), "the region can only be closed now"};
        }
    }

    /// Of a region that stays where it is.
    /// @param why_not what other memory is refused with
    template <class Region>
    [[nodiscard]] static status in_place(const Region& region, const mr_change& change, const char* why_not) noexcept {
        if (!region)
            return {"ibv_rereg_mr", EINVAL, "empty region"};
        if (moves(change))
            return {"ibv_rereg_mr", EINVAL, why_not};
        bool changed = false;
        return call(region.native_handle(), passkey::block(region)->parents[0], change, changed);
    }
};

} // namespace detail

/// Registered memory: a range of objects that the device may reach. The registration ends exactly when its owner ends;
/// the memory is the caller's and must outlive it. What has been posted with it must have completed.
///
/// C calls: ibv_reg_mr(3), ibv_dereg_mr(3). Registering pins the pages: RLIMIT_MEMLOCK (`ulimit -l`) limits how many,
/// and the text of ENOMEM says the limit and the size. (With access::on_demand, where the device has it, nothing is
/// pinned.) System calls, and time in proportion to the size. Any number of threads may use one region.
///
///     std::vector<std::byte> buffer(4096);
///     rdmaxx::mr mr(pd, buffer, access::local_write | access::remote_read);
///     rdmaxx::mr one(pd, std::span(&object, 1)); // of one object
///
/// While a program may fork, memory of its own pages is safer: registered_buffer (verbs/registered_buffer.hpp).
class mr : public detail::mr_ops<detail::owner<detail::mr_traits>> {
public:
    mr() noexcept = default;

    /// @param domain a pd, which is kept allocated, or a pd_ref, which must outlive the region
    /// @param range an array, vector, span ... of trivially copyable objects that can be written
    /// @throws error EINVAL for remote_write or remote_atomic without local_write, ENOMEM, EFAULT for pages that cannot
    ///         be written, EOPNOTSUPP for on_demand on a device without it
    template <detail::registrable Range>
        requires(!std::is_const_v<detail::element_of<Range>>)
    mr(detail::parent<ibv_pd> domain, Range&& range, access flags = access::local_write) {
        const auto memory = std::as_writable_bytes(std::span(range));
        checked(init(domain, memory, flags), memory.size());
    }
    template <detail::registrable Range>
        requires(!std::is_const_v<detail::element_of<Range>>)
    [[nodiscard]] static mr create(detail::parent<ibv_pd> domain, Range&& range, access flags,
                                   std::error_code& ec) noexcept {
        mr result;
        detail::assign(ec, result.init(domain, std::as_writable_bytes(std::span(range)), flags));
        return result;
    }

    /// A range of const objects: access that writes does not compile.
    template <detail::registrable Range>
        requires std::is_const_v<detail::element_of<Range>> mr(detail::parent<ibv_pd> domain, Range&& range,
                                                               read_access flags = access::none) {
            const auto memory = std::as_bytes(std::span(range));
            checked(init(domain, memory, flags), memory.size());
        }
    template <detail::registrable Range>
        requires std::is_const_v<detail::element_of<Range>>
    [[nodiscard]] static mr create(detail::parent<ibv_pd> domain, Range&& range, read_access flags,
                                   std::error_code& ec) noexcept {
        mr result;
        detail::assign(ec, result.init(domain, std::as_bytes(std::span(range)), flags));
        return result;
    }

    /// Takes over a region that ibv_reg_mr made; it will be deregistered by ibv_dereg_mr.
    /// @param pinned what to keep allocated as long as the region
    /// @param ec ENOMEM, and the region is still the caller's
    [[nodiscard]] static mr adopt(ibv_mr* raw, detail::parent<ibv_pd> pinned, std::error_code& ec) noexcept {
        mr result;
        detail::assign(ec, result.take_over("ibv_reg_mr", raw, pinned.pin()));
        return result;
    }

    /// Changes the memory, the domain or the access of the registration. Nothing that was posted with it may be under
    /// way. System call. C call: ibv_rereg_mr(3).
    ///
    ///     region.rereg_mr(mr_change().access(access::local_write | access::remote_read));
    ///
    /// @throws error EINVAL, EOPNOTSUPP on devices without it. error::cause() says whether the region is as before, is
    ///         changed, or can only be closed.
    void rereg_mr(const mr_change& change) {
        const detail::status result = do_rereg(change);
        if ((change.flags_ & IBV_REREG_MR_CHANGE_TRANSLATION) != 0)
            checked(result, change.memory_.size());
        else
            detail::check(result);
    }
    void rereg_mr(const mr_change& change, std::error_code& ec) noexcept { detail::assign(ec, do_rereg(change)); }

private:
    friend class buf;

    template <class CCall>
    [[nodiscard]] detail::status enter(const char* call, CCall c_call, const detail::keep& domain,
                                       const detail::keep& memory) noexcept {
        return make(call, c_call, domain, memory);
    }

    static void checked(const detail::status& result, std::size_t size) {
        detail::check(result, detail::registration{size, result.value});
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, std::span<const std::byte> memory,
                                      access flags) noexcept {
        if (!domain)
            return {"ibv_reg_mr", EINVAL, "empty PD"};
        if (detail::lacks_local_write(flags))
            return {"ibv_reg_mr", EINVAL, detail::needs_local_write};
        return make(
            "ibv_reg_mr",
            [&]() noexcept {
                return detail::c_reg_mr(domain.native_handle(), const_cast<std::byte*>(memory.data()), memory.size(),
                                        flags);
            },
            domain.pin());
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_pd> domain, std::span<const std::byte> memory,
                                      read_access flags) noexcept {
        const detail::status made = init(domain, memory, flags.flags());
        if (!made.failed())
            detail::passkey::block(*this)->of_const = true;
        return made;
    }

    [[nodiscard]] detail::status do_rereg(const mr_change& change) noexcept {
        if (!*this)
            return {"ibv_rereg_mr", EINVAL, "empty region"};
        const bool moves = detail::mr_rereg::moves(change);
        auto& own = *detail::passkey::block(*this);
        if (own.of_const && !moves && has(change.access_, detail::write_access))
            return {"ibv_rereg_mr", EINVAL, "a range of const objects can only be read"};
        bool changed = false;
        const detail::status result = detail::mr_rereg::call(native_handle(), own.parents[0], change, changed);
        if (changed && moves) // to memory that can be written
            own.of_const = false;
        return result;
    }
};

#if RDMAXX_HAS_LINUX_VERBS
namespace detail {

[[nodiscard]] inline status do_advise_mr(ibv_pd* domain, mr_advice advice, std::span<const sge> pieces,
                                         bool flush) noexcept {
    return check_call("ibv_advise_mr", ::ibv_advise_mr, domain, static_cast<ibv_advise_mr_advice>(advice),
                      flush ? std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH} : 0U, const_cast<sge*>(pieces.data()),
                      static_cast<std::uint32_t>(pieces.size()));
}

} // namespace detail

/// Tells the device what is about to be used of regions with access::on_demand. System call.
/// @param flush return when it is done; else it may go on in the background, and failures are not reported
/// @throws error EOPNOTSUPP for a device without it, EINVAL, EFAULT for pages that are not there
/// C call: ibv_advise_mr(3).
inline void advise_mr(pd_ref domain, mr_advice advice, std::span<const sge> pieces, bool flush = true) {
    detail::check(detail::do_advise_mr(domain.native_handle(), advice, pieces, flush));
}
inline void advise_mr(pd_ref domain, mr_advice advice, std::span<const sge> pieces, bool flush,
                      std::error_code& ec) noexcept {
    detail::assign(ec, detail::do_advise_mr(domain.native_handle(), advice, pieces, flush));
}
#endif

} // namespace rdmaxx::inline v0

#endif
