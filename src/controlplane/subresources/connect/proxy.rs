//! `pods/proxy`, `services/proxy` and `nodes/proxy`: relay any request to the named pod, service endpoint or
//! node.
//!
//! To prevent server-side request forgery, only addresses of pods and nodes are dialled, and never loopback
//! or link-local ones.

use super::connector::Peer;
use super::kubelet::Kubelets;
use super::relay;
use super::target::{Target, may_proxy_to, not_allowed};
use crate::apimachinery::field::quote;
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::proxy::backend::Backend;
use crate::proxy::resolver::Resolver;
use crate::registry::StoreLookup;
use crate::registry::resource::Connect;
use crate::registry::strategy::Context;
use crate::request::{Request, Response};
use async_trait::async_trait;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Addresses of Endpoints that one request tries. Upstream tries all; each may need a read of a pod, and whoever writes
/// them chooses their number.
const MAX_ATTEMPTS: usize = 100;

/// The resource that is proxied to.
pub(in crate::controlplane) enum Proxy {
    /// A pod, by its first address.
    Pods,
    /// A service, by one of its endpoints.
    Services {
        /// Round-robin counter over subsets and addresses.
        next: AtomicUsize,
    },
    /// A node: its kubelet or another port.
    Nodes,
}

/// Serves the `proxy` subresource of one resource.
pub(in crate::controlplane) struct ProxyHandler {
    pub(in crate::controlplane) to: Proxy,
    pub(in crate::controlplane) stores: StoreLookup,
    pub(in crate::controlplane) kubelets: Kubelets,
}

fn pod_ips(pod: &Value) -> impl Iterator<Item = &str> {
    pod.at(&["status", "podIPs"])
        .items()
        .iter()
        .map(|ip| ip.str_at(&["ip"]))
}

fn reachable(ip: &str) -> bool {
    ip.parse::<IpAddr>().is_ok_and(may_proxy_to)
}

impl ProxyHandler {
    async fn pod(&self, cx: &Context, id: &str) -> Result<Backend> {
        let target = Target::parse(id, "pod")?;
        let pod = self
            .stores
            .get("", "pods")?
            .get_value(&cx.namespace, target.name)
            .await?;
        // Upstream's default: the first port of the first container that declares any.
        let first = || {
            let mut containers = pod.at(&["spec", "containers"]).items().iter();
            let port = containers.find_map(|c| c.get("ports").items().first());
            port.and_then(|p| p.get("containerPort").as_i64())
        };
        let port = match target.port {
            "" => first().map_or_else(String::new, |p| p.to_string()),
            port => port.to_owned(),
        };
        // A pod without an address is refused like an address that is not allowed.
        let ip = pod_ips(&pod).next().unwrap_or("");
        if !reachable(ip) {
            return Err(not_allowed());
        }
        Ok(self.workload(target.https, ip, &port))
    }

    async fn node(&self, id: &str) -> Result<Backend> {
        let target = Target::parse(id, "node")?;
        let kubelet = self.kubelets.find(target.name, "nodes").await?;
        // Checked even for the kubelet port: whoever can write node addresses must not direct this server's
        // connections.
        let addresses = resolve_checked(&*self.kubelets.connector.names, &kubelet.host).await?;
        let own = target.port.is_empty() || target.port == kubelet.port;
        let mut backend = match own {
            true => self.kubelets.backend(&kubelet, true),
            false => self.workload(target.https, &kubelet.host, target.port),
        };
        // The authority ends in a port: both branches above default an empty one.
        let port = backend.authority.rsplit(':').next().and_then(|p| p.parse().ok());
        // Dial the addresses that were checked: a second lookup of the name may resolve elsewhere
        // (CVE-2020-8562). An unparsable port leaves no addresses; dialling it fails later.
        let at = |port| addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        backend.addresses = port.map(at);
        Ok(backend)
    }

