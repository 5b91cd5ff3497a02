#!/usr/bin/env bash
#
# The examples against rdma-core's own programs, against themselves, and against peers that misbehave, on real verbs. To
# be run by the rig. Prints TAP: a line for each test and, below one that failed, what it had to say.
#
# Usage: interop.sh FOLDER-OF-THE-EXAMPLES misuse [PATTERN: only tests with such names]

set -uo pipefail
export LC_ALL=C

examples=$1 misuse=$2 only=${3-}
ours=$examples/rping echo_server=$examples/echo_server echo_client=$examples/echo_client
lease=$examples/lease
trace=$examples/librdmaxx_trace.so
v4=${RIG_ADDR4:?to be run by the rig} v6=${RIG_ADDR6:?}
if ! stock=$(command -v rping); then
    echo "there is no rping: install rdmacm-utils"
    exit 77
fi
out=$(mktemp -d)
mkfifo "$out/pause"
exec {pause}<>"$out/pause"
trap 'rm -rf -- "$out"' EXIT

# --- Checks -----------------------------------------------------------------------------------------------------------

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
    for job in $(jobs -p); do # what a test that failed has left behind; timeout(1) makes groups
        kill -KILL -- "-$job" "$job" 2>/dev/null
    done
    wait 2>/dev/null
}

show() { # FILE: the end of it and of the errors beside it, for somebody who has to find out what went wrong
    tail -q -n 8 -- "$1" "$1.errors" 2>/dev/null | cut -c 1-200
}

same() { # WHAT EXPECTED FOUND
    [[ $2 != "$3" ]] || return 0
    printf '%s: expected %s, found %s\n' "$@"
    return 1
}

says() { # FILE WORDS
    ! grep -qs -- "$2" "$1" "$1.errors" || return 0
    printf 'nobody said "%s", but:\n' "$2"
    show "$1"
    return 1
}

sleep() { # SECONDS: in an emulated machine, a process takes longer to start
    read -rt "$1" -u "$pause" || true # nobody writes there
}

eventually() { # COMMAND...: tries it for half a minute
    local end=$((SECONDS + 30))
    until "$@" >"$out/last"; do
        ((SECONDS < end)) || { echo "not within half a minute: $*"; cat "$out/last"; return 1; }
        sleep 0.05
    done
}

# Runs a command to its end, with its output in the file and its errors in FILE.errors.
runs() { # STATUS FILE COMMAND...
    local status=0
    timeout 120 "${@:3}" >"$2" 2>"$2.errors" || status=$?
    same "the status of ${*:3}" "$1" "$status" || { show "$2"; return 1; }
}

# The device's objects, of all processes.
resources() { rdma resource show; }
resources_are() { # WHAT
    same "rdma resource show" "$1" "$(resources)"
}

# --- Servers and clients ----------------------------------------------------------------------------------------------

port=7200
traced=(env "LD_PRELOAD=$trace" RDMAXX_TRACE=traced)

listens() { # PORT
    [[ $(rdma resource show cm_id)$'\n' =~ LISTEN[^$'\n']*:$1[^0-9] ]]
}

# Starts a server, with its output in $out/server and its errors in $out/server.errors, and comes back when it is ready.
start_until() { # READY COMMAND...
    : >"$out/server"
    : >"$out/server.errors"
    timeout 400 "${@:2}" >"$out/server" 2>"$out/server.errors" &
    server=$!
    # shellcheck disable=SC2086 # a command and its arguments
    eventually $1 || { show "$out/server"; return 1; }
}

start() { # COMMAND...: a port of its own is put in for PORT
    port=${fixed_port:-$((port + 1))}
    start_until "listens $port" "${@//PORT/$port}"
}

over() { ! kill -0 "$1" 2>/dev/null; } # PROCESS

ended() { # STATUS: waits for the server's end
    local status=0
    eventually over "$server" || { show "$out/server"; return 1; }
    wait "$server" || status=$?
    same "the server's status" "$1" "$status" || { show "$out/server"; return 1; }
}

stop() { # STATUS
    kill "$server"
    ended "$1"
}

