//! The rows a run prints.

use serde_json::{Value, json};

#[derive(Default)]
pub struct Report {
    rows: Vec<Value>,
}

impl Report {
    /// A figure, its unit, and the most it may be (0: no figure is promised).
    pub fn row(&mut self, what: &str, value: f64, unit: &str, at_most: f64, note: &str) {
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
