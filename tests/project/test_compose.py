"""docker-compose.yml and deploy/: what can be known of them without a Docker engine."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from temporalio.envconfig import ClientConfig

from baton.devserver import TUNED
from baton.keys.store_keyring import ENVIRONMENT, PRODUCTION, read_file
from baton.wire.names import SEARCH_ATTRIBUTES
from baton.worker import Settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
WORKER_VARIABLES = {f"BATON_{name.upper()}" for name in Settings.model_fields} | {"BATON_KEYS", ENVIRONMENT}
VOLUME_OF_KEYS = "keys:/etc/baton"

JOBS = {name for name, service in SERVICES.items() if str(service["restart"]).startswith("on-failure")}
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:?[-?])?([^}]*)\}")

each_service = pytest.mark.parametrize("name", sorted(SERVICES))
each_lasting_service = pytest.mark.parametrize("name", sorted(SERVICES.keys() - JOBS))
each_job = pytest.mark.parametrize("name", sorted(JOBS))


def interpolated(value: object) -> list[tuple[str, str, str]]:
    """Return every ``${NAME…}`` below a value: the name, the operator and what follows it."""
    if isinstance(value, dict):
        return [match for item in value.values() for match in interpolated(item)]
    if isinstance(value, list):
        return [match for item in value for match in interpolated(item)]
    return VARIABLE.findall(value) if isinstance(value, str) else []


def shell_body(job: str) -> str:
    """Return the script of a job as its shell reads it: compose turns ``$$`` into ``$``."""
    (body,) = SERVICES[job]["command"]
    return cast("str", body).replace("$$", "$")


class TestServices:
    """Every service of docker-compose.yml."""

    def test_the_file_is_valid(self) -> None:
        """By the schema of the Compose specification."""
        check = Path(sys.executable).with_name("check-jsonschema")
        file = ROOT / "docker-compose.yml"
        subprocess.run([check, "--builtin-schema", "vendor.compose-spec", file], capture_output=True, check=True)

    @each_service
    def test_its_image_is_pinned_to_a_version(self, name: str) -> None:
        """The same file brings up the same programs next year: no tag that moves."""
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-\w+)?", SERVICES[name]["image"])

    @each_service
    def test_it_waits_for_services_that_exist_and_for_a_state_they_reach(self, name: str) -> None:
        """A job is waited for until it is done, any other service until it is healthy."""
        for dependency, condition in SERVICES[name].get("depends_on", {}).items():
            assert condition == {
                "condition": "service_completed_successfully" if dependency in JOBS else "service_healthy"
            }
            assert dependency in SERVICES

    @each_service
    def test_it_is_bounded_and_cannot_gain_privileges(self, name: str) -> None:
        """No service takes the whole machine, and none becomes more than it started as."""
        service = SERVICES[name]

        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}
        assert "no-new-privileges:true" in service["security_opt"]
        assert not service.get("privileged")
        # Postgres starts as root to own its volume, and then becomes `postgres`.
        assert (name == "postgresql") or service["cap_drop"] == ["ALL"]

    @each_service
    def test_its_ports_are_open_to_this_machine_only(self, name: str) -> None:
        """Neither the service nor its UI authenticates callers, so only local callers may connect."""
        assert [port for port in SERVICES[name].get("ports", []) if not port.startswith("127.0.0.1:")] == []

    @each_service
    def test_its_networks_and_volumes_are_declared(self, name: str) -> None:
        """Compose refuses a file that names what it does not declare; a path must lie in the checkout."""
        service = SERVICES[name]
        sources = [volume.split(":")[0] for volume in service.get("volumes", []) if not volume.startswith("${")]

        assert set(service["networks"]) <= COMPOSE["networks"].keys()
        assert [s for s in sources if s not in COMPOSE["volumes"] and not (ROOT / s).exists()] == []

    @each_lasting_service
    def test_it_comes_back_and_tells_its_health(self, name: str) -> None:
        """A service that lasts is restarted when it dies, and says when it is ready."""
        service = SERVICES[name]

        assert service["restart"] == "unless-stopped"
        assert "healthcheck" in service or "build" in service  # an image built here carries its own: see below

    @each_job
    def test_a_job_gives_up_in_the_end(self, name: str) -> None:
        """A job that fails is tried again a few times and not for ever."""
        assert re.fullmatch(r"on-failure:\d+", SERVICES[name]["restart"])

    @each_job
    def test_a_jobs_script_is_sound_shell(self, name: str) -> None:
        """The shell accepts the script as compose hands it over, and stops at the first command that fails."""
        checked = subprocess.run(["sh", "-n"], input=shell_body(name), capture_output=True, text=True, check=False)

        assert (checked.returncode, checked.stderr) == (0, "")
        assert SERVICES[name]["entrypoint"] == ["/bin/sh", "-euc"]

    @each_job
    def test_a_jobs_dollars_are_its_own(self, name: str) -> None:
        """Compose would replace a single dollar by a variable of the operator's shell."""
        (body,) = SERVICES[name]["command"]

        assert re.search(r"(?<!\$)\$(?!\$)", body.replace("$$", "")) is None

    def test_the_database_is_reached_by_the_service_alone(self) -> None:
        """The database listens on a network of its own that leads nowhere else, and on no port of the machine."""
        reaching = {name for name, service in SERVICES.items() if "database" in service["networks"]}

        assert reaching == {"postgresql", "temporal-schema", "temporal"}
        assert COMPOSE["networks"]["database"] == {"internal": True}
        assert SERVICES["postgresql"]["networks"] == ["database"]


