"""Networks and algorithms of the GPU truth runs, written as users write feature extractors, policies and subclasses."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticCnnPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn
from torch.nn import functional


class Cnn3d(BaseFeaturesExtractor):
    """`layers` of [out, kernel, stride, padding] with a ReLU after each, then an average pool and a linear layer."""

    def __init__(self, observation_space: spaces.Box, layers: list[list[int]], pool: int, features: int) -> None:
        super().__init__(observation_space, features)
        blocks: list[nn.Module] = []
        channels = observation_space.shape[0]
        for out, kernel, stride, padding in layers:
            blocks += [nn.Conv3d(channels, out, kernel, stride, padding), nn.ReLU()]
            channels = out
        head = [nn.AdaptiveAvgPool3d(pool), nn.Flatten(), nn.Linear(channels * pool**3, features), nn.ReLU()]
        self.net = nn.Sequential(*blocks, *head)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class _PreActivated(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(functional.relu(x))
        inner = self.second(functional.relu(inner))
        return x + inner


class Impala(BaseFeaturesExtractor):
    """The residual network of IMPALA: per stage a convolution, a max pool and two residual blocks."""

    def __init__(
        self, observation_space: spaces.Box, features_dim: int = 256, stages: tuple[int, ...] = (16, 32, 32)
    ) -> None:
        super().__init__(observation_space, features_dim)
        channels, height, width = observation_space.shape
        layers: list[nn.Module] = []
        for out in stages:
            layers += [nn.Conv2d(channels, out, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
            layers += [_PreActivated(out), _PreActivated(out)]
            channels, height, width = out, -(-height // 2), -(-width // 2)
        head = [nn.Flatten(), nn.ReLU(), nn.Linear(channels * height * width, features_dim), nn.ReLU()]
        self.net = nn.Sequential(*layers, *head)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class ImpalaThatLooks(Impala):
    """Scales its input only where a value says that it is not scaled yet: reads a value."""

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 1.0:
            x = x / 255.0
        return self.net(x)


class _BasicBlock(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.short = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.norm1(self.conv1(x)))
        inner = self.norm2(self.conv2(inner))
        return self.relu(inner + self.short(x))


class ResNet18(BaseFeaturesExtractor):
    """ResNet-18 with batch norm."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 512, width: int = 64) -> None:
        super().__init__(observation_space, features_dim)
        first = nn.Conv2d(observation_space.shape[0], width, 7, 2, 3, bias=False)
        layers: list[nn.Module] = [first, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        channels = width
        for stage in range(4):
            out = width << stage
            layers += [_BasicBlock(channels, out, 2 if stage else 1), _BasicBlock(out, out, 1)]
            channels = out
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, features_dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Transformer(BaseFeaturesExtractor):
    """nn.TransformerEncoder over the rows of the observation, with dropout."""

    def __init__(self, observation_space: spaces.Box, width: int = 128, heads: int = 4, layers: int = 2) -> None:
        super().__init__(observation_space, width)
        rows, columns = observation_space.shape
        self.embed = nn.Linear(columns, width)
        self.position = nn.Parameter(torch.zeros(1, rows, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(self.embed(x) + self.position).mean(1)


class Attention(BaseFeaturesExtractor):
    """Pre-norm self-attention that calls scaled_dot_product_attention itself."""

    def __init__(self, observation_space: spaces.Box, width: int = 256, heads: int = 8, layers: int = 3) -> None:
        super().__init__(observation_space, width)
        self.heads = heads
        self.embed = nn.Linear(observation_space.shape[1], width)
        self.projections = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(layers)])
        self.outputs = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        batch, rows, width = x.shape
        for project, output, norm in zip(self.projections, self.outputs, self.norms, strict=True):
            joint = project(norm(x)).view(batch, rows, 3, self.heads, width // self.heads)
            query, key, value = joint.permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(query, key, value)
            x = x + output(seen.transpose(1, 2).reshape(batch, rows, width))
        return x[:, 0]


class MultiHead(BaseFeaturesExtractor):
    """nn.MultiheadAttention, with or without its weights asked for."""

    def __init__(self, observation_space: spaces.Box, width: int = 64, heads: int = 4, weights: bool = True) -> None:
        super().__init__(observation_space, width)
        self.weights = weights
        self.embed = nn.Linear(observation_space.shape[1], width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        seen, _ = self.attention(x, x, x, need_weights=self.weights)
        return self.norm(x + seen).mean(1)


class Recurrent(BaseFeaturesExtractor):
    """nn.LSTM or nn.GRU over the rows of the observation."""

    def __init__(self, observation_space: spaces.Box, kind: str = "LSTM", hidden: int = 256, layers: int = 1) -> None:
        super().__init__(observation_space, hidden)
        self.rnn = getattr(nn, kind)(observation_space.shape[1], hidden, layers, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0][:, -1]


class RecurrentCell(BaseFeaturesExtractor):
    """An nn.LSTMCell, step by step."""

    def __init__(self, observation_space: spaces.Box, hidden: int = 128) -> None:
        super().__init__(observation_space, hidden)
        self.cell = nn.LSTMCell(observation_space.shape[1], hidden)
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], self.hidden)
        memory = state
        for row in range(x.shape[1]):
            state, memory = self.cell(x[:, row], (state, memory))
        return state


class UNet(BaseFeaturesExtractor):
    """Down, up again with transposed convolutions and skips, enlarged bilinearly, averaged."""

    def __init__(self, observation_space: spaces.Box, width: int = 16) -> None:
        super().__init__(observation_space, 4 * width)
        self.down1 = nn.Conv2d(observation_space.shape[0], width, 3, 2, 1)
        self.down2 = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.down3 = nn.Conv2d(2 * width, 4 * width, 3, 2, 1)
        self.up3 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up2 = nn.ConvTranspose2d(4 * width, width, 2, 2)
        self.last = nn.Conv2d(2 * width, 4 * width, 3, 1, 1)
        self.enlarge = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)

    def forward(self, x: Tensor) -> Tensor:
        half = functional.silu(self.down1(x))
        quarter = functional.silu(self.down2(half))
        eighth = functional.silu(self.down3(quarter))
        up = torch.cat([functional.silu(self.up3(eighth)), quarter], 1)
        up = torch.cat([functional.silu(self.up2(up)), half], 1)
        return self.enlarge(functional.silu(self.last(up))).mean((2, 3))


