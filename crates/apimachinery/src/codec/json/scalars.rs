//! `visit_scalars!`: what all visitors have in common that build trees of JSON.

/// The methods of a `serde::de::Visitor` of [`Value`](crate::Value)s for JSON scalars. A visitor adds `visit_seq` and
/// `visit_map`. Exported for the gateway's parsers that build only a part of a document: numbers must become the same
/// values everywhere.
#[doc(hidden)]
#[macro_export]
macro_rules! visit_scalars {
    () => {
        fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
            f.write_str("a JSON value")
        }
        fn visit_unit<E>(self) -> ::std::result::Result<$crate::Value, E> {
            Ok($crate::Value::Null)
        }
        fn visit_bool<E>(self, b: bool) -> ::std::result::Result<$crate::Value, E> {
            Ok($crate::Value::Bool(b))
        }
        fn visit_i64<E>(self, i: i64) -> ::std::result::Result<$crate::Value, E> {
            Ok($crate::Value::Int(i))
        }
        // Like in Go's decoder, integers beyond `i64` become floats.
        fn visit_u64<E>(self, i: u64) -> ::std::result::Result<$crate::Value, E> {
            let float = $crate::Value::Float(i as f64);
            Ok(i64::try_from(i).map_or(float, $crate::Value::Int))
        }
        fn visit_f64<E>(self, f: f64) -> ::std::result::Result<$crate::Value, E> {
            Ok($crate::Value::Float(f))
        }
        fn visit_str<E>(self, s: &str) -> ::std::result::Result<$crate::Value, E> {
            Ok($crate::Value::String($crate::Str::new(s)))
        }
    };
}
