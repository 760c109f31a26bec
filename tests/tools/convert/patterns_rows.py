"""Patterns that choose, replace, sort or sum rows, steps and columns."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from random_graph import ADS, Value, raw, squeezed_if


def no_columns_assigned(g):
    """x[:, :0] = 0.5, as PyTorch exports it."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    zero, one, half = (g.constant(v).name for v in (np.array(0), np.array(1), np.float32(0.5)))
    none = g.constant(np.zeros(0, np.int64)).name
    column, last = g.ints(-1, 1).name, g.ints(-1).name
    for op, inputs, output, attributes in (
            ("Shape", [x.name], "shape", {}), ("Gather", ["shape", zero], "count", {}),
            ("Range", [zero, "count", one], "numbers", {}),
            ("Reshape", ["numbers", column], "rows", {}), ("Add", ["rows", none], "grid", {}),
            ("Shape", ["grid"], "size", {}), ("Expand", ["rows", "size"], "row", {}),
            ("Expand", [none, "size"], "place", {}), ("Unsqueeze", ["row", last], "first", {}),
            ("Unsqueeze", ["place", last], "second", {}),
            ("Concat", ["first", "second"], "at", {"axis": -1}),
            ("Expand", [half, "size"], "value", {}),
            ("ScatterND", [x.name, "at", "value"], "same", {})):
        g.nodes.append(helper.make_node(op, inputs, [output], **attributes))
    same = g.keep(Value("same", x.array, "ads"))
    g.output(g.binary("Mul", same, g.constant(np.array(2, np.float32))))


def rows_that_squeeze_drops(g):
    """Experts' sums by squeeze(), which takes a row that is alone, too; a product and a sum stay."""
    x = g.input("x", g.random.randn(ADS, 1, 4).astype(np.float32))
    flat = g.node("Squeeze", [x], x.array[:, 0])
    weights = g.constant(g.random.randn(4, 3).astype(np.float32))
    g.output(g.node("MatMul", [flat, weights], flat.array @ weights.array))
    g.output(g.node("ReduceSum", [flat, g.ints(-1)], flat.array.sum(1, keepdims=True), keepdims=1))


def example_without_dynamic_axes(g):
    """Exported without dynamic axes: sizes, a row of constants and a state of as many rows."""
    g.rows = ADS
    x, y = (g.input(n, g.random.randn(ADS, 12).astype(np.float32)) for n in "xy")
    steps = g.node("Reshape", [x, g.ints(ADS, 3, 4)], x.array.reshape(ADS, 3, 4))
    first = g.constant(np.repeat(g.random.randn(1, 1, 4).astype(np.float32), ADS, 0))
    steps = g.node("Concat", [first, steps], np.concatenate([first.array, steps.array], 1), axis=1)
    place = g.constant(np.repeat(g.random.randn(1, 4, 4).astype(np.float32), ADS, 0))
    steps = g.node("Add", [steps, place], steps.array + place.array)
    merged = g.node("Reshape", [steps, g.ints(ADS * 4, 4)], steps.array.reshape(-1, 4))
    weight = g.constant(g.random.randn(4, 2).astype(np.float32))
    product = g.node("MatMul", [merged, weight], merged.array @ weight.array)
    flat = g.node("Reshape", [product, g.ints(ADS, -1)], product.array.reshape(ADS, -1))
    column = g.node("Reshape", [y, g.ints(ADS, 1, 12)], y.array[:, None])
    wide = g.node("Expand", [column, g.ints(ADS, 8, 12)], np.repeat(column.array, 8, 1))
    g.output(g.node("MatMul", [flat, wide], flat.array @ wide.array))
    behind = g.node("Transpose", [steps], steps.array.transpose(1, 0, 2), perm=[1, 0, 2])
    heads = behind.array.reshape(4, ADS * 2, 2)
    heads = g.node("Reshape", [behind, g.ints(4, ADS * 2, 2)], heads)
    heads = g.node("Transpose", [heads], heads.array.transpose(1, 0, 2), perm=[1, 0, 2])
    heads = g.node("ReduceMax", [heads], heads.array.max(1), axes=[1], keepdims=0)
    g.output(g.node("Reshape", [heads, g.ints(ADS, 4)], heads.array.reshape(ADS, 4)))


def parts_of_nothing(g):
    """Parts without steps among those that are joined: a sequence, and what it is filled up with
    for each row of the example, cut where it is full."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    fill = g.constant(g.random.randn(1, 4, 3).astype(np.float32))
    fill = raw(g, "Tile", [fill, g.ints(ADS, 1, 1)], np.tile(fill.array, (ADS, 1, 1)))
    cuts = [raw(g, "Slice", [of, g.ints(4), g.ints(9), g.ints(1)], of.array[:, 4:])
            for of in (x, fill)]
    for parts in ([cuts[0], x], [x, cuts[1]], [x, *cuts, x]):
        joined = np.concatenate([part.array for part in parts], 1)
        g.output(g.node("Concat", parts, joined, axis=1))


def steps_in_front(g):
    """Inputs [steps, ads] and [steps, ads, n], as recurrent layers of PyTorch have them."""
    ids = g.steps_first("ids", g.random.randint(0, 7, (3, ADS)))
    values = g.steps_first("values", g.random.randn(3, ADS, 2).astype(np.float32))
    rows = g.look_up(g.constant(g.random.randn(7, 2).astype(np.float32)), ids)
    both = g.node("Mul", [rows, values], rows.array * values.array)
    g.output(g.node("ReduceMax", [both], both.array.max(0), axes=[0], keepdims=0))


def places_of_the_rows(g):
    """Embeddings of places in a list: table[arange(len(x))], of the next place, table[:len(x)], of
    a cumulative sum of ones, and 1 / log2(arange(len(x)) + 2)."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    table = g.constant(g.random.randn(20, 3).astype(np.float32))
    count = g.pick(g.node("Shape", [x], np.array([ADS, 3])), 0, 0)
    numbers = g.node("Range", [g.constant(np.array(0)), count, g.constant(np.array(1))],
                     np.arange(ADS), rows="ads")
    for shift in (0, 1):
        at = g.node("Add", [numbers, g.ints(shift)], numbers.array + shift) if shift else numbers
        g.output(g.binary("Mul", x, g.look_up(table, at)))
    ends = g.node("Unsqueeze", [count, g.ints(0)], np.array([ADS]))
    first = raw(g, "Slice", [table, g.ints(0), ends, g.ints(0)], table.array[:ADS])
    first.rows = "ads"
    g.output(g.binary("Add", x, first))
    column = g.slice(x, 1, 0, 1)
    ones = g.cast(g.node("Equal", [column, column], column.array == column.array), "float")
    sums = g.node("CumSum", [ones, g.constant(np.array(0))], ones.array.cumsum(0))
    g.output(g.binary("Mul", x, sums))
    floats = g.node("Add", [g.cast(numbers, "float"), g.constant(np.float32([2]))],
                    (numbers.array + 2).astype(np.float32))
    logs = g.node("Log", [floats], np.log(floats.array))
    g.output(g.binary("Mul", x, g.unsqueeze(logs, 1)))


