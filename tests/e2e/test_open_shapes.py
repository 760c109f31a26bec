"""Dense inputs whose widths and owners nothing states: requests show them, and plans are made.
SPDX-License-Identifier: Apache-2.0
"""
import os

import grpc
import numpy as np

from harness import env
from harness.clients import infer_outputs, infer_request, outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import DaemonTest
from harness.loading import ulf
from harness.metrics import scrape
from harness.modelfiles import (embedding_conf, layer, npz_bytes, sparse_inputs, table_text,
                                weights_text, write, write_version)

TOLERANCE = 1e-5
INVALID = grpc.StatusCode.INVALID_ARGUMENT
USER, LEFT, RIGHT, HIDDEN = 5, 7, 4, 16
RANDOM = np.random.RandomState(5)
W1, B1 = RANDOM.standard_normal((USER + LEFT + RIGHT, HIDDEN)), RANDOM.standard_normal(HIDDEN)
W2, B2 = RANDOM.standard_normal((HIDDEN, 1)), RANDOM.standard_normal(1)
W3, W4 = RANDOM.standard_normal((2 + HIDDEN, 1)), RANDOM.standard_normal((2, 1))


def files():
    """The widths of "left" and "right" are known together only."""
    graph = (layer("input_layer", "", [], ["user", "left", "right"]) +
             layer("concat_layer", "ads", ["left", "right"], ["ads"], param="concat_param { dim: 1 }") +
             layer("fuse_layer", "all", ["user", "ads"], ["all"],
                   param="fuse_param { common_input_index: 0 }") +
             layer("inner_product_layer", "fc1", ["all"], ["fc1"]) +
             layer("relu_layer", "act", ["fc1"], ["act"]) +
             layer("inner_product_layer", "fc2", ["act"], ["score"]))
    return {"graph_ulf.txt": graph, "weights.pb": weights_text({"fc1": [W1, B1], "fc2": [W2, B2]})}


def inputs(ads, seed):
    random = np.random.RandomState(seed)
    return {name: random.standard_normal((rows, width)).astype(np.float32)
            for name, rows, width in (("user", 1, USER), ("left", ads, LEFT), ("right", ads, RIGHT))}


def scores(arrays):
    ads = len(arrays["left"])
    x = np.concatenate([np.repeat(arrays["user"], ads, 0), arrays["left"], arrays["right"]], 1)
    return np.maximum(x.astype(np.float64) @ W1 + B1, 0) @ W2 + B2


def towers():
    """Weights say how wide "user" and "ad" are, and nothing whose rows they have."""
    fc = "inner_product_layer"
    graph = (layer("input_layer", "", [], ["user", "ad"]) + layer(fc, "fc1", ["user"], ["u"]) +
             layer(fc, "fc2", ["ad"], ["a"]) + layer("add_layer", "sum", ["u", "a"], ["score"]))
    return {"graph_ulf.txt": graph,
            "weights.pb": weights_text({"fc1": [W1[:USER], B1], "fc2": [W1[:LEFT], B1]})}


USERS = {i: np.array([i, -1.0]) for i in range(3)}
ITEMS = {i: np.array([1.0, i / 2]) for i in range(9)}


def beside():
    """A concat says that "u" has one row, as the user's embedding has; nobody reads the feature "x"."""
    graph = (layer("input_layer", "", [], sparse_inputs("user", "x", "item") + ["u"]) +
             layer("embedding_layer", "eu", sparse_inputs("user", "x"), ["eu"],
                   param='embedding_param { embedding_conf_path: "user.conf" level: 1 }') +
             layer("embedding_layer", "ei", sparse_inputs("item"), ["ei"],
                   param='embedding_param { embedding_conf_path: "item.conf" level: 0 }') +
             layer("inner_product_layer", "fc", ["u"], ["w"]) +
             layer("concat_layer", "all", ["eu", "w"], ["all"], param="concat_param { dim: 1 }") +
             layer("inner_product_layer_ex", "out", ["all", "ei"], ["score"]))
    return {"graph_ulf.txt": graph,
            "user.conf": embedding_conf({"user": ("users", 2)}, [[("user", "udf_type: 0")]]),
            "item.conf": embedding_conf({"item": ("items", 2)}, [[("item", "udf_type: 0")]]),
            "users": table_text(USERS), "items": table_text(ITEMS),
            "weights.pb": weights_text({"fc": [W1[:USER], B1],
                                        "out": [W3, W4, [0.5]]})}


