//! The flags of the control loops, which are kube-controller-manager's.

use super::{UsageError, Values, file};
use crate::controllers::Selection;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of the control loops.
#[derive(Clone, Debug)]
pub(crate) struct ControllerOptions {
    /// `--controllers`
    pub selection: Selection,
    /// `--root-ca-file`
    pub root_ca_file: Option<PathBuf>,
    /// `--cluster-signing-cert-file` and `--cluster-signing-key-file`
    pub(crate) signing_ca: Option<(PathBuf, PathBuf)>,
    /// `--legacy-service-account-token-clean-up-period`
    pub(crate) unused_tokens: Duration,
    /// `--cluster-signing-duration`
    pub(crate) signing_duration: Duration,
}

impl ControllerOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let selection = Selection::parse(&values.list("controllers"));
        let pair = ["cluster-signing-cert-file", "cluster-signing-key-file"].map(|name| file(values, name));
        let signing_ca = match pair {
            [Some(cert), Some(key)] => Some((cert, key)),
            [None, None] => None,
            _ => {
                let message = "--cluster-signing-cert-file and --cluster-signing-key-file must be given together";
                return Err(UsageError::new(message));
            }
        };
        let period = "legacy-service-account-token-clean-up-period";
        let unused_tokens = values.duration(period)?;
        // Zero would mark every generated token as unused at once.
        if unused_tokens.is_zero() {
            return Err(UsageError::new(format!("--{period}: must be greater than 0")));
        }
        Ok(Self {
            signing_ca,
            unused_tokens,
            signing_duration: values.duration("cluster-signing-duration")?,
            selection: selection.map_err(|e| UsageError::new(format!("--controllers: {e}")))?,
            root_ca_file: file(values, "root-ca-file"),
        })
    }
}
