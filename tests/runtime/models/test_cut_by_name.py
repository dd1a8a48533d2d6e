"""A module in the form of HuggingFace's is cut at named points, trains as in one piece, and comes back."""

import runpy
from pathlib import Path

import safetensors.torch
import torch
from small_runs import trained
from torch import nn

from placements.shapes import v_shape
from runtime.models import ModelOptions
from runtime.models.user.user_file import UserFile
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b

FILE = """
from dataclasses import dataclass

import torch
from torch import nn

from runtime.models import cut


@dataclass
class Output:
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden, attention_mask=None, output_attentions=False):
        q, k, v = self.qkv(self.ln(hidden)).chunk(3, -1)
        length = hidden.shape[1]
        causal = torch.full((length, length), float("-inf"), device=hidden.device, dtype=hidden.dtype).triu(1)
        scores = q @ k.transpose(-1, -2) + causal
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None, :] == 0, torch.finfo(hidden.dtype).min)
        return (hidden + self.out(scores.softmax(-1) @ v).tanh(),)


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(16, width)
        self.h = nn.ModuleList(Block(width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        hidden = self.wte(input_ids) + self.wpe(position_ids)
        for block in self.h:
            hidden = block(hidden, attention_mask=attention_mask)[0]
        return self.ln_f(hidden)


class LMHeadModel(nn.Module):
    def __init__(self, vocabulary=11, width=8, layers=4):
        super().__init__()
        self.transformer = Transformer(vocabulary, width, layers)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.apply(lambda part: nn.init.normal_(part.weight, std=0.3) if hasattr(part, "weight") else None)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids, attention_mask, position_ids, labels=None, use_cache=True, return_dict=None):
        hidden = self.transformer(input_ids, attention_mask=attention_mask, position_ids=position_ids)
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        if not return_dict:
            return ((loss, logits) if loss is not None else (logits,)) + ((hidden,) if use_cache else ())
        return Output(loss, logits)


def blocks():
    tokens = torch.zeros(2, 6, dtype=torch.long)
    names = "input_ids", "attention_mask", "position_ids", "labels"
    given = {name: tokens.clone() for name in names} | {"use_cache": False}
    parts = cut(LMHeadModel().double(), at=["transformer.h.2", "lm_head"], example=given, targets=["labels"])
    return dict(zip(["F0", "F1", "F2"], parts, strict=True))

def data(iteration, micro_batch):
    tokens, positions = torch.randint(11, (2, 6)), torch.arange(6).expand(2, 6).contiguous()
    mask = (positions < torch.randint(3, 7, (2, 1))).long()
    labels = torch.where(mask == 1, tokens.roll(-1, 1), -100)
    return {"position_ids": positions, "attention_mask": mask, "input_ids": tokens}, {"labels": labels}

def loss(loss, logits):
    return loss
"""


def test_it_trains_as_in_one_piece(tmp_path: Path) -> None:
    path, before = tmp_path / "model.py", tmp_path / "before.safetensors"
    after = tmp_path / "after.safetensors"
    path.write_text(FILE)
    defined = runpy.run_path(str(path))
    torch.manual_seed(3)
    module: nn.Module = defined["LMHeadModel"]().double()
    safetensors.torch.save_model(module, str(before))
    options = ModelOptions("module", path=str(path), learning_rate=0.2)
    weights = {"load_weights": before, "save_weights": after}
    result = trained(lower(one_f_one_b(v_shape(3), 4)), options, verify="none", **weights)
    losses = _train(module, options, 2, 4)
    torch.testing.assert_close(result.losses, losses, rtol=1e-12, atol=1e-14)
    saved = safetensors.torch.load_file(after)
    assert saved.keys() == module.state_dict().keys()
    for name, value in module.state_dict().items():
        torch.testing.assert_close(saved[name], value, rtol=1e-12, atol=1e-14)
    module.load_state_dict(saved)


def _train(
    module: nn.Module, options: ModelOptions, iterations: int, number: int
) -> tuple[tuple[float, ...], ...]:
    """Train the module in one piece; return the losses."""
    file = UserFile(options)
    losses = []
    for iteration in range(iterations):
        module.zero_grad()
        part_losses = []
        for n in range(number):
            inputs, targets = file.data(iteration, n)
            assert isinstance(targets, dict)
            loss = module(**inputs, **targets, return_dict=True).loss
            (loss / number).backward()
            part_losses.append(float(loss.detach()))
        losses.append(tuple(part_losses))
        with torch.no_grad():
            for weight in module.parameters():
                assert weight.grad is not None
                weight.sub_(weight.grad, alpha=options.learning_rate)
    return tuple(losses)
