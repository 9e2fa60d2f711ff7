//! [`Secret`]: the informers' record of a Secret. One informer serves all loops. Only bootstrap tokens are kept
//! with their content; that of all other Secrets does not stay in memory decoded.

mod account;
mod bootstrap;

pub(crate) use account::{ACCOUNT, ACCOUNT_UID, AccountToken};
pub(crate) use bootstrap::{BOOTSTRAP_TOKENS, BootstrapToken};

use super::expiry::Expiring;
use crate::storage::Entry;
use ::time::OffsetDateTime;

/// A Secret, by its type.
pub(crate) enum Secret {
    /// A type that no control loop handles.
    Other,
    // Boxed, because most Secrets are `Other`, and a record of each is kept.
    Bootstrap(Box<BootstrapToken>),
    Account(Box<AccountToken>),
}

impl Secret {
    pub(crate) fn from_entry(entry: &Entry) -> Self {
        if let Some(token) = BootstrapToken::from_entry(entry) {
            return Self::Bootstrap(Box::new(token));
        }
        AccountToken::from_entry(entry).map_or(Self::Other, |token| Self::Account(Box::new(token)))
    }

    pub(crate) fn bootstrap(&self) -> Option<&BootstrapToken> {
        match self {
            Self::Bootstrap(token) => Some(token),
            Self::Account(_) | Self::Other => None,
        }
    }

    pub(crate) fn account(&self) -> Option<&AccountToken> {
        match self {
            Self::Account(token) => Some(token),
            Self::Bootstrap(_) | Self::Other => None,
        }
    }
}

impl Expiring for Secret {
    fn expires(&self) -> Option<OffsetDateTime> {
        self.bootstrap()?.expires
    }

    fn uid(&self) -> &str {
        self.bootstrap().map_or("", |token| &token.uid)
    }
}
