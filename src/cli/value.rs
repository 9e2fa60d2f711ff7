//! The flag values as given, parsed like Go's flag types. [`Values`] holds them; [`UsageError`] is the error
//! of the whole command line.

use super::flags::{self, Flag, ValueType};
use crate::apimachinery::time::parse_duration;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// An invalid command line. The message is a single line.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(pub(super) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

impl UsageError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// An invalid value of a flag.
    pub(super) fn invalid(flag: &str, value: &str, why: impl fmt::Display) -> Self {
        Self(format!("invalid argument {value:?} for --{flag}: {why}"))
    }
}

/// The given values by flag name, with all occurrences in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    given: BTreeMap<&'static str, Vec<String>>,
    /// `file:line` of the values that a configuration file has given.
    places: BTreeMap<&'static str, String>,
}

impl Values {
    pub(super) fn put(&mut self, name: &'static str, values: Vec<String>) {
        self.given.insert(name, values);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.given.remove(name);
        self.places.remove(name);
    }

    /// These values, and those of `lower` for flags that are not given here.
    pub(super) fn over(mut self, lower: Self) -> Self {
        for (name, texts) in lower.given {
            // A list of the command line replaces that of the file as a whole; merging could never remove an
            // item.
            if let Entry::Vacant(free) = self.given.entry(name) {
                free.insert(texts);
                if let Some(place) = lower.places.get(name) {
                    self.places.insert(name, place.clone());
                }
            }
        }
        self
    }

    /// Records where a value is from, if not from the command line.
    pub(super) fn set_place(&mut self, name: &'static str, place: String) {
        self.places.insert(name, place);
    }

    /// All values given for a flag, unparsed, in order.
    pub(super) fn texts(&self, name: &str) -> Option<&[String]> {
        self.given.get(name).map(Vec::as_slice)
    }

    /// Adds to an error where the flags that it names were set, if in a file.
    pub(super) fn locate(&self, error: UsageError) -> UsageError {
        // Whole words: `--etcd-prefix` must not match an error about `--etcd-prefixes`.
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let named: BTreeSet<&str> = error.0.split(|c| !is_name(c)).collect();
        let places = self
            .places
            .iter()
            .filter(|(name, _)| named.contains(format!("--{name}").as_str()));
        let places: Vec<String> = places
            .map(|(name, place)| format!("{} in {place}", super::flags::field_of(name)))
            .collect();
        match places.is_empty() {
            true => error,
            false => UsageError(format!("{} ({})", error.0, places.join(", "))),
        }
    }

    /// True if the flag was given.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The names of the flags that were given, sorted.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        self.given.keys().copied()
    }

    fn last(&self, name: &str) -> &str {
        let given = self.given.get(name).and_then(|all| all.last());
        match given {
            Some(value) => value,
            None => flags::find(name).map_or("", |flag| flag.default),
        }
    }

    fn read<T, E: fmt::Display>(&self, name: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<T, UsageError> {
        let value = self.last(name);
        parse(value).map_err(|why| UsageError::invalid(name, value, why))
    }

    /// The value as text; the default if not given.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.last(name)
    }

    /// The value as text; `None` if it is empty.
    pub(crate) fn some_text(&self, name: &str) -> Option<&str> {
        Some(self.last(name)).filter(|text| !text.is_empty())
    }

    /// The value as formatted for `/flagz`: the default if not given, and all items of a list.
    pub(crate) fn flagz_value(&self, name: &str) -> String {
        match flags::find(name).map(|f| f.value_type) {
            // As Go's pflag prints a slice.
            Some(ValueType::List | ValueType::Array) => format!("[{}]", self.list(name).join(",")),
            _ => self.last(name).to_owned(),
        }
    }

    /// The value as a boolean.
    ///
    /// # Errors
    /// The value is not one of Go's spellings of a boolean.
    pub(crate) fn bool(&self, name: &str) -> Result<bool, UsageError> {
        self.read(name, parse_bool)
    }

    /// The value as an integer.
    ///
    /// # Errors
    /// The value is not an integer, or out of range.
    pub(crate) fn int(&self, name: &str) -> Result<i64, UsageError> {
        self.read(name, parse_int)
    }

    /// The value as a number.
    ///
    /// # Errors
    /// The value is not a number.
    pub(crate) fn float(&self, name: &str) -> Result<f64, UsageError> {
        self.read(name, parse_float)
    }

    /// The value as a non-negative duration.
    ///
    /// # Errors
    /// The value is not a duration, or it is negative (upstream's message).
    pub(crate) fn duration(&self, name: &str) -> Result<Duration, UsageError> {
        let value = self.last(name);
        // The parser has no sign; `-0s` is a valid zero in Go.
        if value.starts_with('-') && parse_duration(&value[1..]).is_ok_and(|d| !d.is_zero()) {
            return Err(UsageError(format!("--{name} can not be negative value")));
        }
        self.read(name, |v| parse_duration(v.strip_prefix('-').unwrap_or(v)))
    }

    /// The items of a list from all occurrences, split at commas unless the flag is an array.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let Some(flag) = flags::find(name) else {
            return Vec::new();
        };
        let default = [flag.default.to_owned()];
        let all = self.given.get(flag.name).map_or(&default[..], Vec::as_slice);
        let items = all.iter().flat_map(|value| match flag.value_type {
            ValueType::Array => vec![value.as_str()],
            _ => value.split(',').collect(),
        });
        items
            .map(|item| item.trim().to_owned())
            .filter(|item| !item.is_empty())
            .collect()
    }

    /// True if the given value equals the default.
    pub(super) fn is_default(&self, flag: &Flag) -> bool {
        let Some(given) = self.given.get(flag.name) else {
            return true;
        };
        // The last occurrence wins, so only that one can differ.
        let Some(last) = given.last() else { return true };
        match flag.value_type {
            ValueType::List | ValueType::Array => given.iter().all(|value| value == flag.default),
            ValueType::Bool => parse_bool(last) == parse_bool(flag.default),
            ValueType::Duration => parse_duration(last) == parse_duration(flag.default),
            // Numerically: `0` and `0.0` are the same default.
            ValueType::Int | ValueType::Float => last.parse::<f64>() == flag.default.parse::<f64>(),
            ValueType::Text => last == flag.default,
        }
    }
}

