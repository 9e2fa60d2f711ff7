//! `docs/tour.md` names each function and type together with the file that defines it. A step of the tour is
//! one item of a list. In it,
//!
//! - a path that ends in `.rs` is the end of exactly one source file's path;
//! - a name beside a path (`name` (`file.rs`), or `file.rs` `name`) is defined in that file;
//! - any other name is defined in a file that the step names, or has been placed by an earlier step.
//!
//! Quoted text that is no Rust name (paths of requests, headers, flags) is not looked at.

use super::{all_sources, code, root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A piece of a step that stands between backquotes, with the text since the piece before.
struct Quoted<'a> {
    before: &'a str,
    text: &'a str,
}

fn quoted(step: &str) -> Vec<Quoted<'_>> {
    let pieces: Vec<&str> = step.split('`').collect();
    pieces
        .chunks_exact(2)
        .map(|pair| Quoted {
            before: pair[0],
            text: pair[1],
        })
        .collect()
}

/// A Rust name, with or without its type or module: `f`, `Type`, `Type::f`, `module::f`.
fn is_item(text: &str) -> bool {
    let is_name = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || c == '_');
    text.split("::").all(is_name)
}

/// Whether `code`, the text of `file`, defines the item.
fn defines(file: &Path, code: &str, item: &str) -> bool {
    let defined = |keywords: &[&str], name: &str| {
        keywords.iter().any(|keyword| {
            let needle = format!("{keyword} {name}");
            code.match_indices(&needle).any(|(at, found)| {
                let ends = !code[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
                ends && !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        })
    };
    let types = ["struct", "enum", "trait", "type"];
    let (owner, name) = match item.rsplit_once("::") {
        Some((owner, name)) => (Some(owner), name),
        None => (None, item),
    };
    let named = name.starts_with(char::is_uppercase);
    match owner {
        // A variant.
        Some(owner) if named => defined(&types, owner) && code.contains(&format!("    {name}")),
        Some(owner) if owner.starts_with(char::is_uppercase) => {
            // A method: of an `impl` block, or of the trait itself.
            let of = |line: &str| line.starts_with("impl") && line.contains(owner);
            defined(&["fn"], name) && (defined(&types, owner) || code.lines().any(of))
        }
        Some(module) => defined(&["fn"], name) && file.with_extension("").ends_with(module.replace("::", "/")),
        None if named => defined(&types, name) || defined(&["const", "static"], name),
        None => defined(&["fn"], name) || file.file_stem().is_some_and(|stem| stem == name),
    }
}

#[test]
fn the_tour_names_the_files_that_define_its_items() {
    let sources: Vec<PathBuf> = all_sources().into_iter().map(|(file, _)| file).collect();
    let text = std::fs::read_to_string(root().join("docs/tour.md")).expect("docs/tour.md is text");
    let mut wrong = Vec::new();
    // Where earlier steps have placed an item.
    let mut placed: BTreeMap<&str, PathBuf> = BTreeMap::new();
    let is_step = |line: &str| line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
    let starts = text.match_indices('\n').map(|(at, _)| at + 1);
    let mut starts: Vec<usize> = starts.filter(|at| is_step(&text[*at..])).collect();
    assert!(starts.len() > 20, "the steps of the tour are numbered");
    starts.push(text.len());
    for step in starts.windows(2).map(|range| &text[range[0]..range[1]]) {
        let step = step.split("\n\n").next().unwrap_or_default();
        let all = quoted(step);
        let mut files: Vec<Option<&PathBuf>> = Vec::new();
        for piece in &all {
            let found: Vec<&PathBuf> = sources.iter().filter(|s| s.ends_with(piece.text)).collect();
            if piece.text.ends_with(".rs") && found.len() != 1 {
                wrong.push(format!("`{}` names {} files: {found:?}", piece.text, found.len()));
            }
            files.push(found.first().copied().filter(|_| piece.text.ends_with(".rs")));
        }
        for (at, item) in all.iter().enumerate().filter(|(_, q)| is_item(q.text)) {
            let follows = all.get(at + 1).filter(|next| next.before.split_whitespace().eq(["("]));
            let precedes = matches!(item.before.trim_end(), "" | ":").then_some(at.wrapping_sub(1));
            let beside = follows.map(|_| at + 1).into_iter().chain(precedes);
            let beside = beside.filter_map(|i| files.get(i).copied().flatten()).next();
            let earlier = placed.get(item.text).cloned();
            let places: Vec<&PathBuf> = match beside {
                Some(file) => vec![file],
                None => files.iter().copied().flatten().chain(&earlier).collect(),
            };
            match places.iter().find(|file| defines(file, &code(file), item.text)) {
                Some(file) => _ = placed.insert(item.text, (*file).clone()),
                None => wrong.push(format!("`{}` is not defined in {places:?}", item.text)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn definitions_are_found_by_kind() {
    let code = "pub struct Host<S> {\nimpl<S> Host<S> {\n    fn try_stream(&self) {\nfn exchange() {}\npub(crate) trait Seat {\n";
    let file = Path::new("src/transport/host.rs");
    for item in ["Host", "Host::try_stream", "exchange", "host::exchange", "host", "Seat"] {
        assert!(defines(file, code, item), "{item}");
    }
    for item in ["Hos", "try", "Host::exchanges", "other::exchange", "Exchange"] {
        assert!(!defines(file, code, item), "{item}");
    }
}
