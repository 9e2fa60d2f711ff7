//! Protobuf decoder: wire messages to trees. Start at [`message_with_budget`].

use super::{SCHEMA, is_wrapped, order};
use crate::decode::DecodeError;
use crate::{Emit, Field, SchemaOr, Ty, TypeDef, by_name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use torana_apimachinery::codec::budget::{DecodeBudget, PAIR, weight};
use torana_apimachinery::codec::json;
use torana_apimachinery::codec::protobuf::{Payload, Reader, WireError};
use torana_apimachinery::time;
use torana_apimachinery::value::{Map, Str, Value};

/// Maximum nesting depth of messages. Only JSON schemas are recursive and can reach it.
const MAX_DEPTH: usize = 200;

type Result<T> = std::result::Result<T, DecodeError>;

/// Decodes a message into the tree that its JSON form would give, without empty `omitempty` values. All types
/// are correct afterwards; always-written fields are added by [`normalize`](crate::decode::normalize).
///
/// # Errors
/// The message is malformed or nests too deep.
pub fn message(def: &'static TypeDef, raw: &[u8]) -> Result<Value> {
    message_with_budget(def, raw, &mut DecodeBudget::unlimited())
}

/// As [`message`], with a memory budget: an empty message in a list takes two bytes on the wire and far more
/// in the tree.
///
/// # Errors
/// As of [`message`], and if the budget is exhausted.
pub fn message_with_budget(def: &'static TypeDef, raw: &[u8], budget: &mut DecodeBudget) -> Result<Value> {
    struct_at(def, raw, (0, budget))
}

/// Nesting depth and remaining memory budget.
type Cx<'b> = (usize, &'b mut DecodeBudget);

fn struct_at(def: &'static TypeDef, raw: &[u8], (depth, budget): Cx<'_>) -> Result<Value> {
    if depth > MAX_DEPTH {
        return Err(DecodeError("exceeded max depth".into()));
    }
    // Ends here if the request was abandoned.
    budget.checkpoint();
    let mut parts = Parts::default();
    // Level 0: the message itself; embedded messages are deeper levels of the same object.
    parts.fields(def, order::fields_by_number(def), 0, raw, (depth, budget))?;
    // Accounted per message, before the object is built from its parts.
    budget.take(parts.values.len().saturating_add(parts.maps.len()) * PAIR)?;
    Ok(parts.into_object(def))
}

impl From<WireError> for DecodeError {
    fn from(e: WireError) -> Self {
        Self(e.to_string())
    }
}

/// An object under construction, by field index. Fields are sorted by name, so sorting the indexes sorts the
/// keys.
#[derive(Default)]
struct Parts {
    values: Vec<(u8, Value)>,
    /// Map entries in wire order, sorted once at the end: inserting each in place would be quadratic in the
    /// worst case.
    maps: Vec<(u8, Vec<(Str, Value)>)>,
}

