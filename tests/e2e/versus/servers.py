"""The two servers, each with one model on one CPU, and what they are asked.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import signal
import subprocess

import grpc
import numpy as np

from harness import env
from harness.clients import OPTIONS, Client, native_pb, outputs_of, predict_request
from harness.daemon import Daemon, wait_for
from harness.loading import load, start_load, ulf
from harness.metrics import scrape
from slo.bench import halves, on_cpus
from versus import models

TOLERANCE = 1e-5
CONFIG = "watch { poll_interval_ms: 100 settle_time_ms: 0 }\n"


def onnxruntime():
    """The folder of node_modules with ONNX Runtime; None with a reason if it cannot be had."""
    if not os.path.isdir(os.path.join(env.NODE_MODULES, "@grpc", "grpc-js")):
        return None, "no @grpc/grpc-js in build/node: tests/run installs it"
    done = subprocess.run([os.path.join(env.ROOT, "tests", "bench", "fetch_onnxruntime")],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.strip()
    return done.stdout[:done.stdout.index("node_modules") + len("node_modules")], ""


class Ulfd(Daemon):
    name = "ulfd"

    def __init__(self, repository, model):
        with on_cpus(halves()[0]):
            super().__init__(repository, config=CONFIG, flags=("--workers=1",), name="ulfd")
        self.model, self.folder = model, os.path.join(repository, model)

    def exchange(self):
        """A new version of the same content, and waits until it serves."""
        version = str(max(int(name) for name in os.listdir(self.folder)) + 1)
        hidden = os.path.join(self.folder, "..", ".next")
        shutil.copytree(os.path.join(self.folder, "1"), hidden)
        os.rename(hidden, os.path.join(self.folder, version))
        wait_for(lambda: scrape(self).sum("ulfd_model_info", model=self.model, version=version),
                 f"version {version} serves", 30)


class Peer:
    """ONNX Runtime behind grpc-js."""

    name = "ONNX Runtime"

    def __init__(self, library, model, metadata):
        self.dir = env.scratch("peer")
        described = os.path.join(self.dir, "metadata")
        with open(described, "wb") as file:
            file.write(metadata)
        script = os.path.join(env.E2E, "versus", "peer.js")
        proto = os.path.join(env.ROOT, "proto", "predict.proto")
        with open(os.path.join(self.dir, "log"), "w", encoding="utf-8") as log, on_cpus(halves()[0]):
            self.process = subprocess.Popen(
                ["node", script, env.NODE_MODULES, library, proto, model, described],
                stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "UV_THREADPOOL_SIZE": "1"})
        port = self.process.stdout.readline().strip()
        if not port:
            self.process.wait()
            raise AssertionError(f"{self.name} did not start: {self.dir}/log")
        self.target = f"127.0.0.1:{port}"
        self.channel = grpc.insecure_channel(self.target, options=OPTIONS)

    def spent(self):
        return json.loads(self.channel.unary_unary("/versus/Spent")(b"", timeout=10))

    def exchange(self):
        """The file is read again; waits until that serves."""
        before = self.spent()["loads"]
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.spent()["loads"] > before, "the model is loaded again", 30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Contest:
    """One model in both servers."""

    def __init__(self, name, library):
        self.name = name
        work = env.scratch(name)
        path, repository = os.path.join(work, "model.onnx"), os.path.join(work, "models")
        histories = models.write(name, path)
        # Not proved by the converter: both servers' scores are compared before anything is timed.
        code, _, error = ulf("convert", "onnx", "--no_verify", path, os.path.join(repository, name, "1"))
        if code != 0:
            raise AssertionError(error)
        self.ids = ",".join(f"{feature}:{ids}" for feature, ids in histories)
        self.ulfd = Ulfd(repository, name)
        with Client(self.ulfd) as client:
            self.metadata = client.GetModelMetadata(
                native_pb.GetModelMetadataRequest(model={"name": name}))
        try:
            self.peer = Peer(library, path, self.metadata.SerializeToString())
        except BaseException:
            self.ulfd.kill()
            raise
        self.servers = (self.ulfd, self.peer)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.peer.__exit__(*error)
        self.ulfd.__exit__(*error)

    def request(self, ads, random):
        histories = dict(pair.split(":") for pair in self.ids.split(",") if pair)
        arrays, user = {}, set()
        for feature in self.metadata.sparse_features:
            of_user = feature.level == native_pb.TENSOR_LEVEL_USER
            ids = int(histories.get(feature.name, 1)) if of_user else ads
            user |= {feature.name} if of_user else set()
            arrays[feature.name + ".ids"] = random.integers(0, models.ROWS, ids)
            arrays[feature.name + ".values"] = np.ones(ids, np.float32)
            arrays[feature.name + ".segments"] = np.array([ids] if of_user else [1] * ids, np.int32)
        sparse = tuple(f"{feature.name}." for feature in self.metadata.sparse_features)
        for tensor in self.metadata.inputs:
            if not tensor.name.startswith(sparse):
                of_user = tensor.level == native_pb.TENSOR_LEVEL_USER
                user |= {tensor.name} if of_user else set()
                arrays[tensor.name] = random.random((1 if of_user else ads, tensor.shape[1]), np.float32)
        return predict_request(self.name, arrays, user, short=True)

    def compare(self, ads):
        """The largest difference of the scores of a few requests."""
        random = np.random.default_rng(ads)
        worst = 0
        with Client(self.ulfd) as ours, Client(self.peer) as theirs:
            for _ in range(3):
                request = self.request(ads, random)
                a, b = (outputs_of(client.predict(request))["score"].ravel() for client in (ours, theirs))
                if a.shape != (ads,) or b.shape != (ads,) or not np.isfinite(a).all():
                    raise AssertionError(f"{self.name}, {ads} ads: {a.shape} and {b.shape} scores")
                worst = max(worst, float(np.abs(a - b).max()))
        if worst > TOLERANCE:
            raise AssertionError(f"{self.name}, {ads} ads: scores differ by {worst}")
        return worst

    def flags(self, ads, seconds, seed, **more):
        # Both get the same requests: the same metadata and seed make them.
        flags = {"model": self.name, "ads": ads, "ids": f"0..{models.ROWS - 1}", "user_ids": 1,
                 "pool": 200, "duration": f"{seconds * 1.25:.3f}s", "warmup": f"{seconds / 4:.3f}s",
                 "timeout": "10s", "channels": 4, "seed": seed, **more}
        if self.ids:
            flags["feature_ids"] = self.ids
        return [f"--{name}={value}" for name, value in flags.items()]

    def per_core(self, server, ads, seconds, seed, calls=4):
        """Answered calls per second of the server's CPU, so many calls being under way."""
        before = cpu_seconds(server)
        with on_cpus(halves()[1]):
            found = load(server.target, *self.flags(ads, seconds, seed, warmup="0s", closed_loop=calls))
        return found["calls"]["answered"] / (cpu_seconds(server) - before)

    def peer_share(self, ads, seconds):
        """Of the peer's CPU time, what its runs of the model take, without gRPC and JavaScript."""
        before, spent = cpu_seconds(self.peer), self.peer.spent()["us"]
        self.per_core(self.peer, ads, seconds, 0, calls=1)
        return (self.peer.spent()["us"] - spent) / 1e6 / (cpu_seconds(self.peer) - before)

    def latency(self, server, ads, seconds, seed, rate):
        with on_cpus(halves()[1]):
            return load(server.target, *self.flags(ads, seconds, seed, rate=rate))

    def start_load(self, server, ads, seconds, seed, rate):
        with on_cpus(halves()[1]):
            return start_load(server.target, *self.flags(ads, seconds, seed, rate=rate))
