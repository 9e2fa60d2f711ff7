//! Parses Go's regular expression syntax (`regexp/syntax`, Perl flags), with Go's error texts, and rewrites
//! it for the `regex` crate. The entry point is [`translate`].
//!
//! Differences between the two: in Go `\d \s \w \b` are ASCII only, a `{` that starts no repetition is a
//! literal, `\Q…\E` quotes, classes have no set operations, and a repetition cannot be repeated. Captures
//! become plain groups.

use super::class;
use super::error::{Result, SyntaxError};
use super::repetition::{Counts, MAX_REPEAT, repetition};
use crate::interrupt::checkpoint;
use regex::{Regex, RegexBuilder};
use std::fmt::Write;

/// Maximum nesting depth of groups, as in Go.
const MAX_DEPTH: usize = 1000;
/// Maximum estimated program size; see [`Translated::cost`]. Go's own limit is some ten times higher.
const MAX_COST: u32 = 200_000;

/// Size in bytes of the cache of a lazily built automaton. The default of two megabytes would let a thousand
/// patterns hold gigabytes.
const CACHE_LIMIT: usize = 256 << 10;
/// Groups and repetitions nest that deep in what [`MAX_DEPTH`] accepts.
const NEST_LIMIT: u32 = 2048;

/// A pattern for the `regex` crate.
#[derive(Debug)]
pub struct Translated {
    /// The pattern in that crate's syntax.
    pub text: String,
    /// Estimated size of the compiled program, in states; matching takes at most this many steps for each
    /// byte.
    pub cost: u32,
}

/// The last item of a concatenation, which a repetition would apply to.
#[derive(Clone, Copy)]
struct Atom {
    cost: u32,
    /// The largest product of the counts of repetitions nested in it.
    product: u32,
    /// True if an operator follows it in the rewritten pattern.
    repeated: bool,
}

/// The part of an open group that was read.
struct Group {
    cost: u32,
    product: u32,
    last: Option<Atom>,
}

impl Group {
    const EMPTY: Self = Self {
        cost: 0,
        product: 1,
        last: None,
    };

    fn push(&mut self, atom: Atom) {
        self.settle();
        self.last = Some(atom);
    }

    /// Adds the last item to the totals.
    fn settle(&mut self) {
        if let Some(atom) = self.last.take() {
            self.cost = self.cost.saturating_add(atom.cost);
            self.product = self.product.max(atom.product);
        }
    }
}

struct Parser<'a> {
    whole: &'a str,
    out: String,
    /// Open groups; the first is the pattern itself.
    groups: Vec<Group>,
    /// Where the last item ends in `out`. Flags such as `(?i)` may follow it, and a repetition still applies
    /// to the item.
    item_end: usize,
    /// Repetitions behind such flags, and where each belongs in `out`; in this order. Inserted at the end: one by one,
    /// each would move all flags behind it.
    late: Vec<(usize, &'a str)>,
}

impl Translated {
    /// Compiles the pattern into at most `size` bytes. What [`translate`] accepts takes some hundred bytes
    /// for each unit of [`Translated::cost`].
    ///
    /// # Errors
    /// The program is larger.
    pub fn compile(&self, size: usize) -> Result<Regex, regex::Error> {
        RegexBuilder::new(&self.text)
            .size_limit(size)
            .dfa_size_limit(CACHE_LIMIT)
            // Bounds memory per pattern, not matching time, which is linear either way.
            .nest_limit(NEST_LIMIT)
            .build()
    }
}

/// Checks a pattern in Go's syntax and rewrites it for the `regex` crate, where it matches the same texts.
///
/// ```
/// use torana_apimachinery::regexp::translate;
///
/// assert!(translate(r"^\d+$").is_ok());
/// let error = translate("a**").unwrap_err();
/// assert_eq!(error.to_string(), "error parsing regexp: invalid nested repetition operator: `**`");
/// ```
///
/// # Errors
/// [`SyntaxError`], in Go's words; also for a pattern whose program would be too large.
pub fn translate(whole: &str) -> Result<Translated> {
    let mut p = Parser {
        whole,
        out: String::with_capacity(whole.len() + 16),
        groups: vec![Group::EMPTY],
        item_end: 0,
        late: Vec::new(),
    };
    let mut rest = whole;
    let mut last_repeat = "";
    while let Some(c) = rest.chars().next() {
        checkpoint();
        let before = rest;
        let after = &rest[c.len_utf8()..];
        let mut repeat = "";
        rest = match c {
            '(' => p.open(rest)?,
            '|' => {
                // Branches share one cost: all of them are compiled.
                p.top().settle();
                p.out.push('|');
                after
            }
            ')' => {
                p.close()?;
                after
            }
            '^' | '$' => {
                p.out.push(c);
                p.atom(1);
                after
            }
            '.' => {
                p.out.push('.');
                p.atom(class::DOT_COST);
                after
            }
            '[' => {
                let (after, cost) = class::bracketed(rest, &mut p.out)?;
                p.atom(cost);
                after
            }
            '*' | '+' | '?' => {
                repeat = before;
                p.repeat(before, after, last_repeat, None)?
            }
            '{' => match repetition(rest) {
                Some((counts, after)) => {
                    repeat = before;
                    p.repeat(before, after, last_repeat, Some(counts))?
                }
                None => {
                    p.literal('{');
                    after
                }
            },
            '\\' => p.escape(rest)?,
            other => {
                p.literal(other);
                after
            }
        };
        last_repeat = repeat;
        // Checked before the rest is parsed: a pattern may contain a hundred thousand Unicode classes.
        if p.top().cost > MAX_COST {
            return Err(SyntaxError::new("expression too large", whole));
        }
    }
    // The outermost group is always open.
    if p.groups.len() != 1 {
        return Err(SyntaxError::new("missing closing )", whole));
    }
    p.top().settle();
    let cost = p.top().cost;
    if cost > MAX_COST {
        return Err(SyntaxError::new("expression too large", whole));
    }
    Ok(Translated { text: p.text(), cost })
}

