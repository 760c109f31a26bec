"""Patterns of ids, of one matrix for all features, and of integers."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
from onnx import TensorProto, helper

from random_graph import ADS, Value, matrix, raw


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


def hashed_ids(g):
    """(id * prime + offset) % buckets: products beyond 2^24, one prime and several."""
    ids = g.input("ids", g.random.randint(-(1 << 23), 1 << 23, (ADS, 3)))
    one = g.constant(np.array(2654435761))
    for by, plus, buckets in ((one, 12345, 101), (g.ints(31, 7919, -15485863), -7, 10007),
                              (one, 0, (1 << 21) - 9), (g.ints(1, 0, 40), 3, 64)):
        product = raw(g, "Mul", [ids, by], ids.array * by.array)
        plus = g.constant(np.array(plus))
        place = raw(g, "Add", [plus, product], plus.array + product.array)
        twice = raw(g, "Mul", [place, g.ints(3)], place.array * 3)
        for x in (place, twice, raw(g, "Sub", [ids, twice], ids.array - twice.array)):
            place = raw(g, "Mod", [x, g.constant(np.array(buckets))], x.array % buckets)
            g.output(raw(g, "Mod", [place, g.constant(np.array(997))], place.array % 997))


def pairs_hashed(g):
    """(user * prime + item) % buckets, of ids that have a table and of others, into a table."""
    user = g.input("user", g.random.randint(0, 50, ADS))
    g.output(g.look_up(g.constant(g.random.randn(50, 2).astype(np.float32)), user))
    item = g.input("item", g.random.randint(0, 1 << 20, ADS))
    prime, buckets = g.constant(np.array(1000003)), g.constant(np.array(9973))
    product = raw(g, "Mul", [user, prime], user.array * 1000003)
    pair = raw(g, "Add", [product, item], product.array + item.array)
    place = raw(g, "Mod", [pair, buckets], pair.array % 9973)
    g.output(g.look_up(g.constant(g.random.randn(9973, 2).astype(np.float32)), place))


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


def booleans_as_bytes(g):
    """mask.byte(), mask.short(): 0 and 1, as floats and summed as longer integers."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    mask = g.binary("Greater", x, g.constant(np.array(0.25, np.float32)))
    for kind, to in ((np.uint8, TensorProto.UINT8), (np.int16, TensorProto.INT16)):
        small = raw(g, "Cast", [mask], mask.array.astype(kind), to=to)
        g.output(g.binary("Mul", x, g.cast(small, "float")))
        many = raw(g, "Cast", [small], small.array.astype(np.int64), to=TensorProto.INT64)
        total = g.with_axes("ReduceSum", many, [1], many.array.sum(1, keepdims=True), 13)
        g.output(g.binary("Mul", x, g.cast(total, "float")))


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


def masks_to_the_lowest(g):
    """BERT's (1 - mask) * finfo.min of an integer input, which is infinite for others than 0 and 1."""
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    kept = g.random.randint(0, 2, (ADS, 4))
    kept[:, 0] = 1
    mask = g.cast(g.input("attention_mask", kept), "float")
    one, lowest = (g.constant(np.array(v, np.float32)) for v in (1, np.finfo(np.float32).min))
    none = raw(g, "Mul", [g.binary("Sub", one, mask), lowest], (1 - mask.array) * lowest.array)
    scores = raw(g, "Add", [x, none], x.array + none.array)
    weights = np.exp(x.array) * (kept == 1)
    g.output(g.node("Softmax", [scores], weights / weights.sum(1, keepdims=True), axis=-1))


def masks_of_the_size_of_ids(g):
    """torch.zeros(ids.shape).masked_fill(ids == 0, -1e2)[:, None, :], which is added to scores."""
    ids = g.input("I", g.random.randint(0, 9, (ADS, 4)))
    rows = g.look_up(g.constant(g.random.randn(9, 4).astype(np.float32)), ids)
    none = g.binary("Equal", ids, g.constant(np.array(0)))
    zeros = g.node("ConstantOfShape", [g.node("Shape", [ids], np.array([ADS, 4]))],
                   np.zeros((ADS, 4), np.float32))
    filled = np.where(none.array, np.float32(-1e2), zeros.array)
    mask = g.node("Where", [none, g.constant(np.array(-1e2, np.float32)), zeros], filled)
    g.output(g.binary("Add", rows, g.node("Unsqueeze", [mask, g.ints(1)], filled[:, None])))


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


