"""An S3 server as a local process: S3Proxy, which keeps objects as files."""

import tempfile
from pathlib import Path

from devkit.embedded.base import Embedded
from devkit.embedded.processes import Server, free_port, port_answers
from gateway.jars.ivy import jars
from gateway.jars.java import java

_USER = "spark"
_KEY = "not a secret"


class EmbeddedS3(Embedded):
    """One S3 server on 127.0.0.1.

    Args:
        bucket: name of its bucket.
    """

    def __init__(self, bucket: str = "lake") -> None:
        super().__init__("the S3 server")
        self._bucket = bucket

    @property
    def bucket(self) -> Path:
        """The folder with the bucket's objects, by their keys."""
        return self.folder / "objects" / self._bucket

    @property
    def spark_settings(self) -> dict[str, str]:
        """Settings of a Spark program that reads and writes ``s3a://`` there."""
        client = {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": _USER,
            "secret.key": _KEY,
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in client.items()}

    def _make(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pgsluice-s3-"))
        self.bucket.mkdir(parents=True)
        self.port = free_port()
        self._server = self._launch()

    def _launch(self) -> Server:
        settings = {
            "s3proxy.endpoint": f"http://127.0.0.1:{self.port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": _USER,
            "s3proxy.credential": _KEY,
            "jclouds.provider": "filesystem",
            "jclouds.filesystem.basedir": str(self.bucket.parent),
        }
        file = self.folder / "s3.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        path = ":".join(map(str, jars("s3-server")))
        server = Server(
            "S3Proxy",
            [
                java(),
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xmx128m",
                "-DLOG_LEVEL=warn",
                "-cp",
                path,
                "org.gaul.s3proxy.Main",
                "--properties",
                file,
            ],
            log=self.log,
            cwd=self.folder,
            remove=self.folder,
        )
        server.await_ready(lambda: port_answers(self.port), timeout_s=120)
        return server
