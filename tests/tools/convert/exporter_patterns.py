"""Patterns that exporters write, with numpy's values: what must convert, and what is refused."""
# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from random_graph import ADS, Value, matrix


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


def integers_limited(g):
    """What single precision has as long as the inputs are not too large, which requests show."""
    ids = g.random.randint(-9000, 9000, (3, ADS, 3))
    ids[1] = np.where(g.random.rand(ADS, 3) < 0.5, ids[0], ids[1])
    a, b, c = (g.input(*named) for named in zip("abc", ids))
    integer = lambda op, x, by, array: raw(g, op, [x, by], array)  # noqa: E731
    g.output(g.cast(g.binary("Equal", a, b), "float"))
    less = integer("Sub", b, c, ids[1] - ids[2])
    whole = np.trunc(less.array / 360).astype(np.int64)
    whole = integer("Div", less, g.constant(np.array(360)), whole)
    g.output(g.cast(whole, "float"))
    hashed = integer("Mul", a, g.constant(np.array(97)), ids[0] * 97)
    place = integer("Mod", hashed, g.constant(np.array(11)), ids[0] * 97 % 11)
    table = g.constant(g.random.randn(11, 4).astype(np.float32))
    g.output(raw(g, "Gather", [table, place], table.array[place.array]))


def computed_bias(g):
    """x @ weight + y, which the exporter makes one Gemm of."""
    x, y = (g.input(n, g.random.randn(ADS, k).astype(np.float32)) for n, k in (("x", 3), ("y", 2)))
    weight = g.constant(g.random.randn(3, 2).astype(np.float32))
    twice = g.binary("Add", y, y)
    g.output(raw(g, "Gemm", [x, weight, twice], x.array @ weight.array + twice.array))


def classes_compared(g):
    """The class of each click, out of a table, with the ad's own, however large that is."""
    hist = g.input("hist", g.random.randint(0, 7, (ADS, 4)))
    own = g.input("own", g.random.randint(0, 3, (ADS, 1)) + (g.random.randint(0, 2, (ADS, 1)) << 33))
    classes = g.look_up(g.constant(g.random.randint(0, 3, 7)), hist)
    turned = g.node("Transpose", [classes], classes.array.T, perm=[1, 0])
    back = g.node("Transpose", [turned], classes.array, perm=[1, 0])
    for op in ("Equal", "Less", "Greater"):
        g.output(g.binary(op, back, own))
    g.output(g.look_up(g.constant(g.random.randn(7, 2).astype(np.float32)), hist))


def half_precision(g):
    """Computed in single precision; numbers that both have."""
    g.opset = 14
    x = g.input("x", g.random.randint(-8, 9, (ADS, 4)).astype(np.float32) / 4)
    weight = g.constant(g.random.randint(-8, 9, (4, 3)).astype(np.float16) / 4)
    half = Value(g.fresh("half"), x.array.astype(np.float16), "ads")
    g.nodes.append(helper.make_node("Cast", [x.name], [half.name], to=TensorProto.FLOAT16))
    product = Value(g.fresh("product"), half.array @ weight.array, "ads")
    g.nodes.append(helper.make_node("MatMul", [half.name, weight.name], [product.name]))
    g.output(g.cast(product, "float"))


def integers_clipped(g):
    """However large they are, what lies between small limits is exact."""
    x = g.input("day", g.random.randint(-9, 99, (ADS, 2)) + (g.random.randint(0, 2, (ADS, 2)) << 33))
    low, high = (g.constant(np.array(limit)) for limit in (0, 50))
    kept = g.keep(Value("kept", x.array.clip(0, 50), "ads"))
    g.nodes.append(helper.make_node("Clip", [x.name, low.name, high.name], [kept.name]))
    g.output(g.binary("Mod", kept, g.constant(np.array(7))))
    g.output(g.binary("Div", kept, g.constant(np.array(7))))


def dropout_off(g):
    x = g.input("x", g.random.randn(ADS, 2).astype(np.float32))
    for training, ratio in ((False, 0.5), (True, 0)):
        inputs = g.constant(np.array(ratio, np.float32)), g.constant(np.array(training))
        g.output(g.node("Dropout", [x, *inputs], x.array))