    /// Resolves a service through its Endpoints, not its EndpointSlices, as upstream does; a 404 for missing
    /// Endpoints names the service.
    async fn service(&self, next: &AtomicUsize, cx: &Context, id: &str) -> Result<Backend> {
        let target = Target::parse(id, "service")?;
        // A number is a port of the Service, which Endpoints know only by its name.
        let mut port = target.port.to_owned();
        if let Ok(number) = target.port.parse::<i64>() {
            let service = self
                .stores
                .get("", "services")?
                .get_value(&cx.namespace, target.name)
                .await?;
            let ports = service.at(&["spec", "ports"]).items();
            let Some(found) = ports.iter().find(|p| p.get("port").as_i64() == Some(number)) else {
                return Err(Status::service_unavailable(format!(
                    "no service port {number} found for service {}",
                    quote(target.name)
                )));
            };
            port = found.str_at(&["name"]).to_owned();
        }
        let endpoints = self
            .stores
            .get("", "endpoints")?
            .get_value(&cx.namespace, target.name)
            .await;
        let endpoints = endpoints.map_err(|s| match s.code {
            404 => Status::not_found(&GroupResource::new("", "services"), target.name),
            _ => s,
        })?;
        let none = |id: &str| {
            let why = format!("no endpoints available for service {}", quote(id));
            Err(Status::service_unavailable(why))
        };
        let subsets = endpoints.get("subsets").items();
        if subsets.is_empty() {
            return none(target.name);
        }
        // Only spreads the load: no other memory is ordered by the counter, and it may wrap. Upstream starts
        // at random.
        let first = next.fetch_add(1, Ordering::Relaxed);
        let mut candidates = Vec::new();
        for subset in round_robin(subsets, first) {
            let addresses = subset.get("addresses").items();
            let ports = subset.get("ports").items();
            let Some(number) = ports
                .iter()
                .find(|p| p.str_at(&["name"]) == port)
                .and_then(|p| p.get("port").as_i64())
            else {
                continue;
            };
            let left = MAX_ATTEMPTS - candidates.len();
            let tried = round_robin(addresses, first).take(left);
            candidates.extend(tried.map(|address| (address, number)));
        }
        let mut known = HashMap::new();
        for (address, port) in candidates {
            let ip = address.str_at(&["ip"]);
            // Verified one at a time: usually the first address passes.
            if reachable(ip) && self.is_a_pods(cx, address, ip, &mut known).await {
                return Ok(self.workload(target.https, ip, &port.to_string()));
            }
        }
        // Upstream formats the whole id here, but the bare name for missing subsets.
        none(id)
    }

    /// Whether an endpoint address belongs to a pod of the namespace. Other endpoints are skipped: whoever
    /// can write Endpoints must not direct this server's connections. `known` are the addresses of the pods that the
    /// request has read: all endpoints may name the same large one.
    async fn is_a_pods<'a>(
        &self,
        cx: &Context,
        address: &'a Value,
        ip: &str,
        known: &mut HashMap<&'a str, Vec<String>>,
    ) -> bool {
        let to = address.get("targetRef");
        if to.is_null() || to.str_at(&["namespace"]) != cx.namespace {
            return false;
        }
        let name = to.str_at(&["name"]);
        let ips = match known.entry(name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(self.ips_of(cx, name).await),
        };
        ips.iter().any(|own| own == ip)
    }

    /// The addresses of a pod; none if it cannot be read.
    async fn ips_of(&self, cx: &Context, name: &str) -> Vec<String> {
        let Ok(pods) = self.stores.get("", "pods") else {
            return Vec::new();
        };
        let pod = pods.get_value(&cx.namespace, name).await;
        pod.map_or_else(|_| Vec::new(), |pod| pod_ips(&pod).map(str::to_owned).collect())
    }

    /// A backend that is not a kubelet; `port` defaults by scheme.
    fn workload(&self, https: bool, host: &str, port: &str) -> Backend {
        let port = match (port, https) {
            ("", true) => "443",
            ("", false) => "80",
            (port, _) => port,
        };
        self.kubelets.connector.backend(Peer::Workload(https), host, port)
    }
}

/// Resolves a host. Fails unless every address may be proxied to, since any of them could be dialled.
async fn resolve_checked(names: &dyn Resolver, host: &str) -> Result<Vec<IpAddr>> {
    let addresses: Vec<IpAddr> = match host.parse() {
        Ok(ip) => vec![ip],
        Err(_) => {
            let none = |why| Status::bad_request(format!("lookup {host}: {why}"));
            names.lookup(host).await.map_err(none)?
        }
    };
    if addresses.is_empty() {
        return Err(Status::bad_request("no addresses for hostname"));
    }
    if !addresses.iter().copied().all(may_proxy_to) {
        return Err(not_allowed());
    }
    Ok(addresses)
}

/// All elements, starting at a round-robin offset.
fn round_robin(all: &[Value], first: usize) -> impl Iterator<Item = &Value> {
    let at = if all.is_empty() { 0 } else { first % all.len() };
    all[at..].iter().chain(&all[..at])
}

