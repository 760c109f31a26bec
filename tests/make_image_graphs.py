#!/usr/bin/python3
"""Writes tests/data/graphs/images.json: whole models over images, with values from PyTorch in float64.

  make_image_graphs.py --out tests/data/graphs/images.json

Three detection heads and a two-tower ranker, at 1, 3 and 64 rows, in layout NCHW and NHWC; form of a case: tests/testing/graph_case.h.  The committed
file was written with Debian's python3-torch 1.13.1.
"""
import argparse
import json

import numpy as np
import torch
import torch.nn.functional as F


class Model:
    """Collects a graph, its weights and its inputs."""

    def __init__(self, name, rng, nhwc=False):
        self.name, self.rng, self.nhwc = name, rng, nhwc
        self.graph, self.weights, self.inputs, self.expected = '', '', {}, {}

    def input(self, name, *shape):
        x = self.rng.standard_normal(shape).astype(np.float32)
        self.inputs[name] = self.image(x)
        return torch.from_numpy(x).double()

    def image(self, x):
        """An image as the file has it."""
        return np.transpose(x, (0, 2, 3, 1)) if self.nhwc and x.ndim == 4 else x

    def axis(self, axis):
        """The axis of an image that is axis `axis` in NCHW."""
        return (0, 3, 1, 2)[axis] if self.nhwc else axis

    def layer(self, layer_type, bottoms, tops, param='', weights=()):
        name = 'layer%d' % self.graph.count('layer_params')
        names = lambda key, values: ' '.join('%s: "%s"' % (key, v) for v in values)
        self.graph += 'layer_params { name: "%s" type: "%s" %s %s %s }\n' % (
            name, layer_type, names('bottom', bottoms), names('top', tops), param)
        if weights:
            blobs = ' '.join('blob_datas { %s %s }' % (' '.join('shape: %d' % d for d in w.shape), ' '.join(
                'data: %.9g' % v for v in w.reshape(-1))) for w in weights)
            self.weights += 'layer_weights_params { name: "%s" %s }\n' % (name, blobs)

    def weight(self, *shape):
        return (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)

    def conv(self, bottom, top, x, out, kernel, stride=1, pad=0):
        w, b = self.weight(out, x.shape[1], kernel, kernel), self.weight(out)
        stored = np.transpose(w, (2, 3, 1, 0)) if self.nhwc else w
        self.layer('convolution_layer', [bottom], [top], 'convolution_param { stride: %d pad: %d }' % (stride, pad), [stored, b])
        return F.conv2d(x, torch.from_numpy(w).double(), torch.from_numpy(b).double(), stride, pad)

    def to_json(self):
        array = lambda a, kind: {'dtype': kind, 'shape': list(a.shape), 'data': [float("%.9g" % v) for v in a.reshape(-1)]}
        tops = ' '.join('top: "%s"' % n for n in self.inputs)
        return {'name': self.name, 'graph': 'layer_params { type: "input_layer" %s }\n%s' % (tops, self.graph),
                'weights_text': self.weights, 'manifest': 'layout: LAYOUT_NHWC\n' if self.nhwc else '', 'embedding_conf': {}, 'tables': {},
                'inputs': {n: array(a, 'float32') for n, a in self.inputs.items()},
                'expected': {n: array(self.image(np.asarray(a)), 'float64') for n, a in self.expected.items()}}


