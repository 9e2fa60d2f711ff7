//! The logging flags.

use super::{UsageError, Values};

#[derive(Clone, Debug)]
pub(crate) struct LoggingOptions {
    /// `-v`.
    pub verbosity: i64,
    /// Log warnings and errors only, for `torana dev` without `-v`.
    pub only_warnings: bool,
    /// `--vmodule`: pairs of a module path below `torana` and its verbosity.
    pub modules: Vec<(String, i64)>,
}

impl LoggingOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let mut modules = Vec::new();
        for item in values.list("vmodule") {
            let fail = || UsageError::invalid("vmodule", &item, "expected module=verbosity, such as serving=5");
            let (module, level) = item.split_once('=').ok_or_else(fail)?;
            // The text becomes part of a filter expression, so its special characters must not get in.
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            if module.is_empty() || !module.chars().all(plain) {
                return Err(fail());
            }
            modules.push((module.to_owned(), level.parse().map_err(|_| fail())?));
        }
        Ok(Self {
            verbosity: values.int("v")?,
            only_warnings: false,
            modules,
        })
    }

    /// The filter in the syntax of `tracing_subscriber::EnvFilter`. Dependencies log at debug level from
    /// verbosity 8.
    pub(crate) fn filter(&self) -> String {
        let level = |v: i64| match v {
            0 if self.only_warnings => "warn",
            ..=3 => "info",
            4..=5 => "debug",
            6.. => "trace",
        };
        // Dependencies log per frame and per poll; at lower levels they would bury our own lines.
        let others = if self.verbosity >= 8 { "debug" } else { "warn" };
        let mut filter = format!("{others},torana={}", level(self.verbosity));
        for (module, verbosity) in &self.modules {
            filter.push_str(&format!(",torana::{module}={}", level(*verbosity)));
        }
        filter
    }
}
