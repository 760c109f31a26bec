"""Patterns of exported models: rows and steps that a mask chooses, computes with and puts back."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
from onnx import helper

from random_graph import ADS, Value


def rows_of(g, mask):
    """What PyTorch makes of a mask that is an index."""
    places = np.argwhere(mask.array)
    at = g.node("NonZero", [mask], places.T)
    return g.node("Transpose", [at], places, perm=[1, 0])


def rows_that_a_mask_chooses(g):
    """y[m] = f(x[m]), and m once more."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    x.array[:, 0] = [0.5, -1, 2, -3, 1]
    weight = g.constant(g.random.randn(4, 4).astype(np.float32))
    keep = g.constant(np.array(0, np.float32))
    mask = g.binary("Greater", g.pick(x, 1, 0), keep)
    chosen = g.node("GatherND", [x, rows_of(g, mask)], x.array[mask.array])
    product = g.node("MatMul", [chosen, weight], chosen.array @ weight.array)
    again = g.binary("Greater", g.pick(x, 1, 0), keep)
    result = np.zeros_like(x.array)
    result[mask.array] = product.array
    zeros = g.node("ConstantOfShape", [g.node("Shape", [x], np.array([ADS, 4]))],
                   np.zeros((ADS, 4), np.float32))
    g.output(g.node("ScatterND", [zeros, rows_of(g, again), product], result, rows="ads"))


def places_of_chosen_rows(g):
    """x[m, 2] = 0.5, as PyTorch exports it; and the last step of rows without any, by 1.13."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    x.array[:, 0] = [0.5, -1, 2, -3, 1]
    ids = g.input("ids", g.random.randint(1, 9, (ADS, 6)))
    ids.array[0] = 0
    above = g.binary("Greater", g.pick(x, 1, 0), g.constant(np.array(0, np.float32)))
    padding = g.cast(g.binary("Equal", ids, g.constant(np.array(0))), "float")
    steps = g.node("ReduceSum", [padding, g.ints(1)], padding.array.sum(1), keepdims=0)
    empty = g.binary("Greater", steps, g.constant(np.array(5.5, np.float32)))
    column = g.node("Reshape", [empty, g.ints(-1, 1)], empty.array[:, None])
    for name, mask, column, place, value, base in (
            ("x", above, above, 2, 0.5, x), ("padding", empty, column, -1, 0.25, padding)):
        place = g.constant(np.array([place])).name
        value = g.constant(np.float32(value)).name
        last, made = g.ints(-1).name, set()
        for op, inputs, output, attributes in (
                ("NonZero", [column.name], "rows", {}), ("Add", ["rows", place], "grid", {}),
                ("Shape", ["grid"], "size", {}), ("Expand", ["rows", "size"], "row", {}),
                ("Unsqueeze", ["row", last], "first", {}),
                ("Expand", [place, "size"], "places", {}),
                ("Unsqueeze", ["places", last], "second", {}),
                ("Concat", ["first", "second"], "at", {"axis": -1}),
                ("Expand", [value, "size"], "value", {}),
                ("ScatterND", [base.name, "at", "value"], "out", {})):
            own = [f"{name}/{i}" if i in made else i for i in inputs]
            g.nodes.append(helper.make_node(op, own, [f"{name}/{output}"], **attributes))
            made.add(output)
        array = base.array.copy()
        array[mask.array, 2 if name == "x" else -1] = 0.5 if name == "x" else 0.25
        g.output(g.binary("Add", g.keep(Value(f"{name}/out", array, "ads")), base))


def entries_that_a_mask_chooses(g):
    """y[y < 0] *= 0.25, each entry by itself."""
    x = g.input("x", g.random.randn(ADS, 6).astype(np.float32))
    mask = g.binary("Less", x, g.constant(np.array(0, np.float32)))
    chosen = g.node("GatherND", [x, rows_of(g, mask)], x.array[mask.array])
    chosen = g.binary("Mul", chosen, g.constant(np.array([0.25], np.float32)))
    result = np.where(mask.array, x.array * 0.25, x.array)
    g.output(g.node("ScatterND", [x, rows_of(g, mask), chosen], result, rows="ads"))


def steps_that_a_mask_chooses(g):
    """y[m] = f(torch.cat([x[m], t[m].unsqueeze(1)], 1)): several entries of each step."""
    x = g.input("x", g.random.randn(ADS, 6, 3).astype(np.float32))
    t = g.input("t", g.random.randn(ADS, 6).astype(np.float32))
    weight = g.constant(g.random.randn(4, 3).astype(np.float32))
    mask = g.binary("Greater", t, g.constant(np.array(0, np.float32)))
    parts = [g.node("GatherND", [v, rows_of(g, mask)], v.array[mask.array]) for v in (x, t)]
    parts[1] = g.unsqueeze(parts[1], 1)
    both = g.node("Concat", parts, np.concatenate([p.array for p in parts], 1), axis=1)
    product = g.node("MatMul", [both, weight], both.array @ weight.array)
    result = x.array.copy()
    result[mask.array] = product.array
    g.output(g.node("ScatterND", [x, rows_of(g, mask), product], result, rows="ads"))


def rows_that_meet_others(g):
    """Less the mean of the rows that a mask chooses."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    mask = g.binary("Greater", g.pick(x, 1, 0), g.constant(np.array(0, np.float32)))
    chosen = g.node("GatherND", [x, rows_of(g, mask)], x.array[mask.array])
    mean = g.node("ReduceMean", [chosen], chosen.array.mean(0, keepdims=True), axes=[0])
    centred = g.node("Sub", [chosen, mean], chosen.array - mean.array)
    g.output(g.node("ScatterND", [x, rows_of(g, mask), centred], x.array, rows="ads"))


PATTERNS = [rows_that_a_mask_chooses, places_of_chosen_rows, entries_that_a_mask_chooses,
            steps_that_a_mask_chooses]
REFUSED = [(rows_that_meet_others, "across rows")]
