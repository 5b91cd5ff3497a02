# shellcheck shell=bash
#
# The examples that mirror rdma-core's other programs: ucmatose, udaddy, mckey, cmtime, rdma_server, rdma_client and
# rstream, each as a server and as a client. Part of interop.sh, whose functions and variables it uses.
#
# shellcheck disable=SC2034,SC2154 # examples, out, server, v4, fixed_port ... are interop.sh's

program() { # ours|stock NAME
    if [[ $1 == ours ]]; then echo "$examples/$2"; else command -v "$2"; fi
}

# Each gives usage.
refused() { # "NAME [OPTION...]" "WRONG OPTION"...
    local words wrong
    for wrong in "${@:2}"; do
        read -ra words <<<"$1 $wrong"
        runs 1 "$out/ours" "$examples/${words[0]}" "${words[@]:1}" && says "$out/ours" "^${words[0]} [[-]" || return
    done
}

# A server and a client, of whom both end well. The port is put in for PORT in the options.
meet() { # OF-SERVER OF-CLIENT SERVER CLIENT "SERVER'S OPTIONS" "CLIENT'S OPTIONS"
    local options
    read -ra options <<<"$5"
    start "$(program "$1" "$3")" "${options[@]}" || return
    read -ra options <<<"${6//PORT/$port}"
    runs 0 "$out/client" "$(program "$2" "$4")" "${options[@]}" && ended 0 && return
    show "$out/server"
    return 1
}

# The same for each of the roles. A name of two words is of a server and of a client.
check_roles() { # WHAT NAME "SERVER'S OPTIONS" "CLIENT'S OPTIONS" [COMMAND that runs a command]
    local names
    read -ra names <<<"$2 $2"
    check "${names[0]}: server ours, client stock, $1" ${5+"$5"} meet ours stock "${names[@]:0:2}" "$3" "$4"
    check "${names[0]}: server stock, client ours, $1" ${5+"$5"} meet stock ours "${names[@]:0:2}" "$3" "$4"
    check "${names[0]}: both ours, $1" ${5+"$5"} meet ours ours "${names[@]:0:2}" "$3" "$4"
}

# What the stock programs print is what ours print.
prints_the_same() { # SERVER CLIENT "SERVER'S OPTIONS" "CLIENT'S OPTIONS"
    meet stock stock "$@" && mv "$out/server" "$out/stock.server" && mv "$out/client" "$out/stock.client" &&
        meet ours ours "$@" && diff "$out/stock.server" "$out/server" && diff "$out/stock.client" "$out/client"
}

# Both traced. (The events of sync ids and rsockets are librdmacm's own.)
acks_all() { # NAME "SERVER'S OPTIONS" "CLIENT'S OPTIONS"
    local options
    read -ra options <<<"$2"
    start "${traced[@]}" "$examples/$1" "${options[@]}" || return
    read -ra options <<<"${3//PORT/$port}"
    runs 0 "$out/client" "${traced[@]}" "$examples/$1" "${options[@]}" && ended 0 &&
        balanced "$out/server.errors" && balanced "$out/client.errors"
}

nobody_is_there() { # NAME OPTION...
    runs 1 "$out/ours" "$examples/$1" "${@:2}" && says "$out/ours" 'nobody listens on that port'
}

# --- ucmatose ---------------------------------------------------------------------------------------------------------

# A message is longer than the other side's receive.
ucmatose_too_long() {
    start "$examples/ucmatose" -b "$v4" -p PORT -S 200 -w 5 &&
        runs 1 "$out/client" "$examples/ucmatose" -s "$v4" -p "$port" -S 100 &&
        says "$out/client" 'ibv_poll_cq request 0 of queue pair [0-9]*: ' && ended 1 &&
        says "$out/server" 'ibv_poll_cq request 0 of queue pair [0-9]*: '
}

# A client that connects, and then takes one message of ten.
ucmatose_silence() {
    start "$examples/ucmatose" -b "$v4" -p PORT -w 3 || return
    "$echo_client" "$v4:$port" >"$out/client" 2>&1 &
    ended 1 && says "$out/server" " is silent, with [0-9]* messages to go"
}

# One client of two comes: the server has had enough some day.
ucmatose_alone() {
    start "$examples/ucmatose" -b "$v4" -p PORT -c 2 -w 1 || return
    "$examples/ucmatose" -s "$v4" -p "$port" -w 5 >"$out/client" 2>&1 &
    ended 1 && says "$out/server" 'nothing happened for 1 s'
}

