// Addresses: text in and out.
#include "test.hpp"

#include <cstring>
#include <unordered_set>

#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

using namespace rdmaxx;
using namespace unit;

namespace {

struct good_text {
    std::string text;
    int family;
    std::uint16_t port;
    std::uint32_t scope;
    std::string printed;
};

std::vector<good_text> good_texts() {
    std::vector<good_text> texts = {
        {"192.0.2.9", AF_INET, 0, 0, "192.0.2.9"},
        {"192.0.2.9:7471", AF_INET, 7471, 0, "192.0.2.9:7471"},
        {"192.0.2.9:0", AF_INET, 0, 0, "192.0.2.9"},
        {"192.0.2.9:00080", AF_INET, 80, 0, "192.0.2.9:80"},
        {"0.0.0.0:65535", AF_INET, 65535, 0, "0.0.0.0:65535"},
        {"255.255.255.255:1", AF_INET, 1, 0, "255.255.255.255:1"},
        {"::", AF_INET6, 0, 0, "::"},
        {"::1", AF_INET6, 0, 0, "::1"},
        {"[::1]", AF_INET6, 0, 0, "::1"},
        {"[::1]:7471", AF_INET6, 7471, 0, "[::1]:7471"},
        {"[::]:0", AF_INET6, 0, 0, "::"},
        {"2001:DB8:0:0:0:0:0:1", AF_INET6, 0, 0, "2001:db8::1"},
        {"[2001:db8::1]:65535", AF_INET6, 65535, 0, "[2001:db8::1]:65535"},
        {"::ffff:192.0.2.9", AF_INET6, 0, 0, "::ffff:192.0.2.9"},
        {"2001:db8:1111:2222:3333:4444:5555:6666", AF_INET6, 0, 0, "2001:db8:1111:2222:3333:4444:5555:6666"},
        {"ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255", AF_INET6, 0, 0, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
        {"fe80::1%99999", AF_INET6, 0, 99999, "fe80::1%99999"},
        {"[fe80::1%99999]:7471", AF_INET6, 7471, 99999, "[fe80::1%99999]:7471"},
        {"fe80::1%4294967295", AF_INET6, 0, 4294967295U, "fe80::1%4294967295"},
        {"fe80::1%lo", AF_INET6, 0, ::if_nametoindex("lo"), "fe80::1%lo"},
        {"[fe80::1%lo]:5", AF_INET6, 5, ::if_nametoindex("lo"), "[fe80::1%lo]:5"},
    };
#if RDMAXX_HAS_AF_IB
    texts.push_back({"ib[fe80::1]", AF_IB, 0, 0, "ib[fe80::1]"});
    texts.push_back({"ib[fe80::1]:0x1061d2f", AF_IB, 0, 0, "ib[fe80::1]:0x1061d2f"});
    texts.push_back({"ib[::]:0xFFFFffffFFFFffff", AF_IB, 0, 0, "ib[::]:0xffffffffffffffff"});
    texts.push_back({"ib[fe80::1]:0x0", AF_IB, 0, 0, "ib[fe80::1]"});
#endif
    return texts;
}

std::vector<std::string> bad_texts() {
    std::vector<std::string> texts = {
        "",
        " ",
        ":",
        ":7471",
        "localhost",
        "localhost:7471",
        "192.0.2",
        "192.0.2.256",
        "192.0.2.9.1",
        "192.0.2.09x",
        " 192.0.2.9",
        "192.0.2.9 ",
        "192.0.2.9:",
        "192.0.2.9:65536",
        "192.0.2.9:99999999999999999999999",
        "192.0.2.9:-1",
        "192.0.2.9:+1",
        "192.0.2.9: 1",
        "192.0.2.9:1 ",
        "192.0.2.9:0x50",
        "192.0.2.9:http",
        "192.0.2.9:1:2",
        "192.0.2.9%lo",
        "[192.0.2.9]",
        "[192.0.2.9]:1",
        "[",
        "[]",
        "[]:1",
        "[::1",
        "::1]",
        "[::1]1",
        "[::1]:",
        "[::1]:65536",
        "[::1] :1",
        "[::1]x:1",
        "[[::1]]:1",
        "1::2::3",
        "12345::",
        ":::",
        "2001:db8",
        "fe80::1%",
        "fe80::1%no-such-interface",
        "fe80::1%0",
        "fe80::1%4294967296",
        "fe80::1%lo%lo",
        "fe80::1%a-very-long-interface-name-indeed",
        "[fe80::1]%lo:1",
        std::string("192.0.2.9\0", 10),
        std::string("192.0.2.9\0.1:1", 14),
        std::string("192.0.2.9:1\0", 12),
        std::string("[::1]:1\0", 8),
        std::string("fe80::1%lo\0", 11),
        std::string(100, '1'),
        std::string(100'000, ':'),
        "[" + std::string(100'000, 'f') + "]:1",
        "192.0.2.9:" + std::string(100'000, '1'),
    };
#if RDMAXX_HAS_AF_IB
    for (const char* text :
         {"ib[", "ib[]", "ib[fe80::1", "ib[192.0.2.9]", "ib[fe80::1]:", "ib[fe80::1]:0x", "ib[fe80::1]:7471",
          "ib[fe80::1]:0xg", "ib[fe80::1]:0x10000000000000000", "ib[fe80::1]x", "IB[fe80::1]"})
        texts.emplace_back(text);
#endif
    return texts;
}

} // namespace

TEST_CASE_METHOD(unit::test, "address: parses and prints", "[address]") {
    for (const good_text& row : good_texts()) {
        CAPTURE(row.text);
        std::error_code ec = std::make_error_code(std::errc::io_error);
        const address parsed = address::parse(row.text, ec);
        CHECK(!ec);
        CHECK(parsed);
        CHECK(parsed.family() == row.family);
        CHECK(parsed.port() == row.port);
        CHECK(parsed.scope_id() == row.scope);
        CHECK(parsed.to_string() == row.printed);
        CHECK(address::parse(row.text) == parsed);
        CHECK(address::parse(row.printed) == parsed);
        CHECK(address(parsed.data()) == parsed);
        CHECK(parsed.size() != 0);
    }
}

TEST_CASE_METHOD(unit::test, "address: text that is none is EINVAL, and says so", "[address]") {
    for (const std::string& text : bad_texts()) {
        CAPTURE(text.substr(0, 60));
        std::error_code ec;
        const address none = address::parse(text, ec);
        CHECK(number(ec) == EINVAL);
        CHECK_FALSE(none);
        CHECK(none.to_string() == "");
        const caught refused([&] { static_cast<void>(address::parse(text)); });
        CHECK(refused.code == EINVAL);
        CHECK(refused.call == "address");
        CHECK_FALSE(refused.cause.empty());
        CHECK(contains(refused.what, "\"" + text.substr(0, std::min<std::size_t>(text.find('\0'), 80))));
        CHECK(refused.what.size() < 300);
    }
}

TEST_CASE_METHOD(unit::test, "address: parsing leaves nothing of an earlier form behind", "[address]") {
    std::error_code ec;
    address a = address::parse("[2001:db8::1%99999]:7471", ec);
    a = address::parse("192.0.2.9", ec);
    CHECK(a.port() == 0);
    CHECK(a.scope_id() == 0);
    CHECK(a == address("192.0.2.9", 0));
}

TEST_CASE_METHOD(unit::test, "address: from a host and a port", "[address]") {
    CHECK(address("192.0.2.9", 7471).to_string() == "192.0.2.9:7471");
    CHECK(address("2001:db8::1", 7471).to_string() == "[2001:db8::1]:7471");
    CHECK(address("fe80::1%99999", 1).scope_id() == 99999);
    const caught refused([] { const address a("192.0.2.9:1", 1); });
    CHECK(refused.code == EINVAL);
    CHECK(contains(refused.what, "\"192.0.2.9:1\""));
    CHECK(caught([] { const address a("[::1]", 1); }).code == EINVAL);
    CHECK(caught([] { const address a("", 1); }).code == EINVAL);
}

TEST_CASE_METHOD(unit::test, "address: ports in host byte order, to be changed", "[address]") {
    address a = address::any_ipv4(0x1234);
    CHECK(a.port() == 0x1234);
    CHECK(a.to_string() == "0.0.0.0:4660");
    const auto* in = reinterpret_cast<const sockaddr_in*>(a.data());
    CHECK(in->sin_port == htons(0x1234));
    a.set_port(1);
    CHECK(a.port() == 1);
    CHECK(a.with_port(2).port() == 2);
    CHECK(a.port() == 1);
    CHECK(address::any_ipv6().to_string() == "::");
    CHECK(address::any_ipv6(5).to_string() == "[::]:5");
    CHECK(address::any_ipv6() != address::any_ipv4());
    address none;
    none.set_port(5);
    CHECK(none.port() == 0);
    CHECK_FALSE(none);
}

TEST_CASE_METHOD(unit::test, "address: equal are those with the same family, address, port and scope", "[address]") {
    const address a("192.0.2.9", 1);
    CHECK(a == address("192.0.2.9", 1));
    CHECK(a != address("192.0.2.9", 2));
    CHECK(a != address("192.0.2.8", 1));
    CHECK(a != address("::ffff:192.0.2.9", 1));
    CHECK(address("fe80::1%99999", 1) != address("fe80::1%99998", 1));
    CHECK(address("fe80::1", 1) == address("fe80:0::1", 1));
    CHECK(address() == address());
    CHECK(address() != a);
    sockaddr_in padded{};
    std::memcpy(&padded, a.data(), sizeof padded);
    std::memset(padded.sin_zero, 0xA5, sizeof padded.sin_zero);
    CHECK(address(reinterpret_cast<const sockaddr*>(&padded)) == a);
    sockaddr_in6 flow{};
    const address v6("2001:db8::1", 1);
    std::memcpy(&flow, v6.data(), sizeof flow);
    flow.sin6_flowinfo = htonl(5);
    CHECK(address(reinterpret_cast<const sockaddr*>(&flow)) == v6);
    CHECK(std::hash<address>()(address(reinterpret_cast<const sockaddr*>(&flow))) == std::hash<address>()(v6));
#if RDMAXX_HAS_AF_IB
    CHECK(address::parse("ib[fe80::1]:0x1") != address::parse("ib[fe80::1]:0x2"));
    CHECK(address::parse("ib[fe80::1]:0x1") != address::parse("ib[fe80::2]:0x1"));
    CHECK(address::parse("ib[fe80::1]") != address::parse("fe80::1"));
#endif
}

TEST_CASE_METHOD(unit::test, "address: of a sockaddr with its length", "[address]") {
    for (const char* text : {"192.0.2.9:7471", "[fe80::1]:7471"}) {
        CAPTURE(text);
        const address whole = address::parse(text);
        CHECK(address(whole.data(), whole.size()) == whole);
        CHECK(address(whole.data(), sizeof(sockaddr_storage)) == whole);
        CHECK_FALSE(address(whole.data(), whole.size() - 1));
        CHECK_FALSE(address(whole.data(), 0));
    }
    CHECK_FALSE(address(nullptr, sizeof(sockaddr_in)));
}

TEST_CASE_METHOD(unit::test, "address: hashes what is compared", "[address]") {
    std::unordered_set<address> set;
    for (const char* text : {
             "192.0.2.9", "192.0.2.9:7471", "192.0.2.8:7471", "fe80::1", "[fe80::1]:7471", "fe80::1%lo", "fe80::2",
#if RDMAXX_HAS_AF_IB
                 "ib[fe80::1]", "ib[fe80::1]:0x1061d2f", "ib[fe80::2]:0x1061d2f"
#endif
         }) {
        CAPTURE(text);
        const address one = address::parse(text);
        CHECK(set.insert(one).second);
        CHECK_FALSE(set.insert(address::parse(text)).second);
        CHECK(std::hash<address>()(one) != std::hash<address>()(address()));
    }
    CHECK(set.insert(address()).second);
}

TEST_CASE_METHOD(unit::test, "address: of a null pointer or an unknown family is empty", "[address]") {
    CHECK_FALSE(address(nullptr));
    sockaddr_un path{};
    path.sun_family = AF_UNIX;
    std::strcpy(path.sun_path, "/tmp/socket");
    const address a(reinterpret_cast<const sockaddr*>(&path));
    CHECK_FALSE(a);
    CHECK(a.family() == AF_UNSPEC);
    CHECK(a.size() == 0);
    CHECK(a.port() == 0);
    CHECK(a.to_string() == "");
    sockaddr unset{};
    CHECK_FALSE(address(&unset));
}
