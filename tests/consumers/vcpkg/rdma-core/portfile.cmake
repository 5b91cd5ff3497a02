# Stands for vcpkg's port rdma-core in a static triplet: the system's headers, archives and .pc files, and no shared
# libraries.
set(VCPKG_BUILD_TYPE release)
execute_process(COMMAND pkg-config --variable=libdir libibverbs
    OUTPUT_VARIABLE libdir OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND pkg-config --variable=includedir libibverbs
    OUTPUT_VARIABLE includedir OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

file(INSTALL "${includedir}/infiniband" "${includedir}/rdma" DESTINATION "${CURRENT_PACKAGES_DIR}/include"
    FILES_MATCHING PATTERN "*.h")
foreach(name IN ITEMS rdmacm ibverbs mlx4 mlx5 efa mana hns "*-rdmav[0-9]*")
    file(GLOB archive "${libdir}/lib${name}.a")
    file(INSTALL ${archive} DESTINATION "${CURRENT_PACKAGES_DIR}/lib")
endforeach()
foreach(name IN ITEMS librdmacm libibverbs)
    file(READ "${libdir}/pkgconfig/${name}.pc" text)
    string(REGEX REPLACE "(^|\n)libdir=[^\n]*" "\\1libdir=\${prefix}/lib" text "${text}")
    string(REGEX REPLACE "(^|\n)includedir=[^\n]*" "\\1includedir=\${prefix}/include" text "${text}")
    file(WRITE "${CURRENT_PACKAGES_DIR}/lib/pkgconfig/${name}.pc" "${text}")
endforeach()
vcpkg_fixup_pkgconfig()
