#!/usr/bin/python3
"""Random ONNX graphs, converted: every one is refused by name or gives numpy's values.

    random_onnx.py ULF_CONVERT ULF [--seed N] [--count N] [--keep DIR]

The graphs are evaluated here while they are made, in numpy, apart from what the converter proves
itself with.  Patterns that exporters write come first and must convert; then random ones, of which
only a share may be refused.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import collections
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from onnx import TensorProto, checker, helper, numpy_helper, save
except ImportError as error:
    print(f"random_onnx: {error}")
    sys.exit(77)

ADS = 5
TOLERANCE = 1e-5
# Of the random graphs; 15 % are seen.
MAX_REFUSED = 0.2
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.bool_): TensorProto.BOOL}


class Skip(Exception):
    """The value would say nothing: too large, no number, or decided by rounding."""


class Value:
    def __init__(self, name, array, rows):
        self.name, self.array, self.rows = name, array, rows  # rows: "ads", "user" or None.

    @property
    def kind(self):
        return {"f": "float", "i": "int", "b": "bool"}[self.array.dtype.kind]


class Graph:
    """A graph in the making, with the value of everything in it."""

    def __init__(self, seed, opset=13):
        self.random = np.random.RandomState(seed)
        self.opset = opset
        self.nodes, self.inputs, self.initializers, self.values, self.outputs = [], [], [], [], []
        self.arrays = {}
        self.count = 0

    def fresh(self, base="v"):
        self.count += 1
        return f"{base}{self.count}"

    def input(self, name, array, rows="ads"):
        dims = ["ads" if rows == "ads" else 1, *array.shape[1:]]
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[array.dtype], dims))
        self.arrays[name] = array
        return self.keep(Value(name, array, rows))

    def constant(self, array, base="c"):
        array = np.asarray(array, order="C")
        name = self.fresh(base)
        self.initializers.append(numpy_helper.from_array(array, name))
        return Value(name, array, None)

    def keep(self, value):
        self.values.append(value)
        return value

    def node(self, op, inputs, array, rows=None, **attributes):
        array = np.asarray(array)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        if array.dtype.kind == "f" and not (np.isfinite(array).all() and np.abs(array).max() < 1e3):
            raise Skip
        if array.dtype.kind == "i" and np.abs(array).max() > 1 << 22:
            raise Skip
        if array.size == 0 or array.ndim > 5:
            raise Skip
        name = self.fresh()
        self.nodes.append(helper.make_node(op, [i.name for i in inputs], [name], **attributes))
        if rows is None:
            kinds = [i.rows for i in inputs if i.rows]
            rows = "ads" if "ads" in kinds else (kinds or [None])[0]
        return self.keep(Value(name, array, rows))

    def output(self, value):
        if value.kind != "float":
            value = self.node("Cast", [value], value.array.astype(np.float32), to=TensorProto.FLOAT)
        # A name of its own, which no other value has.
        name = f"out{len(self.outputs)}"
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self.outputs.append((name, value))

    def save(self, path):
        infos = [helper.make_tensor_value_info(
            name, TensorProto.FLOAT, ["ads", *value.array.shape[1:]])
            for name, value in self.outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, infos, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 8 if self.opset <= 17 else 10
        if self.opset <= 17:  # What python3-onnx knows.
            checker.check_model(model)
        save(model, path)

    # --------------------------------------------------------------- steps that several ones need

    def ints(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def cast(self, x, kind):
        if kind == "int":
            if x.kind == "float":
                near = np.abs(x.array - np.round(x.array))
                if ((near > 0) & (near < 1e-3)).any():
                    raise Skip
            return self.node("Cast", [x], np.trunc(x.array).astype(np.int64), to=TensorProto.INT64)
        if kind == "bool":
            return self.node("Cast", [x], x.array != 0, to=TensorProto.BOOL)
        return self.node("Cast", [x], x.array.astype(np.float32), to=TensorProto.FLOAT)

    def slice(self, x, axis, begin, end, step=1):
        cut = [slice(None)] * x.array.ndim
        cut[axis] = slice(begin, end, step)
        if begin == 0 and end >= x.array.shape[axis] and self.random.randint(2):
            end = (1 << 63) - 1
        return self.node("Slice", [x, self.ints(begin), self.ints(end), self.ints(axis),
                                   self.ints(step)], x.array[tuple(cut)])

    def pick(self, x, axis, index):
        scalar = self.constant(np.array(index, np.int64))
        return self.node("Gather", [x, scalar], np.take(x.array, index, axis), axis=axis)

    def look_up(self, table, ids):
        if ids.array.min() < 0 or ids.array.max() >= len(table.array):
            raise Skip
        return self.node("Gather", [table, ids], table.array[ids.array], rows=ids.rows)

    def binary(self, op, a, b):
        x, y = a.array, b.array
        integers = a.kind == "int"
        if op in ("Equal", "Greater", "Less") and not integers:
            near = np.abs(x - y)
            if ((near > 0) & (near < 1e-3)).any() or (a.rows and b.rows and (near == 0).any()):
                raise Skip
        if op in ("Div", "Mod"):
            if (np.abs(y) < (1 if integers else 0.1)).any():
                raise Skip
        result = {
            "Add": lambda: x + y, "Sub": lambda: x - y, "Mul": lambda: x * y,
            "Div": lambda: np.trunc(x / y).astype(np.int64) if integers else x / y,
            "Mod": lambda: np.mod(x, y), "Min": lambda: np.minimum(x, y),
            "Max": lambda: np.maximum(x, y), "Equal": lambda: x == y, "Greater": lambda: x > y,
            "Less": lambda: x < y, "GreaterOrEqual": lambda: x >= y, "LessOrEqual": lambda: x <= y,
            "And": lambda: x & y, "Or": lambda: x | y, "Xor": lambda: x ^ y}[op]()
        return self.node(op, [a, b], result)


# ------------------------------------------------------------------------ patterns of exporters

def matrix(g, ids, numbers, kind=np.float32):
    """One matrix for all features: `ids` columns of ids, then `numbers` columns."""
    columns = [g.random.randint(0, 7, (ADS, ids)), g.random.randn(ADS, numbers) * 3]
    return g.input("X", np.concatenate(columns, 1).astype(kind))


def embed(g, x, first, last, width=3):
    ids = g.cast(g.slice(x, 1, first, last), "int")
    return g.look_up(g.constant(g.random.randn(7, width).astype(np.float32), "table"), ids)


def one_matrix(g, kind=np.float32):
    """DeepCTR-Torch: X[:, i:i+1].long() into tables, X[:, a:b] as numbers."""
    x = matrix(g, 3, 2, kind)
    parts = [embed(g, x, i, i + 1) for i in range(3)]
    joined = g.node("Concat", parts, np.concatenate([p.array for p in parts], 1), axis=1)
    flat = g.node("Flatten", [joined], joined.array.reshape(ADS, -1), axis=1)
    dense = g.cast(g.slice(x, 1, 3, 5), "float")
    g.output(g.node("Concat", [flat, dense], np.concatenate([flat.array, dense.array], 1), axis=1))


def one_integer_matrix(g):
    one_matrix(g, np.int64)


def column_as_id_and_number(g):
    x = matrix(g, 2, 1)
    x.array[:, 0] += 0.25  # .long() cuts; the number keeps it.
    g.output(embed(g, x, 0, 1))
    total = x.array.sum(1)
    g.output(g.node("ReduceSum", [x, g.ints(1)], total, keepdims=0))


def sequence_in_a_matrix(g):
    x = matrix(g, 6, 2)
    x.array[:, 4:6] = 0
    keys = embed(g, x, 2, 6)
    ids = g.cast(g.slice(x, 1, 2, 6), "int")
    mask = g.cast(g.node("Not", [g.binary("Equal", ids, g.constant(np.array(0, np.int64)))],
                         ids.array != 0), "float")
    mask = g.node("Unsqueeze", [mask, g.ints(2)], mask.array[:, :, None])
    kept = g.binary("Mul", keys, mask)
    g.output(g.node("ReduceSum", [kept, g.ints(1)], kept.array.sum(1), keepdims=0))
    g.output(g.slice(x, 1, 6, 8))


def whole_matrix_cast_first(g):
    x = g.cast(matrix(g, 2, 3), "int")
    table = g.constant(g.random.randn(7, 3).astype(np.float32))
    g.output(g.look_up(table, g.pick(x, 1, 0)))
    g.output(g.look_up(table, g.pick(x, 1, 1)))
    g.output(g.cast(g.slice(x, 1, 2, 5), "float"))


def every_other_column(g):
    x = matrix(g, 6, 1)
    ids = g.cast(g.slice(x, 1, 0, 6, 2), "int")
    g.output(g.look_up(g.constant(g.random.randn(7, 2).astype(np.float32)), ids))
    g.output(g.slice(x, 1, 1, 7, 2))


def split_matrix(g):
    x = matrix(g, 2, 2)
    name = [g.fresh("part") for _ in range(2)]
    g.nodes.append(helper.make_node("Split", [x.name], name, axis=1))
    ids, dense = (g.keep(Value(n, a, "ads")) for n, a in zip(name, np.split(x.array, 2, 1)))
    ids = g.cast(ids, "int")
    g.output(g.look_up(g.constant(g.random.randn(7, 2).astype(np.float32)), ids))
    g.output(dense)


def user_matrix(g):
    u = g.input("u", np.array([[3, 5, 0.5, -2.5]], np.float32), "user")
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    key = g.look_up(g.constant(g.random.randn(7, 3).astype(np.float32)),
                    g.cast(g.pick(u, 1, 1), "int"))
    g.output(g.binary("Mul", x, key))
    g.output(g.binary("Add", x, g.slice(u, 1, 2, 3)))


def cast_truncates(g):
    x = g.input("x", (g.random.randn(ADS, 6) * 5 + 0.37).round(2).astype(np.float32))
    x.array[:, 0] = [-0.5, 0.5, -1.5, 999, -998.5]
    ten = g.binary("Mul", g.slice(x, 1, 1, 6), g.constant(np.array([10], np.float32)))
    g.output(g.cast(g.slice(x, 1, 0, 1), "int"))
    g.output(g.cast(ten, "int"))
    small = g.slice(x, 1, 1, 6)
    whole = g.cast(small, "int")
    g.output(g.binary("Sub", small, g.cast(whole, "float")))
    g.output(g.binary("Equal", whole, g.constant(np.array(1, np.int64))))


def integer_arithmetic(g):
    x = g.cast(g.input("x", np.round(g.random.randn(ADS, 8) * 40).astype(np.float32)), "int")
    for by in (7, -3, 1, 10):
        by = g.constant(np.array([by], np.int64))
        for op in ("Div", "Mod"):
            g.output(g.binary(op, x, by))


def integers_compared(g):
    x = g.input("day", g.random.randint(-3, 4, (ADS, 2)) + (g.random.randint(0, 2, (ADS, 2)) << 33))
    for op in ("Equal", "Less", "Greater"):
        g.output(g.binary(op, x, g.constant(np.array(2, np.int64))))
    g.output(g.cast(x, "bool"))


def dropout_off(g):
    x = g.input("x", g.random.randn(ADS, 2).astype(np.float32))
    off = g.constant(np.array(False)), g.constant(np.array(0.5, np.float32))
    g.output(g.node("Dropout", [x, off[1], off[0]], x.array))


def fields_of_one_table(g):
    """Offsets, and a factor, before a table that fields share."""
    ids = g.input("I", g.random.randint(0, 5, (ADS, 3)))
    table = g.constant(g.random.randn(17, 2).astype(np.float32))
    moved = g.binary("Add", ids, g.constant(np.array([[0, 5, 12]])))
    g.output(g.look_up(table, moved))
    twice = g.binary("Mul", ids, g.constant(np.array(2)))
    g.output(g.look_up(table, g.binary("Sub", twice, g.constant(np.array([0, 0, -1])))))
    g.output(g.binary("Equal", moved, g.constant(np.array(5))))


def fields_of_several_inputs(g):
    """Columns of inputs side by side, with offsets, into one table; the user's among them."""
    u = g.input("u", g.random.randint(0, 5, (1, 1)), "user")
    a = g.input("a", g.random.randint(0, 7, (ADS, 2)))
    b = g.input("b", g.random.randint(0, 5, (ADS,)))
    wide = g.node("Expand", [u, g.node("Shape", [a], np.array([ADS, 2]))],
                  np.broadcast_to(u.array, (ADS, 2)), rows="ads")
    wide = g.slice(wide, 1, 0, 1)
    b = g.node("Unsqueeze", [b, g.ints(1)], b.array[:, None])
    ids = g.node("Concat", [wide, a, b], np.concatenate([wide.array, a.array, b.array], 1), axis=1)
    ids = g.binary("Add", ids, g.constant(np.array([0, 5, 12, 19])))
    g.output(g.look_up(g.constant(g.random.randn(24, 3).astype(np.float32)), ids))


