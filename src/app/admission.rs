//! `--enable-admission-plugins` and `--disable-admission-plugins` → the admission chain, in upstream's order.

use crate::admission::plugins::*;
use crate::admission::{self, Admission, Cluster, Phases, Timed};
use crate::authz::Authorizer;
use crate::cli::options::AdmissionOptions;
use crate::telemetry::Telemetry;
use std::sync::Arc;

/// What plugins are made from.
pub struct Needs<'a> {
    /// Reads of other resources; filled when all stores exist.
    pub cluster: Cluster,
    /// Asked by plugins that check a further permission.
    pub authorizer: Arc<dyn Authorizer>,
    /// Counts and times.
    pub telemetry: &'a Telemetry,
    /// PodSecurity's part of the `--admission-control-config-file`.
    pub pod_security: PodSecurityConfig,
}

/// The plugins that are on, in the order of [`AdmissionOptions::on`].
pub fn chain(options: &AdmissionOptions, needs: &Needs<'_>) -> Arc<dyn Admission> {
    let plugins = options.on().filter_map(|name| plugin(name, needs)).collect();
    Arc::new(admission::Chain::new(plugins))
}

/// `None`: a plugin that is accepted by name and has nothing to do here (its feature is off in v1.36).
fn plugin(name: &'static str, needs: &Needs<'_>) -> Option<Arc<dyn Admission>> {
    use Phases::{Both, Mutating, Validating};
    fn timed(
        name: &'static str,
        phases: Phases,
        plugin: impl Admission,
        telemetry: &Telemetry,
    ) -> Option<Arc<dyn Admission>> {
        Some(Arc::new(Timed::new(name, phases, plugin, telemetry)))
    }
    let (cluster, telemetry) = (|| needs.cluster.clone(), needs.telemetry);
    let authorizer = || needs.authorizer.clone();
    match name {
        "NamespaceLifecycle" => timed(name, Mutating, NamespaceLifecycle::new(cluster()), telemetry),
        "ServiceAccount" => timed(name, Both, ServiceAccount::new(cluster()), telemetry),
        "TaintNodesByCondition" => timed(name, Mutating, TaintNodesByCondition, telemetry),
        "Priority" => timed(name, Both, Priority::new(cluster()), telemetry),
        "DefaultTolerationSeconds" => timed(name, Mutating, DefaultTolerationSeconds::new(300, 300), telemetry),
        "RuntimeClass" => timed(name, Both, RuntimeClass::new(cluster()), telemetry),
        "LimitRanger" => timed(name, Both, LimitRanger::new(cluster()), telemetry),
        "PodSecurity" => {
            let plugin = PodSecurity::new(cluster(), needs.pod_security.clone());
            timed(name, Validating, plugin, telemetry)
        }
        "StorageObjectInUseProtection" => timed(name, Mutating, StorageProtection, telemetry),
        "DefaultStorageClass" => timed(name, Mutating, DefaultStorageClass::new(cluster()), telemetry),
        "DefaultIngressClass" => timed(name, Mutating, DefaultIngressClass::new(cluster()), telemetry),
        "PersistentVolumeClaimResize" => {
            timed(name, Validating, PersistentVolumeClaimResize::new(cluster()), telemetry)
        }
        "CertificateApproval" => timed(name, Validating, CertificateApproval(authorizer()), telemetry),
        "CertificateSigning" => timed(name, Validating, CertificateSigning(authorizer()), telemetry),
        "CertificateSubjectRestriction" => timed(name, Validating, CertificateSubjectRestriction, telemetry),
        "ClusterTrustBundleAttest" => timed(name, Validating, ClusterTrustBundleAttest(authorizer()), telemetry),
        "PodTopologyLabels" => timed(name, Mutating, PodTopologyLabels::new(cluster()), telemetry),
        "PodResizeValidator" => timed(name, Validating, PodResizeValidator::new(cluster()), telemetry),
        "NodeDeclaredFeatureValidator" => timed(
            name,
            Validating,
            NodeDeclaredFeatureValidator::new(cluster()),
            telemetry,
        ),
        _ => None,
    }
}
