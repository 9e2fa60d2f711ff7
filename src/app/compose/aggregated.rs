//! Configures the aggregator from the options and the servers behind it.

use super::base::Base;
use crate::aggregator;
use crate::app::servers::Serving;
use crate::controlplane::ControlPlane;
use crate::proxy::outbound::Outbound;
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::transport::ConnectionLimits;
use crate::request::UnprotectedHandler;
use crate::request::headers::IdentityHeaders;
use std::sync::Arc;

/// What the aggregator gets from the stages before it.
pub(super) struct Delegates<'a> {
    pub plane: &'a ControlPlane,
    pub serving: &'a Serving,
    pub identity_headers: &'a IdentityHeaders,
    /// OpenAPI of the aggregator's own group.
    pub openapi: Arc<dyn UnprotectedHandler>,
    pub outbound: Outbound,
    pub policy: ProxyPolicy,
}

/// The aggregator's configuration: its flags, and what of the other servers it reads and publishes.
pub(super) fn config(base: &Base, delegates: Delegates<'_>) -> aggregator::Config {
    let Delegates {
        plane,
        serving,
        identity_headers,
        openapi,
        outbound,
        policy,
    } = delegates;
    let options = &base.options;
    let storage = |group: &str, plural: &str| plane.store(group, plural).storage().clone();
    aggregator::Config {
        api_services: storage("apiregistration.k8s.io", "apiservices"),
        writer: Arc::new(plane.store("apiregistration.k8s.io", "apiservices").clone()),
        services: storage("", "services"),
        endpoint_slices: storage("discovery.k8s.io", "endpointslices"),
        secrets: storage("", "secrets"),
        config_maps: storage("", "configmaps"),
        definitions: storage("apiextensions.k8s.io", "customresourcedefinitions"),
        discovery: serving.published.apis.clone(),
        openapi: vec![openapi],
        telemetry: base.telemetry.clone(),
        connections: base.tasks.clone(),
        provider: base.provider.clone(),
        outbound,
        policy,
        identity_headers: identity_headers.clone(),
        documents: aggregator::DocumentLimits {
            discovery: options.aggregator.max_discovery_bytes,
            openapi: options.aggregator.max_openapi_bytes,
        },
        identity: Some(base.port.proxy_client.current().certified_key.clone()),
        loopback: base.loopback().to_owned(),
        to_endpoints: options.aggregator.route_by_endpoint,
        reject_redirects: options.aggregator.reject_redirects,
        keeps_discovery: options.aggregator.keeps_discovery,
        disk_cache_dir: Some(options.storage.data_dir.join("aggregator")),
        priorities: serving.priorities.clone(),
        backend_limits: aggregator::BackendLimits {
            requests: match options.aggregator.max_requests {
                // One slow backend must not take all seats of the server.
                0 => options.generic.max_requests_in_flight.div_ceil(2),
                n => n,
            },
            watches: options.aggregator.max_watches,
        },
        connection_limits: ConnectionLimits {
            connections: options.aggregator.max_connections,
            waiting: options.aggregator.max_waiting,
        },
        resolver: None,
    }
}
