"""Model directories that appear in the repository of a running daemon.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import os
import shutil
import struct
import time

import numpy as np

from harness import modelfiles
from harness.modelfiles import dense_txt, embedding_conf, layer, npz_bytes, sparse_inputs
from attacks.common import REGISTERED, Attack

FC = "inner_product_layer"


def _squares(n, start='top: "x0"'):
    text = 'layer_params { type: "input_layer" %s }\n' % start
    for i in range(n):
        text += layer("concat_layer", f"c{i}", [f"x{i}", f"x{i}"], [f"x{i + 1}"], param="concat_param { dim: 1 }")
    return text


def _fan(kind, n, bottoms=("x",), param=""):
    """n layers over the same inputs, each an output."""
    return {"graph_ulf.txt": layer("input_layer", "", [], list(bottoms)) +
            "".join(layer(kind, f"l{i}", bottoms, [f"y{i}"], param=param) for i in range(n)),
            "model.textproto": "".join(f'inputs {{ name: "{x}" level: INPUT_LEVEL_AD row_shape: 4 }}\n' for x in bottoms)}


def _parallel(n, layers):
    """Layers of one matrix, side by side and one behind the other."""
    text = layer("input_layer", "", [], ["x"]) + "".join(
        layer(FC, f"l{i}", ["x" if i % 2 == 0 else f"y{i - 1}"], [f"y{i}"], ["w", "b"]) for i in range(layers))
    return {"graph_ulf.txt": 'backend: "tensorflow"\n' + text, "model.textproto":
            f'inputs {{ name: "x" level: INPUT_LEVEL_AD row_shape: {n} }}\n',
            "dense.npz": npz_bytes({"w": np.ones((n, n), np.float32), "b": np.ones(n, np.float32)})}


def tall(n):
    """Layers in a row."""
    return {"graph_ulf.txt": layer("input_layer", "", [], ["x0"]) + "".join(
        layer("relu_layer", f"r{i}", [f"x{i}"], [f"x{i + 1}"]) for i in range(n)),
        "model.textproto": 'inputs { name: "x0" level: INPUT_LEVEL_AD row_shape: [4] }\n'}


def _row_of(kind, n, param="", width=4):
    """Layers of one type in a row, each reading the input beside the one before."""
    return {"graph_ulf.txt": layer("input_layer", "", [], ["x0", "z"]) + "".join(
        layer(kind, f"r{i}", [f"x{i}", "z"], [f"x{i + 1}"], param=param) for i in range(n)),
        "model.textproto": "".join(f'inputs {{ name: "{x}" level: INPUT_LEVEL_AD row_shape: {width} }}\n' for x in ("x0", "z"))}


def _unstated(n, inputs):
    """Guesses at the shapes of inputs that nothing states, of which none fits until the last layer."""
    names = [f"x{i}" for i in range(inputs)]
    return {"graph_ulf.txt": layer("input_layer", "", [], names) + "".join(
        layer("batchdot_layer", f"b{i}", [names[i % inputs], names[(i + 1) % inputs]], [f"y{i}"],
              param="batch_dot_param { transpose_a: false transpose_b: true }") for i in range(n))}


def _same_weights(n):
    """Layers that passes may join: products of one input, each with weights of its own name and the same bytes."""
    text = layer("input_layer", "", [], ["x"]) + "".join(layer(FC, f"l{i}", ["x"], [f"y{i}"], ["w", "b"]) for i in range(n))
    text += layer("concat_layer", "c", [f"y{i}" for i in range(n)], ["y"], param="concat_param { dim: 1 }")
    return {"graph_ulf.txt": 'backend: "tensorflow"\n' + text, "model.textproto":
            'inputs { name: "x" level: INPUT_LEVEL_AD row_shape: 4 }\n',
            "dense.npz": npz_bytes({"w": np.ones((4, 4), np.float32), "b": np.ones(4, np.float32)})}


def _many_inputs(n):
    names = [f"x{i}" for i in range(n)]
    return {"graph_ulf.txt": layer("input_layer", "", [], names) +
            layer("concat_layer", "c", names, ["y"], param="concat_param { dim: 1 }"),
            "model.textproto": "".join(f'inputs {{ name: "{x}" level: INPUT_LEVEL_AD row_shape: 1 }}\n' for x in names)}


def _empty_wide(shape, then):
    dims = " ".join(f"shape: {n}" for n in shape)
    return {"graph_ulf.txt": layer("constant_layer", "c", [], ["x"], param=f"constant_param {{ blob_data {{ {dims} }} }}") +
            layer(then, "l", ["x"], ["y"])}


def _embeddings(n, blocks):
    """Many layers of one large configuration."""
    inputs = sparse_inputs("ad")
    return {"graph_ulf.txt": layer("input_layer", "", [], inputs) + "".join(
        layer("embedding_layer", f"e{i}", inputs, [f"y{i}_{b}" for b in range(blocks)],
              param='embedding_param { embedding_conf_path: "ad.conf" level: 0 }') for i in range(n)),
            "ad.conf": embedding_conf({"ad": ("items", 1)}, [[("ad", "udf_type: 0")]] * blocks), "items": "1,0.5\n"}


def _formula(text):
    return {"graph_ulf.txt": layer("input_layer", "", [], ["x"]) +
            layer("expression_layer", "e", ["x"], ["y"], param=f'expression_param {{ expression: "{text}" }}'),
            "model.textproto": 'inputs { name: "x" level: INPUT_LEVEL_AD row_shape: 4 }\n'}


def _zip_directory(entries):
    """An archive of nothing but a list of members."""
    member = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 0, 0, 33, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0)
    listed = b"".join(member + struct.pack("<I", i) + b"a" for i in range(entries))
    wide = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, entries, entries, len(listed), 0)
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(listed), 1)
    return listed + wide + locator + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)


def _squares_of(width, n):
    return {"graph_ulf.txt": _squares(n),
            "model.textproto": f'inputs {{ name: "x0" level: INPUT_LEVEL_AD row_shape: [{width}] }}\n'}


def _outer(n):
    text = layer("input_layer", "", [], ["x0"])
    for i in range(n):
        text += layer("batchdot_layer", f"b{i}", [f"x{i}", f"x{i}"], [f"x{i + 1}"],
                      param="batch_dot_param { transpose_a: true transpose_b: false }")
    return {"graph_ulf.txt": text, "model.textproto": 'inputs { name: "x0" level: INPUT_LEVEL_AD row_shape: [1, 60000] }\n'}


def _constant(shape):
    dims = " ".join(f"shape: {n}" for n in shape)
    return {"graph_ulf.txt": layer("input_layer", "", [], ["x"]) +
            layer("constant_layer", "c", [], ["y"], param=f"constant_param {{ blob_data {{ {dims} data: 1 }} }}") +
            layer("add_layer", "a", ["x", "y"], ["z"])}


def _broadcast(shape):
    dims = " ".join(f"shape: {n}" for n in shape)
    return {"graph_ulf.txt": layer("input_layer", "", [], ["x"]) +
            layer("broadcast_to_layer", "b", ["x"], ["y"], param=f"broadcast_to_param {{ {dims} }}"),
            "model.textproto": 'inputs { name: "x" level: INPUT_LEVEL_AD row_shape: [1] }\n'}


def _npz(shape):
    """A header that claims so many values, and none."""
    header = ("{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ", ".join(map(str, shape))).encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    npy = b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header
    import io
    import zipfile
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("w.npy", npy)
        archive.writestr("b.npy", npy)
    return buffer.getvalue()


def _zip_bomb(size):
    import io
    import zipfile
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("w.npy", "b.npy"):
            with archive.open(name, "w", force_zip64=True) as file:
                for _ in range(size >> 20):
                    file.write(bytes(1 << 20))
    return buffer.getvalue()


PLAIN = layer("input_layer", "", [], ["x"]) + layer(FC, "fc", ["x"], ["y"], ["w", "b"])
GOOD = {"graph_ulf.txt": 'backend: "tensorflow"\n' + PLAIN,
        "dense.npz": npz_bytes({"w": np.ones((4, 1), np.float32), "b": np.ones(1, np.float32)})}


def _with(**files):
    return {**{"graph_ulf.txt": GOOD["graph_ulf.txt"]}, **{name.replace("__", "."): text for name, text in files.items()}}


def _ndarray(shape):
    out = struct.pack("<QQQ", 0x112, 0, 1) + struct.pack("<IiI", 0xF993FAC9, 0, len(shape))
    return out + struct.pack(f"<{len(shape)}q", *shape) + struct.pack("<iii", 1, 0, 0)


def _embedding(dim, rows="1,0.5\n"):
    return {"graph_ulf.txt": layer("input_layer", "", [], sparse_inputs("ad")) +
            layer("embedding_layer", "embedding", sparse_inputs("ad"), ["e"],
                  param='embedding_param { embedding_conf_path: "ad.conf" level: 0 }') + layer("relu_layer", "r", ["e"], ["y"]),
            "ad.conf": embedding_conf({"ad": ("items", dim)}, [[("ad", "udf_type: 0")]]), "items": rows}


def _nested(depth):
    data = b""
    for _ in range(depth):
        data = b"\x0a" + _varint(len(data)) + data
    return data


def _varint(n):
    out = b""
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


# A word that stands in a file outside of the repository, and nowhere in an error.
SECRET = "sesame"


def instead(name, put, files=GOOD):
    """The version with something else where that file is: put(path)."""
    def make(folder):
        modelfiles.write_version(folder, {k: v for k, v in files.items() if k != name}, success=False)
        put(os.path.join(folder, name))
    return make


def link_out(path):
    """A link to a file beside the models, with the secret."""
    outside = os.path.join(os.path.dirname(path), "../../outside")
    modelfiles.write(outside, SECRET + " opens everything, and more bytes than sixteen\n")
    os.symlink(os.path.abspath(outside), path)


def hole(path):
    """A file of 1 TB without content on the disk."""
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def _link(name, target):
    return instead(name, functools.partial(os.symlink, target))


def _odd_names():
    names = ["a.ids", "a.values", "a.segments", "mask", "\u202e\u0000x", "y" * 100_000, "<script>", "%s%n", "../../x", "1e999", "-0"]
    names = [name.replace("\u0000", "\\000") for name in names]
    text = layer("input_layer", "", [], ["x"])
    for i, name in enumerate(names):
        text += layer("relu_layer", name, ["x" if i == 0 else names[i - 1]], [name])
    return {"graph_ulf.txt": text, "model.textproto": 'inputs { name: "x" level: INPUT_LEVEL_AD row_shape: 4 }\n'}


MODELS = {
    "26 concat layers that double": _squares_of(1, 26), "60 concat layers that double": _squares_of(1, 60),
    "70 doublings of [4]": _squares_of(4, 70), "doublings without a stated width": {"graph_ulf.txt": _squares(60)},
    "outer products of 60000": _outer(3), "a constant of 2^60": _constant([1 << 30, 1 << 30]),
    "a constant of 0 by 2^62": _constant([0, 1 << 62]), "a constant of negative size": _constant([-5, -7]),
    "broadcast to 2^60": _broadcast([1, 1 << 30, 1 << 30]), "broadcast to 10^9": _broadcast([1, 10**9]),
    "broadcast to 2*10^8": _broadcast([1, 2 * 10**8]),
    "npz claims petabytes": _with(dense__npz=_npz([1 << 25, 1 << 25])), "npz claims 2^63": _with(dense__npz=_npz([1 << 62, 2])),
    "npz claims 0 by 2^62": _with(dense__npz=_npz([0, 1 << 62])), "npz of 100000 dimensions": _with(dense__npz=_npz([1] * 9000)),
    "npz bomb of 2 GB": lambda folder: modelfiles.write_version(folder, _with(dense__npz=_zip_bomb(1 << 30))),
    "NDArray claims petabytes": _with(dense__txt=_ndarray([1 << 25, 1 << 25])),
    "NDArray claims 2^32 names": _with(dense__txt=struct.pack("<QQQ", 0x112, 0, 1 << 32)),
    "NDArray with a name of 2^60": _with(dense__txt=dense_txt({"w": np.ones(4)})[:-9] + struct.pack("<Q", 1 << 60) + b"w"),
    "weights.pb nested 100000 deep": _with(weights__pb=_nested(20000)),
    "weights.pb of 16 MB of nothing": _with(weights__pb=b"\x0a\0" * (8 << 20)),
    "a graph of 300000 layers": {"graph_ulf.txt": layer("input_layer", "", [], ["x"]) +
                                 'layer_params { type: "relu_layer" bottom: "x" top: "y" }\n' * 300_000},
    "a graph of 20000 layers in a row": tall(19_999),
    "20000 layers over one input": _fan("relu_layer", 19_999),
    "20000 sums of two inputs": _fan("add_layer", 19_999, ("x", "z")),
    "20000 sums in a row": _row_of("add_layer", 19_999), "20000 quotients in a row": _row_of("div_layer", 19_999),
    "2000 concats in a row": _row_of("concat_layer", 2_000, "concat_param { dim: 1 }"),
    "20000 batchdots of 2 unstated inputs": _unstated(19_990, 2), "5000 batchdots of 5000 unstated inputs": _unstated(5_000, 5_000),
    "9000 products side by side, joined": _same_weights(9_000),
    "one output named 20000 times": {**GOOD, "model.textproto": 'outputs: "y"\n' * 20_000},
    "layers and outputs of odd names": _odd_names(),
    "90000 inputs side by side": _many_inputs(90_000),
    "9000 layers of one matrix": _parallel(256, 9_000),
    "5000 embeddings of 20 blocks": _embeddings(5_000, 20),
    "an empty constant of 10^12, softmax": _empty_wide([10**6, 10**6, 0], "softmax_layer"),
    "an empty constant of 10^12, sum": _empty_wide([10**6, 10**6, 0], "sum_layer"),
    "a formula of 1 MB, nested": _formula("(" * 500_000 + "@0" + ")" * 500_000),
    "a formula of 1 MB, a sum": _formula("@0" + " + @0" * 200_000),
    "a formula of 1 MB, signs": _formula("-" * 1_000_000 + "@0"),
    "npz that lists a million members": _with(dense__npz=_zip_directory(1_000_000)),
    "a row_shape of 2^62 by 4": {**GOOD, "model.textproto":
                                 'inputs { name: "x" level: INPUT_LEVEL_AD row_shape: [4611686018427387904, 4] }\n'},
    "a manifest of 900000 tables": {**GOOD, "model.textproto": "".join(f'tables {{ name: "t{i}" }}\n' for i in range(900_000))},
    "a graph that is braces": {"graph_ulf.txt": "layer_params { " * 1_000_000},
    "a name of 100 MB": {"graph_ulf.txt": layer("relu_layer", "n" * (100 << 20), ["x"], ["y"])},
    "a manifest of 64 MB": {**GOOD, "model.textproto": 'outputs: "y"\n' * (5 << 20)},
    "a manifest that leaves the folder": {**GOOD, "model.textproto": 'graph: "../../../../../../etc/passwd"\n'},
    "an embedding of 2^31 - 1 columns": _embedding(2**31 - 1), "an embedding of -1 columns": _embedding(-1),
    "a table line of 64 MB": _embedding(4, "1," + "0.5," * (16 << 20) + "\n"),
    "a table of other numbers": _embedding(2, "1,nan,inf\n2,1e999,-1e999\n3,0x1p5,1_0\n" * 100_000),
    "the graph is a link out": instead("graph_ulf.txt", link_out), "the manifest is a link out": instead("model.textproto", link_out),
    "the table is a link out": instead("items", link_out, _embedding(4)), "weights.pb is a link out": instead("weights.pb", link_out),
    "weights are /dev/zero": _link("dense.npz", "/dev/zero"), "the graph is /dev/zero": _link("graph_ulf.txt", "/dev/zero"),
    "the manifest is /dev/urandom": _link("model.textproto", "/dev/urandom"),
    "the graph is a link to itself": _link("graph_ulf.txt", "graph_ulf.txt"),
    "the graph is a FIFO": instead("graph_ulf.txt", os.mkfifo), "weights are a FIFO": instead("dense.npz", os.mkfifo),
    "the manifest is a FIFO": instead("model.textproto", os.mkfifo), "_SUCCESS is a FIFO": instead("_SUCCESS", os.mkfifo),
    "a stray FIFO": instead("notes", os.mkfifo), "the graph is a folder": instead("graph_ulf.txt", os.mkdir),
    "a graph of 1 TB": instead("graph_ulf.txt", hole), "weights.pb of 1 TB": instead("weights.pb", hole),
    "dense.npz of 1 TB": instead("dense.npz", hole), "dense.txt of 1 TB": instead("dense.txt", hole),
    "a manifest of 1 TB": instead("model.textproto", hole), "a stray file of 1 TB": instead("notes", hole),
}
SHORT = {"26 concat layers that double", "npz claims petabytes", "the graph is a link out", "the graph is a FIFO"}


def appears(name, content, site):
    model = os.path.join(site.scene.repository, "hostile")
    shutil.rmtree(model, ignore_errors=True)
    aside = os.path.join(site.scene.dir, "aside")
    shutil.rmtree(aside, ignore_errors=True)
    folder = os.path.join(aside, "1")
    os.makedirs(folder)
    if callable(content):
        content(folder)
    else:
        modelfiles.write_version(folder, content)
    if not os.path.lexists(os.path.join(folder, "_SUCCESS")):
        modelfiles.write(os.path.join(folder, "_SUCCESS"), b"")
    site.begin()
    site.doing = name
    site.sent += sum(os.lstat(os.path.join(folder, f)).st_blocks * 512 for f in os.listdir(folder))
    os.rename(aside, model)
    site.scene.until_tried(site, "hostile")
    time.sleep(0.5)
    os.rename(model, aside)
    shutil.rmtree(aside, ignore_errors=True)
    time.sleep(0.5)  # It is unloaded, which is part of it.


def _sigterm(name, site):
    folder = os.path.join(site.scene.repository, "hostile", "1")
    modelfiles.write_version(folder, MODELS[name])
    time.sleep(1.0)
    site.scene.end_now(site)


for _name in ("a manifest of 900000 tables", "a name of 100 MB"):
    REGISTERED.append(Attack(f"SIGTERM: {_name}", "while the daemon reads it: it must end in drain delay + 2 s",
                             functools.partial(_sigterm, _name), ends_daemon=True))

for _name, _content in MODELS.items():
    REGISTERED.append(Attack(f"model: {_name}"[:44], "appears in the repository of a running daemon",
                             functools.partial(appears, _name, _content), seconds=30, short=_name in SHORT))


def _many(make, site):
    folder = site.scene.repository
    made = []
    for i in range(20_000):
        if site.over():
            break
        made.append(make(folder, i))
    site.hold()
    for path in made:
        shutil.rmtree(path, ignore_errors=True)
    time.sleep(1)


def _empty_model(folder, i):
    path = os.path.join(folder, f"m{i}")
    os.makedirs(path)
    return path


def _version(folder, i):
    path = os.path.join(folder, "versions", str(i + 1))
    os.makedirs(path)
    return path


REGISTERED.append(Attack("model: thousands of empty folders", "models that hold nothing",
                         functools.partial(_many, _empty_model)))
REGISTERED.append(Attack("model: thousands of versions", "of one model, each empty", functools.partial(_many, _version)))


def _changing(site):
    """A table that another process rewrites while it is read."""
    folder = os.path.join(site.scene.repository, "changing", "1")
    rows = "".join(f"{i},{i}.5,1\n" for i in range(200_000))
    modelfiles.write_version(folder, _embedding(2, rows))
    path = os.path.join(folder, "items")
    while not site.over():
        with open(path, "r+", encoding="utf-8") as file:
            file.truncate(1000)
            file.seek(0, 2)
            file.write(rows)
        os.utime(os.path.join(folder, "_SUCCESS"))
        time.sleep(0.02)
    shutil.rmtree(os.path.dirname(folder))
    time.sleep(1)


REGISTERED.append(Attack("model: a table that changes while it is read", "cut off and written anew, many times",
                         _changing, seconds=6))
