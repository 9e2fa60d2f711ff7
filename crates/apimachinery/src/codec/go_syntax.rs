//! Explains JSON syntax errors with the messages of Go's `encoding/json`.
//!
//! Start at [`explain`]. It runs only after decoding has failed, so it favours exact messages over speed.

use crate::interrupt::pause;

/// The message about the first number of a JSON value that no double can represent.
pub(super) fn too_large(text: &str) -> Option<String> {
    let (_, found) = numbers(text).find(|(_, number)| is_too_large(number))?;
    Some(format!(
        "json: cannot unmarshal number {found} into Go value of type float64"
    ))
}

/// The text with [`HUGE`] in place of numbers that no double can represent.
pub(super) fn representable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut kept = 0;
    for (at, number) in numbers(text).filter(|(_, number)| is_too_large(number)) {
        out.push_str(&text[kept..at]);
        out.push_str(HUGE);
        kept = at + number.len();
    }
    out.push_str(&text[kept..]);
    out
}

/// Replaces a number that is too large: the largest double, which documents hardly contain otherwise.
pub(super) const HUGE: &str = "1.7976931348623157e308";

fn is_too_large(number: &str) -> bool {
    // Rust parses out-of-range numbers as infinity instead of failing, and JSON has no other spelling of it.
    number.parse::<f64>().is_ok_and(f64::is_infinite)
}

/// The numbers of a JSON text, with their byte offsets. Other tokens may be among them in invalid JSON.
fn numbers(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_string = false;
    let mut escaped = false;
    let mut at = 0;
    // Strings are cut out: between them, numbers are what is neither a word nor punctuation.
    // Splits behind structural characters outside of strings, and behind every character inside, so a string never
    // ends up in a token with a number.
    let tokens = text.split_inclusive(move |c: char| {
        let quote = c == '"' && !escaped;
        escaped = c == '\\' && in_string && !escaped;
        in_string ^= quote;
        in_string || quote || matches!(c, ',' | ':' | '[' | ']' | '{' | '}' | ' ' | '\t' | '\r' | '\n')
    });
    let punctuation = |c: char| !matches!(c, '0'..='9' | 'a'..='z' | 'E' | '+' | '-' | '.');
    tokens.filter_map(move |token| {
        pause();
        let place = at;
        at += token.len();
        let number = token.trim_end_matches(punctuation);
        number
            .starts_with(|c: char| c == '-' || c.is_ascii_digit())
            .then_some((place, number))
    })
}

/// Returns the first syntax error, or `None` if the text is a single JSON value.
pub(super) fn explain(bytes: &[u8]) -> Option<String> {
    let mut at = Cursor { bytes, i: 0 };
    match at.value().and_then(|()| at.end()) {
        Ok(()) => None,
        Err(Wrong::Eof) => Some("unexpected end of JSON input".to_owned()),
        Err(Wrong::At(b, context)) => Some(format!("invalid character {} {context}", format_byte(b))),
    }
}

enum Wrong {
    Eof,
    At(u8, String),
}

