#!/bin/sh
# The Game Boy's road: from a module of constants to the same training in 4 GiB.
#   sh examples/roads/gameboy.sh FOLDER      in a folder of its own; a few minutes on two cores
set -e
cd "$1"

cat > constants.py <<'PY'
NUM_ENVS = 2
EP_LENGTH = 8192
FRAME_STACK_SIZE = 4
BATCH_SIZE = 2048
N_EPOCHS = 10
TOTAL_TIMESTEPS = 10_000_000
SAVE_FREQ = EP_LENGTH * 10
SAVE_REPLAY_BUFFER = True
PY

# What is wrong with them, and what they cost on 32 GB of RAM and a GPU with 16 GB; then with 4 GiB.
legroom check constants.py --like gameboy:default --ram 32GB --vram 16GB || test $? = 1
legroom predict constants.py --like gameboy:default --ram 32GB --vram 16GB
legroom predict constants.py --like gameboy:default --ram 4GiB --mode arithmetic || test $? = 1
legroom fit constants.py --like gameboy:default --ram 4GiB --mode arithmetic -o fitted.yaml

# Here with short rollouts, stopped and resumed.
small="--n-steps 64 --batch-size 64 --set memory.micro_batch=32 --set n_epochs=1"
legroom train fitted.yaml --out run $small --timesteps 128
legroom train fitted.yaml --out run $small --resume --timesteps 256
legroom export run model.zip