def ids_before_the_table(g):
    """-1 is row 0; without that, ids below 0 count from the end."""
    ids = g.input("I", g.random.randint(-1, 7, (ADS, 4)))
    rows = g.random.randn(8, 2).astype(np.float32)
    g.output(g.look_up(g.constant(rows), g.binary("Add", ids, g.constant(np.array(1)))))
    g.output(g.node("Gather", [g.constant(rows), ids], rows[ids.array]))
    g.output(g.binary("Greater", ids, g.constant(np.array(-1))))


def clipped_ids_as_numbers(g):
    """torch.where(ids >= 0, ids + 1, fill), of one number or of one each, beside clipped ids."""
    ids = g.input("I", g.random.randint(-3, 7, (ADS, 3)))
    rows = g.constant(g.random.randn(8, 2).astype(np.float32))
    g.output(g.look_up(rows, g.binary("Max", ids, g.constant(np.array(0)))))
    some = g.binary("Greater", ids, g.constant(np.array(-1)))
    for step in ([1], [0, 1, 2]):
        moved = g.binary("Add", ids, g.constant(np.array(step)))
        twice = g.binary("Mul", moved, g.constant(np.array(2)))
        for fill in ([[0, 0, 0]], [[0, 1, 2]]):
            fill = g.constant(np.array(fill))
            for of in (moved, twice):
                g.output(g.node("Where", [some, of, fill],
                                np.where(some.array, of.array, fill.array)))


def ids_padded(g):
    """F.pad(ids, (2, 1), value=3) on the way to a table and to a mask."""
    ids = g.input("I", g.random.randint(0, 6, (ADS, 3)))
    padded = g.node("Pad", [ids, g.ints(0, 2, 0, 1), g.constant(np.array(3))],
                    np.pad(ids.array, ((0, 0), (2, 1)), constant_values=3))
    g.output(g.look_up(g.constant(g.random.randn(6, 2).astype(np.float32)), padded))
    g.output(g.binary("Greater", padded, g.constant(np.array(0))))


def ids_in_parts(g):
    """Quotient and remainder of an id, with a table each; a table of what a test says."""
    ids = g.input("I", g.random.randint(0, 36, (ADS, 3)))
    four = g.constant(np.array(4))
    for op, rows in (("Div", 9), ("Mod", 4)):
        table = g.constant(g.random.randn(rows, 2).astype(np.float32))
        g.output(g.look_up(table, g.binary(op, ids, four)))
    table = g.constant(g.random.randn(2, 3).astype(np.float32))
    g.output(g.look_up(table, g.cast(g.binary("Greater", ids, four), "int")))


def classes_of_items(g):
    """An item's classes out of a table of integers, each with an embedding; tables of matrices."""
    ids = g.input("I", g.random.randint(0, 9, (ADS, 2)))
    classes = g.look_up(g.constant(g.random.randint(0, 6, (9, 4))), ids)
    g.output(classes)
    g.output(g.look_up(g.constant(g.random.randn(6, 3).astype(np.float32)), classes))
    g.output(g.look_up(g.constant(g.random.randn(9, 2, 3).astype(np.float32)), ids))


