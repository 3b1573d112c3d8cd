"""Costs of a layer, of the model, and of a convolution by its shape alone."""

from __future__ import annotations

from dataclasses import dataclass

from edge.types import Precision

__all__ = ["BIAS_BYTES_INT8", "ELEMENT_BYTES", "ConvShape", "LayerAccount", "ModelAccount"]

ELEMENT_BYTES = {Precision.INT8: 1, Precision.FP16: 2, Precision.FP32: 4}
BIAS_BYTES_INT8 = 4  # of one value: a bias is added to sums in int32


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvShape:
    """A convolution, or a fully connected layer as one of 1x1 on a picture of 1x1."""

    kernel: tuple[int, int]  # height and width of the kernel
    channels_in: int  # of the picture that it reads, all groups together
    channels_out: int  # of the picture that it makes
    groups: int
    size_in: tuple[int, int]  # height and width of the former
    size_out: tuple[int, int]  # height and width of the latter

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.channels_in

    @property
    def weights(self) -> int:
        """Values of the kernel, without the bias."""
        return self.kernel[0] * self.kernel[1] * (self.channels_in // self.groups) * self.channels_out

    def operations(self, batch: int) -> int:
        """Return two for each multiply-accumulate."""
        return 2 * batch * self.size_out[0] * self.size_out[1] * self.weights

    def moved_bytes(self, batch: int, precision: Precision) -> int:
        """Return what is read and written, weights and biases among it, each once."""
        element = ELEMENT_BYTES[precision]
        read = self.channels_in * self.size_in[0] * self.size_in[1]
        written = self.channels_out * self.size_out[0] * self.size_out[1]
        bias = self.channels_out * (BIAS_BYTES_INT8 if precision is Precision.INT8 else element)
        return batch * (read + written) * element + self.weights * element + bias

    def intensity(self, batch: int, precision: Precision) -> float:
        """Return operations for each byte that is moved."""
        return self.operations(batch) / self.moved_bytes(batch, precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerAccount:
    """One layer as engines run it, for a whole batch; bytes pass through memory once each."""

    name: str  # of the node that gives the layer its work; of its first output where it has none
    op_type: str
    fused: tuple[str, ...]  # the operators that run inside of it, that node's among them, in the order of the file
    precision: Precision
    operations: int  # two for each multiply-accumulate; in other layers one for each value that an operator works out
    parameters: int  # stored values that it reads
    weight_bytes: int  # of them
    read_bytes: int  # of activations
    written_bytes: int  # of activations
    shape: ConvShape | None = None  # of a convolution in two dimensions, or of a fully connected layer

    @property
    def moved_bytes(self) -> int:
        return self.weight_bytes + self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float:
        """Operations for each byte that is moved; 0 where nothing is moved."""
        return self.operations / self.moved_bytes if self.moved_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccount:
    """The layers of a model in their order, for a batch."""

    batch: int  # frames that the figures are of
    precision: Precision  # INT8 where any layer computes in it; else that of all
    layers: tuple[LayerAccount, ...]
    uncounted: tuple[str, ...] = ()  # nodes that work on tensors of unknown size: they are in no figure

    @property
    def operations(self) -> int:
        return sum(layer.operations for layer in self.layers)

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def weight_bytes(self) -> int:
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def moved_bytes(self) -> int:
        """Of all layers: what one makes and another reads is counted at both."""
        return sum(layer.moved_bytes for layer in self.layers)