class TestSettings:
    """What the operator sets, and where from."""

    def test_every_variable_is_required_or_has_a_default(self) -> None:
        """A forgotten variable is a message at start, never an empty string, but for a token that may be missing."""
        assert [name for name, operator, rest in interpolated(SERVICES) if not operator or not rest] == [
            "BATON_CODEC_TOKEN"
        ]

    def test_payloads_are_readable_while_no_worker_is(self) -> None:
        """Codec server and Prometheus wait for no worker."""
        assert "worker" not in SERVICES["codec"]["depends_on"]
        assert "depends_on" not in SERVICES["prometheus"]

    def test_the_example_names_every_variable(self) -> None:
        """deploy/.env.example leaves out no variable and invents none."""
        example = (ROOT / "deploy" / ".env.example").read_text(encoding="utf-8")

        assert set(re.findall(r"(?m)^#?(\w+)=", example)) == {name for name, _, _ in interpolated(SERVICES)}

    def test_passwords_come_from_outside_and_are_required(self) -> None:
        """No password is committed, and none is guessed."""
        secret = re.compile("PASSWORD|PWD")
        environments = [service.get("environment", {}) for service in SERVICES.values()]
        values = [value for environment in environments for key, value in environment.items() if secret.search(key)]

        assert len(values) == 3
        assert [value for value in values if not value.startswith("${POSTGRES_PASSWORD:?")] == []

    def test_the_filled_in_example_is_not_committed(self) -> None:
        """Git ignores .env, which holds the password."""
        ignored = subprocess.run(["git", "check-ignore", "--quiet", ".env"], cwd=ROOT, check=False)

        assert ignored.returncode == 0

    def test_the_service_reads_the_dynamic_config_that_is_mounted(self) -> None:
        """The file named in the environment is the file in deploy/, tuned like the embedded server."""
        temporal = SERVICES["temporal"]
        (mount,) = temporal["volumes"]
        source, target, mode = mount.split(":")
        named = Path("/etc/temporal") / temporal["environment"]["DYNAMIC_CONFIG_FILE_PATH"]
        settings = yaml.safe_load((ROOT / source / named.name).read_text(encoding="utf-8"))

        assert (named.parent.as_posix(), mode) == (target, "ro")
        assert settings.pop("frontend.WorkflowPauseEnabled") == [{"value": True}]
        # The embedded server's one further setting lifts a guard against runs that restart themselves in a loop.
        kept = TUNED.keys() - {"history.workflowIdReuseMinimalInterval"}
        assert settings == {name: [{"value": TUNED[name]}] for name in kept}

    def test_the_namespace_gets_every_search_attribute(self) -> None:
        """The set-up job registers exactly the search attributes that pipelines write."""
        (listed,) = re.findall(r"for attribute in ([\w =]+)", shell_body("temporal-setup"))

        assert dict(attribute.split("=") for attribute in listed.split()) == SEARCH_ATTRIBUTES

    def test_the_worker_knows_every_variable_that_it_is_given(self) -> None:
        """A misspelt setting would be a default in disguise."""
        members = {name for name in SERVICES["worker"]["environment"] if name.startswith("BATON_")}

        assert members <= WORKER_VARIABLES

    def test_a_worker_is_not_killed_before_its_grace_is_over(self) -> None:
        """Stages in progress get the time that the worker was told they have."""
        worker = SERVICES["worker"]

        assert worker["stop_grace_period"] == "1m"
        assert float(worker["environment"]["BATON_GRACE_SECONDS"]) < 60

    def test_worker_ui_and_setup_agree_on_the_namespace(self) -> None:
        """The worker polls the namespace that was set up, and the UI opens on it."""
        setup, worker, ui = (SERVICES[name]["environment"] for name in ("temporal-setup", "worker", "temporal-ui"))

        assert setup["TEMPORAL_NAMESPACE"] == worker["TEMPORAL_NAMESPACE"] == ui["TEMPORAL_DEFAULT_NAMESPACE"]