def bag(g, table, ids, begins, ends, array, weights=None):
    """A loop that sums the rows of the table which each pass's slice of the ids names."""
    passes = g.pick(g.node("Shape", [ends], np.array([ADS])), 0, 0)
    zero, on = g.ints(0).name, g.constant(np.array(True))
    names = {n: g.fresh(n) for n in "pass on go b e b1 e1 row rows part wide by sum".split()}
    node = lambda op, ins, out, **more: helper.make_node(  # noqa: E731
        op, [names.get(i, i) for i in ins], [names[out]], **more)
    body = helper.make_graph(
        [node("Gather", [begins.name, "pass"], "b", axis=0), node("Unsqueeze", ["b", zero], "b1"),
         node("Gather", [ends.name, "pass"], "e", axis=0), node("Unsqueeze", ["e", zero], "e1"),
         node("Slice", [ids.name, "b1", "e1", zero], "row"),
         node("Gather", [table.name, "row"], "rows", axis=0),
         *([] if weights is None else [
             node("Slice", [weights.name, "b1", "e1", zero], "part"),
             node("Unsqueeze", ["part", g.ints(1).name], "wide"),
             node("Mul", ["rows", "wide"], "by")]),
         node("ReduceSum", ["rows" if weights is None else "by", zero], "sum", keepdims=0),
         node("Identity", [on.name], "go")], "body",
        [helper.make_tensor_value_info(names["pass"], TensorProto.INT64, []),
         helper.make_tensor_value_info(names["on"], TensorProto.BOOL, [])],
        [helper.make_tensor_value_info(names["go"], TensorProto.BOOL, []),
         helper.make_tensor_value_info(names["sum"], TensorProto.FLOAT, [2])])
    return raw(g, "Loop", [passes, on], array, body=body)


def embedding_bags(g):
    """EmbeddingBag over rows of ids, whose offsets end with all of them; and with one in each."""
    ids = g.input("ids", g.random.randint(0, 7, (ADS, 3)))
    by = g.input("by", g.random.randn(ADS, 3).astype(np.float32))
    table = g.constant(g.random.randn(7, 2).astype(np.float32))
    size = g.node("Shape", [ids], np.array([ADS, 3]))
    for width in (3, 1):
        if width == 3:
            flat = g.node("Reshape", [ids, g.ints(-1)], ids.array.reshape(-1))
            weights = g.node("Reshape", [by, g.ints(-1)], by.array.reshape(-1))
            total = g.node("ReduceProd", [size], np.array(3 * ADS), keepdims=0)
        else:
            flat, total = g.pick(ids, 1, 0), g.pick(size, 0, 0)
            weights = g.pick(by, 1, 0)
        at = np.arange(0, width * ADS + 1, width)
        begins = g.node("Range", [g.constant(np.array(0)), total, g.constant(np.array(width))],
                        at[:-1], rows="ads")
        end = g.node("Unsqueeze", [total, g.ints(0)], at[-1:])
        every = g.node("Concat", [begins, end], at, axis=0)
        ends = g.node("Slice", [every, g.ints(1), g.ints(1 << 62), g.ints(0)], at[1:])
        firsts = g.node("Slice", [every, g.ints(0), g.ints(-1), g.ints(0)], at[:-1])
        for first in (every, firsts):
            rows = table.array[flat.array].reshape(ADS, width, 2)
            g.output(bag(g, table, flat, first, ends, rows.sum(1)))
            weighed = (rows * by.array[:, :width, None]).sum(1)
            g.output(bag(g, table, flat, first, ends, weighed, weights))


def weights_of_ids(g):
    """vector.gather(0, ids)."""
    x = g.input("x", g.random.randn(ADS).astype(np.float32))
    vector = g.constant(g.random.randn(7).astype(np.float32))
    ids = g.input("ids", g.random.randint(0, 7, ADS))
    own = g.node("GatherElements", [vector, ids], vector.array[ids.array], rows="ads", axis=0)
    g.output(g.binary("Mul", own, x))


