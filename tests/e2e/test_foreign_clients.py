"""Clients of other projects: @grpc/grpc-js with the public KServe v2 protocol, and buf curl.
SPDX-License-Identifier: Apache-2.0
"""
import base64
import json
import os
import shutil
import subprocess
import time
import unittest

import numpy as np

from harness import env
from harness.clients import infer_request
from harness.fixtures import DaemonTest, add_shop, add_stamp, shop
from harness.shop import USER

BUF = os.path.join(env.NODE_MODULES, ".bin", "buf")


def want_node_module(name):
    if shutil.which("node") is None or not os.path.isdir(os.path.join(env.NODE_MODULES, name)):
        raise unittest.SkipTest(f"no {name} in build/node: tests/run installs it")


class KserveNodeTest(DaemonTest):
    """The RPCs of KServe and Triton from @grpc/grpc-js."""

    @classmethod
    def setUpClass(cls):
        want_node_module("@grpc/grpc-js")
        super().setUpClass()

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        # A second model, of which one version cannot be loaded.
        add_stamp(repository, 1)
        add_stamp(repository, 2, version=2)
        with open(os.path.join(repository, "stamp", "2", "items"), "r+b") as file:
            file.truncate(20)

    def call(self, *steps):
        plan = os.path.join(env.scratch("kserve"), "plan.json")
        with open(plan, "w", encoding="utf-8") as file:
            json.dump([{"rpc": rpc, "request": request} for rpc, request in steps], file)
        done = subprocess.run(
            ["node", os.path.join(env.E2E, "clients", "kserve.js"), self.daemon.target, plan],
            capture_output=True, text=True, check=False, timeout=120 * env.SLOWNESS,
            env={**os.environ, "NODE_PATH": env.NODE_MODULES})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    @staticmethod
    def as_json(request):
        """A ModelInferRequest as proto-loader takes it."""
        inputs = []
        for tensor in request.inputs:
            found = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
            for field, values in tensor.contents.ListFields():
                found.setdefault("contents", {})[field.name] = list(values)
            inputs.append(found)
        return {"model_name": request.model_name, "model_version": request.model_version,
                "id": request.id, "inputs": inputs,
                "outputs": [{"name": o.name} for o in request.outputs],
                "raw_input_contents": [base64.b64encode(raw).decode()
                                       for raw in request.raw_input_contents]}

    def test_live_ready_and_metadata(self):
        live, ready, model, version, nothing, nowhere, server, meta = self.call(
            ("ServerLive", {}), ("ServerReady", {}), ("ModelReady", {"name": "shop"}),
            ("ModelReady", {"name": "shop", "version": "1"}), ("ModelReady", {"name": "shopp"}),
            ("ModelReady", {"name": "shop", "version": "9"}), ("ServerMetadata", {}),
            ("ModelMetadata", {"name": "shop"}))
        self.assertEqual(live, {"live": True})
        self.assertEqual(ready, {"ready": True})
        self.assertEqual([model, version], [{"ready": True}] * 2)
        self.assertEqual([nothing, nowhere], [{"ready": False}] * 2)
        self.assertEqual(server["name"], "ulfd")
        self.assertRegex(server["version"], r"^\d+\.\d+\.\d+")
        self.assertIn("statistics", server["extensions"])
        self.assertEqual((meta["name"], meta["versions"]), ("shop", ["1"]))
        inputs = {i["name"]: i for i in meta["inputs"]}
        for name, datatype in (("user.ids", "INT64"), ("user.values", "FP32"),
                               ("ad.segments", "INT32"), ("mask", "INT32"), ("ctx", "FP32")):
            self.assertEqual(inputs[name]["datatype"], datatype)
        self.assertEqual(inputs["ad.ids"]["shape"], [-1])
        self.assertEqual([o["name"] for o in meta["outputs"]], ["buy", "output"])
        self.assertEqual(meta["outputs"][1]["shape"], [-1, 2])

    def test_infer(self):
        steps, wanted = [], []
        for ads in (1, 7, 200):
            arrays = shop().inputs(ads, seed=ads)
            for raw in (False, True):
                request = infer_request("shop", arrays, USER, raw=raw, id=f"r{ads}",
                                        outputs=["output"])
                steps.append(("ModelInfer", self.as_json(request)))
                wanted.append((ads, raw, shop().scores(arrays)["output"]))
        for reply, (ads, raw, expected) in zip(self.call(*steps), wanted):
            self.assertNotIn("error", reply)
            self.assertEqual((reply["model_name"], reply["model_version"], reply["id"]),
                             ("shop", "1", f"r{ads}"))
            (output,) = reply["outputs"]
            self.assertEqual((output["name"], output["datatype"], output["shape"]),
                             ("output", "FP32", [ads, 2]))
            if raw:
                values = np.frombuffer(base64.b64decode(reply["raw_output_contents"][0]), "<f4")
            else:
                values = np.array(output["contents"]["fp32_contents"])
            self.assert_close(values.reshape(ads, 2), expected, 1e-5, f"{ads} ads raw={raw}")

    def test_configuration_as_triton_has_it(self):
        config, version, nothing = self.call(
            ("ModelConfig", {"name": "shop"}), ("ModelConfig", {"name": "shop", "version": "1"}),
            ("ModelConfig", {"name": "shopp"}))
        self.assertEqual(nothing["error"]["code"], "NOT_FOUND")
        self.assertEqual(config, version)
        config = config["config"]
        self.assertEqual((config["name"], config["platform"], config["max_batch_size"]),
                         ("shop", "ulf", 0))
        inputs = {i["name"]: (i["data_type"], i["dims"], i["optional"]) for i in config["input"]}
        int32, int64, fp32 = 8, 9, 11
        self.assertEqual(inputs["ad.ids"], (int64, [-1], False))
        self.assertEqual(inputs["ad.values"], (fp32, [-1], True))
        self.assertEqual(inputs["mask"][0], int32)
        self.assertEqual([(o["name"], o["data_type"], o["dims"][1:]) for o in config["output"]],
                         [("buy", fp32, [1]), ("output", fp32, [2])])

    def test_statistics_as_perf_analyzer_reads_them(self):
        def read(reply):
            (stats,) = reply["model_stats"]
            self.assertEqual((stats["name"], stats["version"]), ("shop", "1"))
            return stats

        good = self.as_json(infer_request("shop", shop().inputs(20), USER))
        bad = {**good, "inputs": good["inputs"][1:],
               "raw_input_contents": good["raw_input_contents"][1:]}
        ask = ("ModelStatistics", {"name": "shop", "version": "1"})
        before, *_, after, every, nothing = self.call(
            ask, *[("ModelInfer", good)] * 5, ("ModelInfer", bad), ask, ("ModelStatistics", {}),
            ("ModelStatistics", {"name": "shopp"}))
        self.assertEqual(nothing["error"]["code"], "NOT_FOUND")
        self.assertEqual([s["name"] for s in every["model_stats"]], ["shop", "stamp"])
        before, after = read(before), read(after)
        self.assertEqual(after["inference_count"] - before["inference_count"], 5)
        self.assertEqual(after["execution_count"] - before["execution_count"], 5)
        self.assertLess(abs(after["last_inference"] / 1000 - time.time()), 60)
        parts = {}
        for name, calls in (("success", 5), ("fail", 1), ("queue", 5), ("compute_input", 5),
                            ("compute_infer", 5), ("compute_output", 5)):
            old, new = before["inference_stats"][name], after["inference_stats"][name]
            self.assertEqual(new["count"] - old["count"], calls, name)
            parts[name] = new["ns"] - old["ns"]
            self.assertGreater(parts[name], 0, name)
        self.assertLessEqual(sum(parts[name] for name in parts if name not in ("success", "fail")),
                             parts["success"])

    def test_index_of_the_repository(self):
        every, ready = self.call(("RepositoryIndex", {}), ("RepositoryIndex", {"ready": True}))
        self.assertEqual([(m["name"], m["version"], m["state"]) for m in every["models"]],
                         [("shop", "1", "READY"), ("stamp", "1", "READY"),
                          ("stamp", "2", "UNAVAILABLE")])
        self.assertIn("items", every["models"][2]["reason"])
        self.assertEqual([(m["name"], m["version"]) for m in ready["models"]],
                         [("shop", "1"), ("stamp", "1")])

    def test_errors_reach_the_client(self):
        request = self.as_json(infer_request("shop", shop().inputs(2), USER))
        unknown = {**request, "model_name": "shopp"}
        short = {**request, "raw_input_contents": request["raw_input_contents"][1:]}
        first, second = self.call(("ModelInfer", unknown), ("ModelInfer", short))
        self.assertEqual(first["error"]["code"], "NOT_FOUND")
        self.assertIn("shopp", first["error"]["details"])
        self.assertEqual(second["error"]["code"], "INVALID_ARGUMENT")
        self.assertIn("raw_input_contents", second["error"]["details"])


