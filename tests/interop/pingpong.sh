#!/usr/bin/env bash
#
# The pingpong examples against rdma-core's own (ibv_*_pingpong), in both roles, and against each other. To be run by
# the rig. Prints TAP: a line for each test and, below one that failed, what it had to say.
#
# perf, which has no such counterpart, against itself.
#
# Usage: pingpong.sh rc_pingpong uc_pingpong ud_pingpong srq_pingpong perf [PATTERN: only tests with such names]

set -uo pipefail
export LC_ALL=C

declare -A ours=([rc]=$1 [uc]=$2 [ud]=$3 [srq]=$4)
perf=$5 only=${6-}
device=${RIG_DEVICE:?to be run by the rig} address=${RIG_ADDR4:?}
if ! command -v ibv_rc_pingpong >/dev/null; then
    echo "there is no ibv_rc_pingpong: install ibverbs-utils"
    exit 77
fi
out=$(mktemp -d)
trap 'rm -rf -- "$out"' EXIT

number=0 failures=0

check() { # NAME COMMAND...
    local job
    [[ $1 =~ $only ]] || return 0
    ((++number))
    if "${@:2}" >"$out/why" 2>&1; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        sed 's/^/#   /' "$out/why"
        ((++failures))
    fi
    for job in $(jobs -p); do
        kill -KILL -- "$job" 2>/dev/null
    done
    wait 2>/dev/null
}

