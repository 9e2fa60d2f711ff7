//! Combinators: [`Union`] tries several authenticators, [`WithAnonymous`] adds the anonymous fallback.

use super::{AtOnce, Authenticator, Credentials, Identified, Refused, add_authenticated, speaks_of_authentication};
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
    async fn authenticate(&self, from: Credentials<'_>) -> Result<Option<Identified>, Refused> {
        let mut refusals: Vec<Refused> = Vec::new();
        for member in &self.0 {
            match member.authenticate(from).await {
                Ok(Some(found)) => return Ok(Some(with_group(found))),
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

    fn at_once(&self, from: Credentials<'_>) -> AtOnce {
        let mut refused = false;
        for member in &self.0 {
            match member.at_once(from) {
                AtOnce::Known(found) => return AtOnce::Known(with_group(found)),
                AtOnce::Nobody => {}
                AtOnce::Refused => refused = true,
                // Order matters: a later member must not overtake one that has yet to be awaited.
                AtOnce::Unknown => return AtOnce::Unknown,
            }
        }
        match refused {
            true => AtOnce::Refused,
            false => AtOnce::Nobody,
        }
    }
}

fn with_group(mut found: Identified) -> Identified {
    if !speaks_of_authentication(&found.user) {
        add_authenticated(Arc::make_mut(&mut found.user));
    }
    found
}

/// Falls back to anonymous if a request has no credentials. Rejected credentials never fall back.
pub struct WithAnonymous {
    credentials: Arc<dyn Authenticator>,
    anonymous: super::Anonymous,
}

impl WithAnonymous {
    /// Adds `anonymous` as the fallback of `credentials`.
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

    fn at_once(&self, from: Credentials<'_>) -> AtOnce {
        match self.credentials.at_once(from) {
            AtOnce::Nobody => self.anonymous.at_once(from),
            other => other,
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

    struct Glances(AtOnce);

    #[async_trait]
    impl Authenticator for Glances {
        async fn authenticate(&self, _: Credentials<'_>) -> Result<Option<Identified>, Refused> {
            Ok(None)
        }

        fn at_once(&self, _: Credentials<'_>) -> AtOnce {
            self.0.clone()
        }
    }

    fn glance(members: Vec<AtOnce>) -> AtOnce {
        let members = members
            .into_iter()
            .map(|m| Arc::new(Glances(m)) as Arc<dyn Authenticator>);
        let union = WithAnonymous::new(Arc::new(Union::new(members.collect())), super::super::Anonymous::new());
        let headers = HeaderMap::new();
        union.at_once(Credentials {
            headers: &headers,
            peer: None,
            path: "/",
            warnings: None,
        })
    }

    #[test]
    fn at_once_stops_at_unknown_and_refused_is_never_anonymous() {
        let known = || AtOnce::Known(Identified::new(Arc::new(UserInfo::system("u", &["g"]))));
        let name = |members| match glance(members) {
            AtOnce::Known(found) => found.user.name.clone(),
            other => format!("{other:?}"),
        };
        assert_eq!(name(vec![AtOnce::Refused, AtOnce::Nobody, known()]), "u");
        assert_eq!(name(vec![AtOnce::Unknown, known()]), "Unknown");
        assert_eq!(name(vec![AtOnce::Nobody]), "system:anonymous");
        assert_eq!(name(vec![AtOnce::Nobody, AtOnce::Refused]), "Refused");
    }

    #[tokio::test]
    async fn a_success_overrides_an_earlier_error_and_gets_the_group() {
        let found = ask(vec![Says(Err("bad")), Says(Ok(Some("u")))]).await.unwrap().unwrap();
        assert_eq!(found.user.groups, ["g", "system:authenticated"]);
    }

    #[tokio::test]
    async fn rejected_credentials_do_not_become_anonymous() {
        let e = ask(vec![Says(Err("a")), Says(Ok(None)), Says(Err("b"))])
            .await
            .unwrap_err();
        assert_eq!(e.0, "[a, b]");
        let anonymous = ask(vec![Says(Ok(None))]).await.unwrap().unwrap();
        assert_eq!(anonymous.user.name, "system:anonymous");
        assert_eq!(anonymous.user.groups, ["system:unauthenticated"]);
    }
}
