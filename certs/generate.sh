#!/bin/sh
# Creates a throw-away development PKI in certs/out/ from certs/profiles/, with openssl. Existing files are kept;
# remove certs/out/ to start over.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out}

command -v openssl >/dev/null 2>&1 || {
    echo "generate.sh: openssl is not installed (Debian: apt-get install openssl)" >&2
    exit 1
}
umask 077
mkdir -p "$out"

# field <profile> <name>: prints the value, or nothing if it is not set.
field() {
    sed -n "s/^$2 *= *//p" "$here/profiles/$1.profile"
}

# Keys are written under a temporary name, so that an interrupted run leaves no partial file.
ec_key() {
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$out/.$1.key" 2>/dev/null
    mv "$out/.$1.key" "$out/$1.key"
}

make_ca() {
    ec_key "$1"
    openssl req -x509 -new -key "$out/$1.key" -sha256 -days "$(field "$1" days)" -subj "$(field "$1" subject)" \
        -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,digitalSignature,keyCertSign,cRLSign" \
        -out "$out/$1.crt"
}

make_leaf() {
    issuer=$(field "$1" issuer)
    names=$(field "$1" names)
    ec_key "$1"
    {
        echo "basicConstraints=critical,CA:FALSE"
        echo "keyUsage=critical,digitalSignature"
        echo "extendedKeyUsage=$2"
        echo "authorityKeyIdentifier=keyid"
        if [ -n "$names" ]; then echo "subjectAltName=$names"; fi
    } >"$out/.$1.ext"
    openssl req -new -key "$out/$1.key" -subj "$(field "$1" subject)" -out "$out/.$1.csr"
    openssl x509 -req -in "$out/.$1.csr" -CA "$out/$issuer.crt" -CAkey "$out/$issuer.key" -sha256 \
        -set_serial "0x$(openssl rand -hex 16 | sed 's/^./4/')" -days "$(field "$1" days)" -extfile "$out/.$1.ext" -out "$out/$1.crt" 2>/dev/null
    rm -f "$out/.$1.csr" "$out/.$1.ext"
}

make_signer() {
    openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out "$out/.$1.key" 2>/dev/null
    mv "$out/.$1.key" "$out/$1.key"
    openssl pkey -in "$out/$1.key" -pubout -out "$out/$1.pub"
}

# CAs first, because they sign the others.
for pass in ca other; do
    for profile in "$here"/profiles/*.profile; do
        name=$(basename "$profile" .profile)
        kind=$(field "$name" kind)
        case $pass/$kind in
        ca/ca) [ -f "$out/$name.crt" ] || make_ca "$name" ;;
        other/server) [ -f "$out/$name.crt" ] || make_leaf "$name" serverAuth ;;
        other/client) [ -f "$out/$name.crt" ] || make_leaf "$name" clientAuth ;;
        other/signer) [ -f "$out/$name.pub" ] || make_signer "$name" ;;
        ca/server | ca/client | ca/signer | other/ca) ;;
        *)
            echo "generate.sh: $profile: kind must be ca, server, client or signer, not '$kind'" >&2
            exit 1
            ;;
        esac
    done
done
echo "$out"
