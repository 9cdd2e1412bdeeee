"""deploy/prometheus and deploy/grafana: the rules and the board fit the metrics, and the rules do what they say."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from baton.telemetry.metrics import METRICS, SLOS, MetricKind, Transport

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS, GRAFANA = DEPLOY / "prometheus", DEPLOY / "grafana"
GROUPS: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED: dict[str, str] = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
SCRAPES: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
BOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "baton.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
ASKED = [target["expr"] for panel in PANELS for target in panel["targets"]]

SERIES = {
    f"{metric.name}{end}": metric
    for metric in METRICS
    for end in (("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",))
}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus")
each_expression = pytest.mark.parametrize("expression", [*(str(rule["expr"]) for rule in RULES), *ASKED])


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool among the rules."""
    return subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)


def condition(alert: str) -> str:
    """Return the expression of an alert, its recorded parts written out."""
    rate_expression = str(ALERTS[alert]["expr"])
    for name, expression in RECORDED.items():
        rate_expression = rate_expression.replace(name, f"({expression})")
    return rate_expression


class TestExpressions:
    """What rules and board ask Prometheus."""

    @each_expression
    def test_it_names_series_that_exist(self, expression: str) -> None:
        """A renamed metric would be an alert that never fires."""
        named = set(re.findall(r"\bbaton_\w+", re.sub(r'"[^"]*"', "", expression)))

        assert named <= SERIES.keys()
        assert set(re.findall(r"\bbaton:[\w:]+", expression)) <= RECORDED.keys()

    @each_expression
    def test_it_names_labels_that_the_series_has(self, expression: str) -> None:
        """A selector by a label that is not there finds nothing, and a grouping by one lumps all together."""
        for name, selector in re.findall(r"\b(baton_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)\s*[!=]", selector)) <= {*SERIES[name].labels}
        for grouping, name in re.findall(r"by \(([\w, ]+)\)\s*\(\w+\((baton_\w+)", expression):
            assert {*grouping.split(", ")} - {"le"} <= {*SERIES[name].labels}

    def test_every_metric_is_asked_for(self) -> None:
        """A metric that no rule and no panel shows is a cost without a use."""
        text = "\n".join([*ASKED, *RECORDED.values(), *(str(rule["expr"]) for rule in ALERTS.values())])

        assert [metric.name for metric in METRICS if metric.name not in text] == []

    @needs_promtool
    def test_promql_parses_it(self, tmp_path: Path) -> None:
        """Prometheus' own parser takes the board's questions too, Grafana's intervals filled in."""
        questions = [{"record": f"q:{n}", "expr": one.replace("$__rate_interval", "1m")} for n, one in enumerate(ASKED)]
        file = tmp_path / "board.yml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": questions}]}), encoding="utf-8")
        checked = promtool("check", "rules", str(file))

        assert checked.returncode == 0, checked.stdout + checked.stderr


