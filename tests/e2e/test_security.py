"""TLS, mutual TLS, tokens, and who may use which model; secrets stay secret.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import unittest

import grpc
import numpy as np

import health_v1_pb2 as health_pb
import kserve_v2_pb2 as kserve_pb
from harness import env
from harness.admin import AdminClient
from harness.certificates import Authority, read
from harness.clients import Client, infer_request, native_pb, outputs_of, predict_request
from harness.daemon import FAST, Daemon, StartFailed, wait_for
from harness.fixtures import add_stamp
from harness.loading import load, ulf
from harness.metrics import scrape
from harness.small import stamp_inputs

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
EXPIRED = {"start": "20200101000000Z", "end": "20200201000000Z"}
TOKENS = {"shop": "s3cret-token-of-the-shop", "lab": "s3cret-token-of-the-lab",
          "ops": "s3cret-token-of-operations"}


def predict(model="stamp"):
    return predict_request(model, stamp_inputs([1]), ())


def credentials(authority, pair=None):
    certificate, key = pair or (None, None)
    return grpc.ssl_channel_credentials(read(authority.certificate), key and read(key),
                                        certificate and read(certificate))


def install(source, target):
    """Replaces a file at once, as an orderly tool does."""
    shutil.copyfile(source, target + ".new")
    os.rename(target + ".new", target)


def own_address():
    """An address of this machine that is not the loopback's, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Sends nothing; tells the way out.
        except OSError:
            return None
        return probe.getsockname()[0]


class SlowLink:
    """Forwards connections to a port of this machine, and what goes over them a while later."""

    DELAY = 0.15

    def __init__(self, port):
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends = []
        self._run(self._accept)

    @staticmethod
    def _run(work, *arguments):
        threading.Thread(target=work, args=arguments, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near = self._listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._to), 10)
            except OSError:
                return
            self._ends += [near, far]
            self._run(self._forward, near, far)
            self._run(self._forward, far, near)

    def _forward(self, source, target):
        try:
            while data := source.recv(65536):
                time.sleep(self.DELAY)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self._listener.shutdown(socket.SHUT_RDWR)
        for end in (self._listener, *self._ends):
            end.close()


