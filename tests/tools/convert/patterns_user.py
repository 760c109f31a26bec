"""Patterns of models of one user and many ads: the user's row is a dimension of 1."""
# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from random_graph import ADS, Value
from random_layers import states

STEPS, WIDTH = 6, 4


def history(g):
    return g.input("history", g.random.randn(1, STEPS, WIDTH).astype(np.float32), "user")


def ads(g):
    return g.input("ads", g.random.randn(ADS, WIDTH).astype(np.float32))


def rows_of(g, x):
    """len(x), as a vector."""
    shape = g.node("Shape", [x], np.array(x.array.shape))
    return g.node("Gather", [shape, g.constant(np.array([0]))], np.array([ADS]), axis=0)


def total(g, x):
    """One score per ad of [ads, n]."""
    g.output(g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1), keepdims=0))


def row_by_zeros(g):
    """user[torch.zeros_like(item)] * ads"""
    x, y = history(g), ads(g)
    zero = numpy_helper.from_array(np.array([0], np.int64))
    zeros = g.node("ConstantOfShape", [rows_of(g, y)], np.zeros(ADS, np.int64), rows="ads",
                   value=zero)
    each = g.node("Gather", [x, zeros], np.repeat(x.array, ADS, 0), rows="ads", axis=0)
    steps = g.node("ReduceSum", [each, g.ints(1)], each.array.sum(1), keepdims=0)
    total(g, g.binary("Mul", steps, y))


def sums_over_the_user(g):
    """Equations of which the user's rows are summed."""
    x, y = history(g), ads(g)
    first = g.node("Einsum", [y, x], np.einsum("nd,btd->nt", y.array, x.array), rows="ads",
                   equation="nd,btd->nt")
    second = g.node("Einsum", [x, y], np.einsum("bkd,nd->nk", x.array, y.array), rows="ads",
                    equation="bkd,nd->nk")
    third = g.node("Einsum", [first, x], np.einsum("nt,btd->nd", first.array, x.array), rows="ads",
                   equation="nt,btd->nd")
    total(g, g.binary("Add", first, second))
    total(g, third)


def products_of_other_ranks(g):
    """ads @ history.transpose(1, 2), history @ ads.t(), torch.mm(user, ads.t())"""
    x, y = history(g), ads(g)
    turned = g.node("Transpose", [x], x.array.transpose(0, 2, 1), perm=[0, 2, 1])
    columns = g.node("Transpose", [y], y.array.T, perm=[1, 0])
    left = g.node("MatMul", [y, turned], y.array @ turned.array, rows="ads")
    right = g.node("MatMul", [x, columns], x.array @ columns.array, rows="ads")
    best = g.node("ReduceMax", [right], right.array.max(1), rows="ads", axes=[1], keepdims=0)
    user = g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1), keepdims=0)
    scores = g.node("Gemm", [user, columns], user.array @ columns.array, rows="ads")
    g.output(g.node("Squeeze", [g.binary("Mul", best, scores), g.ints(0)],
                    (best.array * scores.array)[0], rows="ads"))
    total(g, g.node("Squeeze", [left, g.ints(0)], left.array[0], rows="ads"))


def heads_of_ads(g):
    """Attention whose ads are the queries of each head: [heads, ads, n]."""
    x, y = history(g), ads(g)
    heads, each = 2, WIDTH // 2
    q = g.node("Reshape", [y, g.ints(-1, heads, each)], y.array.reshape(-1, heads, each))
    q = g.node("Transpose", [q], q.array.transpose(1, 0, 2), perm=[1, 0, 2])
    k = g.node("Reshape", [x, g.ints(STEPS, heads, each)], x.array.reshape(STEPS, heads, each))
    k = g.node("Transpose", [k], k.array.transpose(1, 2, 0), perm=[1, 2, 0])
    weights = g.node("MatMul", [q, k], q.array @ k.array, rows="ads")
    power = np.exp(weights.array)
    weights = g.node("Softmax", [weights], power / power.sum(-1, keepdims=True), axis=-1)
    v = g.node("Transpose", [k], k.array.transpose(0, 2, 1), perm=[0, 2, 1])
    y = g.node("MatMul", [weights, v], weights.array @ v.array, rows="ads")
    y = g.node("Transpose", [y], y.array.transpose(1, 0, 2), perm=[1, 0, 2])
    total(g, g.node("Reshape", [y, g.ints(-1, WIDTH)], y.array.reshape(-1, WIDTH)))


