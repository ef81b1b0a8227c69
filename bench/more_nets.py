"""Networks and algorithms of the held-out GPU runs of `bench.vram`: what users write, in our own words.

Written before any of them was predicted, and never used to find or mend a mechanism.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn
from torch.nn import functional


class Sets(BaseFeaturesExtractor):
    """Rows as a set: inducing points attend to it and back, one seed gathers; weights are returned and used."""

    def __init__(self, observation_space: spaces.Box, width: int = 64, points: int = 8, heads: int = 4) -> None:
        super().__init__(observation_space, width)
        self.embed = nn.Linear(observation_space.shape[1], width)
        self.points = nn.Parameter(torch.randn(1, points, width))
        self.seed = nn.Parameter(torch.randn(1, 1, width))
        self.into, self.back, self.gather = (
            nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(3)
        )  # fmt: skip
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        rows = functional.leaky_relu(self.embed(x))
        inner, weights = self.into(self.points.expand(len(x), -1, -1), rows, rows)
        rows = rows + self.back(rows, inner, inner, need_weights=False)[0] * weights.mean((1, 2), keepdim=True)
        return self.norm(self.gather(self.seed.expand(len(x), -1, -1), rows, rows)[0].squeeze(1))


class Encoder(BaseFeaturesExtractor):
    """nn.TransformerEncoder with norms after, dropout, and a causal mask of floats."""

    def __init__(self, observation_space: spaces.Box, width: int = 96, depth: int = 2, dropout: float = 0.1) -> None:
        super().__init__(observation_space, width)
        rows, features = observation_space.shape
        self.embed = nn.Linear(features, width)
        layer = nn.TransformerEncoderLayer(width, 4, 3 * width, dropout, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(rows))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.embed(x), mask=self.mask).mean(1)


class Rotary(BaseFeaturesExtractor):
    """Rotated queries and keys, few heads for keys and values, RMS norms, a gated layer."""

    def __init__(self, observation_space: spaces.Box, width: int = 128, depth: int = 2) -> None:
        super().__init__(observation_space, width)
        rows, features = observation_space.shape
        self.heads, self.size = 8, width // 8
        self.embed = nn.Linear(features, width, bias=False)
        angles = torch.arange(rows)[:, None] * torch.logspace(0, -3, self.size // 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.blocks = nn.ModuleList([
            nn.ModuleDict({
                "norm1": nn.RMSNorm(width), "norm2": nn.RMSNorm(width), "query": nn.Linear(width, width, bias=False),
                "pair": nn.Linear(width, 2 * width, bias=False), "out": nn.Linear(width, width, bias=False),
                "gate": nn.Linear(width, 4 * width, bias=False), "down": nn.Linear(2 * width, width, bias=False),
            })
            for _ in range(depth)
        ])  # fmt: skip

    def _turned(self, x: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        return torch.cat([one * self.cos - other * self.sin, one * self.sin + other * self.cos], -1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            normed = block["norm1"](x)
            query = self._turned(block["query"](normed).unflatten(-1, (self.heads, -1)).transpose(1, 2))
            key, value = block["pair"](normed).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(query, self._turned(key), value, is_causal=True)
            x = x + block["out"](seen.transpose(1, 2).reshape(x.shape))
            gate, up = block["gate"](block["norm2"](x)).chunk(2, -1)
            x = x + block["down"](functional.gelu(gate) * up)
        return x.amax(1)


class Large(BaseFeaturesExtractor):
    """Wide kernels per channel, then norms and products with channels last, a learned scale on each branch."""

    def __init__(self, observation_space: spaces.Box, width: int = 32, depth: int = 2) -> None:
        super().__init__(observation_space, width)
        self.stem = nn.Conv2d(observation_space.shape[0], width, 4, 4)
        self.wide = nn.ModuleList([nn.Conv2d(width, width, 7, padding=3, groups=width) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
        self.up = nn.ModuleList([nn.Linear(width, 4 * width) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(4 * width, width) for _ in range(depth)])
        self.scales = nn.ParameterList([nn.Parameter(torch.full((width,), 1e-2)) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for wide, norm, up, down, scale in zip(self.wide, self.norms, self.up, self.down, self.scales, strict=True):
            inner = norm(wide(x).permute(0, 2, 3, 1))
            x = x + (scale * down(functional.gelu(up(inner)))).permute(0, 3, 1, 2)
        return x.mean((-2, -1))


class Excited(BaseFeaturesExtractor):
    """Convolutions with instance norms and gates per channel; hard activations, average pools."""

    def __init__(self, observation_space: spaces.Box, width: int = 24, stages: int = 3) -> None:
        super().__init__(observation_space, width << (stages - 1))
        channels = observation_space.shape[0]
        self.convolutions, self.gates = nn.ModuleList(), nn.ModuleList()
        for stage in range(stages):
            out = width << stage
            self.convolutions.append(
                nn.Sequential(nn.Conv2d(channels, out, 5, 2, 2), nn.InstanceNorm2d(out, affine=True), nn.Hardswish())
            )
            self.gates.append(nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(out, out // 4, 1), nn.ReLU(), nn.Conv2d(out // 4, out, 1),
                nn.Hardsigmoid(),
            ))  # fmt: skip
            channels = out

    def forward(self, x: Tensor) -> Tensor:
        for convolution, gate in zip(self.convolutions, self.gates, strict=True):
            x = convolution(x)
            x = x * gate(x)
        return functional.avg_pool2d(x, 2).amax((2, 3))


class Bound(BaseFeaturesExtractor):
    """Linear layers with spectral norms, weight norms and batch norms."""

    def __init__(self, observation_space: spaces.Box, width: int = 256) -> None:
        super().__init__(observation_space, width)
        size = observation_space.shape[0]
        self.layers = nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(size, width)), nn.BatchNorm1d(width), nn.ELU(),
            nn.utils.parametrizations.spectral_norm(nn.Linear(width, width)), nn.BatchNorm1d(width), nn.Softplus(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.Softsign(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Walked(BaseFeaturesExtractor):
    """Cells that step through the rows and look at all of them with attention at every step."""

    def __init__(self, observation_space: spaces.Box, kind: str = "GRU", hidden: int = 96) -> None:
        super().__init__(observation_space, hidden)
        features = observation_space.shape[1]
        self.cell = getattr(nn, f"{kind}Cell")(features + hidden, hidden)
        self.keys, self.query = nn.Linear(features, hidden), nn.Linear(hidden, hidden)
        self.pairs = kind == "LSTM"
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        keys = torch.tanh(self.keys(x))
        hidden = cell = x.new_zeros(len(x), self.hidden)
        for step in range(0, x.shape[1], 2):
            weights = torch.softmax(torch.einsum("bh,brh->br", self.query(hidden), keys), 1)
            given = torch.cat([x[:, step], torch.bmm(weights[:, None], keys)[:, 0]], 1)
            if self.pairs:
                hidden, cell = self.cell(given, (hidden, cell))
            else:
                hidden = self.cell(given, hidden)
        return hidden


class Recalled(BaseFeaturesExtractor):
    """nn.GRU or nn.LSTM in one direction with dropout between layers; the last step counts."""

    def __init__(self, observation_space: spaces.Box, kind: str = "LSTM", hidden: int = 96, depth: int = 2) -> None:
        super().__init__(observation_space, hidden)
        self.layers = getattr(nn, kind)(observation_space.shape[1], hidden, depth, batch_first=True, dropout=0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[0][:, -1]


class Symbols(BaseFeaturesExtractor):
    """Cells of a board as symbols: looked up, counted and scattered into a histogram, then convolved."""

    def __init__(self, observation_space: spaces.Box, symbols: int = 32, width: int = 24) -> None:
        super().__init__(observation_space, 96)
        self.symbols = symbols
        self.table = nn.Embedding(symbols, width)
        self.convolution = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 1, 1), nn.LocalResponseNorm(3), nn.ReLU())
        self.last = nn.Linear(2 * width + symbols, 96)

    def forward(self, x: Tensor) -> Tensor:
        board = x.long().clamp(0, self.symbols - 1)
        seen = self.convolution(self.table(board).permute(0, 3, 1, 2)).flatten(2).mean(2)
        counts = x.new_zeros((len(x), self.symbols), dtype=torch.float32)
        counts = counts.scatter_add(1, board.flatten(1), torch.ones_like(board.flatten(1), dtype=torch.float32))
        return functional.glu(torch.cat([self.last(torch.cat([seen, counts], 1))] * 2, 1), 1)


class HalfMixer(BaseFeaturesExtractor):
    """Products along rows and along features in turn, under autocast."""

    def __init__(self, observation_space: spaces.Box, dtype: str = "bfloat16", width: int = 96, depth: int = 2) -> None:
        super().__init__(observation_space, width)
        rows, features = observation_space.shape
        self.dtype = getattr(torch, dtype)
        self.embed = nn.Linear(features, width)
        self.along = nn.ModuleList([
            nn.Sequential(nn.Linear(rows, 2 * rows), nn.GELU(), nn.Linear(2 * rows, rows)) for _ in range(depth)
        ])  # fmt: skip
        self.across = nn.ModuleList([
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        ])  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=self.dtype):
            x = self.embed(x)
            for along, across in zip(self.along, self.across, strict=True):
                x = x + along(x.transpose(1, 2)).transpose(1, 2)
                x = x + across(x)
            return torch.softmax(x, -1).sum(1).float()


class HalfResidual(BaseFeaturesExtractor):
    """Residual convolutions in half precision with group norms, some of them transposed."""

    def __init__(self, observation_space: spaces.Box, dtype: str = "float16", width: int = 24) -> None:
        super().__init__(observation_space, 2 * width)
        self.dtype = getattr(torch, dtype)
        self.first = nn.Conv2d(observation_space.shape[0], width, 3, 2, 1)
        self.inner = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1))
        self.down = nn.Conv2d(width, 2 * width, 4, 2, 1)
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.last = nn.Conv2d(width, 2 * width, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=self.dtype):
            x = self.first(x)
            x = x + self.inner(x)
            x = x + self.up(functional.silu(self.down(x)))
            features = self.last(x).mean((2, 3))
        return features.float()


class Compiled(BaseFeaturesExtractor):
    """An extractor whose inner network goes through torch.compile with a backend that keeps the operators."""

    def __init__(self, observation_space: spaces.Box, backend: str = "eager", width: int = 192) -> None:
        super().__init__(observation_space, width)
        layers = nn.Sequential(
            nn.Linear(observation_space.shape[0], width), nn.LayerNorm(width), nn.Mish(), nn.Linear(width, width),
        )  # fmt: skip
        self.layers = torch.compile(layers, backend=backend)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ScaledPpo(PPO):
    """PPO whose own updates run under autocast with a gradient scaler."""

    def train(self) -> None:
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
        self.policy.set_training_mode(True)
        for _ in range(self.n_epochs):
            for batch in self.rollout_buffer.get(self.batch_size):
                with torch.autocast("cuda", dtype=torch.float16):
                    values, chances, entropy = self.policy.evaluate_actions(
                        batch.observations, batch.actions.long().flatten()
                    )
                    ratio = torch.exp(chances - batch.old_log_prob)
                    gain = torch.min(ratio * batch.advantages, ratio.clamp(0.8, 1.2) * batch.advantages).mean()
                    loss = functional.mse_loss(values.flatten(), batch.returns) - gain - 0.01 * entropy.mean()
                self.policy.optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.unscale_(self.policy.optimizer)
                nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                scaler.step(self.policy.optimizer)
                scaler.update()


class CuriousPpo(PPO):
    """PPO with a random network that another network learns to predict, after each of its updates."""

    def _setup_model(self) -> None:
        super()._setup_model()
        size = int(torch.tensor(self.observation_space.shape).prod())
        self.fixed, self.guess = (
            nn.Sequential(nn.Flatten(), nn.Linear(size, 256), nn.ReLU(), nn.Linear(256, 128)).to(self.device)
            for _ in range(2)
        )  # fmt: skip
        self.curious = torch.optim.AdamW(self.guess.parameters(), lr=1e-4)

    def train(self) -> None:
        super().train()
        for batch in self.rollout_buffer.get(self.batch_size):
            seen = batch.observations.float()
            with torch.no_grad():
                wanted = self.fixed(seen)
            loss = (self.guess(seen) - wanted).pow(2).mean()
            self.curious.zero_grad(set_to_none=True)
            loss.backward()
            self.curious.step()


class PatientA2c(A2C):
    """A2C that looks at a whole rollout twice, once for its critic alone."""

    def train(self) -> None:
        super().train()
        for batch in self.rollout_buffer.get(batch_size=None):
            values = self.policy.predict_values(batch.observations).flatten()
            loss = functional.huber_loss(values, batch.returns)
            self.policy.optimizer.zero_grad()
            loss.backward()
            self.policy.optimizer.step()


class SoftDqn(DQN):
    """DQN with a soft maximum and an L2 term on features, a `train` of its own."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        self.policy.set_training_mode(True)
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]
            with torch.no_grad():
                best = torch.logsumexp(self.q_net_target(batch.next_observations), 1, keepdim=True)
                wanted = batch.rewards + (1 - batch.dones) * self.gamma * best
            features = self.q_net.extract_features(batch.observations, self.q_net.features_extractor)
            chosen = self.q_net.q_net(features).gather(1, batch.actions.long())
            loss = functional.smooth_l1_loss(chosen, wanted) + 1e-3 * features.pow(2).sum(1).mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps


class SmoothSac(SAC):
    """SAC that smooths its actor after each update."""

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        super().train(gradient_steps, batch_size)
        batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]
        near = batch.observations + 0.01 * torch.randn_like(batch.observations)
        loss = functional.mse_loss(self.actor(near, True), self.actor(batch.observations, True).detach())
        self.actor.optimizer.zero_grad()
        loss.backward()
        self.actor.optimizer.step()


class MarginTd3(TD3):
    """TD3 with a margin between its critics."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        super().train(gradient_steps, batch_size)
        batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]
        one, other = self.critic(batch.observations, batch.actions)
        loss: Any = functional.relu(1.0 - (one - other).abs()).mean()
        self.critic.optimizer.zero_grad()
        loss.backward()
        self.critic.optimizer.step()
