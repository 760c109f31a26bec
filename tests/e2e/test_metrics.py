"""/metrics as promtool and a real Prometheus see it.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import subprocess
import time
import unittest

import grpc

from harness import env
from harness.clients import outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import DaemonTest, add_shop, add_stamp, shop
from harness.metrics import scrape
from harness.prometheus import Prometheus
from harness.shop import USER
from harness.small import stamp_files, stamp_inputs
from harness.modelfiles import write_version

# What a dashboard may rely on.
COUNTERS = ["ulfd_requests_total", "ulfd_candidates_total", "ulfd_shed_total",
            "ulfd_cancelled_total", "ulfd_worker_busy_seconds_total", "ulfd_calls_at_once_total",
            "ulfd_model_load_failures_total", "ulfd_embedding_missing_keys_total",
            "ulfd_embedding_lookups_total",
            "ulfd_score_nonfinite_total", "ulfd_unproved_runs_total",
            "ulfd_users_run_alone_total", "ulfd_computed_rows_total", "ulfd_spare_receivers_total",
            "process_cpu_seconds_total"]
GAUGES = ["ulfd_queue_rows", "ulfd_queue_predicted_seconds", "ulfd_queue_overloaded",
          "ulfd_model_cost_seconds", "ulfd_inflight_requests", "ulfd_model_generation", "ulfd_model_info",
          "ulfd_model_memory_bytes", "ulfd_model_published_timestamp_seconds", "ulfd_build_info", "process_resident_memory_bytes",
          "process_open_fds", "process_start_time_seconds"]
HISTOGRAMS = ["ulfd_request_duration_seconds", "ulfd_stage_duration_seconds",
              "ulfd_candidates_per_request", "ulfd_batch_requests", "ulfd_batch_rows",
              "ulfd_model_load_duration_seconds"]


class MetricsTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        add_stamp(repository, 1)
        files = stamp_files(1)
        files["graph_ulf.txt"] = files["graph_ulf.txt"].replace("inner_product_layer", "no_layer")
        write_version(os.path.join(repository, "stamp", "2"), files)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for ads in (1, 7, 200):
            cls.client.predict(predict_request("shop", shop().inputs(ads, seed=ads), USER))
        cls.client.predict(predict_request("stamp", stamp_inputs([1, 2, 900]), ()))
        for model in ("shop", "nobody"):
            try:
                cls.client.predict(predict_request(model, stamp_inputs([1]), ()))
            except grpc.RpcError:
                pass
        wait_for(lambda: scrape(cls.daemon).sum("ulfd_model_load_failures_total"), "a failed load")
        cls.first = scrape(cls.daemon)

    def test_names_of_every_family(self):
        found = scrape(self.daemon).names()
        for name in COUNTERS + GAUGES:
            self.assertIn(name, found)
        for name in HISTOGRAMS:
            self.assertLessEqual({name + "_bucket", name + "_sum", name + "_count"}, found)

    def test_values(self):
        found = self.first  # After the calls above, and no others.
        ok = {"model": "shop", "version": "1", "code": "OK"}
        self.assertEqual(found.sum("ulfd_requests_total", **ok), 3)
        self.assertEqual(found.sum("ulfd_requests_total", model="shop", code="INVALID_ARGUMENT"), 1)
        self.assertEqual(found.sum("ulfd_requests_total", code="NOT_FOUND"), 1)
        self.assertEqual(found.sum("ulfd_candidates_total", model="shop"), 208)
        self.assertEqual(found.sum("ulfd_candidates_per_request_count", model="shop"), 3)
        self.assertEqual(found.sum("ulfd_candidates_per_request_sum", model="shop"), 208)
        # Refusals are quick, and would hide how long answers take.
        self.assertEqual(found.sum("ulfd_request_duration_seconds_count", model="shop", version="1"), 3)
        for stage in ("decode", "queue", "user", "embed", "dense", "encode"):
            self.assertGreaterEqual(
                found.sum("ulfd_stage_duration_seconds_count", model="shop", stage=stage), 3, stage)
        self.assertEqual(found.sum("ulfd_model_info", model="shop", version="1"), 1)
        self.assertGreater(found.sum("ulfd_model_memory_bytes", model="shop", version="1"), 10000)
        self.assertEqual(found.sum("ulfd_inflight_requests"), 0)
        self.assertEqual(found.sum("ulfd_queue_rows"), 0)
        # One piece of work for each call that was decoded, or several for those that were cut.
        self.assertGreaterEqual(found.sum("ulfd_batch_requests_count"), 5)
        self.assertEqual(found.sum("ulfd_batch_rows_sum"), found.sum("ulfd_computed_rows_total"))
        for part in ("base", "user", "row"):
            self.assertGreaterEqual(
                found.sum("ulfd_model_cost_seconds", model="shop", part=part), 0)
        self.assertEqual(found.sum("ulfd_build_info"), 1)
        self.assertGreaterEqual(found.sum("ulfd_model_generation"), 2)
        for name in ("ulfd_model_load_failures_total", "ulfd_model_version_failed"):
            self.assertEqual((found.sum(name, model="stamp"), found.sum(name)), (1, 1), name)
        self.assertLess(abs(found.sum("ulfd_model_published_timestamp_seconds", model="shop")
                            - time.time()), 600)
        self.assertGreater(found.sum("ulfd_worker_busy_seconds_total"), 0)

    @unittest.skipIf(env.SANITIZED, "nothing is cheap in an instrumented daemon")
    def test_cheap_calls_are_computed_where_they_are_received(self):
        request = predict_request("stamp", stamp_inputs([1, 2]), ())
        before = scrape(self.daemon)
        calls = 0

        def predicted(page):
            base, user, row = (page.sum("ulfd_model_cost_seconds", model="stamp", part=part)
                               for part in ("base", "user", "row"))
            return base + user + 2 * row

        def cheap():
            nonlocal calls
            for _ in range(100):
                reply = self.client.predict(request)
                self.assertEqual(outputs_of(reply)["score"].tolist(), [[2.0], [3.0]])
                calls += 1
            page = scrape(self.daemon)
            # All of them where nothing else runs; what is learned is wall time, which a busy
            # machine stretches until nothing is cheap any more.
            return calls >= 500 and (predicted(page) > 1e-4 or
                                     page.sum("ulfd_calls_at_once_total")
                                     > before.sum("ulfd_calls_at_once_total"))

        wait_for(cheap, "calls computed at once, or predicted to take long", 60)
        wait_for(lambda: scrape(self.daemon).sum("ulfd_computed_rows_total")
                 == before.sum("ulfd_computed_rows_total") + 2 * calls,
                 "the last rows to be counted")

    def test_missing_keys_are_counted_by_table(self):
        arrays = shop().inputs(50, seed=6)
        missing = shop().missing_ids(arrays)
        self.assertTrue(all(n > 0 for n in missing.values()), missing)
        before = scrape(self.daemon)
        self.client.predict(predict_request("stamp", stamp_inputs([900, 901, 3]), ()))
        reply = self.client.predict(predict_request("shop", arrays, USER))
        after = scrape(self.daemon)

        def grown(table):
            name = "ulfd_embedding_missing_keys_total"
            return after.sum(name, table=table) - before.sum(name, table=table)

        self.assertEqual(reply.missing_ids, sum(missing.values()))
        self.assertEqual(after.sum("ulfd_embedding_lookups_total", table="items")
                         - before.sum("ulfd_embedding_lookups_total", table="items"), 3)
        self.assertEqual(grown("items"), 2)
        for table, n in missing.items():
            self.assertEqual(grown(table), n, table)

    def test_a_request_cannot_make_labels(self):
        before = len(scrape(self.daemon).samples)
        for i in range(50):
            with self.assertRaises(grpc.RpcError):
                self.client.predict(predict_request(f"made_up_{i}", stamp_inputs([1]), ()))
        _, text = self.daemon.http("/metrics")
        self.assertNotIn("made_up", text)
        self.assertLessEqual(len(scrape(self.daemon).samples), before + 1)

    def test_promtool(self):
        if shutil.which("promtool") is None:
            self.skipTest("no promtool")
        _, text = self.daemon.http("/metrics")
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


class PrometheusTest(DaemonTest):
    """Debian's Prometheus scrapes the daemon; what it stored is asked for over its HTTP API."""

    @classmethod
    def setUpClass(cls):
        if shutil.which("prometheus") is None:
            raise unittest.SkipTest("no prometheus")
        super().setUpClass()
        cls.server = None
        try:
            config = os.path.join(env.scratch("config"), "prometheus.yml")
            with open(config, "w", encoding="utf-8") as file:
                file.write("global: {scrape_interval: 500ms}\n"
                           "scrape_configs:\n"
                           "  - job_name: ulfd\n"
                           f"    static_configs: [{{targets: ['127.0.0.1:{cls.daemon.http_port}']}}]\n")
            cls.server = Prometheus(config)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def fill(cls, repository):
        add_shop(repository)

    @classmethod
    def tearDownClass(cls):
        if cls.server is not None:
            cls.server.stop()
        super().tearDownClass()

    def test_scraping(self):
        wait_for(lambda: self.server.value("up{job='ulfd'}") == 1, "a first scrape", 30)
        calls = 40
        for i in range(calls):
            self.client.predict(predict_request("shop", shop().inputs(10, seed=i), USER))
        requests = 'ulfd_requests_total{model="shop",version="1",code="OK"}'
        wait_for(lambda: self.server.value(requests) == calls, "the calls in Prometheus", 20)
        self.assertEqual(self.server.value('ulfd_candidates_total{model="shop"}'), 10 * calls)
        for name in COUNTERS + GAUGES:
            if name not in ("ulfd_model_load_failures_total",):  # No failure yet, no series.
                self.assertTrue(self.server.query(name), name)
        # What a dashboard computes.
        p99 = ('histogram_quantile(0.99, sum by (le) '
               '(ulfd_request_duration_seconds_bucket{model="shop"}))')
        self.assertTrue(0 < self.server.value(p99) < 2 * env.SLOWNESS)
        mean = 'ulfd_candidates_per_request_sum{model="shop"} / ulfd_candidates_per_request_count'
        self.assertEqual(self.server.value(mean), 10)
        wait_for(lambda: (self.server.value('rate(ulfd_requests_total{model="shop",code="OK"}[20s])') or 0)
                 > 0, "a rate", 20)
