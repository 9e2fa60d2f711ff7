//! A recursive-descent parser. Macros are expanded while the calls are read; see [`macros`](super::macros).

use crate::ast::{Call, Element, Entry, Expr, Kind, Literal, Select, Struct, StructField, op};
use crate::lexer::{Lexeme, Lexer, Token};
use crate::macros;
use crate::source::Issues;
use std::sync::Arc;

/// Longer expressions are refused, in code points.
const MAX_SIZE: usize = 100_000;
/// How deeply expressions nest, counting each operand of a chain of operators.
const MAX_DEPTH: usize = 250;
/// How deep the tree is after macros are expanded.
const MAX_EXPANDED: usize = 400;

const RESERVED: [&str; 17] = [
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

mod recovery;

mod precedence_of {
    pub(super) const OR: u8 = 0;
    pub(super) const AND: u8 = 1;
    pub(super) const RELATION: u8 = 2;
    pub(super) const SUM: u8 = 3;
    pub(super) const PRODUCT: u8 = 4;
}

/// The errors of the parser are found one at a time; those of the lexer all at once.
type Parsed<T> = Result<T, (u32, String)>;

/// A tree, and how many ids it uses.
pub(crate) struct Tree {
    pub root: Expr,
    pub ids: usize,
}

/// Parses an expression; `binds` says whether `cel.bind` is a macro.
pub(crate) fn parse(source: &str, binds: bool) -> Result<Tree, Issues> {
    let chars: Vec<char> = source.chars().collect();
    if chars.len() > MAX_SIZE {
        let size = chars.len();
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}");
        return Err(Issues::unplaced(message));
    }
    let (lexemes, mut errors) = Lexer::new(&chars).run();
    let mut parser = Parser {
        chars: &chars,
        binds,
        lexemes,
        at: 0,
        depth: 0,
        ids: 0,
        recovering: false,
        open: Vec::new(),
        errors: Vec::new(),
    };
    let root = parser.whole().map_err(|why| {
        if parser.recovering && why.0 != u32::MAX {
            recovery::SILENT
        } else {
            why
        }
    });
    errors.append(&mut parser.errors);
    match root {
        Ok(root) if errors.is_empty() && is_deep(&root, 0) => Err(Issues::unplaced(too_deep())),
        Ok(root) if errors.is_empty() => Ok(Tree { root, ids: parser.ids }),
        Err((u32::MAX, message)) => Err(Issues::unplaced(message)),
        root => {
            errors.extend(root.err().filter(|why| *why != recovery::SILENT));
            Err(Issues::place(source, errors))
        }
    }
}

fn too_deep() -> String {
    format!("expression recursion limit exceeded: {MAX_DEPTH}")
}

/// True if macros made the tree too deep, which nests loops that nobody could afford: each pass over the tree recurses.
fn is_deep(e: &Expr, depth: usize) -> bool {
    let mut deep = depth > MAX_EXPANDED;
    e.children(&mut |child| deep = deep || is_deep(child, depth + 1));
    deep
}

pub(crate) struct Parser<'s> {
    chars: &'s [char],
    pub binds: bool,
    lexemes: Vec<Lexeme>,
    at: usize,
    depth: usize,
    ids: usize,
    /// True from a token that was assumed to be there to the next one that is: what is wrong there is not reported.
    recovering: bool,
    /// What closes the brackets that are open here, the innermost last.
    open: Vec<&'static str>,
    pub errors: Vec<(u32, String)>,
}

