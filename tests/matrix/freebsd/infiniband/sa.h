// Stand-in: what FreeBSD's rdma_cma.h takes from here.
#ifndef RDMAXX_MATRIX_FREEBSD_SA_H
#define RDMAXX_MATRIX_FREEBSD_SA_H

#include <infiniband/verbs.h>

struct ibv_sa_path_rec {
    union ibv_gid dgid, sgid;
    __be16 dlid, slid;
    int raw_traffic;
    __be32 flow_label;
    uint8_t hop_limit, traffic_class;
    int reversible;
    uint8_t numb_path;
    __be16 pkey;
    uint8_t sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector, packet_life_time, preference;
};

struct ibv_path_record {
    __be64 service_id;
    union ibv_gid dgid, sgid;
    __be16 dlid, slid;
    __be32 flowlabel_hoplimit;
    uint8_t tclass, reversible_numpath;
    __be16 pkey, qosclass_sl;
    uint8_t mtu, rate, packetlifetime, preference, reserved[6];
};

struct ibv_path_data {
    uint32_t flags, reserved;
    struct ibv_path_record path;
};

#define IBV_PATH_RECORD_REVERSIBLE 0x80
#define IBV_PATH_FLAG_GMP 0x1
#define IBV_PATH_FLAG_PRIMARY 0x2
#define IBV_PATH_FLAG_ALTERNATE 0x4
#define IBV_PATH_FLAG_OUTBOUND 0x8
#define IBV_PATH_FLAG_INBOUND 0x10
#define IBV_PATH_FLAG_INBOUND_REVERSE 0x20
#define IBV_PATH_FLAG_BIDIRECTIONAL 0x30

#endif
