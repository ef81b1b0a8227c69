#!/bin/sh
# Installs the wheel of dist/ in an empty environment of every Python, without a compiler, and uses it there: the commands
# that need no torch, then the tests that need none. The sdist is installed without a compiler, too, by the first Python.
#   tests/pythons.sh [PYTHON...]      default: python3.11, python3.12, python3.13; those that are missing are skipped
#                                       (pyenv's versions count, also those that are not switched on)
#   FULL=0 leaves the tests out
set -eu
cd "$(dirname "$0")/.."
TESTS="tests/test_units.py tests/model tests/scheduling tests/ci/test_formats.py tests/machine/test_job_limits.py tests/machine/test_cgroup.py tests/machine/test_without_unix.py tests/explaining"
WHEEL=$(ls dist/legroom-*.whl)
SDIST=$(ls dist/legroom-*.tar.gz)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
without_compiler() { env CC=/bin/false CXX=/bin/false "$@"; }

used() { # PYTHON of an environment: what needs no torch works there
  folder=$(mktemp -d -p "$work")
  cp docs/files/train.py docs/files/error.txt "$folder"
  ( cd "$folder"
    "$1" -m legroom --version
    "$1" -m legroom machine > /dev/null
    "$1" -m legroom predict mine:small --mode arithmetic --ram 16GiB > /dev/null
    "$1" -m legroom fit mine:full --mode arithmetic --ram 8GiB -o fitted.yaml > /dev/null
    "$1" -m legroom explain error.txt > /dev/null
    "$1" -m legroom check train.py --ram 16GiB --format sarif > /dev/null || test $? = 1 )
}

runs() { "$1" -c "" > /dev/null 2>&1; } # pyenv has commands that only say that their version is not switched on

found=0
for name in ${@:-python3.11 python3.12 python3.13}; do
  python=
  for candidate in "$name" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/"$name"; do
    if runs "$candidate"; then python=$candidate; break; fi
  done
  if [ -z "$python" ]; then echo "$name: skipped, not installed here"; continue; fi
  environment=$(mktemp -d -p "$work")
  "$python" -m venv "$environment"
  without_compiler "$environment/bin/pip" install --quiet --disable-pip-version-check "$WHEEL"
  used "$environment/bin/python"
  "$environment/bin/python" -c "import legroom.storing._core" || { echo "$python: the wheel's core cannot be loaded"; exit 1; }
  if [ "${FULL:-1}" = 1 ]; then
    "$environment/bin/pip" install --quiet --disable-pip-version-check pytest hypothesis jsonschema
    "$environment/bin/python" -m pytest -q -p no:cacheprovider $TESTS
  fi
  if [ $found = 0 ]; then
    environment=$(mktemp -d -p "$work")
    "$python" -m venv "$environment"
    without_compiler "$environment/bin/pip" install --quiet --disable-pip-version-check "$SDIST"
    used "$environment/bin/python"
    "$environment/bin/python" -c "import legroom; legroom.LeanArray((4,), 'u1')" 2>&1 | grep -q "install a C compiler"
    echo "$python: the sdist installs and works without a compiler"
  fi
  found=$((found + 1))
  echo "$python: $("$python" -c 'import platform; print(platform.python_version())') works"
done
test $found -gt 0
