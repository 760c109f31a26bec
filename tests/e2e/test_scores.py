"""Scores over the wire against references that share no code with the engine.
SPDX-License-Identifier: Apache-2.0
"""
import itertools
import json
import os
import subprocess
import unittest

import numpy as np

from harness import env
from harness.clients import (infer_outputs, infer_request, outputs_of, predict_request)
from harness.fixtures import (SHARED_USERS, DaemonTest, add_shared, add_shop, shared_cases, shop)
from harness.shop import USER

TOLERANCE = 1e-5
DATA = os.path.join(env.E2E, "data", "shop_cases.json")


def score_command(directory, arrays, work, *flags):
    """Outputs of `ulf score`."""
    given, out = os.path.join(work, "in.npz"), os.path.join(work, "out.npz")
    np.savez(given, **arrays)
    subprocess.run([env.program("ulf"), "score", directory, f"--inputs={given}",
                    f"--outputs={out}", *flags], check=True, capture_output=True, text=True)
    with np.load(out) as found:
        return dict(found)


class ShopScoresTest(DaemonTest):
    """A model of our own, 1, 7 and 200 ads, with and without what is a default anyway."""

    STATED = True

    @classmethod
    def fill(cls, repository):
        add_shop(repository, cls.STATED)

    def each_case(self):
        for ads in (1, 2, 7, 64, 200):
            for plain in (False, True):
                arrays = shop().inputs(ads, seed=ads, plain=plain)
                yield ads, plain, arrays, shop().scores(arrays)

    def check(self, found, expected, text):
        self.assertEqual(sorted(found), sorted(expected), text)
        for name, values in expected.items():
            self.assert_close(found[name], values, TOLERANCE, f"{text} {name}")

    def test_predict(self):
        for ads, plain, arrays, expected in self.each_case():
            for short in (False, True):
                request = predict_request("shop", arrays, USER, short=short)
                reply = self.client.predict(request)
                self.check(outputs_of(reply), expected, f"{ads} ads, plain={plain} short={short}")
                self.assertEqual(reply.model.version, 1)
                self.assertEqual(reply.missing_ids, sum(shop().missing_ids(arrays).values()))

    def test_model_infer(self):
        for ads, plain, arrays, expected in self.each_case():
            for raw in (False, True):
                for short in (False, True):
                    request = infer_request("shop", arrays, USER, raw=raw, short=short, id="a")
                    reply = self.client.infer(request)
                    self.check(infer_outputs(reply), expected,
                               f"{ads} ads, plain={plain} short={short} raw={raw}")
                    self.assertEqual(bool(reply.raw_output_contents), raw)
                    self.assertEqual((reply.model_name, reply.model_version, reply.id),
                                     ("shop", "1", "a"))

    def test_ulf_score(self):
        work = env.scratch("score")
        directory = os.path.join(self.repository, "shop", "1")
        for ads, plain, arrays, expected in self.each_case():
            self.check(score_command(directory, arrays, work), expected, f"{ads} plain={plain}")

    def test_ulf_score_dumps_every_tensor(self):
        arrays = shop().inputs(7, seed=7)
        found = score_command(os.path.join(self.repository, "shop", "1"), arrays,
                              env.scratch("score"), "--dump_all")
        self.assertLessEqual({"ad_e", "keys", "att", "interest", "dice", "output", "buy"},
                             found.keys())
        self.assertEqual(found["att"].shape, (7, 5, 1))
        np.testing.assert_allclose(found["att"].sum(axis=1), 1, atol=1e-6)

    def test_committed_values(self):
        """The reference itself has not moved: figures written down once, see tests/e2e/data/README.md."""
        with open(DATA, encoding="utf-8") as file:
            cases = json.load(file)
        self.assertEqual(len(cases), 3)
        for case in cases:
            arrays = {name: np.array(a["data"], a["dtype"]).reshape(a["shape"])
                      for name, a in case["inputs"].items()}
            expected = {name: np.array(a) for name, a in case["expected"].items()}
            self.check(shop().scores(arrays), expected, case["name"])
            reply = self.client.predict(predict_request("shop", arrays, USER))
            self.check(outputs_of(reply), expected, case["name"])

    def test_reference_agrees_with_the_oracle(self):
        oracle = os.path.join(env.SHARED, "oracle", "ulf_ref.py")
        if not os.path.exists(oracle):
            self.skipTest("no oracle beside the repository")
        work = env.scratch("oracle")
        given, out = os.path.join(work, "in.npz"), os.path.join(work, "out.npz")
        arrays = shop().inputs(7, seed=11)
        np.savez(given, **arrays)
        model = os.path.join(self.repository, "shop", "1")
        subprocess.run(["/usr/bin/python3", "-B", oracle, "--graph", f"{model}/graph_ulf.txt",
                        "--weights", f"{model}/dense.npz", "--tables", model, "--inputs", given,
                        "--out", out], check=True, capture_output=True)
        with np.load(out) as found:
            for name, values in shop().scores(arrays).items():
                np.testing.assert_allclose(found[name], values, atol=1e-9)


class UnstatedShopScoresTest(ShopScoresTest):
    """Nothing but the request says how wide the dense input is, as in most exports."""

    STATED = False


