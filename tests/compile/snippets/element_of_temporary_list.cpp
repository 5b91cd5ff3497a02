// expect: deleted (member )?function
//
// The elements of a list are valid as long as the list.
#include <rdmaxx/cm/addrinfo.hpp>
#include <rdmaxx/cm/devices.hpp>

rdmaxx::address control() {
    const rdmaxx::devices devices;
    const rdmaxx::context_ref first = devices.front();
    const rdmaxx::addrinfo info("localhost", "7471");
    return first ? info.front().destination() : rdmaxx::address();
}

#ifdef MUST_NOT_COMPILE
void f() {
    rdmaxx::context_ref device = rdmaxx::devices().front();                       // bad
    rdmaxx::addrinfo_entry entry = rdmaxx::addrinfo("localhost", "7471").front(); // bad
}
#endif
