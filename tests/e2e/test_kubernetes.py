"""deploy/kubernetes and deploy/kserve: objects as their published types want them, a chart that renders
what kustomize does, and a daemon that starts with what they say.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import shutil
import subprocess
import unittest

import grpc
import yaml

from harness import env
from harness.certificates import Authority, read
from harness.clients import Client, predict_request
from harness.daemon import Daemon, wait_for
from harness.fixtures import add_stamp
from harness.small import stamp_inputs

MANIFESTS = os.path.join(env.ROOT, "deploy", "kubernetes")
SERVING_RUNTIME = os.path.join(env.ROOT, "deploy", "kserve", "serving-runtime.yaml")
# What KServe's definition adds to types of Kubernetes; only what our file may use.
KSERVE_TYPES = """
type Format = {name: string, version?: string, autoSelect?: boolean, priority?: number};
type ServingRuntime = {
  apiVersion: "serving.kserve.io/v1alpha1", kind: "ServingRuntime", metadata: {name: string},
  spec: {supportedModelFormats?: Format[], protocolVersions?: string[], multiModel?: boolean,
         disabled?: boolean, containers: import("kubernetes-types/core/v1").Container[],
         volumes?: import("kubernetes-types/core/v1").Volume[]}};
"""


def rendered(name):
    """The objects of a kustomization, by kind."""
    if shutil.which("kubectl") is None:
        raise unittest.SkipTest("no kubectl")
    done = subprocess.run(["kubectl", "kustomize", os.path.join(MANIFESTS, name)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    objects = list(yaml.safe_load_all(done.stdout))
    by_kind = {item["kind"]: item for item in objects}
    assert len(by_kind) == len(objects), "two objects of one kind"
    return by_kind


OVERLAYS = ("base", "overlays/synced", "overlays/guarded")
SECRETS = {"tlsSecret": "ulfd-tls", "tokensSecret": "ulfd-tokens"}
TOKEN = "0123456789abcdef0123"
GO_PACKAGES = "/usr/share/gocode"


def chart(release="ulfd", **values):
    """The objects of the Helm chart, by kind.  Debian has no helm: its template engine and functions do."""
    if shutil.which("go") is None or not os.path.isdir(GO_PACKAGES + "/src/github.com/Masterminds/sprig"):
        raise unittest.SkipTest("no go or no golang-github-masterminds-sprig-dev")
    path = os.path.join(env.scratch("chart"), "values.yaml")
    with open(path, "w", encoding="utf-8") as file:
        yaml.safe_dump(values, file)
    done = subprocess.run(
        ["go", "run", os.path.join(env.E2E, "clients", "render_chart.go"),
         os.path.join(MANIFESTS, "chart"), release, path], capture_output=True, text=True, check=False,
        env={**os.environ, "GO111MODULE": "off", "GOPATH": GO_PACKAGES,
             "GOCACHE": os.path.join(env.ROOT, "build", "go")})
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return {item["kind"]: item for item in yaml.safe_load_all(done.stdout)}


def serving_runtime():
    with open(SERVING_RUNTIME, encoding="utf-8") as file:
        return yaml.safe_load(file)


def type_of(item):
    if item["kind"] == "ServingRuntime":
        return "ServingRuntime"
    group, _, version = item["apiVersion"].rpartition("/")
    return f'import("kubernetes-types/{group.split(".")[0] or "core"}/{version}").{item["kind"]}'


class TypesTest(unittest.TestCase):
    def errors(self, objects):
        """What the compiler says of the objects as literals: wrong types and unknown fields."""
        compiler = os.path.join(env.NODE_MODULES, "typescript", "bin", "tsc")
        types = os.path.join(env.NODE_MODULES, "kubernetes-types")
        if not os.path.exists(compiler) or not os.path.isdir(types):
            self.skipTest("no typescript or kubernetes-types in build/node: tests/run installs them")
        work = env.scratch("types")
        os.symlink(env.NODE_MODULES, os.path.join(work, "node_modules"))
        with open(os.path.join(work, "objects.ts"), "w", encoding="utf-8") as file:
            file.write(KSERVE_TYPES)
            for i, item in enumerate(objects):
                file.write(f"const object{i}: {type_of(item)} = {json.dumps(item, indent=1)};\n")
        done = subprocess.run(["node", compiler, "--strict", "--noEmit", "--target", "es2020", "--module",
                               "commonjs", "--skipLibCheck", os.path.join(work, "objects.ts")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode == 0, done.stdout == "", done.stderr)
        return done.stdout

    def test_types(self):
        objects = [serving_runtime()]
        for name in OVERLAYS:
            objects += rendered(name).values()
        objects += chart().values()
        objects += chart("other", sync={"source": "https://store/models"}, **SECRETS).values()
        self.assertEqual(self.errors(objects), "")
        broken = rendered("base")["Deployment"]
        broken["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
        self.assertIn("readynessProbe", self.errors([broken]))


def bare(objects):
    """Without what both renderers add in their own way so that a new configuration restarts pods."""
    objects = json.loads(json.dumps(objects))
    config, pod = objects["ConfigMap"], objects["Deployment"]["spec"]["template"]
    mounted = next(v for v in pod["spec"]["volumes"] if v["name"] == "config")["configMap"]
    assert mounted["name"] == config["metadata"]["name"]
    mounted["name"] = config["metadata"]["name"] = "ulfd-config"
    pod["metadata"]["annotations"].pop("checksum/config", None)
    mounts = [container["volumeMounts"] for container in pod["spec"]["containers"]]
    for item in pod["spec"]["volumes"], pod["spec"]["containers"], *mounts:
        item.sort(key=lambda part: part["name"])
    return objects


class ChartTest(unittest.TestCase):
    def test_templates_are_made_of_the_base(self):
        done = subprocess.run([os.path.join(MANIFESTS, "make-chart"), "--check"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_renders_the_kustomizations(self):
        self.maxDiff = None
        self.assertEqual(bare(chart()), bare(rendered("base")))
        self.assertEqual(bare(chart(sync={"source": "s3://models"})), bare(rendered("overlays/synced")))
        self.assertEqual(bare(chart(**SECRETS)), bare(rendered("overlays/guarded")))

    def test_every_value_is_obeyed(self):
        objects = chart("shop", image="registry/ulfd:1", replicas=3, maxReplicas=30, queueWaitTarget="7m",
                        maxUnavailable=2, resources={"requests": {"cpu": "8"}}, config="workers: 5",
                        tlsSecret="cert", tokensSecret="keys", monitoringNamespace="watch",
                        modelsClaim="disk")
        pod = objects["Deployment"]["spec"]["template"]
        container = pod["spec"]["containers"][0]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        scaler = objects["HorizontalPodAutoscaler"]["spec"]
        self.assertEqual(container["image"], "registry/ulfd:1")
        self.assertEqual(container["resources"], {"requests": {"cpu": "8", "memory": "4Gi"},
                                                  "limits": {"cpu": "2", "memory": "4Gi"}})
        self.assertEqual((objects["Deployment"]["spec"]["replicas"], scaler["minReplicas"],
                          scaler["maxReplicas"]), (3, 3, 30))
        self.assertEqual(scaler["metrics"][0]["pods"]["target"]["averageValue"], "7m")
        self.assertEqual(objects["PodDisruptionBudget"]["spec"]["maxUnavailable"], 2)
        self.assertEqual(objects["ConfigMap"]["data"]["server.textproto"].split("\n", 1)[0], "workers: 5")
        self.assertEqual(volumes["tls"]["secret"]["secretName"], "cert")
        self.assertEqual(volumes["tokens"]["secret"]["secretName"], "keys")
        self.assertEqual(volumes["models"]["persistentVolumeClaim"]["claimName"], "disk")
        source = objects["NetworkPolicy"]["spec"]["ingress"][1]["from"][0]["namespaceSelector"]
        self.assertEqual(source["matchLabels"], {"kubernetes.io/metadata.name": "watch"})
        for kind, item in objects.items():
            self.assertIn(item["metadata"]["name"], ("shop", "shop-config"), kind)
        self.assertEqual(objects["Service"]["spec"]["selector"], pod["metadata"]["labels"])
        synced = chart("shop", image="mine", sync={"source": "https://x", "watch": 5, "keep": 7, "flags": [],
                                                   "secret": "mine", "sizeLimit": "1Gi"})
        pod_of_synced = synced["Deployment"]["spec"]["template"]["spec"]
        syncer = next(c for c in pod_of_synced["containers"] if c["name"] == "syncer")
        self.assertEqual(syncer["args"], ["sync", "https://x", "/models", "--watch=5", "--keep=7"])
        self.assertEqual((syncer["image"], syncer["envFrom"][0]["secretRef"]["name"]), ("mine", "mine"))
        self.assertIn({"name": "models", "emptyDir": {"sizeLimit": "1Gi"}}, pod_of_synced["volumes"])
        self.assertNotEqual(pod["metadata"]["annotations"]["checksum/config"],
                            chart("shop")["Deployment"]["spec"]["template"]["metadata"]["annotations"]
                            ["checksum/config"])


class ManifestsTest(unittest.TestCase):
    def check_container(self, container):
        security = container["securityContext"]
        self.assertTrue(security["readOnlyRootFilesystem"])
        self.assertFalse(security["allowPrivilegeEscalation"])
        self.assertEqual(security["capabilities"]["drop"], ["ALL"])

    def test_what_belongs_together(self):
        for name in OVERLAYS:
            objects = rendered(name)
            deployment = objects["Deployment"]["spec"]
            labels = deployment["template"]["metadata"]["labels"]
            pod = deployment["template"]["spec"]
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertEqual(deployment["selector"]["matchLabels"], labels)
            self.assertEqual(objects["Service"]["spec"]["selector"], labels)
            self.assertEqual(objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], labels)
            self.assertEqual(objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], labels)
            self.assertEqual(objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"],
                             objects["Deployment"]["metadata"]["name"])
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            self.assertEqual(volumes["config"]["configMap"]["name"],
                             objects["ConfigMap"]["metadata"]["name"])
            for container in pod["containers"]:
                self.check_container(container)
                for mount in container["volumeMounts"]:
                    self.assertIn(mount["name"], volumes)
            writers = [container["name"] for container in pod["containers"]
                       for mount in container["volumeMounts"]
                       if mount["name"] == "models" and not mount.get("readOnly")]
            self.assertEqual(writers, ["syncer"] if name == "overlays/synced" else [])
            self.assertEqual("emptyDir" in volumes["models"], name == "overlays/synced")
            self.assertEqual("persistentVolumeClaim" in volumes["models"], name != "overlays/synced")

    def start(self, container, config, repository):
        """A daemon with the container's flags, but for ports, which are free ones, and /scratch."""
        ports = {"--grpc_port=8500", "--http_port=8501"}
        flags = set(container["args"]) - ports
        self.assertEqual(len(container["args"]) - len(ports), len(flags))
        rest = {flag.split("=")[0] for flag in flags}
        if config:
            self.assertEqual(rest, {"--config"})
            return Daemon(repository, config=config, name="pod")
        self.assertEqual(rest, {"--model_repository", "--fold_directory"})
        self.assertIn("--fold_directory=/scratch", flags)
        return Daemon(repository, flags=[f"--fold_directory={env.scratch('scratch')}"], name="pod")

    def pod(self, name):
        """The daemon of a kustomization, its container and its folder."""
        objects = rendered(name)
        config = objects["ConfigMap"]["data"]["server.textproto"]
        container = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]
        work = env.scratch("pod")
        add_stamp(os.path.join(work, "models"), 1)
        Authority(work).issue("tls")
        with open(os.path.join(work, "tokens"), "w", encoding="utf-8") as file:
            file.write(f"shop {TOKEN}\n")
        for mount in container["volumeMounts"]:
            if mount["name"] == "models":
                config = config.replace(f'"{mount["mountPath"]}"', f'"{work}/models"')
            if mount["name"] == "scratch":
                self.assertNotIn("readOnly", mount)
                self.assertIn(f'fold_directory: "{mount["mountPath"]}"', config)
                config = config.replace(f'"{mount["mountPath"]}"', f'"{work}"')
            config = config.replace(f'"{mount["mountPath"]}/', f'"{work}/')
        config = config.replace("drain_delay_ms: 5000", "drain_delay_ms: 50")
        return self.start(container, config, None), container, work

    def probe(self, daemon, container, client):
        """What the kubelet does.  Its probes of gRPC speak no TLS."""
        for probe in (container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")):
            if "grpc" in probe:
                self.assertEqual(client.health(), "SERVING")
            else:
                self.assertEqual(daemon.http(probe["httpGet"]["path"])[0], 200)

    def test_the_daemon_takes_the_configuration(self):
        daemon, container, _ = self.pod("base")
        with daemon, Client(daemon) as client:
            self.probe(daemon, container, client)
            client.predict(predict_request("stamp", stamp_inputs([1]), ()))
            # Which would close connections from all other machines.
            self.assertNotIn("tokens without tls", daemon.log())

    def test_the_daemon_takes_secrets(self):
        daemon, container, work = self.pod("overlays/guarded")
        self.assertNotIn("grpc", container["readinessProbe"])
        with daemon, Client(daemon, grpc.ssl_channel_credentials(
                read(os.path.join(work, "authority.crt")))) as client:
            self.probe(daemon, container, None)
            request = predict_request("stamp", stamp_inputs([1]), ())
            client.Predict(request, metadata=[("authorization", f"Bearer {TOKEN}")], timeout=60)
            with self.assertRaises(grpc.RpcError) as refused:
                client.predict(request)
            self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            self.assertNotIn("tokens without tls", daemon.log())

    def test_the_syncer_runs_as_the_overlay_says(self):
        containers = rendered("overlays/synced")["Deployment"]["spec"]["template"]["spec"]["containers"]
        syncer = next(container for container in containers if container["name"] == "syncer")
        self.assertEqual(syncer["command"], ["ulf"])
        work = env.scratch("synced")
        store, models = os.path.join(work, "store"), os.path.join(work, "models")
        add_stamp(store, 1)
        places = {"s3://models": store, "/models": models}
        self.assertLess(set(places), set(syncer["args"]))
        process = subprocess.Popen([env.program("ulf"), *(places.get(arg, arg) for arg in syncer["args"])])
        try:
            wait_for(lambda: os.path.exists(os.path.join(models, "stamp", "1", "_SUCCESS")), "it is copied")
            process.terminate()
            self.assertEqual(process.wait(30), 0)
        finally:
            process.kill()
            process.wait()

    def test_a_runtime_of_kserve(self):
        """Versions of one model in /mnt/models are served as the model `models`."""
        runtime = serving_runtime()["spec"]
        container = runtime["containers"][0]
        self.check_container(container)
        self.assertEqual([(port["name"], port["containerPort"]) for port in container["ports"]],
                         [("h2c", 8500)])
        mnt = os.path.join(env.scratch("kserve"), "mnt")
        add_stamp(mnt, 1, name="models")
        self.assertIn("--model_repository=/mnt", container["args"])
        with self.start(container, None, mnt) as daemon, Client(daemon) as client:
            client.predict(predict_request("models", stamp_inputs([1]), ()))
