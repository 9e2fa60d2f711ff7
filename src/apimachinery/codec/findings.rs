//! What strict decoding finds: a bounded list of texts.

use crate::apimachinery::field::{MAX_TEXT, cut};

/// Findings of one document, in order: unknown and duplicate fields. Upstream's strict decoder stops at
/// [`MAX`](Self::MAX), too; here their texts are bounded as well, since each repeats a path that a client chose.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    texts: Vec<String>,
    size: usize,
}

impl Findings {
    /// Most findings of one document.
    pub const MAX: usize = 100;
    /// Most bytes of one finding.
    const LONGEST: usize = 4096;

    /// Adds a finding, unless there are too many already.
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        if self.is_full() {
            return;
        }
        let text = cut(text(), Self::LONGEST);
        self.size += text.len();
        self.texts.push(text);
    }

    /// Adds all of these.
    pub fn extend(&mut self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|t| self.add(|| t));
    }

    /// True where no more are kept.
    pub fn is_full(&self) -> bool {
        self.texts.len() >= Self::MAX || self.size > MAX_TEXT
    }

    /// The texts.
    pub fn into_texts(self) -> Vec<String> {
        self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_bounded_in_number_and_in_text() {
        let mut many = Findings::default();
        many.extend((0..1000).map(|i| i.to_string()));
        assert_eq!(many.into_texts().len(), Findings::MAX);
        let mut long = Findings::default();
        long.extend((0..1000).map(|_| "x".repeat(1 << 20)));
        assert!(long.into_texts().iter().map(String::len).sum::<usize>() < 2 * MAX_TEXT);
    }
}
