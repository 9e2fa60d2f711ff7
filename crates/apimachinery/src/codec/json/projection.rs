//! Reads parts of an encoded object without decoding the rest, for tables and metadata of stored objects.
//!
//! Start at [`read`] with a [`Mask`]. The input must be this crate's own encoding: no white space between
//! tokens, UTF-8 strings. It is not validated; on anything unexpected, functions return
//! [`UnexpectedEncoding`] and the caller decodes the whole document.

use super::{MAX_OWN_DEPTH, decode};
use crate::value::{Map, Str, Value};
use std::collections::HashMap;
use std::ops::Range;

/// The bytes are not in this crate's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnexpectedEncoding;

/// The parts of a document to read. Lists are transparent: a mask applies to each of their items.
#[derive(Clone, Debug, PartialEq)]
pub enum Mask {
    /// Keeps the value with everything below it.
    Whole,
    /// Only the number of members or items: their values become null.
    Count,
    /// Only these members; others are skipped.
    Members(MemberMasks),
}

impl Default for Mask {
    /// Reads nothing: an object without members.
    fn default() -> Self {
        Self::Members(MemberMasks::default())
    }
}

/// Masks by member name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberMasks {
    list: Vec<(Str, Mask)>,
    /// Positions in `list`, once there are more than [`FEW_MEMBERS`]. Definitions of custom resources may have tens of
    /// thousands of columns.
    index: HashMap<Box<[u8]>, usize>,
}

/// Number of members up to which comparing with each is faster than hashing.
const FEW_MEMBERS: usize = 16;

impl MemberMasks {
    /// How many members the masks select.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there are no members.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        if self.list.len() <= FEW_MEMBERS {
            return self.list.iter().position(|(n, _)| n.as_bytes() == name);
        }
        self.index.get(name).copied()
    }

    /// Adds a member that is not there, and returns its position.
    fn push(&mut self, name: &str) -> usize {
        let at = self.list.len();
        self.list.push((Str::new(name), Mask::default()));
        if at >= FEW_MEMBERS {
            // Built lazily: the first entries are indexed together with the one that crosses the limit.
            let indexed = self.index.len();
            let unindexed = self.list.iter().enumerate().skip(indexed);
            self.index
                .extend(unindexed.map(|(at, (name, _))| (Box::from(name.as_bytes()), at)));
        }
        at
    }
}

impl Mask {
    /// Builds a mask from paths: `metadata.name`, `spec.containers.image` (of each container),
    /// `status.{phase,reason}` (both). `data.#` stands for [`Mask::Count`] of the members of `data`.
    pub fn of(paths: &[&str]) -> Self {
        let mut mask = Self::default();
        for path in paths {
            mask.add(path);
        }
        mask
    }

    /// Adds a path to what is read; `{a,b}` adds several, and `#` only counts.
    pub fn add(&mut self, path: &str) {
        // `#` replaces whatever was there: counting needs no values, and a path below a counted member adds nothing.
        if path == "#" {
            *self = Self::Count;
            return;
        }
        if let Some(all) = path.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            return all.split(',').for_each(|p| self.add(p));
        }
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        // A mask that already reads the whole value stays as it is.
        let Some(member) = self.entry(first) else { return };
        // A later, shorter path widens the mask; a longer one after it finds `Whole` and is dropped.
        if rest.is_empty() {
            *member = Self::Whole;
        } else {
            member.add(rest);
        }
    }

    /// Adds the whole value at the end of a path of member names.
    pub fn include(&mut self, path: &[Str]) {
        let Some((first, rest)) = path.split_first() else {
            *self = Self::Whole;
            return;
        };
        if let Some(member) = self.entry(first) {
            member.include(rest);
        }
    }

    /// The mask of a member, added if it is missing; `None` if this mask has no members.
    fn entry(&mut self, name: &str) -> Option<&mut Self> {
        let Self::Members(members) = self else { return None };
        let at = members.position(name.as_bytes()).unwrap_or_else(|| members.push(name));
        Some(&mut members.list[at].1)
    }

    /// The name and the mask of a member; `None` if the member is to be skipped.
    pub fn member(&self, name: &[u8]) -> Option<(&Str, &Mask)> {
        let Self::Members(members) = self else { return None };
        let at = members.position(name)?;
        members.list.get(at).map(|(name, mask)| (name, mask))
    }
}

/// Decodes the parts of a document selected by `mask`.
///
/// # Errors
/// [`UnexpectedEncoding`] if the bytes are not in this crate's encoding.
pub fn read(json: &[u8], mask: &Mask) -> Result<Value, UnexpectedEncoding> {
    Cursor::at(json, 0).read(mask)
}

/// A step to a part of a document.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The member of an object with this name, which contains nothing that JSON escapes.
    Member(&'a str),
    /// The item of a list with this index.
    Item(usize),
}

