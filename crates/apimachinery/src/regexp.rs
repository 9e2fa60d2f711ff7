//! Regular expressions in Go's RE2 syntax: [`translate`] checks them with Go's errors and rewrites them for the `regex` crate,
//! which matches in linear time, too.

mod class;
mod syntax;

pub use syntax::{SyntaxError, Translated, translate};

#[cfg(test)]
mod tests;
