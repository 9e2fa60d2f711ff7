//! Registers this server with the gateway through a Service without pods and an APIService. A server that
//! runs in a cluster has a Service of its own, and both objects come from manifests.

use base64::Engine;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use torana::apimachinery::Value;
use torana::json;
use torana::sdk::client::{Client, ClientError};

/// The name that the gateway expects in this server's certificate.
pub(crate) const SERVICE_NAME: &str = "gadgets.gadgets-system.svc";
/// The APIService's name.
pub(crate) const API_SERVICE: &str = "v1.gadgets.example.com";

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Creates the objects and waits until the gateway reports the APIService as available.
pub(crate) async fn register(gateway: &Client, port: u16, ca: &[u8]) -> Result<(), String> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gadgets-system"}});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "gadgets", "namespace": "gadgets-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let ca_bundle = base64::engine::general_purpose::STANDARD.encode(ca);
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API_SERVICE},
        "spec": {
            "group": "gadgets.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "gadgets-system", "name": "gadgets", "port": port}, "caBundle": ca_bundle,
        },
    });
    let services = "/api/v1/namespaces/gadgets-system/services";
    for (collection, object) in [
        ("/api/v1/namespaces", namespace),
        (services, service),
        (API_SERVICES, api_service),
    ] {
        let made = gateway.create_or_patch(collection, &object).await;
        made.map_err(|e| format!("registering {} failed: {e}", object.str_at(&["kind"])))?;
    }
    available(gateway).await
}

async fn available(gateway: &Client) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = gateway.get(&format!("{API_SERVICES}/{API_SERVICE}")).await;
        let condition = seen.as_ref().ok().and_then(|s| {
            let all = s.at(&["status", "conditions"]).items();
            all.iter().find(|c| c.str_at(&["type"]) == "Available")
        });
        if condition.is_some_and(|c| c.str_at(&["status"]) == "True") {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("{API_SERVICE} is not Available: {}", why(&seen, condition)));
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn why(seen: &Result<Value, ClientError>, condition: Option<&Value>) -> String {
    match (seen, condition) {
        (Err(e), _) => e.to_string(),
        (Ok(_), Some(c)) => c.str_at(&["message"]).to_owned(),
        (Ok(_), None) => "the gateway has not checked it yet".to_owned(),
    }
}
