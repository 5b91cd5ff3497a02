# What examples/run.sh and tests/run.sh share: packages, and talking about steps. Sourced.
# shellcheck shell=bash

step() { printf '\n== %s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# need_packages NAME...: Debian packages; installs those that are missing, and changes nothing else on the machine.
need_packages() {
    local missing=() name
    if ! command -v dpkg-query >/dev/null; then
        printf 'This is not a Debian-like system: nothing was installed. Needed are what Debian calls\n  %s\n' "$*"
        return 0
    fi
    for name in "$@"; do
        # dpkg-query also knows packages that were removed.
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
    done
    ((${#missing[@]})) || return 0
    local as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || die "missing packages, and no sudo to install them: ${missing[*]}"
        as_root=(sudo)
    fi
    step "Installing packages: ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" \
        >/dev/null || die "apt-get could not install: ${missing[*]}"
}

# shellcheck disable=SC2034 # used by those who source this
build_packages=(g++ meson ninja-build pkg-config librdmacm-dev libibverbs-dev)
# shellcheck disable=SC2034
rig_packages=(qemu-system-x86 busybox-static cpio kmod iproute2 xz-utils ibverbs-providers)
# Boost.Asio from 1.77 on, of which Debian 12 has a package beside its default.
boost_package=libboost-dev
! grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || boost_package=libboost1.81-dev
# shellcheck disable=SC2034
test_packages=(catch2 clang clang-format clang-tidy valgrind shellcheck python3 rdmacm-utils ibverbs-utils cmake git
    make libasio-dev "$boost_package" doxygen chromium chromium-driver python3-selenium)
