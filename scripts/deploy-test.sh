#!/usr/bin/env bash
# Builds the image, the Debian package and a release archive from a binary, and uses them as an operator would. Needs root.
#   scripts/deploy-test.sh [image|deb|unit|archive]…     default: all
#   TORANA_BIN=FILE                                 the binary; default: a release build
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || { echo "make deploy-test: needs root, for chroots and a container: skipped" >&2; exit 0; }
scripts/tools.sh deploy
if [ -z "${TORANA_BIN:-}" ]; then
	cargo build -q --release --bin torana
	TORANA_BIN=target/release/torana
fi
export TORANA_BIN
# The same for all builds, even if somebody commits meanwhile.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
work=$(mktemp -d)
pids=() container='' first=''
finish() {
	[ -z "$container" ] || crun --cgroup-manager=disabled delete --force "$container" 2>/dev/null || true
	# Ends everything in its namespaces.
	[ -z "$first" ] || kill -KILL "$first" 2>/dev/null || true
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	rm -rf --one-file-system "$work"
}
trap finish EXIT
fail() { echo "FAILED: $*" >&2; [ ! -f "$work/log" ] || tail -n 20 "$work/log" >&2; exit 1; }
ok() { echo "  ok: $*"; }
expect() { local what=$1; shift; "$@" || fail "$what"; ok "$what"; }
equal() { [ "$2" = "$3" ] || fail "$1: expected $2, found $3"; ok "$1"; }
# Polls for half a minute.
until_true() { local what=$1; shift; for _ in $(seq 300); do if "$@" >/dev/null 2>&1; then ok "$what"; return; fi; sleep 0.1; done; fail "$what"; }

