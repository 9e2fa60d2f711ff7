//! Turns the responses of one case into a form that is equal on every conforming server.
//!
//! A uid or resourceVersion becomes the place where the case first saw it (`<uid:create.metadata.uid>`), so
//! that both "unchanged" and "changed" are compared. Values that the case itself sent stay as they are. Times
//! near now become `<time>`; names, addresses and ports that the server chose become placeholders; tokens
//! become their claims.

use crate::paths;
use crate::text::{Texts, is_generated, is_token};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

/// How far a number of seconds may be from now to be a time of this run.
const NEAR: i64 = 7200;

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("the clock is right").as_secs_f64()
}

/// Values that a case has received and sent so far. A clone is a state to return to.
#[derive(Clone, Default)]
pub(crate) struct Normaliser {
    pub texts: Texts,
    versions: HashMap<String, String>,
    node_ports: HashMap<i64, String>,
    /// Numbers that the case sent.
    numbers: BTreeSet<i64>,
    /// Ports of the harness itself, and their names.
    pub own_ports: BTreeMap<i64, String>,
}

/// Where in a document a value stands.
struct Place<'a> {
    /// The step and the path.
    label: &'a str,
    /// The closest member name; empty at the root.
    key: &'a str,
    /// Inside the metadata of a list, whose resourceVersion is not that of an object.
    of_list: bool,
}

impl Normaliser {
    /// Records the values that a case sends: the server did not choose them.
    pub(crate) fn sent(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    self.texts.literals.insert(key.clone());
                    self.sent(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|i| self.sent(i)),
            Value::String(s) if !s.contains("${") => drop(self.texts.literals.insert(s.clone())),
            Value::Number(n) => self.numbers.extend(n.as_i64()),
            _ => {}
        }
    }

    /// The same for a body that is sent as text.
    pub(crate) fn sent_text(&mut self, text: &str) {
        let inside = |c: char| c.is_alphanumeric() || "_.:-".contains(c);
        for word in text.split(|c| !inside(c)).filter(|w| !w.is_empty()).take(2000) {
            self.texts.literals.insert(word.to_owned());
            self.numbers.extend(word.parse::<i64>());
        }
    }

    /// Normalises a document of the step `label`.
    pub(crate) fn document(&mut self, value: &Value, label: &str) -> Value {
        self.keyed(value, label, "")
    }

    /// Normalises a value that is not the root of a document.
    pub(crate) fn keyed(&mut self, value: &Value, label: &str, key: &str) -> Value {
        let place = Place {
            label,
            key,
            of_list: false,
        };
        self.walk(value, &place)
    }

    fn walk(&mut self, value: &Value, place: &Place<'_>) -> Value {
        match value {
            Value::Object(members) => self.object(members, place),
            Value::Array(items) => {
                let each = |(i, item): (usize, &Value)| {
                    let label = format!("{}[{i}]", place.label);
                    let place = Place {
                        label: &label,
                        key: place.key,
                        of_list: false,
                    };
                    self.walk(item, &place)
                };
                Value::Array(items.iter().enumerate().map(each).collect())
            }
            Value::String(s) => self.string(s, place),
            Value::Number(n) => n
                .as_i64()
                .and_then(|n| self.number(n, place))
                .unwrap_or_else(|| value.clone()),
            other => other.clone(),
        }
    }

    fn object(&mut self, members: &Map<String, Value>, place: &Place<'_>) -> Value {
        self.learn_generated_name(members);
        let kind = members.get("kind").and_then(Value::as_str).unwrap_or_default();
        let is_list = place.key.is_empty() && (kind.ends_with("List") || kind == "Table");
        let mut out = Map::new();
        for (key, value) in members {
            let new = self.texts.normalise(key, place.label);
            let label = paths::member(place.label, &new);
            let place = Place {
                label: &label,
                key,
                of_list: (is_list && key == "metadata") || (place.of_list && key == "resourceVersion"),
            };
            let value = self.walk(value, &place);
            out.insert(new, value);
        }
        let mut out = Value::Object(out);
        sort_managed_fields(&mut out);
        out
    }

    /// The name that the server made from a generateName has its prefix and a random end.
    fn learn_generated_name(&mut self, members: &Map<String, Value>) {
        let text = |key: &str| members.get(key).and_then(Value::as_str);
        let (Some(prefix), Some(name)) = (text("generateName"), text("name")) else {
            return;
        };
        let Some(end) = name.strip_prefix(prefix).filter(|_| !prefix.is_empty()) else {
            return;
        };
        if self.texts.literals.contains(name) || self.texts.knows(name) {
            return;
        }
        let end = if is_generated(end) {
            "<generated>"
        } else {
            "<bad-generated>"
        };
        let known = self.texts.with_names(prefix) + end;
        self.texts.call(name, known);
    }

    fn string(&mut self, s: &str, place: &Place<'_>) -> Value {
        let digits = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        match place.key {
            "resourceVersion" if digits && s != "0" => {
                if place.of_list {
                    return json!("<rv>");
                }
                let name = || format!("<rv:{}>", place.label);
                return json!(self.versions.entry(s.to_owned()).or_insert_with(name).clone());
            }
            "continue" if !s.is_empty() => return json!("<continue>"),
            "clusterIP" | "clusterIPs" if !self.texts.literals.contains(s) && is_cluster_ip(s) => {
                let name = || format!("<ip:{}>", place.label);
                return json!(self.texts.addresses.entry(s.to_owned()).or_insert_with(name).clone());
            }
            _ => {}
        }
        if let Some(address) = self.texts.addresses.get(s) {
            return json!(address);
        }
        if place.key == "cells" && is_age(s) {
            return json!("<age>");
        }
        match claims(s) {
            Some(claims) => json!({"jwt": self.document(&claims, place.label)}),
            None => json!(self.texts.normalise(s, place.label)),
        }
    }

    /// The replacement of a number; `None` if it is kept.
    fn number(&mut self, n: i64, place: &Place<'_>) -> Option<Value> {
        match place.key {
            "nodePort" | "healthCheckNodePort" if (30_000..32_768).contains(&n) && !self.numbers.contains(&n) => {
                let name = || format!("<nodeport:{}>", place.label);
                return Some(json!(self.node_ports.entry(n).or_insert_with(name).clone()));
            }
            "port" if self.own_ports.contains_key(&n) => return Some(json!(self.own_ports[&n])),
            _ => {}
        }
        ((n - now() as i64).abs() < NEAR).then(|| json!("<epoch>"))
    }
}

