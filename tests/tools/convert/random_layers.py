"""Random steps that are whole layers: convolutions, pooling, recurrences, scatters."""
# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
from onnx import helper

from random_graph import Skip, Value, apart


def logistic(a):
    return 1 / (1 + np.exp(-a))


def states(op, linear, x, weights, first, lengths=None, backwards=False):
    """The states after every step of x [steps, rows, k], and the last one and its cell, in float64.

    weights: those of the input, of the state, and the biases of both, without the directions.
    """
    w, r, b = (v.astype(float) for v in weights)
    h = c = first.astype(float)
    n, every = h.shape[1], np.zeros((len(x), *h.shape))
    wb, rb = np.split(b, 2)
    for t in range(len(x))[::-1 if backwards else 1]:
        before, a, s = (h, c), x[t].astype(float) @ w.T + wb, h @ r.T
        if op == "RNN":
            h = np.tanh(a + s + rb)
        elif op == "LSTM":
            i, o, f, k = np.split(a + s + rb, 4, 1)
            c = logistic(f) * c + logistic(i) * np.tanh(k)
            h = logistic(o) * np.tanh(c)
        else:
            z, q = (logistic(v) for v in np.split((a + s + rb)[:, :2 * n], 2, 1))
            inner = q * (s + rb)[:, 2 * n:] if linear else (q * h) @ r[2 * n:].T + rb[2 * n:]
            h = (1 - z) * np.tanh(a[:, 2 * n:] + inner) + z * h
        within = True
        if lengths is not None:
            within = (lengths > t)[:, None]
            h, c = np.where(within, h, before[0]), np.where(within, c, before[1])
        every[t] = h * within
    return every, h, c


def recur(g, x):
    """One or both directions, over the axis behind the rows or the last one."""
    if x.kind != "float" or x.array.ndim != 3:
        raise Skip
    op = ("LSTM", "GRU", "RNN")[g.random.randint(3)]
    n, gates = int(g.random.randint(1, 4)), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    perm = [1, 0, 2] if g.random.randint(3) else [2, 0, 1]
    steps, linear = x.array.transpose(perm), int(g.random.randint(2))
    direction = ("forward", "reverse", "bidirectional")[g.random.randint(3)]
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    shapes = (gates * n, steps.shape[2]), (gates * n, n), (2 * gates * n,)
    weights = [[g.random.randn(*s).astype(np.float32) for s in shapes] for _ in ways]
    start = np.zeros((steps.shape[1], n))
    ran = [states(op, linear, steps, w, start, backwards=b) for w, b in zip(weights, ways)]
    turned, every, last = g.fresh("turned"), g.fresh("every"), g.fresh("last")
    g.nodes.append(helper.make_node("Transpose", [x.name], [turned], perm=perm))
    stacked = [g.constant(np.stack(of)).name for of in zip(*weights)]
    more = {"linear_before_reset": linear} if op == "GRU" else {}
    g.nodes.append(helper.make_node(op, [turned, *stacked], [every, last], hidden_size=n,
                                    direction=direction, **more))
    if g.random.randint(2):  # [directions, rows, n]
        result, given, axes = np.stack([h for _, h, _ in ran], 1), last, [1, 0, 2]
    else:  # [steps, directions, rows, n]
        result, given, axes = np.stack([e for e, _, _ in ran], 2), every, [2, 0, 1, 3]
        result = result.transpose(1, 0, 2, 3)
    name = g.fresh()
    g.nodes.append(helper.make_node("Transpose", [given], [name], perm=axes))
    return g.keep(Value(name, result.astype(np.float32), x.rows))


def windows(g, x):
    """What Conv and pools have in common: sizes of kernels, steps, distances and pads."""
    spatial = x.array.shape[2:]
    kernel = [int(g.random.randint(1, min(size, 3) + 1)) for size in spatial]
    strides = [int(g.random.randint(1, 3)) for _ in spatial]
    pads = [int(g.random.randint(0, k)) for k in kernel * 2] if g.random.randint(2) else None
    return kernel, strides, pads or [0] * 2 * len(kernel)