check_ucmatose() {
    check_roles "IPv4, 25 connections" ucmatose "-b $v4 -p PORT -c 25" "-s $v4 -p PORT -c 25"
    check_roles "IPv6, long messages" ucmatose "-b $v6 -p PORT -c 2 -C 5 -S 20000" \
        "-s $v6 -b $v6 -p PORT -c 2 -C 5 -S 20000"
    check_roles "migrated, with options" ucmatose "-b $v4 -p PORT -P ib -c 3 -m" \
        "-s $v4 -p PORT -P ib -c 3 -m -t 32 -a 14"
    check_roles "without messages" ucmatose "-b $v4 -p PORT -C 0" "-s $v4 -p PORT -C 0"
    check "ucmatose: the same output as stock" prints_the_same ucmatose ucmatose "-p PORT -m" "-s $v4 -p PORT -m"
    check "ucmatose: gets are acks" acks_all ucmatose "-b $v4 -p PORT -c 5 -m" "-s $v4 -p PORT -c 5 -m"
    check "ucmatose: a message is too long" ucmatose_too_long
    check "ucmatose: the client falls silent" ucmatose_silence
    check "ucmatose: a client does not come" ucmatose_alone
    check "ucmatose: nobody listens" nobody_is_there ucmatose -s "$v4" -p 7199
    check "ucmatose: wrong options" refused ucmatose -x '-c 0' '-C -1' '-S 0' '-P udp' '-t 256' '-a 32' '-w 1x'
}

# --- udaddy -----------------------------------------------------------------------------------------------------------

at_7174() { # COMMAND...: the C program has no option for its port
    local port fixed_port=7174
    "$@"
}

# The server awaits twice as many datagrams as come.
udaddy_lost() {
    start "$examples/udaddy" -b "$v4" -w 5 &&
        runs 1 "$out/client" "$examples/udaddy" -s "$v4" -C 5 -w 3 &&
        says "$out/client" '5 of 5 datagrams have not come' && ended 1 &&
        says "$out/server" '5 of 10 datagrams have not come'
}

udaddy_too_long() { # OF-WHOM: a client's datagram, or a server's
    if [[ $1 == client ]]; then
        start "$examples/udaddy" -b "$v4" && runs 1 "$out/client" "$examples/udaddy" -s "$v4" -S 1025 &&
            says "$out/client" 'a datagram takes at most 1024 bytes here' && stop 143
    else
        start "$examples/udaddy" -b "$v4" -S 1025 && runs 1 "$out/client" "$examples/udaddy" -s "$v4" &&
            says "$out/client" "rejected by the peer's program" && ended 1 &&
            says "$out/server" 'a datagram takes at most 1024 bytes here'
    fi
}

# RoCE has no such port space.
udaddy_ipoib() {
    runs 255 "$out/stock" "$(program stock udaddy)" -P ipoib -b "$v4" &&
        runs 1 "$out/ours" "$examples/udaddy" -P ipoib -b "$v4" && says "$out/ours" "rdma_bind_addr $v4:7174: "
}

check_udaddy() {
    check_roles "IPv4, 4 connections" udaddy "-b $v4 -c 4" "-s $v4 -c 4 -t 8" at_7174
    check_roles "IPv6, long datagrams" udaddy "-b $v6 -C 3 -S 1024" "-s $v6 -b $v6 -C 3 -S 1024" at_7174
    check "udaddy: the same output as stock" at_7174 prints_the_same udaddy udaddy "" "-s $v4"
    check "udaddy: gets are acks" at_7174 acks_all udaddy "-b $v4 -c 3" "-s $v4 -c 3"
    check "udaddy: datagrams do not come" at_7174 udaddy_lost
    check "udaddy: the client's datagram is too long" at_7174 udaddy_too_long client
    check "udaddy: the server's datagram is too long" at_7174 udaddy_too_long server
    check "udaddy: the port space of IPoIB" udaddy_ipoib
    check "udaddy: nobody listens" nobody_is_there udaddy -s "$v4"
    check "udaddy: wrong options" refused udaddy -x '-c 0' '-S 0' '-P tcp' '-t -1'
}

# --- mckey ------------------------------------------------------------------------------------------------------------

group=239.1.2.3

# A receiver that has joined, and a sender. The stock program holds its lines back until it ends.
mckey_meet() { # OF-RECEIVER OF-SENDER STATUS-OF-RECEIVER "RECEIVER'S OPTIONS" "SENDER'S OPTIONS"
    local options
    read -ra options <<<"$4"
    start_until "says $out/server joined" stdbuf -oL "$(program "$1" mckey)" -m "$group" -b "$v4" "${options[@]}" ||
        return
    read -ra options <<<"$5"
    runs 0 "$out/client" "$(program "$2" mckey)" -m "$group" -b "$v4" -s "${options[@]}" && ended "$3"
}

mckey_traced() {
    start_until "says $out/server joined" "${traced[@]}" "$examples/mckey" -m "$group" -b "$v4" -c 3 &&
        runs 0 "$out/client" "${traced[@]}" "$examples/mckey" -m "$group" -b "$v4" -s && ended 0 &&
        balanced "$out/server.errors" && balanced "$out/client.errors"
}

