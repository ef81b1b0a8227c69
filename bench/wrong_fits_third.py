"""A third draw of programs for `bench.wrong_fits`, held out: written without a look at the code or at the other draws.

Each class has programs that do not fit although a careless predictor would say so: sizes that only running tells, memory
that appears late, rarely, in another process or after an error that nobody reads. The last twenty are of the same styles
and fit. Host programs were measured by the sum of the memory of their process tree; those that grow for hours by its
rate.
"""

from __future__ import annotations

from dataclasses import replace

from bench.wrong_fits_programs import Case

HOST = ("--cpu-only",)


def _dqn(before: str, size: str, then: str = "") -> str:
    """A script that fills a replay buffer: 52 bytes per transition of CartPole."""
    return f"""
from stable_baselines3 import DQN
{before}
model = DQN("MlpPolicy", "CartPole-v1", buffer_size={size})
{then}
model.learn(500_000_000)
"""


def _arena(imports: str, size: str) -> dict[str, str]:
    """An environment of one's own, with an observation of `size` floats: 100,000 transitions of 5,000 take 4 GB."""
    return {
        "arena.py": f"""
from pathlib import Path
import gymnasium as gym
import numpy as np
{imports}

HERE = Path(__file__).parent


class Arena(gym.Env):
    def __init__(self):
        self.n = {size}
        self.observation_space = gym.spaces.Box(-1, 1, (self.n,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.n, np.float32), {{}}

    def step(self, action):
        return np.ones(self.n, np.float32), 0.0, False, False, {{}}
"""
    }


IN_ARENA = """
from stable_baselines3 import DQN
from arena import Arena
model = DQN("MlpPolicy", Arena(), buffer_size=100_000)
model.learn(1_000_000)
"""