def ads_beside_one(g):
    """[1, ads, n]: the user's row beside it, a layer, a softmax, and a mask of the history."""
    x, y = history(g), ads(g)
    lifted = g.unsqueeze(y, 0)
    user = g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1, keepdims=True), keepdims=1)
    shape = g.node("Shape", [lifted], np.array(lifted.array.shape))
    wide = g.node("Expand", [user, shape], np.repeat(user.array, ADS, 1), rows="ads")
    both = g.node("Concat", [wide, lifted], np.concatenate([wide.array, lifted.array], -1),
                  rows="ads", axis=-1)
    weight = g.constant(g.random.randn(2 * WIDTH, 3).astype(np.float32))
    hidden = g.node("MatMul", [both, weight], both.array @ weight.array)
    power = np.exp(hidden.array - hidden.array.max(-1, keepdims=True))
    soft = g.node("Softmax", [hidden], power / power.sum(-1, keepdims=True), axis=-1)
    gate = g.binary("Mul", soft, g.node("Tanh", [hidden], np.tanh(hidden.array)))
    total(g, g.node("Reshape", [gate, g.ints(-1, 3)], gate.array.reshape(-1, 3), rows="ads"))


def whether_the_user_had_it(g):
    """(items[None, :, None] == history[:, None]).any(-1).t() * ads"""
    y = ads(g)
    had = g.input("had", g.random.randint(1, 7, (1, STEPS)), "user")
    item = g.input("item", g.random.randint(1, 7, ADS))
    same = g.node("Equal", [g.unsqueeze(had, 1), g.unsqueeze(g.unsqueeze(item, 0), 2)],
                  had.array[:, None] == item.array[None, :, None], rows="ads")
    count = g.node("ReduceSum", [g.cast(same, "int"), g.ints(-1)], same.array.sum(-1), keepdims=0)
    some = g.cast(g.node("Greater", [count, g.constant(np.array(0))], count.array > 0), "float")
    column = g.node("Transpose", [some], some.array.T, perm=[1, 0])
    total(g, g.node("Mul", [column, y], column.array * y.array))


def last_step_of_the_user(g):
    """history[torch.arange(1), length - 1], which is exported as a place in all steps."""
    x, y = history(g), ads(g)
    length = g.input("length", g.random.randint(1, STEPS + 1, 1), "user")
    last = g.node("Sub", [length, g.constant(np.array(1))], length.array - 1)
    steps = g.node("Flatten", [x], x.array.reshape(-1, WIDTH), axis=2)
    step = g.node("Gather", [steps, last], x.array[0][last.array], axis=0)
    total(g, g.node("Mul", [step, y], step.array * y.array, rows="ads"))


def best_steps_of_the_user(g):
    """history[0][(ads @ history[0].t()).topk(2).indices]"""
    x, y = history(g), ads(g)
    steps = g.pick(x, 0, 0)
    scores = g.node("MatMul", [y, g.node("Transpose", [steps], steps.array.T, perm=[1, 0])],
                    y.array @ steps.array.T, rows="ads")
    order = np.argsort(-scores.array, 1)[:, :2]
    g.nodes.append(helper.make_node("TopK", [scores.name, g.ints(2).name], ["best", "places"]))
    taken = steps.array[order]
    g.nodes.append(helper.make_node("Gather", [steps.name, "places"], ["taken"], axis=0))
    g.nodes.append(helper.make_node("ReduceMax", ["taken"], ["most"], axes=[1], keepdims=0))
    total(g, g.node("Mul", [type(y)("most", taken.max(1), "ads"), y], taken.max(1) * y.array))