def ads_after_others(g):
    """torch.tril(x @ x.t()) @ x: each ad sees those before it."""
    g.opset = 14
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    turned = g.node("Transpose", [x], x.array.T, perm=[1, 0])
    scores = g.node("MatMul", [x, turned], x.array @ x.array.T)
    seen = g.node("Trilu", [scores], np.tril(scores.array), upper=0)
    g.output(g.node("MatMul", [seen, x], seen.array @ x.array))


def ids_of_nothing(g):
    """No ids beside some, which are looked up together."""
    ids = g.input("ids", g.random.randint(0, 7, (ADS, 3)))
    none = raw(g, "Slice", [ids, g.ints(2), g.ints(2), g.ints(1)], ids.array[:, 2:2])
    both = g.node("Concat", [none, ids], ids.array, axis=1)
    g.output(g.look_up(g.constant(g.random.randn(7, 2).astype(np.float32)), both))


def norm_of_nothing(g):
    """LayerNormalization of no columns, by a weight that is computed."""
    g.opset = 17
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    none = raw(g, "Slice", [x, g.ints(2), g.ints(2), g.ints(1)], x.array[:, 2:2])
    g.output(raw(g, "LayerNormalization", [none, x], x.array[:, 2:2]))


def slices_assigned(g):
    """x[:, 1:3] = y, x[:, :, 2] = 0.5 and x[:, 0:4:2, 1:3] = z, as PyTorch exports them."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    cuts = [(np.arange(1, 3), np.arange(3)), (np.arange(4), np.array([2])),
            (np.arange(0, 4, 2), np.arange(1, 3))]
    for steps, columns in cuts:
        shape = (ADS, len(steps), len(columns))
        rows = g.node("Shape", [x], np.array([ADS, 4, 3]))
        rows = g.node("Gather", [rows, g.constant(np.array(0))], np.array(ADS), axis=0)
        rows = g.node("Range", [g.constant(np.array(0)), rows, g.constant(np.array(1))],
                      np.arange(ADS))
        rows = g.node("Reshape", [rows, g.ints(-1, 1, 1)], np.arange(ADS)[:, None, None])
        places = [rows, g.constant(steps[:, None]), g.constant(columns)]
        grid = g.node("Add", [places[0], places[1]], rows.array + steps[:, None], rows="ads")
        grid = g.node("Add", [grid, places[2]], grid.array + columns, rows="ads")
        size = g.node("Shape", [grid], np.array(shape))
        wide = [g.node("Expand", [p, size], np.broadcast_to(p.array, shape), rows="ads")
                for p in places]
        wide = [g.node("Unsqueeze", [w, g.ints(-1)], w.array[..., None]) for w in wide]
        at = g.node("Concat", wide, np.concatenate([w.array for w in wide], -1), axis=-1)
        if len(columns) == 1:
            value = g.node("Expand", [g.constant(np.array(0.5, np.float32)), size],
                           np.full(shape, 0.5, np.float32), rows="ads")
        else:
            value = g.input(g.fresh("y"), g.random.randn(*shape).astype(np.float32))
        array = x.array.copy()
        array[:, steps[:, None], columns] = value.array
        x = g.node("ScatterND", [x, at, value], array)
    g.output(x)


def columns_assigned_a_constant(g):
    """x[:, :2] = c.expand(rows, 2): columns that some tables share."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    rows = g.node("Shape", [x], np.array([ADS, 4]))
    rows = g.node("Gather", [rows, g.constant(np.array(0))], np.array(ADS), axis=0)
    rows = g.node("Range", [g.constant(np.array(0)), rows, g.constant(np.array(1))],
                  np.arange(ADS))
    rows = g.node("Reshape", [rows, g.ints(-1, 1)], np.arange(ADS)[:, None])
    grid = g.node("Add", [rows, g.ints(0, 1)], rows.array + np.arange(2), rows="ads")
    size = g.node("Shape", [grid], np.array([ADS, 2]))
    wide = [g.node("Expand", [p, size], np.broadcast_to(p.array, (ADS, 2)), rows="ads")
            for p in (rows, g.ints(0, 1))]
    wide = [g.node("Unsqueeze", [w, g.ints(-1)], w.array[..., None]) for w in wide]
    at = g.node("Concat", wide, np.concatenate([w.array for w in wide], -1), axis=-1)
    shared = g.constant(g.random.randn(1, 2).astype(np.float32))
    shared = g.node("Expand", [shared, size], shared.array.repeat(ADS, 0), rows="ads")
    array = np.concatenate([shared.array, x.array[:, 2:]], 1)
    g.output(g.node("ScatterND", [x, at, shared], array))


def step_that_an_id_tells(g):
    """x[arange(rows), id] as a Gather of merged rows, where a table is looked up with the id, too."""
    x = g.input("x", g.random.randn(ADS, 12).astype(np.float32))
    ids = g.input("id", g.random.randint(0, 3, ADS))
    table = g.constant(g.random.randn(3, 2).astype(np.float32))
    g.output(g.node("Gather", [table, ids], table.array[ids.array], axis=0))
    rows = g.node("Shape", [x], np.array([ADS, 12]))
    rows = g.node("Gather", [rows, g.constant(np.array(0))], np.array(ADS), axis=0)
    rows = g.node("Range", [g.constant(np.array(0)), rows, g.constant(np.array(1))],
                  np.arange(ADS))
    first = g.binary("Mul", rows, g.constant(np.array(3)))
    at = g.binary("Add", ids, first)
    steps = g.node("Reshape", [x, g.ints(-1, 4)], x.array.reshape(-1, 4))
    g.output(g.node("Gather", [steps, at], steps.array[at.array], axis=0))


