"""Pieces of graphs that the optimiser's passes look for, in the many forms in which exports have them.

Each function takes the Writer of make_random_graphs.py and `shapes` (tensor -> shape without the rows), applies layers
and enters what it made into `shapes`.  None of them does anything if no tensor fits.
"""


def flat(g, shapes, least=1, level=None):
    return [t for t in shapes if len(shapes[t]) == 1 and shapes[t][0] >= least and level in (None, g.level[t])]


def pick(g, xs):
    return xs[g.rng.integers(len(xs))]


def constant(g, values, shape):
    c = g.add('constant_layer', [], 'constant_param { blob_data { %s %s } }' % (
        ' '.join('shape: %d' % d for d in shape), ' '.join('data: %r' % float(v) for v in values)))
    g.level.pop(c)
    return c


def fc(g, x, k, n, bias=True):
    transpose = bool(g.rng.integers(2))
    w = g.w(k, n)
    return g.add('inner_product_layer', [x], 'inner_product_param { transpose: %s bias_term: %s }' % (
        str(transpose).lower(), str(bias).lower()), [w.T if transpose else w] + ([g.w(n)] if bias else []))


def pooled_chains(g, shapes):
    """tdm: pieces of one row, each summed over its items and divided by their number, side by side; some of them twice."""
    rows = flat(g, shapes, least=4)
    if not rows:
        return
    t = pick(g, rows)
    n = shapes[t][0]
    width = int(g.rng.integers(1, max(2, n // 3)))
    parts = []
    for _ in range(int(g.rng.integers(2, 5))):
        items = int(g.rng.integers(1, n // width + 1))
        offset = int(g.rng.integers(0, n - items * width + 1))
        for _ in range(int(g.rng.integers(1, 3))):  # The same chain once or twice.
            s = g.add('slice_layer', [t], 'slice_param { concat_dim: %d slices { offset: %d shape: %d shape: %d } }' % (
                int(g.rng.integers(2)), offset, items, width))
            s = g.add('sum_layer', [s], 'sum_param { dim: 1 }')
            form = int(g.rng.integers(3))
            if form > 0:
                scale = constant(g, [items], [1])
                s = g.add('div_layer', [s, scale]) if form == 1 else g.add('multiply_layer', [scale, s])
            parts.append(s)
    o = g.add('concat_layer', parts, 'concat_param { dim: 1 }')
    shapes[o] = (len(parts) * width,)


def parallel_fcs(g, shapes):
    """Several towers on one tensor, of one layer or of two with an activation between them."""
    t = pick(g, flat(g, shapes))
    tops = []
    deep = bool(g.rng.integers(2))
    act = pick(g, ['relu', 'sigmoid', 'tanh', 'prelu'])
    for _ in range(int(g.rng.integers(2, 6))):
        n = int(g.rng.integers(1, 6))
        o = fc(g, t, shapes[t][0], n, bool(g.rng.integers(4)))
        if deep:
            o = g.add(act + '_layer', [o], '', [g.w(n)] if act == 'prelu' else [])
            m = int(g.rng.integers(1, 4))
            o = fc(g, o, n, m)
            n = m
        shapes[o] = (n,)
        tops.append(o)
    o = g.add('concat_layer', tops, 'concat_param { dim: 1 }')
    shapes[o] = (sum(shapes[u][0] for u in tops),)


def fc_fc(g, shapes):
    """Two layers without an activation between them, through a narrow or a wide middle."""
    t = pick(g, flat(g, shapes))
    middle, n = int(g.rng.choice([1, 2, 12, 20])), int(g.rng.integers(1, 6))
    h = fc(g, t, shapes[t][0], middle, bool(g.rng.integers(2)))
    o = fc(g, h, middle, n, bool(g.rng.integers(2)))
    shapes[o] = (n,)


def constants(g, shapes):
    """Arithmetic among constants, then with a tensor; layers that change nothing."""
    t = pick(g, flat(g, shapes))
    n = shapes[t][0]
    a = constant(g, g.positive(n), [n])
    b = constant(g, [2.0], [1])
    c = g.add(pick(g, ['add_layer', 'sub_layer', 'multiply_layer', 'div_layer']), [a, b])
    g.level.pop(c, None)
    o = g.add('multiply_layer', [t, c] if g.rng.integers(2) else [c, t])
    form = int(g.rng.integers(6))
    if form == 0:
        o = g.add('multiply_layer', [o, constant(g, [1.0], [1])])
    elif form == 1:
        o = g.add('div_layer', [o, constant(g, [1.0] * n, [n])])
    elif form == 2:
        o = g.add('sub_layer', [o, constant(g, [0.0], [1])])
    elif form == 3:
        o = g.add('slice_layer', [o], 'slice_param { concat_dim: 0 slices { offset: 0 shape: %d } }' % n)
    elif form == 4:
        o = g.add('reshape_layer', [o], 'reshape_param { shape: -1 shape: %d shape: 1 }' % n)
        o = g.add('reshape_layer', [o], 'reshape_param { shape: -1 shape: %d }' % n)
    else:
        # What gives the shape only is not needed.
        like = g.add('relu_layer', [o])
        o = g.add('broadcast_to_layer', [o, like])
    o = g.add('relu_layer', [o])
    shapes[o] = (n,)


def affine_chain(g, shapes):
    """Normalisation written out: constants per column or for all of them, from either side."""
    t = pick(g, flat(g, shapes))
    n = shapes[t][0]
    o = t
    for _ in range(int(g.rng.integers(2, 5))):
        kind = pick(g, ['add_layer', 'sub_layer', 'multiply_layer', 'div_layer'])
        m = n if g.rng.integers(2) else 1
        c = constant(g, g.positive(m), pick(g, [[m], [1, m]]))
        swapped = kind != 'div_layer' and g.rng.integers(3) == 0
        o = g.add(kind, [c, o] if swapped else [o, c])
    shapes[o] = (n,)


def bn_fc(g, shapes):
    """Batch normalisation before, after or on both sides of a fully connected layer."""
    t = pick(g, flat(g, shapes))
    n = int(g.rng.integers(1, 7))
    bn = lambda x, c: g.add('bn_layer', [x], '', [g.w(c), g.positive(c), g.w(c), g.positive(c)])
    form = int(g.rng.integers(1, 4))
    o = bn(t, shapes[t][0]) if form & 1 else t
    o = fc(g, o, shapes[t][0], n, bool(g.rng.integers(2)))
    o = bn(o, n) if form & 2 else o
    kind = pick(g, ['relu', 'sigmoid', 'tanh', 'prelu', 'dice', ''])
    w = {'prelu': [g.w(n)], 'dice': [g.w(n), g.w(n), g.positive(n)]}.get(kind, [])
    o = g.add(kind + '_layer', [o], '', w) if kind else o
    shapes[o] = (n,)


def block_fc(g, shapes):
    """A first layer over columns of the user and of the ads: fuse, concat and slice in a row."""
    users, ads = flat(g, shapes, level='user'), flat(g, shapes, level='ad')
    if not users or not ads:
        return
    parts = [pick(g, ads) for _ in range(int(g.rng.integers(1, 3)))]
    a = parts[0] if len(parts) == 1 else g.add('concat_layer', parts, 'concat_param { dim: 1 }')
    width = sum(shapes[p][0] for p in parts)
    for _ in range(int(g.rng.integers(1, 3))):
        u = pick(g, users)
        first = bool(g.rng.integers(2))
        a = g.add('fuse_layer', [u, a] if first else [a, u], 'fuse_param { common_input_index: %d }' % (0 if first else 1))
        width += shapes[u][0]
    if width > 2 and g.rng.integers(2):
        cut = int(g.rng.integers(1, width))
        a = g.add('slice_layer', [a], 'slice_param { concat_dim: 0 slices { offset: %d shape: %d } slices { offset: 0 shape: %d } }' % (
            cut, width - cut, cut))
    n = int(g.rng.integers(1, 9))
    o = fc(g, a, width, n)
    shapes[o] = (n,)


def attention(g, shapes, dim):
    """DIN: query and history, their differences and product in any order and subset, then a small net and the weighted sum."""
    if 'history' not in shapes or 'ad_emb' not in shapes:
        return
    q = g.add('reshape_layer', ['ad_emb'], 'reshape_param { shape: -1 shape: 1 shape: %d }' % dim)
    makers = {
        'q': lambda d: g.add('broadcast_to_layer', [q, d]),
        'k': lambda d: g.add('broadcast_to_layer', ['history', d]),
        'q-k': lambda d: g.add('sub_layer', [q, 'history']),
        'k-q': lambda d: g.add('sub_layer', ['history', q]),
        'q*k': lambda d: g.add('multiply_layer', [q, 'history'] if g.rng.integers(2) else ['history', q]),
    }
    chosen = [m for m in makers if g.rng.integers(3)] or ['q*k']
    g.rng.shuffle(chosen)
    full = g.add('sub_layer', [q, 'history'])
    c = g.add('concat_layer', [makers[m](full) for m in chosen], 'concat_param { dim: 2 }')
    hidden = int(g.rng.integers(2, 9))
    h = fc(g, c, len(chosen) * dim, hidden)
    h = g.add(pick(g, ['sigmoid_layer', 'relu_layer', 'tanh_layer']), [h])
    if g.rng.integers(2):
        h = g.add('sigmoid_layer', [fc(g, h, hidden, 4)])
        hidden = 4
    s = fc(g, h, hidden, 1)
    a = g.add('softmax_layer', [s], 'softmax_param { dim: 1 }') if g.rng.integers(3) else s
    o = g.add('batchdot_layer', [a, 'history'], 'batch_dot_param { transpose_a: true transpose_b: false }')
    f = g.add('reshape_layer', [o], 'reshape_param { shape: -1 shape: %d }' % dim)
    shapes[o], shapes[f] = (1, dim), (dim,)


def scaled_fc(g, shapes):
    """A layer over an ad's columns and their product with the user's."""
    users, ads = flat(g, shapes, level='user'), flat(g, shapes, level='ad')
    if not users or not ads:
        return
    u, a = pick(g, users), pick(g, ads)
    n = shapes[a][0]
    s = g.add(pick(g, ['tanh_layer', 'relu_layer']), [fc(g, u, shapes[u][0], n)])
    p = g.add('multiply_layer', [a, s] if g.rng.integers(2) else [s, a])
    parts = [a, p] if g.rng.integers(2) else [p, a]
    c = g.add('concat_layer', parts, 'concat_param { dim: 1 }')
    width = int(g.rng.integers(1, 7))
    o = fc(g, c, 2 * n, width)
    shapes[s], shapes[o] = (n,), (width,)


def dot_attention(g, shapes):
    """Heads of batchdot -> scale -> softmax -> weighted sum over a user's or an ad's steps, joined before or after the sum."""
    tables, ads = [t for t in shapes if len(shapes[t]) == 2], flat(g, shapes, level='ad')
    if not tables or not ads:
        return
    k = pick(g, tables)
    steps, width = shapes[k]
    heads, joined, form = [], bool(g.rng.integers(2)), int(g.rng.integers(3))
    for _ in range(int(g.rng.integers(1, 4))):
        a = pick(g, ads)
        q = fc(g, a, shapes[a][0], width)
        s = g.add('batchdot_layer', [k, q])
        if g.rng.integers(2):
            s = g.add('div_layer', [s, constant(g, [2.0], [1])])
        s = g.add('softmax_layer', [s], 'softmax_param { dim: 1 }')
        h = g.add('multiply_layer', [k, s] if form else [s, k])
        heads.append(h if joined else g.add('sum_layer', [h], 'sum_param { dim: 1 }'))
    o = g.add('concat_layer', heads, 'concat_param { dim: %d }' % (2 if joined else 1))
    if joined:
        o = g.add('sum_layer', [o], 'sum_param { dim: 1 }')
    shapes[o] = (len(heads) * width,)


def row_dots(g, shapes):
    """Sums of products row by row, of two tensors or of one with itself."""
    t = pick(g, flat(g, shapes))
    u = pick(g, [u for u in flat(g, shapes) if shapes[u] == shapes[t]])
    s = g.add('sum_layer', [g.add('multiply_layer', [t, u])], 'sum_param { dim: 1 }')
    o = g.add('reshape_layer', [s], 'reshape_param { shape: -1 shape: 1 }')
    shapes[o] = (1,)


def weighted_sums(g, shapes):
    """Sums with weights per column, along one axis or two, before or behind a view."""
    even = [t for t in flat(g, shapes) if shapes[t][0] % 2 == 0]
    if not even:
        return
    t = pick(g, even)
    steps = shapes[t][0] // 2
    view = 'reshape_param { shape: [-1, %d, 2] }' % steps
    x = g.add('reshape_layer', [t], view)
    both = g.rng.integers(2)
    shape = [steps, 2] if both else [2]
    w = constant(g, g.rng.uniform(-1, 1, 2 * steps if both else 2), shape)
    s = g.add('sum_layer', [g.add('multiply_layer', [x, w])], 'sum_param { dim: 2 }')
    if both:
        s = g.add('reshape_layer', [g.add('sum_layer', [s], 'sum_param { dim: 1 }')], 'reshape_param { shape: [-1, 1] }')
    shapes[s] = (1,) if both else (steps,)


def products_by_sums(g, shapes):
    """Products of matrices as broadcast, multiplied and summed: [M, 1, K] and [N, K], or [M, K, 1] and [K, N]."""
    even = [t for t in flat(g, shapes) if shapes[t][0] % 2 == 0]
    if not even:
        return
    t, u = pick(g, even), pick(g, even)
    m, n = shapes[t][0] // 2, shapes[u][0] // 2
    last = g.rng.integers(2)
    views = ([m, 1, 2], [1, n, 2]) if last else ([m, 2, 1], [1, 2, n])
    x, y = (g.add('reshape_layer', [o], 'reshape_param { shape: %s }' % [-1, *view])
            for o, view in zip((t, u), views))
    p = g.add('multiply_layer', [x, y] if g.rng.integers(2) else [y, x])
    s = g.add('sum_layer', [p], 'sum_param { dim: %d }' % (3 if last else 2))
    o = g.add('reshape_layer', [s], 'reshape_param { shape: [-1, %d] }' % (m * n))
    shapes[o] = (m * n,)


def repeated_user(g, shapes):
    """A user's columns repeated by fuse and slice, a tower over them, and something of the ads."""
    users, ads = flat(g, shapes, level='user'), flat(g, shapes, level='ad')
    if not users or not ads:
        return
    u, a = pick(g, users), pick(g, ads)
    n = shapes[u][0]
    f = g.add('fuse_layer', [u, a], 'fuse_param { common_input_index: 0 }')
    f = g.add('slice_layer', [f], 'slice_param { concat_dim: 0 slices { offset: 0 shape: %d } }' % n)
    if g.rng.integers(2):
        f = g.add('concat_layer', [f, f], 'concat_param { dim: 1 }')
        n *= 2
    f = g.add(pick(g, ['relu_layer', 'tanh_layer']), [fc(g, f, n, shapes[a][0])])
    o = g.add(pick(g, ['add_layer', 'multiply_layer']), [f, a])
    shapes[f] = shapes[o] = shapes[a]


def gated_columns(g, shapes):
    """Experts side by side as columns, times the gate's weights; and as rows, which lie side by side already."""
    t = pick(g, flat(g, shapes))
    n = int(g.rng.integers(2, 5))
    gate = g.add('softmax_layer', [fc(g, t, shapes[t][0], 2)], 'softmax_param { dim: 1 }')
    if g.rng.integers(2):
        experts = [fc(g, t, shapes[t][0], n) for _ in range(2)]
        columns = [g.add('reshape_layer', [e], 'reshape_param { shape: -1 shape: %d shape: 1 }' % n) for e in experts]
        both = g.add('concat_layer', columns, 'concat_param { dim: 2 }')
        gate = g.add('reshape_layer', [gate], 'reshape_param { shape: -1 shape: 2 shape: 1 }')
        o = g.add('batchdot_layer', [both, gate], 'batch_dot_param { transpose_a: false transpose_b: false }')
    else:
        wide = fc(g, t, shapes[t][0], 2 * n)
        rows = [g.add('slice_layer', [wide], 'slice_param { concat_dim: 0 slices { offset: %d shape: %d } }' % (i * n, n))
                for i in range(2)]
        rows = [g.add('reshape_layer', [r], 'reshape_param { shape: -1 shape: 1 shape: %d }' % n) for r in rows]
        both = g.add('concat_layer', rows, 'concat_param { dim: 1 }')
        gate = g.add('reshape_layer', [gate], 'reshape_param { shape: -1 shape: 2 shape: 1 }')
        o = g.add('batchdot_layer', [gate, both], 'batch_dot_param { transpose_a: true transpose_b: false }')
    o = g.add('reshape_layer', [o], 'reshape_param { shape: -1 shape: %d }' % n)
    shapes[o] = (n,)


def dice(g, shapes):
    """A layer whose values are scaled where a sigmoid of them is small, written out in one of four ways."""
    t = pick(g, flat(g, shapes))
    n = int(g.rng.integers(1, 9))
    x = fc(g, t, shapes[t][0], n)
    mul, add, sub = 'multiply_layer', 'add_layer', 'sub_layer'
    z = g.add('bn_layer', [x], '', [g.w(n), g.positive(n), g.w(n), g.positive(n)]) if g.rng.integers(3) else x
    p = g.add('sigmoid_layer', [z])
    gamma, one = constant(g, g.w(n), [n]), constant(g, [1.0], [1])
    form = int(g.rng.integers(4))
    if form == 0:
        rest = g.add(mul, [g.add(mul, [gamma, g.add(sub, [one, p])]), x])
        o = g.add(add, [g.add(mul, [p, x]), rest])
    elif form == 1:
        rest = g.add(mul, [g.add(sub, [one, p]), g.add(mul, [gamma, x])])
        o = g.add(add, [rest, g.add(mul, [x, p])])
    elif form == 2:
        o = g.add(mul, [x, g.add(add, [p, g.add(mul, [gamma, g.add(sub, [one, p])])])])
    else:
        o = g.add(mul, [p, x])
    shapes[o] = (n,)


def self_attention(g, shapes):
    """Every position of one row looks at every other one, scaled and perhaps masked."""
    t = pick(g, flat(g, shapes))
    steps, width, v_width = int(g.rng.integers(4, 7)), int(g.rng.integers(1, 5)), int(g.rng.integers(1, 6))

    def positions(columns):
        x = fc(g, t, shapes[t][0], steps * columns)
        return g.add('reshape_layer', [x], 'reshape_param { shape: %d shape: %d shape: %d }' % (
            1 if g.level[x] == 'user' else -1, steps, columns))

    q, k, v = positions(width), positions(width), positions(v_width)
    if g.rng.integers(2):
        q = g.add('div_layer', [q, constant(g, [width ** 0.5], [1])])
    x = g.add('batchdot_layer', [q, k], 'batch_dot_param { transpose_a: false transpose_b: true }')
    if g.rng.integers(2):
        x = g.add('multiply_layer', [x, constant(g, [0.5], [1])])
    if g.rng.integers(2):
        x = g.add('add_layer', [x, constant(g, g.rng.choice([0.0, 0.0, -1e4], steps - 1).tolist() + [0.0], [1, steps])])
    if g.rng.integers(2):
        x = g.add('sub_layer', [x, constant(g, g.rng.choice([0.0, 1e4], steps - 1).tolist() + [0.0], [1, steps])])
    if g.rng.integers(2):
        x = g.add('div_layer', [x, constant(g, [0.7], [1])])
    x = g.add('softmax_layer', [x], 'softmax_param { dim: 2 }')
    o = g.add('batchdot_layer', [x, v], 'batch_dot_param { transpose_a: false transpose_b: false }')
    shapes[o] = (steps, v_width)


PATTERNS = (pooled_chains, parallel_fcs, fc_fc, constants, affine_chain, bn_fc, block_fc, scaled_fc, dot_attention, row_dots,
            weighted_sums, products_by_sums, repeated_user, gated_columns, dice, self_attention)
