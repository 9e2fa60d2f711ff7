//! Parses operands: literals, names, calls, selections, lists, maps and messages. Entry point: `member`, which
//! `operators` calls for each operand; calls that are macros go to `macros`.

use super::{Parsed, Parser, macros, recovery};
use crate::ast::{Call, Element, Entry, Expr, ExprKind, Literal, Select, Struct, StructField, op};
use crate::lexer::{RESERVED, Token};
use std::sync::Arc;

impl Parser<'_> {
    pub(super) fn member(&mut self) -> Parsed<Expr> {
        let left = self.primary()?;
        if self.is(".") || self.is("[") {
            return self.members(left);
        }
        Ok(left)
    }

    fn members(&mut self, mut left: Expr) -> Parsed<Expr> {
        let before = self.depth;
        loop {
            if let Some(dot) = self.accept(".") {
                self.deeper()?;
                let optional = self.accept("?").is_some();
                if optional && !matches!(self.token(), Token::Ident(_) | Token::Quoted) {
                    let wrong = self.complaint("mismatched", "{IDENTIFIER, ESC_IDENTIFIER}");
                    self.report(wrong);
                    // Two errors, as cel-go reports the token and the failed selection.
                    return Err((self.start(), "unsupported ident kind".to_owned()));
                }
                let field = self.name()?;
                left = if optional {
                    let at = self.start();
                    let field = self.literal(at, Literal::String(field));
                    self.call(dot, op::OPT_SELECT, vec![left, field])
                } else if let Some(open) = self.accept("(") {
                    let args = self.arguments()?;
                    self.invoke(open, Some(left), field, args)?
                } else {
                    let select = Select {
                        operand: left,
                        field,
                        test: false,
                    };
                    self.node(dot, ExprKind::Select(Box::new(select)))
                };
            } else if let Some(open) = self.accept("[") {
                self.deeper()?;
                let function = self.accept("?").map_or(op::INDEX, |_| op::OPT_INDEX);
                self.start_of_operand(if function == op::INDEX { &["?"] } else { &[] })?;
                let index = self.inside("]", Self::expr)?;
                self.expect("]")?;
                left = self.call(open, function, vec![left, index]);
            } else {
                break;
            }
        }
        // Members nest in the tree but not in the parser, so the depth is given back.
        self.depth = before;
        Ok(left)
    }

    /// The name after a dot. Reserved words are allowed there, unless the lexer has a token for them.
    fn name(&mut self) -> Parsed<Arc<str>> {
        if let Token::Ident(name) = self.token().clone() {
            self.advance();
            return Ok(name);
        }
        if *self.token() == Token::Quoted {
            let at = self.advance();
            // Goes on with an empty name, so that later errors are found as well.
            self.errors.push((at, "unsupported syntax: '`'".to_owned()));
            return Ok("".into());
        }
        Err(match self.token() {
            // These are the only keywords that start an operand.
            Token::True | Token::False | Token::Null => self.complaint("mismatched", "IDENTIFIER"),
            _ => self.no_alternative(self.at.saturating_sub(1)),
        })
    }

    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        let mut args = Vec::new();
        self.start_of_operand(&[")"])?;
        if self.accept(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.inside(")", Self::expr)?);
            if self.accept(",").is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok(args)
    }

    fn invoke(&mut self, at: u32, target: Option<Expr>, function: Arc<str>, args: Vec<Expr>) -> Parsed<Expr> {
        let call = Call { target, function, args };
        // Macros expand while their calls are parsed.
        match macros::expand(self, at, call) {
            Ok(expanded) => expanded,
            Err(call) => Ok(self.node(at, ExprKind::Call(Box::new(call)))),
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        match self.token() {
            Token::Ident(_) => self.name_or_call(),
            Token::Punct("(") => self.nested(),
            Token::Punct("[") => self.list(),
            Token::Punct("{") => self.map(),
            _ => self.literal_or_rooted(),
        }
    }

    fn nested(&mut self) -> Parsed<Expr> {
        self.advance();
        let inner = self.inside(")", Self::expr)?;
        self.expect(")")?;
        Ok(inner)
    }

    fn name_or_call(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let name = self.name()?;
        self.named(start, name)
    }

    fn literal_or_rooted(&mut self) -> Parsed<Expr> {
        let start = self.start();
        let token = self.token().clone();
        let literal = match token {
            Token::Punct("-") => {
                self.advance();
                match self.token().clone() {
                    // 2^63 only fits as the negative number.
                    Token::Int(n) if n <= 1 << 63 => Literal::Int((n as i64).wrapping_neg()),
                    Token::Int(_) => return Err((start, "invalid int literal".to_owned())),
                    Token::Double(f) => Literal::Double(-f),
                    _ => return Err(self.complaint("mismatched", recovery::OPERAND)),
                }
            }
            Token::Int(n) => match i64::try_from(n) {
                Ok(n) => Literal::Int(n),
                Err(_) => return Err((start, "invalid int literal".to_owned())),
            },
            Token::Uint(n) => Literal::Uint(n),
            Token::Double(f) => Literal::Double(f),
            Token::String(s) => Literal::String(s),
            Token::Bytes(b) => Literal::Bytes(b),
            Token::True => Literal::Bool(true),
            Token::False => Literal::Bool(false),
            Token::Null => Literal::Null,
            Token::Punct(".") => {
                // A leading dot names the root of the container, which is the only one there is.
                self.advance();
                return self.name_or_call();
            }
            Token::Punct("!") => return Err(self.complaint("mismatched", recovery::OPERAND)),
            _ => {
                // Any operand could have started here.
                self.start_of_operand(&[])?;
                return self.primary();
            }
        };
        self.advance();
        Ok(self.literal(start, literal))
    }

    fn named(&mut self, start: u32, name: Arc<str>) -> Parsed<Expr> {
        // Reported, but parsed as a name, so that later errors are found as well.
        if RESERVED.contains(&&*name) {
            self.errors.push((start, format!("reserved identifier: {name}")));
        }
        if let Some(parts) = self.message_name() {
            return self.message(&name, parts);
        }
        if self.is("(") {
            return self.global_call(name);
        }
        Ok(self.node(start, ExprKind::Ident(name)))
    }

    fn global_call(&mut self, name: Arc<str>) -> Parsed<Expr> {
        let open = self.advance();
        let args = self.arguments()?;
        self.invoke(open, None, name, args)
    }

    /// The number of further parts in the type name of a message construction: `.spec.template{`. Looks ahead
    /// without consuming, because only the brace tells it from a selection.
    fn message_name(&self) -> Option<usize> {
        let token = |i: usize| self.lexemes.get(self.at + i).map(|l| &l.token);
        let mut i = 0;
        while matches!(token(i), Some(Token::Punct("."))) && matches!(token(i + 1), Some(Token::Ident(_))) {
            i += 2;
        }
        matches!(token(i), Some(Token::Punct("{"))).then_some(i / 2)
    }

    fn message(&mut self, first: &str, parts: usize) -> Parsed<Expr> {
        let name = self.rest_of_name(first, parts)?;
        let at = self.advance();
        let mut fields = Vec::new();
        if !matches!(
            self.token(),
            Token::Ident(_) | Token::Quoted | Token::Punct("}" | "," | "?")
        ) {
            return Err(self.complaint("mismatched", "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"));
        }
        let mut comma = false;
        while !self.is("}") && (fields.is_empty() || comma) && self.starts_field() {
            fields.push(self.inside("}", Self::message_field)?);
            comma = self.accept(",").is_some();
        }
        self.close("}", comma, fields.is_empty())?;
        Ok(self.node(at, ExprKind::Struct(Box::new(Struct { name, fields }))))
    }

    fn rest_of_name(&mut self, first: &str, parts: usize) -> Parsed<Arc<str>> {
        let mut name = first.to_owned();
        for _ in 0..parts {
            self.advance();
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name.into())
    }

    fn message_field(&mut self) -> Parsed<StructField> {
        let optional = self.accept("?").is_some();
        let name = self.name()?;
        let at = self.expect(":")?;
        let value = self.expr()?;
        Ok(StructField {
            at,
            name,
            value,
            optional,
        })
    }

    fn list(&mut self) -> Parsed<Expr> {
        let at = self.advance();
        let mut elements = Vec::new();
        self.start_of_operand(&["]", ",", "?"])?;
        let mut comma = false;
        while !self.is("]") && (elements.is_empty() || comma) && self.starts_element() {
            let optional = self.accept("?").is_some();
            let value = self.inside("]", Self::expr)?;
            elements.push(Element { value, optional });
            comma = self.accept(",").is_some();
        }
        self.close("]", comma, elements.is_empty())?;
        Ok(self.node(at, ExprKind::List(elements)))
    }

    fn map(&mut self) -> Parsed<Expr> {
        let at = self.advance();
        let mut entries = Vec::new();
        self.start_of_operand(&["}", ",", "?"])?;
        let mut comma = false;
        while !self.is("}") && (entries.is_empty() || comma) && self.starts_element() {
            let optional = self.accept("?").is_some();
            let key = self.inside(":", Self::expr)?;
            if let Err(why) = self.expect(":") {
                if !self.is("}") {
                    return Err(why);
                }
                // ANTLR gives up the entries only, and goes on with the bracket that closes them.
                self.report(why);
                break;
            }
            let value = self.inside("}", Self::expr)?;
            entries.push(Entry { key, value, optional });
            comma = self.accept(",").is_some();
        }
        self.close("}", comma, entries.is_empty())?;
        Ok(self.node(at, ExprKind::Map(entries)))
    }
}