def numbers_as_they_were_written(g):
    """Softmax of a single weight; an integer beside floats: PyTorch takes both."""
    x = g.input("x", g.random.randn(ADS, 2).astype(np.float32))
    one = g.node("Softmax", [g.constant(np.array(0.7, np.float32))], np.array(1, np.float32),
                 axis=-1)
    kept = g.binary("Greater", x, g.constant(np.array(0, np.float32)))
    result = np.where(kept.array, x.array, np.float32(-99))
    where = g.node("Where", [kept, x, g.constant(np.array(-99))], result)
    g.output(g.node("Mul", [where, one], result))


def logarithm_as_an_id(g):
    """What no request has, numbers below 0, has none."""
    x = g.input("seconds", g.random.rand(ADS, 2).astype(np.float32) * 200)
    log = g.node("Log", [x], np.log(x.array))
    at = g.node("Clip", [g.cast(log, "int"), g.constant(np.array(0)), g.constant(np.array(4))],
                np.log(x.array).astype(np.int64).clip(0, 4))
    g.output(g.look_up(g.constant(g.random.randn(5, 2).astype(np.float32)), at))


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


def ids_below_zero(g):
    """Padding of -1 or -100 beside its mask, in every form that keeps it away from the table."""
    ids = g.input("I", g.random.choice([-100, -2, -1, 0, 1, 5, 8], (ADS, 4)))
    zero, rows = g.constant(np.array(0)), g.random.randn(9, 2).astype(np.float32)
    table, a = g.constant(rows), ids.array
    some = g.binary("GreaterOrEqual", ids, zero)
    kept = g.node("Where", [some, ids, zero], np.where(a >= 0, a, 0))
    g.output(g.look_up(table, kept))
    g.output(g.look_up(table, g.node("Clip", [ids, zero], a.clip(0))))
    g.output(g.look_up(table, g.binary("Mul", ids, g.cast(some, "int"))))
    g.output(some)
    g.output(g.node("Not", [g.binary("Equal", ids, g.constant(np.array(-1)))], a != -1))
    g.output(g.cast(ids, "float"))


def ids_far_below_zero(g):
    """However large the number that pads; and rows counted from the end of a table."""
    ids = g.input("I", g.random.choice([-2 ** 31, -70000, -1000, -129, -1, 0, 1, 5, 8], (ADS, 6)))
    zero, rows = g.constant(np.array(0)), g.random.randn(9, 2).astype(np.float32)
    some = g.keep(Value("some", ids.array >= 0, "ads"))
    g.nodes.append(helper.make_node("GreaterOrEqual", [ids.name, zero.name], [some.name]))
    kept = g.keep(Value("kept", np.where(some.array, ids.array, 0), "ads"))
    g.nodes.append(helper.make_node("Where", [some.name, ids.name, zero.name], [kept.name]))
    keys = g.look_up(g.constant(rows), kept)
    mask = g.unsqueeze(g.cast(some, "float"), 2)
    g.output(g.binary("Mul", keys, mask))
    g.output(some)
    wrapped = g.input("W", g.random.randint(-100, 100, (ADS, 4)))
    large = g.random.randn(100, 2).astype(np.float32)
    g.output(g.node("Gather", [g.constant(large), wrapped], large[wrapped.array]))
    # Of one input, a column that a table looks up as it is, and others.
    mixed = g.random.choice([-2 ** 31, -1000, -129, -1, 0, 1, 8], (ADS, 3))
    mixed[:, 0] = g.random.randint(-9, 9, ADS)
    mixed = g.input("M", mixed)
    first = g.pick(mixed, 1, 0)
    g.output(g.node("Gather", [g.constant(rows), first], rows[first.array]))
    most = g.binary("Max", mixed, g.constant(np.array(1)))
    g.output(g.look_up(g.constant(rows), most))


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


def ids_before_the_table(g):
    """-1 is row 0; without that, ids below 0 count from the end."""
    ids = g.input("I", g.random.randint(-1, 7, (ADS, 4)))
    rows = g.random.randn(8, 2).astype(np.float32)
    g.output(g.look_up(g.constant(rows), g.binary("Add", ids, g.constant(np.array(1)))))
    g.output(g.node("Gather", [g.constant(rows), ids], rows[ids.array]))
    g.output(g.binary("Greater", ids, g.constant(np.array(-1))))


