"""Databases, queues and other services that a project's compose files start, and its container images."""

import re
from collections.abc import Iterator

from activities.project_init.files import SourceTree
from activities.project_init.outline import Node, outline
from activities.project_init.records import EntryPoint, Evidence, Technology
from activities.project_init.roles import belongs_to_project

_COMPOSE = re.compile(r"(.*/)?(docker-)?compose([.-][\w.-]+)?\.ya?ml")
_DOCKERFILE = re.compile(r"(.*/)?((Docker|Container)file([.-](?!dockerignore)[\w.-]+)?|[\w-]+\.(Docker|Container)file)")
_REGISTRY_OR_TAG = re.compile(r"^(?:[\w-]+\.[\w.-]+|localhost)(?::\d+)?/|[:@].*")
_HERE_DOCUMENT = re.compile(r"(?<!\S)\d*<<-?([\"']?)(\w+)\1")
_MOST_FILES = 50
_MOST_SERVICES = 100
_KINDS = {
    "database": "postgres postgis timescaledb mysql mariadb mongo redis valkey sqlite cassandra scylla cockroach"
    " clickhouse neo4j influxdb couchdb dynamodb mssql oracle dragonfly surrealdb supabase arangodb",
    "search": "elasticsearch opensearch meilisearch typesense solr qdrant weaviate milvus chroma",
    "message broker": "rabbitmq kafka redpanda nats pulsar mosquitto activemq zookeeper localstack",
    "workflow engine": "temporal airflow prefect camunda n8n",
    "object store": "minio seaweedfs azurite",
    "observability": "prometheus grafana jaeger otel opentelemetry loki tempo zipkin sentry",
    "proxy": "nginx traefik caddy envoy haproxy",
    "identity": "keycloak dex authentik vault",
    "mail": "mailhog mailpit maildev",
    "language model": "ollama vllm litellm",
}


def kind_of_image(image: str) -> str:
    """Return what a container image is for; the answer always ends in `service`.

    Example:
        >>> kind_of_image("ghcr.io/acme/postgres:16"), kind_of_image("acme/app")
        ('database service', 'service')
    """
    parts = re.split(r"[-_./]", _REGISTRY_OR_TAG.sub("", image.lower()))
    for kind, words in _KINDS.items():
        if any(part.startswith(tuple(words.split())) for part in parts):
            return f"{kind} service"
    return "service"


def compose_files(tree: SourceTree) -> list[str]:
    """Return the project's compose files, least deep first."""
    return [path for path in tree.anywhere(_COMPOSE.pattern) if belongs_to_project(path)][:_MOST_FILES]


def container_files(tree: SourceTree) -> list[str]:
    """Return the project's Dockerfiles and Containerfiles, least deep first."""
    return [path for path in tree.anywhere(_DOCKERFILE.pattern) if belongs_to_project(path)][:_MOST_FILES]


def find_services(tree: SourceTree) -> tuple[Technology, ...]:
    """Return the services that compose files start, with image, and ports where they are published.

    Of one file the first hundred are returned; nobody has written more by hand.
    """
    found: list[Technology] = []
    for path in compose_files(tree):
        services: dict[str, list[Node]] = {}
        for node in outline(tree.text(path) or ""):
            if len(node.path) >= 2 and node.path[0] == "services":
                services.setdefault(node.path[1], []).append(node)
        found.extend(_service(path, name, nodes) for name, nodes in list(services.items())[:_MOST_SERVICES])
    return tuple(found)


def _service(path: str, name: str, nodes: list[Node]) -> Technology:
    image = next((node for node in nodes if node.path[2:] == ("image",)), None)
    ports = [node.value for node in nodes if node.path[2:3] == ("ports",) and len(node.path) == 4]
    category = kind_of_image(image.value) if image and image.value else "own service"
    version = image.value if image else "built here"
    if ports:
        version += ", ports " + ", ".join(ports)
    line = image.line if image else nodes[0].line
    return Technology(name=name, category=category, version=version, evidence=Evidence(path=path, line=line))


def find_images(tree: SourceTree) -> tuple[tuple[Technology, ...], tuple[EntryPoint, ...]]:
    """Return the base images that container files build on, and the commands that their containers start."""
    bases: dict[str, Technology] = {}
    starts: list[EntryPoint] = []
    for path in container_files(tree):
        stages: set[str] = set()
        for number, words in _instructions(tree.text(path) or ""):
            evidence = Evidence(path=path, line=number)
            instruction = words[0].upper()
            if instruction == "FROM" and len(words) > 1:
                image = next((word for word in words[1:] if not word.startswith("--")), "")
                if image and image not in stages:
                    bases.setdefault(image, Technology(name=image, category="base image", evidence=evidence))
                stages |= {words[-1]} if len(words) > 3 and words[-2].upper() == "AS" else set()
            elif instruction in ("CMD", "ENTRYPOINT") and len(words) > 1:
                target = " ".join(words[1:])
                kind = "container command" if instruction == "CMD" else "container entry point"
                starts.append(EntryPoint(name=path, kind=kind, target=target, evidence=evidence))
    return tuple(bases.values()), tuple(starts)


def _instructions(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each instruction with the line it begins on; comments and here-documents are left out."""
    waiting, first = "", 0
    here: list[str] = []  # the words that end the here-documents of the last instruction
    for number, line in enumerate(text.split("\n"), 1):
        said = line.strip()
        if here:
            here = here[said == here[0] :]
        elif said and not said.startswith("#"):
            first = first if waiting else number
            waiting += line.rstrip().removesuffix("\\")
            if not said.endswith("\\"):
                yield first, waiting.split()
                here = [word for _, word in _HERE_DOCUMENT.findall(waiting)]
                waiting = ""
    if waiting.strip():  # the file ends with a line that goes on
        yield first, waiting.split()
