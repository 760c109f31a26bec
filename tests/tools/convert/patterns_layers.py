"""Patterns of layers: recurrent ones, attention, products, loops, and arithmetic."""
# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from random_graph import ADS, Value, matrix, raw
from random_layers import convolve, pool, states


def convolution(x, w, b, dilation, pads, stride):
    x = np.pad(x, ((0, 0), (0, 0), pads))
    windows = (x.shape[2] - (w.shape[2] - 1) * dilation - 1) // stride + 1
    taps = [x[:, :, k * dilation:][:, :, :windows * stride:stride] for k in range(w.shape[2])]
    return sum(np.einsum("nct,oc->not", tap, w[:, :, k]) for k, tap in enumerate(taps)) + b[:, None]


def convolutions_of_steps(g):
    """Embedded steps, transposed for Conv; what follows keeps their order (TCN, WaveNet)."""
    x = g.input("x", g.random.randn(ADS, 6, 3).astype(np.float32))
    t = g.node("Transpose", [x], x.array.transpose(0, 2, 1), perm=[0, 2, 1])
    padded = g.node("Pad", [t, g.constant(np.array([0, 0, 2, 0, 0, 0]))],
                    np.pad(t.array, ((0, 0), (0, 0), (2, 0))))
    for of, kernel, dilation, pads, stride in ((t, 1, 1, (0, 0), 1), (t, 3, 1, (1, 1), 1),
                                               (padded, 2, 2, (0, 0), 1), (t, 3, 1, (0, 1), 2)):
        w, b = [g.constant(g.random.randn(*s).astype(np.float32)) for s in ((3, 3, kernel), (3,))]
        wanted = convolution(of.array, w.array, b.array, dilation, pads, stride)
        y = g.node("Conv", [of, w, b], wanted, kernel_shape=[kernel], dilations=[dilation],
                   pads=list(pads), strides=[stride])
        if stride == 1:
            y = g.binary("Add", g.node("Relu", [y], np.maximum(y.array, 0)), t)
            y = g.binary("Mul", y, g.constant(g.random.randn(3, 1).astype(np.float32)))
        g.output(g.node("ReduceMax", [y], y.array.max(2), axes=[2], keepdims=0))
        g.output(g.node("ReduceMean", [y], y.array.mean((1, 2)), axes=[1, 2], keepdims=0))
        g.output(g.node("ReduceMean", [y], y.array.mean(1, keepdims=True), axes=[1], keepdims=1))
        g.output(g.node("Transpose", [y], y.array.transpose(0, 2, 1), perm=[0, 2, 1]))


def gates_of_steps(g):
    """DeepCTR's Dice of steps: normalised channel by channel, channels before steps."""
    x = g.input("x", g.random.randn(ADS, 6, 3).astype(np.float32))
    t = g.node("Transpose", [x], x.array.transpose(0, 2, 1), perm=[0, 2, 1])
    bias, mean = [g.constant(g.random.randn(3).astype(np.float32)) for _ in range(2)]
    scale, variance = [g.constant((g.random.rand(3) + 0.5).astype(np.float32)) for _ in range(2)]
    column = [v.array[:, None] for v in (scale, bias, mean, variance)]
    z = (t.array - column[2]) / np.sqrt(column[3] + 1e-5) * column[0] + column[1]
    normal = g.node("BatchNormalization", [t, scale, bias, mean, variance], z)
    p = g.node("Sigmoid", [normal], 1 / (1 + np.exp(-z)))
    alpha = g.constant(g.random.rand(3, 1).astype(np.float32))
    rest = g.binary("Mul", g.binary("Sub", g.constant(np.float32(1)), p), alpha)
    y = g.binary("Add", g.binary("Mul", rest, t), g.binary("Mul", p, t))
    g.output(g.node("Transpose", [y], y.array.transpose(0, 2, 1), perm=[0, 2, 1]))
    g.output(g.node("ReduceMax", [normal], z.max(2), axes=[2], keepdims=0))


def convolutions_of_single_rows(g):
    """Steps as an image of one row or one column (NextItNet), dilated and padded along them."""
    x = g.input("x", g.random.randn(ADS, 6, 3).astype(np.float32))
    t = g.node("Transpose", [x], x.array.transpose(0, 2, 1), perm=[0, 2, 1])
    for axis, dilation in ((2, 1), (2, 2), (3, 1), (3, 2)):
        def along(one, steps):
            return [one, steps] if axis == 2 else [steps, one]  # pylint: disable=cell-var-from-loop
        image = g.node("Unsqueeze", [t, g.constant(np.array([axis]))],
                       np.expand_dims(t.array, axis))
        for kernel in (1, 3):
            pad = (kernel - 1) * dilation
            sizes = ((4, 3, kernel), (4,))
            w, b = [g.constant(g.random.randn(*s).astype(np.float32)) for s in sizes]
            wanted = convolution(t.array, w.array, b.array, dilation, (pad, 0), 1)
            plane = g.constant(np.expand_dims(w.array, axis))
            y = g.node("Conv", [image, plane, b], np.expand_dims(wanted, axis),
                       kernel_shape=along(1, kernel), dilations=along(1, dilation),
                       pads=along(0, pad) + [0, 0])
            g.output(g.node("Relu", [y], np.maximum(y.array, 0)))


