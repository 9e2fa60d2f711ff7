//! [`TextReader`]: walks a JSON text in its own order and spelling, for messages that show it. The tree has neither:
//! its members are sorted, and its numbers are values.

use crate::interrupt::pause;

/// A position in a text that is known to be JSON. Another text yields other values, but every walk of it ends.
#[derive(Clone, Debug)]
pub struct TextReader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> TextReader<'t> {
    /// A reader at the start of `text`.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// The first byte of the next token, which is not consumed; `None` at the end of the text.
    pub fn peek(&mut self) -> Option<u8> {
        let rest = self.rest();
        self.at += rest
            .bytes()
            .position(|b| !b.is_ascii_whitespace())
            .unwrap_or(rest.len());
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes the next token if it is this one.
    pub fn accept(&mut self, token: u8) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    /// Consumes a string (with its quotes), a number or a word; `None`, and nothing is consumed, if the next token is
    /// something else.
    pub fn scalar(&mut self) -> Option<&'t str> {
        let length = match self.peek()? {
            b'"' => string_length(self.rest()),
            _ => word_length(self.rest()),
        };
        let scalar = self.rest().get(..length).filter(|scalar| !scalar.is_empty())?;
        self.at += length;
        Some(scalar)
    }

    /// Consumes a value and returns its text.
    pub fn skip(&mut self) -> &'t str {
        self.peek();
        let (from, mut depth) = (self.at, 0_usize);
        // Brackets inside of strings do not count: a string is consumed whole by `scalar`.
        while let Some(token) = self.peek() {
            pause();
            match token {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if self.scalar().is_none() {
                // Structural characters are single ASCII bytes, so the position stays on a character boundary.
                self.at += 1;
            }
            if depth == 0 {
                break;
            }
        }
        self.text.get(from..self.at).unwrap_or_default()
    }

    /// Calls `item` at each item of the list here, which it must consume.
    ///
    /// # Errors
    /// The first error of `item`, where the walk stops.
    pub fn items<E>(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), E>) -> Result<(), E> {
        self.accept(b'[');
        while !self.accept(b']') && self.peek().is_some() {
            let before = self.at;
            item(self)?;
            self.accept(b',');
            self.advance_from(before);
        }
        Ok(())
    }

    /// Calls `member` with the key of each member of the object here, still in quotes, at its value, which it must
    /// consume.
    ///
    /// # Errors
    /// The first error of `member`, where the walk stops.
    pub fn members<E>(&mut self, mut member: impl FnMut(&mut Self, &'t str) -> Result<(), E>) -> Result<(), E> {
        self.accept(b'{');
        while !self.accept(b'}') && self.peek().is_some() {
            let before = self.at;
            let key = self.skip();
            self.accept(b':');
            member(self, key)?;
            self.accept(b',');
            self.advance_from(before);
        }
        Ok(())
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Consumes one character if nothing was consumed since `before`: a text that is not JSON must not be walked for
    /// ever.
    fn advance_from(&mut self, before: usize) {
        if self.at == before {
            self.at += self.rest().chars().next().map_or(1, char::len_utf8);
        }
    }
}

/// Bytes of the string at the start of `text`, with both quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    // Starts behind the opening quote, which `skip(1)` removes and `end + 2` adds back.
    let end = text.bytes().skip(1).position(|b| {
        let is_end = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        is_end
    });
    // An unterminated string extends to the end of the text, so that every walk ends.
    end.map_or(text.len(), |end| end + 2)
}

/// Bytes of the number, `true`, `false` or `null` at the start of `text`.
fn word_length(text: &str) -> usize {
    let ends = |b: u8| b.is_ascii_whitespace() || matches!(b, b',' | b':' | b']' | b'}' | b'"' | b'[' | b'{');
    text.bytes().position(ends).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Walk = Result<(), std::convert::Infallible>;

    #[test]
    fn members_and_items_keep_document_order_and_spelling() {
        let text = " {\"b\" : [1.50 ,\"\\\"]\", {}],\n\"a\\u0062\":-0e1 , \"c\":null}";
        let mut seen = Vec::new();
        let Ok(()): Walk = TextReader::new(text).members(|r, key| {
            seen.push((key, r.skip()));
            Ok(())
        });
        assert_eq!(
            seen,
            [
                ("\"b\"", "[1.50 ,\"\\\"]\", {}]"),
                ("\"a\\u0062\"", "-0e1"),
                ("\"c\"", "null")
            ]
        );
        let mut items = Vec::new();
        let Ok(()): Walk = TextReader::new(seen[0].1).items(|r| {
            items.push(r.skip());
            Ok(())
        });
        assert_eq!(items, ["1.50", "\"\\\"]\"", "{}"]);
    }

    #[test]
    fn malformed_text_terminates() {
        for text in [
            "", "{", "[", "{]", "}{", "\"", "{\"a\" 1", "[é", "[}", "{:,:", "{\"a\":}", "[,,]",
        ] {
            let Ok(()): Walk = TextReader::new(text).members(|r, _| {
                r.scalar();
                Ok(())
            });
            let Ok(()): Walk = TextReader::new(text).items(|_| Ok(()));
            TextReader::new(text).skip();
        }
    }
}
