"""Patterns of exports without dynamic axes: the rows of the example are numbers."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
from onnx import helper

from patterns_ids import bag, steps_that_a_hash_chooses
from patterns_rows import sorted_by_length, step_of_each_row_behind_it
from random_graph import ADS, Value, raw, squeezed_if

STEPS = 2 * ADS


def product(g, a, b):
    return g.node("MatMul", [a, b], a.array @ b.array)


def reshape(g, x, sizes, array):
    return g.node("Reshape", [x, g.ints(*sizes)], array)


def swap(g, x):
    """The first two axes."""
    return g.node("Transpose", [x], x.array.swapaxes(0, 1), perm=[1, 0, 2])


def steps_in_front(g):
    """Heads, or steps, beside rows, with sizes of which several are multiples of the rows."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, STEPS, 4).astype(np.float32))
    steps = swap(g, x)
    heads = reshape(g, steps, (STEPS, ADS * 2, 2), steps.array.reshape(STEPS, ADS * 2, 2))
    best = g.node("ReduceMax", [heads], heads.array.max(0), axes=[0], keepdims=0)
    g.output(reshape(g, best, (ADS, 4), best.array.reshape(ADS, 4)))
    flat = reshape(g, steps, (STEPS * ADS, 4), steps.array.reshape(-1, 4))
    flat = product(g, flat, g.constant(g.random.randn(4, 3).astype(np.float32)))
    g.output(swap(g, reshape(g, flat, (STEPS, ADS, 3), flat.array.reshape(STEPS, ADS, 3))))


def sizes_by_a_condition(g):
    """x.expand(len(x), 3, -1), whose -1 becomes 1 by Where."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 1, 2).astype(np.float32))
    wanted = g.ints(ADS, 3, -1)
    same = g.node("Equal", [wanted, g.ints(-1)], wanted.array == -1)
    sizes = g.node("Where", [same, g.ints(1, 1, 1), wanted], np.array([ADS, 3, 1]))
    g.output(g.node("Expand", [x, sizes], x.array.repeat(3, 1), rows="ads"))


def constants_of_rows(g):
    """A mask of heads for every row, zeros that are scattered into, as many numbers as rows."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 6).astype(np.float32))
    heads = reshape(g, x, (ADS * 2, 3), x.array.reshape(-1, 3))
    mask = g.constant(np.tile(np.array([[1], [-2]], np.float32), (ADS, 1)))
    masked = g.node("Mul", [heads, mask], heads.array * mask.array)
    g.output(reshape(g, masked, (ADS, 6), masked.array.reshape(ADS, 6)))
    zeros = g.node("ConstantOfShape", [g.ints(ADS, 4)], np.zeros((ADS, 4), np.float32))
    at = g.constant(np.tile(np.array([[3, 1]]), (ADS, 1)))
    cut = g.slice(x, 1, 0, 2)
    array = np.zeros((ADS, 4), np.float32)
    array[:, [3, 1]] = cut.array
    g.output(g.node("ScatterElements", [zeros, at, cut], array, rows="ads", axis=1))
    y = g.input("y", g.random.randn(ADS, 4, 3).astype(np.float32))
    length = g.input("length", g.random.randint(0, 4, ADS))
    flat = reshape(g, y, (ADS * 4, 3), y.array.reshape(-1, 3))
    place = g.binary("Add", length, g.constant(np.arange(0, 4 * ADS, 4)))
    g.output(g.node("Gather", [flat, place], flat.array[place.array], axis=0))