def masks_of_ids(g):
    """What is computed from ids alone, in several steps that meet again."""
    ids = g.input("I", g.random.randint(0, 9, (ADS, 4)))
    g.output(g.look_up(g.constant(g.random.randn(9, 2).astype(np.float32)), ids))
    zero, top = g.constant(np.array(0)), g.constant(np.array(6))
    some = g.node("Not", [g.binary("Equal", ids, zero)], ids.array != 0)
    few = g.binary("Less", ids, top)
    g.output(g.node("And", [some, few], some.array & few.array))
    kept = g.node("Where", [some, ids, g.constant(np.array(3))], np.where(some.array, ids.array, 3))
    g.output(g.node("Clip", [kept, g.constant(np.array(2)), top], kept.array.clip(2, 6)))
    g.output(g.binary("Mul", g.cast(some, "float"), g.constant(np.array(-1e2, np.float32))))


def classes_of_items(g):
    """An item's classes out of a table of integers, each with an embedding; tables of matrices."""
    ids = g.input("I", g.random.randint(0, 9, (ADS, 2)))
    classes = g.look_up(g.constant(g.random.randint(0, 6, (9, 4))), ids)
    g.output(classes)
    g.output(g.look_up(g.constant(g.random.randn(6, 3).astype(np.float32)), classes))
    g.output(g.look_up(g.constant(g.random.randn(9, 2, 3).astype(np.float32)), ids))


