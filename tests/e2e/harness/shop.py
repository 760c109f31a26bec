"""A small DIN-like model and its scores, computed in float64 from the formulas of the layers.

The graph uses what real exports use: assign pooling into a history, broadcasting of the ads against
it, a masked softmax, a fuse of user and ad columns, BN, dice, prelu; weights by arg_names in .npz.
SPDX-License-Identifier: Apache-2.0
"""
import numpy as np

from harness.modelfiles import (embedding_conf, layer, npz_bytes, sparse_inputs, table_text)

DIM, STEPS, HIDDEN = 8, 5, 16
USER = {"user", "history", "mask"}
TABLES = {"user_table": 30, "item_table": 200}


def _graph():
    fc = "inner_product_layer"
    text = 'name: "shop"\nbackend: "tensorflow"\n'
    text += layer("input_layer", "", [], sparse_inputs("user", "history", "ad") + ["mask", "ctx"])
    text += layer("embedding_layer", "embedding", sparse_inputs("ad"), ["ad_e"],
                  param='embedding_param { embedding_conf_path: "ad.conf" level: 0 }')
    text += layer("embedding_layer", "embedding", sparse_inputs("user", "history"),
                  ["user_e", "history_e"],
                  param='embedding_param { embedding_conf_path: "user.conf" level: 1 }')
    text += layer("reshape_layer", "keys", ["history_e"], ["keys"],
                  param=f"reshape_param {{ shape: 1 shape: -1 shape: {DIM} }}")
    text += layer("reshape_layer", "query", ["ad_e"], ["query"],
                  param=f"reshape_param {{ shape: -1 shape: 1 shape: {DIM} }}")
    text += layer("sub_layer", "diff", ["query", "keys"], ["diff"])
    text += layer("multiply_layer", "prod", ["query", "keys"], ["prod"])
    text += layer("broadcast_to_layer", "keys_b", ["keys", "diff"], ["keys_b"])
    text += layer("broadcast_to_layer", "query_b", ["query", "diff"], ["query_b"])
    text += layer("concat_layer", "att_in", ["query_b", "keys_b", "diff", "prod"], ["att_in"],
                  param="concat_param { dim: 2 }")
    text += layer(fc, "att1", ["att_in"], ["att1"], ["att1_w", "att1_b"])
    text += layer("sigmoid_layer", "att1_act", ["att1"], ["att1_act"])
    text += layer(fc, "att2", ["att1_act"], ["att2"], ["att2_w", "att2_b"])
    data = " ".join(["data: -4294967295"] * STEPS)
    text += layer("constant_layer", "paddings", [], ["paddings"],
                  param="constant_param { blob_data { shape: 1 shape: %d shape: 1 %s } }"
                  % (STEPS, data))
    text += layer("reshape_layer", "mask3", ["mask"], ["mask3"],
                  param=f"reshape_param {{ shape: 1 shape: {STEPS} shape: 1 }}")
    text += layer("where_layer", "masked", ["mask3", "att2", "paddings"], ["masked"])
    text += layer("softmax_layer", "att", ["masked"], ["att"], param="softmax_param { dim: 1 }")
    text += layer("batchdot_layer", "interest", ["att", "keys"], ["interest3"],
                  param="batch_dot_param { transpose_a: True transpose_b: False }")
    text += layer("reshape_layer", "interest_rows", ["interest3"], ["interest"],
                  param=f"reshape_param {{ shape: -1 shape: {DIM} }}")
    text += layer("concat_layer", "ad_part", ["ad_e", "interest", "ctx"], ["ad_part"],
                  param="concat_param { dim: 1 }")
    text += layer("fuse_layer", "features", ["user_e", "ad_part"], ["features"],
                  param="fuse_param { common_input_index: 0 }")
    text += layer("bn_layer", "bn", ["features"], ["bn"],
                  ["bn_beta", "bn_gamma", "bn_mean", "bn_var"], "bn_param { eps: 0.001 }")
    text += layer(fc, "fc1", ["bn"], ["fc1"], ["fc1_w", "fc1_b"])
    text += layer("dice_layer", "dice", ["fc1"], ["dice"], ["dice_gamma", "dice_mean", "dice_var"],
                  "dice_param { eps: 1e-8 }")
    text += layer(fc, "fc2", ["dice"], ["fc2"], ["fc2_w", "fc2_b"])
    text += layer("prelu_layer", "prelu", ["fc2"], ["prelu"], ["prelu_slope"])
    text += layer(fc, "fc3", ["prelu"], ["fc3"], ["fc3_w", "fc3_b"])
    text += layer("softmax_layer", "output", ["fc3"], ["output"], param="softmax_param { dim: 1 }")
    text += layer(fc, "buy", ["prelu"], ["buy_fc"], ["buy_w", "buy_b"],
                  "inner_product_param { transpose: true }")
    text += layer("sigmoid_layer", "buy_act", ["buy_fc"], ["buy"])
    return text


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