impl Parts {
    fn fields(
        &mut self,
        def: &'static TypeDef,
        places: &'static [u8],
        level: usize,
        raw: &[u8],
        (depth, budget): Cx<'_>,
    ) -> Result<()> {
        let mut reader = Reader::new(raw);
        // Encoders write fields by number, so the search resumes at the last hit.
        let mut at = 0;
        while let Some((wanted, payload)) = reader.next()? {
            let is_it = |p: &u8| u32::from(order::number(&def.fields[usize::from(*p)], level).0) == wanted;
            let found = places[at..].iter().position(is_it).map(|i| at + i);
            // Unknown fields are skipped, whatever the field validation mode.
            let Some(found) = found.or_else(|| places[..at].iter().position(is_it)) else {
                continue;
            };
            at = found;
            let place = places[at];
            let f = &def.fields[usize::from(place)];
            if order::number(f, level).1 {
                self.field(def, f, place, payload, (depth, budget))?;
                continue;
            }
            // An embedded message must be length-delimited.
            let Payload::Bytes(raw) = payload else {
                return Err(wrong_wire(payload, f.name));
            };
            // Fields of one embedded message are adjacent in the order.
            let run = places[at..].iter().take_while(|p| is_it(p)).count();
            self.fields(def, &places[at..at + run], level + 1, raw, (depth, budget))?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        def: &'static TypeDef,
        f: &'static Field,
        place: u8,
        payload: Payload<'_>,
        (depth, budget): Cx<'_>,
    ) -> Result<()> {
        match (f.ty, payload) {
            (Ty::List(t), Payload::Bytes(raw)) if is_wrapped(def, f) => {
                for item in wrapped(*t, f, raw, (depth, budget))? {
                    budget.push(self.list(place), item)?;
                }
            }
            // Packed encoding, which decoders must accept although upstream's encoder never produces it.
            (Ty::List(Ty::Int32 | Ty::Int64 | Ty::Bool), Payload::Bytes(raw)) => {
                let Ty::List(t) = f.ty else { return Ok(()) };
                let mut packed = Reader::new(raw);
                let list = self.list(place);
                while let Some(n) = packed.packed()? {
                    let item = value(*t, f, Payload::Varint(n), (depth, budget))?;
                    budget.push(list, item)?;
                }
            }
            (Ty::List(Ty::Float), Payload::Bytes(raw)) => {
                let mut packed = Reader::new(raw);
                let list = self.list(place);
                while let Some(n) = packed.packed_double()? {
                    let item = value(Ty::Float, f, Payload::Fixed64(n), (depth, budget))?;
                    budget.push(list, item)?;
                }
            }
            (Ty::List(t), _) => {
                let item = value(*t, f, payload, (depth, budget))?;
                budget.push(self.list(place), item)?;
            }
            (Ty::Map(t), Payload::Bytes(raw)) => {
                let pair = entry(*t, f, raw, (depth, budget))?;
                // Linear: a message has few maps.
                match self.maps.iter_mut().find(|(p, _)| *p == place) {
                    Some((_, pairs)) => budget.push(pairs, pair)?,
                    None => {
                        budget.take(PAIR)?;
                        self.maps.push((place, vec![pair]));
                    }
                }
            }
            (Ty::Map(_), _) => return Err(wrong_wire(payload, f.name)),
            (ty, _) => {
                let v = value(ty, f, payload, (depth, budget))?;
                let old = self.values.iter().rposition(|(p, _)| *p == place);
                // As in Go, the last occurrence of a singular field wins; an empty one resets it.
                let leave_out = v.is_null() || f.emit == Emit::OmitEmpty && v.is_empty_value();
                match (old, leave_out) {
                    // Order does not matter here, because everything is sorted at the end.
                    (Some(i), true) => {
                        self.values.swap_remove(i);
                    }
                    (Some(i), false) => self.values[i].1 = v,
                    (None, true) => {}
                    (None, false) => self.values.push((place, v)),
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, place: u8) -> &mut Vec<Value> {
        // From the end: items of one list follow each other.
        let i = match self.values.iter().rposition(|(p, _)| *p == place) {
            Some(i) => i,
            None => {
                self.values.push((place, Value::Array(Vec::new())));
                self.values.len() - 1
            }
        };
        // Only list fields get here, and their values are created right above.
        self.values[i].1.as_array_mut().expect("places of lists hold lists")
    }

    fn into_object(self, def: &'static TypeDef) -> Value {
        let mut values = self.values;
        for (place, pairs) in self.maps {
            values.push((place, Value::Object(Map::from_pairs(pairs))));
        }
        values.sort_unstable_by_key(|(p, _)| *p);
        let pairs = values
            .into_iter()
            .map(|(p, v)| (Str::const_new(def.fields[usize::from(p)].name), v));
        Value::Object(Map::from_pairs(pairs.collect()))
    }
}

fn wrong_wire(payload: Payload<'_>, field: &str) -> DecodeError {
    let wire = match payload {
        Payload::Varint(_) => 0,
        Payload::Fixed64(_) => 1,
        Payload::Bytes(_) => 2,
        Payload::Group => 3,
        Payload::Fixed32(_) => 5,
    };
    DecodeError(format!("proto: wrong wireType = {wire} for field {field}"))
}

/// Invalid UTF-8 is replaced, as Go does when encoding JSON.
fn text(raw: &[u8]) -> Str {
    match std::str::from_utf8(raw) {
        Ok(s) => Str::new(s),
        Err(_) => Str::from(String::from_utf8_lossy(raw)),
    }
}

/// As [`text`], charged to the budget.
fn bounded(raw: &[u8], budget: &mut DecodeBudget) -> Result<Str> {
    budget.string(raw.len())?;
    Ok(text(raw))
}

/// A map entry: field 1 is the key, field 2 the value. Either may be missing, which means its zero value.
fn entry(ty: Ty, f: &Field, raw: &[u8], (depth, budget): Cx<'_>) -> Result<(Str, Value)> {
    let mut reader = Reader::new(raw);
    let (mut key, mut v) = (Str::default(), None);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, Payload::Bytes(raw)) => key = bounded(raw, budget)?,
            (2, _) => v = Some(value(ty, f, payload, (depth, budget))?),
            _ => {}
        }
    }
    let v = match (v, ty) {
        (Some(v), _) => v,
        (None, Ty::Bytes) => Value::from(""),
        (None, Ty::List(_)) => Value::Array(Vec::new()),
        (None, _) => crate::decode::zero(ty),
    };
    Ok((key, v))
}

/// A message with a single repeated field 1.
fn wrapped(ty: Ty, f: &Field, raw: &[u8], (depth, budget): Cx<'_>) -> Result<Vec<Value>> {
    let mut reader = Reader::new(raw);
    let mut out = Vec::new();
    while let Some((number, payload)) = reader.next()? {
        if number == 1 {
            let item = value(ty, f, payload, (depth, budget))?;
            budget.push(&mut out, item)?;
        }
    }
    Ok(out)
}

fn value(ty: Ty, f: &Field, payload: Payload<'_>, (depth, budget): Cx<'_>) -> Result<Value> {
    Ok(match (ty, payload) {
        (Ty::String, Payload::Bytes(raw)) => Value::String(bounded(raw, budget)?),
        // Truncates to the low 32 bits, as Go's conversion does.
        (Ty::Int32, Payload::Varint(n)) => Value::Int(i64::from(n as i32)),
        (Ty::Int64, Payload::Varint(n)) => Value::Int(n as i64),
        (Ty::Bool, Payload::Varint(n)) => Value::Bool(n != 0),
        (Ty::Float, Payload::Fixed64(bits)) => double(bits)?,
        (Ty::Bytes, Payload::Bytes(raw)) => {
            budget.string(raw.len().div_ceil(3) * 4)?;
            Value::from(STANDARD.encode(raw))
        }
        (Ty::Time, Payload::Bytes(raw)) => timestamp(raw, false)?,
        (Ty::MicroTime, Payload::Bytes(raw)) => timestamp(raw, true)?,
        (Ty::Quantity, Payload::Bytes(raw)) => match last_bytes(raw, 1)? {
            Some(raw) => Value::String(bounded(raw, budget)?),
            None => Value::from("0"),
        },
        (Ty::IntOrString, Payload::Bytes(raw)) => int_or_string(raw)?,
        (Ty::Any(_), Payload::Bytes(raw)) => match last_bytes(raw, 1)? {
            None | Some([]) => Value::Null,
            Some(raw) => {
                let v = json::decode(raw).map_err(|e| DecodeError(e.to_string()))?;
                budget.take(weight(&v))?;
                v
            }
        },
        (Ty::SchemaOr(or), Payload::Bytes(raw)) => schema_or(or, raw, (depth, budget))?,
        (Ty::Struct(r), Payload::Bytes(raw)) => struct_at(r.get(), raw, (depth + 1, budget))?,
        (Ty::List(t), Payload::Bytes(raw)) => Value::Array(wrapped(*t, f, raw, (depth, budget))?),
        _ => return Err(wrong_wire(payload, f.name)),
    })
}

/// JSON can express neither NaN nor infinities, and the tree holds whole numbers as integers. Above 2^53
/// doubles no longer represent every integer, so those stay floats.
fn double(bits: u64) -> Result<Value> {
    let d = f64::from_bits(bits);
    if !d.is_finite() {
        return Err(DecodeError(format!("json: unsupported value: {d}")));
    }
    // Below 2^53 every whole double is an exact i64. Negative zero has no integer form.
    let whole = d.trunc() == d && d.abs() < 9_007_199_254_740_992.0 && !(d == 0.0 && d.is_sign_negative());
    Ok(if whole { Value::Int(d as i64) } else { Value::Float(d) })
}

/// The length-delimited field with this number; the last occurrence wins.
fn last_bytes(raw: &[u8], wanted: u32) -> Result<Option<&[u8]>> {
    let mut reader = Reader::new(raw);
    let mut out = None;
    while let Some((number, payload)) = reader.next()? {
        match payload {
            Payload::Bytes(raw) if number == wanted => out = Some(raw),
            _ => {}
        }
    }
    Ok(out)
}

/// Null for a zero timestamp, which is how Go's generated types encode an unset time.
fn timestamp(raw: &[u8], micro: bool) -> Result<Value> {
    let mut reader = Reader::new(raw);
    let (mut seconds, mut nanos) = (0i64, 0i32);
    while let Some((number, payload)) = reader.next()? {
        match (number, payload) {
            (1, Payload::Varint(n)) => seconds = n as i64,
            (2, Payload::Varint(n)) => nanos = n as i32,
            _ => {}
        }
    }
    if (seconds, nanos) == (0, 0) {
        return Ok(Value::Null);
    }
    let t = ::time::OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|t| t.checked_add(::time::Duration::nanoseconds(i64::from(nanos))))
        .filter(|t| t.year() >= 0)
        .ok_or_else(|| DecodeError("json: error calling MarshalJSON for type v1.Time: year outside of range".into()))?;
    Ok(Value::from(if micro { time::format_micro(t) } else { time::format(t) }))
}

