"""Models to attack: one of each layer type, with and without what a manifest says, and the plain ones of the issue.
SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import subprocess

import numpy as np

from harness import env, modelfiles
from harness.modelfiles import layer, npz_bytes


def _layer_types():
    out = subprocess.run([env.program("ulf"), "layers"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in out.splitlines()[1:] if line.strip()]


def fill_zoo(repository):
    """Writes the models; returns their names.  `bare_X` is the example of layer X without its manifest, so that
    nothing states shapes and levels; `stated_X` has it.  Some do not load so; they are not served, then."""
    names = []
    for kind in _layer_types():
        short = re.sub("_layer$", "", kind)
        for prefix in ("bare", "stated"):
            folder = os.path.join(repository, f"{prefix}_{short}", "1")
            os.makedirs(os.path.dirname(folder))
            subprocess.run([env.program("ulf"), "layers", kind, f"--example={folder}"], check=True,
                           stdout=subprocess.DEVNULL)
            manifest = os.path.join(folder, "model.textproto")
            if prefix == "bare" and os.path.exists(manifest):
                os.remove(manifest)
            if not os.path.exists(os.path.join(folder, "_SUCCESS")):
                modelfiles.write(os.path.join(folder, "_SUCCESS"), b"")
            names.append(f"{prefix}_{short}")
    names += _more(repository)
    return names


def _more(repository):
    random = np.random.RandomState(5)

    def draw(*shape):
        return random.standard_normal(shape).astype(np.float32)

    fc = "inner_product_layer"
    mlp = ('backend: "tensorflow"\n' + layer("input_layer", "", [], ["x"]) +
           layer(fc, "fc1", ["x"], ["h"], ["w1", "b1"]) + layer("relu_layer", "relu", ["h"], ["r"]) +
           layer(fc, "fc2", ["r"], ["score"], ["w2", "b2"]))
    weights = npz_bytes({"w1": draw(8, 256), "b1": draw(256), "w2": draw(256, 1), "b2": draw(1)})
    outer = (layer("input_layer", "", [], ["a", "b"]) + layer("multiply_layer", "m", ["a", "b"], ["y"]) +
             layer("sum_layer", "s", ["y"], ["z"], param="sum_param { dim: 2 }"))
    many = [f"feature_{i}_of_the_user" for i in range(210)]
    wide = (layer("input_layer", "", [], many) +
            layer("concat_layer", "c", many, ["all"], param="concat_param { dim: 1 }"))
    models = {
        "many_inputs": {"graph_ulf.txt": wide},
        "mlp": {"graph_ulf.txt": mlp, "dense.npz": weights},
        "mlp_no_level": {"graph_ulf.txt": mlp, "dense.npz": weights,
                         "model.textproto": 'inputs { name: "x" row_shape: [8] }\n'},
        "outer": {"graph_ulf.txt": outer},
    }
    for name, files in models.items():
        modelfiles.write_version(os.path.join(repository, name, "1"), files)
    return sorted(models)
