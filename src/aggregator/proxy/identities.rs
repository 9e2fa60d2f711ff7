//! Cache of the identity headers that are sent to backends: built once per caller instead of once per
//! request.

use crate::proxy::headers::{Identity, InvalidValue};
use crate::request::UserInfo;
use arc_swap::ArcSwapOption;
use http::HeaderMap;
use std::sync::Arc;

/// Cache slots. Direct-mapped; a collision evicts.
const SLOTS: usize = 256;

/// Identity headers of recent callers.
///
/// Keyed by the address of the caller's `UserInfo`, not by its content: caching authenticators return the
/// same `Arc` each time. That is sound: the cache holds the `Arc`, so its address cannot be reused, and its
/// content cannot change, since `Arc::make_mut` copies a shared value to another address.
pub(crate) struct Identities {
    slots: Box<[ArcSwapOption<CachedIdentity>]>,
}

struct CachedIdentity {
    user: Arc<UserInfo>,
    identity: Identity,
}

impl Default for Identities {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| ArcSwapOption::empty()).collect(),
        }
    }
}

impl Identities {
    /// Removes any identity the client claims in the headers and sets that of the caller.
    ///
    /// # Errors
    /// [`InvalidValue`], leaving the headers unchanged.
    pub(crate) fn state(&self, headers: &mut HeaderMap, user: &Arc<UserInfo>) -> Result<(), InvalidValue> {
        let slot = &self.slots[slot_of(user)];
        if let Some(cached) = &*slot.load()
            && Arc::ptr_eq(&cached.user, user)
        {
            cached.identity.state(headers);
            return Ok(());
        }
        let identity = Identity::try_of(user)?;
        identity.state(headers);
        // The slot keeps the user alive, so nobody else gets its address while it is cached.
        let user = user.clone();
        slot.store(Some(Arc::new(CachedIdentity { user, identity })));
        Ok(())
    }
}

/// The slot of a user. Dividing by the size maps adjacent allocations to different slots.
fn slot_of(user: &Arc<UserInfo>) -> usize {
    Arc::as_ptr(user).addr() / size_of::<UserInfo>() % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_for(identities: &Identities, user: &Arc<UserInfo>) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", "mallory".parse().unwrap());
        headers.insert("x-remote-extra-scopes", "all".parse().unwrap());
        identities.state(&mut headers, user).unwrap();
        let mut all: Vec<_> = headers
            .iter()
            .map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned()))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn headers_follow_the_user_through_hits_evictions_and_changes() {
        let identities = Identities::default();
        let of = |name: &str, group: &str| {
            [("x-remote-group", group), ("x-remote-user", name)].map(|(n, v)| (n.to_owned(), v.to_owned()))
        };
        // Many more users than slots: all are evicted, and allocations are reused.
        for i in 0..4 * SLOTS {
            let name = format!("u{i}");
            let mut user = Arc::new(UserInfo::system(&name, &["g"]));
            for _ in 0..2 {
                assert_eq!(headers_for(&identities, &user), of(&name, "g"));
            }
            Arc::make_mut(&mut user).groups = vec!["h".to_owned()];
            assert_eq!(headers_for(&identities, &user), of(&name, "h"));
        }
    }

    #[test]
    fn an_invalid_identity_is_not_cached() {
        let identities = Identities::default();
        let user = Arc::new(UserInfo::system("a\nb", &[]));
        for _ in 0..2 {
            let why = identities.state(&mut HeaderMap::new(), &user).unwrap_err();
            assert_eq!(why, InvalidValue("X-Remote-User".into()));
        }
    }
}
