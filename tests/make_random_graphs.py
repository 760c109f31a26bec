#!/usr/bin/python3
"""Writes random graphs with inputs and expected outputs for tests/engine/graph/graph_cases_test.cc.

  make_random_graphs.py --oracle DIR --seed N --count N --ads 1,5,33 --out FILE.json

Values come from the float64 reference interpreter (ulf_ref.py in DIR), never from our own engine.  A graph mixes user
and ad embeddings and dense inputs and applies layers whose shapes fit; every graph is checked for each number of ads.
Some graphs come with a manifest that describes the dense inputs and serves only some of the tensors.
Format of a case: name, graph, weights_text, manifest, embedding_conf {file: text}, tables {name: text}, inputs, expected.
"""
import argparse
import atexit
import json
import os
import shutil
import sys
import tempfile

import graph_patterns
import numpy as np

DIM = 4  # Of every table.
MANIFEST = '''inputs { name: "profile" level: INPUT_LEVEL_USER row_shape: 3 }
inputs { name: "price" level: INPUT_LEVEL_AD row_shape: 2 }
'''


class Writer:
    """Builds one graph as text, and keeps what the reference says of every tensor."""

    def __init__(self, rng, ref, name):
        self.rng, self.ref, self.name = rng, ref, name
        self.layers, self.weights, self.values = [], [], {}
        self.level = {}
        self.count = 0

    def fresh(self, op):
        self.count += 1
        return '%s%d' % (op, self.count)

    def blob(self, a):
        a = np.asarray(a, np.float32)
        return 'blob_datas { %s %s }' % (' '.join('shape: %d' % d for d in a.shape),
                                         ' '.join('data: %.7g' % float(v) for v in a.reshape(-1)))

    def add(self, type_, bottoms, params='', weights=(), tops=1):
        name = self.fresh(type_.replace('_layer', ''))
        out = [name + ('' if tops == 1 else '_%d' % i) for i in range(tops)]
        self.layers.append('layer_params { name: "%s" type: "%s" %s %s %s }' % (
            name, type_, ' '.join('bottom: "%s"' % b for b in bottoms), ' '.join('top: "%s"' % t for t in out), params))
        if weights:
            self.weights.append('layer_weights_params { name: "%s" %s }' % (name, ' '.join(map(self.blob, weights))))
        levels = [self.level[b] for b in bottoms if b in self.level]
        for t in out:
            self.level[t] = 'ad' if 'ad' in levels else 'user'
        return out if tops > 1 else out[0]

    def w(self, *shape):
        return np.round(self.rng.standard_normal(shape) / np.sqrt(shape[0]), 4)

    def positive(self, n):
        return np.round(self.rng.uniform(0.5, 1.5, n), 3)