/// Managed fields are a set: their order has no meaning.
pub(crate) fn sort_managed_fields(value: &mut Value) {
    if let Some(Value::Array(entries)) = value.get_mut("managedFields") {
        entries.sort_by_cached_key(Value::to_string);
    }
}

/// An address of the service range, or an IPv6 one.
fn is_cluster_ip(s: &str) -> bool {
    let v4 = s
        .strip_prefix("10.0.0.")
        .is_some_and(|n| n.parse::<u16>().is_ok_and(|n| n < 1000));
    v4 || (s.starts_with("fd") && s.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'))
}

/// `5d3h`, as in the columns of a table.
fn is_age(s: &str) -> bool {
    let starts = s.starts_with(|c: char| c.is_ascii_digit());
    let mut before = ' ';
    let fits = s.chars().all(|c| {
        let fits = c.is_ascii_digit() || ("smhdy".contains(c) && before.is_ascii_digit());
        before = c;
        fits
    });
    starts && fits && !before.is_ascii_digit()
}

/// Header and claims of a token, with times relative to its issue.
fn claims(s: &str) -> Option<Value> {
    let mut parts = s.split('.').filter(|_| is_token(s));
    let mut part = || {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
        serde_json::from_slice::<Value>(&bytes).ok()
    };
    let (mut header, mut claims) = (part()?, part()?);
    header.as_object_mut()?.remove("kid");
    if let Some(issued) = claims.get("iat").and_then(Value::as_i64) {
        let relative = |time: &mut Value| {
            if let Some(at) = time.as_i64() {
                *time = json!(format!("<iat+{}>", at - issued));
            }
        };
        for name in ["exp", "nbf", "iat"] {
            claims.get_mut(name).map(relative);
        }
        claims
            .get_mut("kubernetes.io")
            .and_then(|k| k.get_mut("warnafter"))
            .map(relative);
    }
    Some(json!({"header": header, "claims": claims}))
}
