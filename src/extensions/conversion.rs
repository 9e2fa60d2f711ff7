//! Conversion of custom resources between the versions of their definition (upstream:
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/conversion`). Entry point: [`Conversions::versions`], which
//! makes the versions of a definition. [`DefinitionVersions::storage`] serves the objects in one of them.
//!
//! `none` changes only `apiVersion`, `webhook` asks a webhook with ConversionReviews, whose contents `review`
//! makes and checks, and `declarative` follows rules in an annotation of the definition.

pub(crate) mod declarative;
mod none;
mod ownership;
pub(crate) mod review;
mod shape;
#[cfg(test)]
mod tests;
mod webhook;

use crate::apimachinery::field::{ErrorList, aggregate};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::client::webhook::{ReviewVersion, SharedWebhooks, UnusableConfig, WebhookConfig, Webhooks};
use crate::registry::Schema;
use crate::registry::converting::{Conversion, Converting, ConvertingStorage, KindVersion, KindVersions, NotConverted};
use crate::registry::selectable_fields::SelectableFields;
use crate::schema::KindSchema;
use crate::storage::Storage;
use crate::telemetry::conversion::ConversionMetrics;
use declarative::Declarative;
use none::OnlyVersion;
use ownership::VersionedSchema;
use shape::SchemaShape;
use std::sync::Arc;
use webhook::{Caller, LIMITS, WebhookConversion};

/// Makes the conversions of definitions.
pub(crate) struct Conversions {
    /// Definitions with the same `clientConfig`, such as those of one operator, share connections and limits.
    webhooks: SharedWebhooks,
    metrics: ConversionMetrics,
}

/// One version of a definition, compiled.
pub(crate) struct CompiledVersion {
    /// Its name, such as `v1`.
    pub name: String,
    /// Prunes, defaults and validates its objects.
    pub schema: Arc<KindSchema>,
    /// The fields that field selectors may name; `None` if it declares none.
    pub fields: Option<SelectableFields>,
}

/// The versions of a definition, with the conversion between them.
pub(crate) struct DefinitionVersions {
    kind: Arc<KindVersions>,
    /// In the order of `kind.versions`.
    schemas: Vec<Arc<KindSchema>>,
}

/// Why the conversion of a definition cannot be used; the definition then serves no request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The definition has no storage version: none has `storage: true`.
    #[error("the definition has no storage version")]
    NoStorageVersion,
    /// Its rules are malformed.
    #[error(transparent)]
    Rules(#[from] declarative::Error),
    /// Its rules do not fit its schemas.
    #[error("{}", aggregate(.0))]
    InvalidRules(ErrorList),
    /// The configuration of its webhook cannot be used.
    #[error(transparent)]
    Webhook(#[from] UnusableConfig),
    /// Its strategy does not exist. Upstream's message.
    #[error("unknown conversion strategy {strategy:?} for CRD {definition}")]
    UnknownStrategy {
        /// `spec.conversion.strategy`, as it is stored.
        strategy: String,
        /// The name of the definition.
        definition: String,
    },
}

impl DefinitionVersions {
    /// The storage of the `version`th one, on top of the storage of all objects.
    pub(crate) fn storage(&self, inner: Arc<dyn Storage>, version: usize) -> Arc<dyn Storage> {
        Arc::new(ConvertingStorage::new(inner, self.kind.clone(), version))
    }

    /// Converts an object of any version to the `version`th one.
    ///
    /// # Errors
    /// The error of the conversion.
    pub(crate) async fn convert(&self, object: Value, version: usize) -> Result<Value, NotConverted> {
        // The caller's index comes from the same definition that `kind.versions` was made from.
        let to = &self.kind.versions[version];
        let converted = match self.kind.conversion.convert(vec![object], to) {
            // Declarative and `None` conversions never wait, so most requests stay on their thread.
            Converting::Done(converted) => converted?,
            Converting::Pending(converted) => converted.await?,
        };
        let none = || NotConverted("the conversion returned no object".to_owned());
        let mut object = converted.into_iter().next().ok_or_else(none)?;
        // After the conversion: defaults and pruning follow the schema of the target.
        if let Some(shape) = &to.shape {
            shape.converted(&mut object);
        }
        Ok(object)
    }

    /// The schema of the `version`th one, with field ownership across versions.
    pub(crate) fn schema(self: &Arc<Self>, version: usize) -> Arc<dyn Schema> {
        Arc::new(VersionedSchema::new(self.clone(), version))
    }
}

impl Conversions {
    /// Conversions by these webhooks.
    pub(crate) fn new(webhooks: Webhooks, metrics: ConversionMetrics) -> Self {
        Self {
            webhooks: SharedWebhooks::new(webhooks, LIMITS),
            metrics,
        }
    }

    /// The versions of a definition. `versions` has all of its spec, in any order; the indices of the result
    /// are theirs.
    ///
    /// # Errors
    /// [`Error`].
    pub(crate) fn versions(
        &self,
        definition: &Value,
        versions: &[CompiledVersion],
    ) -> Result<Arc<DefinitionVersions>, Error> {
        let group = definition.str_at(&["spec", "group"]);
        let specs = definition.at(&["spec", "versions"]).items();
        let storage = specs.iter().find(|v| v.get("storage").as_bool() == Some(true));
        let storage = storage.map_or("", |v| v.str_at(&["name"]));
        // Found among the compiled versions, whose indices are those of the result.
        let stored = versions.iter().position(|v| v.name == storage);
        let conversion = self.conversion(definition)?;
        let all = versions.iter().map(|v| KindVersion {
            api_version: GroupVersion::new(group, &v.name).to_string().into(),
            shape: Some(Arc::new(SchemaShape::new(v.schema.clone()))),
            fields: v.fields.clone(),
        });
        let kind = KindVersions {
            versions: all.collect(),
            stored: stored.ok_or(Error::NoStorageVersion)?,
            conversion,
        };
        Ok(Arc::new(DefinitionVersions {
            kind: Arc::new(kind),
            schemas: versions.iter().map(|v| v.schema.clone()).collect(),
        }))
    }

    fn conversion(&self, definition: &Value) -> Result<Arc<dyn Conversion>, Error> {
        let conversion = definition.at(&["spec", "conversion"]);
        match (conversion.str_at(&["strategy"]), declarative::annotation(definition)) {
            // Rules only apply without a webhook, which takes precedence.
            ("" | "None", Some(rules)) => {
                // Checked again: a definition may have been stored by another server, which ignores the
                // annotation.
                let errors = declarative::validate(definition);
                match errors.is_empty() {
                    true => Ok(Arc::new(Declarative::new(definition, rules)?)),
                    false => Err(Error::InvalidRules(errors)),
                }
            }
            ("" | "None", None) => Ok(Arc::new(OnlyVersion)),
            ("Webhook", _) => {
                let config = WebhookConfig::parse(conversion.at(&["webhook", "clientConfig"]))?;
                let review_versions = conversion.at(&["webhook", "conversionReviewVersions"]).items();
                Ok(Arc::new(WebhookConversion {
                    // Chosen once: the first of the webhook's versions that we speak, as in upstream.
                    review_version: ReviewVersion::choose(review_versions.iter().filter_map(Value::as_str)),
                    caller: Arc::new(Caller {
                        definition: definition.name().to_owned(),
                        webhook: self.webhooks.get(&config)?,
                        metrics: self.metrics.clone(),
                    }),
                }))
            }
            (other, _) => Err(Error::UnknownStrategy {
                strategy: other.to_owned(),
                definition: definition.name().to_owned(),
            }),
        }
    }
}
