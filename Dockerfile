# The daemon and its command line on Debian 12; deploy/check-image builds and runs this file for real.
# SPDX-License-Identifier: Apache-2.0
#
#   docker build -t ulfd .
#   docker run -p 8500:8500 -p 8501:8501 -v /path/to/models:/models:ro ulfd

FROM debian:bookworm-slim AS build
# The list of packages changes seldom, the sources often: two layers.
COPY deploy/install-deps /src/deploy/install-deps
RUN /src/deploy/install-deps --build
COPY . /src
WORKDIR /src
RUN cmake --preset release -DULFD_TESTS=OFF \
 && cmake --build --preset release --target ulfd ulf ulf-convert \
 && cd build/release/bin && strip ulfd ulf ulf-convert

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="ulfd" org.opencontainers.image.licenses="Apache-2.0"
COPY deploy/install-deps deploy/sbom /tmp/
# What the image is made of: /usr/share/ulfd/sbom.cdx.json.
RUN /tmp/install-deps --runtime && mkdir /models /usr/share/ulfd \
 && /tmp/sbom >/usr/share/ulfd/sbom.cdx.json && rm -rf /tmp/install-deps /tmp/sbom /var/lib/apt/lists/*
# ulfd is linked with jemalloc, so there is nothing to preload.
COPY --from=build /src/build/release/bin/ulfd /src/build/release/bin/ulf /src/build/release/bin/ulf-convert /usr/local/bin/
COPY deploy/entrypoint /usr/local/bin/ulfd-entrypoint

# Models are read, never written: the mount may be read-only.
VOLUME /models
USER 65532:65532
# gRPC; HTTP with /metrics, /healthz and /readyz.
EXPOSE 8500 8501
# SIGTERM drains: NOT_SERVING first, then the queue, then exit code 0.
STOPSIGNAL SIGTERM
# By the HTTP port, which asks for neither certificates nor tokens, whatever the gRPC port wants.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["/usr/local/bin/ulf", "health", "http://127.0.0.1:8501/readyz"]
# `docker run ulfd FLAGS` adds flags; /models is served unless they say otherwise.
ENTRYPOINT ["/usr/local/bin/ulfd-entrypoint"]
