# docker build -t mmhash .    With a GPU: docker build --build-arg EXTRAS=service,cuda -t mmhash:cuda .
# How to run it: docs/docker.md. Proven without Docker: make image.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS=service
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY mmhash mmhash
COPY service service
# The pip that installs stays behind with this stage, and so does its configuration: the address of
# an index may hold a password. The constraints hold for what builds the package too.
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
# Nothing is written but below /tmp: the rest may be read-only.
ENV PATH=/opt/mmhash/bin:$PATH \
    MMHASH_HOST=0.0.0.0 \
    MMHASH_CACHE_DIR=/tmp/mmhash
USER 65532:65532
EXPOSE 8780
# Answers what has begun, and ends.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["mmhash", "health", "--ready"]
ENTRYPOINT ["mmhash"]
CMD ["serve"]
