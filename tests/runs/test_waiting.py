"""Which workers are given runs, from the server's description of their task queue."""

from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.deployment.v1 import WorkerDeploymentOptions, WorkerDeploymentVersion
from temporalio.api.enums.v1 import WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueueVersioningInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse

from baton.runs.client_waiting import Unchosen, find_unchosen


def make_poller(build: str | None) -> PollerInfo:
    """Return a worker that polled just now, with or without a build."""
    modes = WorkerVersioningMode
    mode = modes.WORKER_VERSIONING_MODE_VERSIONED if build else modes.WORKER_VERSIONING_MODE_UNVERSIONED
    now = Timestamp()
    now.FromDatetime(datetime.now(UTC))
    return PollerInfo(
        last_access_time=now,
        deployment_options=WorkerDeploymentOptions(
            deployment_name="d", build_id=build or "", worker_versioning_mode=mode
        ),
    )


def version(build: str | None) -> WorkerDeploymentVersion | None:
    """Return the server's record of a build, or None."""
    return WorkerDeploymentVersion(deployment_name="d", build_id=build) if build else None


class TestFindUnchosen:
    """`find_unchosen`: a current build, a ramping build with its percentage, and the builds of the workers."""

    QUEUES = (
        pytest.param(None, None, 0, [None], None, id="unversioned workers, and no builds"),
        pytest.param("1", None, 0, ["1", "2"], None, id="the current build has workers"),
        pytest.param("1", "2", 10, ["2"], None, id="the ramping build has workers"),
        pytest.param("1", None, 10, [None], None, id="unversioned workers are ramping"),
        pytest.param("1", None, 0, [], None, id="no workers, which is reported elsewhere"),
        pytest.param(None, None, 0, ["1"], Unchosen("d", "1", None), id="no build was made current"),
        pytest.param("1", None, 0, ["2"], Unchosen("d", "2", "1"), id="only another build has workers"),
        pytest.param("1", "2", 0, ["2"], Unchosen("d", "2", "1"), id="only a build that ramps at zero percent"),
        pytest.param("1", None, 0, [None], Unchosen("d", None, "1"), id="only unversioned workers"),
    )

    @pytest.mark.parametrize(("current", "ramping", "percentage", "pollers", "expected"), QUEUES)
    def test_workers_whose_builds_receive_no_runs_are_found(
        self,
        current: str | None,
        ramping: str | None,
        percentage: int,
        pollers: list[str | None],
        expected: Unchosen | None,
    ) -> None:
        """A run would wait without a message although workers are polling."""
        queue = DescribeTaskQueueResponse(
            pollers=[make_poller(build) for build in pollers],
            versioning_info=TaskQueueVersioningInfo(
                current_deployment_version=version(current),
                ramping_deployment_version=version(ramping),
                ramping_version_percentage=percentage,
            ),
        )

        assert find_unchosen(queue) == expected

    def test_the_remedy_for_unversioned_workers_has_no_build(self) -> None:
        """It names no build."""
        assert Unchosen("our d", None, "1").remedy == (
            "temporal worker deployment set-current-version --deployment-name 'our d' --unversioned"
        )
