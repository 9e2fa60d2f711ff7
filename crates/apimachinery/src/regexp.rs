//! Regular expressions in Go's RE2 syntax: [`translate`] checks them with Go's errors and rewrites them for
//! the `regex` crate, which matches in linear time, too.

mod class;
mod error;
mod repetition;
mod syntax;

pub use error::SyntaxError;
pub use syntax::{Translated, translate};

#[cfg(test)]
mod tests;
