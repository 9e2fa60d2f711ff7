//! Counted repetitions: `{min,max}`.

/// Maximum count of a repetition, and product of nested ones, as in Go.
pub(super) const MAX_REPEAT: u32 = 1000;

/// The counts of a `{min,max}`; `max` is `None` without an upper limit.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub min: u32,
    pub max: Option<u32>,
}

impl Counts {
    pub(super) fn too_large(self) -> bool {
        self.min > MAX_REPEAT || self.max.is_some_and(|m| m > MAX_REPEAT || m < self.min)
    }
}

/// Parses a repetition `{n}`, `{n,}` or `{n,m}` at the start of `s`; anything else is a literal brace.
pub(super) fn repetition(s: &str) -> Option<(Counts, &str)> {
    let (min, s) = number(s.strip_prefix('{')?)?;
    let (max, s) = match s.strip_prefix(',') {
        None => (Some(min), s),
        Some(s) if s.starts_with('}') => (None, s),
        Some(s) => {
            let (max, s) = number(s)?;
            (Some(max), s)
        }
    };
    Some((Counts { min, max }, s.strip_prefix('}')?))
}

/// A decimal number without leading zeros; too large ones saturate.
fn number(s: &str) -> Option<(u32, &str)> {
    let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let (digits, rest) = s.split_at(end);
    // Go reads `{01}` as literal text.
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}
