# The target rdmaxx::rdma-core: librdmacm and libibverbs, as pkg-config finds them. It does not exist afterwards if they
# are not there.
#
# Before find_package or add_subdirectory may be set:
#   rdmaxx_USE_STATIC_LIBS   ON: link the archives of rdma-core. Also done where it has nothing but archives (vcpkg).
#   rdmaxx_STATIC_PROVIDERS  whose devices a program so linked finds: names of rdma-core's providers (rxe;mlx5), or all,
#                            the default. libibverbs does not load providers at run time if it is linked statically.

if(TARGET rdmaxx::rdma-core)
    return()
endif()

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
    pkg_check_modules(rdmaxx_rdma_core QUIET IMPORTED_TARGET librdmacm>=1.3.39 libibverbs>=1.14.39)
endif()
if(NOT PkgConfig_FOUND OR NOT rdmaxx_rdma_core_FOUND)
    set(rdmaxx_NOT_FOUND_MESSAGE "rdmaxx needs pkg-config, and librdmacm >= 1.3.39 and libibverbs >= 1.14.39 \
(rdma-core 39): `pkg-config --print-errors --exists librdmacm libibverbs` says what is missing")
    return()
endif()

add_library(rdmaxx::rdma-core INTERFACE IMPORTED)

if(NOT rdmaxx_USE_STATIC_LIBS AND NOT rdmaxx_rdma_core_LINK_LIBRARIES MATCHES "libibverbs\\.a")
    set_target_properties(rdmaxx::rdma-core PROPERTIES INTERFACE_LINK_LIBRARIES PkgConfig::rdmaxx_rdma_core)
    return()
endif()

# The archives need each other in both directions, and CMake may reorder what it sees as several items: one item.
if(NOT rdmaxx_STATIC_PROVIDERS)
    set(rdmaxx_STATIC_PROVIDERS all)
endif()
set(rdmaxx_static_link "-Wl")
foreach(rdmaxx_item IN LISTS rdmaxx_STATIC_PROVIDERS)
    # A provider is linked, and announces itself to libibverbs, if anything refers to its name.
    string(APPEND rdmaxx_static_link ",--require-defined=verbs_provider_${rdmaxx_item}")
endforeach()
string(APPEND rdmaxx_static_link ",--start-group")
set(rdmaxx_other_libraries)
list(REMOVE_DUPLICATES rdmaxx_rdma_core_STATIC_LIBRARIES)
foreach(rdmaxx_item IN LISTS rdmaxx_rdma_core_STATIC_LIBRARIES)
    set(rdmaxx_archive "")
    if(NOT rdmaxx_item MATCHES "^(c|dl|m|pthread|rt)$") # an archive of a part of libc does not go with a shared libc
        find_library(rdmaxx_archive_${rdmaxx_item} lib${rdmaxx_item}.a HINTS ${rdmaxx_rdma_core_STATIC_LIBRARY_DIRS})
        mark_as_advanced(rdmaxx_archive_${rdmaxx_item})
        set(rdmaxx_archive "${rdmaxx_archive_${rdmaxx_item}}")
    endif()
    if(rdmaxx_archive)
        string(APPEND rdmaxx_static_link ",${rdmaxx_archive}")
    else()
        list(APPEND rdmaxx_other_libraries ${rdmaxx_item})
    endif()
endforeach()
set_target_properties(rdmaxx::rdma-core PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${rdmaxx_rdma_core_STATIC_INCLUDE_DIRS}"
    INTERFACE_LINK_LIBRARIES "${rdmaxx_static_link},--end-group;${rdmaxx_other_libraries}"
)
