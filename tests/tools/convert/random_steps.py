"""Random steps of random graphs."""
# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
from onnx import helper

import random_kinds
import random_layers
from random_graph import ADS, Graph, Skip, Value, apart, matrix


def whole(a):
    """Unless rounding decides what becomes of it."""
    near = np.abs(a - np.round(a))
    if ((near > 0) & (near < 1e-3)).any():
        raise Skip
    return a


def unary(g, x):
    a = x.array
    if x.kind == "bool":
        return g.cast(x, "float") if g.random.randint(2) else g.node("Not", [x], ~a)
    if x.kind == "int":
        return [lambda: g.cast(x, "float"), lambda: g.node("Neg", [x], -a),
                lambda: g.node("Abs", [x], np.abs(a)), lambda: g.cast(x, "bool")][
                    g.random.randint(4)]()
    if g.random.randint(6) == 0:
        return g.cast(x, "int")
    ops = {
        "Atan": lambda: np.arctan(a.astype(float)),
        "Sin": lambda: np.sin(a.astype(float)), "Cos": lambda: np.cos(a.astype(float)),
        "Round": lambda: np.round(whole(a * 2) / 2), "Sinh": lambda: np.sinh(np.clip(a, -80, 80)),
        "Relu": lambda: np.maximum(a, 0), "Sigmoid": lambda: 1 / (1 + np.exp(-a.astype(float))),
        "Tanh": lambda: np.tanh(a), "Neg": lambda: -a, "Abs": lambda: np.abs(a),
        "Exp": lambda: np.exp(np.minimum(a, 80.0)), "Softplus": lambda: np.logaddexp(0, a),
        "Softsign": lambda: a / (1 + np.abs(a)), "Identity": lambda: a,
        "Elu": lambda: np.where(a > 0, a, np.expm1(np.minimum(a, 0))),
        "HardSigmoid": lambda: np.clip(a * np.float32(0.2) + 0.5, 0, 1),
        "LeakyRelu": lambda: np.where(a > 0, a, np.float32(0.01) * a),
        "Sign": lambda: np.sign(whole(a)), "Floor": lambda: np.floor(whole(a)),
        "Ceil": lambda: np.ceil(whole(a)),
        "Selu": lambda: 1.0507010 * np.where(a > 0, a, 1.6732632 * np.expm1(np.minimum(a, 0))),
        "Celu": lambda: np.where(a > 0, a, np.expm1(np.minimum(a, 0))),
        "Erf": lambda: np.vectorize(math.erf)(a),
        "ThresholdedRelu": lambda: np.where(whole(a - 1) > 0, a, 0)}
    if g.opset >= 14:
        ops["HardSwish"] = lambda: a * np.clip(a / np.float32(6) + 0.5, 0, 1)
    if g.opset >= 18:
        ops["Mish"] = lambda: a * np.tanh(np.logaddexp(0, a))
    if g.opset >= 20:
        ops["Gelu"] = lambda: a * 0.5 * (1 + np.vectorize(math.erf)(a / math.sqrt(2)))
    op = list(ops)[g.random.randint(len(ops))]
    return g.node(op, [x], ops[op]())


def two(g, x):
    others = [v for v in g.values if v.kind == x.kind and fits(v, x)]
    if x.kind == "bool":
        ops = ["And", "Or", "Xor"]
    else:
        ops = ["Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Greater", "Less"]
        if x.kind == "int":
            ops += ["Mod", "Div"]
    if x.kind != "bool" and (not others or g.random.randint(2)):
        shape = x.array.shape[1:] if g.random.randint(2) else ()
        values = np.round(g.random.randn(*shape) * 4, 1)
        dtype = np.int64 if x.kind == "int" else np.float32
        other = g.constant(np.asarray(values).astype(dtype))
    elif others:
        other = others[g.random.randint(len(others))]
    else:
        raise Skip
    pair = (x, other) if g.random.randint(3) else (other, x)
    return g.binary(ops[g.random.randint(len(ops))], *pair)