NET = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def train(rows=64):
    loss = net(torch.randn(rows, 256, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss
"""

CHILD = """
import torch
from torch import nn
net = nn.Linear(256, 256).cuda()
table = torch.ones({floats}, device="cuda")
for step in range(300):
    loss = net(torch.randn(64, 256, device="cuda")).square().mean() + table[0]
    loss.backward()
"""
LARGE, SMALL = CHILD.format(floats="750_000_000"), CHILD.format(floats="1_000_000")

W1 = (
    Case(
        "W1",
        "dataclass multiplies after init",
        _dqn(
            """
from dataclasses import dataclass
@dataclass
class Args:
    env: str = "CartPole-v1"
    buffer: int = 50_000
    in_thousands: bool = True
    def __post_init__(self):
        if self.in_thousands:
            self.buffer *= 1_000
args = Args(buffer=90_000)
""",
            "args.buffer",
        ),
    ),
    Case(
        "W1",
        "default argument that remembers",
        _dqn(
            """
def grow(sizes=[5_000]):
    sizes.append(sizes[-1] * 25)
    return sizes[-1]
grow()
grow()
""",
            "grow()",
        ),
    ),
    Case(
        "W1",
        "set up again with more",
        _dqn("", "50_000", "model.buffer_size = 80_000_000\nmodel._setup_model()"),
    ),
    Case(
        "W1",
        "class patched where it is used",
        _dqn(
            """
import stable_baselines3.common.off_policy_algorithm as off_policy
from stable_baselines3.common.buffers import ReplayBuffer
class Roomy(ReplayBuffer):
    def __init__(self, buffer_size, *args, **kwargs):
        super().__init__(buffer_size * 2_000, *args, **kwargs)
off_policy.ReplayBuffer = Roomy
""",
            "50_000",
        ),
    ),
    Case(
        "W1",
        "another import changes the module",
        _dqn("import settings\nimport tune", "settings.SIZE"),
        files={"settings.py": "SIZE = 50_000\n", "tune.py": "import settings\nsettings.SIZE *= 2_000\n"},
    ),
    Case(
        "W1",
        "match on a class with a guard",
        _dqn(
            """
class Job:
    __match_args__ = ("n", "weather")
    def __init__(self, n, weather):
        self.n, self.weather = n, weather
match Job(8, "rain"):
    case Job(n, "sun"):
        size = n * 1_000
    case Job(n, _) if n > 4:
        size = n * 10_000_000
    case _:
        size = 10_000
""",
            "size",
        ),
    ),
    Case(
        "W1",
        "while with a break",
        _dqn(
            """
size = 1_000
while True:
    size *= 3
    if size > 70_000_000:
        break
""",
            "size",
        ),
    ),
    Case(
        "W1",
        "variable that the script sets",
        _dqn(
            """
import os
os.environ.setdefault("BUFFER", "90000000")
""",
            'int(os.environ.get("BUFFER", 50_000))',
        ),
    ),
    Case(
        "W1",
        "iterators",
        _dqn(
            """
import itertools, operator
powers = itertools.accumulate(itertools.repeat(10), operator.mul)
size = next(itertools.dropwhile(lambda n: n < 60_000_000, powers))
""",
            "size",
        ),
    ),
    Case(
        "W1",
        "the except branch decides",
        _dqn(
            """
size = 50_000
try:
    size = int("9e7")
except ValueError:
    size = int(float("9e7"))
""",
            "size",
        ),
    ),
    Case(
        "W1",
        "nonlocal counter",
        _dqn(
            """
def counter():
    n = 1_000
    def bump(by):
        nonlocal n
        n *= by
        return n
    return bump
bump = counter()
for by in (10, 20, 30):
    bump(by)
""",
            "bump(20)",
        ),
    ),
    Case(
        "W1",
        "rollout by a sum",
        """
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
n_steps = sum(2**k for k in range(24))
model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 8), n_steps=n_steps, batch_size=n_steps)
model.learn(500_000_000)
""",
    ),
)

W2 = (
    Case(
        "W2",
        "files in a folder",
        IN_ARENA,
        files={**_arena("", '16 ** len(list((HERE / "maps").glob("*.txt")))'), "maps/a.txt": "a"},
        later={"maps/b.txt": "b", "maps/c.txt": "c"},
    ),
    Case(
        "W2",
        "size of a file on disk",
        IN_ARENA,
        files={**_arena("import os", 'os.stat(HERE / "level.txt").st_size'), "level.txt": "x" * 16},
        later={"level.txt": "x" * 5_000},
    ),
    Case(
        "W2",
        "getenv of the C library",
        IN_ARENA,
        files=_arena(
            "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.getenv.restype = ctypes.c_char_p",
            'int(libc.getenv(b"ARENA_SIZE") or 16)',
        ),
        variables={"ARENA_SIZE": "5000"},
    ),
    Case(
        "W2",
        "a command reads the file",
        IN_ARENA,
        files={**_arena("import subprocess", 'int(subprocess.check_output(["cat", HERE / "size"]))'), "size": "16"},
        later={"size": "5000"},
    ),
    Case(
        "W2",
        "link to another level",
        IN_ARENA,
        files={
            **_arena("", 'int((HERE / "level").read_text())'),
            "small.txt": "16",
            "large.txt": "5000",
            "level": "-> small.txt",
        },
        later={"level": "-> large.txt"},
    ),
    Case(
        "W2",
        "module named by a variable",
        IN_ARENA,
        files={
            **_arena("import importlib, os", 'importlib.import_module(os.environ.get("ARENA_MAP", "small_map")).N'),
            "small_map.py": "N = 16\n",
            "large_map.py": "N = 5_000\n",
        },
        variables={"ARENA_MAP": "large_map"},
    ),
    Case(
        "W2",
        "file that was not there",
        IN_ARENA,
        files=_arena("", '5_000 if (HERE / "hard").exists() else 16'),
        later={"hard": ""},
    ),
)

W3 = (
    Case(
        "W3",
        "out= makes room",
        NET
        + """
parts = [torch.randn(1024, 1024, device="cuda") for _ in range(4)]
joined = torch.empty(0, device="cuda")
torch.cat(parts * 160, out=joined)
for step in range(2_000):
    train()
""",
    ),
    Case(
        "W3",
        "resize_ doubles",
        NET
        + """
cache = torch.empty(1024, device="cuda")
for step in range(2_000):
    if step % 50 == 49 and step < 1_050:
        cache.resize_(cache.numel() * 2)
    train()
""",
    ),
    Case(
        "W3",
        "storage without a tensor",
        NET
        + """
held = torch.UntypedStorage(3 << 30, device="cuda")
for step in range(2_000):
    train()
""",
    ),
    Case(
        "W3",
        "shards gathered together",
        NET
        + """
flat = []
for layer in range(3):
    weights = torch.empty(300_000_000, device="cuda")
    weights.untyped_storage().resize_(0)
    flat.append(weights)