def step_of_each_row(g):
    """x[arange(rows), length - 1] as a GatherND, whose places may count from the end."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    length = g.input("length", g.random.randint(0, 5, ADS))
    last = g.binary("Sub", length, g.constant(np.array(1)))
    rows = g.node("Shape", [x], np.array([ADS, 4, 3]))
    rows = g.node("Gather", [rows, g.constant(np.array(0))], np.array(ADS), axis=0)
    rows = g.node("Range", [g.constant(np.array(0)), rows, g.constant(np.array(1))], np.arange(ADS))
    pair = [g.node("Unsqueeze", [v, g.ints(-1)], v.array[:, None]) for v in (rows, last)]
    at = g.node("Concat", pair, np.concatenate([p.array for p in pair], 1), axis=-1)
    g.output(g.node("GatherND", [x, at], x.array[np.arange(ADS), last.array]))


def step_of_each_title(g):
    """x.view(-1, 4, 3)[arange(rows * 2), place], as PyTorch 1.13 writes it: places among all."""
    x = g.input("x", g.random.randn(ADS, 2, 12).astype(np.float32))
    place = g.input("place", g.random.randint(0, 4, (ADS, 2)))
    titles = g.node("Reshape", [x, g.ints(-1, 4, 3)], x.array.reshape(-1, 4, 3), rows="ads")
    place = g.node("Reshape", [place, g.ints(-1)], place.array.reshape(-1), rows="ads")
    rows = g.node("Gather", [g.node("Shape", [titles], np.array([ADS * 2, 4, 3])),
                             g.constant(np.array(0))], np.array(ADS * 2), axis=0)
    rows = g.node("Range", [g.constant(np.array(0)), rows, g.constant(np.array(1))],
                  np.arange(ADS * 2))
    first = g.node("Mul", [rows, g.constant(np.array(4))], rows.array * 4)
    at = g.node("Add", [place, first], place.array + first.array)
    steps = g.node("Reshape", [titles, g.ints(-1, 3)], x.array.reshape(-1, 3), rows="ads")
    found = g.node("Gather", [steps, at], steps.array[at.array], rows="ads", axis=0)
    g.output(g.node("Reshape", [found, g.ints(-1, 6)], found.array.reshape(ADS, 6)))


def best_steps_in_order(g):
    """The three largest of six, in the order of the steps: x.gather(2, x.topk(3)[1].sort()[0])."""
    x = g.input("x", g.random.randn(ADS, 2, 6).astype(np.float32))
    at = np.sort(np.argsort(-x.array, 2)[..., :3], 2)
    count = g.ints(3).name
    for op, inputs, outputs, attributes in (
            ("TopK", [x.name, count], ["best", "at"], {}), ("Shape", ["at"], ["shape"], {}),
            ("Gather", ["shape", g.ints(2).name], ["size"], {}),
            ("TopK", ["at", "size"], ["sorted", "order"], {"axis": 2, "largest": 0}),
            ("GatherElements", [x.name, "sorted"], ["kept"], {"axis": 2})):
        g.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
    kept = g.keep(Value("kept", np.take_along_axis(x.array, at, 2), "ads"))
    g.output(g.binary("Mul", kept, g.constant(np.array(2, np.float32))))


def ranks_of_steps(g):
    """x.argsort(1).argsort(1), which is no order that puts rows back."""
    x = g.input("x", g.random.randn(ADS, 6).astype(np.float32))
    for op, inputs, outputs, attributes in (
            ("TopK", [x.name, g.ints(6).name], ["sorted", "at"], {"axis": 1}),
            ("Shape", ["at"], ["shape"], {}), ("Gather", ["shape", g.ints(1).name], ["size"], {}),
            ("TopK", ["at", "size"], ["all", "ranks"], {"axis": 1, "largest": 0}),
            ("Cast", ["ranks"], ["out0"], {"to": TensorProto.FLOAT})):
        g.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
    ranks = np.argsort(np.argsort(-x.array, 1), 1).astype(np.float32)
    g.outputs.append(("out0", Value("out0", ranks, "ads")))


def few_and_many_of_the_best(g):
    """Up to 64 are chosen in another way than more; many are equal, the first of which come first."""
    x = g.input("x", g.random.randint(-9, 10, (ADS, 120, 2)).astype(np.float32))
    for largest in (0, 1):
        for k in (64, 65, 120):
            at = np.argsort(-x.array if largest else x.array, 1, kind="stable")[:, :k]
            names = [g.fresh("best"), g.fresh("at")]
            g.nodes.append(helper.make_node("TopK", [x.name, g.ints(k).name], names, axis=1,
                                            largest=largest))
            g.output(g.keep(Value(names[0], np.take_along_axis(x.array, at, 1), "ads")))
            g.output(g.keep(Value(names[1], at.astype(np.float32), "ads")))


def gates_of_the_best(g):
    """A mixture of the two best of three experts."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    order = np.argsort(-x.array, 1)[:, :2]
    best = np.take_along_axis(x.array, order, 1)
    g.nodes.append(helper.make_node("TopK", [x.name, g.ints(2).name], ["best", "at"], axis=1))
    e = np.exp(best - best.max(1, keepdims=True))
    gates = g.node("Softmax", [g.keep(Value("best", best, "ads"))], e / e.sum(1, keepdims=True))
    zeros = g.binary("Mul", x, g.constant(np.array(0, np.float32)))
    result = np.zeros_like(x.array)
    np.put_along_axis(result, order, gates.array, 1)
    g.output(g.node("ScatterElements", [zeros, Value("at", order, "ads"), gates], result, axis=1))


def added_up(g, x, zeros, **attributes):
    """Sums of x by ids, some of which come twice."""
    ids = g.random.randint(-3, 3, (ADS, 4))
    result = np.zeros((ADS, 3), np.float32)
    np.add.at(result, (np.arange(ADS)[:, None], ids), x.array)
    at = g.cast(g.input("at", ids.astype(np.float32)), "int")
    return g.node("ScatterElements", [zeros, at, x], result, axis=1, **attributes)


def entries_of_constant_places(g):
    """index_add of places that all differ: an Add of zeros with entries; of the user's row, too."""
    y = g.input("y", g.random.randn(ADS, 2).astype(np.float32))
    places = np.tile([3, 1], (ADS, 1))
    at = g.node("Expand", [g.constant(places[:1]), g.node("Shape", [y], np.array([ADS, 2]))], places,
                rows="ads")
    for x in (g.input("x", g.random.randn(ADS, 4).astype(np.float32)),
              g.shared("u", g.random.randn(4).astype(np.float32))):
        zeros = g.node("ConstantOfShape", [g.node("Shape", [x], np.array([ADS, 4]))],
                       np.zeros((ADS, 4), np.float32), rows="ads")
        result = np.zeros((ADS, 4), np.float32)
        result[:, [3, 1]] = y.array
        entries = g.node("ScatterElements", [zeros, at, y], result, rows="ads", axis=1)
        g.output(g.binary("Add", x, entries))
        result = x.array.copy()
        result[:, [3, 1]] = y.array
        g.output(g.node("ScatterElements", [x, at, y], result, axis=1))


