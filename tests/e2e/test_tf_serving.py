"""TensorFlow Serving's API, by messages written down anew from the published definitions.
SPDX-License-Identifier: Apache-2.0
"""
import os

import grpc
import numpy as np

import tf_framework_pb2 as framework
import tf_serving_pb2 as serving
from harness import modelfiles
from harness.daemon import FAST, wait_for
from harness.fixtures import DaemonTest, add_shop, add_stamp, shop
from harness.metrics import scrape
from harness.small import stamp_files, stamp_inputs, stamp_of

DTYPES = {np.dtype("<f4"): (framework.DT_FLOAT, "float_val"),
          np.dtype("<f8"): (framework.DT_DOUBLE, "double_val"),
          np.dtype("<i4"): (framework.DT_INT32, "int_val"),
          np.dtype("<i8"): (framework.DT_INT64, "int64_val")}
TOLERANCE = 1e-5


def tensor(array, packed=True):
    """As TensorFlow's make_tensor_proto."""
    dtype, field = DTYPES[array.dtype]
    shape = framework.TensorShapeProto(
        dim=[framework.TensorShapeProto.Dim(size=size) for size in array.shape])
    proto = framework.TensorProto(dtype=dtype, tensor_shape=shape)
    if packed:
        proto.tensor_content = array.tobytes()
    else:
        getattr(proto, field).extend(array.ravel().tolist())
    return proto


def array_of(proto):
    shape = [dim.size for dim in proto.tensor_shape.dim]
    return np.array(proto.float_val, np.float32).reshape(shape)


class TfServingTest(DaemonTest):
    CONFIG = FAST + """
models {
  name: "stamp"
  version_policy { specific { versions: 1 versions: 2 versions: 3 } }
  labels { key: "stable" value: 1 }
  labels { key: "canary" value: 2 }
  canary { label: "canary" share: 0.5 sticky_metadata: "x-user-id" }
}
"""

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        for version in (1, 2):
            add_stamp(repository, version, version)
        broken = stamp_files(3)
        del broken["items"]
        modelfiles.write_version(os.path.join(repository, "stamp", "3"), broken)

    def call(self, service, method, request, reply, **options):
        name = f"/tensorflow.serving.{service}/{method}"
        return self.client.channel.unary_unary(
            name, request.SerializeToString, reply.FromString)(request, timeout=20, **options)

    def predict(self, model, inputs, outputs=(), spec=None, **options):
        request = serving.PredictRequest(output_filter=outputs)
        request.model_spec.CopyFrom(spec or serving.ModelSpec(name=model))
        for name, proto in inputs.items():
            request.inputs[name].CopyFrom(proto)
        return self.call("PredictionService", "Predict", request, serving.PredictResponse,
                         **options)

    def stamp(self, spec=None, **options):
        inputs = {name: tensor(array) for name, array in stamp_inputs([0, 3, 7]).items()}
        reply = self.predict("stamp", inputs, spec=spec, **options)
        stamp = stamp_of([0, 3, 7], array_of(reply.outputs["score"]).ravel().tolist())
        self.assertEqual(reply.model_spec.version.value, stamp)
        return stamp

    def refused(self, call, code):
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()

    def test_scores(self):
        for ads in (1, 7, 200):
            arrays = shop().inputs(ads, seed=ads)
            expected = shop().scores(arrays)
            for packed in (True, False):
                reply = self.predict("shop", {name: tensor(array, packed)
                                              for name, array in arrays.items()})
                self.assertEqual(sorted(reply.outputs), sorted(expected))
                for name, values in expected.items():
                    self.assertEqual(reply.outputs[name].dtype, framework.DT_FLOAT)
                    self.assert_close(array_of(reply.outputs[name]), values, TOLERANCE, name)
            # What a client of TensorFlow may well have: int32 ids and doubles.
            other = {name: tensor(array.astype({"<i8": "<i4", "<f4": "<f8"}.get(array.dtype.str,
                                                                               array.dtype.str)))
                     for name, array in arrays.items()}
            reply = self.predict("shop", other)
            for name, values in expected.items():
                self.assert_close(array_of(reply.outputs[name]), values, TOLERANCE, name)

    def test_versions_labels_and_canaries(self):
        version = serving.ModelSpec(name="stamp")
        version.version.value = 2
        self.assertEqual(self.stamp(version), 2)
        self.assertEqual(self.stamp(serving.ModelSpec(name="stamp", version_label="canary")), 2)
        self.assertEqual(self.stamp(serving.ModelSpec(name="stamp", version_label="stable",
                                                      signature_name="serving_default")), 1)
        first = {user: self.stamp(metadata=[("x-user-id", user)])
                 for user in (f"user-{i}" for i in range(40))}
        self.assertEqual(set(first.values()), {1, 2})
        for user, stamp in first.items():
            self.assertEqual(self.stamp(metadata=[("x-user-id", user)]), stamp)

    def test_refusals_have_names_and_are_counted(self):
        def failed():
            return scrape(self.daemon).sum("ulfd_requests_total", code="INVALID_ARGUMENT")
        before = failed()
        good = {name: tensor(array) for name, array in stamp_inputs([1]).items()}
        words = {**good, "ad.ids": framework.TensorProto(dtype=framework.DT_STRING,
                                                         string_val=[b"one"])}
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        self.assertIn('input "ad.ids": DT_STRING, want DT_INT64',
                      self.refused(lambda: self.predict("stamp", words), invalid))
        self.assertIn('input "nothing": unknown', self.refused(
            lambda: self.predict("stamp", {**good, "nothing": good["ad.ids"]}), invalid))
        self.assertIn('output "nothing"', self.refused(
            lambda: self.predict("stamp", good, outputs=["nothing"]), invalid))
        self.assertIn('signature_name: "classify"', self.refused(
            lambda: self.stamp(serving.ModelSpec(name="stamp", signature_name="classify")),
            invalid))
        wait_for(lambda: failed() == before + 4, "four refusals are counted")
        self.refused(lambda: self.predict("nobody", good), grpc.StatusCode.NOT_FOUND)
        many = {name: tensor(array) for name, array in stamp_inputs([1] * 3000).items()}
        self.assertIn("3000 ads, want 1..2000",
                      self.refused(lambda: self.predict("stamp", many), invalid))

    def test_metadata_and_status(self):
        request = serving.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = "stamp"
        reply = self.call("PredictionService", "GetModelMetadata", request,
                          serving.GetModelMetadataResponse)
        signatures = serving.SignatureDefMap()
        self.assertTrue(reply.metadata["signature_def"].Unpack(signatures))
        signature = signatures.signature_def["serving_default"]
        self.assertEqual(signature.inputs["ad.ids"].dtype, framework.DT_INT64)
        self.assertEqual(signature.outputs["score"].dtype, framework.DT_FLOAT)

        def states():
            status = serving.GetModelStatusRequest()
            status.model_spec.name = "stamp"
            found = self.call("ModelService", "GetModelStatus", status,
                              serving.GetModelStatusResponse).model_version_status
            return {one.version: (one.state, one.status.error_message) for one in found}
        available = serving.ModelVersionStatus.AVAILABLE
        wait_for(lambda: states()[3][0] == serving.ModelVersionStatus.END, "version 3 is refused")
        self.assertEqual((states()[1][0], states()[2][0]), (available, available))
        self.assertIn("items", states()[3][1])
