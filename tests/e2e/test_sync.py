"""ulf sync: from folders, a web server that misbehaves, and a real object store into a repository.
SPDX-License-Identifier: Apache-2.0
"""
import gzip
import hashlib
import hmac
import html
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
import unittest
import urllib.parse

from harness import env, modelfiles
from harness.clients import Client, predict_request
from harness.daemon import Daemon, wait_for
from harness.fixtures import add_stamp
from harness.loading import command
from harness.small import stamp_files, stamp_inputs
from harness.web import Web
from test_deltas import Pusher, write_model

BIG = 3_000_000
MAX_MEMORY = 200 << 20  # What a hostile server may make it hold, the program itself included.


def sync(*arguments, environment=None):
    """(exit code, output, errors); fails above MAX_MEMORY."""
    process = subprocess.Popen(command("sync", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, **(environment or {})})
    out, err = process.communicate(timeout=120 * env.SLOWNESS)
    return process.returncode, out, err


def tree(folder):
    """{path: SHA-256} of what can be seen, what begins with a dot left out."""
    found = {}
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                found[os.path.relpath(os.path.join(path, name), folder)] = \
                    hashlib.sha256(file.read()).hexdigest()
    return found


def add_big(store, version, success=True):
    """A version with a large file and a folder beside the model's."""
    folder = os.path.join(store, "stamp", str(version))
    os.makedirs(os.path.join(folder, "more"))
    files = {**stamp_files(version), "big.bin": os.urandom(BIG), "more/a b&c.txt": "x"}
    modelfiles.write_version(folder, files, success=success)


class SyncTest(unittest.TestCase):
    def setUp(self):
        self.work = env.scratch("sync")
        self.store, self.to = os.path.join(self.work, "store"), os.path.join(self.work, "models")
        os.makedirs(self.store)

    def good(self, *arguments, **more):
        code, out, err = sync(*arguments, **more)
        self.assertEqual(code, 0, out + err)
        self.assertEqual(err, "")
        return out

    def refused(self, text, *arguments):
        """Ends with 1, says so, and nothing has appeared."""
        code, out, err = sync(*arguments)
        self.assertEqual(code, 1, out + err)
        self.assertRegex(err, text)
        self.assertNotIn("\x1b", err)
        return err


