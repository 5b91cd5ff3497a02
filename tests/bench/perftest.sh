#!/usr/bin/env bash
#
# Latency medians of examples/perf.cpp and of perftest (ib_send_lat, ib_write_lat, ib_read_lat), side by side. No test: a
# table for people. To be run on real verbs, by the rig or on a host with a device:
#
#     tests/rig/rig --timeout 900 -- bash tests/bench/perftest.sh build/examples/perf [ROUNDS [BYTES [REPEATS]]]
#
# Both ends are on this machine, and poll: where it has few processors, the scheduler makes some runs a hundred times
# slower, those of either program. So each is repeated in turn, and the lowest median counts.

set -uo pipefail
perf=$1 rounds=${2:-1000} bytes=${3:-8} repeats=${4:-5}
device=${RIG_DEVICE:?to be run by the rig, or set it and RIG_ADDR4} address=${RIG_ADDR4:?}
command -v ib_send_lat >/dev/null || { echo "there is no ib_send_lat: install perftest"; exit 77; }
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf -- "$out"' EXIT

# A command that may come before its server listens.
patiently() { # FILE COMMAND...
    local try
    for try in {1..100}; do
        timeout 300 "${@:2}" >"$1" 2>&1 && return
        sleep 0.2
    done
    echo "$2 failed ($try times):" >&2
    tail -n 3 "$1" >&2
    return 1
}

# perftest's "typical" latency is the median.
perftest() { # TOOL: with rdma_cm, as perf does it; one server for each
    "$1" -d "$device" -R -n "$rounds" -s "$bytes" -F -p 18900 >/dev/null 2>&1 &
    patiently "$out/$1" "$1" -d "$device" -R -n "$rounds" -s "$bytes" -F -p 18900 "$address" || return
    wait $!
    awk -v bytes="$bytes" '$1 == bytes && NF > 4 { print $5 }' "$out/$1"
}

"$perf" -p 18901 &
for ((i = 0; i < repeats; ++i)); do
    patiently "$out/perf" "$perf" -p 18901 -n "$rounds" -s "$bytes" -e send,write,read "$address" || exit 1
    awk -F '  +' 'NF > 5 && NR > 1 { print $1 "," $3 }' "$out/perf" >>"$out/medians"
    for operation in send write read; do
        echo "$operation, perftest,$(perftest "ib_${operation}_lat")" >>"$out/medians"
    done
done
lowest() { sed -n "s/^$1, $2,//p" "$out/medians" | sort -g | head -n 1; }

cat "$out/perf"
printf '\nLowest median of %s, %s bytes, %s rounds, microseconds\n' "$repeats" "$bytes" "$rounds"
printf '%-8s %12s %16s %16s\n' "" perftest ibv_post_send ibv_wr_complete
for operation in send write read; do
    printf '%-8s %12s %16s %16s\n' "$operation" "$(lowest "$operation" perftest)" \
        "$(lowest "$operation" ibv_post_send)" "$(lowest "$operation" ibv_wr_complete)"
done
