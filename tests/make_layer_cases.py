#!/usr/bin/python3
"""Writes tests/data/layers/*.textproto, one file per layer type, for tests/engine/layers/layer_cases_test.cc.

  make_layer_cases.py --oracle DIR --out tests/data/layers

Expected values come from the float64 reference interpreter (ulf_ref.py in DIR), never from our own engine; error texts are
written by hand here, and unless a case says that only we refuse, the reference must refuse as well.  The files that it
writes are committed, so that the tests do not need the reference.  Form of a case: tests/testing/layer_case.proto.
"""
import argparse
import atexit
import os
import shutil
import sys
import tempfile

import numpy as np

ROWS = (1, 3, 64)


def f32(*shape, rng):
    return rng.standard_normal(shape).astype(np.float32)


def number(v):
    if np.isnan(v):
        return 'nan'
    if np.isinf(v):
        return 'inf' if v > 0 else '-inf'
    return '%.10g' % v


def array(field, a, name=''):
    a = np.asarray(a)
    kind = {'i4': 'int32', 'i8': 'int64'}.get(a.dtype.str[1:], '')
    head = '  %s {%s%s' % (field, ' name: "%s"' % name if name else '', ' dtype: "%s"' % kind if kind else '')
    dims = ' dims: [%s]' % ', '.join(map(str, a.shape)) if a.ndim else ''
    values = ' values: [%s]' % ', '.join(number(v) for v in a.reshape(-1)) if a.size else ''
    return head + dims + values + ' }\n'


def quote(text):
    return '"%s"' % text.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n')


class Cases:
    def __init__(self, ref):
        self.ref = ref
        self.files = {}  # type -> text
        self.rng = np.random.default_rng(7)

    def f(self, *shape):
        return f32(*shape, rng=self.rng)

    def add(self, name, layer_type, inputs=(), param='', weights=(), error='', notices=(), guide_eps=False,
            tolerance=0, source='ULF guide', ours_only=False, arg_names=(), tops=1, bottoms=None, alias='',
            confs=(), tables=(), expected=None):
        """One case.  `expected` replaces the reference's outputs where those are not what the format says."""
        bottoms = ['x%d' % i for i in range(len(inputs))] if bottoms is None else bottoms
        tops = ['y%d' % i for i in range(tops)]
        text = 'name: "op" type: "%s" %s %s %s' % (alias or layer_type, ' '.join('bottom: "%s"' % b for b in bottoms),
                                                   ' '.join('top: "%s"' % t for t in tops), param)
        out = 'cases {\n  name: "%s"\n  source: %s\n  layer { %s }\n' % (name, quote(source), text)
        weights = [np.asarray(w, np.float32) for w in weights]
        for i, w in enumerate(weights):
            out += array('weights', w, arg_names[i] if arg_names else '')
        for a in inputs:
            out += array('inputs', a)
        for field, files in (('confs', confs), ('tables', tables)):
            for n, t in files:
                out += '  %s { name: "%s" text: %s }\n' % (field, n, quote(t))
        if guide_eps:
            out += '  guide_eps: true\n'
        if tolerance:
            out += '  tolerance: %g\n' % tolerance
        for n in notices:
            out += '  notices: %s\n' % quote(n)
        if error:
            out += '  error: %s\n' % quote(error)
            if not ours_only:
                self.must_refuse(name, layer_type, text, inputs, weights, bottoms)
        else:
            got = expected if expected is not None else self.reference(layer_type, text, inputs, weights, confs, tables,
                                                                       guide_eps)
            for a in got if isinstance(got, list) else [got]:
                out += array('outputs', a)
        self.files[layer_type] = self.files.get(layer_type, '') + out + '}\n'

    def reference(self, layer_type, text, inputs, weights, confs=(), tables=(), guide_eps=False):
        ref = self.ref
        net = ref.ulf_pb2.NetParameter()
        lp = net.layer_params.add()
        ref.text_format.Parse(text, lp)
        ref.need(net.IsInitialized(), 'required fields missing')
        if guide_eps:
            getattr(lp, layer_type.replace('_layer', '_param')).eps = 0.01
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, True)
        for n, t in list(confs) + list(tables):
            with open(os.path.join(folder, n), 'w') as f:
                f.write(t)
        it = ref.Interp(net, {0: weights}, ref.Tables(folder), folder)
        x = [a if a.dtype.kind == 'i' else a.astype(np.float64) for a in map(np.asarray, inputs)]
        w = [a.astype(np.float64) for a in weights]
        return getattr(it, 'op_' + layer_type)(lp, x, w)

    def must_refuse(self, name, layer_type, text, inputs, weights, bottoms):
        try:
            self.reference(layer_type, text, inputs, weights)
        except Exception:  # Whatever the reference trips over is a refusal.
            return
        raise SystemExit('%s: the reference accepts this' % name)


def arithmetic(c):
    f = c.f
    for op in ('add', 'sub', 'multiply', 'div'):
        t = op + '_layer'
        for n in ROWS:
            c.add('%s_same_shape_%d' % (op, n), t, [f(n, 5), f(n, 5)])
            c.add('%s_row_vector_%d' % (op, n), t, [f(n, 5), f(1, 5)])
            c.add('%s_user_history_%d' % (op, n), t, [f(n, 1, 3), f(1, 4, 3)])
        c.add(op + '_column', t, [f(4, 3), f(4, 1)])
        c.add(op + '_column_first', t, [f(4, 1), f(4, 3)])
        c.add(op + '_scalar', t, [f(2, 3), f(1)])
        c.add(op + '_rank_0', t, [f(2, 3), f()])
        c.add(op + '_lower_rank', t, [f(3), f(2, 4, 3)])
        c.add(op + '_both_ways', t, [f(2, 1, 4), f(3, 1)])
        c.add(op + '_middle_axis', t, [f(2, 3, 1, 2), f(2, 1, 4, 2)])
        c.add(op + '_rank_5', t, [f(2, 1, 2, 1, 3), f(1, 3, 1, 2, 1)])
        c.add(op + '_zero_rows', t, [f(0, 3), f(1, 3)])
        c.add(op + '_zero_against_one', t, [f(2, 0), f(2, 1)])
        c.add(op + '_nan_and_infinity', t, [np.float32([np.nan, np.inf, -np.inf, 0, 1]),
                                            np.float32([1, np.inf, 2, 0, 0])])
        c.add(op + '_rejects_mismatch', t, [f(2, 3), f(2, 2)],
              error='input 1: shapes [2, 3] and [2, 2] do not broadcast')
        c.add(op + '_rejects_int32', t, [f(2, 3), np.ones((2, 3), np.int32)],
              error='input 1: int32, want float32', ours_only=True)
        c.add(op + '_rejects_one_bottom', t, [f(2, 3)], error='1 bottom, want 2')
        c.add(op + '_rejects_a_weight', t, [f(2), f(2)], weights=[f(2)], error='1 weight, want 0', ours_only=True)


def parts_of_a_row_repeated(c):
    """One of the operands has a single row, and repeats parts of it."""
    f = c.f
    for op in ('add', 'sub', 'multiply', 'div'):
        c.add(op + '_repeats_parts', op + '_layer', [f(5, 3, 2, 4), f(1, 3, 1, 4)])
        c.add(op + '_repeats_parts_of_the_first', op + '_layer', [f(1, 3, 1, 4), f(5, 3, 2, 4)])
        c.add(op + '_repeats_numbers', op + '_layer', [f(3, 2, 1), f(6, 3, 2, 4)])


