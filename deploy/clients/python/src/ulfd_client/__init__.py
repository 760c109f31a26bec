"""Client of ulfd: deadlines, retries that obey the server's pushback, hedged calls, replicas that
are followed by their health, one user at one replica, users by key.

    with Client(["10.0.0.1:8500", "10.0.0.2:8500"]) as client:
        reply = client.predict("din", user={"uid": Sparse([7])}, ads={"mid": Sparse([3, 4])},
                               user_id="u7", timeout=0.1)
        reply.outputs["output"]  # A row per ad.

Thread-safe.  A call that fails raises grpc.RpcError, whose code() and details() say why; what could
not be sent as it is given, TypeError or ValueError.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import dataclasses
import hashlib
import importlib.resources
import math
import queue
import random
import re
import threading
import time

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PUSHBACK = "grpc-retry-pushback-ms"
_FREE_CALLS = 4  # So many calls at once are no load worth leaving the user's replica for.
_MOST_SECONDS = 2 ** 31 / 1000  # What timers of every client can hold.


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


@dataclasses.dataclass
class TopK:
    """The k best ads by a column of an output (default: the first asked
    for that has a row per ad)."""
    k: int
    output: str = ""
    column: int = 0


# outputs: name -> float32 array, a row per ad, or with top_k a row per element of indices, which
# are positions in the request; scores are what they were ordered by.  timings: name -> microseconds
# (empty unless asked for).  message: the whole PredictResponse.
Reply = collections.namedtuple("Reply", "outputs version indices scores timings message")


class NoReplica(grpc.RpcError):
    """Every replica says that it does not serve."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return str(self)

    def trailing_metadata(self):
        return ()


def _text(name, value):
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r}, want text")
    return value


def _texts(name, values):
    if isinstance(values, str):
        raise TypeError(f"{name}: {values!r}, want a list of texts")
    return [_text(name, value) for value in values]


def _whole(name, value, least, most):
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: {value!r}, want an integer")
    if not least <= value <= most:
        raise ValueError(f"{name}: {value}, want {least} to {most}")
    return int(value)


