//! Canonical forms of scalars that Go unmarshals from text: base64, times, quantities, `IntOrString`.

use super::DecodeError;
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use torana_apimachinery::codec::json;
use torana_apimachinery::patch::json_type;
use torana_apimachinery::quantity::{self, ParseError};
use torana_apimachinery::time;
use torana_apimachinery::value::{Str, Value};

/// Go's `base64.StdEncoding`: padding is required, non-zero trailing bits are accepted.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Decodes base64 as Go's `encoding/json` does for `[]byte`: line breaks are skipped.
///
/// # Errors
/// Go's message.
pub fn base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    let decoded = match text.contains(['\r', '\n']) {
        true => BASE64.decode(text.replace(['\r', '\n'], "")),
        false => BASE64.decode(text),
    };
    decoded.map_err(|_| {
        let at = illegal_at(text.as_bytes());
        DecodeError(format!("illegal base64 data at input byte {at}"))
    })
}

/// The offset at which Go's decoder refuses a text that is not base64.
fn illegal_at(text: &[u8]) -> usize {
    let mut rest = text
        .iter()
        .enumerate()
        .filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    // Characters of the current group of four.
    let mut digits = 0;
    while let Some((at, byte)) = rest.next() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => digits = (digits + 1) % 4,
            b'=' if digits >= 2 => {
                if digits == 2 {
                    match rest.next() {
                        Some((_, b'=')) => {}
                        // Go names the byte before the one that should be padding, too.
                        Some((next, _)) => return next - 1,
                        None => return text.len(),
                    }
                }
                // Nothing may follow the padding.
                return rest.next().map_or(text.len(), |(next, _)| next);
            }
            _ => return at,
        }
    }
    text.len() - digits
}

pub(super) fn bytes(s: &mut Str) -> Result<(), DecodeError> {
    let again = BASE64.encode(base64(s)?);
    // Rewritten only if it differs, to keep the string's allocation.
    if *s != again {
        *s = again.into();
    }
    Ok(())
}

/// The base64 of a list of bytes, which Go decodes as well as text; `None` if an item is not a byte.
pub(super) fn byte_array(items: &[Value]) -> Option<Value> {
    let byte = |item: &Value| match item {
        Value::Int(n) => u8::try_from(*n).ok(),
        // As Go decodes null into a byte: its zero value.
        Value::Null => Some(0),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = items.iter().map(byte).collect();
    bytes.map(|bytes| BASE64.encode(bytes).into())
}

pub(super) fn time(s: &mut Str) -> Result<(), DecodeError> {
    let t = time::parse(s).map_err(|e| DecodeError(e.to_string()))?;
    // `YYYY-MM-DDTHH:MM:SSZ` is already canonical.
    if !(s.len() == 20 && s.ends_with('Z')) {
        *s = time::format(t).into();
    }
    Ok(())
}

pub(super) fn micro_time(s: &mut Str) -> Result<(), DecodeError> {
    let t = time::parse_micro(s).map_err(|e| DecodeError(e.to_string()))?;
    // Six digits are required on input, so only the zone, an hour of one digit and the comma can differ.
    if !(s.len() == 27 && s.ends_with('Z') && !s.contains(',')) {
        *s = time::format_micro(t).into();
    }
    Ok(())
}

/// Whether a canonical time is the zero value of Go's `time.Time`.
pub(super) fn is_zero_time(text: &str) -> bool {
    matches!(text, "0001-01-01T00:00:00Z" | "0001-01-01T00:00:00.000000Z")
}

pub(super) fn quantity(v: &mut Value) -> Result<(), DecodeError> {
    canonical(v, quantity::canonicalize)
}

/// A value of a `ResourceList`.
pub(super) fn amount(v: &mut Value) -> Result<(), DecodeError> {
    canonical(v, quantity::canonicalize_amount)
}

fn canonical(v: &mut Value, form: impl Fn(&str) -> Result<String, ParseError>) -> Result<(), DecodeError> {
    // `Quantity.UnmarshalJSON` parses the raw JSON text of any value; only strings and numbers can succeed.
    let canonical = match &*v {
        Value::String(s) if is_plain(s) => return Ok(()),
        Value::String(s) => form(s),
        other => form(&json::to_string(other)),
    };
    *v = Value::from(canonical.map_err(|e| DecodeError(e.to_string()))?);
    Ok(())
}

/// Fast path: certainly canonical. Up to 15 digits without a leading or trailing 0, and an optional decimal
/// SI suffix.
fn is_plain(s: &str) -> bool {
    let digits = s.strip_suffix(['m', 'k', 'M', 'G']).unwrap_or(s);
    (1..=15).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && !digits.starts_with('0')
        && !digits.ends_with('0')
}

pub(super) fn int_or_string(v: &Value) -> Result<(), DecodeError> {
    let text = match v {
        Value::String(_) => return Ok(()),
        Value::Int(i) if i32::try_from(*i).is_ok() => return Ok(()),
        Value::Int(_) | Value::Float(_) => format!("number {}", json::to_string(v)),
        other => json_type(other).to_owned(),
    };
    Err(DecodeError(format!(
        "json: cannot unmarshal {text} into Go value of type int32"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_refused_where_gos_decoder_stops() {
        for (text, at) in [
            ("d", 0),
            ("abcde", 4),
            ("a!", 1),
            ("a=", 1),
            ("dg=", 3),
            ("dg=x", 2),
            ("dg==dg==", 4),
            ("dgE=x", 4),
            // Line breaks are skipped, but count.
            ("a\nb!", 3),
            ("ab\ncd\ne", 6),
            ("dg==\nx", 5),
        ] {
            let refused = base64(text).map_err(|e| e.0);
            assert_eq!(
                refused,
                Err(format!("illegal base64 data at input byte {at}")),
                "{text:?}"
            );
        }
        assert_eq!(base64("d\ng=\r=\n").unwrap(), b"v");
    }
}
