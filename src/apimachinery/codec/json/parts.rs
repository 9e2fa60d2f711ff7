//! Parts of an encoded object, read without decoding the rest: what tables and metadata look at of stored bytes.
//!
//! The bytes are this crate's own encoding: no white space between tokens, strings in UTF-8. Nothing is judged here; where
//! the bytes are something else, readers say [`Odd`] and the caller decodes the whole.

use super::{MAX_DEPTH, decode};
use crate::apimachinery::value::{Map, Str, Value};

/// The bytes are not what this crate encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odd;

/// Which parts of a document somebody reads. Lists are passed through: a mask holds for each item.
#[derive(Clone, Debug, PartialEq)]
pub enum Mask {
    /// Everything.
    Whole,
    /// How many members or items there are: values become null.
    Count,
    /// These members; the others are left out.
    Members(Vec<(Str, Mask)>),
}

impl Mask {
    /// The mask of these paths: `metadata.name`, `spec.containers.image` (of each container), `status.{phase,reason}` (both);
    /// `data.#` is [`Mask::Count`] of what `data` holds.
    pub fn of(paths: &[&str]) -> Self {
        let mut mask = Self::Members(Vec::new());
        for path in paths {
            mask.add(path);
        }
        mask
    }

    /// Adds a path.
    pub fn add(&mut self, path: &str) {
        if path == "#" {
            *self = Self::Count;
            return;
        }
        if let Some(all) = path.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            return all.split(',').for_each(|p| self.add(p));
        }
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let Self::Members(members) = self else { return };
        let i = match members.iter().position(|(name, _)| name == first) {
            Some(i) => i,
            None => {
                members.push((Str::new(first), Self::Members(Vec::new())));
                members.len() - 1
            }
        };
        if rest.is_empty() {
            members[i].1 = Self::Whole;
        } else {
            members[i].1.add(rest);
        }
    }

    /// What is read of the member of this name, and the name.
    pub fn member(&self, name: &[u8]) -> Option<(&Str, &Mask)> {
        let Self::Members(members) = self else { return None };
        members
            .iter()
            .find(|(n, _)| n.as_bytes() == name)
            .map(|(n, mask)| (n, mask))
    }
}

/// The parts of an encoded document that a mask names.
///
/// # Errors
/// [`Odd`]
pub fn read(json: &[u8], mask: &Mask) -> Result<Value, Odd> {
    Cursor::at(json, 0).read(mask)
}

/// A place in an encoded document.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At an offset, where a value begins.
    pub fn at(json: &'a [u8], at: usize) -> Self {
        Self { json, at }
    }

    /// The offset.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Goes to an offset that is known to be behind a value.
    pub fn go(&mut self, offset: usize) {
        self.at = offset;
    }

    fn peek(&self) -> Result<u8, Odd> {
        self.json.get(self.at).copied().ok_or(Odd)
    }

    fn take(&mut self, byte: u8) -> Result<(), Odd> {
        if self.peek()? != byte {
            return Err(Odd);
        }
        self.at += 1;
        Ok(())
    }

    /// Steps into an object, before its first member.
    ///
    /// # Errors
    /// There is none.
    pub fn enter(&mut self) -> Result<(), Odd> {
        self.take(b'{')
    }

    /// The key of the next member, as it stands between its quotes; the cursor goes to the value. `None`: the object ends,
    /// and the cursor stands behind it.
    ///
    /// # Errors
    /// [`Odd`]
    pub fn key(&mut self) -> Result<Option<&'a [u8]>, Odd> {
        match self.peek()? {
            b'}' => {
                self.at += 1;
                return Ok(None);
            }
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

    /// Steps over a value.
    ///
    /// # Errors
    /// [`Odd`]
    pub fn skip(&mut self) -> Result<(), Odd> {
        self.at = match self.peek()? {
            b'"' => string_end(self.json, self.at + 1)?,
            b'{' | b'[' => container_end(self.json, self.at)?,
            _ => match scalar_end(self.json, self.at) {
                // Where no value stands there is nothing to step over, and a list would not come to its end.
                end if end == self.at => return Err(Odd),
                end => end,
            },
        };
        Ok(())
    }

    /// Reads what a mask names of a value.
    ///
    /// # Errors
    /// [`Odd`]
    pub fn read(&mut self, mask: &Mask) -> Result<Value, Odd> {
        self.value(mask, 0)
    }

    fn value(&mut self, mask: &Mask, depth: usize) -> Result<Value, Odd> {
        if depth > MAX_DEPTH {
            return Err(Odd);
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

    fn object(&mut self, mask: &Mask, depth: usize) -> Result<Map, Odd> {
        let mut pairs: Vec<(Str, Value)> = Vec::new();
        while let Some(key) = self.key()? {
            match mask {
                Mask::Whole => pairs.push((text(key)?, self.value(mask, depth + 1)?)),
                Mask::Count => {
                    self.skip()?;
                    pairs.push((text(key)?, Value::Null));
                }
                Mask::Members(_) => match mask.member(key) {
                    Some((name, mask)) => pairs.push((name.clone(), self.value(mask, depth + 1)?)),
                    None => self.skip()?,
                },
            }
        }
        Ok(Map::from_pairs(pairs))
    }

    fn list(&mut self, mask: &Mask, depth: usize) -> Result<Vec<Value>, Odd> {
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

/// The string whose bytes stand between quotes.
fn text(raw: &[u8]) -> Result<Str, Odd> {
    if !raw.contains(&b'\\') {
        return Str::from_utf8(raw).map_err(|_| Odd);
    }
    let quoted = [b"\"", raw, b"\""].concat();
    match decode(&quoted) {
        Ok(Value::String(s)) => Ok(s),
        _ => Err(Odd),
    }
}

fn scalar(raw: &[u8]) -> Result<Value, Odd> {
    /// Integers with fewer digits fit.
    const DIGITS: usize = 18;
    let digits = raw.strip_prefix(b"-").unwrap_or(raw);
    if !digits.is_empty() && digits.len() <= DIGITS && digits.iter().all(u8::is_ascii_digit) {
        let n = digits.iter().fold(0i64, |n, d| n * 10 + i64::from(d - b'0'));
        // Minus zero is a float.
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
        raw => decode(raw).map_err(|_| Odd),
    }
}

fn scalar_end(json: &[u8], at: usize) -> usize {
    let ends = |b: &u8| matches!(b, b',' | b'}' | b']');
    json[at..].iter().position(ends).map_or(json.len(), |n| at + n)
}

/// Behind the quote that closes the string whose first byte is at `at`.
pub(super) fn string_end(json: &[u8], mut at: usize) -> Result<usize, Odd> {
    loop {
        // Eight bytes at a time: the lowest bit of a zero byte stands for one that is looked for.
        while let Some(word) = json[at.min(json.len())..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*word);
            let found = zero_bytes(word ^ splat(b'"')) | zero_bytes(word ^ splat(b'\\'));
            if found != 0 {
                at += found.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match *json.get(at).ok_or(Odd)? {
            b'"' => return Ok(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The byte eight times.
pub(super) const fn splat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The high bit of each zero byte, exact up to the first one.
pub(super) const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(splat(1)) & !word & splat(0x80)
}

/// Behind the object or list that begins at `at`.
fn container_end(json: &[u8], mut at: usize) -> Result<usize, Odd> {
    let mut depth = 0usize;
    loop {
        match *json.get(at).ok_or(Odd)? {
            b'"' => {
                at = string_end(json, at + 1)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
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
