//! Sorts strict decoding findings into document order. The tree has its keys sorted, while upstream reports
//! findings as its streaming decoder reaches them, so the body is scanned a second time for the positions of
//! the reported paths.
//!
//! Start at [`sort_by_document_order`].

use serde::de::{Deserialize as _, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;

/// Sorts strict findings (`unknown field "a.b"`, `duplicate field "a.c"`) of a JSON body by where upstream's
/// decoder reports them: an unknown field at its first occurrence, a duplicate at its second.
///
/// Findings of a YAML body need no sorting: upstream converts it to JSON with sorted keys first.
pub fn sort_by_document_order(body: &[u8], findings: Vec<String>) -> Vec<String> {
    if findings.len() < 2 {
        return findings;
    }
    // First, since paths of dropped findings need not be located.
    let findings = without_parts_of_unknown(findings);
    let mut wanted: Vec<FindingPath> = findings
        .iter()
        .filter_map(|f| Some(FindingPath::of(parts(f)?.1)))
        .collect();
    wanted.sort_by(|a, b| a.path.cmp(&b.path));
    // One path may be found as unknown and as duplicate.
    wanted.dedup_by(|a, b| a.path == b.path);
    let mut scan = Scan { keys_read: 0, wanted };
    let all = PathRange {
        from: 0,
        to: scan.wanted.len(),
        length: 0,
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    // The body's depth was bounded when it was decoded.
    json.disable_recursion_limit();
    // The body was decoded before. If this scan fails nevertheless, the paths found so far are still ordered.
    let _ = Seed(&mut scan, all).deserialize(&mut json);
    let place = |finding: &String| {
        let (duplicate, path) = parts(finding)?;
        let at = scan.wanted.binary_search_by(|w| w.path.as_str().cmp(path)).ok()?;
        let wanted = &scan.wanted[at];
        if duplicate { wanted.second } else { wanted.first }
    };
    let mut out = findings;
    // Findings whose place is unknown go to the end; the sort is stable.
    out.sort_by_cached_key(|f| place(f).unwrap_or(usize::MAX));
    out
}

/// The findings without duplicates of and below unknown fields, which upstream's decoder skips.
fn without_parts_of_unknown(mut findings: Vec<String>) -> Vec<String> {
    let unknown: HashSet<String> = findings
        .iter()
        .filter_map(|f| parts(f).filter(|(duplicate, _)| !duplicate))
        .map(|(_, path)| path.to_owned())
        .collect();
    findings.retain(|f| match parts(f) {
        Some((true, path)) => {
            // Every prefix that ends before a dot or bracket, and the whole path: the places where an unknown
            // field may be.
            let ends = path.match_indices(['.', '[']).map(|(at, _)| at).chain([path.len()]);
            !ends.map(|end| &path[..end]).any(|above| unknown.contains(above))
        }
        _ => true,
    });
    findings
}

/// Splits a finding into whether it is a duplicate, and its path.
fn parts(finding: &str) -> Option<(bool, &str)> {
    let (what, path) = finding.split_once(" field \"")?;
    Some((what == "duplicate", path.strip_suffix('"')?))
}

/// A path to locate, and the ordinals of the first two keys in the document that match it.
struct FindingPath {
    path: String,
    first: Option<usize>,
    second: Option<usize>,
}

impl FindingPath {
    fn of(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            first: None,
            second: None,
        }
    }
}

struct Scan {
    /// Keys read so far.
    keys_read: usize,
    /// Sorted by path.
    wanted: Vec<FindingPath>,
}

/// The range of wanted paths that have the scanner's current path as prefix, and the length of that path. The
/// path itself is not kept: a client controls its length, and copying it for each key below would be
/// quadratic.
#[derive(Clone, Copy)]
struct PathRange {
    from: usize,
    to: usize,
    length: usize,
}

impl Scan {
    /// Narrows the range to the paths that continue with these parts.
    fn below(&self, here: PathRange, parts: [&str; 2]) -> PathRange {
        let step = |w: &FindingPath| {
            let rest = w.path.as_bytes()[here.length..].iter();
            let mut step = parts.iter().flat_map(|p| p.bytes());
            // Compares prefixes only: a path that starts with the step is equal to it.
            for b in rest {
                match step.next() {
                    None => return Ordering::Equal,
                    Some(s) if s == *b => {}
                    Some(s) => return b.cmp(&s),
                }
            }
            step.next().map_or(Ordering::Equal, |_| Ordering::Less)
        };
        let here_on = &self.wanted[here.from..here.to];
        let from = here_on.partition_point(|w| step(w).is_lt());
        let to = here_on.partition_point(|w| step(w).is_le());
        PathRange {
            from: here.from + from,
            to: here.from + to,
            length: here.length + parts.iter().map(|p| p.len()).sum::<usize>(),
        }
    }
}

impl PathRange {
    fn is_empty(self) -> bool {
        self.from == self.to
    }
}

struct Seed<'a>(&'a mut Scan, PathRange);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        if self.1.is_empty() {
            // Nothing wanted below: skipped without building anything.
            return IgnoredAny::deserialize(d).map(drop);
        }
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        // Unbounded, because the length of a JSON array is only known at its end.
        for i in 0usize.. {
            let here = self.0.below(self.1, [&format!("[{i}]"), ""]);
            if seq.next_element_seed(Seed(self.0, here))?.is_none() {
                break;
            }
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let dot = if self.1.length > 0 { "." } else { "" };
            let here = self.0.below(self.1, [dot, &key]);
            self.0.keys_read += 1;
            let keys_read = self.0.keys_read;
            // An exact match is the shortest path of the range, so it sorts first.
            if let Some(place) = self.0.wanted[here.from..here.to].first_mut()
                && place.path.len() == here.length
            {
                if place.first.is_none() {
                    place.first = Some(keys_read);
                } else if place.second.is_none() {
                    place.second = Some(keys_read);
                }
            }
            map.next_value_seed(Seed(self.0, here))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_sorted_in_document_order() {
        let body = br#"{"metadata":{"name":"a","nope":1},"data":{"a":"1","a":"2"},"extra":{},
            "spec":{"containers":[{"resourcess":{},"ports":[{"x":1}]}]},"bogusTop":1}"#;
        let order = [
            r#"unknown field "metadata.nope""#,
            r#"duplicate field "data.a""#,
            r#"unknown field "extra""#,
            r#"unknown field "spec.containers[0].resourcess""#,
            r#"unknown field "spec.containers[0].ports[0].x""#,
            r#"unknown field "bogusTop""#,
        ];
        let mut sorted = order.map(str::to_owned).to_vec();
        sorted.sort();
        assert_eq!(sort_by_document_order(body, sorted), order);
    }

    #[test]
    fn duplicates_in_unknown_fields_are_not_reported() {
        let body = br#"{"x":{"a":1,"a":2},"x":1,"xy":1,"metadata":{"name":"n","name":"m"}}"#;
        let findings = [
            r#"duplicate field "x.a""#,
            r#"duplicate field "x""#,
            r#"duplicate field "metadata.name""#,
            r#"unknown field "x""#,
            r#"unknown field "xy""#,
        ];
        let left = [
            r#"unknown field "x""#,
            r#"unknown field "xy""#,
            r#"duplicate field "metadata.name""#,
        ];
        let findings = findings.map(str::to_owned).to_vec();
        assert_eq!(sort_by_document_order(body, findings), left);
    }
}
