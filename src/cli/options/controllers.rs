//! The flags of the control loops, which are kube-controller-manager's.

use super::{UsageError, Values, file};
use crate::controllers::Selection;
use std::path::PathBuf;

/// Flags of the control loops.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// `--controllers`
    pub selection: Selection,
    /// `--root-ca-file`
    pub root_ca_file: Option<PathBuf>,
}

impl ControllerOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let selection = Selection::parse(&values.list("controllers"));
        Ok(Self {
            selection: selection.map_err(|e| UsageError::new(format!("--controllers: {e}")))?,
            root_ca_file: file(values, "root-ca-file"),
        })
    }
}
