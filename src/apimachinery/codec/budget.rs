//! How much memory a decoded document may take.
//!
//! A tree is larger than the text it is read from: an element of `[0,0,…]` has two bytes in the text and 32 in the tree, an
//! empty message of a protobuf list has two and 32, a number in CBOR has one, and an alias of YAML stands for as many bytes
//! as it likes. Each decoder counts what it allocates against a [`Budget`] before it does so, and gives up beyond it.

use crate::apimachinery::value::{Str, Value};
use crate::interrupt::checkpoint;

/// What an element of a list takes.
pub(crate) const ITEM: usize = size_of::<Value>();
/// What a member of an object takes.
pub(crate) const PAIR: usize = size_of::<(Str, Value)>();

/// The refusal of a document whose tree is too large.
pub(crate) fn refusal(limit: usize) -> String {
    format!("the document takes more than {limit} bytes of memory when it is decoded")
}

/// What the tree of one document may still take, in bytes.
#[derive(Clone, Debug)]
pub struct Budget {
    left: usize,
    limit: usize,
}

impl Budget {
    /// Documents of any size may take this much.
    pub const LEAST: usize = 4 << 20;
    /// No document may take more. That is sixteen times the largest body, which has room for any JSON: no text of JSON has a
    /// tree that is larger than that.
    pub const MOST: usize = 48 << 20;
    /// Bytes of a tree per byte of a body.
    pub const FACTOR: usize = 16;

    /// For a document that a client sent, of this length.
    pub fn of_body(length: usize) -> Self {
        Self::of(length.saturating_mul(Self::FACTOR).clamp(Self::LEAST, Self::MOST))
    }

    /// For a document that is known to fit into memory: a stored object, a file of the administrator.
    pub const fn unlimited() -> Self {
        Self::of(usize::MAX)
    }

    /// Of so many bytes.
    pub const fn of(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Takes from the budget.
    ///
    /// # Errors
    /// The text of a refusal, where it is used up.
    pub fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.checkpoint();
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(refusal(self.limit)),
        }
    }

    /// Lets a computation that nobody waits for end here, unless the document is the server's own: those are also decoded
    /// where a lock is held, or behind a write.
    #[inline]
    pub(crate) fn checkpoint(&self) {
        if self.limit != usize::MAX {
            checkpoint();
        }
    }

    /// Appends to a list, and takes the memory that it grows by.
    ///
    /// # Errors
    /// As of [`take`](Self::take).
    pub(crate) fn push<T>(&mut self, list: &mut Vec<T>, item: T) -> Result<(), String> {
        if list.len() == list.capacity() {
            // As a vector grows by itself, but that a list of one item, as many are, has room for one.
            let more = list.len().max(1);
            self.take(more.saturating_mul(size_of::<T>()))?;
            list.reserve_exact(more);
        }
        list.push(item);
        Ok(())
    }

    /// Takes the memory of a string; short ones stand where they are.
    ///
    /// # Errors
    /// As of [`take`](Self::take).
    pub(crate) fn string(&mut self, length: usize) -> Result<(), String> {
        if length > size_of::<Str>() {
            return self.take(length);
        }
        Ok(())
    }
}

/// What a tree takes, beside the value at its root.
pub(crate) fn weight(v: &Value) -> usize {
    let text = |s: &Str| if s.is_heap_allocated() { s.len() } else { 0 };
    match v {
        Value::String(s) => text(s),
        Value::Array(a) => a.iter().map(|v| ITEM + weight(v)).sum(),
        Value::Object(m) => {
            let key = |k: &str| if k.len() > size_of::<Str>() { k.len() } else { 0 };
            m.iter().map(|(k, v)| PAIR + key(k) + weight(v)).sum()
        }
        _ => 0,
    }
}

/// The most memory that decoding a body takes, for those who admit requests: the body itself, the text that strings are
/// made of, and the tree. Of YAML also the tokens that its parser holds.
pub fn decoded_size_estimate(body_length: usize, is_yaml: bool) -> usize {
    /// What an element of two bytes takes as tokens.
    const TOKENS: usize = 376 / 2;
    let bounded = |factor: usize| body_length.saturating_mul(factor).min(Budget::MOST);
    let tokens = if is_yaml { bounded(TOKENS) } else { 0 };
    body_length
        .saturating_mul(2)
        .saturating_add(bounded(Budget::FACTOR) + tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn budgets_follow_the_body_between_their_bounds() {
        assert_eq!(Budget::of_body(10).limit, Budget::LEAST);
        assert_eq!(Budget::of_body(1 << 20).limit, 16 << 20);
        assert_eq!(Budget::of_body(1 << 40).limit, Budget::MOST);
        assert_eq!(
            (ITEM, PAIR),
            (32, 56),
            "the factor is the size of an element over the two bytes of its text"
        );
    }

    #[test]
    fn lists_take_what_they_grow_by() {
        let mut budget = Budget::of(8 * ITEM);
        let mut list = Vec::new();
        for i in 0..8 {
            budget.push(&mut list, Value::Int(i)).unwrap();
        }
        let why = budget.push(&mut list, Value::Null).unwrap_err();
        assert_eq!(
            why,
            "the document takes more than 256 bytes of memory when it is decoded"
        );
    }

    #[test]
    fn a_tree_weighs_its_elements_members_and_long_strings() {
        let v = json!({"a": [1, 2], "b": "x".repeat(100)});
        assert_eq!(weight(&v), 2 * PAIR + 2 * ITEM + 100);
    }
}