def numbers_a_step_apart(c):
    for name, x, offsets in (('whole_rows', c.f(3, 8), (1, 3, 5, 7)), ('rows_with_a_rest', c.f(3, 9), (0, 2, 4, 6)),
                             ('by_three', c.f(3, 8), (1, 4, 7)), ('backwards', c.f(3, 6), (5, 3, 1)),
                             ('unevenly', c.f(3, 8), (0, 2, 5)),
                             ('int64', np.int64([[1 << 40, 2, 3, 4], [5, 6, 7, 1 << 41]]), (1, 3))):
        c.add('slice_a_step_apart_' + name, 'slice_layer', [x], 'slice_param { concat_dim: 0 %s }' % ' '.join(
            'slices { offset: %d shape: 1 }' % offset for offset in offsets))


def where(c):
    f = c.f
    for n in ROWS:
        cond = c.rng.integers(-1, 3, (n, 4)).astype(np.int32)
        c.add('where_same_%d' % n, 'where_layer', [cond, f(n, 4), f(n, 4)])
        c.add('where_mask_of_the_user_%d' % n, 'where_layer',
              [c.rng.integers(0, 2, (1, 6, 1)).astype(np.int32), f(n, 6, 1), f(1, 6, 1)])
    c.add('where_int64_condition', 'where_layer', [np.int64([[1 << 40], [-(1 << 40)], [0]]), f(3, 2), f(3, 2)])
    c.add('where_scalar_b', 'where_layer', [np.int32([[1], [0], [2], [-1]]), f(1, 3), f(1, 1)])
    c.add('where_scalar_a', 'where_layer', [np.int32([[1, 0, 2, -1]]), f(1, 1), f(3, 4)])
    c.add('where_scalar_condition', 'where_layer', [np.int32([[1]]), f(4, 1), f(1, 3)])
    c.add('where_both_scalar', 'where_layer', [np.int32([1, 0, 2]), f(1), f(1)])
    c.add('where_lower_rank', 'where_layer', [np.int32([1, 0]), f(2, 3, 2), f(3, 1)])
    c.add('where_zero_rows', 'where_layer', [np.ones((0, 2), np.int32), f(0, 2), f(1, 2)])
    c.add('where_keeps_nan_out', 'where_layer', [np.int32([1, 0]), np.float32([1, np.nan]), np.float32([np.nan, 2])])
    c.add('where_rejects_float_condition', 'where_layer', [f(2), f(2), f(2)],
          error='input 0 (condition): float32, want int32 or int64')
    c.add('where_rejects_int_values', 'where_layer', [np.int32([1]), np.int32([1]), f(1)], ours_only=True,
          error='input 1: int32, want float32')
    c.add('where_rejects_mismatch', 'where_layer', [np.ones((2, 3), np.int32), f(2, 3), f(2, 2)],
          error='input 2: shapes [2, 3] and [2, 2] do not broadcast')
    c.add('where_rejects_two_bottoms', 'where_layer', [np.int32([1]), f(1)], error='2 bottoms, want 3')


def sums(c):
    f = c.f
    t = 'sum_layer'
    for n in ROWS:
        c.add('sum_default_%d' % n, t, [f(n, 3, 4)])
        c.add('sum_last_axis_%d' % n, t, [f(n, 37)], 'sum_param { dim: 1 }')
    c.add('sum_axis_0', t, [f(5, 3)], 'sum_param { dim: 0 }')
    c.add('sum_axis_2_of_4', t, [f(2, 3, 4, 2)], 'sum_param { dim: 2 }')
    c.add('sum_to_a_scalar', t, [f(7)], 'sum_param { dim: 0 }')
    c.add('sum_of_many_rows', t, [np.full((500, 2), 0.1, np.float32)], 'sum_param { dim: 0 }', tolerance=1e-6)
    c.add('sum_of_nothing', t, [f(2, 0, 3)])
    c.add('sum_zero_rows', t, [f(0, 3)])
    c.add('sum_alias', t, [f(2, 3)], 'sum_param { dim: 1 }', alias='reduce_layer',
          notices=['type "reduce_layer" is read as sum_layer'])
    c.add('sum_first_of_two_axes', t, [f(2, 3, 4)], 'sum_param { dim: 1 dim: 2 }',
          notices=['sum_param.dim lists 2 axes: only the first, 1, is summed (as in Blaze)'])
    c.add('sum_rejects_empty', t, [f(2, 3)], 'sum_param { }', error='sum_param.dim: empty, want one axis')
    c.add('sum_rejects_axis', t, [f(2, 3)], 'sum_param { dim: 2 }',
          error='sum_param.dim: 2, want an axis of input 0: shape [2, 3]')
    c.add('sum_rejects_negative_axis', t, [f(2, 3)], 'sum_param { dim: -1 }', error='sum_param.dim: -1, want 0 or more')
    c.add('sum_rejects_default_axis_of_rank_1', t, [f(3)], error='sum_param.dim: 1, want an axis of input 0: shape [3]')
    c.add('sum_rejects_int32', t, [np.ones((2, 3), np.int32)], error='input 0: int32, want float32', ours_only=True)


SPECIAL = np.float32([0, -0.0, 1e-30, -1e-30, 1e4, -1e4, 88.5, -88.5, 104, -104, 3e38, -3e38, np.inf, -np.inf, np.nan])


def activations(c):
    f = c.f
    for op in ('relu', 'sigmoid', 'tanh'):
        t = op + '_layer'
        tolerance = 0 if op == 'relu' else 1e-6
        for n in ROWS:
            c.add('%s_%d' % (op, n), t, [3 * f(n, 11)], tolerance=tolerance)
        c.add(op + '_special_values', t, [SPECIAL], tolerance=tolerance)
        c.add(op + '_grid', t, [np.linspace(-20, 20, 1201, dtype=np.float32)], tolerance=tolerance)
        c.add(op + '_rank_0', t, [np.float32(0.5)], tolerance=tolerance)
        c.add(op + '_zero_rows', t, [f(0, 3)])
        c.add(op + '_rejects_int32', t, [np.int32([1])], error='input 0: int32, want float32', ours_only=True)
        c.add(op + '_rejects_two_bottoms', t, [f(1), f(1)], error='2 bottoms, want 1', ours_only=True)
        c.add(op + '_rejects_two_tops', t, [f(1)], tops=2, error='2 tops, want 1', ours_only=True)


def prelu(c):
    f = c.f
    t = 'prelu_layer'
    for n in ROWS:
        c.add('prelu_per_column_%d' % n, t, [f(n, 5)], weights=[f(5)])
        c.add('prelu_rank_3_%d' % n, t, [f(n, 2, 3)], weights=[f(3)])
    c.add('prelu_one_slope', t, [f(3, 5)], weights=[f(1)])
    c.add('prelu_leading_ones', t, [f(3, 5)], weights=[f(1, 1, 5)])
    c.add('prelu_repeats_within_a_row', t, [f(2, 6)], weights=[f(2)])
    c.add('prelu_longer_than_a_row', t, [f(4, 3)], weights=[f(6)])
    c.add('prelu_special_values', t, [SPECIAL], weights=[np.float32([0.25])])
    c.add('prelu_long', t, [f(3, 1500)], weights=[f(1500)])
    c.add('prelu_zero_rows', t, [f(0, 5)], weights=[f(5)])
    c.add('prelu_rejects_size', t, [f(2, 3)], weights=[f(4)],
          error='input 0: shape [2, 3], want a multiple of 4 elements (the size of the parameters)')
    c.add('prelu_rejects_empty_slope', t, [f(2, 3)], weights=[f(0)], error='weight 0: shape [0], want at least one value')
    c.add('prelu_rejects_no_weight', t, [f(2, 3)], error='0 weights, want 1')


def bn_weights(c, n):
    return [c.f(n), c.f(n), c.f(n), np.abs(c.f(n)) + np.float32(0.1)]


