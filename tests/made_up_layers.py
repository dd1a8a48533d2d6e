"""Layers of made-up models, as `schedsearch.layouts` takes them."""

from __future__ import annotations

from placements.trainers.layers import ModelLayer, ModelLayers

HEAD = "layer,kind,forward_ms,backward_ms,activation_mib,weight_mib"


def made_up_layers(
    num_layers: int,
    num_mtp: int = 0,
    embedding: tuple[float, float] = (0.2, 0.3),
    loss: tuple[float, float] = (1.5, 2.5),
    mtp: tuple[float, float] = (1.4, 2.9),
    layer: tuple[float, float] = (1.0, 2.0),
    slower: float = 0.0,
) -> ModelLayers:
    """Return an embedding, layers, perhaps MTP, and the loss; layers take more and more.

    Args:
        num_layers: Transformer layers.
        num_mtp: Layers of MTP.
        embedding: Times of its forward and backward, in ms, as for the rest.
        loss: Likewise.
        mtp: Likewise.
        layer: Likewise.
        slower: What each layer takes more than the one before, as a share.
    """
    rows = [
        ModelLayer("embedding", "embedding", *embedding, 5, 800),
        *(
            ModelLayer(f"layer {i}", "layer", *(round(ms * (1 + slower * i), 3) for ms in layer), 100, 1000)
            for i in range(num_layers)
        ),
        *(ModelLayer(f"mtp {i}", "mtp", *mtp, 120, 1100) for i in range(num_mtp)),
        ModelLayer("loss", "loss", *loss, 50, 900),
    ]
    return ModelLayers(tuple(rows))


def as_csv(model: ModelLayers) -> str:
    """Return the layers as a file has them."""
    rows = (
        f"{row.layer},{row.kind},{row.forward_ms},{row.backward_ms},{row.activation_mib},{row.weight_mib}"
        for row in model.layers
    )
    return "\n".join([HEAD, *rows, ""])
