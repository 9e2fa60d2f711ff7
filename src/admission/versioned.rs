//! The objects of a write in the version in which a webhook or a policy receives them: [`encode`] for objects that do
//! not change, [`Versioned`] for those that are changed on the way.

use crate::admission::versions::own;
use crate::admission::{Attributes, ObjectLookup, ServedKind};
use crate::apimachinery::codec::json;
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use bytes::Bytes;

/// The encoded object and old object; `null` if absent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Encoded {
    /// The object in its current state.
    pub object: Bytes,
    /// The stored object.
    pub old: Bytes,
}

/// The object of a write while webhooks or policies change it one after the other.
pub(crate) struct Versioned<'a> {
    cluster: &'a ObjectLookup,
    attributes: &'a Attributes,
    /// The version of `object`.
    version: ServedKind,
    object: Value,
    /// The object in the request's own version, until it is changed: a conversion there and back may lose
    /// fields.
    original: Option<Value>,
    changed: bool,
    encoded: Option<Encoded>,
}

/// The object and old object of a write in the version `target`.
///
/// # Errors
/// The error of the conversion.
pub(crate) async fn encode(
    cluster: &ObjectLookup,
    attributes: &Attributes,
    object: &Value,
    from: &ServedKind,
    target: &ServedKind,
) -> Result<Encoded> {
    let bytes = async |object: &Value, from: &ServedKind| -> Result<Bytes> {
        if from.kind == target.kind {
            return Ok(json::to_vec(object).into());
        }
        let converted = cluster.convert(object.clone(), from, target).await?;
        Ok(json::to_vec(&converted).into())
    };
    Ok(Encoded {
        object: bytes(object, from).await?,
        old: match attributes.old_object.as_deref() {
            Some(old) => bytes(old, &own(attributes)).await?,
            None => Bytes::from_static(b"null"),
        },
    })
}

impl<'a> Versioned<'a> {
    /// The object of the request.
    pub(crate) fn new(cluster: &'a ObjectLookup, attributes: &'a Attributes, object: Value) -> Self {
        Self {
            cluster,
            attributes,
            version: own(attributes),
            object,
            original: None,
            changed: false,
            encoded: None,
        }
    }

    /// The object in its current version.
    pub(crate) fn object(&self) -> &Value {
        &self.object
    }

    /// The version of the object.
    pub(crate) fn version(&self) -> &ServedKind {
        &self.version
    }

    /// Converts the object to another version.
    ///
    /// # Errors
    /// The error of the conversion.
    pub(crate) async fn convert_to(&mut self, target: &ServedKind) -> Result<()> {
        // Compared by kind: a subresource such as Scale has one kind in all versions of its parent.
        if self.version.kind != target.kind {
            if !self.changed && self.original.is_none() {
                self.original = Some(self.object.clone());
            }
            let object = std::mem::take(&mut self.object);
            self.object = self.cluster.convert(object, &self.version, target).await?;
            self.encoded = None;
        }
        self.version = target.clone();
        Ok(())
    }

    /// Converts the object to another version, and encodes it.
    ///
    /// # Errors
    /// The error of the conversion.
    pub(crate) async fn encode_as(&mut self, target: &ServedKind) -> Result<Encoded> {
        self.convert_to(target).await?;
        // Consecutive webhooks of one version share the bytes.
        if let Some(encoded) = &self.encoded {
            return Ok(encoded.clone());
        }
        let encoded = encode(self.cluster, self.attributes, &self.object, &self.version, target).await?;
        self.encoded = Some(encoded.clone());
        Ok(encoded)
    }

    /// Replaces the object by the result of a webhook or a policy.
    pub(crate) fn set(&mut self, object: Value) {
        self.object = object;
        self.changed = true;
        self.encoded = None;
    }

    /// The object in the version of the request.
    ///
    /// # Errors
    /// The error of the conversion.
    pub(crate) async fn finish(self) -> Result<Value> {
        match self.original {
            Some(original) if !self.changed => Ok(original),
            _ => {
                self.cluster
                    .convert(self.object, &self.version, &own(self.attributes))
                    .await
            }
        }
    }
}