class TestAlerts:
    """deploy/prometheus/alerts.yml."""

    @pytest.mark.parametrize(
        ("alert", "counted", "threshold"),
        [
            pytest.param(
                "BatonValidationFailures",
                'increase(baton_handoffs_total{verdict!="ACCEPTED"}[30m])',
                "> 0.02",
                id="S3-8.1-a: more than 2 % rejected",
            ),
            pytest.param(
                "BatonSafetyViolations",
                'increase(baton_handoffs_total{verdict="SAFETY_VIOLATION"}[1h])',
                "> 0.001",
                id="S3-8.1-c: more than 0.1 % unsafe",
            ),
            pytest.param("BatonDeadLetters", "max(baton_dead_letters)", "> 0", id="S3-8.1-e: any dead letter"),
            pytest.param(
                "BatonRollbacks",
                "increase(baton_rollbacks_total[30m])",
                "> 0.01",
                id="S3-8.1-f: more than 1 % rolled back",
            ),
        ],
    )
    def test_its_threshold_is_the_documents(self, alert: str, counted: str, threshold: str) -> None:
        """S3-8.1-a, S3-8.1-c, S3-8.1-e, S3-8.1-f: each alert counts the right events, and fires at its threshold."""
        assert re.search(rf"{threshold}( and |$)", str(ALERTS[alert]["expr"]))
        assert counted in condition(alert)

    @pytest.mark.parametrize("transport", Transport)
    def test_latency_is_judged_by_transport_and_by_pair(self, transport: Transport) -> None:
        """S3-8.1-b, S3-6.5-e, S3-6.5-f: 99 of 100 and the longest, by transport; and each pair by itself."""
        slo = SLOS[transport]
        limits = {"BatonHandoffsSlow": slo.p99, "BatonHandoffTooSlow": slo.longest, "BatonPairSlow": slo.p99}

        for alert, limit in limits.items():
            assert re.search(rf'{{transport="{transport.value}"}} > {limit:g}(\s|$)', str(ALERTS[alert]["expr"]))
        assert "sender, receiver" in condition("BatonPairSlow")

    @pytest.mark.parametrize("alert", ["BatonValidationFailures", "BatonRollbacks"])
    def test_a_share_has_a_window_and_a_least_number(self, alert: str) -> None:
        """A single rejection in a quiet night does not raise the alert on the share."""
        assert re.search(r"\[30m\]", condition(alert))
        assert str(ALERTS[alert]["expr"]).endswith("baton:handoffs:increase30m >= 50")

    @pytest.mark.parametrize("alert", ALERTS)
    def test_it_tells_what_is_wrong_and_what_to_do(self, alert: str) -> None:
        """Whoever is woken by it reads a sentence, and the next step."""
        rule = ALERTS[alert]

        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}

    def test_each_is_seen_to_fire(self) -> None:
        """alerts_test.yml has a case for every alert."""
        tested = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
        cases = [case for test in tested for case in test["alert_rule_test"]]

        assert {case["alertname"] for case in cases if case["exp_alerts"]} == set(ALERTS)

    @needs_promtool
    def test_they_fire_when_they_should(self) -> None:
        """S3-8.1-a to S3-8.1-f: by Prometheus' own rule tests, each fires over its limit and not at it."""
        tested = promtool("test", "rules", "alerts_test.yml")

        assert tested.returncode == 0, tested.stdout + tested.stderr

    @needs_promtool
    def test_prometheus_takes_its_configuration(self) -> None:
        """The file and the rules that it names are sound."""
        checked = promtool("check", "config", "prometheus.yml")

        assert checked.returncode == 0, checked.stdout + checked.stderr


class TestBoard:
    """deploy/grafana."""

    def test_its_panels_are_told_apart_and_explained(self) -> None:
        """Every panel has an id and a title of its own, and says what it shows."""
        assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
        assert len({panel["title"] for panel in PANELS}) == len(PANELS)
        assert [panel["title"] for panel in PANELS if not panel["description"]] == []

    def test_its_panels_do_not_overlap(self) -> None:
        """Grafana would push them apart, and the board would look otherwise than it was laid out."""
        places = [panel["gridPos"] for panel in BOARD["panels"]]
        cells = [
            (x, y)
            for at in places
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]

        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24

    def test_it_asks_the_source_that_is_provisioned(self) -> None:
        """The board finds its data without a click."""
        file = GRAFANA / "provisioning" / "datasources" / "prometheus.yml"
        (source,) = yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"]
        asked = {target["datasource"]["uid"] for panel in PANELS for target in panel["targets"]}

        assert asked == {source["uid"]}
        assert source["jsonData"]["timeInterval"] == SCRAPES["global"]["scrape_interval"]

    @needs_promtool
    def test_the_first_rejection_between_two_agents_is_shown(self, tmp_path: Path) -> None:
        """Its series starts at one, which is not an increase; the alert links to this panel."""
        (panel,) = [panel for panel in PANELS if panel["title"] == "Rejected, by pair"]
        pair = 'baton_handoff_rejections_total{verdict="SCHEMA_INVALID", sender="a", receiver="%s"}'
        case = {
            "interval": "1m",
            "input_series": [
                {"series": pair % "new", "values": "_x50 1+0x50"},
                {"series": pair % "old", "values": "5+0x50 8+0x50"},
                {"series": pair % "quiet", "values": "5+0x100"},
            ],
            "promql_expr_test": [
                {
                    "expr": f"floor({panel['targets'][0]['expr']})",
                    "eval_time": "60m",
                    "exp_samples": [
                        {"labels": f'{{verdict="SCHEMA_INVALID", sender="a", receiver="{item}"}}', "value": value}
                        for item, value in (("new", 1), ("old", 3), ("quiet", 0))
                    ],
                }
            ],
        }
        file = tmp_path / "board_test.yml"
        file.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}), encoding="utf-8")
        tested = promtool("test", "rules", str(file))

        assert tested.returncode == 0, tested.stdout + tested.stderr

    @pytest.mark.parametrize("transport", Transport)
    def test_it_shows_the_limits_of_each_transport(self, transport: Transport) -> None:
        """S3-8.1-b: the lines on the board are the document's limits."""
        (panel,) = [panel for panel in PANELS if panel["title"] == f"By {transport.value}"]
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]

        assert [step["value"] for step in steps] == [None, SLOS[transport].p99, SLOS[transport].longest]
