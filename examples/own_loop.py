"""A training loop of your own, on the four devices of a V-shape; see docs/concepts/own_loop.md."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import runtime
from runtime.models import cut

torch.manual_seed(0)  # the same weights and data in every process
layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
modules = cut(nn.Sequential(*layers, nn.Linear(16, 4)), at=["2", "4", "6"])
images = torch.randn(512, 16)
dataset = TensorDataset(images, (images @ torch.randn(16, 4)).argmax(1))
loader = DataLoader(dataset, batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(0))

with runtime.Pipeline(modules, "job/scripts", loss=cross_entropy) as pipeline:
    optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=40)
    for epoch in range(5):
        for batch in loader:
            loss = pipeline.step(batch)
            pipeline.clip_grad_norm_(1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if pipeline.is_last:
            print(f"epoch {epoch}: loss {loss:.6f}")
