"""deploy/slo-check: runs the checks, prints promise, figure and verdict.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import env  # noqa: E402


def main():
    parser = argparse.ArgumentParser(prog="deploy/slo-check")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    parser.add_argument("--bin", default="build/release/bin")
    args = parser.parse_args()
    env.set_bin_dir(args.bin)
    env.prepare()
    # They need the generated stubs.
    from slo.bench import Bench
    from slo.checks import CHECKS
    wanted = args.only.split(",") if args.only else list(CHECKS)
    unknown = sorted(set(wanted) - set(CHECKS))
    if unknown:
        parser.error(f"--only: no check {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    bench = Bench(0.2 if args.quick else 1.0)
    print(f"models {bench.subject.name} (called) and {bench.other.name}, "
          f"{len(os.sched_getaffinity(0))} CPUs for daemon and load together")
    rows, broken = [], 0
    for name in wanted:
        begin = time.monotonic()
        for promise, figure, kept in CHECKS[name](bench):
            verdict = {True: "kept", False: "BROKEN", None: "-"}[kept]
            broken += kept is False
            rows.append({"check": name, "promise": promise, "figure": figure, "kept": kept})
            print(f"{name:9} {verdict:7} {promise}: {figure}", flush=True)
        print(f"{name:9} {time.monotonic() - begin:.0f} s", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)
    print(f"slo-check: {broken} of {sum(row['kept'] is not None for row in rows)} promises broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
