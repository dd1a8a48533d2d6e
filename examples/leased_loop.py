"""A training loop that a cluster runs in rounds, on changing GPUs; see docs/concepts/cluster.md."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import runtime

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
images = torch.randn(512, 16)
dataset = TensorDataset(images, (images @ torch.randn(16, 4)).argmax(1))
sampler = DistributedSampler(dataset, num_replicas=1, rank=0, seed=0)  # its order depends on the epoch only
loader = DataLoader(dataset, batch_size=64, sampler=sampler)


def save(path):
    random = torch.get_rng_state()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": random}, path)


def load(path):
    states = torch.load(path)
    model.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    torch.set_rng_state(states["random"])


batches = runtime.LeasedIterator(loader, load, save)
for inputs, targets in batches:
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {batches.num_steps}: loss {loss.item():.9g} on {batches.lease.gpu_type}", flush=True)