def entries_added_up(g):
    """scatter_add from operator set 16 on."""
    g.opset = 16
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    part = g.slice(x, 1, 0, 3)
    zeros = g.binary("Mul", part, g.constant(np.array(0, np.float32)))
    g.output(added_up(g, x, zeros, reduction="add"))


def sorted_by_length(g, rows="rows"):
    """The values of rows that are sorted, and their order; `rows` is how many they are."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    length = g.input("length", np.array([3, 1, 5, 2, 4], np.float32))
    g.nodes.append(helper.make_node("Shape", [length.name], ["rows"]))
    g.nodes.append(helper.make_node("TopK", [length.name, rows], ["sorted", "order"], axis=0))
    at = np.argsort(-length.array, kind="stable")
    order = g.keep(Value("order", at, "ads"))
    mixed = g.node("Tanh", [g.node("Gather", [x, order], x.array[at], axis=0)], np.tanh(x.array[at]))
    return mixed, np.tanh(x.array), np.argsort(at)


def mask_for_each_candidate(g):
    """arange(steps).repeat(rows * candidates, 1) < length, which each candidate has."""
    length = g.input("length", g.random.randint(1, 6, (ADS, 2, 1)).astype(np.float32))
    rows = g.node("Gather", [g.node("Shape", [length], np.array([ADS, 2, 1])), g.ints(0)],
                  np.array([ADS]), axis=0)
    rows = g.node("Mul", [rows, g.ints(2)], np.array([ADS * 2]))
    times = g.node("Concat", [rows, g.ints(1)], np.array([ADS * 2, 1]), axis=0)
    steps = g.constant(np.arange(5, dtype=np.float32)[None])
    steps = g.node("Tile", [steps, times], np.tile(steps.array, (ADS * 2, 1)), rows="ads")
    merged = g.node("Reshape", [length, g.ints(-1, 1)], length.array.reshape(-1, 1), rows="ads")
    mask = g.cast(g.node("Less", [steps, merged], steps.array < merged.array), "float")
    g.output(g.node("Reshape", [mask, g.ints(-1, 2, 5)], mask.array.reshape(ADS, 2, 5)))


def step_of_each_row_behind_it(g):
    """y[length - 1, arange(rows)] of steps in front of the rows, as PyTorch exports it."""
    y = g.input("y", g.random.randn(ADS, 4, 3).astype(np.float32))
    place = g.input("place", g.random.randint(0, 4, ADS))
    steps = g.node("Transpose", [y], y.array.swapaxes(0, 1), perm=[1, 0, 2])
    shape = g.node("Shape", [steps], np.array([4, ADS, 3]))
    count = g.node("Gather", [shape, g.constant(np.array(1))], np.array(ADS), axis=0)
    rows = g.constant(np.arange(ADS if g.rows == ADS else 1))
    if g.rows == "ads":
        first, step = g.constant(np.array(0)), g.constant(np.array(1))
        rows = g.node("Range", [first, count, step], np.arange(ADS))
    flat = g.node("Flatten", [steps], steps.array.reshape(-1, 3), axis=2)
    at = g.node("Mul", [place, count], place.array * ADS)
    at = g.node("Add", [rows, at], np.arange(ADS) + at.array)
    g.output(g.node("Gather", [flat, at], flat.array[at.array], axis=0))


def last_step_of_a_mask(g):
    """SR-GNN: y[arange(rows), mask.sum(1) - 1], of a mask that is an input, as PyTorch exports it."""
    y = g.input("y", g.random.randn(ADS, 4, 3).astype(np.float32))
    mask = (g.random.rand(ADS, 4) < 0.5).astype(np.float32)
    mask[:, 1] = 1
    mask = g.input("by", mask)
    length = g.with_axes("ReduceSum", mask, [1], mask.array.sum(1), 13, keepdims=0)
    last = g.binary("Sub", g.cast(length, "int"), g.constant(np.array(1)))
    shape = g.node("Shape", [y], np.array([ADS, 4, 3]))
    count, steps = (g.node("Gather", [shape, g.constant(np.array(i))], np.array((ADS, 4)[i]), axis=0)
                    for i in (0, 1))
    rows = g.node("Range", [g.constant(np.array(0)), count, g.constant(np.array(1))], np.arange(ADS),
                  rows="ads")
    flat = g.node("Flatten", [y], y.array.reshape(-1, 3), axis=2)
    at = g.node("Mul", [rows, steps], np.arange(ADS) * 4)
    at = g.node("Add", [last, at], last.array + at.array)
    g.output(g.node("Gather", [flat, at], flat.array[at.array], axis=0))


def best_logarithms(g):
    """Of numbers below 0, which the proof makes up, a logarithm is none."""
    x = g.input("x", 0.1 + g.random.rand(ADS, 6).astype(np.float32))
    y = g.node("Log", [x], np.log(x.array))
    best, at = g.fresh("best"), g.fresh("at")
    g.nodes.append(helper.make_node("TopK", [y.name, g.ints(3).name], [best, at], axis=1))
    g.output(g.keep(Value(best, -np.sort(-y.array, 1)[:, :3], "ads")))
    first = g.node("ArgMax", [y], y.array.argmax(1), axis=1, keepdims=0)
    g.output(g.cast(first, "float"))


def rows_sorted_and_back(g):
    """As packed sequences are, by length."""
    mixed, wanted, back = sorted_by_length(g)
    g.nodes.append(helper.make_node("Shape", ["order"], ["count"]))
    g.nodes.append(helper.make_node("ConstantOfShape", ["count"], ["empty"],
                                    value=numpy_helper.from_array(np.zeros(1, np.int64))))
    g.nodes.append(helper.make_node("Gather", ["count", g.constant(np.array(0)).name], ["n"]))
    g.nodes.append(helper.make_node("Range", [g.constant(np.array(0)).name, "n",
                                              g.constant(np.array(1)).name], ["numbers"]))
    g.nodes.append(helper.make_node("ScatterElements", ["empty", "order", "numbers"], ["back"]))
    back = g.cast(g.keep(Value("back", back, "ads")), "int")
    g.output(g.node("Gather", [mixed, back], wanted, axis=0))


def order_sorted(g):
    """_, back = order.sort()"""
    mixed, wanted, back = sorted_by_length(g)
    g.nodes.append(helper.make_node("TopK", ["order", "rows"], ["numbers", "back"], axis=0,
                                    largest=0))
    back = g.keep(Value("back", back, "ads"))
    g.output(g.node("Gather", [mixed, back], wanted, axis=0))


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


def masked_select(g):
    mask = g.constant(np.triu(np.ones((3, 3), bool), 1))
    for x in (g.input("x", g.random.randn(ADS, 3, 3).astype(np.float32)),
              g.shared("u", g.random.randn(3, 3).astype(np.float32))):
        shape, wide, at, places, chosen = (g.fresh(n) for n in "shape wide at places chosen".split())
        g.nodes.append(helper.make_node("Shape", [x.name], [shape]))
        g.nodes.append(helper.make_node("Expand", [mask.name, shape], [wide]))
        g.nodes.append(helper.make_node("NonZero", [wide], [at]))
        g.nodes.append(helper.make_node("Transpose", [at], [places], perm=[1, 0]))
        g.nodes.append(helper.make_node("GatherND", [x.name, places], [chosen]))
        chosen = g.keep(Value(chosen, x.array[:, mask.array].reshape(-1), "ads"))
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


def product_with_merged_steps(g):
    """A Dense layer of Keras over steps: rows and steps are merged by the product of their sizes."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    weight = g.constant(g.random.randn(3, 2).astype(np.float32))
    shape = g.node("Shape", [x], np.array([ADS, 4, 3]))
    free = g.node("Gather", [shape, g.ints(0, 1)], np.array([ADS, 4]))
    width = g.node("Gather", [shape, g.ints(2)], np.array([3]))
    both = g.node("ReduceProd", [free], np.array([4 * ADS]), axes=[0], keepdims=1)
    flat = g.node("Concat", [both, width], np.array([4 * ADS, 3]), axis=0)
    rows = g.node("Reshape", [x, flat], x.array.reshape(-1, 3))
    product = g.node("MatMul", [rows, weight], rows.array @ weight.array)
    back = g.node("Concat", [free, g.ints(2)], np.array([ADS, 4, 2]), axis=0)
    g.output(g.node("Reshape", [product, back], product.array.reshape(ADS, 4, 2)))