def ids_in_parts(g):
    """Quotient and remainder of an id, with a table each; a table of what a test says."""
    ids = g.input("I", g.random.randint(0, 36, (ADS, 3)))
    four = g.constant(np.array(4))
    for op, rows in (("Div", 9), ("Mod", 4)):
        table = g.constant(g.random.randn(rows, 2).astype(np.float32))
        g.output(g.look_up(table, g.binary(op, ids, four)))
    table = g.constant(g.random.randn(2, 3).astype(np.float32))
    g.output(g.look_up(table, g.cast(g.binary("Greater", ids, four), "int")))


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


def entries_added_up(g):
    """scatter_add from operator set 16 on."""
    g.opset = 16
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    part = g.slice(x, 1, 0, 3)
    zeros = g.binary("Mul", part, g.constant(np.array(0, np.float32)))
    g.output(added_up(g, x, zeros, reduction="add"))


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


def rows_sorted_and_back(g):
    """As packed sequences are, by length."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    length = g.input("length", np.array([3, 1, 5, 2, 4], np.float32))
    g.nodes.append(helper.make_node("Shape", [length.name], ["rows"]))
    g.nodes.append(helper.make_node("TopK", [length.name, "rows"], ["sorted", "order"], axis=0))
    at = np.argsort(-length.array, kind="stable")
    order = g.keep(Value("order", at, "ads"))
    mixed = g.node("Tanh", [g.node("Gather", [x, order], x.array[at], axis=0)], np.tanh(x.array[at]))
    g.nodes.append(helper.make_node("Shape", ["order"], ["count"]))
    g.nodes.append(helper.make_node("ConstantOfShape", ["count"], ["empty"],
                                    value=numpy_helper.from_array(np.zeros(1, np.int64))))
    g.nodes.append(helper.make_node("Gather", ["count", g.constant(np.array(0)).name], ["n"]))
    g.nodes.append(helper.make_node("Range", [g.constant(np.array(0)).name, "n",
                                              g.constant(np.array(1)).name], ["numbers"]))
    g.nodes.append(helper.make_node("ScatterElements", ["empty", "order", "numbers"], ["back"]))
    back = g.cast(g.keep(Value("back", np.argsort(at), "ads")), "int")
    g.output(g.node("Gather", [mixed, back], np.tanh(x.array), axis=0))


def parts_without_anything(g):
    x = g.input("x", g.random.randn(ADS, 3, 2).astype(np.float32))
    names = ["none", "also", "first", "rest"]
    g.nodes.append(helper.make_node("Split", [x.name, g.ints(0, 0, 1, 2).name], names, axis=1))
    none, also, first, rest = (Value(n, a, "ads") for n, a in zip(
        names, np.split(x.array, [0, 0, 1], 1)))
    g.output(g.node("Concat", [none, first], first.array, axis=1))
    g.output(g.node("Concat", [rest, also], rest.array, axis=1))


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


def recurrent(g, op, directions, linear, packed, outputs=("all", "last")):
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
    # Zeros of the rows that the exporter saw, which others do not fit.
    rows = g.node("Gather", [g.node("Shape", [turned], np.array([4, ADS, 3])), g.ints(1)],
                  np.array([ADS]), axis=0)
    shape = g.node("Concat", [g.ints(directions), rows, g.ints(n)],
                   np.array([directions, ADS, n]), axis=0)
    seen = g.constant(np.zeros((directions, ADS, n), np.float32))
    state = g.node("Expand", [seen, shape], seen.array, rows="ads").name
    steps = [g.node("Cast", [lengths], lengths.array.astype(np.int32),
                    to=TensorProto.INT32).name] if packed else []
    g.nodes.append(helper.make_node(
        op, [turned.name, *(g.constant(v).name for v in (w, r, b)), *(steps or [""]),
             *[state] * (2 if op == "LSTM" else 1)],
        [name if name in outputs else "" for name in ("all", "last")], hidden_size=n,
        direction="bidirectional" if directions == 2 else "forward", **attributes))
    for name in outputs:
        array = {"all": every, "last": last}[name]
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


def last_state_of_each_length(g):
    recurrent(g, "GRU", 1, 1, True, ["last"])


def einsum_of_three(g):
    """The outer product of product-based networks: what a pair of fields has, by a kernel each."""
    p, q = (g.input(n, g.random.randn(ADS, 3, 4).astype(np.float32)) for n in "pq")
    kernel = g.constant(g.random.randn(3, 4, 4).astype(np.float32))
    g.output(g.node("Einsum", [p, kernel, q],
                    np.einsum("bpi,pij,bpj->bp", p.array, kernel.array, q.array), rows="ads",
                    equation="bpi,pij,bpj->bp"))


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


def sums_across_rows(g):
    """A list's statistics beside every ad's own: scored whole."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    mean = g.node("ReduceMean", [x], x.array.mean(0, keepdims=True), axes=[0], keepdims=1)
    centred = g.node("Sub", [x, mean], x.array - mean.array)
    e = np.exp(x.array - x.array.max(0))
    share = g.node("Softmax", [x], e / e.sum(0), axis=0)
    square = g.node("ReduceSumSquare", [centred], (centred.array ** 2).sum(0), axes=[0], keepdims=0)
    g.output(g.node("Add", [share, square], share.array + square.array, rows="ads"))


