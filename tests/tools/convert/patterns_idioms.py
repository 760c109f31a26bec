"""What models compute by hand though ONNX has an operator for it, and what only looks like that."""
# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
from onnx import TensorProto

from random_graph import ADS


def number(g, value, *shape):
    return g.constant(np.full(shape, value, np.float32))


def unary(g, op, x, array):
    return g.node(op, [x], array)


def exponential(g, x, sign=1):
    """exp(x), or exp(-x) as exporters write it."""
    if sign < 0:
        x = [lambda: unary(g, "Neg", x, -x.array), lambda: g.binary("Mul", number(g, -1, 1), x),
             lambda: g.binary("Sub", number(g, 0), x)][g.random.randint(3)]()
    return unary(g, "Exp", x, np.exp(x.array))


def sigmoids(g):
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    for one in (1, 2):
        below = g.binary("Add", *[exponential(g, x, -1), number(g, one)][::g.random.choice([1, -1])])
        g.output(unary(g, "Reciprocal", below, 1 / below.array))
        g.output(g.binary("Div", number(g, 1, 1), below))
        g.output(g.node("Pow", [below, number(g, -1)], 1 / below.array))
        g.output(g.binary("Mul", x, unary(g, "Reciprocal", below, 1 / below.array)))
    above = exponential(g, x)
    g.output(g.binary("Div", number(g, 1), g.binary("Add", above, number(g, 1))))
    g.output(g.binary("Div", above, g.binary("Add", number(g, 1), above)))
    g.output(unary(g, "Log", g.binary("Add", number(g, 1), above), np.log(1 + above.array)))


def layer_norms(g):
    """As PyTorch writes them before operator set 17; epsilon is large, so that it shows."""
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    scale, shift = (g.constant(g.random.randn(4).astype(np.float32)) for _ in range(2))
    mean = g.node("ReduceMean", [x], x.array.mean(2, keepdims=True), axes=[-1])
    for of in (x, g.binary("Add", x, number(g, 1))):  # The other one is off its own mean.
        away = g.binary("Sub", of, mean)
        squares = [g.node("Pow", [away, number(g, 2)], away.array ** 2),
                   g.binary("Mul", away, away)][g.random.randint(2)]
        variance = g.node("ReduceMean", [squares], squares.array.mean(2, keepdims=True), axes=[-1])
        inner = g.binary("Add", variance, number(g, 0.5))
        root = unary(g, "Sqrt", inner, np.sqrt(inner.array))
        inverse = unary(g, "Reciprocal", root, 1 / root.array)
        g.output(g.binary("Mul", inverse, away))
        scaled = g.binary("Mul", g.binary("Div", away, root), scale)
        g.output(scaled)
        g.output(g.binary("Add", shift, scaled))
        factor = g.binary("Mul", inverse, scale)  # As TensorFlow has it.
        g.output(g.binary("Add", g.binary("Mul", of, factor),
                          g.binary("Sub", shift, g.binary("Mul", mean, factor))))


def fused_layer_norms(g):
    """As tf2onnx writes those of Keras: a batch norm of [1, rows, 4, 1] by the rows' own means."""
    steps = [(), (3,)][g.random.randint(2)]
    x = g.input("x", g.random.randn(ADS, *steps, 4).astype(np.float32))
    rows, shape = x.array.size // 4, np.array(x.array.shape)
    one, four, zero = g.ints(1), g.ints(4), g.ints(0)
    sizes = g.node("Cast", [g.node("Shape", [x], shape)], shape, to=TensorProto.INT32)
    before = [g.ints(k) for k in range(1, len(shape))]
    count = g.node("Slice", [sizes, zero, one, zero], shape[:1])
    for k, first in enumerate(before[:-1]):
        steps_of = g.node("Slice", [sizes, first, before[k + 1], zero], shape[k + 1:k + 2])
        count = g.node("Mul", [count, steps_of], count.array * steps_of.array)
    count = g.node("Cast", [count], count.array, to=TensorProto.INT64)
    sizes = g.node("Cast", [sizes], shape, to=TensorProto.INT64)
    apart = g.node("Concat", [one, count, four, one], np.array([1, rows, 4, 1]), axis=0)
    flat = g.node("Reshape", [x, apart], x.array.reshape(1, rows, 4, 1))
    scale = g.node("Expand", [number(g, 1), count], np.ones(rows, np.float32))
    shift = g.node("Expand", [number(g, 0), count], np.zeros(rows, np.float32))
    mean = g.node("ReduceMean", [flat], flat.array.mean((0, 2, 3), keepdims=True), axes=[0, 2, 3])
    away = g.node("Sub", [flat, mean], flat.array - mean.array)
    squares = g.node("ReduceSumSquare", [away], (away.array ** 2).sum((0, 2, 3)), axes=[0, 2, 3],
                     keepdims=0)
    variance = g.node("Div", [squares, number(g, 4)], squares.array / 4)
    mean = g.with_axes("Squeeze", mean, [0, 2, 3], mean.array.ravel(), 13)
    array = away.array / np.sqrt(variance.array[None, :, None, None] + 0.5)
    normal = g.node("BatchNormalization", [flat, scale, shift, mean, variance], array, epsilon=0.5)
    back = g.node("Reshape", [normal, sizes], array.reshape(x.array.shape))
    gamma, beta = (g.constant(g.random.randn(4).astype(np.float32)) for _ in range(2))
    g.output(g.binary("Add", g.binary("Mul", back, gamma), beta))


