# SPDX-License-Identifier: Apache-2.0
# One image for both programs: `python -m extender` and `python -m rebalancer`.
#
#   docker build --tag evenkeel:0.1.0 .
#
# It writes no files at run time: give it a read-only root file system. It has no shell: look into a
# running container with `kubectl debug`.
#
# For nodes of another architecture than the builder's, add --platform linux/amd64,linux/arm64:
# every requirement has wheels for both. To pin the base image, look up its digest in the
# registry that you trust, and add --build-arg BASE=python:3.11-slim@sha256:<digest>.

ARG BASE=python:3.11-slim


FROM ${BASE} AS build

# Wheels only, so that no compiler is needed, and only with known hashes.
COPY requirements.txt /build/requirements.txt
RUN python -m venv --without-pip /opt/evenkeel
RUN python -m pip --python /opt/evenkeel/bin/python install --no-cache-dir --disable-pip-version-check --only-binary=:all: --no-compile --no-deps --require-hashes --requirement /build/requirements.txt
# The programs use connections and credentials of the Kubernetes client. Its generated classes,
# one module for each kind and each group of the API, are two thirds of all requirements.
RUN find /opt/evenkeel/lib -path "*/kubernetes/*client/models/*" -name "*.py" ! -name "__init__.py" -delete
RUN find /opt/evenkeel/lib -path "*/kubernetes/*client/api/*" -name "*.py" ! -name "__init__.py" -delete
# Bytecode that is never compared with its source: neither changes, and the times of files
# differ from builder to builder.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/evenkeel/lib
# Commands of the requirements, and scripts for shells.
RUN find /opt/evenkeel/bin ! -type d ! -name "python*" -delete

# Of the base image the interpreter and what it loads, and nothing else.
COPY deploy/image/root.py /build/root.py
RUN python /build/root.py /rootfs /opt/evenkeel

COPY common /app/common
COPY console /app/console
COPY evenkeel /app/evenkeel
COPY extender /app/extender
COPY rebalancer /app/rebalancer
COPY LICENSE /app/LICENSE
RUN python -m compileall -q --invalidation-mode unchecked-hash /app

# The version in the label below must be the one that the programs print.
ARG VERSION=0.1.0
WORKDIR /app
RUN test "$(/opt/evenkeel/bin/python -m extender --version)" = "extender ${VERSION}"


FROM scratch

COPY --from=build /rootfs /
COPY --from=build /opt/evenkeel /opt/evenkeel
COPY --from=build /app /app

ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="evenkeel" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

# The user needs no entry in /etc/passwd, so the home is set here.
ENV HOME=/app \
    PATH=/opt/evenkeel/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /app
# A number, so that the kubelet can verify runAsNonRoot (pkg/kubelet/kuberuntime/security_context_others.go).
USER 65532:65532
CMD ["python", "-m", "rebalancer", "--help"]