impl<'a> Parser<'a> {
    fn top(&mut self) -> &mut Group {
        self.groups.last_mut().expect("the outermost group is never closed")
    }

    fn atom(&mut self, cost: u32) {
        self.push(Atom {
            cost,
            product: 1,
            repeated: false,
        });
    }

    /// Adds an item, which was just written.
    fn push(&mut self, atom: Atom) {
        self.item_end = self.out.len();
        self.top().push(atom);
    }

    fn literal(&mut self, c: char) {
        push_char(&mut self.out, c);
        self.atom(c.len_utf8() as u32);
    }

    fn open(&mut self, rest: &'a str) -> Result<&'a str> {
        // Checked before the group opens; the `regex` crate's parser recurses per level.
        if self.groups.len() > MAX_DEPTH {
            return Err(SyntaxError::new("expression nests too deeply", self.whole));
        }
        let (group, after) = match rest.starts_with("(?") {
            true => flags(rest, &mut self.out)?,
            false => {
                // Captures become plain groups: matching never asks for them, and captures cost memory.
                self.out.push_str("(?:");
                (true, &rest[1..])
            }
        };
        // Flags alone, `(?i)`, open no group.
        if group {
            self.groups.push(Group::EMPTY);
        }
        Ok(after)
    }

    fn close(&mut self) -> Result<()> {
        if self.groups.len() == 1 {
            return Err(SyntaxError::new("unexpected )", self.whole));
        }
        self.out.push(')');
        self.top().settle();
        // Not empty: the length was checked above.
        let Some(Group { cost, product, .. }) = self.groups.pop() else {
            return Ok(());
        };
        let cost = cost.saturating_add(1);
        self.push(Atom {
            cost,
            product,
            repeated: false,
        });
        Ok(())
    }

    /// Handles `*`, `+`, `?` (`counts` is `None`) and `{…}` at the start of `before`.
    fn repeat(
        &mut self,
        before: &'a str,
        mut after: &'a str,
        last_repeat: &str,
        counts: Option<Counts>,
    ) -> Result<&'a str> {
        let written = |after: &str| &before[..before.len() - after.len()];
        // In Go's order: the count is checked before a trailing `?` is read.
        if counts.is_some_and(Counts::too_large) {
            return Err(SyntaxError::new("invalid repeat count", written(after)));
        }
        after = after.strip_prefix('?').unwrap_or(after);
        if !last_repeat.is_empty() {
            // Go quotes both operators in this message.
            let both = &last_repeat[..last_repeat.len() - after.len()];
            return Err(SyntaxError::new("invalid nested repetition operator", both));
        }
        let missing = || SyntaxError::new("missing argument to repetition operator", written(after));
        let atom = self.top().last.ok_or_else(missing)?;
        let (times, product) = match counts {
            None => (1, atom.product),
            // `{0}` matches nothing, so what it repeats is not compiled.
            Some(Counts { max: Some(0), .. }) => (0, 1),
            Some(Counts { min, max }) => {
                // An optional copy costs as much as a mandatory one, and an open upper end needs one copy for its
                // loop.
                let times = max.unwrap_or(min).max(1);
                (times.max(min.saturating_add(1)), times.saturating_mul(atom.product))
            }
        };
        let repeats = counts.is_some_and(|c| c.min >= 2 || c.max.is_some_and(|m| m >= 2));
        // Go limits the product of nested counts, because `(a{1000}){1000}` expands to a million copies.
        if repeats && product > MAX_REPEAT {
            return Err(SyntaxError::new("invalid repeat count", written(after)));
        }
        let cost = atom.cost.saturating_mul(times).saturating_add(1);
        // The costs of the open groups were checked when they last changed.
        if cost > MAX_COST {
            return Err(SyntaxError::new("expression too large", self.whole));
        }
        self.top().last = Some(Atom {
            cost,
            product,
            repeated: true,
        });
        let operator = match written(after) {
            // Directly behind another operator, which flags separate in Go, a question mark would make that one lazy.
            optional if atom.repeated && optional.starts_with('?') => "{0,1}",
            operator => operator,
        };
        // Flags such as `(?i)` may have been written behind the item, and the operator must not apply to them.
        if self.item_end < self.out.len() {
            self.late.push((self.item_end, operator));
        } else {
            self.out.push_str(operator);
            self.item_end = self.out.len();
        }
        Ok(after)
    }