def bn(c):
    f = c.f
    t = 'bn_layer'
    default = 'bn_param.eps is not set: using 0.001, the published format\'s default'
    for n in ROWS:
        c.add('bn_%d' % n, t, [f(n, 7)], 'bn_param { eps: 0.5 }', weights=bn_weights(c, 7))
        c.add('bn_rank_3_%d' % n, t, [f(n, 2, 3)], 'bn_param { eps: 0.001 }', weights=bn_weights(c, 3))
    c.add('bn_default_eps', t, [f(2, 3)], weights=bn_weights(c, 3)[:3] + [np.float32([1e-3, 2e-3, 3e-3])], notices=[default])
    c.add('bn_empty_param', t, [f(2, 3)], 'bn_param { }', weights=bn_weights(c, 3), notices=[default])
    c.add('bn_guide_eps', t, [f(2, 3)], weights=bn_weights(c, 3), guide_eps=True,
          notices=['bn_param.eps is not set: using 0.01, the layer guide\'s default'])
    c.add('bn_subtracts_the_mean_first', t, [np.float32([[512340.25, 512341.5]])], 'bn_param { eps: 0.001 }',
          weights=[f(2), np.float32([1, 2]), np.float32([512340, 512340]), np.float32([0.01, 0.02])])
    c.add('bn_weights_of_several_sizes', t, [f(2, 6)], 'bn_param { eps: 0.1 }',
          weights=[f(2), f(3), f(1), np.float32([1, 2, 3, 4, 5, 6])])
    c.add('bn_leading_ones', t, [f(2, 3)], 'bn_param { eps: 0.1 }', weights=[w.reshape(1, 1, 3) for w in bn_weights(c, 3)])
    c.add('bn_zero_eps', t, [f(2, 3)], 'bn_param { eps: 0 }', weights=bn_weights(c, 3))
    c.add('bn_zero_rows', t, [f(0, 3)], 'bn_param { eps: 0.1 }', weights=bn_weights(c, 3))
    c.add('bn_nan', t, [np.float32([[np.nan, 1, np.inf]])], 'bn_param { eps: 0.1 }', weights=bn_weights(c, 3))
    c.add('bn_rejects_size', t, [f(2, 4)], 'bn_param { eps: 0.1 }', weights=bn_weights(c, 3),
          error='input 0: shape [2, 4], want a multiple of 3 elements (the size of the parameters)')
    c.add('bn_rejects_missing_variance', t, [f(2, 3)], 'bn_param { eps: 0.1 }', weights=bn_weights(c, 3)[:3],
          error='3 weights, want 4')
    c.add('bn_rejects_negative_eps', t, [f(2, 3)], 'bn_param { eps: -1 }', weights=bn_weights(c, 3), ours_only=True,
          error='bn_param.eps: -1, want 0 or more')
    c.add('bn_rejects_int64', t, [np.ones((2, 3), np.int64)], 'bn_param { eps: 1 }', weights=bn_weights(c, 3),
          ours_only=True, error='input 0: int64, want float32')


def dice(c):
    f = c.f
    t = 'dice_layer'
    default = 'dice_param.eps is not set: using 1e-08, the published format\'s default'
    for n in ROWS:
        c.add('dice_%d' % n, t, [f(n, 7)], 'dice_param { eps: 0.5 }', weights=bn_weights(c, 7)[1:], source='arXiv:1706.06978')
        c.add('dice_rank_3_%d' % n, t, [f(n, 2, 3)], 'dice_param { eps: 1e-8 }', weights=bn_weights(c, 3)[1:])
    c.add('dice_default_eps', t, [f(2, 3)], weights=bn_weights(c, 3)[1:], notices=[default])
    c.add('dice_guide_eps', t, [f(2, 3)], weights=bn_weights(c, 3)[1:], guide_eps=True,
          notices=['dice_param.eps is not set: using 0.01, the layer guide\'s default'])
    c.add('dice_far_from_the_mean', t, [np.float32([[1e4, -1e4, 3e30]])], 'dice_param { eps: 1e-8 }',
          weights=[np.float32([0.5, 0.5, 0.5]), f(3), np.float32([1e-4, 1e-4, 1e-4])])
    c.add('dice_long', t, [f(2, 2500)], 'dice_param { eps: 0.1 }', weights=bn_weights(c, 2500)[1:])
    c.add('dice_zero_rows', t, [f(0, 3)], 'dice_param { eps: 1 }', weights=bn_weights(c, 3)[1:])
    c.add('dice_nan', t, [np.float32([[np.nan, 1, 2]])], 'dice_param { eps: 0.1 }', weights=bn_weights(c, 3)[1:])
    c.add('dice_rejects_channel_mismatch', t, [f(2, 4)], 'dice_param { eps: 1 }', weights=bn_weights(c, 3)[1:],
          error='input 0: shape [2, 4], want a multiple of 3 elements (the size of the parameters)')
    c.add('dice_rejects_two_weights', t, [f(2, 3)], weights=bn_weights(c, 3)[2:], error='2 weights, want 3')
    c.add('dice_rejects_empty_mean', t, [f(2, 3)], 'dice_param { eps: 1 }', weights=[f(3), f(0), f(3)],
          arg_names=['gamma', 'mean', 'var'], error='weight 1 "mean": shape [0], want at least one value')


def softmax(c):
    f = c.f
    t = 'softmax_layer'
    for n in ROWS:
        c.add('softmax_%d' % n, t, [3 * f(n, 5)], tolerance=1e-6)
        c.add('softmax_attention_%d' % n, t, [3 * f(n, 40, 1)], 'softmax_param { dim: 1 }', tolerance=1e-6)
        c.add('softmax_middle_axis_%d' % n, t, [3 * f(n, 4, 3)], 'softmax_param { dim: 1 }', tolerance=1e-6)
    c.add('softmax_axis_0', t, [f(4, 3)], 'softmax_param { dim: 0 }')
    c.add('softmax_axis_2', t, [f(2, 4, 3)], 'softmax_param { dim: 2 }')
    c.add('softmax_huge', t, [np.float32([[1000, 1001, -1000], [-3e38, -3e38, -3e38]])])
    c.add('softmax_masked', t, [np.float32([[-4294967295, 0.5, -4294967295, 1.5], [-4294967295] * 4])])
    c.add('softmax_minus_infinity', t, [np.float32([[-np.inf, 0, 1]])])
    c.add('softmax_nan_spoils_its_row_only', t, [np.float32([[1, np.nan, 2], [1, 2, 3], [np.nan, 1, 1]])])
    c.add('softmax_all_minus_infinity', t, [np.float32([[-np.inf, -np.inf]])])
    c.add('softmax_infinity', t, [np.float32([[np.inf, 1]])])
    c.add('softmax_long_axis', t, [f(2, 4500)], tolerance=1e-6)
    c.add('softmax_zero_rows', t, [f(0, 3)])
    c.add('softmax_one_column', t, [f(3, 1)])
    c.add('softmax_rejects_axis', t, [f(3)], error='softmax_param.dim: 1, want an axis of input 0: shape [3]')
    c.add('softmax_rejects_negative_axis', t, [f(2, 3)], 'softmax_param { dim: -1 }',
          error='softmax_param.dim: -1, want 0 or more')
    c.add('softmax_rejects_empty_axis', t, [f(3, 0)],
          error='input 0: shape [3, 0], want at least one element along axis 1')
    c.add('softmax_rejects_int32', t, [np.ones((2, 3), np.int32)], error='input 0: int32, want float32', ours_only=True)