# The index of the address's GID, for the C programs, which do not look for it.
gid_index() {
    local file a b c d
    IFS=. read -r a b c d <<<"$address"
    for file in "/sys/class/infiniband/$device/ports/1/gids/"*; do
        if [[ $(<"$file") == "$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d")" ]]; then
            basename "$file"
            return
        fi
    done
    echo "no GID of $address" >&2
    return 1
}
gid=$(gid_index) || exit 1

port=18600
listens() { # PORT: somebody does; asking by a connection would be taken for a client
    grep -qsE "^ *[0-9]+: [0-9A-F]+:$(printf '%04X' "$1") [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6
}

# Runs a server and a client to their end.
play() { # SERVER CLIENT OPTIONS...: commands, with their own options behind a space
    local server client end=$((SECONDS + 60)) failed=0
    ((++port))
    read -ra server <<<"$1"
    read -ra client <<<"$2"
    # shellcheck disable=SC2086 # options
    timeout 120 "${server[@]}" -d "$device" -p "$port" "${@:3}" >"$out/server" 2>&1 &
    until listens "$port"; do
        if ((SECONDS >= end)) || ! kill -0 $! 2>/dev/null; then
            echo "the server does not listen:"
            cat "$out/server"
            return 1
        fi
        sleep 0.05
    done
    timeout 120 "${client[@]}" -d "$device" -p "$port" "${@:3}" "$address" >"$out/client" 2>&1 || failed=$?
    wait $! || failed="$failed, server $?"
    if [[ $failed != 0 ]] || ! grep -q '^'"$(iters "$@")"' iters in ' "$out/server" "$out/client" ||
        grep -q 'invalid data' "$out/server" "$out/client"; then
        printf 'status: client %s\n' "$failed"
        tail -n 5 "$out/server" "$out/client"
        return 1
    fi
}
iters() {
    while (($# > 1)); do
        [[ $1 != -n && $1 != --iters ]] || { echo "$2"; return; }
        shift
    done
    echo 1000
}

# Refused by the device: a documented error, whose text names the call.
refused() { # CALL COMMAND...
    local status=0
    timeout 60 "${@:2}" >"$out/refused" 2>&1 || status=$?
    if ((status != 1)) || ! grep -qe "$1" "$out/refused"; then
        printf 'status %s\n' "$status"
        cat "$out/refused"
        return 1
    fi
}

# The device, or its driver, cannot: neither program begins.
both_refuse() { # KIND WHAT-OURS-SAYS WHAT-STOCK-SAYS OPTIONS...
    refused "$2" "${ours[$1]}" -d "$device" "${@:4}" && refused "$3" "ibv_${1}_pingpong" -d "$device" -g "$gid" "${@:4}"
}

play_long() {
    play "${ours[uc]} --gid-idx $gid --mtu 512 --events" "ibv_uc_pingpong --gid-idx $gid --mtu 512" --iters 200 &&
        play "ibv_ud_pingpong --gid-idx $gid" "${ours[ud]} --rx-depth 64 --ib-port 1" --iters 200 --size 1000
}

# A row with its latencies for each operation and way to post, and a picture that is XML.
measures() {
    local end=$((SECONDS + 60))
    "$perf" -p 18700 >"$out/server" 2>&1 &
    until timeout 100 "$perf" -p 18700 -n 20 -w 4096 --plot "$out/plot.svg" "$address" >"$out/table" 2>"$out/errors"; do
        if ((SECONDS >= end)); then
            cat "$out/errors" "$out/server"
            return 1
        fi
        sleep 0.2
    done
    if ! awk -F '  +' 'NR > 1 { rows++; for (i = 2; i <= 7; i++) if ($i <= 0 || (i < 4 && $i < $2) || $7 < $i) bad = 1 }
                       END { exit bad || rows != 8 }' "$out/table" || ! python3 -c '
import sys, xml.dom.minidom
assert len(xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("polyline")) == 8' "$out/plot.svg"; then
        cat "$out/table"
        return 1
    fi
}

for kind in rc uc ud srq; do
    stock="ibv_${kind}_pingpong -g $gid" mine=${ours[$kind]}
    common=(-n 200 -s 1024)
    check "$kind: server ours, client stock" play "$mine" "$stock" "${common[@]}" -c
    check "$kind: server stock, client ours" play "$stock" "$mine" "${common[@]}" -c
    check "$kind: both ours, events" play "$mine -e" "$mine -e" "${common[@]}" -c
    check "$kind: server ours with events, client stock" play "$mine -e" "$stock" "${common[@]}"
    check "$kind: server stock with events, client ours" play "$stock -e" "$mine -e" "${common[@]}"
    check "$kind: few receives, by GID index" play "$mine -r 16 -g $gid" "$mine -r 16 -g $gid" "${common[@]}"
done
check "rc: the newer way to post, against stock" play "${ours[rc]} -N" "ibv_rc_pingpong -g $gid" -n 200
check "rc: the newer way to post, on both sides" play "ibv_rc_pingpong -N -g $gid" "${ours[rc]} -N -e" -n 200 -c
check "rc: large messages, small packets" play "${ours[rc]} -m 256" "ibv_rc_pingpong -m 256 -g $gid" -n 50 -s 100000 -c
check "srq: 3 queue pairs" play "${ours[srq]} -q 3" "ibv_srq_pingpong -q 3 -g $gid" -n 200
check "rc: the newer way to post, ours asks stock" play "ibv_rc_pingpong -N -g $gid" "${ours[rc]} -N" -n 200 -c
check "rc: long options" play \
    "${ours[rc]} --gid-idx $gid --mtu 512 --rx-depth 64 --ib-port 1 --sl 0 --events --chk --new_send" \
    "ibv_rc_pingpong --gid-idx $gid --mtu 512 --chk" --iters 200 --size 3000
check "uc, ud: long options" play_long
check "srq: long options" play "${ours[srq]} --num-qp 2 --rx-depth 64" "ibv_srq_pingpong --num-qp 2 -g $gid" --iters 200

# What this device has not, neither program has here, and both say so.
check "rc: no device memory" both_refuse rc ibv_alloc_dm 'dm allocation' -j
check "rc: no time stamps of the device" both_refuse rc 'no time stamps' 'completion timestamp' -t
check "rc: no time stamps with events either" both_refuse rc 'no time stamps' 'completion timestamp' -t -e
check "rc: no paging of all memory" both_refuse rc 'on-demand paging' 'ODP' -O
check "rc: nor prefetched" both_refuse rc 'on-demand paging' 'ODP' --iodp --prefetch
check "rc: prefetching is for on-demand paging" both_refuse rc '-P is for' 'prefetch is valid only' -P
check "rc: device memory is not paged" both_refuse rc 'one at a time' "can't be on demand" -j -o
if [[ $(ibv_rc_pingpong -h 2>&1) == *allow-cc-unprotected* ]]; then
    check "rc: no parent domains for unprotected memory" both_refuse rc ibv_alloc_parent_domain 'parent domain' -U
else
    check "rc: unprotected memory came with rdma-core 64" both_refuse rc 'rdma-core 64' 'invalid option' -U
fi
if ibv_devinfo -v -d "$device" | grep -q 'ODP'; then
    for kind in rc srq; do
        check "$kind: on-demand paging" play "${ours[$kind]} -o" "${ours[$kind]} -o" -n 200
        check "$kind: on-demand paging, server ours" play "${ours[$kind]} -o" "ibv_${kind}_pingpong -o -g $gid" -n 200 -c
        check "$kind: on-demand paging, client ours" play "ibv_${kind}_pingpong -o -g $gid" "${ours[$kind]} -o" -n 200 -c
    done
    check "rc: on-demand paging, prefetched" play "${ours[rc]} -o -P" "ibv_rc_pingpong -o -P -g $gid" -n 200 -c
else
    check "rc: no on-demand paging" both_refuse rc 'no on-demand paging' 'ODP capable' -o
    check "rc: no on-demand paging to prefetch" both_refuse rc 'no on-demand paging' 'ODP capable' -o -P
    check "srq: no on-demand paging" both_refuse srq 'no on-demand paging' 'ODP capable' -o
fi
check "perf: a table of four operations by two ways, and a picture" measures
check "perf: wrong options" refused 'server' "$perf" -e nothing
check "no such device" refused 'no such RDMA device' "${ours[uc]}" -d nothing
check "no such GID" refused 'no such GID' "${ours[ud]}" -d "$device" -g 200

echo "1..$number"
((failures == 0))
