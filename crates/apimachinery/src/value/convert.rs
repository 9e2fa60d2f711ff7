//! Conversions into [`Value`], and between it and serde_json's tree.

use super::{Map, Str, Value};

macro_rules! from {
    ($($t:ty => |$x:ident| $e:expr),* $(,)?) => { $(impl From<$t> for Value { fn from($x: $t) -> Self { $e } })* };
}
from! {
    bool => |b| Value::Bool(b),
    i64 => |i| Value::Int(i),
    i32 => |i| Value::Int(i.into()),
    u32 => |i| Value::Int(i.into()),
    u16 => |i| Value::Int(i.into()),
    f64 => |f| Value::Float(f),
    &str => |s| Value::String(Str::new(s)),
    &String => |s| Value::String(Str::new(s)),
    String => |s| Value::String(Str::from(s)),
    Str => |s| Value::String(s),
    Map => |m| Value::Object(m),
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Self::Array(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(v: Option<T>) -> Self {
        v.map(Into::into).unwrap_or_default()
    }
}

impl From<serde_json::Value> for Value {
    fn from(v: serde_json::Value) -> Self {
        match v {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(b) => Self::Bool(b),
            // `as_i64` first: integers stay exact, anything beyond becomes a float, as in Go's decoder.
            serde_json::Value::Number(n) => match n.as_i64() {
                Some(i) => Self::Int(i),
                None => Self::Float(n.as_f64().unwrap_or_default()),
            },
            serde_json::Value::String(s) => Self::String(s.into()),
            serde_json::Value::Array(a) => Self::Array(a.into_iter().map(Into::into).collect()),
            serde_json::Value::Object(o) => Self::Object(o.into_iter().collect()),
        }
    }
}

impl From<Value> for serde_json::Value {
    fn from(v: Value) -> Self {
        match v {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(b),
            Value::Int(i) => i.into(),
            Value::Float(f) => f.into(),
            Value::String(s) => Self::String(s.into()),
            Value::Array(a) => Self::Array(a.into_iter().map(Into::into).collect()),
            Value::Object(o) => Self::Object(o.into_iter().map(|(k, v)| (k.into(), v.into())).collect()),
        }
    }
}

impl serde::Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => s.serialize_unit(),
            Self::Bool(b) => s.serialize_bool(*b),
            Self::Int(i) => s.serialize_i64(*i),
            Self::Float(f) => s.serialize_f64(*f),
            Self::String(v) => s.serialize_str(v),
            Self::Array(a) => s.collect_seq(a),
            Self::Object(m) => s.collect_map(m.iter()),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Value {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // By way of serde_json's tree: only used for configuration, never for request bodies.
        serde_json::Value::deserialize(d).map(Into::into)
    }
}
