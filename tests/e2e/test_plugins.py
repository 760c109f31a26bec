"""Layer types from shared libraries in the daemon: tests/plugin_example, and what is refused.
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import unittest

import numpy as np

from harness import env, modelfiles
from harness.clients import (Client, infer_outputs, infer_request, outputs_of, predict_request)
from harness.daemon import FAST, Daemon, StartFailed, wait_for
from harness.fixtures import DaemonTest

BETA = 2.0


def swish_files():
    """x [ads, 3] -> swish -> fully connected."""
    graph = (modelfiles.layer("input_layer", "", [], ["x"]) +
             modelfiles.layer("acme_swish_layer", "swish", ["x"], ["y"],
                              param="plugin_param { attribute { name: \"beta\" number: 2 } }") +
             modelfiles.layer("inner_product_layer", "fc", ["y"], ["score"]))
    return {
        "graph_ulf.txt": graph,
        "weights.pb": modelfiles.weights_text({"fc": [np.array([[1], [-2], [0.5]]),
                                                      np.array([0.25])]}),
        "model.textproto": 'inputs { name: "x" level: INPUT_LEVEL_AD row_shape: 3 }\n',
    }


def swish_scores(x):
    x = x.astype(np.float64)
    return (x / (1 + np.exp(-BETA * x))) @ np.array([[1], [-2], [0.5]]) + 0.25


def add_swish(repository):
    modelfiles.write_version(os.path.join(repository, "acme", "1"), swish_files())


def with_plugin(name):
    return FAST + f'layer_plugins: "{env.program(name)}"\n'


class PluginTest(DaemonTest):
    """A model with a layer of the example plug-in."""

    @classmethod
    def setUpClass(cls):
        cls.CONFIG = with_plugin("plugin_example.so")
        super().setUpClass()

    @classmethod
    def fill(cls, repository):
        add_swish(repository)

    def test_scores(self):
        for ads in (1, 7, 300):
            x = np.random.RandomState(ads).standard_normal((ads, 3)).astype(np.float32) * 3
            reply = self.client.predict(predict_request("acme", {"x": x}, ()))
            self.assert_close(outputs_of(reply)["score"], swish_scores(x), 1e-5, f"{ads} ads")
            reply = self.client.infer(infer_request("acme", {"x": x}))
            self.assert_close(infer_outputs(reply)["score"], swish_scores(x), 1e-5, f"{ads} ads")

    def test_tools_load_it_too(self):
        directory = os.path.join(self.repository, "acme", "1")
        flag = f"--layer_plugins={env.program('plugin_example.so')}"
        done = subprocess.run([env.program("ulf"), "inspect", directory, flag],
                              capture_output=True, text=True, check=True)
        self.assertIn("acme_swish_layer", done.stdout)
        done = subprocess.run([env.program("ulf"), "inspect", directory], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('unknown layer type "acme_swish_layer"', done.stderr)


class RefusedPluginTest(unittest.TestCase):
    """The daemon ends with a reason, before it listens."""

    def start(self, config):
        repository = os.path.join(env.scratch("RefusedPlugin"), "models")
        os.makedirs(repository)
        add_swish(repository)
        return Daemon(repository, config=config, wait_ready=False, name="RefusedPlugin")

    def refuse(self, config, text):
        with self.assertRaises(StartFailed) as caught:
            self.start(config).kill()
        self.assertGreater(caught.exception.code, 0)
        self.assertIn(text, caught.exception.log)

    def test_another_abi(self):
        path = env.program("plugin_other_abi.so")
        self.refuse(with_plugin("plugin_other_abi.so"),
                    f"plug-in {path}: built for plug-in ABI 9999, want ")

    def test_no_plugin_at_all(self):
        path = env.program("plugin_without_table.so")
        self.refuse(with_plugin("plugin_without_table.so"),
                    f"plug-in {path}: exports no ulfd_layer_plugin")
        self.refuse(FAST + 'layer_plugins: "/nowhere/layers.so"\n', "plug-in /nowhere/layers.so: ")

    def test_the_same_types_twice(self):
        line = f'layer_plugins: "{env.program("plugin_example.so")}"\n'
        self.refuse(FAST + line + line, 'layer type "acme_swish_layer": another plug-in has it')

    def test_without_it_the_model_is_refused_by_name(self):
        with self.start(FAST) as daemon, Client(daemon) as client:
            wait_for(lambda: 'unknown layer type "acme_swish_layer"' in
                     getattr(client.version("acme", 1), "error", ""), "the model is refused")
