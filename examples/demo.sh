#!/usr/bin/env bash
# What examples/run.sh runs on the machine that has the RDMA device: a server, two clients, and what they do to the
# device's resources. The programs are as they are; a preloaded library shows their events.
set -euo pipefail
programs=$1
address=${RIG_ADDR4:?run it through tests/rig/rig}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

say() { printf '\n-- %s\n' "$*"; }
traced() { RDMAXX_TRACE=$1 LD_PRELOAD=$programs/librdmaxx_trace.so "${@:2}"; }

say "kernel $(uname -r), device $RIG_DEVICE, address $address"
say "server: echo_server $address:7471"
traced server "$programs/echo_server" "$address:7471" 2> >(tee "$out/server" >&2) &
server=$!
# The server says when it listens.
for ((i = 0; i < 100; ++i)); do
    grep -q listening "$out/server" && break
    sleep 0.1
done

for message in "hello over RDMA" "and once more"; do
    say "client: echo_client $address:7471 \"$message\""
    traced client "$programs/echo_client" "$address:7471" "$message"
    sleep 0.2 # the server's side of the goodbye, before the next client's lines
done

say "end: the server is told to stop"
kill "$server"
wait "$server" || true
say "what is left of it in the kernel"
rdma resource show "$RIG_DEVICE" 2>/dev/null || rdma resource show
