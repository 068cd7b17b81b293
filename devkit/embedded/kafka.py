"""A real Kafka broker as a local process: one node that is broker and controller (KRaft)."""

import base64
import contextlib
import logging
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devkit.embedded.base import Embedded
from devkit.embedded.processes import Server, ServerError, free_port, port_answers
from gateway.jars import ivy as jars
from gateway.jars.java import java

_PORT_ATTEMPTS = 5
_USER = "pgsluice"
_LOG4J = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n
log4j.logger.kafka.server.KafkaRaftServer=INFO
"""
# Librdkafka complains about each refused connection while the broker comes up; nobody need read it.
_silent = logging.getLogger("devkit.embedded.kafka.probe")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class EmbeddedKafka(Embedded):
    """One Kafka broker in a temporary folder, listening on 127.0.0.1 only.

    Topics have to be created, as on a well-kept cluster (``auto.create.topics.enable=false``). The
    data is new at `start` and is removed at `stop`; in between the broker can be killed and
    restarted on the same data and the same port.

    Args:
        config: settings of server.properties, over the defaults here.
        heap_mb: the Java heap, in MiB.
        advertised_port: a port on 127.0.0.1 that clients of a second listener connect to,
            so that somebody can stand between them and the broker.
        sasl_ssl: open a listener of this security protocol, too; ``config`` has what it needs.
        password: let nobody in who does not give it, as user ``pgsluice``; None: everybody.

    Attributes:
        port: of the listener that clients connect to directly.
        proxied_port: of the listener that has ``advertised_port`` in its metadata.
        sasl_ssl_port: of the listener that takes nobody without TLS and a password.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        advertised_port: int | None = None,
        sasl_ssl: bool = False,
        password: str | None = None,
    ) -> None:
        super().__init__("Kafka")
        self.proxied_port = 0
        self.sasl_ssl_port = 0
        self._sasl_ssl = sasl_ssl
        self._password = password
        self._advertised_port = advertised_port
        self._config = dict(config or {})
        self._settings: dict[str, str] = {}
        self._heap_mb = heap_mb

    @property
    def bootstrap_servers(self) -> str:
        """Value of ``bootstrap.servers`` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def client_settings(self) -> dict[str, str]:
        """How clients connect, in librdkafka's terms."""
        settings = {"bootstrap.servers": self.bootstrap_servers}
        if self._password is not None:
            settings |= {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": _USER,
                "sasl.password": self._password,
            }
        return settings

    def _make(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pgsluice-kafka-"))
        (self._folder / "log4j.properties").write_text(_LOG4J)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._configure()
            self._format()
            try:
                self._server = self._launch()
            except ServerError:
                # Somebody took a port between our look and the broker's bind.
                taken = "Address already in use" in self.log.read_text(errors="replace")
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
                shutil.rmtree(self._folder / "data", ignore_errors=True)
            else:
                return

    def _configure(self) -> None:
        ports: set[int] = set()
        while len(ports) < 4:
            ports.add(free_port())
        self.port, self.proxied_port, self.sasl_ssl_port, controller_port = ports
        listeners = {"PLAINTEXT": self.port}
        if self._sasl_ssl:
            listeners["SASL_SSL"] = self.sasl_ssl_port
        advertised = dict(listeners)
        if self._advertised_port is not None:
            listeners["PROXIED"] = self.proxied_port
            advertised["PROXIED"] = self._advertised_port
        protocol = "PLAINTEXT" if self._password is None else "SASL_PLAINTEXT"
        self._settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": _endpoints(listeners | {"CONTROLLER": controller_port}),
            "advertised.listeners": _endpoints(advertised),
            "listener.security.protocol.map": f"PLAINTEXT:{protocol},PROXIED:PLAINTEXT,"
            f"SASL_SSL:SASL_SSL,CONTROLLER:{protocol}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            # After kill -9 the broker may come back only when its old session has ended.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **({} if self._password is None else _of_password(self._password)),
            **self._config,
        }
        lines = (f"{key}={value}\n" for key, value in self._settings.items())
        self._properties.write_text("".join(lines))

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, main_class: str, *arguments: str | Path) -> list[str | Path]:
        return [
            java(),
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            # A broker that lives for minutes never earns back what the second compiler costs.
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Djava.awt.headless=true",
            f"-Dlog4j.configuration={(self.folder / 'log4j.properties').as_uri()}",
            f"-Dkafka.logs.dir={self.folder}",
            "-cp",
            f"{jars.folder('kafka')}/*",
            main_class,
            *arguments,
        ]

    def _format(self) -> None:
        """Write what ``kafka-storage format`` does, without a JVM: an id for the cluster.

        The features of a cluster that has no ``bootstrap.checkpoint`` are those of its release
        (``BootstrapDirectory`` of Kafka's metadata).
        """
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for folder in self._settings["log.dirs"].split(","):
            Path(folder).mkdir(parents=True, exist_ok=True)
            meta = Path(folder) / "meta.properties"
            meta.write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\n")

    def _launch(self) -> Server:
        server = Server(
            "Kafka",
            self._java("kafka.Kafka", self._properties),
            log=self.log,
            cwd=self.folder,
            remove=self.folder,
        )
        server.await_ready(self._answers, timeout_s=240)
        return server

    def _answers(self) -> bool:
        """Whether the broker describes itself to clients; a port that is open is not enough."""
        if not port_answers(self.port):
            return False
        admin = AdminClient({**self.client_settings}, logger=_silent)
        with contextlib.suppress(KafkaException):
            return len(admin.list_topics(timeout=5).brokers) == 1
        return False


def _of_password(password: str) -> dict[str, str]:
    """Settings of server.properties, a file that nobody else can read."""
    login = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{_USER}" password="{password}" user_{_USER}="{password}";'
    )
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
    }


def _endpoints(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
