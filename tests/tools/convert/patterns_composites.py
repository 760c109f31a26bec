"""Operators that others say as well: of new operator sets, scikit-learn, and quantised models."""
# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from patterns_heads import softmax
from random_graph import ADS, Value, raw

MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"


def numbers(g, *shape):
    return g.random.randn(*shape).astype(np.float32)


def call(g, domain, op, inputs, array, **attributes):
    """A node of another domain, whose output is compared."""
    g.domains[domain] = 1
    value = raw(g, op, inputs, np.asarray(array, np.float32), domain=domain, **attributes)
    g.output(value)
    return value


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def root_mean_square(g):
    g.opset = 23
    x, scale = g.input("x", numbers(g, ADS, 3, 4)), g.constant(numbers(g, 4))
    a = x.array.astype(float)
    call(g, "", "RMSNormalization", [x, scale],
         a / np.sqrt((a ** 2).mean(-1, keepdims=True) + 1e-5) * scale.array, axis=-1)


def gated(g):
    """Activations of operator sets 24 and 28."""
    g.opset = 28
    x, y = g.input("x", numbers(g, ADS, 3, 4)), g.input("y", numbers(g, ADS, 3, 4))
    for alpha in (1.0, 0.7):
        swish = x.array / (1 + np.exp(-alpha * x.array))
        call(g, "", "Swish", [x], swish, alpha=alpha)
        call(g, "", "SwiGLU", [x, y], swish * y.array, alpha=alpha)


def heads_of(a, heads=2):
    return a.reshape(*a.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def attend(q, k, v, mask=0.0):
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]) + mask
    return softmax(scores) @ v


def joined(a):
    return a.transpose(0, 2, 1, 3).reshape(a.shape[0], a.shape[2], -1)


def attention_of_set_23(g):
    g.opset = 23
    x, y = g.input("x", numbers(g, ADS, 3, 4)), g.input("y", numbers(g, ADS, 5, 4))
    seen = g.random.rand(3, 5) > 0.4
    seen[1] = False  # A query that sees nothing has zeros.
    mask = g.constant(seen)
    own = heads_of(x.array), heads_of(y.array), heads_of(y.array)
    call(g, "", "Attention", [x, y, y, mask],
         joined(attend(*own, np.where(mask.array, 0, -1e30)) * mask.array.any(1)[:, None]),
         q_num_heads=2, kv_num_heads=2)
    # Two heads of queries for each of keys and values.
    x = g.input("wide", numbers(g, ADS, 3, 8))
    q, kv = heads_of(x.array, 4), heads_of(y.array)
    shared = attend(q, kv.repeat(2, 1), kv.repeat(2, 1))
    call(g, "", "Attention", [x, y, y], joined(shared), q_num_heads=4, kv_num_heads=2)
    apart = [g.node("Transpose", [g.node("Reshape", [v, g.ints(0, 0, heads, 2)],
                                         v.array.reshape(*v.array.shape[:2], heads, 2))],
                    heads_of(v.array, heads), perm=[0, 2, 1, 3]) for v, heads in ((x, 4), (y, 2))]
    call(g, "", "Attention", [apart[0], apart[1], apart[1]], shared)


def quantised_weights(g):
    """Of one scale, and of one per column or row; a table of bytes, made floats after the look-up."""
    x, ids = g.input("x", numbers(g, ADS, 4)), g.input("i", g.random.randint(0, 9, (ADS,)))
    whole = g.random.randint(-128, 128, (4, 6)).astype(np.int8)
    for scale, zero, axis in ((0.1, 3, 1), (g.random.rand(6), None, 1),
                              (g.random.rand(4), g.random.randint(-5, 5, 4), 0)):
        scale = np.asarray(scale, np.float32)
        inputs = [g.constant(whole), g.constant(scale)]
        if zero is not None:
            inputs.append(g.constant(np.asarray(zero, np.int8)))
        spread = (lambda a: np.reshape(a, (-1, 1))) if axis == 0 else np.asarray
        weight = (whole - spread(0 if zero is None else zero).astype(float)) * spread(scale)
        weight = raw(g, "DequantizeLinear", inputs, weight.astype(np.float32), None, axis=axis)
        g.output(g.node("MatMul", [x, weight], x.array @ weight.array))
    table = g.constant(g.random.randint(0, 256, (9, 3)).astype(np.uint8))
    row = raw(g, "Gather", [table, ids], table.array[ids.array])
    own = g.constant(np.float32(0.02)), g.constant(np.uint8(120))
    g.output(raw(g, "DequantizeLinear", [row, *own],
                 ((row.array.astype(float) - 120) * 0.02).astype(np.float32)))


