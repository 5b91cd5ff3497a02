// The libibverbs half of the library. Not in it, since few programs use them and every program would compile them:
// verbs/buf.hpp, comp_cntr.hpp, counters.hpp, dm.hpp, dmah.hpp, flow.hpp, iova_mr.hpp, memory_resource.hpp, stop.hpp,
// td.hpp.
#ifndef RDMAXX_VERBS_HPP
#define RDMAXX_VERBS_HPP

#include <rdmaxx/error.hpp>                   // IWYU pragma: export
#include <rdmaxx/verbs/ah.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/async_event.hpp>       // IWYU pragma: export
#include <rdmaxx/verbs/comp_channel.hpp>      // IWYU pragma: export
#include <rdmaxx/verbs/context.hpp>           // IWYU pragma: export
#include <rdmaxx/verbs/cq.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/cq_event.hpp>          // IWYU pragma: export
#include <rdmaxx/verbs/cq_ex.hpp>             // IWYU pragma: export
#include <rdmaxx/verbs/cq_room.hpp>           // IWYU pragma: export
#include <rdmaxx/verbs/datagram.hpp>          // IWYU pragma: export
#include <rdmaxx/verbs/device.hpp>            // IWYU pragma: export
#include <rdmaxx/verbs/device_attr.hpp>       // IWYU pragma: export
#include <rdmaxx/verbs/fork.hpp>              // IWYU pragma: export
#include <rdmaxx/verbs/gid.hpp>               // IWYU pragma: export
#include <rdmaxx/verbs/keys.hpp>              // IWYU pragma: export
#include <rdmaxx/verbs/mr.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/mw.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/pd.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/port.hpp>              // IWYU pragma: export
#include <rdmaxx/verbs/qp.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/qp_attr.hpp>           // IWYU pragma: export
#include <rdmaxx/verbs/qp_ex.hpp>             // IWYU pragma: export
#include <rdmaxx/verbs/queue_slots.hpp>       // IWYU pragma: export
#include <rdmaxx/verbs/registered_buffer.hpp> // IWYU pragma: export
#include <rdmaxx/verbs/srq.hpp>               // IWYU pragma: export
#include <rdmaxx/verbs/wc.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/wq.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/wr.hpp>                // IWYU pragma: export
#include <rdmaxx/verbs/wr_table.hpp>          // IWYU pragma: export
#include <rdmaxx/verbs/xrcd.hpp>              // IWYU pragma: export
#include <rdmaxx/version.hpp>                 // IWYU pragma: export

#endif
