//! [`Compaction`]: the revision below which no list reads any more. A watch cache often knows older states of
//! a quiet resource; they expire nevertheless, so that continue tokens live equally long for every resource,
//! as upstream's.

use super::{ContinueToken, Error, ListOptions, Revision, VersionMatch};
use std::sync::atomic::{AtomicU64, Ordering};

/// The oldest revision of a backend at which lists are served.
#[derive(Debug, Default)]
pub(crate) struct Compaction(AtomicU64);

impl Compaction {
    /// Lists below `revision` have expired. Never moves backwards.
    pub(crate) fn advance(&self, revision: Revision) {
        self.0.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// Refuses a list at an expired revision.
    ///
    /// # Errors
    /// [`Error::Compacted`] with the oldest revision that is served.
    pub(crate) fn check(&self, options: &ListOptions) -> Result<(), Error> {
        let exact = match (&options.token, options.version) {
            // A token without a revision continues at the latest state, which never expires.
            (Some(ContinueToken { revision, .. }), _) => *revision,
            (None, VersionMatch::Exact(revision)) => Some(revision),
            (None, VersionMatch::NotOlderThan(_)) => None,
        };
        let oldest = Revision(self.0.load(Ordering::Acquire));
        match exact {
            Some(revision) if revision < oldest => Err(Error::Compacted(oldest)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MinRevision;

    #[test]
    fn lists_at_older_revisions_expire() {
        let compaction = Compaction::default();
        let list = |token: Option<u64>, version| ListOptions {
            version,
            token: token.map(|revision| ContinueToken {
                revision: Some(Revision(revision)),
                start: String::new(),
            }),
            ..ListOptions::latest("")
        };
        let any = VersionMatch::NotOlderThan(MinRevision::Any);
        let exact = |revision| VersionMatch::Exact(Revision(revision));
        assert!(compaction.check(&list(Some(1), any)).is_ok());
        compaction.advance(Revision(5));
        compaction.advance(Revision(3));
        for (token, version, fine) in [
            (Some(4), any, false),
            (Some(5), any, true),
            (None, exact(4), false),
            (None, exact(5), true),
            (None, any, true),
            (
                None,
                VersionMatch::NotOlderThan(MinRevision::AtLeast(Revision(1))),
                true,
            ),
        ] {
            assert_eq!(
                compaction.check(&list(token, version)).is_ok(),
                fine,
                "{token:?} {version:?}"
            );
        }
    }
}