def entries_of_the_users_steps(g):
    """table[seen.flatten()].view(1, -1, n).gather(1, places), and added there, with places [1, k, n] of the user's."""
    g.opset = 16
    y = ads(g)
    seen = g.input("seen", g.random.randint(0, 7, (1, STEPS)), "user")
    flat = g.node("Reshape", [seen, g.ints(-1)], seen.array.reshape(-1))
    rows = g.look_up(g.constant(g.random.randn(7, WIDTH).astype(np.float32)), flat)
    x = g.node("Reshape", [rows, g.ints(1, -1, WIDTH)], rows.array[None])
    places = g.input("places", g.random.randint(0, STEPS, (1, 2, 1)), "user")
    each = g.node("Expand", [places, g.ints(1, 2, WIDTH)], np.repeat(places.array, WIDTH, 2))
    taken = g.node("GatherElements", [x, each], np.take_along_axis(x.array, each.array, 1), axis=1)
    added = x.array.copy()
    np.add.at(added, (0, places.array[0], np.arange(WIDTH)), taken.array[0])
    put = g.node("ScatterElements", [x, each, taken], added, axis=1, reduction="add")
    user = g.node("ReduceSum", [put, g.ints(1)], added.sum(1), keepdims=0)
    total(g, g.binary("Mul", user, y))


def best_of_one_user(g):
    """Sorted by length, as packed sequences are, and the largest of all that the user has."""
    x, y = history(g), ads(g)
    length = g.input("length", g.random.randint(1, STEPS + 1, 1), "user")
    g.nodes.append(helper.make_node("TopK", [length.name, g.ints(1).name], ["sorted", "order"]))
    g.nodes.append(helper.make_node("Gather", [x.name, "order"], ["same"], axis=0))
    g.nodes.append(helper.make_node("Cast", ["sorted"], ["number"], to=TensorProto.FLOAT))
    user = type(y)("same", x.array, "user")
    most = g.node("ReduceMax", [user], x.array.max(), axes=[0, 1, 2], keepdims=0)
    count = type(y)("number", length.array.astype(np.float32), "user")
    total(g, g.node("Mul", [g.binary("Mul", most, y), count], most.array * y.array * count.array))


def layers_of_the_user(g):
    """The last of the states of two layers, [2, users, n], and steps that are rows for a while."""
    x, y = history(g), ads(g)
    states = [g.node("ReduceMax", [x], x.array.max(1), axes=[1], keepdims=0),
              g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1), keepdims=0)]
    states = [g.unsqueeze(state, 0) for state in states]
    both = g.node("Concat", states, np.concatenate([s.array for s in states]), axis=0)
    last = g.pick(both, 0, 1)
    rows = g.node("Reshape", [x, g.ints(-1, WIDTH)], x.array.reshape(-1, WIDTH))
    ones = g.constant(np.ones((WIDTH, 1), np.float32))
    score = g.node("MatMul", [rows, ones], rows.array @ ones.array)
    score = g.node("Reshape", [score, g.ints(1, STEPS)], score.array.reshape(1, STEPS))
    best = g.node("ReduceMax", [score], score.array.max(1, keepdims=True), axes=[1], keepdims=1)
    total(g, g.binary("Mul", g.binary("Mul", last, best), y))


def heads_of_the_user(g):
    """torch.cat(torch.split(history, n, 2), 0), as SASRec makes its heads."""
    x, y = history(g), ads(g)
    half = WIDTH // 2
    parts = [g.slice(x, 2, 0, half), g.slice(x, 2, half, WIDTH)]
    heads = g.node("Concat", parts, np.concatenate([p.array for p in parts]), axis=0)
    turned = g.node("Transpose", [heads], heads.array.transpose(0, 2, 1), perm=[0, 2, 1])
    weights = g.node("MatMul", [heads, turned], heads.array @ turned.array)
    mixed = g.node("MatMul", [weights, heads], weights.array @ heads.array)
    parts = [g.slice(mixed, 0, head, head + 1) for head in (0, 1)]
    whole = g.node("Concat", parts, np.concatenate([p.array for p in parts], 2), axis=2)
    user = g.node("ReduceSum", [whole, g.ints(1)], whole.array.sum(1), keepdims=0)
    total(g, g.binary("Mul", user, y))


