//! Schemaless protobuf: the wire format, and the envelope Kubernetes wraps its objects in.
//!
//! Start at [`open`] and [`Reader`] for decoding, [`envelope`] and [`frame`] for encoding. Messages of API
//! kinds are converted with a schema table.

use std::borrow::Cow;

/// Media type of a single object.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// Media type of a watch stream.
pub const STREAM_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// The prefix of every encoded object.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// A wire format error; the messages are those of gogo/protobuf's decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end inside a field.
    #[error("unexpected EOF")]
    UnexpectedEof,
    /// A varint of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length of 2^63 or more.
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    /// An end-group tag without a start.
    #[error("proto: unexpected end of group")]
    EndGroup,
    /// A field number of zero, or above 2^31 − 1.
    #[error("proto: illegal tag 0")]
    IllegalTag,
    /// One of the two undefined wire types.
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
}

/// Why bytes are not an envelope; the messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No bytes at all.
    #[error("empty data")]
    Empty,
    /// The bytes do not begin with [`MAGIC`].
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// Nothing follows the prefix.
    #[error("empty body")]
    NoBody,
    /// A message of the envelope has a tag that no field can have.
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    IllegalTag {
        /// The name of the message, `Unknown` or `TypeMeta`.
        message: &'static str,
        /// The field number in the tag.
        number: i32,
        /// The whole tag, which upstream prints as the wire type.
        tag: u64,
    },
    /// A message of the envelope has an end-group tag.
    #[error("proto: {0}: wiretype end group for non-group")]
    EndGroup(&'static str),
    /// A field of the envelope is not length-delimited.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongWireType {
        /// The name of the Go field, such as `ContentType`.
        field: &'static str,
        /// The wire type in its tag.
        wire: u8,
    },
    /// The envelope is malformed otherwise.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// A field's value, as typed by the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// An integer, boolean or enum.
    Varint(u64),
    /// A double, as its bits.
    Fixed64(u64),
    /// A string, bytes, message or packed list.
    Bytes(&'a [u8]),
    /// A group, which was skipped: no Kubernetes kind uses groups.
    Group,
    /// A float: no Kubernetes kind uses one.
    Fixed32(u32),
}

/// Reads the fields of one message. It stays within the message's bytes and does not recurse.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

/// The decoded envelope: `k8s\0` followed by a `runtime.Unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// The object's `apiVersion`; may be empty.
    pub api_version: Cow<'a, str>,
    /// The object's `kind`; may be empty.
    pub kind: Cow<'a, str>,
    /// The object's message, still encoded.
    pub raw: &'a [u8],
}

/// Decodes the envelope. `contentEncoding` and `contentType` are ignored.
///
/// # Errors
/// The bytes are not an envelope.
pub fn open(bytes: &[u8]) -> Result<Unknown<'_>, OpenError> {
    if bytes.is_empty() {
        return Err(OpenError::Empty);
    }
    let Some(body) = bytes.strip_prefix(&MAGIC) else {
        return Err(OpenError::NoMagic);
    };
    if body.is_empty() {
        return Err(OpenError::NoBody);
    }
    unknown(body)
}

fn unknown(body: &[u8]) -> Result<Unknown<'_>, OpenError> {
    let mut out = Unknown {
        api_version: Cow::Borrowed(""),
        kind: Cow::Borrowed(""),
        raw: &[],
    };
    let mut fields = EnvelopeFields {
        message: "Unknown",
        names: &["TypeMeta", "Raw", "ContentEncoding", "ContentType"],
        reader: Reader::new(body),
    };
    while let Some((field, bytes)) = fields.advance()? {
        match field {
            "TypeMeta" => type_meta(bytes, &mut out)?,
            "Raw" => out.raw = bytes,
            _ => {}
        }
    }
    Ok(out)
}

fn type_meta<'a>(message: &'a [u8], out: &mut Unknown<'a>) -> Result<(), OpenError> {
    let mut fields = EnvelopeFields {
        message: "TypeMeta",
        names: &["APIVersion", "Kind"],
        reader: Reader::new(message),
    };
    while let Some((field, bytes)) = fields.advance()? {
        match field {
            "APIVersion" => out.api_version = String::from_utf8_lossy(bytes),
            _ => out.kind = String::from_utf8_lossy(bytes),
        }
    }
    Ok(())
}

/// Reads a message of the envelope, all fields of which are length-delimited.
struct EnvelopeFields<'a> {
    message: &'static str,
    /// The fields by number, from 1.
    names: &'static [&'static str],
    reader: Reader<'a>,
}

