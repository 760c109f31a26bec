"""Random steps over types, sizes that the graph computes, masks, and rarer operators."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
from onnx import TensorProto, helper

from random_graph import Skip, Value, raw


def cast_chain(g, x):
    """By other types, and back."""
    kinds = {TensorProto.INT32: np.int32, TensorProto.DOUBLE: np.float64,
             TensorProto.INT64: np.int64}
    own = {"float": TensorProto.FLOAT, "int": TensorProto.INT64, "bool": TensorProto.BOOL}[x.kind]
    value = x
    for _ in range(g.random.randint(1, 3)):
        to = list(kinds)[g.random.randint(len(kinds))]
        if value.kind == "float" and to != TensorProto.DOUBLE:
            raise Skip  # Rounding may decide what is cut off.
        before, value = value, Value(g.fresh(), value.array.astype(kinds[to]), x.rows)
        g.nodes.append(helper.make_node("Cast", [before.name], [value.name], to=to))
    return g.node("Cast", [value], value.array.astype(x.array.dtype), to=own)


def sizes_of(g, x, sizes):
    """These sizes, of which the rows come from the value's shape."""
    if g.rows != "ads":
        return g.ints(g.rows, *sizes)
    shape = raw(g, "Shape", [x], None, None)
    if g.random.randint(2):
        rows = raw(g, "Gather", [shape, g.ints(0)], None, None, axis=0)
    elif g.opset >= 10:
        rows = raw(g, "Slice", [shape, g.ints(0), g.ints(1)], None, None)
    else:
        rows = raw(g, "Slice", [shape], None, None, starts=[0], ends=[1])
    return raw(g, "Concat", [rows, g.ints(*sizes)], None, None, axis=0)


def sized(g, x):
    """Reshape and Expand to sizes that the graph computes: x.view(x.size(0), 2, -1)."""
    if x.rows != "ads" or x.array.ndim < 2 or x.array.size > 300:
        raise Skip
    rows, sizes = len(x.array), x.array.shape[1:]
    kind = g.random.randint(3)
    if kind == 0 and g.opset >= 8:
        wide = g.unsqueeze(x, 1)
        return g.node("Expand", [wide, sizes_of(g, x, (2, *sizes))],
                      np.repeat(wide.array, 2, 1))
    if kind == 1:
        wanted = (1, *sizes[::-1]) if g.random.randint(2) else (int(np.prod(sizes)),)
    elif x.array[0].size % 2 == 0:
        wanted = (2, x.array[0].size // 2)
    else:
        raise Skip
    stated = (*wanted[:-1], -1) if g.random.randint(2) else wanted
    return g.node("Reshape", [x, sizes_of(g, x, stated)], x.array.reshape(rows, *wanted))


def chosen(g, x):
    """Where with a constant, one of all shapes that broadcast; the mask may have fewer axes."""
    masks = [v for v in g.values if v.kind == "bool" and 0 < v.array.ndim <= x.array.ndim]
    if not masks or x.kind == "bool" or x.array.ndim < 2:
        raise Skip
    mask = masks[g.random.randint(len(masks))]
    while mask.array.ndim < x.array.ndim:
        mask = g.unsqueeze(mask, mask.array.ndim)
    first = g.random.randint(1, x.array.ndim + 1)
    values = g.random.randn(*x.array.shape[first:]) * 3
    other = g.constant(np.asarray(values).astype(x.array.dtype))
    pair = [x, other] if g.random.randint(2) else [other, x]
    try:
        result = np.where(mask.array, pair[0].array, pair[1].array)
    except ValueError as error:
        raise Skip from error
    return g.node("Where", [mask, *pair], result)


def length_mask(g, x):
    """Which of several steps are below a length, which is the sum of a mask."""
    if x.kind != "bool" or x.array.ndim != 2 or g.opset < 9:
        raise Skip
    ones = g.cast(x, "int")
    length = g.with_axes("ReduceSum", ones, [1], ones.array.sum(1, keepdims=True), 13, keepdims=1)
    steps = g.constant(np.arange(g.random.randint(2, 5)))
    return g.binary("Less", steps, length)


def spread(g, x):
    """InstanceNormalization, Trilu, LpNormalization, or a branch."""
    a = x.array.astype(float)
    kind = g.random.randint(4)
    if x.kind != "float" or a.ndim < 2 or (kind in (0, 1) and a.ndim < 3):
        raise Skip
    if kind == 0:
        axes = tuple(range(2, a.ndim))
        variance = a.var(axes, keepdims=True)
        if variance.min() < 0.05:
            raise Skip
        scale, bias = g.random.randn(2, a.shape[1])
        like = (1, -1) + (1,) * (a.ndim - 2)
        result = (a - a.mean(axes, keepdims=True)) / np.sqrt(variance + 1e-5)
        values = [g.constant(v.astype(np.float32)) for v in (scale, bias)]
        return g.node("InstanceNormalization", [x, *values],
                      result * scale.reshape(like) + bias.reshape(like), epsilon=1e-5)
    if kind == 1:
        if g.opset < 14:
            raise Skip
        upper = int(g.random.randint(2))
        shift = int(g.random.randint(-1, 2))
        result = np.triu(a, shift) if upper else np.tril(a, shift)
        return g.node("Trilu", [x, g.constant(np.array(shift))], result, upper=upper)
    axis, p = int(g.random.randint(1, a.ndim)), int(g.random.randint(1, 3))
    if kind == 2:
        size = (np.abs(a) ** p).sum(axis, keepdims=True) ** (1 / p)
        if size.min() < 0.1:
            raise Skip
        return g.node("LpNormalization", [x], a / size, axis=axis, p=p)
    name = g.fresh()  # A branch that a constant takes.
    taken = bool(g.random.randint(2))
    branches = {key: helper.make_graph(
        [helper.make_node(op, [x.name], [f"{name}_{key}"])], key, [],
        [helper.make_tensor_value_info(f"{name}_{key}", TensorProto.FLOAT, None)])
                for key, op in (("then_branch", "Neg"), ("else_branch", "Relu"))}
    return raw(g, "If", [g.constant(np.array(taken))],
               -x.array if taken else np.maximum(x.array, 0), x.rows, **branches)


def upsampled(g, x):
    """ConvTranspose, one step of the input after the other."""
    if x.kind != "float" or x.array.ndim != 3:
        raise Skip
    rows, channels, size = x.array.shape
    kernel, stride, out = (int(g.random.randint(1, 4)) for _ in range(3))
    w = g.random.randn(channels, out, kernel).astype(np.float32)
    result = np.zeros((rows, out, (size - 1) * stride + kernel))
    for i in range(size):
        result[:, :, i * stride:i * stride + kernel] += np.einsum(
            "nc,cok->nok", x.array[:, :, i].astype(float), w)
    return g.node("ConvTranspose", [x, g.constant(w)], result, kernel_shape=[kernel],
                  strides=[stride])


STEPS = [cast_chain] * 2 + [sized] * 3 + [chosen] * 2 + [length_mask, spread, spread, upsampled]