def scales_of_nothing(g, scale=np.zeros(0, np.float32), weight=1):
    x = g.input("x", numbers(g, ADS, 4))
    whole = g.constant(np.ones((4, 6), np.int8))
    weight = raw(g, "DequantizeLinear", [whole, g.constant(scale)],
                 whole.array.astype(np.float32) * weight, None)
    g.output(g.node("MatMul", [x, weight], x.array @ weight.array))


def scales_of_integers(g):
    g.domains["none"] = 1  # Not for ONNX's own checker.
    scales_of_nothing(g, np.array(2), 2)


def quantised_activations(g):
    x = g.input("x", numbers(g, ADS, 4))
    scale, zero = g.constant(np.float32(0.037)), g.constant(np.uint8(128))
    whole = np.clip(np.round(x.array / np.float32(0.037)) + 128, 0, 255)
    quantised = raw(g, "QuantizeLinear", [x, scale, zero], whole)
    seen = (whole - 128) * 0.037
    g.output(raw(g, "DequantizeLinear", [quantised, scale, zero], seen.astype(np.float32)))
    weight = g.constant(g.random.randint(-128, 128, (4, 6)).astype(np.int8))
    product = (whole - 128) @ weight.array.astype(float)
    integers = raw(g, "MatMulInteger", [quantised, weight, zero], product)
    g.output(raw(g, "Cast", [integers], (product / 1).astype(np.float32), to=TensorProto.FLOAT))
    by = [g.constant(np.float32(0.01)), g.constant(np.int8(2))]
    out = [g.constant(np.float32(0.11)), g.constant(np.int8(-4))]
    found = seen @ ((weight.array.astype(float) - 2) * 0.01)
    found = np.clip(np.round(found / 0.11) - 4, -128, 127)
    product = raw(g, "QLinearMatMul", [quantised, scale, zero, weight, *by, *out], found)
    g.output(raw(g, "DequantizeLinear", [product, *out],
                 ((found + 4) * 0.11).astype(np.float32)))


def quantised_by_the_request(g):
    x = g.input("x", numbers(g, ADS, 4))
    whole = raw(g, "DynamicQuantizeLinear", [x], x.array)
    g.nodes[-1].output.extend([g.fresh(), g.fresh()])
    g.output(whole)


def with_zeros(g, *shape):
    """Numbers whose first row is zeros: it has no size to be divided by."""
    values = numbers(g, *shape)
    values[0] = 0
    return g.input("x", values)


def scalers_and_linear_models(g):
    x = with_zeros(g, ADS, 3)
    a = x.array.astype(float)
    scaled = call(g, ML, "Scaler", [x], (a - [0.5, -1, 2]) * [2, 0.25, 3], offset=[0.5, -1.0, 2.0],
                  scale=[2.0, 0.25, 3.0])
    for norm, size in (("L1", np.abs(a).sum(1)), ("L2", np.sqrt((a ** 2).sum(1))),
                       ("MAX", a.max(1))):
        call(g, ML, "Normalizer", [x], a / np.where(size == 0, 1, size)[:, None], norm=norm)
    call(g, ML, "Binarizer", [x], a > 0.25, threshold=0.25)
    call(g, ML, "FeatureVectorizer", [x, scaled], np.concatenate([a, scaled.array], 1),
         inputdimensions=[3, 3])
    call(g, ML, "ArrayFeatureExtractor", [x, g.ints(2, 0)], a[:, [2, 0]])
    weights = g.random.randn(2, 3).round(2)
    product = scaled.array @ weights.T + [0.5, -0.25]
    given = {"coefficients": [float(w) for w in weights.ravel()], "intercepts": [0.5, -0.25]}
    call(g, ML, "LinearRegressor", [scaled], product, targets=2, **given)
    for how, fn in (("LOGISTIC", sigmoid), ("SOFTMAX", softmax)):
        names = [g.fresh(), g.fresh()]
        label = raw(g, "LinearClassifier", [scaled], None, domain=ML, classlabels_ints=[0, 1],
                    post_transform=how, **given)
        g.nodes[-1].output[:] = names
        label.name, label.array = names[1], fn(product).astype(np.float32)
        g.output(label)