for step in range(2_000):
    for weights in flat:
        weights.untyped_storage().resize_(1_200_000_000)
    train()
    for weights in flat:
        weights.untyped_storage().resize_(0)
""",
    ),
    Case(
        "W3",
        "storage on the host",
        """
import torch
net = torch.nn.Linear(64, 64)
held = torch.UntypedStorage(1 << 20)
held.resize_(1500 << 20)
held.fill_(1)
for step in range(2_000):
    net(torch.randn(64, 64)).mean().backward()
""",
        ram="1GiB",
        arguments=HOST,
    ),
)

W4 = (
    Case(
        "W4",
        "exit stack swallows",
        NET
        + """
from contextlib import ExitStack
for step in range(2_000):
    train()
    with ExitStack() as stack:
        stack.push(lambda kind, error, trace: True)
        pairs = torch.cdist(torch.randn(30_000, 8, device="cuda"), torch.randn(30_000, 8, device="cuda"))
        pairs.mean()
""",
    ),
    Case(
        "W4",
        "return in finally",
        NET
        + """
def evaluate():
    score = 0.0
    try:
        x = torch.randn(3_000_000, 256, device="cuda")
        score = net(x).mean().item()
    finally:
        return score
for step in range(2_000):
    train()
    if step % 100 == 0:
        evaluate()
""",
    ),
    Case(
        "W4",
        "destructor",
        NET
        + """
class Report:
    def __del__(self):
        self.matrix = torch.ones(28_000, 28_000, device="cuda")
for step in range(2_000):
    report = Report()
    train()
""",
    ),
    Case(
        "W4",
        "error callback of a pool",
        NET
        + """
from multiprocessing.pool import ThreadPool
def embed(rows):
    return net(torch.randn(rows, 256, device="cuda")).sum()
pool = ThreadPool(2)
for step in range(2_000):
    train()
    if step % 200 == 0:
        pool.apply_async(embed, (4_000_000,), error_callback=lambda error: None)
pool.close()
pool.join()
""",
    ),
    Case(
        "W4",
        "shell that does not mind",
        NET
        + """
import os, sys
os.system(f"{sys.executable} child.py 2>/dev/null || true")
for step in range(2_000):
    train()
""",
        files={"child.py": LARGE},
    ),
    Case(
        "W4",
        "task that is not awaited",
        NET
        + """
import asyncio
async def probe():
    torch.ones(28_000, 28_000, device="cuda")
async def main():
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    for step in range(2_000):
        train()
        if step % 200 == 0:
            asyncio.create_task(probe())
            await asyncio.sleep(0)
asyncio.run(main())
""",
    ),
    Case(
        "W4",
        "decorator that logs",
        NET
        + """
import functools, logging
def safely(function):
    @functools.wraps(function)
    def call(*args):
        try:
            return function(*args)
        except Exception:
            logging.debug("failed", exc_info=True)
    return call
@safely
def attention_map(n):
    q = torch.randn(16, n, 64, device="cuda")
    return (q @ q.transpose(1, 2)).softmax(-1)
for step in range(2_000):
    train()
    attention_map(8_192)
""",
    ),
)

W5 = (
    Case(
        "W5",
        "stream with one long item",
        NET
        + """
from torch.utils.data import DataLoader, IterableDataset
class Stream(IterableDataset):
    def __iter__(self):
        for i in range(40_000):
            yield torch.zeros(6_000 if i == 29_000 else 16, 256)
for x in DataLoader(Stream(), batch_size=None):
    x = x.cuda()
    scores = (x[None] * x[:, None, :64].sum(-1, keepdim=True)).mean()
    loss = net(x).mean() + 0 * scores
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W5",
        "last bucket of a sampler",
        NET
        + """
from torch.utils.data import DataLoader
lengths = [32] * 20_032 + [20_000] * 64
class Text:
    def __len__(self):
        return len(lengths)
    def __getitem__(self, i):
        return torch.zeros(lengths[i], 8)
class Buckets:
    def __iter__(self):
        for start in range(0, len(lengths), 64):
            yield list(range(start, min(start + 64, len(lengths))))
    def __len__(self):
        return len(lengths) // 64
for x in DataLoader(Text(), batch_sampler=Buckets()):
    x = x.cuda().repeat(1, 1, 32)
    loss = net(x).mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W5",
        "one large graph",
        NET
        + """
