"""TensorFlow Serving's API: tensors that lie, values that a request leaves out, types that grow.
SPDX-License-Identifier: Apache-2.0
"""
import itertools

import tf_framework_pb2 as framework
import tf_serving_pb2 as serving
from harness import http2
from attacks.common import attack, in_parallel

SERVICE = "/tensorflow.serving."
PREDICT, METADATA = SERVICE + "PredictionService/Predict", SERVICE + "PredictionService/GetModelMetadata"
STATUS = SERVICE + "ModelService/GetModelStatus"
HUGE = 1 << 62


def tensor(dtype, shape, **fields):
    proto = framework.TensorProto(dtype=dtype, **fields)
    proto.tensor_shape.dim.extend(framework.TensorShapeProto.Dim(size=size) for size in shape)
    return proto


def predict(inputs, model="mlp", **fields):
    request = serving.PredictRequest(model_spec=serving.ModelSpec(name=model), **fields)
    for name, proto in inputs.items():
        request.inputs[name].CopyFrom(proto)
    return request.SerializeToString()


SHAPES = [[1, 8], [], [0, 8], [1, 0, HUGE], [HUGE, 4], [0, HUGE, HUGE], [-1, 8], [1 << 32, 1 << 31], [1 << 20, 8], [2000, 8],
          [(1 << 63) - 1], [-(1 << 63)], [1] * 2000]
VALUES = [{}, {"float_val": [1.0]}, {"float_val": [1.0] * 100_000}, {"tensor_content": b"x" * 31}, {"tensor_content": bytes(32)},
          {"tensor_content": bytes(1 << 20)}, {"tensor_content": bytes(32), "float_val": [1.0]}, {"half_val": [1 << 30] * 8},
          {"string_val": [b"x" * (1 << 16)]}, {"int_val": [2**31 - 1, -2**31]}, {"uint64_val": [2**64 - 1]}]
DTYPES = [framework.DT_FLOAT, framework.DT_HALF, framework.DT_UINT8, framework.DT_INT64, framework.DT_STRING, 0, 1000]


@attack("TF: tensors that lie", "shapes, types and values that do not go together", seconds=10, short=True)
def lying(site):
    messages = [(f"{dtype}, {shape[:4]}, {list(values)}", predict({"x": tensor(dtype, shape, **values)}))
                for dtype, shape, values in itertools.product(DTYPES, SHAPES, VALUES)
                if dtype in (framework.DT_FLOAT, framework.DT_UINT8) or not values.get("float_val")]
    site.begin()
    while not site.over():
        for site.doing, message in messages:
            if site.over():
                return
            site.call(PREDICT, message)


def _in_flight(site, message, calls, connections):
    """So many calls at a time on each connection, again and again."""
    data = http2.grpc_message(message)

    def work(_):
        while not site.over():
            wire = site.wire()
            for _ in range(calls):
                if not site.deliver(wire, PREDICT, data):
                    break
            wire.close()
    in_parallel(work, connections)


@attack("TF: bytes that become numbers of 64 bits", "a message of 2 MB becomes one of 16", seconds=6)
def growing(site):
    _in_flight(site, predict({"x": tensor(framework.DT_UINT8, [1 << 18, 8], tensor_content=bytes(2 << 20))}), 20, 8)


@attack("TF: 2 MB of an input that nobody knows", "one row, as far as the model can say, so computed at once", seconds=6)
def unknown(site):
    _in_flight(site, predict({"zz": tensor(framework.DT_UINT8, [1 << 18, 8], tensor_content=bytes(2 << 20))}), 20, 8)


@attack("TF: half a million ids of a byte", "valid work that grows eight times before it is queued", seconds=6)
def ids(site):
    n = 480_000
    _in_flight(site, predict({"f.ids": tensor(framework.DT_UINT8, [n], tensor_content=bytes(n)),
                              "f.segments": tensor(framework.DT_INT32, [1], int_val=[n])}, "stated_embedding"), 50, 8)


@attack("TF: values that are left out", "20 bytes that stand for 4096 values", seconds=6)
def left_out(site):
    message = predict({f"x{i}" if i else "x": tensor(framework.DT_FLOAT, [511, 8], float_val=[1.0]) for i in range(1000)})
    one = predict({"x": tensor(framework.DT_FLOAT, [511, 8], float_val=[1.0])})
    while not site.over():
        site.call(PREDICT, message)
        for future in [site.future(PREDICT, one) for _ in range(200)]:
            future.exception()


@attack("TF: names without end", "models, signatures, labels, outputs and fields of metadata", seconds=6)
def names(site):
    for i in itertools.count():
        if site.over():
            return
        name = f"{i}".rjust(200, "m")
        spec = serving.ModelSpec(name=name, signature_name=name)
        site.call(STATUS, serving.GetModelStatusRequest(model_spec=spec).SerializeToString())
        site.call(PREDICT, predict({}, name, output_filter=[f"{n}" for n in range(50_000)] if i % 10 == 0 else [name]))
        for fields in (["signature_def"], [name] * 50_000, []):
            site.call(METADATA, serving.GetModelMetadataRequest(
                model_spec=serving.ModelSpec(name="mlp"), metadata_field=fields).SerializeToString())
