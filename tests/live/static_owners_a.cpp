#include "static_owners.hpp"

#include <cstdio>

namespace live {

rdmaxx::event_channel static_channel(nullptr);
rdmaxx::cm_id static_listener;
rdmaxx::context static_context;

namespace {

const role ends_after_main("ends_after_main", []() {
    static_channel = rdmaxx::event_channel();
    static_listener = rdmaxx::cm_id(static_channel);
    static_listener.bind_addr(ipv4());
    static_listener.listen();
    static_context = rdmaxx::context(static_listener);
    connect_static_owners();
    std::printf("leaving main ");
    return 0;
});

} // namespace
} // namespace live

TEST_CASE_METHOD(live::fixture, "static owners in two translation units end with exit status 0", "[teardown][asan]") {
    live::process p(live::ends_after_main);
    CHECK(p.rest() == "leaving main [exit status 0]");
}
