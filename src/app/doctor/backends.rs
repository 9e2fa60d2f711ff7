//! Dependencies beyond this machine: backends of a running gateway, webhooks and identity providers. Entry
//! point: [`examine`]. Only checks that peers accept connections; etcd is examined by `etcd`.

use super::Finding;
use crate::apimachinery::Value;
use crate::cli::CompletedOptions;
use crate::client::{Client, ClientConfig, KubeconfigError};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of one connection or request.
const WITHIN: Duration = Duration::from_secs(5);

/// The state of the backends, if a gateway with this data directory is running.
pub(super) async fn running(options: &CompletedOptions) -> Option<Value> {
    let config = ClientConfig::from_kubeconfig(&options.kubeconfig_path()).ok()?;
    let client = Client::try_new(&config).ok()?;
    let asked = client.get("/debug/aggregator?format=json");
    // No answer means that no gateway runs, which is not an error.
    timeout(WITHIN, asked).await.ok()?.ok()
}

pub(super) async fn examine(options: &CompletedOptions, running: Option<Value>, findings: &mut Vec<Finding>) {
    match running {
        Some(state) => unavailable(&state, findings),
        None => findings.push(Finding::ok(
            "backends",
            "not examined: no gateway with this data directory is running",
        )),
    }
    for (flag, file) in webhooks(options) {
        let reached = match ClientConfig::from_kubeconfig(&file) {
            Ok(config) => connect(&config.server).await,
            Err(e) => Err(e.into()),
        };
        findings.push(peer("webhooks", flag, reached));
    }
    if let Some(oidc) = &options.authentication.oidc {
        findings.push(peer("providers", "oidc-issuer-url", connect(&oidc.issuer.url).await));
    }
}

fn webhooks(options: &CompletedOptions) -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    if let Some(webhook) = &options.authentication.webhook {
        found.push(("authentication-token-webhook-config-file", webhook.config_file.clone()));
    }
    if let Some(webhook) = &options.audit.webhook {
        found.push(("audit-webhook-config-file", webhook.config_file.clone()));
    }
    let authorizers = options.authorization.authorizers.iter();
    let webhooks = authorizers.filter_map(|authorizer| authorizer.webhook.as_ref());
    found.extend(webhooks.map(|webhook| ("authorization-webhook-config-file", webhook.kubeconfig.clone())));
    found
}

/// Why a peer was not reached.
#[derive(Debug, thiserror::Error)]
enum Unreached {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("{url}: {source}")]
    Url { url: String, source: http::uri::InvalidUri },
    #[error("{0} has no host")]
    NoHost(String),
    #[error("cannot connect to {address}: {source}")]
    Connect { address: String, source: std::io::Error },
    #[error("cannot connect to {0} within {WITHIN:?}")]
    Timeout(String),
}

fn peer(check: &'static str, flag: &str, reached: Result<String, Unreached>) -> Finding {
    match reached {
        Ok(address) => Finding::ok(check, format!("--{flag}: {address} accepts connections")),
        Err(why) => Finding::error(
            check,
            format!("--{flag}: {why}"),
            "start the server, correct the address, or open the way to it",
        ),
    }
}

/// Connects to the host of a URL; returns its address.
async fn connect(url: &str) -> Result<String, Unreached> {
    let uri: http::Uri = url.parse().map_err(|source| Unreached::Url {
        url: url.to_owned(),
        source,
    })?;
    let host = uri.host().ok_or_else(|| Unreached::NoHost(url.to_owned()))?;
    let port = uri.port_u16().unwrap_or(443);
    let address = format!("{host}:{port}");
    // TCP only: a TLS handshake would need the peer's CA and our identity, and their mistakes show in the
    // server's log.
    let connected = timeout(WITHIN, TcpStream::connect((host.trim_matches(['[', ']']), port))).await;
    match connected {
        Ok(Ok(_)) => Ok(address),
        Ok(Err(source)) => Err(Unreached::Connect { address, source }),
        Err(_) => Err(Unreached::Timeout(address)),
    }
}

/// Adds the APIServices that are not available, with the aggregator's own hint.
fn unavailable(state: &Value, findings: &mut Vec<Finding>) {
    // Local groups are served by the gateway itself and are always available.
    let remote = state
        .get("items")
        .items()
        .iter()
        .filter(|s| s.str_at(&["service"]) != "Local");
    let mut count = 0;
    for service in remote {
        count += 1;
        if service.str_at(&["available"]) != "True" {
            let text = |field: &str| service.str_at(&[field]).to_owned();
            let what = format!("{}: {}: {}", text("name"), text("reason"), text("message"));
            findings.push(Finding::error("backends", what, text("hint")));
        }
    }
    findings.push(Finding::ok(
        "backends",
        format!("{count} remote APIServices were examined"),
    ));
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;
    use crate::json;

    #[test]
    fn unavailable_backends_are_reported_with_the_hint() {
        let state = json!({"items": [
            {"name": "v1.a", "available": "True", "service": "a/a:443"},
            {"name": "v1.apps", "available": "False", "service": "Local"},
            {"name": "v1.b", "available": "False", "service": "b/b:443", "reason": "MissingEndpoints", "message": "none",
             "hint": "look at its pods"},
        ]});
        let mut found = Vec::new();
        unavailable(&state, &mut found);
        assert_eq!(
            found[0],
            Finding::error("backends", "v1.b: MissingEndpoints: none", "look at its pods")
        );
        assert_eq!((found.len(), found[1].severity), (2, Severity::Ok));
    }

    #[tokio::test]
    async fn connecting_returns_the_address_or_an_error_that_names_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(connect(&format!("https://{address}/path")).await.unwrap(), address);
        drop(listener);
        let refused = connect(&format!("https://{address}")).await.unwrap_err().to_string();
        assert!(refused.contains(&address), "{refused}");
        assert!(connect("/no/host").await.is_err());
    }
}
