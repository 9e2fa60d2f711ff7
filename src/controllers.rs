//! The control loops that a kube-apiserver leaves to kube-controller-manager, as far as an API server is of
//! little use without them: deletion of namespaces, default ServiceAccounts, aggregated ClusterRoles and so
//! on.
//!
//! Entry point: [`Controllers::run`], with the loops that `--controllers` selects ([`Selection`]). The loops
//! follow the watch cache (`client::Informer`) and write through the gateway's own filter chain (`loopback`)
//! as the service accounts that upstream's loops use, so authorization, admission, audit and metrics treat
//! them like any client. They run only while `election` allows it: once among several gateways, and never
//! beside a kube-controller-manager.
//!
//! A loop gets a `Term`: what it reads, what it writes with, and the task group that ends with the term.

mod account_tokens;
mod aggregated_roles;
mod bootstrap_tokens;
mod certificates;
pub(crate) mod discovery;
mod election;
mod events;
mod expiry;
mod failure;
mod finished_jobs;
mod garbage;
pub(crate) mod loopback;
mod namespace;
mod namespaces;
mod objects;
mod policy_types;
mod quota;
mod root_ca;
mod secrets;
mod selection;
mod service_account;
mod service_cidrs;
mod service_endpoints;
mod sized;
mod stale_tokens;
mod term;
mod volumes;

pub(crate) use certificates::SigningConfig;
pub(crate) use selection::Selection;

use crate::authn::service_account::Issuer;
use crate::pki::certs::DynamicCa;
use crate::registry::StoreLookup;
use crate::request::Handler;
use crate::storage::Storage;
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use election::Election;
use service_endpoints::SliceMetrics;
use std::sync::Arc;
use std::time::Duration;
use term::Term;
use tokio::time::Instant;

/// Time that the tasks of a term have to end. Short, because another process may start the loops meanwhile.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// The dependencies of the loops.
pub(crate) struct Config {
    /// The loops to run.
    pub selection: Selection,
    /// The stores that the informers watch.
    pub lookup: StoreLookup,
    /// The gateway's filter chain.
    pub handler: Arc<dyn Handler>,
    /// Identity in the election. The same after a restart if no other gateway can have the store open.
    pub identity: String,
    /// Whether other gateways serve the same store. Then a loop waits until they have seen what it reacts to.
    pub shared_store: bool,
    /// The CAs with which clients inside the cluster verify this server, if they are known.
    pub root_ca: Option<Arc<DynamicCa>>,
    /// The CAs that sign certificate signing requests.
    pub(crate) signing: Arc<SigningConfig>,
    /// Signs the tokens that are stored in Secrets.
    pub issuer: Issuer,
    /// `--legacy-service-account-token-clean-up-period`
    pub unused_tokens: Duration,
    /// Registry for the metrics of queues and of the endpoint loops.
    pub telemetry: Telemetry,
}

/// The control loops of a gateway, of which one process at a time runs them.
pub(crate) struct Controllers(Config);

impl Controllers {
    /// The loops of this configuration.
    pub(crate) fn new(config: Config) -> Self {
        Self(config)
    }

    /// Runs the loops whenever this gateway is elected, until `stop` fires.
    pub(crate) async fn run(self, stop: Signal) {
        let config = self.0;
        let Some(leases) = storage(&config.lookup, "coordination.k8s.io", "leases") else {
            return;
        };
        // Once for all terms: a registry refuses to register a metric twice.
        let slice_metrics = Arc::new(SliceMetrics::new(&config.telemetry));
        let contended = config.shared_store;
        let mut election = Election::new(leases, &config.handler, config.identity.clone(), contended);
        loop {
            // Biased towards stopping, here and below: an election never ends on its own.
            let mut leadership = tokio::select! {
                biased;
                () = stop.wait() => return,
                elected = election.elected() => elected,
            };
            tracing::info!("the control loops start");
            let term = Term::new(&config, &slice_metrics);
            start(&config.selection, &term);
            tokio::select! {
                biased;
                () = stop.wait() => {
                    end(&term).await;
                    return election.release().await;
                }
                () = election.lost(&mut leadership) => {
                    tracing::info!("the control loops stop: another process runs them");
                    end(&term).await;
                }
            }
        }
    }
}

/// Starts the loops of a term.
fn start(selection: &Selection, term: &Term) {
    let starts: &[(&str, fn(&Term))] = &[
        ("bootstrap-signer-controller", bootstrap_tokens::start_signer),
        ("service-cidr-controller", service_cidrs::start),
        ("serviceaccount-token-controller", account_tokens::start),
        ("legacy-serviceaccount-token-cleaner-controller", stale_tokens::start),
        ("token-cleaner-controller", bootstrap_tokens::start_cleaner),
        (
            "certificatesigningrequest-approving-controller",
            certificates::start_approver,
        ),
        (
            "certificatesigningrequest-cleaner-controller",
            certificates::start_cleaner,
        ),
        (
            "certificatesigningrequest-signing-controller",
            certificates::start_signer,
        ),
        ("endpoints-controller", service_endpoints::start_endpoints),
        ("endpointslice-controller", service_endpoints::start_slices),
        ("endpointslice-mirroring-controller", service_endpoints::start_mirroring),
        ("garbage-collector-controller", garbage::start),
        ("namespace-controller", namespace::start),
        ("persistentvolume-protection-controller", volumes::start_volumes),
        ("persistentvolumeclaim-protection-controller", volumes::start_claims),
        ("resourcequota-controller", quota::start),
        ("ttl-after-finished-controller", finished_jobs::start),
        ("serviceaccount-controller", service_account::start),
        ("root-ca-certificate-publisher-controller", root_ca::start),
        ("clusterrole-aggregation-controller", aggregated_roles::start),
        ("validatingadmissionpolicy-status-controller", policy_types::start),
    ];
    debug_assert_eq!(starts.len(), selection::NAMES.len(), "every name starts a loop");
    for (name, start) in starts {
        if selection.contains(name) {
            start(term);
        }
    }
    // After all loops have subscribed: an informer that runs already would not replay its objects to them.
    term.follow();
}

async fn end(term: &Term) {
    if let Err(late) = term.tasks().shutdown(Instant::now() + TERM_GRACE).await {
        // Not an error: every write is conditional, so an interrupted loop leaves consistent objects.
        tracing::warn!(tasks = ?late.0, "control loops were interrupted");
    }
}

fn storage(lookup: &StoreLookup, group: &str, resource: &str) -> Option<Arc<dyn Storage>> {
    let found = lookup.get(group, resource);
    if found.is_err() {
        tracing::error!(group, resource, "a control loop needs a resource that is not served");
    }
    Some(found.ok()?.storage().clone())
}
