"""The Helm chart makes what the Kustomize base makes: rendered, or by its text without helm."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
BASE = ROOT / "deploy" / "kubernetes" / "gateway"
CHART = ROOT / "deploy" / "helm" / "pgsluice"
RULES = ROOT / "deploy" / "prometheus" / "pgsluice.rules.yml"
KUBERNETES = "1.33"
OPERATOR = "monitoring.coreos.com/v1"
OF_A_RELEASE = {
    "checksum/settings",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
}


def base() -> dict[str, dict[str, Any]]:
    """Objects of the base by kind, with the image and the ConfigMap that its kustomization adds."""
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    found = {
        manifest["kind"]: manifest
        for name in kustomization["resources"]
        for manifest in yaml.safe_load_all((BASE / name).read_text())
    }
    (image,) = kustomization["images"]
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    container["image"] = f"{image['name']}:{image['newTag']}"
    (generated,) = kustomization["configMapGenerator"]
    found["ConfigMap"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": generated["name"]},
        "data": {name: (BASE / name).read_text() for name in generated["files"]},
    }
    return found


def without_release(value: Any) -> Any:
    """Leave out the labels and annotations that only a release has."""
    if isinstance(value, dict):
        kept = {k: without_release(v) for k, v in value.items() if k not in OF_A_RELEASE}
        return {k: v for k, v in kept.items() if not (k == "labels" and kept.get("name") is None)}
    return [without_release(one) for one in value] if isinstance(value, list) else value


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    helm = shutil.which("helm")
    if helm is None:
        if os.environ.get("PGSLUICE_REQUIRE_HELM", "0") not in ("", "0"):
            pytest.fail("PGSLUICE_REQUIRE_HELM is set, and there is no helm")
        pytest.skip("no helm is installed here: the chart's text was compared with the base")
    command = [helm, "template", "pgsluice", str(CHART), "--kube-version", KUBERNETES, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def rendered(*arguments: str) -> dict[str, dict[str, Any]]:
    done = template(*arguments)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one is not None]
    for one in objects:
        if one["apiVersion"] != OPERATOR:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
    return {one["kind"]: one for one in objects}


def test_values_beside_the_schema_are_refused() -> None:
    misspelt = template("--set", "replicas=3")
    negative = template("--set", "replicaCount=-1")

    assert misspelt.returncode != 0 and "replicas" in misspelt.stderr
    assert negative.returncode != 0 and "replicaCount" in negative.stderr


def test_the_chart_without_values_is_the_base() -> None:
    found, expected = rendered("--skip-tests"), base()

    assert found.keys() == expected.keys()
    for kind, wanted in expected.items():
        labels = found[kind]["metadata"].pop("labels")
        assert labels["app.kubernetes.io/name"] == "pgsluice"
        wanted["metadata"].pop("labels", None)
        assert without_release(found[kind]) == without_release(wanted), kind


def test_values_reach_what_they_are_for(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "image": {"repository": "r.example/g", "tag": "v9", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "existingSecret": "other",
        "existingSecretKey": "url",
        "settings": '[source]\nslot = "x"\n',
        "definitions": "-- {{ not a template }}\n",
        "group": "orders",
        "extraEnv": [{"name": "A", "value": "b"}],
        "extraEnvFrom": [{"secretRef": {"name": "kafka"}}],
        "initContainers": [{"name": "proxy", "image": "p", "restartPolicy": "Always"}],
        "extraContainers": [{"name": "beside", "image": "b"}],
        "replicaCount": 1,
        "extraVolumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
        "spool": {"size": "1Gi", "storageClassName": "fast"},
        "serviceAccount": {"create": True, "name": "irsa", "annotations": {"role": "arn"}},
        "podSecurityContext": {"runAsUser": 1, "supplementalGroups": [7]},
        "securityContext": {"runAsNonRoot": True},
        "affinity": {"nodeAffinity": {}},
        "podDisruptionBudget": {"enabled": False},
        "serviceMonitor": {"enabled": True, "labels": {"release": "kps"}, "interval": "15s"},
        "prometheusRule": {"enabled": True, "labels": {"release": "kps"}},
        "automountServiceAccountToken": True,
        "podAnnotations": None,  # helm merges maps: an empty one would leave the chart's
        "podLabels": {"team": "data"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "priorityClassName": "high",
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))

    objects = rendered("--values", str(tmp_path / "values.yaml"))
    spec = objects["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    container, beside = pod["containers"]

    assert objects["ConfigMap"]["data"] == {
        "pgsluice.toml": values["settings"],
        "replication.sql": values["definitions"],
    }
    assert (container["image"], container["imagePullPolicy"]) == ("r.example/g:v9", "Always")
    assert container["env"][0]["value"].endswith("/url") and container["env"][-1]["value"] == "b"
    assert container["volumeMounts"][-1] == values["extraVolumeMounts"][0]
    assert pod["volumes"][-1] == values["extraVolumes"][0]
    assert pod["volumes"][1]["secret"]["secretName"] == "other"
    for name in (
        "imagePullSecrets", "automountServiceAccountToken", "nodeSelector", "tolerations",
        "topologySpreadConstraints", "priorityClassName", "initContainers", "affinity",
    ):  # fmt: skip
        assert pod[name] == values[name]
    assert spec["replicas"] == 1
    assert container["args"][-2:] == ["--group", "orders"]
    assert container["envFrom"] == values["extraEnvFrom"]
    assert [beside] == values["extraContainers"]
    assert pod["securityContext"]["supplementalGroups"] == [7]
    assert container["securityContext"]["runAsNonRoot"] is True
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"] == "irsa"
    assert objects["ServiceAccount"]["metadata"]["annotations"] == {"role": "arn"}
    assert "PodDisruptionBudget" not in objects
    assert spec["template"]["metadata"]["annotations"].keys() == {"checksum/settings"}
    assert spec["template"]["metadata"]["labels"]["team"] == "data"
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"

    monitor, service = objects["ServiceMonitor"], objects["Service"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert monitor["metadata"]["labels"]["release"] == "kps"
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    assert endpoint == {
        "port": service["spec"]["ports"][0]["name"],
        "path": "/metrics",
        "interval": "15s",
    }
    rules = objects["PrometheusRule"]
    assert rules["metadata"]["labels"]["release"] == "kps"
    assert rules["spec"] == yaml.safe_load(RULES.read_text())


def test_helm_test_checks_as_the_gateway_would(tmp_path: Path) -> None:
    objects = rendered("--set", "extraEnv[0].name=A", "--set", "extraEnv[0].value=b")
    pod = objects["Pod"]
    (check,) = pod["spec"]["containers"]
    (gateway,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]

    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert check["args"] == ["check", "--config", "/etc/pgsluice/pgsluice.toml"]
    assert check["image"] == gateway["image"]
    assert [one for one in gateway["env"] if one in check["env"]] == check["env"]
    assert [one for one in gateway["volumeMounts"] if one["name"] != "spool"] == check[
        "volumeMounts"
    ]


def test_other_settings_replace_the_pods_and_other_definitions_do_not() -> None:
    def annotations(*arguments: str) -> dict[str, str]:
        stateful = rendered(*arguments)["StatefulSet"]
        found: dict[str, str] = stateful["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations() == annotations("--set", "definitions=-- none")
    assert annotations() != annotations("--set", "settings=[source]")


def test_every_value_is_in_the_schema_and_documented() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    table = re.findall(r"`([\w.]+)`", _table_of_values())

    assert schema.keys() - {"global", "enabled"} == values.keys()
    assert {name.partition(".")[0] for name in table} == values.keys()
    for name, described in schema.items():
        nested = described.get("properties")
        if nested is not None:
            assert nested.keys() == values[name].keys()
            assert {f"{name}.{one}" for one in nested} <= set(table)


def _table_of_values() -> str:
    lines = (CHART / "README.md").read_text().splitlines()
    return "\n".join(line.split("|")[1] for line in lines if line.startswith("| `"))


def test_the_chart_s_text_says_what_the_base_says() -> None:
    template = (CHART / "templates" / "statefulset.yaml").read_text()
    fixed = {line.strip() for line in template.splitlines() if "{{" not in line}
    manifest = (BASE / "statefulset.yaml").read_text()
    expected = {line.strip() for line in manifest.splitlines()}

    extra = fixed - expected
    # Keys of what only values add.
    assert {line.rstrip(":") for line in extra if not line.startswith("#")} == {
        "nodeSelector", "tolerations", "topologySpreadConstraints", "initContainers", "envFrom",
    }  # fmt: skip
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    spec = yaml.safe_load(manifest)["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    (claim,) = spec["volumeClaimTemplates"]
    assert values["replicaCount"] == spec["replicas"]
    assert values["podSecurityContext"] == pod["securityContext"]
    assert values["securityContext"] == container["securityContext"]
    assert values["terminationGracePeriodSeconds"] == pod["terminationGracePeriodSeconds"]
    assert values["podAnnotations"] == spec["template"]["metadata"]["annotations"]
    assert values["resources"] == container["resources"]
    assert values["spool"]["size"] == claim["spec"]["resources"]["requests"]["storage"]
    used = set(re.findall(r"\.Values\.(\w+)", _templates()))
    assert used == values.keys()


def test_the_chart_is_of_this_release_and_has_the_files_of_the_base() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)

    assert version is not None
    assert (chart["version"], chart["appVersion"]) == (version[1], f"v{version[1]}")
    assert kustomization["images"][0]["newTag"] == chart["appVersion"]
    for name in ("pgsluice.toml", "replication.sql"):
        assert (CHART / "files" / name).read_text() == (BASE / name).read_text()
    assert (CHART / "files" / RULES.name).read_text() == RULES.read_text()


def _templates() -> str:
    return "".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))


def test_texts_and_names_are_no_yaml(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "settings": "  # indented\n[source]\n",
        "definitions": "\n  -- indented\nCREATE PUBLICATION p FOR TABLE t;\n",
        "group": "eu, --config, /x",
        "podLabels": {"app.kubernetes.io/name": "other", "team": "data"},
        "podAnnotations": {"checksum/settings": "1"},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))

    objects = rendered("--values", str(tmp_path / "values.yaml"))
    template_ = objects["StatefulSet"]["spec"]["template"]
    (container,) = template_["spec"]["containers"]

    assert objects["ConfigMap"]["data"] == {
        "pgsluice.toml": values["settings"],
        "replication.sql": values["definitions"],
    }
    assert container["args"][-2:] == ["--group", values["group"]]
    wanted = objects["StatefulSet"]["spec"]["selector"]["matchLabels"]
    assert template_["metadata"]["labels"] == {**wanted, "team": "data"}
    assert template_["metadata"]["annotations"]["checksum/settings"] != "1"


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ('[kafka]\n"sasl.password" = "x"\n', True),
        ('[registry]\n"basic.auth.user.info" = "a:b"\n', True),
        ('[source]\ndsn = "postgresql://u:secret@h/d"\n', True),
        ('[source]\ndsn = "host=h user=u password = secret"\n', True),
        ("[filters]\ndsn = 'host=h password=secret user=u'\n", True),
        ('[kafka]\n"sasl.oauthbearer.client.secret" = "secret"\n', True),
        ("[kafka]\nssl.keystore.password='secret'\n", True),
        ('[kafka]\n"ssl.key.pem" = """\n-----BEGIN PRIVATE KEY-----\nsecret"""\n', True),
        ('[columns]\nhash_key = "secret"\n', True),
        ('[registry.basic.auth.user]\ninfo = "a:secret"\n', True),
        ('[source]\ndsn = "postgresql://u@h:5432/d"\n', False),
        ('[source]\ndsn = "host=h user=u"\npassword_command = "token --secret=x"\n', False),
        ('[kafka]\n"sasl.username" = "u"\n"ssl.key.location" = "/run/secrets/key"\n', False),
        ('[kafka]\n# "sasl.password" comes from a Secret\n', False),
        ('[source]\ndsn = "host=h user=u#1 password=secret"\n', True),
        ('kafka = { "sasl.username" = "a#b", "sasl.password" = "secret" }\n', True),
        ('[kafka.sasl.oauthbearer.client]\nsecret = "secret"\n', True),
        ('[kafka.ssl.key]\npem = "secret"\n', True),
        ('[kafka]\nssl = { key.pem = "secret" }\n', True),
        ('[kafka]\n"sasl.oauthbearer.assertion.private.key.passphrase" = "secret"\n', True),
        ('[columns]\nmasks = { "shop.public.users.password" = "hash" }\n', False),
        ('[columns.masks]\n"shop.public.users.secret" = "truncate(3)"\n', False),
        ('[columns.masks]\n"shop.public.t.info" = "null"\n', False),
        ('[types.columns]\n"public.t.hash_key" = "text"\n', False),
        ('[consumer.spark]\n"spark.hadoop.fs.s3a.secret.key" = "secret"\n', True),
        ('[consumer.spark]\n"spark.hadoop.fs.s3a.session.token" = "secret"\n', True),
        ('[kafka]\n"sasl.oauthbearer.token.endpoint.url" = "https://t"\n', False),
    ],
)
def test_a_password_in_the_settings_is_refused(
    tmp_path: Path, settings: str, refused: bool
) -> None:
    (tmp_path / "pgsluice.toml").write_text(settings)

    done = template("--set-file", f"settings={tmp_path / 'pgsluice.toml'}")

    assert (done.returncode != 0) == refused
    assert ("have a password" in done.stderr) == refused
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("connection", "refused"),
    [
        (" 'host=h password=secret'", True),
        (" 'postgresql://u:secret@h/d'", True),
        (" 'user=''u'' password=secret'", True),
        (" E'host=h pass\\x77ord=secret'", True),
        (" U&'host=h pass\\0077ord=secret'", True),
        (" $$host=h password=secret$$", True),
        ("$a1$host=$ password=secret$a1$", True),
        ("'host=h password=secret'", True),
        ("\n''\n'host=h password=secret'", True),  # one string in two parts
        ("\n  -- a comment\n  'host=h password=secret'", True),
        ("/* a*b */ 'host=h password=secret'", True),
        (" 'host=h user=u'", True),
        ("\n  ''", False),
        ("''", False),
        ("/* nobody's **/''", False),
    ],
)
def test_a_connection_in_the_definitions_is_refused(
    tmp_path: Path, connection: str, refused: bool
) -> None:
    (tmp_path / "replication.sql").write_text(
        f"CREATE PUBLICATION p FOR TABLE connection WHERE (password = 'x');\n"
        f"CREATE SUBSCRIPTION s Connection{connection} PUBLICATION p;\n"
        "CREATE SUBSCRIPTION t CONNECTION '' PUBLICATION p;\n"
    )

    done = template("--set-file", f"definitions={tmp_path / 'replication.sql'}")

    assert (done.returncode != 0) == refused
    assert ("have a CONNECTION" in done.stderr) == refused
    assert "secret" not in done.stderr
