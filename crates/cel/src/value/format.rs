//! [`Format`]: a named format.

use std::fmt;

/// A format that strings can be validated against.
pub struct Format {
    pub(crate) name: &'static str,
    /// Validates a text; returns one message per error.
    pub(crate) validate: fn(&str) -> Vec<String>,
    /// The size of the pattern that stands for it in costs.
    pub(crate) pattern_size: u64,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
