"""The checks: each yields rows (promise, figure, kept), kept being None where nothing is promised.
SPDX-License-Identifier: Apache-2.0
"""
import signal
import statistics
import struct
import time
from collections import Counter

from harness import http2
from harness.loading import finish_load
from harness.metrics import scrape
from harness.dying_clients import DyingClients
from slo.bench import (Reloader, failed, halves, in_turn, median_between, on_cpus, p99,
                       wait_version)

# The words a refusal may begin with.
REASONS = ("queue_full", "deadline", "codel", "quota", "memory")


def _figures(summary):
    latency = summary["latency_ms"]["corrected"]
    return (f"{summary['due_per_second']:.0f} calls/s: p50 {latency['p50']:.1f}, "
            f"p99 {latency['p99']:.1f}, p99.9 {latency['p999']:.1f} ms")


def _none_failed(summary):
    return f"{failed(summary)} of {summary['calls']['due']} failed", failed(summary) == 0


def steady(bench):
    """Loads of ten seconds, each at a share of what the daemon was seen to do right before it."""
    seconds, rounds = 10, bench.rounds(6)
    daemon, _ = bench.daemon("steady")
    with daemon:
        for share in (0.3, 0.6, 0.8):
            loads = [bench.load(daemon, seconds, rate=bench.rate_of(daemon, share), seed=number + 1)
                     for number in range(rounds)]
            rates = [found["due_per_second"] for found in loads]
            lost, calls = sum(map(failed, loads)), sum(found["calls"]["due"] for found in loads)
            yield f"{share:.0%} of capacity: no call fails", \
                (f"{lost} of {calls} failed; {_medians(loads)} at {min(rates):.0f} .. "
                 f"{max(rates):.0f} calls/s, {rounds} loads of {seconds} s"), lost == 0


def _medians(loads):
    """Of the percentiles of several loads; and between which values they lie."""
    texts = []
    for name, text in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9")):
        found = [summary["latency_ms"]["corrected"][name] for summary in loads]
        texts.append(f"{text} {statistics.median(found):.1f} ({min(found):.1f} .. {max(found):.1f})")
    return ", ".join(texts) + " ms"


def reload(bench):
    """Loads with a reload in the middle, of the model that is called or of another, beside loads without."""
    # Short loads and many of them: what a machine does now and then spoils some rounds, not the
    # median.
    seconds, rounds = 5 if bench.scale == 1 else 2.5, bench.rounds(45)
    daemon, models = bench.daemon("reload")
    subjects = {"same": bench.subject, "other": bench.other}
    ratios = {kind: [] for kind in subjects}
    lost, calls = Counter(), Counter()

    def quiet(number):
        return p99(bench.load(daemon, seconds, rate=rate, seed=number))

    def busy(kind, number):
        subject, version = subjects[kind], number + 1
        with Reloader(subject, models, bench.warmup(seconds) + seconds / 2, version, 1):
            found = bench.load(daemon, seconds, rate=rate, seed=number)
        wait_version(daemon, subject, version)
        lost[kind] += failed(found)
        calls[kind] += found["calls"]["due"]
        return p99(found)

    with daemon:
        for number in range(1, rounds + 1):
            if number % 5 == 1:
                rate = bench.rate_of(daemon, 0.5)
            alone, same, other = in_turn(number, lambda n=number: quiet(n),
                                         lambda n=number: busy("same", n),
                                         lambda n=number: busy("other", n))
            ratios["same"].append(same / alone)
            ratios["other"].append(other / alone)
    for kind, text in (("same", "the model that is called"), ("other", "another model")):
        found = ratios[kind]
        low, high = median_between(found)
        middle = statistics.median(found)
        yield f"p99 while {text} reloads every {seconds:g} s, at most 1.1 x the p99 without", \
            (f"{middle:.2f} x, 95 % sure between {low:.2f} and {high:.2f} "
             f"({min(found):.2f} .. {max(found):.2f}, {rounds} pairs)"), middle <= 1.1
        yield f"no call fails while {text} reloads", f"{lost[kind]} of {calls[kind]} failed", \
            lost[kind] == 0


def sigterm(bench):
    """Two daemons behind a client that follows health; one ends, as on a rolling update."""
    one, _ = bench.daemon("first")
    with one:
        rate = bench.rate_of(one, 0.3)
        two, _ = bench.daemon("second")
        seconds = bench.seconds(20)
        try:
            running = bench.start_load((one.target, two.target), seconds, "--follow_health",
                                       rate=rate)
            time.sleep(seconds / 2)
            two.terminate()
            code = two.wait()
            found = finish_load(running)
        finally:
            two.kill()
        lost, kept = _none_failed(found)
        yield "no call fails on SIGTERM, the client following health", \
            f"{lost}, exit code {code}", kept and code == 0