def steps_by_numbers_of_others(g):
    """history[arange(len(ads)), length - 1], and (history + ads)[arange(len(history)), length - 1],
    exported by row."""
    x = g.shared("history", g.random.randn(STEPS, WIDTH).astype(np.float32))
    y = ads(g)
    length = g.input("length", g.random.randint(1, STEPS + 1, ADS))
    place = g.node("Sub", [length, g.constant(np.array(1))], length.array - 1)
    sums = g.binary("Add", x, g.unsqueeze(y, 1))
    for values, counted in ((x, y), (sums, x)):
        count = g.node("Squeeze", [rows_of(g, counted)], np.array(ADS))
        numbers = g.node("Range", [g.constant(np.array(0)), count, g.constant(np.array(1))],
                         np.arange(ADS))
        numbers = g.node("Mul", [numbers, g.constant(np.array(STEPS))], numbers.array * STEPS)
        at = g.node("Add", [numbers, place], numbers.array + place.array)
        steps = g.node("Flatten", [values], values.array.reshape(-1, WIDTH), axis=2)
        step = g.node("Gather", [steps, at], steps.array[at.array], axis=0)
        total(g, g.binary("Mul", step, y))


def user_without_axis(g):
    """history.sum(1).squeeze() * ads: the user's row is a dimension of 1, too."""
    x, y = history(g), ads(g)
    user = g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1), keepdims=0)
    total(g, g.binary("Mul", g.node("Squeeze", [user], user.array[0]), y))


def user_tiled(g):
    """torch.tile(history.sum(1), (len(ads), 1)), and of what is looked up, before and behind."""
    x, y = history(g), ads(g)
    age = g.input("age", g.random.randint(0, 9, (1, 2)), "user")
    rows = g.node("Concat", [rows_of(g, y), g.ints(1)], np.array([ADS, 1]), axis=0)
    user = g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1), keepdims=0)
    wide = g.node("Tile", [user, rows], np.repeat(user.array, ADS, 0), rows="ads")
    g.output(wide)
    ids = g.node("Tile", [age, rows], np.repeat(age.array, ADS, 0), rows="ads")
    table = g.constant(g.random.randn(9, 2).astype(np.float32))
    flat = g.look_up(table, ids)
    flat = g.node("Reshape", [flat, g.ints(-1, WIDTH)], flat.array.reshape(-1, WIDTH))
    total(g, g.binary("Mul", g.binary("Add", wide, flat), y))


def titles_of_the_user(g):
    """A convolution that pads, over steps merged with the user's row, times the ads."""
    x, y = history(g), ads(g)
    titles = g.node("Reshape", [x, g.ints(-1, 3, WIDTH)], x.array.reshape(-1, 3, WIDTH), rows=None)
    words = g.node("Transpose", [titles], titles.array.transpose(0, 2, 1), rows=None,
                   perm=[0, 2, 1])
    padded = np.pad(words.array, ((0, 0), (0, 0), (1, 1)))
    weight = g.constant(g.random.randn(WIDTH, WIDTH, 3).astype(np.float32))
    windows = np.stack([padded[:, :, i:i + 3] for i in range(3)], -1)
    found = np.einsum("nctk,ock->not", windows, weight.array).astype(np.float32)
    found = g.node("Conv", [words, weight], found, rows=None, pads=[1, 1])
    best = g.node("ReduceMax", [found], found.array.max(2), rows=None, axes=[2], keepdims=0)
    both = g.node("Reshape", [best, g.ints(-1, 2, WIDTH)], best.array.reshape(1, 2, WIDTH),
                  rows="user")
    either = g.node("ReduceMax", [both], both.array.max(1), rows="user", axes=[1], keepdims=0)
    total(g, g.binary("Mul", either, y))


def steps_as_rows_by_the_users_size(g):
    """torch.cat([history, item], 1).flatten(), looked up, and back by history.size(0); by row."""
    table = g.constant(g.random.randn(7, WIDTH).astype(np.float32))
    x = g.shared("history", g.random.randint(0, 7, STEPS))
    item = g.input("item", g.random.randint(0, 7, (ADS, 1)))
    ids = g.node("Concat", [x, item], np.concatenate([x.array, item.array], 1), axis=1)
    rows = g.look_up(table, g.node("Reshape", [ids, g.ints(-1)], ids.array.reshape(-1)))
    shape = g.node("Concat", [rows_of(g, x), g.ints(-1, WIDTH)], np.array([ADS, -1, WIDTH]),
                   axis=0)
    steps = g.node("Reshape", [rows, shape], rows.array.reshape(ADS, -1, WIDTH))
    total(g, g.node("ReduceMax", [steps], steps.array.max(1), axes=[1], keepdims=0))


