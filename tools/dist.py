"""A folder with all that a cluster needs for the Spark job.

``python tools/dist.py [--iceberg] [--jdbc] [--s3] [FOLDER]``
The wheel, the connector jars for ``spark-submit --jars``, the options of the executors' JVMs, and
the program that spark-submit starts;
with ``--iceberg`` also the jar of Iceberg, with ``--jdbc`` PostgreSQL's driver for its catalogs,
with ``--s3`` those of Hadoop's ``s3a://``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gateway.jars.ivy import jars
from spark_consumer.spark.session import AVRO_LIMITS

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Make the folder, by default ``dist``; the exit code."""
    more = [name for name in ("iceberg", "jdbc", "s3") if f"--{name}" in arguments]
    folders = [name for name in arguments if not name.startswith("--")]
    folder = Path(folders[0] if folders else "dist").resolve()
    (folder / "jars").mkdir(parents=True, exist_ok=True)
    build = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(
        [sys.executable, *build],
        cwd=ROOT,
        check=False,
        # For every machine of a cluster; the job does not route.
        env={**os.environ, "PGSLUICE_INTERPRETED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        return done.returncode
    for jar in [jar for name in ("spark", *more) for jar in jars(name)]:
        shutil.copy(jar, folder / "jars")
    # spark-submit takes a Python program by the end of its name.
    shutil.copy(ROOT / "spark_consumer" / "__main__.py", folder / "consume.py")
    (folder / "executor.options").write_text(AVRO_LIMITS)
    print(f"dist: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