# The lines of a client's or server's -v: so many, and of so many bytes with the zero that ends them.
pings() { # FILE COUNT SIZE
    local why
    why=$(awk -v count="$2" -v size="$3" '
        match($0, /^(server )?ping data: /) { n++; if (length($0) - RLENGTH + 1 != size) short = $0 }
        !/ping data: rdma-ping-[0-9]*: [A-z]*$/ { short = $0 }
        END { if (n != count) print n + 0 " pings, not " count
              if (short) print "not a ping of " size ": " short }' "$1")
    [[ $why ]] || return 0
    cut -c 1-200 <<<"${1##*/}: $why"
    return 1
}

# One rping client. Its pings are counted, since the stock one has status 0 even when the server leaves it.
ping() { # RPING ADDRESS COUNT SIZE [OPTION...]
    local file=$out/client.$BASHPID
    runs 0 "$file" "$1" -c -a "$2" -p "$port" -C "$3" -S "$4" -v -V "${@:5}" && pings "$file" "$3" "$4"
}

crowd() { # RPING ADDRESS: twenty clients, five at a time
    local i client clients bad=0
    for ((i = 0; i < 20; i += 5)); do
        clients=()
        for client in 1 2 3 4 5; do
            ping "$1" "$2" 10 64 &
            clients+=($!)
        done
        for client in "${clients[@]}"; do
            wait "$client" || bad=1
        done
    done
    ((bad == 0)) || { show "$out/server"; return 1; }
}

has_lines() { # COUNT FILE
    (($(wc -l <"$2") >= $1))
}

goes_on() {
    eventually has_lines $(($(wc -l <"$out/endless") + 10)) "$out/endless"
}

# A client that pings until somebody kills it, with its output in $out/endless.
start_endless() { # ADDRESS
    truncate -s 0 "$out"/endless{,.errors}
    "$ours" -c -a "$1" -p "$port" -v >"$out/endless" 2>"$out/endless.errors" &
    endless=$!
    goes_on
}

kill_endless() {
    kill -KILL "$endless"
    wait "$endless" 2>/dev/null
    true
}

# --- rping ------------------------------------------------------------------------------------------------------------

# Wrong options give usage, and the stock program's status.
misused() { # OPTION...
    runs 22 "$out/stock" "$stock" "$@" && runs 22 "$out/ours" "$ours" "$@" && says "$out/ours" '^rping -s '
}

wrong_options() {
    misused && misused -x && misused -c -p && misused -c -S 22 && misused -c -S 65536 && misused -c -C -1 &&
        runs 22 "$out/ours" "$ours" -c && runs 22 "$out/ours" "$ours" -s -c && runs 22 "$out/ours" "$ours" -s more &&
        runs 1 "$out/ours" "$ours" -s -p 1x && says "$out/ours" rdma_getaddrinfo &&
        runs 1 "$out/ours" "$ours" -c -a no.such.host.invalid && says "$out/ours" rdma_getaddrinfo &&
        runs 0 "$out/ours" "$ours" -h && says "$out/ours" '^rping -s '
}

pair() { # SERVER CLIENT ADDRESS SIZE
    start "$1" -s -a "$3" -p PORT -S "$4" -v && ping "$2" "$3" 20 "$4" && ended 0 && pings "$out/server" 20 "$4"
}

wildcard() { # ADDRESS ADDRESS-OF-THE-LISTENER OPTION...
    start "$ours" -s -p PORT "${@:3}" && rdma resource show cm_id >"$out/listeners" &&
        says "$out/listeners" "src-addr $2:$port " && ping "$stock" "$1" 3 64 && ended 0
}

source_address() { # ADDRESS, ANOTHER that is not this machine's
    start "$ours" -s -p PORT -a "$1" && ping "$ours" "$1" 3 64 -I "$1" && ended 0 &&
        runs 1 "$out/ours" "$ours" -c -a "$1" -p "$port" -I "$2" && says "$out/ours" "rdma_bind_addr $2: "
}

# What the stock programs print is what ours print. The first letter has come round after 58 pings.
same_output() {
    start "$stock" -s -a "$v4" -p PORT -S 150 -v && ping "$stock" "$v4" 70 150 && ended 0 || return
    grep 'ping data: ' "$out/server" >"$out/stock.server"
    grep 'ping data: ' "$out/client.$BASHPID" >"$out/stock.client"
    start "$ours" -s -a "$v4" -p PORT -v && ping "$ours" "$v4" 70 150 && ended 0 || return
    diff "$out/stock.server" "$out/server" && diff "$out/stock.client" "$out/client.$BASHPID"
}

# Twenty clients leave nothing behind in a server, and a signal ends it well.
persistent() { # RPING-OF-CLIENTS ADDRESS
    start "${traced[@]}" "$ours" -s -P -a "$2" -p PORT || return
    local before
    before=$(resources)
    crowd "$1" "$2" && eventually resources_are "$before" && stop 0 && balanced "$out/server.errors"
}

# One after the other: of clients that come at the same time the stock server loses some, its own kind as well.
persistent_stock() { # ADDRESS
    start "$stock" -s -P -a "$1" -p PORT || return
    local before
    before=$(resources)
    for _ in {1..6}; do
        ping "$ours" "$1" 10 64 && eventually resources_are "$before" || return
    done
    stop 143
}

killed_client() { # ADDRESS
    start "${traced[@]}" "$ours" -s -P -a "$1" -p PORT || return
    local before
    before=$(resources)
    for _ in 1 2 3; do
        start_endless "$1" && kill_endless || return
    done
    ping "$stock" "$1" 10 64 && eventually resources_are "$before" && stop 0 && balanced "$out/server.errors"
}

# A client that sends something else, and what the server says of it.
strange() { # MESSAGE WORDS
    local client
    "$echo_client" "$v4:$port" "$1" &
    client=$!
    eventually says "$out/server" "client .*: $2" || return
    kill -KILL "$client" 2>/dev/null # if it still waits for an answer
    wait "$client" 2>/dev/null
    true
}

# A program that does not speak the protocol is sent away, while another client is served.
strange_clients() {
    start "$ours" -s -P -a "$v4" -p PORT && start_endless "$v4" &&
        strange "five!" 'not rping: a message of 5 bytes' &&
        strange "these are sixtee" 'ibv_sge: the piece does not lie inside' &&
        goes_on && kill_endless && stop 0
}

# Without -P there is one client, and another one is told no.
second_client() {
    start "$ours" -s -a "$v4" -p PORT && start_endless "$v4" &&
        runs 1 "$out/second" "$ours" -c -a "$v4" -p "$port" -C 1 &&
        says "$out/second" "rejected by the peer's program" &&
        goes_on && kill_endless && wait "$server"
}

# A client that the server leaves has failed.
killed_server() {
    start "$ours" -s -a "$v4" -p PORT && start_endless "$v4" && kill -KILL -- "-$server" || return
    local status=0
    eventually over "$endless" && { wait "$endless" || status=$?; }
    same "the client's status" 1 "$status" && says "$out/endless" 'no answer: disconnected'
}

nobody_listens() {
    runs 1 "$out/ours" "$ours" -c -a "$v4" -p 7199 && says "$out/ours" 'nobody listens on that port'
}

# An echo server answers each message, and reads and writes nothing.
wrong_data() {
    start "$echo_server" "$v4:PORT" && runs 1 "$out/ours" "$ours" -c -a "$v4" -p "$port" -C 5 -V &&
        says "$out/ours" 'data mismatch in ping 0' && stop 143
}

traced_client() {
    start "$ours" -s -a "$v4" -p PORT &&
        runs 0 "$out/traced" "${traced[@]}" "$ours" -c -a "$v4" -p "$port" -C 20 && ended 0 &&
        balanced "$out/traced.errors"
}

# --- Echo -------------------------------------------------------------------------------------------------------------

echoes() { # ADDRESS MESSAGE
    local file=$out/echo.$BASHPID
    runs 0 "$file" "$echo_client" "$1:$port" "$2" && same "the answer" "echoed: $2" "$(<"$file")"
}

echo_crowd() { # ADDRESS: eight clients at once
    local i clients=() client bad=0
    for i in {1..8}; do
        echoes "$1" "message $i" &
        clients+=($!)
    done
    for client in "${clients[@]}"; do
        wait "$client" || bad=1
    done
    return "$bad"
}

# Clients at once, then one that is killed, then one more; nothing is left behind.
echo_pair() { # ADDRESS, the same as it stands before a port
    start "${traced[@]}" "$echo_server" "$2:PORT" || return
    local before
    before=$(resources)
    echo_crowd "$2" && start_endless "$1" && kill_endless && echoes "$2" "still there" &&
        eventually resources_are "$before" && stop 143 && balanced "$out/server.errors"
}

echo_traced_client() {
    start "$echo_server" "$v4:PORT" && runs 0 "$out/traced" "${traced[@]}" "$echo_client" "$v4:$port" &&
        balanced "$out/traced.errors" && stop 143
}

echo_wrong_arguments() {
    local program
    for program in "$echo_server" "$echo_client"; do
        runs 1 "$out/failed" "$program" && says "$out/failed" 'no IPv4 or IPv6 address' || return
    done
}

# --- Lease ------------------------------------------------------------------------------------------------------------

signs() { # TICKET NAME [keep]: a client of lease, whose window is taken back
    local file=$out/lease.$BASHPID
    runs 0 "$file" "${traced[@]}" "$lease" "$v4:$port" "${@:2}" && balanced "$file.errors" &&
        says "$file" "^ticket $1\$" && says "$file" '^once more: rem_access_err: ' &&
        eventually says "$out/server" "^ticket $1: $2\$"
}

# Each client has a ticket of its own; what one that is killed had is taken back as well.
leases() {
    start "${traced[@]}" "$lease" "$v4:PORT" || return
    local before
    before=$(resources)
    signs 0 anna && says "$out/server" '^the client is done' &&
        signs 1 bert keep && says "$out/server" "^the client's time is over" || return
    timeout -s KILL 1 "$lease" "$v4:$port" gone keep >/dev/null 2>&1
    eventually resources_are "$before" || return
    # It may have been too early for a ticket.
    signs '[23]' cecil && eventually resources_are "$before" && stop 143 && balanced "$out/server.errors"
}

# --- The trace --------------------------------------------------------------------------------------------------------

# A program that was traced into the file got events, and acked as many.
balanced() { # FILE
    awk '/ sum / { gets = $6 + 0; acks = $8 + 0
                   if ($3 == "cm" && gets > 0) programs++
                   if (gets != acks) { print; bad = 1 } }
         END { if (programs != 1) { print "programs in the trace: " programs + 0; bad = 1 } exit bad }' "$1"
}

