"""A daemon under attack, a client beside it that behaves, and what is measured of both.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time

import grpc
import numpy as np

from attacks.common import Attack, Site
from attacks.models import SECRET
from attacks.wire import sink
from harness import env
from harness.certificates import Authority
from harness.daemon import Daemon, StartFailed
from harness.fixtures import SHARED_USERS, add_shop, shared_cases, shop
from harness.clients import Client, predict_request
from harness.shop import USER
from zoo import fill_zoo

MIB = 1 << 20
# connections.memory_quota_bytes, its default: what an attack may cost at most.
ALLOWED_GROWTH = 512 * MIB
# Address space beyond what the daemon has when it is ready.  Three times the quota: a daemon that
# needs more has failed already, and the machine is to survive it.
ADDRESS_SPACE = 3 * ALLOWED_GROWTH
# "Back within 10 %": of what it was, and of small things (caches of threads, buffers of the
# kernel's size).
KEPT_SHARE, KEPT_BYTES = 0.10, 32 * MIB
P99_FACTOR = 3
# Attacker, daemon and victim share a few CPUs, so an attack delays the victim even where the daemon
# does not care.  How much is measured beside the same flood aimed at a process that only reads;
# below this a p99 tells about the machine alone.
P99_FLOOR_S = 0.030
IDLE_CPUS = 0.25
SETTLE_S, IDLE_WINDOW_S = 2.0, 0.5
SIGTERM_SLACK_S = 2.0
DRAIN_DELAY_S = 0.2

CONFIG = f"""
watch {{ poll_interval_ms: 200 settle_time_ms: 0 }}
shutdown {{ drain_delay_ms: {int(DRAIN_DELAY_S * 1000)} }}
"""
TOKEN = "the-token-of-the-victim-and-of-nobody-else"
ADS = 20


def victim_request(ads=ADS):
    if not env.shared_model("din"):
        return predict_request("shop", shop().inputs(ads, seed=1, plain=True), USER)
    inputs = next(inputs for case, inputs, _ in shared_cases("din")[0] if case == "u0_a200")
    of_user = SHARED_USERS["din"]
    arrays = {}
    for name, array in inputs.items():
        arrays[name] = array if name.split(".")[0] in of_user else np.resize(array, (ads, *array.shape[1:]))
    return predict_request("din", arrays, of_user)


class Victim:
    def __init__(self, daemon, request, secrets):
        path = os.path.join(daemon.dir, "request")
        with open(path, "wb") as file:
            file.write(request.SerializeToString())
        options = {"target": daemon.target, "http_port": daemon.http_port, "request": path, **secrets}
        if secrets:
            options["target"] = f"localhost:{daemon.grpc_port}"
        self._lock = threading.Lock()
        self._results = []
        self._process = subprocess.Popen(
            [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "bystander.py"),
             json.dumps(options)], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            with self._lock:
                self._results.append(json.loads(line))

    def between(self, begin, end):
        """(times of the calls that were due then, what went wrong with calls and probes)"""
        with self._lock:
            results = [r for r in self._results if begin <= r[1] < end]
        return ([took for kind, _, took, _, _ in results if kind == "call"],
                [f"{kind} {code} {text}"[:120] for kind, _, _, code, text in results if code != "OK"])

    def expected(self, begin, end):
        from bystander import CALLS_PER_SECOND
        return int((end - begin) * CALLS_PER_SECOND)

    def stop(self):
        self._process.kill()
        self._process.wait()


def p99(times):
    if not times:
        return float("inf")
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


class Scene:
    """One configuration of the daemon: "plain", "onnx" (model.onnx is converted), "rest" (KServe by HTTP), "guarded" (TLS and tokens, admin port too, and
    KServe by HTTP), "mutual" (TLS with certificates of clients), "admin" (open admin port), "unix" (admin on a socket)."""

    victim_request = staticmethod(victim_request)

    def __init__(self, kind):
        self.kind = kind
        self.ended = False  # By SIGTERM.
        self._rested_since = float("inf")
        self.dir = env.scratch("scene_" + kind)
        self.repository = os.path.join(self.dir, "models")
        os.makedirs(self.repository)
        if env.shared_model("din"):
            shutil.copytree(env.shared_model("din"), os.path.join(self.repository, "din"),
                            ignore=shutil.ignore_patterns("cases"))
        if kind == "rest" or not env.shared_model("din"):
            add_shop(self.repository)
        self.zoo = fill_zoo(self.repository) if kind == "plain" else []
        self.secrets, flags, config = {}, [], CONFIG
        if kind == "guarded":
            authority = Authority(os.path.join(self.dir, "tls"))
            certificate, key = authority.issue("server")
            tokens = os.path.join(self.dir, "tokens")
            with open(tokens, "w", encoding="utf-8") as file:
                file.write(f"victim {TOKEN}\n")
            self.secrets = {"authority": authority.certificate, "token": TOKEN}
            tls = f'certificate_file: "{certificate}" key_file: "{key}"'
            config += (f'tls {{ {tls} }} authentication {{ token_file: "{tokens}" }}\n'
                       f'admin_address: "127.0.0.1:0" admin_tls {{ {tls} }} http_inference: true\n')
        elif kind == "mutual":
            self.authority = Authority(os.path.join(self.dir, "tls"))
            certificate, key = self.authority.issue("server")
            self.secrets = dict(zip(("certificate", "key"), self.authority.issue("victim")))
            self.secrets["authority"] = self.authority.certificate
            config += (f'tls {{ certificate_file: "{certificate}" key_file: "{key}" '
                       f'client_ca_file: "{self.authority.certificate}" }}\n')
        elif kind == "onnx":
            self.kept = env.scratch("kept")
            config += f'converted_directory: "{self.kept}"\n'
        elif kind == "rest":
            config += "http_inference: true\n"
        elif kind == "admin":
            config += 'admin_address: "127.0.0.1:0"\n'
        elif kind == "unix":
            config += 'admin_address: "unix:admin.sock"\n'
        self.daemon = Daemon(self.repository, config=config, flags=flags, name=kind)
        self._wait_for_models()
        if not env.SANITIZED:  # AddressSanitizer reserves terabytes.
            self._limit()
        self.victim = Victim(self.daemon, victim_request(), self.secrets)
        self._wait_for_victim()
        self.p99_beside_sink = self._beside_sink()

    def _beside_sink(self):
        secrets, self.secrets = self.secrets, {}  # It does not speak TLS.
        site = Site(self, 1.5)
        begin = time.monotonic()
        site.begin()
        self._strike(Attack("sink", "", sink), site)
        site.close()
        time.sleep(0.2)
        self.secrets = secrets
        return p99(self.victim.between(begin, begin + 1.5)[0])

    def _wait_for_models(self):
        """/readyz speaks of required models only."""
        if self.secrets:
            return
        with Client(self.daemon) as client:
            until = time.monotonic() + 60 * env.SLOWNESS
            while time.monotonic() < until:
                states = [v.state for m in client.list_models().models for v in m.versions]
                if states and not set(states) & {1, 2}:
                    return
                time.sleep(0.05)
        raise AssertionError("models do not load\n" + self.daemon.log())

    def _wait_for_victim(self):
        """Until it calls: what the first calls touch belongs to the daemon at rest."""
        begin = time.monotonic()
        while time.monotonic() < begin + 30 * env.SLOWNESS:
            times, _ = self.victim.between(begin, time.monotonic())
            if len(times) >= 20:
                return
            time.sleep(0.05)
        raise AssertionError("the victim gets no answers")

    def _status(self, name):
        with open(f"/proc/{self.daemon.process.pid}/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
        raise ProcessLookupError(name)

    def _limit(self):
        limit = self._status("VmSize") + ADDRESS_SPACE
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_AS, (limit, limit))

    def _forget_peak(self):
        with open(f"/proc/{self.daemon.process.pid}/clear_refs", "w", encoding="utf-8") as file:
            file.write("5")

    def _cpu(self):
        with open(f"/proc/{self.daemon.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def until_tried(self, site, model):
        """Waits until the daemon has made up its mind about a model, or the attack is over."""
        with Client(self.daemon) as client:
            while not site.over():
                try:
                    found = [m for m in client.list_models().models if m.name == model]
                    versions = [v for m in found for v in m.versions]
                    states = [v.state for v in versions]
                    errors = [x.error for x in [*found, *versions]]
                    if any(SECRET in error for error in errors):
                        site.faults.append(f"the error tells what stands elsewhere: {errors}"[:200])
                    if any(m.error for m in found) and not states:  # It cannot even be looked at.
                        return site.count("not looked at")
                except grpc.RpcError:
                    states = []
                if states and not set(states) & {1, 2}:
                    for state in states:
                        site.count({3: "served", 4: "refused"}.get(state, str(state)))
                    return
                time.sleep(0.05)
        site.count("not tried")

    def end_now(self, site):
        """SIGTERM while the attacker's connections are open."""
        self.ended = True
        self.victim.stop()
        begin = time.monotonic()
        self.daemon.terminate()
        try:
            code = self.daemon.wait(40)
            took = time.monotonic() - begin
            site.count(f"s until the end: {took:.1f}")
            if code != 0:
                site.faults.append(f"SIGTERM: exit code {code}")
            if took > (DRAIN_DELAY_S + SIGTERM_SLACK_S) * env.SLOWNESS:
                site.faults.append(f"SIGTERM took {took:.1f} s")
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            site.faults.append("SIGTERM: no end within 40 s")

    def run(self, attack, short):
        """The attack's row of the table."""
        row = Row(attack, judges_p99=not short)
        rest = 0.7 if short else 3.0
        site = Site(self, (min(attack.seconds, 2.0) if short else attack.seconds) * env.SLOWNESS)
        try:
            self._measure(attack, site, rest, row)
        except (ProcessLookupError, FileNotFoundError):
            pass
        site.close()
        if not self.daemon.alive() and not self.ended:
            row.faults.insert(0, f"the daemon died ({self.daemon.process.poll()}) at: {site.doing or attack.name}\n"
                              + self.daemon.log()[-2000:])
        row.sent, row.answers = site.sent, site.answers_text()
        row.faults += site.faults
        return row

    def _measure(self, attack, site, rest, row):
        begin, cpu = time.monotonic(), self._cpu()
        time.sleep(rest)
        resident, usual = self._status("VmRSS"), (self._cpu() - cpu) / (time.monotonic() - begin)
        # The last second of the settling time before is as quiet.
        times, _ = self.victim.between(min(begin, self._rested_since), time.monotonic() - 0.2)
        row.p99_before = p99(times)
        self._forget_peak()
        begin, cpu = time.monotonic(), self._cpu()
        site.begin()
        self._strike(attack, site)
        end = max(time.monotonic(), begin + 0.5)
        time.sleep(max(0.0, end - time.monotonic()))
        site.close()
        row.cpu = max(0.0, self._cpu() - cpu - usual * (end - begin))
        time.sleep(SETTLE_S)
        cpu, resting = self._cpu(), time.monotonic()
        time.sleep(IDLE_WINDOW_S)
        row.busy = max(0.0, (self._cpu() - cpu) / (time.monotonic() - resting) - usual)
        row.grown, row.kept = self._status("VmHWM") - resident, self._status("VmRSS") - resident
        # Whoever waits since the attack was lost, too: the victim's patience is longer than the
        # rest was.
        times, wrong = self.victim.between(begin, end)
        self._rested_since = resting - 1.0
        row.p99, row.calls = p99(times), len(times)
        lost = self.victim.expected(begin, end) - 2 - len(times)
        row.failures = wrong + ["no answer yet"] * max(0, lost)
        row.judge(resident, max(P99_FLOOR_S, P99_FACTOR * max(row.p99_before, self.p99_beside_sink)))

    @staticmethod
    def _strike(attack, site):
        cut_off = threading.Event()  # Its connections are closed while it works.

        def work():
            try:
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
                attack.work(site)
            except Exception as error:  # Connections end under an attacker's hands; a bug of ours must be seen.
                if not isinstance(error, OSError) and not cut_off.is_set():
                    site.faults.append(f"the attack itself failed: {error!r}")

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(site.seconds + 20)
        cut_off.set()
        if thread.is_alive():
            site.close()
            thread.join(20)

    def stop(self):
        """None, or why the end was not an orderly one."""
        self.victim.stop()
        if not self.daemon.alive():
            return None  # A row has said so.
        begin = time.monotonic()
        try:
            self.daemon.stop()
        except AssertionError as error:
            return str(error).splitlines()[0]
        took = time.monotonic() - begin
        if took > (DRAIN_DELAY_S + SIGTERM_SLACK_S) * env.SLOWNESS:
            return f"SIGTERM took {took:.1f} s"
        return None


