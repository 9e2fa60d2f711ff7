//! Takes the descriptions of the built-in kinds' fields from the crate that ships them, k8s-openapi: they are served in
//! OpenAPI documents, and not copied into this repository. The crate is read as text, never compiled.
//!
//! And asks the linker for packed relocations where the machine can read them.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rerun-if-changed=tools/schema-gen");
    let out = std::env::var_os("OUT_DIR").expect("cargo says where to");
    let file = Path::new(&out).join("descriptions.bin");
    std::fs::write(&file, schema_gen::Model::read().descriptions()).expect("the build directory is writable");
    if packed_relocations_are_read() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The relocations of a position-independent program are 1.3 MB, all of them read at each start and resident since; packed
/// (RELR) they are 24 KB. The program then asks for a loader that knows the form, glibc 2.36: so only where it is built on
/// the kind of machine it is built for, and that one's C library is such a one.
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