class Shop:
    def __init__(self, seed=7):
        random = np.random.RandomState(seed)

        def draw(*shape, scale=0.4):
            return (random.standard_normal(shape) * scale).astype(np.float32)

        self.tables = {name: {int(key): draw(DIM) for key in range(-3, rows)}
                       for name, rows in TABLES.items()}
        width = 3 * DIM + 3
        self.weights = {
            "att1_w": draw(4 * DIM, HIDDEN), "att1_b": draw(HIDDEN),
            "att2_w": draw(HIDDEN, 1, scale=1.0), "att2_b": draw(1),
            "bn_beta": draw(width), "bn_gamma": 1 + draw(width), "bn_mean": draw(width),
            "bn_var": np.abs(draw(width)) + np.float32(0.1),
            "fc1_w": draw(width, HIDDEN), "fc1_b": draw(HIDDEN),
            "dice_gamma": draw(HIDDEN), "dice_mean": draw(HIDDEN),
            "dice_var": np.abs(draw(HIDDEN)) + np.float32(0.1),
            "fc2_w": draw(HIDDEN, 6), "fc2_b": draw(6), "prelu_slope": draw(6),
            "fc3_w": draw(6, 2), "fc3_b": draw(2),
            "buy_w": draw(1, 6), "buy_b": draw(1),
        }

    def files(self, stated=True):
        """`stated`: a manifest says how wide the dense input is; else only the request does."""
        files = {name: table_text(rows) for name, rows in self.tables.items()}
        files["sparse.txt"] = ",".join(self.tables) + "\n"
        files["graph_ulf.txt"] = _graph()
        files["ad.conf"] = embedding_conf({"ad": ("item_table", DIM)}, [[("ad", "udf_type: 0")]])
        files["user.conf"] = embedding_conf(
            {"user": ("user_table", DIM), "history": ("item_table", DIM)},
            [[("user", "udf_type: 1")], [("history", f"udf_type: 2 trunc_num: {STEPS}")]])
        files["dense.npz"] = npz_bytes(self.weights)
        if stated:
            files["model.textproto"] = \
                'inputs { name: "ctx" level: INPUT_LEVEL_AD row_shape: 3 }\n'
        return files

    def inputs(self, ads, seed=0, plain=False):
        """Arrays of a request.  Not `plain`: several ids per ad, empty rows, unknown ids, weights
        other than 1, a history longer than what is kept."""
        random = np.random.RandomState(1000 + seed)
        history = random.randint(1, 2 * STEPS)
        if plain:
            counts = np.ones(ads, np.int32)
        else:
            counts = random.randint(0, 4, ads).astype(np.int32)
        n = int(counts.sum())

        def weights(size):
            if plain:
                return np.ones(size, np.float32)
            return random.uniform(0.5, 1.5, size).astype(np.float32)

        def ids(high, size):  # A fifth is beyond the table.
            return random.randint(-3, high + (0 if plain else high // 4), size).astype(np.int64)

        users = 1 if plain else 2
        valid = min(history, STEPS)
        mask = np.array([[0] * (STEPS - valid) + [1] * valid], np.int32)
        return {
            "user.ids": ids(TABLES["user_table"], users), "user.values": weights(users),
            "user.segments": np.array([users], np.int32),
            "history.ids": ids(TABLES["item_table"], history), "history.values": weights(history),
            "history.segments": np.array([history], np.int32),
            "ad.ids": ids(TABLES["item_table"], n), "ad.values": weights(n), "ad.segments": counts,
            "mask": mask, "ctx": random.standard_normal((ads, 3)).astype(np.float32),
        }

    def _row(self, table, key):
        row = self.tables[table].get(int(key))
        return np.zeros(DIM) if row is None else row.astype(np.float64)

    def _pooled(self, table, x, feature):
        rows, begin = [], 0
        for count in x[feature + ".segments"]:
            row = np.zeros(DIM)
            for i in range(begin, begin + count):
                row += float(x[feature + ".values"][i]) * self._row(table, x[feature + ".ids"][i])
            begin += count
            rows.append(row)
        return np.array(rows)

    def missing_ids(self, x):
        known = {"user": "user_table", "history": "item_table", "ad": "item_table"}
        missing = {}
        for feature, table in known.items():
            n = sum(i not in self.tables[table] for i in x[feature + ".ids"].tolist())
            missing[table] = missing.get(table, 0) + n
        return missing

    def scores(self, x):
        """{output: array}, float64."""
        w = {name: array.astype(np.float64) for name, array in self.weights.items()}
        ad = self._pooled("item_table", x, "ad")
        user = self._pooled("user_table", x, "user") / max(1, len(x["user.ids"]))
        # assign, reverse: the last ids, right-aligned.
        keys = np.zeros((STEPS, DIM))
        last = list(range(len(x["history.ids"])))[-STEPS:]
        for slot, i in zip(range(STEPS - len(last), STEPS), last):
            keys[slot] = float(x["history.values"][i]) * self._row("item_table",
                                                                   x["history.ids"][i])
        q = ad[:, None, :] + np.zeros((1, STEPS, 1))
        k = keys[None] + np.zeros((len(ad), 1, 1))
        att = np.concatenate([q, k, q - k, q * k], axis=2)
        att = _sigmoid(att @ w["att1_w"] + w["att1_b"]) @ w["att2_w"] + w["att2_b"]
        att = np.where(x["mask"].reshape(1, STEPS, 1) > 0, att, -4294967295.0)
        interest = (_softmax(att, 1) * k).sum(axis=1)
        features = np.concatenate([np.repeat(user, len(ad), axis=0), ad, interest,
                                   x["ctx"].astype(np.float64)], axis=1)
        bn = w["bn_gamma"] * (features - w["bn_mean"]) / np.sqrt(w["bn_var"] + 0.001) + w["bn_beta"]
        h = bn @ w["fc1_w"] + w["fc1_b"]
        p = _sigmoid((h - w["dice_mean"]) / np.sqrt(w["dice_var"] + 1e-8))
        h = p * h + (1 - p) * w["dice_gamma"] * h
        h = h @ w["fc2_w"] + w["fc2_b"]
        h = np.where(h > 0, h, w["prelu_slope"] * h)
        return {"output": _softmax(h @ w["fc3_w"] + w["fc3_b"], 1),
                "buy": _sigmoid(h @ w["buy_w"].T + w["buy_b"])}
