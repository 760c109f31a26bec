"""Versions that are a model.onnx: converted aside, once, and served like any other.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import struct
import unittest

import grpc

from harness import env
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import FAST, Daemon, StartFailed, wait_for
from harness.fixtures import add_stamp
from harness.small import stamp_inputs
import test_converted

CASE = "onnx_two_towers"


def model_bytes():
    with open(os.path.join(test_converted.DATA, CASE, "model.onnx"), "rb") as file:
        return file.read()


def field(number, data):
    """A field of a message, shorter than 16 KiB."""
    data = data.encode() if isinstance(data, str) else data
    return bytes([number << 3 | 2, len(data) & 127 | 128, len(data) >> 7]) + data


def node(kind, inputs, outputs):
    axis = field(5, field(1, "axis") + b"\x18\x00\xa0\x01\x02") if kind == "Concat" else b""
    return (b"".join(field(1, x) for x in inputs) + b"".join(field(2, y) for y in outputs) +
            field(4, kind) + axis)


def graph_of(nodes):
    """A model with the input x [N, 1] (of ids, if it is looked up), the constants c0 [1] and shape
    (4000000, 4), and the output y."""
    def value(name, kind):
        shape = field(1, field(2, "N")) + field(1, b"\x08\x01")
        return field(1, name) + field(2, field(1, bytes([8, kind]) + field(2, shape)))

    ids = b"Gather" in nodes[-1]
    c0 = b"\x08\x01\x10\x01" + field(8, "c0") + field(9, bytes(4))
    shape = b"\x08\x02\x10\x07" + field(8, "shape") + field(9, struct.pack("<qq", 4_000_000, 4))
    body = (b"".join(field(1, n) for n in nodes) + field(5, c0) + field(5, shape) +
            field(11, value("x", 7 if ids else 1)) + field(12, value("y", 1)))
    return b"\x08\x08" + field(8, b"\x10\x0d") + field(7, body)


class OnnxVersionsTest(unittest.TestCase):
    request, check = test_converted.ConvertedTest.request, test_converted.ConvertedTest.check

    def setUp(self):
        work = env.scratch(type(self).__name__)
        self.repository, self.kept = os.path.join(work, "models"), os.path.join(work, "kept")
        os.makedirs(self.kept)

    def assert_close(self, found, wanted, tolerance, text):
        self.assertEqual(found.shape, wanted.shape, text)
        self.assertLessEqual(abs(found - wanted).max(), tolerance, text)

    def add(self, version, content, name=CASE):
        folder = os.path.join(self.repository, name, str(version))
        os.makedirs(folder)
        with open(os.path.join(folder, "model.onnx"), "wb") as file:
            file.write(content)
        return folder

    def start(self, more=""):
        return Daemon(self.repository, wait_ready=False,
                      config=FAST + f'converted_directory: "{self.kept}"\n{more}')

    def scores(self, daemon, version):
        """Waits for the version, and compares its scores with PyTorch's.  On a busy machine the
        converter, at nice 19, waits for everybody."""
        inputs, expected = test_converted.arrays_of(CASE)
        with Client(daemon) as self.client:
            def served():
                try:
                    arrays, user, _ = self.request(CASE, inputs)
                    reply = self.client.predict(predict_request(CASE, arrays, user))
                except grpc.RpcError:
                    return None
                return reply if reply.model.version == version else None

            reply = wait_for(served, f"version {version} serves\n{daemon.log()}", 240)
            self.check(outputs_of(reply), expected, CASE)

    def made(self):
        """Name -> when its graph was written."""
        return {name: os.stat(os.path.join(self.kept, name, "graph_ulf.txt")).st_mtime_ns
                for name in os.listdir(self.kept)}

    def test_converted_once_and_removed_with_the_version(self):
        first = self.add(1, model_bytes())
        with self.start() as daemon:
            self.scores(daemon, 1)
        before = self.made()
        self.assertEqual(len(before), 1)
        report = os.path.join(self.kept, *before, "conversion_report.txt")
        with open(report, encoding="utf-8") as file:
            self.assertIn(os.path.join(first, "model.onnx"), file.read())
        # What a conversion that was cut off leaves.
        os.makedirs(os.path.join(self.kept, "unfinished", "model.abc"))
        with self.start() as daemon:
            self.scores(daemon, 1)
            self.assertEqual(self.made(), before)
            self.add(2, model_bytes())
            self.scores(daemon, 2)  # The same content: the same model.
            self.assertEqual(self.made(), before)
            shutil.rmtree(os.path.join(self.repository, CASE))
            other = model_bytes().replace(b"pytorch", b"PYTORCH")
            self.assertNotEqual(other, model_bytes())
            self.add(3, other)
            self.scores(daemon, 3)
            self.assertEqual(len(self.made()), 1)
            self.assertNotEqual(self.made().keys(), before.keys())

    def test_what_cannot_be_converted_leaves_what_serves(self):
        self.add(1, model_bytes())
        add_stamp(self.repository, 1)
        with self.start() as daemon:
            self.scores(daemon, 1)
            before = self.made()
            bad = model_bytes().replace(b"Sigmoid", b"Sigmoit")
            self.assertNotEqual(bad, model_bytes())
            self.add(2, bad)
            wait_for(lambda: "no converter for this type" in daemon.log(), "a refusal", 240)
            line = [x for x in daemon.log().splitlines() if "no converter" in x][0]
            for text in (CASE, "v2", "model.onnx", "(Sigmoit)", "node "):
                self.assertIn(text, line)
            self.scores(daemon, 1)
            self.assertEqual(self.made(), before)
            self.add(3, model_bytes()[:1000])
            wait_for(lambda: "truncated, or not an ONNX model" in daemon.log(), "a refusal", 240)
            with open(os.path.join(self.add(4, model_bytes()), "model.textproto"), "w") as file:
                file.write('outputs: "y"\n')
            wait_for(lambda: "is not read beside model.onnx" in daemon.log(), "a refusal", 240)
            self.add(5, model_bytes())
            self.scores(daemon, 5)
            with Client(daemon) as client:
                reply = client.predict(predict_request("stamp", stamp_inputs([0]), ()))
                self.assertEqual(outputs_of(reply)["score"].item(), 1)

    def test_files_elsewhere_are_not_read(self):
        outside = os.path.join(os.path.dirname(self.repository), "outside")
        with open(outside, "wb") as file:
            file.write(model_bytes())
        schema = os.path.join(os.path.dirname(self.repository), "secret")
        with open(schema, "w", encoding="utf-8") as file:
            file.write("sesame opens everything\n")
        first, second = self.add(1, b"", "first"), self.add(1, model_bytes(), "second")
        os.remove(os.path.join(first, "model.onnx"))
        os.symlink(outside, os.path.join(first, "model.onnx"))
        os.symlink(schema, os.path.join(second, "schema.csv"))
        with self.start() as daemon:
            for name in ("first/1/model.onnx", "second/1/schema.csv"):
                wait_for(lambda text=f"{name}: leads out of {self.repository}": text in daemon.log(),
                         f"a refusal of {name}\n{daemon.log()}", 240)
            self.assertNotIn("sesame", daemon.log())
        self.assertEqual(self.made(), {})

    def test_memory_is_that_of_a_load(self):
        # A row of Concat nodes, each twice the one before: 2^40 values.
        concat = [node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"]) for i in range(40)]
        self.add(1, graph_of([*concat, node("Add", ["x", "c40"], ["y"])]), "memory")
        # A table of 4 million rows out of nothing, which is written as text.
        table = [node("ConstantOfShape", ["shape"], ["table"]), node("Gather", ["table", "x"], ["y"])]
        self.add(1, graph_of(table), "disk")
        reasons = {"memory": "(Concat): the nodes and constants that the model makes take more than 256 MiB",
                   "disk": "may hold 10000000"}
        with self.start("load { max_memory_bytes: 10000000 }\n") as daemon, Client(daemon) as client:
            for name, reason in reasons.items():
                wait_for(lambda name=name, reason=reason: client.version(name, 1) and
                         reason in client.version(name, 1).quarantine.reason,
                         f"a refusal of {name}\n{daemon.log()}", 240)
        self.assertEqual(os.listdir(self.kept), [])

    def test_without_a_directory_they_do_not_load(self):
        self.add(1, model_bytes())
        with Daemon(self.repository, wait_ready=False) as daemon:
            wait_for(lambda: "has a converted_directory" in daemon.log(), "a refusal")
        with self.assertRaises(StartFailed) as failed:
            Daemon(self.repository, config='converted_directory: "/nowhere/kept"\n')
        self.assertIn("converted_directory: /nowhere/kept: No such file", failed.exception.log)


if __name__ == "__main__":
    unittest.main()
