"""Requests whose price is absurd: shapes, counts, ids, numbers of fields.  Each case is one call; its name stands in the
table if the daemon dies of it.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import itertools
import struct
import threading

import grpc
import numpy as np

import kserve_v2_pb2 as kserve_pb
from harness import http2
from harness.clients import native_pb
from attacks.common import CHECK, INFER, METADATA, PREDICT, REGISTERED, Attack, attack, field, in_parallel, varint
from attacks.wire import bomb

HUGE = 1 << 40
# Calls of one connection: fewer than the streams that a client may open.
UNDER_WAY = 200
SHAPES = [
    [1, 0, HUGE, 1 << 22], [1, 0, HUGE], [1, HUGE - 1, 0], [0, HUGE], [HUGE, 0], [1, 0, 1 << 62, 4], [1, 1 << 62, 0, 1 << 62],
    [1 << 31, 0], [1 << 32, 0], [1, 0, 1 << 31, 1 << 31], [1, (1 << 63) - 1, 0], [1, 0, (1 << 63) - 1], [0, 0, 0],
    [-1, 0], [1, -1, 0], [-HUGE, -HUGE, 0], [1, 0, -1], [-(1 << 63), 0], [1 << 33, 1 << 31, 0],
    [1] * 4 + [0] + [HUGE] * 3, [1] * 1000, [1] * 100_000 + [0], [0] * 64, [1, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 0],
]


def dense(name, shape, values=0, of_user=False, request=None, model="mlp", kind="floats"):
    request = request or native_pb.PredictRequest(model=native_pb.ModelSpec(name=model))
    feature = (request.user_features if of_user else request.ad_features).add(name=name)
    feature.dense.shape.extend(shape)
    if values:
        getattr(feature.dense, kind).extend(np.ones(values, int if kind != "floats" else np.float32).tolist())
    return request


def kserve(model, tensors, raw=True):
    """tensors: (name, datatype, shape, values)."""
    request = kserve_pb.ModelInferRequest(model_name=model)
    for name, datatype, shape, values in tensors:
        tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
        if raw:
            size = 8 if datatype == "INT64" else 4
            request.raw_input_contents.append(bytes(size * values))
        elif values:
            tensor.contents.fp32_contents.extend([1.0] * values)
    return request


def inputs_of(site, model):
    """[(name, KServe's datatype)], or nothing if the model is not served."""
    request = kserve_pb.ModelMetadataRequest(name=model)
    call = site.channel().unary_unary("/inference.GRPCInferenceService/ModelMetadata",
                                      response_deserializer=kserve_pb.ModelMetadataResponse.FromString)
    try:
        return [(t.name, t.datatype) for t in call(request.SerializeToString(), timeout=5).inputs]
    except Exception:  # Not served.
        return []


def _absurd_shapes(models, site):
    for model in models(site):
        inputs = inputs_of(site, model)
        for shape, short in itertools.product(SHAPES, (False, True)):
            if site.over() or not inputs:
                break
            site.doing = f"{model} {shape[:5]} of {len(inputs)} inputs"
            name = inputs[0][0]
            rest = [(n, t, [1, 1], 1) for n, t in inputs[1:]] if short else [(n, t, shape, 0) for n, t in inputs[1:]]
            site.call(INFER, kserve(model, [(name, inputs[0][1], shape, 0), *rest]).SerializeToString(), 1)
            request = dense(name, shape, 0, model=model)
            for n, _, s, v in rest:
                dense(n, s, v, request=request, model=model)
            site.call(PREDICT, request.SerializeToString(), 1)
            of_user = dense(name, shape, 0, True, model=model)
            site.call(PREDICT, of_user.SerializeToString(), 1)


REGISTERED.append(Attack("absurd shapes, sum_layer", "no data, shapes with a 0 and dimensions of 2^40 and more",
                         functools.partial(_absurd_shapes, lambda site: ["bare_sum", "stated_sum"]), seconds=20, short=True))
REGISTERED.append(Attack("absurd shapes, MLP", "the same for fully connected layers",
                         functools.partial(_absurd_shapes, lambda site: ["mlp", "mlp_no_level"]), seconds=20))
REGISTERED.append(Attack("absurd shapes, every layer type", "the same for one model of each layer type",
                         functools.partial(_absurd_shapes, lambda site: site.scene.zoo), seconds=180))


@attack("outer products", "[1, 2^20, 1] by [1, 1, 2^20], 8 MB on the wire; and smaller ones", seconds=20, short=True)
def outer_products(site):
    for model, names in (("outer", "ab"), ("bare_multiply", "ab"), ("bare_add", "ab"), ("bare_sub", "ab"), ("bare_div", "ab")):
        for n in (1 << 20, 1 << 19, 1 << 16, 1 << 14):
            if site.over():
                return
            site.doing = f"{model} [1, {n}, 1] by [1, 1, {n}]"
            data = [(names[0], "FP32", [1, n, 1], n), (names[1], "FP32", [1, 1, n], n)]
            site.call(INFER, kserve(model, data).SerializeToString(), 2)


@attack("outer products in parallel", "six at a time of [1, 10000, 1] by [1, 1, 10000]: 400 MB each")
def parallel_outer_products(site):
    message = kserve("outer", [("a", "FP32", [1, 10000, 1], 10000), ("b", "FP32", [1, 1, 10000], 10000)]).SerializeToString()
    while not site.over():
        for future in [site.future(INFER, message, 2) for _ in range(6)]:
            future.exception()


@attack("broadcasts in parallel", "eight at a time of [1, 4000, 1] by [1, 1, 4000]: 32 KB make 64 MB", seconds=8)
def broadcasts_in_parallel(site):
    data = [("a", "FP32", [1, 4000, 1], 4000), ("b", "FP32", [1, 1, 4000], 4000)]
    message = kserve("bare_multiply", data).SerializeToString()
    while not site.over():
        for future in [site.future(INFER, message, 5) for _ in range(8)]:
            future.exception()


def _valid_work(site, connections, ads, timeout, metadata=None):
    """As many calls as a client would never have under way, each as good as the victim's."""
    message = site.scene.victim_request(ads).SerializeToString()
    options = [("grpc.use_local_subchannel_pool", 1)]
    target = f"127.0.0.1:{site.relay()}"
    calls = [site.keep(grpc.insecure_channel(target, options)).unary_unary(PREDICT) for _ in range(connections)]

    def keep_busy(i):
        under_way = threading.Semaphore(UNDER_WAY)

        def done(future):
            site.count(future.code().name if future.code() else "?")
            under_way.release()

        while not site.over():
            under_way.acquire(timeout=1)
            site.sent += len(message)
            calls[i].future(message, timeout=timeout, metadata=metadata).add_done_callback(done)

    in_parallel(keep_busy, connections)


for connections in (1, 8):
    for ads, timeout in ((2000, 30), (20, 0.05), (20, None)):
        REGISTERED.append(Attack(f"valid work: {connections} connections, {ads} ads, " + (f"{timeout} s" if timeout else "no deadline"),
                                 f"{UNDER_WAY} calls of each at any time",
                                 functools.partial(_valid_work, connections=connections, ads=ads, timeout=timeout),
                                 short=connections == 8 and ads == 2000))


@attack("1 ad of [1, 150000, 8], four in parallel", "rows that no limit of ads counts", seconds=6, short=True)
def hidden_rows(site):
    messages = [kserve(model, [("x", "FP32", shape, 1_200_000)]).SerializeToString()
                for model in ("mlp", "mlp_no_level") for shape in ([1, 150_000, 8], [1, 2, 75_000, 8])]
    while not site.over():
        for future in [site.future(INFER, messages[i], 10) for i in range(4)]:
            future.exception()


@attack("wide rows", "every layer type gets 1 ad of [1, 1000, 1000]", seconds=60)
def wide_rows(site):
    for model in site.scene.zoo:
        inputs = inputs_of(site, model)
        for shape in ([1, 1000, 1000], [1, 1_000_000], [1, 1, 1000, 1000], [1000, 1000]):
            if site.over() or not inputs:
                break
            site.doing = f"{model} {shape}"
            site.call(INFER, kserve(model, [(n, t, shape, 1_000_000) for n, t in inputs[:2]]).SerializeToString(), 3)


@attack("wide images", "a convolution of images of a height and width that nothing states: long ones, and of ever new sizes",
        seconds=10, short=True)
def wide_images(site):
    long = [(3, 300_000), (3, 600_000), (1000, 1000), (1 << 18, 4)]
    for height, width in itertools.chain(long, ((30 + i % 2, 510 - i // 2) for i in range(1000))):
        if site.over():
            break
        shape = [1, 2, height, width]
        message = kserve("bare_convolution", [("x", "FP32", shape, 2 * height * width)]).SerializeToString()
        site.call(INFER, message, 3)


@attack("unlike inputs", "two inputs whose shapes make large results where they are broadcast", seconds=60)
def unlike_inputs(site):
    pairs = [([1, 3000, 1], [1, 1, 3000]), ([2000, 1, 1], [1, 2000, 1000]), ([1, 1, 100, 1], [100, 100, 1, 100]),
             ([3000, 1], [1, 3000]), ([1, 100, 1, 100, 1], [1, 1, 100, 1, 100])]
    for model in site.scene.zoo:
        inputs = inputs_of(site, model)
        for first, second in pairs:
            if site.over() or len(inputs) < 2:
                break
            site.doing = f"{model} {first} {second}"
            tensors = [(inputs[0][0], inputs[0][1], first, int(np.prod(first))),
                       *((n, t, second, int(np.prod(second))) for n, t in inputs[1:])]
            site.call(INFER, kserve(model, tensors).SerializeToString(), 3)


@attack("ids and counts", "counts that do not fit, half a million ids, ids of every sign", seconds=10, short=True)
def ids_and_counts(site):
    model = "din"
    sparse = sorted({name.rsplit(".", 1)[0] for name, _ in inputs_of(site, model) if name.endswith(".ids")})
    if not sparse:
        model, sparse = "shop", ["ad", "user", "history"]
    changes = {
        "counts of 2^31 - 1": {"ids": [1], "counts": [2**31 - 1] * 1000}, "negative counts": {"ids": [1] * 4, "counts": [-5, 9]},
        "many empty rows": {"counts": [0] * 2_000_000}, "many ids": {"ids": [1] * 2_000_000},
        "500 000 ids": {"ids": list(range(499_999))}, "2000 rows of 200 ids": {"ids": [1] * 400_000, "counts": [200] * 2000},
        "values without ids": {"values": [1.0] * 1_000_000}, "extreme ids": {"ids": [-(2**63), 2**63 - 1, 0, -1]},
    }
    messages = {}
    for name, fields in changes.items():
        request = native_pb.PredictRequest(model=native_pb.ModelSpec(name=model))
        for i, feature in enumerate(sparse):
            target = request.ad_features if i % 2 == 0 else request.user_features
            target.add(name=feature, sparse=native_pb.SparseFeature(**fields))
        messages[name] = request.SerializeToString()
    site.begin()  # Making them is not part of the attack.
    while not site.over():
        for site.doing, message in messages.items():
            if len(message) < 16_000_000:
                site.call(PREDICT, message)


@attack("top_k, deadlines and priorities", "k of 2^31 - 1, columns of -2^31, deadlines of 0 and of years, odd metadata",
        short=True)
def odd_calls(site):
    path_request = dense("x", [1, 8], 8)
    path_request.top_k.k, path_request.top_k.column = 2**31 - 1, -(2**31)
    plain = dense("x", [100, 8], 800).SerializeToString()
    odd = path_request.SerializeToString()
    wire = site.wire()
    while not site.over():
        for body in (plain, odd):
            for timeout in ("0n", "1n", "99999999H", "99999999S", "1H", "-1S", "x", "99999999999999999H"):
                for priority in ("high", "low", "highest", "x" * 1000):
                    if not site.streams(wire, PREDICT, http2.grpc_message(body), 1,
                                        more=[("grpc-timeout", timeout), ("ulfd-priority", priority)]):
                        wire.close()
                        wire = site.wire()


# Fields without number.

def _repeat(unit, size):
    return unit * (size // len(unit))


_NESTED = b""
for _ in range(2000):
    _NESTED = field(2, _NESTED)
LIMIT = 16 << 20
FIELDS = {
    "empty KServe inputs": (INFER, _repeat(b"\x2a\x00", LIMIT)),
    "empty ad_features": (PREDICT, _repeat(b"\x1a\x00", LIMIT)),
    "empty user_features": (PREDICT, _repeat(b"\x12\x00", LIMIT)),
    "empty names of outputs": (PREDICT, _repeat(b"\x22\x00", LIMIT)),
    "empty raw_input_contents": (INFER, _repeat(b"\x3a\x00", LIMIT)),
    "empty KServe outputs": (INFER, _repeat(b"\x32\x00", LIMIT)),
    "empty parameters": (INFER, _repeat(b"\x22\x00", LIMIT)),
    "parameters with names": (INFER, b"".join(field(4, field(1, struct.pack(">I", i))) for i in range(LIMIT // 8))),
    "parameters of one input": (INFER, field(5, b"".join(field(4, field(1, struct.pack(">I", i))) for i in range(LIMIT // 8 - 9)))),
    "dense features": (PREDICT, _repeat(field(3, field(3, b"")), LIMIT)),
    "unknown varints": (CHECK, _repeat(b"\x78\x01", LIMIT)),
    "unknown empty fields": (CHECK, _repeat(b"\x7a\x00", LIMIT)),
    "unknown fields of a metadata call": (METADATA, _repeat(b"\x7a\x00", LIMIT)),
    "unknown groups": (CHECK, _repeat(b"\x7b\x7c", LIMIT)),
    "groups within groups": (CHECK, b"\x7b" * (LIMIT // 2) + b"\x7c" * (LIMIT // 2)),
    "deep nesting": (INFER, field(5, _NESTED)),
    "a repeated choice": (PREDICT, _repeat(field(1, b"\x10\x01" + b"\x1a\x00"), LIMIT)),
    "string_contents": (INFER, field(5, field(5, _repeat(b"\x42\x00", LIMIT - 20)))),
    "unpacked floats": (PREDICT, field(3, field(3, _repeat(b"\x15\x00\x00\x00\x00", LIMIT - 20)))),
    "shape of 16 million dimensions": (PREDICT, field(3, field(1, b"x") + field(3, field(1, b"\x01" * (LIMIT - 40))))),
}


def _fields(path, message, parallel, site):
    def work(_):
        wire = site.wire()
        while not site.over():
            if site.deliver(wire, path, http2.grpc_message(message[:LIMIT - 5])):
                site.answered(wire)
            if wire.closed:
                wire = site.wire()
    in_parallel(work, parallel)


for _name, (_path, _message) in FIELDS.items():
    REGISTERED.append(Attack(f"8 million fields: {_name}"[:44], "messages of 16 MB, six connections",
                             functools.partial(_fields, _path, _message, 6),
                             short=_name in ("empty KServe inputs", "empty ad_features")))


@attack("8 million fields, gzip", "16 KB on the wire", short=True)
def compressed_fields(site):
    for path, unit in ((INFER, b"\x2a\x00"), (PREDICT, b"\x1a\x00")):
        body = bomb(16 << 20, 31, unit * (1 << 19))

        def work(_):
            wire = site.wire()
            while not site.over() and not wire.closed and (path == PREDICT or site.left() > site.seconds / 2):
                if site.deliver(wire, path, body, [("grpc-encoding", "gzip")]):
                    site.answered(wire)
        in_parallel(work, 6)


@attack("broken messages", "half a message, lengths that lie, 64-bit lengths")
def broken(site):
    whole = dense("x", [2, 8], 16).SerializeToString()
    cases = [whole[:i] for i in range(len(whole))] + [b"\x1a" + varint(1 << 62), b"\x1a" + b"\xff" * 10, b"\x1a\xff\xff\xff\xff\x0f",
                                                      b"\xff" * 1000]
    while not site.over():
        for case in cases:
            if site.over():
                return
            site.call(PREDICT, case)