class Embedded(BaseFeaturesExtractor):
    """A grid of integers through an embedding, then convolutions, as for MiniGrid or NetHack."""

    def __init__(
        self, observation_space: spaces.Box, symbols: int = 512, width: int = 16, features_dim: int = 128
    ) -> None:
        super().__init__(observation_space, features_dim)
        height, breadth = observation_space.shape
        self.embed = nn.Embedding(symbols, width)
        self.conv1 = nn.Conv2d(width, 32, 3, 1, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 2, 1)
        self.linear = nn.Linear(64 * -(-height // 2) * -(-breadth // 2), features_dim)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.long()).permute(0, 3, 1, 2)
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        return functional.relu(self.linear(x.flatten(1)))


class DepthWise(BaseFeaturesExtractor):
    """Depthwise-separable convolutions with squeeze and excitation, as in MobileNet."""

    def __init__(self, observation_space: spaces.Box, width: int = 32) -> None:
        super().__init__(observation_space, 4 * width)
        self.stem = nn.Conv2d(observation_space.shape[0], width, 3, 2, 1)
        self.depth = nn.Conv2d(width, width, 3, 1, 1, groups=width)
        self.point = nn.Conv2d(width, 4 * width, 1)
        self.squeeze = nn.Linear(4 * width, width)
        self.excite = nn.Linear(width, 4 * width)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.stem, self.depth, self.point):
            x = functional.hardswish(layer(x))
        gate = torch.sigmoid(self.excite(functional.relu(self.squeeze(x.mean((2, 3))))))
        return self.pool(x * gate[:, :, None, None]).amax((2, 3))


class Messages(BaseFeaturesExtractor):
    """Message passing along a fixed list of edges: gathered by index, added by index, a GRU cell per node."""

    sources: Tensor
    targets: Tensor

    def __init__(self, observation_space: spaces.Box, width: int = 64, edges: int = 4) -> None:
        super().__init__(observation_space, width)
        nodes, columns = observation_space.shape
        sources = torch.arange(nodes).repeat(edges)
        self.register_buffer("sources", sources)
        self.register_buffer("targets", (sources + torch.arange(nodes * edges) % 7) % nodes)
        self.embed = nn.Linear(columns, width)
        self.message = nn.Linear(2 * width, width)
        self.update = nn.GRUCell(width, width)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.relu(self.embed(x))
        for _ in range(2):
            sent = torch.relu(self.message(torch.cat([state[:, self.sources], state[:, self.targets]], -1)))
            got = torch.zeros_like(state).index_add(1, self.targets, sent)
            state = self.update(got.flatten(0, 1), state.flatten(0, 1)).view_as(state)
        return state.mean(1)


def _nature(observation_space: spaces.Box, features_dim: int) -> tuple[nn.Sequential, nn.Sequential]:
    convolutions = nn.Sequential(
        nn.Conv2d(observation_space.shape[0], 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(),
    )  # fmt: skip
    with torch.no_grad():
        size = convolutions(torch.zeros(1, *observation_space.shape)).shape[1]
    return convolutions, nn.Sequential(nn.Linear(size, features_dim), nn.ReLU())


class MixedCnn(BaseFeaturesExtractor):
    """The Nature CNN under autocast."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 512, dtype: str = "bfloat16") -> None:
        super().__init__(observation_space, features_dim)
        self.dtype = getattr(torch, dtype)
        self.convolutions, self.linear = _nature(observation_space, features_dim)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=self.dtype):
            return self.linear(self.convolutions(x)).float()


class CompiledCnn(BaseFeaturesExtractor):
    """The Nature CNN, compiled."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 512, backend: str = "inductor") -> None:
        super().__init__(observation_space, features_dim)
        self.convolutions, self.linear = _nature(observation_space, features_dim)
        self.compiled = torch.compile(nn.Sequential(self.convolutions, self.linear), backend=backend)

    def forward(self, x: Tensor) -> Tensor:
        return self.compiled(x)


class MixedPolicy(ActorCriticCnnPolicy):
    """All of a policy under autocast; what it hands out is float32."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            actions, values, chances = super().forward(*args, **kwargs)
        return actions, values.float(), chances.float()

    def predict_values(self, obs: Any) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return super().predict_values(obs).float()

    def evaluate_actions(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            values, chances, entropy = super().evaluate_actions(*args, **kwargs)
        return values.float(), chances.float(), None if entropy is None else entropy.float()


class PpoThatRedraws(PPO):
    """PPO whose features have to suffice to draw the observation again: a decoder, trained after each update."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.decoder = nn.Sequential(
            nn.Linear(512, 64 * 7 * 7), nn.ReLU(), nn.Unflatten(1, (64, 7, 7)), nn.ConvTranspose2d(64, 64, 3),
            nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2), nn.ReLU(), nn.ConvTranspose2d(32, 4, 8, 4),
        ).to(self.device)  # fmt: skip
        trained = [*self.decoder.parameters(), *self.policy.features_extractor.parameters()]
        self.redrawing = torch.optim.Adam(trained)

    def train(self) -> None:
        super().train()
        for batch in self.rollout_buffer.get(self.batch_size):
            features = self.policy.extract_features(batch.observations)
            loss = functional.mse_loss(self.decoder(features), batch.observations.float() / 255)
            self.redrawing.zero_grad()
            loss.backward()
            self.redrawing.step()
