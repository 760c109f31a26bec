"""Certificates for the tests, made by openssl(1) while they run.
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess


def _openssl(*args):
    done = subprocess.run(["openssl", *args], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise AssertionError(f"openssl {args}: {done.stderr}")


def _write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Authority:
    """Issues certificates into a folder: NAME.crt and NAME.key."""

    def __init__(self, folder, name="authority"):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.certificate = os.path.join(folder, name + ".crt")
        self._key = os.path.join(folder, name + ".key")
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                 "-nodes", "-days", "30", "-subj", f"/CN={name}", "-keyout", self._key,
                 "-out", self.certificate, "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        for file in ("index.txt", "index.txt.attr"):
            _write(os.path.join(folder, f"{name}.{file}"), "")
        self._config = os.path.join(folder, name + ".cnf")
        _write(self._config, f"""
[ca]
default_ca = main
[main]
database = {folder}/{name}.index.txt
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
""")

    def issue(self, name, common_name=None, sans=("DNS:localhost", "IP:127.0.0.1"), start=None,
              end=None):
        """(certificate file, key file).  `start`, `end`: YYYYMMDDHHMMSSZ; default: now and a
        month later."""
        path = os.path.join(self.folder, name)
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-subj", f"/CN={common_name or name}", "-keyout", path + ".key",
                 "-out", path + ".csr")
        _write(path + ".ext", "subjectAltName=" + ",".join(sans) + "\n" if sans else "\n")
        dates = ["-days", "30"]
        if start or end:
            dates = ["-startdate", start or "20200101000000Z", "-enddate", end or "20990101000000Z"]
        _openssl("ca", "-batch", "-notext", "-config", self._config, "-cert", self.certificate,
                 "-keyfile", self._key, "-in", path + ".csr", "-out", path + ".crt",
                 "-extfile", path + ".ext", *dates)
        return path + ".crt", path + ".key"
