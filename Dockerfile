# The image of the operator and of the monitor: `docker build -t REGISTRY/sterna:VERSION .`
# A test runs the steps of the first stage in a folder, so that this file cannot fall behind the project.

FROM python:3.13-slim AS build
# A C compiler for the extension modules; the headers of Python are in the image.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src ./src
# Wheels of Sterna and of everything it needs, so that the second stage neither compiles nor downloads.
RUN python -m pip wheel --no-cache-dir --wheel-dir /wheels .
# The extension modules are optional for a wheel, but not for the image.
RUN python -m zipfile --list /wheels/sterna-*.whl | grep --count '\.so ' | grep --line-regexp 4

FROM python:3.13-slim
LABEL org.opencontainers.image.title="sterna" \
      org.opencontainers.image.description="A scheduler for deep-learning training" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --no-index --find-links /wheels sterna
# A number, because Kubernetes can only tell of numbers that they are not root.
USER 65532:65532
EXPOSE 8769 8081
ENTRYPOINT ["sterna"]
CMD ["operator"]