def space_to_depth(x, s):
    n, c, h, w = x.shape
    return F.pixel_unshuffle(x, s).reshape(n, c, s * s, h // s, w // s).transpose(1, 2).reshape(n, -1, h // s, w // s)


def yolo(m, n):
    """conv, relu, pooling, conv, Reorg, conv, Yolo: the head of YOLOv2."""
    x = m.input('image', n, 3, 8, 8)
    x = m.conv('image', 'c1', x, 6, 3, 1, 1)
    m.layer('relu_layer', ['c1'], ['r1'])
    m.layer('max_pooling_layer', ['r1'], ['p1'], 'pooling_param { kernel_size: 2 stride: 2 }')
    x = F.max_pool2d(F.relu(x), 2, 2)
    m.layer('Reorg', ['p1'], ['places'], 'reorg_param { stride: 2 }')
    x = m.conv('places', 'head', space_to_depth(x, 2), 2 * 8, 1)
    m.layer('Yolo', ['head'], ['xywh', 'object', 'class'],
            'yolo_param { boxes: 2 coords: 4 classes: 3 yolo_version: "V2" softmax: true }')
    v = x.reshape(n, 2, 8, 2, 2)
    m.expected = {'xywh': torch.cat([torch.sigmoid(v[:, :, :2]), v[:, :, 2:4]], 2).reshape(n, 8, 2, 2),
                  'object': torch.sigmoid(v[:, :, 4]), 'class': torch.softmax(v[:, :, 5:], 2).reshape(n, 6, 2, 2)}


def ssd(m, n):
    """conv, Normalize with a scale per channel, a head, PriorBox of the same map."""
    image = m.input('image', n, 3, 6, 6)
    x = m.conv('image', 'c1', image, 4, 3, 2, 1)
    scale = m.weight(4) + 20
    m.layer('Normalize', ['c1'], ['norm'], 'norm_param { across_spatial: false channel_shared: false }', [scale])
    x = F.normalize(x, dim=1, eps=1e-30) * torch.from_numpy(scale).double().reshape(1, 4, 1, 1)
    loc = m.conv('norm', 'location', x, 8, 3, 1, 1)
    m.layer('PriorBox', ['norm', 'image'], ['boxes'], 'prior_box_param { min_size: 2 max_size: 3 variance: 0.1 }')
    boxes = []
    for i in range(3):
        for j in range(3):
            for side in (2.0, 6 ** 0.5):
                cx, cy = (j + 0.5) * 2, (i + 0.5) * 2
                boxes += [(cx - side / 2) / 6, (cy - side / 2) / 6, (cx + side / 2) / 6, (cy + side / 2) / 6]
    m.expected = {'location': loc, 'boxes': np.stack([boxes, np.full(len(boxes), 0.1)])[None]}


def pyramid(m, n):
    """Two scales: the coarse one is enlarged and stands beside the fine one; channels are shuffled."""
    fine = m.conv('image', 'fine', m.input('image', n, 2, 6, 4), 4, 3, 1, 1)
    m.layer('max_pooling_layer', ['fine'], ['small'], 'pooling_param { kernel_size: 2 stride: 2 pool: AVE }')
    coarse = m.conv('small', 'coarse', F.avg_pool2d(fine, 2, 2), 2, 1)
    m.layer('Upsample', ['coarse'], ['large'], 'upsample_param { scale: 0.5 stride: 2 }')
    m.layer('concat_layer', ['large', 'fine'], ['both'], 'concat_param { dim: %d }' % m.axis(1))
    m.layer('ShuffleChannel', ['both'], ['mixed'], 'shuffle_channel_param { group: 3 }')
    m.layer('Reverse', ['mixed'], ['out'], 'reverse_param { axis: %d }' % (-2 if m.nhwc else -1))
    both = torch.cat([F.interpolate(coarse, scale_factor=2, mode='nearest') * 0.5, fine], 1)
    m.expected = {'out': torch.flip(F.channel_shuffle(both, 3), [-1])}


def two_towers(m, n):
    """The user's image through a tower of convolutions, once; beside each ad's features; a score per ad."""
    x = m.conv('user_image', 'c1', m.input('user_image', 1, 3, 8, 8), 8, 3, 2, 1)
    m.layer('relu_layer', ['c1'], ['r1'])
    m.layer('max_pooling_layer', ['r1'], ['pooled'], 'pooling_param { global_pooling: true pool: AVE }')
    m.layer('reshape_layer', ['pooled'], ['user'], 'reshape_param { shape: 0 shape: 8 }')
    user = F.relu(x).mean(dim=(2, 3))
    ad = m.input('ad', n, 5)
    m.layer('fuse_layer', ['user', 'ad'], ['both'], 'fuse_param { common_input_index: 0 }')
    both = torch.cat([user.expand(n, -1), ad], 1)
    w, b = m.weight(13, 4), m.weight(4)
    m.layer('inner_product_layer', ['both'], ['hidden'], '', [w, b])
    hidden = both @ torch.from_numpy(w).double() + torch.from_numpy(b).double()
    m.layer('sigmoid_layer', ['hidden'], ['score'])
    m.expected = {'score': torch.sigmoid(hidden)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--out', required=True)
    a = ap.parse_args()
    rng = np.random.default_rng(11)
    cases = []
    for nhwc in (False, True):
        for build in (yolo, ssd, pyramid, two_towers):
            for n in (1, 3, 64):
                m = Model('%s_%s%d' % (build.__name__, 'nhwc_' if nhwc else '', n), rng, nhwc)
                build(m, n)
                cases.append(m.to_json())
    with open(a.out, 'w') as f:
        f.write('[\n' + ',\n'.join(json.dumps(c) for c in cases) + '\n]\n')


if __name__ == '__main__':
    main()
