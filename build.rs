//! Takes the descriptions of the built-in kinds' fields from the crate that ships them, k8s-openapi: they are served in
//! OpenAPI documents, and not copied into this repository. The crate is read as text, never compiled.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rerun-if-changed=tools/schema-gen");
    let out = std::env::var_os("OUT_DIR").expect("cargo says where to");
    let file = Path::new(&out).join("descriptions.bin");
    std::fs::write(&file, schema_gen::Model::read().descriptions()).expect("the build directory is writable");
}