def shapes(c):
    f = c.f
    t = 'reshape_layer'
    for n in ROWS:
        c.add('reshape_rows_kept_%d' % n, t, [f(n, 6)], 'reshape_param { shape: -1 shape: 1 shape: 6 }')
        c.add('reshape_copies_a_dimension_%d' % n, t, [f(n, 3, 4)], 'reshape_param { shape: 0 shape: -1 }')
    c.add('reshape_history', t, [f(1, 12)], 'reshape_param { shape: 1 shape: -1 shape: 3 }')
    c.add('reshape_keeps_int32', t, [np.arange(6, dtype=np.int32).reshape(1, 6)], 'reshape_param { shape: 1 shape: 6 shape: 1 }')
    c.add('reshape_keeps_int64', t, [np.arange(6, dtype=np.int64) << 33], 'reshape_param { shape: 2 shape: 3 }')
    c.add('reshape_to_a_scalar', t, [f(1, 1)], 'reshape_param { }')
    c.add('reshape_zero_rows', t, [f(0, 6)], 'reshape_param { shape: -1 shape: 6 }')
    c.add('reshape_zero_rows_copied', t, [f(0, 3, 2)], 'reshape_param { shape: 0 shape: -1 }',
          source='ours: numpy cannot infer a dimension of an empty array, a ranker without ads can',
          expected=[np.zeros((0, 6))])
    c.add('reshape_alias', t, [f(2, 3)], 'reshape_param { shape: 3 shape: -1 }', alias='rehshape_layer',
          notices=['type "rehshape_layer" is read as reshape_layer'])
    c.add('reshape_rejects_indivisible', t, [f(2, 3, 4)], 'reshape_param { shape: -1 shape: 5 }',
          error='input 0: shape [2, 3, 4], want a multiple of 5 elements for reshape_param.shape [-1, 5]')
    c.add('reshape_rejects_two_unknown', t, [f(2, 3)], 'reshape_param { shape: -1 shape: -1 }',
          error='reshape_param.shape: [-1, -1], want at most one -1')
    c.add('reshape_rejects_count', t, [f(2, 3)], 'reshape_param { shape: 7 }',
          error='input 0: shape [2, 3], want 7 elements rather than 6 for reshape_param.shape [7]')
    c.add('reshape_rejects_copy_beyond_rank', t, [f(6)], 'reshape_param { shape: 6 shape: 0 }',
          error='input 0: shape [6], want a dimension at place 1 for reshape_param.shape [6, 0]')
    c.add('reshape_rejects_minus_2', t, [f(6)], 'reshape_param { shape: -2 }', ours_only=True,
          error='reshape_param.shape: [-2], want -1 or more')

    t = 'concat_layer'
    for n in ROWS:
        c.add('concat_two_%d' % n, t, [f(n, 3), f(n, 4)])
        c.add('concat_four_on_axis_2_%d' % n, t, [f(n, 2, 3), f(n, 2, 1), f(n, 2, 4), f(n, 2, 2)], 'concat_param { dim: 2 }')
    c.add('concat_one', t, [f(2, 3)], 'concat_param { dim: 1 }')
    c.add('concat_axis_0', t, [f(2, 3), f(1, 3)], 'concat_param { dim: 0 }')
    c.add('concat_axis_1_of_3', t, [f(2, 2, 3), f(2, 1, 3)], 'concat_param { dim: 1 }')
    c.add('concat_int64', t, [np.int64([[1 << 40, 2]]), np.int64([[3]])])
    c.add('concat_int32', t, [np.int32([[1, 2]]), np.int32([[3]])])
    c.add('concat_zero_rows', t, [f(0, 3), f(0, 4)])
    c.add('concat_empty_part', t, [f(2, 0), f(2, 4)])
    c.add('concat_rejects_rows', t, [f(2, 3), f(1, 3)],
          error='input 1: shape [1, 3], want input 0\'s shape [2, 3] except along axis 1')
    c.add('concat_rejects_ranks', t, [f(2, 3), f(2, 3, 1)],
          error='input 1: shape [2, 3, 1], want input 0\'s shape [2, 3] except along axis 1')
    c.add('concat_rejects_axis', t, [f(2, 3), f(2, 3)], 'concat_param { dim: 2 }',
          error='concat_param.dim: 2, want an axis of input 0: shape [2, 3]')
    c.add('concat_rejects_negative_axis', t, [f(2, 3), f(2, 3)], 'concat_param { dim: -1 }',
          error='concat_param.dim: -1, want 0 or more')
    c.add('concat_rejects_mixed_types', t, [f(2, 3), np.ones((2, 3), np.int32)], ours_only=True,
          error='input 1: int32, want float32 like input 0')
    c.add('concat_rejects_nothing', t, [], error='0 bottoms, want at least 1')

    t = 'slice_layer'
    two = 'slice_param { concat_dim: 1 slices { offset: 0 shape: 2 shape: 3 } slices { offset: 6 shape: 2 shape: 2 } }'
    for n in ROWS:
        c.add('slice_columns_%d' % n, t, [f(n, 6)], 'slice_param { concat_dim: 0 slices { offset: 4 shape: 2 } slices { offset: 0 shape: 1 } }')
        c.add('slice_pieces_side_by_side_%d' % n, t, [f(n, 12)], two)
    c.add('slice_of_rank_3', t, [f(2, 4, 3)], two)
    c.add('slice_of_rank_1', t, [f(3)], 'slice_param { concat_dim: 0 slices { offset: 0 shape: 1 } }')
    c.add('slice_pieces_one_after_the_other', t, [f(2, 12)],
          'slice_param { concat_dim: 0 slices { offset: 0 shape: 2 shape: 3 } slices { offset: 3 shape: 1 shape: 3 } }')
    c.add('slice_rank_4_result', t, [f(2, 12)],
          'slice_param { concat_dim: 1 slices { offset: 0 shape: 2 shape: 1 shape: 2 } slices { offset: 4 shape: 2 shape: 2 shape: 2 } }')
    c.add('slice_int32', t, [np.arange(8, dtype=np.int32).reshape(2, 4)], 'slice_param { concat_dim: 0 slices { offset: 1 shape: 2 } }')
    c.add('slice_int64', t, [np.arange(8, dtype=np.int64).reshape(2, 4) << 33], 'slice_param { concat_dim: 0 slices { offset: 1 shape: 2 } }')
    c.add('slice_zero_rows', t, [f(0, 4)], 'slice_param { concat_dim: 0 slices { offset: 1 shape: 2 } }',
          source='ours: numpy cannot infer a dimension of an empty array, a ranker without ads can',
          expected=[np.zeros((0, 2))])
    c.add('slice_rejects_beyond_the_row', t, [f(2, 4)], 'slice_param { concat_dim: 0 slices { offset: 3 shape: 2 } }',
          error='input 0: shape [2, 4], want at least 5 elements per row for slice_param.slices[0] (offset 3, shape [2])')
    c.add('slice_rejects_negative_offset', t, [f(2, 4)], 'slice_param { concat_dim: 0 slices { offset: -1 shape: 2 } }',
          error='slice_param.slices[0].offset: -1, want 0 or more')
    c.add('slice_rejects_shapes', t, [f(2, 12)],
          'slice_param { concat_dim: 1 slices { offset: 0 shape: 2 shape: 3 } slices { offset: 6 shape: 1 shape: 2 } }',
          error='slice_param.slices[1].shape: [1, 2], want [2, 3] like slices[0], except in dimension 1')
    x = f(2, 8)
    c.add('slice_of_the_guide_counts_the_rows', t, [x],
          'slice_param { concat_dim: 2 slices { offset: 0 shape: 2 shape: 1 } slices { offset: 4 shape: 2 shape: 2 } }',
          source='ULF guide: its own example, which the reference refuses',
          expected=[np.concatenate([x[:, 0:2].reshape(2, 2, 1), x[:, 4:8].reshape(2, 2, 2)], axis=2)],
          notices=['slice_param.concat_dim 2 is beyond a piece\'s dimensions; read as axis 2 of the result, like the '
                   'guide\'s example'])
    c.add('slice_rejects_concat_dim', t, [f(2, 4)], 'slice_param { concat_dim: 2 slices { offset: 0 shape: 2 } }',
          error='slice_param.concat_dim: 2, want a dimension of the pieces\' shape [2]')
    c.add('slice_rejects_no_pieces', t, [f(2, 4)], 'slice_param { concat_dim: 0 }',
          error='slice_param.slices: none, want at least one')
    c.add('slice_rejects_no_param', t, [f(2, 4)], error='slice_param.slices: none, want at least one')
    c.add('slice_rejects_zero_size', t, [f(2, 4)], 'slice_param { concat_dim: 0 slices { offset: 0 shape: 0 } }', ours_only=True,
          error='slice_param.slices[0].shape: [0], want sizes of 1 or more')

    t = 'broadcast_to_layer'
    for n in ROWS:
        c.add('broadcast_to_history_to_ads_%d' % n, t, [f(1, 4, 3), f(n, 4, 3)])
        c.add('broadcast_to_ad_to_history_%d' % n, t, [f(n, 1, 3), f(n, 4, 3)])
    c.add('broadcast_to_lower_rank', t, [f(3), f(2, 4, 3)])
    c.add('broadcast_to_shape', t, [f(2, 1, 3)], 'broadcast_to_param { shape: 0 shape: 5 shape: -1 }')
    c.add('broadcast_to_same', t, [f(2, 3), f(2, 3)])
    c.add('broadcast_to_last_axis', t, [f(2, 1), f(2, 5)])
    c.add('broadcast_to_int32', t, [np.int32([[1], [2]]), f(2, 3)])
    c.add('broadcast_to_int64', t, [np.int64([[1 << 40], [2]]), f(2, 3)])
    c.add('broadcast_to_zero_rows', t, [f(1, 3), f(0, 3)])
    c.add('broadcast_to_second_bottom_wins', t, [f(1, 3), f(2, 3)], 'broadcast_to_param { shape: 7 shape: 7 }',
          notices=['broadcast_to_param.shape [7, 7] is ignored: the second bottom gives the shape'])
    c.add('broadcast_to_rejects_mismatch', t, [f(2, 3), f(4, 3)],
          error='input 0: shape [2, 3], want a shape that broadcasts to [4, 3]')
    c.add('broadcast_to_rejects_higher_rank', t, [f(1, 2, 3), f(2, 3)],
          error='input 0: shape [1, 2, 3], want a shape that broadcasts to [2, 3]')
    c.add('broadcast_to_rejects_rank_of_shape', t, [f(1, 3)], 'broadcast_to_param { shape: 2 }',
          error='input 0: shape [1, 3], want the rank of broadcast_to_param.shape [2]')
    c.add('broadcast_to_rejects_shape', t, [f(2, 3)], 'broadcast_to_param { shape: 4 shape: 3 }',
          error='input 0: shape [2, 3], want a shape that broadcasts to [4, 3]')
    c.add('broadcast_to_rejects_no_target', t, [f(2, 3)],
          error='1 bottom and no broadcast_to_param.shape, want one of: a second bottom, a shape')


