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
    """The message classes of tools/convert/caffe/caffe.proto."""
    folder = tempfile.mkdtemp()
    subprocess.run(["protoc", f"-I{ROOT}", f"--python_out={folder}", "proto/ulf.proto",
                    "tools/convert/caffe/caffe.proto"], check=True, cwd=ROOT)
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


YOLO = """
name: "yolo_head"
input: "data"
input_shape { dim: 1 dim: 3 dim: 16 dim: 16 }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 8 kernel_size: 3 pad: 1 bias_term: false
                            weight_filler { type: "msra" } } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "bn1" }
layer { name: "scale1" type: "Scale" bottom: "bn1" top: "scale1" scale_param { bias_term: true } }
layer { name: "leaky1" type: "ReLU" bottom: "scale1" top: "scale1" relu_param { negative_slope: 0.1 } }
layer { name: "pool1" type: "Pooling" bottom: "scale1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
        convolution_param { num_output: 6 kernel_size: 1 group: 2 } }
layer { name: "reorg" type: "Reorg" bottom: "conv2" top: "reorg" reorg_param { stride: 2 } }
layer { name: "conv3" type: "Convolution" bottom: "pool1" top: "conv3"
        convolution_param { num_output: 8 kernel_h: 3 kernel_w: 1 pad_h: 1 pad_w: 0 stride: 2 } }
layer { name: "prelu3" type: "PReLU" bottom: "conv3" top: "conv3" }
layer { name: "shuffle" type: "ShuffleChannel" bottom: "conv3" top: "shuffle" shuffle_channel_param { group: 2 } }
layer { name: "both" type: "Concat" bottom: "reorg" bottom: "shuffle" top: "both" }
layer { name: "head" type: "Convolution" bottom: "both" top: "head"
        convolution_param { num_output: 16 kernel_size: 3 pad: 2 dilation: 2 } }
layer { name: "yolo" type: "Yolo" bottom: "head" top: "coords" top: "objects" top: "classes"
        yolo_param { boxes: 2 coords: 4 classes: 3 yolo_version: "V2" softmax: true } }
"""


def yolo_head(folder):
    """Convolution tower -> Reorg -> Yolo."""
    w = Weights(11)
    conv1 = w.add("conv1", w.normal(8, 3, 3, 3, scale=0.3))
    bn1 = w.add("bn1", w.normal(8), w.positive(8), np.float32([0.5]))
    sc1 = w.add("scale1", w.positive(8), w.normal(8))
    conv2 = w.add("conv2", w.normal(6, 4, 1, 1), w.normal(6))
    conv3 = w.add("conv3", w.normal(8, 8, 3, 1, scale=0.3), w.normal(8))
    prelu3 = w.add("prelu3", w.positive(8))
    head = w.add("head", w.normal(16, 32, 3, 3, scale=0.1), w.normal(16))
    w.write(folder)
    (folder / "net.prototxt").write_text(YOLO.lstrip())
    data = w.normal(3, 3, 16, 16)
    x = F.conv2d(torch.tensor(data).double(), conv1[0], padding=1)
    x = batch_norm(x, *bn1, 1e-5) * sc1[0].view(1, -1, 1, 1) + sc1[1].view(1, -1, 1, 1)
    pool = F.max_pool2d(F.leaky_relu(x, 0.1), 2)
    a = F.conv2d(pool, *conv2, groups=2)
    # Places to channels, the channels of a place together.
    a = a.view(3, 6, 4, 2, 4, 2).permute(0, 3, 5, 1, 2, 4).reshape(3, 24, 4, 4)
    b = F.prelu(F.conv2d(pool, *conv3, stride=2, padding=(1, 0)), prelu3[0])
    b = b.view(3, 2, 4, 4, 4).transpose(1, 2).reshape(3, 8, 4, 4)
    y = F.conv2d(torch.cat([a, b], 1), *head, padding=2, dilation=2).view(3, 2, 8, 4, 4)
    coords = torch.cat([y[:, :, :2].sigmoid(), y[:, :, 2:4]], 2)
    return ({"data": data},
            {"coords": coords.reshape(3, 8, 4, 4).numpy(),
             "objects": y[:, :, 4].sigmoid().numpy(),
             "classes": y[:, :, 5:].softmax(2).reshape(3, 6, 4, 4).numpy()})