def query_of_weights(g):
    """nn.MultiheadAttention with a learned query, weight.expand(len(history), 1, n); by row."""
    x, y = g.shared("history", g.random.randn(STEPS, WIDTH).astype(np.float32)), ads(g)
    rows = rows_of(g, x)
    heads = g.node("Mul", [rows, g.ints(2)], np.array([ADS * 2]))

    def by_heads(value, axes):  # [steps, rows, n] with each head a row.
        steps = value.array.shape[0]
        shape = g.node("Concat", [g.ints(steps), heads, g.ints(2)], np.array([steps, ADS * 2, 2]),
                       axis=0)
        value = g.node("Reshape", [value, shape], value.array.reshape(steps, -1, 2))
        return g.node("Transpose", [value], value.array.transpose(axes), perm=axes)

    each = g.node("Concat", [g.ints(1), rows, g.ints(1)], np.array([1, ADS, 1]), axis=0)
    query = g.constant(g.random.randn(1, 1, WIDTH).astype(np.float32))
    query = g.node("Expand", [query, each], np.repeat(query.array, ADS, 1), rows="user")
    steps = g.node("Transpose", [x], x.array.transpose(1, 0, 2), perm=[1, 0, 2])
    keys = by_heads(steps, [1, 2, 0])
    query = by_heads(query, [1, 0, 2])
    weights = g.node("MatMul", [query, keys], query.array @ keys.array)
    values = by_heads(steps, [1, 0, 2])
    mixed = g.node("MatMul", [weights, values], weights.array @ values.array)
    mixed = g.node("Transpose", [mixed], mixed.array.transpose(1, 0, 2), perm=[1, 0, 2])
    whole = g.node("Concat", [rows, g.ints(WIDTH)], np.array([ADS, WIDTH]), axis=0)
    mixed = g.node("Reshape", [mixed, whole], mixed.array.reshape(-1, WIDTH))
    each = g.node("Concat", [g.ints(1), rows, g.ints(WIDTH)], np.array([1, ADS, WIDTH]), axis=0)
    mixed = g.node("Reshape", [mixed, each], mixed.array[None])
    mixed = g.node("Squeeze", [mixed, g.ints(0)], mixed.array[0])
    total(g, g.binary("Mul", mixed, y))


def heads_by_the_users_size(g):
    """The user's query over an ad's steps, which attention reshapes by len(query); by row."""
    x = g.shared("history", g.random.randn(STEPS, WIDTH).astype(np.float32))
    k = g.input("k", g.random.randn(ADS, 3, WIDTH).astype(np.float32))
    query = g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1), keepdims=0)
    rows = g.node("Mul", [rows_of(g, x), g.ints(2)], np.array([ADS * 2]))
    each = g.node("Concat", [rows, g.ints(1, 2)], np.array([ADS * 2, 1, 2]), axis=0)
    query = g.node("Reshape", [query, each], query.array.reshape(-1, 1, 2))
    keys = g.node("Transpose", [k], k.array.transpose(1, 0, 2), perm=[1, 0, 2])
    each = g.node("Concat", [g.ints(3), rows, g.ints(2)], np.array([3, ADS * 2, 2]), axis=0)
    keys = g.node("Reshape", [keys, each], keys.array.reshape(3, -1, 2))
    keys = g.node("Transpose", [keys], keys.array.transpose(1, 2, 0), perm=[1, 2, 0])
    weights = g.node("MatMul", [query, keys], query.array @ keys.array, rows="ads")
    total(g, g.node("Reshape", [weights, g.ints(-1, 6)], weights.array.reshape(-1, 6)))


