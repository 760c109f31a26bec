"""The models of the benchmark as ONNX files, lookups included, with made-up weights.

Every table has ROWS rows: what is compared is computing and serving, not memory.  The user's inputs
have one row, which the graph repeats where it meets the ads.
SPDX-License-Identifier: Apache-2.0
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROWS = 1000
OPSET = 13


class Graph:
    """An ONNX graph being written.  Values are names; columns of the user have 1 row."""

    def __init__(self):
        self.random = np.random.default_rng(1)
        self.nodes, self.weights, self.inputs = [], [], []
        self.histories = []  # Names of the user's sparse inputs of more than one id, with the number.
        self.ads_input = None

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def input(self, name, kind, shape):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        if shape[0] == "ads":
            self.ads_input = name
        return name

    def dense(self, name, columns, user):
        return self.input(name, TensorProto.FLOAT, [1 if user else "ads", columns])

    def table(self, columns):
        return self.constant(self.random.normal(0, 0.5, (ROWS, columns)).astype(np.float32))

    def lookup(self, name, columns, user, table=None):
        ids = self.input(name, TensorProto.INT64, [1 if user else "ads"])
        return self.op("Gather", table or self.table(columns), ids)

    def history(self, name, steps, table):
        self.histories.append((name, steps))
        return self.op("Gather", table, self.input(name, TensorProto.INT64, [1, steps]))

    def for_each_ad(self, value, dims):
        """The user's value of so many dimensions beside the first, once per ad."""
        ads = self.op("Shape", self.ads_input)
        ads = self.op("Slice", ads, self.constant(np.array([0])), self.constant(np.array([1])))
        return self.op("Expand", value, self.op("Concat", ads, self.constant(np.ones(dims, np.int64)),
                                                axis=0))

    def linear(self, value, columns, width, bias=True):
        scale = np.sqrt(2 / columns)
        made = self.random.normal(0, scale, (columns, width)).astype(np.float32)
        value = self.op("MatMul", value, self.constant(made))
        if not bias:
            return value
        return self.op("Add", value, self.constant(self.random.normal(0, 0.1, width).astype(np.float32)))

    def mlp(self, value, columns, widths, last=None, activation="Relu"):
        """Layers of these widths, and one without activation where `last` is its width."""
        for width in widths:
            value, columns = self.op(activation, self.linear(value, columns, width)), width
        return value if last is None else self.linear(value, columns, last)

    def attention(self, query, keys, steps, columns, widths, activation):
        """The user's keys [1, steps, columns] weighed by what each ad's query [ads, columns] makes
        of them, summed."""
        keys = self.for_each_ad(keys, 2)
        query = self.op("Unsqueeze", query, self.constant(np.array([1])))
        query = self.op("Expand", query, self.constant(np.array([1, steps, 1])))
        pairs = self.op("Concat", query, keys, self.op("Sub", query, keys), self.op("Mul", query, keys),
                        axis=2)
        logits = self.mlp(pairs, 4 * columns, widths, 1, activation)
        weights = self.op("Softmax", self.op("Transpose", logits, perm=[0, 2, 1]), axis=2)
        return self.op("Squeeze", self.op("MatMul", weights, keys), self.constant(np.array([1])))

    def score(self, logits, path):
        self.nodes.append(helper.make_node("Sigmoid", [logits], ["score"]))
        output = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["ads", 1])
        graph = helper.make_graph(self.nodes, "ranking", self.inputs, [output], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 7
        onnx.checker.check_model(model)
        onnx.save(model, path)


def mlp(g):
    return g.mlp(g.dense("ad", 306, user=False), 306, [200, 80], 1)


def din(g):
    """Deep Interest Network with the sizes of its authors' public export."""
    item, category = g.table(18), g.table(18)
    query = g.op("Concat", g.lookup("item", 18, False, item), g.lookup("category", 18, False, category),
                 axis=1)
    keys = g.op("Concat", g.history("hist_item", 100, item), g.history("hist_category", 100, category),
                axis=2)
    interest = g.attention(query, keys, 100, 36, [80, 40], "Sigmoid")
    total = g.op("ReduceSum", keys, g.constant(np.array([1])), keepdims=0)
    total = g.op("Mul", total, g.constant(np.float32(0.01)))
    columns = g.op("Concat", g.for_each_ad(g.lookup("user", 18, True), 1), query,
                   g.for_each_ad(total, 1), g.op("Mul", query, total), interest, axis=1)
    return g.mlp(columns, 162, [200, 80], 1)


def dlrm_columns(g, width):
    """Criteo's 13 numbers and 26 ids, the latter half of the user, half of the ads."""
    numbers = g.dense("numbers", 13, user=True)
    tables = [g.lookup(f"cat_{i}", width, user=i < 13) for i in range(26)]
    return numbers, [g.for_each_ad(t, 1) if i < 13 else t for i, t in enumerate(tables)]


def dlrmv2(g):
    """MLPerf's DLRMv2: 26 tables of 128 columns, three low-rank cross layers, top 1024-1024-512-256-1."""
    numbers, tables = dlrm_columns(g, 128)
    bottom = g.for_each_ad(g.mlp(numbers, 13, [512, 256, 128]), 1)
    first = crossed = g.op("Concat", bottom, *tables, axis=1)
    for _ in range(3):
        low = g.linear(crossed, 27 * 128, 512, bias=False)
        high = g.op("Mul", g.linear(low, 512, 27 * 128), g.constant(np.float32(0.1)))
        crossed = g.op("Add", g.op("Mul", first, high), crossed)
    return g.mlp(crossed, 27 * 128, [1024, 1024, 512, 256], 1)


def easyrec_dlrm(g):
    """TorchEasyRec's examples/dlrm_criteo.config: width 16, bottom 64-16, all pairs, top 64-32."""
    numbers, tables = dlrm_columns(g, 16)
    bottom = g.for_each_ad(g.mlp(numbers, 13, [64, 16]), 1)
    fields = g.op("Concat", *(g.op("Unsqueeze", t, g.constant(np.array([1]))) for t in [bottom, *tables]),
                  axis=1)
    pairs = g.op("MatMul", fields, g.op("Transpose", fields, perm=[0, 2, 1]))
    pairs = g.op("Reshape", pairs, g.constant(np.array([-1, 27 * 27])))
    row, column = np.triu_indices(27, 1)
    pairs = g.op("Gather", pairs, g.constant(row * 27 + column), axis=1)
    return g.mlp(g.op("Concat", bottom, *tables, pairs, axis=1), 27 * 16 + 27 * 13, [64, 32], 1)


def easyrec_din(g):
    """TorchEasyRec's examples/multi_tower_din_taobao.config: 16 columns of width 16, 100 clicks,
    attention 256-64, deep tower 512-256-128, final 64."""
    tables = {name: g.table(16) for name in ("adgroup", "cate", "brand")}
    ads = {name: g.lookup(name, 16, False, table) for name, table in tables.items()}
    others = [g.lookup(name, 16, False) for name in ("campaign", "customer", "price")]
    users = [g.for_each_ad(g.lookup(f"user_{i}", 16, True), 1) for i in range(10)]
    query = g.op("Concat", *ads.values(), axis=1)
    keys = g.op("Concat", *(g.history(f"clicked_{name}", 100, table) for name, table in tables.items()),
                axis=2)
    interest = g.attention(query, keys, 100, 48, [256, 64], "Relu")
    deep = g.mlp(g.op("Concat", *users, *ads.values(), *others, axis=1), 256, [512, 256, 128])
    return g.mlp(g.op("Concat", deep, interest, axis=1), 176, [64], 1)


MODELS = {"mlp": mlp, "din": din, "dlrmv2": dlrmv2, "easyrec_dlrm": easyrec_dlrm,
          "easyrec_din": easyrec_din}


def write(name, path):
    """Writes the model; returns its histories, [(input, ids)]."""
    graph = Graph()
    graph.score(MODELS[name](graph), path)
    return graph.histories