/// Returns where in a document the value at the end of `path` is; `None` if there is none.
///
/// # Errors
/// [`UnexpectedEncoding`] if the bytes are not in this crate's encoding.
pub fn locate(json: &[u8], path: &[Step<'_>]) -> Result<Option<Range<usize>>, UnexpectedEncoding> {
    let mut at = Cursor::at(json, 0);
    for step in path {
        let found = match step {
            Step::Member(name) => at.enter_member(name)?,
            Step::Item(index) => at.enter_item(*index)?,
        };
        if !found {
            return Ok(None);
        }
    }
    let start = at.offset();
    at.skip()?;
    Ok(Some(start..at.offset()))
}

/// A position in an encoded document.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at `at`, which must be the start of a value.
    pub fn at(json: &'a [u8], at: usize) -> Self {
        Self { json, at }
    }

    /// Offset in bytes of what is read next.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Moves to `offset`, which must be the end of a value.
    pub fn go(&mut self, offset: usize) {
        self.at = offset;
    }

    fn peek(&self) -> Result<u8, UnexpectedEncoding> {
        self.json.get(self.at).copied().ok_or(UnexpectedEncoding)
    }

    fn take(&mut self, byte: u8) -> Result<(), UnexpectedEncoding> {
        if self.peek()? != byte {
            return Err(UnexpectedEncoding);
        }
        self.at += 1;
        Ok(())
    }

    /// Enters an object, up to its first member.
    ///
    /// # Errors
    /// [`UnexpectedEncoding`] if the value is not an object.
    pub fn enter(&mut self) -> Result<(), UnexpectedEncoding> {
        self.take(b'{')
    }

    /// Returns the raw bytes of the next member's key, still escaped, and moves to its value. `None` at the
    /// end of the object, with the cursor after it.
    ///
    /// # Errors
    /// [`UnexpectedEncoding`] if the bytes are not in this crate's encoding.
    pub fn key(&mut self) -> Result<Option<&'a [u8]>, UnexpectedEncoding> {
        match self.peek()? {
            b'}' => {
                // Moving behind the brace here saves callers from knowing how the object ended.
                self.at += 1;
                return Ok(None);
            }
            // Commas are not required: input is our own encoding, so tolerance costs nothing and saves a state.
            b',' => self.at += 1,
            _ => {}
        }
        let from = self.at + 1;
        self.take(b'"')?;
        self.at = string_end(self.json, from)?;
        let key = &self.json[from..self.at - 1];
        self.take(b':')?;
        Ok(Some(key))
    }

    /// Moves to a member of the object at the cursor; false if the value is not an object, or has no such member.
    fn enter_member(&mut self, name: &str) -> Result<bool, UnexpectedEncoding> {
        if self.enter().is_err() {
            return Ok(false);
        }
        while let Some(key) = self.key()? {
            // Keys are compared in their encoded form, which is why `Step::Member` excludes names that JSON escapes.
            if key == name.as_bytes() {
                return Ok(true);
            }
            self.skip()?;
        }
        Ok(false)
    }

    /// Moves to an item of the list at the cursor; false if the value is not a list, or has no such item.
    fn enter_item(&mut self, index: usize) -> Result<bool, UnexpectedEncoding> {
        if self.take(b'[').is_err() {
            return Ok(false);
        }
        for _ in 0..index {
            if self.peek()? == b']' {
                return Ok(false);
            }
            self.skip()?;
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
        // `]` here means that the list ended exactly at the index.
        Ok(self.peek()? != b']')
    }

    /// Skips a value.
    ///
    /// # Errors
    /// [`UnexpectedEncoding`] if the bytes are not in this crate's encoding.
    pub fn skip(&mut self) -> Result<(), UnexpectedEncoding> {
        self.at = match self.peek()? {
            b'"' => string_end(self.json, self.at + 1)?,
            b'{' | b'[' => container_end(self.json, self.at)?,
            _ => match scalar_end(self.json, self.at) {
                // Skipping zero bytes would loop forever in a list.
                end if end == self.at => return Err(UnexpectedEncoding),
                end => end,
            },
        };
        Ok(())
    }

    /// Decodes the parts of the value selected by `mask`.
    ///
    /// # Errors
    /// [`UnexpectedEncoding`] if the bytes are not in this crate's encoding.
    pub fn read(&mut self, mask: &Mask) -> Result<Value, UnexpectedEncoding> {
        self.value(mask, 0)
    }

    fn value(&mut self, mask: &Mask, depth: usize) -> Result<Value, UnexpectedEncoding> {
        // Stored documents were bounded when they were encoded; this keeps recursion safe if the bytes are not ours.
        if depth > MAX_OWN_DEPTH {
            return Err(UnexpectedEncoding);
        }
        let from = self.at;
        match self.peek()? {
            b'"' => {
                self.at = string_end(self.json, from + 1)?;
                text(&self.json[from + 1..self.at - 1]).map(Value::String)
            }
            b'{' => {
                self.at += 1;
                self.object(mask, depth).map(Value::Object)
            }
            b'[' => {
                self.at += 1;
                self.list(mask, depth).map(Value::Array)
            }
            _ => {
                self.at = scalar_end(self.json, from);
                scalar(&self.json[from..self.at])
            }
        }
    }

    fn object(&mut self, mask: &Mask, depth: usize) -> Result<Map, UnexpectedEncoding> {
        let mut pairs: Vec<(Str, Value)> = Vec::new();
        while let Some(key) = self.key()? {
            // Matched once per object rather than per member, so that `Members` is the only arm that searches.
            match mask {
                Mask::Whole => pairs.push((text(key)?, self.value(mask, depth + 1)?)),
                Mask::Count => {
                    self.skip()?;
                    pairs.push((text(key)?, Value::Null));
                }
                Mask::Members(_) => match mask.member(key) {
                    // Cloning the mask's own `Str` avoids decoding the key again, and short names are inline anyway.
                    Some((name, mask)) => pairs.push((name.clone(), self.value(mask, depth + 1)?)),
                    None => self.skip()?,
                },
            }
        }
        Ok(Map::from_pairs(pairs))
    }

    fn list(&mut self, mask: &Mask, depth: usize) -> Result<Vec<Value>, UnexpectedEncoding> {
        let mut items = Vec::new();
        loop {
            match self.peek()? {
                b']' => {
                    self.at += 1;
                    return Ok(items);
                }
                b',' => self.at += 1,
                _ => {}
            }
            if *mask == Mask::Count {
                self.skip()?;
                items.push(Value::Null);
            } else {
                items.push(self.value(mask, depth + 1)?);
            }
        }
    }
}

