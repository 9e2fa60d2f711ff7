//! Response bodies as JSON values, with decoders that share nothing with the gateway's.

use crate::http::{Response, header};
use crate::protobuf;
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value, json};
use std::str::FromStr;

/// The body by its Content-Type.
pub(crate) fn body(response: &Response) -> Value {
    let data = &response.body[..];
    if data.is_empty() {
        return json!("");
    }
    let text = || String::from_utf8_lossy(data);
    let whole = header(&response.headers, "content-type").unwrap_or_default();
    match whole.split(';').next().unwrap_or_default().trim() {
        t if t == "application/json" || t.ends_with("+json") => {
            serde_json::from_slice(data).unwrap_or_else(|_| json!({"<invalid JSON>": text()}))
        }
        "application/yaml" => yaml(&text()).unwrap_or_else(|| json!({"<unparsed YAML>": text()})),
        "application/vnd.kubernetes.protobuf" => protobuf::enveloped(data)
            .unwrap_or_else(|_| json!({"<undecodable protobuf>": String::from_utf8_lossy(&data[..data.len().min(8)])})),
        t if t.starts_with("application/com.github.proto-openapi") => json!("<gnostic protobuf>"),
        t if t.starts_with("text/") || t.is_empty() => json!(text()),
        _ => json!({"bytes": data.len()}),
    }
}

/// The first document of a YAML text. Neither anchors nor tags, which API servers do not write.
fn yaml(text: &str) -> Option<Value> {
    /// An open collection, and the key that waits for its value.
    struct Open(Value, Option<String>);
    let mut stack: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let done = match event.ok()?.0 {
            Event::MappingStart(..) => {
                stack.push(Open(Value::Object(Map::new()), None));
                continue;
            }
            Event::SequenceStart(..) => {
                stack.push(Open(json!([]), None));
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => stack.pop()?.0,
            Event::Scalar(text, style, ..) => scalar(&text, style == ScalarStyle::Plain),
            Event::Alias(_) => return None,
            _ => continue,
        };
        let Some(Open(into, key)) = stack.last_mut() else {
            return Some(done);
        };
        match into {
            Value::Array(items) => items.push(done),
            Value::Object(members) => match key.take() {
                Some(key) => drop(members.insert(key, done)),
                None => *key = Some(done.as_str().map_or_else(|| done.to_string(), str::to_owned)),
            },
            _ => return None,
        }
    }
    None
}

fn scalar(text: &str, plain: bool) -> Value {
    match text {
        _ if !plain => json!(text),
        "" | "~" | "null" => Value::Null,
        "true" => json!(true),
        "false" => json!(false),
        // A text is a number exactly if it is one in JSON.
        _ => serde_json::Number::from_str(text).map_or_else(|_| json!(text), Value::Number),
    }
}
