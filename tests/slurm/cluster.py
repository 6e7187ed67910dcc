"""A real SLURM cluster of several nodes on this machine, for tests: started by hand, in a folder, without systemd."""

import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol", "setpriv")

_CONFIGURATION = """\
ClusterName=dpfl
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort={port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2,bf_interval=2
KillWait=5
OverTimeLimit=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
GresTypes=gpu
{nodes}
PartitionName=work Nodes=ALL Default=YES MaxTime=60 State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=60 State=UP PriorityTier=10
"""


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs; `environment` is what SLURM's commands need to find it."""

    folder: Path
    environment: dict[str, str]

    def command(self, *words: str) -> str:
        """Run one of SLURM's commands and return what it prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{words[0]}: {done.stderr.strip()}")
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """Return the jobs in the queue: number and state."""
        rows = self.command("squeue", "--noheader", "--states=all", "--format=%i %T").split("\n")
        return dict(row.split() for row in rows if row)

    def node_of(self, job: str) -> str:
        """Return the node that a job runs on."""
        return self.command("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()

    def take_node_of(self, job: str) -> None:
        """Submit a more urgent job that needs all of the node that a job runs on: this one is preempted."""
        options = ("--partition=urgent", "--exclusive", f"--nodelist={self.node_of(job)}", "--output=/dev/null")
        self.command("sbatch", *options, "--wrap=sleep 1")

    def names(self) -> dict[str, str]:
        """Return the comments of the jobs in the queue, in which the executor names the rule: number and comment."""
        rows = self.command("squeue", "--noheader", "--format=%i %k").split("\n")
        return dict(row.split(maxsplit=1) for row in rows if " " in row)


def missing() -> str:
    """Return why no cluster can be started here, or nothing."""
    if os.geteuid():
        return "a SLURM cluster is started by root, and this is not root"
    absent = [program for program in NEEDED if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)} (Debian: slurm-wlm munge util-linux)" if absent else ""


@contextmanager
def cluster(folder: Path, *, nodes: int = 3, gpus: int = 2) -> Iterator[Cluster]:
    """Start munged, slurmctld and a slurmd a node below `folder`; yield the cluster once all are idle; stop them at the
    end.

    Each node has all cores of this machine, and its part of the memory. The first has the GPUs, which are /dev/null:
    SLURM counts them and hands them out like any other.
    """
    host = socket.gethostname().split(".")[0]
    names = [f"node{number}" for number in range(1, nodes + 1)]
    for name in ("state", "munge", *(f"spool/{node}" for node in names)):
        (folder / name).mkdir(parents=True, mode=0o700)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    first, *ports = _free_ports(1 + nodes)
    memory_mb = (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 - 500) // nodes
    each = f"NodeHostname={host} CPUs={os.cpu_count()} RealMemory={memory_mb} State=UNKNOWN"
    lines = [f"NodeName={name} Port={port} {each}" for name, port in zip(names, ports, strict=True)]
    lines[0] += f" Gres=gpu:{gpus}"
    text = _CONFIGURATION.format(host=host, folder=folder, port=first, nodes="\n".join(lines))
    (folder / "slurm.conf").write_text(text)
    devices = [_device(folder, number) for number in range(gpus)]
    lines = [f"NodeName={names[0]} Name=gpu File={device}\n" for device in devices]
    (folder / "gres.conf").write_text("".join(lines))
    path = f"{_srun(folder)}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
    daemons = _start_daemons(folder, names, environment)
    try:
        ready = Cluster(folder, environment)
        _wait_until_idle(ready)
        yield ready
    finally:
        subprocess.run(["scancel", "--user=root"], env=environment, capture_output=True, timeout=60)
        time.sleep(2)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in reversed(daemons):
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()


def _start_daemons(folder: Path, nodes: list[str], environment: dict[str, str]) -> list[subprocess.Popen]:
    """Start munged, slurmctld and a slurmd a node, a second apart; all end with this process, however it ends.

    Each has a session of its own: Ctrl-C in a terminal reaches the tests alone, which end the jobs first.
    """
    commands = {"munged": _munged(folder), "slurmctld": ["slurmctld", "-D"]}
    commands |= {node: ["slurmd", "-D", "-N", node] for node in nodes}
    daemons = []
    for name, command in commands.items():
        time.sleep(1)
        with (folder / f"{name}.err").open("w") as errors:
            streams = {"stdout": subprocess.DEVNULL, "stderr": errors}
            words = ["setpriv", "--pdeathsig", "TERM", *command]
            daemons.append(subprocess.Popen(words, env=environment, start_new_session=True, **streams))
    return daemons


def _munged(folder: Path) -> list[str]:
    """The command that starts munged on its own key and socket."""
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge/pid", "seed-file": "munge/seed"}
    options = [f"--{option}={folder / file}" for option, file in files.items()]
    return ["munged", "--foreground", "--force", f"--log-file={folder / 'munge' / 'log'}", *options]


def _srun(folder: Path) -> Path:
    """Return a folder with an srun that knows this cluster: Snakemake's executor takes SLURM_CONF from srun's hands."""
    script = folder / "bin" / "srun"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\nSLURM_CONF='{folder / 'slurm.conf'}' exec {shutil.which('srun')} \"$@\"\n")
    script.chmod(0o755)
    return script.parent


def _device(folder: Path, number: int) -> Path:
    """Make a device node that is a GPU as far as SLURM can tell: another /dev/null."""
    path = folder / f"gpu{number}"
    os.mknod(path, 0o666 | stat.S_IFCHR, os.stat("/dev/null").st_rdev)
    return path


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _wait_until_idle(ready: Cluster) -> None:
    """Return once all nodes take jobs; raise RuntimeError with the daemons' last words where it does not."""
    deadline = time.monotonic() + 60
    state = ""
    while time.monotonic() < deadline:
        with suppress(RuntimeError):
            state = ready.command("sinfo", "--noheader", "--partition=work", "--format=%T").strip()
            if state == "idle":
                return
        time.sleep(0.5)
    logs = [path.read_text()[-500:] for path in sorted(ready.folder.glob("*.log"))]
    raise RuntimeError(f"the nodes are {state or 'not there'} after a minute: {logs}")