#[async_trait]
impl Connect for ProxyHandler {
    fn options(&self) -> &'static str {
        match self.to {
            Proxy::Pods => "PodProxyOptions",
            Proxy::Services { .. } => "ServiceProxyOptions",
            Proxy::Nodes => "NodeProxyOptions",
        }
    }

    fn takes_path(&self) -> bool {
        true
    }

    async fn connect(&self, cx: &Context, id: &str, options: &Value, req: Request) -> Result<Response> {
        // Before the lookups: a caller over its share costs nothing more.
        let place = self.kubelets.connector.enter(&cx.user)?;
        let backend = match &self.to {
            Proxy::Pods => self.pod(cx, id).await?,
            Proxy::Services { next } => self.service(next, cx, id).await?,
            Proxy::Nodes => self.node(id).await?,
        };
        relay::relay_request(
            &backend.holding(place),
            options.str_at(&["path"]),
            req,
            self.kubelets.connector.passing(),
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlplane::subresources::connect::connector::BackendConnector;
    use crate::controlplane::tests::{config, running};
    use crate::json;
    use std::sync::Arc;

    /// A resolver whose answer changes with each lookup, as in a DNS rebinding attack.
    struct Rebinding(AtomicUsize);

    impl Resolver for Rebinding {
        fn lookup<'a>(&'a self, _: &'a str) -> crate::proxy::resolver::Lookup<'a> {
            let answers = ["10.0.0.9", "127.0.0.1"];
            let lookup = self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { Ok(vec![answers[lookup % 2].parse().unwrap()]) })
        }
    }

    #[tokio::test]
    async fn the_checked_address_is_the_one_dialled() {
        let r = running();
        let nodes = r.plane.store("", "nodes");
        let status = json!({"addresses": [{"type": "InternalIP", "address": "rebinding.example"}]});
        let node = json!({"metadata": {"name": "n"}, "status": status});
        nodes.create_value(&Context::system(""), node).await.unwrap();
        let stores = StoreLookup::default();
        stores.add([nodes].into_iter());
        let mut kubelets = config().kubelets;
        kubelets.names = Arc::new(Rebinding(AtomicUsize::new(0)));
        let proxy = ProxyHandler {
            to: Proxy::Nodes,
            stores: stores.clone(),
            kubelets: Kubelets {
                stores: stores.clone(),
                connector: Arc::new(BackendConnector::new(kubelets).unwrap()),
            },
        };
        let found = proxy.node("http:n:80").await.unwrap();
        let checked: SocketAddr = "10.0.0.9:80".parse().unwrap();
        assert_eq!(found.addresses.as_deref(), Some(&[checked][..]));
        let refused = proxy.node("http:n:80").await.err().unwrap();
        assert_eq!(refused.message, "address not allowed");
    }

    #[tokio::test]
    async fn endpoints_of_pods_are_found_among_the_first_hundred() {
        let r = running();
        let cx = Context::system("default");
        let [pods, endpoints] = ["pods", "endpoints"].map(|plural| r.plane.store("", plural));
        let containers = json!([{"name": "c", "image": "registry.invalid/app:1"}]);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
        pods.create_value(&cx, pod).await.unwrap();
        let with_address = |live: &Value| {
            let mut pod = live.clone();
            pod.set(&["status", "podIPs"], json!([{"ip": "10.0.0.9"}]));
            pod.set(&["status", "podIP"], "10.0.0.9");
            Ok(pod)
        };
        pods.update_with(&cx, "p", "status", with_address).await.unwrap();
        for (name, others) in [("near", MAX_ATTEMPTS - 1), ("far", MAX_ATTEMPTS)] {
            let target = json!({"kind": "Pod", "namespace": "default", "name": "p"});
            // Addresses that are not the pod's, and its own as the last.
            let ips = (0..others).map(|i| format!("10.1.0.{i}"));
            let addresses: Vec<Value> = ips
                .chain(["10.0.0.9".to_owned()])
                .map(|ip| json!({"ip": ip, "targetRef": target}))
                .collect();
            let subset = json!({"addresses": addresses, "ports": [{"port": 80}]});
            let object = json!({"metadata": {"name": name}, "subsets": [subset]});
            endpoints.create_value(&cx, object).await.unwrap();
        }
        let stores = StoreLookup::default();
        stores.add([pods, endpoints].into_iter());
        let next = AtomicUsize::new(0);
        let proxy = ProxyHandler {
            to: Proxy::Nodes,
            stores: stores.clone(),
            kubelets: Kubelets {
                stores,
                connector: Arc::new(BackendConnector::new(config().kubelets).unwrap()),
            },
        };
        let found = proxy.service(&next, &cx, "near").await.unwrap();
        assert_eq!(found.authority, "10.0.0.9:80");
        next.store(0, Ordering::Relaxed);
        assert_eq!(proxy.service(&next, &cx, "far").await.err().unwrap().code, 503);
        // The next request begins with the next address.
        assert!(proxy.service(&next, &cx, "far").await.is_ok());
    }

    #[tokio::test]
    async fn nodes_with_loopback_addresses_are_refused() {
        let r = running();
        let nodes = r.plane.store("", "nodes");
        for (name, address) in [("near", "127.0.0.1"), ("far", "10.0.0.9")] {
            let status = json!({"addresses": [{"type": "InternalIP", "address": address}]});
            let node = json!({"metadata": {"name": name}, "status": status});
            nodes.create_value(&Context::system(""), node).await.unwrap();
        }
        let stores = StoreLookup::default();
        stores.add([nodes].into_iter());
        let proxy = ProxyHandler {
            to: Proxy::Nodes,
            stores: stores.clone(),
            kubelets: Kubelets {
                stores: stores.clone(),
                connector: Arc::new(BackendConnector::new(config().kubelets).unwrap()),
            },
        };
        for (id, authority) in [
            ("far", "10.0.0.9:10250"),
            ("far:10250", "10.0.0.9:10250"),
            ("http:far:80", "10.0.0.9:80"),
        ] {
            assert_eq!(proxy.node(id).await.unwrap().authority, authority, "{id}");
        }
        for id in ["near", "near:10250", "near:80", "https:near:"] {
            assert_eq!(
                proxy.node(id).await.err().unwrap().message,
                "address not allowed",
                "{id}"
            );
        }
    }
}
