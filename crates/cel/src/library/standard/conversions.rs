//! The conversions of the standard library: `int()`, `string()` and so on.

use super::{int, overflow, stamp, uint};
use crate::time_value::{Stamp, duration_text, parse_duration};
use crate::value::{Out, Val, error, no_overload};

fn unconvertible<'a>(from: &str, to: &str) -> Out<'a> {
    error(format!("type conversion error from '{from}' to '{to}'"))
}

pub(super) fn to_bool<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match &args[0] {
        Val::Bool(b) => Ok(Val::Bool(*b)),
        Val::String(s) => match &**s {
            // The spellings of Go's `strconv.ParseBool`.
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => unconvertible("string", "bool"),
        },
        _ => no_overload(),
    }
}

pub(super) fn to_bytes<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match &args[0] {
        Val::Bytes(b) => Ok(Val::Bytes(b.clone())),
        Val::String(s) => Ok(Val::Bytes(s.as_bytes().into())),
        _ => no_overload(),
    }
}

pub(super) fn to_double<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    Ok(Val::Double(match &args[0] {
        Val::Double(f) => *f,
        Val::Int(n) => *n as f64,
        Val::Uint(n) => *n as f64,
        Val::String(s) => match s.parse() {
            Ok(f) => f,
            Err(_) => return unconvertible("string", "double"),
        },
        _ => return no_overload(),
    }))
}

pub(super) fn to_int<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match &args[0] {
        Val::Int(n) => Ok(Val::Int(*n)),
        Val::Uint(n) => int(i64::try_from(*n).ok()),
        // The bounds themselves are excluded: as doubles they are not exact.
        Val::Double(f) if *f > i64::MIN as f64 && *f < i64::MAX as f64 => Ok(Val::Int(*f as i64)),
        Val::Double(_) => overflow("integer"),
        Val::Duration(d) => Ok(Val::Int(*d)),
        Val::Timestamp(t) => Ok(Val::Int(t.seconds())),
        Val::String(s) => s
            .parse()
            .map_or_else(|_| unconvertible("string", "int"), |n| Ok(Val::Int(n))),
        _ => no_overload(),
    }
}

pub(super) fn to_uint<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match &args[0] {
        Val::Uint(n) => Ok(Val::Uint(*n)),
        Val::Int(n) => uint(u64::try_from(*n).ok()),
        Val::Double(f) if *f >= 0.0 && *f < u64::MAX as f64 => Ok(Val::Uint(*f as u64)),
        Val::Double(_) => overflow("unsigned integer"),
        // Rust accepts a plus sign here, Go does not.
        Val::String(s) if s.starts_with('+') => unconvertible("string", "uint"),
        Val::String(s) => s
            .parse()
            .map_or_else(|_| unconvertible("string", "uint"), |n| Ok(Val::Uint(n))),
        _ => no_overload(),
    }
}

/// A double as Go's `%g` writes it.
fn double_text(f: f64) -> String {
    if f.is_nan() {
        return "NaN".to_owned();
    }
    if f.is_infinite() {
        return if f > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let exponential = format!("{f:e}");
    let exponent: i32 = exponential
        .split_once('e')
        .and_then(|(_, e)| e.parse().ok())
        .unwrap_or(0);
    // Go's `%g` with the shortest digits switches to exponents here.
    if f == 0.0 || (-4..6).contains(&exponent) {
        return format!("{f}");
    }
    let (mantissa, _) = exponential.split_once('e').unwrap_or((&exponential, ""));
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

pub(crate) fn to_string<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    Ok(match &args[0] {
        v @ Val::String(_) => v.clone(),
        Val::Bool(b) => b.to_string().into(),
        Val::Bytes(b) => match std::str::from_utf8(b) {
            Ok(s) => s.into(),
            Err(_) => return error("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Val::Double(f) => double_text(*f).into(),
        Val::Duration(d) => duration_text(*d).into(),
        Val::Int(n) => n.to_string().into(),
        Val::Uint(n) => n.to_string().into(),
        Val::Timestamp(t) => t.text().into(),
        Val::Net(net) => net.to_string().into(),
        _ => return no_overload(),
    })
}

pub(super) fn to_duration<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match &args[0] {
        Val::Duration(d) => Ok(Val::Duration(*d)),
        Val::Int(n) => Ok(Val::Duration(*n)),
        Val::String(s) => match parse_duration(s) {
            Some(d) => Ok(Val::Duration(d)),
            None => unconvertible("string", "google.protobuf.Duration"),
        },
        _ => no_overload(),
    }
}

pub(super) fn to_timestamp<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match &args[0] {
        Val::Timestamp(t) => Ok(Val::Timestamp(*t)),
        Val::Int(n) => stamp(Stamp::new(*n, 0)),
        Val::String(s) => match Stamp::parse(s) {
            Some(t) => Ok(Val::Timestamp(t)),
            None => unconvertible("string", "google.protobuf.Timestamp"),
        },
        _ => no_overload(),
    }
}