    /// The rewritten pattern.
    fn text(self) -> String {
        if self.late.is_empty() {
            return self.out;
        }
        let mut text = String::with_capacity(self.out.len() + self.whole.len());
        let mut from = 0;
        for (at, operator) in self.late {
            text.push_str(&self.out[from..at]);
            text.push_str(operator);
            from = at;
        }
        text.push_str(&self.out[from..]);
        text
    }

    /// Handles a backslash outside of a class.
    fn escape(&mut self, rest: &'a str) -> Result<&'a str> {
        let c = rest[1..].chars().next();
        let after = c.map_or("", |c| &rest[1 + c.len_utf8()..]);
        match c {
            Some('A') => self.out.push_str("\\A"),
            Some('z') => self.out.push_str("\\z"),
            // Byte-wise, because Go's `\b` only knows ASCII words.
            Some('b') => self.out.push_str("(?-u:\\b)"),
            // A byte-wise `\B` could match inside a multi-byte character, but `str` positions are never
            // inside one.
            Some('B') => self.out.push_str("(?-u:\\B)"),
            Some('C') => return Err(SyntaxError::new("invalid escape sequence", "\\C")),
            Some('Q') => {
                let (quoted, after) = after.split_once("\\E").unwrap_or((after, ""));
                // Each character is an item of its own, so a repetition after `\E` applies to the last one only.
                quoted.chars().for_each(|c| self.literal(c));
                return Ok(after);
            }
            _ => {
                // Before `escaped`, which would reject these letters.
                if let Some((after, cost)) = class::unicode(rest, &mut self.out)? {
                    self.atom(cost);
                    return Ok(after);
                }
                if let Some((ranges, negated, after)) = class::perl(rest) {
                    let not = if negated { "^" } else { "" };
                    let _ = write!(self.out, "[{not}{ranges}]");
                    self.atom(class::DOT_COST);
                    return Ok(after);
                }
                let (code, after) = class::escaped(rest)?;
                match char::from_u32(code) {
                    Some(c) => self.literal(c),
                    None => {
                        // A surrogate never occurs in a text.
                        self.out.push_str(class::NOTHING);
                        self.atom(1);
                    }
                }
                return Ok(after);
            }
        }
        self.atom(1);
        Ok(after)
    }
}

/// Appends a literal, escaped where the `regex` crate needs it.
pub(super) fn push_char(out: &mut String, c: char) {
    // Everything else is escaped numerically, which spares a list of the crate's special characters and flags.
    if c.is_alphanumeric() || c == '_' {
        out.push(c);
    } else {
        let _ = write!(out, "\\x{{{:x}}}", u32::from(c));
    }
}

/// Handles `(?` at the start of `s`: a named capture, flags, or a group with flags. Returns whether a group
/// was opened.
fn flags<'a>(s: &'a str, out: &mut String) -> Result<(bool, &'a str)> {
    // Go 1.22 also accepts `(?<name>`.
    let name = if s.len() > 4 && s[2..].starts_with("P<") {
        Some(4)
    } else {
        (s.len() > 3 && s[2..].starts_with('<')).then_some(3)
    };
    if let Some(start) = name {
        let Some(end) = s.find('>') else {
            return Err(SyntaxError::new("invalid named capture", s));
        };
        let valid = |c: char| c == '_' || c.is_ascii_alphanumeric();
        if end <= start || !s[start..end].chars().all(valid) {
            return Err(SyntaxError::new("invalid named capture", &s[..=end]));
        }
        out.push_str("(?:");
        return Ok((true, &s[end + 1..]));
    }
    let (mut on, mut off, mut negative, mut seen) = (String::new(), String::new(), false, false);
    for (i, c) in s.char_indices().skip(2) {
        match c {
            // Only the letters themselves: Go has no `x` or `u` flags.
            'i' | 'm' | 's' | 'U' => {
                seen = true;
                on.retain(|f| f != c);
                let list = if negative { &mut off } else { &mut on };
                if !list.contains(c) {
                    list.push(c);
                }
            }
            // A minus must be followed by a flag, hence `seen` starts over.
            '-' if !negative => (negative, seen) = (true, false),
            ':' | ')' if !negative || seen => {
                let off = if off.is_empty() { off } else { format!("-{off}") };
                // A bare `(?)` sets nothing; the crate would reject it.
                if c == ':' || !on.is_empty() || !off.is_empty() {
                    let _ = write!(out, "(?{on}{off}{c}");
                }
                return Ok((c == ':', &s[i + 1..]));
            }
            other => {
                let part = &s[..i + other.len_utf8()];
                return Err(SyntaxError::new("invalid or unsupported Perl syntax", part));
            }
        }
    }
    // Upstream's rule for `(?i` without an end.
    Err(SyntaxError::new("invalid or unsupported Perl syntax", s))
}
