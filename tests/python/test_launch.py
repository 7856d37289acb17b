# SPDX-License-Identifier: Apache-2.0
"""tools/examples/launch: scripts that start engines and trainers on other machines. They are run as
far as possible here; a scheduler is played by a few lines that set its variables."""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
import ringpack
from conftest import ROOT
from job_kit import PATIENCE, Job
from warm_python import warm_python

LAUNCH = ROOT / "tools" / "examples" / "launch"
warm = warm_python()
# srun: two nodes of one task, side by side; each node has a run directory of its own.
SRUN = """#!/bin/bash
shift 3 # options
for node in 0 1; do
    mkdir -m 700 "$PLACE/node$node"
    SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 \\
        SLURM_PROCID=$node SLURM_NTASKS=2 SLURM_LOCALID=0 \\
        SLURM_NTASKS_PER_NODE=1 SLURM_NODEID=$node \\
        XDG_RUNTIME_DIR=$PLACE/node$node "$@" &
done
wait -n && wait -n
"""


@pytest.fixture
def port():
    """A free one, of those that slurm.sbatch takes: it is the number of the job as well."""
    for number in random.sample(range(20000, 40000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", number))
            return str(number)
    pytest.fail("no port is free")


@pytest.fixture
def place(program, folder):
    """A working directory with a corpus, and the interpreter of the tests as `python`."""
    text = ["--glob", "a*.py", "-q", "-o", folder / "licences", os.path.dirname(os.__file__)]
    subprocess.run([program, "convert", *text], check=True)
    return folder


def run(command, place, warm=None, **environment):
    paths = [os.path.dirname(sys.executable), os.path.dirname(os.environ["RINGPACK"])]
    if warm:
        paths.insert(0, warm.environment["PATH"])
    surroundings = {
        **os.environ,
        **(warm.environment if warm else {}),
        "PATH": os.pathsep.join([*environment.pop("paths", []), *paths, os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    with Job(command, place / "log", cwd=place, env=surroundings) as job:
        return job.finish()


def test_torchrun(place, port, warm):
    pytest.importorskip("torch")
    command = [LAUNCH / "torchrun.sh", 1, 0, "localhost", 2]
    saved = str(place / "saved")
    output = run(command, place, warm, STEPS="2", CHECKPOINTS=saved, MASTER_PORT=port)
    assert len(re.findall(r"^step \d+ row \d+ loss", output, re.M)) == 2


def test_slurm(place, port, warm):
    """Two nodes, each with its own rank only."""
    pytest.importorskip("torch")
    for name, text in ("srun", SRUN), ("scontrol", "#!/bin/sh\necho localhost\n"):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    (place / "gpt.py").symlink_to(ROOT / "tools" / "examples" / "gpt.py")
    (place / "corpus.bin").symlink_to(place / "licences.bin")
    (place / "corpus.idx").symlink_to(place / "licences.idx")
    script = (LAUNCH / "slurm.sbatch").read_text()
    assert script.count("gpt.py --corpus corpus") == 1
    short = place / "short.sbatch"
    short.write_text(script.replace("--corpus corpus", "--steps 2 --corpus corpus"))
    slurm = {"SLURM_JOB_ID": port, "SLURM_JOB_NODELIST": "here[1-2]", "PLACE": str(place)}
    output = run(["bash", short], place, warm, paths=[str(place)], **slurm)
    assert len(re.findall(r"^step \d+ row \d+ loss", output, re.M)) == 2
    assert "row 16" in output


def test_mpirun(place):
    if not shutil.which("mpicc") or not shutil.which("pkg-config"):
        pytest.skip("needs Open MPI: apt-get install libopenmpi-dev openmpi-bin pkg-config")
    build = os.environ["RP_BUILD_DIR"]
    installed = ["cmake", "--install", build, "--prefix", place / "usr"]
    subprocess.run(installed, check=True, capture_output=True)
    library = next((place / "usr").rglob("libringpack.so")).parent
    (place / "config.yaml").write_text("sources: [licences]\nseed: 1\nseq_len: 256\n")
    output = run(
        [LAUNCH / "mpirun.sh", "localhost:3", "config.yaml"],
        place,
        PKG_CONFIG_PATH=str(library / "pkgconfig"),  # names /usr/local, without the program there
        CPATH=str(place / "usr" / "include"),
        LIBRARY_PATH=str(library),
        LD_LIBRARY_PATH=str(library),
        STEPS="2",
        STEP_ROWS="12",
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_rmaps_base_oversubscribe="1",
    )
    assert re.findall(r"^row (\d+) loss", output, re.M) == ["12", "24"]


@pytest.mark.parametrize("script", ["torchrun.sh", "mpirun.sh", "slurm.sbatch"])
def test_scripts_are_bash(script):
    subprocess.run(["bash", "-n", LAUNCH / script], check=True)


@pytest.mark.parametrize(
    "source, installed",
    [
        (LAUNCH / "ringpack@.service", "/usr/local/bin/ringpack"),
        (ROOT / "tools" / "package" / "debian" / "system.service", "/usr/bin/ringpack"),
    ],
    ids=["user", "system"],
)
def test_the_unit_is_one_that_systemd_takes(program, folder, source, installed):
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    unit = folder / "ringpack@.service"
    text = source.read_text()
    assert text.count(f"{installed} serve") == 1
    unit.write_text(text.replace(installed, program))
    command = ["systemd-analyze", "verify", "--man=no", unit]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and unit.name not in done.stderr, done.stderr
    unit.write_text(unit.read_text().replace("Restart=", "Restrat="))
    done = subprocess.run(command, capture_output=True, text=True)
    assert "Restrat" in done.stderr


def options_of_serve(program):
    """Its own, and the keys of a config."""
    own = subprocess.run([program, "help", "serve"], capture_output=True, text=True).stdout
    keys = subprocess.run([program, "config", "keys"], capture_output=True, text=True).stdout
    names = re.findall(r"^  ([a-z_]+) ", keys, re.M)
    return {*re.findall(r" --([a-z-]+)", own), *(name.replace("_", "-") for name in names)}


def test_kubernetes_is_given_what_it_knows(program):
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    pod = job["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    containers = pod["initContainers"] + pod["containers"]
    for container in containers:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        subprocess.run(["bash", "-n", "-c", container["args"][0]], check=True)
    assert pod["initContainers"][0]["restartPolicy"] == "Always"
    options = re.findall(r"--([a-z-]+)", containers[0]["args"][0])
    assert options and set(options) <= options_of_serve(program)


def test_compose_is_given_what_it_knows(program):
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((LAUNCH / "compose.yaml").read_text())
    engine, trainer = (compose["services"][name] for name in ("engine", "trainer"))
    assert engine["user"] == trainer["user"] and "uid=1000," in str(compose["volumes"]["run"])
    assert "run:/run/ringpack" in engine["volumes"] and "run:/run/ringpack" in trainer["volumes"]
    options = {word[2:] for word in engine["command"] if word.startswith("--")}
    assert options and options <= options_of_serve(program)


SERVICES = """
mount -t tmpfs ringpack /run && mkdir -p /run/systemd/system # or it says that nothing was booted
exec /lib/systemd/systemd --user
"""


@pytest.mark.parametrize("abstract", [False, True])
def test_a_service_manager_is_told_when_trainers_can_attach(program, place, abstract):
    name = f"\0ringpack-test-{os.getpid()}" if abstract else str(place / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(60)
        arguments = ["--run-dir", place / "run", "--source", "licences", "--checkpoint-dir", "none"]
        environment = {**os.environ, "NOTIFY_SOCKET": name.replace("\0", "@")}
        (place / "run").mkdir(mode=0o700)
        command = [program, "serve", "--seq-len", "64", "--batch-size", "2", *arguments]
        with Job(command, place / "log", cwd=place, env=environment):
            assert manager.recv(64) == b"READY=1"
            with ringpack.Loader(run_dir=place / "run", connect_timeout=PATIENCE) as loader:
                assert next(loader).first_row == 0
    loader = "ringpack.Loader(corpus='licences', seq_len=64, batch_size=2, run='owned')"
    owned = f"import ringpack; next({loader})"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name + "2")  # the owner process's, not for the engine
        environment["NOTIFY_SOCKET"] += "2"
        subprocess.run([sys.executable, "-c", owned], cwd=place, env=environment, check=True)
        with pytest.raises(BlockingIOError):
            manager.recv(64, socket.MSG_DONTWAIT)


def test_systemd_starts_a_killed_engine_again(place):
    """A systemd of our own runs the unit; the trainer continues with the next row."""
    run_dir, config = place / "run", place / ".config"
    for folder in run_dir, config / "systemd" / "user", config / "ringpack":
        folder.mkdir(mode=0o700, parents=True)
    unit = (LAUNCH / "ringpack@.service").read_text()
    unit = unit.replace("/usr/local/bin/ringpack", os.environ["RINGPACK"])
    (config / "systemd" / "user" / "ringpack@.service").write_text(unit)
    text = f"sources: [{place}/licences]\nseq_len: 64\nnum_epochs: endless\n"
    (config / "ringpack" / "pretrain.yaml").write_text(text)
    (config / "ringpack" / "pretrain.env").write_text("OPTIONS=--batch-size 2\n")
    homes = {**os.environ, "HOME": str(place), "XDG_RUNTIME_DIR": str(run_dir)}
    homes.pop("XDG_CONFIG_HOME", None)

    def systemctl(*words):
        command = ["systemctl", "--user", *words]
        return subprocess.run(command, env=homes, capture_output=True, text=True)

    manager = ["unshare", "--mount", "bash", "-c", SERVICES]
    with Job(manager, place / "systemd.log", env=homes) as job:
        if not job.comes((run_dir / "systemd" / "private").exists):
            pytest.skip(f"LEFT OUT: no systemd can be run here: {job.output()}")
        started = systemctl("start", "ringpack@pretrain")
        assert started.returncode == 0, started.stderr
        patient = {"connect_timeout": PATIENCE, "restart_timeout": PATIENCE}
        with ringpack.Loader(run="pretrain", run_dir=run_dir / "ringpack", **patient) as loader:
            rows = [next(loader).first_row]
            engine = systemctl("show", "--property=MainPID", "--value", "ringpack@pretrain").stdout
            os.kill(int(engine), signal.SIGKILL)
            while loader.counts()["reattaches"] == 0:
                rows.append(next(loader).first_row)
        assert rows == list(range(0, 2 * len(rows), 2))
        systemctl("exit")
        assert job.wait_for_end() == 0


@pytest.mark.parametrize("version", ["1.29", "1.37"])  # 1.29 is the first one with sidecars
def test_kubernetes_takes_the_manifest(version):
    yaml = pytest.importorskip("yaml")
    schemas = pytest.importorskip("kubernetes_validate", reason="LEFT OUT: no kubernetes-validate")
    service, job = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    for resource in service, job:
        schemas.validate(resource, version, strict=True)
    engine = job["spec"]["template"]["spec"]["initContainers"][0]
    engine["restartPolice"] = engine.pop("restartPolicy")
    with pytest.raises(schemas.ValidationError, match="restartPolice"):
        schemas.validate(job, version, strict=True)


def test_an_engine_and_a_trainer_of_different_containers(place):
    """Of a pod: they share the socket's folder, and see neither each other's processes nor shm."""
    separate = ["unshare", "--pid", "--fork", "--mount-proc", "--ipc", "--mount"]
    if subprocess.run([*separate, "true"], capture_output=True).returncode != 0:
        pytest.skip("LEFT OUT: namespaces are not allowed here")
    run_dir = place / "run"
    run_dir.mkdir(mode=0o700)
    serve = [os.environ["RINGPACK"], "serve", "--run", "pod", "--run-dir", run_dir]
    serve += ["--source", place / "licences", "--seq-len", "64", "--batch-size", "2"]
    take = f"""
import ringpack
with ringpack.Loader(run="pod", run_dir={str(run_dir)!r}, connect_timeout={PATIENCE}) as loader:
    for _ in range(20):
        batch = next(loader)
    print("row", batch.next_row)
"""
    with Job([*separate, *serve], place / "engine.log"):
        assert "row 40\n" in run([*separate, sys.executable, "-c", take], place)
