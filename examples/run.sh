#!/usr/bin/env bash
# Builds the examples and runs a server and a client over real verbs, showing every event and its ack.
# Usage: examples/run.sh [--host]
#   default   in a throw-away virtual machine with a Soft-RoCE device; the host is not changed
#   --host    on this machine's own RDMA device
# Installs what it needs on a Debian-like machine, and changes nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/support/setup.sh
. tests/support/setup.sh

where=()
for argument in "$@"; do
    case $argument in
    --host) where=(--host) ;;
    *) sed -n '2,6s/^# //p' "$0"; [[ $argument == --help ]] && exit 0; exit 2 ;;
    esac
done

need_packages "${build_packages[@]}"
((${#where[@]})) || need_packages "${rig_packages[@]}"

build=${BUILD_DIR:-build/examples}
step "Building the examples in $build"
mkdir -p "$build"
[[ -f $build/build.ninja ]] ||
    meson setup "$build" -Dtests=disabled -Dexamples=enabled --buildtype=release >"$build/setup.log" 2>&1 ||
    { cat "$build/setup.log"; exit 1; }
ninja -C "$build" | tail -n 1

step "Running them on real verbs (${where[*]:-in a virtual machine})"
exec tests/rig/rig "${where[@]}" --timeout 120 -- "$PWD/examples/demo.sh" "$PWD/$build/examples"
