//! [`DecodeBudget`]: a memory limit for decoded documents.
//!
//! A tree is larger than its encoding: an element of `[0,0,…]` takes two bytes of text and 32 in the tree, an
//! empty message in a protobuf list likewise, a small CBOR number takes a single byte, and a YAML alias
//! expands to any size. Every decoder charges an allocation to the budget before it allocates, and fails once
//! the budget is exhausted.

use crate::interrupt::checkpoint;
use crate::value::{Str, Value};

/// Bytes per element of a list.
// Charged by `size_of`, so that a larger `Value` tightens the budget by itself; a test pins the sizes behind
// `FACTOR`.
pub(crate) const ITEM: usize = size_of::<Value>();
/// Bytes per member of an object.
pub const PAIR: usize = size_of::<(Str, Value)>();

/// The tree of a document exceeds its [`DecodeBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the document takes more than {limit} bytes of memory when it is decoded")]
pub struct OverBudget {
    /// The whole budget, in bytes.
    pub limit: usize,
}

/// The remaining memory allowance of one document, in bytes.
#[derive(Clone, Debug)]
pub struct DecodeBudget {
    left: usize,
    limit: usize,
}

impl DecodeBudget {
    /// The smallest budget, granted to documents of any size.
    pub const MIN: usize = 4 << 20;
    /// The largest budget: sixteen times the largest body. No JSON text has a tree larger than that factor.
    pub const MAX: usize = 48 << 20;
    /// Bytes of budget per byte of body.
    pub(crate) const FACTOR: usize = 16;

    /// The budget for a client's document of `length` bytes.
    pub fn of_body(length: usize) -> Self {
        Self::of(length.saturating_mul(Self::FACTOR).clamp(Self::MIN, Self::MAX))
    }

    /// The budget for trusted documents that fit into memory, such as stored objects and the administrator's
    /// files.
    pub const fn unlimited() -> Self {
        Self::of(usize::MAX)
    }

    /// A budget of `limit` bytes.
    pub const fn of(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Charges `bytes` to the budget.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub fn take(&mut self, bytes: usize) -> Result<(), OverBudget> {
        // Every decoder charges as it goes, which makes this the one place where an abandoned decode stops.
        self.checkpoint();
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(OverBudget { limit: self.limit }),
        }
    }

    /// A cancellation point for decoding whose requester is gone. Unlimited budgets have none: the server's
    /// own documents are also decoded while a lock is held or in the course of a write.
    #[inline]
    pub fn checkpoint(&self) {
        if self.limit != usize::MAX {
            checkpoint();
        }
    }

    /// Appends to a list and charges the memory by which its capacity grows.
    ///
    /// # Errors
    /// The errors of [`take`](Self::take).
    pub fn push<T>(&mut self, list: &mut Vec<T>, item: T) -> Result<(), OverBudget> {
        if list.len() == list.capacity() {
            // Doubles like `Vec`, but starts with a capacity of one, because single-item lists are common.
            let more = list.len().max(1);
            self.take(more.saturating_mul(size_of::<T>()))?;
            list.reserve_exact(more);
        }
        list.push(item);
        Ok(())
    }

    /// Charges the memory of a string; short strings are stored inline and cost nothing extra.
    ///
    /// # Errors
    /// The errors of [`take`](Self::take).
    pub fn string(&mut self, length: usize) -> Result<(), OverBudget> {
        // `Str` keeps strings of up to its own size inline, so they are paid for by the element that holds them.
        if length > size_of::<Str>() {
            return self.take(length);
        }
        Ok(())
    }
}

/// The heap memory of a tree, excluding the root value itself.
pub fn weight(v: &Value) -> usize {
    let text = |s: &Str| if s.is_heap_allocated() { s.len() } else { 0 };
    match v {
        Value::String(s) => text(s),
        Value::Array(a) => a.iter().map(|v| ITEM + weight(v)).sum(),
        Value::Object(m) => {
            // Keys are `&str` here, so the length decides; a heap-allocated short key is undercounted by at most that
            // length.
            let key = |k: &str| if k.len() > size_of::<Str>() { k.len() } else { 0 };
            m.iter().map(|(k, v)| PAIR + key(k) + weight(v)).sum()
        }
        _ => 0,
    }
}

/// An upper bound of the memory needed to decode a body of JSON, CBOR or protobuf, for admission by memory: the
/// body, the text strings are built from, and the tree. In bytes.
pub fn decoded_size_limit(body_length: usize) -> usize {
    // The decoded text can be a second copy of the body: strings with escapes are built next to it.
    body_length
        .saturating_mul(2)
        .saturating_add(bounded(body_length, DecodeBudget::FACTOR))
}

/// The same for a body of YAML, whose parser also buffers tokens.
pub fn decoded_yaml_size_limit(body_length: usize) -> usize {
    /// Parser memory per body byte: a token of 376 bytes for an element of two.
    const TOKENS: usize = 376 / 2;
    decoded_size_limit(body_length).saturating_add(bounded(body_length, TOKENS))
}

/// Memory for decoding in addition to the text, limited to the largest budget.
fn bounded(body_length: usize, factor: usize) -> usize {
    body_length.saturating_mul(factor).min(DecodeBudget::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn budget_scales_with_the_body_within_bounds() {
        assert_eq!(DecodeBudget::of_body(10).limit, DecodeBudget::MIN);
        assert_eq!(DecodeBudget::of_body(1 << 20).limit, 16 << 20);
        assert_eq!(DecodeBudget::of_body(1 << 40).limit, DecodeBudget::MAX);
        assert_eq!(
            (ITEM, PAIR),
            (32, 56),
            "FACTOR is the size of an element divided by the two bytes of its text"
        );
    }

    #[test]
    fn limit_of_yaml_has_room_for_its_tokens() {
        assert_eq!(decoded_size_limit(10), 2 * 10 + DecodeBudget::FACTOR * 10);
        assert_eq!(decoded_yaml_size_limit(10), decoded_size_limit(10) + 188 * 10);
        let huge = usize::MAX / 2 - 2 * DecodeBudget::MAX;
        assert_eq!(decoded_yaml_size_limit(huge), 2 * huge + 2 * DecodeBudget::MAX);
    }

    #[test]
    fn lists_are_charged_for_capacity_growth() {
        let mut budget = DecodeBudget::of(8 * ITEM);
        let mut list = Vec::new();
        for i in 0..8 {
            budget.push(&mut list, Value::Int(i)).unwrap();
        }
        let why = budget.push(&mut list, Value::Null).unwrap_err().to_string();
        assert_eq!(
            why,
            "the document takes more than 256 bytes of memory when it is decoded"
        );
    }

    #[test]
    fn weight_counts_elements_members_and_long_strings() {
        let v = json!({"a": [1, 2], "b": "x".repeat(100)});
        assert_eq!(weight(&v), 2 * PAIR + 2 * ITEM + 100);
    }
}