def sources(c):
    f = c.f
    t = 'constant_layer'
    c.add('constant', t, [], 'constant_param { blob_data { shape: 1 shape: 3 data: 1.5 data: -2 data: -4294967295 } }')
    c.add('constant_scalar', t, [], 'constant_param { blob_data { data: 2.5 } }')
    c.add('constant_empty', t, [], 'constant_param { blob_data { shape: 0 shape: 3 } }')
    c.add('constant_of_the_guide', t, [f(2)], 'constant_param { blob_data { shape: 1 data: 1.0 } }',
          notices=['bottom "x0" is ignored: a constant reads nothing'])
    c.add('constant_rejects_count', t, [], 'constant_param { blob_data { shape: 2 shape: 2 data: 1 } }',
          error='constant_param.blob_data: 1 values, want 4 for shape [2, 2]')
    c.add('constant_rejects_negative_size', t, [], 'constant_param { blob_data { shape: -2 data: 1 } }',
          error='constant_param.blob_data.shape: [-2], want sizes of 0 or more', ours_only=True)
    c.add('constant_rejects_no_param', t, [], error='constant_param: absent, want the tensor')

    t = 'fuse_layer'
    for n in ROWS:
        c.add('fuse_user_first_%d' % n, t, [f(1, 3), f(n, 2)], 'fuse_param { common_input_index: 0 }')
        c.add('fuse_user_last_%d' % n, t, [f(n, 3), f(1, 2)], 'fuse_param { common_input_index: 1 }')
    c.add('fuse_default_index', t, [f(1, 3), f(4, 2)])
    c.add('fuse_int32', t, [np.int32([[1]]), np.int32([[2], [3]])])
    c.add('fuse_zero_rows', t, [f(1, 3), f(0, 2)], 'fuse_param { common_input_index: 0 }')
    c.add('fuse_no_columns', t, [f(1, 0), f(3, 2)])
    c.add('fuse_first_of_two_indices', t, [f(1, 3), f(4, 2)], 'fuse_param { common_input_index: 0 common_input_index: 1 }',
          notices=['fuse_param.common_input_index has 2 values: only the first, 0, counts'])
    c.add('fuse_rejects_rows_of_the_common_input', t, [f(4, 3), f(1, 2)], 'fuse_param { common_input_index: 0 }',
          error='input 0: shape [4, 3], want 1 row (fuse_param.common_input_index names it)')
    c.add('fuse_rejects_rank', t, [f(1, 3), f(4, 2, 1)], error='input 1: shape [4, 2, 1], want rank 2')
    c.add('fuse_rejects_index', t, [f(1, 3), f(4, 2)], 'fuse_param { common_input_index: 2 }',
          error='fuse_param.common_input_index: 2, want 0 or 1')
    c.add('fuse_rejects_empty_index', t, [f(1, 3), f(4, 2)], 'fuse_param { }',
          error='fuse_param.common_input_index: empty, want 0 or 1')
    c.add('fuse_rejects_mixed_types', t, [f(1, 3), np.ones((4, 2), np.int32)], ours_only=True,
          error='input 1: int32, want float32 like input 0')
    c.add('fuse_rejects_three_bottoms', t, [f(1, 3), f(4, 2), f(4, 2)], error='3 bottoms, want 2')