impl<'a> EnvelopeFields<'a> {
    /// The name and the bytes of the next known field; `None` at the end.
    fn advance(&mut self) -> Result<Option<(&'static str, &'a [u8])>, OpenError> {
        while !self.reader.0.is_empty() {
            let tag = self.reader.varint()?;
            // Wraps, as in Go.
            let (number, wire) = ((tag >> 3) as i32, (tag & 7) as u8);
            if wire == 4 {
                return Err(OpenError::EndGroup(self.message));
            }
            let Some(index) = usize::try_from(number).ok().and_then(|n| n.checked_sub(1)) else {
                let message = self.message;
                return Err(OpenError::IllegalTag { message, number, tag });
            };
            let known = self.names.get(index).copied();
            // Before the payload is read, which may end too early.
            if let Some(field) = known.filter(|_| wire != 2) {
                return Err(OpenError::WrongWireType { field, wire });
            }
            if let (Some(field), Payload::Bytes(bytes)) = (known, self.reader.payload(wire)?) {
                return Ok(Some((field, bytes)));
            }
        }
        Ok(None)
    }
}

/// Appends an envelope around the message that `message` writes.
pub fn envelope(out: &mut Vec<u8>, api_version: &str, kind: &str, message: impl FnOnce(&mut Vec<u8>)) {
    envelope_head(out, api_version, kind);
    put_message(out, 2, message);
    envelope_tail(out);
}

/// Appends the part of the envelope before the field that holds the message.
pub fn envelope_head(out: &mut Vec<u8>, api_version: &str, kind: &str) {
    out.extend_from_slice(&MAGIC);
    put_message(out, 1, |out| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
    });
}

/// Appends the part of the envelope after the message: an empty content encoding and content type.
pub fn envelope_tail(out: &mut Vec<u8>) {
    out.extend_from_slice(&ENVELOPE_TAIL);
}

const ENVELOPE_TAIL: [u8; 4] = [0x1a, 0, 0x22, 0];

/// Returns the bytes before and after a message of `message` bytes in a watch [`frame`] with its envelope, so
/// that the message can be shared between watchers without a copy.
pub fn frame_around(event: &str, api_version: &str, kind: &str, message: usize) -> (Vec<u8>, &'static [u8]) {
    let mut envelope = Vec::with_capacity(64);
    envelope_head(&mut envelope, api_version, kind);
    // Field 2, wire type 2 (length-delimited), written by hand because the content follows separately.
    envelope.push(2 << 3 | 2);
    put_varint(&mut envelope, message as u64);
    let object = (envelope.len() + message + ENVELOPE_TAIL.len()) as u64;
    let mut raw = Vec::with_capacity(8);
    // `runtime.RawExtension` has its bytes in field 1.
    raw.push(1 << 3 | 2);
    put_varint(&mut raw, object);
    let mut out = Vec::with_capacity(envelope.len() + event.len() + 32);
    // Room for the frame's length, filled in at the end.
    out.extend_from_slice(&[0; 4]);
    put_bytes(&mut out, 1, event.as_bytes());
    out.push(2 << 3 | 2);
    put_varint(&mut out, raw.len() as u64 + object);
    out.extend_from_slice(&raw);
    out.extend_from_slice(&envelope);
    // The message is not in `out`, but belongs to the frame.
    let length = out.len() - 4 + message + ENVELOPE_TAIL.len();
    let length = u32::try_from(length).expect("objects are a few megabytes at most");
    out[..4].copy_from_slice(&length.to_be_bytes());
    (out, &ENVELOPE_TAIL)
}

/// Encodes a watch frame: the length in four big-endian bytes, then a `WatchEvent` that contains an enveloped
/// object.
pub fn frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + event.len() + 20);
    out.extend_from_slice(&[0; 4]);
    put_bytes(&mut out, 1, event.as_bytes());
    put_message(&mut out, 2, |out| put_bytes(out, 1, object));
    let length = u32::try_from(out.len() - 4).expect("objects are a few megabytes at most");
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// Appends a varint: seven bits per byte, least significant group first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends an integer field.
pub fn put_number(out: &mut Vec<u8>, field: u8, value: u64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, value);
}

/// Appends a double field.
pub fn put_double(out: &mut Vec<u8>, field: u8, value: f64) {
    put_varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a bytes or string field.
pub fn put_bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    put_length(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends the head of a bytes field; the caller appends its `length` bytes.
pub fn put_length(out: &mut Vec<u8>, field: u8, length: usize) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, length as u64);
}