class SecurityTest(unittest.TestCase):
    def setUp(self):
        self.work = env.scratch("SecurityTest")
        self.models = os.path.join(self.work, "models")
        os.makedirs(self.models)
        add_stamp(self.models, 1)

    def path(self, name):
        return os.path.join(self.work, name)

    def write(self, name, text):
        with open(self.path(name + ".new"), "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(self.path(name + ".new"), self.path(name))
        return self.path(name)

    def tokens(self, names=tuple(TOKENS)):
        return self.write("tokens", "".join(f"{name} {TOKENS[name]}\n" for name in names))

    def refuse(self, call, codes, *texts, token=None):
        """The call fails with one of `codes` and `texts`."""
        metadata = [("authorization", f"Bearer {token}")] if token is not None else None
        with self.assertRaises(grpc.RpcError) as caught:
            call(metadata)
        codes = codes if isinstance(codes, tuple) else (codes,)
        self.assertIn(caught.exception.code(), codes, caught.exception.details())
        for text in texts:
            self.assertIn(text, caught.exception.details())
        self.assertNotIn("s3cret", caught.exception.details())

    def refuse_start(self, config, *texts):
        checked = subprocess.run(
            [env.program("ulfd"), f"--model_repository={self.models}", "--check_config",
             f"--config={self.write('server.textproto', config)}"],
            capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 1, checked.stderr)
        with self.assertRaises(StartFailed) as caught:
            Daemon(self.models, config=FAST + config).kill()
        self.assertEqual(caught.exception.code, 1)
        for text in texts:
            self.assertIn(text, caught.exception.log)
            self.assertIn(text, checked.stderr)
        return caught.exception.log

    def no_secret(self, daemon):
        """Whatever can be read of the daemon holds no token and no key."""
        texts = {"log": daemon.log()}
        for page in ("/statusz", "/metrics", "/readyz"):
            texts[page] = daemon.http(page)[1]
        for name, text in texts.items():
            self.assertNotIn("s3cret", text, name)
            self.assertNotIn("PRIVATE", text, name)


class TlsTest(SecurityTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.path("ca"))
        self.stranger = Authority(self.path("stranger"), "stranger")
        self.certificate, self.key = self.path("tls.crt"), self.path("tls.key")
        self.use(self.authority.issue("first"))

    def use(self, pair):
        install(pair[1], self.key)
        install(pair[0], self.certificate)

    def tls(self, client_ca=None, name="tls"):
        ca = f'client_ca_file: "{client_ca}"' if client_ca else ""
        return (f'{name} {{ certificate_file: "{self.certificate}" key_file: "{self.key}" {ca} '
                f'reload_interval_ms: 50 }}\n')

    def serial_of(self, daemon):
        pem = ssl.get_server_certificate(("127.0.0.1", daemon.grpc_port))
        return ssl.PEM_cert_to_DER_cert(pem)

    def test_calls_over_tls_only(self):
        with Daemon(self.models, config=FAST + self.tls()) as daemon:
            with Client(daemon, credentials(self.authority)) as client:
                self.assertEqual(outputs_of(client.predict(predict()))["score"].tolist(), [[2.0]])
            with Client(daemon) as plain:
                self.refuse(lambda m: plain.Predict(predict(), timeout=5), UNAVAILABLE)
            with Client(daemon, credentials(self.stranger)) as client:
                self.refuse(lambda m: client.Predict(predict(), timeout=5), UNAVAILABLE)
            expires = scrape(daemon).sum("ulfd_tls_certificate_expiry_seconds", port="grpc")
            self.assertGreater(expires, 1.6e9)
            self.no_secret(daemon)

    def test_old_protocols_are_refused(self):
        with Daemon(self.models, config=FAST + self.tls()) as daemon:
            for version, good in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_3, True)):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.set_ciphers("ALL:@SECLEVEL=0")
                context.minimum_version = context.maximum_version = version
                context.set_alpn_protocols(["h2"])
                with socket.create_connection(("127.0.0.1", daemon.grpc_port), 10) as plain:
                    if good:
                        context.wrap_socket(plain).close()
                    else:
                        with self.assertRaises((ssl.SSLError, ConnectionError)):
                            context.wrap_socket(plain)

    def test_files_that_are_no_good_end_the_start(self):
        self.use(self.authority.issue("expired", **EXPIRED))
        self.refuse_start(self.tls(), "tls: ", "tls.crt", "expired at 2020-02-01")
        self.use(self.authority.issue("early", start="20900101000000Z", end="20910101000000Z"))
        self.refuse_start(self.tls(), "is valid from 2090-01-01")
        install(self.authority.issue("one")[0], self.certificate)
        install(self.authority.issue("two")[1], self.key)
        log = self.refuse_start(self.tls(), "tls.key", 'does not belong to the certificate of '
                                '"CN=one"', "tls.crt")
        self.assertNotIn("PRIVATE", log)
        self.use(self.authority.issue("good"))
        self.write("tls.crt", "nonsense")
        self.refuse_start(self.tls(), "tls.crt: holds no PEM certificate")
        os.remove(self.certificate)
        self.refuse_start(self.tls(), "tls.crt: No such file")
        self.use(self.authority.issue("good"))
        self.refuse_start(self.tls("/nowhere/ca.crt"), "/nowhere/ca.crt: No such file")

    def test_reload(self):
        with Daemon(self.models, config=FAST + self.tls()) as daemon:
            with Client(daemon, credentials(self.authority)) as old:
                old.predict(predict())
                first = self.serial_of(daemon)
                self.use(self.authority.issue("second"))
                wait_for(lambda: self.serial_of(daemon) != first, "the second certificate")
                used = self.serial_of(daemon)
                # A connection keeps what it was made with.
                old.predict(predict())

                def stale():
                    return scrape(daemon).sum("ulfd_security_stale", of="grpc")

                for name, spoil in (
                        ("expired", lambda: self.use(self.authority.issue("expired", **EXPIRED))),
                        ("does not belong", lambda: install(self.authority.issue("other")[1],
                                                            self.key)),
                        ("holds no PEM certificate", lambda: self.write("tls.crt", "nonsense")),
                        ("No such file", lambda: os.remove(self.certificate))):
                    with self.subTest(name):
                        self.use(self.authority.issue("good"))
                        before = used
                        wait_for(lambda: self.serial_of(daemon) != before and stale() == 0,
                                 "good files are used")
                        used = good = self.serial_of(daemon)
                        said = len(daemon.log())
                        spoil()
                        # Certificate and key are two files: between their replacements other
                        # complaints come first.
                        wait_for(lambda: stale() == 1 and name in daemon.log()[said:],
                                 "bad files are noticed")
                        self.assertIn("what was read before stays in use", daemon.log()[said:])
                        self.assertEqual(self.serial_of(daemon), good)
                        with Client(daemon, credentials(self.authority)) as client:
                            client.predict(predict())
                failures = scrape(daemon).sum("ulfd_security_reload_failures_total", of="grpc")
                self.assertGreaterEqual(failures, 4)
            self.no_secret(daemon)

    def test_mutual_tls_and_names_of_certificates(self):
        add_stamp(self.models, 2, name="secret")
        config = FAST + self.tls(self.authority.certificate) + """
models { name: "secret" allowed_clients: "spiffe://x/lab" allowed_clients: "ops" }
"""
        shop = self.authority.issue("shop", sans=("DNS:shop.example",))
        lab = self.authority.issue("lab", sans=("DNS:lab.example", "URI:spiffe://x/lab"))
        ops = self.authority.issue("ops", sans=())
        with Daemon(self.models, config=config) as daemon:
            for pair, good in ((shop, False), (lab, True), (ops, True)):
                with Client(daemon, credentials(self.authority, pair)) as client:
                    client.predict(predict())
                    if good:
                        client.predict(predict("secret"))
                    else:
                        self.refuse(lambda m: client.Predict(predict("secret"), timeout=5), DENIED,
                                    'client "shop.example" may not use model "secret"')
            none, foreign = None, self.stranger.issue("shop")
            old = self.authority.issue("old", **EXPIRED)
            for pair in (none, foreign, old):
                with Client(daemon, credentials(self.authority, pair)) as client:
                    self.refuse(lambda m: client.Predict(predict(), timeout=5), UNAVAILABLE)
            with Client(daemon, credentials(self.authority, shop)) as client:
                client.predict(predict())

    def test_messages_of_handshakes_are_bounded(self):
        """Hellos of more than 16 KiB, certificates of 40 KB."""
        config = FAST + self.tls(self.authority.certificate)
        certificate, key = self.authority.issue("shop")
        chain = self.path("chain.crt")
        with open(chain, "wb") as file:
            file.write(read(certificate) + read(self.authority.certificate) * 90)
        with Daemon(self.models, config=config) as daemon:
            def refused():
                return scrape(daemon).sum("ulfd_connections_closed_total", why="handshakes")

            with Client(daemon, credentials(self.authority, (chain, key))) as client:
                self.refuse(lambda m: client.Predict(predict(), timeout=5), UNAVAILABLE)
            self.assertEqual(refused(), 1)
            for length in (16_385, 131_000, 0xffffff):
                before = refused()
                with socket.create_connection(("127.0.0.1", daemon.grpc_port), 10) as connection:
                    hello = b"\1" + length.to_bytes(3, "big") + bytes(16_380)
                    connection.sendall(b"\x16\3\1" + len(hello).to_bytes(2, "big") + hello)
                    while connection.recv(1000):
                        pass
                # OpenSSL itself refuses what is longer than any hello.
                self.assertEqual(refused() - before, 1 if length <= 131_396 else 0)
            with Client(daemon, credentials(self.authority, (certificate, key))) as client:
                client.predict(predict())

    def test_tls_and_names_on_the_admin_port(self):
        config = (FAST + self.tls(self.authority.certificate, "admin_tls") +
                  'authentication { admin_clients: "ops.example" }\n')
        ops = self.authority.issue("ops", sans=("DNS:ops.example",))
        shop = self.authority.issue("shop", sans=("DNS:shop.example",))
        with Daemon(self.models, config=config, flags=["--admin_address=127.0.0.1:0"]) as daemon:
            with Client(daemon) as client:
                client.predict(predict())  # The other port is as open as it was.
            with AdminClient(daemon.admin_target, credentials(self.authority, ops)) as admin:
                self.assertTrue(admin.call("GetStatus").server.ready)
            with AdminClient(daemon.admin_target, credentials(self.authority, shop)) as admin:
                self.refuse(lambda m: admin.call("GetStatus"), DENIED,
                            'client "shop.example" may not call this port')
            with AdminClient(daemon.admin_target) as admin:
                self.refuse(lambda m: admin.call("GetStatus"), UNAVAILABLE)
            self.assertEqual(scrape(daemon).sum("ulfd_unauthenticated_total", port="admin",
                                                why="denied"), 1)


