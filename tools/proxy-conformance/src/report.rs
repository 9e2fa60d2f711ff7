//! Formats the results for people and programs.

use crate::case::Level;
use crate::client::Http;
use crate::run::CaseResult;
use serde_json::json;
use std::fmt::Write as _;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of text.
    Table,
    /// One JSON document.
    Json,
    /// The Test Anything Protocol.
    Tap,
}

impl CaseResult {
    /// The combination: `1>h2` is HTTP/1.1 to the gateway, and the backend `h2`.
    pub fn combination(&self) -> String {
        let http = match self.http {
            Http::Http1 => 1,
            Http::Http2 => 2,
        };
        format!("{http}>{}", self.backend)
    }
}

/// Formats all results.
pub fn format(results: &[CaseResult], format: Format) -> String {
    let mut out = String::new();
    match format {
        Format::Table => {
            for v in results {
                let word = match (&v.outcome, v.level) {
                    (Ok(()), _) => "ok",
                    (Err(_), Level::Must) => "FAILED",
                    (Err(_), Level::Upstream) => "differs",
                    (Err(_), Level::Beyond) => "lacks",
                };
                let _ = writeln!(out, "{word:8} {:9} {:12} {}", v.id, v.combination(), v.claim);
                if let Err(why) = &v.outcome {
                    let _ = writeln!(out, "{:31} {why}", "");
                }
            }
            let Counts {
                ok,
                failed,
                differs,
                lacks,
            } = counts(results);
            let _ = writeln!(
                out,
                "{ok} hold, {failed} fail, {differs} differ from kube-apiserver where a gateway may, {lacks} go beyond it and are lacking"
            );
        }
        Format::Json => {
            let cases: Vec<_> = results
                .iter()
                .map(|v| {
                    json!({"id": v.id, "claim": v.claim, "combination": v.combination(), "ok": v.outcome.is_ok(),
                        "level": match v.level { Level::Must => "must", Level::Upstream => "upstream", Level::Beyond => "beyond" },
                        "why": v.outcome.as_ref().err(), "milliseconds": v.took.as_millis() as u64})
                })
                .collect();
            let c = counts(results);
            let all = json!({"ok": c.ok, "failed": c.failed, "differs": c.differs, "lacks": c.lacks, "cases": cases});
            let _ = writeln!(out, "{all:#}");
        }
        Format::Tap => {
            let _ = writeln!(out, "TAP version 14\n1..{}", results.len());
            for (i, v) in results.iter().enumerate() {
                let not = if v.outcome.is_ok() { "" } else { "not " };
                let todo = match (&v.outcome, v.level) {
                    (Err(_), Level::Upstream) => " # TODO differs from kube-apiserver, as a gateway may",
                    (Err(_), Level::Beyond) => " # TODO kube-apiserver does not support this either",
                    _ => "",
                };
                let name = format!("{} {} {}", v.id, v.combination(), v.claim).replace('#', "\\#");
                let _ = writeln!(out, "{not}ok {} - {name}{todo}", i + 1);
                if let Err(why) = &v.outcome {
                    let _ = writeln!(out, "  ---\n  message: {}\n  ...", json!(why));
                }
            }
        }
    }
    out
}

/// The number of cases that hold and, per level, of those that do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cases that hold.
    pub ok: usize,
    /// Cases that must hold and do not.
    pub failed: usize,
    /// Cases that differ from kube-apiserver.
    pub differs: usize,
    /// Cases that behave as in kube-apiserver, where a gateway could do better.
    pub lacks: usize,
}

/// Counts the results.
pub fn counts(results: &[CaseResult]) -> Counts {
    let mut all = Counts::default();
    for v in results {
        match (&v.outcome, v.level) {
            (Ok(()), _) => all.ok += 1,
            (Err(_), Level::Must) => all.failed += 1,
            (Err(_), Level::Upstream) => all.differs += 1,
            (Err(_), Level::Beyond) => all.lacks += 1,
        }
    }
    all
}
