"""deploy/benchmark: measures, prints tables, writes them with a plot.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import env  # noqa: E402


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.partition(": ")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else "unknown CPU"


def main():
    # They need the generated stubs.
    from versus import contest, models, report
    from versus.servers import onnxruntime
    parser = argparse.ArgumentParser(prog="deploy/benchmark")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", default=",".join(models.MODELS))
    parser.add_argument("--out", default="build/benchmark")
    parser.add_argument("--bin", default="build/release/bin")
    args = parser.parse_args()
    unknown = sorted(set(args.models.split(",")) - set(models.MODELS))
    if unknown:
        parser.error(f"--models: no model {', '.join(unknown)}; there are {', '.join(models.MODELS)}")
    env.set_bin_dir(args.bin)
    library, reason = onnxruntime()
    if library is None:
        print(f"benchmark: {reason}", file=sys.stderr)
        return 77
    seconds, turns = (0.3, 1) if args.quick else (1.5, 3)
    cells = []
    print(f"{cpu_model()}; each server on one CPU, the load on another; {turns} turns of {seconds} s")
    for name in args.models.split(","):
        with contest.Contest(name, library) as both:
            for ads in contest.ADS:
                cells.append(contest.measure(both, ads, seconds, turns))
                print("\n".join(report.table(cells[-1:]).splitlines()[0 if len(cells) == 1 else 2:]),
                      flush=True)
    reloads = contest.reload(library, max(seconds, 2), turns)
    print("\n" + report.reload_table(reloads))
    os.makedirs(args.out, exist_ok=True)
    for name, content in (("table.md", f"{report.table(cells)}\n\n{report.reload_table(reloads)}\n"),
                          ("plot.svg", report.plot(cells)),
                          ("benchmark.json", json.dumps({"cells": cells, "reload": reloads}, indent=1))):
        with open(os.path.join(args.out, name), "w", encoding="utf-8") as file:
            file.write(content)
    print(f"\nbenchmark: table.md, plot.svg and benchmark.json are in {args.out}")
    return 0


if __name__ == "__main__":
    env.prepare(os.path.join(env.WORK, "benchmark"))
    sys.exit(main())