def user_without_rows(g):
    """A list of ids, one of numbers, and a number, as a service that has one user exports them."""
    hist = g.rowless("hist", g.random.randint(0, 7, STEPS))
    age = g.rowless("age", g.random.randn(WIDTH).astype(np.float32))
    hour = g.rowless("hour", np.float32(g.random.rand()))
    y = ads(g)
    table = g.constant(g.random.randn(9, WIDTH).astype(np.float32))
    taken = g.cast(g.node("Not", [g.node("Equal", [hist, g.constant(np.array(0))],
                                         hist.array == 0)], hist.array != 0), "float")
    steps = g.look_up(table, hist)
    masked = g.node("Mul", [steps, g.unsqueeze(taken, 1)], steps.array * taken.array[:, None])
    both = g.node("Concat", [g.node("ReduceSum", [masked, g.ints(0)], masked.array.sum(0), keepdims=0),
                             age], np.concatenate([masked.array.sum(0), age.array]), axis=0)
    weight = g.constant(g.random.randn(2 * WIDTH, WIDTH).astype(np.float32))
    user = g.node("MatMul", [both, weight], both.array @ weight.array)
    shifted = g.node("Mul", [user, hour], user.array * hour.array)
    total(g, g.node("Mul", [y, shifted], y.array * shifted.array, rows="ads"))


def user_without_rows_beside_a_batch(g):
    """A list of the user's beside ads behind a batch."""
    g.batch = 1
    age = g.rowless("age", g.random.randn(WIDTH).astype(np.float32))
    seen = g.rowless("seen", g.random.randint(0, 7, STEPS))
    y = ads(g)
    steps = g.look_up(g.constant(g.random.randn(7, WIDTH).astype(np.float32)), seen)
    user = g.node("ReduceSum", [steps, g.ints(0)], steps.array.sum(0), keepdims=0)
    both = g.node("Mul", [g.node("Mul", [y, user], y.array * user.array, rows="ads"), age],
                  y.array * user.array * age.array)
    g.output(g.node("ReduceSum", [both, g.ints(2)], both.array.sum(2), keepdims=0))


def user_without_rows_beside_the_example(g):
    """The same, where the ads' rows are the example's, and only the ads are told."""
    g.rows, g.ad_inputs = ADS, ["ads"]
    user_without_rows(g)


def ads_behind_the_batch(g):
    """Scores [1, ads] of a user's history [1, steps] and ads [1, ads, ...], which attend to it."""
    g.batch = g.batch or 1
    seen = g.input("seen", g.random.randint(0, 7, (1, STEPS)), "user")
    item = g.input("item", g.random.randint(0, 9, ADS))
    price = g.input("price", g.random.randn(ADS, 2).astype(np.float32))
    keys = g.look_up(g.constant(g.random.randn(7, WIDTH).astype(np.float32)), seen)
    query = g.look_up(g.constant(g.random.randn(9, WIDTH).astype(np.float32)), item)
    turned = g.node("Transpose", [keys], keys.array.transpose(0, 2, 1), perm=[0, 2, 1])
    scores = query.array @ turned.array
    power = np.exp(scores - scores.max(-1, keepdims=True))
    weights = g.node("Softmax", [g.node("MatMul", [query, turned], scores)],
                     power / power.sum(-1, keepdims=True), axis=-1)
    read = g.node("MatMul", [weights, keys], weights.array @ keys.array)
    both = g.node("Concat", [read, query, price],
                  np.concatenate([read.array, query.array, price.array], 2), axis=-1)
    weight = g.constant(g.random.randn(2 * WIDTH + 2, 1).astype(np.float32))
    g.output(g.squeeze(g.node("MatMul", [both, weight], both.array @ weight.array), 2))


def ads_behind_batches(g):
    """The same with batches of any number, of which a request is one; the ads meet each other."""
    g.batch = "batch"
    ads_behind_the_batch(g)
    x = g.input("x", g.random.randn(ADS, WIDTH).astype(np.float32))
    mean = g.node("ReduceMean", [x], x.array.mean(1, keepdims=True), axes=[1])
    g.output(g.node("Sub", [x, mean], x.array - mean.array))