def _number(name, value, least, most):
    """least is none of them."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name}: {value!r}, want a number")
    if not least < value <= most:
        raise ValueError(f"{name}: {value}, want more than {least} and at most {most}")
    return value


def _add_integers(field, values, what):
    try:
        field.extend(values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what} integers: {error}") from None


def _floats(name, values):
    array = np.asarray(values)
    if array.size == 0:
        return ()
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name}: {array.dtype}, want numbers")
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    lost = np.isinf(single) & np.isfinite(array)
    if lost.any():
        raise ValueError(f"{name}: {array[lost].flat[0]}, want 32-bit floats")
    return single.ravel().tolist()


def _fill(feature, value):
    if isinstance(value, Sparse):
        name, sparse = feature.name, feature.sparse
        _add_integers(sparse.ids, value.ids, f"{name}.ids: want 64-bit")
        sparse.values.extend(_floats(f"{name}.values", value.values))
        _add_integers(sparse.counts, value.counts, f"{name}.counts: want 32-bit")
        return
    array = np.asarray(value)
    dense = feature.dense
    dense.shape.extend(array.shape)
    if array.dtype in (np.float32, np.float64):
        dense.floats.extend(_floats(feature.name, array))
    elif array.dtype in (np.int32, np.int64):
        (dense.int32s if array.dtype == np.int32 else dense.int64s).extend(array.ravel().tolist())
    else:
        raise TypeError(f"{feature.name}: {array.dtype}, want float, int32, int64 or Sparse")


def make_request(model, user, ads, *, outputs=(), version=None, label="", request_id="", top_k=None,
                 return_timings=False, user_key="", user_version=None):
    """user, ads: name -> Sparse, or an array of float, int32 or int64 for a dense input.  top_k: a
    number, or TopK."""
    request = PredictRequest(outputs=_texts("outputs", outputs),
                             request_id=_text("request_id", request_id),
                             return_timings=bool(return_timings))
    request.model.name = _text("model", model)
    if version is not None and label:
        raise ValueError(f"version {version} and label {label!r}: want one of the two")
    if version is not None:
        request.model.version = _whole("version", version, 1, 2 ** 63 - 1)
    elif _text("label", label):
        request.model.label = label
    if top_k is not None:
        best = top_k if isinstance(top_k, TopK) else TopK(top_k)
        request.top_k.k = _whole("top_k", best.k, 1, 2 ** 31 - 1)
        request.top_k.output = _text("top_k.output", best.output)
        request.top_k.column = _whole("top_k.column", best.column, -2 ** 31, 2 ** 31 - 1)
    if bool(_text("user_key", user_key)) != (user_version is not None):
        raise ValueError("user_key and user_version: want both or none")
    if user_key:
        request.user_key = user_key
        request.user_version = _whole("user_version", user_version, 1, 2 ** 63 - 1)
    for features, given in ((request.user_features, user), (request.ad_features, ads)):
        for name, value in given.items():
            _fill(features.add(name=name), value)
    return request


class _Replica:
    def __init__(self, target, credentials, health_service, metadata):
        self.target = target
        if credentials is None:
            self.channel = grpc.insecure_channel(target)
        else:
            self.channel = grpc.secure_channel(target, credentials)
        self._predict = self.channel.unary_unary(
            "/ulfd.v1.PredictionService/Predict", PredictRequest.SerializeToString,
            PredictResponse.FromString)
        self.serving = True  # Until somebody says otherwise.  None: nobody says anything.
        self.calls = 0  # Under way.
        self._lock = threading.Lock()
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
                self.serving = None
            except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed.
                # A proxy without the health service may answer calls all the same.
                unimplemented = isinstance(error, grpc.RpcError) and \
                    error.code() == grpc.StatusCode.UNIMPLEMENTED
                self.serving = True if unimplemented else None
            self._closed.wait(0.5)

    def call(self, request, metadata, end):
        """Costs less than `start`: the thread that waits is the one that receives."""
        self._count(1)
        try:
            return self._predict(request, timeout=max(0, end - time.monotonic()), metadata=metadata)
        finally:
            self._count(-1)

    def start(self, request, metadata, end, done):
        """The call goes into `done` when it is over."""
        self._count(1)
        call = self._predict.future(request, timeout=max(0, end - time.monotonic()),
                                    metadata=metadata)
        call.add_done_callback(lambda _: self._count(-1))
        call.add_done_callback(done.put)
        return call

    def _count(self, more):
        with self._lock:
            self.calls += more

    def close(self):
        self._closed.set()
        self.channel.close()


class _Hedges:
    """When a call is sent to a second replica, too: after a time, and to a share of the calls."""
    KEPT, FEWEST, MOST_SAVED = 200, 20, 10

    def __init__(self, after, share):
        self._after, self._share = after, share
        self._lock = threading.Lock()
        self._saved = 1.0
        self._times = collections.defaultdict(lambda: collections.deque(maxlen=self.KEPT))

    def wait(self, model):
        """Seconds, or None: never.  Once a call."""
        with self._lock:
            self._saved = min(self.MOST_SAVED, self._saved + self._share)
            if self._after != "p95":
                return self._after
            times = sorted(self._times[model])
        return times[len(times) * 95 // 100] if len(times) >= self.FEWEST else None

    def take(self):
        with self._lock:
            if self._saved < 1:
                return False
            self._saved -= 1
            return True

    def answered(self, model, seconds):
        with self._lock:
            self._times[model].append(seconds)


class Client:
    def __init__(self, targets, credentials=None, token="", user_hash_key="x-user-hash",
                 health_service="", timeout=1.0, attempts=3, attempt_timeout=None,
                 hedge_after=None, hedge_share=0.05, load_factor=1.5):
        """targets: "HOST:PORT" of every replica.  credentials: grpc.ssl_channel_credentials(...).
        user_hash_key: the metadata key of the user's hash, by which proxies route and canaries
        choose.  health_service: "model/NAME" follows one model.  timeout: seconds of a call, with
        all its attempts; attempt_timeout: of each (None: what is left).  hedge_after: seconds after
        which a call goes to a second replica, too, or "p95" of the last calls of the model (None:
        never); hedge_share: at most so many of the calls.  load_factor: a replica with more than so
        many times its share of the calls under way leaves users to others."""
        if isinstance(targets, str) or not targets:
            raise ValueError(f"targets: {targets!r}, want a list of HOST:PORT")
        if not all(_texts("targets", targets)):
            raise ValueError("targets: '', want HOST:PORT")
        self._timeout = _number("timeout", timeout, 0, _MOST_SECONDS)
        self._attempts = _whole("attempts", attempts, 1, 100)
        self._attempt_timeout = None if attempt_timeout is None else \
            _number("attempt_timeout", attempt_timeout, 0, _MOST_SECONDS)
        if hedge_after not in (None, "p95"):
            _number("hedge_after", hedge_after, 0, _MOST_SECONDS)
        self._hedges = _Hedges(hedge_after, _number("hedge_share", hedge_share, 0, 1))
        self._load_factor = _number("load_factor", load_factor, 1, math.inf)
        if not re.fullmatch("[a-z0-9_.-]+", _text("user_hash_key", user_hash_key)):
            raise ValueError(f"user_hash_key: {user_hash_key!r}, want lower-case letters, digits, "
                             "- _ .")
        if not re.fullmatch("[ -~]*", _text("token", token)):
            raise ValueError("token: want printable ASCII")
        for target in targets if token and credentials is None else ():
            if not re.match(r"unix:|(localhost|127\.\d+\.\d+\.\d+|\[::1\]):\d+$", target):
                raise ValueError(f"token: {target} is another machine, and without credentials "
                                 "it would go there in plain text")
        self._user_hash_key = user_hash_key
        self._health_service = _text("health_service", health_service)
        self._credentials = (("authorization", f"Bearer {token}"),) if token else ()
        self._replicas = [_Replica(target, credentials, health_service, self._credentials)
                          for target in targets]

    def close(self):
        for replica in self._replicas:
            replica.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def predict(self, model, user, ads, *, user_id="", timeout=None, priority="", **fields):
        """user, ads and fields: see make_request.  user_id: whoever it is has one replica while it
        serves; only a hash of it is sent.  user_key and user_version: the user's features are sent
        only where the replica does not have them.  priority: "high", "normal" or "low"."""
        if _text("priority", priority) not in ("", "high", "normal", "low"):
            raise ValueError(f"priority: {priority!r}, want high, normal or low")
        seconds = self._timeout if timeout is None else \
            _number("timeout", timeout, 0, _MOST_SECONDS)
        user_id = _text("user_id", user_id)
        user_hash = hashlib.sha256(user_id.encode()).hexdigest()[:16] if user_id else ""
        metadata = self._credentials
        if user_hash:
            metadata += ((self._user_hash_key, user_hash),)
        if priority:
            metadata += (("ulfd-priority", priority),)
        message = self._call(make_request(model, user, ads, **fields), metadata, user_hash, seconds)
        outputs = {o.name: np.array(o.values, np.float32).reshape(tuple(o.shape))
                   for o in message.outputs}
        fields = message.timings.DESCRIPTOR.fields if message.HasField("timings") else ()
        timings = {field.name: getattr(message.timings, field.name) for field in fields}
        return Reply(outputs, message.model.version, np.array(message.indices, np.int32),
                     np.array(message.scores, np.float32), timings, message)

    def _in_order(self, key, last):
        """Those that may be called, best first: another than the last one, one that serves, one
        that has room, the user's own one (rendezvous hashing: when one goes, only its users move).
        """
        usable = [replica for replica in self._replicas if replica.serving is not False]
        calls = 1 + sum(replica.calls for replica in usable)
        bound = max(_FREE_CALLS, self._load_factor * calls / max(1, len(usable)))
        return sorted(usable, key=lambda r: (
            r is last, r.serving is None, r.calls >= bound,
            hashlib.sha256(f"{key} {r.target}".encode()).digest()))

    def _call(self, whole, metadata, user_hash, timeout):
        end = time.monotonic() + timeout
        request = whole
        if whole.user_key and whole.user_features:  # Perhaps the replica has them.
            request = PredictRequest()
            request.CopyFrom(whole)
            del request.user_features[:]
        key = user_hash or str(random.random())
        hedge_wait = self._hedges.wait(whole.model.name)
        last, left = None, self._attempts
        while True:
            order = self._in_order(key, last)
            try:
                return self._attempt(order, request, whole, metadata, end, hedge_wait)
            except grpc.RpcError as error:
                missing = request is not whole and _lacks_features(error)
                request = whole
                if missing:
                    continue
                left -= 1
                last = order[0] if order else None
                wait = self._wait_before_retry(error)
                if wait is None or left == 0 or time.monotonic() + wait >= end:
                    raise
                time.sleep(wait)

    def _attempt(self, order, request, whole, metadata, end, hedge_wait):
        """One attempt, and perhaps its hedge."""
        if not order:
            raise NoReplica(f"no replica serves {self._health_service}".rstrip())
        begun = time.monotonic()
        if self._attempt_timeout is not None:
            end = min(end, begun + self._attempt_timeout)
        if hedge_wait is None or len(order) == 1:
            reply = order[0].call(request, metadata, end)
        else:
            reply = self._hedged(order, request, whole, metadata, end, hedge_wait)
        self._hedges.answered(whole.model.name, time.monotonic() - begun)
        return reply

    def _hedged(self, order, request, whole, metadata, end, hedge_wait):
        """Of two calls, if it comes to that, the first answer."""
        done = queue.SimpleQueue()
        calls = [order[0].start(request, metadata, end, done)]
        try:
            answer = done.get(timeout=hedge_wait)
        except queue.Empty:
            if self._hedges.take():
                calls.append(order[1].start(whole, metadata, end, done))
            answer = done.get()
        error = answer.exception()
        if error and len(calls) == 2 and (_lacks_features(error) or
                                          self._wait_before_retry(error) is not None):
            answer = done.get()
        for call in calls:
            call.cancel()
        return answer.result()

    def _wait_before_retry(self, error):
        """Seconds, or None where trying again would not help."""
        pushback = dict(error.trailing_metadata() or ()).get(_PUSHBACK)
        if pushback is not None:  # Negative: do not.  A fifth more or less: not all at once.
            return int(pushback) / 1000 * random.uniform(1, 1.2) if pushback.isdigit() else None
        if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            return None if self._attempt_timeout is None else 0
        return 0.01 if error.code() == grpc.StatusCode.UNAVAILABLE else None


def _lacks_features(error):
    return error.code() == grpc.StatusCode.FAILED_PRECONDITION and \
        "user_features" in (error.details() or "")
