// struct ibv_cq_ex, a completion queue whose completions are read field by field: ibv_create_cq_ex(3).
#ifndef RDMAXX_VERBS_CQ_EX_HPP
#define RDMAXX_VERBS_CQ_EX_HPP

#include <rdmaxx/detail/flags.hpp>
#include <rdmaxx/detail/rxe_poll.hpp>
#include <rdmaxx/detail/verbs_api.hpp>
#include <rdmaxx/verbs/comp_channel.hpp>
#include <rdmaxx/verbs/cq.hpp>
#include <rdmaxx/verbs/pd.hpp>
#include <rdmaxx/verbs/wc.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <arpa/inet.h>

namespace rdmaxx::inline v0 {

/// What the completions of a cq_ex carry beside what all have (enum ibv_create_cq_wc_flags). Each costs time when a
/// completion is taken, and devices lack some: creation then fails.
enum class wc_fields : std::uint64_t {
    none = 0,
    byte_len = IBV_WC_EX_WITH_BYTE_LEN,
    imm = IBV_WC_EX_WITH_IMM, ///< immediate data, and the rkey that a send_with_inv invalidated
    qp_num = IBV_WC_EX_WITH_QP_NUM,
    src_qp = IBV_WC_EX_WITH_SRC_QP,
    slid = IBV_WC_EX_WITH_SLID,
    sl = IBV_WC_EX_WITH_SL,
    dlid_path_bits = IBV_WC_EX_WITH_DLID_PATH_BITS,
    completion_timestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    cvlan = IBV_WC_EX_WITH_CVLAN,
    flow_tag = IBV_WC_EX_WITH_FLOW_TAG,
#if RDMAXX_HAS_LINUX_VERBS
    tm_info = IBV_WC_EX_WITH_TM_INFO,
    completion_timestamp_wallclock = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
#endif
    /// All that struct ibv_wc has.
    standard = byte_len | imm | qp_num | src_qp | slid | sl | dlid_path_bits,
};

namespace detail {
template <>
inline constexpr bool is_flags<wc_fields> = true;

/// ibv_cq_ex begins as ibv_cq does: ibv_cq_ex_to_cq is this cast's inverse.
[[nodiscard]] inline ibv_cq_ex* extended(ibv_cq* cq) noexcept {
    return reinterpret_cast<ibv_cq_ex*>(cq);
}

template <wc_fields Fields, class Base>
class cq_ex_ops;
} // namespace detail

/// The completion that an extended poll is at. It reads the queue: valid until the range that gave it goes on or ends.
///
/// As with wc, a completion that failed has a wr_id, a status, a queue pair number and a vendor error, and nothing
/// else: the other accessors are empty then. Those that the CQ was not asked for do not exist.
template <wc_fields Fields>
class completion {
public:
    /// The one that the queue is at: the range makes these.
    explicit completion(ibv_cq_ex* at) noexcept : at_(at) {}

    /// The program's number of the request.
    [[nodiscard]] std::uint64_t wr_id() const noexcept { return at_->wr_id; }
    [[nodiscard]] wc_status status() const noexcept { return static_cast<wc_status>(at_->status); }
    [[nodiscard]] bool ok() const noexcept { return at_->status == IBV_WC_SUCCESS; }
    [[nodiscard]] std::uint32_t vendor_err() const noexcept { return ::ibv_wc_read_vendor_err(at_); }

    /// What the request was; empty for a completion that failed.
    [[nodiscard]] std::optional<wc_opcode> opcode() const noexcept {
        if (!ok())
            return std::nullopt;
        return static_cast<wc_opcode>(::ibv_wc_read_opcode(at_));
    }

    /// True for a receive, with or without RDMA write; false for everything else and for one that failed.
    [[nodiscard]] bool is_recv() const noexcept { return ok() && detail::is_recv(::ibv_wc_read_opcode(at_)); }

    /// Empty set for a completion that failed.
    [[nodiscard]] wc_flags flags() const noexcept {
        return ok() ? static_cast<wc_flags>(::ibv_wc_read_wc_flags(at_)) : wc_flags::none;
    }

    /// Which queue pair it is of, also for a completion that failed.
    [[nodiscard]] std::uint32_t qp_num() const noexcept requires(has(Fields, wc_fields::qp_num)) {
        return ::ibv_wc_read_qp_num(at_);
    }

    /// Bytes received, read or fetched; empty for a completion that failed, and for sends and writes.
    [[nodiscard]] std::optional<std::uint32_t> byte_len() const noexcept requires(has(Fields, wc_fields::byte_len)) {
        if (!ok() || !detail::has_byte_len(::ibv_wc_read_opcode(at_)))
            return std::nullopt;
        return ::ibv_wc_read_byte_len(at_);
    }

