"""ONNX cases of make_convert_cases.py: PyTorch models exported, and their values in float64."""
# SPDX-License-Identifier: Apache-2.0
import copy
import functools
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore")
torch.set_num_threads(1)


def export(folder, model, inputs, outputs, rows, opset=13):
    """Writes model.onnx.  inputs: name -> example; rows: name -> name of the leading dimension."""
    model.eval()
    axes = {name: {0: dim} for name, dim in rows.items()}
    torch.onnx.export(model, tuple(inputs.values()), str(folder / "model.onnx"),
                      input_names=list(inputs), output_names=outputs, dynamic_axes=axes,
                      opset_version=opset, do_constant_folding=True)


def reference(model, inputs, outputs):
    """The model's outputs in float64, with the weights that were exported."""
    model = model.double()
    args = [x.double() if x.is_floating_point() else x for x in inputs.values()]
    with torch.no_grad():
        values = model(*args)
    values = values if isinstance(values, (tuple, list)) else [values]
    return {name: value.numpy() for name, value in zip(outputs, values)}


def randomize(model, seed):
    """Statistics of batch normalisations and slopes as if trained."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator) * 0.3)
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
            module.weight.data.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
            module.bias.data.copy_(torch.randn(module.num_features, generator=generator) * 0.3)
        if isinstance(module, nn.PReLU):
            size = module.weight.numel()
            module.weight.data.copy_(torch.rand(size, generator=generator) * 0.5)


# ------------------------------------------------------------------------------------------- DIN

ITEMS, CATEGORIES, USERS, HISTORY = 300, 12, 100, 20


class Din(nn.Module):
    """Deep Interest Network (arXiv:1706.06978): attention of the ad over the user's history."""

    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(ITEMS, 8, padding_idx=0)
        self.category = nn.Embedding(CATEGORIES, 4, padding_idx=0)
        self.user = nn.Embedding(USERS, 6)
        self.attention = nn.Sequential(nn.Linear(48, 24), nn.Sigmoid(), nn.Linear(24, 12),
                                       nn.Sigmoid(), nn.Linear(12, 1))
        self.tower = nn.Sequential(nn.Linear(6 + 12 * 4 + 2, 32), nn.BatchNorm1d(32), nn.PReLU(32),
                                   nn.Linear(32, 16), nn.PReLU(16), nn.Linear(16, 1))

    def forward(self, user, hist_item, hist_category, item, category, stats):
        keys = torch.cat([self.item(hist_item), self.category(hist_category)], -1)
        query = torch.cat([self.item(item), self.category(category)], -1)
        ads, steps = query.shape[0], keys.shape[1]
        keys = keys.expand(ads, -1, -1)
        queries = query.unsqueeze(1).expand(-1, steps, -1)
        scores = self.attention(torch.cat([queries, keys, queries - keys, queries * keys], -1))
        scores = scores.squeeze(-1).masked_fill(hist_item == 0, -1e9)
        weights = torch.softmax(scores, -1)
        interest = torch.bmm(weights.unsqueeze(1), keys).squeeze(1)
        user = self.user(user).expand(ads, -1)
        total = keys.sum(1)
        x = torch.cat([user, query, interest, query * interest, query * total, stats], -1)
        return torch.sigmoid(self.tower(x)).squeeze(-1)


def clicks(random, count):
    """Made-up clicks: users like a category or two and click on what they had before."""
    liked = random.randint(1, CATEGORIES, size=(USERS, 2))
    category_of = np.concatenate([[0], random.randint(1, CATEGORIES, size=ITEMS - 1)])
    user = random.randint(0, USERS, size=count)
    item = random.randint(1, ITEMS, size=count)
    likes = (category_of[item][:, None] == liked[user]).any(1)
    hist = np.zeros((count, HISTORY), np.int64)
    for row in range(count):
        length = random.randint(1, HISTORY + 1)
        choices = np.flatnonzero(np.isin(category_of, liked[user[row]]))
        hist[row, :length] = random.choice(choices if len(choices) else np.arange(1, ITEMS), length)
    stats = random.rand(count, 2).astype(np.float32)
    odds = 0.1 + 0.6 * likes + 0.2 * stats[:, 0]
    label = (random.rand(count) < odds).astype(np.float32)
    return user, hist, category_of[hist], item, category_of[item], stats, label


