//! Callers as backends are told of them: written once for a caller, not for each of its requests.

use super::headers::{Identity, InvalidValue};
use crate::request::UserInfo;
use arc_swap::ArcSwapOption;
use http::HeaderMap;
use std::sync::Arc;

/// Callers remembered. Each has one place: who comes to one that is taken displaces who was there.
const PLACES: usize = 256;

/// The identities of those who called lately.
///
/// A caller is known again by where its `UserInfo` lies, not by what it says: authenticators that remember callers give the
/// same `Arc` each time. That is as good as comparing all of it. This memory holds the `Arc`, so nothing else can lie there;
/// and what an `Arc` shares does not change: who wants to change it (`Arc::make_mut`) gets a copy that lies elsewhere.
pub struct Identities {
    places: Box<[ArcSwapOption<Known>]>,
}

struct Known {
    user: Arc<UserInfo>,
    identity: Identity,
}

impl Default for Identities {
    fn default() -> Self {
        Self {
            places: (0..PLACES).map(|_| ArcSwapOption::empty()).collect(),
        }
    }
}

impl Identities {
    /// Takes away whoever the headers claim to come from, and states this caller.
    ///
    /// # Errors
    /// [`InvalidValue`], with the headers as they were.
    pub fn state(&self, headers: &mut HeaderMap, user: &Arc<UserInfo>) -> Result<(), InvalidValue> {
        let place = &self.places[place(user)];
        if let Some(known) = &*place.load()
            && Arc::ptr_eq(&known.user, user)
        {
            known.identity.state(headers);
            return Ok(());
        }
        let identity = Identity::try_of(user)?;
        identity.state(headers);
        let user = user.clone();
        place.store(Some(Arc::new(Known { user, identity })));
        Ok(())
    }
}

/// Neighbours in memory have different places.
fn place(user: &Arc<UserInfo>) -> usize {
    Arc::as_ptr(user).addr() / size_of::<UserInfo>() % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(identities: &Identities, user: &Arc<UserInfo>) -> Vec<(String, String)> {
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
    fn a_caller_is_told_of_as_it_is_now_known_or_not() {
        let identities = Identities::default();
        let of = |name: &str, group: &str| {
            [("x-remote-group", group), ("x-remote-user", name)].map(|(n, v)| (n.to_owned(), v.to_owned()))
        };
        // Many more than there are places: all are displaced, and new ones lie where others lay.
        for i in 0..4 * PLACES {
            let name = format!("u{i}");
            let mut user = Arc::new(UserInfo::system(&name, &["g"]));
            for _ in 0..2 {
                assert_eq!(told(&identities, &user), of(&name, "g"));
            }
            Arc::make_mut(&mut user).groups = vec!["h".to_owned()];
            assert_eq!(told(&identities, &user), of(&name, "h"));
        }
    }

    #[test]
    fn who_cannot_be_told_of_is_not_remembered() {
        let identities = Identities::default();
        let user = Arc::new(UserInfo::system("a\nb", &[]));
        for _ in 0..2 {
            let why = identities.state(&mut HeaderMap::new(), &user).unwrap_err();
            assert_eq!(why, InvalidValue("X-Remote-User".into()));
        }
    }
}