class BufCurlTest(DaemonTest):
    """Whoever has only the address finds out the rest by reflection."""

    @classmethod
    def setUpClass(cls):
        want_node_module("@bufbuild/buf")
        super().setUpClass()

    @classmethod
    def fill(cls, repository):
        add_shop(repository)

    def curl(self, path, *flags):
        done = subprocess.run(
            [BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", *flags,
             f"http://{self.daemon.target}{path}"], capture_output=True, text=True, check=False,
            timeout=120, cwd=env.WORK)
        return done.returncode, done.stdout, done.stderr

    def call(self, method, request):
        code, out, err = self.curl("/" + method, "-d", json.dumps(request))
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_list_services_and_methods(self):
        code, out, err = self.curl("", "--list-services")
        self.assertEqual(code, 0, err)
        self.assertLessEqual({"ulfd.v1.PredictionService", "inference.GRPCInferenceService",
                              "tensorflow.serving.PredictionService", "grpc.health.v1.Health"}, set(out.split()))
        code, out, err = self.curl("", "--list-methods")
        self.assertEqual(code, 0, err)
        self.assertLessEqual({"ulfd.v1.PredictionService/Predict",
                              "inference.GRPCInferenceService/ModelInfer",
                              "tensorflow.serving.PredictionService/Predict",
                              "grpc.health.v1.Health/Watch"}, set(out.split()))

    def test_native_calls(self):
        listed = self.call("ulfd.v1.PredictionService/ListModels", {})
        (model,) = listed["models"]
        self.assertEqual((model["name"], model["versions"][0]["state"]),
                         ("shop", "VERSION_STATE_SERVING"))
        meta = self.call("ulfd.v1.PredictionService/GetModelMetadata", {"model": {"name": "shop"}})
        sparse = {f["name"]: f for f in meta["sparseFeatures"]}
        self.assertEqual(sparse["history"]["level"], "TENSOR_LEVEL_USER")
        self.assertEqual(sparse["history"]["tables"], ["item_table"])
        self.assertEqual(sparse["ad"]["level"], "TENSOR_LEVEL_AD")
        scored = self.call("ulfd.v1.PredictionService/Predict", {
            "model": {"name": "shop"}, "outputs": ["buy"],
            "userFeatures": [{"name": "user", "sparse": {"ids": [1]}},
                             {"name": "history", "sparse": {"ids": [5, 6]}},
                             {"name": "mask", "dense": {"int32s": [0, 0, 0, 1, 1]}}],
            "adFeatures": [{"name": "ad", "sparse": {"ids": [7, 8]}},
                           {"name": "ctx", "dense": {"floats": [0, 1, 2, 3, 4, 5]}}]})
        one = np.ones(2, np.float32)
        expected = shop().scores({
            "user.ids": np.array([1]), "user.values": one[:1], "user.segments": np.array([1]),
            "history.ids": np.array([5, 6]), "history.values": one,
            "history.segments": np.array([2]), "ad.ids": np.array([7, 8]), "ad.values": one,
            "ad.segments": np.array([1, 1]), "mask": np.array([[0, 0, 0, 1, 1]]),
            "ctx": np.arange(6, dtype=np.float32).reshape(2, 3)})["buy"]
        np.testing.assert_allclose(scored["outputs"][0]["values"], expected.ravel(), atol=1e-5)

    def test_health(self):
        for service in ("", "ulfd.v1.PredictionService", "model/shop"):
            self.assertEqual(self.call("grpc.health.v1.Health/Check", {"service": service}),
                             {"status": "SERVING"})

    def test_an_error(self):
        code, _, err = self.curl("/ulfd.v1.PredictionService/GetModelMetadata", "-d",
                                 '{"model": {"name": "shopp"}}')
        self.assertNotEqual(code, 0)
        self.assertIn("not_found", err)
        self.assertIn("shopp", err)
