"""Patterns whose rows are repeated, or stacked for the heads of attention."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
from onnx import TensorProto, helper

from random_graph import ADS, Value, raw

HEADS = 2


def softmax(a):
    e = np.exp(a.astype(float) - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def part_of_rows(g, x, number):
    """Of x.chunk(HEADS, dim=0), as PyTorch exports it."""
    rows = len(x.array) // HEADS
    size = g.node("Shape", [x], np.array(x.array.shape))
    size = g.node("Gather", [size, g.ints(0)], np.array([len(x.array)]), axis=0)
    size = g.node("Add", [size, g.ints(HEADS - 1)], size.array + HEADS - 1)
    size = g.node("Div", [size, g.ints(HEADS)], np.array([rows]))
    begin = g.node("Mul", [size, g.ints(number)], size.array * number) if number else g.ints(0)
    end = g.node("Mul", [size, g.ints(number + 1)], size.array * (number + 1))
    return g.node("Slice", [x, begin, end, g.ints(0)],
                  x.array[number * rows:(number + 1) * rows], rows="ads")


def heads_in_front(g, exported=part_of_rows):
    """torch.cat(x.chunk(HEADS, -1), 0), a mask repeated for them, and back by chunk(HEADS, 0)."""
    x = g.input("x", g.random.randn(ADS, 4, 3 * HEADS).astype(np.float32))
    m = g.input("m", (g.random.randn(ADS, 1, 4) > 0).astype(np.float32))
    cuts = [g.slice(x, 2, 3 * i, 3 * i + 3) for i in range(HEADS)]
    q = g.node("Concat", cuts, np.concatenate([c.array for c in cuts]), axis=0)
    keys = g.node("Transpose", [q], q.array.transpose(0, 2, 1), perm=[0, 2, 1])
    mask = g.node("Tile", [m, g.ints(HEADS, 1, 1)], np.tile(m.array, (HEADS, 1, 1)))
    scores = g.binary("Add", g.node("MatMul", [q, keys], q.array @ keys.array), mask)
    weights = g.node("Softmax", [scores], softmax(scores.array), axis=-1)
    mixed = g.node("MatMul", [weights, q], weights.array @ q.array)
    parts = [exported(g, mixed, i) for i in range(HEADS)]
    g.output(g.node("Concat", parts, np.concatenate([p.array for p in parts], 2), axis=2))


def heads_in_front_of_the_example(g):
    """The same, back by slices whose ends have the example's rows as a number."""
    def part(g, x, number):
        begin, end = g.ints(number * ADS), g.ints((number + 1) * ADS)
        return g.node("Slice", [x, begin, end, g.ints(0)],
                      x.array[number * ADS:(number + 1) * ADS], rows="ads")
    heads_in_front(g, part)


def heads_split_by_the_example(g):
    """The same, back by split(x.size(0), 0)."""
    parts = []
    def part(g, x, number):
        if not parts:
            cuts = np.split(x.array, HEADS)
            parts.extend(g.keep(Value(g.fresh(), cut, "ads")) for cut in cuts)
            sizes = g.ints(*(len(cut) for cut in cuts))
            g.nodes.append(helper.make_node("Split", [x.name, sizes.name],
                                            [p.name for p in parts], axis=0))
        return parts[number]
    heads_in_front(g, part)


def heads_cut_by_the_example(g):
    """Without dynamic axes all numbers are the example's."""
    g.rows = ADS
    heads_in_front_of_the_example(g)


