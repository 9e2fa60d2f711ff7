#!/usr/bin/env bash
# Writes an OCI image from a binary that is built: an image layout in a tar file, which docker, podman, buildah, skopeo and
# containerd load. No daemon, no network and no privileges are needed, and equal inputs give equal bytes.
#   scripts/image.sh                     target/image/torana-<version>.tar
#   TORANA_BIN=FILE                      the binary; default: target/dist/torana, else target/release/torana
#   IMAGE_WITH=example                   also torana-example, from target/release/examples/extension-server
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
revision=$(git rev-parse HEAD)
binary=${TORANA_BIN:-target/dist/torana}
[ -n "${TORANA_BIN:-}" ] || [ -x "$binary" ] || binary=target/release/torana
out=target/image
mkdir -p "$out"
for tool in jq readelf strip dpkg-query; do
	command -v $tool >/dev/null || { echo "make image: $tool is missing: scripts/tools.sh deploy" >&2; exit 1; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A tar file whose bytes depend on the content alone.
pack() { LC_ALL=C tar --sort=name --format=posix --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime \
	--mtime="@$epoch" --numeric-owner "$@"; }
sum() { sha256sum "$1" | cut -d' ' -f1; }

# The libraries that a dynamic binary needs, and the Debian packages that they are from. A static binary needs none.
libraries() { readelf -l "$1" | grep -q 'program interpreter' || return 0; ldd "$1" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p; s/^\s*\(\/[^ ]*\) .*/\1/p'; }

base_layer() { # root, binary
	local root=$1 package file real
	mkdir -p "$root"/{etc/ssl/certs,tmp,var/lib/dpkg/status.d,usr/bin,usr/share/doc}
	cp deploy/image/{passwd,group,nsswitch.conf} "$root/etc/"
	cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
	local packages=(ca-certificates)
	for file in $(libraries "$2"); do
		install -D -m 755 "$(readlink -f "$file")" "$root$file"
		real=$(readlink -f "$file")
		package=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}")
		packages+=("$(echo "$package" | cut -d: -f1 | head -n 1)")
	done
	# Scanners look for packages here, and the licences ask for these texts.
	for package in $(printf '%s\n' "${packages[@]}" | sort -u); do
		dpkg-query -s "$package" | sed '/^Conffiles:/,/^[^ ]/{/^Conffiles:/d;/^ /d}' >"$root/var/lib/dpkg/status.d/$package"
		install -D -m 644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
	done
	find "$root" -type d -exec chmod 755 {} +
	chmod 1777 "$root/tmp"
}

# Adds a tar file as a layer of the image in $layout: its compressed blob, and its entries in $scratch/{layers,diffs}.
add_layer() {
	local digest
	echo "\"sha256:$(sum "$1")\"" >>"$scratch/diffs"
	gzip -n -9 <"$1" >"$1.gz"
	digest=$(sum "$1.gz")
	echo "{\"mediaType\": \"application/vnd.oci.image.layer.v1.tar+gzip\", \"digest\": \"sha256:$digest\", \"size\": $(stat -c %s "$1.gz")}" >>"$scratch/layers"
	mv "$1.gz" "$layout/blobs/sha256/$digest"
}
add_blob() { # file -> digest
	local digest
	digest=$(sum "$1")
	cp "$1" "$layout/blobs/sha256/$digest"
	echo "$digest"
}

image() { # name, binary, jq expression that adapts the configuration, state directory
	local name=$1 file=$2 adapt=$3 state=$4 machine config manifest created
	[ -x "$file" ] || { echo "make image: $file is missing: make dist, or cargo build --release" >&2; exit 1; }
	layout=$scratch/$name
	mkdir -p "$layout/blobs/sha256"
	rm -rf "$scratch"/{base,app,layers,diffs}
	machine=$(readelf -h "$file" | sed -n 's/.*Machine: *//p')
	case $machine in
	*X86-64*) machine=amd64 ;;
	*AArch64*) machine=arm64 ;;
	*) echo "make image: $machine is not supported" >&2 && exit 1 ;;
	esac
	base_layer "$scratch/base" "$file"
	pack --owner=0 --group=0 -cf "$scratch/base.tar" -C "$scratch/base" .
	add_layer "$scratch/base.tar"

	mkdir -p "$scratch/app/usr/share/doc/torana" "$scratch/app/usr/share/sbom" "$scratch/app/usr/bin"
	strip -o "$scratch/app/usr/bin/$name" "$file"
	scripts/sbom.py cyclonedx >"$scratch/app/usr/share/sbom/torana.cdx.json"
	scripts/sbom.py licenses | gzip -n -9 >"$scratch/app/usr/share/doc/torana/THIRD-PARTY-LICENSES.gz"
	cp LICENSE NOTICE "$scratch/app/usr/share/doc/torana/"
	pack --owner=0 --group=0 -cf "$scratch/app.tar" -C "$scratch/app" .
	# Volumes take owner and mode of the directory that they are mounted over.
	mkdir -p "$scratch/state/$state" && chmod 700 "$scratch/state/$state"
	pack --owner=65532 --group=65532 --append -f "$scratch/app.tar" -C "$scratch/state" "$state"
	add_layer "$scratch/app.tar"

	created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
	jq --arg created "$created" --arg arch $machine --arg version "$version" --arg revision "$revision" \
		--slurpfile diffs "$scratch/diffs" "$adapt"' | .created = $created | .architecture = $arch
		| .rootfs = {type: "layers", diff_ids: $diffs}
		| .history = [{created: $created, comment: "libraries and certificate authorities"}, {created: $created, comment: "program"}]
		| .config.Labels += {"org.opencontainers.image.created": $created, "org.opencontainers.image.version": $version, "org.opencontainers.image.revision": $revision}' \
		deploy/image/config.json >"$scratch/config"
	config=$(add_blob "$scratch/config")
	jq -n --arg config "sha256:$config" --argjson size "$(stat -c %s "$scratch/config")" --slurpfile layers "$scratch/layers" \
		--slurpfile of "$scratch/config" '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
		config: {mediaType: "application/vnd.oci.image.config.v1+json", digest: $config, size: $size},
		layers: $layers, annotations: $of[0].config.Labels}' >"$scratch/manifest"
	manifest=$(add_blob "$scratch/manifest")
	jq -n --arg manifest "sha256:$manifest" --argjson size "$(stat -c %s "$scratch/manifest")" --arg version "$version" --arg name "$name" \
		--arg arch $machine '{schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json",
		manifests: [{mediaType: "application/vnd.oci.image.manifest.v1+json", digest: $manifest, size: $size,
		platform: {architecture: $arch, os: "linux"}, annotations: {"org.opencontainers.image.ref.name": $version,
		"io.containerd.image.name": "docker.io/library/\($name):\($version)"}}]}' >"$layout/index.json"
	echo '{"imageLayoutVersion": "1.0.0"}' >"$layout/oci-layout"
	# What `docker load` reads.
	jq -n --arg config "blobs/sha256/$config" --slurpfile layers "$scratch/layers" --arg tag "$name:$version" \
		'[{Config: $config, RepoTags: [$tag], Layers: [$layers[].digest | "blobs/sha256/" + ltrimstr("sha256:")]}]' >"$layout/manifest.json"
	pack --owner=0 --group=0 -cf "$out/$name-$version.tar" -C "$layout" .
	echo "$out/$name-$version.tar  $(jq '[.[].size] | add' --slurp "$scratch/layers") bytes compressed  sha256:$manifest"
}

image torana "$binary" . var/lib/torana
if [ "${IMAGE_WITH:-}" = example ]; then
	image torana-example target/release/examples/extension-server 'del(.config.Healthcheck) | .config.Entrypoint = ["/usr/bin/torana-example"]
		| .config.Cmd = ["--help"] | .config.Volumes = {"/var/lib/example": {}} | .config.WorkingDir = "/var/lib/example"
		| .config.ExposedPorts = {"8443/tcp": {}} | .config.Labels["org.opencontainers.image.title"] = "torana-example"' var/lib/example
fi
