//! [`AccountToken`]: the fields that the loops cache of a Secret for a ServiceAccount's token.

use crate::apimachinery::codec::json::projection::Mask;
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::storage::Entry;
use std::sync::LazyLock;

const TYPE: &str = "kubernetes.io/service-account-token";
pub(crate) const ACCOUNT: &str = "kubernetes.io/service-account.name";
pub(crate) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// A Secret for the token of a ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AccountToken {
    pub uid: Str,
    /// The name of the ServiceAccount.
    pub account: Str,
    /// Empty if the Secret does not name it.
    pub account_uid: Str,
}

impl AccountToken {
    /// `None` if the Secret is of another type or names no ServiceAccount.
    pub(crate) fn from_entry(entry: &Entry) -> Option<Self> {
        static PARTS: LazyLock<Mask> = LazyLock::new(|| {
            let mut mask = Mask::of(&["metadata.uid", "type"]);
            for key in [ACCOUNT, ACCOUNT_UID] {
                mask.include(&["metadata".into(), "annotations".into(), key.into()]);
            }
            mask
        });
        // The indexed field avoids decoding the many Secrets of other types.
        (entry.field("type") == Some(TYPE)).then(|| Self::from_value(&entry.decode_parts(&PARTS)))?
    }

    fn from_value(secret: &Value) -> Option<Self> {
        let annotation = |key| secret.annotation(key).unwrap_or_default().into();
        let token = Self {
            uid: secret.uid().into(),
            account: annotation(ACCOUNT),
            account_uid: annotation(ACCOUNT_UID),
        };
        (secret.str_at(&["type"]) == TYPE && !token.account.is_empty()).then_some(token)
    }

    /// Whether the token is one of the account of that name with this UID.
    pub(crate) fn is_of_uid(&self, uid: &str) -> bool {
        self.account_uid.is_empty() || self.account_uid == uid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn a_token_matches_its_account_by_name_and_by_uid_if_set() {
        let of = |annotations: Value| {
            AccountToken::from_value(&json!({"type": TYPE, "metadata": {"uid": "s", "annotations": (annotations)}}))
        };
        let named = of(json!({ACCOUNT: "a"})).expect("it names an account");
        assert!(named.is_of_uid("u"));
        let other = of(json!({ACCOUNT: "a", ACCOUNT_UID: "former"})).expect("it names an account");
        assert!(!other.is_of_uid("u"));
        assert_eq!(of(json!({})), None);
    }
}