/// Checks that a value has the flag's type.
pub(super) fn check(flag: &Flag, value: &str) -> Result<(), UsageError> {
    let invalid = |why: &dyn fmt::Display| UsageError::invalid(flag.name, value, why);
    match flag.value_type {
        ValueType::Bool => parse_bool(value).map(drop).map_err(|e| invalid(&e)),
        ValueType::Int => parse_int(value).map(drop).map_err(|e| invalid(&e)),
        ValueType::Float => parse_float(value).map(drop).map_err(|e| invalid(&e)),
        ValueType::Duration => {
            // Go's durations may have a sign, which the parser does not take.
            let duration = parse_duration(value.strip_prefix('-').unwrap_or(value));
            duration.map(drop).map_err(|e| invalid(&e))
        }
        ValueType::Text | ValueType::List | ValueType::Array => Ok(()),
    }
}

/// Parses a boolean in one of Go's spellings.
pub(crate) fn go_bool(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A value is not as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
struct Expected(&'static str);

fn parse_bool(value: &str) -> Result<bool, Expected> {
    go_bool(value).ok_or(Expected("true or false"))
}

fn parse_int(value: &str) -> Result<i64, Expected> {
    value.parse().map_err(|_| Expected("a whole number"))
}

fn parse_float(value: &str) -> Result<f64, Expected> {
    // Rust also parses `inf` and `NaN`, for which no flag has a use.
    let number = value.parse::<f64>().ok().filter(|n| n.is_finite());
    number.ok_or(Expected("a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("1m0s", 60_000),
            ("1h0m0s", 3_600_000),
            ("1.5s", 1_500),
            ("300ms", 300),
            (".5m", 30_000),
            ("1m30s500ms", 90_500),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "1", "s", "1 s", "1d", "1m30", "..s", "9999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_split_at_commas_and_arrays_do_not() {
        let mut values = Values::default();
        values.put("requestheader-allowed-names", vec!["a, b".into(), "c".into()]);
        values.put("tls-sni-cert-key", vec!["a.crt,a.key".into(), "b.crt,b.key:x,y".into()]);
        assert_eq!(values.list("requestheader-allowed-names"), ["a", "b", "c"]);
        assert_eq!(values.list("tls-sni-cert-key"), ["a.crt,a.key", "b.crt,b.key:x,y"]);
        assert_eq!(values.list("service-cluster-ip-range"), ["10.0.0.0/24"]);
    }

    #[test]
    fn a_negative_duration_gives_upstreams_message() {
        let mut values = Values::default();
        values.put("request-timeout", vec!["-1s".into()]);
        let error = values.duration("request-timeout").unwrap_err();
        assert_eq!(error.0, "--request-timeout can not be negative value");
    }
}
