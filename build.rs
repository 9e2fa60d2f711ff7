//! Build script. Generates the gRPC client of KMS plugins, which needs `protoc`.
//!
//! Also links the binary with packed relocations if the target supports them.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    tonic_prost_build::configure()
        .build_server(false)
        .btree_map(".")
        .compile_protos(&["src/storage/encryption/kms.proto"], &["src/storage/encryption"])
        .expect("protoc compiles our own protocol definition");
    if packed_relocations_are_read() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// True if the loader understands packed relative relocations (RELR). They shrink the relocations of a
/// position-independent executable, all of which are read at start-up and stay resident, from 1.3 MB to 24
/// KB. The binary then requires glibc 2.36 or later, so they are only used for native builds on such a
/// system.
fn packed_relocations_are_read() -> bool {
    let var = |name| std::env::var(name).unwrap_or_default();
    if var("HOST") != var("TARGET") || var("CARGO_CFG_TARGET_OS") != "linux" || var("CARGO_CFG_TARGET_ENV") != "gnu" {
        return false;
    }
    let answer = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let answer = answer.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let version = answer.ok().and_then(|text| {
        let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    version.is_some_and(|v| v >= (2, 36))
}
