//! [`StrictErrors`]: the bounded list of strict-decoding problems of one document.

use crate::field::{MAX_TEXT, cut};

/// Unknown and duplicate fields in document order. Upstream's strict decoder also stops at
/// [`MAX`](Self::MAX); the texts are bounded here as well, because each contains a path chosen by the client.
#[derive(Clone, Debug, Default)]
pub struct StrictErrors {
    texts: Vec<String>,
    size: usize,
}

impl StrictErrors {
    /// Maximum number of findings per document.
    pub const MAX: usize = 100;
    /// Maximum bytes of a single finding.
    const MAX_LENGTH: usize = 4096;

    /// Adds a finding unless the list is full; `text` is not called in that case.
    // Checked first, so that a path is not formatted only to be thrown away.
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        if self.is_full() {
            return;
        }
        let text = cut(text(), Self::MAX_LENGTH);
        self.size += text.len();
        self.texts.push(text);
    }

    /// Adds several findings, as far as they fit.
    pub fn extend(&mut self, texts: impl IntoIterator<Item = String>) {
        texts.into_iter().for_each(|t| self.add(|| t));
    }

    /// True if further findings are dropped.
    pub fn is_full(&self) -> bool {
        self.texts.len() >= Self::MAX || self.size > MAX_TEXT
    }

    /// Returns the messages of the findings.
    pub fn into_texts(self) -> Vec<String> {
        self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_bounded_in_number_and_size() {
        let mut many = StrictErrors::default();
        many.extend((0..1000).map(|i| i.to_string()));
        assert_eq!(many.into_texts().len(), StrictErrors::MAX);
        let mut long = StrictErrors::default();
        long.extend((0..1000).map(|_| "x".repeat(1 << 20)));
        assert!(long.into_texts().iter().map(String::len).sum::<usize>() < 2 * MAX_TEXT);
    }
}
