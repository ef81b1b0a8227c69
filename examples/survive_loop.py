"""A PyTorch loop of one's own that survives running out of memory.

python examples/survive_loop.py       # as it is
python examples/survive_loop.py 40    # with 40 MB from the first update on, which is too little for its batch
"""

import ctypes
import logging
import resource
import sys

import torch
from torch import nn

import legroom

logging.basicConfig(format="%(message)s")
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
optimizer = torch.optim.Adam(net.parameters())


@legroom.survive(micro_batch=8192)
def loss_of(batch):
    """Return the mean loss of the samples given; the decorator calls backward(), in pieces where it has to."""
    return nn.functional.mse_loss(net(batch["x"]), batch["y"])


def main():
    if len(sys.argv) > 1:
        # Tensors go back to the system when they are freed. Otherwise the C library may keep those of the first
        # update, more on some days than on others, and the second one would fit into them.
        ctypes.CDLL(None).mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD
    x = torch.randn(8192, 512)
    batch = {"x": x, "y": x.mean(dim=1, keepdim=True)}
    for update in range(5):
        if update == 1 and len(sys.argv) > 1:  # after the first one, in which Adam makes its state
            with open("/proc/self/status") as status:
                data_kb = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
            limit = data_kb * 1024 + int(sys.argv[1]) * 1_000_000
            resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        optimizer.zero_grad()
        loss = loss_of(batch)
        optimizer.step()
        print(f"update {update}: loss {float(loss):.6f}")
    print(f"micro-batch {loss_of.micro_batch}")


if __name__ == "__main__":
    main()
