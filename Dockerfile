# docker build -t mmhash .    With a GPU: docker build --build-arg EXTRAS=service,cuda -t mmhash:cuda .
# docs/docker.md shows how to run it. `make image` builds and tests it without Docker.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS=service
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY mmhash mmhash
COPY service service
# pip and its configuration stay behind in this stage, because an index's address may hold a
# password. The constraints also apply to build requirements.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python3 -m venv /pip \
    && python3 -m venv --without-pip /opt/mmhash \
    && PIP_CONSTRAINT=/src/constraints.txt /pip/bin/pip --python /opt/mmhash/bin/python \
       install --no-cache-dir --disable-pip-version-check ".[${EXTRAS}]"

FROM ${BASE}
ARG REVISION=
LABEL org.opencontainers.image.title="mmhash" \
      org.opencontainers.image.description="One key for one content: multimodal cache keys over HTTP" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/mmhash /opt/mmhash
# mmhash writes only below /tmp, so the rest may be read-only.
ENV PATH=/opt/mmhash/bin:$PATH \
    MMHASH_HOST=0.0.0.0 \
    MMHASH_CACHE_DIR=/tmp/mmhash
USER 65532:65532
EXPOSE 8780
# mmhash then answers the running requests and exits.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["mmhash", "health", "--ready"]
ENTRYPOINT ["mmhash"]
CMD ["serve"]
