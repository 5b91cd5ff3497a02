// expect-gcc: could not convert|conversion from|cannot convert
// expect-clang: no viable conversion|cannot initialize|no matching function
//
// The number of an rsocket is no file descriptor: neither becomes the other by itself.
#include <rdmaxx/cm/rsocket.hpp>

#include <sys/socket.h>

int control(rdmaxx::rsocket& socket) {
    const rdmaxx::rsocket adopted = rdmaxx::rsocket::adopt(3);
    return socket.native_handle() + adopted.native_handle();
}

#ifdef MUST_NOT_COMPILE
void f(rdmaxx::rsocket& socket) {
    rdmaxx::rsocket from_number = 3; // bad
    int number = socket;             // bad
    ::shutdown(socket, SHUT_RDWR);   // bad
    ::rclose(socket);                // bad
}
#endif