SSD = """
name: "ssd_head"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 10 dim: 12 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "norm" type: "Normalize" bottom: "conv1" top: "norm"
        norm_param { across_spatial: false scale_filler { type: "constant" value: 20 } channel_shared: false } }
layer { name: "loc" type: "Convolution" bottom: "norm" top: "loc"
        convolution_param { num_output: 8 kernel_size: 3 pad: 1 } }
layer { name: "loc_perm" type: "Permute" bottom: "loc" top: "loc_perm"
        permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "loc_flat" type: "Flatten" bottom: "loc_perm" top: "loc_flat" flatten_param { axis: 1 } }
layer { name: "priors" type: "PriorBox" bottom: "norm" bottom: "data" top: "priors"
        prior_box_param { min_size: 4 max_size: 6 aspect_ratio: 2 flip: true clip: true
                          variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 offset: 0.5 } }
layer { name: "small" type: "Pooling" bottom: "norm" top: "small"
        pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "up" type: "Upsample" bottom: "small" top: "up" upsample_param { scale: 1 stride: 2 } }
layer { name: "cut" type: "Slice" bottom: "up" top: "up5" top: "rest" slice_param { axis: 2 slice_point: 5 } }
layer { name: "cut2" type: "Slice" bottom: "up5" top: "up56" top: "rest2" slice_param { axis: 3 slice_point: 6 } }
layer { name: "both" type: "Concat" bottom: "norm" bottom: "up56" top: "both" }
layer { name: "weighted" type: "Eltwise" bottom: "norm" bottom: "up56" top: "weighted"
        eltwise_param { operation: SUM coeff: 0.5 coeff: -2 } }
layer { name: "largest" type: "Eltwise" bottom: "weighted" bottom: "norm" top: "largest"
        eltwise_param { operation: MAX } }
layer { name: "reversed" type: "Reverse" bottom: "largest" top: "reversed" reverse_param { axis: 3 } }
layer { name: "mean" type: "Pooling" bottom: "both" top: "mean" pooling_param { pool: AVE global_pooling: true } }
layer { name: "conf" type: "InnerProduct" bottom: "mean" top: "conf" inner_product_param { num_output: 3 } }
layer { name: "ignored" type: "Silence" bottom: "rest" bottom: "rest2" }
"""


def prior_boxes(height, width, image_height, image_width, minimum, maximum, ratios, offset):
    """SSD's default boxes, clipped: squares, then the ratios, at each place."""
    boxes = []
    step_y, step_x = image_height / height, image_width / width
    for y in range(height):
        for x in range(width):
            cx, cy = (x + offset) * step_x, (y + offset) * step_y
            sizes = [(minimum, minimum), ((minimum * maximum) ** 0.5,) * 2]
            sizes += [(minimum * r ** 0.5, minimum / r ** 0.5) for r in ratios]
            for w, h in sizes:
                boxes += [(cx - w / 2) / image_width, (cy - h / 2) / image_height,
                          (cx + w / 2) / image_width, (cy + h / 2) / image_height]
    return np.clip(boxes, 0, 1)


