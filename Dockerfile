# The server of a chain (docs/server.md). The graph, and the models that a chain names, are mounted; nothing is in the image
# but the program and the phenotype ontology that its packages have.
#   docker build -t kepl .
#   docker run --rm -p 127.0.0.1:8000:8000 kepl                                      # the demonstration graph
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/graph:/graph:ro" kepl serve --graph /graph --host 0.0.0.0
FROM python:3.11-slim-bookworm
RUN apt-get update \
 && apt-get install -y --no-install-recommends make git \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home kepl
WORKDIR /kepl
COPY --chown=kepl . .
RUN chown kepl /kepl
USER kepl
RUN make setup ACCEL=cpu
ENV KEPL_RUNS=/kepl/runs
RUN bin/kepl graph build hpo --out runs/data/demo-hpo
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["bin/kepl"]
CMD ["demo", "hpo", "--host", "0.0.0.0", "--port", "8000"]
