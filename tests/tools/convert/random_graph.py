"""ONNX graphs in the making, each with numpy's value of everything in it."""
# SPDX-License-Identifier: Apache-2.0
import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

ADS = 5
# The first operator set that has an operator as it is used here.
SINCE = {"Where": 9, "Sign": 9, "Erf": 9, "Sinh": 9, "Cosh": 9, "OneHot": 9, "Mod": 10, "TopK": 11,
         "Round": 11, "Clip": 11, "Pad": 11, "CumSum": 11, "GatherElements": 11,
         "Einsum": 12, "Celu": 12, "GreaterOrEqual": 12, "LessOrEqual": 12,
         "ThresholdedRelu": 10, "Trilu": 14, "LayerNormalization": 17, "Mish": 18}
# The first one that has it for integers.
SINCE_FOR_INTEGERS = {"Greater": 9, "Less": 9, "Max": 12, "Min": 12, "Clip": 12}
SINCE_FOR_FLOATS = {"Equal": 11}
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.bool_): TensorProto.BOOL}


class Skip(Exception):
    """The value would say nothing: too large, no number, or decided by rounding."""


def apart(a, axis):
    """Whether no two entries of a line are so near that rounding decides which is larger."""
    return a.shape[axis] < 2 or (np.diff(np.sort(a.astype(float), axis), axis=axis) > 1e-3).all()


class Value:
    def __init__(self, name, array, rows):
        self.name, self.array, self.rows = name, array, rows  # rows: "ads", "user" or None.

    @property
    def kind(self):
        return {"f": "float", "i": "int", "u": "int", "b": "bool"}[self.array.dtype.kind]


