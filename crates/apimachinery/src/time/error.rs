//! [`Error`]: why a text is not a time or a duration, in the words of Go's `time` package.

/// Why a text is not a time or a duration. Except for [`Error::Hint`], messages as Go words them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text does not have the layout.
    #[error(
        "parsing time {} as {layout:?}: cannot parse {} as {element:?}",
        quoted(text),
        quoted(rest)
    )]
    Layout {
        /// The time as it was given.
        text: String,
        /// The layout in the form of Go, such as `2006-01-02T15:04:05Z07:00`.
        layout: &'static str,
        /// The rest of the text from where it differs.
        rest: String,
        /// The element of the layout that was expected there.
        element: &'static str,
    },
    /// A month, day, hour, minute or second that does not exist.
    #[error("parsing time {}: {what} out of range", quoted(text))]
    OutOfRange {
        /// The time as it was given.
        text: String,
        /// The element that is out of range, as Go names it.
        what: &'static str,
    },
    /// Text behind the time.
    #[error("parsing time {}: extra text: {}", quoted(text), quoted(rest))]
    Extra {
        /// The time as it was given.
        text: String,
        /// The text behind it.
        rest: String,
    },
    /// A component lacks its number, or the duration exceeds Go's range.
    #[error("time: invalid duration {}", quoted(.0))]
    Duration(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {}", quoted(.0))]
    NoUnit(String),
    /// A unit that Go does not define.
    #[error("time: unknown unit {} in duration {}", quoted(unit), quoted(duration))]
    Unit {
        /// Everything between the number and the next one.
        unit: String,
        /// The duration as it was given.
        duration: String,
    },
    /// For our own flags and files: the expected syntax.
    #[error("{0}")]
    Hint(&'static str),
}

/// Text in the quotes of Go's `time` package, which escapes the bytes of everything but printable ASCII.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=0x7f => out.push(char::from(byte)),
            byte => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}