def last_step_of_a_length(g):
    """SASRec and its kin: the state at length - 1, an input."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    length = g.input("length", g.random.randint(1, 5, ADS))
    at = g.binary("Sub", length, g.constant(np.array(1)))
    at = g.node("Reshape", [at, g.ints(-1, 1, 1)], at.array.reshape(-1, 1, 1))
    at = g.node("Expand", [at, g.ints(1, 1, 3)], np.broadcast_to(at.array, (ADS, 1, 3)))
    last = g.node("GatherElements", [x, at], np.take_along_axis(x.array, at.array, 1), axis=1)
    g.output(g.node("Squeeze", [last, g.ints(1)], last.array[:, 0]))
    within = g.binary("Greater", g.binary("Add", length, g.constant(np.array(2))),
                      g.constant(np.array(4)))
    g.output(within)


def column_replaced(g):
    """x[:, 2] = y and x[:, 0] = 0, as PyTorch exports them."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    y = g.input("y", g.random.randn(ADS).astype(np.float32))
    rows = g.node("Shape", [x], np.array([ADS, 4]))
    rows = g.node("Gather", [rows, g.constant(np.array(0))], np.array(ADS), axis=0)
    rows = g.node("Range", [g.constant(np.array(0)), rows, g.constant(np.array(1))], np.arange(ADS))
    rows = g.node("Reshape", [rows, g.ints(-1, 1)], np.arange(ADS)[:, None])
    shape = g.node("Shape", [rows], np.array([ADS, 1]))
    for place, value in ((2, y), (0, None)):
        beside = g.node("Expand", [g.constant(np.array(place)), shape], np.full((ADS, 1), place))
        pairs = [g.node("Unsqueeze", [i, g.ints(-1)], i.array[..., None]) for i in (rows, beside)]
        at = g.node("Concat", pairs, np.concatenate([p.array for p in pairs], -1), axis=-1)
        if value is None:
            value = g.node("Expand", [g.constant(np.array(0, np.float32)), shape],
                           np.zeros((ADS, 1), np.float32))
        else:
            value = g.node("Unsqueeze", [value, g.ints(1)], value.array[:, None])
        array = x.array.copy()
        array[:, place] = value.array[:, 0]
        x = g.node("ScatterND", [x, at, value], array)
    g.output(x)


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
    g.output(g.keep(Value("y", x.array[:, :, 0], "ads")))


