"""What the checks share: the models, the daemon under load, and what a load reports.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import os
import shutil
import threading

import numpy as np

from harness import env
from harness.clients import predict_request
from harness.daemon import Daemon, wait_for
from harness.fixtures import SHARED_USERS, add_heavy, add_shop, shared_cases
from harness.loading import load, start_load
from harness.metrics import scrape
from harness.small import heavy_inputs

# The defaults but for quick reactions to files, and the request sizes of the checks.
CONFIG = """
watch { poll_interval_ms: 100 settle_time_ms: 0 }
limits { max_ads: 2000 }
shutdown { drain_delay_ms: 1000 drain_timeout_ms: 30000 }
"""


class Subject:
    """A model under load: its folder, how `ulf load` makes requests of it, and a request of so many ads."""

    def __init__(self, name, folder, flags=(), request=None):
        self.name = name
        self.folder = folder  # A version: what is inside it.
        self.flags = (f"--model={name}", *flags)
        self.request = request


def din_request(ads):
    """The ads of a real request of 200, as often as it takes."""
    inputs = next(inputs for case, inputs, _ in shared_cases("din")[0] if case == "u0_a200")
    of_user = SHARED_USERS["din"]
    arrays = {name: array if name.split(".")[0] in of_user else np.resize(array, ads)
              for name, array in inputs.items()}
    return predict_request("din", arrays, of_user)


def subjects():
    """(the model that is called, another one): exported ones if they are there, else the project's own."""
    if env.shared_model("din") and env.shared_model("tdm_dnn"):
        ids = ("--ids=1..100", "--feature_ids=uid:1,mid_list:50,cat_list:50")
        return (Subject("din", os.path.join(env.shared_model("din"), "1"), ids, din_request),
                Subject("tdm_dnn", os.path.join(env.shared_model("tdm_dnn"), "1")))
    # The one that is called has to be so expensive that one CPU can send three times what another
    # can answer.
    own = os.path.join(env.scratch("own"), "models")
    add_shop(own)
    add_heavy(own)
    return (Subject("heavy", os.path.join(own, "heavy", "1"),
                    request=lambda ads: predict_request("heavy", heavy_inputs(ads), ())),
            Subject("shop", os.path.join(own, "shop", "1")))


class Bench:
    """`scale`: of the lengths of all loads.  `capacity`: calls a second of 200 ads that any daemon is
    taken to answer, instead of measuring it."""

    def __init__(self, scale, capacity=None):
        self.scale = scale
        self.capacity = capacity
        self.subject, self.other = subjects()

    def seconds(self, seconds):
        return max(2.0, seconds * self.scale)

    def rounds(self, rounds):
        """How often something is repeated."""
        return max(1, round(rounds * self.scale))

    @staticmethod
    def warmup(seconds):
        """What a load of so many seconds runs before it counts."""
        return min(2.0, 0.25 * seconds)

    def daemon(self, name):
        models = os.path.join(env.scratch(name), "models")
        for subject in (self.subject, self.other):
            install(subject, models, 1)
        return Daemon(models, config=CONFIG, name=name), models

    def flags(self, seconds, **more):
        warmup = self.warmup(seconds)
        flags = {"duration": f"{seconds + warmup:.3f}s", "warmup": f"{warmup:.3f}s", "ads": 200,
                 "timeout": "1s", "channels": 8, **more}
        return (*self.subject.flags, *(f"--{name}={value}" for name, value in flags.items()))

    def load(self, daemon, seconds, **more):
        return load(daemon.target, *self.flags(seconds, **more))

    def start_load(self, targets, seconds, *switches, **more):
        return start_load(*targets, *self.flags(seconds, **more), *switches)

    def rate_of(self, daemon, share):
        """That share of its capacity, in calls a second.  Measured now: what a machine can do changes
        within minutes, and 80 % of then may be all of now."""
        return share * (self.capacity or self.measure_capacity(daemon))

    def measure_capacity(self, daemon, ads=200):
        """The most that a closed loop gets answered, in calls a second."""
        workers = int(scrape(daemon).sum("ulfd_workers"))
        found = self.load(daemon, self.seconds(4), ads=ads, closed_loop=3 * workers)
        return found["goodput_per_second"]


@contextlib.contextmanager
def on_cpus(cpus):
    """Processes started inside run there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def halves():
    """The CPUs of the daemon and those of the load, where the load is so high that it would take
    the daemon's time; the same ones if there is only one."""
    cpus = sorted(os.sched_getaffinity(0))
    middle = (len(cpus) + 1) // 2
    return set(cpus[:middle]), set(cpus[middle:]) or set(cpus)


def install(subject, models, version):
    """A version that appears at once, as a deployment that knows its trade does it."""
    folder = os.path.join(models, subject.name)
    os.makedirs(folder, exist_ok=True)
    hidden = os.path.join(folder, f".{version}.tmp")
    shutil.copytree(subject.folder, hidden)
    os.chmod(hidden, 0o755)
    os.rename(hidden, os.path.join(folder, str(version)))


class Reloader:
    """New versions of a model, one every `period` seconds, until stopped.  Their files are there
    before, so that copying them is not part of what is measured."""

    def __init__(self, subject, models, period, first, count):
        self.subject, self.models, self.period = subject, models, period
        self.versions = range(first, first + count)
        self.store = os.path.join(env.scratch("versions"), "store")
        for version in self.versions:
            install(subject, os.path.join(self.store, str(version)), version)
        self.done = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        for version in self.versions:
            if self._stop.wait(self.period):
                return
            folder = os.path.join(self.models, self.subject.name)
            os.rename(os.path.join(self.store, str(version), self.subject.name, str(version)),
                      os.path.join(folder, str(version)))
            self.done += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def wait_version(daemon, subject, version):
    """Until that version is served."""
    wait_for(lambda: scrape(daemon).sum("ulfd_model_info", model=subject.name,
                                        version=str(version)) == 1,
             f"{subject.name} {version} is loaded", 30)


def in_turn(turn, *runs):
    """The results of all; who runs first takes turns, because machines drift."""
    found = [None] * len(runs)
    for i in range(len(runs)):
        at = (turn + i) % len(runs)
        found[at] = runs[at]()
    return found


def median_between(values):
    """Two of the values between which the median of all such values is in 19 of 20 cases: by the number of
    values below it, which is binomial whatever their distribution."""
    ordered = sorted(values)
    rank = max(0, int((len(ordered) - 1.96 * len(ordered)**0.5) / 2))
    return ordered[rank], ordered[-1 - rank]


def failed(summary):
    """Calls that were due and got no answer."""
    return summary["calls"]["due"] - summary["calls"]["answered"]


def p99(summary):
    return summary["latency_ms"]["corrected"]["p99"]