def recurrent_over_the_ads(g, op, linear, batch):
    """[1, ads, k] or [ads, k] through a list's GRU, LSTM or RNN in both directions, from the user's state; the last ones."""
    g.batch = batch
    x, n, gates = g.input("x", g.random.randn(ADS, 3).astype(np.float32)), 2, {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    user = g.input("user", g.random.randn(1, n).astype(np.float32), "user")
    if batch:
        steps = g.node("Transpose", [x], x.array.transpose(1, 0, 2), perm=[1, 0, 2])
    else:
        steps = g.unsqueeze(x, 1)
    weights = [g.random.randn(2, *s).astype(np.float32) for s in ((gates * n, 3), (gates * n, n), (2 * gates * n,))]
    first = g.node("Concat", [g.unsqueeze(user, 0)] * 2, np.stack([user.array] * 2), axis=0)
    made = [states(op, linear, steps.array, [w[d] for w in weights], user.array, backwards=d == 1) for d in (0, 1)]
    every, last = np.stack([m[0] for m in made], 1), np.stack([m[1] for m in made])
    g.nodes.append(helper.make_node(
        op, [v.name for v in (steps, *map(g.constant, weights))] + ["", *[first.name] * (1 + (op == "LSTM"))],
        ["every", "last"], hidden_size=n, direction="bidirectional", **({"linear_before_reset": linear} if op == "GRU" else {})))
    every, last = (g.keep(Value(*v, "ads")) for v in (("every", every.astype(np.float32)), ("last", last.astype(np.float32))))
    both = g.binary("Mul", every, last)
    turned = g.node("Transpose", [both], both.array.transpose(2, 0, 1, 3), perm=[2, 0, 1, 3])
    g.output(turned if batch else g.squeeze(turned, 0))


def recurrent_over_ads():
    for (op, linear), batch in itertools.product((("LSTM", 0), ("RNN", 0), ("GRU", 0), ("GRU", 1)), (None, 1, "batch")):
        def pattern(g, op=op, linear=linear, batch=batch):
            recurrent_over_the_ads(g, op, linear, batch)
        pattern.__name__ = f"{op}_{linear}_over_the_ads_{batch}"
        yield pattern


def ads_from_the_last(g):
    """torch.flip of the ads, and sums from the last one on."""
    x = ads(g)
    zero = g.constant(np.array(0))
    flipped = g.node("Slice", [x, g.ints(-1), g.ints(-2**63 + 1), g.ints(0), g.ints(-1)], x.array[::-1])
    g.output(g.node("CumSum", [flipped, zero], flipped.array.cumsum(0)))
    g.output(g.node("CumSum", [x, zero], x.array[::-1].cumsum(0)[::-1], reverse=1))


def user_repeated_under_the_ads_name(g):
    """u.repeat(len(x), 1), where dynamic_axes call the rows of both the same."""
    g.user_inputs.append("u")
    u = g.input("u", g.random.randn(1, WIDTH).astype(np.float32), "user")
    g.inputs[-1].type.tensor_type.shape.dim[0].dim_param = "ads"
    x = ads(g)
    times = g.node("Concat", [rows_of(g, x), g.ints(1)], np.array([ADS, 1]), axis=0)
    each = g.node("Tile", [u, times], np.repeat(u.array, ADS, 0), rows="ads")
    total(g, g.node("Concat", [each, x], np.concatenate([each.array, x.array], 1), axis=1))


def user_beside_an_example(g):
    """One row of the user's beside those of the export's example, by which it is repeated; no names of rows."""
    g.rows = ADS
    u = g.input("u", g.random.randn(1, WIDTH).astype(np.float32), "user")
    x = ads(g)
    each = g.node("Expand", [u, g.ints(ADS, WIDTH)], np.repeat(u.array, ADS, 0), rows="ads")
    total(g, g.node("Concat", [each, x], np.concatenate([each.array, x.array], 1), axis=1))


PATTERNS = [user_repeated_under_the_ads_name, user_beside_an_example, *recurrent_over_ads(), ads_from_the_last, ads_behind_the_batch, ads_behind_batches, user_without_rows,
            user_without_rows_beside_a_batch, user_without_rows_beside_the_example, query_of_weights,
            heads_by_the_users_size, user_without_axis, user_tiled, row_by_zeros, sums_over_the_user,
            products_of_other_ranks, heads_of_ads, ads_beside_one, whether_the_user_had_it,
            last_step_of_the_user, best_steps_of_the_user, entries_of_the_users_steps, best_of_one_user,
            layers_of_the_user,
            heads_of_the_user, steps_by_numbers_of_others,
            steps_as_rows_by_the_users_size, titles_of_the_user]
REFUSED = []