# Programs that get it wrong are found out.
misuse_is_seen() {
    runs 0 "$out/traced" "${traced[@]}" "$misuse" "$v4" 1 && balanced "$out/traced.errors" &&
        runs 0 "$out/traced" "${traced[@]}" "$misuse" "$v4" 0 && says "$out/traced" 'never acked  addr_resolved  #1' &&
        ! balanced "$out/traced.errors" &&
        runs 134 "$out/traced" "${traced[@]}" "$misuse" "$v4" 2 && says "$out/traced" 'DOUBLE ACK of a CM event' &&
        runs 134 "$out/traced" "${traced[@]}" "$misuse" "$v4" cq && says "$out/traced" 'DOUBLE ACK of completion events'
}

# --- The other programs -----------------------------------------------------------------------------------------------

# shellcheck source=tests/interop/tools.sh
. "${BASH_SOURCE[0]%/*}/tools.sh"

# --- All --------------------------------------------------------------------------------------------------------------

at_first=$(resources)

check "the trace finds a missing and a double ack" misuse_is_seen
check "rping: wrong options" wrong_options
for size in 23 64 4096 65535; do
    check "rping: server ours, client stock, IPv4, $size bytes" pair "$ours" "$stock" "$v4" "$size"
    check "rping: server stock, client ours, IPv4, $size bytes" pair "$stock" "$ours" "$v4" "$size"
    check "rping: both ours, IPv4, $size bytes" pair "$ours" "$ours" "$v4" "$size"
