"""A loop of one's own whose handling of out of memory does not work."""

import numpy as np
import torch

model = torch.nn.Linear(100_000, 4096).cuda()
optimizer = torch.optim.Adam(model.parameters())
buffer = np.zeros((1_000_000, 100), np.float32)


def train_step(batch):
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


batch_size = 4096
for update in range(1000):
    batch = torch.randn(batch_size, 100_000, device="cuda")
    try:
        train_step(batch)
    except RuntimeError as e:
        if "out of memory" in str(e):
            batch_size //= 2
            torch.cuda.empty_cache()
            train_step(batch[:batch_size])
        else:
            raise
