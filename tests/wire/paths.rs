//! Paths into JSON documents: `a.b[0].c`, `metadata.annotations["x.y/z"]`.

use serde_json::{Map, Value};

#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) enum Part {
    Key(String),
    /// Negative numbers count from the end.
    Index(isize),
}

pub(crate) fn parse(path: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
        } else if let Some((key, after)) = rest.strip_prefix("[\"").and_then(|r| r.split_once("\"]")) {
            parts.push(Part::Key(key.to_owned()));
            rest = after;
        } else if let Some((index, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            let index = index
                .parse()
                .unwrap_or_else(|_| panic!("path {path}: {index} is no index"));
            parts.push(Part::Index(index));
            rest = after;
        } else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
            assert!(end > 0, "path {path} has an unmatched bracket");
            parts.push(Part::Key(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    parts
}

fn position(index: isize, len: usize) -> Option<usize> {
    let at = if index < 0 { index + len as isize } else { index };
    usize::try_from(at).ok().filter(|i| *i < len)
}

/// The value at a path.
pub(crate) fn get<'a>(doc: &'a Value, path: &str) -> Option<&'a Value> {
    parse(path).iter().try_fold(doc, |at, part| match part {
        Part::Key(k) => at.get(k),
        Part::Index(i) => at.as_array().and_then(|a| a.get(position(*i, a.len())?)),
    })
}

/// The text at a path, empty if there is none.
pub(crate) fn text<'a>(doc: &'a Value, path: &str) -> &'a str {
    get(doc, path).and_then(Value::as_str).unwrap_or_default()
}

/// Mutable access to the value at a path.
pub(crate) fn get_mut<'a>(doc: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    parse(path).iter().try_fold(doc, descend)
}

fn descend<'a>(at: &'a mut Value, part: &Part) -> Option<&'a mut Value> {
    match part {
        Part::Key(k) => at.get_mut(k),
        Part::Index(i) => {
            let list = at.as_array_mut()?;
            let i = position(*i, list.len())?;
            list.get_mut(i)
        }
    }
}

/// Sets, appends or deletes at a path. Missing objects on the way are created.
///
/// # Errors
/// If the document has something else there.
pub(crate) fn edit(doc: &mut Value, operation: &str, path: &str, value: Value) -> Result<(), String> {
    let mut parts = parse(path);
    let last = parts.pop().unwrap_or_else(|| panic!("an edit needs a path"));
    let mut at = doc;
    for part in &parts {
        if let (Part::Key(k), Value::Object(m)) = (part, &mut *at) {
            m.entry(k.clone()).or_insert_with(|| Value::Object(Map::new()));
        }
        at = descend(at, part).ok_or_else(|| format!("{path} is not in the document"))?;
    }
    match (operation, last, at) {
        ("set", Part::Key(k), Value::Object(m)) => {
            m.insert(k, value);
        }
        ("append", Part::Key(k), Value::Object(m)) => {
            let list = m.entry(k).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut()
                .ok_or_else(|| format!("{path} is no list"))?
                .push(value);
        }
        ("del", Part::Key(k), Value::Object(m)) => {
            m.remove(&k);
        }
        (_, last, _) => return Err(format!("{operation} {path}: {last:?} is not possible there")),
    }
    Ok(())
}

/// The path of a member of the value at `path`.
pub(crate) fn member(path: &str, key: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_$:-".contains(c);
    match key.chars().all(plain) && !key.is_empty() {
        true if path.is_empty() => key.to_owned(),
        true => format!("{path}.{key}"),
        false => format!("{path}[\"{key}\"]"),
    }
}
