#!/usr/bin/env bash
# Makes the site: build.sh DOXYGEN PYTHON FOLDER. Prints what Doxygen complains about, and then fails.
set -euo pipefail
docs=$(cd "$(dirname "$0")" && pwd)
doxygen=$1 python=$2 folder=$3

"$python" "$docs/c_calls.py" "$folder/from_c.dox"
# What some version of rdma-core lacks is documented all the same.
features=$(grep -rhoE '\b(RDMAXX_HAS_[A-Z_0-9]+|(BOOST_)?ASIO_HAS_CO_AWAIT)\b' "$docs/../include" | sort -u | sed 's/$/=1/' | paste -sd ' ')
rm -rf "$folder/html"
"$doxygen" - <<<"$(cat "$folder/Doxyfile"; printf 'PREDEFINED += %s\n' "$features")"
