#!/bin/sh
# install.sh VENV [PYTHON]: make the virtual environment VENV and install the lock and this package into it.
# Safe to repeat: a working environment is brought up to date, a broken or moved one is made anew.
set -eu
cd "$(dirname "$0")/.."
venv=$1
stamp=$venv/.installed

# Paths inside an environment are absolute, so one that came with a copied or moved folder is of no use.
if [ -e "$stamp" ] && [ "$(cat "$stamp")" != "$PWD" ]; then rm -rf "$venv"; fi
if [ -e "$venv" ] && ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then rm -rf "$venv"; fi
rm -f "$stamp"

if [ ! -e "$venv" ]; then
    python=$(sh requirements/python.sh "${2:-}")
    echo "Making $venv with $("$python" --version) ($python) ..."
    "$python" -m venv "$venv"
fi

echo "Installing requirements/lock.txt into $venv (a minute or more the first time) ..."
pip="$venv/bin/python -m pip --disable-pip-version-check --no-input"
$pip install -qq -r requirements/lock.txt
# The lock has brought the build backend, so building needs nothing further from the network.
$pip install -qq --no-deps --no-build-isolation --editable .

# Pixel tasks draw without a display, for which the system needs a library. None of this may fail: where it
# cannot be installed, the tests that draw are skipped and say so.
missing=$(env -u MUJOCO_GL "$venv/bin/python" -c 'from teb.envs.rendering import BACKENDS, choose_backend
if choose_backend(): print(*BACKENDS.values())' 2>/dev/null) || missing=
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing graphics libraries for pixel tasks: $missing ..."
    apt="env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=20"
    # shellcheck disable=SC2086
    { $apt install -y --no-install-recommends $missing ||
        { $apt update && $apt install -y --no-install-recommends $missing; }; } >/dev/null 2>&1 </dev/null ||
        echo "That did not work; tests that draw will be skipped."
fi

echo "$PWD" >"$stamp"
