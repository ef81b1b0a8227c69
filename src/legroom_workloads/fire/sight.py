"""A small network for the wildfire agent: every cell looks along its row and its column, and values itself.

Whether a break is worth its while is a matter of lines: how far is it from here to what stops the fire, on either side;
is that the end of a line that waits to be continued; how large is what would be cut in two. Convolutions must be deep
to see that far, and learning it takes longer than a CPU has. Here it is computed: in each of the four directions, the
distance to the next cell that does not burn, or to the edge, and how long the run of bare ground is that begins there;
along row and column, how wide the gap is that a line would close, how evenly it is divided here, and how much of the
line is there already. What follows from it is learnt, by two layers that all cells share, and that also get the mean
over all cells: how much burns at all, how much has been cut. So it is a network of a few thousand parameters, for
rasters of any size.

The value of a set is split in two, as in dueling networks (Wang et al., 2016): what the state is worth, and by how much
a cell is better than the others. The first is far larger than the second, and both are learnt at their own pace.
"""

from __future__ import annotations

import gymnasium as gym
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn
from torch.nn import functional

from legroom_workloads.fire.observation import BREAK_FUEL, CHANNELS, FIRST_LINE, FUEL, LINES

SLOPE = list(CHANNELS).index("slp")
PER_CELL, PER_DIRECTION, PER_AXIS = 3, 5, 5
NEAR = 5  # cells to either side, within which a line is there already or is not


class SightNet(BaseFeaturesExtractor):
    """Turns rasters [B, C, H, W] into one value per cell [B, H·W].

    Args:
        width: of the two hidden layers.
    """

    def __init__(self, observation_space: gym.spaces.Box, width: int = 32) -> None:
        _, height, columns = observation_space.shape
        super().__init__(observation_space, height * columns)
        self.cells = nn.Linear(len(LINES) + PER_CELL + 2 * (2 * PER_DIRECTION + PER_AXIS), width)
        self.again = nn.Linear(width, width)
        self.everywhere = nn.Linear(width, width, bias=False)
        self.better = nn.Linear(width, 1)
        self.worth = nn.Linear(width, 1)
        for last in (self.better, self.worth):  # all cells alike at first
            nn.init.zeros_(last.weight)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            seen = sights(observations).to(self.cells.weight.dtype)
        cells = torch.relu(self.cells(seen))
        cells = torch.relu(self.again(cells) + self.everywhere(cells.mean(dim=1, keepdim=True)))
        better = self.better(cells).squeeze(2)
        return self.worth(cells.mean(dim=1)) + better - better.mean(dim=1, keepdim=True)


def sights(observations: torch.Tensor) -> torch.Tensor:
    """Return what each cell knows and sees, [B, H·W, features], all roughly from 0 to 1."""
    rates = observations[:, FIRST_LINE:]
    burns = (rates > 0).any(dim=1)
    # as shown, a whole number times a scale: half a number is far from any rounding
    bare = (observations[:, FUEL] / CHANNELS["fbfm40"][1] - BREAK_FUEL).abs() < 0.5
    own = torch.stack([burns.to(rates.dtype), bare.to(rates.dtype), observations[:, SLOPE]], dim=1)
    seen = [torch.log1p(20.0 * rates), own]
    edge = max(rates.shape[2:])
    for across in (False, True):
        stops, ground = ((each.transpose(1, 2) if across else each) for each in (~burns, bare))
        axis = _along_rows(stops, ground, edge)
        seen.append(axis.transpose(2, 3) if across else axis)
    return torch.cat(seen, dim=1).flatten(2).transpose(1, 2).contiguous()


def look(stops: torch.Tensor, bare: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how far each cell is from the next to its left that stops the fire, and how long the bare run is there.

    Args:
        stops: bool [B, H, W], cells that do not burn.
        bare: bool [B, H, W], those among them that are bare ground, as breaks are.

    The edge stops the fire as well, and is no bare ground. Both are float32 [B, H, W]; a cell that stops the fire
    itself counts as one step away.
    """
    columns = torch.arange(stops.shape[-1], dtype=torch.float32, device=stops.device)
    last_stop = torch.where(stops, columns, -1.0).cummax(dim=-1).values
    run = columns - torch.where(bare, -1.0, columns).cummax(dim=-1).values
    there = run.gather(-1, last_stop.clamp(min=0).long()) * (last_stop >= 0)
    return (columns - last_stop).clamp(min=1.0), there


def _along_rows(stops: torch.Tensor, bare: torch.Tensor, edge: int) -> torch.Tensor:
    """Return the sights to the left, to the right and of both together, [B, features, H, W]."""
    left, left_run = look(stops, bare)
    right, right_run = (each.flip(-1) for each in look(stops.flip(-1), bare.flip(-1)))
    gap = left + right - 1.0
    there = stops.to(left.dtype)
    near = functional.avg_pool1d(there, 2 * NEAR + 1, stride=1, padding=NEAR)
    axis = [
        torch.log(gap) / 4.0,
        1.0 / gap,
        4.0 * left * right / (left + right) ** 2,
        there.mean(dim=2, keepdim=True).expand_as(there),
        near,
    ]
    return torch.stack([*_one_way(left, left_run, edge), *_one_way(right, right_run, edge), *axis], dim=1)


def _one_way(distance: torch.Tensor, run: torch.Tensor, edge: int) -> list[torch.Tensor]:
    length = torch.log1p(run) / 3.0
    return [torch.log(distance) / 4.0, 1.0 / distance, length, 3.0 * length / distance, distance / edge]
