//! `pods/exec`, `attach` and `portforward`: upgraded connections, tunnelled unchanged to the kubelet, whether
//! SPDY or WebSocket, unless the client speaks a protocol that came after the kubelet's.

use super::kubelet::Kubelets;
use super::log::container;
use super::relay;
use super::translate::{self, Destination, Streams};
use super::tunnelled;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::proxy::url;
use crate::registry::StoreLookup;
use crate::registry::resource::Connect;
use crate::registry::strategy::Context;
use crate::request::{Request, Response};
use async_trait::async_trait;

/// A subresource of pods that carries streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controlplane) enum StreamKind {
    /// `exec`: runs a command in a container.
    Exec,
    /// `attach`: connects to the main process of a container.
    Attach,
    /// `portforward`: connects to ports of a pod.
    PortForward,
}

/// Serves one of the subresources.
pub(in crate::controlplane) struct Stream {
    pub(in crate::controlplane) kind: StreamKind,
    pub(in crate::controlplane) stores: StoreLookup,
    pub(in crate::controlplane) kubelets: Kubelets,
}

/// The kubelet's query string, whose parameter names differ from those of the options.
fn query(kind: StreamKind, options: &Value) -> String {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    if kind == StreamKind::PortForward {
        // For WebSocket clients only; SPDY clients send the ports in stream headers.
        let ports: Vec<String> = options
            .get("ports")
            .items()
            .iter()
            .filter_map(Value::as_i64)
            .map(|p| p.to_string())
            .collect();
        if !ports.is_empty() {
            pairs.push(("port", ports.join(",")));
        }
    } else {
        // As upstream's `streamParams`: true is written as 1, and false is omitted.
        for (option, param) in [
            ("stdin", "input"),
            ("stdout", "output"),
            ("stderr", "error"),
            ("tty", "tty"),
        ] {
            if options.get(option).as_bool() == Some(true) {
                pairs.push((param, "1".to_owned()));
            }
        }
        for word in options.get("command").items().iter().filter_map(Value::as_str) {
            pairs.push(("command", word.to_owned()));
        }
    }
    url::query_of(pairs.iter().map(|(k, v)| (*k, v.as_str())))
}

fn streams(options: &Value) -> Streams {
    let wants = |name| options.get(name).as_bool() == Some(true);
    Streams {
        stdin: wants("stdin"),
        stdout: wants("stdout"),
        stderr: wants("stderr"),
        tty: wants("tty"),
    }
}

#[async_trait]
impl Connect for Stream {
    fn options(&self) -> &'static str {
        match self.kind {
            StreamKind::Exec => "PodExecOptions",
            StreamKind::Attach => "PodAttachOptions",
            StreamKind::PortForward => "PodPortForwardOptions",
        }
    }

    // Otherwise everyone who may read pods could run commands in them by a WebSocket GET (gate
    // `AuthorizePodWebsocketUpgradeCreatePermission`).
    fn get_requires_create(&self) -> bool {
        true
    }

    async fn connect(&self, cx: &Context, name: &str, options: &Value, req: Request) -> Result<Response> {
        // Before the lookups: a caller over its share costs nothing more.
        let place = self.kubelets.connector.enter(&cx.user)?;
        let pod = self.stores.get("", "pods")?.get_value(&cx.namespace, name).await?;
        // The container is checked before the node, in the order of upstream's `streamLocation`.
        let path = match self.kind {
            StreamKind::PortForward => format!("/portForward/{}/{name}", cx.namespace),
            kind => {
                let container = container(&pod, options.str_at(&["container"]))?;
                let verb = if kind == StreamKind::Exec { "exec" } else { "attach" };
                format!("/{verb}/{}/{name}/{container}", cx.namespace)
            }
        };
        let node = pod.str_at(&["spec", "nodeName"]);
        if node.is_empty() {
            return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
        }
        let address = self.kubelets.find(node, "pods").await?;
        let kubelet = self.kubelets.backend(&address, true).holding(place);
        let query = query(self.kind, options);
        let passing = self.kubelets.connector.passing();
        // A kubelet that declares the feature takes every protocol of clients, and the stream is relayed as
        // it is.
        if !address.speaks_websocket {
            match self.kind {
                StreamKind::PortForward if tunnelled::applies(&req) => {
                    return tunnelled::answer(req, &kubelet, relay::target(&path, &query)?, passing).await;
                }
                StreamKind::Exec | StreamKind::Attach if translate::applies(&req) => {
                    let target = relay::target(&path, &query)?;
                    let to = Destination { kubelet, target };
                    return Ok(translate::answer(req, streams(options), to, passing.0));
                }
                _ => {}
            }
        }
        relay::relay_upgrade(&kubelet, &path, &query, req, passing).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn options_map_to_kubelet_parameters() {
        let o = json!({"stdin": true, "stdout": true, "command": ["sh", "-c", "a b&c"]});
        assert_eq!(
            query(StreamKind::Exec, &o),
            "command=sh&command=-c&command=a+b%26c&input=1&output=1"
        );
        assert_eq!(
            query(StreamKind::PortForward, &json!({"ports": [80, 81]})),
            "port=80%2C81"
        );
        assert_eq!(query(StreamKind::Attach, &json!({"tty": true})), "tty=1");
    }
}
