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

# add_packages WHAT TESTS NAMES: install Debian's packages, if there are names and this is root on such a system. It never
# fails: the tests that need what could not be installed are skipped and say so.
add_packages() {
    if [ -z "$3" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then return 0; fi
    echo "Installing $1: $3 ..."
    apt="env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=20"
    # shellcheck disable=SC2086
    { $apt install -y --no-install-recommends $3 ||
        { $apt update && $apt install -y --no-install-recommends $3; }; } >/dev/null 2>&1 </dev/null ||
        echo "That did not work; $2 will be skipped."
}

# Pixel tasks draw without a display, for which the system needs a library.
missing=$(env -u MUJOCO_GL "$venv/bin/python" -c 'from teb.envs.rendering import BACKENDS, choose_backend
if choose_backend(): print(*BACKENDS.values())' 2>/dev/null) || missing=
add_packages "graphics libraries for pixel tasks" "tests that draw" "$missing"

# The tests of `teb report` look at it in a browser.
chromium=chromium
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then chromium=; fi
done
add_packages "Chromium for tests of the report" "tests that need it" "$chromium"

echo "$PWD" >"$stamp"
