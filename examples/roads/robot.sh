#!/bin/sh
# The robot's road: from a tier that brax refuses to a policy that stands.
#   sh examples/roads/robot.sh FOLDER      in a folder of its own; some minutes on two cores, most of them compiling
set -e
cd "$1"

cat > gpu_8gb.yaml <<'YAML'
ppo:
  num_envs: 512
  num_eval_envs: 32
  batch_size: 128
  unroll_length: 5
  num_minibatches: 2
network:
  policy_hidden_layers: [128, 128]
  value_hidden_layers: [128, 128]
YAML

# What the error says; what brax would refuse without a message, and the repair; whether it fits then.
echo "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.50GiB." | legroom explain
legroom check gpu_8gb.yaml || test $? = 1
legroom check gpu_8gb.yaml --fix
legroom predict gpu_8gb.yaml --like robot:default --gpu "RTX 3060 Ti"
legroom fit robot:production --vram 8GB --ram 16GiB

# Here with 64 robots on the CPU, stopped and resumed.
small="--like robot:quick --num-envs 64 --set num_evals=2 --set num_eval_envs=16"
legroom train gpu_8gb.yaml $small --out run --timesteps 2560
legroom train gpu_8gb.yaml $small --out run --resume --timesteps 5120
legroom export run policy.safetensors