class TokenTest(SecurityTest):
    def config(self, more="", tls=""):
        return (FAST + f'authentication {{ token_file: "{self.tokens()}" reload_interval_ms: 50 '
                f'{more} }}\n' + tls)

    def test_every_service_wants_a_token(self):
        with Daemon(self.models, config=self.config()) as daemon, Client(daemon) as client:
            def call(method, request, token):
                metadata = [("authorization", f"Bearer {token}")] if token else None
                return method(request, timeout=10, metadata=metadata)

            reflect = client.channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
            nothing = client.channel.unary_unary("/no.Service/Method")
            infer = infer_request("stamp", stamp_inputs([1]))
            for method, request in (
                    (client.Predict, predict()), (client.ModelInfer, infer),
                    (client.ListModels, native_pb.ListModelsRequest()),
                    (client.ServerReady, kserve_pb.ServerReadyRequest())):
                for token in (None, "", "s3cret-token-of-nobody", TOKENS["shop"][:-1]):
                    with self.subTest(token=token):
                        self.refuse(lambda m, method=method, request=request:
                                    method(request, timeout=10, metadata=m),
                                    UNAUTHENTICATED, "authorization", token=token)
                call(method, request, TOKENS["shop"])
            self.refuse(lambda m: list(reflect(iter([b"\x3a\x00"]), timeout=10)), UNAUTHENTICATED)
            self.refuse(lambda m: nothing(b"", timeout=10), UNAUTHENTICATED)
            self.refuse(lambda m: nothing(b"", timeout=10, metadata=m),
                        grpc.StatusCode.UNIMPLEMENTED, token=TOKENS["shop"])
            self.assertEqual(client.health(), "SERVING")
            self.assertEqual(client.health("model/stamp"), "SERVING")
            metrics = scrape(daemon)
            self.assertEqual(metrics.sum("ulfd_unauthenticated_total", port="grpc",
                                         why="unauthenticated"), 18)
            # A refused call was never looked at.
            self.assertEqual(metrics.sum("ulfd_requests_total", model="stamp"), 2)
            self.no_secret(daemon)

    def test_health_may_want_one_too(self):
        with Daemon(self.models, config=self.config("open_health: false")) as daemon, \
                Client(daemon) as client:
            request = health_pb.HealthCheckRequest()
            self.refuse(lambda m: client.Check(request, timeout=10), UNAUTHENTICATED)
            self.refuse(lambda m: next(client.Watch(request, timeout=10)), UNAUTHENTICATED)
            client.Check(request, timeout=10, metadata=[("authorization",
                                                         f"Bearer {TOKENS['lab']}")])

    def test_who_may_use_which_model(self):
        add_stamp(self.models, 2, name="secret")
        config = self.config('allowed_clients: "shop" allowed_clients: "lab"') + """
models { name: "secret" allowed_clients: "lab" }
"""
        with Daemon(self.models, config=config) as daemon, Client(daemon) as client:
            def by(name):
                return [("authorization", f"Bearer {TOKENS[name]}")]

            infer = infer_request("secret", stamp_inputs([1]))
            metadata = native_pb.GetModelMetadataRequest()
            metadata.model.name = "secret"
            for method, request in ((client.Predict, predict("secret")),
                                    (client.ModelInfer, infer),
                                    (client.GetModelMetadata, metadata),
                                    (client.ModelMetadata,
                                     kserve_pb.ModelMetadataRequest(name="secret")),
                                    (client.ModelReady,
                                     kserve_pb.ModelReadyRequest(name="secret"))):
                method(request, timeout=10, metadata=by("lab"))
                self.refuse(lambda m, method=method, request=request:
                            method(request, timeout=10, metadata=by("shop")), DENIED,
                            'client "shop" may not use model "secret"')
            client.Predict(predict(), timeout=10, metadata=by("shop"))
            self.refuse(lambda m: client.Predict(predict(), timeout=10, metadata=by("ops")),
                        DENIED, 'client "ops" may not use model "stamp"')
            listed = {name: sorted(m.name for m in client.ListModels(
                native_pb.ListModelsRequest(), timeout=10, metadata=by(name)).models)
                      for name in TOKENS}
            self.assertEqual(listed, {"shop": ["stamp"], "lab": ["secret", "stamp"], "ops": []})

    def test_reload_of_the_configuration_changes_who_may_use_which_model(self):
        add_stamp(self.models, 2, name="other")
        recordings = self.path("recordings")
        base = self.config('admin_clients: "ops"') + f"""
admin_address: "127.0.0.1:0"
recorder {{ directory: "{recordings}" share: 0 }}
"""
        with Daemon(self.models, config=base + 'models { name: "stamp" allowed_clients: "shop" }') \
                as daemon, Client(daemon) as client, AdminClient(daemon.admin_target) as admin:
            def by(name):
                return [("authorization", f"Bearer {TOKENS[name]}")]

            def allowed(model):
                """The clients who get an answer of the model."""
                names = set()
                for name in TOKENS:
                    try:
                        client.Predict(predict(model), timeout=10, metadata=by(name))
                        names.add(name)
                    except grpc.RpcError as error:
                        self.assertEqual(error.code(), DENIED)
                return names

            def reload(models):
                daemon.write_config(base + models)
                return admin.call("ReloadConfig", metadata=by("ops"))

            def recorded():
                return scrape(daemon).sum("ulfd_recorder_records_total")

            self.assertEqual((allowed("stamp"), allowed("other")), ({"shop"}, set(TOKENS)))
            self.assertEqual(recorded(), 0)
            # What cannot be served as a whole changes nothing.
            both = """
models { name: "stamp" allowed_clients: "lab" record_share: 1 weight: 2 max_queued_rows: 500 }
models { name: "other" allowed_clients: "ops" %s }
"""
            reply = reload(both % "labels { key: 'next' value: 7 }")
            self.assertFalse(reply.applied)
            self.assertEqual((allowed("stamp"), allowed("other")), ({"shop"}, set(TOKENS)))
            self.assertEqual(recorded(), 0)
            reply = reload(both % "")
            self.assertTrue(reply.applied, reply)
            self.assertEqual([m.name for m in reply.models], ["other", "stamp"])
            self.assertEqual((allowed("stamp"), allowed("other")), ({"lab"}, {"ops"}))
            wait_for(lambda: recorded() == 1, "the one answered call of stamp is recorded")
            listed = {name: [m.name for m in client.ListModels(
                native_pb.ListModelsRequest(), timeout=10, metadata=by(name)).models]
                      for name in TOKENS}
            self.assertEqual(listed, {"shop": [], "lab": ["stamp"], "ops": ["other"]})
            # And back to what a model gets that says nothing.
            self.assertTrue(reload("").applied)
            self.assertEqual((allowed("stamp"), allowed("other")), (set(TOKENS), set(TOKENS)))
            self.assertEqual(recorded(), 1)

    def test_tokens_change_while_the_server_runs(self):
        with Daemon(self.models, config=self.config()) as daemon, Client(daemon) as client:
            def works(token):
                try:
                    client.Predict(predict(), timeout=10,
                                   metadata=[("authorization", f"Bearer {token}")])
                    return True
                except grpc.RpcError as error:
                    self.assertEqual(error.code(), UNAUTHENTICATED)
                    return False

            self.assertTrue(works(TOKENS["shop"]))
            self.write("tokens", "shop s3cret-next-token-of-the-shop\n")
            wait_for(lambda: works("s3cret-next-token-of-the-shop"), "the next token")
            self.assertFalse(works(TOKENS["shop"]))
            self.write("tokens", "shop s3cret\n")
            wait_for(lambda: scrape(daemon).sum("ulfd_security_stale", of="tokens") == 1,
                     "the bad file is noticed")
            self.assertIn("a token of 6 characters, want at least 16", daemon.log())
            self.assertTrue(works("s3cret-next-token-of-the-shop"))
            self.no_secret(daemon)

    def test_a_token_file_that_is_no_good_ends_the_start(self):
        config = self.config()[len(FAST):]
        self.write("tokens", "shop s3cret-token with more\n")
        log = self.refuse_start(config, "authentication.token_file: ", "tokens:1: 4 words")
        self.assertNotIn("s3cret", log)
        os.remove(self.path("tokens"))
        self.refuse_start(config, "tokens: No such file")

    def test_tokens_in_plain_text_stay_on_this_machine(self):
        own = own_address()
        if own is None:
            self.skipTest("this machine has no address but the loopback's")
        with Daemon(self.models, config=self.config(), flags=["--grpc_address=0.0.0.0"],
                    own_address=False) as daemon:
            by_shop = [("authorization", f"Bearer {TOKENS['shop']}")]
            with Client(daemon) as client:
                client.Predict(predict(), timeout=10, metadata=by_shop)
            daemon.host = own
            with Client(daemon) as client:
                self.refuse(lambda m: client.Predict(predict(), timeout=5, metadata=by_shop),
                            UNAVAILABLE)

    def test_tokens_over_tls(self):
        authority = Authority(self.path("ca"))
        certificate, key = authority.issue("server")
        tls = f'tls {{ certificate_file: "{certificate}" key_file: "{key}" }}\n'
        with Daemon(self.models, config=self.config(tls=tls)) as daemon, \
                Client(daemon, credentials(authority)) as client:
            client.Predict(predict(), timeout=10,
                           metadata=[("authorization", f"Bearer {TOKENS['shop']}")])
            self.refuse(lambda m: client.Predict(predict(), timeout=10), UNAUTHENTICATED)

    def test_admin_port_by_token(self):
        with Daemon(self.models, config=self.config('admin_clients: "ops"'),
                    flags=["--admin_address=127.0.0.1:0"]) as daemon:
            with AdminClient(daemon.admin_target) as admin:
                self.refuse(lambda m: admin.call("GetStatus"), UNAUTHENTICATED)
                self.refuse(lambda m: admin.call("GetStatus", metadata=m), DENIED, 'client "shop"',
                            token=TOKENS["shop"])
                by_ops = [("authorization", f"Bearer {TOKENS['ops']}")]
                self.assertTrue(admin.call("GetStatus", metadata=by_ops).server.ready)
            self.no_secret(daemon)