impl Parser<'_> {
    fn whole(&mut self) -> Parsed<Expr> {
        self.start_of_operand(&[])?;
        let root = self.expr()?;
        if *self.token() == Token::Eof {
            return Ok(root);
        }
        if self.token_after() == Some(&Token::Eof) {
            let unwanted = self.complaint("extraneous", "<EOF>");
            self.report(unwanted);
            return Ok(root);
        }
        Err(self.complaint("mismatched", "<EOF>"))
    }

    fn token(&self) -> &Token {
        &self.lexemes[self.at].token
    }

    fn start(&self) -> u32 {
        self.lexemes[self.at].start
    }

    fn text(&self) -> String {
        let lexeme = &self.lexemes[self.at];
        if lexeme.token == Token::Eof {
            return "<EOF>".to_owned();
        }
        self.chars[lexeme.start as usize..lexeme.end as usize].iter().collect()
    }

    fn is(&self, punct: &str) -> bool {
        matches!(self.token(), Token::Punct(p) if *p == punct)
    }

    /// Moves on and returns the offset of the token passed.
    fn advance(&mut self) -> u32 {
        let at = self.start();
        self.recovering = false;
        if *self.token() != Token::Eof {
            self.at += 1;
        }
        at
    }

    fn accept(&mut self, punct: &str) -> Option<u32> {
        self.is(punct).then(|| self.advance())
    }

    pub(crate) fn node(&mut self, at: u32, kind: Kind) -> Expr {
        self.ids += 1;
        Expr {
            id: self.ids - 1,
            at,
            kind,
        }
    }

    pub(crate) fn call(&mut self, at: u32, function: &str, args: Vec<Expr>) -> Expr {
        let call = Call {
            target: None,
            function: function.into(),
            args,
        };
        self.node(at, Kind::Call(Box::new(call)))
    }

    pub(crate) fn ident(&mut self, at: u32, name: &str) -> Expr {
        self.node(at, Kind::Ident(name.into()))
    }

    pub(crate) fn literal(&mut self, at: u32, literal: Literal) -> Expr {
        self.node(at, Kind::Literal(literal))
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err((u32::MAX, too_deep()));
        }
        Ok(())
    }

    fn expr(&mut self) -> Parsed<Expr> {
        let before = self.depth;
        self.deeper()?;
        let mut out = self.operators(0)?;
        if self.is("?") {
            out = self.conditional(out)?;
        }
        self.depth = before;
        Ok(out)
    }

    // What nests calls itself through few and small frames: hence the functions for what follows an operand.

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
            if precedence <= precedence_of::AND {
                left = self.logical(left, function, precedence)?;
                continue;
            }
            self.deeper()?;
            let at = self.advance();
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

    fn member(&mut self) -> Parsed<Expr> {
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
                    self.node(dot, Kind::Select(Box::new(select)))
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
        self.depth = before;
        Ok(left)
    }

    /// The name after a dot. All reserved words are allowed there but those that are tokens.
    fn name(&mut self) -> Parsed<Arc<str>> {
        if let Token::Ident(name) = self.token().clone() {
            self.advance();
            return Ok(name);
        }
        if *self.token() == Token::Quoted {
            let at = self.advance();
            self.errors.push((at, "unsupported syntax: '`'".to_owned()));
            return Ok("".into());
        }
        let text = self.text();
        let text = if *self.token() == Token::Eof { "" } else { &text };
        Err((
            self.start(),
            format!("Syntax error: no viable alternative at input '.{text}'"),
        ))
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
        match macros::expand(self, at, call) {
            Ok(expanded) => expanded,
            Err(call) => Ok(self.node(at, Kind::Call(Box::new(call)))),
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
                // What is left out may be the start of any operand.
                self.start_of_operand(&[])?;
                return self.primary();
            }
        };
        self.advance();
        Ok(self.literal(start, literal))
    }

    fn named(&mut self, start: u32, name: Arc<str>) -> Parsed<Expr> {
        if RESERVED.contains(&&*name) {
            self.errors.push((start, format!("reserved identifier: {name}")));
        }
        if let Some(parts) = self.message_name() {
            return self.message(&name, parts);
        }
        if self.is("(") {
            return self.global_call(name);
        }
        Ok(self.node(start, Kind::Ident(name)))
    }

    fn global_call(&mut self, name: Arc<str>) -> Parsed<Expr> {
        let open = self.advance();
        let args = self.arguments()?;
        self.invoke(open, None, name, args)
    }

    /// How many more parts the name of an object has whose construction follows: `.spec.template{`.
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
        Ok(self.node(at, Kind::Struct(Box::new(Struct { name, fields }))))
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
        Ok(self.node(at, Kind::List(elements)))
    }

    fn map(&mut self) -> Parsed<Expr> {
        let at = self.advance();
        let mut entries = Vec::new();
        self.start_of_operand(&["}", ",", "?"])?;
        let mut comma = false;
        while !self.is("}") && (entries.is_empty() || comma) && self.starts_element() {
            let optional = self.accept("?").is_some();
            let key = self.inside(":", Self::expr)?;
            self.expect(":")?;
            let value = self.inside("}", Self::expr)?;
            entries.push(Entry { key, value, optional });
            comma = self.accept(",").is_some();
        }
        self.close("}", comma, entries.is_empty())?;
        Ok(self.node(at, Kind::Map(entries)))
    }
}
