"""Patterns of models of one user and many ads: the user's row is a dimension of 1."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np

from random_graph import ADS

STEPS, WIDTH = 6, 4


def history(g):
    return g.input("history", g.random.randn(1, STEPS, WIDTH).astype(np.float32), "user")


def ads(g):
    return g.input("ads", g.random.randn(ADS, WIDTH).astype(np.float32))


def total(g, x):
    """One score per ad of [ads, n]."""
    g.output(g.node("ReduceSum", [x, g.ints(1)], x.array.sum(1), keepdims=0))


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


PATTERNS = [sums_over_the_user, products_of_other_ranks, heads_of_ads, ads_beside_one,
            whether_the_user_had_it]
REFUSED = []
