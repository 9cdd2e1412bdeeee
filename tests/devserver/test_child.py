"""Children that end with their parent, and the lock they hold."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from baton.devserver.processes import ChildLock, bound_to_parent, group_bound_to_parent
from baton.errors import ServerError

SLEEP = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"]

# A parent that starts a bound child, prints its id, and waits to be killed.
PARENT = """\
import subprocess, sys
from baton.devserver.processes import bound_to_parent
child = subprocess.Popen(bound_to_parent(sys.argv[1:]), stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


async def _wait_for_end(descriptor: int) -> None:
    """Wait for the process of a pidfd to end: its descriptor becomes readable."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.add_reader(descriptor, future.set_result, None)
    try:
        await asyncio.wait_for(future, 180)
    finally:
        loop.remove_reader(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for a parent's death")
class TestBoundToParent:
    async def test_it_ends_when_its_parent_is_killed(self) -> None:
        """Though SIGKILL leaves the parent no chance to clean up."""
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PARENT, *SLEEP, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert parent.stdout is not None
            child = os.pidfd_open(int(await parent.stdout.readline()))
        finally:
            parent.kill()
            await parent.communicate()
        try:
            await _wait_for_end(child)
        finally:
            os.close(child)

    async def test_it_is_the_command_itself(self) -> None:
        """The process id is the command's, so signals and exit codes are too."""
        command = bound_to_parent([sys.executable, "-c", "import os; print(os.getpid(), flush=True); os._exit(7)"])
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        assert (int(output), process.returncode) == (process.pid, 7)


# A parent that starts a bound group, prints the ids of its head and its processes, and waits to be killed.
GROUP_PARENT = """\
import subprocess, sys
from baton.devserver.processes import group_bound_to_parent
command = group_bound_to_parent(sys.argv[1:])
child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
print(child.pid, child.stdout.readline().decode().strip(), flush=True)
child.wait()
"""
# A program that starts another; both are deaf to SIGTERM.
DEAF = """\
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if child := os.fork():
    print(os.getpid(), child, flush=True)  # one of them only: two who print at once can mix their lines
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no signal for a parent's death")
class TestGroupBoundToParent:
    async def test_the_whole_group_ends_when_the_parent_is_killed(self) -> None:
        """Also processes that ignore SIGTERM, such as a hanging test, and the group's leader."""
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", GROUP_PARENT, sys.executable, "-c", DEAF), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert parent.stdout is not None
            descriptors = [os.pidfd_open(int(pid)) for pid in (await parent.stdout.readline()).split()]
        finally:
            parent.kill()
            await parent.communicate()
        try:
            assert len(descriptors) == 3
            await asyncio.gather(*map(_wait_for_end, descriptors))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    @pytest.mark.parametrize(
        ("ending", "code"),
        [
            pytest.param("os._exit(7)", 7, id="its exit code"),
            pytest.param("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, id="killed"),
            pytest.param("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, id="ended by a signal"),
            pytest.param("os.killpg(0, signal.SIGTERM)", -signal.SIGTERM, id="ended by a signal to its group"),
        ],
    )
    async def test_it_ends_like_the_command(self, ending: str, code: int) -> None:
        """Only the process id of the group's leader differs."""
        command = group_bound_to_parent([sys.executable, "-c", f"import os, signal; {ending}"])
        process = await asyncio.create_subprocess_exec(*command, start_new_session=True)

        assert await process.wait() == code


class TestChildLock:
    async def test_a_second_holder_is_refused_with_the_description_of_the_first(self, tmp_path: Path) -> None:
        """The message has the file, without the lock's suffix, and the holder."""
        with await ChildLock.take(tmp_path / "p.db.lock", 0) as lock:
            lock.describe("the server at 127.0.0.1:7233 (process 42)")
            with pytest.raises(
                ServerError, match=r"p\.db' is in use by the server at 127\.0\.0\.1:7233 \(process 42\)"
            ):
                await ChildLock.take(tmp_path / "p.db.lock", 0)

    async def test_it_is_free_again_after_its_holder(self, tmp_path: Path) -> None:
        """Leaving the context is enough if there is no child; the file stays."""
        with await ChildLock.take(tmp_path / "p.db.lock", 0):
            pass
        with await ChildLock.take(tmp_path / "p.db.lock", 0) as lock:
            assert lock.descriptors

    async def test_a_child_holds_it_until_it_ends(self, tmp_path: Path) -> None:
        """Even if the parent has closed it; the child's death frees the lock."""
        with await ChildLock.take(tmp_path / "p.db.lock", 0) as lock:
            process = await asyncio.create_subprocess_exec(
                *SLEEP, stdout=asyncio.subprocess.PIPE, pass_fds=lock.descriptors
            )
        with pytest.raises(ServerError):
            await ChildLock.take(tmp_path / "p.db.lock", 0)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        with await ChildLock.take(tmp_path / "p.db.lock", 0) as lock:
            assert lock.descriptors

    async def test_an_ending_holder_is_waited_for(self, tmp_path: Path) -> None:
        """A restart right after a stop succeeds."""
        first = await ChildLock.take(tmp_path / "p.db.lock", 0)
        second = asyncio.create_task(ChildLock.take(tmp_path / "p.db.lock", 60))
        await asyncio.sleep(0)
        first.__exit__()
        with await second as lock:
            assert lock.descriptors
