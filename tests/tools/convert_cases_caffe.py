"""Caffe cases of make_convert_cases.py."""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]


def caffe_module():
    """The message classes of tools/convert/caffe.proto."""
    folder = tempfile.mkdtemp()
    subprocess.run(["protoc", f"-I{ROOT}", f"--python_out={folder}", "proto/ulf.proto",
                    "tools/convert/caffe.proto"], check=True, cwd=ROOT)
    sys.path.insert(0, folder)
    from tools.convert import caffe_pb2
    return caffe_pb2


caffe_pb2 = caffe_module()


class Weights:
    """A caffemodel in the making."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)
        self.net = caffe_pb2.NetWeights()

    def add(self, layer, *arrays, doubles=False, legacy=False):
        entry = self.net.layer.add(name=layer)
        for array in arrays:
            blob = entry.blobs.add()
            if legacy:
                dims = [1] * (4 - array.ndim) + list(array.shape)
                blob.num, blob.channels, blob.height, blob.width = dims
            else:
                blob.shape.dim.extend(array.shape)
            (blob.double_data if doubles else blob.data).extend(array.ravel().tolist())
        return [torch.tensor(a, dtype=torch.float64) for a in arrays]

    def normal(self, *shape, scale=1.0):
        return (self.random.randn(*shape) * scale).astype(np.float32)

    def positive(self, *shape):
        return (0.5 + self.random.rand(*shape)).astype(np.float32)

    def write(self, folder):
        (folder / "net.caffemodel").write_bytes(self.net.SerializeToString())


MLP = """
name: "mlp"
layer { name: "data" type: "Input" top: "data" top: "side"
        input_param { shape { dim: 10 dim: 12 } shape { dim: 10 dim: 2 dim: 3 } } }
layer { name: "train_only" type: "Data" top: "label" include { phase: TRAIN }
        data_param { source: "x" batch_size: 8 } transform_param { scale: 0.5 } }
layer { name: "fc1" type: "InnerProduct" bottom: "data" top: "fc1"
        inner_product_param { num_output: 16 weight_filler { type: "xavier" } }
        param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 } }
layer { name: "bn1" type: "BatchNorm" bottom: "fc1" top: "fc1"
        batch_norm_param { use_global_stats: true eps: 0.001 } }
layer { name: "scale1" type: "Scale" bottom: "fc1" top: "fc1" scale_param { bias_term: true } }
layer { name: "relu1" type: "ReLU" bottom: "fc1" top: "fc1" }
layer { name: "drop1" type: "Dropout" bottom: "fc1" top: "dropped" dropout_param { dropout_ratio: 0.4 } }
layer { name: "split" type: "Split" bottom: "dropped" top: "a" top: "b" }
layer { name: "leaky" type: "ReLU" bottom: "a" top: "a" relu_param { negative_slope: 0.1 } }
layer { name: "cut" type: "Slice" bottom: "b" top: "b1" top: "b2" slice_param { axis: 1 slice_point: 6 } }
layer { name: "fc2" type: "InnerProduct" bottom: "b1" top: "fc2"
        inner_product_param { num_output: 5 transpose: true bias_term: false } }
layer { name: "prelu2" type: "PReLU" bottom: "fc2" top: "fc2" }
layer { name: "bn2" type: "BatchNorm" bottom: "fc2" top: "bn2" }
layer { name: "fc_side" type: "InnerProduct" bottom: "side" top: "fc_side"
        inner_product_param { num_output: 4 axis: 2 } }
layer { name: "flat_side" type: "Flatten" bottom: "fc_side" top: "flat_side" }
layer { name: "cut_side" type: "Slice" bottom: "fc_side" top: "s1" top: "s2" slice_param { axis: 2 } }
layer { name: "prod_side" type: "Eltwise" bottom: "s1" bottom: "s2" top: "prod_side"
        eltwise_param { operation: PROD } }
layer { name: "shape_side" type: "Reshape" bottom: "prod_side" top: "shape_side"
        reshape_param { shape { dim: 0 dim: -1 } } }
layer { name: "tanh" type: "TanH" bottom: "b2" top: "tanh" }
layer { name: "all" type: "Concat" bottom: "a" bottom: "bn2" bottom: "tanh" bottom: "flat_side" bottom: "shape_side"
        top: "all" concat_param { axis: -1 } }
