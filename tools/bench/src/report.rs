//! The table of results that a run prints.

use crate::client::Load;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Default)]
pub struct Report {
    rows: Vec<Value>,
    beside: Option<&'static str>,
}

impl Report {
    /// Attributes the following rows to this other program. They have no goals, and show their ratio to the
    /// earlier row of the same name.
    pub fn for_peer(&mut self, program: &'static str) {
        self.beside = Some(program);
    }

    fn ratio(&self, what: &str, value: f64) -> Option<f64> {
        let row = self.rows.iter().find(|r| r["what"] == what)?;
        Some(value / row["value"].as_f64()?)
    }

    /// Adds a value, its unit, and its upper limit (0: no limit).
    pub fn row(&mut self, what: &str, value: f64, unit: &str, at_most: f64, note: &str) {
        if let Some(program) = self.beside.take() {
            let ratio = self.ratio(what, value).map(|x| format!("{x:.1} × Torana's"));
            let note: Vec<&str> = ratio
                .as_deref()
                .into_iter()
                .chain([note])
                .filter(|n| !n.is_empty())
                .collect();
            self.row(&format!("{what}: {program}"), value, unit, 0.0, &note.join("; "));
            self.beside = Some(program);
            return;
        }
        let verdict = if at_most == 0.0 {
            String::new()
        } else if value <= at_most {
            format!("≤ {at_most} ✓")
        } else {
            format!("> {at_most} ✗")
        };
        println!("| {what} | {value:.1} {unit} | {verdict} | {note} |");
        self.rows
            .push(json!({"what": what, "value": value, "unit": unit, "at_most": at_most, "note": note}));
    }

    pub fn write(&self, path: &std::path::Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(&self.rows).map_err(|e| e.to_string())?;
        std::fs::write(path, text).map_err(|e| e.to_string())?;
        println!("\nwritten to {}", path.display());
        Ok(())
    }
}

/// Microseconds of CPU time for each of `n` requests.
pub(crate) fn per(cpu: Duration, n: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / n.max(1) as f64
}

/// The remark of a row about a load.
pub(crate) fn note(l: &Load) -> String {
    format!(
        "{:.0}/s, mean {:.0} µs, p99 {:.0} µs, {} requests, {} failures",
        l.requests as f64 / l.seconds,
        l.mean_us,
        l.p99_us,
        l.requests,
        l.failures
    )
}
