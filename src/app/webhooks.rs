//! Builds the callers of webhooks from TLS, egress rules, and the aggregator's view of Services. Entry point:
//! [`Callers`]. Calls themselves are in `crate::client::webhook`; which webhooks apply to a request is
//! decided in `crate::admission`.

use super::Error;
use super::error::{admission_file, admission_plugin};
use crate::admission::configuration::ConfigSchema;
use crate::admission::policy::{MutatingPolicy, Policies, StoredPolicy, ValidatingPolicy};
use crate::admission::{self, Configuration, ObjectLookup, webhook::Configurations};
use crate::aggregator::{ServiceReference, ServiceResolver};
use crate::apimachinery::time;
use crate::client::webhook::{Identities, ResolveError, ResolveService, SharedWebhooks, Webhooks};
use crate::controlplane::ControlPlane;
use crate::extensions::conversion::Conversions;
use crate::proxy::outbound::Outbound;
use crate::proxy::tls::TlsBuilder;
use crate::request::{Authorized, Handler, Request, Response, UnprotectedHandler};
use crate::server::mux::DynHandler;
use crate::server::page as server_page;
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use crate::telemetry::admission_webhooks::AdmissionWebhookMetrics;
use crate::telemetry::conversion::ConversionMetrics;
use crate::telemetry::match_conditions::MatchConditionMetrics;
use async_trait::async_trait;
use rustls::crypto::CryptoProvider;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

mod page;

const PLUGIN_CONFIG: ConfigSchema = ConfigSchema {
    versions: &["apiserver.config.k8s.io/v1"],
    kind: "WebhookAdmissionConfiguration",
    fields: &[("kubeConfigFile", &[]), ("staticManifestsDir", &[])],
};

/// The Services of the cluster. Both parts are set after the webhooks are configured: the aggregator, which resolves
/// Services, needs the stores, whose admission calls webhooks; the filter chain, which is the Service
/// default/kubernetes, needs the aggregator.
#[derive(Clone, Default)]
pub(crate) struct Services {
    resolver: Arc<OnceLock<Arc<dyn ServiceResolver>>>,
    /// Weak because the chain owns the webhooks.
    own: Arc<OnceLock<Weak<dyn Handler>>>,
}

impl Services {
    /// Sets the resolver. Later calls have no effect.
    pub(crate) fn set(&self, resolver: Arc<dyn ServiceResolver>) {
        // Only the composition calls it, and once.
        let _ = self.resolver.set(resolver);
    }

    /// Sets the head of the filter chain. Later calls have no effect.
    pub(crate) fn set_own_server(&self, handler: &Arc<dyn Handler>) {
        let _ = self.own.set(Arc::downgrade(handler));
    }
}

impl ResolveService for Services {
    fn addresses(&self, namespace: &str, name: &str, port: u16) -> Result<Arc<[Arc<str>]>, ResolveError> {
        // A write during start-up may need a webhook before the aggregator is installed.
        let resolver = self.resolver.get().ok_or(ResolveError::Starting)?;
        let found = resolver.endpoints(&ServiceReference::new(namespace, name, port));
        found.map(Into::into).map_err(|e| ResolveError::NoAddress(e.0))
    }

    fn own_server(&self) -> Option<Arc<dyn Handler>> {
        self.own.get()?.upgrade()
    }
}

/// Dependencies of the callers of webhooks.
pub(crate) struct Callers<'a> {
    /// Cryptography for TLS.
    pub provider: &'a Arc<CryptoProvider>,
    /// Proxies, socket directories, and the refusal of this server's own addresses.
    pub outbound: &'a Outbound,
    /// The Services of the cluster.
    pub services: &'a Services,
    pub telemetry: &'a Telemetry,
    /// Owns the tasks of connections.
    pub tasks: &'a TaskGroup,
}

/// The webhook configurations and policies of admission, and what their webhooks are called with.
pub(crate) struct AdmissionWebhooks {
    pub mutating: Arc<Configurations>,
    pub validating: Arc<Configurations>,
    /// ValidatingAdmissionPolicies with their bindings.
    pub validating_policies: Arc<Policies<ValidatingPolicy>>,
    /// MutatingAdmissionPolicies with their bindings.
    pub mutating_policies: Arc<Policies<MutatingPolicy>>,
    /// Connections to mutating webhooks. Each plugin has its own, because each can have its own identity.
    pub to_mutating: Arc<SharedWebhooks>,
    /// Connections to validating webhooks.
    pub to_validating: Arc<SharedWebhooks>,
    pub metrics: AdmissionWebhookMetrics,
    /// Metrics of match conditions, which webhooks and policies have.
    pub conditions: MatchConditionMetrics,
}

