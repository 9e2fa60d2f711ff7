//! `torana status`: shows the state of each APIService and of each admission webhook, queried from
//! `/debug/aggregator` and `/debug/admission` of a running server.

mod webhooks;

use super::QueryError;
use crate::apimachinery::codec::{json, yaml};
use crate::apimachinery::time;
use crate::apimachinery::value::Value;
use crate::client::Client;
use crate::client::rest::ClientError;
use clap::{Arg, ArgAction, ArgMatches};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const PATH: &str = "/debug/aggregator?format=json";
const ADMISSION_PATH: &str = "/debug/admission";
/// Interval of `--watch`.
const PERIOD: Duration = Duration::from_secs(2);

/// What `torana status` shows, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCommand {
    kubeconfig: PathBuf,
    output: String,
    watch: bool,
    all: bool,
}

/// The definition of the subcommand.
pub(super) fn command() -> clap::Command {
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    clap::Command::new("status")
        .about("Show the state of APIService backends: availability, since when, why, load, latency")
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_parser(["table", "wide", "json", "yaml"])
                .default_value("table")
                .help("Format"),
        )
        .arg(
            flag("watch")
                .short('w')
                .help("Refresh every two seconds until Ctrl-C; keep trying while the server is unreachable"),
        )
        .arg(
            flag("all")
                .short('a')
                .help("Include groups that the server itself serves"),
        )
        .arg(Arg::new("kubeconfig").long("kubeconfig").help(
            "Kubeconfig of a user who may get /debug/aggregator; defaults to $KUBECONFIG, then \
             torana-data/admin.kubeconfig",
        ))
}

impl StatusCommand {
    pub(super) fn read(matches: &ArgMatches) -> Self {
        Self {
            kubeconfig: super::kubeconfig(matches),
            output: matches.get_one::<String>("output").cloned().unwrap_or_default(),
            watch: matches.get_flag("watch"),
            all: matches.get_flag("all"),
        }
    }