class TestWorkerImage:
    """deploy/Dockerfile and how docker-compose.yml runs it."""

    def test_every_base_image_is_pinned(self) -> None:
        """Both stages start from one exact Python, so that the packages run where they were installed."""
        bases = {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("FROM ")}

        assert len(bases) == 1
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", bases.pop())

    def test_it_installs_what_the_pins_hold_and_nothing_else(self) -> None:
        """Every install is checked against its hash, or is the wheel of the checkout, offline."""
        steps = re.findall(r"pip install (.+)", DOCKERFILE)

        assert len(steps) == 3
        assert [
            step for step in steps if "--require-hashes" not in step and "--no-deps --offline /wheels/*.whl" not in step
        ] == []

    def test_it_does_not_run_as_root(self) -> None:
        """The last stage gives root up before its entry point, and compose asks for the same user."""
        users = re.findall(r"(?m)^USER (\S+)", DOCKERFILE)

        assert users == [SERVICES["worker"]["user"]]
        assert int(users[0].split(":")[0]) > 0
        assert DOCKERFILE.index("\nUSER ") < DOCKERFILE.index("\nENTRYPOINT ")

    def test_it_writes_only_where_it_may(self) -> None:
        """Its file system is read-only but for a scratch folder and the volume that the image prepares."""
        worker = SERVICES["worker"]
        volume, keys, witness = (mount.split(":") for mount in worker["volumes"] if "$" not in mount)
        paths = [worker["environment"][f"BATON_{name}"] for name in ("ARTIFACTS", "LEDGER", "VAULT")]

        assert worker["read_only"] is True
        # Without exec no script of a worktree of `delivery` can run; without a size it takes the worker's memory.
        assert worker["tmpfs"] == ["/tmp:exec,size=${BATON_SCRATCH:-512m}"]
        assert worker["volumes"][-1].endswith(":/files")
        assert f"--owner=baton --group=baton --mode=0750 {volume[1]} {keys[1]} {witness[1]}\n" in DOCKERFILE
        assert [path for path in paths if not path.startswith(f"{volume[1]}/")] == []
        assert keys[2:] == ["ro"]
        assert worker["environment"]["BATON_WITNESS"].startswith(f"{witness[1]}/")

    def test_its_user_reads_what_a_strict_umask_kept_to_the_owner(self) -> None:
        """COPY keeps the modes of the checkout, so the image opens everything of the application for reading."""
        application = DOCKERFILE.split("\nWORKDIR /app\n")[1]

        assert re.fullmatch(r"(COPY .+\n)+(#.+\n)RUN chmod --recursive a\+rX \.\n", application.split("\n\n")[0] + "\n")

    def test_it_tells_its_health_and_starts_the_worker(self) -> None:
        """The container's health is the worker's, asked of the service; its main process is the worker."""
        assert re.search(r'(?m)^HEALTHCHECK .+ CMD \["python", "healthcheck\.py"\]$', DOCKERFILE)
        assert DOCKERFILE.rstrip().endswith('ENTRYPOINT ["python", "-m", "baton.shipped"]')

    def test_the_builder_is_sent_what_is_copied_and_nothing_else(self) -> None:
        """Everything copied is let through, by name; all else stays out: .env, .git, run data."""
        ignore = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split("*\n", 1)[1]
        let_through = set(re.findall(r"(?m)^!(\S+)$", ignore))
        copied = re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", DOCKERFILE)
        sources = {source for step in copied for source in step.split()}

        assert {
            source.split("/")[0] if source.startswith("requirements/") else source for source in sources
        } == let_through
        assert [source for source in sources if not (ROOT / source).exists()] == []

    def test_its_tag_is_the_projects_version(self) -> None:
        """A worker's image says which Baton it holds."""
        version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

        assert SERVICES["worker"]["image"] == f"baton-worker:{version}"