def overload(bench):
    """Three times what the daemon can do; it has half of the CPUs, the load the others."""
    served, loading = halves()
    with on_cpus(served):
        daemon, _ = bench.daemon("overload")
    with daemon, on_cpus(loading):
        # What the machine can do changes within seconds: after a minute that shows what lasts,
        # many short rounds, with the peak taken right before and right after each.
        def peak():
            return bench.measure_capacity(daemon)

        peaks, loads, longest = [peak()], [], 0
        for round_ in range(bench.rounds(21)):
            before = scrape(daemon)
            loads.append(bench.load(daemon, bench.seconds(8 if round_ else 60),
                                    rate=3 * peaks[-1], timeout="100ms"))
            waits = _bound(before, scrape(daemon), bench.subject.name, "queue", 0.99)
            longest = max(longest, waits)
            peaks.append(peak())
        ratios = [found["goodput_per_second"] / statistics.mean(peaks[i:i + 2])
                  for i, found in enumerate(loads)]
        middle = statistics.median_low(ratios)  # One of them, not a mean of two.
        found = loads[ratios.index(middle)]
        yield "goodput at three times the load, at least 90 % of the peak", \
            (f"{middle:.1%} ({min(ratios):.1%} .. {max(ratios):.1%}): "
             f"{found['goodput_per_second']:.0f} calls/s in time, peak "
             f"{min(peaks):.0f} .. {max(peaks):.0f}, {len(loads)} rounds, "
             f"{_figures(found)}"), middle >= 0.9
        codes = sum((Counter(found["codes"]) for found in loads), Counter())
        reasons = sum((Counter(found["reasons"]) for found in loads), Counter())
        silent = {reason: count for reason, count in reasons.items()
                  if reason.startswith("RESOURCE_EXHAUSTED") and
                  not reason.startswith(tuple(f"RESOURCE_EXHAUSTED: {r}:" for r in REASONS))}
        other = set(codes) - {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
        yield "nobody is refused without a reason", \
            f"codes {dict(codes)}, without reason {sum(silent.values())}", \
            not silent and not other
        yield "accepted calls wait no longer than their deadline of 100 ms", \
            f"99 % at most {longest * 1e3:.0f} ms", longest <= 0.1
        again = bench.load(daemon, bench.seconds(10), rate=0.3 * peaks[-1])
        yield "no call fails once the overload is over", *_none_failed(again)


def _bound(before, after, model, stage, share):
    """The bucket of ulfd_stage_duration_seconds that holds that share of what was observed between."""
    name = "ulfd_stage_duration_seconds_bucket"

    def counts(metrics):
        return {float(labels["le"].replace("+Inf", "inf")): value
                for found, labels, value in metrics.samples
                if found == name and labels["model"] == model and labels["stage"] == stage}

    old, new = counts(before), counts(after)
    total = new[float("inf")] - old.get(float("inf"), 0)
    return next(le for le in sorted(new) if new[le] - old.get(le, 0) >= share * total)


def memory(bench):
    """200 versions of the model that is called, one every 0.2 s."""
    count = 200 if bench.scale == 1 else 50
    period, settle = 0.2, 3
    daemon, models = bench.daemon("memory")
    with daemon:
        running = bench.start_load((daemon.target,), 2 * settle + (period + 0.05) * count,
                                   rate=bench.rate_of(daemon, 0.3))
        with Reloader(bench.subject, models, period, 2, 1):
            wait_version(daemon, bench.subject, 2)
            time.sleep(settle)
        first = daemon.resident_bytes()
        with Reloader(bench.subject, models, period, 3, count - 1) as it:
            while it.done < count - 1:
                time.sleep(0.05)
        wait_version(daemon, bench.subject, count + 1)
        found = finish_load(running)
        time.sleep(settle)
        last = daemon.resident_bytes()
        yield f"memory after {count} reloads, at most 1.05 x that after the first", \
            f"{last / first:.3f} x ({first / 2**20:.1f} -> {last / 2**20:.1f} MiB)", \
            last <= 1.05 * first
        yield f"no call fails in {count} reloads", *_none_failed(found)


def _beside(bench, daemon, trouble, seconds):
    """The load beside some trouble: its p99 by that without, pairs in turn, and what failed."""
    ratios, lost = [], 0
    for pair in range(3):
        rate = bench.rate_of(daemon, 0.3)

        def troubled():
            nonlocal lost
            running = bench.start_load((daemon.target,), seconds, rate=rate, seed=pair + 1)
            trouble(time.monotonic() + seconds + bench.warmup(seconds))
            found = finish_load(running)
            lost += failed(found)
            return p99(found)

        def alone():
            return p99(bench.load(daemon, seconds, rate=rate, seed=pair + 1))

        without, with_it = in_turn(pair, alone, troubled)
        ratios.append(with_it / without)
    return (f"{lost} failed; p99 {statistics.median(ratios):.2f} x that without "
            f"({min(ratios):.2f} .. {max(ratios):.2f})"), lost == 0


def dying(bench):
    """Clients killed with calls of 2000 ads under way: one a second, each calling eight at a time."""
    daemon, _ = bench.daemon("dying")
    with daemon:
        clients = DyingClients(daemon, bench.subject.request(2000))
        killed = 0

        def trouble(until):
            nonlocal killed
            while time.monotonic() < until - 1.5:
                with clients.start() as client:
                    time.sleep(1.0)
                    client.send_signal(signal.SIGKILL)
                killed += 1

        text, kept = _beside(bench, daemon, trouble, bench.seconds(20))
        time.sleep(1)
        left = int(scrape(daemon).sum("ulfd_inflight_requests"))
        yield "no call fails beside clients that die, and nothing of theirs is left", \
            f"{killed} killed, {left} of their calls left; {text}", kept and left == 0


def reader(bench):
    """A client that reads no reply: up to 100 calls of 200 ads on a connection with a closed window."""
    daemon, _ = bench.daemon("reader")
    with daemon:
        message = http2.grpc_message(bench.subject.request(200).SerializeToString())
        window = struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, 0)
        before = daemon.resident_bytes()
        most = before

        def trouble(until):
            nonlocal most
            with http2.Connection(daemon.grpc_port, settings=window) as connection:
                streams = 0
                while time.monotonic() < until:
                    # As many as the daemon lets wait for their reader.
                    if streams < 100 and connection.open_stream(
                            "/ulfd.v1.PredictionService/Predict", message):
                        streams += 1
                    connection.read(0.02)
                    most = max(most, daemon.resident_bytes())

        text, kept = _beside(bench, daemon, trouble, bench.seconds(20))
        grown = (most - before) / 2**20
        yield "no call fails beside a client that does not read, memory within 64 MiB", \
            f"memory {grown:+.1f} MiB; {text}", kept and grown <= 64


