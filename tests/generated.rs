//! What is generated and committed is what the generators write today.

use std::path::Path;
use std::process::Command;

#[test]
fn the_schema_table_is_what_its_generator_writes() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/schema-gen/Cargo.toml");
    let out = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(manifest)
        .args(["--", "--check"])
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
