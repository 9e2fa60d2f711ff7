//! Splits source text into tokens, for `parser`. Entry point: [`Lexer::run`], which also returns the errors that it
//! found, worded as cel-go's.

use std::sync::Arc;

/// Words that the language reserves, although they have no meaning. Identifiers cannot have these names;
/// fields after a dot can.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Words with tokens of their own.
pub(crate) const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Int(u64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    Ident(Arc<str>),
    True,
    False,
    Null,
    In,
    /// A name in backticks, which Kubernetes does not allow.
    Quoted,
    /// An operator or a bracket.
    Punct(&'static str),
    Eof,
}

#[derive(Clone, Debug)]
pub(crate) struct Lexeme {
    pub token: Token,
    /// In code points.
    pub start: u32,
    pub end: u32,
}

/// Longest first, so that `<=` is not taken for `<`.
const PUNCTUATION: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "(", ")", "[", "]", "{", "}",
    ",", ".", "=",
];

pub(crate) struct Lexer<'s> {
    chars: &'s [char],
    at: usize,
    /// Remaining number of unterminated strings that are read as something shorter. Each may be scanned to
    /// the end of the text, which would take quadratic time without a limit.
    retries: usize,
    pub errors: Vec<(u32, String)>,
}

fn is_ident(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl<'s> Lexer<'s> {
    pub(crate) fn new(chars: &'s [char]) -> Self {
        Self {
            chars,
            at: 0,
            // A hundred: more than any honest expression has, and few enough scans of the longest text.
            retries: 100,
            errors: Vec::new(),
        }
    }

    pub(crate) fn run(mut self) -> (Vec<Lexeme>, Vec<(u32, String)>) {
        let mut out = Vec::new();
        loop {
            self.skip_blank();
            let start = self.at;
            let token = match self.peek(0) {
                None => Some(Token::Eof),
                Some(_) => self.token(),
            };
            // `None` is text that was reported and skipped.
            let Some(token) = token else { continue };
            let last = token == Token::Eof;
            out.push(Lexeme {
                token,
                start: start as u32,
                end: self.at as u32,
            });
            if last {
                return (out, self.errors);
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn error(&mut self, at: usize, message: impl Into<String>) {
        // Text of nothing but errors must not collect one for each character.
        if self.errors.len() < 100 {
            self.errors.push((at as u32, message.into()));
        }
    }

    fn skip_blank(&mut self) {
        while let Some(c) = self.peek(0) {
            if matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c') {
                self.at += 1;
            } else if c == '/' && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
            } else {
                return;
            }
        }
    }

    fn token(&mut self) -> Option<Token> {
        let c = self.peek(0)?;
        // A dot starts a number only before a digit; otherwise it selects a member.
        if c.is_ascii_digit() || (c == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        // Before identifiers: `b` and `r` may be prefixes of string literals.
        if let Some(prefix) = self.string_prefix() {
            return self.string(prefix);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let start = self.at;
            while self.peek(0).is_some_and(is_ident) {
                self.at += 1;
            }
            let word: String = self.chars[start..self.at].iter().collect();
            return Some(match word.as_str() {
                "true" => Token::True,
                "false" => Token::False,
                "null" => Token::Null,
                "in" => Token::In,
                _ => Token::Ident(word.into()),
            });
        }
        let found = PUNCTUATION.iter().find(|p| {
            let mut here = self.chars[self.at..].iter();
            p.chars().all(|c| here.next() == Some(&c))
        });
        // `=` is listed so that it is found whole, but it is not an operator of the language.
        if let Some(p) = found.filter(|p| **p != "=") {
            self.at += p.len();
            return Some(Token::Punct(p));
        }
        let start = self.at;
        self.at += 1;
        match c {
            '`' => {
                while self
                    .peek(0)
                    .is_some_and(|c| is_ident(c) || matches!(c, '.' | '-' | '/' | ' '))
                {
                    self.at += 1;
                }
                // A name in backticks is a token of cel-go; Kubernetes rejects it later, in the parser.
                if self.peek(0) == Some('`') && self.at > start + 1 {
                    self.at += 1;
                    return Some(Token::Quoted);
                }
                self.at += 1;
            }
            // The start of an operator of two characters takes the next one with it.
            '=' | '|' | '&' => self.at += 1,
            _ => {}
        }
        // Consuming the next character may have passed the end.
        self.at = self.at.min(self.chars.len());
        self.unrecognized(start);
        None
    }

    fn number(&mut self) -> Option<Token> {
        let start = self.at;
        let hex = self.peek(0) == Some('0') && self.peek(1) == Some('x');
        if hex && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit()) {
            self.at += 2;
            while self.peek(0).is_some_and(|c| c.is_ascii_hexdigit()) {
                self.at += 1;
            }
            let digits: String = self.chars[start + 2..self.at].iter().collect();
            return self.integer(start, u64::from_str_radix(&digits, 16).ok());
        }
        let digits = |lexer: &mut Self| {
            let from = lexer.at;
            while lexer.peek(0).is_some_and(|c| c.is_ascii_digit()) {
                lexer.at += 1;
            }
            lexer.at > from
        };
        digits(self);
        let mut float = false;
        // A dot without a digit behind it belongs to a selection: `1.size()`.
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
            digits(self);
            float = true;
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            // An `e` without digits is left to be an identifier, since the grammar matches the longest number.
            let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
                self.at += 1 + sign;
                digits(self);
                float = true;
            }
        }
        let text: String = self.chars[start..self.at].iter().collect();
        if !float {
            return self.integer(start, text.parse().ok());
        }
        match text.parse::<f64>().ok().filter(|f| f.is_finite()) {
            Some(f) => Some(Token::Double(f)),
            None => {
                self.error(start, "invalid double literal");
                Some(Token::Double(0.0))
            }
        }
    }

    fn integer(&mut self, start: usize, value: Option<u64>) -> Option<Token> {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            if value.is_none() {
                self.error(start, "invalid uint literal");
            }
            return Some(Token::Uint(value.unwrap_or(0)));
        }
        // One more than the largest: the parser accepts it after a minus sign only.
        Some(Token::Int(value.unwrap_or(u64::MAX)))
    }

    /// The prefix of a string literal here, if there is one: whether it is of bytes, whether it is raw, its
    /// length.
    fn string_prefix(&self) -> Option<(bool, bool, usize)> {
        let (mut bytes, mut raw, mut n) = (false, false, 0);
        loop {
            match self.peek(n)? {
                '"' | '\'' => return Some((bytes, raw, n)),
                'b' | 'B' if n == 0 => bytes = true,
                'r' | 'R' if !raw => raw = true,
                _ => return None,
            }
            n += 1;
        }
    }

    fn string(&mut self, (bytes, raw, prefix): (bool, bool, usize)) -> Option<Token> {
        let start = self.at;
        self.at += prefix;
        let quote = self.peek(0)?;
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let width = if triple { 3 } else { 1 };
        self.at += width;
        let mut out = Vec::new();
        loop {
            // Checked first, but as wide as the opening quotes: a single quote inside of triple quotes is content.
            let closed = (0..width).all(|i| self.peek(i) == Some(quote));
            match self.peek(0) {
                Some(_) if closed => break,
                None => return self.unterminated(start, prefix, triple),
                Some('\n' | '\r') if !triple => {
                    self.at += 1;
                    return self.unterminated(start, prefix, triple);
                }
                Some('\\') if !raw => {
                    // The grammar matches the whole literal before escapes are evaluated, so a bad one leaves it
                    // unterminated.
                    if let Some(wrong) = self.no_escape() {
                        self.at = wrong;
                        return self.unterminated(start, prefix, triple);
                    }
                    self.escape(bytes, start, &mut out);
                }
                Some(c) => {
                    push(&mut out, c);
                    self.at += 1;
                }
            }
        }
        self.at += width;
        Some(if bytes {
            Token::Bytes(out.into())
        } else {
            // Escapes above U+007F of strings were encoded as characters.
            Token::String(String::from_utf8_lossy(&out).into())
        })
    }

    /// The offset behind the first character that does not fit an escape sequence; `None` if the sequence here is
    /// valid.
    fn no_escape(&self) -> Option<usize> {
        let digits = |from: usize, count: usize, radix: u32| {
            let wrong = (from..from + count).find(|i| !self.peek(*i).is_some_and(|c| c.is_digit(radix)))?;
            Some((self.at + wrong + 1).min(self.chars.len()))
        };
        match self.peek(1) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => None,
            Some('0'..='3') => digits(2, 2, 8),
            Some('x' | 'X') => digits(2, 2, 16),
            Some('u') => digits(2, 4, 16),
            Some('U') => digits(2, 8, 16),
            _ => Some((self.at + 2).min(self.chars.len())),
        }
    }

    /// The start of an unterminated string is read as something shorter: the prefix as a name, the first two
    /// of three quotes as an empty string.
    fn unterminated(&mut self, start: usize, prefix: usize, triple: bool) -> Option<Token> {
        // Each retry may scan to the end of the text, so their number is limited.
        let retry = self.retries > 0;
        self.retries = self.retries.saturating_sub(1);
        if triple && retry {
            // Two quotes are an empty string; the third one starts the next token.
            self.at = start + prefix + 2;
            let bytes = matches!(self.chars[start], 'b' | 'B');
            return Some(if bytes {
                Token::Bytes([].into())
            } else {
                Token::String("".into())
            });
        }
        if prefix > 0 && retry {
            self.at = start + prefix;
            return Some(Token::Ident(
                self.chars[start..self.at].iter().collect::<String>().into(),
            ));
        }
        self.unrecognized(start);
        None
    }

    fn unrecognized(&mut self, start: usize) {
        // Long garbage is cut, because it is the client's.
        let text: String = self.chars[start..self.at].iter().take(64).collect();
        self.error(start, format!("Syntax error: token recognition error at: '{text}'"));
    }

    fn escape(&mut self, bytes: bool, start: usize, out: &mut Vec<u8>) {
        self.at += 1;
        let Some(c) = self.peek(0) else { return };
        self.at += 1;
        let (digits, radix) = match c {
            'a' => return out.push(7),
            'b' => return out.push(8),
            'f' => return out.push(12),
            'n' => return out.push(b'\n'),
            'r' => return out.push(b'\r'),
            't' => return out.push(b'\t'),
            'v' => return out.push(11),
            '\\' | '\'' | '"' | '`' | '?' => return out.push(c as u8),
            'x' | 'X' => (2, 16),
            'u' if !bytes => (4, 16),
            'U' if !bytes => (8, 16),
            '0'..='3' => {
                // The digit that was read belongs to the number: octal escapes have three digits and no prefix.
                self.at -= 1;
                (3, 8)
            }
            _ => return self.error(start, "unable to unescape string"),
        };
        let text: String = self.chars[self.at..].iter().take(digits).collect();
        let code = u32::from_str_radix(&text, radix)
            .ok()
            .filter(|_| text.len() == digits && !text.starts_with('+'));
        let Some(code) = code else {
            return self.error(start, "unable to unescape string");
        };
        self.at += digits;
        match (bytes, char::from_u32(code)) {
            // Escapes of bytes are single bytes, also above 0x7f.
            (true, _) => out.push(code as u8),
            (false, Some(c)) => push(out, c),
            (false, None) => self.error(start, "invalid unicode code point"),
        }
    }
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}