def fits(a, b):
    try:
        shape = np.broadcast_shapes(a.array.shape, b.array.shape)
    except ValueError:
        return False
    return a.array.ndim == b.array.ndim and len(shape) <= 4


def choose(g, x):
    tests = [v for v in g.values if v.kind == "bool" and fits(v, x)]
    others = [v for v in g.values if v.kind == x.kind and fits(v, x)]
    if not tests or not others:
        raise Skip
    test, other = tests[g.random.randint(len(tests))], others[g.random.randint(len(others))]
    if not fits(test, other):
        raise Skip
    return g.node("Where", [test, x, other], np.where(test.array, x.array, other.array))


def cut(g, x):
    if x.array.ndim < 2:
        raise Skip
    axis = g.random.randint(1, x.array.ndim)
    size = x.array.shape[axis]
    if g.random.randint(3) == 0:
        return g.pick(x, axis, g.random.randint(size))
    begin = g.random.randint(size)
    return g.slice(x, axis, begin, g.random.randint(begin + 1, size + 1),
                   1 if g.random.randint(4) else 2)


def split(g, x):
    """Equal parts, or parts of stated sizes, one of which may have nothing."""
    if x.array.ndim < 2:
        raise Skip
    axis = int(g.random.randint(1, x.array.ndim))
    size = x.array.shape[axis]
    sizes = [size // 2, size // 2]
    if size % 2 or g.random.randint(2):
        first = int(g.random.randint(size + 1))
        sizes = [first, size - first]
    names = [g.fresh("part"), g.fresh("part")]
    stated = sizes[0] != sizes[1] or g.random.randint(2)
    inputs = [x.name] + [g.ints(*sizes).name for _ in range(1) if stated and g.opset >= 13]
    attributes = {"split": sizes} if stated and g.opset < 13 else {}
    if not stated and g.opset >= 18:
        attributes["num_outputs"] = 2
    g.nodes.append(helper.make_node("Split", inputs, names, axis=g.axis(axis, x.array.ndim),
                                    **attributes))
    parts = np.split(x.array, [sizes[0]], axis)
    kept = [g.keep(Value(n, a, x.rows)) for n, a in zip(names, parts) if a.size]
    return kept[g.random.randint(len(kept))]


def join(g, x):
    if x.array.ndim < 2:
        raise Skip
    axis = g.random.randint(1, x.array.ndim)
    wanted = list(x.array.shape)
    others = []
    for v in g.values:
        shape = list(v.array.shape)
        if v.kind == x.kind and len(shape) == len(wanted) and v.rows == x.rows:
            shape[axis] = wanted[axis]
            if shape == wanted:
                others.append(v)
    other = others[g.random.randint(len(others))]
    return g.node("Concat", [x, other], np.concatenate([x.array, other.array], axis),
                  axis=g.axis(axis, x.array.ndim))


def reshape(g, x):
    shape = x.array.shape
    kind = g.random.randint(5)
    if kind == 0 and len(shape) > 1:
        return g.node("Flatten", [x], x.array.reshape(shape[0], -1), axis=1)
    if kind == 1:
        return g.unsqueeze(x, g.random.randint(1, len(shape) + 1))
    if kind == 2 and len(shape) > 2:
        perm = [0] + list(1 + g.random.permutation(len(shape) - 1))
        return g.node("Transpose", [x], x.array.transpose(perm), perm=[int(p) for p in perm])
    if kind == 3 and len(shape) > 2:
        whole = g.ints(0, -1, shape[-1]) if g.random.randint(2) else g.ints(-1, *shape[1:])
        return g.node("Reshape", [x, whole], x.array.reshape(
            (shape[0], -1, shape[-1]) if len(whole.array) == 3 and whole.array[0] == 0 else shape))
    axes = [i for i in range(1, len(shape)) if shape[i] == 1]
    if not axes:
        raise Skip
    return g.squeeze(x, axes[0])


REDUCTIONS = {
    "ReduceSum": lambda a, **k: a.sum(**k), "ReduceMean": lambda a, **k: a.mean(**k),
    "ReduceMax": lambda a, **k: a.max(**k), "ReduceMin": lambda a, **k: a.min(**k),
    "ReduceProd": lambda a, **k: a.prod(**k), "ReduceL1": lambda a, **k: np.abs(a).sum(**k),
    "ReduceL2": lambda a, **k: np.sqrt((a * a).sum(**k)),
    "ReduceSumSquare": lambda a, **k: (a * a).sum(**k),
    "ReduceLogSumExp": lambda a, **k: np.log(np.exp(a).sum(**k))}


def reduce(g, x):
    if x.kind == "bool" or x.array.ndim < 2:
        raise Skip
    rank, keep = x.array.ndim, int(g.random.randint(2))
    count = g.random.randint(1, rank)
    axes = [int(a) for a in 1 + g.random.permutation(rank - 1)[:count]]
    op = "ReduceSum" if x.kind == "int" else list(REDUCTIONS)[g.random.randint(len(REDUCTIONS))]
    a = x.array if x.kind == "int" else x.array.astype(float)
    result = REDUCTIONS[op](a, axis=tuple(axes), keepdims=bool(keep))
    return g.with_axes(op, x, [g.axis(axis, rank) for axis in axes], result,
                       13 if op == "ReduceSum" else 18, keepdims=keep)


def softmax(g, x):
    """Along an axis; before operator set 13 along all from that axis on."""
    if x.kind != "float" or x.array.ndim < 2:
        raise Skip
    axis, shape = int(g.random.randint(1, x.array.ndim)), x.array.shape
    a, along = x.array.astype(float), axis
    if g.opset < 13:
        a, along = a.reshape(int(np.prod(shape[:axis])), -1), 1
    e = np.exp(a - a.max(along, keepdims=True))
    share = (e / e.sum(along, keepdims=True)).reshape(shape)
    if g.random.randint(3) == 0:
        return g.node("LogSoftmax", [x], np.log(share), axis=g.axis(axis, x.array.ndim))
    return g.node("Softmax", [x], share, axis=g.axis(axis, x.array.ndim))


def clip(g, x):
    low, high = sorted(np.round(g.random.randn(2) * 3))
    low, high = (v if g.random.randint(3) else None for v in (low, high))
    if x.kind == "bool" or (low is None and high is None):
        raise Skip
    result = np.clip(x.array, low, high).astype(x.array.dtype)
    if g.opset >= 11:
        limits = [None if v is None else g.constant(np.array(v, x.array.dtype)) for v in (low, high)]
        return g.node("Clip", [x, *limits], result)
    if x.kind == "int":
        raise Skip
    name = g.fresh()  # Limits are attributes.
    stated = {n: float(v) for n, v in (("min", low), ("max", high)) if v is not None}
    g.nodes.append(helper.make_node("Clip", [x.name], [name], **stated))
    return g.keep(Value(name, result, x.rows))


def normalise(g, x):
    if x.kind != "float" or x.array.ndim < 2:
        raise Skip
    a, width = x.array.astype(float), x.array.shape[1]
    kind = g.random.randint(3)
    if kind == 0:
        scale, bias, mean = (np.round(g.random.randn(width), 2) for _ in range(3))
        variance = g.random.rand(width) + 0.5
        like = (1, width) + (1,) * (a.ndim - 2)
        result = ((a - mean.reshape(like)) / np.sqrt(variance.reshape(like) + 1e-3)
                  * scale.reshape(like) + bias.reshape(like))
        values = [g.constant(v.astype(np.float32)) for v in (scale, bias, mean, variance)]
        more = {"training_mode": 0} if g.opset >= 14 else {}
        return g.node("BatchNormalization", [x, *values], result, epsilon=1e-3, momentum=0.9, **more)
    if kind == 1:
        size = a.shape[-1]
        scale, bias = g.random.randn(2, size)
        mean, variance = a.mean(-1, keepdims=True), a.var(-1, keepdims=True)
        if variance.min() < 0.05:
            raise Skip
        values = [g.constant(v.astype(np.float32)) for v in (scale, bias)]
        return g.node("LayerNormalization", [x, *values],
                      (a - mean) / np.sqrt(variance + 1e-5) * scale + bias,
                      axis=g.axis(a.ndim - 1, a.ndim), epsilon=1e-5)
    if g.opset >= 12:
        ratio, mode = g.constant(np.array(0.3, np.float32)), g.constant(np.array(False))
        return g.node("Dropout", [x, ratio, mode] if g.random.randint(2) else [x, ratio], x.array)
    return g.node("Dropout", [x], x.array, ratio=0.3)


def variadic(g, x):
    """Several values and constants of lower rank, broadcast."""
    if x.kind != "float" or x.array.ndim < 2 or g.opset < 8:
        raise Skip
    others = [v for v in g.values if v.kind == "float" and fits(v, x)]
    values = [x] + [others[g.random.randint(len(others))] for _ in range(2) if others]
    values.append(g.constant(g.random.randn(x.array.shape[-1]).astype(np.float32)))
    try:
        shape = np.broadcast_shapes(*(v.array.shape for v in values))
    except ValueError as error:
        raise Skip from error
    wide = [np.broadcast_to(v.array, shape).astype(float) for v in values]
    op = ("Sum", "Mean", "Max", "Min")[g.random.randint(4)]
    result = {"Sum": sum(wide), "Mean": sum(wide) / len(wide), "Max": np.max(wide, 0),
              "Min": np.min(wide, 0)}[op]
    return g.node(op, [values[i] for i in g.random.permutation(len(values))], result)


def powers(g, x):
    """Operators that want positive numbers, and powers of constants."""
    if x.kind != "float":
        raise Skip
    a = x.array.astype(float)
    kind = g.random.randint(4)
    if kind == 0:
        power = float(g.random.choice([2, 3, 1, 0]))
        return g.node("Pow", [x, g.constant(np.array(power, np.float32))], a ** power)
    if kind == 1:
        if a.ndim < 2:
            raise Skip
        slope = np.round(g.random.rand(a.shape[-1]), 2)
        return g.node("PRelu", [x, g.constant(slope.astype(np.float32))],
                      np.where(a > 0, a, a * slope.astype(np.float32)))
    positive = g.node("Abs", [x], np.abs(x.array))
    moved = g.binary("Add", positive, g.constant(np.array(0.5, np.float32)))
    op = ("Sqrt", "Log", "Reciprocal")[kind - 2 if g.random.randint(2) else 2]
    return g.node(op, [moved], {"Sqrt": np.sqrt, "Log": np.log, "Reciprocal": lambda v: 1 / v}[op](
        moved.array.astype(float)))


def expand(g, x):
    """Axes of 1 repeated, by a shape of constants or with a further axis of 1 in front of rows."""
    axes = [i for i in range(1, x.array.ndim) if x.array.shape[i] == 1]
    if not axes or g.opset < 8 or x.array.size > 200:
        raise Skip
    times = np.ones(x.array.ndim, np.int64)
    times[axes[0]] = g.random.randint(2, 4)
    result = np.broadcast_to(x.array, np.broadcast_shapes(x.array.shape, tuple(times)))
    return g.node("Expand", [x, g.constant(times)], result)


def nothing(g, x):
    """A slice without elements, put beside the rest again."""
    if x.array.ndim < 2 or g.opset < 10:
        raise Skip
    axis = int(g.random.randint(1, x.array.ndim))
    size, name = x.array.shape[axis], g.fresh("none")
    at = int(g.random.randint(size + 1))
    g.nodes.append(helper.make_node(
        "Slice", [x.name, g.ints(at).name, g.ints(at).name, g.ints(axis).name], [name]))
    empty = Value(name, np.take(x.array, [], axis), x.rows)
    pair = [empty, x] if g.random.randint(2) else [x, empty]
    return g.node("Concat", pair, x.array, axis=g.axis(axis, x.array.ndim))


def mask_of_ids(g, x):
    """Tests of ids, some of them negative, beside what they find in a table."""
    if not x.name.startswith("P") or x.array.ndim != 2:
        raise Skip
    zero, rows = g.constant(np.array(0)), g.random.randint(8, 12)
    table = g.constant(g.random.randn(rows, 2).astype(np.float32), "table")
    op = ("Equal", "Greater", "Less")[g.random.randint(3)]
    mask = g.binary(op, x, g.constant(np.array(g.random.randint(-1, 2))))
    kind = g.random.randint(4)
    if kind == 0:
        found = g.node("Where", [mask, x, zero], np.where(mask.array, x.array, 0))
    elif kind == 1:
        found = g.node("Clip", [x, zero], x.array.clip(0))
    elif kind == 2:
        found = g.binary("Mul", x, g.cast(mask, "int"))
    else:
        found = g.binary("Add", x, g.constant(np.array(1)))
    result = table.array[found.array]  # Negative ones count from the end.
    keys = g.node("Gather", [table, found], result)
    kept = g.binary("Mul", keys, g.unsqueeze(g.cast(mask, "float"), 2))
    return g.with_axes("ReduceSum", kept, [1], kept.array.sum(1), 13, keepdims=0)


def product(g, x):
    if x.kind != "float" or x.array.ndim < 2:
        raise Skip
    if x.array.ndim == 3 and g.random.randint(2):
        turned = g.node("Transpose", [x], x.array.transpose(0, 2, 1), perm=[0, 2, 1])
        return g.node("MatMul", [x, turned], np.matmul(x.array, turned.array))
    inner, outer = x.array.shape[-1], g.random.randint(1, 5)
    if x.array.ndim == 2 and g.random.randint(3):
        return gemm(g, x, inner, outer)
    before = x.array.shape[1:-2] if g.random.randint(2) else ()
    weight = g.constant(g.random.randn(*before, inner, outer).astype(np.float32))
    return g.node("MatMul", [x, weight], x.array @ weight.array)


def gemm(g, x, inner, outer):
    turned = int(g.random.randint(2))
    weight = g.random.randn(inner, outer).astype(np.float32)
    alpha, beta = (float(v) for v in g.random.choice([1, 1, 0.5, -2], 2))
    shape = [(outer,), (1, outer), (1,), ()][g.random.randint(4)]
    bias = g.constant(np.asarray(g.random.randn(*shape), np.float32))
    inputs = [x, g.constant(np.ascontiguousarray(weight.T) if turned else weight), bias]
    result = alpha * (x.array @ weight) + beta * bias.array
    if g.opset >= 11 and g.random.randint(4) == 0:
        inputs, result = inputs[:2], alpha * (x.array @ weight)
    return g.node("Gemm", inputs, result, alpha=alpha, beta=beta, transB=turned)


def einsum(g, x):
    """Of two values with a row per ad, or with constants."""
    equations = {(2, 2): ["bi,bj->bij", "bi,ij->bj", "bi,ji->bj", "bi,bi->bi", "bi,bi->b"],
                 (3, 2): ["bij,jk->bik", "bij,kj->bik", "bij,bj->bi", "bij,bi->bij", "bij,ik->bjk"],
                 (3, 3): ["bij,bkj->bik", "bij,bjk->bik", "bij,bkj->bikj", "bij,bik->bijk",
                          "bij,bkj->bki", "bij,bik->bjk", "bij,bij->bi",
                          "bij,kij->bk", "bij,jik->bk", "bij,kjl->bilk"]}
    others = [v for v in g.values if v.kind == "float" and v.rows == "ads"]
    other = others[g.random.randint(len(others))] if others else x
    choices = equations.get((x.array.ndim, other.array.ndim))
    if x.kind != "float" or not choices:
        raise Skip
    equation = choices[g.random.randint(len(choices))]
    second = equation.split(",")[1].split("->")[0]
    if "b" not in second:
        sizes = dict(zip(equation.split(",")[0], x.array.shape))
        shape = [sizes.get(label, 3) for label in second]
        other = g.constant(g.random.randn(*shape).astype(np.float32))
    try:
        result = np.einsum(equation, x.array.astype(float), other.array.astype(float))
    except ValueError as error:
        raise Skip from error
    if 1 in x.array.shape or 1 in other.array.shape:
        raise Skip  # Whether a label of 1 is repeated differs among runtimes.
    return g.node("Einsum", [x, other], result, rows="ads", equation=equation)


def choice(g, x):
    """The best entries of an axis, or those at computed places."""
    if x.kind == "bool" or x.array.ndim < 2:
        raise Skip
    axis, a = int(g.random.randint(1, x.array.ndim)), x.array
    if not apart(a, axis):
        raise Skip
    kind, size = g.random.randint(4), a.shape[axis]
    if kind == 0:
        keep = int(g.random.randint(2))
        op = ("ArgMax", "ArgMin")[g.random.randint(2)]
        best = (np.argmax if op == "ArgMax" else np.argmin)(a, axis)
        return g.node(op, [x], np.expand_dims(best, axis) if keep else best, axis=axis,
                      keepdims=keep)
    if kind == 1:
        g.want("TopK")
        k, largest = int(g.random.randint(1, size + 1)), int(g.random.randint(2))
        order = np.argsort(-a if largest else a, axis, kind="stable")
        order = np.take(order, range(k), axis)
        values = np.take_along_axis(a, order, axis)
        names = [g.fresh("top"), g.fresh("at")]
        g.nodes.append(helper.make_node("TopK", [x.name, g.ints(k).name], names, axis=axis,
                                        largest=largest))
        g.keep(Value(names[0], values, x.rows))
        return g.keep(Value(names[1], order, x.rows))
    best = g.node("ArgMax", [x], np.expand_dims(np.argmax(a, axis), axis), axis=axis, keepdims=1)
    if kind == 2:
        return g.node("GatherElements", [x, best], np.take_along_axis(a, best.array, axis),
                      axis=axis)
    depth = g.constant(np.array(size + 1)), g.constant(np.array([0.5, 2], np.float32))
    result = np.where(best.array[..., None] == np.arange(size + 1), np.float32(2), np.float32(0.5))
    return g.node("OneHot", [best, *depth], result)


def along(g, x):
    """CumSum, Pad, backwards, or what several rows of indices take."""
    if x.kind != "float" or x.array.ndim < 2 or x.array.size > 400:
        raise Skip
    axis, a = int(g.random.randint(1, x.array.ndim)), x.array
    size = a.shape[axis]
    kind = g.random.randint(4)
    if kind == 0:
        exclusive, reverse = (int(g.random.randint(2)) for _ in range(2))
        line = np.flip(a, axis) if reverse else a
        total = np.cumsum(line.astype(float), axis) - (line if exclusive else 0)
        return g.node("CumSum", [x, g.constant(np.array(axis))],
                      np.flip(total, axis) if reverse else total, exclusive=exclusive,
                      reverse=reverse)
    if kind == 1:
        mode = ("constant", "edge", "reflect")[g.random.randint(3)]
        pads = [[0, 0] for _ in a.shape]
        pads[axis] = [int(n) for n in g.random.randint(0, max(1, min(size, 3)), 2)]
        fill = {"constant_values": 1.5} if mode == "constant" else {}
        stated = g.ints(*[p[0] for p in pads], *[p[1] for p in pads])
        more = [g.constant(np.array(1.5, np.float32))] if fill else []
        return g.node("Pad", [x, stated, *more], np.pad(a, pads, mode, **fill), mode=mode)
    if kind == 2:
        if g.opset < 10:
            raise Skip
        return g.node("Slice", [x, g.ints(-1), g.ints(-(1 << 62)), g.ints(axis), g.ints(-1)],
                      np.flip(a, axis))
    index = g.random.randint(-size, size, (2, g.random.randint(1, 3)))
    return g.node("Gather", [x, g.constant(index)], np.take(a, index, axis), axis=axis)


def tile(g, x):
    repeats = [1, *g.random.randint(1, 3, x.array.ndim - 1)]
    if x.array.size > 200:
        raise Skip
    return g.node("Tile", [x, g.ints(*repeats)], np.tile(x.array, repeats))


def to_ids(g, x):
    """Into a table: floats are cast, integers are taken as they are."""
    ids = g.cast(x, "int") if x.kind == "float" else x
    if ids.kind != "int":
        raise Skip
    width = g.random.randint(1, 4)
    return g.look_up(g.constant(g.random.randn(7, width).astype(np.float32), "table"), ids)


STEPS = [unary] * 5 + [two] * 6 + [cut] * 3 + [reshape] * 3 + [reduce] * 2 + [product] * 2 + \
        [choose, split, join, join, to_ids, to_ids, einsum, einsum, tile] + \
        random_layers.STEPS + random_kinds.STEPS + [choice] * 2 + [along] * 2 + \
        [softmax] * 2 + [normalise] * 2 + \
        [clip, variadic, powers, expand, nothing, mask_of_ids, mask_of_ids, mask_of_ids]


OPSETS = 7, 9, 11, 12, 13, 14, 17, 18, 20, 21


def random_graph(seed):
    g = Graph(seed, OPSETS[seed % len(OPSETS)])
    # A number: an export without dynamic axes.
    g.rows = ["ads", "ads", ADS, 1][seed // len(OPSETS) % 4]
    ids = lambda *shape: g.random.randint(0, 7, shape)  # noqa: E731
    kinds = [lambda: g.input("x", g.random.randn(ADS, 4).astype(np.float32)),
             lambda: g.input("m", g.random.randn(ADS, 2, 4).astype(np.float32)),
             lambda: matrix(g, g.random.randint(1, 4), g.random.randint(0, 3)),
             lambda: g.input("I", ids(ADS, 4)),
             lambda: g.input("h", ids(1, 4), "user"),
             lambda: g.input("P", g.random.randint(-1, 7, (ADS, 3))),
             lambda: g.input("u", g.random.randn(1, 4).astype(np.float32), "user")]
    for i in sorted(g.random.permutation(len(kinds))[:g.random.randint(1, 4)]):
        kinds[i]()
    if all(v.rows != "ads" for v in g.values):
        kinds[0]()
    if g.rows != "ads":
        g.ad_inputs = [v.name for v in g.values if v.rows == "ads"]
        g.user_inputs = [v.name for v in g.values if v.rows == "user"]
    for value in list(g.values):
        if value.name in ("X", "I", "h") and g.random.randint(4):
            attempt(g, lambda g, x: to_ids(g, g.pick(x, 1, 0)), value)
    for _ in range(g.random.randint(3, 12)):
        recent = g.values[-6:] if g.random.randint(3) else g.values
        attempt(g, STEPS[g.random.randint(len(STEPS))], recent[g.random.randint(len(recent))])
    read = {i for node in g.nodes for i in node.input}
    loose = [v for v in g.values if v.name not in read and v.rows == "ads"] or \
            [v for v in g.values if v.rows == "ads"]
    for value in loose[-4:]:
        attempt(g, Graph.output, value)
    if not g.outputs:
        g.output(g.values[0] if g.values[0].rows == "ads" else loose[0])
    return g


def attempt(g, step, value):
    """The step, or nothing of it."""
    before = len(g.nodes), len(g.initializers), len(g.values)
    try:
        with np.errstate(all="ignore"):
            step(g, value)
    except Skip:
        del g.nodes[before[0]:], g.initializers[before[1]:], g.values[before[2]:]
