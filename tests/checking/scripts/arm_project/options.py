"""Options of the command line."""

import argparse


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--buffer-size", type=int, default=100_000)
    parser.add_argument("--checkpoint", type=str)
    return parser.parse_args()
