#!/usr/bin/env bash
# Builds the site, where every name without a comment is an error, and looks at it in a browser: site.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2/site
need() { command -v "$1" >/dev/null || { echo "no $1"; exit 77; }; }
need doxygen
need chromium
need chromedriver
/usr/bin/python3 -c 'import selenium' 2>/dev/null || { echo "no Selenium for Python"; exit 77; }

[[ -f $build/build.ninja ]] || meson setup "$build" "$source" -Dtests=disabled -Dexamples=disabled >/dev/null
meson compile -C "$build" docs
exec /usr/bin/python3 -B "$source/tests/docs/site.py" "$build/docs/html"
