"""Patterns of exports without dynamic axes: the rows of the example are numbers."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np

from random_graph import ADS

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


def rows_of_one_that_meet(g):
    """One row as a step, summed over both."""
    g.rows, g.ad_inputs = 1, ["x"]
    x = g.input("x", g.random.randn(ADS, 4).astype(np.float32))
    steps = reshape(g, x, (1, 1, 4), x.array.reshape(1, -1, 4))
    g.output(g.node("ReduceMax", [steps], x.array.max(0, keepdims=True), axes=[0, 1], keepdims=0))


PATTERNS = [steps_in_front, sizes_by_a_condition, constants_of_rows, example_of_one_row,
            outputs_of_any_rows, user_of_the_example]
REFUSED = [(rows_of_one_that_meet, "cannot be told from other sizes of 1")]