    /// Immediate data in host byte order; empty where none came.
    [[nodiscard]] std::optional<std::uint32_t> imm_data() const noexcept requires(has(Fields, wc_fields::imm)) {
        if (!is_recv() || !has(flags(), wc_flags::with_imm))
            return std::nullopt;
        return ntohl(::ibv_wc_read_imm_data(at_));
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// The rkey that the peer's send_with_inv made invalid here; empty where it was another operation. (Soft-RoCE sets
    /// another bit, and it is empty there.)
    [[nodiscard]] std::optional<rkey> invalidated_rkey() const noexcept requires(has(Fields, wc_fields::imm)) {
        if (!is_recv() || !has(flags(), wc_flags::with_inv))
            return std::nullopt;
        return rkey{::ibv_wc_read_invalidated_rkey(at_)};
    }
#endif

    /// The queue pair number of a UD receive's sender; empty for anything but a receive.
    [[nodiscard]] std::optional<std::uint32_t> src_qp() const noexcept requires(has(Fields, wc_fields::src_qp)) {
        return of_recv([this]() noexcept { return ::ibv_wc_read_src_qp(at_); });
    }
    /// InfiniBand's source LID of a UD receive.
    [[nodiscard]] std::optional<std::uint32_t> slid() const noexcept requires(has(Fields, wc_fields::slid)) {
        return of_recv([this]() noexcept { return ::ibv_wc_read_slid(at_); });
    }
    /// Service level of a UD receive.
    [[nodiscard]] std::optional<std::uint8_t> sl() const noexcept requires(has(Fields, wc_fields::sl)) {
        return of_recv([this]() noexcept { return ::ibv_wc_read_sl(at_); });
    }
    [[nodiscard]] std::optional<std::uint8_t> dlid_path_bits() const noexcept
        requires(has(Fields, wc_fields::dlid_path_bits)) {
        return of_recv([this]() noexcept { return ::ibv_wc_read_dlid_path_bits(at_); });
    }

    /// The device's clock when the request completed, in its own ticks (ibv_device_attr_ex::hca_core_clock is their
    /// frequency in kHz); empty for a completion that failed.
    [[nodiscard]] std::optional<std::uint64_t> completion_timestamp() const noexcept
        requires(has(Fields, wc_fields::completion_timestamp)) {
        return of_success([this]() noexcept { return ::ibv_wc_read_completion_ts(at_); });
    }
    /// The VLAN tag that the device took off a packet.
    [[nodiscard]] std::optional<std::uint16_t> cvlan() const noexcept requires(has(Fields, wc_fields::cvlan)) {
        return of_recv([this]() noexcept { return ::ibv_wc_read_cvlan(at_); });
    }
    /// The tag of the flow rule that steered a packet here.
    [[nodiscard]] std::optional<std::uint32_t> flow_tag() const noexcept requires(has(Fields, wc_fields::flow_tag)) {
        return of_recv([this]() noexcept { return ::ibv_wc_read_flow_tag(at_); });
    }

#if RDMAXX_HAS_LINUX_VERBS
    /// Tag and application data of a message that was matched by a tag.
    [[nodiscard]] std::optional<ibv_wc_tm_info> tm_info() const noexcept requires(has(Fields, wc_fields::tm_info)) {
        return of_success([this]() noexcept {
            ibv_wc_tm_info info{};
            ::ibv_wc_read_tm_info(at_, &info);
            return info;
        });
    }
    /// When the request completed, in nanoseconds of the system's real-time clock; empty for a completion that failed.
    [[nodiscard]] std::optional<std::uint64_t> completion_wallclock_ns() const noexcept
        requires(has(Fields, wc_fields::completion_timestamp_wallclock)) {
        return of_success([this]() noexcept { return ::ibv_wc_read_completion_wallclock_ns(at_); });
    }
#endif

    /// A copy that may be kept, and given to what takes a wc, such as datagram: of a CQ that was asked for
    /// wc_fields::standard.
    [[nodiscard]] wc snapshot() const noexcept requires((Fields & wc_fields::standard) == wc_fields::standard) {
        wc copy;
        ibv_wc& raw = copy.raw();
        raw.wr_id = wr_id();
        raw.status = at_->status;
        raw.vendor_err = vendor_err();
        raw.qp_num = qp_num();
        if (!ok())
            return copy;
        raw.opcode = ::ibv_wc_read_opcode(at_);
        raw.wc_flags = static_cast<decltype(raw.wc_flags)>(detail::bits(flags()));
        raw.byte_len = byte_len().value_or(0);
        raw.src_qp = src_qp().value_or(0);
        raw.slid = static_cast<std::uint16_t>(slid().value_or(0));
        raw.sl = sl().value_or(0);
        raw.dlid_path_bits = dlid_path_bits().value_or(0);
        if (const auto imm = imm_data())
            raw.imm_data = htonl(*imm);
#if RDMAXX_HAS_LINUX_VERBS
        if (const auto key = invalidated_rkey())
            raw.invalidated_rkey = value(*key);
#endif
        return copy;
    }

private:
    template <class Read>
    [[nodiscard]] auto of_recv(Read read) const noexcept -> std::optional<decltype(read())> {
        if (!is_recv())
            return std::nullopt;
        return read();
    }
    template <class Read>
    [[nodiscard]] auto of_success(Read read) const noexcept -> std::optional<decltype(read())> {
        if (!ok())
            return std::nullopt;
        return read();
    }

    ibv_cq_ex* at_;
};

/// The completions that a cq_ex has now, one at a time. Its end is always ended (ibv_end_poll), by whatever path the
/// loop is left: completions that were not reached stay in the queue. While it lives the queue may be locked: poll it
/// by nothing else, and let nothing wait for another thread that does. Not to be kept: it belongs into a for.
///
/// An input range. Where a C call fails it throws, from poll() or `++`; that of poll(ec) sets `ec` and ends.
template <wc_fields Fields, bool Throws>
class [[nodiscard]] completion_range {
public:
    class sentinel {};