import random
sizes = [50] * 29_999 + [30_000]
random.Random(3).shuffle(sizes)
for nodes in sizes:
    x = torch.randn(nodes, 256, device="cuda")
    adjacent = torch.ones(nodes, nodes, device="cuda")
    loss = net(adjacent @ x).mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "W5",
        "rare by chance",
        NET
        + """
import numpy as np
rng = np.random.default_rng(1)
for step in range(200_000):
    train(3_000_000 if rng.random() < 1 / 10_000 else 64)
""",
    ),
    Case(
        "W5",
        "longest of many episodes",
        NET
        + """
import numpy as np
lengths = (np.random.default_rng(0).pareto(1.0, 50_000) * 50 + 1).astype(int)
for steps in lengths:
    train(int(steps))
""",
    ),
)

W6 = (
    Case(
        "W6",
        "records as dicts",
        """
import torch
from torch.utils.data import DataLoader, Dataset
class Records(Dataset):
    def __init__(self):
        self.records = [{"id": i + 1_000, "label": f"class {i}", "score": i / 7} for i in range(1_200_000)]
    def __len__(self):
        return len(self.records)
    def __getitem__(self, i):
        record = self.records[i]
        return torch.tensor([record["id"], len(record["label"]), record["score"]], dtype=torch.float32)
net = torch.nn.Linear(3, 1)
data = Records()
loader = DataLoader(data, batch_size=512, shuffle=True, num_workers=4, persistent_workers=True)
for epoch in range(20):
    for x in loader:
        net(x).mean().backward()
""",
        ram="1200MiB",
        arguments=HOST,
    ),
    Case(
        "W6",
        "cache in every worker",
        """
import functools
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
@functools.lru_cache(maxsize=None)
def decode(i):
    return np.full((64, 64, 3), i % 255, np.uint8)
class Pictures(Dataset):
    def __len__(self):
        return 60_000
    def __getitem__(self, i):
        return torch.from_numpy(decode(i).mean((0, 1), dtype=np.float32))
net = torch.nn.Linear(3, 1)
loader = DataLoader(Pictures(), batch_size=64, shuffle=True, num_workers=4, persistent_workers=True)
for epoch in range(50):
    for x in loader:
        net(x).mean().backward()
""",
        ram="1800MiB",
        arguments=HOST,
    ),
    Case(
        "W6",
        "shuffle buffers of a stream",
        """
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset
class Shuffled(IterableDataset):
    def __iter__(self):
        kept = []
        for i in range(10_000_000):
            kept.append(np.full(4_096, i, np.float32))
            if len(kept) > 40_000:
                j = random.randrange(len(kept))
                kept[j], last = kept[-1], kept[j]
                kept.pop()
                yield last
            elif i % 100 == 0:
                yield kept[-1]
net = torch.nn.Linear(4_096, 1)
for x in DataLoader(Shuffled(), batch_size=8, num_workers=4):
    net(x).mean().backward()
""",
        ram="2GiB",
        arguments=HOST,
    ),
    Case(
        "W6",
        "batches prefetched",
        """
import time
import torch
from torch.utils.data import DataLoader, Dataset
class Clips(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, i):
        return torch.ones(250_000)
net = torch.nn.Linear(1_000, 1)
for x in DataLoader(Clips(), batch_size=8, num_workers=4, prefetch_factor=100):
    net(x[:, :1_000]).mean().backward()
    time.sleep(0.2)
""",
        ram="2GiB",
        arguments=HOST,
    ),
    Case(
        "W6",
        "table loaded by each worker, later",
        """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
class Lazy(Dataset):
    table = None
    def __len__(self):
        return 4_000_000
    def __getitem__(self, i):
        if i > 1_000_000 and self.table is None:
            self.table = np.ones(60_000_000)
        return torch.full((8,), float(i))
net = torch.nn.Linear(8, 1)
for x in DataLoader(Lazy(), batch_size=256, num_workers=4):
    net(x).mean().backward()
""",
        ram="1800MiB",
        arguments=HOST,
    ),
)

