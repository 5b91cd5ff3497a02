// A stand-in for FreeBSD's <netinet/if_ether.h>, which has members of types that it does not include: u_char and struct
// in_addr.
#ifndef RDMAXX_MATRIX_FREEBSD_IF_ETHER_H
#define RDMAXX_MATRIX_FREEBSD_IF_ETHER_H

#if !defined(_SYS_TYPES_H) || !defined(_NETINET_IN_H)
#    error "on FreeBSD this needs <sys/types.h> and <netinet/in.h> before it"
#endif

#endif