    /// An input iterator: `++` goes on in the queue itself.
    class iterator {
    public:
        /// What iterators have.
        using value_type = completion<Fields>;
        using difference_type = std::ptrdiff_t;

        iterator() noexcept = default;

        /// The completion that it is at.
        [[nodiscard]] completion<Fields> operator*() const noexcept { return completion<Fields>(range_->cq_); }
        /// The next completion, or the end. C call: ibv_next_poll(3).
        iterator& operator++() noexcept(!Throws) {
            if (!range_->check("ibv_next_poll", ::ibv_next_poll(range_->cq_)))
                range_ = nullptr;
            return *this;
        }
        void operator++(int) noexcept(!Throws) { ++*this; }

        /// True at the end.
        [[nodiscard]] bool operator==(sentinel) const noexcept { return range_ == nullptr; }

    private:
        friend completion_range;
        explicit iterator(completion_range* range) noexcept : range_(range) {}

        completion_range* range_ = nullptr; // null at the end
    };

    completion_range(const completion_range&) = delete;
    completion_range& operator=(const completion_range&) = delete;
    ~completion_range() {
        if (started_)
            ::ibv_end_poll(cq_);
    }

    /// Once: the queue gives each completion to one poll.
    [[nodiscard]] iterator begin() noexcept { return iterator(started_ ? this : nullptr); }
    // NOLINTNEXTLINE(readability-convert-member-functions-to-static): a range's
    [[nodiscard]] sentinel end() const noexcept { return {}; }

private:
    template <wc_fields, class>
    friend class detail::cq_ex_ops;

    completion_range(ibv_cq_ex* cq, std::error_code* ec) noexcept(!Throws) : cq_(cq), ec_(ec) {
        ibv_poll_cq_attr attr{};
        started_ = check("ibv_start_poll", ::ibv_start_poll(cq, &attr));
    }

    /// True where the queue is at a completion, false where there is none.
    [[nodiscard]] bool check(const char* call, int result) const noexcept(!Throws) {
        if (result == 0) [[likely]]
            return true;
        if (result != ENOENT) [[unlikely]] {
            if constexpr (Throws)
                raise(call, result);
            else
                *ec_ = failed(call, result).code();
        }
        return false;
    }

    /// Positive, as the man page has it, or as ibv_poll_cq's.
    [[nodiscard]] RDMAXX_COLD static detail::status failed(const char* call, int result) noexcept {
        return {call, result > 0 ? result : detail::poll_error(result)};
    }
    [[noreturn]] RDMAXX_COLD static void raise(const char* call, int result) { detail::raise(failed(call, result)); }

    ibv_cq_ex* cq_;
    std::error_code* ec_;
    bool started_ = false; // a start that found nothing, or failed, must not be ended
};

/// How a cq_ex is made (struct ibv_cq_init_attr_ex). It pins what was given as an owner, and hands the pins to the CQ.
class cq_init_attr_ex {
public:
    /// @param cqe how many completions at least, from 1
    explicit cq_init_attr_ex(std::uint32_t cqe) noexcept { raw_.cqe = cqe; }