def masked_select(g):
    x = g.input("x", g.random.randn(ADS, 3, 3).astype(np.float32))
    mask = g.constant(np.triu(np.ones((3, 3), bool), 1))
    g.nodes.append(helper.make_node("Shape", [x.name], ["shape"]))
    g.nodes.append(helper.make_node("Expand", [mask.name, "shape"], ["wide"]))
    g.nodes.append(helper.make_node("NonZero", ["wide"], ["at"]))
    g.nodes.append(helper.make_node("Transpose", ["at"], ["places"], perm=[1, 0]))
    g.nodes.append(helper.make_node("GatherND", [x.name, "places"], ["chosen"]))
    chosen = g.keep(Value("chosen", x.array[:, mask.array].reshape(-1), "ads"))
    g.output(g.node("Reshape", [chosen, g.ints(-1, 3)], chosen.array.reshape(-1, 3)))


def merged_heads(g):
    """nn.MultiheadAttention: rows on axis 1, then beside the heads."""
    x = g.input("x", g.random.randn(ADS, 4, 6).astype(np.float32))
    turned = g.node("Transpose", [x], x.array.transpose(1, 0, 2), perm=[1, 0, 2])
    weight = g.constant((0.3 * g.random.randn(6, 18)).astype(np.float32))
    joined = g.node("MatMul", [turned, weight], turned.array @ weight.array)
    parts = []
    for i in range(3):
        part = g.slice(joined, 2, 6 * i, 6 * i + 6)
        heads = g.node("Reshape", [part, g.ints(4, -1, 3)], part.array.reshape(4, -1, 3))
        parts.append(g.node("Transpose", [heads], heads.array.transpose(1, 0, 2), perm=[1, 0, 2]))
    keys = g.node("Transpose", [parts[1]], parts[1].array.transpose(0, 2, 1), perm=[0, 2, 1])
    scores = g.node("MatMul", [parts[0], keys], parts[0].array @ keys.array)
    e = np.exp(scores.array.astype(float) - scores.array.max(-1, keepdims=True))
    weights = g.node("Softmax", [scores], e / e.sum(-1, keepdims=True), axis=-1)
    mixed = g.node("MatMul", [weights, parts[2]], weights.array @ parts[2].array)
    back = g.node("Transpose", [mixed], mixed.array.transpose(1, 0, 2), perm=[1, 0, 2])
    rows = g.node("Reshape", [back, g.ints(4, -1, 6)], back.array.reshape(4, -1, 6))
    g.output(g.node("Transpose", [rows], rows.array.transpose(1, 0, 2), perm=[1, 0, 2]))


