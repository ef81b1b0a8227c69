#!/usr/bin/env bash
# What legroom does, on this machine. Usage: demo.sh [path of the legroom command]
set -u
legroom=${1:-legroom}
show() { printf '\n$ legroom %s\n' "$*"; "$legroom" "$@"; code=$?; [ $code -le 1 ] || exit $code; }

echo "1. What is there to run on?"
show machine
echo; echo "2. The run that died at 'Unable to allocate 105. GiB': what would it have needed, and why?"
show predict mine:full --probe
cat <<'TXT'

   Why 105, and why 209? The rollout keeps 2,048 steps of 4 environments, and an observation is 17 numbers for each of
   49 × 71 × 58 blocks: 2,048 × 4 × 17 × 201,782 × 4 bytes = 104.7 GiB, the "105. GiB" of the error. Had it fitted, the
   update would have begun by copying it (flatten), and the run would have died at 209 GiB instead.
   Nearly all of it is the same geology over and over. Stored once, it is well under 1 GiB: steps 5 and 8.
TXT
echo; echo "3. Which of its smaller configurations fit?"
show predict mine:full mine:memory_optimized mine:ultra_light mine:small
echo; echo "4. And on a GPU that is not here?"
show predict gameboy:default --gpu "RTX 4070"
echo; echo "5. What would make it fit into 3 GiB, without changing what is learned?"
show fit mine:full --ram 3GiB
echo; echo "6. And the error itself, explained:"
printf '$ legroom explain error.txt\n'
printf '%s\n' 'numpy._core._exceptions._ArrayMemoryError: Unable to allocate 105. GiB for an array with shape' \
  '(2048, 4, 17, 49, 71, 58) and data type float32' | tr '\n' ' ' | "$legroom" explain -
echo; echo "7. Is it the environment? Does it leak, what do its observations cost, how many of it fit here?"
show profile ninja:parallel --envs 1,4
echo; echo "8. A short slice of that very run, at full observation size, trained for real within 2.5 GiB:"
echo "   (the small extractor and 64 steps per env, so that it ends in a minute or two on a CPU)"
out=$(mktemp -d)/slice
trap 'rm -rf "${out%/slice}"' EXIT
show train mine:full --timesteps 256 --n-steps 64 --n-epochs 1 --ram 2.5GiB --fit --device cpu --seed 1 --out "$out" \
  --set policy.features_extractor_kwargs.size=tiny --set memory.micro_batch=8
exit 0
