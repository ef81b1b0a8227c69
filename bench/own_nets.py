"""Networks and algorithms of the GPU runs that bench/make_truth.py records: what users write, in our own words.

Imported by the recording interpreter as well, so it needs torch, gymnasium and SB3 only, nothing of legroom.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn
from torch.nn import functional


class _Block(nn.Module):
    """Attention over tokens and a gated layer, each with a norm before and a sum after."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.both = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.gate, self.up, self.down = (
            nn.Linear(width, 2 * width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        normed = self.norm1(x)
        query = self.query(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.both(normed).chunk(2, -1))
        dropout = self.dropout if self.training else 0.0
        seen = functional.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal=causal)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        normed = self.norm2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Patches(BaseFeaturesExtractor):
    """An image cut into patches, a token that gathers, blocks of attention."""

    def __init__(
        self, observation_space: spaces.Box, patch: int = 8, width: int = 128, *, depth: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__(observation_space, width)
        channels, height, breadth = observation_space.shape
        self.cut = nn.Conv2d(channels, width, patch, patch)
        self.gather = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.zeros(1, 1 + (height // patch) * (breadth // patch), width))
        self.blocks = nn.ModuleList([_Block(width, 4, dropout) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.cut(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.gather.expand(len(tokens), -1, -1), tokens], 1) + self.place
        for block in self.blocks:
            x = block(x, None, False)
        return x[:, 0]


class History(BaseFeaturesExtractor):
    """The rows of an observation as a history: causal attention, or attention with a mask of empty rows."""

    def __init__(
        self,
        observation_space: spaces.Box,
        width: int = 128,
        depth: int = 2,
        *,
        dropout: float = 0.0,
        masked: bool = False,
    ) -> None:
        super().__init__(observation_space, width)
        self.masked = masked
        self.embed = nn.Linear(observation_space.shape[1], width)
        self.blocks = nn.ModuleList([_Block(width, 4, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        mask = x.abs().sum(-1).ge(0)[:, None, None, :] if self.masked else None
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, mask, not self.masked)
        return self.norm(x[:, -1])


class Readers(BaseFeaturesExtractor):
    """A few learned queries read the rows of an observation with nn.MultiheadAttention."""

    def __init__(
        self, observation_space: spaces.Box, width: int = 96, heads: int = 4, readers: int = 6, dropout: float = 0.1
    ) -> None:  # fmt: skip
        super().__init__(observation_space, readers * width)
        self.embed = nn.Sequential(nn.Linear(observation_space.shape[1], width), nn.GELU(), nn.Linear(width, width))
        self.readers = nn.Parameter(torch.zeros(1, readers, width))
        self.read = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
        self.among = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, batch_first=True, norm_first=True)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.embed(x)
        found, _ = self.read(self.readers.expand(len(rows), -1, -1), rows, rows, need_weights=False)
        return self.among(found).flatten(1)


class Cells(BaseFeaturesExtractor):
    """Cells on top of each other, step by step through the rows, with a norm between them."""

    def __init__(self, observation_space: spaces.Box, kind: str = "LSTM", hidden: int = 128, depth: int = 2) -> None:
        super().__init__(observation_space, hidden)
        sizes = [observation_space.shape[1]] + [hidden] * (depth - 1)
        self.cells = nn.ModuleList([getattr(nn, f"{kind}Cell")(size, hidden) for size in sizes])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in sizes])
        self.hidden, self.pairs = hidden, kind == "LSTM"

    def forward(self, x: Tensor) -> Tensor:
        empty = x.new_zeros(len(x), self.hidden)
        states: list[Any] = [(empty, empty) if self.pairs else empty for _ in self.cells]
        below = empty
        for step in x.unbind(1):
            below = step
            for index, (cell, norm) in enumerate(zip(self.cells, self.norms, strict=True)):
                states[index] = cell(below, states[index])
                below = norm(states[index][0] if self.pairs else states[index])
        return below


class Layers(BaseFeaturesExtractor):
    """nn.LSTM or nn.GRU in both directions."""

    def __init__(self, observation_space: spaces.Box, kind: str = "GRU", hidden: int = 128, depth: int = 2) -> None:
        super().__init__(observation_space, 2 * hidden)
        self.layers = getattr(nn, kind)(observation_space.shape[1], hidden, depth, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[0].mean(1)


class Dropped(BaseFeaturesExtractor):
    """Residual linear layers with dropout; alpha dropout at the end."""

    def __init__(self, observation_space: spaces.Box, width: int = 512, depth: int = 3, dropout: float = 0.2) -> None:
        super().__init__(observation_space, width)
        self.first = nn.Linear(observation_space.shape[0], width)
        self.inner = nn.ModuleList([
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout))
            for _ in range(depth)
        ])  # fmt: skip
        self.last = nn.AlphaDropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.inner:
            x = x + layer(x)
        return self.last(functional.selu(x))


class Separable(BaseFeaturesExtractor):
    """Wide depthwise convolutions, each followed by a pointwise one; group norms; optionally channels last."""

    def __init__(
        self, observation_space: spaces.Box, width: int = 32, kernel: int = 7, stages: int = 3, last: bool = False
    ) -> None:
        super().__init__(observation_space, width << (stages - 1))
        self.format = torch.channels_last if last else torch.contiguous_format
        layers: list[nn.Module] = [nn.Conv2d(observation_space.shape[0], width, 4, 4)]
        for stage in range(stages):
            size = width << stage
            layers += [
                nn.Conv2d(size, size, kernel, 1, kernel // 2, groups=size),
                nn.GroupNorm(4, size),
                nn.PReLU(size),
            ]
            if stage + 1 < stages:
                layers += [nn.Conv2d(size, 2 * size, 1), nn.SiLU(), nn.MaxPool2d(2)]
        self.net = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.contiguous(memory_format=self.format)).mean((2, 3))


class Tiles(BaseFeaturesExtractor):
    """A map of tile numbers: embedded, with embedded places, through a convolution along the rows."""

    def __init__(
        self, observation_space: spaces.Box, kinds: int = 64, width: int = 32, features_dim: int = 128
    ) -> None:
        super().__init__(observation_space, features_dim)
        rows, columns = observation_space.shape
        self.kinds = nn.Embedding(kinds, width, padding_idx=0)
        self.places = nn.Embedding(rows * columns, width)
        self.register_buffer("numbers", torch.arange(rows * columns))
        self.along = nn.Conv1d(width, 2 * width, 5, 2, 2)
        self.last = nn.Linear(2 * width, features_dim)

    def forward(self, x: Tensor) -> Tensor:
        tiles = self.kinds(x.flatten(1).long()) + self.places(self.numbers)
        return torch.tanh(self.last(functional.mish(self.along(tiles.transpose(1, 2))).amax(2)))


class HalfImage(BaseFeaturesExtractor):
    """Convolutions with batch norm under autocast."""

    def __init__(
        self, observation_space: spaces.Box, dtype: str = "float16", width: int = 32, features_dim: int = 256
    ) -> None:
        super().__init__(observation_space, features_dim)
        self.dtype = getattr(torch, dtype)
        layers: list[nn.Module] = []
        channels = observation_space.shape[0]
        for out in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(channels, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.SiLU()]
            channels = out
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, features_dim))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=self.dtype):
            features = self.net(x)
        return features.float()


