# SPDX-License-Identifier: Apache-2.0
"""A Slurm of two nodes (nodes.py) on this machine: slurmctld on the first, a slurmd on each.

Cores, memory and GPUs are claimed, not there: a job script may request them as on a cluster.
Identities are not checked (auth/none): all of it is root's, in networks without other users."""

import os
import shutil
import subprocess

CONFIG = """
ClusterName=ringpack
SlurmctldHost={first}({address})
SlurmUser=root
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=10
KillWait=2
StateSaveLocation={place}/state
SlurmctldLogFile={place}/slurmctld.log
SlurmctldPidFile={place}/slurmctld.pid
SlurmdLogFile={place}/%n.log
SlurmdPidFile={place}/%n.pid
SlurmdSpoolDir={place}/%n
PartitionName=all Nodes=ALL Default=YES State=UP
"""
NODE = "NodeName={name} NodeAddr={address} CPUs=64 RealMemory=1000 Gres=gpu:8\n"


def missing():
    """Why there is no Slurm here, or None."""
    if not shutil.which("slurmctld") or not shutil.which("slurmd"):
        return "needs Slurm: apt-get install slurmctld slurmd slurm-client"
    return None


class Cluster:
    """`place` is a folder that both nodes see."""

    def __init__(self, nodes, place):
        self.nodes, self.place, self.daemons = nodes, place, {}
        self.environment = {"SLURM_CONF": str(place / "slurm.conf")}
        for folder in ("state", *(node.name for node in nodes)):
            (place / folder).mkdir(parents=True)
        first = nodes[0]
        text = CONFIG.format(first=first.name, address=first.address, place=place)
        for node in nodes:
            text += NODE.format(name=node.name, address=node.address)
        (place / "slurm.conf").write_text(text)
        for number in range(8):
            (place / f"gpu{number}").touch()
        (place / "gres.conf").write_text(f"Name=gpu File={place}/gpu[0-7]\n")
        (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # unused here

    def __enter__(self):
        self._start(self.nodes[0], "slurmctld", "-D", "-c")
        for node in self.nodes:
            self.start_node(node)
        return self

    def __exit__(self, *_):
        for job in self.daemons.values():
            job.__exit__()

    def _start(self, node, *words):
        log = self.place / f"{node.name}-{words[0]}.out"
        self.daemons[node.name, words[0]] = node.start(words, log, **self.environment)

    def start_node(self, node):
        self._start(node, "slurmd", "-D", "-N", node.name)

    def kill_node(self, node):
        """All at once, as when its power goes: slurmd, the ranks, and their engine."""
        node.kill()
        self.daemons[node.name, "slurmd"].wait_for_end()

    def ask(self, *words, **environment):
        """The output of a command of Slurm, run on the first node."""
        done = subprocess.run(
            self.nodes[0].command(words),
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment, **environment},
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, script, *options, **environment):
        """The number of the job."""
        return self.ask("sbatch", "--parsable", *options, script, **environment)

    def state(self, job):
        return self.ask("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", job)

    def idle(self):
        """Nodes that wait for jobs."""
        return self.ask("sinfo", "--noheader", "--Node", "--format=%t").split().count("idle")

    def said(self):
        """The logs of its programs, for messages."""
        return "\n".join(path.read_text() for path in sorted(self.place.glob("*.log")))
