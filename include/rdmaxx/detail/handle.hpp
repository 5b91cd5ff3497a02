// The handle templates: the only hand-written moves, assignments and destructors of the library.
//
//   node      counts who needs one C object: its owner, and the children that were made from it
//   block     a node that knows its C object and its parents
//   keep      holds one node alive
//   owner     the C pointer and its block; what pd, cq, qp, cm_id ... are made of
//   ref       the C pointer; what pd_ref, cq_ref, qp_ref, cm_id_ref ... are made of
//   parent    a function parameter that takes either, and pins the owner's node
//
// A Traits type says what differs: the C type, the block, and how the object is destroyed.
#ifndef RDMAXX_DETAIL_HANDLE_HPP
#define RDMAXX_DETAIL_HANDLE_HPP

#include <rdmaxx/detail/config.hpp>
#include <rdmaxx/error.hpp>

#include <concepts>
#include <cstddef>
#include <new>
#include <utility>

#include <unistd.h>

namespace rdmaxx::inline v0::detail {

struct node {
    explicit node(void (*end_of_object)(node*) noexcept) noexcept : last(end_of_object) {}

    unsigned count = 1;
    // After fork the child's copy of an owner must not destroy what is the parent's: libibverbs would.
    pid_t maker = ::getpid();
    void (*last)(node*) noexcept; ///< destroys the C object and then this node

