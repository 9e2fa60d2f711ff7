//! The parser (upstream's `parser.go`). It favours upstream's reading over a grammar of its own: each
//! construct is scanned to its end first, and what is inside is parsed as a text of its own.

use super::{Block, End, Error, Filter, Slice, Step};
use crate::value::{Str, Value};

/// Filters nest by quoting only, so that upstream's scanner cannot reach more than a few levels.
const MAX_DEPTH: usize = 16;

type Parsed<T> = Result<T, Error>;

fn error<T>(message: impl Into<String>) -> Parsed<T> {
    Err(Error(message.into()))
}

/// Parses text with actions in braces.
pub(super) fn template(text: &str, depth: usize) -> Parsed<Vec<Block>> {
    if depth > MAX_DEPTH {
        return error("nested too deeply");
    }
    let mut blocks = Vec::new();
    let mut rest = text;
    // A brace inside of an action was consumed by its parser, so this one starts the next action.
    while let Some((before, action)) = rest.split_once('{') {
        if !before.is_empty() {
            blocks.push(Block::Text(before.into()));
        }
        let mut parser = Parser {
            text: action,
            at: 0,
            depth,
        };
        blocks.push(Block::Action(parser.action()?));
        rest = &action[parser.at..];
    }
    if !rest.is_empty() {
        blocks.push(Block::Text(rest.into()));
    }
    Ok(blocks)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, prefix: &str) -> bool {
        let there = self.rest().starts_with(prefix);
        if there {
            self.at += prefix.len();
        }
        there
    }

    /// Moves to the next character for which `stop` holds, or to the end, and returns what lies between.
    fn until(&mut self, stop: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(stop).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// True if the character before the last one read is a backslash.
    fn escaped(&self) -> bool {
        // Bytes are enough: a backslash is never part of a longer character in UTF-8.
        self.at >= 2 && self.text.as_bytes()[self.at - 2] == b'\\'
    }

    /// Parses up to the closing brace.
    fn action(&mut self) -> Parsed<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.eat("}") {
                return Ok(steps);
            }
            if self.eat("[?(") {
                steps.push(Step::Filter(self.filter()?));
                continue;
            }
            if self.eat("..") {
                if matches!(steps.last(), Some(Step::Descent)) {
                    return error("invalid multiple recursive descent");
                }
                steps.push(Step::Descent);
                if self.peek().is_some_and(is_alphanumeric) {
                    steps.push(self.field());
                }
                continue;
            }
            match self.next() {
                None | Some('\r' | '\n') => return error("unclosed action"),
                // `@` and `$` stand for the current object.
                Some(' ' | '@' | '$') => {}
                Some('[') => self.array(&mut steps)?,
                Some(quote @ ('"' | '\'')) => steps.push(Step::Text(self.quoted(quote)?)),
                Some('.') => steps.push(self.field()),
                Some(c) if c == '+' || c == '-' || is_digit(c) => steps.push(Step::Constant(self.number(c)?)),
                Some(c) if is_alphanumeric(c) => {
                    // The first character belongs to the word.
                    self.at -= c.len_utf8();
                    steps.push(match self.until(is_terminator) {
                        "true" => Step::Constant(Value::Bool(true)),
                        "false" => Step::Constant(Value::Bool(false)),
                        name => Step::Keyword(Str::new(name)),
                    });
                }
                Some(c) if c.is_control() => {
                    return error(format!("unrecognized character in action: U+{:04X}", u32::from(c)));
                }
                Some(c) => {
                    return error(format!(
                        "unrecognized character in action: U+{:04X} '{c}'",
                        u32::from(c)
                    ));
                }
            }
        }
    }

    /// Parses `text` as an action of its own.
    fn nested(&self, text: &str) -> Parsed<Vec<Step>> {
        // Upstream parses parts as templates of their own, so a part may even close its action and open another.
        let blocks = template(&format!("{{{text}}}"), self.depth + 1)?;
        // Further blocks are dropped, as upstream only uses the first list node.
        match blocks.into_iter().next() {
            Some(Block::Action(steps)) => Ok(steps),
            _ => unreachable!("the text starts with a brace"),
        }
    }

    fn field(&mut self) -> Step {
        let from = self.at;
        loop {
            self.until(|c| c == '\\' || is_terminator(c));
            if self.peek() != Some('\\') {
                break;
            }
            // The character after a backslash does not terminate.
            self.next();
            self.next();
        }
        match &self.text[from..self.at] {
            "*" => Step::Wildcard,
            name => Step::Field(Str::from(name.replace('\\', ""))),
        }
    }

    fn number(&mut self, first: char) -> Parsed<Value> {
        let from = self.at - first.len_utf8();
        self.until(|c| c != '.' && !is_digit(c));
        // Only digits and points are collected; an exponent ends the number and fails as an unknown identifier.
        let text = &self.text[from..self.at];
        if let Ok(i) = text.parse::<i64>() {
            return Ok(Value::Int(i));
        }
        match text.parse::<f64>() {
            // Long digits overflow to infinity, which has no JSON form.
            Ok(f) if f.is_finite() => Ok(Value::Float(f)),
            _ => error(format!("cannot parse number {text}")),
        }
    }

    fn quoted(&mut self, quote: char) -> Parsed<Value> {
        let from = self.at;
        loop {
            match self.next() {
                None | Some('\n') => return error("unterminated quoted string"),
                Some(c) if c == quote && !self.escaped() => break,
                Some(_) => {}
            }
        }
        // The quote just read is one byte.
        let inner = &self.text[from..self.at - 1];
        match unquote(inner, quote) {
            Some(text) => Ok(Value::from(text)),
            None => error(format!("unquote string {quote}{inner}{quote} error invalid syntax")),
        }
    }

    /// Parses what follows `[`: an index, a slice, a quoted key or a union of these.
    fn array(&mut self, steps: &mut Vec<Step>) -> Parsed<()> {
        // Upstream's scan stops at the first bracket, so keys cannot contain one.
        let text = self.until(|c| c == ']' || c == '\n');
        if self.next() != Some(']') {
            return error("unterminated array");
        }
        // `[*]` is the slice of all elements in upstream's parser.
        let text = if text == "*" { ":" } else { text };
        if text.contains(',') {
            let members = text
                .split(',')
                .map(|m| self.nested(&format!("[{}]", m.trim_matches(' '))));
            steps.push(Step::Union(members.collect::<Parsed<_>>()?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
        // A quote inside of the key is left to `slice`, which reports it as an invalid index.
        if let Some(key) = key.filter(|k| !k.contains('\'')) {
            // As upstream, dots in the key separate fields unless they are escaped.
            steps.extend(self.nested(&format!(".{key}"))?);
            return Ok(());
        }
        steps.push(Step::Slice(slice(text)?));
        Ok(())
    }

    /// Parses what follows `[?(`.
    fn filter(&mut self) -> Parsed<Filter> {
        let from = self.at;
        // Only the first pair of quotes hides a parenthesis.
        let mut quote = None;
        let mut closed = false;
        loop {
            match self.next() {
                None | Some('\n') => return error("unterminated filter"),
                Some(c @ ('"' | '\'')) => match quote {
                    None => quote = Some(c),
                    Some(open) => closed |= c == open && !self.escaped(),
                },
                // Upstream ends a filter at a parenthesis outside of quotes, but only knows one pair.
                Some(')') if quote.is_some() == closed => break,
                Some(_) => {}
            }
        }
        let text = &self.text[from..self.at - 1];
        if self.next() != Some(']') {
            return error("unclosed array expect ]");
        }
        let Some((left, operator, right)) = comparison(text) else {
            return Ok(Filter {
                left: self.nested(text)?,
                comparison: None,
            });
        };
        let left = self.nested(left)?;
        Ok(Filter {
            left,
            comparison: Some((Str::new(operator), self.nested(right)?)),
        })
    }
}

/// Splits `left operator right`; `None` if the text has no operator between two sides.
fn comparison(text: &str) -> Option<(&str, &str, &str)> {
    let is_operator = |c| matches!(c, '!' | '<' | '>' | '=');
    // An operator at the very start has no left side, so the text is not a comparison.
    let from = text.find(is_operator).filter(|at| *at > 0)?;
    let run = text[from..].find(|c| !is_operator(c));
    // If nothing follows the operator, its last character is the right side.
    let to = run.map_or(text.len() - 1, |n| from + n);
    (to > from).then(|| (&text[..from], &text[from..to], &text[to..]))
}

fn slice(text: &str) -> Parsed<Slice> {
    let parts: Vec<&str> = text.split(':').collect();
    // Shape before value: `1-2` is an invalid index, while digits that overflow get a message of their own.
    let shaped = |part: &&str| {
        part.strip_prefix('-')
            .unwrap_or(part)
            .bytes()
            .all(|b| b.is_ascii_digit())
    };
    if parts.len() > 3 || !parts.iter().all(shaped) {
        return error(format!("invalid array index {text}"));
    }
    let number = |i: usize| match parts.get(i) {
        None | Some(&"") => Ok(None),
        Some(part) => match part.parse::<i64>() {
            Ok(n) => Ok(Some(n)),
            Err(_) => error(format!("array index {part} is not a number")),
        },
    };
    let start = number(0)?;
    let end = match (number(1)?, parts.len()) {
        (Some(n), _) => End::At(n),
        (None, 1) => End::AfterStart,
        (None, _) => End::Open,
    };
    Ok(Slice {
        start,
        end,
        step: number(2)?,
    })
}

/// Resolves the escapes of a Go string literal.
fn unquote(text: &str, quote: char) -> Option<String> {
    if !text.contains(['\\', quote]) {
        return Some(text.to_owned());
    }
    let mut out = Vec::new();
    let mut rest = text.chars();
    let mut utf8 = [0; 4];
    while let Some(c) = rest.next() {
        if c == quote {
            return None;
        }
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
            continue;
        }
        let escape = rest.next()?;
        // Also consumes the first octal digit, which has been read already.
        let mut digits = |radix, count, first: Option<char>| {
            let first = first.into_iter();
            let mut all = first.chain(rest.by_ref()).take(count);
            let value = (0..count).try_fold(0u32, |n, _| Some(n * radix + all.next()?.to_digit(radix)?))?;
            Some(value)
        };
        match escape {
            'a' => out.push(7),
            'b' => out.push(8),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(11),
            '\\' => out.push(b'\\'),
            // Go accepts only the quote that delimits the literal.
            '\'' | '"' if escape == quote => out.push(quote as u8),
            'x' => out.push(u8::try_from(digits(16, 2, None)?).ok()?),
            '0'..='7' => out.push(u8::try_from(digits(8, 3, Some(escape))?).ok()?),
            'u' | 'U' => {
                let value = digits(16, if escape == 'u' { 4 } else { 8 }, None)?;
                let c = char::from_u32(value)?;
                out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
            }
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn is_digit(c: char) -> bool {
    // Go's `unicode.IsDigit` includes digits of other scripts, which then fail to parse as numbers.
    c.is_ascii_digit() || (!c.is_ascii() && c.is_numeric())
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_terminator(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}
