#!/usr/bin/python3
"""row_formats.py ULF: tables of the demo's model with smaller rows, compared on made-up clicks.

The promise: rows of int8 move the AUC by at most 0.0005.
SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("no numpy here")
    sys.exit(77)

REQUESTS, ADS = 40, 200
FEATURES = {"ad": "item", "ad_category": "category", "history": "item", "history_category": "category", "user": "user"}


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def request(random, ids, steps):
    arrays = {"ad_stats": random.rand(ADS, 2).astype(np.float32)}
    for name, table in FEATURES.items():
        counts = np.ones(ADS, np.int32) if name.startswith("ad") else np.array([steps if "history" in name else 1], np.int32)
        arrays |= {f"{name}.ids": random.choice(ids[table], counts.sum()), f"{name}.segments": counts,
                   f"{name}.values": np.ones(counts.sum(), np.float32)}
    return arrays


def main(ulf):
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run(ulf, "make-demo", "repo")
        version = "repo/demo/1"
        ids = {table: [int(line.split(",")[0]) for line in open(f"{version}/{table}_table")] for table in set(FEATURES.values())}
        random = np.random.RandomState(7)
        os.mkdir("requests")
        for i in range(REQUESTS):
            arrays, path = request(random, ids, random.randint(3, 40)), f"requests/{i}.npz"
            np.savez(path, **arrays)
            run(ulf, "score", version, f"--inputs={path}", "--outputs=scores.npz")
            scores = np.load("scores.npz")["ctr"].ravel()
            np.savez(path, **arrays, clicks=(random.rand(ADS) < scores).astype(np.float32))
        for rows in ("fp16", "bf16", "int8"):
            shutil.copytree(version, rows)
            for table in ids:
                run(ulf, "table", "build", f"{rows}/{table}_table", f"{rows}/{table}_table", f"--rows={rows}")
            report = run(ulf, "compare", version, rows, "--requests=requests", "--labels=clicks", "--tolerance=0.02")
            print(report)
            auc, moves = re.search(r"(0\.\d+) +([-+]0\.\d+)\n", report).groups()
            assert float(auc) > 0.65, "clicks say nothing: the test is void"
            assert abs(float(moves)) <= 0.0005, rows


main(os.path.abspath(sys.argv[1]))
