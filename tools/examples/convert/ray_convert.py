# SPDX-License-Identifier: Apache-2.0
"""Convert a corpus on a Ray cluster whose nodes share a file system.

    python ray_convert.py [--parts N] [--cpus N] -- -o PREFIX [other options of convert] INPUT...

Each part is a Ray task. A task that fails is tried again, and does not read the files again that it
had finished; so does the whole command, when it is typed again.
"""

import argparse
import subprocess

import ray


def convert(arguments, *options):
    command = ["ringpack", "convert", "--quiet", *options, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--cpus", type=int, default=4, help="of a part")
    parser.add_argument("convert", nargs="+", metavar="-- OPTION", help="of ringpack convert")
    chosen = parser.parse_args()

    ray.init()
    task = ray.remote(max_retries=3, retry_exceptions=True)(convert)
    workers = ("--workers", str(chosen.cpus))
    waiting = [
        task.options(num_cpus=chosen.cpus).remote(
            chosen.convert, "--part", f"{part}/{chosen.parts}", *workers
        )
        for part in range(chosen.parts)
    ]
    while waiting:
        done, waiting = ray.wait(waiting)
        ray.get(done)
        print(f"{chosen.parts - len(waiting)} of {chosen.parts} parts", flush=True)
    ray.get(task.remote(chosen.convert, "--merge"))


if __name__ == "__main__":
    main()
