//! Builds the authorizers from the options, in the operator's order, and starts the informers and the file
//! reload that feed them.

use super::Error;
use super::error::Cause;
use crate::authz::abac::Abac;
use crate::authz::config::{self, AuthorizerConfig, Mode};
use crate::authz::node::{self, Graph, Node};
use crate::authz::rbac::{self, PolicyRule, Rbac};
use crate::authz::webhook::Webhook;
use crate::authz::{AlwaysAllow, AlwaysDeny, Attributes, Authorizer, PrivilegedGroups, Rules, Union, Verdict};
use crate::cli::CompletedOptions;
use crate::controlplane::ControlPlane;
use crate::controlplane::bootstrap;
use crate::request::UserInfo;
use crate::tasks::{Signal, TaskGroup};
use crate::telemetry::Telemetry;
use crate::telemetry::clients::ClientRequestMetrics;
use crate::telemetry::match_conditions::AuthorizerConditionMetrics;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the configuration file is checked for changes.
const RELOAD: Duration = Duration::from_secs(5);

/// The authorizers, and the informers that they read.
pub(crate) struct AuthorizationSetup {
    /// `system:masters` first, then the configured modes.
    pub authorizer: Arc<dyn Authorizer>,
    /// Roles and bindings. They are followed in every mode, because the escalation check on writes to them
    /// needs them.
    pub roles: Arc<Rbac>,
    parts: SharedParts,
    reload: Option<(PathBuf, Arc<ReloadableUnion>)>,
}

/// State that is shared by successive authorizer configurations.
#[derive(Clone)]
struct SharedParts {
    roles: Arc<Rbac>,
    graph: Option<Arc<Graph>>,
    policies: Option<Arc<Abac>>,
    counts: ClientRequestMetrics,
    conditions: AuthorizerConditionMetrics,
}

/// The authorizers of the configuration read last.
struct ReloadableUnion(ArcSwap<Union>);

#[async_trait]
impl Authorizer for ReloadableUnion {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        // `load_full`, because a guard of `load` must not be held across an await.
        let current = self.0.load_full();
        current.authorize(attributes).await
    }

    fn authorize_sync(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        self.0.load().authorize_sync(attributes)
    }

    async fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        let current = self.0.load_full();
        current.rules_for(user, namespace).await
    }
}

/// Builds the authorizers. Until [`AuthorizationSetup::start`] they hold no roles or objects; of RBAC only
/// `system:masters` is allowed.
///
/// # Errors
/// A file that cannot be used.
pub(crate) fn build(options: &CompletedOptions, telemetry: &Telemetry) -> Result<AuthorizationSetup, Error> {
    let o = &options.authorization;
    let roles = Rbac::new();
    // The graph follows every pod of the cluster, so it is built only for the mode that reads it.
    let uses_graph = o.authorizers.iter().any(|a| a.mode == Mode::Node);
    let policies = match &o.policy {
        None => None,
        Some(path) => {
            const FLAG: &str = "authorization-policy-file";
            let text = std::fs::read_to_string(path).map_err(Error::file(FLAG, path))?;
            Some(Arc::new(Abac::parse(&text).map_err(Error::file(FLAG, path))?))
        }
    };
    let parts = SharedParts {
        roles: roles.clone(),
        graph: uses_graph.then(Graph::new),
        policies,
        counts: telemetry.client_requests.clone(),
        conditions: AuthorizerConditionMetrics::new(telemetry.registry()),
    };
    let union = parts.union(&o.authorizers)?;
    let (authorizer, reload): (Arc<dyn Authorizer>, _) = match &o.config {
        // Without a file nothing can change, so requests do not pay for the swap.
        None => (Arc::new(union), None),
        Some(path) => {
            let current = Arc::new(ReloadableUnion(ArcSwap::from_pointee(union)));
            (current.clone(), Some((path.clone(), current)))
        }
    };
    Ok(AuthorizationSetup {
        authorizer,
        roles,
        parts,
        reload,
    })
}

impl SharedParts {
    fn union(&self, authorizers: &[AuthorizerConfig]) -> Result<Union, Error> {
        // Before everything, as upstream: an authorizer that is broken must not lock out its repair.
        let mut members: Vec<Arc<dyn Authorizer>> = vec![Arc::new(PrivilegedGroups::masters())];
        for a in authorizers {
            let unusable = |source| Error::Authorizer {
                name: a.name.clone(),
                source,
            };
            // A reload cannot add these types: what they read is set up at the start only.
            let missing = || unusable("its type was not enabled at start".into());
            members.push(match a.mode {
                Mode::AlwaysAllow => Arc::new(AlwaysAllow),
                Mode::AlwaysDeny => Arc::new(AlwaysDeny),
                Mode::Rbac => self.roles.clone(),
                Mode::Abac => self.policies.clone().ok_or_else(missing)?,
                Mode::Node => {
                    let graph = self.graph.clone().ok_or_else(missing)?;
                    // Those of the role system:node, which upstream's authorizer applies by itself, too.
                    let rules = bootstrap::rbac::node_rules();
                    Arc::new(Node::new(graph, rules.iter().map(PolicyRule::parse).collect()))
                }
                Mode::Webhook => {
                    let config = a.webhook.clone().ok_or_else(missing)?;
                    let webhook = Webhook::try_new(config, self.counts.clone());
                    let webhook = webhook.map_err(|e| unusable(e.into()))?;
                    Arc::new(webhook.with_condition_metrics(self.conditions.clone(), &a.name))
                }
            });
        }
        Ok(Union::new(members))
    }
}

