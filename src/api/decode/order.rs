//! Findings in the order of the document: the tree has its keys sorted, upstream reports as it reads.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt::{self, Write as _};

/// Sorts strict findings (`unknown field "a.b"`, `duplicate field "a.c"`) of a JSON body by where upstream's decoder
/// meets them: an unknown field at its first key, a duplicate at its second.
///
/// Findings of a YAML body need no sorting: upstream converts it to JSON with sorted keys first.
pub fn in_document_order(body: &[u8], findings: Vec<String>) -> Vec<String> {
    if findings.len() < 2 {
        return findings;
    }
    let mut scan = Scan {
        path: String::new(),
        met: 0,
        wanted: HashMap::new(),
    };
    for finding in &findings {
        if let Some((_, path)) = parts(finding) {
            scan.wanted.insert(path.to_owned(), Place::default());
        }
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    json.disable_recursion_limit();
    // The body was decoded before; should this reading fail, what was met until then is in order.
    let _ = Seed(&mut scan).deserialize(&mut json);
    let place = |finding: &String| {
        let (duplicate, path) = parts(finding)?;
        let place = scan.wanted.get(path)?;
        if duplicate { place.second } else { place.first }
    };
    let mut out = findings;
    out.sort_by_cached_key(|f| place(f).unwrap_or(usize::MAX));
    out
}

fn parts(finding: &str) -> Option<(bool, &str)> {
    let (what, path) = finding.split_once(" field \"")?;
    Some((what == "duplicate", path.strip_suffix('"')?))
}

/// When a path was met, counted in keys.
#[derive(Default)]
struct Place {
    first: Option<usize>,
    second: Option<usize>,
}

struct Scan {
    path: String,
    met: usize,
    wanted: HashMap<String, Place>,
}

struct Seed<'a>(&'a mut Scan);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
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
        let end = self.0.path.len();
        for i in 0usize.. {
            let _ = write!(self.0.path, "[{i}]");
            let item = seq.next_element_seed(Seed(self.0))?;
            self.0.path.truncate(end);
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let end = self.0.path.len();
        while let Some(key) = map.next_key::<String>()? {
            super::dot(&mut self.0.path, &key);
            self.0.met += 1;
            let met = self.0.met;
            if let Some(place) = self.0.wanted.get_mut(&self.0.path) {
                if place.first.is_none() {
                    place.first = Some(met);
                } else if place.second.is_none() {
                    place.second = Some(met);
                }
            }
            map.next_value_seed(Seed(self.0))?;
            self.0.path.truncate(end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_stand_where_the_decoder_meets_them() {
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
        assert_eq!(in_document_order(body, sorted), order);
    }
}
