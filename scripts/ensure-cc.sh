#!/usr/bin/env bash
# Makes sure that the C compiler named by $1 (default gcc) can compile and link: `go test -race` needs one.
# Installs gcc through apt-get where that needs no question asked, otherwise says what to install.
set -euo pipefail

cc=${1:-gcc}
packages=(gcc libc6-dev)

# Links too, because a compiler without the C library's headers and start files is found and still fails.
works() {
	# shellcheck disable=SC2086 # CC may carry flags
	echo 'int main(void) { return 0; }' | $cc -x c -include stdlib.h -o /dev/null - 2>/dev/null
}

install() {
	local as=()
	if [[ $(id -u) != 0 ]]; then
		as=(sudo -n)
	fi
	echo "installing ${packages[*]}: the race detector needs a C compiler"
	"${as[@]}" apt-get update -qq </dev/null
	"${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null
}

may_install() {
	command -v apt-get >/dev/null && { [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null; }
}

works && exit 0
if [[ $cc == gcc ]] && may_install; then
	install
	works && exit 0
fi
echo "make test: no working C compiler ($cc), which go test -race needs: install gcc and the C library's headers (on Debian: apt-get install ${packages[*]}) and run it again; go test ./... runs the tests without the race detector" >&2
exit 1
