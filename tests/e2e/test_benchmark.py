"""deploy/benchmark, briefly: do both servers give the same scores, are table and plot whole?  Never how fast.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import subprocess
import unittest
import xml.etree.ElementTree

from harness import env
from versus import models, report
from versus.contest import ADS
from versus.servers import TOLERANCE, Contest, onnxruntime

SVG = "{http://www.w3.org/2000/svg}"


@unittest.skipIf(env.SANITIZED, "figures of instrumented code mean nothing")
class BenchmarkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library, reason = onnxruntime()
        if cls.library is None:
            raise unittest.SkipTest(reason)

    def test_other_models_score_alike(self):
        for name in sorted(set(models.MODELS) - {"mlp", "dlrmv2"}):
            with self.subTest(name), Contest(name, self.library) as contest:
                self.assertLess(max(map(contest.compare, ADS)), TOLERANCE)

    def test_table_and_plot(self):
        out = env.scratch("benchmark")
        done = subprocess.run(
            [os.path.join(env.ROOT, "deploy", "benchmark"), "--quick", "--models=mlp", f"--out={out}",
             f"--bin={os.path.dirname(env.program('ulfd'))}"],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(out, "benchmark.json"), encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual([(cell["model"], cell["ads"]) for cell in found["cells"]],
                         [("mlp", ads) for ads in ADS])
        for cell in found["cells"]:
            self.assertLess(cell["difference"], TOLERANCE)
            for server in report.SERVERS:
                for figures in cell["servers"][server].values():
                    self.assertTrue(figures and all(figure > 0 for figure in figures), cell)
        self.assertEqual([row["server"] for row in found["reload"]], list(report.SERVERS))
        for row in found["reload"]:
            self.assertGreater(min(row["calls"], row["exchanges"]), 0, row)
        self.assertEqual(found["reload"][0]["lost"], 0)
        with open(os.path.join(out, "table.md"), encoding="utf-8") as file:
            rows = [line.strip("| \n").split(" | ") for line in file if line.startswith("| ")]
        self.assertEqual([len(row) for row in rows], [10] * (1 + len(ADS)) + [7] * 3)
        self.assertTrue(all(cell for row in rows for cell in row))
        bars = [bar.findtext(SVG + "title") for bar in
                xml.etree.ElementTree.parse(os.path.join(out, "plot.svg")).iter(SVG + "rect")]
        self.assertEqual(len([title for title in bars if title]),
                         len(report.PANELS) * len(report.SERVERS) * len(ADS))

    def test_unknown_model(self):
        done = subprocess.run([os.path.join(env.ROOT, "deploy", "benchmark"), "--models=dim",
                               f"--bin={os.path.dirname(env.program('ulfd'))}"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no model dim; there are mlp", done.stderr)


if __name__ == "__main__":
    unittest.main()