fn int_or_string(raw: &[u8]) -> Result<Value> {
    let mut reader = Reader::new(raw);
    let (mut kind, mut number, mut string) = (0u64, 0i32, Str::default());
    while let Some((n, payload)) = reader.next()? {
        match (n, payload) {
            (1, Payload::Varint(n)) => kind = n,
            (2, Payload::Varint(n)) => number = n as i32,
            (3, Payload::Bytes(raw)) => string = text(raw),
            _ => {}
        }
    }
    // Upstream's `intstr.Type`: 0 is an integer.
    Ok(if kind == 0 {
        Value::Int(i64::from(number))
    } else {
        Value::String(string)
    })
}

fn schema_or(or: SchemaOr, raw: &[u8], (depth, budget): Cx<'_>) -> Result<Value> {
    let schema = by_name(SCHEMA).expect("the table has it");
    // The numbers differ by type: JSONSchemaPropsOrBool has `allows` first.
    let (of_schema, of_items) = if or == SchemaOr::Bool { (2, 0) } else { (1, 2) };
    let mut reader = Reader::new(raw);
    let (mut one, mut items, mut allows) = (None, Vec::new(), false);
    while let Some((number, payload)) = reader.next()? {
        match payload {
            Payload::Bytes(raw) if number == of_schema => one = Some(struct_at(schema, raw, (depth + 1, budget))?),
            Payload::Bytes(raw) if number == of_items && or == SchemaOr::Array => {
                let item = struct_at(schema, raw, (depth + 1, budget))?;
                budget.push(&mut items, item)?;
            }
            Payload::Bytes(raw) if number == of_items => {
                let item = Value::String(bounded(raw, budget)?);
                budget.push(&mut items, item)?;
            }
            Payload::Varint(n) if number == 1 && or == SchemaOr::Bool => allows = n != 0,
            _ => {}
        }
    }
    Ok(match (one, or) {
        _ if !items.is_empty() => Value::Array(items),
        (Some(schema), _) => schema,
        (None, SchemaOr::Bool) => Value::Bool(allows),
        (None, _) => Value::Null,
    })
}
