// The texts and rates of both libraries, word for word.
#include "internal.hpp"

const char* rdma_event_str(rdma_cm_event_type event) {
    // Versions differ in the enumerators they know; here the common ones, as most versions have it.
    switch (fake::detail::load_enum(event)) {
#define FAKE_TEXT(e)                                                                                                   \
    case e: return #e
        FAKE_TEXT(RDMA_CM_EVENT_ADDR_RESOLVED);
        FAKE_TEXT(RDMA_CM_EVENT_ADDR_ERROR);
        FAKE_TEXT(RDMA_CM_EVENT_ROUTE_RESOLVED);
        FAKE_TEXT(RDMA_CM_EVENT_ROUTE_ERROR);
        FAKE_TEXT(RDMA_CM_EVENT_CONNECT_REQUEST);
        FAKE_TEXT(RDMA_CM_EVENT_CONNECT_RESPONSE);
        FAKE_TEXT(RDMA_CM_EVENT_CONNECT_ERROR);
        FAKE_TEXT(RDMA_CM_EVENT_UNREACHABLE);
        FAKE_TEXT(RDMA_CM_EVENT_REJECTED);
        FAKE_TEXT(RDMA_CM_EVENT_ESTABLISHED);
        FAKE_TEXT(RDMA_CM_EVENT_DISCONNECTED);
        FAKE_TEXT(RDMA_CM_EVENT_DEVICE_REMOVAL);
        FAKE_TEXT(RDMA_CM_EVENT_MULTICAST_JOIN);
        FAKE_TEXT(RDMA_CM_EVENT_MULTICAST_ERROR);
        FAKE_TEXT(RDMA_CM_EVENT_ADDR_CHANGE);
        FAKE_TEXT(RDMA_CM_EVENT_TIMEWAIT_EXIT);
#undef FAKE_TEXT
    default: return "UNKNOWN EVENT";
    }
}

namespace {

template <std::size_t N>
const char* text_of(const char* const (&texts)[N], int value, int first = 0) {
    const int index = value - first;
    return index < 0 || static_cast<std::size_t>(index) >= N ? "unknown" : texts[index];
}

} // namespace

const char* ibv_node_type_str(ibv_node_type type) {
    static constexpr const char* texts[] = {"InfiniBand channel adapter",
                                            "InfiniBand switch",
                                            "InfiniBand router",
                                            "iWARP NIC",
                                            "usNIC",
                                            "usNIC UDP",
                                            "unspecified"};
    return text_of(texts, fake::detail::load_enum(type), IBV_NODE_CA);
}

const char* ibv_port_state_str(ibv_port_state state) {
    static constexpr const char* texts[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
    return text_of(texts, fake::detail::load_enum(state));
}

const char* ibv_event_type_str(ibv_event_type event) {
    static constexpr const char* texts[] = {"CQ error",
                                            "local work queue catastrophic error",
                                            "invalid request local work queue error",
                                            "local access violation work queue error",
                                            "communication established",
                                            "send queue drained",
                                            "path migrated",
                                            "path migration request error",
                                            "local catastrophic error",
                                            "port active",
                                            "port error",
                                            "LID change",
                                            "P_Key change",
                                            "SM change",
                                            "SRQ catastrophic error",
                                            "SRQ limit reached",
                                            "last WQE reached",
                                            "client reregistration",
                                            "GID table change",
                                            "WQ fatal"};
    return text_of(texts, fake::detail::load_enum(event));
}

const char* ibv_wc_status_str(ibv_wc_status status) {
    static constexpr const char* texts[] = {"success",
                                            "local length error",
                                            "local QP operation error",
                                            "local EE context operation error",
                                            "local protection error",
                                            "Work Request Flushed Error",
                                            "memory management operation error",
                                            "bad response error",
                                            "local access error",
                                            "remote invalid request error",
                                            "remote access error",
                                            "remote operation error",
                                            "transport retry counter exceeded",
                                            "RNR retry counter exceeded",
                                            "local RDD violation error",
                                            "remote invalid RD request",
                                            "aborted error",
                                            "invalid EE context number",
                                            "invalid EE context state",
                                            "fatal error",
                                            "response timeout error",
                                            "general error",
                                            "TM error",
                                            "TM software rendezvous"};
    return text_of(texts, fake::detail::load_enum(status));
}

// ---------------------------------------------------------------- rates

namespace {

struct rate_row {
    ibv_rate rate;
    int mult; // of 2.5 Gbit/s; 0: none
    int mbps;
};

constexpr rate_row rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},         {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},     {IBV_RATE_30_GBPS, 12, 30000},      {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},      {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, 0, 14062},     {IBV_RATE_56_GBPS, 0, 56250},       {IBV_RATE_112_GBPS, 0, 112500},
    {IBV_RATE_168_GBPS, 0, 168750},   {IBV_RATE_25_GBPS, 10, 25781},      {IBV_RATE_100_GBPS, 40, 103125},
    {IBV_RATE_200_GBPS, 80, 206250},  {IBV_RATE_300_GBPS, 120, 309375},   {IBV_RATE_28_GBPS, 0, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},    {IBV_RATE_400_GBPS, 160, 425000},   {IBV_RATE_600_GBPS, 240, 637500},
    {IBV_RATE_800_GBPS, 320, 850000}, {IBV_RATE_1200_GBPS, 480, 1275000},
};

} // namespace

int ibv_rate_to_mult(ibv_rate rate) {
    for (const rate_row& row : rates)
        if (row.rate == rate && row.mult > 0)
            return row.mult;
    return -1;
}

ibv_rate mult_to_ibv_rate(int mult) {
    for (const rate_row& row : rates)
        if (row.mult == mult && mult > 0)
            return row.rate;
    return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate rate) {
    for (const rate_row& row : rates)
        if (row.rate == rate)
            return row.mbps;
    return -1;
}

ibv_rate mbps_to_ibv_rate(int mbps) {
    for (const rate_row& row : rates)
        if (row.mbps == mbps)
            return row.rate;
    return IBV_RATE_MAX;
}
