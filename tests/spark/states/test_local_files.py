"""The local file system of the job's own sessions, beside Hadoop's."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(params=["pgsluice.files.RawFiles", "org.apache.hadoop.fs.RawLocalFileSystem"])
def files(spark: SparkSession, request: pytest.FixtureRequest) -> Any:
    """A file system; Hadoop's own says that the expectations are right."""
    jvm: Any = spark._jvm
    made = jvm.org.apache.spark.util.Utils.classForName(request.param, True, False)
    found = made.newInstance()
    conf = spark._jsc.hadoopConfiguration()
    found.initialize(jvm.java.net.URI("file:///"), conf)
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_permissions_are_set_and_folders_keep_their_group(
    spark: SparkSession, files: Any, tmp_path: Path
) -> None:
    hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    shared, file = tmp_path / "shared", tmp_path / "file"
    shared.mkdir()
    shared.chmod(0o2770)
    file.write_text("")
    for path, bits in ((shared, 0o750), (file, 0o640)):
        files.setPermission(hadoop.Path(str(path)), hadoop.permission.FsPermission(bits))

    assert (mode(shared), mode(file)) == (0o2750, 0o640)

    files.setPermission(hadoop.Path(str(shared)), hadoop.permission.FsPermission(0o1777))

    assert mode(shared) == 0o3777


def test_links_are_seen_as_links(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    (tmp_path / "file").write_text("four")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nothing")

    def seen(name: str) -> tuple[bool, str]:
        status = files.getFileLinkStatus(hadoop.Path(str(tmp_path / name)))
        return status.isSymlink(), Path(str(status.getPath().toUri().getPath())).name

    assert [seen(name) for name in ("file", "link", "dangling")] == [
        (False, "file"),
        (True, "link"),
        (True, "dangling"),
    ]


def test_a_session_of_one_process_uses_it(spark: SparkSession, tmp_path: Path) -> None:
    hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    conf = spark._jsc.hadoopConfiguration()
    found = hadoop.Path(str(tmp_path)).getFileSystem(conf)
    context = hadoop.FileContext.getFileContext(found.getUri(), conf)

    assert found.getClass().getName() == "pgsluice.files.LocalFiles"
    assert context.getDefaultFileSystem().getClass().getName() == "pgsluice.files.LocalContext"
