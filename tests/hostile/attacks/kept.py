"""What a caller may try to make the daemon keep or repeat: names, keys, ids; and calls that are framed as none should be.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import itertools
import json
import struct

import numpy as np

import kserve_v2_pb2 as kserve_pb
from harness import http2
from harness.clients import native_pb
from attacks.common import CHECK, INFER, METADATA, PREDICT, REGISTERED, SERVER_METADATA, Attack, attack, frame
from attacks.requests import dense

KSERVE = "/inference.GRPCInferenceService/"
LARGE = "n" * (15 << 20)


@attack("model names without end", "calls of every API for models that are not there, each a new name of 200 bytes", short=True)
def model_names(site):
    for i in itertools.count():
        if site.over():
            return
        name = f"{i}".rjust(200, "m")
        site.call(PREDICT, native_pb.PredictRequest(model=native_pb.ModelSpec(name=name, label=name)).SerializeToString())
        site.call(METADATA, native_pb.GetModelMetadataRequest(model=native_pb.ModelSpec(name=name)).SerializeToString())
        site.call(INFER, kserve_pb.ModelInferRequest(model_name=name, model_version=name, id=name).SerializeToString())
        site.call(KSERVE + "ModelReady", kserve_pb.ModelReadyRequest(name=name, version=name).SerializeToString())


@attack("words of callers in pages and log", "ids, models, priorities, trace contexts, clients: new ones in each call", seconds=6,
        short=True)
def words(site):
    """Series of metrics are not for callers to make, and what they say stays text."""
    before = site.daemon.http("/metrics")[1].count("\n")
    for i in itertools.count():
        if site.over():
            break
        word = f"{i}\r\n\x1b[2J\u009b<script>alert(1)</script>\u2028"
        request = dense("x", [1, 8], 8, model="mlp" if i % 2 else f"mlp\x1b{i}\n")
        request.request_id = word
        metadata = [("traceparent", f"00-{i + 1:032x}-{i + 1:016x}-01"), ("x-client-id", f"{i}"), ("ulfd-priority", "low"),
                    ("tracestate", "a=" + "b" * 500), ("baggage", f"user={i}"), ("user-agent", f"{i}")]
        site.call(PREDICT, request.SerializeToString(), metadata=metadata)
        site.call(PREDICT, request.SerializeToString(), metadata=[("ulfd-priority", f"{i}<b>")])
    pages = site.daemon.http("/metrics")[1]
    if pages.count("\n") > before + 60:
        site.faults.append(f"/metrics had {before} lines and has {pages.count(chr(10))}")
    json.loads(site.daemon.http("/statusz")[1])
    for place, text in (("the log", site.daemon.log()), ("/metrics", pages), ("/statusz", site.daemon.http("/statusz")[1])):
        if set(text) & set("\x1b\r\u009b"):
            site.faults.append(f"{place} has commands of a terminal")


@attack("user keys without end", "each request leaves another user behind", seconds=8, short=True)
def user_keys(site):
    futures = []
    for i in itertools.count():
        if site.over():
            return
        request = dense("x", [1, 3], 3, request=dense("u", [1, 2], 2, of_user=True, model="stated_fuse"))
        request.user_key, request.user_version = f"{i}".rjust(100, "k"), i
        futures.append(site.future(PREDICT, request.SerializeToString()))
        if len(futures) == 100:
            for future in futures:
                future.exception()
            futures = []


LARGE_NAMES = {
    "of a model": (PREDICT, native_pb.PredictRequest(model=native_pb.ModelSpec(name=LARGE))),
    "of a feature": (PREDICT, dense(LARGE, [1, 8], 8)),
    "of a user": (PREDICT, native_pb.PredictRequest(model=native_pb.ModelSpec(name="mlp"), user_key=LARGE)),
    "of a request": (PREDICT, native_pb.PredictRequest(model=native_pb.ModelSpec(name="mlp"), request_id=LARGE)),
    "of an output": (PREDICT, native_pb.PredictRequest(model=native_pb.ModelSpec(name="mlp"), outputs=[LARGE])),
    "of a KServe model": (INFER, kserve_pb.ModelInferRequest(model_name=LARGE)),
    "of a KServe version": (KSERVE + "ModelReady", kserve_pb.ModelReadyRequest(name="mlp", version=LARGE)),
    "of a datatype": (INFER, kserve_pb.ModelInferRequest(
        model_name="mlp", inputs=[kserve_pb.ModelInferRequest.InferInputTensor(name="x", datatype=LARGE, shape=[1, 8])])),
}


def _large_names(site):
    while not site.over():
        for site.doing, (path, message) in LARGE_NAMES.items():
            site.call(path, message.SerializeToString())


REGISTERED.append(Attack("names of 15 MB", "of models, features, users, outputs, versions, types", _large_names))


def _tensor(datatype, shape, **contents):
    tensor = kserve_pb.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(tensor.contents, field).extend(values)
    return tensor


TENSORS = {
    "BYTES": [_tensor("BYTES", [1, 8], bytes_contents=[b"x" * (1 << 20)] * 8)],
    "values of every type": [_tensor("FP32", [1, 8], fp32_contents=[1.0] * 8, int_contents=[1] * 8, bool_contents=[True] * 8,
                                     fp64_contents=[1.0] * 8, uint64_contents=[1] * 8, bytes_contents=[b""] * 8)],
    "no type": [_tensor("", [1, 8])], "too few values": [_tensor("FP32", [2000, 8], fp32_contents=[1.0])],
    "too many values": [_tensor("FP32", [1, 8], fp32_contents=[1.0] * 1_000_000)],
    "a tensor a thousand times": [_tensor("FP32", [1, 8], fp32_contents=[1.0] * 8)] * 1000,
    "no shape": [_tensor("FP32", [])], "[2^63 - 1]": [_tensor("FP32", [2**63 - 1])], "[-1]": [_tensor("FP32", [-1])],
}
RAW = {"none for it": [], "a byte": [b"x"], "a megabyte": [bytes(1 << 20)], "31 bytes": [bytes(31)], "two": [bytes(32)] * 2,
       "a million": [b""] * 1_000_000, "as it should be": [bytes(32)]}


@attack("KServe tensors that lie", "types, counts and raw contents that do not go together", seconds=8, short=True)
def lying_tensors(site):
    messages = {}
    for (kind, tensors), (form, raw) in itertools.product(TENSORS.items(), RAW.items()):
        request = kserve_pb.ModelInferRequest(model_name="mlp", inputs=tensors, raw_input_contents=raw)
        messages[f"{kind}, raw: {form}"] = request.SerializeToString()
    site.begin()
    while not site.over():
        for site.doing, message in messages.items():
            if site.over():
                return
            site.call(INFER, message)


@attack("numbers that are none", "NaN, infinities and denormals in every value of 2000 ads", seconds=6)
def no_numbers(site):
    messages = []
    for value in (np.nan, np.inf, -np.inf, 1e-45, 3.4e38):
        request = native_pb.PredictRequest(model=native_pb.ModelSpec(name="mlp"))
        feature = request.ad_features.add(name="x")
        feature.dense.shape.extend([2000, 8])
        feature.dense.floats.extend([value] * 16000)
        request.top_k.k = 2000
        messages.append(request.SerializeToString())
    while not site.over():
        for message in messages:
            site.call(PREDICT, message)


GOOD = http2.grpc_message(dense("x", [1, 8], 8).SerializeToString())
BODIES = {
    "two messages": GOOD + GOOD, "a thousand messages": GOOD * 1000, "half a length": b"\0\0\0", "no length": b"\0",
    "less than it says": b"\0" + struct.pack(">I", 1 << 20) + b"x", "2^32 - 1": b"\0\xff\xff\xff\xff" + b"x" * 100,
    "compressed, by nobody": b"\1" + GOOD[1:], "another flag": b"\x7f" + GOOD[1:], "nothing": b"", "empty": b"\0\0\0\0\0",
}
PLAIN = [(":method", "POST"), (":scheme", "http"), (":path", PREDICT), (":authority", "test"), ("te", "trailers"),
         ("content-type", "application/grpc")]
HEADERS = {
    "good": PLAIN, "none": [], "no path": [h for h in PLAIN if h[0] != ":path"], "two paths": PLAIN + [PLAIN[2]],
    "no method": PLAIN[1:], "GET": [(":method", "GET"), *PLAIN[1:]], "CONNECT": [(":method", "CONNECT"), *PLAIN[1:]],
    "an empty path": [(":path", "") if h[0] == ":path" else h for h in PLAIN],
    "a path without a slash": [(":path", "Predict") if h[0] == ":path" else h for h in PLAIN],
    "a pseudo header that nobody knows": PLAIN + [(":what", "x")], "capitals": PLAIN + [("X-Large", "y")],
    "no binary": PLAIN + [("x-bin", "%%%")], "binary of 10 KB": PLAIN + [("x-bin", "AAAA" * 2500)],
    "zero bytes": PLAIN + [("x", "a\0b")], "line ends": PLAIN + [("x", "a\r\nb: c")], "no name": PLAIN + [("", "x")],
    "content of another type": [("content-type", "text/html") if h[0] == "content-type" else h for h in PLAIN],
    "an encoding of its own": PLAIN + [("grpc-encoding", "x" * 1000)], "sixty encodings": PLAIN + [("grpc-encoding", "gzip")] * 60,
    "a trace of noise": PLAIN + [("grpc-trace-bin", "AAAA"), ("grpc-tags-bin", "AAAA" * 100)],
}


@attack("calls that are framed as none should be", "messages and headers that do not go together", seconds=8, short=True)
def framing(site):
    while not site.over():
        for (head, headers), (body, data) in itertools.product(HEADERS.items(), BODIES.items()):
            site.doing = f"{head}, {body}"
            wire = site.wire()
            block = http2.header_block(headers)
            calls = [frame(http2.HEADERS, http2.END_HEADERS, s, block) + frame(http2.DATA, http2.END_STREAM, s, data[:16384])
                     for s in range(1, 41, 2)]
            site.push(wire, b"".join(calls))
            wire.read(0.05)  # Connections as fast as they are taken are another attack.
            wire.close()
            if site.over():
                return


def _repeat(path, message, site):
    while not site.over():
        site.call(path, message)


for _path in (SERVER_METADATA, CHECK, KSERVE + "ServerLive"):
    REGISTERED.append(Attack(f"15 MB for {_path.rpartition('/')[2]}", "a field that nobody knows", functools.partial(
        _repeat, _path, b"\x7a" + b"\x80\x80\x80\x07" + bytes(7 << 21))))
