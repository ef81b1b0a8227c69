#!/usr/bin/env bash
# What legroom does, on this machine. Usage: demo.sh [path of the legroom command]
set -u
legroom=${1:-legroom}
show() { printf '\n$ legroom %s\n' "$*"; "$legroom" "$@"; code=$?; [ $code -le 1 ] || exit $code; }

echo "1. What is there to run on?"
show machine
echo; echo "2. The run that died at 'Unable to allocate 105. GiB': what would it have needed, and why?"
show predict mine:full
echo; echo "3. Which of its smaller configurations fit?"
show predict mine:full mine:memory_optimized mine:ultra_light mine:small
echo; echo "4. And on a GPU that is not here?"
show predict gameboy:default --gpu "RTX 4070"
exit 0
