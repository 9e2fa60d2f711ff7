//! [`SyntaxError`]: why a pattern was rejected.

/// Why a pattern was rejected, and its invalid part.
#[derive(Debug, PartialEq, Eq)]
pub struct SyntaxError {
    pub(super) what: &'static str,
    pub(super) part: String,
}

impl SyntaxError {
    pub(super) fn new(what: &'static str, part: &str) -> Self {
        Self {
            what,
            part: part.to_owned(),
        }
    }
}

impl std::fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.what, self.part)
    }
}

impl std::error::Error for SyntaxError {}

pub(super) type Result<T, E = SyntaxError> = std::result::Result<T, E>;
