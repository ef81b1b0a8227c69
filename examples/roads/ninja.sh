#!/bin/sh
# The ninja's road: from a hundred environments that fill 17 GiB to the same hundred in 4.
#   sh examples/roads/ninja.sh FOLDER      in a folder of its own; a few minutes on two cores
set -e
cd "$1"

# Whether the environment leaks, and what one more of them costs: what its author wrote a profiler for.
legroom profile ninja:parallel --frames 500 --snapshot-interval 100 --envs 1,2 --report memory_profiling_report.txt

# A hundred of them as SB3 starts them, and as they fit.
legroom predict ninja:parallel --ram 4GiB --mode arithmetic || test $? = 1
legroom fit ninja:parallel --ram 4GiB --mode arithmetic -o fitted.yaml

# Here with eight, for a short time, stopped and resumed.
small="--n-envs 8 --n-steps 32 --batch-size 64 --set n_epochs=1"
legroom train fitted.yaml --out run $small --timesteps 256
legroom train fitted.yaml --out run $small --resume --timesteps 512
legroom export run model.zip
