#!/usr/bin/env bash
# Builds and runs every test: on any machine, without an RDMA device and without root.
# Usage: tests/run.sh [--host] [--no-vm] [--fail-on-skip] [SUITE...]
#   default         every suite; those on real verbs run in a throw-away virtual machine with a Soft-RoCE device
#   --host          those on real verbs run on this machine's own RDMA device
#   --no-vm         without those on real verbs: they are reported as skipped
#   --fail-on-skip  a skipped test is a failure (continuous integration)
#   SUITE           only these: unit compile headers bench consumers live interop loops rig matrix docs lint
# Installs what it needs on a Debian-like machine, and changes nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/support/setup.sh
. tests/support/setup.sh

fail_on_skip=()
suites=()
one_by_one=()
export RDMAXX_RIG_OPTIONS=
for argument in "$@"; do
    case $argument in
    --host)
        RDMAXX_RIG_OPTIONS=--host
        one_by_one=(--num-processes 1) # tests on real verbs share its ports
        ;;
    --no-vm) export RDMAXX_NO_VM=1 ;;
    --fail-on-skip) fail_on_skip=(--fail-on-skip) ;;
    -*)
        sed -n '2,9s/^# //p' "$0"
        [[ $argument == --help ]] && exit 0
        exit 2
        ;;
    *) suites+=(--suite "$argument") ;;
    esac
done

need_packages "${build_packages[@]}" "${test_packages[@]}"
[[ ${RDMAXX_NO_VM:-} || $RDMAXX_RIG_OPTIONS ]] || need_packages "${rig_packages[@]}"

build=${BUILD_DIR:-build/tests}
step "Building in $build"
mkdir -p "$build"
[[ -f $build/build.ninja ]] || meson setup "$build" -Dtests=enabled --buildtype=debug >"$build/setup.log" 2>&1 ||
    { cat "$build/setup.log"; exit 1; }
ninja -C "$build" | tail -n 1

step "Running"
# Meson's own verdict is not used: totals.py also counts what each program ran, and knows about skips.
meson test -C "$build" --no-rebuild --print-errorlogs "${one_by_one[@]}" "${suites[@]}" || true
exec python3 tests/support/totals.py "${fail_on_skip[@]}" "$build/meson-logs/testlog.json"