def logistic(a):
    return 1 / (1 + np.exp(-a))


def recurrent(g, op, directions, linear, packed):
    """[rows, steps, k] through LSTM, GRU or RNN, in float64; packed: of rows as long as they say."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    turned = g.node("Transpose", [x], x.array.transpose(1, 0, 2), perm=[1, 0, 2])
    n, gates = 2, {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    w, r, b = (g.random.randn(*shape).astype(np.float32) for shape in (
        (directions, gates * n, 3), (directions, gates * n, n), (directions, 2 * gates * n)))
    every, last = np.zeros((4, directions, ADS, n)), np.zeros((directions, ADS, n))
    lengths = g.input("length", g.random.randint(1, 5, ADS).astype(np.float32)) if packed else None
    for d in range(directions):
        h, c = np.zeros((ADS, n)), np.zeros((ADS, n))
        for t in range(4)[::-1 if d else 1]:
            before = h, c
            a = turned.array[t].astype(float) @ w[d].T + b[d][:gates * n]
            s, rb = h @ r[d].T, b[d][gates * n:]
            if op == "RNN":
                h = np.tanh(a + s + rb)
            elif op == "LSTM":
                i, o, f, k = np.split(a + s + rb, 4, 1)
                c = logistic(f) * c + logistic(i) * np.tanh(k)
                h = logistic(o) * np.tanh(c)
            else:
                z, q = (logistic(v) for v in np.split((a + s + rb)[:, :2 * n], 2, 1))
                inner = q * (s + rb)[:, 2 * n:] if linear else (
                    (q * h) @ r[d][2 * n:].T + rb[2 * n:])
                h = (1 - z) * np.tanh(a[:, 2 * n:] + inner) + z * h
            if packed:
                within = (lengths.array > t)[:, None]
                h, c = np.where(within, h, before[0]), np.where(within, c, before[1])
            every[t, d] = h * within if packed else h
        last[d] = h
    attributes = {"linear_before_reset": linear} if op == "GRU" else {}
    steps = [g.node("Cast", [lengths], lengths.array.astype(np.int32),
                    to=TensorProto.INT32).name] if packed else []
    g.nodes.append(helper.make_node(
        op, [turned.name, *(g.constant(v).name for v in (w, r, b)), *steps], ["all", "last"],
        hidden_size=n,
        direction="bidirectional" if directions == 2 else "forward", **attributes))
    for name, array in (("all", every), ("last", last)):
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


def einsum_of_three(g):
    """The outer product of product-based networks: what a pair of fields has, by a kernel each."""
    p, q = (g.input(n, g.random.randn(ADS, 3, 4).astype(np.float32)) for n in "pq")
    kernel = g.constant(g.random.randn(3, 4, 4).astype(np.float32))
    g.output(g.node("Einsum", [p, kernel, q],
                    np.einsum("bpi,pij,bpj->bp", p.array, kernel.array, q.array), rows="ads",
                    equation="bpi,pij,bpj->bp"))


def sines_of_large_numbers(g):
    """Up to 2^48, by the sign and around multiples of the number that divides small from large."""
    size = 10 ** g.random.uniform(3, 14.4, (ADS, 40)) * g.random.choice([-1, 1], (ADS, 40))
    x = g.input("x", size.astype(np.float32))
    exact = x.array.astype(np.float64)
    g.output(g.node("Sin", [x], np.sin(exact)))
    g.output(g.node("Cos", [x], np.cos(exact)))


def sums_across_rows(g):
    """A list's statistics beside every ad's own: scored whole."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    mean = g.node("ReduceMean", [x], x.array.mean(0, keepdims=True), axes=[0], keepdims=1)
    centred = g.node("Sub", [x, mean], x.array - mean.array)
    e = np.exp(x.array - x.array.max(0))
    share = g.node("Softmax", [x], e / e.sum(0), axis=0)
    square = g.node("ReduceSumSquare", [centred], (centred.array ** 2).sum(0), axes=[0], keepdims=0)
    g.output(g.node("Add", [share, square], share.array + square.array, rows="ads"))


