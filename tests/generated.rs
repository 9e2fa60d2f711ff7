//! Checks that the committed generated files match the generators' current output.

use std::path::Path;
use std::process::Command;

#[test]
fn the_schema_table_matches_its_generator() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/schema-gen/Cargo.toml");
    let out = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(manifest)
        .args(["--", "--check"])
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