class Graph:
    """A graph in the making, with the value of everything in it."""

    def __init__(self, seed, opset=13):
        self.random = np.random.RandomState(seed)
        self.opset = opset
        self.nodes, self.inputs, self.initializers, self.values, self.outputs = [], [], [], [], []
        self.arrays, self.user_inputs, self.ad_inputs = {}, [], []
        self.rowless_inputs = []
        self.rows = "ads"  # Or ADS: an export without dynamic axes.
        self.output_rows = None  # What outputs say instead.
        self.batch = None  # The name or number of an axis of one in front of all rows.
        self.domains = {}  # Beside ONNX's own: their versions.
        self.count = 0

    def fresh(self, base="v"):
        self.count += 1
        return f"{base}{self.count}"

    def input(self, name, array, rows="ads"):
        dims = [self.rows if rows == "ads" else self.batch or 1, *array.shape[1:]]
        value = Value(name, array, rows)
        if self.batch and rows == "ads":
            dims, value.array = [self.batch, *dims], array[None]
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[array.dtype], dims))
        self.arrays[name] = array
        return self.keep(value)

    def rowless(self, name, array):
        """The user's, without an axis of rows."""
        array = np.asarray(array)
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[array.dtype], array.shape))
        self.arrays[name] = array[None]
        self.rowless_inputs.append(name)
        return self.keep(Value(name, array, "user"))

    def steps_first(self, name, array):
        """Of the ads: [steps, ads, ...]."""
        dims = [array.shape[0], self.rows, *array.shape[2:]]
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[array.dtype], dims))
        self.arrays[name] = array.swapaxes(0, 1)
        return self.keep(Value(name, array, "ads"))

    def as_exported(self, name):
        """The input's array in the shape that the model has."""
        array = self.arrays[name]
        if name in self.rowless_inputs:
            return array[0]
        of_ads = self.batch and any(v.name == name and v.rows == "ads" for v in self.values)
        return array[None] if of_ads else array

    def shared(self, name, row):
        """An input exported by row, of which the conversion is told that it is the user's."""
        self.user_inputs.append(name)
        return self.input(name, np.repeat(row[None], ADS, 0))

    def constant(self, array, base="c"):
        array = np.asarray(array, order="C")
        name = self.fresh(base)
        self.initializers.append(numpy_helper.from_array(array, name))
        return Value(name, array, None)

    def keep(self, value):
        self.values.append(value)
        return value

    def node(self, op, inputs, array, rows=None, **attributes):
        self.want(op, inputs[0].kind if inputs else "float")
        array = np.asarray(array)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        if array.dtype.kind == "f" and not (np.isfinite(array).all() and np.abs(array).max() < 1e3):
            raise Skip
        if array.dtype.kind == "i" and np.abs(array).max() > 1 << 22:
            raise Skip
        if array.size == 0 or array.ndim > 5:
            raise Skip
        name = self.fresh()
        names = ["" if i is None else i.name for i in inputs]
        self.nodes.append(helper.make_node(op, names, [name], **attributes))
        if rows is None:
            kinds = [i.rows for i in inputs if i is not None and i.rows]
            rows = "ads" if "ads" in kinds else (kinds or [None])[0]
        return self.keep(Value(name, array, rows))

    def want(self, op, kind="float"):
        """Whether the operator set has it, of values of this kind."""
        since = SINCE_FOR_INTEGERS if kind == "int" else SINCE_FOR_FLOATS
        if self.opset < max(SINCE.get(op, 7), since.get(op, 7)):
            raise Skip

    def output(self, value):
        if value.kind != "float":
            value = self.node("Cast", [value], value.array.astype(np.float32), to=TensorProto.FLOAT)
        # A name of its own, which no other value has.
        name = f"out{len(self.outputs)}"
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self.outputs.append((name, value))

    def save(self, path):
        rows = [self.batch, self.rows] if self.batch else [self.output_rows or self.rows]
        infos = [helper.make_tensor_value_info(
            name, TensorProto.FLOAT, [*rows, *value.array.shape[len(rows):]])
            for name, value in self.outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, infos, self.initializers)
        sets = {**self.domains, "": self.opset}
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*s)
                                                        for s in sets.items()])
        model.ir_version = 8 if self.opset <= 17 else 10
        if self.opset <= 17 and not self.domains:  # What python3-onnx knows.
            checker.check_model(model)
        save(model, path)

    # --------------------------------------------------------------- steps that several ones need

    def ints(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def cast(self, x, kind):
        if kind == "int":
            if x.kind == "float":
                near = np.abs(x.array - np.round(x.array))
                if ((near > 0) & (near < 1e-3)).any():
                    raise Skip
            return self.node("Cast", [x], np.trunc(x.array).astype(np.int64), to=TensorProto.INT64)
        if kind == "bool":
            return self.node("Cast", [x], x.array != 0, to=TensorProto.BOOL)
        return self.node("Cast", [x], x.array.astype(np.float32), to=TensorProto.FLOAT)

    def slice(self, x, axis, begin, end, step=1):
        cut = [slice(None)] * x.array.ndim
        cut[axis] = slice(begin, end, step)
        if begin == 0 and end >= x.array.shape[axis] and self.random.randint(2):
            end = (1 << 63) - 1
        if self.opset < 10:
            if step != 1:
                raise Skip
            return self.node("Slice", [x], x.array[tuple(cut)], starts=[int(begin)],
                             ends=[int(end)], axes=[int(axis)])
        return self.node("Slice", [x, self.ints(begin), self.ints(end), self.ints(axis),
                                   self.ints(step)], x.array[tuple(cut)])

    def axis(self, axis, rank):
        """The axis, at times counted from the end, which old operator sets do not know."""
        return int(axis) - (rank if self.opset >= 11 and self.random.randint(3) == 0 else 0)

    def with_axes(self, op, x, axes, array, since, **attributes):
        """Axes are an input from the operator set `since` on, and an attribute before."""
        if self.opset >= since:
            return self.node(op, [x, self.ints(*axes)], array, **attributes)
        return self.node(op, [x], array, axes=[int(a) for a in axes], **attributes)

    def unsqueeze(self, x, axis):
        return self.with_axes("Unsqueeze", x, [self.axis(axis, x.array.ndim + 1)],
                              np.expand_dims(x.array, axis), 13)

    def squeeze(self, x, axis):
        return self.with_axes("Squeeze", x, [self.axis(axis, x.array.ndim)],
                              np.squeeze(x.array, axis), 13)

    def pick(self, x, axis, index):
        scalar = self.constant(np.array(index, np.int64))
        return self.node("Gather", [x, scalar], np.take(x.array, index, axis), axis=axis)

    def look_up(self, table, ids):
        if ids.array.min() < 0 or ids.array.max() >= len(table.array):
            raise Skip
        return self.node("Gather", [table, ids], table.array[ids.array], rows=ids.rows)

    def binary(self, op, a, b):
        x, y = a.array, b.array
        integers = a.kind == "int"
        if op in ("Equal", "Greater", "Less") and not integers:
            near = np.abs(x - y)
            if ((near > 0) & (near < 1e-3)).any() or (a.rows and b.rows and (near == 0).any()):
                raise Skip
        if op in ("Div", "Mod"):
            if (np.abs(y) < (1 if integers else 0.1)).any():
                raise Skip
        result = {
            "Add": lambda: x + y, "Sub": lambda: x - y, "Mul": lambda: x * y,
            "Div": lambda: np.trunc(x / y).astype(np.int64) if integers else x / y,
            "Mod": lambda: np.mod(x, y), "Min": lambda: np.minimum(x, y),
            "Max": lambda: np.maximum(x, y), "Equal": lambda: x == y, "Greater": lambda: x > y,
            "Less": lambda: x < y, "GreaterOrEqual": lambda: x >= y, "LessOrEqual": lambda: x <= y,
            "And": lambda: x & y, "Or": lambda: x | y, "Xor": lambda: x ^ y}[op]()
        return self.node(op, [a, b], result)


def matrix(g, ids, numbers, kind=np.float32):
    """One matrix for all features: `ids` columns of ids, then `numbers` columns."""
    columns = [g.random.randint(0, 7, (ADS, ids)), g.random.randn(ADS, numbers) * 3]
    return g.input("X", np.concatenate(columns, 1).astype(kind))


def raw(g, op, inputs, array, rows="ads", **attributes):
    """A node whose output numpy has no operator for."""
    value = Value(g.fresh(), array, rows)
    g.nodes.append(helper.make_node(op, [i.name for i in inputs], [value.name], **attributes))
    return g.keep(value) if isinstance(array, np.ndarray) else value


def squeezed_if(g, x, one):
    """x.squeeze(-1) as PyTorch writes it where it knows no size."""
    branches = {}
    for name, op, inputs in (("then_branch", "Squeeze", [x.name, g.ints(-1).name]),
                             ("else_branch", "Identity", [x.name])):
        output = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([helper.make_node(op, inputs, [name])], name, [],
                                           [output])
    return raw(g, "If", [one], x.array[..., 0] if one.array else x.array, **branches)