def sums_across_rows(g):
    """A list's statistics beside every ad's own: scored whole."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    mean = g.node("ReduceMean", [x], x.array.mean(0, keepdims=True), axes=[0], keepdims=1)
    centred = g.node("Sub", [x, mean], x.array - mean.array)
    e = np.exp(x.array - x.array.max(0))
    share = g.node("Softmax", [x], e / e.sum(0), axis=0)
    square = g.node("ReduceSumSquare", [centred], (centred.array ** 2).sum(0), axes=[0], keepdims=0)
    g.output(g.node("Add", [share, square], share.array + square.array, rows="ads"))


def extremes_across_rows(g):
    """The largest and smallest of a list, logarithms of its shares."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    least = g.node("ReduceMin", [x], x.array.min(0), axes=[0], keepdims=0)
    most = g.node("ReduceMax", [x], x.array.max(0, keepdims=True), axes=[0], keepdims=1)
    g.output(g.binary("Sub", x, least))
    g.output(g.binary("Sub", most, x))
    total = np.log(np.exp(x.array).sum(0, keepdims=True))
    g.output(g.node("LogSoftmax", [x], x.array - total, axis=0))
    total = g.node("ReduceLogSumExp", [x], total, axes=[0], keepdims=1)
    g.output(g.binary("Mul", x, total))


def rows_beside_rows(g):
    """Attention between the candidates, and how near they are to one another at most."""
    x, y = [g.input(name, g.random.randn(ADS, 3).astype(np.float32)) for name in "xy"]
    turned = g.node("Transpose", [y], y.array.T, perm=[1, 0])
    scores = g.node("MatMul", [x, turned], x.array @ turned.array)
    g.output(g.node("ReduceMax", [scores], scores.array.max(1), axes=[1], keepdims=0))
    e = np.exp(scores.array - scores.array.max(1, keepdims=True))
    shares = g.node("Softmax", [scores], e / e.sum(1, keepdims=True), axis=1)
    g.output(g.node("MatMul", [shares, x], shares.array @ x.array))
    sums = g.node("MatMul", [turned, x], turned.array @ x.array)
    g.output(g.node("Gemm", [y, sums], y.array @ sums.array))


def steps_assigned(g):
    """x[:, 1:3] = y where the exporter brings the steps to the front."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    y = g.input("y", g.random.randn(ADS, 2, 3).astype(np.float32))
    turned = [g.node("Transpose", [v], v.array.transpose(1, 0, 2), perm=[1, 0, 2]) for v in (x, y)]
    result = turned[0].array.copy()
    result[1:3] = turned[1].array
    at = g.constant(np.array([[1], [-2]]))
    result = g.node("ScatterND", [turned[0], at, turned[1]], result)
    g.output(g.node("Transpose", [result], result.array.transpose(1, 0, 2), perm=[1, 0, 2]))


def places_from_the_end(g):
    """(length - step) * (ids > 0) into a table; steps repeated for each row; steps that fall."""
    steps, zero = 4, g.constant(np.array(0))
    n = g.random.randint(1, steps + 1, (ADS, 1))
    ids = np.where(np.arange(steps) < n, g.random.randint(1, 6, (ADS, steps)), 0)
    ids, length = g.input("ids", ids), g.input("length", n)
    table = g.constant(g.random.randn(6, 3).astype(np.float32))
    backwards = np.arange(steps)[::-1].copy()
    falling = g.node("Range", [g.constant(np.array(v)) for v in (steps - 1, -1, -1)], backwards)
    behind = g.binary("Less", falling, length)
    valid = g.cast(g.binary("Greater", ids, zero), "int")
    place = g.binary("Sub", length, g.constant(np.arange(steps)[None]))
    place = g.binary("Mul", place, valid)
    found = g.node("Gather", [table, place], table.array[place.array])
    keys = g.look_up(g.constant(g.random.randn(6, 3).astype(np.float32)), ids)
    keys = g.binary("Add", keys, found)
    g.output(g.binary("Mul", keys, g.unsqueeze(g.cast(behind, "float"), 2)))
    rows = g.node("Shape", [length], np.array([ADS, 1]))
    each = g.constant(np.arange(steps)[None])
    each = g.node("Tile", [each, rows], np.tile(each.array, (ADS, 1)), rows="ads")
    g.output(g.binary("GreaterOrEqual", each, length))


def loss_beside_scores(g):
    """PyTorch writes such a sum wrong where the model adds to it in place."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    g.output(g.node("Sigmoid", [x], 1 / (1 + np.exp(-x.array)), rows="ads"))
    g.output(g.node("ReduceMean", [x], x.array.mean(), keepdims=0))


