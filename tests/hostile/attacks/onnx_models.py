"""Versions that are a model.onnx, which the daemon has converted by a program of its own.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import os
import struct

from harness import modelfiles
from attacks.common import REGISTERED, Attack, field, varint
from attacks.models import SECRET, appears, hole, instead, link_out

FLOAT, INT64 = 1, 7


def number(tag, value):
    return varint(tag << 3) + varint(value)


def value_info(name, dims, dtype=FLOAT):
    """Dimensions are numbers or names."""
    shape = b"".join(field(1, number(1, d) if isinstance(d, int) else field(2, d.encode())) for d in dims)
    return field(1, name.encode()) + field(2, field(1, number(1, dtype) + field(2, shape)))


def tensor(name, dims, raw=None, dtype=FLOAT, more=b""):
    return (b"".join(number(1, d) for d in dims) + number(2, dtype) + field(8, name.encode()) +
            (b"" if raw is None else field(9, raw)) + more)


def whole(name, values):
    return tensor(name, [len(values)], struct.pack(f"<{len(values)}q", *values), INT64)


def attribute(name, value):
    if isinstance(value, bytes):  # A graph.
        return field(5, field(1, name.encode()) + field(6, value) + number(20, 5))
    if isinstance(value, list):
        return field(5, field(1, name.encode()) + b"".join(number(8, i) for i in value) + number(20, 7))
    return field(5, field(1, name.encode()) + number(3, value) + number(20, 2))


def node(op, inputs, outputs, attributes=b"", domain="", name=""):
    return (b"".join(field(1, x.encode()) for x in inputs) + b"".join(field(2, y.encode()) for y in outputs) +
            field(3, name.encode()) + field(4, op.encode()) + attributes + (field(7, domain.encode()) if domain else b""))


def graph(nodes, inputs=(), outputs=(), constants=()):
    return (b"".join(field(1, n) for n in nodes) + field(2, b"g") + b"".join(field(5, c) for c in constants) +
            b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))


def model(nodes, constants=(), functions=(), inputs=None, outputs=None):
    """x [N, 4] -> y, unless told otherwise."""
    inputs = [value_info("x", ["N", 4])] if inputs is None else inputs
    outputs = [value_info("y", ["N", 4])] if outputs is None else outputs
    opsets = field(8, field(1, b"") + number(2, 13)) + field(8, field(1, b"f") + number(2, 1))
    return (number(1, 8) + opsets + field(7, graph(nodes, inputs, outputs, constants)) +
            b"".join(field(25, f) for f in functions))


def function(name, nodes):
    return (field(1, name.encode()) + field(4, b"a") + field(5, b"b") + b"".join(field(7, n) for n in nodes) +
            field(9, field(1, b"") + number(2, 13)) + field(9, field(1, b"f") + number(2, 1)) + field(10, b"f"))


def _row(n, op="Relu"):
    names = ["x"] + [f"v{i}" for i in range(n - 1)] + ["y"]
    return model([node(op, [names[i]], [names[i + 1]]) for i in range(n)])


def _sums(n):
    """Of one constant, which is a layer wherever it is added."""
    names = ["x"] + [f"v{i}" for i in range(n - 1)] + ["y"]
    return model([node("Add", [names[i], "w"], [names[i + 1]]) for i in range(n)], [tensor("w", [4], bytes(16))])


def _doubling_functions(n):
    calls = [function(f"f{i}", [node(f"f{i + 1}", ["a"], ["c"], domain="f"), node(f"f{i + 1}", ["c"], ["b"], domain="f")])
             for i in range(n)]
    return model([node("f0", ["x"], ["y"], domain="f")], functions=calls + [function(f"f{n}", [node("Relu", ["a"], ["b"])])])


def _doubling_constants(n):
    nodes = [node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], attribute("axis", 0)) for i in range(n)]
    nodes += [node("ReduceSum", [f"c{n}"], ["s"], attribute("keepdims", 0)), node("Add", ["x", "s"], ["y"])]
    return model(nodes, [tensor("c0", [1], bytes(4))])


def _filled(dims, then):
    """A constant of that shape out of nothing."""
    return model([node("ConstantOfShape", ["shape"], ["big"]), *then], [whole("shape", dims)])


def _nested(depth):
    inner = graph([node("Identity", ["x"], ["r"])], outputs=[value_info("r", ["N", 4])])
    for _ in range(depth):
        inner = graph([node("If", ["true"], ["r"], attribute("then_branch", inner) + attribute("else_branch", inner))]
                      if depth <= 8 else [node("If", ["true"], ["r"], attribute("then_branch", inner))],
                      outputs=[value_info("r", ["N", 4])])
    both = attribute("then_branch", inner) + attribute("else_branch", inner)
    return model([node("If", ["true"], ["y"], both)], [tensor("true", [], b"\1", 9)])


def _loop(trips):
    body = graph([node("Identity", ["cond"], ["go"]), node("Relu", ["v"], ["w"])],
                 [value_info("i", [], INT64), value_info("cond", [], 9), value_info("v", ["N", 4])],
                 [value_info("go", [], 9), value_info("w", ["N", 4])])
    return model([node("Loop", ["trips", "true", "x"], ["y"], attribute("body", body))],
                 [tensor("trips", [], struct.pack("<q", trips), INT64), tensor("true", [], b"\1", 9)])


def _one(op, constants=(), attributes=b"", inputs=("x",), outputs=("y",)):
    names = [name for name, _ in constants]
    return model([node(op, [*inputs, *names], outputs, attributes)], [c for _, c in constants])


def _integers(name, values):
    return (name, whole(name, values))


def _external(entries, dims=(4,)):
    more = number(14, 1) + b"".join(field(13, field(1, k) + field(2, v)) for k, v in entries)
    return model([node("Add", ["x", "w"], ["y"])], [tensor("w", dims, more=more)])


def _table(rows, width):
    """An embedding that is made of nothing: its table is a file of text."""
    return model([node("ConstantOfShape", ["shape"], ["table"]), node("Gather", ["table", "id"], ["y"])], [whole("shape", [rows, width])],
                 inputs=[value_info("id", ["N", 1], INT64)], outputs=[value_info("y", ["N", 1, width])])


GOOD = model([node("Relu", ["x"], ["y"])])
HUGE, LEAST = 1 << 62, -(1 << 63)
FLOATS = functools.partial(struct.pack, "<4f")
FILES = {
    "20000 sums with one constant": _sums(20_000),
    "functions that double, 30 deep": _doubling_functions(30), "a function that calls itself":
        model([node("f0", ["x"], ["y"], domain="f")], functions=[function("f0", [node("f0", ["a"], ["b"], domain="f")])]),
    "constants that double, 60 times": _doubling_constants(60), "constants that double, 28 times": _doubling_constants(28),
    "branches in branches, 90 deep": _nested(90), "branches that double, 8 deep": _nested(8),
    "a loop of 2^62": _loop(HUGE), "a loop of 10^9": _loop(10**9), "a loop of -2^63": _loop(LEAST),
    "a row of 90000 nodes": _row(90_000), "20000 sigmoids": _row(20_000, "Sigmoid"),
    "a constant of 2^60": _filled([1 << 30, 1 << 30], [node("Add", ["x", "big"], ["y"])]),
    "a constant of 0 by 2^62": _filled([0, HUGE], [node("Add", ["x", "big"], ["y"])]),
    "a constant of -1": _filled([-1, 4], [node("Add", ["x", "big"], ["y"])]),
    "a constant of 2^30 that is added": _filled([1 << 28, 4], [node("ReduceSum", ["big"], ["s"], attribute("keepdims", 0)),
                                                               node("Add", ["x", "s"], ["y"])]),
    "a table of 2^31 rows": _table(1 << 31, 4), "a table of 40 million rows": _table(40_000_000, 4),
    "Expand to 2^60": _one("Expand", [_integers("s", [1, 1 << 30, 1 << 30, 4])]),
    "Tile by 2^62": _one("Tile", [_integers("s", [1, HUGE])]), "Tile by 10^9": _one("Tile", [_integers("s", [1, 10**9])]),
    "Pad by 2^62": _one("Pad", [_integers("s", [0, HUGE, 0, HUGE])]), "Pad by -2^63": _one("Pad", [_integers("s", [0, LEAST, 0, LEAST])]),
    "Reshape to -1 by -1": _one("Reshape", [_integers("s", [-1, -1])]), "Reshape to 2^62 by 4": _one("Reshape", [_integers("s", [HUGE, 4])]),
    "Reshape to 0 by 0": _one("Reshape", [_integers("s", [0, 0, 0, 0, 0])]),
    "Reshape to a million dimensions": _one("Reshape", [_integers("s", [-1] + [1] * 1_000_000)]),
    "Slice by -2^63": _one("Slice", [_integers(n, [v]) for n, v in (("b", LEAST), ("e", HUGE), ("a", 1), ("t", LEAST))]),
    "Slice along axis 2^62": _one("Slice", [_integers(n, [v]) for n, v in (("b", 0), ("e", 1), ("a", HUGE), ("t", 1))]),
    "Gather at 2^62": _one("Gather", [_integers("i", [HUGE])], attribute("axis", 1)),
    "Gather along -2^63": _one("Gather", [_integers("i", [0])], attribute("axis", LEAST)),
    "Transpose by noise": _one("Transpose", attributes=attribute("perm", [HUGE, LEAST])),
    "Concat along 2^62": _one("Concat", inputs=("x", "x"), attributes=attribute("axis", HUGE)),
    "Split into 100000": _one("Split", attributes=attribute("axis", 1), outputs=["y"] + [f"y{i}" for i in range(100_000)]),
    "Split by negative": _one("Split", [_integers("s", [-4, 8])], attribute("axis", 1), outputs=["y", "z"]),
    "DepthToSpace of 0": _one("DepthToSpace", attributes=attribute("blocksize", 0)),
    "Flatten along -2^63": _one("Flatten", attributes=attribute("axis", LEAST)),
    "Softmax along 2^62": _one("Softmax", attributes=attribute("axis", HUGE)),
    "Cast to type 10^9": _one("Cast", attributes=attribute("to", 10**9)),
    "OneHot of 2^62": _one("OneHot", [("d", tensor("d", [], struct.pack("<q", HUGE), INT64)), ("v", tensor("v", [2], bytes(8)))]),
    "TopK of 2^62": _one("TopK", [_integers("k", [HUGE])], outputs=["y", "i"]),
    "Range to 2^62": model([node("Range", ["a", "b", "c"], ["r"]), node("ReduceMax", ["r"], ["m"], attribute("keepdims", 0)),
                            node("Cast", ["m"], ["f"], attribute("to", 1)), node("Add", ["x", "f"], ["y"])],
                           [tensor(n, [], struct.pack("<q", v), INT64) for n, v in (("a", 0), ("b", HUGE), ("c", 1))]),
    "Range by 0": model([node("Range", ["a", "b", "c"], ["r"]), node("Cast", ["r"], ["f"], attribute("to", 1)), node("Add", ["x", "f"], ["y"])],
                        [tensor(n, [], struct.pack("<q", v), INT64) for n, v in (("a", 0), ("b", 9), ("c", 0))]),
    "LSTM of 2^31": _one("LSTM", [("w", tensor("w", [1, 4, 4], bytes(64))), ("r", tensor("r", [1, 4, 1], bytes(16)))],
                         attribute("hidden_size", 1 << 31)),
    "Conv of 2^31 groups": model([node("Conv", ["x", "w"], ["y"], attribute("group", 1 << 31) + attribute("kernel_shape", [HUGE, HUGE]) +
                                       attribute("pads", [HUGE] * 4) + attribute("dilations", [LEAST, 0]))],
                                 [tensor("w", [1, 1, 1, 1], bytes(4))], inputs=[value_info("x", ["N", 1, 8, 8])]),
    "an input of 2^62 columns": model([node("Relu", ["x"], ["y"])], inputs=[value_info("x", ["N", HUGE])]),
    "an input of negative columns": model([node("Relu", ["x"], ["y"])], inputs=[value_info("x", ["N", -4])]),
    "an input of 100000 dimensions": model([node("Relu", ["x"], ["y"])], inputs=[value_info("x", ["N"] + [1] * 100_000)]),
    "50000 inputs of one name": model([node("Relu", ["x"], ["y"])], inputs=[value_info("x", ["N", 4])] * 50_000),
    "outputs that nothing makes": model([node("Relu", ["x"], ["z"])]),
    "a circle": model([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])]),
    "names that are terminal commands": model([node("\x1b[2JNoSuchType\r\n\0", ["x"], ["y"], name="\x1b]0;\x07" * 1000)]),
    "a name of 100 MB": model([node("Nothing" * (15 << 20), ["x"], ["y"])]),
    "raw data that is too short": _one("Add", [("w", tensor("w", [1 << 20, 4], bytes(16)))]),
    "raw data of negative shape": _one("Add", [("w", tensor("w", [-1, -4], bytes(16)))]),
    "external data above the folder": _external([(b"location", b"../../outside")]),
    "external data of /etc/passwd": _external([(b"location", b"/etc/passwd")]),
    "external data at -1": _external([(b"location", b"w"), (b"offset", b"-1")]),
    "external data at 2^63 - 1": _external([(b"location", b"w"), (b"offset", b"9223372036854775807")]),
    "external data is the model": _external([(b"location", b"model.onnx"), (b"offset", b"0"), (b"length", b"16")]),
    "no model": b"\x08\x08" * 1000, "nothing": b"", "nested 100000 deep": functools.reduce(lambda d, _: field(7, d), range(5000), b""),
}


WHOLE = {"model.onnx": GOOD}
ODD = {
    "the file is a link out": instead("model.onnx", link_out, WHOLE), "the schema is a link out": instead("schema.csv", link_out, WHOLE),
    "external data is a link out": instead("w", link_out, {"model.onnx": _external([(b"location", b"w")])}),
    "the file is a FIFO": instead("model.onnx", os.mkfifo, WHOLE), "the schema is a FIFO": instead("schema.csv", os.mkfifo, WHOLE),
    "the file is /dev/zero": instead("model.onnx", functools.partial(os.symlink, "/dev/zero"), WHOLE),
    "the schema is /dev/zero": instead("schema.csv", functools.partial(os.symlink, "/dev/zero"), WHOLE),
    "the file is a folder": instead("model.onnx", os.mkdir, WHOLE), "the file has 1 TB": instead("model.onnx", hole, WHOLE),
    "the schema has 1 TB": instead("schema.csv", hole, WHOLE),
}


def _tried(name, content, site):
    appears(f"ONNX: {name}", content, site)
    held = sum(os.lstat(os.path.join(folder, f)).st_blocks * 512
               for folder, _, files in os.walk(site.scene.kept) for f in files)
    if held > 512 << 20:
        site.faults.append(f"{held >> 20} MiB of disk are taken")
    if "link out" in name and site.times("served"):
        site.faults.append("what lies elsewhere is served")


for _name, _content in {**{name: {"model.onnx": data} for name, data in FILES.items()}, **ODD}.items():
    REGISTERED.append(Attack(f"ONNX: {_name}"[:44], "a model.onnx appears in the repository of a running daemon",
                             functools.partial(_tried, _name, _content), scene="onnx", seconds=60))
