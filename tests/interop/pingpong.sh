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
        [[ $1 != -n ]] || { echo "$2"; return; }
        shift
    done
    echo 1000
}

# Refused by the device: a documented error, whose text names the call.
refused() { # CALL COMMAND...
    local status=0
    timeout 60 "${@:2}" >"$out/refused" 2>&1 || status=$?
    if ((status != 1)) || ! grep -q "$1" "$out/refused"; then
        printf 'status %s\n' "$status"
        cat "$out/refused"
        return 1
    fi
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
check "rc: no device memory here" refused ibv_alloc_dm "${ours[rc]}" -d "$device" -j
if ibv_devinfo -v -d "$device" | grep -q 'ODP'; then
    for kind in rc srq; do
        check "$kind: on-demand paging" play "${ours[$kind]} -o" "${ours[$kind]} -o" -n 200
    done
else
    for kind in rc srq; do
        check "$kind: no on-demand paging here" refused ibv_reg_mr "${ours[$kind]}" -d "$device" -o
    done
fi
check "perf: a table of four operations by two ways, and a picture" measures
check "perf: wrong options" refused 'server' "$perf" -e nothing
check "no such device" refused 'no such RDMA device' "${ours[uc]}" -d nothing
check "no such GID" refused 'no such GID' "${ours[ud]}" -d "$device" -g 200

echo "1..$number"
((failures == 0))
