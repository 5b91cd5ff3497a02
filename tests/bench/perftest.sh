#!/usr/bin/env bash
#
# Latency medians of examples/perf.cpp beside those of perftest (ib_send_lat, ib_write_lat, ib_read_lat), in one run. No
# test: a table for people. It needs Debian's perftest, some minutes, and a machine that does little else; to be run on
# real verbs, by the rig or on a host with a device:
#
#     tests/rig/rig --cpus 4 --timeout 1800 -- bash tests/bench/perftest.sh build/examples/perf \
#         [ROUNDS [BYTES [REPEATS [INLINE]]]]
#
# Build that with --buildtype=release. Both ends are on this machine, and poll: with two processors nothing is left for
# the kernel's work, and a message takes as long as the scheduler's time slices, hence four. Ours and theirs take turns,
# and what counts is the median of the runs' medians; the lowest is that of a run that was left alone. Both send up to
# INLINE bytes inline (236, perftest's default).

set -uo pipefail
perf=$1 rounds=${2:-1000} bytes=${3:-8} repeats=${4:-5} inline=${5:-236}
device=${RIG_DEVICE:?to be run by the rig, or set it and RIG_ADDR4} address=${RIG_ADDR4:?}
command -v ib_send_lat >/dev/null || { echo "there is no ib_send_lat: install perftest"; exit 77; }
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf -- "$out"' EXIT

# A command that may come before its server listens.
patiently() { # FILE COMMAND...
    local try
    for try in {1..25}; do
        timeout 300 "${@:2}" >"$1" 2>&1 && return
        sleep 0.2
    done
    echo "$2 failed ($try times):" >&2
    tail -n 3 "$1" >&2
    return 1
}

# perftest's "typical" latency is the median. Now and then it finds no frequency of the processor, and says inf.
perftest() { # OPERATION: with rdma_cm, as perf does it; one server for each
    local tool=ib_$1_lat median=inf
    local options=(-d "$device" -R -n "$rounds" -s "$bytes" -F -p 18900)
    [[ $1 == read ]] || options+=(-I "$inline")
    while [[ $median == inf ]]; do
        "$tool" "${options[@]}" >/dev/null 2>&1 &
        patiently "$out/$tool" "$tool" "${options[@]}" "$address" || return
        wait $!
        median=$(awk -v bytes="$bytes" '$1 == bytes && NF > 4 { print $5 }' "$out/$tool")
    done
    echo "$median"
}

"$perf" -p 18901 &
for ((i = 0; i < repeats; ++i)); do
    for operation in send write read; do
        patiently "$out/perf" "$perf" -p 18901 -n "$rounds" -s "$bytes" -I "$inline" -w 8 -e "$operation" "$address" ||
            exit 1
        awk -F '  +' 'NF > 5 && NR > 1 { print $1 "," $3 }' "$out/perf" >>"$out/medians"
        echo "$operation, perftest,$(perftest "$operation")" >>"$out/medians"
    done
done

# Of the runs of an operation by a program, one median each.
runs() { sed -n "s/^$1, $2,//p" "$out/medians" | sort -g; } # OPERATION WHAT
median() { runs "$@" | awk '{ one[NR] = $1 } END { print (one[int((NR + 1) / 2)] + one[int(NR / 2) + 1]) / 2 }'; }
lowest() { runs "$@" | head -n 1; }

for figure in median lowest; do
    printf '\nThe %s of the medians of %s runs, each of %s rounds with %s bytes, microseconds (and to perftest)\n' \
        "$figure" "$repeats" "$rounds" "$bytes"
    printf '%-8s %12s %22s %22s\n' "" perftest ibv_post_send ibv_wr_complete
    for operation in send write read; do
        theirs=$("$figure" "$operation" perftest)
        printf '%-8s %12.2f' "$operation" "$theirs"
        for way in ibv_post_send ibv_wr_complete; do
            "$figure" "$operation" "$way" |
                awk -v theirs="$theirs" '{ printf " %13.2f (%.3f)", $1, $1 / theirs }'
        done
        printf '\n'
    done
done
printf '\nEach run:\n'
sed 's/,\([^,]*\)$/: \1/' "$out/medians" |
    awk -F ': ' '{ runs[$1] = runs[$1] " " $2 } END { for (name in runs) print name ":" runs[name] }' | sort