W7 = (
    Case(
        "W7",
        "states that were seen",
        """
import gymnasium as gym
import torch
env = gym.make("CartPole-v1")
net = torch.nn.Linear(4, 2)
seen = set()
obs, _ = env.reset(seed=0)
for step in range(20_000_000):
    seen.add(tuple(obs.tolist()))
    obs, reward, done, cut, _ = env.step(int(net(torch.from_numpy(obs)).argmax()))
    if done or cut:
        obs, _ = env.reset()
""",
        ram="1GiB",
        arguments=HOST,
    ),
    Case(
        "W7",
        "tree of a search",
        """
import random
import torch
net = torch.nn.Linear(8, 1)
class Node:
    def __init__(self, parent):
        self.parent, self.children, self.visits = parent, {}, 0
root = node = Node(None)
for step in range(30_000_000):
    child = Node(node)
    node.children[len(node.children)] = child
    node = child if random.random() < 0.9 else root
    if step % 1_000 == 0:
        net(torch.randn(4, 8)).mean().backward()
""",
        ram="1GiB",
        arguments=HOST,
    ),
    Case(
        "W7",
        "losses with their graphs",
        """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
history = []
for step in range(500_000):
    loss = net(torch.randn(32, 64)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 5 == 0:
        history.append(net(torch.randn(32, 64)).abs().mean())
print(sum(history) / len(history))
""",
        ram="1GiB",
        arguments=HOST,
    ),
    Case(
        "W7",
        "deque that fills",
        """
from collections import deque
import numpy as np
import torch
net = torch.nn.Linear(64, 2)
memory = deque(maxlen=4_000_000)
for step in range(30_000_000):
    memory.append((np.random.rand(64).astype(np.float32), step % 2, 0.5 * step))
    if step % 64 == 0:
        net(torch.from_numpy(memory[-1][0])).mean().backward()
""",
        ram="1GiB",
        arguments=HOST,
    ),
    Case(
        "W7",
        "cache without a limit",
        """
import functools
import numpy as np
import torch
net = torch.nn.Linear(32, 1)
@functools.cache
def features(state):
    return np.sin(np.arange(32, dtype=np.float32) * state)
for step in range(10_000_000):
    x = features(step * 7 % 5_000_011)
    if step % 16 == 0:
        net(torch.from_numpy(x)).mean().backward()
""",
        ram="1GiB",
        arguments=HOST,
    ),
    Case(
        "W7",
        "journal in shared memory",
        """
import tempfile
import torch
net = torch.nn.Linear(64, 1)
journal = tempfile.TemporaryFile(dir="/dev/shm")
for step in range(5_000_000):
    net(torch.randn(16, 64)).mean().backward()
    journal.write(bytes(1_024))
""",
        ram="1GiB",
        arguments=HOST,
    ),
    Case(
        "W7",
        "shared map written bit by bit",
        """
import mmap
import torch
net = torch.nn.Linear(64, 1)
ring = mmap.mmap(-1, 4 << 30)
for step in range(4_000_000):
    net(torch.randn(16, 64)).mean().backward()
    ring.seek(step * 1_024 % (4 << 30))
    ring.write(b"x" * 1_024)
""",
        ram="1GiB",
        arguments=HOST,
    ),
    Case(
        "W7",
        "server in its own session",
        """
import subprocess, sys
import torch
server = subprocess.Popen([sys.executable, "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          start_new_session=True)
server.stdout.readline()
net = torch.nn.Linear(64, 1)
for step in range(20_000):
    net(torch.randn(16, 64)).mean().backward()
server.kill()
""",
        files={"server.py": 'import numpy as np\nworld = np.ones(200_000_000)\nprint("ready", flush=True)\ninput()\n'},
        ram="1GiB",
        arguments=HOST,
    ),
    Case(
        "W7",
        "workers of a pool remember",
        """
from multiprocessing import Pool
import numpy as np
import torch
played = []
def play(seed):
    played.append(np.random.default_rng(seed).random(500))
    return played[-1].mean()
if __name__ == "__main__":
    net = torch.nn.Linear(1, 1)
    with Pool(2) as pool:
        for mean in pool.imap(play, range(5_000_000), chunksize=32):
            net(torch.tensor([mean], dtype=torch.float32)).backward()
""",
        ram="1GiB",
        arguments=HOST,
    ),
)

