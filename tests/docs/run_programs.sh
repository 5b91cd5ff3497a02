#!/usr/bin/env bash
# Runs programs of the documentation, each with the address of an echo server that runs: run_programs.sh SERVER PROGRAM...
set -uo pipefail
server=$1 address=${RIG_ADDR4:?to be run by the rig}:7471
shift

"$server" "$address" &
server_process=$!
trap 'kill "$server_process"' EXIT
for _ in {1..200}; do
    rdma resource show cm_id | grep -q LISTEN && break
    sleep 0.1
done

failures=0
for program in "$@"; do
    echo "-- ${program##*/}"
    timeout 30 "$program" "$address" || { echo "status $?"; ((++failures)); }
done
((failures == 0))