class SharedScores:
    """An export of x-deeplearning beside the repository, served as it is."""

    MODEL = ""

    @classmethod
    def setUpClass(cls):
        if env.shared_model(cls.MODEL) is None:
            raise unittest.SkipTest(f"no model {cls.MODEL} beside the repository")
        super().setUpClass()
        cls.cases, cls.tolerance = shared_cases(cls.MODEL)

    @classmethod
    def fill(cls, repository):
        add_shared(repository, cls.MODEL)

    def check(self, found, expected, text):
        self.assertTrue(found, text)
        for name, values in found.items():
            key = name.replace("/", "%2F")  # As npz files spell it.
            self.assertIn(key, expected, text)
            self.assert_close(values, expected[key], self.tolerance, f"{text} {name}")

    def test_cases_have_1_7_and_200_ads(self):
        ads = {case.rpartition("_a")[2] for case, _, _ in self.cases}
        self.assertLessEqual({"1", "7", "200"}, ads)

    def test_predict(self):
        for case, arrays, expected in self.cases:
            for short in (False, True):
                with self.subTest(case=case, short=short):
                    request = predict_request(self.MODEL, arrays, SHARED_USERS[self.MODEL], short)
                    self.check(outputs_of(self.client.predict(request)), expected, case)

    def test_model_infer(self):
        for case, arrays, expected in self.cases:
            for raw in (False, True):
                with self.subTest(case=case, raw=raw):
                    request = infer_request(self.MODEL, arrays, SHARED_USERS[self.MODEL], raw=raw,
                                            short=raw)
                    self.check(infer_outputs(self.client.infer(request)), expected, case)

    def test_ulf_score(self):
        work = env.scratch("score")
        directory = os.path.join(env.shared_model(self.MODEL), "1")
        for case, arrays, expected in self.cases:
            with self.subTest(case=case):
                self.check(score_command(directory, arrays, work), expected, case)


    def test_every_intermediate_tensor(self):
        """Within 1e-5 of its own largest magnitude, as `ulf score --dump_all` writes it."""
        work = env.scratch("score")
        directory = os.path.join(env.shared_model(self.MODEL), "1")
        for case, arrays, expected in self.cases:
            if len(expected) < 5:  # Cases of many ads hold the outputs only.
                continue
            found = score_command(directory, arrays, work, "--dump_all")
            checked = 0
            for name, values in expected.items():
                if name in self.ILL_CONDITIONED:
                    continue
                limit = 1e-5 * max(1.0, float(np.max(np.abs(values), initial=0)))
                with self.subTest(case=case, tensor=name):
                    self.assertIn(name, found)
                    self.assert_close(found[name], values, limit, name)
                    checked += 1
            self.assertGreaterEqual(checked, self.TENSORS, case)


class DinTest(SharedScores, DaemonTest):
    MODEL = "din"
    ILL_CONDITIONED = ()
    TENSORS = 30


class TdmDnnTest(SharedScores, DaemonTest):
    MODEL = "tdm_dnn"
    # What follows fc_2_d: bn_2_d subtracts a mean of half a million from values of that size.
    ILL_CONDITIONED = ("bn_2_d", "prelu_2_d", "fc_3_d", "bn_3_d", "prelu_3_d", "fc_4_d",
                       "softmaxoutput0")
    TENSORS = 40


class DemoModelTest(DaemonTest):
    """What `ulf make-demo` writes is served, and its scores make sense to a reader."""

    @classmethod
    def fill(cls, repository):
        subprocess.run([env.program("ulf"), "make-demo", repository, "--ids=2000"], check=True,
                       capture_output=True)
        cls.requests = os.path.join(repository, "demo", "requests")

    def predict(self, persona, *flags):
        done = subprocess.run(
            [env.program("ulf"), "predict", self.daemon.target, f"--request={persona}.textproto",
             f"--row_names={persona}.ads", *flags], cwd=self.requests, capture_output=True,
            text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_preferences_show(self):
        for persona, liked in (("sports_fan", "sports"), ("cook", "cooking"), ("gamer", "gaming")):
            with self.subTest(persona=persona):
                lines = [line for line in self.predict(persona).splitlines() if "(" in line]
                self.assertTrue(lines)
                self.assertIn(liked, lines[0])

    def test_names_of_other_rows_are_refused(self):
        with open(os.path.join(self.requests, "cook.ads"), encoding="utf-8") as file:
            names = file.read()
        for text in (names + "one more\n", names.split("\n", 1)[1]):
            path = os.path.join(self.requests, "other.ads")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run(
                [env.program("ulf"), "predict", self.daemon.target, "--model=demo",
                 "--inputs=cook.npz", "--row_names=other.ads"], cwd=self.requests, capture_output=True, text=True,
                check=False)
            self.assertEqual(done.returncode, 1)
            lines, rows = text.count("\n"), names.count("\n")
            self.assertIn(f"--row_names has {lines} lines for {rows} rows", done.stderr)

    def test_ulf_predict_with_both_apis_agrees_with_ulf_score(self):
        work = env.scratch("demo")
        given = os.path.join(self.requests, "cook.npz")
        with np.load(given) as arrays:
            parts = dict(arrays)
        offline = score_command(os.path.join(self.repository, "demo", "1"), parts, work)
        # Every sparse feature as one matrix of ids, too.
        whole = os.path.join(work, "whole.npz")
        np.savez(whole, **{name.removesuffix(".ids"): array.reshape(
            len(parts[name[:-3] + "segments"]), -1) if name.endswith(".ids") else array
                           for name, array in parts.items()
                           if not name.endswith((".values", ".segments"))})
        for inputs, flags in itertools.product((given, whole), ((), ("--kserve",))):
            out = os.path.join(work, "predicted.npz")
            done = subprocess.run([env.program("ulf"), "predict", self.daemon.target,
                                   "--model=demo", f"--inputs={inputs}", f"--outputs={out}",
                                   *flags],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with np.load(out) as found:
                for name, values in offline.items():
                    self.assert_close(found[name], values, 1e-6, f"{name} {inputs} {flags}")

    def test_ulf_predict_says_what_is_wrong(self):
        done = subprocess.run([env.program("ulf"), "predict", self.daemon.target, "--model=demmo",
                               f"--inputs={self.requests}/cook.npz"], capture_output=True,
                              text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("demmo", done.stderr)