/// Decodes the raw bytes between the quotes of a string.
fn text(raw: &[u8]) -> Result<Str, UnexpectedEncoding> {
    if !raw.contains(&b'\\') {
        // UTF-8 is checked here, per string read: skipped parts are never validated.
        return Str::from_utf8(raw).map_err(|_| UnexpectedEncoding);
    }
    // Escapes are rare: leave them to the general decoder.
    let quoted = [b"\"", raw, b"\""].concat();
    match decode(&quoted) {
        Ok(Value::String(s)) => Ok(s),
        _ => Err(UnexpectedEncoding),
    }
}

fn scalar(raw: &[u8]) -> Result<Value, UnexpectedEncoding> {
    /// 18 digits always fit an `i64`.
    const DIGITS: usize = 18;
    let digits = raw.strip_prefix(b"-").unwrap_or(raw);
    if !digits.is_empty() && digits.len() <= DIGITS && digits.iter().all(u8::is_ascii_digit) {
        let n = digits.iter().fold(0i64, |n, d| n * 10 + i64::from(d - b'0'));
        // Minus zero is a float and left to the general decoder.
        if digits.len() == raw.len() {
            return Ok(Value::Int(n));
        } else if n != 0 {
            return Ok(Value::Int(-n));
        }
    }
    match raw {
        b"true" => Ok(Value::Bool(true)),
        b"false" => Ok(Value::Bool(false)),
        b"null" => Ok(Value::Null),
        // Floats, long numbers and anything malformed.
        raw => decode(raw).map_err(|_| UnexpectedEncoding),
    }
}

fn scalar_end(json: &[u8], at: usize) -> usize {
    let ends = |b: &u8| matches!(b, b',' | b'}' | b']');
    json[at..].iter().position(ends).map_or(json.len(), |n| at + n)
}

/// Returns the offset after the closing quote of the string whose content starts at `at`.
pub(super) fn string_end(json: &[u8], mut at: usize) -> Result<usize, UnexpectedEncoding> {
    loop {
        // Scan eight bytes at a time: the lowest set bit marks the first quote or backslash.
        // `at` can lie behind the end after a trailing backslash.
        while let Some(word) = json[at.min(json.len())..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let found = zero_bytes(word ^ splat(b'"')) | zero_bytes(word ^ splat(b'\\'));
            if found != 0 {
                at += found.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match *json.get(at).ok_or(UnexpectedEncoding)? {
            b'"' => return Ok(at + 1),
            // Skips the escaped byte, which may be a quote; `\u` escapes need no more, since hex digits are plain.
            b'\\' => at += 2,
            // Fewer than eight bytes are left, or the word scan stopped at this byte.
            _ => at += 1,
        }
    }
}

/// Repeats a byte eight times.
pub(super) const fn splat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Sets the high bit of every zero byte. Bits above the first zero byte may be false positives.
pub(super) const fn zero_bytes(word: u64) -> u64 {
    // The classic bit trick: subtracting one borrows through zero bytes only, and `!word` removes bytes that had the
    // high bit set.
    word.wrapping_sub(splat(1)) & !word & splat(0x80)
}

/// Returns the offset after the object or list that starts at `at`.
fn container_end(json: &[u8], mut at: usize) -> Result<usize, UnexpectedEncoding> {
    // Strings are skipped as a whole, so that only structural brackets count.
    let mut depth = 0usize;
    loop {
        match *json.get(at).ok_or(UnexpectedEncoding)? {
            b'"' => {
                at = string_end(json, at + 1)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                // Cannot underflow: `at` starts at an opening bracket, and the walk ends when the depth returns to
                // zero.
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests;