def raw(g, op, inputs, array, rows="ads", **attributes):
    """A node whose output numpy has no operator for."""
    value = Value(g.fresh(), array, rows)
    g.nodes.append(helper.make_node(op, [i.name for i in inputs], [value.name], **attributes))
    return g.keep(value) if isinstance(array, np.ndarray) else value


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


def bag(g, table, ids, begins, ends, array):
    """A loop that sums the rows of the table which each pass's slice of the ids names."""
    passes = g.pick(g.node("Shape", [ends], np.array([ADS])), 0, 0)
    zero, on = g.ints(0).name, g.constant(np.array(True))
    names = {n: g.fresh(n) for n in "pass on go b e b1 e1 row rows sum".split()}
    node = lambda op, ins, out, **more: helper.make_node(  # noqa: E731
        op, [names.get(i, i) for i in ins], [names[out]], **more)
    body = helper.make_graph(
        [node("Gather", [begins.name, "pass"], "b", axis=0), node("Unsqueeze", ["b", zero], "b1"),
         node("Gather", [ends.name, "pass"], "e", axis=0), node("Unsqueeze", ["e", zero], "e1"),
         node("Slice", [ids.name, "b1", "e1", zero], "row"),
         node("Gather", [table.name, "row"], "rows", axis=0),
         node("ReduceSum", ["rows", zero], "sum", keepdims=0),
         node("Identity", [on.name], "go")], "body",
        [helper.make_tensor_value_info(names["pass"], TensorProto.INT64, []),
         helper.make_tensor_value_info(names["on"], TensorProto.BOOL, [])],
        [helper.make_tensor_value_info(names["go"], TensorProto.BOOL, []),
         helper.make_tensor_value_info(names["sum"], TensorProto.FLOAT, [2])])
    g.output(raw(g, "Loop", [passes, on], array, body=body))


def embedding_bags(g):
    """EmbeddingBag over rows of ids, whose offsets end with all of them; and with one in each."""
    ids = g.input("ids", g.random.randint(0, 7, (ADS, 3)))
    table = g.constant(g.random.randn(7, 2).astype(np.float32))
    size = g.node("Shape", [ids], np.array([ADS, 3]))
    for width in (3, 1):
        if width == 3:
            flat = g.node("Reshape", [ids, g.ints(-1)], ids.array.reshape(-1))
            total = g.node("ReduceProd", [size], np.array(3 * ADS), keepdims=0)
        else:
            flat, total = g.pick(ids, 1, 0), g.pick(size, 0, 0)
        at = np.arange(0, width * ADS + 1, width)
        begins = g.node("Range", [g.constant(np.array(0)), total, g.constant(np.array(width))],
                        at[:-1], rows="ads")
        end = g.node("Unsqueeze", [total, g.ints(0)], at[-1:])
        every = g.node("Concat", [begins, end], at, axis=0)
        ends = g.node("Slice", [every, g.ints(1), g.ints(1 << 62), g.ints(0)], at[1:])
        firsts = g.node("Slice", [every, g.ints(0), g.ints(-1), g.ints(0)], at[:-1])
        for first in (every, firsts):
            bag(g, table, flat, first, ends, table.array[flat.array].reshape(ADS, width, 2).sum(1))


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


