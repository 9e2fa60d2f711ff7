//! [`ErrorList`]: a bounded list of validation errors, and their aggregation into one message.
//!
//! A body of three megabytes can be invalid in a million places. Nobody reads that many errors, and each
//! takes far more memory than the invalid bytes.

use super::{FieldError, FieldErrorKind};
use std::collections::HashSet;
use std::ops::{Deref, DerefMut};

/// Maximum errors in a list, and causes in a Status. Further ones are counted.
pub(crate) const MAX_ERRORS: usize = 100;

/// Maximum bytes of a message, and of all causes of a Status together.
pub const MAX_TEXT: usize = 64 * 1024;

/// The first 100 validation errors of an object. If there are more, the last element counts them
/// ([`FieldErrorKind::More`]), so the total survives copying, filtering and appending.
///
/// ```
/// use torana_apimachinery::{ErrorList, FieldError, FieldPath, Status};
///
/// let path = FieldPath::new("spec").child("ports");
/// let mut errors = ErrorList::new();
/// for (i, port) in [80_i64, 0].into_iter().enumerate() {
///     if port < 1 {
///         errors.push(FieldError::invalid(&path.index(i), port, "must be positive"));
///     }
/// }
/// let status = Status::invalid("", "Service", "web", &errors);
/// assert_eq!(
///     status.message,
///     r#"Service "web" is invalid: spec.ports[1]: Invalid value: 0: must be positive"#
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorList(Vec<FieldError>);

impl ErrorList {
    /// A list without errors: the object is valid so far.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an error, or counts it if the list is full.
    pub fn push(&mut self, error: FieldError) {
        // A list appended to a full one brings its own count; it is added rather than listed.
        match error.kind {
            FieldErrorKind::More(n) => self.count(n),
            _ if self.is_full() => self.count(1),
            _ => self.0.push(error),
        }
    }

    /// Like [`push`](Self::push), but only builds the error if the list has room for it.
    pub fn push_with(&mut self, error: impl FnOnce() -> FieldError) {
        if self.is_full() {
            self.count(1);
        } else {
            self.push(error());
        }
    }

    /// Adds the same error several times, as upstream does once per offending pair of elements.
    pub fn push_times(&mut self, times: usize, error: impl Fn() -> FieldError) {
        // Checked per round, so that a million duplicates cost a hundred errors and one addition.
        for done in 0..times {
            if self.is_full() {
                return self.count(times - done);
            }
            self.push(error());
        }
    }

    /// True if further errors are only counted.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MAX_ERRORS
    }

    /// The number of errors, including those that were only counted.
    pub fn total(&self) -> usize {
        let more = |e: &FieldError| match e.kind {
            FieldErrorKind::More(n) => n,
            _ => 1,
        };
        self.0.iter().map(more).sum()
    }

    /// As [`push`](Self::push), for each of several errors.
    pub fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        errors.into_iter().for_each(|e| self.push(e));
    }

    /// Removes the errors for which `f` returns false. The count of omitted errors stays.
    pub fn retain(&mut self, mut f: impl FnMut(&FieldError) -> bool) {
        self.0.retain(|e| matches!(e.kind, FieldErrorKind::More(_)) || f(e));
    }

    /// Removes all errors and the count.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn count(&mut self, n: usize) {
        if let Some(last) = self.0.last_mut()
            && let FieldErrorKind::More(counted) = &mut last.kind
        // The count is always the last element: `push` appends nothing behind it.
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

/// Joins errors like upstream's `utilerrors.Aggregate`: a single one bare, several in brackets, duplicates
/// once. Errors that do not fit into [`MAX_TEXT`] are counted.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut out = Aggregate::default();
    // Duplicates are dropped by text, as upstream does; the count of omitted errors cannot know about them.
    for e in errors {
        match e.kind {
            FieldErrorKind::More(n) => out.more += n,
            _ => out.add(e.to_string()),
        }
    }
    out.text()
}

/// [`aggregate`] for errors given as text.
pub fn aggregate_texts(errors: impl IntoIterator<Item = String>) -> String {
    let mut out = Aggregate::default();
    errors.into_iter().for_each(|e| out.add(e));
    out.text()
}

#[derive(Default)]
struct Aggregate {
    listed: HashSet<String>,
    joined: String,
    more: usize,
}

impl Aggregate {
    fn add(&mut self, text: String) {
        // Checked before the limits: a duplicate is not an omitted error.
        if self.listed.contains(&text) {
            return;
        }
        // The first error is kept whatever its size.
        if self.listed.len() >= MAX_ERRORS || self.joined.len() + text.len() > MAX_TEXT && !self.listed.is_empty() {
            self.more += 1;
            return;
        }
        if !self.listed.is_empty() {
            self.joined.push_str(", ");
        }
        self.joined.push_str(&text);
        self.listed.insert(text);
    }

    fn text(self) -> String {
        match (self.listed.len(), self.more) {
            // A single error is not put into brackets, even if it had to be cut.
            (1, 0) => cut(self.joined, MAX_TEXT),
            (_, 0) => format!("[{}]", self.joined),
            (_, more) => format!("[{}, and {}]", cut(self.joined, MAX_TEXT), more_errors(more)),
        }
    }
}

pub(super) fn more_errors(n: usize) -> String {
    format!("{n} more error{}", if n == 1 { "" } else { "s" })
}

/// Truncates a text to `max` bytes and notes how many are missing.
pub fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = text.floor_char_boundary(max);
        let missing = text.len() - end;
        text.truncate(end);
        // The text may be a fraction of what was allocated, and errors are kept until the response is written.
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
    fn errors_beyond_the_limit_are_counted() {
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
    fn retain_keeps_the_count_of_omitted_errors() {
        let mut list: ErrorList = errors(101).collect();
        list.retain(|_| false);
        assert_eq!(list.total(), 1);
        let whole: ErrorList = errors(100).collect();
        assert!(whole.iter().all(|e| e.kind == FieldErrorKind::Required));
    }

    #[test]
    fn aggregated_messages_are_bounded() {
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
