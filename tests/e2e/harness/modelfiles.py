"""Writers of model files: graphs and configurations as text, tables, and three weight formats.
SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import os
import shutil
import struct

import numpy as np


def layer(kind, name, bottoms, tops, args=(), param=""):
    """One layer_params block in text format."""
    lines = [f'type: "{kind}"']
    if name:
        lines.append(f'name: "{name}"')
    lines += [f'bottom: "{b}"' for b in bottoms]
    lines += [f'top: "{t}"' for t in tops]
    lines += [f'arg_names: "{a}"' for a in args]
    if param:
        lines.append(param)
    return "layer_params {\n  " + "\n  ".join(lines) + "\n}\n"


def sparse_inputs(*features):
    return [f"{f}.{part}" for f in features for part in ("ids", "values", "segments")]


def embedding_conf(groups, blocks):
    """groups: {feature: (table, dim)}; blocks: a list of lists of (feature, extra text)."""
    text = ""
    for feature, (table, dim) in groups.items():
        text += (f'feature_group_config {{ feature_group: "{feature}" table_name: "{table}" '
                 f"dim: {dim} }}\n")
    for items in blocks:
        inner = " ".join(f'embedding_block_config_item {{ feature_group: "{f}" {extra} }}'
                         for f, extra in items)
        text += f"block_config {{ {inner} }}\n"
    return text


def table_text(rows):
    """rows: {id: vector}."""
    return "".join(f"{key}," + ",".join(repr(float(np.float32(x))) for x in row) + "\n"
                   for key, row in rows.items())


def weights_text(layers):
    """ulf.NetWeightsParameter in text format; layers: {name: [array, ...]}."""
    text = ""
    for name, blobs in layers.items():
        text += f'layer_weights_params {{ name: "{name}"\n'
        for blob in blobs:
            blob = np.asarray(blob, np.float32)
            shape = " ".join(f"shape: {n}" for n in blob.shape)
            data = " ".join(f"data: {float(x)!r}" for x in blob.ravel())
            text += f"  blob_datas {{ {shape} {data} }}\n"
        text += "}\n"
    return text


def dense_txt(arrays):
    """XDL's "dense.txt": an MXNet NDArray list."""
    out = struct.pack("<QQQ", 0x112, 0, len(arrays))
    for array in arrays.values():
        array = np.ascontiguousarray(array, "<f4")
        out += struct.pack("<IiI", 0xF993FAC9, 0, array.ndim)
        out += struct.pack(f"<{array.ndim}q", *array.shape)
        out += struct.pack("<iii", 1, 0, 0) + array.tobytes()
    out += struct.pack("<Q", len(arrays))
    for name in arrays:
        out += struct.pack("<Q", len(name)) + name.encode()
    return out


def write(path, content):
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def write_version(directory, files, success=True):
    """A version directory.  files: name -> content.  A new one is there at once, with all of them:
    without settle_time_ms a daemon that looks meanwhile would serve the first ones."""
    new = not os.path.exists(directory)
    target = directory + ".new" if new else directory
    os.makedirs(target, exist_ok=True)
    for name, content in files.items():
        write(os.path.join(target, name), content)
    if success:
        write(os.path.join(target, "_SUCCESS"), b"")
    if new:
        os.rename(target, directory)


def npz_bytes(arrays):
    import io
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def exchange(a, b):
    """Swaps two directories in one step (renameat2 with RENAME_EXCHANGE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    at_fdcwd, rename_exchange = -100, 2
    if libc.renameat2(at_fdcwd, os.fsencode(a), at_fdcwd, os.fsencode(b), rename_exchange) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), a)


def replace(new, target):
    """Puts `new` in the place of `target` in one step and removes what was there."""
    exchange(new, target)
    shutil.rmtree(new)