def steps_that_a_hash_chooses(g):
    """Sums of the steps whose hash is the item's, by an EmbeddingBag of where a mask is not 0."""
    hashes, steps, width = 2, 4, 3
    x = g.input("x", g.random.randn(ADS, steps, width).astype(np.float32))
    mask = g.input("m", (g.random.randn(ADS, steps, hashes) > 0).astype(np.float32))
    mask = g.node("Cast", [g.cast(mask, "bool")], mask.array, to=TensorProto.FLOAT)
    mask = g.node("Transpose", [mask], mask.array.transpose(2, 0, 1), perm=[2, 0, 1])
    flat = g.node("Flatten", [mask], mask.array.reshape(hashes, -1), axis=1)
    at = np.array(np.nonzero(flat.array))
    pairs = g.node("Transpose", [g.node("NonZero", [flat], at)], at.T, perm=[1, 0])
    parts = [g.fresh() for _ in at]
    g.nodes.append(helper.make_node("Split", [pairs.name, g.ints(1, 1).name], parts, axis=1))
    places = g.squeeze(g.keep(Value(parts[1], at.T[:, 1:], "ads")), 1)
    counts = g.with_axes("ReduceSum", mask, [-1], mask.array.sum(-1), 13, keepdims=0)
    counts = g.node("Reshape", [counts, g.ints(-1)], counts.array.reshape(-1))
    ends = g.node("CumSum", [counts, g.constant(np.array(0))], counts.array.cumsum())
    ends = [g.constant(np.zeros(1, np.float32)), ends]
    ends = g.node("Concat", ends, np.concatenate([e.array for e in ends]), axis=0)
    ends = g.node("Cast", [ends], ends.array.astype(np.int64), to=TensorProto.INT64)
    behind = g.node("Slice", [ends, g.ints(1), g.ints(1 << 62), g.ints(0)], ends.array[1:])
    table = g.node("Reshape", [x, g.ints(-1, width)], x.array.reshape(-1, width))
    sums = np.einsum("hbl,blw->hbw", mask.array, x.array)
    bagged = bag(g, table, places, ends, behind, sums.reshape(-1, width))
    shape = g.node("Concat", [g.ints(hashes), g.ints(-1), g.ints(width)],
                   np.array([hashes, -1, width]), axis=0)
    if g.rows != "ads":  # Of an example.
        shape = g.ints(hashes, -1, width)
    each = g.node("Reshape", [bagged, shape], sums)
    g.output(g.with_axes("ReduceMean", each, [0], sums.mean(0), 18, keepdims=0))


def times(g, name, *shape):
    return g.input(name, g.random.randint(1_600_000_000, 1_700_000_000, (ADS, *shape)))


