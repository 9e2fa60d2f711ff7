//! Error lists of bounded size. A body of three megabytes can be wrong in a million places; nobody reads more than a few
//! of them, and each costs far more memory than the bytes that are wrong.

use super::{FieldError, FieldErrorKind};
use std::collections::HashSet;
use std::ops::{Deref, DerefMut};

/// Most errors a list holds, and a Status names as causes. Further ones are counted.
pub const MAX_ERRORS: usize = 100;

/// Most bytes of a message, and of all causes of a Status together.
pub const MAX_TEXT: usize = 64 * 1024;

/// All that is wrong with an object: the first [`MAX_ERRORS`] errors. Where there are more, the last element counts them
/// ([`FieldErrorKind::More`]), so that a list that is copied, filtered or appended never looks better than it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorList(Vec<FieldError>);

impl ErrorList {
    /// No errors.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an error, or counts it where the list is full.
    pub fn push(&mut self, error: FieldError) {
        match error.kind {
            FieldErrorKind::More(n) => self.count(n),
            _ if self.is_full() => self.count(1),
            _ => self.0.push(error),
        }
    }

    /// As [`push`](Self::push), for errors whose text is expensive: it is made only where there is room for it.
    pub fn push_with(&mut self, error: impl FnOnce() -> FieldError) {
        if self.is_full() {
            self.count(1);
        } else {
            self.push(error());
        }
    }

    /// Adds the same error `times` over, as upstream does where several pairs of elements are wrong in one way.
    pub fn push_times(&mut self, times: usize, error: impl Fn() -> FieldError) {
        for done in 0..times {
            if self.is_full() {
                return self.count(times - done);
            }
            self.push(error());
        }
    }

    /// True where further errors are counted, but not kept.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_ERRORS
    }

    /// How many errors there are, those that were not kept included.
    pub fn total(&self) -> usize {
        let more = |e: &FieldError| match e.kind {
            FieldErrorKind::More(n) => n,
            _ => 1,
        };
        self.0.iter().map(more).sum()
    }

    /// Adds all of these errors.
    pub fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        errors.into_iter().for_each(|e| self.push(e));
    }

    /// Keeps the errors `f` approves of, and the count of those that were not kept.
    pub fn retain(&mut self, mut f: impl FnMut(&FieldError) -> bool) {
        self.0.retain(|e| matches!(e.kind, FieldErrorKind::More(_)) || f(e));
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn count(&mut self, n: usize) {
        if let Some(last) = self.0.last_mut()
            && let FieldErrorKind::More(counted) = &mut last.kind
        {
            *counted += n;
        } else {
            self.0.push(FieldError::more(n));
        }
    }
}

impl Deref for ErrorList {
    type Target = [FieldError];
    fn deref(&self) -> &[FieldError] {
        &self.0
    }
}

impl DerefMut for ErrorList {
    fn deref_mut(&mut self) -> &mut [FieldError] {
        &mut self.0
    }
}

impl IntoIterator for ErrorList {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ErrorList {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a mut ErrorList {
    type Item = &'a mut FieldError;
    type IntoIter = std::slice::IterMut<'a, FieldError>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

impl FromIterator<FieldError> for ErrorList {
    fn from_iter<T: IntoIterator<Item = FieldError>>(errors: T) -> Self {
        let mut out = Self::new();
        out.extend(errors);
        out
    }
}

impl From<Vec<FieldError>> for ErrorList {
    fn from(errors: Vec<FieldError>) -> Self {
        errors.into_iter().collect()
    }
}

/// The joined message of a list: one error bare, several in brackets; equal messages are said once, and those that do not
/// fit in [`MAX_TEXT`] are counted.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut out = Aggregate::default();
    for e in errors {
        match e.kind {
            FieldErrorKind::More(n) => out.more += n,
            _ => out.add(e.to_string()),
        }
    }
    out.text()
}

/// The same of other errors.
pub fn aggregate_texts(errors: impl IntoIterator<Item = String>) -> String {
    let mut out = Aggregate::default();
    errors.into_iter().for_each(|e| out.add(e));
    out.text()
}

#[derive(Default)]
struct Aggregate {
    said: HashSet<String>,
    joined: String,
    more: usize,
}

impl Aggregate {
    fn add(&mut self, text: String) {
        if self.said.contains(&text) {
            return;
        }
        if self.said.len() >= MAX_ERRORS || self.joined.len() + text.len() > MAX_TEXT && !self.said.is_empty() {
            self.more += 1;
            return;
        }
        if !self.said.is_empty() {
            self.joined.push_str(", ");
        }
        self.joined.push_str(&text);
        self.said.insert(text);
    }

    fn text(self) -> String {
        match (self.said.len(), self.more) {
            (1, 0) => cut(self.joined, MAX_TEXT),
            (_, 0) => format!("[{}]", self.joined),
            (_, more) => format!("[{}, and {}]", cut(self.joined, MAX_TEXT), more_errors(more)),
        }
    }
}

pub(super) fn more_errors(n: usize) -> String {
    format!("{n} more error{}", if n == 1 { "" } else { "s" })
}

/// The text; of a longer one than `max` bytes the beginning, and how much is missing.
pub fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = text.floor_char_boundary(max);
        let missing = text.len() - end;
        text.truncate(end);
        text.shrink_to_fit();
        text.push_str(&format!("... ({missing} more bytes)"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::FieldPath;
    use super::*;

    fn errors(n: usize) -> impl Iterator<Item = FieldError> {
        (0..n).map(|i| FieldError::required(&FieldPath::new("a").index(i), ""))
    }

    #[test]
    fn errors_beyond_the_bound_are_counted() {
        let mut list: ErrorList = errors(250).collect();
        assert_eq!((list.len(), list.total()), (101, 250));
        let other = list.clone();
        list.extend(other);
        list.push_with(|| panic!("the list is full"));
        assert_eq!((list.len(), list.total()), (101, 501));
        let text = aggregate(&list);
        assert!(text.starts_with("[a[0]: Required value, a[1]: ") && text.ends_with(", and 401 more errors]"));
        assert_eq!(text.matches("Required").count(), 100);
    }

    #[test]
    fn a_filtered_list_keeps_the_count_of_what_was_not_looked_at() {
        let mut list: ErrorList = errors(101).collect();
        list.retain(|_| false);
        assert_eq!(list.total(), 1);
        let whole: ErrorList = errors(100).collect();
        assert!(whole.iter().all(|e| e.kind == FieldErrorKind::Required));
    }

    #[test]
    fn messages_are_bounded() {
        let long = "x".repeat(MAX_TEXT);
        let text = aggregate_texts([long.clone(), "b".to_owned(), format!("{long}y")]);
        assert!(text.ends_with("x, and 2 more errors]") && text.len() < MAX_TEXT + 100);
        assert_eq!(
            aggregate_texts([format!("{long}yz")]).len(),
            MAX_TEXT + "... (2 more bytes)".len()
        );
        assert_eq!(cut("aé".to_owned(), 2), "a... (2 more bytes)");
    }
}
