"""Quantised operators and weights, as quantisers write them."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np

from patterns_composites import numbers
from random_graph import ADS, raw

SCALE, ZERO = 0.037, 128


def quantised(g, array, scale=SCALE, zero=ZERO):
    """The input's whole numbers beside their scale and zero, and what they stand for."""
    x = g.input(g.fresh("x"), array)
    own = g.constant(np.float32(scale)), g.constant(np.uint8(zero))
    whole = np.clip(np.round(array / np.float32(scale)) + zero, 0, 255)
    return [raw(g, "QuantizeLinear", [x, *own], whole), *own], (whole - zero) * scale


def quantised_convolution(g):
    x, a = quantised(g, numbers(g, ADS, 2, 5))
    whole, scales = g.random.randint(-128, 128, (3, 2, 2)).astype(np.int8), g.random.rand(3) + 0.5
    scales = scales.astype(np.float32)
    bias = g.constant(g.random.randint(-99, 99, 3).astype(np.int32))
    weight = whole * scales[:, None, None]
    y = sum(np.einsum("ncs,oc->nos", a[:, :, i:i + 4], weight[:, :, i]) for i in range(2))
    y += (bias.array * scales * SCALE)[:, None]
    own = [g.constant(np.float32(2.13)), g.constant(np.uint8(120))]
    inputs = [*x, g.constant(whole), g.constant(scales), g.constant(np.zeros(3, np.int8))]
    out = np.clip(np.round(y / 2.13) + 120, 0, 255)
    product = raw(g, "QLinearConv", [*inputs, *own, bias], out)
    g.output(raw(g, "DequantizeLinear", [product, *own], ((out - 120) * 2.13).astype(np.float32)))


def scales_of_an_axis(g):
    """Weights and numbers that training quantised and dequantised: a scale per entry of an axis."""
    x, weight = g.input("x", numbers(g, ADS, 3, 4)), g.constant(numbers(g, 2, 3, 4))

    def rounded(value, axis):
        count = value.array.shape[axis]
        scale = ((g.random.rand(count) + 0.5) / 16).astype(np.float32)
        zero = g.random.randint(-9, 9, count).astype(np.int8)
        own = [g.constant(scale), g.constant(zero)]
        by = [a.reshape(-1, *[1] * (value.array.ndim - 1 - axis)) for a in (scale, zero)]
        whole = np.clip(np.round(value.array / by[0]) + by[1], -128, 127)
        # An axis from the end where there is one, for nodes that say so.
        back = axis - value.array.ndim if axis == 2 else axis
        whole = raw(g, "QuantizeLinear", [value, *own], whole, None, axis=back)
        out = ((whole.array - by[1]) * by[0]).astype(np.float32)
        return raw(g, "DequantizeLinear", [whole, *own], out, None, axis=back)

    for i, axis in enumerate((1, 2)):
        part = g.slice(rounded(weight, 0), 0, i, i + 1)
        g.output(g.binary("Mul", rounded(x, axis), part))


def blocks_of_weights(g):
    """A scale for each block of an axis, as weights of language models have them."""
    g.opset = 21
    x = g.input("x", numbers(g, ADS, 6))
    whole, scales = g.random.randint(-8, 8, (6, 3)).astype(np.int8), g.random.rand(2, 3)
    weight = whole * np.repeat(scales, 3, 0)
    inputs = [g.constant(whole), g.constant(scales.astype(np.float32))]
    weight = raw(g, "DequantizeLinear", inputs, weight.astype(np.float32), None, axis=0, block_size=3)
    g.output(g.node("MatMul", [x, weight], x.array @ weight.array))


PATTERNS = [quantised_convolution, scales_of_an_axis]
REFUSED = [(blocks_of_weights, "(DequantizeLinear)")]
