#!/usr/bin/python3
"""Writes the files of tests/data/layers for the layers of images and detection heads, expression_layer, top_k_layer,
take_layer, scatter_layer, scatter_add_layer, trees_layer, layer_norm_layer, lstm_layer
and rnn_layer.

  make_image_cases.py --out tests/data/layers

Expected values come from PyTorch and torchvision in float64 (Debian's python3-torch 1.13.1 and python3-torchvision 0.14.1
wrote the committed files) where those have the operator, else from numpy following the published definition; never from
our own engine.  Error texts are written by hand.  Form of a case: tests/testing/layer_case.proto.
"""
import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

import make_layer_cases
from make_layer_cases import f32

ROWS = (1, 3, 64)
PYTORCH = 'torch %s' % torch.__version__
TORCHVISION = 'torchvision %s' % torchvision.__version__
NUMPY = 'numpy, by the published definition'
SEED = 'extension operators'
FRAMEWORK = 'layer framework'


def t64(a):
    return torch.from_numpy(np.ascontiguousarray(a)).double()


class Cases(make_layer_cases.Cases):
    """As there, but what is expected is always given."""

    def good(self, name, layer_type, inputs, expected, param='', weights=(), source=PYTORCH, **more):
        outputs = [np.asarray(e) for e in (expected if isinstance(expected, list) else [expected])]
        self.add(name, layer_type, inputs, param, weights, expected=outputs, source=source, tops=len(outputs), **more)

    def bad(self, name, layer_type, inputs, error, param='', weights=(), source=SEED, **more):
        self.add(name, layer_type, inputs, param, weights, error=error, source=source, ours_only=True, **more)


def common_errors(c, t, x, param='', weights=(), tops=1):
    """What every image layer refuses alike."""
    short = t.replace('_layer', '')
    c.bad(short + '_rejects_int32', t, [np.ones(x.shape, np.int32)], 'input 0: int32, want float32', param, weights,
          tops=tops)
    c.bad(short + '_rejects_rank_3', t, [x[0]], 'input 0: shape [%s], want rank 4' % ', '.join(map(str, x[0].shape)),
          param, weights, tops=tops)


