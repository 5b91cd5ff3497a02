#!/usr/bin/env bash
# The examples on real verbs: an echo, and a ping with rdma-core's own rping in both roles. To be run by the rig.
# Usage: smoke.sh FOLDER      with echo_server, echo_client and rping
set -euo pipefail
programs=$1
address=${RIG_ADDR4:?to be run by the rig}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Until it has bound its port.
listening() { # PORT
    local i
    for ((i = 0; i < 100; ++i)); do
        ! rdma resource show cm_id 2>/dev/null | grep -q "LISTEN.*:$1 " || return 0
        sleep 0.1
    done
    echo "nobody listens on port $1"
    return 1
}

"$programs/echo_server" "$address:7471" 2>"$out/server" &
server=$!
listening 7471
[[ $("$programs/echo_client" "$address:7471" "hello over RDMA") == *"hello over RDMA"* ]]
echo "ok - echo"
kill "$server"
wait "$server" || true

ping() { # SERVER CLIENT PORT
    "$1" -s -a "$address" -p "$3" -C 5 >"$out/server" 2>&1 &
    server=$!
    listening "$3"
    timeout 60 "$2" -c -v -a "$address" -p "$3" -C 5 >"$out/client" 2>&1 || { cat "$out/client"; return 1; }
    wait "$server" || true # the stock program's exit status says nothing
    [[ $(grep -c 'ping data: rdma-ping-' "$out/client") == 5 ]] || { cat "$out/client"; return 1; }
    echo "ok - $1 serves $2"
}
ping rping "$programs/rping" 7472
ping "$programs/rping" rping 7473
