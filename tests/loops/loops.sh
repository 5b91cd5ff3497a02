#!/usr/bin/env bash
#
# The examples of event loops with many clients, on real verbs. To be run by the rig. Prints TAP: a line for each test,
# its figures and, below one that failed, what it had to say.
#
# Usage: loops.sh FOLDER-OF-EXAMPLES [PATTERN: only tests with such names]

set -uo pipefail
export LC_ALL=C

examples=$1 only=${2-}
v4=${RIG_ADDR4:?to be run by the rig} v6=${RIG_ADDR6:?}
traced=(env "LD_PRELOAD=$examples/librdmaxx_trace.so" RDMAXX_TRACE=traced)
out=$(mktemp -d)
trap 'rm -rf -- "$out"' EXIT
ulimit -n "$(ulimit -Hn)" # for the clients of asio_echo, which have three descriptors each

number=0 failures=0 port=7400

check() { # NAME COMMAND...
    local job
    [[ $1 =~ $only ]] || return 0
    ((++number))
    if "${@:2}" >"$out/why" 2>&1; then
        echo "ok $number - $1"
        grep '^figure: ' "$out/why" | sed 's/^/# /'
    else
        echo "not ok $number - $1"
        sed 's/^/#   /' "$out/why"
        ((++failures))
    fi
    for job in $(jobs -p); do # what a test that failed has left behind
        kill -KILL "$job" 2>/dev/null
    done
    wait 2>/dev/null
}

same() { # WHAT EXPECTED FOUND
    [[ $2 != "$3" ]] || return 0
    printf '%s: expected %s, found %s\n' "$@"
    return 1
}

eventually() { # COMMAND...: tries it for twenty seconds at least
    local end=$((SECONDS + 21))
    until "$@" >"$out/last"; do
        ((SECONDS < end)) || { echo "not within twenty seconds: $*"; cat "$out/last"; return 1; }
        sleep 0.1
    done
}

resources() { rdma resource show; }
resources_are() { same "rdma resource show" "$1" "$(resources)"; }
listens() { [[ $(rdma resource show cm_id)$'\n' =~ LISTEN[^$'\n']*:${port}[^0-9] ]]; }

# Starts a server, with its output in $out/server and $out/server.errors.
start() { # ADDRESS PROGRAM
    ((++port))
    "${traced[@]}" "$examples/$2" "$1:$port" >"$out/server" 2>"$out/server.errors" &
    server=$!
    eventually listens || { tail "$out/server.errors"; return 1; }
    at_start=$(resources)
}

# Runs clients to their end; what they print is in $out/clients.
clients() { # COMMAND...
    local status=0
    timeout 200 "${traced[@]}" "$@" >"$out/clients" 2>"$out/clients.errors" || status=$?
    same "the clients' status" 0 "$status" || { grep -v '^\[' "$out/clients.errors" | tail; return 1; }
    balanced "$out/clients.errors"
}

# A program that was traced into the file got events, and acked as many.
balanced() { # FILE
    awk '/ sum / { gets = $6 + 0; acks = $8 + 0
                   if ($3 == "cm" && gets > 0) programs++
                   if (gets != acks) { print; bad = 1 } }
         END { if (programs != 1) { print "programs in the trace: " programs + 0; bad = 1 } exit bad }' "$1"
}

stop() { # STATUS
    local status=0
    eventually resources_are "$at_start" || return
    kill "$server"
    wait "$server" || status=$?
    same "the server's status" "$1" "$status" && balanced "$out/server.errors"
}

says() { # FILE WORDS
    ! grep -qs -- "$2" "$1" || { echo "figure: $(grep -s -- "$2" "$1" | head -n 1)"; return 0; }
    printf 'nobody said "%s", but:\n' "$2"
    tail -n 4 "$1"
    return 1
}


epoll() { # ADDRESS CONNECTIONS
    start "$1" epoll_server && clients "$examples/epoll_server" "$1:$port" "$2" &&
        says "$out/clients" "^$2 connections at once, $2 answers" && stop 0 &&
        says "$out/server" "^$2 connections, at most $2 at once; $2 messages"
}

# Clients are killed while they connect and talk; the next ones are served.
killed() { # PROGRAM CLIENTS
    start "$v4" "$1" || return
    local delay
    for delay in 0.3 0.6 0.9; do
        timeout -s KILL "$delay" "$examples/$1" "$v4:$port" "$2" >/dev/null 2>&1
    done
    eventually resources_are "$at_start" && clients "$examples/$1" "$v4:$port" 5 && stop 0
}

asio() { # ADDRESS CLIENTS
    start "$1" asio_echo && clients "$examples/asio_echo" "$1:$port" "$2" &&
        says "$out/clients" "^$2 clients, $((10 * $2)) right answers" && stop 0
}

adapter() { # ADDRESS CLIENTS
    start "$1" echo_server && clients "$examples/coroutine_adapter" "$1:$port" "$2" &&
        says "$out/clients" "^$2 clients, $2 answers" && stop 143
}

nobody_listens() { # PROGRAM
    "$examples/$1" "$v4:7399" 3 >"$out/nobody" 2>&1
    same "the status of $1" 1 "$?" && says "$out/nobody" "rejected"
}

# The kernel gives back what ends a little later.
at_first=$(resources)

check "epoll: 1000 connections in one thread, IPv4" epoll "$v4" 1000
check "epoll: 50 connections, IPv6" epoll "[$v6]" 50
check "epoll: clients are killed" killed epoll_server 100
check "epoll: nobody listens" nobody_listens epoll_server
if [[ -x $examples/asio_echo ]]; then
    check "asio: 200 clients in one thread, IPv4" asio "$v4" 200
    check "asio: 20 clients, IPv6" asio "[$v6]" 20
    check "asio: clients are killed" killed asio_echo 50
    check "asio: nobody listens" nobody_listens asio_echo
fi
if [[ -x $examples/coroutine_adapter ]]; then
    check "coroutines without Asio: 50 clients" adapter "$v4" 50
    check "coroutines without Asio: nobody listens" nobody_listens coroutine_adapter
fi
check "nothing is left of all that" eventually resources_are "$at_first"

echo "1..$number"
((failures == 0))
