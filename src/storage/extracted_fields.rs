//! [`ExtractedFields`]: selectable fields that are not stored with an object (those of custom resources),
//! extracted from its bytes when a selector first needs them.
//!
//! They stay with the entry and not in the encoding cache, whose lock is held during a whole encoding: the
//! thread that dispatches events reads them for each watch and must never wait.

use crate::apimachinery::value::Str;
use arc_swap::ArcSwapOption;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

/// Values up to this many bytes are kept as they are, so that an entry keeps a few kilobytes at most.
const MAX_VALUE: usize = 256;

/// Names and values of selectable fields, in the order of their definition.
pub(crate) type Fields = Arc<[(Str, Str)]>;

/// The extracted fields of one entry.
#[derive(Debug, Default)]
pub(crate) struct ExtractedFields(ArcSwapOption<Extractions>);

#[derive(Debug)]
struct Extractions {
    newest: (usize, Fields),
    /// Definitions change while watches of the former one still run: two do not displace each other.
    before: Option<(usize, Fields)>,
}

impl ExtractedFields {
    /// The fields of this extractor, if they have been extracted. Never waits.
    pub(crate) fn get(&self, extractor: usize) -> Option<Fields> {
        // The newest first: it is the one most watches use.
        let kept = self.0.load();
        let kept = kept.as_deref()?;
        let mut all = [Some(&kept.newest), kept.before.as_ref()].into_iter().flatten();
        all.find(|(of, _)| *of == extractor).map(|(_, fields)| fields.clone())
    }

    /// True if [`get`](Self::get) has a result.
    pub(crate) fn has(&self, extractor: usize) -> bool {
        self.get(extractor).is_some()
    }

    /// Returns the fields of this extractor, or extracts and keeps them. Values are [`shortened`]. Threads
    /// that need them at the same time for the first time do not wait for each other.
    pub(crate) fn get_or_extract(&self, extractor: usize, extract: impl FnOnce() -> Vec<(Str, Str)>) -> Fields {
        if let Some(fields) = self.get(extractor) {
            return fields;
        }
        // The short case keeps the string it has.
        let short = |value: Str| match shortened(&value) {
            Cow::Borrowed(_) => value,
            Cow::Owned(digest) => Str::from(digest),
        };
        let fields: Fields = extract().into_iter().map(|(name, v)| (name, short(v))).collect();
        // A race between two extractors may lose one result, which is then extracted again.
        let before = self.0.load_full().map(|kept| kept.newest.clone());
        let newest = (extractor, fields.clone());
        self.0.store(Some(Arc::new(Extractions { newest, before })));
        fields
    }
}

impl Clone for ExtractedFields {
    /// A clone belongs to another object and starts empty.
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The value as it is kept: what is too long is replaced by a digest, which is longer than any value that is
/// not replaced. Selectors compare only for equality, and shorten the values they compare with, too.
pub(crate) fn shortened(value: &str) -> Cow<'_, str> {
    if value.len() <= MAX_VALUE {
        return Cow::Borrowed(value);
    }
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(value.as_bytes());
        hasher.finish()
    };
    let digest = format!("{:016x}{:016x}{}", half(0), half(1), value.len());
    Cow::Owned(format!("{digest:0>width$}", width = MAX_VALUE + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_extracted_once_per_extractor_and_long_values_are_digests() {
        let (fields, long) = (ExtractedFields::default(), "x".repeat(MAX_VALUE + 1));
        let mut extracted = 0;
        for extractor in [1, 2, 1, 2, 1] {
            let got = fields.get_or_extract(extractor, || {
                extracted += 1;
                vec![("a".into(), "short".into()), ("b".into(), Str::from(long.as_str()))]
            });
            assert_eq!((got[0].1.as_str(), &*got[1].1), ("short", &*shortened(&long)));
        }
        assert_eq!(extracted, 2);
        assert!(fields.has(1) && fields.has(2) && !fields.has(3) && !fields.clone().has(1));
        let digest = shortened(&long).into_owned();
        assert!(digest.len() > MAX_VALUE && digest.len() < MAX_VALUE + 32);
        assert_ne!(digest, shortened(&"y".repeat(MAX_VALUE + 1)));
        assert_ne!(digest, shortened(&format!("{long}x")));
    }
}
