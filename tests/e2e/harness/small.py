"""Two more models: one whose scores tell which content computed them, and one that takes long.
SPDX-License-Identifier: Apache-2.0
"""
import numpy as np

from harness import env
from harness.modelfiles import (dense_txt, embedding_conf, layer, sparse_inputs, table_text,
                                weights_text)

STAMP_IDS = 50
STAMP_DIM = 4


def stamp_graph():
    return (layer("input_layer", "", [], sparse_inputs("ad")) +
            layer("embedding_layer", "embedding", sparse_inputs("ad"), ["e"],
                  param='embedding_param { embedding_conf_path: "ad.conf" level: 0 }') +
            layer("inner_product_layer", "fc", ["e"], ["score"]))


def stamp_files(stamp):
    """Scores are stamp * (id + 1): half of it comes from the table and half from the weights, so
    that a reply computed from two contents would match neither."""
    rows = {i: [stamp * i / STAMP_DIM] * STAMP_DIM for i in range(STAMP_IDS)}
    return {
        "graph_ulf.txt": stamp_graph(),
        "ad.conf": embedding_conf({"ad": ("items", STAMP_DIM)}, [[("ad", "udf_type: 0")]]),
        "items": table_text(rows),
        "weights.pb": weights_text({"fc": [np.ones((STAMP_DIM, 1)), np.array([stamp])]}),
    }


def stamp_inputs(ids):
    n = len(ids)
    return {"ad.ids": np.array(ids, np.int64), "ad.values": np.ones(n, np.float32),
            "ad.segments": np.ones(n, np.int32)}


def stamp_of(ids, scores):
    """The one stamp that explains every score, or None."""
    stamps = {float(s) / (i + 1) for i, s in zip(ids, scores)}
    return stamps.pop() if len(stamps) == 1 else None


# Instrumented kernels are about a hundred times as slow: the same time with fewer columns.
HEAVY_IN, HEAVY_HIDDEN = 32, 256 if env.SANITIZED else 2048


def heavy_files():
    """About 0.2 s of one core for 2000 ads, in a sanitized build as well."""
    random = np.random.RandomState(3)

    def draw(*shape):
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    fc = "inner_product_layer"
    graph = ('backend: "mxnet"\n' + layer("input_layer", "", [], ["x"]) +
             layer(fc, "fc1", ["x"], ["fc1"], ["w1", "b1"]) +
             layer("relu_layer", "relu1", ["fc1"], ["relu1"]) +
             layer(fc, "fc2", ["relu1"], ["fc2"], ["w2", "b2"]) +
             layer("relu_layer", "relu2", ["fc2"], ["relu2"]) +
             layer(fc, "fc3", ["relu2"], ["score"], ["w3", "b3"]))
    weights = {
        "arg:w1": draw(HEAVY_IN, HEAVY_HIDDEN), "arg:b1": draw(HEAVY_HIDDEN),
        "arg:w2": draw(HEAVY_HIDDEN, HEAVY_HIDDEN), "arg:b2": draw(HEAVY_HIDDEN),
        "arg:w3": draw(HEAVY_HIDDEN, 1), "arg:b3": draw(1),
    }
    manifest = ('inputs { name: "x" level: INPUT_LEVEL_AD row_shape: %d }\n'
                'outputs: "score"\n' % HEAVY_IN)
    return {"graph_ulf.txt": graph, "dense.txt": dense_txt(weights), "model.textproto": manifest}


def heavy_inputs(ads=2000):
    return {"x": np.random.RandomState(ads).standard_normal((ads, HEAVY_IN)).astype(np.float32)}
