"""Quantised operators and weights, as quantisers of ONNX Runtime and others write them."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np

from patterns_composites import MICROSOFT, numbers, sigmoid
from random_graph import ADS, raw

SCALE, ZERO = 0.037, 128


def quantised(g, array, scale=SCALE, zero=ZERO):
    """The input's whole numbers beside their scale and zero, and what they stand for."""
    x = g.input(g.fresh("x"), array)
    own = g.constant(np.float32(scale)), g.constant(np.uint8(zero))
    whole = np.clip(np.round(array / np.float32(scale)) + zero, 0, 255)
    return [raw(g, "QuantizeLinear", [x, *own], whole), *own], (whole - zero) * scale


def dequantised(g, op, inputs, wanted, scale, zero, first=False, **attributes):
    """An operator whose output is quantised, and what that stands for is compared."""
    own = [g.constant(np.float32(scale)), g.constant(np.uint8(zero))]
    g.domains[MICROSOFT] = 1
    whole = np.clip(np.round(wanted / scale) + zero, 0, 255)
    y = raw(g, op, own + inputs if first else inputs + own, whole, domain=MICROSOFT, **attributes)
    g.output(raw(g, "DequantizeLinear", [y, *own], ((whole - zero) * scale).astype(np.float32)))


def quantised_operators(g):
    x, a = quantised(g, numbers(g, ADS, 4))
    other = [g.constant(g.random.randint(0, 256, 4).astype(np.uint8)),
             g.constant(np.float32(0.01)), g.constant(np.uint8(100))]
    b = (other[0].array.astype(float) - 100) * 0.01
    dequantised(g, "QLinearAdd", x + other, a + b, 0.0513, 99)
    dequantised(g, "QLinearMul", x + other, a * b, 0.0513, 99)
    dequantised(g, "QLinearSigmoid", x, sigmoid(a), 1 / 256.1, 0)
    dequantised(g, "QLinearLeakyRelu", x, np.where(a > 0, a, 0.1 * a), 0.0213, 30, alpha=0.1)
    dequantised(g, "QLinearConcat", x + x, np.concatenate([a, a], 1), 0.0413, 120, True, axis=1)


def quantised_pools(g):
    x, a = quantised(g, numbers(g, ADS, 2, 4, 6))
    dequantised(g, "QLinearGlobalAveragePool", x, a.mean((2, 3), keepdims=True), 0.0113, 110)
    windows = a.reshape(ADS, 2, 2, 2, 2, 3).mean((3, 5))
    dequantised(g, "QLinearAveragePool", x, windows, 0.0213, 120, kernel_shape=[2, 3],
                strides=[2, 3])
    y, b = quantised(g, numbers(g, ADS, 3, 4, 6), 0.021, 90)
    dequantised(g, "QLinearConcat", x + y, np.concatenate([a, b], 1), 0.0413, 120, True, axis=1)


def quantised_layers(g):
    """Gemm with a scale per column, as floats and quantised."""
    x, a = quantised(g, numbers(g, ADS, 4))
    whole, scales = g.random.randint(-128, 128, (6, 4)).astype(np.int8), g.random.rand(6) + 0.5
    scales = scales.astype(np.float32)
    weight = [g.constant(whole), g.constant(scales), g.constant(np.zeros(6, np.int8))]
    bias = g.constant(g.random.randint(-99, 99, 6).astype(np.int32))
    y = a @ (whole * scales[:, None]).T + bias.array * scales * SCALE
    g.domains[MICROSOFT] = 1
    g.output(raw(g, "QGemm", [*x, *weight, bias], y.astype(np.float32), domain=MICROSOFT, transB=1))
    dequantised(g, "QGemm", [*x, *weight, bias], y, 3.17, 120, transB=1)


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


def blocks_of_weights(g):
    """A scale for each block of an axis."""
    g.opset = 21
    x = g.input("x", numbers(g, ADS, 6))
    whole = g.random.randint(-8, 8, (6, 3)).astype(np.int8)
    for axis, size, count in ((0, 4, (2, 3)), (1, 2, (6, 2))):
        scales = g.random.rand(*count).astype(np.float32)
        zeros = g.random.randint(-3, 3, count).astype(np.int8)
        each = [np.repeat(v, size, axis)[:6, :3] for v in (scales, zeros)]
        weight = ((whole - each[1].astype(float)) * each[0]).astype(np.float32)
        weight = raw(g, "DequantizeLinear",
                     [g.constant(whole), g.constant(scales), g.constant(zeros)], weight, None,
                     axis=axis, block_size=size)
        g.output(g.node("MatMul", [x, weight], x.array @ weight.array))


PATTERNS = [quantised_operators, quantised_pools, quantised_layers, quantised_convolution,
            blocks_of_weights]
REFUSED = []
