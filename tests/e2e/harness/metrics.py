"""Reads the Prometheus text format.
SPDX-License-Identifier: Apache-2.0
"""
import re

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Metrics:
    def __init__(self, text):
        self.samples = []
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, labels, value = _SAMPLE.match(line).groups()
                self.samples.append((name, dict(_LABEL.findall(labels or "")), float(value)))

    def names(self):
        return {name for name, _, _ in self.samples}

    def sum(self, metric, /, **labels):
        """Sum of the samples of that name with these labels; 0 if there is none."""
        return sum(value for name, found, value in self.samples
                   if name == metric and labels.items() <= found.items())

    def labels(self, metric):
        return [found for name, found, _ in self.samples if name == metric]


def scrape(daemon):
    status, text = daemon.http("/metrics")
    if status != 200:
        raise AssertionError(f"/metrics: {status} {text}")
    return Metrics(text)
