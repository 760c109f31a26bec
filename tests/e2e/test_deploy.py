"""deploy/compose as docker-compose reads it, deploy/sbom, what the image is built from and needs.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import shutil
import subprocess
import unittest

import yaml

from harness import env

DEPLOY = os.path.join(env.ROOT, "deploy")


def load(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
        return yaml.safe_load(file)


@unittest.skipIf(shutil.which("docker-compose") is None, "no docker-compose")
class ComposeTest(unittest.TestCase):
    def config(self, models):
        environment = {name: value for name, value in os.environ.items() if name != "MODELS"}
        return subprocess.run(
            ["docker-compose", "-f", os.path.join(DEPLOY, "compose", "compose.yaml"), "config"],
            capture_output=True, text=True, check=False, env={**environment, **models})

    def test_models_are_asked_for(self):
        done = self.config({})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("where models are", done.stderr)

    def test_what_belongs_together(self):
        done = self.config({"MODELS": env.scratch("models")})
        self.assertEqual(done.returncode, 0, done.stderr)
        mounts = {}
        for name, service in yaml.safe_load(done.stdout)["services"].items():
            for volume in service["volumes"]:
                source, target, mode = volume.rsplit(":", 2)
                self.assertTrue(os.path.exists(source), source)
                self.assertEqual(mode, "ro", volume)
                mounts[name, target] = source
            # Then every address in the files is localhost.
            if name != "ulfd":
                self.assertEqual(service["network_mode"], "service:ulfd")
        # Where the images look by themselves.
        self.assertIn("prometheus.yml", os.listdir(mounts["prometheus", "/etc/prometheus"]))
        self.assertIn(("alertmanager", "/etc/alertmanager/alertmanager.yml"), mounts)
        self.assertIn(("grafana", "/etc/grafana/provisioning"), mounts)
        provider = load("grafana", "provisioning", "dashboards", "ulfd.yml")["providers"][0]
        self.assertIn(("grafana", provider["options"]["path"] + "/ulfd.json"), mounts)
        source = load("grafana", "provisioning", "datasources", "prometheus.yml")["datasources"][0]
        self.assertEqual(source["url"], "http://localhost:9090")


class ContextTest(unittest.TestCase):
    @unittest.skipIf(env.SANITIZED, "as in the plain run")
    def test_the_image_gets_all_that_its_build_needs(self):
        context = env.scratch("context")
        with open(os.path.join(env.ROOT, ".dockerignore"), encoding="utf-8") as file:
            lines = file.read().split()
        self.assertEqual(lines[0], "*")
        for line in lines[1:]:
            name = line.removeprefix("!")
            source, target = os.path.join(env.ROOT, name), os.path.join(context, name)
            self.assertTrue(os.path.exists(source), f"{line}: no such file or folder")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, target)
        with open(os.path.join(env.ROOT, "Dockerfile"), encoding="utf-8") as file:
            for line in file:
                if line.startswith("COPY ") and "--from" not in line and line.split()[1] != ".":
                    for name in line.split()[1:-1]:
                        self.assertTrue(os.path.exists(os.path.join(context, name)), line)
        done = subprocess.run(["cmake", "--preset", "release", "-DULFD_TESTS=OFF"], cwd=context,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


@unittest.skipIf(shutil.which("protoc") is None, "no protoc")
@unittest.skipIf(env.SANITIZED, "what carries sanitizers is not installed")
class ProtosTest(unittest.TestCase):
    def test_they_make_a_python_package_beside_proto_plus(self):
        build = os.path.dirname(os.path.dirname(env.program("ulfd")))
        work = env.scratch("protos")
        # proto-plus is a package `proto`, too.
        os.makedirs(os.path.join(work, "proto"))
        with open(os.path.join(work, "proto", "__init__.py"), "w", encoding="utf-8"):
            pass
        protos = os.path.join(build, "protos")
        names = sorted(os.listdir(os.path.join(protos, "ulfd")))
        self.assertEqual(names, sorted(os.listdir(os.path.join(env.ROOT, "proto")))[1:])
        subprocess.run(["protoc", f"-I{protos}", f"--python_out={work}",
                        *(f"ulfd/{name}" for name in names)], check=True)
        done = subprocess.run(
            ["/usr/bin/python3", "-c", "import proto\nfrom ulfd import admin_pb2\n"
             "print(admin_pb2.GetStatusResponse().DESCRIPTOR.full_name)"],
            cwd=work, capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "ulfd.admin.v1.GetStatusResponse\n", done.stderr)


class EntrypointTest(unittest.TestCase):
    def run_image(self, *flags):
        """What the image would run, which ends because there is nothing to serve or no such flag."""
        path = os.path.dirname(env.program("ulfd")) + ":" + os.environ["PATH"]
        return subprocess.run([os.path.join(DEPLOY, "entrypoint"), *flags], capture_output=True,
                              text=True, check=False, env={**os.environ, "PATH": path})

    @unittest.skipIf(os.path.exists("/models"), "there is a /models")
    def test_flags_add_to_the_defaults(self):
        for flags in ((), ("--grpc_port=0", "--http_port=0"), ("--log_format", "json")):
            done = self.run_image(*flags)
            self.assertEqual(done.returncode, 1)
            self.assertIn("directory /models does not exist", done.stderr)
        for flags in (("--model_repository=/nowhere",), ("--model_repository", "/nowhere")):
            self.assertIn("directory /nowhere does not exist", self.run_image(*flags).stderr)
        self.assertIn("/nowhere/x", self.run_image("--config=/nowhere/x").stderr)
        self.assertEqual(self.run_image("--grpc_prot=0").returncode, 2)
        self.assertIn("ulfd ", self.run_image("--version").stdout)


class PackagesTest(unittest.TestCase):
    """The image (install-deps --runtime) and the Debian package have what the programs need."""

    def owners(self, program):
        """Packages of the libraries that the program names itself."""
        dynamic = subprocess.run(["objdump", "-p", program], capture_output=True, text=True, check=True).stdout
        found = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        paths = dict(re.findall(r"(\S+) => (\S+)", found))
        names = set()
        for name in re.findall(r"NEEDED +(\S+)", dynamic):
            # Whether a package says /lib or /usr/lib for the same folder is its own business.
            path = os.path.realpath(paths.get(name, name))
            names |= {path, path.removeprefix("/usr")}
        said = subprocess.run(["dpkg", "-S", *names], capture_output=True, text=True, check=False).stdout
        return set(re.findall(r"^([^:\s]+)", said, re.M))

    def with_dependencies(self, packages):
        asked = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${Depends}\n"], capture_output=True,
                               text=True, check=True).stdout
        depends = {line.split()[0]: re.findall(r"(?:^|[,|]) *([\w.+-]+)", line.partition(" ")[2])
                   for line in asked.splitlines()}
        found, rest = set(), list(packages)
        while rest:
            package = rest.pop()
            if package not in found:
                found.add(package)
                rest += depends.get(package, [])
        return found

    @unittest.skipIf(env.SANITIZED, "libraries of sanitizers are in no package of ours")
    def test_they_are_those_of_the_programs(self):
        printed = subprocess.run([os.path.join(DEPLOY, "install-deps"), "--runtime", "--print"],
                                 capture_output=True, text=True, check=True).stdout
        listed = set(printed.split())
        needed = set().union(*(self.owners(env.program(name)) for name in ("ulfd", "ulf", "ulf-convert")))
        self.assertIn("libgrpc++1.51", needed)
        self.assertEqual(needed - self.with_dependencies(listed), set())
        # dpkg-shlibdeps finds libraries only.
        with open(os.path.join(DEPLOY, "package", "install.cmake"), encoding="utf-8") as file:
            said = re.search(r'DAEMON_PACKAGE_DEPENDS "(.*)"', file.read()).group(1).split(", ")
        self.assertEqual(listed - needed - set(said), set())


class SbomTest(unittest.TestCase):
    def test_has_every_package(self):
        done = subprocess.run([os.path.join(DEPLOY, "sbom")], capture_output=True, text=True,
                              check=True)
        bom = json.loads(done.stdout)
        self.assertEqual((bom["bomFormat"], bom["specVersion"]), ("CycloneDX", "1.4"))
        listed = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status} ${Package} ${Version}\n"],
                                capture_output=True, text=True, check=True).stdout
        installed = sorted(tuple(line.split()[1:]) for line in listed.splitlines()
                           if line.startswith("installed "))
        found = sorted((part["name"], part["version"]) for part in bom["components"])
        self.assertEqual(found, installed)
        grpc = [part["purl"] for part in bom["components"] if part["name"] == "libgrpc++1.51"]
        self.assertEqual(len(grpc), 1)
        self.assertTrue(grpc[0].startswith("pkg:deb/debian/libgrpc%2B%2B1.51@1.51."), grpc)