def rms_norms(g):
    x, z = (g.input(n, g.random.randn(ADS, 3, 4).astype(np.float32)) for n in "xz")
    scale = g.constant(g.random.randn(4).astype(np.float32))
    squares = g.node("Pow", [x, number(g, 2)], x.array ** 2)
    mean = g.node("ReduceMean", [squares], squares.array.mean(2, keepdims=True), axes=[-1])
    inner = g.binary("Add", mean, number(g, 0.5))
    inverse = unary(g, "Reciprocal", unary(g, "Sqrt", inner, np.sqrt(inner.array)),
                    1 / np.sqrt(inner.array))
    for of in (x, z):
        g.output(g.binary("Mul", of, inverse))
        g.output(g.binary("Mul", scale, g.binary("Mul", inverse, of)))


def gelus(g):
    x, z = (g.input(n, g.random.randn(ADS, 3).astype(np.float32) * 2) for n in "xz")
    cube = g.node("Pow", [x, number(g, 3)], x.array ** 3)
    inner = g.binary("Mul", number(g, math.sqrt(2 / math.pi)),
                     g.binary("Add", x, g.binary("Mul", number(g, 0.044715), cube)))
    scaled = g.binary("Div", x, number(g, math.sqrt(2)))
    erf = np.vectorize(math.erf)(scaled.array.astype(float))
    for of in (unary(g, "Erf", scaled, erf), unary(g, "Tanh", inner, np.tanh(inner.array))):
        gate = g.binary("Add", of, number(g, 1))
        for y in (x, z):
            g.output(g.binary("Mul", g.binary("Mul", y, number(g, 0.5)), gate))
            g.output(g.binary("Mul", g.binary("Mul", gate, y), number(g, 0.5)))


def softmaxes(g):
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    shifted = g.binary("Sub", x, g.node("ReduceMax", [x], x.array.max(2, keepdims=True), axes=[2]))
    for of, axis in ((x, 1), (shifted, -1)):
        above = exponential(g, of)
        below = g.node("ReduceSum", [above, g.ints(axis)], above.array.sum(axis, keepdims=True))
        g.output(g.binary("Div", above, below))
        g.output(g.binary("Mul", unary(g, "Reciprocal", below, 1 / below.array), above))
        more = g.binary("Add", below, number(g, 1))
        g.output(g.binary("Div", above, more))
    both = g.node("ReduceSum", [above, g.ints(1, 2)], above.array.sum((1, 2), keepdims=True))
    g.output(g.binary("Div", above, both))


def positive_parts(g):
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    y = g.input("y", g.random.randn(ADS, 4).astype(np.float32))
    for least in (0, 1):
        bound = number(g, least)
        g.output(g.binary("Max", *[x, bound][::g.random.choice([1, -1])]))
        for above in (g.binary("Greater", x, bound), g.binary("LessOrEqual", bound, x)):
            opposite = unary(g, "Not", above, ~above.array)
            as_float = g.node("Cast", [above], above.array.astype(np.float32), to=TensorProto.FLOAT)
            for of in (x, y):
                g.output(g.node("Where", [above, of, bound],
                                np.where(above.array, of.array, least)))
                g.output(g.node("Where", [opposite, bound, of],
                                np.where(above.array, of.array, least)))
                g.output(g.binary("Mul", of, as_float))
    counts = g.cast(g.binary("Mul", x, number(g, 9)), "int")
    g.output(g.binary("Max", counts, g.ints(0)))


