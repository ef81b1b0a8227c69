"""DQN on pictures with torchrl's modules, its replay buffer and its loss."""

import torch
from tensordict import TensorDict
from torch import nn
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.modules import ConvNet, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pictures = ConvNet(in_features=4, num_cells=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1])
net = nn.Sequential(pictures, nn.LazyLinear(6)).to(device)
net(torch.zeros(1, 4, 84, 84, device=device))  # gives lazy layers their sizes
actor = QValueActor(net, in_keys=["pixels"], spec=OneHot(6).to(device))
loss_of = DQNLoss(actor, action_space="one-hot", delay_value=True)
target = SoftUpdate(loss_of, eps=0.995)
optimizer = torch.optim.Adam(loss_of.parameters(), lr=1e-4)
replay = TensorDictReplayBuffer(storage=LazyTensorStorage(100_000), batch_size=512)

for step in range(10_000):
    frames = torch.randint(0, 256, (16, 4, 84, 84), dtype=torch.uint8)  # stands for 16 steps of a game
    ended = torch.zeros(16, 1, dtype=torch.bool)
    following = {"pixels": frames, "reward": torch.zeros(16, 1), "done": ended, "terminated": ended}
    actions = torch.eye(6, dtype=torch.int64)[torch.randint(6, (16,))]
    replay.extend(TensorDict({"pixels": frames, "action": actions, "next": following}, batch_size=16))
    batch = replay.sample().to(device)
    batch["pixels"] = batch["pixels"].float() / 255
    batch["next", "pixels"] = batch["next", "pixels"].float() / 255
    loss = loss_of(batch)["loss"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    target.step()
