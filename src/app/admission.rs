//! Builds the admission chain, in upstream's order, from `--enable-admission-plugins`,
//! `--disable-admission-plugins` and `--admission-control-config-file`.

use super::Error;
use super::error::{admission_file, admission_plugin};
use super::webhooks::AdmissionWebhooks;
use crate::admission::configuration::ConfigSchema;
use crate::admission::plugins::*;
use crate::admission::policy::{MutatingPolicies, Surroundings, ValidatingPolicies};
use crate::admission::webhook::{Calls, MutatingWebhooks, ValidatingWebhooks};
use crate::admission::{self, Admission, Configuration, ObjectLookup, Phases, Timed};
use crate::authz::Authorizer;
use crate::cli::options::AdmissionOptions;
use crate::client::webhook::SharedWebhooks;
use crate::telemetry::Telemetry;
use crate::telemetry::admission_policies::{AdmissionPolicyMetrics, MutatingPolicyMetrics};
use std::sync::Arc;

pub(crate) struct PluginDependencies<'a> {
    /// Reads of other resources.
    pub cluster: ObjectLookup,
    /// For plugins that check a further permission.
    pub authorizer: Arc<dyn Authorizer>,
    pub telemetry: &'a Telemetry,
    pub webhooks: &'a AdmissionWebhooks,
    /// The admission configuration file.
    pub configuration: Configuration,
    /// Default toleration seconds for nodes that are not ready, and for unreachable ones.
    pub toleration_seconds: [i64; 2],
}

impl PluginDependencies<'_> {
    /// Dependencies of a plugin of policies.
    fn surroundings<M>(&self, metrics: M) -> Surroundings<M> {
        Surroundings {
            cluster: self.cluster.clone(),
            authorizer: self.authorizer.clone(),
            metrics,
            conditions: self.webhooks.conditions.clone(),
        }
    }

    /// Dependencies of a plugin of webhooks.
    fn calls(&self, webhooks: &Arc<SharedWebhooks>) -> Calls {
        Calls {
            cluster: self.cluster.clone(),
            webhooks: webhooks.clone(),
            authorizer: self.authorizer.clone(),
            metrics: self.webhooks.metrics.clone(),
            conditions: self.webhooks.conditions.clone(),
        }
    }
}

const POD_SECURITY: ConfigSchema = ConfigSchema {
    versions: &[
        "pod-security.admission.config.k8s.io/v1",
        "pod-security.admission.config.k8s.io/v1beta1",
        "pod-security.admission.config.k8s.io/v1alpha1",
    ],
    kind: "PodSecurityConfiguration",
    fields: &[
        (
            "defaults",
            &[
                "enforce",
                "enforce-version",
                "audit",
                "audit-version",
                "warn",
                "warn-version",
            ],
        ),
        ("exemptions", &["usernames", "runtimeClasses", "namespaces"]),
    ],
};

const QUOTA: ConfigSchema = ConfigSchema {
    versions: &[
        "apiserver.config.k8s.io/v1",
        "resourcequota.admission.k8s.io/v1",
        "resourcequota.admission.k8s.io/v1beta1",
        "resourcequota.admission.k8s.io/v1alpha1",
    ],
    kind: "ResourceQuotaConfiguration",
    fields: &[("limitedResources", &[])],
};

const POD_TOLERATIONS: ConfigSchema = ConfigSchema {
    versions: &["podtolerationrestriction.admission.k8s.io/v1alpha1"],
    kind: "Configuration",
    fields: &[("default", &[]), ("whitelist", &[])],
};

/// Reads the configuration file, if there is one.
///
/// # Errors
/// A one-line message about the file.
pub(crate) fn configuration(options: &AdmissionOptions) -> Result<Configuration, Error> {
    match &options.config_file {
        None => Ok(Configuration::default()),
        Some(path) => Configuration::read(path, &|path| std::fs::read(path)).map_err(admission_file),
    }
}

/// The enabled plugins, in the order of [`AdmissionOptions::on`].
///
/// # Errors
/// A one-line message about an invalid plugin configuration.
pub(crate) fn chain(
    options: &AdmissionOptions,
    dependencies: &PluginDependencies<'_>,
) -> Result<Arc<dyn Admission>, Error> {
    let mut plugins = Vec::new();
    for name in options.on() {
        // `extend`: a plugin without effect takes no place in the chain.
        plugins.extend(plugin(name, dependencies)?);
    }
    let chain = admission::Chain::new(plugins);
    Ok(Arc::new(admission::TimedSteps::new(chain, dependencies.telemetry)))
}

fn pod_security(dependencies: &PluginDependencies<'_>) -> Result<PodSecurityConfig, Error> {
    let said = dependencies.configuration.checked("PodSecurity", &POD_SECURITY);
    match said.map_err(admission_file)? {
        None => Ok(PodSecurityConfig::default()),
        Some(said) => PodSecurityConfig::parse(said).map_err(|e| admission_plugin("PodSecurity", e)),
    }
}

/// Wraps plugins with their name, phases and metrics.
struct PluginBuilder<'a> {
    name: &'static str,
    telemetry: &'a Telemetry,
}

impl PluginBuilder<'_> {
    fn with(&self, phases: Phases, plugin: impl Admission) -> Arc<dyn Admission> {
        Arc::new(Timed::new(self.name, phases, plugin, self.telemetry))
    }
    fn mutating(&self, plugin: impl Admission) -> Arc<dyn Admission> {
        self.with(Phases::Mutating, plugin)
    }
    fn validating(&self, plugin: impl Admission) -> Arc<dyn Admission> {
        self.with(Phases::Validating, plugin)
    }
    fn both(&self, plugin: impl Admission) -> Arc<dyn Admission> {
        self.with(Phases::Both, plugin)
    }
}

