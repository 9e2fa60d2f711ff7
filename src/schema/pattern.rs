//! Regular expressions in Go's RE2 syntax, matched in linear time.

pub(crate) use crate::apimachinery::regexp::SyntaxError;

use crate::apimachinery::regexp;
use regex::Regex;
use std::sync::OnceLock;

/// Maximum size of a compiled program in bytes; [`regexp`] rejects patterns long before that.
const SIZE_LIMIT: usize = 64 << 20;

/// A regular expression that was checked, and is compiled when it is first needed.
#[derive(Debug)]
pub(super) struct Pattern {
    source: Box<str>,
    /// Most definitions are never used, and a compiled expression takes many times the memory of its source.
    compiled: OnceLock<Option<Regex>>,
    cost: u32,
}

impl Pattern {
    /// Checks a regular expression.
    ///
    /// # Errors
    /// The syntax error, as Go words it.
    pub(super) fn new(source: &str) -> Result<Self, SyntaxError> {
        let cost = regexp::translate(source)?.cost;
        Ok(Self {
            source: source.into(),
            compiled: OnceLock::new(),
            cost,
        })
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The most steps that matching `text` takes.
    pub(super) fn steps(&self, text: &str) -> u64 {
        u64::from(self.cost.max(1)) * (text.len() as u64 + 1)
    }

    /// True if the expression matches anywhere in `text`.
    pub(super) fn is_match(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| compile(&self.source));
        compiled.as_ref().is_some_and(|r| r.is_match(text))
    }
}

fn compile(source: &str) -> Option<Regex> {
    let translated = regexp::translate(source).ok()?;
    let built = translated.compile(SIZE_LIMIT);
    // `regexp` accepts only patterns that compile, as a property test of random patterns shows.
    debug_assert!(built.is_ok(), "{source:?} became {:?}: {built:?}", translated.text);
    built.ok()
}
