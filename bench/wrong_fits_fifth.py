"""A fifth draw of programs for `bench.wrong_fits`, held out: written from the table of classes alone, before its first run.

The comment of each says why it does not fit. The last ten are ordinary programs with comfortable room.
"""

from __future__ import annotations

from bench.wrong_fits_programs import GPU, HOST, SB3, Case, listed, script

# CartPole in DQN: 4 floats before and after, an action of 8 bytes, a reward, two flags: 52 bytes per transition.
W1 = """
# --- chain of settings --begin SB3
#: The setting is taken from a chain of dictionaries whose first one wins: 90,000,000 transitions, 4.7 GB.
from collections import ChainMap
defaults = {"buffer_size": 50_000, "learning_rate": 1e-4}
local = {"buffer_size": 90_000_000}
settings = ChainMap(local, defaults)
model = DQN("MlpPolicy", "CartPole-v1", **settings)
model.learn(10**9)
# --- product by reduce --begin SB3
#: functools.reduce multiplies: 10 * 30 * 300 * 1000 = 90,000,000.
import functools, operator
size = functools.reduce(operator.mul, (10, 30, 300, 1000))
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=size)
model.learn(10**9)
# --- decorated settings --begin SB3
#: A class attribute is changed by a decorator: 90,000,000.
def production(cls):
    cls.buffer_size = 90_000_000
    return cls
@production
class Settings:
    buffer_size = 50_000
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=Settings.buffer_size)
model.learn(10**9)
# --- settings that compute --begin SB3
#: __getattr__ of the settings' module-like object scales what it returns.
class Settings(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) * 1800
settings = Settings(buffer_size=50_000)
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=settings["buffer_size"])
model.learn(10**9)
# --- list filled by a helper --begin SB3
#: The env's observation grows with a list that a helper appends to: 60,000 floats, 200,000 transitions: 96 GB.
import gymnasium as gym, numpy as np
sensors = ["front"]
def add_rays(n):
    sensors.extend(f"ray{i}" for i in range(n))
add_rays(60_000)
class Rays(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (len(sensors),), np.float32)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(len(sensors), np.float32), {}
    def step(self, action):
        return np.zeros(len(sensors), np.float32), 0.0, False, False, {}
model = DQN("MlpPolicy", Rays(), buffer_size=200_000)
model.learn(10**6)
# --- walrus in a call --begin SB3
#: The size is bound by a walrus in an argument before it: 90,000,000.
n = 50_000
print("training", (n := n * 1800), "transitions")
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=n)
model.learn(10**9)
# --- partial of the class --begin SB3
#: partial carries the size: 90,000,000.
from functools import partial
Big = partial(DQN, buffer_size=90_000_000)
agents = {"small": DQN, "big": Big}
model = agents["big"]("MlpPolicy", "CartPole-v1")
model.learn(10**9)
# --- setup called again --begin SB3
#: PPO's rollout is replaced after construction: 2,000,000 steps of 8 environments of (4,) with all fields: 0.6 GB x 2,
#: and set_parameters keeps it; the n_steps of the model are changed by its setup once more: 9.6 GB.
model = PPO("MlpPolicy", "CartPole-v1", n_steps=2048)
vars(model).update(n_steps=40_000_000)
model._setup_model()
model.learn(10**9)
"""

ENV = """
import json, os, pathlib
import gymnasium as gym, numpy as np
HERE = pathlib.Path(__file__).parent
class Grid(gym.Env):
    def __init__(self):
        n = {size}
        self.observation_space = gym.spaces.Box(-1, 1, (n,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {{}}
    def step(self, action):
        return np.zeros(self.observation_space.shape, np.float32), 0.0, False, False, {{}}
"""
GRID = """
from stable_baselines3 import DQN
from grid import Grid
model = DQN("MlpPolicy", Grid(), buffer_size=100_000)
model.learn(200_000)
"""


def grid(name: str, size: str, **more: object) -> Case:
    """An environment whose size changes between two predictions: 5,000 floats, twice, 100,000 times are 4 GB."""
    files = {"grid.py": ENV.format(size=size), **more.pop("files", {})}  # type: ignore[dict-item]
    return Case("W2", name, GRID, ram="3GiB", read=True, files=files, arguments=("--trust",), **more)  # type: ignore[arg-type]