mckey_lost() {
    mckey_meet ours ours 1 "-w 6" "-C 4" && says "$out/server" '6 of 10 datagrams have not come'
}

# RoCE's kernel joins no IPv6 group.
mckey_ipv6() {
    runs 255 "$out/stock" "$(program stock mckey)" -m ff0e::1:2 -b "$v6" &&
        runs 1 "$out/ours" "$examples/mckey" -m ff0e::1:2 -b "$v6" &&
        says "$out/ours" 'rdma_join_multicast ff0e::1:2: '
}

# A group that no route leads to, and a sender that would have joined as one that only sends.
mckey_no_route() {
    runs 1 "$out/ours" "$examples/mckey" -m "$group" && says "$out/ours" "rdma_resolve_addr $group: "
}

check_mckey() {
    check "mckey: receiver ours, sender stock" mckey_meet ours stock 0 "" ""
    check "mckey: receiver stock, sender ours" mckey_meet stock ours 0 "-C 5 -S 1000" "-C 5 -S 1000"
    check "mckey: both ours, 2 receivers and 3 senders that only send" mckey_meet ours ours 0 "-c 2 -C 30" "-c 3 -o"
    check "mckey: gets are acks" mckey_traced
    check "mckey: datagrams do not come" mckey_lost
    check "mckey: an IPv6 group" mckey_ipv6
    check "mckey: no route" mckey_no_route
    check "mckey: wrong options" refused "mckey -m 239.1.1.1" -x '-c 0' '-S 0' '-p 1'
    check "mckey: no group" refused mckey ""
}

# --- cmtime -----------------------------------------------------------------------------------------------------------

has_table() { # FILE LINES
    same "lines of the table" "$2" "$(grep -cE '^[a-z ]+: ( +[0-9]+\.[0-9]{2}){4}$' "$1")" || { show "$1"; return 1; }
}

# The stock server keeps each queue pair until it ends.
cmtime_meet() { # OF-SERVER OF-CLIENT ADDRESS LINES-OF-THE-TABLE [CLIENT'S OPTION...]
    local before
    start "$(program "$1" cmtime)" -b "$3" -p PORT && before=$(resources) &&
        runs 0 "$out/client" "$(program "$2" cmtime)" -s "$3" -p "$port" "${@:5}" && has_table "$out/client" "$4" ||
        return
    if [[ $1 == ours ]]; then
        eventually resources_are "$before" && stop 0
    else
        stop 143
    fi
}

cmtime_traced() {
    start "${traced[@]}" "$examples/cmtime" -b "$v4" -p PORT &&
        runs 0 "$out/client" "${traced[@]}" "$examples/cmtime" -s "$v4" -p "$port" -c 10 && stop 0 &&
        balanced "$out/server.errors" && balanced "$out/client.errors"
}

# Both servers and both clients alike, so many connections at once; the best of some runs.
cmtime_figures() {
    local who _
    for who in stock ours; do
        : >"$out/$who.tables"
        start "$(program "$who" cmtime)" -b "$v4" -p PORT || return
        for _ in 1 2 3; do
            runs 0 "$out/client" "$(program "$who" cmtime)" -s "$v4" -p "$port" -c 100 && has_table "$out/client" 7 ||
                return
            cat "$out/client" >>"$out/$who.tables"
        done
        kill "$server"
        wait "$server" 2>/dev/null
    done
    awk -F': *' '
        /^step/ { ++run }
        !/: +[0-9.]+ / { next }
        {
            split($2, column, / +/)
            step = $1
            sub(/ +$/, "", step)
            who = FILENAME ~ /stock/ ? "C" : "rdmaxx"
            us[who, run, step] = column[4]
            if (step == "destroy") { # the last one, and no part of it: C destroys no queue pair
                if (!(who in best) || sum[who, run] < sum[who, best[who]]) best[who] = run
            } else {
                sum[who, run] += column[4]
            }
        }
        END {
            printf "# cmtime, 100 connections, the best of 3 runs; us a connection%8s%10s\n", "C", "rdmaxx"
            count = split("create id,resolve addr,resolve route,create qp,connect,disconnect,destroy", steps, ",")
            for (i = 1; i <= count; i++)
                printf "#   %-50s%17.1f%10.1f\n", steps[i], us["C", best["C"], steps[i]],
                       us["rdmaxx", best["rdmaxx"], steps[i]]
            printf "#   %-50s%17.1f%10.1f\n", "connections a second, without destroy",
                   1e6 / sum["C", best["C"]], 1e6 / sum["rdmaxx", best["rdmaxx"]]
        }' "$out/stock.tables" "$out/ours.tables" >"$out/figures"
}

