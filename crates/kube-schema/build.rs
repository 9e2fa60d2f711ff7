//! Build script. Extracts the field descriptions of the built-in kinds from the crates k8s-openapi and
//! k8s-pb, so that they can be served in OpenAPI documents without being copied into this repository. Their
//! sources are read as text and never compiled.

use std::path::Path;

fn main() {
    // Versions of the two crates follow the lock file.
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    println!("cargo::rerun-if-changed=../../tools/schema-gen");
    let out = std::env::var_os("OUT_DIR").expect("cargo says where to");
    let file = Path::new(&out).join("descriptions.bin");
    let model = schema_gen::Model::read();
    std::fs::write(&file, model.descriptions()).expect("the build directory is writable");
    let file = Path::new(&out).join("parameters.txt");
    std::fs::write(&file, model.parameters()).expect("the build directory is writable");
}
