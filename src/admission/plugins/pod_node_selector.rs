//! PodNodeSelector: merges the namespace's node selector into its pods. As upstream's
//! `plugin/pkg/admission/podnodeselector`.

use crate::admission::{Admission, Attributes, ObjectLookup, forbidden};
use crate::apimachinery::field::{FieldError, FieldPath};
use crate::apimachinery::gvk::GroupResource;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::{label_value, qualified_name};
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::BTreeMap;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";

type Labels = BTreeMap<String, String>;

/// Adds the namespace's node selector to new pods and restricts theirs to the configured allow list.
pub(crate) struct PodNodeSelector {
    cluster: ObjectLookup,
    /// `clusterDefaultNodeSelector`
    default: Labels,
    /// The labels that pods of a namespace may select, by namespace.
    allowed: BTreeMap<String, Labels>,
}

/// Why a part of a node selector is invalid; worded as upstream words it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidSelector {
    /// It is not of the form `a=b`. Go prints the list of what the equals signs separate.
    #[error("invalid selector: [{}]", .0.replace('=', " "))]
    Part(String),
    /// Its key or value is not that of a label.
    #[error("{0}")]
    Label(FieldError),
}

/// An error in the selector of a namespace in the configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{0}: must be a string")]
    NotString(String),
    #[error("{namespace}: {source}")]
    Selector { namespace: String, source: InvalidSelector },
}

/// Parses `a=b,c=d`, as upstream's `labels.ConvertSelectorToLabelsMap`.
fn labels(text: &str) -> std::result::Result<Labels, InvalidSelector> {
    let parts = text.split(',').filter(|_| !text.is_empty());
    parts.map(label).collect()
}

fn label(part: &str) -> std::result::Result<(String, String), InvalidSelector> {
    let mut sides = part.split('=');
    let (Some(key), Some(value), None) = (sides.next(), sides.next(), sides.next()) else {
        return Err(InvalidSelector::Part(part.to_owned()));
    };
    let (key, value) = (key.trim(), value.trim());
    // The selector is no field of an object, so upstream's errors have no path.
    let root = FieldPath::default();
    let invalid = |at: &FieldPath, what: &str, why: &[String]| {
        InvalidSelector::Label(FieldError::invalid(at, what, why.join("; ")))
    };
    let why = qualified_name(key);
    if !why.is_empty() {
        return Err(invalid(&root, key, &why));
    }
    let why = label_value(value);
    if !why.is_empty() {
        return Err(invalid(&root.key(key), value, &why));
    }
    Ok((key.to_owned(), value.to_owned()))
}

impl PodNodeSelector {
    /// Reads namespaces from `cluster`; `configuration` is upstream's `podNodeSelectorPluginConfig` file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub(crate) fn try_new(
        cluster: ObjectLookup,
        configuration: Option<&Value>,
    ) -> std::result::Result<Self, ConfigError> {
        let configuration = configuration.unwrap_or(&Value::Null).get("podNodeSelectorPluginConfig");
        let mut allowed = BTreeMap::new();
        for (namespace, text) in configuration.as_object().into_iter().flat_map(|m| m.iter()) {
            let not_string = || ConfigError::NotString(namespace.to_owned());
            let labels = labels(text.as_str().ok_or_else(not_string)?).map_err(|source| ConfigError::Selector {
                namespace: namespace.to_owned(),
                source,
            })?;
            allowed.insert(namespace.to_owned(), labels);
        }
        // The file has the default among the namespaces, under a name that no namespace can have.
        let default = allowed.remove("clusterDefaultNodeSelector").unwrap_or_default();
        Ok(Self {
            cluster,
            default,
            allowed,
        })
    }

    async fn of_namespace(&self, name: &str) -> Result<Labels> {
        let found = self.cluster.get_cached("", "namespaces", "", name).await?;
        let found = found.ok_or_else(|| Status::not_found(&GroupResource::new("", "namespaces"), name))?;
        match found.annotation(ANNOTATION) {
            // An empty annotation selects nothing and suppresses the default, as upstream.
            Some(text) => labels(text).map_err(|e| Status::raw_error(e.to_string())),
            None => Ok(self.default.clone()),
        }
    }
}

fn selected(pod: &Value) -> impl Iterator<Item = (&str, &str)> {
    let selector = pod.at(&["spec", "nodeSelector"]).as_object();
    let pairs = selector.into_iter().flat_map(|m| m.iter());
    pairs.map(|(k, v)| (k, v.as_str().unwrap_or_default()))
}

