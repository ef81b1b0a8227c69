"""More programs for `bench.wrong_fits`, by other mechanisms than those of `wrong_fits_programs`.

They were written before the code was read, in two draws. `SEEN` are of the first draw, which the code was then changed
for; `SECOND` was not run until that was done.
"""

from __future__ import annotations

from bench.wrong_fits_programs import Case

CHILD = """
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
big = torch.ones(2_000_000_000, device="cuda")
for step in range(1000):
    loss = net(torch.randn(64, 1024, device="cuda")).square().mean() + big[0]
    opt.zero_grad(); loss.backward(); opt.step()
"""

SEEN = (
    Case(
        "W1", "walrus in a comprehension", r"""
from stable_baselines3 import DQN
size = 1_000
steps = [size := size * 10 for _ in range(6)]
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=size)
model.learn(2_000_000_000)
""",
        read=True, ram="4GiB",
    ),
    Case(
        "W1", "type of an argument scales", r"""
import argparse
from stable_baselines3 import DQN
parser = argparse.ArgumentParser()
parser.add_argument("--buffer", type=lambda text: int(text) * 1_000_000, default="900")
args = parser.parse_args()
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=args.buffer)
model.learn(2_000_000_000)
""",
        read=True, ram="4GiB",
    ),
    Case(
        "W1", "eight models in a pool of threads", r"""
from concurrent.futures import ThreadPoolExecutor
from stable_baselines3 import DQN

def train(seed):
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=40_000_000, seed=seed)
    model.learn(100_000_000)
    return model

if __name__ == "__main__":
    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(train, range(8)))
""",
        read=True, ram="4GiB",
    ),
    Case(
        "W2", "number of files in a folder", r"""
from stable_baselines3 import DQN
from my_env import MyEnv
model = DQN("MlpPolicy", MyEnv(), buffer_size=100_000)
model.learn(1_000_000)
""",
        files={"my_env.py": r"""
import gymnasium as gym, numpy as np

import os, pathlib
N = 100 * len(os.listdir(pathlib.Path(__file__).parent / "levels"))

class MyEnv(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (N,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(N, np.float32), {}
    def step(self, action):
        return np.zeros(N, np.float32), 0.0, False, False, {}
""", "levels/1": ""},
        later={f"levels/{i}": "" for i in range(2, 201)},
        arguments=("--trust",), read=True, ram="4GiB",
    ),
    Case(
        "W3", "out= grows an empty tensor", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
column = torch.randn(40_000, 1, device="cuda")
row = torch.randn(1, 40_000, device="cuda")
kernel = torch.empty(0, device="cuda")
for step in range(1000):
    loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    torch.mul(column, row, out=kernel)
""",
    ),
    Case(
        "W3", "parameters unsharded through .data", r"""
import torch
from torch import nn
blocks = nn.ModuleList([nn.Linear(8192, 8192, bias=False) for _ in range(20)]).cuda()
shards = []
for block in blocks:
    shard = block.weight.data.flatten()[: 8192 * 1024].clone()
    block.weight.data = torch.empty(0, device="cuda")
    shards.append(shard)
opt = torch.optim.SGD(shards, lr=1e-3)

def unshard(module, args):
    full = torch.empty(8192 * 8192, device="cuda")
    module.weight.data = full.view(8192, 8192)

for block in blocks:
    block.register_forward_pre_hook(unshard)
for step in range(1000):
    x = torch.randn(64, 8192, device="cuda")
    for block in blocks:
        x = block(x)
    x.mean().backward()
    for block, shard in zip(blocks, shards):
        shard.grad = block.weight.grad.flatten()[: 8192 * 1024].clone()
        block.weight.grad = None
    opt.step()
""",
    ),
    Case(
        "W4", "task that nobody awaits", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

import asyncio
async def evaluate():
    await asyncio.sleep(0)
    torch.zeros(2_000_000_000, device="cuda")
async def main():
    task = asyncio.create_task(evaluate())
    for _ in range(20):
        train(10)
        await asyncio.sleep(0)
asyncio.run(main())
""",
    ),
    Case(
        "W4", "less, but only for reading", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

import os
train(20)
try:
    features = torch.zeros(2_000_000_000, device="cuda")
    train()
except RuntimeError:
    with torch.no_grad():
        print("small preview", net(torch.randn(4, 1024, device="cuda")).mean())
    os._exit(0)
""",
    ),
    Case(
        "W5", "generator of arrays", r"""
import torch
from torch import nn
net = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1000)).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
def update(tokens):
    tokens = tokens.cuda()
    loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
    opt.zero_grad(); loss.backward(); opt.step()