def convolutions_of_whole_rows(g):
    """Caser: windows as wide as the image of steps, and the largest of all windows."""
    x = g.input("x", g.random.randn(ADS, 1, 6, 3).astype(np.float32))
    for kernel, pads in ((1, (0, 0)), (3, (0, 0)), (2, (1, 0))):
        sizes = ((4, 1, kernel, 3), (4,))
        w, b = [g.constant(g.random.randn(*s).astype(np.float32)) for s in sizes]
        wanted = convolution(x.array[:, 0].transpose(0, 2, 1), w.array[:, 0].transpose(0, 2, 1),
                             b.array, 1, pads, 1)
        y = g.node("Conv", [x, w, b], wanted[..., None], kernel_shape=[kernel, 3],
                   pads=[pads[0], 0, pads[1], 0])
        flat = g.node("Squeeze", [y, g.constant(np.array([3]))], wanted)
        most = wanted.max(2, keepdims=True)
        g.output(g.node("MaxPool", [flat], most, kernel_shape=[wanted.shape[2]]))


def convolutions_of_patches(g):
    """Windows side by side, one behind the other (ConvNCF), of planes and of steps."""
    x = y = g.input("x", g.random.randn(ADS, 2, 6, 4).astype(np.float32))
    for kernel in ((3, 2), (2, 2)):
        y = patches(g, y, kernel)
        y = g.node("Relu", [y], np.maximum(y.array, 0))
    g.output(y)
    steps = g.node("Reshape", [x, g.ints(-1, 4, 12)], x.array.reshape(ADS, 4, 12))
    g.output(patches(g, steps, (3,)))


