// The librdmacm half of the library, with what it needs of the other.
#ifndef RDMAXX_CM_HPP
#define RDMAXX_CM_HPP

#include <rdmaxx/address.hpp>          // IWYU pragma: export
#include <rdmaxx/cm/addrinfo.hpp>      // IWYU pragma: export
#include <rdmaxx/cm/cm_event.hpp>      // IWYU pragma: export
#include <rdmaxx/cm/cm_id.hpp>         // IWYU pragma: export
#include <rdmaxx/cm/conn_param.hpp>    // IWYU pragma: export
#include <rdmaxx/cm/devices.hpp>       // IWYU pragma: export
#include <rdmaxx/cm/event_channel.hpp> // IWYU pragma: export
#include <rdmaxx/cm/event_type.hpp>    // IWYU pragma: export
#include <rdmaxx/cm/multicast.hpp>     // IWYU pragma: export
#include <rdmaxx/cm/sync_id.hpp>       // IWYU pragma: export
#include <rdmaxx/error.hpp>            // IWYU pragma: export
#include <rdmaxx/version.hpp>          // IWYU pragma: export

#endif
