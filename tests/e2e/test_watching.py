"""deploy/prometheus and deploy/grafana: a real Prometheus and a real Alertmanager watch a daemon.
SPDX-License-Identifier: Apache-2.0
"""
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import unittest

from harness import env
from harness.clients import predict_request
from harness.daemon import FAST, wait_for
from harness.fixtures import DaemonTest, add_heavy, add_shop, add_stamp, shop
from harness.modelfiles import write_version
from harness.prometheus import Program, Prometheus
from harness.shop import USER
from harness.small import heavy_inputs, stamp_files, stamp_inputs

RULES = os.path.join(env.ROOT, "deploy", "prometheus")
DASHBOARD = os.path.join(env.ROOT, "deploy", "grafana", "ulfd.json")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


@unittest.skipIf(shutil.which("promtool") is None, "no promtool")
class RulesTest(unittest.TestCase):
    def run_tool(self, *command):
        done = subprocess.run(command, cwd=RULES, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_files_are_valid(self):
        self.run_tool("promtool", "check", "rules", "recording.yml", "alerts.yml")
        self.run_tool("promtool", "check", "config", "prometheus.yml")

    def test_alerts_fire_for_their_fault_only(self):
        self.run_tool("promtool", "test", "rules", "alerts_test.yml")
        tests = re.split(r"alertname: ", read(os.path.join(RULES, "alerts_test.yml")))[1:]
        fires = {re.match(r"\w+", test)[0] for test in tests if "exp_labels" in test}
        quiet = {re.match(r"\w+", test)[0] for test in tests if "exp_labels" not in test}
        alerts = set(re.findall(r"alert: (\w+)", read(os.path.join(RULES, "alerts.yml"))))
        self.assertEqual((fires, quiet), (alerts, alerts))

    @unittest.skipIf(shutil.which("amtool") is None, "no amtool")
    def test_alertmanager_file_is_valid(self):
        self.run_tool("amtool", "check-config", "alertmanager.yml")


class Hook:
    """Takes what Alertmanager sends: (path, alert name)."""

    def __init__(self):
        self.received = received = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received.extend((self.path, alert["labels"]["alertname"])
                                for alert in body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@unittest.skipIf(shutil.which("prometheus") is None or
                 shutil.which("prometheus-alertmanager") is None,
                 "no prometheus or no prometheus-alertmanager")
class WatchedDaemonTest(DaemonTest):
    """The files of deploy/, changed in addresses and intervals alone."""

    CONFIG = FAST + """
connections { max_connections: 10 }
workers: 1
limits { max_queued_requests: 1 }
"""

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        add_heavy(repository)
        add_stamp(repository, 1)
        files = stamp_files(1)
        files["graph_ulf.txt"] = files["graph_ulf.txt"].replace("inner_product_layer", "no_layer")
        write_version(os.path.join(repository, "stamp", "2"), files)

    @classmethod
    def copy(cls, folder, name, *changes):
        text = read(os.path.join(RULES, name))
        for old, new in changes:
            if old not in text:
                raise AssertionError(f"{name} has no {old}")
            text = text.replace(old, new)
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.started = []
        try:
            cls.client.health()  # Connects while there is room.
            folder = env.scratch("rules")
            cls.hook = Hook()
            cls.started.append(cls.hook)
            config = cls.copy(folder, "alertmanager.yml", ("group_wait: 10s", "group_wait: 100ms"),
                              ("localhost:9099", f"127.0.0.1:{cls.hook.port}"))
            manager = Program("prometheus-alertmanager", f"--config.file={config}",
                              f"--storage.path={folder}/alertmanager",
                              "--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
            cls.started.append(manager)
            for name in ("recording.yml", "alerts.yml"):
                cls.copy(folder, name)
            config = cls.copy(folder, "prometheus.yml", ("interval: 15s", "interval: 500ms"),
                              ("localhost:9093", f"127.0.0.1:{manager.port}"),
                              ("localhost:8501", f"127.0.0.1:{cls.daemon.http_port}"))
            cls.prometheus = Prometheus(config)
            cls.started.append(cls.prometheus)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        for program in reversed(cls.started):
            program.stop()
        super().tearDownClass()

    def some_traffic(self):
        """Answers, missing ids, and refusals."""
        self.client.predict(predict_request("shop", shop().inputs(10, seed=1), USER))
        self.client.predict(predict_request("stamp", stamp_inputs([1, 900]), ()))
        request = predict_request("heavy", heavy_inputs(), ())
        calls = [self.client.Predict.future(request, timeout=60) for _ in range(4)]
        for call in calls:  # One is computed, one waits, the others are refused.
            call.code()

    def too_many_connections(self):
        connections = [socket.create_connection(("127.0.0.1", self.daemon.grpc_port))
                       for _ in range(20)]
        for connection in connections:
            connection.close()

    def test_every_query_of_the_dashboard_has_data(self):
        dashboard = json.loads(read(DASHBOARD))
        variables = {v["name"]: v["query"] for v in dashboard["templating"]["list"]}
        queries = {}
        for name in ("job", "model"):
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variables[name]).groups()
            queries[f"variable {name}"] = f"count by ({label}) ({series})"
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                queries[f"{panel['title']} {target['refId']}"] = target["expr"]
        self.assertGreater(len(queries), 30)

        def answered(query):
            for name, value in (("$__rate_interval", "20s"), ("$job", "ulfd"), ("$model", ".+")):
                query = query.replace(name, value)
            self.assertNotIn("$", query)
            return any(sample["value"][1] != "NaN" for sample in self.prometheus.query(query))

        missing = dict(queries)

        def all_answered():
            self.some_traffic()
            self.too_many_connections()
            for name in [name for name, query in missing.items() if answered(query)]:
                del missing[name]
            return not missing

        try:
            wait_for(all_answered, "data for every query", 40, step=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}: {missing}") from None

    def test_a_slow_bucket_names_a_trace(self):
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        metadata = (("traceparent", f"00-{trace}-00f067aa0ba902b7-01"),)

        def stored():
            self.client.Predict(predict_request("shop", shop().inputs(10, seed=1), USER),
                                timeout=60, metadata=metadata)
            now = time.time()
            found = self.prometheus.ask("query_exemplars", start=now - 600, end=now + 60,
                                        query="ulfd_request_duration_seconds_bucket")
            return [exemplar for series in found if series["seriesLabels"]["model"] == "shop"
                    for exemplar in series["exemplars"]]

        exemplar = wait_for(stored, "an exemplar", 40, step=0.2)[0]
        self.assertEqual(exemplar["labels"], {"trace_id": trace})
        self.assertGreater(float(exemplar["value"]), 0)

    def test_an_alert_reaches_its_receiver(self):
        def told():
            self.too_many_connections()
            return ("/ticket", "UlfdConnectionsClosed") in self.hook.received

        wait_for(told, "the alert", 40, step=0.2)