def matmul(c):
    f = c.f
    t = 'inner_product_layer'
    for n in ROWS:
        c.add('fc_%d' % n, t, [f(n, 5)], weights=[f(5, 3), f(3)])
        c.add('fc_transpose_%d' % n, t, [f(n, 5)], 'inner_product_param { transpose: true }', weights=[f(3, 5), f(3)])
        c.add('fc_rank_3_%d' % n, t, [f(n, 2, 5)], weights=[f(5, 3), f(3)])
        c.add('fc_no_bias_%d' % n, t, [f(n, 5)], 'inner_product_param { bias_term: false }', weights=[f(5, 3)])
    c.add('fc_wide_stride', t, [f(3, 2)], weights=[f(2, 512), f(512)])
    c.add('fc_wide_stride_transposed', t, [f(2, 2)], 'inner_product_param { transpose: true }', weights=[f(512, 2), f(512)])
    c.add('fc_leading_ones', t, [f(4, 3)], weights=[f(1, 1, 3, 2), f(1, 2)])
    c.add('fc_transpose_of_one_output', t, [f(4, 3)], 'inner_product_param { transpose: true }', weights=[f(1, 3), f(1)])
    c.add('fc_bias_per_row', t, [f(4, 3)], weights=[f(3, 2), f(4, 2)])
    c.add('fc_bias_repeats_the_row', t, [f(1, 3)], weights=[f(3, 2), f(4, 2)])
    c.add('fc_bias_per_step', t, [f(2, 4, 3)], weights=[f(3, 2), f(4, 2)])
    c.add('fc_bias_repeats_the_step', t, [f(3, 1, 3)], weights=[f(3, 2), f(4, 2)])
    c.add('fc_no_columns', t, [f(2, 0)], weights=[f(0, 3), f(3)])
    c.add('fc_zero_rows', t, [f(0, 5)], weights=[f(5, 3), f(3)])
    c.add('fc_nan', t, [np.float32([[1, np.nan], [1, 1]])], weights=[f(2, 3), f(3)])
    c.add('fc_surplus_bias', t, [f(4, 3)], 'inner_product_param { bias_term: false }', weights=[f(3, 2), f(2)],
          arg_names=['w', 'b'], notices=['weight 1 "b" is ignored: inner_product_param.bias_term is false'])
    c.add('fc_rejects_width', t, [f(4, 5)], weights=[f(3, 2), f(2)],
          error='input 0: shape [4, 5], want last dimension 3 to match weight 0 of shape [3, 2]')
    c.add('fc_rejects_width_transposed', t, [f(4, 2)], 'inner_product_param { transpose: true }', weights=[f(2, 3), f(2)],
          error='input 0: shape [4, 2], want last dimension 3 to match weight 0 of shape [2, 3], transposed')
    c.add('fc_rejects_rank_4', t, [f(2, 2, 4, 3)], weights=[f(3, 2), f(2)],
          error='input 0: shape [2, 2, 4, 3], want rank 2 or 3')
    c.add('fc_rejects_rank_1', t, [f(3)], weights=[f(3, 2), f(2)], error='input 0: shape [3], want rank 2 or 3')
    c.add('fc_rejects_missing_bias', t, [f(4, 3)], weights=[f(3, 2)],
          error='1 weights, want 2 (the last is the bias; without one, set inner_product_param.bias_term to false)')
    c.add('fc_rejects_no_weight', t, [f(4, 3)], error='0 weights, want 1 to 2')
    c.add('fc_rejects_bias_length', t, [f(4, 3)], weights=[f(3, 2), f(3)], arg_names=['kernel', 'bias'],
          error='weight 1 "bias": shape [3], want [2] for 2 outputs')
    c.add('fc_rejects_bias_rows', t, [f(4, 3)], weights=[f(3, 2), f(3, 2)],
          error='a bias of 3 rows does not broadcast to shape [4, 2]')
    c.add('fc_rejects_vector_weight', t, [f(4, 3)], weights=[f(3), f(2)], error='weight 0: shape [3], want a matrix')
    c.add('fc_rejects_int32', t, [np.ones((4, 3), np.int32)], weights=[f(3, 2), f(2)], ours_only=True,
          error='input 0: int32, want float32')

    t = 'inner_product_layer_ex'
    for n in ROWS:
        c.add('ex_user_first_%d' % n, t, [f(1, 3), f(n, 4)], weights=[f(3, 2), f(4, 2), f(2)])
        c.add('ex_user_last_%d' % n, t, [f(n, 3), f(1, 4)], weights=[f(3, 2), f(4, 2), f(2)])
        c.add('ex_equal_rows_%d' % n, t, [f(n, 3), f(n, 4)], weights=[f(3, 2), f(4, 2), f(2)])
        c.add('ex_transpose_%d' % n, t, [f(1, 3), f(n, 4)], 'inner_product_param { transpose: true }',
              weights=[f(2, 3), f(2, 4), f(2)])
    c.add('ex_no_bias', t, [f(1, 3), f(4, 4)], 'inner_product_param { bias_term: false }', weights=[f(3, 2), f(4, 2)])
    c.add('ex_bias_per_row', t, [f(1, 3), f(4, 4)], weights=[f(3, 2), f(4, 2), f(4, 2)])
    c.add('ex_zero_rows', t, [f(1, 3), f(0, 4)], weights=[f(3, 2), f(4, 2), f(2)])
    c.add('ex_wide_stride', t, [f(1, 1), f(2, 1)], weights=[f(1, 512), f(1, 512), f(512)])
    c.add('ex_surplus_bias', t, [f(1, 3), f(4, 4)], 'inner_product_param { bias_term: false }',
          weights=[f(3, 2), f(4, 2), f(2)], notices=['weight 2 is ignored: inner_product_param.bias_term is false'])
    c.add('ex_rejects_rows', t, [f(2, 3), f(3, 4)], weights=[f(3, 2), f(4, 2), f(2)],
          error='input 1: shape [3, 4], want 1 row or as many as input 0: shape [2, 3]')
    c.add('ex_rejects_width', t, [f(1, 3), f(3, 3)], weights=[f(3, 2), f(4, 2), f(2)],
          error='input 1: shape [3, 3], want last dimension 4 to match weight 1 of shape [4, 2]')
    c.add('ex_rejects_rank', t, [f(1, 3), f(2, 2, 4)], weights=[f(3, 2), f(4, 2), f(2)],
          error='input 1: shape [2, 2, 4], want rank 2')
    c.add('ex_rejects_outputs', t, [f(1, 3), f(2, 4)], weights=[f(3, 2), f(4, 3), f(2)],
          error='weight 1: shape [4, 3], want 2 outputs like weight 0 of shape [3, 2]')
    c.add('ex_rejects_missing_bias', t, [f(1, 3), f(2, 4)], weights=[f(3, 2), f(4, 2)],
          error='2 weights, want 3 (the last is the bias; without one, set inner_product_param.bias_term to false)')


def batchdot(c):
    f = c.f
    t = 'batchdot_layer'
    tf = 'batch_dot_param { transpose_a: true transpose_b: false }'
    ft = 'batch_dot_param { transpose_a: false transpose_b: true }'
    tt = 'batch_dot_param { transpose_a: true transpose_b: true }'
    ff = 'batch_dot_param { transpose_a: false transpose_b: false }'
    for n in ROWS:
        c.add('batchdot_attention_pooling_%d' % n, t, [f(n, 6, 1), f(1, 6, 3)], tf)
        c.add('batchdot_each_%d' % n, t, [f(n, 2, 3), f(n, 4, 3)])
        c.add('batchdot_vectors_%d' % n, t, [f(1, 5, 3), f(n, 3)])
        c.add('batchdot_one_vector_%d' % n, t, [f(1, 1, 3), f(n, 4, 3)])
        c.add('batchdot_dot_products_%d' % n, t, [f(n, 1, 21), f(n, 21)])
    for name, param, a, b in (('tf', tf, (4, 3, 2), (4, 3, 5)), ('ft', ft, (4, 2, 3), (4, 5, 3)),
                              ('tt', tt, (4, 3, 2), (4, 5, 3)), ('ff', ff, (4, 2, 3), (4, 3, 5))):
        c.add('batchdot_batched_' + name, t, [f(*a), f(*b)], param)
        c.add('batchdot_shared_b_' + name, t, [f(*a), f(1, *b[1:])], param)
        c.add('batchdot_shared_a_' + name, t, [f(1, *a[1:]), f(*b)], param)
    c.add('batchdot_both_rank_2', t, [f(4, 3), f(4, 3)], ff)
    c.add('batchdot_a_rank_2', t, [f(4, 3), f(4, 2, 3)], tt)
    c.add('batchdot_b_rank_2_default', t, [f(4, 2, 3), f(4, 3)])
    c.add('batchdot_rank_4', t, [f(2, 3, 2, 4), f(3, 5, 4)])
    c.add('batchdot_rank_4_both_ways', t, [f(2, 1, 2, 4), f(1, 3, 5, 4)])
    c.add('batchdot_transposed_a_shared_vector', t, [f(1, 3, 2), f(4, 1, 3)], tt)
    c.add('batchdot_inner_0', t, [f(2, 3, 0), f(2, 4, 0)])
    c.add('batchdot_zero_rows', t, [f(0, 6, 1), f(1, 6, 3)], tf)
    c.add('batchdot_rejects_inner', t, [f(4, 2, 3), f(4, 5, 4)],
          error='input 1: shape [4, 5, 4], want 3 rather than 4 as inner dimension to match input 0: shape [4, 2, 3] '
                '(transpose_a false, transpose_b true)')
    c.add('batchdot_rejects_batches', t, [f(4, 2, 3), f(3, 5, 3)],
          error='input 1: leading shapes [4] and [3] do not broadcast')
    c.add('batchdot_rejects_rank_1', t, [f(4, 2, 3), f(3)], error='input 1: shape [3], want rank 2 or more')
    c.add('batchdot_rejects_int32', t, [f(1, 1, 1), np.ones((1, 1, 1), np.int32)], ours_only=True,
          error='input 1: int32, want float32')


