"""Programs for `bench.wrong_fits`: each needs more than it is given in a way that is easy to miss, or really fits.

A case is a class of the attack, a name, the source, and what it is given. `GPU` and `HOST` begin programs that train
a small network; everything beyond that is in the case itself. Cases under `HELD_OUT` were written before the code was
changed and were not run until it was frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GPU = """
import contextlib, os, subprocess, sys, threading, time
import torch
from torch import nn
net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
opt = torch.optim.Adam(net.parameters())
def update(rows=256):
    loss = net(torch.randn(rows, 256, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss
"""
HOST = """
import os, subprocess, sys, time
import numpy as np, torch
from torch import nn
net = nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
def update():
    opt.zero_grad(); net(torch.randn(32, 64)).square().mean().backward(); opt.step()
"""
SB3 = "import sys\nfrom stable_baselines3 import DQN, PPO, SAC\n"


@dataclass(frozen=True)
class Case:
    """A program and what it is given.

    Args:
        klass: of the attack, or "fits" for a program that does fit.
        source: of `train.py`.
        read: the script is read, not executed.
        files: beside it; `later`: those that are changed between a first prediction and the one that counts.
        variables: of the environment, for the prediction that counts.
    """

    klass: str
    name: str
    source: str
    vram: str = "4GiB"
    ram: str = "6GiB"
    read: bool = False
    files: dict[str, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


def script(klass: str, name: str, body: str) -> Case:
    return Case(klass, name, SB3 + body, ram="4GiB", read=True)


def listed(
    klass: str,
    text: str,
    beginnings: dict[str, str] | None = None,
    *,
    files: dict[str, dict[str, str]] | None = None,
    **given: object,
) -> tuple[Case, ...]:
    """The programs of a text, each after a line `# --- NAME [--begin B] [--ram SIZE] [--vram SIZE] [--read] [--cpu-only]`.

    `#:` begins the comment that says why a program does not fit.
    """
    cases = []
    for part in text.split("\n# --- ")[1:]:
        head, _, body = part.partition("\n")
        name, *options = head.split(" --")
        own: dict[str, object] = {"files": (files or {}).get(name, {})}
        beginning = ""
        for option, _, value in (each.partition(" ") for each in options):
            if option == "begin":
                beginning = (beginnings or {})[value]
            else:
                own |= {option: value or True} if option != "cpu-only" else {"arguments": ("--cpu-only",)}
        source = "".join(f"{line}\n" for line in body.rstrip("\n").split("\n") if not line.startswith("#:"))
        cases.append(Case(klass, name, f"{beginning}\n{source}", **{**given, **own}))  # type: ignore[arg-type]
    return tuple(cases)


def gpu(klass: str, name: str, body: str, **given: object) -> Case:
    return Case(klass, name, GPU + body, **given)  # type: ignore[arg-type]


def host(klass: str, name: str, body: str, ram: str = "2GiB") -> Case:
    return Case(klass, name, HOST + body, ram=ram, arguments=("--cpu-only",))


def environment(name: str, made: str, klass: str = "W2", **given: object) -> Case:
    """Return a run of an environment whose module computes the length of its observation, `n`."""
    module = f"""
import json, os, pathlib
import gymnasium, numpy as np
class Field(gymnasium.Env):
    def __init__(self):
{made}
        self.observation_space = gymnasium.spaces.Box(-1, 1, (n,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {{}}
    def step(self, action):
        return np.zeros(self.observation_space.shape, np.float32), 0.0, False, False, {{}}
"""
    run = "algo: DQN\nenv:\n  id: field:Field\nhyperparams:\n  buffer_size: 100000\n"
    files = {"field.py": module, "run.yaml": run, **given.pop("files", {})}  # type: ignore[dict-item]
    return Case(klass, name, "", ram="4GiB", read=True, files=files, arguments=("--trust",), **given)  # type: ignore[arg-type]


LEARN = "DQN('MlpPolicy', 'CartPole-v1', buffer_size=N).learn(10**9)\n"
ITEMS = """
from torch.utils.data import DataLoader, Dataset
class Texts(Dataset):
    def __init__(self, lengths): self.lengths = lengths
    def __len__(self): return len(self.lengths)
    def __getitem__(self, i): return torch.zeros(self.lengths[i], 256)
"""
LOOP = """
for x in loader:
    loss = net(x.cuda()).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""

DEV = (
    script("W1", "loop that doubles", "N = 1000\nfor _ in range(19):\n    N *= 2\n" + LEARN),
    script("W1", "while", "N = 1000\nwhile N < 300_000_000:\n    N = N * 3\n" + LEARN),
    script("W1", "constructor in a loop", "for N in (1000, 300_000_000):\n    " + LEARN),
    script("W1", "match", "size = 'big'\nN = 1000\nmatch size:\n    case 'big':\n        N = 300_000_000\n" + LEARN),
    script("W1", "global", "N = 1000\ndef grow():\n    global N\n    N = 300_000_000\ngrow()\n" + LEARN),
    script("W1", "buffer replaced",
           "from stable_baselines3.common.buffers import ReplayBuffer\nm = DQN('MlpPolicy', 'CartPole-v1', buffer_size=1000)\n"
           "m.replay_buffer = ReplayBuffer(300_000_000, m.observation_space, m.action_space)\nm.learn(10**9)\n"),
    script("W1", "if in a loop", "N = 1000\nfor i in range(8):\n    if i == 5:\n        N = 300_000_000\n" + LEARN),
    environment("file beside it", "        n = json.load(open('size.json'))['n']", files={"size.json": '{"n": 50}'},
                later={"size.json": '{"n": 20000}'}),
    environment("variable", "        n = int(os.environ.get('FIELD_SIZE', '50'))", variables={"FIELD_SIZE": "20000"}),
    gpu("W3", "storage grown", "x = torch.empty(16, dtype=torch.uint8, device='cuda')\n"
        "for i in range(200):\n    x.untyped_storage().resize_(6 << 30)\n    update()\n    x.untyped_storage().resize_(0)\n"),
    gpu("W3", "shards gathered", "shards = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(7)]\n"
        .replace("1 << 30", "1")
        + "for i in range(200):\n    for s in shards: s.untyped_storage().resize_(1 << 30)\n    update()\n"
        "    for s in shards: s.untyped_storage().resize_(0)\n"),
    gpu("W4", "except and print", "try:\n    for i in range(1000): update(); big = torch.empty(6 << 30, dtype=torch.uint8, device='cuda')\n"
        "except Exception as error:\n    print('failed', error)\n"),
    gpu("W4", "in a thread", "def work():\n    for i in range(20): update()\n    update(4_000_000)\n"
        "t = threading.Thread(target=work); t.start(); t.join()\n"),
    gpu("W4", "ignored future", "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as pool:\n"
        "    for i in range(20): pool.submit(update)\n    pool.submit(update, 4_000_000)\n"),
    gpu("W4", "suppressed", "for i in range(200):\n    with contextlib.suppress(RuntimeError):\n        update(4_000_000)\n"
        "    update()\n"),
    gpu("W4", "child process", "import multiprocessing\ndef work():\n    for i in range(5): update()\n    update(4_000_000)\n"
        "if __name__ == '__main__':\n    for i in range(5): update()\n    c = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    c.start(); c.join()\n"),
    gpu("W5", "one long item", ITEMS + "lengths = [64] * 4000\nlengths[2000] = 4_000_000\n"
        "loader = DataLoader(Texts(lengths), batch_size=None)\n" + LOOP),
    gpu("W5", "padded batch", ITEMS + "from torch.nn.utils.rnn import pad_sequence\nlengths = [32 + i % 7 for i in range(8000)]\n"
        "lengths[5001] = 400_000\nloader = DataLoader(Texts(lengths), 16, collate_fn=lambda xs: pad_sequence(xs))\n" + LOOP),
    gpu("W5", "validation", ITEMS + "loader = DataLoader(Texts([64] * 500), batch_size=None)\n"
        "check = DataLoader(Texts([64] * 900 + [9_000_000] + [64] * 900), batch_size=None)\nfor epoch in range(3):\n"
        + LOOP.replace("\n", "\n    ") + "\n    with torch.no_grad():\n        for x in check: net(x.cuda())\n"),
    host("W6", "list of texts", "from torch.utils.data import DataLoader, Dataset\nclass Texts(Dataset):\n"
         "    def __init__(self): self.rows = [str(i) * 8 for i in range(4_000_000)]\n    def __len__(self): return len(self.rows)\n"
         "    def __getitem__(self, i): return len(self.rows[i])\n"
         "for x in DataLoader(Texts(), 256, shuffle=True, num_workers=6): update()\n", ram="1600MiB"),
    host("W6", "list of dictionaries", "from torch.utils.data import DataLoader, Dataset\nclass Rows(Dataset):\n"
         "    def __init__(self): self.rows = [{'id': i, 'label': float(i)} for i in range(2_500_000)]\n"
         "    def __len__(self): return len(self.rows)\n    def __getitem__(self, i): return self.rows[i]['label']\n"
         "for epoch in range(5):\n    for x in DataLoader(Rows(), 512, shuffle=True, num_workers=4): update()\n", ram="1800MiB"),
    host("W7", "child in its own session", "subprocess.Popen([sys.executable, '-c', "
         "'import time; b = bytearray(3 << 30); b[::4096] = bytes(len(b[::4096])); time.sleep(60)'], start_new_session=True)\n"
         "for i in range(100_000): update(); time.sleep(0.005)\n"),
    host("W7", "shared memory", "f = open('/dev/shm/legroom-bench-%d' % os.getpid(), 'wb')\nfor i in range(3): f.write(bytes(1 << 30))\n"
         "os.unlink(f.name)\nfor i in range(100_000): update(); time.sleep(0.005)\n"),
    host("W7", "dictionary", "seen = {}\nfor i in range(50_000_000):\n    update()\n    seen[i] = (i, str(i))\n"),
    host("W7", "linked list", "class Node:\n    def __init__(self, before): self.before, self.data = before, [0.0] * 8\n"
         "last = None\nfor i in range(100_000_000):\n    update()\n    last = Node(last)\n"),
    gpu("W8", "history of LBFGS", "net = nn.Linear(8192, 8192).cuda()\nopt = torch.optim.LBFGS(net.parameters(), history_size=100, max_iter=20)\n"
        "x = torch.randn(64, 8192, device='cuda')\ndef closure():\n    opt.zero_grad(); loss = net(x).square().mean(); loss.backward(); return loss\n"
        "for i in range(50): opt.step(closure)\n"),
    gpu("W8", "kept where better", "kept, best = [], 1e9\nfor i in range(5000):\n    loss = update(4096)\n"
        "    if loss.item() < best + 1:\n        kept.append(torch.randn(4096, 1024, device='cuda'))\n"),
    gpu("W9", "isolated child", "code = open('work.py').read()\nfor i in range(5): update()\n"
        "subprocess.run([sys.executable, '-I', 'work.py'])\n", files={"work.py": GPU + "update(4_000_000)\n"}),
    gpu("W9", "cleared environment", "for i in range(5): update()\nsubprocess.run([sys.executable, 'work.py'], env={})\n",
        files={"work.py": GPU + "update(4_000_000)\n"}),
    gpu("late", "step 2,000", "for i in range(5000):\n    update()\n    if i == 2000: big = torch.empty(6 << 30, dtype=torch.uint8, device='cuda')\n"),
    gpu("late", "batch schedule", "for i in range(5000):\n    update(256 if i < 3000 else 4_000_000)\n"),
    gpu("late", "test at the end", "for i in range(20_000): update()\nwith torch.no_grad():\n    net(torch.randn(8_000_000, 256, device='cuda'))\n"),
    gpu("late", "unfreezing", "big = nn.Linear(20_000, 20_000).cuda().requires_grad_(False)\nfor epoch in range(30):\n"
        "    if epoch == 20:\n        big.requires_grad_(True); opt = torch.optim.Adam([*net.parameters(), *big.parameters()])\n"
        "    for i in range(500):\n        loss = net(torch.randn(64, 256, device='cuda')).mean() + big(torch.randn(8, 20_000, device='cuda')).mean()\n"
        "        opt.zero_grad(); loss.backward(); opt.step()\n"),
    gpu("late", "snapshot per epoch", "import copy\nkept = []\nbig = nn.Linear(8192, 8192).cuda()\nfor epoch in range(100):\n"
        "    for i in range(1000): update()\n    kept.append(copy.deepcopy(big))\n"),
    # programs that fit
    script("fits", "plain script", "N = 50_000\n" + LEARN),
    script("fits", "loop over constants", "N = 1000\nfor _ in range(4):\n    N *= 2\n" + LEARN),
    script("fits", "two models", "for seed in (1, 2):\n    PPO('MlpPolicy', 'CartPole-v1', seed=seed).learn(10**9)\n"),
    script("fits", "dictionary of settings", "cfg = dict(buffer_size=20_000, batch_size=64)\ncfg['learning_rate'] = 1e-4\n"
           "m = SAC('MlpPolicy', 'Pendulum-v1', **cfg)\nm.learn(10**9)\nm.save('sac')\n"),
    gpu("fits", "plain loop", "for i in range(10_000): update()\n"),
    gpu("fits", "losses kept", "losses = []\nfor i in range(20_000):\n    loss = update()\n    losses.append(loss.item())\n"
        "    if i % 100 == 0: print(i, losses[-1])\n"),
    gpu("fits", "checkpoint of the best", "best = 1e9\nfor i in range(3000):\n    loss = update().item()\n    if loss < best:\n"
        "        best = loss\n        torch.save(net.state_dict(), 'best.pt')\n"),
    gpu("fits", "epochs of a loader", ITEMS + "loader = DataLoader(Texts([64] * 2000), batch_size=32)\nfor epoch in range(3):\n"
        + LOOP.replace("\n", "\n    ") + "\n    print(epoch, loss.item())\n"),
    gpu("fits", "lengths that vary", ITEMS + "loader = DataLoader(Texts([32 + i % 64 for i in range(600)]), batch_size=None)\n" + LOOP),
    gpu("fits", "smaller after an error", "rows = 16_000_000\nwhile True:\n    try:\n        update(rows)\n        break\n"
        "    except torch.cuda.OutOfMemoryError:\n        rows //= 4\n        torch.cuda.empty_cache()\nfor i in range(300): update(rows)\n"),
    gpu("fits", "learning rate schedule", "s = torch.optim.lr_scheduler.StepLR(opt, 100)\nfor i in range(2000):\n    update(); s.step()\n"),
    gpu("fits", "ends by itself", "for i in range(30): update()\nwith torch.no_grad(): net(torch.randn(10_000, 256, device='cuda'))\n"),
    host("fits", "loader over an array", "from torch.utils.data import DataLoader, TensorDataset\n"
         "data = TensorDataset(torch.zeros(200_000, 64))\nfor epoch in range(20):\n"
         "    for x, in DataLoader(data, 256, num_workers=2): update()\n", ram="4GiB"),
    host("fits", "bounded cache", "from collections import deque\nseen = deque(maxlen=10_000)\nfor i in range(1_000_000):\n"
         "    update()\n    seen.append(np.zeros(64))\n", ram="3GiB"),
    host("fits", "helper process", "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
         "for i in range(2000): update()\nchild.kill()\n", ram="3GiB"),
)  # fmt: skip

SAC_LEARN = "SAC('MlpPolicy', 'Pendulum-v1', buffer_size=size).learn(10**9)\n"
TRAINER = """
import asyncio, atexit, multiprocessing, os, subprocess, sys, threading
import torch
import torch.nn.functional as F
class Policy(torch.nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(128, width), torch.nn.Tanh(), torch.nn.Linear(width, 16))
    def forward(self, x): return self.body(x)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
policy = Policy().to(device)
optimizer = torch.optim.AdamW(policy.parameters(), 1e-3)
def train_on(x):
    loss = F.mse_loss(policy(x), torch.zeros(len(x), 16, device=device))
    optimizer.zero_grad(set_to_none=True); loss.backward(); optimizer.step()
    return loss.detach()
def batch(n=512): return torch.rand(n, 128, device=device)
"""


def trainer(klass: str, name: str, body: str, **given: object) -> Case:
    return Case(klass, name, TRAINER + body, **given)  # type: ignore[arg-type]


HELD_OUT = (
    script("W1", "settings updated in a loop", "cfg = {'buffer_size': 1000}\nfor k in ('a', 'b', 'c'):\n    cfg['buffer_size'] *= 700\n"
           "DQN('MlpPolicy', 'CartPole-v1', **cfg).learn(10**9)\n"),
    script("W1", "setattr", "class Config:\n    size = 1000\nfor name, value in {'size': 300_000_000}.items():\n    setattr(Config, name, value)\n"
           "size = Config.size\n" + SAC_LEARN),
    script("W1", "exec", "size = 1000\nexec('size = 300_000_000')\n" + SAC_LEARN),
    script("W1", "patched constructor", "plain = SAC.__init__\ndef wide(self, *a, **k):\n    k['buffer_size'] = 300_000_000\n    plain(self, *a, **k)\n"
           "SAC.__init__ = wide\nsize = 1000\n" + SAC_LEARN),
    script("W1", "nonlocal", "def main():\n    size = 1000\n    def grow():\n        nonlocal size\n        size = 300_000_000\n    grow()\n"
           "    SAC('MlpPolicy', 'Pendulum-v1', buffer_size=size).learn(10**9)\nmain()\n"),
    script("W1", "globals()", "size = 1000\nglobals()['size'] = 300_000_000\n" + SAC_LEARN),
    script("W1", "list that grows", "sizes = []\nfor i in range(3):\n    sizes.append(10 ** (3 * i + 3))\nsize = sizes[-1] // 3\n" + SAC_LEARN),
    script("W1", "from a try", "try:\n    import nothing_of_this_name\n    size = 1000\nexcept ImportError:\n    size = 300_000_000\n" + SAC_LEARN),
    environment("names in a folder", "        n = 400 * len(os.listdir('levels'))", files={"levels/1": ""},
                later={f"levels/{i}": "" for i in range(2, 60)}),
    environment("all variables", "        n = int(dict(os.environ).get('WIDTH', 40))", variables={"WIDTH": "20000"}),
    environment("settings read by pathlib", "        n = int(pathlib.Path('field.txt').read_text())", files={"field.txt": "64"},
                later={"field.txt": "24000"}),
    trainer("W3", "typed storage", "w = torch.zeros(1, device=device)\nfor i in range(500):\n    w.untyped_storage().resize_(5 * 2**30)\n"
            "    train_on(batch())\n    w.untyped_storage().resize_(4)\n"),
    trainer("W3", "every layer whole at once", "flat = [torch.empty(0, device=device) for _ in range(64)]\nfor i in range(300):\n"
            "    for one in flat: one.untyped_storage().resize_(100 * 2**20)\n    train_on(batch())\n"
            "    for one in flat: one.untyped_storage().resize_(0)\n"),
    trainer("W3", "tensor resized", "scratch = torch.empty(1, device=device)\nfor i in range(300):\n    scratch.resize_(2**30 + 2**29)\n"
            "    train_on(batch())\n    scratch.resize_(1); scratch.untyped_storage().resize_(4)\n"),
    trainer("W4", "gathered exceptions", "async def run(n): return train_on(batch(n))\nasync def main():\n    for i in range(20): await run(512)\n"
            "    await asyncio.gather(run(20_000_000), run(512), return_exceptions=True)\nasyncio.run(main())\n"),
    trainer("W4", "at exit", "for i in range(30): train_on(batch())\ndef last():\n    try: train_on(batch(20_000_000))\n    except BaseException: pass\n"
            "atexit.register(last)\n"),
    trainer("W4", "own excepthook", "def quiet(*a): os._exit(0)\nsys.excepthook = quiet\nfor i in range(30): train_on(batch())\ntrain_on(batch(20_000_000))\n"),
    trainer("W4", "batches left out", "for i in range(400):\n    try:\n        train_on(batch(20_000_000 if i % 3 == 0 else 512))\n"
            "    except torch.OutOfMemoryError:\n        print('skipped'); continue\n"),
    trainer("W4", "exits with 0", "try:\n    for i in range(100): train_on(batch(512 << i))\nexcept RuntimeError:\n    sys.exit(0)\n"),
    trainer("W4", "forked child", "def child():\n    big = torch.empty(10 * 2**30, dtype=torch.uint8, device='cuda')\nif __name__ == '__main__':\n"
            "    c = multiprocessing.get_context('spawn').Process(target=child); c.start(); c.join()\n    for i in range(500): train_on(batch())\n"),
    trainer("W5", "bucketed batches", "from torch.utils.data import DataLoader\nclass Buckets:\n    def __iter__(self):\n        for i in range(900):\n"
            "            yield list(range(32)) if i != 611 else list(range(2_000_000))\n    def __len__(self): return 900\n"
            "rows = torch.zeros(2_000_000, 128)\nclass Set(torch.utils.data.Dataset):\n    def __len__(self): return len(rows)\n"
            "    def __getitem__(self, i): return rows[i]\n    def __getitems__(self, idx): return [rows[:len(idx)]]\n"
            "for x in DataLoader(Set(), batch_sampler=Buckets(), collate_fn=lambda b: b[0]): train_on(x.repeat(4, 1).to(device))\n"),
    trainer("W5", "dictionary batches", "from torch.utils.data import DataLoader\nitems = [{'ids': [0] * (8 + i % 3)} for i in range(3000)]\n"
            "items[1717]['ids'] = [0] * 6_000_000\ndef collate(rows): return {'x': torch.zeros(max(len(r['ids']) for r in rows) , 128)}\n"
            "for epoch in range(2):\n    for b in DataLoader(items, 4, collate_fn=collate): train_on(b['x'].to(device))\n"),
    trainer("W5", "next of an iterator", "from torch.utils.data import DataLoader\nsizes = [100] * 2500; sizes[1900] = 20_000_000\n"
            "class Set(torch.utils.data.Dataset):\n    def __len__(self): return 2500\n    def __getitem__(self, i): return torch.zeros(sizes[i], 128)\n"
            "it = iter(DataLoader(Set(), batch_size=None))\nwhile True:\n    try:\n        x = next(it)\n    except StopIteration:\n        break\n    train_on(x.to(device))\n"),
    # was counted under W6; its processes take 1,102 MiB (PSS, 2026-11-18), so that it fits
    host("fits", "list of lists", "import torch.utils.data as data\nrows = [[float(i), i] for i in range(3_000_000)]\nclass Pairs(data.Dataset):\n"
         "    def __len__(self): return len(rows)\n    def __getitem__(self, i): return rows[i][0]\n"
         "for epoch in range(9):\n    for x in data.DataLoader(Pairs(), 1024, num_workers=4): update()\n", ram="1700MiB"),
    host("W6", "objects with attributes", "import torch.utils.data as data\nclass Move:\n    def __init__(self, i): self.state, self.reward = i, float(i)\n"
         "moves = [Move(i) for i in range(2_000_000)]\nclass Moves(data.Dataset):\n    def __len__(self): return len(moves)\n"
         "    def __getitem__(self, i): return moves[i].reward\n"
         "while True:\n    for x in data.DataLoader(Moves(), 128, shuffle=True, num_workers=5, persistent_workers=False): update()\n", ram="1600MiB"),
    host("W7", "daemon", "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        b = np.ones(3 << 27); time.sleep(100)\n    os._exit(0)\n"
         "os.wait()\nfor i in range(200_000): update(); time.sleep(0.002)\n"),
    host("W7", "shared memory of Python", "from multiprocessing import shared_memory\ns = shared_memory.SharedMemory(create=True, size=3 << 30)\n"
         "np.frombuffer(s.buf, 'u1')[::4096] = 1\nfor i in range(200_000): update(); time.sleep(0.002)\n"),
    host("W7", "set of tuples", "visited = set()\nfor episode in range(1_000_000):\n    for t in range(1000):\n        visited.add((episode, t))\n    update()\n"),
    host("W7", "texts of a log", "class Log:\n    def __init__(self): self.by_step = {}\nlog = Log()\nfor i in range(80_000_000):\n    update()\n"
         "    log.by_step[f'step-{i:09d}'] = f'loss of step {i}'\n"),
    trainer("W8", "LBFGS of a small history", "wide = torch.nn.Linear(6000, 6000).to(device)\nlbfgs = torch.optim.LBFGS(wide.parameters(), history_size=40, line_search_fn='strong_wolfe')\n"
            "x = torch.rand(32, 6000, device=device)\ndef closure():\n    lbfgs.zero_grad(); out = wide(x).pow(2).sum(); out.backward(); return out\n"
            "for i in range(100): lbfgs.step(closure)\n"),
    trainer("W8", "novel states kept", "archive = torch.zeros(1, 128, device=device); kept = []\nfor i in range(4000):\n    x = batch(8192); train_on(x)\n"
            "    if (x - archive).norm() > 1.0:\n        kept.append(x)\n"),
    trainer("W8", "until it converges", "parts = []\nx = batch(200_000)\nwhile train_on(x) > 1e-9:\n    parts = []\n    residual = x.norm()\n"
            "    while residual > 1e-3:\n        parts.append(x * 0.5); residual = residual * 0.9\n"),
    trainer("W9", "isolated by module", "for i in range(10): train_on(batch())\nsubprocess.check_call([sys.executable, '-E', '-s', 'late.py'])\n",
            files={"late.py": TRAINER + "train_on(batch(20_000_000))\n"}),
    trainer("W9", "few variables", "for i in range(10): train_on(batch())\nsubprocess.call([sys.executable, 'late.py'], env={'PATH': os.environ['PATH']})\n",
            files={"late.py": TRAINER + "for i in range(9): train_on(batch(20_000_000))\n"}),
    trainer("late", "curriculum", "length = 1\nfor epoch in range(60):\n    if epoch % 10 == 9: length *= 8\n    for i in range(300): train_on(batch(512 * length))\n"),
    trainer("late", "schedule in a list", "sizes = [512] * 4 + [20_000_000]\nfor i in range(10_000): train_on(batch(sizes[i // 2000]))\n"),
    trainer("late", "second model", "for i in range(9000): train_on(batch())\nteacher = torch.nn.Linear(40_000, 40_000).to(device)\n"),
    trainer("late", "evaluation now and then", "def evaluate():\n    with torch.no_grad(): return policy(batch(20_000_000)).mean().item()\n"
            "for i in range(1, 50_001):\n    train_on(batch())\n    if i % 10_000 == 0: print(evaluate())\n"),
    trainer("late", "time decides", "import time\nbegan = time.time()\nwhile time.time() - began < 3600:\n    train_on(batch())\n"
            "    if time.time() - began > 1800: extra = torch.empty(10 * 2**30, dtype=torch.uint8, device=device)\n"),
    # programs that fit
    script("fits", "condition on constants", "debug = True\nsize = 1000 if debug else 300_000_000\n" + SAC_LEARN),
    script("fits", "function with defaults", "def main(size=20_000, steps=10**9):\n    m = SAC('MlpPolicy', 'Pendulum-v1', buffer_size=size)\n    m.learn(steps)\n"
           "if __name__ == '__main__':\n    main()\n"),
    script("fits", "product of constants", "size = 1\nfor f in (10, 20, 50):\n    size *= f\n" + SAC_LEARN),
    trainer("fits", "plain", "for i in range(20_000): train_on(batch())\n"),
    trainer("fits", "printed now and then", "for i in range(20_000):\n    loss = train_on(batch())\n    if i % 500 == 0: print(f'{i}: {loss.item():.4f}')\n"),
    trainer("fits", "saved at the end", "for i in range(20_000): train_on(batch())\ntorch.save(policy.state_dict(), 'policy.pt')\nprint('done')\n"),
    trainer("fits", "moving average of weights", "import copy\nshadow = copy.deepcopy(policy)\nfor i in range(5000):\n    train_on(batch())\n"
            "    with torch.no_grad():\n        for a, b in zip(shadow.parameters(), policy.parameters()): a.lerp_(b, 0.01)\n"),
    trainer("fits", "stops early", "worse, best = 0, float('inf')\nfor i in range(5000):\n    loss = train_on(batch()).item()\n    if loss < best: best, worse = loss, 0\n"
            "    else: worse += 1\n    if worse > 500: break\n"),
    trainer("fits", "accumulated gradients", "for i in range(5000):\n    for k in range(4): F.mse_loss(policy(batch()), torch.zeros(512, 16, device=device)).backward()\n"
            "    optimizer.step(); optimizer.zero_grad()\n"),
    trainer("fits", "half precision", "for i in range(3000):\n    with torch.autocast('cuda', dtype=torch.bfloat16): loss = policy(batch()).float().pow(2).mean()\n"
            "    optimizer.zero_grad(); loss.backward(); optimizer.step()\n"),
    trainer("fits", "loader of tensors", "from torch.utils.data import DataLoader, TensorDataset\nd = TensorDataset(torch.rand(50_000, 128))\n"
            "for epoch in range(20):\n    for x, in DataLoader(d, 256, shuffle=True): train_on(x.to(device))\n"),
    trainer("fits", "short, with validation", "for epoch in range(2):\n    for i in range(20): train_on(batch())\n    with torch.no_grad(): print(policy(batch(1000)).mean())\n"),
    trainer("fits", "clipped gradients", "for i in range(4000):\n    loss = policy(batch()).pow(2).mean(); optimizer.zero_grad(); loss.backward()\n"
            "    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0); optimizer.step()\n"),
    trainer("fits", "replay on the GPU", "memory = torch.zeros(200_000, 128, device=device); n = 0\nfor i in range(100_000):\n"
            "    memory[n % 200_000] = torch.rand(128, device=device); n += 1\n    train_on(memory[torch.randint(0, 200_000, (256,), device=device)])\n"),
    host("fits", "array in workers", "import torch.utils.data as data\nrows = np.zeros((1_000_000, 8), 'f4')\nclass Rows(data.Dataset):\n"
         "    def __len__(self): return len(rows)\n    def __getitem__(self, i): return rows[i]\n"
         "for x in data.DataLoader(Rows(), 512, num_workers=3): update()\n", ram="5GiB"),
    host("fits", "ring", "ring = np.zeros((500_000, 64), 'f4')\nfor i in range(10_000_000):\n    ring[i % 500_000] = i\n    update()\n", ram="3GiB"),
)  # fmt: skip
