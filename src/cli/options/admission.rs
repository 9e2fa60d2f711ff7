//! Which admission plugins are on.

use super::{UsageError, Values};
use std::path::PathBuf;

/// Every plugin of v1.36 in call order, and whether it is on where nothing is said.
const ALL: &[(&str, bool)] = &[
    ("AlwaysAdmit", false),
    ("NamespaceAutoProvision", false),
    ("NamespaceLifecycle", true),
    ("NamespaceExists", false),
    ("LimitPodHardAntiAffinityTopology", false),
    ("LimitRanger", true),
    ("ServiceAccount", true),
    // Off by itself; [`AdmissionOptions::restrict_nodes`] turns it on beside the Node authorizer.
    (NODE_RESTRICTION, false),
    ("TaintNodesByCondition", true),
    ("AlwaysPullImages", false),
    ("ImagePolicyWebhook", false),
    ("PodSecurity", true),
    ("PodNodeSelector", false),
    ("Priority", true),
    ("DefaultTolerationSeconds", true),
    ("PodTolerationRestriction", false),
    ("EventRateLimit", false),
    ("ExtendedResourceToleration", false),
    ("DefaultStorageClass", true),
    ("StorageObjectInUseProtection", true),
    ("PodGroupProtection", true),
    ("OwnerReferencesPermissionEnforcement", false),
    ("PersistentVolumeClaimResize", true),
    ("RuntimeClass", true),
    ("CertificateApproval", true),
    ("CertificateSigning", true),
    ("ClusterTrustBundleAttest", true),
    ("CertificateSubjectRestriction", true),
    ("DefaultIngressClass", true),
    ("DenyServiceExternalIPs", false),
    ("PodTopologyLabels", true),
    ("PodGroupWorkloadExists", true),
    ("NodeDeclaredFeatureValidator", true),
    ("JobValidation", true),
    ("PodResizeValidator", true),
    ("MutatingAdmissionPolicy", true),
    ("MutatingAdmissionWebhook", true),
    ("ValidatingAdmissionPolicy", true),
    ("ValidatingAdmissionWebhook", true),
    ("ResourceQuota", true),
    ("AlwaysDeny", false),
];

const NODE_RESTRICTION: &str = "NodeRestriction";

/// Plugins of upstream that are off by default and that this release does not have, since a file of theirs names a
/// service to ask or limits to keep: asking for one is refused, for what it would have kept out would get in.
const ABSENT: &[&str] = &["ImagePolicyWebhook", "EventRateLimit"];

/// `--enable-admission-plugins`, `--disable-admission-plugins` and the older `--admission-control`.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    on: Vec<&'static str>,
    /// Plugins that `--disable-admission-plugins` names.
    disabled: Vec<String>,
    /// What plugins are told at start.
    pub config_file: Option<PathBuf>,
    /// Seconds pods stay on a node that is not ready.
    pub not_ready_seconds: i64,
    /// Seconds pods stay on a node that cannot be reached.
    pub unreachable_seconds: i64,
}

fn known(flag: &str, names: &[String]) -> Result<(), UsageError> {
    match names.iter().find(|n| !ALL.iter().any(|(known, _)| known == n)) {
        None => Ok(()),
        Some(name) => Err(UsageError::new(format!("{flag} plugin {name:?} is unknown"))),
    }
}

impl AdmissionOptions {
    /// The plugins that are on, in call order.
    pub fn on(&self) -> impl Iterator<Item = &'static str> {
        self.on.iter().copied()
    }

    /// Turns NodeRestriction on, as the Node authorizer is: it lets any node create pods, request tokens and patch nodes,
    /// and relies on this plugin to tell whose they are. Without it one kubelet's credential is cluster-admin. Only
    /// `--disable-admission-plugins` leaves it out; the returned text then warns of that.
    pub(in crate::cli) fn restrict_nodes(&mut self) -> Option<&'static str> {
        if self.disabled.iter().any(|n| n == NODE_RESTRICTION) {
            return Some(
                "--disable-admission-plugins=NodeRestriction with the Node authorizer: any kubelet's credential is as good \
                 as cluster-admin's",
            );
        }
        let wanted = |name: &str| name == NODE_RESTRICTION || self.on.contains(&name);
        self.on = ALL.iter().map(|(name, _)| *name).filter(|name| wanted(name)).collect();
        None
    }

    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let [enabled, disabled, control] = [
            "enable-admission-plugins",
            "disable-admission-plugins",
            "admission-control",
        ]
        .map(|flag| values.list(flag));
        let changed = !enabled.is_empty() || !disabled.is_empty();
        if !control.is_empty() && changed {
            return Err(UsageError::new(
                "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive",
            ));
        }
        known("admission-control", &control)?;
        known("enable-admission-plugins", &enabled)?;
        known("disable-admission-plugins", &disabled)?;
        let both: Vec<&str> = enabled.iter().filter(|n| disabled.contains(n)).map(|n| &**n).collect();
        if !both.is_empty() {
            return Err(UsageError::new(format!(
                "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
                both.join(" ")
            )));
        }
        let has = |list: &[String], name: &str| list.iter().any(|n| n == name);
        let is_on = |&&(name, default): &&(&'static str, bool)| match control.is_empty() {
            false => has(&control, name),
            true => has(&enabled, name) || default && !has(&disabled, name),
        };
        let on: Vec<&'static str> = ALL.iter().filter(is_on).map(|(name, _)| *name).collect();
        if let Some(absent) = on.iter().find(|n| ABSENT.contains(n)) {
            return Err(UsageError::new(format!(
                "--enable-admission-plugins: {absent} is refused: this release does not have it, and what it keeps out \
                 would get in"
            )));
        }
        let config_file = values.some_text("admission-control-config-file").map(PathBuf::from);
        let (not_ready, unreachable) = (
            "default-not-ready-toleration-seconds",
            "default-unreachable-toleration-seconds",
        );
        Ok(Self {
            on,
            disabled,
            config_file,
            not_ready_seconds: values.int(not_ready)?,
            unreachable_seconds: values.int(unreachable)?,
        })
    }
}
