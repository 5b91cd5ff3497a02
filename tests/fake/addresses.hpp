// Socket addresses as the connection manager compares and prints them.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <infiniband/ib.h>

namespace fake::detail {

inline std::size_t length_of(const sockaddr* address) {
    if (address == nullptr)
        return 0;
    switch (address->sa_family) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    case AF_IB: return sizeof(sockaddr_ib);
    default: return 0;
    }
}

inline sockaddr_storage stored(const sockaddr* address) {
    sockaddr_storage copy = {};
    std::memcpy(&copy, address, length_of(address));
    return copy;
}

inline in_port_t* port_in(sockaddr_storage& address) {
    if (address.ss_family == AF_INET)
        return &reinterpret_cast<sockaddr_in&>(address).sin_port;
    if (address.ss_family == AF_INET6)
        return &reinterpret_cast<sockaddr_in6&>(address).sin6_port;
    return nullptr;
}

inline in_port_t port_of(sockaddr_storage address) {
    const in_port_t* port = port_in(address);
    return port == nullptr ? in_port_t{0} : *port;
}

inline std::string host_of(const sockaddr_storage& address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address.ss_family == AF_INET)
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
    else if (address.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text, sizeof text);
    return text;
}

inline std::string text_of(const sockaddr_storage& address) {
    const std::string host = host_of(address);
    const std::string port = std::to_string(ntohs(port_of(address)));
    return address.ss_family == AF_INET6 ? "[" + host + "]:" + port : host + ":" + port;
}

inline bool is_wildcard(const sockaddr_storage& address) {
    const std::string host = host_of(address);
    return host == "0.0.0.0" || host == "::";
}

inline bool is_unset(const sockaddr_storage& address) {
    return address.ss_family == AF_UNSPEC;
}

} // namespace fake::detail