fn format_byte(b: u8) -> String {
    match b {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x20..=0x7e => format!("'{}'", char::from(b)),
        // Go formats the byte as the Latin-1 character of that number.
        0xa1.. if b != 0xad => format!("'{}'", char::from(b)),
        0x80.. => format!("'\\u{b:04x}'"),
        b => format!("'\\x{b:02x}'"),
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    i: usize,
}

type Step = Result<(), Wrong>;

impl Cursor<'_> {
    fn space(&mut self) {
        while matches!(self.bytes.get(self.i), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.i += 1;
        }
    }

    fn next(&mut self) -> Result<u8, Wrong> {
        pause();
        let b = *self.bytes.get(self.i).ok_or(Wrong::Eof)?;
        self.i += 1;
        Ok(b)
    }

    /// The next byte of a word, number or escape. Go's scanner reads a space at the end of the text, which
    /// fits none.
    fn next_of_token(&mut self) -> u8 {
        self.next().unwrap_or(b' ')
    }

    fn after_space(&mut self) -> Result<u8, Wrong> {
        self.space();
        self.next()
    }

    fn end(&mut self) -> Step {
        self.space();
        match self.bytes.get(self.i) {
            None => Ok(()),
            Some(&b) => Err(Wrong::At(b, "after top-level value".into())),
        }
    }

    /// Skips a value iteratively: bodies are untrusted and may nest arbitrarily deep.
    // Explicit stack of open brackets; the tree decoder's recursion limit does not apply here.
    fn value(&mut self) -> Step {
        let mut open: Vec<u8> = Vec::new();
        'value: loop {
            match self.after_space()? {
                b'{' => {
                    if self.after_space()? != b'}' {
                        // The byte is looked at again as the start of the first member.
                        self.i -= 1;
                        open.push(b'{');
                        self.key()?;
                        continue 'value;
                    }
                }
                b'[' => {
                    if self.after_space()? != b']' {
                        self.i -= 1;
                        open.push(b'[');
                        continue 'value;
                    }
                }
                b'"' => self.string()?,
                b't' => self.literal("true")?,
                b'f' => self.literal("false")?,
                b'n' => self.literal("null")?,
                // Go's scanner commits to a number after the sign, so the message differs from that for a wrong start
                // of value.
                b'-' => match self.next_of_token() {
                    d @ b'0'..=b'9' => self.number(d)?,
                    b => return Err(Wrong::At(b, "in numeric literal".into())),
                },
                d @ b'0'..=b'9' => self.number(d)?,
                b => return Err(Wrong::At(b, "looking for beginning of value".into())),
            }
            loop {
                let Some(inside) = open.last() else {
                    return Ok(());
                };
                match (inside, self.after_space()?) {
                    (b'{', b',') => {
                        self.key()?;
                        continue 'value;
                    }
                    (b'[', b',') => continue 'value,
                    (b'{', b'}') | (b'[', b']') => drop(open.pop()),
                    (b'{', b) => return Err(Wrong::At(b, "after object key:value pair".into())),
                    (_, b) => return Err(Wrong::At(b, "after array element".into())),
                }
            }
        }
    }

    fn key(&mut self) -> Step {
        match self.after_space()? {
            b'"' => self.string()?,
            b => return Err(Wrong::At(b, "looking for beginning of object key string".into())),
        }
        match self.after_space()? {
            b':' => Ok(()),
            b => Err(Wrong::At(b, "after object key".into())),
        }
    }

    fn string(&mut self) -> Step {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next_of_token() {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let b = self.next_of_token();
                            if !b.is_ascii_hexdigit() {
                                return Err(Wrong::At(b, "in \\u hexadecimal character escape".into()));
                            }
                        }
                    }
                    b => return Err(Wrong::At(b, "in string escape code".into())),
                },
                // Go's encoder would write these escaped; its decoder rejects them raw.
                b if b < 0x20 => return Err(Wrong::At(b, "in string literal".into())),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Step {
        // The first letter was consumed by `value`.
        for want in word.bytes().skip(1) {
            let b = self.next_of_token();
            if b != want {
                let text = format!("in literal {word} (expecting '{}')", char::from(want));
                return Err(Wrong::At(b, text));
            }
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.i).is_some_and(u8::is_ascii_digit) {
            self.i += 1;
        }
    }

    fn number(&mut self, first: u8) -> Step {
        // A leading zero ends the integer part.
        if first != b'0' {
            self.digits();
        }
        if self.bytes.get(self.i) == Some(&b'.') {
            self.i += 1;
            let b = self.next_of_token();
            if !b.is_ascii_digit() {
                return Err(Wrong::At(b, "after decimal point in numeric literal".into()));
            }
            self.digits();
        }
        if matches!(self.bytes.get(self.i), Some(b'e' | b'E')) {
            self.i += 1;
            if matches!(self.bytes.get(self.i), Some(b'+' | b'-')) {
                self.i += 1;
            }
            let b = self.next_of_token();
            if !b.is_ascii_digit() {
                return Err(Wrong::At(b, "in exponent of numeric literal".into()));
            }
            self.digits();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_match_go() {
        for (text, want) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("<x/>", "invalid character '<' looking for beginning of value"),
            (
                "{a:1}",
                "invalid character 'a' looking for beginning of object key string",
            ),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 2}"#, "invalid character '2' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("nul!", "invalid character '!' in literal null (expecting 'l')"),
            ("t", "invalid character ' ' in literal true (expecting 'r')"),
            ("-", "invalid character ' ' in numeric literal"),
            ("[1.", "invalid character ' ' after decimal point in numeric literal"),
            (r#"["\"#, "invalid character ' ' in string escape code"),
            (r#"["a"#, "unexpected end of JSON input"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("\"a\nb\"", r"invalid character '\n' in string literal"),
            ("\"\u{7}\"", r"invalid character '\a' in string literal"),
            ("\"\u{8}\"", r"invalid character '\b' in string literal"),
            ("\"\u{b}\"", r"invalid character '\v' in string literal"),
            ("\"\u{c}\"", r"invalid character '\f' in string literal"),
            ("\"\u{1}\"", r"invalid character '\x01' in string literal"),
            (
                r#"{"a":1,}"#,
                "invalid character '}' looking for beginning of object key string",
            ),
        ] {
            assert_eq!(explain(text.as_bytes()).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn numbers_that_are_too_large_are_named() {
        for (text, number) in [
            (r#"{"a":"1e999","b":[2,-1e400]}"#, Some("-1e400")),
            (r#"{"1e999\"":1e308}"#, None),
        ] {
            let message = |n: &str| format!("json: cannot unmarshal number {n} into Go value of type float64");
            assert_eq!(too_large(text), number.map(message), "{text}");
        }
    }

    #[test]
    fn numbers_that_are_too_large_are_replaced() {
        let text = r#"{"1e400\"":[1e400,-2E999 ,{"a":1e400}],"b":"1e400"}"#;
        let want = format!(r#"{{"1e400\"":[{HUGE},{HUGE} ,{{"a":{HUGE}}}],"b":"1e400"}}"#);
        assert_eq!(representable(text), want);
    }

    proptest! {
        #[test]
        fn explain_fails_exactly_when_decode_does(text in r#"[\[\]{},:"a1. \\-]{0,12}"#) {
            let decodes = crate::codec::json::decode(text.as_bytes()).is_ok();
            prop_assert_eq!(explain(text.as_bytes()).is_none(), decodes);
        }
    }
}