class Row:
    COLUMNS = (f"{'attack':44} {'verdict':7} {'peak':>6} {'kept':>6} {'sent':>9} {'CPU':>6} {'per MB':>8} {'busy':>5} "
               f"{'calls':>5} {'lost':>4} {'p99':>6} {'before':>6}  answers")
    UNITS = (f"{'':44} {'':7} {'MiB':>6} {'MiB':>6} {'bytes':>9} {'s':>6} {'s':>8} {'CPUs':>5} {'':>5} {'':>4} {'ms':>6} "
             f"{'ms':>6}")

    def __init__(self, attack, judges_p99):
        self.name = attack.name
        self.judges_p99 = judges_p99
        self.faults, self.failures = [], []
        self.late = False  # The only fault was that the victim waited.
        self.grown = self.kept = self.sent = self.calls = 0
        self.cpu = self.busy = self.p99 = self.p99_before = 0.0
        self.answers = ""

    def judge(self, resident, allowed_p99):
        if env.SANITIZED:
            return  # Memory and times mean nothing; what counts is that it lives, and what the attack itself says.
        if self.grown > ALLOWED_GROWTH:
            self.faults.append(f"{self.grown // MIB} MiB more at its peak, {ALLOWED_GROWTH // MIB} are allowed")
        if self.failures:
            self.faults.append(f"{len(self.failures)} of the victim's calls were lost: {self.failures[0]}")
        if self.judges_p99 and self.p99 > allowed_p99:
            self.late = not self.faults
            self.faults.append(f"the victim's p99 is {self.p99 * 1000:.0f} ms, {self.p99_before * 1000:.0f} before, "
                               f"{allowed_p99 * 1000:.0f} are allowed")
        before = len(self.faults)
        if self.busy > IDLE_CPUS:
            self.faults.append(f"{self.busy:.1f} CPUs are busy {SETTLE_S:.0f} s later")
        if self.kept > KEPT_SHARE * resident + KEPT_BYTES:
            self.faults.append(f"{self.kept // MIB} MiB of memory are kept")
        self.late = self.late and len(self.faults) == before

    def text(self):
        per_mb = f"{self.cpu / self.sent * 1e6:8.2f}" if self.sent else f"{'-':>8}"
        line = (f"{self.name[:44]:44} {'FAILED' if self.faults else 'held':7} {self.grown / MIB:6.0f} {self.kept / MIB:6.0f} "
                f"{self.sent:9d} {self.cpu:6.2f} {per_mb} {self.busy:5.2f} {self.calls:5d} {len(self.failures):4d} "
                f"{min(self.p99, 99) * 1000:6.1f} {min(self.p99_before, 99) * 1000:6.1f}  {self.answers}")
        return line + "".join(f"\n    {fault}" for fault in self.faults)


__all__ = ["Scene", "Row", "StartFailed"]
