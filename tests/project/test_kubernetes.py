"""deploy/kubernetes: what can be known of it without a cluster.

The schemas below state which members the resources may and must have, as the Kubernetes API (1.27 or newer), Temporal's
Worker Controller (CRDs of 0.27) and KEDA (2.21) publish them, for the members that are used here. A member that is
misspelt or in the wrong place is in none of them.
"""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from baton.client import Role
from baton.keys.store_keyring import ENVIRONMENT
from baton.worker import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
RESOURCES: list[dict[str, Any]] = [
    document
    for name in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
]
SETTINGS = dict(literal.split("=", 1) for literal in KUSTOMIZATION["configMapGenerator"][0]["literals"])
SECRETS = {
    "baton-keys": {"keys.toml"},
    "baton-auditor": {"keys.toml"},
    "baton-ledger": {"owner", "writer", "keeper", "reader"},
    "baton-codec": {"token"},
    "baton-tokens": {"tokens.toml"},
}
"""The secrets that docs/deployment.md has people make."""


def members(required: str = "", **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these members and no others; ``required`` names those that it must have."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def items(schema: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema, "minItems": 1}


TEXT, FLAG, COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
DURATION = {"type": "string", "pattern": r"^[1-9]\d*[smh]$"}
QUANTITY = {"type": "string", "pattern": r"^\d+(m|Mi|Gi)?$"}
PORT = {"anyOf": [NAME, {"type": "integer", "minimum": 1, "maximum": 65535}]}
LABELS = {"type": "object", "additionalProperties": TEXT}
REF = members("name", name=NAME)
AMOUNTS = members(cpu=QUANTITY, memory=QUANTITY, storage=QUANTITY)
NEEDS = members("requests", requests=AMOUNTS, limits=AMOUNTS)
PROBE = members(
    "tcpSocket periodSeconds", tcpSocket=members("port", port=PORT), periodSeconds=COUNT, failureThreshold=COUNT
)
CONTAINER = members(
    "name image resources securityContext volumeMounts",
    name=NAME,
    image=TEXT,
    command=items(TEXT),
    args=items(TEXT),
    envFrom=items(members("configMapRef", configMapRef=REF)),
    env=items(
        {
            "oneOf": [
                members("name value", name=TEXT, value=TEXT),
                members(
                    "name valueFrom",
                    name=TEXT,
                    valueFrom=members("secretKeyRef", secretKeyRef=members("name key", name=NAME, key=TEXT)),
                ),
            ]
        }
    ),
    ports=items(members("name containerPort", name=NAME, containerPort=PORT)),
    readinessProbe=PROBE,
    livenessProbe=PROBE,
    resources=NEEDS,
    securityContext=members(
        "allowPrivilegeEscalation readOnlyRootFilesystem capabilities",
        allowPrivilegeEscalation={"const": False},
        readOnlyRootFilesystem={"const": True},
        capabilities=members("drop", drop={"const": ["ALL"]}),
    ),
    volumeMounts=items(members("name mountPath", name=NAME, mountPath=TEXT, readOnly=FLAG)),
)
VOLUME = {
    "oneOf": [
        members("name secret", name=NAME, secret=members("secretName", secretName=NAME, defaultMode=COUNT)),
        members("name configMap", name=NAME, configMap=REF),
        members("name emptyDir", name=NAME, emptyDir=members("sizeLimit", sizeLimit=QUANTITY, medium=TEXT)),
        members("name persistentVolumeClaim", name=NAME, persistentVolumeClaim=members("claimName", claimName=NAME)),
    ]
}
POD = members(
    "metadata spec",
    metadata=members("labels", labels=LABELS),
    spec=members(
        "containers securityContext",
        automountServiceAccountToken=FLAG,
        restartPolicy={"enum": ["Always", "OnFailure", "Never"]},
        terminationGracePeriodSeconds=COUNT,
        securityContext=members(
            "runAsNonRoot runAsUser seccompProfile",
            runAsNonRoot={"const": True},
            runAsUser={"const": 10001},
            runAsGroup=COUNT,
            fsGroup=COUNT,
            seccompProfile=members("type", type={"const": "RuntimeDefault"}),
        ),
        initContainers=items(CONTAINER),
        containers=items(CONTAINER),
        volumes=items(VOLUME),
    ),
)
SELECTOR = members("matchLabels", matchLabels=LABELS)
JOB = members("template", backoffLimit=COUNT, ttlSecondsAfterFinished=COUNT, template=POD)
DISRUPTION = members("selector", maxUnavailable=COUNT, selector=SELECTOR)
STEP = members(
    "rampPercentage pauseDuration",
    rampPercentage={"type": "integer", "minimum": 1, "maximum": 99},
    pauseDuration=DURATION,
)
BACKLOG = members(  # in a KEDA trigger every value is a text
    "endpoint taskQueue queueTypes targetQueueSize namespace workerDeploymentName workerDeploymentBuildId",
    endpoint=TEXT,
    taskQueue=TEXT,
    queueTypes={"type": "string", "pattern": "^(workflow|activity|nexus)(,(workflow|activity|nexus))*$"},
    targetQueueSize={"type": "string", "pattern": r"^[1-9]\d*$"},
    namespace={"const": ""},
    workerDeploymentName={"const": ""},
    workerDeploymentBuildId={"const": ""},
)
SPECS: dict[tuple[str, str], Any] = {
    ("apps/v1", "Deployment"): members("selector template", replicas=COUNT, selector=SELECTOR, template=POD),
    ("v1", "Service"): members(
        "selector ports",
        selector=LABELS,
        sessionAffinity={"enum": ["None", "ClientIP"]},
        ports=items(members("name port", name=NAME, port=PORT, targetPort=PORT)),
    ),
    ("v1", "PersistentVolumeClaim"): members(
        "accessModes resources", accessModes={"const": ["ReadWriteOnce"]}, resources=NEEDS
    ),
    ("batch/v1", "Job"): JOB,
    ("batch/v1", "CronJob"): members(
        "schedule jobTemplate",
        schedule={"type": "string", "pattern": r"^(\S+ ){4}\S+$"},
        timeZone=TEXT,
        concurrencyPolicy={"enum": ["Allow", "Forbid", "Replace"]},
        jobTemplate=members("spec", spec=JOB),
    ),
    ("policy/v1", "PodDisruptionBudget"): DISRUPTION,
    ("temporal.io/v1alpha1", "Connection"): members(
        "hostPort",
        hostPort={"type": "string", "pattern": r"^[a-zA-Z0-9.-]+:[0-9]+$"},
        mutualTLSSecretRef=REF,
        apiKeySecretRef=members("key", key=TEXT, name=NAME),
    ),
    ("temporal.io/v1alpha1", "WorkerDeployment"): members(
        "rollout sunset template workerOptions",
        workerOptions=members("connectionRef temporalNamespace", connectionRef=REF, temporalNamespace=TEXT),
        rollout=members("strategy steps", strategy={"enum": ["Manual", "AllAtOnce", "Progressive"]}, steps=items(STEP)),
        sunset=members(scaledownDelay=DURATION, deleteDelay=DURATION),
        template=POD,
    ),
    ("temporal.io/v1alpha1", "WorkerResourceTemplate"): members(
        "workerDeploymentRef template",
        workerDeploymentRef=REF,
        template={
            "oneOf": [
                members(
                    "apiVersion kind spec",
                    apiVersion={"const": "keda.sh/v1alpha1"},
                    kind={"const": "ScaledObject"},
                    spec=members(
                        "scaleTargetRef triggers",
                        scaleTargetRef={"const": {}},  # the controller fills it in, and the empty members of a trigger
                        minReplicaCount=COUNT,
                        maxReplicaCount=COUNT,
                        pollingInterval=COUNT,
                        cooldownPeriod=COUNT,
                        triggers=items(members("type metadata", type={"const": "temporal"}, metadata=BACKLOG)),
                    ),
                ),
                members(
                    "apiVersion kind spec",
                    apiVersion={"const": "policy/v1"},
                    kind={"const": "PodDisruptionBudget"},
                    spec=DISRUPTION,
                ),
            ]
        },
    ),
}


def titled(resource: dict[str, Any]) -> str:
    return f"{resource['kind']} {resource['metadata']['name']}"


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the specification of every pod, by the resource that makes it."""
    for resource in RESOURCES:
        spec = resource["spec"].get("jobTemplate", resource)["spec"]
        if "containers" in spec.get("template", {}).get("spec", {}):
            yield titled(resource), spec["template"]["spec"]


each_resource = pytest.mark.parametrize("resource", RESOURCES, ids=titled)
each_pod = pytest.mark.parametrize(("title", "pod"), list(pods()))
PODS = dict(pods())
(WORKER,) = PODS["WorkerDeployment baton"]["containers"]


class TestResources:
    @each_resource
    def test_it_has_the_members_of_its_kind(self, resource: dict[str, Any]) -> None:
        """Each is one that the API server, the Worker Controller or KEDA accepts, where it stands."""
        spec = SPECS[resource["apiVersion"], resource["kind"]]

        jsonschema_rs.validate(
            members("apiVersion kind metadata spec", apiVersion=TEXT, kind=TEXT, metadata=REF, spec=spec), resource
        )

    def test_no_name_is_used_twice(self) -> None:
        """The second would replace the first."""
        titles = [titled(resource) for resource in RESOURCES]

        assert sorted(set(titles)) == sorted(titles)

    def test_kustomize_builds_it(self) -> None:
        """Every image gets its tag, also those in the resources of the Worker Controller."""
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            pytest.skip("there is no kubectl to build it with")
        built = subprocess.run([kubectl, "kustomize", str(FOLDER)], capture_output=True, text=True, check=True).stdout
        version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

        assert len(list(yaml.safe_load_all(built))) == len(RESOURCES) + len(KUSTOMIZATION["configMapGenerator"])
        assert set(re.findall(r"image: (\S+)", built)) == {f"baton-worker:{version}"}
        assert KUSTOMIZATION["images"] == [{"name": "baton-worker", "newTag": version}]


class TestPods:
    @each_pod
    def test_it_refers_to_what_is_there(self, title: str, pod: dict[str, Any]) -> None:
        """To volumes of its own, to secrets that the page names, to the settings and claims of this folder."""
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        claims = {r["metadata"]["name"] for r in RESOURCES if r["kind"] == "PersistentVolumeClaim"}
        maps = {generated["name"] for generated in KUSTOMIZATION["configMapGenerator"]} | {"baton-public-keys"}
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            mounted = [mount["name"] for mount in container["volumeMounts"]]
            assert set(mounted) <= volumes.keys()
            assert len({mount["mountPath"] for mount in container["volumeMounts"]}) == len(mounted)
            for variable in container.get("env", []):
                if "valueFrom" in variable:
                    secret = variable["valueFrom"]["secretKeyRef"]
                    assert secret["key"] in SECRETS[secret["name"]]
            assert {source["configMapRef"]["name"] for source in container.get("envFrom", [])} <= maps
        for volume in volumes.values():
            assert volume.get("secret", {}).get("secretName", "baton-keys") in SECRETS
            assert volume.get("configMap", {}).get("name", "baton") in maps
            assert volume.get("persistentVolumeClaim", {}).get("claimName", "baton-witness") in claims

    @each_pod
    def test_its_keys_are_readable_by_its_user_alone(self, title: str, pod: dict[str, Any]) -> None:
        """The group of a pod reads the files of its secrets, and Baton refuses such keys."""
        (copying,) = pod["initContainers"]
        source, target = copying["command"][-2:]

        assert copying["command"][:2] == ["install", "--mode=0400"]
        assert target == SETTINGS["BATON_KEYS"]
        assert source == "/secret/keys.toml"
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "keys")
        assert volume["emptyDir"]["medium"] == "Memory"

    def test_every_variable_is_a_setting(self) -> None:
        """A misspelt one would be a default in disguise."""
        known = {f"BATON_{name.upper()}" for name in Settings.model_fields} | {"BATON_KEYS", ENVIRONMENT}
        others = {"BATON_CODEC_PORT", "BATON_CODEC_ORIGINS", "BATON_CODEC_TOKEN"}
        given = {variable["name"] for pod in PODS.values() for c in pod["containers"] for variable in c.get("env", [])}
        given |= SETTINGS.keys()

        assert {name for name in given if name.startswith("BATON_")} <= known | others
        assert Settings.of(SETTINGS).encrypt

    def test_only_the_owner_migrates_and_only_the_keeper_archives(self) -> None:
        """Each job has the account that its work needs; the auditor has neither the workers' keys nor rights."""
        accounts = {}
        for title, pod in PODS.items():
            variables = {variable["name"]: variable for variable in pod["containers"][0].get("env", [])}
            account = variables.get("BATON_LEDGER", {}).get("valueFrom", {}).get("secretKeyRef", {}).get("key")
            keys = next(volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume)
            accounts[title] = (account, keys)

        assert accounts == {
            "WorkerDeployment baton": ("writer", "baton-keys"),
            "Deployment baton-codec": (None, "baton-keys"),
            "Deployment baton-console": ("writer", "baton-keys"),
            "Deployment baton-serve": (None, "baton-keys"),
            "Job baton-schema": ("owner", "baton-keys"),
            "CronJob baton-checkpoint": ("keeper", "baton-keys"),
            "CronJob baton-archive": ("keeper", "baton-keys"),
            "CronJob baton-verify": ("reader", "baton-auditor"),
            "CronJob baton-verify-all": ("reader", "baton-auditor"),
        }


class TestWorkers:
    def test_a_build_has_the_name_that_the_controller_gives_it(self) -> None:
        """The controller appends its variables, which other variables of the container cannot refer to."""
        settings = Settings.of({"TEMPORAL_DEPLOYMENT_NAME": "baton/baton", "TEMPORAL_WORKER_BUILD_ID": "0.1.0-ab12"})
        own = Settings.of({"BATON_BUILD_ID": "mine", "TEMPORAL_WORKER_BUILD_ID": "0.1.0-ab12"})

        assert (settings.deployment, settings.build_id) == ("baton/baton", "0.1.0-ab12")
        assert (own.deployment, own.build_id) == ("baton", "mine")
        assert "BATON_BUILD_ID" not in {variable["name"] for variable in WORKER["env"]}

    def test_the_backlog_is_that_of_the_workers_own_queue(self) -> None:
        """The service, the namespace and the task queue stand in several places."""
        by_title = {titled(resource): resource["spec"] for resource in RESOURCES}
        (trigger,) = by_title["WorkerResourceTemplate baton-backlog"]["template"]["spec"]["triggers"]
        worker = by_title["WorkerDeployment baton"]

        assert trigger["metadata"]["endpoint"] == by_title["Connection temporal"]["hostPort"]
        assert by_title["Connection temporal"]["hostPort"] == SETTINGS["TEMPORAL_ADDRESS"]
        assert worker["workerOptions"]["temporalNamespace"] == SETTINGS["TEMPORAL_NAMESPACE"]
        assert trigger["metadata"]["taskQueue"] == Settings.of(SETTINGS).task_queue
        for title in ("backlog", "disruption"):
            template = by_title[f"WorkerResourceTemplate baton-{title}"]
            assert template["workerDeploymentRef"] == {"name": "baton"}

    def test_the_controller_is_told_to_allow_what_it_shall_make(self) -> None:
        """Its webhook refuses every other kind."""
        values = yaml.safe_load((FOLDER / "controller-values.yaml").read_text(encoding="utf-8"))
        allowed = {
            (kind, group)
            for entry in values["workerResourceTemplate"]["allowedResources"]
            for kind in entry["kinds"]
            for group in entry["apiGroups"]
        }
        made = [r["spec"]["template"] for r in RESOURCES if r["kind"] == "WorkerResourceTemplate"]

        assert {(template["kind"], template["apiVersion"].split("/")[0]) for template in made} == allowed

    def test_stages_in_progress_have_their_time(self) -> None:
        """The pod lives longer than the worker waits for them."""
        grace = next(v["value"] for v in WORKER["env"] if v["name"] == "BATON_GRACE_SECONDS")

        assert float(grace) < PODS["WorkerDeployment baton"]["terminationGracePeriodSeconds"]


class TestServices:
    @pytest.mark.parametrize("name", ["baton-codec", "baton-console", "baton-serve"])
    def test_it_runs_twice_behind_its_service(self, name: str) -> None:
        """One of them can go without anybody noticing."""
        by_title = {titled(resource): resource["spec"] for resource in RESOURCES}
        deployment, service = by_title[f"Deployment {name}"], by_title[f"Service {name}"]
        (container,) = deployment["template"]["spec"]["containers"]
        labels = deployment["template"]["metadata"]["labels"]

        assert deployment["replicas"] == 2
        assert deployment["selector"]["matchLabels"] == service["selector"] == labels
        assert service["ports"][0]["targetPort"] == container["ports"][0]["name"]
        assert str(container["ports"][0]["containerPort"]) in json.dumps([container.get("args"), container.get("env")])
        assert by_title[f"PodDisruptionBudget {name}"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}

    def test_the_consoles_people_come_from_a_proxy(self) -> None:
        """A console with links has sessions of its own, which a second one does not know."""
        (console,) = PODS["Deployment baton-console"]["containers"]

        assert "--people=/etc/baton-people/people.toml" in console["args"]
        people = tomllib.loads((FOLDER / "people.toml").read_text(encoding="utf-8"))
        assert people.keys() == {"addresses", "user", "groups", "roles"}
        assert set(people["roles"].values()) == {role.name.lower() for role in Role}