def recurrent(cell, x, h2h, i2h, h_bias, i_bias, h=0, c=0, lengths=None, backwards=False, reset_first=False,
              activation=np.tanh):
    """The states of "gru", "lstm" or "rnn" after every step, the last h and the last c, in float64; zeros outside a row's
    length, which leave the state alone.  Gates as in the layers' documentation."""
    x, h2h, i2h, h_bias, i_bias = (a.astype(np.float64) for a in (x, h2h, i2h, h_bias, i_bias))
    n, rows, steps = h2h.shape[0], x.shape[0], x.shape[1]
    h, c, every = h + np.zeros((rows, n)), c + np.zeros((rows, n)), np.zeros((rows, steps, n))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    for t in range(steps)[::-1 if backwards else 1]:
        within = np.ones((rows, 1), bool) if lengths is None else lengths.reshape(-1, 1) > t
        i, g, before = x[:, t] @ i2h + i_bias, h @ h2h + h_bias, (h, c)
        if cell == 'rnn':
            h = activation(i + g)
        elif cell == 'lstm':
            enter, forget, new, out = np.split(i + g, 4, 1)
            c = sigmoid(forget) * c + sigmoid(enter) * np.tanh(new)
            h = sigmoid(out) * np.tanh(c)
        else:
            r, z = np.split(sigmoid((i + g)[:, :2 * n]), 2, 1)
            of_h = (r * h) @ h2h[:, 2 * n:] + h_bias[2 * n:] if reset_first else r * g[:, 2 * n:]
            new = np.tanh(i[:, 2 * n:] + of_h)
            h = new + z * (h - new)
        every[:, t] = np.where(within, h, 0)
        h, c = (np.where(within, now, old) for now, old in zip((h, c), before))
    return every, h, c