class HalfHistory(History):
    """Attention under autocast, with its residual stream cast."""

    def __init__(self, observation_space: spaces.Box, dtype: str = "bfloat16", **rest: Any) -> None:
        super().__init__(observation_space, **rest)
        self.dtype = getattr(torch, dtype)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=self.dtype):
            return super().forward(x).float()


class PpoWithTeacher(PPO):
    """PPO that is pulled towards its policy of before the update, whole rollouts at a time."""

    def train(self) -> None:
        teacher = copy.deepcopy(self.policy).requires_grad_(False)
        super().train()
        for batch in self.rollout_buffer.get(4 * self.batch_size):
            with torch.no_grad():
                taught, _, _ = teacher.evaluate_actions(batch.observations, batch.actions)
            values, chances, _ = self.policy.evaluate_actions(batch.observations, batch.actions)
            loss = functional.smooth_l1_loss(values, taught) + (batch.old_log_prob - chances).square().mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            self.policy.optimizer.step()


class DqnOfTwo(DQN):
    """Double DQN with a Munchausen term, a `train` of its own."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        self.policy.set_training_mode(True)
        assert self.replay_buffer is not None
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            with torch.no_grad():
                best = self.q_net(batch.next_observations).argmax(1, keepdim=True)
                ahead = self.q_net_target(batch.next_observations).gather(1, best)
                likely = functional.log_softmax(self.q_net_target(batch.observations) / 0.03, 1)
                reward = batch.rewards + 0.9 * (0.03 * likely.gather(1, batch.actions.long())).clamp(-1, 0)
                target = reward + (1 - batch.dones) * self.gamma * ahead
            now = self.q_net(batch.observations).gather(1, batch.actions.long())
            loss = functional.huber_loss(now, target)
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps


class SacWithContrast(SAC):
    """SAC and a contrastive loss between an observation and the next."""

    def _setup_model(self) -> None:
        super()._setup_model()
        assert self.observation_space.shape is not None
        self.project = nn.Sequential(
            nn.Linear(self.observation_space.shape[0], 256), nn.ReLU(), nn.Linear(256, 128)
        ).to(self.device)
        self.contrast = torch.optim.AdamW(self.project.parameters(), lr=1e-3)

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        super().train(gradient_steps, batch_size)
        assert self.replay_buffer is not None
        batch = self.replay_buffer.sample(2 * batch_size, env=self._vec_normalize_env)
        now = functional.normalize(self.project(batch.observations.flatten(1)), dim=1)
        later = functional.normalize(self.project(batch.next_observations.flatten(1)), dim=1)
        loss = functional.cross_entropy(now @ later.T / 0.1, torch.arange(len(now), device=self.device))
        self.contrast.zero_grad()
        loss.backward()
        self.contrast.step()