PATTERNS = [one_matrix, one_integer_matrix, column_as_id_and_number, sequence_in_a_matrix,
            whole_matrix_cast_first, every_other_column, split_matrix, user_matrix, cast_truncates,
            integer_arithmetic, integers_compared, dropout_off, fields_of_one_table,
            fields_of_several_inputs, masks_of_ids, classes_of_items, last_step_of_a_length,
            column_replaced, einsum_with_diagonals, arithmetic_of_constants, branch_by_shape,
            masked_select,
            merged_heads, einsum_of_three, sines_of_large_numbers, sums_across_rows,
            *recurrent_patterns()]


# ---------------------------------------------------------------- patterns that are refused by name

def timestamps_subtracted(g):
    a = g.input("now", np.full((ADS, 1), 1_700_000_001) + g.random.randint(0, 50, (ADS, 1)))
    b = g.input("then", np.full((ADS, 1), 1_700_000_000))
    g.nodes.append(helper.make_node("Sub", [a.name, b.name], ["d"]))
    g.output(g.cast(g.keep(Value("d", a.array - b.array, "ads")), "float"))


def dropout_on(g):
    x = g.input("x", g.random.randn(ADS, 2).astype(np.float32))
    on = g.constant(np.array(True)), g.constant(np.array(0.5, np.float32))
    g.output(g.node("Dropout", [x, on[1], on[0]], x.array))


REFUSED = [(timestamps_subtracted, "--small_integers=now"), (dropout_on, "training_mode")]


# ------------------------------------------------------------------------------------ random steps

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
    if x.array.ndim < 2 or x.array.shape[-1] % 2:
        raise Skip
    names = [g.fresh("part"), g.fresh("part")]
    g.nodes.append(helper.make_node("Split", [x.name], names, axis=x.array.ndim - 1))
    return [g.keep(Value(n, a, x.rows)) for n, a in zip(names, np.split(x.array, 2, -1))][0]


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
    return g.node("Concat", [x, other], np.concatenate([x.array, other.array], axis), axis=axis)


def reshape(g, x):
    shape = x.array.shape
    kind = g.random.randint(5)
    if kind == 0 and len(shape) > 1:
        return g.node("Flatten", [x], x.array.reshape(shape[0], -1), axis=1)
    if kind == 1:
        axis = g.random.randint(1, len(shape) + 1)
        return g.node("Unsqueeze", [x, g.ints(axis)], np.expand_dims(x.array, axis))
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
    return g.node("Squeeze", [x, g.ints(axes[0])], np.squeeze(x.array, axes[0]))