impl Callers<'_> {
    fn webhooks(&self) -> Webhooks {
        let tls = TlsBuilder::new(self.provider.clone()).with_metrics(self.telemetry.webhook_x509_warnings.clone());
        let services = Arc::new(self.services.clone());
        Webhooks::new(tls, self.outbound.clone(), services, self.tasks.clone())
    }

    /// The conversions of custom resources.
    pub(crate) fn conversions(&self) -> Conversions {
        Conversions::new(self.webhooks(), ConversionMetrics::new(self.telemetry.registry()))
    }

    /// The webhooks of admission, called with the identities of the configuration file.
    ///
    /// # Errors
    /// A one-line message about a kubeconfig.
    pub(crate) fn admission(&self, configuration: &Configuration) -> Result<AdmissionWebhooks, Error> {
        let shared = |plugin: &str| {
            let identities = match webhook_kubeconfig(configuration, plugin)? {
                None => Identities::default(),
                Some(file) => {
                    Identities::read(&file, self.provider).map_err(|e| Error::other(format!("{plugin}: {e}")))?
                }
            };
            let webhooks = self.webhooks().with_identities(identities);
            Ok::<_, Error>(Arc::new(SharedWebhooks::new(webhooks, admission::webhook::LIMITS)))
        };
        Ok(AdmissionWebhooks {
            mutating: Arc::default(),
            validating: Arc::default(),
            validating_policies: Arc::default(),
            mutating_policies: Arc::default(),
            to_mutating: shared("MutatingAdmissionWebhook")?,
            to_validating: shared("ValidatingAdmissionWebhook")?,
            metrics: AdmissionWebhookMetrics::new(self.telemetry.registry()),
            conditions: MatchConditionMetrics::new(self.telemetry.registry()),
        })
    }
}

/// The path of [`AdmissionWebhooks::status_page`].
pub(crate) const STATUS_PATH: &str = "/debug/admission";

impl AdmissionWebhooks {
    /// Statistics of the calls of each webhook, as JSON or HTML, with advice that depends on objects of `cluster`.
    pub(crate) fn status_page(&self, cluster: ObjectLookup) -> DynHandler {
        Arc::new(StatusPage {
            cluster,
            mutating: self.mutating.clone(),
            validating: self.validating.clone(),
        })
    }

    /// Follows the stored configurations and policies. The signals fire when they have been read.
    pub(crate) fn start(&self, plane: &ControlPlane, tasks: &TaskGroup) -> Vec<Signal> {
        let kinds = [
            (&self.mutating, "mutatingwebhookconfigurations"),
            (&self.validating, "validatingwebhookconfigurations"),
        ];
        let follow = |(configurations, plural): (&Arc<Configurations>, &'static str)| {
            let storage = plane.store("admissionregistration.k8s.io", plural).storage().clone();
            let (feed, synced) = configurations.follow(storage);
            tasks.spawn_until_stopped(plural, feed.run());
            synced
        };
        let mut synced: Vec<_> = kinds.into_iter().map(follow).collect();
        let validating = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
        synced.extend(follow_policies(&self.validating_policies, plane, tasks, validating));
        let mutating = ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"];
        synced.extend(follow_policies(&self.mutating_policies, plane, tasks, mutating));
        synced
    }
}

/// Serves [`AdmissionWebhooks::status_page`].
struct StatusPage {
    cluster: ObjectLookup,
    mutating: Arc<Configurations>,
    validating: Arc<Configurations>,
}

#[async_trait]
impl UnprotectedHandler for StatusPage {
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        let mut document = crate::json!({"kind": "AdmissionStatus", "apiVersion": "torana.dev/v1alpha1"});
        let mut webhooks = self.mutating.status("Mutating", &self.cluster).await;
        // In the order in which they are called.
        webhooks.extend(self.validating.status("Validating", &self.cluster).await);
        document.set(&["time"], time::now());
        document.set(&["webhooks"], webhooks);
        server_page::answer(&req, &document, page::render)
    }
}

/// The kubeconfig of a webhook plugin.
///
/// # Errors
/// A one-line message about the configuration.
fn webhook_kubeconfig(configuration: &Configuration, plugin: &str) -> Result<Option<PathBuf>, Error> {
    let Some(said) = configuration.checked(plugin, &PLUGIN_CONFIG).map_err(admission_file)? else {
        return Ok(None);
    };
    if !said.str_at(&["staticManifestsDir"]).is_empty() {
        let why = "staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig \
                   feature gate to be enabled";
        return Err(admission_plugin(plugin, why));
    }
    match said.str_at(&["kubeConfigFile"]) {
        "" => Ok(None),
        file if Path::new(file).is_absolute() => Ok(Some(file.into())),
        file => {
            let why = format!("kubeConfigFile: Invalid value: {file:?}: must be an absolute file path");
            Err(admission_plugin(plugin, why))
        }
    }
}

fn follow_policies<P: StoredPolicy>(
    policies: &Arc<Policies<P>>,
    plane: &ControlPlane,
    tasks: &TaskGroup,
    plurals: [&'static str; 2],
) -> [Signal; 2] {
    let [of_policies, of_bindings] =
        plurals.map(|plural| plane.store("admissionregistration.k8s.io", plural).storage().clone());
    let (feeds, synced) = policies.follow(of_policies, of_bindings);
    tasks.spawn_until_stopped(plurals[0], feeds.run());
    synced
}
