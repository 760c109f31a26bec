#!/usr/bin/python3
"""Random ONNX graphs, converted: every one is refused by name or gives numpy's values.

    random_onnx.py ULF_CONVERT ULF [--seed N] [--count N] [--keep DIR]

The graphs are evaluated here while they are made, in numpy, apart from what the converter proves
itself with.  Patterns that exporters write come first and must convert; then random ones, of which
only a share may be refused.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import patterns_composites
    import patterns_example
    import patterns_heads
    import patterns_idioms
    import patterns_ids
    import patterns_layers
    import patterns_masks
    import patterns_quantised
    import patterns_rows
    import patterns_user
    from random_graph import Graph
    from random_steps import random_graph
except ImportError as error:
    print(f"random_onnx: {error}")
    sys.exit(77)

TOLERANCE = 1e-5
FAMILIES = (patterns_idioms, patterns_ids, patterns_rows, patterns_user, patterns_heads,
            patterns_layers, patterns_masks, patterns_composites, patterns_quantised, patterns_example)
# Of the random graphs; 15 % are seen.
MAX_REFUSED = 0.2


# ------------------------------------------------------------------------------------------ running

class Runner:
    def __init__(self, convert, ulf, work):
        self.convert, self.ulf, self.work = convert, ulf, work

    def run(self, g):
        """("ok" | "refused" | "wrong", text)"""
        model, out = os.path.join(self.work, "m.onnx"), os.path.join(self.work, "out")
        shutil.rmtree(out, ignore_errors=True)
        g.save(model)
        options = [f"--{side}_inputs={','.join(names)}"
                   for side, names in (("user", g.user_inputs), ("ad", g.ad_inputs)) if names]
        done = subprocess.run([self.convert, "onnx", model, out + "/1", *options],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            named = done.returncode == 1 and "m.onnx" in done.stderr
            return "refused" if named else "wrong", done.stderr
        np.savez(os.path.join(self.work, "in.npz"), **self.bind(g, done.stdout))
        scored = subprocess.run(
            [self.ulf, "score", out + "/1", f"--inputs={self.work}/in.npz",
             f"--outputs={self.work}/out.npz"], capture_output=True, text=True, check=False)
        if scored.returncode != 0:
            limited = "want a whole number of a magnitude below" in scored.stderr
            return "refused" if limited else "wrong", scored.stderr
        with np.load(os.path.join(self.work, "out.npz")) as found:
            for name, value in g.outputs:
                wanted, got = value.array.astype(np.float64), found[name].astype(np.float64)
                wanted = wanted[0] if g.batch else wanted
                if got.shape not in (wanted.shape, (1, *wanted.shape[1:])):
                    return "wrong", f"{name}: shape {got.shape}, want {wanted.shape}"
                error = np.abs(got - wanted) / np.maximum(1, np.abs(wanted))
                if not error.max() <= TOLERANCE:
                    return "wrong", f"{name}: differs by {error.max()}\n{got}\n{wanted}"
        return "ok", done.stdout

    @staticmethod
    def bind(g, report):
        """The request's arrays, by what the report says of each input."""
        arrays = {}
        sides = re.findall(r"(?ms)^inputs of the (user|ads)[^\n]*\n(.*?)\n\n", report)
        for side, line in [(side, line) for side, text in sides for line in text.splitlines()]:
            name = re.match(r"\s*([^\s:]+)", line).group(1)
            of = re.search(r', columns? ([\d, to]+) of "(.*)"$', line)
            whole = g.arrays[of.group(2) if of else name.removesuffix("_values")]
            whole = whole[:1] if side == "user" else whole
            flat = whole.reshape(len(whole), -1)
            if of and " to " in of.group(1):
                first, last = map(int, of.group(1).split(" to "))
                flat = flat[:, first:last + 1]
            elif of:
                flat = flat[:, [int(i) for i in of.group(1).split(", ")]]
            if "looked up in" in line:
                arrays[name + ".ids"] = np.trunc(flat).astype(np.int64).ravel()
                arrays[name + ".values"] = np.ones(flat.size, np.float32)
                arrays[name + ".segments"] = np.full(len(flat), flat.shape[1], np.int32)
            else:
                kind = np.int64 if " int64" in line else np.float32
                arrays[name] = (flat if of else whole).astype(kind)
        return arrays


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("convert")
    parser.add_argument("ulf")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--keep", help="folder for models that are converted wrong")
    args = parser.parse_args()
    counts, reasons, failures = collections.Counter(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as work:
        runner = Runner(args.convert, args.ulf, work)
        for pattern in [pattern for family in FAMILIES for pattern in family.PATTERNS]:
            for seed in range(3):
                g = Graph(seed)
                pattern(g)
                verdict, text = runner.run(g)
                if verdict != "ok":
                    failures += 1
                    print(f"{pattern.__name__} {seed}: {verdict}: {text}")
        for pattern, reason in [refused for family in FAMILIES for refused in family.REFUSED]:
            g = Graph(1)
            pattern(g)
            verdict, text = runner.run(g)
            if verdict != "refused" or reason not in text:
                failures += 1
                print(f"{pattern.__name__}: {verdict}: {text}")
        for seed in range(args.seed, args.seed + args.count):
            verdict, text = runner.run(random_graph(seed))
            counts[verdict] += 1
            if verdict == "wrong":
                failures += 1
                print(f"seed {seed}: {text}")
                if args.keep:
                    shutil.copy(os.path.join(work, "m.onnx"), f"{args.keep}/{seed}.onnx")
            if verdict == "refused":
                reasons[re.sub(r'"[^"]*"|\[[^\]]*\]', "*", text.strip().split("\n")[-1])[:120]] += 1
    for reason, count in reasons.most_common(12):
        print(f"refused {count}: {reason}")
    print(f"random graphs: {dict(counts)}")
    if counts["refused"] > MAX_REFUSED * args.count:
        print(f"more than {MAX_REFUSED:.0%} are refused")
        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
