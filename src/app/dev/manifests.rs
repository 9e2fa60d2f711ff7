//! Reads a directory of manifests, and detects changes of it. Entry points: [`fingerprint`] for the files,
//! [`objects`] for the content of one. Applying them is left to `apply`.

use crate::apimachinery::codec::{InFile, yaml};
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::Value;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of files. A directory with more is probably the wrong one.
const MAX_FILES: usize = 5_000;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 16;

/// Path, modification time and size of each file: changes whenever a file does.
pub(super) type Fingerprint = Vec<(PathBuf, Option<SystemTime>, u64)>;

/// The manifests below `dir`, sorted.
pub(super) fn fingerprint(dir: &Path) -> Fingerprint {
    let mut files = Vec::new();
    collect(dir, 0, &mut files);
    files.sort();
    files
}

fn collect(dir: &Path, depth: usize, files: &mut Fingerprint) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        // Of the target, as `metadata` follows links: manifests are often linked into place.
        let (path, Ok(meta)) = (entry.path(), std::fs::metadata(entry.path())) else {
            continue;
        };
        // Silently: the check repeats several times a second.
        if files.len() >= MAX_FILES {
            return;
        }
        // Editors keep swap and backup files under such names.
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let kind = path.extension().and_then(|e| e.to_str());
        if meta.is_dir() && !hidden && depth < MAX_DEPTH {
            collect(&path, depth + 1, files);
        } else if meta.is_file() && !hidden && matches!(kind, Some("yaml" | "yml" | "json")) {
            // With the size, since two writes may have the same coarse timestamp.
            files.push((path, meta.modified().ok(), meta.len()));
        }
    }
}

/// An error in a file of manifests.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidManifests {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Yaml(#[from] yaml::Error),
    #[error("an object without a kind")]
    NoKind,
}

/// The objects of a file. Lists are taken apart.
///
/// # Errors
/// The file cannot be read, or a document is not an object.
pub(super) fn objects(path: &Path) -> Result<Vec<Value>, InFile<InvalidManifests>> {
    read(path).map_err(InFile::at(path))
}

fn read(path: &Path) -> Result<Vec<Value>, InvalidManifests> {
    let text = std::fs::read_to_string(path)?;
    let mut all = Vec::new();
    for document in documents(&text) {
        let value = yaml::decode(document.as_bytes())?;
        match value.kind() {
            _ if value.is_null() => {}
            "" => return Err(InvalidManifests::NoKind),
            "List" => all.extend(value.get("items").items().iter().cloned()),
            _ => all.push(value),
        }
    }
    Ok(all)
}

/// Splits a stream of YAML documents.
fn documents(text: &str) -> Vec<String> {
    // Split here, because the decoder takes a single document.
    let mut all = vec![String::new()];
    for line in text.lines() {
        // What follows the marker belongs to the document: `--- {kind: A}`.
        let begins = line
            .strip_prefix("---")
            .filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if begins.is_some() {
            all.push(String::new());
        }
        if let Some(document) = all.last_mut() {
            document.push_str(begins.map_or(line, str::trim_start));
            document.push('\n');
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_several_documents_and_lists() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.yaml");
        std::fs::write(
            &file,
            "# none\n---\nkind: A\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n--- {kind: D}\n--- # none\n",
        )
        .unwrap();
        std::fs::write(dir.path().join("b.txt"), "kind: X").unwrap();
        let found = fingerprint(dir.path());
        assert_eq!(found.len(), 1);
        let kinds: Vec<String> = objects(&file).unwrap().iter().map(|o| o.kind().to_owned()).collect();
        assert_eq!(kinds, ["A", "B", "C", "D"]);
        std::fs::write(&file, "name: x").unwrap();
        assert!(
            objects(&file)
                .unwrap_err()
                .to_string()
                .ends_with("an object without a kind")
        );
        assert_ne!(fingerprint(dir.path()), found);
    }
}
