"""Dense inputs whose widths and owners nothing states: requests show them, and plans are made.
SPDX-License-Identifier: Apache-2.0
"""
import os

import numpy as np

from harness import env
from harness.clients import infer_request, outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import DaemonTest
from harness.loading import ulf
from harness.metrics import scrape
from harness.modelfiles import layer, npz_bytes, weights_text, write, write_version

TOLERANCE = 1e-5
USER, LEFT, RIGHT, HIDDEN = 5, 7, 4, 16
RANDOM = np.random.RandomState(5)
W1, B1 = RANDOM.standard_normal((USER + LEFT + RIGHT, HIDDEN)), RANDOM.standard_normal(HIDDEN)
W2, B2 = RANDOM.standard_normal((HIDDEN, 1)), RANDOM.standard_normal(1)


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


class OpenShapesTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "open", "1"), files())

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
