//! Reads the overloads of the libraries: `(int, int) int` for a function, `string.(int) string` for a method.
//! Single capital letters are type parameters.

use super::Overload;
use crate::types::Type;

pub(super) fn parse(text: &'static str) -> Overload {
    let mut reader = Reader(text);
    // A method has its target before the parenthesis.
    let member = !text.starts_with('(');
    let mut params = Vec::new();
    if member {
        params.push(reader.ty());
        reader.eat(".");
    }
    reader.eat("(");
    while !reader.0.starts_with(')') {
        params.push(reader.ty());
        reader.eat(", ");
    }
    reader.eat(") ");
    let result = reader.ty();
    // Declarations are constants, so a mistake shows as soon as any expression is compiled.
    assert!(reader.0.is_empty(), "an overload ends with its result: {text}");
    Overload { member, params, result }
}

struct Reader(&'static str);

impl Reader {
    fn eat(&mut self, text: &str) {
        // Missing separators are tolerated; the final check finds whatever was not understood.
        self.0 = self.0.strip_prefix(text).unwrap_or(self.0);
    }

    fn ty(&mut self) -> Type {
        let end = self.0.find(['(', ')', ',', '.']).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(end);
        self.0 = rest;
        let name = name.trim();
        match name {
            "list" | "optional" | "map" => {
                self.eat("(");
                let first = self.ty();
                let out = match name {
                    "list" => Type::list(first),
                    "optional" => Type::optional(first),
                    _ => {
                        self.eat(", ");
                        Type::map(first, self.ty())
                    }
                };
                self.eat(")");
                out
            }
            "dyn" => Type::Dyn,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "type" => {
                self.eat("(");
                let of = self.ty();
                self.eat(")");
                Type::Type(of.into())
            }
            "A" => Type::Param(0),
            "B" => Type::Param(1),
            "Quantity" => Type::QUANTITY,
            "URL" => Type::Opaque("kubernetes.URL"),
            "Semver" => Type::Opaque("kubernetes.Semver"),
            "IP" => Type::Opaque("net.IP"),
            "Format" => Type::Opaque("kubernetes.NamedFormat"),
            "Authorizer" => Type::AUTHORIZER,
            "PathCheck" => Type::Opaque("kubernetes.authorization.PathCheck"),
            "GroupCheck" => Type::Opaque("kubernetes.authorization.GroupCheck"),
            "ResourceCheck" => Type::RESOURCE_CHECK,
            "Decision" => Type::Opaque("kubernetes.authorization.Decision"),
            "CIDR" => Type::Opaque("net.CIDR"),
            other => unreachable!("libraries name types that exist: {other}"),
        }
    }
}
