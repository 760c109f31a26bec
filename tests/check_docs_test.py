"""check_docs.py finds what it is there for, in a small tree with one fault of each kind.

SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import sys
import tempfile
import unittest

CHECKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_docs.py")
GOOD = {
    "README.md": "# Top\n[a](docs/a.md#two-words) `server/main.cc` `server/` `main.cc` `server/*.cc`\n",
    "docs/a.md": "# A\n## Two `words`\n```\ncat server/main.cc\n```\n",
    "docs/operations.md": "# O\n`ulfd_calls_total`\n",
    "docs/decisions/README.md": "# D\n[0001](0001-x.md)\n",
    "docs/decisions/0001-x.md": "# 0001: x\n",
    "server/main.cc": '// decision 0001\nAdd("ulfd_calls_total");\n',
    "server/README.md": "# S\n| file | what |\n|---|---|\n| `main` | it |\n",
}


class CheckDocsTest(unittest.TestCase):
    def check(self, **changes):
        """The errors of GOOD with texts appended; in a name without / _ is for / and __ for a dot."""
        with tempfile.TemporaryDirectory() as root:
            files = dict(GOOD)
            for name, text in changes.items():
                if "/" not in name:
                    name = name.replace("__", ".").replace("_", "/")
                files[name] = files.get(name, "") + text
            for name, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(text)
            done = subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True,
                                  check=False)
        self.assertEqual(done.returncode, 1 if done.stderr else 0)
        return done.stderr.splitlines()

    def test_good(self):
        self.assertEqual(self.check(), [])

    def test_links(self):
        self.assertEqual(self.check(docs_a__md="[x](b.md)\n[x](../README.md#no)\n[x](#two-words)\n"),
                         ["docs/a.md:6: link to b.md: no such file",
                          "docs/a.md:7: link to ../README.md#no: no such heading"])

    def test_paths(self):
        self.assertEqual(self.check(docs_a__md="`server/old.cc:3`\n`gone.h`\n`NAME/x`\n`server/NAME.h`\n"),
                         ["docs/a.md:6: `server/old.cc`: no such path",
                          "docs/a.md:7: `gone.h`: no such file",
                          "docs/a.md:9: `server/NAME.h`: no such path"])

    def test_paths_in_code(self):
        self.assertEqual(self.check(docs_a__md="```\nserver/old --flag=server/other\n```\n"),
                         ["docs/a.md:7: `server/old`: no such path"])

    def test_files_of_a_folder(self):
        self.assertEqual(self.check(server_README__md="| `main`, `old` | it |\n"),
                         ["server/README.md:5: `old`: not in this folder"])

    def test_folders_of_a_folder(self):
        table = "\n| folder | what |\n|---|---|\n| `old/`, `docs/` | it |\n"
        self.assertEqual(self.check(README__md=table),
                         ["README.md:6: `old`: not in this folder",
                          "README.md:6: `old/`: no such folder",
                          "README.md: folder server/ is missing"])

    def test_functions_of_hops(self):
        table = "\n| # | file, function |\n|---|---|\n| 1 | `server/main.cc`, `Add`, `Gone`; `Old::Add`, `No::None` |\n"
        self.assertEqual(self.check(docs_a__md=table),
                         ["docs/a.md:9: `Gone`: not there", "docs/a.md:9: `No::None`: not there"])

    def test_members_of_classes(self):
        self.assertEqual(self.check(docs_a__md="`Queue::mu_` `Queue::gone_()` `absl::Gone`\n",
                                    server_queue__h="class Queue { int mu_; };\n"),
                         ["docs/a.md:6: `Queue::gone_`: not there"])

    def test_settings(self):
        proto = ("message ServerConfig {\n  Limits limits = 1;\n}\n"
                 "message Limits {\n  optional int32 max_ads = 1 [(setting) = {default: \"1\"}];\n}\n")
        self.assertEqual(
            self.check(docs_a__md="`limits.max_ads` `limits.max_rows` `server.limits`\n",
                       **{"proto/server_config.proto": proto}),
            ["docs/a.md:6: `limits.max_rows`: no such setting"])

    def test_width(self):
        self.assertEqual(self.check(docs_a__md="x " * 71 + "\n| " + "x" * 150 + " |\n"),
                         ["docs/a.md:6: 142 columns, want at most 140"])

    def test_metrics(self):
        self.assertEqual(
            self.check(server_b__cc='"ulfd_new"', docs_operations__md="`ulfd_old`\n"),
            ["docs/operations.md: metric ulfd_new is missing",
             "docs/operations.md: metric ulfd_old is none of the daemon's"])

    def test_alerts(self):
        self.assertEqual(
            self.check(deploy_prometheus_a__yml="- alert: UlfdNew\n  expr: ulfd_gone > 0\n",
                       docs_operations__md="| `UlfdOld` | x |\n"),
            ["deploy/prometheus/a.yml: metric ulfd_gone is none of the daemon's",
             "docs/operations.md: alert UlfdNew is missing",
             "docs/operations.md: alert UlfdOld is none of the rules"])

    def test_decisions(self):
        self.assertEqual(
            self.check(server_main__cc="// Decision 0007\n", **{"docs_decisions_0002-y__md": "# y\n"}),
            ["docs/decisions/README.md: 0002-y.md is missing",
             'docs/decisions/0002-y.md: want a first line "# 0002: ..."',
             "server/main.cc: there is no decision 0007"])


if __name__ == "__main__":
    unittest.main()
