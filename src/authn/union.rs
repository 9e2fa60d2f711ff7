//! Combinators: [`Union`] tries several authenticators, [`WithAnonymous`] adds the anonymous fallback. Both
//! have a synchronous path that must never give another result than the asynchronous one.

use super::{
    AuthenticatedUser, AuthenticationError, Authenticator, Credentials, SyncOutcome, add_authenticated,
    speaks_of_authentication,
};
use crate::apimachinery::field::aggregate_texts;
use async_trait::async_trait;
use std::sync::Arc;

/// Tries its members in order; the first success wins. Errors only count if none succeeds.
pub struct Union(Vec<Arc<dyn Authenticator>>);

impl Union {
    /// A union that tries `members` in order.
    pub fn new(members: Vec<Arc<dyn Authenticator>>) -> Self {
        Self(members)
    }
}

#[async_trait]
impl Authenticator for Union {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        let mut refusals = Vec::new();
        for member in &self.0 {
            match member.authenticate(from).await {
                Ok(Some(found)) => return Ok(Some(with_group(found))),
                Ok(None) => {}
                // Goes on, since another authenticator may accept the request.
                Err(e) => refusals.push(e.0),
            }
        }
        match refusals.is_empty() {
            true => Ok(None),
            false => Err(AuthenticationError(aggregate_texts(refusals))),
        }
    }

    fn authenticate_sync(&self, from: Credentials<'_>) -> SyncOutcome {
        let mut refused = false;
        for member in &self.0 {
            match member.authenticate_sync(from) {
                SyncOutcome::Authenticated(found) => return SyncOutcome::Authenticated(with_group(found)),
                SyncOutcome::NoCredentials => {}
                // Goes on, as the async path does: a later authenticator may accept the request.
                SyncOutcome::Rejected => refused = true,
                // Order matters: a later member must not overtake one that has yet to be awaited.
                SyncOutcome::Unknown => return SyncOutcome::Unknown,
            }
        }
        match refused {
            true => SyncOutcome::Rejected,
            false => SyncOutcome::NoCredentials,
        }
    }
}

fn with_group(mut found: AuthenticatedUser) -> AuthenticatedUser {
    if !speaks_of_authentication(&found.user) {
        // Copies the user if it is shared, which is why authenticators with caches add the group themselves.
        add_authenticated(Arc::make_mut(&mut found.user));
    }
    found
}

/// Falls back to anonymous if a request has no credentials. Rejected credentials never fall back.
pub(crate) struct WithAnonymous {
    credentials: Arc<dyn Authenticator>,
    anonymous: super::Anonymous,
}

impl WithAnonymous {
    /// Adds `anonymous` as the fallback of `credentials`.
    pub(crate) fn new(credentials: Arc<dyn Authenticator>, anonymous: super::Anonymous) -> Self {
        Self { credentials, anonymous }
    }
}

#[async_trait]
impl Authenticator for WithAnonymous {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        match self.credentials.authenticate(from).await? {
            Some(found) => Ok(Some(found)),
            None => self.anonymous.authenticate(from).await,
        }
    }

    fn authenticate_sync(&self, from: Credentials<'_>) -> SyncOutcome {
        match self.credentials.authenticate_sync(from) {
            SyncOutcome::NoCredentials => self.anonymous.authenticate_sync(from),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::UserInfo;
    use http::HeaderMap;

    struct Fixed(Result<Option<&'static str>, &'static str>);

    #[async_trait]
    impl Authenticator for Fixed {
        async fn authenticate(&self, _: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
            self.0
                .map(|u| u.map(|u| AuthenticatedUser::new(Arc::new(UserInfo::system(u, &["g"])))))
                .map_err(AuthenticationError::new)
        }
    }

    async fn ask(members: Vec<Fixed>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
        let members = members
            .into_iter()
            .map(|m| Arc::new(m) as Arc<dyn Authenticator>)
            .collect();
        let union = WithAnonymous::new(Arc::new(Union::new(members)), super::super::Anonymous::new());
        let headers = HeaderMap::new();
        union
            .authenticate(Credentials {
                headers: &headers,
                peer: None,
                path: "/",
                warnings: None,
            })
            .await
    }

    struct Glances(SyncOutcome);

    #[async_trait]
    impl Authenticator for Glances {
        async fn authenticate(&self, _: Credentials<'_>) -> Result<Option<AuthenticatedUser>, AuthenticationError> {
            Ok(None)
        }

        fn authenticate_sync(&self, _: Credentials<'_>) -> SyncOutcome {
            self.0.clone()
        }
    }

    fn glance(members: Vec<SyncOutcome>) -> SyncOutcome {
        let members = members
            .into_iter()
            .map(|m| Arc::new(Glances(m)) as Arc<dyn Authenticator>);
        let union = WithAnonymous::new(Arc::new(Union::new(members.collect())), super::super::Anonymous::new());
        let headers = HeaderMap::new();
        union.authenticate_sync(Credentials {
            headers: &headers,
            peer: None,
            path: "/",
            warnings: None,
        })
    }

    #[test]
    fn sync_path_stops_at_unknown_and_rejected_is_never_anonymous() {
        let known = || SyncOutcome::Authenticated(AuthenticatedUser::new(Arc::new(UserInfo::system("u", &["g"]))));
        let name = |members| match glance(members) {
            SyncOutcome::Authenticated(found) => found.user.name.clone(),
            other => format!("{other:?}"),
        };
        assert_eq!(
            name(vec![SyncOutcome::Rejected, SyncOutcome::NoCredentials, known()]),
            "u"
        );
        assert_eq!(name(vec![SyncOutcome::Unknown, known()]), "Unknown");
        assert_eq!(name(vec![SyncOutcome::NoCredentials]), "system:anonymous");
        assert_eq!(
            name(vec![SyncOutcome::NoCredentials, SyncOutcome::Rejected]),
            "Rejected"
        );
    }

    #[tokio::test]
    async fn a_success_overrides_an_earlier_error_and_gets_the_group() {
        let found = ask(vec![Fixed(Err("bad")), Fixed(Ok(Some("u")))])
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.user.groups, ["g", "system:authenticated"]);
    }

    #[tokio::test]
    async fn rejected_credentials_do_not_become_anonymous() {
        let e = ask(vec![Fixed(Err("a")), Fixed(Ok(None)), Fixed(Err("b"))])
            .await
            .unwrap_err();
        assert_eq!(e.0, "[a, b]");
        let anonymous = ask(vec![Fixed(Ok(None))]).await.unwrap().unwrap();
        assert_eq!(anonymous.user.name, "system:anonymous");
        assert_eq!(anonymous.user.groups, ["system:unauthenticated"]);
    }
}
