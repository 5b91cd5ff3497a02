// Lists that C hands out as an array of pointers with a null at its end: ibv_get_device_list, rdma_get_devices.
#ifndef RDMAXX_DETAIL_POINTER_LIST_HPP
#define RDMAXX_DETAIL_POINTER_LIST_HPP

#include <rdmaxx/detail/handle.hpp>

#include <cstddef>
#include <utility>

namespace rdmaxx::inline v0::detail {

/// A range of Ref over the array that it owns. Its elements are valid as long as it is; an empty owner is an empty
/// range.
template <class Traits, class Ref>
class pointer_list : public owner<Traits> {
    using element = typename Traits::raw_type; // a pointer

public:
    using owner<Traits>::owner;

    class iterator {
    public:
        using value_type = Ref;
        using difference_type = std::ptrdiff_t;

        iterator() noexcept = default;
        explicit iterator(element* at) noexcept : at_(at) {}
        [[nodiscard]] Ref operator*() const noexcept { return Ref(*at_); }
        iterator& operator++() noexcept {
            ++at_;
            return *this;
        }
        iterator operator++(int) noexcept { return iterator(std::exchange(at_, at_ + 1)); }
        friend bool operator==(const iterator&, const iterator&) noexcept = default;

    private:
        element* at_ = nullptr;
    };

    [[nodiscard]] std::size_t size() const noexcept {
        std::size_t count = 0;
        if (this->native_handle() != nullptr)
            while (this->native_handle()[count] != nullptr)
                ++count;
        return count;
    }
    [[nodiscard]] bool empty() const noexcept { return size() == 0; }

    [[nodiscard]] iterator begin() const noexcept RDMAXX_LIFETIMEBOUND { return iterator(this->native_handle()); }
    [[nodiscard]] iterator end() const noexcept RDMAXX_LIFETIMEBOUND {
        return iterator(this->native_handle() + size());
    }

    /// The first element; the list must not be empty.
    [[nodiscard]] Ref front() const& noexcept RDMAXX_LIFETIMEBOUND { return *begin(); }
    Ref front() const&& = delete; // its elements end with the list
    /// One element, from 0 to below size().
    [[nodiscard]] Ref operator[](std::size_t index) const& noexcept RDMAXX_LIFETIMEBOUND {
        return Ref(this->native_handle()[index]);
    }
    Ref operator[](std::size_t index) const&& = delete; // its elements end with the list
};

} // namespace rdmaxx::inline v0::detail

#endif