def conv(c):
    t = 'convolution_layer'

    def case(name, n, chans, out, size, kernel, group=1, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), bias=True,
             text='', **more):
        x, w, b = c.f(n, chans, *size), c.f(out, chans // group, *kernel), c.f(out)
        padded = F.pad(t64(x), (pad[1], pad[3], pad[0], pad[2]))
        y = F.conv2d(padded, t64(w), t64(b) if bias else None, stride, 0, dilation, group).numpy()
        fields = ['group: %d' % group] if group > 1 else []
        fields += ['stride: %d stride: %d' % stride] if stride != (1, 1) else []
        fields += [' '.join('pad: %d' % p for p in pad)] if any(pad) else []
        fields += ['dilation: %d dilation: %d' % dilation] if dilation != (1, 1) else []
        fields += [] if bias else ['bias_term: false']
        param = 'convolution_param { %s }' % (text or ' '.join(fields))
        c.good('convolution_' + name, t, [x], y, param, [w, b] if bias else [w], **more)

    for n in ROWS:
        case('3x3_%d' % n, n, 3, 4, (5, 4), (3, 3), pad=(1, 1, 1, 1))
        case('1x1_%d' % n, n, 8, 8, (2, 3), (1, 1))
        case('stride_2_groups_%d' % n, n, 4, 6, (5, 5), (3, 3), group=2, stride=(2, 2), pad=(1, 1, 1, 1))
    case('depthwise', 2, 16, 16, (6, 7), (3, 3), group=16, pad=(1, 1, 1, 1))
    case('depthwise_8_channels', 2, 8, 16, (6, 7), (3, 3), group=8)
    case('dilated', 2, 3, 5, (9, 8), (3, 3), dilation=(2, 3), pad=(2, 3, 2, 3))
    case('uneven_pad', 2, 3, 5, (4, 4), (3, 2), pad=(0, 1, 2, 0))
    case('stride_does_not_divide', 1, 3, 2, (7, 8), (3, 3), stride=(2, 3))
    case('no_bias', 3, 4, 4, (3, 3), (2, 2), bias=False)
    case('one_by_one_image', 3, 8, 8, (1, 1), (3, 3), pad=(1, 1, 1, 1))
    case('kernel_is_image', 3, 3, 5, (4, 6), (4, 6))
    case('wide', 1, 128, 8, (5, 5), (3, 3), pad=(1, 1, 1, 1), tolerance=1e-4)
    case('one_value_for_all', 1, 2, 2, (6, 6), (3, 3), stride=(2, 2), pad=(1, 1, 1, 1),
         text='num_output: 2 kernel_size: 3 stride: 2 pad: 1')
    c.good('convolution_zero_rows', t, [c.f(0, 2, 3, 3)], c.f(0, 2, 2, 2), '', [c.f(2, 2, 2, 2), c.f(2)])
    x, w, b = c.f(1, 4, 5, 5), c.f(6, 4, 3, 3), c.f(6)
    p = 'convolution_param { %s }'
    common_errors(c, t, x, '', [w, b])
    bad = [('a_group_that_does_not_divide', 'group: 4', [w, b],
            'convolution_param.group: 4, want a divisor of the 6 output channels'),
           ('group_0', 'group: 0', [w, b], 'convolution_param.group: 0, want a divisor of the 6 output channels'),
           ('channels', 'group: 2', [w, b], 'input 0: shape [1, 4, 5, 5], want 8 channels (4 of the weight x group 2)'),
           ('stride_0', 'stride: 0', [w, b], 'convolution_param.stride: 0, want 1 to 4096'),
           ('a_huge_dilation', 'dilation: 5000', [w, b], 'convolution_param.dilation: 5000, want 1 to 4096'),
           ('three_strides', 'stride: [1, 1, 1]', [w, b],
            'convolution_param.stride: 3 values, want one, or height and width'),
           ('three_pads', 'pad: [1, 1, 1]', [w, b],
            'convolution_param.pad: 3 values, want one, two (height, width) or four (top, left, bottom, right)'),
           ('an_empty_output', 'dilation: 3', [w, b], 'input 0: shape [1, 4, 5, 5], want a height of at least 7 for '
            'kernel_size=3x3 stride=1x1 pad=0,0,0,0 dilation=3x3'),
           ('another_kernel', 'kernel_size: 5', [w, b],
            'weight 0: shape [6, 4, 3, 3], want kernel 5 x 5 (convolution_param.kernel_size)'),
           ('another_num_output', 'num_output: 8', [w, b],
            'weight 0: shape [6, 4, 3, 3], want 8 outputs (convolution_param.num_output)'),
           ('a_flat_weight', '', [c.f(6, 36), b],
            'weight 0: shape [6, 36], want [num_output, channels / group, kernel_h, kernel_w], none of them 0'),
           ('a_short_bias', '', [w, c.f(5)], 'weight 1: shape [5], want 6 values (one per output channel)'),
           ('no_bias', '', [w], '1 weight, want 2 (weight and bias; or convolution_param.bias_term: false)')]
    for name, text, weights, error in bad:
        c.bad('convolution_rejects_' + name, t, [x], error, p % text, weights, source=FRAMEWORK)
    c.good('convolution_ignores_a_surplus_bias', t, [x], F.conv2d(t64(x), t64(w)).numpy(), p % 'bias_term: false', [w, b],
           notices=['weight 1 is ignored: convolution_param.bias_term is false'])


def pooling(c):
    t = 'max_pooling_layer'
    p = 'pooling_param { %s }'

    def case(name, x, kernel, stride=1, pad=0, ceil=False, average=False, count=True, text=''):
        if average:
            y = F.avg_pool2d(t64(x), kernel, stride, pad, ceil, count).numpy()
        else:
            y = F.max_pool2d(t64(x), kernel, stride, pad, 1, ceil).numpy()
        two = lambda f, v: ' '.join('%s: %d' % (f, e) for e in (v if isinstance(v, tuple) else (v,)))
        fields = [two('kernel_size', kernel), two('stride', stride), two('pad', pad)]
        fields += ['round_mode: CEIL'] if ceil else []
        fields += ['pool: AVE'] if average else []
        fields += [] if count else ['count_include_pad: false']
        c.good('pooling_' + name, t, [x], y, p % (text or ' '.join(fields)))

    for n in ROWS:
        case('max_%d' % n, c.f(n, 2, 4, 6), 2, 2)
        case('average_%d' % n, c.f(n, 2, 4, 6), 2, 2, average=True)
        x = c.f(n, 3, 4, 3)
        c.good('pooling_global_max_%d' % n, t, [x], x.max(axis=(2, 3), keepdims=True), p % 'global_pooling: true',
               source='numpy')
        c.good('pooling_global_average_%d' % n, t, [x], x.astype(np.float64).mean(axis=(2, 3), keepdims=True),
               p % 'global_pooling: true pool: AVE', source='numpy')
    case('max_overlapping_padded', c.f(2, 2, 5, 7), 3, 2, 1)
    case('max_of_negatives_never_sees_padding', -1 - np.abs(c.f(2, 2, 5, 5)), 3, 1, 1)
    case('max_uneven', c.f(2, 2, 6, 9), (2, 3), (1, 2), (0, 1))
    case('max_ceil', c.f(2, 2, 6, 8), 3, 2, 0, ceil=True)
    case('max_ceil_padded', c.f(2, 2, 5, 8), (2, 3), (2, 3), 1, ceil=True)
    case('max_stride_beyond_kernel', c.f(2, 2, 7, 7), 2, 3)
    case('average_padded', c.f(2, 2, 5, 7), 3, 2, 1, average=True)
    case('average_padded_uncounted', c.f(2, 2, 5, 7), 3, 2, 1, average=True, count=False)
    case('average_ceil_padded', c.f(2, 2, 6, 8), 3, 2, 1, ceil=True, average=True)
    case('average_ceil_uncounted', c.f(2, 2, 6, 8), 3, 2, 1, ceil=True, average=True, count=False)
    case('default_stride_is_1', c.f(1, 1, 4, 4), 3, text='kernel_size: 3')
    x = c.f(1, 1, 3, 3)
    x[0, 0, 1, 1] = np.nan
    case('nan', x, 2)
    c.good('pooling_zero_rows', t, [c.f(0, 2, 4, 4)], c.f(0, 2, 2, 2), p % 'kernel_size: 2 stride: 2')
    x = c.f(1, 2, 3, 3)
    common_errors(c, t, x, p % 'kernel_size: 2')
    for name, text, error in (
            ('no_kernel', '', 'pooling_param.kernel_size: none, want one value, or height and width (or global_pooling)'),
            ('kernel_0', 'kernel_size: 0', 'pooling_param.kernel_size: 0, want 1 to 4096'),
            ('stride_0', 'kernel_size: 2 stride: 0', 'pooling_param.stride: 0, want 1 to 4096'),
            ('a_window_of_padding', 'kernel_size: 2 pad: 2',
             "pooling_param.pad: 2, want less than the window's 2 (a window of padding alone has no value)"),
            ('an_empty_output', 'kernel_size: 2 kernel_size: 4',
             'input 0: shape [1, 2, 3, 3], want a width of at least 4 for kernel_size=2x4 stride=1x1 pad=0,0,0,0'),
            ('global_with_kernel', 'kernel_size: 2 global_pooling: true', 'pooling_param.global_pooling: true, want no '
             'kernel_size, stride, pad or round_mode beside it'),
            ('a_divisor_of_max', 'kernel_size: 2 count_include_pad: false',
             'pooling_param.count_include_pad: set, but only pool: AVE has a divisor')):
        c.bad('pooling_rejects_' + name, t, [x], error, p % text, source=FRAMEWORK)
    rng = np.random.default_rng(18)  # Of their own: cases before and behind stay.
    case('max_many_windows_in_a_row', f32(2, 2, 5, 23, rng=rng), 3, 2, 1)
    case('max_few_windows_in_a_row', f32(2, 3, 1, 16, rng=rng), (1, 5), (1, 5))
    case('max_tiles', f32(2, 3, 8, 8, rng=rng), 2, 2)
    case('max_tiles_with_gaps', f32(2, 2, 9, 20, rng=rng), (2, 3), (3, 4), ceil=True)
    case('average_tiles_of_one_column', f32(2, 2, 6, 10, rng=rng), (2, 1), (3, 1), average=True)
    case('max_ceil_of_a_lower_image', f32(2, 2, 1, 5, rng=rng), 2, 2, ceil=True)
    case('average_ceil_of_a_lower_image', f32(2, 2, 2, 6, rng=rng), (4, 3), (3, 2), ceil=True, average=True)


def transpose(c):
    t = 'transpose_layer'
    p = lambda *perm: 'transpose_param { perm: [%s] }' % ', '.join(map(str, perm))
    for n in ROWS:
        x = c.f(n, 3, 4)
        c.good('transpose_last_two_%d' % n, t, [x], x.transpose(0, 2, 1), p(0, 2, 1), source='numpy')
        x = c.f(n, 2, 2, 3)
        c.good('transpose_nhwc_%d' % n, t, [x], x.transpose(0, 2, 3, 1), p(0, 2, 3, 1), source='numpy')
    for perm in ((1, 0), (2, 0, 1), (3, 2, 1, 0), (0, 3, 5, 1, 2, 4), (0, 1, 2)):
        x = c.f(*(2 + k % 3 for k in range(len(perm))))
        c.good('transpose_' + '_'.join(map(str, perm)), t, [x], x.transpose(perm), p(*perm), source='numpy')
    x = np.arange(12, dtype=np.int64).reshape(3, 4)
    c.good('transpose_int64', t, [x], x.T, p(1, 0), source='numpy')
    c.good('transpose_zero_rows', t, [c.f(0, 3)], c.f(3, 0), p(1, 0), source='numpy')
    for name, text, error in (
            ('no_perm', '', 'transpose_param.perm: empty, want an axis for each axis'),
            ('an_axis_twice', 'perm: [0, 0]', 'transpose_param.perm: [0, 0], want each of 0 to 1 once'),
            ('a_negative_axis', 'perm: [0, -1]', 'transpose_param.perm: [0, -1], want each of 0 to 1 once'),
            ('another_rank', 'perm: [0, 2, 1]', 'input 0: shape [2, 3], want rank 3 for transpose_param.perm [0, 2, 1]')):
        c.bad('transpose_rejects_' + name, t, [c.f(2, 3)], error, 'transpose_param { %s }' % text, source=NUMPY)


def reverse(c):
    t = 'reverse_layer'
    p = lambda *axes: 'reverse_param { %s }' % ' '.join('axis: %d' % a for a in axes)
    c.good('reverse_of_the_document', t, [np.float32([1, 2, 3])], np.float32([3, 2, 1]), p(0), source=SEED)
    for n in ROWS:
        x = c.f(n, 2, 3)
        for axes in ((1,), (2,), (-1,), (1, -1), (0,), (0, 1, 2)):
            c.good('reverse_%s_%d' % ('_'.join(map(str, axes)).replace('-', 'last_'), n), t, [x],
                   np.flip(x, axes), p(*axes), source='numpy')
    x = np.arange(6, dtype=np.int64).reshape(2, 3)
    c.good('reverse_int64', t, [x], x[:, ::-1], p(1), source='numpy', alias='Reverse')
    c.good('reverse_zero_rows', t, [c.f(0, 3)], c.f(0, 3), p(1), source='numpy')
    x = c.f(2, 3)
    c.bad('reverse_rejects_no_axis', t, [x], 'reverse_param.axis: none, want at least one', p())
    c.bad('reverse_rejects_axis_2', t, [x], 'reverse_param.axis: 2, want -2 to 1 for input 0: shape [2, 3]', p(2))
    c.bad('reverse_rejects_axis_minus_3', t, [x], 'reverse_param.axis: -3, want -2 to 1 for input 0: shape [2, 3]', p(-3))
    c.bad('reverse_rejects_an_axis_twice', t, [x], 'reverse_param.axis: -1 is axis 1 a second time', p(1, -1))


def reorg(c):
    t = 'reorg_layer'

    def forward(x, s):  # pixel_unshuffle has the channels of x outermost, the published operator the places.
        n, ch, h, w = x.shape
        y = F.pixel_unshuffle(t64(x), s).reshape(n, ch, s * s, h // s, w // s)
        return y.transpose(1, 2).reshape(n, ch * s * s, h // s, w // s).numpy()

    def backward(x, s):
        n, ch, h, w = x.shape
        y = t64(x).reshape(n, s * s, ch // (s * s), h, w).transpose(1, 2).reshape(n, ch, h, w)
        return F.pixel_shuffle(y, s).numpy()

    for n in ROWS:
        x = c.f(n, 2, 4, 6)
        c.good('reorg_%d' % n, t, [x], forward(x, 2), 'reorg_param { stride: 2 }')
        x = c.f(n, 8, 2, 1)
        c.good('reorg_reverse_%d' % n, t, [x], backward(x, 2), 'reorg_param { stride: 2 reverse: true }')
    x = c.f(2, 3, 6, 3)
    c.good('reorg_stride_3', t, [x], forward(x, 3), 'reorg_param { stride: 3 }', alias='PassThrough')
    x = c.f(2, 18, 2, 3)
    c.good('reorg_reverse_stride_3', t, [x], backward(x, 3), 'reorg_param { stride: 3 reverse: true }', alias='Reorg')
    x = c.f(2, 3, 2, 2)
    c.good('reorg_stride_1', t, [x], x, 'reorg_param { stride: 1 }')
    c.good('reorg_zero_rows', t, [c.f(0, 1, 2, 2)], c.f(0, 4, 1, 1), '')
    common_errors(c, t, x)
    x = c.f(1, 6, 4, 5)
    c.bad('reorg_rejects_a_stride_that_does_not_divide_the_width', t, [x],
          'input 0: shape [1, 6, 4, 5], want width that 2 divides (reorg_param.stride 2)')
    c.bad('reorg_rejects_a_stride_that_does_not_divide_the_height', t, [x],
          'input 0: shape [1, 6, 4, 5], want height that 3 divides (reorg_param.stride 3)', 'reorg_param { stride: 3 }')
    c.bad('reorg_rejects_channels', t, [x],
          'input 0: shape [1, 6, 4, 5], want channels that 4 divides (reorg_param.stride 2, reverse)',
          'reorg_param { reverse: true }')
    c.bad('reorg_rejects_stride_0', t, [x], 'reorg_param.stride: 0, want 1 to 4096', 'reorg_param { stride: 0 }')


def shuffle(c):
    t = 'shuffle_channel_layer'
    p = 'shuffle_channel_param { group: %d }'
    x = c.f(1, 4, 2, 2)
    c.good('shuffle_channel_of_the_document', t, [x], x[:, [0, 2, 1, 3]], p % 2, source=SEED)
    for n in ROWS:
        x = c.f(n, 6, 2, 2)
        for group in (1, 2, 3, 6):
            c.good('shuffle_channel_%d_%d' % (group, n), t, [x], F.channel_shuffle(t64(x), group).numpy(), p % group)
    x = c.f(2, 6)
    c.good('shuffle_channel_rank_2', t, [x], x.reshape(2, 3, 2).transpose(0, 2, 1).reshape(2, 6), p % 3, source='numpy',
           alias='ShuffleChannel')
    x = np.arange(12, dtype=np.int64).reshape(2, 6)
    c.good('shuffle_channel_int64', t, [x], x.reshape(2, 3, 2).transpose(0, 2, 1).reshape(2, 6), p % 3, source='numpy')
    c.good('shuffle_channel_zero_rows', t, [c.f(0, 4, 2)], c.f(0, 4, 2), p % 2, source='numpy')
    x = c.f(1, 6, 2, 2)
    c.bad('shuffle_channel_rejects_a_group_that_does_not_divide', t, [x],
          'input 0: shape [1, 6, 2, 2], want channels that 4 divides (shuffle_channel_param.group)', p % 4)
    c.bad('shuffle_channel_rejects_group_0', t, [x], 'shuffle_channel_param.group: 0, want 1 or more', p % 0)
    c.bad('shuffle_channel_rejects_rank_1', t, [x.reshape(-1)], 'input 0: shape [24], want rank 2 or more', p % 2)


def upsample(c):
    t = 'upsample_layer'
    p = 'upsample_param { %s }'
    big = lambda x, h, w, scale=1: (F.interpolate(t64(x), scale_factor=(h, w), mode='nearest') * scale).numpy()
    for n in ROWS:
        x = c.f(n, 2, 2, 3)
        c.good('upsample_%d' % n, t, [x], big(x, 2, 2), p % 'scale: 1 stride: 2')
    x = c.f(2, 2, 2, 3)
    c.good('upsample_default', t, [x], big(x, 2, 2), '', alias='Upsample')
    c.good('upsample_scale', t, [x], big(x, 3, 3, 0.5), p % 'scale: 0.5 stride: 3')
    c.good('upsample_uneven', t, [x], big(x, 1, 4), p % 'stride_h: 1 stride_w: 4')
    c.good('upsample_one_side', t, [x], big(x, 3, 1), p % 'stride: 3 stride_w: 1')
    c.good('upsample_zero_rows', t, [c.f(0, 1, 2, 2)], c.f(0, 1, 4, 4), '')
    common_errors(c, t, x)
    c.bad('upsample_rejects_stride_0', t, [x], 'upsample_param.stride: 0, want 1 to 4096', p % 'stride: 0')
    c.bad('upsample_rejects_a_negative_stride_w', t, [x], 'upsample_param.stride_w: -1, want 1 to 4096',
          p % 'stride_w: -1')


def normalize(c):
    t = 'normalize_layer'
    p = 'norm_param { %s }'

    def norm(x, across, scale, eps=1e-10):
        x = x.astype(np.float64)
        total = (x * x).sum(axis=(1, 2, 3) if across else 1, keepdims=True)
        return x / np.sqrt(total + eps) * np.asarray(scale, np.float64).reshape(1, -1, 1, 1)

    for n in ROWS:
        x, s = c.f(n, 3, 2, 3), c.f(3)
        c.good('normalize_across_spatial_%d' % n, t, [x], norm(x, True, [1]), '', source=NUMPY)
        c.good('normalize_channels_%d' % n, t, [x], norm(x, False, s), p % 'across_spatial: false channel_shared: false',
               [s], source=NUMPY)
    x, s = c.f(2, 5, 3, 3), c.f(5)
    y = F.normalize(t64(x), dim=1, eps=1e-12).numpy()
    c.good('normalize_as_torch', t, [x], y, p % 'across_spatial: false', alias='Normalize')
    c.good('normalize_filler', t, [x], norm(x, False, [20]),
           p % 'across_spatial: false scale_filler { type: "constant" value: 20 } channel_shared: false', source=NUMPY)
    c.good('normalize_shared_weight', t, [x], norm(x, True, [3]), '', [np.float32([3])], source=NUMPY)
    c.good('normalize_across_spatial_per_channel', t, [x], norm(x, True, s), p % 'channel_shared: false', [s], source=NUMPY)
    c.good('normalize_eps', t, [x], norm(x, False, [1], 0.5), p % 'across_spatial: false eps: 0.5', source=NUMPY)
    c.good('normalize_zeros', t, [x * 0], x * 0, '', source=NUMPY)
    c.good('normalize_large', t, [x * np.float32(1e25)], norm(x, False, [1]), p % 'across_spatial: false', source=NUMPY)
    c.good('normalize_zero_rows', t, [c.f(0, 3, 2, 2)], c.f(0, 3, 2, 2), '', source=NUMPY)
    x = c.f(1, 3, 2, 2)
    common_errors(c, t, x)
    c.bad('normalize_rejects_a_negative_eps', t, [x], 'norm_param.eps: -1, want 0 or more', p % 'eps: -1')
    c.bad('normalize_rejects_a_random_filler', t, [x],
          'norm_param.scale_filler.type: "gaussian", want "constant" (or a weight)',
          p % 'scale_filler { type: "gaussian" }')
    c.bad('normalize_rejects_a_vector_for_all', t, [x],
          'weight 0: shape [3], want one value (norm_param.channel_shared)', '', [c.f(3)])
    c.bad('normalize_rejects_another_scale', t, [x], 'input 0: shape [1, 3, 2, 2], want 4 channels (the size of weight 0)',
          p % 'channel_shared: false', [c.f(4)])


def yolo(c):
    t = 'yolo_layer'

    def head(x, boxes, coords, classes, softmax=False, background=False):
        n, _, h, w = x.shape
        v = t64(x).reshape(n, boxes, coords + 1 + classes, h, w)
        xy, wh = torch.sigmoid(v[:, :, :2]), v[:, :, 2:coords]
        obj, cls = v[:, :, coords:coords + 1], v[:, :, coords + 1:]
        if softmax and background:
            both = torch.softmax(v[:, :, coords:], 2)
            obj, cls = both[:, :, :1], both[:, :, 1:]
        else:
            obj = obj if background else torch.sigmoid(obj)
            cls = torch.softmax(cls, 2) if softmax else torch.sigmoid(cls)
        flat = lambda a: a.reshape(n, -1, h, w).numpy()
        return [flat(torch.cat([xy, wh], 2)), flat(obj), flat(cls)]

    p = 'yolo_param { boxes: %d coords: %d classes: %d yolo_version: "%s" %s }'
    for n in ROWS:
        x = c.f(n, 2 * 8, 2, 2)
        c.good('yolo_v3_%d' % n, t, [x], head(x, 2, 4, 3), p % (2, 4, 3, 'V3', ''))
        c.good('yolo_v2_softmax_%d' % n, t, [x], head(x, 2, 4, 3, softmax=True), p % (2, 4, 3, 'V2', 'softmax: true'))
        c.good('yolo_v2_softmax_background_%d' % n, t, [x], head(x, 2, 4, 3, True, True),
               p % (2, 4, 3, 'V2', 'softmax: true background: true'))
    x = 3 * c.f(2, 5 * 11, 3, 3)
    c.good('yolo_v2', t, [x], head(x, 5, 4, 6), p % (5, 4, 6, 'V2', ''), alias='Yolo')
    c.good('yolo_v2_background', t, [x], head(x, 5, 4, 6, background=True), p % (5, 4, 6, 'V2', 'background: true'))
    c.good('yolo_v3_softmax_has_no_effect', t, [x], head(x, 5, 4, 6), p % (5, 4, 6, 'V3', 'softmax: true'),
           notices=['yolo_param.softmax has no effect on V3: every class gets a sigmoid'])
    x = c.f(1, 255, 1, 2)
    c.good('yolo_defaults', t, [x], head(x, 3, 4, 80), '')
    x = 100 * c.f(2, 7, 2, 2)
    c.good('yolo_large_logits', t, [x], head(x, 1, 2, 4, softmax=True), p % (1, 2, 4, 'V2', 'softmax: true'))
    c.good('yolo_zero_rows', t, [c.f(0, 8, 2, 2)], [c.f(0, 4, 2, 2), c.f(0, 1, 2, 2), c.f(0, 3, 2, 2)],
           p % (1, 4, 3, 'V3', ''))
    common_errors(c, t, x, p % (1, 2, 4, 'V3', ''), tops=3)
    x = c.f(1, 254, 2, 2)
    c.bad('yolo_rejects_a_channel_count_that_does_not_match', t, [x],
          'input 0: shape [1, 254, 2, 2], want 255 channels (3 boxes x (4 coords + 1 + 80 classes))', tops=3)
    c.bad('yolo_rejects_one_top', t, [x], '1 top, want 3')
    for name, text, error in (
            ('no_boxes', 'boxes: 0', 'yolo_param.boxes: 0, want 1 to 65536'),
            ('one_coordinate', 'coords: 1', 'yolo_param.coords: 1, want 2 to 65536'),
            ('negative_classes', 'classes: -1', 'yolo_param.classes: -1, want 1 to 65536'),
            ('another_version', 'yolo_version: "V5"', 'yolo_param.yolo_version: "V5", want "V2" or "V3"'),
            ('a_softmax_tree', 'softmaxtree: true',
             'yolo_param.softmaxtree: true, want false (the published format names it without a definition)')):
        c.bad('yolo_rejects_' + name, t, [x], error, 'yolo_param { %s }' % text, tops=3)


def prior_box(c):
    t = 'prior_box_layer'

    def boxes(h, w, image, mins, maxs=(), ratios=(), flip=True, clip=False, variances=(0.1,), step=None, offset=0.5):
        """Box by box, as the definition puts it."""
        all_ratios = [1.0]
        for r in ratios:
            for v in ([r, 1.0 / r] if flip else [r]):
                if not any(abs(v - known) < 1e-6 for known in all_ratios):
                    all_ratios.append(v)
        ih, iw = image
        sh, sw = step or (ih / h, iw / w)
        out = []
        for y in range(h):
            for x in range(w):
                cx, cy = (x + offset) * sw, (y + offset) * sh
                for k, m in enumerate(mins):
                    sizes = [(m, m)]
                    if maxs:
                        sizes.append((np.sqrt(m * maxs[k]),) * 2)
                    sizes += [(m * np.sqrt(r), m / np.sqrt(r)) for r in all_ratios[1:]]
                    for bw, bh in sizes:
                        out += [(cx - bw / 2) / iw, (cy - bh / 2) / ih, (cx + bw / 2) / iw, (cy + bh / 2) / ih]
        out = np.clip(out, 0, 1) if clip else np.array(out)
        var = np.tile(np.float32(variances) if len(variances) == 4 else np.float32(list(variances) * 4), len(out) // 4)
        return np.stack([out, var])[None]

    p = 'prior_box_param { %s }'
    for n in ROWS:
        x, im = c.f(n, 2, 2, 3), c.f(n, 1, 8, 12)
        c.good('prior_box_%d' % n, t, [x, im], boxes(2, 3, (8, 12), [4], [6], [2]),
               p % 'min_size: 4 max_size: 6 aspect_ratio: 2', source=NUMPY)
    x, im = c.f(1, 2, 2, 2), c.f(1, 3, 9, 9)
    sample = ('min_size: 162.0 max_size: 213.0 aspect_ratio: 2 aspect_ratio: 3 flip: true clip: false variance: 0.1 '
              'variance: 0.1 variance: 0.2 variance: 0.2 img_size: 300 step: 64 offset: 0.5')
    want = boxes(2, 2, (300, 300), [162], [213], [2, 3], variances=(0.1, 0.1, 0.2, 0.2), step=(64, 64))
    assert want.shape == (1, 2, 2 * 2 * 6 * 4)  # The document's num_priors: 6.
    c.good('prior_box_of_the_document', t, [x, im[:, :, :4, :4]], want, p % sample, source=SEED, alias='PriorBox')
    c.good('prior_box_one_bottom', t, [x], want, p % sample, source=NUMPY)
    c.good('prior_box_two_sizes', t, [x, im[:, :, :9, :7]], boxes(2, 2, (9, 7), [2, 3], [4, 6], [2, 3]),
           p % 'min_size: [2, 3] max_size: [4, 6] aspect_ratio: [2, 3]', source=NUMPY)
    c.good('prior_box_no_flip_clip', t, [x, im[:, :, :9, :7]], boxes(2, 2, (9, 7), [5], [], [2, 2, 1], False, True, (0.3,)),
           p % 'min_size: 5 aspect_ratio: [2, 2, 1] flip: false clip: true variance: 0.3', source=NUMPY)
    c.good('prior_box_flip_duplicates', t, [x, im[:, :, :9, :7]], boxes(2, 2, (9, 7), [5], [], [2, 0.5, 3]),
           p % 'min_size: 5 aspect_ratio: [2, 0.5, 3]', source=NUMPY)
    c.good('prior_box_sides', t, [x], boxes(2, 2, (20, 10), [5], step=(7, 3), offset=0.25),
           p % 'min_size: 5 img_h: 20 img_w: 10 step_h: 7 step_w: 3 offset: 0.25', source=NUMPY)
    c.bad('prior_box_rejects_int32', t, [x, np.ones((1, 1, 2, 2), np.int32)], 'input 1: int32, want float32',
          p % 'min_size: 1')
    c.bad('prior_box_rejects_rank_3', t, [x[0], im], 'input 0: shape [2, 2, 2], want rank 4', p % 'min_size: 1')
    for name, text, error in (
            ('no_min_size', 'max_size: 3', 'prior_box_param.min_size: none, want at least one'),
            ('min_size_0', 'min_size: 0', 'prior_box_param.min_size: 0, want above 0'),
            ('a_max_size_per_min_size', 'min_size: [1, 2] max_size: 3',
             'prior_box_param.max_size: 1 values, want none or 2, one per min_size'),
            ('a_small_max_size', 'min_size: 4 max_size: 3', 'prior_box_param.max_size: 3, want above its min_size 4'),
            ('a_negative_ratio', 'min_size: 4 aspect_ratio: -1', 'prior_box_param.aspect_ratio: -1, want above 0'),
            ('two_variances', 'min_size: 4 variance: [0.1, 0.2]',
             'prior_box_param.variance: 2 values, want none, 1 or 4'),
            ('size_and_sides', 'min_size: 4 img_size: 3 img_h: 3',
             'prior_box_param.img_size: set, want no img_h or img_w beside it'),
            ('one_side', 'min_size: 4 img_h: 3', 'prior_box_param.img_w: not set, want both img_h and img_w or none'),
            ('an_image_of_0', 'min_size: 4 img_size: 0', 'prior_box_param.img_size: 0, want 1 or more'),
            ('step_0', 'min_size: 4 step: 0', 'prior_box_param.step: not above 0, want a number of pixels'),
            ('two_steps', 'min_size: 4 step: 3 step_w: 3',
             'prior_box_param.step: set, want no step_h or step_w beside it'),
            ('one_step', 'min_size: 4 step_w: 3', 'prior_box_param.step_h: not set, want both step_h and step_w or none')):
        c.bad('prior_box_rejects_' + name, t, [x, im[:, :, :3, :3]], error, p % text)
    c.bad('prior_box_rejects_no_image', t, [x],
          '1 bottom, want 2 (features and image) or prior_box_param.img_size', p % 'min_size: 3')


def roi_align(c):
    t = 'roi_align_layer'
    p = 'roi_align_param { pooled_h: %d pooled_w: %d %s }'

    def align(x, rois, h, w, scale=1.0, ratio=-1, mode=0):
        rois = t64(rois).clone()
        rois[:, 3:] += mode
        return torchvision.ops.roi_align(t64(x), rois, (h, w), scale, ratio, False).numpy()

    for n in ROWS:
        x = c.f(n, 2, 4, 5)
        corners = c.rng.uniform(0, 3, (n, 2, 2))
        rois = np.concatenate([np.arange(n)[:, None], corners.min(1), corners.max(1) + 1], 1).astype(np.float32)
        c.good('roi_align_%d' % n, t, [x, rois], align(x, rois, 2, 2, 1.0, 2), p % (2, 2, 'sampling_ratio: 2'),
               source=TORCHVISION)
    x = c.f(2, 3, 6, 8)
    rois = np.float32([[0, 1, 1, 5, 4], [1, 0, 0, 7, 5], [1, 2.3, 1.7, 3.1, 5.9], [0, -2, -1, 3, 2], [0, 6, 4, 12, 9],
                       [1, 3, 3, 3, 3], [0, 5, 4, 2, 1]])
    c.good('roi_align_adaptive', t, [x, rois], align(x, rois, 2, 3), p % (2, 3, ''), source=TORCHVISION, alias='ROIAlign')
    c.good('roi_align_one_cell', t, [x, rois], align(x, rois, 1, 1, 1.0, 3), p % (1, 1, 'sampling_ratio: 3'),
           source=TORCHVISION)
    c.good('roi_align_end_mode_1', t, [x, rois], align(x, rois, 2, 2, 1.0, 2, 1),
           p % (2, 2, 'sampling_ratio: 2 roi_end_mode: 1'), source=TORCHVISION)
    big = rois * np.float32([1, 16, 16, 16, 16])
    c.good('roi_align_scale', t, [x, big], align(x, big, 3, 3, 1 / 16), p % (3, 3, 'spatial_scale: 0.0625'),
           source=TORCHVISION)
    c.good('roi_align_scale_end_mode_1', t, [x, big], align(x, big, 3, 3, 1 / 16, 2, 1),
           p % (3, 3, 'spatial_scale: 0.0625 sampling_ratio: 2 roi_end_mode: 1'), source=TORCHVISION)
    c.good('roi_align_rank_4_regions', t, [x, rois.reshape(-1, 5, 1, 1)], align(x, rois, 2, 3), p % (2, 3, ''),
           source=TORCHVISION)
    wide = np.float32([[0, -300000, 1, 300000, 4]])
    c.good('roi_align_far_beyond_the_image', t, [x[:1], wide], align(x[:1], wide, 1, 3), p % (1, 3, ''),
           source=TORCHVISION)
    # 1e39 samples across, of which the image has a few.
    c.good('roi_align_more_samples_than_can_be_counted', t, [x[:1], np.float32([[0, -1, -1, 1, 1]])], np.zeros((1, 3, 1, 1)),
           p % (1, 1, 'spatial_scale: 3e+38'), source=NUMPY)
    c.good('roi_align_no_regions', t, [x, c.f(0, 5)], c.f(0, 3, 2, 2), p % (2, 2, ''), source=TORCHVISION)
    one = np.float32([[0, 0, 0, 1, 1]])
    c.bad('roi_align_rejects_int32', t, [x, one.astype(np.int32)], 'input 1: int32, want float32', p % (2, 2, ''))
    c.bad('roi_align_rejects_rank_3', t, [x[0], one], 'input 0: shape [3, 6, 8], want rank 4', p % (2, 2, ''))
    c.bad('roi_align_rejects_four_numbers', t, [x, one[:, :4]],
          'input 1: shape [1, 4], want [regions, 5]: row of the features, x1, y1, x2, y2', p % (2, 2, ''))
    c.bad('roi_align_rejects_no_size', t, [x, one], 'roi_align_param.pooled_h: 0, want 1 to 4096')
    c.bad('roi_align_rejects_scale_0', t, [x, one], 'roi_align_param.spatial_scale: 0, want above 0',
          p % (2, 2, 'spatial_scale: 0'))
    c.bad('roi_align_rejects_another_mode', t, [x, one], 'roi_align_param.roi_end_mode: 3, want 0 or 1',
          p % (2, 2, 'roi_end_mode: 3'))
    for name, row, error in (
            ('a_region_outside_the_image', [0, 9, 1, 12, 3],
             'input 1: region 1 (0, 9, 1, 12, 3): lies outside the image of 6 x 8 places'),
            ('a_region_above_the_image', [0, 1, -9, 2, -8],
             'input 1: region 1 (0, 1, -9, 2, -8): lies outside the image of 6 x 8 places'),
            ('a_row_that_is_not_there', [2, 1, 1, 2, 2],
             'input 1: region 1 (2, 1, 1, 2, 2): its first number, want a row of the features (0 to 1)'),
            ('half_a_row', [0.5, 1, 1, 2, 2],
             'input 1: region 1 (0.5, 1, 1, 2, 2): its first number, want a row of the features (0 to 1)'),
            ('nan', [0, np.nan, 1, 2, 2], 'input 1: region 1 (0, nan, 1, 2, 2): want numbers below 1e9'),
            ('infinity', [0, 1, 1, np.inf, 2], 'input 1: region 1 (0, 1, 1, inf, 2): want numbers below 1e9')):
        c.bad('roi_align_rejects_' + name, t, [x, np.concatenate([one, np.float32([row])])], error, p % (2, 2, ''))


def spatial_transformer(c):
    t = 'spatial_transformer_layer'

    def document(image, theta, h, w, border):
        """The document's loops, with the bracket and the abs put right, and border_value outside."""
        ch, H, W = image.shape
        out = np.zeros((ch, h, w))
        for i in range(h * w):
            grid = np.array([(i // w) * 1.0 / h * 2 - 1, (i % w) * 1.0 / w * 2 - 1, 1])
            px, py = np.asarray(theta, np.float64).reshape(2, 3) @ grid
            x, y = (px + 1) / 2 * H, (py + 1) / 2 * W
            for m in range(int(np.floor(x)), int(np.ceil(x)) + 1):
                for n in range(int(np.floor(y)), int(np.ceil(y)) + 1):
                    inside = 0 <= m < H and 0 <= n < W
                    out[:, i // w, i % w] += (1 - abs(x - m)) * (1 - abs(y - n)) * (image[:, m, n] if inside else border)
        return out

    def by_torch(x, theta, h, w):
        H, W = x.shape[2:]
        u, v = np.meshgrid(np.arange(h) / h * 2 - 1, np.arange(w) / w * 2 - 1, indexing='ij')
        grid = np.stack([u, v, np.ones_like(u)], -1) @ theta.reshape(-1, 1, 2, 3).transpose(0, 1, 3, 2)
        # grid_sample wants (across, down) and puts places half a place further.
        both = np.stack([grid[..., 1] + 1 / W, grid[..., 0] + 1 / H], -1)
        return F.grid_sample(t64(x), t64(both), 'bilinear', 'zeros', False).numpy()

    thetas = lambda n: (np.float32([1, 0, 0, 0, 1, 0]) + 0.4 * c.f(n, 6)).astype(np.float32)
    values = lambda theta: ' '.join('affine_transform: %r' % float(v) for v in theta)
    p = 'spatial_transform_param { %s }'
    for n in ROWS:
        x, theta = c.f(n, 2, 4, 5), thetas(n)
        want = by_torch(x, theta.astype(np.float64), 3, 4)
        ours = np.stack([document(a.astype(np.float64), b, 3, 4, 0.0) for a, b in zip(x, theta)])
        assert np.abs(want - ours).max() < 1e-12  # The two references agree.
        c.good('spatial_transformer_theta_input_%d' % n, t, [x, theta], want, p % 'output_h: 3 output_w: 4')
        fixed = thetas(1)
        want = by_torch(x, np.repeat(fixed, n, 0).astype(np.float64), 4, 5)
        c.good('spatial_transformer_fixed_theta_%d' % n, t, [x], want, p % values(fixed[0]), alias='SpatialTransformer')
    x, theta = c.f(2, 2, 4, 5), thetas(2)
    c.good('spatial_transformer_border', t, [x, theta],
           np.stack([document(a.astype(np.float64), b, 4, 5, -2.5) for a, b in zip(x, theta)]),
           p % 'border_value: -2.5', source=NUMPY)
    c.good('spatial_transformer_identity', t, [x], x, p % values([1, 0, 0, 0, 1, 0]), source=NUMPY)
    c.good('spatial_transformer_all_outside', t, [x], np.full(x.shape, 7.0), p % (values([1, 0, 9, 0, 1, 9]) +
                                                                                  ' border_value: 7'), source=NUMPY)
    c.good('spatial_transformer_nan_and_infinite_theta', t, [x, np.float32([[np.nan] * 6, [np.inf] * 6])], x * 0, p % '',
           source=NUMPY)
    three = thetas(3)
    c.good('spatial_transformer_one_image_three_thetas', t, [x[:1], three],
           by_torch(np.repeat(x[:1], 3, 0), three.astype(np.float64), 4, 5), '')
    c.good('spatial_transformer_one_theta_two_images', t, [x, three[:1]],
           by_torch(x, np.repeat(three[:1], 2, 0).astype(np.float64), 4, 5), '')
    # The document's own sample: four elements fixed, the last column is the second bottom.
    rest = np.float32([[0.1, -0.2], [0.3, 0.05]])
    full = np.array([[-0.129, 0.626, r[0], 0.344, 0.157, r[1]] for r in rest.astype(np.float64)])
    st = 'st_param { to_compute_dU: false theta_1_1: -0.129 theta_1_2: 0.626 theta_2_1: 0.344 theta_2_2: 0.157 }'
    c.good('spatial_transformer_of_the_document', t, [x, rest], by_torch(x, full, 4, 5), st)
    c.good('spatial_transformer_st_size', t, [x, rest], by_torch(x, full, 2, 3), st.replace('{', '{ output_H: 2 output_W: 3'))
    c.good('spatial_transformer_rank_4_theta', t, [x, theta.reshape(2, 6, 1, 1)],
           by_torch(x, theta.astype(np.float64), 4, 5), '')
    for name, inputs, text, error in (
            ('a_short_affine_transform', [x], p % values([1, 0, 0, 0]), 'spatial_transform_param.affine_transform: 4 values, '
             'want 6 (or none, and theta as the second bottom)'),
            ('no_theta', [x], '', '1 bottom, want 2: theta is not fixed, its 6 free elements are the second'),
            ('two_thetas', [x, theta], p % values([1, 0, 0, 0, 1, 0]), '2 bottoms, want 1: all of theta is fixed'),
            ('theta_of_another_size', [x, theta[:, :4]], '', 'input 1: shape [2, 4], want [rows, 6] (theta)'),
            ('theta_of_the_free_elements', [x, theta], st, 'input 1: shape [2, 6], want [rows, 2] (theta)'),
            ('theta_of_other_rows', [x, three], '',
             "input 1: shape [3, 6], want 1 row or as many as input 0's shape [2, 2, 4, 5]"),
            ('both_messages', [x, rest], st + ' ' + p % '',
             'has a spatial_transform_param and an st_param, want one of them'),
            ('another_sampler', [x, rest], 'st_param { sampler_type: "nearest" }',
             'st_param.sampler_type: "nearest", want "bilinear"'),
            ('another_transform', [x, rest], 'st_param { transform_type: "tps" }',
             'st_param.transform_type: "tps", want "affine"'),
            ('a_huge_output', [x, theta], p % 'output_h: 5000', 'spatial_transform_param.output_h: 5000, want 0 to 4096')):
        c.bad('spatial_transformer_rejects_' + name, t, inputs, error, text)


def expression(c):
    t = 'expression_layer'
    p = lambda text: 'expression_param { expression: "%s" }' % text
    d = lambda a: np.asarray(a).astype(np.float64)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))

    def good(name, inputs, text, want, **more):
        c.good('expression_' + name, t, inputs, want, p(text), source='numpy', **more)

    for n in ROWS:
        a, b, m = c.f(n, 5), c.f(1, 5), c.f(n, 1)
        good('call_form_%d' % n, [a, b, m], 'add(@0,mul(@1,@2))', d(a) + d(b) * d(m))
        good('infix_form_%d' % n, [a, b, m], '@0 + @1 * @2', d(a) + d(b) * d(m))
        h, q = c.f(1, 4, 3), c.f(n, 1, 3)
        good('user_history_%d' % n, [q, h], 'sigmoid(@0 - @1) * (@0 + @1)', sigmoid(d(q) - d(h)) * (d(q) + d(h)))
    # Every function, on values where it is defined and on some where it is not.
    x = np.float32([-np.inf, -87, -3, -1, -0.5, -1e-30, 0, 1e-40, 1e-30, 0.25, 1, 2.5, 10, 80, 1e30, np.inf, np.nan])
    e = d(x)
    for name, f in (('neg', lambda v: -v), ('abs', np.abs), ('exp', np.exp), ('log', np.log), ('sqrt', np.sqrt),
                    ('sigmoid', sigmoid), ('tanh', np.tanh), ('sin', np.sin), ('cos', np.cos),
                    ('erf', lambda v: torch.erf(t64(v)).numpy()), ('floor', np.floor), ('trunc', np.trunc),
                    ('round', np.rint), ('relu', lambda v: np.where(v < 0, 0, v))):
        good(name, [x], '%s(@0)' % name, f(e))
    pairs = [g.reshape(-1).astype(np.float32) for g in np.meshgrid(x[1:15:2], [-np.inf, -2, -1, 0, 0.5, 1, 3, np.nan])]
    u, v = pairs
    for name, symbol, f in (('add', '+', np.add), ('sub', '-', np.subtract), ('mul', '*', np.multiply),
                            ('div', '/', np.divide), ('min', '', np.minimum), ('max', '', np.maximum),
                            ('lt', '<', np.less), ('le', '<=', np.less_equal), ('gt', '>', np.greater),
                            ('ge', '>=', np.greater_equal), ('eq', '==', np.equal), ('ne', '!=', np.not_equal)):
        want = f(d(u), d(v)).astype(np.float64)
        good(name, [u, v], '%s(@0, @1)' % name, want)
        if symbol:
            good(name + '_infix', [u, v], '@0%s@1' % symbol, want)
    base, power = (g.reshape(-1).astype(np.float32) for g in np.meshgrid([0, 0.5, 1, 2.25, 9], [-2, -0.5, 0, 0.5, 1, 2, 3.5]))
    good('pow', [base, power], 'pow(@0, @1)', d(base) ** d(power))
    good('pow_infix', [base, power], '@0^@1', d(base) ** d(power))
    a, b, w = c.f(3, 4), c.f(3, 4), c.f(3, 4)
    A, B, W = d(a), d(b), d(w)
    good('square', [a], '@0^2', A ** 2)
    good('where', [w, a, b], 'where(@0, @1, @2)', np.where(W > 0, A, B))
    good('where_comparison', [a, b], 'where(@0 < @1, @0, @1)', np.minimum(A, B))
    good('where_numbers', [a], 'where(@0, 1, -1)', np.where(A > 0, 1.0, -1.0))
    good('where_nan_is_false', [np.float32([np.nan, 1])], 'where(@0, 1, 2)', np.float64([2, 1]))
    mask = np.int32([[1], [0], [-1]])
    for k in (1, -1):
        good('where_one_condition_%s' % ('true' if k > 0 else 'false'), [np.float32([[k]]), a, b],
             'where(@0, @1*2, @2*3) + (@1*4 + @2*5) + where(@0, @1*2, 7)',
             (A * 2 if k > 0 else B * 3) + (A * 4 + B * 5) + (A * 2 if k > 0 else 7))
    good('repeated_parts', [a, b], '(@0-@1)*(@0-@1) + exp(@0-@1) / (1 + exp(@0-@1)) - abs(@0-@1)*(@1+1)',
         (A - B) ** 2 + sigmoid(A - B) - np.abs(A - B) * (B + 1))
    good('repeated_numbers', [a], '@0*(2*3+1) + (2*3+1)', A * 7 + 7)
    many = c.f(5, 3, 2, 4)
    good('repeated_rows', [many, c.f(5, 1, 1, 4) * 0 + 1.5, c.f(1, 3, 2, 1) * 0 + 2, c.f(2, 4) * 0 + 3], '@0*@1+@2*@3',
         d(many) * 1.5 + 6)
    tall, short, wide = c.f(3, 1, 20), c.f(1, 90, 20), c.f(3, 90, 1)
    good('tiles_within_a_block', [tall, short, wide], '(@0-@1)*@2', (d(tall) - d(short)) * d(wide))
    good('int_rows', [np.arange(60).reshape(3, 20).astype(np.int32), np.arange(9).reshape(3, 3, 1)[:, :, :].astype(np.int64)],
         '@0 + 100*@1', (np.arange(60).reshape(3, 20) + 100 * np.arange(9).reshape(3, 3, 1)).astype(np.float64))
    good('where_int32', [mask, a], 'where(@0, @1, 0)', np.where(mask > 0, A, 0.0))
    good('int64', [np.int64([1, -7, 1 << 20])], '@0 * 2', np.float64([2, -14, 1 << 21]))
    for name, text, want in (
            ('precedence', '1 + 2 * @0 ^ 2 / 4 - @1', 1 + 2 * A ** 2 / 4 - B),
            ('left_to_right', '@0 - @1 - 3 / 2 / 2', A - B - 0.75),
            ('power_to_the_right', '2 ^ 3 ^ 2 + 0 * (@0 + @1)', 512 + 0 * A),
            ('sign_under_power', '-2^2 + 0*@0 + 0*@1', -4 + 0 * A),
            ('sign_in_exponent', '2^-1 + 0*@0 + 0*@1', 0.5 + 0 * A),
            ('signs', '--@0 - -@1 + +@0', A + B + A),
            ('comparison_is_weakest', '@0 + 1 > @1 * 2', (A + 1 > B * 2).astype(np.float64)),
            ('comparisons_left_to_right', '@0 < @1 < 0.5', ((A < B).astype(float) < 0.5).astype(np.float64)),
            ('brackets', '((@0)) * (1 - (@1 + @0))', A * (1 - (B + A))),
            ('numbers', '@0 * 1e-1 + .5 + 2. + 1.25E+2 + @1', A * 0.1 + 127.5 + B),
            ('spaces', '  @0\\t+ \\n mul ( @1 ,2 ) ', A + B * 2),
            ('nested_calls', 'max(min(@0, 0.5), neg(abs(@1)))', np.maximum(np.minimum(A, 0.5), -np.abs(B))),
            ('swish', '@0 / (1 + exp(-@0)) + 0 * @1', A / (1 + np.exp(-A)) + 0 * A),
            ('same_input_often', '@0*@0 + @0*@0*@1 - @0', A * A + A * A * B - A)):
        good(name, [a, b], text, want)
    good('alone', [a], '@0', A)
    good('deep', [a], '(' * 200 + '@0' + ')' * 200, A)
    good('long_chain', [a], '+'.join(['@0'] * 3000), 3000 * A, tolerance=1e-4)
    good('long_run', [c.f(2, 3000) * 0 + np.float32(np.arange(3000)), np.float32([[2], [3]])], 'tanh(@0/1000)+@1',
         np.tanh(np.arange(3000) / 1000) + np.float64([[2], [3]]))
    good('scalars_only', [c.f() * 0 + 3, np.float32([4])], '@0*@1+1', np.float64([13]))
    long, row, column, one = c.f(70, 2, 13), c.f(2, 1), c.f(70, 1, 13), c.f(1)
    good('short_runs', [long, row, column, one], '(@0+@1)*@2-@3', (d(long) + d(row)) * d(column) - d(one))
    rows, many = c.f(3, 200), c.f(200)
    good('medium_runs', [rows, many, c.f(3, 1) * 0 + 2], '@0*@1+@2', d(rows) * d(many) + 2)
    good('rank_5', [c.f(2, 1, 2, 1, 3) * 0 + 1, c.f(1, 3, 1, 2, 1) * 0 + 2], '@0-@1', -np.ones((2, 3, 2, 2, 3)))
    good('zero_rows', [c.f(0, 3), c.f(1, 3)], '@0+@1', np.zeros((0, 3)))

    def bad(name, text, error, inputs=None, param=None):
        c.bad('expression_rejects_' + name, t, [a, b] if inputs is None else inputs, error,
              p(text) if param is None else param, source=FRAMEWORK)

    known = ('known are add, sub, mul, div, pow, min, max, lt, le, gt, ge, eq, ne, neg, abs, exp, log, sqrt, sigmoid, tanh, '
             'sin, cos, erf, floor, trunc, round, relu, where')
    where = lambda column, what, text, caret: 'expression_param.expression: column %d: %s\n  %s\n  %s^' % (
        column, what, text, ' ' * caret)
    for name, text, column, what in (
            ('an_unknown_function', 'add(@0,mull(@0,@1))', 8, 'unknown function "mull" (%s)' % known),
            ('a_name_alone', '@0 + x', 6, 'unknown function "x" (%s)' % known),
            ('an_input_that_is_not_there', '@0 + @7', 6, 'there is no input @7, the layer has @0 to @1'),
            ('a_huge_input', '@0 + @99999999999', 6, 'want the number of an input after "@"'),
            ('an_input_without_number', '@0 + @', 6, 'want the number of an input after "@"'),
            ('an_open_bracket', '@0 * (@1 + 2', 6, '"(" without its ")"'),
            ('an_open_call', 'add(@0, @1', 4, '"(" without its ")"'),
            ('a_closing_bracket', '@0 + @1)', 8, '")" without its "("'),
            ('an_empty_text', '', 1, 'the expression ends where an operand should be'),
            ('a_missing_operand', '@0 + ', 6, 'the expression ends where an operand should be'),
            ('two_operators', '@0 * / @1', 6, 'want an operand here'),
            ('two_operands', '@0 @1', 4, 'want an operator or the end here'),
            ('two_operands_in_brackets', '(@0 @1)', 5, 'want ")" or an operator here'),
            ('too_few_operands', 'add(@0) + @1', 1, 'add has 1 operand, want 2'),
            ('no_operands', 'add() + @1', 1, 'add has 0 operands, want 2'),
            ('too_many_operands', '@1 + relu(@0, 1)', 6, 'relu has 2 operands, want 1'),
            ('a_function_without_brackets', 'relu @0', 6, 'want "(" after "relu"'),
            ('a_strange_character', '@0 + $', 6, 'unexpected character'),
            ('one_equal_sign', '@0 = @1', 4, 'want "=="'),
            ('a_huge_number', '@0 + 1e39', 6, 'this number is beyond the range of float32')):
        bad(name, text, where(column, what, text, column - 1))
    deep = '(' * 10000 + '@0' + ')' * 10000
    bad('ten_thousand_brackets', deep, where(257, 'nested more than 256 deep', '(' * 80, 60), [a])
    bad('ten_thousand_signs', '-' * 10000 + '@0', where(257, 'nested more than 256 deep', '-' * 80, 60), [a])
    bad('a_tower_of_powers', '2^' * 10000 + '@0', where(513, 'nested more than 256 deep', '2^' * 40, 60), [a])
    bad('a_text_without_end', '+'.join(['@0'] * 30000),
        'expression_param.expression: 89999 bytes, want at most 65536', [a])
    bad('an_unused_bottom', '@0', 'bottom 1 "x1": not used, want @1 in expression_param.expression')
    bad('shapes', '@0+@1', 'input 1: shapes [3, 4] and [3, 3] do not broadcast', [a, c.f(3, 3)])
    bad('no_param', '', 'has no expression_param, want one with an expression', param='')


def top_k(c):
    t = 'top_k_layer'

    def case(name, x, k, axis, smallest=False):
        values, places = torch.sort(t64(x), stable=True, dim=axis, descending=not smallest)
        best = [y.narrow(axis, 0, k).float().numpy() for y in (values, places)]
        c.good('top_k_' + name, t, [x], best,
               'top_k_param { k: %d axis: %d%s }' % (k, axis, ' smallest: true' if smallest else ''))

    for n in ROWS:
        case('last_axis_%d' % n, c.f(n, 7), 3, 1)
        case('smallest_%d' % n, c.f(n, 5, 3), 2, 1, True)
    case('all_of_an_axis', c.f(2, 3, 6, 2), 6, 2)
    case('one', c.f(4, 1), 1, 1)
    case('more_columns_than_lanes', c.f(2, 3, 20), 2, 1)
    case('equal_entries', np.float32([[2, 1, 2, 2, 1], [0, 0, 0, 0, 0]]), 4, 1)
    case('equal_entries_smallest', np.float32([[2, 1, 2, 2, 1], [0, -0.0, 0, 0, 0]]), 4, 1, True)
    case('infinities', np.float32([[-np.inf, 3, np.inf, -np.inf]]), 4, 1)
    case('rows', c.f(5, 2), 2, 0)
    case('zero_rows', c.f(0, 4), 2, 1)
    for name, param, error in [
            ('k_0', 'k: 0', 'top_k_param.k: 0, want 1 or more'),
            ('a_negative_axis', 'k: 1 axis: -1', 'top_k_param.axis: -1, want 0 or more'),
            ('axis', 'k: 1 axis: 2', 'top_k_param.axis: 2, want an axis of input 0: shape [2, 3]'),
            ('a_short_axis', 'k: 4', 'input 0: shape [2, 3], want at least 4 entries along axis 1')]:
        c.bad('top_k_rejects_' + name, t, [c.f(2, 3)], error, 'top_k_param { %s }' % param, source=FRAMEWORK, tops=2)
    c.bad('top_k_rejects_int32', t, [np.ones((2, 3), np.int32)], 'input 0: int32, want float32', source=FRAMEWORK, tops=2)


def best(c):
    """The best entry alone, which is found by another way."""
    t = 'top_k_layer'

    def case(name, x, axis, smallest=False):
        place = np.expand_dims((np.argmin if smallest else np.argmax)(x, axis), axis)
        c.good('top_1_' + name, t, [x], [np.take_along_axis(x, place, axis), place.astype(np.float32)],
               'top_k_param { axis: %d%s }' % (axis, ' smallest: true' if smallest else ''), source='numpy')

    for smallest in (False, True):
        more = '_smallest' if smallest else ''
        case('short_rows' + more, c.f(19, 5), 1, smallest)
        case('rows' + more, c.f(19, 37), 1, smallest)
        case('long_rows' + more, c.f(3, 2, 150), 2, smallest)
        case('columns' + more, c.f(3, 37, 5), 1, smallest)
        case('many_columns' + more, c.f(2, 18, 85), 1, smallest)
        case('equal_entries' + more, np.float32([[2, 1, 2, 1], [0, -0.0, 0, 0], [np.inf] * 4, [-np.inf] * 4]), 1, smallest)
    c.good('top_1_of_what_is_no_number', t, [np.float32([[np.nan, -np.inf, 3], [np.nan] * 3])],
           [np.float32([[3], [np.nan]]), np.float32([[2], [0]])], 'top_k_param { axis: 1 }', source=NUMPY)


def layer_norm(c):
    t = 'layer_norm_layer'

    def case(name, x, eps=1e-5, centred=True, weights=0):
        x64 = t64(x)
        n = x.shape[-1]
        scale, shift = c.f(n), c.f(n)
        mean = x64.mean(-1, keepdim=True) if centred else 0
        y = (x64 - mean) / ((x64 - mean).square().mean(-1, keepdim=True) + float(np.float32(eps))).sqrt()
        if weights > 0:
            y = y * t64(scale)
        if weights > 1:
            y = y + t64(shift)
        c.good('layer_norm_' + name, t, [x], y.numpy(),
               'layer_norm_param { eps: %g%s }' % (eps, '' if centred else ' centred: false'),
               weights=[scale, shift][:weights])

    for n in ROWS:
        case('rows_%d' % n, c.f(n, 7), weights=2)
        case('steps_%d' % n, c.f(n, 3, 16), weights=2)
    case('plain', c.f(3, 2, 20))
    case('scale_alone', c.f(3, 5), weights=1)
    case('rms', c.f(3, 4, 9), 1e-6, False, 1)
    case('four_dimensions', c.f(2, 3, 2, 5), 1e-3, weights=2)
    case('equal_values', np.full((2, 6), 3, np.float32), 1e-3)
    case('far_from_0', c.f(3, 8) + np.float32(1000), 1e-5)
    case('zero_rows', c.f(0, 4), weights=2)
    for name, x, param, weights, error in [
            ('a_negative_eps', c.f(2, 3), 'eps: -1', 0, 'layer_norm_param.eps: -1, want 0 or more'),
            ('one_dimension', c.f(3), 'eps: 1', 0, 'input 0: shape [3], want rank 2 or more'),
            ('another_width', c.f(2, 3), 'eps: 1', [c.f(4)],
             'input 0: shape [2, 3], want a last dimension of 4 (the size of weight 0)'),
            ('another_shift', c.f(2, 3), 'eps: 1', [c.f(3), c.f(2)], 'weight 1: shape [2], want 3 values, as weight 0'),
            ('int32', np.ones((2, 3), np.int32), 'eps: 1', 0, 'input 0: int32, want float32')]:
        c.bad('layer_norm_rejects_' + name, t, [x], error, 'layer_norm_param { %s }' % param,
              source=FRAMEWORK, weights=weights or ())


def take(c):
    t = 'take_layer'

    def case(name, x, index, axis):
        at = torch.from_numpy(index.astype(np.int64))
        y = torch.take_along_dim(t64(x), torch.where(at < 0, at + x.shape[axis], at), axis)
        c.good('take_' + name, t, [x, index], y.float().numpy(), 'take_param { axis: %d }' % axis)

    def places(n, *shape):
        return c.rng.integers(-n, n, shape).astype(np.float32)

    for n in ROWS:
        case('last_axis_%d' % n, c.f(n, 6), places(6, n, 4), 1)
        case('for_all_behind_%d' % n, c.f(n, 5, 3), places(5, n, 2, 1), 1)
    case('each_behind', c.f(2, 5, 3), places(5, 2, 4, 3), 1)
    case('of_axis_2', c.f(2, 3, 5, 2), places(5, 2, 3, 4, 1), 2)
    case('one_row_of_values', c.f(1, 5, 3), places(5, 4, 2, 1), 1)
    case('one_row_of_places', c.f(4, 5, 3), places(5, 1, 2, 3), 1)
    case('zero_rows', c.f(0, 5), places(5, 0, 2), 1)
    c.good('take_of_no_place', t, [np.float32([[1, 2, 3]]), np.float32([[3, -4, np.nan, np.inf, -3]])],
           np.float32([[0, 0, 0, 0, 1]]), source=NUMPY)
    fits = 'input 1: shape [%s], want one that fits input 0: shape [2, 5, 3]'
    for name, index, param, error in [
            ('rows', places(5, 3, 4, 3), '', fits % '3, 4, 3'),
            ('steps', places(5, 2, 4, 2), '', fits % '2, 4, 2'),
            ('another_rank', places(5, 2, 4), '', 'input 1: shape [2, 4], want rank 3'),
            ('axis_0', places(5, 2, 4, 3), 'axis: 0', 'take_param.axis: 0, want 1 or more'),
            ('axis', places(5, 2, 4, 3), 'axis: 3', 'take_param.axis: 3, want an axis of input 0: shape [2, 5, 3]'),
            ('int32', np.zeros((2, 4, 3), np.int32), '', 'input 1: int32, want float32')]:
        c.bad('take_rejects_' + name, t, [c.f(2, 5, 3), index], error, 'take_param { %s }' % param, source=FRAMEWORK)


def scatter(c):
    t = 'scatter_layer'

    def case(name, x, index, update, axis=1, add=False):
        y = np.array(np.broadcast_to(x, (max(len(x), len(index), len(update)), *x.shape[1:])), np.float64)
        shape = (len(y), *x.shape[1:axis], index.shape[axis], *x.shape[axis + 1:])
        at, values = np.broadcast_to(index, shape).astype(int), np.broadcast_to(update, shape)
        for place in np.ndindex(*shape):  # In order: of several for a place the last one stays.
            to = (*place[:axis], at[place], *place[axis + 1:])
            y[to] = values[place] + (y[to] if add else 0)
        c.good(('scatter_add_' if add else 'scatter_') + name, 'scatter_add_layer' if add else t, [x, index, update],
               y.astype(np.float32), 'take_param { axis: %d }' % axis, source=NUMPY)

    def places(n, *shape):
        return c.rng.integers(-n, n, shape).astype(np.float32)

    for n in ROWS:
        case('last_axis_%d' % n, c.f(n, 6), places(6, n, 4), c.f(n, 4))
        for add in (False, True):
            case('for_all_behind_%d' % n, c.f(n, 5, 3), places(5, n, 2, 1), c.f(n, 2, 3), add=add)
    case('each_behind', c.f(2, 5, 3), places(5, 2, 4, 3), c.f(2, 4, 3))
    case('more_than_there_are', c.f(2, 3), places(3, 2, 70), c.f(2, 70), add=True)
    case('of_axis_2', c.f(2, 3, 5, 2), places(5, 2, 3, 4, 1), c.f(2, 3, 4, 2), 2)
    case('one_row_of_x', c.f(1, 5, 3), places(5, 4, 2, 1), c.f(4, 2, 3))
    case('one_row_of_places', c.f(4, 5), places(5, 1, 2), c.f(4, 2), add=True)
    case('one_row_of_values', c.f(4, 5), places(5, 4, 2), c.f(1, 2))
    case('no_entries', c.f(3, 5), c.f(3, 0), c.f(3, 0))
    case('zero_rows', c.f(0, 5), places(5, 0, 2), c.f(0, 2))
    c.good('scatter_to_no_place', t, [np.float32([[1, 2, 3]]), np.float32([[3, -4, np.nan, np.inf, -3]]),
                                      np.float32([[4, 5, 6, 7, 8]])], np.float32([[8, 2, 3]]), source=NUMPY)
    fits = 'want one that fits input 0: shape [2, 5, 3]'
    for name, index, update, param, error in [
            ('rows', (3, 4, 3), (3, 4, 3), '', 'input 1: shape [3, 4, 3], ' + fits),
            ('steps', (2, 4, 2), (2, 4, 3), '', 'input 1: shape [2, 4, 2], ' + fits),
            ('other_values', (2, 4, 1), (2, 3, 3), '', f'input 2: shape [2, 3, 3], {fits}, and input 1: shape [2, 4, 1]'),
            ('narrow_values', (2, 4, 1), (2, 4, 1), '', f'input 2: shape [2, 4, 1], {fits}, and input 1: shape [2, 4, 1]'),
            ('another_rank', (2, 4), (2, 4, 3), '', 'input 1: shape [2, 4], want rank 3'),
            ('axis_0', (2, 4, 3), (2, 4, 3), 'axis: 0', 'take_param.axis: 0, want 1 or more'),
            ('axis', (2, 4, 3), (2, 4, 3), 'axis: 3', 'take_param.axis: 3, want an axis of input 0: shape [2, 5, 3]')]:
        c.bad('scatter_rejects_' + name, t, [c.f(2, 5, 3), places(5, *index), c.f(*update)], error,
              'take_param { %s }' % param, source=FRAMEWORK)
    c.bad('scatter_rejects_int32', t, [c.f(2, 5), np.zeros((2, 4), np.int32), c.f(2, 4)],
          'input 1: int32, want float32', source=FRAMEWORK)
    c.bad('scatter_add_rejects_axis_0', 'scatter_add_layer', [c.f(2, 5), c.f(2, 4), c.f(2, 4)],
          'take_param.axis: 0, want 1 or more', 'take_param { axis: 0 }', source=FRAMEWORK)


class Forest:
    """Random trees as weights of trees_layer, and a walk down them by the definition."""

    def __init__(self, rng, trees, depth, features, outputs, each=False, missing=False):
        self.rng, self.features, self.missing = rng, features, missing
        self.splits, self.leaves, self.trees = [], [], []  # A split: feature, threshold, then, else, missing.
        self.outputs, self.width = outputs, 1 if each else outputs
        for i in range(trees):
            self.trees.append((self.grow(depth if i else 0), i % outputs if each else 0))
        self.base = rng.standard_normal(outputs).astype(np.float32)

    def grow(self, depth):
        """('leaf', number) or ('split', number); a split comes after what follows it."""
        if depth == 0 or self.rng.random() < 0.2:
            self.leaves.append(self.rng.standard_normal(self.width).astype(np.float32))
            return 'leaf', len(self.leaves) - 1
        sides = self.grow(depth - 1), self.grow(depth - 1)
        self.splits.append((int(self.rng.integers(self.features)), np.float32(self.rng.integers(-3, 4) / 2), *sides,
                            self.missing and self.rng.random() < 0.5))
        return 'split', len(self.splits) - 1

    def weights(self):
        n = len(self.splits)

        def place(at):
            return n + at[1] if at[0] == 'leaf' else n - 1 - at[1]

        nodes = [(f, t, place(holds), place(fails), m) for f, t, holds, fails, m in reversed(self.splits)]
        return [np.float32(nodes), np.float32([(place(root), to) for root, to in self.trees]), np.stack(self.leaves),
                self.base]

    def sums(self, x):
        y = np.tile(self.base.astype(np.float64), (len(x), 1))
        for row, sums in zip(x, y):
            for at, to in self.trees:
                while at[0] == 'split':
                    f, t, holds, fails, missing = self.splits[at[1]]
                    at = holds if row[f] <= t or (missing and np.isnan(row[f])) else fails
                sums[to:to + self.width] += self.leaves[at[1]]
        return y


def trees(c):
    t = 'trees_layer'
    rng = np.random.default_rng(17)  # Of its own: cases of others stay.

    def case(name, rows, forest, width=None, missing=False):
        x = rng.integers(-4, 5, (rows, width or forest.features)).astype(np.float32) / 2
        if missing:
            x[rng.random(x.shape) < 0.4] = np.nan
        c.good('trees_' + name, t, [x], forest.sums(x), '', forest.weights(), source=NUMPY)

    for n in ROWS:
        case('one_output_%d' % n, n, Forest(rng, 7, 4, 5, 1))
        case('an_output_each_%d' % n, n, Forest(rng, 6, 3, 4, 3, each=True))
        case('all_outputs_%d' % n, n, Forest(rng, 5, 3, 4, 2))
        case('missing_%d' % n, n, Forest(rng, 9, 4, 3, 1, missing=True), missing=True)
    case('more_columns_than_it_reads', 5, Forest(rng, 20, 3, 3, 1), width=6)
    case('more_columns_and_missing', 5, Forest(rng, 20, 3, 3, 1, missing=True), width=6, missing=True)
    case('nothing_holds_of_nan', 5, Forest(rng, 20, 3, 3, 1), missing=True)
    case('zero_rows', 0, Forest(rng, 3, 3, 3, 1))
    case('more_rows_than_at_once', 300, Forest(rng, 3, 3, 1, 1))
    nodes, roots, leaves, base = np.float32([[0, 1, 1, 2, 0], [1, 0, 2, 3, 1]]), [[0, 0]], np.ones((2, 1)), np.zeros(1)
    ends = np.float32([[0, np.inf, 1, 2, 0], [1, -np.inf, 2, 3, 1]])
    x = np.float32([[np.inf, -np.inf], [np.nan, np.nan], [np.inf, np.inf], [-np.inf, np.nan]])
    c.good('trees_infinities', t, [x], np.float32([[1], [1], [2], [1]]), '', [ends, roots, [[1], [2]], base], source=NUMPY)

    def changed(row, column, value):
        other = nodes.copy()
        other[row, column] = value
        return [other, roots, leaves, base]

    whole = 'weight 0: %s in row %d, column %d, want a whole number from %d to %d'
    for name, weights, error in [
            ('four_columns', [nodes[:, :4], roots, leaves, base], 'weight 0: shape [2, 4], want [nodes, 5]'),
            ('no_nodes', [nodes[:0], roots, leaves, base], 'weight 0: shape [0, 5], want [nodes, 5]'),
            ('a_flat_weight', [nodes, [0], leaves, base], 'weight 1: shape [1], want [trees, 2]'),
            ('flat_leaves', [nodes, roots, [1, 1], base], 'weight 2: shape [2], want [leaves, outputs]'),
            ('a_base_of_rank_2', [nodes, roots, leaves, [[0]]], 'weight 3: shape [1, 1], want [outputs]'),
            ('wide_leaves', [nodes, roots, np.ones((2, 2)), base],
             'weight 2: shape [2, 2], want at most 1 columns, as outputs'),
            ('a_feature_below_0', changed(0, 0, -1), whole % ('-1', 0, 0, 0, 1048576)),
            ('half_a_feature', changed(1, 0, 0.5), whole % ('0.5', 1, 0, 0, 1048576)),
            ('a_threshold', changed(1, 1, np.nan), 'weight 0: NaN in row 1, column 1, want a threshold'),
            ('a_cycle', changed(1, 2, 0), whole % ('0', 1, 2, 2, 3)),
            ('a_node_before', changed(1, 3, 1), whole % ('1', 1, 3, 2, 3)),
            ('no_place', changed(0, 3, 4), whole % ('4', 0, 3, 1, 3)),
            ('nan_as_a_place', changed(0, 2, np.nan), whole % ('nan', 0, 2, 1, 3)),
            ('a_flag', changed(0, 4, 2), whole % ('2', 0, 4, 0, 1)),
            ('a_root', [nodes, [[4, 0]], leaves, base],
             'weight 1: 4 in row 0, column 0, want a whole number from 0 to 3'),
            ('an_output', [nodes, [[0, 1]], leaves, base],
             'weight 1: 1 in row 0, column 1, want a whole number from 0 to 0')]:
        c.bad('trees_rejects_' + name, t, [c.f(2, 2)], error, '', weights, source=FRAMEWORK)
    weights = [nodes, roots, leaves, base]
    c.bad('trees_rejects_a_narrow_row', t, [c.f(3, 1)], 'input 0: shape [3, 1], want at least 2 columns', '', weights,
          source=FRAMEWORK)
    c.bad('trees_rejects_rank_3', t, [c.f(3, 2, 2)], 'input 0: shape [3, 2, 2], want rank 2', '', weights,
          source=FRAMEWORK)
    c.bad('trees_rejects_int32', t, [np.ones((3, 2), np.int32)], 'input 0: int32, want float32', '', weights,
          source=FRAMEWORK)


def conv_of_whole_rows(c):
    t = 'convolution_layer'
    for name, rows, size, kernel, out, stride in [
            ('1', 1, (6, 4), (2, 4), 8, 1), ('3', 3, (6, 4), (2, 4), 8, 1), ('64', 64, (5, 3), (3, 3), 2, 1),
            ('stride_2', 2, (7, 4), (2, 4), 5, 2), ('one_window', 2, (3, 16), (3, 16), 4, 1)]:
        x, w, b = c.f(rows, 1, *size), c.f(out, 1, *kernel), c.f(out)
        param = 'convolution_param { stride: %d stride: 1 }' % stride
        c.good('convolution_whole_rows_' + name, t, [x], F.conv2d(t64(x), t64(w), t64(b), (stride, 1)).numpy(), param,
               [w, b])
    x, w = c.f(2, 1, 6, 4), c.f(3, 1, 2, 4)
    c.good('convolution_whole_rows_without_bias', t, [x], F.conv2d(t64(x), t64(w)).numpy(),
           'convolution_param { bias_term: false }', [w])


def conv_of_lines(c):
    """Of several vectors and parts of one, with and without padding, strides and dilation."""
    t = 'convolution_layer'
    for i, (rows, channels, size, kernel, out, stride, pad, dilation) in enumerate((
            (2, 1, (5, 16), (3, 3), 1, (1, 1), (0, 0), (1, 1)), (2, 3, (1, 37), (1, 3), 9, (1, 1), (0, 1), (1, 1)),
            (2, 4, (1, 50), (1, 2), 8, (1, 1), (0, 3), (1, 4)), (1, 2, (40, 1), (3, 1), 12, (1, 1), (0, 0), (1, 1)),
            (3, 1, (9, 18), (4, 1), 3, (1, 1), (3, 0), (1, 1)), (2, 2, (6, 35), (2, 3), 5, (2, 2), (1, 1), (1, 1)),
            (2, 2, (4, 41), (1, 4), 17, (1, 3), (0, 2), (1, 2)), (1, 5, (3, 7), (3, 3), 4, (1, 1), (1, 1), (1, 1)),
            (2, 16, (1, 32), (1, 3), 16, (1, 1), (0, 1), (1, 1)), (2, 20, (3, 4), (1, 1), 18, (1, 1), (0, 0), (1, 1)))):
        x, w, b = c.f(rows, channels, *size), c.f(out, channels, *kernel), c.f(out)
        two = lambda field, v: '%s: %d %s: %d' % (field, v[0], field, v[1])
        param = ' '.join((two('stride', stride), two('pad', pad), two('dilation', dilation)))
        y = F.conv2d(t64(x), t64(w), t64(b), stride, pad, dilation)
        c.good('convolution_line_%d' % i, t, [x], y.numpy(), 'convolution_param { %s }' % param, [w, b])


def pooling_of_lines(c):
    """Of several vectors, with and without places behind the last window."""
    t = 'max_pooling_layer'
    for size, stride, pad in ((2, 1, 0), (3, 1, 1), (2, 2, 0), (3, 2, 1), (5, 2, 0), (4, 3, 1)):
        window = (1, size), (1, stride), (0, pad)
        p = 'kernel_size: 1 kernel_size: %d stride: 1 stride: %d pad: 0 pad: %d' % (size, stride, pad)
        for width in (36, 37):
            name = '%d_%d_%d' % (size, stride, width)
            x = c.f(1, 2, 2, width)
            c.good('pooling_line_max_' + name, t, [x], F.max_pool2d(t64(x), *window).numpy(), 'pooling_param { %s }' % p)
            c.good('pooling_line_average_' + name, t, [x], F.avg_pool2d(t64(x), *window).numpy(),
                   'pooling_param { %s pool: AVE }' % p)
    # Rows of several images, whose windows end where the row does, or before.
    for size, stride in ((2, 1), (2, 2), (3, 3), (2, 3), (5, 3), (4, 4), (5, 4), (5, 5)):
        p = 'kernel_size: 1 kernel_size: %d stride: 1 stride: %d' % (size, stride)
        for width in (3 * stride + size, 9 * stride + size + 1, 60):
            x = c.f(2, 3, 1, width)
            c.good('pooling_rows_%d_%d_%d' % (size, stride, width), t, [x],
                   F.max_pool2d(t64(x), (1, size), (1, stride)).numpy(), 'pooling_param { %s }' % p)


def lstm(c):
    t = 'lstm_layer'

    def weights(n, k):
        return [c.f(n, 4 * n), c.f(k, 4 * n), c.f(4 * n), c.f(4 * n)]

    for name, rows, steps, k, n in (('1', 1, 4, 3, 3), ('3', 3, 5, 4, 2), ('64', 64, 3, 2, 5), ('one_unit', 2, 3, 1, 1),
                                    ('many_units', 2, 6, 7, 37), ('one_step', 3, 1, 4, 4)):
        x, ws = c.f(rows, steps, k), weights(n, k)
        net = torch.nn.LSTM(k, n, batch_first=True).double()
        with torch.no_grad():
            for to, w in zip((net.weight_hh_l0, net.weight_ih_l0, net.bias_hh_l0, net.bias_ih_l0), ws):
                to.copy_(t64(w.T))
            c.good('lstm_' + name, t, [x], net(t64(x))[0].numpy(), '', ws)
    ws = weights(3, 4)
    c.good('lstm_zero_rows', t, [c.f(0, 2, 4)], c.f(0, 2, 3), '', ws)
    c.good('lstm_zero_steps', t, [c.f(2, 0, 4)], c.f(2, 0, 3), '', ws)
    for name, x, ws, error in (
            ('width', c.f(2, 3, 5), ws, 'input 0: shape [2, 3, 5], want last dimension 4 (the rows of i2h)'),
            ('rank', c.f(3, 4), ws, 'input 0: shape [3, 4], want rank 3'),
            ('h2h', c.f(2, 3, 4), [c.f(3, 9)] + ws[1:],
             'weight 0: shape [3, 9], want [n, 4*n] (h2h: input, forget, candidate, output)'),
            ('i2h', c.f(2, 3, 4), [ws[0], c.f(4, 9)] + ws[2:],
             'weight 1: shape [4, 9], want [k, 12] (i2h) for x of width k'),
            ('bias', c.f(2, 3, 4), ws[:3] + [c.f(8)], 'weight 3: shape [8], want 12 values'),
            ('three_weights', c.f(2, 3, 4), ws[:3], '3 weights, want 4')):
        c.bad('lstm_rejects_' + name, t, [x], error, '', ws, source=FRAMEWORK)


def lstm_states(c):
    """From other states than zeros."""
    t = 'lstm_layer'
    for name, rows, states in (('states', 3, (3, 3)), ('state_of_one_row', 3, (1, 3)), ('state_h_alone', 50, (50,)),
                               ('states_of_more_rows', 1, (4, 1))):
        x, ws, first = c.f(rows, 4, 3), [c.f(5, 20), c.f(3, 20), c.f(20), c.f(20)], [c.f(n, 5) for n in states]
        net = torch.nn.LSTM(3, 5, batch_first=True).double()
        with torch.no_grad():
            for to, w in zip((net.weight_hh_l0, net.weight_ih_l0, net.bias_hh_l0, net.bias_ih_l0), ws):
                to.copy_(t64(w.T))
            all_rows = max(rows, *states)
            h, c0 = [t64(f).expand(all_rows, 5)[None].contiguous() for f in first + [c.f(1, 5) * 0] * (2 - len(first))]
            y = net(t64(x).expand(all_rows, 4, 3), (h, c0))[0]
        c.good('lstm_' + name, t, [x] + first, y.numpy(), '', ws)
    ws = [c.f(3, 12), c.f(4, 12), c.f(12), c.f(12)]
    for name, state, error in (
            ('state_width', c.f(2, 4), 'input 1: shape [2, 4], want last dimension 3 (the hidden width)'),
            ('state_rows', c.f(3, 3), 'input 1: shape [3, 3], want the rows of x, 2'),
            ('state_rank', c.f(2, 1, 3), 'input 1: shape [2, 1, 3], want rank 2')):
        c.bad('lstm_rejects_' + name, t, [c.f(2, 3, 4), state], error, '', ws, source=FRAMEWORK)


def rnn(c):
    t = 'rnn_layer'
    for name, rows, k, n in (('1', 1, 3, 3), ('64', 64, 2, 37)):
        x, ws = c.f(rows, 4, k), [c.f(n, n), c.f(k, n), c.f(n), c.f(n)]
        net = torch.nn.RNN(k, n, batch_first=True).double()
        with torch.no_grad():
            for to, w in zip((net.weight_hh_l0, net.weight_ih_l0, net.bias_hh_l0, net.bias_ih_l0), ws):
                to.copy_(t64(w.T))
            c.good('rnn_' + name, t, [x], net(t64(x))[0].numpy(), '', ws)
    c.bad('rnn_rejects_h2h', t, [c.f(2, 3, 4)], 'weight 0: shape [3, 6], want [n, n] (h2h)', '',
          [c.f(3, 6), c.f(4, 3), c.f(3), c.f(3)], source=FRAMEWORK)
    make_layer_cases.recurrent_options(c, 'rnn', 1)
    make_layer_cases.recurrent_options(c, 'lstm', 4)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--out', required=True)
    a = ap.parse_args()
    np.seterr(all='ignore')
    c = Cases(None)
    for family in (conv, pooling, transpose, reverse, reorg, shuffle, upsample, normalize, yolo, prior_box, roi_align,
                   spatial_transformer, expression, top_k, take, conv_of_whole_rows, trees,
                   layer_norm, scatter, best, pooling_of_lines, lstm, conv_of_lines, lstm_states, rnn):
        family(c)
    for layer_type, text in c.files.items():
        with open(os.path.join(a.out, layer_type + '.textproto'), 'w') as f:
            f.write('# Cases of %s, written by tests/make_image_cases.py (%s, %s, numpy %s); see '
                    'tests/testing/layer_case.proto.\n' % (layer_type, PYTORCH, TORCHVISION, np.__version__))
            f.write(text)


if __name__ == '__main__':
    main()