/// The plugin with this name. `None` for names that are accepted but have no effect, because their feature is
/// off in v1.36 or because upstream's plugin admits everything.
fn plugin(name: &'static str, dependencies: &PluginDependencies<'_>) -> Result<Option<Arc<dyn Admission>>, Error> {
    let builder = PluginBuilder {
        name,
        telemetry: dependencies.telemetry,
    };
    let cluster = || dependencies.cluster.clone();
    let authorizer = || dependencies.authorizer.clone();
    Ok(Some(match name {
        "NamespaceLifecycle" => builder.mutating(NamespaceLifecycle::new(cluster())),
        "ServiceAccount" => builder.both(ServiceAccount::new(cluster())),
        // In the mutating phase, as upstream, although it changes nothing.
        "NodeRestriction" => builder.mutating(NodeRestriction::new(cluster(), authorizer())),
        "TaintNodesByCondition" => builder.mutating(TaintNodesByCondition),
        "Priority" => builder.both(Priority::new(cluster())),
        "DefaultTolerationSeconds" => {
            let [not_ready, unreachable] = dependencies.toleration_seconds;
            builder.mutating(DefaultTolerationSeconds::new(not_ready, unreachable))
        }
        "RuntimeClass" => builder.both(RuntimeClass::new(cluster())),
        "LimitRanger" => builder.both(LimitRanger::new(cluster())),
        "PodSecurity" => {
            let plugin = PodSecurity::new(cluster(), pod_security(dependencies)?);
            builder.validating(plugin)
        }
        "StorageObjectInUseProtection" => builder.mutating(StorageProtection),
        "DefaultStorageClass" => builder.mutating(DefaultStorageClass::new(cluster())),
        "DefaultIngressClass" => builder.mutating(DefaultIngressClass::new(cluster())),
        "PersistentVolumeClaimResize" => builder.validating(PersistentVolumeClaimResize::new(cluster())),
        "CertificateApproval" => builder.validating(CertificateApproval(authorizer())),
        "CertificateSigning" => builder.validating(CertificateSigning(authorizer())),
        "CertificateSubjectRestriction" => builder.validating(CertificateSubjectRestriction),
        "ClusterTrustBundleAttest" => builder.validating(ClusterTrustBundleAttest(authorizer())),
        "PodTopologyLabels" => builder.mutating(PodTopologyLabels::new(cluster())),
        "PodResizeValidator" => builder.validating(PodResizeValidator::new(cluster())),
        "NodeDeclaredFeatureValidator" => builder.validating(NodeDeclaredFeatureValidator::new(cluster())),
        "MutatingAdmissionWebhook" => {
            let configurations = dependencies.webhooks.mutating.clone();
            let calls = dependencies.calls(&dependencies.webhooks.to_mutating);
            builder.mutating(MutatingWebhooks::new(configurations, calls))
        }
        "ValidatingAdmissionWebhook" => {
            let configurations = dependencies.webhooks.validating.clone();
            let calls = dependencies.calls(&dependencies.webhooks.to_validating);
            builder.validating(ValidatingWebhooks::new(configurations, calls))
        }
        "ValidatingAdmissionPolicy" => {
            let metrics = AdmissionPolicyMetrics::new(dependencies.telemetry.registry());
            let policies = dependencies.webhooks.validating_policies.clone();
            builder.validating(ValidatingPolicies::new(policies, dependencies.surroundings(metrics)))
        }
        "MutatingAdmissionPolicy" => {
            let metrics = MutatingPolicyMetrics::new(dependencies.telemetry.registry());
            let policies = dependencies.webhooks.mutating_policies.clone();
            builder.mutating(MutatingPolicies::new(policies, dependencies.surroundings(metrics)))
        }
        "ResourceQuota" => {
            let said = dependencies
                .configuration
                .checked(name, &QUOTA)
                .map_err(admission_file)?;
            let config = said.map(QuotaConfig::parse).unwrap_or_default();
            builder.validating(ResourceQuota::new(cluster(), config))
        }
        // Upstream's denies in both phases; after the first, the second is never reached.
        "AlwaysDeny" => builder.mutating(AlwaysDeny),
        "AlwaysPullImages" => builder.both(AlwaysPullImages),
        "DenyServiceExternalIPs" => builder.validating(DenyServiceExternalIPs),
        "ExtendedResourceToleration" => builder.mutating(ExtendedResourceToleration),
        "LimitPodHardAntiAffinityTopology" => builder.validating(LimitPodHardAntiAffinityTopology),
        "NamespaceAutoProvision" => builder.mutating(NamespaceAutoProvision(cluster())),
        "NamespaceExists" => builder.validating(NamespaceExists(cluster())),
        "OwnerReferencesPermissionEnforcement" => {
            builder.validating(OwnerReferencesPermissionEnforcement::new(cluster(), authorizer()))
        }
        "PodNodeSelector" => {
            let plugin = PodNodeSelector::try_new(cluster(), dependencies.configuration.of(name));
            builder.both(plugin.map_err(|e| admission_plugin(name, e))?)
        }
        "PodTolerationRestriction" => {
            let said = dependencies.configuration.checked(name, &POD_TOLERATIONS);
            builder.both(PodTolerationRestriction::new(cluster(), said.map_err(admission_file)?))
        }
        // Names were checked against the list of v1.36 when the flags were read, so an unknown one cannot get
        // here.
        _ => return Ok(None),
    }))
}
