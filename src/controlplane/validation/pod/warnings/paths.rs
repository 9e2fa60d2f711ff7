//! Warnings about overlapping file paths within a volume. Entry point: [`overlaps`].

use crate::apimachinery::value::Value;
use std::collections::HashMap;
use std::rc::Rc;

/// A file's path and a description of its source.
type File<'a> = (&'a str, Rc<str>);

/// Quotes a name, cut to a bounded length: it comes from the client and is repeated for every file.
fn named(name: &str) -> String {
    const MAX_LENGTH: usize = 300;
    format!("{:?}", &name[..name.floor_char_boundary(MAX_LENGTH)])
}

fn files<'a>(source: &'a Value, of: &str) -> Vec<File<'a>> {
    // Shared by all files of the source: a description per file would multiply its length by their number.
    let of = Rc::from(of);
    let items = source.get("items").items().iter();
    items.map(|i| (i.str_at(&["path"]), Rc::clone(&of))).collect()
}

/// Checks config map, secret, downward API and projected volumes.
pub(super) fn overlaps(out: &mut Vec<String>, spec: &Value) {
    for v in spec.get("volumes").items() {
        let name = v.str_at(&["name"]);
        for (key, name_key, word) in [
            ("configMap", "name", "ConfigMap"),
            ("secret", "secretName", "Secret"),
            ("downwardAPI", "", "DownwardAPI"),
        ] {
            let source = v.get(key);
            let of = match name_key {
                "" => word.to_owned(),
                _ => format!("{word} {}", named(source.str_at(&[name_key]))),
            };
            // An absent source has no files and so no warnings.
            warn_overlaps(out, &files(source, ""), &format!("volume {} ({of})", named(name)));
        }
        let mut all: Vec<File<'_>> = Vec::new();
        for source in v.at(&["projected", "sources"]).items() {
            if source.is_empty_value() {
                out.push(format!("volume {} (Projected) has no sources provided", named(name)));
            }
            for (key, word) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
                let of = format!("{word} {}", named(source.str_at(&[key, "name"])));
                all.extend(files(source.get(key), &of));
            }
            all.extend(files(source.get("downwardAPI"), "DownwardAPI"));
            let token = source.get("serviceAccountToken");
            if !token.is_null() {
                all.push((token.str_at(&["path"]), "ServiceAccountToken".into()));
            }
        }
        warn_overlaps(out, &all, &format!("volume {} (Projected)", named(name)));
    }
}

fn warn_overlaps(out: &mut Vec<String>, files: &[File<'_>], what: &str) {
    fn plain(path: &str) -> &str {
        path.trim_end_matches('/')
    }
    let shown = |(path, of): &File<'_>| match &**of {
        "" => format!("{:?}", plain(path)),
        of => format!("{:?} ({of})", plain(path)),
    };
    // Indexes of the first file with each path, and of the first below each directory. Upstream compares all
    // pairs; the maps find the same first overlap without quadratic time.
    let mut exact: HashMap<&str, usize> = HashMap::new();
    let mut below: HashMap<&str, usize> = HashMap::new();
    for (i, file) in files.iter().enumerate() {
        let path = plain(file.0);
        // The root of the volume would overlap with everything; validation rejects such paths.
        if path.is_empty() {
            continue;
        }
        let folders: Vec<&str> = folders(path).collect();
        let above = folders.iter().filter_map(|folder| exact.get(folder));
        let others = [exact.get(path), below.get(path)];
        // The earliest file, as upstream's pairwise search would find it.
        if let Some(first) = above.chain(others.into_iter().flatten()).min() {
            out.push(format!(
                "{what}: overlapping paths: {} with {}",
                shown(file),
                shown(&files[*first])
            ));
        }
        exact.entry(path).or_insert(i);
        for folder in folders {
            below.entry(folder).or_insert(i);
        }
    }
}

/// The directories above a path, innermost first. Bounded, because a path may consist of thousands of
/// slashes.
fn folders(path: &str) -> impl Iterator<Item = &str> {
    const MAX: usize = 256;
    let slashes = path.bytes().enumerate().rev().filter(|(_, b)| *b == b'/');
    slashes.map(|(at, _)| &path[..at]).take(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    use proptest::prelude::*;

    /// Reference implementation: compares all pairs.
    fn plainly(paths: &[String]) -> Vec<(usize, usize)> {
        let plain = |p: &str| p.trim_end_matches('/').to_owned();
        let below = |a: &str, b: &str| format!("{a}/").starts_with(&format!("{b}/"));
        let mut out = Vec::new();
        for (i, path) in paths.iter().enumerate() {
            let path = plain(path);
            let first = paths[..i].iter().position(|other| {
                let other = plain(other);
                !path.is_empty() && !other.is_empty() && (below(&path, &other) || below(&other, &path))
            });
            out.extend(first.map(|first| (i, first)));
        }
        out
    }

    proptest! {
        #[test]
        fn overlaps_match_pairwise_comparison(
            paths in prop::collection::vec("[ab/]{0,5}", 0..8),
        ) {
            let files: Vec<File<'_>> = paths.iter().map(|p| (p.as_str(), Rc::from(""))).collect();
            let mut got = Vec::new();
            warn_overlaps(&mut got, &files, "v");
            let shown = |i: usize| format!("{:?}", paths[i].trim_end_matches('/'));
            let expected: Vec<String> = plainly(&paths)
                .into_iter()
                .map(|(i, first)| format!("v: overlapping paths: {} with {}", shown(i), shown(first)))
                .collect();
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn file_below_another_file_yields_a_warning() {
        let spec = json!({"volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"path": "a"}, {"path": "a/b"}, {"path": "ab"}]}},
            {"name": "p", "projected": {"sources": [{}, {"secret": {"name": "s", "items": [{"path": "x"}]}}, {"serviceAccountToken": {"path": "x"}}]}}]});
        let mut out = Vec::new();
        overlaps(&mut out, &spec);
        assert_eq!(
            out,
            [
                "volume \"v\" (ConfigMap \"c\"): overlapping paths: \"a/b\" with \"a\"",
                "volume \"p\" (Projected) has no sources provided",
                "volume \"p\" (Projected): overlapping paths: \"x\" (ServiceAccountToken) with \"x\" (Secret \"s\")",
            ]
        );
    }
}