done
for size in 64 65535; do
    check "rping: server ours, client stock, IPv6, $size bytes" pair "$ours" "$stock" "$v6" "$size"
    check "rping: server stock, client ours, IPv6, $size bytes" pair "$stock" "$ours" "$v6" "$size"
    check "rping: both ours, IPv6, $size bytes" pair "$ours" "$ours" "$v6" "$size"
done
check "rping: the same output as stock" same_output
check "rping: server on every IPv4 address" wildcard "$v4" 0.0.0.0
check "rping: server on every address" wildcard "$v6" :: -a ::
check "rping: client with a source address" source_address "$v4" 198.51.100.1
check "rping: gets are acks in a client" traced_client
check "rping -P: 20 stock clients, IPv4" persistent "$stock" "$v4"
check "rping -P: 20 clients of ours, IPv6" persistent "$ours" "$v6"
check "rping -P, stock: 6 clients of ours, IPv4" persistent_stock "$v4"
check "rping -P, stock: 6 clients of ours, IPv6" persistent_stock "$v6"
check "rping -P: clients are killed, IPv4" killed_client "$v4"
check "rping -P: clients are killed, IPv6" killed_client "$v6"
check "rping -P: clients that are not rping" strange_clients
check "rping: a second client is rejected" second_client
check "rping: the server is killed" killed_server
check "rping: nobody listens" nobody_listens
check "rping: wrong data is noticed" wrong_data
check "echo: many clients, one is killed, IPv4" echo_pair "$v4" "$v4"
check "echo: many clients, one is killed, IPv6" echo_pair "$v6" "[$v6]"
check "echo: gets are acks in a client" echo_traced_client
check "echo: wrong arguments" echo_wrong_arguments
check "lease: windows are granted and taken back" leases
check_tools
check "nothing is left of all that" eventually resources_are "$at_first"

echo "1..$number"
((failures == 0))
