#!/bin/sh
# Prints the first Python 3.11 to 3.13 that runs and can make virtual environments.
# `python.sh NAME` considers NAME only. A name on the PATH proves nothing: version managers leave stubs that fail.
set -u

in_range='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
bare=

for name in ${1:-python3 python3.13 python3.12 python3.11 python}; do
    "$name" -c "$in_range" >/dev/null 2>&1 </dev/null || continue
    if "$name" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "$name"
        exit 0
    fi
    bare=${bare:-$name}
done

if [ -n "$bare" ]; then
    version=$("$bare" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "$bare cannot make virtual environments: its module ensurepip is missing." >&2
    echo "On Debian and Ubuntu: apt-get install python$version-venv" >&2
else
    echo "No Python 3.11, 3.12 or 3.13 found (looked for: ${1:-python3, python3.13, python3.12, python3.11, python})." >&2
    echo "Install one, or name it: make PYTHON=/path/to/python" >&2
fi
exit 1
