"""Client of ulfd: deadlines, retries that obey the server's pushback, replicas that are followed by
their health, one user at one replica.

    with Client(["10.0.0.1:8500", "10.0.0.2:8500"]) as client:
        reply = client.predict("din", user={"uid": Sparse([7])}, ads={"mid": Sparse([3, 4])},
                               user_id="u7", timeout=0.1)
        reply.outputs["output"]  # A row per ad.

Thread-safe.  A call that fails raises grpc.RpcError, whose code() and details() say why.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import dataclasses
import hashlib
import importlib.resources
import random
import threading
import time

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PUSHBACK = "grpc-retry-pushback-ms"


def _messages():
    """The message classes by full name, in a pool of their own: nothing collides with other
    generated code in the process, and there is no generated code that could be too old for it."""
    files = descriptor_pb2.FileDescriptorSet.FromString(
        importlib.resources.files(__name__).joinpath("schema.binpb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:
        make = message_factory.MessageFactory(pool).GetPrototype
    return {f"{file.package}.{m.name}": make(pool.FindMessageTypeByName(f"{file.package}.{m.name}"))
            for file in files.file for m in file.message_type}


_MESSAGES = _messages()
PredictRequest, PredictResponse = (_MESSAGES["ulfd.v1.Predict" + kind]
                                   for kind in ("Request", "Response"))
_HealthRequest, _HealthResponse = (_MESSAGES["grpc.health.v1.HealthCheck" + kind]
                                   for kind in ("Request", "Response"))


@dataclasses.dataclass
class Sparse:
    """Ids of a sparse feature.  values: a weight per id (default 1).  counts: ids per row (default:
    one for each ad, all of them for the user)."""
    ids: object
    values: object = ()
    counts: object = ()


# outputs: name -> float32 array, a row per ad.  message: the whole PredictResponse.
Reply = collections.namedtuple("Reply", ["outputs", "version", "message"])


def make_request(model, user, ads, outputs=(), version=0, label="", request_id=""):
    """user, ads: name -> Sparse, or an array of float, int32 or int64 for a dense input."""
    request = PredictRequest(outputs=outputs, request_id=request_id)
    request.model.name = model
    if version:
        request.model.version = version
    elif label:
        request.model.label = label
    for features, given in ((request.user_features, user), (request.ad_features, ads)):
        for name, value in given.items():
            feature = features.add(name=name)
            if isinstance(value, Sparse):
                feature.sparse.ids.extend(value.ids)
                feature.sparse.values.extend(value.values)
                feature.sparse.counts.extend(value.counts)
                continue
            array = np.asarray(value)
            field = {"float32": "floats", "float64": "floats", "int32": "int32s",
                     "int64": "int64s"}.get(array.dtype.name)
            if field is None:
                raise TypeError(f"{name}: {array.dtype}, want float, int32, int64 or Sparse")
            feature.dense.shape.extend(array.shape)
            getattr(feature.dense, field).extend(array.ravel().tolist())
    return request


class _Replica:
    def __init__(self, target, credentials, health_service, metadata):
        self.target = target
        if credentials is None:
            self.channel = grpc.insecure_channel(target)
        else:
            self.channel = grpc.secure_channel(target, credentials)
        self.predict = self.channel.unary_unary(
            "/ulfd.v1.PredictionService/Predict", PredictRequest.SerializeToString,
            PredictResponse.FromString)
        self.serving = True  # Until somebody says otherwise.
        self._watch = self.channel.unary_stream(
            "/grpc.health.v1.Health/Watch", _HealthRequest.SerializeToString,
            _HealthResponse.FromString)
        self._request = _HealthRequest(service=health_service)
        self._metadata = metadata
        self._closed = threading.Event()
        threading.Thread(target=self._follow, daemon=True, name="ulfd-health").start()

    def _follow(self):
        while not self._closed.is_set():
            try:
                for reply in self._watch(self._request, metadata=self._metadata):
                    self.serving = reply.status == _HealthResponse.SERVING
            except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed.
                # A proxy without the health service may answer calls all the same.
                self.serving = isinstance(error, grpc.RpcError) and \
                    error.code() == grpc.StatusCode.UNIMPLEMENTED
            self._closed.wait(0.5)

    def close(self):
        self._closed.set()
        self.channel.close()


class Client:
    def __init__(self, targets, credentials=None, token="", user_key="x-user-hash",
                 health_service="", timeout=1.0, attempts=3):
        """targets: "HOST:PORT" of every replica.  credentials: grpc.ssl_channel_credentials(...).
        user_key: the metadata key of the user's hash, by which proxies route and canaries choose.
        health_service: "model/NAME" follows one model.  timeout: seconds of a call, with all its
        attempts."""
        self._credentials = (("authorization", f"Bearer {token}"),) if token else ()
        self._replicas = [_Replica(target, credentials, health_service, self._credentials)
                          for target in targets]
        self._user_key = user_key
        self._timeout = timeout
        self._attempts = attempts

    def close(self):
        for replica in self._replicas:
            replica.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def predict(self, model, user, ads, *, user_id="", timeout=None, priority="", **fields):
        """user, ads and fields: see make_request.  user_id: whoever it is has one replica while it
        serves; only a hash of it is sent.  priority: "high", "normal" or "low"."""
        user_hash = hashlib.sha256(user_id.encode()).hexdigest()[:16] if user_id else ""
        metadata = self._credentials
        if user_hash:
            metadata += ((self._user_key, user_hash),)
        if priority:
            metadata += (("ulfd-priority", priority),)
        message = self._call(make_request(model, user, ads, **fields), metadata, user_hash,
                             self._timeout if timeout is None else timeout)
        outputs = {o.name: np.array(o.values, np.float32).reshape(tuple(o.shape))
                   for o in message.outputs}
        return Reply(outputs, message.model.version, message)

    def _in_order(self, user_hash):
        """Those that serve first; among them the user's own one (rendezvous hashing: when a replica
        goes, only its users move)."""
        key = user_hash or str(random.random())
        return sorted(self._replicas, key=lambda r: (
            not r.serving, hashlib.sha256(f"{key} {r.target}".encode()).digest()))

    def _call(self, request, metadata, user_hash, timeout):
        end = time.monotonic() + timeout
        replica = None
        for attempt in range(self._attempts):
            order = self._in_order(user_hash)
            replica = next((r for r in order if r is not replica), order[0])
            try:
                return replica.predict(request, timeout=max(0, end - time.monotonic()),
                                       metadata=metadata)
            except grpc.RpcError as error:
                wait = _wait_before_retry(error)
                left = end - time.monotonic()
                if wait is None or wait >= left or attempt + 1 == self._attempts:
                    raise
                time.sleep(wait)
        raise ValueError("attempts: want at least 1")


def _wait_before_retry(error):
    """Seconds, or None where trying again would not help."""
    pushback = dict(error.trailing_metadata() or ()).get(_PUSHBACK)
    if pushback is not None:  # Negative: do not.  A fifth more or less: not all at once.
        return int(pushback) / 1000 * random.uniform(1, 1.2) if int(pushback) >= 0 else None
    return 0.01 if error.code() == grpc.StatusCode.UNAVAILABLE else None
