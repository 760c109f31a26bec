"""Requests that make no sense: the right code, a text that names the culprit; the daemon goes on.
SPDX-License-Identifier: Apache-2.0
"""
import copy
import os
import socket

import grpc
import numpy as np

from harness.clients import infer_request, outputs_of, predict_request
from harness.daemon import FAST
from harness.fixtures import DaemonTest, add_shop, add_stamp, shop
from harness.metrics import scrape
from harness.modelfiles import write_version
from harness.shop import USER
from harness.small import stamp_files, stamp_inputs

ADS = 4
INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND


class BadRequestTest(DaemonTest):
    CONFIG = FAST + """
limits { max_ads: 300 max_ids_per_request: 1000 max_message_bytes: 100000 }
models { name: "shop" labels { key: "stable" value: 1 } }
models { name: "strict" }
"""

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        add_stamp(repository, 1)
        files = stamp_files(2)
        files["model.textproto"] = \
            'tables { name: "items" missing_keys: MISSING_KEY_POLICY_ERROR }\n'
        write_version(os.path.join(repository, "strict", "1"), files)

    def setUp(self):
        self.arrays = shop().inputs(ADS, seed=4)
        while self.arrays["ad.segments"].sum() < 2:
            self.fail("the seed gives too few ids")
        self.expected = shop().scores(self.arrays)["output"]

    def still_serves(self, text):
        self.assertTrue(self.daemon.alive(), text)
        found = outputs_of(self.client.predict(predict_request("shop", self.arrays, USER)))
        self.assert_close(found["output"], self.expected, 1e-5, text)

    def refuse(self, call, request, code, *texts):
        """The call fails with `code`, and its text holds all of `texts`."""
        name = f"{texts}"
        with self.assertRaises(grpc.RpcError, msg=name) as caught:
            call(request, timeout=20)
        error = caught.exception
        self.assertEqual(error.code(), code, f"{name}: {error.details()}")
        for text in texts:
            self.assertIn(text, error.details())
        self.assertLessEqual(len(error.details()), 1024)
        self.still_serves(name)

    def native(self):
        return predict_request("shop", self.arrays, USER)

    def feature(self, request, name):
        return next(f for f in [*request.user_features, *request.ad_features] if f.name == name)

    def refuse_native(self, change, *texts, code=INVALID):
        request = self.native()
        change(request)
        with self.subTest(texts=texts):
            self.refuse(self.client.Predict, request, code, *texts)

    def test_sparse_features(self):
        def with_feature(name, change):
            return lambda request: change(self.feature(request, name).sparse)

        def counts_set(i, value):
            def change(sparse):
                sparse.counts[i] = value
            return change

        total = int(self.arrays["ad.segments"].sum())
        self.refuse_native(with_feature("ad", lambda s: s.ids.append(1)), "ad", str(total + 1))
        self.refuse_native(with_feature("ad", lambda s: s.counts.append(1)), "ad", "sum to",
                           str(total + 1))
        self.refuse_native(with_feature("ad", counts_set(2, -1)), "ad", "-1")
        self.refuse_native(with_feature("ad", counts_set(0, 2**31 - 1)), "ad", "sum to")
        self.refuse_native(with_feature("ad", lambda s: s.values.append(1)), "ad", "values")
        self.refuse_native(with_feature("ad", lambda s: s.counts.append(0)), str(ADS + 1), "rows")
        self.refuse_native(with_feature("history", lambda s: s.counts.append(0)), "history",
                           "2 rows")
        self.refuse_native(with_feature("history", lambda s: s.ids.extend(range(1001))), "history",
                           "1000")

    def test_dense_features(self):
        def with_dense(name, **fields):
            def change(request):
                dense = self.feature(request, name).dense
                for field in ("shape", "floats", "int32s", "int64s"):
                    if field in fields:
                        del getattr(dense, field)[:]
                        getattr(dense, field).extend(fields[field])
            return change

        refuse = self.refuse_native
        refuse(with_dense("ctx", shape=[ADS, 2]), "ctx", str(3 * ADS))
        refuse(with_dense("ctx", shape=[ADS, 2], floats=[0.0] * (2 * ADS)), "ctx", "[4, 2]", "3]")
        refuse(with_dense("ctx", shape=[ADS - 1, 3], floats=[0.0] * (3 * ADS - 3)), "ctx")
        refuse(with_dense("ctx", shape=[-1, 3]), "ctx", "-1")
        refuse(with_dense("ctx", shape=[2**40, 2**40]), "ctx")
        refuse(with_dense("ctx", shape=[3 * ADS]), "ctx")
        refuse(with_dense("ctx", shape=[ADS, 1, 3]), "ctx")
        refuse(with_dense("ctx", floats=[], int32s=[2**24 + 1] * (3 * ADS)), "ctx", "16777217",
               "float32")
        refuse(with_dense("ctx", int64s=[1]), "ctx", "several types")
        refuse(with_dense("mask", int32s=[], floats=[1.0] * 5), "mask", "float32", "int32")
        refuse(with_dense("mask", shape=[1, 4], int32s=[1] * 4), "mask")
        refuse(with_dense("mask", shape=[2, 5], int32s=[1] * 10), "mask")
        refuse(with_dense("ctx", shape=[], floats=[0.0] * (3 * ADS + 1)), "ctx")

    def test_names_of_features(self):
        def rename(old, new):
            def change(request):
                self.feature(request, old).name = new
            return change

        def drop(name):
            def change(request):
                for features in (request.user_features, request.ad_features):
                    for i, feature in reversed(list(enumerate(features))):
                        if feature.name == name:
                            del features[i]
            return change

        def to_ads(request):
            request.ad_features.append(self.feature(request, "history"))
            del request.user_features[:]

        def to_user(request):
            request.user_features.append(self.feature(request, "ad"))

        def sparse_as_dense(request):
            self.feature(request, "ad").dense.floats.append(1)

        def dense_as_sparse(request):
            self.feature(request, "ctx").sparse.ids.append(1)

        self.refuse_native(rename("ctx", "ctxt"), "ctxt", '"ctx"')
        self.refuse_native(rename("ad", "ads"), "ads", "unknown")
        self.refuse_native(rename("ad", "ad.ids"), "ad.ids")
        self.refuse_native(rename("ad", ""), '""')
        for name in ("user", "history", "ad", "mask", "ctx"):
            self.refuse_native(drop(name), f'"{name}"', "missing")
        self.refuse_native(lambda r: r.ad_features.append(self.feature(r, "ctx")), "ctx", "twice")
        self.refuse_native(to_ads, "history", "user")
        self.refuse_native(to_user, '"ad"')
        self.refuse_native(sparse_as_dense, '"ad"', "dense")
        self.refuse_native(dense_as_sparse, '"ctx"', "sparse")
        self.refuse_native(lambda r: self.feature(r, "ctx").ClearField("dense"), "ctx")

    def test_number_of_ads(self):
        for ads in (0, 301):
            with self.subTest(ads=ads):
                request = predict_request("shop", shop().inputs(ads, seed=1, plain=True), USER)
                self.refuse(self.client.Predict, request, INVALID, f"{ads} ads", "300")
                infer = infer_request("shop", shop().inputs(ads, seed=1, plain=True), USER)
                self.refuse(self.client.ModelInfer, infer, INVALID, f"{ads} ads", "300")
        request = predict_request("shop", shop().inputs(300, seed=1, plain=True), USER)
        self.assertEqual(len(self.client.predict(request).outputs[0].values) % 300, 0)

    def test_model_version_and_label(self):
        def spec(**fields):
            def change(request):
                for name, value in fields.items():
                    setattr(request.model, name, value)
            return change

        self.refuse_native(spec(name="shopp"), '"shopp"', code=NOT_FOUND)
        self.refuse_native(spec(name="../shop"), "../shop", code=NOT_FOUND)
        self.refuse_native(spec(version=7), "shop", "7", code=NOT_FOUND)
        self.refuse_native(spec(label="canary"), "shop", "canary", code=NOT_FOUND)
        self.refuse_native(spec(name=""), "model.name")
        self.refuse_native(spec(version=0), "model.version", "0")
        self.refuse_native(spec(version=-3), "model.version", "-3")
        self.refuse_native(lambda r: r.ClearField("model"), "model.name")

    def test_outputs_top_k_and_request_id(self):
        self.refuse_native(lambda r: r.outputs.append("outputt"), "outputt", '"output"')
        self.refuse_native(lambda r: r.outputs.extend(["buy", "buy"]), "buy", "twice")
        self.refuse_native(lambda r: r.outputs.append("ad_e"), "ad_e")  # Not an output.
        self.refuse_native(lambda r: setattr(r.top_k, "k", 0), "top_k.k", "0")
        self.refuse_native(lambda r: setattr(r.top_k, "k", -5), "top_k.k", "-5")

        def column(value, output="output"):
            def change(request):
                request.top_k.k = 1
                request.top_k.output = output
                request.top_k.column = value
            return change

        self.refuse_native(column(2), "column", "2")
        self.refuse_native(column(-3), "column", "-3")
        self.refuse_native(column(0, "bye"), "bye")
        self.refuse_native(lambda r: setattr(r, "request_id", "x" * 129), "request_id", "128")

    def test_kserve(self):
        def refuse(change, *texts, raw=False, code=INVALID):
            request = infer_request("shop", self.arrays, USER, raw=raw)
            change(request, {t.name: t for t in request.inputs})
            with self.subTest(texts=texts, raw=raw):
                self.refuse(self.client.ModelInfer, request, code, *texts)

        def assign(name, field, value):
            def change(_, tensors):
                if field == "shape":
                    del tensors[name].shape[:]
                    tensors[name].shape.extend(value)
                else:
                    setattr(tensors[name], field, value)
            return change

        def drop(name):
            def change(request, _):
                kept = [t for t in request.inputs if t.name != name]
                del request.inputs[:]
                request.inputs.extend(kept)
            return change

        refuse(assign("ctx", "datatype", "BYTES"), "ctx", "BYTES", "FP32")
        refuse(assign("ad.ids", "datatype", "FP32"), "ad.ids", "FP32", "INT64")
        refuse(assign("ctx", "datatype", ""), "ctx", "FP32")
        refuse(assign("ctx", "shape", [ADS, 2]), "ctx")
        refuse(assign("ctx", "shape", [3 * ADS]), "ctx")
        refuse(assign("ctx", "shape", [-1, 3]), "ctx")
        refuse(assign("ctx", "shape", [1 << 62, 4]), "ctx")
        refuse(assign("ctx", "shape", []), "ctx")
        refuse(assign("ad.ids", "shape", [1, int(self.arrays["ad.segments"].sum())]), "ad.ids",
               "one dimension")
        refuse(assign("ctx", "name", "ctxx"), "ctxx", '"ctx"')
        refuse(lambda r, t: r.inputs.append(t["mask"]), "mask", "twice")
        for name in ("ctx", "mask", "ad.ids", "history.ids"):
            refuse(drop(name), name)
        refuse(lambda r, t: t["ad.segments"].contents.int_contents.__setitem__(0, -1),
               "ad.segments", "-1")
        refuse(lambda r, t: t["ad.segments"].contents.int_contents.__setitem__(0, 77),
               "ad.segments", "sum to")
        refuse(lambda r, t: t["ctx"].contents.fp32_contents.append(1), "ctx")
        refuse(lambda r, t: t["ctx"].contents.fp64_contents.append(1), "ctx", "fp64_contents")
        refuse(lambda r, t: r.outputs.add(name="nothing"), "nothing")
        refuse(lambda r, t: r.parameters["priority"].__setattr__("int64_param", 1), "priority")
        refuse(lambda r, t: setattr(r, "model_version", "latest"), "latest")
        refuse(lambda r, t: setattr(r, "model_version", "-1"), "-1")
        refuse(lambda r, t: setattr(r, "model_version", "12"), "12", code=NOT_FOUND)
        refuse(lambda r, t: setattr(r, "model_name", "shopp"), "shopp", code=NOT_FOUND)
        refuse(lambda r, t: r.raw_input_contents.append(b"x"), "raw_input_contents", raw=True)
        refuse(lambda r, t: r.raw_input_contents.append(b"x"), "raw_input_contents")
        refuse(lambda r, t: r.raw_input_contents.__setitem__(-1, r.raw_input_contents[-1][:-1]),
               "ctx", "bytes", raw=True)
        refuse(lambda r, t: t["ctx"].contents.fp32_contents.append(1), "ctx", "contents", raw=True)

    def test_unknown_ids_by_policy(self):
        request = predict_request("stamp", stamp_inputs([1, 999999, 2]), ())
        reply = self.client.predict(request)
        self.assertEqual(outputs_of(reply)["score"].ravel().tolist(), [2, 1, 3])
        self.assertEqual(reply.missing_ids, 1)
        self.assertEqual(
            scrape(self.daemon).sum("ulfd_embedding_missing_keys_total", table="items",
                                    model="stamp"), 1)
        strict = copy.deepcopy(request)
        strict.model.name = "strict"
        self.refuse(self.client.Predict, strict, INVALID, "items", "999999")
        strict.ad_features[0].sparse.ids[1] = 5
        self.assertEqual(self.client.predict(strict).missing_ids, 0)

    def test_message_over_the_limit(self):
        request = self.native()
        self.feature(request, "ctx").dense.floats.extend([0.5] * 50000)
        self.refuse(self.client.Predict, request, grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_numbers_that_are_none(self):
        before = scrape(self.daemon).sum("ulfd_score_nonfinite_total", model="shop")
        request = self.native()
        self.feature(request, "ctx").dense.floats[0] = float("nan")
        reply = self.client.predict(request)
        self.assertTrue(np.isnan(outputs_of(reply)["output"][0]).all())
        self.assertTrue(np.isfinite(outputs_of(reply)["output"][1:]).all())
        self.assertGreater(scrape(self.daemon).sum("ulfd_score_nonfinite_total", model="shop"),
                           before)

    def test_bytes_that_are_no_message(self):
        for path in ("/ulfd.v1.PredictionService/Predict",
                     "/inference.GRPCInferenceService/ModelInfer"):
            call = self.client.channel.unary_unary(path)
            for garbage in (b"\xff" * 40, self.native().SerializeToString()[:-3] + b"\x7f\x7f"):
                with self.assertRaises(grpc.RpcError) as caught:
                    call(garbage, timeout=10)
                self.assertNotIn(caught.exception.code(), (grpc.StatusCode.OK,
                                                           grpc.StatusCode.DEADLINE_EXCEEDED,
                                                           grpc.StatusCode.UNAVAILABLE))
                self.still_serves("garbage")

    def test_bytes_that_are_no_http(self):
        for port in (self.daemon.grpc_port, self.daemon.http_port):
            for garbage in (b"\0" * 64, b"GET / HTTP/1.1\r\n\r\n", b"A" * 100000,
                            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64):
                with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                    try:
                        connection.sendall(garbage)
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(100)
                    except OSError:
                        pass
        self.still_serves("garbage")
        self.assertEqual(self.daemon.http("/healthz")[0], 200)

    def test_random_damage(self):
        """Requests with bytes changed at random: any answer will do, except an end."""
        random = np.random.RandomState(5)
        good = {"/ulfd.v1.PredictionService/Predict": self.native().SerializeToString(),
                "/inference.GRPCInferenceService/ModelInfer":
                    infer_request("shop", self.arrays, USER).SerializeToString()}
        for path, message in good.items():
            call = self.client.channel.unary_unary(path)
            for _ in range(400):
                damaged = bytearray(message)
                for _ in range(random.randint(1, 4)):
                    damaged[random.randint(len(damaged))] = random.randint(256)
                if random.randint(4) == 0:
                    damaged = damaged[:random.randint(len(damaged))]
                try:
                    call(bytes(damaged), timeout=20)
                except grpc.RpcError as error:
                    self.assertNotIn(error.code(), (grpc.StatusCode.UNAVAILABLE,
                                                    grpc.StatusCode.DEADLINE_EXCEEDED),
                                     error.details())
        self.still_serves("random damage")