def patches(g, x, kernel):
    w, b = (g.constant(g.random.randn(*s).astype(np.float32) * 0.3)
            for s in ((3, x.array.shape[1], *kernel), (3,)))
    cut = list(x.array.shape[:2])
    for size, of_window in zip(x.array.shape[2:], kernel):
        cut += [size // of_window, of_window]
    equation = "ncikjl,ockl->noij" if len(kernel) == 2 else "ncik,ock->noi"
    wanted = np.einsum(equation, x.array.reshape(cut), w.array)
    wanted += b.array.reshape(-1, *[1] * len(kernel))
    return g.node("Conv", [x, w, b], wanted, kernel_shape=list(kernel), strides=list(kernel))


def convolutions_of_volumes(g):
    """Three dimensions, whose first become channels (CFM), and are pooled behind the others."""
    x = g.input("x", g.random.randn(ADS, 2, 6, 5, 7).astype(np.float32))
    for _ in range(4):
        g.output(convolve(g, x))
        g.output(pool(g, x))
    places = (2, 3, 4)
    g.output(g.node("GlobalMaxPool", [x], x.array.max(places, keepdims=True)))
    g.output(g.node("GlobalAveragePool", [x], x.array.mean(places, keepdims=True)))
    cut = g.slice(x, 1, 1, 2)
    g.output(convolve(g, g.node("Relu", [cut], np.maximum(cut.array, 0))))


def constants_of_all_types(g):
    """Initializers of the types that exporters seldom write."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    for kind in (np.int16, np.uint16, np.uint32, np.uint64):
        numbers = g.constant(np.array([1, 2, np.iinfo(kind).max % 90], kind))
        x = g.binary("Add", x, g.cast(numbers, "float"))
    upper_halves = np.array([1.5, -2, 0.25], np.float32).view(np.uint32) >> 16
    g.initializers.append(helper.make_tensor("halves", TensorProto.BFLOAT16, [3],
                                             upper_halves.astype(np.uint16).tobytes(), raw=True))
    halves = Value("halves", np.array([1.5, -2, 0.25], np.float32), None)
    g.output(g.binary("Mul", g.binary("Mul", x, g.constant(np.float32(1e-3))),
                      g.cast(halves, "float")))


def integers_too_large(g):
    x = g.input("x", g.random.randn(ADS, 1).astype(np.float32))
    number = g.constant(np.array([1 << 63], np.uint64))
    g.output(g.node("Add", [x, Value("y", np.zeros((1, 1), np.float32), None)], x.array))
    g.nodes.insert(0, helper.make_node("Cast", [number.name], ["y"], to=TensorProto.FLOAT))


def computed_bias(g):
    """x @ weight + y, which the exporter makes one Gemm of."""
    x, y = (g.input(n, g.random.randn(ADS, k).astype(np.float32)) for n, k in (("x", 3), ("y", 2)))
    weight = g.constant(g.random.randn(3, 2).astype(np.float32))
    twice = g.binary("Add", y, y)
    g.output(raw(g, "Gemm", [x, weight, twice], x.array @ weight.array + twice.array))


def dropout_off(g):
    x = g.input("x", g.random.randn(ADS, 2).astype(np.float32))
    for training, ratio in ((False, 0.5), (True, 0)):
        inputs = g.constant(np.array(ratio, np.float32)), g.constant(np.array(training))
        g.output(g.node("Dropout", [x, *inputs], x.array))


def nearest_in_single_precision(g):
    """1.5 / 0.6 is 2.5 in single precision, and less in double of the single 0.6."""
    x = g.input("x", g.random.randn(ADS, 2, 6).astype(np.float32))
    scales = g.constant(np.array([1, 1, 0.6], np.float32))
    g.output(g.node("Resize", [x, None, scales], x.array[..., [0, 2, 3]], mode="nearest",
                    nearest_mode="floor"))


def causal_convolution(g):
    """Padded at both ends; what comes behind the last step is cut off."""
    x = g.input("x", g.random.randn(ADS, 3, 6).astype(np.float32))
    weight = g.random.randn(4, 3, 2).astype(np.float32)
    padded = np.pad(x.array, ((0, 0), (0, 0), (2, 2)))
    whole = sum(np.einsum("oc,bct->bot", weight[:, :, i], padded[:, :, 2 * i:2 * i + 8])
                for i in range(2))
    y = g.node("Conv", [x, g.constant(weight)], whole, pads=[2, 2], dilations=[2])
    ends = g.node("Constant", [], np.array([-2]),
                  value=numpy_helper.from_array(np.array([-2], np.int64)))
    g.output(g.node("Slice", [y, g.ints(0), ends, g.ints(2), g.ints(1)], whole[:, :, :-2]))


def parts_without_anything(g):
    x = g.input("x", g.random.randn(ADS, 3, 2).astype(np.float32))
    names = ["none", "also", "first", "rest"]
    g.nodes.append(helper.make_node("Split", [x.name, g.ints(0, 0, 1, 2).name], names, axis=1))
    none, also, first, rest = (Value(n, a, "ads") for n, a in zip(
        names, np.split(x.array, [0, 0, 1], 1)))
    g.output(g.node("Concat", [none, first], first.array, axis=1))
    g.output(g.node("Concat", [rest, also], rest.array, axis=1))


def einsum_with_diagonals(g):
    """A matrix of constants in every field, of which only the diagonal counts."""
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    for shape, equation in (((3, 4, 4), "bfe,fee->bfe"), ((2, 3, 2), "bfe,ofo->be")):
        w = g.constant(g.random.randn(*shape).astype(np.float32))
        g.output(g.node("Einsum", [x, w], np.einsum(equation, x.array, w.array), rows="ads",
                        equation=equation))


def arithmetic_of_constants(g):
    """What weights are computed from: any operator, once."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    w = g.constant(g.random.randn(4, 6).astype(np.float32))
    e = np.exp(w.array.astype(float))
    weights = g.node("Softmax", [w], e / e.sum(-1, keepdims=True), axis=-1)
    back = g.constant(g.random.randn(6, 4).astype(np.float32))
    product = g.node("MatMul", [weights, back], weights.array @ back.array)
    g.output(g.node("MatMul", [x, product], x.array @ product.array))
    v = g.constant(g.random.randn(4).astype(np.float32))
    deep = g.input("m", g.random.randn(ADS, 3, 4).astype(np.float32))
    g.output(g.node("MatMul", [deep, v], deep.array @ v.array))


def branch_by_shape(g):
    g.opset = 15
    x = g.input("x", g.random.randn(ADS, 3, 1).astype(np.float32))
    size = g.keep(Value("size", np.array(1), None))
    g.nodes.append(helper.make_node("Shape", [x.name], ["shape"]))
    g.nodes.append(helper.make_node("Gather", ["shape", g.ints(2).name], [size.name], axis=0))
    test = g.keep(Value("test", np.array([True]), None))
    g.nodes.append(helper.make_node("Equal", [size.name, g.ints(1).name], [test.name]))
    def branch(name, node):
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([node], name, [], [info])
    axes = g.ints(2).name
    g.nodes.append(helper.make_node(
        "If", [test.name], ["y"],
        then_branch=branch("a", helper.make_node("Squeeze", [x.name, axes], ["a"])),
        else_branch=branch("b", helper.make_node("Identity", [x.name], ["b"]))))
    y = g.keep(Value("y", x.array[:, :, 0], "ads"))
    # What a branch gives has a type, though not the condition's.
    half = raw(g, "CastLike", [g.constant(np.array(0.5)), y], np.array(0.5, np.float32), None)
    g.output(g.binary("Mul", y, half))


def recurrent(g, op, directions, linear, packed, outputs=("all", "last"), first=None):
    """[rows, steps, k] through LSTM, GRU or RNN, in float64; packed: of rows as long as they say.

    first: the states before the first step, "each" row's or "one" for all; None: zeros.
    """
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    turned = g.node("Transpose", [x], x.array.transpose(1, 0, 2), perm=[1, 0, 2])
    n, gates = 2, {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    w, r, b = (g.random.randn(*shape).astype(np.float32) for shape in (
        (directions, gates * n, 3), (directions, gates * n, n), (directions, 2 * gates * n)))
    every, last, cell = np.zeros((4, directions, ADS, n)), *np.zeros((2, directions, ADS, n))
    start = np.zeros((directions, ADS, n), np.float32)
    if first is not None:
        start[:] = g.random.randn(directions, ADS if first == "each" else 1, n)
    lengths = g.input("length", g.random.randint(1, 5, ADS).astype(np.float32)) if packed else None
    for d in range(directions):
        every[:, d], last[d], cell[d] = states(
            op, linear, turned.array, (w[d], r[d], b[d]), start[d],
            lengths.array if packed else None, backwards=d == 1)
    attributes = {"linear_before_reset": linear} if op == "GRU" else {}
    # Zeros of the rows that the exporter saw, which others do not fit.
    rows = g.node("Gather", [g.node("Shape", [turned], np.array([4, ADS, 3])), g.ints(1)],
                  np.array([ADS]), axis=0)
    shape = g.node("Concat", [g.ints(directions), rows, g.ints(n)],
                   np.array([directions, ADS, n]), axis=0)
    seen = g.constant(start[:, :1] if first == "one" else np.zeros_like(start))
    state = g.node("Expand", [seen, shape], start, rows="ads").name
    if first == "each":
        own = g.input("first", start.transpose(1, 0, 2))
        state = g.node("Transpose", [own], start, perm=[1, 0, 2]).name
    steps = [g.node("Cast", [lengths], lengths.array.astype(np.int32),
                    to=TensorProto.INT32).name] if packed else []
    g.nodes.append(helper.make_node(
        op, [turned.name, *(g.constant(v).name for v in (w, r, b)), *(steps or [""]),
             *[state] * (2 if op == "LSTM" else 1)],
        [name if name in outputs else "" for name in ("all", "last", "cell")[:2 + (op == "LSTM")]], hidden_size=n,
        direction="bidirectional" if directions == 2 else "forward", **attributes))
    for name in outputs:
        array = {"all": every, "last": last, "cell": cell}[name]
        value = g.keep(Value(name, array.astype(np.float32), "ads"))
        perm = [2, 0, 1, 3] if array.ndim == 4 else [1, 0, 2]
        g.output(g.node("Transpose", [value], value.array.transpose(perm), perm=perm))


def recurrent_patterns():
    for op, linear in (("LSTM", 0), ("RNN", 0), ("GRU", 0), ("GRU", 1)):
        for directions, packed in itertools.product((1, 2), (False, True)):
            def pattern(g, op=op, directions=directions, linear=linear, packed=packed):
                recurrent(g, op, directions, linear, packed)
            pattern.__name__ = f"{op}_{directions}_{linear}{'_packed' * packed}"
            yield pattern


def first_states():
    for op, first, packed in itertools.product(("LSTM", "GRU"), ("each", "one"), (False, True)):
        def pattern(g, op=op, first=first, packed=packed):
            recurrent(g, op, 1 if packed else 2, 1, packed, first=first)
        pattern.__name__ = f"{op}_from_{first}{'_packed' * packed}"
        yield pattern


def last_state_of_each_length(g):
    recurrent(g, "GRU", 1, 1, True, ["last"])


def last_cell(g):
    recurrent(g, "LSTM", 2, 0, False, ["last", "cell"])


def einsum_of_one(g):
    """Diagonals, sums and transpositions of what is computed; a diagonal beside another factor."""
    x = g.input("x", g.random.randn(ADS, 4, 4).astype(np.float32))
    for equation in ("bii->bi", "bii->b", "bij->bji", "bij->bi"):
        g.output(g.node("Einsum", [x], np.einsum(equation, x.array), equation=equation))
    g.output(g.node("Einsum", [x, x], np.einsum("bii,bij->bj", x.array, x.array),
                    equation="bii,bij->bj"))


def einsum_of_three(g):
    """The outer product of product-based networks: what a pair of fields has, by a kernel each."""
    p, q = (g.input(n, g.random.randn(ADS, 3, 4).astype(np.float32)) for n in "pq")
    kernel = g.constant(g.random.randn(3, 4, 4).astype(np.float32))
    g.output(g.node("Einsum", [p, kernel, q],
                    np.einsum("bpi,pij,bpj->bp", p.array, kernel.array, q.array), rows="ads",
                    equation="bpi,pij,bpj->bp"))


def einsum_with_constants(g):
    """Several labels are summed, or are columns, in any order; the constant may come first."""
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    for equation, shape in (("bpe,fpe->bf", (2, 3, 4)), ("bpe,efp->bf", (4, 2, 3)),
                            ("bpe,pe->b", (3, 4)), ("bpe,epfg->bfg", (4, 3, 2, 5)),
                            ("bpe,fge->bpgf", (2, 5, 4)), ("bpe,fpg->bgef", (2, 3, 5)),
                            ("bpe,pf->bpf", (3, 2)), ("bpe,fpg->be", (2, 3, 5))):
        w = g.constant(g.random.randn(*shape).astype(np.float32))
        g.output(g.node("Einsum", [x, w], np.einsum(equation, x.array, w.array), rows="ads",
                        equation=equation))
    w = g.constant(g.random.randn(4, 3, 2).astype(np.float32))
    g.output(g.node("Einsum", [w, x], np.einsum("epf,bpe->bf", w.array, x.array), rows="ads",
                    equation="epf,bpe->bf"))


def einsum_of_any_rank(g):
    """Equations with "...", of ranks that differ, and without an output."""
    q, k = (g.input(n, g.random.randn(ADS, 2, 3, 4).astype(np.float32)) for n in "qk")
    w = g.constant(g.random.randn(4, 5).astype(np.float32))
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    for equation, ins in (("...ij,...kj->...ik", (q, k)), ("...d,de->...e", (q, w)),
                          ("b...d,bd->b...", (q, x)), ("...d,de", (q, w)), ("bd,de", (x, w))):
        g.output(g.node("Einsum", ins, np.einsum(equation, *(i.array for i in ins)), rows="ads",
                        equation=equation))


def sines_of_large_numbers(g):
    """Up to 2^48, by the sign and around multiples of the number that divides small from large."""
    size = 10 ** g.random.uniform(3, 14.4, (ADS, 40)) * g.random.choice([-1, 1], (ADS, 40))
    x = g.input("x", size.astype(np.float32))
    exact = x.array.astype(np.float64)
    g.output(g.node("Sin", [x], np.sin(exact)))
    g.output(g.node("Cos", [x], np.cos(exact)))


def tangent(g):
    x = g.input("x", g.random.uniform(-1.2, 1.2, (ADS, 4)).astype(np.float32))
    g.output(g.node("Tan", [x], np.tan(x.array)))


def sequences(g):
    """split(), unbind() and stack() of today's exporter."""
    x = g.input("x", g.random.randn(ADS, 5, 4).astype(np.float32))
    at = lambda i: g.constant(np.array(i))  # noqa: E731
    pairs = raw(g, "SplitToSequence", [x, at(2)], None, axis=1)
    parts = [raw(g, "SequenceAt", [pairs, at(i)], x.array[:, 2 * i:2 * i + 2]) for i in range(3)]
    g.output(parts[2])
    stacked = raw(g, "SequenceConstruct", parts[:2], None)
    stacked = raw(g, "ConcatFromSequence", [stacked], np.stack([p.array for p in parts[:2]], 1),
                  axis=1, new_axis=1)
    g.output(g.node("ReduceSum", [stacked, g.ints(1)], stacked.array.sum(1), keepdims=0))
    steps = raw(g, "SplitToSequence", [x], None, axis=-2, keepdims=0)
    g.output(raw(g, "SequenceAt", [steps, at(-1)], x.array[:, -1]))
    g.output(raw(g, "SequenceAt", [steps, at(-3)], x.array[:, -3]))
    uneven = raw(g, "SplitToSequence", [x, g.ints(1, 4)], None, axis=1)
    rest = raw(g, "SequenceAt", [uneven, at(1)], x.array[:, 1:])
    more = raw(g, "SequenceInsert", [raw(g, "SequenceEmpty", [], None), rest], None)
    more = raw(g, "SequenceInsert", [more, parts[2], at(0)], None)
    g.output(raw(g, "ConcatFromSequence", [more],
                 np.concatenate([parts[2].array, rest.array], 1), axis=1))


def chunks(g):
    """chunk(3) of seven columns, whose sizes PyTorch computes: three, three and one."""
    x = g.input("x", g.random.randn(ADS, 7).astype(np.float32))
    width = g.pick(g.node("Shape", [x], np.array(x.array.shape)), 0, 1)
    rounded = g.node("Add", [width, g.ints(2)], np.array([9]))
    each = g.node("Div", [rounded, g.constant(np.array(3))], np.array([3]))
    firsts = g.node("Expand", [each, g.ints(2)], np.array([3, 3]))
    before = g.node("Mul", [each, g.ints(2)], np.array([6]))
    last = g.node("Sub", [width, before], np.array([1]))
    sizes = g.node("Concat", [firsts, last], np.array([3, 3, 1]), axis=0)
    parts = raw(g, "SplitToSequence", [x, sizes], None, axis=1)
    for at, columns in ((0, slice(0, 3)), (1, slice(3, 6)), (2, slice(6, 7)), (-1, slice(6, 7)),
                        (-2, slice(3, 6))):
        g.output(raw(g, "SequenceAt", [parts, g.constant(np.array(at))], x.array[:, columns]))


def normalised_constants(g):
    """A LayerNormalization of a parameter, which has one output of three."""
    g.opset = 17
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    w, scale, bias = (g.constant(g.random.randn(4).astype(np.float32)) for _ in range(3))
    a = w.array.astype(float)
    a = (a - a.mean()) / np.sqrt(a.var() + 1e-5)
    normal = g.node("LayerNormalization", [w, scale, bias], a * scale.array + bias.array)
    g.output(g.binary("Mul", x, normal))


def layer_norms_of_any_axes(g):
    """Over several axes, of rows behind steps, and with a scale that is computed."""
    g.opset = 17
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    turned = g.node("Transpose", [x], x.array.transpose(1, 0, 2), perm=[1, 0, 2])
    for of, first in ((x, 1), (x, 2), (turned, 2)):
        axes = tuple(range(first, 3))
        a = of.array.astype(float)
        a = (a - a.mean(axes, keepdims=True)) / np.sqrt(a.var(axes, keepdims=True) + 0.25)
        own = g.node("ReduceMax", [of], of.array.max(axes, keepdims=True), axes=list(axes))
        scale, bias = (g.constant(g.random.randn(*a.shape[first:]).astype(np.float32))
                       for _ in range(2))
        one = g.constant(np.ones(a.shape[first:], np.float32))
        normal = g.node("LayerNormalization", [of, scale, bias], a * scale.array + bias.array,
                        axis=first, epsilon=0.25)
        g.output(normal)
        plain = g.node("LayerNormalization", [of, one], a, axis=first - 3, epsilon=0.25)
        g.output(g.binary("Add", g.binary("Mul", plain, own), of))


def attention_of_today(g):
    """Scaled dot products as the exporter of today takes them apart: sizes by Shape, CastLike."""
    g.opset = 18
    q, k, v = (g.input(n, g.random.randn(ADS, 2, 3, 4).astype(np.float32)) for n in "qkv")
    shape = g.node("Shape", [k], np.array([ADS, 2, 3, 4]))
    cut = lambda of, a, b: g.node("Slice", [of, g.ints(a), g.ints(b)],  # noqa: E731
                                  of.array[a if a > -9 else None:b if b < 9 else None])
    last, before, first = cut(shape, -1, 1 << 40), cut(shape, -2, -1), cut(shape, -(1 << 40), -2)
    flat = g.node("Concat", [g.ints(-1), before, last], np.array([-1, 3, 4]), axis=0)
    flat = g.node("Reshape", [k, flat], k.array.reshape(-1, 3, 4))
    turned = g.node("Transpose", [flat], flat.array.transpose(0, 2, 1), perm=[0, 2, 1])
    keys = g.node("Concat", [first, last, before], np.array([ADS, 2, 4, 3]), axis=0)
    keys = g.node("Reshape", [turned, keys], k.array.transpose(0, 1, 3, 2))
    width = raw(g, "CastLike", [cut(shape, -1, 1 << 40), q], np.array([4], np.float32), None)
    scale = g.node("Sqrt", [width], np.array([2], np.float32))
    scores = g.node("MatMul", [q, keys], np.matmul(q.array, keys.array))
    scores = g.binary("Div", scores, scale)
    e = np.exp(scores.array.astype(float))
    weights = g.node("Softmax", [scores], e / e.sum(-1, keepdims=True), axis=-1)
    g.output(g.node("MatMul", [weights, v], np.matmul(weights.array, v.array)))
    repeated = g.node("Abs", [g.ints(-1, 2, -1, 4)], np.array([1, 2, 1, 4]))
    g.output(g.node("Expand", [q, repeated], q.array))


def groups_normalised(g):
    """Scales by group up to operator set 20, by channel from 21 on."""
    g.opset, size = (18, 2) if g.random.randint(2) else (21, 6)
    x = g.input("x", g.random.randn(ADS, 6, 2, 3).astype(np.float32))
    scale, bias = (g.constant(g.random.randn(size).astype(np.float32)) for _ in range(2))
    a = x.array.astype(float).reshape(ADS, 2, -1)
    a = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-3)
    by, plus = (c.array.repeat(6 // size).reshape(6, 1, 1) for c in (scale, bias))
    g.output(g.node("GroupNormalization", [x, scale, bias],
                    a.reshape(x.array.shape) * by + plus, num_groups=2, epsilon=1e-3))


def softmax_less_the_maximum(g):
    """softmax(x - x.max()), of all rows, and of the last axis; before and after a mask."""
    x = g.input("x", g.random.randn(ADS, 2, 3).astype(np.float32))
    e = np.exp(x.array.astype(float))
    far = g.constant(np.array(-1e9, np.float32))
    mask = g.binary("Greater", x, g.constant(np.array(0.5, np.float32)))
    some = np.where(mask.array, -1e9, x.array)
    some = np.exp(some - some.max(-1, keepdims=True))
    for keep, axes in ((0, None), (1, None), (1, [-1])):
        most = x.array.max(axes and axes[0], keepdims=bool(keep))
        if axes is None:
            most = g.node("ReduceMax", [x], most, keepdims=keep)
        else:
            most = g.node("ReduceMax", [x], most, keepdims=keep, axes=axes)
        less = g.node("Sub", [x, most], x.array - most.array)
        g.output(g.node("Softmax", [less], e / e.sum(-1, keepdims=True), axis=-1))
        kept = Value(g.fresh("kept"), x.array, "ads")  # Not its numbers, which are too large.
        g.nodes.append(helper.make_node("Where", [mask.name, far.name, less.name], [kept.name]))
        g.output(g.node("Softmax", [kept], some / some.sum(-1, keepdims=True), axis=-1))
    g.output(g.node("LogSoftmax", [less], np.log(e / e.sum(-1, keepdims=True)), axis=-1))
    g.output(less)


def sparsemax(g):
    """TabNet's masks: an order, sums, and a Range of floats; a chunk that has all rows."""
    g.opset = 14
    x = g.input("x", g.random.randn(ADS, 5).astype(np.float32))
    rows = g.node("Gather", [g.node("Shape", [x], np.array(x.array.shape)), g.ints(0)],
                  np.array([ADS]), axis=0)
    end = g.binary("Mul", g.binary("Div", g.binary("Add", rows, g.ints(0)), g.ints(1)), g.ints(1))
    x = g.node("Slice", [x, g.ints(0), end, g.ints(0)], x.array)
    order = np.sort(x.array, 1)[:, ::-1]
    names = [g.fresh("top"), g.fresh("at")]
    g.nodes.append(helper.make_node("TopK", [x.name, g.ints(5).name], names, axis=1))
    top = g.keep(Value(names[0], order, "ads"))
    sums = g.node("CumSum", [top, g.constant(np.array(1))], np.cumsum(order, 1))
    less = g.binary("Sub", sums, g.constant(np.array(1, np.float32)))
    float_ = [g.constant(np.array(v, np.float32)) for v in (1, 6, 1)]
    rho = g.node("Range", float_, np.arange(1, 6, dtype=np.float32))
    inside = g.binary("Greater", g.binary("Mul", rho, top), less)
    count = g.node("ReduceSum", [g.cast(inside, "int"), g.ints(1)],
                   inside.array.sum(1, keepdims=True), keepdims=1)
    last = g.binary("Sub", count, g.constant(np.array(1)))
    tau = g.node("GatherElements", [less, last], np.take_along_axis(less.array, last.array, 1),
                 axis=1)
    tau = g.binary("Div", tau, g.cast(count, "float"))
    g.output(g.node("Relu", [g.binary("Sub", x, tau)], np.maximum(x.array - tau.array, 0)))


def loop_of(g, passes, first, body_nodes, outputs, array):
    """A Loop that carries a value, whose body names the pass, the condition and the value so."""
    info = [helper.make_tensor_value_info("pass", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None)]
    body = helper.make_graph(
        body_nodes, "body", info,
        [helper.make_tensor_value_info(outputs[0], TensorProto.BOOL, []),
         helper.make_tensor_value_info(outputs[1], TensorProto.FLOAT, None)])
    on = g.constant(np.array(True))
    return raw(g, "Loop", [g.constant(np.array(passes)), on, first], array, body=body)


def steps_in_a_loop(g):
    """A scripted recurrence, of as many steps as the shape says; and one without a pass."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    weight = g.constant((0.5 * g.random.randn(3, 3)).astype(np.float32))
    first = g.constant(np.array([[0.25, -0.5, 1]], np.float32))
    nodes = [helper.make_node("Gather", [x.name, "pass"], ["step"], axis=1),
             helper.make_node("MatMul", ["state", weight.name], ["product"]),
             helper.make_node("Add", ["step", "product"], ["sum"]),
             helper.make_node("Tanh", ["sum"], ["next"]),
             helper.make_node("Identity", ["on"], ["goes_on"])]
    state = first.array
    for step in range(4):
        state = np.tanh(x.array[:, step] + state @ weight.array)
    end = loop_of(g, 4, first, nodes, ["goes_on", "next"], state)
    g.output(g.binary("Mul", end, g.constant(np.array(2, np.float32))))
    g.output(g.binary("Add", loop_of(g, 0, end, nodes, ["goes_on", "next"], state), end))


def body_of(nodes, inputs, outputs):
    """The graph of a loop: (name, type) of its inputs and outputs."""
    infos = [[helper.make_tensor_value_info(name, kind, None) for name, kind in values]
             for values in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *infos)


def recurrence(g, x):
    """A recurrence of Keras that skips padding: its nodes, its states, and what it keeps."""
    weight = g.constant((0.5 * g.random.randn(3, 3)).astype(np.float32))
    mask = g.input("mask", g.random.rand(ADS, 4, 1) > 0.3)
    nodes = [helper.make_node("MatMul", ["state", weight.name], ["product"]),
             helper.make_node("Add", ["step", "product"], ["sum"]),
             helper.make_node("Tanh", ["sum"], ["new"]),
             helper.make_node("Where", ["seen", "new", "state"], ["next"]),
             helper.make_node("Neg", ["next"], ["kept"])]
    states = [np.zeros((ADS, 3), np.float32)]
    for step in range(4):
        new = np.tanh(x.array[:, step] + states[-1] @ weight.array)
        states.append(np.where(mask.array[:, step], new, states[-1]))
    return mask, nodes, states[-1], -np.stack(states[1:])


def zeros_of(g, x):
    rows = g.node("Shape", [x], np.array(x.array.shape))
    rows = g.node("Gather", [rows, g.ints(0)], np.array([ADS]))
    shape = g.node("Concat", [rows, g.ints(3)], np.array([ADS, 3]), axis=0)
    return raw(g, "ConstantOfShape", [shape], np.zeros((ADS, 3), np.float32))


def steps_kept_by_a_loop(g):
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    mask, nodes, last, kept = recurrence(g, x)
    floats, booleans = TensorProto.FLOAT, TensorProto.BOOL
    nodes = [helper.make_node("Gather", [x.name, "pass"], ["step"], axis=1),
             helper.make_node("Gather", [mask.name, "pass"], ["seen"], axis=1), *nodes,
             helper.make_node("Identity", ["on"], ["goes_on"])]
    body = body_of(nodes, [("pass", TensorProto.INT64), ("on", booleans), ("state", floats)],
                   [("goes_on", booleans), ("next", floats), ("kept", floats)])
    end, all_steps = Value("end", last, "ads"), Value("steps", kept, "ads")
    passes, on = g.constant(np.array(4)), g.constant(np.array(True))
    g.nodes.append(helper.make_node("Loop", [passes.name, on.name, zeros_of(g, x).name],
                                    [end.name, all_steps.name], body=body))
    g.output(end)
    g.output(g.node("Transpose", [all_steps], kept.transpose(1, 0, 2), perm=[1, 0, 2]))


def loop_that_ends_early(g):
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    half = g.constant(np.array(0.5, np.float32))
    nodes = [helper.make_node("Mul", ["state", half.name], ["next"]),
             helper.make_node("Less", ["pass", g.constant(np.array(1)).name], ["goes_on"])]
    g.output(loop_of(g, 4, x, nodes, ["goes_on", "next"], x.array / 4))


def dropout_on(g):
    x = g.input("x", g.random.randn(ADS, 2).astype(np.float32))
    on = g.constant(np.array(True)), g.constant(np.array(0.5, np.float32))
    g.output(g.node("Dropout", [x, on[1], on[0]], x.array))


def slopes_of_repeated_steps(g):
    """PRelu with a slope per step of what is the same at every step."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    apart = g.unsqueeze(x, 1)
    steps = g.node("Expand", [apart, g.ints(1, 2, 1)], np.repeat(apart.array, 2, 1))
    slope = g.random.rand(2, 1).astype(np.float32)
    g.output(g.node("PRelu", [steps, g.constant(slope)],
                    np.where(steps.array > 0, steps.array, steps.array * slope)))


PATTERNS = [gates_of_steps, convolutions_of_steps, convolutions_of_single_rows, convolutions_of_whole_rows,
            convolutions_of_patches, convolutions_of_volumes, constants_of_all_types, computed_bias, dropout_off, causal_convolution, nearest_in_single_precision, parts_without_anything, sequences,
            chunks, normalised_constants, layer_norms_of_any_axes, tangent,
            attention_of_today, groups_normalised, einsum_with_diagonals, arithmetic_of_constants,
            branch_by_shape, einsum_of_one, einsum_of_three, einsum_with_constants,
            einsum_of_any_rank, sines_of_large_numbers,
            softmax_less_the_maximum, sparsemax, steps_in_a_loop,
            steps_kept_by_a_loop, *recurrent_patterns(),
            *first_states(),
            last_state_of_each_length, last_cell, slopes_of_repeated_steps]
REFUSED = [(dropout_on, "training_mode"), (integers_too_large, "2^63 or more"),
           (loop_that_ends_early, "may end early")]
