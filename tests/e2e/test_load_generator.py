"""`ulf load` against real daemons, through both APIs: what it counts agrees with what the daemon counts.
SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import subprocess
import time
import unittest
import xml.etree.ElementTree

import numpy as np

from harness import env
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import DaemonTest, add_heavy, add_shop, add_stamp, shop
from harness.loading import command, finish_load, load, start_load, ulf
from harness.metrics import scrape

# Ids of the shop's tables, as many of the history as its graph has steps.
SHOP = ("--model=shop", "--ids=0..150", "--user_ids=5", "--ints=0..1")
# Generous, because the machine that runs the tests may have other things to do.
CALM = ("--rate=100", "--duration=2s", "--warmup=500ms", "--timeout=20s")


class LoadTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        add_stamp(repository, 2)

    def counted(self, model, code="OK"):
        return scrape(self.daemon).sum("ulfd_requests_total", model=model, code=code)

    def check_calm(self, summary, before):
        calls = summary["calls"]
        self.assertEqual(summary["codes"], {"OK": calls["answered"]}, summary["reasons"])
        self.assertEqual((calls["failed"], calls["unsent_in_flight"]), (0, 0))
        # 150 calls are expected; a Poisson process strays by 12.
        self.assertTrue(90 <= calls["due"] <= 210, calls)
        self.assertEqual(self.counted("shop") - before, calls["answered"] + calls["during_warmup"])
        latency = summary["latency_ms"]
        for kind in ("corrected", "uncorrected"):
            found = latency[kind]
            self.assertEqual(found["calls"], calls["answered"])
            self.assertTrue(0 < found["min"] <= found["p50"] <= found["p90"] <= found["p99"] <=
                            found["p999"] <= found["max"], found)
        self.assertGreaterEqual(latency["corrected"]["max"], latency["uncorrected"]["max"] - 0.001)
        self.assertEqual(sum(i["answered"] for i in summary["series"]),
                         calls["answered"] + calls["during_warmup"])

    def test_native(self):
        before, ads_before = self.counted("shop"), scrape(self.daemon).sum("ulfd_candidates_total")
        plot = os.path.join(env.scratch("load"), "plot.svg")
        summary = load(self.daemon.target, *SHOP, *CALM, "--ads=lognormal:median=20,sigma=1,max=500",
                       f"--plot={plot}", "--channels=3", "--metadata=x-test=1")
        self.check_calm(summary, before)
        ads = scrape(self.daemon).sum("ulfd_candidates_total") - ads_before
        self.assertGreater(ads, summary["calls"]["answered"] * 10)
        self.assertGreater(len(summary["latency_ms"]["by_ads"]), 2)
        picture = xml.etree.ElementTree.parse(plot).getroot()
        self.assertTrue(picture.tag.endswith("svg"))
        texts = {e.text for e in picture.iter() if e.tag.endswith("text")}
        self.assertLessEqual({"p99", "answered", "warm-up"}, texts)

    def test_kserve(self):
        before = self.counted("shop")
        summary = load(self.daemon.target, "--api=kserve", *SHOP, *CALM, "--ads=20",
                       "--feature_ids=ad:2", "--arrival=bursts")
        self.check_calm(summary, before)
        self.assertEqual(summary["load"]["api"], "kserve")

    def test_closed_loop(self):
        before = self.counted("stamp")
        for api in ("native", "kserve"):
            summary = load(self.daemon.target, "--model=stamp", "--ids=0..49", f"--api={api}",
                           "--closed_loop=3", "--calls=200", "--duration=60s", "--warmup=0s",
                           "--timeout=20s", "--ads=5")
            self.assertEqual(summary["calls"]["answered"], 200)
            self.assertAlmostEqual(summary["goodput_ads_per_second"],
                                   5 * summary["goodput_per_second"], places=3)
        self.assertEqual(self.counted("stamp") - before, 400)

    def test_the_same_seed_is_the_same_load(self):
        sent = [load(self.daemon.target, *SHOP, "--rate=200", "--duration=500ms", "--warmup=0s",
                     "--timeout=20s", "--ads=uniform:1..40", f"--seed={seed}", "--pool=0")
                for seed in (1, 1, 2)]
        facts = [(s["calls"]["due"], s["goodput_ads_per_second"] * s["load"]["counted_seconds"])
                 for s in sent]
        self.assertEqual(facts[0][0], facts[1][0])
        self.assertAlmostEqual(facts[0][1], facts[1][1], places=3)
        self.assertNotEqual(facts[0], facts[2])

    def test_inputs_from_npz(self):
        path = os.path.join(env.scratch("load"), "inputs.npz")
        np.savez(path, **shop().inputs(17, seed=3))
        for api in ("native", "kserve"):
            summary = load(self.daemon.target, "--model=shop", f"--inputs={path}", f"--api={api}",
                           "--calls=50", "--closed_loop=2", "--warmup=0s", "--timeout=20s")
            self.assertEqual(summary["calls"]["answered"], 50)
            self.assertEqual(summary["load"]["different_requests"], 1)
            ads = summary["goodput_ads_per_second"] / summary["goodput_per_second"]
            if api == "native":
                self.assertAlmostEqual(ads, 17)

    def test_text_and_live_line(self):
        code, out, err = ulf("load", self.daemon.target, *SHOP, "--rate=50", "--duration=2500ms",
                             "--timeout=20s", "--live")
        self.assertEqual(code, 0, err)
        for part in ("Poisson arrivals, 50/s", "answered (goodput)", "corrected", "uncorrected",
                     "sent late by", "p99.9", "Load generator:"):
            self.assertIn(part, out)
        self.assertRegex(err, r"1\.\d s +\d+\.\d/s answered  p50 \S+  p99 \S+  max \S+ ms")

    def test_interrupt_ends_early_with_a_summary(self):
        process = subprocess.Popen(
            command("load", self.daemon.target, *SHOP, "--rate=50", "--duration=600s",
                    "--timeout=20s", "--live"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stderr.readline()  # The first live line: it is under way.
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60 * env.SLOWNESS)
        self.assertEqual(process.returncode, 0)
        self.assertIn("Note: interrupted", out)
        self.assertIn("answered (goodput)", out)

    def test_deadlines_and_their_code(self):
        # A recorded 1 ms is not enough for a network and a model; some calls may still make it, and
        # the server refuses those of which it knows that they cannot.
        code, out, err = ulf("load", self.daemon.target, *SHOP, "--closed_loop=20", "--calls=300",
                             "--timeout=1ms", "--warmup=0s", "--ads=2000")
        self.assertIn(code, (0, 1))
        # Asking for the model's inputs may take longer than that, too.
        self.assertRegex(out + err, "DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED")

    def test_errors(self):
        target = self.daemon.target
        for arguments, code, text in (
                ((target, "--model=shopp"), 1, "NOT_FOUND"),
                ((target, "--model=shopp", "--api=kserve"), 1, "NOT_FOUND"),
                ((target, "--model=shop", "--version=9"), 1, "NOT_FOUND"),
                ((target, "--model=shop", "--feature_ids=adz:3"), 1, 'no sparse feature "adz"'),
                ((target, "--model=shop", "--shape=nix:1x2"), 1, 'no dense input "nix"'),
                ((target, "--model=shop", "--inputs=/nowhere.npz"), 1, "/nowhere.npz"),
                ((target, "--replay=/nowhere"), 1, "/nowhere"),
                ((target, "--model=shop", "--plot=/nowhere/a.svg", "--calls=1"), 1, "/nowhere"),
                ((target, "--model=shop", "--calls=1"), 1, "all 1 fell into the warm-up (--warmup=0s"),
                (("127.0.0.1:1", "--model=shop"), 1, "UNAVAILABLE"),
                (("127.0.0.1:1", "--model=shop", "--follow_health", "--timeout=1s"), 1,
                 "no target says that it serves"),
                ((target, "--model=shop", "--qps=5"), 2, "unknown flag --qps"),
                ((target, "--model=shop", "--rate=-1"), 2, "--rate: -1, want"),
                ((target,), 2, "--model is needed"),
                ((), 2, "usage: ulf load HOST:PORT")):
            found, out, err = ulf("load", *arguments)
            self.assertEqual(found, code, (arguments, out, err))
            self.assertIn(text, err, arguments)


class RefusalTest(DaemonTest):
    CONFIG = FAST + """
