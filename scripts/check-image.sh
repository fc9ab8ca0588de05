#!/usr/bin/env bash
# Checks by hand what a container engine would show of the image: the binary is built as the Dockerfile says, is static, and
# runs as user 65532 with nothing in its file system but itself, a read-only root, a writable /data and the image's own
# environment; `bridge health`, which is the image's HEALTHCHECK, tells ready from not ready, and SIGTERM ends in a clean exit.
#
# As root on Linux it runs in a chroot without privileges. Whoever may not mount gets the same run without the chroot, and a line
# that says so. BRIDGE_PORT and SIMULATE_PORT move the two loopback ports; KEEP=1 keeps the folder with the logs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go=${GO:-go}
uid=65532
bridge_addr=127.0.0.1:${BRIDGE_PORT:-18080}
simulate_addr=127.0.0.1:${SIMULATE_PORT:-18090}
work=$(mktemp -d)
root=$work/root
pids=()
confined=false # whether we may lay out a root of our own
[[ $(id -u) == 0 ]] && unshare --mount true 2>/dev/null && confined=true

main() {
	trap cleanup EXIT
	build
	assert_static
	lay_out_root
	start_api
	image_env
	run_image
	echo 'check-image: all passed'
}

say() { echo "check-image: $*"; }

fail() {
	say "FAILED: $*" >&2
	for log in "$work"/*.log; do
		[[ -s $log ]] && { echo "--- ${log##*/}" && tail -n 20 "$log"; } >&2
	done
	exit 1
}

cleanup() {
	local pid
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || true
	done
	wait || true
	if [[ -n ${KEEP:-} ]]; then
		say "kept $work"
	else
		rm -rf "$work"
	fi
}

# The Dockerfile runs `make build` on its sources too, so the flags stand in one place.
build() {
	grep -q '^RUN .*make build' Dockerfile || fail 'the Dockerfile no longer builds with make build: build here as it does'
	make --no-print-directory build BIN="$work/bin" GO="$go" || fail 'the build'
}

assert_static() {
	local binary=$work/bin/bridge
	$go version -m "$binary" | grep -q 'CGO_ENABLED=0' || fail 'built with cgo'
	if command -v ldd >/dev/null && ldd "$binary" >"$work/ldd.log" 2>&1; then
		fail 'ldd finds shared libraries'
	fi
	if command -v file >/dev/null && ! file "$binary" | grep -q 'statically linked'; then
		fail "not static: $(file "$binary")"
	fi
	# Reflection on method names, by text/template say, keeps the linker from leaving anything out: 58 MB.
	(($(wc -c <"$binary") < 48000000)) || fail "$(wc -c <"$binary") bytes: which import keeps the linker from dropping methods?"
	say "static binary, $(wc -c <"$binary") bytes, $("$binary" version | head -n 1)"
}

# What the image holds, less the CA certificates: the binary, an empty /data of the user's own, and the user's route table.
lay_out_root() {
	mkdir -p "$root/data" "$root/etc/functionbridge"
	cp "$work/bin/bridge" "$root/bridge"
	cat >"$root/etc/functionbridge/routes.yaml" <<'YAML'
version: 1
routes:
  get_weather: http://127.0.0.1:9/lookup
YAML
	chmod 755 "$work"
	if $confined; then
		chown "$uid:$uid" "$root/data"
	fi
}

# Somebody for `serve` to talk to; it runs outside the image.
start_api() {
	env -i "$work/bin/bridge" simulate --addr "$simulate_addr" >"$work/simulate.log" 2>&1 &
	pids+=($!)
	wait_for 'the simulated Agents API' grep -q 'OPENAI_BASE_URL' "$work/simulate.log"
	base_url=$(sed -n 's/^.*OPENAI_BASE_URL=["'\'']\{0,1\}\([^"'\'' ]*\).*$/\1/p' "$work/simulate.log" | head -n 1)
}

# The image's environment, read from the Dockerfile, and what its user adds.
image_env() {
	local line
	env=(OPENAI_API_KEY=sk-check-image "OPENAI_BASE_URL=$base_url" "BRIDGE_ADDR=$bridge_addr" BRIDGE_ADMIN_ADDR=off)
	while IFS= read -r line; do
		[[ $line == 'ENV '* ]] && env+=("${line#ENV }")
	done <Dockerfile
	if ! $confined; then
		env+=("BRIDGE_DATABASE_URL=sqlite:$root/data/bridge.db" "BRIDGE_ROUTES=$root/etc/functionbridge/routes.yaml")
	fi
}

# Replaces this shell by the image's command $@; confined, in a mount namespace of its own, whose root holds the image's files
# alone and is read-only but for /data. env and chroot both exec, so that the process keeps its id.
in_image() {
	if ! $confined; then
		exec env -i "${env[@]}" "$root$1" "${@:2}"
	fi
	# shellcheck disable=SC2016 # expanded by the inner shell
	exec env -i PATH="$PATH" "${env[@]}" unshare --mount bash -euc '
		root=$1 uid=$2
		shift 2
		mount --bind "$root" "$root"
		mount --bind "$root/data" "$root/data"
		mount -o remount,ro,bind "$root"
		cd "$root"
		exec setpriv --no-new-privs chroot --userspec="$uid:$uid" --groups= "$root" "$@"
	' in_image "$root" "$uid" "$@"
}

run_image() {
	local serve status=0
	(in_image /bridge serve) >"$work/serve.log" 2>&1 &
	serve=$!
	pids+=("$serve")
	wait_for 'bridge health' healthy
	say 'bridge health: ready'
	assert_confined "$serve"

	kill -TERM "$serve"
	wait "$serve" || status=$?
	[[ $status == 0 ]] || fail "bridge serve ended with $status after SIGTERM, not 0"
	healthy && fail 'bridge health says ready after the stop'
	say 'SIGTERM: exit 0, and bridge health says not ready'
}

healthy() { (in_image /bridge health) >"$work/health.log" 2>&1; }

# $1 is the process id of the running bridge.
assert_confined() {
	[[ -s $root/data/bridge.db ]] || fail 'no journal in /data'
	if ! $confined; then
		say 'may not mount here: user, read-only root and empty file system are not checked'
		return
	fi
	grep -q "^Uid:	$uid	$uid	$uid	$uid\$" "/proc/$1/status" || fail "does not run as $uid"
	grep -q '^CapEff:	0*$' "/proc/$1/status" || fail 'runs with privileges'
	grep -q '^[^ ]* / [^ ]* ro' "/proc/$1/mounts" || fail 'its root is not read-only'
	[[ $(stat -c %u "$root/data/bridge.db") == "$uid" ]] || fail "the journal is not owned by $uid"
	say "runs as $uid without privileges, on a read-only root, with its journal in /data"
}

# Waits until the command holds, at most 15 seconds.
wait_for() {
	local what=$1 try
	shift
	for ((try = 0; try < 150; try++)); do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.1
	done
	fail "$what did not come up within 15 s"
}

main
