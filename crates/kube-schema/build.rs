//! Build script. Extracts the field descriptions of the built-in kinds from the k8s-openapi crate, so that they can be
//! served in OpenAPI documents without being copied into this repository. That crate's sources are read as text and
//! never compiled.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    println!("cargo::rerun-if-changed=../../tools/schema-gen");
    let out = std::env::var_os("OUT_DIR").expect("cargo says where to");
    let file = Path::new(&out).join("descriptions.bin");
    std::fs::write(&file, schema_gen::Model::read().descriptions()).expect("the build directory is writable");
}
