//! Protobuf without a schema: enough to compare messages, and to write the few that cases send.

use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The bytes in front of Kubernetes' envelope.
const MAGIC: &[u8] = b"k8s\0";

/// A message that cannot be decoded.
#[derive(Debug)]
pub(crate) struct Malformed;

/// One field of a message.
enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed(usize, &'a [u8]),
}

fn varint(buf: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    let (mut n, mut shift) = (0u64, 0u32);
    loop {
        let b = *buf.get(*at).ok_or(Malformed)?;
        *at += 1;
        n |= u64::from(b & 127).checked_shl(shift).ok_or(Malformed)?;
        if b < 128 {
            return Ok(n);
        }
        shift += 7;
    }
}

fn fields(buf: &[u8]) -> Result<Vec<(u64, Field<'_>)>, Malformed> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < buf.len() {
        let tag = varint(buf, &mut at)?;
        let take = |n: usize, at: &mut usize| {
            let end = at.checked_add(n).filter(|e| *e <= buf.len()).ok_or(Malformed)?;
            let part = &buf[*at..end];
            *at = end;
            Ok(part)
        };
        let field = match tag & 7 {
            0 => Field::Varint(varint(buf, &mut at)?),
            1 => Field::Fixed(64, take(8, &mut at)?),
            2 => {
                let n = usize::try_from(varint(buf, &mut at)?).map_err(|_| Malformed)?;
                Field::Bytes(take(n, &mut at)?)
            }
            5 => Field::Fixed(32, take(4, &mut at)?),
            _ => return Err(Malformed),
        };
        match tag >> 3 {
            0 => return Err(Malformed),
            number => out.push((number, field)),
        }
    }
    Ok(out)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// `{field number: [values]}`
fn message(buf: &[u8]) -> Result<Value, Malformed> {
    let mut out = Map::new();
    for (number, field) in fields(buf)? {
        let value = match field {
            Field::Varint(n) => json!(n),
            Field::Bytes(b) => bytes(b),
            Field::Fixed(bits, b) => json!(format!("fixed{bits}:{}", hex(b))),
        };
        let values = out.entry(number.to_string()).or_insert_with(|| json!([]));
        values.as_array_mut().expect("it was made as a list").push(value);
    }
    Ok(Value::Object(out))
}

/// Text if it can be text, otherwise a message if it can be one.
pub(crate) fn bytes(b: &[u8]) -> Value {
    if b.starts_with(MAGIC) {
        return enveloped(b).unwrap_or_else(|_| json!({"undecodable": hex(b)}));
    }
    let text = std::str::from_utf8(b).ok();
    if let Some(text) = text.filter(|t| !t.chars().any(|c| c.is_control() || (c.is_whitespace() && c != ' '))) {
        return json!(text);
    }
    match (message(b), text) {
        (Ok(message), _) => message,
        (Err(_), Some(text)) => json!(text),
        (Err(_), None) => json!(format!("hex:{}", hex(b))),
    }
}

/// An object in Kubernetes' envelope, `runtime.Unknown`.
pub(crate) fn enveloped(body: &[u8]) -> Result<Value, Malformed> {
    let Some(envelope) = body.strip_prefix(MAGIC) else {
        return Ok(json!({"badMagic": hex(&body[..body.len().min(4)])}));
    };
    let mut parts: [&[u8]; 5] = [&[]; 5];
    for (number, field) in fields(envelope)? {
        if let (Some(part), Field::Bytes(b)) = (parts.get_mut(number as usize), field) {
            *part = b;
        }
    }
    let of_type = |wanted: u64| {
        let found = fields(parts[1]).ok()?.into_iter().find(|(n, _)| *n == wanted)?;
        match found.1 {
            Field::Bytes(b) => Some(String::from_utf8_lossy(b).into_owned()),
            _ => None,
        }
    };
    let kind = of_type(2).unwrap_or_default();
    let mut object = message(parts[2]).unwrap_or_else(|_| json!("undecodable"));
    name_versions(&mut object, &kind);
    if kind.ends_with("List")
        && let Some(items) = object.get_mut("2").and_then(Value::as_array_mut)
    {
        items.iter_mut().for_each(|i| name_versions(i, ""));
    }
    Ok(json!({
        "magic": "k8s\\0",
        "apiVersion": of_type(1).unwrap_or_default(),
        "kind": kind,
        "contentEncoding": String::from_utf8_lossy(parts[3]),
        "contentType": String::from_utf8_lossy(parts[4]),
        "object": object,
    }))
}

/// Gives the resourceVersion in the metadata its name, so that it is normalised like those in JSON.
fn name_versions(object: &mut Value, kind: &str) {
    let is_list = kind.ends_with("List") || kind == "Table";
    let field = if is_list { "2" } else { "6" };
    let all = object.get_mut("1").and_then(Value::as_array_mut);
    for meta in all.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(values) = meta.remove(field) {
            let version = if is_list { json!("<rv>") } else { values[0].clone() };
            meta.insert("resourceVersion".to_owned(), version);
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n > 127 {
        out.push((n & 127) as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The message for `{field number: value or [values]}`.
fn encode_message(spec: &Value) -> Vec<u8> {
    let spec = spec.as_object().expect("a message is an object");
    let mut numbered: Vec<(u64, &Value)> = spec.iter().map(|(k, v)| (k.parse().unwrap(), v)).collect();
    numbered.sort_by_key(|(number, _)| *number);
    let mut out = Vec::new();
    for (number, values) in numbered {
        for value in values.as_array().map_or(std::slice::from_ref(values), Vec::as_slice) {
            match value {
                Value::String(s) => put_bytes(&mut out, number, s.as_bytes()),
                Value::Object(_) => put_bytes(&mut out, number, &encode_message(value)),
                other => {
                    put_varint(&mut out, number << 3);
                    put_varint(
                        &mut out,
                        other.as_u64().unwrap_or_else(|| u64::from(other == &json!(true))),
                    );
                }
            }
        }
    }
    out
}

/// The body for a case's `{apiVersion, kind, fields}`.
pub(crate) fn encode(spec: &Value) -> Vec<u8> {
    let of_type = encode_message(&json!({"1": spec["apiVersion"], "2": spec["kind"]}));
    let mut out = MAGIC.to_vec();
    put_bytes(&mut out, 1, &of_type);
    put_bytes(&mut out, 2, &encode_message(&spec["fields"]));
    out
}