fn check_conflicts(attributes: &Attributes, pod: &Value, wanted: &Labels) -> Result<()> {
    match selected(pod).all(|(k, v)| wanted.get(k).is_none_or(|w| w == v)) {
        true => Ok(()),
        false => Err(forbidden(
            attributes,
            pod,
            "pod node label selector conflicts with its namespace node label selector",
        )),
    }
}

#[async_trait]
impl Admission for PodNodeSelector {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.is_new_pod()
    }

    async fn mutate(&self, attributes: &Attributes, pod: &mut Value) -> Result<()> {
        let wanted = self.of_namespace(&attributes.namespace).await?;
        check_conflicts(attributes, pod, &wanted)?;
        for (key, value) in &wanted {
            pod.set(&["spec", "nodeSelector", key], value.as_str());
        }
        // Upstream checks the allow list in both phases; without it here, webhooks would see a Pod that is going to be
        // rejected.
        self.validate(attributes, pod).await
    }

    async fn validate(&self, attributes: &Attributes, pod: &Value) -> Result<()> {
        let wanted = self.of_namespace(&attributes.namespace).await?;
        check_conflicts(attributes, pod, &wanted)?;
        // Namespaces that are not configured are not restricted.
        let Some(allowed) = self.allowed.get(&attributes.namespace).filter(|a| !a.is_empty()) else {
            return Ok(());
        };
        match selected(pod).all(|(k, v)| allowed.get(k).is_some_and(|a| a == v)) {
            true => Ok(()),
            false => Err(forbidden(
                attributes,
                pod,
                "pod node label selector labels conflict with its namespace whitelist",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Operation;
    use crate::admission::testing::{ask, cluster, pod, request};
    use crate::json;

    async fn outcome(annotation: Option<&str>, selector: Value) -> std::result::Result<Value, String> {
        let mut namespace = json!({"metadata": {"name": "ns"}});
        if let Some(text) = annotation {
            namespace.set(&["metadata", "annotations", ANNOTATION], text);
        }
        let configuration = json!({"podNodeSelectorPluginConfig": {
            "clusterDefaultNodeSelector": "env=dev", "ns": "env=dev,disk=ssd,env2=x"}});
        let cluster = cluster(&[("", "namespaces", vec![namespace])]);
        let plugin = PodNodeSelector::try_new(cluster, Some(&configuration)).unwrap();
        let create = request(Operation::Create, "", "pods", "p");
        let got = ask(&plugin, &create, &pod(json!({"nodeSelector": (selector.as_object().map(|m| m.iter().map(|(k, v)| (k.to_owned(), v.as_str().unwrap().to_owned())).collect::<Labels>()))}))).await;
        got.map(|pod| pod.at(&["spec", "nodeSelector"]).clone())
    }

    #[tokio::test]
    async fn the_namespaces_selector_is_merged_and_limited() {
        let merged = json!({"disk": "ssd", "env": "dev"});
        assert_eq!(outcome(None, json!({"disk": "ssd"})).await.unwrap(), merged);
        assert_eq!(
            outcome(Some("disk=ssd"), json!({})).await.unwrap(),
            json!({"disk": "ssd"})
        );
        let refused = outcome(None, json!({"env": "prod"})).await.unwrap_err();
        assert!(refused.ends_with("conflicts with its namespace node label selector"));
        let refused = outcome(None, json!({"other": "x"})).await.unwrap_err();
        assert!(refused.ends_with("conflict with its namespace whitelist"));
    }

    #[test]
    fn invalid_selectors_are_refused_with_upstreams_words() {
        for text in ["", "a=b", " a = b ,c=", "example.com/a=b"] {
            assert!(labels(text).is_ok(), "{text}");
        }
        for (text, why) in [
            ("a", "invalid selector: [a]"),
            ("a=b,", "invalid selector: []"),
            ("a==b", "invalid selector: [a  b]"),
            ("-a=b", "<nil>: Invalid value: \"-a\": name part must consist of "),
            (
                "a=-b",
                "[a]: Invalid value: \"-b\": a valid label must be an empty string or ",
            ),
        ] {
            let refused = labels(text).unwrap_err().to_string();
            assert!(refused.starts_with(why), "{text}: {refused}");
        }
    }
}
