//! The few fields of Services and EndpointSlices that routing needs.

use super::join;
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;
use std::sync::{Arc, OnceLock};

/// A Service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its type.
    pub kind: ServiceType,
    /// The first cluster IP, or `None`.
    pub cluster_ip: Str,
    /// Ports in order.
    pub ports: Vec<ServicePort>,
    /// `IPv4`, `IPv6`, in order of preference.
    pub families: Vec<Str>,
    /// Of an `ExternalName`: the port first asked for, and its address.
    outside: OnceLock<(u16, Arc<str>)>,
}

/// A Service's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// Reached under its cluster IP.
    ClusterIp,
    /// Also on every node.
    NodePort,
    /// Also behind a load balancer.
    LoadBalancer,
    /// A DNS name outside.
    ExternalName(Str),
    /// Unknown.
    Other(Str),
}

/// A port of a Service.
#[derive(Clone, Debug)]
pub struct ServicePort {
    /// Name; empty where there is only one.
    pub name: Str,
    /// Number.
    pub port: u16,
    /// Cluster IP and port.
    pub address: Arc<str>,
}

/// An EndpointSlice.
#[derive(Clone, Debug)]
pub struct EndpointSlice {
    /// Its storage key.
    pub key: Box<str>,
    /// Storage key of its Service; empty where it names none.
    pub service: Box<str>,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: Str,
    /// Endpoints in order.
    pub endpoints: Vec<SliceEndpoint>,
    /// Named ports with a number.
    pub ports: Vec<(Str, u16)>,
}

/// An endpoint of a slice.
#[derive(Clone, Debug)]
pub struct SliceEndpoint {
    /// Its first address.
    pub address: Str,
    /// Ready, or not said to be unready.
    pub ready: bool,
}

impl Service {
    /// Reads a stored Service.
    pub fn from_entry(entry: &Entry) -> Self {
        Self::from_value(&entry.decode())
    }

    /// Reads a Service's tree.
    pub fn from_value(object: &Value) -> Self {
        let spec = object.get("spec");
        let cluster_ip: Str = spec.str_at(&["clusterIP"]).into();
        let ports = spec.get("ports").items().iter().filter_map(|p| {
            let port = port_number(p.get("port"))?;
            Some(ServicePort {
                name: p.str_at(&["name"]).into(),
                port,
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

    /// Where this port is of a host that the Service is a name for. Any port will do: the Service need not list it. The one
    /// that is asked for first is mostly the only one, and written once.
    pub(super) fn outside(&self, host: &str, port: u16) -> Arc<str> {
        let (known, address) = self.outside.get_or_init(|| (port, join(host, port).into()));
        match *known == port {
            true => address.clone(),
            false => join(host, port).into(),
        }
    }

    /// The port of this number.
    pub fn port(&self, number: u16) -> Option<&ServicePort> {
        self.ports.iter().find(|p| p.port == number)
    }
}

impl EndpointSlice {
    /// Reads a stored slice.
    pub fn from_entry(entry: &Entry) -> Self {
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

    /// The number of the port of this name.
    pub fn port_named(&self, name: &str) -> Option<u16> {
        self.ports.iter().find(|(n, _)| n == name).map(|(_, p)| *p)
    }

    /// True where an endpoint is ready.
    pub fn has_ready(&self) -> bool {
        self.endpoints.iter().any(|e| e.ready)
    }
}

fn port_number(v: &Value) -> Option<u16> {
    u16::try_from(v.as_i64()?).ok()
}
