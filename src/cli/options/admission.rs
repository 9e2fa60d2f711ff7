//! The admission flags: which plugins run, in upstream's order. Entry point: [`AdmissionOptions::on`].
//! Building the plugins is left to `app::admission`.

use super::{UsageError, Values};
use std::path::PathBuf;

/// Every plugin of v1.36 in call order, and whether it is enabled by default.
const ALL: &[(&str, bool)] = &[
    ("AlwaysAdmit", false),
    ("NamespaceAutoProvision", false),
    ("NamespaceLifecycle", true),
    ("NamespaceExists", false),
    ("LimitPodHardAntiAffinityTopology", false),
    ("LimitRanger", true),
    ("ServiceAccount", true),
    // Off by default; [`AdmissionOptions::restrict_nodes`] enables it together with the Node authorizer.
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
    // After the others, so that what they reject is not charged.
    ("ResourceQuota", true),
    ("AlwaysDeny", false),
];

const NODE_RESTRICTION: &str = "NodeRestriction";

/// Upstream plugins that are off by default and missing in this release, because they need a file that names
/// a service or limits. Enabling one is refused; otherwise requests would be admitted that the plugin should
/// reject.
const ABSENT: &[&str] = &["ImagePolicyWebhook", "EventRateLimit"];

/// `--enable-admission-plugins`, `--disable-admission-plugins` and the older `--admission-control`.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionOptions {
    on: Vec<&'static str>,
    /// The value of `--disable-admission-plugins`.
    disabled: Vec<String>,
    /// `--admission-control-config-file`.
    pub config_file: Option<PathBuf>,
    /// `--default-not-ready-toleration-seconds`.
    pub not_ready_seconds: i64,
    /// `--default-unreachable-toleration-seconds`.
    pub unreachable_seconds: i64,
}

fn check_names(flag: &str, names: &[String]) -> Result<(), UsageError> {
    match names.iter().find(|n| !ALL.iter().any(|(known, _)| known == n)) {
        None => Ok(()),
        Some(name) => Err(UsageError::new(format!("{flag} plugin {name:?} is unknown"))),
    }
}

impl AdmissionOptions {
    /// The enabled plugins, in call order.
    pub(crate) fn on(&self) -> impl Iterator<Item = &'static str> {
        self.on.iter().copied()
    }

    /// Enables NodeRestriction because the Node authorizer is enabled. That authorizer lets any node create
    /// pods, request tokens and patch nodes, and relies on this plugin to limit it to its own. Without it one
    /// kubelet's credential is cluster-admin. Only `--disable-admission-plugins` keeps it off, in which case
    /// a warning is returned.
    pub(in crate::cli) fn restrict_nodes(&mut self) -> Option<&'static str> {
        if self.disabled.iter().any(|n| n == NODE_RESTRICTION) {
            return Some(
                "--disable-admission-plugins=NodeRestriction with the Node authorizer: any kubelet's credential is as good \
                 as cluster-admin's",
            );
        }
        // Rebuilt from `ALL` rather than pushed: the position in the chain matters.
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
        // `--admission-control` replaces the whole list, the other two change the default list.
        if !control.is_empty() && changed {
            return Err(UsageError::new(
                "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive",
            ));
        }
        check_names("admission-control", &control)?;
        check_names("enable-admission-plugins", &enabled)?;
        check_names("disable-admission-plugins", &disabled)?;
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
                "--enable-admission-plugins: {absent} is refused: this release does not have it, so requests that it \
                 rejects would be admitted"
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