image() {
	echo "== image"
	local tar=target/image/torana-$version.tar first size bundle=$work/bundle state=$work/state
	scripts/image.sh
	first=$(sha256sum <"$tar")
	scripts/image.sh >/dev/null
	equal "a second build has the same bytes" "$first" "$(sha256sum <"$tar")"
	mkdir "$work/layout" && tar -xf "$tar" -C "$work/layout"
	size=$(cat "$work"/layout/blobs/sha256/* | wc -c)
	case $TORANA_BIN in
	*debug*) echo "  note: the size is not checked, because the binary is a debug build" ;;
	*) expect "at most 25 MB compressed ($size bytes)" [ "$size" -le 25000000 ] ;;
	esac
	umoci --log=error unpack --image "$work/layout:$version" "$bundle"
	equal "it has one program" "/usr/bin/torana" "$(cd "$bundle/rootfs" && find . -path ./lib -prune -o -path ./lib64 -prune -o -type f -perm /111 -printf '/%P\n')"
	equal "nothing is setuid" "" "$(find "$bundle/rootfs" -perm /6000)"
	equal "it has an SBOM" "CycloneDX true" "$(jq -r '"\(.bomFormat) \(.components | length > 100)"' "$bundle/rootfs/usr/share/sbom/torana.cdx.json")"
	local config
	config=$work/layout/$(jq -r '.[0].Config' "$work/layout/manifest.json")
	equal "it is labelled" "$version" "$(jq -r '.config.Labels["org.opencontainers.image.version"]' "$config")"

	# As its configuration says, with a read-only root and the host's network.
	install -d -m 700 -o 65532 -g 65532 "$state"
	jq --arg state "$state" '.process.terminal = false | .root.readonly = true | .process.noNewPrivileges = true | .process.capabilities = {}
		| .process.args += ["--secure-port=0", "--bind-address=127.0.0.1"]
		| .linux.namespaces |= map(select(.type != "network")) | del(.linux.resources)
		| .mounts |= map(select(.destination != "/var/lib/torana")) + [{destination: "/var/lib/torana", type: "bind", source: $state, options: ["bind", "rw"]}]' \
		"$bundle/config.json" >"$work/config.json" && mv "$work/config.json" "$bundle/config.json"
	container=torana-test-$$
	# crun refuses a mixture of cgroup versions; in this mount namespace there is one.
	unshare --mount bash -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec crun --cgroup-manager=disabled run --bundle "$0" "$1"' \
		"$bundle" "$container" >"$work/log" 2>&1 &
	local runner=$!
	pids+=("$runner")
	local check
	readarray -t check < <(jq -r '.config.Healthcheck.Test[1:][]' "$config")
	inside() { unshare --mount bash -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec crun --cgroup-manager=disabled exec --user 65532:65532 "$@"' - "$container" "$@"; }
	until_true "its health check passes in a container (crun)" inside "${check[@]}"
	local pid
	pid=$(crun --cgroup-manager=disabled state "$container" | jq .pid)
	equal "it runs as user 65532" "65532" "$(awk '/^Uid:/ {print $2}' "/proc/$pid/status")"
	equal "it has no capabilities" "0000000000000000" "$(awk '/^CapEff:/ {print $2}' "/proc/$pid/status")"
	equal "it may not gain privileges" "1" "$(awk '/^NoNewPrivs:/ {print $2}' "/proc/$pid/status")"
	expect "its root is read-only" grep -q '^[0-9]* [0-9]* [^ ]* [^ ]* / ro' "/proc/$pid/mountinfo"
	local url
	url=$(sed -n 's/.*server: *//p' "$state/admin.kubeconfig" | tr -d '"')
	equal "it answers from outside" "ok" "$(curl -sS --cacert "$state/pki/ca.crt" "$url/readyz")"
	crun --cgroup-manager=disabled kill "$container" TERM
	wait "$runner" || fail "it ends successfully on SIGTERM"
	ok "it ends successfully on SIGTERM"
	container=
}

# A bare Debian of this machine's release in a directory, from a tar file that is kept.
debian_root() {
	local suite kept
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	kept=target/deploy-test/$suite.tar
	if [ ! -f "$kept" ]; then
		mkdir -p target/deploy-test
		mmdebstrap --quiet --format=tar --variant=minbase --include=systemd,adduser,ca-certificates "$suite" "$kept.new" http://deb.debian.org/debian
		mv "$kept.new" "$kept"
	fi
	mkdir -p "$1"
	tar -xpf "$kept" -C "$1" --exclude='./dev/*'
	mkdir -p "$1"/dev && for device in null zero random urandom; do cp -a "/dev/$device" "$1/dev/"; done
}

# Starts the server in a root as a user, probes it, and ends it.
serve_in() { # root, user, binary
	local root=$1 user=$2 binary=$3 data=/var/lib/torana pid
	rm -f "$root$data/admin.kubeconfig"
	chroot --userspec="$user:$user" "$root" "$binary" serve --secure-port=0 --bind-address=127.0.0.1 --data-dir=$data "${@:4}" >"$work/log" 2>&1 &
	pid=$!
	pids+=("$pid")
	until_true "it starts and is healthy" chroot --userspec="$user:$user" "$root" "$binary" health --kubeconfig=$data/admin.kubeconfig
	kill -TERM "$pid"
	wait "$pid" || fail "it ends successfully on SIGTERM"
}

# Boots systemd as the first process of a root, in namespaces of its own but with the host's network. Prints its process id.
boot() { # root
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --cgroup --uts --ipc bash -ec '
		umount -R /sys/fs/cgroup || true
		mount -t cgroup2 none /sys/fs/cgroup
		cd "$0" && mount --bind . . && cd "$0"
		mount -t proc proc proc && mount --rbind /sys sys && mount -t tmpfs -o mode=755 tmpfs run && mount -t tmpfs tmpfs tmp
		mount -t tmpfs -o mode=755 tmpfs dev
		for device in null zero full random urandom tty; do touch "dev/$device" && mount --bind "/dev/$device" "dev/$device"; done
		mkdir dev/pts dev/shm && mount -t devpts devpts dev/pts && mount -t tmpfs tmpfs dev/shm && ln -s /proc/self/fd dev/fd && ln -s pts/ptmx dev/ptmx
		pivot_root . mnt && umount -l /mnt
		exec env -i container=other PATH=/usr/sbin:/usr/bin /lib/systemd/systemd' "$1" >"$work/boot.log" 2>&1 &
	pids+=("$!")
	local parent=$!
	for _ in $(seq 300); do
		first=$(pgrep -P "$parent") && [ "$(enter systemctl is-system-running 2>/dev/null)" = running ] && return
		sleep 0.1
	done
	cat "$work/boot.log" >&2
	fail "systemd runs"
}
enter() { nsenter --target "$first" --mount --pid --cgroup --uts --ipc "$@"; }

# Builds this version's package and that of a later one, compressed less than for a release; both go into a root.
packages() { # root
	if [ ! -f "$work/second.deb" ]; then
		export DEB_FAST=1
		cp "$(scripts/deb.sh)" "$work/first.deb"
		expect "a second build has the same bytes" cmp "$work/first.deb" "$(scripts/deb.sh)"
		cp "$(DEB_VERSION=99.0.0-1 scripts/deb.sh)" "$work/second.deb"
	fi
	cp "$work/first.deb" "$work/second.deb" "$1/"
}

unit() {
	echo "== service under systemd"
	local root=$work/booted
	debian_root "$root"
	packages "$root"
	boot "$root"
	enter env DEBIAN_FRONTEND=noninteractive LC_ALL=C dpkg -i /first.deb >"$work/log" 2>&1 || fail "it installs"
	equal "the installation starts nothing" "inactive" "$(enter systemctl is-active torana || true)"
	printf 'securePort: 0\nbindAddress: 127.0.0.1\n' >>"$root/etc/torana/torana.yaml"
	enter systemctl enable --now torana >"$work/log" 2>&1 || { enter journalctl -u torana --no-pager | tail -n 20 >>"$work/log"; fail "it starts"; }
	ok "it starts: systemd was told that it is ready"
	healthy() { enter /usr/bin/torana health --kubeconfig=/var/lib/torana/admin.kubeconfig; }
	equal "it is healthy" ok "$(healthy)"
	local pid status
	pid=$(enter systemctl show -P MainPID torana)
	status=$(enter cat "/proc/$pid/status")
	equal "it runs as its user" "$(enter id -u torana)" "$(awk '/^Uid:/ {print $2}' <<<"$status")"
	equal "it has no capabilities" "0000000000000000" "$(awk '/^CapEff:/ {print $2}' <<<"$status")"
	equal "its system calls are filtered" "2" "$(awk '/^Seccomp:/ {print $2}' <<<"$status")"
	equal "its data is its own" "700 torana" "$(enter stat -L -c '%a %U' /var/lib/torana)"
	enter env DEBIAN_FRONTEND=noninteractive LC_ALL=C dpkg -i /second.deb >"$work/log" 2>&1 || fail "it upgrades"
	until_true "an upgrade restarts it" enter sh -c "[ \"\$(systemctl show -P MainPID torana)\" != $pid ] && torana health --kubeconfig=/var/lib/torana/admin.kubeconfig"
	# The manual's blocks, under the service's own user and its private directory.
	manual() { enter env KUBECONFIG=/var/lib/torana/admin.kubeconfig bash -euo pipefail -c "$(awk -v has="$1" '/^```sh$/ {b = ""; i = 1; next} /^```$/ {if (i && index(b, has)) {printf "%s", b; exit} i = 0} i {b = b $0 "\n"}' docs/operations.md)" >"$work/log" 2>&1 || fail "$1"; }
	manual 'torana store backup'
	manual 'torana store restore'
	until_true "it restores a backup" healthy
	# systemd holds the port: the first connection starts the server, and an upgrade leaves the socket open.
	local port
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	enter systemctl stop torana
	enter mkdir -p /run/systemd/system/torana.socket.d
	enter sh -c "printf '[Socket]\nListenStream=\nListenStream=127.0.0.1:$port\n' >/run/systemd/system/torana.socket.d/port.conf && systemctl daemon-reload && systemctl start torana.socket"
	equal "the socket unit starts no server" "inactive" "$(enter systemctl is-active torana || true)"
	# Whether an answer comes, not whether everything is ready yet.
	ask() { curl -sS --max-time 60 -o /dev/null -w ok --cacert "$root/var/lib/private/torana/pki/ca.crt" "https://127.0.0.1:$port/livez" || echo " no answer"; }
	equal "a connection to the socket starts the server" "ok" "$(ask)"
	until_true "it gets ready" healthy
	touch "$work/asking"
	(while [ -e "$work/asking" ]; do ask; done) >"$work/asked" 2>&1 &
	enter systemctl restart torana
	rm "$work/asking" && wait $!
	equal "no connection is refused while the server restarts" "ok" "$(sed -E 's/^(ok)+/ok/' "$work/asked")"
	enter env DEBIAN_FRONTEND=noninteractive LC_ALL=C dpkg -i /second.deb >"$work/log" 2>&1 || fail "it upgrades with the socket"
	until_true "an upgrade keeps socket and server" enter systemctl is-active torana.socket torana.service
	enter systemctl stop torana.socket torana.service
	enter systemctl start torana
	# A process that hangs is ended by the watchdog and started again.
	pid=$(enter systemctl show -P MainPID torana)
	enter mkdir -p /run/systemd/system/torana.service.d
	enter sh -c 'printf "[Service]\nWatchdogSec=2s\n" >/run/systemd/system/torana.service.d/short.conf && systemctl daemon-reload && systemctl restart torana'
	pid=$(enter systemctl show -P MainPID torana)
	enter sh -c "kill -STOP $pid"
	until_true "the watchdog restarts it when it hangs" enter sh -c "[ \"\$(systemctl show -P MainPID torana)\" != $pid ] && systemctl is-active torana"
	enter env LC_ALL=C dpkg -P torana >"$work/log" 2>&1 || fail "it is purged"
	equal "purging stops it" "inactive" "$(enter systemctl is-active torana || true)"
	expect "purging keeps its data" [ -f "$root/var/lib/private/torana/store.db" ]
	kill -KILL "$first"
	first=
}

deb() {
	echo "== debian package"
	local root=$work/debian next=99.0.0-1
	debian_root "$root"
	packages "$root"
	run() { DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" "$@"; }
	run dpkg -i /first.deb >"$work/log" 2>&1 || fail "it installs"
	ok "it installs"
	equal "it has this version" "torana $version" "$(run torana --version)"
	equal "the configuration is private to the group" "750 root torana" "$(run stat -c '%a %U %G' /etc/torana)"
	equal "the service reads its configuration" "the configuration is valid" "$(chroot --userspec=torana:torana "$root" torana config check --config=/etc/torana/torana.yaml)"
	expect "its files are as packaged" run dpkg --verify torana
	run systemd-analyze verify --man=no /lib/systemd/system/torana.service >"$work/log" 2>&1 || fail "the unit is valid where it is installed"
	ok "the unit is valid where it is installed"
	equal "nothing is started by the installation" "" "$(run systemctl is-enabled torana 2>/dev/null | grep -x enabled || true)"
	install -d -m 700 -o "$(run id -u torana)" -g "$(run id -g torana)" "$root/var/lib/torana"
	serve_in "$root" torana /usr/bin/torana --config=/etc/torana/torana.yaml
	echo '# changed here' >>"$root/etc/torana/torana.yaml"
	run dpkg -i /second.deb >"$work/log" 2>&1 || fail "it upgrades"
	equal "it upgrades" "$next" "$(run dpkg-query -W -f '${Version}' torana)"
	expect "an upgrade keeps a changed configuration" grep -q '^# changed here$' "$root/etc/torana/torana.yaml"
	serve_in "$root" torana /usr/bin/torana --config=/etc/torana/torana.yaml
	run dpkg -r torana >"$work/log" 2>&1 || fail "it is removed"
	expect "removing keeps configuration and data" [ -f "$root/etc/torana/torana.yaml" -a -f "$root/var/lib/torana/store.db" ]
	run dpkg -P torana >"$work/log" 2>&1 || fail "it is purged"
	expect "purging keeps data that nobody asked to remove" [ -f "$root/var/lib/torana/store.db" ]
	expect "purging removes the configuration" [ ! -e "$root/etc/torana" ]
	run dpkg -i /second.deb >"$work/log" 2>&1 || fail "it installs again"
	echo 'torana torana/purge-data boolean true' | run debconf-set-selections
	run dpkg -P torana >"$work/log" 2>&1 || fail "it is purged"
	expect "purging removes data when asked to" [ ! -e "$root/var/lib/torana" ]
}

archive() {
	echo "== release archive"
	local target archive sum root=$work/bare
	target=$(rustc -vV | sed -n 's/^host: //p')
	archive=target/release-archives/torana-$version-$target.tar.gz
	scripts/release.sh "$target" >/dev/null
	sum=$(sha256sum <"$archive")
	scripts/release.sh "$target" >/dev/null
	equal "a second build from the binary has the same bytes" "$sum" "$(sha256sum <"$archive")"
	(cd target/release-archives && sha256sum --check --quiet SHA256SUMS) || fail "SHA256SUMS is true"
	ok "SHA256SUMS is true"
	debian_root "$root"
	tar -xzf "$archive" -C "$root/opt"
	local dir=/opt/torana-$version-$target file
	for file in torana LICENSE NOTICE THIRD-PARTY-LICENSES.gz torana.cdx.json man/man1/torana.1.gz completions/torana.bash deploy/systemd/torana.service; do
		[ -s "$root$dir/$file" ] || fail "the archive has $file"
	done
	ok "the archive is complete"
	install -d -m 700 -o 65534 -g 65534 "$root/var/lib/torana"
	serve_in "$root" 65534 "$dir/torana"
}

for stage in "${@:-image deb unit archive}"; do for one in $stage; do "$one"; done; done