def taps(a, kernel, strides, pads, dilations, fill):
    """For each place of the kernel what it sees of every window."""
    count = len(kernel)
    a = np.pad(a, [(0, 0), (0, 0), *zip(pads[:count], pads[count:])], constant_values=fill)
    sizes = [(size - (k - 1) * d - 1) // s + 1
             for size, k, s, d in zip(a.shape[2:], kernel, strides, dilations)]
    if min(sizes) < 1:
        raise Skip
    for place in itertools.product(*(range(k) for k in kernel)):
        at = tuple(slice(p * d, p * d + (size - 1) * s + 1, s)
                   for p, d, s, size in zip(place, dilations, strides, sizes))
        yield place, a[(slice(None), slice(None), *at)]


def convolve(g, x):
    if x.kind != "float" or x.array.ndim not in (3, 4, 5):
        raise Skip
    kernel, strides, pads = windows(g, x)
    dilations = [int(g.random.randint(1, 3)) for _ in kernel]
    channels = x.array.shape[1]
    groups = channels if g.random.randint(3) == 0 else 1
    out = groups * int(g.random.randint(1, 3))
    w = g.random.randn(out, channels // groups, *kernel).astype(np.float32)
    bias = g.random.randn(out).astype(np.float32) if g.random.randint(2) else None
    result = 0
    for place, seen in taps(x.array.astype(float), kernel, strides, pads, dilations, 0):
        weight = w[(slice(None), slice(None), *place)]
        parts = [np.einsum("nc...,oc->no...", part, of) for part, of in
                 zip(np.split(seen, groups, 1), np.split(weight, groups))]
        result = result + np.concatenate(parts, 1)
    inputs = [x, g.constant(w)]
    if bias is not None:
        inputs.append(g.constant(bias))
        result = result + bias.reshape(-1, *[1] * len(kernel))
    return g.node("Conv", inputs, result, kernel_shape=kernel, strides=strides, pads=pads,
                  dilations=dilations, group=groups)


def pool(g, x):
    if x.kind != "float" or x.array.ndim not in (3, 4, 5):
        raise Skip
    kernel, strides, pads = windows(g, x)
    ones, a = [1] * len(kernel), x.array.astype(float)
    if g.random.randint(2):
        result = np.max([seen for _, seen in taps(a, kernel, strides, pads, ones, -np.inf)], 0)
        return g.node("MaxPool", [x], result, kernel_shape=kernel, strides=strides, pads=pads)
    whole = int(g.random.randint(2))
    total = sum(seen for _, seen in taps(a, kernel, strides, pads, ones, 0))
    count = sum(seen for _, seen in taps(np.ones_like(a), kernel, strides, pads, ones, whole))
    return g.node("AveragePool", [x], total / count, kernel_shape=kernel, strides=strides,
                  pads=pads, count_include_pad=whole)


def scatter(g, x):
    """The mean of an axis in the place of its largest entry, or added to that."""
    if x.kind != "float" or x.array.ndim < 2 or g.opset < 11:
        raise Skip
    axis, a = int(g.random.randint(1, x.array.ndim)), x.array
    if not apart(a, axis):
        raise Skip
    best = np.expand_dims(np.argmax(a, axis), axis)
    mean = a.astype(float).mean(axis, keepdims=True)
    add = g.opset >= 16 and g.random.randint(2)
    result = a.astype(float)
    np.put_along_axis(result, best, mean + (np.take_along_axis(a, best, axis) if add else 0), axis)
    place = g.node("ArgMax", [x], best, axis=axis, keepdims=1)
    value = g.with_axes("ReduceMean", x, [axis], mean, 18, keepdims=1)
    return g.node("ScatterElements", [x, place, value], result, axis=g.axis(axis, a.ndim),
                  **({"reduction": "add"} if add else {}))


STEPS = [recur, convolve, pool, scatter]
