// What names a registration: two kinds of key, which C has as plain numbers.
#ifndef RDMAXX_VERBS_KEYS_HPP
#define RDMAXX_VERBS_KEYS_HPP

#include <cstdint>

namespace rdmaxx::inline v0 {

/// Names a registration in local requests: struct ibv_sge's lkey. No number, and no rkey, becomes one by itself:
/// `lkey{7}`; value() gives the number.
enum class lkey : std::uint32_t {};

/// Names a registration, or a window, in a peer's requests.
enum class rkey : std::uint32_t {};

[[nodiscard]] constexpr std::uint32_t value(lkey key) noexcept {
    return static_cast<std::uint32_t>(key);
}
[[nodiscard]] constexpr std::uint32_t value(rkey key) noexcept {
    return static_cast<std::uint32_t>(key);
}

} // namespace rdmaxx::inline v0

#endif
