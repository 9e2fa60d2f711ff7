//! `torana health`: one request to a health endpoint of a running server, for health checks of containers,
//! whose images have no other client.

use super::QueryError;
use crate::client::{FetchError, Fetcher};
use clap::{Arg, ArgMatches, Command};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::path::PathBuf;
use std::time::Duration;

// Less than the 5 s that the health check of the image allows, so that the reason is printed.
const TIMEOUT: Duration = Duration::from_secs(4);

/// What `torana health` asks, and whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCommand {
    kubeconfig: PathBuf,
    endpoint: String,
}

pub(super) fn command() -> Command {
    Command::new("health")
        .about("Check the health of a running server; exit code 0 if it is healthy")
        .arg(
            Arg::new("endpoint")
                .long("endpoint")
                .value_parser(["livez", "readyz"])
                .default_value("readyz")
                .help("Endpoint to query"),
        )
        .arg(Arg::new("kubeconfig").long("kubeconfig").help(
            "Kubeconfig with the server's address and CA; defaults to $KUBECONFIG, then torana-data/admin.kubeconfig",
        ))
}

/// Why a server is not healthy.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The server was not reached, or a check fails.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl HealthCommand {
    pub(super) fn read(matches: &ArgMatches) -> Self {
        Self {
            kubeconfig: super::kubeconfig(matches),
            endpoint: matches.get_one::<String>("endpoint").cloned().unwrap_or_default(),
        }
    }

    /// Queries the server and returns its answer.
    ///
    /// # Errors
    /// `HealthError`; with a failing check, the server's list of checks.
    pub fn run(&self) -> BoxFuture<'_, Result<String, HealthError>> {
        async move {
            let config = super::client_config(&self.kubeconfig)?;
            // Not the API client, which expects JSON: health checks answer in plain text.
            let fetcher = Fetcher::with(&config, TIMEOUT)?;
            let answer = fetcher.get(&format!("{}/{}", config.server, self.endpoint)).await?;
            Ok(String::from_utf8_lossy(&answer).into_owned() + "\n")
        }
        .boxed()
    }
}