W2 = (
    grid("number of files", "16 + 2_500 * (len(list(HERE.glob('map*.txt'))) - 1)", files={"map1.txt": ""},
         later={"map2.txt": "", "map3.txt": ""}),
    grid("age of a file", "16 if (HERE / 'map').stat().st_size < 10 else 5_000", files={"map": "x"},
         later={"map": "x" * 20}),
    grid("TOML of settings", "__import__('tomllib').loads((HERE / 'a.toml').read_text())['n']", files={"a.toml": "n = 16"},
         later={"a.toml": "n = 5000"}),
    grid("variable by getenvb", "int(os.environb.get(b'GRID_N', b'16'))", variables={"GRID_N": "5000"}),
    grid("database", "__import__('sqlite3').connect(HERE / 'a.db').execute('pragma user_version').fetchone()[0] * 5_000 + 16",
         files={"a.db": ""}, later={"grid.py": ENV.format(size="5_000")}),
)  # fmt: skip

W3 = """
# --- flat buffer enlarged --begin GPU
#: Views share one storage that is enlarged to 6 GB.
flat = torch.empty(0, device="cuda")
for step in range(2000):
    if step == 3:
        flat.untyped_storage().resize_(6 << 30)
    update()
# --- set_ keeps both --begin GPU
#: Tensor.resize_ and set_: two storages of 3 GB.
a = torch.empty(1, device="cuda")
b = torch.empty(1, device="cuda")
a.resize_(3 << 28)
b.set_(torch.UntypedStorage(3 << 30, device="cuda"), 0, (3 << 28,), (1,))
for step in range(2000):
    update()
# --- all gathered at once --begin GPU
#: FSDP's way: storage freed, and gathered again for all of 24 layers before the first is freed.
full = [torch.empty(64 << 20, device="cuda") for _ in range(24)] if False else []
for _ in range(24):
    one = torch.empty(64 << 20, device="cuda")
    one.untyped_storage().resize_(0)
    full.append(one)
for step in range(1000):
    for one in full:
        one.untyped_storage().resize_(256 << 20)
    update()
    for one in full:
        one.untyped_storage().resize_(0)
"""

W4 = """
# --- callback of a future --begin GPU
#: The error is logged by the thread pool's callback and lost.
from concurrent.futures import ThreadPoolExecutor
def prefetch():
    return torch.zeros(6 << 30, dtype=torch.uint8, device="cuda")
with ThreadPoolExecutor() as pool:
    pool.submit(prefetch).add_done_callback(lambda done: print("prefetched", done.exception() is None))
for step in range(300):
    update()
# --- return in finally --begin GPU
#: return in finally swallows it.
def warm():
    try:
        return torch.zeros(6 << 30, dtype=torch.uint8, device="cuda")
    finally:
        return None
warm()
for step in range(300):
    update()
# --- task group --begin GPU
#: except* of a group of tasks.
import asyncio
async def cache():
    return torch.zeros(6 << 30, dtype=torch.uint8, device="cuda")
async def main():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(cache())
    except* RuntimeError as errors:
        print("cache off", len(errors.exceptions))
asyncio.run(main())
for step in range(300):
    update()
# --- guard object --begin GPU
#: An __exit__ that returns True.
class Guard:
    def __enter__(self): return self
    def __exit__(self, *about): return True
for step in range(300):
    with Guard():
        big = torch.ones(6 << 30, dtype=torch.uint8, device="cuda")
    update()
"""

DATA = GPU + "from torch.utils.data import DataLoader, Dataset, IterableDataset\n"
W5 = """
# --- one long episode --begin DATA
#: Sequence 7,777 has 3,000,000 rows of 256 floats: 3 GB, and its hidden layer 12 GB.
class Episodes(Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, i): return torch.zeros(3_000_000 if i == 7_777 else 50, 256)
for epoch in range(3):
    for rows in DataLoader(Episodes(), batch_size=None, shuffle=True):
        opt.zero_grad(); net(rows.cuda()).mean().backward(); opt.step()
# --- validation has the longest --begin DATA
#: Padded to the longest of its batch, and the longest is in the validation set.
lengths = {"train": [64] * 4_000, "val": [64] * 500 + [2_000_000]}
def batches(name, size=16):
    for i in range(0, len(lengths[name]), size):
        part = lengths[name][i:i + size]
        yield torch.zeros(len(part) * max(part), 256)
for epoch in range(5):
    for rows in batches("train"):
        opt.zero_grad(); net(rows.cuda()).mean().backward(); opt.step()
    with torch.no_grad():
        for rows in batches("val"):
            net(rows.cuda()).mean()
# --- stream of shards --begin DATA
#: Unpadded stream: shard 400 is long.
class Stream(IterableDataset):
    def __iter__(self):
        for shard in range(1_000):
            for _ in range(20):
                yield torch.zeros(2_500_000 if shard == 400 else 64, 256)
for rows in DataLoader(Stream(), batch_size=None):
    opt.zero_grad(); net(rows.cuda()).mean().backward(); opt.step()
# --- buckets, shortest first --begin DATA
#: Buckets sorted by length, shortest first.
class Words(Dataset):
    def __init__(self): self.lengths = sorted([32] * 30_000 + [700_000] * 8)
    def __len__(self): return len(self.lengths)
    def __getitem__(self, i): return torch.zeros(self.lengths[i], 256)
def pad(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)
for rows in DataLoader(Words(), batch_size=4, collate_fn=pad):
    opt.zero_grad(); net(rows.cuda()).mean().backward(); opt.step()
"""