import numpy as np
rng = np.random.default_rng(0)
def epoch():
    for i in range(5000):
        length = 40 if i != 3100 else 500_000
        yield torch.from_numpy(rng.integers(0, 1000, (1, length)))
for _ in range(5):
    for tokens in epoch():
        update(tokens)
""",
    ),
    Case(
        "W5", "loader of the epoch", r"""
import torch
from torch import nn
net = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1000)).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
def update(tokens):
    tokens = tokens.cuda()
    loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
    opt.zero_grad(); loss.backward(); opt.step()

from torch.utils.data import DataLoader, TensorDataset
def loader(epoch):
    length = 64 if epoch < 6 else 8192
    return DataLoader(TensorDataset(torch.zeros(640, length, dtype=torch.long)), batch_size=64, shuffle=True)
for epoch in range(12):
    for (tokens,) in loader(epoch):
        update(tokens)
""",
    ),
    Case(
        "W6", "column of objects", r"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
net = nn.Linear(16, 16)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def fit(loader, epochs=50):
    for epoch in range(epochs):
        for x in loader:
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()

import pandas as pd
class Table(Dataset):
    def __init__(self):
        self.frame = pd.DataFrame({"tags": pd.Series([(f"tag-{i}", f"place-{i % 977}-{i}", i + 1000) for i in range(1_600_000)], dtype=object)})
    def __len__(self): return len(self.frame)
    def __getitem__(self, i): return torch.full((16,), float(len(self.frame["tags"].iloc[i])))
if __name__ == "__main__":
    fit(DataLoader(Table(), batch_size=512, shuffle=True, num_workers=8))
""",
        ram="2GiB", arguments=("--cpu-only",),
    ),
    Case(
        "W6", "forked pool over a global list", r"""
import multiprocessing as mp
import torch
from torch import nn
ITEMS = [(f"position {i} of a game", i, float(i)) for i in range(1_600_000)]

def score(part):
    start, stop = part
    total = 0
    for i in range(start, stop):
        text, n, x = ITEMS[(i * 7919) % len(ITEMS)]
        total += len(text)
    return total

if __name__ == "__main__":
    net = nn.Linear(16, 16)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    with mp.get_context("fork").Pool(8) as pool:
        for step in range(2000):
            totals = pool.map(score, [(step * 8000 + k * 1000, step * 8000 + (k + 1) * 1000) for k in range(8)])
            loss = net(torch.randn(64, 16)).square().mean() * totals[0] * 1e-9
            opt.zero_grad(); loss.backward(); opt.step()
""",
        ram="2GiB", arguments=("--cpu-only",),
    ),
    Case(
        "W7", "memory file that grows", r"""
import torch
from torch import nn
net = nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def update():
    loss = net(torch.randn(32, 64)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

import os
handle = os.memfd_create("episodes")
for step in range(200_000):
    update()
    os.write(handle, bytes(32_768))
""",
        ram="2GiB", arguments=("--cpu-only",),
    ),
    Case(
        "W7", "few bytes over many steps", r"""
import torch
from torch import nn
net = nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def update():
    loss = net(torch.randn(32, 64)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

import collections
Transition = collections.namedtuple("Transition", "state action reward")
episodes = collections.defaultdict(collections.deque)
for step in range(30_000_000):
    update()
    episodes[step // 500].append(Transition(float(step), step + 300, float(step) / 3))
""",
        ram="2GiB", arguments=("--cpu-only",),
    ),
    Case(
        "W8", "snapshots of the best", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

import copy
net = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(3)]).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
best, history = torch.tensor(1e9, device="cuda"), []
for step in range(2000):
    loss = net(torch.randn(64, 4096, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if loss.detach() < best:
        best = loss.detach()
        history.append({k: v.clone() for k, v in net.state_dict().items()})
""",
    ),
    Case(
        "W8", "as many passes as predicted", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

head = nn.Linear(1024, 1).cuda()
opt = torch.optim.Adam([*net.parameters(), *head.parameters()])
for step in range(2000):
    x = torch.randn(4096, 1024, device="cuda")
    passes = int(head(x).abs().mean().item() * 1000) + 100
    for _ in range(passes):
        x = torch.tanh(net(x)) + x
    loss = x.mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W8", "one prototype per predicted class", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

classes = nn.Linear(1024, 100_000).cuda()
prototypes = {}
for step in range(100_000):
    x = torch.randn(1, 1024, device="cuda")
    k = classes(net(x)).argmax().item()
    if k not in prototypes:
        prototypes[k] = torch.zeros(512, 1024, device="cuda")
    prototypes[k].mul_(0.9)
    loss = net(x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W9", "replaced by an isolated interpreter", r"""
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
os.execve(sys.executable, [sys.executable, "-I", os.path.join(here, "child.py")], {"PATH": os.environ["PATH"]})
""",
        files={"child.py": CHILD},
    ),
    Case(
        "late", "timer", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

import threading
def validation():
    global table
    table = torch.ones(2_000_000_000, device="cuda")
timer = threading.Timer(300, validation)
timer.daemon = True
timer.start()
train(5_000_000)
""",
    ),
    Case(
        "late", "end of a with block", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

class Experiment:
    def __enter__(self): return self
    def __exit__(self, *error):
        self.report = torch.ones(2_000_000_000, device="cuda").mean()
with Experiment():
    train(5_000_000)
""",
    ),
    Case(
        "late", "resolution grows with the step", r"""
import torch
from torch import nn
net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 3, 3, padding=1)).cuda()
opt = torch.optim.Adam(net.parameters())
def resolution(step):
    return min(32 * 2 ** (step // 20_000), 2048)
for step in range(200_000):
    side = resolution(step)
    x = torch.randn(8, 3, side, side, device="cuda")
    loss = (net(x) - x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "late", "phases from a generator", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

def phases():
    yield 64, 50_000
    yield 512, 50_000
    yield 700_000, 50_000
for batch, steps in phases():
    for _ in range(steps):
        loss = net(torch.randn(batch, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "fits", "settings in a dictionary", r"""
import torch
from sb3_contrib import QRDQN
CONFIG = {
    "policy": "MlpPolicy",
    "buffer_size": 50_000,
    "batch_size": 128,
    "policy_kwargs": {"net_arch": [64, 64], "activation_fn": torch.nn.ReLU},
}
if torch.cuda.is_available():
    CONFIG["device"] = "cuda"
model = QRDQN(env="CartPole-v1", **CONFIG)
model.learn(200_000, log_interval=4)
""",
        read=True, ram="4GiB",
    ),
    Case(
        "fits", "three seeds", r"""
from stable_baselines3 import PPO
for seed in (0, 1, 2):
    model = PPO("MlpPolicy", "CartPole-v1", seed=seed, n_steps=512)
    model.learn(50_000)
    model.save(f"seed-{seed}")
""",
        read=True, ram="4GiB",
    ),
    Case(
        "fits", "images with workers", r"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = TensorDataset(torch.randint(0, 255, (2000, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 10, (2000,)))
    loader = DataLoader(data, batch_size=128, shuffle=True, num_workers=2, pin_memory=True)
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
    opt = torch.optim.Adam(net.parameters())
    for epoch in range(5):
        for x, y in loader:
            x, y = x.cuda(non_blocking=True).float() / 255, y.cuda()
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
        print(epoch, loss.item())
    torch.save(net.state_dict(), "net.pt")
""",
    ),
    Case(
        "fits", "policy gradient", r"""
import gymnasium as gym
import torch
from torch import nn
device = "cuda" if torch.cuda.is_available() else "cpu"
env = gym.make("CartPole-v1")
net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(300):
    obs, _ = env.reset()
    logs, rewards, over = [], [], False
    while not over:
        dist = torch.distributions.Categorical(logits=net(torch.as_tensor(obs, device=device)))
        action = dist.sample()
        obs, reward, done, cut, _ = env.step(action.item())
        logs.append(dist.log_prob(action)); rewards.append(reward)
        over = done or cut
    loss = -torch.stack(logs).sum() * sum(rewards)
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "fits", "replay in a deque", r"""
import random
from collections import deque
import gymnasium as gym
import numpy as np
import torch
from torch import nn
env = gym.make("CartPole-v1")
q = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2)).cuda()
target = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2)).cuda()
target.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters())
memory = deque(maxlen=20_000)
obs, _ = env.reset()
for step in range(50_000):
    action = env.action_space.sample() if random.random() < 0.1 else q(torch.from_numpy(obs).cuda()).argmax().item()
    nxt, reward, done, cut, _ = env.step(action)
    memory.append((obs, action, reward, nxt, done))
    obs = env.reset()[0] if done or cut else nxt
    if len(memory) >= 64:
        o, a, r, n, d = map(np.array, zip(*random.sample(memory, 64)))
        o, n = torch.from_numpy(o).cuda(), torch.from_numpy(n).cuda()
        with torch.no_grad():
            goal = torch.as_tensor(r, device="cuda").float() + 0.99 * target(n).max(1).values * (1 - torch.as_tensor(d, device="cuda").float())
        loss = nn.functional.smooth_l1_loss(q(o).gather(1, torch.as_tensor(a, device="cuda")[:, None])[:, 0], goal)
        opt.zero_grad(); loss.backward(); opt.step()
    if step % 500 == 0:
        target.load_state_dict(q.state_dict())
""",
    ),
    Case(
        "fits", "validation after each epoch", r"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
data = TensorDataset(torch.randn(5000, 20), torch.randn(5000, 1))
train, val = random_split(data, [4000, 1000])
net = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 1)).cuda()
opt = torch.optim.RMSprop(net.parameters())
for epoch in range(10):
    net.train()
    for x, y in DataLoader(train, batch_size=64, shuffle=True):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        total = sum(nn.functional.mse_loss(net(x.cuda()), y.cuda()).item() for x, y in DataLoader(val, batch_size=256))
    print(epoch, total)
""",
    ),
)  # fmt: skip

SECOND = (
    Case(
        "W1", "closure with nonlocal", r"""
from stable_baselines3 import DQN

def settings():
    size = 1_000
    def scale():
        nonlocal size
        size *= 1_000_000
    scale()
    return {"buffer_size": size}

model = DQN("MlpPolicy", "CartPole-v1", **settings())
model.learn(2_000_000_000)
""",
        read=True, ram="4GiB",
    ),
    Case(
        "W1", "array beside the model", r"""
import numpy as np
from stable_baselines3 import DQN
expert = np.ones((100_000, 84, 84, 4), dtype=np.float32)
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=10_000)
model.learn(100_000)
print(expert.mean())
""",
        read=True, ram="4GiB",
    ),
    Case(
        "W2", "variable read by C getenv", r"""
from stable_baselines3 import DQN
from my_env import MyEnv
model = DQN("MlpPolicy", MyEnv(), buffer_size=100_000)
model.learn(1_000_000)
""",
        files={"my_env.py": r"""
import gymnasium as gym, numpy as np

import ctypes
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
N = int(getenv(b"MY_LEVEL_SIZE") or 100)

class MyEnv(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (N,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(N, np.float32), {}
    def step(self, action):
        return np.zeros(N, np.float32), 0.0, False, False, {}
"""},
        variables={"MY_LEVEL_SIZE": "20000"},
        arguments=("--trust",), read=True, ram="4GiB",
    ),
    Case(
        "W2", "symlink turned to another file", r"""
from stable_baselines3 import DQN
from my_env import MyEnv
model = DQN("MlpPolicy", MyEnv(), buffer_size=100_000)
model.learn(1_000_000)
""",
        files={"my_env.py": r"""
import gymnasium as gym, numpy as np

import json, pathlib
N = json.loads((pathlib.Path(__file__).parent / "current" / "size.json").read_text())

class MyEnv(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (N,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(N, np.float32), {}
    def step(self, action):
        return np.zeros(N, np.float32), 0.0, False, False, {}
""", "s/size.json": "100", "l/size.json": "20000", "current": "-> s"},
        later={"current": "-> l"},
        arguments=("--trust",), read=True, ram="4GiB",
    ),
    Case(
        "W3", "the allocator asked directly", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
arena = torch.cuda.caching_allocator_alloc(5_000_000_000)
for step in range(1000):
    loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W3", "resize_ inside a hook of backward", r"""
import torch
from torch import nn
net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
bucket = torch.zeros(16, device="cuda")
net[0].weight.register_hook(lambda grad: (bucket.resize_(1_400_000_000), grad)[1])
for step in range(1000):
    loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W4", "child with its errors discarded", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

import subprocess, sys
train(20)
subprocess.run([sys.executable, "-c", "import torch; torch.ones(2_000_000_000, device='cuda')"], check=False, stderr=subprocess.DEVNULL)
train()
""",
    ),
    Case(
        "W4", "weakref.finalize", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

import weakref
class Run: pass
run = Run()
weakref.finalize(run, lambda: torch.ones(2_000_000_000, device="cuda"))
train(50)
run = None
train(50)
""",
    ),
    Case(
        "W5", "next() on an iterator", r"""
import torch
from torch import nn
net = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1000)).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
def update(tokens):
    tokens = tokens.cuda()
    loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
    opt.zero_grad(); loss.backward(); opt.step()

from torch.utils.data import DataLoader
lengths = [50] * 6000
lengths[5000] = 600_000
loader = DataLoader(lengths, batch_size=1, collate_fn=lambda b: torch.zeros(1, b[0], dtype=torch.long))
stream = iter(loader)
step = 0
while step < 6000:
    tokens = next(stream)
    update(tokens)
    step += 1
""",
    ),
    Case(
        "W5", "two loaders in step", r"""
import torch
from torch import nn
net = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1000)).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
def update(tokens):
    tokens = tokens.cuda()
    loss = nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
    opt.zero_grad(); loss.backward(); opt.step()

from torch.utils.data import DataLoader
labelled = DataLoader([32] * 2000, batch_size=1, collate_fn=lambda b: torch.zeros(1, b[0], dtype=torch.long))
other = [32] * 2000
other[1500] = 600_000
unlabelled = DataLoader(other, batch_size=1, collate_fn=lambda b: torch.zeros(1, b[0], dtype=torch.long))
for epoch in range(5):
    for i, (a, b) in enumerate(zip(labelled, unlabelled)):
        update(a)
        update(b)
""",
    ),
    Case(
        "W6", "nested lists of numbers", r"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
net = nn.Linear(16, 16)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def fit(loader, epochs=50):
    for epoch in range(epochs):
        for x in loader:
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()

class Games(Dataset):
    def __init__(self): self.games = [[(g * 300 + k) * 1009 for k in range(8)] for g in range(900_000)]
    def __len__(self): return len(self.games)
    def __getitem__(self, i): return torch.tensor(self.games[i] + self.games[-i], dtype=torch.float32)
if __name__ == "__main__":
    fit(DataLoader(Games(), batch_size=128, shuffle=True, num_workers=8))
""",
        ram="2GiB", arguments=("--cpu-only",),
    ),
    Case(
        "W6", "each worker opens its own index", r"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
net = nn.Linear(16, 16)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def fit(loader, epochs=50):
    for epoch in range(epochs):
        for x in loader:
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()

class Index(Dataset):
    def __init__(self): self.index = None
    def __len__(self): return 500_000
    def __getitem__(self, i):
        if self.index is None:
            self.index = {k: str(k) * 4 for k in range(2_500_000)}
        return torch.full((16,), float(len(self.index[i])))
if __name__ == "__main__":
    fit(DataLoader(Index(), batch_size=64, num_workers=8))
""",
        ram="2GiB", arguments=("--cpu-only",),
    ),
    Case(
        "W7", "array that is extended", r"""
import torch
from torch import nn
net = nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def update():
    loss = net(torch.randn(32, 64)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

import array
rewards = array.array("d")
for step in range(100_000_000):
    update()
    rewards.extend((1.0,) * 16)
""",
        ram="2GiB", arguments=("--cpu-only",),
    ),
    Case(
        "W7", "anonymous shared map in a worker", r"""
import torch
from torch import nn
net = nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def update():
    loss = net(torch.randn(32, 64)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss

import mmap, os, time
block = mmap.mmap(-1, 3_000_000_000)
if os.fork() == 0:
    for i in range(0, 3_000_000_000, 4096):
        block[i] = 1
    time.sleep(600)
    os._exit(0)
for step in range(50_000):
    update()
""",
        ram="2GiB", arguments=("--cpu-only",),
    ),
    Case(
        "W8", "until the error is small", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

for step in range(500):
    x = torch.randn(4096, 1024, device="cuda")
    target = torch.zeros(4096, 1024, device="cuda")
    states = [x]
    while (states[-1] - target).norm().item() > 1e-3 and len(states) < 600:
        states.append(states[-1] - 0.01 * net(states[-1]))
    loss = torch.stack(states[-2:]).mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W8", "pairs that torch.nonzero finds", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

for step in range(500):
    points = torch.randn(60_000, 3, device="cuda")
    near = (torch.cdist(points[:30_000], points[30_000:]) < 10.0).nonzero()
    edges = torch.randn(near.shape[0], 64, device="cuda")
    loss = net(torch.randn(64, 1024, device="cuda")).square().mean() + edges.mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W9", "isolated child of an isolated child", r"""
import os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
code = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-u', {here + '/child.py'!r}], env=dict())"
subprocess.run([sys.executable, "-I", "-c", code], env={})
""",
        files={"child.py": CHILD},
    ),
    Case(
        "W9", "no site, path set by hand", r"""
import os, subprocess, sys, torch
here = os.path.dirname(os.path.abspath(__file__))
packages = os.path.dirname(os.path.dirname(torch.__file__))
code = f"import sys; sys.path.append({packages!r}); exec(open({here + '/child.py'!r}).read())"
subprocess.run([sys.executable, "-S", "-E", "-c", code], env={"HOME": "/tmp"})
""",
        files={"child.py": CHILD},
    ),
    Case(
        "late", "hook of the scheduler", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

kept = []
def rate(step):
    if step == 30_000:
        kept.append(torch.ones(2_000_000_000, device="cuda"))
    return 0.999 ** step
schedule = torch.optim.lr_scheduler.LambdaLR(opt, rate)
for step in range(60_000):
    loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step(); schedule.step()
""",
    ),
    Case(
        "late", "stages by name", r"""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(steps=1000):
    for step in range(steps):
        loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

class Recipe:
    def stage_pretrain(self): train(200_000)
    def stage_finetune(self):
        self.teacher = torch.ones(2_000_000_000, device="cuda")
        train(1000)
    def run(self):
        for name in ("pretrain", "finetune"):
            getattr(self, f"stage_{name}")()
Recipe().run()
""",
    ),
    Case(
        "fits", "environment from a list", r"""
import os
import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import SubprocVecEnv
os.makedirs("logs", exist_ok=True)
if __name__ == "__main__":
    envs = SubprocVecEnv([lambda: gym.make("CartPole-v1") for _ in range(2)])
    model = PPO("MlpPolicy", envs, tensorboard_log="logs")
    model.learn(100_000)
""",
        read=True, ram="4GiB",
    ),
    Case(
        "fits", "wrapper of gymnasium", r"""
import gymnasium as gym
from gymnasium.wrappers import TimeLimit, RescaleAction
from stable_baselines3 import SAC
env = RescaleAction(TimeLimit(gym.make("Pendulum-v1"), 100), -1, 1)
model = SAC("MlpPolicy", env, buffer_size=100_000)
model.learn(50_000)
""",
        read=True, ram="4GiB",
    ),
    Case(
        "fits", "loaded and continued", r"""
import os
from stable_baselines3 import DQN
path = "model.zip"
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=50_000)
if os.path.exists(path):
    model.set_parameters(path)
model.learn(100_000)
model.save(path)
""",
        read=True, ram="4GiB",
    ),
    Case(
        "fits", "jax", r"""
import jax, jax.numpy as jnp, optax
params = {"w": jnp.zeros((512, 512)), "b": jnp.zeros(512)}
tx = optax.adam(1e-3)
state = tx.init(params)
@jax.jit
def step(params, state, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"] + p["b"] - x) ** 2))(params)
    updates, state = tx.update(grads, state)
    return optax.apply_updates(params, updates), state, loss
key = jax.random.PRNGKey(0)
for i in range(1000):
    key, k = jax.random.split(key)
    params, state, loss = step(params, state, jax.random.normal(k, (256, 512)))
""",
    ),
    Case(
        "fits", "accumulated gradients and ema", r"""
import copy
import torch
from torch import nn
net = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)).cuda()
ema = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.AdamW(net.parameters())
for step in range(4000):
    x = torch.randn(128, 512, device="cuda")
    (nn.functional.mse_loss(net(x), x) / 4).backward()
    if (step + 1) % 4 == 0:
        opt.step()
        opt.zero_grad()
        with torch.no_grad():
            for a, b in zip(ema.parameters(), net.parameters()):
                a.lerp_(b, 0.01)
""",
    ),
    Case(
        "fits", "autoencoder on arrays", r"""
import numpy as np
import torch
from torch import nn
rng = np.random.default_rng(0)
images = rng.random((3000, 1, 28, 28), dtype=np.float32)
enc = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14 * 14, 32)).cuda()
dec = nn.Sequential(nn.Linear(32, 784), nn.Sigmoid()).cuda()
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()])
for epoch in range(30):
    order = rng.permutation(len(images))
    for i in range(0, len(order), 100):
        x = torch.from_numpy(images[order[i : i + 100]]).cuda()
        loss = nn.functional.mse_loss(dec(enc(x)), x.flatten(1))
        opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
)  # fmt: skip
