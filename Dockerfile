# One image for every verb. Bookworm by name: the next Debian has no Java 17, which Spark 4 and Kafka 4 run on.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

# A user of its own; its folders for state and for Spark's connector exist beforehand, so that a fresh volume there
# belongs to it.
RUN useradd --uid 10001 --create-home ringfence \
    && install --directory --owner=ringfence --group=ringfence /ringfence/data /home/ringfence/.ivy2.5.2

WORKDIR /ringfence

# Apart from the code: a change of the code does not fetch the dependencies again.
COPY requirements.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement requirements.lock

COPY . ./
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation ./client .

USER ringfence
VOLUME /ringfence/data
EXPOSE 6066

ENTRYPOINT ["ringfence"]
CMD ["--help"]
