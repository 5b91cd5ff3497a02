// Typed bit sets: an enum class with the C values, and operators for those that ask for them.
#ifndef RDMAXX_DETAIL_FLAGS_HPP
#define RDMAXX_DETAIL_FLAGS_HPP

#include <rdmaxx/detail/config.hpp>

#include <type_traits>

namespace rdmaxx::inline v0 {
namespace detail {

/// Specialised for the enums that are bit sets.
template <class Enum>
inline constexpr bool is_flags = false;

template <class Enum>
concept flags = is_flags<Enum>;

template <flags Enum>
[[nodiscard]] constexpr auto bits(Enum value) noexcept {
    return static_cast<std::underlying_type_t<Enum>>(value);
}

} // namespace detail

template <detail::flags Enum>
[[nodiscard]] constexpr Enum operator|(Enum a, Enum b) noexcept {
    return static_cast<Enum>(detail::bits(a) | detail::bits(b));
}
template <detail::flags Enum>
[[nodiscard]] constexpr Enum operator&(Enum a, Enum b) noexcept {
    return static_cast<Enum>(detail::bits(a) & detail::bits(b));
}
template <detail::flags Enum>
[[nodiscard]] constexpr Enum operator~(Enum a) noexcept {
    return static_cast<Enum>(~detail::bits(a));
}
template <detail::flags Enum>
constexpr Enum& operator|=(Enum& a, Enum b) noexcept {
    return a = a | b;
}
template <detail::flags Enum>
constexpr Enum& operator&=(Enum& a, Enum b) noexcept {
    return a = a & b;
}

/// True if any bit of `wanted` is set in `set`.
template <detail::flags Enum>
[[nodiscard]] constexpr bool has(Enum set, Enum wanted) noexcept {
    return detail::bits(set & wanted) != 0;
}

} // namespace rdmaxx::inline v0

#endif
