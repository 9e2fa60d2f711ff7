//! Resolves a node to the address of its kubelet (upstream's `pkg/kubelet/client`).

use super::connector::{BackendConnector, Peer};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::proxy::backend::Backend;
use crate::registry::StoreLookup;
use std::sync::Arc;

/// Kubelets, by node name.
#[derive(Clone)]
pub(in crate::controlplane) struct Kubelets {
    pub(in crate::controlplane) stores: StoreLookup,
    pub(in crate::controlplane) connector: Arc<BackendConnector>,
}

/// Where a kubelet serves, and which protocols it supports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub host: String,
    pub port: String,
    /// Whether the node declares the feature `ExtendWebSocketsToKubelet`: its kubelet then accepts every
    /// client protocol unchanged.
    pub(crate) speaks_websocket: bool,
}

impl Kubelets {
    /// The address of a node's kubelet. The 404 for a missing node names the requested resource (`asked`)
    /// instead of `nodes`: upstream takes the resource from the request and only the name from the lookup.
    pub(super) async fn find(&self, node: &str, asked: &str) -> Result<Address> {
        let found = self
            .stores
            .get("", "nodes")?
            .get_value("", node)
            .await
            .map_err(|s| match s.code {
                404 => Status::not_found(&GroupResource::new("", asked), node),
                _ => s,
            })?;
        let host = preferred(&found, &self.connector.preferred)?;
        let named = found
            // `Port` is capitalised in the API type.
            .at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"])
            .as_i64()
            .unwrap_or(0);
        let port = if named > 0 {
            named
        } else {
            i64::from(self.connector.port)
        };
        let declared = found.at(&["status", "declaredFeatures"]).items();
        Ok(Address {
            host,
            port: port.to_string(),
            speaks_websocket: declared.iter().any(|f| f.as_str() == Some("ExtendWebSocketsToKubelet")),
        })
    }

    /// The kubelet at this address; `verified` is false if the caller opted out of TLS verification.
    pub(super) fn backend(&self, address: &Address, verified: bool) -> Backend {
        let peer = if verified {
            Peer::Kubelet
        } else {
            Peer::UnverifiedKubelet
        };
        self.connector.backend(peer, &address.host, &address.port)
    }
}

/// The node's first address of the most preferred type (`--kubelet-preferred-address-types`).
fn preferred(node: &Value, types: &[String]) -> Result<String> {
    let all = node.at(&["status", "addresses"]).items();
    // The flag's order decides, not that of the node's own list.
    for wanted in types {
        if let Some(a) = all.iter().find(|a| a.str_at(&["type"]) == wanted) {
            return Ok(a.str_at(&["address"]).to_owned());
        }
    }
    // In the format of Go's `%v`.
    let known: Vec<String> = all
        .iter()
        .map(|a| format!("{{{} {}}}", a.str_at(&["type"]), a.str_at(&["address"])))
        .collect();
    Err(Status::raw_error(format!(
        "no preferred addresses found; known addresses: [{}]",
        known.join(" ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn address_types_are_tried_in_order_of_preference() {
        let node = json!({"status": {"addresses": [
            {"type": "ExternalIP", "address": "1.1.1.1"}, {"type": "InternalIP", "address": "10.0.0.1"}]}});
        let of = |types: &[&str]| {
            let types: Vec<String> = types.iter().map(|t| (*t).to_owned()).collect();
            preferred(&node, &types).map_err(|s| (s.code, s.message))
        };
        assert_eq!(of(&["Hostname", "InternalIP", "ExternalIP"]).unwrap(), "10.0.0.1");
        assert_eq!(
            of(&["Hostname"]).unwrap_err(),
            (
                500,
                "no preferred addresses found; known addresses: [{ExternalIP 1.1.1.1} {InternalIP 10.0.0.1}]".into()
            )
        );
    }
}
