//! `torana doctor`: examines a machine and the resources that the server would use on it, and reports what to
//! fix. It writes only a temporary file in the data directory, to measure the latency of a sync. Entry point:
//! [`run`].

mod backends;
mod certificates;
mod data_dir;
mod etcd;
mod machine;

use crate::apimachinery::Value;
use crate::apimachinery::codec::json;
use crate::cli::{CompletedOptions, DoctorCommand};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// The server works, but not as well or not for long.
    Warning,
    /// The server does not start, or must not be trusted.
    Error,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    check: &'static str,
    severity: Severity,
    what: String,
    /// The remedy; empty if there is none.
    mend: String,
}

impl Finding {
    fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Severity::Ok, what, "")
    }

    fn warning(check: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::new(check, Severity::Warning, what, mend)
    }

    fn error(check: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::new(check, Severity::Error, what, mend)
    }

    fn new(check: &'static str, severity: Severity, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            check,
            severity,
            what: what.into(),
            mend: mend.into(),
        }
    }
}

/// The findings as text, and whether none of them is an error.
#[derive(Debug)]
pub struct Report {
    /// The text to print.
    pub text: String,
    /// False if a finding is severe enough that a server should not be started.
    pub healthy: bool,
}

/// Runs all checks. It blocks for as long as disk and peers take, and needs a tokio runtime.
pub fn run(command: DoctorCommand) -> BoxFuture<'static, Report> {
    async move {
        let mut findings = Vec::new();
        // The clients of etcd and webhooks read the files that these flags name, so a mistake in them ends
        // the examination early.
        match command.options.complete() {
            Ok(options) => examine(&options, &mut findings).await,
            Err(error) => {
                findings.push(Finding::error(
                    "configuration",
                    error.to_string(),
                    "correct the flag or the file",
                ));
                // The machine needs no options, so a mistake in them does not hide its faults.
                machine::examine(&mut findings);
            }
        }
        report(&findings, command.json)
    }
    .boxed()
}

async fn examine(options: &CompletedOptions, findings: &mut Vec<Finding>) {
    findings.push(match options.warnings.as_slice() {
        [] => Finding::ok("configuration", "every flag is valid, and every file that one names"),
        warnings => Finding::warning("configuration", warnings.join("; "), "correct or remove these flags"),
    });
    machine::examine(findings);
    // First, because the port is expected to be taken if a gateway runs.
    let running = backends::running(options).await;
    findings.push(machine::port(options, running.is_some()));
    data_dir::examine(&options.storage.data_dir, options.storage.etcd.is_none(), findings);
    certificates::examine(options, findings);
    if let Some(settings) = &options.storage.etcd {
        etcd::examine(settings, findings).await;
    }
    backends::examine(options, running, findings).await;
}

fn report(findings: &[Finding], as_json: bool) -> Report {
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let text = if as_json {
        let rows = findings.iter().map(|f| {
            crate::json!({"check": (f.check), "severity": (f.severity.word()), "finding": (f.what.as_str()), "mend": (f.mend.as_str())})
        });
        let rows: Vec<Value> = rows.collect();
        String::from_utf8_lossy(&json::to_vec_pretty(&crate::json!({"findings": (rows)}))).into_owned() + "\n"
    } else {
        let mut out = String::new();
        for f in findings {
            out += &format!("{:<8} {:<14} {}\n", f.severity.word(), f.check, f.what);
            if !f.mend.is_empty() {
                out += &format!("{:<8} {:<14} -> {}\n", "", "", f.mend);
            }
        }
        out + &format!("{} checks: {errors} errors, {warnings} warnings\n", findings.len())
    };
    Report {
        text,
        healthy: errors == 0,
    }
}

#[cfg(test)]
mod tests;
