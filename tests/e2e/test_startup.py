"""Starting: flags, configuration, ports, repository.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import socket
import subprocess
import unittest

import grpc

from harness import env
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import FAST, Daemon, StartFailed
from harness.fixtures import add_heavy, add_stamp
from harness.small import heavy_inputs, stamp_inputs


class StartupTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = env.scratch("StartupTest")
        cls.models = os.path.join(cls.work, "models")
        os.makedirs(cls.models)
        add_stamp(cls.models, 1)

    def run_ulfd(self, *args, environment=None):
        done = subprocess.run([env.program("ulfd"), *args], capture_output=True, text=True,
                              check=False, cwd=self.work, timeout=30 * env.SLOWNESS,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, **(environment or {})})
        return done.returncode, done.stdout + done.stderr

    def config(self, text, name="server.textproto"):
        path = os.path.join(self.work, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def refuse(self, args, *texts):
        """Ends at once with an error that holds `texts`."""
        with self.subTest(args=args):
            code, text = self.run_ulfd(*args)
            self.assertNotEqual(code, 0, text)
            self.assertGreater(code, 0, f"died of a signal\n{text}")
            for wanted in texts:
                self.assertIn(wanted, text)

    def test_wrong_flags(self):
        models = f"--model_repository={self.models}"
        self.refuse([models, "--grpc_prot=1"], "grpc_prot")
        self.refuse([models, "--grpc_port=eighty"], "grpc_port", "eighty")
        self.refuse([models, "--grpc_port=70000"], "grpc_port", "70000")
        self.refuse([models, "--grpc_port"], "grpc_port")
        self.refuse([models, "--workers=-1"], "workers", "-1")
        self.refuse([models, "stray"], "stray")
        self.refuse([models, models], "model_repository")
        self.refuse([models, "--grpc_address=nowhere", "--grpc_port=0", "--http_port=0"], "nowhere")
        self.refuse([], "model_repository")

    def test_output_that_is_full(self):
        for flag in ("--help", "--version"):
            with open("/dev/full", "w", encoding="utf-8") as full, self.subTest(flag=flag):
                done = subprocess.run([env.program("ulfd"), flag], stdout=full, stderr=subprocess.PIPE,
                                      text=True, check=False, timeout=30 * env.SLOWNESS)
                self.assertEqual(done.returncode, 1)
                self.assertIn("cannot write standard output", done.stderr)

    def test_wrong_instruction_set(self):
        models = f"--model_repository={self.models}"
        for flags in [[models], [models, "--check_config"]]:
            code, text = self.run_ulfd(*flags, environment={"ULFD_ISA": "avx3"})
            self.assertEqual(code, 1, text)
            self.assertIn('ULFD_ISA: "avx3", want one of portable', text)
        code, text = self.run_ulfd(models, "--check_config", environment={"ULFD_ISA": "portable"})
        self.assertEqual(code, 0, text)

    def test_wrong_configuration(self):
        models = f'model_repository: "{self.models}"\n'
        for text, *wanted in (
                (models + "grpc_prot: 1\n", ":2:", "grpc_prot"),
                (models + "limits {\n  max_ads: 10\n  max_adz: 5\n}\n", ":4:", "max_adz"),
                (models + "grpc_port: many\n", ":2:"),
                (models + "grpc_port: 70000\n", ":2:", "70000"),
                (models + "limits { max_ads: 0 }\n", ":2:", "max_ads"),
                (models + "limits { max_ads: 10\n", ":3:"),
                (models + 'models { name: "a" } models { name: "a" }\n', '"a"'),
                (models + 'models { name: "../a" }\n', "../a"),
                (models + 'logging { level: "loud" }\n', ":2:", "loud"),
                (models + 'models { name: "a" version_policy { specific { versions: 1 } } '
                 'labels { key: "x" value: 2 } }\n', '"x"'),
        ):
            path = self.config(text)
            self.refuse([f"--config={path}", "--grpc_port=0", "--http_port=0"], *wanted)
            self.refuse([f"--config={path}", "--check_config"], *wanted)
        self.refuse([f"--config={self.config(models + 'grpc_prot: 1')}"], "server.textproto:2:")
        self.refuse(["--config=/nowhere/x.textproto"], "/nowhere/x.textproto")

    def test_errors_are_short_and_printable(self):
        path = self.config('hot_ids_directory: "\\033[2J' + "x" * 500000 + '"')
        for args in ([f"--config={path}", f"--model_repository={self.models}"],
                     ["--\033[2J" + "x" * 100000]):
            code, text = self.run_ulfd(*args)
            self.assertGreater(code, 0, text[:1000])
            self.assertIn(r"\x1b[2Jxxx", text)
            self.assertLess(len(text), 20000)

    def test_check_config(self):
        path = self.config(f'model_repository: "{self.models}"\n' + FAST)
        code, text = self.run_ulfd(f"--config={path}", "--check_config")
        self.assertEqual(code, 0, text)
        shipped = os.path.join(env.ROOT, "config", "server.textproto")
        code, text = self.run_ulfd(f"--config={shipped}", "--check_config",
                                   f"--model_repository={self.models}")
        self.assertEqual(code, 0, text)

    def test_check_config_loads_models(self):
        models = os.path.join(self.work, "checked")
        add_stamp(models, 1)
        head = f'model_repository: "{models}"\n'
        for settings, *wanted in (
                ('labels { key: "stable" value: 9 }', 'label "stable": version 9 does not serve'),
                ('labels { key: "new" value: 2 } canary { label: "new" share: 0.1 }',
                 'label "new": version 2 does not serve'),
                ('version_policy { specific { versions: 1 versions: 7 } }',
                 "version_policy: version 7 does not serve")):
            path = self.config(head + f'models {{ name: "stamp" {settings} }}\n' + FAST)
            self.refuse([f"--config={path}", "--check_config"], 'model "stamp"', *wanted)
        path = self.config(head + f'models {{ name: "stamp" labels {{ key: "old" value: 1 }} }}\n' + FAST)
        code, text = self.run_ulfd(f"--config={path}", "--check_config")
        self.assertEqual(code, 0, text)
        add_stamp(models, 2, version=2)
        graph = os.path.join(models, "stamp", "2", "graph_ulf.txt")
        with open(graph, "r+b") as file:
            file.truncate(os.path.getsize(graph) // 2)
        self.refuse([f"--model_repository={models}", "--check_config"], 'model "stamp" v2', graph)

    def test_check_config_of_what_never_serves(self):
        """The version directory was forgotten, or the repository is a model's directory."""
        good = os.path.join(self.work, "good")
        add_stamp(good, 1)
        flat = os.path.join(self.work, "flat")
        shutil.copytree(os.path.join(good, "stamp", "1"), os.path.join(flat, "stamp"))
        for repository, *wanted in (
                (flat, 'model "stamp"', "no version directory", "ignored: ", "graph_ulf.txt"),
                (os.path.join(good, "stamp"), 'model "1"', "no version directory")):
            self.refuse([f"--model_repository={repository}", "--check_config"], *wanted)
        empty = os.path.join(self.work, "empty")
        os.makedirs(empty)
        code, text = self.run_ulfd(f"--model_repository={empty}", "--check_config")
        self.assertEqual(code, 0, text)
        self.assertIn(f"notice: there is no model yet in {empty}", text)

    def test_check_config_prints_notices(self):
        models = os.path.join(self.work, "noticed")
        add_stamp(models, 1)
        path = self.config(f'model_repository: "{models}"\n' + FAST + """
            recorder { slowest_per_minute: 3 }
            models { name: "stamp" labels { key: "stable" value: 1 }
                     canary { label: "canray" share: 0.1 sticky_feature: "none" } shadow { label: "stable" share: 1 } }
            """)
        code, text = self.run_ulfd(f"--config={path}", "--check_config")
        self.assertEqual(code, 0, text)
        for notice in ('notice: model "stamp": canary: no version has the label "canray"',
                       'notice: model "stamp" v1: canary.sticky_feature: "none" is no feature of the user',
                       "notice: nothing is recorded: recorder.directory is not set"):
            self.assertIn(notice, text)
        self.assertNotIn("shadow: no version", text)

    def test_check_config_finds_what_a_start_would(self):
        """Files and folders that are only looked for by a start, or once a model needs them."""
        redis = 'redis_clusters { name: "main" nodes: "127.0.0.1:1" %s }\n'
        certificate, key = self.config("none", "certificate"), self.config("none", "key")
        for text, *wanted in (
                (redis % 'password_file: "/nowhere/p"', 'Redis cluster "main"', "/nowhere/p"),
                (redis % 'username: "u"', "a user without a password file"),
                (redis % 'tls { ca_file: "/nowhere/ca" }', 'Redis cluster "main"', "/nowhere/ca"),
                (redis % f'tls {{ ca_file: "{certificate}" }}', certificate),
                (redis % f'tls {{ ca_file: "{certificate}" key_file: "{key}" }}', "a key without its certificate"),
                ('admin_address: "unix:/nowhere/socket"\n', "admin_address: /nowhere/ is no directory"),
                (f'admin_address: "unix:{key}"\n', f"admin_address: {key}: what is there is no socket"),
                ('deltas { fold_directory: "/proc" }\n', "deltas.fold_directory: "),
                ('default_version_policy { specific { versions: 7 } }', "version 7: its directory does not exist")):
            path = self.config(f'model_repository: "{self.models}"\n' + FAST + text)
            self.refuse([f"--config={path}", "--check_config"], *wanted)
        self.refuse([f"--model_repository={self.models}", "--port_file=/nowhere/ports", "--check_config"],
                    "port_file: /nowhere/ is no directory")
        tokens = self.config("somebody 0123456789abcdef\n", "tokens")
        path = self.config(f'model_repository: "{self.models}"\nadmin_address: "0.0.0.0:8503"\n'
                           'http_address: "10.99.99.99"\nmodel_link_targets: "/nowhere"\n'
                           f'authentication {{ token_file: "{tokens}" allowed_clients: ["somebody", "anna"] }}\n'
                           'models { name: "stamp" allowed_clients: "*" allowed_clients: "bert" }\n' + FAST)
        code, text = self.run_ulfd(f"--config={path}", "--check_config")
        self.assertEqual(code, 0, text)
        self.assertNotIn('"somebody"', text)
        for notice in ('authentication.allowed_clients: client "anna" has no token in ' + tokens,
                       'model "stamp": allowed_clients: client "bert" has no token in ' + tokens,
                       "admin_address: 0.0.0.0:8503 asks nobody who they are",
                       "grpc_address: 0.0.0.0 with tokens without tls",
                       "model_link_targets: /nowhere is no directory",
                       "cannot listen on 10.99.99.99:0 for http_address: "):
            self.assertIn("notice: " + notice, text)

    def test_help_and_version(self):
        code, text = self.run_ulfd("--help")
        self.assertEqual(code, 0)
        for flag in ("--model_repository", "--config", "--grpc_port", "--http_port", "--port_file",
                     "--check_config"):
            self.assertIn(flag, text)
        code, text = self.run_ulfd("--version")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"\d+\.\d+\.\d+")

    def test_missing_repository(self):
        self.refuse(["--model_repository=/nowhere/models", "--grpc_port=0", "--http_port=0"],
                    "/nowhere/models")
        file = os.path.join(self.work, "file")
        with open(file, "w", encoding="utf-8"):
            pass
        self.refuse([f"--model_repository={file}", "--grpc_port=0", "--http_port=0"], file)

    @unittest.skipUnless(os.geteuid() == 0, "only root mounts")
    def test_without_proc(self):
        """A place that cannot be told is not one that is gone: what serves would be unloaded."""
        done = subprocess.run(["unshare", "-m", "sh", "-c",
                               'mount -t tmpfs none /proc && exec "$0" "$@"', env.program("ulfd"),
                               f"--model_repository={self.models}", "--check_config"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("/proc is not mounted", done.stdout + done.stderr)

    def test_missing_base_path(self):
        path = self.config('models { name: "a" base_path: "/nowhere/a" }\n')
        self.refuse([f"--config={path}", "--check_config"], 'model "a"', "/nowhere")
        # It may come later.
        later = os.path.join(self.work, "later")
        daemon = Daemon(config=FAST + 'models { name: "a" base_path: "%s/a" }\n' % later,
                        wait_ready=False)
        try:
            status, text = daemon.http("/readyz")
            self.assertEqual(status, 503)
            self.assertIn("a", text)
            add_stamp(later, 1, name="a")
            daemon.wait_ready()
        finally:
            daemon.stop()

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for name, other in (("grpc", "http"), ("http", "grpc")):
                self.refuse([f"--model_repository={self.models}", f"--{name}_address=127.0.0.1",
                             f"--{name}_port={port}", f"--{other}_address=127.0.0.1",
                             f"--{other}_port=0"], str(port))

    def test_port_of_another_daemon(self):
        with Daemon(self.models) as first:
            for name in ("grpc", "http"):
                port = getattr(first, f"{name}_port")
                with self.subTest(name), self.assertRaises(StartFailed) as caught:
                    self.start_on(name, port)
                self.assertIn(str(port), caught.exception.log)
                self.assertGreater(caught.exception.code, 0)
            with Client(first) as client:
                client.predict(predict_request("stamp", stamp_inputs([1]), ()))

    def start_on(self, name, port):
        other = {"grpc": "http", "http": "grpc"}[name]
        code, text = self.run_ulfd(f"--model_repository={self.models}",
                                   f"--{name}_address=127.0.0.1", f"--{name}_port={port}",
                                   f"--{other}_address=127.0.0.1", f"--{other}_port=0")
        raise StartFailed(code, text)

    def test_flags_win_over_the_file(self):
        config = 'model_repository: "/nowhere/models"\ngrpc_port: 1\n' + FAST
        with Daemon(self.models, config=config) as daemon, Client(daemon) as client:
            reply = client.predict(predict_request("stamp", stamp_inputs([1]), ()))
            self.assertEqual(outputs_of(reply)["score"].tolist(), [[2.0]])

    def test_base_path_outside_the_repository(self):
        elsewhere = env.scratch("elsewhere")
        add_stamp(elsewhere, 5, name="export")
        config = FAST + f'models {{ name: "moved" base_path: "{elsewhere}/export" }}\n'
        with Daemon(None, config=config) as daemon, Client(daemon) as client:
            reply = client.predict(predict_request("moved", stamp_inputs([1]), ()))
            self.assertEqual(outputs_of(reply)["score"].tolist(), [[10.0]])
            with self.assertRaises(grpc.RpcError) as caught:
                client.predict(predict_request("stamp", stamp_inputs([1]), ()))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_json_log(self):
        with Daemon(self.models, flags=["--log_format=json"]) as daemon:
            lines = [line for line in daemon.log().splitlines() if line]
            self.assertTrue(lines)
            for line in lines:
                self.assertIsInstance(json.loads(line), dict, line)

    def test_an_admin_port_for_everybody_is_warned_of(self):
        for address, warned in (("0.0.0.0:0", True), ("127.0.0.1:0", False), ("unix:a.sock", False)):
            with self.subTest(address), Daemon(self.models, flags=[f"--admin_address={address}"],
                                               wait_ready=False) as daemon:
                self.assertEqual("asks nobody who they are" in daemon.log(), warned, daemon.log())

    def test_an_admin_socket_has_one_owner(self):
        path = os.path.join(env.scratch("owner"), "socket")
        flags = [f"--admin_address=unix:{path}"]

        def refusal():
            with self.assertRaises(StartFailed) as caught:
                Daemon(self.models, flags=flags, wait_ready=False)
            return caught.exception.log

        first = Daemon(self.models, flags=flags, wait_ready=False)
        try:
            self.assertIn("another process listens there", refusal())
        finally:
            first.kill()
        self.assertTrue(os.path.exists(path))  # It left the socket behind.
        with Daemon(self.models, flags=flags, wait_ready=False):
            pass
        os.mkdir(path)
        self.assertIn("what is there is no socket", refusal())

    def test_hostile_openmp_settings(self):
        """Debian's oneDNN would leave outputs unwritten with some of these, and start threads of its
        own with others, if nobody cared."""
        models = os.path.join(env.scratch("openmp"), "models")
        os.makedirs(models)
        add_stamp(models, 1)
        add_heavy(models)
        heavy = predict_request("heavy", heavy_inputs(200), ())
        scores, threads = {}, {}
        for environment in ({}, {"OMP_THREAD_LIMIT": "1"}, {"OMP_DYNAMIC": "true"},
                            {"OMP_DYNAMIC": "true", "OMP_NUM_THREADS": "8"},
                            {"OMP_NUM_THREADS": "8"},
                            {"OMP_NUM_THREADS": "4,3,2", "OMP_MAX_ACTIVE_LEVELS": "3"},
                            {"KMP_AFFINITY": "compact", "KMP_HW_SUBSET": "1c"}):
            name = str(environment)
            with self.subTest(name), Daemon(models, environment=environment,
                                            flags=["--workers=3"]) as daemon, \
                    Client(daemon) as client:
                reply = client.predict(predict_request("stamp", stamp_inputs([1, 2]), ()))
                self.assertEqual(outputs_of(reply)["score"].tolist(), [[2.0], [3.0]])
                calls = [client.Predict.future(heavy, timeout=60) for _ in range(12)]
                scores[name] = {str(outputs_of(c.result())["score"].tolist()) for c in calls}
                # Threads of OpenMP have the name of the one that started them; gRPC's have others.
                threads[name] = sum(t.startswith("ulfd") for t in daemon.thread_names())
                for cpus in daemon.affinities():
                    self.assertEqual(cpus, os.sched_getaffinity(0))
        self.assertEqual(set.union(*scores.values()), scores["{}"])
        self.assertEqual(len(scores["{}"]), 1)
        self.assertEqual(set(threads.values()), {threads["{}"]}, threads)

    def test_a_daemon_bound_to_one_cpu_says_so(self):
        for name, value in (("OMP_PROC_BIND", "true"), ("OMP_PLACES", "cores"),
                            ("GOMP_CPU_AFFINITY", "0")):
            with self.subTest(name), Daemon(self.models, environment={name: value}) as daemon, \
                    Client(daemon) as client:
                reply = client.predict(predict_request("stamp", stamp_inputs([1, 2]), ()))
                self.assertEqual(outputs_of(reply)["score"].tolist(), [[2.0], [3.0]])
                self.assertRegex(daemon.log(), f"warning.*variable={name}")

    def test_threads_that_receive_calls(self):
        cpus = len(os.sched_getaffinity(0))
        half = min(16, max(min(2, cpus), cpus // 2))
        cases = {"": (1, half), "grpc_threads: 3\n": (3, 3),
                 # One of its own for the admin port.
                 'grpc_threads: 2\nadmin_address: "127.0.0.1:0"\n': (3, 3)}
        for config, (least, most) in cases.items():
            with self.subTest(config), Daemon(self.models, config=FAST + config) as daemon, \
                    Client(daemon) as client:
                client.predict(predict_request("stamp", stamp_inputs([1]), ()))
                threads = daemon.thread_names().count("ulfd-grpc")
                # A quota of the cgroup may allow fewer than the affinity does.
                self.assertGreaterEqual(threads, least)
                self.assertLessEqual(threads, most)
        with self.assertRaises(StartFailed) as caught:
            Daemon(self.models, config=FAST + "grpc_threads: 65\n")
        self.assertIn("grpc_threads: 65, want 0..64", caught.exception.log)

    def test_workers_on_cpus_of_their_own(self):
        cpus = sorted(os.sched_getaffinity(0))
        config = FAST + f"pin_workers: true workers: {len(cpus)}\n"
        with Daemon(self.models, config=config) as daemon, Client(daemon) as client:
            client.predict(predict_request("stamp", stamp_inputs([1]), ()))
            pinned = sorted(next(iter(mask)) for mask in daemon.affinities() if len(mask) == 1)
            if len(cpus) > 1:
                self.assertEqual(pinned, cpus)
        with self.assertRaises(StartFailed) as caught:
            Daemon(self.models, config=FAST + f"pin_workers: true workers: {len(cpus) + 1}\n")
        self.assertIn(f"pin_workers: {len(cpus) + 1} workers, but the affinity mask has only "
                      f"{len(cpus)} CPUs", caught.exception.log)