def projections_cut_apart(g):
    """in_proj_weight.chunk(3), exported without folding of constants."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    weight = g.constant(g.random.randn(12, 4).astype(np.float32))
    size = g.node("Shape", [weight], np.array([12, 4]))
    size = g.node("Gather", [size, g.ints(0)], np.array([12]), axis=0)
    more = g.node("Add", [size, g.ints(2)], np.array([14]))
    part = g.node("Div", [more, g.ints(3)], np.array([4]))
    ends = [g.node("Mul", [part, g.ints(i)], np.array([4 * i])) for i in (1, 2)]
    cut = g.node("Slice", [weight, *ends, g.ints(0)], weight.array[4:8])
    turned = g.node("Transpose", [cut], cut.array.T, perm=[1, 0])
    g.output(g.node("MatMul", [x, turned], x.array @ turned.array))


def heads_merged_in_front(g):
    """x.view(b, t, h, d).permute(2, 0, 1, 3).reshape(-1, t, d), with mask.repeat(h, 1, 1)."""
    x = g.input("x", g.random.randn(ADS, 4, 3 * HEADS).astype(np.float32))
    m = g.input("m", (g.random.randn(ADS, 4, 4) > 0).astype(np.float32))
    q = g.node("Reshape", [x, g.ints(0, 4, HEADS, 3)], x.array.reshape(ADS, 4, HEADS, 3))
    q = g.node("Transpose", [q], q.array.transpose(2, 0, 1, 3), perm=[2, 0, 1, 3])
    q = g.node("Reshape", [q, g.ints(-1, 4, 3)], q.array.reshape(-1, 4, 3))
    keys = g.node("Transpose", [q], q.array.transpose(0, 2, 1), perm=[0, 2, 1])
    mask = g.node("Tile", [m, g.ints(HEADS, 1, 1)], np.tile(m.array, (HEADS, 1, 1)))
    scores = g.binary("Add", g.node("MatMul", [q, keys], q.array @ keys.array), mask)
    mixed = g.node("MatMul", [scores, q], scores.array @ q.array)
    mixed = g.node("Reshape", [mixed, g.ints(HEADS, -1, 4, 3)],
                   mixed.array.reshape(HEADS, ADS, 4, 3))
    back = g.node("Transpose", [mixed], mixed.array.transpose(1, 2, 0, 3), perm=[1, 2, 0, 3])
    g.output(g.node("Reshape", [back, g.ints(0, 0, -1)], back.array.reshape(ADS, 4, -1)))


def rows_repeated(g, by_shape=False):
    """y.repeat_interleave(3, dim=0), exported as a Loop, beside z.view(-1, 2)."""
    y = g.input("y", g.random.randn(ADS, 2).astype(np.float32))
    z = g.input("z", g.random.randn(ADS, 3, 2).astype(np.float32))
    rows = g.node("Shape", [y], np.array([ADS, 2]))
    rows = g.node("Gather", [rows, g.ints(0)], np.array([ADS]), axis=0)
    times = g.constant(np.array(3))
    if by_shape:
        sizes = g.node("Shape", [z], np.array([ADS, 3, 2]))
        times = g.node("Gather", [sizes, g.constant(np.array(1))], np.array(3), axis=0)
    times = g.node("Expand", [times, rows], np.full(ADS, 3))
    size = g.node("Shape", [times], np.array([ADS]))
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    ones = g.node("ConstantOfShape", [size], np.ones(ADS, np.int64), value=one)
    split = [raw(g, "SplitToSequence", [v, ones], None, axis=0) for v in (times, y)]
    body = []
    for op, inputs, output in (
            ("SequenceAt", [split[0].name, "pass"], "number"),
            ("SequenceAt", [split[1].name, "pass"], "row"),
            ("Unsqueeze", ["row", g.ints(1).name], "wide"),
            ("Concat", [g.ints(1).name, "number", g.ints(2).name], "sizes"),
            ("Shape", ["sizes"], "rank"), ("ConstantOfShape", ["rank"], "all_ones"),
            ("Mul", ["all_ones", g.ints(-1).name], "kept"), ("Equal", ["sizes", "kept"], "same"),
            ("Where", ["same", "all_ones", "sizes"], "shape"),
            ("Expand", ["wide", "shape"], "wider"),
            ("Reshape", ["wider", g.ints(-1, 2).name], "part"),
            ("SequenceInsert", ["all", "part"], "more"), ("Cast", ["on"], "goes_on")):
        attributes = {"ConstantOfShape": {"value": one}, "Concat": {"axis": 0},
                      "Cast": {"to": TensorProto.BOOL}}.get(op, {})
        body.append(helper.make_node(op, inputs, [output], **attributes))
    several = helper.make_tensor_sequence_value_info
    graph = helper.make_graph(
        body, "body", [helper.make_tensor_value_info("pass", TensorProto.INT64, []),
                       helper.make_tensor_value_info("on", TensorProto.BOOL, []),
                       several("all", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
         several("more", TensorProto.FLOAT, None)])
    none = raw(g, "SequenceEmpty", [], None)
    repeated = raw(g, "Loop", [rows, g.constant(np.array(True)), none], None, body=graph)
    each = raw(g, "ConcatFromSequence", [repeated], y.array.repeat(3, 0), axis=0)
    flat = g.node("Reshape", [z, g.ints(-1, 2)], z.array.reshape(-1, 2))
    product = g.node("Mul", [each, flat], each.array * flat.array)
    g.output(g.node("Reshape", [product, g.ints(-1, 6)], product.array.reshape(ADS, 6)))


def rows_repeated_by_a_shape(g):
    """y.repeat_interleave(z.shape[1], dim=0)."""
    rows_repeated(g, True)


def mask_of_one_row(g):
    """x + tril(ones_like(x[0])), where x has rows of the request."""
    x = g.input("x", g.random.randn(ADS, 4, 4).astype(np.float32))
    x = g.node("Relu", [x], np.maximum(x.array, 0))
    first = raw(g, "Gather", [x, g.constant(np.array(0))], x.array[0], rows=None)
    size = g.node("Shape", [first], np.array([4, 4]))
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1])
    ones = g.node("ConstantOfShape", [size], np.ones((4, 4), np.float32), value=one)
    g.output(g.binary("Add", x, g.binary("Mul", ones, g.constant(np.tri(4, dtype=np.float32)))))


def user_by_ads(g):
    """(user @ ads.T).T and ads @ steps[0].T, where the user has one row."""
    def turn(v):
        return g.node("Transpose", [v], v.array.T, perm=[1, 0])
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    u = g.input("u", g.random.randn(1, 4).astype(np.float32), rows="user")
    steps = g.input("s", g.random.randn(1, 3, 4).astype(np.float32), rows="user")
    scores = g.node("MatMul", [u, turn(x)], u.array @ x.array.T)
    steps = g.pick(steps, 0, 0)
    each = g.node("MatMul", [x, turn(steps)], x.array @ steps.array.T)
    g.output(g.binary("Mul", turn(scores), each))


PATTERNS = [projections_cut_apart, heads_in_front, heads_merged_in_front, rows_repeated, rows_repeated_by_a_shape, mask_of_one_row, user_by_ads,
            heads_split_by_the_example, heads_cut_by_the_example]
REFUSED = [(heads_in_front_of_the_example, "chunk(k, dim=0)")]