    /// Queries the server and formats the result. With `--watch` it prints each result itself, and ends
    /// successfully on Ctrl-C, on SIGTERM, and when standard output is closed.
    ///
    /// # Errors
    /// `QueryError`: the server cannot be reached or rejects the request. With `--watch` only the first
    /// request is fatal; later failures are reported and retried.
    pub fn run(&self) -> BoxFuture<'_, Result<String, QueryError>> {
        self.query().boxed()
    }

    async fn query(&self) -> Result<String, QueryError> {
        let config = super::client_config(&self.kubeconfig)?;
        let client = Client::try_new(&config)?;
        if !self.watch {
            return Ok(self.render(&Self::document(&client).await?));
        }
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // Biased: a signal also ends a request that hangs.
        tokio::select! {
            biased;
            _ = interrupt.recv() => Ok(String::new()),
            _ = terminate.recv() => Ok(String::new()),
            ended = self.watch_status(&client) => ended,
        }
    }

    /// The state of the APIServices, and below `webhooks` that of the webhooks.
    async fn document(client: &Client) -> Result<Value, ClientError> {
        let mut document = client.get(PATH).await?;
        // An older server does not have it, and a user may not be allowed to see it.
        if let Ok(admission) = client.get(ADMISSION_PATH).await {
            document.set(&["webhooks"], admission.get("webhooks").clone());
        }
        Ok(document)
    }

    async fn watch_status(&self, client: &Client) -> Result<String, QueryError> {
        // In a file or pipe the control sequence would be text.
        let clear = self.is_table() && std::io::stdout().is_terminal();
        let mut has_succeeded = false;
        loop {
            let text = match Self::document(client).await {
                Ok(document) => self.render(&document),
                // This command is used to watch restarts of the server; a failure of the first request is
                // more likely a wrong address.
                Err(e) if has_succeeded => {
                    let _ = writeln!(std::io::stderr(), "torana: {e}; retrying");
                    tokio::time::sleep(PERIOD).await;
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            has_succeeded = true;
            // The reader of a pipe, such as `head`, has seen enough.
            if self.print(&text, clear).is_err() {
                return Ok(String::new());
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Prints one result. On a terminal it replaces the previous one.
    fn print(&self, text: &str, clear: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        // Cursor home, then clear: the new table takes the place of the old one.
        out.write_all(if clear { b"\x1b[H\x1b[2J" } else { b"" })?;
        out.write_all(match self.output.as_str() {
            // Each refresh is a document of one YAML stream.
            "yaml" => b"---\n",
            _ => b"",
        })?;
        out.write_all(text.as_bytes())?;
        // Keeps tables apart that follow one another in a file or pipe.
        out.write_all(if self.is_table() && !clear { b"\n" } else { b"" })?;
        out.flush()
    }

    fn is_table(&self) -> bool {
        matches!(self.output.as_str(), "table" | "wide")
    }

    fn render(&self, document: &Value) -> String {
        match self.output.as_str() {
            "json" => String::from_utf8_lossy(&json::to_vec_pretty(document)).into_owned() + "\n",
            "yaml" => String::from_utf8_lossy(&yaml::to_vec(document)).into_owned(),
            output => self.table(document, output == "wide") + &webhooks::table(document),
        }
    }

    fn table(&self, document: &Value, wide: bool) -> String {
        let now = document.str_at(&["time"]);
        let mut head = vec![
            "NAME",
            "SERVICE",
            "AVAILABLE",
            "SINCE",
            "REQUESTS",
            "P99",
            "FAILED",
            "BREAKER",
            "DOCUMENTS",
        ];
        if wide {
            head.extend([
                "WATCHES",
                "P50",
                "P90",
                "TURNED-AWAY",
                "OPENAPI-V2",
                "OPENAPI-V3",
                "ENDPOINTS",
            ]);
        }
        let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
        let mut reasons = Vec::new();
        for v in document.get("items").items() {
            // Groups of the server itself are always available, and there are many.
            let local = v.str_at(&["service"]) == "Local";
            if local && !self.all {
                continue;
            }
            rows.push(row(v, now, wide));
            let undiscovered = v.at(&["documents", "discovery"]).str_at(&["error"]);
            if v.str_at(&["available"]) != "True" {
                reasons.push(format!("{}: {}\n", v.str_at(&["name"]), v.str_at(&["message"])));
                if let Some(hint) = v.get("hint").as_str() {
                    reasons.push(format!("    {hint}\n"));
                }
            } else if !matches!(v.str_at(&["breaker"]), "" | "Closed") {
                // The APIService still counts as available until its next probe, up to half a minute later.
                let failed = v.get("endpoints").items().iter().map(|e| e.str_at(&["lastFailure"]));
                for why in failed.filter(|why| !why.is_empty()) {
                    reasons.push(format!("{}: requests fail: {why}\n", v.str_at(&["name"])));
                }
            } else if !undiscovered.is_empty() {
                // Clients see stale discovery of its kinds, or none.
                reasons.push(format!("{}: discovery fails: {undiscovered}\n", v.str_at(&["name"])));
            }
        }
        if rows.len() == 1 {
            return "no APIService has a backend\n".to_owned();
        }
        let mut out = aligned(&rows);
        if !reasons.is_empty() {
            out.push('\n');
            out.extend(reasons.iter().map(|line| sanitize(line)));
        }
        out
    }
}

fn row(v: &Value, now: &str, wide: bool) -> Vec<String> {
    let text = |path: &[&str]| match v.str_at(path) {
        "" => "-".to_owned(),
        t => t.to_owned(),
    };
    let number = |key: &str| v.at(&["requests", key]).as_i64().unwrap_or(0);
    let verdict = match v.str_at(&["available"]) {
        "True" => "True".to_owned(),
        other => format!("{other} ({})", v.str_at(&["reason"])),
    };
    let load = match v.at(&["requests", "limit"]).as_i64() {
        Some(limit) => format!("{}/{limit}", number("inFlight")),
        None => number("inFlight").to_string(),
    };
    let mut row = vec![
        text(&["name"]),
        text(&["service"]),
        verdict,
        ago(v.str_at(&["since"]), now),
        load,
        text(&["requests", "latency", "p99"]),
        // One column for all failures; JSON and YAML tell them apart.
        (number("unreachable") + number("unanswered") + number("serverErrors")).to_string(),
        text(&["breaker"]),
        document(v, "discovery"),
    ];
    if wide {
        let endpoints = v.get("endpoints").items().iter().map(|e| {
            let n = |key: &str| e.get(key).as_i64().unwrap_or(0);
            format!(
                "{} ({}, {} under way, {} connections)",
                e.str_at(&["address"]),
                e.str_at(&["state"]),
                n("underWay"),
                n("http2Connections") + n("idleHTTP1Connections"),
            )
        });
        let endpoints: Vec<String> = endpoints.collect();
        row.extend([
            number("watching").to_string(),
            text(&["requests", "latency", "p50"]),
            text(&["requests", "latency", "p90"]),
            number("turnedAway").to_string(),
            document(v, "openapiV2"),
            document(v, "openapiV3"),
            if endpoints.is_empty() {
                "-".to_owned()
            } else {
                endpoints.join(", ")
            },
        ]);
    }
    row
}

/// Formats a document's state and age as in `Current 12s`.
fn document(v: &Value, key: &str) -> String {
    let d = v.at(&["documents", key]);
    match (d.str_at(&["state"]), d.str_at(&["age"])) {
        ("", _) => "-".to_owned(),
        (state, "") => state.to_owned(),
        (state, age) => format!("{state} {age}"),
    }
}

/// Formats the age of a timestamp like kubectl.
fn ago(since: &str, now: &str) -> String {
    let (Ok(since), Ok(now)) = (time::parse(since), time::parse(now)) else {
        return "-".to_owned();
    };
    // Both times are the server's, so the clock of this machine does not matter.
    let s = (now - since).whole_seconds().max(0);
    match s {
        0..120 => format!("{s}s"),
        120..7_200 => format!("{}m", s / 60),
        7_200..172_800 => format!("{}h", s / 3_600),
        _ => format!("{}d", s / 86_400),
    }
}

/// Replaces control characters, so that text from backends cannot move the cursor or forge lines.
fn sanitize(line: &str) -> String {
    let line = line.trim_end_matches('\n');
    let shown = line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    shown.chain(['\n']).collect()
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |c: usize| {
        rows.iter()
            .filter_map(|r| r.get(c))
            // Characters and not bytes: messages need not be ASCII.
            .map(|t| t.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (text, width) in row.iter().zip(&widths) {
            line.push_str(text);
            // Cannot underflow: the width is the longest text of the column.
            line.extend(std::iter::repeat_n(' ', width + 3 - text.chars().count()));
        }
        out.push_str(&sanitize(line.trim_end()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn control_characters_in_backend_messages_are_replaced() {
        let document = json!({"time": "2026-01-02T10:00:00Z", "items": [
            {"name": "v1.g", "service": "ns/ext:443", "available": "True", "reason": "Passed", "breaker": "Closed",
             "documents": {"discovery": {"state": "Missing", "error": "not\nJSON\u{1b}[2J"}}},
            {"name": "v1.h", "service": "ns/other:443", "available": "False", "reason": "A\u{1b}[1A", "message": "no\r\none", "hint": "look"}]});
        for output in ["table", "wide"] {
            let status = StatusCommand::read(&command().get_matches_from(["status", "-o", output]));
            let text = status.render(&document);
            assert!(!text.contains(['\u{1b}', '\r']), "{text:?}");
            let below: Vec<&str> = text.lines().skip(4).collect();
            assert_eq!(
                below,
                [
                    "v1.g: discovery fails: not\u{fffd}JSON\u{fffd}[2J",
                    "v1.h: no\u{fffd}\u{fffd}one",
                    "    look"
                ]
            );
        }
    }

    #[test]
    fn the_table_shows_unavailable_backends_with_reasons() {
        let document = json!({"time": "2026-01-02T10:00:00Z", "items": [
            {"name": "v1.g", "service": "ns/ext:443", "available": "False", "reason": "FailedDiscoveryCheck",
             "message": "nobody answers", "since": "2026-01-02T09:55:00Z", "discovery": "Stale",
             "hint": "look at its log", "breaker": "Open", "documents": {"discovery": {"state": "Stale", "age": "6m"}},
             "requests": {"inFlight": 3, "limit": 200, "unreachable": 2, "serverErrors": 1, "unanswered": 4, "latency": {"p99": "1.2ms"}}},
            {"name": "v1.h", "service": "ns/other:443", "available": "True", "reason": "Passed", "breaker": "Open",
             "endpoints": [{"address": "h:443", "lastFailure": "connection refused"}, {"address": "i:443"}]},
            {"name": "v1.apps", "service": "Local", "available": "True"}]});
        let read = |args: &[&str]| StatusCommand::read(&command().get_matches_from(args));
        let text = read(&["status"]).render(&document);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split("  ").filter(|t| !t.is_empty()).map(str::trim).collect())
            .collect();
        assert_eq!(
            lines[1],
            [
                "v1.g",
                "ns/ext:443",
                "False (FailedDiscoveryCheck)",
                "5m",
                "3/200",
                "1.2ms",
                "7",
                "Open",
                "Stale 6m"
            ]
        );
        assert_eq!(lines[4], ["v1.g: nobody answers"]);
        assert_eq!(lines[5], ["look at its log"]);
        assert_eq!(lines[6], ["v1.h: requests fail: connection refused"]);
        assert_eq!(lines.len(), 7);
        assert!(
            read(&["status", "-a", "-o", "wide"])
                .render(&document)
                .contains("v1.apps")
        );
        assert!(read(&["status", "-o", "json"]).render(&document).starts_with("{\n"));
    }
}