layer { name: "fc3" type: "InnerProduct" bottom: "all" top: "fc3" inner_product_param { num_output: 6 } }
layer { name: "fc4" type: "InnerProduct" bottom: "all" top: "fc4" inner_product_param { num_output: 6 } }
layer { name: "sum" type: "Eltwise" bottom: "fc3" bottom: "fc4" bottom: "fc3" top: "sum" }
layer { name: "scale2" type: "Scale" bottom: "sum" top: "scaled" }
layer { name: "prob" type: "Softmax" bottom: "scaled" top: "prob" }
layer { name: "ctr" type: "Sigmoid" bottom: "fc3" top: "ctr" }
layer { name: "kept" type: "Dropout" bottom: "scaled" top: "kept" }
"""


def batch_norm(x, mean, var, factor, eps):
    shape = [1, -1] + [1] * (x.dim() - 2)
    return (x - (mean / factor).view(shape)) / torch.sqrt((var / factor).view(shape) + eps)


def mlp(folder, text=MLP, legacy=False):
    w = Weights(1)
    fc1 = w.add("fc1", w.normal(16, 12, scale=0.3), w.normal(16), legacy=legacy)
    bn1 = w.add("bn1", w.normal(16), w.positive(16), np.float32([2.0]))
    sc1 = w.add("scale1", w.positive(16), w.normal(16))
    fc2 = w.add("fc2", w.normal(6, 5))
    prelu2 = w.add("prelu2", w.positive(5))
    bn2 = w.add("bn2", w.normal(5), w.positive(5), np.float32([1.0]), doubles=True)
    fc_side = w.add("fc_side", w.normal(4, 3), w.normal(4))
    w.add("loss", w.normal(3))  # Of a layer that the net lacks.
    fc3 = w.add("fc3", w.normal(6, 16 + 5 + 10 + 8 + 4, scale=0.2), w.normal(6), doubles=True)
    fc4 = w.add("fc4", w.normal(6, 16 + 5 + 10 + 8 + 4, scale=0.2), w.normal(6))
    sc2 = w.add("scale2", w.positive(6))
    w.write(folder)
    (folder / "net.prototxt").write_text(text.lstrip())
    data, side = w.normal(7, 12), w.normal(7, 2, 3)
    x, s = torch.tensor(data).double(), torch.tensor(side).double()
    x = F.linear(x, *fc1)
    x = batch_norm(x, *bn1, 0.001) * sc1[0] + sc1[1]
    x = F.relu(x)
    a = F.leaky_relu(x, 0.1)
    b1, b2 = x[:, :6], x[:, 6:]
    bn = batch_norm(F.prelu(b1 @ fc2[0], prelu2[0]), *bn2, 1e-5)
    fs = F.linear(s, *fc_side)
    every = torch.cat([a, bn, torch.tanh(b2), fs.flatten(1),
                       (fs[:, :, :2] * fs[:, :, 2:]).flatten(1)], 1)
    o3, o4 = F.linear(every, *fc3), F.linear(every, *fc4)
    scaled = (o3 + o4 + o3) * sc2[0]
    return ({"data": data, "side": side},
            {"prob": scaled.softmax(1).numpy(), "ctr": o3.sigmoid().numpy(),
             "kept": scaled.numpy()})


V1 = """
name: "v1"
input: "data"
input_dim: 1 input_dim: 3 input_dim: 2 input_dim: 2
layers { name: "fc1" type: INNER_PRODUCT bottom: "data" top: "fc1" blobs_lr: 1 weight_decay: 0
         inner_product_param { num_output: 4 } }
layers { name: "relu1" type: RELU bottom: "fc1" top: "fc1" }
layers { name: "drop" type: DROPOUT bottom: "fc1" top: "fc1" }
layers { name: "acc" type: ACCURACY bottom: "fc1" bottom: "data" top: "acc" exclude { phase: TEST } }
layers { name: "prob" type: SOFTMAX bottom: "fc1" top: "prob" }
"""


def v1(folder):
    """The format before 2014: layers by number, four-dimensional blobs, input_dim."""
    random = np.random.RandomState(2)
    weight, bias = random.randn(4, 12).astype(np.float32), random.randn(4).astype(np.float32)
    net = caffe_pb2.NetWeights()
    layer = net.layers.add(name="fc1")
    for array, dims in ((weight, (1, 1, 4, 12)), (bias, (1, 1, 1, 4))):
        blob = layer.blobs.add()
        blob.num, blob.channels, blob.height, blob.width = dims
        blob.data.extend(array.ravel().tolist())
    (folder / "net.caffemodel").write_bytes(net.SerializeToString())
    (folder / "net.prototxt").write_text(V1.lstrip())
    data = random.randn(5, 3, 2, 2).astype(np.float32)
    x = F.linear(torch.tensor(data).double().flatten(1), torch.tensor(weight).double(),
                 torch.tensor(bias).double())
    return {"data": data}, {"prob": F.relu(x).softmax(1).numpy()}


CASES = {"caffe_mlp": mlp, "caffe_v1": v1}