def rectifiers(g):
    values = g.random.randn(ADS, 3, 4).astype(np.float32)
    x = g.input("x", np.where(np.abs(values) < 0.01, 0.5, values).astype(np.float32))
    slopes = g.constant(g.random.rand(4).astype(np.float32))
    minus = unary(g, "Neg", x, -x.array)
    size = unary(g, "Abs", x, np.abs(x.array))
    above = unary(g, "Relu", x, np.maximum(x.array, 0))
    below = unary(g, "Relu", minus, np.maximum(-x.array, 0))
    positive, scaled = g.binary("Greater", x, number(g, 0)), g.binary("Mul", slopes, x)
    shape = g.node("Shape", [x], np.array(x.array.shape))
    zeros = g.node("ConstantOfShape", [shape], np.zeros_like(x.array))
    half = g.binary("Mul", g.binary("Sub", x, size), number(g, 0.5))
    g.output(g.binary("Add", above, g.binary("Mul", half, slopes)))
    g.output(g.binary("Sub", above, g.binary("Mul", below, slopes)))
    g.output(g.binary("Add", g.binary("Mul", g.binary("Min", x, zeros), slopes),
                      g.binary("Max", zeros, x)))
    g.output(g.node("Where", [positive, x, scaled], np.where(positive.array, x.array,
                                                             scaled.array)))
    g.output(g.node("Where", [positive, scaled, x], np.where(positive.array, scaled.array,
                                                             x.array)))
    g.output(g.binary("Max", x, scaled))
    g.output(g.binary("Div", g.binary("Add", size, x), number(g, 2)))
    g.output(size)
    less = g.binary("Sub", exponential(g, x), number(g, 1))
    for of in (x, minus):
        g.output(g.node("Where", [positive, of, less], np.where(positive.array, of.array,
                                                                less.array)))
    g.output(g.binary("Div", x, g.binary("Add", number(g, 1), exponential(g, x, -1))))


def slopes_of_one_column(g):
    """Columns that only the slopes make: no PRelu."""
    x = g.input("x", (g.random.rand(ADS, 4) + 0.1).astype(np.float32))
    w = g.constant(g.random.randn(4, 1).astype(np.float32))
    slopes = g.constant(g.random.rand(3).astype(np.float32) if g.random.randint(2) else
                        np.full(3, 0.25, np.float32))
    ones = number(g, 1, 3)
    h = g.node("MatMul", [x, w], x.array @ w.array)
    for of in (h, g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1, keepdims=True))):
        above = g.node("Relu", [of], np.maximum(of.array, 0))
        below = g.binary("Mul", g.node("Min", [of, number(g, 0)], np.minimum(of.array, 0)), slopes)
        g.output(g.binary("Add", above, below))
        g.output(g.binary("Max", g.binary("Mul", of, ones), number(g, 0)))


def opposites(g):
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    y = g.input("y", (g.random.rand(ADS, 4) + 1).astype(np.float32))
    minus = [unary(g, "Neg", y, -y.array), g.binary("Mul", y, number(g, -1, 1)),
             g.binary("Sub", number(g, 0), y), g.binary("Sub", number(g, 1), y)]
    for of in minus:
        for op, pair in (("Add", (x, of)), ("Add", (of, x)), ("Sub", (x, of)), ("Sub", (of, x))):
            g.output(g.binary(op, *pair))
    g.output(g.binary("Mul", x, unary(g, "Reciprocal", y, 1 / y.array)))
    g.output(g.node("Sum", [x, y], x.array + y.array))
    g.output(g.node("Sum", [x, y, x], 2 * x.array + y.array))


def joined_twice(g):
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    y = g.input("y", g.random.randn(ADS, 4).astype(np.float32))
    for axis in (1, 2):
        parts = [g.unsqueeze(v, 1) for v in (x, y)]
        once = g.node("Concat", parts, np.concatenate([p.array for p in parts], 1), axis=1)
        twice = [once, g.node("Neg", [once], -once.array), once][:g.random.randint(2, 4)]
        g.output(g.node("Concat", twice, np.concatenate([p.array for p in twice], axis), axis=axis))


def einsums(g):
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    for out in ("bt", "bi", "b", "bit", "bti"):
        g.output(g.node("Einsum", [x], np.einsum("bti->" + out, x.array), equation=f"bti->{out}"))
    for equation in ("bti,io->bto", "b t i , o i -> b t o", "...i,io->...o", "bti,io->bot",
                     "bti,ii->bti", "bti,to->bio", "bti,oti->bot"):
        sizes = {"i": 4, "o": 5, "t": 3}
        labels = equation.replace(" ", "").split("->")[0].split(",")[1]
        w = g.constant(g.random.randn(*[sizes[i] for i in labels]).astype(np.float32))
        g.output(g.node("Einsum", [x, w], np.einsum(equation, x.array, w.array), equation=equation))
        if "." not in equation:
            flipped = ",".join(equation.split("->")[0].split(",")[::-1]) + "->" + \
                equation.split("->")[1]
            g.output(g.node("Einsum", [w, x], np.einsum(equation, x.array, w.array),
                            equation=flipped))


