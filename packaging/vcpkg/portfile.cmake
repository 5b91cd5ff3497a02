# OWNER and SHA512 0 are placeholders: vcpkg prints the right sum when it has downloaded the release.
vcpkg_from_github(
    OUT_SOURCE_PATH SOURCE_PATH
    REPO OWNER/rdmaxx
    REF "v${VERSION}"
    SHA512 0
    HEAD_REF main
)

set(VCPKG_BUILD_TYPE release) # header-only

vcpkg_configure_meson(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -Dtests=disabled
        -Dexamples=disabled
)
vcpkg_install_meson()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/rdmaxx)
file(MAKE_DIRECTORY "${CURRENT_PACKAGES_DIR}/lib")
file(RENAME "${CURRENT_PACKAGES_DIR}/share/pkgconfig" "${CURRENT_PACKAGES_DIR}/lib/pkgconfig")
vcpkg_fixup_pkgconfig()

file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
