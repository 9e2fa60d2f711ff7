//! The recordings: one compressed file per area, one case per line.

use crate::case::Case;
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const SUFFIX: &str = ".jsonl.gz";

#[derive(Deserialize, Serialize)]
struct Line {
    case: Box<RawValue>,
    recorded: Vec<Value>,
}

/// A case and the responses of kube-apiserver, one per step.
pub(crate) struct Recording {
    pub case: Case,
    /// The text of the case, which is written back unchanged when its responses are recorded again.
    text: Box<RawValue>,
    pub recorded: Vec<Value>,
}

impl Recording {
    /// Whether the case uses the value `${name}`.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.text.get().contains(&format!("${{{name}}}"))
    }
}

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/recordings")
}

/// All recordings, sorted by area and name.
pub(crate) fn load(dir: &Path) -> Vec<Recording> {
    load_some(dir, "")
}

/// The cases of an area, or those whose id starts like this.
pub(crate) fn load_some(dir: &Path, only: &str) -> Vec<Recording> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|f| f.unwrap().path())
        .collect();
    files.sort();
    let area = only.split('/').next().unwrap_or_default();
    let wanted = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.strip_suffix(SUFFIX).is_some_and(|name| name.starts_with(area))
    };
    let all = files.iter().filter(wanted).flat_map(|f| load_area(f));
    all.filter(|r| r.case.id().starts_with(only)).collect()
}

fn load_area(file: &Path) -> Vec<Recording> {
    let mut text = String::new();
    let mut unpacked = GzDecoder::new(std::fs::File::open(file).unwrap());
    unpacked.read_to_string(&mut text).unwrap();
    let read = |(n, line)| {
        let whole: Line = serde_json::from_str(line).unwrap();
        let mut case: Case = serde_json::from_str(whole.case.get())
            .unwrap_or_else(|e| panic!("{}, line {}: {e}", file.display(), n + 1));
        assert_eq!(case.steps.len(), whole.recorded.len(), "{} is complete", case.id());
        for (step, recorded) in case.steps.iter_mut().zip(&whole.recorded) {
            step.count = recorded["events"].as_array().map_or(step.count, Vec::len);
        }
        Recording {
            case,
            text: whole.case,
            recorded: whole.recorded,
        }
    };
    text.lines().enumerate().map(read).collect()
}

/// Writes the same cases with other responses.
pub(crate) fn save(dir: &Path, recordings: &[(&Recording, Vec<Value>)]) {
    let mut areas: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (recording, recorded) in recordings {
        let line = Line {
            case: recording.text.clone(),
            recorded: recorded.clone(),
        };
        let line = serde_json::to_string(&line).unwrap();
        areas.entry(&recording.case.area).or_default().push(line);
    }
    for (area, lines) in areas {
        let file = std::fs::File::create(dir.join(format!("{area}{SUFFIX}"))).unwrap();
        // Without a time, equal recordings are equal files.
        let mut out = GzBuilder::new().mtime(0).write(file, Compression::best());
        lines.iter().try_for_each(|l| writeln!(out, "{l}")).unwrap();
        out.finish().unwrap();
    }
}