workers: 1
limits { max_queued_requests: 2 max_queued_rows: 7000 }
"""

    @classmethod
    def fill(cls, repository):
        add_heavy(repository)

    def test_refusals_are_counted_with_their_reason(self):
        summary = load(self.daemon.target, "--model=heavy", "--ads=2000", "--rate=100",
                       "--duration=1500ms", "--warmup=0s", "--timeout=30s", "--pool=4",
                       "--arrival=constant")
        calls = summary["calls"]
        self.assertEqual(calls["due"], 150)
        self.assertEqual(calls["answered"] + calls["failed"], 150)
        self.assertEqual(set(summary["codes"]), {"OK", "RESOURCE_EXHAUSTED"}, summary["reasons"])
        self.assertGreater(summary["codes"]["RESOURCE_EXHAUSTED"], 10)
        self.assertTrue(all("queue" in reason for reason in summary["reasons"]),
                        summary["reasons"])
        # Refusing is quick, whatever the model takes.
        self.assertLess(summary["latency_ms"]["failed_calls"]["p50"],
                        summary["latency_ms"]["corrected"]["p50"])

    def test_calls_beyond_max_in_flight_are_not_sent_but_counted(self):
        summary = load(self.daemon.target, "--model=heavy", "--ads=2000", "--rate=200",
                       "--duration=1s", "--warmup=0s", "--timeout=30s", "--pool=4",
                       "--arrival=constant", "--max_in_flight=1")
        calls = summary["calls"]
        self.assertGreater(calls["unsent_in_flight"], 10)
        self.assertEqual(calls["due"], 200)
        self.assertTrue(any("--max_in_flight" in note for note in summary["notes"]))


class HealthTest(unittest.TestCase):
    """A client that follows health loses no call when a daemon is told to stop."""

    def test_sigterm_costs_no_call(self):
        repository = os.path.join(env.scratch("health"), "models")
        add_shop(repository)
        config = FAST.replace("drain_delay_ms: 50", "drain_delay_ms: 1000")
        self.assertNotEqual(config, FAST)
        with Daemon(repository, config=config) as stays:
            leaves = Daemon(repository, config=config)
            try:
                process = start_load(stays.target, leaves.target, *SHOP, "--rate=200", "--ads=20",
                                     "--duration=5s", "--timeout=20s", "--follow_health")
                wait_for(lambda: scrape(leaves).sum("ulfd_requests_total", code="OK") > 200,
                         "the load is under way")
                leaves.stop()
                summary = finish_load(process)
            finally:
                leaves.kill()
        calls = summary["calls"]
        self.assertEqual((calls["failed"], calls["unsent_no_target"]), (0, 0), summary["reasons"])
        self.assertEqual([t["stopped_serving"] for t in summary["targets"]], [0, 1])
        first, second = (t["sent"] for t in summary["targets"])
        self.assertGreater(second, 0)
        self.assertGreater(first, second)

    def test_nothing_is_sent_while_nothing_serves(self):
        repository = os.path.join(env.scratch("health"), "models")
        add_shop(repository)
        daemon = Daemon(repository, config=FAST)
        try:
            process = start_load(daemon.target, *SHOP, "--rate=100", "--ads=20", "--duration=3s",
                                 "--warmup=0s", "--timeout=20s", "--follow_health")
            wait_for(lambda: scrape(daemon).sum("ulfd_requests_total", code="OK") > 20,
                     "the load is under way")
            time.sleep(0.1)
            daemon.stop()
            summary = finish_load(process)
        finally:
            daemon.kill()
        self.assertGreater(summary["calls"]["unsent_no_target"], 20)
        self.assertEqual(summary["calls"]["failed"], 0, summary["reasons"])
