# Two images of one file:
#
#   docker build --target ringfence -t ringfence:local .                      # workers, consumers, bridges, topics, rings
#   docker build --target ringfence-reconcile -t ringfence-reconcile:local .  # all that, and Java and Spark: reconcile, audit
#
# Bookworm by name: the next Debian has no Java 17, which Spark 4 and Kafka 4 run on.
ARG BASE=python:3.11-slim-bookworm

# The distributions. The same tree and the same SOURCE_DATE_EPOCH give the same bytes.
FROM ${BASE} AS wheels
WORKDIR /source
# For the native core; the images have none of it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements-build.lock ./
RUN python3 -m venv /build \
    && /build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement requirements-build.lock
COPY . ./
ARG SOURCE_DATE_EPOCH=315532800
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH}
# A distribution without the core is one that works in Python: not what an image is to be by oversight.
RUN /build/bin/pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels ./client . \
    && { /build/bin/python -m zipfile --list /wheels/ringfence-[0-9]*.whl | grep --quiet native/_core \
        || { echo "the native core was not built: BASE must have Python's headers, as python:3.11 has" >&2; exit 1; }; }

# What they need. Apart from the code: a change of the code does not fetch it again.
FROM ${BASE} AS environment
WORKDIR /requirements
COPY requirements-worker.lock ./
RUN python3 -m venv /opt/ringfence \
    && /opt/ringfence/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
        --requirement requirements-worker.lock

FROM environment AS environment-reconcile
COPY requirements-reconcile.lock ./
RUN /opt/ringfence/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
        --requirement requirements-reconcile.lock

# What both images have: tini, because the first process of a container is sent no signal that it has not asked for; a user of
# its own, whose folder for state exists beforehand, so that a fresh volume there belongs to it; and the default configuration
# where verbs look for it.
FROM ${BASE} AS common
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --uid 10001 --create-home ringfence \
    && install --directory --owner=ringfence --group=ringfence /ringfence/data
ENV PATH=/opt/ringfence/bin:${PATH} \
    PYTHONUNBUFFERED=1
WORKDIR /ringfence
COPY conf/ringfence.toml conf/ringfence.toml
EXPOSE 6066
VOLUME /ringfence/data
ENTRYPOINT ["/usr/bin/tini", "--", "ringfence"]
CMD ["--help"]

FROM common AS ringfence-reconcile
# Spark's connector is fetched the first time; a fresh volume for it belongs to the user, too. The newest Java 17 is wanted.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && install --directory --owner=ringfence --group=ringfence /home/ringfence/.ivy2.5.2
# The home of a read-only container takes no cache of fonts.
ENV MPLCONFIGDIR=/tmp/matplotlib
COPY --from=environment-reconcile /opt/ringfence /opt/ringfence
COPY --from=wheels /wheels /wheels
RUN /opt/ringfence/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index /wheels/*.whl
USER 10001:10001
# A run ends; there is nobody to ask.
HEALTHCHECK NONE

# The last one is what a build without --target makes.
FROM common AS ringfence
COPY --from=environment /opt/ringfence /opt/ringfence
COPY --from=wheels /wheels /wheels
RUN /opt/ringfence/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-index /wheels/*.whl
# By number: Kubernetes' runAsNonRoot knows no names.
USER 10001:10001
# /live and not /health: a process without work, or whose broker is away, is no better for a restart. Consumers and bridges
# listen where they are told to: --web-port 6066.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('RINGFENCE_APP__WEB_PORT', '6066')}/live\", timeout=3)"]
