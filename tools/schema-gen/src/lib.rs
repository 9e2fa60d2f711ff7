//! What the crates that describe the built-in kinds say, brought into one model: the schema table (`src/api/table.rs`,
//! committed) and the fields' descriptions (made by the gateway's build script, from the crate that ships them).

mod corrections;
mod emit;
mod model;
mod source;
mod tags;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

/// Everything the crates and the corrections say.
pub struct Model(BTreeMap<String, model::Def>);

impl Model {
    /// Reads the crates' source text where cargo has unpacked it.
    ///
    /// # Panics
    /// Where cargo cannot say where that is, or the text is not what the generator knows.
    pub fn read() -> Self {
        Self(definitions(include_str!("../corrections.txt")))
    }

    /// The text of `src/api/table.rs`.
    pub fn table(&self) -> String {
        emit::table(&self.0)
    }

    /// All descriptions, each closed by a zero byte, in the table's order: per type its own, then its fields'. Deflated.
    pub fn descriptions(&self) -> Vec<u8> {
        emit::deflate(&emit::descriptions(&self.0))
    }
}

fn definitions(corrections: &str) -> BTreeMap<String, model::Def> {
    let facts = corrections::Corrections::parse(corrections);
    let (sources, paths) = source::read(&source::locate("k8s-openapi").join("v1_36"));
    let tags = tags::Tags::read(&source::locate("k8s-pb"), &facts);
    model::build(&sources, &paths, &facts, &tags)
}
