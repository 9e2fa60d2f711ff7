//! Parses operators by precedence climbing. Entry point: `expr`, for a whole expression. Operators become calls of
//! functions such as `_+_`, as in cel-go; operands are left to `operands`.

use super::{Parsed, Parser};
use crate::ast::{Expr, op};
use crate::lexer::Token;

mod precedence_of {
    pub(super) const OR: u8 = 0;
    pub(super) const AND: u8 = 1;
    pub(super) const RELATION: u8 = 2;
    pub(super) const SUM: u8 = 3;
    pub(super) const PRODUCT: u8 = 4;
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        // Restored on success only, since an error ends the parsing.
        let before = self.depth;
        self.deeper()?;
        let mut out = self.operators(0)?;
        if self.is("?") {
            out = self.conditional(out)?;
        }
        self.depth = before;
        Ok(out)
    }

    // Nested expressions recurse through these functions, so each keeps its stack frame small and leaves the
    // work after the operand to another function.

    fn conditional(&mut self, condition: Expr) -> Parsed<Expr> {
        let at = self.advance();
        let yes = self.inside(":", |p| p.operators(0))?;
        self.expect(":")?;
        let no = self.expr()?;
        Ok(self.call(at, op::CONDITIONAL, vec![condition, yes, no]))
    }

    /// Operators of at least this precedence, by precedence climbing: few frames for each level of nesting.
    fn operators(&mut self, least: u8) -> Parsed<Expr> {
        let left = self.unary()?;
        match self.operator() {
            Some((_, precedence)) if precedence >= least => self.operations(left, least),
            _ => Ok(left),
        }
    }

    fn operations(&mut self, mut left: Expr, least: u8) -> Parsed<Expr> {
        let before = self.depth;
        while let Some((function, precedence)) = self.operator().filter(|(_, p)| *p >= least) {
            // Chains of logical operators are gathered; everything else associates to the left.
            if precedence <= precedence_of::AND {
                left = self.logical(left, function, precedence)?;
                continue;
            }
            self.deeper()?;
            let at = self.advance();
            // One level higher on the right makes operators left-associative.
            let right = self.operators(precedence + 1)?;
            left = self.call(at, function, vec![left, right]);
        }
        self.depth = before;
        Ok(left)
    }

    fn operator(&self) -> Option<(&'static str, u8)> {
        use precedence_of::{AND, OR, PRODUCT, RELATION, SUM};
        Some(match self.token() {
            Token::Punct("||") => (op::OR, OR),
            Token::Punct("&&") => (op::AND, AND),
            Token::Punct("<") => ("_<_", RELATION),
            Token::Punct("<=") => ("_<=_", RELATION),
            Token::Punct(">") => ("_>_", RELATION),
            Token::Punct(">=") => ("_>=_", RELATION),
            Token::Punct("==") => (op::EQUALS, RELATION),
            Token::Punct("!=") => (op::NOT_EQUALS, RELATION),
            Token::In => (op::IN, RELATION),
            Token::Punct("+") => (op::ADD, SUM),
            Token::Punct("-") => ("_-_", SUM),
            Token::Punct("*") => ("_*_", PRODUCT),
            Token::Punct("/") => ("_/_", PRODUCT),
            Token::Punct("%") => ("_%_", PRODUCT),
            _ => return None,
        })
    }

    /// A chain of `&&` or `||` becomes a balanced tree, so that long ones are not deep.
    fn logical(&mut self, first: Expr, function: &'static str, precedence: u8) -> Parsed<Expr> {
        let mut operands = vec![first];
        let mut places = Vec::new();
        while self.operator().is_some_and(|(f, _)| f == function) {
            places.push(self.advance());
            operands.push(self.operators(precedence + 1)?);
        }
        let mut operands = operands.into_iter();
        Ok(self.balance(function, &places, &mut operands))
    }

    fn balance(&mut self, function: &str, places: &[u32], operands: &mut impl Iterator<Item = Expr>) -> Expr {
        if places.is_empty() {
            return operands.next().expect("there is one operand more than operators");
        }
        // The depth is the logarithm of the number of operands.
        let middle = places.len() / 2;
        let left = self.balance(function, &places[..middle], operands);
        let right = self.balance(function, &places[middle + 1..], operands);
        self.call(places[middle], function, vec![left, right])
    }

    fn unary(&mut self) -> Parsed<Expr> {
        if self.is("!") || self.is("-") {
            return self.negated();
        }
        self.member()
    }

    fn negated(&mut self) -> Parsed<Expr> {
        for (punct, function) in [("!", op::NOT), ("-", op::NEGATE)] {
            let number = matches!(
                self.lexemes.get(self.at + 1).map(|l| &l.token),
                Some(Token::Int(_) | Token::Double(_))
            );
            if !self.is(punct) || (punct == "-" && number) {
                continue;
            }
            let at = self.start();
            // Two of the same operator cancel each other.
            let mut odd = false;
            while self.accept(punct).is_some() {
                odd = !odd;
            }
            self.start_of_negated(punct)?;
            let operand = self.member()?;
            return Ok(if odd {
                self.call(at, function, vec![operand])
            } else {
                operand
            });
        }
        self.member()
    }
}
