// Included before everything else: the rest of the system, as far as it is unlike FreeBSD.
#include <cerrno>
#include <fcntl.h>
#include <sys/socket.h>

#undef AF_IB
#undef PF_IB

// FreeBSD has none of these.
#undef EBADE
#undef EBADFD
#undef EBADR
#undef EBADRQC
#undef EBADSLT
#undef ECHRNG
#undef ECOMM
#undef EISNAM
#undef EL2HLT
#undef EL2NSYNC
#undef EL3HLT
#undef EL3RST
#undef ELIBACC
#undef ELNRNG
#undef ENODATA
#undef ENONET
#undef ENOSR
#undef ENOSTR
#undef ENOTUNIQ
#undef EREMCHG
#undef EREMOTEIO
#undef ERESTART
#undef ESTRPIPE
#undef ETIME
#undef EUNATCH
#undef EXFULL
#undef O_TMPFILE