def reduce(g, x):
    if x.kind == "bool" or x.array.ndim < 2:
        raise Skip
    axis, keep = g.random.randint(1, x.array.ndim), int(g.random.randint(2))
    if x.kind == "int" or g.random.randint(3) == 0:
        return g.node("ReduceSum", [x, g.ints(axis)], x.array.sum(axis, keepdims=bool(keep)),
                      keepdims=keep)
    if g.random.randint(2):
        op = ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceSumSquare"][g.random.randint(7)]
        a = x.array.astype(float)
        result = {"ReduceMean": a.mean, "ReduceMax": a.max, "ReduceMin": a.min,
                  "ReduceProd": a.prod, "ReduceL1": np.abs(a).sum,
                  "ReduceL2": lambda *d, **k: np.sqrt((a * a).sum(*d, **k)),
                  "ReduceSumSquare": (a * a).sum}[op](axis, keepdims=bool(keep))
        if g.opset >= 18:
            return g.node(op, [x, g.ints(axis)], result, keepdims=keep)
        return g.node(op, [x], result, axes=[int(axis)], keepdims=keep)
    if g.random.randint(3) == 0:
        shifted = x.array.astype(float) - x.array.max(axis, keepdims=True)
        return g.node("LogSoftmax", [x],
                      shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)), axis=int(axis))
    e = np.exp(x.array.astype(float) - x.array.max(axis, keepdims=True))
    return g.node("Softmax", [x], e / e.sum(axis, keepdims=True), axis=int(axis))


def product(g, x):
    if x.kind != "float" or x.array.ndim < 2:
        raise Skip
    if x.array.ndim == 3 and g.random.randint(2):
        turned = g.node("Transpose", [x], x.array.transpose(0, 2, 1), perm=[0, 2, 1])
        return g.node("MatMul", [x, turned], np.matmul(x.array, turned.array))
    weight = g.random.randn(x.array.shape[-1], g.random.randint(1, 5))
    weight = g.constant(weight.astype(np.float32))
    if x.array.ndim == 2 and g.random.randint(2):
        bias = g.constant(g.random.randn(weight.array.shape[1]).astype(np.float32))
        return g.node("Gemm", [x, weight, bias], x.array @ weight.array + bias.array)
    return g.node("MatMul", [x, weight], x.array @ weight.array)


def einsum(g, x):
    """Of two values with a row per ad, or with constants."""
    equations = {(2, 2): ["bi,bj->bij", "bi,ij->bj", "bi,ji->bj", "bi,bi->bi", "bi,bi->b"],
                 (3, 2): ["bij,jk->bik", "bij,kj->bik", "bij,bj->bi", "bij,bi->bij", "bij,ik->bjk"],
                 (3, 3): ["bij,bkj->bik", "bij,bjk->bik", "bij,bkj->bikj", "bij,bik->bijk",
                          "bij,bkj->bki", "bij,bik->bjk", "bij,bij->bi"]}
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


def apart(a, axis):
    """Whether no two entries of a line are so near that rounding decides which is larger."""
    return a.shape[axis] < 2 or (np.diff(np.sort(a.astype(float), axis), axis=axis) > 1e-3).all()


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
        [choice] * 2 + [along] * 2


def random_graph(seed):
    g = Graph(seed, (13, 14, 17, 18, 20, 21)[seed % 6])
    ids = lambda *shape: g.random.randint(0, 7, shape)  # noqa: E731
    kinds = [lambda: g.input("x", g.random.randn(ADS, 4).astype(np.float32)),
             lambda: g.input("m", g.random.randn(ADS, 2, 4).astype(np.float32)),
             lambda: matrix(g, g.random.randint(1, 4), g.random.randint(0, 3)),
             lambda: g.input("I", ids(ADS, 4)),
             lambda: g.input("h", ids(1, 4), "user"),
             lambda: g.input("u", g.random.randn(1, 4).astype(np.float32), "user")]
    for i in sorted(g.random.permutation(len(kinds))[:g.random.randint(1, 4)]):
        kinds[i]()
    if all(v.rows != "ads" for v in g.values):
        kinds[0]()
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


# ------------------------------------------------------------------------------------------ running

