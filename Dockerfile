# Florilegium in a container. The root file system can be read-only: everything is written to /data, and temporary files
# to /tmp. Build it with `docker build -t florilegium .`; deploy/compose.yaml runs it.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv /opt/florilegium \
    && /opt/florilegium/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY aggregator aggregator
COPY auth auth
COPY config config
COPY florilegium florilegium
COPY server server
COPY sessions sessions
COPY sources sources
# The build backend is part of the lock, so nothing else is downloaded. pip is not needed in the image.
RUN PATH="/opt/florilegium/bin:$PATH" pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/florilegium/bin/python -m pip uninstall --yes --quiet uv-build pip

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Florilegium" \
      org.opencontainers.image.description="A multi-user MCP knowledge server with per-user databases" \
      org.opencontainers.image.licenses="Apache-2.0"
# A fixed id, so that the owner of a volume does not change with the image.
RUN groupadd --gid 10001 florilegium \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin florilegium \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=build /opt/florilegium /opt/florilegium
COPY deploy/scripts/ /opt/florilegium/bin/
ENV PATH=/opt/florilegium/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FLORILEGIUM_DATA_DIR=/data \
    FLORILEGIUM_HOST=0.0.0.0 \
    FLORILEGIUM_REQUIRE_AUTH=true
USER 10001:10001
VOLUME ["/data"]
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=6s --start-period=30s --retries=3 CMD ["florilegium", "healthcheck"]
ENTRYPOINT ["florilegium"]
CMD ["serve"]
