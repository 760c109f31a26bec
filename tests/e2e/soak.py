"""The soak of tests/soak.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import collections
import os
import random
import signal
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import env  # noqa: E402

# What callers may get while models change and others misbehave.
ALLOWED = {
    "predict": {"OK"},
    "deadline": {"OK", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"},
    "cancel": {"OK", "CANCELLED"},
    "bad": {"INVALID_ARGUMENT", "NOT_FOUND"},
    "gone": {"OK", "NOT_FOUND", "UNAVAILABLE"},  # A model that comes and goes.
}
# Of the memory after warming up.
MAX_GROWTH = 1.05
MAX_GROWTH_BYTES = 24 << 20


class Soak:
    def __init__(self, seconds, seed):
        from harness.daemon import Daemon
        from harness.fixtures import add_heavy, add_shop, add_stamp
        self.seconds, self.seed = seconds, seed
        self.models = os.path.join(env.scratch("soak"), "models")
        os.makedirs(self.models)
        add_shop(self.models)
        add_stamp(self.models, 1)
        add_heavy(self.models)
        self.daemon = Daemon(self.models, config="""
watch { poll_interval_ms: 200 settle_time_ms: 0 }
limits { max_ads: 2000 }
connections { max_age_ms: 60000 handshake_timeout_ms: 2000 }
""", name="soak")
        self.counts = collections.Counter()
        self.failures = []
        self.lock = threading.Lock()
        self.stop = threading.Event()

    def note(self, kind, code, details=""):
        with self.lock:
            self.counts[kind, code] += 1
            if code not in ALLOWED[kind] and len(self.failures) < 20:
                self.failures.append(f"{kind}: {code}: {details}")

    def call(self, kind, make):
        import grpc
        try:
            make()
            self.note(kind, "OK")
        except grpc.RpcError as error:
            self.note(kind, error.code().name, error.details())

    def wrong(self, text):
        with self.lock:
            self.failures.append(text)

    def caller(self, seed):
        """Calls that must succeed, with the right scores, and some that must not."""
        import grpc
        import numpy as np
        from harness.clients import Client, outputs_of, predict_request
        from harness.fixtures import shop
        from harness.shop import USER
        from harness.small import heavy_inputs, stamp_inputs, stamp_of
        source = random.Random(seed)
        inputs = [shop().inputs(ads, seed=ads) for ads in (1, 7, 40, 200)]
        expected = [shop().scores(arrays)["output"] for arrays in inputs]
        client = Client(self.daemon)

        def score():
            i = source.randrange(len(inputs))
            found = outputs_of(client.predict(predict_request("shop", inputs[i], USER)))
            if not np.allclose(found["output"], expected[i], atol=1e-5):
                self.wrong(f"shop: wrong scores of {len(expected[i])} ads")

        def stamp(model="stamp"):
            ids = [source.randrange(50) for _ in range(source.choice([1, 20, 300]))]
            reply = client.predict(predict_request(model, stamp_inputs(ids), ()))
            if stamp_of(ids, outputs_of(reply)["score"].ravel().tolist()) is None:
                self.wrong(f"{model}: a reply of two contents")

        def bad():
            request = predict_request("stamp", stamp_inputs([1]), ())
            request.ad_features[0].name = source.choice(["", "ads", "x" * 1000])
            client.predict(request)

        def cancel():
            future = client.Predict.future(predict_request("heavy", heavy_inputs(500), ()),
                                           timeout=30)
            time.sleep(source.random() * 0.02)
            future.cancel()
            try:
                self.note("cancel", "OK" if future.exception() is None else future.code().name)
            except grpc.FutureCancelledError:
                self.note("cancel", "CANCELLED")

        while not self.stop.is_set():
            turn = source.random()
            if turn < 0.5:
                self.call("predict", score)
            elif turn < 0.8:
                self.call("predict", stamp)
            elif turn < 0.85:
                self.call("gone", lambda: stamp("guest"))
            elif turn < 0.9:
                self.call("bad", bad)
            elif turn < 0.95:
                self.call("deadline", lambda: client.predict(
                    predict_request("heavy", heavy_inputs(300), ()),
                    timeout=source.choice([0.001, 0.01, 0.1])))
            else:
                cancel()
            if source.random() < 0.01:
                client.close()
                client = Client(self.daemon)
            time.sleep(source.random() * 0.01)
        client.close()

    def reloader(self):
        """New contents, new versions, broken versions, a model that comes and goes."""
        import shutil
        from harness.fixtures import add_stamp
        source = random.Random(self.seed + 1000)
        version = 1
        while not self.stop.wait(source.uniform(0.5, 3)):
            turn = source.random()
            if turn < 0.5:
                version += 1
                add_stamp(self.models, version, version=version)
                for old in range(1, version - 3):
                    shutil.rmtree(os.path.join(self.models, "stamp", str(old)), ignore_errors=True)
            elif turn < 0.7:
                path = os.path.join(self.models, "stamp", str(version + 1))
                os.makedirs(path, exist_ok=True)
                with open(os.path.join(path, "graph_ulf.txt"), "w", encoding="utf-8") as file:
                    file.write("nonsense {")
                self.stop.wait(0.7)
                shutil.rmtree(path)
            elif os.path.exists(os.path.join(self.models, "guest")):
                shutil.rmtree(os.path.join(self.models, "guest"))
            else:
                add_stamp(self.models, 7, name="guest")
            with self.lock:
                self.counts["reload", "OK"] += 1

    def killer(self):
        """Clients that die with calls under way."""
        from harness.clients import predict_request
        from harness.dying_clients import DyingClients
        from harness.small import heavy_inputs
        source = random.Random(self.seed + 2000)
        clients = DyingClients(self.daemon, predict_request("heavy", heavy_inputs(100), ()))
        while not self.stop.is_set():
            with clients.start() as one:
                self.stop.wait(source.uniform(0.5, 3))
                one.send_signal(signal.SIGKILL)
            with self.lock:
                self.counts["kill", "OK"] += 1

    def vandal(self):
        """Connections that misbehave."""
        from harness import http2
        from harness.http2 import Connection, frame
        source = random.Random(self.seed + 3000)
        path = "/ulfd.v1.PredictionService/Predict"

        def garbage(connection):
            connection.send(source.randbytes(source.randrange(1, 5000)))

        def resets(connection):
            for _ in range(50):
                stream = connection.open_stream(path, b"\0\0\0\0\0")
                connection.send(frame(http2.RST_STREAM, 0, stream, b"\0\0\0\x08"))

        def unfinished(connection):
            for _ in range(20):
                connection.open_stream(path, b"\0\0\0\1\0abc", end=False)

        def pings(connection):
            for _ in range(20):
                connection.send(frame(http2.PING, 0, 0, bytes(8)))

        while not self.stop.wait(source.uniform(0.05, 0.5)):
            port = self.daemon.http_port if source.random() < 0.2 else self.daemon.grpc_port
            try:
                with Connection(port, greet=source.random() < 0.8) as connection:
                    source.choice([garbage, resets, unfinished, pings])(connection)
                    connection.read(source.uniform(0, 0.3))
            except OSError:
                pass
            with self.lock:
                self.counts["vandal", "OK"] += 1

    def run(self):
        warm = min(300.0, self.seconds / 5)
        threads = [threading.Thread(target=self.caller, args=(self.seed + i,)) for i in range(3)]
        threads += [threading.Thread(target=t) for t in (self.reloader, self.killer, self.vandal)]
        for thread in threads:
            thread.start()
        begin = time.monotonic()
        memory, next_line = [], begin + 60
        try:
            while (now := time.monotonic()) < begin + self.seconds and not self.failures:
                time.sleep(1)
                if not self.daemon.alive():
                    self.wrong(f"the daemon ended, exit code {self.daemon.process.poll()}")
                    break
                resident = self.daemon.resident_bytes()
                if now >= begin + warm:
                    memory.append(resident)
                if now >= next_line:
                    next_line += 60
                    print(f"{(now - begin) / 60:4.0f} min, {resident >> 20} MiB, "
                          f"{sum(self.counts.values())} events", flush=True)
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
        return self.judge(memory)

    def judge(self, memory):
        """`memory`: resident bytes after warming up, once a second."""
        from harness.daemon import wait_for
        from harness.metrics import scrape
        for (kind, code), count in sorted(self.counts.items()):
            print(f"{kind:9} {code:20} {count}")
        if self.daemon.alive() and memory:
            wait_for(lambda: scrape(self.daemon).sum("ulfd_inflight_requests") == 0,
                     "no call is left")
            # Single looks see models that are being replaced: the middle of a fifth of them does
            # not.
            part = max(1, len(memory) // 5)
            first, last = (statistics.median(m) for m in (memory[:part], memory[-part:]))
            print(f"memory: {first / 2**20:.0f} MiB after warming up, at most "
                  f"{max(memory) / 2**20:.0f}, {last / 2**20:.0f} at the end")
            if last > max(first * MAX_GROWTH, first + MAX_GROWTH_BYTES):
                self.wrong("memory grew")
            try:
                self.daemon.stop()
            except AssertionError as error:
                self.wrong(str(error))
        for failure in self.failures:
            print("FAILED:", failure)
        print("soak:", "failed" if self.failures else "passed")
        return 1 if self.failures else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    env.set_bin_dir(args.bin)
    env.prepare()
    return Soak(args.minutes * 60, args.seed).run()


if __name__ == "__main__":
    sys.exit(main())