def hours_of(g, x):
    """x // 3600 % 24"""
    hours = raw(g, "Div", [x, g.constant(np.array(3600))], x.array // 3600)
    return raw(g, "Mod", [hours, g.constant(np.array(24))], hours.array % 24)


def hours_of_times(g):
    """An hour of the day into a table, in a zone; of one time per row, of several, of milliseconds."""
    table = g.constant(g.random.randn(24, 3).astype(np.float32))
    for name, shape in (("now", ()), ("seen", (4,)), ("clicks", (2, 3))):
        x = times(g, name, *shape)
        zone = g.constant(np.array(28800))
        moved = raw(g, "Add", [x, zone], x.array + 28800)
        for of in (x, moved):
            g.output(g.look_up(table, hours_of(g, of)))
    x = times(g, "precise")
    x.array = g.arrays["precise"] = x.array * 1000 + 7
    seconds = raw(g, "Div", [x, g.constant(np.array(1000))], x.array // 1000)
    g.output(g.look_up(table, hours_of(g, seconds)))


def ages(g):
    """now - then as a float and as a place in a table, (a[:, None] - b[None]).abs(), days apart."""
    a, b = times(g, "now"), times(g, "then")
    age = raw(g, "Sub", [a, b], a.array - b.array)
    g.output(raw(g, "Cast", [age], age.array.astype(np.float32), to=TensorProto.FLOAT))
    g.output(g.binary("Less", a, b))
    days = raw(g, "Div", [raw(g, "Abs", [age], abs(age.array)), g.constant(np.array(86400))],
               abs(age.array) // 86400)
    g.output(g.look_up(g.constant(g.random.randn(1200, 2).astype(np.float32)), days))
    fixed = raw(g, "Sub", [a, g.constant(np.array(1_600_000_001))], a.array - 1_600_000_001)
    g.output(raw(g, "Cast", [fixed], fixed.array.astype(np.float32), to=TensorProto.FLOAT))
    seen = times(g, "seen", 5)
    pairs = [raw(g, "Reshape", [seen, g.ints(0, 1, 5)], seen.array[:, None]),
             raw(g, "Reshape", [seen, g.ints(0, 5, 1)], seen.array[:, :, None])]
    apart = raw(g, "Sub", pairs, pairs[0].array - pairs[1].array)
    places = raw(g, "Mod", [apart, g.constant(np.array(97))], apart.array % 97)
    g.output(g.look_up(g.constant(g.random.randn(97, 2).astype(np.float32)), places))


def times_beside_ids(g):
    """x[:, 0] into a table, x[:, 1] // 3600 % 24 into another, x[:, 1] - x[:, 2]; of int64."""
    x = times(g, "x", 3)
    x.array[:, 0] = g.random.randint(0, 7, ADS)
    columns = [raw(g, "Gather", [x, g.constant(np.array(i))], x.array[:, i], axis=1) for i in range(3)]
    g.output(g.look_up(g.constant(g.random.randn(7, 2).astype(np.float32)), columns[0]))
    table = g.constant(g.random.randn(24, 3).astype(np.float32))
    g.output(g.look_up(table, hours_of(g, columns[1])))
    age = raw(g, "Sub", columns[1:], columns[1].array - columns[2].array)
    g.output(raw(g, "Cast", [age], age.array.astype(np.float32), to=TensorProto.FLOAT))


def ids_without_a_table(g):
    """Ids of any size, compared with each other and hashed."""
    a = g.input("a", g.random.randint(0, 1 << 50, ADS))
    b = g.input("b", np.where(g.random.rand(ADS) < 0.5, a.array, a.array + 1))
    for op in ("Equal", "Less", "Greater"):
        g.output(g.binary(op, a, b))
    place = raw(g, "Mod", [a, g.constant(np.array(101))], a.array % 101)
    g.output(g.look_up(g.constant(g.random.randn(101, 2).astype(np.float32)), place))
    x = g.input("day", (1 << 24) + g.random.randint(0, 2, (ADS, 2)))
    g.output(g.binary("Equal", x, g.constant(np.array(1 << 24))))
    chosen = raw(g, "Where", [g.binary("Less", a, b), a, b], np.where(a.array < b.array, a.array, b.array))
    g.output(g.binary("Equal", chosen, a))


def integers_beyond_double(g):
    x = g.input("x", (1 << 60) + g.random.randint(0, 9, ADS))
    place = raw(g, "Mod", [x, g.constant(np.array(101))], x.array % 101)
    g.output(raw(g, "Cast", [place], place.array.astype(np.float32), to=TensorProto.FLOAT))


def products_beyond_64_bits(g):
    """Hashed ids so large that the product starts over."""
    x = g.input("x", (1 << 40) + g.random.randint(0, 9, ADS))
    product = raw(g, "Mul", [x, g.constant(np.array(2654435761))], x.array * 2654435761)
    place = raw(g, "Mod", [product, g.constant(np.array(101))], product.array % 101)
    g.output(raw(g, "Cast", [place], place.array.astype(np.float32), to=TensorProto.FLOAT))


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


def half_precision_of_integers(g):
    """x.half().view(-1, 2, 2), read twice: integers from 2048 on are rounded."""
    x = g.input("x", g.random.randint(0, 60000, (ADS, 4)))
    half = raw(g, "Cast", [x], x.array.astype(np.float16), to=TensorProto.FLOAT16)
    pairs = raw(g, "Reshape", [half, g.ints(-1, 2, 2)], half.array.reshape(-1, 2, 2))
    for value in (pairs, half):
        g.output(raw(g, "Cast", [value], value.array.astype(np.float32), to=TensorProto.FLOAT))


def integers_that_lose_their_upper_bits(g):
    """x[:, 0] into a table, x[:, 1].int() as a number."""
    x = g.input("x", g.random.randint(0, 7, (ADS, 3)))
    first, second = (g.constant(np.array(v)) for v in (0, 1))
    ids = g.node("Gather", [x, first], x.array[:, 0], axis=1)
    table = g.constant(g.random.randn(7, 2).astype(np.float32))
    g.output(g.node("Gather", [table, ids], table.array[ids.array], axis=0))
    count = g.node("Gather", [x, second], x.array[:, 1], axis=1)
    count = g.node("Cast", [count], count.array.astype(np.int32), to=TensorProto.INT32)
    g.output(g.node("Cast", [count], count.array.astype(np.float32), to=TensorProto.FLOAT))


def remainders_by_division(g):
    """ids % 7 as PyTorch exports it before operator set 10; torch.cumsum of integers."""
    ids = g.input("ids", g.random.randint(0, 1000, (ADS, 3)))
    seven, zero, one = (g.constant(np.array(v)) for v in (7, 0, 1))
    whole = g.binary("Div", ids, seven)
    below = g.node("Less", [ids, zero], ids.array < 0)
    below = g.node("Xor", [below, g.constant(np.array(False))], below.array)
    rest = g.binary("Sub", ids, g.binary("Mul", whole, seven))
    some = g.node("Not", [g.node("Equal", [rest, zero], rest.array == 0)], rest.array != 0)
    fix = g.node("And", [below, some], below.array & some.array)
    fix = g.node("Cast", [fix], fix.array.astype(np.int64), to=TensorProto.INT64)
    whole = g.binary("Sub", whole, g.binary("Mul", fix, one))
    rest = g.binary("Sub", ids, g.binary("Mul", whole, seven))
    table = g.constant(g.random.randn(7, 2).astype(np.float32))
    g.output(g.node("Gather", [table, rest], table.array[rest.array], axis=0))
    counts = g.input("counts", g.random.randint(0, 9, (ADS, 4)))
    sums = g.node("CumSum", [counts, one], counts.array.cumsum(1))
    g.output(g.node("Cast", [sums], sums.array.astype(np.float32), to=TensorProto.FLOAT))


def ids_turned(g):
    """table[ids.t()].max(0), and of ids in front of the rows that are shifted."""
    ids = g.input("ids", g.random.randint(0, 7, (ADS, 3)))
    turned = g.node("Transpose", [ids], ids.array.T, perm=[1, 0])
    table = g.constant(g.random.randn(12, 2).astype(np.float32))
    for of in (turned, g.binary("Add", turned, g.ints(5))):
        rows = g.look_up(table, of)
        g.output(g.node("ReduceMax", [rows], rows.array.max(0), axes=[0], keepdims=0))
    front = g.unsqueeze(ids, 0)
    rows = g.look_up(table, front)
    g.output(g.node("Squeeze", [rows, g.ints(0)], rows.array[0]))


PATTERNS = [ids_turned, booleans_as_bytes, one_matrix, one_integer_matrix, column_as_id_and_number, sequence_in_a_matrix,
            whole_matrix_cast_first, every_other_column, split_matrix, user_matrix, cast_truncates,
            integer_arithmetic, integers_compared, integers_limited, hashed_ids, pairs_hashed, classes_compared,
            half_precision, integers_clipped, numbers_as_they_were_written, logarithm_as_an_id,
            fields_of_one_table, fields_of_several_inputs, masks_of_ids, masks_of_the_size_of_ids, masks_to_the_lowest,
            ids_below_zero,
            ids_far_below_zero, ids_before_the_table, clipped_ids_as_numbers, ids_padded, ids_in_parts, classes_of_items,
            embedding_bags, weights_of_ids, steps_that_a_hash_chooses,
            integers_that_lose_their_upper_bits, remainders_by_division,
            hours_of_times, ages, times_beside_ids, ids_without_a_table]
REFUSED = [(products_beyond_64_bits, 'input "x": element 0'),
           (integers_beyond_double, 'input "x": element 0'),
           (half_precision_given_back, "half precision"),
           (half_precision_and_back, "rounds to half precision"),
           (half_precision_of_integers, "rounds to half precision"),
           (squares_of_ids, "of 2^24 or more")]
