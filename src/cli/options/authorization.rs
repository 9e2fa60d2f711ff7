//! What callers may do.

use super::{UsageError, Values};

/// Authorization flags.
#[derive(Clone, Debug)]
pub struct AuthorizationOptions {
    /// `--authorization-mode`, in order; Node and RBAC where not given.
    pub modes: Vec<AuthorizationMode>,
}

/// One mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Everybody may do everything.
    AlwaysAllow,
    /// Nobody may do anything.
    AlwaysDeny,
    /// Roles and bindings.
    Rbac,
    /// Nodes may see what their pods need.
    Node,
}

impl AuthorizationOptions {
    pub(super) fn read(values: &Values) -> Result<Self, UsageError> {
        let mut modes = Vec::new();
        let given = values.list("authorization-mode");
        for name in &given {
            let mode = match name.as_str() {
                "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
                "AlwaysDeny" => AuthorizationMode::AlwaysDeny,
                "RBAC" => AuthorizationMode::Rbac,
                "Node" => AuthorizationMode::Node,
                "ABAC" | "Webhook" => {
                    return Err(UsageError::new(format!(
                        "--authorization-mode={name} is refused: not in this release; RBAC, Node, AlwaysAllow and \
                         AlwaysDeny are"
                    )));
                }
                _ => {
                    return Err(UsageError::new(format!(
                        "authorization-mode {name:?} is not a valid mode"
                    )));
                }
            };
            if modes.contains(&mode) {
                return Err(UsageError::new(format!(
                    "authorization-mode {given:?} has mode specified more than once"
                )));
            }
            modes.push(mode);
        }
        if modes.is_empty() {
            modes = vec![AuthorizationMode::Node, AuthorizationMode::Rbac];
        }
        Ok(Self { modes })
    }

    /// True where everybody may do everything.
    pub fn allows_all(&self) -> bool {
        self.modes.contains(&AuthorizationMode::AlwaysAllow)
    }
}