def einsums_of_two(g):
    q, k = (g.input(name, g.random.randn(ADS, 2, t, 4).astype(np.float32)) for name, t in (("q", 3), ("k", 5)))
    p = g.input("p", g.random.randn(ADS, 2, 3, 5).astype(np.float32))
    v = g.input("v", g.random.randn(ADS, 5, 2, 4).astype(np.float32))
    for x, y, equation in ((q, k, "bhqd,bhkd->bqhk"), (p, v, "bhqk,bkhd->bqhd"), (p, k, "bhqk,bhkd->bdhq"),
                           (q, k, "bhqd,bhkd->bqk"), (p, q, "bhqk,bhqd->bkd")):
        g.output(g.node("Einsum", [x, y], np.einsum(equation, x.array, y.array), equation=equation))


def complex_parts(array):
    return np.stack([array.real, array.imag], -1)


def filtered_waves(g):
    """irfft(rfft(x, 1) * w, 1) of even and odd lengths, as exporters of set 18 write it."""
    g.opset = 18
    for steps in (6, 5):
        x = g.input(f"x{steps}", g.random.randn(ADS, steps, 3).astype(np.float32))
        length = g.constant(np.array(steps))
        waves = np.fft.rfft(x.array, axis=1)
        y = g.node("DFT", [g.unsqueeze(x, 3), length], complex_parts(waves), axis=1, onesided=1)
        w = g.random.randn(*waves.shape[1:]) + 1j * g.random.randn(*waves.shape[1:])
        (a, b), (c, d) = [[g.pick(y, 3, i) for i in (0, 1)],
                          [g.constant(p.astype(np.float32)) for p in (w.real, w.imag)]]
        parts = [g.binary("Sub", g.binary("Mul", a, c), g.binary("Mul", b, d)),
                 g.binary("Add", g.binary("Mul", a, d), g.binary("Mul", b, c))]
        parts = [g.unsqueeze(p, 3) for p in parts]
        product = g.node("Concat", parts, np.concatenate([p.array for p in parts], 3), axis=-1)
        back = g.node("DFT", [product, length], np.fft.irfft(waves * w, steps, axis=1)[..., None],
                      axis=1, inverse=1, onesided=1)
        g.output(g.squeeze(back, 3))


def transforms(g):
    """Of complex numbers, longer and shorter than they are, along axes that are an input."""
    g.opset = 20
    x = g.input("x", g.random.randn(ADS, 5, 4, 2).astype(np.float32))
    numbers = x.array[..., 0] + 1j * x.array[..., 1]
    for length in (None, 7, 3):
        size = None if length is None else g.constant(np.array(length))
        for axis in (1, -2):
            inputs = [x, size, g.constant(np.array(axis))]
            along = axis if axis > 0 else axis + 1
            g.output(g.node("DFT", inputs, complex_parts(np.fft.fft(numbers, length, along))))
            g.output(g.node("DFT", inputs, complex_parts(np.fft.ifft(numbers, length, along)),
                            inverse=1))
    g.output(g.node("DFT", [x], complex_parts(np.fft.fft(numbers, axis=-1))))


def turned_products(g):
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    w = g.constant(g.random.randn(3, 4).astype(np.float32))
    t = g.node("Transpose", [x], x.array.T, perm=[1, 0])
    product = g.node("MatMul", [w, t], w.array @ t.array)
    g.output(g.node("Transpose", [product], product.array.T, perm=[1, 0]))


def dimensions_of_one(g):
    x = g.input("x", g.random.randn(ADS, 1, 4).astype(np.float32))
    for op, function in (("ReduceSum", np.sum), ("ReduceMean", np.mean), ("ReduceMax", np.max),
                         ("ReduceMin", np.min), ("ReduceProd", np.prod), ("ReduceL1", None)):
        for keep in (0, 1):
            of = np.abs(x.array).sum(1, keepdims=bool(keep)) if function is None else \
                function(x.array, 1, keepdims=bool(keep))
            g.output(g.with_axes(op, x, [1], of, 13 if op == "ReduceSum" else 18, keepdims=keep))
    for shape in ((-1, 4, 1), (0, 4), (-1, 1, 1, 4, 1), (-1, 2, 1, 2)):
        wanted = x.array.reshape(ADS, *shape[1:])
        y = g.node("Reshape", [x, g.ints(*shape)], wanted)
        g.output(g.binary("Mul", y, y))


PATTERNS = [sigmoids, layer_norms, fused_layer_norms, rms_norms, gelus, softmaxes, positive_parts, rectifiers,
            slopes_of_one_column, opposites, joined_twice, einsums, einsums_of_two, filtered_waves, transforms,
            turned_products, dimensions_of_one]
REFUSED = []
