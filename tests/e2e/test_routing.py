"""deploy/routing: nginx and HAProxy send a user to one replica, whatever happens to the others.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

import grpc

from harness import env
from harness.clients import OPTIONS, native_pb, outputs_of, predict_request
from harness.daemon import Daemon, wait_for
from harness.fixtures import add_stamp
from harness.small import stamp_inputs, stamp_of

FILES = os.path.join(env.ROOT, "deploy", "routing")
REPLICAS = 3
USERS = [f"user-{i}" for i in range(90)]
IDS = [1, 2, 3]
# Health is told first, and for longer than the proxies need to ask for it.
CONFIG = "shutdown { drain_delay_ms: 1000 drain_timeout_ms: 20000 }"


def read(name):
    with open(os.path.join(FILES, name), encoding="utf-8") as file:
        return file.read()


class Proxy:
    """A proxy with the file of deploy/routing, changed in addresses alone."""

    def __init__(self, name, listen, changes, command):
        # Paths of sockets are short.
        self.dir = tempfile.mkdtemp(prefix="ulfd-routing.")
        self.target = f"unix:{self.dir}/socket"
        text = read(name)
        for old, new in [(listen[0], listen[1].format(self.dir + "/socket")), *changes]:
            if old not in text:
                raise AssertionError(f"{name} has no {old}")
            text = text.replace(old, new)
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(self.dir, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*command, path], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, cwd=self.dir)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        shutil.rmtree(self.dir)


class RoutingTest:
    """What each proxy must do; see the classes below."""

    @classmethod
    def setUpClass(cls):
        if shutil.which(cls.PROGRAM, path=os.environ["PATH"] + ":/usr/sbin") is None:
            raise unittest.SkipTest(f"no {cls.PROGRAM}")
        cls.daemons = []
        cls.proxy = None
        try:
            for i in range(REPLICAS):
                cls.daemons.append(cls.start_daemon(i))
            cls.proxy = cls.start_proxy([(d.grpc_port, d.http_port) for d in cls.daemons])
            cls.channel = grpc.insecure_channel(
                cls.proxy.target, [*OPTIONS, ("grpc.service_config", read("service_config.json"))])
            cls.predict = cls.channel.unary_unary(
                "/ulfd.v1.PredictionService/Predict", native_pb.PredictRequest.SerializeToString,
                native_pb.PredictResponse.FromString)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def start_daemon(cls, i, ports=(0, 0)):
        """A replica whose scores tell it apart."""
        repository = os.path.join(env.scratch(f"replica-{i}"), "models")
        add_stamp(repository, i + 1)
        return Daemon(repository, config=CONFIG, ports=ports, name=f"ulfd-{i}")

    @classmethod
    def restart(cls, i):
        """A new replica at the address of the old one."""
        old = cls.daemons[i]
        cls.daemons[i] = cls.start_daemon(i, (old.grpc_port, old.http_port))

    @classmethod
    def tearDownClass(cls):
        if cls.proxy is not None:
            cls.channel.close()
            cls.proxy.stop()
        for daemon in cls.daemons:
            daemon.process.send_signal(signal.SIGCONT)
            daemon.stop()

    @classmethod
    def replica(cls, user=None):
        """Which replica answers; an error of the call is an error of the test."""
        metadata = [("x-user-hash", user)] if user else []
        reply = cls.predict(predict_request("stamp", stamp_inputs(IDS), ()), metadata=metadata,
                            timeout=30 * env.SLOWNESS, wait_for_ready=True)
        return int(stamp_of(IDS, outputs_of(reply)["score"].ravel().tolist())) - 1

    @classmethod
    def replicas(cls):
        return {user: cls.replica(user) for user in USERS}

    def wait_for_users(self, home, without=None):
        """Until 95 % of the users of the other replicas are where they were.  A busy machine may
        make a proxy think ill of a replica for some seconds."""
        others = [user for user in USERS if home[user] != without]

        def settled():
            now = self.replicas()
            stayed = sum(home[user] == now[user] for user in others)
            return stayed >= 0.95 * len(others) and without not in now.values()

        wait_for(settled, "users where they were", 30, step=0.2)

    def under_calls(self, act):
        """Runs `act` while four callers go through the users; no call may fail."""
        stop, errors = threading.Event(), []

        def call(users):
            while not stop.is_set() and not errors:
                for user in users:
                    try:
                        self.replica(user)
                    except grpc.RpcError as error:
                        errors.append(error)
                        return

        threads = [threading.Thread(target=call, args=(USERS[i::4],)) for i in range(4)]
        for thread in threads:
            thread.start()
        try:
            act()
        finally:
            stop.set()  # Each goes through its users to the end.
            for thread in threads:
                thread.join()
        self.assertEqual(errors, [])

    def test_users_stay_and_no_call_fails(self):
        def spread():
            home = self.replicas()
            return home if set(home.values()) == set(range(REPLICAS)) else None

        home = wait_for(spread, "users at every replica")
        self.wait_for_users(home)
        self.assertEqual({self.replica() for _ in range(60)}, set(range(REPLICAS)))

        with self.subTest("killed"):
            self.under_calls(self.daemons[0].kill)
            self.wait_for_users(home, without=0)
            self.restart(0)
            self.wait_for_users(home)

        with self.subTest("drained"):
            self.under_calls(self.daemons[1].stop)
            self.wait_for_users(home, without=1)
            self.restart(1)
            self.wait_for_users(home)

        with self.subTest("slow"):
            process = self.daemons[2].process
            self.under_calls(lambda: process.send_signal(signal.SIGSTOP))
            self.wait_for_users(home, without=2)
            process.send_signal(signal.SIGCONT)
            self.wait_for_users(home)


class NginxTest(RoutingTest, unittest.TestCase):
    PROGRAM = "nginx"

    @staticmethod
    def start_proxy(ports):
        return Proxy("nginx.conf", ("listen 8400", "listen unix:{}"),
                     [(f"ulfd-{i}:8500", f"127.0.0.1:{grpc_port}")
                      for i, (grpc_port, _) in enumerate(ports)],
                     ["/usr/sbin/nginx", "-e", "stderr", "-g", "daemon off; pid nginx.pid;", "-c"])


class HaproxyTest(RoutingTest, unittest.TestCase):
    PROGRAM = "haproxy"

    @staticmethod
    def start_proxy(ports):
        return Proxy("haproxy.cfg", ("bind :8400", "bind unix@{}"),
                     [(f"ulfd-{i}:8500 check port 8501",
                       f"127.0.0.1:{grpc_port} check port {http_port}")
                      for i, (grpc_port, http_port) in enumerate(ports)],
                     ["/usr/sbin/haproxy", "-db", "-f"])