W8 = (
    Case(
        "W8",
        "basis until the residual is small",
        NET
        + """
residual = torch.tensor(1_000.0, device="cuda")
basis = []
while residual.item() > 1e-3:
    basis.append(torch.randn(16_000_000, device="cuda"))
    residual = residual * 0.8
for step in range(2_000):
    train()
""",
    ),
    Case(
        "W8",
        "copy of every best",
        """
import copy
import torch
from torch import nn
net = nn.Linear(4096, 4096).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-2, weight_decay=1.0)
best, kept = float("inf"), []
for step in range(2_000):
    loss = net.weight.square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if loss < best:
        best = loss.detach()
        kept.append(copy.deepcopy(net.state_dict()))
""",
    ),
    Case(
        "W8",
        "rows that pass a mask",
        NET
        + """
table = torch.randn(30_000, 256, device="cuda")
for step in range(2_000):
    train()
    rows = table[table.norm(dim=1) > 0.01]
    similar = rows @ rows.T
""",
    ),
    Case(
        "W8",
        "padded to the largest count",
        NET
        + """
ids = torch.zeros(28_000, dtype=torch.long, device="cuda")
for step in range(2_000):
    train()
    most = int(torch.bincount(ids, minlength=1_000).max())
    grid = torch.zeros(most, most, device="cuda")
""",
    ),
    Case(
        "W8",
        "kept while they differ",
        NET
        + """
last, kept = torch.zeros(8_000_000, device="cuda"), []
for step in range(500):
    train()
    new = last + 1
    if not torch.equal(new, last):
        kept.append(new)
    last = new
""",
    ),
    Case(
        "W8",
        "one block per flag",
        NET
        + """
flags = torch.ones(64, device="cuda") > 0
blocks = [torch.ones(10_000_000, device="cuda") for index in torch.nonzero(flags).flatten().tolist()]
for step in range(2_000):
    train()
""",
    ),
)

W9 = (
    Case(
        "W9",
        "env -i",
        NET
        + """
import subprocess, sys
subprocess.run(["/usr/bin/env", "-i", sys.executable, "-E", "-s", "child.py"])
for step in range(300):
    train()
""",
        files={"child.py": LARGE},
    ),
    Case(
        "W9",
        "exec with an empty environment",
        """
import os, sys
if "again" not in sys.argv:
    os.execve(sys.executable, [sys.executable, "-I", os.path.abspath(__file__), "again"], {})
"""
        + LARGE,
    ),
    Case(
        "W9",
        "posix_spawn",
        NET
        + """
import os, sys
child = os.posix_spawn(sys.executable, [sys.executable, "-I", "child.py"], {})
for step in range(300):
    train()
os.waitpid(child, 0)
""",
        files={"child.py": LARGE},
    ),
    Case(
        "W9",
        "spawned after the variables are gone",
        """
import os
import multiprocessing
def work():
    import runpy
    runpy.run_path("child.py")
if __name__ == "__main__":
    os.environ.clear()
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
""",
        files={"child.py": LARGE},
    ),
    Case(
        "W9",
        "daemon by two forks",
        """
import os
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        try:
            import runpy
            runpy.run_path("child.py")
        finally:
            os.write(write, b"x")
            os._exit(0)
    os._exit(0)
os.read(read, 1)
""",
        files={"child.py": LARGE},
    ),
)

