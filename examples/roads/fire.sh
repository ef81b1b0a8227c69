#!/bin/sh
# The wildfire's road: from "CUDA out of memory" on a GPU of 3.68 GiB to the same training in pieces.
#   sh examples/roads/fire.sh FOLDER      in a folder of its own; a few minutes on two cores, without a GPU
set -e
cd "$1"

cat > error.txt <<'TXT'
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 158.00 MiB.
GPU 0 has a total capacity of 3.68 GiB of which 5.69 MiB is free.
TXT
cat > Train.py <<'PY'
BATCH_SIZE = 64
N_ENVS = 32
SIMS = 15
BUFFER_CAP = 50_000
PY

# What ran out; that the configuration never fits this GPU; which of the constants are not on a GPU at all.
legroom explain error.txt
legroom predict fire:original --vram 3.68GiB --ram 32GiB || test $? = 1
legroom check Train.py --like fire:original --vram 3.68GiB --ram 32GiB || test $? = 1

# The same minibatches in pieces, whose gradients add up to theirs.
legroom fit Train.py --like fire:original --vram 3.68GiB --ram 32GiB -o fitted.yaml

# On a machine with that GPU: legroom train fitted.yaml. Here a short one on the CPU, stopped and resumed.
small="--n-envs 4 --batch-size 4 --set memory.micro_batch=2 --set learning_starts=16 --set buffer_size=400"
legroom train fitted.yaml --device cpu --out run $small --timesteps 24
legroom train fitted.yaml --device cpu --out run $small --resume --timesteps 32
legroom export run model.zip