check_cmtime() {
    check "cmtime: server ours, client stock, IPv4" cmtime_meet ours stock "$v4" 7 -c 25
    check "cmtime: server stock, client ours, IPv4" cmtime_meet stock ours "$v4" 7 -c 25 -r 3 -t 4000
    check "cmtime: server ours, client stock, IPv6" cmtime_meet ours stock "$v6" 8 -c 5 -b "$v6"
    check "cmtime: both ours, IPv6" cmtime_meet ours ours "$v6" 8 -c 50 -b "$v6"
    check "cmtime: gets are acks" cmtime_traced
    check "cmtime: nobody listens" nobody_is_there cmtime -s "$v4" -p 7199
    check "cmtime: wrong options" refused cmtime -x '-c 0' '-r 8' '-t x'
    check "cmtime: C and rdmaxx side by side" cmtime_figures
    [[ ! -s $out/figures ]] || cat "$out/figures"
}

# --- rdma_server, rdma_client -----------------------------------------------------------------------------------------

check_rdma_server() {
    check_roles "IPv4" "rdma_server rdma_client" "-p PORT" "-s $v4 -p PORT"
    check_roles "IPv6" "rdma_server rdma_client" "-s $v6 -p PORT" "-s $v6 -p PORT"
    check "rdma_server: the same output as stock" prints_the_same rdma_server rdma_client "-p PORT" "-s $v4 -p PORT"
    check "rdma_client: nobody listens" nobody_is_there rdma_client -s "$v4" -p 7199
    check "rdma_server: wrong option" refused rdma_server -x
    check "rdma_client: wrong option" refused rdma_client -x
}

# --- rstream ----------------------------------------------------------------------------------------------------------

# The last word of a table's line changes; the rest is the test's.
rstream_line() { # FILE WORDS
    grep -qE -- "^custom +$2 +[0-9.]+s +[0-9.]+ +[0-9.]+$" "$1" || { echo "no line of $2"; show "$1"; return 1; }
}

rstream_prints() {
    meet ours ours rstream rstream "-b $v4 -p PORT -I 20 -C 1000 -S 40 -T b" \
        "-s $v4 -p PORT -I 20 -C 1000 -S 40 -T b" &&
        rstream_line "$out/client" "40 +1k +20 +1.5m" && rstream_line "$out/server" "40 +1k +20 +1.5m"
}

rstream_wrong_data() {
    start "$examples/rstream" -b "$v4" -p PORT -C 5 -T b -T v || return
    "$examples/rstream" -s "$v4" -p "$port" -C 5 -T b >"$out/client" 2>&1 &
    ended 1 && says "$out/server" 'data verification failed at byte 1$'
}

# A client that has had enough before the server has.
rstream_leaves() {
    start "$examples/rstream" -b "$v4" -p PORT -I 10 -C 5 -T b &&
        runs 0 "$out/client" "$examples/rstream" -s "$v4" -p "$port" -I 2 -C 5 -T b && ended 1 &&
        says "$out/server" 'the peer has closed the connection'
}

rstream_nobody() {
    runs 1 "$out/ours" "$examples/rstream" -s "$v4" -p 7199 && says "$out/ours" "rconnect $v4:7199: "
}

check_rstream() {
    local few="-I 2 -C 10 -S 1000"
    check_roles "IPv4, blocking, verified" rstream "-b $v4 -p PORT $few -T b -T v" "-s $v4 -p PORT $few -T b -T v"
    check_roles "IPv6, with options" rstream "-b $v6 -p PORT -C 5 -S 100000 -T b -T v -B 65536 -k 5" \
        "-s $v6 -p PORT -C 5 -S 100000 -T b -T v -B 65536 -i 128 -k 5"
    # The stock client binds to the server's port, which this machine has no second time.
    check "rstream: a client with a source address" meet ours ours rstream rstream "-b $v6 -p PORT $few -T b" \
        "-s $v6 -b $v6 -p PORT $few -T b"
    check "rstream: both ours, nonblocking" meet ours ours rstream rstream "-b $v4 -p PORT $few -T v" \
        "-s $v4 -p PORT $few -T n -T v"
    check "rstream: both ours, async" meet ours ours rstream rstream "-b $v4 -p PORT $few -T a -T v" \
        "-s $v4 -p PORT $few -T async -T verify"
    check "rstream: what it prints" rstream_prints
    check "rstream: wrong data is noticed" rstream_wrong_data
    check "rstream: the client leaves" rstream_leaves
    check "rstream: nobody listens" rstream_nobody
    check "rstream: wrong options" refused rstream -x '-I 0' '-S x' '-T s' '-B 0'
}

# --- All --------------------------------------------------------------------------------------------------------------

check_tools() {
    check_ucmatose
    check_udaddy
    check_mckey
    check_cmtime
    check_rdma_server
    check_rstream
}
