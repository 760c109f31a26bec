"""Caffe and ONNX models through `ulf convert` into the daemon: PyTorch's scores over the wire.
SPDX-License-Identifier: Apache-2.0
"""
import importlib.util
import json
import os
import subprocess
import sys
import unittest

import grpc
import numpy as np

from harness import env
from harness.clients import (infer_outputs, infer_request, native_pb, outputs_of, predict_request)
from harness.fixtures import DaemonTest

sys.path.append(os.path.join(env.ROOT, "tests", "tools", "convert"))
TOLERANCE = 1e-5
DATA = os.path.join(env.ROOT, "tests", "data", "convert")

# Case of tests/tools/make_convert_cases.py -> flags of `ulf convert`.
CASES = {
    "onnx_din": (),
    "onnx_din_batch": ("--user_inputs=user,hist_item,hist_category",),
    "onnx_two_towers": (),
    "onnx_wide_deep": ("--user_inputs=profile",),
    "onnx_sequence": (),
    "caffe_yolo_head": (),
    "caffe_ssd_head": (),
    "caffe_roi_head": ("--user_inputs=image",),
    "caffe_transformer": (),
}


def run_ulf(*args, check=True):
    done = subprocess.run([env.program("ulf"), *args], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"ulf {args}: exit code {done.returncode}\n{done.stderr}")
    return done


def convert(case, out):
    folder = os.path.join(DATA, case)
    if case.startswith("onnx"):
        source = ("onnx", os.path.join(folder, "model.onnx"))
    else:
        source = ("caffe", os.path.join(folder, "net.prototxt"),
                  os.path.join(folder, "net.caffemodel"))
    return run_ulf("convert", *source, out, *CASES[case]).stdout


def arrays_of(case):
    folder = os.path.join(DATA, case)
    with np.load(os.path.join(folder, "inputs.npz")) as inputs, \
            np.load(os.path.join(folder, "expected.npz")) as expected:
        return dict(inputs), dict(expected)


def graphs():
    """Pattern -> its graph, and the flags with which `ulf predict` sends it."""
    if importlib.util.find_spec("onnx") is None:
        return {}
    from patterns_ids import ages, hours_of_times, times_beside_ids
    from patterns_user import ads_behind_batches, user_without_rows
    from random_graph import Graph
    drawn = {}
    for pattern in (ads_behind_batches, user_without_rows, ages, hours_of_times, times_beside_ids):
        graph = Graph(1)
        pattern(graph)
        kserve_only = pattern in (ads_behind_batches, user_without_rows)
        drawn[pattern.__name__] = graph, [("--kserve",)] if kserve_only else [("--kserve",), ()]
    return drawn


