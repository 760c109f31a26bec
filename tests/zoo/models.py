"""Ranking models in PyTorch, a family each, over the same columns of a user and of ads."""
# SPDX-License-Identifier: Apache-2.0
import itertools

import torch
import torch.nn as nn

USERS, ITEMS, CATEGORIES, STEPS, WIDTH = 60, 90, 11, 12, 8
# Name -> (columns, ids; 0: numbers), in the order of the matrix.
COLUMNS = {"user": (1, USERS), "age": (1, 0), "hist": (STEPS, ITEMS), "item": (1, ITEMS),
           "category": (1, CATEGORIES), "stats": (2, 0)}
USER_COLUMNS = ("user", "age", "hist")
FIELDS = 4  # User, item, category, pooled history.


def mlp(*sizes):
    layers = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Linear(a, b)] + ([nn.BatchNorm1d(b), nn.ReLU()] if i + 2 < len(sizes) else [])
    return nn.Sequential(*layers)


class Base(nn.Module):
    """Embeds the columns; a family computes scores [ads] or [ads, tasks] of them."""

    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, WIDTH)
        self.item = nn.Embedding(ITEMS, WIDTH, padding_idx=0)
        self.category = nn.Embedding(CATEGORIES, WIDTH)
        self.make()

    def embed(self, user, age, hist, item, category, stats):
        keys, query = self.item(hist), self.item(item)
        mask = (hist != 0).float()
        pooled = (keys * mask.unsqueeze(-1)).sum(1) / (mask.sum(1, keepdim=True) + 1e-8)
        fields = torch.stack([self.user(user), query, self.category(category), pooled], 1)
        return fields, torch.cat([age, stats], -1), keys, mask, query

    def forward(self, user, age, hist, item, category, stats):
        self.ids = (user, item, category)
        return torch.sigmoid(self.score(*self.embed(user, age, hist, item, category, stats)))


FLAT = FIELDS * WIDTH + 3


def flat(fields, dense):
    return torch.cat([fields.flatten(1), dense], -1)


