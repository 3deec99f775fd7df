"""Programs in isolation: what they see, what they may use, and that they end. Skipped where the kernel gives none."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentworld.rewards import EvaluationError, checked
from agentworld.rewards.isolation import sandbox
from agentworld.rewards.isolation.apart import processes_apart
from agentworld.rewards.isolation.sandbox import IsolationError, Limits, best_mechanism, run_isolated
from agentworld.rewards.registry import make_evaluator
from tests.rewards.runs import run_of


def works(mechanism):
    try:
        return run_isolated(["true"], mechanism=mechanism).code == 0
    except IsolationError:
        return False


@pytest.fixture(
    params=[
        pytest.param("namespaces", marks=pytest.mark.skipif(not works("namespaces"), reason="no namespaces here")),
        pytest.param(
            "bubblewrap",
            marks=pytest.mark.skipif(
                not (shutil.which("bwrap") and works("bubblewrap")), reason="bubblewrap is not here or may do nothing"
            ),
        ),
    ]
)
def mechanism(request):
    return request.param


def python(code, mechanism, **more):
    return run_isolated([sys.executable, "-c", code], mechanism=mechanism, **more)


def processes_of(marker):
    """Processes of this machine with `marker` among their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


def all_end(marker):
    """Whether such processes are gone, or go within a while: the kernel ends a namespace after its first process."""
    deadline = time.monotonic() + 100
    while processes_of(marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_files_stdin_and_the_way_it_ended(mechanism):
    done = run_isolated(
        ["sh", "-c", "cat; cat a/b.txt; pwd; echo fault >&2; exit 7"],
        files={"a/b.txt": "file\n"},
        stdin=b"input\n",
        mechanism=mechanism,
    )
    assert (done.ending, done.code, done.signal) == ("ended", 7, None)
    assert (done.stdout, done.stderr, done.mechanism) == ("input\nfile\n/work\n", "fault\n", mechanism)
    assert run_isolated(["sh", "-c", "kill -9 $$"], mechanism=mechanism).signal == 9
    with pytest.raises(IsolationError, match=r"^the program 'nothing-like-it' cannot be run: No such file"):
        run_isolated(["nothing-like-it"], mechanism=mechanism)


def test_the_environment_is_empty(mechanism, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    done = python("import os; print(sorted(os.environ))", mechanism, environment={"MINE": "1"})
    assert done.stdout == "['HOME', 'LANG', 'MINE', 'PATH', 'PYTHONDONTWRITEBYTECODE', 'TMPDIR']\n"


def test_the_files_of_this_machine_are_not_there(mechanism, tmp_path):
    hidden = tmp_path / "hidden.txt"
    hidden.write_text("hidden")
    tmp_path.chmod(0o755)  # root's sandbox is another user's
    code = f"import os; print([os.path.exists(each) for each in ({str(hidden)!r}, '/etc/passwd', '/var', '/home')])"
    assert python(code, mechanism).stdout == "[False, False, False, False]\n"
    shown = run_isolated(["cat", str(hidden)], readable=[str(tmp_path)], mechanism=mechanism)
    assert shown.stdout == "hidden"
    kept = run_isolated(["sh", "-c", f"echo no > {hidden}"], readable=[str(tmp_path)], mechanism=mechanism)
    assert kept.code != 0
    assert hidden.read_text() == "hidden"


def test_the_system_cannot_be_written(mechanism):
    code = "touch /usr/x || touch /x || touch /root/x || mount -o remount,rw / || mount -t tmpfs none /usr"
    assert run_isolated(["sh", "-c", code], mechanism=mechanism).code != 0
    assert not Path("/usr/x").exists()


def test_there_is_no_network_but_its_own(mechanism):
    code = """if True:
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(server.getsockname()).close()
        print(sorted(name for _, name in socket.if_nameindex()))
        for address in (("192.0.2.1", 80), ("8.8.8.8", 53)):
            try:
                socket.create_connection(address, 2)
            except OSError:
                print("none")
    """
    lines = python(code, mechanism).stdout.splitlines()
    assert lines[1:] == ["none", "none"]
    # The kernel may add tunnels that lead nowhere; no card of this machine is among them.
    assert "lo" in lines[0]
    assert "eth" not in lines[0]


def test_other_processes_are_not_there(mechanism):
    code = "import os; print(os.getpid() < 10, len([each for each in os.listdir('/proc') if each.isdigit()]) < 10)"
    assert python(code, mechanism).stdout == "True True\n"


def test_no_right_is_left(mechanism):
    done = run_isolated(["grep", "-E", "Cap(Eff|Prm|Bnd|Amb)|NoNewPrivs", "/proc/self/status"], mechanism=mechanism)
    if done.code == 2:
        pytest.skip("the kernel gives no /proc in this container")
    facts = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert {int(facts[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    assert facts["NoNewPrivs"] == "1"


def test_a_hang_is_ended_with_everything_in_it(mechanism):
    limits = Limits(seconds=1.0)
    marker = f"86{os.getpid()}.125"
    code = f"setsid sleep {marker} & setsid sh -c 'setsid sleep {marker}' & sleep {marker}"
    done = run_isolated(["sh", "-c", code], limits=limits, mechanism=mechanism)
    assert (done.ending, done.code) == ("timed_out", None)
    assert all_end(marker)


def test_what_is_left_running_ends_with_the_command(mechanism):
    marker = f"87{os.getpid()}.125"
    done = run_isolated(["sh", "-c", f"setsid sleep {marker} > /dev/null 2>&1 & exit 0"], mechanism=mechanism)
    assert (done.ending, done.code) == ("ended", 0)
    assert all_end(marker)


def test_a_fork_bomb_ends(mechanism):
    code = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    done = python(code, mechanism, limits=Limits(seconds=1.0, processes=16))
    assert done.ending == "timed_out"


@pytest.mark.skipif(os.geteuid() != 0 and not works("namespaces"), reason="counts all processes of this user")
def test_processes_are_limited(mechanism):
    code = """if True:
        import os, signal
        count = 0
        try:
            while count < 100:
                if os.fork() == 0:
                    signal.pause()
                count += 1
        except OSError:
            pass
        print(count)
    """
    assert 0 < int(python(code, mechanism, limits=Limits(processes=16)).stdout) <= 16


def test_a_gigabyte_of_output_ends_it(mechanism):
    done = run_isolated(["sh", "-c", "head -c 1073741824 /dev/zero"], mechanism=mechanism)
    assert done.ending == "too_much_output"
    assert len(done.stdout) <= 64 * 1024


def test_a_gigabyte_on_disk_does_not_fit(mechanism):
    code = (
        "head -c 1073741824 /dev/zero > a; for i in 1 2 3 4 5 6; do head -c 4194304 /dev/zero > b$i; done; du -sm /work"
    )
    done = run_isolated(["sh", "-c", code], limits=Limits(scratch_mb=8), mechanism=mechanism)
    assert int(done.stdout.split()[0]) <= 8


def test_memory_processor_time_and_files_are_limited(mechanism):
    assert "MemoryError" in python("bytearray(1 << 30)", mechanism, limits=Limits(memory_mb=256)).stderr
    spin = python("while True: pass", mechanism, limits=Limits(cpu_seconds=1, seconds=150.0))
    assert spin.signal in (9, 24)
    many = python("[open('/dev/null') for _ in range(100)]", mechanism, limits=Limits(open_files=20))
    assert "Too many open files" in many.stderr


def test_no_memory_is_held_beside_the_limits(mechanism):
    code = """if True:
        import ctypes, errno, os
        libc = ctypes.CDLL(None, use_errno=True)
        def refused(made):
            return made < 0 and errno.errorcode[ctypes.get_errno()]
        print(refused(libc.shmget(0, 4096, 0o1600)), refused(libc.msgget(0, 0o1600)))
        print(refused(libc.semget(0, 1, 0o1600)))
        print(refused(libc.memfd_create(b"x", 0)), refused(libc.unshare(0x10000000)), os.path.exists("/dev/shm/x"))
        try:
            open("/dev/x", "w")
        except OSError as error:
            print(error.errno in (errno.EROFS, errno.EACCES))
        pid = os.fork()
        print("forked") if pid else os._exit(0)
    """
    said = python(code, mechanism)
    assert said.stdout.split() == [*["ENOSYS"] * 4, "EPERM", "False", "True", "forked"], said.stderr


def test_a_clone_into_namespaces_is_refused(mechanism):
    code = """if True:
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        number = {"x86_64": 56}.get(os.uname().machine, 220)
        made = libc.syscall(number, 0x10000000 | 17, 0, 0, 0, 0)
        if made == 0:
            os._exit(0)
        print(made, ctypes.get_errno())
    """
    assert python(code, mechanism).stdout == "-1 1\n"


def test_the_number_of_files_is_limited(mechanism):
    if mechanism == "bubblewrap":
        pytest.skip("bubblewrap has no setting for it")
    code = """if True:
        count = 0
        try:
            while count < 100_000:
                open(f"/work/{count}", "w").close()
                count += 1
        except OSError as error:
            print(error.errno, count)
    """
    number, count = python(code, mechanism, limits=Limits(scratch_mb=8)).stdout.split()
    assert (number, int(count) <= 2048) == ("28", True)


def test_a_command_that_does_not_read_its_input(mechanism):
    assert run_isolated(["true"], stdin=b"x" * (1 << 22), mechanism=mechanism).code == 0


def test_without_isolation_nothing_runs_unless_that_is_asked_for(monkeypatch, tmp_path):
    def none_works(*_args, **_more):
        raise IsolationError("the kernel refuses")

    best_mechanism.cache_clear()
    monkeypatch.setattr(sandbox, "_start", none_works)
    ran = tmp_path / "ran"
    settings = {"kind": "program", "command": ["touch", str(ran)]}
    try:
        with pytest.raises(EvaluationError, match=r"gives no isolation .*the kernel refuses") as caught:
            checked(make_evaluator(settings, "test"), run_of("x"))
        assert 'isolation = "none"' in caught.value.hint
    finally:
        best_mechanism.cache_clear()
    assert not ran.exists()
    monkeypatch.undo()
    verdict = checked(make_evaluator({**settings, "isolation": "none"}, "test"), run_of("x"))["t"]
    assert ran.exists()
    assert (verdict.values, verdict.details["isolation"]) == ({"reward": 1.0}, "none")


def test_without_isolation_time_and_output_still_end_it():
    limits = Limits(seconds=0.5)
    assert run_isolated(["sleep", "60"], limits=limits, mechanism="none").ending == "timed_out"
    assert run_isolated(["yes"], mechanism="none").ending == "too_much_output"


@pytest.mark.skipif(not processes_apart(), reason="the kernel gives no namespace of processes")
@pytest.mark.parametrize("stays", [False, True])
def test_without_isolation_what_is_left_running_still_ends_with_the_command(stays):
    marker = f"88{os.getpid()}.{int(stays)}25"
    code = f"setsid sh -c 'setsid sleep {marker}' > /dev/null 2>&1 & {f'sleep {marker}' if stays else 'exit 0'}"
    done = run_isolated(["sh", "-c", code], limits=Limits(seconds=1.0 if stays else 60.0), mechanism="none")
    assert (done.ending, done.mechanism) == ("timed_out" if stays else "ended", "none")
    assert all_end(marker)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_root_without_the_right_to_namespaces_makes_them_as_a_user():
    """A namespace of users is what anyone but root takes; a root that lacks the right is sent the same way."""
    code = (
        "from agentworld.rewards.isolation.sandbox import run_isolated as run;"
        "print(run(['sh', '-c', 'cat /proc/self/uid_map && ls /etc'], mechanism='namespaces'))"
    )
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, "-c", code]
    done = subprocess.run(drop, capture_output=True, text=True, timeout=150, check=False)
    if "failed: [Errno 1]" in done.stderr or "setpriv" in done.stderr:
        pytest.skip("the kernel gives users no namespaces")
    assert "code=0" in done.stdout, done.stderr
    assert "passwd" not in done.stdout
