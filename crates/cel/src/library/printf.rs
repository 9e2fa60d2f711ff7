//! `'%s has %d replicas'.format([name, n])`.

use super::standard::to_string;
use super::{Body::Strict, Declaration};
use crate::value::{Fail, List, Out, Val, error, no_overload};

pub(super) const FUNCTIONS: &[Declaration] = &[("format", Strict(format), &["string.(list(dyn)) string"])];

/// Longer results are not built.
const MAX_RESULT: usize = 16 << 20;
/// Maximum parts of a formatted list or map.
const MAX_PARTS: usize = 100_000;
/// Maximum digits after the point.
const MAX_PRECISION: usize = 1_000;

fn format<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(template), Val::List(values)] = args else {
        return no_overload();
    };
    let mut out = String::new();
    let mut template = Template(template);
    let mut next = 0;
    while template.next(|text| out.push_str(text)) {
        let Some(value) = values.get(next) else {
            return error(format!("index {next} out of range"));
        };
        // Elements of the input are converted on access, which may fail.
        let value = value?;
        next += 1;
        match template.clause().map(|clause| write(clause, &value)) {
            Err(why) => return error(why.to_string()),
            Ok(Err(why)) => return error(format!("error during formatting: {why}")),
            Ok(Ok(text)) => out.push_str(&text),
        }
        // Checked per clause: each can add as much as a whole value.
        if out.len() > MAX_RESULT {
            return error("formatted string is too long");
        }
    }
    Ok(out.into())
}

/// Why a clause of a template cannot be read, in cel-go's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClauseError {
    #[error("unexpected end of string")]
    Cut,
    #[error(
        "could not parse formatting clause: error while parsing precision: could not find end of precision specifier"
    )]
    OpenPrecision,
    #[error(
        "could not parse formatting clause: error while parsing precision: error while converting precision to integer: \
         strconv.Atoi: parsing {digits:?}: {why}"
    )]
    Precision { digits: String, why: &'static str },
    #[error("could not parse formatting clause: unrecognized formatting clause \"{0}\"")]
    Verb(char),
}

/// Why a clause cannot write a value, in cel-go's words.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    /// The clause takes values of other types.
    #[error("{takes}, was given {given}")]
    Type { takes: &'static str, given: String },
    #[error("no formatting function for {0}")]
    NoForm(String),
    #[error("could not convert argument to string")]
    NotAString,
    /// A list or map has more than [`MAX_PARTS`] parts.
    #[error("the value is too large")]
    TooLarge,
    /// A part of the value is an error.
    #[error(transparent)]
    Part(#[from] Fail),
}

/// The rest of a template.
pub(crate) struct Template<'t>(pub &'t str);

