//! Writes the schema table of the built-in kinds: `src/api/table.rs` and `src/api/descriptions.bin`.
//!
//! `cargo run -p schema-gen` writes, `cargo run -p schema-gen -- --check` fails where the committed files differ from
//! what it would write.

mod corrections;
mod emit;
mod model;
mod source;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (sources, paths) = source::read(&source::locate());
    let facts = corrections::Corrections::parse(include_str!("../corrections.txt"));
    let defs = model::build(&sources, &paths, &facts);
    let (table, text) = (emit::table(&defs), emit::descriptions(&defs));
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/api");
    let (table_file, text_file) = (api.join("table.rs"), api.join("descriptions.bin"));
    if std::env::args().any(|a| a == "--check") {
        let same_table = std::fs::read_to_string(&table_file).is_ok_and(|t| t == table);
        let same_text = std::fs::read(&text_file).is_ok_and(|t| emit::inflate(&t) == text);
        if !same_table || !same_text {
            eprintln!("the committed schema table is stale: run `cargo run -p schema-gen`");
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    let written = std::fs::write(&table_file, table).and_then(|()| std::fs::write(&text_file, emit::deflate(&text)));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e}", api.display());
            ExitCode::FAILURE
        }
    }
}