def mixed(bench):
    """10-ad calls beside 2000-ad ones, against 10-ad calls that use as much of the workers alone."""
    seconds = bench.seconds(20)
    use, few = 0.5, 0.1  # Of the workers: all calls, and the 10-ad calls beside large ones.
    daemon, _ = bench.daemon("mixed")
    with daemon:
        ratios, lost, small, large = [], 0, [], []
        for pair in range(bench.rounds(5)):
            small.append(bench.measure_capacity(daemon, 10))
            large.append(bench.measure_capacity(daemon, 2000))

            def alone():
                return bench.load(daemon, seconds, ads=10, rate=use * small[-1], seed=pair + 1)

            def beside():
                running = bench.start_load((daemon.target,), seconds, ads=2000,
                                           rate=(use - few) * large[-1], timeout="10s",
                                           seed=pair + 9)
                found = bench.load(daemon, seconds, ads=10, rate=few * small[-1], seed=pair + 1)
                return found, finish_load(running)

            lonely, (among, big) = in_turn(pair, alone, beside)
            lost += failed(lonely) + failed(among) + failed(big)
            ratios.append((p99(among) / p99(lonely), p99(among), p99(lonely)))
        ratios.sort()
        ratio, among, lonely = ratios[len(ratios) // 2]
        yield "p99 of 10-ad calls beside 2000-ad ones, at most 3 x their p99 alone at that use", \
            (f"{ratio:.2f} x ({ratios[0][0]:.2f} .. {ratios[-1][0]:.2f}): {among:.2f} against "
             f"{lonely:.2f} ms at {use:.0%} of {min(small):.0f} .. {max(small):.0f} or "
             f"{min(large):.1f} .. {max(large):.1f} calls/s; {lost} failed"), \
            ratio <= 3 and lost == 0


CHECKS = {"steady": steady, "reload": reload, "sigterm": sigterm, "overload": overload,
          "memory": memory, "dying": dying, "reader": reader, "mixed": mixed}
