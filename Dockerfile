# syntax=docker/dockerfile:1
# Three images from one file: `--target gateway`, `--target consumer`, and `--target spark` for the pods of a cluster.

FROM python:3.11-slim-bookworm AS python
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# tini is the first process: it passes signals on from the first instant, also before Python runs, and collects orphans.
RUN apt-get update \
 && apt-get install -y --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 10001 pgsluice \
 && useradd --system --uid 10001 --gid 10001 --create-home --home-dir /var/lib/pgsluice pgsluice

# What both images are built with, and the wheel; nothing of it reaches an image, pip and compiler included.
FROM python AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements-build.lock ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE NOTICE ivy.xml ivy.sha256 ./
COPY tools/build_rows.py tools/hatch_build.py tools/
COPY gateway gateway
COPY pgsluice_client pgsluice_client
COPY schemas schemas
COPY spark_consumer spark_consumer
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

# One environment for each image, without a pip of its own: `--target gateway` builds only its own.
FROM build AS gateway-packages
COPY requirements-gateway.lock ./
RUN python -m venv --without-pip /opt/gateway \
 && pip --python /opt/gateway/bin/python install --no-cache-dir --require-hashes -r requirements-gateway.lock \
 && pip --python /opt/gateway/bin/python install --no-cache-dir --no-deps /wheels/*.whl

FROM build AS consumer-packages
COPY requirements-consumer.lock ./
RUN python -m venv --without-pip /opt/consumer \
 && pip --python /opt/consumer/bin/python install --no-cache-dir --require-hashes -r requirements-consumer.lock \
 && pip --python /opt/consumer/bin/python install --no-cache-dir --no-deps /wheels/*.whl

# The base image's Python without its pip: nothing in an image installs packages.
FROM python AS runtime
RUN python -m pip uninstall --yes --quiet --root-user-action ignore setuptools wheel pip

FROM runtime AS gateway
COPY --from=gateway-packages /opt/gateway /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH
# A volume there is the gateway's own from the beginning.
RUN mkdir /var/lib/pgsluice/spool \
 && chown 10001:10001 /var/lib/pgsluice/spool
# By number: Kubernetes cannot tell whether a name is root.
USER 10001:10001
WORKDIR /var/lib/pgsluice
STOPSIGNAL SIGTERM
# 143, ended by SIGTERM before Python could answer it, is stopped as 0 is.
ENTRYPOINT ["tini", "-e", "143", "--", "pgsluice"]
CMD ["run", "--config", "/etc/pgsluice/pgsluice.toml"]

# Java, the environment and the connectors of the Spark job: a job that restarts needs no repository.
FROM runtime AS job
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
COPY --from=consumer-packages /opt/consumer /opt/consumer
ENV PATH=/opt/consumer/bin:$PATH PGSLUICE_CACHE=/opt/pgsluice-cache
RUN python -m gateway.jars.fetch spark iceberg jdbc \
 && rm -rf /opt/pgsluice-cache/ivy /opt/pgsluice-cache/jars/java-compiler-* \
 && mkdir -p /var/lib/pgsluice/warehouse /var/lib/pgsluice/checkpoint \
 && chown -R 10001:10001 /opt/pgsluice-cache /var/lib/pgsluice

# Driver and executors on Kubernetes, laid out as Spark wants it there. The connectors are among Spark's own jars, but
# for those of libraries that it has itself.
FROM job AS spark
ENV SPARK_HOME=/opt/spark
RUN python -m gateway.jars.fetch s3 \
 && rm -rf /opt/pgsluice-cache/ivy \
 && mkdir -p /opt/spark/jars /opt/spark/work-dir /opt/pgsluice \
 && packages=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
 && ln -s "$packages/pyspark/bin" "$packages/pyspark/sbin" "$packages/pyspark/python" /opt/spark/ \
 && ln -s "$packages"/pyspark/jars/*.jar /opt/spark/jars/ \
 && for jar in /opt/pgsluice-cache/jars/*/*.jar; do \
      name=${jar##*/}; \
      ls /opt/spark/jars/"${name%%-[0-9]*}"-[0-9]*.jar >/dev/null 2>&1 || ln -s "$jar" /opt/spark/jars/ || exit 1; \
    done \
 && cp "$packages/spark_consumer/__main__.py" /opt/pgsluice/consume.py \
 && chown 10001:10001 /opt/spark/work-dir
COPY deploy/kubernetes/spark/entrypoint.sh /opt/entrypoint.sh
# By number: Kubernetes cannot tell whether a name is root.
USER 10001:10001
WORKDIR /opt/spark/work-dir
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/entrypoint.sh"]

FROM job AS consumer
# By number: Kubernetes cannot tell whether a name is root.
USER 10001:10001
WORKDIR /var/lib/pgsluice
STOPSIGNAL SIGTERM
# 143, ended by SIGTERM before Python could answer it, is stopped as 0 is.
ENTRYPOINT ["tini", "-e", "143", "--", "pgsluice"]
CMD ["consume", "--config", "/etc/pgsluice/pgsluice.toml"]
