//! [`Parser`]: the text form of label selectors.

use super::{Error, Operator, Requirement, check_key};
use crate::field::{ErrorList, aggregate};
use crate::value::Str;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    End,
    Word,
    Not,
    Comma,
    Open,
    Close,
    Op(Operator),
}

/// A recursive-descent parser that lexes on demand, because `in` and `notin` are operators only in operator
/// position.
pub(super) struct Parser<'a> {
    rest: &'a str,
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn peek(&self) -> (Token, &'a str, &'a str) {
        let s = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        // Go's lexer takes a NUL for the end of the text, but only where a token would begin.
        let Some(first) = s.chars().next().filter(|c| *c != '\0') else {
            return (Token::End, "", s);
        };
        let (token, len) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            '>' => (Token::Op(Operator::GreaterThan), 1),
            '<' => (Token::Op(Operator::LessThan), 1),
            '=' if s[1..].starts_with('=') => (Token::Op(Operator::DoubleEquals), 2),
            '=' => (Token::Op(Operator::Equals), 1),
            '!' if s[1..].starts_with('=') => (Token::Op(Operator::NotEquals), 2),
            '!' => (Token::Not, 1),
            // Words are not restricted here: keys and values are validated with their own messages.
            _ => {
                let end = s
                    .find(|c| is_special(c) || matches!(c, '\0' | ' ' | '\t' | '\r' | '\n'))
                    .unwrap_or(s.len());
                (Token::Word, end)
            }
        };
        let (text, rest) = s.split_at(len);
        // Directly behind a token it is skipped.
        (token, text, rest.strip_prefix('\0').unwrap_or(rest))
    }

    fn next(&mut self) -> (Token, &'a str) {
        let (token, text, rest) = self.peek();
        self.rest = rest;
        (token, text)
    }

    pub(super) fn selector(&mut self) -> Result<Vec<Requirement>, Error> {
        let mut out = Vec::new();
        loop {
            match self.peek() {
                (Token::Word | Token::Not, ..) => {}
                (Token::End, ..) => return Ok(out),
                (_, text, _) => return Err(Error::unexpected(text, "!, identifier, or 'end of string'")),
            }
            out.push(self.requirement().map_err(|e| Error::Unparsable(Box::new(e)))?);
            match self.next() {
                (Token::End, _) => return Ok(out),
                (Token::Comma, _) => {
                    let (token, text, _) = self.peek();
                    if !matches!(token, Token::Word | Token::Not) {
                        return Err(Error::unexpected(text, "identifier after ','"));
                    }
                }
                (_, text) => return Err(Error::unexpected(text, "',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, Error> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != Token::Word {
            return Err(Error::unexpected(key, "identifier"));
        }
        let mut errors = ErrorList::new();
        // Before the operator is read, as upstream does, so that an invalid key wins over a wrong operator.
        check_key(key, &mut errors);
        if !errors.is_empty() {
            return Err(Error::Requirement(aggregate(&errors)));
        }
        if negated {
            return Requirement::try_new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Requirement::try_new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.next() {
            (Token::Op(o), _) => o,
            (Token::Word, "in") => Operator::In,
            (Token::Word, "notin") => Operator::NotIn,
            (_, text) => return Err(Error::unexpected(text, "in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact()?],
        };
        Requirement::try_new(key, operator, values)
    }

    fn exact(&mut self) -> Result<Str, Error> {
        // `a=` requires the empty value.
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(Str::default());
        }
        match self.next() {
            (Token::Word, text) => Ok(Str::new(text)),
            (_, text) => Err(Error::unexpected(text, "identifier")),
        }
    }

    /// Parses `(a,b)`; nothing between commas is the empty value.
    fn values(&mut self) -> Result<Vec<Str>, Error> {
        match self.next() {
            (Token::Open, _) => {}
            (_, text) => return Err(Error::NoParenthesis(text.to_owned())),
        }
        match self.peek() {
            (Token::Word | Token::Comma, ..) => {}
            // `in ()` has the empty value, as in upstream's `parseValues`.
            (Token::Close, _, rest) => {
                self.rest = rest;
                return Ok(vec![Str::default()]);
            }
            (_, text, _) => return Err(Error::unexpected(text, "',', ')' or identifier")),
        }
        let mut out = Vec::new();
        loop {
            match self.next() {
                (Token::Word, text) => {
                    out.push(Str::new(text));
                    // Only peeked: a comma is consumed by the next round, which decides about empty values.
                    match self.peek() {
                        (Token::Comma, ..) => {}
                        (Token::Close, _, rest) => {
                            self.rest = rest;
                            return Ok(out);
                        }
                        (_, text, _) => return Err(Error::unexpected(text, "',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    // Nothing between commas or parentheses is the empty value.
                    if out.is_empty() {
                        out.push(Str::default());
                    }
                    // A comma before the parenthesis, or a second comma, stands for an empty value.
                    match self.peek() {
                        (Token::Close, _, rest) => {
                            self.rest = rest;
                            out.push(Str::default());
                            return Ok(out);
                        }
                        (Token::Comma, _, rest) => {
                            self.rest = rest;
                            out.push(Str::default());
                        }
                        _ => {}
                    }
                }
                (_, text) => return Err(Error::unexpected(text, "',', or identifier")),
            }
        }
    }
}
