"""Programs that leak memory of the card, and some that only seem to. `# held` marks the line that holds it."""

HEAD = """
import collections
import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 8)).cuda()
optimizer = torch.optim.Adam(net.parameters())


def batch():
    return torch.ones(64, 256, device="cuda")


def learn(loss, **how):
    optimizer.zero_grad()
    loss.backward(**how)
    optimizer.step()

"""

LEAKS = {
    "losses with graphs": """
losses = []
for step in range(16):
    loss = net(batch()).mean()
    learn(loss)
    losses.append(loss)  # held
""",
    "a running sum": """
total = 0
for step in range(16):
    loss = net(batch()).mean()
    learn(loss, retain_graph=True)
    total += loss  # held
""",
    "a snapshot now and then": """
snapshots = []
for step in range(5000):
    learn(net(batch()).mean())
    if step in (15, 4000):
        snapshots.append([p.detach().clone() for p in net.parameters()])  # held
""",
    "a cache in a module": """
class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        hidden = x * 2
        self.seen.append(hidden)  # held
        return net(hidden)

caching = Caching()
for step in range(16):
    learn(caching(batch()).mean())
""",
    "a dictionary that grows": """
features = {}
for step in range(16):
    x = batch()
    out = net(x)
    features[step] = out.detach()  # held
    learn(out.mean())
""",
    "tensors in a log": """
log = collections.defaultdict(list)
for step in range(16):
    out = net(batch())
    entropy = out.softmax(-1).mean()
    log["entropy"].append(entropy)  # held
    learn(out.mean())
""",
    "outputs whose graph is never used": """
history = []
for step in range(16):
    guess = net(batch())
    history.append(guess)  # held
    learn(net(batch()).mean())
""",
    "transitions on the card": """
memory = []
for step in range(16):
    obs = batch()
    action = net(obs).argmax(-1)
    memory.append((obs, action))  # held
    learn(net(obs).mean())
""",
    "a logger in another function": """
class Logger:
    def __init__(self):
        self.values = []

    def scalar(self, name, value):
        self.values.append(value)  # held

logger = Logger()
for step in range(16):
    loss = net(batch()).mean()
    learn(loss)
    logger.scalar("loss", loss)
""",
    "a hook that keeps activations": """
kept = []

def keep(module, inputs, output):
    kept.append(output)  # held

net[0].register_forward_hook(keep)
for step in range(16):
    learn(net(batch()).mean())
""",
    "a hidden state that is never detached": """
cell = nn.GRUCell(8, 8).cuda()
state = torch.zeros(64, 8, device="cuda")
for step in range(16):
    state = cell(net(batch()), state)  # held
    learn(state.mean(), retain_graph=True)
""",
}

NO_LEAKS = {
    "numbers in a log": """
log = []
for step in range(16):
    loss = net(batch()).mean()
    learn(loss)
    log.append(loss.item())
""",
    "cleared every epoch": """
for epoch in range(4):
    losses = []
    for step in range(5):
        loss = net(batch()).mean()
        learn(loss)
        losses.append(loss.detach())
    print(torch.stack(losses).mean().item())
""",
    "the best so far": """
best = None
for step in range(24):
    learn(net(batch()).mean())
    if step == 15:
        best = [p.detach().clone() for p in net.parameters()]
""",
    "a queue of fixed length": """
recent = collections.deque(maxlen=4)
for step in range(24):
    loss = net(batch()).mean()
    learn(loss)
    recent.append(loss.detach())
""",
    "an average of weights": """
average = [p.detach().clone() for p in net.parameters()]
for step in range(16):
    learn(net(batch()).mean())
    average = [0.9 * a + 0.1 * p.detach() for a, p in zip(average, net.parameters())]
""",
}