class CommandLineTest(SecurityTest):
    """Every subcommand of `ulf` that calls a daemon."""

    def setUp(self):
        super().setUp()
        self.authority = Authority(self.path("ca"))
        self.stranger = Authority(self.path("stranger"), "stranger")
        self.inputs = self.path("in.npz")
        np.savez(self.inputs, **stamp_inputs([1, 2]))
        self.token = self.write("token", TOKENS["ops"] + "\n")

    def commands(self, daemon):
        """Arguments of each command -> what its output holds."""
        return {("health", daemon.target): "SERVING",
                ("health", daemon.target, "--model=stamp"): "SERVING",
                ("predict", daemon.target, "--model=stamp", f"--inputs={self.inputs}"): "stamp",
                ("predict", daemon.target, "--model=stamp", f"--inputs={self.inputs}",
                 "--kserve"): "stamp",
                ("admin", daemon.admin_target, "status"): "stamp",
                ("admin", daemon.admin_target, "load", "stamp", "1"): "serves already"}

    def each_works(self, daemon, flags):
        for command, text in self.commands(daemon).items():
            with self.subTest(command=command):
                code, out, err = ulf(*command, *flags)
                self.assertEqual((code, err), (0, ""))
                self.assertIn(text, out)
        summary = load(daemon.target, "--model=stamp", "--rate=50", "--duration=1s", "--warmup=0s",
                       "--timeout=20s", "--follow_health", *flags)
        self.assertGreater(summary["calls"]["answered"], 10)
        self.assertEqual(summary["calls"]["failed"], 0, summary)

    def each_fails(self, daemon, flags, *texts):
        for command in self.commands(daemon):
            with self.subTest(command=command):
                code, out, err = ulf(*command, *flags)
                self.assertEqual((code, out), (1, ""))
                self.assertTrue(any(text in err for text in texts), err)
                self.assertNotIn("s3cret", err)

    def test_mutual_tls_and_token(self):
        certificate, key = self.authority.issue("server", sans=("DNS:serving.example",))
        tls = (f'{{ certificate_file: "{certificate}" key_file: "{key}" '
               f'client_ca_file: "{self.authority.certificate}" }}\n')
        config = (FAST + f"tls {tls} admin_tls {tls} authentication {{ admin_clients: \"ops\" "
                  f'token_file: "{self.tokens()}" open_health: false }}')
        own = self.authority.issue("caller", sans=("DNS:caller.example",))
        ca = f"--tls_ca={self.authority.certificate}"
        name = "--tls_server_name=serving.example"
        pair = (f"--tls_cert={own[0]}", f"--tls_key={own[1]}")
        token = f"--token_file={self.token}"
        with Daemon(self.models, config=config, flags=["--admin_address=127.0.0.1:0"]) as daemon:
            self.each_works(daemon, (ca, name, *pair, token))
            self.each_fails(daemon, (ca, name, *pair), "UNAUTHENTICATED")
            self.each_fails(daemon, (ca, *pair, token), "127.0.0.1 is not in peer certificate")
            foreign = f"--tls_ca={self.stranger.certificate}"
            self.each_fails(daemon, (foreign, name, *pair, token), "certificate verify failed")
            self.each_fails(daemon, ("--tls", name, *pair, token), "certificate verify failed")
            self.each_fails(daemon, (ca, name, token), "UNAVAILABLE")
            self.each_fails(daemon, (), "UNAVAILABLE")
            # What Docker and Kubernetes ask needs none of this.
            page = f"http://127.0.0.1:{daemon.http_port}/readyz"
            self.assertEqual(ulf("health", page), (0, "ok\n", ""))
            self.no_secret(daemon)

    def test_certificates_that_the_system_knows(self):
        certificate, key = self.authority.issue("server")
        config = FAST + f'tls {{ certificate_file: "{certificate}" key_file: "{key}" }}'
        with Daemon(self.models, config=config) as daemon:
            known = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": self.authority.certificate}
            done = subprocess.run([env.program("ulf"), "health", daemon.target, "--tls"],
                                  capture_output=True, text=True, check=False, env=known)
            self.assertEqual((done.returncode, done.stdout), (0, "SERVING\n"), done.stderr)

    def test_token_in_plain_text_stays_on_this_machine(self):
        own = own_address()
        if own is None:
            self.skipTest("this machine has no address but the loopback's")
        config = (FAST + f'authentication {{ token_file: "{self.tokens()}" admin_clients: "ops" '
                  "open_health: false }")
        flags = ["--grpc_address=0.0.0.0", "--admin_address=unix:admin.sock"]
        token = f"--token_file={self.token}"
        with Daemon(self.models, config=config, flags=flags, own_address=False) as daemon:
            self.assertEqual(ulf("health", daemon.target, token)[0], 0)
            self.assertEqual(ulf("admin", daemon.admin_target, "status", token)[0], 0)
            self.assertEqual(ulf("admin", daemon.admin_target, "status")[0], 1)
        # Whoever listens there gets a connection, and nothing to read.
        with socket.create_server((own, 0)) as listener:
            code, _, err = ulf("health", f"{own}:{listener.getsockname()[1]}", token)
            self.assertEqual(code, 1)
            self.assertIn("Endpoint is neither UDS or TCP loopback address", err)
            listener.settimeout(10)
            with listener.accept()[0] as connection:
                self.assertEqual(connection.recv(1000), b"")

    def test_load_over_a_slow_link(self):
        """The first handshake may take longer than the pause between two attempts."""
        certificate, key = self.authority.issue("server")
        config = FAST + f'tls {{ certificate_file: "{certificate}" key_file: "{key}" }}'
        with Daemon(self.models, config=config) as daemon, SlowLink(daemon.grpc_port) as link:
            summary = load(f"127.0.0.1:{link.port}", "--model=stamp", "--closed_loop=1",
                           "--calls=2", "--warmup=0s", "--timeout=20s",
                           f"--tls_ca={self.authority.certificate}")
            self.assertEqual(summary["calls"]["answered"], 2)

    def test_health_over_http(self):
        with Daemon(self.models) as daemon:
            page = f"http://127.0.0.1:{daemon.http_port}"
            self.assertEqual(ulf("health", page + "/healthz"), (0, "ok\n", ""))
            code, _, err = ulf("health", page + "/nothing")
            self.assertEqual((code, err), (1, f"ulf health: {page}/nothing: HTTP 404 no such page\n"))
            for flag in ("--model=stamp", "--tls", "--token_file=x"):
                self.assertEqual(ulf("health", page, flag)[0], 2)
            # Ports of this machine are not behind the proxy of the environment.
            done = subprocess.run([env.program("ulf"), "health", page + "/healthz"], check=False,
                                  env={**os.environ, "http_proxy": "http://127.0.0.1:1"})
            self.assertEqual(done.returncode, 0)
        for url in ("http://", "http://a:99999/", "http://a/b c", "ftp://a/"):
            self.assertEqual(ulf("health", url)[0], 1, url)
        with Daemon(wait_ready=False, repository=self.empty()) as daemon:
            code, _, err = ulf("health", f"http://127.0.0.1:{daemon.http_port}/readyz")
            self.assertEqual(code, 1)
            self.assertIn("HTTP 503 not loaded: no model found yet", err)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            code, _, err = ulf("health", f"http://127.0.0.1:{port}/", "--timeout=200ms")
            self.assertEqual(code, 1)
            self.assertIn("timed out after", err)

    def empty(self):
        os.makedirs(self.path("empty"), exist_ok=True)
        return self.path("empty")