def grow(g, shapes, steps, patterns):
    """Applies random layers, a share `patterns` of them patterns; `shapes` maps a tensor to its shape without the rows."""
    rng = g.rng
    pick = lambda xs: xs[rng.integers(len(xs))]

    def flat(names=None):
        return [t for t in (names or shapes) if len(shapes[t]) == 1]

    def op_fc():
        t = pick(flat())
        k, n = shapes[t][0], int(rng.integers(1, 9))
        transpose = bool(rng.integers(2))
        bias = bool(rng.integers(2))
        m = g.w(k, n)
        o = g.add('inner_product_layer', [t], 'inner_product_param { transpose: %s bias_term: %s }' % (
            str(transpose).lower(), str(bias).lower()), [m.T if transpose else m] + ([g.w(n)] if bias else []))
        shapes[o] = (n,)

    def op_activation():
        t = pick(list(shapes))
        kind = pick(['relu', 'sigmoid', 'tanh', 'prelu', 'bn', 'dice'])
        n = shapes[t][-1]
        w = {'prelu': lambda: [g.w(n)], 'bn': lambda: [g.w(n), g.positive(n), g.w(n), g.positive(n)],
             'dice': lambda: [g.w(n), g.w(n), g.positive(n)]}.get(kind, lambda: [])()
        o = g.add(kind + '_layer', [t], '', w)
        shapes[o] = shapes[t]

    def op_binary():
        t = pick(list(shapes))
        fits = [u for u in shapes if shapes[u] == shapes[t]]
        u = pick(fits)
        kind = pick(['add', 'sub', 'multiply'])
        o = g.add(kind + '_layer', [t, u])
        shapes[o] = shapes[t]

    def op_div():
        t = pick(list(shapes))
        c = g.add('constant_layer', [], 'constant_param { blob_data { shape: 1 data: %r } }' % float(rng.uniform(1, 3)))
        g.level.pop(c)
        o = g.add('div_layer', [t, c])
        shapes[o] = shapes[t]

    def op_softmax():
        t = pick(list(shapes))
        dim = int(rng.integers(1, len(shapes[t]) + 1))
        o = g.add('softmax_layer', [t], 'softmax_param { dim: %d }' % dim)
        shapes[o] = shapes[t]

    def op_concat():
        t = pick(flat())
        same = [u for u in flat() if g.level[u] == g.level[t]]
        parts = [t] + [pick(same) for _ in range(int(rng.integers(1, 3)))]
        o = g.add('concat_layer', parts, 'concat_param { dim: 1 }')
        shapes[o] = (sum(shapes[u][0] for u in parts),)

    def op_fuse():
        users = [t for t in flat() if g.level[t] == 'user']
        ads = [t for t in flat() if g.level[t] == 'ad']
        if not users or not ads:
            return
        u, a = pick(users), pick(ads)
        first = bool(rng.integers(2))
        o = g.add('fuse_layer', [u, a] if first else [a, u], 'fuse_param { common_input_index: %d }' % (0 if first else 1))
        shapes[o] = (shapes[u][0] + shapes[a][0],)

    def op_ex():
        x, y = pick(flat()), pick(flat())
        n = int(rng.integers(1, 9))
        o = g.add('inner_product_layer_ex', [x, y], '', [g.w(shapes[x][0], n), g.w(shapes[y][0], n), g.w(n)])
        shapes[o] = (n,)

    def op_slice():
        t = pick(flat())
        n = shapes[t][0]
        if n < 2:
            return
        cut = int(rng.integers(1, n))
        a, b = (0, cut), (cut, n - cut)
        parts = [a, b][::int(rng.choice([-1, 1]))]
        o = g.add('slice_layer', [t], 'slice_param { concat_dim: 0 %s }' % ' '.join(
            'slices { offset: %d shape: %d }' % p for p in parts))
        shapes[o] = (n,)

    def op_reshape():
        t = pick(list(shapes))
        s = shapes[t]
        if len(s) == 2:
            o = g.add('reshape_layer', [t], 'reshape_param { shape: -1 shape: %d }' % (s[0] * s[1]))
            shapes[o] = (s[0] * s[1],)
        elif s[0] % 2 == 0:
            lead = '1' if g.level[t] == 'user' and rng.integers(2) else '-1'
            o = g.add('reshape_layer', [t], 'reshape_param { shape: %s shape: 2 shape: %d }' % (lead, s[0] // 2))
            shapes[o] = (2, s[0] // 2)

    def op_sum():
        t = pick([t for t in shapes if len(shapes[t]) == 2] or list(shapes))
        if len(shapes[t]) != 2:
            return
        dim = int(rng.integers(1, 3))
        o = g.add('sum_layer', [t], 'sum_param { dim: %d }' % dim)
        shapes[o] = (shapes[t][2 - dim],)

    def op_batchdot():
        pairs = [(t, u) for t in shapes for u in shapes if len(shapes[t]) == 2 and len(shapes[u]) == 2]
        if not pairs:
            return
        t, u = pick(pairs)
        (m, k), (p, q) = shapes[t], shapes[u]
        if k == q:
            o = g.add('batchdot_layer', [t, u], 'batch_dot_param { transpose_a: false transpose_b: true }')
            shapes[o] = (m, p)
        elif m == p:
            o = g.add('batchdot_layer', [t, u], 'batch_dot_param { transpose_a: true transpose_b: false }')
            shapes[o] = (k, q)

    def op_gru():
        t = pick([t for t in shapes if len(shapes[t]) == 2] or list(shapes))
        if len(shapes[t]) != 2:
            return
        n = shapes[t][1]
        o = g.add('gru_layer', [t], '', [g.w(n, 3 * n), g.w(n, 3 * n), g.w(3 * n), g.w(3 * n)])
        shapes[o] = shapes[t]

    ops = [op_fc, op_fc, op_activation, op_activation, op_binary, op_div, op_softmax, op_concat, op_fuse, op_fuse, op_ex,
           op_slice, op_reshape, op_reshape, op_sum, op_batchdot, op_gru]
    if rng.integers(2):
        graph_patterns.attention(g, shapes, DIM)
    for _ in range(steps):
        if rng.uniform() < patterns:
            pick(graph_patterns.PATTERNS)(g, shapes)
        else:
            pick(ops)()


def make_graph(rng, ref, name, steps, patterns):
    g = Writer(rng, ref, name)
    items = int(rng.integers(2, 6))
    feats = ['u', 'h', 'a', 'b']
    tops = ['%s.%s' % (f, p) for f in feats for p in ('ids', 'values', 'segments')] + ['profile', 'price']
    g.layers.append('layer_params { name: "in" type: "input_layer" %s }' % ' '.join('top: "%s"' % t for t in tops))

    def embedding(conf, level, fs, out):
        g.layers.append('layer_params { name: "embedding" type: "embedding_layer" %s %s embedding_param '
                        '{ embedding_conf_path: "%s" level: %d } }' % (
                            ' '.join('bottom: "%s.%s"' % (f, p) for f in fs for p in ('ids', 'values', 'segments')),
                            ' '.join('top: "%s"' % t for t in out), conf, level))
        for t in out:
            g.level[t] = 'user' if level else 'ad'

    embedding('user.conf', 1, ['u', 'h'], ['user_emb', 'history_flat'])
    embedding('ad.conf', 0, ['a', 'b'], ['ad_emb', 'ad_both'])
    g.layers.append('layer_params { name: "h" type: "reshape_layer" bottom: "history_flat" top: "history" '
                    'reshape_param { shape: 1 shape: -1 shape: %d } }' % DIM)
    g.level['history'] = 'user'
    # Dense inputs enter through layers that say what they want.
    g.level['profile'], g.level['price'] = 'user', 'ad'
    p = g.add('inner_product_layer', ['profile'], '', [g.w(3, 5), g.w(5)])
    f = g.add('fuse_layer', [p, 'price'], 'fuse_param { common_input_index: 0 }')
    shapes = {'user_emb': (DIM,), 'history': (items, DIM), 'ad_emb': (DIM,), 'ad_both': (2 * DIM,), p: (5,), f: (7,)}
    grow(g, shapes, steps, patterns)
    group = 'feature_group_config { feature_group: "%s" table_name: "%s" dim: %d }\n'
    item = 'embedding_block_config_item { feature_group: "%s" udf_type: %d %s }'
    direction = 'trunc_direction: %s' % ('kInorder' if rng.integers(2) else 'kReverse')
    confs = {
        'user.conf': group % ('u', 't', DIM) + group % ('h', 't', DIM) +
        'block_config { %s }\nblock_config { %s }\n' % (item % ('u', 0, ''), item % ('h', 2, 'trunc_num: %d %s' % (items, direction))),
        'ad.conf': group % ('a', 't', DIM) + group % ('b', 's', DIM) +
        'block_config { %s }\nblock_config { %s %s }\n' % (item % ('a', 0, ''), item % ('a', 1, ''), item % ('b', 1, ''))}
    tables = {}
    for t in ('t', 's'):
        rows = rng.standard_normal((12, DIM))
        tables[t] = ''.join('%d,%s\n' % (i - 4, ','.join('%.5f' % v for v in row)) for i, row in enumerate(rows))
    return g, confs, tables, items


def make_inputs(rng, ads, items):
    out = {}

    def sparse(f, counts):
        n = int(np.sum(counts))
        out[f + '.ids'] = rng.integers(-5, 9, n).astype(np.int64)  # -5 and 8 are unknown to the tables.
        out[f + '.values'] = rng.choice([1.0, 1.0, 0.5, -2.0], n).astype(np.float32)
        out[f + '.segments'] = np.asarray(counts, np.int32)
    sparse('u', [int(rng.integers(0, 3))])
    sparse('h', [int(rng.integers(0, items + 3))])
    sparse('a', np.ones(ads, np.int32))
    sparse('b', rng.integers(0, 4, ads))
    out['profile'] = rng.standard_normal((1, 3)).astype(np.float32)
    out['price'] = rng.standard_normal((ads, 2)).astype(np.float32)
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--oracle', required=True, help='directory of ulf_ref.py; copied before use, because it writes beside itself')
    ap.add_argument('--seed', type=int, default=1)
    ap.add_argument('--count', type=int, default=40)
    ap.add_argument('--ads', default='1,5,33')
    ap.add_argument('--patterns', type=float, default=0.4, help='share of patterns that the optimiser looks for')
    ap.add_argument('--out', required=True)
    a = ap.parse_args()
    copy = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, copy)
    for d, _, files in os.walk(a.oracle):
        to = os.path.join(copy, os.path.relpath(d, a.oracle))
        os.makedirs(to, exist_ok=True)
        for f in files:
            shutil.copyfile(os.path.join(d, f), os.path.join(to, f))
    sys.path.insert(0, copy)
    import ulf_ref as ref
    from google.protobuf import text_format
    cases = []
    seed = a.seed
    while len({c['name'].rsplit('_ads', 1)[0] for c in cases}) < a.count:
        rng = np.random.default_rng(seed)
        name = 'random%d' % seed
        seed += 1
        g, confs, tables, items = make_graph(rng, ref, name, int(rng.integers(3, 18)), a.patterns)
        described = bool(rng.integers(4))
        graph, weights = '\n'.join(g.layers) + '\n', '\n'.join(g.weights) + '\n'
        made = []
        with tempfile.TemporaryDirectory() as tmp:
            for n, text in list(confs.items()) + list(tables.items()) + [('weights.pb', weights)]:
                with open(os.path.join(tmp, n), 'w') as f:
                    f.write(text)
            net = ref.ulf_pb2.NetParameter()
            text_format.Parse(graph, net)
            blobs = ref.load_weights(os.path.join(tmp, 'weights.pb'), net)
            for ads in (int(x) for x in a.ads.split(',')):
                interp = ref.Interp(net, blobs, ref.Tables(tmp), tmp)
                inputs = make_inputs(rng, ads, items)
                values = interp.run(inputs)
                expected = {o: values[o] for o in interp.outputs}
                manifest = ''
                if described:
                    kept = [o for o in sorted(expected) if int.from_bytes(o.encode(), 'big') % 3] or sorted(expected)
                    expected = {o: values[o] for o in kept}
                    manifest = MANIFEST + ''.join('outputs: "%s"\n' % o for o in kept)
                if not all(np.all(np.isfinite(v)) and np.max(np.abs(v), initial=0) < 1e3 for v in expected.values()):
                    break
                spec = lambda v, r: {'dtype': str(v.dtype), 'shape': list(v.shape), 'data': [r(x) for x in v.reshape(-1).tolist()]}
                made.append({'name': '%s_ads%d' % (name, ads), 'graph': graph, 'weights_text': weights, 'manifest': manifest,
                             'embedding_conf': confs, 'tables': tables,
                             'inputs': {k: spec(v, lambda x: x) for k, v in inputs.items()},
                             'expected': {k: spec(v, lambda x: float('%.9g' % x)) for k, v in expected.items()}})
            else:
                cases += made
    with open(a.out, 'w') as f:
        f.write('[\n' + ',\n'.join(json.dumps(c) for c in cases) + '\n]\n')
    print(len(cases), 'cases written to', a.out)


if __name__ == '__main__':
    main()
