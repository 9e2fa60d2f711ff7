//! Differences between a recorded response and ours, both normalised.

use crate::case::{Compare, Step};
use crate::{details, paths};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// Stands for a value that only the other side has.
const ABSENT: &str = "<absent>";

/// One value that differs.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub path: String,
    pub want: Value,
    pub got: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: want {} got {}", self.path, short(&self.want), short(&self.got))
    }
}

fn short(v: &Value) -> String {
    const MAX_CHARS: usize = 300;
    let text = v.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// All differences of a step: the status code, the headers, the body, the events of a watch, the calls of a
/// webhook.
pub(crate) fn compare(step: &Step, want: &Value, got: &Value) -> Vec<Difference> {
    let mut found = Comparison {
        superset: step.superset,
        loose: step.message.as_deref() == Some("loose"),
        differences: Vec::new(),
    };
    let status = |v: &Value| v["status"].as_u64().unwrap_or_default();
    let same = match step.compare {
        Compare::Class => status(want) / 100 == status(got) / 100,
        _ => status(want) == status(got),
    };
    if !same {
        found.add("status", want.get("status"), got.get("status"));
    }
    if matches!(step.compare, Compare::Class | Compare::Status) {
        return found.differences;
    }
    found.headers(&want["headers"], &got["headers"]);
    if want.get("events").is_some() || got.get("events").is_some() {
        found.events(&want["events"], &got["events"]);
    } else if want.get("body").is_some() || got.get("body").is_some() {
        found.optional(want.get("body"), got.get("body"), "");
    }
    found.optional(want.get("calls"), got.get("calls"), "calls");
    found.differences
}

struct Comparison {
    /// Members that only our side has are no differences.
    superset: bool,
    /// The message is an implementation detail.
    loose: bool,
    differences: Vec<Difference>,
}

impl Comparison {
    fn add(&mut self, path: &str, want: Option<&Value>, got: Option<&Value>) {
        let side = |v: Option<&Value>| v.cloned().unwrap_or_else(|| json!(ABSENT));
        self.differences.push(Difference {
            path: if path.is_empty() { "." } else { path }.to_owned(),
            want: side(want),
            got: side(got),
        });
    }

    fn optional(&mut self, want: Option<&Value>, got: Option<&Value>, path: &str) {
        match (want, got) {
            (Some(want), Some(got)) => self.value(want, got, path),
            (None, None) => {}
            _ => self.add(path, want, got),
        }
    }

    /// The headers of both sides are closed lists: one that only one side has is a difference.
    fn headers(&mut self, want: &Value, got: &Value) {
        for name in names(want, got) {
            let (want, got) = (want.get(&name), got.get(&name));
            if want != got {
                self.add(&format!("header {name}"), want, got);
            }
        }
    }

    fn events(&mut self, want: &Value, got: &Value) {
        let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
        let (want, got) = (list(want), list(got));
        for i in 0..want.len().max(got.len()) {
            let path = format!("event[{i}]");
            match (want.get(i), got.get(i)) {
                (Some(want), Some(got)) => {
                    let (mut want, mut got) = (want.clone(), got.clone());
                    if want["object"]["kind"] == "Status" {
                        let path = format!("{path}.object");
                        self.status(&mut want["object"], &mut got["object"], &path);
                    }
                    self.value(&want, &got, &path);
                }
                (want, got) => self.add(&path, want, got),
            }
        }
    }

    fn value(&mut self, want: &Value, got: &Value, path: &str) {
        match (want, got) {
            (Value::Object(_), Value::Object(_)) => {
                let is_status = path.is_empty() && want["kind"] == "Status" && want["apiVersion"] == "v1";
                if is_status && want.get("status").is_some() {
                    let (mut want, mut got) = (want.clone(), got.clone());
                    self.status(&mut want, &mut got, path);
                    self.members(&want, &got, path);
                } else {
                    self.members(want, got, path);
                }
            }
            (Value::Array(wants), Value::Array(gots)) => {
                for i in 0..wants.len().max(gots.len()) {
                    self.optional(wants.get(i), gots.get(i), &format!("{path}[{i}]"));
                }
            }
            _ if want != got => self.add(path, Some(want), Some(got)),
            _ => {}
        }
    }

    fn members(&mut self, want: &Value, got: &Value, path: &str) {
        for name in names(want, got) {
            let at = paths::member(path, &name);
            let (want, got) = (want.get(&name), got.get(&name));
            if want.is_some() || !self.superset {
                self.optional(want, got, &at);
            }
        }
    }

    /// Brings the two sides of a Status into a form whose members can be compared: without messages that are
    /// implementation details or differ only in the order of errors, and with sorted causes.
    fn status(&mut self, want: &mut Value, got: &mut Value, path: &str) {
        let message = |v: &Value| v["message"].as_str().unwrap_or_default().to_owned();
        let (expected, actual) = (message(want), message(got));
        let loose = self.loose || details::is_implementation(&expected);
        if loose && expected.is_empty() != actual.is_empty() {
            let path = paths::member(path, "message");
            self.add(&path, want.get("message"), got.get("message"));
        }
        if loose || details::are_same_errors(&expected, &actual) {
            remove(want, "message");
            remove(got, "message");
        }
        for side in [want, got] {
            let Some(Value::Array(causes)) = side.get_mut("details").and_then(|d| d.get_mut("causes")) else {
                continue;
            };
            for cause in causes.iter_mut() {
                if loose {
                    remove(cause, "message");
                } else if details::is_implementation(cause["message"].as_str().unwrap_or_default()) {
                    cause["message"] = json!("<detail>");
                }
            }
            causes.sort_by_cached_key(Value::to_string);
        }
    }
}

fn remove(v: &mut Value, key: &str) {
    if let Some(members) = v.as_object_mut() {
        members.remove(key);
    }
}

/// The member names of both.
fn names(a: &Value, b: &Value) -> BTreeSet<String> {
    let both = [a, b].into_iter().filter_map(Value::as_object);
    both.flat_map(|m| m.keys().cloned()).collect()
}