impl AuthorizationSetup {
    /// Starts the informers and the file reload. The returned signals fire when the informers have synced.
    pub(crate) fn start(
        self,
        plane: &ControlPlane,
        authorizers: &[AuthorizerConfig],
        tasks: &TaskGroup,
    ) -> Vec<Signal> {
        const RBAC: &str = "rbac.authorization.k8s.io";
        let storage = |group: &str, plural: &str| plane.store(group, plural).storage().clone();
        let feeds = self.roles.follow(&rbac::Sources {
            cluster_roles: storage(RBAC, "clusterroles"),
            cluster_role_bindings: storage(RBAC, "clusterrolebindings"),
            roles: storage(RBAC, "roles"),
            role_bindings: storage(RBAC, "rolebindings"),
        });
        let mut synced = feeds.synced().to_vec();
        feeds.start(tasks);
        if let Some(graph) = &self.parts.graph {
            let slices = crate::apimachinery::gvk::GroupResource::new("resource.k8s.io", "resourceslices");
            let feeds = graph.follow(&node::Sources {
                pods: storage("", "pods"),
                volumes: storage("", "persistentvolumes"),
                attachments: storage("storage.k8s.io", "volumeattachments"),
                slices: plane.find(&slices).map(|(_, store)| store.storage().clone()),
            });
            synced.extend(feeds.synced().iter().cloned());
            feeds.start(tasks);
        }
        if let Some((path, current)) = self.reload {
            let follower = Follower {
                path,
                current,
                parts: self.parts,
                required: types(authorizers),
                at_start: authorizers.to_vec(),
                seen: None,
            };
            tasks.spawn_until_stopped("authorization config", follower.follow());
        }
        synced
    }
}

fn types(authorizers: &[AuthorizerConfig]) -> BTreeSet<&'static str> {
    let all = authorizers.iter().map(|a| a.mode);
    // Webhooks have no state from the start, so a reload may add and remove them.
    all.filter(|m| *m != Mode::Webhook).map(Mode::name).collect()
}

/// Applies new contents of the configuration file.
struct Follower {
    path: PathBuf,
    current: Arc<ReloadableUnion>,
    parts: SharedParts,
    /// The types enabled at the start.
    required: BTreeSet<&'static str>,
    at_start: Vec<AuthorizerConfig>,
    /// The content seen last, valid or not. `None` at first: the file may have been edited since it was parsed
    /// for the start, so its first content is compared with what was parsed then.
    seen: Option<Vec<u8>>,
}

impl Follower {
    /// Applies each new content of the file; if it is invalid the previous configuration stays in force.
    async fn follow(mut self) {
        loop {
            // Polled: the files of a mounted ConfigMap are replaced through a link, which a watch of the file misses.
            tokio::time::sleep(RELOAD).await;
            let text = match tokio::fs::read(&self.path).await {
                Ok(text) => text,
                Err(e) => {
                    tracing::warn!(file = %self.path.display(), "reading the authorization configuration: {e}");
                    continue;
                }
            };
            match self.apply(text) {
                Ok(false) => {}
                Ok(true) => tracing::info!(file = %self.path.display(), "authorization configuration reloaded"),
                Err(e) => {
                    tracing::error!(file = %self.path.display(), "invalid authorization configuration; keeping the previous one: {e}");
                }
            }
        }
    }

    /// Applies this content of the file. False if it is known.
    fn apply(&mut self, text: Vec<u8>) -> Result<bool, Cause> {
        if self.seen.as_ref() == Some(&text) {
            return Ok(false);
        }
        let parsed = config::parse(&text);
        // Also if it is invalid, so that each content is reported once.
        let is_first = self.seen.replace(text).is_none();
        let new = parsed?;
        if is_first && new == self.at_start {
            return Ok(false);
        }
        let found = types(&new);
        // A reload may change webhooks and the order. The state of other types exists only if they were enabled
        // at the start.
        if self.required != found {
            let missing: Vec<_> = self.required.difference(&found).collect();
            let added: Vec<_> = found.difference(&self.required).collect();
            return Err(Cause::from(format!(
                "missing required types: {missing:?}, types not enabled at start: {added:?}"
            )));
        }
        self.current.0.store(Arc::new(self.parts.union(&new)?));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(types: &[&str]) -> Vec<u8> {
        let authorizers = types
            .iter()
            .map(|t| format!("- {{type: {t}, name: {}}}\n", t.to_lowercase()));
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n{}",
            authorizers.collect::<String>()
        )
        .into_bytes()
    }

    #[test]
    fn a_file_edited_during_the_start_is_applied() {
        const AT_START: [&str; 2] = ["RBAC", "AlwaysAllow"];
        let follower = || {
            let telemetry = Telemetry::new();
            let at_start = config::parse(&text(&AT_START)).expect("a configuration");
            Follower {
                path: PathBuf::from("f"),
                current: Arc::new(ReloadableUnion(ArcSwap::from_pointee(Union::new(Vec::new())))),
                parts: SharedParts {
                    roles: Rbac::new(),
                    graph: None,
                    policies: None,
                    counts: telemetry.client_requests.clone(),
                    conditions: AuthorizerConditionMetrics::new(telemetry.registry()),
                },
                required: types(&at_start),
                at_start,
                seen: None,
            }
        };
        let mut edited = follower();
        assert!(matches!(edited.apply(text(&["AlwaysAllow", "RBAC"])), Ok(true)));
        assert!(
            matches!(edited.apply(text(&["AlwaysAllow", "RBAC"])), Ok(false)),
            "once"
        );
        let mut unchanged = follower();
        assert!(matches!(unchanged.apply(text(&AT_START)), Ok(false)));
        assert!(unchanged.apply(text(&["AlwaysAllow"])).is_err());
        assert!(
            matches!(unchanged.apply(text(&["AlwaysAllow"])), Ok(false)),
            "reported once"
        );
    }
}
