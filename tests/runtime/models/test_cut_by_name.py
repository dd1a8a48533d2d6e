"""A module in the form of HuggingFace's is cut at named points, trains as in one piece, and comes back."""

import runpy
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_runs import launched
from torch import nn

from placements.shapes import v_shape
from runtime.codegen.codegen import generate
from runtime.models import ModelError, ModelOptions, cut
from runtime.program.lower import lower
from schedsearch.baselines import one_f_one_b

FILE = """
import math
from dataclasses import dataclass

import torch
from torch import nn

from runtime.models import cut


@dataclass
class Output:
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden, attention_mask=None):
        batch, length, width = hidden.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(hidden).chunk(3, -1)
        )
        causal = torch.full((length, length), float("-inf"), device=hidden.device, dtype=hidden.dtype).triu(1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads) + causal
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None, None, :] == 0, torch.finfo(hidden.dtype).min)
        found = scores.softmax(-1) @ v
        return self.out(found.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 2 * width), nn.GELU())
        self.down = nn.Linear(2 * width, width)

    def forward(self, hidden, attention_mask=None, output_attentions=False):
        hidden = hidden + self.attn(self.ln_1(hidden), attention_mask=attention_mask)
        return (hidden + self.down(self.mlp(self.ln_2(hidden))),)


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(16, width)
        self.h = nn.ModuleList(Block(width, 2) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        hidden = self.wte(input_ids) + self.wpe(position_ids)
        for block in self.h:
            hidden = block(hidden, attention_mask=attention_mask)[0]
        return self.ln_f(hidden)


class LMHeadModel(nn.Module):
    def __init__(self, vocabulary=11, width=8, layers=4):
        super().__init__()
        self.transformer = Transformer(vocabulary, width, layers)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self._init_weights)
        self.lm_head.weight = self.transformer.wte.weight

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.3)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        labels=None,
        use_cache=True,
        return_dict=None,
    ):
        hidden = self.transformer(input_ids, attention_mask=attention_mask, position_ids=position_ids)
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        if not return_dict:
            return ((loss, logits) if loss is not None else (logits,)) + ((hidden,) if use_cache else ())
        return Output(loss, logits)


def example():
    tokens = torch.zeros(2, 6, dtype=torch.long)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def batch(iteration, micro_batch):
    tokens = torch.randint(11, (2, 6))
    mask = (torch.arange(6).expand(2, 6) < torch.randint(3, 7, (2, 1))).long()
    return tokens, mask, torch.where(mask == 1, tokens.roll(-1, 1), -100)
"""


LOSS_INSIDE = """
def blocks():
    given = example() | {"position_ids": torch.arange(6).expand(2, 6).contiguous(), "use_cache": False}
    given["labels"] = given["input_ids"]
    found = cut(LMHeadModel().double(), at=["transformer.h.2", "lm_head"], example=given, targets=["labels"])
    return dict(zip(["F0", "F1", "F2"], found, strict=True))

def data(iteration, micro_batch):
    tokens, mask, labels = batch(iteration, micro_batch)
    positions = torch.arange(6).expand(2, 6).contiguous()
    return {"position_ids": positions, "attention_mask": mask, "input_ids": tokens}, {"labels": labels}

def loss(loss, logits):
    return loss
"""


def test_it_trains_as_in_one_piece(tmp_path: Path) -> None:
    path, before = tmp_path / "model.py", tmp_path / "before.safetensors"
    after = tmp_path / "after.safetensors"
    path.write_text(FILE + LOSS_INSIDE)
    defined = runpy.run_path(str(path))
    torch.manual_seed(3)
    module: nn.Module = defined["LMHeadModel"]().double()
    safetensors.torch.save_model(module, str(before))
    options = ModelOptions("module", path=str(path), learning_rate=0.2)
    generate(lower(one_f_one_b(v_shape(3), 4)), {}, options.to_dict(), tmp_path / "scripts")
    weights = {"load_weights": before, "save_weights": after}
    found = launched(tmp_path / "scripts", 3, 2, launcher="in_process", verify="none", **weights)
    losses = _train(module, options, 2, 4)
    torch.testing.assert_close(found.losses, losses, rtol=1e-12, atol=1e-14)
    trained = safetensors.torch.load_file(after)
    assert trained.keys() == module.state_dict().keys()
    for name, value in module.state_dict().items():
        torch.testing.assert_close(trained[name], value, rtol=1e-12, atol=1e-14)
    module.load_state_dict(trained)


def _train(
    module: nn.Module, options: ModelOptions, iterations: int, number: int
) -> tuple[tuple[float, ...], ...]:
    """Train the module in one piece; return the losses."""
    from runtime.models.user.user_file import UserFile

    file = UserFile(options)
    losses = []
    for iteration in range(iterations):
        module.zero_grad()
        found = []
        for n in range(number):
            inputs, targets = file.data(iteration, n)
            assert isinstance(targets, dict)
            loss = module(**inputs, **targets, return_dict=True).loss
            (loss / number).backward()
            found.append(float(loss.detach()))
        losses.append(tuple(found))
        with torch.no_grad():
            for weight in module.parameters():
                assert weight.grad is not None
                weight.sub_(weight.grad, alpha=options.learning_rate)
    return tuple(losses)


def test_what_cannot_be_captured_is_one_line(tmp_path: Path) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, values: torch.Tensor, mask: torch.Tensor | None = None) -> object:
            hidden = self.first(values)
            if hidden.sum() > 0:
                hidden = -hidden
            return {"hidden": self.last(hidden)}

    with pytest.raises(ModelError, match="cut: torch.export cannot capture Counts") as caught:
        cut(Counts(), ["last"], example={"values": torch.zeros(1, 2)})
    assert "\n" not in str(caught.value)


def test_targets_are_among_the_inputs() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.last(self.first(values))}

    with pytest.raises(ModelError, match="cut: the model takes no 'labels'; use targets among values"):
        cut(Pair(), ["last"], example={"values": torch.zeros(1, 2)}, targets=["labels"])
    first, last = cut(Pair(), ["last"], example={"values": torch.zeros(1, 2)})
    (found,) = last(first(torch.ones(1, 2)))
    assert found.shape == (1, 2)
