"""A small convolutional network over the four stages of a V-shape."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy as loss  # noqa: F401 - of the last block's output and the targets

from runtime.models import cut


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU())
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Dropout(0.1))
        self.head = nn.Linear(8, 2)

    def forward(self, images):
        hidden = self.stem(images)
        hidden = hidden + self.first(hidden).relu()
        hidden = hidden + self.second(hidden).relu()
        return self.head(hidden.mean((2, 3)))


def blocks():
    return dict(zip(["F0", "F1", "F2", "F3"], cut(Network(), at=["first", "second", "head"]), strict=True))


def data(iteration, micro_batch):
    images = torch.randn(4, 3, 8, 8)  # seeded for each micro-batch
    return images, (images[:, 0].mean((1, 2)) > 0).long()