def steps_of_each_row(g):
    """x[torch.arange(len(x)).unsqueeze(1), i]: several steps of each row, as PyTorch exports it."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    i = g.input("i", g.random.randint(0, 4, (ADS, 2)))
    g.look_up(g.constant(g.random.randn(4, 2).astype(np.float32)), i)
    rows = g.node("Shape", [x], np.array([ADS, 4, 3]))
    rows = g.node("Gather", [rows, g.constant(np.array(0))], np.array(ADS), axis=0)
    zero, one = g.constant(np.array(0)), g.constant(np.array(1))
    rows = g.node("Range", [zero, rows, one], np.arange(ADS))
    rows = g.unsqueeze(rows, 1)
    rows = g.node("Mul", [rows, g.constant(np.array(4))], 4 * rows.array)
    at = g.node("Add", [g.binary("Mod", i, g.constant(np.array(4))), rows], i.array + rows.array)
    flat = g.node("Flatten", [x], x.array.reshape(-1, 3), axis=2)
    found = g.node("Gather", [flat, at], flat.array[at.array], axis=0)
    g.output(g.binary("Mul", found, g.constant(np.array(2, np.float32))))


def flat_steps_of_each_row(g):
    """x.view(-1, 3)[(places + arange(0, rows * 4, 4).view(-1, 1)).view(-1)], as BERT4Rec gathers."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    i = g.input("i", g.random.randint(0, 4, (ADS, 2)))
    shape = g.node("Shape", [x], np.array([ADS, 4, 3]))
    rows = g.node("Gather", [shape, g.constant(np.array(0))], np.array(ADS), axis=0)
    limit = g.node("Mul", [rows, g.constant(np.array(4))], np.array(ADS * 4))
    ends = g.constant(np.array(0)), g.constant(np.array(4))
    rows = g.node("Range", [ends[0], limit, ends[1]], 4 * np.arange(ADS))
    rows = g.node("Reshape", [rows, g.ints(-1, 1)], rows.array[:, None])
    at = g.node("Add", [i, rows], i.array + rows.array)
    at = g.node("Reshape", [at, g.ints(-1)], at.array.reshape(-1))
    flat = g.node("Reshape", [x, g.ints(-1, 3)], x.array.reshape(-1, 3))
    found = g.node("Gather", [flat, at], flat.array[at.array], axis=0)
    weight = g.constant(g.random.randn(3, 2).astype(np.float32))
    found = g.node("MatMul", [found, weight], found.array @ weight.array)
    g.output(g.node("Reshape", [found, g.ints(-1, 2, 2)], found.array.reshape(ADS, 2, 2)))


def several_of_some(g):
    """Multi-hot: 1 in the places of each row's ids, and counts of them."""
    g.opset = 16
    x = g.input("x", g.random.randn(ADS, 9).astype(np.float32))
    i = g.input("i", g.random.randint(0, 9, (ADS, 3)))
    shape = g.node("Shape", [x], np.array([ADS, 9]))
    zeros = g.node("ConstantOfShape", [shape], np.zeros((ADS, 9), np.float32))
    size = g.node("Shape", [i], np.array([ADS, 3]))
    ones = g.node("Expand", [g.constant(np.array(1, np.float32)), size],
                  np.ones((ADS, 3), np.float32))
    for reduction in ("none", "add"):
        wanted = np.zeros((ADS, 9), np.float32)
        for row, places in enumerate(i.array):
            for place in places:
                wanted[row, place] = 1 + (wanted[row, place] if reduction == "add" else 0)
        found = g.node("ScatterElements", [zeros, i, ones], wanted, axis=1, reduction=reduction)
        g.output(g.binary("Add", found, x))


def entries_of_computed_places(g):
    """x[arange(rows), i] = y: one of each row, several, and several one after the other, added."""
    g.opset = 16
    x = g.input("x", g.random.randn(ADS, 5, 2).astype(np.float32))
    y = g.input("y", g.random.randn(ADS, 3, 2).astype(np.float32))
    i = g.input("i", g.random.randint(0, 5, (ADS, 3)))
    rows = g.node("Shape", [x], np.array([ADS, 5, 2]))
    rows = g.node("Gather", [rows, g.constant(np.array(0))], np.array(ADS), axis=0)
    zero, one = g.constant(np.array(0)), g.constant(np.array(1))
    rows = g.unsqueeze(g.node("Range", [zero, rows, one], np.arange(ADS)), 1)
    each = g.node("Concat", [rows] * 3, np.repeat(rows.array, 3, 1), axis=1)
    wide = g.node("Expand", [rows, g.node("Shape", [i], np.array([ADS, 3]))], each.array)

    def flat(value, *sizes):
        return g.node("Reshape", [value, g.ints(-1, *sizes)], value.array.reshape(-1, *sizes))

    for numbers, places, update, add in (
            (rows, g.slice(i, 1, 0, 1), g.pick(y, 1, 0), False), (wide, i, y, False),
            (flat(each), flat(i), flat(y, 2), True)):
        if add or numbers is wide:
            numbers, places = (g.unsqueeze(v, v.array.ndim) for v in (numbers, places))
        at = g.node("Concat", [numbers, places], np.concatenate([numbers.array, places.array], -1),
                    axis=-1)
        wanted = x.array.copy()
        for (row, place), new in zip(at.array.reshape(-1, 2), update.array.reshape(-1, 2)):
            wanted[row, place] = new + (wanted[row, place] if add else 0)
        g.output(g.node("ScatterND", [x, at, update], wanted, rows="ads",
                        reduction="add" if add else "none"))


def best_of_few(g):
    """Of equal ones the first or the last."""
    g.opset = 12
    for size in (2, 3, 4, 5):
        x = g.input(f"x{size}", g.random.randint(0, 3, (ADS, 2, size)).astype(np.float32))
        for op, best in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
            first, last = best(x.array, 2), size - 1 - best(x.array[..., ::-1], 2)
            g.output(g.node(op, [x], first, axis=2, keepdims=0))
            g.output(g.node(op, [x], last[..., None], axis=-1, select_last_index=1))


def index_filled(g):
    """x.index_fill(1, [0, 2], 0.5): the shape of the entries is that of x, with 2 for 4."""
    x = g.input("x", g.random.randn(ADS, 4, 3).astype(np.float32))
    shape = g.node("Shape", [x], np.array([ADS, 4, 3]))
    shape = g.node("ScatterElements", [shape, g.ints(1), g.ints(2)], np.array([ADS, 2, 3]), axis=0)
    places = g.constant(np.array([[[0], [2]]]))
    at = g.node("Expand", [places, shape], np.broadcast_to(places.array, (ADS, 2, 3)))
    half = g.node("Expand", [g.constant(np.array(0.5, np.float32)), shape],
                  np.full((ADS, 2, 3), 0.5, np.float32))
    wanted = x.array.copy()
    wanted[:, [0, 2]] = 0.5
    g.output(g.node("ScatterElements", [x, at, half], wanted, rows="ads", axis=1))


