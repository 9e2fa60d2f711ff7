//! The CBOR decoder. Entry point: [`decode`]. It accepts the subset of CBOR that upstream accepts, and bounds depth and
//! memory, since bodies come from clients.

use super::{ARRAY, BYTES, MAP, NEGATIVE, TAG, TEXT, UNSIGNED, half_value};
use crate::codec::budget::{DecodeBudget, ITEM, OverBudget, PAIR};
use crate::codec::hex;
use crate::codec::json::MAX_DEPTH;
use crate::value::{Map, Str, Value};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use std::borrow::Cow;

/// Decodes one document; trailing data is an error. Memory is limited to [`DecodeBudget::of_body`].
///
/// # Errors
/// The bytes are not one document of the subset of CBOR that upstream accepts.
pub fn decode(bytes: &[u8]) -> Result<Value, Error> {
    let mut d = Decoder {
        rest: bytes,
        // The budget grows with the body, so a small body cannot claim the memory of a large one.
        budget: DecodeBudget::of_body(bytes.len()),
    };
    let value = d.item(0)?;
    match d.rest.len() {
        0 => Ok(value),
        n => Err(Error::Extraneous {
            bytes: n,
            at: bytes.len() - n,
        }),
    }
}

/// Why bytes are not a document; clients read the messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end inside an item.
    #[error("unexpected EOF")]
    UnexpectedEof,
    /// More than one document.
    #[error("cbor: {bytes} bytes of extraneous data starting at index {at}")]
    Extraneous {
        /// Number of bytes after the document.
        bytes: usize,
        /// Offset of the first of them.
        at: usize,
    },
    /// A reserved value, or an indefinite length of something that has none.
    #[error("cbor: invalid additional information {info} for major type {major}")]
    AdditionalInformation {
        /// The low five bits of the initial byte.
        info: u8,
        /// Its high three bits.
        major: u8,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("cbor: exceeded max nested level {max}", max = MAX_DEPTH)]
    TooDeep,
    /// An integer above Go's `int64`.
    #[error("cbor: {0} overflows Go's int64")]
    Overflow(u64),
    /// An integer below Go's `int64`; `-1 - n` in CBOR's form.
    #[error("cbor: -1-{0} overflows Go's int64")]
    NegativeOverflow(u64),
    /// A chunk of an indefinite-length string is not a string of the same type.
    #[error("cbor: wrong element type for an indefinite-length string")]
    StringChunk,
    /// A key that is not a string.
    #[error("cbor: cannot unmarshal a map key of major type {major} into a string")]
    MapKey {
        /// The major type of the key.
        major: u8,
    },
    /// A map has one key twice.
    #[error("cbor: found duplicate map key")]
    DuplicateKey,
    /// Tag 2 or 3.
    #[error("cbor: bignums are not supported")]
    Bignum,
    /// A tag that requires a byte string on another type.
    #[error("cbor: tag {0} on something else than a byte string")]
    Tag(u64),
    /// A text string is not UTF-8.
    #[error("cbor: invalid UTF-8 string")]
    Utf8,
    /// A break outside of an indefinite-length item.
    #[error("cbor: unexpected \"break\" code")]
    Break,
    /// Neither a boolean, null nor a float.
    #[error("cbor: simple value {0} is not recognized")]
    SimpleValue(u64),
    /// JSON has no such numbers.
    #[error("cbor: NaN and infinities are not supported")]
    NotFinite,
    /// The document takes too much memory.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

struct Decoder<'a> {
    rest: &'a [u8],
    budget: DecodeBudget,
}

/// The initial byte of an item with its argument.
struct Head {
    major: u8,
    /// The argument; `None` for an indefinite length or a break.
    n: Option<u64>,
    info: u8,
}

const BREAK: u8 = 0xff;