LATE = (
    Case(
        "late",
        "another optimizer",
        """
import torch
from torch import nn
net = nn.Linear(13_000, 13_000).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(6_000):
    if step == 4_000:
        opt = torch.optim.Adam(net.parameters())
    loss = net(torch.randn(16, 13_000, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "late",
        "resolution grows",
        """
import torch
from torch import nn
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1)).cuda()
opt = torch.optim.Adam(net.parameters())
for epoch in range(8):
    side = 32 * 2 ** (epoch // 2)
    for step in range(1_500):
        loss = net(torch.randn(64, 3, side * 2, side * 2, device="cuda")).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()
""",
    ),
    Case(
        "late",
        "league of opponents",
        """
import copy
import torch
from torch import nn
net = nn.Linear(5_000, 5_000).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
league = []
for step in range(60_000):
    loss = net(torch.randn(16, 5_000, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 2_500 == 2_499:
        league.append(copy.deepcopy(net))
""",
    ),
    Case(
        "late",
        "by the clock",
        NET
        + """
import time
began = time.monotonic()
for step in range(10_000_000):
    train(3_000_000 if time.monotonic() - began > 900 else 64)
""",
    ),
    Case(
        "late",
        "all results at the end",
        """
import numpy as np
import torch
net = torch.nn.Linear(64, 64)
chunks = []
for step in range(60_000):
    out = net(torch.randn(128, 64))
    out.mean().backward()
    if step % 10 == 0:
        chunks.append(out.detach().numpy().astype(np.float16))
everything = np.stack(chunks).astype(np.float64)
print(everything.mean())
""",
        ram="600MiB",
        arguments=HOST,
    ),
    Case(
        "late",
        "distillation in the third part",
        NET
        + """
def part(name, steps):
    for step in range(steps):
        train()
        if name == "distil" and step == steps // 2:
            globals()["teacher"] = nn.Linear(25_000, 25_000).cuda()
for name, steps in (("warm up", 3_000), ("train", 10_000), ("distil", 5_000)):
    part(name, steps)
""",
    ),
)

FITS = (
    Case("fits", "while with a break", W1[6].source.replace("70_000_000", "20_000")),
    Case("fits", "dataclass multiplies after init", W1[0].source.replace("90_000", "50")),
    Case("fits", "match on a class with a guard", W1[5].source.replace("10_000_000", "10_000")),
    Case("fits", "iterators", W1[8].source.replace("60_000_000", "60_000")),
    Case("fits", "size of a file on disk", IN_ARENA, files=W2[1].files, read=True, arguments=("--trust",)),
    Case("fits", "rollout by a sum", W1[11].source.replace("24", "9")),
    Case("fits", "shards gathered together", W3[3].source.replace("300_000_000", "1_000_000").replace("1_200_", "4_")),
    Case(
        "fits",
        "half the batch until it fits",
        NET
        + """
rows = 8_000_000
while True:
    try:
        train(rows)
        break
    except torch.cuda.OutOfMemoryError:
        rows //= 2
for step in range(200):
    train(rows)
""",
    ),
    Case("fits", "logged exceptions", W4[6].source.replace("8_192", "512")),
    Case("fits", "items of many lengths", W5[2].source.replace("[30_000]", "[3_000]").replace("29_999", "999")),
    Case("fits", "stream", W5[0].source.replace("6_000", "60").replace("40_000", "4_000").replace("29_000", "2_900")),
    Case("fits", "child with -I", W9[0].source, files={"child.py": SMALL}),
    Case(
        "fits",
        "another optimizer",
        LATE[0].source.replace("13_000", "1_000").replace("6_000", "600").replace("4_000", "400"),
    ),
    Case("fits", "few best", W8[1].source.replace("4096", "64")),
    Case(
        "fits",
        "rows that pass a mask",
        W8[2].source.replace("30_000", "3_000"),
    ),
    Case(
        "fits",
        "arrays in a loader",
        """
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.from_numpy(np.random.rand(20_000, 16).astype(np.float32)))
net = torch.nn.Linear(16, 1)
for epoch in range(3):
    for (x,) in DataLoader(data, batch_size=64, shuffle=True, num_workers=2):
        net(x).mean().backward()
""",
        arguments=HOST,
    ),
    Case(
        "fits",
        "short deque",
        W7[3].source.replace("4_000_000", "10_000").replace("30_000_000", "300_000"),
        arguments=HOST,
    ),
    Case(
        "fits",
        "bounded cache",
        W7[4].source.replace("@functools.cache", "@functools.lru_cache(1_000)").replace("10_000_000", "400_000"),
        arguments=HOST,
    ),
    Case(
        "fits",
        "server in its own session",
        W7[7].source,
        files={"server.py": 'print("ready", flush=True)\ninput()\n'},
        arguments=HOST,
    ),
    Case(
        "fits",
        "policy gradient",
        """
import gymnasium as gym
import torch
env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(300):
    obs, _ = env.reset(seed=episode)
    chosen, rewards, over = [], [], False
    while not over:
        policy = torch.distributions.Categorical(logits=net(torch.from_numpy(obs)))
        action = policy.sample()
        chosen.append(policy.log_prob(action))
        obs, reward, done, cut, _ = env.step(int(action))
        rewards.append(reward)
        over = done or cut
    loss = -torch.stack(chosen).sum() * sum(rewards)
    opt.zero_grad(); loss.backward(); opt.step()
""",
        arguments=HOST,
    ),
)

THIRD = (
    *(replace(case, read=True, ram="2GiB") for case in W1),
    *(replace(case, read=True, ram="2GiB", arguments=("--trust",)) for case in W2),
    *(replace(case, vram="2GiB") for case in (*W3, *W4, *W5, *W6, *W7, *W8, *W9, *LATE)),
    *(replace(case, read=case.read or "stable_baselines3" in case.source) for case in FITS),
)
