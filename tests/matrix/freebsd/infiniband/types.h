// Stand-in: FreeBSD's has the kernel's short integer names in the global namespace.
#ifndef RDMAXX_MATRIX_FREEBSD_TYPES_H
#define RDMAXX_MATRIX_FREEBSD_TYPES_H

#include <stdint.h>

typedef uint8_t u8, __u8;
typedef uint16_t u16, __u16, __le16, __be16;
typedef uint32_t u32, __u32, __le32, __be32;
typedef uint64_t u64, __u64, __le64, __be64;
typedef int8_t s8, __s8;
typedef int16_t s16, __s16;
typedef int32_t s32, __s32;
typedef int64_t s64, __s64;

#endif