def recurrent_options(c, cell, gates):
    """What gru_param, lstm_param and rnn_param say; the last states; `c` has a generator of its own for them."""
    rng, t = np.random.default_rng(54), cell + '_layer'

    def ws(n, k):
        """Of h so large that errors do not grow from step to step."""
        of_h, *others = (f32(*s, rng=rng) for s in ((n, gates * n), (k, gates * n), (gates * n,), (gates * n,)))
        return [np.float32(of_h / np.sqrt(n)), *others]

    states = 2 if cell == 'lstm' else 1
    steps = 'leading_zeros: STEPS ' if cell == 'gru' else ''
    source = 'numpy, by the definition of ONNX'

    def good(name, rows, first, tops, text='', lengths=None, n=5, **more):
        x, weights = f32(rows, 6, 3, rng=rng), ws(n, 3)
        start = [f32(k, n, rng=rng) for k in first]
        all_rows = max([rows, *first] + ([len(lengths)] if lengths is not None else []))
        made = recurrent(cell, np.repeat(x, all_rows // rows, 0), *weights, *start, lengths=lengths, **more)
        c.add('%s_%s' % (cell, name), t, [x, *start] + ([] if lengths is None else [lengths]),
              '%s_param { %s%s}' % (cell, steps, text), weights, expected=list(made[:tops]), tops=tops, source=source,
              ours_only=True)

    lengths = lambda *v: np.float32(v).reshape(-1, 1)
    good('plain', 3, (), 1)
    good('last_states', 3, (), 1 + states)
    good('many_rows', 70, (70,), 2, n=17)
    good('backwards', 3, (), 1 + states, 'backwards: true ', backwards=True)
    good('lengths', 4, (), 1 + states, 'lengths: true ', lengths(6, 1, 0, 3))
    good('lengths_backwards', 4, (), 1 + states, 'lengths: true backwards: true ', lengths(6, 1, 0, 3), backwards=True)
    good('length_of_all', 3, (3,) * states, 1 + states, 'lengths: true ', lengths(4))
    good('lengths_of_one_row', 1, (1,) * states, 1 + states, 'lengths: true backwards: true ', lengths(6, 2, 9, -1),
         backwards=True)
    good('no_lengths', 3, (), 2, 'lengths: true ', lengths(0, 0, 0))
    if cell == 'rnn':
        good('relu', 3, (3,), 2, 'activation: RELU ', activation=lambda v: np.maximum(v, 0))
    if cell == 'gru':
        good('reset_first', 3, (3,), 2, 'reset_first: true ', reset_first=True)
        good('reset_first_many_rows', 70, (), 2, 'reset_first: true backwards: true lengths: true ',
             lengths(*(i % 8 for i in range(70))), n=17, reset_first=True, backwards=True)
    x, weights = f32(3, 6, 3, rng=rng), ws(5, 3)
    for name, text, inputs, error in (
            ('lengths_of_nobody', 'lengths: true', [x], '1 bottom, want 2 to %d, the last of them lengths' % (2 + states)),
            ('lengths_width', 'lengths: true', [x, f32(3, 2, rng=rng)],
             'input 1: shape [3, 2], want last dimension 1 (the steps of a row)'),
            ('lengths_rows', 'lengths: true', [x, f32(2, 1, rng=rng)], 'input 1: shape [2, 1], want the rows of x, 3'),
            ('inputs', '', [x] + [f32(3, 5, rng=rng)] * (1 + states), '%d bottoms, want 1 to %d' % (2 + states, 1 + states))):
        c.add('%s_rejects_%s' % (cell, name), t, inputs, '%s_param { %s }' % (cell, text), weights, error=error,
              ours_only=True)


def gru(c):
    f = c.f
    t = 'gru_layer'

    def w(n):
        return [f(n, 3 * n) / 2, f(n, 3 * n) / 2, f(3 * n), f(3 * n)]
    for n in ROWS:
        c.add('gru_%d' % n, t, [f(n, 4, 3)], weights=w(3))
        x = f(n, 5, 3)
        for i in range(n):
            x[i, :i % 6] = 0  # Leading padding of every length up to all of it.
        if n > 1:
            x[1, 3] = 0  # A zero step after the start is no padding.
        c.add('gru_padding_%d' % n, t, [x], weights=w(3))
    c.add('gru_rank_2_is_one_batch', t, [f(4, 3)], weights=w(3))
    c.add('gru_one_unit', t, [f(2, 3, 1)], weights=w(1))
    c.add('gru_all_padding', t, [np.zeros((2, 3, 2), np.float32)], weights=w(2))
    c.add('gru_bias_of_any_shape', t, [f(2, 3, 2)], weights=[f(2, 6), f(2, 6), f(3, 2), f(1, 6)])
    c.add('gru_zero_rows', t, [f(0, 3, 2)], weights=w(2))
    c.add('gru_zero_steps', t, [f(2, 0, 2)], weights=w(2))
    c.add('gru_large_values', t, [1000 * f(2, 4, 3)], weights=w(3))
    c.add('gru_rejects_width', t, [f(2, 3, 4)], weights=w(3),
          error='input 0: shape [2, 3, 4], want last dimension 3 (the hidden width)')
    c.add('gru_rejects_rank', t, [f(1, 2, 3, 3)], weights=w(3), error='input 0: shape [1, 2, 3, 3], want rank 2 or 3')
    c.add('gru_rejects_h2h', t, [f(2, 3, 3)], weights=[f(3, 8)] + w(3)[1:],
          error='weight 0: shape [3, 8], want [n, 3*n] (h2h: reset, update, candidate)')
    c.add('gru_rejects_i2h', t, [f(1, 5, 4)], weights=[f(3, 9), f(4, 9), f(9), f(9)],
          error='weight 1: shape [4, 9], want [3, 9] (i2h) like weight 0')
    c.add('gru_rejects_bias', t, [f(2, 3, 3)], weights=w(3)[:3] + [f(8)], error='weight 3: shape [8], want 9 values')
    c.add('gru_rejects_three_weights', t, [f(2, 3, 3)], weights=w(3)[:3], error='3 weights, want 4')
    # gru_param is ours: the reference's formulas without its padding rule, and any width of x.
    rng = np.random.default_rng(17)  # Of its own, so that other cases stay as they are.
    for n, zeros in ((1, 2), (3, 2), (64, 1)):
        x = f32(n, 4, 5, rng=rng)
        x[:, :zeros] = 0
        ws = [f32(*shape, rng=rng) for shape in ((3, 9), (5, 9), (9,), (9,))]
        c.add('gru_leading_zeros_are_steps_%d' % n, t, [x], 'gru_param { leading_zeros: STEPS }', ws,
              expected=recurrent('gru', x, *ws)[0], source='PyTorch nn.GRU: the same cell, every step counts')
    c.add('gru_param_rejects_width', t, [f32(2, 3, 3, rng=rng)], 'gru_param { leading_zeros: STEPS }', ws,
          error='input 0: shape [2, 3, 3], want last dimension 5 (the rows of i2h)', ours_only=True)
    # So is the state before the first step.
    for n, rows in ((1, 1), (3, 3), (64, 1), (1, 4)):
        x, h = f32(n, 4, 5, rng=rng), f32(rows, 3, rng=rng)
        c.add('gru_state_%d_%d' % (n, rows), t, [x, h], 'gru_param { leading_zeros: STEPS }', ws,
              expected=recurrent('gru', np.repeat(x, max(n, rows) // n, 0), *ws, h)[0], source='PyTorch nn.GRU')
    c.add('gru_rejects_state_rows', t, [f32(2, 3, 5, rng=rng), f32(3, 3, rng=rng)],
          'gru_param { leading_zeros: STEPS }', ws, error='input 1: shape [3, 3], want the rows of x, 2', ours_only=True)
    recurrent_options(c, 'gru', 3)


def embedding(c):
    t = 'embedding_layer'
    conf = ('feature_group_config { feature_group: "f" table_name: "t" dim: 2 }\n'
            'block_config { embedding_block_config_item { feature_group: "f" %s } }\n')
    table = [('t', '7,1,2\n8,10,20\n-3,100,200\n9,1000,2000\n')]
    param = 'embedding_param { embedding_conf_path: "e.conf" level: 1 }'
    bottoms = ['f.ids', 'f.values', 'f.segments']
    x = [np.int64([7, 8, 99, 7, -3, 9, 8]), np.float32([1, 2, 3, 0.5, 1, 1, -1]), np.int32([3, 0, 4])]
    for name, item in (('sum', 'udf_type: 0'), ('avg', 'udf_type: 1'), ('assign', 'udf_type: 2 trunc_num: 3'),
                       ('assign_in_order', 'udf_type: 2 trunc_num: 3 trunc_direction: kInorder')):
        c.add('embedding_' + name, t, x, param, bottoms=bottoms, confs=[('e.conf', conf % item)], tables=table)
    c.add('embedding_rejects_two_bottoms', t, x[:2], param, bottoms=bottoms[:2], error='2 bottoms, want at least 3',
          confs=[('e.conf', conf % '')], tables=table)


def functions_along_an_axis(c):
    """What sum_layer and softmax_layer do beyond the published format; expected by numpy."""
    f = c.f

    def case(name, t, param, x, function, **more):
        y = np.asarray(function(np.asarray(x, np.float64)))
        c.add('%s_%s' % (t.replace('_layer', ''), name), t, [x], param, expected=[y], source='numpy', **more)

    shapes = {'short_rows': ((19, 3), 1), 'rows': ((19, 37), 1), 'long_rows': ((3, 2, 150), 2), 'columns': ((3, 37, 5), 1),
              'many_columns': ((2, 18, 85), 1), 'axis_0': ((5, 3), 0), 'zero_rows': ((0, 3), 1)}
    of_nothing = {'MAX': -np.inf, 'MIN': np.inf, 'PRODUCT': 1.0}
    for name, function in (('MAX', np.max), ('MIN', np.min), ('PRODUCT', np.prod), ('CUMULATIVE_SUM', np.cumsum)):
        param = 'sum_param { dim: %%d function: %s }' % name
        for shape, (dims, axis) in shapes.items():
            x = 1 + f(*dims) / 4 if name == 'PRODUCT' else f(*dims)
            case(name.lower() + '_' + shape, 'sum_layer', param % axis, x, lambda v: function(v, axis), tolerance=2e-6)
        special = np.float32([[1, np.nan, 3], [np.inf, 2, 3], [-np.inf, 2, 3], [np.nan] * 3])
        case(name.lower() + '_special', 'sum_layer', param % 1, special, lambda v: function(v, 1))
        if name in of_nothing:
            case(name.lower() + '_of_nothing', 'sum_layer', param % 1, f(2, 0, 3), lambda v: np.full((2, 3), of_nothing[name]))

    def log_softmax(v, axis):
        v = v - v.max(axis, keepdims=True)
        return v - np.log(np.exp(v).sum(axis, keepdims=True))
    for shape, (dims, axis) in shapes.items():
        case('log_' + shape, 'softmax_layer', 'softmax_param { dim: %d log: true }' % axis, 3 * f(*dims),
             lambda v: log_softmax(v, axis) if v.size else v, tolerance=2e-6)
    case('log_masked', 'softmax_layer', 'softmax_param { log: true }', np.float32([[-4294967295, 0.5, 1.5], [-1e30] * 3]),
         lambda v: log_softmax(v, 1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--oracle', required=True)
    ap.add_argument('--out', required=True)
    a = ap.parse_args()
    copy = tempfile.mkdtemp()  # The reference generates protobuf code beside itself.
    atexit.register(shutil.rmtree, copy, True)
    shutil.copytree(a.oracle, os.path.join(copy, 'oracle'))
    sys.path.insert(0, os.path.join(copy, 'oracle'))
    import ulf_ref
    np.seterr(all='ignore')  # NaN and infinity are what some cases are about.
    c = Cases(ulf_ref)
    for family in (arithmetic, where, sums, activations, prelu, bn, dice, softmax, shapes, sources, matmul, batchdot, gru,
                   embedding, parts_of_a_row_repeated, numbers_a_step_apart, functions_along_an_axis):
        family(c)
    for layer_type, text in c.files.items():
        with open(os.path.join(a.out, layer_type + '.textproto'), 'w') as f:
            f.write('# Cases of %s, written by tests/make_layer_cases.py; see tests/testing/layer_case.proto.\n' % layer_type)
            f.write(text)


if __name__ == '__main__':
    main()
