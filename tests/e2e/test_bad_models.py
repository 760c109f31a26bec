"""Models that cannot be served: each is refused with a text that names the culprit.
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import time

import grpc
import numpy as np

from harness import env, modelfiles
from harness.clients import Client, native_pb, outputs_of, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import DaemonTest, add_stamp, shop
from harness.metrics import scrape
from harness.modelfiles import layer
from harness.small import STAMP_DIM, stamp_files, stamp_inputs

FAILED = native_pb.VERSION_STATE_FAILED
GRAPH, WEIGHTS, TABLE, CONF = "graph_ulf.txt", "weights.pb", "items", "ad.conf"


def _weights(*blobs, name="fc"):
    return modelfiles.weights_text({name: [np.asarray(b, np.float32) for b in blobs]})


def _matrix(rows=STAMP_DIM, columns=1):
    return np.ones((rows, columns))


def bad_models():
    """{name: (files, texts that the error must hold)}"""
    good = stamp_files(1)

    def changed(**files):
        names = {"graph": GRAPH, "weights": WEIGHTS, "table": TABLE, "conf": CONF,
                 "manifest": "model.textproto"}
        return {**good, **{names[key]: value for key, value in files.items()}}

    def graph(old, new):
        assert old in good[GRAPH]
        return changed(graph=good[GRAPH].replace(old, new))

    def more(text):
        return changed(graph=good[GRAPH] + text)

    npz = shop().files()

    def shop_npz(change):
        return {**npz, "dense.npz": change(npz["dense.npz"])}

    second_fc = ("inner_product_layer", "fc2", ["score"], ["other"])
    return {
        "unknown_layer_type": (graph("inner_product_layer", "inner_produkt_layer"),
                               ["inner_produkt_layer", "fc"]),
        "undefined_layer_type": (more(layer("multiply_concat_sum_layer", "mcs", ["e"], ["y"])),
                                 ["multiply_concat_sum_layer"]),
        "missing_weight": (changed(weights=_weights(_matrix())), ["fc", "2"]),
        "no_weights_of_layer": (more(layer(*second_fc)), ["fc2"]),
        "extra_weight": (changed(weights=_weights(_matrix(), [0.0], [0.0])), ["fc", "3"]),
        "weights_of_unknown_layer": (
            changed(weights=good[WEIGHTS] + _weights([1.0], name="nobody")), ["nobody"]),
        "mis_shaped_weight": (changed(weights=_weights(_matrix(5), [0.0])),
                              ["fc", "[5, 1]", "4"]),
        "mis_shaped_bias": (changed(weights=_weights(_matrix(), [0.0, 1.0])), ["fc", "[2]"]),
        "blob_without_all_data": (
            changed(weights=good[WEIGHTS].replace("data: 1.0", "", 1)), ["fc"]),
        "forward_reference": (
            changed(graph=layer("relu_layer", "early", ["score"], ["early"]) + good[GRAPH]),
            ["early", "score"]),
        "undefined_bottom": (graph('bottom: "e"', 'bottom: "emb"'), ["fc", "emb"]),
        "wrong_arity": (more(layer("sub_layer", "lonely", ["score"], ["y"])), ["lonely", "1"]),
        "too_many_tops": (more(layer("relu_layer", "forked", ["score"], ["y", "z"])), ["forked"]),
        "shapes_that_do_not_match": (
            more(layer("reshape_layer", "odd", ["e"], ["odd"],
                       param="reshape_param { shape: -1 shape: 3 }") +
                 layer("add_layer", "sum", ["odd", "e"], ["y"])), ["3", "4"]),
        "graph_with_a_typo": (graph("bottom:", "botom:"), [GRAPH, "botom"]),
        "conf_without_feature": (graph("ad.ids", "banner.ids"), ["banner"]),
        "conf_without_table": (changed(conf=good[CONF].replace('"items"', '"itemz"')), ["itemz"]),
        "conf_missing": (graph('"ad.conf"', '"add.conf"'), ["add.conf"]),
        "conf_with_a_typo": (changed(conf=good[CONF].replace("dim:", "dimm:")), [CONF, "dimm"]),
        "conf_with_wrong_dim": (changed(conf=good[CONF].replace("dim: 4", "dim: 5")),
                                ["items", "5", "4"]),
        "table_with_a_bad_line": (changed(table="0,1,1,1,1\n1,2,2,zwei,2\n"), ["items:2"]),
        "table_with_a_short_line": (changed(table="0,1,1,1,1\n1,2,2,2,2\n2,1,1\n"), ["items:3"]),
        "table_with_a_duplicate": (changed(table="5,1,1,1,1\n6,1,1,1,1\n5,1,1,1,1\n"),
                                   ["items:3", "5"]),
        "table_with_nan": (changed(table="5,1,nan,1,1\n"), ["items:1"]),
        "table_without_rows": (changed(table=""), ["items"]),
        "truncated_npz": (shop_npz(lambda b: b[:len(b) // 2]), ["dense.npz"]),
        "npz_of_nothing": (shop_npz(lambda b: b""), ["att1", "0 weights"]),
        "npz_without_an_array": (
            {**npz, "dense.npz": modelfiles.npz_bytes(
                {k: v for k, v in shop().weights.items() if k != "fc1_b"})}, ["fc1_b"]),
        "npz_of_text": (
            {**npz, "dense.npz": modelfiles.npz_bytes(
                {**shop().weights, "fc1_b": np.array(["a", "b"])})}, ["fc1_b"]),
        "oversized_npz_header": (
            shop_npz(lambda b: b.replace(b"'shape': (16,)", b"'shape': (9" + b"9" * 10 + b",)")[
                :len(b)]), ["dense.npz"]),
        "truncated_protobuf": (changed(weights=b"\x0a\x85\x01\x0a\x02fc\x12\x20\x0a\x01"),
                               ["weights.pb"]),
        "oversized_protobuf": (changed(weights=b"\x0a\xff\xff\xff\xff\x07" + b"a" * 50),
                               ["weights.pb"]),
        "manifest_with_a_typo": (changed(manifest='outputs: "score"\noutputz: "score"\n'),
                                 ["model.textproto:2:", "outputz"]),
        "manifest_with_unknown_output": (changed(manifest='outputs: "scores"\n'), ["scores"]),
        "manifest_with_wrong_sum": (
            changed(manifest='sums { path: "items" sha256: "%s" }\n' % ("0" * 64)), ["items"]),
        "manifest_that_leaves_the_folder": (changed(manifest='graph: "../../stamp/1/graph"\n'),
                                            [".."]),
        "slice_beyond": (more(layer("slice_layer", "far", ["e"], ["y"],
                                    param="slice_param { concat_dim: 0 slices "
                                          "{ offset: 3 shape: 2 } }")), ["far"]),
        "two_unknown_dimensions": (more(layer("reshape_layer", "lost", ["e"], ["y"],
                                              param="reshape_param { shape: -1 shape: -1 }")),
                                   ["lost"]),
        "huge_constant": (more(layer(
            "constant_layer", "huge", [], ["y"],
            param="constant_param { blob_data { shape: 2000000000 shape: 2000000000 data: 1 } }")),
            ["huge"]),
    }


class BadModelsTest(DaemonTest):
    CONFIG = FAST + "found_models_required: true"
    WAIT_READY = False

    @classmethod
    def fill(cls, repository):
        cls.bad = bad_models()
        for name, (files, _) in cls.bad.items():
            modelfiles.write_version(os.path.join(repository, name, "1"), files)
        add_stamp(repository, 1)
        nan = {**stamp_files(1), WEIGHTS: _weights([[1.0], [1.0], [np.nan], [1.0]], [0.0])}
        modelfiles.write_version(os.path.join(repository, "nan_weight", "1"), nan)
        os.makedirs(os.path.join(repository, "empty_model"))
        os.makedirs(os.path.join(repository, "no_version", "latest"))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        wait_for(lambda: sum(v.state == FAILED or v.serving
                             for m in cls.client.list_models().models for v in m.versions) >=
                 len(cls.bad) + 2, "every load has ended", 60)
        cls.statuses = {m.name: m for m in cls.client.list_models().models}

    def test_each_is_refused_by_name(self):
        for name, (_, texts) in self.bad.items():
            with self.subTest(model=name):
                (version,) = self.statuses[name].versions
                self.assertFalse(version.serving, "it was loaded")
                self.assertEqual(version.state, FAILED, version.error)
                for text in texts:
                    self.assertIn(text, version.error)
                self.assertIn(f'"{name}"', version.error)
                self.assertLessEqual(len(version.error), 1024)

    def test_calls_of_a_refused_model_say_unavailable(self):
        for name in list(self.bad)[:3]:
            with self.assert_refused(grpc.StatusCode.UNAVAILABLE, name):
                self.client.predict(predict_request(name, stamp_inputs([1]), ()))

    def test_the_good_one_is_served(self):
        reply = self.client.predict(predict_request("stamp", stamp_inputs([3]), ()))
        self.assertEqual(outputs_of(reply)["score"].tolist(), [[4.0]])
        self.assertEqual(self.client.health("model/stamp"), "SERVING")

    def test_nan_in_weights_is_a_notice(self):
        (version,) = self.statuses["nan_weight"].versions
        self.assertTrue(version.serving, version.error)
        self.assertTrue(any("fc" in n and "NaN" in n for n in version.notices), version.notices)

    def test_failures_are_counted_and_logged(self):
        self.assertGreaterEqual(scrape(self.daemon).sum("ulfd_model_load_failures_total"),
                                len(self.bad))
        log = self.daemon.log()
        for name in self.bad:
            self.assertIn(name, log)

    def test_not_ready_and_says_why(self):
        status, text = self.daemon.http("/readyz")
        self.assertEqual(status, 503)
        self.assertIn('"unknown_layer_type"', text)
        self.assertIn("inner_produkt_layer", text)
        self.assertNotIn('"stamp"', text)
        self.assertEqual(self.daemon.http("/healthz")[0], 200)

    def test_bad_content_is_not_tried_again(self):
        """A file that is missing may still come and is looked for again; nothing else is."""
        time.sleep(0.5)  # Ten polls.
        log = self.daemon.log()
        for name in self.bad:
            tries = log.count(f"model refused model={name} ")
            if name in ("conf_missing", "conf_without_table"):
                self.assertGreaterEqual(tries, 2, name)
            else:
                self.assertEqual(tries, 1, name)

    def test_ulf_inspect_says_the_same(self):
        for name in ("unknown_layer_type", "table_with_a_bad_line", "mis_shaped_weight"):
            done = subprocess.run([env.program("ulf"), "inspect",
                                   os.path.join(self.repository, name, "1")], capture_output=True,
                                  text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            for text in self.bad[name][1]:
                self.assertIn(text, done.stderr)


class HostileModelsTest(DaemonTest):
    """Directories made against the daemon: it lives, says why, and goes on serving.  Also after a
    restart."""
    CONFIG = FAST + "load { max_memory_bytes: 67108864 max_time_ms: 20000 max_files: 200 }"
    WAIT_READY = False
    SECRET = "qzxj-words-of-another-file"

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)
        good = stamp_files(1)
        outside = env.scratch("outside")
        secret = os.path.join(outside, "secret")
        with open(secret, "w", encoding="utf-8") as file:
            file.write(cls.SECRET)
        cls.bad = {}

        def version(name, text, files=None):
            path = os.path.join(repository, name, "1")
            modelfiles.write_version(path, good if files is None else files, success=False)
            cls.bad[name] = text
            return path

        for name, file in (("graph", GRAPH), ("weights", WEIGHTS), ("table", TABLE), ("conf", CONF),
                           ("manifest", "model.textproto")):
            path = os.path.join(version(f"{name}_behind_a_link", "leads out of"), file)
            if os.path.exists(path):
                os.remove(path)
            os.symlink(secret, path)
        path = version("device", "leads out of")
        os.remove(os.path.join(path, TABLE))
        os.symlink("/dev/zero", os.path.join(path, TABLE))
        path = version("fifo", "not a regular file")
        os.remove(os.path.join(path, WEIGHTS))
        os.mkfifo(os.path.join(path, "pipe"))
        with open(os.path.join(path, "model.textproto"), "w", encoding="utf-8") as file:
            file.write('weights: "pipe"\n')
        path = version("sparse_table", "memory")
        os.truncate(os.path.join(path, TABLE), 1 << 40)
        path = version("sparse_weights", "memory")
        os.truncate(os.path.join(path, WEIGHTS), 1 << 40)
        path = version("many_files", "holds more than 200 files")
        for i in range(300):
            open(os.path.join(path, f"f{i}"), "w", encoding="utf-8").close()
        version("long_name", "bytes, want at most 1024",
                {**good, GRAPH: good[GRAPH] + layer("relu_layer", "n" * 5000000, ["score"], ["y"])})
        version("deep_text", GRAPH, {**good, GRAPH: "layer_params " + "[" * 1000000})
        version("deep_expression", "nested",
                {**good, GRAPH: good[GRAPH] + layer(
                    "expression_layer", "deep", ["score"], ["y"],
                    param='expression_param { expression: "%s" }' %
                    ("(" * 1000 + "@0" + ")" * 1000))})
        version("many_layers", "20000",
                {**good, GRAPH: good[GRAPH] + "layer_params { }\n" * 30000})
        version("many_bottoms", "200000",
                {**good, GRAPH: good[GRAPH] + layer("concat_layer", "c", ["score"] * 300000,
                                                    ["y"])})
        version("empty_weight_of_any_size", "fc",
                {**good, WEIGHTS: 'layer_weights_params { name: "fc" blob_datas { shape: 0 '
                                  'shape: 2147483647 } blob_datas { shape: 2147483647 } }'})
        for path in (os.path.join(repository, name, "1") for name in cls.bad):
            open(os.path.join(path, "_SUCCESS"), "w", encoding="utf-8").close()

    def check(self, daemon, client):
        statuses = {}

        def all_ended():
            statuses.update({m.name: m for m in client.list_models().models})
            return len(statuses) > len(self.bad) and all(
                v.state == FAILED or v.serving for m in statuses.values() for v in m.versions)

        wait_for(all_ended, "every load has ended", 120)
        for name, text in self.bad.items():
            with self.subTest(model=name):
                (version,) = statuses[name].versions
                self.assertEqual(version.state, FAILED, version.error)
                self.assertIn(text, version.error)
                self.assertNotIn(self.SECRET[:4], version.error)
        reply = client.predict(predict_request("stamp", stamp_inputs([3]), ()))
        self.assertEqual(outputs_of(reply)["score"].tolist(), [[4.0]])
        self.assertNotIn(self.SECRET, daemon.log())

    def test_each_is_refused_and_the_others_serve(self):
        self.check(self.daemon, self.client)

    def test_the_same_at_every_start(self):
        daemon = Daemon(self.repository, config=self.CONFIG, wait_ready=False)
        try:
            client = Client(daemon)
            self.check(daemon, client)
            client.close()
        finally:
            daemon.stop()