class DirectoryTest(SyncTest):
    def test_copies_what_is_complete(self):
        add_big(self.store, 1)
        add_big(self.store, 2, success=False)
        os.makedirs(os.path.join(self.store, "stamp", "latest"))
        out = self.good(self.store, self.to)
        self.assertIn("stamp/1: ", out)
        wanted = {name: digest for name, digest in tree(self.store).items() if name.startswith("stamp/1/")}
        self.assertEqual(tree(self.to), wanted)
        self.assertEqual(self.good(self.store, self.to), "")
        modelfiles.write(os.path.join(self.store, "stamp", "2", "_SUCCESS"), "")
        self.assertIn("stamp/2: ", self.good(self.store, self.to))
        self.assertEqual(tree(self.to), tree(self.store))
        self.assertEqual(os.listdir(os.path.join(self.to, ".sync")), [".lock"])

    def test_copies_versions_that_the_daemon_converts(self):
        modelfiles.write_version(os.path.join(self.store, "rank", "1"), {"model.onnx": b"any"})
        self.good(self.store, self.to)
        self.assertEqual(tree(self.to), tree(self.store))
        modelfiles.write_version(os.path.join(self.store, "rank", "2"), {"schema.csv": "any"})
        self.refused("rank/2: .*graph: none of", self.store, self.to)

    def test_a_source_without_models_is_another_path(self):
        add_stamp(self.store, 1)
        self.refused("No such file", self.store + "/nowhere", self.to)
        for source in (self.store + "/stamp", self.store + "/stamp/1"):
            self.refused("nothing to copy: the source has no MODEL/VERSION/", source, self.to)
        self.good(self.store, self.to)

    def test_keep(self):
        for version in (1, 2, 3, 10):
            add_stamp(self.store, version, version=version)
        add_stamp(self.to, 1)
        shutil.rmtree(os.path.join(self.to, "stamp", "1"))
        self.good(self.store, self.to, "--keep=2")
        self.assertEqual(sorted(os.listdir(self.to + "/stamp")), ["10", "3"])
        add_stamp(self.store, 11, version=11)
        self.assertIn("stamp/3: deleted", self.good(self.store, self.to, "--keep=2"))
        self.assertEqual(sorted(os.listdir(self.to + "/stamp")), ["10", "11"])

    def test_sums_and_table_files(self):
        add_stamp(self.store, 1)
        manifest = os.path.join(self.store, "stamp", "1", "model.textproto")
        with open(os.path.join(self.store, "stamp", "1", "graph_ulf.txt"), "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        modelfiles.write(manifest, f'sums {{ path: "graph_ulf.txt" sha256: "{digest[::-1]}" }}')
        self.refused(f"stamp/1: .*graph_ulf.txt.*sha256 is {digest}", self.store, self.to)
        self.assertEqual(tree(self.to), {})
        modelfiles.write(manifest, f'sums {{ path: "graph_ulf.txt" sha256: "{digest}" }}')
        self.good(self.store, self.to)
        self.assertEqual(tree(self.to), tree(self.store))
        version = os.path.join(self.store, "mapped", "1")
        write_model(version, self.work, mapped=True)
        with open(os.path.join(version, "items"), "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 1]))
        self.refused("mapped/1: .*items", self.store, self.to)
        self.assertFalse(os.path.exists(os.path.join(self.to, "mapped", "1")))

    def test_deltas(self):
        version = os.path.join(self.store, "stamp", "1")
        write_model(version, self.work, mapped=True)
        self.good(self.store, self.to)
        pusher = Pusher(version, self.work, rows=100)
        for epoch in (1, 2):
            pusher.push(epoch, 1000)
        os.remove(os.path.join(version, "deltas", "2", "_SUCCESS"))
        self.assertIn("stamp/1/deltas/1: ", self.good(self.store, self.to))
        self.assertEqual(os.listdir(os.path.join(self.to, "stamp", "1", "deltas")), ["1"])
        modelfiles.write(os.path.join(version, "deltas", "2", "_SUCCESS"), "")
        self.good(self.store, self.to)
        self.assertEqual(tree(self.to), tree(self.store))

    def test_links_are_not_followed(self):
        add_stamp(self.store, 1)
        os.symlink("/etc/passwd", os.path.join(self.store, "stamp", "1", "secret"))
        self.refused('stamp/1: "secret" is neither file nor directory', self.store, self.to)
        self.assertEqual(tree(self.to), {})

    def test_what_it_cannot_look_at(self):
        add_stamp(self.store, 1)
        os.chmod(self.store, 0o400)  # Names can be listed.
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        done = subprocess.run([*(prefix if os.geteuid() == 0 else []),
                               *command("sync", self.store, self.to)],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, "store//?stamp: Permission denied")

    def test_one_bad_version_does_not_stop_the_others(self):
        add_stamp(self.store, 1)
        modelfiles.write_version(os.path.join(self.store, "empty", "1"), {})
        err = self.refused("empty/1: ", self.store, self.to)
        self.assertIn("graph", err)
        self.assertEqual(set(tree(self.to)), {n for n in tree(self.store) if n.startswith("stamp/")})

    def test_wrong_use(self):
        for arguments, text in (((self.store,), "usage"), (("ftp://x/", self.to), "ftp"),
                                (("http://u:p@host/", self.to), "token_file"),
                                (("s3://", self.to), "bucket"), (("http:///x", self.to), "no host"),
                                (("s3://b", self.to, "--endpoint=host"), "endpoint")):
            code, _, err = sync(*arguments)
            self.assertEqual(code, 2, err)
            self.assertIn(text, err)
        self.refused("nowhere", os.path.join(self.work, "nowhere"), self.to)


class WebTest(SyncTest):
    def setUp(self):
        super().setUp()
        add_big(self.store, 1)
        self.big = "/stamp/1/big.bin"

    def test_copies(self):
        with Web(self.store) as web:
            self.good(web.url, self.to)
            self.assertEqual(tree(self.to), tree(self.store))
            asked = len([path for command_, path, _ in web.asked if path == self.big])
            self.assertEqual(asked, 2)  # HEAD and GET.
            self.assertEqual(self.good(web.url + "/", self.to), "")

    def cut(self, times, at):
        """Answers end there, so many times."""
        left = [times]

        def misdeed(handler):
            if handler.command != "GET" or left[0] == 0:
                return False
            left[0] -= 1
            write = handler.wfile.write
            handler.wfile.write = lambda data: write(data[:at])
            handler.close_connection = True
            return False
        return misdeed

    def test_goes_on_where_it_was_cut(self):
        for ranges in (True, False):
            with self.subTest(ranges=ranges), Web(self.store, ranges) as web:
                to = f"{self.to}{ranges}"
                web.misdeeds[self.big] = self.cut(2, 1_000_000)
                self.good(web.url, to)
                self.assertEqual(tree(to), tree(self.store))
                begins = [part for what, path, part in web.asked if (what, path) == ("GET", self.big)]
                self.assertEqual(begins, [None, "bytes=1000000-", "bytes=2000000-"] if ranges else
                                 [None, "bytes=1000000-", "bytes=1000000-"])

    def test_goes_on_after_kill(self):
        with Web(self.store) as web:
            def hang(handler):
                if handler.command != "GET":
                    return False
                handler.send_response(200)
                handler.send_header("ETag", self.tag())
                handler.send_header("Content-Length", str(BIG))
                handler.end_headers()
                handler.wfile.write(self.content()[:1_500_000])
                handler.wfile.flush()
                time.sleep(600)
                return True
            web.misdeeds[self.big] = hang
            for number in (signal.SIGKILL, signal.SIGTERM):
                web.asked.clear()
                process = subprocess.Popen(command("sync", web.url, self.to), stderr=subprocess.DEVNULL)
                wait_for(lambda: self.staged() >= 1_500_000 and
                         [path for what, path, _ in web.asked if (what, path) == ("GET", self.big)],
                         "half is there", 30)
                # Another one does not write to the same place.
                self.refused("another ulf sync writes", self.store, self.to)
                begin = time.monotonic()
                process.send_signal(number)
                process.wait(30)
                self.assertLess(time.monotonic() - begin, 10 * env.SLOWNESS)
                self.assertEqual(tree(self.to), {})
            del web.misdeeds[self.big]
            web.asked.clear()
            self.good(web.url, self.to)
            self.assertIn(("GET", self.big, "bytes=1500000-"), web.asked)
        self.assertEqual(tree(self.to), tree(self.store))

    def tag(self):
        return f'"{os.stat(self.store + self.big).st_mtime_ns:x}"'

    def content(self):
        with open(self.store + self.big, "rb") as file:
            return file.read()

    def staged(self):
        sizes = [os.path.getsize(os.path.join(path, name))
                 for path, _, names in os.walk(os.path.join(self.to, ".sync")) for name in names
                 if name == "big.bin"]
        return max(sizes, default=0)

    def test_passing_trouble_is_tried_again(self):
        def busy(method):
            left = [2]

            def misdeed(handler):
                if handler.command != method:
                    return False
                left[0] -= 1
                return left[0] >= 0 and handler.reply(503, b"busy") is None
            return misdeed
        with Web(self.store) as web:
            for path, method in (("/stamp/1/weights.pb", "GET"), ("/stamp/1/weights.pb", "HEAD"),
                                 ("/", "GET"), ("/stamp/", "GET"), ("/stamp/1/", "GET")):
                with self.subTest(path=path, method=method):
                    web.misdeeds = {path: busy(method)}
                    self.good(web.url, self.to)
                    self.assertEqual(tree(self.to), tree(self.store))
                    shutil.rmtree(self.to)

    def test_compressed_on_the_way(self):
        def compressed(handler):
            return handler.reply(200, gzip.compress(self.content()), Content_Encoding="gzip") is None
        self.misbehave(self.big, compressed, "big.bin: comes with Content-Encoding: gzip")

    def misbehave(self, path, misdeed, text, tries=2):
        """The server does that once: refused, nothing appears; then all is well."""
        with Web(self.store) as web:
            web.misdeeds[path] = misdeed
            err = self.refused(text, web.url, self.to, f"--tries={tries}")
            self.assertEqual(tree(self.to), {})
            web.misdeeds.clear()
            self.good(web.url, self.to)
        self.assertEqual(tree(self.to), tree(self.store))
        shutil.rmtree(self.to)
        return err

    def test_lying_lengths(self):
        def more(handler):
            return handler.command == "HEAD" and handler.reply(
                200, ETag=self.tag(), Content_Length=BIG - 10) is None
        self.misbehave(self.big, more, "big.bin: has more than the 2999990 bytes")

        def fewer(handler):
            return handler.command == "HEAD" and handler.reply(
                200, ETag=self.tag(), Content_Length=BIG + 10) is None
        self.misbehave(self.big, fewer, 'stamp/1: .*(ended after 3000000 of 3000010 bytes|HTTP 416|big.bin)')

        def enormous(handler):
            return handler.command == "HEAD" and handler.reply(200, Content_Length=2**62) is None
        self.misbehave(self.big, enormous, "stamp/1: needs 46116860184.* bytes, .* has room for")

        def silent(handler):
            if handler.command != "HEAD":
                return False
            handler.send_response(200)
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.close_connection = True
            return True
        self.misbehave(self.big, silent, "does not say how long it is")

    def test_another_part_than_asked_for(self):
        with Web(self.store) as web:
            cut = self.cut(1, 1_000_000)

            def wrong(handler):
                if handler.headers.get("Range"):
                    return handler.reply(206, self.content()[5:], ETag=self.tag(),
                                         Content_Range=f"bytes 5-{BIG - 1}/{BIG}") is None
                return cut(handler)
            web.misdeeds[self.big] = wrong
            self.refused("another part than that from byte 1000000", web.url, self.to)
        self.assertEqual(tree(self.to), {})

    def test_changed_on_the_way(self):
        def other(handler):
            return handler.command == "GET" and handler.reply(
                200, os.urandom(BIG), ETag='"new"') is None
        self.misbehave(self.big, other, "big.bin: changed while it was copied")

    def test_redirects(self):
        def to(where):
            return lambda handler: handler.reply(302, Location=where) is None
        for where, text in (("file:///etc/passwd", "file"), ("ftp://127.0.0.1/x", "ftp"),
                            ("gopher://127.0.0.1/x", "gopher"), (self.big, "redirects")):
            self.misbehave(self.big, to(where), f"big.bin: .*{text}")
            of_directory = "/stamp/1/" if where == self.big else where
            self.misbehave("/stamp/1/", to(of_directory), f"stamp/1/?: .*{text}")
        with Web(self.store) as other, Web(self.store) as web:
            web.misdeeds[self.big] = to(other.url + self.big)
            self.good(web.url, self.to)
        self.assertEqual(tree(self.to), tree(self.store))

    def test_names_that_lead_out(self):
        def page(*links):
            body = "".join(f'<a href="{link}">x</a>' for link in links).encode()
            return lambda handler: handler.reply(200, body) is None
        for link in ("%2e%2e/", "%2e%2e%2f%2e%2e%2fx", "a%2f..%2fx", "x%00", "%0a"):
            self.misbehave("/stamp/1/", page("_SUCCESS", link), "stamp/1: .*name .* (leads|holds)")
            self.misbehave("/", page("stamp/", link), "name .* (leads|holds)")
        with Web(self.store) as web:
            web.misdeeds["/stamp/1/"] = page("_SUCCESS", "weights.pb", "weights.pb/")
            self.refused('stamp/1', web.url, self.to)
        self.assertEqual(sorted(os.listdir(self.work)), ["models", "store"])

    def test_listings_without_an_end(self):
        def stream(handler):
            handler.send_response(200)
            handler.send_header("Connection", "close")
            handler.end_headers()
            handler.close_connection = True
            line = b'<a href="../">x</a>' * 5000
            while True:
                handler.wfile.write(line)
        self.misbehave("/stamp/1/", stream, "stamp/1/: the listing has more than 16 MiB")

        def trailers(handler):
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(b"0\r\n")
            while True:
                handler.wfile.write(b"name: value\r\n" * 5000)
        self.misbehave("/stamp/1/", trailers, "stamp/1/: more than 1048576 bytes of headers")
        many = b"".join(b'<a href="%d">x</a>' % i for i in range(100_001))
        self.misbehave("/stamp/1/", lambda handler: handler.reply(200, many) is None,
                       "more than 100000 entries")

        class Deep(dict):
            """Each folder holds two folders."""
            def get(self, path, default=None):
                if path.startswith("/stamp/1/"):
                    return lambda handler: handler.reply(
                        200, b'<a href="_SUCCESS"><a href="a/"><a href="b/">') is None
                return default
        with Web(self.store) as web:
            web.misdeeds = Deep()
            self.refused("more than 16 directories deep|more than 10000 files", web.url, self.to)
        self.assertEqual(tree(self.to), {})

    def test_memory_is_bounded(self):
        def stream(handler):
            handler.send_response(200)
            handler.send_header("Connection", "close")
            handler.end_headers()
            while True:
                handler.wfile.write(b'<a href="../">x</a>' * 5000)
        with Web(self.store) as web:
            web.misdeeds["/stamp/"] = stream
            process = subprocess.Popen(command("sync", web.url, self.to), stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 1)
        if not env.SANITIZED:
            self.assertLess(usage.ru_maxrss * 1024, MAX_MEMORY)

    def test_answers_that_never_end(self):
        """One byte of a file in 8 KB of framing, and what goes on beside an error or a redirect."""
        def chunks(code, framing, size):
            def misdeed(handler):
                if handler.command == "HEAD":
                    return False
                handler.send_response(code)
                handler.send_header("Location", "/stamp/1/")
                handler.send_header("Transfer-Encoding", "chunked")
                handler.end_headers()
                content = self.content()
                for i in itertools.cycle(range(0, len(content), size)):
                    handler.wfile.write(b"%x;" % size + b"x" * framing + b"\r\n" + content[i:i + size] + b"\r\n")
                    time.sleep(0.001)
            return misdeed
        begin = time.monotonic()
        for code in (404, 302):
            self.misbehave(self.big, chunks(code, 0, 10000), f"big.bin: HTTP {code}")
        self.assertLess(time.monotonic() - begin, 20 * env.SLOWNESS)
        self.misbehave(self.big, chunks(200, 8000, 1), "big.bin: .*Less than 16384 bytes/sec", tries=1)

    def test_errors_of_the_server(self):
        for code in (403, 404, 500):
            self.misbehave(self.big, lambda handler, code=code: handler.reply(code, b"no\x1b[31m") is None,
                           f"big.bin: HTTP {code}")
        self.refused("127.0.0.1", "http://127.0.0.1:1/", self.to)

    def test_token(self):
        secret = os.path.join(self.work, "secret")
        modelfiles.write(secret, "0123456789abcdef\n")

        def guard(handler):
            good = handler.headers.get("Authorization") == "Bearer 0123456789abcdef"
            return not good and handler.reply(401, b"who?") is None
        with Web(self.store) as web:
            web.misdeeds["/"] = guard
            err = self.refused("HTTP 401", web.url, self.to)
            self.assertNotIn("0123456789abcdef", err)
            self.good(web.url, self.to, f"--token_file={secret}")
        code, _, err = sync("http://10.0.0.1/", self.to, f"--token_file={secret}")
        self.assertEqual(code, 2)
        self.assertIn("want https", err)

    def test_as_a_sidecar(self):
        with Web(self.store) as web:
            os.makedirs(self.to)
            process = subprocess.Popen(command("sync", web.url, self.to, "--watch=1", "--keep=1"),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                with Daemon(self.to, wait_ready=False) as daemon, Client(daemon) as client:
                    daemon.wait_ready()
                    request = predict_request("stamp", stamp_inputs([1]), ())
                    self.assertEqual(client.predict(request).model.version, 1)
                    web.misdeeds["/"] = lambda handler: handler.reply(503, b"busy") is None
                    wait_for(lambda: [p for _, p, _ in web.asked if p == "/"][2:], "more passes", 30)
                    web.misdeeds.clear()
                    add_big(self.store, 2)
                    wait_for(lambda: client.predict(request).model.version == 2, "version 2 serves", 30)
                    self.assertEqual(os.listdir(self.to + "/stamp"), ["2"])
                process.send_signal(signal.SIGTERM)
                _, err = process.communicate(timeout=30)
                self.assertEqual(process.returncode, 0)
                self.assertIn("HTTP 503 busy", err)
            finally:
                process.kill()
                process.wait()


@unittest.skipUnless(os.path.isdir(os.path.join(env.NODE_MODULES, "s3rver")),
                     "no s3rver in build/node: tests/run installs it")
class ObjectStoreTest(SyncTest):
    KEYS = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}

    def setUp(self):
        super().setUp()
        self.node = subprocess.Popen(
            ["node", os.path.join(env.E2E, "clients", "store.js"), env.NODE_MODULES,
             os.path.join(self.work, "objects"), "ranking"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop)
        self.endpoint = f"http://127.0.0.1:{self.node.stdout.readline().strip()}"

    def stop(self):
        self.node.kill()
        self.node.wait()
        self.node.stdout.close()

    def put(self, folder, prefix=""):
        # s3rver lists no directory that holds nothing but directories; a file of the model is not copied.
        modelfiles.write(os.path.join(folder, "stamp", "notes"), "x")
        for name in sorted(tree(folder), key=lambda n: n.endswith("_SUCCESS")):
            key = (prefix + name).replace("%", "%25").replace(" ", "%20").replace("&", "%26")
            subprocess.run(["curl", "-sSf", "--aws-sigv4", "aws:amz:us-east-1:s3", "-u", "S3RVER:S3RVER",
                            "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD",
                            "-T", os.path.join(folder, name), f"{self.endpoint}/ranking/{key}"], check=True)

    def test_copies(self):
        add_big(self.store, 1)
        add_big(self.store, 2, success=False)
        for prefix in ("", "teams/a b/"):
            with self.subTest(prefix):
                self.put(self.store, prefix)
                to = os.path.join(self.work, f"to{len(prefix)}")
                source = f"s3://ranking/{prefix}".rstrip("/")
                out = self.good(source, to, f"--endpoint={self.endpoint}", environment=self.KEYS)
                self.assertIn("stamp/1: ", out)
                wanted = {n: d for n, d in tree(self.store).items() if n.startswith("stamp/1/")}
                self.assertEqual(tree(to), wanted)

    def test_keys(self):
        add_stamp(self.store, 1)
        self.put(self.store)
        code, _, err = sync("s3://ranking", self.to, f"--endpoint={self.endpoint}", environment={
            "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "S3RVER"})
        self.assertEqual(code, 1)
        self.assertRegex(err, "HTTP 403.*InvalidAccessKeyId")
        self.assertEqual(tree(self.to), {})
        code, _, err = sync("s3://ranking", self.to, environment={"AWS_ACCESS_KEY_ID": "x"})
        self.assertEqual(code, 2)
        self.assertIn("AWS_SECRET_ACCESS_KEY", err)

    def test_no_such_bucket(self):
        code, _, err = sync("s3://other", self.to, f"--endpoint={self.endpoint}", environment=self.KEYS)
        self.assertEqual(code, 1)
        self.assertIn("NoSuchBucket", err)


def signature(handler, secret):
    """What AWS Signature Version 4 wants of the request, which s3rver does not check."""
    found = dict(re.findall(r"(\w+)=([^,\s]+)", handler.headers["Authorization"]))
    scope = found["Credential"].partition("/")[2]
    path, _, query = handler.path.partition("?")
    names = found["SignedHeaders"].split(";")
    headers = "".join(f"{name}:{handler.headers[name].strip()}\n" for name in names)
    request = "\n".join([handler.command, path, "&".join(sorted(query.split("&"))), headers,
                         found["SignedHeaders"], handler.headers["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", handler.headers["x-amz-date"], scope,
                      hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in [*scope.split("/"), text]:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex() == found["Signature"], set(names), scope


class HostileObjectStoreTest(SyncTest):
    """Answers of a store that is none."""

    def test_signatures(self):
        add_big(self.store, 1)
        seen = []

        class Signed(dict):
            """Every path: listings as XML, files as they are, if the signature is right."""
            def get(_, path, default=None):
                return lambda handler: check(handler, path)

        def check(handler, path):
            good, names, scope = signature(handler, "se/cr+et")
            seen.append((good, names, scope))
            if not good:
                return handler.reply(403, b"<Code>SignatureDoesNotMatch</Code>") is None
            if path != "/b":
                handler.answer(self.store + path.removeprefix("/b/t 1"))
                return True
            query = urllib.parse.parse_qs(handler.path.partition("?")[2])
            prefix = query["prefix"][0]
            folder = self.store + "/" + prefix.removeprefix("t 1/")
            names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            begin = int(query.get("continuation-token", ["+/= 0"])[0].removeprefix("+/= "))
            body = ""
            if begin + 2 < len(names):  # Two entries a page.
                body = ("<IsTruncated>true</IsTruncated>"
                        f"<NextContinuationToken>+/= {begin + 2}</NextContinuationToken>")
            for name in names[begin:begin + 2]:
                full, key = os.path.join(folder, name), html.escape(prefix + name)
                if os.path.isdir(full):
                    body += f"<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>"
                else:
                    body += (f"<Contents><Key>{key}</Key><ETag>&quot;{os.stat(full).st_mtime_ns:x}&quot;"
                             f"</ETag><Size>{os.path.getsize(full)}</Size></Contents>")
            return handler.reply(200, f"<ListBucketResult>{body}</ListBucketResult>".encode()) is None

        keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "se/cr+et", "AWS_SESSION_TOKEN": "tok"}
        with Web(self.store) as web:
            web.misdeeds = Signed()
            flags = ("s3://b/t 1", self.to, f"--endpoint={web.url}", "--region=eu-1")
            self.good(*flags, environment=keys)
            self.assertEqual(tree(self.to), tree(self.store))
            for good, names, scope in seen:
                self.assertTrue(good)
                self.assertLessEqual({"host", "x-amz-security-token"}, names)
                self.assertTrue(scope.endswith("/eu-1/s3/aws4_request"), scope)
            # Keys and tokens stay here: whoever redirects is not followed.
            with Web(self.store) as other:
                web.misdeeds = {"/b": lambda handler: handler.reply(301, Location=other.url + "/b") is None}
                code, _, err = sync(*flags, environment=keys)
                self.assertEqual((code, other.asked), (1, []))
                self.assertIn("HTTP 301", err)
            web.misdeeds = Signed()
            code, _, err = sync(*flags, environment={**keys, "AWS_SECRET_ACCESS_KEY": "wrong"})
            self.assertEqual(code, 1)
            self.assertRegex(err, "HTTP 403 .*SignatureDoesNotMatch")
            self.assertNotIn("wrong", err)

    def listing(self, inside, text):
        pages = [0]

        def answer(handler):
            pages[0] += 1
            body = inside(pages[0]) if callable(inside) else inside
            return handler.reply(200, f"<ListBucketResult>{body}</ListBucketResult>".encode()) is None
        with Web(self.store) as web:
            web.misdeeds["/bucket"] = answer
            self.refused(text, "s3://bucket", self.to, f"--endpoint={web.url}")
        self.assertEqual(tree(self.to), {})

    def test_listings(self):
        def object_(key, size="1"):
            return f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>"

        def next_(token):
            return f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        prefix = "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>"
        self.listing(object_("../x"), "name .* holds a slash")
        self.listing(prefix % "../", "name .* leads out")
        self.listing(object_("x", "-1"), "size")
        self.listing(object_("x") + next_("same"), "does not get on")
        self.listing(lambda page: next_(page), "does not get on")
        self.listing(lambda page: object_(f"x{page}") + next_(page), "1000 pages")
        self.listing("<IsTruncated>true</IsTruncated>", "NextContinuationToken")


if __name__ == "__main__":
    unittest.main()
