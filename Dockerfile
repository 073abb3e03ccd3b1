# rmq as an image: docker build -t rmq .
# One process without root: a broker with its own name server, or another command of rmq.

FROM python:3.13-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python -m venv /opt/rmq \
    && /opt/rmq/bin/pip install --no-cache-dir --disable-pip-version-check '.[tools,controller]' \
    && /opt/rmq/bin/pip uninstall -q -y pip \
    && find /opt/rmq -name '*.so' -exec strip --strip-unneeded {} + \
    && /opt/rmq/bin/python -m compileall -q /opt/rmq/lib

FROM python:3.13-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /var/lib/rmq --create-home --shell /usr/sbin/nologin rmq
COPY --from=build /opt/rmq /opt/rmq
COPY --chown=10001 packaging/docker/broker.conf packaging/docker/namesrv.conf /etc/rmq/
ENV PATH=/opt/rmq/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /var/lib/rmq
VOLUME /var/lib/rmq
# clients, the fast port of producers, the name server, metrics and health
EXPOSE 10911 10909 9876 5557
# a stop flushes the log within rmq.stopTimeoutSeconds, less than the 10 s of docker stop
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/rmq/bin/rmq", "health"]
ENTRYPOINT ["/opt/rmq/bin/rmq"]
CMD ["broker", "-c", "/etc/rmq/broker.conf"]