PATTERNS = [one_matrix, one_integer_matrix, column_as_id_and_number, sequence_in_a_matrix,
            whole_matrix_cast_first, every_other_column, split_matrix, user_matrix, cast_truncates,
            integer_arithmetic, integers_compared, integers_limited, classes_compared,
            half_precision, computed_bias,
            integers_clipped, dropout_off, numbers_as_they_were_written, no_columns_assigned,
            logarithm_as_an_id, fields_of_one_table,
            fields_of_several_inputs, masks_of_ids, ids_below_zero, ids_far_below_zero,
            ids_before_the_table,
            ids_in_parts, rows_that_a_mask_chooses, gates_of_the_best, entries_added_up,
            causal_convolution, rows_sorted_and_back,
            parts_without_anything,
            classes_of_items, last_step_of_a_length,
            sequences, attention_of_today, groups_normalised, steps_assigned,
            column_replaced, slices_assigned, step_of_each_row, einsum_with_diagonals,
            arithmetic_of_constants, branch_by_shape, masked_select,
            merged_heads, einsum_of_three, einsum_of_any_rank, sines_of_large_numbers, sums_across_rows,
            softmax_less_the_maximum, places_from_the_end, sparsemax, embedding_bags, steps_in_a_loop,
            *recurrent_patterns(), last_state_of_each_length]


# ---------------------------------------------------------------- patterns that are refused by name

def timestamps_subtracted(g):
    a = g.input("now", np.full((ADS, 1), 1_700_000_001) + g.random.randint(0, 50, (ADS, 1)))
    b = g.input("then", np.full((ADS, 1), 1_700_000_000))
    g.nodes.append(helper.make_node("Sub", [a.name, b.name], ["d"]))
    g.output(g.cast(g.keep(Value("d", a.array - b.array, "ads")), "float"))


def integers_rounded_to_the_limit(g):
    x = g.input("day", (1 << 24) + g.random.randint(0, 2, (ADS, 2)))
    g.output(g.binary("Equal", x, g.constant(np.array(1 << 24))))


def squares_of_ids(g):
    """Whole numbers beyond 2^24, of which an integer remainder is wanted."""
    ids = g.input("ids", g.random.randint(5000, 6000, (ADS, 2)))
    by = g.cast(g.input("by", 3 + 4 * g.random.rand(ADS, 2).astype(np.float32)), "int")
    g.output(g.look_up(g.constant(g.random.randn(6000, 2).astype(np.float32)), ids))
    square = raw(g, "Mul", [ids, ids], ids.array ** 2)
    g.output(raw(g, "Mod", [square, by], square.array % by.array))


def half_precision_given_back(g):
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    g.output(raw(g, "Cast", [x], x.array, to=TensorProto.FLOAT16))


def half_precision_and_back(g):
    """x.half().float(), which rounds."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    half = Value(g.fresh("half"), x.array.astype(np.float16), "ads")
    g.nodes.append(helper.make_node("Cast", [x.name], [half.name], to=TensorProto.FLOAT16))
    g.output(g.cast(half, "float"))


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


def rows_that_meet_others(g):
    """Less the mean of the rows that a mask chooses."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    mask = g.binary("Greater", g.pick(x, 1, 0), g.constant(np.array(0, np.float32)))
    chosen = g.node("GatherND", [x, rows_of(g, mask)], x.array[mask.array])
    mean = g.node("ReduceMean", [chosen], chosen.array.mean(0, keepdims=True), axes=[0])
    centred = g.node("Sub", [chosen, mean], chosen.array - mean.array)
    g.output(g.node("ScatterND", [x, rows_of(g, mask), centred], x.array, rows="ads"))


def loss_beside_scores(g):
    """PyTorch writes such a sum wrong where the model adds to it in place."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    g.output(g.node("Sigmoid", [x], 1 / (1 + np.exp(-x.array)), rows="ads"))
    g.output(g.node("ReduceMean", [x], x.array.mean(), keepdims=0))


def entries_that_are_lost(g):
    """scatter_add before operator set 16: of two for a place one is added."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    shape = g.node("Shape", [g.slice(x, 1, 0, 3)], np.array([ADS, 3]))
    zeros = g.node("ConstantOfShape", [shape], np.zeros((ADS, 3), np.float32))
    g.output(g.binary("Add", g.slice(x, 1, 0, 3), added_up(g, x, zeros)))


REFUSED = [(timestamps_subtracted, 'input "now": element 0'), (dropout_on, "training_mode"),
           (loop_that_ends_early, "may end early"),
           (half_precision_given_back, "half precision"),
           (half_precision_and_back, "rounds to half precision"),
           (integers_rounded_to_the_limit, 'input "day": element'), (squares_of_ids, "of 2^24 or more"),
           (rows_that_meet_others, "across rows"),
           (loss_beside_scores, "one for all rows of a request"),
           (entries_that_are_lost, "loses all but one")]