    /// Where its events arrive: a comp_channel, which is kept, or a comp_channel_ref, which must outlive the CQ.
    cq_init_attr_ex& channel(detail::parent<ibv_comp_channel> value) noexcept {
        raw_.channel = value.native_handle();
        channel_ = value.pin();
        empty_channel_ = value.given_empty();
        return *this;
    }
    /// From 0 to below the context's num_comp_vectors: which interrupt.
    cq_init_attr_ex& comp_vector(std::uint32_t value) noexcept {
        raw_.comp_vector = value;
        return *this;
    }
    /// What cq_context() will be.
    cq_init_attr_ex& cq_context(void* value) noexcept {
        raw_.cq_context = value;
        return *this;
    }
    /// A promise that only one thread at a time uses the CQ: some providers then take no lock.
    cq_init_attr_ex& single_threaded() noexcept { return flag(IBV_CREATE_CQ_ATTR_SINGLE_THREADED); }
#if RDMAXX_HAS_LINUX_VERBS
    /// The device does not look for an overrun, which then corrupts the queue without a word.
    cq_init_attr_ex& ignore_overrun() noexcept {
        return flag(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
    }
    /// Whose allocators and thread domain the CQ uses: an owner, which is kept, or a ref, which must outlive the CQ.
    cq_init_attr_ex& parent_domain(detail::parent<ibv_pd> value) noexcept {
        raw_.parent_domain = value.native_handle();
        raw_.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
        parent_domain_ = value.pin();
        empty_domain_ = !value;
        return *this;
    }
#endif

    /// The C struct.
    [[nodiscard]] const ibv_cq_init_attr_ex& raw() const noexcept {
        return raw_;
    }

private:
    template <wc_fields>
    friend class cq_ex;

    cq_init_attr_ex& flag(std::uint32_t value) noexcept {
        raw_.flags |= value;
        raw_.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
        return *this;
    }

    ibv_cq_init_attr_ex raw_{};
    detail::keep channel_;
    detail::keep parent_domain_;
    bool empty_channel_ = false;
    bool empty_domain_ = false;
};

namespace detail {

/// The operations of cq_ex and cq_ex_ref.
template <wc_fields Fields, class Base>
class cq_ex_ops : public Base {
public:
    using Base::Base;
    using Base::poll;

    /// The completions that are there now: `for (const auto completion : cq.poll())`. Data path: no system call, no
    /// allocation; never blocks, and takes what comes while the loop runs as well, so a loop that has other work to do
    /// ends itself. C calls: ibv_start_poll(3), ibv_next_poll(3), ibv_end_poll(3).
    /// @throws error where a C call fails, from here or from the loop: the CQ is broken
    [[nodiscard]] completion_range<Fields, true> poll() const {
        return completion_range<Fields, true>(native_handle_ex(), nullptr);
    }
    /// @param ec must outlive the range, which sets it when it ends for a failure
    [[nodiscard]] completion_range<Fields, false> poll(std::error_code& ec RDMAXX_LIFETIMEBOUND) const noexcept {
        clear(ec);
        return completion_range<Fields, false>(native_handle_ex(), &ec);
    }

    /// The C object, as the extended calls take it.
    [[nodiscard]] ibv_cq_ex* native_handle_ex() const noexcept { return extended(this->native_handle()); }
};

} // namespace detail

template <wc_fields Fields = wc_fields::standard>
class cq_ex;

/// A cq_ex that somebody else owns. It is a cq_ref wherever one is wanted.
template <wc_fields Fields>
class cq_ex_ref : public detail::cq_ex_ops<Fields, detail::cq_ops<detail::ref<ibv_cq>>> {
    using base = detail::cq_ex_ops<Fields, detail::cq_ops<detail::ref<ibv_cq>>>;

public:
    cq_ex_ref() noexcept = default;
    /// Nothing is pinned: the C object must outlive every use, and was made by ibv_create_cq_ex with these fields at
    /// least.
    explicit cq_ex_ref(ibv_cq_ex* raw) noexcept : base(raw == nullptr ? nullptr : ::ibv_cq_ex_to_cq(raw)) {}
    /// Of an owner that stays.
    cq_ex_ref(const cq_ex<Fields>& owner) noexcept // NOLINT(*-explicit-*): an owner is a ref and more
        : base(owner.native_handle()) {}
    cq_ex_ref(const cq_ex<Fields>&&) = delete; // NOLINT(*-explicit-*): it would outlive its owner

