"""What a request may ask for beside scores: top_k, outputs, ids, timings, metadata.
SPDX-License-Identifier: Apache-2.0
"""
import numpy as np

from harness.clients import (infer_outputs, infer_request, native_pb, outputs_of, predict_request)
from harness.fixtures import DaemonTest, add_heavy, add_shop, add_stamp, shop
from harness.shop import USER
from harness.small import heavy_inputs, stamp_inputs

USER_LEVEL, AD_LEVEL = native_pb.TENSOR_LEVEL_USER, native_pb.TENSOR_LEVEL_AD


class AnswersTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        add_stamp(repository, 1)
        add_heavy(repository)

    def setUp(self):
        self.arrays = shop().inputs(20, seed=20)
        self.all = shop().scores(self.arrays)

    def ask(self, **fields):
        return self.client.predict(predict_request("shop", self.arrays, USER, **fields))

    def test_top_k(self):
        for k, column in ((1, 0), (5, 1), (5, -1), (20, -2), (1000, 0)):
            with self.subTest(k=k, column=column):
                reply = self.ask(top_k=native_pb.TopK(k=k, output="output", column=column))
                ranked = np.argsort(-self.all["output"][:, column], kind="stable")[:k]
                self.assertEqual(list(reply.indices), ranked.tolist())
                self.assert_close(np.array(reply.scores), self.all["output"][ranked, column], 1e-5)
                # Every output has the rows of the chosen ads.
                for name, values in outputs_of(reply).items():
                    self.assert_close(values, self.all[name][ranked], 1e-5, name)

    def test_top_k_orders_by_the_first_requested_output(self):
        reply = self.ask(outputs=["buy"], top_k=native_pb.TopK(k=3))
        ranked = np.argsort(-self.all["buy"][:, 0], kind="stable")[:3]
        self.assertEqual(list(reply.indices), ranked.tolist())
        self.assertEqual([o.name for o in reply.outputs], ["buy"])

    def test_top_k_may_order_by_an_output_that_is_not_asked_for(self):
        reply = self.ask(outputs=["buy"], top_k=native_pb.TopK(k=2, output="output", column=1))
        ranked = np.argsort(-self.all["output"][:, 1], kind="stable")[:2]
        self.assertEqual(list(reply.indices), ranked.tolist())
        self.assertEqual([o.name for o in reply.outputs], ["buy"])

    def test_ties_keep_the_order_and_nan_comes_last(self):
        request = predict_request("stamp", stamp_inputs([3, 9, 3, 9, 1]), (),
                                  top_k=native_pb.TopK(k=5))
        self.assertEqual(list(self.client.predict(request).indices), [1, 3, 0, 2, 4])
        request = predict_request("stamp", stamp_inputs([3, 9, 4]), (),
                                  top_k=native_pb.TopK(k=3))
        request.ad_features[0].sparse.values[:] = [1, float("nan"), 1]
        reply = self.client.predict(request)
        self.assertEqual(list(reply.indices), [2, 0, 1])
        self.assertTrue(np.isnan(reply.scores[2]))

    def test_outputs_in_the_order_asked_for(self):
        for names in (["output"], ["buy"], ["output", "buy"], ["buy", "output"]):
            self.assertEqual([o.name for o in self.ask(outputs=names).outputs], names)
            reply = self.client.infer(infer_request("shop", self.arrays, USER, outputs=names))
            self.assertEqual([o.name for o in reply.outputs], names)
            self.assert_close(infer_outputs(reply)["buy" if "buy" in names else "output"],
                              self.all["buy" if "buy" in names else "output"], 1e-5)
        self.assertEqual([o.name for o in self.ask().outputs], ["buy", "output"])

    def test_request_id_is_echoed(self):
        for request_id in ("", "r-1", "x" * 128):
            self.assertEqual(self.ask(request_id=request_id).request_id, request_id)

    def test_timings_only_when_asked_for(self):
        self.assertFalse(self.ask().HasField("timings"))
        request = predict_request("heavy", heavy_inputs(), (), return_timings=True)
        timings = self.client.predict(request).timings
        parts = [timings.queue_us, timings.decode_us, timings.embed_us, timings.user_us,
                 timings.dense_us, timings.encode_us]
        self.assertTrue(all(part >= 0 for part in parts), timings)
        self.assertGreater(timings.dense_us, 1000)
        self.assertLessEqual(sum(parts), timings.total_us + len(parts))  # Each is rounded down.
        self.assertGreater(timings.dense_us, timings.total_us / 2)

    def test_an_unused_shape_may_be_left_out(self):
        request = predict_request("shop", self.arrays, USER)
        for feature in [*request.user_features, *request.ad_features]:
            if feature.HasField("dense"):
                del feature.dense.shape[:]
        self.assert_close(outputs_of(self.client.predict(request))["buy"], self.all["buy"], 1e-5)

    def test_order_of_features_does_not_matter(self):
        request = predict_request("shop", self.arrays, USER)
        turned = native_pb.PredictRequest(model=request.model)
        turned.user_features.extend(reversed(request.user_features))
        turned.ad_features.extend(reversed(request.ad_features))
        self.assertEqual(self.client.predict(turned).outputs, self.client.predict(request).outputs)

    def test_empty_history(self):
        arrays = dict(self.arrays)
        arrays["history.ids"] = np.zeros(0, np.int64)
        arrays["history.values"] = np.zeros(0, np.float32)
        arrays["history.segments"] = np.zeros(1, np.int32)
        arrays["mask"] = np.zeros((1, 5), np.int32)
        expected = shop().scores(arrays)
        for request in (predict_request("shop", arrays, USER),
                        predict_request("shop", arrays, USER, short=True)):
            self.assert_close(outputs_of(self.client.predict(request))["buy"], expected["buy"],
                              1e-5)

    def test_metadata(self):
        request = native_pb.GetModelMetadataRequest()
        request.model.name = "shop"
        meta = self.client.GetModelMetadata(request, timeout=20)
        self.assertEqual((meta.model.name, meta.model.version), ("shop", 1))
        sparse = {f.name: (f.level, sorted(f.tables)) for f in meta.sparse_features}
        self.assertEqual(sparse, {"user": (USER_LEVEL, ["user_table"]),
                                  "history": (USER_LEVEL, ["item_table"]),
                                  "ad": (AD_LEVEL, ["item_table"])})
        inputs = {i.name: i for i in meta.inputs}
        self.assertEqual(set(inputs), set(self.arrays))
        self.assertEqual(inputs["mask"].data_type, native_pb.DATA_TYPE_INT32)
        self.assertEqual(inputs["ad.ids"].data_type, native_pb.DATA_TYPE_INT64)
        self.assertEqual(inputs["ctx"].data_type, native_pb.DATA_TYPE_FLOAT32)
        self.assertEqual(list(inputs["mask"].shape), [1, 5])
        outputs = {o.name: (list(o.shape), o.level) for o in meta.outputs}
        self.assertEqual(outputs, {"buy": ([-1, 1], AD_LEVEL), "output": ([-1, 2], AD_LEVEL)})

    def test_manifest_fixes_a_dense_input(self):
        request = native_pb.GetModelMetadataRequest()
        request.model.name = "heavy"
        (tensor,) = self.client.GetModelMetadata(request, timeout=20).inputs
        self.assertEqual((list(tensor.shape), tensor.level), ([-1, 32], AD_LEVEL))

    def test_list_models(self):
        listed = self.client.list_models()
        self.assertEqual([m.name for m in listed.models], ["heavy", "shop", "stamp"])
        for model in listed.models:
            (version,) = model.versions
            self.assertEqual((version.version, version.state), (1, 3))  # VERSION_STATE_SERVING
            self.assertTrue(version.serving)
            self.assertEqual(version.error, "")
            self.assertTrue(0 < version.generation <= listed.generation)
            self.assertGreater(version.memory_bytes, 1000)
            self.assertGreater(version.published_at.seconds, 1_600_000_000)
