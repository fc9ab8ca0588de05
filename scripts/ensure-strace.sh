#!/usr/bin/env bash
# Gets strace where that needs no question asked: two tests show with it that rows are synced before requests
# leave. Without it they are skipped, so nothing here fails.
set -uo pipefail

command -v strace >/dev/null && exit 0
command -v apt-get >/dev/null || exit 0
as=()
if [[ $(id -u) != 0 ]]; then
	sudo -n true 2>/dev/null || exit 0
	as=(sudo -n)
fi
echo "installing strace: tests show with it that rows are synced before requests leave"
{
	"${as[@]}" apt-get update -qq &&
		"${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends strace
} </dev/null >/dev/null 2>&1 || echo "strace could not be installed; these tests are skipped"
exit 0