def same_entries_of_each_row(g):
    """diagonal()'s last step: constant places, repeated for the rows by adding zeros."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    rows = g.node("Shape", [x], np.array([ADS, 4]))
    rows = g.node("Gather", [rows, g.ints(0)], np.array([ADS]), axis=0)
    shape = g.node("Concat", [rows, g.ints(3)], np.array([ADS, 3]), axis=0)
    zeros = g.node("ConstantOfShape", [shape], np.zeros((ADS, 3), np.int64),
                   value=numpy_helper.from_array(np.zeros(1, np.int64)))
    at = g.node("Add", [zeros, g.ints(3, 0, 1)], np.tile([3, 0, 1], (ADS, 1)))
    at = g.unsqueeze(at, 2)
    g.output(g.node("GatherND", [x, at], x.array[:, [3, 0, 1]], rows="ads", batch_dims=1))


def entries_that_are_lost(g):
    """scatter_add before operator set 16: of two for a place one is added."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    shape = g.node("Shape", [g.slice(x, 1, 0, 3)], np.array([ADS, 3]))
    zeros = g.node("ConstantOfShape", [shape], np.zeros((ADS, 3), np.float32))
    g.output(g.binary("Add", g.slice(x, 1, 0, 3), added_up(g, x, zeros)))


def one_entry_for_all_rows(g):
    """position(torch.zeros_like(ids)): the same row of a table for every row."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    table = g.constant(g.random.randn(5, 3).astype(np.float32), "table")
    shape = g.node("Shape", [x], np.array(x.array.shape))
    for like, at in ((g.slice(shape, 0, 0, 1), 2), (shape, 4)):
        sizes = tuple(like.array)
        ids = g.node("ConstantOfShape", [like], np.full(sizes, at),
                     value=numpy_helper.from_array(np.array([at])))
        same = g.node("Gather", [table, ids], table.array[ids.array], axis=0)
        axes = g.constant(np.arange(1, same.array.ndim))
        total = g.node("ReduceSum", [same, axes], same.array.reshape(ADS, -1).sum(1), keepdims=0)
        g.output(g.binary("Add", total, g.pick(x, 1, 0)))


def statistics_of_the_rows(g):
    """BatchNorm1d(track_running_stats=False)."""
    g.opset = 14
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    scale, bias = [g.constant(g.random.randn(3).astype(np.float32)) for _ in range(2)]
    own = [g.constant(np.full(3, first, np.float32)) for first in (0, 1)]
    normal = (x.array - x.array.mean(0)) / np.sqrt(x.array.var(0) + 1e-5)
    g.output(g.node("BatchNormalization", [x, scale, bias, *own],
                    normal * scale.array + bias.array, rows="ads", training_mode=1))


def variance_of_the_rows(g):
    """x.var(0), of which the exporter counts the rows by a product of sizes."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    mean = g.node("ReduceMean", [x], x.array.mean(0, keepdims=True), axes=[0], keepdims=1)
    away = g.binary("Sub", x, mean)
    squares = g.binary("Mul", away, away)
    biased = g.node("ReduceMean", [squares], squares.array.mean(0), axes=[0], keepdims=0)
    sizes = g.node("Shape", [x], np.array(x.array.shape))
    rows = g.node("Gather", [sizes, g.constant(np.array([0]))], np.array([ADS]), axis=0)
    count = g.cast(g.node("ReduceProd", [rows], np.array(ADS), keepdims=0), "float")
    less = g.binary("Sub", count, g.constant(np.array(1, np.float32)))
    variance = g.binary("Div", g.binary("Mul", biased, count), less)
    g.output(g.binary("Div", x, g.binary("Add", variance, g.constant(np.array(1, np.float32)))))


def statistics_while_trained(g):
    g.opset = 14
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    own = [g.constant(g.random.rand(3).astype(np.float32)) for _ in range(4)]
    g.output(g.node("BatchNormalization", [x, *own], x.array, rows="ads", training_mode=1))


def mean_by_the_rows_of_the_example(g):
    """x - x.sum(0) / len(x)"""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    total = g.node("ReduceSum", [x, g.constant(np.array([0]))], x.array.sum(0, keepdims=True))
    g.output(g.binary("Sub", x, g.binary("Div", total, g.constant(np.array(ADS, np.float32)))))


def column_of_the_example(g):
    """torch.cat([x, torch.ones(len(x), 1)], 1)"""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    ones = g.constant(np.ones((ADS, 1), np.float32))
    joined = np.concatenate([x.array, ones.array], 1)
    g.output(g.node("Concat", [x, ones], joined, rows="ads", axis=1))


def rows_of_the_example(g):
    """x.view(1, -1) of steps."""
    x = g.input("x", g.random.randn(ADS, 3, 2).astype(np.float32))
    flat = g.node("Reshape", [x, g.constant(np.array([1, -1]))], x.array.reshape(1, -1))
    axes = g.constant(np.array([1]))
    g.output(g.node("ReduceSum", [flat, axes], flat.array.sum(1, keepdims=True)))


def steps_of_the_example(g):
    """x + table[torch.arange(T).repeat(len(x), 1)]"""
    x = g.input("x", g.random.randn(ADS, 3, 2).astype(np.float32))
    g.output(g.binary("Add", x, g.constant(g.random.randn(ADS, 3, 2).astype(np.float32))))


def table_for_each_row(g):
    """x.view(-1, 2) * table.repeat(x.size(0), 1)"""
    x = g.input("x", g.random.randn(ADS, 3, 2).astype(np.float32))
    flat = g.node("Reshape", [x, g.ints(-1, 2)], x.array.reshape(-1, 2))
    table = g.constant(g.random.randn(3, 2).astype(np.float32))
    size = g.node("Shape", [x], np.array([ADS, 3, 2]))
    size = g.node("Gather", [size, g.ints(0)], np.array([ADS]), axis=0)
    times = g.node("Concat", [size, g.ints(1)], np.array([ADS, 1]), axis=0)
    every = g.node("Tile", [table, times], np.tile(table.array, (ADS, 1)), rows="ads")
    both = g.binary("Mul", flat, every)
    g.output(g.node("Reshape", [both, g.ints(-1, 6)], both.array.reshape(-1, 6), rows="ads"))