def example_of_one_row(g):
    """nn.MultiheadAttention of one query, whose sizes of 1 are the row's and the query's."""
    g.rows, g.ad_inputs = 1, ["x", "y"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    y = g.input("y", g.random.randn(ADS, 3, 4).astype(np.float32))
    query = g.unsqueeze(x, 0)
    query = swap(g, reshape(g, query, (1, 2, 2), query.array.reshape(1, -1, 2)))
    keys = swap(g, y)
    keys = swap(g, reshape(g, keys, (3, 2, 2), keys.array.reshape(3, -1, 2)))
    turned = g.node("Transpose", [keys], keys.array.swapaxes(1, 2), perm=[0, 2, 1])
    mixed = swap(g, product(g, product(g, query, turned), keys))
    flat = reshape(g, mixed, (1, 4), mixed.array.reshape(-1, 4))
    steps = reshape(g, flat, (1, 1, 4), flat.array.reshape(1, -1, 4))
    g.output(g.pick(steps, 0, 0))


def sessions_of_one_row(g):
    """Self-attention over the steps of sessions, which are merged with the only row."""
    g.rows, g.ad_inputs = 1, ["ids"]
    ids = g.input("ids", g.random.randint(0, 9, (ADS, 3, 5)))
    table = g.constant(g.random.randn(9, 4).astype(np.float32))
    x = g.node("Gather", [table, ids], table.array[ids.array], axis=0)
    steps = swap(g, reshape(g, x, (3, 5, 4), x.array.reshape(-1, 5, 4)))
    heads = swap(g, reshape(g, steps, (5, 6, 2), steps.array.reshape(5, -1, 2)))
    turned = g.node("Transpose", [heads], heads.array.swapaxes(1, 2), perm=[0, 2, 1])
    mixed = swap(g, product(g, product(g, heads, turned), heads))
    flat = reshape(g, mixed, (15, 4), mixed.array.reshape(-1, 4))
    flat = product(g, flat, g.constant(g.random.randn(4, 4).astype(np.float32)))
    steps = swap(g, reshape(g, flat, (5, 3, 4), flat.array.reshape(5, -1, 4)))
    apart = reshape(g, steps, (1, 3, 5, 4), steps.array.reshape(-1, 3, 5, 4))
    g.output(g.node("ReduceMax", [apart], apart.array.max(2), axes=[2], keepdims=0))


def columns_of_the_only_row(g):
    """x[:, i].view(-1).view(x.size(0), -1), as embedding bags of one id are written, many times."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 7).astype(np.float32))
    columns = []
    for i in range(7):
        flat = reshape(g, g.slice(x, 1, i, i + 1), (-1,), x.array[:, i])
        columns.append(reshape(g, flat, (1, -1), x.array[:, i:i + 1]))
    g.output(g.node("Concat", columns, x.array, axis=1))


def steps_of_one(g):
    """q.view(1, -1, 2, 2) of one query: -1 is the steps, not the row."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    query = g.unsqueeze(x, 1)
    heads = reshape(g, query, (1, -1, 2, 2), query.array.reshape(-1, 1, 2, 2))
    heads = g.node("Transpose", [heads], heads.array.swapaxes(1, 2), perm=[0, 2, 1, 3])
    mixed = product(g, heads, g.constant(g.random.randn(2, 2, 3).astype(np.float32)))
    g.output(reshape(g, mixed, (1, 6), mixed.array.reshape(-1, 6)))


def outputs_of_any_rows(g):
    """The exporter says of the output only how many axes it has."""
    g.rows, g.output_rows = ADS, "out"
    x = g.input("x", g.random.randn(ADS, 6).astype(np.float32))
    g.output(reshape(g, x, (ADS, 2, 3), x.array.reshape(ADS, 2, 3)))


def user_of_the_example(g):
    """The user's row was exported as the ads' one row, and is joined to it."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    user = g.shared("u", g.random.randn(2).astype(np.float32))
    g.output(g.node("Concat", [x, user], np.concatenate([x.array, user.array], 1), axis=1))


def products_with_the_user_of_the_example(g):
    """torch.mm(ads, user.t())[:, 0] and torch.mm(user, ads.t())[0], by an example of one row."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    user = g.input("u", g.random.randn(1, 3).astype(np.float32), "user")
    g.user_inputs.append("u")
    turned = g.node("Transpose", [user], user.array.T, perm=[1, 0])
    g.output(g.pick(product(g, x, turned), 1, 0))
    columns = g.node("Transpose", [x], x.array.T, perm=[1, 0])
    each = g.node("MatMul", [user, columns], user.array @ columns.array, rows="ads")
    g.output(g.pick(each, 0, 0))


def bags_of_one_row(g):
    """The only row's ids as they are sent, and what is computed of them."""
    g.rows, g.ad_inputs = 1, ["ids"]
    ids = g.input("ids", g.random.randint(0, 7, (ADS, 3)))
    table = g.constant(g.random.randn(14, 2).astype(np.float32))
    best = g.node("ReduceMax", [ids], ids.array.max(1)[:, None], axes=[1])
    for of in (ids, g.binary("Add", ids, best)):
        flat = reshape(g, of, (-1,), of.array.reshape(-1))
        total = g.pick(g.node("Shape", [flat], np.array([3])), 0, 0)
        end = g.node("Unsqueeze", [total, g.ints(0)], np.array([3]))
        begins = g.node("Concat", [g.ints(0), end], np.array([0, 3]), axis=0)
        ends = g.node("Slice", [begins, g.ints(1), g.ints(1 << 62), g.ints(0)], np.array([3]))
        g.output(bag(g, table, flat, begins, ends, table.array[of.array].sum(1)))


def bags_of_one_size(g):
    """nn.EmbeddingBag, whose offsets are numbers: of rows of ids, and of one id in each."""
    g.rows = ADS
    ids = g.input("ids", g.random.randint(0, 7, (ADS, 3)))
    by = g.input("by", g.random.randn(ADS, 3).astype(np.float32))
    own = g.input("own", g.random.randint(0, 7, ADS))
    table = g.constant(g.random.randn(7, 2).astype(np.float32))
    weights = reshape(g, by, (-1,), by.array.reshape(-1))
    for flat, width in ((reshape(g, ids, (-1,), ids.array.reshape(-1)), 3), (own, 1)):
        total = g.pick(g.node("Shape", [flat], np.array([ADS * width])), 0, 0)
        at = np.arange(0, width * ADS + 1, width)
        end = g.node("Unsqueeze", [total, g.ints(0)], at[-1:])
        begins = g.node("Concat", [g.constant(at[:-1]), end], at, axis=0)
        ends = g.node("Slice", [begins, g.ints(1), g.ints(1 << 62), g.ints(0)], at[1:])
        rows = table.array[flat.array].reshape(ADS, width, 2)
        g.output(bag(g, table, flat, begins, ends, rows.sum(1)))
        if width == 3:
            weighed = (rows * by.array[:, :, None]).sum(1)
            g.output(bag(g, table, flat, begins, ends, weighed, weights))


def entries_that_are_assigned(g):
    """x[:, 2] = 7 and z[:, 1:3] = 7, whose places are numbers."""
    g.rows = ADS
    scatter(g)


def scatter(g):
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    rows = g.rows if g.rows != "ads" else ADS
    at = g.constant(np.array([[[i, 2]] for i in range(rows)]))
    seven = g.constant(np.full((rows, 1), 7, np.float32))
    array = x.array.copy()
    array[:, 2] = 7
    g.output(g.node("ScatterND", [x, at, seven], array, rows="ads"))
    z = g.input("z", g.random.randn(ADS, 4, 3).astype(np.float32))
    at = g.constant(np.stack(np.mgrid[:rows, 1:3, :3], -1))
    seven = g.constant(np.full((rows, 2, 3), 7, np.float32))
    array = z.array.copy()
    array[:, 1:3] = 7
    g.output(g.node("ScatterND", [z, at, seven], array, rows="ads"))


def entries_of_numbered_rows(g):
    """x[arange(len(x)), best] = 7, whose places are numbers that are expanded to each other."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    best = g.node("ArgMax", [x], x.array.argmax(1), axis=1, keepdims=0)
    size = g.node("Shape", [best], np.array([ADS]))
    rows = g.node("Expand", [g.constant(np.arange(ADS)), size], np.arange(ADS), rows="ads")
    at = [g.unsqueeze(rows, 1), g.unsqueeze(best, 1)]
    at = g.node("Concat", at, np.concatenate([i.array for i in at], 1), axis=-1)
    seven = g.constant(np.array(7, np.float32))
    seven = g.node("Expand", [seven, size], np.full(ADS, 7, np.float32), rows="ads")
    array = x.array.copy()
    array[np.arange(ADS), best.array] = 7
    g.output(g.node("ScatterND", [x, at, seven], array, rows="ads"))


def places_of_one_row(g):
    """The best of the row's steps, whose place is one among all of them; an entry assigned."""
    g.rows, g.ad_inputs = 1, ["x", "y", "z"]
    scatter(g)
    y = g.input("y", g.random.randn(ADS, 3, 2).astype(np.float32))
    best = g.node("ArgMax", [g.pick(y, 2, 0)], y.array[:, :, 0].argmax(1), axis=1, keepdims=0)
    flat = reshape(g, y, (-1, 2), y.array.reshape(-1, 2))
    g.output(g.node("Gather", [flat, best], y.array[np.arange(ADS), best.array], axis=0))


def packed_rows_of_the_example(g):
    """Rows sorted by length and back, whose numbers are constants."""
    g.rows = ADS
    packed(g, ADS)


def packed_row_of_one(g):
    g.rows, g.ad_inputs = 1, ["x", "length"]
    packed(g, 1)


def packed(g, rows):
    mixed, wanted, back = sorted_by_length(g, g.ints(rows).name)
    zeros, numbers = g.constant(np.zeros(rows, np.int64)), g.constant(np.arange(rows))
    order = g.keep(Value("order", np.argsort(back), "ads"))
    back = g.node("ScatterElements", [zeros, order, numbers], back, rows="ads", axis=0)
    g.output(g.node("Gather", [mixed, back], wanted, axis=0))


def squeezed_with_the_row(g):
    """x.sum(1).squeeze() of one row, and with other axes of 1."""
    g.rows, g.ad_inputs, g.output_rows = 1, ["x"], "out"
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    score = g.with_axes("ReduceSum", x, [1], x.array.sum(1), 13, keepdims=0)
    g.output(g.with_axes("Squeeze", score, [0], score.array, 13))
    wide = g.unsqueeze(score, 1)
    g.output(g.with_axes("Squeeze", wide, [0, -1], score.array, 13))


def rows_of_the_example_stay(g):
    """len(x) in an export with dynamic axes: sizes, and zeros that are joined."""
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    flat = reshape(g, x, (ADS, -1), x.array.reshape(ADS, -1))
    out = product(g, flat, g.constant(g.random.randn(12, 2).astype(np.float32)))
    zeros = g.constant(np.zeros((ADS, 1), np.float32))
    g.output(g.node("Concat", [out, zeros], np.concatenate([out.array, zeros.array], 1), axis=1))


def rows_of_the_example_stay_merged(g):
    """len(x) * 3 in an export with dynamic axes: rows merged with steps, as heads are."""
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    flat = reshape(g, x, (3 * ADS, 4), x.array.reshape(-1, 4))
    out = product(g, flat, g.constant(g.random.randn(4, 2).astype(np.float32)))
    g.output(reshape(g, out, (-1, 6), out.array.reshape(-1, 6)))


def rows_of_the_example_beside_those_of_requests(g):
    """len(x) and x.shape: zeros of the example, a weight that is expanded to the request, and again."""
    x = g.input("x", g.random.randn(ADS, 2).astype(np.float32))
    sizes = g.node("Shape", [x], np.array([ADS, 2]), rows=None)
    shared = g.constant(g.random.randn(1, 2).astype(np.float32))
    for _ in range(2):
        shared = g.node("Expand", [shared, sizes], np.broadcast_to(shared.array, (ADS, 2)))
    zeros = g.constant(np.zeros((ADS, 1), np.float32))
    parts = [g.binary("Mul", x, shared), shared, zeros]
    g.output(g.node("Concat", parts, np.concatenate([part.array for part in parts], 1), axis=1))


def weights_of_the_example_stay(g):
    """x * w.repeat(len(x), 1) in an export with dynamic axes: one row would be repeated, too."""
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    weights = g.constant(np.repeat(g.random.randn(1, 3).astype(np.float32), ADS, 0))
    g.output(g.binary("Mul", x, weights))


def only_row_of_the_example_stays(g):
    """len(x) in an export with dynamic axes, of one row."""
    x = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    flat = reshape(g, x, (1, -1), x.array.reshape(ADS, -1))
    out = product(g, flat, g.constant(g.random.randn(12, 2).astype(np.float32)))
    g.output(out)


def rows_of_the_example_as_a_number(g):
    """x.view(len(x), -1) / len(x)"""
    x = g.input("x", g.random.randn(ADS, 3, 2).astype(np.float32))
    flat = reshape(g, x, (ADS, 6), x.array.reshape(ADS, 6))
    rows = g.node("Cast", [g.constant(np.array(ADS))], np.array(ADS, np.float32), to=1)
    g.output(g.node("Div", [flat, rows], flat.array / ADS))


def sums_of_the_example_that_are_lost(g):
    """scatter_add of steps merged with rows, before operator set 16, onto zeros of the example."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 2, 4).astype(np.float32))
    steps = reshape(g, x, (-1, 4), x.array.reshape(-1, 4))
    at = g.cast(g.input("at", g.random.randint(0, 3, (ADS, 2, 4)).astype(np.float32)), "int")
    at = reshape(g, at, (-1, 4), at.array.reshape(-1, 4))
    zeros = g.constant(np.zeros((ADS * 2, 3), np.float32))
    sums = g.node("ScatterElements", [zeros, at, steps], np.zeros((ADS * 2, 3), np.float32), axis=1)
    sums = g.binary("Add", sums, zeros)
    g.output(reshape(g, sums, (ADS, 6), sums.array.reshape(ADS, 6)))


def rows_of_one_that_meet(g):
    """One row as a step, summed over both."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    steps = reshape(g, x, (1, 1, 4), x.array.reshape(1, -1, 4))
    g.output(g.node("ReduceMax", [steps], x.array.max(0, keepdims=True), axes=[0, 1], keepdims=0))


def ones_of_the_example(g):
    """torch.ones_like(x) as an output."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 2).astype(np.float32))
    g.output(g.node("Sigmoid", [x], 1 / (1 + np.exp(-x.array))))
    g.output(g.constant(np.ones((ADS, 1), np.float32)))


def queries_of_the_example(g):
    """einsum("qbd,bkd->bqk", queries.repeat, steps) without dynamic axes."""
    g.rows = ADS
    steps = g.input("x", g.random.randn(ADS, 3, 4).astype(np.float32))
    queries = g.constant(np.repeat(g.random.randn(2, 1, 4).astype(np.float32), ADS, 1))
    weights = np.einsum("qbd,bkd->bqk", queries.array, steps.array)
    g.output(g.node("Einsum", [queries, steps], weights, equation="q b d, b k d -> b q k"))


def step_of_each_title_of_the_example(g):
    """x.view(-1, 4, 3)[arange(len(x)), place], whose places among all are numbers."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 2, 12).astype(np.float32))
    place = g.input("place", g.random.randint(0, 4, (ADS, 2)))
    place = reshape(g, place, (-1,), place.array.reshape(-1))
    at = g.binary("Add", place, g.constant(np.arange(ADS * 2) * 4))
    steps = reshape(g, x, (-1, 3), x.array.reshape(-1, 3))
    found = g.node("Gather", [steps, at], steps.array[at.array], rows="ads", axis=0)
    g.output(reshape(g, found, (ADS, 6), found.array.reshape(ADS, 6)))


def row_turned_to_the_front(g):
    """x.view(1, 1, 4).transpose(0, 1) of one row: outputs have their rows in front."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    steps = reshape(g, x, (1, 1, 4), x.array[None])
    g.output(swap(g, g.node("Relu", [steps], np.maximum(steps.array, 0))))


def rows_repeated_one_by_one(g, rows=ADS):
    """x.repeat_interleave(2, 0) and x.view(-1, 4): parts of one row, as many as the example has."""
    g.rows, g.ad_inputs = rows, ["x", "y"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    y = g.input("y", g.random.randn(ADS, 2, 3).astype(np.float32))
    parts = [g.fresh("row") for _ in range(rows)]
    g.nodes.append(helper.make_node("Split", [x.name, g.ints(*[1] * rows).name], parts, axis=0))
    repeated = []
    for name, array in zip(parts, np.split(x.array, rows)):
        part = g.unsqueeze(Value(name, array, "ads"), 1)
        sizes = g.node("Concat", [g.ints(1), g.ints(2), g.ints(4)], np.array([1, 2, 4]), axis=0)
        wide = g.node("Expand", [part, sizes], part.array.repeat(2, 1))
        repeated.append(reshape(g, wide, (-1, 4), wide.array.reshape(-1, 4)))
    users = g.node("Concat", repeated, x.array.repeat(2, 0), axis=0)
    ads = reshape(g, y, (-1, 3), y.array.reshape(-1, 3))
    both = g.node("Concat", [users, ads], np.concatenate([users.array, ads.array], 1), axis=1)
    best = g.node("ReduceMax", [both], both.array.max(1), axes=[1], keepdims=0)
    g.output(reshape(g, best, (-1, 2), best.array.reshape(-1, 2)))


def only_row_repeated(g):
    rows_repeated_one_by_one(g, 1)


def masked_steps_of_the_example(g):
    """Merged steps that all have the mean of what is not masked: made-up ids have to differ."""
    g.rows = ADS
    ids = g.random.randint(0, 9, (ADS, 4))
    ids[:, 0] = 3
    ids = g.input("ids", ids)
    rows = g.random.randn(9, 3).astype(np.float32)
    rows[0] = 0
    x = g.node("Gather", [g.constant(rows), ids], rows[ids.array], axis=0)
    mask = g.node("Equal", [ids, g.constant(np.array(0))], ids.array == 0)
    none, zero = (g.constant(np.array(v, np.float32)) for v in (-np.inf, 0))
    weights = (ids.array != 0) / (ids.array != 0).sum(1, keepdims=True)
    kept = raw(g, "Where", [mask, none, zero], np.where(mask.array, -np.inf, 0))
    weights = g.unsqueeze(g.node("Softmax", [kept], weights.astype(np.float32), axis=-1), 1)
    mean = product(g, weights, x)
    wide = g.node("Expand", [mean, g.ints(ADS, 4, 3)], mean.array.repeat(4, 1))
    flat = reshape(g, swap(g, wide), (4 * ADS, 3), wide.array.swapaxes(0, 1).reshape(-1, 3))
    flat = product(g, flat, g.constant(g.random.randn(3, 3).astype(np.float32)))
    steps = reshape(g, flat, (4, ADS, 3), flat.array.reshape(4, ADS, 3))
    g.output(swap(g, g.binary("Add", steps, swap(g, x))))


def lengths_of_the_example(g):
    """Softmax of masked steps merged with their rows: a made-up length may be 0."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 6).astype(np.float32))
    length = g.input("length", g.random.randint(1, 7, (ADS, 1)))
    steps = g.constant(np.arange(6)[None])
    mask = g.node("Less", [steps, length], steps.array < length.array)
    none = g.constant(np.array(-np.inf, np.float32))
    kept = raw(g, "Where", [mask, x, none], np.where(mask.array, x.array, -np.inf))
    weights = np.exp(kept.array) / np.exp(kept.array).sum(1, keepdims=True)
    weights = g.node("Softmax", [kept], weights.astype(np.float32), axis=-1)
    merged = reshape(g, weights, (ADS * 6, 1), weights.array.reshape(-1, 1))
    factor = g.constant(np.array([[1, 2]], np.float32))
    wide = g.binary("Mul", merged, factor)
    g.output(reshape(g, wide, (ADS, 6, 2), wide.array.reshape(ADS, 6, 2)))


def branch_of_the_example(g):
    """x.sum(1).squeeze(-1) twice without dynamic axes: its If is decided before more is followed."""
    g.rows = ADS
    x = g.input("x", g.random.randn(ADS, 12).astype(np.float32))
    for _ in range(2):
        steps = g.node("Reshape", [x, g.ints(ADS, 12, 1)], x.array[:, :, None])
        size = g.node("Shape", [steps], np.array([ADS, 12, 1]))
        size = g.node("Gather", [size, g.constant(np.array(-1))], np.array(1), axis=0)
        x = squeezed_if(g, steps, g.node("Equal", [size, g.constant(np.array(1))], np.array(True)))
    g.output(g.binary("Mul", x, g.constant(np.array(2, np.float32))))


def tables_of_few_rows(g):
    """A number times the one row of its table: made-up ids are beyond it."""
    g.rows = ADS
    x = g.input("x", np.stack([g.random.randn(ADS), np.zeros(ADS)], 1).astype(np.float32))
    ids = g.input("ids", g.random.randint(0, 9, ADS))
    number, place = g.slice(x, 1, 0, 1), g.cast(g.slice(x, 1, 1, 2), "int")
    one = g.constant(g.random.randn(1, 4).astype(np.float32))
    own = g.node("Gather", [one, place], one.array[place.array], axis=0)
    own = g.binary("Mul", g.unsqueeze(number, 1), own)
    many = g.constant(g.random.randn(9, 4).astype(np.float32))
    other = g.unsqueeze(g.node("Gather", [many, ids], many.array[ids.array], axis=0), 1)
    both = g.node("Concat", [own, other], np.concatenate([own.array, other.array], 1), axis=1)
    g.output(reshape(g, both, (ADS, 8), both.array.reshape(ADS, 8)))


def mask_of_one_head(g):
    """The row's mask, which has a dimension of 1 for its only head, is merged with that."""
    g.rows, g.ad_inputs = 1, ["x", "mask"]
    x = g.input("x", g.random.randn(ADS, 4, 4).astype(np.float32))
    mask = g.input("mask", g.random.randn(ADS, 4).astype(np.float32))
    heads = reshape(g, mask, (1, 1, 1, 4), mask.array.reshape(-1, 1, 1, 4))
    heads = reshape(g, heads, (1, 1, 4), heads.array.reshape(-1, 1, 4))
    g.output(g.binary("Add", x, heads))


def divided_by_the_example(g, rows=ADS):
    """A table's row for each interval, times divided by an integer: a made-up one may not be 0."""
    g.rows, g.ad_inputs = rows, ["times", "unit"]
    times = g.cast(g.input("times", g.random.randint(0, 90, (ADS, 3))), "float")
    unit = g.cast(g.input("unit", g.random.randint(1, 9, (ADS, 1))), "float")
    table = g.constant(g.random.randn(9, 2).astype(np.float32))
    parts = g.node("Div", [times, unit], times.array / unit.array)
    last = g.constant(np.array(8, np.float32))
    place = g.node("Min", [parts, last], np.minimum(parts.array, 8))
    place = g.node("Cast", [place], place.array.astype(np.int64), to=7)
    found = g.node("Gather", [table, place], table.array[place.array], axis=0)
    g.output(reshape(g, found, (rows, 6), found.array.reshape(ADS, 6)))


def divided_by_the_only_row(g):
    divided_by_the_example(g, 1)


def mean_of_the_example(g, rows=ADS):
    """What is one for all rows, repeated as often as the example has some, beside each."""
    g.rows, g.ad_inputs = rows, ["x"]
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    mean = g.node("ReduceMean", [x], x.array.mean(0, keepdims=True), axes=[0], keepdims=1)
    all_rows = np.repeat(mean.array, ADS, 0)
    parts = [x, g.node("Tile", [mean, g.ints(rows, 1)], all_rows),
             g.node("Expand", [mean, g.ints(rows, 3)], all_rows)]
    g.output(g.node("Concat", parts, np.concatenate([p.array for p in parts], 1), axis=1))


def mean_of_the_only_row(g):
    mean_of_the_example(g, 1)


def others_of_the_example(g, rows, constant):
    """Similarities with all rows, scaled or masked by a constant that the number of rows made."""
    g.rows, g.ad_inputs = rows, ["x"]
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    turned = g.node("Transpose", [x], x.array.T, perm=[1, 0])
    both = product(g, x, turned)
    both = raw(g, "Mul", [both, g.constant(np.array(constant, np.float32))], both.array)
    g.output(g.node("ReduceSum", [both, g.ints(1)], both.array.sum(1), keepdims=0))


def share_of_the_example(g):
    """x / len(x)"""
    others_of_the_example(g, ADS, 1 / ADS)


def share_of_the_only_row(g):
    others_of_the_example(g, 1, 1)


def others_of_the_only_row(g):
    """x * (1 - eye(len(x)) / 2)"""
    others_of_the_example(g, 1, [[.5]])


def only_step_of_the_only_row(g):
    """Attention of a candidate to itself: which 1 is the row, which the step?  Back by view(-1)."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    apart = g.unsqueeze(x, 1)
    turned = swap(g, apart)
    flat = reshape(g, turned, (1, 4), x.array)
    flat = product(g, flat, g.constant(g.random.randn(4, 4).astype(np.float32)))
    again = swap(g, reshape(g, flat, (1, 1, 4), flat.array[None]))
    both = g.binary("Add", apart, again)
    score = g.node("ReduceSum", [both, g.ints(2)], both.array.sum(2), keepdims=0)
    g.output(g.node("Reshape", [score, g.ints(-1)], score.array.reshape(-1)))


def only_row_behind_the_step(g):
    """x.view(1, len(x), 4)[0]: the first step, and not the first row."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    steps = reshape(g, x, (1, 1, 4), x.array[None])
    first = g.pick(steps, 0, 0)
    g.output(g.binary("Mul", first, x))


def number_of_one_row(g):
    """x[arange(1), best] = y, which is a single number in the export."""
    g.rows, g.ad_inputs = 1, ["x", "y"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    y = g.input("y", g.random.randn(ADS).astype(np.float32))
    best = g.node("ArgMax", [x], x.array.argmax(1), axis=1, keepdims=0)
    rows = g.node("Expand", [g.ints(0), g.node("Shape", [best], np.array([1]))], np.arange(ADS),
                  rows="ads")
    at = [g.unsqueeze(rows, 1), g.unsqueeze(best, 1)]
    at = g.node("Concat", at, np.concatenate([i.array for i in at], 1), axis=-1)
    number = raw(g, "Reshape", [y, g.constant(np.zeros(0, np.int64))], y.array)
    value = g.node("Expand", [number, g.node("Shape", [best], np.array([1]))], y.array, rows="ads")
    array = x.array.copy()
    array[np.arange(ADS), best.array] = y.array
    g.output(g.node("ScatterND", [x, at, value], array, rows="ads"))


def of_rows(pattern, name):
    """The pattern with axes that are numbers, by an example of several rows."""
    def exported(g):
        g.rows = ADS
        pattern(g)
    exported.__name__ = name
    return exported


def of_one_row(pattern, ad_inputs, name):
    """By an example of one row, where these inputs are the ads'."""
    def exported(g):
        g.rows, g.ad_inputs = 1, ad_inputs
        pattern(g)
    exported.__name__ = name
    return exported


PATTERNS = [steps_in_front, sizes_by_a_condition, constants_of_rows, example_of_one_row,
            sessions_of_one_row, steps_of_one, outputs_of_any_rows, user_of_the_example,
            products_with_the_user_of_the_example,
            bags_of_one_row, bags_of_one_size, entries_that_are_assigned, places_of_one_row, packed_rows_of_the_example, packed_row_of_one,
            squeezed_with_the_row, rows_of_the_example_stay, rows_of_the_example_stay_merged,
            rows_of_the_example_beside_those_of_requests, weights_of_the_example_stay,
            only_row_of_the_example_stays,
            queries_of_the_example, branch_of_the_example, entries_of_numbered_rows,
            lengths_of_the_example, step_of_each_title_of_the_example, row_turned_to_the_front,
            rows_repeated_one_by_one, masked_steps_of_the_example, tables_of_few_rows,
            mask_of_one_head, divided_by_the_example, divided_by_the_only_row,
            only_row_repeated, number_of_one_row,
            only_step_of_the_only_row, only_row_behind_the_step, mean_of_the_example,
            columns_of_the_only_row,
            of_rows(step_of_each_row_behind_it, "step_behind_rows_of_the_example"),
            of_one_row(step_of_each_row_behind_it, ["y", "place"], "step_behind_the_only_row"),
            of_rows(steps_that_a_hash_chooses, "steps_that_an_example_chooses"),
            of_one_row(steps_that_a_hash_chooses, ["x", "m"], "steps_that_the_only_row_chooses")]
REFUSED = [(ones_of_the_example, "an output has the example's rows"),
           (sums_of_the_example_that_are_lost, "loses all but one"),
           (share_of_the_example, "computed across rows"),
           (share_of_the_only_row, "depends on other rows"),
           (others_of_the_only_row, "depends on other rows"),
           (mean_of_the_only_row, "depends on other rows"),
           (rows_of_one_that_meet, "cannot be told from other sizes of 1"),
           (rows_of_the_example_as_a_number, "rows of the export's example")]