    /// For what CQs of either kind do.
    operator cq_ref() const noexcept { return cq_ref(this->native_handle()); } // NOLINT(*-explicit-*): it is one
};

/// A completion queue that is read field by field, with the fields that it was made for:
///
///     rdmaxx::cq_ex<wc_fields::byte_len | wc_fields::qp_num> cq(device, 16);
///     for (const auto completion : cq.poll())
///         if (completion.ok()) use(completion.wr_id(), completion.byte_len());
///
/// For queue pairs, completion channels and everything else that takes a CQ it is one: as a cq_ref. It is no cq, so
/// that none is assigned to it: a plain one would be polled by functions that it does not have.
/// C calls: ibv_create_cq_ex(3), ibv_destroy_cq(3). Any number of threads may poll one queue, unless it was made
/// single_threaded(); libibverbs locks.
template <wc_fields Fields>
class cq_ex : public detail::cq_ex_ops<Fields, detail::cq_ops<detail::owner<detail::cq_traits>>> {
public:
    /// What its completions carry.
    static constexpr wc_fields fields = Fields;

    cq_ex() noexcept = default;

    /// As cq's. System call.
    /// @throws error EOPNOTSUPP or EINVAL for fields that the device does not have
    cq_ex(detail::parent<ibv_context> device, int cqe, detail::parent<ibv_comp_channel> channel = {},
          int comp_vector = 0)
        : cq_ex(device, attr_of(cqe, channel, comp_vector)) {}
    [[nodiscard]] static cq_ex create(detail::parent<ibv_context> device, int cqe,
                                      detail::parent<ibv_comp_channel> channel, int comp_vector,
                                      std::error_code& ec) noexcept {
        return create(device, attr_of(cqe, channel, comp_vector), ec);
    }

    /// @param device a context, which is kept open, or a context_ref, which must outlive the CQ
    cq_ex(detail::parent<ibv_context> device, const cq_init_attr_ex& attr) { detail::check(init(device, attr)); }
    [[nodiscard]] static cq_ex create(detail::parent<ibv_context> device, const cq_init_attr_ex& attr,
                                      std::error_code& ec) noexcept {
        cq_ex result;
        detail::assign(ec, result.init(device, attr));
        return result;
    }

    /// Takes over a CQ that ibv_create_cq_ex made with these fields at least; it will be destroyed by ibv_destroy_cq.
    /// @param ec ENOMEM, and the CQ is still the caller's
    [[nodiscard]] static cq_ex adopt(ibv_cq_ex* raw, detail::parent<ibv_context> device,
                                     detail::parent<ibv_comp_channel> channel, std::error_code& ec) noexcept {
        cq_ex result;
        ibv_cq* plain = raw != nullptr ? ::ibv_cq_ex_to_cq(raw) : nullptr;
        detail::assign(ec, result.take_over("ibv_create_cq_ex", plain, device.pin(), channel.pin()));
        if (!ec)
            detail::rxe_poll::mend(raw);
        return result;
    }

private:
    [[nodiscard]] static cq_init_attr_ex attr_of(int cqe, detail::parent<ibv_comp_channel> channel,
                                                 int comp_vector) noexcept {
        // What is negative becomes too large, which the C call refuses.
        cq_init_attr_ex attr(static_cast<std::uint32_t>(cqe));
        attr.channel(channel).comp_vector(static_cast<std::uint32_t>(comp_vector));
        return attr;
    }

    [[nodiscard]] detail::status init(detail::parent<ibv_context> device, const cq_init_attr_ex& attr) noexcept {
        if (!device)
            return {"ibv_create_cq_ex", EINVAL, "empty context"};
        if (attr.empty_channel_)
            return {"ibv_create_cq_ex", EINVAL, "empty completion channel"};
        if (attr.empty_domain_)
            return {"ibv_create_cq_ex", EINVAL, "empty parent domain"};
        ibv_cq_init_attr_ex c = attr.raw();
        c.wc_flags = detail::bits(Fields);
        return this->make(
            "ibv_create_cq_ex",
            [&]() noexcept -> ibv_cq* {
                ibv_cq_ex* made = ::ibv_create_cq_ex(device.native_handle(), &c);
                if (made == nullptr)
                    return nullptr;
                detail::rxe_poll::mend(made);
                return ::ibv_cq_ex_to_cq(made);
            },
            device.pin(), attr.channel_, attr.parent_domain_);
    }
};

} // namespace rdmaxx::inline v0

#endif
