// expect: deleted (member )?function
//
// Devices are valid as long as the list they come from.
#include <rdmaxx/verbs/context.hpp>

rdmaxx::context control() {
    const rdmaxx::device_list devices;
    const rdmaxx::device_ref first = devices.empty() ? rdmaxx::device_ref() : devices.front();
    return rdmaxx::context(first ? first : devices.find("rxe0"));
}

#ifdef MUST_NOT_COMPILE
void f() {
    rdmaxx::device_ref first = rdmaxx::device_list().front();      // bad
    rdmaxx::device_ref named = rdmaxx::device_list().find("rxe0"); // bad
}
#endif
