"""Costs of convolutional networks for images: VGG-16, AlexNet and ResNet-50, layer by layer from shapes.

A layer is what a pipeline is cut between: a convolution or a fully connected layer with what follows it, or
in ResNet-50 a bottleneck block. Operations count two for each multiply and add; norms, activations and pools
count none. The module does not know a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_IMAGE = (3, 224)
"""Channels and height, which is also the width, of an image."""

_CLASSES = 1000


@dataclass(frozen=True)
class VisionLayer:
    """A layer and what it costs for one image.

    Attributes:
        name: Unique within the model.
        forward_flops: Operations of its forward.
        num_parameters: Weights, biases, and scale and shift of norms.
        output_size: Numbers that it hands to the next layer, after its pool if it has one.
    """

    name: str
    forward_flops: int
    num_parameters: int
    output_size: int


@dataclass(frozen=True)
class _Image:
    """Tensor that goes from layer to layer."""

    channels: int
    height: int

    @property
    def size(self) -> int:
        return self.channels * self.height**2

    def pooled(self, kernel: int, stride: int, padding: int = 0) -> _Image:
        return _Image(self.channels, _sliding(self.height, kernel, stride, padding))


def _sliding(height: int, kernel: int, stride: int, padding: int) -> int:
    return (height + 2 * padding - kernel) // stride + 1


@dataclass(frozen=True)
class _Convolution:
    """A convolution of square kernels on a square image; with a bias, or a norm behind it and none."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    has_norm: bool = False

    def after(self, before: _Image) -> _Image:
        """Return its output."""
        return _Image(self.channels, _sliding(before.height, self.kernel, self.stride, self.padding))

    def flops(self, before: _Image) -> int:
        """Return its operations."""
        return 2 * before.channels * self.kernel**2 * self.after(before).size

    def num_parameters(self, before: _Image) -> int:
        """Return its weights, and its biases or the norm's scale and shift."""
        return self.channels * (before.channels * self.kernel**2 + (2 if self.has_norm else 1))


def vgg16() -> tuple[VisionLayer, ...]:
    """Return 13 convolutions and 3 fully connected layers (Simonyan and Zisserman, 2015, column D).

    >>> sum(layer.num_parameters for layer in vgg16())
    138357544
    """
    image = _Image(*_IMAGE)
    layers: list[VisionLayer] = []
    for number, channels in zip((2, 2, 3, 3, 3), (64, 128, 256, 512, 512), strict=True):
        for i in range(number):
            convolution = _Convolution(channels, 3, padding=1)
            after = convolution.after(image)
            after = after.pooled(2, 2) if i == number - 1 else after
            layers.append(_layer(f"conv{len(layers) + 1}", [(convolution, image)], after))
            image = after
    return (*layers, *_fully_connected(image.size, (4096, 4096, _CLASSES), len(layers)))


def alexnet() -> tuple[VisionLayer, ...]:
    """Return 5 convolutions and 3 fully connected layers (Krizhevsky, 2014, on one GPU).

    >>> sum(layer.num_parameters for layer in alexnet())
    61100840
    """
    convolutions = [
        (_Convolution(64, 11, stride=4, padding=2), True),
        (_Convolution(192, 5, padding=2), True),
        (_Convolution(384, 3, padding=1), False),
        (_Convolution(256, 3, padding=1), False),
        (_Convolution(256, 3, padding=1), True),
    ]
    image = _Image(*_IMAGE)
    layers: list[VisionLayer] = []
    for convolution, is_pooled in convolutions:
        after = convolution.after(image)
        after = after.pooled(3, 2) if is_pooled else after
        layers.append(_layer(f"conv{len(layers) + 1}", [(convolution, image)], after))
        image = after
    return (*layers, *_fully_connected(image.size, (4096, 4096, _CLASSES), len(layers)))


def resnet50() -> tuple[VisionLayer, ...]:
    """Return a convolution, 16 bottleneck blocks and a fully connected layer (He et al., 2016, Table 1).

    The first 3x3 convolution of each group has the stride, as in most implementations.

    >>> sum(layer.num_parameters for layer in resnet50())
    25557032
    """
    first, image = _Convolution(64, 7, stride=2, padding=3, has_norm=True), _Image(*_IMAGE)
    after = first.after(image).pooled(3, 2, padding=1)
    layers = [_layer("conv1", [(first, image)], after)]
    for group, (number, width) in enumerate(zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True)):
        for i in range(number):
            stride = 2 if i == 0 and group > 0 else 1
            layers.append(
                _bottleneck(f"block{group + 1}.{i + 1}", after, width, stride, has_projection=i == 0)
            )
            after = _Image(4 * width, _sliding(after.height, 3, stride, 1))
    return (*layers, *_fully_connected(after.channels, (_CLASSES,), 0))


VISION_MODELS: Mapping[str, Callable[[], tuple[VisionLayer, ...]]] = {
    "vgg16": vgg16,
    "alexnet": alexnet,
    "resnet50": resnet50,
}
"""The layers of each model, by its name."""


def _bottleneck(name: str, before: _Image, width: int, stride: int, has_projection: bool) -> VisionLayer:
    """Return a block that narrows, convolves and widens, beside what leads around it."""
    convolutions = [
        _Convolution(width, 1, has_norm=True),
        _Convolution(width, 3, stride, padding=1, has_norm=True),
        _Convolution(4 * width, 1, has_norm=True),
    ]
    parts, image = [], before
    for each in convolutions:
        parts.append((each, image))
        image = each.after(image)
    if has_projection:
        parts.append((_Convolution(4 * width, 1, stride, has_norm=True), before))
    return _layer(name, parts, image)


def _layer(name: str, parts: Sequence[tuple[_Convolution, _Image]], after: _Image) -> VisionLayer:
    """Return convolutions, each with its input, as one layer."""
    return VisionLayer(
        name,
        sum(each.flops(before) for each, before in parts),
        sum(each.num_parameters(before) for each, before in parts),
        after.size,
    )


def _fully_connected(size: int, widths: Sequence[int], num_before: int) -> list[VisionLayer]:
    """Return layers that read all numbers of the one before, and their biases."""
    layers: list[VisionLayer] = []
    for width in widths:
        name = f"fc{num_before + len(layers) + 1}" if num_before else "fc"
        layers.append(VisionLayer(name, 2 * size * width, (size + 1) * width, width))
        size = width
    return layers