W6 = """
# --- list of tuples --begin HOST --ram 1536MiB --cpu-only
#: 4,000,000 tuples touched by ten workers.
from torch.utils.data import DataLoader, Dataset
class Pairs(Dataset):
    def __init__(self): self.rows = [(i, f"{i:x}") for i in range(2_000_000)]
    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return len(self.rows[i][1])
for epoch in range(50):
    for batch in DataLoader(Pairs(), batch_size=2048, shuffle=True, num_workers=10):
        update()
# --- dictionary of arrays --begin HOST --ram 1200MiB --cpu-only
#: A dictionary of small arrays.
from torch.utils.data import DataLoader, Dataset
class Cells(Dataset):
    def __init__(self): self.rows = {i: np.zeros(8, np.float32) for i in range(1_500_000)}
    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return self.rows[i].sum()
loader = DataLoader(Cells(), batch_size=1024, shuffle=True, num_workers=8, persistent_workers=True)
for epoch in range(50):
    for batch in loader:
        update()
"""

W7 = """
# --- deque of frames --begin HOST --cpu-only
#: A deque without an end keeps 10 KB per step, 1,000,000 steps: 10 GB.
from collections import deque
frames = deque()
for step in range(1_000_000):
    frames.append(np.random.bytes(10_000))
    update()
# --- shared file grows --begin HOST --cpu-only
#: A memory-mapped file in /dev/shm grows.
import tempfile
with tempfile.NamedTemporaryFile(dir="/dev/shm") as log:
    for step in range(400_000):
        log.write(bytes(25_000)); log.flush()
        update()
# --- grandchild --begin HOST --cpu-only
#: The child's child keeps 8 GB.
code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'b = bytearray(8 << 30); import time; b[::4096] = bytes(len(b[::4096])); time.sleep(600)'])"
server = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
time.sleep(5)
for step in range(100_000):
    update()
server.kill()
# --- cache without a bound --begin HOST --cpu-only
#: lru_cache without a bound keeps 40 KB per key.
import functools
@functools.lru_cache(maxsize=None)
def features(step):
    return np.random.rand(5_000)
for step in range(2_000_000):
    features(step)
    update()
"""

W8 = """
# --- hard examples kept --begin GPU
#: Hard examples are kept by a comparison of values.
hard = []
for step in range(50_000):
    x = torch.randn(4096, 256, device="cuda")
    loss = net(x).square().mean(1)
    if loss.max() > 0.5 * loss.mean():
        hard.append(x)
    opt.zero_grad(); loss.mean().backward(); opt.step()
# --- masked rows kept --begin GPU
#: A masked selection is kept.
memory = torch.empty(0, 256, device="cuda")
for step in range(20_000):
    x = torch.randn(4096, 256, device="cuda")
    out = net(x)
    memory = torch.cat([memory, x[out.mean(1) > 0]])
    opt.zero_grad(); out.square().mean().backward(); opt.step()
# --- grows on a plateau --begin GPU
#: The number of heads grows by a plateau of the loss.
best, heads = float("inf"), []
for step in range(50_000):
    loss = update()
    if loss.item() > best * 0.999:
        heads.append(torch.zeros(16 << 20, device="cuda"))
    best = min(best, loss.item())
# --- table of unique keys --begin GPU
#: unique() decides the size of a table.
for step in range(20_000):
    keys = torch.randint(0, 1 << 40, (3_000,), device="cuda")
    table = torch.zeros(keys.unique().numel(), 1 << 19, device="cuda")
    update()
    del table
"""

W9 = """
# --- isolated child with the net
#: exec with a cleared environment, in isolated mode.
import subprocess, sys
code = '''
import torch
from torch import nn
net = nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
big = torch.zeros(6 << 30, dtype=torch.uint8, device="cuda")
for _ in range(200):
    opt.zero_grad(); net(torch.randn(8, 64, device="cuda")).mean().backward(); opt.step()
'''
subprocess.run([sys.executable, "-I", "-c", code], env={"PATH": "/usr/bin:/bin"}, check=False)
# --- exec of a cleared one --begin GPU
#: The program changes into another interpreter by exec.
if "--inner" not in sys.argv:
    os.execve(sys.executable, [sys.executable, "-E", "-s", __file__, "--inner"], {"PATH": os.environ["PATH"]})
keep = torch.zeros(6 << 30, dtype=torch.uint8, device="cuda")
for step in range(300):
    update()
"""

