"""Clients on python3-grpcio, and requests made of arrays that are named like the graph's inputs.
SPDX-License-Identifier: Apache-2.0
"""
import grpc
import numpy as np

import health_v1_pb2 as health_pb
import kserve_v2_pb2 as kserve_pb
from proto import predict_pb2 as native_pb

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
           ("grpc.use_local_subchannel_pool", 1)]
TIMEOUT = 60

_NATIVE = {
    "Predict": (native_pb.PredictRequest, native_pb.PredictResponse),
    "GetModelMetadata": (native_pb.GetModelMetadataRequest, native_pb.GetModelMetadataResponse),
    "ListModels": (native_pb.ListModelsRequest, native_pb.ListModelsResponse),
}
_KSERVE = ["ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata",
           "ModelInfer"]


class Connected:
    """Owns a channel, in plain text without credentials."""

    def __init__(self, target, credentials=None):
        if credentials is None:
            self.channel = grpc.insecure_channel(target, options=OPTIONS)
        else:
            self.channel = grpc.secure_channel(target, credentials, options=OPTIONS)

    def close(self):
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


class Client(Connected):
    """The native API, KServe v2 and health.  Every call takes a message."""

    def __init__(self, daemon, credentials=None):
        super().__init__(daemon.target, credentials)
        for name, (request, reply) in _NATIVE.items():
            self._add(name, f"/ulfd.v1.PredictionService/{name}", request, reply)
        for name in _KSERVE:
            self._add(name, f"/inference.GRPCInferenceService/{name}",
                      getattr(kserve_pb, name + "Request"), getattr(kserve_pb, name + "Response"))
        self._add("Check", "/grpc.health.v1.Health/Check", health_pb.HealthCheckRequest,
                  health_pb.HealthCheckResponse)
        self.Watch = self.channel.unary_stream(
            "/grpc.health.v1.Health/Watch", health_pb.HealthCheckRequest.SerializeToString,
            health_pb.HealthCheckResponse.FromString)

    def _add(self, name, path, request, reply):
        setattr(self, name, self.channel.unary_unary(path, request.SerializeToString,
                                                     reply.FromString))

    def predict(self, request, timeout=TIMEOUT):
        return self.Predict(request, timeout=timeout)

    def infer(self, request, timeout=TIMEOUT):
        return self.ModelInfer(request, timeout=timeout)

    def health(self, service=""):
        reply = self.Check(health_pb.HealthCheckRequest(service=service), timeout=TIMEOUT)
        return health_pb.HealthCheckResponse.ServingStatus.Name(reply.status)

    def list_models(self):
        return self.ListModels(native_pb.ListModelsRequest(), timeout=TIMEOUT)

    def version(self, model, version):
        """VersionStatus of one version, or None."""
        for status in self.list_models().models:
            if status.name == model:
                for found in status.versions:
                    if found.version == version:
                        return found
        return None


def feature_names(arrays):
    """Sparse features and dense inputs among array names."""
    sparse = sorted({name[:-4] for name in arrays if name.endswith(".ids")})
    parts = {f"{feature}.{part}" for feature in sparse for part in ("ids", "values", "segments")}
    return sparse, sorted(set(arrays) - parts)


def predict_request(model, arrays, user, short=False, **fields):
    """`user`: names of the user's features.  `short` leaves out values and counts that are the
    default anyway."""
    request = native_pb.PredictRequest(**fields)
    if not request.HasField("model"):
        request.model.name = model
    sparse, dense = feature_names(arrays)
    for name in sparse + dense:
        of_user = name in user
        feature = (request.user_features if of_user else request.ad_features).add(name=name)
        if name in dense:
            array = arrays[name]
            feature.dense.shape.extend(array.shape)
            field = {"f": feature.dense.floats, "i": feature.dense.int32s}[array.dtype.kind]
            if array.dtype == np.int64:
                field = feature.dense.int64s
            field.extend(array.ravel().tolist())
            continue
        values, counts = arrays[name + ".values"], arrays[name + ".segments"]
        feature.sparse.ids.extend(arrays[name + ".ids"].tolist())
        if not (short and np.all(values == 1)):
            feature.sparse.values.extend(values.tolist())
        if not (short and (of_user or np.all(counts == 1))):
            feature.sparse.counts.extend(counts.tolist())
    return request


def outputs_of(response):
    return {o.name: np.array(o.values, np.float32).reshape(tuple(o.shape))
            for o in response.outputs}


# KServe's name of a type, and the field of its typed contents.
_DATATYPES = {np.dtype(dtype): names for dtype, names in {
    "<i8": ("INT64", "int64_contents"), "<i4": ("INT32", "int_contents"),
    "<i2": ("INT16", "int_contents"), "<i1": ("INT8", "int_contents"),
    "<u8": ("UINT64", "uint64_contents"), "<u4": ("UINT32", "uint_contents"),
    "<u2": ("UINT16", "uint_contents"), "<u1": ("UINT8", "uint_contents"),
    "<f4": ("FP32", "fp32_contents"), "<f8": ("FP64", "fp64_contents"),
    "?": ("BOOL", "bool_contents")}.items()}


def infer_request(model, arrays, user=(), raw=True, short=False, outputs=(), version="", id=""):
    request = kserve_pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    for name in outputs:
        request.outputs.add(name=name)
    for name, array in arrays.items():
        feature, _, part = name.rpartition(".")
        if short and part == "values" and np.all(array == 1):
            continue
        if short and part == "segments" and (feature in user or np.all(array == 1)):
            continue
        datatype, field = _DATATYPES[array.dtype]
        tensor = request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        if raw:
            request.raw_input_contents.append(array.tobytes())
        else:
            getattr(tensor.contents, field).extend(array.ravel().tolist())
    return request


def infer_body(arrays, **fields):
    """The same as an object for REST, with nested arrays as KServe's own client sends them."""
    inputs = [{"name": name, "shape": list(array.shape), "datatype": _DATATYPES[array.dtype][0],
               "data": array.tolist()} for name, array in arrays.items()]
    return {**fields, "inputs": inputs}


def infer_outputs(response):
    found = {}
    for i, tensor in enumerate(response.outputs):
        assert tensor.datatype == "FP32", tensor
        if response.raw_output_contents:
            values = np.frombuffer(response.raw_output_contents[i], "<f4")
        else:
            values = np.array(tensor.contents.fp32_contents, np.float32)
        found[tensor.name] = values.reshape(tuple(tensor.shape))
    return found