class Runner:
    def __init__(self, convert, ulf, work):
        self.convert, self.ulf, self.work = convert, ulf, work

    def run(self, g):
        """("ok" | "refused" | "wrong", text)"""
        model, out = os.path.join(self.work, "m.onnx"), os.path.join(self.work, "out")
        shutil.rmtree(out, ignore_errors=True)
        g.save(model)
        done = subprocess.run([self.convert, "onnx", model, out + "/1"], capture_output=True,
                              text=True, timeout=300, check=False)
        if done.returncode != 0:
            named = done.returncode == 1 and "m.onnx" in done.stderr
            return "refused" if named else "wrong", done.stderr
        np.savez(os.path.join(self.work, "in.npz"), **self.bind(g, done.stdout))
        scored = subprocess.run(
            [self.ulf, "score", out + "/1", f"--inputs={self.work}/in.npz",
             f"--outputs={self.work}/out.npz"], capture_output=True, text=True, check=False)
        if scored.returncode != 0:
            return "wrong", scored.stderr
        with np.load(os.path.join(self.work, "out.npz")) as found:
            for name, value in g.outputs:
                wanted, got = value.array.astype(np.float64), found[name].astype(np.float64)
                if got.shape != wanted.shape and got.shape[1:] != wanted.shape[1:]:
                    return "wrong", f"{name}: shape {got.shape}, want {wanted.shape}"
                error = np.abs(got - wanted) / np.maximum(1, np.abs(wanted))
                if not error.max() <= TOLERANCE:
                    return "wrong", f"{name}: differs by {error.max()}\n{got}\n{wanted}"
        return "ok", done.stdout

    @staticmethod
    def bind(g, report):
        """The request's arrays, by what the report says of each input."""
        arrays = {}
        sides = re.findall(r"(?ms)^inputs of the (user|ads)[^\n]*\n(.*?)\n\n", report)
        for side, line in [(side, line) for side, text in sides for line in text.splitlines()]:
            name = re.match(r"\s*([^\s:]+)", line).group(1)
            of = re.search(r', columns? ([\d, to]+) of "(.*)"$', line)
            whole = g.arrays[of.group(2) if of else name.removesuffix("_values")]
            whole = whole[:1] if side == "user" else whole
            flat = whole.reshape(len(whole), -1)
            if of and " to " in of.group(1):
                first, last = map(int, of.group(1).split(" to "))
                flat = flat[:, first:last + 1]
            elif of:
                flat = flat[:, [int(i) for i in of.group(1).split(", ")]]
            if "looked up in" in line:
                arrays[name + ".ids"] = np.trunc(flat).astype(np.int64).ravel()
                arrays[name + ".values"] = np.ones(flat.size, np.float32)
                arrays[name + ".segments"] = np.full(len(flat), flat.shape[1], np.int32)
            else:
                arrays[name] = (flat if of else whole).astype(np.float32)
        return arrays


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("convert")
    parser.add_argument("ulf")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--keep", help="folder for models that are converted wrong")
    args = parser.parse_args()
    counts, reasons, failures = collections.Counter(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as work:
        runner = Runner(args.convert, args.ulf, work)
        for pattern in PATTERNS:
            for seed in range(3):
                g = Graph(seed)
                pattern(g)
                verdict, text = runner.run(g)
                if verdict != "ok":
                    failures += 1
                    print(f"{pattern.__name__} {seed}: {verdict}: {text}")
        for pattern, reason in REFUSED:
            g = Graph(1)
            pattern(g)
            verdict, text = runner.run(g)
            if verdict != "refused" or reason not in text:
                failures += 1
                print(f"{pattern.__name__}: {verdict}: {text}")
        for seed in range(args.seed, args.seed + args.count):
            verdict, text = runner.run(random_graph(seed))
            counts[verdict] += 1
            if verdict == "wrong":
                failures += 1
                print(f"seed {seed}: {text}")
                if args.keep:
                    shutil.copy(os.path.join(work, "m.onnx"), f"{args.keep}/{seed}.onnx")
            if verdict == "refused":
                reasons[re.sub(r'"[^"]*"|\[[^\]]*\]', "*", text.strip().split("\n")[-1])[:120]] += 1
    for reason, count in reasons.most_common(12):
        print(f"refused {count}: {reason}")
    print(f"random graphs: {dict(counts)}")
    if counts["refused"] > MAX_REFUSED * args.count:
        print(f"more than {MAX_REFUSED:.0%} are refused")
        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