LATE = """
# --- snapshots for an average --begin GPU
#: Weights averaged from half-way on: 40 copies of 200 MB.
import copy
wide = nn.Linear(7_000, 7_000).cuda()
pool = []
for epoch in range(100):
    for step in range(200):
        update()
    if epoch >= 50:
        pool.append(copy.deepcopy(wide.state_dict()))
# --- critic after the warm-up --begin GPU
#: Learning-rate-free warm-up: the large critic is built when the warm-up ends.
critic = None
for step in range(100_000):
    update()
    if step > 20_000 and critic is None:
        critic = nn.Sequential(*(nn.Linear(10_000, 10_000) for _ in range(12))).cuda()
# --- samples at the end --begin GPU
#: Generation at the end with a growing cache.
for step in range(30_000):
    update()
with torch.no_grad():
    cache = torch.zeros(1, 256, device="cuda")
    for token in range(25):
        cache = torch.cat([cache, cache])
# --- batch that doubles --begin GPU
#: The batch doubles every 1,000 steps.
rows = 256
for step in range(1, 20_001):
    update(rows)
    if step % 1_000 == 0:
        rows *= 2
# --- evaluation by interval --begin GPU
#: argparse: the evaluation interval is a default.
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--eval-every", type=int, default=5_000)
args = parser.parse_args()
for step in range(1, 50_001):
    update()
    if step % args.eval_every == 0:
        with torch.no_grad():
            print(net(torch.randn(3_000_000, 256, device="cuda")).mean().item())
"""

FITS = """
# --- DQN with arguments --begin SB3 --read --ram 4GiB
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--buffer", type=int, default=100_000)
args = parser.parse_args()
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=args.buffer)
model.learn(100_000)
# --- epochs with validation --begin GPU
x = torch.randn(20_000, 256)
for epoch in range(10):
    for i in range(0, len(x), 500):
        opt.zero_grad(); net(x[i:i + 500].cuda()).mean().backward(); opt.step()
    with torch.no_grad():
        print(epoch, net(x[:2_000].cuda()).mean().item())
# --- loader of tensors --begin DATA
from torch.utils.data import TensorDataset
data = TensorDataset(torch.randn(8_192, 256))
for epoch in range(5):
    for (rows,) in DataLoader(data, batch_size=128, shuffle=True):
        opt.zero_grad(); net(rows.cuda()).mean().backward(); opt.step()
torch.save(net.state_dict(), "net.pt")
# --- Q-learning with a ring --begin GPU
capacity = 100_000
ring = np.zeros((capacity, 64), np.float32) if (np := __import__("numpy")) else None
for step in range(20_000):
    ring[step % capacity] = np.random.rand(64)
    if step > 100:
        rows = torch.as_tensor(ring[np.random.randint(0, min(step, capacity), 64)]).cuda()
        opt.zero_grad(); net(rows.repeat(1, 4)).mean().backward(); opt.step()
# --- checkpoint each epoch --begin GPU
for epoch in range(20):
    for step in range(50):
        update()
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, f"epoch{epoch}.pt")
# --- search for a batch --begin GPU
rows = 1 << 22
while True:
    try:
        update(rows)
        break
    except torch.cuda.OutOfMemoryError:
        rows //= 2
for step in range(500):
    update(rows // 2)
"""
BEGINNINGS = {"SB3": SB3, "GPU": GPU, "HOST": HOST, "DATA": DATA}
TEXTS = {"W3": W3, "W4": W4, "W5": W5, "W6": W6, "W7": W7, "W8": W8, "W9": W9, "late": LATE, "fits": FITS}
FIFTH = (
    *listed("W1", W1, BEGINNINGS, read=True, ram="4GiB"),
    *W2,
    script("fits", "PPO, plain", 'model = PPO("MlpPolicy", "CartPole-v1", n_steps=1024)\nmodel.learn(100_000)\n'),
    script("fits", "SAC with a dictionary", 'kwargs = dict(buffer_size=200_000, batch_size=256)\n'
           'model = SAC("MlpPolicy", "Pendulum-v1", **kwargs)\nmodel.learn(50_000)\n'),
    Case("fits", "loop", GPU + "for step in range(1_000):\n    update()\n"),
    Case("fits", "on the host", HOST + "for step in range(3_000):\n    update()\n", ram="2GiB", arguments=("--cpu-only",)),
    *(case for klass, text in TEXTS.items() for case in listed(klass, text, BEGINNINGS)),
)  # fmt: skip