def ssd_head(folder):
    """Normalize -> PriorBox; Upsample -> Concat."""
    w = Weights(12)
    conv1 = w.add("conv1", w.normal(4, 3, 3, 3, scale=0.5), w.normal(4))
    norm = w.add("norm", (w.positive(4) * 20).astype(np.float32))
    loc = w.add("loc", w.normal(8, 4, 3, 3, scale=0.05), w.normal(8))
    conf = w.add("conf", w.normal(3, 8, scale=0.1), w.normal(3))
    w.write(folder)
    (folder / "net.prototxt").write_text(SSD.lstrip())
    data = w.normal(2, 3, 10, 12)
    x = F.relu(F.conv2d(torch.tensor(data).double(), *conv1, stride=2, padding=1))
    x = x / torch.sqrt((x * x).sum(1, keepdim=True) + 1e-10) * norm[0].view(1, -1, 1, 1)
    location = F.conv2d(x, *loc, padding=1).permute(0, 2, 3, 1).flatten(1)
    # Caffe rounds up; what hangs over the padded image counts neither in the sum nor in the count.
    small = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=True)
    up = F.interpolate(small, scale_factor=2, mode="nearest")[:, :, :5, :6]
    both = torch.cat([x, up], 1)
    largest = torch.maximum(0.5 * x - 2 * up, x)
    boxes = prior_boxes(5, 6, 10, 12, 4, 6, [2, 0.5], 0.5)
    priors = np.stack([boxes, np.tile([0.1, 0.1, 0.2, 0.2], len(boxes) // 4)])[None]
    return ({"data": data},
            {"loc_flat": location.numpy(), "priors": priors, "reversed": largest.flip(3).numpy(),
             "conf": F.linear(both.mean((2, 3)), *conf).numpy()})


ROI = """
name: "roi_head"
layer { name: "data" type: "Input" top: "image" top: "rois"
        input_param { shape { dim: 1 dim: 3 dim: 16 dim: 20 } shape { dim: 1 dim: 5 } } }
layer { name: "conv1" type: "Convolution" bottom: "image" top: "conv1"
        convolution_param { num_output: 6 kernel_size: 3 pad: 1 stride: 2 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pooled" type: "ROIAlign" bottom: "conv1" bottom: "rois" top: "pooled"
        roi_align_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 sampling_ratio: 2 } }
layer { name: "coarse" type: "ROIAlign" bottom: "conv1" bottom: "rois" top: "coarse"
        roi_align_param { pooled_h: 1 pooled_w: 1 spatial_scale: 0.5 roi_end_mode: 1 } }
layer { name: "fc" type: "InnerProduct" bottom: "pooled" top: "fc" inner_product_param { num_output: 4 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
layer { name: "flat" type: "Flatten" bottom: "coarse" top: "flat" }
"""


def roi_head(folder):
    """One image of the user; every ad is a region of it."""
    import torchvision
    w = Weights(13)
    conv1 = w.add("conv1", w.normal(6, 3, 3, 3, scale=0.3), w.normal(6))
    fc = w.add("fc", w.normal(4, 36, scale=0.3), w.normal(4))
    w.write(folder)
    (folder / "net.prototxt").write_text(ROI.lstrip())
    image = w.normal(1, 3, 16, 20)
    rois = np.float32([[0, 0, 0, 19, 15], [0, 3.5, 2, 9, 12.25], [0, 15, 10, 19.5, 15.5],
                       [0, 7, 7, 7.5, 8], [0, -1, -1, 5, 4]])
    x = F.relu(F.conv2d(torch.tensor(image).double(), *conv1, stride=2, padding=1))
    regions = torch.tensor(rois).double()
    pooled = torchvision.ops.roi_align(x, regions, (2, 3), 0.5, 2, False)
    longer = regions.clone()
    longer[:, 3:] += 1  # roi_end_mode 1: a region ends a pixel later.
    coarse = torchvision.ops.roi_align(x, longer, (1, 1), 0.5, 0, False)
    return ({"image": image, "rois": rois},
            {"prob": F.linear(pooled.flatten(1), *fc).softmax(1).numpy(),
             "flat": coarse.flatten(1).numpy()})


SEGMENTS = """
name: "segments"
input: "data"
input_shape { dim: 1 dim: 3 dim: 9 dim: 12 }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 } }
layer { name: "up" type: "Deconvolution" bottom: "conv1" top: "up"
        convolution_param { num_output: 6 kernel_size: 4 stride: 2 group: 2 } }
layer { name: "score" type: "Crop" bottom: "up" bottom: "data" top: "score"
        crop_param { axis: 2 offset: 1 } }
layer { name: "bilinear" type: "Deconvolution" bottom: "conv1" top: "bilinear"
        convolution_param { num_output: 4 group: 4 kernel_h: 4 kernel_w: 3 stride_h: 2 stride_w: 3
                            pad: 1 bias_term: false } }
layer { name: "corner" type: "Crop" bottom: "bilinear" bottom: "conv1" top: "corner"
        crop_param { axis: 2 offset: 2 offset: 0 } }
layer { name: "dilated" type: "Deconvolution" bottom: "conv1" top: "dilated"
        convolution_param { num_output: 2 kernel_size: 2 dilation: 2 pad: 3 } }
"""


def segments(folder):
    """Transposed convolutions: grouped, per channel, dilated and cut deeper than they reach."""
    w = Weights(15)
    conv1 = w.add("conv1", w.normal(4, 3, 3, 3, scale=0.3), w.normal(4))
    up = w.add("up", w.normal(4, 3, 4, 4, scale=0.3), w.normal(6))
    bilinear = w.add("bilinear", w.normal(4, 1, 4, 3))
    dilated = w.add("dilated", w.normal(4, 2, 2, 2), w.normal(2))
    w.write(folder)
    (folder / "net.prototxt").write_text(SEGMENTS.lstrip())
    data = w.normal(3, 3, 9, 12)
    x = F.conv2d(torch.tensor(data).double(), *conv1, stride=2, padding=1)
    whole = F.conv_transpose2d(x, *up, stride=2, groups=2)
    corner = F.conv_transpose2d(x, *bilinear, stride=(2, 3), padding=1, groups=4)
    return ({"data": data},
            {"score": whole[:, :, 1:10, 1:13].numpy(),
             "corner": corner[:, :, 2:7, :6].numpy(),
             "dilated": F.conv_transpose2d(x, *dilated, padding=3, dilation=2).numpy()})


TRANSFORMER = """
name: "transformer"
input: "data"
input_shape { dim: 1 dim: 2 dim: 8 dim: 10 }
layer { name: "small" type: "Pooling" bottom: "data" top: "small"
        pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "theta" type: "InnerProduct" bottom: "small" top: "theta" inner_product_param { num_output: 6 } }
layer { name: "st" type: "SpatialTransformer" bottom: "data" bottom: "theta" top: "st"
        spatial_transform_param { output_h: 5 output_w: 6 } }
layer { name: "shift" type: "InnerProduct" bottom: "small" top: "shift" inner_product_param { num_output: 2 } }
layer { name: "st_some" type: "SpatialTransformer" bottom: "st" bottom: "shift" top: "st_some"
        st_param { theta_1_1: 0.8 theta_1_2: 0.1 theta_2_1: -0.2 theta_2_2: 0.9 to_compute_dU: false } }
layer { name: "st_fixed" type: "SpatialTransformer" bottom: "data" top: "st_fixed"
        spatial_transform_param { affine_transform: 0.7 affine_transform: -0.1 affine_transform: 0.05
                                  affine_transform: 0.2 affine_transform: 1.1 affine_transform: -0.15 } }
"""


def transformed(x, theta, height, width):
    """The document's affine sampling by grid_sample: row (r + 1) / 2 * H, column (c + 1) / 2 * W."""
    rows, columns = x.shape[2:]
    u, v = torch.meshgrid(torch.arange(height) / height * 2 - 1, torch.arange(width) / width * 2 - 1,
                          indexing="ij")
    places = torch.stack([u, v, torch.ones_like(u)], -1).double()
    at = torch.einsum("hwk,nak->nhwa", places, theta.view(-1, 2, 3))
    # grid_sample wants (across, down) and puts places half a place further.
    grid = torch.stack([at[..., 1] + 1 / columns, at[..., 0] + 1 / rows], -1)
    return F.grid_sample(x, grid, "bilinear", "zeros", False)


def transformer(folder):
    """A localisation net whose theta moves the image; theta partly and wholly fixed."""
    w = Weights(14)
    theta = w.add("theta", w.normal(6, 40, scale=0.05), np.float32([0.9, 0.1, 0, -0.1, 0.8, 0.1]))
    shift = w.add("shift", w.normal(2, 40, scale=0.05), w.normal(2, scale=0.1))
    w.write(folder)
    (folder / "net.prototxt").write_text(TRANSFORMER.lstrip())
    data = w.normal(4, 2, 8, 10)
    x = torch.tensor(data).double()
    small = F.avg_pool2d(x, 2).flatten(1)
    st = transformed(x, F.linear(small, *theta), 5, 6)
    moved = F.linear(small, *shift)
    some = torch.tensor([0.8, 0.1, 0, -0.2, 0.9, 0]).double().repeat(4, 1)
    some[:, 2], some[:, 5] = moved[:, 0], moved[:, 1]
    fixed = torch.tensor([0.7, -0.1, 0.05, 0.2, 1.1, -0.15]).double().repeat(4, 1)
    return ({"data": data}, {"st_some": transformed(st, some, 5, 6).numpy(),
                             "st_fixed": transformed(x, fixed, 8, 10).numpy()})


NORMED = """
name: "normed"
input: "data"
input_dim: 10
input_dim: 3
input_dim: 19
input_dim: 19
layers { name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1"
         convolution_param { num_output: 6 kernel_size: 5 stride: 2 } }
layers { name: "relu1" type: RELU bottom: "conv1" top: "conv1" }
layers { name: "norm1" type: LRN bottom: "conv1" top: "norm1"
         lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 } }
layers { name: "pool1" type: POOLING bottom: "norm1" top: "pool1"
         pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layers { name: "conv2" type: CONVOLUTION bottom: "pool1" top: "conv2"
         convolution_param { num_output: 4 kernel_size: 3 pad: 1 group: 2 } }
layers { name: "norm2" type: LRN bottom: "conv2" top: "norm2"
         lrn_param { local_size: 3 alpha: 2 beta: 0.5 k: 2 } }
layers { name: "fc" type: INNER_PRODUCT bottom: "norm2" top: "fc" inner_product_param { num_output: 5 } }
layers { name: "drop" type: DROPOUT bottom: "fc" top: "fc" dropout_param { dropout_ratio: 0.5 } }
layers { name: "prob" type: SOFTMAX bottom: "fc" top: "prob" }
"""


def normed(folder):
    """The layer kinds of the nets of 2012 to 2014: response normalisation, groups, V1 layers."""
    w = Weights(15)
    conv1 = w.add("conv1", w.normal(6, 3, 5, 5, scale=0.3), w.normal(6))
    conv2 = w.add("conv2", w.normal(4, 3, 3, 3, scale=0.3), w.normal(4))
    fc = w.add("fc", w.normal(5, 64, scale=0.3), w.normal(5))
    w.write(folder)
    (folder / "net.prototxt").write_text(NORMED.lstrip())
    data = w.normal(3, 3, 19, 19)
    x = F.relu(F.conv2d(torch.tensor(data).double(), *conv1, stride=2))
    x = F.max_pool2d(F.local_response_norm(x, 5, 0.5, 0.75), 3, 2, ceil_mode=True)
    x = F.local_response_norm(F.conv2d(x, *conv2, padding=1, groups=2), 3, 2, 0.5, 2)
    return {"data": data}, {"prob": F.linear(x.flatten(1), *fc).softmax(1).numpy()}


CASES = {"caffe_mlp": mlp, "caffe_v1": v1, "caffe_yolo_head": yolo_head, "caffe_ssd_head": ssd_head,
         "caffe_roi_head": roi_head, "caffe_transformer": transformer, "caffe_normed": normed,
         "caffe_segments": segments}
