//! Writes the schema table of the built-in kinds, `crates/kube-schema/src/table.rs`.
//!
//! `cargo run -p schema-gen` writes it; `cargo run -p schema-gen -- --check` fails if the committed file
//! differs from the generated one.

use schema_gen::Model;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let table = Model::read().table();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/kube-schema/src/table.rs");
    if std::env::args().any(|a| a == "--check") {
        return match std::fs::read_to_string(&file) {
            Ok(committed) if committed == table => ExitCode::SUCCESS,
            _ => {
                eprintln!("the committed schema table is stale: run `cargo run -p schema-gen`");
                ExitCode::FAILURE
            }
        };
    }
    match std::fs::write(&file, table) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e}", file.display());
            ExitCode::FAILURE
        }
    }
}
