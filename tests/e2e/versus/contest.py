"""What is measured, in which turns.
SPDX-License-Identifier: Apache-2.0
"""
import threading

from harness.loading import finish_load
from slo.bench import failed, in_turn, p99
from versus.servers import Contest

ADS = (1, 10, 200)
RATE = 0.2  # Of what the slower server can do with a CPU of its own: then neither queues for long.


def measure(contest, ads, seconds, turns):
    """One cell: scores first, then both servers in turns."""
    cell = {"model": contest.name, "ads": ads, "difference": contest.compare(ads),
            "peer_share": contest.peer_share(ads, seconds),
            "servers": {server.name: {"calls": [], "p99": []} for server in contest.servers}}

    def per_core(server, turn):
        cell["servers"][server.name]["calls"].append(contest.per_core(server, ads, seconds, turn))

    def latency(server, turn):
        found = contest.latency(server, ads, seconds, turn, cell["rate"])
        if failed(found):
            raise AssertionError(f"{server.name}, {contest.name}, {ads} ads: {found['codes']}")
        cell["servers"][server.name]["p99"].append(p99(found))

    for turn in range(turns):
        in_turn(turn, *(lambda s=server: per_core(s, turn) for server in contest.servers))
    cell["rate"] = max(2.0, RATE * min(min(found["calls"]) for found in cell["servers"].values()))
    for turn in range(turns):
        in_turn(turn, *(lambda s=server: latency(s, turn) for server in contest.servers))
    return cell


class Exchanges:
    """One exchange after another, `pause` seconds between them, while the body runs."""

    def __init__(self, server, pause):
        self.server, self.pause, self.done, self.error = server, pause, 0, None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self._stop.wait(self.pause):
                self.server.exchange()
                self.done += 1
        except AssertionError as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self._stop.set()
        self._thread.join()
        if self.error and kind is None:
            raise self.error


def reload(library, seconds, turns, model="easyrec_din", ads=50):
    """Both servers at one rate, with exchanges and without."""
    rows = []
    with Contest(model, library) as contest:
        slower = min(contest.per_core(server, ads, seconds, 0) for server in contest.servers)
        rate = max(2.0, RATE * slower)
        for server in contest.servers:
            row = {"server": server.name, "exchanges": 0, "calls": 0, "lost": 0, "quiet": [], "busy": []}

            def load_once(turn, server=server):
                return finish_load(contest.start_load(server, ads, seconds, turn, rate))

            def quiet(turn, row=row):
                row["quiet"].append(p99(load_once(turn)))

            def busy(turn, row=row, server=server):
                with Exchanges(server, 0.5) as exchanges:
                    found = load_once(turn)
                row["busy"].append(p99(found))
                row["exchanges"] += exchanges.done
                row["calls"] += found["calls"]["due"]
                row["lost"] += failed(found)

            for turn in range(turns):
                in_turn(turn, lambda t=turn: quiet(t), lambda t=turn: busy(t))
            rows.append(row)
    return rows
