//! Several authenticators as one.

use super::{Authenticator, Credentials, Identified, Refused, add_authenticated, speaks_of_authentication};
use async_trait::async_trait;
use std::sync::Arc;

/// The first success wins; refusals are collected and only count where nobody succeeds.
pub struct Union(Vec<Arc<dyn Authenticator>>);

impl Union {
    /// A union in the order given.
    pub fn new(members: Vec<Arc<dyn Authenticator>>) -> Self {
        Self(members)
    }
}

#[async_trait]
impl Authenticator for Union {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<Identified>, Refused> {
        let mut refusals: Vec<Refused> = Vec::new();
        for member in &self.0 {
            match member.authenticate(from).await {
                Ok(Some(mut found)) => {
                    if !speaks_of_authentication(&found.user) {
                        add_authenticated(Arc::make_mut(&mut found.user));
                    }
                    return Ok(Some(found));
                }
                Ok(None) => {}
                Err(e) => refusals.push(e),
            }
        }
        match refusals.len() {
            0 => Ok(None),
            1 => Err(refusals.swap_remove(0)),
            _ => {
                let all: Vec<String> = refusals.into_iter().map(|r| r.0).collect();
                Err(Refused(format!("[{}]", all.join(", "))))
            }
        }
    }
}

/// Credentials first; without any, the fallback. Refused credentials never fall back.
pub struct WithAnonymous {
    credentials: Arc<dyn Authenticator>,
    anonymous: super::Anonymous,
}

impl WithAnonymous {
    /// Puts `anonymous` behind `credentials`.
    pub fn new(credentials: Arc<dyn Authenticator>, anonymous: super::Anonymous) -> Self {
        Self { credentials, anonymous }
    }
}

#[async_trait]
impl Authenticator for WithAnonymous {
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<Identified>, Refused> {
        match self.credentials.authenticate(from).await? {
            Some(found) => Ok(Some(found)),
            None => self.anonymous.authenticate(from).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::UserInfo;
    use http::HeaderMap;

    struct Says(Result<Option<&'static str>, &'static str>);

    #[async_trait]
    impl Authenticator for Says {
        async fn authenticate(&self, _: Credentials<'_>) -> Result<Option<Identified>, Refused> {
            self.0
                .map(|u| u.map(|u| Identified::new(Arc::new(UserInfo::system(u, &["g"])))))
                .map_err(Refused::new)
        }
    }

    async fn ask(members: Vec<Says>) -> Result<Option<Identified>, Refused> {
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

    #[tokio::test]
    async fn a_success_beats_an_earlier_refusal_and_gets_the_group() {
        let found = ask(vec![Says(Err("bad")), Says(Ok(Some("u")))]).await.unwrap().unwrap();
        assert_eq!(found.user.groups, ["g", "system:authenticated"]);
    }

    #[tokio::test]
    async fn refused_credentials_do_not_become_anonymous() {
        let e = ask(vec![Says(Err("a")), Says(Ok(None)), Says(Err("b"))])
            .await
            .unwrap_err();
        assert_eq!(e.0, "[a, b]");
        let anonymous = ask(vec![Says(Ok(None))]).await.unwrap().unwrap();
        assert_eq!(anonymous.user.name, "system:anonymous");
        assert_eq!(anonymous.user.groups, ["system:unauthenticated"]);
    }
}