class ConvertedTest(DaemonTest):
    """Each case as it was committed, its ads alone, and its ads over and over to fill tiles."""

    @classmethod
    def fill(cls, repository):
        cls.reports = {case: convert(case, os.path.join(repository, case, "1")) for case in CASES}
        for name, (graph, _) in graphs().items():
            source = os.path.join(env.scratch(name), "model.onnx")
            graph.save(source)
            run_ulf("convert", "onnx", source, os.path.join(repository, name, "1"))

    def request(self, case, inputs):
        """(arrays as the engine reads them, names of the user's, number of ads)."""
        metadata = self.client.GetModelMetadata(
            native_pb.GetModelMetadataRequest(model={"name": case}))
        levels = {f.name: f.level for f in metadata.sparse_features}
        types = {i.name: i.data_type for i in metadata.inputs}
        levels.update({i.name: i.level for i in metadata.inputs})
        arrays, user, ads = {}, set(), 1
        for name, array in inputs.items():
            feature = name.removesuffix(".ids")
            of_user = levels[feature] == native_pb.TENSOR_LEVEL_USER
            if of_user:
                user.add(feature)
            else:
                self.assertEqual(levels[feature], native_pb.TENSOR_LEVEL_AD, name)
                ads = len(array)
            if name == feature:
                integer = types[name] == native_pb.DATA_TYPE_INT32
                arrays[name] = array.astype(np.int32 if integer else np.float32)
                continue
            arrays[name] = array.astype(np.int64)
            arrays[feature + ".values"] = np.ones(len(array), np.float32)
            counts = [len(array)] if of_user else np.ones(len(array))
            arrays[feature + ".segments"] = np.array(counts, np.int32)
        return arrays, user, ads

    def check(self, found, expected, text):
        self.assertEqual(sorted(found), sorted(expected), text)
        for name, values in expected.items():
            scale = max(1.0, float(np.abs(values).max()))
            self.assert_close(found[name], values, TOLERANCE * scale, f"{text} {name}")

    def select(self, case, rows):
        """The case with these of its ads."""
        inputs, expected = arrays_of(case)
        arrays, user, ads = self.request(case, inputs)
        features = {name.rpartition(".")[0] or name for name in arrays}
        of_ads = features - user
        for name, array in arrays.items():
            if name in of_ads or name.rpartition(".")[0] in of_ads:
                arrays[name] = array[rows]
        for name, array in expected.items():
            if array.shape[0] == ads:
                expected[name] = array[rows]
        return arrays, user, expected

    def test_predict(self):
        for case in CASES:
            ads = self.request(case, arrays_of(case)[0])[2]
            for rows in (range(ads), [ads - 1], np.arange(200) % ads):
                with self.subTest(case=case, ads=len(rows)):
                    arrays, user, expected = self.select(case, list(rows))
                    for short in (False, True):
                        request = predict_request(case, arrays, user, short=short)
                        self.check(outputs_of(self.client.predict(request)), expected, case)

    def test_model_infer(self):
        for case in CASES:
            with self.subTest(case=case):
                inputs, expected = arrays_of(case)
                arrays, user, _ = self.request(case, inputs)
                reply = self.client.infer(infer_request(case, arrays, user))
                self.check(infer_outputs(reply), expected, case)

    def test_a_matrix_comes_whole(self):
        inputs, expected = arrays_of("onnx_wide_deep")
        arrays, _, ads = self.request("onnx_wide_deep", inputs)
        metadata = self.client.GetModelMetadata(
            native_pb.GetModelMetadataRequest(model={"name": "onnx_wide_deep"}))
        matrix, = metadata.matrices
        whole = np.zeros((ads, matrix.columns), np.float32)
        for part in matrix.parts:
            for name in (part.name + ".values", part.name + ".segments"):
                arrays.pop(name, None)
            values = arrays.pop(part.name + ".ids", arrays.pop(part.name, None))
            whole[:, list(part.columns)] = values.reshape(ads, -1)
        arrays[matrix.name] = whole
        reply = self.client.infer(infer_request("onnx_wide_deep", arrays))
        self.check(infer_outputs(reply), expected, matrix.name)
        given, out = (os.path.join(env.scratch("whole"), name) for name in ("in.npz", "out.npz"))
        np.savez(given, **arrays)
        for flags in ((), ("--kserve",)):
            run_ulf("predict", self.daemon.target, "--model=onnx_wide_deep", f"--inputs={given}",
                    f"--outputs={out}", *flags)
            with np.load(out) as found:
                self.check(dict(found), expected, flags)

    @unittest.skipUnless(importlib.util.find_spec("onnx"), "python3-onnx is not installed")
    def test_models_take_what_they_had(self):
        for name, (graph, ways) in graphs().items():
            expected = {out: value.array[0] if graph.batch else value.array
                        for out, value in graph.outputs}
            arrays = {key: graph.as_exported(key) for key in graph.arrays}
            reply = self.client.infer(infer_request(name, arrays))
            self.check(infer_outputs(reply), expected, name)
            given, out = (os.path.join(env.scratch(name), file) for file in ("in.npz", "out.npz"))
            np.savez(given, **arrays)
            for way in ways:
                run_ulf("predict", self.daemon.target, f"--model={name}", f"--inputs={given}",
                        f"--outputs={out}", *way)
                with np.load(out) as found:
                    self.check(dict(found), expected, (name, way))

    def test_rows_with_more_ids_than_the_source_has_are_refused(self):
        arrays, user, _ = self.request("onnx_din", arrays_of("onnx_din")[0])
        feature = next(name.removesuffix(".ids") for name in arrays
                       if name.endswith(".ids") and name.removesuffix(".ids") not in user)
        for part in (".ids", ".values"):
            arrays[feature + part] = np.repeat(arrays[feature + part], 2)
        arrays[feature + ".segments"] = arrays[feature + ".segments"] * 2
        message = f'feature "{feature}": row 0 has 2 ids, want up to 1'
        for call, request in ((self.client.predict, predict_request("onnx_din", arrays, user)),
                              (self.client.infer, infer_request("onnx_din", arrays, user))):
            with self.assertRaises(grpc.RpcError) as raised:
                call(request)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn(message, raised.exception.details())

    def test_report_is_printed_and_kept(self):
        for case, text in self.reports.items():
            directory = os.path.join(self.repository, case, "1")
            with open(os.path.join(directory, "conversion_report.txt"), encoding="utf-8") as file:
                self.assertEqual(text, f"{file.read()}\nwritten: {directory}\n")

    def test_explain_finds_the_attention_of_din(self):
        directory = os.path.join(self.repository, "onnx_din", "1")
        path = os.path.join(env.scratch("explain"), "din.json")
        text = run_ulf("explain", directory, "--ads=200", f"--json={path}").stdout
        self.assertRegex(text, r"(?m)^ *\d+ +attention ")
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        passes = [rewrite["pass"] for rewrite in found["rewrites"]]
        self.assertIn("attention", passes)
        self.assertIn("user_split", passes)


class RefusedConversionTest(unittest.TestCase):
    """`ulf convert` says what is wrong, ends with 1, and leaves nothing behind."""

    def refuse(self, args, text, code=1):
        out = os.path.join(env.scratch("refused"), "models", "m", "1")
        done = run_ulf("convert", *args, out, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertFalse(os.path.exists(os.path.dirname(os.path.dirname(out))), done.stderr)

    def test_files_that_are_no_models(self):
        work = env.scratch("refused")
        with open(os.path.join(DATA, "onnx_din", "model.onnx"), "rb") as file:
            model = file.read()
        cut = os.path.join(work, "cut.onnx")
        with open(cut, "wb") as file:
            file.write(model[:len(model) // 2])
        huge = os.path.join(work, "huge.onnx")
        with open(huge, "wb") as file:
            file.truncate(3 << 30)  # A hole, which takes no room.
        self.refuse(("onnx", cut), f"{cut}: truncated, or not an ONNX model")
        self.refuse(("onnx", huge), huge)
        self.refuse(("onnx", work), work)
        self.refuse(("onnx", os.path.join(work, "none.onnx")), "none.onnx")

    def test_wrong_flags(self):
        model = os.path.join(DATA, "onnx_din", "model.onnx")
        self.refuse(("onnx", model, "--user_inputs=nobody"), '--user_inputs names "nobody"')
        self.refuse(("onnx", model, "--dims=steps"), '--dims: "steps", want NAME=NUMBER', 2)
        self.refuse(("onnx", model, "--dims=steps=3"), '--dims names "steps"')
        net = os.path.join(DATA, "caffe_v1", "net.prototxt")
        weights = os.path.join(DATA, "caffe_v1", "net.caffemodel")
        self.refuse(("caffe", net, weights, "--dims=t=3"), "--dims: a Caffe net has no symbolic")
