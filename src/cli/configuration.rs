//! `ToranaConfiguration`: the flags of `torana serve` as a file. Every flag in the table is a field of the
//! same name in camelCase and of the same type; there is no second list of options.
//!
//! [`Configuration::load`] reads a file, [`to_yaml`] writes one. Flags on the command line win
//! ([`Configuration::under`]).

mod docs;

pub(crate) use docs::markdown;

use super::flags::{FLAGS, Flag, Support, ValueType, field_of, like};
use super::value::{self, UsageError, Values};
use crate::apimachinery::codec::{json, yaml};
use crate::apimachinery::value::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// The version that is written, and the only one that is read so far.
pub(crate) const API_VERSION: &str = "torana.dev/v1alpha1";
pub(crate) const KIND: &str = "ToranaConfiguration";

/// The values of a file, with the line of each.
#[derive(Debug, Default)]
pub(crate) struct Configuration {
    values: Values,
}

fn flag_of(field: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| field_of(flag.name) == field)
}

/// Errors of one file, which name it and the line.
struct File<'a> {
    name: &'a str,
    lines: BTreeMap<String, usize>,
}

impl File<'_> {
    fn place(&self, field: &str) -> String {
        match self.lines.get(field) {
            Some(line) => format!("{}:{line}", self.name),
            None => self.name.to_owned(),
        }
    }

    fn error(&self, field: &str, what: impl std::fmt::Display) -> UsageError {
        UsageError::new(format!("{}: {what}", self.place(field)))
    }
}

impl Configuration {
    /// Reads a file, YAML or JSON.
    ///
    /// # Errors
    /// A one-line [`UsageError`] with file, line and remedy: the file cannot be read, is of another kind or
    /// version, or has a field that is unknown, given twice or of another type.
    pub(crate) fn load(path: &Path) -> Result<Self, UsageError> {
        let text = std::fs::read(path)
            .map_err(|e| UsageError::new(format!("--config: cannot read {}: {e}", path.display())))?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// [`Self::load`] for a text that was read already.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn parse(name: &str, text: &[u8]) -> Result<Self, UsageError> {
        let (document, duplicates) = decode(text).map_err(|e| match e {
            // The error's own message follows upstream and omits the number of line 1.
            yaml::Error::Syntax { line, reason, .. } => UsageError::new(format!("{name}: yaml: line {line}: {reason}")),
            e => UsageError::new(format!("{name}: {e}")),
        })?;
        if let Some(first) = duplicates.first() {
            return Err(UsageError::new(format!("{name}: {first}; keep one of them")));
        }
        let file = File {
            name,
            lines: yaml::places(text),
        };
        let Some(fields) = document.as_object() else {
            let what = format!("expected an object with apiVersion: {API_VERSION} and kind: {KIND}");
            return Err(file.error("", what));
        };
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match fields.get(field).map(|v| v.as_str().unwrap_or_default()) {
                Some(found) if found == expected => {}
                Some(found) => return Err(file.error(field, format!("{field} is {found:?}; expected {expected}"))),
                None => return Err(file.error("", format!("{field} is missing; add {field}: {expected}"))),
            }
        }
        let mut found = Self::default();
        for (field, value) in fields
            .iter()
            .filter(|(field, _)| !matches!(*field, "apiVersion" | "kind"))
        {
            let flag = flag_of(field).ok_or_else(|| file.error(field, unknown(field)))?;
            let texts = texts(flag, value).map_err(|why| file.error(field, format!("{field}: {why}")))?;
            // With the check of the command line, so that both accept the same values.
            for text in &texts {
                value::check(flag, text).map_err(|e| file.error(field, e))?;
            }
            found.values.put(flag.name, texts);
            // Later errors concern combinations of flags; they should still name the line.
            found.values.set_place(flag.name, file.place(field));
        }
        Ok(found)
    }

    /// The file's values, replaced by those of the command line where these were given.
    pub(crate) fn under(self, command_line: Values) -> Values {
        command_line.over(self.values)
    }
}

/// Why a field is unknown, and which one was probably meant.
fn unknown(field: &str) -> String {
    let as_flag = field.trim_start_matches('-').replace('_', "-");
    // The commonest mistake: the flag's spelling, copied from a command line.
    if FLAGS.iter().any(|flag| flag.name == as_flag) {
        return format!("unknown field {field:?}; write {}", field_of(&as_flag));
    }
    let fields = FLAGS.iter().map(|flag| field_of(flag.name));
    match like(field, fields) {
        Some(similar) => format!("unknown field {field:?}; did you mean {similar}?"),
        None => format!("unknown field {field:?}; `torana config print --defaults` lists all fields"),
    }
}

/// Decodes a file, and returns which keys it has twice. JSON is decoded as such, because YAML forbids some
/// characters in its strings.
fn decode(text: &[u8]) -> Result<(Value, Vec<String>), yaml::Error> {
    // Duplicates fall through to the YAML decoder, which knows their lines.
    if text.trim_ascii_start().starts_with(b"{")
        && let Ok((document, notes)) = json::decode_with_duplicates(text)
        && notes.duplicates.is_empty()
    {
        return Ok((document, Vec::new()));
    }
    yaml::decode_with_duplicates(text)
}

