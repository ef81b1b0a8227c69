#!/bin/sh
# Builds the C core with AddressSanitizer and UBSan, then with ThreadSanitizer, and runs its tests against these builds:
# `make test-native`.
#
# Usage: tests/native.sh PYTHON
#
# The property tests meet every reachable line; native_alloc_failures.py makes each allocation fail in turn, for which
# the build has LEGROOM_FAIL_ALLOC. Leaks are not looked for, because the interpreter itself leaves memory behind at
# its end; native_alloc_failures.py watches the core's own. Sanitizers end the process at the first error, so pytest must
# not capture the file descriptor they write to.
set -eu

python=${1:-python3}
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../src/legroom/storing/_core.c
cc=${CC:-gcc}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
"$cc" -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g -O1 -DLEGROOM_FAIL_ALLOC \
    -Wall -Wextra -Werror -fPIC -shared -I"$include" "$source" -o "$build/_core.abi3.so"

# The interpreter is not built with sanitizers: their runtime has to be there before it.
run() {
    env LD_PRELOAD="$("$cc" -print-file-name=libasan.so) $("$cc" -print-file-name=libubsan.so)" \
        LEGROOM_CORE="$build/_core.abi3.so" PYTHONMALLOC=malloc OMP_NUM_THREADS=1 \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
        "$python" "$@"
}

run -m pytest -p no:cacheprovider --capture=sys "$here/storing/test_core_properties.py"
run "$here/storing/native_alloc_failures.py"

# The same where the processor has no instructions of its own for bits.
"$cc" -fsanitize=address,undefined -fno-sanitize-recover=all -g -O1 -DLEGROOM_PORTABLE -Wall -Wextra -Werror -fPIC -shared \
    -I"$include" "$source" -o "$build/_core.abi3.so"
run -m pytest -p no:cacheprovider --capture=sys "$here/storing/test_core_properties.py" -k "comes_back or sound"

# Threads: the encoder and the helper beside readers, writers, dumps and forks.
"$cc" -fsanitize=thread -g -O1 -Wall -Wextra -Werror -fPIC -shared -I"$include" "$source" -o "$build/_core.threads.abi3.so"
env LD_PRELOAD="$("$cc" -print-file-name=libtsan.so)" LEGROOM_CORE="$build/_core.threads.abi3.so" OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 TSAN_OPTIONS=exitcode=66:die_after_fork=0 \
    "$python" -m pytest -p no:cacheprovider --capture=sys "$here/storing/test_queue.py" -k "not process_ends"
