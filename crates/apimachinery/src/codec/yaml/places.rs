//! [`places`]: line numbers of the nodes of a YAML file, for error messages about configuration files.

use saphyr_parser::{Event, Parser};
use std::collections::BTreeMap;

/// Maps the path of each key and item of the first document, such as `rules[0].level`, to its line (from 1).
/// A malformed document yields the nodes before the error.
pub fn places(text: &[u8]) -> BTreeMap<String, usize> {
    let text = String::from_utf8_lossy(text);
    let mut out = BTreeMap::new();
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(&text) {
        let Ok((event, span)) = event else { break };
        let line = span.start.line();
        match event {
            Event::StreamEnd | Event::DocumentEnd => break,
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                // Deeper than any file written by hand; the remaining nodes get no line.
                if open.len() >= super::MAX_DEPTH {
                    break;
                }
                let path = begin(&mut open, None, line, &mut out);
                open.push(match event {
                    Event::SequenceStart(..) => Open::List(path, 0),
                    _ => Open::Map(path, None),
                });
            }
            Event::SequenceEnd | Event::MappingEnd => drop(open.pop()),
            Event::Scalar(value, ..) => drop(begin(&mut open, Some(&value), line, &mut out)),
            Event::Alias(_) => drop(begin(&mut open, Some(""), line, &mut out)),
            _ => {}
        }
    }
    out
}

enum Open {
    /// The list's path, and the number of items so far.
    List(String, usize),
    /// The map's path, and the path of the key whose value comes next.
    Map(String, Option<String>),
}

/// Records the start of a node and returns its path. In a map, a scalar in key position is the key.
fn begin(open: &mut [Open], scalar: Option<&str>, line: usize, out: &mut BTreeMap<String, usize>) -> String {
    let path = match open.last_mut() {
        None => return String::new(),
        Some(Open::List(path, n)) => {
            *n += 1;
            format!("{path}[{}]", *n - 1)
        }
        Some(Open::Map(path, key)) => match key.take() {
            // The value of a key has the key's path and line.
            Some(of_value) => return of_value,
            None => {
                let name = scalar.unwrap_or("");
                let full = if path.is_empty() {
                    name.to_owned()
                } else {
                    format!("{path}.{name}")
                };
                *key = Some(full.clone());
                full
            }
        },
    };
    // The first occurrence wins: for duplicate keys, that is the line a reader finds first.
    out.entry(path.clone()).or_insert(line);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_items_map_to_their_lines() {
        let found = places(b"a: 1\nrules:\n- level: x\n  list: [p, q]\n-\n  level: y\nz: {k: [\n 1]}\n");
        for (path, line) in [
            ("a", 1),
            ("rules", 2),
            ("rules[0]", 3),
            ("rules[0].level", 3),
            ("rules[0].list[1]", 4),
            ("rules[1].level", 6),
            ("z.k[0]", 8),
        ] {
            assert_eq!(found.get(path), Some(&line), "{path} in {found:?}");
        }
    }
}
