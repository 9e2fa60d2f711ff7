//! Parsed Services and EndpointSlices: only the fields that routing needs.

use super::join;
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;
use std::sync::{Arc, OnceLock};

/// The fields of a Service that routing uses.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub kind: ServiceType,
    /// The first cluster IP, or the string `None` for a headless Service.
    pub cluster_ip: Str,
    /// Ports, in the object's order.
    pub ports: Vec<ServicePort>,
    /// Address families (`IPv4`, `IPv6`) in order of preference.
    pub families: Vec<Str>,
    /// For an `ExternalName`: the first port requested, and the address for it.
    outside: OnceLock<(u16, Arc<str>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceType {
    /// Reached at its cluster IP.
    ClusterIp,
    /// Reached at its cluster IP here; also exposed on every node.
    NodePort,
    /// Reached at its cluster IP here; also exposed by a load balancer.
    LoadBalancer,
    /// An alias of a DNS name outside of the cluster.
    ExternalName(Str),
    /// A type that is not supported.
    Other(Str),
}

#[derive(Clone, Debug)]
pub(crate) struct ServicePort {
    /// The port's name; may be empty if it is the only one.
    pub name: Str,
    /// Number of the port, as APIServices refer to it.
    pub port: u16,
    /// Cluster IP and port, joined.
    pub address: Arc<str>,
}

/// The fields of an EndpointSlice that routing uses.
#[derive(Clone, Debug)]
pub(crate) struct EndpointSlice {
    /// The slice's storage key.
    pub key: Box<str>,
    /// The storage key of its Service; empty if it has no service label.
    pub service: Box<str>,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: Str,
    /// Endpoints, in the object's order.
    pub endpoints: Vec<SliceEndpoint>,
    /// Name and number of each port that has both.
    pub ports: Vec<(Str, u16)>,
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, Debug)]
pub(crate) struct SliceEndpoint {
    /// The first address. By the API all addresses of an endpoint are fungible, and clients may use only the
    /// first.
    pub address: Str,
    /// The `ready` condition; true if it is unset.
    pub ready: bool,
}

impl Service {
    /// Parses a stored Service.
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode())
    }

    /// Parses a Service's tree.
    pub(crate) fn from_value(object: &Value) -> Self {
        let spec = object.get("spec");
        let cluster_ip: Str = spec.str_at(&["clusterIP"]).into();
        let ports = spec.get("ports").items().iter().filter_map(|p| {
            let port = port_number(p.get("port"))?;
            Some(ServicePort {
                name: p.str_at(&["name"]).into(),
                port,
                // Joined once per change, not once per request.
                address: join(&cluster_ip, port).into(),
            })
        });
        Self {
            kind: match spec.str_at(&["type"]) {
                "" | "ClusterIP" => ServiceType::ClusterIp,
                "NodePort" => ServiceType::NodePort,
                "LoadBalancer" => ServiceType::LoadBalancer,
                "ExternalName" => ServiceType::ExternalName(spec.str_at(&["externalName"]).into()),
                other => ServiceType::Other(other.into()),
            },
            ports: ports.collect(),
            families: spec
                .get("ipFamilies")
                .items()
                .iter()
                .filter_map(|f| f.as_str().map(Str::from))
                .collect(),
            cluster_ip,
            outside: OnceLock::new(),
        }
    }

    /// The address of an `ExternalName` for this port, which the Service need not list. The first port
    /// requested is usually the only one, so its address is cached.
    pub(super) fn outside(&self, host: &str, port: u16) -> Arc<str> {
        let (known, address) = self.outside.get_or_init(|| (port, join(host, port).into()));
        match *known == port {
            true => address.clone(),
            false => join(host, port).into(),
        }
    }

    /// The port with this number.
    pub(crate) fn port(&self, number: u16) -> Option<&ServicePort> {
        self.ports.iter().find(|p| p.port == number)
    }
}

impl EndpointSlice {
    /// Parses a stored EndpointSlice.
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        let object = entry.decode();
        let service = entry
            .label("kubernetes.io/service-name")
            .filter(|s| !s.is_empty())
            .map_or(String::new(), |s| format!("{}/{s}", entry.namespace()));
        let endpoints = object.get("endpoints").items().iter().map(|e| SliceEndpoint {
            address: e
                .get("addresses")
                .items()
                .first()
                .and_then(Value::as_str)
                .unwrap_or("")
                .into(),
            ready: e.at(&["conditions", "ready"]).as_bool().unwrap_or(true),
        });
        // The API defaults a missing name to the empty string, so stored ports have one.
        let ports = object.get("ports").items().iter().filter_map(|p| {
            let name = p.get("name").as_str()?;
            Some((name.into(), port_number(p.get("port"))?))
        });
        Self {
            key: entry.key.clone(),
            service: service.into(),
            address_type: object.str_at(&["addressType"]).into(),
            endpoints: endpoints.collect(),
            ports: ports.collect(),
        }
    }

    /// The number of the port with this name.
    pub(crate) fn port_named(&self, name: &str) -> Option<u16> {
        self.ports.iter().find(|(n, _)| n == name).map(|(_, p)| *p)
    }

    /// Whether any endpoint is ready.
    pub(crate) fn has_ready(&self) -> bool {
        self.endpoints.iter().any(|e| e.ready)
    }
}

fn port_number(v: &Value) -> Option<u16> {
    u16::try_from(v.as_i64()?).ok()
}
