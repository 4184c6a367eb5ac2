"""The files in `deploy/` and the Dockerfile: they use settings that exist, agree with each other and grant little.

Images and clusters cannot be run in a test. `make release-check` runs the steps of the Dockerfile in a fresh virtual
environment and lints it.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import yaml

from config.loading import load_settings
from tests.cases import each_case
from tests.deploy.dockerfile import read_stages
from tests.live import live, make_settings
from tests.server.http_client import fetch
from tests.server.sample_catalog import SampleCatalog
from tests.test_architecture import ROOT

DEPLOY = ROOT / "deploy"
SITE = "kb.example.com"


def load_yaml(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def check_environment(environ: dict[str, str]) -> None:
    """Fails unless the server starts with these variables."""
    values = {name: re.sub(r"\$\{SITE[^}]*\}", SITE, value) for name, value in environ.items()}
    assert all(name.startswith("FLORILEGIUM_") for name in values)
    load_settings({}, {"HOME": "/nonexistent", "FLORILEGIUM_DATA_DIR": "/data", **values}, None)


# -- container ----------------------------------------------------------------------------------------------------


def image_environment() -> dict[str, str]:
    variables = dict(
        assignment.split("=", 1)
        for step in read_stages(ROOT / "Dockerfile")[-1]
        if step.name == "ENV"
        for assignment in shlex.split(step.text)
    )
    return {name: value for name, value in variables.items() if name.startswith("FLORILEGIUM_")}


def test_the_image_contains_every_package_and_nothing_that_is_ignored() -> None:
    build, final = read_stages(ROOT / "Dockerfile")
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["build-backend"]["module-name"]
    copied = [step.text.split()[0] for step in (*build, *final) if step.name == "COPY" and "--from" not in step.text]
    names = {name.rstrip("/") for step in build if step.name == "COPY" for name in step.text.split()[:-1]}
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert set(packages) <= names
    assert all((ROOT / name).exists() for name in (*names, *copied))
    assert names | {name.rstrip("/") for name in copied} == kept


def test_the_image_runs_without_privileges_and_from_the_hashed_lock() -> None:
    build, final = read_stages(ROOT / "Dockerfile")
    users = [step.text for step in final if step.name == "USER"]

    assert any("--require-hashes -r requirements.txt" in step.text for step in build if step.name == "RUN")
    assert users == ["10001:10001"]
    health_check = next(step.text for step in final if step.name == "HEALTHCHECK")
    assert health_check.endswith('CMD ["florilegium", "healthcheck"]')
    assert final[-1].text == '["serve"]'
    check_environment(image_environment())


async def test_the_health_check_of_the_image_is_answered(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, host="0.0.0.0", public_url=f"https://{SITE}", require_auth=True, jwt_secret="")
    async with live(settings, catalog=samples.catalog) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert (await fetch(url, "GET", "/healthz")).status == 200
        assert (await fetch(url, "GET", "/readyz", {"Host": SITE})).status == 200


def test_compose_services_have_a_read_only_root_and_no_privileges() -> None:
    [compose] = load_yaml(DEPLOY / "compose.yaml")
    server, proxy = compose["services"]["florilegium"], compose["services"]["caddy"]

    for service in (server, proxy):
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert any(mount.startswith("/tmp") for mount in service["tmpfs"])
    assert "ports" not in server
    assert server["environment"]["FLORILEGIUM_TRUSTED_PROXIES"] == proxy["networks"]["inside"]["ipv4_address"]
    mounted = [volume.split(":")[0] for volume in (*server["volumes"], *proxy["volumes"])]
    assert all((DEPLOY / name).exists() if name.startswith(".") else name in compose["volumes"] for name in mounted)
    check_environment({**image_environment(), **server["environment"]})
    grace_s = float(server["environment"]["FLORILEGIUM_SHUTDOWN_GRACE_S"])
    assert float(server["stop_grace_period"].removesuffix("s")) > grace_s


def test_the_scaled_compose_file_runs_two_workers_without_privileges(tmp_path: Path) -> None:
    [compose] = load_yaml(DEPLOY / "compose.scale.yaml")
    services = compose["services"]
    server = services["florilegium"]
    secrets = {
        "storage_url": "postgresql://florilegium:p@postgres:5432/florilegium",
        "session_url": "redis://:p@valkey/0",
    }
    for name, text in secrets.items():
        (tmp_path / name).write_text(text)
    environ = {name: value.replace("/run/secrets", str(tmp_path)) for name, value in server["environment"].items()}

    check_environment({**image_environment(), **environ})
    assert environ["FLORILEGIUM_WORKERS"] == "2"
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert set(service.get("secrets", ())) <= compose["secrets"].keys()
    assert [name for name, service in services.items() if "ports" in service] == ["caddy"]
    assert environ["FLORILEGIUM_TRUSTED_PROXIES"] == services["caddy"]["networks"]["inside"]["ipv4_address"]


# -- systemd ------------------------------------------------------------------------------------------------------


class UnitParser(ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def read_unit(name: str) -> UnitParser:
    unit = UnitParser(strict=False, interpolation=None, comment_prefixes=("#",))
    unit.read(DEPLOY / "systemd" / name)
    return unit


@each_case("name", ["florilegium.service", "florilegium-backup.service", "florilegium-backup-postgres.service"])
def test_systemd_services_are_confined(name: str) -> None:
    service = read_unit(name)["Service"]

    for directive in (
        "DynamicUser",
        "NoNewPrivileges",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectHome",
        "LockPersonality",
    ):
        assert service[directive] == "yes", directive
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["User"] == "florilegium"
    installation = (ROOT / "docs" / "deploy.md").read_text()
    assert f"groupadd --system {service['SupplementaryGroups']}\n" in installation, "it reads the file of settings"
    command = Path(service["ExecStart"].split()[0]).name
    assert command == "florilegium" or (DEPLOY / "scripts" / command).exists()


def test_the_unit_uses_the_socket_notifications_and_signals() -> None:
    service, socket = read_unit("florilegium.service"), read_unit("florilegium.socket")

    assert service["Unit"]["Requires"] == "florilegium.socket"
    assert socket["Socket"]["ListenStream"] == "127.0.0.1:8765"
    assert service["Service"]["Type"] == "notify"
    assert service["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert float(service["Service"]["WatchdogSec"]) > 0
    defaults = make_settings(Path("/data"), shutdown_grace_s=10)
    assert float(service["Service"]["TimeoutStopSec"]) > defaults.shutdown_delay_s + defaults.shutdown_grace_s


# -- Kubernetes ---------------------------------------------------------------------------------------------------


def kubernetes_objects() -> Iterator[dict[str, Any]]:
    [kustomization] = load_yaml(DEPLOY / "kubernetes" / "kustomization.yaml")
    files = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(kustomization["resources"])
    for name in kustomization["resources"]:
        yield from load_yaml(DEPLOY / "kubernetes" / name)


def pod_specs() -> dict[str, dict[str, Any]]:
    by_kind = {item["kind"]: item for item in kubernetes_objects()}
    return {
        "server": by_kind["StatefulSet"]["spec"]["template"]["spec"],
        "backup": by_kind["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"],
    }


@each_case("part", ["server", "backup"])
def test_pods_meet_the_restricted_standard(part: str) -> None:
    pod = pod_specs()[part]
    container = pod["containers"][0]

    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/data", "/tmp"}


def test_probes_use_existing_paths_and_a_name_that_the_server_accepts() -> None:
    [kustomization] = load_yaml(DEPLOY / "kubernetes" / "kustomization.yaml")
    literals = dict(entry.split("=", 1) for entry in kustomization["configMapGenerator"][0]["literals"])
    server = pod_specs()["server"]
    container = server["containers"][0]

    check_environment({**image_environment(), **literals})
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        request = container[probe]["httpGet"]
        assert request["path"] == path
        assert request["httpHeaders"] == [{"name": "Host", "value": SITE}]
    assert literals["FLORILEGIUM_PUBLIC_URL"] == f"https://{SITE}"
    delay_s = float(literals["FLORILEGIUM_SHUTDOWN_DELAY_S"])
    assert server["terminationGracePeriodSeconds"] > delay_s + 10
    assert delay_s >= 3 * container["readinessProbe"]["periodSeconds"]


def test_all_files_with_names_to_replace_are_listed() -> None:
    folder = DEPLOY / "kubernetes"
    comment = "\n".join(
        line for line in (folder / "kustomization.yaml").read_text().splitlines() if line.startswith("#")
    )
    files = {path.name for path in folder.glob("*.yaml") if SITE in path.read_text()}

    assert {name for name in files - {"kustomization.yaml"} if name not in comment} == set()


def test_requests_reach_the_server_and_not_the_backup() -> None:
    by_kind = {item["kind"]: item for item in kubernetes_objects()}
    selector = by_kind["Service"]["spec"]["selector"]

    assert selector == by_kind["StatefulSet"]["spec"]["selector"]["matchLabels"] == {"florilegium/part": "server"}
    assert by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == selector
    assert by_kind["StatefulSet"]["spec"]["replicas"] == 1
    backend = by_kind["Ingress"]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert backend["name"] == by_kind["Service"]["metadata"]["name"]


def apply_json_patch(document: dict[str, Any], operations: list[dict[str, Any]]) -> None:
    """Applies the operations of RFC 6902 that the files use: `add`, `replace` and `remove`."""
    for operation in operations:
        *parents, last = operation["path"].split("/")[1:]
        node: Any = document
        for part in parents:
            node = node[int(part) if isinstance(node, list) else part]
        if operation["op"] == "add" and last == "-":
            node.append(operation["value"])
        elif operation["op"] == "add":
            assert last not in node
            node[last] = operation["value"]
        elif operation["op"] == "replace":
            assert last in node
            node[last] = operation["value"]
        else:
            assert operation["op"] == "remove"
            del node[last]


def test_several_servers_use_postgresql_and_redis_and_no_shared_volume() -> None:
    folder = DEPLOY / "kubernetes-scale"
    [kustomization] = load_yaml(folder / "kustomization.yaml")
    by_kind = {item["kind"]: item for item in kubernetes_objects()}
    servers = by_kind["StatefulSet"]
    [operations] = load_yaml(folder / "servers.yaml")
    apply_json_patch(servers, operations)
    pod = servers["spec"]["template"]["spec"]
    container = pod["containers"][0]

    assert servers["spec"]["replicas"] > 1
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert "volumeClaimTemplates" not in servers["spec"]
    secret = container["envFrom"][1]["secretRef"]["name"]
    assert f"create secret generic {secret}" in (folder / "kustomization.yaml").read_text()
    deleted = [yaml.safe_load(patch["patch"]) for patch in kustomization["patches"] if "patch" in patch]
    backup = {(item["kind"], item["metadata"]["name"]) for item in load_yaml(DEPLOY / "kubernetes" / "backup.yaml")}
    assert {(item["kind"], item["metadata"]["name"]) for item in deleted} == backup
    files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml", "servers.yaml"}
    assert {"../kubernetes", *files} == set(kustomization["resources"])
    [disruption] = load_yaml(folder / "disruption.yaml")
    assert disruption["spec"]["selector"] == servers["spec"]["selector"]


def test_the_dump_of_several_servers_is_confined_and_uses_the_script() -> None:
    claim, job = load_yaml(DEPLOY / "kubernetes-scale" / "backup.yaml")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    copying, dumping = pod["initContainers"][0], pod["containers"][0]

    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (copying, dumping):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
    script = Path(copying["command"][1])
    assert (DEPLOY / "scripts" / script.name).exists()
    assert dumping["command"][0] == f"/scripts/{script.name}"
    assert pod["volumes"][1]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    [compose] = load_yaml(DEPLOY / "compose.scale.yaml")
    assert dumping["image"] == compose["services"]["postgres"]["image"]


# -- proxies ------------------------------------------------------------------------------------------------------


def test_proxies_pass_streams_on_at_once_and_hide_the_metrics() -> None:
    caddy, nginx = (DEPLOY / "proxy" / "Caddyfile").read_text(), (DEPLOY / "proxy" / "nginx.conf").read_text()
    [traefik] = load_yaml(DEPLOY / "proxy" / "traefik.yaml")

    assert "flush_interval -1" in caddy
    assert "respond @private 404" in caddy
    for directive in ("proxy_buffering off;", "proxy_set_header Upgrade $http_upgrade;", "location = /metrics {"):
        assert directive in nginx
    assert "proxy_add_x_forwarded_for" not in re.sub(r"#.*", "", nginx)
    balancer = traefik["http"]["services"]["florilegium"]["loadBalancer"]
    assert balancer["passHostHeader"] is True
    assert balancer["healthCheck"]["path"] == "/readyz"
    assert "!Path(`/metrics`)" in traefik["http"]["routers"]["florilegium"]["rule"]
