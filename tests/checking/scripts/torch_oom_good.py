"""A loop of one's own that recovers from out of memory as it can be done."""

import logging

import torch

log = logging.getLogger(__name__)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(1000, 1000).to(device)
batch_size = 4096
step = 0
while step < 1000:
    failed = False
    try:
        loss = model(torch.randn(batch_size, 1000, device=device)).pow(2).mean()
        loss.backward()
        step += 1
    except (RuntimeError, MemoryError) as error:
        if "out of memory" not in str(error) and "allocate" not in str(error):
            raise
        log.warning("batch of %d is too large", batch_size)
        failed = True
    if failed:
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        batch_size //= 2

try:
    with open("settings.txt") as file:
        print(file.read())
except RuntimeError as error:
    print("could not read", error)