impl<'t> Template<'t> {
    /// Goes on behind the `%` of the next clause, and passes the texts before it; false if there is none.
    pub(crate) fn next(&mut self, mut text: impl FnMut(&'t str)) -> bool {
        while let Some((before, rest)) = self.0.split_once('%') {
            text(before);
            self.0 = rest;
            let Some(after) = rest.strip_prefix('%') else {
                return true;
            };
            text("%");
            self.0 = after;
        }
        text(self.0);
        false
    }

    /// Reads the clause behind a `%`.
    pub(crate) fn clause(&mut self) -> Result<Clause, ClauseError> {
        if self.0.is_empty() {
            return Err(ClauseError::Cut);
        }
        let (clause, rest) = clause(self.0)?;
        self.0 = rest;
        Ok(clause)
    }
}

/// A formatting clause: verb and precision.
#[derive(Clone, Copy)]
pub(crate) struct Clause {
    pub verb: char,
    precision: usize,
}

/// The clause at the start, and what follows it.
fn clause(text: &str) -> Result<(Clause, &str), ClauseError> {
    let (precision, rest) = match text.strip_prefix('.') {
        None => (6, text),
        Some(after) => {
            let Some(end) = after.find(|c: char| !c.is_ascii_digit()) else {
                return Err(ClauseError::OpenPrecision);
            };
            let digits = &after[..end];
            let precision = digits.parse().ok().filter(|n| *n <= MAX_PRECISION);
            let precision = precision.ok_or_else(|| ClauseError::Precision {
                digits: digits.to_owned(),
                why: match digits {
                    "" => "invalid syntax",
                    _ => "value out of range",
                },
            })?;
            (precision, &after[end..])
        }
    };
    // A missing verb reads as `%`, which is not one.
    let verb = rest.chars().next().unwrap_or('%');
    if !"sdfebxXo".contains(verb) {
        return Err(ClauseError::Verb(verb));
    }
    Ok((Clause { verb, precision }, &rest[verb.len_utf8()..]))
}

fn write(clause: Clause, v: &Val<'_>) -> Result<String, WriteError> {
    let given = |takes| {
        Err(WriteError::Type {
            takes,
            given: v.type_name().to_owned(),
        })
    };
    match (clause.verb, v) {
        ('s', v) => string(v),
        ('d', Val::Int(n)) => Ok(n.to_string()),
        ('d', Val::Uint(n)) => Ok(n.to_string()),
        ('d', _) => given("decimal clause can only be used on integers"),
        ('f', v) => match double(v) {
            Some(f) => Ok(fixed(f, clause.precision)),
            None => given("fixed-point clause can only be used on doubles"),
        },
        ('e', v) => match double(v) {
            Some(f) => Ok(scientific(f, clause.precision)),
            None => given("scientific clause can only be used on doubles"),
        },
        ('b', Val::Bool(b)) => Ok(u8::from(*b).to_string()),
        ('b', Val::Int(n)) => Ok(signed(*n, format!("{:b}", n.unsigned_abs()))),
        ('b', Val::Uint(n)) => Ok(format!("{n:b}")),
        ('b', _) => given("only integers and bools can be formatted as binary"),
        ('o', Val::Int(n)) => Ok(signed(*n, format!("{:o}", n.unsigned_abs()))),
        ('o', Val::Uint(n)) => Ok(format!("{n:o}")),
        ('o', _) => given("octal clause can only be used on integers"),
        (verb, v) => {
            let text = match v {
                Val::Int(n) => signed(*n, format!("{:x}", n.unsigned_abs())),
                Val::Uint(n) => format!("{n:x}"),
                Val::String(s) => hex(s.as_bytes()),
                Val::Bytes(b) => hex(b),
                _ => return given("only integers, byte buffers, and strings can be formatted as hex"),
            };
            Ok(if verb == 'X' { text.to_ascii_uppercase() } else { text })
        }
    }
}

fn signed(n: i64, digits: String) -> String {
    if n < 0 { format!("-{digits}") } else { digits }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A double, or one of the strings for NaN and the infinities.
fn double(v: &Val<'_>) -> Option<f64> {
    match v {
        Val::Double(f) => Some(*f),
        Val::String(s) => match &**s {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// NaN and the infinities in English notation.
fn special(f: f64) -> Option<&'static str> {
    match f {
        f if f.is_nan() => Some("NaN"),
        f64::INFINITY => Some("\u{221e}"),
        f64::NEG_INFINITY => Some("-\u{221e}"),
        _ => None,
    }
}

/// Digits with a comma before each thousand, as English writes them.
fn fixed(f: f64, precision: usize) -> String {
    if let Some(text) = special(f) {
        return text.to_owned();
    }
    let text = format!("{f:.precision$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", &*text), |rest| ("-", rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        // Counted from the end, so that groups of three start at the point.
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A power of ten with superscript digits, as English writes it.
fn scientific(f: f64, precision: usize) -> String {
    const DIGITS: [char; 10] = [
        '\u{2070}', '\u{b9}', '\u{b2}', '\u{b3}', '\u{2074}', '\u{2075}', '\u{2076}', '\u{2077}', '\u{2078}',
        '\u{2079}',
    ];
    if let Some(text) = special(f) {
        return format!("{text:>precision$}");
    }
    let text = format!("{f:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent
        .strip_prefix('-')
        .map_or(("", exponent), |rest| ("\u{207b}", rest));
    // At least two digits, as Go writes exponents.
    let digits = format!("{exponent:0>2}");
    let raised: String = digits.bytes().map(|b| DIGITS[usize::from(b - b'0') % 10]).collect();
    format!("{mantissa}\u{d7}10{sign}{raised}")
}

fn string(v: &Val<'_>) -> Result<String, WriteError> {
    match v {
        Val::Null => Ok("null".to_owned()),
        Val::Type(name) => Ok(name.to_string()),
        Val::List(_) | Val::Map(_) | Val::Object(..) => {
            let mut left = MAX_PARTS;
            literal(v, &mut left)
        }
        v => match to_string(&mut [v.clone()]) {
            Ok(Val::String(s)) => Ok(s.to_string()),
            Ok(_) => Err(WriteError::NotAString),
            Err(_) => Err(WriteError::Type {
                takes: "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                        durations, and timestamps",
                given: v.type_name().to_owned(),
            }),
        },
    }
}

/// A value as it is written inside of lists and maps.
fn literal(v: &Val<'_>, left: &mut usize) -> Result<String, WriteError> {
    // Traversing a value whose parts are shared can take far more steps than its size in memory suggests.
    *left = left.checked_sub(1).ok_or(WriteError::TooLarge)?;
    Ok(match v {
        Val::String(s) => torana_apimachinery::field::quote(s),
        Val::Bytes(b) => format!("b{}", torana_apimachinery::field::quote(&String::from_utf8_lossy(b))),
        Val::Double(f) if f.is_nan() => "\"NaN\"".to_owned(),
        Val::Double(f) if f.is_infinite() => (if *f > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" }).to_owned(),
        Val::Double(f) => format!("{f:.6}"),
        Val::Timestamp(t) => format!("timestamp({:?})", t.text()),
        Val::Duration(_) => format!("duration({:?})", string(v)?),
        Val::List(list) => format!("[{}]", items(list, left)?.join(", ")),
        Val::Map(map) => {
            let mut pairs = Vec::new();
            for (key, value) in map.entries()? {
                pairs.push(format!("{}:{}", literal(&key, left)?, literal(&value, left)?));
            }
            // Sorted by the text of the entries, so that the result does not depend on the order of keys.
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        Val::Object(..) => {
            let mut pairs = Vec::new();
            for (key, value) in super::object_entries(v)? {
                pairs.push(format!("{}:{}", literal(&key, left)?, literal(&value, left)?));
            }
            pairs.sort();
            format!("{{{}}}", pairs.join(", "))
        }
        Val::Optional(_) | Val::Record(_) | Val::Quantity(..) | Val::Net(_) | Val::Url(_) | Val::Semver(_) => {
            return Err(WriteError::NoForm(v.type_name().to_owned()));
        }
        v => string(v)?,
    })
}

fn items(list: &List<'_>, left: &mut usize) -> Result<Vec<String>, WriteError> {
    list.iter().map(|item| literal(&item?, left)).collect()
}