@functools.lru_cache(maxsize=None)
def trained_din():
    """Half a minute of Adam; the loss must fall for the case to mean something."""
    torch.manual_seed(7)
    model = Din()
    data = [torch.tensor(x) for x in clicks(np.random.RandomState(7), 8000)]
    torch.manual_seed(7)
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    losses = []
    for _ in range(1500):
        rows = torch.randint(0, len(data[0]), (256,))
        *x, label = [d[rows] for d in data]
        # Training has a history per row; serving has one for all ads.
        loss = F.binary_cross_entropy(model(*x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    first, last = np.mean(losses[:20]), np.mean(losses[-20:])
    print(f"DIN: {len(losses)} steps, loss {first:.3f} -> {last:.3f}")
    assert last < 0.9 * first
    return model


def din(folder, batch=False):
    """Exported with one row of the user, or (batch) as it was trained: every input with the batch
    in front, so that the converter must be told what belongs to the user."""
    model = copy.deepcopy(trained_din())
    user, hist, hist_category, item, category, stats, _ = clicks(np.random.RandomState(8), 7)
    hist[0, -6:], hist_category[0, -6:] = 0, 0
    inputs = {"user": torch.tensor(user[:1]), "hist_item": torch.tensor(hist[:1]),
              "hist_category": torch.tensor(hist_category[:1]), "item": torch.tensor(item),
              "category": torch.tensor(category), "stats": torch.tensor(stats)}
    if batch:
        whole = {name: x if len(x) > 1 else x.expand(len(item), *x.shape[1:])
                 for name, x in inputs.items()}
        export(folder, model, whole, ["ctr"], {name: "batch" for name in whole})
    else:
        export(folder, model, inputs, ["ctr"], {"item": "ads", "category": "ads", "stats": "ads"})
    arrays = {f"{name}.ids": inputs[name].flatten().numpy()
              for name in ("user", "hist_item", "hist_category", "item", "category")}
    arrays["stats"] = stats
    return arrays, reference(model, inputs, ["ctr"])


# ------------------------------------------------------------------------------------- two towers

class TwoTowers(nn.Module):
    """A user's ids on one side, an ad's image and id on the other; their cosine is the score."""

    def __init__(self):
        super().__init__()
        self.user, self.ad = nn.Embedding(40, 8), nn.Embedding(60, 8)
        self.conv1 = nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1, groups=2)
        self.act = nn.PReLU(8)
        self.user_fc = nn.Linear(8 + 3, 8)
        self.ad_fc = nn.Linear(8 + 8, 8)

    def forward(self, user, age, image, ad):
        x = F.relu(self.bn1(self.conv1(image)))
        x = F.max_pool2d(x, 2)
        x = self.act(self.conv2(x))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        a = self.ad_fc(torch.cat([x, self.ad(ad)], 1))
        u = torch.tanh(self.user_fc(torch.cat([self.user(user), age], 1)))
        dot = (u * a).sum(1)
        return dot, torch.sigmoid(a @ u.t()), u


def two_towers(folder):
    torch.manual_seed(3)
    model = TwoTowers()
    randomize(model, 3)
    random = np.random.RandomState(3)
    inputs = {"user": torch.tensor([17]), "age": torch.tensor(random.rand(1, 3).astype(np.float32)),
              "image": torch.tensor(random.randn(5, 3, 16, 16).astype(np.float32)),
              "ad": torch.tensor(random.randint(0, 60, 5))}
    names = ["dot", "score", "user_vector"]
    export(folder, model, inputs, names, {"image": "ads", "ad": "ads"})
    arrays = {"user.ids": inputs["user"].numpy(), "age": inputs["age"].numpy(),
              "image": inputs["image"].numpy(), "ad.ids": inputs["ad"].numpy()}
    return arrays, reference(model, inputs, names)


# ---------------------------------------------------------------------------- one name for all rows

class WideDeep(nn.Module):
    """A matrix of ids, one column per field; every input with the batch in front, as in training."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(n, 4) for n in (20, 30, 25)])
        self.wide = nn.ModuleList([nn.Embedding(n, 1) for n in (20, 30, 25)])
        self.fc1, self.fc2 = nn.Linear(3 * 4 + 5 + 4, 16), nn.Linear(16, 1)
        self.bn = nn.BatchNorm1d(3 * 4 + 5 + 4)

    def forward(self, fields, profile, dense):
        x = [table(fields[:, i]) for i, table in enumerate(self.tables)]
        wide = sum(table(fields[:, i]) for i, table in enumerate(self.wide))
        stack = torch.stack(x, 1)
        pairs = 0.5 * (stack.sum(1) ** 2 - (stack ** 2).sum(1)).sum(1, keepdim=True)
        deep = self.bn(torch.cat([profile] + x + [dense], 1))
        deep = self.fc2(F.leaky_relu(self.fc1(deep), 0.05))
        return torch.sigmoid(wide + pairs + deep + 0.25)


def wide_deep(folder):
    torch.manual_seed(4)
    model = WideDeep()
    randomize(model, 4)
    random = np.random.RandomState(4)
    fields = np.stack([random.randint(0, n, 6) for n in (20, 30, 25)], 1)
    profile = random.randn(1, 5).astype(np.float32)
    dense = random.randn(6, 4).astype(np.float32)
    inputs = {"fields": torch.tensor(fields), "profile": torch.tensor(np.repeat(profile, 6, 0)),
              "dense": torch.tensor(dense)}
    export(folder, model, inputs, ["click"], {name: "batch" for name in inputs})
    arrays = {f"fields_{i}.ids": fields[:, i] for i in range(3)}
    arrays.update(profile=profile, dense=dense)
    return arrays, reference(model, inputs, ["click"])


# ------------------------------------------------------------------------------------------ GRU

class Sequence(nn.Module):
    """GRU over a history, its last state and its mean beside the ad."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 6, padding_idx=0)
        self.gru = nn.GRU(6, 4, batch_first=True)
        self.wide_gru = nn.GRU(4, 7, batch_first=True)
        self.fc = nn.Linear(4 + 7 + 7 + 6, 1)

    def forward(self, history, ad):
        steps, last = self.gru(self.table(history))
        wide, wide_last = self.wide_gru(steps)
        x = torch.cat([last[0], wide.mean(1), wide_last.squeeze(0)], 1)
        ad = self.table(ad)
        return torch.sigmoid(self.fc(torch.cat([x.expand(ad.shape[0], -1), ad], 1))), steps


def sequence(folder):
    torch.manual_seed(5)
    model = Sequence()
    history = np.array([[0, 0, 3, 9, 41, 3, 0, 7]])  # Zeros in front are steps for PyTorch.
    ad = np.array([5, 1, 49, 8])
    inputs = {"history": torch.tensor(history), "ad": torch.tensor(ad)}
    names = ["score", "states"]
    export(folder, model, inputs, names, {"ad": "N"})
    return ({"history.ids": history[0], "ad.ids": ad}, reference(model, inputs, names))


# --------------------------------------------------------------------------------- plain operators

class Shapes(nn.Module):
    """Views, cuts, joins and products."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 5)
        self.matrix = nn.Parameter(torch.randn(5, 3))

    def forward(self, x, u):  # x [ads, 6, 4], u [user, 6, 4]
        heads = self.fc(x).view(x.shape[0], 6, 5).transpose(1, 2)
        product = torch.matmul(x, x.transpose(1, 2))
        cross = torch.matmul(u, x.transpose(1, 2)).softmax(-1)
        cut = x[:, 1:4, 1:3].reshape(x.shape[0], -1)
        a, b = torch.split(x, [1, 3], 2)
        joined = torch.cat([u.expand(x.shape[0], -1, -1), x], 2)
        wide = torch.cat([u.reshape(1, -1).expand(x.shape[0], -1), x.flatten(1)], 1)
        deep = torch.matmul(x.view(-1, 2, 3, 4).unsqueeze(1), self.fc.weight.t())
        scaled = torch.matmul(heads.transpose(1, 2), self.matrix) / 2 - 1
        return (heads, product, cross, cut, (a * b).sum((1, 2)), joined, wide[:, 20:30],
                deep.mean((2, 3)), scaled, x.mean(-1, keepdim=True) * x, x[:, :, [0, 3]])


def shapes(folder):
    torch.manual_seed(6)
    model = Shapes()
    random = np.random.RandomState(6)
    inputs = {"x": torch.tensor(random.randn(5, 6, 4).astype(np.float32)),
              "u": torch.tensor(random.randn(1, 6, 4).astype(np.float32))}
    names = ["heads", "product", "cross", "cut", "sums", "joined", "wide", "deep", "scaled",
             "centred", "picked"]
    export(folder, model, inputs, names, {"x": "batch_size"})
    return ({k: v.numpy() for k, v in inputs.items()}, reference(model, inputs, names))


class Formulas(nn.Module):
    """What becomes an expression."""

    def forward(self, x, mask, m):
        kept = x.masked_fill(m == 0, -1e9).softmax(1)
        masked = torch.where(mask, x, -x)
        norm = (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, unbiased=False, keepdim=True) + 1e-5)
        return (kept, masked, x.clamp(-0.5, 1), F.relu6(x * 4), x.abs().sqrt(), x.abs().pow(1.5),
                torch.exp(-x), torch.log(x * x + 1), torch.max(x, -x), torch.min(x, m.float()),
                ((x > 0) & (x < 1)).float(), (~mask | (x >= 0.5)).float() * 2, norm)


def formulas(folder):
    model = Formulas()
    random = np.random.RandomState(9)
    x = random.randn(4, 6).astype(np.float32)
    mask = np.array([[True, False, True, True, False, True]])
    m = random.randint(0, 2, (4, 6))
    inputs = {"x": torch.tensor(x), "mask": torch.tensor(mask), "m": torch.tensor(m)}
    names = ["kept", "masked", "clamped", "six", "root", "power", "exp", "log", "largest",
             "smallest", "between", "either", "norm"]
    export(folder, model, inputs, names, {"x": "ads", "m": "ads"})
    return ({"x": x, "mask": mask.astype(np.int32), "m": m.astype(np.float32)},
            reference(model, inputs, names))


# -------------------------------------------------------------------- older and newer operator sets

class Sets(nn.Module):
    """What operator sets 9, 13 and 17 write in different ways: axes, sizes and bounds."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x, y):  # x [ads, 4, 6], y [user, 3]
        a, b = torch.split(x, [2, 4], 2)
        cut = x[:, 1:3, ::1].squeeze(1).unsqueeze(2)
        total = x.sum(2, keepdim=True) + x.mean(1, keepdim=True)
        clipped = F.hardtanh(x, -0.5, 0.25)
        beside = torch.cat([x.flatten(1), y.expand(x.shape[0], -1)], 1)
        return (a.contiguous(), b.softmax(2), cut, total, clipped, self.norm(x), beside,
                x.reshape(-1, 12, 2), F.normalize(x, dim=2), x[:, 0] * y[0, 1])


def sets(folder, opset):
    torch.manual_seed(15)
    model = Sets()
    model.norm.weight.data.uniform_(0.5, 1.5)
    model.norm.bias.data.uniform_(-1, 1)
    random = np.random.RandomState(15)
    inputs = {"x": torch.tensor(random.randn(3, 4, 6).astype(np.float32)),
              "y": torch.tensor(random.randn(1, 3).astype(np.float32))}
    names = ["a", "b", "cut", "total", "clipped", "norm", "beside", "shaped", "unit", "scaled"]
    export(folder, model, inputs, names, {"x": "ads"}, opset)
    return ({k: v.numpy() for k, v in inputs.items()}, reference(model, inputs, names))


# ------------------------------------------------------------------------------- written by hand

def operators(folder):
    """Operators that PyTorch has no layer for, or writes as others; values from PyTorch's formulas."""
    from onnx import TensorProto, checker, helper, numpy_helper, save
    nodes = [helper.make_node(op, ins.split(), [out], **attributes) for op, ins, out, attributes in [
        ("Sum", "x y x", "sum", {}), ("Mean", "x y", "mean", {}), ("Greater", "x zero", "p", {}),
        ("Greater", "y zero", "q", {}), ("Xor", "p q", "either", {}),
        ("Cast", "either", "xor", {"to": TensorProto.FLOAT}), ("LessOrEqual", "x y", "le", {}),
        ("Cast", "le", "not_above", {"to": TensorProto.FLOAT}), ("Exp", "x", "e", {}),
        ("Reciprocal", "e", "reciprocal", {}), ("Dropout", "x", "kept", {}),
        ("Elu", "kept", "elu", {"alpha": 0.7}), ("Mul", "x thirty", "far", {}),
        ("Softplus", "far", "softplus", {}), ("Softsign", "x", "softsign", {}),
        ("HardSigmoid", "x", "hard", {"alpha": 0.4, "beta": 0.3}),
        ("ReduceSumSquare", "x", "squares", {"axes": [1], "keepdims": 0}),
        ("ReduceL2", "image", "length", {"axes": [1, 3], "keepdims": 1}),
        ("AveragePool", "image", "average", {"kernel_shape": [3, 2], "strides": [2, 1],
                                             "pads": [1, 0, 1, 1], "count_include_pad": 1}),
        ("AveragePool", "image", "inside", {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}),
        ("GlobalMaxPool", "image", "largest", {}), ("Identity", "x", "same", {})]]
    outputs = {"sum": [5], "mean": [5], "xor": [5], "not_above": [5], "reciprocal": [5],
               "elu": [5], "softplus": [5], "softsign": [5], "hard": [5], "squares": [],
               "length": [1, 6, 1], "average": [2, 3, 4], "inside": [2, 6, 4],
               "largest": [2, 1, 1], "same": [5]}

    def info(name, dims, rows):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows] + dims)

    graph = helper.make_graph(
        nodes, "operators",
        [info("x", [5], "ads"), info("y", [5], 1), info("image", [2, 6, 4], "ads")],
        [info(name, dims, "ads") for name, dims in outputs.items()],
        [numpy_helper.from_array(np.float32([0]), "zero"),
         numpy_helper.from_array(np.float32(30), "thirty")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)])
    model.ir_version = 8
    checker.check_model(model, full_check=True)
    save(model, str(folder / "model.onnx"))
    random = np.random.RandomState(16)
    arrays = {"x": random.randn(4, 5), "y": random.randn(1, 5), "image": random.randn(4, 2, 6, 4)}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    x, y, image = (torch.tensor(arrays[name]).double() for name in ("x", "y", "image"))
    padded = F.pad(image, (0, 1, 1, 1))
    expected = {
        "sum": x + y + x, "mean": (x + y) / 2, "xor": ((x > 0) ^ (y > 0)).double(),
        "not_above": (x <= y).double(), "reciprocal": 1 / x.exp(), "elu": F.elu(x, 0.7),
        "softplus": F.softplus(x * 30), "softsign": F.softsign(x),
        "hard": (0.4 * x + 0.3).clamp(0, 1), "squares": (x * x).sum(1),
        "length": torch.linalg.vector_norm(image, dim=(1, 3), keepdim=True),
        "average": F.avg_pool2d(padded, (3, 2), (2, 1)),
        "inside": F.avg_pool2d(F.pad(image, (1, 0, 1, 0)), 2, 1) /
                  F.avg_pool2d(F.pad(torch.ones_like(image), (1, 0, 1, 0)), 2, 1),
        "largest": image.amax((2, 3), keepdim=True), "same": x}
    return arrays, {name: value.numpy() for name, value in expected.items()}


CASES = {"onnx_din": din, "onnx_din_batch": functools.partial(din, batch=True),
         "onnx_two_towers": two_towers, "onnx_wide_deep": wide_deep, "onnx_sequence": sequence,
         "onnx_shapes": shapes, "onnx_formulas": formulas, "onnx_operators": operators,
         "onnx_set_9": functools.partial(sets, opset=9),
         "onnx_set_13": functools.partial(sets, opset=13),
         "onnx_set_17": functools.partial(sets, opset=17)}