    [[nodiscard]] bool foreign_process() const noexcept { return maker != ::getpid(); }
};

inline void retain(node* n) noexcept {
    if (n != nullptr)
        __atomic_fetch_add(&n->count, 1U, __ATOMIC_RELAXED);
}

inline void release(node* n) noexcept {
    if (n != nullptr && __atomic_sub_fetch(&n->count, 1U, __ATOMIC_ACQ_REL) == 0)
        n->last(n);
}

/// As retain(), but not for a node whose end has begun.
[[nodiscard]] inline bool try_retain(node* n) noexcept {
    unsigned count = __atomic_load_n(&n->count, __ATOMIC_RELAXED);
    while (count != 0)
        if (__atomic_compare_exchange_n(&n->count, &count, count + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return true;
    return false;
}

/// A counted reference to a node.
class keep {
public:
    keep() noexcept = default;
    explicit keep(node* n) noexcept : node_(n) { retain(n); }
    /// `n` if it can still be kept, else `instead`.
    keep(node* n, node* instead) noexcept : node_(n) {
        if (n == nullptr || !try_retain(n))
            retain(node_ = instead);
    }
    keep(const keep& other) noexcept : keep(other.node_) {}
    keep(keep&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
    keep& operator=(const keep& other) noexcept { return *this = keep(other); }
    keep& operator=(keep&& other) noexcept {
        keep taken(std::move(other));
        std::swap(node_, taken.node_);
        return *this;
    }
    ~keep() { release(node_); }

    [[nodiscard]] node* get() const noexcept { return node_; }

private:
    node* node_ = nullptr;
};

/// What an owner has beside its C pointer. Traits::block derives from it.
template <class Raw, std::size_t Parents>
struct block : node {
    using node::node;

    Raw* raw = nullptr;
    keep parents[Parents == 0 ? 1 : Parents];
};

/// The raw pointer of a handle, by the one way that is not public to users: the passkey of the library's headers.
struct passkey {
    template <class Handle>
    [[nodiscard]] static auto block(const Handle& handle) noexcept {
        return handle.block_;
    }
};

/// EIO means that the device was removed and the object with it.
[[nodiscard]] inline bool already_gone(int error) noexcept {
    return error == EIO;
}

/// Ends the C object of a block. On success the block is gone as well, and `b` null; on failure it stays, with its
/// parents. EDEADLK says that the object was given up: see hang_action::leak.
template <class Traits>
[[nodiscard]] status end_object(typename Traits::block*& b) noexcept {
    if (b->raw != nullptr && !b->foreign_process()) {
        const status result = Traits::destroy(*b);
        if (result.failed() && !already_gone(result.value))
            return result;
    }
    delete std::exchange(b, nullptr);
    return {};
}

template <class Traits>
void end_of_object(node* n) noexcept {
    auto* b = static_cast<typename Traits::block*>(n);
    const void* object = b->raw;
    const status result = end_object<Traits>(b);
    if (result.failed())
        report_destroy_failure(result, object);
}

/// A non-owning handle: the C pointer. Trivially copyable, comparable, hashable.
template <class Raw>
class ref {
public:
    /// The C struct.
    using raw_type = Raw;

    ref() noexcept = default;
    /// Nothing is pinned: the C object must outlive every use.
    explicit ref(Raw* raw) noexcept : raw_(raw) {}

    /// The C pointer; null when empty.
    [[nodiscard]] Raw* native_handle() const noexcept { return raw_; }
    /// False when empty.
    [[nodiscard]] explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Whether they are one C object.
    friend bool operator==(const ref&, const ref&) noexcept = default;

private:
    Raw* raw_ = nullptr;
};

/// An owning handle: the C pointer, which every call uses, and the block, which only create, move and destroy touch.
///
/// Moved-from and default-constructed owners are empty: operator bool is false, queries that need no C object are
/// defined, and what asks the C libraries for something is EINVAL; the data path, and views of C's fields, need one.
///
/// Distinct owners may be used concurrently; one owner may not, unless its class says so.
template <class Traits>
class owner {
public:
    /// The C struct.
    using raw_type = typename Traits::raw_type;
    /// The non-owning handle of the same object.
    using ref_type = typename Traits::ref_type;

    owner() noexcept = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;

    owner(owner&& other) noexcept
        : raw_(std::exchange(other.raw_, nullptr)), block_(std::exchange(other.block_, nullptr)) {}

    /// Takes the new object first, then ends the old one. Self-move changes nothing.
    owner& operator=(owner&& other) noexcept {
        owner taken(std::move(other));
        std::swap(raw_, taken.raw_);
        std::swap(block_, taken.block_);
        return *this;
    }

    /// Ends the object; a failure goes to the destroy-failure hook. errno is kept.
    ~owner();

    /// The C pointer, which stays the owner's; null when empty.
    [[nodiscard]] raw_type* native_handle() const noexcept { return raw_; }
    /// False when empty.
    [[nodiscard]] explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// The non-owning handle, from an owner that stays.
    operator ref_type() const& noexcept { return ref_type(raw_); } // NOLINT(*-explicit-*): an owner is a ref and more
    operator ref_type() const&& = delete; // NOLINT(*-explicit-*): it would outlive its owner, which ends here

    /// Ends the object now and reports what the destructor could only hand to the hook. An empty owner: no effect.
    ///
    /// While others still need the object (children, events) it is only let go of: it ends with the last of them, and a
    /// failure then goes to the hook. If the C call fails the owner keeps the object. errno is kept.
    /// @param ec the C call's error; EBUSY while something that rdmaxx did not make still uses the object
    void close(std::error_code& ec) noexcept { assign(ec, do_close()); }
    void close() { check(do_close()); }

    /// Hands the C object to the caller, who has to destroy it, and gives up the pins of its parents: they are the
    /// caller's to keep from here on.
    [[nodiscard]] raw_type* release() && noexcept {
        raw_type* raw = std::exchange(raw_, nullptr);
        if (auto* b = std::exchange(block_, nullptr)) {
            if constexpr (requires { Traits::detach(*b); })
                Traits::detach(*b);
            b->raw = nullptr;
            detail::release(b);
        }
        return raw;
    }

protected:
    using block_type = typename Traits::block;

    /// Makes a block, then the object by `c_call`, which returns it or null with errno. Nothing is left on failure.
    template <class CCall, class... Parents>
    [[nodiscard]] status make(const char* call, CCall c_call, const Parents&... parents) noexcept {
        auto* b = new (std::nothrow) block_type(end_of_object<Traits>);
        if (b == nullptr)
            return {call, ENOMEM};
        errno = 0;
        raw_type* raw = c_call();
        if (raw == nullptr) {
            const status failed = {call, last_errno()};
            delete b;
            return failed;
        }
        install(raw, b, parents...);
        return {};
    }

    /// Takes over an object that somebody else made; on failure it is still theirs.
    template <class... Parents>
    [[nodiscard]] status take_over(const char* call, raw_type* raw, const Parents&... parents) noexcept {
        if (raw == nullptr)
            return {call, EINVAL, "nothing to take over"};
        return make(
            call, [raw]() noexcept { return raw; }, parents...);
    }

    /// Enters an object that exists.
    template <class... Parents>
    void install(raw_type* raw, block_type* b, const Parents&... parents) noexcept {
        std::size_t i = 0;
        ((b->parents[i++] = parents), ...);
        static_cast<void>(i);
        b->raw = raw;
        raw_ = raw;
        block_ = b;
        if constexpr (requires { Traits::came(*b); })
            Traits::came(*b);
    }

private:
    friend passkey;

    [[nodiscard]] status do_close() noexcept {
        if (block_ == nullptr)
            return {};
        const errno_guard guard;
        // Empty while C runs, so that a hook or callback that closes this owner again finds nothing.
        raw_type* raw = std::exchange(raw_, nullptr);
        block_type* b = std::exchange(block_, nullptr);
        // To 0 in one step: a get in another thread must not pin a CQ whose end has begun (try_retain).
        unsigned only_this = 1;
        if (!__atomic_compare_exchange_n(&b->count, &only_this, 0U, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            detail::release(b);
            return {};
        }
        const status result = end_object<Traits>(b);
        if (b != nullptr && result.value != EDEADLK) {
            __atomic_store_n(&b->count, 1U, __ATOMIC_RELEASE);
            raw_ = raw;
            block_ = b;
        }
        return result;
    }

    raw_type* raw_ = nullptr;
    block_type* block_ = nullptr;
};

// GCC warns users of an empty std::optional<owner>, as if that were destroyed (GCC bug 80635).
#if defined(__GNUC__) && !defined(__clang__)
#    pragma GCC diagnostic push
#    pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
template <class Traits>
owner<Traits>::~owner() {
    if (block_ == nullptr)
        return;
    const errno_guard guard;
    raw_ = nullptr;
    detail::release(std::exchange(block_, nullptr));
}
#if defined(__GNUC__) && !defined(__clang__)
#    pragma GCC diagnostic pop
#endif

/// What a child is made from: an owner, which is pinned, or a ref, which is not and must outlive the child.
template <class Raw>
class parent {
public:
    parent() noexcept = default;

    /// Pins the owner's object.
    template <class Traits>
        requires std::same_as<typename Traits::raw_type, Raw> parent(const owner<Traits>& from)
    noexcept // NOLINT(*-explicit-*): a parameter type
        : raw_(from.native_handle()), node_(passkey::block(from)), given_(true) {}

    /// Pins nothing.
    template <class Ref>
        requires std::derived_from<Ref, ref<Raw>> parent(const Ref& from)
    noexcept : raw_(from.native_handle()), given_(true) {} // NOLINT(*-explicit-*): a parameter type

    /// The C pointer; null when empty.
    [[nodiscard]] Raw* native_handle() const noexcept { return raw_; }
    /// What keeps it; of a ref, nothing.
    [[nodiscard]] keep pin() const noexcept { return keep(node_); }
    /// False when empty.
    [[nodiscard]] explicit operator bool() const noexcept { return raw_ != nullptr; }
    /// True for an owner or a ref that is empty. Where a parent may be left out, that is not the same: it was wanted.
    [[nodiscard]] bool given_empty() const noexcept { return given_ && raw_ == nullptr; }

private:
    Raw* raw_ = nullptr;
    node* node_ = nullptr;
    bool given_ = false;
};

} // namespace rdmaxx::inline v0::detail

//! @cond
/// Refs are hashed by their C pointer.
template <class Ref>
    requires std::derived_from<Ref, rdmaxx::detail::ref<typename Ref::raw_type>>
struct std::hash<Ref> {
    [[nodiscard]] std::size_t operator()(const Ref& handle) const noexcept {
        return std::hash<typename Ref::raw_type*>()(handle.native_handle());
    }
};
//! @endcond

#endif