def exported_long_ago(g):
    """x[arange(len(x)), i].unsqueeze(-1) at operator set 9, which PyTorch took by default."""
    g.opset = 9
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    i = g.node("ArgMax", [x], x.array.argmax(1), axis=1, keepdims=0)
    size = g.node("Gather", [g.node("Shape", [x], np.array([ADS, 3])), g.constant(np.array(0))],
                  np.array(ADS), axis=0)
    size = g.node("Unsqueeze", [size], np.array([ADS]), axes=[0])
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    ones = g.node("ConstantOfShape", [size], np.ones(ADS, np.int64), rows="ads", value=one)
    rows = raw(g, "NonZero", [ones], np.arange(ADS)[None])
    rows = g.node("Transpose", [rows], rows.array.T, perm=[1, 0])
    rows = g.node("Squeeze", [rows], np.arange(ADS), axes=[1])
    first = g.node("Mul", [rows, g.constant(np.array([3]))], rows.array * 3)
    place = g.node("Add", [i, first], i.array + first.array)
    flat = g.node("Flatten", [x], x.array.reshape(-1, 1), axis=2)
    best = g.node("Gather", [flat, place], flat.array[place.array], axis=0)
    best = g.node("Squeeze", [best], best.array[:, 0], axes=[-1])
    g.output(g.node("Unsqueeze", [best], best.array[:, None], axes=[-1]))


def rows_squeezed(g):
    """x.squeeze(-1) of what has rows only."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    total = g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1), keepdims=0)
    size = g.node("Shape", [total], np.array([ADS]))
    size = g.node("Gather", [size, g.constant(np.array(-1))], np.array(ADS), axis=0)
    one = g.node("Equal", [size, g.constant(np.array(1))], np.array(False))
    g.output(squeezed_if(g, total, one))


def known_places(g):
    """x[:, i] and x[:, i, j] as places along the first axes of a transposed x."""
    x = g.input("x", g.random.randn(ADS, 3, 4, 2).astype(np.float32))
    turned = g.node("Transpose", [x], x.array.transpose(1, 2, 0, 3), perm=[1, 2, 0, 3])
    for places in ([[2], [0]], [[0, 1], [2, -1], [1, 1]], [[[1, 0]], [[-3, 2]]], [1, 2]):
        at = np.array(places)
        found = g.node("GatherND", [turned, g.constant(at)],
                       turned.array[tuple(np.moveaxis(at, -1, 0))])
        rows = found.array.ndim - 2
        order = [rows, *range(rows), rows + 1]
        g.output(g.node("Transpose", [found], found.array.transpose(order), perm=order))


def as_many_entries_as_there_are(g):
    """In another order, and some twice, of an axis with others in front of it."""
    x = g.input("x", g.random.randn(ADS, 2, 4).astype(np.float32))
    for places in ([1, -3, 3, 3], [3, 2, 1, 0], [0, 1, 2, 3], [1, 1, 1, 1]):
        g.output(g.node("Gather", [x, g.constant(np.array(places))], x.array[:, :, places], axis=2))


def place_beyond(g):
    x = g.input("x", g.random.randn(ADS, 3, 2).astype(np.float32))
    turned = g.node("Transpose", [x], x.array.transpose(1, 0, 2), perm=[1, 0, 2])
    g.output(g.node("GatherND", [turned, g.constant(np.array([[0], [3]]))],
                    np.zeros((2, ADS, 2), np.float32)))


def products_of_fields(g):
    """DLRM: the products of fields with each other, of which those below the diagonal stay."""
    for fields, width in ((5, 8), (6, 3)):
        x = g.input(g.fresh("x"), g.random.randn(ADS, fields, width).astype(np.float32))
        turned = g.node("Transpose", [x], x.array.transpose(0, 2, 1), perm=[0, 2, 1])
        products = g.node("MatMul", [x, turned], x.array @ turned.array)
        at = np.stack(np.tril_indices(fields, -1), -1)
        apart = g.node("Transpose", [products], products.array.transpose(1, 2, 0), perm=[1, 2, 0])
        found = g.node("GatherND", [apart, g.constant(at)], apart.array[at[:, 0], at[:, 1]])
        g.output(g.node("Transpose", [found], found.array.T, perm=[1, 0]))


def kept_by_expand(g):
    """expand(-1, 4, -1) as torch.onnx.export's newer exporter writes it, with sizes and -1."""
    x = g.input("x", g.random.randn(ADS, 1, 3).astype(np.float32))
    rows = g.node("Slice", [g.node("Shape", [x], np.array(x.array.shape)), g.ints(0), g.ints(1)],
                  np.array([ADS]))
    size = g.node("Concat", [rows, g.ints(4, -1)], np.array([ADS, 4, -1]), axis=0)
    size = g.node("Abs", [size], np.array([ADS, 4, 1]))
    g.output(g.node("Expand", [x, size], np.repeat(x.array, 4, 1)))


def integers_sorted_long_ago(g):
    """places.sort()[0] of operator set 9, which sorts them the other way around."""
    g.opset = 9
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    for of in (x.name, "places"):
        g.nodes.append(helper.make_node("TopK", [of], [f"best_{of}", "places" if of == "x" else "last"],
                                        axis=1, k=3))
    order = np.sort(np.argsort(-x.array, 1)[:, :3], 1)[:, ::-1]
    g.output(g.keep(Value("best_places", order, "ads")))


PATTERNS = [step_that_an_id_tells, example_without_dynamic_axes, exported_long_ago, column_of_the_example, table_for_each_row, no_columns_assigned, rows_that_squeeze_drops, known_places,
            as_many_entries_as_there_are, products_of_fields, kept_by_expand,
            best_steps_in_order, ranks_of_steps,
            few_and_many_of_the_best, gates_of_the_best, entries_added_up,
            entries_of_constant_places, rows_sorted_and_back, step_of_each_row_behind_it,
            order_sorted, last_step_of_a_length, last_step_of_a_mask, best_logarithms,
            steps_assigned, column_replaced, steps_in_front, places_of_the_rows, ads_after_others, parts_of_nothing, ids_of_nothing, slices_assigned, columns_assigned_a_constant,
            step_of_each_row, masked_select, merged_heads, sums_across_rows,
            extremes_across_rows, rows_beside_rows,
            product_with_merged_steps, places_from_the_end, one_entry_for_all_rows,
            statistics_of_the_rows, variance_of_the_rows, steps_of_each_row,
            flat_steps_of_each_row, several_of_some,
            entries_of_computed_places, best_of_few, index_filled, same_entries_of_each_row,
            rows_squeezed, mask_for_each_candidate, step_of_each_title]
REFUSED = [(place_beyond, "index 3 of 3 entries"),
           (loss_beside_scores, "one for all rows of a request"),
           (entries_that_are_lost, "loses all but one"),
           (integers_sorted_long_ago, "loses its order"),
           (statistics_while_trained, "call eval()"),
           (mean_by_the_rows_of_the_example, "divides a sum over the request's rows by"),
           (rows_of_the_example, "joins the rows"),
           (steps_of_the_example, "the rows of the export's example"),
           (norm_of_nothing, "do not broadcast")]
