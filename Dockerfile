# docker build -t functionbridge --build-arg VERSION="$(git describe --tags)" --build-arg COMMIT="$(git rev-parse --short=12 HEAD)" .
#
# docker run --stop-timeout 60 -p 8080:8080 -e OPENAI_API_KEY -e BRIDGE_AGENTS=… \
#     -v ./routes:/etc/functionbridge:ro -v bridge-data:/data functionbridge
#
# The route table is mounted as a folder with a routes.yaml in it: a mounted single file keeps showing the old text once an
# editor has replaced it, and no reload would see the change. --stop-timeout is longer than BRIDGE_DRAIN_TIMEOUT (40s).

# The compiler runs on the machine that builds, whatever platform the image is for: without cgo Go needs no emulation.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src

# Their own layer: dependencies change less often than the code.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG VERSION=dev
ARG COMMIT=unknown
ARG TARGETOS
ARG TARGETARCH
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build VERSION="$VERSION" COMMIT="$COMMIT"

# The final image has no shell to make a folder with.
RUN mkdir /empty

# Nothing in it but CA certificates, time zones and /etc/passwd; `nonroot` is user and group 65532.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/bin/bridge /bridge
# A new named volume takes its owner from here, so that the journal can be written without root.
COPY --from=build --chown=65532:65532 /empty /data

ENV BRIDGE_DATABASE_URL=sqlite:/data/bridge.db
ENV BRIDGE_ROUTES=/etc/functionbridge/routes.yaml

# In numbers, so that Kubernetes' runAsNonRoot can see that it is not root.
USER 65532:65532
VOLUME /data
EXPOSE 8080

# /readyz answers within 5 seconds whatever hangs.
HEALTHCHECK --interval=10s --timeout=7s --start-period=15s --retries=3 CMD ["/bridge", "health"]
ENTRYPOINT ["/bridge"]
CMD ["serve"]