class TestKeys:
    """The keys of the compose file: made once, read by those who need them."""

    def test_the_job_makes_keys_for_production_once(self, tmp_path: Path) -> None:
        """Its script creates a file that production accepts, and keeps an existing one."""
        file = tmp_path / "keys.toml"
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        items = []
        for _ in range(2):
            subprocess.run(
                ["sh", "-euc", shell_body("keys")],
                env={"PATH": programs, "BATON_KEYS": str(file)},
                cwd=tmp_path,
                capture_output=True,
                check=True,
            )
            items.append(file.read_bytes())

        assert items[0] == items[1]
        assert not read_file(file).is_development

    def test_worker_and_codec_server_read_the_keys_that_the_job_made(self) -> None:
        """They name the same file, cannot write it, wait for it, and refuse keys of a developer's machine."""
        job, worker, *readers = (SERVICES[name] for name in ("keys", "worker", "codec", "console", "serve"))

        assert job["volumes"] == [VOLUME_OF_KEYS]
        assert worker["depends_on"]["keys"] == {"condition": "service_completed_successfully"}
        for reader in (worker, *readers):
            assert f"{VOLUME_OF_KEYS}:ro" in reader["volumes"]
            assert reader["environment"]["BATON_KEYS"] == job["environment"]["BATON_KEYS"]
            assert reader["environment"][ENVIRONMENT] == PRODUCTION
            assert reader["environment"]["BATON_ENCRYPT"] == worker["environment"]["BATON_ENCRYPT"]

    def test_nobody_else_reads_them(self) -> None:
        """The keys are in a volume of their own, so that a backup of the artifacts does not hold them."""
        holders = {name for name, service in SERVICES.items() if "keys" in str(service.get("volumes", []))}

        assert holders == {"keys", "worker", "codec", "console", "serve"}


class TestTelemetry:
    """Prometheus and Grafana, for those who ask for them."""

    def test_they_come_up_only_with_their_profile(self) -> None:
        """Everything else comes up without a profile."""
        assert {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service} == {
            "prometheus": ["metrics"],
            "grafana": ["metrics"],
        }

    def test_prometheus_reads_the_port_at_which_workers_serve(self) -> None:
        """The port is in two files."""
        scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
        (job,) = scraped["scrape_configs"]
        (where,) = job["dns_sd_configs"]

        assert SERVICES["worker"]["environment"]["BATON_METRICS"] == f"0.0.0.0:{where['port']}"
        assert where["names"] == ["worker"]


class TestProfiles:
    """deploy/temporal.toml, examples of how to connect."""

    PROFILES = ClientConfig.load(config_source=ROOT / "deploy" / "temporal.toml").profiles

    def test_the_default_is_the_service_of_the_compose_file(self) -> None:
        """Without further ado, a worker and the command line on this machine reach what compose brought up."""
        default = self.PROFILES["default"]

        assert default.address == f"localhost:{SERVICES['temporal']['ports'][0].split(':')[-1]}"
        assert default.namespace == SERVICES["temporal-setup"]["environment"]["TEMPORAL_NAMESPACE"]

    def test_a_cluster_is_reached_by_tls_with_a_client_certificate(self) -> None:
        """The client knows every key of the TLS table, and reads all three files."""
        tls = self.PROFILES["cluster"].tls

        assert tls is not None
        assert all(
            isinstance(file, Path) for file in (tls.server_root_ca_cert, tls.client_cert, tls.client_private_key)
        )

    def test_an_api_key_switches_tls_on(self) -> None:
        """Temporal Cloud's profile needs nothing but the key from the environment."""
        connect = ClientConfig.load_client_connect_config(
            profile="cloud",
            config_file=str(ROOT / "deploy" / "temporal.toml"),
            override_env_vars={"TEMPORAL_API_KEY": "from the environment"},
        )

        assert (connect.get("api_key"), connect.get("tls")) == ("from the environment", True)

    def test_no_profile_holds_a_key(self) -> None:
        """Keys come from the environment and from files outside the checkout."""
        assert [name for name, profile in self.PROFILES.items() if profile.api_key is not None] == []
