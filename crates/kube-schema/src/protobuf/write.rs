//! Protobuf encoder: trees to wire messages. Start at [`message`].

use super::{SCHEMA, is_wrapped, order};
use crate::{Emit, Field, SchemaOr, Ty, TypeDef, by_name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use torana_apimachinery::codec::json;
use torana_apimachinery::codec::protobuf::{put_bytes, put_double, put_message, put_number};
use torana_apimachinery::time;
use torana_apimachinery::value::{Map, Value};

/// Appends the encoding of an object. Members of a wrong type, which a normalized object does not have, are
/// written as zero values.
pub fn message(def: &'static TypeDef, object: &Value, out: &mut Vec<u8>) {
    static NONE: Map = Map::new();
    fields(
        def,
        order::fields_by_number(def),
        0,
        object.as_object().unwrap_or(&NONE),
        out,
    );
}

/// Writes the fields with these indexes, all of which are in the same embedded messages above `level`.
fn fields(def: &'static TypeDef, places: &[u8], level: usize, object: &Map, out: &mut Vec<u8>) {
    let mut i = 0;
    while let Some(&place) = places.get(i) {
        let f = &def.fields[usize::from(place)];
        let (number, itself) = order::number(f, level);
        if itself {
            // Number 0: the message lacks the field.
            if number != 0 {
                field(def, f, object.get(f.name), out);
            }
            i += 1;
            continue;
        }
        let embedded = |p: &&u8| order::number(&def.fields[usize::from(**p)], level) == (number, false);
        // Fields of one embedded message are adjacent in the order.
        let run = places[i..].iter().take_while(embedded).count();
        // Also if all of its fields are unset: upstream writes an embedded struct even if it is empty.
        put_message(out, number, |out| {
            fields(def, &places[i..i + run], level + 1, object, out);
        });
        i += run;
    }
}

fn field(def: &TypeDef, f: &Field, v: Option<&Value>, out: &mut Vec<u8>) {
    let v = match v {
        Some(Value::Null) | None => return absent(f, out),
        Some(v) => v,
    };
    match (f.ty, v) {
        (Ty::List(t), Value::Array(items)) if is_wrapped(def, f) => {
            put_message(out, f.tag, |out| items.iter().for_each(|v| value(*t, 1, v, out)));
        }
        (Ty::List(t), Value::Array(items)) => items.iter().for_each(|v| value(*t, f.tag, v, out)),
        (Ty::Map(t), Value::Object(map)) => {
            // Maps are sorted by key, so the encoding is deterministic.
            for (key, v) in map.iter() {
                put_message(out, f.tag, |out| {
                    put_bytes(out, 1, key.as_bytes());
                    value(*t, 2, v, out);
                });
            }
        }
        (Ty::List(_) | Ty::Map(_), _) => {}
        (ty, v) => value(ty, f.tag, v, out),
    }
}

/// How Go's generated marshallers write an unset field: nothing for pointers, lists and maps, else the
/// zero value.
fn absent(f: &Field, out: &mut Vec<u8>) {
    let is_value = match f.ty {
        Ty::List(_) | Ty::Map(_) | Ty::Bytes | Ty::SchemaOr(_) => false,
        // JSON writes these as null although they are not pointers; protobuf writes an empty message.
        Ty::Time | Ty::MicroTime | Ty::Any(_) => f.emit != Emit::OmitNil,
        _ => matches!(f.emit, Emit::OmitEmpty | Emit::Zero),
    };
    if is_value {
        value(f.ty, f.tag, &Value::Null, out);
    }
}

/// Writes one value; null stands for the zero value.
fn value(ty: Ty, tag: u8, v: &Value, out: &mut Vec<u8>) {
    match ty {
        Ty::String => put_bytes(out, tag, v.as_str().unwrap_or("").as_bytes()),
        Ty::Int32 | Ty::Int64 => put_number(out, tag, v.as_i64().unwrap_or(0) as u64),
        Ty::Bool => put_number(out, tag, u64::from(v.as_bool().unwrap_or(false))),
        Ty::Float => put_double(out, tag, v.as_f64().unwrap_or(0.0)),
        // Valid after normalising; what is not is written empty rather than failing the write.
        Ty::Bytes => put_bytes(out, tag, &STANDARD.decode(v.as_str().unwrap_or("")).unwrap_or_default()),
        Ty::Time => put_message(out, tag, |out| timestamp(time::parse(v.as_str().unwrap_or("")), out)),
        Ty::MicroTime => put_message(out, tag, |out| {
            timestamp(time::parse_micro(v.as_str().unwrap_or("")), out)
        }),
        Ty::Quantity => put_message(out, tag, |out| put_bytes(out, 1, v.as_str().unwrap_or("0").as_bytes())),
        Ty::IntOrString => put_message(out, tag, |out| {
            // All three fields, whichever is in use: none of them is a pointer in Go.
            put_number(out, 1, u64::from(v.as_str().is_some()));
            put_number(out, 2, v.as_i64().unwrap_or(0) as u64);
            put_bytes(out, 3, v.as_str().unwrap_or("").as_bytes());
        }),
        Ty::Any(_) => put_message(out, tag, |out| {
            // An absent value is an empty message: Go leaves the raw bytes nil.
            if !v.is_null() {
                put_message(out, 1, |out| json::encode(v, out));
            }
        }),
        Ty::SchemaOr(or) => put_message(out, tag, |out| schema_or(or, v, out)),
        Ty::Struct(r) => put_message(out, tag, |out| message(r.get(), v, out)),
        // Protobuf has no nested lists: an inner list is wrapped in a message.
        Ty::List(t) => put_message(out, tag, |out| v.items().iter().for_each(|v| value(*t, 1, v, out))),
        // No kind has a map inside a list or map.
        Ty::Map(_) => {}
    }
}

fn timestamp(t: Result<::time::OffsetDateTime, time::Error>, out: &mut Vec<u8>) {
    if let Ok(t) = t {
        put_number(out, 1, t.unix_timestamp() as u64);
        // Kubernetes times have microseconds at most.
        put_number(out, 2, u64::from(t.microsecond()) * 1000);
    }
}

fn schema_or(or: SchemaOr, v: &Value, out: &mut Vec<u8>) {
    let schema = by_name(SCHEMA).expect("the table has it");
    let has_schema = matches!(v, Value::Object(_));
    if or == SchemaOr::Bool {
        // Upstream sets `allows` together with a schema.
        put_number(out, 1, u64::from(has_schema || v.as_bool().unwrap_or(false)));
    }
    let (of_schema, of_items) = if or == SchemaOr::Bool { (2, 0) } else { (1, 2) };
    if has_schema {
        put_message(out, of_schema, |out| message(schema, v, out));
    }
    for item in v.items() {
        match or {
            SchemaOr::Array => put_message(out, of_items, |out| message(schema, item, out)),
            _ => put_bytes(out, of_items, item.as_str().unwrap_or("").as_bytes()),
        }
    }
}
