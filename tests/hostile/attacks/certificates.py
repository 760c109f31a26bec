"""Mutual TLS: certificates that are long, many, dear to check, or of nobody.
SPDX-License-Identifier: Apache-2.0
"""
import os
import ssl
import subprocess

from attacks.common import attack, in_parallel
from harness.certificates import Authority, read


def _context(site, certificate=None, key=None, version=None):
    context = site.tls_context()
    if certificate:
        context.load_cert_chain(certificate, key)
    if version == ssl.TLSVersion.TLSv1_2:
        context.maximum_version = version
        context.options |= ssl.OP_NO_TICKET  # The server keeps what it has to know of the session.
    return context


def _self_signed(site, name, algorithm, more=()):
    path = os.path.join(site.scene.dir, name)
    if not os.path.exists(path + ".crt"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", *algorithm, "-nodes", "-days", "30", "-subj", f"/CN={name}",
                        "-keyout", path + ".key", "-out", path + ".crt", *more], check=True, capture_output=True)
    return path + ".crt", path + ".key"


_EC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def _long_chain(site, certificate, name, size=40_000):
    """The certificate, and behind it others that prove nothing."""
    names = ",".join(f"DNS:{i:08}.a-name-that-nobody-has.example" for i in range(200))
    filler, _ = _self_signed(site, "filler", _EC, ["-addext", "subjectAltName=" + names])
    path = os.path.join(site.scene.dir, name)
    der = subprocess.run(["openssl", "x509", "-in", filler, "-outform", "DER"], capture_output=True, check=True).stdout
    with open(path, "wb") as file:
        file.write(read(certificate) + read(filler) * (size // len(der)))
    return path


def _handshakes(site, context, hold=False):
    def work(_):
        while not site.over():
            try:
                connection = site.tls(site.tcp(), context)
                site.count("handshake")
                if context.maximum_version != ssl.TLSVersion.TLSv1_2:
                    connection.settimeout(0.2)
                    connection.recv(10)  # In TLS 1.3 the server judges the client later.
                if not hold:
                    connection.close()
            except OSError as error:
                site.count(getattr(error, "reason", None) or type(error).__name__)
    in_parallel(work, 4)


def _mine(site):
    return site.scene.secrets["certificate"], site.scene.secrets["key"]


@attack("certificates: handshakes", "valid ones, four threads", scene="mutual", short=True)
def plain(site):
    _handshakes(site, _context(site, *_mine(site)))


@attack("certificates: long chains, TLS 1.2", "a valid certificate and 40 KB of others; sessions without tickets", scene="mutual", seconds=8)
def long_chains(site):
    certificate, key = _mine(site)
    context = _context(site, _long_chain(site, certificate, "long.crt"), key, ssl.TLSVersion.TLSv1_2)
    site.begin()
    _handshakes(site, context)


@attack("certificates: long chains, kept", "the same, and the connections stay", scene="mutual", seconds=8)
def long_chains_kept(site):
    certificate, key = _mine(site)
    context = _context(site, _long_chain(site, certificate, "kept.crt"), key, ssl.TLSVersion.TLSv1_2)
    site.begin()
    _handshakes(site, context, hold=True)


@attack("certificates: of a stranger", "40 KB of them, signed by nobody", scene="mutual", short=True)
def strange(site):
    certificate, key = _self_signed(site, "stranger", _EC)
    context = _context(site, _long_chain(site, certificate, "strange.crt"), key, ssl.TLSVersion.TLSv1_2)
    site.begin()
    _handshakes(site, context)


@attack("certificates: RSA of 8192 bits", "signed by nobody, dear to check", scene="mutual", seconds=5)
def large_keys(site):
    certificate, key = _self_signed(site, "rsa", ("rsa:8192",))
    site.begin()
    _handshakes(site, _context(site, certificate, key))


@attack("certificates: none", "handshakes without one", scene="mutual")
def none(site):
    _handshakes(site, _context(site))


@attack("certificates: of another authority", "of the same name as the daemon's", scene="mutual")
def other_authority(site):
    folder = os.path.join(site.scene.dir, "other")
    certificate, key = Authority(folder).issue("victim")
    chain = os.path.join(folder, "chain.crt")
    with open(chain, "wb") as file:
        file.write(read(certificate) + read(os.path.join(folder, "authority.crt")) * 150)
    site.begin()
    _handshakes(site, _context(site, chain, key))
