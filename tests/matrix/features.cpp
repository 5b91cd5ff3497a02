// What RDMAXX_HAS_... says of the C headers here is what the matrix knows of them.
#include <rdmaxx/rdmaxx.hpp>

static_assert(RDMAXX_HAS_LINUX_VERBS == EXPECTED_LINUX_VERBS);
static_assert(RDMAXX_HAS_ESTABLISH == EXPECTED_ESTABLISH);
static_assert(RDMAXX_HAS_RESOLVE_ADDRINFO == EXPECTED_RESOLVE_ADDRINFO);

// What a version lacks is not there to call.
template <class Id>
concept can_establish = requires(const Id& id) {
    id.establish();
};
static_assert(can_establish<rdmaxx::cm_id> == (EXPECTED_ESTABLISH == 1));
