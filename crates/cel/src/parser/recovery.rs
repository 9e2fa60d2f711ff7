//! Error recovery, as in cel-go's parser, which ANTLR generates. A superfluous token is skipped if the next
//! one fits, a missing bracket or colon is assumed if the present token could follow it, and every other
//! error ends the parsing. Operators without operands are looked through, so that each is reported.

use super::{Parsed, Parser};
use crate::lexer::Token;

/// The end of parsing without a message of its own.
pub(super) const SILENT: (u32, String) = (u32::MAX - 1, String::new());

/// The tokens that can start an operand, as messages list them.
pub(super) const OPERAND: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// How many errors there may be before operators without operands end the parsing.
const MAX_OPERATORS: usize = 100;

/// Punctuation in ANTLR's order.
const ORDER: [&str; 11] = ["[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?"];

fn starts_operand(token: Option<&Token>) -> bool {
    match token {
        None | Some(Token::Eof | Token::In | Token::Quoted) => false,
        Some(Token::Punct(p)) => matches!(*p, "[" | "{" | "(" | "." | "-" | "!"),
        Some(_) => true,
    }
}

/// True for an operator between two operands that cannot start one.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::In => true,
        Token::Punct(p) => matches!(
            *p,
            "*" | "/" | "%" | "+" | "==" | "!=" | "<=" | "<" | ">=" | ">" | "&&" | "||"
        ),
        _ => false,
    }
}

fn is_one_of(token: Option<&Token>, puncts: &[&str]) -> bool {
    matches!(token, Some(Token::Punct(p)) if puncts.contains(p))
}

/// The list in messages: the tokens that can start an operand, and `also`.
fn expected(also: &[&str]) -> String {
    let (_, words) = OPERAND.split_once("'true'").unwrap_or_default();
    let listed = |p: &&&str| also.contains(*p) || ["[", "{", "(", ".", "-", "!"].contains(*p);
    let puncts: Vec<String> = ORDER.iter().filter(listed).map(|p| format!("'{p}'")).collect();
    format!("{{{}, 'true'{words}", puncts.join(", "))
}

impl Parser<'_> {
    pub(super) fn token_after(&self) -> Option<&Token> {
        self.lexemes.get(self.at + 1).map(|l| &l.token)
    }

    /// The message about the token here.
    pub(super) fn complaint(&self, what: &str, expecting: &str) -> (u32, String) {
        let text = self.text();
        (
            self.start(),
            format!("Syntax error: {what} input '{text}' expecting {expecting}"),
        )
    }

    pub(super) fn report(&mut self, error: (u32, String)) {
        // ANTLR stays silent until a token matches again.
        if !self.recovering {
            self.errors.push(error);
        }
    }

    /// Skips a token that starts no operand, and is none of `also`, if the next one does or is.
    pub(super) fn start_of_operand(&mut self, also: &[&str]) -> Parsed<()> {
        let fits = |token| starts_operand(token) || is_one_of(token, also);
        if fits(Some(self.token())) {
            return Ok(());
        }
        // Single-token deletion: skipping one token must lead to one that fits.
        let next = fits(self.token_after());
        let error = self.complaint(if next { "extraneous" } else { "mismatched" }, &expected(also));
        if next {
            self.report(error);
            self.advance();
            return Ok(());
        }
        if !is_operator(self.token()) || self.errors.len() >= MAX_OPERATORS {
            return Err(error);
        }
        // ANTLR continues with the operator, as if the operand before it had been there.
        self.report(error);
        self.advance();
        self.start_of_operand(&[])
    }

    /// After `!` or `-`, of which there may be more before.
    pub(super) fn start_of_negated(&mut self, punct: &str) -> Parsed<()> {
        // The two operators do not follow each other.
        match punct {
            "-" if self.is("!") => return Err(self.no_alternative(self.at - 1)),
            "!" if self.is("-") && !matches!(self.token_after(), Some(Token::Int(_) | Token::Double(_))) => {
                self.advance();
                return Err(self.no_alternative(self.at - 1));
            }
            _ if starts_operand(Some(self.token())) => return Ok(()),
            "!" => return Err(self.complaint("extraneous", OPERAND)),
            _ => {}
        }
        let error = self.no_alternative(self.at - 1);
        self.report(error);
        Err(self.complaint("mismatched", OPERAND))
    }

    /// The message about the token here, with the text from another one on.
    pub(super) fn no_alternative(&self, from: usize) -> (u32, String) {
        // At the end of the text, the message ends with the last token.
        let end = match self.token() {
            Token::Eof => self.lexemes[self.at - 1].end,
            _ => self.lexemes[self.at].end,
        };
        let text: String = self.chars[self.lexemes[from].start as usize..end as usize]
            .iter()
            .collect();
        (
            self.start(),
            format!("Syntax error: no viable alternative at input '{text}'"),
        )
    }

    /// Parses an expression that `closer` ends.
    pub(super) fn inside<T>(&mut self, closer: &'static str, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.open.push(closer);
        let out = parse(self);
        self.open.pop();
        out
    }

    pub(super) fn starts_element(&self) -> bool {
        starts_operand(Some(self.token())) || self.is("?")
    }

    pub(super) fn starts_field(&self) -> bool {
        self.is("?") || matches!(self.token(), Token::Ident(_) | Token::Quoted)
    }

    /// Reads the end of a list or map after its elements, or after the comma behind them.
    pub(super) fn close(&mut self, closer: &'static str, comma: bool, empty: bool) -> Parsed<()> {
        if self.accept(closer).is_some() {
            return Ok(());
        }
        // A comma may stand alone in brackets.
        if comma || (empty && self.accept(",").is_some()) {
            return self.expect(closer).map(drop);
        }
        let set = format!("{{'{closer}', ','}}");
        if !is_one_of(self.token_after(), &[closer, ","]) {
            return Err(self.complaint("mismatched", &set));
        }
        let error = self.complaint("extraneous", &set);
        self.report(error);
        self.advance();
        self.accept(",");
        self.expect(closer).map(drop)
    }

    /// Reads a closing bracket or a colon.
    pub(super) fn expect(&mut self, punct: &'static str) -> Parsed<u32> {
        if let Some(at) = self.accept(punct) {
            return Ok(at);
        }
        let expecting = format!("'{punct}'");
        // Deletion of a token is tried before insertion of one, as ANTLR does.
        if is_one_of(self.token_after(), &[punct]) {
            let error = self.complaint("extraneous", &expecting);
            self.report(error);
            self.advance();
            return Ok(self.advance());
        }
        if !self.follows(punct) {
            return Err(self.complaint("mismatched", &expecting));
        }
        let text = self.text();
        self.report((self.start(), format!("Syntax error: missing '{punct}' at '{text}'")));
        // Insertion: goes on as if the token had been there.
        self.recovering = true;
        Ok(self.start())
    }

    /// True if the token here may follow this bracket or colon.
    fn follows(&self, punct: &str) -> bool {
        if punct == ":" {
            return starts_operand(Some(self.token()));
        }
        match (self.token(), self.open.last()) {
            (Token::Eof, None) => true,
            (Token::Punct(","), Some(closer)) => *closer != ":",
            (Token::Punct(p), Some(closer)) => p == closer,
            _ => false,
        }
    }
}