def unread():
    """The towers, beside an embedding with a feature that no block reads, and one that no layer reads."""
    files = towers()
    files["graph_ulf.txt"] = (
        layer("input_layer", "", [], sparse_inputs("who", "x", "y")) + files["graph_ulf.txt"] +
        layer("embedding_layer", "eu", sparse_inputs("who", "x"), ["eu"],
              param='embedding_param { embedding_conf_path: "who.conf" level: 1 }') +
        layer("relu_layer", "act", ["eu"], ["known"]))
    return {**files, "users": table_text(USERS),
            "who.conf": embedding_conf({"who": ("users", 2)}, [[("who", "udf_type: 0")]])}


def stated():
    """Rows of two dimensions."""
    return {"graph_ulf.txt": layer("input_layer", "", [], ["x", "v"]) +
            layer("relu_layer", "act", ["x"], ["y"]) + layer("relu_layer", "act_v", ["v"], ["w"]),
            "model.textproto": 'inputs { name: "x" level: INPUT_LEVEL_AD row_shape: 2 row_shape: 3 }\n'
                               'inputs { name: "v" level: INPUT_LEVEL_USER row_shape: 3 row_shape: 1 }\n'}


class OpenShapesTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "open", "1"), files())
        write_version(os.path.join(repository, "towers", "1"), towers())
        write_version(os.path.join(repository, "beside", "1"), beside())
        write_version(os.path.join(repository, "unread", "1"), unread())
        write_version(os.path.join(repository, "stated", "1"), stated())

    def plans(self, state, version):
        return scrape(self.daemon).sum("ulfd_shape_plans", model="open", state=state,
                                       version=str(version))

    def unproved(self):
        return scrape(self.daemon).sum("ulfd_unproved_runs_total", model="open")

    def predict(self, ads, seed):
        arrays = inputs(ads, seed)
        reply = self.client.predict(predict_request("open", arrays, ("user",)))
        self.assert_close(outputs_of(reply)["score"], scores(arrays), TOLERANCE)
        return reply

    def test_from_the_first_request_to_the_next_version(self):
        self.predict(3, 1)
        self.assertEqual(self.unproved(), 1)
        wait_for(lambda: self.plans("serving", 1) == 1, "a plan")
        for ads in (1, 3, 200, 2000):
            self.predict(ads, ads)
        arrays = inputs(50, 9)
        self.client.infer(infer_request("open", arrays))
        self.assertEqual(self.unproved(), 1)
        self.assertEqual(self.plans("serving", 1), 1)
        self.assertEqual(self.plans("refused", 1), 0)
        notices = self.client.version("open", 1).notices
        self.assertTrue(any("plan for user: user [5], left: ad [7], right: ad [4]: serving" in notice
                            for notice in notices), notices)
        write_version(os.path.join(self.repository, "open", "2"), files())
        wait_for(lambda: self.predict(10, 10).model.version == 2, "version 2")
        self.assertEqual(self.plans("serving", 2), 1)
        self.assertEqual(self.unproved(), 1)

    def test_one_row_beside_others_with_many_is_the_users(self):
        random = np.random.RandomState(1)
        for ads in (3, 1, 40):
            ad = random.standard_normal((ads, LEFT)).astype(np.float32)
            for rows, of_user in ((1, ("user",)), (ads, ())):
                arrays = {"user": random.standard_normal((rows, USER)).astype(np.float32), "ad": ad}
                wanted = arrays["user"].astype(np.float64) @ W1[:USER] + ad @ W1[:LEFT] + 2 * B1
                reply = self.client.predict(predict_request("towers", arrays, of_user))
                self.assert_close(outputs_of(reply)["score"], wanted, TOLERANCE)
                reply = self.client.infer(infer_request("towers", arrays))
                self.assert_close(infer_outputs(reply)["score"], wanted, TOLERANCE)
        wait_for(lambda: scrape(self.daemon).sum("ulfd_shape_plans", model="towers",
                                                 state="serving") == 1, "a plan for the user's row")
        arrays = {"user": np.ones((2, USER), np.float32), "ad": np.ones((3, LEFT), np.float32)}
        with self.assert_refused(INVALID, "2 rows, but ", "has 3"):
            self.client.predict(predict_request("towers", arrays, ()))

    def test_a_feature_that_nobody_reads_where_requests_show_shapes(self):
        random = np.random.RandomState(3)
        for ads in (3, 5):
            for x in ([], [7]):
                arrays = {"user": random.standard_normal((1, USER)).astype(np.float32),
                          "ad": random.standard_normal((ads, LEFT)).astype(np.float32),
                          "who.ids": np.array([2], np.int64)}
                if x:
                    arrays["x.ids"] = arrays["y.ids"] = np.array(x, np.int64)
                for name in ("who", "x", "y"):
                    if f"{name}.ids" in arrays:
                        arrays[f"{name}.values"] = np.ones(1, np.float32)
                        arrays[f"{name}.segments"] = np.ones(1, np.int32)
                reply = self.client.predict(predict_request("unread", arrays, ("user", "who", "x", "y")))
                wanted = arrays["user"].astype(np.float64) @ W1[:USER] + \
                    arrays["ad"] @ W1[:LEFT] + 2 * B1
                self.assert_close(outputs_of(reply)["score"], wanted, TOLERANCE)
                self.assert_close(outputs_of(reply)["known"], np.array([[2.0, 0.0]]), TOLERANCE)
        wait_for(lambda: scrape(self.daemon).sum("ulfd_shape_plans", model="unread",
                                                 state="serving") == 1, "a plan")

    def test_shapes_that_the_model_states_may_be_left_out(self):
        arrays = {"x": np.arange(24, dtype=np.float32).reshape(4, 2, 3),
                  "v": np.ones((1, 3, 1), np.float32)}
        request = predict_request("stated", arrays, ("v",))
        for feature in (*request.ad_features, *request.user_features):
            feature.dense.ClearField("shape")
        request.ad_features.add(name="none").dense.floats.append(1)
        with self.assert_refused(INVALID, '"none": unknown'):
            self.client.predict(request)
        del request.ad_features[-1]
        outputs = outputs_of(self.client.predict(request))
        self.assert_close(outputs["y"], arrays["x"], TOLERANCE)
        self.assert_close(outputs["w"], arrays["v"], TOLERANCE)

    def test_what_the_graph_says_of_rows(self):
        u = np.random.RandomState(2).standard_normal((1, USER)).astype(np.float32)
        items = [3, 8, 0, 5]
        arrays = {"u": u}
        for name, ids in (("user", [2]), ("item", items)):
            arrays[f"{name}.ids"] = np.array(ids, np.int64)
            arrays[f"{name}.values"] = np.ones(len(ids), np.float32)
            arrays[f"{name}.segments"] = np.ones(len(ids), np.int32)
        user = np.concatenate([[USERS[2]], u @ W1[:USER] + B1], 1)
        wanted = user @ W3 + np.stack([ITEMS[i] for i in items]) @ W4 + 0.5
        for x in ([], [7], [7, 7]):
            more = {"x.ids": np.array(x, np.int64), "x.values": np.ones(len(x), np.float32),
                    "x.segments": np.array([len(x)], np.int32)} if x else {}
            reply = self.client.predict(predict_request("beside", {**arrays, **more},
                                                        ("user", "u", "x")))
            self.assert_close(outputs_of(reply)["score"], wanted, TOLERANCE)
            reply = self.client.infer(infer_request("beside", {**arrays, **more}))
            self.assert_close(infer_outputs(reply)["score"], wanted, TOLERANCE)
        self.assertEqual(scrape(self.daemon).sum("ulfd_unproved_runs_total", model="beside"), 0)

    def test_the_command_line(self):
        folder = env.scratch("open_shapes")
        version = os.path.join(folder, "open", "1")
        write_version(version, files())
        request, result = os.path.join(folder, "in.npz"), os.path.join(folder, "out.npz")
        arrays = inputs(6, 4)
        write(request, npz_bytes(arrays))
        code, plain, error = ulf("explain", version)
        self.assertEqual(code, 0, error)
        self.assertIn("  plan     as written: ", plain)
        code, shown, error = ulf("explain", version, f"--inputs={request}")
        self.assertEqual(code, 0, error)
        self.assertIn("  plan     optimised, ", shown)
        self.assertIn("  shapes   of --inputs: user: user [5], left: ad [7], right: ad [4]\n", shown)
        code, _, error = ulf("score", version, f"--inputs={request}", f"--outputs={result}")
        self.assertEqual(code, 0, error)
        self.assert_close(np.load(result)["score"], scores(arrays), TOLERANCE)