/// Appends a message field and fills in the length after `message` has written the content.
pub fn put_message(out: &mut Vec<u8>, field: u8, message: impl FnOnce(&mut Vec<u8>)) {
    put_varint(out, u64::from(field) << 3 | 2);
    let at = out.len();
    // Most messages are shorter than 128 bytes: reserving one byte means that these never move.
    out.push(0);
    message(out);
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
        return;
    }
    // The length needs more than the one byte reserved for it: move the content.
    let end = out.len();
    // Encoded behind the content first, since the width is only known then.
    put_varint(out, length as u64);
    let width = out.len() - end;
    let mut digits = [0u8; 10];
    digits[..width].copy_from_slice(&out[end..]);
    // Leaves `width - 1` bytes more than before, which is how far the content moves.
    out.truncate(end + width - 1);
    out.copy_within(at + 1..end, at + width);
    out[at..at + width].copy_from_slice(&digits[..width]);
}

/// The encoded size of a varint in bytes.
pub fn varint_len(value: u64) -> usize {
    // `| 1` gives zero its one byte.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// Reads a message given without its length prefix.
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// Returns the next field; `None` at the end.
    ///
    /// # Errors
    /// Fails if the bytes are not a valid field.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator of results would be consumed with `?` all the same"
    )]
    pub fn next(&mut self) -> Result<Option<(u32, Payload<'a>)>, WireError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (number, wire) = self.tag()?;
        Ok(Some((number, self.payload(wire)?)))
    }

    /// Reads the value behind a tag of this wire type.
    fn payload(&mut self, wire: u8) -> Result<Payload<'a>, WireError> {
        Ok(match wire {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                // Go reads the length as an `int`, where the upper half is negative.
                if i64::try_from(length).is_err() {
                    return Err(WireError::NegativeLength);
                }
                let length = usize::try_from(length).map_err(|_| WireError::UnexpectedEof)?;
                Payload::Bytes(self.take(length)?)
            }
            3 => {
                self.skip_group()?;
                Payload::Group
            }
            4 => return Err(WireError::EndGroup),
            5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return Err(WireError::IllegalWireType(other)),
        })
    }

    /// Reads the next varint of a packed list; `None` at the end.
    ///
    /// # Errors
    /// Fails if the bytes are not a varint.
    pub fn packed(&mut self) -> Result<Option<u64>, WireError> {
        (!self.0.is_empty()).then(|| self.varint()).transpose()
    }

    /// Reads the bits of the next double of a packed list; `None` at the end.
    ///
    /// # Errors
    /// Fails if fewer than eight bytes are left.
    pub fn packed_double(&mut self) -> Result<Option<u64>, WireError> {
        (!self.0.is_empty())
            .then(|| self.array().map(u64::from_le_bytes))
            .transpose()
    }

    fn tag(&mut self) -> Result<(u32, u8), WireError> {
        let tag = self.varint()?;
        // Zero stands for numbers beyond 32 bits, too: both are illegal.
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        if number == 0 || number > i32::MAX as u32 {
            return Err(WireError::IllegalTag);
        }
        Ok((number, (tag & 7) as u8))
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(WireError::UnexpectedEof)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self.0.split_first_chunk().ok_or(WireError::UnexpectedEof)?;
        self.0 = tail;
        Ok(*head)
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        // Ten bytes hold 64 bits with some to spare; the excess bits of the tenth are dropped, as in gogo.
        for (i, &b) in self.0.iter().take(10).enumerate() {
            value |= u64::from(b & 0x7f) << (7 * i);
            if b < 0x80 {
                self.0 = &self.0[i + 1..];
                return Ok(value);
            }
        }
        // A slice shorter than ten bytes ended inside the varint.
        Err(match self.0.len() {
            0..10 => WireError::UnexpectedEof,
            _ => WireError::Overflow,
        })
    }

    /// Skips to the end of the current group. Nested groups are counted instead of recursed into.
    fn skip_group(&mut self) -> Result<(), WireError> {
        let mut open = 1usize;
        while open > 0 {
            if self.0.is_empty() {
                return Err(WireError::UnexpectedEof);
            }
            let before = self.0;
            match self.tag()?.1 {
                3 => open += 1,
                4 => open -= 1,
                _ => {
                    // Not a group delimiter: rewind to the tag and skip the field.
                    // Rewinding instead of a second parser for the payload: `next` knows all wire types.
                    self.0 = before;
                    self.next()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