impl<'a> Decoder<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8], Error> {
        // A length beyond the address space cannot be in the document; reported like any other truncation.
        let n = usize::try_from(n).map_err(|_| Error::UnexpectedEof)?;
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(Error::UnexpectedEof)?;
        self.rest = rest;
        Ok(taken)
    }

    fn head(&mut self) -> Result<Head, Error> {
        let first = self.take(1)?[0];
        let (major, info) = (first >> 5, first & 31);
        let n = match info {
            0..=23 => Some(u64::from(info)),
            24..=27 => {
                // `info` 24 to 27 announce 1, 2, 4 or 8 bytes.
                let bytes = self.take(1 << (info - 24))?;
                Some(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
            }
            // Indefinite lengths exist for strings, lists and maps; major type 7 with 31 is the break, rejected by
            // `simple`.
            31 if !matches!(major, UNSIGNED | NEGATIVE | TAG) => None,
            _ => {
                return Err(Error::AdditionalInformation { info, major });
            }
        };
        Ok(Head { major, n, info })
    }

    /// Consumes a break and returns true if it is the next byte.
    fn broken(&mut self) -> Result<bool, Error> {
        let ends = *self.rest.first().ok_or(Error::UnexpectedEof)? == BREAK;
        if ends {
            self.rest = &self.rest[1..];
        }
        Ok(ends)
    }

    fn item(&mut self, depth: usize) -> Result<Value, Error> {
        // Checked before the head is read, so that a bomb of nested tags or lists cannot exhaust the stack.
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.budget.checkpoint();
        let head = self.head()?;
        match (head.major, head.n) {
            (UNSIGNED, Some(n)) => match i64::try_from(n) {
                Ok(i) => Ok(Value::Int(i)),
                Err(_) => Err(Error::Overflow(n)),
            },
            (NEGATIVE, Some(n)) => match i64::try_from(n) {
                // CBOR's negative argument is `-1 - n`, which is the bitwise complement of `n`.
                Ok(i) => Ok(Value::Int(!i)),
                Err(_) => Err(Error::NegativeOverflow(n)),
            },
            (BYTES | TEXT, _) => Ok(Value::String(text(self.string(&head)?)?)),
            (ARRAY, n) => self.array(n, depth),
            (MAP, n) => self.map(n, depth),
            (TAG, Some(tag)) => self.tagged(tag, depth),
            _ => simple(&head),
        }
    }

    fn string(&mut self, head: &Head) -> Result<Cow<'a, [u8]>, Error> {
        if let Some(n) = head.n {
            let bytes = self.take(n)?;
            self.budget.string(bytes.len())?;
            return Ok(bytes.into());
        }
        // Grows with the chunks that are really there; the budget is charged once the length is known, at most the
        // body's size.
        let mut out = Vec::new();
        while !self.broken()? {
            let chunk = self.head()?;
            match chunk.n {
                // RFC 8949 requires definite chunks of the same major type; nesting would allow unbounded recursion.
                Some(n) if chunk.major == head.major => out.extend_from_slice(self.take(n)?),
                _ => return Err(Error::StringChunk),
            }
        }
        self.budget.string(out.len())?;
        Ok(out.into())
    }

    /// True if the container has another element; counts it.
    fn more(&mut self, left: &mut Option<u64>) -> Result<bool, Error> {
        match left {
            None => Ok(!self.broken()?),
            Some(0) => Ok(false),
            Some(n) => {
                *n -= 1;
                Ok(true)
            }
        }
    }

    /// Allocates a vector for the number of elements announced by the sender. The number is untrusted, so it
    /// is capped by how many elements of at least `shortest` bytes the rest of the document can hold.
    fn room<T>(&mut self, elements: Option<u64>, shortest: usize, each: usize) -> Result<Vec<T>, Error> {
        let fits = self.rest.len() / shortest;
        // 0 for indefinite lengths: `push` charges those as they grow.
        let n = elements.map_or(0, |n| usize::try_from(n).map_or(fits, |n| n.min(fits)));
        self.budget.take(n.saturating_mul(each))?;
        Ok(Vec::with_capacity(n))
    }

    fn array(&mut self, mut left: Option<u64>, depth: usize) -> Result<Value, Error> {
        let mut items = self.room(left, 1, ITEM)?;
        while self.more(&mut left)? {
            let item = self.item(depth + 1)?;
            self.budget.push(&mut items, item)?;
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, mut left: Option<u64>, depth: usize) -> Result<Value, Error> {
        let mut pairs: Vec<(Str, Value)> = self.room(left, 2, PAIR)?;
        while self.more(&mut left)? {
            let key = self.head()?;
            if !matches!(key.major, BYTES | TEXT) {
                return Err(Error::MapKey { major: key.major });
            }
            let key = text(self.string(&key)?)?;
            let item = self.item(depth + 1)?;
            self.budget.push(&mut pairs, (key, item))?;
        }
        let given = pairs.len();
        // `from_pairs` sorts once and keeps one of equal keys, so a shorter map means a duplicate; checking on insert
        // would be quadratic.
        let map = Map::from_pairs(pairs);
        if map.len() < given {
            return Err(Error::DuplicateKey);
        }
        Ok(Value::Object(map))
    }

    fn tagged(&mut self, tag: u64, depth: usize) -> Result<Value, Error> {
        // Expected-conversion tags turn a byte string into text of the given encoding.
        let convert: fn(&[u8]) -> String = match tag {
            21 => |b| URL_SAFE_NO_PAD.encode(b),
            22 => |b| STANDARD.encode(b),
            23 => hex,
            2 | 3 => return Err(Error::Bignum),
            // Unknown tags are transparent, but count as a level: a chain of tags recurses like nested lists.
            _ => return self.item(depth + 1),
        };
        let head = self.head()?;
        match head.major {
            BYTES => Ok(Value::String(convert(&self.string(&head)?).into())),
            _ => Err(Error::Tag(tag)),
        }
    }
}

fn text(bytes: Cow<'_, [u8]>) -> Result<Str, Error> {
    Str::from_utf8(bytes).map_err(|_| Error::Utf8)
}

fn simple(head: &Head) -> Result<Value, Error> {
    // Major type 7 without an argument is a break outside of an indefinite-length item.
    let n = head.n.ok_or(Error::Break)?;
    let number = match head.info {
        20 | 21 => return Ok(Value::Bool(head.info == 21)),
        22 | 23 => return Ok(Value::Null),
        25 => half_value(n as u16),
        26 => f64::from(f32::from_bits(n as u32)),
        27 => f64::from_bits(n),
        _ => return Err(Error::SimpleValue(n)),
    };
    if number.is_finite() {
        return Ok(Value::Float(number));
    }
    Err(Error::NotFinite)
}