class WideDeep(Base):
    def make(self):
        self.wide, self.deep = nn.Linear(3, 1), mlp(FLAT, 32, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        return (self.wide(dense) + self.deep(flat(fields, dense))).squeeze(-1)


class DeepFm(Base):
    def make(self):
        self.first = nn.ModuleList([nn.Embedding(n, 1) for n in (USERS, ITEMS, CATEGORIES)])
        self.dense, self.deep = nn.Linear(3, 1), mlp(FLAT, 32, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        first = sum(table(ids) for table, ids in zip(self.first, self.ids)) + self.dense(dense)
        second = 0.5 * (fields.sum(1) ** 2 - (fields ** 2).sum(1)).sum(1, keepdim=True)
        return (first + second + self.deep(flat(fields, dense))).squeeze(-1)


class Pooled(Base):
    """Histories pooled by mean, sum and maximum under a mask that is repeated per element."""

    def make(self):
        self.out = mlp(FLAT + 3 * WIDTH, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        wide = torch.repeat_interleave(mask.unsqueeze(2), WIDTH, dim=2)
        total = (keys * wide).sum(1)
        parts = [total, total / (mask.sum(1, keepdim=True) + 1e-8),
                 torch.max(keys - (1 - wide) * 1e9, dim=1)[0]]
        return self.out(torch.cat([flat(fields, dense), *parts], 1)).squeeze(-1)


class Nfm(Base):
    def make(self):
        self.norm, self.deep = nn.BatchNorm1d(WIDTH), mlp(WIDTH + 3, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        pairs = 0.5 * (torch.pow(fields.sum(1), 2) - torch.pow(fields, 2).sum(1))
        return self.deep(torch.cat([self.norm(pairs), dense], 1)).squeeze(1)


class Afm(Base):
    def make(self):
        self.attention = nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.Linear(6, 1, bias=False))
        self.out = nn.Linear(WIDTH, 1)

    def score(self, fields, dense, keys, mask, query):
        row, column = zip(*itertools.combinations(range(FIELDS), 2))
        pairs = fields[:, list(row)] * fields[:, list(column)]
        weights = torch.softmax(self.attention(pairs), 1)
        return self.out((weights * pairs).sum(1)).squeeze(-1)


class Pnn(Base):
    def make(self):
        self.kernel = nn.Parameter(torch.randn(6, WIDTH, WIDTH) * 0.3)
        self.deep = mlp(FLAT + 12, 32, 1)

    def score(self, fields, dense, keys, mask, query):
        row, column = map(list, zip(*itertools.combinations(range(FIELDS), 2)))
        p, q = fields[:, row], fields[:, column]
        inner = (p * q).sum(-1)
        outer = torch.einsum("bpi,pij,bpj->bp", p, self.kernel, q)
        return self.deep(torch.cat([flat(fields, dense), inner, outer], 1)).squeeze(1)


class Dlrm(Base):
    """The products of all fields with each other, the numbers' one among them."""

    def make(self):
        self.bottom, self.top = mlp(3, 16, WIDTH), mlp(WIDTH + FIELDS * (FIELDS + 1) // 2, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        x = self.bottom(dense)
        fields = torch.cat([x.unsqueeze(1), fields], 1)
        products = torch.bmm(fields, torch.transpose(fields, 1, 2))
        row, column = map(list, zip(*((i, j) for i in range(FIELDS + 1) for j in range(i))))
        return self.top(torch.cat([x, products[:, row, column]], 1)).squeeze(1)


class Dcn(Base):
    """Cross layers with a vector: x0 * (x . w) + b + x."""

    def make(self):
        self.w = nn.ParameterList([nn.Parameter(torch.randn(FLAT, 1) * 0.2) for _ in range(3)])
        self.b = nn.ParameterList([nn.Parameter(torch.randn(FLAT) * 0.1) for _ in range(3)])
        self.deep, self.out = mlp(FLAT, 24, 12), nn.Linear(FLAT + 12, 1)

    def score(self, fields, dense, keys, mask, query):
        x0 = x = flat(fields, dense)
        for w, b in zip(self.w, self.b):
            x = x0 * torch.matmul(x, w) + b + x
        return self.out(torch.cat([x, self.deep(x0)], 1)).squeeze(-1)


class DcnV2(Base):
    """Cross layers with a matrix."""

    def make(self):
        self.cross = nn.ModuleList([nn.Linear(FLAT, FLAT) for _ in range(2)])
        self.out = mlp(FLAT, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        x0 = x = flat(fields, dense)
        for layer in self.cross:
            x = x0 * layer(x) + x
        return self.out(x).squeeze(-1)


class DcnMix(Base):
    """Cross layers of low rank, with experts behind a gate."""

    def make(self):
        self.u = nn.Parameter(torch.randn(2, FLAT, 5) * 0.2)
        self.v = nn.Parameter(torch.randn(2, FLAT, 5) * 0.2)
        self.c = nn.Parameter(torch.randn(2, 5, 5) * 0.5)
        self.b = nn.Parameter(torch.randn(FLAT, 1) * 0.1)
        self.gate, self.out = nn.Linear(FLAT, 2), nn.Linear(FLAT, 1)

    def score(self, fields, dense, keys, mask, query):
        x0 = flat(fields, dense).unsqueeze(2)
        x = x0
        for _ in range(2):
            experts = []
            for e in range(2):
                low = torch.tanh(torch.matmul(self.v[e].t(), x))
                low = torch.tanh(torch.matmul(self.c[e], low))
                experts.append((x0 * (torch.matmul(self.u[e], low) + self.b)).squeeze(2))
            gates = self.gate(x.squeeze(2)).softmax(1).unsqueeze(1)
            x = torch.matmul(torch.stack(experts, 2), gates.transpose(1, 2)) + x
        return self.out(x.squeeze(2)).squeeze(-1)


class XDeepFm(Base):
    """Compressed interaction network."""

    def make(self):
        self.convs = nn.ModuleList([nn.Conv1d(FIELDS * FIELDS, 6, 1), nn.Conv1d(6 * FIELDS, 5, 1)])
        self.out, self.deep = nn.Linear(11, 1), mlp(FLAT, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        hidden, results = fields, []
        for conv in self.convs:
            x = torch.einsum("bhd,bmd->bhmd", hidden, fields)
            hidden = torch.relu(conv(x.reshape(x.shape[0], hidden.shape[1] * FIELDS, WIDTH)))
            results.append(hidden.sum(-1))
        return (self.out(torch.cat(results, 1)) + self.deep(flat(fields, dense))).squeeze(1)


class AutoInt(Base):
    def make(self):
        self.q, self.k, self.v, self.skip = (nn.Linear(WIDTH, 12, bias=False) for _ in range(4))
        self.out = nn.Linear(FIELDS * 12, 1)

    def score(self, fields, dense, keys, mask, query):
        q, k, v = (torch.stack(torch.split(f(fields), 6, 2)) for f in (self.q, self.k, self.v))
        weights = torch.softmax(torch.einsum("hbik,hbjk->hbij", q, k) / 6 ** 0.5, -1)
        heads = torch.matmul(weights, v)
        joined = torch.cat(torch.split(heads, 1), -1).squeeze(0)
        return self.out(torch.relu(joined + self.skip(fields)).flatten(1)).squeeze(-1)


class Bst(Base):
    """A transformer block over the history and the ad."""

    def make(self):
        self.places = nn.Parameter(torch.randn(STEPS + 1, WIDTH) * 0.3)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inner = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH))
        self.out = mlp((STEPS + 1) * WIDTH + 3, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        x = torch.cat([keys, query.unsqueeze(1)], 1) + self.places
        padded = torch.cat([mask == 0, torch.zeros_like(mask[:, :1]) > 0], 1)
        x = self.norm1(x + self.attention(x, x, x, key_padding_mask=padded)[0])
        x = self.norm2(x + self.inner(x))
        return self.out(torch.cat([x.flatten(1), dense], 1)).squeeze(-1)


class Din(Base):
    def make(self):
        self.attention = nn.Sequential(nn.Linear(4 * WIDTH, 16), nn.PReLU(), nn.Linear(16, 1))
        self.out = mlp(FLAT + WIDTH, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        queries = query.unsqueeze(1).expand(-1, STEPS, -1)
        x = torch.cat([queries, keys, queries - keys, queries * keys], -1)
        scores = self.attention(x).squeeze(-1).masked_fill(mask == 0, -1e9)
        interest = torch.matmul(torch.softmax(scores, 1).unsqueeze(1), keys).squeeze(1)
        return self.out(torch.cat([flat(fields, dense), interest], 1)).squeeze(-1)


class Dien(Base):
    """GRU over the history, attention, then a GRU whose update gate the attention scales."""

    def make(self):
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.gates, self.hidden = nn.Linear(2 * WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.product, self.out = nn.Linear(WIDTH, WIDTH), mlp(FLAT + WIDTH, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        states, _ = self.gru(keys)
        scores = torch.matmul(self.product(states), query.unsqueeze(2)).squeeze(2)
        weights = torch.softmax(scores + (1 - mask) * -1e4, 1)
        h = torch.zeros_like(query)
        for t in range(STEPS):
            x = states[:, t]
            update, reset = torch.sigmoid(self.gates(torch.cat([x, h], 1))).chunk(2, 1)
            candidate = torch.tanh(self.hidden(torch.cat([x, reset * h], 1)))
            update = update * weights[:, t:t + 1]
            h = (1 - update) * h + update * candidate
        return self.out(torch.cat([flat(fields, dense), h], 1)).squeeze(-1)


class Gru4Rec(Base):
    """The state of a GRU behind the last click of each history."""

    def make(self):
        self.gru, self.out = nn.GRU(WIDTH, WIDTH, batch_first=True), mlp(FLAT + WIDTH, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        states, _ = self.gru(keys)
        last = mask.sum(1).long() - 1
        state = states[torch.arange(keys.shape[0]), last]
        return self.out(torch.cat([flat(fields, dense), state], 1)).squeeze(-1)


def squeeze_excite(module, fields):
    weights = module(fields.mean(2))
    return fields * weights.unsqueeze(2)


class SeNet(Base):
    def make(self):
        self.excite = nn.Sequential(nn.Linear(FIELDS, 2), nn.ReLU(), nn.Linear(2, FIELDS),
                                    nn.ReLU())
        self.out = mlp(FLAT, 16, 1)

    def score(self, fields, dense, keys, mask, query):
        return self.out(flat(squeeze_excite(self.excite, fields), dense)).squeeze(-1)


class FiBiNet(Base):
    """Squeeze and excitation, then bilinear products of pairs with and without."""

    def make(self):
        self.excite = nn.Sequential(nn.Linear(FIELDS, 2), nn.ReLU(), nn.Linear(2, FIELDS),
                                    nn.Sigmoid())
        self.pairs = nn.ModuleList([nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(6)])
        self.out = mlp(2 * 6 * WIDTH + 3, 24, 1)

    def bilinear(self, fields):
        parts = torch.split(fields, 1, 1)
        both = itertools.combinations(range(FIELDS), 2)
        return torch.cat([f(parts[i]) * parts[j] for f, (i, j) in zip(self.pairs, both)], 1)

    def score(self, fields, dense, keys, mask, query):
        x = torch.cat([self.bilinear(squeeze_excite(self.excite, fields)),
                       self.bilinear(fields)], 1)
        return self.out(torch.cat([x.flatten(1), dense], 1)).squeeze(-1)


class Ffm(Base):
    """A table of each field for every other field."""

    def make(self):
        sizes = (USERS, ITEMS, CATEGORIES)
        self.tables = nn.ModuleList([nn.ModuleList([nn.Embedding(n, 4) for _ in sizes])
                                     for n in sizes])
        self.out = nn.Linear(3, 1)

    def score(self, fields, dense, keys, mask, query):
        total = self.out(dense)
        for i, j in itertools.combinations(range(3), 2):
            a, b = self.tables[i][j](self.ids[i]), self.tables[j][i](self.ids[j])
            total = total + (a * b).sum(-1, keepdim=True)
        return total.squeeze(-1)


class FwFm(Base):
    """Products of pairs, each with a weight."""

    def make(self):
        self.weights, self.out = nn.Parameter(torch.randn(6)), nn.Linear(3, 1)

    def score(self, fields, dense, keys, mask, query):
        gram = torch.bmm(fields, fields.transpose(1, 2))
        row, column = torch.triu_indices(FIELDS, FIELDS, 1)
        pairs = gram[:, row, column]
        return (pairs * self.weights).sum(1) + self.out(dense).squeeze(1)


class Mmoe(Base):
    def make(self):
        self.experts = nn.ModuleList([mlp(FLAT, 16, 8) for _ in range(3)])
        self.gates = nn.ModuleList([nn.Linear(FLAT, 3, bias=False) for _ in range(2)])
        self.towers = nn.ModuleList([mlp(8, 6, 1) for _ in range(2)])

    def score(self, fields, dense, keys, mask, query):
        x = flat(fields, dense)
        experts = torch.stack([expert(x) for expert in self.experts], 1)
        outs = []
        for gate, tower in zip(self.gates, self.towers):
            weights = torch.softmax(gate(x), 1).unsqueeze(2)
            outs.append(tower((experts * weights).sum(1)))
        return torch.cat(outs, 1)


class Ple(Base):
    """Two levels of experts, some of a task and some shared."""

    def make(self):
        self.levels = nn.ModuleList()
        for size in (FLAT, 8):
            self.levels.append(nn.ModuleDict({
                "own": nn.ModuleList([mlp(size, 8) for _ in range(4)]),
                "shared": nn.ModuleList([mlp(size, 8) for _ in range(2)]),
                "gates": nn.ModuleList([nn.Linear(size, 4) for _ in range(2)]),
                "shared_gate": nn.Linear(size, 6)}))
        self.towers = nn.ModuleList([mlp(8, 6, 1) for _ in range(2)])

    def score(self, fields, dense, keys, mask, query):
        tasks = [flat(fields, dense)] * 3
        for level in self.levels:
            own = [[torch.relu(e(tasks[t])) for e in level["own"][2 * t:2 * t + 2]]
                   for t in range(2)]
            shared = [torch.relu(e(tasks[2])) for e in level["shared"]]
            mixed = []
            for t in range(2):
                experts = torch.stack(own[t] + shared, 1)
                gate = level["gates"][t](tasks[t]).softmax(-1).unsqueeze(1)
                mixed.append(torch.bmm(gate, experts).squeeze(1))
            everyone = torch.stack(own[0] + own[1] + shared, 1)
            gate = level["shared_gate"](tasks[2]).softmax(-1).unsqueeze(1)
            tasks = mixed + [torch.bmm(gate, everyone).squeeze(1)]
        return torch.cat([tower(x) for tower, x in zip(self.towers, tasks)], 1)


class Dssm(Base):
    """Two towers; the score is the cosine of their ends."""

    def make(self):
        self.left, self.right = mlp(2 * WIDTH + 1, 16, 8), mlp(2 * WIDTH + 2, 16, 8)

    def score(self, fields, dense, keys, mask, query):
        user = self.left(torch.cat([fields[:, 0], fields[:, 3], dense[:, :1]], 1))
        ad = self.right(torch.cat([fields[:, 1], fields[:, 2], dense[:, 1:]], 1))
        user = nn.functional.normalize(user, p=2, dim=1)
        ad = nn.functional.normalize(ad, p=2, dim=1)
        return torch.mul(user, ad).sum(1) / 0.2


class OneMatrix(nn.Module):
    """The same model behind one matrix of floats, ids too."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        parts, begin = [], 0
        for name, (length, ids) in COLUMNS.items():
            part = x[:, begin:begin + length]
            begin += length
            parts.append(part.long() if name == "hist" else part[:, 0].long() if ids else part)
        return self.model(*parts)


FAMILIES = {"wide_deep": WideDeep, "deepfm": DeepFm, "pooled": Pooled, "nfm": Nfm, "afm": Afm,
            "pnn": Pnn, "dlrm": Dlrm, "dcn": Dcn, "dcn_v2": DcnV2, "dcn_mix": DcnMix, "xdeepfm": XDeepFm,
            "autoint": AutoInt, "bst": Bst, "din": Din, "dien": Dien, "gru4rec": Gru4Rec,
            "senet": SeNet, "fibinet": FiBiNet, "ffm": Ffm, "fwfm": FwFm, "mmoe": Mmoe, "ple": Ple,
            "dssm": Dssm}


def make(family):
    """The model in eval mode, with weights and statistics as if trained."""
    torch.manual_seed(sum(map(ord, family)))
    model = FAMILIES[family]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.3)
    return model.eval()


def inputs(ads, seed):
    """Columns of a request: one row of the user, a row per ad."""
    torch.manual_seed(seed)
    arrays = {}
    for name, (length, ids) in COLUMNS.items():
        rows = 1 if name in USER_COLUMNS else ads
        if ids == 0:
            arrays[name] = torch.randn(rows, length)
        elif name == "hist":
            arrays[name] = torch.randint(1, ids, (rows, length))
            arrays[name][:, 9:] = 0  # Padding.
        else:
            arrays[name] = torch.randint(1, ids, (rows,))
    return arrays
