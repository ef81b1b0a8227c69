#!/bin/sh
# The mine's road: from "Unable to allocate 105. GiB" to a policy of the full model, in 8 GiB of RAM.
#   sh examples/roads/mine.sh FOLDER      in a folder of its own; a few minutes on two cores
set -e
cd "$1"

# What failed, as its author typed it: the rollout that the configuration asks for, and an error that is caught.
cat > train_model.py <<'PY'
import sys
import numpy as np

try:
    rollout = np.zeros((2048, 4, 17, 49, 71, 58), dtype=np.float32)
except MemoryError as error:
    sys.exit(f"Training failed with error: {error}")
PY
legroom predict --ram 8GiB -- python train_model.py || test $? = 1
echo "Training failed with error: Unable to allocate 105. GiB for an array with shape (2048, 4, 17, 49, 71, 58) and" \
  "data type float32" | legroom explain

# Which configuration 8 GiB can hold, and what makes the full one fit.
legroom predict mine --mode arithmetic --ram 8GiB || test $? = 1
legroom fit mine:full --ram 8GiB --mode arithmetic -o fitted.yaml

# The full model, four environments: as long as there is patience. Here one short rollout, and one more after a stop.
small="--n-steps 4 --batch-size 4 --set n_epochs=1"
legroom train fitted.yaml --out run $small --timesteps 16
legroom train fitted.yaml --out run $small --resume --timesteps 32
legroom export run model.zip