/// Why the value of a field cannot be used.
#[derive(Debug, thiserror::Error)]
enum WrongValue {
    /// It has another type: an example of the right one.
    #[error("expected {0}")]
    Type(String),
    /// An item of a list has a comma, which separates items in the flag.
    #[error("the item {0:?} has a comma; write an item for each value")]
    Comma(String),
}

/// A field's value in the form in which the flag would be given on the command line.
fn texts(flag: &Flag, value: &Value) -> Result<Vec<String>, WrongValue> {
    let expected = || WrongValue::Type(example(flag));
    let one = match flag.value_type {
        ValueType::Bool => value.as_bool().map(|b| b.to_string()),
        ValueType::Int => value.as_i64().map(|n| n.to_string()),
        ValueType::Float => value.as_f64().map(|n| n.to_string()),
        ValueType::Text | ValueType::Duration => value.as_str().map(str::to_owned),
        ValueType::List | ValueType::Array => {
            let items = value.as_array().ok_or_else(expected)?;
            let items = items.iter().map(|item| item.as_str().map(str::to_owned));
            let items: Vec<String> = items.collect::<Option<_>>().ok_or_else(expected)?;
            if flag.value_type == ValueType::Array {
                return Ok(items);
            }
            // Values are kept as flag texts, where this item would become two.
            if let Some(two) = items.iter().find(|item| item.contains(',')) {
                return Err(WrongValue::Comma(two.clone()));
            }
            // A list that is given empty replaces a default that is not.
            Some(items.join(","))
        }
    };
    one.map(|text| vec![text]).ok_or_else(expected)
}

/// The form of a field's value.
fn example(flag: &Flag) -> String {
    let field = field_of(flag.name);
    match flag.value_type {
        ValueType::Bool => format!("true or false, as in `{field}: true`"),
        ValueType::Int => format!("a whole number, as in `{field}: 1`"),
        ValueType::Float => format!("a number, as in `{field}: 0.5`"),
        ValueType::Duration => format!("a duration, as in `{field}: 1m30s`"),
        ValueType::Text => format!("a string, as in `{field}: \"{}\"`", flag.default),
        ValueType::List | ValueType::Array => format!("a list of strings, as in `{field}: [a, b]`"),
    }
}

/// A flag's value with the type of its field. The values were checked against the flag's type when they were
/// read.
fn typed(flag: &Flag, texts: &[String]) -> Value {
    let last = texts.last().map_or(flag.default, String::as_str);
    match flag.value_type {
        ValueType::Bool => value::go_bool(last).unwrap_or_default().into(),
        ValueType::Int => last.parse::<i64>().unwrap_or_default().into(),
        ValueType::Float => match last.parse::<f64>() {
            // `1`, not `1.0`, which is how users write it.
            Ok(n) if n.fract() == 0.0 => (n as i64).into(),
            n => n.unwrap_or_default().into(),
        },
        ValueType::Text | ValueType::Duration => last.into(),
        ValueType::Array => texts.to_vec().into(),
        ValueType::List => {
            let items = texts.iter().flat_map(|text| text.split(','));
            let items: Vec<String> = items.map(|i| i.trim().to_owned()).filter(|i| !i.is_empty()).collect();
            items.into()
        }
    }
}

/// The given values as a document.
pub(crate) fn document(values: &Values) -> Value {
    let mut fields = Map::default();
    fields.insert("apiVersion", API_VERSION);
    fields.insert("kind", KIND);
    for flag in FLAGS {
        if let Some(texts) = values.texts(flag.name) {
            fields.insert(field_of(flag.name), typed(flag, texts));
        }
    }
    Value::from(fields)
}

/// The values as a file: apiVersion and kind first, then the fields in the order of docs/flags.md. With
/// `defaults`, supported flags that were not given follow as comments with their default and help.
pub(crate) fn to_yaml(values: &Values, defaults: bool) -> String {
    let mut out = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
    for group in super::flags::Group::ALL {
        let mut heading = format!("\n# {}\n", group.title());
        for flag in FLAGS.iter().filter(|flag| flag.group == group) {
            let given = values.texts(flag.name);
            if given.is_none() && !(defaults && flag.support == Support::Supported) {
                continue;
            }
            let default = [flag.default.to_owned()];
            // No text for an empty default, which would become an item of an array.
            let texts = given.unwrap_or(if flag.default.is_empty() { &[] } else { &default });
            let mut field = Map::default();
            field.insert(field_of(flag.name), typed(flag, texts));
            // Field by field, because comments and headings stand between them.
            let text = yaml::to_string(&Value::from(field));
            if defaults {
                // Only before the first field of the group.
                out += &std::mem::take(&mut heading);
                out += &format!("# {}\n", flag.help);
            }
            if given.is_some() {
                out += &text;
            } else {
                out.extend(text.lines().map(|line| format!("#{line}\n")));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