def one_row_for_two_classes(g):
    x = g.input("x", numbers(g, ADS, 4))
    weights = g.random.randn(4).round(2)
    score = (x.array.astype(float) @ weights + 0.25)[:, None]
    g.domains[ML] = 1
    for how, second in (("NONE", score), ("LOGISTIC", sigmoid(score))):
        raw(g, "LinearClassifier", [x], None, domain=ML, classlabels_ints=[3, 8],
            intercepts=[0.25], coefficients=[float(w) for w in weights], post_transform=how)
        names = g.nodes[-1].output[:] = [g.fresh(), g.fresh()]
        both = np.hstack([1 - second, second])
        g.output(g.keep(Value(names[1], both.astype(np.float32), "ads")))
        g.output(g.keep(Value(names[0], np.where(score[:, 0] > 0, 8, 3), "ads")))


def forest(g, kind, outputs):
    """Random trees as attributes, and what leaves x's rows reach add up to."""
    lists = {"treeids": [], "nodeids": [], "featureids": [], "values": [], "modes": [],
             "truenodeids": [], "falsenodeids": [], "missing_value_tracks_true": []}
    weights = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    meets = {"BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GT": np.greater,
             "BRANCH_GTE": np.greater_equal, "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal}

    def grow(tree, depth):
        place = len(lists["modes"])
        number = place - lists["treeids"].index(tree) if tree in lists["treeids"] else 0
        branches = depth > 0 and g.random.rand() < 0.8
        mode = list(meets)[g.random.randint(6)] if branches else "LEAF"
        feature, value = int(g.random.randint(3)), float(np.float32(round(g.random.randn(), 1)))
        missing = int(g.random.randint(2))
        for name, own in zip(lists, (tree, number, feature, value, mode, 0, 0, missing)):
            lists[name].append(own)
        if not branches:
            output, weight = int(g.random.randint(outputs)), float(round(g.random.randn(), 2))
            for name, own in zip(weights, (tree, number, output, weight)):
                weights[name].append(own)
            return number, lambda row: np.eye(outputs)[output] * weight
        below, above = grow(tree, depth - 1), grow(tree, depth - 1)
        lists["truenodeids"][place], lists["falsenodeids"][place] = below[0], above[0]

        def leaf(row):
            holds = meets[mode](row[feature], np.float32(value))
            return (below if holds or missing and np.isnan(row[feature]) else above)[1](row)

        return number, leaf

    trees = [grow(t, 4)[1] for t in range(5)]
    attributes = {f"nodes_{name}": own for name, own in lists.items()}
    attributes |= {f"{kind}_{name}": own for name, own in weights.items()}
    return attributes, lambda x: np.stack([sum(tree(row) for tree in trees) for row in x])


def trees(g):
    """Regressions, classes, and LightGBM's two classes by the leaves of one."""
    values = g.random.randn(ADS, 3).round(1).astype(np.float32)
    values[g.random.rand(ADS, 3) < 0.2] = np.nan
    x = g.input("x", values)
    attributes, found = forest(g, "target", 2)
    call(g, ML, "TreeEnsembleRegressor", [x], found(x.array) + [0.5, -1], n_targets=2,
         base_values=[0.5, -1.0], **attributes)
    call(g, ML, "TreeEnsembleRegressor", [x], found(x.array) / 5, n_targets=2,
         aggregate_function="AVERAGE", **attributes)
    for outputs, how, fn in ((3, "SOFTMAX", softmax),
                             (1, "LOGISTIC", lambda a: np.hstack([sigmoid(-a), sigmoid(a)]))):
        attributes, found = forest(g, "class", outputs)
        raw(g, "TreeEnsembleClassifier", [x], None, domain=ML, post_transform=how,
            classlabels_int64s=list(range(max(2, outputs))), **attributes)
        names = g.nodes[-1].output[:] = [g.fresh(), g.fresh()]
        g.output(g.keep(Value(names[1], fn(found(x.array)).astype(np.float32), "ads")))


def tensor(values, dtype):
    return numpy_helper.from_array(np.array(values, dtype), "")


def trees_of_set_5(g):
    """Trees that are named by their roots, whose leaves are apart from their nodes."""
    values = g.random.randn(ADS, 3).round(1).astype(np.float32)
    values[g.random.rand(ADS, 3) < 0.2] = np.nan
    x = g.input("x", values)
    old, found = forest(g, "target", 2)
    keys = list(zip(old["nodes_treeids"], old["nodes_nodeids"]))
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    leaf = {key: i for i, key in enumerate(zip(old["target_treeids"], old["target_nodeids"]))}
    # A tree that is one leaf is a node with this leaf on either side.
    node = [key for key in keys if key not in leaf or key[1] == 0]
    rows = [keys.index(key) for key in node]
    children = [[(tree, old[f"nodes_{side}nodeids"][row]) for row, (tree, _) in zip(rows, node)]
                for side in ("true", "false")]
    of = {f"nodes_{side}{kind}": value for side, own in zip(("true", "false"), children)
          for kind, value in (("nodeids", [leaf[c] if c in leaf else node.index(c) for c in own]),
                              ("leafs", [int(c in leaf) for c in own]))}
    for how, divided in ((0, 5), (1, 1)):
        call(g, ML, "TreeEnsemble", [x], found(x.array) / divided, n_targets=2,
             aggregate_function=how, tree_roots=[node.index((t, 0)) for t in range(5)],
             nodes_featureids=[old["nodes_featureids"][row] for row in rows],
             nodes_modes=tensor([modes.index(old["nodes_modes"][row])
                                 if old["nodes_modes"][row] != "LEAF" else 0 for row in rows],
                                np.uint8),
             nodes_splits=tensor([old["nodes_values"][row] for row in rows], np.float32),
             nodes_missing_value_tracks_true=[
                 old["nodes_missing_value_tracks_true"][row] for row in rows],
             leaf_targetids=old["target_ids"],
             leaf_weights=tensor(old["target_weights"], np.float32), **of)


def trees_with_a_cycle(g):
    x = g.input("x", g.random.randn(ADS, 3).astype(np.float32))
    call(g, ML, "TreeEnsembleRegressor", [x], x.array, nodes_treeids=[0, 0], nodes_nodeids=[0, 1],
         nodes_featureids=[0, 0], nodes_values=[0.5, 0.0], nodes_modes=["BRANCH_LEQ", "LEAF"],
         nodes_truenodeids=[0, 0], nodes_falsenodeids=[1, 0], target_treeids=[0],
         target_nodeids=[1], target_ids=[0], target_weights=[1.0])


def encoders(g):
    x, ids = g.input("x", numbers(g, ADS, 3)), g.input("i", g.random.randint(0, 6, (ADS,)))
    call(g, ML, "OneHotEncoder", [ids], ids.array[:, None] == [0, 2, 5], cats_int64s=[0, 2, 5])
    call(g, ML, "Imputer", [x], np.where(x.array == 0, [1, 2, 3], x.array),
         imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=0.0)


def encoded_labels(g):
    """Ids that are numbered anew and looked up, and ids that stand for numbers."""
    ids = g.input("i", g.random.randint(0, 12, (ADS,)))
    labels, numbers_of = {2: 3, 5: 1, 9: 2}, {2: 0.5, 5: -1.0, 9: 4.0}
    g.domains[ML] = 1
    new = np.array([labels.get(i, 0) for i in ids.array])
    place = raw(g, "LabelEncoder", [ids], new, domain=ML, keys_int64s=list(labels),
                values_int64s=list(labels.values()), default_int64=0)
    table = g.constant(numbers(g, 4, 3))
    g.output(g.node("Gather", [table, place], table.array[new]))
    call(g, ML, "LabelEncoder", [ids], [numbers_of.get(i, 7.0) for i in ids.array],
         keys_int64s=list(numbers_of), values_floats=list(numbers_of.values()), default_float=7.0)


def encoded_floats(g):
    """Categories in a matrix of floats."""
    x = g.input("x", g.random.randint(0, 5, (ADS, 2)).astype(np.float32) / 2)
    for key, default in (("floats", 7.0), ("int64s", -3)):
        numbers_of = {0.0: 3, 1.0: -1, 1.5: 4}
        found = np.vectorize(lambda v, d=default, of=numbers_of: of.get(float(v), d))(x.array)
        values = [type(default)(v) for v in numbers_of.values()]
        g.domains[ML] = 1
        label = raw(g, "LabelEncoder", [x], found.astype(np.float32 if default > 0 else np.int64),
                    domain=ML, keys_floats=list(numbers_of), **{f"values_{key}": values},
                    **{f"default_{key.rstrip('s')}": default})
        g.output(label)
    call(g, ML, "OneHotEncoder", [x], np.trunc(x.array)[..., None] == [0, 2], cats_int64s=[0, 2])


def encoded_whole_floats(g):
    """Categories that are whole numbers, beside what is none of them."""
    found = np.array([[0, 3.5], [-2, 61], [40, 1e30], [-1e9, 7], [-3, 2]], np.float32)
    x = g.input("x", found)
    keys = [-2.0, 0.0, 2.0, 7.0, 40.0, 60.0]
    for key, values, default in (("floats", [0.5, 1.5, -2.0, 8.0, 4.0, 3.0], 9.0),
                                 ("int64s", [5, 4, 3, 2, 1, 0], -7)):
        of = dict(zip(keys, values))
        g.domains[ML] = 1
        array = np.vectorize(lambda v, of=of, d=default: of.get(float(v), d))(found)
        label = raw(g, "LabelEncoder", [x], array.astype(
            np.float32 if key == "floats" else np.int64), domain=ML, keys_floats=keys,
            **{f"values_{key}": values, f"default_{key.rstrip('s')}": default})
        g.output(label)
    g.output(x)


def labels_far_apart(g):
    ids = g.input("i", g.random.randint(0, 12, (ADS,)))
    call(g, ML, "LabelEncoder", [ids], ids.array, keys_int64s=[1, 1 << 40], values_floats=[1.0, 2.0])


def labels_of_classes(g):
    """scikit-learn's classifiers: the label of the best class, from a list of them."""
    x = g.input("x", numbers(g, ADS, 3))
    best = raw(g, "ArgMax", [x], x.array.argmax(1)[:, None], axis=1)
    labels = g.constant(np.array([7, 5, 9], np.int32))
    row = g.fresh()
    label = Value(row, labels.array[best.array.T], "ads")
    g.domains[ML] = 1
    g.nodes.append(helper.make_node("ArrayFeatureExtractor", [labels.name, best.name], [row],
                                    domain=ML))
    g.output(g.node("Reshape", [label, g.ints(-1)], label.array.reshape(-1)))


def maps(g):
    """What scikit-learn's exporters end with: the scores, a column for each label."""
    x = g.input("x", numbers(g, ADS, 2))
    call(g, ML, "ZipMap", [x], x.array, classlabels_int64s=[0, 1])


def fused_attention(g):
    x = g.input("x", numbers(g, ADS, 3, 4))
    call(g, MICROSOFT, "Attention", [x, g.constant(numbers(g, 4, 12)), g.constant(numbers(g, 12))],
         x.array, num_heads=2)


def transformed_regression(g):
    x = g.input("x", numbers(g, ADS, 2))
    call(g, ML, "LinearRegressor", [x], x.array[:, :1], coefficients=[1.0, 0.0],
         post_transform="LOGISTIC")


def norms_and_choices(g):
    x = with_zeros(g, ADS, 3, 4)
    for p in (1, 2):
        size = np.linalg.norm(x.array, p, 1, keepdims=True)
        normal = x.array / np.where(size == 0, 1, size)
        g.output(g.node("LpNormalization", [x], normal, axis=1, p=p))
    some = np.array([True, False, True, True])
    g.output(g.node("Compress", [x, g.constant(some)], x.array[:, :, some], axis=2))


def columns_that_are_cut(g):
    x = g.input("x", numbers(g, ADS, 3))
    call(g, ML, "FeatureVectorizer", [x], x.array[:, :2], inputdimensions=[2])


def trees_in_double_precision(g):
    x = g.input("x", numbers(g, ADS, 3))
    base = numpy_helper.from_array(np.array([0.5]))
    call(g, ML, "TreeEnsembleRegressor", [x], np.ones((ADS, 1)), nodes_treeids=[0], nodes_nodeids=[0],
         nodes_featureids=[0], nodes_values=[0.0], nodes_modes=["LEAF"], nodes_truenodeids=[0],
         nodes_falsenodeids=[0], target_treeids=[0], target_nodeids=[0], target_ids=[0],
         target_weights=[0.5], n_targets=1, base_values_as_tensor=base)


PATTERNS = [root_mean_square, gated, attention_of_set_23,
            quantised_weights, scales_of_integers, quantised_activations, encoded_labels,
            encoded_floats, encoded_whole_floats, scalers_and_linear_models,
            one_row_for_two_classes, trees, trees_of_set_5, encoders,
            labels_of_classes, maps, norms_and_choices]
REFUSED = [(columns_that_are_cut, "want 2 elements rather than 3"),
           (trees_in_double_precision, "TreeEnsembleRegressor"),
           (quantised_by_the_request, "as it was before it was quantised"),
           (scales_of_nothing, "DequantizeLinear"),
           (labels_far_apart, "labels that are integers"),
           (trees_with_a_cycle, "with a cycle"),
           (transformed_regression, "without post_transform"),
           (fused_attention, "convert the model that it was made of")]
